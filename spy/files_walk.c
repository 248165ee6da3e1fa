/* SPDX-License-Identifier: MIT */
/*
 * files_walk.c - glob, ftw and nftw: libc's own walks, made to pass by our hooks.
 *
 * glob can be given functions to open and ask with: ours are the hooks themselves. ftw and nftw
 * tell of each object they met, just after they asked for it: a record then, before the program's
 * function gets to know.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>

#include "spy/files.h"

/* The hooks; glob64 and glob are one on 64-bit machines, as are their structures. */
DIR *SPR_HOOK(opendir_here)(const char *path) __asm__("opendir");
int  SPR_HOOK(stat_here)(const char *path, struct stat *st) __asm__("stat");
int  SPR_HOOK(lstat_here)(const char *path, struct stat *st) __asm__("lstat");

static void *open_folder(const char *path)
{
	return SPR_HOOK(opendir_here)(path);
}

static struct dirent *read_folder(void *dir)
{
	return readdir(dir);
}

static void close_folder(void *dir)
{
	closedir(dir);
}

static long glob_here(enum spr_row_number n, const char *pattern, int flags, void *failed,
                      glob_t *g)
{
	struct spr_spy *spy = spr_spy_here();
	const struct spr_spy_row *row = &spr_spy_rows[n];
	const glob_t kept = *g;
	struct spr_spy_mark mark;
	long ret;

	if (!spy || !spr_spy_pointer_ok(pattern) || (flags & GLOB_ALTDIRFUNC))
		return spr_spy_call(row, (long)pattern, flags, (long)failed, (long)g, 0, 0);
	/* Without a wildcard a pattern is a path; else its folders will come by. */
	if (!pattern[strcspn(pattern, "*?[{~\\")])
		spr_spy_file(spy, &mark, 0, row->op, SPR_STAT, AT_FDCWD, pattern, AT_FDCWD,
		             SPR_NO_PATH);
	g->gl_opendir = open_folder;
	g->gl_readdir = read_folder;
	g->gl_closedir = close_folder;
	g->gl_stat = SPR_HOOK(stat_here);
	g->gl_lstat = SPR_HOOK(lstat_here);
	ret = spr_spy_call(row, (long)pattern, flags | GLOB_ALTDIRFUNC, (long)failed, (long)g, 0,
	                   0);
	g->gl_flags &= ~GLOB_ALTDIRFUNC;
	g->gl_opendir = kept.gl_opendir;
	g->gl_readdir = kept.gl_readdir;
	g->gl_closedir = kept.gl_closedir;
	g->gl_stat = kept.gl_stat;
	g->gl_lstat = kept.gl_lstat;
	return ret;
}

#define GLOB(symbol)                                                                           \
	SPR_EXPORT long SPR_HOOK(symbol)(const char *pattern, int flags, void *failed,         \
	                                 glob_t *g) __asm__(#symbol);                          \
	long SPR_HOOK(symbol)(const char *pattern, int flags, void *failed, glob_t *g)         \
	{                                                                                      \
		return glob_here(SPR_ROW_##symbol, pattern, flags, failed, g);                 \
	}

GLOB(glob)
GLOB(glob64)

/* --- ftw, nftw ------------------------------------------------------------------------------ */

typedef int (*visit_fn)(const char *path, const struct stat *st, int type, struct FTW *where);

struct visitor { /* of this thread's innermost walk */
	visit_fn visit;
	bool     moves; /* FTW_CHDIR: libc changes directory behind our back */
};
SPR_THREAD struct visitor visitor;

static int visited(const char *path, const struct stat *st, int type, struct FTW *where)
{
	struct spr_spy *spy = spr_spy_here();
	const bool is_folder = type == FTW_D || type == FTW_DP || type == FTW_DNR;
	struct spr_spy_mark mark;

	if (spy && visitor.moves) {
		spr_spy_cwd_moves(spy);
		spr_spy_cwd_moved(spy);
	}
	if (spy && (!visitor.moves || path[0] == '/'))
		spr_spy_file(spy, &mark, 0, SPR_OP_nftw,
		             is_folder ? SPR_STAT | SPR_LIST_DIR : SPR_STAT, AT_FDCWD, path,
		             AT_FDCWD, SPR_NO_PATH);
	return visitor.visit(path, st, type, where);
}

static int walk(enum spr_row_number n, const char *path, visit_fn visit, int depth, int flags)
{
	struct spr_spy *spy = spr_spy_here();
	const struct spr_spy_row *row = &spr_spy_rows[n];
	const struct visitor outer = visitor;
	struct spr_spy_mark mark;
	int ret;

	if (!spy || !spr_spy_pointer_ok(path))
		return (int)spr_spy_call(row, (long)path, (long)visit, depth, flags, 0, 0);
	spr_spy_file(spy, &mark, 0, row->op, row->access, AT_FDCWD, path, AT_FDCWD, SPR_NO_PATH);
	visitor.visit = visit;
	visitor.moves = flags & FTW_CHDIR;
	ret = (int)spr_spy_call(row, (long)path, (long)visited, depth, flags, 0, 0);
	visitor = outer;
	if (flags & FTW_CHDIR) {
		spr_spy_cwd_moves(spy);
		spr_spy_cwd_moved(spy);
	}
	if (ret == -1)
		spr_spy_failed(spy, &mark, errno);
	return ret;
}

/* ftw's function takes no fourth argument, and finds none of it in the way. */
#define WALK(symbol, more, flags)                                                              \
	SPR_EXPORT int SPR_HOOK(symbol)(const char *path, visit_fn visit,                      \
	                                int depth more) __asm__(#symbol);                      \
	int SPR_HOOK(symbol)(const char *path, visit_fn visit, int depth more)                 \
	{                                                                                      \
		return walk(SPR_ROW_##symbol, path, visit, depth, flags);                      \
	}
#define AND ,

WALK(ftw, , 0)
WALK(ftw64, , 0)
WALK(nftw, AND int flags, flags)
WALK(nftw64, AND int flags, flags)
