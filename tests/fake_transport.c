/* SPDX-License-Identifier: MIT */
/*
 * fake_transport.c - a transport that carries numbers. Pairs:
 *
 *   | pair | release side                        | acquire side                     | carries |
 *   | FAKE | producer: written, sealed, fence    | collector: armed, fence, written | no lost wake-up |
 *   | KEPT | who releases a batch: n_kept - 1    | collector: n_kept                | that it was read |
 *   | BELL | producer: word + 1                  | collector: word, before arming   | that a wait returns |
 */
#include "tests/fake_transport.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"

/* --- Producer ---------------------------------------------------------------------- */

static void fake_ring(struct fake_channel *f)
{
	struct fake_shared *s = f->shared;

	if (!f->mute && spr_exchange_acq_rel(&s->armed, 0)) { /* [FAKE] */
		spr_add_acq_rel(&s->word, 1); /* [BELL] */
		spr_sys_raw(SYS_futex, (long)&s->word, FUTEX_WAKE, 1, 0, 0, 0);
	}
}

void fake_commit(struct fake_channel *f, uint64_t time_ns)
{
	struct fake_shared *s = f->shared;
	const uint64_t i = spr_load_relaxed(&s->written);

	spr_store_relaxed(&s->stamps[i % FAKE_STAMPS],
	                  time_ns ? time_ns : spr_clock_now(&f->base.clock));
	spr_store_release(&s->written, i + 1); /* [FAKE] */
	spr_full_fence();
	fake_ring(f);
}

void fake_seal(struct fake_channel *f)
{
	spr_store_release(&f->shared->sealed, 1); /* [FAKE] */
	spr_full_fence();
	fake_ring(f);
}

/* --- Batches ------------------------------------------------------------------------- */

struct spr_record fake_record(const spr_batch *b, uint64_t i)
{
	const struct fake_batch *batch = (const struct fake_batch *)b;
	const struct fake_channel *f = (const struct fake_channel *)b->channel;
	const uint64_t seq = batch->first + i;
	struct spr_record rec = { .seq = seq, .writer = 1 };

	rec.time_ns = spr_load_relaxed(&f->shared->stamps[seq % FAKE_STAMPS]);
	return rec;
}

static int fake_next(spr_batch *b, struct spr_record *rec)
{
	struct fake_batch *batch = (struct fake_batch *)b;

	if (batch->at == b->n_records)
		return 0;
	*rec = fake_record(b, batch->at++);
	return 1;
}

static void fake_rewind(spr_batch *b)
{
	((struct fake_batch *)b)->at = 0;
}

static void fake_release(spr_batch *b)
{
	struct fake_channel *f = (struct fake_channel *)b->channel;
	const struct spr_bell *bell = f->base.bell;

	free(b);
	spr_add_acq_rel(&f->n_kept, (uint32_t)-1); /* [KEPT] */
	if (bell)
		bell->wake(bell->arg);
}

/* --- The collector's side --------------------------------------------------------------- */

static int fake_bind(spr_channel *ch, const struct spr_bell *bell)
{
	struct fake_channel *f = (struct fake_channel *)ch;

	f->n_binds++;
	if (bell && f->bind_err)
		return f->bind_err;
	if (!bell && spr_load_acquire(&f->n_kept)) /* [KEPT] */
		return -EBUSY;
	ch->bell = bell;
	return 0;
}

/* A kept batch is a copy, so that the one on offer can be offered again. */
static int fake_put(struct fake_channel *f, const struct spr_sink *sink, uint64_t n)
{
	struct fake_batch *b = malloc(sizeof(*b));
	int ret;

	assert(b);
	memset(b, 0, sizeof(*b));
	b->base = (struct spr_batch){ .next = fake_next, .rewind = fake_rewind,
	                              .release = fake_release, .channel = &f->base, .writer = 1,
	                              .n_records = n };
	b->first = f->delivered;
	spr_add_acq_rel(&f->n_kept, 1); /* [KEPT] */
	ret = sink->put(sink->arg, &b->base);
	if (ret == 1)
		return 1;
	spr_add_acq_rel(&f->n_kept, (uint32_t)-1); /* [KEPT] */
	free(b);
	return ret;
}

static int fake_drain(spr_channel *ch, const struct spr_sink *sink, uint64_t *n_records)
{
	struct fake_channel *f = (struct fake_channel *)ch;
	const uint64_t written = spr_load_acquire(&f->shared->written); /* [FAKE] */

	f->n_drains++;
	*n_records = 0;
	while (f->delivered < written) {
		uint64_t n = written - f->delivered;

		if (f->batch_max && n > f->batch_max)
			n = f->batch_max;
		const int ret = fake_put(f, sink, n);
		if (ret < 0)
			return ret;
		f->delivered += n;
		*n_records += n;
	}
	return f->drain_err;
}

static bool fake_arm(spr_channel *ch)
{
	struct fake_channel *f = (struct fake_channel *)ch;
	struct fake_shared *s = f->shared;

	f->n_arms++;
	ch->word_seen = spr_load_acquire(&s->word); /* [BELL] */
	spr_exchange_acq_rel(&s->armed, 1); /* [FAKE] */
	spr_full_fence();
	if (f->mute || spr_load_acquire(&s->written) == f->delivered) { /* [FAKE] */
		f->is_armed = true;
		return false;
	}
	spr_exchange_acq_rel(&s->armed, 0); /* [FAKE] */
	return true;
}

static void fake_disarm(spr_channel *ch)
{
	struct fake_channel *f = (struct fake_channel *)ch;

	assert(f->is_armed);
	f->is_armed = false;
	f->n_disarms++;
	spr_exchange_acq_rel(&f->shared->armed, 0); /* [FAKE] */
}

static uint64_t fake_tend(spr_channel *ch, uint64_t now_ns)
{
	struct fake_channel *f = (struct fake_channel *)ch;

	f->n_tends++;
	return f->tend_after_ns ? now_ns + f->tend_after_ns : UINT64_MAX;
}

static void fake_ready(spr_channel *ch, uint64_t cookie, uint32_t events)
{
	struct fake_channel *f = (struct fake_channel *)ch;

	f->n_ready++;
	f->last_cookie = cookie;
	f->last_events = events;
	if (f->on_ready)
		f->on_ready(f, cookie, events);
}

static bool fake_ended(spr_channel *ch)
{
	const struct fake_channel *f = (struct fake_channel *)ch;

	return spr_load_acquire(&f->shared->sealed) && /* [FAKE] */
	       spr_load_acquire(&f->shared->written) == f->delivered && /* [FAKE] */
	       !spr_load_acquire(&f->n_kept); /* [KEPT] */
}

static void fake_missed(spr_channel *ch)
{
	((struct fake_channel *)ch)->n_missed++;
}

static const struct spr_transport fake_transport = {
	.scheme = "fake:",
	.bind = fake_bind,
	.drain = fake_drain,
	.arm = fake_arm,
	.disarm = fake_disarm,
	.tend = fake_tend,
	.ready = fake_ready,
	.ended = fake_ended,
	.missed = fake_missed,
};

struct fake_channel *fake_open(const char *name)
{
	struct fake_channel *f = calloc(1, sizeof(*f));
	void *page;

	assert(f);
	page = mmap(NULL, sizeof(struct fake_shared), PROT_READ | PROT_WRITE,
	            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert(page != MAP_FAILED);
	f->shared = page;
	f->base.ops = &fake_transport;
	f->base.address = strdup(name);
	f->base.word = &f->shared->word;
	spr_clock_init(&f->base.clock);
	return f;
}

void fake_close(struct fake_channel *f)
{
	munmap(f->shared, sizeof(struct fake_shared));
	free(f->base.address);
	free(f);
}
