/* SPDX-License-Identifier: MIT */
/*
 * frame_read.c - columns back to records. The content is hostile even though its checksum holds:
 * whoever wrote it computed that, too.
 */
#include "encoder/frame_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/kinds.h"

/* Behind the longest record the row has room for all numbers of a kind: only text is measured, and
 * the whole at the end. */
#define ROW_ROOM (SPR_RECORD_BYTES_MAX + SPR_KIND_FIELDS_MAX * 16u)
#define SECTION_HEAD 12u
#define CONTENT_HEAD 16u

struct text {
	struct spr_cursor numbers; /* lengths, or entry + 1 */
	const uint8_t    *bytes, *end; /* TEXT: the next one's */
	bool              by_entry;
	struct spr_vec    entries; /* expanded, one behind the other */
	uint32_t         *offsets; /* n_entries + 1 */
	size_t            offsets_room;
	uint32_t          n_entries, n_seen;
};

struct field {
	uint8_t            width; /* 0: text */
	bool               optional, list, wanted;
	struct spr_cursor *present, *counts, *values; /* those it has */
	struct text       *text;
};

struct kind {
	struct field *fields; /* made when the kind is first met */
	uint32_t      n_fields, left;
	uint16_t      number;
	bool          whole;
};

struct spr_frame_reader {
	const struct spr_kind      *declared;
	const struct spr_kind_view *views;
	struct kind *kinds; /* slots: "bytes", the declared, "blind" */
	uint32_t     n_kinds; /* declared */

	uint32_t  n_records, at; /* of the frame */
	uint64_t  text_left;     /* bytes that entries may still expand to */
	uint32_t  n_writers, n_sources, n_places;
	uint64_t *writer_ids, *next_seqs;
	uint32_t *writer_of;
	int32_t  *pids, *tids;
	uint8_t  *has_ids;
	size_t    writers_room, sources_room;
	uint16_t  places[SPR_INFO_KINDS_MAX]; /* the frame's kinds, by slot */

	struct spr_cursor sources, kinds_of, times, gaps, flags;
	uint64_t         *states; /* SPR_SOURCE_STATES_MAX */
	uint32_t          n_states;
	struct spr_vec    row;
};

static int damaged(const char *what)
{
	return spr_fail(-EBADMSG, "%s does not hold together", what);
}

/* --- Making and releasing --------------------------------------------------------------------- */

static const uint8_t width_of[] = {
	[SPR_U8] = 1, [SPR_U16] = 2, [SPR_U32] = 4, [SPR_U64] = 8,
	[SPR_I32] = 4, [SPR_I64] = 8, [SPR_HEX64] = 8, [SPR_STRING] = 0, [SPR_BYTES] = 0,
};

int spr_frame_reader_open(struct spr_frame_reader **out, const struct spr_kind *kinds,
                          uint32_t n_kinds, const struct spr_kind_view *views)
{
	struct spr_frame_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->declared = kinds;
	r->views = views;
	r->n_kinds = n_kinds;
	r->kinds = calloc(n_kinds + 2, sizeof(*r->kinds));
	r->states = malloc(SPR_SOURCE_STATES_MAX * sizeof(*r->states));
	if (!r->kinds || !r->states) {
		spr_frame_reader_close(r);
		return -ENOMEM;
	}
	*out = r;
	return 0;
}

static void field_release(struct field *f)
{
	free(f->present);
	free(f->counts);
	free(f->values);
	if (f->text) {
		spr_vec_release(&f->text->entries);
		free(f->text->offsets);
		free(f->text);
	}
}

static void kind_release(struct kind *k)
{
	for (uint32_t i = 0; k->fields && i < k->n_fields; i++)
		field_release(&k->fields[i]);
	free(k->fields);
	k->fields = NULL;
}

void spr_frame_reader_close(struct spr_frame_reader *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; r->kinds && i < r->n_kinds + 2; i++)
		kind_release(&r->kinds[i]);
	free(r->kinds);
	free(r->writer_ids);
	free(r->next_seqs);
	free(r->writer_of);
	free(r->pids);
	free(r->tids);
	free(r->has_ids);
	free(r->states);
	spr_vec_release(&r->row);
	free(r);
}

static bool field_make(struct field *f, const struct spr_field *declared)
{
	f->width = width_of[declared->type];
	f->optional = declared->flags & SPR_OPTIONAL;
	f->list = declared->flags & SPR_LIST;
	if (f->optional)
		f->present = calloc(1, sizeof(*f->present));
	if (f->list)
		f->counts = calloc(1, sizeof(*f->counts));
	if (f->width)
		f->values = calloc(1, sizeof(*f->values));
	else
		f->text = calloc(1, sizeof(*f->text));
	return (!f->optional || f->present) && (!f->list || f->counts) && (f->values || f->text);
}

/* The kind in a slot, ready to read a section. */
static struct kind *kind_make(struct spr_frame_reader *r, uint32_t slot)
{
	static const struct spr_field whole = { .name = "bytes", .type = SPR_BYTES };
	static const struct spr_kind bytes = { "bytes", &whole, 1, 0 };
	const struct spr_kind *declared = slot == 0           ? &bytes
	                                  : slot > r->n_kinds ? &spr_kind_blind
	                                                      : &r->declared[slot - 1];
	const bool *const wanted = r->views[slot].wanted;
	struct kind *k = &r->kinds[slot];

	if (k->fields)
		return k;
	k->fields = calloc(declared->n_fields + 1, sizeof(*k->fields));
	if (!k->fields)
		return NULL;
	k->n_fields = declared->n_fields;
	k->whole = slot == 0;
	k->number = r->views[slot].number;
	for (uint32_t i = 0; i < k->n_fields; i++) {
		k->fields[i].wanted = !wanted || wanted[i];
		if (k->fields[i].wanted && !field_make(&k->fields[i], &declared->fields[i])) {
			kind_release(k);
			return NULL;
		}
	}
	return k;
}

/* --- A frame's tables ------------------------------------------------------------------------- */

static bool rooms_make(struct spr_frame_reader *r)
{
	if (r->n_writers > r->writers_room) {
		free(r->writer_ids);
		free(r->next_seqs);
		r->writer_ids = malloc(r->n_writers * sizeof(*r->writer_ids));
		r->next_seqs = malloc(r->n_writers * sizeof(*r->next_seqs));
		r->writers_room = r->writer_ids && r->next_seqs ? r->n_writers : 0;
	}
	if (r->n_sources > r->sources_room) {
		free(r->writer_of);
		free(r->pids);
		free(r->tids);
		free(r->has_ids);
		r->writer_of = malloc(r->n_sources * sizeof(*r->writer_of));
		r->pids = malloc(r->n_sources * sizeof(*r->pids));
		r->tids = malloc(r->n_sources * sizeof(*r->tids));
		r->has_ids = malloc(r->n_sources);
		r->sources_room = r->writer_of && r->pids && r->tids && r->has_ids ? r->n_sources
		                                                                   : 0;
	}
	return r->n_writers <= r->writers_room && r->n_sources <= r->sources_room;
}

/* A column of exactly n values that refers to no source. */
static int column_open(struct spr_cursor *c, const uint8_t **at, const uint8_t *end, uint32_t width,
                       uint32_t n)
{
	if (spr_cursor_open(c, at, end, width) || c->by_source || spr_cursor_left(c) != n)
		return -EBADMSG;
	return 0;
}

/* A whole column into an array of width bytes each. */
static int table_get(void *out, const uint8_t **at, const uint8_t *end, uint32_t width, uint32_t n)
{
	struct spr_cursor c;

	if (column_open(&c, at, end, width, n))
		return -EBADMSG;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t v;

		if (spr_cursor_next(&c, 0, &v))
			return -EBADMSG;
		memcpy((uint8_t *)out + (size_t)i * width, &v, width);
	}
	return 0;
}

static int tables_get(struct spr_frame_reader *r, const uint8_t **at, const uint8_t *end)
{
	if (table_get(r->writer_ids, at, end, 8, r->n_writers) ||
	    table_get(r->next_seqs, at, end, 8, r->n_writers) ||
	    table_get(r->writer_of, at, end, 4, r->n_sources) ||
	    table_get(r->pids, at, end, 4, r->n_sources) ||
	    table_get(r->tids, at, end, 4, r->n_sources) ||
	    table_get(r->has_ids, at, end, 1, r->n_sources))
		return damaged("the table of writers");
	for (uint32_t i = 0; i < r->n_sources; i++) {
		if (r->writer_of[i] >= r->n_writers)
			return damaged("the table of writers");
	}
	return 0;
}

/* --- Text ------------------------------------------------------------------------------------- */

static bool offsets_make(struct text *t)
{
	if (t->n_entries + 1ull > t->offsets_room) {
		free(t->offsets);
		t->offsets = malloc((t->n_entries + 1ull) * sizeof(*t->offsets));
		t->offsets_room = t->offsets ? t->n_entries + 1ull : 0;
	}
	return t->offsets;
}

/* Each entry is so many bytes of the one before and its own. */
static int entries_expand(struct text *t, struct spr_cursor *prefixes, struct spr_cursor *suffixes,
                          size_t n_bytes)
{
	uint32_t before = 0; /* length of the entry before */

	t->entries.n = 0;
	t->offsets[0] = 0;
	for (uint32_t i = 0; i < t->n_entries; i++) {
		uint64_t prefix, suffix;
		uint8_t *to = t->entries.bytes + t->entries.n;

		if (spr_cursor_next(prefixes, 0, &prefix) || spr_cursor_next(suffixes, 0, &suffix))
			return -EBADMSG;
		if (prefix > before || prefix + suffix > UINT16_MAX ||
		    suffix > (size_t)(t->end - t->bytes) ||
		    prefix + suffix > n_bytes - t->entries.n)
			return -EBADMSG;
		if (prefix)
			memcpy(to, to - before, prefix);
		if (suffix)
			memcpy(to + prefix, t->bytes, suffix);
		t->bytes += suffix;
		before = (uint32_t)(prefix + suffix);
		t->entries.n += before;
		t->offsets[i + 1] = (uint32_t)t->entries.n;
	}
	return t->bytes == t->end ? 0 : -EBADMSG;
}

static int entries_get(struct spr_frame_reader *r, struct text *t, const uint8_t *at, uint32_t n)
{
	struct spr_cursor prefixes, suffixes;
	uint32_t n_bytes;

	if (t->end - at < 8)
		return -EBADMSG;
	t->n_entries = spr_get32(at);
	n_bytes = spr_get32(at + 4);
	at += 8;
	if (n_bytes > r->text_left || t->n_entries > n_bytes + 1ull || t->n_entries > n)
		return -EBADMSG;
	r->text_left -= n_bytes;
	if (column_open(&t->numbers, &at, t->end, 0, n) ||
	    column_open(&prefixes, &at, t->end, 2, t->n_entries) ||
	    column_open(&suffixes, &at, t->end, 2, t->n_entries))
		return -EBADMSG;
	t->bytes = at;
	t->n_seen = 0;
	t->entries.n = 0;
	if (!offsets_make(t) || !spr_vec_reserve(&t->entries, n_bytes + 1u))
		return -ENOMEM;
	return entries_expand(t, &prefixes, &suffixes, n_bytes);
}

static int text_begin(struct spr_frame_reader *r, struct text *t, const uint8_t **at,
                      const uint8_t *end)
{
	const uint8_t *const head = *at;
	const uint8_t *body = head + SPR_COLUMN_HEAD_BYTES;

	if (spr_column_skip(at, end))
		return -EBADMSG;
	t->end = *at;
	t->by_entry = head[0] == SPR_CODEC_TEXT_DICT;
	if (t->by_entry)
		return entries_get(r, t, body, spr_get32(head + 4));
	if (head[0] != SPR_CODEC_TEXT ||
	    column_open(&t->numbers, &body, t->end, 4, spr_get32(head + 4)))
		return -EBADMSG;
	t->bytes = body;
	return 0;
}

static int text_next(struct text *t, const uint8_t **bytes, uint32_t *n)
{
	uint64_t number;

	if (spr_cursor_next(&t->numbers, 0, &number))
		return -EBADMSG;
	if (t->by_entry) {
		if (!number)
			number = ++t->n_seen;
		if (number > t->n_entries)
			return -EBADMSG;
		*bytes = t->entries.bytes + t->offsets[number - 1];
		*n = t->offsets[number] - t->offsets[number - 1];
		return 0;
	}
	if (number > (size_t)(t->end - t->bytes))
		return -EBADMSG;
	*bytes = t->bytes;
	*n = (uint32_t)number;
	t->bytes += number;
	return 0;
}

/* --- Sections --------------------------------------------------------------------------------- */

static int numbers_begin(struct spr_frame_reader *r, struct field *f, const uint8_t **at,
                         const uint8_t *end)
{
	if (spr_cursor_open(f->values, at, end, f->width))
		return -EBADMSG;
	if (!f->values->by_source)
		return 0;
	if (r->n_states + r->n_sources > SPR_SOURCE_STATES_MAX)
		return -EBADMSG;
	f->values->states = r->states + r->n_states;
	memset(f->values->states, 0, r->n_sources * sizeof(uint64_t));
	r->n_states += r->n_sources;
	return 0;
}

static int field_begin(struct spr_frame_reader *r, struct field *f,
                       const struct spr_field *declared, uint32_t n, const uint8_t **at,
                       const uint8_t *end)
{
	if (!f->wanted) {
		const uint32_t n_columns = 1u + !!(declared->flags & SPR_OPTIONAL) +
		                           !!(declared->flags & SPR_LIST);

		for (uint32_t i = 0; i < n_columns; i++) {
			if (spr_column_skip(at, end))
				return -EBADMSG;
		}
		return 0;
	}
	if (f->optional && column_open(f->present, at, end, 1, n))
		return -EBADMSG;
	if (f->list && (spr_cursor_open(f->counts, at, end, 2) || f->counts->by_source))
		return -EBADMSG;
	return f->width ? numbers_begin(r, f, at, end) : text_begin(r, f->text, at, end);
}

static int section_begin(struct spr_frame_reader *r, uint32_t slot, uint32_t n, const uint8_t *at,
                         const uint8_t *end)
{
	static const struct spr_field whole = { .name = "bytes", .type = SPR_BYTES };
	struct kind *k = kind_make(r, slot);
	const struct spr_field *declared = slot == 0 ? &whole :
	                                   slot > r->n_kinds ? spr_kind_blind.fields :
	                                                       r->declared[slot - 1].fields;

	if (!k)
		return -ENOMEM;
	k->left = n;
	for (uint32_t i = 0; i < k->n_fields; i++) {
		const int err = field_begin(r, &k->fields[i], &declared[i], n, &at, end);

		if (err)
			return err;
	}
	return at == end ? 0 : -EBADMSG;
}

static int sections_begin(struct spr_frame_reader *r, const uint8_t *at, const uint8_t *end)
{
	uint64_t n_records = 0;
	int64_t slot_before = -1;

	for (uint32_t i = 0; i < r->n_places; i++) {
		uint32_t number, n, n_bytes, slot;
		int err;

		if ((size_t)(end - at) < SECTION_HEAD)
			return damaged("a kind's section");
		number = spr_get32(at);
		n = spr_get32(at + 4);
		n_bytes = spr_get32(at + 8);
		at += SECTION_HEAD;
		slot = number == SPR_KIND_BLIND ? r->n_kinds + 1 : number;
		if ((number > r->n_kinds && number != SPR_KIND_BLIND) ||
		    (int64_t)slot <= slot_before || !n || n_bytes > (size_t)(end - at))
			return damaged("a kind's section");
		err = section_begin(r, slot, n, at, at + n_bytes);
		if (err)
			return err == -ENOMEM ? err : damaged("a kind's column");
		r->places[i] = (uint16_t)slot;
		slot_before = slot;
		n_records += n;
		at += n_bytes;
	}
	return at == end && n_records == r->n_records ? 0 : damaged("the list of sections");
}

int spr_frame_reader_begin(struct spr_frame_reader *r, const struct spr_format_header *limits,
                           const uint8_t *content, size_t n_bytes, uint32_t n_records)
{
	const uint8_t *at = content, *const end = content + n_bytes;
	int err;

	r->n_records = r->at = 0;
	if (n_bytes < CONTENT_HEAD || spr_get32(at) != n_records)
		return damaged("the frame's beginning");
	r->n_writers = spr_get32(at + 4);
	r->n_sources = spr_get32(at + 8);
	r->n_places = spr_get32(at + 12);
	if (r->n_writers > n_records || r->n_sources > n_records || r->n_places > r->n_kinds + 2)
		return damaged("the frame's beginning");
	at += CONTENT_HEAD;
	r->n_records = n_records;
	r->n_states = 0;
	r->text_left = limits->frame_bytes > SPR_RECORD_BYTES_MAX ? limits->frame_bytes
	                                                          : SPR_RECORD_BYTES_MAX;
	if (!rooms_make(r) || !spr_vec_reserve(&r->row, ROW_ROOM))
		return -ENOMEM;
	err = tables_get(r, &at, end);
	if (err)
		return err;
	if (column_open(&r->sources, &at, end, 0, n_records) ||
	    column_open(&r->kinds_of, &at, end, 0, n_records) ||
	    column_open(&r->times, &at, end, 8, n_records) ||
	    column_open(&r->gaps, &at, end, 8, n_records) ||
	    column_open(&r->flags, &at, end, 1, n_records))
		return damaged("a column of the frame");
	return sections_begin(r, at, end);
}

/* --- Records ---------------------------------------------------------------------------------- */

static inline uint8_t *number_put(uint8_t *to, uint64_t v, uint32_t width)
{
	memcpy(to, &v, sizeof(v)); /* what is too much is overwritten by what comes next */
	return to + width;
}

/* The texts of one record behind `to`; NULL: they do not hold together or are too long. */
static uint8_t *texts_put(struct spr_frame_reader *r, const struct kind *k, struct field *f,
                          uint8_t *to)
{
	const uint8_t *const end = r->row.bytes + SPR_RECORD_BYTES_MAX;
	uint64_t n = 1;

	if (f->list) {
		if (spr_cursor_next(f->counts, 0, &n))
			return NULL;
		to = number_put(to, n, 2);
	}
	while (n--) {
		const uint8_t *bytes;
		uint32_t length;

		if (text_next(f->text, &bytes, &length) || to > end)
			return NULL;
		if (!k->whole) {
			if (length > UINT16_MAX)
				return NULL;
			to = number_put(to, length, 2);
		}
		if (to > end || length > (size_t)(end - to))
			return NULL;
		if (length)
			memcpy(to, bytes, length);
		to += length;
	}
	return to;
}

static int row_make(struct spr_frame_reader *r, struct kind *k, uint32_t source)
{
	uint8_t *to = r->row.bytes;

	for (uint32_t i = 0; i < k->n_fields; i++) {
		struct field *f = &k->fields[i];
		uint64_t v;

		if (!f->wanted)
			continue;
		if (f->optional) {
			if (spr_cursor_next(f->present, 0, &v) || v > 1)
				return -EBADMSG;
			*to++ = (uint8_t)v;
			if (!v)
				continue;
		}
		if (!f->width) {
			to = texts_put(r, k, f, to);
			if (!to)
				return -EBADMSG;
		} else {
			if (spr_cursor_next(f->values, source, &v))
				return -EBADMSG;
			to = number_put(to, v, f->width);
		}
	}
	r->row.n = (size_t)(to - r->row.bytes);
	return r->row.n <= SPR_RECORD_BYTES_MAX ? 0 : -EBADMSG;
}

static int record_make(struct spr_frame_reader *r, struct spr_record *rec)
{
	uint64_t source, place, time, gap, flags;
	uint32_t writer;
	struct kind *k;
	int err;

	if (spr_cursor_next(&r->sources, 0, &source) || spr_cursor_next(&r->kinds_of, 0, &place) ||
	    spr_cursor_next(&r->times, 0, &time) || spr_cursor_next(&r->gaps, 0, &gap) ||
	    spr_cursor_next(&r->flags, 0, &flags) || source >= r->n_sources || place >= r->n_places)
		return damaged("a column of the frame");
	k = &r->kinds[r->places[place]];
	if (!k->left)
		return damaged("a kind's section");
	k->left--;
	err = row_make(r, k, (uint32_t)source);
	if (err)
		return damaged("a kind's column");
	writer = r->writer_of[source];
	*rec = (struct spr_record){
		.data = r->row.bytes, .bytes = (uint32_t)r->row.n, .kind = k->number,
		.flags = (uint16_t)((flags & SPR_LATE) | (r->has_ids[source] ? SPR_HAS_ID : 0)),
		.time_ns = time, .seq = r->next_seqs[writer] + gap, .writer = r->writer_ids[writer],
		.pid = r->pids[source], .tid = r->tids[source],
	};
	r->next_seqs[writer] = rec->seq + 1;
	return 0;
}

int spr_frame_reader_next(struct spr_frame_reader *r, struct spr_record *rec)
{
	int err;

	if (r->at == r->n_records)
		return 0;
	err = record_make(r, rec);
	if (err) {
		r->n_records = r->at;
		return err;
	}
	r->at++;
	return 1;
}
