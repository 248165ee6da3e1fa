/* SPDX-License-Identifier: MIT */
/*
 * writer_claim.c - how a lane comes by a segment: one CAS on the descriptor's owner word, which
 * writes the identity. There is no moment when a segment belongs to nobody, so a writer killed
 * before the CAS took nothing, and after it the owner is known. Hence no linked list.
 */
#include "shm/populate.h"
#include "shm/writer.h"

/* Raise a hint that only grows. */
static void hint_raise(_Atomic uint32_t *hint, uint32_t to)
{
	uint32_t seen = spr_load_relaxed(hint);

	while (seen < to && !spr_cas_relaxed(hint, &seen, to))
		;
}

/* The descriptor's page exists, or is made to exist. */
static int desc_ready(spr_producer *p, uint32_t cls, uint32_t idx)
{
	const uint64_t at = p->geometry.desc_at[cls] + (uint64_t)idx * sizeof(struct spr_ring_desc);
	const uint64_t page = at & ~4095ull;
	uint32_t ready_idx;
	int err;

	if (idx < spr_load_relaxed(&p->header->desc_ready[cls]))
		return 0;
	if (spr_load_relaxed(&p->confined))
		return -EPERM;
	err = spr_shm_populate(p->map + page, 4096);
	if (err)
		return err;
	ready_idx = (uint32_t)((page + 4096 - p->geometry.desc_at[cls]) /
	                       sizeof(struct spr_ring_desc));
	/* Only in steps: everything below a raised mark must exist. */
	if (spr_load_relaxed(&p->header->desc_ready[cls]) + 4096 / sizeof(struct spr_ring_desc) >=
	    ready_idx)
		hint_raise(&p->header->desc_ready[cls], ready_idx);
	return 0;
}

/* The claim stands only if the gate was open after it: a seal that came before the CAS may have
 * scanned already, and nobody would settle what we commit. */
static int claim_confirm(spr_writer *w, struct spr_ring_desc *desc, uint64_t was)
{
	if (w->flags & SPR_WRITER_FENCE)
		spr_full_fence(); /* [SEAL] */
	spr_compiler_barrier();
	if (spr_load_relaxed(w->gate) & SPR_GATE_SEALED) { /* [SEAL] */
		spr_store_release(&desc->owner, was);      /* [FREE] */
		return -EPIPE;
	}
	return 0;
}

/* Has the lane had the segment before, and was it not punched since? Then its pages are mapped. */
static bool is_mapped(const struct spr_lane *lane, const struct spr_ring_desc *desc,
                      uint32_t segment)
{
	for (uint32_t i = 0; i < SPR_LANE_RECENT; i++) {
		if (lane->recent[i].segment == segment + 1)
			return lane->recent[i].punches == spr_load_relaxed(&desc->punches);
	}
	return false;
}

/* 0: it is ours. -EAGAIN: somebody else's. -ENOSPC: a hole with no room to fill it. -EPIPE. */
static int claim_one(spr_writer *w, const struct spr_lane *lane, uint32_t cls, uint32_t idx)
{
	spr_producer *p = w->producer;
	struct spr_ring_desc *desc = spr_ring_desc_at(&p->geometry, p->map, cls, idx);
	const uint32_t segment = p->geometry.first[cls] + idx;
	uint64_t was = spr_load_relaxed(&desc->owner);
	int err;

	if (was != SPR_OWNER_READY && was != SPR_OWNER_HOLE)
		return -EAGAIN;
	if (was == SPR_OWNER_HOLE && spr_load_relaxed(&p->confined))
		return -EAGAIN;
	if (!spr_cas_acq_rel(&desc->owner, &was, p->area->owner)) /* [CLAIM] [FREE] */
		return -EAGAIN;
	if (was == SPR_OWNER_HOLE) {
		err = spr_shm_populate(spr_ring_segment_at(&p->geometry, p->map, cls, idx),
		                       spr_ring_class_bytes(cls));
		if (err) {
			spr_store_release(&desc->owner, SPR_OWNER_HOLE); /* [FREE] */
			spr_add_relaxed(&p->header->faults, 1);
			return -ENOSPC;
		}
	} else if (cls > 0 && !spr_load_relaxed(&p->confined) && !is_mapped(lane, desc, segment)) {
		/* The pages exist; one call maps them all instead of a fault each. May fail. */
		(void)spr_shm_populate(spr_ring_segment_at(&p->geometry, p->map, cls, idx),
		                       spr_ring_class_bytes(cls));
	}
	err = claim_confirm(w, desc, was);
	if (err)
		return err;
	/* After the claim, never before: the collector clears the bit before it frees. */
	spr_or_acq_rel(spr_ring_inuse_word(p->map, segment), 1ull << segment % 64); /* [INUSE] */
	return 0;
}

/* One that the lane has had: mapped here, perhaps still in cache, and not another process's. The
 * oldest first: it was given back first. */
static int claim_recent(spr_writer *w, const struct spr_lane *lane, uint32_t *idx)
{
	const uint32_t cls = SPR_RING_CLASSES - 1;
	const uint32_t first = w->producer->geometry.first[cls];

	for (uint32_t i = SPR_LANE_RECENT; i-- > 0;) {
		const uint32_t segment = lane->recent[i].segment;
		const struct spr_ring_desc *desc;
		int err;

		if (!segment)
			continue;
		desc = spr_ring_desc_at(&w->producer->geometry, w->producer->map, cls,
		                        segment - 1 - first);
		if (spr_load_relaxed(&desc->owner) != SPR_OWNER_READY)
			continue;
		*idx = segment - 1 - first;
		err = claim_one(w, lane, cls, *idx);
		if (err != -EAGAIN)
			return err;
	}
	return -EAGAIN;
}

static int claim_hinted(spr_writer *w, const struct spr_lane *lane, uint32_t cls, uint32_t *idx)
{
	spr_producer *p = w->producer;
	_Atomic uint32_t *hints = p->header->ready[cls];
	int err;

	for (uint32_t i = 0; i < SPR_RING_HINTS; i++) {
		uint32_t hint = spr_load_relaxed(&hints[i]);

		if (!hint || hint > p->geometry.n_segments[cls] ||
		    hint > spr_load_relaxed(&p->header->desc_ready[cls]))
			continue;
		*idx = hint - 1;
		err = claim_one(w, lane, cls, *idx);
		if (err == -EAGAIN)
			continue;
		if (!err)
			(void)spr_cas_relaxed(&hints[i], &hint, 0);
		return err;
	}
	return -EAGAIN;
}

static int claim_scan(spr_writer *w, const struct spr_lane *lane, uint32_t cls, uint32_t from,
                      uint32_t to, uint32_t *idx)
{
	int err;

	for (uint32_t i = from; i < to; i++) {
		if (desc_ready(w->producer, cls, i))
			return -ENOSPC;
		err = claim_one(w, lane, cls, i);
		if (err == -EAGAIN)
			continue;
		if (!err) {
			*idx = i;
			spr_store_relaxed(&w->producer->header->low_hole[cls], i + 1);
		}
		return err;
	}
	return -EAGAIN;
}

/* A segment of this class: 0 and its index in the class, -EAGAIN (all are taken), -ENOSPC, -EPIPE.
 */
int spr_shm_segment_claim(spr_writer *w, const struct spr_lane *lane, uint32_t cls, uint32_t *idx)
{
	const uint32_t n = w->producer->geometry.n_segments[cls];
	uint32_t low;
	int err = cls == SPR_RING_CLASSES - 1 ? claim_recent(w, lane, idx) : -EAGAIN;

	if (err != -EAGAIN)
		return err;
	err = claim_hinted(w, lane, cls, idx);

	if (err != -EAGAIN)
		return err;
	low = spr_load_relaxed(&w->producer->header->low_hole[cls]);
	if (low > n)
		low = n;
	err = claim_scan(w, lane, cls, low, n, idx);
	if (err == 0 || err == -EPIPE)
		return err;
	/* The hint may be too high, and a hole that cannot be filled may lie before a ready one. */
	low = low < n ? n : low;
	return claim_scan(w, lane, cls, 0, low, idx) == 0 ? 0 : err;
}
