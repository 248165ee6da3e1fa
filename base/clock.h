/* SPDX-License-Identifier: MIT */
/*
 * clock.h - CLOCK_MONOTONIC in nanoseconds, by the time stamp counter where that is invariant.
 *
 * The collector calibrates once and publishes the result beside its ring, so that all producers
 * of a channel stamp on one scale; a clock is plain data and may be copied anywhere.
 */
#ifndef SPR_BASE_CLOCK_H
#define SPR_BASE_CLOCK_H

#include <stdint.h>

#define SPR_CLOCK_GETTIME 0u /* clock_gettime(CLOCK_MONOTONIC) through the vDSO or the kernel */
#define SPR_CLOCK_TSC     1u /* ns0 + ((tsc - tsc0) * mult >> 32) */
struct spr_clock { /* 32 bytes, lies in shared memory: load into a local before use */
	uint32_t kind;
	uint32_t reserved;
	uint64_t mult; /* nanoseconds per tick, 32.32 */
	uint64_t tsc0;
	uint64_t ns0;
};

/* Calibrate against CLOCK_MONOTONIC and cross-check (1 to 2 ms, once per process, then copied);
 * falls back to SPR_CLOCK_GETTIME where the counter is not invariant, is not the kernel's clock
 * source, disagrees, or SPARRING_DISABLE has "tsc". T: any. */
void spr_clock_init(struct spr_clock *clock);

/* CLOCK_MONOTONIC by the kernel, without libc and without errno. T: any. S. */
uint64_t spr_clock_monotonic_ns(void);

static inline uint64_t spr_clock_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#endif
}

/* Now, on `clock`'s scale. T: any. S. */
static inline uint64_t spr_clock_now(const struct spr_clock *clock)
{
	if (__builtin_expect(clock->kind != SPR_CLOCK_TSC, 0))
		return spr_clock_monotonic_ns();
	return clock->ns0 +
	       (uint64_t)(((unsigned __int128)(spr_clock_ticks() - clock->tsc0) * clock->mult) >>
	                  32);
}

#endif /* SPR_BASE_CLOCK_H */
