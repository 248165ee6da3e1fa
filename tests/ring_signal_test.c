/* SPDX-License-Identifier: MIT */
/*
 * ring_signal_test.c - records written by signal handlers, jumped away from, forked in, killed in.
 *
 * Ordered is what one lane carries; across lanes only stamps order. So every counter is taken while
 * its record is open, and the check looks at one writer id (a lane) at a time.
 */
#include <pthread.h>
#include <sys/time.h>
#include <ucontext.h>

#include "tests/ring_support.h"

/* What handlers reach; set once before the first signal. */
static struct {
	spr_producer *p;
	struct tally *tally;
	struct rig   *rig;
	uint32_t      n_per_signal;
	_Atomic int   stop;
	void (*act)(void);
	sigjmp_buf back;
} here;
static __thread uint32_t my_source;
static __thread volatile uint64_t n_signals;

static void on_signal(int sig)
{
	const int saved = errno;
	(void)sig;

	n_signals++;
	if (here.act) {
		here.act();
	} else {
		for (uint32_t i = 0; i < here.n_per_signal; i++)
			put_record(spr_writer_here(here.p), here.tally, my_source, 24 + i * 9);
	}
	errno = saved;
}

static void catch(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };

	sigemptyset(&sa.sa_mask);
	CHILD_CHECK(sigaction(sig, &sa, NULL) == 0);
}

/* 50 us, or what a sanitizer can bear. */
static void start_timer(int which, long us)
{
	const long every_us = UNDER_TSAN || UNDER_ASAN ? us * 20 : us;
	const struct itimerval t = { { 0, every_us }, { 0, every_us } };

	CHILD_CHECK(setitimer(which, &t, NULL) == 0);
}

static void stop_timers(void)
{
	const struct itimerval t = { { 0, 0 }, { 0, 0 } };

	setitimer(ITIMER_REAL, &t, NULL);
	setitimer(ITIMER_VIRTUAL, &t, NULL);
	setitimer(ITIMER_PROF, &t, NULL);
}

static void arrive(struct rig *r, uint32_t source)
{
	here.p = attach_or_exit(r->address);
	here.tally = r->tally;
	here.rig = r;
	here.act = NULL;
	here.n_per_signal = 3;
	my_source = source;
}

static void expect_roles(uint32_t flags, int (*role)(struct rig *r, uint32_t arg), uint32_t n,
                         uint32_t n_sources)
{
	struct rig r;
	pid_t pids[8];

	rig_open(&r, flags, NULL, n_sources);
	for (uint32_t i = 0; i < n; i++)
		pids[i] = spawn(role, &r, i);
	rig_run_expecting_zero(&r, pids, n);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* --- Nested records
 * ------------------------------------------------------------------------------- */

static int role_timer(struct rig *r, uint32_t arg)
{
	uint64_t random = arg + 1;

	arrive(r, arg);
	catch(SIGALRM, SA_RESTART);
	start_timer(ITIMER_REAL, 50);
	for (uint32_t i = 0; i < test_count(200000, 5000000) || n_signals < 20; i++)
		put_record(spr_writer_here(here.p), here.tally, my_source,
		           24 + (uint32_t)(test_random(&random) % 100));
	stop_timers();
	return 0;
}

static void records_of_a_handler_and_of_what_it_interrupts_all_arrive(void **state)
{
	(void)state;
	expect_roles(0, role_timer, 2, 2);
}

/* Three signals that interrupt one another: up to four records open at once. */
static int role_three_timers(struct rig *r, uint32_t arg)
{
	arrive(r, arg);
	catch(SIGALRM, SA_RESTART);
	catch(SIGVTALRM, SA_RESTART);
	catch(SIGPROF, SA_RESTART);
	start_timer(ITIMER_REAL, 50);
	start_timer(ITIMER_VIRTUAL, 70);
	start_timer(ITIMER_PROF, 90);
	for (uint32_t i = 0; i < test_count(200000, 5000000) || n_signals < 20; i++)
		put_record(spr_writer_here(here.p), here.tally, my_source, 24 + i % 64);
	stop_timers();
	return 0;
}

static void handlers_that_interrupt_handlers_lose_nothing(void **state)
{
	(void)state;
	expect_roles(0, role_three_timers, 2, 2);
	expect_roles(RIG_EMBEDDED, role_three_timers, 1, 1);
}

static void block_alarm(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(how, &set, NULL);
}

static void *timer_thread(void *arg)
{
	my_source = (uint32_t)(uintptr_t)arg;
	block_alarm(SIG_UNBLOCK);
	while (!spr_load_relaxed(&here.stop))
		put_record(spr_writer_here(here.p), here.tally, my_source, 40);
	return NULL;
}

static int role_timer_threads(struct rig *r, uint32_t arg)
{
	pthread_t t[3];

	arrive(r, arg);
	catch(SIGALRM, SA_RESTART);
	block_alarm(SIG_BLOCK); /* until a thread knows its source */
	for (uintptr_t i = 0; i < 3; i++)
		CHILD_CHECK(!pthread_create(&t[i], NULL, timer_thread, (void *)(i + 1)));
	block_alarm(SIG_UNBLOCK);
	start_timer(ITIMER_REAL, 50);
	for (uint32_t i = 0; i < test_count(100000, 3000000); i++)
		put_record(spr_writer_here(here.p), here.tally, my_source, 33);
	spr_store_relaxed(&here.stop, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	stop_timers();
	return 0;
}

static void handlers_in_any_of_four_threads_lose_nothing(void **state)
{
	TSAN_CANNOT_SEE_RECYCLING();
	(void)state;
	expect_roles(0, role_timer_threads, 1, 4);
}

/* --- The outer record never ends ---------------------------------------------------------------
 */

static int role_never_ends(struct rig *r, uint32_t arg)
{
	struct spr_slot slot;

	arrive(r, arg);
	catch(SIGUSR1, SA_RESTART);
	CHILD_CHECK(!open_record(spr_writer_here(here.p), r->tally, arg, 100, &slot));
	raise(SIGUSR1);
	spr_store_release(&r->tally->line[arg].note[0], 1u); /* [NOTE] */
	if (arg % 2)
		kill(getpid(), SIGKILL);
	while (spr_load_acquire(&r->tally->line[arg].note[0]) != 2) /* [NOTE] */
		sleep_us(100);
	_exit(0);
}

static void record_of_a_handler_arrives_though_the_outer_one_never_ends(void **state)
{
	struct rig r;
	pid_t pids[20];
	int status[20];
	(void)state;

	rig_open(&r, 0, NULL, 20);
	for (uint32_t i = 0; i < 20; i++)
		pids[i] = spawn(role_never_ends, &r, i);
	/* The even ones still stand in their outer record while this is delivered. */
	while (r.check.n_records < 60 && !r.check.n_faults)
		rig_step(&r, 100);
	for (uint32_t i = 0; i < 20; i++) {
		while (!spr_load_acquire(&r.tally->line[i].note[0])) /* [NOTE] */
			sleep_us(100);
		spr_store_release(&r.tally->line[i].note[0], 2u); /* [NOTE] */
	}
	rig_run(&r, pids, status, 20);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.delivered, 60);
	assert_int_equal(r.stats.written, 60);
	rig_close(&r);
}

/* --- Jumped away from ---------------------------------------------------------------------------
 */

static void jump_back(void)
{
	siglongjmp(here.back, 1);
}

static void open_and_jump_back(void)
{
	struct spr_slot slot;

	if (!open_record(spr_writer_here(here.p), here.tally, my_source, 48, &slot))
		spr_add_relaxed(&here.tally->line[my_source].abandoned, 1u);
	siglongjmp(here.back, 1);
}

/* Stand `depth` frames deeper, open a record there and be jumped away from. */
static void __attribute__((noinline)) open_deep(uint32_t depth)
{
	volatile char room[64];
	struct spr_slot slot;

	room[0] = (char)depth;
	if (depth) {
		open_deep(depth - 1);
	} else {
		if (!open_record(spr_writer_here(here.p), here.tally, my_source, 64, &slot))
			spr_add_relaxed(&here.tally->line[my_source].abandoned, 1u);
		raise(SIGUSR1);
	}
	room[1] = room[0];
}

static int role_longjmps(struct rig *r, uint32_t arg)
{
	static volatile uint32_t i;
	static uint64_t random = 5;

	arrive(r, arg);
	catch(SIGUSR1, SA_RESTART);
	for (i = 0; i < 1000; i++) {
		here.act = i % 2 ? jump_back : open_and_jump_back;
		if (!sigsetjmp(here.back, 1))
			open_deep(8 + (arg ? (uint32_t)(test_random(&random) % 20) : 0));
		/* From above every record jumped away from: all lanes are free again. */
		CHILD_CHECK(!put_record(spr_writer_here(here.p), r->tally, arg, 32));
	}
	here.act = NULL;
	CHILD_CHECK(spr_load_relaxed(&r->tally->line[arg].dropped) == 0);
	/* And a handler still has lanes to go to. */
	struct spr_slot slot;
	for (int k = 0; k < 100; k++) {
		CHILD_CHECK(!open_record(spr_writer_here(here.p), r->tally, arg, 30, &slot));
		raise(SIGUSR1);
		CHILD_CHECK(!end_record(spr_writer_here(here.p), r->tally, arg, &slot));
	}
	return 0;
}

static void thousand_longjmps_out_of_a_handler_lose_nothing_afterwards(void **state)
{
	(void)state;
	expect_roles(0, role_longjmps, 2, 2);
	expect_roles(RIG_EMBEDDED, role_longjmps, 2, 2);
}

static int role_timer_longjmps(struct rig *r, uint32_t arg)
{
	static volatile uint32_t n;

	arrive(r, arg);
	catch(SIGALRM, SA_RESTART);
	here.act = jump_back;
	n = 0;
	if (sigsetjmp(here.back, 1))
		n++;
	start_timer(ITIMER_REAL, 50);
	while (n < test_count(1000, 20000))
		put_record(spr_writer_here(here.p), here.tally, my_source, 32);
	stop_timers();
	here.act = NULL;
	const uint64_t dropped = spr_load_relaxed(&r->tally->line[arg].dropped);
	for (int k = 0; k < 1000; k++)
		CHILD_CHECK(!put_record(spr_writer_here(here.p), r->tally, arg, 32));
	CHILD_CHECK(dropped == 0);
	return 0;
}

/* The jump comes at any instruction, so a commit may have happened that nobody counted. */
static void longjmps_at_any_instruction_lose_nothing_afterwards(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	rig_open(&r, 0, NULL, 1);
	pid = spawn(role_timer_longjmps, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* --- Alternate stacks
 * ------------------------------------------------------------------------------ */

#define STACK_BYTES (2u << 20) /* what ThreadSanitizer needs */

struct alt {
	char *stack, *alt;
};

static void *alt_thread(void *arg)
{
	const struct alt *a = arg;
	const stack_t ss = { .ss_sp = a->alt, .ss_size = STACK_BYTES };
	struct spr_slot slot;

	CHILD_CHECK(sigaltstack(&ss, NULL) == 0);
	for (int i = 0; i < 1000; i++) {
		spr_writer *w = spr_writer_here(here.p);

		CHILD_CHECK(!open_record(w, here.tally, my_source, 60, &slot));
		raise(SIGUSR1);
		CHILD_CHECK(!end_record(w, here.tally, my_source, &slot));
	}
	return NULL;
}

static int role_alternate(struct rig *r, uint32_t arg)
{
	char *low = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	struct alt a = { low, low + STACK_BYTES };
	pthread_attr_t attr;
	pthread_t t;

	CHILD_CHECK(low != MAP_FAILED);
	if (arg) /* below instead of above */
		a = (struct alt){ low + STACK_BYTES, low };
	arrive(r, arg);
	catch(SIGUSR1, SA_RESTART | SA_ONSTACK);
	pthread_attr_init(&attr);
	CHILD_CHECK(!pthread_attr_setstack(&attr, a.stack, STACK_BYTES));
	my_source = arg;
	/* The thread's own copy of my_source is 0; both roles use line 0 of a rig of their own. */
	CHILD_CHECK(!pthread_create(&t, &attr, alt_thread, &a));
	pthread_join(t, NULL);
	return 0;
}

static void handler_on_an_alternate_stack_does_not_steal_an_open_lane(void **state)
{
	(void)state;

	for (uint32_t below = 0; below < 2; below++) {
		struct rig r;

		rig_open(&r, 0, NULL, 2);
		pid_t pid = spawn(role_alternate, &r, below);
		rig_run_expecting_zero(&r, &pid, 1);
		rig_finish(&r);
		rig_expect_exact(&r);
		assert_int_equal(r.stats.delivered, 4000);
		assert_int_equal(r.stats.lost, 0);
		rig_close(&r);
	}
}

/* A fiber with an open record, another on a stack above it: the ring cannot know them apart, but
 * whoever lost its lane is told so, and nothing is torn. */
static struct {
	ucontext_t main, fiber;
	struct spr_slot *slot;
	int err;
} fiber;

static void fiber_body(void)
{
	struct spr_slot slot;

	fiber.slot = &slot;
	fiber.err = open_record(spr_writer_here(here.p), here.tally, 0, 77, &slot);
	swapcontext(&fiber.fiber, &fiber.main);
	fiber.err = spr_commit(spr_writer_here(here.p), &slot);
	if (!fiber.err)
		spr_add_relaxed(&here.tally->line[0].committed, 1u);
	swapcontext(&fiber.fiber, &fiber.main);
}

static int role_fibers(struct rig *r, uint32_t arg)
{
	static char stack[64 << 10] __attribute__((aligned(16)));

	arrive(r, arg);
	for (int i = 0; i < 100; i++) {
		getcontext(&fiber.fiber);
		fiber.fiber.uc_stack.ss_sp = stack;
		fiber.fiber.uc_stack.ss_size = sizeof(stack);
		fiber.fiber.uc_link = NULL;
		makecontext(&fiber.fiber, fiber_body, 0);
		swapcontext(&fiber.main, &fiber.fiber);
		CHILD_CHECK(!fiber.err);
		/* Our stack lies above the fiber's. */
		for (int k = 0; k < 3; k++)
			CHILD_CHECK(!put_record(spr_writer_here(here.p), r->tally, arg, 90));
		swapcontext(&fiber.main, &fiber.fiber);
		if (fiber.err)
			spr_add_relaxed(&r->tally->line[arg].abandoned, 1u);
	}
	return 0;
}

static void fiber_that_lost_its_lane_is_told_so(void **state)
{
	struct rig r;
	(void)state;

	rig_open(&r, 0, NULL, 1);
	pid_t pid = spawn(role_fibers, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* --- fork and vfork
 * ---------------------------------------------------------------------------------- */

/* A child of a handler, with its parent's record open: what it inherited is not its own. */
static void fork_in_handler(void)
{
	const uint32_t source = (uint32_t)spr_add_relaxed(&here.tally->line[0].note[0], 1u);
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		for (int i = 0; i < 5; i++)
			CHILD_CHECK(!put_record(spr_writer_here(here.p), here.tally, source, 64));
		_exit(0);
	}
	CHILD_CHECK(pid > 0);
	status = wait_for(pid);
	CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int role_fork_in_handler(struct rig *r, uint32_t arg)
{
	arrive(r, arg);
	spr_store_relaxed(&r->tally->line[0].note[0], 1u);
	here.act = fork_in_handler;
	catch(SIGALRM, SA_RESTART);
	start_timer(ITIMER_REAL, 300);
	while (spr_load_relaxed(&r->tally->line[0].note[0]) < 200)
		put_record(spr_writer_here(here.p), r->tally, 0, 32);
	stop_timers();
	return 0;
}

static void fork_inside_a_handler_gives_the_child_a_writer_of_its_own(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	if (UNDER_TSAN)
		TEST_SKIP("fork under ThreadSanitizer");
	rig_open(&r, 0, NULL, 256);
	pid = spawn(role_fork_in_handler, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

static int role_fork_open(struct rig *r, uint32_t arg)
{
	struct spr_slot slot;

	arrive(r, arg);
	for (uint32_t i = 1; i < 50; i++) {
		spr_writer *w = spr_writer_here(here.p);

		CHILD_CHECK(!open_record(w, r->tally, 0, 50, &slot));
		const pid_t pid = fork();
		if (!pid) {
			if (i % 3 == 0)
				CHILD_CHECK(spr_commit(w, &slot) != 0);
			if (i % 3 == 1)
				spr_abandon(w, &slot);
			for (int k = 0; k < 5; k++)
				CHILD_CHECK(!put_record(spr_writer_here(here.p), r->tally, i, 40));
			_exit(0);
		}
		const int status = wait_for(pid);
		CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		CHILD_CHECK(!end_record(w, r->tally, 0, &slot));
	}
	return 0;
}

static void child_cannot_end_a_record_its_parent_opened(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	rig_open(&r, 0, NULL, 50);
	pid = spawn(role_fork_open, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	assert_int_equal(r.stats.delivered, 49 * 6);
	rig_close(&r);
}

/* The child of a vfork dies in its record; it shares our lanes. */
static void __attribute__((noinline)) die_in_record(uint32_t n_open)
{
	struct spr_slot slot;

	if (!open_record(spr_writer_here(here.p), here.tally, my_source, 64, &slot))
		spr_add_relaxed(&here.tally->line[my_source].abandoned, 1u);
	if (n_open > 1)
		die_in_record(n_open - 1);
	kill((pid_t)spr_sys_raw(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL);
	spr_compiler_barrier();
}

static void __attribute__((noinline)) vfork_and_kill(volatile int how)
{
	int status = 0;
	const pid_t pid = vfork();

	if (!pid) {
		if (how & 1)
			put_record(spr_writer_here(here.p), here.tally, my_source, 24);
		die_in_record(how & 2 ? 2 : 1);
		_exit(1);
	}
	waitpid(pid, &status, 0);
	CHILD_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static int role_vforks(struct rig *r, uint32_t arg)
{
	arrive(r, arg);
	if (arg) {
		catch(SIGALRM, SA_RESTART);
		start_timer(ITIMER_REAL, 500);
	}
	for (int i = 0; i < 1000; i++) {
		vfork_and_kill(i);
		CHILD_CHECK(!put_record(spr_writer_here(here.p), r->tally, arg, 32));
	}
	stop_timers();
	CHILD_CHECK(spr_load_relaxed(&r->tally->line[arg].dropped) == 0);
	return 0;
}

static void thousand_vfork_children_killed_in_a_record_lose_nothing_afterwards(void **state)
{
	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("vfork under a sanitizer");
	(void)state;
	expect_roles(0, role_vforks, 2, 2);
	expect_roles(RIG_EMBEDDED, role_vforks, 1, 1);
}

/* --- Small stacks
 * ---------------------------------------------------------------------------------- */

static void *small_thread(void *arg)
{
	my_source = (uint32_t)(uintptr_t)arg;
	for (int i = 0; i < 2000; i++)
		put_record(spr_writer_here(here.p), here.tally, my_source, 24 + (uint32_t)i % 700);
	return NULL;
}

static int role_small_stacks(struct rig *r, uint32_t arg)
{
	pthread_attr_t attr;
	pthread_t t[20];

	arrive(r, arg);
	pthread_attr_init(&attr);
	CHILD_CHECK(!pthread_attr_setstacksize(&attr, 16 << 10));
	for (uintptr_t i = 0; i < 20; i++)
		CHILD_CHECK(!pthread_create(&t[i], &attr, small_thread, (void *)i));
	for (int i = 0; i < 20; i++)
		pthread_join(t[i], NULL);
	return 0;
}

static void threads_with_stacks_of_16_kib_write(void **state)
{
	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer needs more stack than that");
	(void)state;
	expect_roles(0, role_small_stacks, 1, 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_of_a_handler_and_of_what_it_interrupts_all_arrive),
		cmocka_unit_test(handlers_that_interrupt_handlers_lose_nothing),
		cmocka_unit_test(handlers_in_any_of_four_threads_lose_nothing),
		cmocka_unit_test(record_of_a_handler_arrives_though_the_outer_one_never_ends),
		cmocka_unit_test(thousand_longjmps_out_of_a_handler_lose_nothing_afterwards),
		cmocka_unit_test(longjmps_at_any_instruction_lose_nothing_afterwards),
		cmocka_unit_test(handler_on_an_alternate_stack_does_not_steal_an_open_lane),
		cmocka_unit_test(fiber_that_lost_its_lane_is_told_so),
		cmocka_unit_test(fork_inside_a_handler_gives_the_child_a_writer_of_its_own),
		cmocka_unit_test(child_cannot_end_a_record_its_parent_opened),
		cmocka_unit_test(
			thousand_vfork_children_killed_in_a_record_lose_nothing_afterwards),
		cmocka_unit_test(threads_with_stacks_of_16_kib_write),
	};

	return RUN_TESTS(tests, NULL, NULL);
}
