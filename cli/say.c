/* SPDX-License-Identifier: MIT */
/* say.c - how the command speaks and reads its arguments. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"

void spr_cli_say(const char *format, ...)
{
	char line[8192];
	va_list args;
	int n = snprintf(line, sizeof(line), "sparring: ");
	const size_t room = sizeof(line) - (size_t)n - 1;

	va_start(args, format);
	const int said = vsnprintf(line + n, room, format, args);
	va_end(args);
	n += said < 0 ? 0 : (size_t)said < room ? said : (int)room - 1;
	line[n++] = '\n';
	/* One write, so that it is not torn by what the target's children still print. */
	fflush(stderr);
	fwrite(line, 1, (size_t)n, stderr);
	fflush(stderr);
}

int spr_cli_usage(const struct spr_cli_command *self, const char *format, ...)
{
	char what[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	spr_cli_say("%s: %s; \"sparring %s --help\" tells more", self->name, what, self->name);
	return SPR_CLI_USAGE;
}

/* getopt tells the wrong option in one of two ways; this finds the word the user typed. */
static const char *wrong_word(char **argv, char letter[3])
{
	if (optopt && optopt < 128) {
		snprintf(letter, 3, "-%c", optopt);
		return letter;
	}
	return argv[optind - 1];
}

int spr_cli_option(const struct spr_cli_command *self, int argc, char **argv, const char *letters,
                   const struct option *longs)
{
	char letter[3];

	opterr = 0;
	optopt = 0;
	const int c = getopt_long(argc, argv, letters, longs, NULL);
	if (c == ':') {
		spr_cli_usage(self, "%s needs a value", spr_cli_shown(argv[optind - 1]));
		return '?';
	}
	if (c == '?') {
		const char *word = wrong_word(argv, letter);
		spr_cli_usage(self, "unknown option %s", spr_cli_shown(word));
	}
	return c;
}

const char *spr_cli_operand(const struct spr_cli_command *self, int argc, char **argv,
                            const char *what)
{
	if (optind >= argc) {
		spr_cli_usage(self, "no %s given", what);
		return NULL;
	}
	if (optind + 1 < argc) {
		spr_cli_usage(self, "one %s at a time, not also %s", what,
		              spr_cli_shown(argv[optind + 1]));
		return NULL;
	}
	return argv[optind];
}

bool spr_cli_parse_number(const char *text, uint64_t max, uint64_t *number)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	const unsigned long long n = strtoull(text, &end, 10);
	if (errno || *end || n > max)
		return false;
	*number = n;
	return true;
}

bool spr_cli_parse_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	char *end;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	const unsigned long long n = strtoull(text, &end, 10);
	if (errno)
		return false;
	const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
		if (!strcmp(end, "iB") || !strcmp(end, "B"))
			end += strlen(end);
	}
	if (*end || n > (UINT64_MAX >> shift))
		return false;
	*bytes = (uint64_t)n << shift;
	return true;
}

int spr_cli_finish_stdout(void)
{
	const bool failed = ferror(stdout);

	if (fflush(stdout) || failed) {
		spr_cli_say("standard output: cannot be written: %s", strerror(errno));
		return SPR_CLI_NO_OUTPUT;
	}
	return SPR_CLI_OK;
}

void *spr_cli_grow(void *old, size_t bytes)
{
	void *grown = realloc(old, bytes ? bytes : 1);

	if (!grown) {
		spr_cli_say("out of memory");
		exit(SPR_CLI_FAILED);
	}
	return grown;
}

const char *spr_cli_shown_bytes(const void *text, size_t n_bytes)
{
	static char ring[8][4200];
	static unsigned turn;
	char *out = ring[turn++ % 8];

	spr_escape_terminal(out, sizeof(ring[0]), text, n_bytes);
	return out;
}

const char *spr_cli_shown(const char *text)
{
	return spr_cli_shown_bytes(text, strlen(text));
}
