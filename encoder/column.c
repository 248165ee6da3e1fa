/* SPDX-License-Identifier: MIT */
/*
 * column.c - codecs of integer columns. Which one a column gets follows from its values alone, so
 * the same frame has the same bytes everywhere.
 */
#include "encoder/column.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE      512u /* values looked at to choose */
#define VARINT_MOST 10u  /* bytes of one varint */

/* --- Bytes that grow -------------------------------------------------------------------------- */

bool spr_vec_reserve(struct spr_vec *v, size_t n)
{
	size_t room = v->room ? v->room : 4096;
	uint8_t *bytes;

	if (v->bytes && v->room - v->n >= n)
		return true;
	while (room < v->n + n)
		room += room / 2;
	bytes = realloc(v->bytes, room);
	if (!bytes)
		return false;
	v->bytes = bytes;
	v->room = room;
	return true;
}

bool spr_vec_put(struct spr_vec *v, const void *bytes, size_t n)
{
	if (!spr_vec_reserve(v, n))
		return false;
	if (n)
		memcpy(v->bytes + v->n, bytes, n);
	v->n += n;
	return true;
}

void spr_vec_release(struct spr_vec *v)
{
	free(v->bytes);
	*v = (struct spr_vec){ 0 };
}

/* --- Values ----------------------------------------------------------------------------------- */

static inline uint64_t value_at(const uint8_t *values, uint32_t width, uint32_t i)
{
	switch (width) {
	case 1:
		return values[i];
	case 2: {
		uint16_t v;

		memcpy(&v, values + 2ull * i, 2);
		return v;
	}
	case 4:
		return spr_get32(values + 4ull * i);
	default:
		return spr_get64(values + 8ull * i);
	}
}

/* The difference in width bytes, small ones of either sign as small numbers. */
static inline uint64_t zigzag(uint64_t difference, uint32_t width)
{
	const uint32_t shift = 64 - 8 * width;
	const int64_t s = (int64_t)(difference << shift) >> shift;

	return (uint64_t)s << 1 ^ (uint64_t)(s >> 63);
}

static inline uint64_t unzigzag(uint64_t v)
{
	return v >> 1 ^ -(v & 1);
}

static inline uint32_t varint_bytes(uint64_t v)
{
	return (uint32_t)(70 - __builtin_clzll(v | 1)) / 7;
}

static inline uint8_t *varint_put(uint8_t *at, uint64_t v)
{
	while (v >= 0x80) {
		*at++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*at++ = (uint8_t)v;
	return at;
}

/* --- Choosing --------------------------------------------------------------------------------- */

struct estimate {
	uint64_t bytes[SPR_CODEC_DELTA_BY_SOURCE + 1]; /* of the sample */
};

/* Sixteen stretches, so that a column that changes its habits is seen; only DELTA_BY_SOURCE needs
 * more than the neighbour, and there the stretch's own beginning is left out. */
static void estimate_make(struct estimate *e, const struct spr_ints *c)
{
	const uint32_t n_stretches = c->n > SAMPLE ? 16 : 1;
	const uint32_t length = c->n > SAMPLE ? SAMPLE / 16 : c->n;

	memset(e, 0, sizeof(*e));
	for (uint32_t s = 0; s < n_stretches; s++) {
		const uint32_t from = (uint32_t)((uint64_t)(c->n - length) * s / n_stretches);
		uint64_t last_of[16] = { 0 };
		uint32_t owner[16];

		memset(owner, 0xff, sizeof(owner));
		for (uint32_t i = from; i < from + length; i++) {
			const uint64_t v = value_at(c->values, c->width, i);
			const uint64_t before = i ? value_at(c->values, c->width, i - 1) : 0;

			e->bytes[SPR_CODEC_RAW] += c->width;
			e->bytes[SPR_CODEC_VARINT] += varint_bytes(v);
			e->bytes[SPR_CODEC_DELTA] += varint_bytes(zigzag(v - before, c->width));
			if (c->sources) {
				const uint32_t slot = c->sources[i] & 15;

				if (owner[slot] == c->sources[i])
					e->bytes[SPR_CODEC_DELTA_BY_SOURCE] +=
						varint_bytes(zigzag(v - last_of[slot], c->width));
				else
					e->bytes[SPR_CODEC_DELTA_BY_SOURCE] += 2;
				owner[slot] = c->sources[i];
				last_of[slot] = v;
			}
		}
	}
}

static enum spr_codec codec_choose(const struct spr_ints *c)
{
	const uint32_t n_last = c->sources ? SPR_CODEC_DELTA_BY_SOURCE : SPR_CODEC_DELTA;
	struct estimate e;
	uint32_t best = SPR_CODEC_RAW;

	if (c->n < 2 || !memcmp(c->values, c->values + c->width, (size_t)(c->n - 1) * c->width))
		return SPR_CODEC_CONST;
	if (c->width == 1)
		return SPR_CODEC_RAW;
	estimate_make(&e, c);
	for (uint32_t i = SPR_CODEC_VARINT; i <= n_last; i++) {
		if (e.bytes[i] < e.bytes[best])
			best = i;
	}
	return (enum spr_codec)best;
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* One loop for each width, so that the width is a constant inside. NULL: longer than `end`. */
static inline __attribute__((always_inline)) uint8_t *
varints_put(uint8_t *at, const uint8_t *end, const struct spr_ints *c, enum spr_codec codec,
            uint32_t width)
{
	uint64_t last = 0;

	for (uint32_t i = 0; i < c->n; i++) {
		const uint64_t v = value_at(c->values, width, i);
		uint64_t out = v;

		if (at > end)
			return NULL;
		if (codec == SPR_CODEC_DELTA) {
			out = zigzag(v - last, width);
			last = v;
		} else if (codec == SPR_CODEC_DELTA_BY_SOURCE) {
			out = zigzag(v - c->states[c->sources[i]], width);
			c->states[c->sources[i]] = v;
		}
		at = varint_put(at, out);
	}
	return at;
}

static uint8_t *codec_put(uint8_t *at, const uint8_t *end, const struct spr_ints *c,
                          enum spr_codec codec)
{
#define WIDTHS(which) \
	(c->width == 8   ? varints_put(at, end, c, which, 8) \
	 : c->width == 4 ? varints_put(at, end, c, which, 4) \
	                 : varints_put(at, end, c, which, 2))
	switch (codec) {
	case SPR_CODEC_VARINT:
		return WIDTHS(SPR_CODEC_VARINT);
	case SPR_CODEC_DELTA:
		return WIDTHS(SPR_CODEC_DELTA);
	case SPR_CODEC_DELTA_BY_SOURCE:
		return WIDTHS(SPR_CODEC_DELTA_BY_SOURCE);
	default:
		return NULL;
	}
#undef WIDTHS
}

static void head_put(uint8_t *head, enum spr_codec codec, uint32_t width, uint32_t n,
                     size_t n_bytes)
{
	head[0] = (uint8_t)codec;
	head[1] = (uint8_t)width;
	head[2] = head[3] = 0;
	spr_put32(head + 4, n);
	spr_put32(head + 8, (uint32_t)n_bytes);
}

bool spr_column_ints_put(struct spr_vec *out, const struct spr_ints *c)
{
	const size_t raw_bytes = (size_t)c->n * c->width;
	enum spr_codec codec = codec_choose(c);
	size_t n_bytes = raw_bytes;
	uint8_t *body;

	if (!spr_vec_reserve(out, SPR_COLUMN_HEAD_BYTES + raw_bytes + VARINT_MOST))
		return false;
	body = out->bytes + out->n + SPR_COLUMN_HEAD_BYTES;
	if (codec == SPR_CODEC_CONST) {
		n_bytes = c->n ? c->width : 0;
		if (n_bytes)
			memcpy(body, c->values, n_bytes);
	} else if (codec != SPR_CODEC_RAW) {
		const uint8_t *end;

		if (codec == SPR_CODEC_DELTA_BY_SOURCE)
			memset(c->states, 0, c->n_sources * sizeof(*c->states));
		end = codec_put(body, body + raw_bytes, c, codec);
		if (end && (size_t)(end - body) < raw_bytes)
			n_bytes = (size_t)(end - body);
		else
			codec = SPR_CODEC_RAW; /* the sample was wrong */
	}
	if (codec == SPR_CODEC_RAW)
		memcpy(body, c->values, raw_bytes);
	head_put(out->bytes + out->n, codec, c->width, c->n, n_bytes);
	out->n += SPR_COLUMN_HEAD_BYTES + n_bytes;
	return true;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static int head_get(const uint8_t **at, const uint8_t *end, const uint8_t **body)
{
	if ((size_t)(end - *at) < SPR_COLUMN_HEAD_BYTES)
		return -EBADMSG;
	*body = *at + SPR_COLUMN_HEAD_BYTES;
	if (spr_get32(*at + 8) > (size_t)(end - *body))
		return -EBADMSG;
	*at = *body + spr_get32(*at + 8);
	return 0;
}

int spr_column_skip(const uint8_t **at, const uint8_t *end)
{
	const uint8_t *body;

	return head_get(at, end, &body);
}

int spr_cursor_open(struct spr_cursor *c, const uint8_t **at, const uint8_t *end, uint32_t width)
{
	const uint8_t *const head = *at;
	const uint8_t *body;

	if (head_get(at, end, &body))
		return -EBADMSG;
	c->at = body;
	c->end = *at;
	c->codec = head[0];
	c->width = head[1];
	c->left = spr_get32(head + 4);
	c->next = c->n_ready = 0;
	c->last = 0;
	c->states = NULL;
	c->by_source = c->codec == SPR_CODEC_DELTA_BY_SOURCE;
	if (head[2] || head[3] || c->codec > SPR_CODEC_DELTA_BY_SOURCE)
		return -EBADMSG;
	if ((c->width != 1 && c->width != 2 && c->width != 4 && c->width != 8) ||
	    (width && c->width != width))
		return -EBADMSG;
	c->mask = ~0ull >> (64 - 8 * c->width);
	if (c->codec == SPR_CODEC_CONST && c->left) {
		if (c->end - c->at != c->width)
			return -EBADMSG;
		memcpy(&c->last, c->at, c->width);
		c->at = c->end;
	} else if (c->codec == SPR_CODEC_RAW &&
	           (size_t)(c->end - c->at) != (size_t)c->left * c->width) {
		return -EBADMSG;
	}
	return 0;
}

/* NULL: the bytes end first, or it is longer than 64 bits. */
static inline const uint8_t *varint_get(const uint8_t *at, const uint8_t *end, uint64_t *out)
{
	uint64_t v = 0;

	for (uint32_t shift = 0; at < end && shift < 70; shift += 7) {
		const uint8_t byte = *at++;

		v |= (uint64_t)(byte & 0x7f) << (shift & 63);
		if (byte < 0x80) {
			*out = v;
			return shift == 63 && byte > 1 ? NULL : at;
		}
	}
	return NULL;
}

static int varints_get(struct spr_cursor *c, uint32_t n)
{
	const uint8_t *at = c->at;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t v;

		at = varint_get(at, c->end, &v);
		if (!at)
			return -EBADMSG;
		if (c->codec != SPR_CODEC_VARINT)
			v = unzigzag(v);
		if (c->codec == SPR_CODEC_DELTA)
			v = c->last = (c->last + v) & c->mask;
		else if (c->codec == SPR_CODEC_VARINT && v > c->mask)
			return -EBADMSG;
		c->ready[i] = v;
	}
	c->at = at;
	return 0;
}

int spr_cursor_refill(struct spr_cursor *c)
{
	const uint32_t n = c->left < SPR_BLOCK_VALUES ? c->left : SPR_BLOCK_VALUES;
	int err = 0;

	if (!n)
		return -EBADMSG;
	if (c->codec == SPR_CODEC_CONST) {
		for (uint32_t i = 0; i < n; i++)
			c->ready[i] = c->last;
	} else if (c->codec == SPR_CODEC_RAW) {
		for (uint32_t i = 0; i < n; i++)
			c->ready[i] = value_at(c->at, c->width, i);
		c->at += (size_t)n * c->width;
	} else {
		err = varints_get(c, n);
	}
	if (err)
		return err;
	c->left -= n;
	c->n_ready = n;
	c->next = 0;
	return 0;
}
