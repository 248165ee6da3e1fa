/* SPDX-License-Identifier: MIT */
/* bench_harness_test.c - the harness that every bench stands on: what it says, when it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.h"

static unsigned *turn; /* shared: how many measurements there were, in all processes */

/* The k-th measurement of all is off by k: a machine that gets slower all the time. */
static int known_measure(const struct spr_bench_arm *arm, double *figures)
{
	figures[0] = *(const double *)arm->arg * (1 + 0.001 * (*turn)++);
	return 0;
}

static int broken_measure(const struct spr_bench_arm *arm, double *figures)
{
	(void)arm, (void)figures;
	return spr_bench_say(-ENOSPC, "there was no room for it");
}

static int stuck_measure(const struct spr_bench_arm *arm, double *figures)
{
	(void)arm, (void)figures;
	/* What it started must go with it. */
	if (!fork())
		pause();
	pause();
	return 0;
}

static int killed_measure(const struct spr_bench_arm *arm, double *figures)
{
	(void)arm, (void)figures;
	abort();
}

static const char *never(const struct spr_bench_arm *arm)
{
	(void)arm;
	return "this machine has none";
}

static const double one = 1, two = 2;
static const struct spr_bench_figure figure = { "ns_per_record", "ns/record" };
static const struct spr_bench_claim claims[] = {
	{ .what = "two over one",
	  .a = "two",
	  .b = "one",
	  .want = SPR_BENCH_AT_MOST,
	  .target = 1.5 },
	{ .what = "two less one over one",
	  .a = "two",
	  .a_less = "one",
	  .b = "one",
	  .want = SPR_BENCH_AT_LEAST,
	  .target = 0.5 },
};
#define KNOWN \
	{ .name = "one", .measure = known_measure, .arg = &one }, \
	{ .name = "two", .measure = known_measure, .arg = &two }

/* What the bench prints, and its status. */
static int bench_run(const struct spr_bench_arm *arms, unsigned n_arms, const char *option,
                     char *out, size_t room)
{
	const struct spr_bench_group group = {
		.name = "group", .question = "is it so", .floor = "one", .rounds = 9, .limit_s = 1,
		.figures = &figure, .n_figures = 1, .arms = arms, .n_arms = n_arms,
		.claims = claims, .n_claims = 2,
	};
	char name[] = "bench", seed[] = "--seed", number[] = "3", more[32];
	char *argv[] = { name, seed, number, more, NULL };
	FILE *f = tmpfile();
	int status;
	pid_t pid;
	size_t n;

	snprintf(more, sizeof(more), "%s", option ? option : "");
	*turn = 0;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(fileno(f), 1);
		dup2(fileno(f), 2);
		exit(spr_bench_main("bench", &group, 1, option ? 4 : 3, argv));
	}
	waitpid(pid, &status, 0);
	rewind(f);
	n = fread(out, 1, room - 1, f);
	out[n] = '\0';
	fclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void comparisons_are_made_within_a_round(void **state)
{
	const struct spr_bench_arm arms[] = { KNOWN };
	char out[8192];

	(void)state;
	assert_int_equal(bench_run(arms, 2, NULL, out, sizeof(out)), 0);
	/* The drift moves both arms, and their ratio hardly. */
	assert_non_null(strstr(out, "2.00 [2.00 .. 2.00]  at most 1.50: NOT reached"));
	assert_non_null(strstr(out, "at least 0.500: reached"));
	assert_non_null(strstr(out, "9 rounds, seed 0x3"));
}

static void a_figure_beyond_its_target_is_no_failure_but_an_unmeasured_row_is(void **state)
{
	const struct spr_bench_arm arms[] = { KNOWN, { .name = "broken",
		                                       .measure = broken_measure } };
	char out[8192];

	(void)state;
	assert_int_equal(bench_run(arms, 2, NULL, out, sizeof(out)), 0);
	assert_int_equal(bench_run(arms, 3, NULL, out, sizeof(out)), 1);
	assert_non_null(strstr(out, "NOT MEASURED: there was no room for it"));
	assert_non_null(strstr(out, "a row could not be measured"));
}

static void an_arm_that_hangs_or_dies_is_ended_and_named(void **state)
{
	const struct spr_bench_arm arms[] = { KNOWN,
		                              { .name = "stuck", .measure = stuck_measure },
		                              { .name = "killed", .measure = killed_measure } };
	char out[8192];

	(void)state;
	assert_int_equal(bench_run(arms, 4, NULL, out, sizeof(out)), 1);
	assert_non_null(strstr(out, "NOT MEASURED: still running after 1 s"));
	assert_non_null(strstr(out, "NOT MEASURED: died of signal 6"));
	assert_non_null(strstr(out, "2.00 [2.00 .. 2.00]"));
}

static void what_the_machine_lacks_is_left_out_with_a_sentence(void **state)
{
	const struct spr_bench_arm arms[] = { KNOWN, { .name = "peer", .measure = broken_measure,
		                                       .missing = never } };
	char out[8192];

	(void)state;
	assert_int_equal(bench_run(arms, 3, NULL, out, sizeof(out)), 0);
	assert_non_null(strstr(out, "left out: this machine has none"));
}

static void json_has_machine_rows_and_claims(void **state)
{
	const struct spr_bench_arm arms[] = { KNOWN };
	char out[8192];

	(void)state;
	assert_int_equal(bench_run(arms, 2, "--json", out, sizeof(out)), 0);
	assert_int_equal(out[0], '{');
	assert_non_null(strstr(out, "\"machine\": {\"cpu\": "));
	assert_non_null(strstr(out, "\"ns_per_record\": {\"median\": 2.0"));
	assert_non_null(strstr(out, "\"finding\": \"NOT reached\""));
}

static void wrong_usage_is_64(void **state)
{
	const struct spr_bench_arm arms[] = { KNOWN };
	char out[8192];

	(void)state;
	assert_int_equal(bench_run(arms, 2, "--fast", out, sizeof(out)), 64);
	assert_non_null(strstr(out, "unknown or incomplete option --fast"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comparisons_are_made_within_a_round),
		cmocka_unit_test(
			a_figure_beyond_its_target_is_no_failure_but_an_unmeasured_row_is),
		cmocka_unit_test(an_arm_that_hangs_or_dies_is_ended_and_named),
		cmocka_unit_test(what_the_machine_lacks_is_left_out_with_a_sentence),
		cmocka_unit_test(json_has_machine_rows_and_claims),
		cmocka_unit_test(wrong_usage_is_64),
	};

	turn = mmap(NULL, sizeof(*turn), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
