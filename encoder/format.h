/* SPDX-License-Identifier: MIT */
/*
 * format.h - the bytes of a trace that are not inside a data frame. docs/format.md is the word;
 * this file is how the writer and the reader share it.
 *
 *   skippable "SPRH"                 header: kinds, order, limits, start
 *   { skippable "SPRF", zstd frame } data, any number of times, at least once
 *   skippable "SPRV"                 verdict and totals
 *   skippable seek table             the zstd seekable format; its being there is the end mark
 *
 * Every skippable of ours begins with its tag and ends with the CRC-32 of what is before it.
 */
#ifndef SPR_ENCODER_FORMAT_H
#define SPR_ENCODER_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/sparring.h>

#define SPR_FORMAT_VERSION 1u

#define SPR_MAGIC_OURS  0x184D2A53u /* skippable frame of ours */
#define SPR_MAGIC_TABLE 0x184D2A5Eu /* skippable frame of the zstd seekable format */
#define SPR_MAGIC_END   0x8F92EAB1u /* its last four bytes */
#define SPR_MAGIC_ZSTD  0xFD2FB528u

#define SPR_TAG_HEADER  0x48525053u /* "SPRH" */
#define SPR_TAG_FRAME   0x46525053u /* "SPRF" */
#define SPR_TAG_VERDICT 0x56525053u /* "SPRV" */

/* What a header may ask a reader to allocate; an encoder opens with nothing above. */
#define SPR_FRAME_RECORDS_MAX (1u << 20)
#define SPR_FRAME_BYTES_MAX   (64u << 20)
#define SPR_CONTENT_BYTES_MAX (512u << 20)
#define SPR_RECORD_BYTES_MAX  65536u
#define SPR_HEADER_BYTES_MAX  ((1u << 20) + 4096u) /* of the "SPRH" frame, whole */
#define SPR_INFO_KINDS_MAX    1002u
#define SPR_INFO_BYTES_MAX    (8u + 48u + 8u * SPR_INFO_KINDS_MAX + 4u)

/* Column codecs: how the values of one column stand in a frame. */
enum spr_codec {
	SPR_CODEC_CONST = 0, /* one value for all */
	SPR_CODEC_RAW = 1,
	SPR_CODEC_VARINT = 2,
	SPR_CODEC_DELTA = 3,           /* zigzag varint of the difference to the value before */
	SPR_CODEC_DELTA_BY_SOURCE = 4, /* ... to the value before of the same source */
	SPR_CODEC_TEXT = 16,           /* lengths, then the bytes */
	SPR_CODEC_TEXT_DICT = 17,      /* numbers of entries, then the entries, front-coded */
};
#define SPR_COLUMN_HEAD_BYTES 12u
/* DELTA_BY_SOURCE columns of a frame times its sources: what a reader keeps. */
#define SPR_SOURCE_STATES_MAX 65536u

struct spr_format_header {
	uint32_t flags; /* SPR_GIVEN_ORDER */
	uint32_t frame_records, frame_bytes, content_bytes_max;
	uint64_t start_ns, start_unix_ns;
};

struct spr_kind_count {
	uint32_t kind, reserved;
	uint64_t records;
};

/* What stands in front of each data frame. */
struct spr_format_info {
	uint32_t frame_bytes;    /* of the zstd frame that follows */
	uint32_t content_bytes;  /* decompressed */
	uint64_t index;          /* data frames before it in this trace */
	uint64_t records_before; /* records in those */
	uint32_t n_records, n_kinds;
	uint64_t first_ns, last_ns; /* of stamps that are not 0 */
};

struct spr_format_totals {
	struct spr_verdict verdict;
	uint64_t records, frames, content_bytes, first_ns, last_ns;
};

uint32_t spr_format_crc32(const void *bytes, size_t n_bytes);
/* The checksum at the end of a skippable frame of ours; n_bytes >= 16. A fuzzer would never get
 * past it: in its build every checksum is right. */
bool spr_format_sum_is_right(const uint8_t *frame, size_t n_bytes);

static inline void spr_put32(uint8_t *at, uint32_t v)
{
	__builtin_memcpy(at, &v, 4);
}

static inline void spr_put64(uint8_t *at, uint64_t v)
{
	__builtin_memcpy(at, &v, 8);
}

static inline uint32_t spr_get32(const uint8_t *at)
{
	uint32_t v;

	__builtin_memcpy(&v, at, 4);
	return v;
}

static inline uint64_t spr_get64(const uint8_t *at)
{
	uint64_t v;

	__builtin_memcpy(&v, at, 8);
	return v;
}

/* The largest content a frame can come to with these limits and so many declared fields. */
uint64_t spr_format_content_max(uint32_t frame_records, uint32_t frame_bytes, uint32_t n_fields);

/* Header: bytes it takes; written only if `out` is not NULL. */
size_t spr_format_header_put(uint8_t *out, const struct spr_format_header *h,
                             const struct spr_kind *kinds, uint32_t n_kinds);
/* From a whole skippable frame. *kinds: one block, yours to free. -EPROTO with a sentence. */
int spr_format_header_get(struct spr_format_header *h, struct spr_kind **kinds, uint32_t *n_kinds,
                          const uint8_t *frame, size_t n_bytes);

size_t spr_format_info_bytes(uint32_t n_kinds);
/* kinds: of the frame, ascending. */
void spr_format_info_put(uint8_t *out, const struct spr_format_info *info,
                         const struct spr_kind_count *kinds);
/* -EBADMSG: damaged. */
int spr_format_info_get(struct spr_format_info *info, const uint8_t *frame, size_t n_bytes);

size_t spr_format_verdict_bytes(uint32_t n_kinds);
void spr_format_verdict_put(uint8_t *out, const struct spr_format_totals *totals,
                            const struct spr_kind_count *kinds, uint32_t n_kinds);
int spr_format_verdict_get(struct spr_format_totals *totals, const uint8_t *frame, size_t n_bytes);

/* The zstd seekable format: each entry is the compressed and decompressed size of a frame. */
struct spr_seek_entry {
	uint32_t compressed, content;
};
size_t spr_format_table_bytes(size_t n_entries);
void spr_format_table_put(uint8_t *out, const struct spr_seek_entry *entries, size_t n_entries);

#endif /* SPR_ENCODER_FORMAT_H */
