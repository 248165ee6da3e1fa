/* SPDX-License-Identifier: MIT */
/*
 * wake.c - one record every millisecond: how long until its reader has it, and what does the wake
 * cost its writer? A sleeping and a dozing collector, each way it can wait, against a pipe.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "base/clock.h"
#include "bench/rig.h"
#include "collector/collector.h"

#define SAMPLES 600u
#define WARM_UP 30u
#define GAP_US  1000u

enum { WAKE_P50_US, WAKE_P99_US, WAKE_WRITE_NS };
static const struct spr_bench_figure wake_figures[] = {
	{ "us_to_delivery", "us to delivery" },
	{ "us_to_delivery_p99", "us p99" },
	{ "write_ns", "ns, the write" },
};

struct way {
	const char *disable; /* as SPARRING_DISABLE */
	uint32_t    flags;
	bool        dozes; /* all the time; else it sleeps at once */
	bool        loop;  /* waits in poll(2) for the collector's descriptor */
	bool        crowded; /* two threads that compute beside it, as compressors do */
};

struct shared {
	uint32_t n; /* reader's */
	double latency_us[SAMPLES + WARM_UP];
	double write_ns[SAMPLES + WARM_UP]; /* writer's */
};

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void figures_make(struct shared *s, double *figures)
{
	qsort(s->latency_us + WARM_UP, SAMPLES, sizeof(double), by_size);
	qsort(s->write_ns + WARM_UP, SAMPLES, sizeof(double), by_size);
	figures[WAKE_P50_US] = s->latency_us[WARM_UP + SAMPLES / 2];
	figures[WAKE_P99_US] = s->latency_us[WARM_UP + SAMPLES * 99 / 100];
	figures[WAKE_WRITE_NS] = s->write_ns[WARM_UP + SAMPLES / 2];
}

static void sample_take(struct shared *s, const void *data)
{
	uint64_t tick;

	memcpy(&tick, data, sizeof(tick));
	if (s->n < SAMPLES + WARM_UP)
		s->latency_us[s->n] = (double)(spr_clock_ticks() - tick) *
		                      spr_bench_ns_per_tick() / 1e3;
	s->n++;
}

static int wake_put(void *arg, spr_batch *b)
{
	struct spr_record rec;

	while (spr_batch_next(b, &rec) > 0)
		sample_take(arg, rec.data);
	return 0;
}

/* --- The writer's process --------------------------------------------------------------- */

static void writer_run(struct shared *s, const char *address, int fd)
{
	spr_producer *p = NULL;
	spr_writer *w = NULL;

	if (address) {
		if (spr_attach(&p, address))
			_exit(1);
		w = spr_writer_here(p);
	}
	for (unsigned i = 0; i < SAMPLES + WARM_UP; i++) {
		spr_bench_sleep_us(GAP_US);
		const uint64_t tick = spr_clock_ticks();
		const int bad = w ? spr_write(w, 0, &tick, sizeof(tick))
		                  : write(fd, &tick, sizeof(tick)) != sizeof(tick);
		s->write_ns[i] = (double)(spr_clock_ticks() - tick) * spr_bench_ns_per_tick();
		if (bad)
			_exit(1);
	}
	_exit(0);
}

static pid_t writer_start(struct shared *s, const char *address, int fd)
{
	const pid_t pid = fork();

	if (pid == 0) {
		spr_bench_pin(0, false);
		writer_run(s, address, fd);
	}
	return pid;
}

static int writer_end(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		return spr_bench_say(-EIO, "the writer failed");
	return 0;
}

static struct shared *shared_make(void)
{
	void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
	                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	spr_bench_ns_per_tick();
	return at == MAP_FAILED ? NULL : at;
}

/* --- The readers -------------------------------------------------------------------------- */

static int pipe_measure(const struct spr_bench_arm *arm, double *figures)
{
	struct shared *s = shared_make();
	uint64_t tick;
	int fds[2];

	(void)arm;
	if (!s || pipe(fds))
		return -ENOMEM;
	const pid_t pid = writer_start(s, NULL, fds[1]);
	spr_bench_pin(1, false);
	while (s->n < SAMPLES + WARM_UP && read(fds[0], &tick, sizeof(tick)) == sizeof(tick))
		sample_take(s, &tick);
	figures_make(s, figures);
	return writer_end(pid);
}

static int collect(spr_collector *c, const struct way *way, const struct shared *s)
{
	struct pollfd fd = { .fd = way->loop ? spr_collector_fd(c) : -1, .events = POLLIN };
	int64_t n = 0;

	while (s->n < SAMPLES + WARM_UP && n >= 0) {
		if (way->loop)
			poll(&fd, 1, -1);
		n = spr_collector_step(c, way->loop ? 0 : -1);
	}
	return n < 0 ? (int)n : 0;
}

static pid_t crowd_start(unsigned idx)
{
	const pid_t pid = fork();

	if (pid == 0) {
		spr_bench_pin(idx, true);
		for (;;)
			spr_compiler_barrier();
	}
	return pid;
}

static int ring_measure(const struct spr_bench_arm *arm, double *figures)
{
	const struct way *way = arm->arg;
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	struct spr_sink sink = SPR_SINK_INIT;
	struct shared *s = shared_make();
	spr_collector *c;
	spr_channel *ch;
	pid_t crowd[2];
	int err;

	if (way->disable)
		setenv("SPARRING_DISABLE", way->disable, 1);
	opt.flags = SPR_UNSTAMPED;
	sink.arg = s;
	sink.put = wake_put;
	err = s ? spr_channel_open(&ch, "ring:", &opt) : -ENOMEM;
	if (!err)
		err = spr_collector_open(&c, way->flags);
	if (!err)
		err = spr_collector_add(c, ch, &sink);
	if (err)
		return spr_bench_say(err, "%s", spr_error_text());
	if (way->disable && c->waiter->hears_words)
		return spr_bench_say(-EINVAL, "SPARRING_DISABLE came too late");
	c->doze_ns = way->dozes ? SPR_NEVER : 0;
	for (unsigned i = 0; way->crowded && i < 2; i++)
		crowd[i] = crowd_start(i);
	const pid_t pid = writer_start(s, spr_channel_address(ch), -1);
	spr_bench_pin(1, false);
	err = collect(c, way, s);
	for (unsigned i = 0; way->crowded && i < 2; i++) {
		kill(crowd[i], SIGKILL);
		waitpid(crowd[i], NULL, 0);
	}
	figures_make(s, figures);
	err = err ? err : writer_end(pid);
	err = err ? err : spr_collector_close(c);
	return err ? err : spr_channel_close(ch);
}

#define RING_ARM(text, ...) \
	{ .name = (text), .measure = ring_measure, .transport = "ring", .mode = "wake", \
	  .record_bytes = 8, .writers = 1, .arg = &(const struct way){ __VA_ARGS__ } }

static const struct spr_bench_arm wake_arms[] = {
	{ .name = "pipe", .measure = pipe_measure, .transport = "pipe", .mode = "wake",
	  .record_bytes = 8, .writers = 1 },
	RING_ARM("io_uring", .flags = 0),
	RING_ARM("io_uring and a listener", .disable = "io_uring_futex"),
	RING_ARM("plain", .flags = SPR_PLAIN),
	RING_ARM("io_uring, in a poll loop", .loop = true),
	RING_ARM("plain, in a poll loop", .flags = SPR_PLAIN, .loop = true),
	RING_ARM("io_uring, dozing", .dozes = true),
	RING_ARM("plain, dozing", .flags = SPR_PLAIN, .dozes = true),
	RING_ARM("io_uring, CPUs busy", .crowded = true),
	RING_ARM("io_uring, dozing, CPUs busy", .dozes = true, .crowded = true),
};

static const struct spr_bench_claim wake_claims[] = {
	{ .what = "io_uring / pipe", .a = "io_uring", .b = "pipe",
	  .want = SPR_BENCH_AT_MOST, .target = 1 },
	{ .what = "io_uring / pipe, the write", .figure = WAKE_WRITE_NS, .a = "io_uring",
	  .b = "pipe" },
	{ .what = "plain / io_uring", .a = "plain", .b = "io_uring" },
	{ .what = "listener / futex in io_uring", .a = "io_uring and a listener", .b = "io_uring" },
	{ .what = "in a poll loop / in step()", .a = "io_uring, in a poll loop", .b = "io_uring" },
};

static const struct spr_bench_group groups[] = {
	{ .name = "wake", .question = "a record for a reader that waits", .rounds = 3,
	  .figures = wake_figures, .n_figures = SPR_BENCH_N(wake_figures), .arms = wake_arms,
	  .n_arms = SPR_BENCH_N(wake_arms), .claims = wake_claims,
	  .n_claims = SPR_BENCH_N(wake_claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("wake", groups, SPR_BENCH_N(groups), argc, argv);
}
