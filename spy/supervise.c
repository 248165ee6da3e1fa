/* SPDX-License-Identifier: MIT */
/* supervise.c - finds the spy's library and makes the target's environment. */
#include "spy/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "spy/program.h"

/* The loader puts its own directory name for $LIB ("lib/x86_64-linux-gnu", "lib64", "lib"). */
#define LIBRARY "libsparring-files.so"
static const char *const lib_dirs[] = { SPR_LIB_DIRS };
#define N_LIB_DIRS (sizeof(lib_dirs) / sizeof(lib_dirs[0]))

/* Can the loader map it? A file system mounted noexec refuses, and every program of the target
 * would say so on its stderr. */
static int mappable(const char *file)
{
	const int fd = open(file, O_RDONLY | O_CLOEXEC);
	void *at;

	if (fd < 0)
		return -errno;
	at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return errno == EPERM ? -EACCES : -errno;
	munmap(at, 4096);
	return 0;
}

static int check(const char *text, const char *file)
{
	const int err = mappable(file);

	if (err == -EACCES)
		return spr_fail(err, "%s: cannot be mapped for execution (a file system mounted "
		                     "noexec?); put the library elsewhere and name it in "
		                     "SPARRING_LIB", file);
	if (err < 0)
		return spr_fail_sys(err, "%s", file);
	if (strpbrk(text, " :"))
		return spr_fail(-EINVAL, "%s: LD_PRELOAD cannot carry a path with a space or a "
		                         "colon; name another place in SPARRING_LIB", text);
	return 0;
}

/* prefix/$LIB/libsparring-files.so, if some value of $LIB names a file. */
static int find_below(const char *prefix, char *out, size_t room)
{
	char file[PATH_MAX];

	for (size_t i = 0; i < N_LIB_DIRS; i++) {
		if (snprintf(file, sizeof(file), "%s/%s/" LIBRARY, prefix, lib_dirs[i]) >=
		    (int)sizeof(file))
			return -ENAMETOOLONG;
		if (access(file, F_OK) != 0)
			continue;
		if (snprintf(out, room, "%s/$LIB/" LIBRARY, prefix) >= (int)room)
			return -ENAMETOOLONG;
		return check(out, file);
	}
	return -ENOENT;
}

static int find_named(const char *named, char *out, size_t room)
{
	char full[PATH_MAX];

	/* Programs of the tree change directory: a relative name would lead them elsewhere. */
	if (!realpath(named, full))
		return spr_fail_sys(-errno, "SPARRING_LIB=%s", named);
	if (snprintf(out, room, "%s", full) >= (int)room)
		return -ENAMETOOLONG;
	return check(out, full);
}

int spr_spy_library(char *out, size_t room)
{
	const char *named = getenv("SPARRING_LIB");
	char self[PATH_MAX];
	ssize_t n;
	int err = -ENOENT;

	if (named && *named)
		return find_named(named, out, room);
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[n > 0 ? n : 0] = '\0';
	/* build/sparring -> build, build/tests/x -> build, PREFIX/bin/sparring -> PREFIX */
	for (unsigned up = 0; up < 3 && err == -ENOENT; up++) {
		char *slash = strrchr(self, '/');

		if (!slash)
			break;
		*slash = '\0';
		err = find_below(self, out, room);
	}
	if (err == -ENOENT)
		return spr_fail(err, "%s not found beside the program; name it in SPARRING_LIB",
		                LIBRARY);
	return err;
}

/* --- The environment ------------------------------------------------------------------------ */

enum { LD_PRELOAD_LINE, CHANNEL_LINE, PRELOAD_LINE, SPY_LINE, N_LINES };
static const char *const names[N_LINES] = { "LD_PRELOAD=", "SPARRING_CHANNEL=",
	                                    "SPARRING_PRELOAD=", "SPARRING_SPY=" };

static int line_of(const char *entry)
{
	for (int i = 0; i < N_LINES; i++) {
		if (strncmp(entry, names[i], strlen(names[i])) == 0)
			return i;
	}
	return -1;
}

static bool list_has(const char *list, const char *word, const char *separators)
{
	const size_t n = strlen(word);

	while (*list) {
		const size_t len = strcspn(list, separators);

		if (len == n && memcmp(list, word, n) == 0)
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}

/* "NAME=had" + separator + "added", or either alone. */
static char *join(char *at, int line, const char *had, char separator, const char *added)
{
	const bool has_it = had && list_has(had, added, separator == ':' ? " :" : "\n");

	at = stpcpy(stpcpy(at, names[line]), had ? had : "");
	if (has_it)
		return at + 1;
	if (had && *had)
		*at++ = separator;
	return stpcpy(at, added) + 1;
}

int spr_spy_environment(char ***out, char *const *from, const char *address,
                        const struct spr_spy_options *opt)
{
	char library[PATH_MAX];
	const char *had[N_LINES] = { NULL };
	size_t n = 0, bytes = 0;
	char **env, *text;
	const int err = spr_spy_library(library, sizeof(library));

	if (err < 0)
		return err;
	for (; from && from[n]; n++) {
		const int line = line_of(from[n]);

		if (line >= 0)
			had[line] = from[n] + strlen(names[line]);
	}
	for (int i = 0; i < N_LINES; i++)
		bytes += strlen(names[i]) + (had[i] ? strlen(had[i]) : 0) + 2;
	bytes += 2 * strlen(library) + strlen(address) + sizeof("no-argv");
	env = malloc((n + N_LINES + 1) * sizeof(*env) + bytes);
	if (!env)
		return -ENOMEM;
	text = (char *)(env + n + N_LINES + 1);
	*out = env;
	for (size_t i = 0; i < n; i++) {
		if (line_of(from[i]) < 0)
			*env++ = from[i];
	}
	*env++ = text;
	text = join(text, LD_PRELOAD_LINE, had[LD_PRELOAD_LINE], ':', library);
	*env++ = text;
	text = join(text, CHANNEL_LINE, had[CHANNEL_LINE], '\n', address);
	*env++ = text;
	text = join(text, PRELOAD_LINE, NULL, '\n', library);
	*env++ = text;
	join(text, SPY_LINE, NULL, ',', opt && opt->no_argv ? "no-argv" : "");
	*env = NULL;
	return 0;
}
