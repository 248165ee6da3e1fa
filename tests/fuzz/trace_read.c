/* SPDX-License-Identifier: MIT */
/*
 * trace_read.c - hostile traces. fuzz: also tests/fuzz/trace_seeds.c
 *
 * The first byte says how the rest is read: 0 as a file, 1 as a pipe, 2 as a file with seeking and
 * projection, 3 as the content of a data frame (past zstd, whose own checksum a fuzzer would never
 * get right). Checksums of ours are all right in this build. Nothing is expected but that nothing
 * breaks, and that what is read ends.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "encoder/frame_read.h"
#include "tests/fuzz/trace_seeds.h"

#define RECORDS_MOST 100000u /* of one input: a frame of a million empty ones is slow, not wrong */

static void fields_read(const struct spr_kind *kinds, uint32_t n_kinds,
                        const struct spr_record *rec)
{
	const struct spr_kind *kind = rec->kind && rec->kind <= n_kinds ? &kinds[rec->kind - 1]
	                                                                : NULL;
	volatile uint8_t sum = 0;
	struct spr_value v;

	for (uint32_t i = 0; !spr_record_field(kind, rec, i, &v); i++) {
		for (uint32_t k = 0; v.bytes && k < v.n; k++)
			sum = (uint8_t)(sum + ((const uint8_t *)v.bytes)[k]);
	}
}

static void trace_read(int fd, const struct spr_trace_options *o, int seek)
{
	struct spr_verdict verdict = SPR_VERDICT_INIT;
	struct spr_frame frame;
	struct spr_record rec;
	uint32_t n_kinds, n = 0;
	spr_trace *t;
	int got;

	if (spr_trace_open(&t, fd, o))
		return;
	if (seek) {
		for (uint64_t i = 0; i < 100 && !spr_trace_frame(t, i, &frame); i++)
			;
		(void)!spr_trace_seek(t, 1000);
		(void)!spr_trace_seek_frame(t, 1);
	}
	while ((got = spr_trace_next(t, &rec)) != 0 && n++ < RECORDS_MOST) {
		if (got > 0)
			fields_read(spr_trace_kinds(t, &n_kinds), n_kinds, &rec);
	}
	(void)!spr_trace_verdict(t, &verdict);
	spr_trace_close(t);
}

static void content_read(const uint8_t *data, size_t n)
{
	const struct spr_format_header limits = { .frame_records = 65536, .frame_bytes = 1 << 20 };
	const struct spr_kind_view views[] = {
		{ 0, NULL }, { 1, NULL }, { 2, NULL }, { SPR_KIND_BLIND, NULL }
	};
	struct spr_frame_reader *r;
	struct spr_record rec;
	uint32_t n_read = 0;

	if (n < 4 || spr_frame_reader_open(&r, trace_seed_kinds, 2, views))
		return;
	if (!spr_frame_reader_begin(r, &limits, data, n, spr_get32(data) % 65536)) {
		while (spr_frame_reader_next(r, &rec) > 0 && n_read++ < RECORDS_MOST)
			fields_read(trace_seed_kinds, 2, &rec);
	}
	spr_frame_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const fields[] = { "a.name" };
	struct spr_trace_options o = SPR_TRACE_OPTIONS_INIT;
	int ends[2];

	if (n < 1)
		return 0;
	if (data[0] == 3) {
		content_read(data + 1, n - 1);
	} else if (data[0] == 1 && n < 60000) {
		if (pipe(ends))
			return 0;
		if (write(ends[1], data + 1, n - 1) == (ssize_t)(n - 1)) {
			close(ends[1]);
			trace_read(ends[0], NULL, 0);
		} else {
			close(ends[1]);
		}
		close(ends[0]);
	} else if (data[0] < 3) {
		const int fd = memfd_create("fuzz", MFD_CLOEXEC);

		if (data[0] == 2) {
			o.fields = fields;
			o.n_fields = 1;
		}
		if (write(fd, data + 1, n - 1) == (ssize_t)(n - 1) && !lseek(fd, 0, SEEK_SET))
			trace_read(fd, &o, data[0] == 2);
		close(fd);
	}
	return 0;
}
