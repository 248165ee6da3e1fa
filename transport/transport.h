/* SPDX-License-Identifier: MIT */
/*
 * transport.h - the contract between a way of travelling and those who use it.
 *
 *   spr_channel_*  (transport/channel.c)  --> struct spr_transport, the channel's side
 *   spr_collector  (collector/)           --> the same, the "collector's thread" half
 *   spr_attach ... (transport/producer.c) --> the producer's side: struct spr_writer_ops
 *
 * A scheme is one file that fills in one struct spr_transport and one line in channel.c. Every
 * slot is filled: registration asserts it.
 */
#ifndef SPR_TRANSPORT_TRANSPORT_H
#define SPR_TRANSPORT_TRANSPORT_H

#include <stdbool.h>

#include <sparring/sparring.h>

#include "base/atomic.h"
#include "base/clock.h"

struct spr_transport;
struct spr_bell;

/* What every transport's channel begins with. */
struct spr_channel {
	const struct spr_transport *ops;
	struct spr_channel_options opt; /* with defaults filled in; kinds points to our own copy */
	struct spr_clock clock;         /* the scale of the channel's stamps */
	char *address;
	const struct spr_bell *bell; /* set while a collector owns it */
	/* The word the collector sleeps on: while *word == word_seen, nothing has been rung. NULL:
	 * the channel is waited for by descriptors alone. Valid from open to close. */
	_Atomic uint32_t *word;
	uint32_t word_seen; /* set by arm() */
};

/* What a batch begins with. next, rewind and release are what spr_batch_*() calls. */
struct spr_batch {
	int (*next)(spr_batch *b, struct spr_record *rec);
	void (*rewind)(spr_batch *b);
	void (*release)(spr_batch *b); /* T: any; may call bell->wake */
	spr_channel *channel;
	uint64_t writer;    /* as in struct spr_record */
	uint64_t n_records; /* counted and checked by the transport before put */
	uint64_t late_ns;   /* 0 from the transport; the collector sets it before the sink's put:
	                     * spr_batch_next() flags stamps (not 0) below it SPR_LATE */
};

/* What the collector lends a channel while it owns it. Kept by the channel from bind to unbind. */
struct spr_bell {
	void *arg;
	/* Wake the collector if it sleeps. T: any. S. Cheap while it does not sleep. */
	void (*wake)(void *arg);
	/* Tell ready(ch, cookie, events) when fd polls with events (POLLIN, ...). Once per call;
	 * watch again to go on. fd stays the channel's. Collector's thread. */
	int (*watch)(void *arg, spr_channel *ch, int fd, uint32_t events, uint64_t cookie);
	void (*unwatch)(void *arg, spr_channel *ch, int fd, uint64_t cookie);
	/* Read n bytes at `at` of fd into buf, by the fastest way the collector has (io_uring or
	 * pread); waits. Bytes read (may be short) or -errno. Collector's thread. */
	int64_t (*read)(void *arg, int fd, void *buf, size_t n, uint64_t at);
	uint32_t flags; /* SPR_PLAIN, SPR_READ as given to spr_collector_open() */
};

/* A process attached and alive at the seal. */
struct spr_left {
	uint32_t pid;
	char program[20]; /* "" if it cannot be known */
};

struct spr_transport {
	const char *scheme; /* "ring:" */
	uint32_t cannot;    /* SPR_CANNOT_*: promises it does not make; asserted by the suite */

	/* Any thread, one at a time; none of them waits for a writer. ------------------------- */

	/* place: what stands behind the colon (may be empty). opt: complete, checked; copied. */
	int (*open)(spr_channel **out, const char *place, const struct spr_channel_options *opt);
	int (*recover)(spr_channel **out, const char *folder); /* -ENOTSUP */
	int (*map_fd)(const spr_channel *ch);                  /* -ENOTSUP */
	int (*walk)(spr_channel *ch, spr_batch **batch);       /* T: any */
	/* -EBUSY while batches are kept: nothing has been released then. */
	int (*close)(spr_channel *ch);

	/* T: any, at once, beside the collector's thread. -------------------------------------- */
	int (*seal)(spr_channel *ch);
	void (*stats)(const spr_channel *ch, struct spr_stats *out);
	void (*verdict)(const spr_channel *ch, struct spr_verdict *out);
	/* After the seal: the i-th process left running (zeros if it is not known by name) and the
	 * number of all. */
	uint32_t (*left)(const spr_channel *ch, uint32_t i, struct spr_left *out);

	/* The collector's thread. ---------------------------------------------------------------
	 */

	/* A collector takes the channel (bell) or leaves it (NULL; -EBUSY while batches are kept).
	 */
	int (*bind)(spr_channel *ch, const struct spr_bell *bell);
	/* Hand everything committed so far to sink->put, in batches, and sink->gone for writers
	 * that have ended; first publishes the room of batches released since. 0, and the number of
	 * records put in *n_records (also on failure).
	 * -EAGAIN: put said so; the rest stays and is offered again by the next drain.
	 * -EPROTO: a writer left nonsense; it is counted, all the others were served.
	 * Any other: put's or gone's own error; the batch it came from counts as not delivered. */
	int (*drain)(spr_channel *ch, const struct spr_sink *sink, uint64_t *n_records);
	/* Make the next commit change *word (and wake its futex) or a watched fd ready, then look
	 * once more. true: there is something (or room to publish), do not sleep; not armed then.
	 */
	bool (*arm)(spr_channel *ch);
	void (*disarm)(spr_channel *ch);
	/* Housekeeping, between passes, bounded to about 200 us: dead processes, holes,
	 * calibration. When it wants to be called again, CLOCK_MONOTONIC ns; UINT64_MAX: only after
	 * traffic. A sleeping collector obeys it as a timer. */
	uint64_t (*tend)(spr_channel *ch, uint64_t now_ns);
	void (*ready)(spr_channel *ch, uint64_t cookie, uint32_t events);
	/* Sealed, everything delivered, nothing kept: no drain will find anything any more. */
	bool (*ended)(spr_channel *ch);
	/* The collector's backstop timer fired and a drain found records that nobody rang for. */
	void (*missed)(spr_channel *ch);
};

#define SPR_CANNOT_IN_PLACE  (1u << 0)
#define SPR_CANNOT_ORDER_ALL (1u << 1) /* no global order of claims */
#define SPR_CANNOT_USER      (1u << 2) /* kernel producers only */

extern const struct spr_transport spr_transport_ring;

#endif /* SPR_TRANSPORT_TRANSPORT_H */
