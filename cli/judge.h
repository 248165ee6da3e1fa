/* SPDX-License-Identifier: MIT */
/*
 * judge.h - the verdict of a trace, put together from its end and its records of kind "blind".
 *
 * Two axes. Transport: did everything written arrive. Coverage: was everything that happened
 * written. Complete means both.
 */
#ifndef SPR_CLI_JUDGE_H
#define SPR_CLI_JUDGE_H

#include "cli/input.h"
#include "cli/json.h"

/* The reason that belongs to the transport: a process that was attached and alive at the seal. */
#define SPR_CLI_LEFT_RUNNING "left running"

struct spr_cli_blind {
	int64_t pid; /* 0: the whole run */
	char   *reason, *text;
};

struct spr_cli_judge {
	struct spr_verdict    verdict;
	bool                  known;   /* the file carries a verdict */
	bool                  damaged; /* a part of it could not be read */
	struct spr_cli_blind *blind;
	size_t                n_blind, room;
};

/* Takes notice of a record if it is one of kind "blind"; each spot once. */
void spr_cli_judge_see(struct spr_cli_judge *judge, const struct spr_kind *kind,
                       const struct spr_record *rec);
/* After the last record. */
void spr_cli_judge_close(struct spr_cli_judge *judge, struct spr_cli_input *in);
void spr_cli_judge_fini(struct spr_cli_judge *judge);

/* As of the table of statuses: 0, 1, 2 or 4. */
int spr_cli_judge_status(const struct spr_cli_judge *judge);
void spr_cli_judge_text(const struct spr_cli_judge *judge, FILE *out);
/* key: as of spr_cli_json_open(). */
void spr_cli_judge_json(const struct spr_cli_judge *judge, struct spr_cli_json *j, const char *key);

#endif /* SPR_CLI_JUDGE_H */
