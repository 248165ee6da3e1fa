/* SPDX-License-Identifier: MIT */
/*
 * ring_resident_test.c - what stays: memory follows the backlog, short processes leave nothing,
 * sums are real, batches come back in any order, and four hazards that were found on paper.
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "shm/ring.h"
#include "tests/ring_support.h"

static void add_collector(struct rig *r)
{
	struct spr_sink sink;

	assert_int_equal(spr_collector_open(&r->c, 0), 0);
	check_sink(&r->check, &sink);
	assert_int_equal(spr_collector_add(r->c, r->ch, &sink), 0);
}

static void wait_note(struct tally_line *line, uint64_t at_least)
{
	while (spr_load_acquire(&line->note[0]) < at_least) /* [NOTE] */
		sleep_us(500);
}

/* --- Resident memory
 * ------------------------------------------------------------------------------- */

static int role_burst(struct rig *r, uint32_t mib)
{
	spr_producer *p = attach_or_exit(r->address);
	struct tally_line *line = &r->tally->line[0];

	for (uint32_t i = 0; i < mib * 1024; i++)
		CHILD_CHECK(!put_record(spr_writer_here(p), r->tally, 0, 1024));
	spr_store_release(&line->note[0], 1u); /* [NOTE] */
	wait_note(line, 2);
	for (int i = 0; i < 100; i++)
		CHILD_CHECK(!put_record(spr_writer_here(p), r->tally, 0, 1000));
	return 0;
}

static void drained_burst_stays_under_16_mib(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	const uint32_t mib = test_count(256, 1024);
	struct rig r;
	pid_t pid;
	(void)state;

	opt.capacity_bytes = (uint64_t)(mib + mib / 8) << 20;
	rig_open(&r, RIG_EMBEDDED, &opt, 1);
	pid = spawn(role_burst, &r, mib);
	wait_note(&r.tally->line[0], 1);
	const uint64_t full = rig_resident(&r);
	add_collector(&r);
	rig_settle(&r, 100);
	/* The holes are punched in slices between passes. */
	for (int i = 0; i < 100 && rig_resident(&r) >= 16u << 20; i++)
		rig_step(&r, 20);
	print_message("    %u MiB written, %llu MiB resident, drained %llu KiB\n", mib,
	              (unsigned long long)full >> 20, (unsigned long long)rig_resident(&r) >> 10);
	assert_true(full >= (uint64_t)mib << 20);
	assert_true(rig_resident(&r) < 16u << 20);
	spr_store_release(&r.tally->line[0].note[0], 2u); /* [NOTE] */
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* A file system that cannot punch (NFS, old ZFS): memory stays, the data is the same. */
static long no_punch(long nr, long a, long b, long c, long d, long e, long f)
{
	return nr == SYS_fallocate ? -EOPNOTSUPP : spr_sys_raw(nr, a, b, c, d, e, f);
}

static void file_system_that_cannot_punch_loses_nothing(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	pid_t pid;
	(void)state;

	opt.capacity_bytes = 64u << 20;
	spr_sys_hook = no_punch;
	rig_open(&r, RIG_EMBEDDED, &opt, 1);
	pid = spawn(role_burst, &r, 32);
	wait_note(&r.tally->line[0], 1);
	add_collector(&r);
	rig_settle(&r, 100);
	for (int i = 0; i < 20; i++)
		rig_step(&r, 20);
	spr_store_release(&r.tally->line[0].note[0], 2u); /* [NOTE] */
	rig_run_expecting_zero(&r, &pid, 1);
	/* The room is used again: as much once more, in the same file. */
	assert_true(rig_resident(&r) < 80u << 20);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
	spr_sys_hook = NULL;
}

static int role_flood(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);

	for (uint32_t i = 0; i < test_count(400000, 20000000); i++)
		put_record(spr_writer_here(p), r->tally, source, 64);
	return 0;
}

static void flood_with_a_collector_stays_under_16_mib(void **state)
{
	struct rig r;
	uint64_t most = 0;
	int status;
	(void)state;

	rig_open(&r, 0, NULL, 1);
	const pid_t pid = spawn(role_flood, &r, 0);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		const uint64_t now = rig_resident(&r);

		most = now > most ? now : most;
		for (int i = 0; i < 20; i++)
			rig_step(&r, 1);
	}
	assert_int_equal(status, 0);
	print_message("    at most %llu KiB resident\n", (unsigned long long)most >> 10);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_true(most < 16u << 20);
	rig_close(&r);
}

static int role_idle(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);

	CHILD_CHECK(!put_record(spr_writer_here(p), r->tally, source, 64));
	spr_store_release(&r->tally->line[source].note[0], 1u); /* [NOTE] */
	wait_note(&r->tally->line[source], 2);
	return 0;
}

static void idle_writer_costs_at_most_two_pages(void **state)
{
	enum { N = 100 };
	struct rig r;
	pid_t pids[N];
	(void)state;

	rig_open(&r, 0, NULL, N);
	const uint64_t empty = rig_resident(&r);
	for (uint32_t i = 0; i < N; i++)
		pids[i] = spawn(role_idle, &r, i);
	for (uint32_t i = 0; i < N; i++)
		wait_note(&r.tally->line[i], 1);
	rig_settle(&r, 50);
	const uint64_t with = rig_resident(&r);
	print_message("    empty %llu KiB, %d idle writers %llu bytes each\n",
	              (unsigned long long)empty >> 10, N, (unsigned long long)(with - empty) / N);
	assert_true(with - empty <= N * 2 * 4096);
	for (uint32_t i = 0; i < N; i++)
		spr_store_release(&r.tally->line[i].note[0], 2u); /* [NOTE] */
	rig_run_expecting_zero(&r, pids, N);
	rig_finish(&r);
	rig_expect_exact(&r);
	rig_close(&r);
}

static int role_five(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);

	for (int i = 0; i < 5; i++)
		CHILD_CHECK(!put_record(spr_writer_here(p), r->tally, source, 64));
	if (source % 3 == 0)
		kill(getpid(), SIGKILL);
	if (source % 3 == 1)
		spr_detach(p);
	return 0;
}

static void short_processes_leave_nothing_behind(void **state)
{
	const uint32_t n = test_count(1000, 10000);
	struct rig r;
	uint32_t n_running = 0;
	(void)state;

	rig_open(&r, 0, NULL, n);
	const uint64_t empty = rig_resident(&r);
	for (uint32_t i = 0; i < n; i++) {
		int status;

		spawn(role_five, &r, i);
		for (n_running++; n_running >= 8; n_running--) {
			assert_true(waitpid(-1, &status, 0) > 0);
			assert_true(status == 0 || status == SIGKILL);
			rig_step(&r, 0);
		}
	}
	while (n_running-- > 0)
		wait(NULL);
	rig_expect_all_back(&r);
	const uint64_t after = rig_resident(&r);
	print_message("    resident %llu KiB before, %llu after %u processes\n",
	              (unsigned long long)empty >> 10, (unsigned long long)after >> 10, n);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	assert_int_equal(r.stats.delivered, n * 5);
	assert_int_equal(r.check.n_gone, n);
	assert_true(after < empty + (4u << 20));
	rig_close(&r);
}

/* --- The sums are real
 * ----------------------------------------------------------------------------- */

static void sink_that_skips_a_record_is_caught_by_the_sequence(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	rig_open(&r, 0, NULL, 1);
	r.check.skip_one_at = 4321;
	pid = spawn(role_flood, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	assert_int_equal(r.stats.lost, 0);
	assert_int_equal(r.check.gaps, 1);
	assert_int_equal(r.stats.delivered, r.check.n_records + 1);
	rig_close(&r);
}

/* The same inside: a collector that drops one has a sum that does not hold, and says incomplete. */
static void collector_that_skips_a_record_is_caught_by_the_sums(void **state)
{
	struct spr_verdict v = SPR_VERDICT_INIT;
	struct rig r;
	pid_t pid;
	(void)state;

	rig_open(&r, 0, NULL, 1);
	spr_shm_ring_test_skip = 4321;
	pid = spawn(role_flood, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	assert_int_equal(spr_shm_ring_test_skip, 0);
	assert_int_equal(r.check.gaps, 1);
	assert_int_equal(r.stats.lost, 0);
	assert_int_equal(r.stats.written, r.stats.delivered + 1);
	assert_int_equal(spr_channel_verdict(r.ch, &v), 0);
	assert_true(v.reasons & SPR_LOST);
	assert_int_equal(v.lost, 1);
	rig_close(&r);
}

/* A record's sequence is changed behind the writer's back. */
static void forged_sequence_is_never_complete(void **state)
{
	struct spr_verdict v = SPR_VERDICT_INIT;
	struct rig r;
	spr_producer *p = NULL;
	spr_batch *b = NULL;
	uint64_t header = 0;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	assert_int_equal(spr_attach(&p, r.address), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(put_record(spr_writer_here(p), r.tally, 0, 24), 0);
	struct spr_ring_header h;
	struct spr_ring_geometry g = { 0 };
	const int fd = open(rig_path(&r), O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	assert_true(spr_ring_geometry_init(&g, h.n_segments));
	const off_t at = (off_t)g.seg_at[0] + 10 * 40; /* the eleventh in the first segment */
	assert_int_equal(pread(fd, &header, 8, at), 8);
	assert_int_equal(spr_rec_bytes(header), 24);
	header += 1ull << 40;
	assert_int_equal(pwrite(fd, &header, 8, at), 8);
	close(fd);
	spr_detach(p);
	assert_int_equal(spr_channel_seal(r.ch), 0);
	r.is_sealed = true;
	while (spr_channel_walk(r.ch, &b) > 0)
		;
	assert_int_equal(spr_channel_verdict(r.ch, &v), 0);
	assert_true(v.reasons & SPR_LOST);
	rig_close(&r);
}

/* --- Batches kept
 * -------------------------------------------------------------------------------------- */

#define KEPT_MAX 4096
static struct {
	pthread_mutex_t lock;
	pthread_cond_t  more;
	spr_batch *batch[KEPT_MAX], *ours[KEPT_MAX];
	uint32_t   n, n_ours;
	bool       stop;
	uint64_t   n_released, n_most;
	struct check *check;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

static int keep_batch(void *arg, spr_batch *b)
{
	check_batch(arg, b);
	if (kept.n_ours == KEPT_MAX)
		return 0;
	kept.ours[kept.n_ours++] = b;
	return 1;
}

/* At the tick all of a pass's batches go to the thread, which gives them back last one first. */
static int hand_over(void *arg, uint64_t until_ns)
{
	struct check *c = arg;

	c->until_ns = until_ns;
	c->n_ticks++;
	pthread_mutex_lock(&kept.lock);
	while (kept.n)
		pthread_cond_wait(&kept.more, &kept.lock);
	memcpy(kept.batch, kept.ours, kept.n_ours * sizeof(*kept.ours));
	kept.n = kept.n_ours;
	kept.n_ours = 0;
	pthread_cond_broadcast(&kept.more);
	pthread_mutex_unlock(&kept.lock);
	return 0;
}

static void *releasing_thread(void *arg)
{
	pthread_mutex_lock(&kept.lock);
	while (!kept.stop) {
		while (!kept.n && !kept.stop)
			pthread_cond_wait(&kept.more, &kept.lock);
		kept.n_most = kept.n > kept.n_most ? kept.n : kept.n_most;
		while (kept.n) {
			struct spr_record rec;
			spr_batch *b = kept.batch[--kept.n];

			/* Its bytes still stand. */
			spr_batch_rewind(b);
			while (spr_batch_next(b, &rec) > 0)
				kept.n_released += *(const volatile unsigned char *)rec.data & 1;
			spr_batch_release(b);
		}
		pthread_cond_broadcast(&kept.more);
	}
	pthread_mutex_unlock(&kept.lock);
	return arg;
}

static int role_mixed(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);
	uint64_t random = source;

	for (uint32_t i = 0; i < test_count(40000, 1000000); i++)
		put_record(spr_writer_here(p), r->tally, source,
		           24 + (uint32_t)(test_random(&random) % 500));
	return 0;
}

static void ring_of_1_mib_with_batches_released_in_reverse_loses_nothing(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct spr_sink sink;
	struct rig r;
	pid_t pids[3];
	pthread_t t;
	(void)state;

	opt.capacity_bytes = 1u << 20;
	opt.stall_ms = UINT32_MAX;
	rig_open(&r, RIG_EMBEDDED, &opt, 3);
	assert_int_equal(spr_collector_open(&r.c, 0), 0);
	check_sink(&r.check, &sink);
	sink.put = keep_batch;
	sink.tick = hand_over;
	assert_int_equal(spr_collector_add(r.c, r.ch, &sink), 0);
	for (uint32_t i = 0; i < 3; i++)
		pids[i] = spawn(role_mixed, &r, i);
	assert_int_equal(pthread_create(&t, NULL, releasing_thread, NULL), 0);
	rig_run_expecting_zero(&r, pids, 3);
	rig_finish(&r);
	hand_over(&r.check, r.check.until_ns);
	pthread_mutex_lock(&kept.lock);
	while (kept.n)
		pthread_cond_wait(&kept.more, &kept.lock);
	kept.stop = true;
	pthread_cond_broadcast(&kept.more);
	pthread_mutex_unlock(&kept.lock);
	pthread_join(t, NULL);
	assert_int_equal(spr_channel_stats(r.ch, &r.stats), 0);
	print_message("    up to %llu batches kept at once\n", (unsigned long long)kept.n_most);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* --- Ticks and LATE
 * -------------------------------------------------------------------------------------- */

static void late_records_are_flagged_and_no_others(void **state)
{
	struct rig r;
	pid_t pids[4];
	(void)state;

	rig_open(&r, 0, NULL, 4);
	r.check.is_by_time = true;
	for (uint32_t i = 0; i < 4; i++)
		pids[i] = spawn(role_flood, &r, i);
	rig_run_expecting_zero(&r, pids, 4);
	rig_finish(&r);
	print_message("    %llu records, %llu ticks, %llu late\n",
	              (unsigned long long)r.check.n_records, (unsigned long long)r.check.n_ticks,
	              (unsigned long long)r.check.n_late);
	rig_expect_exact(&r);
	assert_true(r.check.n_ticks > 1);
	rig_close(&r);
}

static int role_when_told(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);

	wait_note(&r->tally->line[source], 1);
	return put_record(spr_writer_here(p), r->tally, source, 64);
}

static void record_held_open_over_a_tick_is_late(void **state)
{
	struct rig r;
	struct spr_slot slot;
	spr_producer *p = NULL;
	(void)state;

	rig_open(&r, 0, NULL, 2);
	const pid_t pid = spawn(role_when_told, &r, 1);
	assert_int_equal(spr_attach(&p, r.address), 0);
	spr_writer *w = spr_writer_here(p);
	assert_int_equal(put_record(w, r.tally, 0, 24), 0);
	rig_settle(&r, 5);
	assert_int_equal(open_record(w, r.tally, 0, 24, &slot), 0);
	sleep_us(3000);
	spr_store_release(&r.tally->line[1].note[0], 1u); /* [NOTE] */
	rig_run_expecting_zero(&r, &pid, 1);
	rig_settle(&r, 5);
	assert_int_equal(r.check.n_late, 0);
	assert_int_equal(end_record(w, r.tally, 0, &slot), 0);
	rig_settle(&r, 5);
	assert_int_equal(r.check.n_late, 1);
	spr_detach(p);
	rig_finish(&r);
	rig_expect_exact(&r);
	rig_close(&r);
}

/* --- Four hazards
 * ---------------------------------------------------------------------------------------- */
/* The first, a claim that races a seal, is aimed at in ring_seal_test.c. */

/* Death inside populate: the segment is claimed and its pages are not there. */
static long die_in_populate(long nr, long a, long b, long c, long d, long e, long f)
{
	static int n;

	if (nr == SYS_madvise && c == 23 /* MADV_POPULATE_WRITE */ && n-- == 0)
		spr_sys_raw(SYS_kill, spr_sys_raw(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0,
		            0);
	return spr_sys_raw(nr, a, b, c, d, e, f);
}

static int role_die_in_populate(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);

	for (uint32_t i = 0; i < source % 4; i++)
		put_record(spr_writer_here(p), r->tally, source, 1000);
	spr_sys_hook = die_in_populate;
	for (uint32_t i = 0; i < 2000; i++)
		put_record(spr_writer_here(p), r->tally, source, 1000);
	return 0;
}

/* READY promises pages: a writer stores into them without asking. */
static void expect_ready_means_populated(struct rig *r)
{
	struct spr_ring_header h;
	struct spr_ring_geometry g = { 0 };
	struct spr_ring_desc d;
	const int fd = open(rig_path(r), O_RDONLY | O_CLOEXEC);
	uint32_t n_ready = 0;

	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	assert_true(spr_ring_geometry_init(&g, h.n_segments));
	for (uint32_t c = 0; c < SPR_RING_CLASSES; c++) {
		for (uint32_t i = 0; i < g.n_segments[c]; i++) {
			const off_t at = (off_t)(g.seg_at[c] +
			                         (uint64_t)i * spr_ring_class_bytes(c));

			assert_int_equal(
				pread(fd, &d, sizeof(d), (off_t)(g.desc_at[c] + i * sizeof(d))),
				sizeof(d));
			if (spr_load_relaxed(&d.owner) != SPR_OWNER_READY)
				continue;
			n_ready++;
			const off_t hole = lseek(fd, at, SEEK_HOLE);
			if (hole >= 0 && hole < at + (off_t)spr_ring_class_bytes(c))
				fail_msg("class %u segment %u is READY with a hole at %lld", c, i,
				         (long long)(hole - at));
		}
	}
	close(fd);
	print_message("    %u segments ready\n", n_ready);
}

static void death_inside_populate_leaves_no_unpopulated_segment_ready(void **state)
{
	struct rig r;
	uint32_t n_killed = 0;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 40);
	/* Without a collector at first, so that no segment is ready and all are claimed as holes.
	 */
	for (uint32_t i = 0; i < 40; i++) {
		pid_t pid = spawn(role_die_in_populate, &r, i);
		const int status = wait_for(pid);

		n_killed += WIFSIGNALED(status);
		if (i == 20)
			add_collector(&r);
	}
	rig_expect_all_back(&r);
	rig_settle(&r, 50);
	expect_ready_means_populated(&r);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	assert_true(n_killed > 20);
	rig_close(&r);
}

/* An exit handler, and other threads that write until the very end. */
static struct {
	spr_producer *p;
	struct rig   *rig;
	uint32_t      first;
} here;
static __thread uint32_t my_source;

static void *flooding_thread(void *arg)
{
	my_source = (uint32_t)(uintptr_t)arg;
	for (;;)
		put_record(spr_writer_here(here.p), here.rig->tally, my_source, 60);
	return NULL;
}

static void linger(void)
{
	sleep_us(4000);
}

static int role_exit_beside_threads(struct rig *r, uint32_t first)
{
	pthread_t t;

	atexit(linger); /* before attach: runs after whatever attach registered */
	here.p = attach_or_exit(r->address);
	here.rig = r;
	for (uintptr_t i = 0; i < 3; i++)
		CHILD_CHECK(!pthread_create(&t, NULL, flooding_thread, (void *)(first + i)));
	sleep_us(2000);
	exit(0);
}

/* Takes and gives back segments all the time, so that one given away too early is overwritten. */
static int role_churn(struct rig *r, uint32_t source)
{
	struct tally_line *line = &r->tally->line[source];

	while (!spr_load_relaxed(&line->note[0])) {
		spr_producer *p = attach_or_exit(r->address);

		for (int i = 0; i < 30; i++)
			put_record(spr_writer_here(p), r->tally, source, 200);
		spr_detach(p);
	}
	return 0;
}

static void exit_handlers_leave_other_threads_their_segments(void **state)
{
	const uint32_t n = test_count(40, 1000);
	struct rig r;
	(void)state;

	TSAN_CANNOT_SEE_RECYCLING();
	rig_open(&r, 0, NULL, n * 3 + 1);
	const pid_t churn = spawn(role_churn, &r, n * 3);
	for (uint32_t i = 0; i < n; i++) {
		pid_t pid = spawn(role_exit_beside_threads, &r, i * 3);

		rig_run_expecting_zero(&r, &pid, 1);
	}
	spr_store_relaxed(&r.tally->line[n * 3].note[0], 1u);
	rig_run_expecting_zero(&r, &churn, 1);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	rig_close(&r);
}

/* The order at thread exit: a handler that comes while the thread gives its writer back. */
static void on_alarm(int sig)
{
	(void)sig;
	put_record(spr_writer_here(here.p), here.rig->tally, my_source, 48);
}

static void mask_alarm(int how)
{
	sigset_t alarm_only;

	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	pthread_sigmask(how, &alarm_only, NULL);
}

static void *short_thread(void *arg)
{
	my_source = (uint32_t)(uintptr_t)arg;
	mask_alarm(SIG_UNBLOCK); /* from here on to its end, and nowhere else */
	put_record(spr_writer_here(here.p), here.rig->tally, my_source, 60);
	return NULL;
}

static int role_exits_under_signals(struct rig *r, uint32_t arg)
{
	const struct itimerval every = { { 0, 50 }, { 0, 50 } }, off = { { 0, 0 }, { 0, 0 } };
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	(void)arg;

	here.p = attach_or_exit(r->address);
	here.rig = r;
	my_source = 0;
	CHILD_CHECK(!put_record(spr_writer_here(here.p), r->tally, 0, 40));
	sigaction(SIGALRM, &sa, NULL);
	mask_alarm(SIG_BLOCK);
	setitimer(ITIMER_REAL, &every, NULL);
	for (uintptr_t i = 1; i <= test_count(1500, 20000); i++) {
		pthread_t t;

		CHILD_CHECK(!pthread_create(&t, NULL, short_thread, (void *)(1 + i % 3000)));
		pthread_join(t, NULL);
	}
	setitimer(ITIMER_REAL, &off, NULL);
	return 0;
}

static void handler_late_in_a_threads_exit_writes_into_nobodys_segment(void **state)
{
	struct rig r;
	pid_t pid;
	(void)state;

	if (UNDER_TSAN)
		TEST_SKIP("signals in exiting threads under ThreadSanitizer");
	rig_open(&r, 0, NULL, 3010);
	r.check.is_unordered = test_long(); /* sources come again there */
	const pid_t churn = spawn(role_churn, &r, 3005);
	pid = spawn(role_exits_under_signals, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	spr_store_relaxed(&r.tally->line[3005].note[0], 1u);
	rig_run_expecting_zero(&r, &churn, 1);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drained_burst_stays_under_16_mib),
		cmocka_unit_test(file_system_that_cannot_punch_loses_nothing),
		cmocka_unit_test(flood_with_a_collector_stays_under_16_mib),
		cmocka_unit_test(idle_writer_costs_at_most_two_pages),
		cmocka_unit_test(short_processes_leave_nothing_behind),
		cmocka_unit_test(sink_that_skips_a_record_is_caught_by_the_sequence),
		cmocka_unit_test(collector_that_skips_a_record_is_caught_by_the_sums),
		cmocka_unit_test(forged_sequence_is_never_complete),
		cmocka_unit_test(ring_of_1_mib_with_batches_released_in_reverse_loses_nothing),
		cmocka_unit_test(late_records_are_flagged_and_no_others),
		cmocka_unit_test(record_held_open_over_a_tick_is_late),
		cmocka_unit_test(death_inside_populate_leaves_no_unpopulated_segment_ready),
		cmocka_unit_test(exit_handlers_leave_other_threads_their_segments),
		cmocka_unit_test(handler_late_in_a_threads_exit_writes_into_nobodys_segment),
	};

	return RUN_TESTS(tests, NULL, NULL);
}
