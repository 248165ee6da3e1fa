/* SPDX-License-Identifier: MIT */
/*
 * backlog.c - 1 GiB that nobody read for a while: what does it cost to drain, how soon is the
 * memory given back, and how much stays.
 */
#include <errno.h>

#include <sys/statvfs.h>

#include "bench/ring_carrier.h"

#define BACKLOG_RECORDS (15u << 20) /* of 72 bytes, with its header: 1.05 GiB */

enum { BACKLOG_DRAIN_NS, BACKLOG_WRITE_NS, BACKLOG_PEAK_MIB, BACKLOG_LEFT_KIB, BACKLOG_GIVE_MS };
static const struct spr_bench_figure figures_[] = {
	{ "ns_per_record", "ns CPU/record drained" },
	{ "write_ns_per_record", "ns/record written" },
	{ "peak_mib", "MiB resident before" },
	{ "resident_kib", "KiB resident after" },
	{ "give_back_ms", "ms until below 16 MiB" },
};

/* Nobody reads until everything has been written: then a collector comes. */
static int late_read(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;

	if (spr_load_acquire(&rig->n_done) < rig->plan->writers) { /* [DONE] */
		spr_bench_sleep_us(1000);
		return 0;
	}
	if (!ring->collector) {
		const int err = spr_bench_ring_collect(rig, NULL);

		if (err)
			return err;
		spr_bench_ring_resident(rig);
		rig->late_cpu_ns = spr_bench_cpu_ns();
		rig->late_ms = spr_bench_now_ns() / 1e6;
	}
	return spr_bench_ring_read(rig);
}

/* Wait for the holes: until below 16 MiB, then half a second more for what is left. */
static int late_close(struct spr_bench_rig *rig)
{
	const double from = spr_bench_now_ns() / 1e6;
	double below = 0;
	int err = 0;

	rig->late_cpu_ns = spr_bench_cpu_ns() - rig->late_cpu_ns;
	while (!err && spr_bench_now_ns() / 1e6 - from < 20000 &&
	       (below == 0 || spr_bench_now_ns() / 1e6 - below < 500)) {
		struct spr_bench_ring *ring = rig->reader;
		const int64_t n = spr_collector_step(ring->collector, 20);

		err = n < 0 ? (int)n : 0;
		rig->left_bytes = spr_bench_ring_resident(rig);
		if (below == 0 && rig->left_bytes < 16u << 20)
			below = spr_bench_now_ns() / 1e6;
	}
	rig->late_ms = below - rig->late_ms;
	return err ? err : spr_bench_ring_close(rig);
}

static const struct spr_bench_carrier late = {
	.name = "ring", .open = spr_bench_ring_open, .read = late_read, .close = late_close,
	.attach = spr_bench_ring_attach, .write = spr_bench_ring_write,
};

static int backlog_measure(const struct spr_bench_arm *arm, double *figures)
{
	const char *(*const place)(void) = *(const char *(*const *)(void))arm->arg;
	const struct spr_bench_plan plan = {
		.carrier = &late, .writers = 1, .records = BACKLOG_RECORDS, .bursts = 1,
		.flags = SPR_UNSTAMPED, .capacity_bytes = 5ull << 28, .place = place(),
	};
	struct spr_bench_rig *rig;
	const int err = spr_bench_rig_run(&plan, &rig);

	if (err)
		return err;
	figures[BACKLOG_DRAIN_NS] = rig->late_cpu_ns / BACKLOG_RECORDS;
	figures[BACKLOG_WRITE_NS] = rig->writer[0].wall_ns / BACKLOG_RECORDS;
	figures[BACKLOG_PEAK_MIB] = (double)rig->resident_bytes / (1 << 20);
	figures[BACKLOG_LEFT_KIB] = (double)rig->left_bytes / 1024;
	figures[BACKLOG_GIVE_MS] = rig->late_ms;
	return 0;
}

static const char *room_missing(const struct spr_bench_arm *arm)
{
	const char *(*const place)(void) = *(const char *(*const *)(void))arm->arg;
	struct statvfs fs;

	if (!place() || statvfs(place(), &fs))
		return "no folder of this kind of file system (/dev/shm, /var/tmp)";
	if ((uint64_t)fs.f_bavail * fs.f_frsize < 3ull << 29)
		return "less than 1.5 GiB free there";
	return NULL;
}

static const char *(*const on_tmpfs)(void) = spr_bench_tmpfs;
static const char *(*const on_disk)(void) = spr_bench_disk;

static const struct spr_bench_arm arms[] = {
	{ .name = "tmpfs", .measure = backlog_measure, .missing = room_missing, .arg = &on_tmpfs,
	  .transport = "ring", .mode = "backlog", .record_bytes = 64, .writers = 1 },
	{ .name = "ext4", .measure = backlog_measure, .missing = room_missing, .arg = &on_disk,
	  .transport = "ring", .mode = "backlog", .record_bytes = 64, .writers = 1 },
};

static const struct spr_bench_claim claims[] = {
	{ .what = "KiB resident after, tmpfs", .figure = BACKLOG_LEFT_KIB, .a = "tmpfs",
	  .want = SPR_BENCH_AT_MOST, .target = 16384 },
	{ .what = "KiB resident after, ext4", .figure = BACKLOG_LEFT_KIB, .a = "ext4",
	  .want = SPR_BENCH_AT_MOST, .target = 16384 },
};

static const struct spr_bench_group groups[] = {
	{ .name = "backlog", .question = "1 GiB drained", .rounds = 2,
	  .figures = figures_, .n_figures = SPR_BENCH_N(figures_),
	  .arms = arms, .n_arms = SPR_BENCH_N(arms),
	  .claims = claims, .n_claims = SPR_BENCH_N(claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("backlog", groups, SPR_BENCH_N(groups), argc, argv);
}
