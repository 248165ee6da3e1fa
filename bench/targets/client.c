/* SPDX-License-Identifier: MIT */
/*
 * client.c - the small programs that benches start by the hundred. Linked with the sender alone.
 *
 *   client bare                   nothing: the floor
 *   client ring ADDRESS           attach, five records, exit
 *   client ring-gone ADDRESS      the same, by _exit: nobody says goodbye
 *   client yard FOLDER            five records into a yardstick of its own
 *   client opens N FILE           N times open and close; prints the nanoseconds that took, by the
 *                                 clock and of its CPU time
 *   client spawns N PROGRAM       N times posix_spawn PROGRAM bare, and wait
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "bench/yardstick.h"

#define N_RECORDS 5

extern char **environ;

static int ring_run(const char *address)
{
	const uint64_t record[8] = { 1 };
	spr_producer *producer;
	spr_writer *w;

	if (spr_attach(&producer, address))
		return 1;
	w = spr_writer_here(producer);
	for (int i = 0; i < N_RECORDS; i++) {
		if (spr_write(w, 0, record, sizeof(record)))
			return 2;
	}
	return 0;
}

static long long clock_ns(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int yard_run(const char *folder)
{
	const uint64_t record[8] = { 1 };
	struct spr_bench_yard yard;
	char path[4096];

	/* Nobody removes it before the bench does, and process numbers come again. */
	snprintf(path, sizeof(path), "%s/yard-%d-%lld", folder, getpid(),
	         clock_ns(CLOCK_MONOTONIC));
	if (spr_bench_yard_open(&yard, path, true))
		return 1;
	for (int i = 0; i < N_RECORDS; i++)
		spr_bench_yard_write(&yard, record, sizeof(record));
	spr_bench_yard_publish(&yard);
	return 0;
}

static int opens_run(int n, const char *path)
{
	const long long wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

	for (int i = 0; i < n; i++) {
		const int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return 1;
		close(fd);
	}
	printf("%lld %lld\n", clock_ns(CLOCK_MONOTONIC) - wall,
	       clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	return 0;
}

static int spawns_run(int n, char *program)
{
	char bare[] = "bare";
	char *args[] = { program, bare, NULL };

	for (int i = 0; i < n; i++) {
		int status;
		pid_t pid;

		if (posix_spawn(&pid, program, NULL, NULL, args, environ) ||
		    waitpid(pid, &status, 0) < 0 || status)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";

	if (!strcmp(how, "bare"))
		return 0;
	if (!strcmp(how, "ring") && argc == 3)
		return ring_run(argv[2]);
	if (!strcmp(how, "ring-gone") && argc == 3)
		_exit(ring_run(argv[2]));
	if (!strcmp(how, "yard") && argc == 3)
		return yard_run(argv[2]);
	if (!strcmp(how, "opens") && argc == 4)
		return opens_run(atoi(argv[2]), argv[3]);
	if (!strcmp(how, "spawns") && argc == 4)
		return spawns_run(atoi(argv[2]), argv[3]);
	fprintf(stderr, "client: started by the benches, not by hand\n");
	return 64;
}
