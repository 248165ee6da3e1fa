/* SPDX-License-Identifier: MIT */
/* trace_test.c - what an encoder wrote is read back: whole, cut, damaged, joined, growing. */
#include "tests/trace_support.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kinds.h"

/* What reading from fd to the end gives. */
struct reading {
	size_t n, n_bad;
	struct spr_verdict verdict;
	int    verdict_err;
};

/* Reads all; records must be those of `truth` in order, where bad frames may leave out some. */
static struct reading read_all(int fd, const struct test_records *truth, bool may_miss)
{
	struct reading got = { .verdict = SPR_VERDICT_INIT };
	size_t at = 0, tries = 0;
	struct spr_record rec;
	spr_trace *t;
	int did;

	did = spr_trace_open(&t, fd, NULL);
	if (did) {
		got.verdict_err = did;
		return got;
	}
	while ((did = spr_trace_next(t, &rec)) != 0) {
		if (did < 0) {
			got.n_bad++;
			assert_true(did == -EBADMSG || did == -EPROTO);
			assert_true(strlen(spr_error_text()) > 10);
			assert_true(++tries < 100000);
			continue;
		}
		if (may_miss) {
			while (at < truth->n && (truth->recs[at].seq != rec.seq ||
			                         truth->recs[at].writer != rec.writer))
				at++;
		}
		assert_true(at < truth->n);
		test_record_same(&truth->recs[at], &rec, at);
		at++;
		got.n++;
	}
	got.verdict_err = spr_trace_verdict(t, &got.verdict);
	spr_trace_close(t);
	return got;
}

static struct reading read_bytes(const struct test_bytes *b, const struct test_records *truth,
                                 bool may_miss)
{
	const int fd = test_bytes_fd(b->bytes, b->n);
	const struct reading got = read_all(fd, truth, may_miss);

	close(fd);
	return got;
}

static void random_records_of_random_kinds_come_back(void **state)
{
	uint64_t random = test_seed();

	(void)state;
	for (int round = 0; round < (test_long() ? 500 : 30); round++) {
		struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
		struct test_records truth = { 0 };
		struct test_bytes b = { 0 };
		struct test_kinds kinds;
		struct reading got;

		test_kinds_make(&kinds, &random);
		test_records_make(&truth, &kinds, test_random(&random) % 5000,
		                  1 + (uint32_t)round % 9, &random);
		o.frame_records =
			(uint32_t)(test_random(&random) % 3 ? 1 + test_random(&random) % 3000 : 0);
		o.frame_bytes = (uint32_t)(test_random(&random) % 2
		                                   ? 1 + test_random(&random) % 100000
		                                   : 0);
		o.workers = 1 + (uint32_t)(test_random(&random) % 4);
		o.flags = round % 2 ? SPR_GIVEN_ORDER : 0;
		test_encode(&b, &o, &kinds, &truth, round % 3 ? 0 : 700);
		got = read_bytes(&b, &truth, false);
		assert_int_equal(got.n, truth.n);
		assert_int_equal(got.n_bad, 0);
		assert_int_equal(got.verdict_err, 0);
		assert_int_equal(got.verdict.reasons & ~SPR_BLIND, 0);
		assert_int_equal(got.verdict.delivered, truth.n);
		test_bytes_release(&b);
		test_records_release(&truth);
	}
}

/* --- Small traces, taken apart ---------------------------------------------------------------- */

/* A few hundred records in a few frames, all codecs among them. */
static void small_make(struct test_bytes *b, struct test_records *truth, uint64_t seed)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct test_kinds kinds;

	test_kinds_make(&kinds, &seed);
	test_records_make(truth, &kinds, 60, 3, &seed);
	for (size_t i = truth->n; i--;) { /* short ones: each byte is visited */
		if (truth->recs[i].bytes > 100) {
			free((void *)(uintptr_t)truth->recs[i].data);
			memmove(truth->recs + i, truth->recs + i + 1,
			        (truth->n - i - 1) * sizeof(*truth->recs));
			truth->n--;
		}
	}
	o.frame_records = 20;
	o.workers = 1;
	test_encode(b, &o, &kinds, truth, 0);
}

/* Records in frames that lie wholly within the first n bytes. */
static size_t whole_records(const struct test_bytes *b, size_t n)
{
	const int fd = test_bytes_fd(b->bytes, b->n);
	struct spr_frame frame;
	size_t n_records = 0;
	spr_trace *t;

	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	for (uint64_t i = 0; !spr_trace_frame(t, i, &frame) && frame.at + frame.bytes <= n; i++)
		n_records += frame.records;
	spr_trace_close(t);
	close(fd);
	return n_records;
}

static void a_trace_cut_anywhere_gives_its_whole_frames_and_says_cut(void **state)
{
	uint64_t seed = test_seed();

	(void)state;
	for (int round = 0; round < (test_long() ? 20 : 2); round++) {
		struct test_records truth = { 0 };
		struct test_bytes b = { 0 }, part;
		uint32_t n_header;

		small_make(&b, &truth, test_random(&seed));
		memcpy(&n_header, b.bytes + 4, 4);
		part = b;
		for (part.n = 0; part.n < b.n; part.n++) {
			const struct reading got = read_bytes(&part, &truth, false);

			if (part.n < n_header + 8) {
				assert_int_equal(got.verdict_err, -EPROTO);
				continue;
			}
			assert_int_equal(got.verdict_err, 0);
			assert_int_equal(got.n_bad, 0);
			assert_int_equal(got.n, whole_records(&b, part.n));
			assert_int_equal(got.verdict.reasons & ~SPR_BLIND, SPR_CUT);
			assert_int_equal(got.verdict.delivered, got.n);
		}
		test_bytes_release(&b);
		test_records_release(&truth);
	}
}

static void a_flipped_bit_is_noticed_or_does_no_harm(void **state)
{
	uint64_t seed = test_seed();

	(void)state;
	for (int round = 0; round < (test_long() ? 20 : 1); round++) {
		struct test_records truth = { 0 };
		struct test_bytes b = { 0 };
		uint32_t n_entries;
		size_t table_at;

		small_make(&b, &truth, test_random(&seed));
		memcpy(&n_entries, b.bytes + b.n - 9, 4);
		table_at = b.n - 17 - 8ull * n_entries;
		for (size_t bit = 0; bit < 8 * b.n; bit++) {
			struct reading got;

			b.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			got = read_bytes(&b, &truth, true);
			b.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			if (got.verdict_err == -EPROTO)
				continue; /* in the header */
			assert_int_equal(got.verdict_err, 0);
			/* zstd's frames have bits that mean nothing: then everything is there. */
			if (!(got.verdict.reasons & (SPR_CUT | SPR_LOST)) && got.n != truth.n)
				fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
			if (got.verdict.reasons & SPR_LOST)
				assert_true(got.n_bad);
			if (bit / 8 < table_at) /* the end is there all the same */
				assert_int_equal(got.verdict.reasons & SPR_CUT, 0);
			if (!(got.verdict.reasons & SPR_CUT))
				assert_int_equal(got.verdict.delivered + got.verdict.lost, truth.n);
			assert_true(got.n <= truth.n && got.n + 40 >= truth.n);
			assert_int_equal(got.verdict.delivered, got.n);
		}
		test_bytes_release(&b);
		test_records_release(&truth);
	}
}

static void a_damaged_frame_is_named_and_the_next_is_read(void **state)
{
	struct test_records truth = { 0 };
	struct spr_record rec;
	struct test_bytes b = { 0 };
	struct spr_frame frame;
	size_t n = 0;
	spr_trace *t;
	int fd, got;

	(void)state;
	small_make(&b, &truth, 5);
	fd = test_bytes_fd(b.bytes, b.n);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	assert_int_equal(spr_trace_frame(t, 1, &frame), 0);
	spr_trace_close(t);
	assert_int_equal(pwrite(fd, "\xff\xff\xff", 3, (off_t)(frame.at + frame.bytes - 12)), 3);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	while ((got = spr_trace_next(t, &rec)) > 0)
		n++;
	assert_int_equal(got, -EBADMSG);
	assert_non_null(strstr(spr_error_text(), "frame 1 at byte"));
	assert_int_equal(n, 20);
	while ((got = spr_trace_next(t, &rec)) > 0)
		n++;
	assert_int_equal(got, 0);
	assert_int_equal(n, truth.n - frame.records);
	spr_trace_close(t);
	close(fd);
	test_bytes_release(&b);
	test_records_release(&truth);
}

/* --- Other ways to come by bytes -------------------------------------------------------------- */

static void a_pipe_reads_like_a_file(void **state)
{
	uint64_t random = test_seed();

	(void)state;
	for (int round = 0; round < 6; round++) {
		struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
		struct test_records truth = { 0 };
		struct test_bytes b = { 0 };
		struct test_kinds kinds;
		struct reading got;
		const size_t cut = (size_t)round * 100;
		pid_t child;
		int fd;

		test_kinds_make(&kinds, &random);
		test_records_make(&truth, &kinds, 2000, 3, &random);
		o.frame_records = 300;
		test_encode(&b, &o, &kinds, &truth, 0);
		fd = test_bytes_pipe(b.bytes, b.n - cut, &child);
		got = read_all(fd, &truth, false);
		close(fd);
		assert_int_equal(waitpid(child, NULL, 0), child);
		assert_int_equal(got.verdict_err, 0);
		assert_int_equal(got.n, whole_records(&b, b.n - cut));
		assert_int_equal(got.verdict.reasons & ~SPR_BLIND, cut ? SPR_CUT : 0);
		test_bytes_release(&b);
		test_records_release(&truth);
	}
}

static void a_pipe_has_no_frames_to_list(void **state)
{
	struct test_records truth = { 0 };
	struct spr_verdict v = SPR_VERDICT_INIT;
	struct test_bytes b = { 0 };
	struct spr_frame frame;
	spr_trace *t;
	pid_t child;
	int fd;

	(void)state;
	small_make(&b, &truth, 5);
	fd = test_bytes_pipe(b.bytes, b.n, &child);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	assert_int_equal(spr_trace_frame(t, 0, &frame), -ESPIPE);
	assert_int_equal(spr_trace_seek(t, 0), -ESPIPE);
	assert_int_equal(spr_trace_seek_frame(t, 0), -ESPIPE);
	assert_int_equal(spr_trace_verdict(t, &v), -EAGAIN);
	spr_trace_close(t);
	close(fd);
	waitpid(child, NULL, 0);
	test_bytes_release(&b);
	test_records_release(&truth);
}

static void joined_traces_are_read_one_after_the_other(void **state)
{
	uint64_t random = test_seed();
	struct test_bytes all = { 0 };
	size_t lengths[3], n_truth = 0, n = 0;
	struct test_records truths[3] = { { 0 } };
	struct test_kinds kinds[3];
	struct spr_verdict v = SPR_VERDICT_INIT;
	struct spr_record rec;
	spr_trace *t;
	int fd, got;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct test_bytes b = { 0 };

		test_kinds_make(&kinds[i], &random);
		test_records_make(&truths[i], &kinds[i], 500, 2, &random);
		test_encode(&b, NULL, &kinds[i], &truths[i], 0);
		test_bytes_write(&all, b.bytes, b.n);
		lengths[i] = b.n;
		n_truth += 500;
		test_bytes_release(&b);
	}
	fd = test_bytes_fd(all.bytes, all.n);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	while ((got = spr_trace_next(t, &rec)) > 0) {
		const struct spr_record *truth = &truths[n / 500].recs[n % 500];
		uint32_t n_kinds;
		const struct spr_kind *shown = spr_trace_kinds(t, &n_kinds);

		if (rec.kind && rec.kind != SPR_KIND_BLIND) { /* numbers may differ: names do not */
			const struct spr_kind *mine = &kinds[n / 500].kinds[truth->kind - 1];

			assert_true(rec.kind <= n_kinds);
			assert_string_equal(shown[rec.kind - 1].name, mine->name);
			assert_int_equal(shown[rec.kind - 1].n_fields, mine->n_fields);
			rec.kind = truth->kind;
		}
		test_record_same(truth, &rec, n++);
	}
	assert_int_equal(got, 0);
	assert_int_equal(n, n_truth);
	assert_int_equal(spr_trace_verdict(t, &v), 0);
	assert_int_equal(v.delivered, n_truth);
	assert_int_equal(v.reasons & ~SPR_BLIND, 0);
	spr_trace_close(t);
	close(fd);
	/* The first one without its end: cut, the others whole. */
	memmove(all.bytes + lengths[0] - 9, all.bytes + lengths[0], all.n - lengths[0]);
	fd = test_bytes_fd(all.bytes, all.n - 9);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	for (n = 0; (got = spr_trace_next(t, &rec)) != 0;)
		n += got > 0;
	assert_int_equal(n, n_truth);
	v = (struct spr_verdict)SPR_VERDICT_INIT;
	assert_int_equal(spr_trace_verdict(t, &v), 0);
	assert_int_equal(v.reasons & SPR_CUT, SPR_CUT);
	spr_trace_close(t);
	close(fd);
	for (size_t i = 0; i < 3; i++)
		test_records_release(&truths[i]);
	test_bytes_release(&all);
}

static void a_growing_trace_is_followed(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	struct spr_trace_options follow = SPR_TRACE_OPTIONS_INIT;
	char *folder = test_folder_make(), *path = test_text("%s/t.spr", folder);
	struct spr_verdict v = SPR_VERDICT_INIT;
	const int out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	const int in = open(path, O_RDONLY | O_CLOEXEC);
	struct spr_record rec = { .data = "abc", .bytes = 3 }, back;
	spr_encoder *e;
	spr_trace *t;

	(void)state;
	follow.flags = SPR_FOLLOW;
	o.fd = out;
	assert_int_equal(spr_encoder_open(&e, &o), 0);
	assert_int_equal(spr_trace_open(&t, in, &follow), 0);
	assert_int_equal(spr_trace_next(t, &back), -EAGAIN);
	for (uint64_t i = 0; i < 5; i++) {
		rec.seq = rec.time_ns = i;
		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
		assert_int_equal(spr_trace_next(t, &back), -EAGAIN);
		assert_int_equal(spr_encoder_sync(e), 0);
		assert_int_equal(spr_trace_next(t, &back), 1);
		test_record_same(&rec, &back, i);
		assert_int_equal(spr_trace_next(t, &back), -EAGAIN);
		assert_int_equal(spr_trace_verdict(t, &v), -EAGAIN);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	close(out);
	assert_int_equal(spr_trace_next(t, &back), 0);
	assert_int_equal(spr_trace_verdict(t, &v), 0);
	assert_int_equal(v.reasons, 0);
	assert_int_equal(v.delivered, 5);
	spr_trace_close(t);
	close(in);
	free(path);
	test_folder_remove(folder);
}

static void a_recorder_that_is_gone_leaves_a_cut(void **state)
{
	struct spr_trace_options follow = SPR_TRACE_OPTIONS_INIT;
	struct spr_verdict v = SPR_VERDICT_INIT;
	struct test_records truth = { 0 };
	struct test_bytes b = { 0 };
	struct spr_record rec;
	spr_trace *t;
	size_t n = 0;
	int fd, got;

	(void)state;
	follow.flags = SPR_FOLLOW;
	small_make(&b, &truth, 5);
	fd = test_bytes_fd(b.bytes, b.n - 1);
	assert_int_equal(spr_trace_open(&t, fd, &follow), 0);
	while ((got = spr_trace_next(t, &rec)) > 0)
		n++;
	assert_int_equal(got, 0);
	assert_int_equal(n, truth.n);
	assert_int_equal(spr_trace_verdict(t, &v), 0);
	assert_int_equal(v.reasons & SPR_CUT, SPR_CUT);
	spr_trace_close(t);
	close(fd);
	test_bytes_release(&b);
	test_records_release(&truth);
}

/* --- Frames, seeking, projection -------------------------------------------------------------- */

static void frames_are_listed_and_sought(void **state)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	uint64_t random = test_seed();
	struct test_records truth = { 0 };
	struct test_bytes b = { 0 };
	struct test_kinds kinds;
	struct spr_frame frame;
	struct spr_record rec;
	uint64_t at = 0;
	spr_trace *t;
	int fd;

	(void)state;
	test_kinds_make(&kinds, &random);
	test_records_make(&truth, &kinds, 1000, 3, &random);
	o.frame_records = 64;
	test_encode(&b, &o, &kinds, &truth, 0);
	fd = test_bytes_fd(b.bytes, b.n);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	for (uint64_t i = 0; i < 16; i++) {
		assert_int_equal(spr_trace_frame(t, i, &frame), 0);
		assert_int_equal(frame.records, i < 15 ? 64 : 1000 - 15 * 64);
		assert_true(frame.at + frame.bytes < b.n);
		assert_int_equal(frame.last_ns, truth.recs[i < 15 ? 64 * i + 63 : 999].time_ns);
	}
	assert_int_equal(spr_trace_frame(t, 16, &frame), -ERANGE);
	for (int i = 0; i < 50; i++) {
		const uint64_t to = test_random(&random) % 16;

		assert_int_equal(spr_trace_seek_frame(t, to), 0);
		for (at = 64 * to; at < 1000 && at < 64 * to + 100; at++) {
			assert_int_equal(spr_trace_next(t, &rec), 1);
			test_record_same(&truth.recs[at], &rec, at);
		}
	}
	assert_int_equal(spr_trace_seek_frame(t, 16), -ERANGE);
	for (int i = 0; i < 50; i++) {
		const uint64_t time = truth.recs[test_random(&random) % 1000].time_ns +
		                      test_random(&random) % 2;

		assert_int_equal(spr_trace_seek(t, time), 0);
		for (at = 0; at < 1000 && truth.recs[at].time_ns < time;)
			at++;
		for (; at < 1000; at++) {
			assert_int_equal(spr_trace_next(t, &rec), 1);
			test_record_same(&truth.recs[at], &rec, at);
		}
		assert_int_equal(spr_trace_next(t, &rec), 0);
	}
	assert_int_equal(spr_trace_seek(t, UINT64_MAX), 0);
	assert_int_equal(spr_trace_next(t, &rec), 0);
	spr_trace_close(t);
	close(fd);
	test_bytes_release(&b);
	test_records_release(&truth);
}

/* Field by field the projected record is the whole one. */
static void projected_same(const struct spr_kind *whole, const struct spr_record *a,
                           const struct spr_kind *part, const struct spr_record *b)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < part->n_fields; i++) {
		struct spr_value x, y;
		uint32_t k = 0;

		while (strcmp(whole->fields[k].name, part->fields[i].name))
			k++;
		assert_int_equal(spr_record_field(whole, a, k, &x), 0);
		assert_int_equal(spr_record_field(part, b, i, &y), 0);
		assert_int_equal(x.number, y.number);
		assert_int_equal(x.present, y.present);
		assert_int_equal(x.n, y.n);
		assert_true(!x.n || !memcmp(x.bytes, y.bytes, x.n));
		bytes++;
	}
	assert_true(bytes || !b->bytes);
}

static void only_the_fields_asked_for_are_there(void **state)
{
	static const char *const wanted[] = { "k0.f0", "k0.f2", "k1.f1", "blind.reason" };
	static const struct spr_field reason = { .name = "reason", .type = SPR_STRING };
	static const struct spr_kind blind_part = { "blind", &reason, 1, 0 };
	struct spr_trace_options o = SPR_TRACE_OPTIONS_INIT;
	uint64_t random = test_seed();

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct test_records truth = { 0 };
		struct test_bytes b = { 0 };
		struct test_kinds kinds;
		struct spr_record rec;
		size_t at = 0;
		uint32_t n;
		spr_trace *t;
		int fd;

		do {
			test_kinds_make(&kinds, &random);
		} while (kinds.n < 3 || kinds.kinds[0].n_fields < 3 || kinds.kinds[1].n_fields < 2);
		test_records_make(&truth, &kinds, 500, 3, &random);
		test_encode(&b, NULL, &kinds, &truth, 0);
		fd = test_bytes_fd(b.bytes, b.n);
		o.fields = wanted;
		o.n_fields = 4;
		assert_int_equal(spr_trace_open(&t, fd, &o), 0);
		assert_int_equal(spr_trace_kinds(t, &n)[0].n_fields, 2);
		while (spr_trace_next(t, &rec) > 0) {
			const struct spr_record *whole = &truth.recs[at++];

			assert_int_equal(rec.seq, whole->seq);
			assert_int_equal(rec.time_ns, whole->time_ns);
			assert_int_equal(rec.kind, whole->kind);
			if (!rec.kind)
				assert_int_equal(rec.bytes, 0);
			else if (rec.kind == SPR_KIND_BLIND)
				projected_same(&spr_kind_blind, whole, &blind_part, &rec);
			else
				projected_same(&kinds.kinds[rec.kind - 1], whole,
				               &spr_trace_kinds(t, &n)[rec.kind - 1], &rec);
		}
		assert_int_equal(at, 500);
		spr_trace_close(t);
		o.fields = (const char *const[]){ "k0.nothing" };
		o.n_fields = 1;
		lseek(fd, 0, SEEK_SET);
		assert_int_equal(spr_trace_open(&t, fd, &o), -EINVAL);
		close(fd);
		test_bytes_release(&b);
		test_records_release(&truth);
	}
}

/* --- What is no trace ------------------------------------------------------------------------- */

static void open_says(int fd, int err, const char *words)
{
	spr_trace *t;

	assert_int_equal(spr_trace_open(&t, fd, NULL), err);
	if (!strstr(spr_error_text(), words))
		fail_msg("\"%s\" does not say \"%s\"", spr_error_text(), words);
	close(fd);
}

static void what_is_no_trace_is_refused_with_a_sentence(void **state)
{
	struct test_records truth = { 0 };
	struct test_bytes b = { 0 };

	(void)state;
	small_make(&b, &truth, 5);
	open_says(test_bytes_fd("", 0), -EPROTO, "empty");
	open_says(test_bytes_fd("hello, world", 12), -EPROTO, "no trace");
	open_says(test_bytes_fd("\x28\xb5\x2f\xfd    ", 8), -EPROTO, "zstd");
	open_says(open("/", O_RDONLY | O_DIRECTORY), -EISDIR, "directory");
	open_says(test_bytes_fd(b.bytes, 11), -EPROTO, "cut");
	b.bytes[12] = 2;
	open_says(test_bytes_fd(b.bytes, b.n), -EPROTO, "version 2");
	b.bytes[12] = 1;
	b.bytes[60] ^= 4;
	open_says(test_bytes_fd(b.bytes, b.n), -EPROTO, "damaged");
	test_bytes_release(&b);
	test_records_release(&truth);
}

/* --- Other programs --------------------------------------------------------------------------- */

static void zstd_accepts_every_file(void **state)
{
	static char zstd[] = "zstd", test[] = "-tq", out[] = "-dcq";
	char *folder = test_folder_make(), *path = test_text("%s/t.spr", folder);
	uint64_t random = test_seed();

	(void)state;
	for (int round = 0; round < 6; round++) {
		struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
		struct test_records truth = { 0 };
		struct test_bytes b = { 0 };
		struct test_kinds kinds;
		struct test_end end;
		char *said;

		test_kinds_make(&kinds, &random);
		test_records_make(&truth, &kinds, round ? 3000 : 0, 3, &random);
		o.frame_records = 700;
		o.level = round - 2;
		test_encode(&b, &o, &kinds, &truth, 0);
		test_file_write(path, b.bytes, b.n);
		end = test_run((char *const[]){ zstd, test, path, NULL }, &said, 20000);
		if (end.status == 127)
			TEST_SKIP("there is no zstd command");
		if (end.status)
			fail_msg("zstd -t: %s", said);
		free(said);
		end = test_run((char *const[]){ zstd, out, path, NULL }, &said, 20000);
		assert_int_equal(end.status, 0);
		free(said);
		test_bytes_release(&b);
		test_records_release(&truth);
	}
	free(path);
	test_folder_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_records_of_random_kinds_come_back),
		cmocka_unit_test(a_trace_cut_anywhere_gives_its_whole_frames_and_says_cut),
		cmocka_unit_test(a_flipped_bit_is_noticed_or_does_no_harm),
		cmocka_unit_test(a_damaged_frame_is_named_and_the_next_is_read),
		cmocka_unit_test(a_pipe_reads_like_a_file),
		cmocka_unit_test(a_pipe_has_no_frames_to_list),
		cmocka_unit_test(joined_traces_are_read_one_after_the_other),
		cmocka_unit_test(a_growing_trace_is_followed),
		cmocka_unit_test(a_recorder_that_is_gone_leaves_a_cut),
		cmocka_unit_test(frames_are_listed_and_sought),
		cmocka_unit_test(only_the_fields_asked_for_are_there),
		cmocka_unit_test(what_is_no_trace_is_refused_with_a_sentence),
		cmocka_unit_test(zstd_accepts_every_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
