/* SPDX-License-Identifier: MIT */
/* arena.c - a shared arena with one fetch-add per record; and plain memcpy into a mapped file. */
#include "bench/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel_abi.h"

struct arena {
	_Alignas(64) _Atomic uint64_t claimed; /* bytes, by everybody */
	_Alignas(64) char bytes[];
};

static int arena_map(struct spr_bench_rig *rig, int flags, void **out)
{
	const uint64_t n_bytes = rig->plan->capacity_bytes;
	const int fd = open(rig->address, O_RDWR | O_CLOEXEC | flags, 0600);
	int err = 0;

	if (fd < 0)
		return -errno;
	if ((flags & O_CREAT) && ftruncate(fd, (off_t)n_bytes))
		err = -errno;
	*out = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*out == MAP_FAILED)
		err = -errno;
	close(fd);
	if (!err && rig->plan->warm &&
	    madvise(*out, n_bytes, MADV_POPULATE_WRITE))
		err = -errno;
	return err;
}

static int arena_open(struct spr_bench_rig *rig)
{
	snprintf(rig->address, sizeof(rig->address), "%s/arena-%d", rig->plan->place, getpid());
	return arena_map(rig, O_CREAT | O_EXCL, &rig->shared);
}

static int arena_attach(struct spr_bench_rig *rig, unsigned idx)
{
	return arena_map(rig, 0, &rig->mine[idx]);
}

static int arena_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	struct arena *arena = rig->mine[idx];
	const uint64_t room = rig->plan->capacity_bytes - sizeof(*arena);
	struct spr_bench_record record = { 0, { 0 } };

	for (uint64_t i = 0; i < n; i++) {
		const uint64_t need = 8 + sizeof(record);
		const uint64_t at = spr_add_relaxed(&arena->claimed, need);
		_Atomic uint64_t *length = (_Atomic uint64_t *)(void *)(arena->bytes + at);

		if (at + need > room)
			return -ENOSPC;
		record.number = first + i;
		memcpy(length + 1, &record, sizeof(record));
		spr_store_release(length, sizeof(record)); /* [ARENA] */
	}
	return 0;
}

static int arena_read(struct spr_bench_rig *rig)
{
	struct arena *arena = rig->shared;
	const uint64_t end = spr_load_relaxed(&arena->claimed);
	uint64_t at = 0;

	if (spr_load_acquire(&rig->n_done) < rig->plan->writers) { /* [DONE] */
		spr_bench_sleep_us(200);
		return 0;
	}
	rig->late_cpu_ns = spr_bench_cpu_ns();
	while (at < end) {
		_Atomic uint64_t *length = (_Atomic uint64_t *)(void *)(arena->bytes + at);
		const uint64_t bytes = spr_load_acquire(length); /* [ARENA] */
		uint64_t number;

		memcpy(&number, length + 1, sizeof(number));
		rig->sum += number;
		rig->n_read++;
		at += 8 + bytes;
	}
	rig->late_cpu_ns = spr_bench_cpu_ns() - rig->late_cpu_ns;
	return 0;
}

static int arena_close(struct spr_bench_rig *rig)
{
	return unlink(rig->address) ? -errno : 0;
}

const struct spr_bench_carrier spr_bench_arena = {
	.name = "arena", .open = arena_open, .read = arena_read, .close = arena_close,
	.attach = arena_attach, .write = arena_write,
};

static int copy_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	struct spr_bench_record *to = rig->mine[idx];
	struct spr_bench_record record = { 0, { 0 } };

	for (uint64_t i = 0; i < n; i++) {
		record.number = first + i;
		memcpy(&to[i], &record, sizeof(record));
		__asm__ volatile("" : : "r"(&to[i]) : "memory");
	}
	return 0;
}

const struct spr_bench_carrier spr_bench_copy_file = {
	.name = "memcpy", .alone = true, .open = arena_open, .close = arena_close,
	.attach = arena_attach, .write = copy_write,
};
