/* SPDX-License-Identifier: MIT */
/*
 * attach.c - what does a short process pay: attach, five records, exit, above a process that does
 * nothing; and what do ten thousand of them cost the collector and leave behind.
 */
#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/ring_carrier.h"

#define RECORDS_PER_PROCESS 5u

extern char **environ;

struct attach_plan {
	const char *how; /* client's first argument */
	const char *(*place)(void);
	unsigned    n_processes, at_once;
};

enum { ATTACH_US, ATTACH_CPU_US, ATTACH_COLLECTOR_US, ATTACH_LEFT_KIB, ATTACH_PENDING };
static const struct spr_bench_figure attach_figures[] = {
	{ "us_per_process", "us/process" },
	{ "cpu_us_per_process", "us CPU/process" },
	{ "collector_us_per_process", "us CPU of collector/process" },
	{ "resident_kib", "KiB resident after" },
	{ "pending", "records pending" },
};

/* Adds the CPU time of the process that has ended, from its birth on, to *cpu_ns. */
static int client_wait(double *cpu_ns)
{
	struct rusage usage;
	int status;

	if (wait4(-1, &status, 0, &usage) < 0)
		return -errno;
	*cpu_ns += 1e9 * (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	           1e3 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	return status ? -ECHILD : 0;
}

/* n_processes clients, at_once at a time. */
static int clients_run(const struct attach_plan *plan, const char *where, double *cpu_ns)
{
	char program[PATH_MAX + 16], how[32], at[PATH_MAX];
	char *args[] = { program, how, at, NULL };
	unsigned n_running = 0;
	int err = 0;

	snprintf(program, sizeof(program), "%s/client", spr_bench_dir());
	snprintf(how, sizeof(how), "%s", plan->how);
	snprintf(at, sizeof(at), "%s", where);
	for (unsigned i = 0; i < plan->n_processes && !err; i++) {
		pid_t pid;

		err = -posix_spawn(&pid, program, NULL, NULL, args, environ);
		if (!err && ++n_running == plan->at_once) {
			err = client_wait(cpu_ns);
			n_running--;
		}
	}
	while (n_running-- && !err)
		err = client_wait(cpu_ns);
	return err;
}

/* In a process beside the collector's, or the collector's own CPU time would be theirs. */
static pid_t clients_start(const struct attach_plan *plan, struct spr_bench_rig *rig,
                           const char *where)
{
	const pid_t pid = fork();

	if (pid)
		return pid;
	const double from = spr_bench_now_ns();
	const int err = clients_run(plan, where, &rig->writer[0].cpu_ns);

	rig->wall_ns = spr_bench_now_ns() - from;
	if (err)
		spr_store_relaxed(&rig->err, err);
	spr_store_release(&rig->n_done, 1u); /* [DONE] */
	_exit(0);
}

/* What yardsticks leave behind, or the folder would grow from round to round. */
static void yards_remove(const char *folder)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (!strncmp(entry->d_name, "yard-", 5))
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
}

static int plain_measure(const struct attach_plan *plan, struct spr_bench_rig *rig, double *figures)
{
	const pid_t pid = clients_start(plan, rig, plan->place());
	int err;

	if (pid < 0)
		return -errno;
	waitpid(pid, NULL, 0);
	yards_remove(plan->place());
	err = spr_load_relaxed(&rig->err);
	figures[ATTACH_US] = rig->wall_ns / 1e3 / plan->n_processes;
	figures[ATTACH_CPU_US] = rig->writer[0].cpu_ns / 1e3 / plan->n_processes;
	return err ? spr_bench_say(err, "client %s: %s", plan->how, strerror(-err)) : 0;
}

/* Let the collector find what has ended, then look. */
static int left_look(struct spr_bench_rig *rig, double *figures)
{
	struct spr_bench_ring *ring = rig->reader;
	struct spr_stats stats = SPR_STATS_INIT;
	const double until = spr_bench_now_ns() + 400e6;
	int err = 0;

	while (spr_bench_now_ns() < until && err >= 0)
		err = (int)spr_collector_step(ring->collector, 50);
	if (err >= 0)
		err = spr_channel_stats(ring->channel, &stats);
	figures[ATTACH_LEFT_KIB] = (double)stats.resident_bytes / 1024;
	figures[ATTACH_PENDING] = (double)stats.pending;
	return err < 0 ? err : 0;
}

/* Files left in the folder after close: the ring's own must be gone. */
static int folder_check(const char *folder)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	int err = 0;

	while (dir && (entry = readdir(dir))) {
		if (strstr(entry->d_name, ".ring"))
			err = spr_bench_say(-ENOTEMPTY, "left behind: %s", entry->d_name);
	}
	if (dir)
		closedir(dir);
	return err;
}

static int ring_measure(const struct attach_plan *plan, struct spr_bench_rig *rig, double *figures)
{
	const uint64_t want = (uint64_t)plan->n_processes * RECORDS_PER_PROCESS;
	int err = spr_bench_ring_open(rig);
	double cpu;
	pid_t pid;

	if (!err)
		err = spr_bench_ring_collect(rig, NULL);
	if (err)
		return spr_bench_say(err, "ring: %s", strerror(-err));
	cpu = spr_bench_cpu_ns();
	pid = clients_start(plan, rig, rig->address);
	while (!err && (!spr_load_acquire(&rig->n_done) || rig->n_read < want) && /* [DONE] */
	       !spr_load_relaxed(&rig->err))
		err = spr_bench_ring_read(rig);
	waitpid(pid, NULL, 0);
	figures[ATTACH_US] = rig->wall_ns / 1e3 / plan->n_processes;
	figures[ATTACH_CPU_US] = rig->writer[0].cpu_ns / 1e3 / plan->n_processes;
	figures[ATTACH_COLLECTOR_US] = (spr_bench_cpu_ns() - cpu) / 1e3 / plan->n_processes;
	err = err ? err : spr_load_relaxed(&rig->err);
	err = err ? err : left_look(rig, figures);
	err = err ? err : spr_bench_ring_close(rig);
	if (!err && (rig->n_read != want || rig->lost))
		err = -EBADMSG;
	if (err)
		return spr_bench_say(err, "ring: %s (%llu of %llu records)", strerror(-err),
		                     (unsigned long long)rig->n_read, (unsigned long long)want);
	return folder_check(plan->place());
}

static int attach_measure(const struct spr_bench_arm *arm, double *figures)
{
	const struct attach_plan *plan = arm->arg;
	const struct spr_bench_plan ring = { .place = plan->place ? plan->place() : NULL };
	struct spr_bench_rig *rig = spr_bench_rig_make(&ring);

	if (!rig)
		return -ENOMEM;
	if (strncmp(plan->how, "ring", 4))
		return plain_measure(plan, rig, figures);
	return ring_measure(plan, rig, figures);
}

static const char *disk_missing(const struct spr_bench_arm *arm)
{
	const struct attach_plan *plan = arm->arg;

	return plan->place() ? NULL : "no folder of this kind of file system (/dev/shm, /var/tmp)";
}

#define ATTACH_ARM(text, scheme, client, where, n, n_at_once) \
	{ .name = (text), .measure = attach_measure, .missing = disk_missing, \
	  .transport = (scheme), .mode = "attach", .record_bytes = 64, .writers = (n_at_once), \
	  .arg = &(const struct attach_plan){ (client), (where), (n), (n_at_once) } }

static const struct spr_bench_arm short_arms[] = {
	ATTACH_ARM("bare process", "floor", "bare", spr_bench_tmpfs, 400, 1),
	ATTACH_ARM("yardstick, tmpfs", "yardstick", "yard", spr_bench_tmpfs, 400, 1),
	ATTACH_ARM("yardstick, ext4", "yardstick", "yard", spr_bench_disk, 400, 1),
	ATTACH_ARM("ring, tmpfs", "ring", "ring", spr_bench_tmpfs, 400, 1),
	ATTACH_ARM("ring, ext4", "ring", "ring", spr_bench_disk, 400, 1),
};

#define ABOVE(what_, a_, b_, want_, target_) \
	{ .what = (what_), .a = (a_), .a_less = "bare process", .b = (b_), \
	  .b_less = (b_) ? "bare process" : NULL, .want = (want_), .target = (target_) }

#define CPU_ABOVE(what_, a_, b_) \
	{ .what = (what_), .figure = ATTACH_CPU_US, .a = (a_), .a_less = "bare process", \
	  .b = (b_), .b_less = "bare process" }

static const struct spr_bench_claim short_claims[] = {
	ABOVE("ring above bare, tmpfs, us", "ring, tmpfs", NULL, SPR_BENCH_ONLY_SAY, 0),
	ABOVE("ring above bare, ext4, us", "ring, ext4", NULL, SPR_BENCH_ONLY_SAY, 0),
	ABOVE("yardstick above bare, tmpfs, us", "yardstick, tmpfs", NULL, SPR_BENCH_ONLY_SAY, 0),
	ABOVE("yardstick above bare, ext4, us", "yardstick, ext4", NULL, SPR_BENCH_ONLY_SAY, 0),
	ABOVE("above bare: ring / yardstick, tmpfs", "ring, tmpfs", "yardstick, tmpfs",
	      SPR_BENCH_AT_MOST, 1.3),
	ABOVE("above bare: ring / yardstick, ext4", "ring, ext4", "yardstick, ext4",
	      SPR_BENCH_AT_MOST, 0.25),
	CPU_ABOVE("the process's CPU above bare: ring / yardstick, tmpfs", "ring, tmpfs",
	          "yardstick, tmpfs"),
	CPU_ABOVE("the process's CPU above bare: ring / yardstick, ext4", "ring, ext4",
	          "yardstick, ext4"),
};

static const struct spr_bench_arm many_arms[] = {
	ATTACH_ARM("one after another", "ring", "ring", spr_bench_tmpfs, 10000, 1),
	ATTACH_ARM("8 at a time", "ring", "ring", spr_bench_tmpfs, 10000, 8),
	ATTACH_ARM("8 at a time, by _exit", "ring", "ring-gone", spr_bench_tmpfs, 10000, 8),
};

#define COLLECTOR_US(arm) \
	{ .what = "collector, us CPU per process, " arm, .figure = ATTACH_COLLECTOR_US, \
	  .a = (arm), .want = SPR_BENCH_AT_MOST, .target = 10 }
#define RESIDENT(arm) \
	{ .what = "KiB resident after, " arm, .figure = ATTACH_LEFT_KIB, .a = (arm) }
#define LEFT(arm) \
	{ .what = "records pending, " arm, .figure = ATTACH_PENDING, \
	  .a = (arm), .want = SPR_BENCH_AT_MOST, .target = 0 }

static const struct spr_bench_claim many_claims[] = {
	COLLECTOR_US("one after another"), COLLECTOR_US("8 at a time"),
	COLLECTOR_US("8 at a time, by _exit"),
	LEFT("one after another"), LEFT("8 at a time"), LEFT("8 at a time, by _exit"),
	RESIDENT("one after another"), RESIDENT("8 at a time"), RESIDENT("8 at a time, by _exit"),
};

static const struct spr_bench_group groups[] = {
	{ .name = "short",
	  .question = "a process that writes five records, above one that does not",
	  .rounds = 15,
	  .figures = attach_figures,
	  .n_figures = 3,
	  .arms = short_arms,
	  .n_arms = SPR_BENCH_N(short_arms),
	  .claims = short_claims,
	  .n_claims = SPR_BENCH_N(short_claims) },
	{ .name = "many",
	  .question = "10,000 such processes: the collector's work, and what is left",
	  .rounds = 1,
	  .figures = attach_figures,
	  .n_figures = 5,
	  .arms = many_arms,
	  .n_arms = SPR_BENCH_N(many_arms),
	  .claims = many_claims,
	  .n_claims = SPR_BENCH_N(many_claims) },
};

int main(int argc, char **argv)
{
	return spr_bench_main("attach", groups, SPR_BENCH_N(groups), argc, argv);
}
