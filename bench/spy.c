/* SPDX-License-Identifier: MIT */
/*
 * spy.c - what does a program feel that is recorded by `sparring record`: 20,000 opens of a dynamic
 * target, and 1,000 small programs spawned; against the same untracked, and against a preloaded
 * library that does nothing. Every measurement is a fresh process; every record must be there.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "bench/harness.h"

#define N_OPENS  "20000"
#define N_SPAWNS "1000"

extern char **environ;

enum how { UNTRACKED, PRELOADED, RECORDED };

enum { SPY_MS, SPY_ALL_CPU_MS, SPY_LOOP_MS, SPY_CPU_MS, SPY_RECORDS };
static const struct spr_bench_figure figures_[] = {
	{ "ms", "ms, the whole command" },
	{ "cpu_ms", "ms CPU of everybody" },
	{ "loop_ms", "ms, inside the target" },
	{ "loop_cpu_ms", "ms CPU, inside the target" },
	{ "records", "records in the trace" },
};

static const char *folder(void)
{
	return spr_bench_tmpfs() ? spr_bench_tmpfs() : spr_bench_disk();
}

/* Run args in this environment, with stdout going to `out`. Fills in the time that took and the CPU
 * time of all that was started and waited for. */
static int command_run(char *const args[], char *const env[], const char *out, double *figures)
{
	posix_spawn_file_actions_t files;
	const double from = spr_bench_now_ns();
	struct rusage usage;
	int status, err;
	pid_t pid;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	err = posix_spawn(&pid, args[0], &files, NULL, args, env);
	posix_spawn_file_actions_destroy(&files);
	if (err || wait4(pid, &status, 0, &usage) < 0)
		return spr_bench_say(-ECHILD, "%s: could not be started", args[0]);
	figures[SPY_MS] = (spr_bench_now_ns() - from) / 1e6;
	figures[SPY_ALL_CPU_MS] = 1e3 * (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	                          1e-3 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return spr_bench_say(-ECHILD, "%s ... %s: ended with status %#x", args[0], args[1],
		                     (unsigned)status);
	return 0;
}

/* Records of one kind ("file") in which the target's work shows: those that name `path`. */
static int64_t records_count(const char *trace_path, const char *path)
{
	const int fd = open(trace_path, O_RDONLY | O_CLOEXEC);
	const struct spr_kind *kinds;
	struct spr_record rec;
	int64_t n = 0;
	spr_trace *t;
	uint32_t n_kinds;
	int err;

	if (fd < 0)
		return -errno;
	err = spr_trace_open(&t, fd, NULL);
	if (err)
		return err;
	kinds = spr_trace_kinds(t, &n_kinds);
	while ((err = spr_trace_next(t, &rec)) > 0) {
		if (rec.kind == 0 || rec.kind > n_kinds || strcmp(kinds[rec.kind - 1].name, "file"))
			continue;
		n += memmem(rec.data, rec.bytes, path, strlen(path)) != NULL;
	}
	spr_trace_close(t);
	close(fd);
	return err < 0 ? err : n;
}

struct spy_plan {
	enum how how;
	char     what[8], n[8]; /* the client's arguments */
};

/* The target's own words: how long its loop took, by the clock and of its CPU time. */
static void loop_read(const char *out, double *figures)
{
	FILE *f = fopen(out, "re");
	double wall, cpu;

	if (f && fscanf(f, "%lf %lf", &wall, &cpu) == 2) {
		figures[SPY_LOOP_MS] = wall / 1e6;
		figures[SPY_CPU_MS] = cpu / 1e6;
	}
	if (f)
		fclose(f);
}

static int spy_measure(const struct spr_bench_arm *arm, double *figures)
{
	const struct spy_plan *plan = arm->arg;
	char sparring[4352], client[4352], path[4352], trace[4352], out[4352], preload[4352];
	char what[8], n[8], record[] = "record", quiet[] = "-q", o[] = "-o", end[] = "--";
	const bool opens = !strcmp(plan->what, "opens");
	char *args[] = { sparring, record, quiet, o, trace, end, client, what, n, path, NULL };
	char *env[256], **first = plan->how == RECORDED ? args : args + 6;
	unsigned n_env = 0;
	int err;

	snprintf(sparring, sizeof(sparring), "%s/../sparring", spr_bench_dir());
	snprintf(client, sizeof(client), "%s/client", spr_bench_dir());
	snprintf(trace, sizeof(trace), "%s/spy-%d.spr", folder(), getpid());
	snprintf(out, sizeof(out), "%s/spy-%d.out", folder(), getpid());
	snprintf(path, sizeof(path), "%s", opens ? "/etc/passwd" : client);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/libnothing.so", spr_bench_dir());
	memcpy(what, plan->what, sizeof(what));
	memcpy(n, plan->n, sizeof(n));
	for (char **e = environ; *e && n_env < 254; e++)
		env[n_env++] = *e;
	if (plan->how == PRELOADED)
		env[n_env++] = preload;
	env[n_env] = NULL;
	err = command_run(first, env, out, figures);
	if (err)
		return err;
	if (opens)
		loop_read(out, figures);
	if (plan->how != RECORDED)
		return 0;
	const int64_t n_records = records_count(trace, path);

	unlink(trace);
	figures[SPY_RECORDS] = (double)n_records;
	if (n_records < atoi(plan->n))
		return spr_bench_say(-EBADMSG, "%lld records of %s, %s expected",
		                     (long long)n_records, path, plan->n);
	return 0;
}

static const char *spy_missing(const struct spr_bench_arm *arm)
{
	const struct spy_plan *plan = arm->arg;
	char sparring[4352];

	snprintf(sparring, sizeof(sparring), "%s/../sparring", spr_bench_dir());
	if (plan->how == RECORDED && access(sparring, X_OK))
		return "build/sparring is not built";
	return NULL;
}

#define SPY_ARM(text, how_, what_, n_) \
	{ .name = (text), .measure = spy_measure, .missing = spy_missing, .mode = (what_), \
	  .arg = &(const struct spy_plan){ (how_), what_, n_ } }

static const struct spr_bench_arm opens_arms[] = {
	SPY_ARM("untracked", UNTRACKED, "opens", N_OPENS),
	SPY_ARM("recorded", RECORDED, "opens", N_OPENS),
};

static const struct spr_bench_claim opens_claims[] = {
	{ .what = "recorded / untracked, inside the target", .figure = SPY_LOOP_MS,
	  .a = "recorded", .b = "untracked", .want = SPR_BENCH_AT_MOST, .target = 1.06 },
	{ .what = "recorded / untracked, CPU inside the target", .figure = SPY_CPU_MS,
	  .a = "recorded", .b = "untracked" },
	{ .what = "recorded / untracked, the whole command", .figure = SPY_MS,
	  .a = "recorded", .b = "untracked" },
	{ .what = "ms that the command adds before and after", .figure = SPY_MS,
	  .a = "recorded", .a_less = "untracked" },
};

static const struct spr_bench_arm spawns_arms[] = {
	SPY_ARM("untracked", UNTRACKED, "spawns", N_SPAWNS),
	SPY_ARM("a library that does nothing", PRELOADED, "spawns", N_SPAWNS),
	SPY_ARM("recorded", RECORDED, "spawns", N_SPAWNS),
};

static const struct spr_bench_claim spawns_claims[] = {
	{ .what = "a library that does nothing / untracked",
	  .a = "a library that does nothing", .b = "untracked" },
	{ .what = "recorded / untracked", .a = "recorded", .b = "untracked" },
	{ .what = "recorded above the library that does nothing", .a = "recorded",
	  .a_less = "a library that does nothing", .b = "untracked",
	  .want = SPR_BENCH_AT_MOST, .target = 0.06 },
	{ .what = "the same in CPU of everybody", .figure = SPY_ALL_CPU_MS, .a = "recorded",
	  .a_less = "a library that does nothing", .b = "untracked" },
};

static const struct spr_bench_group groups[] = {
	{ .name = "opens",
	  .question = "20,000 open and close in a dynamic program, recorded or not",
	  .rounds = 15,
	  .figures = figures_,
	  .n_figures = SPR_BENCH_N(figures_),
	  .arms = opens_arms,
	  .n_arms = SPR_BENCH_N(opens_arms),
	  .claims = opens_claims,
	  .n_claims = SPR_BENCH_N(opens_claims) },
	{ .name = "spawns",
	  .question = "1,000 small programs spawned, recorded or not",
	  .rounds = 7,
	  .figures = figures_,
	  .n_figures = SPR_BENCH_N(figures_),
	  .arms = spawns_arms,
	  .n_arms = SPR_BENCH_N(spawns_arms),
	  .claims = spawns_claims,
	  .n_claims = SPR_BENCH_N(spawns_claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("spy", groups, SPR_BENCH_N(groups), argc, argv);
}
