/* SPDX-License-Identifier: MIT */
/*
 * ring_tend.c - what a collector does for its ring between passes: notice the dead, keep a few
 * first segments ready, give back the space of a backlog that has been read.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "shm/populate.h"
#include "shm/ring.h"

#define PROBE_LEAST_NS 5000000ull   /* between two looks at who is alive */
#define PROBE_EACH_NS  30000ull     /* and so much more per process: about one percent of a CPU */
#define CONFINED_NS    1000000ull   /* who cannot ring is looked after so often */
#define ORPHANS_NS     500000000ull /* all descriptors are looked at no more often */
#define PUNCH_KEEP     (4ull << 20)
#define PUNCH_KEEP_BUSY (8ull << 20)
#define PUNCH_IDLE_NS   20000000ull
#define PUNCH_BUSY_NS   10000000ull
#define PUNCH_SLICE    (4ull << 20)
#define READY_FEW      8u
#define READY_ENOUGH   16u
#define YOUNG_NS 10000000ull /* a process attached for less gets no pidfd yet */
#define PIDFDS_MAX     512u

/* --- Who is alive
 * ---------------------------------------------------------------------------------- */

static long slot_lock(struct spr_ring *r, int cmd, uint32_t slot_idx, short type)
{
	struct flock lock = { .l_type = type,
		              .l_whence = SEEK_SET,
		              .l_start = (off_t)(SPR_RING_LOCK_AT + slot_idx),
		              .l_len = 1 };
	const long ret = spr_sys(SYS_fcntl, r->fd, cmd, &lock);

	return ret < 0 ? ret : lock.l_type;
}

/* Alive is who holds the lock. What cannot be asked counts as alive. */
bool spr_shm_ring_alive(struct spr_ring *r, uint32_t slot_idx)
{
	return slot_lock(r, F_OFD_GETLK, slot_idx, F_WRLCK) != F_UNLCK;
}

static void pidfd_drop(struct spr_ring *r, uint32_t slot_idx,
                       const struct spr_ring_watcher *watcher)
{
	struct spr_ring_slot_seen *seen = &r->slots[slot_idx];

	if (!seen->pidfd)
		return;
	if (watcher)
		watcher->unwatch(watcher->arg, seen->pidfd - 1, slot_idx);
	spr_sys(SYS_close, seen->pidfd - 1);
	seen->pidfd = 0;
	r->n_pidfds--;
}

/* Everything of this generation and before belongs to the dead. */
static void slot_dead(struct spr_ring *r, uint32_t slot_idx, uint32_t generation)
{
	struct spr_ring_slot_seen *seen = &r->slots[slot_idx];

	if (seen->any_dead && (int32_t)(generation - seen->dead_generation) <= 0)
		return;
	seen->dead_generation = generation;
	seen->any_dead = true;
	r->look_again = true;
	r->activity++;
	r->deaths++;
}

/* Free the slot of a process that is gone: only while holding its byte, so that nobody who is just
 * taking it can be overtaken. */
static void slot_reap(struct spr_ring *r, uint32_t slot_idx, const struct spr_ring_watcher *watcher)
{
	struct spr_ring_slot *slot = spr_ring_slot_at(r->map, slot_idx);
	uint32_t state;

	if (slot_lock(r, F_OFD_SETLK, slot_idx, F_WRLCK) < 0)
		return;
	state = spr_load_acquire(&slot->state); /* [SLOT] */
	if (state == SPR_SLOT_ATTACHED || state == SPR_SLOT_LOCKING) {
		slot_dead(r, slot_idx, spr_load_relaxed(&slot->generation));
		spr_store_release(&slot->state, SPR_SLOT_FREE); /* [SLOT] */
		if (spr_load_relaxed(&r->header->low_slot) > slot_idx)
			spr_store_relaxed(&r->header->low_slot, slot_idx);
	}
	slot_lock(r, F_OFD_SETLK, slot_idx, F_UNLCK);
	pidfd_drop(r, slot_idx, watcher);
}

/* A process killed between its claim and the bit in inuse left a segment that no pass will look at,
 * and that holds nothing. Found by its owner word, after the owner is known to be dead; taken by a
 * CAS, for what is read of a living owner may be out of date. */
static void orphans_recycle(struct spr_ring *r)
{
	for (uint32_t c = 0; c < SPR_RING_CLASSES; c++) {
		uint32_t n = spr_load_relaxed(&r->header->desc_ready[c]);

		if (n > r->geometry.n_segments[c])
			n = r->geometry.n_segments[c];
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t segment = r->geometry.first[c] + i;
			struct spr_ring_desc *desc = spr_ring_desc_at(&r->geometry, r->map, c, i);
			const _Atomic uint64_t *inuse = spr_ring_inuse_word(r->map, segment);
			const uint64_t bit = (uint64_t)1 << segment % 64;
			uint64_t owner = spr_load_acquire(&desc->owner); /* [CLAIM] */

			if (!spr_ring_owner_is_owned(owner) || !spr_shm_ring_owner_dead(r, owner))
				continue;
			if (spr_load_acquire(inuse) & bit) /* [INUSE] */
				continue;
			if (spr_cas_acq_rel(&desc->owner, &owner,
			                    SPR_OWNER_COLLECTOR)) { /* [CLAIM] */
				r->segs[segment].dead = true;
				spr_shm_ring_segment_recycle(r, segment);
			}
		}
	}
}

/* Number of processes attached. */
static uint32_t slots_probe(struct spr_ring *r, const struct spr_ring_watcher *watcher)
{
	uint32_t n = spr_load_relaxed(&r->header->slots_ready);
	uint32_t n_attached = 0;

	if (n > SPR_RING_SLOTS)
		n = SPR_RING_SLOTS;
	for (uint32_t i = 0; i < n; i++) {
		struct spr_ring_slot *slot = spr_ring_slot_at(r->map, i);
		const uint32_t state = spr_load_acquire(&slot->state);           /* [SLOT] */
		const uint32_t generation = spr_load_acquire(&slot->generation); /* [SLOT] */

		/* Whoever took the slot held the lock: the ones before are dead. */
		if (generation > 1)
			slot_dead(r, i, generation - 1);
		if (state != SPR_SLOT_ATTACHED && state != SPR_SLOT_LOCKING)
			continue;
		n_attached++;
		if (!spr_shm_ring_alive(r, i))
			slot_reap(r, i, watcher);
	}
	return n_attached;
}

/* Before a sleep: a pidfd for each process, so that its death ends the sleep. Only an accelerator;
 * the pid is what the process called itself, and may be somebody else's here. */
void spr_shm_ring_watch_all(struct spr_ring *r, const struct spr_ring_watcher *watcher)
{
	const uint64_t now_ns = spr_clock_now(&r->clock);
	uint32_t n = spr_load_relaxed(&r->header->slots_ready);

	pthread_mutex_lock(&r->lock);
	r->n_young = 0;
	if (n > SPR_RING_SLOTS)
		n = SPR_RING_SLOTS;
	for (uint32_t i = 0; i < n && r->n_pidfds < PIDFDS_MAX; i++) {
		struct spr_ring_slot *slot = spr_ring_slot_at(r->map, i);
		long fd;

		if (r->slots[i].pidfd ||
		    spr_load_acquire(&slot->state) != SPR_SLOT_ATTACHED) /* [SLOT] */
			continue;
		/* Most live so short that the next look finds them gone, for less than a pidfd. */
		if (now_ns - spr_load_relaxed(&slot->attached_ns) < YOUNG_NS) {
			r->n_young++;
			continue;
		}
		fd = spr_sys(SYS_pidfd_open, spr_load_relaxed(&slot->pid), 0);
		if (fd == -ESRCH && !spr_shm_ring_alive(r, i))
			slot_reap(r, i, watcher);
		if (fd < 0)
			continue;
		if (watcher->watch(watcher->arg, (int)fd, i) < 0) {
			spr_sys(SYS_close, fd);
			break;
		}
		r->slots[i].pidfd = (int)fd + 1;
		r->n_pidfds++;
	}
	pthread_mutex_unlock(&r->lock);
}

/* A pidfd says that a process has ended: was it the one that holds the lock? */
void spr_shm_ring_slot_ready(struct spr_ring *r, uint32_t slot_idx,
                             const struct spr_ring_watcher *watcher)
{
	if (slot_idx >= SPR_RING_SLOTS)
		return;
	pthread_mutex_lock(&r->lock);
	if (!spr_shm_ring_alive(r, slot_idx))
		slot_reap(r, slot_idx, watcher);
	else
		pidfd_drop(r, slot_idx, watcher);
	pthread_mutex_unlock(&r->lock);
}

void spr_shm_ring_unwatch_all(struct spr_ring *r, const struct spr_ring_watcher *watcher)
{
	pthread_mutex_lock(&r->lock);
	for (uint32_t i = 0; i < SPR_RING_SLOTS; i++)
		pidfd_drop(r, i, watcher);
	pthread_mutex_unlock(&r->lock);
}

/* --- Ready ahead
 * ------------------------------------------------------------------------------------- */

/* Make a first segment of a hole. false: not a hole, or no room. */
static bool hole_fill(struct spr_ring *r, uint32_t idx)
{
	struct spr_ring_desc *desc = spr_ring_desc_at(&r->geometry, r->map, 0, idx);
	uint64_t hole = SPR_OWNER_HOLE;
	bool filled;

	if (!spr_cas_acq_rel(&desc->owner, &hole, SPR_OWNER_COLLECTOR)) /* [CLAIM] */
		return false;
	filled = spr_shm_populate(spr_ring_segment_at(&r->geometry, r->map, 0, idx), 4096) == 0;
	spr_store_release(&desc->owner, filled ? SPR_OWNER_READY : SPR_OWNER_HOLE); /* [FREE] */
	return filled;
}

/* Short-lived processes find their first segment ready, and make no call for it. */
static void ready_ahead(struct spr_ring *r)
{
	_Atomic uint32_t *hints = r->header->ready[0];
	uint32_t n = spr_load_relaxed(&r->header->desc_ready[0]);
	uint32_t n_ready = 0;
	uint32_t idx = 0;

	if (n > r->geometry.n_segments[0])
		n = r->geometry.n_segments[0];
	for (uint32_t i = 0; i < SPR_RING_HINTS; i++) {
		const uint32_t hint = spr_load_relaxed(&hints[i]);

		n_ready += hint && hint <= n &&
		           spr_load_relaxed(
				   &spr_ring_desc_at(&r->geometry, r->map, 0, hint - 1)->owner) ==
		                   SPR_OWNER_READY;
	}
	if (n_ready >= READY_FEW)
		return;
	for (uint32_t i = 0; i < SPR_RING_HINTS && n_ready < READY_ENOUGH && idx < n; i++) {
		const uint32_t hint = spr_load_relaxed(&hints[i]);

		if (hint && hint <= n &&
		    spr_load_relaxed(&spr_ring_desc_at(&r->geometry, r->map, 0, hint - 1)->owner) ==
		            SPR_OWNER_READY)
			continue;
		while (idx < n && !hole_fill(r, idx))
			idx++;
		if (idx >= n)
			return;
		r->segs[idx].readable = true;
		spr_store_relaxed(&hints[i], ++idx);
		n_ready++;
	}
}

/* --- Giving space back
 * --------------------------------------------------------------------------------- */

static int by_index(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a;
	const uint32_t y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Punch the run of segments idx[0..n), all in our hands, and make them holes. */
static void run_punch(struct spr_ring *r, uint32_t cls, const uint32_t *idx, uint32_t n)
{
	const uint64_t at = r->geometry.seg_at[cls] + (uint64_t)idx[0] * spr_ring_class_bytes(cls);
	const long ret = spr_sys(SYS_fallocate, r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	                         at, (uint64_t)n * spr_ring_class_bytes(cls));

	const uint64_t now = ret ? SPR_OWNER_READY : SPR_OWNER_HOLE;

	if (ret == -EOPNOTSUPP || ret == -EPERM || ret == -ENOSYS)
		r->no_punch = true; /* its space is reused, if not given back */
	for (uint32_t i = 0; i < n; i++) {
		struct spr_ring_desc *desc = spr_ring_desc_at(&r->geometry, r->map, cls, idx[i]);

		if (ret == 0) {
			spr_add_relaxed(&desc->punches, 1);
			r->segs[r->geometry.first[cls] + idx[i]].readable = false;
		}
		spr_store_release(&desc->owner, now); /* [FREE] */
		if (ret == 0 && spr_load_relaxed(&r->header->low_hole[cls]) > idx[i])
			spr_store_relaxed(&r->header->low_hole[cls], idx[i]);
	}
}

/* Take out of the class's list what has been claimed since. */
static void list_sift(struct spr_ring *r, uint32_t cls)
{
	uint32_t *ready = r->ready[cls];
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n_ready[cls]; i++) {
		const struct spr_ring_desc *desc =
			spr_ring_desc_at(&r->geometry, r->map, cls, ready[i]);

		if (spr_load_relaxed(&desc->owner) == SPR_OWNER_READY)
			ready[n++] = ready[i];
		else
			r->segs[r->geometry.first[cls] + ready[i]].listed = false;
	}
	r->n_ready[cls] = n;
}

/* Punch the first n of the class's list; the last freed, still in cache, stay. */
static void class_punch(struct spr_ring *r, uint32_t cls, uint32_t n)
{
	uint32_t *ready = r->ready[cls];
	uint32_t n_ours = 0;

	qsort(ready, n, sizeof(*ready), by_index);
	for (uint32_t i = 0; i < n; i++) {
		struct spr_ring_desc *desc = spr_ring_desc_at(&r->geometry, r->map, cls, ready[i]);
		uint64_t was = SPR_OWNER_READY;

		r->segs[r->geometry.first[cls] + ready[i]].listed = false;
		if (spr_cas_acq_rel(&desc->owner, &was, SPR_OWNER_COLLECTOR)) /* [CLAIM] */
			ready[n_ours++] = ready[i];
	}
	for (uint32_t i = 0, run; i < n_ours; i += run) {
		for (run = 1; i + run < n_ours && ready[i + run] == ready[i] + run; run++)
			;
		run_punch(r, cls, ready + i, run);
	}
	for (uint32_t i = n; i < r->n_ready[cls]; i++)
		ready[i - n] = ready[i];
	r->n_ready[cls] -= n;
}

/* One slice of what is beyond `keep` bytes; true: there is more to do. */
static bool space_slice(struct spr_ring *r, uint64_t keep)
{
	for (uint32_t c = SPR_RING_CLASSES; c-- > 0;) {
		const uint64_t size = spr_ring_class_bytes(c);
		const uint64_t share = keep / 2 / size;
		uint64_t n;

		if (r->n_ready[c] > share)
			list_sift(r, c);
		if (r->n_ready[c] <= share) {
			keep -= r->n_ready[c] * size;
			continue;
		}
		n = r->n_ready[c] - share;
		if (n * size < 64 << 10)
			continue;
		if (n > PUNCH_SLICE / size)
			n = PUNCH_SLICE / size;
		class_punch(r, c, (uint32_t)n);
		return true;
	}
	return false;
}

/* While records move, what is free is what writers will claim next: to punch it costs them a page
 * fault for each page. So then more is kept, and looked at less often. When to come again. */
static uint64_t space_return(struct spr_ring *r, uint64_t now_ns)
{
	if (r->no_punch || r->sealed)
		return UINT64_MAX;
	if (r->delivered != r->delivered_seen) {
		r->delivered_seen = r->delivered;
		r->moved_ns = now_ns;
	}
	if (now_ns - r->moved_ns >= PUNCH_IDLE_NS)
		return space_slice(r, PUNCH_KEEP) ? now_ns : UINT64_MAX;
	if (now_ns >= r->punch_due_ns) {
		r->punch_due_ns = now_ns;
		if (!space_slice(r, PUNCH_KEEP_BUSY))
			r->punch_due_ns += PUNCH_BUSY_NS;
	}
	return r->punch_due_ns < r->moved_ns + PUNCH_IDLE_NS ? r->punch_due_ns
	                                                     : r->moved_ns + PUNCH_IDLE_NS;
}

/* --- Tend
 * ------------------------------------------------------------------------------------------------
 */

uint64_t spr_shm_ring_tend(struct spr_ring *r, uint64_t now_ns,
                           const struct spr_ring_watcher *watcher)
{
	uint64_t again = UINT64_MAX;
	uint64_t space_ns;
	bool active;

	pthread_mutex_lock(&r->lock);
	active = r->activity != r->activity_seen;
	if (now_ns >= r->probe_due_ns && (active || r->n_unwatched)) {
		const uint32_t n = slots_probe(r, watcher);

		r->n_unwatched = n > r->n_pidfds ? n - r->n_pidfds : 0;
		r->activity_seen = r->activity;
		r->probe_due_ns = now_ns + PROBE_LEAST_NS + n * PROBE_EACH_NS;
		ready_ahead(r);
	}
	if (r->deaths && now_ns >= r->orphans_due_ns && !r->sealed) {
		orphans_recycle(r);
		r->deaths = 0;
		r->orphans_due_ns = now_ns + ORPHANS_NS;
	} else if (r->deaths && !r->sealed) {
		again = r->orphans_due_ns;
	}
	if (r->activity != r->activity_seen && r->probe_due_ns < again)
		again = r->probe_due_ns;
	if (r->n_young && now_ns + YOUNG_NS < again)
		again = now_ns + YOUNG_NS;
	space_ns = space_return(r, now_ns);
	again = space_ns < again ? space_ns : again;
	if (!r->sealed && spr_load_relaxed(&r->header->confined)) {
		r->look_again = true;
		again = now_ns + CONFINED_NS;
	}
	pthread_mutex_unlock(&r->lock);
	return again;
}
