/* SPDX-License-Identifier: MIT */
/*
 * step.c - when to pass, when to nap, when to sleep.
 *
 *   a pass moved some      nap LAG_NS before the next, or it stands right behind its writers and
 *                          takes their cache lines away while they write (3 x in throughput)
 *   nothing, for doze_ns   naps, bell unarmed, so that neither a burst nor the next short process
 *                          costs its writer a wake: NAP_NS after a few records, which can wait;
 *                          shorter ones after many, for a flood that has paused
 *   then                   arm, look once more, sleep until rung; backstop_ns at most, and what
 *                          is found then was not rung for and is counted
 *
 * A nap is a sleep in the waiter, so spr_collector_wake() and watched descriptors end it at once.
 * The kernel adds its timer slack, 50 us unless the application has changed it. It is left alone:
 * prctl(PR_SET_TIMERSLACK) would change all the application does on this thread, and a nap that is
 * longer costs less (docs/decisions/0020-the-collector.md).
 *
 * Asked for its descriptor, a collector that would doze between two steps sets its timer NAP_NS
 * ahead instead of arming: the descriptor becomes readable by itself.
 *
 * The pair [WAKE] is tabled in collector.c.
 */
#include "collector/collector.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/error.h"
#include "base/sys.h"

#define MANY          64u        /* records in a pass: a flood, or a burst */
#define ENOUGH        16384u     /* it is far enough behind as it is */
#define LAG_NS        40000ull
#define NAP_NS        2000000ull
#define LOOK_NS       1000000ull /* while there is no rest: how often descriptors are looked at */
#define CLOCK_SLOP_NS 1000000ull /* the kernel's timers and our clock, over a second */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* --- Asleep and awake -------------------------------------------------------------- */

void spr_collector_disarm(struct spr_collector *c)
{
	for (uint32_t i = 0; i < c->n_entries; i++) {
		struct spr_collector_entry *e = c->entries[i];

		if (e->armed)
			e->ch->ops->disarm(e->ch);
		e->armed = false;
	}
}

/* false: there is something to take, and nothing is armed. */
static bool collector_arm(struct spr_collector *c)
{
	for (uint32_t i = 0; i < c->n_entries; i++) {
		struct spr_collector_entry *e = c->entries[i];
		struct spr_waiter *w = c->waiter;

		if (e->rest_ns || e->ch->ops->ended(e->ch))
			continue;
		if (e->ch->ops->arm(e->ch)) {
			spr_collector_disarm(c);
			return false;
		}
		e->armed = true;
		/* An error shows again in wait(), which knows what to do about it. */
		if (e->ch->word && !e->listener)
			w->ops->listen(w, i, e->ch->word, e->ch->word_seen);
	}
	return true;
}

/* Wait, unless somebody knocked since we rose. 1 something, 0 nothing. */
static int collector_lie(struct spr_collector *c, uint64_t timeout_ns)
{
	uint32_t awake = 0;
	int ret;

	if (c->n_fired || !spr_cas_acq_rel(&c->state, &awake, SPR_STATE_ASLEEP)) /* [WAKE] */
		return 1;
	ret = spr_collector_wait(c, timeout_ns);
	const uint32_t before = spr_and_acq_rel(&c->state, ~SPR_STATE_ASLEEP); /* [WAKE] */
	c->looked_ns = spr_collector_now(c);
	return ret ? ret : before != SPR_STATE_ASLEEP;
}

/* What was asked of us since the last time. */
static uint32_t collector_rise(struct spr_collector *c)
{
	const uint32_t asked = spr_exchange_acq_rel(&c->state, 0); /* [WAKE] */

	for (uint32_t i = 0; i < c->n_entries && asked & SPR_STATE_WAKE; i++)
		c->entries[i]->rest_ns = 0;
	return asked;
}

static void collector_alarm(struct spr_collector *c)
{
	for (uint32_t i = 0; i < c->n_entries; i++)
		c->entries[i]->alarmed = c->entries[i]->armed;
}

static int collector_sleep(struct spr_collector *c, uint64_t now, uint64_t until)
{
	const uint64_t backstop = now + c->backstop_ns;
	int ret;

	if (!collector_arm(c))
		return 0;
	until = earlier(until, backstop);
	ret = collector_lie(c, until - now);
	if (ret == 0 && until == backstop && c->looked_ns + CLOCK_SLOP_NS >= backstop)
		collector_alarm(c);
	spr_collector_disarm(c);
	return ret;
}

/* --- The step ----------------------------------------------------------------------- */

static bool collector_dozes(const struct spr_collector *c, uint64_t now)
{
	return c->moved_ns && now - c->moved_ns < c->doze_ns;
}

/* A nap costs 10 us and a wake three times that, both sides together: 2 ms is where short
 * processes, one after another, stop costing more than their records do. */
static uint64_t nap_ns(const struct spr_collector *c, uint64_t now)
{
	const uint64_t nap = (now - c->moved_ns) / 2;

	if (c->moved_n < MANY)
		return NAP_NS;
	return nap < LAG_NS ? LAG_NS : earlier(nap, NAP_NS);
}

/* Nothing was there: doze, or sleep. */
static int collector_rest(struct spr_collector *c, uint64_t deadline)
{
	const uint64_t now = spr_collector_now(c);
	const uint64_t until = earlier(deadline, spr_collector_due(c));

	if (until <= now)
		return 0;
	if (collector_dozes(c, now))
		return collector_lie(c, earlier(until - now, nap_ns(c, now)));
	return collector_sleep(c, now, until);
}

static void collector_lag(struct spr_collector *c)
{
	const uint64_t since = spr_collector_now(c) - c->moved_ns;

	if (c->last_n >= MANY && c->last_n < ENOUGH && since < LAG_NS)
		collector_lie(c, LAG_NS - since);
}

/* Descriptors must be heard even if there is never a rest. */
static int collector_look(struct spr_collector *c)
{
	const uint64_t now = spr_collector_now(c);
	int ret = 0;

	if (now - c->looked_ns > LOOK_NS) {
		c->looked_ns = now;
		ret = spr_collector_wait(c, 0);
	}
	spr_collector_fired_report(c);
	return ret;
}

static void collector_unpark(struct spr_collector *c)
{
	uint64_t ticks;

	if (!c->parked_ns)
		return;
	const uint64_t now = spr_collector_now(c);
	const bool fired = spr_collector_wait(c, 0) ||
	                   spr_load_relaxed(&c->state) != SPR_STATE_ASLEEP;
	c->looked_ns = now;
	if (!fired && now + CLOCK_SLOP_NS >= c->parked_ns + c->backstop_ns)
		collector_alarm(c);
	spr_collector_disarm(c);
	c->parked_ns = 0;
	if (now + CLOCK_SLOP_NS >= c->timer_ns) {
		spr_sys(SYS_read, c->timer_fd, &ticks, sizeof(ticks));
		c->timer_ns = SPR_NEVER;
	}
}

static int64_t collector_steps(struct spr_collector *c, uint64_t deadline)
{
	for (;;) {
		const uint32_t asked = collector_rise(c);
		int64_t ret = collector_look(c);

		if (ret < 0)
			return ret;
		ret = spr_collector_pass(c);
		spr_collector_tend(c);
		if (ret)
			return ret;
		if (spr_collector_ended(c))
			return -ENODATA;
		if (asked & SPR_STATE_WAKE || spr_collector_now(c) >= deadline)
			return 0;
		ret = collector_rest(c, deadline);
		if (ret < 0)
			return ret;
	}
}

int64_t spr_collector_step(spr_collector *c, int timeout_ms)
{
	uint64_t deadline = SPR_NEVER;
	int64_t ret;

	if (!c || timeout_ms < -1)
		return -EINVAL;
	if (c->stepping)
		return spr_fail(-EBUSY, "spr_collector_step() called from within a sink");
	if (!c->n_entries) /* all of its no channels are drained */
		return -ENODATA;
	c->stepping = true;
	if (timeout_ms >= 0)
		deadline = spr_collector_now(c) + (uint64_t)timeout_ms * 1000000;
	collector_unpark(c);
	if (timeout_ms)
		collector_lag(c);
	ret = collector_steps(c, deadline);
	spr_collector_park(c);
	c->stepping = false;
	return ret;
}

/* --- Between steps ------------------------------------------------------------------- */

/* Relative: the channels' clock may have drifted from the kernel's since it was calibrated. */
static void collector_timer_set(struct spr_collector *c, uint64_t now)
{
	const uint64_t rest_ns = collector_dozes(c, now) ? NAP_NS : c->backstop_ns;
	const uint64_t at = earlier(spr_collector_due(c), now + rest_ns);
	const uint64_t wait_ns = at > now ? at - now : 1; /* 0 would switch it off */
	const struct itimerspec when = { .it_value = { .tv_sec = (time_t)(wait_ns / 1000000000),
		                                       .tv_nsec = (long)(wait_ns % 1000000000) } };

	if (c->timer_ns <= at) /* it fires early: a step for nothing, once a second at the most */
		return;
	c->timer_ns = at;
	spr_sys(SYS_timerfd_settime, c->timer_fd, 0, &when, NULL);
}

void spr_collector_park(struct spr_collector *c)
{
	const uint64_t one = 1;
	uint32_t awake = 0;

	if (c->outer_fd < 0)
		return;
	spr_collector_disarm(c);
	c->parked_ns = spr_collector_now(c);
	collector_timer_set(c, c->parked_ns);
	if ((collector_dozes(c, c->parked_ns) || collector_arm(c)) &&
	    spr_collector_wait(c, 0) == 0 && !c->n_fired &&
	    spr_cas_acq_rel(&c->state, &awake, SPR_STATE_ASLEEP)) /* [WAKE] */
		return;
	/* There is more to do already: readable until the next step. */
	spr_or_acq_rel(&c->state, SPR_STATE_KNOCK); /* [WAKE] */
	spr_sys(SYS_write, c->wake_fd, &one, sizeof(one));
}
