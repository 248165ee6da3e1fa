/* SPDX-License-Identifier: MIT */
/*
 * trace_support.h - records and kinds made up from a seed, traces in memory, and a list of records
 * that tells the truth.
 */
#ifndef SPR_TESTS_TRACE_SUPPORT_H
#define SPR_TESTS_TRACE_SUPPORT_H

#include <sparring/sparring.h>

#include "tests/support.h"

/* Where an encoder writes in these tests. */
struct test_bytes {
	uint8_t *bytes;
	size_t   n, room;
	size_t   fail_at; /* a write that would go beyond fails with -ENOSPC; 0: never */
	unsigned delay_us;
	bool     failed;
	unsigned n_writes_after_failure;
};
int  test_bytes_write(void *arg, const void *bytes, size_t n);
void test_bytes_release(struct test_bytes *b);
/* A file with these bytes, without a name; close() it. */
int test_bytes_fd(const void *bytes, size_t n);
/* The read end of a pipe through which a child sends them; *child is to be waited for. */
int test_bytes_pipe(const void *bytes, size_t n, pid_t *child);

/* Records that have been put, each with its own bytes. */
struct test_records {
	struct spr_record *recs;
	size_t             n, room;
};
/* A copy. */
void test_records_add(struct test_records *r, const struct spr_record *rec);
void test_records_release(struct test_records *r);
/* Fails the case with a sentence at the first difference. */
void test_record_same(const struct spr_record *a, const struct spr_record *b, size_t at);

/* Up to 8 kinds of up to 8 fields, any types and flags. Freed by test_kinds_release. */
struct test_kinds {
	struct spr_kind  kinds[8];
	struct spr_field fields[8][8];
	char             names[8][9][16];
	uint32_t         n;
};
void test_kinds_make(struct test_kinds *k, uint64_t *random);
/* A record of kind `kind` (1.., 0 "bytes", SPR_KIND_BLIND) with random fields. out: 64 KiB. */
void test_record_make(struct spr_record *rec, const struct test_kinds *k, uint16_t kind,
                      uint8_t *out, uint64_t *random);
/* n records of some writers, in the order of their times, each with its writer's seq. */
void test_records_make(struct test_records *r, const struct test_kinds *k, size_t n,
                       uint32_t n_writers, uint64_t *random);

/* Encodes all of r (with a tick behind every tick_every records, 0: none); fails the case when
 * anything fails. opt: may be NULL; its write and arg are set here. */
void test_encode(struct test_bytes *out, const struct spr_encoder_options *opt,
                 const struct test_kinds *k, const struct test_records *r, size_t tick_every);

#endif /* SPR_TESTS_TRACE_SUPPORT_H */
