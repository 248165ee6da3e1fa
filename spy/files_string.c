/* SPDX-License-Identifier: MIT */
/*
 * files_string.c - the few string functions that this library and the compiler's code use, its own.
 *
 * libc's can be taken over like any other (a sanitizer does), and their versions tie a library to
 * one libc's age. These are hidden, plain, and fast enough for paths.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "spy/files.h"

/* In a loop, else the compiler finds what it does and calls the function that it is in. */
#define STAY() __asm__ volatile("")

typedef uint64_t __attribute__((aligned(1), may_alias)) word; /* anywhere */

SPR_HIDE void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	char *t = to;
	const char *f = from;

	if (n >= 8) {
		const word last = *(const word *)(f + n - 8);
		char *const end = t + n - 8;

		for (; t < end; t += 8, f += 8) {
			STAY();
			*(word *)t = *(const word *)f;
		}
		*(word *)end = last;
		return to;
	}
	while (n--) {
		STAY();
		*t++ = *f++;
	}
	return to;
}

static void *memcpy_forward(void *to, const void *from, size_t n)
{
	char *t = to;
	const char *f = from;

	while (n--) {
		STAY();
		*t++ = *f++;
	}
	return to;
}

SPR_HIDE void *memmove(void *to, const void *from, size_t n)
{
	char *t = to;
	const char *f = from;

	if (t < f)
		return memcpy_forward(to, from, n);
	while (n--) {
		STAY();
		t[n] = f[n];
	}
	return to;
}

SPR_HIDE void *memset(void *to, int c, size_t n)
{
	const word all = 0x0101010101010101ull * (unsigned char)c;
	char *t = to;

	for (; n >= 8; n -= 8, t += 8) {
		STAY();
		*(word *)t = all;
	}
	while (n--) {
		STAY();
		*t++ = (char)c;
	}
	return to;
}

SPR_HIDE int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *x = a, *y = b;

	for (; n; n--, x++, y++) {
		if (*x != *y)
			return *x - *y;
	}
	return 0;
}

/* What some compilers make of memcmp(...) == 0. */
SPR_HIDE int bcmp(const void *a, const void *b, size_t n)
{
	return memcmp(a, b, n);
}

SPR_HIDE size_t strnlen(const char *s, size_t max)
{
	size_t n = 0;

	while (n < max && s[n]) {
		STAY();
		n++;
	}
	return n;
}

SPR_HIDE size_t strlen(const char *s)
{
	return strnlen(s, SIZE_MAX);
}

SPR_HIDE char *strchrnul(const char *s, int c)
{
	while (*s && *s != (char)c)
		s++;
	return (char *)s;
}

SPR_HIDE char *strchr(const char *s, int c)
{
	s = strchrnul(s, c);
	return *s == (char)c ? (char *)s : NULL;
}

SPR_HIDE char *strrchr(const char *s, int c)
{
	const char *found = NULL;

	do {
		if (*s == (char)c)
			found = s;
	} while (*s++);
	return (char *)found;
}

SPR_HIDE int strncmp(const char *a, const char *b, size_t n)
{
	for (; n; n--, a++, b++) {
		if (*a != *b || !*a)
			return (unsigned char)*a - (unsigned char)*b;
	}
	return 0;
}

SPR_HIDE int strcmp(const char *a, const char *b)
{
	return strncmp(a, b, SIZE_MAX);
}

SPR_HIDE size_t strcspn(const char *s, const char *set)
{
	size_t n = 0;

	while (s[n] && !strchr(set, s[n]))
		n++;
	return n;
}

SPR_HIDE size_t strspn(const char *s, const char *set)
{
	size_t n = 0;

	while (s[n] && strchr(set, s[n]))
		n++;
	return n;
}

SPR_HIDE char *strstr(const char *text, const char *word_)
{
	const size_t n = strlen(word_);

	for (; *text; text++) {
		if (strncmp(text, word_, n) == 0)
			return (char *)text;
	}
	return n ? NULL : (char *)text;
}
