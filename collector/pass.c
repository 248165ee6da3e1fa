/* SPDX-License-Identifier: MIT */
/*
 * pass.c - one pass over all channels: take what is there, then tick.
 *
 * The rule of ticks. A sink is ticked at the end of a pass if something was put since its last
 * tick, once, however many channels it serves, with the time at which the pass began. An idle
 * sink gets none: its last tick came after its last record, so nothing waits for one. While one
 * of its channels rests after -EAGAIN the tick is owed, because not all that was committed before
 * the pass has been put. A sink that has then taken nothing for STUCK_NS is ticked all the same:
 * it may be waiting for just that tick to give up what it holds; what comes later is LATE.
 */
#include "collector/collector.h"

#include <errno.h>
#include <string.h>

#define REST_NS     1000000ull   /* after -EAGAIN, as the header promises */
#define STUCK_NS    100000000ull
#define TEND_NS_MIN 100000ull    /* a channel that asks for less is asking for a busy loop */

uint64_t spr_collector_now(const struct spr_collector *c)
{
	return c->n_entries ? spr_clock_now(&c->entries[0]->ch->clock) : spr_clock_monotonic_ns();
}

/* The start of a pass; of several channels the clock that is behind. */
static uint64_t collector_until(const struct spr_collector *c)
{
	uint64_t until = SPR_NEVER;

	for (uint32_t i = 0; i < c->n_entries; i++) {
		const uint64_t now = spr_clock_now(&c->entries[i]->ch->clock);
		until = now < until ? now : until;
	}
	return until;
}

static int entry_put(void *arg, spr_batch *b)
{
	struct spr_collector_entry *e = arg;
	struct spr_collector_sink *s = e->sink;

	b->late_ns = s->late_ns;
	const int ret = s->user.put(s->user.arg, b);
	if (ret < 0) {
		e->put_err = ret;
		return ret;
	}
	s->owes_tick = true;
	s->stuck_ns = 0;
	return ret;
}

static int entry_gone(void *arg, uint64_t writer, uint64_t written, uint64_t lost)
{
	struct spr_collector_entry *e = arg;
	const struct spr_sink *user = &e->sink->user;

	e->put_err = user->gone ? user->gone(user->arg, writer, written, lost) : 0;
	return e->put_err;
}

void spr_collector_entry_wrap(struct spr_collector_entry *e)
{
	e->inner = (struct spr_sink){ .size = sizeof(e->inner), .arg = e, .put = entry_put,
	                              .gone = entry_gone };
}

/* 0; -EPROTO, the others go on; anything else ends the pass. */
static int entry_drain(struct spr_collector_entry *e, uint64_t *n)
{
	struct spr_collector *c = e->collector;
	int err;

	*n = 0;
	e->put_err = 0;
	err = e->ch->ops->drain(e->ch, &e->inner, n);
	if (*n) {
		e->moved = true;
		if (e->alarmed)
			e->ch->ops->missed(e->ch);
	}
	e->alarmed = false;
	e->rest_ns = 0;
	if (err == -EAGAIN) {
		const uint64_t now = spr_collector_now(c);
		e->rest_ns = now + REST_NS;
		e->sink->resting = true;
		if (!e->sink->stuck_ns)
			e->sink->stuck_ns = now;
		return 0;
	}
	return err;
}

static int sink_tick(struct spr_collector_sink *s, uint64_t until_ns)
{
	const bool stuck = s->stuck_ns && until_ns > s->stuck_ns + STUCK_NS;

	if (!s->owes_tick || (s->resting && !stuck))
		return 0;
	s->stuck_ns = 0;
	const int err = s->user.tick ? s->user.tick(s->user.arg, until_ns) : 0;
	if (err == -EAGAIN) /* still owed, at the end of the next pass */
		return 0;
	s->owes_tick = false;
	s->late_ns = until_ns;
	return err < 0 ? err : 0;
}

/* The number of records, or the error that step() returns. */
int64_t spr_collector_pass(struct spr_collector *c)
{
	const uint64_t until = collector_until(c);
	int err = 0, nonsense = 0;
	uint64_t n;

	c->last_n = 0;
	for (uint32_t i = 0; i < c->n_sinks; i++)
		c->sinks[i]->resting = false;
	for (uint32_t i = 0; i < c->n_entries && !err; i++) {
		struct spr_collector_entry *e = c->entries[i];

		if (e->rest_ns > until) {
			e->sink->resting = true;
			continue;
		}
		err = entry_drain(e, &n);
		c->last_n += n;
		if (err == -EPROTO && !e->put_err) {
			nonsense = err;
			err = 0;
		}
	}
	if (c->last_n) {
		c->moved_ns = spr_collector_now(c);
		c->moved_n = c->last_n;
	}
	for (uint32_t i = 0; i < c->n_sinks && !err; i++)
		err = sink_tick(c->sinks[i], until);
	if (err || nonsense)
		return err ? err : nonsense;
	return (int64_t)c->last_n;
}

void spr_collector_tend(struct spr_collector *c)
{
	const uint64_t now = spr_collector_now(c);

	for (uint32_t i = 0; i < c->n_entries; i++) {
		struct spr_collector_entry *e = c->entries[i];

		if (now < e->tend_ns && !(e->moved && e->tend_ns == SPR_NEVER))
			continue;
		e->moved = false;
		const uint64_t next = e->ch->ops->tend(e->ch, now);
		e->tend_ns = next > now + TEND_NS_MIN ? next : now + TEND_NS_MIN;
	}
}

uint64_t spr_collector_due(const struct spr_collector *c)
{
	uint64_t due = SPR_NEVER;

	for (uint32_t i = 0; i < c->n_entries; i++) {
		const struct spr_collector_entry *e = c->entries[i];
		const uint64_t rest = e->rest_ns ? e->rest_ns : SPR_NEVER;
		const uint64_t own = e->tend_ns < rest ? e->tend_ns : rest;
		due = own < due ? own : due;
	}
	return due;
}

bool spr_collector_ended(const struct spr_collector *c)
{
	for (uint32_t i = 0; i < c->n_entries; i++) {
		if (!c->entries[i]->ch->ops->ended(c->entries[i]->ch))
			return false;
	}
	return true;
}

struct spr_collector_sink *spr_collector_sink_find(struct spr_collector *c,
                                                   const struct spr_sink *user)
{
	for (uint32_t i = 0; i < c->n_sinks; i++) {
		if (memcmp(&c->sinks[i]->user, user, sizeof(*user)) == 0)
			return c->sinks[i];
	}
	return NULL;
}
