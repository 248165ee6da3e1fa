/* SPDX-License-Identifier: MIT */
/*
 * frame_write.c - the content of a data frame, column by column, and its compression.
 * docs/format.md, "Content of a data frame", has the order of the columns.
 */
#include "encoder/frame_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/error.h"
#include "base/kinds.h"
#include "encoder/split.h"

#define WHO_CACHE 64u

/* Numbers of keys in the order they are first seen: open addressing over an array of entries. */
struct index {
	uint32_t *slots; /* entry + 1; 0: empty */
	uint32_t  n_slots;
};

struct source {
	uint64_t writer;
	int32_t  pid, tid;
	uint32_t has_id, writer_idx;
};

struct writer {
	uint64_t id, first_seq, next_seq;
};

struct spr_frame_writer {
	ZSTD_CCtx        *zstd;
	struct spr_split *split;
	uint32_t          n_kinds, frame_records;
	uint32_t          n; /* records in the frame so far */

	/* A value for each record. */
	uint64_t *times, *gaps; /* gaps: seq less the one expected */
	uint32_t *sources_of;
	uint16_t *kinds_of; /* slot: 0, declared kinds, blind */
	uint8_t  *flags;

	struct source  *sources;
	struct writer  *writers;
	uint32_t        n_sources, n_writers;
	struct index    by_source, by_writer;
	struct {
		const struct spr_who *who;
		uint32_t              source;
	} cache[WHO_CACHE];

	uint64_t       *states; /* DELTA_BY_SOURCE */
	struct spr_vec  content, packed, scratch;
};

/* --- Making and releasing --------------------------------------------------------------------- */

static int zstd_open(struct spr_frame_writer *w, int level)
{
	w->zstd = ZSTD_createCCtx();
	if (!w->zstd)
		return -ENOMEM;
	if (ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_contentSizeFlag, 1)))
		return spr_fail(-EINVAL, "zstd does not take level %d", level);
	return 0;
}

static bool arrays_open(struct spr_frame_writer *w)
{
	const size_t n = w->frame_records;

	w->by_source.n_slots = w->by_writer.n_slots = 64;
	w->by_source.slots = calloc(64, sizeof(uint32_t));
	w->by_writer.slots = calloc(64, sizeof(uint32_t));
	w->times = malloc(n * sizeof(*w->times));
	w->gaps = malloc(n * sizeof(*w->gaps));
	w->sources_of = malloc(n * sizeof(*w->sources_of));
	w->kinds_of = malloc(n * sizeof(*w->kinds_of));
	w->flags = malloc(n);
	w->sources = malloc(n * sizeof(*w->sources));
	w->writers = malloc(n * sizeof(*w->writers));
	w->states = malloc(SPR_SOURCE_STATES_MAX * sizeof(*w->states));
	return w->by_source.slots && w->by_writer.slots && w->times && w->gaps && w->sources_of &&
	       w->kinds_of && w->flags && w->sources && w->writers && w->states;
}

int spr_frame_writer_open(struct spr_frame_writer **out, const struct spr_kind *kinds,
                          uint32_t n_kinds, uint32_t frame_records, int level)
{
	struct spr_frame_writer *w = calloc(1, sizeof(*w));
	int err = -ENOMEM;

	if (!w)
		return -ENOMEM;
	w->n_kinds = n_kinds;
	w->frame_records = frame_records;
	w->split = spr_split_open(kinds, n_kinds);
	if (w->split && arrays_open(w))
		err = zstd_open(w, level);
	if (err) {
		spr_frame_writer_close(w);
		return err;
	}
	*out = w;
	return 0;
}

void spr_frame_writer_close(struct spr_frame_writer *w)
{
	if (!w)
		return;
	ZSTD_freeCCtx(w->zstd);
	spr_split_close(w->split);
	free(w->by_source.slots);
	free(w->by_writer.slots);
	free(w->times);
	free(w->gaps);
	free(w->sources_of);
	free(w->kinds_of);
	free(w->flags);
	free(w->sources);
	free(w->writers);
	free(w->states);
	spr_vec_release(&w->content);
	spr_vec_release(&w->packed);
	spr_vec_release(&w->scratch);
	free(w);
}

/* --- Sources and writers ---------------------------------------------------------------------- */

static uint32_t mix(uint64_t v)
{
	v *= 0x9E3779B97F4A7C15ull;
	return (uint32_t)(v >> 32);
}

static uint32_t source_hash(const struct source *s)
{
	return mix(s->writer ^ mix((uint64_t)(uint32_t)s->pid << 32 | (uint32_t)s->tid) ^
	           s->has_id);
}

/* Twice as many slots as entries, at least; false: no memory. hash_at gives an entry's hash. */
static bool index_grow(struct index *x, uint32_t n, uint32_t (*hash_at)(const void *, uint32_t),
                       const void *entries)
{
	uint32_t *slots;

	if (2 * n < x->n_slots)
		return true;
	slots = calloc(2 * x->n_slots, sizeof(*slots));
	if (!slots)
		return false;
	free(x->slots);
	x->slots = slots;
	x->n_slots *= 2;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = hash_at(entries, i) & (x->n_slots - 1);

		while (slots[at])
			at = (at + 1) & (x->n_slots - 1);
		slots[at] = i + 1;
	}
	return true;
}

static uint32_t source_hash_at(const void *entries, uint32_t i)
{
	return source_hash((const struct source *)entries + i);
}

static uint32_t writer_hash_at(const void *entries, uint32_t i)
{
	return mix(((const struct writer *)entries)[i].id);
}

/* The number of the writer; UINT32_MAX: no memory. */
static uint32_t writer_find(struct spr_frame_writer *w, uint64_t id, uint64_t seq)
{
	uint32_t at;

	if (!index_grow(&w->by_writer, w->n_writers, writer_hash_at, w->writers))
		return UINT32_MAX;
	at = mix(id) & (w->by_writer.n_slots - 1);
	while (w->by_writer.slots[at]) {
		if (w->writers[w->by_writer.slots[at] - 1].id == id)
			return w->by_writer.slots[at] - 1;
		at = (at + 1) & (w->by_writer.n_slots - 1);
	}
	w->writers[w->n_writers] = (struct writer){ id, seq, seq };
	w->by_writer.slots[at] = ++w->n_writers;
	return w->n_writers - 1;
}

static bool source_is(const struct source *a, const struct source *b)
{
	return a->writer == b->writer && a->pid == b->pid && a->tid == b->tid &&
	       a->has_id == b->has_id;
}

static uint32_t source_find(struct spr_frame_writer *w, const struct spr_who *who, uint64_t seq)
{
	struct source s = { who->writer, who->pid, who->tid, who->has_id, 0 };
	uint32_t at;

	if (!index_grow(&w->by_source, w->n_sources, source_hash_at, w->sources))
		return UINT32_MAX;
	at = source_hash(&s) & (w->by_source.n_slots - 1);
	while (w->by_source.slots[at]) {
		if (source_is(&w->sources[w->by_source.slots[at] - 1], &s))
			return w->by_source.slots[at] - 1;
		at = (at + 1) & (w->by_source.n_slots - 1);
	}
	s.writer_idx = writer_find(w, who->writer, seq);
	if (s.writer_idx == UINT32_MAX)
		return UINT32_MAX;
	w->sources[w->n_sources] = s;
	w->by_source.slots[at] = ++w->n_sources;
	return w->n_sources - 1;
}

static inline uint32_t source_of(struct spr_frame_writer *w, const struct spr_rec *rec)
{
	const uint32_t at = (uint32_t)((uintptr_t)rec->who >> 3) % WHO_CACHE;

	if (w->cache[at].who != rec->who) {
		w->cache[at].source = source_find(w, rec->who, rec->seq);
		w->cache[at].who = rec->who;
	}
	return w->cache[at].source;
}

/* --- Taking records --------------------------------------------------------------------------- */

static void frame_begin(struct spr_frame_writer *w)
{
	w->n = w->n_sources = w->n_writers = 0;
	memset(w->by_source.slots, 0, w->by_source.n_slots * sizeof(uint32_t));
	memset(w->by_writer.slots, 0, w->by_writer.n_slots * sizeof(uint32_t));
	memset(w->cache, 0, sizeof(w->cache));
	spr_split_begin(w->split);
	w->content.n = 0;
}

/* The entry added last is taken back: nothing was put behind it. */
static void index_drop(struct index *x, uint32_t n)
{
	uint32_t at = 0;

	while (x->slots[at] != n)
		at++;
	x->slots[at] = 0;
}

/* A malformed record leaves no source behind. */
static void sources_restore(struct spr_frame_writer *w, uint32_t n_sources, uint32_t n_writers)
{
	if (w->n_writers > n_writers)
		index_drop(&w->by_writer, w->n_writers--);
	if (w->n_sources > n_sources) {
		index_drop(&w->by_source, w->n_sources--);
		memset(w->cache, 0, sizeof(w->cache));
	}
}

/* 0 taken, 1 malformed, -ENOMEM. */
static int record_take(struct spr_frame_writer *w, const struct spr_rec *rec,
                       struct spr_format_info *info)
{
	const uint32_t n = w->n, n_sources = w->n_sources, n_writers = w->n_writers;
	struct writer *writer;
	uint32_t source, slot;
	int err;

	slot = rec->kind == SPR_KIND_BLIND ? w->n_kinds + 1 : rec->kind;
	if (rec->kind > w->n_kinds && rec->kind != SPR_KIND_BLIND)
		return 1;
	source = source_of(w, rec);
	if (source == UINT32_MAX)
		return -ENOMEM;
	err = spr_split_put(w->split, slot, rec->data, rec->bytes, source);
	if (err) {
		sources_restore(w, n_sources, n_writers);
		return err;
	}
	writer = &w->writers[w->sources[source].writer_idx];
	w->times[n] = rec->time_ns;
	w->gaps[n] = rec->seq - writer->next_seq;
	writer->next_seq = rec->seq + 1;
	w->sources_of[n] = source;
	w->kinds_of[n] = (uint16_t)slot;
	w->flags[n] = (uint8_t)rec->flags;
	w->n = n + 1;
	if (rec->time_ns) {
		if (rec->time_ns < info->first_ns)
			info->first_ns = rec->time_ns;
		if (rec->time_ns > info->last_ns)
			info->last_ns = rec->time_ns;
	}
	return 0;
}

/* --- Writing the columns ---------------------------------------------------------------------- */

static bool number_put(struct spr_vec *out, uint32_t v)
{
	return spr_vec_put(out, &v, sizeof(v));
}

static bool ints_put(struct spr_frame_writer *w, const void *values, uint32_t n, uint32_t width)
{
	const struct spr_ints ints = { .values = values, .n = n, .width = width };

	return spr_column_ints_put(&w->content, &ints);
}

/* One member of each struct of an array, as a column. */
static bool members_put(struct spr_frame_writer *w, const void *member, size_t stride, uint32_t n,
                        uint32_t width)
{
	const uint8_t *from = member;

	w->scratch.n = 0;
	if (!spr_vec_reserve(&w->scratch, (size_t)n * width))
		return false;
	for (uint32_t i = 0; i < n; i++)
		memcpy(w->scratch.bytes + (size_t)i * width, from + i * stride, width);
	return ints_put(w, w->scratch.bytes, n, width);
}

static uint32_t width_for(uint32_t n_values)
{
	return n_values <= 0x100 ? 1 : n_values <= 0x10000 ? 2 : 4;
}

static bool tables_put(struct spr_frame_writer *w)
{
	const struct source *s = w->sources;
	const struct writer *r = w->writers;

	return members_put(w, &r->id, sizeof(*r), w->n_writers, 8) &&
	       members_put(w, &r->first_seq, sizeof(*r), w->n_writers, 8) &&
	       members_put(w, &s->writer_idx, sizeof(*s), w->n_sources, 4) &&
	       members_put(w, &s->pid, sizeof(*s), w->n_sources, 4) &&
	       members_put(w, &s->tid, sizeof(*s), w->n_sources, 4) &&
	       members_put(w, &s->has_id, sizeof(*s), w->n_sources, 1);
}

/* The kinds of the frame by their place in its list of kinds. */
static bool kinds_put(struct spr_frame_writer *w, const struct spr_kind_count *kinds,
                      uint32_t n_kinds)
{
	uint16_t place_of[SPR_INFO_KINDS_MAX];

	for (uint32_t i = 0; i < n_kinds; i++)
		place_of[kinds[i].kind == SPR_KIND_BLIND ? w->n_kinds + 1 : kinds[i].kind] =
			(uint16_t)i;
	for (uint32_t i = 0; i < w->n; i++)
		w->kinds_of[i] = place_of[w->kinds_of[i]];
	return members_put(w, w->kinds_of, sizeof(uint16_t), w->n, width_for(n_kinds));
}

static bool content_put(struct spr_frame_writer *w, const struct spr_kind_count *kinds,
                        uint32_t n_kinds)
{
	const struct spr_sources sources = { w->states, w->n_sources };

	return number_put(&w->content, w->n) && number_put(&w->content, w->n_writers) &&
	       number_put(&w->content, w->n_sources) && number_put(&w->content, n_kinds) &&
	       tables_put(w) &&
	       members_put(w, w->sources_of, sizeof(uint32_t), w->n, width_for(w->n_sources)) &&
	       kinds_put(w, kinds, n_kinds) && ints_put(w, w->times, w->n, 8) &&
	       ints_put(w, w->gaps, w->n, 8) && ints_put(w, w->flags, w->n, 1) &&
	       spr_split_columns_put(w->split, &w->content, &sources);
}

static int content_compress(struct spr_frame_writer *w, struct spr_frame_out *out)
{
	size_t n;

	w->packed.n = 0;
	if (!spr_vec_reserve(&w->packed, ZSTD_compressBound(w->content.n)))
		return -ENOMEM;
	n = ZSTD_compress2(w->zstd, w->packed.bytes, w->packed.room, w->content.bytes,
	                   w->content.n);
	if (ZSTD_isError(n))
		return spr_fail(ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM
		                                                                     : -EIO,
		                "zstd: %s", ZSTD_getErrorName(n));
	out->bytes.n = 0;
	if (!spr_vec_reserve(&out->bytes, out->info_bytes + n))
		return -ENOMEM;
	memcpy(out->bytes.bytes + out->info_bytes, w->packed.bytes, n);
	out->bytes.n = out->info_bytes + n;
	out->info.frame_bytes = (uint32_t)n;
	out->info.content_bytes = (uint32_t)w->content.n;
	return 0;
}

int spr_frame_writer_put(struct spr_frame_writer *w, const struct spr_rec *const *recs, uint32_t n,
                         struct spr_frame_out *out)
{
	struct spr_format_info *const info = &out->info;

	*info = (struct spr_format_info){ .first_ns = UINT64_MAX };
	out->n_malformed = 0;
	frame_begin(w);
	for (uint32_t i = 0; i < n; i++) {
		const int err = record_take(w, recs[i], info);

		if (err < 0)
			return err;
		out->n_malformed += (uint64_t)err;
	}
	if (info->first_ns == UINT64_MAX)
		info->first_ns = 0;
	info->n_records = w->n;
	info->n_kinds = spr_split_counts(w->split, out->kinds);
	out->info_bytes = spr_format_info_bytes(info->n_kinds);
	if (!content_put(w, out->kinds, info->n_kinds))
		return -ENOMEM;
	return content_compress(w, out);
}
