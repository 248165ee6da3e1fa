/* SPDX-License-Identifier: MIT */
/*
 * cli.h - what the subcommands share: exit statuses, how they speak, how they read arguments.
 *
 * Each subcommand is one file with one entry in the table of main.c. Nothing here writes to
 * stdout but what the user asked for.
 */
#ifndef SPR_CLI_CLI_H
#define SPR_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/sparring.h>

/* One table for all commands; `record` and its kin otherwise answer with the target's own. */
enum spr_cli_status {
	SPR_CLI_OK = 0,
	SPR_CLI_INCOMPLETE = 1,     /* verdict */
	SPR_CLI_CUT = 2,            /* show, verdict: cut, damaged, or no trace at all */
	SPR_CLI_UNKNOWN = 4,        /* verdict: the file carries none */
	SPR_CLI_USAGE = 64,
	SPR_CLI_NO_INPUT = 66,
	SPR_CLI_NO_OUTPUT = 73,
	SPR_CLI_STRICT = 120,       /* --strict: the target succeeded, the verdict is incomplete */
	SPR_CLI_FAILED = 125,       /* before the target started */
	SPR_CLI_NOT_EXECUTABLE = 126,
	SPR_CLI_NOT_FOUND = 127,
};

struct spr_cli_command {
	const char *name;
	const char *what; /* one line for the list */
	const char *help; /* all of it, with the line of usage first */
	int (*run)(const struct spr_cli_command *self, int argc, char **argv);
};

extern const struct spr_cli_command spr_cli_record;
extern const struct spr_cli_command spr_cli_show;
extern const struct spr_cli_command spr_cli_verdict;
extern const struct spr_cli_command spr_cli_probe;
extern const struct spr_cli_command spr_cli_clean;

/* One line on stderr, "sparring: " in front; what it names is escaped for a terminal. */
void spr_cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with the command's name in front and a hint at its help behind; the status is 64. */
int spr_cli_usage(const struct spr_cli_command *self, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* getopt_long() that speaks our way. The option's letter, -1 at the end of the options, '?' after
 * something wrong, which has been said. -h and --help are 'h'. */
struct option;
int spr_cli_option(const struct spr_cli_command *self, int argc, char **argv, const char *letters,
                   const struct option *longs);
/* What is behind the options must be exactly one thing; NULL after a sentence. */
const char *spr_cli_operand(const struct spr_cli_command *self, int argc, char **argv,
                            const char *what);

/* "4096", "64K", "16M", "2GiB". */
bool spr_cli_parse_bytes(const char *text, uint64_t *bytes);
bool spr_cli_parse_number(const char *text, uint64_t max, uint64_t *number);

/* Flush stdout: SPR_CLI_OK or, after a sentence, SPR_CLI_NO_OUTPUT. */
int spr_cli_finish_stdout(void);

/* Memory for those who cannot go on without. Never used while a target runs. */
void *spr_cli_grow(void *old, size_t bytes);

/* Text from a target or a user, for a terminal: a string in a small ring of static places, good
 * until eight more have been asked for. */
const char *spr_cli_shown_bytes(const void *text, size_t n_bytes);
const char *spr_cli_shown(const char *text);

#endif /* SPR_CLI_CLI_H */
