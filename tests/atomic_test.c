/* SPDX-License-Identifier: MIT */
/*
 * atomic_test.c - the orders that the names promise, seen from outside: each pair of the header
 * carries data between two threads. Pairs of this file:
 *
 *   | pair  | release side         | acquire side          | carries        |
 *   | FLAG  | writer stores turn   | reader loads turn     | the plain data |
 *   | LOCK  | holder stores 0      | taker's CAS from 0    | the plain data |
 */
#include "tests/support.h"

#include <pthread.h>

#include "base/atomic.h"

#define ROUNDS 20000

static _Atomic uint64_t turn;
static uint64_t data[4]; /* plain: only the pair makes this no race */

static void *reader(void *arg)
{
	uint64_t *n_wrong = arg;

	for (uint64_t i = 1; i < 2 * ROUNDS; i += 2) {
		while (spr_load_acquire(&turn) != i) /* [FLAG] */
			spr_cpu_relax();
		for (int j = 0; j < 4; j++)
			*n_wrong += data[j] != i;
		spr_store_release(&turn, i + 1); /* [FLAG] */
	}
	return NULL;
}

static void release_and_acquire_carry_data(void **state)
{
	uint64_t n_wrong = 0;
	pthread_t thread;

	(void)state;
	spr_store_relaxed(&turn, 0);
	assert_int_equal(pthread_create(&thread, NULL, reader, &n_wrong), 0);
	for (uint64_t i = 1; i < 2 * ROUNDS; i += 2) {
		while (spr_load_acquire(&turn) != i - 1) /* [FLAG] */
			spr_cpu_relax();
		for (int j = 0; j < 4; j++)
			data[j] = i;
		spr_store_release(&turn, i); /* [FLAG] */
	}
	pthread_join(thread, NULL);
	assert_int_equal(n_wrong, 0);
}

static _Atomic uint32_t lock;
static uint64_t sum;

static void *adder(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t expected = 0;

		while (!spr_cas_acquire(&lock, &expected, 1)) { /* [LOCK] */
			expected = 0;
			spr_cpu_relax();
		}
		sum++;
		spr_store_release(&lock, 0); /* [LOCK] */
	}
	return arg;
}

static void compare_and_swap_makes_a_lock(void **state)
{
	pthread_t threads[2];

	(void)state;
	sum = 0;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, adder, NULL), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(sum, 2 * ROUNDS);
}

static void compare_and_swap_tells_what_it_found(void **state)
{
	_Atomic uint32_t word = 5;
	uint32_t expected = 4;

	(void)state;
	assert_false(spr_cas_relaxed(&word, &expected, 9));
	assert_int_equal(expected, 5);
	assert_true(spr_cas_relaxed(&word, &expected, 9));
	assert_int_equal(spr_load_relaxed(&word), 9);
}

static void fetching_verbs_return_what_was_there(void **state)
{
	_Atomic uint32_t word = 5;

	(void)state;
	assert_int_equal(spr_add_relaxed(&word, 3), 5);
	assert_int_equal(spr_load_relaxed(&word), 8);
	spr_full_fence(); /* [FLAG] */
	spr_compiler_barrier();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(release_and_acquire_carry_data),
		cmocka_unit_test(compare_and_swap_makes_a_lock),
		cmocka_unit_test(compare_and_swap_tells_what_it_found),
		cmocka_unit_test(fetching_verbs_return_what_was_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
