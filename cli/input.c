/* SPDX-License-Identifier: MIT */
/* input.c - a trace opened for reading. */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kinds.h"
#include "cli/cli.h"
#include "cli/part.h"

static const struct spr_field bytes_field = { .name = "data", .type = SPR_BYTES };
static const struct spr_kind bytes_kind = { .name = "bytes",
	                                    .fields = &bytes_field,
	                                    .n_fields = 1 };

static int input_refused(const char *name, int err)
{
	spr_cli_say("%s: %s", spr_cli_shown(name), strerror(err));
	return SPR_CLI_NO_INPUT;
}

static int input_open_file(struct spr_cli_input *in, const char *name, bool follow)
{
	struct stat st;

	in->fd = follow ? spr_cli_part_find(name) : -ENOENT;
	if (in->fd < 0)
		in->fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (in->fd < 0)
		return input_refused(name, errno);
	if (fstat(in->fd, &st))
		return input_refused(name, errno);
	if (S_ISDIR(st.st_mode)) {
		spr_cli_say("%s: is a directory, not a trace", spr_cli_shown(name));
		return SPR_CLI_NO_INPUT;
	}
	if (S_ISREG(st.st_mode) && st.st_size == 0 && !follow) {
		spr_cli_say("%s: is empty, not a trace", spr_cli_shown(name));
		return SPR_CLI_CUT;
	}
	return SPR_CLI_OK;
}

static int input_open_trace(struct spr_cli_input *in)
{
	struct spr_trace_options opt = SPR_TRACE_OPTIONS_INIT;

	opt.flags = in->follow ? SPR_FOLLOW : 0;
	const int err = spr_trace_open(&in->trace, in->fd, &opt);
	if (err < 0) {
		/* Its first read may be what finds that standard input is closed. */
		spr_cli_say("%s: %s", spr_cli_shown(in->name), spr_error_text());
		return err == -EBADF || err == -EIO || err == -EACCES ? SPR_CLI_NO_INPUT
		                                                      : SPR_CLI_CUT;
	}
	in->kinds = spr_trace_kinds(in->trace, &in->n_kinds);
	return SPR_CLI_OK;
}

int spr_cli_input_open(struct spr_cli_input *in, const char *name, bool follow)
{
	const bool standard = !strcmp(name, "-");

	*in = (struct spr_cli_input){ .name = standard ? "standard input" : name, .fd = -1 };
	in->follow = follow;
	int status = SPR_CLI_OK;
	if (standard)
		in->fd = STDIN_FILENO;
	else
		status = input_open_file(in, name, follow);
	if (status == SPR_CLI_OK)
		status = input_open_trace(in);
	if (status != SPR_CLI_OK)
		spr_cli_input_close(in);
	return status;
}

int spr_cli_input_next(struct spr_cli_input *in, struct spr_record *rec)
{
	for (;;) {
		const int got = spr_trace_next(in->trace, rec);

		if (got >= 0 || got == -EAGAIN) {
			in->waits = got == -EAGAIN;
			in->n_read += got > 0;
			spr_cli_progress_step(&in->progress, in->n_read);
			return got > 0;
		}
		in->damaged = true;
		spr_cli_progress_close(&in->progress);
		spr_cli_say("%s: %s", spr_cli_shown(in->name), spr_error_text());
		if (got != -EBADMSG)
			return 0;
	}
}

bool spr_cli_input_verdict(struct spr_cli_input *in, struct spr_verdict *verdict)
{
	spr_cli_progress_close(&in->progress);
	*verdict = (struct spr_verdict)SPR_VERDICT_INIT;
	if (spr_trace_verdict(in->trace, verdict) < 0)
		return false;
	if (verdict->reasons & SPR_CUT)
		in->damaged = true;
	return true;
}

void spr_cli_input_close(struct spr_cli_input *in)
{
	spr_trace_close(in->trace);
	if (in->fd > STDERR_FILENO)
		close(in->fd);
	in->trace = NULL;
	in->fd = -1;
}

const struct spr_kind *spr_cli_input_kind(const struct spr_cli_input *in, uint16_t kind)
{
	if (kind == SPR_KIND_BLIND)
		return &spr_kind_blind;
	if (kind == 0 || kind > in->n_kinds)
		return &bytes_kind;
	return &in->kinds[kind - 1];
}

int spr_cli_value(const struct spr_kind *kind, const struct spr_record *rec, uint32_t field,
                  struct spr_value *out)
{
	/* Kind 0 has no declaration: all of the record is its one field. */
	return spr_record_field(kind == &bytes_kind ? NULL : kind, rec, field, out);
}

int spr_cli_field_find(const struct spr_kind *kind, const char *name)
{
	for (uint32_t i = 0; i < kind->n_fields; i++) {
		if (!strcmp(kind->fields[i].name, name))
			return (int)i;
	}
	return -1;
}
