/* SPDX-License-Identifier: MIT */
/* trace_support.c - see trace_support.h. */
#include "tests/trace_support.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int test_bytes_write(void *arg, const void *bytes, size_t n)
{
	struct test_bytes *b = arg;

	if (b->delay_us)
		usleep(b->delay_us);
	if (b->n + n > b->room) {
		b->room = 2 * (b->n + n);
		b->bytes = realloc(b->bytes, b->room);
		check(b->bytes);
	}
	b->n_writes_after_failure += b->failed;
	if (b->fail_at && b->n + n > b->fail_at) { /* as a disk does that fills up */
		memcpy(b->bytes + b->n, bytes, b->fail_at - b->n);
		b->n = b->fail_at;
		b->failed = true;
		return -ENOSPC;
	}
	memcpy(b->bytes + b->n, bytes, n);
	b->n += n;
	return 0;
}

void test_bytes_release(struct test_bytes *b)
{
	free(b->bytes);
	*b = (struct test_bytes){ 0 };
}

int test_bytes_fd(const void *bytes, size_t n)
{
	const int fd = memfd_create("trace", MFD_CLOEXEC);

	check(fd >= 0);
	check(write(fd, bytes, n) == (ssize_t)n);
	check(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

int test_bytes_pipe(const void *bytes, size_t n, pid_t *child)
{
	int ends[2];

	check(!pipe(ends));
	*child = fork();
	check(*child >= 0);
	if (!*child) {
		const uint8_t *at = bytes;

		close(ends[0]);
		while (n) {
			const ssize_t put = write(ends[1], at, n < 1000 ? n : 1000);

			if (put <= 0)
				_exit(1);
			at += put;
			n -= (size_t)put;
		}
		_exit(0);
	}
	close(ends[1]);
	return ends[0];
}

/* --- Records ---------------------------------------------------------------------------------- */

void test_records_add(struct test_records *r, const struct spr_record *rec)
{
	void *data = malloc(rec->bytes ? rec->bytes : 1);

	check(data);
	if (r->n == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->recs = realloc(r->recs, r->room * sizeof(*r->recs));
		check(r->recs);
	}
	if (rec->bytes)
		memcpy(data, rec->data, rec->bytes);
	r->recs[r->n] = *rec;
	r->recs[r->n++].data = data;
}

void test_records_release(struct test_records *r)
{
	for (size_t i = 0; i < r->n; i++)
		free((void *)(uintptr_t)r->recs[i].data);
	free(r->recs);
	*r = (struct test_records){ 0 };
}

void test_record_same(const struct spr_record *a, const struct spr_record *b, size_t at)
{
	if (a->kind == b->kind && a->bytes == b->bytes && a->time_ns == b->time_ns &&
	    a->seq == b->seq && a->writer == b->writer && a->pid == b->pid && a->tid == b->tid &&
	    a->flags == b->flags && (!a->bytes || !memcmp(a->data, b->data, a->bytes)))
		return;
	fail_msg("record %zu: kind %u/%u, %u/%u bytes, time %llu/%llu, seq %llu/%llu, writer "
	         "%llu/%llu, "
	         "pid %d/%d, tid %d/%d, flags %u/%u differ, or the bytes do",
	         at, a->kind, b->kind, a->bytes, b->bytes, (unsigned long long)a->time_ns,
	         (unsigned long long)b->time_ns, (unsigned long long)a->seq,
	         (unsigned long long)b->seq, (unsigned long long)a->writer,
	         (unsigned long long)b->writer, a->pid, b->pid, a->tid, b->tid, a->flags, b->flags);
}

/* --- Kinds and records from a seed ------------------------------------------------------------ */

static uint64_t below(uint64_t *random, uint64_t n)
{
	return test_random(random) % n;
}

void test_kinds_make(struct test_kinds *k, uint64_t *random)
{
	memset(k, 0, sizeof(*k));
	k->n = (uint32_t)below(random, 9);
	for (uint32_t i = 0; i < k->n; i++) {
		struct spr_kind *kind = &k->kinds[i];

		snprintf(k->names[i][8], 16, "k%u", i);
		*kind = (struct spr_kind){ k->names[i][8], k->fields[i], (uint32_t)below(random, 9),
			                   0 };
		for (uint32_t j = 0; j < kind->n_fields; j++) {
			struct spr_field *f = &k->fields[i][j];

			snprintf(k->names[i][j], 16, "f%u", j);
			f->name = k->names[i][j];
			f->type = (uint32_t)(1 + below(random, SPR_BYTES));
			f->flags = below(random, 3) ? 0 : SPR_OPTIONAL;
			if (f->type >= SPR_STRING && !below(random, 3))
				f->flags |= SPR_LIST;
		}
	}
}

static uint8_t *text_make(uint8_t *at, uint64_t *random)
{
	static const char *const words[] = { "/usr", "/lib",    "/include", "/x",
		                             "",     "stdio.h", "a\xff\0b" };
	uint8_t *const length = at;
	uint16_t n = 0;

	at += 2;
	if (!below(random, 50)) {
		n = (uint16_t)below(random, 2000);
		for (uint16_t i = 0; i < n; i++)
			at[i] = (uint8_t)test_random(random);
	} else {
		for (uint64_t words_left = below(random, 6); words_left; words_left--) {
			const char *word = words[below(random, 7)];
			const size_t n_word = strlen(word);

			memcpy(at + n, word, n_word);
			n = (uint16_t)(n + n_word);
		}
	}
	memcpy(length, &n, 2);
	return at + n;
}

static uint8_t *field_make(uint8_t *at, const struct spr_field *f, uint64_t *random)
{
	static const uint8_t widths[] = { 0, 1, 2, 4, 8, 4, 8, 8 };
	uint64_t value = test_random(random) >> below(random, 64);

	if (f->flags & SPR_OPTIONAL) {
		*at = (uint8_t)below(random, 2);
		if (!*at++)
			return at;
	}
	if (f->type < SPR_STRING) {
		memcpy(at, &value, widths[f->type]);
		return at + widths[f->type];
	}
	value = 1;
	if (f->flags & SPR_LIST) {
		value = below(random, 5);
		memcpy(at, &value, 2);
		at += 2;
	}
	while (value--)
		at = text_make(at, random);
	return at;
}

void test_record_make(struct spr_record *rec, const struct test_kinds *k, uint16_t kind,
                      uint8_t *out, uint64_t *random)
{
	static const struct spr_field blind[] = {
		{ .type = SPR_U32 }, { .type = SPR_STRING }, { .type = SPR_STRING },
	};
	const struct spr_field *fields = kind == SPR_KIND_BLIND ? blind
	                                 : kind                 ? k->kinds[kind - 1].fields
	                                                        : NULL;
	const uint32_t n = kind == SPR_KIND_BLIND ? 3 : kind ? k->kinds[kind - 1].n_fields : 0;
	uint8_t *at = out;

	if (!kind) {
		const uint64_t n_bytes = below(random, 100) ? below(random, 60)
		                                            : below(random, 65537);

		memset(at, (int)below(random, 256), n_bytes);
		at += n_bytes;
	}
	for (uint32_t i = 0; i < n; i++)
		at = field_make(at, &fields[i], random);
	rec->kind = kind;
	rec->data = out;
	rec->bytes = (uint32_t)(at - out);
}

void test_records_make(struct test_records *r, const struct test_kinds *k, size_t n,
                       uint32_t n_writers, uint64_t *random)
{
	uint64_t *seqs = calloc(n_writers, sizeof(*seqs)), time = test_random(random) >> 20;
	uint8_t *bytes = malloc(1 << 20);

	check(seqs && bytes);
	for (size_t i = 0; i < n; i++) {
		const uint32_t writer = (uint32_t)below(random, n_writers);
		const uint64_t which = below(random, k->n + 2);
		struct spr_record rec = { .writer = 1000 + writer, .pid = (int32_t)(writer / 2) - 1,
			                      .tid = (int32_t)writer };

		test_record_make(&rec, k, which == k->n + 1 ? SPR_KIND_BLIND : (uint16_t)which,
		                 bytes, random);
		time += below(random, 4) ? below(random, 1000) : 0;
		rec.time_ns = time;
		seqs[writer] += below(random, 20) ? 0 : below(random, 5); /* what was lost */
		rec.seq = seqs[writer]++;
		rec.flags = (uint16_t)((below(random, 30) ? 0 : SPR_LATE) |
		                       (writer % 3 ? SPR_HAS_ID : 0));
		if (!below(random, 40))
			rec.tid++; /* about another task */
		test_records_add(r, &rec);
	}
	free(seqs);
	free(bytes);
}

void test_encode(struct test_bytes *out, const struct spr_encoder_options *opt,
                 const struct test_kinds *k, const struct test_records *r, size_t tick_every)
{
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	spr_encoder *e;
	size_t at = 0;

	if (opt)
		o = *opt;
	o.kinds = k->kinds;
	o.n_kinds = k->n;
	o.write = test_bytes_write;
	o.arg = out;
	assert_int_equal(spr_encoder_open(&e, &o), 0);
	while (at < r->n) {
		const size_t step = tick_every && tick_every < r->n - at ? tick_every : r->n - at;

		assert_int_equal(spr_encoder_put(e, r->recs + at, step, NULL, NULL), 0);
		at += step;
		if (tick_every)
			assert_int_equal(
				spr_encoder_tick(e, at < r->n ? r->recs[at].time_ns : UINT64_MAX),
				0);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
}
