/* SPDX-License-Identifier: MIT */
/* yardstick.c - the plain ring's slow path and its reader. */
#include "bench/yardstick.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

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
