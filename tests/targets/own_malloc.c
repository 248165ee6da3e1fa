/* SPDX-License-Identifier: MIT */
/*
 * own_malloc.c - a program with an allocator of its own, as many have one linked in: what libc's
 * functions hand out must come from it, and go back to it. Ends by abort() when it does not.
 */
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

#define MAGIC 0x6d616c6c6f63ull

struct head { /* in front of each block */
	uint64_t magic, bytes;
};

static _Alignas(16) char heap[16 << 20];
static _Atomic size_t used;

void *malloc(size_t n)
{
	struct head *h;
	const size_t at = spr_add_relaxed(&used, (n + sizeof(*h) + 15) & ~(size_t)15);

	if (at + n + sizeof(*h) > sizeof(heap)) {
		errno = ENOMEM;
		return NULL;
	}
	h = (struct head *)(heap + at);
	h->magic = MAGIC;
	h->bytes = n;
	return h + 1;
}

void free(void *block)
{
	struct head *h = block;

	if (!block)
		return;
	if ((char *)block < heap || (char *)block > heap + sizeof(heap) || h[-1].magic != MAGIC)
		abort();
	h[-1].magic = 0;
}

void *calloc(size_t n, size_t each)
{
	return malloc(n * each); /* never reused: zero */
}

void *realloc(void *block, size_t n)
{
	void *more = malloc(n);

	if (more && block)
		memcpy(more, block, ((struct head *)block)[-1].bytes < n ?
		                            ((struct head *)block)[-1].bytes : n);
	free(block);
	return more;
}

int main(void)
{
	char *path = realpath("/usr/./lib/..", NULL);
	struct dirent **names = NULL;
	glob_t found;
	int n;

	if (!path || strcmp(path, "/usr"))
		return 1;
	free(path);
	free(canonicalize_file_name("/"));
	n = scandir("/", &names, NULL, NULL);
	while (n > 0)
		free(names[--n]);
	free(names);
	if (glob("/*", 0, NULL, &found) == 0)
		globfree(&found);
	path = malloc(4);
	free(path);
	return 0;
}
