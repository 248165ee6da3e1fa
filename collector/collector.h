/* SPDX-License-Identifier: MIT */
/*
 * collector.h - the inside of a collector, shared by the files of this folder.
 *
 *   collector.c   open, add, close; wake; the outer descriptor
 *   step.c        step: passes, naps, sleep
 *   pass.c        one pass: drain, late records, ticks, housekeeping
 *   watch.c       the waiter in use: watched descriptors, and a change of waiter
 */
#ifndef SPR_COLLECTOR_COLLECTOR_H
#define SPR_COLLECTOR_COLLECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include <sparring/sparring.h>

#include "base/atomic.h"
#include "collector/waiter.h"
#include "transport/transport.h"

/* struct spr_collector.state */
#define SPR_STATE_ASLEEP (1u << 0) /* who sets a bit below must knock at wake_fd */
#define SPR_STATE_KNOCK  (1u << 1) /* from inside: look again */
#define SPR_STATE_WAKE   (1u << 2) /* spr_collector_wake(): step returns */

#define SPR_NEVER       UINT64_MAX
#define SPR_DOZE_NS     20000000ull
#define SPR_BACKSTOP_NS 1000000000ull

/* A sink as the user means it: added with several channels it is still one. */
struct spr_collector_sink {
	struct spr_sink user;
	bool     bound;     /* it knows us */
	uint64_t late_ns;   /* its last tick's until_ns: what is stamped before is late */
	uint64_t stuck_ns;  /* since when put has said -EAGAIN and nothing else; 0: it has not */
	bool     owes_tick; /* something was put since the last tick */
	bool     resting;   /* in this pass: one of its channels has more, which put refused */
};

/* A channel we were given. */
struct spr_collector_entry {
	spr_channel *ch;
	struct spr_collector      *collector;
	struct spr_collector_sink *sink;
	struct spr_sink      inner; /* what drain() gets: puts through us, for the LATE flag */
	struct spr_listener *listener;
	int      put_err;   /* put's or gone's own error in this pass */
	bool     armed;     /* arm() said: sleep */
	bool     alarmed;   /* the backstop alone ended the sleep this channel was armed for */
	bool     moved;     /* records or an event since its last tend() */
	uint64_t rest_ns;   /* after -EAGAIN: not before then, or a wake; 0: no rest */
	uint64_t tend_ns;
};

/* A descriptor that a channel wants to hear of once. gen tells the uses of a place apart. */
struct spr_collector_watch {
	spr_channel *ch; /* NULL: free */
	uint64_t cookie;
	int      fd;
	uint32_t events;
	uint32_t fired;  /* events to report; 0: still waiting */
	uint32_t gen;
};

struct spr_collector {
	_Atomic uint32_t   state;
	int                wake_fd; /* an eventfd; valid from open to close */
	uint32_t           flags;
	struct spr_bell    bell;
	struct spr_waiter *waiter;
	uint32_t           n_moves; /* how often it was found in another thread */
	bool               stepping;

	struct spr_collector_entry **entries;
	struct spr_collector_sink  **sinks;
	uint32_t n_entries, n_sinks;

	struct spr_collector_watch *watches;
	uint32_t n_watches;
	uint32_t free_watch; /* index + 1 of one; the next in its fd */
	uint32_t n_fired;    /* noted by the waiter, not yet reported to the channel */

	uint64_t backstop_ns; /* the longest sleep */
	uint64_t doze_ns;    /* how long after the last record it naps before it sleeps */
	uint64_t last_n;     /* records of the last pass */
	uint64_t moved_ns;   /* when a pass last moved something; 0: never */
	uint64_t moved_n;    /* and how many */
	uint64_t looked_ns;  /* when the waiter was last asked */

	int      outer_fd;   /* what spr_collector_fd() gives; -1: nobody asked */
	int      timer_fd;   /* in outer_fd: what a waiting step would wake for by itself */
	uint64_t timer_ns;   /* when it is set to fire; SPR_NEVER */
	uint64_t parked_ns;  /* since when the channels lie armed outside step(); 0: they do not */
};

/* CLOCK_MONOTONIC, by the cheapest clock at hand. */
uint64_t spr_collector_now(const struct spr_collector *c);

/* pass.c */
int64_t spr_collector_pass(struct spr_collector *c);
void spr_collector_tend(struct spr_collector *c);
bool spr_collector_ended(const struct spr_collector *c);
/* When a channel wants to be looked at again without being rung for. */
uint64_t spr_collector_due(const struct spr_collector *c);
struct spr_collector_sink *spr_collector_sink_find(struct spr_collector *c,
                                                   const struct spr_sink *user);
void spr_collector_entry_wrap(struct spr_collector_entry *e);

/* step.c */
void spr_collector_disarm(struct spr_collector *c);
/* Leave everything so that outer_fd becomes readable when step() is worth calling. */
void spr_collector_park(struct spr_collector *c);

/* watch.c */
int spr_collector_waiter_open(struct spr_collector *c);
/* wait() that survives the waiter: 1 something, 0 nothing, -errno: no other is to be had. */
int spr_collector_wait(struct spr_collector *c, uint64_t timeout_ns);
/* Put the waiter's descriptor into outer_fd; one that has none is replaced. */
int spr_collector_outer_join(struct spr_collector *c);
void spr_collector_fired_report(struct spr_collector *c);
int spr_collector_entry_listen(struct spr_collector_entry *e);
extern const struct spr_bell spr_collector_bell; /* all but arg and flags */

/* Set a bit of state and knock if the collector sleeps. T: any. S. */
void spr_collector_rouse(struct spr_collector *c, uint32_t bit);

#endif /* SPR_COLLECTOR_COLLECTOR_H */
