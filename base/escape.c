/* SPDX-License-Identifier: MIT */
/*
 * escape.c - one walk over the text, one function per way out that writes a single character.
 *
 * HTML and Markdown first make a character visible as on a terminal and then escape that: what a
 * control character does in a browser or a forge's renderer is nobody's promise.
 */
#include "base/escape.h"

#include <stdint.h>

struct out {
	char  *text;
	size_t room;
	size_t at;   /* length of the whole text so far */
	size_t kept; /* of it, what was written; no unit is written by halves */
	bool   full;
};

static void put(struct out *o, const char *unit, size_t n)
{
	if (!o->full && o->at + n < o->room) {
		for (size_t i = 0; i < n; i++)
			o->text[o->at + i] = unit[i];
		o->kept = o->at + n;
	} else {
		o->full = true;
	}
	o->at += n;
}

static size_t put_end(struct out *o)
{
	if (o->room)
		o->text[o->kept] = '\0';
	return o->at;
}

/* One character as it came. valid: a well-formed UTF-8 sequence for `code`; else `bytes` spans
 * the longest beginning of one (at least one byte), as Unicode recommends for replacement. */
struct character {
	const unsigned char *at;
	size_t               n_bytes;
	uint32_t             code;
	bool                 valid;
};

static struct character next_character(const unsigned char *at, size_t left)
{
	struct character c = { at, 1, at[0], true };
	size_t want;

	if (at[0] < 0x80)
		return c;
	c.valid = false;
	if (at[0] >= 0xc2 && at[0] <= 0xdf)
		want = 2;
	else if (at[0] >= 0xe0 && at[0] <= 0xef)
		want = 3;
	else if (at[0] >= 0xf0 && at[0] <= 0xf4)
		want = 4;
	else
		return c;
	c.code = at[0] & (0x7fu >> want);
	for (; c.n_bytes < want; c.n_bytes++) {
		unsigned low = 0x80, high = 0xbf;

		if (c.n_bytes == left)
			return c;
		if (c.n_bytes == 1) { /* no overlong forms, no surrogates, nothing past U+10FFFF */
			low = at[0] == 0xe0 ? 0xa0 : at[0] == 0xf0 ? 0x90 : 0x80;
			high = at[0] == 0xed ? 0x9f : at[0] == 0xf4 ? 0x8f : 0xbf;
		}
		if (at[c.n_bytes] < low || at[c.n_bytes] > high)
			return c;
		c.code = c.code << 6 | (at[c.n_bytes] & 0x3f);
	}
	c.valid = true;
	return c;
}

/* Does it act instead of showing itself: controls, C1, bidirectional and invisible formatting,
 * line separators, tags? */
static bool acts(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c ||
	       (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
	       (code >= 0xfff9 && code <= 0xfffb) || (code >= 0xe0000 && code <= 0xe007f);
}

static size_t hex(char *out, const char *head, uint32_t value, int n_digits)
{
	size_t at = 0;

	while (head[at]) {
		out[at] = head[at];
		at++;
	}
	for (int i = n_digits - 1; i >= 0; i--)
		out[at++] = "0123456789abcdef"[value >> (4 * i) & 15];
	return at;
}

/* The terminal's form of a character that must not be shown as it is; 0: show it as it is. */
static size_t visible(char out[16], const struct character *c)
{
	size_t at = 0;

	if (c->valid && !acts(c->code) && c->code != '\\')
		return 0;
	out[0] = '\\';
	switch (c->valid ? c->code : 0) {
	case '\n':
		out[1] = 'n';
		return 2;
	case '\t':
		out[1] = 't';
		return 2;
	case '\r':
		out[1] = 'r';
		return 2;
	case '\\':
		out[1] = '\\';
		return 2;
	default:
		for (size_t i = 0; i < c->n_bytes; i++)
			at += hex(out + at, "\\x", c->at[i], 2);
		return at;
	}
}

static void put_terminal(struct out *o, const struct character *c)
{
	char form[16];
	const size_t n = visible(form, c);

	if (n)
		put(o, form, n);
	else
		put(o, (const char *)c->at, c->n_bytes);
}

static void put_json(struct out *o, const struct character *c)
{
	static const char names[] = "\bb\tt\nn\ff\rr\"\"\\\\";
	char form[12];

	if (!c->valid) {
		put(o, "\xef\xbf\xbd", 3);
		return;
	}
	for (size_t i = 0; i + 1 < sizeof(names); i += 2) {
		if (c->code == (unsigned char)names[i]) {
			form[0] = '\\';
			form[1] = names[i + 1];
			put(o, form, 2);
			return;
		}
	}
	if (!acts(c->code)) {
		put(o, (const char *)c->at, c->n_bytes);
	} else if (c->code < 0x10000) {
		put(o, form, hex(form, "\\u", c->code, 4));
	} else {
		const uint32_t code = c->code - 0x10000;

		hex(form, "\\u", 0xd800 | code >> 10, 4);
		hex(form + 6, "\\u", 0xdc00 | (code & 0x3ff), 4);
		put(o, form, 12);
	}
}

static const char *html_entity(char c)
{
	switch (c) {
	case '&': return "&amp;";
	case '<': return "&lt;";
	case '>': return "&gt;";
	case '"': return "&quot;";
	case '\'': return "&#39;";
	default: return NULL;
	}
}

/* Backslashes for what Markdown reads; an entity and a zero-width space behind @, which keeps a
 * forge from telling somebody that he was named. */
static const char *markdown_escape(char c, char form[3])
{
	if (c == '@')
		return "&#64;&#8203;";
	if (c == '&' || c == '<' || c == '>')
		return html_entity(c);
	for (const char *p = "\\`*_{}[]()#+-.!|~:\"'$^="; *p; p++) {
		if (c == *p) {
			form[0] = '\\';
			form[1] = c;
			form[2] = '\0';
			return form;
		}
	}
	return NULL;
}

static size_t text_bytes(const char *text)
{
	size_t n = 0;

	while (text[n])
		n++;
	return n;
}

/* The unit of a character is put as a whole, so that a cut never leaves half an entity. */
static void put_markup(struct out *o, const struct character *c, bool markdown)
{
	char shown[16], unit[64], form[3];
	size_t n_shown = visible(shown, c), n = 0;

	if (c->valid && c->code == '\\') { /* one stays one: nothing is read back from a page */
		n_shown = 1;
		shown[0] = '\\';
	}
	if (!n_shown) {
		n_shown = c->n_bytes;
		for (size_t i = 0; i < n_shown; i++)
			shown[i] = (char)c->at[i];
	}
	for (size_t i = 0; i < n_shown; i++) {
		const char *escaped = markdown ? markdown_escape(shown[i], form)
		                               : html_entity(shown[i]);
		const size_t n_escaped = escaped ? text_bytes(escaped) : 1;

		for (size_t j = 0; j < n_escaped; j++)
			unit[n++] = escaped ? escaped[j] : shown[i];
	}
	put(o, unit, n);
}

static void put_html(struct out *o, const struct character *c)
{
	put_markup(o, c, false);
}

static void put_markdown(struct out *o, const struct character *c)
{
	put_markup(o, c, true);
}

static size_t walk(char *out, size_t room, const void *text, size_t n_bytes,
                   void (*put_one)(struct out *o, const struct character *c))
{
	struct out o = { out, room, 0, 0, false };
	const unsigned char *at = text;

	for (size_t left = n_bytes; left;) {
		const struct character c = next_character(at, left);

		put_one(&o, &c);
		at += c.n_bytes;
		left -= c.n_bytes;
	}
	return put_end(&o);
}

size_t spr_escape_terminal(char *out, size_t room, const void *text, size_t n_bytes)
{
	return walk(out, room, text, n_bytes, put_terminal);
}

size_t spr_escape_json(char *out, size_t room, const void *text, size_t n_bytes)
{
	return walk(out, room, text, n_bytes, put_json);
}

size_t spr_escape_html(char *out, size_t room, const void *text, size_t n_bytes)
{
	return walk(out, room, text, n_bytes, put_html);
}

size_t spr_escape_markdown(char *out, size_t room, const void *text, size_t n_bytes)
{
	return walk(out, room, text, n_bytes, put_markdown);
}

bool spr_is_utf8(const void *text, size_t n_bytes)
{
	const unsigned char *at = text;

	for (size_t left = n_bytes; left;) {
		const struct character c = next_character(at, left);

		if (!c.valid)
			return false;
		at += c.n_bytes;
		left -= c.n_bytes;
	}
	return true;
}
