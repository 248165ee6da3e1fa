/* SPDX-License-Identifier: MIT */
/*
 * ring_hostile.h - what both ring fuzzers share: input read byte by byte, a hand in the mapping,
 * and a kernel between the library and the real one.
 *
 * The hand writes where the protocol's words are, more often than anywhere. It acts between calls,
 * and also in the middle of one: at the n-th system call from now, or inside a sink's put. The
 * kernel puts a page without access before and behind each mapping of the ring, lets populate fail
 * when told to, does not wait, and moves the clock instead, so that a hang shows as a count.
 */
#ifndef SPR_TESTS_FUZZ_RING_HOSTILE_H
#define SPR_TESTS_FUZZ_RING_HOSTILE_H

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "shm/layout.h"

#define MUST(condition) \
	do { \
		if (!(condition)) \
			abort(); \
	} while (0)

/* --- Input --------------------------------------------------------------------------------- */

static const uint8_t *input_at, *input_end;

static uint8_t take(void)
{
	return input_at < input_end ? *input_at++ : 0;
}

static uint64_t take_n(unsigned n)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < n; i++)
		value |= (uint64_t)take() << 8 * i;
	return value;
}

/* --- The hand in the mapping --------------------------------------------------------------- */

static uint8_t *hand_map; /* the ring, mapped once more */
static uint64_t hand_bytes;
static struct spr_ring_geometry hand_geometry; /* as it was made */
static unsigned n_scribbles;

static uint64_t hand_place(void)
{
	static const uint16_t hot[] = {
		offsetof(struct spr_ring_header, gate),
		offsetof(struct spr_ring_header, bell),
		offsetof(struct spr_ring_header, present),
		offsetof(struct spr_ring_header, allowance),
		offsetof(struct spr_ring_header, lost_homeless),
		offsetof(struct spr_ring_header, confined),
		offsetof(struct spr_ring_header, low_slot),
		offsetof(struct spr_ring_header, low_hole),
		offsetof(struct spr_ring_header, waiters),
		offsetof(struct spr_ring_header, space),
		offsetof(struct spr_ring_header, slots_ready),
		offsetof(struct spr_ring_header, desc_ready),
		offsetof(struct spr_ring_header, clock_idx),
		offsetof(struct spr_ring_header, ready),
	};
	const struct spr_ring_geometry *g = &hand_geometry;
	const uint8_t what = take();
	const uint32_t cls = what >> 4 & 3;
	const uint32_t idx = take() % 4 % g->n_segments[cls];

	switch (what & 7) {
	case 0:
		return take_n(2) % 4096;
	case 1:
		return hot[take() % (sizeof(hot) / sizeof(hot[0]))] + idx * 4;
	case 2:
		return SPR_RING_SLOTS_AT + idx * sizeof(struct spr_ring_slot) + take() % 32;
	case 3:
		return SPR_RING_INUSE_AT + take_n(2) % (g->first[SPR_RING_CLASSES] / 8 + 8);
	case 4:
		return g->seg_at[cls] + (uint64_t)idx * spr_ring_class_bytes(cls) +
		       take_n(2) * 8 % spr_ring_class_bytes(cls);
	case 5:
		return take_n(4) % (hand_bytes - 8);
	default:
		return g->desc_at[cls] + idx * sizeof(struct spr_ring_desc) + take() % 16 * 8;
	}
}

static void scribble(void)
{
	static const uint64_t special[] = {
		0, 1, 2, 3, 8, 4096, 4104, 8192, 1ull << 32, UINT32_MAX, 1ull << 63, UINT64_MAX,
		UINT64_MAX - 7, INT64_MAX, 3ull | 1ull << 32, 3ull | 1ull << 8 | 1ull << 32,
	};
	const uint64_t at = hand_place();
	const uint8_t how = take();
	const unsigned size = 1u << (how & 3);
	uint64_t value = 0;

	if (!hand_map || at + 8 > hand_bytes)
		return;
	memcpy(&value, hand_map + at, size);
	if (how >> 2 & 1)
		value = special[take() % (sizeof(special) / sizeof(special[0]))];
	else if (how >> 3 & 1)
		value += (uint64_t)(int64_t)(int8_t)take() * 8;
	else if (how >> 4 & 1)
		value ^= 1ull << take() % 64;
	else
		value = take_n(size);
	memcpy(hand_map + at, &value, size);
	n_scribbles++;
}

/* The hand acts at the n-th moment from now; a moment is a system call, or a put. */
static unsigned moments_left;

static void moment(void)
{
	if (moments_left && --moments_left == 0)
		scribble();
}

/* --- The kernel ---------------------------------------------------------------------------- */

static struct mapping {
	uint8_t *at;
	size_t   bytes;
} mappings[16];
static unsigned populate_fails; /* so many of the next calls */
static bool everybody_dead;     /* no lock of a process is held */
static uint64_t clock_ns, n_waits;

#define EDGE 4096

static long kernel_map(long hint, long bytes, long prot, long flags, long fd, long at)
{
	const bool ring = fd >= 0 && bytes > EDGE;
	long base, ret;

	if (!ring)
		return spr_sys_raw(SYS_mmap, hint, bytes, prot, flags, fd, at);
	base = spr_sys_raw(SYS_mmap, 0, bytes + 2 * EDGE, PROT_NONE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(base > 0 || base < -4095);
	ret = spr_sys_raw(SYS_mmap, base + EDGE, bytes, prot, flags | MAP_FIXED, fd, at);
	MUST(ret == base + EDGE);
	for (size_t i = 0; i < 16; i++) {
		if (!mappings[i].at) {
			mappings[i] = (struct mapping){ (uint8_t *)ret, (size_t)bytes };
			return ret;
		}
	}
	abort();
}

static long kernel_unmap(long at, long bytes)
{
	for (size_t i = 0; i < 16; i++) {
		if (mappings[i].at != (uint8_t *)at)
			continue;
		mappings[i].at = NULL;
		return spr_sys_raw(SYS_munmap, at - EDGE, bytes + 2 * EDGE, 0, 0, 0, 0);
	}
	return spr_sys_raw(SYS_munmap, at, bytes, 0, 0, 0, 0);
}

/* Nobody sleeps: the time passes at once. Who waits for ever meets a collector that leaves. */
static long kernel_wait(const struct timespec *timeout, bool deadline)
{
	uint64_t ns = 1000000000u;

	if (timeout)
		ns = (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec;
	if (!timeout || !deadline)
		clock_ns += ns;
	else if (clock_ns < ns)
		clock_ns = ns;
	if (++n_waits > 1000 && hand_map) {
		const uint32_t gone = 0;

		memcpy(hand_map + offsetof(struct spr_ring_header, present), &gone, 4);
	}
	MUST(n_waits < 3000);
	return -ETIMEDOUT;
}

static long kernel_lock(long fd, long cmd, struct flock *lock)
{
	const bool process = lock->l_start >= (off_t)SPR_RING_LOCK_AT &&
	                     lock->l_start < (off_t)(SPR_RING_LOCK_AT + SPR_RING_SLOTS);

	if (process && everybody_dead && cmd == F_OFD_GETLK) {
		lock->l_type = F_UNLCK;
		return 0;
	}
	if (process && everybody_dead && cmd == F_OFD_SETLK)
		return 0;
	return spr_sys_raw(SYS_fcntl, fd, cmd, (long)lock, 0, 0, 0);
}

static long kernel(long nr, long a, long b, long c, long d, long e, long f)
{
	moment();
	switch (nr) {
	case SYS_mmap:
		return kernel_map(a, b, c, d, e, f);
	case SYS_munmap:
		return kernel_unmap(a, b);
	case SYS_futex:
		if ((b & 127) == FUTEX_WAIT || (b & 127) == FUTEX_WAIT_BITSET)
			return kernel_wait((const struct timespec *)d,
			                   (b & 127) == FUTEX_WAIT_BITSET);
		break;
	case SYS_clock_gettime:
		clock_ns += 100;
		*(struct timespec *)b = (struct timespec){ (time_t)(clock_ns / 1000000000u),
			                                   (long)(clock_ns % 1000000000u) };
		return 0;
	case SYS_madvise:
		if (c == MADV_POPULATE_WRITE && populate_fails) {
			populate_fails--;
			return -EFAULT;
		}
		break;
	case SYS_fcntl:
		if (b == F_OFD_GETLK || b == F_OFD_SETLK)
			return kernel_lock(a, b, (struct flock *)c);
		break;
	default:
		break;
	}
	return spr_sys_raw(nr, a, b, c, d, e, f);
}

/* The library's mapping that p lies in; NULL: in none. */
static __attribute__((unused)) const struct mapping *mapping_of(const void *p)
{
	for (size_t i = 0; i < 16; i++) {
		if (mappings[i].at && (const uint8_t *)p >= mappings[i].at &&
		    (const uint8_t *)p < mappings[i].at + mappings[i].bytes)
			return &mappings[i];
	}
	return NULL;
}

/* --- A place, and the hand's way in -------------------------------------------------------- */

static char place[64];

static void place_remove(void)
{
	rmdir(place);
}

static void place_make(void)
{
	if (place[0])
		return;
	strcpy(place, access("/dev/shm", W_OK) ? "/tmp/fuzz-ring-XXXXXX"
	                                       : "/dev/shm/fuzz-ring-XXXXXX");
	MUST(mkdtemp(place));
	atexit(place_remove);
}

static void hand_open(const char *path)
{
	struct spr_ring_header header;
	struct stat st;
	const int fd = open(path, O_RDWR | O_CLOEXEC);

	MUST(fd >= 0 && fstat(fd, &st) == 0 &&
	     pread(fd, &header, sizeof(header), 0) == sizeof(header));
	MUST(spr_ring_geometry_init(&hand_geometry, header.n_segments));
	hand_bytes = (uint64_t)st.st_size;
	hand_map = mmap(NULL, hand_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(hand_map != MAP_FAILED);
	close(fd);
}

static void hand_close(void)
{
	munmap(hand_map, hand_bytes);
	hand_map = NULL;
}

static void hostile_begin(const unsigned char *bytes, size_t n)
{
	place_make();
	input_at = bytes;
	input_end = bytes + n;
	moments_left = populate_fails = n_scribbles = 0;
	n_waits = 0;
	everybody_dead = false;
	if (!clock_ns)
		clock_ns = 1000000000000u;
	spr_sys_hook = kernel;
}

#endif /* SPR_TESTS_FUZZ_RING_HOSTILE_H */
