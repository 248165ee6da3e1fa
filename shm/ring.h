/* SPDX-License-Identifier: MIT */
/*
 * ring.h - the collector's side of a ring: make it, drain it, seal it, tend it, give it back.
 *
 * Nothing read from the mapping is trusted: places, lengths and identities are loaded once and
 * checked against what is held here, privately. One lock covers everything here; what may be
 * called beside it says so.
 *
 *   | RELEASE | range_release(): released, n_released | settle: the same | the bytes are read |
 *   | DEPART  | range_release(): n_departed | close, unbind | the releasing thread is out of here |
 */
#ifndef SPR_SHM_RING_H
#define SPR_SHM_RING_H

#include <pthread.h>

#include <sparring/sparring.h>

#include "shm/layout.h"

struct spr_ring;
struct spr_ring_lane;

/* What the last record was like: the next one mostly is the same. */
struct spr_ring_guess {
	uint64_t like; /* its header without the sequence */
	uint64_t room;
	uint32_t bytes, head_bytes;
};
#define SPR_RING_NO_GUESS UINT64_MAX /* has bits set that a good header has not */

/* A run of one lane's records, handed out in one go. */
struct spr_ring_range {
	struct spr_ring       *ring;
	struct spr_ring_range *next;
	uint64_t from, to;       /* positions */
	uint64_t seq_from, seq;  /* the sequence at from, at the cursor */
	uint64_t at;             /* the cursor: the position of `lap`, and in that lap p */
	const uint8_t *lap, *p, *end;
	struct spr_ring_guess guess;
	uint64_t size;           /* of the segment */
	const uint8_t *base;     /* a position's bytes: base + ((position - origin) & mask) */
	uint64_t origin, mask;
	uint8_t *copy;           /* the caller's memory, if it reads instead of looking in place */
	uint64_t writer;
	uint64_t n_records, n_bytes;
	int32_t  pid, tid;
	uint32_t segment;
	bool     walked;         /* belongs to a walk: never released by itself */
	_Atomic uint32_t released;
};

/* Who takes ranges. make and unmake give and take back the memory of a range. */
struct spr_ring_taker {
	void *arg;
	struct spr_ring_range *(*make)(void *arg);
	void (*unmake)(void *arg, struct spr_ring_range *range);
	int (*put)(void *arg, struct spr_ring_range *range); /* 0 done, 1 kept, -errno: not taken */
	int (*gone)(void *arg, uint64_t writer, uint64_t written, uint64_t lost);
	/* NULL: in place. Else read n bytes at `at` of the file into range->copy (which make gave
	 * room for a whole segment). */
	int (*read)(void *arg, struct spr_ring_range *range, size_t into, size_t n, uint64_t at);
};

/* How the ring asks to be told of a process's death. */
struct spr_ring_watcher {
	void *arg;
	int (*watch)(void *arg, int fd, uint32_t slot);
	void (*unwatch)(void *arg, int fd, uint32_t slot);
};

struct spr_ring_left { /* a process attached and alive at the seal */
	uint32_t pid;
	char     program[20];
};

#define SPR_RING_LEFT_MAX 64u

/* What the collector knows of a segment that somebody owns. */
struct spr_ring_seg {
	uint64_t owner;  /* 0: nobody, as far as we know */
	uint64_t taken;  /* handed out up to here */
	uint64_t upto;   /* may be handed out up to here, this pass */
	uint64_t gaps;   /* of desc.lost, seen as jumps of the sequence: accounted for */
	uint64_t seq0;
	int32_t  pid, tid;
	struct spr_ring_lane  *lane;
	struct spr_ring_range *first, *last; /* kept, in order */
	uint32_t ordinal;
	uint32_t next;      /* in the lane's queue, index + 1 */
	uint32_t kept_next; /* in the list of segments with kept ranges, index + 1 */
	uint32_t seen_pass; /* when its lane was not known yet */
	bool     finished;  /* closed, or its owner is dead, or sealed */
	bool     closed;    /* closed, or its owner is dead: may be freed */
	bool     dead, drained, bad, kept;
	bool     listed;    /* stands in ring->ready */
	bool     readable;  /* its pages have been seen to exist since its last punch */
};

struct spr_ring_lane {
	uint64_t id; /* public: never used twice */
	uint64_t owner, writer_id;
	uint64_t next_seq, base_seq;
	uint64_t lost;
	uint32_t next_ordinal;
	uint32_t head; /* segment index + 1, by ordinal */
	uint32_t claimed_pass; /* it was seen with a segment that holds nothing yet */
	uint32_t idle_pass; /* its last segment went in this pass; 0: it has one */
	bool     working, begun, ending, resync;
	struct spr_ring_lane *next;      /* in its hash chain */
	struct spr_ring_lane *work_next; /* in this pass's list */
	struct spr_ring_lane *end_next;  /* in the list of those that may be gone */
};

struct spr_ring_slot_seen {
	uint32_t dead_generation; /* this one and all before are dead */
	bool     any_dead;
	int      pidfd; /* + 1; 0: none */
};

struct spr_ring {
	pthread_mutex_t lock;
	int      fd;    /* read, punch, probe locks; the owner's lock is held by owner_map alone */
	void    *owner_map;
	int      place; /* the folder */
	char     name[64];
	char    *path;
	uint8_t *map;
	uint64_t map_bytes;
	struct spr_ring_header  *header;
	struct spr_ring_geometry geometry;
	uint32_t record_bytes_max;
	bool     sealed, bound, recovered, no_punch, fence, guarded;
	bool     sealed_drained; /* a whole pass since the seal found nothing left */
	bool     look_again;     /* the next pass will find something to do */
	bool     deferred;       /* this pass met a segment of a lane it could not place yet */
	uint32_t pass;
	struct spr_ring_seg       *segs;
	struct spr_ring_slot_seen *slots;
	uint32_t n_slots_seen;
	struct spr_ring_lane **lanes; /* hash */
	uint32_t n_lanes, lanes_mask;
	struct spr_ring_lane *work, *ending;
	uint64_t next_lane_id;
	uint32_t kept; /* list of segments with kept ranges, index + 1 */
	uint64_t n_kept;
	_Atomic uint64_t n_released, n_departed; /* since ever; T: any */
	uint64_t n_walked; /* kept by walks, until the close */
	uint64_t n_settled, release_seen;
	/* sums: of lanes that are gone, and of all */
	uint64_t written_gone, lost_gone, delivered, delivered_bytes, malformed;
	uint64_t wakes, wakes_missed;
	uint32_t n_writers;
	bool     recycled;   /* a segment, since room was last published */
	uint32_t n_flooding; /* lanes whose open segment is of the largest class, this pass */
	/* tending */
	uint64_t probe_due_ns, activity, activity_seen;
	uint64_t deaths, orphans_due_ns;
	struct spr_clock clock;
	uint32_t n_pidfds, n_unwatched, n_young;
	uint32_t arming; /* counts up in the gate's high bits */
	uint64_t delivered_seen, moved_ns, punch_due_ns; /* is there traffic? */
	uint32_t *ready[SPR_RING_CLASSES];
	uint32_t  n_ready[SPR_RING_CLASSES];
	uint32_t  low_hole_ahead;
	struct spr_ring_left left[SPR_RING_LEFT_MAX];
	uint32_t n_left;
};

struct spr_ring_config {
	const char *folder; /* NULL: the private place */
	uint64_t capacity_bytes;
	uint32_t record_bytes_max, stall_ms, flags; /* SPR_RING_* */
	bool     guard;
	const void *kinds;
	size_t   kinds_bytes;
};

/* ring.c */
int spr_shm_ring_open(struct spr_ring **out, const struct spr_ring_config *config);
int spr_shm_ring_recover(struct spr_ring **out, const char *folder);
int spr_shm_ring_seal(struct spr_ring *r);                 /* T: any */
int spr_shm_ring_close(struct spr_ring *r);                /* -EBUSY */
void spr_shm_ring_stats(struct spr_ring *r, struct spr_stats *out); /* T: any */
void spr_shm_ring_bind(struct spr_ring *r, bool bound);
bool spr_shm_ring_ended(struct spr_ring *r);
bool spr_shm_ring_alive(struct spr_ring *r, uint32_t slot_idx);
void spr_shm_ring_barrier(const struct spr_ring *r);
/* ring_drain.c */
int spr_shm_ring_drain(struct spr_ring *r, const struct spr_ring_taker *taker, uint64_t *n_records);
bool spr_shm_ring_owner_dead(const struct spr_ring *r, uint64_t owner);
bool spr_shm_ring_anything(struct spr_ring *r);
bool spr_shm_ring_arm(struct spr_ring *r, uint32_t *bell_seen);
void spr_shm_ring_disarm(struct spr_ring *r);
uint64_t spr_shm_ring_pending(struct spr_ring *r, uint64_t *bytes, uint64_t *lost);
int spr_shm_range_next(struct spr_ring_range *range, struct spr_record *rec);
void spr_shm_range_rewind(struct spr_ring_range *range);
/* T: any. wake (may be NULL) is called between the release and the point from which the ring may be
 * closed. */
void spr_shm_range_release(struct spr_ring_range *range, void (*wake)(void *arg), void *arg);
bool spr_shm_ring_kept(struct spr_ring *r); /* somebody still has a range */
/* ring_segment.c */
void spr_shm_ring_segment_recycle(struct spr_ring *r, uint32_t segment);
void spr_shm_ring_settle(struct spr_ring *r, const struct spr_ring_taker *taker);
void spr_shm_ring_keep(struct spr_ring *r, struct spr_ring_range *range);
void spr_shm_ring_publish(struct spr_ring *r, uint32_t segment, uint64_t upto, uint64_t seq);
bool spr_shm_ring_readable(struct spr_ring *r, uint32_t segment);
/* ring_tend.c */
void spr_shm_ring_watch_all(struct spr_ring *r, const struct spr_ring_watcher *watcher);
uint64_t spr_shm_ring_tend(struct spr_ring *r, uint64_t now_ns,
                           const struct spr_ring_watcher *watcher);
void spr_shm_ring_slot_ready(struct spr_ring *r, uint32_t slot_idx,
                             const struct spr_ring_watcher *watcher);
void spr_shm_ring_unwatch_all(struct spr_ring *r, const struct spr_ring_watcher *watcher);
/* guard.c */
int spr_shm_guard_add(void *map, size_t bytes);
void spr_shm_guard_remove(void *map);
bool spr_shm_guard_torn(void *map); /* somebody cut the file under the mapping */

static inline struct spr_ring_desc *spr_shm_ring_desc(struct spr_ring *r, uint32_t segment)
{
	const uint32_t cls = spr_ring_class_of(&r->geometry, segment);

	return spr_ring_desc_at(&r->geometry, r->map, cls, segment - r->geometry.first[cls]);
}

/* Tests make the collector drop the n-th record it takes; 0: never. */
extern uint64_t spr_shm_ring_test_skip;

#endif /* SPR_SHM_RING_H */
