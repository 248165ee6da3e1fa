/* SPDX-License-Identifier: MIT */
/*
 * ring_drain.c - one pass: find what has been committed, lane by lane, and hand it out.
 *
 * A pass first looks at every segment in use, then drains: so that a lane's segments are all known
 * before the first of them is taken, and are taken in the order of their ordinals. Nothing is
 * followed from one segment to the next through shared memory.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "shm/ring.h"

#define ALLOWANCE_ALL 16u /* x 256 KiB in flight, of all who flood together */

/* --- Ranges -------------------------------------------------------------------------------------
 */

static const uint8_t *range_bytes(const struct spr_ring_range *range, uint64_t position)
{
	return range->base + ((position - range->origin) & range->mask);
}

/*
 * Both walks over a range go by the guess that a record is like the one before it: same length,
 * kind and flags. Then nothing needs decoding, and, more to the point, the place of the next record
 * does not wait for this one's header: the CPU runs ahead of its loads. The guess is safe against a
 * writer that changes its bytes under us: a header is loaded once, and one that equals the last
 * good one in all but the sequence passes the checks that one has passed.
 */
static bool guess_decode(struct spr_ring_guess *guess, uint64_t header, uint32_t bytes_max)
{
	if (header & (SPR_REC_PAD | SPR_REC_ZERO) || spr_rec_bytes(header) > bytes_max)
		return false;
	guess->like = header << SPR_REC_SEQ_BITS;
	guess->room = spr_rec_room(header);
	guess->bytes = spr_rec_bytes(header);
	guess->head_bytes = spr_rec_head_bytes(header);
	return true;
}

/* The rest of the lap that position `at` is in, as far as the range goes. */
static uint64_t lap_rest(const struct spr_ring_range *range, uint64_t at)
{
	const uint64_t lap_left = range->size - (at & (range->size - 1));

	return lap_left < range->to - at ? lap_left : range->to - at;
}

/* A pad is good if it fills the lap that its range goes on beyond. */
static bool pad_fits(const struct spr_ring_range *range, uint64_t header, uint64_t at)
{
	return (header & SPR_REC_PAD) && range->size - (at & (range->size - 1)) <= range->to - at;
}

int spr_shm_range_next(struct spr_ring_range *range, struct spr_record *rec)
{
	struct spr_ring_guess *guess = &range->guess;
	const uint8_t *p = range->p;
	const uint8_t *next;
	uint64_t header, seq;

	while (spr_unlikely(p >= range->end)) { /* the next lap */
		range->at += (uint64_t)(range->end - range->lap);
		if (range->at >= range->to)
			return 0;
		p = range->p = range->lap = range_bytes(range, range->at);
		range->end = p + lap_rest(range, range->at);
	}
	for (;;) {
		next = p + guess->room;
		__asm__ volatile("" : "+r"(next)); /* known before the header is */
		memcpy(&header, p, 8);
		if (spr_likely(header << SPR_REC_SEQ_BITS == guess->like && next <= range->end))
			break;
		if (pad_fits(range, header, range->at + (uint64_t)(p - range->lap))) {
			range->p = range->end;
			return spr_shm_range_next(range, rec);
		}
		if (!guess_decode(guess, header, range->ring->record_bytes_max) ||
		    guess->room > (uint64_t)(range->end - p)) {
			guess->like = SPR_RING_NO_GUESS;
			range->p = range->end;
			range->at = range->to;
			range->lap = range->end;
			return -EPROTO;
		}
	}
	range->p = next;
	seq = range->seq + (((header >> 40) - range->seq) & SPR_REC_SEQ_MASK);
	range->seq = seq + 1;
	rec->data = p + guess->head_bytes;
	rec->bytes = guess->bytes;
	rec->kind = spr_rec_kind(header);
	rec->flags = range->pid ? SPR_HAS_ID : 0;
	rec->time_ns = 0;
	rec->seq = seq;
	rec->writer = range->writer;
	rec->pid = range->pid;
	rec->tid = range->tid;
	rec->reserved[0] = rec->reserved[1] = 0;
	if (header & SPR_REC_STAMPED)
		memcpy(&rec->time_ns, p + 8, 8);
	if (spr_unlikely((header & SPR_REC_ABOUT) != 0)) {
		memcpy(&rec->pid, p + guess->head_bytes - 8, 4);
		memcpy(&rec->tid, p + guess->head_bytes - 4, 4);
		rec->flags = SPR_HAS_ID;
	}
	return 1;
}

void spr_shm_range_rewind(struct spr_ring_range *range)
{
	range->at = range->from;
	range->seq = range->seq_from;
	range->p = range->end = range->lap = range->base;
	range->guess = (struct spr_ring_guess){ .like = SPR_RING_NO_GUESS };
}

void spr_shm_range_release(struct spr_ring_range *range, void (*wake)(void *arg), void *arg)
{
	struct spr_ring *r = range->ring;

	if (range->walked)
		return;
	spr_store_release(&range->released, 1); /* [RELEASE] */
	spr_add_acq_rel(&r->n_released, 1);     /* [RELEASE] */
	if (wake)
		wake(arg);
	spr_add_acq_rel(&r->n_departed, 1); /* [DEPART] nothing of the ring is touched after this */
}

struct check {
	uint64_t seq, gaps, lost_most, n_records, n_bytes;
};

/* The records of one lap, p to end. Where the walk stopped; *bad if that is not the end. */
static const uint8_t *lap_check(const struct spr_ring_range *range, uint32_t bytes_max,
                                const uint8_t *p, const uint8_t *end, struct check *c, bool *bad)
{
	struct spr_ring_guess guess = { .like = SPR_RING_NO_GUESS };
	const uint8_t *const start = p;
	uint64_t seq = c->seq;
	uint64_t n = 0;

	while (p < end) {
		const uint8_t *next = p + guess.room;
		uint64_t header;

		__asm__ volatile("" : "+r"(next)); /* known before the header is */
		memcpy(&header, p, 8);
		if (spr_unlikely(header << SPR_REC_SEQ_BITS != guess.like)) {
			if (pad_fits(range, header, range->at + (uint64_t)(p - start))) {
				p = end;
				break;
			}
			*bad = !guess_decode(&guess, header, bytes_max);
			if (*bad)
				break;
			next = p + guess.room;
		}
		*bad = next > end;
		if (spr_unlikely(*bad))
			break;
		if (spr_unlikely(header >> 40 != (seq & SPR_REC_SEQ_MASK))) {
			uint64_t gap = ((header >> 40) - seq) & SPR_REC_SEQ_MASK;

			/* More than 2^24 lost in a row: the counter has the high bits. */
			if (c->lost_most > c->gaps + gap)
				gap += (c->lost_most - c->gaps - gap) & ~SPR_REC_SEQ_MASK;
			c->gaps += gap;
			seq += gap;
		}
		seq++;
		n++;
		c->n_bytes += guess.bytes;
		p = next;
	}
	c->seq = seq;
	c->n_records += n;
	return p;
}

/* Walk the records between from and to, from sequence `seq`; lost_most: how far jumps may be losses
 * that the lane counted. Leaves `to` behind the last sound record. */
static uint64_t range_check(const struct spr_ring *r, struct spr_ring_range *range, uint64_t seq,
                            uint64_t lost_most)
{
	struct check c = { .seq = seq, .lost_most = lost_most };
	bool bad = false;

	range->at = range->from;
	range->seq_from = seq;
	while (range->at < range->to && !bad) {
		const uint8_t *p = range_bytes(range, range->at);

		range->at += (uint64_t)(lap_check(range, r->record_bytes_max, p,
		                                  p + lap_rest(range, range->at), &c, &bad) -
		                        p);
	}
	range->to = range->at;
	range->seq = c.seq;
	range->n_records = c.n_records;
	range->n_bytes = c.n_bytes;
	return c.gaps;
}

static uint64_t segment_size(const struct spr_ring *r, uint32_t segment)
{
	return spr_ring_class_bytes(spr_ring_class_of(&r->geometry, segment));
}

/* --- Lanes --------------------------------------------------------------------------------------
 */

static uint32_t lane_hash(const struct spr_ring *r, uint64_t owner, uint64_t writer_id)
{
	const uint64_t h = (owner ^ writer_id * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	return (uint32_t)(h >> 32) & r->lanes_mask;
}

static struct spr_ring_lane *lane_find(struct spr_ring *r, uint64_t owner, uint64_t writer_id)
{
	struct spr_ring_lane *lane = r->lanes[lane_hash(r, owner, writer_id)];

	while (lane && (lane->owner != owner || lane->writer_id != writer_id))
		lane = lane->next;
	return lane;
}

static void lanes_grow(struct spr_ring *r)
{
	const uint32_t old_mask = r->lanes_mask;
	struct spr_ring_lane **old = r->lanes;
	struct spr_ring_lane **lanes = calloc(2 * ((size_t)old_mask + 1), sizeof(*lanes));

	if (!lanes)
		return; /* longer chains, that is all */
	r->lanes = lanes;
	r->lanes_mask = 2 * old_mask + 1;
	for (uint32_t i = 0; i <= old_mask; i++) {
		for (struct spr_ring_lane *lane = old[i], *next; lane; lane = next) {
			const uint32_t to = lane_hash(r, lane->owner, lane->writer_id);

			next = lane->next;
			lane->next = lanes[to];
			lanes[to] = lane;
		}
	}
	free(old);
}

static struct spr_ring_lane *lane_make(struct spr_ring *r, uint64_t owner, uint64_t writer_id)
{
	struct spr_ring_lane *lane = calloc(1, sizeof(*lane));
	uint32_t to;

	if (!lane)
		return NULL;
	if (r->n_lanes++ > r->lanes_mask)
		lanes_grow(r);
	to = lane_hash(r, owner, writer_id);
	lane->owner = owner;
	lane->writer_id = writer_id;
	lane->id = ++r->next_lane_id;
	lane->next = r->lanes[to];
	r->lanes[to] = lane;
	r->n_writers++;
	return lane;
}

static void lane_remove(struct spr_ring *r, struct spr_ring_lane *lane)
{
	struct spr_ring_lane **at = &r->lanes[lane_hash(r, lane->owner, lane->writer_id)];

	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	r->n_lanes--;
	r->written_gone += lane->next_seq - lane->base_seq;
	r->lost_gone += lane->lost;
	free(lane);
}

/* Into the lane's queue, by ordinal. false: an ordinal twice, nonsense. */
static bool lane_queue(struct spr_ring *r, struct spr_ring_lane *lane, uint32_t segment)
{
	uint32_t *at = &lane->head;

	while (*at && r->segs[*at - 1].ordinal < r->segs[segment].ordinal)
		at = &r->segs[*at - 1].next;
	if (*at && r->segs[*at - 1].ordinal == r->segs[segment].ordinal)
		return false;
	r->segs[segment].next = *at;
	*at = segment + 1;
	return true;
}

static void lane_work(struct spr_ring *r, struct spr_ring_lane *lane)
{
	if (lane->working)
		return;
	lane->working = true;
	lane->work_next = r->work;
	r->work = lane;
}

/* --- Looking -------------------------------------------------------------------------------------
 */

static void segment_bad(struct spr_ring *r, uint32_t segment)
{
	r->segs[segment].bad = true;
	r->malformed++;
}

bool spr_shm_ring_owner_dead(const struct spr_ring *r, uint64_t owner)
{
	const struct spr_ring_slot_seen *seen = &r->slots[spr_ring_owner_slot(owner)];

	return seen->any_dead && (int32_t)((uint32_t)(owner >> 32) - seen->dead_generation) <= 0;
}

/* Whose segment is it? Valid once something has been committed into it, and not before. */
static void segment_identify(struct spr_ring *r, uint32_t segment, struct spr_ring_desc *desc)
{
	struct spr_ring_seg *seg = &r->segs[segment];
	const uint64_t writer_id = spr_load_relaxed(&desc->writer_id);
	struct spr_ring_lane *lane = lane_find(r, seg->owner, writer_id);

	seg->ordinal = spr_load_relaxed(&desc->ordinal);
	seg->seq0 = spr_load_relaxed(&desc->seq0);
	seg->pid = (int32_t)spr_load_relaxed(&desc->pid);
	seg->tid = (int32_t)spr_load_relaxed(&desc->tid);
	if (!seg->ordinal || (lane && lane->begun && seg->ordinal < lane->next_ordinal)) {
		segment_bad(r, segment);
		return;
	}
	/* Not its lane's first, and the first has not been met: this pass may have looked at its
	 * place before it was claimed. The next pass will have met it. */
	if (!lane && seg->ordinal > 1 && !seg->seen_pass) {
		seg->seen_pass = r->pass;
		r->deferred = r->look_again = true;
		return;
	}
	if (!lane)
		lane = lane_make(r, seg->owner, writer_id);
	if (!lane)
		return; /* no memory: again in the next pass */
	if (lane_queue(r, lane, segment))
		seg->lane = lane;
	else
		segment_bad(r, segment);
}

/* Up to where, from what was committed? Sealed: up to where both sides have settled. */
static uint64_t segment_upto(struct spr_ring *r, struct spr_ring_desc *desc, uint64_t committed)
{
	uint64_t final;

	if (!r->sealed)
		return committed;
	final = spr_load_acquire(&desc->final);                             /* [FINAL] */
	if (!final && spr_cas_acq_rel(&desc->final, &final, committed | 1)) /* [FINAL] */
		return committed;
	final &= ~1ull;
	return final < committed ? final : committed;
}

/* Nothing has been committed into it. true: go on with it as with any other, its owner has closed
 * it, and that vouches for its identity: its lane counts it and what it lost. */
static bool segment_empty(struct spr_ring *r, uint32_t segment, struct spr_ring_desc *desc)
{
	struct spr_ring_seg *seg = &r->segs[segment];
	struct spr_ring_lane *lane;

	if (seg->closed && (!seg->dead || spr_load_acquire(&desc->closed)) && /* [CLOSE] */
	    spr_load_relaxed(&desc->ordinal))
		return true;
	if (seg->closed) {
		const uint64_t lost = spr_ring_desc_lost(desc);

		r->written_gone += lost;
		r->lost_gone += lost;
		spr_shm_ring_segment_recycle(r, segment);
		return false;
	}
	/* Its lane lives, if the identity is there already; if not, nothing is lost by not knowing.
	 */
	lane = lane_find(r, seg->owner, spr_load_relaxed(&desc->writer_id));
	if (lane)
		lane->claimed_pass = lane->idle_pass = r->pass;
	return false;
}

static void segment_look(struct spr_ring *r, uint32_t segment)
{
	struct spr_ring_seg *seg = &r->segs[segment];
	struct spr_ring_desc *desc = spr_shm_ring_desc(r, segment);
	uint64_t committed;

	if (!seg->owner) {
		const uint64_t owner = spr_load_acquire(&desc->owner); /* [CLAIM] */

		if (!spr_ring_owner_is_owned(owner))
			return;
		seg->owner = owner;
		if (r->recovered)
			seg->taken = spr_load_relaxed(&desc->consumed);
	}
	seg->dead = spr_shm_ring_owner_dead(r, seg->owner);
	seg->closed = seg->dead || spr_load_acquire(&desc->closed); /* [CLOSE] */
	committed = spr_load_acquire(&desc->committed); /* [COMMIT] after CLOSE, never before */
	seg->finished = seg->closed || r->sealed;
	if (seg->bad || seg->drained) {
		if (seg->closed && !seg->first && (seg->drained || seg->dead))
			spr_shm_ring_segment_recycle(r, segment);
		return;
	}
	seg->upto = segment_upto(r, desc, committed);
	if (seg->upto % 8 || seg->upto < seg->taken ||
	    seg->upto - seg->taken > segment_size(r, segment)) {
		if (!(r->sealed && seg->upto < seg->taken))
			segment_bad(r, segment);
		return;
	}
	if (!committed && !segment_empty(r, segment, desc))
		return;
	if (!seg->lane)
		segment_identify(r, segment, desc);
	if (seg->lane && (seg->upto > seg->taken || seg->finished))
		lane_work(r, seg->lane);
	if (!seg->closed && segment >= r->geometry.first[SPR_RING_CLASSES - 1])
		r->n_flooding++;
}

/* Calls each for every segment whose bit is set, until it says stop. */
static bool inuse_each(struct spr_ring *r,
                       bool (*each)(struct spr_ring *r, uint32_t segment, void *arg), void *arg)
{
	const uint32_t n = r->geometry.first[SPR_RING_CLASSES];

	for (uint32_t at = 0; at < n; at += 64) {
		uint64_t bits = spr_load_acquire(spr_ring_inuse_word(r->map, at)); /* [INUSE] */

		while (bits) {
			const uint32_t segment = at + (uint32_t)__builtin_ctzll(bits);

			bits &= bits - 1;
			if (segment < n && each(r, segment, arg))
				return true;
		}
	}
	return false;
}

static bool look_each(struct spr_ring *r, uint32_t segment, void *arg)
{
	(void)arg;
	segment_look(r, segment);
	return false;
}

/* --- Draining
 * ------------------------------------------------------------------------------------- */

static int range_fill(struct spr_ring *r, struct spr_ring_range *range, uint32_t segment,
                      const struct spr_ring_taker *taker)
{
	const uint32_t cls = spr_ring_class_of(&r->geometry, segment);
	const struct spr_ring_seg *seg = &r->segs[segment];
	const uint64_t size = spr_ring_class_bytes(cls);
	uint8_t *at = spr_ring_segment_at(&r->geometry, r->map, cls,
	                                  segment - r->geometry.first[cls]);
	const uint64_t place = seg->taken & (size - 1);
	const uint64_t n = seg->upto - seg->taken;
	const uint64_t first = n < size - place ? n : size - place;
	int err;

	range->ring = r;
	range->segment = segment;
	range->size = size;
	range->from = seg->taken;
	range->to = seg->upto;
	range->writer = seg->lane->id;
	range->pid = seg->pid;
	range->tid = seg->tid;
	range->walked = false;
	spr_store_relaxed(&range->released, 0);
	if (!taker->read) {
		range->base = at;
		range->origin = 0;
		range->mask = size - 1;
		return 0;
	}
	range->base = range->copy;
	range->origin = range->from;
	range->mask = UINT64_MAX;
	err = taker->read(taker->arg, range, 0, first, (uint64_t)(at - r->map) + place);
	if (!err && n > first)
		err = taker->read(taker->arg, range, first, n - first, (uint64_t)(at - r->map));
	return err;
}

/* Tests: lose the first record of the range, as a faulty collector would. */
static void range_skip_first(struct spr_ring_range *range)
{
	struct spr_record rec;

	if (spr_shm_range_next(range, &rec) != 1)
		return;
	range->n_records--;
	range->from = range->at + (uint64_t)(range->p - range->lap);
	range->seq_from = range->seq;
	spr_shm_range_rewind(range);
}

/* A range has been put: room is given back now, or in its turn. */
static void range_done(struct spr_ring *r, struct spr_ring_range *range, uint64_t seq, bool keep,
                       const struct spr_ring_taker *taker)
{
	struct spr_ring_seg *seg = &r->segs[range->segment];

	if (!keep && !seg->first) {
		spr_shm_ring_publish(r, range->segment, range->to, seq);
		taker->unmake(taker->arg, range);
		return;
	}
	spr_shm_ring_keep(r, range);
	r->n_walked += range->walked;
	if (!keep)
		spr_shm_range_release(range, NULL, NULL);
}

static int segment_take(struct spr_ring *r, uint32_t segment, const struct spr_ring_taker *taker,
                        uint64_t *n_records)
{
	struct spr_ring_seg *seg = &r->segs[segment];
	struct spr_ring_lane *lane = seg->lane;
	const uint64_t lost = spr_ring_desc_lost(spr_shm_ring_desc(r, segment));
	const uint64_t lost_most = lost > seg->gaps ? lost - seg->gaps : 0;
	struct spr_ring_range *range;
	uint64_t gaps, seq;
	int ret = 0;

	if (!taker->read && !spr_shm_ring_readable(r, segment)) {
		segment_bad(r, segment);
		return 0;
	}
	range = taker->make(taker->arg);
	if (!range)
		return -ENOMEM;
	ret = range_fill(r, range, segment, taker);
	if (ret) {
		taker->unmake(taker->arg, range);
		return ret;
	}
	gaps = range_check(r, range, lane->next_seq, lost_most);
	seq = range->seq;
	spr_shm_range_rewind(range);
	if (spr_shm_ring_test_skip && r->delivered + range->n_records >= spr_shm_ring_test_skip) {
		range_skip_first(range);
		spr_shm_ring_test_skip = 0;
	}
	if (range->n_records)
		ret = taker->put(taker->arg, range);
	if (ret < 0) {
		taker->unmake(taker->arg, range);
		return ret;
	}
	if (range->to != seg->upto)
		segment_bad(r, segment);
	lane->next_seq = seq;
	if (gaps <= lost_most) { /* else it was not losses: the sums will show it */
		lane->lost += gaps;
		seg->gaps += gaps;
	}
	seg->taken = range->to;
	*n_records += range->n_records;
	r->delivered += range->n_records;
	r->delivered_bytes += range->n_bytes;
	r->activity += range->n_records;
	range_done(r, range, seq, ret == 1, taker);
	return 0;
}

/* The lane's first segment says where its sequence begins; each later one must go on from there. */
static void lane_enter(struct spr_ring *r, struct spr_ring_lane *lane, uint32_t segment)
{
	const struct spr_ring_seg *seg = &r->segs[segment];

	if (!lane->begun) {
		lane->begun = true;
		lane->next_seq = lane->base_seq = seg->seq0;
		if (r->recovered && seg->taken)
			lane->next_seq = lane->base_seq = spr_load_relaxed(
				&spr_shm_ring_desc(r, segment)->seq_taken);
	} else if (seg->taken == 0 && !seg->gaps && lane->next_ordinal == seg->ordinal) {
		if (lane->resync)
			lane->base_seq += seg->seq0 - lane->next_seq;
		if (lane->resync || seg->seq0 > lane->next_seq)
			lane->next_seq = seg->seq0;
		lane->resync = false;
	}
	lane->next_ordinal = seg->ordinal;
}

/* The segment has nothing more to give. */
static void lane_pop(struct spr_ring *r, struct spr_ring_lane *lane)
{
	const uint32_t segment = lane->head - 1;
	struct spr_ring_seg *seg = &r->segs[segment];
	const uint64_t lost = spr_ring_desc_lost(spr_shm_ring_desc(r, segment));

	if (seg->bad) {
		lane->resync = true;
	} else if (lost > seg->gaps) { /* lost after the last record */
		lane->lost += lost - seg->gaps;
		lane->next_seq += lost - seg->gaps;
		seg->gaps = lost;
	}
	lane->head = seg->next;
	lane->next_ordinal = seg->ordinal + 1;
	seg->drained = true;
	seg->lane = NULL;
	if (!seg->first && seg->closed)
		spr_shm_ring_segment_recycle(r, segment);
}

/* Writers short of room look again. */
static void space_publish(struct spr_ring *r, uint32_t bits)
{
	struct spr_ring_header *h = r->header;

	if (r->recycled)
		bits |= SPR_WAIT_ANY;
	r->recycled = false;
	spr_full_fence(); /* [SPACE] */
	if (!(spr_load_relaxed(&h->waiters) & bits))
		return;
	bits &= spr_and_acq_rel(&h->waiters, ~bits); /* [SPACE] */
	if (bits) {
		spr_add_relaxed(&h->space, 1);
		spr_sys(SYS_futex, &h->space, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, bits);
	}
}

static int lane_drain(struct spr_ring *r, struct spr_ring_lane *lane,
                      const struct spr_ring_taker *taker, uint64_t *n_records)
{
	while (lane->head) {
		const uint32_t segment = lane->head - 1;
		struct spr_ring_seg *seg = &r->segs[segment];
		int err;

		/* One is missing: wait for it, unless it can come no more. One that this pass has
		 * put off may be it. */
		if (lane->begun && seg->ordinal != lane->next_ordinal &&
		    (r->deferred || (!r->sealed && !seg->dead)))
			break;
		lane_enter(r, lane, segment);
		if (seg->upto > seg->taken && !seg->bad) {
			err = segment_take(r, segment, taker, n_records);
			if (err)
				return err;
		}
		if (!seg->bad && (!seg->finished || seg->taken != seg->upto))
			break;
		lane_pop(r, lane);
		/* Its writer goes on while the lane's other segments are read. */
		space_publish(r, spr_ring_wait_bit(lane->owner, lane->writer_id));
	}
	if (lane->head)
		return 0;
	lane->idle_pass =
		r->pass; /* also if it was in the list already: it has had a segment since */
	if (!lane->ending) {
		lane->ending = true;
		lane->end_next = r->ending;
		r->ending = lane;
	}
	return 0;
}

/* A lane without a segment is gone if two passes later it still has none: whatever it claimed
 * before it closed the last one has been met by then. */
static int lanes_end(struct spr_ring *r, const struct spr_ring_taker *taker)
{
	struct spr_ring_lane *lane = r->ending;
	struct spr_ring_lane *left = NULL;
	int err = 0;

	for (struct spr_ring_lane *next; lane; lane = next) {
		next = lane->end_next;
		if (lane->head) {
			lane->ending = false;
		} else if (!err && !r->deferred &&
		           (r->sealed || r->pass - lane->idle_pass >= 2)) {
			if (taker->gone)
				err = taker->gone(taker->arg, lane->id,
				                  lane->next_seq - lane->base_seq, lane->lost);
			lane_remove(r, lane);
		} else {
			lane->end_next = left;
			left = lane;
			/* One that has claimed will commit, and ring; no need to look for it. */
			if (lane->claimed_pass != r->pass)
				r->look_again = true;
		}
	}
	r->ending = left;
	return err;
}

/* What is in flight should stay in the cache, whatever the number of those who flood. */
static void allowance_share(struct spr_ring *r)
{
	const uint32_t share = r->n_flooding ? ALLOWANCE_ALL / r->n_flooding : SPR_RING_ALLOWANCE;

	spr_store_relaxed(&r->header->allowance, share < 1                    ? 1
	                                         : share > SPR_RING_ALLOWANCE ? SPR_RING_ALLOWANCE
	                                                                      : share);
}

int spr_shm_ring_drain(struct spr_ring *r, const struct spr_ring_taker *taker, uint64_t *n_records)
{
	const uint64_t malformed = r->malformed;
	bool sealed, settled;
	int err = 0;
	int gone_err;

	*n_records = 0;
	pthread_mutex_lock(&r->lock);
	sealed = r->sealed;
	r->pass++;
	r->look_again = r->deferred = false;
	r->n_flooding = 0;
	settled = r->release_seen != spr_load_acquire(&r->n_released); /* [RELEASE] */
	spr_shm_ring_settle(r, taker);
	inuse_each(r, look_each, NULL);
	while (r->work) {
		struct spr_ring_lane *lane = r->work;
		const uint32_t bit = spr_ring_wait_bit(lane->owner, lane->writer_id);

		r->work = lane->work_next;
		lane->working = false;
		if (!err)
			err = lane_drain(r, lane, taker, n_records);
		/* Not at the end: a pass over eight full lanes takes a millisecond. */
		space_publish(r, bit);
	}
	allowance_share(r);
	gone_err = lanes_end(r, taker);
	err = err ? err : gone_err;
	if (err)
		r->look_again = true;
	else if (sealed && !r->deferred)
		r->sealed_drained = true;
	space_publish(r, settled ? ~0u : 0);
	if (!err && r->malformed != malformed)
		err = -EPROTO;
	pthread_mutex_unlock(&r->lock);
	return err;
}

/* --- Pending, arming
 * --------------------------------------------------------------------------------- */

struct pending {
	uint64_t records, bytes, lost;
};

static bool pending_each(struct spr_ring *r, uint32_t segment, void *arg)
{
	struct pending *sum = arg;
	struct spr_ring_desc *desc = spr_shm_ring_desc(r, segment);
	const struct spr_ring_seg *seg = &r->segs[segment];
	const uint32_t cls = spr_ring_class_of(&r->geometry, segment);
	const uint64_t size = spr_ring_class_bytes(cls);
	const uint64_t committed = spr_load_acquire(&desc->committed); /* [COMMIT] */
	const uint64_t lost = spr_ring_desc_lost(desc);
	struct spr_ring_range range = { .segment = segment, .size = size, .mask = size - 1 };

	if (seg->bad || seg->drained ||
	    !spr_ring_owner_is_owned(spr_load_acquire(&desc->owner))) /* [CLAIM] */
		return false;
	if (lost > seg->gaps)
		sum->lost += lost - seg->gaps;
	range.from = seg->taken;
	if (r->recovered && !seg->owner)
		range.from = spr_load_relaxed(&desc->consumed);
	range.to = segment_upto(r, desc, committed);
	if (range.to % 8 || range.to <= range.from || range.to - range.from > size ||
	    !spr_shm_ring_readable(r, segment))
		return false;
	range.base = spr_ring_segment_at(&r->geometry, r->map, cls,
	                                 segment - r->geometry.first[cls]);
	range_check(r, &range, 0, 0);
	sum->records += range.n_records;
	sum->bytes += range.n_bytes;
	return false;
}

/* Records committed and not handed out, their bytes, and the losses not accounted for yet. */
uint64_t spr_shm_ring_pending(struct spr_ring *r, uint64_t *bytes, uint64_t *lost)
{
	struct pending sum = { 0, 0, 0 };

	inuse_each(r, pending_each, &sum);
	*bytes = sum.bytes;
	*lost = sum.lost;
	return sum.records;
}

static bool anything_each(struct spr_ring *r, uint32_t segment, void *arg)
{
	const struct spr_ring_seg *seg = &r->segs[segment];
	struct spr_ring_desc *desc = spr_shm_ring_desc(r, segment);

	(void)arg;
	if (seg->bad || seg->drained)
		return false;
	return spr_load_acquire(&desc->committed) != seg->taken || /* [COMMIT] [ARM] */
	       spr_load_acquire(&desc->closed);                    /* [CLOSE] */
}

bool spr_shm_ring_anything(struct spr_ring *r)
{
	return r->look_again ||
	       r->release_seen != spr_load_acquire(&r->n_released) || /* [RELEASE] */
	       (r->sealed && !r->sealed_drained) || inuse_each(r, anything_each, NULL);
}

void spr_shm_ring_disarm(struct spr_ring *r)
{
	if (spr_load_relaxed(&r->header->gate) & ~SPR_GATE_SEALED)
		spr_and_acq_rel(&r->header->gate, SPR_GATE_SEALED); /* [ARM] */
}

/* Set the gate, make the fence that the writers do not pay, look once more. */
bool spr_shm_ring_arm(struct spr_ring *r, uint32_t *bell_seen)
{
	struct spr_ring_header *h = r->header;
	bool found;

	pthread_mutex_lock(&r->lock);
	*bell_seen = spr_load_acquire(&h->bell); /* [BELL] */
	spr_shm_ring_disarm(r);
	r->arming += SPR_GATE_ARMING;
	spr_or_acq_rel(&h->gate, SPR_GATE_ARMED | r->arming); /* [ARM] */
	spr_shm_ring_barrier(r);
	found = spr_shm_ring_anything(r);
	if (found)
		spr_shm_ring_disarm(r);
	else
		r->wakes++;
	pthread_mutex_unlock(&r->lock);
	return found;
}
