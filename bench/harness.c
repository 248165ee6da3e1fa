/* SPDX-License-Identifier: MIT */
/* harness.c - options, rounds in shuffled order, each arm in a process of its own. */
#include "bench/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/report.h"
#include "bench/stats.h"

#define TMPFS_MAGIC 0x01021994

/* What the arm's process hands back. */
struct answer {
	double figures[SPR_BENCH_FIGURES];
	int    err;
	char   text[256];
};

static struct {
	unsigned    rounds;
	uint64_t    seed;
	const char *only, *arm;
	bool        pin, json, list;
	const char *json_file;
	char        dir[PATH_MAX], disk[PATH_MAX], tmpfs[PATH_MAX];
	struct answer *answer; /* shared with the arm's process */
	volatile sig_atomic_t stop; /* the signal that told us to end */
} here;

int spr_bench_say(int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(here.answer->text, sizeof(here.answer->text), format, args);
	va_end(args);
	return err;
}

void spr_bench_pin(unsigned idx, bool must)
{
	cpu_set_t set;

	if (!here.pin && !must)
		return;
	CPU_ZERO(&set);
	CPU_SET(idx % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

double spr_bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

const char *spr_bench_dir(void)
{
	return here.dir;
}

const char *spr_bench_disk(void)
{
	return here.disk[0] ? here.disk : NULL;
}

const char *spr_bench_tmpfs(void)
{
	return here.tmpfs[0] ? here.tmpfs : NULL;
}

static void folder_make(char *out, const char *parent, bool want_tmpfs)
{
	struct statfs fs;

	out[0] = '\0';
	if (statfs(parent, &fs) || (fs.f_type == TMPFS_MAGIC) != want_tmpfs)
		return;
	snprintf(out, PATH_MAX, "%s/sparring-bench-XXXXXX", parent);
	if (!mkdtemp(out))
		out[0] = '\0';
}

static int entry_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void folders_remove(void)
{
	if (here.tmpfs[0])
		nftw(here.tmpfs, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
	if (here.disk[0])
		nftw(here.disk, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* Wait for the arm's process, at most limit_s; then end it and whatever it started. */
static int arm_wait(pid_t pid, unsigned limit_s)
{
	struct pollfd fd = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int status = 0, ready;

	do {
		ready = poll(&fd, 1, (int)limit_s * 1000);
	} while (ready < 0 && errno == EINTR && !here.stop);
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fd.fd);
	if (here.stop)
		exit(128 + here.stop);
	if (!ready)
		return spr_bench_say(-ETIMEDOUT, "still running after %u s", limit_s);
	if (WIFSIGNALED(status))
		return spr_bench_say(-EINTR, "died of signal %d", WTERMSIG(status));
	if (here.answer->err && !here.answer->text[0])
		spr_bench_say(0, "%s", strerror(-here.answer->err));
	return here.answer->err;
}

static int arm_run(const struct spr_bench_arm *arm, unsigned limit_s, double *figures)
{
	pid_t pid;
	int err;

	memset(here.answer, 0, sizeof(*here.answer));
	for (unsigned i = 0; i < SPR_BENCH_FIGURES; i++)
		here.answer->figures[i] = NAN;
	here.answer->err = -ECHILD;
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		here.answer->err = arm->measure(arm, here.answer->figures);
		_exit(0);
	}
	setpgid(pid, pid);
	err = arm_wait(pid, limit_s ? limit_s : 60);
	if (!err)
		memcpy(figures, here.answer->figures, sizeof(here.answer->figures));
	return err;
}

static void round_run(struct spr_bench_found *found, unsigned round, uint64_t *seed)
{
	const struct spr_bench_group *group = found->group;
	unsigned order[64];

	spr_bench_shuffle(order, group->n_arms, seed);
	for (unsigned i = 0; i < group->n_arms; i++) {
		const unsigned arm = order[i];
		double *figures = found->values + (round * group->n_arms + arm) * SPR_BENCH_FIGURES;

		if (found->failed[arm][0])
			continue;
		if (isatty(2))
			fprintf(stderr, "\r  %s %u/%u %-40s", group->name, round + 1, found->rounds,
			        group->arms[arm].name);
		if (arm_run(&group->arms[arm], group->limit_s, figures))
			snprintf(found->failed[arm], sizeof(*found->failed), "%s",
			         here.answer->text);
	}
	if (isatty(2))
		fprintf(stderr, "\r%70s\r", "");
}

/* 1: every row is there; 0: one failed. */
static bool group_run(const struct spr_bench_group *group, struct spr_bench_found *found)
{
	uint64_t seed = here.seed;
	bool all = true;

	*found = (struct spr_bench_found){ .group = group,
		                           .rounds = here.rounds ? here.rounds : group->rounds,
		                           .seed = here.seed };
	const size_t n = (size_t)found->rounds * group->n_arms * SPR_BENCH_FIGURES;

	found->values = malloc(n * sizeof(*found->values));
	found->failed = calloc(group->n_arms, sizeof(*found->failed));
	found->left_out = calloc(group->n_arms, sizeof(*found->left_out));
	if (!found->values || !found->failed || !found->left_out || group->n_arms > 64)
		abort();
	for (size_t i = 0; i < n; i++)
		found->values[i] = NAN;
	for (unsigned i = 0; i < group->n_arms; i++) {
		const struct spr_bench_arm *arm = &group->arms[i];
		const char *why = arm->missing ? arm->missing(arm) : NULL;

		if (here.arm && !strstr(arm->name, here.arm))
			why = SPR_BENCH_NOT_ASKED;
		found->left_out[i] = why != NULL;
		snprintf(found->failed[i], sizeof(*found->failed), "%s", why ? why : "");
	}
	for (unsigned i = 0; i < found->rounds; i++)
		round_run(found, i, &seed);
	for (unsigned i = 0; i < group->n_arms; i++)
		all = all && (found->left_out[i] || !found->failed[i][0]);
	return all;
}

static void help_print(const char *program, const struct spr_bench_group *groups, unsigned n)
{
	printf("usage: %s [--rounds N] [--seed N] [--only GROUP] [--arm TEXT] [--pin] "
	       "[--json[=FILE]] [--list]\n"
	       "  --rounds N     how often each arm is measured\n"
	       "  --seed N       repeats the order of an earlier run\n"
	       "  --only GROUP   one of the groups below\n"
	       "  --arm TEXT     only arms whose name has TEXT in it, to profile or repeat one\n"
	       "  --pin          writers and collector on CPUs of their own, as far as there are "
	       "any\n"
	       "  --json[=FILE]  JSON instead of (with FILE: beside) the table\n",
	       program);
	for (unsigned i = 0; i < n; i++)
		printf("  group %-10s %s\n", groups[i].name, groups[i].question);
}

/* 0 to go on, else the exit status plus one. */
static int options_read(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *more = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--pin"))
			here.pin = true;
		else if (!strcmp(argv[i], "--json"))
			here.json = true;
		else if (!strncmp(argv[i], "--json=", 7))
			here.json_file = argv[i] + 7;
		else if (!strcmp(argv[i], "--list") || !strcmp(argv[i], "--help"))
			here.list = true;
		else if (!strcmp(argv[i], "--rounds") && more && atoi(more) > 0)
			here.rounds = (unsigned)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--seed") && more && strtoull(more, NULL, 0))
			here.seed = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--only") && more)
			here.only = argv[++i];
		else if (!strcmp(argv[i], "--arm") && more)
			here.arm = argv[++i];
		else {
			fprintf(stderr, "%s: unknown or incomplete option %s (--help lists them)\n",
			        argv[0], argv[i]);
			return 64 + 1;
		}
	}
	return 0;
}

static void stop_note(int sig)
{
	here.stop = sig;
}

static void start(void)
{
	const struct sigaction note = { .sa_handler = stop_note };
	struct timespec now;
	ssize_t n = readlink("/proc/self/exe", here.dir, sizeof(here.dir) - 1);
	char *slash;

	here.dir[n > 0 ? n : 0] = '\0';
	slash = strrchr(here.dir, '/');
	if (slash)
		*slash = '\0';
	clock_gettime(CLOCK_REALTIME, &now);
	if (!here.seed)
		here.seed = ((uint64_t)now.tv_nsec << 16 | (uint64_t)(getpid() & 0xffff)) | 1;
	here.answer = mmap(NULL, sizeof(*here.answer), PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (here.answer == MAP_FAILED)
		abort();
	folder_make(here.tmpfs, "/dev/shm", true);
	folder_make(here.disk, "/var/tmp", false);
	atexit(folders_remove);
	sigaction(SIGINT, &note, NULL);
	sigaction(SIGTERM, &note, NULL);
}

static void load_print(void)
{
	double load = 0;
	const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (getloadavg(&load, 1) == 1 && load > 0.5 * (double)n_cpus)
		printf("  warning: load average %.1f on %ld CPUs before we began: trust only the "
		       "comparisons\n", load, n_cpus);
}

static bool json_write(const char *program, const struct spr_bench_found *found, unsigned n)
{
	FILE *out = here.json_file ? fopen(here.json_file, "we") : stdout;

	if (!out)
		return false;
	spr_bench_print_json(out, program, found, n);
	return here.json_file ? !fclose(out) : !fflush(out);
}

int spr_bench_main(const char *program, const struct spr_bench_group *groups, unsigned n_groups,
                   int argc, char **argv)
{
	struct spr_bench_found *found = calloc(n_groups, sizeof(*found));
	unsigned n_found = 0;
	bool all = true;
	const int stop = options_read(argc, argv);

	if (stop || !found)
		return stop ? stop - 1 : 1;
	if (here.list) {
		help_print(program, groups, n_groups);
		return 0;
	}
	start();
	if (!here.json)
		load_print();
	for (unsigned i = 0; i < n_groups; i++) {
		if (here.only && strcmp(here.only, groups[i].name))
			continue;
		all = group_run(&groups[i], &found[n_found]) && all;
		if (!here.json)
			spr_bench_print_table(stdout, &found[n_found]);
		n_found++;
	}
	if (!n_found)
		fprintf(stderr, "%s: no group %s (--list names them)\n", program, here.only);
	if ((here.json || here.json_file) && !json_write(program, found, n_found))
		return 1;
	if (!all)
		fprintf(stderr, "%s: a row could not be measured\n", program);
	return n_found ? (all ? 0 : 1) : 64;
}
