/* SPDX-License-Identifier: MIT */
/*
 * ring_recover_test.c - the collector dies. Its writers neither hang nor crash, and what it left is
 * recovered up to each writer's last commit.
 */
#include "tests/ring_support.h"

#define N_WRITERS 3u

/* In shared memory: what the collector's process tells us before it is killed. */
struct told {
	char             address[256];
	_Atomic uint32_t is_open;
	_Atomic uint64_t delivered[N_WRITERS + 1]; /* per source: highest counter put + 1 */
};

static struct told *told;
static char         folder[64];

static int told_put(void *arg, spr_batch *b)
{
	struct check *c = arg;

	check_batch(c, b);
	for (uint32_t i = 0; i < N_WRITERS; i++)
		spr_store_relaxed(&told->delivered[i], c->sources[i].highest);
	if (c->n_faults) {
		dprintf(2, "    collector: %s\n", c->fault);
		_exit(94);
	}
	return 0;
}

/* Collects until it is killed. A process of its own: no writer inherits its lock. */
static int role_collector(struct rig *r, uint32_t slow_us)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	char address[128];
	struct spr_sink sink = SPR_SINK_INIT;
	spr_channel *ch = NULL;
	spr_collector *c = NULL;
	struct check check;

	opt.capacity_bytes = 32u << 20;
	opt.stall_ms = 100;
	snprintf(address, sizeof(address), "ring:%s", folder);
	check_open(&check, r->tally);
	check_sink(&check, &sink);
	sink.put = told_put;
	CHILD_CHECK(!spr_channel_open(&ch, address, &opt));
	CHILD_CHECK(!spr_collector_open(&c, 0));
	CHILD_CHECK(!spr_collector_add(c, ch, &sink));
	snprintf(told->address, sizeof(told->address), "%s", spr_channel_address(ch));
	spr_store_release(&told->is_open, 1u); /* [OPEN] */
	for (;;) {
		CHILD_CHECK(spr_collector_step(c, 100) >= 0);
		if (slow_us)
			sleep_us(slow_us);
	}
}

static int role_writer(struct rig *r, uint32_t source)
{
	spr_producer *p = attach_or_exit(told->address);
	struct tally_line *line = &r->tally->line[source];
	uint64_t random = source;

	while (!spr_load_relaxed(&line->note[0])) {
		put_record(spr_writer_here(p), r->tally, source,
		           24 + (uint32_t)(test_random(&random) % 400));
		if (source == 0)
			sleep_us(100); /* a slow one beside the floods */
	}
	return 0;
}

static void recover_into(struct rig *r)
{
	assert_int_equal(spr_channel_recover(&r->ch, folder), 0);
	snprintf(r->folder, sizeof(r->folder), "%s", folder);
	check_open(&r->check, r->tally);
	r->check.is_resumed = true;
	r->is_sealed = true;
}

/* Every source: the dead collector's and ours together are everything, without a hole. */
static void expect_all(struct rig *r, bool killed)
{
	const struct spr_stats *s = &r->stats;

	if (r->check.n_faults)
		print_message("    %s\n", r->check.fault);
	assert_int_equal(r->check.n_faults, 0);
	for (uint32_t i = 0; i < N_WRITERS; i++) {
		const struct seen_source *src = &r->check.sources[i];
		const uint64_t before = spr_load_relaxed(&told->delivered[i]);
		const uint64_t committed = spr_load_relaxed(&r->tally->line[i].committed);
		const uint64_t taken = spr_load_relaxed(&r->tally->line[i].taken);
		const uint64_t first = src->highest - src->delivered;
		const uint64_t last = src->delivered ? src->highest : before;

		if (first <= before && last >= committed && last <= (killed ? taken : committed))
			continue;
		fail_msg("source %u: put before %llu, recovered %llu to %llu, committed %llu", i,
		         (unsigned long long)before, (unsigned long long)first,
		         (unsigned long long)src->highest, (unsigned long long)committed);
	}
	assert_int_equal(s->pending, 0);
	assert_int_equal(s->written, s->delivered + s->lost);
	assert_true(s->delivered >= r->check.n_records);
}

/* 0: the writers have gone before it is recovered; 1: they still write; 2: they are killed, too */
static void recover_once(uint32_t how, uint32_t slow_us, uint64_t run_us)
{
	struct rig r;
	pid_t pids[N_WRITERS];

	memset(&r, 0, sizeof(r));
	r.tally = tally_open(N_WRITERS);
	told = shared_memory(sizeof(*told));
	make_folder(folder, sizeof(folder));
	const pid_t collector = spawn(role_collector, &r, slow_us);
	while (!spr_load_acquire(&told->is_open)) /* [OPEN] */
		sleep_us(100);
	snprintf(r.address, sizeof(r.address), "%s", told->address);
	for (uint32_t i = 0; i < N_WRITERS; i++)
		pids[i] = spawn(role_writer, &r, i);
	/* One that comes when the collector is dead is turned away. */
	for (uint32_t i = 0; i < N_WRITERS; i++) {
		while (!spr_load_relaxed(&r.tally->line[i].committed))
			sleep_us(100);
	}
	sleep_us(run_us);
	assert_int_equal(spr_channel_recover(&r.ch, folder), -EBUSY);
	kill(collector, SIGKILL);
	wait_for(collector);
	sleep_us(run_us);
	for (uint32_t i = 0; i < N_WRITERS && how != 1; i++) {
		spr_store_relaxed(&r.tally->line[i].note[0], 1u);
		if (how == 2)
			kill(pids[i], SIGKILL);
		const int status = wait_for(pids[i]);
		assert_true(status == 0 || how == 2);
	}
	recover_into(&r);
	for (uint32_t i = 0; i < N_WRITERS && how == 1; i++) {
		spr_store_relaxed(&r.tally->line[i].note[0], 1u);
		expect_exit(pids[i], 0);
	}
	rig_finish(&r);
	expect_all(&r, how == 2);
	if (how == 0) {
		const struct tally_line sum = tally_sum(r.tally);

		assert_int_equal(r.stats.lost, spr_load_relaxed(&sum.dropped));
	}
	rig_close(&r);
	munmap(told, sizeof(*told));
}

static void killed_collectors_ring_is_recovered_to_the_last_commit(void **state)
{
	uint64_t random = test_seed();
	(void)state;

	for (uint32_t round = 0; round < test_count(15, 200); round++)
		recover_once(round % 3, 0, 2000 + test_random(&random) % 40000);
}

static void backlog_of_a_killed_slow_collector_is_recovered(void **state)
{
	uint64_t random = test_seed();
	(void)state;

	for (uint32_t round = 0; round < test_count(6, 60); round++)
		recover_once(round % 3, 20000, 30000 + test_random(&random) % 60000);
}

/* Its writers had filled the ring and waited for it when it died. */
static void writers_of_a_dead_collector_do_not_wait_for_it(void **state)
{
	struct rig r;
	pid_t pids[N_WRITERS];
	(void)state;

	memset(&r, 0, sizeof(r));
	r.tally = tally_open(N_WRITERS);
	told = shared_memory(sizeof(*told));
	make_folder(folder, sizeof(folder));
	const pid_t collector = spawn(role_collector, &r, 1000000);
	while (!spr_load_acquire(&told->is_open)) /* [OPEN] */
		sleep_us(100);
	for (uint32_t i = 0; i < N_WRITERS; i++)
		pids[i] = spawn(role_writer, &r, i);
	/* Until the floods have dropped something: the ring is full. */
	while (!spr_load_relaxed(&r.tally->line[1].dropped) ||
	       !spr_load_relaxed(&r.tally->line[2].dropped))
		sleep_us(1000);
	kill(collector, SIGKILL);
	wait_for(collector);
	/* They go on, at full speed, counting. */
	const uint64_t dropped = spr_load_relaxed(&r.tally->line[1].dropped);
	while (spr_load_relaxed(&r.tally->line[1].dropped) < dropped + 10000)
		sleep_us(1000);
	for (uint32_t i = 0; i < N_WRITERS; i++) {
		spr_store_relaxed(&r.tally->line[i].note[0], 1u);
		expect_exit(pids[i], 0);
	}
	recover_into(&r);
	rig_finish(&r);
	expect_all(&r, false);
	rig_close(&r);
	munmap(told, sizeof(*told));
}

static void nothing_to_recover_says_so(void **state)
{
	spr_channel *ch = NULL;
	char empty[64], path[128];
	(void)state;

	assert_int_equal(spr_channel_recover(&ch, "/nowhere/at/all"), -ENOENT);
	make_folder(empty, sizeof(empty));
	assert_int_equal(spr_channel_recover(&ch, empty), -ENOENT);
	snprintf(path, sizeof(path), "%s/junk.ring", empty);
	const int fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, "not a ring at all", 17), 17);
	close(fd);
	assert_int_equal(spr_channel_recover(&ch, empty), -EPROTO);
	assert_null(ch);
	unlink(path);
	rmdir(empty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_collectors_ring_is_recovered_to_the_last_commit),
		cmocka_unit_test(backlog_of_a_killed_slow_collector_is_recovered),
		cmocka_unit_test(writers_of_a_dead_collector_do_not_wait_for_it),
		cmocka_unit_test(nothing_to_recover_says_so),
	};

	return RUN_TESTS(tests, NULL, NULL);
}
