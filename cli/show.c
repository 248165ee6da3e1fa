/* SPDX-License-Identifier: MIT */
/* show.c - `sparring show`: a trace as a table, as JSON lines, or as a summary. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/join.h"
#include "cli/judge.h"
#include "cli/summary.h"
#include "cli/value.h"

static const char help[] =
	"usage: sparring show [OPTION...] FILE\n"
	"\n"
	"Prints the records of the trace FILE (\"-\": standard input), oldest first: seconds\n"
	"since the first one, process, kind, what was called, and with which path. A call that\n"
	"failed ends with the name of its error.\n"
	"\n"
	"  --json      a JSON object per line instead of a table\n"
	"  --summary   counts instead of records: processes, paths, calls, folders, verdict\n"
	"  --kind K    only records of this kind (file, process, ...); may be given again\n"
	"  --pid N     only records of this process; may be given again\n"
	"  --from T    only from this time on: seconds since the first record (1.5), with a unit\n"
	"              (200ms, 30us), or as in the JSON's time_ns (@123456789)\n"
	"  --to T      only up to this time\n"
	"  --follow    go on while the recording to FILE still runs\n"
	"  -h, --help  this text\n"
	"\n"
	"Exit status: 0 everything in the file was read, 2 it is cut, damaged or no trace, 64\n"
	"wrong usage, 66 no such file, 73 cannot write.\n";

#define CHOICES_MAX 32

struct moment {
	bool     given, absolute;
	uint64_t ns;
};

struct show {
	bool          as_json, summary, follow;
	const char   *kinds[CHOICES_MAX];
	uint64_t      pids[CHOICES_MAX];
	size_t        n_kinds, n_pids;
	struct moment from, to;
	/* While it runs: */
	uint64_t                start_ns; /* of the first record */
	struct spr_cli_json     json;
	struct spr_cli_summary *sums;
	struct spr_cli_judge    judge;
};

/* "1.5", "200ms", "@NS". */
static bool parse_moment(const char *text, struct moment *m)
{
	static const struct {
		const char *name;
		double      ns;
	} units[] = { { "", 1e9 }, { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 } };
	char *end;

	m->given = true;
	m->absolute = text[0] == '@';
	if (m->absolute)
		return spr_cli_parse_number(text + 1, UINT64_MAX, &m->ns);
	if ((*text < '0' || *text > '9') && *text != '.')
		return false;
	const double value = strtod(text, &end);
	for (size_t i = 0; end != text && i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(end, units[i].name) && value * units[i].ns < 1e18) {
			m->ns = (uint64_t)(value * units[i].ns);
			return true;
		}
	}
	return false;
}

static uint64_t moment_ns(const struct moment *m, uint64_t start_ns)
{
	return m->absolute ? m->ns : start_ns + m->ns;
}

static bool is_wanted(const struct show *show, const struct spr_kind *kind,
                      const struct spr_record *rec)
{
	bool found = show->n_kinds == 0;

	for (size_t i = 0; i < show->n_kinds && !found; i++)
		found = !strcmp(show->kinds[i], kind->name);
	if (!found)
		return false;
	if (show->n_pids) {
		const int64_t pid = spr_cli_record_pid(kind, rec);

		found = false;
		for (size_t i = 0; i < show->n_pids && !found; i++)
			found = pid >= 0 && (uint64_t)pid == show->pids[i];
		if (!found)
			return false;
	}
	if (show->from.given && rec->time_ns < moment_ns(&show->from, show->start_ns))
		return false;
	return !show->to.given || rec->time_ns <= moment_ns(&show->to, show->start_ns);
}

static void show_record(struct show *show, const struct spr_kind *kind,
                        const struct spr_record *rec, int error)
{
	if (!show->start_ns)
		show->start_ns = rec->time_ns;
	spr_cli_judge_see(&show->judge, kind, rec);
	if (!is_wanted(show, kind, rec))
		return;
	if (show->summary) {
		spr_cli_summary_add(show->sums, kind, rec, error);
	} else if (show->as_json) {
		spr_cli_record_json(&show->json, kind, rec, error);
		spr_cli_json_line(&show->json, stdout);
	} else {
		spr_cli_record_text(stdout, kind, rec, error, show->start_ns);
	}
}

/* A trace that is followed has nothing for now: let the reader see what there is, and wait. */
static void rest(void)
{
	const struct timespec pause = { .tv_nsec = 100000000 };

	fflush(stdout);
	nanosleep(&pause, NULL);
}

/* Who asks for results by name wants to see them as they are. */
static bool wants_results(const struct show *show)
{
	for (size_t i = 0; i < show->n_kinds; i++) {
		if (!strcmp(show->kinds[i], "result"))
			return true;
	}
	return false;
}

static void show_records(struct show *show, struct spr_cli_input *in)
{
	struct spr_cli_join *join = spr_cli_join_open(in, wants_results(show));
	struct spr_record rec;
	int error;

	while (!ferror(stdout)) {
		if (spr_cli_join_next(join, &rec, &error) > 0)
			show_record(show, spr_cli_input_kind(in, rec.kind), &rec, error);
		else if (in->waits)
			rest();
		else
			break;
	}
	spr_cli_join_close(join);
}

static void show_summary(struct show *show, const char *name, uint64_t n_read)
{
	if (show->as_json) {
		spr_cli_json_open(&show->json, NULL, '{');
		spr_cli_summary_json(show->sums, n_read, &show->json);
		spr_cli_judge_json(&show->judge, &show->json, "verdict");
		spr_cli_json_close(&show->json, '}');
		spr_cli_json_line(&show->json, stdout);
		return;
	}
	printf("trace        %s\n", spr_cli_shown(name));
	spr_cli_summary_text(show->sums, n_read, stdout);
	spr_cli_judge_text(&show->judge, stdout);
}

/* A kind that the trace does not know would be shown as a trace without records. */
static bool knows_kinds(const struct show *show, const struct spr_cli_input *in, const char *name)
{
	uint32_t n;
	const struct spr_kind *kinds = spr_trace_kinds(in->trace, &n);

	for (size_t i = 0; i < show->n_kinds; i++) {
		bool found = !strcmp(show->kinds[i], "blind");

		for (uint32_t k = 0; k < n && !found; k++)
			found = !strcmp(show->kinds[i], kinds[k].name);
		if (!found) {
			spr_cli_say("%s: has no kind \"%s\"; \"sparring show --summary\" tells "
			            "which it has",
			            spr_cli_shown(name), spr_cli_shown(show->kinds[i]));
			return false;
		}
	}
	return true;
}

static int show_file(struct show *show, const char *name)
{
	struct spr_cli_input in;
	struct spr_frame frame;
	const int status = spr_cli_input_open(&in, name, show->follow);

	if (status != SPR_CLI_OK)
		return status;
	if (!knows_kinds(show, &in, name)) {
		spr_cli_input_close(&in);
		return SPR_CLI_USAGE;
	}
	if (show->summary)
		show->sums = spr_cli_summary_open();
	if (show->from.given && spr_trace_frame(in.trace, 0, &frame) >= 0) {
		show->start_ns = frame.first_ns;
		/* A pipe cannot be sought; then all is read and the early records are passed over.
		 */
		(void)!spr_trace_seek(in.trace, moment_ns(&show->from, show->start_ns));
	}
	if (!show->as_json && !show->summary)
		printf("%12s %7s  %-8s %-11s %s\n", "SECONDS", "PID", "KIND", "CALL", "WHAT");
	if (!show->follow)
		spr_cli_progress_open(&in.progress, show->summary);
	show_records(show, &in);
	spr_cli_judge_close(&show->judge, &in);
	if (show->summary)
		show_summary(show, name, in.n_read);
	else if (show->judge.verdict.reasons & SPR_CUT)
		spr_cli_say("%s: is cut: what is shown is all that can be read",
		            spr_cli_shown(name));
	const bool damaged = in.damaged;
	spr_cli_input_close(&in);
	spr_cli_json_fini(&show->json);
	spr_cli_judge_fini(&show->judge);
	if (show->sums)
		spr_cli_summary_close(show->sums);
	const int written = spr_cli_finish_stdout();
	return written != SPR_CLI_OK ? written : damaged ? SPR_CLI_CUT : SPR_CLI_OK;
}

static int show_choice(const struct spr_cli_command *self, struct show *show, int c)
{
	switch (c) {
	case 'j':
		show->as_json = true;
		return 0;
	case 's':
		show->summary = true;
		return 0;
	case 'f':
		show->follow = true;
		return 0;
	case 'k':
		if (show->n_kinds == CHOICES_MAX)
			return spr_cli_usage(self, "too many --kind");
		show->kinds[show->n_kinds++] = optarg;
		return 0;
	case 'p':
		if (show->n_pids == CHOICES_MAX)
			return spr_cli_usage(self, "too many --pid");
		if (!spr_cli_parse_number(optarg, INT32_MAX, &show->pids[show->n_pids++]))
			return spr_cli_usage(self, "--pid %s: not a process number",
			                     spr_cli_shown(optarg));
		return 0;
	default:
		if (parse_moment(optarg, c == 'F' ? &show->from : &show->to))
			return 0;
		return spr_cli_usage(self, "--%s %s: not a time; write 1.5, 200ms or @NANOSECONDS",
		                     c == 'F' ? "from" : "to", spr_cli_shown(optarg));
	}
}

static int show_run(const struct spr_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },     { "summary", no_argument, NULL, 's' },
		{ "follow", no_argument, NULL, 'f' },   { "kind", required_argument, NULL, 'k' },
		{ "pid", required_argument, NULL, 'p' }, { "from", required_argument, NULL, 'F' },
		{ "to", required_argument, NULL, 'T' }, { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct show show = {0};
	int c;

	while ((c = spr_cli_option(self, argc, argv, ":h", longs)) != -1) {
		if (c == 'h') {
			fputs(self->help, stdout);
			return spr_cli_finish_stdout();
		}
		if (c == '?' || show_choice(self, &show, c))
			return SPR_CLI_USAGE;
	}
	const char *name = spr_cli_operand(self, argc, argv, "trace");
	return name ? show_file(&show, name) : SPR_CLI_USAGE;
}

const struct spr_cli_command spr_cli_show = {
	"show", "prints a trace as a table, as JSON lines, or as a summary", help, show_run,
};
