/* SPDX-License-Identifier: MIT */
/* trace_test.c - what an encoder wrote is read back: whole, cut, damaged, joined, growing. */
#include "tests/trace_support.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
			while (at < truth->n && (truth->recs[at].seq != rec.seq || truth->recs[at].writer != rec.writer))
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

static struct reading read_bytes(const struct test_bytes *b, const struct test_records *truth, bool may_miss)
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
		test_records_make(&truth, &kinds, test_random(&random) % 5000, 1 + (uint32_t)round % 9, &random);
		o.frame_records = (uint32_t)(test_random(&random) % 3 ? 1 + test_random(&random) % 3000 : 0);
		o.frame_bytes = (uint32_t)(test_random(&random) % 2 ? 1 + test_random(&random) % 100000 : 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_records_of_random_kinds_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
