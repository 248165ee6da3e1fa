/* SPDX-License-Identifier: MIT */
/*
 * living.h - who of the target's tree still runs: every process whose environment names our
 * channel.
 *
 * The channel knows those that have attached; a child that was forked a moment ago has not yet, and
 * a static program never does. All of them carry the environment.
 */
#ifndef SPR_CLI_LIVING_H
#define SPR_CLI_LIVING_H

#include <stddef.h>
#include <stdint.h>

/* When the recording began: who is older is none of ours. */
struct spr_cli_since {
	uint64_t ns;       /* CLOCK_BOOTTIME */
	uint64_t n_forks;  /* of the machine since its boot; 0: not known */
	uint64_t last_pid; /* the last one given out by then */
};

void spr_cli_living_begin(struct spr_cli_since *since);

/* each: called with pid and program of every living process that is younger and carries address.
 * Number of calls made. */
size_t spr_cli_living_find(const char *address, const struct spr_cli_since *since,
                           void (*each)(void *arg, int32_t pid, const char *exe), void *arg);

#endif /* SPR_CLI_LIVING_H */
