/* SPDX-License-Identifier: MIT */
/*
 * trace.c - from the ring into a compressed file: how much of a flood of 64-byte records does the
 * whole path take, and which half of it is the limit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/ring_carrier.h"
#include "transport/transport.h"

#define TRACE_RECORDS (2u << 20) /* of all writers */

static const struct spr_field sample_fields[8] = {
	{ .name = "number", .type = SPR_U64 }, { .name = "address", .type = SPR_HEX64 },
	{ .name = "size", .type = SPR_U64 },   { .name = "thread", .type = SPR_U64 },
	{ .name = "caller", .type = SPR_HEX64 }, { .name = "count", .type = SPR_U64 },
	{ .name = "flags", .type = SPR_U64 },  { .name = "old", .type = SPR_HEX64 },
};
static const struct spr_kind sample_kind = { .name = "sample", .fields = sample_fields,
	                                     .n_fields = 8 };

/* Something like allocations: addresses of a heap of 16 MiB, few sizes, few callers, and nothing a
 * compressor could guess from the number. */
static void sample_fill(struct spr_bench_record *record, uint64_t number)
{
	uint64_t hash = number * 0x9E3779B97F4A7C15ull;

	hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
	hash ^= hash >> 31;
	record->number = number;
	record->fill[0] = 0x7f3200000000ull + (hash & 0xfffff0);
	record->fill[1] = 16ull << (hash >> 24 & hash >> 27 & 7);
	record->fill[2] = 4711;
	record->fill[3] = 0x55d000001000ull + (hash >> 32 & hash >> 40 & 63) * 48;
	record->fill[4] = number >> 3;
	record->fill[5] = hash >> 60 == 0;
	record->fill[6] = hash >> 60 == 0 ? 0x7f3200000000ull + (hash >> 8 & 0xfffff0) : 0;
}

struct trace { /* rig->shared of the reader's process */
	spr_encoder    *encoder;
	struct spr_sink sink; /* the encoder's own */
	int             fd;
	char            path[PATH_MAX];
};

static int trace_open(struct trace *trace)
{
	struct spr_encoder_options opt = SPR_ENCODER_OPTIONS_INIT;

	snprintf(trace->path, sizeof(trace->path), "%s/trace-%d.spr",
	         spr_bench_disk() ? spr_bench_disk() : spr_bench_tmpfs(), getpid());
	trace->fd = open(trace->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (trace->fd < 0)
		return -errno;
	opt.fd = trace->fd;
	opt.kinds = &sample_kind;
	opt.n_kinds = 1;
	return spr_encoder_open(&trace->encoder, &opt);
}

/* Read it back: every record must be in it. */
static int trace_check(struct trace *trace, struct spr_bench_rig *rig)
{
	struct spr_record rec;
	spr_trace *t;
	uint64_t number;
	int err;

	if (lseek(trace->fd, 0, SEEK_SET))
		return -errno;
	rig->n_read = rig->sum = 0;
	err = spr_trace_open(&t, trace->fd, NULL);
	if (err)
		return err;
	while ((err = spr_trace_next(t, &rec)) > 0) {
		memcpy(&number, rec.data, sizeof(number));
		rig->sum += number;
		rig->n_read++;
	}
	spr_trace_close(t);
	return err;
}

static uint64_t trace_bytes(const struct trace *trace)
{
	struct stat st;

	return fstat(trace->fd, &st) ? 0 : (uint64_t)st.st_size;
}

static void trace_remove(struct trace *trace)
{
	close(trace->fd);
	unlink(trace->path);
}

/* --- As a carrier: ring, collector, encoder ------------------------------------------- */

static int sink_put(void *arg, spr_batch *b)
{
	struct spr_bench_rig *rig = arg;
	struct trace *trace = rig->shared;
	const uint64_t n = b->n_records; /* a batch that is kept may be gone when put returns */
	const int ret = trace->sink.put(trace->sink.arg, b);

	if (ret >= 0)
		rig->n_read += n;
	return ret;
}

static int sink_tick(void *arg, uint64_t until_ns)
{
	const struct trace *trace = ((struct spr_bench_rig *)arg)->shared;

	return trace->sink.tick ? trace->sink.tick(trace->sink.arg, until_ns) : 0;
}

static int sink_gone(void *arg, uint64_t writer, uint64_t written, uint64_t lost)
{
	const struct trace *trace = ((struct spr_bench_rig *)arg)->shared;

	return trace->sink.gone ? trace->sink.gone(trace->sink.arg, writer, written, lost) : 0;
}

static void sink_bind(void *arg, spr_collector *c)
{
	const struct trace *trace = ((struct spr_bench_rig *)arg)->shared;

	if (trace->sink.bind)
		trace->sink.bind(trace->sink.arg, c);
}

static int path_open(struct spr_bench_rig *rig)
{
	struct trace *trace = calloc(1, sizeof(*trace));
	struct spr_sink sink = SPR_SINK_INIT;
	int err = trace ? trace_open(trace) : -ENOMEM;

	rig->shared = trace;
	if (!err)
		trace->sink = (struct spr_sink)SPR_SINK_INIT;
	sink.arg = rig;
	sink.put = sink_put;
	sink.tick = sink_tick;
	sink.gone = sink_gone;
	sink.bind = sink_bind;
	if (!err)
		err = spr_bench_ring_open(rig);
	if (!err)
		err = spr_encoder_sink(trace->encoder, &trace->sink);
	return err ? err : spr_bench_ring_collect(rig, &sink);
}

static int ring_open(struct spr_bench_rig *rig)
{
	const int err = spr_bench_ring_open(rig);

	return err ? err : spr_bench_ring_collect(rig, NULL);
}

static int path_close(struct spr_bench_rig *rig)
{
	struct spr_bench_ring *ring = rig->reader;
	struct trace *trace = rig->shared;
	const double from = spr_bench_now_ns(), cpu = spr_bench_cpu_ns();
	int err = spr_channel_seal(ring->channel);
	int64_t n = 0;

	while (!err && n >= 0) /* the last batches, and the tick that gives the kept ones back */
		n = spr_collector_step(ring->collector, 100);
	if (!err && n != -ENODATA)
		err = (int)n;
	/* The collector first: it takes leave of the sink, which the encoder's close ends. */
	if (!err)
		err = spr_collector_close(ring->collector);
	ring->collector = NULL;
	if (!err)
		err = spr_encoder_close(trace->encoder, NULL);
	rig->wall_ns += spr_bench_now_ns() - from;
	rig->read_cpu_ns += spr_bench_cpu_ns() - cpu;
	rig->left_bytes = trace_bytes(trace);
	if (!err)
		err = spr_bench_ring_close(rig);
	if (!err)
		err = trace_check(trace, rig);
	trace_remove(trace);
	return err;
}

static int sample_write(struct spr_bench_rig *rig, unsigned idx, uint64_t first, uint64_t n)
{
	spr_writer *w = rig->mine[idx];
	struct spr_bench_record record;
	int err = 0;

	for (uint64_t i = 0; i < n && !err; i++) {
		sample_fill(&record, first + i);
		err = spr_write(w, 1, &record, sizeof(record));
	}
	return err;
}

static const struct spr_bench_carrier ring_alone = {
	.name = "ring", .open = ring_open, .read = spr_bench_ring_read,
	.close = spr_bench_ring_close, .attach = spr_bench_ring_attach, .write = sample_write,
};
static const struct spr_bench_carrier whole_path = {
	.name = "ring to trace", .open = path_open, .read = spr_bench_ring_read,
	.close = path_close, .attach = spr_bench_ring_attach, .write = sample_write,
};

/* --- Arms ------------------------------------------------------------------------------ */

enum { TRACE_MREC, TRACE_CPU_NS, TRACE_FELT_NS, TRACE_BYTES };
static const struct spr_bench_figure figures_[] = {
	{ "mrec_per_s", "M records/s" },
	{ "cpu_ns_per_record", "ns CPU/record, all" },
	{ "ns_per_record", "ns/record felt" },
	{ "bytes_per_record", "bytes/record in the file" },
};

static int path_measure(const struct spr_bench_arm *arm, double *figures)
{
	static struct spr_bench_plan plan;
	struct spr_bench_rig *rig;
	double cpu;
	int err;

	plan = *(const struct spr_bench_plan *)arm->arg;
	plan.place = spr_bench_tmpfs();
	plan.records = TRACE_RECORDS / plan.writers;
	plan.bursts = 1;
	plan.kinds = &sample_kind;
	plan.n_kinds = 1;
	err = spr_bench_rig_run(&plan, &rig);
	if (err)
		return err;
	cpu = rig->read_cpu_ns;
	figures[TRACE_FELT_NS] = 0;
	for (unsigned i = 0; i < plan.writers; i++) {
		cpu += rig->writer[i].cpu_ns;
		figures[TRACE_FELT_NS] += rig->writer[i].wall_ns / TRACE_RECORDS;
	}
	figures[TRACE_MREC] = 1e3 * TRACE_RECORDS / rig->wall_ns;
	figures[TRACE_CPU_NS] = cpu / TRACE_RECORDS;
	if (rig->left_bytes)
		figures[TRACE_BYTES] = (double)rig->left_bytes / TRACE_RECORDS;
	return 0;
}

/* The encoder fed from memory: what it could take if the ring cost nothing. */
static int encoder_measure(const struct spr_bench_arm *arm, double *figures)
{
	struct spr_bench_record *data = calloc(TRACE_RECORDS, sizeof(*data));
	struct spr_record *recs = calloc(TRACE_RECORDS, sizeof(*recs));
	struct trace *trace = calloc(1, sizeof(*trace));
	double from, cpu;
	int err;

	(void)arm;
	if (!data || !recs || !trace)
		return -ENOMEM;
	for (uint64_t i = 0; i < TRACE_RECORDS; i++) {
		sample_fill(&data[i], i);
		recs[i] = (struct spr_record){ .data = &data[i],
			                       .bytes = sizeof(data[i]),
			                       .kind = 1,
			                       .time_ns = 1000 + i * 20,
			                       .seq = i,
			                       .writer = 1,
			                       .pid = 1,
			                       .tid = 1,
			                       .flags = SPR_HAS_ID };
	}
	err = trace_open(trace);
	from = spr_bench_now_ns();
	cpu = spr_bench_cpu_ns();
	for (uint64_t i = 0; i < TRACE_RECORDS && !err; i += 4096)
		err = spr_encoder_put(trace->encoder, recs + i, 4096, NULL, NULL);
	err = err ? err : spr_encoder_close(trace->encoder, NULL);
	figures[TRACE_MREC] = 1e3 * TRACE_RECORDS / (spr_bench_now_ns() - from);
	figures[TRACE_CPU_NS] = (spr_bench_cpu_ns() - cpu) / TRACE_RECORDS;
	figures[TRACE_BYTES] = (double)trace_bytes(trace) / TRACE_RECORDS;
	trace_remove(trace);
	return err ? spr_bench_say(err, "encoder: %s", strerror(-err)) : 0;
}

#define TRACE_ARM(text, carry, n_writers) \
	{ .name = (text), .measure = path_measure, .transport = "ring", .mode = "flood", \
	  .record_bytes = 64, .writers = (n_writers), \
	  .arg = &(const struct spr_bench_plan){ .carrier = &(carry), .writers = (n_writers) } }

static const struct spr_bench_arm arms[] = {
	TRACE_ARM("ring alone, 1", ring_alone, 1),
	TRACE_ARM("ring alone, 2 processes", ring_alone, 2),
	{ .name = "encoder alone", .measure = encoder_measure, .mode = "flood",
	  .record_bytes = 64 },
	TRACE_ARM("ring to trace, 1", whole_path, 1),
	TRACE_ARM("ring to trace, 2 processes", whole_path, 2),
};

static const struct spr_bench_claim claims[] = {
	{ .what = "ring to trace / encoder alone, M records/s", .a = "ring to trace, 1",
	  .b = "encoder alone" },
	{ .what = "ring alone / encoder alone, M records/s", .a = "ring alone, 1",
	  .b = "encoder alone", .want = SPR_BENCH_AT_LEAST, .target = 1 },
};

static const struct spr_bench_group groups[] = {
	{ .name = "trace", .question = "stamped 64-byte records from the ring into a trace on disk",
	  .rounds = 3, .figures = figures_, .n_figures = SPR_BENCH_N(figures_),
	  .arms = arms, .n_arms = SPR_BENCH_N(arms),
	  .claims = claims, .n_claims = SPR_BENCH_N(claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("trace", groups, SPR_BENCH_N(groups), argc, argv);
}
