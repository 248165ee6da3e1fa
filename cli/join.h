/* SPDX-License-Identifier: MIT */
/*
 * join.h - a record and what became of it.
 *
 * A file record is written before its call; a failure follows as a record of kind "result" by the
 * same writer that names the first by its time. This looks ahead a bounded number of records, so
 * that the two come out as one; a result that comes later than that stays a record of its own.
 */
#ifndef SPR_CLI_JOIN_H
#define SPR_CLI_JOIN_H

#include "cli/input.h"

struct spr_cli_join;

/* apart: leave them apart. */
struct spr_cli_join *spr_cli_join_open(struct spr_cli_input *in, bool apart);
/* The next record with the errno of its failure, 0 if none is known; 1, or 0 at the end (in a
 * trace that is followed: for now). rec->data is good until the next call. */
int spr_cli_join_next(struct spr_cli_join *join, struct spr_record *rec, int *error);
void spr_cli_join_close(struct spr_cli_join *join);

#endif /* SPR_CLI_JOIN_H */
