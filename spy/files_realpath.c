/* SPDX-License-Identifier: MIT */
/*
 * files_realpath.c - realpath done here, link by link.
 *
 * In a compile nine of ten lookups are realpath's own: it asks for each directory on the way. libc
 * makes them where no hook sees them; ours makes the same ones in the same order, each with a
 * record (as the kernel's call, "readlink"; that a directory is no link is no failure to write
 * down). The answer, what is left in the caller's buffer, and errno are libc's. What does not fit
 * into a scratch of 4 KiB, or comes while all are in use, is left to libc.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "spy/files.h"

#define N_LINKS_MAX 40
#define TO_LIBC     1 /* beside 0 and -errno */

struct walk {
	struct spr_spy *spy;
	char           *done; /* what is resolved, from '/'; a scratch */
	size_t          n;    /* bytes of it, no slash at its end but the root's */
	char           *todo; /* scratch for what links put in front of the rest */
	char           *link; /* scratch for a link's text */
	const char     *rest; /* in the caller's path or in todo */
	unsigned        n_links;
};

static void back_up(struct walk *w)
{
	while (w->n > 1 && w->done[--w->n] != '/')
		;
	w->n = w->n ? w->n : 1;
}

/* "foo/", "foo/." and "foo/.." say that foo is a directory. */
static bool must_be_directory(const char *rest)
{
	if (*rest != '/')
		return false;
	rest += strspn(rest, "/");
	if (*rest == '.' && rest[1] == '.')
		rest++;
	if (*rest == '.')
		rest++;
	return !*rest || *rest == '/';
}

static int check_directory(struct walk *w)
{
	struct stat st;
	int error;

	w->done[w->n] = '/';
	w->done[w->n + 1] = '\0';
	error = (int)spr_spy_kernel(SYS_newfstatat, AT_FDCWD, w->done, &st, 0);
	w->done[w->n] = '\0';
	return error;
}

/* The link's text goes in front of what is left. */
static int follow(struct walk *w, size_t link_bytes)
{
	const size_t rest_bytes = strlen(w->rest) + 1;

	if (++w->n_links > N_LINKS_MAX)
		return -ELOOP;
	if (link_bytes + rest_bytes > SPR_SPY_SCRATCH)
		return TO_LIBC;
	memmove(w->todo + link_bytes, w->rest, rest_bytes);
	memcpy(w->todo, w->link, link_bytes);
	w->rest = w->todo;
	if (w->todo[0] == '/')
		w->n = 1;
	else
		back_up(w);
	return 0;
}

/* done names a new component: is it a link? */
static int resolve(struct walk *w)
{
	struct spr_spy_mark mark;
	int n;

	w->done[w->n] = '\0';
	spr_spy_file(w->spy, &mark, 0, SPR_OP_readlink, SPR_READ_FILE, AT_FDCWD, w->done, AT_FDCWD,
	             SPR_NO_PATH);
	n = (int)spr_spy_kernel(SYS_readlinkat, AT_FDCWD, w->done, w->link, SPR_SPY_SCRATCH);
	if (n >= 0)
		return n < (int)SPR_SPY_SCRATCH ? follow(w, (size_t)n) : TO_LIBC;
	errno = -n;
	if (n != -EINVAL)
		spr_spy_failed(w->spy, &mark, -n);
	if (!must_be_directory(w->rest))
		return n == -EINVAL ? 0 : n;
	return check_directory(w);
}

static int walk(struct walk *w)
{
	int error = 0;

	while (!error) {
		size_t len;

		w->rest += strspn(w->rest, "/");
		len = (size_t)(strchrnul(w->rest, '/') - w->rest);
		if (len == 0)
			break;
		if (len == 2 && w->rest[0] == '.' && w->rest[1] == '.') {
			back_up(w);
		} else if (len != 1 || w->rest[0] != '.') {
			if (w->n + len + 3 > SPR_SPY_SCRATCH)
				return TO_LIBC;
			if (w->done[w->n - 1] != '/')
				w->done[w->n++] = '/';
			memcpy(w->done + w->n, w->rest, len);
			w->n += len;
			w->rest += len;
			error = resolve(w);
			continue;
		}
		w->rest += len;
	}
	w->done[w->n] = '\0';
	return error;
}

/* Where a relative path begins. Asked for anew: an answer is no place for what was true before. */
static bool begin_at_cwd(struct walk *w)
{
	const long n = spr_sys(SYS_getcwd, w->done, SPR_SPY_SCRATCH / 2);

	w->n = n > 0 ? (size_t)n - 1 : 0;
	return w->n > 0 && w->done[0] == '/';
}

/* As libc: a path that is not there, or may not be looked at, leaves how far it went. */
static char *answer(const struct walk *w, char *resolved, int error)
{
	if (error)
		errno = -error;
	if (resolved) {
		if (!error || error == -ENOENT || error == -EACCES)
			memcpy(resolved, w->done, w->n + 1);
		return error ? NULL : resolved;
	}
	if (error)
		return NULL;
	resolved = malloc(w->n + 1);
	return resolved ? memcpy(resolved, w->done, w->n + 1) : NULL;
}

/* NULL with *to_libc: we could not. */
static char *realpath_here(struct spr_spy *spy, const char *path, char *resolved, bool *to_libc)
{
	struct walk w = { .spy = spy, .rest = path };
	char *result = NULL;
	int error = TO_LIBC;

	w.done = spr_spy_scratch_take(spy);
	w.todo = spr_spy_scratch_take(spy);
	w.link = spr_spy_scratch_take(spy);
	if (w.done && w.todo && w.link) {
		w.done[0] = '/';
		w.n = 1;
		if (path[0] == '/' || begin_at_cwd(&w))
			error = walk(&w);
	}
	*to_libc = error == TO_LIBC;
	if (error != TO_LIBC)
		result = answer(&w, resolved, error);
	spr_spy_scratch_drop(spy, w.link);
	spr_spy_scratch_drop(spy, w.todo);
	spr_spy_scratch_drop(spy, w.done);
	return result;
}

static char *watched(enum spr_row_number n, const char *path, char *resolved, size_t room)
{
	const struct spr_spy_row *row = &spr_spy_rows[n];
	struct spr_spy *spy = spr_spy_here();
	const long arg[6] = { (long)path };
	struct spr_spy_mark mark = { .n = 0 };
	bool to_libc = true;
	char *result = NULL;

	if (spy && spr_spy_pointer_ok(path)) {
		spr_spy_note(spy, &mark, row, arg);
		/* Empty is ENOENT, a root of our own changes what getcwd says: libc knows. */
		if (path[0] && room >= PATH_MAX && !spr_load_relaxed(&spy->root_bytes))
			result = realpath_here(spy, path, resolved, &to_libc);
	}
	if (to_libc)
		result = (char *)spr_spy_call(row, (long)path, (long)resolved, (long)room, 0, 0, 0);
	if (!result && spy)
		spr_spy_failed(spy, &mark, errno);
	return result;
}

SPR_EXPORT char *SPR_HOOK(realpath)(const char *path, char *resolved) __asm__("realpath");
char *SPR_HOOK(realpath)(const char *path, char *resolved)
{
	return watched(SPR_ROW_realpath, path, resolved, PATH_MAX);
}

SPR_EXPORT char *SPR_HOOK(__realpath_chk)(const char *path, char *resolved,
                                          size_t room) __asm__("__realpath_chk");
char *SPR_HOOK(__realpath_chk)(const char *path, char *resolved, size_t room)
{
	return watched(SPR_ROW___realpath_chk, path, resolved, room);
}

SPR_EXPORT char *SPR_HOOK(canonicalize_file_name)(const char *path)
	__asm__("canonicalize_file_name");
char *SPR_HOOK(canonicalize_file_name)(const char *path)
{
	return watched(SPR_ROW_canonicalize_file_name, path, NULL, PATH_MAX);
}
