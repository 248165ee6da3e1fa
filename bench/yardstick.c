/* SPDX-License-Identifier: MIT */
/* yardstick.c - the plain ring's slow path and its reader; as a carrier, one ring per writer. */
#include "bench/yardstick.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/rig.h"

#define FILE_BYTES (sizeof(struct spr_bench_yard_head) + SPR_BENCH_YARD_BYTES)

int spr_bench_yard_open(struct spr_bench_yard *yard, const char *path, bool make)
{
	const int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0), 0600);
	int err = 0;

	if (fd < 0)
		return -errno;
	memset(yard, 0, sizeof(*yard));
	if (make && ftruncate(fd, FILE_BYTES))
		err = -errno;
	yard->shared = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (yard->shared == MAP_FAILED)
		err = -errno;
	close(fd);
	yard->bytes = (char *)(yard->shared + 1);
	yard->limit = SPR_BENCH_YARD_BYTES;
	return err;
}

void spr_bench_yard_await(struct spr_bench_yard *yard, uint64_t need)
{
	unsigned n_looks = 0;

	for (;;) {
		yard->limit = spr_load_acquire(&yard->shared->tail) + /* [YARD_TAIL] */
		              SPR_BENCH_YARD_BYTES;
		if (yard->at + need <= yard->limit)
			return;
		/* What is written may be what the reader waits for. */
		if (yard->unpublished)
			spr_bench_yard_publish(yard);
		if (n_looks++ < 64)
			spr_cpu_relax();
		else
			sched_yield();
	}
}

uint64_t spr_bench_yard_read(struct spr_bench_yard *yard, uint64_t *sum)
{
	const uint64_t head = spr_load_acquire(&yard->shared->head); /* [YARD_HEAD] */
	uint64_t n = 0, add = 0;

	while (yard->at < head) {
		const uint64_t place = yard->at & (SPR_BENCH_YARD_BYTES - 1);
		const uint32_t *record = (const uint32_t *)(const void *)(yard->bytes + place);
		uint64_t number;

		if (record[0] == SPR_BENCH_YARD_PAD) {
			yard->at += SPR_BENCH_YARD_BYTES - place;
			continue;
		}
		memcpy(&number, record + 2, sizeof(number));
		add += number;
		n++;
		yard->at += 8 + ((record[0] + 7ull) & ~7ull);
	}
	*sum += add;
	spr_store_release(&yard->shared->tail, yard->at); /* [YARD_TAIL] */
	return n;
}

/* --- As a carrier ------------------------------------------------------------------ */

static int yards_open(struct spr_bench_rig *rig)
{
	struct spr_bench_yard *yards = calloc(rig->plan->writers, sizeof(*yards));
	char path[PATH_MAX + 32];
	int err = yards ? 0 : -ENOMEM;

	snprintf(rig->address, sizeof(rig->address), "%s/yard-%d", rig->plan->place, getpid());
	rig->reader = yards;
	for (unsigned i = 0; i < rig->plan->writers && !err; i++) {
		snprintf(path, sizeof(path), "%s-%u", rig->address, i);
		err = spr_bench_yard_open(&yards[i], path, true);
	}
	return err;
}

static int yards_read(struct spr_bench_rig *rig)
{
	struct spr_bench_yard *yards = rig->reader;
	uint64_t n = 0;

	for (unsigned i = 0; i < rig->plan->writers; i++)
		n += spr_bench_yard_read(&yards[i], &rig->sum);
	rig->n_read += n;
	/* Behind the writer, not at its heels: that would steal the lines it is writing. */
	if (n < 1024)
		spr_bench_sleep_us(20);
	return 0;
}

static int yards_close(struct spr_bench_rig *rig)
{
	char path[PATH_MAX + 32];

	for (unsigned i = 0; i < rig->plan->writers; i++) {
		snprintf(path, sizeof(path), "%s-%u", rig->address, i);
		unlink(path);
	}
	return 0;
}

static int yard_attach(struct spr_bench_rig *rig, unsigned idx)
{
	char path[PATH_MAX + 32];

	rig->mine[idx] = calloc(1, sizeof(struct spr_bench_yard));
	if (!rig->mine[idx])
		return -ENOMEM;
	snprintf(path, sizeof(path), "%s-%u", rig->address, idx);
	return spr_bench_yard_open(rig->mine[idx], path, false);
}

static int yard_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	struct spr_bench_yard *yard = rig->mine[idx];
	struct spr_bench_record record = { 0, { 0 } };

	for (uint64_t i = 0; i < n; i++) {
		record.number = first + i;
		spr_bench_yard_write(yard, &record, sizeof(record));
	}
	spr_bench_yard_publish(yard);
	return 0;
}

const struct spr_bench_carrier spr_bench_yardstick = {
	.name = "yardstick", .open = yards_open, .read = yards_read, .close = yards_close,
	.attach = yard_attach, .write = yard_write,
};
