/* SPDX-License-Identifier: MIT */
/*
 * store.h - where records wait between put and their frame: chunks of private memory, filled by one
 * thread, given back by whoever encodes the last record in them, reused without the allocator.
 *
 *   chunk: | head | run, records (each padded to 8, a new who behind its first) | run, ... |
 *
 * A run is a row of records in one chunk, in the order they were put.
 */
#ifndef SPR_ENCODER_STORE_H
#define SPR_ENCODER_STORE_H

#include <pthread.h>

#include <sparring/sparring.h>

#include "base/atomic.h"
#include "encoder/record.h"

#define SPR_CHUNK_BYTES (256u << 10)

/* Records lent by spr_encoder_put(): `done` is called when nothing refers to them any more. */
struct spr_loan {
	_Atomic uint32_t refs;
	void (*done)(void *arg);
	void *arg;
};
void spr_loan_give(struct spr_loan *loan);

struct spr_store;
struct spr_chunk {
	/* One for who fills it, one for each record in it not yet encoded. */
	_Atomic uint32_t  refs;
	uint32_t          used;
	struct spr_loan  *loan; /* its records' bytes are lent; NULL: they are here */
	struct spr_store *store;
	struct spr_chunk *next; /* in the store's list of free ones */
};

struct spr_slab;
struct spr_store {
	pthread_mutex_t   lock;
	struct spr_chunk *free_chunks; /* under lock */
	struct spr_slab  *slabs;       /* under lock */
};

void spr_store_open(struct spr_store *s);
void spr_store_close(struct spr_store *s);
/* Drop n references; the last one gives the chunk back. T: any. */
void spr_chunk_give(struct spr_chunk *c, uint32_t n);

static inline struct spr_chunk *spr_chunk_of(const void *in_it)
{
	return (struct spr_chunk *)((uintptr_t)in_it & ~(uintptr_t)(SPR_CHUNK_BYTES - 1));
}

struct spr_run {
	struct spr_run *next;
	struct spr_rec *first;
	uint64_t        n_bytes; /* of the records, as put */
	uint32_t        n;
	bool            ends_put; /* the last run of its put */
	bool            mixed;    /* of more than one writer */
};

/* The record behind this one in its run. */
static inline struct spr_rec *spr_rec_after(struct spr_rec *r)
{
	const uint8_t *const inside = (const uint8_t *)(r + 1);

	const uint8_t *const behind = inside + (r->data == inside ? (r->bytes + 7u) & ~7u : 0);

	return (struct spr_rec *)(uintptr_t)(behind +
	                                     (r->flags & SPR_REC_WHO ? sizeof(struct spr_who) : 0));
}

#define SPR_FILL_WHOS 16u

/* Fills chunks: one for each thread. */
struct spr_filler {
	struct spr_store *store;
	struct spr_chunk *chunk;
	struct spr_loan  *loan;
	struct spr_run   *run, *first, *last; /* of the part being filled */
	const struct spr_who *whos[SPR_FILL_WHOS]; /* in this chunk; by writer */
	struct spr_rec   *rec;        /* the last one put */
	uint64_t          n, n_bytes; /* of the part */
};

/* A part begins: runs are gathered in f->first. loan: the records' bytes stay where they are. */
void spr_filler_begin(struct spr_filler *f, struct spr_loan *loan);
/* kind and writer stand in for rec's own. -ENOMEM. */
int spr_filler_put(struct spr_filler *f, const struct spr_record *rec, uint16_t kind,
                   uint64_t writer);
/* Ends the part: f->first to f->last (NULL: no records) may be handed on. */
void spr_filler_end(struct spr_filler *f);
/* Lets go of the chunk; at the thread's end. */
void spr_filler_close(struct spr_filler *f);

#endif /* SPR_ENCODER_STORE_H */
