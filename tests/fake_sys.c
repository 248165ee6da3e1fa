/* SPDX-License-Identifier: MIT */
/*
 * fake_sys.c - the table behind spr_sys_hook; see fake_sys.h. Pairs:
 *
 *   | pair | release side          | acquire side             | carries           |
 *   | RULE | rule_add stores used  | fake_call loads used     | the rule's fields |
 */
#include "tests/fake_sys.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/atomic.h"

#define N_RULES_MAX 16
#define N_CALLS_MAX 512

struct rule {
	_Atomic bool     used; /* set last [RULE] */
	long             nr;
	unsigned         nth;  /* by the counter of all calls of nr */
	bool             and_later;
	int              err;
	_Atomic(spr_sys_fn) fn;
};
static struct rule rules[N_RULES_MAX];
static _Atomic unsigned n_calls[N_CALLS_MAX];

static long fake_call(long nr, long a, long b, long c, long d, long e, long f)
{
	unsigned nth = 0;

	if (nr >= 0 && nr < N_CALLS_MAX)
		nth = spr_add_relaxed(&n_calls[nr], 1) + 1;
	for (size_t i = 0; i < N_RULES_MAX; i++) {
		struct rule *r = &rules[i];

		if (!spr_load_acquire(&r->used) || r->nr != nr) /* [RULE] */
			continue;
		const spr_sys_fn fn = spr_load_relaxed(&r->fn);
		if (fn)
			return fn(nr, a, b, c, d, e, f);
		if (nth == r->nth || (r->and_later && nth > r->nth))
			return -r->err;
	}
	return spr_sys_raw(nr, a, b, c, d, e, f);
}

static void rule_add(long nr, unsigned nth, int err, bool and_later, spr_sys_fn fn)
{
	for (size_t i = 0; i < N_RULES_MAX; i++) {
		struct rule *r = &rules[i];

		if (spr_load_relaxed(&r->used))
			continue;
		r->nr = nr;
		r->nth = nth + fake_sys_calls(nr);
		r->and_later = and_later;
		r->err = err;
		spr_store_relaxed(&r->fn, fn);
		spr_store_release(&r->used, true); /* [RULE] */
		spr_sys_hook = fake_call;
		return;
	}
	abort();
}

void fake_sys_fail(long nr, unsigned nth, int err)
{
	rule_add(nr, nth, err, false, NULL);
}

void fake_sys_fail_from(long nr, unsigned nth, int err)
{
	rule_add(nr, nth, err, true, NULL);
}

void fake_sys_replace(long nr, spr_sys_fn fn)
{
	rule_add(nr, 0, 0, false, fn);
}

unsigned fake_sys_calls(long nr)
{
	return nr >= 0 && nr < N_CALLS_MAX ? spr_load_relaxed(&n_calls[nr]) : 0;
}

void fake_sys_count(void)
{
	spr_sys_hook = fake_call;
}

void fake_sys_reset(void)
{
	spr_sys_hook = NULL;
	for (size_t i = 0; i < N_RULES_MAX; i++)
		spr_store_relaxed(&rules[i].used, false);
	for (size_t i = 0; i < N_CALLS_MAX; i++)
		spr_store_relaxed(&n_calls[i], 0);
}
