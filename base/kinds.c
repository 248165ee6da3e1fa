/* SPDX-License-Identifier: MIT */
/*
 * kinds.c - declarations of record kinds: checked, written as bytes, read back from bytes that
 * nobody vouches for. The bytes are drawn in docs/format.md, "Kinds".
 */
#include "base/kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define FLAGS_KNOWN (SPR_OPTIONAL | SPR_ENUM | SPR_FLAGS | SPR_LIST)
#define LABEL_MAX   255

static const struct spr_field blind_fields[] = {
	{ .name = "pid", .type = SPR_U32 },
	{ .name = "reason", .type = SPR_STRING },
	{ .name = "text", .type = SPR_STRING },
};
const struct spr_kind spr_kind_blind = { "blind", blind_fields, 3, 0 };

/* --- Checking --------------------------------------------------------------------------------- */

static bool name_is_good(const char *name)
{
	size_t n = 0;

	if (!name)
		return false;
	for (; name[n] && n <= SPR_KIND_NAME_MAX; n++) {
		const char c = name[n];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'))
			return false;
	}
	return n >= 1 && n <= SPR_KIND_NAME_MAX;
}

static bool is_text(uint32_t type)
{
	return type == SPR_STRING || type == SPR_BYTES;
}

static bool flags_fit(const struct spr_field *f)
{
	const bool is_unsigned = f->type >= SPR_U8 && f->type <= SPR_U64;

	if (f->flags & ~FLAGS_KNOWN)
		return false;
	if ((f->flags & SPR_ENUM) && (!is_unsigned || (f->flags & SPR_FLAGS)))
		return false;
	if ((f->flags & SPR_FLAGS) && !is_unsigned && f->type != SPR_HEX64)
		return false;
	if ((f->flags & SPR_LIST) && !is_text(f->type))
		return false;
	return true;
}

static int labels_check(const struct spr_kind *k, const struct spr_field *f)
{
	if (!f->n_labels)
		return 0;
	if (!(f->flags & (SPR_ENUM | SPR_FLAGS)) || !f->labels ||
	    f->n_labels > SPR_FIELD_LABELS_MAX)
		return spr_fail(-EINVAL,
		                "field %s.%s: labels belong to an ENUM or FLAGS field, at most %d",
		                k->name, f->name, SPR_FIELD_LABELS_MAX);
	for (uint32_t i = 0; i < f->n_labels; i++) {
		if (!f->labels[i] || strnlen(f->labels[i], LABEL_MAX + 1) > LABEL_MAX)
			return spr_fail(-EINVAL,
			                "field %s.%s: label %u is missing or longer than %d bytes",
			                k->name, f->name, i, LABEL_MAX);
	}
	return 0;
}

static int field_check(const struct spr_kind *k, uint32_t at)
{
	const struct spr_field *f = &k->fields[at];

	if (!name_is_good(f->name))
		return spr_fail(-EINVAL,
		                "kind %s: the name of field %u is not 1 to %d of [a-z0-9_]",
		                k->name, at, SPR_KIND_NAME_MAX);
	if (f->type < SPR_U8 || f->type > SPR_BYTES)
		return spr_fail(-EINVAL, "field %s.%s: there is no type %u", k->name, f->name,
		                f->type);
	if (!flags_fit(f) || f->reserved[0] || f->reserved[1] || f->reserved[2])
		return spr_fail(-EINVAL, "field %s.%s: flags %#x do not go with type %u", k->name,
		                f->name, f->flags, f->type);
	for (uint32_t i = 0; i < at; i++) {
		if (!strcmp(k->fields[i].name, f->name))
			return spr_fail(-EINVAL, "field %s.%s is declared twice", k->name, f->name);
	}
	return labels_check(k, f);
}

static int kind_check(const struct spr_kind *kinds, uint32_t at)
{
	const struct spr_kind *k = &kinds[at];

	if (!name_is_good(k->name))
		return spr_fail(-EINVAL, "the name of kind %u is not 1 to %d of [a-z0-9_]", at + 1,
		                SPR_KIND_NAME_MAX);
	if (!strcmp(k->name, "bytes") || !strcmp(k->name, "blind"))
		return spr_fail(-EINVAL, "kind %u: every channel has a kind \"%s\" already", at + 1,
		                k->name);
	if (k->n_fields > SPR_KIND_FIELDS_MAX || (k->n_fields && !k->fields) || k->reserved)
		return spr_fail(-EINVAL, "kind %s: %u fields; at most %d", k->name, k->n_fields,
		                SPR_KIND_FIELDS_MAX);
	for (uint32_t i = 0; i < at; i++) {
		if (!strcmp(kinds[i].name, k->name))
			return spr_fail(-EINVAL, "kind %s is declared twice", k->name);
	}
	for (uint32_t i = 0; i < k->n_fields; i++) {
		const int err = field_check(k, i);

		if (err)
			return err;
	}
	return 0;
}

int spr_kinds_check(const struct spr_kind *kinds, uint32_t n_kinds)
{
	if (n_kinds > SPR_KINDS_MAX || (n_kinds && !kinds))
		return spr_fail(-EINVAL, "%u kinds declared; at most %d", n_kinds, SPR_KINDS_MAX);
	for (uint32_t i = 0; i < n_kinds; i++) {
		const int err = kind_check(kinds, i);

		if (err)
			return err;
	}
	if (spr_kinds_encode(NULL, 0, kinds, n_kinds) > SPR_KINDS_BYTES_MAX)
		return spr_fail(-EINVAL, "the declaration of %u kinds takes more than 1 MiB",
		                n_kinds);
	return 0;
}

bool spr_kinds_alike(const struct spr_kind *a, const struct spr_kind *b)
{
	if (strcmp(a->name, b->name) || a->n_fields != b->n_fields)
		return false;
	for (uint32_t i = 0; i < a->n_fields; i++) {
		if (strcmp(a->fields[i].name, b->fields[i].name) ||
		    a->fields[i].type != b->fields[i].type ||
		    a->fields[i].flags != b->fields[i].flags)
			return false;
	}
	return true;
}

/* --- To bytes --------------------------------------------------------------------------------- */

struct sink {
	uint8_t *out; /* NULL: only counted */
	size_t   at;
};

static void bytes_put(struct sink *s, const void *bytes, size_t n)
{
	if (s->out)
		memcpy(s->out + s->at, bytes, n);
	s->at += n;
}

static void number_put(struct sink *s, uint32_t value, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++) {
		const uint8_t byte = (uint8_t)(value >> 8 * i);

		bytes_put(s, &byte, 1);
	}
}

static void text_put(struct sink *s, const char *text)
{
	const size_t n = strlen(text);

	number_put(s, (uint32_t)n, 1);
	bytes_put(s, text, n);
}

static void kind_put(struct sink *s, const struct spr_kind *k)
{
	text_put(s, k->name);
	number_put(s, k->n_fields, 1);
	for (uint32_t i = 0; i < k->n_fields; i++) {
		const struct spr_field *f = &k->fields[i];

		text_put(s, f->name);
		number_put(s, f->type, 1);
		number_put(s, f->flags, 1);
		number_put(s, f->n_labels, 2);
		for (uint32_t label = 0; label < f->n_labels; label++)
			text_put(s, f->labels[label]);
	}
}

static void kinds_put(struct sink *s, const struct spr_kind *kinds, uint32_t n_kinds)
{
	number_put(s, SPR_KINDS_VERSION, 1);
	number_put(s, n_kinds, 2);
	for (uint32_t i = 0; i < n_kinds; i++) {
		struct sink length = { NULL, 0 };

		kind_put(&length, &kinds[i]);
		number_put(s, (uint32_t)length.at, 4);
		kind_put(s, &kinds[i]);
	}
}

size_t spr_kinds_encode(void *out, size_t room_bytes, const struct spr_kind *kinds,
                        uint32_t n_kinds)
{
	struct sink s = { NULL, 0 };

	kinds_put(&s, kinds, n_kinds);
	if (out && s.at <= room_bytes) {
		s = (struct sink){ out, 0 };
		kinds_put(&s, kinds, n_kinds);
	}
	return s.at;
}

/* --- From bytes ------------------------------------------------------------------------------- */

/* Walks a private copy of the bytes twice: first it counts (kinds is NULL), then it fills. */
struct source {
	const uint8_t *at;
	size_t         left;
	int            err;
	/* Where the next of each goes, in the one block; counted in the first walk. */
	struct spr_kind  *kinds;
	struct spr_field *fields;
	const char      **labels;
	char             *text;
	size_t            n_kinds, n_fields, n_labels, n_text;
};

static uint32_t number_get(struct source *s, size_t n_bytes)
{
	uint32_t value = 0;

	if (s->left < n_bytes) {
		s->err = -EPROTO;
		s->left = 0;
		return 0;
	}
	for (size_t i = 0; i < n_bytes; i++)
		value |= (uint32_t)s->at[i] << 8 * i;
	s->at += n_bytes;
	s->left -= n_bytes;
	return value;
}

static const char *text_get(struct source *s)
{
	const size_t n = number_get(s, 1);
	char *const text = s->text;

	if (n > s->left || memchr(s->at, 0, n)) {
		s->err = -EPROTO;
		s->left = 0;
		return NULL;
	}
	if (s->kinds) {
		memcpy(text, s->at, n);
		text[n] = 0;
		s->text += n + 1;
	}
	s->at += n;
	s->left -= n;
	s->n_text += n + 1;
	return text;
}

static void field_get(struct source *s, struct spr_field *f)
{
	f->name = text_get(s);
	f->type = number_get(s, 1);
	f->flags = number_get(s, 1);
	f->n_labels = number_get(s, 2);
	if (f->n_labels > SPR_FIELD_LABELS_MAX)
		s->err = -EPROTO;
	f->labels = f->n_labels ? s->labels : NULL;
	if (s->kinds)
		s->labels += f->n_labels;
	s->n_labels += f->n_labels;
	for (uint32_t i = 0; i < f->n_labels && !s->err; i++) {
		const char *label = text_get(s);

		if (s->kinds)
			((const char **)f->labels)[i] = label;
	}
}

static void kind_get(struct source *s, struct spr_kind *k)
{
	const size_t n_bytes = number_get(s, 4);
	const size_t end = s->left - n_bytes;

	if (n_bytes > s->left) {
		s->err = -EPROTO;
		return;
	}
	k->name = text_get(s);
	k->n_fields = number_get(s, 1);
	k->fields = s->fields;
	if (k->n_fields > SPR_KIND_FIELDS_MAX)
		s->err = -EPROTO;
	if (s->kinds)
		s->fields += k->n_fields;
	s->n_fields += k->n_fields;
	for (uint32_t i = 0; i < k->n_fields && !s->err; i++) {
		struct spr_field counted = { 0 };

		field_get(s, s->kinds ? (struct spr_field *)&k->fields[i] : &counted);
	}
	if (s->left != end)
		s->err = -EPROTO;
}

static void kinds_get(struct source *s)
{
	if (number_get(s, 1) != SPR_KINDS_VERSION)
		s->err = -EPROTO;
	s->n_kinds = number_get(s, 2);
	if (s->n_kinds > SPR_KINDS_MAX)
		s->err = -EPROTO;
	for (size_t i = 0; i < s->n_kinds && !s->err; i++) {
		struct spr_kind counted = { 0 };

		kind_get(s, s->kinds ? &s->kinds[i] : &counted);
	}
	if (s->left)
		s->err = -EPROTO;
}

static struct spr_kind *kinds_fill(const uint8_t *bytes, size_t n_bytes, const struct source *sizes)
{
	const size_t n_bytes_kinds = sizes->n_kinds * sizeof(struct spr_kind);
	const size_t n_bytes_fields = sizes->n_fields * sizeof(struct spr_field);
	const size_t n_bytes_labels = sizes->n_labels * sizeof(char *);
	char *block = calloc(1,
	                     n_bytes_kinds + n_bytes_fields + n_bytes_labels + sizes->n_text + 1);
	struct source s = { .at = bytes, .left = n_bytes };

	if (!block)
		return NULL;
	s.kinds = (struct spr_kind *)(void *)block;
	s.fields = (struct spr_field *)(void *)(block + n_bytes_kinds);
	s.labels = (const char **)(void *)(block + n_bytes_kinds + n_bytes_fields);
	s.text = block + n_bytes_kinds + n_bytes_fields + n_bytes_labels;
	kinds_get(&s);
	return (struct spr_kind *)(void *)block;
}

int spr_kinds_decode(struct spr_kind **out, uint32_t *n_kinds, const void *bytes, size_t n_bytes)
{
	uint8_t *copy;
	struct source sizes;
	int err;

	if (n_bytes > SPR_KINDS_BYTES_MAX)
		return -EPROTO;
	copy = malloc(n_bytes ? n_bytes : 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes, n_bytes);
	sizes = (struct source){ .at = copy, .left = n_bytes };
	kinds_get(&sizes);
	err = sizes.err;
	if (!err) {
		*n_kinds = (uint32_t)sizes.n_kinds;
		*out = kinds_fill(copy, n_bytes, &sizes);
		err = *out ? 0 : -ENOMEM;
	}
	free(copy);
	if (!err && spr_kinds_check(*out, *n_kinds)) {
		free(*out);
		*out = NULL;
		err = -EPROTO;
	}
	return err;
}
