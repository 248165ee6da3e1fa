/* SPDX-License-Identifier: MIT */
/*
 * target.h - the program that is recorded: started as if nobody were there, and waited for.
 *
 * It gets our descriptors 0 to 2, our folder, limits, umask, signal mask and dispositions as we
 * got them. It stays in our process group, so that the terminal's signals reach it by themselves.
 */
#ifndef SPR_CLI_TARGET_H
#define SPR_CLI_TARGET_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cli/canary.h"

#define SPR_CLI_GROUPS_MAX 256

/* Whom the target runs as. */
struct spr_cli_user {
	bool  other; /* somebody else than we are */
	uid_t uid;
	gid_t gid;
	gid_t groups[SPR_CLI_GROUPS_MAX];
	int   n_groups;
	char  name[64];
	char  home[512];
};

/* name: --user, or NULL: who called sudo, else ourselves. 0, or -errno after a sentence. */
int spr_cli_user_find(struct spr_cli_user *user, const char *name);
/* Files made between the two are theirs. */
int spr_cli_user_become(const struct spr_cli_user *user);
void spr_cli_user_return(const struct spr_cli_user *user);

struct spr_cli_target {
	pid_t            pid;
	int              signals; /* a signalfd: ours to read while the target runs */
	bool             ended, stop_us;
	int              stopped; /* the signal that did it, 0: it runs */
	int              status;  /* once ended: what `record` exits with */
	int              signal;  /* what killed it, or 0 */
	int              n_impatient; /* signals that came after it had ended */
	sigset_t         mask;    /* as we got it */
	struct sigaction child;   /* SIGCHLD as we got it */
	bool             libc_ignored[2]; /* signals 32 and 33, as we got them */
	struct spr_cli_canary canary;
};

/* Take over the signals: before threads are made. */
int spr_cli_target_prepare(struct spr_cli_target *t);
/* Start it. 0, or the -errno with which it could not be executed; t->pid is -1 if there was no
 * process to try. */
int spr_cli_target_start(struct spr_cli_target *t, char **argv, char **env,
                         const struct spr_cli_user *user);
/* t->signals is readable: wait, forward, stop and go on with the target. */
void spr_cli_target_tend(struct spr_cli_target *t);
/* The target has ended: signals mean us again. */
void spr_cli_target_close(struct spr_cli_target *t);

#endif /* SPR_CLI_TARGET_H */
