/* SPDX-License-Identifier: MIT */
/*
 * embedded.c - a channel without a collector: everybody writes, then seal, then walk in place. What
 * a record costs on pages that are there and on pages that are touched for the first time, against
 * an arena with one shared counter and against memcpy into the same kind of file.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "bench/arena.h"
#include "bench/ring_carrier.h"

#define EMBEDDED_RECORDS (2u << 20) /* of all writers: 151 MB */

enum { EMBEDDED_WRITE_NS, EMBEDDED_READ_NS };
static const struct spr_bench_figure figures_[] = {
	{ "ns_per_record", "ns/record felt" },
	{ "read_ns_per_record", "ns/record read" },
};

/* Make every page of the mapped file that /proc/self/maps calls *.ring exist, and map it: what a
 * writer would find that had written it all before. */
static int mapping_warm(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 128];
	int err = -ENOENT;

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;
		char mode[8];

		if (!strstr(line, ".ring") || sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 ||
		    mode[1] != 'w')
			continue;
		err = madvise((void *)from, to - from, MADV_POPULATE_WRITE) ? -errno : 0;
	}
	if (maps)
		fclose(maps);
	return err;
}

static int ring_open_warm(struct spr_bench_rig *rig)
{
	const int err = spr_bench_ring_open(rig);

	return err || !rig->plan->warm ? err : mapping_warm();
}

static int ring_attach_warm(struct spr_bench_rig *rig, unsigned idx)
{
	int err = spr_bench_ring_attach(rig, idx);

	if (!err && rig->plan->warm)
		err = mapping_warm();
	return err;
}

static int ring_walk(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;
	spr_batch *batch = NULL;
	int more;

	if (spr_load_acquire(&rig->n_done) < rig->plan->writers) { /* [DONE] */
		spr_bench_sleep_us(200);
		return 0;
	}
	rig->late_cpu_ns = spr_bench_cpu_ns();
	more = spr_channel_seal(ring->channel);
	while (more >= 0 && (more = spr_channel_walk(ring->channel, &batch)) > 0)
		spr_bench_batch_count(rig, batch);
	rig->late_cpu_ns = spr_bench_cpu_ns() - rig->late_cpu_ns;
	return more;
}

static const struct spr_bench_carrier embedded_ring = {
	.name = "ring",
	.open = ring_open_warm,
	.read = ring_walk,
	.close = spr_bench_ring_close,
	.attach = ring_attach_warm,
	.write = spr_bench_ring_write,
};

static int embedded_measure(const struct spr_bench_arm *arm, double *figures)
{
	static struct spr_bench_plan plan;
	struct spr_bench_rig *rig;
	int err;

	plan = *(const struct spr_bench_plan *)arm->arg;
	plan.place = spr_bench_tmpfs();
	plan.records = EMBEDDED_RECORDS / plan.writers;
	plan.capacity_bytes = 256u << 20;
	plan.bursts = 1;
	err = spr_bench_rig_run(&plan, &rig);
	if (err)
		return err;
	figures[EMBEDDED_WRITE_NS] = 0;
	for (unsigned i = 0; i < plan.writers; i++)
		figures[EMBEDDED_WRITE_NS] += rig->writer[i].wall_ns / (double)plan.records /
		                              plan.writers;
	if (rig->late_cpu_ns > 0)
		figures[EMBEDDED_READ_NS] = rig->late_cpu_ns / EMBEDDED_RECORDS;
	return 0;
}

#define EMBEDDED_ARM(text, scheme, carry, n_writers, is_warm) \
	{ .name = (text), .measure = embedded_measure, .transport = (scheme), \
	  .mode = "embedded", .record_bytes = 64, .writers = (n_writers), \
	  .arg = &(const struct spr_bench_plan){ .carrier = &(carry), .writers = (n_writers), \
		.threads = true, .warm = (is_warm), .flags = SPR_UNSTAMPED } }

static const struct spr_bench_arm arms[] = {
	EMBEDDED_ARM("memcpy, warm", "floor", spr_bench_copy_file, 1, true),
	EMBEDDED_ARM("memcpy, first touch", "floor", spr_bench_copy_file, 1, false),
	EMBEDDED_ARM("arena, warm", "arena", spr_bench_arena, 1, true),
	EMBEDDED_ARM("arena, first touch", "arena", spr_bench_arena, 1, false),
	EMBEDDED_ARM("arena, warm, 2 threads", "arena", spr_bench_arena, 2, true),
	EMBEDDED_ARM("arena, first touch, 2 threads", "arena", spr_bench_arena, 2, false),
	EMBEDDED_ARM("ring, warm", "ring", embedded_ring, 1, true),
	EMBEDDED_ARM("ring, first touch", "ring", embedded_ring, 1, false),
	EMBEDDED_ARM("ring, warm, 2 threads", "ring", embedded_ring, 2, true),
	EMBEDDED_ARM("ring, first touch, 2 threads", "ring", embedded_ring, 2, false),
};

static const struct spr_bench_claim claims[] = {
	{ .what = "ring / memcpy, warm", .a = "ring, warm", .b = "memcpy, warm" },
	{ .what = "ring / arena, warm", .a = "ring, warm", .b = "arena, warm" },
	{ .what = "ring / arena, warm, 2 threads", .a = "ring, warm, 2 threads",
	  .b = "arena, warm, 2 threads" },
	{ .what = "ring / memcpy, first touch", .a = "ring, first touch",
	  .b = "memcpy, first touch" },
	{ .what = "ring / arena, first touch", .a = "ring, first touch",
	  .b = "arena, first touch" },
	{ .what = "ring / arena, first touch, 2 threads", .a = "ring, first touch, 2 threads",
	  .b = "arena, first touch, 2 threads" },
	{ .what = "reading: ring / arena", .figure = EMBEDDED_READ_NS, .a = "ring, warm",
	  .b = "arena, warm" },
};

static const struct spr_bench_group groups[] = {
	{ .name = "embedded", .question = "without a collector: write, seal, walk in place",
	  .rounds = 7, .floor = "memcpy, warm", .figures = figures_, .n_figures = 2,
	  .arms = arms, .n_arms = SPR_BENCH_N(arms),
	  .claims = claims, .n_claims = SPR_BENCH_N(claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("embedded", groups, SPR_BENCH_N(groups), argc, argv);
}
