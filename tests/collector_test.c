/* SPDX-License-Identifier: MIT */
/*
 * collector_test.c - what a collector does with its channels and sinks, on a fake transport.
 *
 * Every case runs four times: on io_uring, on io_uring that hears no futexes, without io_uring by
 * flag, and without by SPARRING_DISABLE, which a process reads once: hence a child for each.
 */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collector/collector.h"
#include "tests/fake_transport.h"

static uint32_t open_flags;

/* --- A sink that writes down what it gets --------------------------------------------- */

struct notes {
	char     log[4096]; /* "aN" put of N records from channel a, "!" refused, "t" a tick */
	char     name;
	uint64_t n_records, n_ticks, last_until, last_late, next_seq;
	int      answer;    /* to put; 1 keeps */
	unsigned n_answers; /* how often, then 0; 0: for ever */
	int      tick_answer;
	spr_collector *bound;
	unsigned n_binds;
	spr_batch *kept[64];
	unsigned n_kept;
	spr_collector *call_back; /* what a put must not do */
};

static void note(struct notes *t, const char *text)
{
	strncat(t->log, text, sizeof(t->log) - strlen(t->log) - 1);
}

static int notes_answer(struct notes *t)
{
	const int answer = t->answer;

	if (t->n_answers && --t->n_answers == 0)
		t->answer = 0;
	return answer;
}

static int notes_put(void *arg, spr_batch *b)
{
	struct notes *t = arg;
	const int answer = notes_answer(t);
	char text[32];

	t->last_late = b->late_ns;
	if (t->call_back) {
		assert_int_equal(spr_collector_step(t->call_back, 0), -EBUSY);
		assert_int_equal(spr_collector_close(t->call_back), -EBUSY);
	}
	if (answer < 0) {
		note(t, "!");
		return answer;
	}
	snprintf(text, sizeof(text), "%s%llu", b->channel->address,
	         (unsigned long long)b->n_records);
	note(t, text);
	t->n_records += b->n_records;
	if (answer == 1)
		t->kept[t->n_kept++] = b;
	return answer;
}

static int notes_tick(void *arg, uint64_t until_ns)
{
	struct notes *t = arg;

	note(t, "t");
	t->n_ticks++;
	t->last_until = until_ns;
	return t->tick_answer;
}

static void notes_bind(void *arg, spr_collector *c)
{
	struct notes *t = arg;

	t->bound = c;
	t->n_binds++;
}

static struct spr_sink notes_sink(struct notes *t)
{
	struct spr_sink sink = SPR_SINK_INIT;

	sink.arg = t;
	sink.put = notes_put;
	sink.tick = notes_tick;
	sink.bind = notes_bind;
	return sink;
}

/* --- A collector with one channel ------------------------------------------------------- */

struct rig {
	spr_collector       *c;
	struct fake_channel *a;
	struct notes         t;
};

static void rig_add(struct rig *r, struct fake_channel *f, struct notes *t)
{
	const struct spr_sink sink = notes_sink(t);

	assert_int_equal(spr_collector_add(r->c, &f->base, &sink), 0);
}

static int rig_open(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->a = fake_open("a");
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	rig_add(r, r->a, &r->t);
	*state = r;
	return 0;
}

static int rig_close(void **state)
{
	struct rig *r = *state;

	assert_int_equal(spr_collector_close(r->c), 0);
	fake_close(r->a);
	free(r);
	return 0;
}

static void wake_later(void *arg)
{
	test_sleep_ms(10);
	spr_collector_wake(arg);
}

static void commit_later(void *arg)
{
	test_sleep_ms(10);
	fake_commit(arg, 0);
}

struct later {
	pthread_t thread;
	void (*body)(void *arg);
	void *arg;
};

static void *later_run(void *arg)
{
	struct later *l = arg;

	l->body(l->arg);
	return NULL;
}

static void later(struct later *l, void (*body)(void *arg), void *arg)
{
	l->body = body;
	l->arg = arg;
	assert_int_equal(pthread_create(&l->thread, NULL, later_run, l), 0);
}

static bool uring_is_wanted(void)
{
#ifdef SPR_NO_URING
	return false;
#else
	return !(open_flags & SPR_PLAIN) && spr_probe("io_uring") == 1;
#endif
}

static void way_of_waiting_is_the_one_asked_for(void **state)
{
	const struct rig *r = *state;
	const bool uring = uring_is_wanted();

	assert_string_equal(r->c->waiter->ops->name, uring ? "io_uring" : "plain");
	assert_int_equal(r->c->waiter->hears_words, uring && spr_probe("io_uring_futex") == 1);
	assert_int_equal(r->c->entries[0]->listener == NULL, r->c->waiter->hears_words);
}

/* --- Passes, ticks, late records --------------------------------------------------------- */

static void pass_takes_all_channels_in_order_then_ticks_once(void **state)
{
	struct rig *r = *state;
	struct fake_channel *b = fake_open("b");

	rig_add(r, b, &r->t);
	for (int i = 0; i < 3; i++)
		fake_commit(b, 0);
	fake_commit(r->a, 0);
	const uint64_t before = spr_clock_now(&r->a->base.clock);
	assert_int_equal(spr_collector_step(r->c, 0), 4);
	assert_string_equal(r->t.log, "a1b3t");
	assert_true(r->t.last_until >= before);
	assert_true(r->t.last_until <= spr_clock_now(&r->a->base.clock));
	assert_int_equal(spr_collector_step(r->c, 0), 0);
	assert_string_equal(r->t.log, "a1b3t");
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	fake_close(b);
}

static void sinks_that_got_nothing_are_not_ticked(void **state)
{
	struct rig *r = *state;
	struct fake_channel *b = fake_open("b");
	struct notes other = { .log = "" };

	rig_add(r, b, &other);
	fake_commit(b, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	assert_string_equal(other.log, "b1t");
	assert_string_equal(r->t.log, "");
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	fake_close(b);
}

static void batches_know_which_tick_has_passed(void **state)
{
	struct rig *r = *state;

	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	assert_int_equal(r->t.last_late, 0);
	const uint64_t until = r->t.last_until;
	fake_commit(r->a, until - 5);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	assert_true(r->t.last_late == until);
	assert_true(r->t.last_until > until);
}

static void tick_error_ends_step(void **state)
{
	struct rig *r = *state;

	r->t.tick_answer = -EIO;
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, 0), -EIO);
	r->t.tick_answer = 0;
	assert_int_equal(spr_collector_step(r->c, 0), 0);
	assert_string_equal(r->t.log, "a1t");
}

/* --- put's answers ------------------------------------------------------------------------ */

static void again_is_offered_again_after_a_millisecond_not_sooner(void **state)
{
	struct rig *r = *state;

	r->t.answer = -EAGAIN;
	fake_commit(r->a, 0);
	const uint64_t start = test_now_ns();
	assert_int_equal(spr_collector_step(r->c, 20), 0);
	const uint64_t ms = (test_now_ns() - start) / 1000000;
	assert_int_equal(r->t.n_ticks, 0);
	assert_true(strlen(r->t.log) >= 2);
	assert_true(strlen(r->t.log) <= ms + 2);
	r->t.answer = 0;
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	assert_string_equal(strchr(r->t.log, 'a'), "a1t");
}

static void again_is_offered_again_after_a_wake(void **state)
{
	struct rig *r = *state;

	r->t.answer = -EAGAIN;
	r->t.n_answers = 1;
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 0);
	r->c->entries[0]->rest_ns = SPR_NEVER; /* the millisecond never ends */
	assert_int_equal(spr_collector_step(r->c, 2), 0);
	assert_string_equal(r->t.log, "!");
	spr_collector_wake(r->t.bound);
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	assert_string_equal(r->t.log, "!a1t");
}

static void tick_is_owed_while_a_sink_has_not_taken_all(void **state)
{
	struct rig *r = *state;

	r->a->batch_max = 1;
	fake_commit(r->a, 0);
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 2);
	assert_string_equal(r->t.log, "a1a1t");
	const uint64_t until = r->t.last_until;

	struct fake_channel *b = fake_open("b");
	rig_add(r, b, &r->t);
	fake_commit(r->a, 0);
	fake_commit(b, 0);
	r->t.answer = -EAGAIN; /* a is refused, b is not */
	r->t.n_answers = 1;
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	assert_string_equal(r->t.log, "a1a1t!b1");
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	assert_string_equal(r->t.log, "a1a1t!b1a1t");
	assert_true(r->t.last_late == until);
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	fake_close(b);
}

static void sink_that_is_stuck_gets_the_tick_it_may_wait_for(void **state)
{
	struct rig *r = *state;
	unsigned n = 0;

	r->a->batch_max = 1;
	fake_commit(r->a, 0);
	fake_commit(r->a, 0);
	r->t.answer = 0;
	r->t.n_answers = 1;
	assert_int_equal(spr_collector_step(r->c, 0), 2);
	fake_commit(r->a, 0);
	fake_commit(r->a, 0);
	r->c->sinks[0]->owes_tick = true;
	r->t.answer = -EAGAIN;
	while (r->t.n_ticks < 2 && n++ < 1000)
		assert_int_equal(spr_collector_step(r->c, 10), 0);
	assert_int_equal(r->t.n_ticks, 2);
	r->t.answer = 0;
	assert_int_equal(spr_collector_step(r->c, -1), 2);
	assert_true(r->t.last_late != 0);
}

static void put_error_ends_step_and_the_next_goes_on(void **state)
{
	struct rig *r = *state;

	r->t.answer = -ENOSPC;
	r->t.n_answers = 1;
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, -1), -ENOSPC);
	assert_string_equal(r->t.log, "!");
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	assert_string_equal(r->t.log, "!a1t");
}

static void nonsense_in_one_channel_leaves_the_others_alone(void **state)
{
	struct rig *r = *state;
	struct fake_channel *b = fake_open("b");

	rig_add(r, b, &r->t);
	r->a->drain_err = -EPROTO;
	fake_commit(r->a, 0);
	fake_commit(b, 0);
	assert_int_equal(spr_collector_step(r->c, -1), -EPROTO);
	assert_string_equal(r->t.log, "a1b1t");
	r->a->drain_err = 0;
	assert_int_equal(spr_collector_step(r->c, 0), 0);
	/* The same number from put is put's own and ends the step. */
	fake_commit(r->a, 0);
	fake_commit(b, 0);
	r->t.answer = -EPROTO;
	r->t.n_answers = 1;
	assert_int_equal(spr_collector_step(r->c, -1), -EPROTO);
	assert_string_equal(r->t.log, "a1b1t!");
	assert_int_equal(spr_collector_step(r->c, -1), 2);
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	fake_close(b);
}

static void kept_batches_forbid_close_and_nothing_is_released(void **state)
{
	struct rig *r = *state;
	struct fake_channel *b = fake_open("b");

	rig_add(r, b, &r->t);
	r->t.answer = 1;
	fake_commit(b, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	assert_int_equal(spr_collector_close(r->c), -EBUSY);
	assert_ptr_equal(r->a->base.bell, &r->c->bell);
	assert_ptr_equal(r->t.bound, r->c);
	r->t.answer = 0;
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	r->t.kept[0]->release(r->t.kept[0]);
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_null(r->a->base.bell);
	assert_null(r->t.bound);
	assert_int_equal(r->t.n_binds, 2);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	fake_close(b);
}

static void release_of_a_batch_makes_a_sleeper_look_but_not_return(void **state)
{
	struct rig *r = *state;

	r->c->doze_ns = 0;
	r->t.answer = 1;
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	const unsigned drains = r->a->n_drains;
	r->c->bell.wake(r->c);
	assert_int_equal(spr_collector_step(r->c, 5), 0);
	assert_true(r->a->n_drains > drains + 0);
	r->t.kept[0]->release(r->t.kept[0]);
}

static void calls_from_a_sink_are_refused(void **state)
{
	struct rig *r = *state;

	r->t.call_back = r->c;
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, -1), 1);
}

/* --- Waiting -------------------------------------------------------------------------------- */

static void step_waits_as_long_as_it_is_told(void **state)
{
	struct rig *r = *state;
	const uint64_t start = test_now_ns();

	assert_int_equal(spr_collector_step(r->c, 0), 0);
	assert_int_equal(spr_collector_step(r->c, 20), 0);
	assert_true(test_now_ns() - start >= 20000000);
	fake_commit(r->a, 0); /* and in a doze */
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	const uint64_t again = test_now_ns();
	assert_int_equal(spr_collector_step(r->c, 5), 0);
	assert_true(test_now_ns() - again >= 5000000);
	assert_int_equal(spr_collector_step(r->c, -2), -EINVAL);
}

static void sleeper_sleeps(void **state)
{
	struct rig *r = *state;

	assert_int_equal(spr_collector_step(r->c, 100), 0);
	assert_in_range(r->a->n_drains, 1, 4); /* not a busy loop */
	assert_int_equal(spr_collector_step(r->c, 100), 0);
	assert_in_range(r->a->n_drains, 2, 8);
}

static void commit_of_a_thread_wakes_a_sleeper(void **state)
{
	struct rig *r = *state;
	struct later l;

	later(&l, commit_later, r->a);
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	pthread_join(l.thread, NULL);
	assert_true(r->a->n_arms >= 1);
	assert_int_equal(r->a->n_missed, 0);
}

static void commit_of_a_process_wakes_a_sleeper(void **state)
{
	struct rig *r = *state;
	const pid_t pid = test_child_start(commit_later, r->a);

	assert_int_equal(spr_collector_step(r->c, -1), 1);
	test_assert_ended_well(test_child_wait(pid, 5000));
	assert_int_equal(r->a->n_missed, 0);
}

static void wake_of_a_thread_ends_a_wait(void **state)
{
	struct rig *r = *state;
	struct later l;

	later(&l, wake_later, r->c);
	assert_int_equal(spr_collector_step(r->c, -1), 0);
	pthread_join(l.thread, NULL);
}

static void wake_between_steps_is_kept_for_the_next(void **state)
{
	struct rig *r = *state;

	spr_collector_wake(r->c);
	spr_collector_wake(r->c);
	assert_int_equal(spr_collector_step(r->c, -1), 0);
	const uint64_t start = test_now_ns();
	assert_int_equal(spr_collector_step(r->c, 10), 0);
	assert_true(test_now_ns() - start >= 10000000);
}

static spr_collector *of_handler;

static void wake_handler(int sig)
{
	(void)sig;
	spr_collector_wake(of_handler);
}

static void nothing_handler(int sig)
{
	(void)sig;
}

static void wake_of_a_signal_handler_ends_a_wait(void **state)
{
	struct rig *r = *state;
	struct sigaction act = { .sa_handler = wake_handler }, before;
	const struct itimerval once = { .it_value = { .tv_usec = 10000 } };

	of_handler = r->c;
	sigaction(SIGALRM, &act, &before);
	setitimer(ITIMER_REAL, &once, NULL);
	assert_int_equal(spr_collector_step(r->c, -1), 0);
	sigaction(SIGALRM, &before, NULL);
}

static void signal_without_a_wake_does_not_end_a_wait(void **state)
{
	struct rig *r = *state;
	struct sigaction act = { .sa_handler = nothing_handler }, before;
	const struct itimerval often = { .it_value = { .tv_usec = 2000 },
	                                 .it_interval = { .tv_usec = 2000 } };
	const struct itimerval none = { .it_value = { .tv_usec = 0 } };
	const uint64_t start = test_now_ns();

	sigaction(SIGALRM, &act, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_int_equal(spr_collector_step(r->c, 20), 0);
	setitimer(ITIMER_REAL, &none, NULL);
	sigaction(SIGALRM, &before, NULL);
	assert_true(test_now_ns() - start >= 20000000);
}

static void burst_after_a_record_is_not_rung_for(void **state)
{
	struct rig *r = *state;

	r->c->doze_ns = SPR_NEVER; /* a loaded machine may not be done within the real one */
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	const unsigned arms = r->a->n_arms;
	struct later l;
	later(&l, commit_later, r->a);
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	pthread_join(l.thread, NULL);
	assert_int_equal(r->a->n_arms, arms);
	later(&l, wake_later, r->c); /* a nap is ended by a wake */
	assert_int_equal(spr_collector_step(r->c, -1), 0);
	pthread_join(l.thread, NULL);
	assert_int_equal(r->a->n_arms, arms);
}

static void record_nobody_rang_for_is_found_by_the_backstop_and_counted(void **state)
{
	struct rig *r = *state;
	struct later l;

	r->a->mute = true;
	r->c->backstop_ns = 50000000;
	later(&l, commit_later, r->a);
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	pthread_join(l.thread, NULL);
	assert_int_equal(r->a->n_missed, 1);
}

static void tend_is_called_when_it_asked_to_be(void **state)
{
	struct rig *r = *state;

	assert_int_equal(spr_collector_step(r->c, 30), 0);
	assert_int_equal(r->a->n_tends, 1); /* and never again without traffic */
	fake_commit(r->a, 0);
	r->a->tend_after_ns = 5000000;
	r->c->doze_ns = 0;
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	assert_int_equal(r->a->n_tends, 2);
	const uint64_t start = test_now_ns();
	assert_int_equal(spr_collector_step(r->c, 200), 0);
	assert_true(r->a->n_tends >= 5);
	assert_true(r->a->n_tends <= 2 + (test_now_ns() - start) / 5000000);
}

static void end_of_every_channel_is_the_end(void **state)
{
	struct rig *r = *state;
	struct fake_channel *b = fake_open("b");

	rig_add(r, b, &r->t);
	fake_commit(r->a, 0);
	fake_seal(r->a);
	assert_int_equal(spr_collector_step(r->c, -1), 1);
	assert_int_equal(spr_collector_step(r->c, 1), 0);
	fake_seal(b);
	assert_int_equal(spr_collector_step(r->c, -1), -ENODATA);
	assert_int_equal(spr_collector_step(r->c, 0), -ENODATA);
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	assert_int_equal(spr_collector_step(r->c, -1), -ENODATA); /* no channel at all */
	fake_close(b);
}

static void *step_in_thread(void *arg)
{
	return (void *)(intptr_t)spr_collector_step(arg, 1);
}

static void collector_may_move_from_thread_to_thread(void **state)
{
	struct rig *r = *state;

	for (int i = 0; i < 12; i++) {
		pthread_t thread;
		void *n;

		fake_commit(r->a, 0);
		pthread_create(&thread, NULL, step_in_thread, r->c);
		pthread_join(thread, &n);
		assert_int_equal((intptr_t)n, 1);
		r->c->doze_ns = 0;
		struct later l;
		later(&l, commit_later, r->a);
		assert_int_equal(spr_collector_step(r->c, -1), 1);
		pthread_join(l.thread, NULL);
	}
	assert_int_equal(r->a->n_missed, 0);
	assert_string_equal(r->c->waiter->ops->name, uring_is_wanted() ? "io_uring" : "plain");
}

/* --- Watched descriptors -------------------------------------------------------------------- */

static void watched_descriptor_is_reported_once_per_watch(void **state)
{
	struct rig *r = *state;
	const struct spr_bell *bell = r->a->base.bell;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(bell->watch(bell->arg, &r->a->base, fds[0], POLLIN, 77), 0);
	assert_int_equal(spr_collector_step(r->c, 2), 0);
	assert_int_equal(r->a->n_ready, 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(spr_collector_step(r->c, 5), 0);
	assert_int_equal(r->a->n_ready, 1);
	assert_int_equal(r->a->last_cookie, 77);
	assert_int_equal(r->a->last_events, POLLIN);
	assert_int_equal(spr_collector_step(r->c, 5), 0);
	assert_int_equal(r->a->n_ready, 1);
	assert_int_equal(bell->watch(bell->arg, &r->a->base, fds[0], POLLIN, 78), 0);
	assert_int_equal(spr_collector_step(r->c, 5), 0);
	assert_int_equal(r->a->n_ready, 2);
	assert_int_equal(r->a->last_cookie, 78);
	close(fds[1]);
	assert_int_equal(bell->watch(bell->arg, &r->a->base, fds[0], POLLIN, 79), 0);
	assert_int_equal(spr_collector_step(r->c, 5), 0);
	assert_int_equal(r->a->n_ready, 3);
	assert_true(r->a->last_events & POLLHUP);
	close(fds[0]);
}

static void unwatched_descriptor_is_quiet_and_let_go(void **state)
{
	struct rig *r = *state;
	const struct spr_bell *bell = r->a->base.bell;
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(bell->watch(bell->arg, &r->a->base, fds[0], POLLIN, 1), 0);
	assert_int_equal(spr_collector_step(r->c, 1), 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	bell->unwatch(bell->arg, &r->a->base, fds[0], 1);
	bell->unwatch(bell->arg, &r->a->base, fds[0], 1); /* nothing is watched: a no-op */
	/* Nobody but us holds the reading end. */
	close(fds[0]);
	assert_int_equal(write(fds[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(fds[1]);
	assert_int_equal(spr_collector_step(r->c, 5), 0);
	assert_int_equal(r->a->n_ready, 0);
}

static void many_descriptors_are_watched_at_once(void **state)
{
	enum { N = 300 }; /* more than a ring has entries */
	struct rig *r = *state;
	const struct spr_bell *bell = r->a->base.bell;
	int fds[N][2];

	for (int i = 0; i < N; i++) {
		assert_int_equal(pipe(fds[i]), 0);
		assert_int_equal(
			bell->watch(bell->arg, &r->a->base, fds[i][0], POLLIN, (uint64_t)i), 0);
	}
	assert_int_equal(spr_collector_step(r->c, 1), 0);
	assert_int_equal(r->a->n_ready, 0);
	for (int i = 0; i < N; i++)
		assert_int_equal(write(fds[i][1], "x", 1), 1);
	for (int i = 0; i < 100 && r->a->n_ready < N; i++)
		assert_int_equal(spr_collector_step(r->c, 2), 0);
	assert_int_equal(r->a->n_ready, N);
	for (int i = 0; i < N; i++) {
		close(fds[i][0]);
		close(fds[i][1]);
	}
}

static void watch_again(struct fake_channel *f, uint64_t cookie, uint32_t events)
{
	char byte;

	(void)events;
	if (read((int)cookie, &byte, 1) == 1)
		f->base.bell->watch(f->base.bell->arg, &f->base, (int)cookie, POLLIN, cookie);
}

static void descriptors_are_heard_in_a_flood(void **state)
{
	struct rig *r = *state;
	const struct spr_bell *bell = r->a->base.bell;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	r->a->on_ready = watch_again;
	assert_int_equal(bell->watch(bell->arg, &r->a->base, fds[0], POLLIN, (uint64_t)fds[0]), 0);
	assert_int_equal(write(fds[1], "xyz", 3), 3);
	for (int i = 0; i < 100000 && r->a->n_ready < 3; i++) {
		fake_commit(r->a, 0);
		assert_int_equal(spr_collector_step(r->c, 0), 1);
	}
	assert_int_equal(r->a->n_ready, 3);
	bell->unwatch(bell->arg, &r->a->base, fds[0], (uint64_t)fds[0]);
	close(fds[0]);
	close(fds[1]);
}

static void file_is_read_at_any_place(const struct rig *r, int fd)
{
	const struct spr_bell *bell = r->a->base.bell;
	char bytes[8192], got[8192];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 7);
	assert_int_equal(pwrite(fd, bytes, sizeof(bytes), 5000), sizeof(bytes));
	assert_int_equal(bell->read(bell->arg, fd, got, sizeof(got), 5000), sizeof(got));
	assert_memory_equal(got, bytes, sizeof(got));
	assert_int_equal(bell->read(bell->arg, fd, got, 100, 5000 + 8142), 50);
	assert_int_equal(bell->read(bell->arg, fd, got, 100, 50000), 0);
	assert_int_equal(bell->read(bell->arg, -1, got, 100, 0), -EBADF);
}

static void bell_reads_files_on_disk_and_in_memory(void **state)
{
	struct rig *r = *state;
	char *folder = test_folder_make();
	char *path = test_text("%s/file", folder);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	fake_commit(r->a, 0); /* what comes while it waits for the read is not forgotten */
	file_is_read_at_any_place(r, fd);
	close(fd);
	fd = memfd_create("read", MFD_CLOEXEC);
	file_is_read_at_any_place(r, fd);
	close(fd);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	free(path);
	test_folder_remove(folder);
}

/* --- The descriptor --------------------------------------------------------------------------- */

static int readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms);
}

/* From here on only a ring, a wake or a descriptor makes fd readable, no timer. */
static void silence_timer(struct rig *r)
{
	const struct itimerspec none = { .it_value = { .tv_nsec = 0 } };

	assert_int_equal(timerfd_settime(r->c->timer_fd, 0, &none, NULL), 0);
}

/* Step until there is nothing to do, as a loop does. */
static int64_t settle(struct rig *r, int fd)
{
	int64_t n = 0;

	for (int i = 0; i < 1000 && readable(fd, 0) == 1; i++) {
		const int64_t got = spr_collector_step(r->c, 0);
		assert_true(got >= 0);
		n += got;
	}
	assert_int_equal(readable(fd, 0), 0);
	return n;
}

static void descriptor_is_readable_when_step_would_not_wait(void **state)
{
	struct rig *r = *state;
	const int fd = spr_collector_fd(r->c);

	r->c->doze_ns = 0; /* armed as soon as a step returns */
	assert_true(fd >= 0);
	assert_int_equal(spr_collector_fd(r->c), fd);
	assert_int_equal(settle(r, fd), 0);
	for (int i = 0; i < 50; i++) {
		silence_timer(r);
		fake_commit(r->a, 0);
		assert_int_equal(readable(fd, 5000), 1);
		assert_int_equal(settle(r, fd), 1);
	}
	silence_timer(r);
	spr_collector_wake(r->c);
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(spr_collector_step(r->c, -1), 0);
	assert_int_equal(settle(r, fd), 0);
	assert_int_equal(r->a->n_missed, 0);
}

static void descriptor_after_a_burst_dozes_and_is_not_rung(void **state)
{
	struct rig *r = *state;
	const int fd = spr_collector_fd(r->c);

	r->c->doze_ns = SPR_NEVER;
	settle(r, fd);
	fake_commit(r->a, 0);
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	const unsigned arms = r->a->n_arms;
	for (int i = 0; i < 20; i++) {
		fake_commit(r->a, 0);
		assert_int_equal(readable(fd, 5000), 1); /* by its timer */
		assert_int_equal(spr_collector_step(r->c, 0), 1);
	}
	assert_int_equal(r->a->n_arms, arms);
}

static void descriptor_asked_for_late_knows_what_is_there(void **state)
{
	struct rig *r = *state;

	fake_commit(r->a, 0);
	const int fd = spr_collector_fd(r->c);
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(settle(r, fd), 1);

	struct fake_channel *b = fake_open("b");
	fake_commit(b, 0);
	rig_add(r, b, &r->t);
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(settle(r, fd), 1);
	fake_commit(b, 0);
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(settle(r, fd), 1);
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	fake_close(b);
}

static void descriptor_works_edge_triggered(void **state)
{
	struct rig *r = *state;
	const int fd = spr_collector_fd(r->c);
	const int outer = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	r->c->doze_ns = 0;
	assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event), 0);
	while (epoll_wait(outer, &event, 1, 0) == 1) /* the first step is due: its tend */
		assert_int_equal(spr_collector_step(r->c, 0), 0);
	for (int i = 0; i < 50; i++) {
		int64_t n = 0;

		silence_timer(r);
		fake_commit(r->a, 0);
		while (n == 0) { /* one edge, one step; an edge for nothing is allowed */
			assert_int_equal(epoll_wait(outer, &event, 1, 5000), 1);
			n = spr_collector_step(r->c, 0);
		}
		assert_int_equal(n, 1);
	}
	spr_collector_wake(r->c);
	assert_int_equal(epoll_wait(outer, &event, 1, 5000), 1);
	close(outer);
}

static void descriptor_is_readable_at_the_times_step_would_wake(void **state)
{
	struct rig *r = *state;
	const int fd = spr_collector_fd(r->c);
	int fds[2];

	settle(r, fd);
	r->a->tend_after_ns = 3000000;
	fake_commit(r->a, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	const unsigned n = r->a->n_tends;
	while (r->a->n_tends < n + 3) {
		assert_int_equal(readable(fd, 5000), 1);
		assert_int_equal(spr_collector_step(r->c, 0), 0);
	}
	r->a->tend_after_ns = 0;
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(settle(r, fd), 0);

	assert_int_equal(pipe(fds), 0);
	r->c->bell.watch(r->c, &r->a->base, fds[0], POLLIN, 5);
	spr_collector_wake(r->c);
	settle(r, fd);
	silence_timer(r);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(readable(fd, 5000), 1);
	settle(r, fd);
	assert_int_equal(r->a->n_ready, 1);
	close(fds[0]);
	close(fds[1]);
}

/* A completion that is carried to the thread by force ends its epoll_wait() with EINTR. */
static void wake_does_not_interrupt_what_the_application_does(void **state)
{
	struct rig *r = *state;
	const int fd = spr_collector_fd(r->c);
	const int other = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;
	struct later l;

	r->c->doze_ns = 0;
	settle(r, fd);
	/* The ring of the last case is taken apart behind our back, which does interrupt, once. */
	while (epoll_wait(other, &event, 1, 50) < 0)
		continue;
	silence_timer(r);
	later(&l, commit_later, r->a);
	assert_int_equal(epoll_wait(other, &event, 1, 100), 0);
	pthread_join(l.thread, NULL);
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(settle(r, fd), 1);
	close(other);
}

static void descriptor_is_quiet_while_a_sink_wants_no_more(void **state)
{
	struct rig *r = *state;
	const int fd = spr_collector_fd(r->c);
	unsigned n = 0;

	settle(r, fd);
	r->t.answer = -EAGAIN;
	fake_commit(r->a, 0);
	const uint64_t start = test_now_ns();
	while (test_now_ns() - start < 20000000) {
		if (readable(fd, 1000) == 1 && spr_collector_step(r->c, 0) == 0)
			n++;
	}
	assert_true(n >= 1);
	assert_true(n <= (test_now_ns() - start) / 1000000 + 2);
	r->t.answer = 0;
	spr_collector_wake(r->c);
	assert_int_equal(readable(fd, 5000), 1);
	assert_int_equal(settle(r, fd), 1);
}

static void descriptor_shows_the_backstop_too(void **state)
{
	struct rig *r = *state;
	const int fd = spr_collector_fd(r->c);

	r->c->backstop_ns = 50000000;
	settle(r, fd);
	r->a->mute = true;
	fake_commit(r->a, 0);
	while (!r->t.n_records) {
		assert_int_equal(readable(fd, 5000), 1);
		assert_true(spr_collector_step(r->c, 0) >= 0);
	}
	assert_int_equal(r->a->n_missed, 1);
}

/* --- Adding ------------------------------------------------------------------------------------
 */

static void channels_are_added_between_steps(void **state)
{
	enum { N = 20 };
	struct rig *r = *state;
	struct fake_channel *f[N];

	r->c->doze_ns = 0;
	for (unsigned i = 0; i < N; i++) {
		struct later l;

		f[i] = fake_open("x");
		rig_add(r, f[i], &r->t);
		later(&l, commit_later, f[i]);
		assert_int_equal(spr_collector_step(r->c, -1), 1);
		pthread_join(l.thread, NULL);
		assert_int_equal(f[i]->n_missed, 0);
	}
	assert_int_equal(r->c->n_sinks, 1);
	assert_int_equal(r->t.n_binds, 1);
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	for (unsigned i = 0; i < N; i++)
		fake_close(f[i]);
}

static void bad_adds_change_nothing(void **state)
{
	struct rig *r = *state;
	struct fake_channel *b = fake_open("b");
	struct notes t = { .log = "" };
	struct spr_sink sink = notes_sink(&t);
	spr_collector *other;

	assert_int_equal(spr_collector_open(&other, open_flags), 0);
	assert_int_equal(spr_collector_add(other, &r->a->base, &sink), -EBUSY);
	assert_int_equal(spr_collector_add(NULL, &b->base, &sink), -EINVAL);
	assert_int_equal(spr_collector_add(r->c, NULL, &sink), -EINVAL);
	assert_int_equal(spr_collector_add(r->c, &b->base, NULL), -EINVAL);
	sink.put = NULL;
	assert_int_equal(spr_collector_add(r->c, &b->base, &sink), -EINVAL);
	sink = notes_sink(&t);
	sink.flags = 8;
	assert_int_equal(spr_collector_add(r->c, &b->base, &sink), -EINVAL);
	sink.flags = 0;
	b->bind_err = -EACCES;
	assert_int_equal(spr_collector_add(r->c, &b->base, &sink), -EACCES);
	assert_int_equal(r->c->n_entries, 1);
	assert_int_equal(r->c->n_sinks, 1);
	assert_int_equal(t.n_binds, 0);
	assert_int_equal(spr_collector_open(&other, 1u << 9), -EINVAL);
	assert_int_equal(spr_collector_close(other), 0);
	assert_int_equal(spr_collector_close(NULL), 0);
	spr_collector_wake(NULL);
	fake_close(b);
}

static void sink_may_leave_out_all_but_put(void **state)
{
	struct rig *r = *state;
	struct fake_channel *b = fake_open("b");
	struct spr_sink sink = notes_sink(&r->t);

	sink.tick = NULL;
	sink.bind = NULL;
	assert_int_equal(spr_collector_add(r->c, &b->base, &sink), 0);
	fake_commit(b, 0);
	assert_int_equal(spr_collector_step(r->c, 0), 1);
	assert_int_equal(spr_collector_close(r->c), 0);
	assert_int_equal(spr_collector_open(&r->c, open_flags), 0);
	fake_close(b);
}

/* --- No wake is lost -----------------------------------------------------------------------------
 */

struct stress {
	struct fake_channel *f;
	uint64_t n, seed;
};

static void commit_with_gaps(void *arg)
{
	struct stress *s = arg;

	for (uint64_t i = 0; i < s->n; i++) {
		const uint64_t gap = test_random(&s->seed) % 2 ? 60000 : 250000;
		const uint64_t until = test_now_ns() + test_random(&s->seed) % gap;

		if (test_random(&s->seed) % 64 == 0)
			usleep(200);
		while (test_now_ns() < until)
			spr_cpu_relax();
		fake_commit(s->f, 0);
	}
}

static void stress_run(struct rig *r, struct stress *s, int fd)
{
	uint64_t longest = 0;

	/* A writer that a busy machine stops between its commit and its ring is no lost wake. */
	r->c->backstop_ns = 15000000000;
	while (r->t.n_records < s->n) {
		const uint64_t start = test_now_ns();

		if (fd >= 0) {
			silence_timer(r);
			assert_int_equal(readable(fd, 15000), 1);
		}
		assert_true(spr_collector_step(r->c, fd >= 0 ? 0 : -1) >= 0);
		if (test_now_ns() - start > longest)
			longest = test_now_ns() - start;
	}
	print_message("%llu records, %u sleeps, longest %llu us\n", (unsigned long long)s->n,
	              r->a->n_arms, (unsigned long long)longest / 1000);
	assert_int_equal(r->a->n_missed, 0);
}

static void wakes_from_another_process_are_never_lost(void **state)
{
	struct rig *r = *state;
	struct stress s = { r->a, test_long() ? 1000000 : 10000, test_seed() };

	r->c->doze_ns = 0; /* sleep at once */
	const pid_t pid = test_child_start(commit_with_gaps, &s);
	stress_run(r, &s, -1);
	test_assert_ended_well(test_child_wait(pid, 60000));
}

static void wakes_of_a_later_thread_are_never_lost(void **state)
{
	struct rig *r = *state;
	struct stress s = { r->a, test_long() ? 300000 : 5000, test_seed() };
	struct later l;

	r->c->doze_ns = 0;
	/* Armed while this process has no second thread, as far as the waiter allows. */
	const int fd = spr_collector_fd(r->c);
	later(&l, commit_with_gaps, &s);
	stress_run(r, &s, fd);
	pthread_join(l.thread, NULL);
}

/* --- All of it, in each mode
 * ---------------------------------------------------------------------- */

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)

static const struct CMUnitTest cases[] = {
	CASE(way_of_waiting_is_the_one_asked_for),
	CASE(pass_takes_all_channels_in_order_then_ticks_once),
	CASE(sinks_that_got_nothing_are_not_ticked),
	CASE(batches_know_which_tick_has_passed),
	CASE(tick_error_ends_step),
	CASE(again_is_offered_again_after_a_millisecond_not_sooner),
	CASE(again_is_offered_again_after_a_wake),
	CASE(tick_is_owed_while_a_sink_has_not_taken_all),
	CASE(sink_that_is_stuck_gets_the_tick_it_may_wait_for),
	CASE(put_error_ends_step_and_the_next_goes_on),
	CASE(nonsense_in_one_channel_leaves_the_others_alone),
	CASE(kept_batches_forbid_close_and_nothing_is_released),
	CASE(release_of_a_batch_makes_a_sleeper_look_but_not_return),
	CASE(calls_from_a_sink_are_refused),
	CASE(step_waits_as_long_as_it_is_told),
	CASE(sleeper_sleeps),
	CASE(commit_of_a_thread_wakes_a_sleeper),
	CASE(commit_of_a_process_wakes_a_sleeper),
	CASE(wake_of_a_thread_ends_a_wait),
	CASE(wake_between_steps_is_kept_for_the_next),
	CASE(wake_of_a_signal_handler_ends_a_wait),
	CASE(signal_without_a_wake_does_not_end_a_wait),
	CASE(burst_after_a_record_is_not_rung_for),
	CASE(record_nobody_rang_for_is_found_by_the_backstop_and_counted),
	CASE(tend_is_called_when_it_asked_to_be),
	CASE(end_of_every_channel_is_the_end),
	CASE(collector_may_move_from_thread_to_thread),
	CASE(watched_descriptor_is_reported_once_per_watch),
	CASE(unwatched_descriptor_is_quiet_and_let_go),
	CASE(many_descriptors_are_watched_at_once),
	CASE(descriptors_are_heard_in_a_flood),
	CASE(bell_reads_files_on_disk_and_in_memory),
	CASE(descriptor_is_readable_when_step_would_not_wait),
	CASE(descriptor_after_a_burst_dozes_and_is_not_rung),
	CASE(descriptor_asked_for_late_knows_what_is_there),
	CASE(descriptor_works_edge_triggered),
	CASE(descriptor_is_readable_at_the_times_step_would_wake),
	CASE(wake_does_not_interrupt_what_the_application_does),
	CASE(descriptor_is_quiet_while_a_sink_wants_no_more),
	CASE(descriptor_shows_the_backstop_too),
	CASE(channels_are_added_between_steps),
	CASE(bad_adds_change_nothing),
	CASE(sink_may_leave_out_all_but_put),
	CASE(wakes_from_another_process_are_never_lost),
	CASE(wakes_of_a_later_thread_are_never_lost),
};

static int run(const char *name)
{
	return cmocka_run_group_tests_name(name, cases, NULL, NULL) ? 1 : 0;
}

static int run_in_child(const char *name, const char *disable, uint32_t flags)
{
	int status;

	fflush(NULL);
	const pid_t pid = fork();
	if (pid == 0) {
		open_flags = flags;
		if (disable)
			setenv("SPARRING_DISABLE", disable, 1);
		const int failed = run(name);
		fflush(NULL);
		_exit(failed);
	}
	return waitpid(pid, &status, 0) != pid || status != 0;
}

int main(void)
{
	int failed;

	if (getenv("SPARRING_DISABLE"))
		return run("collector, as SPARRING_DISABLE has it");
	failed = run_in_child("collector on io_uring", NULL, 0);
	failed |= run_in_child("collector on io_uring without futexes", "io_uring_futex", 0);
	failed |= run_in_child("collector that is told to be plain", NULL, SPR_PLAIN);
	failed |= run_in_child("collector without io_uring", "io_uring", 0);
	return failed;
}
