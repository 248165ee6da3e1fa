/* SPDX-License-Identifier: MIT */
/*
 * column.h - one column of a frame: values gathered, written by the codec that fits, read back a
 * block at a time. docs/format.md, "Columns", has the bytes.
 *
 *   head: | codec u8 | width u8 | 0 u16 | n_values u32 | n_bytes u32 |  then n_bytes
 */
#ifndef SPR_ENCODER_COLUMN_H
#define SPR_ENCODER_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "encoder/format.h"

/* Bytes that grow. A failed allocation sets `failed` once and keeps what is there. */
struct spr_vec {
	uint8_t *bytes;
	size_t   n, room;
};

/* Room for n more bytes behind v->n; false: no memory, v unchanged. */
bool spr_vec_reserve(struct spr_vec *v, size_t n);
bool spr_vec_put(struct spr_vec *v, const void *bytes, size_t n);
void spr_vec_release(struct spr_vec *v);

/* --- Writing ---------------------------------------------------------------------------------- */

/* sources: for each value its record's source, and states: room for one number of each source;
 * or NULL where that is no use. */
struct spr_ints {
	const uint8_t  *values; /* n of width bytes */
	const uint32_t *sources;
	uint64_t       *states;
	uint32_t        n, width, n_sources;
};
bool spr_column_ints_put(struct spr_vec *out, const struct spr_ints *ints);

/* --- Reading: a cursor on one column of integers ---------------------------------------------- */

#define SPR_BLOCK_VALUES 64u

struct spr_cursor {
	const uint8_t *at, *end;
	uint64_t       last;  /* CONST, DELTA */
	uint64_t       mask;  /* of width bytes */
	uint32_t       left;  /* values not yet in the block */
	uint32_t       next, n_ready;
	uint8_t        codec, width;
	bool           by_source;
	uint64_t      *states; /* DELTA_BY_SOURCE: for each source its last value; not owned */
	uint64_t       ready[SPR_BLOCK_VALUES];
};

/* Takes a column of integers from *at (to at most end) and steps over it. width: what it must be,
 * 0 for any. -EBADMSG. */
int spr_cursor_open(struct spr_cursor *c, const uint8_t **at, const uint8_t *end, uint32_t width);
/* The column's end, without looking inside. */
int spr_column_skip(const uint8_t **at, const uint8_t *end);
int spr_cursor_refill(struct spr_cursor *c); /* -EBADMSG */

/* The next value; source: of its record (DELTA_BY_SOURCE; < the frame's n_sources). */
static inline int spr_cursor_next(struct spr_cursor *c, uint32_t source, uint64_t *out)
{
	if (__builtin_expect(c->next == c->n_ready, 0)) {
		const int err = spr_cursor_refill(c);

		if (err)
			return err;
	}
	*out = c->ready[c->next++];
	if (c->by_source) {
		*out = (c->states[source] + *out) & c->mask;
		c->states[source] = *out;
	}
	return 0;
}

static inline uint32_t spr_cursor_left(const struct spr_cursor *c)
{
	return c->left + (c->n_ready - c->next);
}

#endif /* SPR_ENCODER_COLUMN_H */
