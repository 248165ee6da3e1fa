/* SPDX-License-Identifier: MIT */
/*
 * rig.h - one reader, some writers (threads or processes), records of 64 bytes: the set-up that
 * every carrier of records is put through, ours and the ones it is compared with.
 *
 *   arm's process (reads)                   writers: one process, or one with a thread each
 *   carrier->open
 *   start them                              carrier->attach
 *   go                      ------------->  carrier->write n records, in one or many bursts
 *   carrier->read until all have come
 *
 * Pairs of the benches:
 *   GO         reader: go                  writer: go              what the reader set up
 *   DONE       writer: n_done              reader: n_done          the writer's results
 *   TURN       the thread that attaches    the others: turn        the process's producer
 *   YARD_HEAD  writer: head                reader: head            the yardstick's records
 *   YARD_TAIL  reader: tail                writer: tail            leave to overwrite them
 *   ARENA      writer: a record's length   reader, at the end      the record
 */
#ifndef SPR_BENCH_RIG_H
#define SPR_BENCH_RIG_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <sparring/sparring.h>

#include "base/atomic.h"
#include "bench/harness.h"

#define SPR_BENCH_WRITERS 16

struct spr_bench_record { /* what travels */
	uint64_t number; /* within its writer, from 0; the reader adds them up */
	uint64_t fill[7];
};

struct spr_bench_rig;

struct spr_bench_carrier {
	const char *name;
	bool alone; /* a floor: nothing travels, only attach and write are used */
	/* Reader's process, before the writers start. 0 or -errno. */
	int (*open)(struct spr_bench_rig *rig);
	/* Reader: everything that is there now, waiting a little if nothing is; adds to rig->n_read
	 * and rig->sum. 0 or -errno. */
	int (*read)(struct spr_bench_rig *rig);
	/* Reader, at the end: what the carrier itself knows (losses); 0 or -errno. */
	int (*close)(struct spr_bench_rig *rig);
	/* Writer's thread. */
	int (*attach)(struct spr_bench_rig *rig, unsigned idx);
	/* Records first .. first + n - 1, visible when it returns. */
	int (*write)(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n);
};

struct spr_bench_plan {
	const struct spr_bench_carrier *carrier;
	bool     threads;         /* writers are threads of one process */
	unsigned writers;
	uint64_t records;         /* per writer and burst */
	unsigned bursts, warm_up; /* 1, 0: a flood */
	uint32_t gap_us;          /* between the starts of two bursts */
	bool     one_cpu;         /* reader and writers share a CPU */
	bool     warm;            /* every page is there and mapped before the writers start */
	const char *place;        /* carriers that have a file: the folder */
	unsigned flags;           /* the carrier's own */
	uint64_t capacity_bytes;
	const struct spr_kind *kinds;
	uint32_t n_kinds;
};

struct spr_bench_rig { /* shared by reader and writers */
	const struct spr_bench_plan *plan;
	_Atomic uint32_t n_ready, go, n_done;
	_Atomic int32_t  err;         /* the first writer's that failed */
	uint64_t start_tick;          /* set before go */
	double   ns_per_tick;
	char     address[PATH_MAX];   /* carriers put there what their writers need */
	void    *shared;              /* or here, a mapping made in open */
	void    *mine[SPR_BENCH_WRITERS]; /* reader's or writer's own, per writer */
	void    *reader;
	uint64_t n_read, sum;
	uint64_t lost, stalls, wakes;
	uint64_t resident_bytes;      /* the most that was seen */
	uint64_t left_bytes;          /* at the end, where a bench waits for that */
	double   late_cpu_ns, late_ms; /* of a reader that comes when all is written */
	/* Results, each written by one. */
	struct {
		_Alignas(64) double cpu_ns, wall_ns; /* from go to its last record */
		double burst_ns;         /* per record, the median burst */
	} writer[SPR_BENCH_WRITERS];
	double read_cpu_ns, wall_ns;
};

/* A rig for this plan, shared with the processes forked from here on; NULL: no memory. */
struct spr_bench_rig *spr_bench_rig_make(const struct spr_bench_plan *plan);

/* Runs the plan in this process; *out stays valid until the process ends. 0 or -errno, with
 * spr_bench_say(). A carrier that lost, doubled or changed a record is an error. */
int spr_bench_rig_run(const struct spr_bench_plan *plan, struct spr_bench_rig **out);

/* CPU time of this process; ns. */
double spr_bench_cpu_ns(void);
/* Nanoseconds of one tick of spr_clock_ticks(), measured once (5 ms) per program. */
double spr_bench_ns_per_tick(void);
void   spr_bench_sleep_us(uint32_t us);
/* Sleeps of this thread end when they should, not up to 50 us later. For readers of our own making:
 * a collector of the library has the slack that its program has. */
void   spr_bench_sleep_exactly(void);

/* Floors: a memcpy of each record into a private 1 MiB buffer; that, and out again into another;
 * the clock alone, by the path a stamp takes. */
extern const struct spr_bench_carrier spr_bench_copy_in, spr_bench_copy_in_out, spr_bench_clock;
extern const struct spr_bench_carrier spr_bench_yardstick, spr_bench_ck;
/* Why Concurrency Kit cannot be measured, or NULL. */
const char *spr_bench_ck_missing(const struct spr_bench_arm *arm);

#endif /* SPR_BENCH_RIG_H */
