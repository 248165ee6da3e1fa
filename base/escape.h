/* SPDX-License-Identifier: MIT */
/*
 * escape.h - untrusted text on its way out. What came from a target (a path, a program's name) can
 * hold anything: terminal escapes, quotes, tags, bytes that are no UTF-8. One function per way out.
 */
#ifndef SPR_BASE_ESCAPE_H
#define SPR_BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>

/* Each writes at most room bytes, NUL included, cut at a whole character, and returns the length
 * the whole text would have had (as snprintf does). T: any. */

/* Control characters, escapes, C1, bidirectional overrides and bytes that are no UTF-8 as \n, \t,
 * \xHH. */
size_t spr_escape_terminal(char *out, size_t room, const void *text, size_t n_bytes);
/* The inside of a JSON string; bytes that are no UTF-8 become U+FFFD. */
size_t spr_escape_json(char *out, size_t room, const void *text, size_t n_bytes);
size_t spr_escape_html(char *out, size_t room, const void *text, size_t n_bytes);
size_t spr_escape_markdown(char *out, size_t room, const void *text, size_t n_bytes);

/* Is all of it well-formed UTF-8? */
bool spr_is_utf8(const void *text, size_t n_bytes);

#endif /* SPR_BASE_ESCAPE_H */
