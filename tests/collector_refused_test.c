/* SPDX-License-Identifier: MIT */
/*
 * collector_refused_test.c - a collector on a machine that will not have it: io_uring denied by
 * filters from the start or later, calls that fail once, no memory to lock, a fork in the middle.
 * Whatever is refused, the same records arrive.
 */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/probe.h"
#include "collector/collector.h"
#include "tests/fake_sys.h"
#include "tests/fake_transport.h"

struct count {
	uint64_t n_records;
};

static int count_put(void *arg, spr_batch *b)
{
	((struct count *)arg)->n_records += b->n_records;
	return 0;
}

static struct spr_sink count_sink(struct count *n)
{
	struct spr_sink sink = SPR_SINK_INIT;

	sink.arg = n;
	sink.put = count_put;
	return sink;
}

/* Checks with check(), because it also runs in children. */
static void step_gets(spr_collector *c, struct fake_channel *f, const struct count *n,
                      uint64_t want)
{
	c->backstop_ns =
		15000000000; /* longer than a busy machine stops a writer that is to ring */
	for (int i = 0; i < 100 && n->n_records < want; i++)
		check(spr_collector_step(c, -1) >= 0); /* the backstop finds it, and counts it */
	check(n->n_records == want);
	check(f->n_missed == 0);
}

static void *commit_later(void *arg)
{
	test_sleep_ms(3);
	fake_commit(arg, 0);
	return NULL;
}

static void sleep_gets_a_record(spr_collector *c, struct fake_channel *f, const struct count *n)
{
	const uint64_t want = n->n_records + 1;
	pthread_t thread;

	c->doze_ns = 0;
	check(pthread_create(&thread, NULL, commit_later, f) == 0);
	step_gets(c, f, n, want);
	pthread_join(thread, NULL);
}

/* A life: open, records found and records rung for, a wake, a watched pipe, the descriptor. */
static void live(spr_collector *c, struct fake_channel *f, struct count *n)
{
	const struct spr_bell *bell = f->base.bell;
	const unsigned ready = f->n_ready;
	char byte;
	int fds[2];

	fake_commit(f, 0);
	step_gets(c, f, n, n->n_records + 1);
	sleep_gets_a_record(c, f, n);
	spr_collector_wake(c);
	check(spr_collector_step(c, -1) == 0);
	check(pipe(fds) == 0);
	check(bell->watch(bell->arg, &f->base, fds[0], POLLIN, 9) == 0);
	sleep_gets_a_record(c, f, n);
	check(write(fds[1], "x", 1) == 1);
	for (int i = 0; i < 1000 && f->n_ready == ready; i++)
		check(spr_collector_step(c, 10) == 0);
	check(f->n_ready == ready + 1);
	check(read(fds[0], &byte, 1) == 1);
	close(fds[0]);
	close(fds[1]);
}

static void live_with_descriptor(spr_collector *c, struct fake_channel *f, struct count *n)
{
	const struct itimerspec none = { .it_value = { .tv_nsec = 0 } };
	struct pollfd p = { .fd = spr_collector_fd(c), .events = POLLIN };
	const struct spr_bell *bell = f->base.bell;
	const uint64_t want = n->n_records + 1;
	const unsigned ready = f->n_ready;
	int fds[2];

	check(p.fd >= 0);
	check(pipe(fds) == 0);
	check(bell->watch(bell->arg, &f->base, fds[0], POLLIN, 10) == 0);
	for (int i = 0; i < 1000 && poll(&p, 1, 0) == 1; i++)
		check(spr_collector_step(c, 0) >= 0);
	check(timerfd_settime(c->timer_fd, 0, &none, NULL) == 0); /* only the bell counts */
	fake_commit(f, 0);
	for (int i = 0; i < 1000 && n->n_records < want; i++) {
		check(poll(&p, 1, 5000) == 1);
		check(spr_collector_step(c, 0) >= 0);
	}
	check(n->n_records == want);
	check(timerfd_settime(c->timer_fd, 0, &none, NULL) == 0);
	check(write(fds[1], "x", 1) == 1);
	for (int i = 0; i < 1000 && f->n_ready == ready; i++) {
		check(poll(&p, 1, 5000) == 1);
		check(spr_collector_step(c, 0) == 0);
	}
	close(fds[0]);
	close(fds[1]);
}

static void whole_life(void)
{
	struct fake_channel *f = fake_open("f");
	struct count n = { 0 };
	const struct spr_sink sink = count_sink(&n);
	spr_collector *c;

	check(spr_collector_open(&c, 0) == 0);
	check(spr_collector_add(c, &f->base, &sink) == 0);
	live(c, f, &n);
	live_with_descriptor(c, f, &n);
	live(c, f, &n);
	fake_seal(f);
	check(spr_collector_step(c, -1) == -ENODATA);
	check(spr_collector_close(c) == 0);
	fake_close(f);
}

/* --- Filters ------------------------------------------------------------------------------- */

struct filter {
	unsigned nr;
	int err;
	bool late;  /* put in while a collector sleeps and wakes already */
	bool outer; /* and it has been asked for its descriptor */
};

static void filter_install(const struct filter *filter)
{
	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, filter->nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)filter->err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(code) / sizeof(code[0]),
	                                    (struct sock_filter *)(uintptr_t)code };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void live_under_filter(void *arg)
{
	const struct filter *filter = arg;
	struct fake_channel *f = fake_open("f");
	struct count n = { 0 };
	const struct spr_sink sink = count_sink(&n);
	spr_collector *c;

	if (!filter->late)
		filter_install(filter);
	check(spr_collector_open(&c, 0) == 0);
	check(spr_collector_add(c, &f->base, &sink) == 0);
	live(c, f, &n);
	if (filter->outer)
		live_with_descriptor(c, f, &n);
	if (filter->late) {
		filter_install(filter);
		live(c, f, &n);
	}
	live_with_descriptor(c, f, &n);
	if (filter->nr == SYS_io_uring_enter || !filter->late) /* a ring made and in use stays */
		check(strcmp(c->waiter->ops->name, "plain") == 0);
	fake_seal(f);
	check(spr_collector_step(c, -1) == -ENODATA);
	check(spr_collector_close(c) == 0);
}

static void filters_on_io_uring_are_survived(void **state)
{
	static const unsigned calls[] = { SYS_io_uring_setup, SYS_io_uring_enter,
		                          SYS_io_uring_register };
	static const int errs[] = { EPERM, ENOSYS, EINVAL, EACCES };

	(void)state;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]) * 16; i++) {
		struct filter filter = { calls[i / 16], errs[i / 4 % 4], i % 2, i & 2 };
		const struct test_end end = test_child(live_under_filter, &filter, 20000);

		if (end.status)
			print_message("call %u, error %d, %s\n", filter.nr, filter.err,
			              filter.late ? "late" : "from the start");
		test_assert_ended_well(end);
	}
}

/* --- Any call fails -------------------------------------------------------------------------- */

/* Set up without `nr` at its nth call: either it says so and leaves nothing, or it goes on. */
static int open_and_add(long nr, unsigned nth, int err)
{
	struct fake_channel *f = fake_open("f");
	struct count n = { 0 };
	const struct spr_sink sink = count_sink(&n);
	spr_collector *c;
	int ret;

	fake_sys_reset();
	fake_sys_fail(nr, nth, err);
	ret = spr_collector_open(&c, 0);
	if (!ret) {
		ret = spr_collector_add(c, &f->base, &sink);
		if (ret)
			assert_null(f->base.bell);
		else
			live(c, f, &n);
		const int fd = spr_collector_fd(c);
		if (!ret && fd >= 0)
			live_with_descriptor(c, f, &n);
		assert_int_equal(spr_collector_close(c), 0);
	}
	fake_sys_reset();
	fake_close(f);
	return ret;
}

static int descriptors_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void any_call_may_fail_once(void **state)
{
	static const long calls[] = { SYS_eventfd2, SYS_io_uring_setup, SYS_io_uring_enter,
		                      SYS_io_uring_register, SYS_mmap, SYS_epoll_create1,
		                      SYS_epoll_ctl, SYS_timerfd_create };
	static const int errs[] = { EPERM, ENOMEM, EMFILE };
	const int before = descriptors_open();

	(void)state;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (unsigned nth = 1; nth < 6; nth++) {
			const int err = errs[(i + nth) % 3];
			const int ret = open_and_add(calls[i], nth, err);
			assert_true(ret == 0 || ret == -err);
		}
	}
	assert_int_equal(descriptors_open(), before);
}

static void failing_opens_say_why(void **state)
{
	spr_collector *c;

	(void)state;
	fake_sys_fail(SYS_eventfd2, 1, EMFILE);
	assert_int_equal(spr_collector_open(&c, 0), -EMFILE);
	assert_non_null(strstr(spr_error_text(), "eventfd"));
	fake_sys_reset();
}

/* --- Little memory to lock ---------------------------------------------------------------------
 */

static void ring_that_does_not_fit_is_made_smaller(void **state)
{
	spr_collector *c;

	(void)state;
	if (spr_disabled("io_uring") || spr_probe("io_uring") != 1)
		TEST_SKIP("no io_uring here");
	fake_sys_fail(SYS_io_uring_setup, 1, ENOMEM);
	fake_sys_fail(SYS_io_uring_setup, 2, ENOMEM);
	assert_int_equal(spr_collector_open(&c, 0), 0);
	assert_int_equal(fake_sys_calls(SYS_io_uring_setup), 3);
	assert_string_equal(c->waiter->ops->name, "io_uring");
	assert_int_equal(spr_collector_close(c), 0);
	fake_sys_reset();
	fake_sys_fail_from(SYS_io_uring_setup, 1, ENOMEM);
	assert_int_equal(spr_collector_open(&c, 0), 0);
	assert_in_range(fake_sys_calls(SYS_io_uring_setup), 2, 10);
	assert_string_equal(c->waiter->ops->name, "plain");
	assert_int_equal(spr_collector_close(c), 0);
	fake_sys_reset();
}

static void live_without_locked_memory(void *arg)
{
	const struct rlimit none = { 0, 0 };

	(void)arg;
	test_become_user();
	check(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
	whole_life();
}

static void no_memory_may_be_locked(void **state)
{
	(void)state;
	test_assert_ended_well(test_child(live_without_locked_memory, NULL, 20000));
}

static void two_hundred_collectors_live_at_once(void **state)
{
	enum { N = 200 };
	struct rlimit files;
	struct fake_channel *f[N];
	struct count n[N];
	spr_collector *c[N];

	(void)state;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < 4 * N)
		TEST_SKIP("only %lu descriptors allowed", (unsigned long)files.rlim_cur);
	memset(n, 0, sizeof(n));
	for (unsigned i = 0; i < N; i++) {
		const struct spr_sink sink = count_sink(&n[i]);

		f[i] = fake_open("f");
		assert_int_equal(spr_collector_open(&c[i], 0), 0);
		assert_int_equal(spr_collector_add(c[i], &f[i]->base, &sink), 0);
	}
	for (unsigned i = 0; i < N; i++) {
		fake_commit(f[i], 0);
		assert_int_equal(spr_collector_step(c[i], -1), 1);
	}
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(spr_collector_close(c[i]), 0);
		fake_close(f[i]);
	}
}

/* --- Forks -------------------------------------------------------------------------------------
 */

static void child_of_a_fork_disturbs_nothing(void **state)
{
	struct fake_channel *f = fake_open("f");
	struct count n = { 0 };
	const struct spr_sink sink = count_sink(&n);
	spr_collector *c;
	pid_t pids[8];

	(void)state;
	assert_int_equal(spr_collector_open(&c, 0), 0);
	assert_int_equal(spr_collector_add(c, &f->base, &sink), 0);
	for (unsigned i = 0; i < 8; i++) {
		pids[i] = fork(); /* it holds all our descriptors, and some exit at once */
		if (pids[i] == 0) {
			if (i % 2)
				test_sleep_ms(60);
			_exit(0);
		}
		sleep_gets_a_record(c, f, &n);
		live(c, f, &n);
	}
	assert_int_equal(spr_collector_step(c, 1), 0); /* a wait stands */
	assert_int_equal(spr_collector_close(c), 0);

	/* A child still holds the ring; no wait of it may swallow the wakes of the next collector.
	 */
	assert_int_equal(spr_collector_open(&c, 0), 0);
	assert_int_equal(spr_collector_add(c, &f->base, &sink), 0);
	for (unsigned i = 0; i < 5; i++)
		sleep_gets_a_record(c, f, &n);
	assert_int_equal(spr_collector_close(c), 0);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
	fake_close(f);
}

static void collectors_that_follow_each_other_swallow_no_wake(void **state)
{
	struct fake_channel *f = fake_open("f");
	struct count n = { 0 };
	const struct spr_sink sink = count_sink(&n);
	spr_collector *c;

	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(spr_collector_open(&c, i % 3 == 2 ? SPR_PLAIN : 0), 0);
		assert_int_equal(spr_collector_add(c, &f->base, &sink), 0);
		assert_int_equal(spr_collector_step(c, 1), 0); /* a wait stands */
		sleep_gets_a_record(c, f, &n);
		assert_int_equal(spr_collector_step(c, 1), 0);
		assert_int_equal(spr_collector_close(c), 0);
	}
	fake_close(f);
}

static void whole_life_in_one_piece(void **state)
{
	(void)state;
	whole_life();
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(whole_life_in_one_piece),
		cmocka_unit_test(filters_on_io_uring_are_survived),
		cmocka_unit_test(any_call_may_fail_once),
		cmocka_unit_test(failing_opens_say_why),
		cmocka_unit_test(ring_that_does_not_fit_is_made_smaller),
		cmocka_unit_test(no_memory_may_be_locked),
		cmocka_unit_test(two_hundred_collectors_live_at_once),
		cmocka_unit_test(child_of_a_fork_disturbs_nothing),
		cmocka_unit_test(collectors_that_follow_each_other_swallow_no_wake),
	};

	return cmocka_run_group_tests_name("collector, refused", cases, NULL, NULL);
}
