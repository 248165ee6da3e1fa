/* SPDX-License-Identifier: MIT */
/* clock_test.c - the clock of the stamps agrees with the kernel's, or is the kernel's. */
#include "tests/support.h"

#include <errno.h>
#include <time.h>
#include <pthread.h>
#include <unistd.h>
#include <string.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <sparring/sparring.h>

#include "base/clock.h"
#include "base/probe.h"
#include "base/sys.h"
#include "tests/fake_sys.h"

/* Stamp between two looks at the kernel's clock: it must lie between them, give or take the error
 * that 50 ppm of the time since calibration make. */
static void stamps_lie_on_the_kernel_s_clock(void **state)
{
	struct spr_clock clock;
	unsigned n_off = 0;

	(void)state;
	spr_clock_init(&clock);
	for (int i = 0; i < 10000; i++) {
		const uint64_t before = test_now_ns();
		const uint64_t now = spr_clock_now(&clock);
		const uint64_t after = test_now_ns();
		const uint64_t slack = 2000 + (before - clock.ns0) / 20000;

		if (clock.kind == SPR_CLOCK_GETTIME) {
			assert_in_range(now, before, after);
			continue;
		}
		n_off += now + slack < before || now > after + slack;
	}
	assert_int_equal(n_off, 0);
}

static void stamps_never_run_backwards(void **state)
{
	struct spr_clock clock;
	uint64_t last = 0;

	(void)state;
	spr_clock_init(&clock);
	for (int i = 0; i < 100000; i++) {
		const uint64_t now = spr_clock_now(&clock);

		assert_true(now >= last);
		last = now;
	}
}

static void kernel_s_time_needs_no_libc(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++) {
		const uint64_t before = test_now_ns();
		const uint64_t now = spr_clock_monotonic_ns();

		assert_in_range(now, before, test_now_ns());
	}
	fake_sys_count();
	const uint64_t before = test_now_ns();
	const uint64_t now = spr_clock_monotonic_ns(); /* the table sees it */
	assert_int_equal(fake_sys_calls(SYS_clock_gettime), 1);
	fake_sys_reset();
	assert_in_range(now, before, test_now_ns());
}

/* In a process whose filter refuses the call. libc, which asks the vDSO, too, says whether this
 * machine's clock can be read without. */
static void read_without_the_call(void *arg)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { 4, filter };
	struct timespec now;

	(void)arg;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ||
	    clock_gettime(CLOCK_MONOTONIC, &now))
		_exit(77);
	const uint64_t before = test_now_ns();
	const uint64_t ours = spr_clock_monotonic_ns();
	check(ours >= before && ours <= test_now_ns());
}

static void kernel_s_time_needs_no_system_call(void **state)
{
	const struct test_end end = test_child(read_without_the_call, NULL, 10000);

	(void)state;
	if (end.status == 77)
		TEST_SKIP("no filter here, or a clock that only a call can read");
	test_assert_ended_well(end);
}

static long other_source(long nr, long a, long b, long c, long d, long e, long f)
{
	if (nr == SYS_openat && strstr((const char *)b, "clocksource"))
		return -ENOENT;
	return spr_sys_raw(nr, a, b, c, d, e, f);
}

static void init_with_other_source(void *arg)
{
	struct spr_clock clock;

	(void)arg;
	fake_sys_replace(SYS_openat, other_source);
	spr_clock_init(&clock);
	check(clock.kind == SPR_CLOCK_GETTIME);
	check(clock.mult == 0);
	check(spr_probe("tsc") == -ENODEV);
}

static void init_disabled(void *arg)
{
	struct spr_clock clock;

	(void)arg;
	setenv("SPARRING_DISABLE", "io_uring,tsc", 1);
	spr_clock_init(&clock);
	check(clock.kind == SPR_CLOCK_GETTIME);
}

/* A kernel whose clock runs twice as fast behind the calibration: the cross-check must see it. */
static long lying_clock(long nr, long a, long b, long c, long d, long e, long f)
{
	static uint64_t first_ns;
	struct timespec *now = (struct timespec *)b;
	const long ret = spr_sys_raw(nr, a, b, c, d, e, f);
	uint64_t ns = (uint64_t)now->tv_sec * 1000000000u + (uint64_t)now->tv_nsec;

	if (!first_ns)
		first_ns = ns;
	ns += (ns - first_ns) / 1000 * ((ns - first_ns) / 1000) / 1000; /* and ever faster */
	now->tv_sec = (time_t)(ns / 1000000000u);
	now->tv_nsec = (long)(ns % 1000000000u);
	return ret;
}

static void init_with_lying_clock(void *arg)
{
	struct spr_clock clock;

	(void)arg;
	fake_sys_replace(SYS_clock_gettime, lying_clock);
	spr_clock_init(&clock);
	check(clock.kind == SPR_CLOCK_GETTIME);
}

static void fresh_process(void (*body)(void *arg))
{
	test_assert_ended_well(test_child(body, NULL, 10000));
}

static void counter_is_not_used_where_the_kernel_does_not(void **state)
{
	(void)state;
	fresh_process(init_with_other_source);
}

static void counter_is_not_used_when_switched_off(void **state)
{
	(void)state;
	fresh_process(init_disabled);
}

static void counter_that_disagrees_is_found(void **state)
{
	(void)state;
	fresh_process(init_with_lying_clock);
}

static void *init_thread(void *arg)
{
	spr_clock_init(arg);
	return NULL;
}

static void threads_get_one_and_the_same_clock(void **state)
{
	struct spr_clock clocks[4];
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, init_thread, &clocks[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 1; i < 4; i++)
		assert_memory_equal(&clocks[0], &clocks[i], sizeof(clocks[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* These fork before anything was calibrated here. */
		cmocka_unit_test(counter_is_not_used_where_the_kernel_does_not),
		cmocka_unit_test(counter_is_not_used_when_switched_off),
		cmocka_unit_test(counter_that_disagrees_is_found),
		cmocka_unit_test(threads_get_one_and_the_same_clock),
		cmocka_unit_test(stamps_lie_on_the_kernel_s_clock),
		cmocka_unit_test(stamps_never_run_backwards),
		cmocka_unit_test(kernel_s_time_needs_no_libc),
		cmocka_unit_test(kernel_s_time_needs_no_system_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
