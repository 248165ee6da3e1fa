/* SPDX-License-Identifier: MIT */
/* clock.c - calibrate the time stamp counter against CLOCK_MONOTONIC, or decide not to use it. */
#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/probe.h"
#include "base/sys.h"

#if defined(__x86_64__)
#include <cpuid.h>
#define KERNEL_SOURCE "tsc\n"
#else
#define KERNEL_SOURCE "arch_sys_counter\n"
#endif

#define BRACKETS         48     /* tries per point; the narrowest one counts */
#define CALIBRATE_NS     900000 /* between the two points that give the slope */
#define CHECK_NS         200000 /* from there to the point that must confirm it */
#define BRACKET_MAX_NS   5000    /* wider: we were interrupted every time */
#define DISAGREE_MAX_NS  200
#define ROUNDS           4

struct point {
	uint64_t ticks, ns, width_ticks;
};

/* The counter and the clock at one moment: the clock between two readings of the counter, as
 * close together as they come. */
static struct point point_take(void)
{
	struct point best = { 0, 0, UINT64_MAX };

	for (int i = 0; i < BRACKETS; i++) {
		const uint64_t before = spr_clock_ticks();
		const uint64_t ns = spr_clock_monotonic_ns();
		const uint64_t width = spr_clock_ticks() - before;

		if (width < best.width_ticks)
			best = (struct point){ before + width / 2, ns, width };
	}
	return best;
}

static void wait_ns(long ns)
{
	const struct timespec nap = { 0, ns };

	spr_sys(SYS_nanosleep, &nap, NULL);
}

static bool kernel_trusts_counter(void)
{
	char name[32] = "";
	const int fd = (int)spr_sys(
		SYS_openat, AT_FDCWD,
		"/sys/devices/system/clocksource/clocksource0/current_clocksource",
		O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	const long n = spr_sys(SYS_read, fd, name, sizeof(name) - 1);
	spr_sys(SYS_close, fd);
	return n > 0 && strcmp(name, KERNEL_SOURCE) == 0;
}

static bool counter_is_invariant(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
#else
	return true; /* the generic timer is, by architecture */
#endif
}

static bool calibrate(struct spr_clock *clock)
{
	const struct point start = point_take();

	wait_ns(CALIBRATE_NS);
	const struct point end = point_take();
	if (end.ticks <= start.ticks || end.ns <= start.ns)
		return false;
	clock->kind = SPR_CLOCK_TSC;
	clock->tsc0 = start.ticks;
	clock->ns0 = start.ns;
	clock->mult = (uint64_t)(((unsigned __int128)(end.ns - start.ns) << 32) /
	                         (end.ticks - start.ticks));
	wait_ns(CHECK_NS);
	const struct point check = point_take();
	const uint64_t told =
		clock->ns0 +
		(uint64_t)(((unsigned __int128)(check.ticks - start.ticks) * clock->mult) >> 32);
	const uint64_t off = told > check.ns ? told - check.ns : check.ns - told;
	const uint64_t width_ns = (end.width_ticks * clock->mult) >> 32;

	return off <= DISAGREE_MAX_NS && width_ns <= BRACKET_MAX_NS;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct spr_clock ours;

static void calibrate_once(void)
{
	if (spr_disabled("tsc") || !counter_is_invariant() || !kernel_trusts_counter())
		return;
	for (int round = 0; round < ROUNDS; round++) {
		if (calibrate(&ours))
			return;
	}
	memset(&ours, 0, sizeof(ours));
}

void spr_clock_init(struct spr_clock *clock)
{
	pthread_once(&once, calibrate_once);
	*clock = ours;
}
