/* SPDX-License-Identifier: MIT */
/*
 * record_field.c - one field of a record's bytes, found by walking the declaration. The bytes may
 * come from anybody.
 */
#include <errno.h>
#include <string.h>

#include "base/kinds.h"

static const uint8_t width_of[] = {
	[SPR_U8] = 1, [SPR_U16] = 2, [SPR_U32] = 4, [SPR_U64] = 8,
	[SPR_I32] = 4, [SPR_I64] = 8, [SPR_HEX64] = 8,
};

struct cursor {
	const uint8_t *at;
	size_t         left;
};

static int number_next(struct cursor *c, size_t width, uint64_t *out)
{
	*out = 0;
	if (c->left < width)
		return -EPROTO;
	for (size_t i = 0; i < width; i++)
		*out |= (uint64_t)c->at[i] << 8 * i;
	c->at += width;
	c->left -= width;
	return 0;
}

/* One STRING or BYTES: where it is and how long. */
static int text_next(struct cursor *c, const void **bytes, uint32_t *n)
{
	uint64_t length;

	if (number_next(c, 2, &length) || length > c->left)
		return -EPROTO;
	*bytes = c->at;
	*n = (uint32_t)length;
	c->at += length;
	c->left -= length;
	return 0;
}

static int texts_next(struct cursor *c, uint32_t flags, struct spr_value *out)
{
	out->number = 1;
	if ((flags & SPR_LIST) && number_next(c, 2, &out->number))
		return -EPROTO;
	for (uint64_t i = 0; i < out->number; i++) {
		const void *bytes;
		uint32_t n;

		if (text_next(c, &bytes, &n))
			return -EPROTO;
		if (!i) {
			out->bytes = bytes;
			out->n = n;
		}
	}
	return 0;
}

static int field_next(struct cursor *c, const struct spr_field *f, struct spr_value *out)
{
	uint64_t present = 1;

	memset(out, 0, sizeof(*out));
	if (f->type < SPR_U8 || f->type > SPR_BYTES)
		return -EPROTO;
	if ((f->flags & SPR_OPTIONAL) && (number_next(c, 1, &present) || present > 1))
		return -EPROTO;
	out->present = (uint32_t)present;
	if (!present)
		return 0;
	if (f->type == SPR_STRING || f->type == SPR_BYTES)
		return texts_next(c, f->flags, out);
	if (number_next(c, width_of[f->type], &out->number))
		return -EPROTO;
	if (f->type == SPR_I32)
		out->number = (uint64_t)(int64_t)(int32_t)(uint32_t)out->number;
	return 0;
}

SPR_API int spr_record_field(const struct spr_kind *kind, const struct spr_record *rec,
                             uint32_t field, struct spr_value *out)
{
	struct cursor c = { rec->data, rec->bytes };

	if (!kind && rec->kind == SPR_KIND_BLIND)
		kind = &spr_kind_blind;
	if (!kind) { /* kind 0: all of it is the one field */
		*out = (struct spr_value){ rec->data, 1, rec->bytes, 1 };
		return field || rec->kind ? -EINVAL : 0;
	}
	if (field >= kind->n_fields)
		return -EINVAL;
	for (uint32_t i = 0; i <= field; i++) {
		if (field_next(&c, &kind->fields[i], out))
			return -EPROTO;
	}
	return 0;
}
