/* SPDX-License-Identifier: MIT */
/*
 * ring_full_test.c - out of room: at capacity, on a full file system, under RLIMIT_FSIZE, and when
 * somebody cuts the file. Nobody dies of it, and every record has been delivered or counted.
 */
#include <pthread.h>
#include <sys/syscall.h>

#include "tests/ring_support.h"

static char
	tmpfs[64]; /* 1 MiB each, mounted in a namespace of this program's own; "" if not allowed */
static int  tmpfs_refused;

static int make_tmpfs(void **state)
{
	char top[] = "/tmp/spr-full-XXXXXX";
	(void)state;

	if (!mkdtemp(top))
		return -1;
	snprintf(tmpfs, sizeof(tmpfs), "%s", top);
	tmpfs_refused = UNDER_TSAN ? -ENOTSUP : enter_small_tmpfs(tmpfs, 1u << 20);
	return 0;
}

static int drop_tmpfs(void **state)
{
	(void)state;
	if (!tmpfs_refused)
		spr_sys_raw(SYS_umount2, (long)tmpfs, 2, 0, 0, 0, 0);
	rmdir(tmpfs);
	return 0;
}

#define NEEDS_TMPFS() \
	do { \
		if (tmpfs_refused) \
			TEST_SKIP("no tmpfs may be mounted: %s", strerror(-tmpfs_refused)); \
	} while (0)

static void open_on_tmpfs(struct rig *r, uint32_t flags, const struct spr_channel_options *opt,
                          uint32_t n_sources)
{
	char folder[96];

	snprintf(folder, sizeof(folder), "%s/ring-XXXXXX", tmpfs);
	assert_non_null(mkdtemp(folder));
	rig_open_in(r, folder, flags, opt, n_sources);
}

/* --- Capacity
 * -------------------------------------------------------------------------------------- */

static uint32_t n_records;
static spr_producer *producer;

static int role_write_attached(struct rig *r, uint32_t source)
{
	for (uint32_t i = 0; i < n_records; i++)
		put_record(spr_writer_here(producer), r->tally, source, 24 + i * 37 % 2000);
	return 0;
}

static int role_write(struct rig *r, uint32_t source)
{
	producer = attach_or_exit(r->address);
	return role_write_attached(r, source);
}

/* Without a collector a ring grows to its capacity without a wait, then drops and counts. */
static void ring_without_a_collector_grows_to_capacity_then_counts(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	(void)state;

	for (uint32_t n = 1; n <= 4; n *= 2) {
		struct rig r;
		pid_t pids[4];

		opt.capacity_bytes = 8u << 20;
		n_records = 40000 / n;
		rig_open(&r, RIG_EMBEDDED, &opt, n);
		for (uint32_t i = 0; i < n; i++)
			pids[i] = spawn(role_write, &r, i);
		rig_run_expecting_zero(&r, pids, n);
		rig_finish(&r);
		rig_expect_exact(&r);
		assert_int_equal(r.stats.written, n_records * n);
		assert_int_equal(r.stats.stalls, 0);
		assert_true(r.stats.lost > 0);
		assert_true(r.stats.written_bytes > 4u << 20);
		rig_close(&r);
	}
}

/* A collector that takes nothing for the moment. */
static int put_nothing(void *arg, spr_batch *b)
{
	(void)b;
	return *(bool *)arg ? -EAGAIN : 0;
}

static int role_stall(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);
	struct tally_line *line = &r->tally->line[source];
	uint64_t slowest_ns = 0, from_ns = test_now_ns(), all_ns;

	while (spr_load_relaxed(&line->dropped) < 500) {
		const uint64_t t = test_now_ns();

		put_record(spr_writer_here(p), r->tally, source, 1000);
		if (test_now_ns() - t > slowest_ns)
			slowest_ns = test_now_ns() - t;
	}
	all_ns = test_now_ns() - from_ns;
	spr_store_relaxed(&line->note[0], slowest_ns);
	spr_store_relaxed(&line->note[1], all_ns);
	/* 500 records were dropped with one deadline of 200 ms between them, not one each. */
	CHILD_CHECK(all_ns < 500 * 200000000ull / 10);
	CHILD_CHECK(slowest_ns > 20000000);
	return 0;
}

static void full_ring_stalls_once_then_drops_and_counts(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	pid_t pids[2];
	bool is_full = true;
	(void)state;

	opt.capacity_bytes = 4u << 20;
	opt.stall_ms = 200;
	rig_open(&r, 0, &opt, 3);
	r.check.put_hook = put_nothing;
	r.check.put_arg = &is_full;
	for (uint32_t i = 0; i < 2; i++)
		pids[i] = spawn(role_stall, &r, i);
	rig_run_expecting_zero(&r, pids, 2);
	assert_true(r.check.n_records == 0);
	for (uint32_t i = 0; i < 2; i++)
		print_message(
			"    500 dropped in %llu ms, the slowest record %llu ms\n",
			(unsigned long long)spr_load_relaxed(&r.tally->line[i].note[1]) / 1000000,
			(unsigned long long)spr_load_relaxed(&r.tally->line[i].note[0]) / 1000000);
	/* Taken up again: what was recovered is used again. */
	is_full = false;
	rig_settle(&r, 10);
	n_records = 2000;
	pids[0] = spawn(role_write, &r, 2);
	rig_run_expecting_zero(&r, pids, 1);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 1000);
	assert_int_equal(spr_load_relaxed(&r.tally->line[2].dropped), 0);
	assert_true(r.stats.stalls > 0);
	rig_close(&r);
}

static void dropping_ring_never_waits(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	pid_t pids[2];
	bool is_full = true;
	(void)state;

	opt.capacity_bytes = 4u << 20;
	opt.flags = SPR_DROP;
	rig_open(&r, 0, &opt, 2);
	r.check.put_hook = put_nothing;
	r.check.put_arg = &is_full;
	n_records = 20000;
	for (uint32_t i = 0; i < 2; i++)
		pids[i] = spawn(role_write, &r, i);
	rig_run_expecting_zero(&r, pids, 2);
	is_full = false;
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.stalls, 0);
	assert_true(r.stats.lost > 0);
	assert_int_equal(r.stats.written, 40000);
	rig_close(&r);
}

/* The writers outrun the capacity by far, and wait for a collector that is slow: nothing is lost.
 */
static int put_slowly(void *arg, spr_batch *b)
{
	(void)arg;
	(void)b;
	sleep_us(200);
	return 0;
}

static void slow_collector_slows_its_writers_and_loses_nothing(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	pid_t pids[3];
	(void)state;

	opt.capacity_bytes = 4u << 20;
	opt.stall_ms = UINT32_MAX;
	rig_open(&r, 0, &opt, 3);
	r.check.put_hook = put_slowly;
	n_records = test_count(20000, 400000);
	for (uint32_t i = 0; i < 3; i++)
		pids[i] = spawn(role_write, &r, i);
	rig_run_expecting_zero(&r, pids, 3);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	rig_close(&r);
}

/* --- A file system of 1 MiB
 * --------------------------------------------------------------------------- */

static void small_tmpfs_filled_by_writers_kills_nobody(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	(void)state;

	NEEDS_TMPFS();
	opt.capacity_bytes = 64u << 20;
	opt.stall_ms = 20;
	for (uint32_t n = 1; n <= 8; n *= 2) {
		for (uint32_t flags = 0; flags < 2; flags++) {
			struct rig r;
			pid_t pids[8];

			n_records = 16000 / n;
			open_on_tmpfs(&r, flags ? RIG_EMBEDDED : 0, &opt, n);
			for (uint32_t i = 0; i < n; i++)
				pids[i] = spawn(role_write, &r, i);
			rig_run_expecting_zero(&r, pids, n);
			rig_finish(&r);
			rig_expect_exact(&r);
			assert_int_equal(r.stats.written, n_records * n);
			assert_true(!flags || r.stats.lost > 0);
			print_message("    %u writers, %s: %llu delivered, %llu lost and counted\n",
			              n, flags ? "embedded" : "collected",
			              (unsigned long long)r.stats.delivered,
			              (unsigned long long)r.stats.lost);
			rig_close(&r);
		}
	}
}

static struct rig *threads_rig;

static void *writing_thread(void *arg)
{
	return (void *)(intptr_t)role_write_attached(threads_rig, (uint32_t)(uintptr_t)arg);
}

static int role_threads(struct rig *r, uint32_t arg)
{
	pthread_t t[8];
	(void)arg;

	producer = attach_or_exit(r->address);
	threads_rig = r;
	for (uintptr_t i = 0; i < 8; i++)
		CHILD_CHECK(!pthread_create(&t[i], NULL, writing_thread, (void *)i));
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	const pid_t pid = fork();
	if (!pid)
		_exit(role_write_attached(r, 8));
	return wait_for(pid);
}

static void small_tmpfs_filled_by_threads_and_a_forked_child_kills_nobody(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	pid_t pid;
	(void)state;

	NEEDS_TMPFS();
	opt.capacity_bytes = 64u << 20;
	opt.stall_ms = 20;
	n_records = 2000;
	open_on_tmpfs(&r, RIG_EMBEDDED, &opt, 9);
	pid = spawn(role_threads, &r, 0);
	rig_run_expecting_zero(&r, &pid, 1);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.written, 18000);
	rig_close(&r);
}

/* With a collector that keeps up a ring on 1 MiB loses nothing: room is used again and again. */
static void room_on_a_small_tmpfs_is_used_again(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	pid_t pids[2];
	(void)state;

	NEEDS_TMPFS();
	opt.capacity_bytes = 64u << 20;
	opt.stall_ms = UINT32_MAX;
	open_on_tmpfs(&r, 0, &opt, 2);
	n_records = 30000;
	for (uint32_t i = 0; i < 2; i++)
		pids[i] = spawn(role_write, &r, i);
	rig_run_expecting_zero(&r, pids, 2);
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	assert_true(r.stats.written_bytes > 30u << 20);
	rig_close(&r);
}

/* Another process fills and empties the disk while the ring grows: ENOSPC at any moment. */
static int role_disk_hog(struct rig *r, uint32_t source)
{
	char path[128];
	static char block[4096];

	snprintf(path, sizeof(path), "%s/hog", tmpfs);
	while (!spr_load_relaxed(&r->tally->line[source].note[0])) {
		const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		CHILD_CHECK(fd >= 0);
		while (write(fd, block, sizeof(block)) > 0)
			;
		sleep_us(300);
		close(fd);
		unlink(path);
		sleep_us(300);
	}
	return 0;
}

static void disk_filled_by_another_process_kills_nobody(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	(void)state;

	NEEDS_TMPFS();
	opt.capacity_bytes = 64u << 20;
	opt.stall_ms = 5;
	for (uint32_t round = 0; round < test_count(4, 200); round++) {
		struct rig r;
		pid_t pids[4];

		n_records = 4000;
		open_on_tmpfs(&r, round % 2 ? RIG_EMBEDDED : 0, &opt, 5);
		const pid_t hog = spawn(role_disk_hog, &r, 4);
		for (uint32_t i = 0; i < 4; i++)
			pids[i] = spawn(role_write, &r, i);
		int status[4];
		rig_run(&r, pids, status, 4);
		spr_store_relaxed(&r.tally->line[4].note[0], 1u);
		expect_exit(hog, 0);
		for (uint32_t i = 0; i < 4; i++) {
			/* A full disk may keep one from attaching (97); it may not kill it. */
			assert_true(WIFEXITED(status[i]));
			assert_true(WEXITSTATUS(status[i]) == 0 || WEXITSTATUS(status[i]) == 97);
		}
		rig_finish(&r);
		rig_expect_exact(&r);
		rig_close(&r);
	}
}

/* The same, with every populate from the n-th on failing, on any file system. */
static int64_t n_until_full;

static long no_more_room(long nr, long a, long b, long c, long d, long e, long f)
{
	if (nr == SYS_madvise && c == 23 /* MADV_POPULATE_WRITE */ && n_until_full-- <= 0)
		return -EFAULT;
	return spr_sys_raw(nr, a, b, c, d, e, f);
}

static int role_no_more_room(struct rig *r, uint32_t source)
{
	spr_producer *p = NULL;
	int err;

	n_until_full = source;
	spr_sys_hook = no_more_room;
	err = spr_attach(&p, r->address);
	if (err) {
		CHILD_CHECK(err == -ENOSPC || err == -ENOMEM);
		return 0;
	}
	for (uint32_t i = 0; i < 3000; i++)
		put_record(spr_writer_here(p), r->tally, source, 24 + i * 37 % 2000);
	return 0;
}

static void growth_that_fails_at_the_nth_step_is_counted(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	(void)state;

	opt.capacity_bytes = 64u << 20;
	opt.stall_ms = 1;
	for (uint32_t embedded = 0; embedded < 2; embedded++) {
		rig_open(&r, embedded ? RIG_EMBEDDED : 0, &opt, 24);
		for (uint32_t n = 0; n < 24; n++) {
			pid_t pid = spawn(role_no_more_room, &r, n);

			rig_run_expecting_zero(&r, &pid, 1);
		}
		rig_finish(&r);
		rig_expect_exact(&r);
		rig_close(&r);
	}
}

/* A full disk at open: an error with a sentence, no file left. */
static void open_on_a_full_disk_says_so(void **state)
{
	spr_channel *ch = NULL;
	char path[128], address[128];
	static char block[65536];
	(void)state;

	NEEDS_TMPFS();
	snprintf(path, sizeof(path), "%s/full", tmpfs);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/hog", tmpfs);
	snprintf(address, sizeof(address), "ring:%s/full", tmpfs);
	const int fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	while (write(fd, block, 512) > 0)
		;
	const int err = spr_channel_open(&ch, address, NULL);
	print_message("    %s\n", spr_error_text());
	assert_int_equal(err, -ENOSPC);
	assert_null(ch);
	/* A little room, a little more: an error or a working channel, never a signal. */
	uint32_t n_opened = 0;
	for (off_t left = 960 << 10; left >= 0; left -= 16 << 10) {
		assert_int_equal(ftruncate(fd, left), 0);
		if (!spr_channel_open(&ch, address, NULL)) {
			n_opened++;
			assert_int_equal(spr_channel_close(ch), 0);
		}
	}
	assert_true(n_opened > 0);
	close(fd);
	unlink(path);
}

/* --- RLIMIT_FSIZE of the creator
 * ------------------------------------------------------------------------- */

static int role_creator(struct rig *unused, uint32_t kib)
{
	const struct rlimit l = { (rlim_t)kib << 10, (rlim_t)kib << 10 };
	spr_channel *ch = NULL;
	spr_producer *p = NULL;
	struct spr_stats s = SPR_STATS_INIT;
	int err;
	(void)unused;

	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &l));
	err = spr_channel_open(&ch, "ring:", NULL);
	if (err) {
		CHILD_CHECK(err == -EFBIG || err == -ENOSPC);
		CHILD_CHECK(spr_error_text()[0]);
		return 0;
	}
	CHILD_CHECK(!spr_attach(&p, spr_channel_address(ch)));
	for (uint32_t i = 0; i < 30000; i++) {
		err = spr_write(spr_writer_here(p), 0, "0123456789012345678901234567890123456789",
		                40);
		CHILD_CHECK(err == 0 || err == -EAGAIN);
	}
	CHILD_CHECK(!spr_channel_seal(ch));
	CHILD_CHECK(!spr_channel_stats(ch, &s));
	CHILD_CHECK(s.written == 30000 && s.delivered + s.lost == s.written);
	spr_detach(p);
	return spr_channel_close(ch) != 0;
}

static void creator_under_a_file_size_limit_is_not_killed(void **state)
{
	static const uint32_t kib[] = { 0, 4, 64, 1024, 4096, 16384, 65536, 1u << 20 };
	(void)state;

	for (size_t i = 0; i < sizeof(kib) / sizeof(*kib); i++)
		expect_exit(spawn(role_creator, NULL, kib[i]), 0);
}

/* --- Truncation
 * -------------------------------------------------------------------------------------------- */

static int role_truncator(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(r->address);

	for (uint32_t i = 0; i < 20000; i++)
		put_record(spr_writer_here(p), r->tally, source, 100);
	if (truncate(rig_path(r), (off_t)spr_load_relaxed(&r->tally->line[0].note[0])))
		return 1;
	/* Our own map is gone with it; that this may kill us is the price of doing so. */
	put_record(spr_writer_here(p), r->tally, source, 100);
	return 0;
}

/* The collector of a file that was cut lives, ends, and says incomplete. In a child: what must not
 * happen is a signal. */
static int role_guarded_collector(struct rig *unused, uint32_t keep_kib)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct spr_verdict v = SPR_VERDICT_INIT;
	struct spr_stats s = SPR_STATS_INIT;
	struct rig r;
	int status = 0;
	int64_t n;
	(void)unused;

	opt.capacity_bytes = 64u << 20;
	opt.flags = SPR_GUARD;
	rig_open(&r, 0, &opt, 1);
	spr_store_relaxed(&r.tally->line[0].note[0], (uint64_t)keep_kib << 10);
	const pid_t pid = spawn(role_truncator, &r, 0);
	/* Not collected before it is cut. */
	while (waitpid(pid, &status, WNOHANG) != pid)
		sleep_us(500);
	for (int i = 0; i < 10; i++) {
		n = spr_collector_step(r.c, 10);
		if (n < 0 && n != -EPROTO && n != -EIO)
			break;
	}
	CHILD_CHECK(!spr_channel_seal(r.ch) || 1);
	for (int i = 0; i < 1000; i++) {
		n = spr_collector_step(r.c, 10);
		if (n == -ENODATA)
			break;
	}
	CHILD_CHECK(n == -ENODATA);
	CHILD_CHECK(!spr_channel_stats(r.ch, &s));
	CHILD_CHECK(!spr_channel_verdict(r.ch, &v));
	CHILD_CHECK(v.reasons != 0);
	CHILD_CHECK(!spr_collector_close(r.c));
	CHILD_CHECK(!spr_channel_close(r.ch));
	rmdir(r.folder);
	return 0;
}

static void collector_survives_a_truncated_file(void **state)
{
	static const uint32_t keep_kib[] = { 0, 4, 64, 330, 400, 1400, 2000 };
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer has the SIGBUS handler");
	for (size_t i = 0; i < sizeof(keep_kib) / sizeof(*keep_kib); i++) {
		print_message("    cut to %u KiB\n", keep_kib[i]);
		expect_exit(spawn(role_guarded_collector, NULL, keep_kib[i]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_without_a_collector_grows_to_capacity_then_counts),
		cmocka_unit_test(full_ring_stalls_once_then_drops_and_counts),
		cmocka_unit_test(dropping_ring_never_waits),
		cmocka_unit_test(slow_collector_slows_its_writers_and_loses_nothing),
		cmocka_unit_test(small_tmpfs_filled_by_writers_kills_nobody),
		cmocka_unit_test(small_tmpfs_filled_by_threads_and_a_forked_child_kills_nobody),
		cmocka_unit_test(room_on_a_small_tmpfs_is_used_again),
		cmocka_unit_test(disk_filled_by_another_process_kills_nobody),
		cmocka_unit_test(growth_that_fails_at_the_nth_step_is_counted),
		cmocka_unit_test(open_on_a_full_disk_says_so),
		cmocka_unit_test(creator_under_a_file_size_limit_is_not_killed),
		cmocka_unit_test(collector_survives_a_truncated_file),
	};

	return RUN_TESTS(tests, make_tmpfs, drop_tmpfs);
}
