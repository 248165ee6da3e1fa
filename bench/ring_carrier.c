/* SPDX-License-Identifier: MIT */
/*
 * ring_carrier.c - our ring as a carrier: through the public calls, and with the record path of
 * shm/writer.h inlined where the size is a constant (what a header of ours could offer).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/clock.h"
#include "bench/ring_carrier.h"
#include "shm/writer.h"
#include "transport/transport.h"

int spr_bench_batch_count(void *arg, spr_batch *b)
{
	struct spr_bench_rig *rig = arg;
	struct spr_record rec;
	uint64_t n = 0, add = 0, number;
	int more;

	while ((more = spr_batch_next(b, &rec)) > 0) {
		memcpy(&number, rec.data, sizeof(number));
		add += number;
		n++;
	}
	rig->n_read += n;
	rig->sum += add;
	return more;
}

int spr_bench_ring_open(struct spr_bench_rig *rig)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct spr_bench_ring *ring = calloc(1, sizeof(*ring));
	char address[PATH_MAX + 8];
	int err;

	if (!ring)
		return -ENOMEM;
	rig->reader = ring;
	opt.flags = rig->plan->flags;
	opt.capacity_bytes = rig->plan->capacity_bytes;
	opt.kinds = rig->plan->kinds;
	opt.n_kinds = rig->plan->n_kinds;
	opt.stall_ms = UINT32_MAX; /* nothing may be lost */
	snprintf(address, sizeof(address), "ring:%s", rig->plan->place);
	err = spr_channel_open(&ring->channel, address, &opt);
	if (err)
		return err;
	snprintf(rig->address, sizeof(rig->address), "%s", spr_channel_address(ring->channel));
	return 0;
}

int spr_bench_ring_collect(struct spr_bench_rig *rig, const struct spr_sink *sink)
{
	struct spr_bench_ring *ring = rig->reader;
	struct spr_sink count = SPR_SINK_INIT;
	int err;

	count.arg = rig;
	count.put = spr_bench_batch_count;
	err = spr_collector_open(&ring->collector, 0);
	return err ? err : spr_collector_add(ring->collector, ring->channel, sink ? sink : &count);
}

static int ring_open(struct spr_bench_rig *rig)
{
	const int err = spr_bench_ring_open(rig);

	return err ? err : spr_bench_ring_collect(rig, NULL);
}

int spr_bench_ring_read(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;
	const int64_t n = spr_collector_step(ring->collector, 1000);

	return n < 0 ? (int)n : 0;
}

uint64_t spr_bench_ring_resident(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;
	struct spr_stats stats = SPR_STATS_INIT;

	if (spr_channel_stats(ring->channel, &stats))
		return 0;
	if (stats.resident_bytes > rig->resident_bytes)
		rig->resident_bytes = stats.resident_bytes;
	return stats.resident_bytes;
}

static int ring_read_watched(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;
	const uint64_t now = spr_clock_monotonic_ns();

	if (now - ring->watched_ns > 1000000) {
		ring->watched_ns = now;
		spr_bench_ring_resident(rig);
	}
	return spr_bench_ring_read(rig);
}

int spr_bench_ring_close(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;
	struct spr_stats stats = SPR_STATS_INIT;
	int err = spr_channel_stats(ring->channel, &stats);

	rig->lost = stats.lost;
	rig->stalls = stats.stalls;
	/* How often a writer rang; stats.wakes counts the sleeps, whatever ended them. */
	rig->wakes = spr_load_relaxed(ring->channel->word);
	if (ring->collector && !err)
		err = spr_collector_close(ring->collector);
	return err ? err : spr_channel_close(ring->channel);
}

int spr_bench_ring_attach(struct spr_bench_rig *rig, unsigned idx)
{
	static spr_producer *producer; /* one per process, also where writers are threads */
	static _Atomic uint32_t turn;
	uint32_t none = 0;
	int err = 0;

	if (spr_cas_acquire(&turn, &none, 1u)) { /* [TURN] */
		err = spr_attach(&producer, rig->address);
		spr_store_release(&turn, err ? 3u : 2u); /* [TURN] */
	}
	while (spr_load_acquire(&turn) == 1) /* [TURN] */
		spr_bench_sleep_us(10);
	if (spr_load_relaxed(&turn) == 3)
		return err ? err : -ECONNREFUSED;
	rig->mine[idx] = spr_writer_here(producer);
	return 0;
}

int spr_bench_ring_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	spr_writer *w = rig->mine[idx];
	struct spr_bench_record record = { 0, { 0 } };
	int err = 0;

	for (uint64_t i = 0; i < n && !err; i++) {
		record.number = first + i;
		err = spr_write(w, 0, &record, sizeof(record));
	}
	return err;
}

static int ring_write_slot(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	spr_writer *w = rig->mine[idx];
	struct spr_bench_record record = { 0, { 0 } };
	struct spr_slot slot;
	int err = 0;

	for (uint64_t i = 0; i < n && !err; i++) {
		record.number = first + i;
		err = spr_reserve(w, 0, sizeof(record), &slot);
		if (err)
			break;
		memcpy(slot.data, &record, sizeof(record));
		err = spr_commit(w, &slot);
	}
	return err;
}

static int ring_write_inline(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	spr_writer *w = rig->mine[idx];
	struct spr_bench_record record = { 0, { 0 } };
	struct spr_slot slot;
	int err = 0;

	for (uint64_t i = 0; i < n && !err; i++) {
		record.number = first + i;
		err = spr_shm_reserve(w, 0, 0, sizeof(record), &slot);
		if (err)
			break;
		memcpy(slot.data, &record, sizeof(record));
		err = spr_shm_commit(w, &slot);
	}
	return err;
}

#define CARRIER(text, reads, writes) \
	{ .name = (text), .open = ring_open, .read = (reads), .close = spr_bench_ring_close, \
	  .attach = spr_bench_ring_attach, .write = (writes) }

const struct spr_bench_carrier spr_bench_ring =
	CARRIER("ring", spr_bench_ring_read, spr_bench_ring_write);
const struct spr_bench_carrier spr_bench_ring_slot =
	CARRIER("ring, reserve and commit", spr_bench_ring_read, ring_write_slot);
const struct spr_bench_carrier spr_bench_ring_inline =
	CARRIER("ring, inline", spr_bench_ring_read, ring_write_inline);
const struct spr_bench_carrier spr_bench_ring_watched =
	CARRIER("ring, watched", ring_read_watched, spr_bench_ring_write);
