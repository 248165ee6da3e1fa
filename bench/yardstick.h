/* SPDX-License-Identifier: MIT */
/*
 * yardstick.h - what our ring is measured against: the plainest fast thing one would write instead.
 *
 * A byte ring with one writer and one reader in a file of its own that both map. The writer keeps
 * its head private and publishes it every 32 records, so a record is neither visible nor safe at
 * once; it knows nothing of threads, forks, sleep, growth, death or hostile bytes. When the ring is
 * full the writer pauses, then yields the CPU; the reader naps when it finds little. Pairs:
 *
 *   | pair      | release side  | acquire side          | carries                     |
 *   | YARD_HEAD | writer: head  | reader: head          | the records' bytes          |
 *   | YARD_TAIL | reader: tail  | writer: tail, if full | reads done before overwrite |
 */
#ifndef SPR_BENCH_YARDSTICK_H
#define SPR_BENCH_YARDSTICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/atomic.h"

#define SPR_BENCH_YARD_BYTES   (1u << 20)
#define SPR_BENCH_YARD_PUBLISH 32u
#define SPR_BENCH_YARD_PAD     UINT32_MAX

struct spr_bench_yard_head { /* the file's first page; the ring follows */
	_Alignas(64) _Atomic uint64_t head; /* writer publishes */
	_Alignas(64) _Atomic uint64_t tail; /* reader publishes */
	_Alignas(64) char fill[4096 - 128];
};

struct spr_bench_yard { /* one side's own */
	struct spr_bench_yard_head *shared;
	char    *bytes;
	uint64_t at;     /* head of the writer, tail of the reader, not yet published */
	uint64_t limit;  /* writer: up to where there is room, as last seen */
	uint32_t unpublished;
};

/* Map the ring in `path`; make: create the file first. 0 or -errno. */
int spr_bench_yard_open(struct spr_bench_yard *yard, const char *path, bool make);
/* Wait until `need` bytes from the head on are the writer's. */
void spr_bench_yard_await(struct spr_bench_yard *yard, uint64_t need);
/* Add up the records that are published, give back their room; number read. */
uint64_t spr_bench_yard_read(struct spr_bench_yard *yard, uint64_t *sum);

static inline void spr_bench_yard_publish(struct spr_bench_yard *yard)
{
	spr_store_release(&yard->shared->head, yard->at); /* [YARD_HEAD] */
	yard->unpublished = 0;
}

/* A record of at most a quarter of the ring. */
static inline void spr_bench_yard_write(struct spr_bench_yard *yard, const void *data,
                                        uint32_t bytes)
{
	const uint64_t need = 8 + ((bytes + 7ull) & ~7ull);
	uint64_t place = yard->at & (SPR_BENCH_YARD_BYTES - 1);
	const uint64_t pad = place + need > SPR_BENCH_YARD_BYTES ? SPR_BENCH_YARD_BYTES - place : 0;
	uint32_t *record;

	if (spr_unlikely(yard->at + pad + need > yard->limit))
		spr_bench_yard_await(yard, pad + need);
	if (spr_unlikely(pad)) {
		*(uint32_t *)(void *)(yard->bytes + place) = SPR_BENCH_YARD_PAD;
		yard->at += pad;
		place = 0;
	}
	record = (uint32_t *)(void *)(yard->bytes + place);
	record[0] = bytes;
	memcpy(record + 2, data, bytes);
	yard->at += need;
	if (++yard->unpublished == SPR_BENCH_YARD_PUBLISH)
		spr_bench_yard_publish(yard);
}

#endif /* SPR_BENCH_YARDSTICK_H */
