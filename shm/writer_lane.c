/* SPDX-License-Identifier: MIT */
/*
 * writer_lane.c - what the record path leaves to a call: room, growth, waiting, losing, nested
 * records, the gate.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <time.h>

#include "base/kernel_abi.h"
#include "base/place.h"
#include "shm/writer.h"

#define GROW_WAIT_NS   1000000ull  /* beyond the allowance: so long for the collector, then grow */
#define STALL_STEP_NS  10000000ull /* a wait is renewed so often, to look for a segment again */
#define STALL_CHECK_US 100000u     /* is the collector dead? */

/* --- Nested and abandoned records --------------------------------------------------------- */

/* The record of an open lane may have been committed just before its owner was jumped away from or
 * killed (a vfork child): then head and sequence are behind what is shared. */
static void lane_resync(struct spr_lane *lane)
{
	const uint64_t committed = lane->desc ? spr_load_relaxed(&lane->desc->committed) : 0;
	uint64_t header;

	if (!lane->desc || committed <= lane->head)
		return;
	memcpy(&header, lane->base + (lane->head & lane->mask), 8);
	/* By the one record that was open, within the room it had; else it is not our commit, but
	 * somebody's scribble. */
	if (committed > lane->limit || committed - lane->head != spr_rec_room(header))
		return;
	if (((lane->seq ^ header >> 40) & SPR_REC_SEQ_MASK) == 0)
		lane->seq++;
	lane->head = committed;
}

/* Close a segment of the lane's, unless it is not the lane's any more: closed once, it may have
 * been freed and claimed by somebody else. */
static void lane_close_own(spr_producer *p, const struct spr_lane *lane, uint32_t segment)
{
	const uint32_t cls = spr_ring_class_of(&p->geometry, segment - 1);
	struct spr_ring_desc *desc = spr_ring_desc_at(&p->geometry, p->map, cls,
	                                              segment - 1 - p->geometry.first[cls]);

	if (spr_load_relaxed(&desc->owner) != p->area->owner ||
	    spr_load_relaxed(&desc->writer_id) != lane->writer_id ||
	    spr_load_relaxed(&desc->closed))
		return;
	spr_store_release(&desc->closed, 1); /* [CLOSE] */
}

/* It was left in the middle of lane_adopt(): neither the old segment nor the new one is known to be
 * whole, and the new one holds nothing. Close both; the next record claims anew, as a new writer:
 * the collector may have given this one up by then. */
static void lane_unhop(spr_producer *p, struct spr_lane *lane)
{
	const uint32_t hop = lane->hop;
	const uint32_t old = lane->hop_from;

	lane->head = lane->limit = 0;
	lane->segment = 0;
	lane_close_own(p, lane, hop);
	if (old && old != hop)
		lane_close_own(p, lane, old);
	lane->hop_from = 0;
	lane->writer_id = lane->seq = 0;
	lane->ordinal = 0;
}

/* Give up an open record that is known to be abandoned. */
static void lane_take_back(spr_writer *w, struct spr_lane *lane)
{
	lane->generation++;
	if (lane->hop == 0 || lane->hop == UINT32_MAX)
		lane_resync(lane);
	else
		lane_unhop(w->producer, lane);
	lane->hop = 0;
	spr_compiler_barrier();
	lane->open = 0;
}

/* Has the frame that holds the open record's slot been left? Stacks grow down: if we stand above
 * the slot on the same stack, it is dead memory. On another stack (sigaltstack) addresses prove
 * nothing, unless the record was opened there and we are not there any more. */
static bool lane_abandoned(const spr_writer *w, const struct spr_lane *lane,
                           const struct spr_slot *slot, uintptr_t sp)
{
	const uintptr_t open = lane->open;
	stack_t alt = { .ss_flags = SS_DISABLE };

	if ((open & ~(uintptr_t)1) == (uintptr_t)slot)
		return true; /* nobody reuses a slot whose record is open */
	if (open & 1)
		return false;
	if (spr_load_relaxed(&w->producer->confined))
		return false;
	if (spr_sys(SYS_sigaltstack, NULL, &alt) < 0)
		return false;
	if (!(alt.ss_flags & SS_DISABLE)) {
		const uintptr_t base = (uintptr_t)alt.ss_sp;
		const bool here = sp - base < alt.ss_size;
		const bool there = open - base < alt.ss_size;

		if (here != there)
			return there;
	}
	return sp >= open; /* a live slot stands above whatever it calls */
}

/* The lane for a record begun while lane 0 is open; NULL: all are open, counted as lost. */
struct spr_lane *spr_shm_lane_nested(spr_writer *w, const struct spr_slot *slot, uintptr_t sp)
{
	struct spr_lane *unused = NULL;

	/* All of them, also behind a free one: who proves a lane abandoned may not come by again.
	 */
	for (uint32_t i = SPR_LANES; i-- > 0;) {
		struct spr_lane *lane = &w->lanes[i];

		if (lane->open && lane_abandoned(w, lane, slot, sp))
			lane_take_back(w, lane);
		if (!lane->open)
			unused = lane;
	}
	if (unused)
		return unused;
	/* Nothing proven, and this record is lost otherwise: a slot below the new one is dead too,
	 * unless somebody passes the slots of outer frames around. */
	for (uint32_t i = 0; i < SPR_LANES; i++) {
		struct spr_lane *lane = &w->lanes[i];

		if (lane_abandoned(w, lane, slot, (uintptr_t)slot)) {
			lane_take_back(w, lane);
			return lane;
		}
	}
	spr_add_relaxed(&w->producer->header->lost_homeless, 1);
	return NULL;
}

/* --- Losing, closing, the gate ------------------------------------------------------------- */

/* The sequence jumps over what is lost, so that the collector can check the count. Counted by a
 * CAS, because a seal in between has read the count: then it was not lost but refused. -EAGAIN or
 * -EPIPE. */
int spr_shm_lane_lose(spr_writer *w, struct spr_lane *lane)
{
	uint64_t found = lane->lost_here;

	if (!lane->segment) {
		spr_add_relaxed(&w->producer->header->lost_homeless, 1);
		return -EAGAIN;
	}
	while (!spr_cas_acq_rel(&lane->desc->lost, &found, found + 1)) { /* [FINAL] */
		if (found & SPR_LOST_SETTLED)
			return -EPIPE;
	}
	spr_compiler_barrier(); /* counted before it is skipped: a jump without a loss is forgery */
	/* One more than ours, if the last one was jumped away from just here. */
	lane->seq += found + 1 - lane->lost_here;
	lane->lost_here = found + 1;
	return -EAGAIN;
}

/* The lane has no segment any more: what it committed is final. */
void spr_shm_lane_close(spr_producer *p, struct spr_lane *lane)
{
	const uint32_t segment = lane->segment;
	struct spr_ring_desc *desc;
	uint32_t cls;

	lane->head = lane->limit = 0;
	lane->segment = 0;
	spr_compiler_barrier(); /* a handler from here on claims anew */
	if (!segment)
		return;
	cls = spr_ring_class_of(&p->geometry, segment - 1);
	desc = spr_ring_desc_at(&p->geometry, p->map, cls, segment - 1 - p->geometry.first[cls]);
	spr_store_release(&desc->closed, 1); /* [CLOSE] */
}

/* Wake first, disarm after: one that is killed in between leaves a gate that the next writer finds
 * armed. Only the arming that was seen is taken back; the collector may have armed anew. */
static void bell_ring(spr_producer *p, uint32_t gate)
{
	struct spr_ring_header *header = p->header;

	spr_add_acq_rel(&header->bell, 1); /* [BELL] */
	if (!spr_load_relaxed(&p->confined))
		spr_sys(SYS_futex, &header->bell, FUTEX_WAKE, INT32_MAX);
	(void)spr_cas_acq_rel(&header->gate, &gate, gate & SPR_GATE_SEALED); /* [ARM] */
}

/* After a commit up to `next` the gate was not 0: ring, and learn whether the seal let it through.
 */
int spr_shm_gate(spr_writer *w, struct spr_lane *lane, uint64_t next, uint32_t gate)
{
	uint64_t final = 0;

	if (gate & SPR_GATE_ARMED)
		bell_ring(w->producer, gate);
	if (!(gate & SPR_GATE_SEALED))
		return 0;
	if (spr_cas_acq_rel(&lane->desc->final, &final, next | 1)) /* [FINAL] */
		return 0;
	if ((final & ~1ull) >= next)
		return 0;
	spr_add_relaxed(&w->producer->header->refused, 1);
	return -EPIPE;
}

/* --- Room ------------------------------------------------------------------------------------ */

/* Room in the segment at hand, if consumed has moved far enough. */
static bool room_here(struct spr_lane *lane, uint32_t need)
{
	const uint64_t size = (uint64_t)lane->mask + 1;
	uint64_t consumed;
	uint64_t lap_end;

	if (!lane->segment)
		return false;
	consumed = spr_load_acquire(&lane->desc->consumed); /* [CONSUME] */
	if (consumed >= lane->consumed_seen && consumed <= lane->head && consumed % 8 == 0)
		lane->consumed_seen = consumed;
	consumed = lane->consumed_seen;
	lap_end = (lane->head & ~(uint64_t)lane->mask) + size;
	if (lane->head + need > lap_end) {
		const uint64_t header = SPR_REC_PAD;

		if (lap_end + need > consumed + size)
			return false;
		if (lap_end != lane->head)
			memcpy(lane->base + (lane->head & lane->mask), &header, 8);
		lane->head = lap_end;
		lap_end += size;
	}
	if (lane->head + need > consumed + size)
		return false;
	lane->limit = lap_end < consumed + size ? lap_end : consumed + size;
	return true;
}

static uint32_t stall_budget_us(const spr_producer *p)
{
	return p->stall_ms >= UINT32_MAX / 1000 ? UINT32_MAX : p->stall_ms * 1000;
}

/* The lane's segment to the front of those it knows. */
static void recent_note(struct spr_lane *lane, const struct spr_ring_desc *desc)
{
	uint32_t i = 0;

	while (i < SPR_LANE_RECENT - 1 && lane->recent[i].segment != lane->segment)
		i++;
	for (; i > 0; i--)
		lane->recent[i] = lane->recent[i - 1];
	lane->recent[0].segment = lane->segment;
	lane->recent[0].punches = spr_load_relaxed(&desc->punches);
}

/* Take over a claimed segment. A child that shares our memory may die at any store here: hop says
 * so, and the old segment is closed only when the new one is whole. */
static void lane_adopt(spr_writer *w, struct spr_lane *lane, uint32_t cls, uint32_t idx)
{
	spr_producer *p = w->producer;
	struct spr_ring_desc *desc = spr_ring_desc_at(&p->geometry, p->map, cls, idx);
	struct spr_ring_desc *old = lane->segment ? lane->desc : NULL;

	if (!lane->writer_id)
		lane->writer_id = spr_add_relaxed(&p->area->serial, 1) + 1;
	lane->hop_from = lane->segment;
	spr_compiler_barrier();
	lane->hop = p->geometry.first[cls] + idx + 1;
	spr_compiler_barrier();
	spr_store_relaxed(&desc->writer_id, lane->writer_id);
	spr_store_relaxed(&desc->seq0, lane->seq);
	spr_compiler_barrier(); /* an ordinal says that the rest of the identity is there */
	spr_store_relaxed(&desc->ordinal, lane->ordinal + 1);
	spr_store_relaxed(&desc->pid, w->pid);
	spr_store_relaxed(&desc->tid, spr_load_relaxed(&w->tid));
	spr_compiler_barrier();
	lane->ordinal++;
	lane->desc = desc;
	lane->base = spr_ring_segment_at(&p->geometry, p->map, cls, idx);
	lane->mask = spr_ring_class_bytes(cls) - 1;
	lane->consumed_seen = 0;
	lane->lost_here = 0;
	lane->head = 0;
	lane->limit = spr_ring_class_bytes(cls);
	lane->segment = lane->hop;
	lane->stall_left_us = stall_budget_us(p);
	lane->full = 0;
	if (old)
		spr_store_release(&old->closed, 1); /* [CLOSE] */
	if (cls == SPR_RING_CLASSES - 1)
		recent_note(lane, desc);
	spr_compiler_barrier();
	lane->hop = 0;
	lane->hop_from = 0;
}

/* Claim a segment of at least class `least`, best `want`, else what there is. */
static int lane_grow(spr_writer *w, struct spr_lane *lane, uint32_t least, uint32_t want)
{
	const uint32_t n = w->producer->n_classes;
	uint32_t idx = 0;
	int err = -EAGAIN;
	int ret;

	lane->hop = UINT32_MAX;
	for (uint32_t c = want; c < n && err != -EPIPE; c++) {
		err = spr_shm_segment_claim(w, lane, c, &idx);
		if (!err) {
			lane_adopt(w, lane, c, idx);
			return 0;
		}
	}
	/* Smaller ones: better than none; for a lane that has one, better than dropping. */
	for (uint32_t c = want; c-- > least && err != -EPIPE;) {
		ret = spr_shm_segment_claim(w, lane, c, &idx);
		if (!ret) {
			lane_adopt(w, lane, c, idx);
			return 0;
		}
		err = ret == -EPIPE ? ret : err;
	}
	lane->hop = 0;
	return err;
}

/* May the lane take one more of the largest class without asking the collector? */
static bool within_allowance(const spr_writer *w, const struct spr_lane *lane)
{
	const spr_producer *p = w->producer;
	uint32_t allowance = spr_load_relaxed(&p->header->allowance);
	const uint32_t first = p->geometry.first[SPR_RING_CLASSES - 1];
	uint32_t waiting = 0;

	if (allowance > SPR_LANE_RECENT)
		allowance = SPR_LANE_RECENT;
	for (uint32_t i = 0; i < SPR_LANE_RECENT; i++) {
		const uint32_t segment = lane->recent[i].segment;

		if (segment &&
		    spr_load_relaxed(&spr_ring_desc_at(&p->geometry, p->map, SPR_RING_CLASSES - 1,
		                                       segment - 1 - first)
		                              ->owner) == p->area->owner)
			waiting++;
	}
	return waiting < (allowance ? allowance : 1);
}

/* Sleep until the collector publishes room, somebody's, for up to ns. */
static void space_sleep(spr_writer *w, struct spr_lane *lane, uint32_t need, uint64_t ns,
                        uint32_t whose)
{
	struct spr_ring_header *header = w->producer->header;
	const uint32_t bits = whose | spr_ring_wait_bit(w->producer->area->owner, lane->writer_id);
	const uint64_t until = spr_clock_monotonic_ns() + ns; /* this futex wait wants a deadline */
	const struct timespec deadline = { (time_t)(until / 1000000000),
		                           (long)(until % 1000000000) };
	const uint32_t space = spr_load_relaxed(&header->space);

	spr_or_acq_rel(&header->waiters, bits); /* [SPACE] */
	spr_full_fence(); /* [SPACE] */
	if (room_here(lane, need))
		return;
	spr_sys(SYS_futex, &header->space, FUTEX_WAIT_BITSET, space, &deadline, NULL, bits);
}

/* Beyond the allowance the collector is given a while to catch up before the file grows. All who
 * wait are woken for anybody's room, most of them in vain: then the while is not over. */
static void growth_wait(spr_writer *w, struct spr_lane *lane, uint32_t need)
{
	uint64_t now, until;

	for (uint32_t i = 0; i < 32; i++) {
		if (room_here(lane, need))
			return;
		spr_cpu_relax();
	}
	now = spr_clock_monotonic_ns();
	until = now + GROW_WAIT_NS;
	while (now < until && !room_here(lane, need) && !within_allowance(w, lane)) {
		space_sleep(w, lane, need, until - now, 0);
		now = spr_clock_monotonic_ns();
	}
}

/* Its owner's lock is free: nobody will make room any more. Unknown counts as alive. */
static bool collector_died(spr_producer *p)
{
	struct flock lock = { .l_type = F_RDLCK,
		              .l_whence = SEEK_SET,
		              .l_start = (off_t)SPR_PLACE_OWNER_BYTE,
		              .l_len = 1 };
	const long fd = spr_sys(SYS_openat, AT_FDCWD, p->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	long ret;

	if (fd < 0)
		return false;
	ret = spr_sys(SYS_fcntl, fd, F_OFD_GETLK, &lock);
	spr_sys(SYS_close, fd);
	return ret == 0 && lock.l_type == F_UNLCK;
}

/* Full at capacity: wait, up to what is left of the one deadline, then give up for good until
 * room comes without waiting. */
static int lane_stall(spr_writer *w, struct spr_lane *lane, uint32_t need, uint32_t least,
                      uint32_t want)
{
	spr_producer *p = w->producer;
	const bool for_ever = p->stall_ms == UINT32_MAX;
	uint32_t waited_us = 0;

	if (for_ever || lane->stall_left_us > 0)
		spr_add_relaxed(&p->header->stalls, 1);
	while (for_ever || lane->stall_left_us > 0) {
		const uint64_t from = spr_clock_monotonic_ns();
		uint64_t ns = STALL_STEP_NS;
		uint32_t us;
		int err;

		if (!for_ever && (uint64_t)lane->stall_left_us * 1000 < ns)
			ns = (uint64_t)lane->stall_left_us * 1000;
		space_sleep(w, lane, need, ns, SPR_WAIT_ANY);
		us = (uint32_t)((spr_clock_monotonic_ns() - from) / 1000) + 1;
		lane->stall_left_us -= us < lane->stall_left_us ? us : lane->stall_left_us;
		if (room_here(lane, need))
			return 0;
		err = lane_grow(w, lane, least, want);
		if (!err || err == -EPIPE)
			return err;
		if (!spr_load_relaxed(&p->header->present))
			return -EAGAIN;
		waited_us += us;
		if (waited_us >= STALL_CHECK_US) {
			waited_us = 0;
			if (collector_died(p)) {
				spr_store_relaxed(&p->header->present, 0);
				return -EAGAIN;
			}
		}
	}
	return -EAGAIN;
}

static int room_make(spr_writer *w, struct spr_lane *lane, uint32_t need)
{
	spr_producer *p = w->producer;
	const bool present = spr_load_relaxed(&p->header->present) != 0;
	const uint32_t least = spr_ring_class_for(need);
	uint32_t want = least;
	int err;

	if (spr_load_relaxed(w->gate) & SPR_GATE_SEALED) /* [SEAL] */
		return -EPIPE;
	if (lane->segment) {
		const uint32_t cls = spr_ring_class_of(&p->geometry, lane->segment - 1);

		want = cls + 1 < SPR_RING_CLASSES ? cls + 1 : cls;
		want = want < least ? least : want;
		/* Not again for each record when there was nothing to be had the last time. */
		if (present && !lane->full && want == SPR_RING_CLASSES - 1 && cls >= least &&
		    !spr_load_relaxed(&p->confined) && !within_allowance(w, lane)) {
			growth_wait(w, lane, need);
			if (room_here(lane, need))
				return 0;
		}
	}
	if (want >= p->n_classes && want > least)
		want = p->n_classes - 1 < least ? least : p->n_classes - 1;
	err = lane_grow(w, lane, least, want);
	if (!err || err == -EPIPE)
		return err;
	if (!present || (p->ring_flags & SPR_RING_DROP) || spr_load_relaxed(&p->confined))
		return -EAGAIN;
	return lane_stall(w, lane, need, least, want);
}

/* This record is refused, so none that follows may be let through by a seal that is still at its
 * scan: what is committed is final. */
static void lane_settle(const struct spr_lane *lane)
{
	uint64_t final = 0;

	if (lane->segment)
		spr_cas_acq_rel(&lane->desc->final, &final,
		                spr_load_relaxed(&lane->desc->committed) | 1); /* [FINAL] */
}

/* The lane is open, and its segment has no room for `need` that it knew of. 0: there is room at
 * head. Else the record never was: the lane is not open any more, and it has been counted. */
int spr_shm_lane_room(spr_writer *w, struct spr_lane *lane, uint32_t need)
{
	int err;

	if (room_here(lane, need)) {
		lane->stall_left_us = stall_budget_us(w->producer);
		lane->full = 0;
		return 0;
	}
	err = room_make(w, lane, need);
	if (!err)
		return 0;
	if (err != -EPIPE) {
		lane->full = 1;
		err = spr_shm_lane_lose(w, lane);
	}
	if (err == -EPIPE) {
		lane_settle(lane);
		spr_add_relaxed(&w->producer->header->refused, 1);
	}
	spr_compiler_barrier();
	lane->open = 0;
	return err;
}
