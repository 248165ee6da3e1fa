/* SPDX-License-Identifier: MIT */
/* stats.c - medians, their intervals by order statistics, a seeded shuffle. */
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>

static int value_compare(const void *a, const void *b)
{
	const double x = *(const double *)a;
	const double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The largest k for which the k-th smallest and k-th largest of n values enclose the median with at
 * least 95 %: P(Bin(n, 1/2) < k) <= 2.5 %. 0 if even the range does not. */
static size_t interval_rank(size_t n)
{
	double term = pow(0.5, (double)n); /* P(Bin == 0); the sum below is P(Bin <= k) */
	double below = term;
	size_t k = 0;

	while (k < n / 2 && below <= 0.025) {
		k++;
		term *= (double)(n - k + 1) / (double)k;
		below += term;
	}
	return k;
}

struct spr_bench_median spr_bench_median_of(const double *values, size_t n)
{
	struct spr_bench_median out = { NAN, NAN, NAN, 0, false };
	double *sorted = malloc((n + 1) * sizeof(*sorted));
	size_t rank;

	if (!sorted)
		return out;
	for (size_t i = 0; i < n; i++) {
		if (!isnan(values[i]))
			sorted[out.n++] = values[i];
	}
	n = out.n;
	if (n) {
		qsort(sorted, n, sizeof(*sorted), value_compare);
		rank = interval_rank(n);
		out.sure = rank > 0;
		out.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
		out.low = sorted[rank ? rank - 1 : 0];
		out.high = sorted[n - (rank ? rank : 1)];
	}
	free(sorted);
	return out;
}

uint64_t spr_bench_random(uint64_t *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return *seed * 0x2545F4914F6CDD1Dull;
}

void spr_bench_shuffle(unsigned *order, unsigned n, uint64_t *seed)
{
	for (unsigned i = 0; i < n; i++) {
		const unsigned j = (unsigned)(spr_bench_random(seed) % (i + 1));

		order[i] = order[j];
		order[j] = i;
	}
}
