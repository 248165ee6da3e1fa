/* SPDX-License-Identifier: MIT */
/* ring_carrier.h - our ring as a carrier, and the parts other carriers are put together from. */
#ifndef SPR_BENCH_RING_CARRIER_H
#define SPR_BENCH_RING_CARRIER_H

#include <sparring/sparring.h>

#include "bench/rig.h"

struct spr_bench_ring { /* rig->reader */
	spr_channel   *channel;
	spr_collector *collector;
	uint64_t       watched_ns; /* resident memory was last looked at */
};

/* spr_write(); reserve, memcpy, commit; the same inlined; spr_write() with an eye on memory. */
extern const struct spr_bench_carrier spr_bench_ring, spr_bench_ring_slot, spr_bench_ring_inline,
	spr_bench_ring_watched;

/* A sink's put that counts and adds up; arg is the rig. */
int spr_bench_batch_count(void *arg, spr_batch *b);

/* The channel alone; a collector on it with this sink (NULL: one that counts). */
int spr_bench_ring_open(struct spr_bench_rig *rig);
int spr_bench_ring_collect(struct spr_bench_rig *rig, const struct spr_sink *sink);
int spr_bench_ring_read(struct spr_bench_rig *rig);
/* Looks at the backing object; the most it ever was is in rig->resident_bytes. */
uint64_t spr_bench_ring_resident(struct spr_bench_rig *rig);
int spr_bench_ring_close(struct spr_bench_rig *rig);
int spr_bench_ring_attach(struct spr_bench_rig *rig, unsigned idx);
int spr_bench_ring_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n);

#endif /* SPR_BENCH_RING_CARRIER_H */
