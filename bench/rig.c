/* SPDX-License-Identifier: MIT */
/* rig.c - start writers, let them go together, read until everything has come, add up. */
#include "bench/rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/stats.h"

double spr_bench_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void spr_bench_sleep_us(uint32_t us)
{
	const struct timespec t = { us / 1000000, (long)(us % 1000000) * 1000 };

	nanosleep(&t, NULL);
}

void spr_bench_sleep_exactly(void)
{
	prctl(PR_SET_TIMERSLACK, 1L);
}

double spr_bench_ns_per_tick(void)
{
	static double ns_per_tick;

	if (ns_per_tick == 0) {
		const double ns = spr_bench_now_ns();
		const uint64_t ticks = spr_clock_ticks();

		spr_bench_sleep_us(5000);
		ns_per_tick = (spr_bench_now_ns() - ns) / (double)(spr_clock_ticks() - ticks);
	}
	return ns_per_tick;
}

/* Bursts of all writers begin at the same tick: sleep most of the gap, spin the rest. The gaps are
 * uneven, by up to half of one, or bursts and the reader's naps would fall into step. */
static void burst_await(const struct spr_bench_rig *rig, unsigned burst)
{
	uint64_t seed = burst + 1;
	const double ahead_us = 60;
	const double uneven = (double)(spr_bench_random(&seed) >> 40) / (1 << 25);
	const uint64_t at = rig->start_tick + (uint64_t)((double)rig->plan->gap_us * 1000 *
	                                                 (burst + 1 + uneven) / rig->ns_per_tick);
	const double left_us = (double)(int64_t)(at - spr_clock_ticks()) * rig->ns_per_tick / 1000;

	if (left_us > ahead_us)
		spr_bench_sleep_us((uint32_t)(left_us - ahead_us));
	while ((int64_t)(at - spr_clock_ticks()) > 0)
		spr_cpu_relax();
}

static int bursts_write(struct spr_bench_rig *rig, unsigned idx)
{
	const struct spr_bench_plan *plan = rig->plan;
	const unsigned n = plan->bursts + plan->warm_up;
	double *ns = calloc(n, sizeof(*ns));
	int err = 0;

	for (unsigned i = 0; ns && i < n && !err; i++) {
		if (plan->gap_us)
			burst_await(rig, i);
		const uint64_t from = spr_clock_ticks();

		err = plan->carrier->write(rig, idx, i * plan->records, plan->records);
		ns[i] = (double)(spr_clock_ticks() - from) * rig->ns_per_tick /
		        (double)plan->records;
	}
	if (ns)
		rig->writer[idx].burst_ns = spr_bench_median_of(ns + plan->warm_up,
		                                                plan->bursts).median;
	free(ns);
	return err;
}

static void writer_run(struct spr_bench_rig *rig, unsigned idx)
{
	int32_t none = 0;
	double cpu, wall;
	int err;

	spr_bench_sleep_exactly();
	spr_bench_pin(idx, rig->plan->one_cpu);
	err = rig->plan->carrier->attach(rig, idx);
	spr_add_relaxed(&rig->n_ready, 1u);
	while (!spr_load_acquire(&rig->go)) /* [GO] */
		spr_bench_sleep_us(50);
	cpu = thread_cpu_ns();
	wall = spr_bench_now_ns();
	if (!err)
		err = bursts_write(rig, idx);
	rig->writer[idx].cpu_ns = thread_cpu_ns() - cpu;
	rig->writer[idx].wall_ns = spr_bench_now_ns() - wall;
	if (err)
		spr_cas_relaxed(&rig->err, &none, err);
	spr_add_acq_rel(&rig->n_done, 1u); /* [DONE] */
}

struct start {
	struct spr_bench_rig *rig;
	unsigned idx;
};

static void *thread_main(void *arg)
{
	const struct start *start = arg;

	writer_run(start->rig, start->idx);
	return NULL;
}

/* One process with a thread per writer. */
static void threads_run(struct spr_bench_rig *rig)
{
	pthread_t thread[SPR_BENCH_WRITERS];
	struct start start[SPR_BENCH_WRITERS];

	for (unsigned i = 0; i < rig->plan->writers; i++) {
		start[i] = (struct start){ rig, i };
		if (pthread_create(&thread[i], NULL, thread_main, &start[i]))
			abort();
	}
	for (unsigned i = 0; i < rig->plan->writers; i++)
		pthread_join(thread[i], NULL);
}

static int writers_start(struct spr_bench_rig *rig, pid_t *pids)
{
	const unsigned n = rig->plan->threads ? 1 : rig->plan->writers;

	for (unsigned i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			return spr_bench_say(-errno, "fork: %s", strerror(errno));
		if (pids[i])
			continue;
		if (rig->plan->threads)
			threads_run(rig);
		else
			writer_run(rig, i);
		_exit(0);
	}
	return (int)n;
}

/* Everything read and everybody done, or an error. A dead writer would leave us waiting: the
 * harness's own limit ends that. */
static int all_read(struct spr_bench_rig *rig, uint64_t want)
{
	const double cpu = spr_bench_cpu_ns();
	const double wall = spr_bench_now_ns();
	int err = 0;

	rig->start_tick = spr_clock_ticks();
	spr_store_release(&rig->go, 1u); /* [GO] */
	while (!err && rig->n_read < want && !rig->plan->carrier->alone &&
	       !spr_load_relaxed(&rig->err))
		err = rig->plan->carrier->read(rig);
	rig->wall_ns = spr_bench_now_ns() - wall;
	rig->read_cpu_ns = spr_bench_cpu_ns() - cpu;
	while (!err && spr_load_acquire(&rig->n_done) < rig->plan->writers) /* [DONE] */
		spr_bench_sleep_us(50);
	return err ? err : spr_load_relaxed(&rig->err);
}

static int sum_check(const struct spr_bench_rig *rig, uint64_t per_writer)
{
	const uint64_t n = rig->plan->writers;

	if (rig->plan->carrier->alone)
		return 0;
	const uint64_t sum = n * (per_writer * (per_writer - 1) / 2);

	if (rig->n_read != n * per_writer || rig->sum != sum || rig->lost)
		return spr_bench_say(-EBADMSG, "%s: read %llu records that add up to %llu, lost "
		                     "%llu; written %llu that add up to %llu",
		                     rig->plan->carrier->name, (unsigned long long)rig->n_read,
		                     (unsigned long long)rig->sum, (unsigned long long)rig->lost,
		                     (unsigned long long)(n * per_writer),
		                     (unsigned long long)sum);
	return 0;
}

struct spr_bench_rig *spr_bench_rig_make(const struct spr_bench_plan *plan)
{
	struct spr_bench_rig *rig = mmap(NULL, sizeof(*rig), PROT_READ | PROT_WRITE,
	                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (rig == MAP_FAILED)
		return NULL;
	rig->plan = plan;
	rig->ns_per_tick = spr_bench_ns_per_tick();
	return rig;
}

int spr_bench_rig_run(const struct spr_bench_plan *plan, struct spr_bench_rig **out)
{
	const uint64_t per_writer = plan->records * (plan->bursts + plan->warm_up);
	pid_t pids[SPR_BENCH_WRITERS];
	struct spr_bench_rig *rig = spr_bench_rig_make(plan);
	int n, err;

	if (!rig)
		return -ENOMEM;
	*out = rig;
	err = plan->carrier->open ? plan->carrier->open(rig) : 0;
	if (err)
		return spr_bench_say(err, "%s: open: %s", plan->carrier->name, strerror(-err));
	n = writers_start(rig, pids);
	if (n < 0)
		return n;
	spr_bench_pin(plan->one_cpu ? 0 : 1, plan->one_cpu);
	while (spr_load_relaxed(&rig->n_ready) < plan->writers)
		spr_bench_sleep_us(100);
	err = all_read(rig, plan->writers * per_writer);
	if (err)
		return spr_bench_say(err, "%s: %s", plan->carrier->name, strerror(-err));
	for (int i = 0; i < n; i++)
		waitpid(pids[i], NULL, 0);
	err = plan->carrier->close ? plan->carrier->close(rig) : 0;
	if (err)
		return spr_bench_say(err, "%s: close: %s", plan->carrier->name, strerror(-err));
	return sum_check(rig, per_writer);
}
