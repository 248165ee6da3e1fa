/* SPDX-License-Identifier: MIT */
/*
 * probe.h - what this machine allows, decided in one place.
 *
 * SPARRING_DISABLE=io_uring,membarrier,... turns a feature off by name; every name is listed by
 * `sparring probe`, and the tests run with each of them off.
 */
#ifndef SPR_BASE_PROBE_H
#define SPR_BASE_PROBE_H

#include <stdbool.h>
#include <stddef.h>

struct spr_feature {
	const char *name;  /* as in SPARRING_DISABLE and spr_probe() */
	const char *what;  /* a sentence: what it is used for, what happens without it */
	int (*test)(void); /* 1 usable, 0 not built, -errno */
};

/* All of them, in the order they are listed; ends with a NULL name. Transports, io_uring and its
 * parts, membarrier, populate, punch, tsc, pidfd, futex_waitv, ... */
extern const struct spr_feature spr_features[];

/* Is `name` in SPARRING_DISABLE? Read from the environment once per process at first use. T: any.
 */
bool spr_disabled(const char *name);

/* A sentence why the last spr_probe(name) of this thread was not 1 is in spr_error_text(). */

#endif /* SPR_BASE_PROBE_H */
