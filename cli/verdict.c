/* SPDX-License-Identifier: MIT */
/* verdict.c - `sparring verdict`: what a recording is worth, as a sentence and a status. */
#include <getopt.h>

#include "cli/cli.h"
#include "cli/judge.h"

static const char help[] =
	"usage: sparring verdict [--json] FILE\n"
	"\n"
	"Says whether the trace FILE (\"-\": standard input) tells everything, and if not, why.\n"
	"A trace is complete when everything that was written arrived (its transport) and\n"
	"everything that happened was written (its coverage).\n"
	"\n"
	"  --json      one JSON object instead of text\n"
	"  -h, --help  this text\n"
	"\n"
	"Exit status: 0 complete, 1 incomplete, 2 cut or damaged or no trace, 4 unknown (the file\n"
	"carries no verdict), 64 wrong usage, 66 no such file.\n";

static int verdict_of(const char *name, bool as_json)
{
	struct spr_cli_input in;
	struct spr_cli_judge judge = {0};
	struct spr_cli_json json = {0};
	struct spr_record rec;

	const int status = spr_cli_input_open(&in, name, false);
	if (status != SPR_CLI_OK)
		return status;
	spr_cli_progress_open(&in.progress, true);
	while (spr_cli_input_next(&in, &rec) > 0)
		spr_cli_judge_see(&judge, spr_cli_input_kind(&in, rec.kind), &rec);
	spr_cli_judge_close(&judge, &in);
	spr_cli_input_close(&in);
	if (as_json) {
		spr_cli_judge_json(&judge, &json, NULL);
		spr_cli_json_line(&json, stdout);
	} else {
		spr_cli_judge_text(&judge, stdout);
	}
	const int found = spr_cli_judge_status(&judge);
	spr_cli_json_fini(&json);
	spr_cli_judge_fini(&judge);
	const int written = spr_cli_finish_stdout();
	return written != SPR_CLI_OK ? written : found;
}

static int verdict_run(const struct spr_cli_command *self, int argc, char **argv)
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
	const char *name = spr_cli_operand(self, argc, argv, "trace");
	return name ? verdict_of(name, as_json) : SPR_CLI_USAGE;
}

const struct spr_cli_command spr_cli_verdict = {
	"verdict", "says whether a trace tells everything, and if not, why", help, verdict_run,
};
