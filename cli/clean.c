/* SPDX-License-Identifier: MIT */
/* clean.c - `sparring clean`: removes what dead recordings of this user left behind. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/place.h"
#include "cli/cli.h"

static const char help[] =
	"usage: sparring clean [-q]\n"
	"\n"
	"Removes the channels that recordings of yours left behind when they were killed. What\n"
	"a living recording still uses stays: a lock that the kernel holds tells them apart, not\n"
	"a process number or an age. Every recording does so for its own place when it starts.\n"
	"\n"
	"  -q, --quiet  say nothing, only remove\n"
	"  -h, --help   this text\n"
	"\n"
	"Looks into $SPARRING_DIR, and sparring-UID in /dev/shm, /tmp and $TMPDIR.\n"
	"\n"
	"Exit status: 0; 64 wrong usage; 73 something could not be removed.\n";

struct sweep {
	char path[PATH_MAX]; /* of the place that is swept */
	bool quiet;
	int  n_removed;
};

static void say_removed(void *arg, const char *name)
{
	struct sweep *sweep = arg;

	sweep->n_removed++;
	if (!sweep->quiet)
		printf("removed %s/%s\n", spr_cli_shown(sweep->path), spr_cli_shown(name));
}

/* A place that is not there needs no cleaning, and must not be made for it. */
static int sweep_folder(const char *folder, struct sweep *sweep)
{
	struct stat st;

	if (lstat(folder, &st))
		return 0;
	const int place = spr_place_open(folder, 0, sweep->path, sizeof(sweep->path));
	if (place < 0) {
		spr_cli_say("%s", spr_cli_shown(spr_error_text()));
		return place;
	}
	const int removed = spr_place_sweep(place, say_removed, sweep);
	close(place);
	if (removed < 0)
		spr_cli_say("%s: %s", spr_cli_shown(folder), strerror(-removed));
	return removed < 0 ? removed : 0;
}

/* "sparring-UID", and the names that are taken where somebody else sits on that one. */
static bool is_place(const char *name, const char *ours)
{
	const size_t n = strlen(ours);

	if (strncmp(name, ours, n))
		return false;
	return !name[n] || (name[n] == '-' && strspn(name + n + 1, "0123456789abcdef") == 16 &&
	                    !name[n + 17]);
}

static int sweep_parent(const char *parent, struct sweep *sweep)
{
	char folder[PATH_MAX], ours[32];
	DIR *listed = parent && *parent ? opendir(parent) : NULL;
	struct stat st;
	int worst = 0;

	snprintf(ours, sizeof(ours), "sparring-%u", (unsigned)geteuid());
	for (struct dirent *e; listed && (e = readdir(listed));) {
		if (!is_place(e->d_name, ours) ||
		    snprintf(folder, sizeof(folder), "%s/%s", parent, e->d_name) >= PATH_MAX ||
		    lstat(folder, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
			continue; /* who sits on our name has his reasons, and nothing of ours */
		const int err = sweep_folder(folder, sweep);
		worst = worst ? worst : err;
		/* Of these one is kept; the others go when they are empty. */
		if (strcmp(e->d_name, ours) && !rmdir(folder))
			say_removed(sweep, "");
	}
	if (listed)
		closedir(listed);
	return worst;
}

static int sweep_all(bool quiet)
{
	const char *const parents[] = { "/dev/shm", "/tmp", getenv("TMPDIR") };
	struct sweep sweep = { .quiet = quiet };
	const char *own = getenv("SPARRING_DIR");
	int worst = 0;

	if (own && *own)
		worst = sweep_folder(own, &sweep);
	for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
		const int err = sweep_parent(parents[i], &sweep);
		worst = worst ? worst : err;
	}
	if (!quiet && !sweep.n_removed)
		puts("nothing to remove");
	const int written = spr_cli_finish_stdout();
	return written != SPR_CLI_OK ? written : worst ? SPR_CLI_NO_OUTPUT : SPR_CLI_OK;
}

static int clean_run(const struct spr_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool quiet = false;
	int c;

	while ((c = spr_cli_option(self, argc, argv, ":qh", longs)) != -1) {
		if (c == 'h') {
			fputs(self->help, stdout);
			return spr_cli_finish_stdout();
		}
		if (c == '?')
			return SPR_CLI_USAGE;
		quiet = true;
	}
	if (optind < argc)
		return spr_cli_usage(self, "takes no argument, not %s",
		                     spr_cli_shown(argv[optind]));
	return sweep_all(quiet);
}

const struct spr_cli_command spr_cli_clean = {
	"clean", "removes what dead recordings left behind", help, clean_run,
};
