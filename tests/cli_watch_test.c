/* SPDX-License-Identifier: MIT */
/* cli_watch_test.c - which images ran unseen, told from execs and starts that come in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/watch.h"
#include "tests/support.h"
#include "transport/transport.h"

enum { START, EXEC, EXIT }; /* as base/kinds_spies.c orders the labels */

/* A batch of one record. */
struct one {
	spr_batch         batch;
	struct spr_record rec;
	unsigned char     data[512];
	bool              given;
};

static int one_next(spr_batch *b, struct spr_record *rec)
{
	struct one *one = (struct one *)b;

	if (one->given)
		return 0;
	one->given = true;
	*rec = one->rec;
	return 1;
}

static void one_rewind(spr_batch *b)
{
	((struct one *)b)->given = false;
}

static int answer; /* of the encoder */
static unsigned n_put;

static int encoder_put(void *arg, spr_batch *b)
{
	(void)arg;
	(void)b;
	n_put++;
	return answer;
}

static struct spr_cli_watch *watch;
static char unseen[1024];

static void open_watch(void)
{
	struct spr_sink sink = SPR_SINK_INIT;

	sink.put = encoder_put;
	answer = 0;
	n_put = 0;
	watch = spr_cli_watch_open(spr_kinds_files, 3, &sink);
	assert_non_null(watch);
}

static int see(struct one *one)
{
	struct spr_sink sink;

	one->batch = (spr_batch){ .next = one_next, .rewind = one_rewind, .n_records = 1 };
	one->given = false;
	one->rec.data = one->data;
	spr_cli_watch_sink(watch, &sink);
	return sink.put(sink.arg, &one->batch);
}

static uint32_t put_text(unsigned char *at, const char *text)
{
	const size_t n = strlen(text);

	at[0] = (unsigned char)n;
	at[1] = (unsigned char)(n >> 8);
	memcpy(at + 2, text, n);
	return (uint32_t)n + 2;
}

static int see_image(unsigned op, int pid, uint64_t writer, uint64_t time_ns, const char *exe)
{
	struct one one = { .rec = { .kind = 1, .flags = SPR_HAS_ID, .pid = pid, .tid = pid,
		                    .writer = writer, .time_ns = time_ns } };
	uint32_t n = 5;

	one.data[0] = (unsigned char)op;
	n += put_text(one.data + n, exe);
	one.rec.bytes = n + 2; /* argv and status: absent */
	return see(&one);
}

static void see_failure(uint64_t writer, uint64_t of_ns)
{
	struct one one = {
		.rec = { .kind = 3, .flags = SPR_HAS_ID, .writer = writer, .bytes = 12 }
	};

	memcpy(one.data, &of_ns, 8);
	one.data[8] = ENOENT;
	assert_int_equal(see(&one), 0);
}

static void see_blind(unsigned pid, const char *reason, const char *text)
{
	struct one one = { .rec = { .kind = SPR_KIND_BLIND } };
	uint32_t n = 4;

	memcpy(one.data, &pid, 4);
	n += put_text(one.data + n, reason);
	one.rec.bytes = n + put_text(one.data + n, text);
	assert_int_equal(see(&one), 0);
}

static void note(void *arg, int32_t pid, const char *exe)
{
	const size_t n = strlen(unseen);

	(void)arg;
	snprintf(unseen + n, sizeof(unseen) - n, "%d %s;", pid, exe);
}

static void expect_unseen(const char *wanted)
{
	unseen[0] = '\0';
	spr_cli_watch_unanswered(watch, note, NULL);
	assert_string_equal(unseen, wanted);
	spr_cli_watch_close(watch);
}

static void an_exec_that_a_start_answers_was_seen(void **state)
{
	(void)state;
	open_watch();
	see_image(EXEC, 7, 1, 100, "/bin/a");
	see_image(START, 7, 2, 200, "/bin/a");
	expect_unseen("");
}

static void an_exec_without_a_start_ran_unseen(void **state)
{
	(void)state;
	open_watch();
	see_image(START, 7, 1, 50, "/bin/sh");
	see_image(EXEC, 7, 1, 100, "/bin/a");
	see_image(EXEC, 8, 1, 101, "/bin/b");
	see_image(START, 8, 2, 200, "/bin/b");
	expect_unseen("7 /bin/a;");
}

static void a_start_that_is_delivered_before_its_exec_answers_it(void **state)
{
	(void)state;
	open_watch();
	see_image(START, 7, 2, 400, "/bin/b");
	see_image(START, 7, 3, 200, "/bin/a");
	see_image(EXEC, 7, 3, 300, "/bin/b");
	see_image(EXEC, 7, 1, 100, "/bin/a");
	expect_unseen("");
}

static void an_earlier_start_answers_no_later_exec(void **state)
{
	(void)state;
	open_watch();
	see_image(EXEC, 7, 2, 300, "/bin/a");
	see_image(START, 7, 2, 200, "/bin/a");
	expect_unseen("7 /bin/a;");
}

static void an_exec_that_failed_needs_no_answer(void **state)
{
	(void)state;
	open_watch();
	see_image(EXEC, 7, 1, 100, "/usr/local/bin/a");
	see_failure(1, 100);
	see_image(EXEC, 7, 1, 101, "/usr/bin/a");
	see_failure(1, 999);  /* of some other call */
	see_failure(2, 101);  /* of another writer's */
	expect_unseen("7 /usr/bin/a;");
}

static void an_exec_before_an_exec_ran_unseen(void **state)
{
	(void)state;
	open_watch();
	see_image(EXEC, 7, 1, 100, "/bin/a");
	see_image(EXEC, 7, 2, 200, "/bin/b");
	see_image(START, 7, 3, 300, "/bin/b");
	expect_unseen("7 /bin/a;");
}

/* Writes a file that begins as a program, or a script, does. */
static void make_program(const char *folder, const char *name, const char *begins, char out[256])
{
	snprintf(out, 256, "%s/%s", folder, name);
	FILE *file = fopen(out, "w");
	assert_non_null(file);
	fputs(begins, file);
	fclose(file);
}

static void an_answer_from_another_file_is_no_answer(void **state)
{
	char *folder = test_folder_make();
	char program[256], other[256], script[256], link[256];

	(void)state;
	make_program(folder, "program", "\177ELF...", program);
	make_program(folder, "other", "\177ELF...", other);
	make_program(folder, "script", "#!/bin/sh\n", script);
	snprintf(link, sizeof(link), "%s/link", folder);
	assert_int_equal(symlink("program", link), 0);
	open_watch();
	/* A static program hands our variables on: what it becomes answers, but it ran unseen. */
	see_image(EXEC, 7, 1, 100, program);
	see_image(START, 7, 2, 200, other);
	/* By another name it is the same; a script is answered by its interpreter. */
	see_image(EXEC, 8, 1, 100, link);
	see_image(START, 8, 2, 200, program);
	see_image(EXEC, 9, 1, 100, script);
	see_image(START, 9, 2, 200, other);
	/* What is gone cannot be compared. */
	see_image(EXEC, 10, 1, 100, "/no/such/program");
	see_image(START, 10, 2, 200, other);
	char wanted[300];
	snprintf(wanted, sizeof(wanted), "7 %s;", program);
	expect_unseen(wanted);
	test_folder_remove(folder);
}

static void what_a_spy_has_named_is_not_named_again(void **state)
{
	(void)state;
	open_watch();
	see_blind(7, "static", "/bin/a");
	see_image(EXEC, 7, 1, 100, "/bin/a");
	see_blind(8, "io_uring", "what it opens by its ring");
	see_image(EXEC, 8, 1, 100, "/bin/b");
	expect_unseen("8 /bin/b;");
}

static void a_batch_that_is_offered_again_counts_once(void **state)
{
	(void)state;
	open_watch();
	answer = -EAGAIN;
	for (int i = 0; i < 3; i++)
		assert_int_equal(see_image(EXEC, 7, 1, 100, "/bin/a"), -EAGAIN);
	answer = 1;
	assert_int_equal(see_image(EXEC, 7, 1, 100, "/bin/a"), 1);
	assert_int_equal(n_put, 4);
	assert_int_equal(spr_cli_watch_processes(watch), 1);
	expect_unseen("7 /bin/a;");
}

static void after_the_encoders_first_error_batches_are_taken_and_counted(void **state)
{
	(void)state;
	open_watch();
	answer = -ENOSPC;
	assert_int_equal(see_image(START, 7, 1, 100, "/bin/a"), 0);
	answer = 0;
	assert_int_equal(see_image(START, 7, 1, 101, "/bin/a"), 0);
	assert_int_equal(n_put, 1);
	assert_int_equal(spr_cli_watch_error(watch), -ENOSPC);
	assert_int_equal(spr_cli_watch_dropped(watch), 2);
	expect_unseen("");
}

static void processes_are_counted_by_pid(void **state)
{
	(void)state;
	open_watch();
	for (int pid = 1; pid <= 5000; pid++) {
		see_image(START, pid, (uint64_t)pid, 100, "/bin/sh");
		see_image(EXEC, pid, (uint64_t)pid, 200, "/bin/a");
		see_image(START, pid, (uint64_t)pid + 10000, 300, "/bin/a");
	}
	assert_int_equal(spr_cli_watch_processes(watch), 5000);
	expect_unseen("");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_exec_that_a_start_answers_was_seen),
		cmocka_unit_test(an_exec_without_a_start_ran_unseen),
		cmocka_unit_test(a_start_that_is_delivered_before_its_exec_answers_it),
		cmocka_unit_test(an_earlier_start_answers_no_later_exec),
		cmocka_unit_test(an_exec_that_failed_needs_no_answer),
		cmocka_unit_test(an_exec_before_an_exec_ran_unseen),
		cmocka_unit_test(an_answer_from_another_file_is_no_answer),
		cmocka_unit_test(what_a_spy_has_named_is_not_named_again),
		cmocka_unit_test(a_batch_that_is_offered_again_counts_once),
		cmocka_unit_test(after_the_encoders_first_error_batches_are_taken_and_counted),
		cmocka_unit_test(processes_are_counted_by_pid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
