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

/* each: called with pid and program of every living process that began after since_ns
 * (CLOCK_BOOTTIME) and carries address. Number of calls made. */
size_t spr_cli_living_find(const char *address, uint64_t since_ns,
                           void (*each)(void *arg, int32_t pid, const char *exe), void *arg);

uint64_t spr_cli_living_now_ns(void);

#endif /* SPR_CLI_LIVING_H */
