/* SPDX-License-Identifier: MIT */
/*
 * kinds_find.c - the number of a kind by its name, looked up where the declaration lies. Alone in
 * its file: it is what a sender needs of kinds.h, and it allocates nothing and calls nothing.
 */
#include <errno.h>
#include <stdbool.h>

#include "base/kinds.h"

struct cursor {
	const volatile uint8_t *at; /* the other side may change the bytes while we look */
	size_t                  left;
};

static int byte_next(struct cursor *c)
{
	if (!c->left)
		return -EPROTO;
	c->left--;
	return *c->at++;
}

static int u16_next(struct cursor *c)
{
	const int low = byte_next(c);
	const int high = byte_next(c);

	return low < 0 || high < 0 ? -EPROTO : low | high << 8;
}

static bool text_is(const char *text, const char *word)
{
	size_t i = 0;

	while (word[i] && text[i] == word[i])
		i++;
	return text[i] == word[i];
}

/* Steps over a name of n bytes; is it `name`? */
static bool name_next_is(struct cursor *c, size_t n, const char *name)
{
	bool same = true;

	for (size_t i = 0; i < n; i++) {
		same = same && name[i] && c->at[i] == (uint8_t)name[i];
		if (!same)
			break;
	}
	same = same && !name[n];
	c->at += n;
	c->left -= n;
	return same;
}

int spr_kinds_find(const void *bytes, size_t n_bytes, const char *name)
{
	struct cursor c = { bytes, n_bytes };
	int n_kinds;

	if (text_is(name, "bytes"))
		return 0;
	if (text_is(name, "blind"))
		return SPR_KIND_BLIND;
	if (byte_next(&c) != SPR_KINDS_VERSION)
		return -EPROTO;
	n_kinds = u16_next(&c);
	if (n_kinds < 0 || n_kinds > SPR_KINDS_MAX)
		return -EPROTO;
	for (int kind = 1; kind <= n_kinds; kind++) {
		const int low = u16_next(&c);
		const int high = u16_next(&c);
		const int n_name = byte_next(&c);
		size_t rest;

		if (low < 0 || high < 0 || n_name < 0)
			return -EPROTO;
		rest = (size_t)low | (size_t)high << 16; /* of the kind, its name included */
		if (rest > c.left + 1 || rest < (size_t)n_name + 1)
			return -EPROTO;
		rest -= (size_t)n_name + 1;
		if (name_next_is(&c, (size_t)n_name, name))
			return kind;
		c.at += rest;
		c.left -= rest;
	}
	return -ENOENT;
}
