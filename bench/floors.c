/* SPDX-License-Identifier: MIT */
/* floors.c - what cannot be beaten: copying the same bytes, and reading the clock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/rig.h"

#define BUFFER_RECORDS ((1u << 20) / sizeof(struct spr_bench_record))

struct copies {
	struct spr_bench_record in[BUFFER_RECORDS], out[BUFFER_RECORDS];
};

static int copy_attach(struct spr_bench_rig *rig, unsigned idx)
{
	struct copies *copies = aligned_alloc(64, sizeof(*copies));

	if (!copies)
		return -ENOMEM;
	memset(copies, 1, sizeof(*copies)); /* no first touch in what is timed */
	rig->mine[idx] = copies;
	return 0;
}

/* The compiler must not see through the copy. */
static inline void record_copy(struct spr_bench_record *to, const struct spr_bench_record *from)
{
	memcpy(to, from, sizeof(*to));
	__asm__ volatile("" : : "r"(to), "r"(from) : "memory");
}

static int copy_in_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	struct copies *copies = rig->mine[idx];
	struct spr_bench_record record = { 0, { 0 } };

	for (uint64_t i = first; i < first + n; i++) {
		record.number = i;
		record_copy(&copies->in[i % BUFFER_RECORDS], &record);
	}
	return 0;
}

static int copy_in_out_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	struct copies *copies = rig->mine[idx];

	for (uint64_t i = 0; i < n; i += BUFFER_RECORDS) {
		const uint64_t part = n - i < BUFFER_RECORDS ? n - i : BUFFER_RECORDS;

		copy_in_write(rig, idx, first + i, part);
		for (uint64_t k = 0; k < part; k++)
			record_copy(&copies->out[k], &copies->in[k]);
	}
	return 0;
}

static int clock_attach(struct spr_bench_rig *rig, unsigned idx)
{
	struct spr_clock *clock = malloc(sizeof(*clock));

	if (!clock)
		return -ENOMEM;
	spr_clock_init(clock);
	rig->mine[idx] = clock;
	return 0;
}

static int clock_read(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	const struct spr_clock *clock = rig->mine[idx];

	(void)first;
	for (uint64_t i = 0; i < n; i++) {
		const uint64_t now = spr_clock_now(clock);

		__asm__ volatile("" : : "r"(now) : "memory");
	}
	return 0;
}

const struct spr_bench_carrier spr_bench_copy_in = {
	.name = "memcpy in", .alone = true, .attach = copy_attach, .write = copy_in_write,
};

const struct spr_bench_carrier spr_bench_copy_in_out = {
	.name = "memcpy in and out", .alone = true, .attach = copy_attach,
	.write = copy_in_out_write,
};

const struct spr_bench_carrier spr_bench_clock = {
	.name = "clock", .alone = true, .attach = clock_attach, .write = clock_read,
};
