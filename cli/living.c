/* SPDX-License-Identifier: MIT */
/* living.c - who of the target's tree still runs. */
#include "cli/living.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"


static ssize_t slurp(int proc, const char *pid, const char *name, char *out, size_t room)
{
	char path[64];

	snprintf(path, sizeof(path), "%.20s/%s", pid, name);
	const int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t n = 0;
	for (ssize_t got; n < room && (got = read(fd, out + n, room - n)) > 0;)
		n += (size_t)got;
	close(fd);
	return (ssize_t)n;
}

/* The number behind `name` (or the last one, if that is NULL) in a file of /proc; 0: none. */
static uint64_t proc_number(const char *path, const char *name)
{
	const size_t room = 256 << 10; /* /proc/stat grows with the machine */
	char *text = malloc(room);
	uint64_t found = 0;

	if (!text)
		return 0;
	const ssize_t n = slurp(AT_FDCWD, "/proc", path, text, room - 1);
	text[n > 0 ? n : 0] = '\0';
	const char *space = strrchr(text, ' ');
	const char *at = name ? strstr(text, name) : space ? space : text;
	if (n > 0 && at)
		found = strtoull(at + (name ? strlen(name) : 0), NULL, 10);
	free(text);
	return found;
}

void spr_cli_living_begin(struct spr_cli_since *since)
{
	struct timespec now;

	since->last_pid = proc_number("loadavg", NULL);
	since->n_forks = proc_number("stat", "\nprocesses ");
	clock_gettime(CLOCK_BOOTTIME, &now);
	since->ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Below which pid all processes are older. They are given out upwards, and begin anew from below at
 * the most only when so many have been forked since. To ask each for its age costs 10 us. */
static uint64_t youngest_from(const struct spr_cli_since *since)
{
	const uint64_t n_forks = proc_number("stat", "\nprocesses ");
	const uint64_t most = proc_number("sys/kernel/pid_max", NULL);

	if (!since->n_forks || !since->last_pid || n_forks < since->n_forks ||
	    since->last_pid + (n_forks - since->n_forks) >= most)
		return 0;
	return since->last_pid;
}

enum age { OLD, YOUNG, ENDED };

static enum age age_of(int proc, const char *pid, uint64_t since_ns)
{
	const uint64_t tick_ns = 1000000000u / (unsigned long)sysconf(_SC_CLK_TCK);
	unsigned long long ticks;
	char text[1024], state;
	const ssize_t n = slurp(proc, pid, "stat", text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	const char *after = strrchr(text, ')');
	if (!after || sscanf(after, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d"
	                            " %*d %*d %*d %*d %llu", &state, &ticks) != 2)
		return ENDED;
	if ((ticks + 1) * tick_ns < since_ns)
		return OLD;
	return state != 'Z' && state != 'X' ? YOUNG : ENDED;
}

/* The environment that it was started with; it may have forgotten it since, we do not. */
static bool carries(int proc, const char *pid, const char *address, char *room, size_t room_bytes)
{
	static const char name[] = "SPARRING_CHANNEL=";
	const ssize_t n = slurp(proc, pid, "environ", room, room_bytes - 1);

	if (n <= 0)
		return false;
	room[n] = '\0';
	for (const char *at = room; at < room + n; at += strlen(at) + 1) {
		if (strncmp(at, name, sizeof(name) - 1))
			continue;
		const char *found = strstr(at, address);
		return found && (found[strlen(address)] == '\0' || found[strlen(address)] == '\n');
	}
	return false;
}

static void program_of(int proc, const char *pid, char *out, size_t room)
{
	char path[64];

	snprintf(path, sizeof(path), "%.20s/exe", pid);
	const ssize_t n = readlinkat(proc, path, out, room - 1);
	out[n > 0 ? n : 0] = '\0';
}

#define LOOKS_MAX 3

static size_t look(const char *address, const struct spr_cli_since *since, bool *missed,
                   void (*each)(void *arg, int32_t pid, const char *exe), void *arg)
{
	const size_t room_bytes = 256 << 10;
	const uint64_t from = youngest_from(since);
	const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listed = proc < 0 ? NULL : fdopendir(proc);
	char *room = malloc(room_bytes);
	char exe[PATH_MAX];
	uint64_t pid;
	size_t n = 0;

	for (struct dirent *e; listed && room && (e = readdir(listed));) {
		if (!spr_cli_parse_number(e->d_name, INT32_MAX, &pid) || pid < from ||
		    (pid_t)pid == getpid())
			continue;
		const enum age age = age_of(proc, e->d_name, since->ns);
		*missed |= age == ENDED;
		if (age != YOUNG || !carries(proc, e->d_name, address, room, room_bytes))
			continue;
		program_of(proc, e->d_name, exe, sizeof(exe));
		each(arg, (int32_t)pid, exe);
		n++;
	}
	free(room);
	if (listed)
		closedir(listed);
	return n;
}

/* One that ended under our eyes may have left a child that was not in the list yet: a daemon. */
size_t spr_cli_living_find(const char *address, const struct spr_cli_since *since,
                           void (*each)(void *arg, int32_t pid, const char *exe), void *arg)
{
	bool missed = true;
	size_t n = 0;

	for (int looks = 0; !n && missed && looks < LOOKS_MAX; looks++) {
		missed = false;
		n = look(address, since, &missed, each, arg);
	}
	return n;
}
