/* SPDX-License-Identifier: MIT */
/* format.c - the skippable frames of a trace, to bytes and back. Bytes read are hostile. */
#include "encoder/format.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/kinds.h"

#define HEAD_BYTES    8u /* of a skippable frame: magic, size of what follows */
#define HEADER_FIXED  48u
#define INFO_FIXED    56u
#define VERDICT_FIXED 92u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "traces are little endian, copied as they are");

/* --- CRC-32 (IEEE 802.3, as in zlib) ---------------------------------------------------------- */

static uint32_t crc32_nibble(uint32_t crc)
{
	static const uint32_t table[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
		0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
		0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};

	return crc >> 4 ^ table[crc & 15];
}

uint32_t spr_format_crc32(const void *bytes, size_t n_bytes)
{
	const uint8_t *at = bytes;
	uint32_t crc = ~0u;

	for (size_t i = 0; i < n_bytes; i++)
		crc = crc32_nibble(crc32_nibble(crc ^ at[i]));
	return ~crc;
}

bool spr_format_sum_is_right(const uint8_t *frame, size_t n_bytes)
{
#ifdef SPR_FUZZ
	(void)frame;
	return n_bytes;
#else
	return spr_get32(frame + n_bytes - 4) == spr_format_crc32(frame + 8, n_bytes - 12);
#endif
}

/* --- A skippable frame of ours ---------------------------------------------------------------- */

static void ours_begin(uint8_t *out, size_t n_bytes, uint32_t tag)
{
	spr_put32(out, SPR_MAGIC_OURS);
	spr_put32(out + 4, (uint32_t)(n_bytes - HEAD_BYTES));
	spr_put32(out + 8, tag);
}

static void ours_end(uint8_t *out, size_t n_bytes)
{
	spr_put32(out + n_bytes - 4, spr_format_crc32(out + 8, n_bytes - 12));
}

static bool ours_is_whole(const uint8_t *frame, size_t n_bytes, uint32_t tag, size_t n_bytes_least)
{
	return n_bytes >= n_bytes_least && spr_get32(frame) == SPR_MAGIC_OURS &&
	       spr_get32(frame + 4) == n_bytes - HEAD_BYTES && spr_get32(frame + 8) == tag &&
	       spr_format_sum_is_right(frame, n_bytes);
}

/* --- Header ----------------------------------------------------------------------------------- */

uint64_t spr_format_content_max(uint32_t frame_records, uint32_t frame_bytes, uint32_t n_fields)
{
	const uint64_t payload = frame_bytes > SPR_RECORD_BYTES_MAX ? frame_bytes
	                                                            : SPR_RECORD_BYTES_MAX;

	/* Text costs at most three bytes for each of its own; a record's own columns and its share
	 * of the tables at most 64; a field at most six column heads. */
	return 3 * payload + 64ull * frame_records + 96ull * n_fields + 4096;
}

size_t spr_format_header_put(uint8_t *out, const struct spr_format_header *h,
                             const struct spr_kind *kinds, uint32_t n_kinds)
{
	const size_t n_kinds_bytes = spr_kinds_encode(NULL, 0, kinds, n_kinds);
	const size_t n_bytes = HEAD_BYTES + HEADER_FIXED + n_kinds_bytes + 4;

	if (!out)
		return n_bytes;
	ours_begin(out, n_bytes, SPR_TAG_HEADER);
	spr_put32(out + 12, SPR_FORMAT_VERSION);
	spr_put32(out + 16, h->flags);
	spr_put32(out + 20, h->frame_records);
	spr_put32(out + 24, h->frame_bytes);
	spr_put32(out + 28, h->content_bytes_max);
	spr_put64(out + 32, h->start_ns);
	spr_put64(out + 40, h->start_unix_ns);
	spr_put32(out + 48, (uint32_t)n_kinds_bytes);
	spr_put32(out + 52, 0);
	spr_kinds_encode(out + HEAD_BYTES + HEADER_FIXED, n_kinds_bytes, kinds, n_kinds);
	ours_end(out, n_bytes);
	return n_bytes;
}

static int limits_check(const struct spr_format_header *h)
{
	if (!h->frame_records || h->frame_records > SPR_FRAME_RECORDS_MAX ||
	    h->frame_bytes > SPR_FRAME_BYTES_MAX || h->content_bytes_max > SPR_CONTENT_BYTES_MAX)
		return spr_fail(-EPROTO,
		                "the trace's header allows frames of %u records and %u bytes (%u "
		                "decoded): more than any encoder writes",
		                h->frame_records, h->frame_bytes, h->content_bytes_max);
	return 0;
}

int spr_format_header_get(struct spr_format_header *h, struct spr_kind **kinds, uint32_t *n_kinds,
                          const uint8_t *frame, size_t n_bytes)
{
	uint32_t n_kinds_bytes;
	int err;

	if (n_bytes < HEAD_BYTES + 8 || spr_get32(frame + 8) != SPR_TAG_HEADER)
		return spr_fail(-EPROTO, "this is no trace of ours");
	if (spr_get32(frame + 12) != SPR_FORMAT_VERSION)
		return spr_fail(-EPROTO, "the trace has format version %u, this library reads %u",
		                spr_get32(frame + 12), SPR_FORMAT_VERSION);
	if (!ours_is_whole(frame, n_bytes, SPR_TAG_HEADER, HEAD_BYTES + HEADER_FIXED + 4))
		return spr_fail(-EPROTO, "the trace's header is damaged");
	h->flags = spr_get32(frame + 16);
	h->frame_records = spr_get32(frame + 20);
	h->frame_bytes = spr_get32(frame + 24);
	h->content_bytes_max = spr_get32(frame + 28);
	h->start_ns = spr_get64(frame + 32);
	h->start_unix_ns = spr_get64(frame + 40);
	n_kinds_bytes = spr_get32(frame + 48);
	if ((h->flags & ~SPR_GIVEN_ORDER) || spr_get32(frame + 52))
		return spr_fail(-EPROTO,
		                "the trace's header asks for what this library does not know");
	err = limits_check(h);
	if (err)
		return err;
	if (n_kinds_bytes != n_bytes - HEAD_BYTES - HEADER_FIXED - 4)
		return spr_fail(-EPROTO, "the trace's header is damaged");
	err = spr_kinds_decode(kinds, n_kinds, frame + HEAD_BYTES + HEADER_FIXED, n_kinds_bytes);
	return err ? spr_fail(err, "the trace's declaration of kinds cannot be read") : 0;
}

/* --- Info ------------------------------------------------------------------------------------- */

size_t spr_format_info_bytes(uint32_t n_kinds)
{
	return HEAD_BYTES + INFO_FIXED + 8u * n_kinds + 4;
}

void spr_format_info_put(uint8_t *out, const struct spr_format_info *info,
                         const struct spr_kind_count *kinds)
{
	const size_t n_bytes = spr_format_info_bytes(info->n_kinds);

	ours_begin(out, n_bytes, SPR_TAG_FRAME);
	spr_put32(out + 12, info->frame_bytes);
	spr_put32(out + 16, info->content_bytes);
	spr_put32(out + 20, info->n_records);
	spr_put64(out + 24, info->index);
	spr_put64(out + 32, info->records_before);
	spr_put64(out + 40, info->first_ns);
	spr_put64(out + 48, info->last_ns);
	spr_put32(out + 56, info->n_kinds);
	spr_put32(out + 60, 0);
	for (uint32_t i = 0; i < info->n_kinds; i++) {
		spr_put32(out + 64 + 8 * i, kinds[i].kind);
		spr_put32(out + 68 + 8 * i, (uint32_t)kinds[i].records);
	}
	ours_end(out, n_bytes);
}

int spr_format_info_get(struct spr_format_info *info, const uint8_t *frame, size_t n_bytes)
{
	if (!ours_is_whole(frame, n_bytes, SPR_TAG_FRAME, spr_format_info_bytes(0)))
		return -EBADMSG;
	info->frame_bytes = spr_get32(frame + 12);
	info->content_bytes = spr_get32(frame + 16);
	info->n_records = spr_get32(frame + 20);
	info->index = spr_get64(frame + 24);
	info->records_before = spr_get64(frame + 32);
	info->first_ns = spr_get64(frame + 40);
	info->last_ns = spr_get64(frame + 48);
	info->n_kinds = spr_get32(frame + 56);
	if (info->n_kinds > SPR_INFO_KINDS_MAX || n_bytes != spr_format_info_bytes(info->n_kinds))
		return -EBADMSG;
	return 0;
}

/* --- Verdict ---------------------------------------------------------------------------------- */

size_t spr_format_verdict_bytes(uint32_t n_kinds)
{
	return HEAD_BYTES + VERDICT_FIXED + 16u * n_kinds + 4;
}

void spr_format_verdict_put(uint8_t *out, const struct spr_format_totals *totals,
                            const struct spr_kind_count *kinds, uint32_t n_kinds)
{
	const size_t n_bytes = spr_format_verdict_bytes(n_kinds);
	const uint64_t numbers[] = {
		totals->verdict.delivered, totals->verdict.lost, totals->verdict.left_running,
		totals->verdict.blind, totals->records, totals->frames, totals->content_bytes,
		totals->first_ns, totals->last_ns, totals->verdict.refused,
	};

	ours_begin(out, n_bytes, SPR_TAG_VERDICT);
	spr_put32(out + 12, totals->verdict.reasons);
	memcpy(out + 16, numbers, sizeof(numbers));
	spr_put32(out + 96, n_kinds);
	for (uint32_t i = 0; i < n_kinds; i++) {
		spr_put32(out + 100 + 16 * i, kinds[i].kind);
		spr_put32(out + 104 + 16 * i, 0);
		spr_put64(out + 108 + 16 * i, kinds[i].records);
	}
	ours_end(out, n_bytes);
}

int spr_format_verdict_get(struct spr_format_totals *totals, const uint8_t *frame, size_t n_bytes)
{
	if (!ours_is_whole(frame, n_bytes, SPR_TAG_VERDICT, spr_format_verdict_bytes(0)))
		return -EBADMSG;
	*totals = (struct spr_format_totals){ .verdict = SPR_VERDICT_INIT };
	totals->verdict.reasons = spr_get32(frame + 12);
	totals->verdict.delivered = spr_get64(frame + 16);
	totals->verdict.lost = spr_get64(frame + 24);
	totals->verdict.left_running = spr_get64(frame + 32);
	totals->verdict.blind = spr_get64(frame + 40);
	totals->records = spr_get64(frame + 48);
	totals->frames = spr_get64(frame + 56);
	totals->content_bytes = spr_get64(frame + 64);
	totals->first_ns = spr_get64(frame + 72);
	totals->last_ns = spr_get64(frame + 80);
	totals->verdict.refused = spr_get64(frame + 88);
	return 0;
}

/* --- Seek table ------------------------------------------------------------------------------- */

size_t spr_format_table_bytes(size_t n_entries)
{
	return HEAD_BYTES + 8 * n_entries + 9;
}

void spr_format_table_put(uint8_t *out, const struct spr_seek_entry *entries, size_t n_entries)
{
	const size_t n_bytes = spr_format_table_bytes(n_entries);

	spr_put32(out, SPR_MAGIC_TABLE);
	spr_put32(out + 4, (uint32_t)(n_bytes - HEAD_BYTES));
	for (size_t i = 0; i < n_entries; i++) {
		spr_put32(out + 8 + 8 * i, entries[i].compressed);
		spr_put32(out + 12 + 8 * i, entries[i].content);
	}
	spr_put32(out + n_bytes - 9, (uint32_t)n_entries);
	out[n_bytes - 5] = 0; /* no checksums in the table: the frames have their own */
	spr_put32(out + n_bytes - 4, SPR_MAGIC_END);
}
