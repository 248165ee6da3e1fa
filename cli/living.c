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

uint64_t spr_cli_living_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

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

static size_t look(const char *address, uint64_t since_ns, bool *missed,
                   void (*each)(void *arg, int32_t pid, const char *exe), void *arg)
{
	const size_t room_bytes = 256 << 10;
	const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listed = proc < 0 ? NULL : fdopendir(proc);
	char *room = malloc(room_bytes);
	char exe[PATH_MAX];
	uint64_t pid;
	size_t n = 0;

	for (struct dirent *e; listed && room && (e = readdir(listed));) {
		if (!spr_cli_parse_number(e->d_name, INT32_MAX, &pid) || (pid_t)pid == getpid())
			continue;
		const enum age age = age_of(proc, e->d_name, since_ns);
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
size_t spr_cli_living_find(const char *address, uint64_t since_ns,
                           void (*each)(void *arg, int32_t pid, const char *exe), void *arg)
{
	bool missed = true;
	size_t n = 0;

	for (int looks = 0; !n && missed && looks < LOOKS_MAX; looks++) {
		missed = false;
		n = look(address, since_ns, &missed, each, arg);
	}
	return n;
}
