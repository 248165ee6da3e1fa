/* SPDX-License-Identifier: MIT */
/*
 * collector.c - open, add, wake, the descriptor for other people's loops, close.
 *
 * Pairs:
 *   [WAKE]   state: or by rouse(), any thread     state: exchange, CAS, and by the collector
 *            carries what was done before the wake: the pass that follows sees it. The collector
 *            goes to sleep by a CAS that fails if a bit was set since it rose, and who sets the
 *            first bit of a sleeper knocks at wake_fd; one word, so there is no moment between.
 */
#include "collector/collector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/error.h"
#include "base/options.h"
#include "base/sys.h"

/* --- Wake ------------------------------------------------------------------------------ */

void spr_collector_rouse(struct spr_collector *c, uint32_t bit)
{
	const uint64_t one = 1;
	const uint32_t before = spr_or_acq_rel(&c->state, bit); /* [WAKE] */

	if (before == SPR_STATE_ASLEEP)
		spr_sys(SYS_write, c->wake_fd, &one, sizeof(one));
}

void spr_collector_wake(spr_collector *c)
{
	if (c)
		spr_collector_rouse(c, SPR_STATE_WAKE);
}

/* --- Open and close --------------------------------------------------------------------- */

static void close_fd(int fd)
{
	if (fd >= 0)
		spr_sys(SYS_close, fd);
}

/* Takes a half-built one, too. */
static void collector_release(struct spr_collector *c)
{
	for (uint32_t i = 0; i < c->n_entries; i++) {
		spr_collector_listener_stop(c->entries[i]->listener);
		free(c->entries[i]);
	}
	for (uint32_t i = 0; i < c->n_sinks; i++)
		free(c->sinks[i]);
	if (c->waiter)
		c->waiter->ops->close(c->waiter);
	close_fd(c->outer_fd);
	close_fd(c->timer_fd);
	close_fd(c->wake_fd);
	free(c->entries);
	free(c->sinks);
	free(c->watches);
	free(c);
}

int spr_collector_open(spr_collector **out, uint32_t flags)
{
	struct spr_collector *c;
	int err;

	if (!out || flags & ~(SPR_PLAIN | SPR_READ))
		return spr_fail(-EINVAL, "spr_collector_open: unknown flags 0x%x", flags);
	c = calloc(1, sizeof(*c));
	if (!c)
		return spr_fail(-ENOMEM, "no memory for a collector");
	c->flags = flags;
	c->outer_fd = c->timer_fd = -1;
	c->timer_ns = SPR_NEVER;
	c->doze_ns = SPR_DOZE_NS;
	c->backstop_ns = SPR_BACKSTOP_NS;
	c->bell = spr_collector_bell;
	c->bell.arg = c;
	c->bell.flags = flags;
	c->wake_fd = (int)spr_sys(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = c->wake_fd < 0 ? spr_fail_sys(c->wake_fd, "cannot make a collector's eventfd")
	                     : spr_collector_waiter_open(c);
	if (err) {
		collector_release(c);
		return err;
	}
	*out = c;
	return 0;
}

/* All channels let go, or none. */
static int collector_unbind(struct spr_collector *c)
{
	for (uint32_t i = 0; i < c->n_entries; i++) {
		spr_channel *ch = c->entries[i]->ch;
		const int err = ch->ops->bind(ch, NULL);

		if (!err)
			continue;
		while (i-- > 0) {
			ch = c->entries[i]->ch;
			ch->ops->bind(ch, &c->bell);
		}
		return spr_fail(err, "a sink still keeps batches: release them, then close again");
	}
	return 0;
}

int spr_collector_close(spr_collector *c)
{
	int err;

	if (!c)
		return 0;
	if (c->stepping)
		return spr_fail(-EBUSY, "spr_collector_close() called from within a sink");
	spr_collector_disarm(c);
	err = collector_unbind(c);
	if (err) {
		spr_collector_park(c);
		return err;
	}
	for (uint32_t i = 0; i < c->n_sinks; i++) {
		const struct spr_sink *user = &c->sinks[i]->user;
		if (user->bind)
			user->bind(user->arg, NULL);
	}
	collector_release(c);
	return 0;
}

/* --- Add -------------------------------------------------------------------------------- */

/* Room for one more pointer; arrays grow by doubling at powers of two. */
static int grow(void *array, uint32_t n)
{
	void **old, **more;

	if (n & (n - 1)) /* room is the next power of two */
		return 0;
	memcpy(&old, array, sizeof(old));
	more = realloc(old, (n ? 2 * (size_t)n : 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	memcpy(array, &more, sizeof(more));
	return 0;
}

static int entry_make(struct spr_collector *c, spr_channel *ch, const struct spr_sink *user)
{
	struct spr_collector_sink *sink = spr_collector_sink_find(c, user);
	struct spr_collector_entry *e;

	if (grow(&c->entries, c->n_entries) || grow(&c->sinks, c->n_sinks))
		return -ENOMEM;
	e = calloc(1, sizeof(*e));
	if (e && !sink) {
		sink = calloc(1, sizeof(*sink));
		if (sink) {
			sink->user = *user;
			c->sinks[c->n_sinks++] = sink;
		}
	}
	if (!e || !sink) {
		free(e);
		return -ENOMEM;
	}
	e->ch = ch;
	e->collector = c;
	e->sink = sink;
	spr_collector_entry_wrap(e);
	c->entries[c->n_entries++] = e;
	return 0;
}

/* The last one added goes again; its sink stays only if another channel's. */
static void entry_unmake(struct spr_collector *c)
{
	struct spr_collector_entry *e = c->entries[--c->n_entries];

	if (!e->sink->bound) {
		free(e->sink);
		c->n_sinks--;
	}
	for (uint32_t i = 0; i < c->n_watches; i++) {
		if (c->watches[i].ch == e->ch)
			c->bell.unwatch(c, e->ch, c->watches[i].fd, c->watches[i].cookie);
	}
	free(e);
}

int spr_collector_add(spr_collector *c, spr_channel *ch, const struct spr_sink *sink)
{
	struct spr_sink user;
	int err;

	if (!c || !ch || !sink)
		return -EINVAL;
	if (c->stepping)
		return spr_fail(-EBUSY, "spr_collector_add() called from within a sink");
	err = spr_options_read(&user, sizeof(user), sink);
	if (err || !user.put || user.flags)
		return spr_fail(err ? err : -EINVAL,
		                "spr_collector_add: a sink without put, with unknown "
		                "flags or newer than this library");
	user.size = sizeof(user);
	if (ch->bell)
		return spr_fail(-EBUSY, "%s: has a collector already", ch->address);
	err = entry_make(c, ch, &user);
	if (err)
		return spr_fail(err, "no memory for another channel");

	struct spr_collector_entry *e = c->entries[c->n_entries - 1];
	err = ch->ops->bind(ch, &c->bell);
	if (!err) {
		err = spr_collector_entry_listen(e);
		if (err)
			ch->ops->bind(ch, NULL);
	}
	if (err) {
		entry_unmake(c);
		return err;
	}
	if (!e->sink->bound && user.bind)
		user.bind(user.arg, c);
	e->sink->bound = true;
	spr_collector_park(c);
	return 0;
}

/* --- The descriptor ---------------------------------------------------------------------- */

static int outer_add(int outer_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return (int)spr_sys(SYS_epoll_ctl, outer_fd, EPOLL_CTL_ADD, fd, &event);
}

static int outer_open(struct spr_collector *c)
{
	int fd = (int)spr_sys(SYS_epoll_create1, EPOLL_CLOEXEC);
	int err = fd < 0 ? fd : 0;

	if (!err) {
		c->timer_fd = (int)spr_sys(SYS_timerfd_create, CLOCK_MONOTONIC,
		                           TFD_CLOEXEC | TFD_NONBLOCK);
		err = c->timer_fd < 0 ? c->timer_fd : outer_add(fd, c->timer_fd);
	}
	if (!err)
		err = outer_add(fd, c->wake_fd);
	if (!err) {
		c->outer_fd = fd;
		err = spr_collector_outer_join(c);
	}
	if (err) {
		c->outer_fd = -1;
		close_fd(fd);
		close_fd(c->timer_fd);
		c->timer_fd = -1;
		return spr_fail_sys(err, "cannot make a collector's outer descriptor");
	}
	return 0;
}

/* The waiter's own descriptor would do for events, but a waiter can be replaced and has no timers:
 * so one around it, made when it is first asked for. The handle is const for the caller only. */
int spr_collector_fd(const spr_collector *c)
{
	struct spr_collector *mine = (struct spr_collector *)(uintptr_t)c;
	int err;

	if (!c)
		return -EINVAL;
	if (c->outer_fd < 0) {
		err = outer_open(mine);
		if (err)
			return err;
		spr_collector_park(mine);
	}
	return c->outer_fd;
}
