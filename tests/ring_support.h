/* SPDX-License-Identifier: MIT */
/*
 * ring_support.h - what the attack tests of the ring share: records that carry their own proof, a
 * tally that outlives whoever wrote into it, a sink that checks everything it is given.
 *
 *   child (a producer)                          test program (the collector)
 *     put_record() --- ring ------------------->  check: order per writer, gaps, checksums
 *        \---- tally (shared memory) ---------->  rig_expect_exact(): the sums
 *
 * A record's counter is taken while it is open (after reserve, before commit), by an atomic add on
 * memory that a handler and a vfork child share; so within one lane the counters only grow, and
 * over all lanes of a source each number comes at most once.
 *
 * Pairs, in memory that test and children share:
 *   | NOTE     | who says: note          | who waits: note     | what the test wants known |
 *   | OPEN     | collector: is_open      | test: is_open       | the address |
 *   | HELD     | either: the word        | the other: the word | whose turn it is |
 *   | CLAIMED  | thread: its answer      | main thread: answer | that it has one |
 *   | RETURNED | writer: adds to committed | test: committed   | that commit has returned |
 */
#ifndef SPR_TESTS_RING_SUPPORT_H
#define SPR_TESTS_RING_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "tests/support.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

/* A segment goes from one thread to another by way of the collector, which is another process here:
 * ThreadSanitizer sees two threads write one place and nothing in between. */
#define TSAN_CANNOT_SEE_RECYCLING() \
	do { \
		if (UNDER_TSAN) \
			TEST_SKIP("segments are handed on by another process"); \
	} while (0)

/* --- Tally: what producers say they did, in memory that survives them ---------------- */

struct tally_line { /* one per source; a source is a thread of a producer, or a process */
	_Alignas(64) _Atomic uint64_t taken; /* counters handed out, one per reserve that worked */
	_Atomic uint64_t committed;          /* commit said 0 */
	_Atomic uint64_t dropped;            /* reserve said -EAGAIN */
	_Atomic uint64_t refused;            /* reserve or commit said -EPIPE */
	_Atomic uint64_t abandoned;          /* given up on purpose */
	_Atomic uint64_t other;              /* any other answer: a fault */
	_Atomic uint64_t note[2];            /* the test's own */
};

struct tally {
	uint64_t n_lines, map_bytes;
	struct tally_line line[];
};

struct tally *tally_open(uint32_t n_lines);
void tally_close(struct tally *t);
struct tally_line tally_sum(const struct tally *t);
/* Page-wise shared zeroed memory for a test's own words. */
void *shared_memory(size_t n_bytes);

/* --- Records -------------------------------------------------------------------------- */

#define RECORD_BYTES_MIN 24u

/* Reserve, take a counter, fill, commit; what came of it is in the tally and is the result. */
int put_record(spr_writer *w, struct tally *t, uint32_t source, uint32_t bytes);
/* The two halves, for what happens in between. */
int open_record(spr_writer *w, struct tally *t, uint32_t source, uint32_t bytes,
                struct spr_slot *slot);
int end_record(spr_writer *w, struct tally *t, uint32_t source, struct spr_slot *slot);
/* Under qemu-user (make aarch64): no store buffers to be seen, no ptrace, and slow. */
bool is_emulated(void);
/* quick or long variant of a count, divided under a sanitizer or an emulator. */
uint32_t test_count(uint32_t quick, uint32_t in_long);

/* --- Check: the sink that believes nothing --------------------------------------------- */

struct seen_writer {
	uint64_t writer, next_seq, delivered, counter_next, gaps, last_time_ns;
	uint32_t source;
	bool     used, is_gone;
	int32_t  pid, tid;
};

struct seen_source {
	uint64_t *bits;
	uint64_t  n_bits, delivered, highest; /* highest counter seen + 1 */
};

struct check {
	struct tally *tally;
	uint64_t n_records, n_bytes, n_batches, n_ticks, n_late, n_gone, n_faults;
	uint64_t gaps;                      /* in the sequence numbers of all writers */
	uint64_t gone_written, gone_lost;
	uint64_t until_ns;                  /* of the last tick */
	uint64_t n_blind;
	struct seen_writer *writers;        /* open addressing */
	uint64_t n_slots, n_writers;
	struct seen_source *sources;
	char     fault[256];                /* the first */
	bool     is_plain;                  /* records are not ours: look at sequences only */
	bool     is_resumed;                /* a writer's first record may have any sequence */
	bool     is_by_time;                /* no handlers: stamps within a lane only grow */
	bool is_unordered; /* counters within a lane may go back (abandoned ones) */
	uint32_t skip_one_at;               /* leave out this record once: a broken collector */
	int (*put_hook)(void *arg, spr_batch *b); /* first; not 0: its answer */
	void *put_arg;
};

void check_open(struct check *c, struct tally *t);
void check_close(struct check *c);
void check_sink(struct check *c, struct spr_sink *out);
void check_batch(struct check *c, spr_batch *b);
/* Did this source's record with this counter arrive? */
bool check_has(const struct check *c, uint32_t source, uint64_t counter);
struct seen_writer *check_writer(struct check *c, uint64_t writer);
void check_fault(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A folder of its own for a ring: in $SPARRING_TEST_FOLDER, else /dev/shm, else /tmp. */
void make_folder(char *folder, size_t room);

/* --- Rig: channel, collector, check, in a folder of its own ------------------------------ */

struct rig {
	spr_channel   *ch;
	spr_collector *c; /* NULL: embedded, sealed and walked */
	struct check   check;
	struct tally  *tally;
	char           folder[96];
	char           address[256];
	bool           is_sealed, is_drained;
	struct spr_stats stats; /* of the end */
};

#define RIG_EMBEDDED (1u << 0)
#define RIG_READ     (1u << 1)
#define RIG_PLAIN    (1u << 2)
/* opt NULL: capacity of 64 MiB, all else default. */
void rig_open(struct rig *r, uint32_t flags, const struct spr_channel_options *opt,
              uint32_t n_sources);
void rig_open_in(struct rig *r, const char *folder, uint32_t flags,
                 const struct spr_channel_options *opt, uint32_t n_sources);
/* A collector step; the number of records. */
int64_t rig_step(struct rig *r, int timeout_ms);
/* Steps until nothing came for one timeout. */
void rig_settle(struct rig *r, int quiet_ms);
/* Seal, and drain to the end (or walk); fills stats. */
void rig_finish(struct rig *r);
/* The sums: written == delivered + lost + pending; the sink's, the stats', the tally's. */
void rig_expect_exact(struct rig *r);
/* As above, for sources that were killed: one record in question each. */
void rig_expect_exact_after_kills(struct rig *r);
/* Channel closed, folder empty and removed. */
void rig_close(struct rig *r);
/* Step until these children have ended; kills them after a generous bound. Exit statuses. */
void rig_run(struct rig *r, const pid_t *pids, int *status, uint32_t n);
void rig_run_expecting_zero(struct rig *r, const pid_t *pids, uint32_t n);
uint64_t rig_resident(struct rig *r);

/* The ring's file, by name. */
const char *rig_path(const struct rig *r);
/* White box: segments and process slots that somebody owns now. */
uint32_t rig_segments_owned(const struct rig *r);
uint32_t rig_slots_taken(const struct rig *r);
/* Steps until both are 0 (collector running, everybody dead), or a generous bound. */
void rig_expect_all_back(struct rig *r);

/* --- Processes ---------------------------------------------------------------------------- */

/* Forked; dies with us; leaves by _exit(role(r, arg)). */
pid_t spawn(int (*role)(struct rig *r, uint32_t arg), struct rig *r, uint32_t arg);
int wait_for(pid_t pid); /* as waitpid's status */
void expect_exit(pid_t pid, int code);
/* For roles: attach or leave with a message. */
spr_producer *attach_or_exit(const char *address);
/* In a role: not true ends the child with a sentence, which is a failed test in the parent. */
#define CHILD_CHECK(cond) \
	do { \
		if (!(cond)) \
			child_failed(__FILE__, __LINE__, #cond); \
	} while (0)
void child_failed(const char *file, int line, const char *what) __attribute__((noreturn));

/* All of them, or $SPARRING_TEST_CASE alone (a pattern with * and ?). */
#define RUN_TESTS(tests, setup, teardown) \
	(cmocka_set_test_filter(getenv("SPARRING_TEST_CASE")), \
	 cmocka_run_group_tests(tests, setup, teardown))

void sleep_us(uint64_t us);
/* A user and mount namespace with a tmpfs of size_bytes at path, for the calling process (a
 * child). 0 or -errno: not allowed here. */
int enter_small_tmpfs(const char *path, uint64_t size_bytes);

#endif /* SPR_TESTS_RING_SUPPORT_H */
