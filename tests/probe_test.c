/* SPDX-License-Identifier: MIT */
/* probe_test.c - each feature answers, each can be switched off by its name, and says why. */
#include "tests/support.h"

#include <errno.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/kernel_abi.h"
#include "base/probe.h"
#include "tests/fake_sys.h"

static void every_feature_answers_and_tells_why_not(void **state)
{
	(void)state;
	for (const struct spr_feature *f = spr_features; f->name; f++) {
		const int got = spr_probe(f->name);

		assert_true(strlen(f->what) > 10);
		assert_true(got <= 1);
		if (got == 1)
			continue;
		print_message("%s: %d: %s\n", f->name, got, spr_error_text());
		assert_true(strlen(spr_error_text()) > 10);
	}
}

static void names_are_unique_and_can_stand_in_a_list(void **state)
{
	(void)state;
	for (const struct spr_feature *f = spr_features; f->name; f++) {
		assert_int_equal(strspn(f->name, "abcdefghijklmnopqrstuvwxyz0123456789_"),
		                 strlen(f->name));
		for (const struct spr_feature *g = f + 1; g->name; g++)
			assert_string_not_equal(f->name, g->name);
	}
}

static void unknown_feature_is_refused(void **state)
{
	const char *volatile none = NULL;

	(void)state;
	assert_int_equal(spr_probe("io_urin"), -EINVAL);
	assert_non_null(strstr(spr_error_text(), "io_urin"));
	assert_int_equal(spr_probe(none), -EINVAL);
}

static void probe_all_off(void *arg)
{
	char list[512] = "";

	(void)arg;
	for (const struct spr_feature *f = spr_features; f->name; f++) {
		strcat(list, f->name);
		strcat(list, f[1].name ? "," : ", ");
	}
	setenv("SPARRING_DISABLE", list, 1);
	for (const struct spr_feature *f = spr_features; f->name; f++) {
		check(spr_probe(f->name) == -ENOTSUP);
		check(strstr(spr_error_text(), "SPARRING_DISABLE") != NULL);
		check(spr_disabled(f->name));
	}
	check(!spr_disabled("ring "));
	check(!spr_disabled(""));
	unsetenv("SPARRING_DISABLE"); /* read once: later changes are not seen */
	check(spr_disabled("ring"));
}

static void probe_one_off(void *arg)
{
	(void)arg;
	setenv("SPARRING_DISABLE", "io_uring", 1);
	check(spr_disabled("io_uring"));
	check(!spr_disabled("io_uring_futex")); /* a name, not a beginning */
	check(!spr_disabled("io"));
	check(spr_probe("io_uring_futex") == -ENOTSUP); /* but it stands on the other */
	check(spr_probe("ring") == 1);
}

static void every_feature_can_be_switched_off(void **state)
{
	(void)state;
	test_assert_ended_well(test_child(probe_all_off, NULL, 20000));
}

static void switching_off_goes_by_whole_names(void **state)
{
	(void)state;
	test_assert_ended_well(test_child(probe_one_off, NULL, 20000));
}

/* What a sandbox or an old kernel answers becomes the feature's answer. */
static void kernel_s_refusal_is_the_answer(void **state)
{
	static const struct {
		const char *feature;
		long        nr;
		int         err;
	} cases[] = {
		{ "io_uring", SYS_io_uring_setup, EPERM },
		{ "io_uring", SYS_io_uring_setup, ENOSYS },
		{ "io_uring", SYS_io_uring_enter, EACCES },
		{ "io_uring_futex", SYS_io_uring_setup, ENOSYS },
		{ "io_uring_multishot", SYS_io_uring_register, EINVAL },
		{ "membarrier", SYS_membarrier, ENOSYS },
		{ "populate", SYS_madvise, EINVAL },
		{ "punch", SYS_memfd_create, ENOSYS },
		{ "ofd_lock", SYS_fcntl, EINVAL },
		{ "pidfd", SYS_pidfd_open, ENOSYS },
		{ "futex_waitv", SYS_futex_waitv, ENOSYS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_sys_fail_from(cases[i].nr, 1, cases[i].err);
		const int got = spr_probe(cases[i].feature);
		fake_sys_reset();
		if (strncmp(cases[i].feature, "io_uring", 8) == 0 && got != -cases[i].err &&
		    spr_probe("io_uring") != 1)
			continue; /* denied here for real */
		assert_int_equal(got, -cases[i].err);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_feature_can_be_switched_off),
		cmocka_unit_test(switching_off_goes_by_whole_names),
		cmocka_unit_test(every_feature_answers_and_tells_why_not),
		cmocka_unit_test(names_are_unique_and_can_stand_in_a_list),
		cmocka_unit_test(unknown_feature_is_refused),
		cmocka_unit_test(kernel_s_refusal_is_the_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
