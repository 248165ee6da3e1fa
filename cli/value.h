/* SPDX-License-Identifier: MIT */
/* value.h - any record of any kind, as JSON or as text for people. */
#ifndef SPR_CLI_VALUE_H
#define SPR_CLI_VALUE_H

#include <sparring/sparring.h>

#include "cli/json.h"

/* What a field of a record holds; absent: false. */
bool spr_cli_field(const struct spr_kind *kind, const struct spr_record *rec, const char *name,
                   struct spr_value *value);
/* The pid a record is about: its own field where it has one, else the writer's. */
int64_t spr_cli_record_pid(const struct spr_kind *kind, const struct spr_record *rec);
/* The label of an ENUM field, or NULL. */
const char *spr_cli_label(const struct spr_field *field, const struct spr_value *value);
/* The elements of a LIST, one after the other. */
struct spr_cli_list {
	const unsigned char *at, *end;
	uint32_t             left;
};
void spr_cli_list_begin(struct spr_cli_list *list, const struct spr_record *rec,
                        const struct spr_value *value);
bool spr_cli_list_next(struct spr_cli_list *list, const char **text, size_t *n_bytes);

/* One object. error: of the call's companion record, 0 if it did not fail. */
void spr_cli_record_json(struct spr_cli_json *j, const struct spr_kind *kind,
                         const struct spr_record *rec, int error);
/* One line, relative to start_ns. */
void spr_cli_record_text(FILE *out, const struct spr_kind *kind, const struct spr_record *rec,
                         int error, uint64_t start_ns);

#endif /* SPR_CLI_VALUE_H */
