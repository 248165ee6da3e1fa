/* SPDX-License-Identifier: MIT */
/* target.c - the program that is recorded: started as if nobody were there, and waited for. */
#include "cli/target.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/cli.h"

/* --- Who --------------------------------------------------------------------------- */

static int user_unknown(const char *name)
{
	spr_cli_say("--user %s: no such user", spr_cli_shown(name));
	return -ENOENT;
}

int spr_cli_user_find(struct spr_cli_user *user, const char *name)
{
	const char *asked = name ? name : geteuid() == 0 ? getenv("SUDO_UID") : NULL;
	uint64_t number;

	*user = (struct spr_cli_user){ .uid = geteuid(), .gid = getegid() };
	if (!asked || !*asked)
		return 0;
	const bool is_number = spr_cli_parse_number(asked, UINT32_MAX - 1, &number);
	const struct passwd *pw = is_number ? getpwuid((uid_t)number) : getpwnam(asked);
	if (!pw)
		return user_unknown(asked);
	if (pw->pw_uid == geteuid())
		return 0;
	if (geteuid() != 0) {
		spr_cli_say("--user %s: only root can run a program as somebody else",
		            spr_cli_shown(asked));
		return -EPERM;
	}
	user->other = true;
	user->uid = pw->pw_uid;
	user->gid = pw->pw_gid;
	snprintf(user->name, sizeof(user->name), "%s", pw->pw_name);
	snprintf(user->home, sizeof(user->home), "%s", pw->pw_dir);
	user->n_groups = SPR_CLI_GROUPS_MAX;
	if (getgrouplist(pw->pw_name, pw->pw_gid, user->groups, &user->n_groups) < 0)
		user->n_groups = SPR_CLI_GROUPS_MAX;
	return 0;
}

int spr_cli_user_become(const struct spr_cli_user *user)
{
	if (!user->other)
		return 0;
	if (setegid(user->gid))
		return -errno;
	if (seteuid(user->uid)) {
		const int err = -errno;
		(void)!setegid(0);
		return err;
	}
	return 0;
}

void spr_cli_user_return(const struct spr_cli_user *user)
{
	if (!user->other)
		return;
	if (seteuid(0) || setegid(0))
		abort(); /* going on as nobody in particular would be worse */
}

/* --- Signals ------------------------------------------------------------------------ */

/* What somebody may send to us and means the target. Faults are our own. */
static void forwarded_set(sigset_t *set)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT,
	                              SIGKILL, SIGSTOP, SIGCHLD };

	sigfillset(set);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(set, faults[i]);
}

/* Signals 32 and 33 are libc's own: it hides them from sigaction() and takes 33 when a thread is
 * made. make(1) starts its children with both ignored, and so must ours find them. */
static void libc_signals_note(struct spr_cli_target *t)
{
	for (int i = 0; i < 2; i++) {
		uintptr_t action[4] = {
			0
		}; /* the kernel's struct; the handler is its first word */

		t->libc_ignored[i] =
			spr_sys(SYS_rt_sigaction, 32 + i, NULL, action, sizeof(uint64_t)) == 0 &&
			action[0] == (uintptr_t)SIG_IGN;
	}
}

static void libc_signals_restore(const struct spr_cli_target *t)
{
	const uintptr_t action[4] = { (uintptr_t)SIG_IGN, 0, 0, 0 };

	for (int i = 0; i < 2; i++) {
		if (t->libc_ignored[i])
			spr_sys(SYS_rt_sigaction, 32 + i, action, NULL, sizeof(uint64_t));
	}
}

int spr_cli_target_prepare(struct spr_cli_target *t)
{
	const struct sigaction plain = { .sa_handler = SIG_DFL };
	sigset_t set;

	*t = (struct spr_cli_target){ .pid = -1, .signals = -1 };
	libc_signals_note(t);
	/* Blocked, not handled: SIGPIPE and SIGXFSZ become errors of our writes, in all threads
	 * that are made from now on. */
	forwarded_set(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &t->mask);
	sigdelset(&set, SIGPIPE);
	sigdelset(&set, SIGXFSZ);
	/* Whoever starts us with SIGCHLD ignored would have our child reaped behind our back. */
	sigaction(SIGCHLD, &plain, &t->child);
	t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (t->signals < 0)
		return -errno;
	spr_cli_canary_open(&t->canary, &set);
	return 0;
}

void spr_cli_target_close(struct spr_cli_target *t)
{
	spr_cli_canary_close(&t->canary);
	if (t->signals < 0)
		return;
	close(t->signals);
	t->signals = -1;
	sigset_t mask = t->mask;
	sigaddset(&mask, SIGPIPE);
	sigaddset(&mask, SIGXFSZ);
	sigprocmask(SIG_SETMASK, &mask, NULL);
}

/* --- Starting ------------------------------------------------------------------------ */

/* In the child. Everything it needs was prepared: only calls that are safe between fork and exec
 * in a process with threads. */
static void child_exec(const struct spr_cli_target *t, char **argv, char **env,
                       const struct spr_cli_user *user, int tell)
{
	int err = 0;

	if (user->other && (setgroups((size_t)user->n_groups, user->groups) ||
	                    setresgid(user->gid, user->gid, user->gid) ||
	                    setresuid(user->uid, user->uid, user->uid)))
		err = errno;
	sigaction(SIGCHLD, &t->child, NULL);
	libc_signals_restore(t);
	sigprocmask(SIG_SETMASK, &t->mask, NULL);
	if (!err) {
		execvpe(argv[0], argv, env);
		err = errno;
	}
	(void)!write(tell, &err, sizeof(err));
	_exit(SPR_CLI_FAILED);
}

int spr_cli_target_start(struct spr_cli_target *t, char **argv, char **env,
                         const struct spr_cli_user *user)
{
	int pipe_fds[2];
	int err = 0;

	if (pipe2(pipe_fds, O_CLOEXEC))
		return -errno;
	t->pid = fork();
	if (t->pid == 0) {
		close(pipe_fds[0]);
		child_exec(t, argv, env, user, pipe_fds[1]);
	}
	if (t->pid < 0)
		err = errno;
	close(pipe_fds[1]);
	/* The pipe ends without a word when the exec has happened. */
	if (t->pid > 0 && TEMP_FAILURE_RETRY(read(pipe_fds[0], &err, sizeof(err))) <= 0)
		err = 0;
	close(pipe_fds[0]);
	if (err && t->pid > 0)
		waitpid(t->pid, NULL, 0);
	return -err;
}

/* --- While it runs --------------------------------------------------------------------- */

static bool is_stop(int signal)
{
	return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/* ^Z reaches the target and us. It stops first, in its own way; then we do what the shell waits
 * for. A stop that nobody sent to us too is the target's business alone. */
static void stop_with_target(struct spr_cli_target *t)
{
	const int signal = t->stopped;
	sigset_t only, before;

	t->stop_us = false;
	sigemptyset(&only);
	sigaddset(&only, signal);
	raise(signal);
	sigprocmask(SIG_UNBLOCK, &only, &before); /* here we stop */
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void wait_for_target(struct spr_cli_target *t)
{
	siginfo_t info = {0};

	while (!waitid(P_PID, (id_t)t->pid, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) &&
	       info.si_pid) {
		switch (info.si_code) {
		case CLD_EXITED:
			t->ended = true;
			t->status = info.si_status;
			return;
		case CLD_KILLED:
		case CLD_DUMPED:
			t->ended = true;
			t->signal = info.si_status;
			t->status = 128 + info.si_status;
			return;
		case CLD_STOPPED:
			t->stopped = info.si_status;
			break;
		case CLD_CONTINUED:
			t->stopped = 0;
			break;
		}
		info = (siginfo_t){0};
	}
}

/* The parent of a process, 0 if it cannot be told. */
static pid_t parent_of(pid_t pid)
{
	char path[32], text[512];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	const ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* The name may hold anything, parentheses too: what follows the last one is ours. */
	const char *after = strrchr(text, ')');
	int parent;
	return after && sscanf(after, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* Is it us, or somebody who is recorded? That one does not mean itself. */
static bool is_one_of_us(pid_t pid)
{
	for (int depth = 0; pid > 1 && depth < 1000; depth++) {
		if (pid == getpid())
			return true;
		pid = parent_of(pid);
	}
	return false;
}

static void forward(struct spr_cli_target *t, int signal, const struct signalfd_siginfo *info)
{
	/* The kernel's own (the terminal's ^C, a lost line, a new size) go to the whole group, the
	 * target among it; and a shell's fg has woken the target already. */
	if (info->ssi_code == SI_KERNEL || (signal == SIGCONT && !t->stopped))
		return;
	if (is_one_of_us((pid_t)info->ssi_pid) ||
	    spr_cli_canary_heard(&t->canary, signal, (pid_t)info->ssi_pid))
		return;
	kill(t->pid, signal);
}

void spr_cli_target_tend(struct spr_cli_target *t)
{
	struct signalfd_siginfo info;

	while (read(t->signals, &info, sizeof(info)) == sizeof(info)) {
		const int signal = (int)info.ssi_signo;

		if (is_stop(signal))
			t->stop_us = true;
		else if (signal == SIGCONT)
			t->stop_us = false;
		if (!t->ended)
			wait_for_target(t);
		if (signal == SIGCHLD)
			continue;
		if (!t->ended)
			forward(t, signal, &info);
		else if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP)
			t->n_impatient++;
	}
	if (!t->ended && t->stopped && t->stop_us)
		stop_with_target(t);
}
