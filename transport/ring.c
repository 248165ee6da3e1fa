/* SPDX-License-Identifier: MIT */
/*
 * ring.c - the scheme "ring:": batches around the ranges that shm/ hands out.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/kinds.h"
#include "shm/ring.h"
#include "transport/channel.h"

struct ring_batch {
	struct spr_batch batch;
	struct spr_ring_range range;
	struct ring_batch *next_unused;
	struct ring_batch *next_made;
};

/* A walk's own cursors over what the first walk found. */
struct ring_walk {
	struct ring_walk *next;
	uint32_t n;
	bool nonsense;
	struct ring_batch batches[];
};

struct ring_channel {
	struct spr_channel ch;
	struct spr_ring *ring;
	struct ring_batch *unused, *made;
	const struct spr_sink *sink; /* of the drain under way */
	pthread_mutex_t walk_lock;
	struct ring_batch **found; /* what there is to walk */
	uint32_t n_found, found_room;
	bool collected, nonsense;
	struct ring_walk *walks;
};

static struct ring_channel *ring_of(const spr_channel *ch)
{
	return (struct ring_channel *)(uintptr_t)ch;
}

static struct ring_batch *batch_of_range(struct spr_ring_range *range)
{
	return (struct ring_batch *)(void *)((char *)range - offsetof(struct ring_batch, range));
}

/* --- Batches -------------------------------------------------------------------------------------
 */

static int batch_next(spr_batch *b, struct spr_record *rec)
{
	return spr_shm_range_next(&((struct ring_batch *)b)->range, rec);
}

static void batch_rewind(spr_batch *b)
{
	spr_shm_range_rewind(&((struct ring_batch *)b)->range);
}

static void batch_release(spr_batch *b)
{
	const struct spr_bell *bell = b->channel->bell;

	spr_shm_range_release(&((struct ring_batch *)b)->range, bell ? bell->wake : NULL,
	                      bell ? bell->arg : NULL);
}

static struct spr_ring_range *range_make(void *arg)
{
	struct ring_channel *rc = arg;
	struct ring_batch *rb = rc->unused;

	if (rb) {
		rc->unused = rb->next_unused;
		return &rb->range;
	}
	rb = calloc(1, sizeof(*rb));
	if (!rb)
		return NULL;
	rb->next_made = rc->made;
	rc->made = rb;
	rb->batch = (struct spr_batch){ .next = batch_next,
		                        .rewind = batch_rewind,
		                        .release = batch_release,
		                        .channel = &rc->ch };
	return &rb->range;
}

static void range_unmake(void *arg, struct spr_ring_range *range)
{
	struct ring_channel *rc = arg;
	struct ring_batch *rb = batch_of_range(range);

	rb->next_unused = rc->unused;
	rc->unused = rb;
}

static int range_put(void *arg, struct spr_ring_range *range)
{
	struct ring_channel *rc = arg;
	struct ring_batch *rb = batch_of_range(range);

	rb->batch.writer = range->writer;
	rb->batch.n_records = range->n_records;
	rb->batch.late_ns = 0;
	return rc->sink->put(rc->sink->arg, &rb->batch);
}

static int lane_gone(void *arg, uint64_t writer, uint64_t written, uint64_t lost)
{
	struct ring_channel *rc = arg;

	return rc->sink->gone ? rc->sink->gone(rc->sink->arg, writer, written, lost) : 0;
}

static int range_read(void *arg, struct spr_ring_range *range, size_t into, size_t n, uint64_t at)
{
	struct ring_channel *rc = arg;
	const struct spr_bell *bell = rc->ch.bell;

	if (!range->copy) {
		range->copy = malloc(spr_ring_class_bytes(SPR_RING_CLASSES - 1));
		if (!range->copy)
			return -ENOMEM;
		range->base = range->copy;
	}
	while (n > 0) {
		const int64_t got = bell->read(bell->arg, rc->ring->fd, range->copy + into, n, at);

		if (got <= 0)
			return got ? (int)got : -EPROTO; /* the file is shorter than it was */
		into += (size_t)got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

/* --- Open, close
 * ---------------------------------------------------------------------------------- */

static int channel_wrap(spr_channel **out, struct spr_ring *ring, struct ring_channel *rc)
{
	int err;

	rc->ring = ring;
	rc->ch.ops = &spr_transport_ring;
	rc->ch.word = &ring->header->bell;
	rc->ch.clock = ring->header->clock[0];
	pthread_mutex_init(&rc->walk_lock, NULL);
	err = spr_transport_address_set(&rc->ch, ring->path);
	if (err) {
		spr_shm_ring_close(ring);
		return err;
	}
	*out = &rc->ch;
	return 0;
}

static int ring_open(spr_channel **out, const char *place, const struct spr_channel_options *opt)
{
	struct ring_channel *rc = calloc(1, sizeof(*rc));
	struct spr_ring_config config = {
		.folder = place[0] ? place : NULL,
		.capacity_bytes = opt->capacity_bytes,
		.record_bytes_max = opt->record_bytes_max,
		.stall_ms = opt->stall_ms,
		.flags = (opt->flags & SPR_UNSTAMPED ? SPR_RING_UNSTAMPED : 0) |
		         (opt->flags & SPR_DROP ? SPR_RING_DROP : 0),
		.guard = opt->flags & SPR_GUARD,
	};
	struct spr_ring *ring = NULL;
	void *kinds;
	int err;

	if (!rc)
		return -ENOMEM;
	config.kinds_bytes = spr_kinds_encode(NULL, 0, opt->kinds, opt->n_kinds);
	kinds = malloc(config.kinds_bytes ? config.kinds_bytes : 1);
	if (!kinds) {
		free(rc);
		return -ENOMEM;
	}
	spr_kinds_encode(kinds, config.kinds_bytes, opt->kinds, opt->n_kinds);
	config.kinds = kinds;
	err = spr_shm_ring_open(&ring, &config);
	free(kinds);
	rc->ch.opt = *opt;
	if (!err)
		err = channel_wrap(out, ring, rc);
	if (err)
		free(rc);
	return err;
}

static int ring_recover(spr_channel **out, const char *folder)
{
	struct ring_channel *rc = calloc(1, sizeof(*rc));
	struct spr_kind *kinds = NULL;
	struct spr_ring *ring;
	uint32_t kinds_bytes;
	int err;

	if (!rc)
		return -ENOMEM;
	err = spr_shm_ring_recover(&ring, folder);
	if (err) {
		free(rc);
		return err;
	}
	rc->ch.opt.size = sizeof(rc->ch.opt);
	rc->ch.opt.record_bytes_max = ring->record_bytes_max;
	kinds_bytes = ring->header->kinds_bytes; /* once: a writer may live, and change it */
	if (kinds_bytes > SPR_RING_KINDS_ROOM ||
	    spr_kinds_decode(&kinds, &rc->ch.opt.n_kinds, ring->map + SPR_RING_KINDS_AT,
	                     kinds_bytes))
		rc->ch.opt.n_kinds = 0; /* what the records mean is lost, the records are not */
	rc->ch.opt.kinds = kinds;
	err = channel_wrap(out, ring, rc);
	if (err) {
		free(kinds);
		free(rc);
	}
	return err;
}

static int ring_map_fd(const spr_channel *ch)
{
	(void)ch;
	return -ENOTSUP;
}

static int ring_close(spr_channel *ch)
{
	struct ring_channel *rc = ring_of(ch);
	const int err = spr_shm_ring_close(rc->ring);

	if (err)
		return err;
	for (struct ring_batch *rb = rc->made, *next; rb; rb = next) {
		next = rb->next_made;
		free(rb->range.copy);
		free(rb);
	}
	for (struct ring_walk *walk = rc->walks, *next; walk; walk = next) {
		next = walk->next;
		free(walk);
	}
	free(rc->found);
	pthread_mutex_destroy(&rc->walk_lock);
	return 0;
}

/* --- Walk
 * ------------------------------------------------------------------------------------------- */

static int found_put(void *arg, spr_batch *b)
{
	struct ring_channel *rc = arg;

	if (rc->n_found == rc->found_room) {
		const uint32_t room = rc->found_room ? 2 * rc->found_room : 64;
		struct ring_batch **found = realloc(rc->found, room * sizeof(struct ring_batch *));

		if (!found)
			return -ENOMEM;
		rc->found = found;
		rc->found_room = room;
	}
	((struct ring_batch *)b)->range.walked = true;
	rc->found[rc->n_found++] = (struct ring_batch *)b;
	return 1;
}

/* Take everything once, in place, for good: room is not given back, so nothing is overwritten. */
static int walk_collect(struct ring_channel *rc)
{
	struct spr_sink sink = SPR_SINK_INIT;
	const struct spr_ring_taker taker = { rc, range_make, range_unmake, range_put, NULL, NULL };
	uint64_t n;
	int err = 0;

	sink.arg = rc;
	sink.put = found_put;
	rc->sink = &sink;
	for (int pass = 0; pass < 4 && !rc->collected; pass++) {
		err = spr_shm_ring_drain(rc->ring, &taker, &n);
		if (err == -EPROTO)
			rc->nonsense = true;
		else if (err)
			break;
		rc->collected = err == 0 && rc->ring->sealed_drained;
	}
	rc->sink = NULL;
	return rc->collected || err == -EPROTO ? 0 : err;
}

static struct ring_walk *walk_make(struct ring_channel *rc)
{
	struct ring_walk *walk = calloc(1, sizeof(*walk) + rc->n_found * sizeof(struct ring_batch));

	if (!walk)
		return NULL;
	walk->n = rc->n_found;
	walk->nonsense = rc->nonsense;
	for (uint32_t i = 0; i < walk->n; i++) {
		walk->batches[i] = *rc->found[i];
		spr_shm_range_rewind(&walk->batches[i].range);
	}
	walk->next = rc->walks;
	rc->walks = walk;
	return walk;
}

static struct ring_walk *walk_of(struct ring_channel *rc, const struct ring_batch *rb)
{
	struct ring_walk *walk = rc->walks;

	while (walk && (rb < walk->batches || rb >= walk->batches + walk->n))
		walk = walk->next;
	return walk;
}

static int ring_walk(spr_channel *ch, spr_batch **batch)
{
	struct ring_channel *rc = ring_of(ch);
	struct ring_batch *rb = (struct ring_batch *)*batch;
	struct ring_walk *walk = NULL;
	int err = 0;

	if (!rc->ring->sealed || ch->bell)
		return spr_fail(-EBUSY, "%s: %s", ch->address,
		                ch->bell ? "a collector owns it" : "not sealed");
	pthread_mutex_lock(&rc->walk_lock);
	if (rb) {
		walk = walk_of(rc, rb++);
	} else {
		err = rc->collected ? 0 : walk_collect(rc);
		walk = err ? NULL : walk_make(rc);
		rb = walk ? walk->batches : NULL;
	}
	pthread_mutex_unlock(&rc->walk_lock);
	if (!walk)
		return err ? err : -EINVAL;
	if (rb < walk->batches + walk->n) {
		*batch = &rb->batch;
		return 1;
	}
	err = walk->nonsense ? -EPROTO : 0;
	walk->nonsense = false;
	return err;
}

/* --- Both sides of a collector
 * -------------------------------------------------------------------- */

static int ring_seal(spr_channel *ch)
{
	const struct spr_bell *bell = ch->bell;
	const int err = spr_shm_ring_seal(ring_of(ch)->ring);

	if (bell)
		bell->wake(bell->arg);
	return err;
}

static void ring_stats(const spr_channel *ch, struct spr_stats *out)
{
	spr_shm_ring_stats(ring_of(ch)->ring, out);
}

static void ring_verdict(const spr_channel *ch, struct spr_verdict *out)
{
	struct spr_ring *ring = ring_of(ch)->ring;
	struct spr_stats stats = SPR_STATS_INIT;

	spr_shm_ring_stats(ring, &stats);
	out->delivered = stats.delivered;
	out->lost = stats.lost;
	out->refused = stats.refused;
	/* More written than is accounted for: somebody's sums are wrong, ours or a forger's. */
	if (stats.written > stats.delivered + stats.pending + stats.lost)
		out->lost += stats.written - stats.delivered - stats.pending - stats.lost;
	if (out->lost || (ring->guarded && spr_shm_guard_torn(ring->map)))
		out->reasons |= SPR_LOST;
	out->left_running = ring->n_left;
	if (ring->n_left)
		out->reasons |= SPR_LEFT_RUNNING;
}

static uint32_t ring_left(const spr_channel *ch, uint32_t i, struct spr_left *out)
{
	const struct spr_ring *ring = ring_of(ch)->ring;

	if (i < ring->n_left && i < SPR_RING_LEFT_MAX) {
		out->pid = ring->left[i].pid;
		memcpy(out->program, ring->left[i].program, sizeof(out->program));
	} else {
		memset(out, 0, sizeof(*out));
	}
	return ring->n_left;
}

/* The collector's thread alone: */

static int watcher_watch(void *arg, int fd, uint32_t slot)
{
	struct ring_channel *rc = arg;

	return rc->ch.bell->watch(rc->ch.bell->arg, &rc->ch, fd, POLLIN, slot);
}

static void watcher_unwatch(void *arg, int fd, uint32_t slot)
{
	struct ring_channel *rc = arg;

	rc->ch.bell->unwatch(rc->ch.bell->arg, &rc->ch, fd, slot);
}

static struct spr_ring_watcher watcher_of(spr_channel *ch)
{
	return (struct spr_ring_watcher){ ch, watcher_watch, watcher_unwatch };
}

static int ring_bind(spr_channel *ch, const struct spr_bell *bell)
{
	struct ring_channel *rc = ring_of(ch);
	struct spr_ring_watcher watcher = watcher_of(ch);

	if (bell && rc->collected)
		return spr_fail(-EBUSY, "%s: it is being walked", ch->address);
	if (!bell) {
		if (spr_shm_ring_kept(rc->ring))
			return spr_fail(-EBUSY, "%s: batches are still kept", ch->address);
		spr_shm_ring_disarm(rc->ring);
		spr_shm_ring_unwatch_all(rc->ring, &watcher);
	}
	ch->bell = bell;
	spr_shm_ring_bind(rc->ring, bell != NULL);
	return 0;
}

static int ring_drain(spr_channel *ch, const struct spr_sink *sink, uint64_t *n_records)
{
	struct ring_channel *rc = ring_of(ch);
	const struct spr_ring_taker taker = {
		rc,        range_make, range_unmake,
		range_put, lane_gone,  ch->bell->flags & SPR_READ ? range_read : NULL,
	};

	rc->sink = sink;
	return spr_shm_ring_drain(rc->ring, &taker, n_records);
}

static bool ring_arm(spr_channel *ch)
{
	struct ring_channel *rc = ring_of(ch);
	struct spr_ring_watcher watcher = watcher_of(ch);

	if (spr_shm_ring_arm(rc->ring, &ch->word_seen))
		return true;
	spr_shm_ring_watch_all(rc->ring, &watcher);
	return false;
}

static void ring_disarm(spr_channel *ch)
{
	spr_shm_ring_disarm(ring_of(ch)->ring);
}

static uint64_t ring_tend(spr_channel *ch, uint64_t now_ns)
{
	struct spr_ring_watcher watcher = watcher_of(ch);

	return spr_shm_ring_tend(ring_of(ch)->ring, now_ns, &watcher);
}

static void ring_ready(spr_channel *ch, uint64_t cookie, uint32_t events)
{
	struct spr_ring_watcher watcher = watcher_of(ch);

	(void)events;
	spr_shm_ring_slot_ready(ring_of(ch)->ring, (uint32_t)cookie, &watcher);
}

static bool ring_ended(spr_channel *ch)
{
	return spr_shm_ring_ended(ring_of(ch)->ring);
}

static void ring_missed(spr_channel *ch)
{
	ring_of(ch)->ring->wakes_missed++;
}

const struct spr_transport spr_transport_ring = {
	.scheme = "ring:",
	.cannot = SPR_CANNOT_ORDER_ALL,
	.open = ring_open,
	.recover = ring_recover,
	.map_fd = ring_map_fd,
	.walk = ring_walk,
	.close = ring_close,
	.seal = ring_seal,
	.stats = ring_stats,
	.verdict = ring_verdict,
	.left = ring_left,
	.bind = ring_bind,
	.drain = ring_drain,
	.arm = ring_arm,
	.disarm = ring_disarm,
	.tend = ring_tend,
	.ready = ring_ready,
	.ended = ring_ended,
	.missed = ring_missed,
};
