/* SPDX-License-Identifier: MIT */
/* input.h - a trace opened for reading, with a sentence for everything that can be wrong. */
#ifndef SPR_CLI_INPUT_H
#define SPR_CLI_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include <sparring/sparring.h>

#include "cli/progress.h"

struct spr_cli_input {
	spr_trace             *trace;
	const char            *name; /* as the user said it */
	const struct spr_kind *kinds;
	uint32_t               n_kinds;
	uint64_t               n_read; /* records so far */
	struct spr_cli_progress progress; /* open it to have it */
	int                    fd;
	bool                   damaged; /* a frame could not be read, or the end is missing */
	bool                   follow;
	bool                   waits; /* followed: the last next found nothing for now */
};

/* "-" is standard input. follow: wait for more; the part of a recording that still runs is found
 * by the name its trace will have. SPR_CLI_OK, or after a sentence the status to exit with. */
int spr_cli_input_open(struct spr_cli_input *in, const char *name, bool follow);
/* The next record: 1, or 0 at the end. A damaged frame is said, noted and passed over. */
int spr_cli_input_next(struct spr_cli_input *in, struct spr_record *rec);
/* At the end: the verdict, with what this reading saw. false: the file carries none. */
bool spr_cli_input_verdict(struct spr_cli_input *in, struct spr_verdict *verdict);
void spr_cli_input_close(struct spr_cli_input *in);

/* The declaration of a record's kind; never NULL: what is not declared is "bytes". Its fields are
 * read with spr_cli_value(). */
const struct spr_kind *spr_cli_input_kind(const struct spr_cli_input *in, uint16_t kind);
int spr_cli_value(const struct spr_kind *kind, const struct spr_record *rec, uint32_t field,
                  struct spr_value *out);
/* Field number by name, or -1. */
int spr_cli_field_find(const struct spr_kind *kind, const char *name);

#endif /* SPR_CLI_INPUT_H */
