/* SPDX-License-Identifier: MIT */
/*
 * waiter.h - what a collector sleeps on, and the two ways to do it: uring.c and plain.c.
 *
 * A waiter knows one wake descriptor, words that writers ring (futexes) and watched descriptors.
 * It reports what fired and decides nothing; whose it was and what to do is collector.c's.
 * Everything here is called on the collector's thread.
 */
#ifndef SPR_COLLECTOR_WAITER_H
#define SPR_COLLECTOR_WAITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

#define SPR_WAIT_FOREVER UINT64_MAX

struct spr_waiter {
	const struct spr_waiter_ops *ops;
	/* A watched descriptor is ready (POLLIN, ...; POLLNVAL: it cannot be watched). Only notes
	 * it: may come out of any call below. */
	void (*fired)(void *arg, uint64_t tag, uint32_t events);
	void *arg;
	int   wake_fd;     /* an eventfd, not ours; emptied when it wakes us */
	bool  hears_words; /* listen() works; else a listener thread per word knocks at wake_fd */
};

struct spr_waiter_ops {
	const char *name;
	/* Let wait() return once *word != seen and somebody woke its futex. Asked for again while
	 * the last one still stands: a no-op, because any wake of the word ends a standing one. */
	int (*listen)(struct spr_waiter *w, uint32_t idx, _Atomic uint32_t *word, uint32_t seen);
	/* Report `tag` once when fd polls with events. tag < 2^56. */
	int (*watch)(struct spr_waiter *w, int fd, uint32_t events, uint64_t tag);
	void (*unwatch)(struct spr_waiter *w, int fd, uint64_t tag);
	/* Bytes read at `at`, may be short; -errno. */
	int64_t (*read)(struct spr_waiter *w, int fd, void *buf, size_t n, uint64_t at);
	/* Return when anything fires, at the latest after timeout_ns (0: look, and see that all
	 * asked for so far stands). 1 something fired, 0 not (a timeout, a signal handler ran).
	 * -EXDEV: it belongs to another thread; any other error: it is of no use any more. */
	int (*wait)(struct spr_waiter *w, uint64_t timeout_ns);
	/* A descriptor that becomes readable when wait(), which last returned 0, would return 1;
	 * until the next wait(). Made when first asked for, the waiter's; -errno. */
	int (*fd)(struct spr_waiter *w);
	void (*close)(struct spr_waiter *w);
};

/* Each fills in all but fired and arg. -errno: not to be had here. */
int spr_collector_uring_open(struct spr_waiter **out, int wake_fd, bool moves);
int spr_collector_plain_open(struct spr_waiter **out, int wake_fd);

/* Reads the file without a ring: what both fall back to. */
int64_t spr_collector_plain_read(int fd, void *buf, size_t n, uint64_t at);
/* Take the count out of the (never blocking) wake descriptor. */
void spr_collector_plain_hush(int wake_fd);

/* A thread that waits on one word and calls heard(arg) after each change of it. */
struct spr_listener;
int spr_collector_listener_start(struct spr_listener **out, _Atomic uint32_t *word,
                                 void (*heard)(void *arg), void *arg);
void spr_collector_listener_stop(struct spr_listener *l); /* NULL: a no-op */

#endif /* SPR_COLLECTOR_WAITER_H */
