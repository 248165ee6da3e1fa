/* SPDX-License-Identifier: MIT */
/*
 * ring_kill_test.c - writers killed at every instruction of a write, and at random under load.
 *
 * A child stops itself before the window under test; we single-step it k instructions into it and
 * kill it there, for every k. What it had committed must be there, what it stood in may or may
 * not, everything it held comes back, and a bystander that writes all the while is unharmed.
 */
#include <sys/ptrace.h>

#include "tests/ring_support.h"

enum { bystander_source, first_victim };

/* What a window says of itself in its note words. */
#define NOTE_DONE 1u

struct window {
	const char *name;
	uint32_t n_prepared;     /* records of 1000 bytes before it */
	bool     is_drained;     /* the collector reads those before the window opens */
	bool     is_attach;      /* attaching is the window */
	void (*act)(struct rig *r, spr_producer *p, uint32_t source);
};

static void one_record(struct rig *r, spr_producer *p, uint32_t source)
{
	put_record(spr_writer_here(p), r->tally, source, 200);
}

static void two_records(struct rig *r, spr_producer *p, uint32_t source)
{
	put_record(spr_writer_here(p), r->tally, source, 24);
	put_record(spr_writer_here(p), r->tally, source, 32);
}

static void __attribute__((noinline))
nested_records(struct rig *r, spr_producer *p, uint32_t source)
{
	spr_writer *w = spr_writer_here(p);
	struct spr_slot slot;

	if (open_record(w, r->tally, source, 40, &slot))
		return;
	put_record(w, r->tally, source, 24);
	end_record(w, r->tally, source, &slot);
}

static void abandoned_record(struct rig *r, spr_producer *p, uint32_t source)
{
	struct spr_slot slot;
	spr_writer *w = spr_writer_here(p);

	if (!open_record(w, r->tally, source, 40, &slot))
		spr_abandon(w, &slot);
	put_record(w, r->tally, source, 24);
}

static void writer_end(struct rig *r, spr_producer *p, uint32_t source)
{
	(void)r;
	(void)source;
	spr_writer_end(p);
}

static void detach(struct rig *r, spr_producer *p, uint32_t source)
{
	(void)r;
	(void)source;
	spr_detach(p);
}

/* Segments are 4, 16, 64 and 256 KiB; a record of 1000 bytes takes 1016 of them. */
static const struct window windows[] = {
	{ "attach", 0, false, true, one_record },
	{ "the first record, with its claim", 0, false, false, one_record },
	{ "two records on the common path", 1, true, false, two_records },
	{ "an abandoned record and the next", 1, true, false, abandoned_record },
	{ "a nested record, with the lane's claim", 1, true, false, nested_records },
	{ "room in a segment that was read", 4, true, false, one_record },
	{ "the hop from 4 to 16 KiB", 4, false, false, one_record },
	{ "the hop from 16 to 64 KiB", 4 + 16, false, false, one_record },
	{ "the hop from 64 to 256 KiB", 4 + 16 + 64, false, false, one_record },
	{ "the hop to a second 256 KiB", 4 + 16 + 64 + 258, false, false, one_record },
	{ "the end of a writer", 6, false, false, writer_end },
	{ "detach", 6, false, false, detach },
};

static const struct window *window_of_child;

static int role_victim(struct rig *r, uint32_t source)
{
	const struct window *w = window_of_child;
	struct tally_line *line = &r->tally->line[source];
	spr_producer *p = NULL;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 96;
	if (!w->is_attach) {
		p = attach_or_exit(r->address);
		for (uint32_t i = 0; i < w->n_prepared; i++)
			put_record(spr_writer_here(p), r->tally, source, 1000);
	}
	kill(getpid(), SIGTRAP);
	if (w->is_attach && spr_attach(&p, r->address))
		_exit(97);
	w->act(r, p, source);
	spr_store_relaxed(&line->note[0], NOTE_DONE);
	_exit(0);
}

static int role_bystander(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);
	struct tally_line *line = &r->tally->line[source];
	uint64_t random = 1;

	while (!spr_load_relaxed(&line->note[0])) {
		for (int i = 0; i < 4; i++)
			put_record(spr_writer_here(p), r->tally, source,
			           24 + (uint32_t)(test_random(&random) % 300));
		sleep_us(300);
	}
	return 0;
}

/* Step at most n instructions; how many it took to the end of the window, or n. 0: no ptrace. */
static uint64_t step_into(struct rig *r, pid_t pid, uint32_t source, uint64_t n)
{
	_Atomic uint64_t *done = &r->tally->line[source].note[0];
	int status = 0;
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (spr_load_relaxed(done) == NOTE_DONE)
			break;
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL))
			fail_msg("PTRACE_SINGLESTEP: %s", strerror(errno));
		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			fail_msg("the victim ended by itself: status %#x", (unsigned)status);
		if (WSTOPSIG(status) != SIGTRAP)
			fail_msg("the victim got signal %d after %llu steps", WSTOPSIG(status),
			         (unsigned long long)i);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return i;
}

static bool start_victim(struct rig *r, const struct window *w, uint32_t source, pid_t *pid)
{
	int status = 0;

	window_of_child = w;
	*pid = spawn(role_victim, r, source);
	if (waitpid(*pid, &status, 0) != *pid)
		return false;
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
		print_message("    victim: status %#x instead of a stop\n", (unsigned)status);
		kill(*pid, SIGKILL);
		return false;
	}
	/* The victim stands still and the bystander does not: never quiet, but read in one pass. */
	for (int i = 0; w->is_drained && i < 3; i++)
		rig_step(r, 0);
	return true;
}

static void kill_in_window(const struct window *w, uint64_t *n_kills)
{
	const uint32_t n_most = test_count(16, 3000);
	uint64_t random = test_seed();
	struct rig r;
	pid_t pid;

	rig_open(&r, 0, NULL, first_victim + n_most + 2);
	const pid_t bystander = spawn(role_bystander, &r, bystander_source);
	if (!start_victim(&r, w, first_victim, &pid)) {
		kill(bystander, SIGKILL);
		wait_for(bystander);
		rig_finish(&r);
		rig_close(&r);
		TEST_SKIP("no ptrace here");
	}
	const uint64_t n_steps = step_into(&r, pid, first_victim, 10000000);
	const uint64_t n = n_steps < n_most ? n_steps : n_most;
	for (uint64_t i = 0; i < n; i++) {
		const uint64_t span = n_steps / n;
		const uint64_t k = i * n_steps / n + (span > 1 ? test_random(&random) % span : 0);

		assert_true(start_victim(&r, w, first_victim + 1 + (uint32_t)i, &pid));
		step_into(&r, pid, first_victim + 1 + (uint32_t)i, k);
		rig_step(&r, 0);
		if (r.check.n_faults)
			break;
	}
	spr_store_relaxed(&r.tally->line[bystander_source].note[0], 1u);
	rig_run_expecting_zero(&r, &bystander, 1);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	assert_int_equal(r.check.sources[bystander_source].delivered,
	                 spr_load_relaxed(&r.tally->line[bystander_source].committed));
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
	print_message("    %-40s %5llu instructions, killed at %llu of them\n", w->name,
	              (unsigned long long)n_steps, (unsigned long long)n);
	*n_kills += n;
}

static void writer_killed_at_any_instruction_harms_nothing(void **state)
{
	const char *only = getenv("SPARRING_TEST_WINDOW");
	uint64_t n_kills = 0;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("single steps under a sanitizer");
	/* One alone: $SPARRING_TEST_WINDOW is a part of its name. */
	for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
		if (!only || strstr(windows[i].name, only))
			kill_in_window(&windows[i], &n_kills);
	}
	print_message("    %llu kills\n", (unsigned long long)n_kills);
}

/* --- Full, and sealed in between
 * ------------------------------------------------------------------ */

static void fill_it(struct rig *r, spr_producer *p, uint32_t source)
{
	while (!put_record(spr_writer_here(p), r->tally, source, 1000))
		;
}

static int role_full_victim(struct rig *r, uint32_t source)
{
	spr_producer *p;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 96;
	p = attach_or_exit(r->address);
	fill_it(r, p, source);
	kill(getpid(), SIGTRAP);
	put_record(spr_writer_here(p), r->tally, source, 1000);
	spr_store_relaxed(&r->tally->line[source].note[0], NOTE_DONE);
	_exit(0);
}

/* Step k instructions into a role that stops itself, after `then`; 0: the window ended. */
static bool kill_role_at(int (*role)(struct rig *, uint32_t), struct rig *r, uint64_t k,
                         void (*then)(struct rig *))
{
	int status = 0;
	const pid_t pid = spawn(role, r, 0);

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	if (then)
		then(r);
	return step_into(r, pid, 0, k) == k;
}

static void writer_killed_while_it_drops_is_counted(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	uint64_t random = test_seed(), n = 0;
	bool more = true;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("single steps under a sanitizer");
	opt.capacity_bytes = 1u << 20;
	opt.flags = SPR_DROP;
	for (uint64_t k = 0; more; k += 1 + test_random(&random) % (test_long() ? 3 : 200)) {
		struct rig r;

		rig_open(&r, RIG_EMBEDDED, &opt, 1);
		more = kill_role_at(role_full_victim, &r, k, NULL);
		rig_finish(&r);
		rig_expect_exact_after_kills(&r);
		/* The first -EAGAIN was before the window; of the one in it nobody knows.
		 */
		const uint64_t dropped = spr_load_relaxed(&r.tally->line[0].dropped);
		assert_true(r.stats.lost == dropped || r.stats.lost == dropped + 1);
		rig_close(&r);
		n++;
	}
	print_message("    %llu kills\n", (unsigned long long)n);
}

static int role_seal_victim(struct rig *r, uint32_t source)
{
	struct spr_slot slot;
	spr_producer *p;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 96;
	p = attach_or_exit(r->address);
	spr_writer *w = spr_writer_here(p);
	put_record(w, r->tally, source, 100);
	if (open_record(w, r->tally, source, 50, &slot))
		_exit(95);
	kill(getpid(), SIGTRAP);
	end_record(w, r->tally, source, &slot);
	put_record(w, r->tally, source, 60);
	spr_store_relaxed(&r->tally->line[source].note[0], NOTE_DONE);
	_exit(0);
}

static void seal_it(struct rig *r)
{
	assert_int_equal(spr_channel_seal(r->ch), 0);
	r->is_sealed = true;
}

/* Sealed after k instructions of a commit, then killed, or let run to its verdict. */
static int role_commit_victim(struct rig *r, uint32_t source)
{
	spr_producer *p;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 96;
	p = attach_or_exit(r->address);
	spr_writer *w = spr_writer_here(p);
	put_record(w, r->tally, source, 100);
	kill(getpid(), SIGTRAP);
	put_record(w, r->tally, source, 24);
	put_record(w, r->tally, source, 24);
	spr_store_relaxed(&r->tally->line[source].note[0], NOTE_DONE);
	_exit(0);
}

static void writer_killed_after_the_seal_is_refused(void **state)
{
	uint64_t random = test_seed(), n = 0;
	bool more = true;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("single steps under a sanitizer");
	for (uint64_t k = 0; more; k += 1 + test_random(&random) % (test_long() ? 3 : 24)) {
		struct rig r;

		rig_open(&r, n % 2 ? RIG_EMBEDDED : 0, NULL, 1);
		more = kill_role_at(role_seal_victim, &r, k, seal_it);
		rig_finish(&r);
		rig_expect_exact_after_kills(&r);
		assert_int_equal(r.stats.delivered, 1);
		rig_close(&r);
		n++;
	}
	print_message("    %llu kills\n", (unsigned long long)n);
}

/* One seal per instruction of two writes: each record has exactly one verdict. */
static void seal_at_any_instruction_of_a_write_gives_one_verdict(void **state)
{
	uint64_t random = test_seed(), n = 0, n_delivered[4] = { 0 };
	bool more = true;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("single steps under a sanitizer");
	for (uint64_t k = 0; more; k += 1 + test_random(&random) % (test_long() ? 2 : 12)) {
		struct rig r;
		int status = 0;

		rig_open(&r, n % 2 ? RIG_EMBEDDED : 0, NULL, 1);
		const pid_t pid = spawn(role_commit_victim, &r, 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status));
		for (uint64_t i = 0; i < k && more; i++) {
			assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
			assert_int_equal(waitpid(pid, &status, 0), pid);
			more = WIFSTOPPED(status) &&
			       spr_load_relaxed(&r.tally->line[0].note[0]) != NOTE_DONE;
		}
		seal_it(&r);
		ptrace(PTRACE_DETACH, pid, NULL, NULL);
		expect_exit(pid, 0);
		rig_finish(&r);
		rig_expect_exact(&r);
		assert_true(r.stats.delivered >= 1 && r.stats.delivered <= 3);
		assert_int_equal(r.stats.delivered + r.stats.refused, 3);
		n_delivered[r.stats.delivered]++;
		rig_close(&r);
		n++;
	}
	print_message("    %llu seals: %llu, %llu, %llu times 1, 2, 3 records delivered\n",
	              (unsigned long long)n, (unsigned long long)n_delivered[1],
	              (unsigned long long)n_delivered[2], (unsigned long long)n_delivered[3]);
	assert_true(n_delivered[1] && n_delivered[2] && n_delivered[3]);
}

/* --- Random kills under load
 * ----------------------------------------------------------------------- */

static struct {
	spr_producer *p;
	struct tally *tally;
	uint32_t      source;
} here;

static void on_alarm(int sig)
{
	(void)sig;
	put_record(spr_writer_here(here.p), here.tally, here.source, 40);
}

static int role_flood(struct rig *r, uint32_t source)
{
	uint64_t random = source;

	here.p = attach_or_exit(r->address);
	here.tally = r->tally;
	here.source = source;
	if (source % 4 == 3) {
		signal(SIGALRM, on_alarm);
		ualarm(50, 50);
	}
	if (source % 8 == 6 && fork() == 0)
		_exit(0);
	for (uint32_t i = 0;; i++) {
		const uint32_t bytes = 24 +
		                       (uint32_t)(test_random(&random) % (source % 2 ? 100 : 2000));

		put_record(spr_writer_here(here.p), r->tally, source, bytes);
		if (i % 64 == 63)
			sched_yield();
	}
}

static void random_kills_under_load_keep_every_sum(void **state)
{
	const uint32_t n_kills = test_count(2000, 10000), n_at_once = 3;
	uint64_t random = test_seed();
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	pid_t pids[3];
	(void)state;

	opt.capacity_bytes = 4u << 20; /* so that they meet each other, growth, and a full ring */
	opt.stall_ms = 1;
	rig_open(&r, 0, &opt, n_kills + 1);
	for (uint32_t i = 0; i < n_at_once; i++)
		pids[i] = spawn(role_flood, &r, i + 1);
	for (uint32_t next = n_at_once; next < n_kills + n_at_once && !r.check.n_faults; next++) {
		const uint64_t until_ns = test_now_ns() + test_random(&random) % 300000;
		const uint32_t victim = next % n_at_once;

		do
			rig_step(&r, 0);
		while (test_now_ns() < until_ns);
		kill(pids[victim], SIGKILL);
		wait_for(pids[victim]);
		if (next < n_kills)
			pids[victim] = spawn(role_flood, &r, next + 1);
	}
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	const struct tally_line sum = tally_sum(r.tally);
	print_message("    %u kills, %llu records committed, %llu delivered, %llu lost\n", n_kills,
	              (unsigned long long)spr_load_relaxed(&sum.committed),
	              (unsigned long long)r.stats.delivered, (unsigned long long)r.stats.lost);
	assert_true(r.stats.delivered > n_kills);
	assert_true(rig_resident(&r) < 16u << 20);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writer_killed_at_any_instruction_harms_nothing),
		cmocka_unit_test(writer_killed_while_it_drops_is_counted),
		cmocka_unit_test(writer_killed_after_the_seal_is_refused),
		cmocka_unit_test(seal_at_any_instruction_of_a_write_gives_one_verdict),
		cmocka_unit_test(random_kills_under_load_keep_every_sum),
	};

	return RUN_TESTS(tests, NULL, NULL);
}
