/* SPDX-License-Identifier: MIT */
/*
 * files_hooks.c - what stands in front of libc's functions: made from the table, a few by hand.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "spy/files.h"

/* --- From the table ------------------------------------------------------------------------- */

/* Six registers carry the arguments of every function of the table, whatever their types and
 * however many there are (a call's own variable ones too); what is not one is passed on unread.
 * An int result is in the low half, a pointer in all of it. */
__attribute__((hot)) static long watched(const struct spr_spy_row *row, long a, long b, long c,
                                         long d, long e, long f)
{
	struct spr_spy *spy = &spr_spy_state;
	const long arg[6] = { a, b, c, d, e, f };
	struct spr_spy_mark mark;
	long ret;

	if (spr_unlikely(!spr_load_relaxed(&spy->simple) || !spr_load_relaxed(&spy->page->pid))) {
		spy = spr_spy_here();
		if (!spy)
			return spr_spy_call(row, a, b, c, d, e, f);
	}
	spr_spy_note(spy, &mark, row, arg);
	ret = spr_spy_call(row, a, b, c, d, e, f);
	if (spr_unlikely(row->access == SPR_RENAME))
		spr_spy_cwd_renamed(spy);
	if (row->way == SPR_WAY_PTR ? ret == 0 : (int)ret == -1)
		spr_spy_failed(spy, &mark, errno);
	return ret;
}

#define HOOK_LIBC(symbol)                                                                      \
	SPR_EXPORT long SPR_HOOK(symbol)(long a, long b, long c, long d, long e, long f)       \
		__asm__(#symbol);                                                              \
	long SPR_HOOK(symbol)(long a, long b, long c, long d, long e, long f)                  \
	{                                                                                      \
		return watched(&spr_spy_rows[SPR_ROW_##symbol], a, b, c, d, e, f);             \
	}
#define HOOK_RAW(symbol) HOOK_LIBC(symbol)
#define HOOK_PTR(symbol) HOOK_LIBC(symbol)
#define HOOK_HAND(symbol)
#define HOOK_ABSENT(symbol)
#define HOOK_ROW(symbol, of, way, access, shape, flags) HOOK_##way(symbol)

SPR_CALLS(HOOK_ROW, HOOK_ROW, HOOK_ROW)

/* --- Where paths stand --------------------------------------------------------------------------
 */

static long moves(enum spr_row_number n, long a)
{
	struct spr_spy *spy = spr_spy_here();
	long ret;

	if (spy)
		spr_spy_cwd_moves(spy);
	ret = watched(&spr_spy_rows[n], a, 0, 0, 0, 0, 0);
	if (spy)
		spr_spy_cwd_moved(spy);
	return ret;
}

#define HOOK(type, symbol, ...)                                          \
	SPR_EXPORT type SPR_HOOK(symbol)(__VA_ARGS__) __asm__(#symbol);  \
	type SPR_HOOK(symbol)(__VA_ARGS__)

HOOK(int, chdir, const char *path)
{
	return (int)moves(SPR_ROW_chdir, (long)path);
}

HOOK(int, fchdir, int fd)
{
	return (int)moves(SPR_ROW_fchdir, fd);
}

HOOK(int, chroot, const char *path)
{
	struct spr_spy *spy = spr_spy_here();
	const bool may_ask = spy && spr_spy_pointer_ok(path) && !spr_load_relaxed(&spy->confined);
	const uint32_t bytes = may_ask ? spr_spy_root_find(spy, path) : 0;
	const int ret = (int)moves(SPR_ROW_chroot, (long)path);

	if (spy && ret == 0) {
		spr_spy_root_set(spy, bytes);
		spr_spy_blind(spy, 0, "chroot", "programs executed below it may fail to attach");
	}
	return ret;
}

static void left_namespace(struct spr_spy *spy, const char *how)
{
	spr_spy_blind(spy, 0, "mount namespace", how);
}

HOOK(int, unshare, int flags)
{
	struct spr_spy *spy = spr_spy_here();
	int ret;

	if (spy && (flags & (CLONE_FS | CLONE_NEWNS | CLONE_NEWUSER)))
		spr_store_relaxed(&spy->page->cwd_apart, 1);
	ret = (int)spr_spy_call(&spr_spy_rows[SPR_ROW_unshare], flags, 0, 0, 0, 0, 0);
	if (spy && ret == 0 && (flags & CLONE_NEWNS))
		left_namespace(spy, "unshare: paths are as the new one sees them");
	return ret;
}

HOOK(int, setns, int fd, int type)
{
	struct spr_spy *spy = spr_spy_here();
	const int ret = (int)spr_spy_call(&spr_spy_rows[SPR_ROW_setns], fd, type, 0, 0, 0, 0);

	if (spy && ret == 0 && (!type || (type & CLONE_NEWNS))) {
		spr_store_relaxed(&spy->page->cwd_apart, 1);
		left_namespace(spy, "setns: paths are as the other one sees them");
	}
	return ret;
}

/* --- A filter of the target's own ----------------------------------------------------------- */

/* Before the call: what follows it may not make one more system call. If the target is refused its
 * filter we are quieter than we need be, no more. */
static void confine(struct spr_spy *spy)
{
	spr_spy_cwd_keep(spy);
	for (uint32_t i = 0; i < spy->n_channels; i++)
		spr_producer_confine(spy->channel[i].producer);
	spr_spy_env_confine();
	spr_store_relaxed(&spy->confined, 1);
	spr_store_relaxed(&spy->simple, 0);
}

HOOK(int, prctl, int option, long a, long b, long c, long d)
{
	struct spr_spy *spy = spr_spy_here();

	if (spy && option == PR_SET_SECCOMP)
		confine(spy);
	return (int)spr_spy_call(&spr_spy_rows[SPR_ROW_prctl], option, a, b, c, d, 0);
}

/* --- syscall(2) ----------------------------------------------------------------------------- */

typedef long (*syscall_fn)(long nr, long a, long b, long c, long d, long e, long f);

#define NR_IO_URING_SETUP 425

static bool is_special(long nr)
{
	return nr == SYS_prctl || nr == SYS_seccomp || nr == SYS_unshare || nr == SYS_setns ||
	       nr == NR_IO_URING_SETUP;
}

static void special_note(struct spr_spy *spy, long nr, long a)
{
	if ((nr == SYS_prctl && a == PR_SET_SECCOMP) || (nr == SYS_seccomp && a <= 1))
		confine(spy);
	else if (nr == NR_IO_URING_SETUP)
		spr_spy_blind(spy, 0, "io_uring", "what it opens by its ring");
	else if (nr == SYS_unshare && (a & (CLONE_FS | CLONE_NEWNS | CLONE_NEWUSER)))
		spr_store_relaxed(&spy->page->cwd_apart, 1);
	if (nr == SYS_setns || (nr == SYS_unshare && (a & CLONE_NEWNS)))
		left_namespace(spy, "by number: paths may be as another one sees them");
}

static long syscall_watched(const struct spr_spy_row *row, syscall_fn next, long nr,
                            const long *arg)
{
	struct spr_spy *spy = spr_spy_here();
	struct spr_spy_mark mark = { .n = 0 };
	long ret;

	if (spy && row)
		spr_spy_note(spy, &mark, row, arg);
	else if (spy)
		special_note(spy, nr, arg[0]);
	ret = next(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	if (spy && row && row->access == SPR_RENAME)
		spr_spy_cwd_renamed(spy);
	if (spy && ret == -1)
		spr_spy_failed(spy, &mark, errno);
	return ret;
}

/* What has a hook of its own does the same when it is called by its number. */
static bool syscall_has_hook(long nr, const long *arg, long *ret)
{
	if (nr == SYS_execve)
		*ret = spr_spy_exec(SPR_ROW_execve, AT_FDCWD, (const char *)arg[0],
		                    (char *const *)arg[1], (char *const *)arg[2], 0, false);
	else if (nr == SYS_execveat)
		*ret = spr_spy_exec(SPR_ROW_execveat, (int)arg[0], (const char *)arg[1],
		                    (char *const *)arg[2], (char *const *)arg[3], (int)arg[4],
		                    false);
	else if (nr == SYS_chdir)
		*ret = SPR_HOOK(chdir)((const char *)arg[0]);
	else if (nr == SYS_fchdir)
		*ret = SPR_HOOK(fchdir)((int)arg[0]);
	else if (nr == SYS_chroot)
		*ret = SPR_HOOK(chroot)((const char *)arg[0]);
	else
		return false;
	return true;
}

static long syscall_ours(const struct spr_spy_row *row, syscall_fn next, long nr, const long *arg)
{
	long ret;

	if (row && syscall_has_hook(nr, arg, &ret))
		return ret;
	return syscall_watched(row, next, nr, arg);
}

/* A call that is none of ours is jumped to, not called: a clone or vfork made this way returns in
 * a child on this very stack, where a frame of ours must not be. */
HOOK(long, syscall, long nr, long a, long b, long c, long d, long e, long f)
{
	const syscall_fn next = spr_spy_next(SPR_ROW_syscall);
	const struct spr_spy_row *row = spr_spy_row_by_nr(nr);

	if (spr_likely(next && (row || is_special(nr))))
		return syscall_ours(row, next, nr, (const long[]){ a, b, c, d, e, f });
	if (spr_likely(next != NULL))
		return next(nr, a, b, c, d, e, f);
	errno = ENOSYS;
	return -1;
}

/* --- Files with names of libc's choice: chosen here, to be known before they are made ------- */

#define N_TRIES_MAX 238328 /* 62^3, as POSIX asks for at least */

static void fill(char *x)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	uint64_t random = 0;

	if (spr_sys(SYS_getrandom, &random, sizeof(random), 1 /* GRND_NONBLOCK */) !=
	    sizeof(random))
		random = spr_clock_ticks() * 0x9e3779b97f4a7c15ull ^ (uintptr_t)&random;
	for (unsigned i = 0; i < 6; i++, random /= 62)
		x[i] = letters[random % 62];
}

/* make: open with these flags, or mkdir when they are -1. */
static int make_temporary(enum spr_row_number n, char *template, int suffix_bytes, int flags)
{
	const struct spr_spy_row *how = &spr_spy_rows[flags == -1 ? SPR_ROW_mkdir : SPR_ROW_open];
	struct spr_spy *spy = spr_spy_here();
	const size_t len = strlen(template);
	const int kept = errno;
	char *x = template + len - (size_t)suffix_bytes - 6;

	if (suffix_bytes < 0 || len < (size_t)suffix_bytes + 6 || strncmp(x, "XXXXXX", 6) != 0) {
		errno = EINVAL;
		return -1;
	}
	for (unsigned i = 0; i < N_TRIES_MAX; i++) {
		struct spr_spy_mark mark = { .n = 0 };
		int ret;

		fill(x);
		if (spy)
			spr_spy_file(spy, &mark, 0, spr_spy_rows[n].op, spr_spy_rows[n].access,
			             AT_FDCWD, template, AT_FDCWD, SPR_NO_PATH);
		ret = (int)(flags == -1 ? spr_spy_call(how, (long)template, 0700, 0, 0, 0, 0) :
		                          spr_spy_call(how, (long)template, flags, 0600, 0, 0, 0));
		if (ret >= 0) {
			errno = kept;
			return ret;
		}
		if (spy)
			spr_spy_failed(spy, &mark, errno);
		if (errno != EEXIST)
			return -1;
	}
	errno = EEXIST;
	return -1;
}

static int flags_for(int flags)
{
	return (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL;
}

#define MAKES(symbol, more, suffix, flags)                                                    \
	HOOK(int, symbol, char *template more)                                                \
	{                                                                                     \
		return make_temporary(SPR_ROW_##symbol, template, suffix, flags_for(flags));  \
	}
#define AND ,

MAKES(mkstemp, , 0, 0)
MAKES(mkstemp64, , 0, O_LARGEFILE)
MAKES(mkostemp, AND int flags, 0, flags)
MAKES(mkostemp64, AND int flags, 0, flags | O_LARGEFILE)
MAKES(mkstemps, AND int suffix, suffix, 0)
MAKES(mkstemps64, AND int suffix, suffix, O_LARGEFILE)
MAKES(mkostemps, AND int suffix AND int flags, suffix, flags)
MAKES(mkostemps64, AND int suffix AND int flags, suffix, flags | O_LARGEFILE)

HOOK(char *, mkdtemp, char *template)
{
	return make_temporary(SPR_ROW_mkdtemp, template, 0, -1) < 0 ? NULL : template;
}
