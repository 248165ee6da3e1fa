/* SPDX-License-Identifier: MIT */
/*
 * ring.c - what does a 64-byte record cost: felt by its writer in a burst, by everybody in a flood;
 * and what of the file stays in memory meanwhile.
 */
#include "bench/ring_carrier.h"

#define BURST_RECORDS 512u
#define FLOOD_RECORDS (8u << 20) /* of all writers together */

static int plan_run(const struct spr_bench_arm *arm, struct spr_bench_plan *plan,
                    struct spr_bench_rig **rig)
{
	*plan = *(const struct spr_bench_plan *)arm->arg;
	plan->place = spr_bench_tmpfs();
	if (!plan->records)
		plan->records = FLOOD_RECORDS / plan->writers;
	return spr_bench_rig_run(plan, rig);
}

/* --- Bursts: what an instrumented program feels ------------------------------------- */

/* The median burst of each writer, and the mean of the writers. */
static int burst_measure(const struct spr_bench_arm *arm, double *figures)
{
	static struct spr_bench_plan plan;
	struct spr_bench_rig *rig;
	const int err = plan_run(arm, &plan, &rig);

	if (err)
		return err;
	figures[0] = 0;
	for (unsigned i = 0; i < plan.writers; i++)
		figures[0] += rig->writer[i].burst_ns / plan.writers;
	figures[1] = (double)rig->wakes / (plan.bursts + plan.warm_up);
	return 0;
}

static const struct spr_bench_figure burst_figures[] = {
	{ "ns_per_record", "ns/record felt" },
	{ "wakes_per_burst", "bells rung/burst" },
};

/* A reader naps for a while after the last record; 60 ms later it sleeps. */
#define DOZING   .bursts = 200, .warm_up = 20, .gap_us = 400
#define SLEEPING .bursts = 15, .warm_up = 3, .gap_us = 60000
#define BURST_ARM(text, scheme, carry, n_writers, ...) \
	{ .name = (text), .measure = burst_measure, .transport = (scheme), .mode = "burst", \
	  .record_bytes = 64, .writers = (n_writers), \
	  .arg = &(const struct spr_bench_plan){ .carrier = &(carry), .writers = (n_writers), \
		.records = BURST_RECORDS, __VA_ARGS__ } }
#define CK_MISSING .missing = spr_bench_ck_missing

static const struct spr_bench_arm burst_arms[] = {
	BURST_ARM("memcpy", "floor", spr_bench_copy_in, 1, DOZING),
	BURST_ARM("memcpy, rare", "floor", spr_bench_copy_in, 1, SLEEPING),
	BURST_ARM("clock", "floor", spr_bench_clock, 1, DOZING),
	BURST_ARM("yardstick", "yardstick", spr_bench_yardstick, 1, DOZING),
	BURST_ARM("yardstick, 2 writers", "yardstick", spr_bench_yardstick, 2, DOZING),
	BURST_ARM("ck_ring", "ck", spr_bench_ck, 1, DOZING),
	BURST_ARM("ring", "ring", spr_bench_ring, 1, .flags = SPR_UNSTAMPED, DOZING),
	BURST_ARM("ring, 2 writers", "ring", spr_bench_ring, 2, .flags = SPR_UNSTAMPED, DOZING),
	BURST_ARM("ring, 2 threads", "ring", spr_bench_ring, 2, .flags = SPR_UNSTAMPED,
	          .threads = true, DOZING),
	BURST_ARM("ring, reserve and commit", "ring", spr_bench_ring_slot, 1,
	          .flags = SPR_UNSTAMPED, DOZING),
	BURST_ARM("ring, inline", "ring", spr_bench_ring_inline, 1, .flags = SPR_UNSTAMPED, DOZING),
	BURST_ARM("ring, sleeping collector", "ring", spr_bench_ring, 1, .flags = SPR_UNSTAMPED,
	          SLEEPING),
	BURST_ARM("ring, one CPU", "ring", spr_bench_ring, 1, .flags = SPR_UNSTAMPED,
	          .one_cpu = true, DOZING),
	BURST_ARM("ring stamped", "ring", spr_bench_ring, 1, DOZING),
	BURST_ARM("ring stamped, inline", "ring", spr_bench_ring_inline, 1, DOZING),
	BURST_ARM("ring stamped, one CPU", "ring", spr_bench_ring, 1, .one_cpu = true, DOZING),
};

static const struct spr_bench_claim burst_claims[] = {
	{ .what = "yardstick / memcpy", .a = "yardstick", .b = "memcpy" },
	{ .what = "ring / memcpy", .a = "ring", .b = "memcpy",
	  .want = SPR_BENCH_AT_MOST, .target = 1.3 },
	{ .what = "ring / yardstick", .a = "ring", .b = "yardstick" },
	{ .what = "ring, 2 writers / 1 writer", .a = "ring, 2 writers", .b = "ring",
	  .want = SPR_BENCH_AT_MOST, .target = 1.15 },
	{ .what = "ring, 2 threads / 1 writer", .a = "ring, 2 threads", .b = "ring",
	  .want = SPR_BENCH_AT_MOST, .target = 1.15 },
	{ .what = "sleeping collector: wakes per burst", .figure = 1,
	  .a = "ring, sleeping collector", .want = SPR_BENCH_AT_MOST, .target = 1 },
	{ .what = "sleeping collector less memcpy as rare, ns/record",
	  .a = "ring, sleeping collector", .a_less = "memcpy, rare" },
	{ .what = "stamped less clock, reader on the same CPU, ns",
	  .a = "ring stamped, one CPU", .a_less = "clock",
	  .want = SPR_BENCH_AT_MOST, .target = 4 },
	{ .what = "stamped / (clock + unstamped), reader elsewhere",
	  .a = "ring stamped", .b = "ring", .b_more = "clock",
	  .want = SPR_BENCH_AT_MOST, .target = 1 },
	{ .what = "inline / out of line", .a = "ring, inline", .b = "ring" },
	{ .what = "inline / out of line, stamped", .a = "ring stamped, inline",
	  .b = "ring stamped" },
};

/* --- Floods: as fast as it goes, nothing lost --------------------------------------- */

enum { FLOOD_MREC, FLOOD_CPU_NS, FLOOD_READ_NS, FLOOD_FELT_NS, FLOOD_RESIDENT };
static const struct spr_bench_figure flood_figures[] = {
	{ "mrec_per_s", "M records/s" },
	{ "cpu_ns_per_record", "ns CPU/record, all" },
	{ "read_cpu_ns_per_record", "ns CPU/record, reader" },
	{ "ns_per_record", "ns/record felt" },
};

static int flood_measure(const struct spr_bench_arm *arm, double *figures)
{
	static struct spr_bench_plan plan;
	struct spr_bench_rig *rig;
	const int err = plan_run(arm, &plan, &rig);
	double cpu, felt = 0, n;

	if (err)
		return err;
	n = (double)plan.records * plan.writers;
	cpu = plan.carrier->alone ? 0 : rig->read_cpu_ns;
	for (unsigned i = 0; i < plan.writers; i++) {
		cpu += rig->writer[i].cpu_ns;
		felt += rig->writer[i].wall_ns / (double)plan.records / plan.writers;
	}
	figures[FLOOD_MREC] = 1e3 * n /
	                      (plan.carrier->alone ? rig->writer[0].wall_ns : rig->wall_ns);
	figures[FLOOD_CPU_NS] = cpu / n;
	if (!plan.carrier->alone)
		figures[FLOOD_READ_NS] = rig->read_cpu_ns / n;
	figures[FLOOD_FELT_NS] = felt;
	if (rig->resident_bytes)
		figures[FLOOD_RESIDENT] = (double)rig->resident_bytes / 1024;
	return 0;
}

#define FLOOD_ARM(text, scheme, carry, n_writers, ...) \
	{ .name = (text), .measure = flood_measure, .transport = (scheme), .mode = "flood", \
	  .record_bytes = 64, .writers = (n_writers), \
	  .arg = &(const struct spr_bench_plan){ .carrier = &(carry), .writers = (n_writers), \
		.bursts = 1, __VA_ARGS__ } }
#define UNSTAMPED .flags = SPR_UNSTAMPED

static const struct spr_bench_arm flood_arms[] = {
	FLOOD_ARM("memcpy in", "floor", spr_bench_copy_in, 1),
	FLOOD_ARM("memcpy in and out", "floor", spr_bench_copy_in_out, 1),
	FLOOD_ARM("yardstick, 1", "yardstick", spr_bench_yardstick, 1),
	FLOOD_ARM("yardstick, 2 processes", "yardstick", spr_bench_yardstick, 2),
	FLOOD_ARM("yardstick, 2 threads", "yardstick", spr_bench_yardstick, 2, .threads = true),
	FLOOD_ARM("yardstick, 8 processes", "yardstick", spr_bench_yardstick, 8),
	FLOOD_ARM("yardstick, 8 threads", "yardstick", spr_bench_yardstick, 8, .threads = true),
	FLOOD_ARM("ck_ring, 1", "ck", spr_bench_ck, 1),
	FLOOD_ARM("ck_ring, 8 processes", "ck", spr_bench_ck, 8),
	FLOOD_ARM("ring, 1", "ring", spr_bench_ring, 1, UNSTAMPED),
	FLOOD_ARM("ring, 2 processes", "ring", spr_bench_ring, 2, UNSTAMPED),
	FLOOD_ARM("ring, 2 threads", "ring", spr_bench_ring, 2, .threads = true, UNSTAMPED),
	FLOOD_ARM("ring, 8 processes", "ring", spr_bench_ring, 8, UNSTAMPED),
	FLOOD_ARM("ring, 8 threads", "ring", spr_bench_ring, 8, .threads = true, UNSTAMPED),
	FLOOD_ARM("ring, 1, inline", "ring", spr_bench_ring_inline, 1, UNSTAMPED),
	FLOOD_ARM("ring, 1, stamped", "ring", spr_bench_ring, 1),
};

#define AGAINST_YARDSTICK(how) \
	{ .what = "ring / yardstick, M records/s, " how, .figure = FLOOD_MREC, \
	  .a = "ring, " how, .b = "yardstick, " how, .want = SPR_BENCH_AT_LEAST, .target = 1 }
#define AGAINST_ONE(how) \
	{ .what = "ring, " how " / 1, M records/s", .figure = FLOOD_MREC, \
	  .a = "ring, " how, .b = "ring, 1", .want = SPR_BENCH_AT_LEAST, .target = 0.9 }
/* The target was set against twice the copy in; a real copy out, from a cache, is cheaper. */
#define CPU_OF_ALL(how) \
	{ .what = "CPU of everybody / twice memcpy in, " how, .figure = FLOOD_CPU_NS, \
	  .a = "ring, " how, .b = "memcpy in", .b_more = "memcpy in", \
	  .want = SPR_BENCH_AT_MOST, .target = 1.4 }, \
	{ .what = "CPU of everybody / memcpy in and out, " how, .figure = FLOOD_CPU_NS, \
	  .a = "ring, " how, .b = "memcpy in and out", .want = SPR_BENCH_AT_MOST, .target = 1.4 }

static const struct spr_bench_claim flood_claims[] = {
	{ .what = "the yardstick itself: felt / memcpy in, 1 writer", .figure = FLOOD_FELT_NS,
	  .a = "yardstick, 1", .b = "memcpy in", .want = SPR_BENCH_AT_MOST, .target = 1.8 },
	{ .what = "ck_ring: felt / memcpy in, 1 writer", .figure = FLOOD_FELT_NS,
	  .a = "ck_ring, 1", .b = "memcpy in" },
	AGAINST_YARDSTICK("1"), AGAINST_YARDSTICK("2 processes"), AGAINST_YARDSTICK("2 threads"),
	AGAINST_YARDSTICK("8 processes"), AGAINST_YARDSTICK("8 threads"),
	AGAINST_ONE("8 processes"), AGAINST_ONE("8 threads"),
	CPU_OF_ALL("1"), CPU_OF_ALL("2 processes"), CPU_OF_ALL("8 processes"),
	{ .what = "CPU of everybody: ring / yardstick, 1", .figure = FLOOD_CPU_NS,
	  .a = "ring, 1", .b = "yardstick, 1" },
	{ .what = "inline / out of line, felt", .figure = FLOOD_FELT_NS,
	  .a = "ring, 1, inline", .b = "ring, 1" },
};

/* --- Memory: what of the file stays, the collector keeping up ------------------------- */

static const struct spr_bench_figure memory_figures[] = {
	{ "mrec_per_s", "M records/s" },
	{ "cpu_ns_per_record", "ns CPU/record, all" },
	{ "read_cpu_ns_per_record", "ns CPU/record, reader" },
	{ "ns_per_record", "ns/record felt" },
	{ "resident_kib", "KiB resident, most" },
};

static const struct spr_bench_arm memory_arms[] = {
	FLOOD_ARM("ring, 1", "ring", spr_bench_ring_watched, 1, UNSTAMPED),
	FLOOD_ARM("ring, 2 processes", "ring", spr_bench_ring_watched, 2, UNSTAMPED),
	FLOOD_ARM("ring, 8 processes", "ring", spr_bench_ring_watched, 8, UNSTAMPED),
};

static const struct spr_bench_claim memory_claims[] = {
	{ .what = "flood of one writer: KiB resident, at most", .figure = FLOOD_RESIDENT,
	  .a = "ring, 1", .want = SPR_BENCH_AT_MOST, .target = 16384 },
	{ .what = "flood of two writers", .figure = FLOOD_RESIDENT, .a = "ring, 2 processes" },
	{ .what = "flood of eight writers", .figure = FLOOD_RESIDENT, .a = "ring, 8 processes" },
};

#define GROUP(text, asks, what, base, n_rounds) \
	{ .name = (text), .question = (asks), .rounds = (n_rounds), .floor = (base), \
	  .figures = what##_figures, .n_figures = SPR_BENCH_N(what##_figures), \
	  .arms = what##_arms, .n_arms = SPR_BENCH_N(what##_arms), \
	  .claims = what##_claims, .n_claims = SPR_BENCH_N(what##_claims) }

static const struct spr_bench_group groups[] = {
	GROUP("burst", "512 records of 64 bytes at an idle reader", burst, "memcpy", 7),
	GROUP("flood", "records of 64 bytes, as fast as it goes, nothing lost", flood,
	      "memcpy in and out", 7),
	GROUP("memory", "what of the ring stays in memory in a flood", memory, NULL, 3),
};

int main(int argc, char **argv)
{
	return spr_bench_main("ring", groups, SPR_BENCH_N(groups), argc, argv);
}
