/* SPDX-License-Identifier: MIT */
/*
 * session.h - one recording: channel, collector, encoder and output, tied together.
 *
 *   target's writers --channel--> collector --watch--> encoder --> part --> trace
 */
#ifndef SPR_CLI_SESSION_H
#define SPR_CLI_SESSION_H

#include <pthread.h>

#include "cli/living.h"
#include "cli/part.h"
#include "cli/target.h"
#include "cli/watch.h"

/* So many blind spots stand by name in the line at the end. */
#define SPR_CLI_COVERED_MAX 8

struct spr_cli_left { /* a process that ran at the seal */
	int32_t pid;
	char   *exe;
};

struct spr_cli_session_options {
	const char         *out;
	const char         *address; /* "ring:" */
	uint64_t            capacity_bytes;
	uint32_t            stall_ms;
	struct spr_cli_user user;
};

struct spr_cli_session {
	const struct spr_cli_session_options *opt;
	spr_channel          *channel;
	spr_collector        *collector;
	spr_encoder          *encoder;
	struct spr_cli_watch *watch;
	struct spr_cli_part   part;
	pthread_t             collecting; /* steps the collector, syncs the encoder */
	bool                  is_collecting;
	uint64_t              n_unsynced, sync_at_ns;
	struct spr_cli_since  began;
	uint64_t              n_own; /* records that are not the spies' */
	size_t                n_processes; /* at the end */
	char                  exe[4096]; /* of the root target */
	struct spr_cli_left  *left;
	size_t                n_left, left_room;
	struct spr_stats      stats;   /* at the end */
	struct spr_verdict    verdict; /* at the end */
	bool                  whole;   /* the trace has its end and its name */
	char                  coverage[2048]; /* the first blind spots in a few words each */
	size_t                n_covered;      /* blind spots in all */
};

/* part: its output; the session's from here on. SPR_CLI_OK, or after a sentence the status to exit
 * with; nothing is left behind then. */
int spr_cli_session_open(struct spr_cli_session *s, const struct spr_cli_session_options *opt,
                         const struct spr_cli_part *part);
/* Nothing was recorded, for the target could not be started. */
void spr_cli_session_drop(struct spr_cli_session *s);
/* Collect until the target has ended. */
void spr_cli_session_run(struct spr_cli_session *s, struct spr_cli_target *t);
/* Seal, drain, write the verdict, give the trace its name. */
void spr_cli_session_close(struct spr_cli_session *s, struct spr_cli_target *t);

#endif /* SPR_CLI_SESSION_H */
