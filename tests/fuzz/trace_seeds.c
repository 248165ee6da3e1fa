/* SPDX-License-Identifier: MIT */
/*
 * trace_seeds.c - the seeds of trace_read.c, and the program that made them:
 *
 *	cc -DMAIN -I. -Iinclude -D_GNU_SOURCE -o seeds tests/fuzz/trace_seeds.c \
 *	    build/libsparring.a -lzstd -luring -pthread && ./seeds tests/fuzz/corpus/trace_read
 */
#include "tests/fuzz/trace_seeds.h"

static const struct spr_field a_fields[] = {
	{ .name = "op", .type = SPR_U8 },
	{ .name = "at", .type = SPR_HEX64 },
	{ .name = "name", .type = SPR_STRING, .flags = SPR_OPTIONAL },
	{ .name = "size", .type = SPR_U64, .flags = SPR_OPTIONAL },
};
static const struct spr_field b_fields[] = {
	{ .name = "args", .type = SPR_STRING, .flags = SPR_LIST },
	{ .name = "raw", .type = SPR_BYTES },
	{ .name = "n", .type = SPR_I32 },
	{ .name = "m", .type = SPR_U16 },
};
const struct spr_kind trace_seed_kinds[2] = { { "a", a_fields, 4, 0 }, { "b", b_fields, 4, 0 } };

#ifdef MAIN
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

struct out {
	uint8_t bytes[1 << 20];
	size_t  n;
};

static int out_write(void *arg, const void *bytes, size_t n)
{
	struct out *o = arg;

	memcpy(o->bytes + o->n, bytes, n);
	o->n += n;
	return 0;
}

static void file_write(const char *folder, const char *name, int mode, const uint8_t *bytes,
                       size_t n)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "wb");
	if (!f)
		exit(1);
	fputc(mode, f);
	fwrite(bytes, 1, n, f);
	fclose(f);
}

static void records_put(spr_encoder *e, uint64_t n)
{
	static const char *const names[] = { "/usr/include/stdio.h", "/usr/include/stdlib.h",
		                             "/tmp", "" };

	for (uint64_t i = 0; i < n; i++) {
		uint8_t data[200] = { (uint8_t)(i % 3) }, *at = data + 1;
		const uint64_t addr = 0x7f0000001000 + 32 * (i % 7);
		struct spr_record rec = { .data = data, .time_ns = 1000 + 10 * i, .seq = i / 3,
			                  .writer = i % 3, .pid = 5, .tid = (int32_t)(i % 3),
			                  .flags = SPR_HAS_ID, .kind = (uint16_t)(1 + i % 2) };
		const uint16_t n_name = (uint16_t)strlen(names[i % 4]), n_args = (uint16_t)(i % 3);

		if (i % 2 == 0) {
			memcpy(at, &addr, 8);
			at += 8;
			*at++ = 1;
			memcpy(at, &n_name, 2);
			memcpy(at + 2, names[i % 4], n_name);
			at += 2 + n_name;
			*at++ = 0;
		} else {
			at = data;
			memcpy(at, &n_args, 2);
			at += 2;
			for (uint16_t k = 0; k < n_args; k++, at += 4)
				memcpy(at, "\2\0-c", 4);
			memcpy(at, "\3\0abc\377\377\377\377\7\0", 11);
			at += 11;
		}
		rec.bytes = (uint32_t)(at - data);
		if (i % 10 == 9)
			rec.kind = 0;
		if (spr_encoder_put(e, &rec, 1, NULL, NULL))
			exit(1);
	}
}

int main(int argc, char **argv)
{
	static const uint64_t sizes[] = { 0, 1, 40 };
	static struct out o;
	char name[20];

	if (argc != 2)
		return 64;
	for (unsigned i = 0; i < 3; i++) {
		struct spr_encoder_options opt = SPR_ENCODER_OPTIONS_INIT;
		uint8_t content[100000];
		size_t n;
		spr_encoder *e;
		uint32_t at;

		o.n = 0;
		opt.write = out_write;
		opt.arg = &o;
		opt.kinds = trace_seed_kinds;
		opt.n_kinds = 2;
		opt.frame_records = 25;
		if (spr_encoder_open(&e, &opt))
			return 1;
		records_put(e, sizes[i]);
		if (spr_encoder_close(e, NULL))
			return 1;
		for (int mode = 0; mode < 3; mode++) {
			snprintf(name, sizeof(name), "trace_%u_%d", i, mode);
			file_write(argv[1], name, mode, o.bytes, o.n);
		}
		memcpy(&at, o.bytes + 4, 4); /* the first frame's content, behind header and SPRF */
		at += 8;
		memcpy(&opt.size, o.bytes + at + 4, 4);
		at += 8 + opt.size;
		n = ZSTD_decompress(content, sizeof(content), o.bytes + at,
		                    ZSTD_findFrameCompressedSize(o.bytes + at, o.n - at));
		if (ZSTD_isError(n))
			return 1;
		snprintf(name, sizeof(name), "content_%u", i);
		file_write(argv[1], name, 3, content, n);
	}
	return 0;
}
#endif
