/* SPDX-License-Identifier: MIT */
/*
 * trace_walk.c - from skippable frame to skippable frame. A damaged one is stepped over by looking
 * for the next that has our tag and a right checksum.
 */
#include "encoder/trace_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/error.h"
#include "base/place.h"
#include "base/sys.h"

#define STEP_BYTES    (256u << 10)
#define AHEAD_BYTES   4096u /* of a file, at least so much at once */
#define VERDICT_MOST  (8u + 92u + 16u * SPR_INFO_KINDS_MAX + 4u)

/* --- Source ----------------------------------------------------------------------------------- */

static int64_t read_some(const struct spr_source *s, void *out, size_t n, uint64_t at)
{
	long got;

	do {
		got = s->can_seek ? spr_sys(SYS_pread64, s->fd, out, n, at)
		                  : spr_sys(SYS_read, s->fd, out, n);
	} while (got == -EINTR);
	return got;
}

/* Keeps what is wanted of the window, drops the rest. */
static int window_move(struct spr_source *s, uint64_t at)
{
	struct spr_vec *w = &s->window;

	if (at >= s->at && at - s->at <= w->n) {
		const size_t drop = (size_t)(at - s->at);

		if (drop)
			memmove(w->bytes, w->bytes + drop, w->n - drop);
		w->n -= drop;
		s->at = at;
		return 0;
	}
	if (s->can_seek) {
		w->n = 0;
		s->at = at;
		return 0;
	}
	while (s->at + w->n < at) { /* a pipe: read what is between */
		const uint64_t gap = at - s->at - w->n;
		int64_t got;

		s->at += w->n;
		w->n = 0;
		if (!spr_vec_reserve(w, STEP_BYTES))
			return -ENOMEM;
		got = read_some(s, w->bytes, gap < STEP_BYTES ? (size_t)gap : STEP_BYTES, 0);
		if (got <= 0)
			return (int)got;
		w->n = (size_t)got;
	}
	s->at += w->n;
	w->n = 0;
	return s->at == at ? 0 : -ESPIPE;
}

int64_t spr_source_get(struct spr_source *s, uint64_t at, size_t n, const uint8_t **out)
{
	struct spr_vec *w = &s->window;
	size_t ahead;
	int err;

	if (at >= s->at && at - s->at + n <= w->n) {
		*out = w->bytes + (at - s->at);
		return (int64_t)n;
	}
	err = window_move(s, at);
	if (err < 0)
		return err;
	if (s->at != at) { /* the pipe ended before */
		*out = w->bytes;
		return 0;
	}
	while (w->n < n) {
		int64_t got;

		/* Grown as bytes come, so that a length nobody stands behind allocates nothing. */
		ahead = n - w->n < AHEAD_BYTES ? AHEAD_BYTES : n - w->n;
		if (ahead > w->n + STEP_BYTES)
			ahead = w->n + STEP_BYTES;
		if (!s->can_seek && ahead > n - w->n)
			ahead = n -
			        w->n; /* a pipe gives what it has: ask for no more than is needed */
		if (!spr_vec_reserve(w, ahead))
			return -ENOMEM;
		got = read_some(s, w->bytes + w->n, ahead, s->at + w->n);
		if (got < 0)
			return spr_fail_sys((int)got, "the trace cannot be read");
		if (!got)
			break;
		w->n += (size_t)got;
	}
	*out = w->bytes;
	return (int64_t)(w->n < n ? w->n : n);
}

bool spr_source_grows(const struct spr_source *s)
{
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET,
		               .l_start = (off_t)SPR_PLACE_OWNER_BYTE, .l_len = 1 };

	if (!s->follow || !s->can_seek)
		return false;
	return !spr_sys(SYS_fcntl, s->fd, F_OFD_GETLK, &l) && l.l_type == F_WRLCK;
}

/* --- What the walk keeps of a trace ----------------------------------------------------------- */

void spr_walk_close(struct spr_walk *w)
{
	free(w->kinds);
	w->kinds = NULL;
}

/* One entry of the seek table, as it should be there. */
static void entry_note(struct spr_walk *w, uint64_t compressed, uint64_t content)
{
	w->table_hash = (w->table_hash ^ (compressed | content << 32)) * 0x9E3779B97F4A7C15ull;
	w->table_hash ^= w->table_hash >> 29;
	w->n_entries++;
}

/* Records the trace had before this point: what we have not met is lost. */
static void records_reconcile(struct spr_walk *w, uint64_t n_records)
{
	if (n_records <= w->n_records || w->has_jumped)
		return;
	w->verdict.lost += n_records - w->n_records;
	w->verdict.reasons |= SPR_LOST;
	w->n_records = n_records;
}

/* Behind a trace, or in front of the first. */
static void trace_leave(struct spr_walk *w, bool has_end)
{
	if (w->has_header && !has_end)
		w->cut = true;
	w->has_header = w->has_verdict = w->has_jumped = w->is_damaged = false;
	w->n_frames = w->n_records = w->n_entries = w->table_hash = 0;
}

/* --- Stepping over damage --------------------------------------------------------------------- */

/* Is there a skippable frame of ours, whole and right, at `at`? */
static int64_t ours_is_at(struct spr_walk *w, uint64_t at)
{
	const uint8_t *bytes;
	int64_t got = spr_source_get(w->source, at, 12, &bytes);
	uint32_t n, tag;

	if (got < 12 || spr_get32(bytes) != SPR_MAGIC_OURS)
		return got < 0 ? got : 0;
	n = spr_get32(bytes + 4);
	tag = spr_get32(bytes + 8);
	if ((tag != SPR_TAG_HEADER && tag != SPR_TAG_FRAME && tag != SPR_TAG_VERDICT) || n < 8 ||
	    n > (tag == SPR_TAG_HEADER ? SPR_HEADER_BYTES_MAX : VERDICT_MOST))
		return 0;
	got = spr_source_get(w->source, at, n + 8u, &bytes);
	if (got < n + 8)
		return got < 0 ? got : 0;
	return spr_format_sum_is_right(bytes, n + 8u);
}

/* Is there a seek table at `at`, by its two ends? Of a pipe only a short one is looked for. */
static int64_t table_is_at(struct spr_walk *w, uint64_t at)
{
	const uint8_t *bytes;
	int64_t got = spr_source_get(w->source, at, 8, &bytes);
	uint32_t n;

	if (got < 8 || spr_get32(bytes) != SPR_MAGIC_TABLE)
		return got < 0 ? got : 0;
	n = spr_get32(bytes + 4);
	if (n < 9 || n % 8 != 1 || (!w->source->can_seek && n > SPR_HEADER_BYTES_MAX))
		return 0;
	if (w->source->can_seek) {
		got = spr_source_get(w->source, at + n - 1, 9, &bytes);
	} else {
		got = spr_source_get(w->source, at, n + 8u, &bytes);
		if (got >= 0 && got < n + 8)
			return 0;
		bytes += got > 0 ? n - 1 : 0;
	}
	if (got < 9)
		return got < 0 ? got : 0;
	return spr_get32(bytes) == (n - 9) / 8 && !bytes[4] &&
	       spr_get32(bytes + 5) == SPR_MAGIC_END;
}

/* Where the next frame of ours begins behind `from`, or where the bytes end. */
static int damage_skip(struct spr_walk *w, uint64_t from)
{
	static const uint8_t magic[] = { 0x2a, 0x4d, 0x18 }; /* of both, behind their first byte */
	const uint8_t *bytes, *hit;
	uint64_t at = from + 1;

	for (;;) {
		const int64_t got = spr_source_get(w->source, at, STEP_BYTES, &bytes);
		int64_t is;

		if (got < 0)
			return (int)got;
		if (got < 4) {
			w->at = at + (uint64_t)got;
			return 0;
		}
		hit = memmem(bytes + 1, (size_t)got - 1, magic, sizeof(magic));
		at += hit ? (uint64_t)(hit - 1 - bytes) : (uint64_t)got - 3;
		if (!hit)
			continue;
		is = ours_is_at(w, at);
		if (!is)
			is = table_is_at(w, at);
		if (is < 0)
			return (int)is;
		if (is) {
			w->at = at;
			return 0;
		}
		at++;
	}
}

static int damage(struct spr_walk *w, const char *what)
{
	const uint64_t from = w->at;
	const int err = damage_skip(w, from);

	if (err < 0)
		return err;
	w->n_damaged++;
	w->is_damaged = true;
	return spr_fail(-EBADMSG, "%s at byte %llu is damaged; %llu bytes were skipped", what,
	                (unsigned long long)from, (unsigned long long)(w->at - from));
}

/* --- Frames of ours --------------------------------------------------------------------------- */

/* The bytes end inside a frame. */
static int short_of(struct spr_walk *w, struct spr_item *item)
{
	if (spr_source_grows(w->source))
		return -EAGAIN;
	w->cut = true;
	w->has_header = false;
	item->type = SPR_ITEM_END;
	return 0;
}

/* The size of a frame of ours stands in it twice: in its head, and as a count at count_at of things
 * of `each` bytes. Were only the first believed, one flipped bit there would look like a cut. */
struct shape {
	uint32_t most, count_at, fixed, each;
};
static const struct shape header_shape = { SPR_HEADER_BYTES_MAX, 48, 52, 1 };
static const struct shape info_shape = { SPR_INFO_BYTES_MAX, 56, 60, 8 };
static const struct shape verdict_shape = { VERDICT_MOST, 96, 96, 16 };

/* A whole skippable frame: 1, 0 (the bytes end), -EBADMSG, -errno. */
static int64_t ours_get(struct spr_walk *w, uint32_t n, const struct shape *shape,
                        const uint8_t **bytes)
{
	const size_t n_first = shape->count_at + 4;
	int64_t got = spr_source_get(w->source, w->at, n_first, bytes);

	if (got < 0)
		return got;
	if (n > shape->most - 8 || (got == (int64_t)n_first &&
	    n != shape->fixed + (uint64_t)shape->each * spr_get32(*bytes + shape->count_at)))
		return -EBADMSG;
	got = spr_source_get(w->source, w->at, n + 8u, bytes);
	return got < 0 ? got : got == n + 8;
}

static int header_walk(struct spr_walk *w, uint32_t n, struct spr_item *item)
{
	const uint8_t *bytes;
	const int64_t got = ours_get(w, n, &header_shape, &bytes);
	int err;

	if (got == -EBADMSG)
		return damage(w, "a header");
	if (got <= 0)
		return got ? (int)got : short_of(w, item);
	trace_leave(w, false);
	free(w->kinds);
	w->kinds = NULL;
	err = spr_format_header_get(&w->h, &w->kinds, &w->n_kinds, bytes, n + 8u);
	if (err == -ENOMEM)
		return err;
	if (err) {
		w->n_damaged++;
		w->at += n + 8u;
		return err;
	}
	item->type = SPR_ITEM_HEADER;
	item->at = w->at;
	w->has_header = true;
	w->at += n + 8u;
	entry_note(w, n + 8u, 0);
	return 0;
}

static bool info_fits(const struct spr_walk *w, const struct spr_format_info *info)
{
	return info->n_records <= w->h.frame_records &&
	       info->content_bytes <= w->h.content_bytes_max &&
	       info->frame_bytes <= ZSTD_compressBound(info->content_bytes);
}

static int frame_walk(struct spr_walk *w, uint32_t n, struct spr_item *item)
{
	const uint8_t *bytes;
	int64_t got = ours_get(w, n, &info_shape, &bytes);

	if (got == -EBADMSG || (got > 0 && spr_format_info_get(&item->info, bytes, n + 8u)))
		return damage(w, "the head of a data frame");
	if (got <= 0)
		return got ? (int)got : short_of(w, item);
	if (!w->has_header || !info_fits(w, &item->info))
		return damage(w, w->has_header ? "a data frame" : "a data frame without a header");
	item->at = w->at;
	item->data_at = w->at + n + 8u;
	/* Is all of it there? Of a file the last byte tells; of a pipe it is read to decode it. */
	got = 1;
	if (w->source->can_seek && item->info.frame_bytes)
		got = spr_source_get(w->source, item->data_at + item->info.frame_bytes - 1, 1,
		                     &bytes);
	else if (!w->source->can_seek)
		got = spr_source_get(w->source, w->at, n + 8ull + item->info.frame_bytes, &bytes) ==
		      (int64_t)(n + 8ull + item->info.frame_bytes);
	if (got <= 0)
		return got ? (int)got : short_of(w, item);
	item->type = SPR_ITEM_FRAME;
	records_reconcile(w, item->info.records_before);
	w->n_records += item->info.n_records;
	w->n_frames++;
	w->verdict.delivered += item->info.n_records;
	w->at = item->data_at + item->info.frame_bytes;
	entry_note(w, n + 8u, 0);
	entry_note(w, item->info.frame_bytes, item->info.content_bytes);
	return 0;
}

static int verdict_walk(struct spr_walk *w, uint32_t n, struct spr_item *item)
{
	struct spr_format_totals totals;
	const uint8_t *bytes;
	const int64_t got = ours_get(w, n, &verdict_shape, &bytes);

	if (got == -EBADMSG || (got > 0 && spr_format_verdict_get(&totals, bytes, n + 8u)))
		return damage(w, "the verdict");
	if (got <= 0)
		return got ? (int)got : short_of(w, item);
	records_reconcile(w, totals.records);
	w->verdict.reasons |= totals.verdict.reasons;
	w->verdict.lost += totals.verdict.lost;
	w->verdict.left_running += totals.verdict.left_running;
	w->verdict.blind += totals.verdict.blind;
	w->verdict.refused += totals.verdict.refused;
	w->has_verdict = true;
	w->at += n + 8u;
	entry_note(w, n + 8u, 0);
	return 1;
}

/* A tag that a later version has added: if it is whole, it is none of our business. */
static int later_walk(struct spr_walk *w, uint32_t n, struct spr_item *item)
{
	const uint8_t *bytes;
	int64_t got;

	if (n < 8 || n > SPR_HEADER_BYTES_MAX - 8)
		return damage(w, "a frame of an unknown sort");
	got = spr_source_get(w->source, w->at, n + 8u, &bytes);
	if (got < n + 8)
		return got < 0 ? (int)got : short_of(w, item);
	if (!spr_format_sum_is_right(bytes, n + 8u))
		return damage(w, "a frame of an unknown sort");
	w->at += n + 8u;
	entry_note(w, n + 8u, 0);
	return 1;
}

/* --- The seek table --------------------------------------------------------------------------- */

/* Compares the table with what was met, a piece at a time: it can be long. 1 right, 0 wrong,
 * -EAGAIN the bytes end. */
static int table_compare(struct spr_walk *w, uint32_t n)
{
	struct spr_walk listed = { 0 };
	const uint8_t *bytes;
	uint64_t at = w->at + 8, n_entries = (n - 9) / 8;

	if (n < 9 || n % 8 != 1)
		return 0;
	while (n_entries) {
		const size_t piece = n_entries < STEP_BYTES / 8 ? (size_t)n_entries
		                                                : STEP_BYTES / 8;
		const int64_t got = spr_source_get(w->source, at, 8 * piece, &bytes);

		if (got < (int64_t)(8 * piece))
			return got < 0 ? (int)got : -EAGAIN;
		for (size_t i = 0; i < piece; i++)
			entry_note(&listed, spr_get32(bytes + 8 * i), spr_get32(bytes + 8 * i + 4));
		at += 8 * piece;
		n_entries -= piece;
	}
	if (spr_source_get(w->source, at, 9, &bytes) < 9)
		return -EAGAIN;
	if (spr_get32(bytes) != (n - 9) / 8 || bytes[4] || spr_get32(bytes + 5) != SPR_MAGIC_END)
		return 0;
	/* What was stepped over is missing in our count, and is told already: the end is there. */
	return w->has_jumped || w->is_damaged ||
	       (w->has_verdict && listed.n_entries == w->n_entries &&
	        listed.table_hash == w->table_hash);
}

static int table_walk(struct spr_walk *w, uint32_t n, struct spr_item *item)
{
	const int right = w->has_header ? table_compare(w, n) : 0;

	if (right == -EAGAIN)
		return short_of(w, item);
	if (right <= 0) {
		if (!right && w->has_header)
			trace_leave(w, false);
		return right ? right : damage(w, "the seek table");
	}
	trace_leave(w, true);
	w->at += n + 8ull;
	return 1;
}

/* --- The walk --------------------------------------------------------------------------------- */

static int ours_walk(struct spr_walk *w, const uint8_t *bytes, int64_t got, uint32_t n,
                     struct spr_item *item)
{
	if (got < 12)
		return short_of(w, item);
	switch (spr_get32(bytes + 8)) {
	case SPR_TAG_HEADER:
		return header_walk(w, n, item);
	case SPR_TAG_FRAME:
		return frame_walk(w, n, item);
	case SPR_TAG_VERDICT:
		return verdict_walk(w, n, item);
	default:
		return later_walk(w, n, item);
	}
}

/* One step: 1 (nothing to tell, go on), 0 (item), -errno. */
static int step(struct spr_walk *w, struct spr_item *item)
{
	const uint8_t *bytes;
	const int64_t got = spr_source_get(w->source, w->at, 12, &bytes);
	uint32_t magic, n;

	if (got < 0)
		return (int)got;
	if (!got) {
		if (spr_source_grows(w->source) && w->has_header)
			return -EAGAIN;
		trace_leave(w, false);
		item->type = SPR_ITEM_END;
		return 0;
	}
	if (got < 8)
		return short_of(w, item);
	magic = spr_get32(bytes);
	n = spr_get32(bytes + 4);
	if (magic == SPR_MAGIC_OURS)
		return ours_walk(w, bytes, got, n, item);
	if (magic == SPR_MAGIC_TABLE)
		return table_walk(w, n, item);
	return damage(w, "what is no frame of a trace");
}

int spr_walk_next(struct spr_walk *w, struct spr_item *item)
{
	int did;

	do {
		did = step(w, item);
	} while (did > 0);
	return did;
}
