/* SPDX-License-Identifier: MIT */
/* yard_carrier.c - the yardstick as a carrier: a ring, hence a file, per writer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/rig.h"
#include "bench/yardstick.h"

static int yards_open(struct spr_bench_rig *rig)
{
	struct spr_bench_yard *yards = calloc(rig->plan->writers, sizeof(*yards));
	char path[PATH_MAX + 32];
	int err = yards ? 0 : -ENOMEM;

	spr_bench_sleep_exactly();
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
