/* SPDX-License-Identifier: MIT */
/*
 * layout.h - every byte of a ring file. Change it, change SPR_RING_LAYOUT_VERSION.
 *
 * One sparse file, mapped by the collector and by every producer. Every segment class has a region
 * of its own, and a segment's place is arithmetic on its index: no allocation map to corrupt.
 *
 *   0            header, 4 KiB          struct spr_ring_header
 *   4 KiB        kinds, 60 KiB          the declaration of base/kinds.h, header.kinds_bytes of it
 *   64 KiB       process slots          64 bytes x SPR_RING_SLOTS
 *   320 KiB      inuse, 12 KiB          a bit for each segment that is owned
 *   332 KiB      descriptors, class 0   128 bytes x n_segments[0]
 *   ... 4 KiB    segments, class 0      4 KiB each: the first segment of every lane
 *   ...          descriptors, class 1 to 3
 *   ... 4 KiB    segments, class 1      16 KiB each
 *                segments, class 2      64 KiB each
 *                segments, class 3      256 KiB each
 *
 * The first pages that a short process touches (header, its slot, its descriptor, its segment) lie
 * in one aligned 2 MiB, because half the cost of an attach is page-table pages.
 *
 *   A segment's life, with the mover beside each arrow:
 *
 *             collector: populate                        writer: CAS owner, then populate;
 *        +------------------------------+                on failure it puts HOLE back
 *        |                              v                       |
 *      HOLE <-- collector: punch -- COLLECTOR <-CAS- READY -----+--- writer: CAS owner --> OWNED
 *        ^                                             ^                                     |
 *        |  collector, if the dead owner never         |   collector: all consumed, and      |
 *        |  committed (it may never have populated)    |   closed or its process is dead;    |
 *        +---------------------------------------------+-- zeroes the descriptor first ------+
 *
 *   A segment is itself a ring: positions only grow while it is owned, place = position mod size.
 *
 *        consumed            committed        head (private)       consumed + size
 *      ----|== to be taken =====|-- being written --|-- free ---------|
 *
 *   A record never wraps; a pad record fills the end of a lap.
 *
 *   record   | header u64 | stamp u64, if stamped | pid u32, tid u32, if about another task |
 *            | payload, header.bytes | padding to a multiple of 8                          |
 *   header   bits 0-16 payload bytes | 17 pad | 18 stamped | 19 about another task |
 *            20-23 must be 0 | 24-39 kind | 40-63 the lane's sequence, low 24 bits
 *            (a pad's room is the rest of the lap; it has no sequence)
 *
 * Memory order. Each ordered access names its pair; tests/tidy.sh checks that both sides exist.
 *
 *   pair       release side                       acquire side
 *   what it carries
 *   | COMMIT  | writer: committed                  | collector: committed
 *             records; and writer_id, ordinal, seq0, pid, tid, lost
 *   | CONSUME | collector: consumed                | writer: consumed, when short of room
 *             reads are done before the place is overwritten
 *   | CLOSE   | writer: closed, after its next claim | collector: closed, and *then* committed
 *             that committed is final
 *   | FREE    | collector: owner = READY, HOLE     | writer: CAS on owner
 *             a zeroed descriptor, populated pages
 *   | CLAIM   | writer: CAS on owner               | collector: owner, CAS on owner
 *             who it is; nothing else is valid yet
 *   | INUSE   | writer: or inuse, after CLAIM      | collector: inuse
 *             where to look
 *   | SLOT    | attach: generation, state          | collector, attach: the same
 *             pid, time; that the generations before are dead
 *   | ARM     | collector: or gate, membarrier, load committed
 *             | writer: store committed, compiler barrier, load gate
 *             no lost wake-up
 *   | SEAL    | collector: or gate, membarrier, CAS final
 *             | writer: store committed or CAS owner, compiler barrier, load gate
 *             one verdict per record
 *   | FINAL   | who settles first: CAS final, lost | the other: the value it finds
 *             up to where records are delivered
 *   | SPACE   | writer: waiters, full fence, load consumed
 *             | collector: consumed, full fence, and waiters
 *             no lost wake-up of a writer short of room
 *   | BELL    | writer: bell + 1                   | collector: bell, before arming
 *             that a futex wait returns
 *   | CLOCK   | collector: clock_idx               | attach: clock_idx
 *             the clock's parameters
 *   | DEATH   | kernel: drops the lock             | collector: takes it, then loads committed
 *             a dead writer's last commit (no access of ours)
 *
 *   Hints (ready, low_hole, low_slot, desc_ready, slots_ready, allowance, present) are relaxed and
 *   carry nothing; a wrong one costs time, never a record.
 *
 * Trust: the other side may be hostile. Load once into a local, check the local, use the local.
 */
#ifndef SPR_SHM_LAYOUT_H
#define SPR_SHM_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/clock.h"

#define SPR_RING_MAGIC          "sparring"
#define SPR_RING_LAYOUT_VERSION 1u

#define SPR_RING_CLASSES     4u
#define SPR_RING_SLOTS       4096u
#define SPR_RING_ALLOWANCE   6u /* class-3 segments, at most */
#define SPR_RING_HINTS       32u
#define SPR_RING_SEG0_MAX    8192u
#define SPR_RING_SEG1_MAX    1024u
#define SPR_RING_SEG2_MAX    512u
#define SPR_RING_SEG3_MAX    65536u /* 16 GiB */
#define SPR_RING_INUSE_WORDS ((SPR_RING_SEG0_MAX + SPR_RING_SEG1_MAX + SPR_RING_SEG2_MAX + \
                               SPR_RING_SEG3_MAX) / 64u)

#define SPR_RING_KINDS_AT   4096u
#define SPR_RING_KINDS_ROOM (60u * 1024u)
#define SPR_RING_SLOTS_AT   (64u * 1024u)
#define SPR_RING_INUSE_AT   (SPR_RING_SLOTS_AT + SPR_RING_SLOTS * 64u)
#define SPR_RING_DESC0_AT   (SPR_RING_INUSE_AT + 12u * 1024u)

/* Locks on bytes far beyond the file: who holds one is alive. */
#define SPR_RING_LOCK_AT (1ull << 40) /* + slot */

/* gate: what a writer looks at after each commit; 0: nothing to do. An armed gate carries a count,
 * so that a writer that rings takes back the arming it has seen and no later one. */
#define SPR_GATE_ARMED  (1u << 0) /* the collector sleeps or is about to */
#define SPR_GATE_SEALED (1u << 1)
#define SPR_GATE_ARMING (1u << 2) /* one step of the count */

/* header.flags */
#define SPR_RING_UNSTAMPED (1u << 0)
#define SPR_RING_DROP      (1u << 1)
#define SPR_RING_FENCE     (1u << 2) /* the collector has no membarrier: writers pay the fence */

struct spr_ring_header {
	/* line 0: written once, before the file is visible */
	char     magic[8];
	uint32_t version;
	uint32_t flags;
	uint32_t n_segments[SPR_RING_CLASSES];
	uint32_t record_bytes_max;
	uint32_t stall_ms;
	uint32_t kinds_bytes;
	uint32_t reserved0;
	uint64_t file_bytes;
	uint64_t reserved1;

	/* line 1: read by every record, written rarely */
	_Alignas(64) _Atomic uint32_t gate; /* collector sets, the writer that rings disarms */
	_Atomic uint32_t bell;      /* futex: writers count up */
	_Atomic uint32_t present;   /* collector: 1 while one is there to wait for */
	_Atomic uint32_t
		allowance; /* collector: class-3 segments a lane may fill before it waits */

	/* line 2: slow paths only */
	_Alignas(64) _Atomic uint64_t lost_homeless; /* dropped by writers without a segment */
	_Atomic uint64_t refused;  /* commits and reserves after the seal */
	_Atomic uint64_t stalls;   /* times a writer waited for room */
	_Atomic uint64_t faults;   /* populate failures: out of space */
	_Atomic uint32_t confined; /* producers that cannot ring */
	_Atomic uint32_t low_slot; /* hints */
	_Atomic uint32_t low_hole[SPR_RING_CLASSES];

	/* line 3: waiting for room */
	_Alignas(64) _Atomic uint32_t
		waiters; /* a bit per lane, below; writers set, collector takes */
	_Atomic uint32_t space;                /* futex: collector counts up */
	_Atomic uint32_t slots_ready;          /* slots, descriptors in populated pages */
	_Atomic uint32_t desc_ready[SPR_RING_CLASSES];

	/* line 4: stamps. Two sets, so that the collector can calibrate while producers attach. */
	_Alignas(64) struct spr_clock clock[2];
	_Atomic uint32_t clock_idx;

	/* collector: index + 1 of a segment lately freed; the writer that claims it clears it */
	_Alignas(64) _Atomic uint32_t ready[SPR_RING_CLASSES][SPR_RING_HINTS];
};

/* slot.state */
#define SPR_SLOT_FREE     0u
#define SPR_SLOT_ATTACHED 1u /* alive while the lock on its byte is held */
#define SPR_SLOT_UNLOCKED 2u /* could not lock (another root, no descriptor): alive until close */
#define SPR_SLOT_TAKING   3u /* on its way to UNLOCKED; killed there, it is gone until close */
#define SPR_SLOT_LOCKING  4u /* on its way to ATTACHED, the lock is held */

struct spr_ring_slot { /* its process writes it, the collector frees it */
	_Atomic uint32_t state;
	_Atomic uint32_t
		generation; /* + 1 at each attach: tells a segment's owner from a successor */
	_Atomic uint32_t pid;        /* as the process sees itself */
	_Atomic uint32_t pid_ns;     /* UNLOCKED: inode of the namespace of that pid, or 0 */
	_Atomic uint64_t attached_ns;
	uint64_t         reserved[5];
};

/* owner: 0 HOLE, 1 READY, 2 COLLECTOR, else OWNED | slot << 8 | generation << 32 */
#define SPR_OWNER_HOLE      UINT64_C(0)
#define SPR_OWNER_READY     UINT64_C(1)
#define SPR_OWNER_COLLECTOR UINT64_C(2)
#define SPR_OWNER_OWNED     UINT64_C(3)

static inline uint64_t spr_ring_owner(uint32_t slot_idx, uint32_t generation)
{
	return SPR_OWNER_OWNED | (uint64_t)slot_idx << 8 | (uint64_t)generation << 32;
}

static inline bool spr_ring_owner_is_owned(uint64_t owner)
{
	return (owner & 0xff) == SPR_OWNER_OWNED;
}

static inline uint32_t spr_ring_owner_slot(uint64_t owner)
{
	return (uint32_t)(owner >> 8) & (SPR_RING_SLOTS - 1);
}

struct spr_ring_desc {
	/* line A: the owner's, once it owns; zero before */
	_Atomic uint64_t owner;
	_Atomic uint64_t committed;
	_Atomic uint64_t lost;      /* records dropped by this lane while this was its segment, and
	                             * SPR_LOST_SETTLED */
	_Atomic uint64_t writer_id; /* of the lane, within its process */
	_Atomic uint64_t seq0;      /* the lane's sequence when it took the segment */
	_Atomic uint32_t ordinal;   /* the lane's n-th segment */
	_Atomic uint32_t closed;
	_Atomic uint32_t pid, tid;
	uint64_t         reserved0;
	/* line B: the collector's, but for final */
	_Atomic uint64_t consumed;
	_Atomic uint64_t final;     /* 0, or position | 1: nothing beyond is delivered */
	_Atomic uint64_t seq_taken; /* the lane's sequence at consumed: for recovery */
	_Atomic uint32_t punches;   /* + 1 each time its pages are given back */
	uint32_t         reserved1;
	uint64_t         reserved2[4];
};

/* Set by the seal: no loss is counted any more, a record that finds no room is refused. */
#define SPR_LOST_SETTLED (1ull << 63)

static inline uint64_t spr_ring_desc_lost(struct spr_ring_desc *desc)
{
	return spr_load_relaxed(&desc->lost) & ~SPR_LOST_SETTLED;
}

static_assert(sizeof(struct spr_ring_header) <= 4096, "the header is one page");
static_assert(offsetof(struct spr_ring_header, gate) == 64, "gate has its own line");
static_assert(offsetof(struct spr_ring_header, lost_homeless) == 128, "slow counters apart");
static_assert(offsetof(struct spr_ring_header, waiters) == 192, "waiting apart");
static_assert(offsetof(struct spr_ring_header, clock) == 256, "clocks apart");
static_assert(offsetof(struct spr_ring_header, ready) == 384, "hints behind the clocks");
static_assert(sizeof(struct spr_ring_slot) == 64, "a slot is a line");
static_assert(sizeof(struct spr_ring_desc) == 128, "a descriptor is two lines");
static_assert(offsetof(struct spr_ring_desc, consumed) == 64, "writer and collector store apart");
static_assert(sizeof(_Atomic uint64_t) == 8 && ATOMIC_LLONG_LOCK_FREE == 2,
              "an atomic in a shared file must be the bare, lock-free word");
static_assert(SPR_RING_INUSE_WORDS * 8 <= 12 * 1024, "inuse fits before the descriptors");

/* Which bit of waiters, and of the futex wait, is a lane's: woken are those whose room it is (and a
 * few that share the bit), not all. Who waits for anybody's room adds SPR_WAIT_ANY. */
#define SPR_WAIT_ANY (1u << 31)
static inline uint32_t spr_ring_wait_bit(uint64_t owner, uint64_t writer_id)
{
	return 1u << (spr_ring_owner_slot(owner) + writer_id) % 31;
}

/* --- Records ---------------------------------------------------------------------------- */

#define SPR_REC_BYTES_MASK   0x1ffffull
#define SPR_REC_PAD          (1ull << 17)
#define SPR_REC_STAMPED      (1ull << 18)
#define SPR_REC_ABOUT        (1ull << 19)
#define SPR_REC_ZERO         (0xfull << 20)
#define SPR_REC_SEQ_BITS     24u
#define SPR_REC_SEQ_MASK     ((1ull << SPR_REC_SEQ_BITS) - 1)
#define SPR_RECORD_BYTES_MAX 65536u

static inline uint64_t spr_rec_header(uint32_t bytes, uint64_t flags, uint32_t kind, uint64_t seq)
{
	return bytes | flags | (uint64_t)kind << 24 | seq << 40;
}

static inline uint32_t spr_rec_bytes(uint64_t header)
{
	return (uint32_t)(header & SPR_REC_BYTES_MASK);
}

static inline uint16_t spr_rec_kind(uint64_t header)
{
	return (uint16_t)(header >> 24);
}

/* Bytes before the payload. */
static inline uint32_t spr_rec_head_bytes(uint64_t header)
{
	return 8u + (header & SPR_REC_STAMPED ? 8u : 0u) + (header & SPR_REC_ABOUT ? 8u : 0u);
}

/* What a record takes in the segment, a multiple of 8. */
static inline uint32_t spr_rec_room(uint64_t header)
{
	return (spr_rec_head_bytes(header) + spr_rec_bytes(header) + 7u) & ~7u;
}

/* --- Geometry --------------------------------------------------------------------------- */

struct spr_ring_geometry {
	uint32_t n_segments[SPR_RING_CLASSES];
	uint32_t first[SPR_RING_CLASSES + 1]; /* global index of a class's first segment */
	uint64_t desc_at[SPR_RING_CLASSES];
	uint64_t seg_at[SPR_RING_CLASSES];
	uint64_t file_bytes;
};

static inline uint32_t spr_ring_class_bytes(uint32_t cls)
{
	return 4096u << (2u * cls);
}

/* The places of everything, from the counts; false if a count is out of range. */
static inline bool spr_ring_geometry_init(struct spr_ring_geometry *g,
                                          const uint32_t n_segments[SPR_RING_CLASSES])
{
	static const uint32_t most[SPR_RING_CLASSES] = { SPR_RING_SEG0_MAX, SPR_RING_SEG1_MAX,
		                                         SPR_RING_SEG2_MAX, SPR_RING_SEG3_MAX };
	uint64_t at = SPR_RING_DESC0_AT;

	g->first[0] = 0;
	for (uint32_t c = 0; c < SPR_RING_CLASSES; c++) {
		if (n_segments[c] > most[c] || n_segments[c] == 0)
			return false;
		g->n_segments[c] = n_segments[c];
		g->first[c + 1] = g->first[c] + n_segments[c];
	}
	g->desc_at[0] = at;
	at = (at + (uint64_t)n_segments[0] * sizeof(struct spr_ring_desc) + 4095) & ~4095ull;
	g->seg_at[0] = at;
	at += (uint64_t)n_segments[0] * spr_ring_class_bytes(0);
	for (uint32_t c = 1; c < SPR_RING_CLASSES; c++) {
		g->desc_at[c] = at;
		at = (at + (uint64_t)n_segments[c] * sizeof(struct spr_ring_desc) + 4095) &
		     ~4095ull;
	}
	for (uint32_t c = 1; c < SPR_RING_CLASSES; c++) {
		g->seg_at[c] = at;
		at += (uint64_t)n_segments[c] * spr_ring_class_bytes(c);
	}
	g->file_bytes = at;
	return true;
}

static inline uint32_t spr_ring_class_of(const struct spr_ring_geometry *g, uint32_t segment)
{
	uint32_t c = 0;

	while (c + 1 < SPR_RING_CLASSES && segment >= g->first[c + 1])
		c++;
	return c;
}

static inline struct spr_ring_desc *spr_ring_desc_at(const struct spr_ring_geometry *g,
                                                     uint8_t *map, uint32_t cls, uint32_t idx)
{
	return (struct spr_ring_desc *)(void *)(map + g->desc_at[cls]) + idx;
}

static inline uint8_t *spr_ring_segment_at(const struct spr_ring_geometry *g, uint8_t *map,
                                           uint32_t cls, uint32_t idx)
{
	return map + g->seg_at[cls] + (uint64_t)idx * spr_ring_class_bytes(cls);
}

static inline struct spr_ring_slot *spr_ring_slot_at(uint8_t *map, uint32_t idx)
{
	return (struct spr_ring_slot *)(void *)(map + SPR_RING_SLOTS_AT) + idx;
}

static inline _Atomic uint64_t *spr_ring_inuse_word(uint8_t *map, uint32_t segment)
{
	return (_Atomic uint64_t *)(void *)(map + SPR_RING_INUSE_AT) + segment / 64;
}

/* The smallest class whose segment holds two records of this room. */
static inline uint32_t spr_ring_class_for(uint32_t room_bytes)
{
	uint32_t c = 0;

	while (c + 1 < SPR_RING_CLASSES && 2u * room_bytes > spr_ring_class_bytes(c))
		c++;
	return c;
}

#endif /* SPR_SHM_LAYOUT_H */
