/* SPDX-License-Identifier: MIT */
/* record.c - `sparring record`: runs a program, writes down which files it and its children use. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/session.h"
#include "spy/supervise.h"

static const char help[] =
	"usage: sparring record [OPTION...] -- COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs COMMAND and records which files it and all its children read, write, list, ask\n"
	"about or execute. COMMAND behaves as without sparring: same output, same exit status,\n"
	"same signals. At its end one line on standard error says what was recorded; \"sparring\n"
	"show\" reads the trace, \"sparring verdict\" tells what it is worth.\n"
	"\n"
	"  -o, --output FILE   the trace (default: sparring.spr); \"-\", a pipe or /dev/fd/N is\n"
	"                      written straight through. An existing file is replaced at the end\n"
	"      --backend B     how to see: hooks (a preloaded library), auto (the best there is)\n"
	"      --transport S   how records travel: ring (shared memory)\n"
	"      --keep-setuid   setuid programs keep their privilege (with hooks they always do)\n"
	"      --strict        exit with 120 if COMMAND succeeds but the verdict is incomplete\n"
	"  -q, --quiet         no line at the end\n"
	"  -v, --verbose       at the end also what the recording cost\n"
	"      --report-fd N   the line at the end goes to descriptor N instead\n"
	"      --no-argv       leave the arguments of programs out of the trace\n"
	"      --user U        run COMMAND as this user (default under sudo: who called it)\n"
	"      --capacity N    most bytes that may wait to be written (64M, 1G; default 1G)\n"
	"      --stall-ms N    when they are full: how long COMMAND may be held up in all before\n"
	"                      records are dropped and counted (default 1000)\n"
	"  -h, --help          this text\n"
	"\n"
	"While it runs the trace is FILE.part-XXXXXXXX; \"sparring show --follow FILE\" reads\n"
	"along. What could not be seen or was lost makes the verdict incomplete and is said.\n"
	"\n"
	"Exit status: COMMAND's own (128 + N if signal N killed it); 120 see --strict; 125\n"
	"sparring failed before COMMAND started; 126 COMMAND cannot be executed; 127 there is no\n"
	"COMMAND; 64 wrong usage; 73 FILE cannot be written.\n";

enum {
	OPT_TRANSPORT = 1000, OPT_BACKEND, OPT_KEEP_SETUID, OPT_STRICT, OPT_REPORT_FD, OPT_NO_ARGV,
	OPT_USER, OPT_CAPACITY, OPT_STALL_MS,
};

static const struct option longs[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "transport", required_argument, NULL, OPT_TRANSPORT },
	{ "backend", required_argument, NULL, OPT_BACKEND },
	{ "keep-setuid", no_argument, NULL, OPT_KEEP_SETUID },
	{ "strict", no_argument, NULL, OPT_STRICT },
	{ "quiet", no_argument, NULL, 'q' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "report-fd", required_argument, NULL, OPT_REPORT_FD },
	{ "no-argv", no_argument, NULL, OPT_NO_ARGV },
	{ "user", required_argument, NULL, OPT_USER },
	{ "capacity", required_argument, NULL, OPT_CAPACITY },
	{ "stall-ms", required_argument, NULL, OPT_STALL_MS },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

#define WORDS_ROOM 2400

struct record {
	struct spr_cli_session_options opt;
	const char *user;
	bool        help, strict, quiet, verbose, no_argv;
	int         report_fd;
};

/* --- Options -------------------------------------------------------------------------- */

static int refuse_transport(const struct spr_cli_command *self, const char *name)
{
	static const char *const known[] = { "arena", "pipe", "unix", "bpf" };
	const size_t n = strcspn(name, ":");

	if (!strcmp(name, "ring") || !strcmp(name, "ring:"))
		return SPR_CLI_OK;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strlen(known[i]) == n && !strncmp(name, known[i], n)) {
			spr_cli_say("--transport %s: not built in; ring is there", name);
			return SPR_CLI_FAILED;
		}
	}
	return spr_cli_usage(self, "--transport %s: there is no such transport",
	                     spr_cli_shown(name));
}

static int refuse_backend(const struct spr_cli_command *self, const char *name)
{
	static const char *const known[] = { "gate", "hooks+gate", "bpf" };

	if (!strcmp(name, "hooks") || !strcmp(name, "auto"))
		return SPR_CLI_OK;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(name, known[i])) {
			spr_cli_say("--backend %s: not built in; hooks is there", name);
			return SPR_CLI_FAILED;
		}
	}
	return spr_cli_usage(self, "--backend %s: there is no such backend", spr_cli_shown(name));
}

static int choose_report_fd(const struct spr_cli_command *self, struct record *r, const char *text)
{
	uint64_t fd;

	if (!spr_cli_parse_number(text, INT_MAX, &fd))
		return spr_cli_usage(self, "--report-fd %s: not a descriptor", spr_cli_shown(text));
	if (fcntl((int)fd, F_GETFD) < 0)
		return spr_cli_usage(self, "--report-fd %s: is not open", spr_cli_shown(text));
	/* It is for us: the target must not find it. Standard ones stay as they are. */
	if (fd > STDERR_FILENO)
		(void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	r->report_fd = (int)fd;
	return SPR_CLI_OK;
}

static int choose_number(const struct spr_cli_command *self, struct record *r, int c,
                         const char *text)
{
	uint64_t n;

	if (c == OPT_CAPACITY) {
		if (!spr_cli_parse_bytes(text, &n) || !n)
			return spr_cli_usage(self, "--capacity %s: not a size; write 64M or 1G",
			                     spr_cli_shown(text));
		r->opt.capacity_bytes = n;
		return SPR_CLI_OK;
	}
	if (!spr_cli_parse_number(text, UINT32_MAX, &n) || !n)
		return spr_cli_usage(self, "--stall-ms %s: not a number of milliseconds",
		                     spr_cli_shown(text));
	r->opt.stall_ms = (uint32_t)n;
	return SPR_CLI_OK;
}

static int choose(const struct spr_cli_command *self, struct record *r, int c)
{
	switch (c) {
	case '?': return SPR_CLI_USAGE;
	case 'h': r->help = true; break;
	case 'o':
		r->opt.out = optarg;
		return *optarg ? SPR_CLI_OK : spr_cli_usage(self, "--output needs a name");
	case 'q': r->quiet = true; break;
	case 'v': r->verbose = true; break;
	case OPT_STRICT: r->strict = true; break;
	case OPT_NO_ARGV: r->no_argv = true; break;
	case OPT_USER: r->user = optarg; break;
	case OPT_KEEP_SETUID: break; /* hooks never take it away */
	case OPT_TRANSPORT: return refuse_transport(self, optarg);
	case OPT_BACKEND: return refuse_backend(self, optarg);
	case OPT_REPORT_FD: return choose_report_fd(self, r, optarg);
	default: return choose_number(self, r, c, optarg);
	}
	return SPR_CLI_OK;
}

/* --- Running ---------------------------------------------------------------------------- */

/* Where execvp finds it, so that it can be named and looked at. false: nowhere in PATH. */
static bool find_program(char *out, size_t room, const char *name, int mode)
{
	const char *at = getenv("PATH");

	while (!strchr(name, '/') && at && *at) {
		const size_t n = strcspn(at, ":");
		snprintf(out, room, "%.*s/%s", n ? (int)n : 1, n ? at : ".", name);
		if (!access(out, mode))
			return true;
		at += n + (at[n] == ':');
	}
	if (name[0] == '/' || !getcwd(out, room) || strlen(out) + strlen(name) + 2 > room)
		snprintf(out, room, "%s", name);
	else
		strcat(strcat(out, "/"), name);
	return strchr(name, '/');
}

static int could_not_execute(const char *name, int err)
{
	char path[PATH_MAX];

	/* A folder in PATH that we may not look into is no reason to say more than "not found". */
	if (err == -EACCES && !strchr(name, '/') && !find_program(path, sizeof(path), name, F_OK))
		err = -ENOENT;
	if (err == -ENOENT && !strchr(name, '/'))
		spr_cli_say("%s: command not found", spr_cli_shown(name));
	else
		spr_cli_say("%s: cannot be executed: %s", spr_cli_shown(name), strerror(-err));
	return err == -ENOENT ? SPR_CLI_NOT_FOUND : SPR_CLI_NOT_EXECUTABLE;
}

__attribute__((format(printf, 2, 3))) static void words_add(char words[WORDS_ROOM],
                                                            const char *format, ...)
{
	const size_t n = strlen(words);
	va_list args;

	va_start(args, format);
	vsnprintf(words + n, WORDS_ROOM - n, format, args);
	va_end(args);
}

/* "complete", or "incomplete (lost: 3; blind: loader, pid 77 static)". */
static void verdict_words(const struct spr_cli_session *s, char words[WORDS_ROOM])
{
	const struct spr_verdict *v = &s->verdict;
	const char *between = " (";

	strcpy(words, v->reasons ? "incomplete" : "complete");
	if (v->reasons & SPR_CUT) {
		words_add(words, "%scut", between);
		between = "; ";
	}
	if (v->reasons & SPR_LOST) {
		words_add(words, "%slost: %" PRIu64, between, v->lost);
		between = "; ";
	}
	if (v->reasons & SPR_LEFT_RUNNING) {
		words_add(words, "%sleft running: %" PRIu64, between, v->left_running);
		between = "; ";
	}
	if (v->reasons & SPR_BLIND)
		words_add(words, "%sblind: %s", between, s->coverage);
	if (s->n_covered > SPR_CLI_COVERED_MAX)
		words_add(words, " and %zu more", s->n_covered - SPR_CLI_COVERED_MAX);
	if (v->reasons)
		words_add(words, ")");
}

/* One line, in one write, and no word more: nobody is left to ask where it goes. */
static void report(const struct record *r, const struct spr_cli_session *s)
{
	const struct spr_stats *st = &s->stats;
	char words[WORDS_ROOM], line[WORDS_ROOM + 6000];
	const char *file = s->whole || s->part.through ? r->opt.out : s->part.path;

	if (r->quiet)
		return;
	verdict_words(s, words);
	int n = snprintf(line, sizeof(line),
	                 "sparring: %" PRIu64 " records, %zu process%s, %s: %s\n",
	                 st->delivered + s->n_own, s->n_processes, s->n_processes == 1 ? "" : "es",
	                 words, spr_cli_shown(file));
	if (r->verbose)
		n += snprintf(line + n, sizeof(line) - (size_t)n,
		              "sparring: %u writers, %" PRIu64 " bytes, %" PRIu64 " written, "
		              "%" PRIu64 " lost, %" PRIu64 " refused, %" PRIu64 " stalls, %" PRIu64
		              " wakes\n",
		              st->n_writers, st->written_bytes, st->written, st->lost, st->refused,
		              st->stalls, st->wakes);
	(void)!write(r->report_fd, line, (size_t)n);
}

static int run_target(const struct record *r, struct spr_cli_session *s, struct spr_cli_target *t,
                      char **argv, char **env)
{
	const uint64_t now_ns = spr_clock_monotonic_ns();
	const int err = spr_cli_target_start(t, argv, env, &r->opt.user);

	if (err)
		spr_cli_session_drop(s);
	if (err && t->pid < 0) {
		spr_cli_say("cannot start a process: %s", strerror(-err));
		return SPR_CLI_FAILED;
	}
	if (err)
		return could_not_execute(argv[0], err);
	find_program(s->exe, sizeof(s->exe), argv[0], X_OK);
	spr_cli_watch_root(s->watch, t->pid, now_ns, s->exe);
	spr_cli_session_run(s, t);
	spr_cli_session_close(s, t);
	spr_cli_target_close(t);
	report(r, s);
	if (r->strict && t->status == 0 && s->verdict.reasons)
		return SPR_CLI_STRICT;
	return t->status;
}

static char **target_environment(const struct record *r, const struct spr_cli_session *s)
{
	struct spr_spy_options opt = { .no_argv = r->no_argv };
	char **env;

	if (r->opt.user.other) {
		setenv("HOME", r->opt.user.home, 1);
		setenv("USER", r->opt.user.name, 1);
		setenv("LOGNAME", r->opt.user.name, 1);
	}
	if (spr_spy_environment(&env, environ, spr_channel_address(s->channel), &opt) < 0) {
		spr_cli_say("%s", spr_cli_shown(spr_error_text()));
		return NULL;
	}
	return env;
}

static int record_prepared(struct record *r, struct spr_cli_target *t,
                           const struct spr_cli_part *part, char **argv)
{
	struct spr_cli_session session;
	const int status = spr_cli_session_open(&session, &r->opt, part);

	if (status != SPR_CLI_OK)
		return status;
	char **env = target_environment(r, &session);
	if (!env) {
		spr_cli_session_drop(&session);
		return SPR_CLI_FAILED;
	}
	const int answer = run_target(r, &session, t, argv, env);
	free(env);
	return answer;
}

static int record_target(struct record *r, char **argv)
{
	const struct spr_cli_user *user = &r->opt.user;
	struct spr_cli_target target;
	struct spr_cli_part part;

	if (spr_cli_user_find(&r->opt.user, r->user))
		return SPR_CLI_FAILED;
	/* First of all: to open a pipe is to wait for its reader, and ^C should end that. */
	if (spr_cli_part_open(&part, r->opt.out, user->other ? user->uid : (uid_t)-1, user->gid))
		return SPR_CLI_NO_OUTPUT;
	const int err = spr_cli_target_prepare(&target);
	if (err) {
		spr_cli_say("signalfd: %s", strerror(-err));
		spr_cli_part_drop(&part);
		return SPR_CLI_FAILED;
	}
	const int status = record_prepared(r, &target, &part, argv);
	spr_cli_target_close(&target);
	return status;
}

static int record_run(const struct spr_cli_command *self, int argc, char **argv)
{
	struct record r = { .opt = { .out = "sparring.spr", .address = "ring:" },
	                    .report_fd = STDERR_FILENO };
	int c;

	/* "+": what follows the command is the command's. */
	while ((c = spr_cli_option(self, argc, argv, "+:o:qvh", longs)) != -1) {
		const int status = choose(self, &r, c);
		if (status != SPR_CLI_OK)
			return status;
	}
	if (r.help) {
		fputs(self->help, stdout);
		return spr_cli_finish_stdout();
	}
	if (optind >= argc)
		return spr_cli_usage(self, "no command to run; write it behind \"--\"");
	return record_target(&r, argv + optind);
}

const struct spr_cli_command spr_cli_record = {
	"record", "runs a program and records which files it uses", help, record_run,
};
