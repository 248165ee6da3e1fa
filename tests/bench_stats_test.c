/* SPDX-License-Identifier: MIT */
/* bench_stats_test.c - the medians, intervals and orders that every bench figure rests on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "bench/stats.h"

static void median_of_a_known_list_is_known(void **state)
{
	const double odd[] = { 9, 1, 5 };
	const double even[] = { 4, 1, NAN, 3, 2 };

	(void)state;
	assert_true(spr_bench_median_of(odd, 3).median == 5);
	assert_true(spr_bench_median_of(even, 5).median == 2.5);
	assert_int_equal(spr_bench_median_of(even, 5).n, 4);
	assert_true(isnan(spr_bench_median_of(odd, 0).median));
}

static void too_few_values_are_not_called_sure(void **state)
{
	const double values[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };

	(void)state;
	assert_false(spr_bench_median_of(values, 5).sure);
	assert_true(spr_bench_median_of(values, 5).high == 5);
	/* The tables of the sign test: n = 6 needs the range, n = 9 may drop one on each side. */
	assert_true(spr_bench_median_of(values, 6).sure);
	assert_true(spr_bench_median_of(values, 6).low == 1);
	assert_true(spr_bench_median_of(values, 9).low == 2);
	assert_true(spr_bench_median_of(values, 9).high == 8);
}

static double uniform(uint64_t *seed)
{
	return (double)(spr_bench_random(seed) >> 11) / 9007199254740992.0;
}

/* Of 2,000 samples of a lopsided distribution at least 95 % of the intervals hold the true median
 * (exactly, P = 97.9 % for 11 values), and not nearly all: an interval that always holds is no
 * interval. */
static void intervals_hold_the_true_median_as_often_as_they_say(void **state)
{
	uint64_t seed = 20;
	unsigned n_held = 0;

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		double values[12];
		struct spr_bench_median m;

		for (unsigned k = 0; k < 12; k++)
			values[k] = pow(uniform(&seed), 3); /* its median is 1/8 */
		m = spr_bench_median_of(values, 12);
		n_held += m.low <= 0.125 && 0.125 <= m.high;
	}
	print_message("held %u of 2000\n", n_held);
	assert_in_range(n_held, 1900, 1980);
}

static void a_shuffle_is_a_permutation_and_its_seed_repeats_it(void **state)
{
	unsigned a[50], b[50], seen[50] = { 0 }, n_moved = 0;
	uint64_t seed = 7, again = 7;

	(void)state;
	spr_bench_shuffle(a, 50, &seed);
	spr_bench_shuffle(b, 50, &again);
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(a[i], b[i]);
		seen[a[i]]++;
		n_moved += a[i] != i;
	}
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(seen[i], 1);
	assert_true(n_moved > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(median_of_a_known_list_is_known),
		cmocka_unit_test(too_few_values_are_not_called_sure),
		cmocka_unit_test(intervals_hold_the_true_median_as_often_as_they_say),
		cmocka_unit_test(a_shuffle_is_a_permutation_and_its_seed_repeats_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
