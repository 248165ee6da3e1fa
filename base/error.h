/* SPDX-License-Identifier: MIT */
/*
 * error.h - the two planes of an error: a number on the hot path, a sentence on the cold one.
 */
#ifndef SPR_BASE_ERROR_H
#define SPR_BASE_ERROR_H

/* Keep a sentence for spr_error_text() of this thread and return `err` (a -errno) unchanged:
 *   return spr_fail(-EPROTO, "%s: layout version %u, this library reads %u", path, found, mine);
 * The sentence names the thing and says what to do. Allocates nothing. T: any. */
int spr_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* The same, with ": " and the system's words for -err behind it. */
int spr_fail_sys(int err, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* No sentence: spr_error_text() gives the system's words for the number. */
void spr_fail_clear(void);

#endif /* SPR_BASE_ERROR_H */
