/* SPDX-License-Identifier: MIT */
/*
 * peers.c - other people's rings as carriers. Concurrency Kit's ck_ring, one writer and one reader,
 * records by value in a shared mapping (1 MiB of slots); left out where its header is missing.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bench/rig.h"

#if __has_include(<ck_ring.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <ck_ring.h>

#define CK_SLOTS (1u << 14)

CK_RING_PROTOTYPE(record, spr_bench_record)
#pragma GCC diagnostic pop

struct ck_pair { /* one writer's */
	_Alignas(64) ck_ring_t ring;
	_Alignas(64) struct spr_bench_record slots[CK_SLOTS];
};

static int ck_open(struct spr_bench_rig *rig)
{
	struct ck_pair *pairs = mmap(NULL, rig->plan->writers * sizeof(*pairs),
	                             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (pairs == MAP_FAILED)
		return -errno;
	spr_bench_sleep_exactly();
	for (unsigned i = 0; i < rig->plan->writers; i++)
		ck_ring_init(&pairs[i].ring, CK_SLOTS);
	rig->shared = pairs;
	return 0;
}

static int ck_attach(struct spr_bench_rig *rig, unsigned idx)
{
	rig->mine[idx] = (struct ck_pair *)rig->shared + idx;
	return 0;
}

static int ck_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	struct ck_pair *pair = rig->mine[idx];
	struct spr_bench_record record = { 0, { 0 } };

	for (uint64_t i = 0; i < n; i++) {
		unsigned n_looks = 0;

		record.number = first + i;
		while (!ck_ring_enqueue_spsc_record(&pair->ring, pair->slots, &record)) {
			if (n_looks++ < 64)
				spr_cpu_relax();
			else
				sched_yield();
		}
	}
	return 0;
}

static int ck_read(struct spr_bench_rig *rig)
{
	struct ck_pair *pairs = rig->shared;
	struct spr_bench_record record;
	uint64_t n = 0, add = 0;

	for (unsigned i = 0; i < rig->plan->writers; i++) {
		while (ck_ring_dequeue_spsc_record(&pairs[i].ring, pairs[i].slots, &record)) {
			add += record.number;
			n++;
		}
	}
	rig->sum += add;
	rig->n_read += n;
	if (n < 1024)
		spr_bench_sleep_us(20);
	return 0;
}

const char *spr_bench_ck_missing(const struct spr_bench_arm *arm)
{
	(void)arm;
	return NULL;
}

const struct spr_bench_carrier spr_bench_ck = {
	.name = "ck_ring", .open = ck_open, .read = ck_read, .attach = ck_attach, .write = ck_write,
};

#else

const char *spr_bench_ck_missing(const struct spr_bench_arm *arm)
{
	(void)arm;
	return "built without Concurrency Kit (install libck-dev, then make again)";
}

const struct spr_bench_carrier spr_bench_ck = { .name = "ck_ring" };

#endif
