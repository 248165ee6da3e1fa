/* SPDX-License-Identifier: MIT */
/*
 * watch.c - the waiter in use: who wants to hear of which descriptor, and a change of waiter.
 *
 * The table of watches is the collector's, so that a waiter which fails while in use (a seccomp
 * filter installed later, a ring that belongs to another thread) is replaced by one that is told
 * everything again.
 */
#include "collector/collector.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "base/sys.h"

#define GEN_MASK  0xffffffu
#define MOVES_MAX 3u /* then a ring that any thread may use */

static uint64_t watch_tag(const struct spr_collector *c, uint32_t idx)
{
	return (uint64_t)(c->watches[idx].gen & GEN_MASK) << 32 | idx;
}

/* The waiter's note. Nobody is called from here: we may be in the middle of a drain's read. */
static void collector_fired(void *arg, uint64_t tag, uint32_t events)
{
	struct spr_collector *c = arg;
	const uint32_t idx = (uint32_t)tag;

	if (idx >= c->n_watches || !c->watches[idx].ch || tag != watch_tag(c, idx))
		return; /* unwatched meanwhile */
	if (!c->watches[idx].fired)
		c->n_fired++;
	c->watches[idx].fired |= events ? events : POLLERR;
}

static void collector_knock(void *arg)
{
	spr_collector_rouse(arg, SPR_STATE_KNOCK);
}

/* --- The table ------------------------------------------------------------------------ */

static int watches_grow(struct spr_collector *c)
{
	const uint32_t n = c->n_watches ? 2 * c->n_watches : 16;
	struct spr_collector_watch *more = realloc(c->watches, n * sizeof(*more));

	if (!more)
		return -ENOMEM;
	c->watches = more;
	for (uint32_t i = n; i-- > c->n_watches;) {
		more[i] = (struct spr_collector_watch){ .fd = (int)c->free_watch };
		c->free_watch = i + 1;
	}
	c->n_watches = n;
	return 0;
}

static void watch_release(struct spr_collector *c, uint32_t idx)
{
	struct spr_collector_watch *watch = &c->watches[idx];

	if (watch->fired)
		c->n_fired--;
	*watch = (struct spr_collector_watch){ .gen = watch->gen + 1, .fd = (int)c->free_watch };
	c->free_watch = idx + 1;
}

static int bell_watch(void *arg, spr_channel *ch, int fd, uint32_t events, uint64_t cookie)
{
	struct spr_collector *c = arg;
	int err;

	if (!c->free_watch && (err = watches_grow(c)))
		return err;
	const uint32_t idx = c->free_watch - 1;
	struct spr_collector_watch *watch = &c->watches[idx];
	c->free_watch = (uint32_t)watch->fd;
	*watch = (struct spr_collector_watch){
		.ch = ch, .cookie = cookie, .fd = fd, .events = events, .gen = watch->gen
	};
	err = c->waiter->ops->watch(c->waiter, fd, events, watch_tag(c, idx));
	if (err)
		watch_release(c, idx);
	return err;
}

static void bell_unwatch(void *arg, spr_channel *ch, int fd, uint64_t cookie)
{
	struct spr_collector *c = arg;

	for (uint32_t i = 0; i < c->n_watches; i++) {
		const struct spr_collector_watch *watch = &c->watches[i];

		if (watch->ch != ch || watch->fd != fd || watch->cookie != cookie)
			continue;
		if (!watch->fired)
			c->waiter->ops->unwatch(c->waiter, fd, watch_tag(c, i));
		watch_release(c, i);
		return;
	}
}

static int64_t bell_read(void *arg, int fd, void *buf, size_t n, uint64_t at)
{
	struct spr_waiter *w = ((struct spr_collector *)arg)->waiter;

	return w->ops->read(w, fd, buf, n, at);
}

const struct spr_bell spr_collector_bell = {
	.wake = collector_knock,
	.watch = bell_watch,
	.unwatch = bell_unwatch,
	.read = bell_read,
};

static void entry_moved(const struct spr_collector *c, const spr_channel *ch)
{
	for (uint32_t i = 0; i < c->n_entries; i++) {
		if (c->entries[i]->ch == ch)
			c->entries[i]->moved = true;
	}
}

void spr_collector_fired_report(struct spr_collector *c)
{
	for (uint32_t i = 0; i < c->n_watches && c->n_fired; i++) {
		const struct spr_collector_watch watch = c->watches[i];

		if (!watch.ch || !watch.fired)
			continue;
		watch_release(c, i); /* first: ready() may watch again */
		entry_moved(c, watch.ch);
		watch.ch->ops->ready(watch.ch, watch.cookie, watch.fired);
	}
}

/* --- The waiter ------------------------------------------------------------------------ */

int spr_collector_entry_listen(struct spr_collector_entry *e)
{
	struct spr_collector *c = e->collector;

	if (c->waiter->hears_words || !e->ch->word || e->listener)
		return 0;
	return spr_collector_listener_start(&e->listener, e->ch->word, collector_knock, c);
}

static int waiter_make(struct spr_collector *c, bool plain, struct spr_waiter **out)
{
	int err = -ENOTSUP;

	if (!plain)
		err = spr_collector_uring_open(out, c->wake_fd, c->n_moves > MOVES_MAX);
	if (err)
		err = spr_collector_plain_open(out, c->wake_fd);
	if (err)
		return err;
	(*out)->fired = collector_fired;
	(*out)->arg = c;
	return 0;
}

int spr_collector_waiter_open(struct spr_collector *c)
{
	return waiter_make(c, c->flags & SPR_PLAIN, &c->waiter);
}

static int outer_change(const struct spr_collector *c, int op)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (c->outer_fd < 0)
		return 0;
	const int fd = c->waiter->ops->fd(c->waiter);
	return fd < 0 ? fd : (int)spr_sys(SYS_epoll_ctl, c->outer_fd, op, fd, &event);
}

/* Out of the outer descriptor by hand: a forked child may hold the ring open. */
static int waiter_change(struct spr_collector *c, int why)
{
	struct spr_waiter *next;
	int err;

	if (why == -EXDEV)
		c->n_moves++;
	err = waiter_make(c, why != -EXDEV, &next);
	if (err)
		return err;
	outer_change(c, EPOLL_CTL_DEL);
	c->waiter->ops->close(c->waiter);
	c->waiter = next;
	err = outer_change(c, EPOLL_CTL_ADD);
	if (err && why == -EXDEV) /* a ring, but not for an outer loop: plain, then */
		return waiter_change(c, err);
	for (uint32_t i = 0; i < c->n_watches; i++) {
		const struct spr_collector_watch *watch = &c->watches[i];

		if (watch->ch && !watch->fired &&
		    next->ops->watch(next, watch->fd, watch->events, watch_tag(c, i)))
			collector_fired(c, watch_tag(c, i), POLLNVAL);
	}
	for (uint32_t i = 0; i < c->n_entries && !err; i++)
		err = spr_collector_entry_listen(c->entries[i]);
	return err;
}

int spr_collector_outer_join(struct spr_collector *c)
{
	const int err = outer_change(c, EPOLL_CTL_ADD);

	return err ? waiter_change(c, err) : 0;
}

int spr_collector_wait(struct spr_collector *c, uint64_t timeout_ns)
{
	const int ret = c->waiter->ops->wait(c->waiter, timeout_ns);

	if (ret >= 0)
		return ret;
	const int err = waiter_change(c, ret);
	return err ? err : 1;
}
