/* SPDX-License-Identifier: MIT */
/*
 * ring.c - what does a 64-byte record cost: felt by its writer in a burst, by everybody in a flood.
 */
#include <math.h>

#include "bench/rig.h"

#define BURST_RECORDS 512u
#define FLOOD_RECORDS (8u << 20) /* of all writers together */

/* --- Bursts: what an instrumented program feels ------------------------------------- */

enum { BURST_NS, BURST_CPU_NS };
static const struct spr_bench_figure burst_figures[] = {
	{ "ns_per_record", "ns/record felt" },
	{ "cpu_ns_per_record", "ns CPU/record, all" },
};

static int burst_measure(const struct spr_bench_arm *arm, double *figures)
{
	struct spr_bench_plan plan = *(const struct spr_bench_plan *)arm->arg;
	struct spr_bench_rig *rig;
	double felt = 0, cpu = 0;
	int err;

	plan.place = spr_bench_tmpfs();
	err = spr_bench_rig_run(&plan, &rig);
	if (err)
		return err;
	for (unsigned i = 0; i < plan.writers; i++) {
		felt += rig->writer[i].burst_ns;
		cpu += rig->writer[i].cpu_ns;
	}
	figures[BURST_NS] = felt / plan.writers;
	(void)cpu;
	return 0;
}

#define BURST(carry, n_writers) \
	&(const struct spr_bench_plan){ .carrier = &(carry), .writers = (n_writers), \
		.records = BURST_RECORDS, .bursts = 200, .warm_up = 20, .gap_us = 400 }
#define BURST_ARM(text, scheme, carry, n_writers) \
	{ .name = (text), .measure = burst_measure, .arg = BURST(carry, n_writers), \
	  .transport = (scheme), .mode = "burst", .record_bytes = 64, .writers = (n_writers) }

static const struct spr_bench_arm burst_arms[] = {
	BURST_ARM("memcpy", "floor", spr_bench_copy_in, 1),
	BURST_ARM("memcpy, 2 writers", "floor", spr_bench_copy_in, 2),
	BURST_ARM("clock", "floor", spr_bench_clock, 1),
	BURST_ARM("yardstick", "yardstick", spr_bench_yardstick, 1),
	BURST_ARM("yardstick, 2 writers", "yardstick", spr_bench_yardstick, 2),
	BURST_ARM("ck_ring", "ck", spr_bench_ck, 1),
	BURST_ARM("ck_ring, 2 writers", "ck", spr_bench_ck, 2),
};

static const struct spr_bench_claim burst_claims[] = {
	{ .what = "yardstick / memcpy", .a = "yardstick", .b = "memcpy" },
};

/* --- Floods: as fast as it goes, nothing lost --------------------------------------- */

enum { FLOOD_MREC, FLOOD_CPU_NS, FLOOD_FELT_NS };
static const struct spr_bench_figure flood_figures[] = {
	{ "mrec_per_s", "M records/s" },
	{ "cpu_ns_per_record", "ns CPU/record, all" },
	{ "ns_per_record", "ns/record felt" },
};

static int flood_measure(const struct spr_bench_arm *arm, double *figures)
{
	struct spr_bench_plan plan = *(const struct spr_bench_plan *)arm->arg;
	struct spr_bench_rig *rig;
	double cpu, felt = 0, n;
	int err;

	plan.place = spr_bench_tmpfs();
	plan.records = FLOOD_RECORDS / plan.writers;
	err = spr_bench_rig_run(&plan, &rig);
	if (err)
		return err;
	n = (double)plan.records * plan.writers;
	cpu = plan.carrier->alone ? 0 : rig->read_cpu_ns;
	for (unsigned i = 0; i < plan.writers; i++) {
		cpu += rig->writer[i].cpu_ns;
		felt += rig->writer[i].wall_ns / (double)plan.records / plan.writers;
	}
	figures[FLOOD_MREC] = 1e3 * n / (plan.carrier->alone ? rig->writer[0].wall_ns : rig->wall_ns);
	figures[FLOOD_CPU_NS] = cpu / n;
	figures[FLOOD_FELT_NS] = felt;
	return 0;
}

#define FLOOD(carry, n_writers, as_threads) \
	&(const struct spr_bench_plan){ .carrier = &(carry), .writers = (n_writers), \
		.threads = (as_threads), .bursts = 1 }
#define FLOOD_ARM(text, scheme, carry, n_writers, as_threads) \
	{ .name = (text), .measure = flood_measure, \
	  .arg = FLOOD(carry, n_writers, as_threads), .transport = (scheme), .mode = "flood", \
	  .record_bytes = 64, .writers = (n_writers) }

static const struct spr_bench_arm flood_arms[] = {
	FLOOD_ARM("memcpy in", "floor", spr_bench_copy_in, 1, false),
	FLOOD_ARM("memcpy in and out", "floor", spr_bench_copy_in_out, 1, false),
	FLOOD_ARM("yardstick, 1", "yardstick", spr_bench_yardstick, 1, false),
	FLOOD_ARM("yardstick, 2 processes", "yardstick", spr_bench_yardstick, 2, false),
	FLOOD_ARM("yardstick, 8 processes", "yardstick", spr_bench_yardstick, 8, false),
	FLOOD_ARM("yardstick, 2 threads", "yardstick", spr_bench_yardstick, 2, true),
	FLOOD_ARM("yardstick, 8 threads", "yardstick", spr_bench_yardstick, 8, true),
	FLOOD_ARM("ck_ring, 1", "ck", spr_bench_ck, 1, false),
	FLOOD_ARM("ck_ring, 8 processes", "ck", spr_bench_ck, 8, false),
};

static const struct spr_bench_claim flood_claims[] = {
	{ .what = "yardstick felt / memcpy in, 1 writer", .figure = FLOOD_FELT_NS,
	  .a = "yardstick, 1", .b = "memcpy in", .want = SPR_BENCH_AT_MOST, .target = 1.8 },
	{ .what = "ck_ring felt / memcpy in, 1 writer", .figure = FLOOD_FELT_NS,
	  .a = "ck_ring, 1", .b = "memcpy in" },
};

static const struct spr_bench_group groups[] = {
	{ .name = "burst", .question = "512 records of 64 bytes at an idle reader", .rounds = 7,
	  .floor = "memcpy", .figures = burst_figures, .n_figures = 1,
	  .arms = burst_arms, .n_arms = SPR_BENCH_N(burst_arms),
	  .claims = burst_claims, .n_claims = SPR_BENCH_N(burst_claims) },
	{ .name = "flood", .question = "records of 64 bytes, as fast as it goes, nothing lost",
	  .rounds = 7, .floor = "memcpy in and out", .figures = flood_figures, .n_figures = 3,
	  .arms = flood_arms, .n_arms = SPR_BENCH_N(flood_arms),
	  .claims = flood_claims, .n_claims = SPR_BENCH_N(flood_claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("ring", groups, SPR_BENCH_N(groups), argc, argv);
}
