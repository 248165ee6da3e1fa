/* SPDX-License-Identifier: MIT */
/*
 * fake_sys.h - another kernel behind base/sys.h: fails the n-th call of a number, counts all.
 *
 *	fake_sys_fail(SYS_ftruncate, 1, ENOSPC);  the next ftruncate says ENOSPC, later ones work
 *	fake_sys_fail_from(SYS_madvise, 3, ENOMEM); the third and all behind it
 *	...
 *	fake_sys_reset();                         the real kernel again
 *
 * Any thread may make calls meanwhile. A forked child inherits what is set, with counters of its
 * own from there.
 */
#ifndef SPR_TESTS_FAKE_SYS_H
#define SPR_TESTS_FAKE_SYS_H

#include "base/sys.h"

/* The nth call (from 1) of `nr` from now on fails with -err and is not made. Several rules may
 * stand side by side (16). */
void fake_sys_fail(long nr, unsigned nth, int err);
void fake_sys_fail_from(long nr, unsigned nth, int err);
/* What to do instead of a call; it may make the call itself with spr_sys_raw. */
void fake_sys_replace(long nr, spr_sys_fn fn);
/* Calls of `nr` since the first rule or fake_sys_count() after a reset. */
unsigned fake_sys_calls(long nr);
/* Count without failing anything. */
void fake_sys_count(void);
void fake_sys_reset(void);

#endif /* SPR_TESTS_FAKE_SYS_H */
