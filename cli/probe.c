/* SPDX-License-Identifier: MIT */
/* probe.c - `sparring probe`: what this machine allows, and why not. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/probe.h"
#include "cli/cli.h"
#include "cli/json.h"

static const char help[] =
	"usage: sparring probe [--json]\n"
	"\n"
	"Lists what sparring can make use of on this machine: each feature by name, whether it is\n"
	"to be had here, and if not, who refused and what is done instead.\n"
	"\n"
	"  --json      one JSON object instead of text\n"
	"  -h, --help  this text\n"
	"\n"
	"Environment:\n"
	"  SPARRING_DISABLE=NAME,NAME  do without these features\n"
	"  SPARRING_DIR=FOLDER         where channels live (else /dev/shm, /tmp or $TMPDIR)\n"
	"  SPARRING_LIB=FILE           the library to preload (else beside the command)\n"
	"\n"
	"Exit status: 0; 64 wrong usage.\n";

static const char *const variables[] = { "SPARRING_DISABLE", "SPARRING_DIR", "SPARRING_LIB" };
#define N_VARIABLES (sizeof(variables) / sizeof(variables[0]))

static void probe_text(void)
{
	for (const struct spr_feature *f = spr_features; f->name; f++) {
		const int found = spr_probe(f->name);

		printf("%-18s %-9s  %s\n", f->name,
		       found > 0 ? "yes" : found == 0 ? "not built" : "no", f->what);
		if (found < 0)
			printf("%-18s %-9s  -> %s\n", "", "", spr_cli_shown(spr_error_text()));
	}
	for (size_t i = 0; i < N_VARIABLES; i++) {
		const char *value = getenv(variables[i]);

		printf("%-18s %-9s  %s\n", variables[i], value ? "set" : "not set",
		       value ? spr_cli_shown(value) : "");
	}
}

static void probe_json(void)
{
	struct spr_cli_json j = {0};

	spr_cli_json_open(&j, NULL, '{');
	spr_cli_json_open(&j, "features", '[');
	for (const struct spr_feature *f = spr_features; f->name; f++) {
		const int found = spr_probe(f->name);

		spr_cli_json_open(&j, NULL, '{');
		spr_cli_json_text(&j, "name", f->name);
		spr_cli_json_truth(&j, "usable", found > 0);
		spr_cli_json_truth(&j, "built", found != 0);
		if (found < 0) {
			spr_cli_json_signed(&j, "error", -found);
			spr_cli_json_text(&j, "reason", spr_error_text());
		}
		spr_cli_json_text(&j, "what", f->what);
		spr_cli_json_close(&j, '}');
	}
	spr_cli_json_close(&j, ']');
	spr_cli_json_open(&j, "environment", '{');
	for (size_t i = 0; i < N_VARIABLES; i++) {
		if (getenv(variables[i]))
			spr_cli_json_text(&j, variables[i], getenv(variables[i]));
	}
	spr_cli_json_close(&j, '}');
	spr_cli_json_close(&j, '}');
	spr_cli_json_line(&j, stdout);
	spr_cli_json_fini(&j);
}

static int probe_run(const struct spr_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool as_json = false;
	int c;

	while ((c = spr_cli_option(self, argc, argv, ":h", longs)) != -1) {
		if (c == 'h') {
			fputs(self->help, stdout);
			return spr_cli_finish_stdout();
		}
		if (c == '?')
			return SPR_CLI_USAGE;
		as_json = true;
	}
	if (optind < argc)
		return spr_cli_usage(self, "takes no argument, not %s",
		                     spr_cli_shown(argv[optind]));
	if (as_json)
		probe_json();
	else
		probe_text();
	return spr_cli_finish_stdout();
}

const struct spr_cli_command spr_cli_probe = {
	"probe", "lists what this machine allows, and why not", help, probe_run,
};
