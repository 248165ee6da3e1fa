/* SPDX-License-Identifier: MIT */
/* ring_writer_test.c - what one writer may expect of reserve, commit, abandon and attach. */
#include "tests/ring_support.h"

/* --- A sealed channel, walked into a list ----------------------------------------------------- */

#define LIST_MAX 4096
struct list {
	struct spr_record rec[LIST_MAX];
	unsigned char    *bytes[LIST_MAX];
	uint32_t          n;
};

static void list_take(struct list *l, spr_batch *b)
{
	struct spr_record rec;

	while (spr_batch_next(b, &rec) > 0 && l->n < LIST_MAX) {
		l->rec[l->n] = rec;
		l->bytes[l->n] = malloc(rec.bytes + 1u);
		memcpy(l->bytes[l->n], rec.data, rec.bytes);
		l->n++;
	}
}

static int list_put(void *arg, spr_batch *b)
{
	list_take(arg, b);
	return 0;
}

static void list_release(struct list *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		free(l->bytes[i]);
	free(l);
}

static struct list *walk(struct rig *r)
{
	struct list *l = calloc(1, sizeof(*l));
	spr_batch *b = NULL;
	int more;

	assert_int_equal(spr_channel_seal(r->ch), 0);
	r->is_sealed = true;
	while ((more = spr_channel_walk(r->ch, &b)) > 0)
		list_take(l, b);
	assert_int_equal(more, 0);
	return l;
}

static struct spr_stats stats_of(struct rig *r)
{
	struct spr_stats s = SPR_STATS_INIT;

	assert_int_equal(spr_channel_stats(r->ch, &s), 0);
	return s;
}

static spr_producer *attach(struct rig *r)
{
	spr_producer *p = NULL;
	const int err = spr_attach(&p, r->address);

	if (err)
		print_message("    attach: %s\n", spr_error_text());
	assert_int_equal(err, 0);
	assert_non_null(p);
	return p;
}

/* --- Records ------------------------------------------------------------------------------------
 */

static void committed_record_arrives_as_written(void **state)
{
	struct rig r;
	struct spr_slot slot;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	assert_non_null(w);
	assert_int_equal(spr_reserve(w, 0, 5, &slot), 0);
	assert_int_equal(slot.bytes, 5);
	memcpy(slot.data, "hello", 5);
	assert_int_equal(spr_commit(w, &slot), 0);
	assert_int_equal(spr_write(w, 0, "world!", 6), 0);

	struct spr_stats s = stats_of(&r);
	assert_int_equal(s.written, 2);
	assert_int_equal(s.pending, 2);
	assert_int_equal(s.delivered, 0);

	struct list *l = walk(&r);
	assert_int_equal(l->n, 2);
	assert_memory_equal(l->bytes[0], "hello", 5);
	assert_memory_equal(l->bytes[1], "world!", 6);
	assert_int_equal(l->rec[0].bytes, 5);
	assert_int_equal(l->rec[0].seq, 0);
	assert_int_equal(l->rec[1].seq, 1);
	assert_int_equal(l->rec[0].writer, l->rec[1].writer);
	s = stats_of(&r);
	assert_int_equal(s.delivered, 2);
	assert_int_equal(s.pending, 0);
	assert_int_equal(s.lost, 0);
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

static void record_names_its_process_and_thread(void **state)
{
	struct rig r;
	struct list *l = calloc(1, sizeof(*l));
	struct spr_sink sink = SPR_SINK_INIT;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	assert_int_equal(spr_collector_open(&r.c, 0), 0);
	sink.arg = l;
	sink.put = list_put;
	assert_int_equal(spr_collector_add(r.c, r.ch, &sink), 0);
	spr_producer *p = attach(&r);
	assert_int_equal(spr_write(spr_writer_here(p), 0, "x", 1), 0);
	rig_settle(&r, 10);
	assert_int_equal(l->n, 1);
	assert_true(l->rec[0].flags & SPR_HAS_ID);
	assert_int_equal(l->rec[0].pid, getpid());
	assert_int_equal(l->rec[0].tid, (pid_t)syscall(SYS_gettid));
	list_release(l);
	spr_detach(p);
	rig_finish(&r);
	rig_close(&r);
}

/* A byte of a record of this size. */
static unsigned char pattern(uint32_t bytes, uint32_t i)
{
	return (unsigned char)(bytes * 31 + i * 7 + (i >> 8));
}

static void write_size(spr_writer *w, uint32_t bytes)
{
	struct spr_slot slot;

	assert_int_equal(spr_reserve(w, 0, bytes, &slot), 0);
	for (uint32_t i = 0; i < bytes; i++)
		((unsigned char *)slot.data)[i] = pattern(bytes, i);
	assert_int_equal(spr_commit(w, &slot), 0);
}

static void every_size_up_to_the_most_arrives(void **state)
{
	static const uint32_t edges[] = { 504, 505, 511, 512, 1016, 1024, 2024, 2032, 2033, 2040,
		                          2041, 2048, 4080, 4096, 8168, 8176, 8177, 8184, 16384,
		                          32752, 32753, 32768, 65519, 65520, 65535, 65536 };
	struct rig r;
	uint32_t n = 0, sizes[1024];
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	spr_producer *p = attach(&r);
	for (uint32_t bytes = 0; bytes <= 300; bytes++)
		sizes[n++] = bytes;
	for (uint32_t i = 0; i < sizeof(edges) / sizeof(*edges); i++)
		sizes[n++] = edges[i];
	for (uint32_t bytes = 300; bytes-- > 0;)
		sizes[n++] = bytes;
	for (uint32_t i = 0; i < n; i++)
		write_size(spr_writer_here(p), sizes[i]);

	struct list *l = walk(&r);
	assert_int_equal(l->n, n);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(l->rec[i].bytes, sizes[i]);
		assert_int_equal(l->rec[i].seq, i);
		for (uint32_t k = 0; k < sizes[i]; k++)
			assert_int_equal(l->bytes[i][k], pattern(sizes[i], k));
	}
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

static void too_large_a_record_is_refused_and_harms_nothing(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	struct spr_slot slot;
	(void)state;

	opt.capacity_bytes = 16u << 20;
	opt.record_bytes_max = 1000;
	rig_open(&r, RIG_EMBEDDED, &opt, 1);
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	assert_int_equal(spr_write(w, 0, "a", 1), 0);
	assert_int_equal(spr_reserve(w, 0, 1001, &slot), -EMSGSIZE);
	assert_int_equal(spr_reserve(w, 0, 65537, &slot), -EMSGSIZE);
	assert_int_equal(spr_reserve(w, 0, UINT32_MAX, &slot), -EMSGSIZE);
	assert_int_equal(spr_reserve(w, 0, UINT32_MAX - 8, &slot), -EMSGSIZE);
	write_size(w, 1000);
	struct list *l = walk(&r);
	assert_int_equal(l->n, 2);
	assert_int_equal(l->rec[1].bytes, 1000);
	assert_int_equal(l->rec[1].seq, 1);
	assert_int_equal(stats_of(&r).lost, 0);
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

static void options_out_of_range_are_refused(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct {
		struct spr_channel_options known;
		uint64_t newer;
	} later = { SPR_CHANNEL_OPTIONS_INIT, 1 };
	spr_channel *ch = NULL;
	(void)state;

	opt.flags = 1u << 31;
	assert_int_equal(spr_channel_open(&ch, "ring:", &opt), -EINVAL);
	opt.flags = 0;
	opt.record_bytes_max = 65537;
	assert_int_equal(spr_channel_open(&ch, "ring:", &opt), -EINVAL);
	later.known.size = sizeof(later);
	assert_int_equal(spr_channel_open(&ch, "ring:", &later.known), -E2BIG);
	assert_true(spr_channel_open(&ch, "rung:", NULL) < 0);
	assert_null(ch);
}

static void abandoned_record_never_was(void **state)
{
	struct rig r;
	struct spr_slot slot;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(spr_reserve(w, 0, i * 60, &slot), 0);
		memset(slot.data, 0xee, i * 60);
		spr_abandon(w, &slot);
		if (i % 10 == 0)
			write_size(w, i);
	}
	struct list *l = walk(&r);
	assert_int_equal(l->n, 100);
	for (uint32_t i = 0; i < l->n; i++) {
		assert_int_equal(l->rec[i].bytes, i * 10);
		assert_int_equal(l->rec[i].seq, i);
	}
	assert_int_equal(stats_of(&r).written, 100);
	assert_int_equal(stats_of(&r).lost, 0);
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

static void stamps_grow_and_may_be_overwritten(void **state)
{
	const uint64_t slack_ns = 5000000; /* between two scales of the same clock */
	struct rig r;
	struct spr_slot slot;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	const uint64_t before_ns = test_now_ns();
	for (int i = 0; i < 100; i++)
		assert_int_equal(spr_write(w, 0, &i, sizeof(i)), 0);
	const uint64_t after_ns = test_now_ns();
	assert_int_equal(spr_reserve(w, 0, 0, &slot), 0);
	assert_true(slot.time_ns + slack_ns >= after_ns);
	slot.time_ns = 12345;
	assert_int_equal(spr_commit(w, &slot), 0);

	struct list *l = walk(&r);
	assert_int_equal(l->n, 101);
	for (uint32_t i = 0; i < 100; i++) {
		assert_true(l->rec[i].time_ns + slack_ns >= before_ns);
		assert_true(l->rec[i].time_ns <= after_ns + slack_ns);
		assert_true(i == 0 || l->rec[i].time_ns >= l->rec[i - 1].time_ns);
	}
	assert_int_equal(l->rec[100].time_ns, 12345);
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

static void unstamped_records_carry_no_time(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	struct spr_slot slot;
	(void)state;

	opt.flags = SPR_UNSTAMPED;
	opt.capacity_bytes = 16u << 20;
	rig_open(&r, RIG_EMBEDDED, &opt, 1);
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	assert_int_equal(spr_reserve(w, 0, 3, &slot), 0);
	assert_int_equal(slot.time_ns, 0);
	memcpy(slot.data, "abc", 3);
	assert_int_equal(spr_commit(w, &slot), 0);
	for (uint32_t bytes = 0; bytes < 200; bytes++)
		write_size(w, bytes);
	struct list *l = walk(&r);
	assert_int_equal(l->n, 201);
	for (uint32_t i = 0; i < l->n; i++)
		assert_int_equal(l->rec[i].time_ns, 0);
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

static void kinds_are_declared_and_travel(void **state)
{
	static const struct spr_field fields[] = { { .name = "n", .type = SPR_U32 } };
	static const struct spr_kind kinds[] = { { "first", fields, 1, 0 },
		                                 { "second", fields, 1, 0 } };
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r;
	uint32_t n = 0;
	(void)state;

	opt.kinds = kinds;
	opt.n_kinds = 2;
	opt.capacity_bytes = 16u << 20;
	rig_open(&r, RIG_EMBEDDED, &opt, 1);
	const struct spr_kind *back = spr_channel_kinds(r.ch, &n);
	assert_int_equal(n, 2);
	assert_string_equal(back[1].name, "second");
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	assert_int_equal(spr_kind_find(p, "first"), 1);
	assert_int_equal(spr_kind_find(p, "second"), 2);
	assert_int_equal(spr_kind_find(p, "third"), -ENOENT);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(spr_write(w, i, &i, sizeof(i)), 0);
	spr_producer_blind(p, 0, "a reason", "some text");
	struct list *l = walk(&r);
	assert_int_equal(l->n, 4);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(l->rec[i].kind, i);
	assert_int_equal(l->rec[3].kind, SPR_KIND_BLIND);
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

static void record_about_another_task_names_that_task(void **state)
{
	struct rig r;
	struct spr_slot slot;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	assert_int_equal(spr_write(w, 0, "mine", 4), 0);
	assert_int_equal(spr_reserve_for(w, 4242, 4243, 0, 6, &slot), 0);
	assert_int_equal(slot.bytes, 6);
	memcpy(slot.data, "theirs", 6);
	assert_int_equal(spr_commit(w, &slot), 0);
	assert_int_equal(spr_write(w, 0, "again", 5), 0);
	struct list *l = walk(&r);
	assert_int_equal(l->n, 3);
	assert_true(l->rec[1].flags & SPR_HAS_ID);
	assert_int_equal(l->rec[1].pid, 4242);
	assert_int_equal(l->rec[1].tid, 4243);
	assert_int_equal(l->rec[1].bytes, 6);
	assert_memory_equal(l->bytes[1], "theirs", 6);
	assert_int_not_equal(l->rec[2].pid, 4242);
	assert_int_equal(l->rec[2].seq, 2);
	list_release(l);
	spr_detach(p);
	rig_close(&r);
}

/* --- Nesting
 * -------------------------------------------------------------------------------------- */

/* The innermost first: the slots of a nest stand below one another on the stack. */
static void __attribute__((noinline)) nest(struct rig *r, spr_writer *w, uint32_t depth,
                                           const uint32_t *order)
{
	static struct spr_slot *open[4];
	struct spr_slot slot;

	if (depth == 4) {
		if (r->c)
			rig_settle(r, 1);
		assert_int_equal(open_record(w, r->tally, 0, 32, &slot), -EAGAIN);
		for (uint32_t i = 0; i < 4; i++) {
			const uint64_t before = r->check.n_records;

			assert_int_equal(end_record(w, r->tally, 0, open[order[i]]), 0);
			if (r->c) {
				rig_settle(r, 1);
				assert_int_equal(r->check.n_records, before + 1);
			}
		}
		return;
	}
	assert_int_equal(open_record(w, r->tally, 0, 32 + depth * 100, &slot), 0);
	open[depth] = &slot;
	nest(r, w, depth + 1, order);
	/* Not a tail call: the slot must stay where it is. */
	spr_compiler_barrier();
}

static void four_records_nest_and_the_fifth_is_counted(void **state)
{
	static const uint32_t orders[][4] = { { 3, 2, 1, 0 }, { 0, 1, 2, 3 }, { 2, 0, 3, 1 } };
	(void)state;

	for (uint32_t embedded = 0; embedded < 2; embedded++) {
		struct rig r;

		rig_open(&r, embedded ? RIG_EMBEDDED : 0, NULL, 1);
		spr_producer *p = attach(&r);
		spr_writer *w = spr_writer_here(p);
		for (uint32_t round = 0; round < 3; round++) {
			nest(&r, w, 0, orders[round]);
			for (int i = 0; i < 100; i++)
				assert_int_equal(put_record(w, r.tally, 0, 40), 0);
		}
		spr_detach(p);
		rig_finish(&r);
		rig_expect_exact(&r);
		assert_int_equal(r.stats.lost, 3);
		assert_int_equal(r.stats.delivered, 312);
		rig_close(&r);
	}
}

static void __attribute__((noinline)) leave_open(struct rig *r, spr_writer *w)
{
	struct spr_slot slot;

	assert_int_equal(open_record(w, r->tally, 0, 64, &slot), 0);
	spr_compiler_barrier();
}

static void record_left_open_by_a_returned_function_is_taken_back(void **state)
{
	struct rig r;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	spr_producer *p = attach(&r);
	spr_writer *w = spr_writer_here(p);
	for (int i = 0; i < 1000; i++) {
		leave_open(&r, w);
		assert_int_equal(put_record(w, r.tally, 0, 64), 0);
	}
	spr_detach(p);
	rig_finish(&r);
	assert_int_equal(r.stats.delivered, 1000);
	assert_int_equal(r.stats.lost, 0);
	assert_int_equal(r.check.n_writers, 1);
	rig_expect_exact(&r);
	rig_close(&r);
}

/* --- Attach, detach, several channels -----------------------------------------------------------
 */

static void eight_channels_at_once_stay_apart(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct rig r[9];
	spr_producer *p[9] = { NULL };
	(void)state;

	opt.capacity_bytes = 4u << 20;
	for (int i = 0; i < 9; i++)
		rig_open(&r[i], RIG_EMBEDDED, &opt, 1);
	for (int i = 0; i < 8; i++)
		p[i] = attach(&r[i]);
	assert_true(spr_attach(&p[8], r[8].address) < 0);
	for (uint32_t k = 0; k < 1000; k++) {
		const uint32_t i = k * 5 % 8;
		assert_int_equal(put_record(spr_writer_here(p[i]), r[i].tally, 0, 24 + k), 0);
	}
	spr_detach(p[3]);
	p[3] = NULL;
	p[8] = attach(&r[8]);
	assert_int_equal(put_record(spr_writer_here(p[8]), r[8].tally, 0, 24), 0);
	for (int i = 0; i < 9; i++) {
		if (p[i])
			spr_detach(p[i]);
		rig_finish(&r[i]);
		rig_expect_exact(&r[i]);
		assert_int_equal(r[i].stats.delivered, i < 8 ? 125 : 1);
		rig_close(&r[i]);
	}
}

static void expect_attach(const char *address, int expected)
{
	spr_producer *p = NULL;
	const int err = spr_attach(&p, address);

	if (err != expected)
		fail_msg("attach %s: %d (%s), expected %d", address, err, spr_error_text(),
		         expected);
	assert_true(spr_error_text()[0] != 0);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

static void attach_to_what_is_no_channel_says_so(void **state)
{
	struct rig r;
	char path[256], address[300], noise[8192];
	uint64_t seed = 7;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	snprintf(path, sizeof(path), "%s/garbage", r.folder);
	snprintf(address, sizeof(address), "ring:%s", path);
	expect_attach(address, -ENOENT);
	expect_attach("ring:/nowhere/at/all", -ENOENT);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (char)test_random(&seed);
	write_file(path, noise, 0);
	expect_attach(address, -EPROTO);
	write_file(path, noise, 100);
	expect_attach(address, -EPROTO);
	write_file(path, noise, sizeof(noise));
	expect_attach(address, -EPROTO);
	memset(noise, 0, sizeof(noise));
	write_file(path, noise, sizeof(noise));
	expect_attach(address, -EPROTO);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	spr_producer *p = NULL;
	assert_true(spr_attach(&p, address) < 0);
	rmdir(path);
	assert_true(spr_attach(&p, "") < 0);
	assert_true(spr_attach(&p, "ring") < 0);
	assert_true(spr_attach(&p, "rong:/x") < 0);
	assert_true(spr_attach(&p, "ring:") < 0);
	assert_null(p);
	rig_close(&r);
}

/* Any change in the first line of the header is another layout, or nothing of ours. */
static void attach_to_another_layout_is_refused(void **state)
{
	struct rig r;
	unsigned char head[16];
	spr_producer *p = NULL;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	const int fd = open(rig_path(&r), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, head, sizeof(head), 0), sizeof(head));
	for (unsigned i = 0; i < 12; i++) { /* the magic, and the version behind it */
		const unsigned char changed = (unsigned char)(head[i] ^ (1u << (i % 8)));

		assert_int_equal(pwrite(fd, &changed, 1, i), 1);
		assert_int_equal(spr_attach(&p, r.address), -EPROTO);
		assert_int_equal(pwrite(fd, &head[i], 1, i), 1);
	}
	close(fd);
	p = attach(&r);
	assert_int_equal(put_record(spr_writer_here(p), r.tally, 0, 24), 0);
	spr_detach(p);
	rig_finish(&r);
	rig_expect_exact(&r);
	rig_close(&r);
}

static void attach_twice_or_too_late_is_refused(void **state)
{
	struct rig r;
	char address[256];
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	snprintf(address, sizeof(address), "%s", r.address);
	spr_producer *p = attach(&r);
	expect_attach(address, -EALREADY);
	assert_int_equal(put_record(spr_writer_here(p), r.tally, 0, 100), 0);
	rig_finish(&r);
	assert_int_equal(put_record(spr_writer_here(p), r.tally, 0, 100), -EPIPE);
	spr_detach(p);
	expect_attach(address, -EPIPE);
	r.stats = stats_of(&r);
	assert_int_equal(r.stats.refused, 1);
	rig_expect_exact(&r);
	rig_close(&r);
	expect_attach(address, -ENOENT);
}

static void detached_producer_leaves_its_records_and_may_come_back(void **state)
{
	struct rig r;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	for (int i = 0; i < 50; i++) {
		spr_producer *p = attach(&r);

		for (int k = 0; k < 20; k++)
			assert_int_equal(put_record(spr_writer_here(p), r.tally, 0, 24), 0);
		spr_detach(p);
	}
	rig_finish(&r);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.delivered, 1000);
	assert_int_equal(r.check.n_writers, 50);
	rig_close(&r);
}

static void ended_writer_gives_its_space_back(void **state)
{
	struct rig r;
	(void)state;

	rig_open(&r, 0, NULL, 1);
	spr_producer *p = attach(&r);
	for (int i = 0; i < 100; i++) {
		for (int k = 0; k < 10; k++)
			assert_int_equal(put_record(spr_writer_here(p), r.tally, 0, 24), 0);
		spr_writer_end(p);
		rig_settle(&r, 1);
	}
	assert_int_equal(rig_segments_owned(&r), 0);
	assert_int_equal(r.check.n_gone, 100);
	spr_detach(p);
	rig_finish(&r);
	rig_expect_exact(&r);
	rig_close(&r);
}

static void null_is_a_no_op_to_give_back(void **state)
{
	(void)state;

	spr_detach(NULL);
	assert_int_equal(spr_channel_close(NULL), 0);
	assert_int_equal(spr_collector_close(NULL), 0);
}

/* Any number of walks, each its own cursor, each the same. */
static void walk_can_be_repeated(void **state)
{
	struct rig r;
	(void)state;

	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	spr_producer *p = attach(&r);
	spr_batch *b = NULL;
	assert_int_equal(spr_channel_walk(r.ch, &b), -EBUSY);
	for (int i = 0; i < 5000; i++)
		assert_int_equal(put_record(spr_writer_here(p), r.tally, 0, 24 + (uint32_t)i % 90),
		                 0);
	spr_detach(p);
	for (int i = 0; i < 3; i++) {
		check_close(&r.check);
		check_open(&r.check, r.tally);
		rig_finish(&r);
		rig_expect_exact(&r);
	}
	assert_int_equal(r.stats.delivered, 5000);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(committed_record_arrives_as_written),
		cmocka_unit_test(record_names_its_process_and_thread),
		cmocka_unit_test(every_size_up_to_the_most_arrives),
		cmocka_unit_test(too_large_a_record_is_refused_and_harms_nothing),
		cmocka_unit_test(options_out_of_range_are_refused),
		cmocka_unit_test(abandoned_record_never_was),
		cmocka_unit_test(stamps_grow_and_may_be_overwritten),
		cmocka_unit_test(unstamped_records_carry_no_time),
		cmocka_unit_test(kinds_are_declared_and_travel),
		cmocka_unit_test(record_about_another_task_names_that_task),
		cmocka_unit_test(four_records_nest_and_the_fifth_is_counted),
		cmocka_unit_test(record_left_open_by_a_returned_function_is_taken_back),
		cmocka_unit_test(eight_channels_at_once_stay_apart),
		cmocka_unit_test(attach_to_what_is_no_channel_says_so),
		cmocka_unit_test(attach_to_another_layout_is_refused),
		cmocka_unit_test(attach_twice_or_too_late_is_refused),
		cmocka_unit_test(detached_producer_leaves_its_records_and_may_come_back),
		cmocka_unit_test(ended_writer_gives_its_space_back),
		cmocka_unit_test(null_is_a_no_op_to_give_back),
		cmocka_unit_test(walk_can_be_repeated),
	};

	return RUN_TESTS(tests, NULL, NULL);
}
