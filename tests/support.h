/* SPDX-License-Identifier: MIT */
/*
 * support.h - what every test file begins with: cmocka, and helpers that it lacks.
 *
 * Code that runs in a child (test_child and friends) must use check(), not cmocka's asserts: those
 * would jump back into the runner and go on with the other tests in the child.
 */
#ifndef SPR_TESTS_SUPPORT_H
#define SPR_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include <cmocka.h>

/* Skip this case, saying why. */
#define TEST_SKIP(...) \
	do { \
		print_message("skipped, " __VA_ARGS__); \
		print_message("\n"); \
		skip(); \
	} while (0)

/* What a sanitizer's run time cannot do, as the first statement of a case (whole units stand in
 * tests/sanitizers.txt). */
#ifdef __SANITIZE_THREAD__
#define TEST_NOT_UNDER_TSAN(why) TEST_SKIP("not under ThreadSanitizer: " why)
#else
#define TEST_NOT_UNDER_TSAN(why) ((void)0)
#endif
#ifdef __SANITIZE_ADDRESS__
#define TEST_NOT_UNDER_ASAN(why) TEST_SKIP("not under AddressSanitizer: " why)
#else
#define TEST_NOT_UNDER_ASAN(why) ((void)0)
#endif

/* In a child (or a thread): says what is wrong and ends the process with TEST_CHECK_STATUS. */
#define TEST_CHECK_STATUS 99
#define check(condition) \
	((condition) ? (void)0 : test_check_failed(__FILE__, __LINE__, #condition))
void test_check_failed(const char *file, int line, const char *what) __attribute__((noreturn));

/* A folder of mode 0700 of its own, in $TMPDIR or /tmp; remove takes all that is in it and frees
 * the name. What is left at the end of the process that made it is removed then. */
char *test_folder_make(void);
void  test_folder_remove(char *folder);
/* snprintf into a block to be freed. */
char *test_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* All of a file, NUL behind it; NULL if it cannot be read. free() it. */
char *test_file_read(const char *path, size_t *n_bytes);
void  test_file_write(const char *path, const void *bytes, size_t n_bytes);

/* How a child ended. */
struct test_end {
	int  status;    /* of exit; -1 if a signal ended it */
	int  signal;    /* 0 if none did */
	bool timed_out; /* it was killed by us */
};
/* Run body(arg) in a forked child that exits 0 behind it; killed after timeout_ms. */
struct test_end test_child(void (*body)(void *arg), void *arg, unsigned timeout_ms);
/* The same in two steps, for a child that runs beside the test. */
pid_t           test_child_start(void (*body)(void *arg), void *arg);
struct test_end test_child_wait(pid_t pid, unsigned timeout_ms);
/* Run a program; out (may be NULL) gets what it wrote to stdout and stderr; free() it. */
struct test_end test_run(char *const argv[], char **out, unsigned timeout_ms);
/* The child ended by itself with 0: fails the case with a sentence otherwise. */
void test_assert_ended_well(struct test_end end);

/* In a child of root: become an ordinary user (65534) for good. false: we are not root, hence
 * ordinary already. */
bool test_become_user(void);

/* Is this `make test-long`? */
bool test_long(void);
/* $SPARRING_SEED or a fresh one; printed once, so that a failure can be had again. */
uint64_t test_seed(void);
/* The next number of a sequence that `state` (any start) determines. */
uint64_t test_random(uint64_t *state);
/* CLOCK_MONOTONIC in ns: for bounds that stop a hang, never for a pass mark. */
uint64_t test_now_ns(void);
void     test_sleep_ms(unsigned ms);
/* Wait until done(arg), looking every millisecond; false after timeout_ms. */
bool test_wait_until(bool (*done)(void *arg), void *arg, unsigned timeout_ms);

/* The build folder these tests came from (the parent of the folder of this program). */
const char *test_build_folder(void);

#endif /* SPR_TESTS_SUPPORT_H */
