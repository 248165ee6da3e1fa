/* SPDX-License-Identifier: MIT */
/* options_test.c - a caller's sized struct, older or newer than the library. */
#include "tests/support.h"

#include <errno.h>
#include <string.h>

#include "base/options.h"

struct v1 { /* an older caller */
	uint32_t size;
	uint32_t a;
};
struct v2 { /* the library */
	uint32_t size;
	uint32_t a;
	uint64_t b;
};
struct v3 { /* a newer caller */
	uint32_t size;
	uint32_t a;
	uint64_t b;
	uint64_t c;
};

static void no_options_are_all_defaults(void **state)
{
	struct v2 mine = { 9, 9, 9 };

	(void)state;
	assert_int_equal(spr_options_read(&mine, sizeof(mine), NULL), 0);
	assert_int_equal(mine.a, 0);
	assert_int_equal(mine.b, 0);
}

static void older_caller_gets_defaults_for_what_he_lacks(void **state)
{
	const struct v1 theirs = { sizeof(theirs), 7 };
	struct v2 mine = { 9, 9, 9 };

	(void)state;
	assert_int_equal(spr_options_read(&mine, sizeof(mine), &theirs), 0);
	assert_int_equal(mine.a, 7);
	assert_int_equal(mine.b, 0);
}

static void newer_caller_is_served_while_the_rest_is_zero(void **state)
{
	struct v3 theirs = { sizeof(theirs), 7, 8, 0 };
	struct v2 mine;

	(void)state;
	assert_int_equal(spr_options_read(&mine, sizeof(mine), &theirs), 0);
	assert_int_equal(mine.a, 7);
	assert_int_equal(mine.b, 8);
	theirs.c = 1ull << 63; /* its last byte */
	assert_int_equal(spr_options_read(&mine, sizeof(mine), &theirs), -E2BIG);
}

static void impossible_size_is_refused(void **state)
{
	struct v2 theirs = { 0, 7, 8 }, mine;

	(void)state;
	for (theirs.size = 0; theirs.size < 4; theirs.size++) {
		assert_int_equal(spr_options_read(&mine, sizeof(mine), &theirs), -EINVAL);
		assert_int_equal(spr_options_write(&theirs, &mine, sizeof(mine)), -EINVAL);
	}
}

static void answer_reaches_as_far_as_the_caller_does(void **state)
{
	const struct v2 mine = { sizeof(mine), 7, 8 };
	struct {
		struct v1 theirs;
		uint64_t  behind;
	} small = { { sizeof(struct v1), 0 }, 0x1122334455667788 };
	struct v3 large = { sizeof(large), 0, 0, 5 };

	(void)state;
	assert_int_equal(spr_options_write(&small.theirs, &mine, sizeof(mine)), 0);
	assert_int_equal(small.theirs.a, 7);
	assert_int_equal(small.theirs.size, sizeof(struct v1));
	assert_true(small.behind == 0x1122334455667788);
	assert_int_equal(spr_options_write(&large, &mine, sizeof(mine)), 0);
	assert_int_equal(large.b, 8);
	assert_int_equal(large.size, sizeof(large));
	assert_int_equal(large.c, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_options_are_all_defaults),
		cmocka_unit_test(older_caller_gets_defaults_for_what_he_lacks),
		cmocka_unit_test(newer_caller_is_served_while_the_rest_is_zero),
		cmocka_unit_test(impossible_size_is_refused),
		cmocka_unit_test(answer_reaches_as_far_as_the_caller_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
