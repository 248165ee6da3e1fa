/* SPDX-License-Identifier: MIT */
/*
 * canary.h - tells a signal to us alone from one to our whole process group.
 *
 * The kernel does not say which it was. A process of ours that sits in the group and does nothing
 * but wait for signals does: what it got too, the target has got as well, and is not passed on.
 */
#ifndef SPR_CLI_CANARY_H
#define SPR_CLI_CANARY_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct spr_cli_canary {
	pid_t pid; /* 0: there is none, and every signal counts as meant for us alone */
	int   reports;
	pid_t heard[65]; /* by signal: who sent it to the canary; 0: nobody */
};

/* signals: blocked by the caller. Before threads are made. */
void spr_cli_canary_open(struct spr_cli_canary *c, const sigset_t *signals);
/* Has the canary got this from the same sender? Waits a moment for it. */
bool spr_cli_canary_heard(struct spr_cli_canary *c, int signal, pid_t sender);
void spr_cli_canary_close(struct spr_cli_canary *c);

#endif /* SPR_CLI_CANARY_H */
