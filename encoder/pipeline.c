/* SPDX-License-Identifier: MIT */
/*
 * pipeline.c - what workers do. Each job_*() is called with the lock held, drops it while it works,
 * and answers whether there was anything to do.
 */
#include "encoder/pipeline.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

#define LENT_WAIT_NS 1000000

/* --- Telling each other ----------------------------------------------------------------------- */

void spr_encoder_fail(spr_encoder *e, int err)
{
	if (e->err)
		return;
	e->err = err;
	strncpy(e->err_text, err == -ENOMEM ? "the encoder has no memory" : spr_error_text(),
	        sizeof(e->err_text) - 1);
}

bool spr_encoder_is_behind(const spr_encoder *e)
{
	return e->n_waiting > 2 * e->n_workers + 2 || e->n_flight >= e->records_most ||
	       e->n_bytes_flight >= e->bytes_most || e->head - e->tail > SPR_INPUTS - 8;
}

/* Something has been given back: whoever waits for room may look again. */
static void room_tell(spr_encoder *e)
{
	if (e->n_feeders_waiting)
		pthread_cond_broadcast(&e->room);
	if (!e->wants_wake || spr_encoder_is_behind(e))
		return;
	e->wants_wake = false;
	for (struct spr_encoder_sink *s = e->sinks; s; s = s->next) {
		if (s->collector)
			spr_collector_wake(s->collector);
	}
}

static void work_tell(spr_encoder *e)
{
	if (e->n_idle)
		pthread_cond_signal(&e->work);
}

/* --- Taking in -------------------------------------------------------------------------------- */

int spr_encoder_record_fill(const spr_encoder *e, struct spr_filler *f,
                            const struct spr_record *rec, const struct spr_kind_map *map,
                            uint64_t writer_base, uint64_t *n_malformed)
{
	uint16_t kind = rec->kind;

	if (map && kind != SPR_KIND_BLIND)
		kind = kind < map->n ? map->to[kind] : SPR_KIND_BLIND - 1;
	if ((kind > e->n_kinds && kind != SPR_KIND_BLIND) || rec->bytes > SPR_RECORD_BYTES_MAX) {
		++*n_malformed;
		return 0;
	}
	return spr_filler_put(f, rec, kind, writer_base + rec->writer);
}

static int batch_fill(const spr_encoder *e, struct spr_filler *f, struct spr_input *in)
{
	struct spr_record rec;
	int err = 0;

	while (!err && spr_batch_next(in->batch, &rec) > 0)
		err = spr_encoder_record_fill(e, f, &rec, in->map, in->writer_base,
		                              &in->n_malformed);
	return err;
}

static int array_fill(const spr_encoder *e, struct spr_filler *f, struct spr_input *in)
{
	int err = 0;

	for (uint32_t i = 0; i < in->n_recs && !err; i++)
		err = spr_encoder_record_fill(e, f, &in->recs[i], NULL, 0, &in->n_malformed);
	return err;
}

/* Without the lock. On failure what was filled so far is kept: it is given back with the rest. */
static int input_fill(const spr_encoder *e, struct spr_filler *f, struct spr_input *in, bool failed)
{
	int err = 0;

	spr_filler_begin(f, in->lend ? in->loan : NULL);
	if (!failed)
		err = in->batch ? batch_fill(e, f, in) : array_fill(e, f, in);
	spr_filler_end(f);
	if (in->lend)
		spr_filler_close(f); /* the last record of a chunk gives it back */
	if (in->batch)
		spr_batch_release(in->batch);
	if (in->loan)
		spr_loan_give(in->loan);
	if (f->first) {
		if (in->last)
			in->last->next = f->first;
		else
			in->first = f->first;
		in->last = f->last;
	}
	if (in->last)
		in->last->ends_put = true;
	return err;
}

bool spr_encoder_take_in(spr_encoder *e, struct spr_filler *f)
{
	struct spr_input *in;
	bool failed;
	int err;

	while (e->next_take < e->head &&
	       e->inputs[e->next_take % SPR_INPUTS].state != SPR_INPUT_WAITING)
		e->next_take++;
	if (e->next_take == e->head)
		return false;
	in = &e->inputs[e->next_take++ % SPR_INPUTS];
	in->state = SPR_INPUT_TAKING;
	failed = e->err;
	pthread_mutex_unlock(&e->lock);
	err = input_fill(e, f, in, failed);
	pthread_mutex_lock(&e->lock);
	if (err)
		spr_encoder_fail(e, err);
	in->n += f->n;
	e->n_flight += f->n;
	e->n_bytes_flight += f->n_bytes;
	e->n_unmerged += f->n;
	e->n_malformed += in->n_malformed;
	e->n_waiting--;
	in->state = SPR_INPUT_TAKEN;
	room_tell(e);
	return true;
}

/* --- The window ------------------------------------------------------------------------------- */

void spr_encoder_runs_give(struct spr_run *runs)
{
	while (runs) {
		struct spr_run *const run = runs;
		struct spr_chunk *const chunk = spr_chunk_of(run);

		runs = run->next;
		spr_chunk_give(chunk, run->n);
	}
}

/* The next input's records or what it asks for. */
static int input_next(spr_encoder *e)
{
	struct spr_input in;
	bool failed;

	pthread_mutex_lock(&e->lock);
	in = e->inputs[e->tail++ % SPR_INPUTS];
	e->n_unmerged -= in.n;
	e->has_lent |= in.lend;
	failed = e->err;
	pthread_mutex_unlock(&e->lock);
	if (failed) {
		spr_encoder_runs_give(in.first);
		return 0;
	}
	if (in.type == SPR_INPUT_TICK)
		return spr_window_tick(&e->window, in.until_ns);
	if (in.type == SPR_INPUT_FLUSH)
		return spr_window_flush(&e->window);
	e->runs = in.first;
	return 0;
}

/* A frame's worth from the window into the next free frame; false: nothing to cut any more. */
static bool frame_cut(spr_encoder *e)
{
	struct spr_pending_frame *const frame = &e->frames[e->cut % e->n_frames];
	const struct spr_window_item *items;

	frame->n = spr_window_next(&e->window, &items, &frame->n_bytes);
	if (!frame->n)
		return false;
	for (uint32_t i = 0; i < frame->n; i++)
		frame->recs[i] = items[i].rec;
	pthread_mutex_lock(&e->lock);
	frame->state = SPR_FRAME_CUT;
	e->cut++;
	work_tell(e);
	pthread_mutex_unlock(&e->lock);
	return true;
}

/* One step, without the lock: cut a frame, or put a put's runs into the window, or begin the next
 * input. */
static int window_step(spr_encoder *e)
{
	int err = 0;

	if (e->window.cut != SPR_CUT_NONE) {
		frame_cut(e);
		return 0;
	}
	if (!e->runs)
		return input_next(e);
	while (e->runs && e->window.cut == SPR_CUT_NONE && !err) {
		struct spr_run *const run = e->runs;

		e->runs = run->next;
		err = spr_window_add(&e->window, run);
	}
	return err;
}

static bool job_window(spr_encoder *e)
{
	int err;

	if (e->merging)
		return false;
	if (e->window.cut != SPR_CUT_NONE) {
		if (e->frames[e->cut % e->n_frames].state != SPR_FRAME_FREE)
			return false;
	} else if (!e->runs && (e->tail == e->head ||
	                        e->inputs[e->tail % SPR_INPUTS].state != SPR_INPUT_TAKEN)) {
		return false;
	}
	e->merging = true;
	pthread_mutex_unlock(&e->lock);
	err = window_step(e);
	pthread_mutex_lock(&e->lock);
	e->merging = false;
	if (err) {
		spr_encoder_fail(e, err);
		e->window.cut = SPR_CUT_NONE;
	}
	room_tell(e);
	return true;
}

/* When nothing has come for a while, lent records that wait in the window for their frame to fill
 * are copied, so that whoever lent them need not wait for that. Nothing in the output changes. */
static int lent_copy(spr_encoder *e, struct spr_filler *f)
{
	struct spr_window *const w = &e->window;
	int err = spr_window_merge(w);

	spr_filler_begin(f, NULL);
	for (size_t i = w->at; i < w->n && !err; i++) {
		const struct spr_rec *const r = w->items[i].rec;
		struct spr_chunk *const chunk = spr_chunk_of(r);
		const struct spr_record rec = {
			.data = r->data,
			.bytes = r->bytes,
			.time_ns = r->time_ns,
			.seq = r->seq,
			.pid = r->who->pid,
			.tid = r->who->tid,
			.flags = (uint16_t)((r->flags & SPR_LATE) |
			                    (r->who->has_id ? SPR_HAS_ID : 0)),
		};

		if (!chunk->loan)
			continue;
		err = spr_filler_put(f, &rec, r->kind, r->who->writer);
		if (!err) {
			w->items[i].rec = f->rec;
			spr_chunk_give(chunk, 1);
		}
	}
	spr_filler_end(f);
	return err;
}

static void job_lent(spr_encoder *e, struct spr_filler *f)
{
	int err;

	if (!e->has_lent || e->merging || e->window.cut != SPR_CUT_NONE || e->runs)
		return;
	e->has_lent = false;
	e->merging = true;
	pthread_mutex_unlock(&e->lock);
	err = lent_copy(e, f);
	pthread_mutex_lock(&e->lock);
	e->merging = false;
	if (err)
		spr_encoder_fail(e, err);
}

/* --- Encoding --------------------------------------------------------------------------------- */

/* The frame's records are not needed any more: references go back a chunk at a time. */
static void recs_give(const struct spr_rec *const *recs, uint32_t n)
{
	struct {
		struct spr_chunk *chunk;
		uint32_t          n;
	} held[16] = { { NULL, 0 } };

	for (uint32_t i = 0; i < n; i++) {
		struct spr_chunk *const c = spr_chunk_of(recs[i]);
		const size_t at = (uintptr_t)c / SPR_CHUNK_BYTES % 16;

		if (held[at].chunk != c) {
			if (held[at].n)
				spr_chunk_give(held[at].chunk, held[at].n);
			held[at].chunk = c;
			held[at].n = 0;
		}
		held[at].n++;
	}
	for (size_t at = 0; at < 16; at++) {
		if (held[at].n)
			spr_chunk_give(held[at].chunk, held[at].n);
	}
}

static bool job_encode(spr_encoder *e, struct spr_worker *worker)
{
	struct spr_pending_frame *frame;
	bool failed;
	int err = 0;

	if (e->encode == e->cut)
		return false;
	frame = &e->frames[e->encode++ % e->n_frames];
	frame->state = SPR_FRAME_ENCODING;
	failed = e->err;
	pthread_mutex_unlock(&e->lock);
	if (!failed)
		err = e->form->frame(worker->form, frame->recs, frame->n, &frame->out);
	recs_give(frame->recs, frame->n);
	pthread_mutex_lock(&e->lock);
	if (err)
		spr_encoder_fail(e, err);
	e->n_flight -= frame->n;
	e->n_bytes_flight -= frame->n_bytes;
	e->n_malformed += failed || err ? 0 : frame->out.n_malformed;
	frame->state = SPR_FRAME_ENCODED;
	room_tell(e);
	return true;
}

static bool job_write(spr_encoder *e)
{
	struct spr_pending_frame *const frame = &e->frames[e->written % e->n_frames];
	int err = 0;

	if (e->writing || e->written == e->cut || frame->state != SPR_FRAME_ENCODED)
		return false;
	e->writing = true;
	if (!e->err) {
		pthread_mutex_unlock(&e->lock);
		err = spr_encoder_frame_write(e, frame);
		pthread_mutex_lock(&e->lock);
	}
	if (err)
		spr_encoder_fail(e, err);
	e->writing = false;
	e->written++;
	frame->state = SPR_FRAME_FREE;
	room_tell(e);
	return true;
}

/* Until there is work, or nothing has come for a while: then lent records are to be copied. */
static void work_wait(spr_encoder *e, struct spr_filler *f)
{
	struct timespec until;

	e->n_idle++;
	if (!e->has_lent) {
		pthread_cond_wait(&e->work, &e->lock);
		e->n_idle--;
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += LENT_WAIT_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	const int err = pthread_cond_timedwait(&e->work, &e->lock, &until);

	e->n_idle--;
	if (err == ETIMEDOUT)
		job_lent(e, f);
}

void *spr_encoder_worker_main(void *arg)
{
	struct spr_worker *const self = arg;
	spr_encoder *const e = self->encoder;

	pthread_mutex_lock(&e->lock);
	for (;;) {
		if (spr_encoder_take_in(e, &self->filler) || job_write(e) || job_window(e) ||
		    job_encode(e, self))
			continue;
		if (e->stop)
			break;
		work_wait(e, &self->filler);
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}
