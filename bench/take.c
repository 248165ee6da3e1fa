/* SPDX-License-Identifier: MIT */
/*
 * take.c - taking records in place, out of the mapping, or reading them from the file: what does a
 * record cost the collector? With a backlog that waits, and in a flood that it keeps up with; and,
 * beneath it, what one read of 64 KiB costs by each way there is to read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef SPR_NO_URING
#include <liburing.h>
#endif

#include "base/clock.h"
#include "bench/ring_carrier.h"

#define BACKLOG_RECORDS (2u << 20) /* 150 MB */
#define FLOOD_RECORDS   (6u << 20)

struct way {
	const char *(*place)(void);
	uint32_t flags; /* the collector's */
};

static uint32_t collector_flags; /* of the arm, in the arm's own process */

static int take_collect(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;
	struct spr_sink count = SPR_SINK_INIT;
	const int err = spr_collector_open(&ring->collector, collector_flags);

	count.arg = rig;
	count.put = spr_bench_batch_count;
	return err ? err : spr_collector_add(ring->collector, ring->channel, &count);
}

static const char *place_missing(const struct spr_bench_arm *arm)
{
	const struct way *way = arm->arg;

	return way->place() ? NULL : "no folder of this kind of file system (/dev/shm, /var/tmp)";
}

/* --- A backlog --------------------------------------------------------------------------- */

static int late_read(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;

	if (spr_load_acquire(&rig->n_done) < rig->plan->writers) { /* [DONE] */
		spr_bench_sleep_us(1000);
		return 0;
	}
	if (!ring->collector) {
		const int err = take_collect(rig);

		if (err)
			return err;
		rig->late_cpu_ns = spr_bench_cpu_ns();
	}
	return spr_bench_ring_read(rig);
}

static int late_close(struct spr_bench_rig *rig)
{
	rig->late_cpu_ns = spr_bench_cpu_ns() - rig->late_cpu_ns;
	return spr_bench_ring_close(rig);
}

static const struct spr_bench_carrier late = {
	.name = "ring", .open = spr_bench_ring_open, .read = late_read, .close = late_close,
	.attach = spr_bench_ring_attach, .write = spr_bench_ring_write,
};

static int backlog_measure(const struct spr_bench_arm *arm, double *figures)
{
	const struct way *way = arm->arg;
	static struct spr_bench_plan plan = {
		.carrier = &late, .writers = 1, .records = BACKLOG_RECORDS, .bursts = 1,
		.flags = SPR_UNSTAMPED, .capacity_bytes = 1ull << 29,
	};
	struct spr_bench_rig *rig;

	plan.place = way->place();
	collector_flags = way->flags;
	const int err = spr_bench_rig_run(&plan, &rig);
	if (!err)
		figures[0] = rig->late_cpu_ns / BACKLOG_RECORDS;
	return err;
}

/* --- A flood ------------------------------------------------------------------------------ */

static int flood_open(struct spr_bench_rig *rig)
{
	const int err = spr_bench_ring_open(rig);

	return err ? err : take_collect(rig);
}

static const struct spr_bench_carrier flooded = {
	.name = "ring", .open = flood_open, .read = spr_bench_ring_read,
	.close = spr_bench_ring_close, .attach = spr_bench_ring_attach,
	.write = spr_bench_ring_write,
};

static int flood_measure(const struct spr_bench_arm *arm, double *figures)
{
	const struct way *way = arm->arg;
	static struct spr_bench_plan plan = {
		.carrier = &flooded, .writers = 1, .records = FLOOD_RECORDS, .bursts = 1,
		.flags = SPR_UNSTAMPED,
	};
	struct spr_bench_rig *rig;

	plan.place = way->place();
	collector_flags = way->flags;
	const int err = spr_bench_rig_run(&plan, &rig);
	if (err)
		return err;
	figures[0] = rig->read_cpu_ns / FLOOD_RECORDS;
	figures[1] = 1e3 * FLOOD_RECORDS / rig->wall_ns;
	return 0;
}

/* --- One read ------------------------------------------------------------------------------- */

#define PIECE_BYTES 65536u
#define N_PIECES    64u /* 4 MiB of file, in no cache but the kernel's */
#define N_READS     4096u
#define PER_PIECE   (PIECE_BYTES / 72.0) /* records */

struct piece {
	const char *(*place)(void);
	enum { PIECE_MAPPED, PIECE_PREAD, PIECE_URING } how;
};

static const char *piece_missing(const struct spr_bench_arm *arm)
{
	const struct piece *piece = arm->arg;

#ifdef SPR_NO_URING
	if (piece->how == PIECE_URING)
		return "built without liburing";
#endif
	return piece->place() ? NULL : "no folder of this kind of file system (/dev/shm, /var/tmp)";
}

/* As the collector looks at records: each one's first word. */
static uint64_t piece_walk(const unsigned char *bytes)
{
	uint64_t sum = 0, word;

	for (uint32_t at = 0; at + 72 <= PIECE_BYTES; at += 72) {
		memcpy(&word, bytes + at, sizeof(word));
		sum += word;
	}
	return sum;
}

#ifndef SPR_NO_URING
static int uring_read(struct io_uring *ring, int fd, void *into, off_t at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int ret;

	io_uring_prep_read(sqe, fd, into, PIECE_BYTES, (uint64_t)at);
	ret = io_uring_submit_and_wait(ring, 1);
	if (ret >= 0)
		ret = io_uring_wait_cqe(ring, &cqe);
	if (ret < 0)
		return ret;
	ret = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}
#endif

static int piece_file(const struct piece *piece)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/take", piece->place());
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	unlink(path);
	return fd;
}

static int piece_measure(const struct spr_bench_arm *arm, double *figures)
{
	const struct piece *piece = arm->arg;
	const int fd = piece_file(piece);
	static unsigned char into[PIECE_BYTES];
	uint64_t sum = 0;
	int ret = 0;

	memset(into, 1, sizeof(into));
	for (unsigned i = 0; i < N_PIECES; i++) {
		if (pwrite(fd, into, PIECE_BYTES, (off_t)i * PIECE_BYTES) != PIECE_BYTES)
			return spr_bench_say(-EIO, "cannot write 4 MiB");
	}
	unsigned char *map = mmap(NULL, (size_t)N_PIECES * PIECE_BYTES, PROT_READ,
	                          MAP_SHARED | MAP_POPULATE, fd, 0);
	if (map == MAP_FAILED)
		return -ENOMEM;
#ifndef SPR_NO_URING
	struct io_uring ring;
	if (piece->how == PIECE_URING && (ret = io_uring_queue_init(8, &ring, 0)) < 0)
		return spr_bench_say(ret, "no io_uring: %s", strerror(-ret));
#endif
	const double start = spr_bench_cpu_ns();
	const uint64_t tick = spr_clock_ticks();
	for (unsigned i = 0; i < N_READS && ret >= 0; i++) {
		const off_t at = (off_t)(i % N_PIECES) * PIECE_BYTES;

		if (piece->how == PIECE_PREAD)
			ret = (int)pread(fd, into, PIECE_BYTES, at);
#ifndef SPR_NO_URING
		else if (piece->how == PIECE_URING)
			ret = uring_read(&ring, fd, into, at);
#endif
		sum += piece_walk(piece->how == PIECE_MAPPED ? map + at : into);
	}
	figures[0] = (spr_bench_cpu_ns() - start) / N_READS / PER_PIECE;
	figures[1] = (double)(spr_clock_ticks() - tick) * spr_bench_ns_per_tick() / N_READS /
	             PER_PIECE;
	return ret < 0 ? spr_bench_say(ret, "a read failed") : sum ? 0 : -EIO;
}

/* --- Arms ------------------------------------------------------------------------------------ */

static const struct spr_bench_figure backlog_figures[] = {
	{ "ns_per_record", "ns CPU/record, collector" },
};
static const struct spr_bench_figure flood_figures[] = {
	{ "read_cpu_ns_per_record", "ns CPU/record, collector" },
	{ "mrec_per_s", "M records/s" },
};
static const struct spr_bench_figure piece_figures[] = {
	{ "ns_per_record", "ns CPU/record of 72 bytes" },
	{ "wall_ns_per_record", "ns/record" },
};

#define WAY_ARM(text, measure_, mode_, ...) \
	{ .name = (text), .measure = (measure_), .missing = place_missing, .transport = "ring", \
	  .mode = (mode_), .record_bytes = 64, .writers = 1, \
	  .arg = &(const struct way){ __VA_ARGS__ } }
#define WAY_ARMS(measure_, mode_) \
	WAY_ARM("in place, tmpfs", measure_, mode_, spr_bench_tmpfs, 0), \
	WAY_ARM("read, tmpfs", measure_, mode_, spr_bench_tmpfs, SPR_READ), \
	WAY_ARM("in place, disk", measure_, mode_, spr_bench_disk, 0), \
	WAY_ARM("read, disk", measure_, mode_, spr_bench_disk, SPR_READ), \
	WAY_ARM("read, disk, plain", measure_, mode_, spr_bench_disk, SPR_READ | SPR_PLAIN)

static const struct spr_bench_arm backlog_arms[] = { WAY_ARMS(backlog_measure, "backlog") };
static const struct spr_bench_arm flood_arms[] = { WAY_ARMS(flood_measure, "flood") };

#define PIECE_ARM(text, ...) \
	{ .name = (text), .measure = piece_measure, .missing = piece_missing, \
	  .transport = "file", .mode = "read", .record_bytes = 64, .writers = 0, \
	  .arg = &(const struct piece){ __VA_ARGS__ } }

static const struct spr_bench_arm piece_arms[] = {
	PIECE_ARM("mapped, tmpfs", spr_bench_tmpfs, PIECE_MAPPED),
	PIECE_ARM("pread, tmpfs", spr_bench_tmpfs, PIECE_PREAD),
	PIECE_ARM("io_uring, tmpfs", spr_bench_tmpfs, PIECE_URING),
	PIECE_ARM("mapped, disk", spr_bench_disk, PIECE_MAPPED),
	PIECE_ARM("pread, disk", spr_bench_disk, PIECE_PREAD),
	PIECE_ARM("io_uring, disk", spr_bench_disk, PIECE_URING),
};

static const struct spr_bench_claim take_claims[] = {
	{ .what = "read / in place, tmpfs", .a = "read, tmpfs", .b = "in place, tmpfs" },
	{ .what = "read / in place, disk", .a = "read, disk", .b = "in place, disk" },
	{ .what = "io_uring / pread, disk", .a = "read, disk", .b = "read, disk, plain" },
};
static const struct spr_bench_claim piece_claims[] = {
	{ .what = "io_uring / pread, tmpfs", .figure = 1, .a = "io_uring, tmpfs",
	  .b = "pread, tmpfs" },
	{ .what = "io_uring / pread, disk", .figure = 1, .a = "io_uring, disk",
	  .b = "pread, disk" },
};

static const struct spr_bench_group groups[] = {
	{ .name = "backlog", .question = "records that wait in the ring", .rounds = 3,
	  .figures = backlog_figures, .n_figures = SPR_BENCH_N(backlog_figures),
	  .arms = backlog_arms, .n_arms = SPR_BENCH_N(backlog_arms), .claims = take_claims,
	  .n_claims = SPR_BENCH_N(take_claims) },
	{ .name = "flood", .question = "records that keep coming", .rounds = 3,
	  .figures = flood_figures, .n_figures = SPR_BENCH_N(flood_figures),
	  .arms = flood_arms, .n_arms = SPR_BENCH_N(flood_arms), .claims = take_claims,
	  .n_claims = SPR_BENCH_N(take_claims) },
	{ .name = "pieces", .question = "64 KiB of a file, again and again", .rounds = 3,
	  .figures = piece_figures, .n_figures = SPR_BENCH_N(piece_figures),
	  .arms = piece_arms, .n_arms = SPR_BENCH_N(piece_arms), .claims = piece_claims,
	  .n_claims = SPR_BENCH_N(piece_claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("take", groups, SPR_BENCH_N(groups), argc, argv);
}
