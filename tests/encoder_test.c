/* SPDX-License-Identifier: MIT */
/*
 * encoder_test.c - the pipeline: order, borders, back pressure, errors, and output that does not
 * depend on how many workers there are or who is slow. Pairs:
 *   RELEASED  a batch is given back - the test looks at it
 *   DONE      done() was called - the test takes its records back
 *   REACHED   a worker stands in a batch - the test goes on
 *   GO        the test lets it go on - the worker does
 */
#include "tests/trace_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "encoder/pipeline.h"
#include "tests/fake_sys.h"
#include "transport/transport.h"

/* --- A batch that no transport made ----------------------------------------------------------- */

struct fake_batch {
	struct spr_batch    batch; /* first */
	struct spr_record  *recs;
	size_t              n, at;
	_Atomic int         n_released;
	unsigned            delay_us; /* before the first record */
	struct fake_batch  *next;
};

static int fake_next(spr_batch *b, struct spr_record *rec)
{
	struct fake_batch *f = (struct fake_batch *)b;

	if (!f->at && f->delay_us)
		usleep(f->delay_us);
	if (f->at == f->n)
		return 0;
	*rec = f->recs[f->at++];
	return 1;
}

static void fake_rewind(spr_batch *b)
{
	((struct fake_batch *)b)->at = 0;
}

static void fake_release(spr_batch *b)
{
	struct fake_batch *f = (struct fake_batch *)b;

	/* What is released may be overwritten at once. */
	memset(f->recs, 0xa5, f->n * sizeof(*f->recs));
	spr_add_acq_rel(&f->n_released, 1); /* [RELEASED] */
}

/* A copy of recs[0..n) as a batch of ch. */
static struct fake_batch *fake_make(spr_channel *ch, const struct spr_record *recs, size_t n)
{
	struct fake_batch *f = calloc(1, sizeof(*f));

	check(f);
	f->batch = (struct spr_batch){ .next = fake_next,
		                       .rewind = fake_rewind,
		                       .release = fake_release,
		                       .channel = ch,
		                       .writer = n ? recs[0].writer : 0,
		                       .n_records = n };
	f->recs = malloc((n + 1) * sizeof(*recs));
	check(f->recs);
	memcpy(f->recs, recs, n * sizeof(*recs));
	f->n = n;
	return f;
}

static void fake_free(struct fake_batch *f)
{
	while (f) {
		struct fake_batch *next = f->next;

		free(f->recs);
		free(f);
		f = next;
	}
}

/* --- Traces in memory ------------------------------------------------------------------------- */

static spr_encoder *encoder_make(struct test_bytes *out, struct spr_encoder_options o)
{
	spr_encoder *e = NULL;

	o.write = test_bytes_write;
	o.arg = out;
	assert_int_equal(spr_encoder_open(&e, &o), 0);
	return e;
}

static struct spr_record plain(uint64_t writer, uint64_t seq, uint64_t time_ns)
{
	return (struct spr_record){
		.data = "0123456789", .bytes = 8, .time_ns = time_ns, .seq = seq, .writer = writer
	};
}

static void read_back(const struct test_bytes *b, struct test_records *out,
                      struct spr_verdict *verdict)
{
	const int fd = test_bytes_fd(b->bytes, b->n);
	struct spr_record rec;
	spr_trace *t;
	int got;

	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	while ((got = spr_trace_next(t, &rec)) > 0)
		test_records_add(out, &rec);
	assert_int_equal(got, 0);
	if (verdict) {
		*verdict = (struct spr_verdict)SPR_VERDICT_INIT;
		assert_int_equal(spr_trace_verdict(t, verdict), 0);
	}
	spr_trace_close(t);
	close(fd);
}

static size_t frames_of(const struct test_bytes *b, struct spr_frame *out, size_t most)
{
	const int fd = test_bytes_fd(b->bytes, b->n);
	spr_trace *t;
	size_t n = 0;

	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	while (n < most && !spr_trace_frame(t, n, &out[n]))
		n++;
	spr_trace_close(t);
	close(fd);
	return n;
}

/* All behind the header, which tells the time. */
static uint64_t data_hash(const struct test_bytes *b)
{
	uint64_t h = 1469598103934665603u;
	uint32_t n_header;

	memcpy(&n_header, b->bytes + 4, 4);
	for (size_t i = n_header + 8; i < b->n; i++)
		h = (h ^ b->bytes[i]) * 1099511628211u;
	return h;
}

/* --- Borders ---------------------------------------------------------------------------------- */

static void frames_end_at_their_number_of_records(void **state)
{
	static const size_t sizes[] = { 0, 1, 65535, 65536, 65537, 200000 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
		struct spr_record *recs = calloc(sizes[i] + 1, sizeof(*recs));
		struct test_bytes b = { 0 };
		struct spr_frame frames[8];
		struct spr_verdict v = SPR_VERDICT_INIT;
		struct test_records back = { 0 };
		size_t n, left = sizes[i];
		spr_encoder *e;

		check(recs);
		for (size_t k = 0; k < sizes[i]; k++)
			recs[k] = plain(1, k, 1000 + k);
		e = encoder_make(&b, o);
		assert_int_equal(spr_encoder_put(e, recs, sizes[i], NULL, NULL), 0);
		assert_int_equal(spr_encoder_close(e, NULL), 0);
		n = frames_of(&b, frames, 8);
		assert_int_equal(n, sizes[i] ? (sizes[i] + 65535) / 65536 : 1);
		for (size_t k = 0; k < n; k++) {
			assert_int_equal(frames[k].records, left < 65536 ? left : 65536);
			left -= frames[k].records;
		}
		read_back(&b, &back, &v);
		assert_int_equal(back.n, sizes[i]);
		assert_int_equal(v.delivered, sizes[i]);
		assert_int_equal(v.reasons, 0);
		test_records_release(&back);
		test_bytes_release(&b);
		free(recs);
	}
}

static void frames_end_at_their_number_of_bytes(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct spr_record recs[100];
	struct test_bytes b = { 0 };
	struct spr_frame frames[100];
	spr_encoder *e;

	(void)state;
	o.frame_bytes = 80;
	for (size_t k = 0; k < 100; k++)
		recs[k] = plain(1, k, k);
	e = encoder_make(&b, o);
	assert_int_equal(spr_encoder_put(e, recs, 100, NULL, NULL), 0);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	assert_int_equal(frames_of(&b, frames, 100), 10);
	for (size_t k = 0; k < 10; k++)
		assert_int_equal(frames[k].records, 10);
	test_bytes_release(&b);
}

static void records_of_64_kib_and_of_nothing_come_back(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	uint8_t *big = malloc(70000);
	struct test_bytes b = { 0 };
	struct test_records back = { 0 };
	struct spr_verdict v;
	spr_encoder *e;

	(void)state;
	check(big);
	for (size_t i = 0; i < 70000; i++)
		big[i] = (uint8_t)(i * i >> 3);
	e = encoder_make(&b, o);
	for (uint64_t k = 0; k < 300; k++) {
		struct spr_record rec = plain(1, k, k);

		rec.data = big;
		rec.bytes = k % 3 ? 65536 : 0;
		if (k == 100)
			rec.bytes = 65537; /* too long for a record: counted, not written */
		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, &v);
	assert_int_equal(back.n, 299);
	assert_int_equal(v.lost, 1);
	assert_int_equal(v.reasons, SPR_LOST);
	for (size_t k = 0; k < back.n; k++)
		assert_true(!back.recs[k].bytes || !memcmp(back.recs[k].data, big, 65536));
	test_records_release(&back);
	test_bytes_release(&b);
	free(big);
}

/* Whole and broken ones in turn: what was taken of a broken one must not stay behind. */
static void a_record_unlike_its_kind_is_counted(void **state)
{
	static const uint8_t good[] = { 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0 };
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_records back = { 0 };
	struct test_bytes b = { 0 };
	struct spr_verdict v;
	spr_encoder *e;
	uint64_t seq = 0;

	(void)state;
	o.kinds = &spr_kind_memory;
	o.n_kinds = 1;
	o.frame_records = 2; /* a broken one and a whole one */
	e = encoder_make(&b, o);
	for (uint32_t n = 0; n <= sizeof(good) + 1; n++) {
		uint8_t *bytes = calloc(1, sizeof(good) + 1);
		struct spr_record rec = { .data = bytes, .bytes = n, .kind = 1, .seq = n,
			                  .time_ns = 10 * n + 1, .writer = 100 + n };

		memcpy(bytes, good, sizeof(good));
		if (n == sizeof(good))
			bytes[9] = 2; /* neither absent nor present */
		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
		memcpy(bytes, good, sizeof(good));
		bytes[1] = (uint8_t)n;
		rec = (struct spr_record){ .data = bytes, .bytes = sizeof(good), .kind = 1,
			                   .seq = seq++, .time_ns = 10 * n + 2 };
		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
		rec.kind = 2; /* nobody declared it */
		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
		free(bytes);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, &v);
	assert_int_equal(back.n, sizeof(good) + 2);
	for (size_t i = 0; i < back.n; i++) {
		const uint8_t *data = back.recs[i].data;

		assert_int_equal(back.recs[i].bytes, sizeof(good));
		assert_int_equal(data[1], i);
		assert_int_equal(back.recs[i].seq, i);
		assert_memory_equal(data + 2, good + 2, sizeof(good) - 2);
	}
	assert_int_equal(v.delivered, back.n);
	assert_int_equal(v.lost, 2 * back.n);
	test_records_release(&back);
	test_bytes_release(&b);
}

/* --- Order ------------------------------------------------------------------------------------ */

static spr_channel *channel_fake(const struct spr_kind *kinds, uint32_t n)
{
	static struct spr_channel channels[4];
	static unsigned next;
	struct spr_channel *ch = &channels[next++ % 4];

	*ch = (struct spr_channel){ .opt = { .kinds = kinds, .n_kinds = n } };
	return ch;
}

static void writers_are_merged_by_time(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	spr_channel *ch = channel_fake(NULL, 0);
	struct fake_batch *batches[12];
	struct test_bytes b = { 0 };
	struct test_records back = { 0 };
	struct spr_sink sink = SPR_SINK_INIT;
	uint64_t random = test_seed(), times[4] = { 1, 1, 1, 1 }, seqs[4] = { 0 };
	spr_encoder *e;

	(void)state;
	o.frame_records = 900;
	o.workers = 3;
	e = encoder_make(&b, o);
	assert_int_equal(spr_encoder_sink(e, &sink), 0);
	for (uint64_t pass = 0; pass < 3; pass++) {
		for (uint64_t w = 0; w < 4; w++) {
			struct spr_record recs[300];

			for (size_t i = 0; i < 300; i++)
				recs[i] = plain(w, seqs[w]++,
				                times[w] += test_random(&random) % 20);
			batches[4 * pass + w] = fake_make(ch, recs, 300);
			assert_int_equal(sink.put(sink.arg, &batches[4 * pass + w]->batch), 1);
		}
		for (size_t w = 0; w < 4; w++)
			times[w] = times[w] > 3000 * (pass + 1) ? times[w] : 3000 * (pass + 1);
		assert_int_equal(sink.tick(sink.arg, pass == 2 ? UINT64_MAX : 3000 * (pass + 1)),
		                 0);
		for (size_t w = 0; w < 4; w++)
			assert_int_equal(batches[4 * pass + w]->n_released, 1);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	assert_int_equal(back.n, 3600);
	memset(seqs, 0, sizeof(seqs));
	for (size_t i = 0; i < back.n; i++) {
		assert_true(!i || back.recs[i].time_ns >= back.recs[i - 1].time_ns);
		assert_int_equal(back.recs[i].seq, seqs[back.recs[i].writer]++);
	}
	for (size_t i = 0; i < 12; i++)
		fake_free(batches[i]);
	test_records_release(&back);
	test_bytes_release(&b);
}

/* What a tick does not cover may still get company from before it: it waits. */
static void a_frame_holds_only_what_a_tick_covers(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_records back = { 0 };
	struct test_bytes b = { 0 };
	struct spr_record recs[400];
	spr_encoder *e;

	(void)state;
	o.frame_records = 1050; /* more than the fourth tick covers, less than is there */
	e = encoder_make(&b, o);
	for (uint64_t pass = 0; pass < 12; pass++) { /* each writer overlaps with the next three */
		for (uint64_t i = 0; i < 400; i++)
			recs[i] = plain(pass, i, 1 + 100 * pass + i);
		assert_int_equal(spr_encoder_put(e, recs, 400, NULL, NULL), 0);
		assert_int_equal(spr_encoder_tick(e, 1 + 100 * (pass + 1)), 0);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	assert_int_equal(back.n, 4800);
	for (size_t i = 1; i < back.n; i++)
		assert_true(back.recs[i].time_ns >= back.recs[i - 1].time_ns);
	test_records_release(&back);
	test_bytes_release(&b);
}

static void records_of_the_same_time_keep_the_order_of_put(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_records back = { 0 };
	struct test_bytes b = { 0 };
	struct spr_record recs[100];
	spr_encoder *e;

	(void)state;
	e = encoder_make(&b, o);
	for (uint64_t writer = 0; writer < 5; writer++) {
		for (uint64_t i = 0; i < 100; i++)
			recs[i] = plain(writer, i, 1000 + i / 2);
		assert_int_equal(spr_encoder_put(e, recs, 100, NULL, NULL), 0);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	for (size_t i = 0; i < 500; i++) {
		assert_int_equal(back.recs[i].writer, i % 10 / 2);
		assert_int_equal(back.recs[i].seq, i / 10 * 2 + i % 2);
	}
	test_records_release(&back);
	test_bytes_release(&b);
}

static void a_late_record_is_sorted_into_the_open_frame(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct spr_record recs[50], late = plain(2, 0, 105);
	struct test_bytes b = { 0 };
	struct test_records back = { 0 };
	struct spr_frame frames[8];
	spr_encoder *e;
	size_t at = 0;

	(void)state;
	o.frame_records = 1000;
	late.flags = SPR_LATE;
	e = encoder_make(&b, o);
	for (size_t k = 0; k < 50; k++)
		recs[k] = plain(1, k, 100 + 10 * k);
	assert_int_equal(spr_encoder_put(e, recs, 50, NULL, NULL), 0);
	assert_int_equal(spr_encoder_tick(e, 1000), 0);
	assert_int_equal(spr_encoder_put(e, &late, 1, NULL, NULL), 0);
	assert_int_equal(spr_encoder_tick(e, 2000), 0);
	assert_int_equal(spr_encoder_sync(e), 0);
	late.seq = 1; /* its frame is gone: it opens the next, whose span begins with it */
	late.time_ns = 106;
	assert_int_equal(spr_encoder_put(e, &late, 1, NULL, NULL), 0);
	recs[0] = plain(1, 50, 5000);
	assert_int_equal(spr_encoder_put(e, recs, 1, NULL, NULL), 0);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	assert_int_equal(back.n, 53);
	assert_int_equal(back.recs[1].writer, 2);
	assert_int_equal(back.recs[1].flags, SPR_LATE);
	assert_int_equal(back.recs[51].writer, 2);
	assert_int_equal(frames_of(&b, frames, 8), 2);
	assert_int_equal(frames[1].first_ns, 106);
	assert_int_equal(frames[1].last_ns, 5000);
	for (; at < 51; at++)
		assert_true(!at || back.recs[at].time_ns >= back.recs[at - 1].time_ns);
	test_records_release(&back);
	test_bytes_release(&b);
}

static void a_writers_own_order_is_kept_whatever_its_stamps_say(void **state)
{
	static const uint64_t stamps[] = { 50, 20, 60, 0, 10, 70 };
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct spr_record recs[12];
	struct test_bytes b = { 0 };
	struct test_records back = { 0 };
	spr_encoder *e;
	uint64_t seq = 0;

	(void)state;
	e = encoder_make(&b, o);
	for (size_t k = 0; k < 6; k++) {
		recs[2 * k] = plain(1, k, stamps[k]);
		recs[2 * k + 1] = plain(2, k, 10 * k + 1);
	}
	assert_int_equal(spr_encoder_put(e, recs, 12, NULL, NULL), 0);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	for (size_t k = 0; k < 12; k++) {
		if (back.recs[k].writer == 1)
			assert_int_equal(back.recs[k].seq, seq++);
	}
	assert_int_equal(seq, 6);
	test_records_release(&back);
	test_bytes_release(&b);
}

static void given_order_is_kept(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	uint64_t random = test_seed();
	struct test_records back = { 0 };
	struct spr_record recs[5000];
	struct test_bytes b = { 0 };
	spr_encoder *e;

	(void)state;
	o.flags = SPR_GIVEN_ORDER;
	o.frame_records = 777;
	e = encoder_make(&b, o);
	for (size_t k = 0; k < 5000; k++)
		recs[k] = plain(k % 3, k, test_random(&random) % 1000);
	assert_int_equal(spr_encoder_put(e, recs, 5000, NULL, NULL), 0);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	for (size_t k = 0; k < 5000; k++)
		test_record_same(&recs[k], &back.recs[k], k);
	test_records_release(&back);
	test_bytes_release(&b);
}

/* Without a tick memory is bounded all the same, and what is near in time is still sorted. */
static void a_pass_without_end_is_cut(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_bytes b = { 0 };
	struct spr_frame frames[40];
	spr_encoder *e;

	(void)state;
	o.frame_records = 100;
	o.workers = 1;
	e = encoder_make(&b, o);
	for (uint64_t k = 0; k < 3000; k++) {
		const struct spr_record rec = plain(k % 2, k / 2, 1000 + 10 * (k ^ 1));

		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	assert_int_equal(frames_of(&b, frames, 40), 30);
	for (size_t k = 1; k < 30; k++)
		assert_true(frames[k].first_ns > frames[k - 1].last_ns);
	test_bytes_release(&b);
}

/* --- The same bytes whatever the workers do --------------------------------------------------- */

struct script {
	const struct test_records *recs;
	const struct test_kinds   *kinds;
	uint64_t seed;  /* of the sequence of put, tick and sync */
	uint64_t noise; /* of delays: must not matter */
	uint32_t workers, flags;
};

/* Plays a fixed sequence with random disturbances; the trace's hash. */
static uint64_t script_play(const struct script *s)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	spr_channel *ch = channel_fake(s->kinds->kinds, s->kinds->n);
	uint64_t random = s->seed, noise = s->noise, hash;
	struct spr_sink sink = SPR_SINK_INIT;
	struct fake_batch *made = NULL;
	struct test_bytes b = { 0 };
	spr_encoder *e;
	size_t at = 0;

	o.kinds = s->kinds->kinds;
	o.n_kinds = s->kinds->n;
	o.workers = s->workers;
	o.flags = s->flags;
	o.frame_records = 500;
	b.delay_us = (unsigned)(test_random(&noise) % 3) * 100;
	e = encoder_make(&b, o);
	assert_int_equal(spr_encoder_sink(e, &sink), 0);
	while (at < s->recs->n) {
		size_t n = 1 + test_random(&random) % (test_random(&random) % 4 ? 40 : 900);
		const uint64_t what = test_random(&random) % 8;

		n = n < s->recs->n - at ? n : s->recs->n - at;
		if (what < 5) {
			struct fake_batch *f = fake_make(ch, s->recs->recs + at, n);
			int got;

			f->delay_us = (unsigned)(test_random(&noise) % 20
			                                 ? 0
			                                 : test_random(&noise) % 2000);
			f->next = made;
			made = f;
			while ((got = sink.put(sink.arg, &f->batch)) == -EAGAIN)
				usleep(200);
			assert_true(got == 0 || got == 1);
		} else {
			assert_int_equal(spr_encoder_put(e, s->recs->recs + at, n, NULL, NULL), 0);
		}
		at += n;
		if (!(test_random(&random) % 5))
			assert_int_equal(sink.tick(sink.arg, s->recs->recs[at - 1].time_ns), 0);
		if (!(test_random(&random) % 60))
			assert_int_equal(spr_encoder_sync(e), 0);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	for (struct fake_batch *f = made; f; f = f->next)
		assert_true(f->n_released <= 1);
	fake_free(made);
	hash = data_hash(&b);
	test_bytes_release(&b);
	return hash;
}

/* As a collector's passes have them: one writer after the other, over the same stretch of time. */
static void passes_make(struct test_records *r, size_t pass, uint32_t n_writers)
{
	struct spr_record *sorted = malloc(r->n * sizeof(*sorted));
	size_t n = 0;

	check(sorted);
	for (size_t from = 0; from < r->n; from += pass) {
		const size_t to = from + pass < r->n ? from + pass : r->n;

		for (uint32_t w = 0; w < n_writers; w++) {
			for (size_t i = from; i < to; i++) {
				if (r->recs[i].writer % n_writers == w)
					sorted[n++] = r->recs[i];
			}
		}
	}
	memcpy(r->recs, sorted, n * sizeof(*sorted));
	free(sorted);
}

static void the_output_does_not_depend_on_the_workers(void **state)
{
	uint64_t random = test_seed(), before = 0;

	(void)state;
	for (int round = 0; round < (test_long() ? 20 : 2); round++) {
		struct test_records recs = { 0 };
		struct test_kinds kinds;
		struct script s = { &recs, &kinds, test_random(&random),
			            0,     1,      round % 2 ? SPR_GIVEN_ORDER : 0 };
		uint64_t hash;

		test_kinds_make(&kinds, &random);
		test_records_make(&recs, &kinds, 20000, 5, &random);
		passes_make(&recs, 3000, 5);
		hash = script_play(&s);
		assert_true(hash != before);
		before = hash;
		for (s.workers = 1; s.workers <= 16; s.workers++) {
			s.noise = test_random(&random);
			assert_true(script_play(&s) == hash);
		}
		test_records_release(&recs);
	}
}

/* --- Lending ---------------------------------------------------------------------------------- */

static void count_done(void *arg)
{
	spr_add_acq_rel((_Atomic int *)arg, 1); /* [DONE] */
}

static bool is_done(void *arg)
{
	return spr_load_acquire((_Atomic int *)arg) > 0; /* [DONE] */
}

static void lent_records_are_given_back_once_and_without_a_tick(void **state)
{
	static const size_t sizes[] = { 0, 1, 4095, 4096, 20000, 150000 };
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_records back = { 0 };
	struct test_bytes b = { 0 };
	uint64_t seq = 0;
	spr_encoder *e;

	(void)state;
	e = encoder_make(&b, o);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct spr_record *recs = malloc((sizes[i] + 1) * sizeof(*recs));
		uint64_t *data = malloc((sizes[i] + 1) * sizeof(*data));
		_Atomic int done = 0;

		check(recs && data);
		for (size_t k = 0; k < sizes[i]; k++) {
			data[k] = seq;
			recs[k] = plain(1, seq, seq);
			recs[k].data = &data[k];
			seq++;
		}
		assert_int_equal(spr_encoder_put(e, recs, sizes[i], count_done, &done), 0);
		assert_true(test_wait_until(is_done, &done, 20000));
		memset(recs, 0xa5, sizes[i] * sizeof(*recs)); /* ours again */
		memset(data, 0xa5, sizes[i] * sizeof(*data));
		free(recs);
		free(data);
		test_sleep_ms(1);
		assert_int_equal(done, 1);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	assert_int_equal(back.n, seq);
	for (size_t k = 0; k < back.n; k++) {
		uint64_t value;

		memcpy(&value, back.recs[k].data, 8);
		assert_int_equal(value, k);
	}
	test_records_release(&back);
	test_bytes_release(&b);
}

/* --- As a sink -------------------------------------------------------------------------------- */

/* Stops the first thread that reads a batch until it is let go. */
struct stopper {
	struct fake_batch batch;
	_Atomic int       reached, go;
};

static int stopper_next(spr_batch *b, struct spr_record *rec)
{
	struct stopper *s = (struct stopper *)b;

	if (s->batch.at == 100) {
		spr_store_release(&s->reached, 1); /* [REACHED] */
		while (!spr_load_acquire(&s->go)) /* [GO] */
			usleep(100);
	}
	return fake_next(b, rec);
}

static bool stopper_reached(void *arg)
{
	return spr_load_acquire((_Atomic int *)arg); /* [REACHED] */
}

static void a_sink_that_is_behind_says_so_and_recovers(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	spr_channel *ch = channel_fake(NULL, 0);
	struct fake_batch *made = NULL, *last = NULL;
	struct stopper stop = { .reached = 0 };
	struct spr_sink sink = SPR_SINK_INIT;
	struct test_records back = { 0 };
	struct test_bytes b = { 0 };
	struct spr_record recs[200];
	uint64_t seq = 0, n = 0;
	spr_encoder *e;
	int got;

	(void)state;
	o.workers = 1;
	e = encoder_make(&b, o);
	assert_int_equal(spr_encoder_sink(e, &sink), 0);
	for (size_t i = 0; i < 200; i++)
		recs[i] = plain(9, i, 1);
	stop.batch = *(last = fake_make(ch, recs, 200));
	stop.batch.batch.next = stopper_next;
	assert_int_equal(sink.put(sink.arg, &stop.batch.batch), 1);
	assert_true(test_wait_until(stopper_reached, &stop.reached, 20000));
	for (;;) {
		struct fake_batch *f;

		for (size_t i = 0; i < 200; i++)
			recs[i] = plain(1, seq + i, 1000 + seq + i);
		f = fake_make(ch, recs, 200);
		f->next = made;
		made = f;
		got = sink.put(sink.arg, &f->batch);
		if (got == -EAGAIN)
			break;
		assert_int_equal(got, 1);
		seq += 200;
		assert_true(++n < 1000);
	}
	assert_true(n >= 2);
	spr_store_release(&stop.go, 1); /* [GO] */
	while ((got = sink.put(sink.arg, &made->batch)) == -EAGAIN)
		usleep(100);
	assert_int_equal(got, 1);
	assert_int_equal(sink.tick(sink.arg, UINT64_MAX), 0);
	for (struct fake_batch *f = made; f; f = f->next)
		assert_int_equal(f->n_released, 1);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	assert_int_equal(back.n, seq + 400);
	fake_free(made);
	fake_free(last);
	test_records_release(&back);
	test_bytes_release(&b);
}

static void kinds_are_matched_by_name_and_writers_kept_apart(void **state)
{
	static const struct spr_field number = { .name = "n", .type = SPR_U8 };
	static const struct spr_field other = { .name = "n", .type = SPR_U16 };
	static const struct spr_kind trace_kinds[] = { { "a", &number, 1, 0 },
		                                       { "b", &number, 1, 0 } };
	static const struct spr_kind swapped[] = { { "b", &number, 1, 0 }, { "a", &number, 1, 0 } };
	static const struct spr_kind unlike[] = { { "a", &other, 1, 0 } };
	static const struct spr_kind unknown[] = { { "c", &number, 1, 0 } };
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct spr_sink first = SPR_SINK_INIT, second = SPR_SINK_INIT;
	struct test_records back = { 0 };
	struct test_bytes b = { 0 };
	struct spr_record rec = { .data = "x", .bytes = 1, .kind = 1, .time_ns = 1, .writer = 5 };
	struct fake_batch *batches[4];
	spr_encoder *e;

	(void)state;
	o.kinds = trace_kinds;
	o.n_kinds = 2;
	e = encoder_make(&b, o);
	assert_int_equal(spr_encoder_sink(e, &first), 0);
	assert_int_equal(spr_encoder_sink(e, &second), 0);
	batches[0] = fake_make(channel_fake(trace_kinds, 2), &rec, 1);
	batches[1] = fake_make(channel_fake(swapped, 2), &rec, 1);
	batches[2] = fake_make(channel_fake(unlike, 1), &rec, 1);
	batches[3] = fake_make(channel_fake(unknown, 1), &rec, 1);
	assert_int_equal(first.put(first.arg, &batches[0]->batch), 0);
	assert_int_equal(second.put(second.arg, &batches[1]->batch), 0);
	assert_int_equal(second.put(second.arg, &batches[2]->batch), -EINVAL);
	assert_non_null(strstr(spr_error_text(), "declared otherwise"));
	assert_int_equal(second.put(second.arg, &batches[3]->batch), -EINVAL);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	read_back(&b, &back, NULL);
	assert_int_equal(back.n, 2);
	assert_int_equal(back.recs[0].kind, 1);
	assert_int_equal(back.recs[1].kind, 2);
	assert_true(back.recs[0].writer != back.recs[1].writer);
	for (size_t i = 0; i < 4; i++)
		fake_free(batches[i]);
	test_records_release(&back);
	test_bytes_release(&b);
}

/* --- Errors ----------------------------------------------------------------------------------- */

/* Everything that was lent or kept came back, and some call told the error. */
static void fail_after(size_t fail_at, const struct test_bytes *whole, size_t n_header)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	spr_channel *ch = channel_fake(NULL, 0);
	struct test_bytes b = { .fail_at = fail_at };
	struct spr_sink sink = SPR_SINK_INIT;
	struct fake_batch *made = NULL;
	struct spr_record recs[300];
	_Atomic int done = 0;
	spr_encoder *e;
	int err, kept;

	o.write = test_bytes_write;
	o.arg = &b;
	o.frame_records = 100;
	o.workers = 2;
	for (uint64_t i = 0; i < 300; i++)
		recs[i] = plain(1, i, 1000 + i);
	err = spr_encoder_open(&e, &o);
	if (!err) {
		assert_int_equal(spr_encoder_sink(e, &sink), 0);
		made = fake_make(ch, recs, 300);
		err = sink.put(sink.arg, &made->batch);
		assert_true(err == 1 || err == -ENOSPC);
		kept = err == 1;
		err = spr_encoder_put(e, recs, 300, count_done, &done);
		assert_true(!err || err == -ENOSPC);
		err = spr_encoder_tick(e, UINT64_MAX);
		assert_true(!err || err == -ENOSPC);
		assert_int_equal(made->n_released, kept);
		err = spr_encoder_close(e, NULL);
		assert_int_equal(done, 1);
	}
	assert_int_equal(err, fail_at < whole->n ? -ENOSPC : 0);
	if (err)
		assert_non_null(strstr(spr_error_text(), "No space"));
	assert_int_equal(b.n_writes_after_failure, 0);
	assert_int_equal(b.n, fail_at < whole->n ? fail_at : whole->n);
	if (b.n > n_header)
		assert_memory_equal(b.bytes + n_header, whole->bytes + n_header, b.n - n_header);
	fake_free(made);
	test_bytes_release(&b);
}

static void a_failed_write_ends_all_once_wherever_it_strikes(void **state)
{
	struct test_bytes whole = { .fail_at = SIZE_MAX };
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct spr_record recs[300];
	uint32_t n_header;
	spr_encoder *e;

	(void)state;
	o.frame_records = 100;
	for (uint64_t i = 0; i < 300; i++)
		recs[i] = plain(1, i, 1000 + i);
	e = encoder_make(&whole, o);
	assert_int_equal(spr_encoder_put(e, recs, 300, NULL, NULL), 0);
	assert_int_equal(spr_encoder_put(e, recs, 300, NULL, NULL), 0);
	assert_int_equal(spr_encoder_tick(e, UINT64_MAX), 0);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	memcpy(&n_header, whole.bytes + 4, 4);
	for (size_t k = 1; k <= whole.n; k += k > n_header + 8 && !test_long() ? 7 : 1)
		fail_after(k, &whole, n_header + 8);
	fail_after(whole.n - 1, &whole, n_header + 8);
	test_bytes_release(&whole);
}

static void write_to_closed_pipe(void *arg)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	spr_encoder *e;
	int ends[2];

	(void)arg;
	signal(SIGPIPE, SIG_DFL);
	check(!pipe(ends));
	o.fd = ends[1];
	check(!spr_encoder_open(&e, &o));
	close(ends[0]);
	check(spr_encoder_close(e, NULL) == -EPIPE);
	check(!pipe(ends));
	close(ends[0]);
	o.fd = ends[1];
	check(spr_encoder_open(&e, &o) == -EPIPE);
}

static void a_closed_pipe_is_an_error_and_no_signal(void **state)
{
	(void)state;
	test_assert_ended_well(test_child(write_to_closed_pipe, NULL, 20000));
}

static long write_badly(long nr, long fd, long bytes, long n, long d, long e, long f)
{
	static unsigned turn;

	switch (turn++ % 3) {
	case 0:
		return -EINTR;
	case 1:
		return spr_sys_raw(nr, fd, bytes, n > 3 ? 3 : n, d, e, f);
	default:
		return spr_sys_raw(nr, fd, bytes, n, d, e, f);
	}
}

static void interrupted_and_short_writes_are_gone_on_with(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	const int fd = test_bytes_fd("", 0);
	struct spr_record recs[1000], rec;
	spr_encoder *e;
	spr_trace *t;
	size_t n = 0;

	(void)state;
	for (uint64_t i = 0; i < 1000; i++)
		recs[i] = plain(1, i, i);
	fake_sys_replace(SYS_write, write_badly);
	o.fd = fd;
	o.frame_records = 10;
	assert_int_equal(spr_encoder_open(&e, &o), 0);
	assert_int_equal(spr_encoder_put(e, recs, 1000, NULL, NULL), 0);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	fake_sys_reset();
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	while (spr_trace_next(t, &rec) > 0)
		n++;
	assert_int_equal(n, 1000);
	spr_trace_close(t);
	close(fd);
}

static void bad_options_are_refused_with_a_sentence(void **state)
{
	static const struct spr_kind bad = { "Bad", NULL, 0, 0 };
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_bytes b = { 0 };
	spr_encoder *e;

	(void)state;
	assert_int_equal(spr_encoder_open(&e, NULL), -EINVAL);
	assert_int_equal(spr_encoder_open(&e, &o), -EINVAL);
	o.fd = 0;
	assert_int_equal(spr_encoder_open(&e, &o), -EINVAL);
	o.write = test_bytes_write;
	o.arg = &b;
	o.format = "memtrack";
	assert_int_equal(spr_encoder_open(&e, &o), -ENOTSUP);
	assert_non_null(strstr(spr_error_text(), "memtrack"));
	o.format = "tar";
	assert_int_equal(spr_encoder_open(&e, &o), -EINVAL);
	o.format = "spr";
	o.level = 30;
	assert_int_equal(spr_encoder_open(&e, &o), -EINVAL);
	o.level = 0;
	o.flags = 1u << 7;
	assert_int_equal(spr_encoder_open(&e, &o), -EINVAL);
	o.flags = 0;
	o.frame_records = 2u << 20;
	assert_int_equal(spr_encoder_open(&e, &o), -EINVAL);
	o.frame_records = 0;
	o.kinds = &bad;
	o.n_kinds = 1;
	assert_int_equal(spr_encoder_open(&e, &o), -EINVAL);
	assert_int_equal(b.n, 0);
	assert_int_equal(spr_encoder_close(NULL, NULL), 0);
}

/* --- The rest --------------------------------------------------------------------------------- */

static void what_was_synced_can_be_read(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_bytes b = { 0 };
	spr_encoder *e;

	(void)state;
	e = encoder_make(&b, o);
	for (uint64_t k = 0; k < 20; k++) {
		const struct spr_record rec = plain(1, k, k);
		struct spr_frame frames[32];

		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
		assert_int_equal(spr_encoder_sync(e), 0);
		assert_int_equal(spr_encoder_sync(e), 0); /* nothing new: no frame */
		assert_int_equal(frames_of(&b, frames, 32), k + 1);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	test_bytes_release(&b);
}

static void the_verdict_is_what_was_seen_and_what_was_told(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	static const uint8_t blind[] = { 7, 0, 0, 0, 1, 0, 'r', 0, 0 };
	const struct spr_record rec = { .data = blind, .bytes = 9, .kind = SPR_KIND_BLIND };
	struct spr_verdict more = SPR_VERDICT_INIT, v;
	struct test_records back = { 0 };
	struct test_bytes b = { 0 };
	spr_encoder *e;

	(void)state;
	more.left_running = 3;
	more.lost = 5;
	more.reasons = SPR_LEFT_RUNNING;
	e = encoder_make(&b, o);
	assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
	assert_int_equal(spr_encoder_close(e, &more), 0);
	read_back(&b, &back, &v);
	assert_int_equal(v.reasons, SPR_LEFT_RUNNING | SPR_LOST | SPR_BLIND);
	assert_int_equal(v.left_running, 3);
	assert_int_equal(v.lost, 5);
	assert_int_equal(v.blind, 1);
	assert_int_equal(v.delivered, 1);
	test_records_release(&back);
	test_bytes_release(&b);
}

static void memory_is_bounded_behind_a_slow_disk(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_bytes b = { .delay_us = 3000 };
	uint64_t most = 0;
	spr_encoder *e;

	(void)state;
	o.workers = 2;
	o.frame_records = 1000;
	e = encoder_make(&b, o);
	for (uint64_t k = 0; k < 50000; k += 500) {
		struct spr_record recs[500];

		for (size_t i = 0; i < 500; i++)
			recs[i] = plain(1, k + i, k + i);
		assert_int_equal(spr_encoder_put(e, recs, 500, NULL, NULL), 0);
		pthread_mutex_lock(&e->lock);
		most = e->n_flight > most ? e->n_flight : most;
		pthread_mutex_unlock(&e->lock);
	}
	assert_true(most <= (2 + 3) * 1000 + 500);
	assert_true(most >= 2000);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	test_bytes_release(&b);
}

/* --- Behind a real ring ---------------------------------------------------------------------- */

struct flood {
	spr_producer *producer;
	uint32_t      n;
};

static void *flood_write(void *arg)
{
	const struct flood *f = arg;
	uint8_t data[60];

	for (uint32_t i = 0; i < f->n; i++) {
		memset(data, (int)i, sizeof(data));
		memcpy(data, &i, sizeof(i));
		check(!spr_write(spr_writer_here(f->producer), 0, data, 20 + i % 40));
	}
	return NULL;
}

/* Frames of 8 MiB out of a ring of 1 MiB, before a disk that is slow now and then: batches must go
 * back long before their frame is full, and the writers wait instead of losing. */
static void a_small_ring_feeds_large_frames(void **state)
{
	struct spr_channel_options co = SPR_CHANNEL_OPTIONS_INIT;
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	const uint32_t n = test_long() ? 2000000 : 200000;
	struct test_bytes b = { .delay_us = 2000 };
	struct spr_sink sink = SPR_SINK_INIT;
	struct test_records back = { 0 };
	struct spr_verdict v;
	uint32_t next[64] = { 0 };
	pthread_t threads[2];
	spr_collector *c;
	struct flood f;
	spr_channel *ch;
	spr_encoder *e;
	int64_t got = 0;

	(void)state;
	TEST_NOT_UNDER_TSAN("segments pass from thread to thread through another mapping");
	co.capacity_bytes = 1 << 20;
	co.stall_ms = UINT32_MAX;
	assert_int_equal(spr_channel_open(&ch, "ring:", &co), 0);
	o.workers = 2;
	e = encoder_make(&b, o);
	assert_int_equal(spr_encoder_sink(e, &sink), 0);
	assert_int_equal(spr_collector_open(&c, 0), 0);
	assert_int_equal(spr_collector_add(c, ch, &sink), 0);
	assert_int_equal(spr_attach(&f.producer, spr_channel_address(ch)), 0);
	f.n = n;
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, flood_write, &f), 0);
	for (uint64_t taken = 0; taken < 2ull * n; taken += (uint64_t)got) {
		got = spr_collector_step(c, 20000);
		assert_true(got > 0 || got == 0);
	}
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	spr_detach(f.producer);
	assert_int_equal(spr_channel_seal(ch), 0);
	while ((got = spr_collector_step(c, 1000)) >= 0)
		;
	assert_int_equal(got, -ENODATA);
	assert_int_equal(spr_collector_close(c), 0);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	assert_int_equal(spr_channel_close(ch), 0);
	read_back(&b, &back, &v);
	assert_int_equal(v.reasons, 0);
	assert_int_equal(back.n, 2ull * n);
	for (size_t i = 0; i < back.n; i++) {
		const struct spr_record *r = &back.recs[i];
		uint32_t value;

		memcpy(&value, r->data, 4);
		assert_int_equal(value, next[r->writer % 64]++);
		assert_int_equal(r->bytes, 20 + value % 40);
	}
	test_records_release(&back);
	test_bytes_release(&b);
}

static void workers_take_no_signal(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_bytes b = { 0 };
	struct dirent *entry;
	spr_encoder *e;
	unsigned n = 0;
	DIR *dir;

	(void)state;
	o.workers = 3;
	e = encoder_make(&b, o);
	dir = opendir("/proc/self/task");
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char *path = test_text("/proc/self/task/%s/status", entry->d_name), line[200];
		FILE *status = atoi(entry->d_name) > 0 ? fopen(path, "r") : NULL;
		unsigned long long blocked;

		while (status && fgets(line, sizeof(line), status)) {
			if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
				n += (blocked & 0x7ffbfeff) ==
				     0x7ffbfeff; /* all but SIGKILL and SIGSTOP */
		}
		if (status)
			fclose(status);
		free(path);
	}
	closedir(dir);
	assert_true(n >= 3);
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	test_bytes_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_end_at_their_number_of_records),
		cmocka_unit_test(frames_end_at_their_number_of_bytes),
		cmocka_unit_test(records_of_64_kib_and_of_nothing_come_back),
		cmocka_unit_test(a_record_unlike_its_kind_is_counted),
		cmocka_unit_test(writers_are_merged_by_time),
		cmocka_unit_test(a_frame_holds_only_what_a_tick_covers),
		cmocka_unit_test(records_of_the_same_time_keep_the_order_of_put),
		cmocka_unit_test(a_late_record_is_sorted_into_the_open_frame),
		cmocka_unit_test(a_writers_own_order_is_kept_whatever_its_stamps_say),
		cmocka_unit_test(given_order_is_kept),
		cmocka_unit_test(a_pass_without_end_is_cut),
		cmocka_unit_test(the_output_does_not_depend_on_the_workers),
		cmocka_unit_test(lent_records_are_given_back_once_and_without_a_tick),
		cmocka_unit_test(a_sink_that_is_behind_says_so_and_recovers),
		cmocka_unit_test(kinds_are_matched_by_name_and_writers_kept_apart),
		cmocka_unit_test(a_failed_write_ends_all_once_wherever_it_strikes),
		cmocka_unit_test(a_closed_pipe_is_an_error_and_no_signal),
		cmocka_unit_test(interrupted_and_short_writes_are_gone_on_with),
		cmocka_unit_test(bad_options_are_refused_with_a_sentence),
		cmocka_unit_test(what_was_synced_can_be_read),
		cmocka_unit_test(the_verdict_is_what_was_seen_and_what_was_told),
		cmocka_unit_test(memory_is_bounded_behind_a_slow_disk),
		cmocka_unit_test(a_small_ring_feeds_large_frames),
		cmocka_unit_test(workers_take_no_signal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
