/* SPDX-License-Identifier: MIT */
/* error_test.c - the sentence behind a number. */
#include "tests/support.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/error.h"

static void sentence_is_kept_and_number_returned(void **state)
{
	(void)state;
	assert_int_equal(spr_fail(-EPROTO, "%s: layout version %u, this library reads %u", "a.ring",
	                          3u, 2u), -EPROTO);
	assert_string_equal(spr_error_text(), "a.ring: layout version 3, this library reads 2");
}

static void system_words_stand_behind_the_sentence(void **state)
{
	(void)state;
	assert_int_equal(spr_fail_sys(-ENOSPC, "%s", "/tmp/x"), -ENOSPC);
	assert_string_equal(spr_error_text(), "/tmp/x: No space left on device");
	spr_fail_sys(-12345, "x");
	assert_string_equal(spr_error_text(), "x: error 12345");
}

static void number_without_sentence_gives_the_system_words(void **state)
{
	const char *volatile none = NULL;

	(void)state;
	spr_fail(-EACCES, none, 0);
	assert_string_equal(spr_error_text(), "Permission denied");
	spr_fail_clear();
	assert_string_equal(spr_error_text(), "no error");
}

static void words_are_those_of_libc(void **state)
{
	const char *volatile none = NULL;

	(void)state;
	for (int number = 1; number < 134; number++) {
		spr_fail(-number, none, 0);
		if (strncmp(spr_error_text(), "error ", 6) != 0)
			assert_string_equal(spr_error_text(), strerror(number));
	}
}

static void long_sentence_is_cut_at_a_whole_character(void **state)
{
	char text[2000];

	(void)state;
	for (size_t lead = 0; lead < 4; lead++) {
		memset(text, 'x', lead);
		for (size_t i = lead; i + 3 < sizeof(text); i += 3)
			memcpy(text + i, "\xe2\x82\xac", 4); /* the euro sign */
		spr_fail(-EINVAL, "%s", text);
		const size_t n = strlen(spr_error_text());
		assert_in_range(n, 509, 511);
		assert_int_equal((n - lead) % 3, 0);
		assert_memory_equal(spr_error_text(), text, n);
	}
}

static void sentence_may_quote_the_one_before(void **state)
{
	(void)state;
	spr_fail(-EIO, "inner %d", 1);
	spr_fail(-EIO, "outer: %s", spr_error_text());
	assert_string_equal(spr_error_text(), "outer: inner 1");
}

#define SAME_AS_PRINTF(...) \
	do { \
		char want[512]; \
		snprintf(want, sizeof(want), __VA_ARGS__); \
		spr_fail(-EINVAL, __VA_ARGS__); \
		assert_string_equal(spr_error_text(), want); \
	} while (0)

static void formats_are_those_of_printf(void **state)
{
	(void)state;
	SAME_AS_PRINTF("%d %i %u", -2147483647 - 1, 2147483647, 4294967295u);
	SAME_AS_PRINTF("%ld %lu %lld %llu", -5l, 5ul, -9223372036854775807ll - 1,
	               18446744073709551615ull);
	SAME_AS_PRINTF("%zu %zd %jd", (size_t)7, (ssize_t)-7, (intmax_t)-8);
	SAME_AS_PRINTF("%x %#x %08x %o %#o %llx", 0xabcu, 0xabcu, 0xabcu, 8u, 8u, 0xfull);
	SAME_AS_PRINTF("[%5d] [%-5d] [%05u] [%s] [%8s] [%-8s]", 42, 42, 42u, "a", "b", "c");
	SAME_AS_PRINTF("[%.3s] [%.*s] [%*s] [%c] [%%]", "abcdef", 2, "xyz", 6, "w", 'q');
}

static void *fail_elsewhere(void *arg)
{
	spr_fail(-EIO, "another thread's");
	return arg;
}

static void sentence_is_the_thread_s_own(void **state)
{
	pthread_t thread;

	(void)state;
	spr_fail(-EIO, "mine");
	assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
	pthread_join(thread, NULL);
	assert_string_equal(spr_error_text(), "mine");
}

static void errno_is_left_alone(void **state)
{
	(void)state;
	errno = 77;
	spr_fail_sys(-ENOENT, "%s", "x");
	spr_error_text();
	spr_fail_clear();
	assert_int_equal(errno, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sentence_is_kept_and_number_returned),
		cmocka_unit_test(system_words_stand_behind_the_sentence),
		cmocka_unit_test(number_without_sentence_gives_the_system_words),
		cmocka_unit_test(words_are_those_of_libc),
		cmocka_unit_test(long_sentence_is_cut_at_a_whole_character),
		cmocka_unit_test(sentence_may_quote_the_one_before),
		cmocka_unit_test(formats_are_those_of_printf),
		cmocka_unit_test(sentence_is_the_thread_s_own),
		cmocka_unit_test(errno_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
