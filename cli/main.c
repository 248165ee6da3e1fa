/* SPDX-License-Identifier: MIT */
/* main.c - the command `sparring`: the table of its subcommands, and nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/probe.h"
#include "cli/cli.h"

static const struct spr_cli_command *const commands[] = {
	&spr_cli_record, &spr_cli_show, &spr_cli_verdict, &spr_cli_probe, &spr_cli_clean,
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* Whoever starts us with a standard descriptor closed must not find our files at its place: reads
 * and writes there fail as they would have, and the target gets it closed, as we got it. */
static void hold_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
			const int way = fd == 0 ? O_WRONLY : O_RDONLY;
			if (open("/dev/null", way | O_CLOEXEC) != fd)
				return;
		}
	}
}

static void print_help(FILE *out)
{
	fputs("usage: sparring COMMAND [OPTION...] [ARGUMENT...]\n\n"
	      "Records which files a program and all its children use, and reads what was\n"
	      "recorded.\n\n",
	      out);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-8s  %s\n", commands[i]->name, commands[i]->what);
	fputs("\nTry:  sparring record -- make\n"
	      "      sparring show sparring.spr\n\n"
	      "\"sparring COMMAND --help\" tells all about one of them; --version says which\n"
	      "sparring this is.\n",
	      out);
}

static const struct spr_cli_command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	}
	return NULL;
}

static int print_version(void)
{
	const unsigned version = spr_version();

	printf("sparring %u.%u\n", version >> 16, version & 0xffff);
	return spr_cli_finish_stdout();
}

static int help_about(const char *name)
{
	const struct spr_cli_command *command = name ? find_command(name) : NULL;

	if (name && !command) {
		spr_cli_say("no command \"%s\"; \"sparring --help\" lists them",
		            spr_cli_shown(name));
		return SPR_CLI_USAGE;
	}
	if (command)
		fputs(command->help, stdout);
	else
		print_help(stdout);
	return spr_cli_finish_stdout();
}

/* A misspelt feature would stay on, in silence. */
static bool knows_disabled(void)
{
	const char *at = getenv("SPARRING_DISABLE");

	while (at && *(at += strspn(at, ", "))) {
		const size_t n = strcspn(at, ", ");
		bool found = false;

		for (const struct spr_feature *f = spr_features; f->name && !found; f++)
			found = strlen(f->name) == n && !memcmp(f->name, at, n);
		if (!found) {
			char word[64];

			snprintf(word, sizeof(word), "%.*s", (int)(n < 60 ? n : 60), at);
			spr_cli_say(
				"SPARRING_DISABLE names \"%s\", which is no feature; \"sparring "
				"probe\" lists them",
				spr_cli_shown(word));
			return false;
		}
		at += n;
	}
	return true;
}

int main(int argc, char **argv)
{
	hold_standard_descriptors();
	if (argc < 2) {
		print_help(stderr);
		return SPR_CLI_USAGE;
	}
	const char *name = argv[1];
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
		return help_about(argv[2]);
	if (!strcmp(name, "--version") || !strcmp(name, "-V"))
		return print_version();
	if (name[0] == '-') {
		spr_cli_say("unknown option %s; first comes a command, \"sparring --help\" lists "
		            "them", spr_cli_shown(name));
		return SPR_CLI_USAGE;
	}
	const struct spr_cli_command *command = find_command(name);
	if (!command) {
		spr_cli_say("no command \"%s\"; \"sparring --help\" lists them",
		            spr_cli_shown(name));
		return SPR_CLI_USAGE;
	}
	if (strcmp(name, "probe") && !knows_disabled())
		return SPR_CLI_USAGE;
	return command->run(command, argc - 1, argv + 1);
}
