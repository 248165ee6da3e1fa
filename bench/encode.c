/* SPDX-License-Identifier: MIT */
/*
 * encode.c - what a record costs on its way to the file and back.
 *
 *	build/bench/encode [-n RECORDS] [-w WORKERS] [-l LEVEL] [-k memory|file|bytes] [-r ROUNDS]
 *	                   [-t RECORDS_PER_TICK] [-c]
 *
 * Records are made beforehand from a fixed seed, put without a copy (-c: with one), with a tick
 * behind every 4,096 of them (as a collector's passes would be), written to nowhere. Each row: the
 * median of the rounds. wall and cpu: ns per record, cpu of all threads (user: without the kernel,
 * which gives fresh memory to each round's encoder); bytes: per record, in the file; decode: cpu ns
 *per record through spr_trace_next(). Floors in the same run: a memcpy of the records' bytes, and
 *zstd alone on them, rows as they are.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include <sparring/sparring.h>

#define PAYLOAD_MOST 300u
#define ROUNDS_MOST  64u

struct options {
	size_t      n, tick;
	uint32_t    workers, rounds;
	int         level;
	const char *kind;
	int         copied;
};

struct input {
	struct spr_record *recs;
	uint8_t           *bytes;
	size_t             n, n_bytes;
};

struct row {
	double wall, cpu, user, bytes, decode;
};

static uint64_t state = 0x5350415252494e47;

static uint64_t rnd(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % below;
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t n)
{
	memcpy(at, bytes, n);
	return at + n;
}

static uint8_t *put_text(uint8_t *at, const char *text)
{
	const uint16_t n = (uint16_t)strlen(text);

	return put(put(at, &n, 2), text, n);
}

/* --- Records like those of real programs ------------------------------------------------------ */

/* A heap of a few thousand live blocks in size classes, freed mostly young, from four threads. */
static uint8_t *memory_make(uint8_t *at, uint32_t thread)
{
	static uint64_t live[4][4096], top[4];
	static const uint64_t sizes[] = { 16, 24, 32,  32,  40,  48,   64,  64,
		                          80, 96, 128, 256, 512, 1024, 4096 };
	static uint32_t n_live[4];
	uint64_t size = sizes[rnd(15)], none = 0;

	if (!top[thread])
		top[thread] = 0x7f0000000000 + ((uint64_t)thread << 26) + 0x2a0;
	if (n_live[thread] > 64 && (rnd(2) || n_live[thread] == 4096)) {
		const uint32_t back = (uint32_t)(rnd(8) ? rnd(16) : rnd(n_live[thread]));
		uint64_t *block = &live[thread][n_live[thread] - 1 - back];
		const uint64_t addr = *block;

		*block = live[thread][--n_live[thread]];
		*at++ = 1; /* free */
		at = put(at, &addr, 8);
		return put(at, &none, 2); /* no size, no old_addr */
	}
	if (!rnd(4))
		size += 8 * rnd(64);
	*at++ = rnd(20) ? 0 : 3; /* malloc, calloc */
	live[thread][n_live[thread]++] = top[thread];
	at = put(at, &top[thread], 8);
	top[thread] += (size + 31) & ~15ull;
	if (!rnd(50))
		top[thread] -= 8192 * rnd(64); /* reused */
	*at++ = 1;
	at = put(at, &size, 8);
	*at++ = 0;
	return at;
}

static uint8_t *file_make(uint8_t *at)
{
	static const char *const dirs[] = { "/usr/include",
		                            "/usr/include/x86_64-linux-gnu/bits",
		                            "/usr/lib/gcc/x86_64-linux-gnu/12/include",
		                            "/home/user/project/src",
		                            "/home/user/project/include",
		                            "/usr/local/include",
		                            "/lib/x86_64-linux-gnu",
		                            "/home/user/project/build/obj" };
	static const uint32_t access[] = { 1, 8, 8, 1, 2, 16 };
	char path[PAYLOAD_MOST];
	const uint16_t op = (uint16_t)rnd(5);
	const uint32_t which = (uint32_t)(rnd(4) ? rnd(300) : rnd(6000));

	snprintf(path, sizeof(path), "%s/%s_%u.%s", dirs[which % 8], which % 3 ? "module" : "types",
	         which / 8, which % 5 ? "h" : "c");
	at = put(at, &op, 2);
	at = put(at, &access[rnd(6)], 4);
	at = put_text(at, path);
	*at++ = 0;
	return at;
}

static uint8_t *bytes_make(uint8_t *at)
{
	memset(at, (int)rnd(4), 64);
	memcpy(at, &state, 8);
	return at + 64;
}

static void input_make(struct input *in, const struct options *o)
{
	uint64_t time = 1000000000, seqs[4] = { 0 };
	uint8_t *at;

	in->n = o->n;
	in->recs = calloc(in->n, sizeof(*in->recs));
	in->bytes = at = malloc(in->n * PAYLOAD_MOST);
	if (!in->recs || !in->bytes)
		exit(1);
	for (size_t i = 0; i < in->n; i++) {
		const uint32_t thread = (uint32_t)(i / 8 % 4 * (rnd(10) ? 1 : rnd(2)));
		struct spr_record *r = &in->recs[i];
		uint8_t *const from = at;

		if (!strcmp(o->kind, "memory"))
			at = memory_make(at, thread);
		else
			at = !strcmp(o->kind, "file") ? file_make(at) : bytes_make(at);
		time += 40 + rnd(200) + (rnd(100) ? 0 : rnd(100000));
		*r = (struct spr_record){
			.data = from,
			.bytes = (uint32_t)(at - from),
			.kind = strcmp(o->kind, "bytes") ? 1 : 0,
			.flags = SPR_HAS_ID,
			.time_ns = time,
			.seq = seqs[thread]++,
			.writer = thread + 1,
			.pid = 4242,
			.tid = (int32_t)(4242 + thread),
		};
	}
	in->n_bytes = (size_t)(at - in->bytes);
}

/* --- Measuring -------------------------------------------------------------------------------- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void nothing(void *arg)
{
	(void)arg;
}

static void must(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s (%s)\n", what, strerror(-err), spr_error_text());
	exit(1);
}

static void encode(const struct input *in, const struct options *o, int fd)
{
	struct spr_encoder_options opt = SPR_ENCODER_OPTIONS_INIT;
	spr_encoder *e;
	int err;

	opt.fd = fd;
	opt.workers = o->workers;
	opt.level = o->level;
	opt.kinds = !strcmp(o->kind, "memory") ? &spr_kind_memory : &spr_kinds_files[1];
	opt.n_kinds = 1;
	err = spr_encoder_open(&e, &opt);
	must(err, "open");
	for (size_t at = 0; at < in->n;) {
		const size_t step = in->n - at < o->tick ? in->n - at : o->tick;

		err = spr_encoder_put(e, in->recs + at, step, o->copied ? NULL : nothing, NULL);
		must(err, "put");
		at += step;
		err = spr_encoder_tick(e, at < in->n ? in->recs[at].time_ns : UINT64_MAX);
		must(err, "tick");
	}
	err = spr_encoder_close(e, NULL);
	must(err, "close");
}

static void decode(const struct input *in, int fd)
{
	struct spr_record rec;
	spr_trace *t;
	size_t n = 0;
	int got;

	lseek(fd, 0, SEEK_SET);
	must(spr_trace_open(&t, fd, NULL), "trace");
	while ((got = spr_trace_next(t, &rec)) > 0)
		n++;
	must(got, "next");
	if (n != in->n) {
		fprintf(stderr, "%zu records of %zu came back\n", n, in->n);
		exit(1);
	}
	spr_trace_close(t);
}

static double user(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec * 1e9 + (double)u.ru_utime.tv_usec * 1e3;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(const struct row *rows, uint32_t n, size_t member)
{
	double values[ROUNDS_MOST];

	for (uint32_t i = 0; i < n; i++)
		memcpy(&values[i], (const char *)&rows[i] + member, sizeof(double));
	qsort(values, n, sizeof(values[0]), compare);
	return values[n / 2];
}

static void measure(const struct input *in, const struct options *o)
{
	struct row rows[ROUNDS_MOST];
	const double n = (double)in->n;

	for (uint32_t i = 0; i < o->rounds; i++) {
		const int fd = memfd_create("encode", MFD_CLOEXEC);
		double wall = now(), work = cpu(), in_user = user();

		encode(in, o, fd);
		rows[i].wall = (now() - wall) / n;
		rows[i].cpu = (cpu() - work) / n;
		rows[i].user = (user() - in_user) / n;
		rows[i].bytes = (double)lseek(fd, 0, SEEK_END) / n;
		work = cpu();
		decode(in, fd);
		rows[i].decode = (cpu() - work) / n;
		close(fd);
	}
	printf("%-6s level %2d  workers %2u  wall %6.1f ns  cpu %6.1f ns (user %5.1f)  %6.2f bytes "
	       " decode "
	       "%6.1f ns\n",
	       o->kind, o->level, o->workers, median(rows, o->rounds, offsetof(struct row, wall)),
	       median(rows, o->rounds, offsetof(struct row, cpu)),
	       median(rows, o->rounds, offsetof(struct row, user)),
	       median(rows, o->rounds, offsetof(struct row, bytes)),
	       median(rows, o->rounds, offsetof(struct row, decode)));
}

static void floors(const struct input *in, const struct options *o)
{
	const size_t room = ZSTD_compressBound(in->n_bytes);
	void *to = malloc(room);
	double work, copy;
	size_t n;

	if (!to)
		exit(1);
	memset(to, 1, room);
	work = cpu();
	memcpy(to, in->bytes, in->n_bytes);
	copy = (cpu() - work) / (double)in->n;
	work = cpu();
	n = ZSTD_compress(to, room, in->bytes, in->n_bytes, o->level);
	work = (cpu() - work) / (double)in->n;
	printf("%-6s level %2d  floors: memcpy %.1f ns, zstd of the rows %.1f ns, %.2f bytes (%.1f "
	       "bytes put)\n",
	       o->kind, o->level, copy, work, (double)n / (double)in->n,
	       (double)in->n_bytes / (double)in->n);
	free(to);
}

int main(int argc, char **argv)
{
	struct options o = {
		.n = 1000000, .tick = 4096, .workers = 1, .rounds = 5, .level = 1, .kind = "memory"
	};
	struct input in = { 0 };
	int c;

	while ((c = getopt(argc, argv, "n:w:l:k:r:t:c")) != -1) {
		switch (c) {
		case 'n': o.n = strtoull(optarg, NULL, 0); break;
		case 'w': o.workers = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'l': o.level = (int)strtol(optarg, NULL, 0); break;
		case 'k': o.kind = optarg; break;
		case 'r': o.rounds = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 't': o.tick = strtoull(optarg, NULL, 0); break;
		case 'c': o.copied = 1; break;
		default: return 64;
		}
	}
	if (!o.n || !o.tick || !o.rounds || o.rounds > ROUNDS_MOST)
		return 64;
	input_make(&in, &o);
	floors(&in, &o);
	measure(&in, &o);
	return 0;
}
