/* SPDX-License-Identifier: MIT */
/*
 * store.c - chunks and those who fill them.
 *
 * Pairs:
 *   CHUNK  a reference dropped by who encoded the records - the chunk's reuse, by the last
 *   LOAN   a reference dropped by who encoded the records - done(), called by the last
 */
#include "encoder/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_CHUNKS 4u

struct spr_slab {
	struct spr_slab *next;
	void            *map;
	size_t           n_bytes;
};

void spr_loan_give(struct spr_loan *loan)
{
	if (spr_add_acq_rel(&loan->refs, -1u) != 1) /* [LOAN] */
		return;
	loan->done(loan->arg);
	free(loan);
}

/* --- Store ------------------------------------------------------------------------------------ */

void spr_store_open(struct spr_store *s)
{
	*s = (struct spr_store){ .free_chunks = NULL };
	pthread_mutex_init(&s->lock, NULL);
}

void spr_store_close(struct spr_store *s)
{
	while (s->slabs) {
		struct spr_slab *slab = s->slabs;

		s->slabs = slab->next;
		munmap(slab->map, slab->n_bytes);
		free(slab);
	}
	pthread_mutex_destroy(&s->lock);
}

/* Under s->lock. */
static bool slab_add(struct spr_store *s)
{
	struct spr_slab *slab = malloc(sizeof(*slab));
	uintptr_t at;

	if (!slab)
		return false;
	slab->n_bytes = (SLAB_CHUNKS + 1) * (size_t)SPR_CHUNK_BYTES;
	slab->map = mmap(NULL, slab->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                 -1, 0);
	if (slab->map == MAP_FAILED) {
		free(slab);
		return false;
	}
	slab->next = s->slabs;
	s->slabs = slab;
	at = ((uintptr_t)slab->map + SPR_CHUNK_BYTES - 1) & ~(uintptr_t)(SPR_CHUNK_BYTES - 1);
	for (uint32_t i = 0; i < SLAB_CHUNKS; i++, at += SPR_CHUNK_BYTES) {
		struct spr_chunk *c = (struct spr_chunk *)at;

		c->store = s;
		c->next = s->free_chunks;
		s->free_chunks = c;
	}
	return true;
}

static struct spr_chunk *chunk_take(struct spr_store *s, struct spr_loan *loan)
{
	struct spr_chunk *c = NULL;

	pthread_mutex_lock(&s->lock);
	if (s->free_chunks || slab_add(s)) {
		c = s->free_chunks;
		s->free_chunks = c->next;
	}
	pthread_mutex_unlock(&s->lock);
	if (!c)
		return NULL;
	spr_store_relaxed(&c->refs, 1);
	c->used = (sizeof(*c) + 63) & ~63u;
	c->loan = loan;
	if (loan)
		spr_add_relaxed(&loan->refs, 1);
	return c;
}

void spr_chunk_give(struct spr_chunk *c, uint32_t n)
{
	struct spr_store *s = c->store;
	struct spr_loan *loan;

	if (spr_add_acq_rel(&c->refs, -n) != n) /* [CHUNK] */
		return;
	loan = c->loan;
	pthread_mutex_lock(&s->lock);
	c->next = s->free_chunks;
	s->free_chunks = c;
	pthread_mutex_unlock(&s->lock);
	if (loan)
		spr_loan_give(loan);
}

/* --- Filler ----------------------------------------------------------------------------------- */

/* The records of the open run get their references: until now the filler's own has held them. */
static void run_close(struct spr_filler *f)
{
	if (!f->run)
		return;
	spr_add_acq_rel(&f->chunk->refs, f->run->n); /* [CHUNK] */
	f->run = NULL;
}

static void chunk_leave(struct spr_filler *f)
{
	run_close(f);
	if (f->chunk)
		spr_chunk_give(f->chunk, 1);
	f->chunk = NULL;
	memset(f->whos, 0, sizeof(f->whos));
}

void spr_filler_begin(struct spr_filler *f, struct spr_loan *loan)
{
	if (loan || f->loan)
		chunk_leave(f); /* lent bytes go back by the chunk */
	f->loan = loan;
	f->first = f->last = f->run = NULL;
	f->n = f->n_bytes = 0;
}

static inline void *carve(struct spr_filler *f, size_t n_bytes)
{
	void *const at = (uint8_t *)f->chunk + f->chunk->used;

	f->chunk->used += (uint32_t)n_bytes;
	return at;
}

/* Room for a run, a who and a record of so many bytes, in this chunk or a new one. */
static bool room_make(struct spr_filler *f, size_t n_bytes)
{
	n_bytes += sizeof(struct spr_run) + sizeof(struct spr_who);
	if (f->chunk && f->chunk->used + n_bytes <= SPR_CHUNK_BYTES)
		return true;
	chunk_leave(f);
	f->chunk = chunk_take(f->store, f->loan);
	return f->chunk;
}

static void run_begin(struct spr_filler *f)
{
	struct spr_run *run = carve(f, sizeof(*run));

	*run = (struct spr_run){ .first = (struct spr_rec *)(void *)(run + 1) };
	if (f->last)
		f->last->next = run;
	else
		f->first = run;
	f->last = f->run = run;
}

/* Whom r is from: one known in this chunk, or a new one right behind the record. */
static void who_set(struct spr_filler *f, struct spr_rec *r, const struct spr_record *rec,
                    uint64_t writer)
{
	const struct spr_who **const at = &f->whos[writer % SPR_FILL_WHOS];
	const uint32_t has_id = rec->flags & SPR_HAS_ID ? 1 : 0;

	if (!*at || (*at)->writer != writer || (*at)->pid != rec->pid || (*at)->tid != rec->tid ||
	    (*at)->has_id != has_id) {
		struct spr_who *who = carve(f, sizeof(*who));

		*who = (struct spr_who){ writer, rec->pid, rec->tid, has_id, 0 };
		*at = who;
		r->flags |= SPR_REC_WHO;
	}
	r->who = *at;
}

int spr_filler_put(struct spr_filler *f, const struct spr_record *rec, uint16_t kind,
                   uint64_t writer)
{
	const uint32_t inside = f->loan ? 0 : (rec->bytes + 7u) & ~7u;
	struct spr_rec *r;

	if (!room_make(f, sizeof(*r) + inside))
		return -ENOMEM;
	if (!f->run)
		run_begin(f);
	else if (f->run->first->who->writer != writer)
		f->run->mixed = true;
	r = carve(f, sizeof(*r) + inside);
	*r = (struct spr_rec){ rec->data, rec->time_ns, rec->seq, NULL, rec->bytes, kind,
		                   rec->flags & SPR_LATE };
	who_set(f, r, rec, writer);
	if (!f->loan) {
		r->data = (const uint8_t *)(r + 1);
		if (rec->bytes)
			memcpy(r + 1, rec->data, rec->bytes);
	}
	f->rec = r;
	f->run->n++;
	f->run->n_bytes += rec->bytes;
	f->n++;
	f->n_bytes += rec->bytes;
	return 0;
}

void spr_filler_end(struct spr_filler *f)
{
	run_close(f);
}

void spr_filler_close(struct spr_filler *f)
{
	chunk_leave(f);
}
