/* SPDX-License-Identifier: MIT */
/*
 * every_call.c - makes each call of base/calls.h once, on a path of its own: DIR/SYMBOL, where DIR
 * (the argument) does not exist. Prints what each returned and errno, for comparing a run that is
 * recorded with one that is not.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/calls.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

static char path[PATH_MAX], text[] = "a text", buf[PATH_MAX];
static const char *dir;

enum ways { RAW, LIBC, PTR, HAND, ABSENT };

static void print(const char *symbol, long ret, int error)
{
	/* A pointer's value is nobody's business; whether it is null is. */
	printf("%s %ld %s\n", symbol, ret == 0 || ret == -1 ? ret : 1, strerror(error));
}

/* Where the shape wants paths and directories. */
static void place(long *arg, int shape, bool is_template)
{
	switch (shape) {
	case SPR_SHAPE_P:
		arg[0] = (long)path;
		break;
	case SPR_SHAPE_P1:
		arg[1] = (long)path;
		break;
	case SPR_SHAPE_DP:
		arg[0] = AT_FDCWD;
		arg[1] = (long)path;
		break;
	case SPR_SHAPE_DP1:
		arg[1] = AT_FDCWD;
		arg[2] = (long)path;
		break;
	case SPR_SHAPE_PP:
		arg[0] = arg[1] = (long)path;
		break;
	case SPR_SHAPE_DPDP:
		arg[0] = arg[2] = AT_FDCWD;
		arg[1] = arg[3] = (long)path;
		break;
	case SPR_SHAPE_TP:
		arg[0] = (long)text;
		arg[1] = (long)path;
		break;
	case SPR_SHAPE_TDP:
		arg[0] = (long)text;
		arg[1] = AT_FDCWD;
		arg[2] = (long)path;
		break;
	case SPR_SHAPE_F:
		arg[0] = (int)syscall(SYS_openat, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);
		break;
	}
	if (is_template)
		strcat(path, "XXXXXX");
}

/* What more some of them must have, so as not to crash. */
static void furnish(const char *symbol, int access, int flags, long *arg)
{
	static char *argv[] = { text, NULL };
	static glob_t found;
	static uint64_t how[3] = { O_RDONLY };

	if (access == SPR_BY_MODE)
		arg[flags] = (long)"r";
	if (access == SPR_BY_HOW)
		arg[flags] = (long)how, arg[3] = sizeof(how);
	if (strncmp(symbol, "freopen", 7) == 0)
		arg[2] = (long)fopen("/dev/null", "r");
	if (strcmp(symbol, "__realpath_chk") == 0)
		arg[1] = (long)buf, arg[2] = sizeof(buf);
	if (strncmp(symbol, "glob", 4) == 0)
		arg[3] = (long)&found;
	if (strcmp(symbol, "__xmknod") == 0)
		arg[3] = (long)buf;
	if (strcmp(symbol, "__xmknodat") == 0)
		arg[4] = (long)buf;
	if (strncmp(symbol, "exec", 4) == 0 && !strchr(symbol, 'l'))
		arg[strcmp(symbol, "execveat") ? 1 : 2] = (long)argv;
	if (strncmp(symbol, "posix_spawn", 11) == 0)
		arg[4] = (long)argv;
	if (strcmp(symbol, "fexecve") == 0)
		arg[1] = (long)argv, arg[2] = (long)(argv + 1);
	if (strcmp(symbol, "execle") == 0)
		arg[1] = (long)text, arg[3] = (long)(argv + 1);
	if (strcmp(symbol, "system") == 0)
		arg[0] = (long)"exit 0";
	if (strcmp(symbol, "popen") == 0)
		arg[0] = (long)"exit 0", arg[1] = (long)"r";
}

static void call(const char *symbol, int way, int access, int shape, int flags)
{
	long arg[6] = { 0 }, ret;
	long (*function)(long, long, long, long, long, long) = dlsym(RTLD_DEFAULT, symbol);
	const bool is_template = strncmp(symbol, "mk", 2) == 0 && strstr(symbol, "temp");

	if (!function) {
		printf("%s is not there\n", symbol);
		return;
	}
	(void)way;
	snprintf(path, sizeof(path), "%s/%s", dir, symbol);
	place(arg, shape, is_template);
	furnish(symbol, access, flags, arg);
	errno = 0;
	ret = function(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	print(symbol, shape == SPR_SHAPE_F || strstr(symbol, "popen") ? ret != 0 :
	      way == PTR ? ret : (int)ret, errno);
}

static void call_kernel(const char *name, long nr, int access, int shape, int flags)
{
	long arg[6] = { 0 }, ret;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	place(arg, shape, false);
	furnish(name, access, flags, arg);
	errno = 0;
	ret = syscall(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	print(name, ret, errno);
}

#define MAKE_CALL(name, kernel, way, access, shape, flags) \
	call(#name, way, access, SPR_SHAPE_##shape, flags);
#define MAKE_KERN(name, kernel, way, access, shape, flags) \
	call_kernel(#name, SYS_##kernel, access, SPR_SHAPE_##shape, flags);

int main(int argc, char **argv)
{
	if (argc != 2)
		return 64;
	dir = argv[1];
	SPR_CALLS(MAKE_CALL, MAKE_CALL, MAKE_KERN)
	return 0;
}
