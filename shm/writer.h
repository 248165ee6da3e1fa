/* SPDX-License-Identifier: MIT */
/*
 * writer.h - the writing side of a ring, private to its process: producer, writer, lane, and the
 * record path, inline. shm/layout.h has what is shared.
 *
 * This code lives in other people's processes, under signal handlers and between vfork and exec:
 * no lock, no allocation, no libc call that can be hooked, no large frame.
 *
 *   spr_producer (8, static) --> area, MADV_WIPEONFORK: spr_area | spr_writer | spr_writer | ...
 *   a thread's TLS           --> its spr_writer: four lanes, each with a segment of its own
 *
 * After fork the area reads zero, so whatever points into it reads "no writer yet" and the child
 * registers itself at its first record. A vfork child finds it intact and must leave it so.
 */
#ifndef SPR_SHM_WRITER_H
#define SPR_SHM_WRITER_H

#include <errno.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/sys.h"
#include "shm/layout.h"

#define SPR_PRODUCERS_MAX 8u
#define SPR_LANES         4u
#define SPR_LANE_RECENT   6u

/* A class-3 segment that the lane has filled lately: its pages are mapped here until its next
 * punch. */
struct spr_recent {
	uint32_t segment; /* index + 1 */
	uint32_t punches; /* of its descriptor, when they were mapped */
};

/* A lane: one stream of records, in order, with a sequence of its own. Lane 0 is the thread's;
 * the others take what is written while it is open. The first line is the record path's. */
struct spr_lane {
	uint64_t head;  /* where the next record goes */
	uint64_t limit; /* head may come this far without looking at consumed */
	uint8_t *base;
	struct spr_ring_desc *desc;
	uintptr_t open; /* the open record's slot; bit 0: not on the stack; 0: none */
	uint64_t seq;   /* of the next record */
	uint32_t mask;
	uint32_t generation; /* + 1 when the lane is taken back from an open record */
	uint32_t hop_from;   /* during a change of segment: the old one, index + 1 */
	uint32_t full;       /* the last record found no room: the next waits for none */
	/* second line */
	uint64_t consumed_seen;
	uint64_t lost_here;
	uint64_t writer_id;
	uint32_t segment; /* global index + 1; 0: none */
	uint32_t ordinal;
	uint32_t hop; /* not 0: a change of segment is under way, to this index + 1 */
	uint32_t stall_left_us;
	uint64_t reserved1[3];
	struct spr_recent recent[SPR_LANE_RECENT]; /* the last one first */
	uint64_t reserved2[2];
};
static_assert(sizeof(struct spr_lane) == 192, "a lane is three lines");
static_assert(offsetof(struct spr_lane, consumed_seen) == 64, "the record path has a line");

#define SPR_WRITER_FREE   0u
#define SPR_WRITER_USED   1u
#define SPR_WRITER_REAPED 2u

#define SPR_WRITER_STAMPED (1u << 0)
#define SPR_WRITER_FENCE   (1u << 1)

struct spr_writer {
	spr_producer *producer; /* NULL: wiped by fork, never made, or mute */
	const _Atomic uint32_t *gate;
	uint32_t flags;
	uint32_t record_bytes_max;
	_Atomic uint32_t state; /* SPR_WRITER_FREE, _USED, _REAPED | 4 x times it was taken */
	_Atomic uint32_t tid;   /* 0: not known, never reaped */
	uint32_t pid;
	uint32_t reserved0;
	uint64_t reserved[3];
	struct spr_lane lanes[SPR_LANES];
};
static_assert(sizeof(struct spr_writer) == 832, "a line and four lanes");

/* What a process knows of itself; wiped by fork. */
struct spr_area {
	_Atomic uint32_t state; /* 0 to be registered, 1 under way, 2 registered, 3 failed */
	uint32_t pid;
	uint32_t slot_idx;
	uint32_t generation;
	uint64_t owner; /* the word it claims segments with */
	void *lock_map;
	_Atomic uint32_t sweep;  /* the next writer to be looked at */
	_Atomic uint32_t n_used; /* writers ever used: index bound */
	_Atomic uint64_t serial;
	uint64_t reserved[2];
};
#define SPR_AREA_HEAD 64u
static_assert(sizeof(struct spr_area) <= SPR_AREA_HEAD, "the writers begin right behind");
#define SPR_AREA_WRITERS_MAX 8192u
#define SPR_AREA_BYTES(n)    ((SPR_AREA_HEAD + (n) * sizeof(struct spr_writer) + 4095u) & ~4095ul)

struct spr_producer {
	_Atomic uint32_t used;
	uint32_t index;
	uint32_t serial; /* of the attach: tells a stale TLS entry */
	uint32_t stall_ms;
	uint32_t ring_flags;
	uint32_t record_bytes_max;
	uint32_t n_classes; /* mapped: less than all where address space is short */
	uint32_t n_writers; /* room in the area */
	uint32_t fence;
	_Atomic uint32_t confined;
	uint8_t *map;
	uint64_t map_bytes;
	struct spr_ring_header *header;
	struct spr_area *area;
	uint64_t area_bytes;
	uint64_t dev, ino;
	struct spr_ring_geometry geometry;
	struct spr_clock clock;
	struct spr_writer mute; /* stands in where there is no room: its producer is NULL */
	char path[512];
};

/* writer_thread.c */
spr_writer *spr_shm_writer_here(spr_producer *p);
spr_writer *spr_shm_writer_revive(spr_writer *w);
void spr_shm_writer_end(spr_producer *p);
void spr_shm_writer_close_all(spr_producer *p);
int spr_shm_thread_key_make(void);
/* writer_attach.c */
int spr_shm_attach(spr_producer **out, const char *path);
void spr_shm_detach(spr_producer *p);
int spr_shm_process_register(spr_producer *p);
void spr_shm_confine(spr_producer *p);
/* writer_lane.c */
int spr_shm_lane_room(spr_writer *w, struct spr_lane *lane, uint32_t need);
struct spr_lane *spr_shm_lane_nested(spr_writer *w, const struct spr_slot *slot, uintptr_t sp);
void spr_shm_lane_close(spr_producer *p, struct spr_lane *lane);
int spr_shm_lane_lose(spr_writer *w, struct spr_lane *lane);
int spr_shm_gate(spr_writer *w, struct spr_lane *lane, uint64_t next, uint32_t gate);
/* writer_claim.c */
int spr_shm_segment_claim(spr_writer *w, const struct spr_lane *lane, uint32_t cls, uint32_t *idx);

static inline struct spr_writer *spr_shm_area_writer(spr_producer *p, uint32_t idx)
{
	return (struct spr_writer *)(void *)((uint8_t *)p->area + SPR_AREA_HEAD) + idx;
}

static inline __attribute__((always_inline)) uintptr_t spr_shm_stack_pointer(void)
{
	uintptr_t sp;

#if defined(__x86_64__)
	__asm__("mov %%rsp, %0" : "=r"(sp));
#elif defined(__aarch64__)
	__asm__("mov %0, sp" : "=r"(sp));
#endif
	return sp;
}

/* Is the slot in a live frame of this stack? Then it is dead once the stack pointer has passed it.
 * A slot elsewhere proves nothing. */
static inline uintptr_t spr_shm_open_mark(const struct spr_slot *slot, uintptr_t sp)
{
	const uintptr_t at = (uintptr_t)slot;

	return at - sp < (1u << 20) ? at : at | 1u;
}

static inline uint32_t spr_shm_record_room(uint32_t writer_flags, uint64_t about, uint32_t bytes)
{
	return (8u + (writer_flags & SPR_WRITER_STAMPED ? 8u : 0u) + (about ? 8u : 0u) + bytes +
	        7u) &
	       ~7u;
}

/* about: 0, or pid | tid << 32 of another task. The slot's token: lane | about flag, position. */
static inline __attribute__((always_inline)) int
spr_shm_reserve(spr_writer *w, uint64_t about, uint32_t kind, uint32_t bytes, struct spr_slot *slot)
{
	struct spr_lane *lane;
	uint64_t stamp = 0;
	uint32_t need;
	uint8_t *at;

	if (spr_unlikely(!w->producer))
		w = spr_shm_writer_revive(w);
	if (spr_unlikely(!w))
		return -EAGAIN;
	if (w->flags & SPR_WRITER_STAMPED)
		stamp = spr_clock_now(&w->producer->clock); /* first, so that it overlaps */
	if (spr_unlikely(kind > UINT16_MAX))
		return -EINVAL;
	if (spr_unlikely(bytes > w->record_bytes_max))
		return -EMSGSIZE;
	need = spr_shm_record_room(w->flags, about, bytes);
	lane = &w->lanes[0];
	if (spr_unlikely(lane->open != 0)) {
		lane = spr_shm_lane_nested(w, slot, spr_shm_stack_pointer());
		if (!lane)
			return -EAGAIN;
	}
	lane->open = spr_shm_open_mark(slot, spr_shm_stack_pointer());
	spr_compiler_barrier(); /* a handler from here on takes the next lane */
	if (spr_unlikely(lane->head + need > lane->limit)) {
		const int err = spr_shm_lane_room(w, lane, need);

		if (err)
			return err;
	}
	at = lane->base + (lane->head & lane->mask) + need - ((bytes + 7u) & ~7u);
	if (about)
		memcpy(at - 8, &about, 8);
	slot->data = at;
	slot->time_ns = stamp;
	slot->bytes = bytes;
	slot->reserved = kind;
	slot->token[0] = (uint64_t)(lane - w->lanes) | (about ? 8u : 0u) |
	                 (uint64_t)lane->generation << 32;
	slot->token[1] = need;
	return 0;
}

/* The slot's lane, or NULL if the lane was taken back meanwhile. */
static inline struct spr_lane *spr_shm_slot_lane(spr_writer *w, const struct spr_slot *slot)
{
	struct spr_lane *lane = &w->lanes[slot->token[0] & (SPR_LANES - 1)];

	if (spr_unlikely(!lane->open || (uint32_t)(slot->token[0] >> 32) != lane->generation))
		return NULL;
	return lane;
}

/* The record before `next` is whole: give it to the collector, and see whether anything is asked.
 */
static inline __attribute__((always_inline)) int
spr_shm_publish(spr_writer *w, struct spr_lane *lane, uint64_t next)
{
	uint32_t gate;
	int err = 0;

	spr_store_release(&lane->desc->committed, next); /* [COMMIT] */
	if (spr_unlikely(w->flags & SPR_WRITER_FENCE))
		spr_full_fence(); /* [ARM] [SEAL] */
	spr_compiler_barrier();           /* the collector's membarrier makes it a fence */
	gate = spr_load_relaxed(w->gate); /* [ARM] [SEAL] */
	if (spr_unlikely(gate != 0))
		err = spr_shm_gate(w, lane, next, gate);
	lane->seq++;
	spr_compiler_barrier(); /* lane_resync() goes by head: it must be the last to move */
	lane->head = next;
	spr_compiler_barrier(); /* a handler must not find the lane free and its head old */
	lane->open = 0;
	return err;
}

static inline __attribute__((always_inline)) int spr_shm_commit(spr_writer *w,
                                                                struct spr_slot *slot)
{
	struct spr_lane *lane = spr_shm_slot_lane(w, slot);
	const uint32_t need = (uint32_t)slot->token[1];
	uint64_t flags = slot->token[0] & 8u ? SPR_REC_ABOUT : 0;
	uint64_t header;
	uint8_t *at;

	if (spr_unlikely(!lane))
		return -EINVAL;
	at = lane->base + (lane->head & lane->mask);
	if (w->flags & SPR_WRITER_STAMPED) {
		flags |= SPR_REC_STAMPED;
		memcpy(at + 8, &slot->time_ns, 8);
	}
	header = spr_rec_header(slot->bytes, flags, slot->reserved, lane->seq);
	memcpy(at, &header, 8);
	return spr_shm_publish(w, lane, lane->head + need);
}

static inline void spr_shm_abandon(spr_writer *w, struct spr_slot *slot)
{
	struct spr_lane *lane = spr_shm_slot_lane(w, slot);

	if (lane)
		lane->open = 0;
}

/* A copy without a call: memcpy() may be hooked, and through the PLT it costs as much as the rest
 * of a record. 16 bytes at a time, the last ones overlapping. */
typedef uint8_t spr_shm_vector __attribute__((vector_size(16), aligned(1), may_alias));

static inline void spr_shm_copy(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	const uint8_t *last = from + bytes - 16;
	uint8_t *last_to = to + bytes - 16;

	if (spr_unlikely(bytes < 16)) {
		for (; bytes >= 8; to += 8, from += 8, bytes -= 8)
			memcpy(to, from, 8);
		while (bytes--)
			*to++ = *from++;
		return;
	}
	while (from < last) {
		*(spr_shm_vector *)to = *(const spr_shm_vector *)from;
		to += 16;
		from += 16;
		__asm__ volatile("" : "+r"(to)); /* or the compiler makes it a call of memcpy */
	}
	*(spr_shm_vector *)last_to = *(const spr_shm_vector *)last;
}

/* Reserve, copy and commit on lane 0, all in registers. false: not so simple, nothing was done. */
static inline __attribute__((always_inline)) bool
spr_shm_write_direct(spr_writer *w, uint32_t kind, const void *data, uint32_t bytes, int *err)
{
	struct spr_lane *lane = &w->lanes[0];
	const uint32_t writer_flags = w->flags;
	uint64_t stamp = 0;
	uint64_t flags = 0;
	uint64_t header, next;
	uint8_t *at;

	if (spr_unlikely(!w->producer))
		return false;
	if (writer_flags & SPR_WRITER_STAMPED) {
		stamp = spr_clock_now(&w->producer->clock);
		flags = SPR_REC_STAMPED;
	}
	if (spr_unlikely(kind > UINT16_MAX || bytes > w->record_bytes_max || lane->open != 0))
		return false;
	lane->open = spr_shm_stack_pointer() &
	             ~(uintptr_t)1; /* nobody's slot; dead once it is passed */
	spr_compiler_barrier();
	next = lane->head + spr_shm_record_room(writer_flags, 0, bytes);
	if (spr_unlikely(next > lane->limit)) {
		lane->open = 0;
		return false;
	}
	at = lane->base + (lane->head & lane->mask);
	header = spr_rec_header(bytes, flags, kind, lane->seq);
	memcpy(at, &header, 8);
	at += 8;
	if (writer_flags & SPR_WRITER_STAMPED) {
		memcpy(at, &stamp, 8);
		at += 8;
	}
	spr_shm_copy(at, data, bytes);
	*err = spr_shm_publish(w, lane, next);
	return true;
}

#endif /* SPR_SHM_WRITER_H */
