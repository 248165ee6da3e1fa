/* SPDX-License-Identifier: MIT */
/*
 * stats.h - the little statistics a bench needs: medians, their 95 % intervals, a seeded shuffle.
 */
#ifndef SPR_BENCH_STATS_H
#define SPR_BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A median and where the true one lies with at least 95 % confidence (order statistics: nothing is
 * assumed of the distribution). Fewer than six values cannot say that: low and high are then the
 * whole range and `sure` is false. */
struct spr_bench_median {
	double median, low, high;
	size_t n;
	bool   sure;
};

/* Values that are NAN are left out; n == 0 gives NAN. */
struct spr_bench_median spr_bench_median_of(const double *values, size_t n);

/* xorshift64*: the same numbers for the same seed, on every machine. seed must not be 0. */
uint64_t spr_bench_random(uint64_t *seed);

/* order becomes a permutation of 0 .. n-1. */
void spr_bench_shuffle(unsigned *order, unsigned n, uint64_t *seed);

#endif /* SPR_BENCH_STATS_H */
