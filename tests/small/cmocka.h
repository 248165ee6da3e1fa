/* SPDX-License-Identifier: MIT */
/*
 * cmocka.h - as much of cmocka as our tests use, for machines that have none of it: the tests of
 * the ring cross-compiled and run under qemu-user (make aarch64). Same names, same TAP output. On a
 * machine with cmocka the real one is used.
 */
#ifndef SPR_TESTS_SMALL_CMOCKA_H
#define SPR_TESTS_SMALL_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*test_func)(void **state);
	int (*setup_func)(void **state);
	int (*teardown_func)(void **state);
	void *initial_state;
};
#define cmocka_unit_test(f)                            { #f, f, NULL, NULL, NULL }
#define cmocka_unit_test_setup_teardown(f, setup, end) { #f, f, setup, end, NULL }

/* How a case ends early. */
#define SMALL_FAILED  1
#define SMALL_SKIPPED 2
extern jmp_buf small_end;
jmp_buf small_end __attribute__((weak));

__attribute__((noreturn, unused)) static void small_fail(const char *file, int line,
                                                         const char *format, ...)
{
	va_list args;

	printf("# ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n# %s:%d: error: Failure!\n", file, line);
	longjmp(small_end, SMALL_FAILED);
}

#define small_assert(holds, ...) \
	((holds) ? (void)0 : small_fail(__FILE__, __LINE__, __VA_ARGS__))
#define small_n(x) ((unsigned long long)(x))
#define fail_msg(...)  small_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail()         small_fail(__FILE__, __LINE__, "fail()")
#define skip()         longjmp(small_end, SMALL_SKIPPED)
#define print_message(...) printf(__VA_ARGS__)
#define assert_true(x)  small_assert(x, "%s", #x)
#define assert_false(x) small_assert(!(x), "not: %s", #x)
#define assert_null(x)     small_assert((x) == NULL, "not null: %s", #x)
#define assert_non_null(x) small_assert((x) != NULL, "null: %s", #x)
/* As cmocka: both sides become the largest integer, once evaluated. */
#define assert_int_equal(a, b) \
	do { \
		const unsigned long long small_a = small_n(a), small_b = small_n(b); \
		small_assert(small_a == small_b, "%#llx != %#llx", small_a, small_b); \
	} while (0)
#define assert_int_not_equal(a, b) small_assert(small_n(a) != small_n(b), "%s == %s", #a, #b)
#define assert_ptr_equal(a, b)     small_assert((a) == (b), "%s != %s", #a, #b)
#define assert_ptr_not_equal(a, b) small_assert((a) != (b), "%s == %s", #a, #b)
#define assert_in_range(x, low, high) \
	do { \
		const unsigned long long small_x = small_n(x); \
		small_assert(small_x >= small_n(low) && small_x <= small_n(high), \
		             "%llu is not within the range %llu-%llu", small_x, small_n(low), \
		             small_n(high)); \
	} while (0)
#define assert_string_equal(a, b) \
	do { \
		const char *small_a = (a), *small_b = (b); \
		small_assert(strcmp(small_a, small_b) == 0, "\"%s\" != \"%s\"", small_a, small_b); \
	} while (0)
#define assert_string_not_equal(a, b) small_assert(strcmp((a), (b)) != 0, "%s == %s", #a, #b)
#define assert_memory_equal(a, b, n)  small_assert(memcmp((a), (b), (n)) == 0, "%s differs", #a)

typedef int (*small_group)(void **state);

__attribute__((unused)) static int small_run(const struct CMUnitTest *tests, size_t n,
                                             small_group setup, small_group teardown)
{
	volatile int n_failed = 0;
	void *group = NULL;

	if (setup && setup(&group)) {
		printf("1..%zu\n# the group's setup failed\n", n);
		return 1;
	}
	printf("1..%zu\n", n);
	for (volatile size_t i = 0; i < n; i++) {
		const struct CMUnitTest *t = &tests[i];
		void *state = t->initial_state;
		const int ended = setjmp(small_end);

		fflush(stdout);
		if (!ended) {
			if (t->setup_func && t->setup_func(&state))
				small_fail(t->name, 0, "setup");
			t->test_func(&state);
		}
		if (t->teardown_func)
			t->teardown_func(&state);
		n_failed += ended == SMALL_FAILED;
		printf(ended == SMALL_SKIPPED ? "not ok %zu # SKIP %s\n" :
		       ended ? "not ok %zu - %s\n" : "ok %zu - %s\n", i + 1, t->name);
	}
	if (teardown && teardown(&group))
		n_failed++;
	fflush(stdout);
	return n_failed;
}
#define cmocka_run_group_tests(tests, setup, teardown) \
	small_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
	((void)(name), small_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown))
#define cmocka_set_test_filter(pattern) ((void)(pattern))

#endif /* SPR_TESTS_SMALL_CMOCKA_H */
