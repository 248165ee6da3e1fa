/* SPDX-License-Identifier: MIT */
/*
 * files_libc.c - the few functions of libc that are called at all, found where the others are.
 *
 * The library is linked to nothing, so it asks for no version of anything: a program that brings
 * an older libc of its own (a bundle, a container's) loads it as quietly as any. What such a libc
 * lacks is answered as if it had failed. Found from the front, as the program finds them: what we
 * take from malloc the program gives to its own free.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "spy/files.h"

enum { ERRNO, GETAUXVAL, MALLOC, READDIR, CLOSEDIR, KEY_CREATE, KEY_DELETE, SETSPECIFIC, N_NAMES };
static const char names[N_NAMES][24] = { "__errno_location", "getauxval", "malloc", "readdir",
	                                 "closedir", "pthread_key_create", "pthread_key_delete",
	                                 "pthread_setspecific" };
static void *_Atomic found[N_NAMES]; /* a lookup gives the same answer every time: no pair */

static void *libc(unsigned which)
{
	void *at = spr_load_relaxed(&found[which]);

	if (spr_unlikely(!at)) {
		at = spr_spy_next_find_first(names[which]);
		spr_store_relaxed(&found[which], at);
	}
	return at;
}

/* Declared by their assembler names: libc's headers have attributes and types of their own. */
#define OURS(type, name, ...)                                                  \
	SPR_HIDE type SPR_HOOK(name)(__VA_ARGS__) __asm__(#name);              \
	type SPR_HOOK(name)(__VA_ARGS__)

OURS(int *, __errno_location, void)
{
	static int nobodys;
	int *(*const at)(void) = libc(ERRNO);

	return at ? at() : &nobodys;
}

OURS(unsigned long, getauxval, unsigned long type)
{
	unsigned long (*const at)(unsigned long) = libc(GETAUXVAL);

	return at ? at(type) : 0;
}

OURS(void *, malloc, size_t n)
{
	void *(*const at)(size_t) = libc(MALLOC);

	return at ? at(n) : NULL;
}

OURS(void *, readdir, void *dir)
{
	void *(*const at)(void *) = libc(READDIR);

	return at ? at(dir) : NULL;
}

OURS(int, closedir, void *dir)
{
	int (*const at)(void *) = libc(CLOSEDIR);

	return at ? at(dir) : -1;
}

OURS(int, pthread_key_create, pthread_key_t *key, void (*end)(void *))
{
	int (*const at)(pthread_key_t *, void (*)(void *)) = libc(KEY_CREATE);

	return at ? at(key, end) : EAGAIN;
}

OURS(int, pthread_key_delete, pthread_key_t key)
{
	int (*const at)(pthread_key_t) = libc(KEY_DELETE);

	return at ? at(key) : EINVAL;
}

OURS(int, pthread_setspecific, pthread_key_t key, const void *value)
{
	int (*const at)(pthread_key_t, const void *) = libc(SETSPECIFIC);

	return at ? at(key, value) : EINVAL;
}
