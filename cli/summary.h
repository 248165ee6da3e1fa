/* SPDX-License-Identifier: MIT */
/* summary.h - a trace in one screen: who, how much, which files, which folders. */
#ifndef SPR_CLI_SUMMARY_H
#define SPR_CLI_SUMMARY_H

#include "cli/input.h"
#include "cli/json.h"

struct spr_cli_summary;

struct spr_cli_summary *spr_cli_summary_open(void);
void spr_cli_summary_add(struct spr_cli_summary *s, const struct spr_kind *kind,
                         const struct spr_record *rec, int error);
/* n_read: records in the file, results that were joined and blind spots among them. */
void spr_cli_summary_text(struct spr_cli_summary *s, uint64_t n_read, FILE *out);
/* Members of the object that is open. */
void spr_cli_summary_json(struct spr_cli_summary *s, uint64_t n_read, struct spr_cli_json *j);
void spr_cli_summary_close(struct spr_cli_summary *s);

#endif /* SPR_CLI_SUMMARY_H */
