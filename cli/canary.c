/* SPDX-License-Identifier: MIT */
/* canary.c - tells a signal to us alone from one to our whole process group. */
#include "cli/canary.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"

#define WAIT_MS 50 /* by then a process that only waits has run, or it makes no difference */

struct report {
	int   signal;
	pid_t sender;
};

/* It holds nothing: no descriptor whose end somebody waits for, no folder to be unmounted. */
static _Noreturn void canary_sit(const sigset_t *signals, int out, pid_t parent)
{
	siginfo_t info;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "sparring-canary");
	if (out > 0)
		spr_sys(SYS_close_range, 0, out - 1, 0);
	spr_sys(SYS_close_range, out + 1, ~0u, 0);
	spr_sys(SYS_chdir, "/"); /* an outer recording has no business with it */
	while (getppid() == parent) {
		if (sigwaitinfo(signals, &info) < 0 || info.si_code == SI_KERNEL)
			continue;
		const struct report report = { info.si_signo, info.si_pid };
		if (write(out, &report, sizeof(report)) < 0)
			break;
	}
	_exit(0);
}

void spr_cli_canary_open(struct spr_cli_canary *c, const sigset_t *signals)
{
	const pid_t parent = getpid();
	int pipe_fds[2];

	*c = (struct spr_cli_canary){ .reports = -1 };
	if (pipe2(pipe_fds, O_CLOEXEC))
		return;
	fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
	c->pid = fork();
	if (c->pid == 0)
		canary_sit(signals, pipe_fds[1], parent);
	close(pipe_fds[1]);
	if (c->pid > 0)
		c->reports = pipe_fds[0];
	else
		close(pipe_fds[0]);
	if (c->pid < 0)
		c->pid = 0;
}

bool spr_cli_canary_heard(struct spr_cli_canary *c, int signal, pid_t sender)
{
	struct pollfd polled = { .fd = c->reports, .events = POLLIN };
	struct report report;

	if (!c->pid || signal < 1 || signal > 64)
		return false;
	while (c->heard[signal] != sender) {
		if (poll(&polled, 1, WAIT_MS) <= 0 ||
		    read(c->reports, &report, sizeof(report)) != sizeof(report))
			return false;
		if (report.signal >= 1 && report.signal <= 64)
			c->heard[report.signal] = report.sender;
	}
	c->heard[signal] = 0;
	return true;
}

void spr_cli_canary_close(struct spr_cli_canary *c)
{
	if (!c->pid)
		return;
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->reports);
	c->pid = 0;
}
