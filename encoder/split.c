/* SPDX-License-Identifier: MIT */
/*
 * split.c - from rows to columns. The bytes come from other people's processes: a record is taken
 * apart only if they are what its kind says.
 */
#include "encoder/split.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/kinds.h"
#include "encoder/text.h"

#define KIND_ROOM_FIRST 256u

struct field {
	uint8_t  type, width; /* width 0: text */
	bool     optional, list;
	uint8_t *present; /* a byte for each record */
	/* Numbers: room for one a record. sources: HEX64 alone. */
	uint8_t  *values;
	uint32_t *sources;
	uint32_t  n;
	/* Text. */
	struct spr_vec   counts; /* lists: uint16_t */
	struct spr_text *text;
};

struct kind {
	struct field *fields;
	uint32_t      number, n_fields;
	bool          whole; /* "bytes": all of the record is the one field */
	bool          has_text;
	uint32_t      n, room; /* records */
};

struct spr_split {
	struct kind *kinds;
	uint32_t     n_kinds; /* slots */
};

static const uint8_t width_of[] = {
	[SPR_U8] = 1, [SPR_U16] = 2, [SPR_U32] = 4, [SPR_U64] = 8,
	[SPR_I32] = 4, [SPR_I64] = 8, [SPR_HEX64] = 8, [SPR_STRING] = 0, [SPR_BYTES] = 0,
};

/* --- Making and releasing --------------------------------------------------------------------- */

static bool kind_open(struct kind *k, const struct spr_kind *declared)
{
	k->n_fields = declared->n_fields;
	k->fields = calloc(k->n_fields + 1, sizeof(*k->fields));
	if (!k->fields)
		return false;
	for (uint32_t i = 0; i < k->n_fields; i++) {
		const struct spr_field *d = &declared->fields[i];
		struct field *f = &k->fields[i];

		f->type = (uint8_t)d->type;
		f->width = width_of[d->type];
		f->optional = d->flags & SPR_OPTIONAL;
		f->list = d->flags & SPR_LIST;
		if (!f->width) {
			k->has_text = true;
			f->text = spr_text_open(d->type == SPR_STRING);
			if (!f->text)
				return false;
		}
	}
	return true;
}

struct spr_split *spr_split_open(const struct spr_kind *kinds, uint32_t n_kinds)
{
	static const struct spr_field whole = { .name = "bytes", .type = SPR_BYTES };
	const struct spr_kind bytes = { "bytes", &whole, 1, 0 };
	struct spr_split *s = calloc(1, sizeof(*s));
	bool ok;

	if (!s)
		return NULL;
	s->n_kinds = n_kinds + 2;
	s->kinds = calloc(s->n_kinds, sizeof(*s->kinds));
	ok = s->kinds && kind_open(&s->kinds[0], &bytes) &&
	     kind_open(&s->kinds[n_kinds + 1], &spr_kind_blind);
	for (uint32_t i = 0; ok && i < n_kinds; i++) {
		ok = kind_open(&s->kinds[i + 1], &kinds[i]);
		s->kinds[i + 1].number = i + 1;
	}
	if (!ok) {
		spr_split_close(s);
		return NULL;
	}
	s->kinds[0].whole = true;
	s->kinds[n_kinds + 1].number = SPR_KIND_BLIND;
	return s;
}

void spr_split_close(struct spr_split *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->kinds && i < s->n_kinds; i++) {
		for (uint32_t j = 0; s->kinds[i].fields && j < s->kinds[i].n_fields; j++) {
			struct field *f = &s->kinds[i].fields[j];

			free(f->present);
			free(f->values);
			free(f->sources);
			spr_vec_release(&f->counts);
			spr_text_close(f->text);
		}
		free(s->kinds[i].fields);
	}
	free(s->kinds);
	free(s);
}

void spr_split_begin(struct spr_split *s)
{
	for (uint32_t i = 0; i < s->n_kinds; i++) {
		struct kind *k = &s->kinds[i];

		if (!k->n)
			continue;
		k->n = 0;
		for (uint32_t j = 0; j < k->n_fields; j++) {
			k->fields[j].n = 0;
			k->fields[j].counts.n = 0;
			if (k->fields[j].text)
				spr_text_begin(k->fields[j].text);
		}
	}
}

/* --- Checking --------------------------------------------------------------------------------- */

/* Steps over one STRING or BYTES, or a list of them; NULL: it does not fit. */
static const uint8_t *text_step(const struct field *f, const uint8_t *at, const uint8_t *end)
{
	uint32_t n = 1;

	if (f->list) {
		if (end - at < 2)
			return NULL;
		n = (uint32_t)at[0] | (uint32_t)at[1] << 8;
		at += 2;
	}
	while (n--) {
		uint32_t length;

		if (end - at < 2)
			return NULL;
		length = (uint32_t)at[0] | (uint32_t)at[1] << 8;
		at += 2;
		if ((size_t)(end - at) < length)
			return NULL;
		at += length;
	}
	return at;
}

static bool texts_fit(const struct kind *k, const uint8_t *at, const uint8_t *end)
{
	for (uint32_t i = 0; i < k->n_fields; i++) {
		const struct field *f = &k->fields[i];

		if (f->optional) {
			if (at == end || *at > 1)
				return false;
			if (!*at++)
				continue;
		}
		if (!f->width) {
			at = text_step(f, at, end);
			if (!at)
				return false;
		} else {
			if (end - at < f->width)
				return false;
			at += f->width;
		}
	}
	return at == end;
}

/* --- Taking apart ----------------------------------------------------------------------------- */

static bool array_grow(void *array, size_t n_bytes)
{
	void **const at = array;
	void *const bigger = realloc(*at, n_bytes);

	if (bigger)
		*at = bigger;
	return bigger;
}

static bool kind_grow(struct kind *k)
{
	const uint32_t room = k->room ? 2 * k->room : KIND_ROOM_FIRST;

	for (uint32_t i = 0; i < k->n_fields; i++) {
		struct field *f = &k->fields[i];

		if (f->optional && !array_grow(&f->present, room))
			return false;
		if (f->width && !array_grow(&f->values, (size_t)room * f->width))
			return false;
		if (f->type == SPR_HEX64 && !array_grow(&f->sources, room * sizeof(*f->sources)))
			return false;
	}
	k->room = room;
	return true;
}

static inline uint32_t u16_next(const uint8_t **at)
{
	uint16_t v;

	memcpy(&v, *at, 2);
	*at += 2;
	return v;
}

static bool texts_take(struct field *f, const uint8_t **at)
{
	uint32_t n = 1;

	if (f->list) {
		if (!spr_vec_put(&f->counts, *at, 2))
			return false;
		n = u16_next(at);
	}
	while (n--) {
		const uint32_t length = u16_next(at);

		if (!spr_text_put(f->text, *at, length))
			return false;
		*at += length;
	}
	return true;
}

static inline void number_take(struct field *f, const uint8_t *at, uint32_t source)
{
	const uint32_t n = f->n++;

	switch (f->width) {
	case 1:
		f->values[n] = *at;
		break;
	case 2:
		memcpy(f->values + 2ull * n, at, 2);
		break;
	case 4:
		memcpy(f->values + 4ull * n, at, 4);
		break;
	default:
		memcpy(f->values + 8ull * n, at, 8);
		if (f->sources)
			f->sources[n] = source;
	}
}

/* A record whose bytes were checked. */
static int texts_split(struct kind *k, const uint8_t *at, uint32_t source)
{
	for (uint32_t i = 0; i < k->n_fields; i++) {
		struct field *f = &k->fields[i];

		if (f->optional) {
			f->present[k->n] = *at;
			if (!*at++)
				continue;
		}
		if (f->width) {
			number_take(f, at, source);
			at += f->width;
		} else if (!texts_take(f, &at)) {
			return -ENOMEM;
		}
	}
	return 0;
}

/* Numbers alone are checked as they are taken: what was taken is easily given back. 1: malformed.
 */
static int numbers_split(struct kind *k, const uint8_t *at, const uint8_t *end, uint32_t source)
{
	uint32_t i;

	for (i = 0; i < k->n_fields; i++) {
		struct field *f = &k->fields[i];

		if (f->optional) {
			if (at == end || *at > 1)
				break;
			f->present[k->n] = *at;
			if (!*at++)
				continue;
		}
		if (end - at < f->width)
			break;
		number_take(f, at, source);
		at += f->width;
	}
	if (i == k->n_fields && at == end)
		return 0;
	while (i--) {
		if (!k->fields[i].optional || k->fields[i].present[k->n])
			k->fields[i].n--;
	}
	return 1;
}

int spr_split_put(struct spr_split *s, uint32_t slot, const uint8_t *data, uint32_t n_bytes,
                  uint32_t source)
{
	struct kind *k = &s->kinds[slot];
	int err;

	if (k->n == k->room && !kind_grow(k))
		return -ENOMEM;
	if (k->whole)
		err = spr_text_put(k->fields[0].text, data, n_bytes) ? 0 : -ENOMEM;
	else if (!k->has_text)
		err = numbers_split(k, data, data + n_bytes, source);
	else
		err = texts_fit(k, data, data + n_bytes) ? texts_split(k, data, source) : 1;
	k->n += !err;
	return err;
}

uint32_t spr_split_counts(const struct spr_split *s, struct spr_kind_count *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_kinds; i++) {
		if (s->kinds[i].n)
			out[n++] = (struct spr_kind_count){ s->kinds[i].number, 0, s->kinds[i].n };
	}
	return n;
}

/* --- Columns ---------------------------------------------------------------------------------- */

static bool field_put(const struct kind *k, struct field *f, struct spr_vec *out,
                      const struct spr_sources *sources, uint32_t *n_states)
{
	struct spr_ints ints = { .values = f->present, .n = k->n, .width = 1 };

	if (f->optional && !spr_column_ints_put(out, &ints))
		return false;
	if (f->list) {
		ints = (struct spr_ints){ .values = f->counts.bytes,
			                  .n = (uint32_t)f->counts.n / 2,
			                  .width = 2 };
		if (!spr_column_ints_put(out, &ints))
			return false;
	}
	if (!f->width)
		return spr_text_column_put(f->text, out);
	ints = (struct spr_ints){ .values = f->values, .n = f->n, .width = f->width };
	if (f->sources && *n_states + sources->n <= SPR_SOURCE_STATES_MAX) {
		ints.sources = f->sources;
		ints.states = sources->states;
		ints.n_sources = sources->n;
		*n_states += sources->n;
	}
	return spr_column_ints_put(out, &ints);
}

bool spr_split_columns_put(struct spr_split *s, struct spr_vec *out,
                           const struct spr_sources *sources)
{
	uint32_t n_states = 0;

	for (uint32_t i = 0; i < s->n_kinds; i++) {
		struct kind *k = &s->kinds[i];
		const size_t head = out->n;
		uint8_t bytes[12] = { 0 };

		if (!k->n)
			continue;
		if (!spr_vec_put(out, bytes, sizeof(bytes)))
			return false;
		for (uint32_t j = 0; j < k->n_fields; j++) {
			if (!field_put(k, &k->fields[j], out, sources, &n_states))
				return false;
		}
		spr_put32(out->bytes + head, k->number);
		spr_put32(out->bytes + head + 4, k->n);
		spr_put32(out->bytes + head + 8, (uint32_t)(out->n - head - 12));
	}
	return true;
}
