/* SPDX-License-Identifier: MIT */
/*
 * writer_thread.c - which writer is this thread's, and what becomes of it when the thread ends.
 *
 * Identity is an initial-exec TLS pointer: no lock, no allocation, no dynamic TLS, good in signal
 * handlers. A vfork child shares it with its parent, and must leave everything as it found it.
 */
#include <pthread.h>
#include <signal.h>

#include "shm/writer.h"

struct tls_entry {
	spr_writer *writer;
	uint32_t serial; /* of the attach it belongs to */
};
static __thread struct tls_entry tls_entries[SPR_PRODUCERS_MAX]
	__attribute__((tls_model("initial-exec")));

extern struct spr_producer spr_shm_producers[SPR_PRODUCERS_MAX];

static pthread_key_t thread_key;
static _Atomic uint32_t thread_key_state; /* 0 none, 1 being made, 2 usable, 3 not usable */

static uint32_t pid_now(void)
{
	return (uint32_t)spr_sys(SYS_getpid);
}

/* --- Writers of dead threads --------------------------------------------------------------- */

static void writer_close(spr_producer *p, spr_writer *w)
{
	uint32_t taken;

	for (uint32_t i = 0; i < SPR_LANES; i++)
		spr_shm_lane_close(p, &w->lanes[i]);
	memset(w->lanes, 0, sizeof(w->lanes));
	w->producer = NULL;
	spr_store_relaxed(&w->tid, 0);
	taken = spr_load_relaxed(&w->state) & ~3u;
	spr_store_release(&w->state, taken | SPR_WRITER_FREE); /* [WRITER] */
}

/* Take it to be closed, if it still is what `seen` says. Exactly one does. */
static bool writer_seize(spr_writer *w, uint32_t seen)
{
	return (seen & 3u) == SPR_WRITER_USED &&
	       spr_cas_acq_rel(&w->state, &seen, (seen & ~3u) | SPR_WRITER_REAPED); /* [WRITER] */
}

/* Take a free one; the count above the state tells this taking from every other. */
static bool writer_occupy(struct spr_area *area, spr_writer *w, uint32_t idx)
{
	uint32_t seen = spr_load_relaxed(&w->state);
	uint32_t n = spr_load_relaxed(&area->n_used);

	if ((seen & 3u) != SPR_WRITER_FREE ||
	    !spr_cas_acq_rel(&w->state, &seen, (seen + 4u) | SPR_WRITER_USED)) /* [WRITER] */
		return false;
	while (n < idx + 1 && !spr_cas_relaxed(&area->n_used, &n, idx + 1))
		;
	return true;
}

/* Look at up to n other writers; close those whose thread is gone. Not in a vfork child, for which
 * every thread of its parent is another process's. */
static void writers_sweep(spr_producer *p, uint32_t n)
{
	struct spr_area *area = p->area;
	const uint32_t n_used = spr_load_relaxed(&area->n_used);

	if (spr_load_relaxed(&p->confined) || n_used < 2 ||
	    pid_now() != area->pid) /* NOLINT(clang-analyzer-core.NullDereference) */
		return;
	for (uint32_t i = 0; i < n && i < n_used; i++) {
		const uint32_t idx = spr_add_relaxed(&area->sweep, 1) % n_used;
		spr_writer *w = spr_shm_area_writer(p, idx);
		const uint32_t seen = spr_load_acquire(&w->state); /* [WRITER] before tid */
		const uint32_t tid = spr_load_relaxed(&w->tid);

		if ((seen & 3u) != SPR_WRITER_USED || !tid)
			continue;
		if (spr_sys(SYS_tgkill, area->pid, tid, 0) == -ESRCH && writer_seize(w, seen))
			writer_close(p, w);
	}
}

static void thread_ends(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < SPR_PRODUCERS_MAX; i++) {
		if (spr_load_acquire(&spr_shm_producers[i].used) == 2) /* [PRODUCER] */
			spr_shm_writer_end(&spr_shm_producers[i]);
	}
}

/* The key's destructor spares the sweep. Only a low key: from 32 on pthread_setspecific() of glibc
 * allocates, and a writer may be made in a signal handler or a malloc hook. */
int spr_shm_thread_key_make(void)
{
	uint32_t none = 0;

	if (!spr_cas_acq_rel(&thread_key_state, &none, 1)) /* [KEY] */
		return 0;
	if (pthread_key_create(&thread_key, thread_ends)) {
		spr_store_release(&thread_key_state, 3); /* [KEY] */
		return 0;
	}
	if (thread_key >= 32) {
		pthread_key_delete(thread_key);
		spr_store_release(&thread_key_state, 3); /* [KEY] */
		return 0;
	}
	spr_store_release(&thread_key_state, 2); /* [KEY] */
	return 0;
}

/* --- Making one --------------------------------------------------------------------------- */

static spr_writer *writer_take(spr_producer *p)
{
	for (uint32_t i = 0; i < p->n_writers; i++) {
		spr_writer *w = spr_shm_area_writer(p, i);

		if (writer_occupy(p->area, w, i))
			return w;
	}
	return NULL;
}

static void writer_fill(spr_producer *p, spr_writer *w)
{
	uint32_t tid = 0;

	w->gate = &p->header->gate;
	w->flags = p->ring_flags & SPR_RING_UNSTAMPED ? 0 : SPR_WRITER_STAMPED;
	if (p->fence || (p->ring_flags & SPR_RING_FENCE) || spr_load_relaxed(&p->confined))
		w->flags |= SPR_WRITER_FENCE;
	w->record_bytes_max = p->record_bytes_max;
	w->pid = p->area->pid;
	if (!spr_load_relaxed(&p->confined))
		tid = (uint32_t)spr_sys(SYS_gettid);
	/* A vfork child makes it for its parent's thread, whose id it cannot know. */
	if (tid && tid != p->area->pid && pid_now() != p->area->pid)
		tid = 0;
	spr_store_relaxed(&w->tid, tid);
	spr_compiler_barrier(); /* last: a handler that finds it set finds all of it */
	w->producer = p;
}

/* Is the process's own registration done? A fork child does it here, at its first record. */
static bool process_ready(spr_producer *p)
{
	_Atomic uint32_t *state = &p->area->state;
	uint32_t found = 0;

	for (uint32_t i = 0; i < 1000; i++) {
		found = spr_load_acquire(state); /* [PROCESS] */
		if (found >= 2)
			return found == 2;
		if (found == 0) {
			if (spr_cas_acq_rel(state, &found, 1)) { /* [PROCESS] */
				const int err = spr_shm_process_register(p);

				spr_store_release(state, err ? 3 : 2); /* [PROCESS] */
				return !err;
			}
			continue;
		}
		/* Another thread is at it; or we are, in a handler: then this never ends. */
		if (spr_load_relaxed(&p->confined))
			return false;
		spr_sys(SYS_sched_yield);
	}
	return false;
}

static spr_writer *writer_make(spr_producer *p)
{
	struct tls_entry *tls = &tls_entries[p->index];
	spr_writer *w;

	if (!process_ready(p))
		return &p->mute;
	writers_sweep(p, 2);
	w = writer_take(p);
	if (!w) {
		writers_sweep(p, p->n_writers);
		w = writer_take(p);
	}
	if (!w)
		return &p->mute;
	writer_fill(p, w);
	if (tls->writer && tls->serial == p->serial && tls->writer->producer) {
		/* A handler was quicker; its writer serves both. */
		writer_close(p, w);
		return tls->writer;
	}
	tls->serial = p->serial;
	spr_compiler_barrier();
	tls->writer = w;
	if (spr_load_acquire(&thread_key_state) == 2) /* [KEY] */
		pthread_setspecific(thread_key, spr_shm_producers);
	return w;
}

spr_writer *spr_shm_writer_here(spr_producer *p)
{
	const struct tls_entry *tls = &tls_entries[p->index];
	spr_writer *w = tls->writer;

	if (spr_likely(w && tls->serial == p->serial && w->producer == p))
		return w;
	return writer_make(p);
}

/* w's memory reads "no writer": a forked child uses its parent's pointer. Good for the thread that
 * forked, if it gets the same place again; else the record is counted as lost. NULL: counted. */
spr_writer *spr_shm_writer_revive(spr_writer *w)
{
	for (uint32_t i = 0; i < SPR_PRODUCERS_MAX; i++) {
		spr_producer *p = &spr_shm_producers[i];
		const uint8_t *area;

		if (spr_load_acquire(&p->used) != 2) /* [PRODUCER] */
			continue;
		area = (const uint8_t *)p->area;
		if (w != &p->mute && ((uintptr_t)w < (uintptr_t)area ||
		                      (uintptr_t)w >= (uintptr_t)area + p->area_bytes))
			continue;
		if (w != &p->mute && tls_entries[i].writer == w && process_ready(p)) {
			const uint32_t idx = (uint32_t)(w - spr_shm_area_writer(p, 0));

			if (writer_occupy(p->area, w, idx)) {
				writer_fill(p, w);
				return w;
			}
		}
		spr_add_relaxed(&p->header->lost_homeless, 1);
		return NULL;
	}
	return NULL;
}

/* This thread writes no more. The TLS pointer goes first: a handler that comes late makes a new
 * writer instead of writing into a segment that has been given back. */
void spr_shm_writer_end(spr_producer *p)
{
	struct tls_entry *tls = &tls_entries[p->index];
	spr_writer *w = tls->writer;

	if (!w || tls->serial != p->serial)
		return;
	tls->writer = NULL;
	spr_compiler_barrier();
	if (w->producer == p && writer_seize(w, spr_load_relaxed(&w->state)))
		writer_close(p, w);
}

void spr_shm_writer_close_all(spr_producer *p)
{
	const uint32_t n = spr_load_relaxed(&p->area->n_used);

	for (uint32_t i = 0; i < n; i++) {
		spr_writer *w = spr_shm_area_writer(p, i);

		if (writer_seize(w, spr_load_acquire(&w->state))) /* [WRITER] */
			writer_close(p, w);
	}
}
