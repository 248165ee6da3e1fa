/* SPDX-License-Identifier: MIT */
/*
 * ring_fork_test.c - processes and threads that come and go: fork, vfork, clone, exits of every
 * kind, thread ids used twice, daemons that outlive the channel, stopped writers.
 */
#include <pthread.h>
#include <sys/syscall.h>

#include "tests/ring_support.h"

static struct {
	spr_producer *p;
	struct tally *tally;
	_Atomic int   stop;
} here;

static int write_some(uint32_t source, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (put_record(spr_writer_here(here.p), here.tally, source, 24 + i % 77))
			return 1;
	}
	return 0;
}

static void arrive(struct rig *r)
{
	here.p = attach_or_exit(r->address);
	here.tally = r->tally;
	spr_store_relaxed(&here.stop, 0);
}

/* The roles' records all arrive, nothing lost, and everything they held comes back. */
static void expect_role(int (*role)(struct rig *r, uint32_t arg), uint32_t n_roles,
                        uint32_t n_sources)
{
	struct rig r;
	pid_t pids[8];

	rig_open(&r, 0, NULL, n_sources);
	for (uint32_t i = 0; i < n_roles; i++)
		pids[i] = spawn(role, &r, i);
	rig_run_expecting_zero(&r, pids, n_roles);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* --- fork
 * ------------------------------------------------------------------------------------------ */

static int role_fork_both(struct rig *r, uint32_t arg)
{
	pid_t pids[16];
	(void)arg;

	arrive(r);
	CHILD_CHECK(!write_some(0, 10));
	for (uint32_t i = 1; i <= 16; i++) {
		pids[i - 1] = fork();
		CHILD_CHECK(pids[i - 1] >= 0);
		if (!pids[i - 1])
			_exit(write_some(i, 2000));
		CHILD_CHECK(!write_some(0, 500));
	}
	for (int i = 0; i < 16; i++)
		CHILD_CHECK(wait_for(pids[i]) == 0);
	return write_some(0, 10);
}

static void parent_and_forked_children_write_at_once(void **state)
{
	(void)state;
	expect_role(role_fork_both, 1, 17);
}

static int generation(uint32_t source)
{
	if (write_some(source, 20))
		return 1;
	if (source == 40)
		return 0;
	const pid_t pid = fork();
	if (!pid)
		_exit(generation(source + 1));
	return wait_for(pid) != 0 || write_some(source, 20);
}

static int role_generations(struct rig *r, uint32_t arg)
{
	(void)arg;
	arrive(r);
	return generation(0);
}

static void children_of_children_write(void **state)
{
	(void)state;
	expect_role(role_generations, 1, 41);
}

/* The parent never wrote before it forked: the child is the first to want a writer. */
static int role_fork_first(struct rig *r, uint32_t arg)
{
	arrive(r);
	for (uint32_t i = 0; i < 50; i++) {
		const pid_t pid = fork();

		if (!pid)
			_exit(write_some(arg * 100 + i + 1, 5));
		CHILD_CHECK(wait_for(pid) == 0);
	}
	return write_some(arg * 100, 5);
}

static void child_of_a_parent_that_never_wrote_writes(void **state)
{
	(void)state;
	expect_role(role_fork_first, 2, 200);
}

static void *flood(void *arg)
{
	const uint32_t source = (uint32_t)(uintptr_t)arg;

	while (!spr_load_relaxed(&here.stop)) {
		put_record(spr_writer_here(here.p), here.tally, source, 64);
		sched_yield();
	}
	return NULL;
}

static int role_fork_threads(struct rig *r, uint32_t arg)
{
	pthread_t t[4];
	const uint32_t n = test_count(300, 5000);
	(void)arg;

	arrive(r);
	for (uintptr_t i = 0; i < 4; i++)
		CHILD_CHECK(!pthread_create(&t[i], NULL, flood, (void *)(i + 1)));
	for (uint32_t i = 0; i < n; i++) {
		const pid_t pid = fork();

		CHILD_CHECK(pid >= 0);
		if (!pid)
			_exit(write_some(5 + i, 3));
		CHILD_CHECK(!write_some(0, 3));
		CHILD_CHECK(wait_for(pid) == 0);
	}
	spr_store_relaxed(&here.stop, 1);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return 0;
}

static void fork_beside_live_threads_loses_nothing(void **state)
{
	if (UNDER_TSAN)
		TEST_SKIP("fork with threads under ThreadSanitizer");
	(void)state;
	expect_role(role_fork_threads, 1, 5005);
}

/* The child closes everything it does not know before it writes its first record. */
static int role_fork_close_all(struct rig *r, uint32_t arg)
{
	(void)arg;
	arrive(r);
	CHILD_CHECK(!write_some(0, 5));
	for (uint32_t i = 1; i <= 20; i++) {
		const pid_t pid = fork();

		if (!pid) {
			spr_sys_raw(SYS_close_range, 0, ~0u, 0, 0, 0, 0);
			_exit(write_some(i, 5));
		}
		CHILD_CHECK(wait_for(pid) == 0);
	}
	return 0;
}

static void child_that_closed_every_descriptor_writes(void **state)
{
	(void)state;
	expect_role(role_fork_close_all, 1, 21);
}

/* --- vfork and clone
 * --------------------------------------------------------------------------------- */

static void __attribute__((noinline)) vfork_writes(uint32_t source, uint32_t n)
{
	int status = 0;
	const pid_t pid = vfork();

	if (!pid) {
		write_some(source, n);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	CHILD_CHECK(status == 0);
}

static int role_vfork(struct rig *r, uint32_t arg)
{
	arrive(r);
	for (uint32_t i = 0; i < 500; i++) {
		vfork_writes(arg, 7);
		CHILD_CHECK(!write_some(arg, 7));
	}
	/* Larger than a first segment: the child may hop for its parent. */
	vfork_writes(arg, 3000);
	CHILD_CHECK(!write_some(arg, 3000));
	return 0;
}

static void child_of_vfork_writes_through_its_parent(void **state)
{
	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("vfork under a sanitizer");
	(void)state;
	expect_role(role_vfork, 2, 2);
}

/* The first record ever of this thread is made by the vfork child: the parent goes on with it. */
static int role_vfork_first(struct rig *r, uint32_t arg)
{
	arrive(r);
	vfork_writes(arg, 3);
	return write_some(arg, 3);
}

static void child_of_vfork_may_make_its_parents_writer(void **state)
{
	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("vfork under a sanitizer");
	(void)state;
	expect_role(role_vfork_first, 4, 4);
}

static int clone_body(void *arg)
{
	return write_some((uint32_t)(uintptr_t)arg, 200);
}

/* Shares memory and nothing else, as posix_spawn does: no CLONE_FILES. */
static int role_clone(struct rig *r, uint32_t arg)
{
	char *stack = mmap(NULL, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	                   0);

	arrive(r);
	CHILD_CHECK(stack != MAP_FAILED);
	for (int i = 0; i < 100; i++) {
		const pid_t pid = clone(clone_body, stack + (256 << 10),
		                        CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(uintptr_t)arg);

		CHILD_CHECK(pid > 0);
		CHILD_CHECK(wait_for(pid) == 0);
		CHILD_CHECK(!write_some(arg, 10));
	}
	/* And a whole copy, made by clone itself: libc's fork is not asked. */
	for (uint32_t i = 0; i < 20; i++) {
		const long pid = spr_sys_raw(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);

		if (!pid)
			_exit(write_some(2 + arg * 20 + i, 20));
		CHILD_CHECK(wait_for((pid_t)pid) == 0);
	}
	return 0;
}

static void clone_without_shared_descriptors_writes(void **state)
{
	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("clone under a sanitizer");
	(void)state;
	expect_role(role_clone, 2, 42);
}

/* Killed in the middle of a burst through its parent. */
/* Not inlined: aarch64's call has registers that the compiler fears for behind vfork. */
static pid_t __attribute__((noinline)) raw_getpid(void)
{
	return (pid_t)spr_sys_raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

static void __attribute__((noinline)) vfork_floods(uint32_t source, pid_t *shared_pid)
{
	const pid_t pid = vfork();

	if (!pid) {
		spr_store_relaxed((_Atomic pid_t *)shared_pid, raw_getpid());
		for (;;)
			write_some(source, 100);
	}
	wait_for(pid);
}

static int role_vfork_victim(struct rig *r, uint32_t arg)
{
	arrive(r);
	for (int i = 0; i < 40; i++) {
		vfork_floods(arg, (pid_t *)&r->tally->line[arg].note[0]);
		CHILD_CHECK(!write_some(arg, 50));
	}
	CHILD_CHECK(spr_load_relaxed(&r->tally->line[arg].dropped) == 0);
	return 0;
}

static void child_of_vfork_killed_in_a_flood_leaves_its_parent_whole(void **state)
{
	struct rig r;
	uint64_t random = 11;
	int status = 0;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("vfork under a sanitizer");
	rig_open(&r, 0, NULL, 1);
	const pid_t pid = spawn(role_vfork_victim, &r, 0);
	_Atomic pid_t *victim = (_Atomic pid_t *)&r.tally->line[0].note[0];
	while (waitpid(pid, &status, WNOHANG) != pid) {
		const pid_t v = spr_load_relaxed(victim);

		rig_step(&r, 0);
		if (!v)
			continue;
		sleep_us(test_random(&random) % 1000);
		spr_store_relaxed(victim, 0);
		kill(v, SIGKILL);
	}
	assert_int_equal(status, 0);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	rig_close(&r);
}

/* --- Threads
 * ---------------------------------------------------------------------------------------- */

static void *short_thread(void *arg)
{
	return (void *)(intptr_t)write_some((uint32_t)(uintptr_t)arg, 5);
}

/* One after another: thread ids and stacks come again and again. */
static int role_threads_in_turn(struct rig *r, uint32_t arg)
{
	(void)arg;
	arrive(r);
	for (uintptr_t i = 0; i < test_count(5000, 50000); i++) {
		pthread_t t;
		void *result;

		CHILD_CHECK(!pthread_create(&t, NULL, short_thread, (void *)(i % 5000)));
		pthread_join(t, &result);
		CHILD_CHECK(!result);
	}
	return 0;
}

static void five_thousand_threads_in_turn_give_their_space_back(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	rig_open(&r, 0, NULL, 5000);
	r.check.is_unordered = test_long();
	pid = spawn(role_threads_in_turn, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_expect_all_back(&r);
	assert_true(rig_resident(&r) < 16u << 20);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

static pthread_barrier_t all_here;

static void *waiting_thread(void *arg)
{
	const int failed = write_some((uint32_t)(uintptr_t)arg, 2);

	pthread_barrier_wait(&all_here);
	return (void *)(intptr_t)(failed | write_some((uint32_t)(uintptr_t)arg, 2));
}

/* All at once; what the kernel lets us have of them. */
static int role_threads_at_once(struct rig *r, uint32_t arg)
{
	static pthread_t t[5000];
	const uint32_t n = test_count(1500, 5000);
	pthread_attr_t attr;
	uint32_t n_made = 0;
	void *result;
	(void)arg;

	arrive(r);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	pthread_barrier_init(&all_here, NULL, n);
	while (n_made < n && !pthread_create(&t[n_made], &attr, waiting_thread,
	                                     (void *)(uintptr_t)n_made))
		n_made++;
	CHILD_CHECK(n_made == n);
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(t[i], &result);
		CHILD_CHECK(!result);
	}
	return 0;
}

static void thousands_of_threads_at_once_write(void **state)
{
	struct rig r;
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	pid_t pid;
	(void)state;

	TSAN_CANNOT_SEE_RECYCLING();
	opt.capacity_bytes = 1u << 30; /* 8,192 first segments */
	rig_open(&r, 0, &opt, 5000);
	pid = spawn(role_threads_at_once, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* A key destructor that runs after ours still writes; its record is as good as any. */
static pthread_key_t late_key;

static void late_destructor(void *arg)
{
	const uint32_t source = (uint32_t)(uintptr_t)arg & 0xffff;
	const uintptr_t round = (uintptr_t)arg >> 16;

	write_some(source, 2);
	if (round < 3)
		pthread_setspecific(late_key, (void *)((round + 1) << 16 | source));
}

static void *late_thread(void *arg)
{
	pthread_setspecific(late_key, (void *)((uintptr_t)1 << 16 | (uintptr_t)arg));
	return (void *)(intptr_t)write_some((uint32_t)(uintptr_t)arg, 3);
}

static int role_late_destructors(struct rig *r, uint32_t arg)
{
	pthread_t t;
	(void)arg;

	CHILD_CHECK(!pthread_key_create(&late_key, late_destructor));
	arrive(r);
	for (uintptr_t i = 0; i < 200; i++) {
		CHILD_CHECK(!pthread_create(&t, NULL, late_thread, (void *)i));
		pthread_join(t, NULL);
	}
	return 0;
}

static void records_of_late_thread_destructors_arrive(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	rig_open(&r, 0, NULL, 200);
	pid = spawn(role_late_destructors, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.delivered, 200 * 9);
	rig_close(&r);
}

/* Cancelled in the middle of writing: what was committed is there, the space comes back. */
static void *cancelled_thread(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		write_some((uint32_t)(uintptr_t)arg, 1000);
	return NULL;
}

static int role_cancelled(struct rig *r, uint32_t arg)
{
	uint64_t random = 3;
	(void)arg;

	arrive(r);
	for (uintptr_t i = 0; i < 100; i++) {
		pthread_t t;

		CHILD_CHECK(!pthread_create(&t, NULL, cancelled_thread, (void *)(i + 1)));
		sleep_us(100 + test_random(&random) % 300);
		pthread_cancel(t);
		pthread_join(t, NULL);
		CHILD_CHECK(!write_some(0, 5));
	}
	return 0;
}

static void threads_cancelled_in_a_record_give_their_space_back(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("asynchronous cancellation under a sanitizer");
	rig_open(&r, 0, NULL, 101);
	pid = spawn(role_cancelled, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* --- Exits
 * ------------------------------------------------------------------------------------------- */

static void write_at_exit(void)
{
	write_some(0, 3);
}

static void *busy_until_the_end(void *arg)
{
	for (;;)
		put_record(spr_writer_here(here.p), here.tally, (uint32_t)(uintptr_t)arg, 40);
	return NULL;
}

/* LeakSanitizer asks before it looks. A child that ends by exit() holds what the test held before
 * the fork, and has perhaps no stack left from which that could be reached. */
static bool leaks_are_the_parents;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return leaks_are_the_parents;
}

/* 0 _exit, 1 exit with an exit handler, 2 SIGKILL, 3 abort, 4 exit while threads write, 5 execve,
 * 6 pthread_exit of the main thread */
static int role_exit(struct rig *r, uint32_t how)
{
	char *const argv[] = { (char *)"true", NULL };
	pthread_t t;

	arrive(r);
	leaks_are_the_parents = true;
	if (how == 1)
		atexit(write_at_exit);
	CHILD_CHECK(!write_some(0, 20));
	if (how == 4) {
		for (uintptr_t i = 1; i < 4; i++)
			CHILD_CHECK(!pthread_create(&t, NULL, busy_until_the_end, (void *)i));
		sleep_us(2000);
		exit(0);
	}
	if (how == 1)
		exit(0);
	if (how == 2)
		kill(getpid(), SIGKILL);
	if (how == 3) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		abort();
	}
	if (how == 5)
		execve("/bin/true", argv, NULL);
	if (how == 6)
		pthread_exit(NULL);
	return 0;
}

static void every_way_to_exit_keeps_the_records_and_gives_space_back(void **state)
{
	(void)state;

	for (uint32_t how = 0; how <= 6; how++) {
		struct rig r;

		/* Exit beside running threads; a main thread that leaves its background thread. */
		if ((how == 4 || how == 6) && UNDER_TSAN)
			continue;

		rig_open(&r, 0, NULL, 4);
		for (uint32_t i = 0; i < (how == 4 ? 20 : 3); i++) {
			int status;
			pid_t pid = spawn(role_exit, &r, how);

			rig_run(&r, &pid, &status, 1);
			if (how == 2)
				assert_int_equal(status, SIGKILL);
			else if (how == 3)
				assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
			else
				assert_int_equal(status, 0);
		}
		rig_expect_all_back(&r);
		rig_finish(&r);
		rig_expect_exact_after_kills(&r);
		assert_int_equal(r.stats.lost, 0);
		assert_true(how == 4 || r.stats.delivered == 3 * (how == 1 ? 23 : 20));
		rig_close(&r);
	}
}

/* --- Outliving, standing still
 * ------------------------------------------------------------------------ */

/* Writes until it is told that the channel is gone, then on and on. */
static int role_daemon(struct rig *r, uint32_t arg)
{
	struct tally_line *line = &r->tally->line[arg];

	arrive(r);
	setsid();
	while (!spr_load_acquire(&line->note[0])) { /* [NOTE] */
		put_record(spr_writer_here(here.p), r->tally, arg, 60);
		sleep_us(50);
	}
	/* Closed: refused at once, in forked children and new threads as well. */
	for (int i = 0; i < 1000; i++)
		CHILD_CHECK(spr_write(spr_writer_here(here.p), 0, "x", 1) == -EPIPE);
	const pid_t pid = fork();
	if (!pid)
		_exit(spr_write(spr_writer_here(here.p), 0, "x", 1) == 0);
	CHILD_CHECK(wait_for(pid) == 0);
	spr_detach(here.p);
	return 0;
}

static void daemons_outlive_the_channel_unharmed(void **state)
{
	struct rig r;
	struct tally *tally;
	pid_t pids[4];
	struct spr_verdict v = SPR_VERDICT_INIT;
	(void)state;

	rig_open(&r, 0, NULL, 4);
	for (uint32_t i = 0; i < 4; i++)
		pids[i] = spawn(role_daemon, &r, i);
	for (uint32_t i = 0; i < 4; i++) {
		while (spr_load_relaxed(&r.tally->line[i].committed) < 50)
			rig_step(&r, 1);
	}
	rig_finish(&r);
	assert_int_equal(spr_channel_verdict(r.ch, &v), 0);
	assert_true(v.reasons & SPR_LEFT_RUNNING);
	assert_int_equal(v.left_running, 4);
	tally = r.tally;
	r.tally = NULL;
	rig_close(&r);
	for (uint32_t i = 0; i < 4; i++)
		spr_store_release(&tally->line[i].note[0], 1u); /* [NOTE] */
	for (uint32_t i = 0; i < 4; i++)
		expect_exit(pids[i], 0);
	tally_close(tally);
}

static int role_stopped(struct rig *r, uint32_t arg)
{
	struct spr_slot slot;

	arrive(r);
	CHILD_CHECK(!write_some(arg, 10));
	if (!open_record(spr_writer_here(here.p), r->tally, arg, 64, &slot)) {
		raise(SIGSTOP);
		end_record(spr_writer_here(here.p), r->tally, arg, &slot);
	}
	write_some(arg, 10);
	return 0;
}

static int role_others(struct rig *r, uint32_t arg)
{
	arrive(r);
	return write_some(arg, test_count(300000, 3000000));
}

/* Stopped with a record open while others lap it; then it goes on: before the seal its commit
 * counts, after it it is refused. Nobody waits for it. */
static void stopped_writer_holds_nobody_up(void **state)
{
	(void)state;

	for (int after_seal = 0; after_seal < 2; after_seal++) {
		struct rig r;
		pid_t stopped, other;
		int status = 0;

		rig_open(&r, 0, NULL, 2);
		stopped = spawn(role_stopped, &r, 0);
		assert_int_equal(waitpid(stopped, &status, WUNTRACED), stopped);
		assert_true(WIFSTOPPED(status));
		other = spawn(role_others, &r, 1);
		rig_run_expecting_zero(&r, &other, 1);
		if (after_seal)
			rig_finish(&r);
		kill(stopped, SIGCONT);
		if (after_seal)
			expect_exit(stopped, 0);
		else
			rig_run_expecting_zero(&r, &stopped, 1);
		rig_finish(&r);
		rig_expect_exact(&r);
		assert_int_equal(r.stats.refused, after_seal ? 2 : 0);
		rig_close(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parent_and_forked_children_write_at_once),
		cmocka_unit_test(children_of_children_write),
		cmocka_unit_test(child_of_a_parent_that_never_wrote_writes),
		cmocka_unit_test(fork_beside_live_threads_loses_nothing),
		cmocka_unit_test(child_that_closed_every_descriptor_writes),
		cmocka_unit_test(child_of_vfork_writes_through_its_parent),
		cmocka_unit_test(child_of_vfork_may_make_its_parents_writer),
		cmocka_unit_test(clone_without_shared_descriptors_writes),
		cmocka_unit_test(child_of_vfork_killed_in_a_flood_leaves_its_parent_whole),
		cmocka_unit_test(five_thousand_threads_in_turn_give_their_space_back),
		cmocka_unit_test(thousands_of_threads_at_once_write),
		cmocka_unit_test(records_of_late_thread_destructors_arrive),
		cmocka_unit_test(threads_cancelled_in_a_record_give_their_space_back),
		cmocka_unit_test(every_way_to_exit_keeps_the_records_and_gives_space_back),
		cmocka_unit_test(daemons_outlive_the_channel_unharmed),
		cmocka_unit_test(stopped_writer_holds_nobody_up),
	};

	return RUN_TESTS(tests, NULL, NULL);
}
