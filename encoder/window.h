/* SPDX-License-Identifier: MIT */
/*
 * window.h - records between put and their frame: merged by time, cut into frames.
 *
 * What is cut where follows from the sequence of put, tick and flush alone. A frame's worth is
 * frame_records records or frame_bytes bytes. Frames are cut when
 *   a tick says that nothing older comes, from the records it covers, whole ones only;
 *   two frames' worth have gathered, tick or no tick, until less than two remain: memory is
 *   bounded whatever the size of a pass, and what comes late has a frame to be sorted into;
 *   a flush, all of it.
 * One thread at a time.
 */
#ifndef SPR_ENCODER_WINDOW_H
#define SPR_ENCODER_WINDOW_H

#include "encoder/store.h"

struct spr_window_item {
	uint64_t        key; /* the time, never less than its writer's record before it */
	struct spr_rec *rec;
};

enum spr_cut { SPR_CUT_NONE, SPR_CUT_TICK, SPR_CUT_FULL, SPR_CUT_ALL };

struct spr_floor; /* the last key of each writer */

struct spr_window {
	bool     given_order;
	uint32_t frame_records, frame_bytes;

	struct spr_window_item *items; /* [at, n): merged */
	size_t   at, n, room;
	uint64_t n_bytes; /* of all that is in the window, as put */
	struct spr_window_item *scratch;
	size_t   scratch_room;
	size_t  *starts; /* of ascending stretches, while merging */
	size_t   starts_room;

	struct spr_run *runs, *runs_last; /* not yet merged */
	uint64_t n_new;

	struct spr_floor *floors;
	size_t   n_floors, floors_room;

	enum spr_cut cut; /* what is being cut, up to: */
	size_t   limit;
	uint64_t sure_n, sure_bytes; /* in the window at the last tick and not yet cut */
	uint64_t retry_n;            /* a tick merges again when there is so much */
};

void spr_window_close(struct spr_window *w);

static inline uint64_t spr_window_records(const struct spr_window *w)
{
	return w->n - w->at + w->n_new;
}

/* One run more. After it, if it ends a put, and after a tick or a flush there may be frames to cut:
 * spr_window_next() until 0. -ENOMEM. */
int spr_window_add(struct spr_window *w, struct spr_run *run);
int spr_window_tick(struct spr_window *w, uint64_t until_ns);
int spr_window_flush(struct spr_window *w);

/* The next frame's records, valid until the next call: their number, or 0. n_bytes: as put. */
uint32_t spr_window_next(struct spr_window *w, const struct spr_window_item **items,
                         uint64_t *n_bytes);
/* Merges what has come, cuts nothing; changes nothing in what will be cut. -ENOMEM. */
int spr_window_merge(struct spr_window *w);

#endif /* SPR_ENCODER_WINDOW_H */
