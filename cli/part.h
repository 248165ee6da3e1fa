/* SPDX-License-Identifier: MIT */
/*
 * part.h - the output of a recording: a part beside its final name until it is whole.
 *
 *   OUT.part-1a2b3c4d   new file, mode 0600, no link followed; locked by its encoder
 *   OUT                 renamed to when whole; on a full disk or our death the part stays
 *
 * "-", /dev/fd/N, pipes and devices are written straight through.
 */
#ifndef SPR_CLI_PART_H
#define SPR_CLI_PART_H

#include <stdbool.h>
#include <sys/types.h>

struct spr_cli_part {
	int  fd;
	int  folder;
	bool through;  /* no part: written straight through */
	char out[256]; /* the last component of the final name */
	char part[256];
	char path[4096]; /* of the part, to be said */
};

/* 0, or -errno after a sentence. owner: whose file it becomes (-1: ours). */
int spr_cli_part_open(struct spr_cli_part *p, const char *out, uid_t uid, gid_t gid);
/* The trace is whole: give it its name. 0, or -errno after a sentence; the part stays then. */
int spr_cli_part_keep(struct spr_cli_part *p, const char *out);
/* Nothing was recorded: leave nothing behind. */
void spr_cli_part_drop(struct spr_cli_part *p);
void spr_cli_part_close(struct spr_cli_part *p);

/* The part of a recording to `out` that runs now, opened for reading: descriptor or -ENOENT. */
int spr_cli_part_find(const char *out);

#endif /* SPR_CLI_PART_H */
