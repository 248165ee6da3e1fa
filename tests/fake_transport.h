/* SPDX-License-Identifier: MIT */
/*
 * fake_transport.h - a channel that lives in a page of shared memory and counts instead of
 * carrying: what a collector needs to be tested without a ring.
 *
 * A record is a number and its stamp. One producer at a time: a thread, a forked child or a
 * signal handler calls fake_commit().
 */
#ifndef SPR_TESTS_FAKE_TRANSPORT_H
#define SPR_TESTS_FAKE_TRANSPORT_H

#include "transport/transport.h"

#define FAKE_STAMPS 4096u

struct fake_shared {
	_Atomic uint64_t written;
	_Atomic uint32_t armed;
	_Atomic uint32_t word;
	_Atomic uint32_t sealed;
	_Atomic uint64_t stamps[FAKE_STAMPS];
};

struct fake_batch {
	struct spr_batch base;
	uint64_t first, at;
};

struct fake_channel {
	struct spr_channel  base;
	struct fake_shared *shared;
	uint64_t delivered;
	_Atomic uint32_t n_kept;
	struct fake_batch batch; /* the one on offer */
	/* What it is told to do. */
	bool     mute;        /* commits do not ring */
	uint64_t batch_max;   /* records in one; 0: all */
	int      bind_err, drain_err;
	uint64_t tend_after_ns; /* tend() asks to be called again so much later; 0: never */
	void (*on_ready)(struct fake_channel *f, uint64_t cookie, uint32_t events);
	/* What was done with it. */
	unsigned n_arms, n_disarms, n_drains, n_tends, n_ready, n_missed, n_binds;
	uint64_t last_cookie;
	uint32_t last_events;
	bool     is_armed;
};

struct fake_channel *fake_open(const char *name);
/* The channel goes, whoever has it. */
void fake_close(struct fake_channel *f);
/* A producer's record. time_ns 0: now. T: any. S. */
void fake_commit(struct fake_channel *f, uint64_t time_ns);
void fake_seal(struct fake_channel *f);
struct spr_record fake_record(const spr_batch *b, uint64_t i);

#endif /* SPR_TESTS_FAKE_TRANSPORT_H */
