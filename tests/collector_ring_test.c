/* SPDX-License-Identifier: MIT */
/*
 * collector_ring_test.c - a collector and a real ring: producers that are threads and processes,
 * records taken in place and read from the file, batches kept, deaths, sleep.
 *
 * Every case runs on io_uring, on io_uring that hears no futexes, and plain (see collector_test.c).
 */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "collector/collector.h"

/* The ring is mapped twice where collector and producer share a process. ThreadSanitizer takes that
 * for two memories, and sees no order where one thread's segment becomes another's. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

static uint32_t open_flags;

/* --- A sink that checks sequences and sums ------------------------------------------------ */

#define WRITERS_MAX 256u
#define KEPT_MAX    256u

struct writer_seen {
	uint64_t writer, next_seq;
};

struct sums {
	uint64_t n_records, n_bytes, n_gone, n_late, n_gaps, hash, until_ns;
	struct writer_seen writers[WRITERS_MAX];
	bool     keeps;
	uint64_t n_kept;
	/* Kept batches on their way to the thread that gives them back. */
	pthread_mutex_t lock;
	pthread_cond_t  more;
	spr_batch      *batches[KEPT_MAX];
	unsigned        n_batches;
	bool            over;
};

static struct writer_seen *writer_find(struct sums *s, uint64_t writer)
{
	for (uint32_t i = 0; i < WRITERS_MAX; i++) {
		struct writer_seen *seen = &s->writers[(writer + i) % WRITERS_MAX];

		if (!seen->writer || seen->writer == writer + 1) {
			seen->writer = writer + 1;
			return seen;
		}
	}
	return NULL;
}

/* The same whatever the order of writers: a sum over records of a hash of each. */
static uint64_t record_hash(const struct spr_record *rec)
{
	const unsigned char *bytes = rec->data;
	uint64_t hash = 0xcbf29ce484222325ull ^ rec->kind ^ rec->seq << 20;

	for (uint32_t i = 0; i < rec->bytes; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ull;
	return hash;
}

static void batch_read(struct sums *s, spr_batch *b)
{
	struct writer_seen *seen = NULL;
	struct spr_record rec;
	uint64_t n = 0;

	while (spr_batch_next(b, &rec) > 0) {
		if (!n++)
			seen = writer_find(s, rec.writer);
		if (!seen || rec.seq != seen->next_seq)
			s->n_gaps++;
		else
			seen->next_seq++;
		s->n_bytes += rec.bytes;
		s->hash += record_hash(&rec);
		s->n_late += (rec.flags & SPR_LATE) != 0;
	}
	s->n_records += n;
}

static int sums_put(void *arg, spr_batch *b)
{
	struct sums *s = arg;

	int kept = 0;

	batch_read(s, b);
	pthread_mutex_lock(&s->lock);
	if (s->keeps && s->n_batches < KEPT_MAX) {
		s->batches[s->n_batches++] = b;
		s->n_kept++;
		pthread_cond_signal(&s->more);
		kept = 1;
	}
	pthread_mutex_unlock(&s->lock);
	return kept;
}

static int sums_tick(void *arg, uint64_t until_ns)
{
	((struct sums *)arg)->until_ns = until_ns;
	return 0;
}

static int sums_gone(void *arg, uint64_t writer, uint64_t written, uint64_t lost)
{
	(void)writer;
	(void)written;
	(void)lost;
	((struct sums *)arg)->n_gone++;
	return 0;
}

/* --- A channel, a collector; used in children, too
 * ---------------------------------------------------------------- */

struct rig {
	spr_channel   *ch;
	spr_collector *c;
	struct sums    s;
};

static void rig_start(struct rig *r, uint64_t capacity_bytes, uint32_t more_flags)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct spr_sink sink = SPR_SINK_INIT;

	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->s.lock, NULL);
	pthread_cond_init(&r->s.more, NULL);
	opt.capacity_bytes = capacity_bytes;
	opt.stall_ms = UINT32_MAX;
	check(spr_channel_open(&r->ch, "ring:", &opt) == 0);
	check(spr_collector_open(&r->c, open_flags | more_flags) == 0);
	r->c->backstop_ns = 15000000000; /* longer than a busy machine stops a writer */
	sink.arg = &r->s;
	sink.put = sums_put;
	sink.tick = sums_tick;
	sink.gone = sums_gone;
	check(spr_collector_add(r->c, r->ch, &sink) == 0);
}

/* Everything written has come, nothing was lost, no wake was missed. */
static void rig_end(struct rig *r, uint64_t n_records)
{
	struct spr_stats stats = SPR_STATS_INIT;
	int64_t n;

	check(spr_channel_seal(r->ch) == 0);
	do
		n = spr_collector_step(r->c, -1);
	while (n >= 0);
	check(n == -ENODATA);
	check(r->s.n_records == n_records);
	check(r->s.n_gaps == 0);
	check(spr_channel_stats(r->ch, &stats) == 0);
	check(stats.written == n_records);
	check(stats.delivered == n_records);
	check(stats.lost == 0);
	check(stats.pending == 0);
	check(stats.wakes_missed == 0);
	check(spr_collector_close(r->c) == 0);
	check(spr_channel_close(r->ch) == 0);
}

static void rig_take(struct rig *r, uint64_t n_records)
{
	while (r->s.n_records < n_records)
		check(spr_collector_step(r->c, -1) >= 0);
}

/* --- Producers ------------------------------------------------------------------------------ */

struct work {
	const char   *address;
	spr_producer *producer;
	uint64_t      n, seed;
	uint32_t      bytes_max;
	unsigned      gap_us; /* at most, between two records */
	bool          stays;  /* until it is killed */
};

static void write_records(const struct work *work, spr_producer *p)
{
	unsigned char bytes[65536];
	uint64_t seed = work->seed;

	for (uint64_t i = 0; i < work->n; i++) {
		const uint32_t n = (uint32_t)(test_random(&seed) % (work->bytes_max + 1));

		memset(bytes, (int)(i * 31 + work->seed), n);
		check(spr_write(spr_writer_here(p), (uint32_t)(i % 3), bytes, n) == 0);
		if (work->gap_us)
			usleep((unsigned)(test_random(&seed) % work->gap_us));
	}
}

static void process_body(void *arg)
{
	const struct work *work = arg;
	spr_producer *p;

	check(spr_attach(&p, work->address) == 0);
	write_records(work, p);
	while (work->stays)
		pause();
	spr_detach(p);
}

static void *thread_body(void *arg)
{
	const struct work *work = arg;

	write_records(work, work->producer);
	return NULL;
}

static uint64_t scaled(uint64_t quick, uint64_t in_long)
{
	return test_long() ? in_long : quick;
}

/* --- Cases ----------------------------------------------------------------------------------- */

static void threads_and_processes_all_arrive(void **state)
{
	enum { N = 4 };
	const unsigned n_threads = UNDER_TSAN ? 0 : N;
	const uint32_t ways[] = { 0, SPR_READ };

	(void)state;
	for (unsigned w = 0; w < 2; w++) {
		struct rig r;
		struct work work[2 * N];
		pthread_t threads[N];
		pid_t pids[N];
		spr_producer *p;

		rig_start(&r, 0, ways[w]);
		for (unsigned i = 0; i < 2 * N; i++)
			work[i] = (struct work){ .address = spr_channel_address(r.ch),
				                 .n = scaled(5000, 500000), .seed = i,
				                 .bytes_max = i % 2 ? 100 : 3000 };
		for (unsigned i = 0; i < N; i++)
			pids[i] = test_child_start(process_body, &work[i]);
		assert_int_equal(spr_attach(&p, spr_channel_address(r.ch)), 0);
		for (unsigned i = 0; i < n_threads; i++) {
			work[N + i].producer = p;
			pthread_create(&threads[i], NULL, thread_body, &work[N + i]);
		}
		rig_take(&r, (N + n_threads) * work[0].n);
		for (unsigned i = 0; i < n_threads; i++)
			pthread_join(threads[i], NULL);
		for (unsigned i = 0; i < N; i++)
			test_assert_ended_well(test_child_wait(pids[i], 10000));
		spr_detach(p);
		rig_end(&r, (N + n_threads) * work[0].n);
	}
}

static uint64_t hash_of_life(uint32_t more_flags, const struct work *work)
{
	struct work mine = *work;
	struct rig r;

	rig_start(&r, 0, more_flags);
	mine.address = spr_channel_address(r.ch);
	const pid_t pid = test_child_start(process_body, &mine);
	rig_take(&r, mine.n);
	test_assert_ended_well(test_child_wait(pid, 10000));
	const uint64_t hash = r.s.hash;
	rig_end(&r, mine.n);
	return hash;
}

static void reading_gives_the_same_records_as_in_place(void **state)
{
	const struct work work = { .n = 20000, .seed = 7, .bytes_max = 500 };
	const struct work large = { .n = 300, .seed = 8, .bytes_max = 65000 };

	(void)state;
	assert_true(hash_of_life(0, &work) == hash_of_life(SPR_READ, &work));
	assert_true(hash_of_life(0, &large) == hash_of_life(SPR_READ, &large));
}

static void records_with_gaps_are_rung_for_and_never_missed(void **state)
{
	struct work work = { .n = scaled(2000, 200000), .bytes_max = 64, .gap_us = 300 };
	struct rig r;

	(void)state;
	work.seed = test_seed();
	rig_start(&r, 0, 0);
	r.c->doze_ns = 0; /* sleep at once */
	work.address = spr_channel_address(r.ch);
	const pid_t pid = test_child_start(process_body, &work);
	rig_take(&r, work.n);
	test_assert_ended_well(test_child_wait(pid, 60000));
	rig_end(&r, work.n);
}

static void descriptor_serves_a_loop(void **state)
{
	struct work work = { .n = scaled(2000, 200000), .bytes_max = 64, .gap_us = 300 };
	struct rig r;

	(void)state;
	work.seed = test_seed();
	rig_start(&r, 0, 0);
	work.address = spr_channel_address(r.ch);
	struct pollfd fd = { .fd = spr_collector_fd(r.c), .events = POLLIN };
	const pid_t pid = test_child_start(process_body, &work);
	while (r.s.n_records < work.n) {
		assert_int_equal(poll(&fd, 1, 20000), 1);
		assert_true(spr_collector_step(r.c, 0) >= 0);
	}
	test_assert_ended_well(test_child_wait(pid, 60000));
	rig_end(&r, work.n);
}

/* Once asleep for good, only a death can end the sleep: no timer, no backstop. */
static void death_of_a_process_ends_a_sleep(void **state)
{
	struct work work = { .n = 1, .bytes_max = 8, .stays = true };
	struct rig r;
	int status;

	(void)state;
	rig_start(&r, 0, 0);
	work.address = spr_channel_address(r.ch);
	const pid_t pid = test_child_start(process_body, &work);
	rig_take(&r, 1);
	while (r.c->entries[0]->tend_ns != SPR_NEVER)
		assert_true(spr_collector_step(r.c, 10) >= 0);
	r.c->doze_ns = 0;
	r.c->backstop_ns = 3600ull * 1000000000;
	assert_int_equal(spr_collector_step(r.c, 20), 0);
	assert_int_equal(r.s.n_gone, 0);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	for (int i = 0; i < 100 && !r.s.n_gone; i++)
		assert_int_equal(spr_collector_step(r.c, 100), 0);
	assert_int_equal(r.s.n_gone, 1);
	rig_end(&r, 1);
}

static void late_stamps_are_flagged(void **state)
{
	struct rig r;
	struct spr_slot slot;
	spr_producer *p;

	(void)state;
	rig_start(&r, 0, 0);
	assert_int_equal(spr_attach(&p, spr_channel_address(r.ch)), 0);
	assert_int_equal(spr_write(spr_writer_here(p), 0, "a", 1), 0);
	rig_take(&r, 1);
	assert_int_equal(r.s.n_late, 0);
	assert_true(r.s.until_ns > 0);
	assert_int_equal(spr_write(spr_writer_here(p), 0, "b", 1), 0);
	assert_int_equal(spr_reserve(spr_writer_here(p), 0, 1, &slot), 0);
	slot.time_ns = r.s.until_ns - 1;
	memcpy(slot.data, "c", 1);
	assert_int_equal(spr_commit(spr_writer_here(p), &slot), 0);
	rig_take(&r, 3);
	assert_int_equal(r.s.n_late, 1);
	spr_detach(p);
	rig_end(&r, 3);
}

/* Gives back what was kept, the last first, as soon as a few have gathered or it is asked to end.
 */
static void *give_back(void *arg)
{
	struct sums *s = arg;
	bool over = false;

	while (!over) {
		pthread_mutex_lock(&s->lock);
		while (s->n_batches < 3 && !s->over) {
			struct timespec until;

			clock_gettime(CLOCK_REALTIME, &until);
			until.tv_nsec += 1000000;
			if (until.tv_nsec >= 1000000000) {
				until.tv_sec++;
				until.tv_nsec -= 1000000000;
			}
			if (pthread_cond_timedwait(&s->more, &s->lock, &until) == ETIMEDOUT)
				break;
		}
		over = s->over && !s->n_batches;
		spr_batch *batches[KEPT_MAX];
		const unsigned n = s->n_batches;
		memcpy(batches, s->batches, n * sizeof(*batches));
		s->n_batches = 0;
		pthread_mutex_unlock(&s->lock);
		for (unsigned i = n; i-- > 0;)
			spr_batch_release(batches[i]);
	}
	return NULL;
}

static void small_ring_feeds_large_frames_through_a_sink_that_keeps(void **state)
{
	enum { N = 2 };
	struct work work[N];
	struct rig r;
	pthread_t giver;
	pid_t pids[N];

	(void)state;
	rig_start(&r, 1 << 20, 0);
	r.s.keeps = true;
	pthread_create(&giver, NULL, give_back, &r.s);
	for (unsigned i = 0; i < N; i++) {
		work[i] = (struct work){ .address = spr_channel_address(r.ch), .seed = i,
			                 .n = scaled(800, 50000), .bytes_max = 30000 };
		pids[i] = test_child_start(process_body, &work[i]);
	}
	rig_take(&r, N * work[0].n); /* 24 MB, more than 20 times the ring */
	assert_true(r.s.n_kept > 20);
	for (unsigned i = 0; i < N; i++)
		test_assert_ended_well(test_child_wait(pids[i], 10000));
	pthread_mutex_lock(&r.s.lock);
	r.s.over = true;
	pthread_cond_signal(&r.s.more);
	pthread_mutex_unlock(&r.s.lock);
	pthread_join(giver, NULL);
	rig_end(&r, N * work[0].n);
}

static void *seal_later(void *arg)
{
	test_sleep_ms(10);
	check(spr_channel_seal(arg) == 0);
	return NULL;
}

static void seal_of_another_thread_ends_a_sleep(void **state)
{
	struct rig r;
	pthread_t thread;

	(void)state;
	rig_start(&r, 0, 0);
	r.c->backstop_ns = 3600ull * 1000000000;
	pthread_create(&thread, NULL, seal_later, r.ch);
	assert_int_equal(spr_collector_step(r.c, -1), -ENODATA);
	pthread_join(thread, NULL);
	rig_end(&r, 0);
}

static void forbid_enter(void)
{
	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { 4, (struct sock_filter *)(uintptr_t)code };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void filter_body(void *arg)
{
	struct work work = { .n = 400, .bytes_max = 64, .gap_us = 200, .seed = 3 };
	struct work staying = { .n = 1, .bytes_max = 8, .stays = true };
	struct rig r;

	(void)arg;
	rig_start(&r, 0, 0);
	r.c->doze_ns = 0;
	work.address = staying.address = spr_channel_address(r.ch);
	const pid_t other = test_child_start(process_body, &staying);
	const pid_t pid = test_child_start(process_body, &work);
	rig_take(&r, 100);
	forbid_enter();
	rig_take(&r, 401);
	test_assert_ended_well(test_child_wait(pid, 10000));
	while (r.s.n_gone < 1)
		check(spr_collector_step(r.c, 100) >= 0);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	while (r.s.n_gone < 2)
		check(spr_collector_step(r.c, 100) >= 0);
	rig_end(&r, 401);
}

static void filter_in_the_middle_of_a_run_loses_nothing(void **state)
{
	(void)state;
	test_assert_ended_well(test_child(filter_body, NULL, 20000));
}

struct idle {
	spr_producer   *p;
	pthread_barrier_t written;
};

static void *idle_writer(void *arg)
{
	struct idle *idle = arg;

	check(spr_write(spr_writer_here(idle->p), 0, "x", 1) == 0);
	pthread_barrier_wait(&idle->written);
	for (;;)
		pause();
	return NULL;
}

static void idle_body(void *arg)
{
	enum { N = 100 };
	struct idle idle;
	pthread_attr_t attr;
	pthread_t thread;

	check(spr_attach(&idle.p, arg) == 0);
	pthread_barrier_init(&idle.written, NULL, N + 1);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	for (int i = 0; i < N; i++)
		check(pthread_create(&thread, &attr, idle_writer, &idle) == 0);
	pthread_barrier_wait(&idle.written);
	for (;;)
		pause();
}

static double cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void collector_of_a_hundred_idle_writers_sleeps(void **state)
{
	const int ms = test_long() ? 10000 : 1200;
	struct rig r;
	int status;

	(void)state;
	if (UNDER_TSAN)
		TEST_SKIP("ThreadSanitizer allows no threads in a forked child");
	rig_start(&r, 0, 0);
	const pid_t pid = test_child_start(idle_body, (void *)(uintptr_t)spr_channel_address(r.ch));
	rig_take(&r, 100);
	while (r.c->entries[0]->tend_ns != SPR_NEVER)
		assert_true(spr_collector_step(r.c, 10) >= 0);
	r.c->backstop_ns = SPR_BACKSTOP_NS;
	assert_int_equal(spr_collector_step(r.c, 50), 0); /* past the doze */
	struct rusage switches[2];
	getrusage(RUSAGE_THREAD, &switches[0]);
	const double start = cpu_us();
	assert_int_equal(spr_collector_step(r.c, ms), 0);
	print_message("idle for %d ms: %.0f us of CPU\n", ms, cpu_us() - start);
	getrusage(RUSAGE_THREAD, &switches[1]);
	/* One sleep, and one more per second. */
	assert_in_range(switches[1].ru_nvcsw - switches[0].ru_nvcsw, 1, 4 + 2 * ms / 1000);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	rig_end(&r, 100);
}

static const struct CMUnitTest cases[] = {
	cmocka_unit_test(threads_and_processes_all_arrive),
	cmocka_unit_test(reading_gives_the_same_records_as_in_place),
	cmocka_unit_test(records_with_gaps_are_rung_for_and_never_missed),
	cmocka_unit_test(descriptor_serves_a_loop),
	cmocka_unit_test(death_of_a_process_ends_a_sleep),
	cmocka_unit_test(late_stamps_are_flagged),
	cmocka_unit_test(small_ring_feeds_large_frames_through_a_sink_that_keeps),
	cmocka_unit_test(seal_of_another_thread_ends_a_sleep),
	cmocka_unit_test(filter_in_the_middle_of_a_run_loses_nothing),
	cmocka_unit_test(collector_of_a_hundred_idle_writers_sleeps),
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
		return run("collector and ring, as SPARRING_DISABLE has it");
	failed = run_in_child("collector and ring on io_uring", NULL, 0);
	failed |= run_in_child("collector and ring, no futexes", "io_uring_futex", 0);
	failed |= run_in_child("collector and ring, plain", NULL, SPR_PLAIN);
	return failed;
}
