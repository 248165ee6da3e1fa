/* SPDX-License-Identifier: MIT */
/*
 * ring_segment.c - segments and ranges on their way back: publish what has been read, settle what
 * was kept, free a segment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "shm/populate.h"
#include "shm/ring.h"

/* A reader must not touch a page that does not exist: in a full file system that is a SIGBUS of
 * ours. Once per segment and punch. */
bool spr_shm_ring_readable(struct spr_ring *r, uint32_t segment)
{
	const uint32_t cls = spr_ring_class_of(&r->geometry, segment);
	struct spr_ring_seg *seg = &r->segs[segment];
	uint8_t *at = spr_ring_segment_at(&r->geometry, r->map, cls,
	                                  segment - r->geometry.first[cls]);

	if (!seg->readable)
		seg->readable = spr_shm_populate_read(at, spr_ring_class_bytes(cls)) == 0;
	return seg->readable;
}

/* The writer may use the room before `upto` again. */
void spr_shm_ring_publish(struct spr_ring *r, uint32_t segment, uint64_t upto, uint64_t seq)
{
	struct spr_ring_desc *desc = spr_shm_ring_desc(r, segment);

	spr_store_relaxed(&desc->seq_taken, seq);
	spr_store_release(&desc->consumed, upto); /* [CONSUME] [SPACE] */
}

/* Tell writers of a segment that is free. */
static void hint_put(struct spr_ring *r, uint32_t cls, uint32_t idx)
{
	_Atomic uint32_t *hints = r->header->ready[cls];

	for (uint32_t i = 0; i < SPR_RING_HINTS; i++) {
		const uint32_t hint = spr_load_relaxed(&hints[i]);

		if (hint && hint <= r->geometry.n_segments[cls] &&
		    spr_load_relaxed(
			    &spr_ring_desc_at(&r->geometry, r->map, cls, hint - 1)->owner) ==
		            SPR_OWNER_READY)
			continue;
		spr_store_relaxed(&hints[i], idx + 1);
		return;
	}
}

/* All of it has been read and nobody will write to it. One whose dead owner never committed may
 * never have been populated: that one is a hole again. */
void spr_shm_ring_segment_recycle(struct spr_ring *r, uint32_t segment)
{
	const uint32_t cls = spr_ring_class_of(&r->geometry, segment);
	const uint32_t idx = segment - r->geometry.first[cls];
	struct spr_ring_desc *desc = spr_shm_ring_desc(r, segment);
	struct spr_ring_seg *seg = &r->segs[segment];
	const bool hole = seg->dead && spr_load_relaxed(&desc->committed) == 0;
	const bool readable = seg->readable && !hole;
	const bool listed = seg->listed;
	const uint64_t bit = 1ull << segment % 64;

	spr_store_relaxed(&desc->committed, 0);
	spr_store_relaxed(&desc->lost, 0);
	spr_store_relaxed(&desc->writer_id, 0);
	spr_store_relaxed(&desc->seq0, 0);
	spr_store_relaxed(&desc->ordinal, 0);
	spr_store_relaxed(&desc->closed, 0);
	spr_store_relaxed(&desc->pid, 0);
	spr_store_relaxed(&desc->tid, 0);
	spr_store_relaxed(&desc->consumed, 0);
	spr_store_relaxed(&desc->final, 0);
	spr_store_relaxed(&desc->seq_taken, 0);
	memset(seg, 0, sizeof(*seg));
	seg->readable = readable;
	seg->listed = listed;
	/* The bit goes before the owner word: whoever claims sets it after its claim. */
	spr_and_acq_rel(spr_ring_inuse_word(r->map, segment), ~bit);              /* [INUSE] */
	spr_store_release(&desc->owner, hole ? SPR_OWNER_HOLE : SPR_OWNER_READY); /* [FREE] */
	r->recycled = true;
	r->activity++;
	if (hole) {
		if (spr_load_relaxed(&r->header->low_hole[cls]) > idx)
			spr_store_relaxed(&r->header->low_hole[cls], idx);
		return;
	}
	if (!seg->listed)
		r->ready[cls][r->n_ready[cls]++] = idx;
	seg->listed = true;
	hint_put(r, cls, idx);
}

/* Append to the segment's kept ranges. */
void spr_shm_ring_keep(struct spr_ring *r, struct spr_ring_range *range)
{
	struct spr_ring_seg *seg = &r->segs[range->segment];

	range->next = NULL;
	if (seg->last)
		seg->last->next = range;
	else
		seg->first = range;
	seg->last = range;
	r->n_kept++;
	if (!seg->kept) {
		seg->kept = true;
		seg->kept_next = r->kept;
		r->kept = range->segment + 1;
	}
}

static void settle_segment(struct spr_ring *r, uint32_t segment, const struct spr_ring_taker *taker)
{
	struct spr_ring_seg *seg = &r->segs[segment];
	struct spr_ring_range *range = seg->first;
	uint64_t upto = 0;
	uint64_t seq = 0;

	while (range && spr_load_acquire(&range->released)) { /* [RELEASE] */
		struct spr_ring_range *next = range->next;

		upto = range->to;
		seq = range->seq_from + range->n_records;
		taker->unmake(taker->arg, range);
		r->n_settled++;
		range = next;
	}
	seg->first = range;
	if (!range)
		seg->last = NULL;
	if (upto)
		spr_shm_ring_publish(r, segment, upto, seq);
	if (!range && seg->drained && seg->closed)
		spr_shm_ring_segment_recycle(r, segment);
}

/* Ranges come back in any order; room is published in the order it was taken. */
void spr_shm_ring_settle(struct spr_ring *r, const struct spr_ring_taker *taker)
{
	const uint64_t released = spr_load_acquire(&r->n_released); /* [RELEASE] */
	uint32_t at = r->kept;
	uint32_t left = 0;

	if (r->release_seen == released)
		return;
	r->release_seen = released;
	while (at) {
		const uint32_t segment = at - 1;
		struct spr_ring_seg *seg = &r->segs[segment];

		at = seg->kept_next;
		seg->kept = false;
		settle_segment(r, segment, taker);
		if (seg->first) {
			seg->kept = true;
			seg->kept_next = left;
			left = segment + 1;
		}
	}
	r->kept = left;
}
