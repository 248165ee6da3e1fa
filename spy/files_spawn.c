/* SPDX-License-Identifier: MIT */
/*
 * files_spawn.c - posix_spawn done here, so that what happens in its child is seen; system, popen.
 *
 * libc's posix_spawn opens, changes directory and searches PATH in a child that no hook sees. Ours
 * does what libc's does, in the same order, with records. The child shares our memory and borrows
 * our writer; all signals are blocked while it does. What we do not know (an action or attribute
 * of a newer libc) is left to libc, with the environment repaired and the call itself recorded.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <alloca.h>

#include "spy/files.h"

/* --- libc's own picture of the file actions, stable since it exists ------------------------- */

enum action_tag { CLOSES, DUPS, OPENS, CHDIRS, FCHDIRS, CLOSES_FROM, SETS_TERMINAL, N_ACTION_TAGS };

struct action {
	int tag;
	union {
		int fd; /* CLOSES, FCHDIRS, CLOSES_FROM, SETS_TERMINAL */
		struct {
			int fd, newfd;
		} dup;
		struct {
			int    fd;
			char  *path;
			int    flags;
			mode_t mode;
		} open;
		char *path; /* CHDIRS */
	};
};

struct actions {
	int            n_allocated, n;
	struct action *action;
};

#define FLAGS_KNOWN                                                                       \
	(POSIX_SPAWN_RESETIDS | POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |           \
	 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSCHEDPARAM | POSIX_SPAWN_SETSCHEDULER |  \
	 0x40 /* USEVFORK */ | 0x80 /* SETSID */)

struct attributes { /* the public names are libc's private ones */
	short              flags;
	pid_t              pgrp;
	sigset_t           defaults, mask;
	struct sched_param scheduling;
	int                policy;
};

_Static_assert(sizeof(struct attributes) <= sizeof(posix_spawnattr_t), "libc's is padded");
_Static_assert(sizeof(struct actions) <= sizeof(posix_spawn_file_actions_t), "libc's is padded");

struct spawn {
	struct spr_spy          *spy;
	enum spr_row_number      row;
	bool                     search;
	const char              *file;
	const struct actions    *actions;
	const struct attributes *attr;
	char *const             *argv;
	char *const             *envp;
	uint64_t                 mask; /* the caller's */
	pid_t                    pid;  /* the child's, told by itself */
	bool                     handlers_cleared;
	volatile int             error;
};

/* --- A child in our memory ----------------------------------------------------------------------
 */

/* clone3, or clone if `nr` says so, with the caller's stack: the child calls run(spawn) below this
 * frame, which its parent, asleep until the child is gone, finds as it was. */
long spr_spy_clone_here(long nr, const void *a, long b, void (*run)(struct spawn *),
                        struct spawn *spawn) SPR_HIDE;
#if defined(__x86_64__)
__asm__(".text\n"
        ".hidden spr_spy_clone_here\n"
        ".globl spr_spy_clone_here\n"
        ".type spr_spy_clone_here, @function\n"
        "spr_spy_clone_here:\n"
        "	mov %rdi, %rax\n"
        "	mov %rsi, %rdi\n"
        "	mov %rdx, %rsi\n"
        "	mov %rcx, %r9\n" /* not an argument of the system call; survives it */
        "	xor %edx, %edx\n"
        "	xor %r10d, %r10d\n"
        "	push %rbx\n"
        "	mov %r8, %rbx\n"
        "	xor %r8d, %r8d\n"
        "	syscall\n"
        "	test %rax, %rax\n"
        "	jz 1f\n"
        "	pop %rbx\n"
        "	ret\n"
        "1:	xor %ebp, %ebp\n"
        "	mov %rbx, %rdi\n"
        "	and $-16, %rsp\n"
        "	call *%r9\n"
        "	hlt\n"
        ".size spr_spy_clone_here, . - spr_spy_clone_here\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".hidden spr_spy_clone_here\n"
        ".globl spr_spy_clone_here\n"
        ".type spr_spy_clone_here, %function\n"
        "spr_spy_clone_here:\n"
        "	mov x8, x0\n"
        "	mov x0, x1\n"
        "	mov x1, x2\n"
        "	mov x9, x3\n"
        "	mov x10, x4\n"
        "	mov x2, xzr\n"
        "	mov x3, xzr\n"
        "	mov x4, xzr\n"
        "	svc #0\n"
        "	cbz x0, 1f\n"
        "	ret\n"
        "1:	mov x29, xzr\n"
        "	mov x0, x10\n"
        "	blr x9\n"
        "	brk #0\n"
        ".size spr_spy_clone_here, . - spr_spy_clone_here\n");
#endif

struct clone3_arguments {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};
#define CLEAR_SIGHAND 0x100000000ull

static long clone_child(struct spawn *s, void (*run)(struct spawn *))
{
	const struct clone3_arguments args = { .flags = CLONE_VM | CLONE_VFORK | CLEAR_SIGHAND,
		                               .exit_signal = SIGCHLD };
	long pid;

	s->handlers_cleared = true;
	pid = spr_spy_clone_here(SYS_clone3, &args, sizeof(args), run, s);
	if (pid != -ENOSYS && pid != -EINVAL && pid != -EPERM)
		return pid;
	s->handlers_cleared = false; /* an older kernel, or a container that allows only clone */
	return spr_spy_clone_here(SYS_clone, (const void *)(long)(CLONE_VM | CLONE_VFORK | SIGCHLD),
	                          0, run, s);
}

/* --- In the child --------------------------------------------------------------------------- */

struct kernel_sigaction {
	void    *handler;
	uint64_t flags;
	void    *restorer;
	uint64_t mask;
};
#define N_SIGNALS 64

/* As libc's: those asked for go to their default, those with a handler too, the two it keeps for
 * itself (32 and 33) are ignored. */
static void child_signals(const struct spawn *s)
{
	uint64_t defaults = 0;
	struct kernel_sigaction act;

	if (s->attr && (s->attr->flags & POSIX_SPAWN_SETSIGDEF))
		memcpy(&defaults, &s->attr->defaults, sizeof(defaults));
	for (int sig = 1; sig <= N_SIGNALS; sig++) {
		const bool asked = defaults >> (sig - 1) & 1, internal = sig == 32 || sig == 33;

		memset(&act, 0, sizeof(act));
		if (!asked && !internal) {
			if (s->handlers_cleared)
				continue;
			spr_sys(SYS_rt_sigaction, sig, 0, &act, 8);
			if (act.handler == (void *)SIG_IGN || act.handler == (void *)SIG_DFL)
				continue;
			memset(&act, 0, sizeof(act));
		}
		act.handler = internal && !asked ? (void *)SIG_IGN : (void *)SIG_DFL;
		spr_sys(SYS_rt_sigaction, sig, &act, 0, 8);
	}
}

static int child_attributes(const struct spawn *s)
{
	const struct attributes *a = s->attr;
	const int flags = a ? a->flags : 0;
	int error = 0;

	if (flags & POSIX_SPAWN_SETSCHEDULER)
		error = (int)spr_sys(SYS_sched_setscheduler, 0, a->policy, &a->scheduling);
	else if (flags & POSIX_SPAWN_SETSCHEDPARAM)
		error = (int)spr_sys(SYS_sched_setparam, 0, &a->scheduling);
	if (error >= 0 && (flags & 0x80))
		error = (int)spr_sys(SYS_setsid);
	if (error >= 0 && (flags & POSIX_SPAWN_SETPGROUP))
		error = (int)spr_sys(SYS_setpgid, 0, a->pgrp);
	if (error >= 0 && (flags & POSIX_SPAWN_RESETIDS)) {
		error = (int)spr_sys(SYS_setresgid, -1, spr_sys(SYS_getgid), -1);
		if (error >= 0)
			error = (int)spr_sys(SYS_setresuid, -1, spr_sys(SYS_getuid), -1);
	}
	return error < 0 ? error : 0;
}

static int child_open(struct spawn *s, const struct action *a)
{
	struct spr_spy_mark mark = { .n = 0 };
	int fd;

	spr_sys(SYS_close, a->open.fd);
	if (spr_spy_pointer_ok(a->open.path))
		spr_spy_file(s->spy, &mark, (uint32_t)s->pid, SPR_OP_open,
		             spr_spy_access_of_flags(a->open.flags), AT_FDCWD, a->open.path,
		             AT_FDCWD, SPR_NO_PATH);
	fd = (int)spr_spy_kernel(SYS_openat, AT_FDCWD, a->open.path, a->open.flags | O_LARGEFILE,
	                         a->open.mode);
	if (fd < 0) {
		spr_spy_failed(s->spy, &mark, -fd);
		return fd;
	}
	if (fd != a->open.fd) {
		const int error = (int)spr_sys(SYS_dup3, fd, a->open.fd, 0);

		spr_sys(SYS_close, fd);
		return error < 0 ? error : 0;
	}
	return 0;
}

static int child_dup(const struct action *a)
{
	long flags;

	if (a->dup.fd != a->dup.newfd)
		return (int)spr_sys(SYS_dup3, a->dup.fd, a->dup.newfd, 0);
	flags = spr_sys(SYS_fcntl, a->dup.fd, F_GETFD);
	return (int)(flags < 0 ? flags :
	                         spr_sys(SYS_fcntl, a->dup.fd, F_SETFD, flags & ~FD_CLOEXEC));
}

/* A descriptor that is not open is no error, one that could never be is. */
static int child_close(int fd)
{
	struct rlimit limit;

	if (spr_sys(SYS_close, fd) == 0)
		return 0;
	spr_sys(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit);
	return fd < 0 || (rlim_t)fd >= limit.rlim_cur ? -EBADF : 0;
}

static int child_chdir(struct spawn *s, const struct action *a)
{
	struct spr_spy_mark mark = { .n = 0 };
	int error;

	if (a->tag == FCHDIRS) {
		spr_spy_file(s->spy, &mark, (uint32_t)s->pid, SPR_OP_fchdir, SPR_STAT, a->fd, "",
		             AT_FDCWD, SPR_NO_PATH);
	} else if (spr_spy_pointer_ok(a->path)) {
		spr_spy_file(s->spy, &mark, (uint32_t)s->pid, SPR_OP_chdir, SPR_STAT, AT_FDCWD,
		             a->path, AT_FDCWD, SPR_NO_PATH);
	}
	spr_spy_cwd_moves(s->spy);
	error = a->tag == FCHDIRS ? (int)spr_spy_kernel(SYS_fchdir, a->fd) :
	                            (int)spr_spy_kernel(SYS_chdir, a->path);
	spr_spy_failed(s->spy, error < 0 ? &mark : &(struct spr_spy_mark){ .n = 0 }, -error);
	return error;
}

static int child_terminal(const struct spawn *s, int fd)
{
	pid_t group = s->attr && (s->attr->flags & POSIX_SPAWN_SETPGROUP) ? s->attr->pgrp : 0;

	if (!group)
		group = (pid_t)spr_sys(SYS_getpgid, 0);
	return (int)spr_sys(SYS_ioctl, fd, TIOCSPGRP, &group);
}

static int child_action(struct spawn *s, const struct action *a)
{
	switch (a->tag) {
	case CLOSES:
		return child_close(a->fd);
	case DUPS:
		return child_dup(a);
	case OPENS:
		return child_open(s, a);
	case CHDIRS:
	case FCHDIRS:
		return child_chdir(s, a);
	case CLOSES_FROM:
		return (int)spr_sys(SYS_close_range, a->fd, ~0u, 0);
	default:
		return child_terminal(s, a->fd);
	}
}

static void child(struct spawn *s)
{
	const bool has_mask = s->attr && (s->attr->flags & POSIX_SPAWN_SETSIGMASK);
	int error;

	s->pid = (pid_t)spr_sys(SYS_getpid);
	child_signals(s);
	error = child_attributes(s);
	for (int i = 0; error >= 0 && s->actions && i < s->actions->n; i++)
		error = child_action(s, &s->actions->action[i]);
	if (error >= 0) {
		spr_sys(SYS_rt_sigprocmask, SIG_SETMASK,
		        has_mask ? (void *)&s->attr->mask : &s->mask, 0, 8);
		error = spr_spy_exec_raw(s->spy, (uint32_t)s->pid, s->row, s->file, s->argv,
		                         s->envp, s->search);
	}
	s->error = error ? -error : ECHILD;
	for (;;)
		spr_sys(SYS_exit_group, 127);
}

/* --- In the parent -------------------------------------------------------------------------- */

static int spawn(struct spawn *s, pid_t *out)
{
	const uint64_t all = ~0ull;
	long pid;

	/* By number: libc would leave its two signals open, whose handlers must not run in the
	 * child. */
	spr_sys(SYS_rt_sigprocmask, SIG_BLOCK, &all, &s->mask, 8);
	pid = clone_child(s, child);
	spr_spy_cwd_back();
	if (pid > 0 && s->error)
		spr_sys(SYS_wait4, pid, 0, 0, 0);
	spr_sys(SYS_rt_sigprocmask, SIG_SETMASK, &s->mask, 0, 8);
	if (pid < 0)
		s->error = (int)-pid;
	else if (!s->error && out)
		*out = (pid_t)pid;
	if (s->error)
		errno = s->error; /* as it happens in libc's, whose child shares it */
	return s->error;
}

/* Do we know all that is asked for? */
static bool known(const struct attributes *attr, const struct actions *actions)
{
	if (attr && (attr->flags & ~FLAGS_KNOWN))
		return false;
	for (int i = 0; actions && i < actions->n; i++) {
		if (actions->action[i].tag < 0 || actions->action[i].tag >= N_ACTION_TAGS)
			return false;
	}
	return true;
}

static int by_libc(struct spawn *s, pid_t *pid)
{
	struct spr_spy_mark mark = { .n = 0 };
	int error;

	if (s->spy && spr_spy_pointer_ok(s->file))
		spr_spy_file(s->spy, &mark, 0, spr_spy_rows[s->row].op, SPR_EXECUTE, AT_FDCWD,
		             s->file, AT_FDCWD, SPR_NO_PATH);
	error = (int)spr_spy_call(&spr_spy_rows[s->row], (long)pid, (long)s->file, (long)s->actions,
	                          (long)s->attr, (long)s->argv, (long)s->envp);
	if (s->spy && error)
		spr_spy_failed(s->spy, &mark, error);
	return error;
}

static int run(struct spawn *s, pid_t *pid)
{
	const size_t bytes = s->spy ? spr_spy_env_bytes(s->spy, s->envp) : 0;
	void *room = NULL;

	if (bytes && bytes <= SPR_SPY_ENV_STACK_BYTES)
		room = alloca(bytes);
	else if (bytes)
		room = spr_spy_env_room(bytes);
	if (room)
		s->envp = spr_spy_env_make(s->spy, s->envp, room);
	if (!s->spy || spr_load_relaxed(&s->spy->confined) || !known(s->attr, s->actions))
		return by_libc(s, pid);
	return spawn(s, pid);
}

#define SPAWN(symbol, searches)                                                                \
	SPR_EXPORT int SPR_HOOK(symbol)(pid_t *pid, const char *file,                          \
	                                const struct actions *actions,                         \
	                                const struct attributes *attr, char *const *argv,      \
	                                char *const *envp) __asm__(#symbol);                   \
	int SPR_HOOK(symbol)(pid_t *pid, const char *file, const struct actions *actions,      \
	                     const struct attributes *attr, char *const *argv,                 \
	                     char *const *envp)                                                \
	{                                                                                      \
		struct spawn s = { .spy = spr_spy_here(), .row = SPR_ROW_##symbol,             \
			           .search = searches, .file = file, .actions = actions,       \
			           .attr = attr, .argv = argv, .envp = envp };                 \
		return run(&s, pid);                                                           \
	}

SPAWN(posix_spawn, false)
SPAWN(posix_spawnp, true)

/* --- The shell, by libc --------------------------------------------------------------------- */

/* libc passes `environ` on. A program that has emptied it (rare) gets it back as it was: in
 * between, another thread's setenv could be undone. */
static void shell_note(struct spr_spy *spy, struct spr_spy_mark *mark, uint32_t op)
{
	spr_spy_file(spy, mark, 0, op, SPR_EXECUTE, AT_FDCWD, "/bin/sh", AT_FDCWD, SPR_NO_PATH);
}

static long shell(enum spr_row_number n, long a, long b)
{
	struct spr_spy *spy = spr_spy_here();
	char **const kept = environ;
	struct spr_spy_mark mark = { .n = 0 };
	size_t bytes;
	void *room;
	long ret;

	if (!spy)
		return spr_spy_call(&spr_spy_rows[n], a, b, 0, 0, 0, 0);
	shell_note(spy, &mark, spr_spy_rows[n].op);
	bytes = spr_spy_env_bytes(spy, kept);
	room = bytes ? spr_spy_env_room(bytes) : NULL;
	if (room)
		environ = (char **)spr_spy_env_make(spy, kept, room);
	ret = spr_spy_call(&spr_spy_rows[n], a, b, 0, 0, 0, 0);
	if (room)
		environ = kept;
	if (n == SPR_ROW_popen ? ret == 0 : (int)ret == -1)
		spr_spy_failed(spy, &mark, errno);
	return ret;
}

SPR_EXPORT int SPR_HOOK(system)(const char *command) __asm__("system");
int SPR_HOOK(system)(const char *command)
{
	return (int)shell(SPR_ROW_system, (long)command, 0);
}

SPR_EXPORT void *SPR_HOOK(popen)(const char *command, const char *mode) __asm__("popen");
void *SPR_HOOK(popen)(const char *command, const char *mode)
{
	return (void *)shell(SPR_ROW_popen, (long)command, (long)mode);
}
