/* SPDX-License-Identifier: MIT */
/*
 * encoder.c - the encoder's public side: open, the feeder's calls, close.
 *
 * Memory, at most, with w workers, f = frame_records, b = max(frame_bytes, 64 KiB), and p the bytes
 * of what one put brings (a batch, or 16,384 records):
 *   records   (w + 3) frames, each min(f x (64 + mean record), f x 64 + b), + (2w + 3) x p
 *   frames    (w + 2) x (8 f + one compressed frame)
 *   workers   w x (46 f + b + content + its compressed bound + zstd's context at that level)
 * A frame's content is about its records' bytes; docs/format.md has the hard limit.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "base/error.h"
#include "base/kinds.h"
#include "base/options.h"
#include "base/place.h"
#include "base/sys.h"
#include "encoder/pipeline.h"

#define STACK_BYTES     (512u << 10)
#define RECORDS_DEFAULT 65536u
#define BYTES_DEFAULT   (8u << 20)

/* --- Open ------------------------------------------------------------------------------------- */

static int form_find(const struct spr_form **out, const char *name)
{
	*out = &spr_form_spr;
	if (!name || !strcmp(name, spr_form_spr.name))
		return 0;
	if (!strcmp(name, "memtrack"))
		return spr_fail(-ENOTSUP,
		                "format memtrack is not built into this version; \"spr\" is");
	return spr_fail(-EINVAL, "there is no format \"%s\"; there is \"spr\"", name);
}

static int options_check(struct spr_encoder_options *o)
{
	if (o->flags & ~SPR_GIVEN_ORDER)
		return spr_fail(-EINVAL, "encoder: unknown flags %#x", o->flags & ~SPR_GIVEN_ORDER);
	if (!o->write && o->fd <= 0)
		return spr_fail(-EINVAL, "encoder: neither a descriptor nor a write function");
	if (!o->frame_records)
		o->frame_records = RECORDS_DEFAULT;
	if (!o->frame_bytes)
		o->frame_bytes = BYTES_DEFAULT;
	if (o->frame_records > SPR_FRAME_RECORDS_MAX || o->frame_bytes > SPR_FRAME_BYTES_MAX)
		return spr_fail(-EINVAL, "encoder: a frame has at most %u records and %u bytes",
		                SPR_FRAME_RECORDS_MAX, SPR_FRAME_BYTES_MAX);
	if (o->workers > SPR_WORKERS_MAX)
		return spr_fail(-EINVAL, "encoder: at most %u workers", SPR_WORKERS_MAX);
	if (o->level < ZSTD_minCLevel() || o->level > ZSTD_maxCLevel())
		return spr_fail(-EINVAL, "encoder: zstd has no level %d", o->level);
	return spr_kinds_check(o->kinds, o->n_kinds);
}

static uint32_t workers_default(void)
{
	const long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n <= 2 ? 1 : n > 64 ? 64 : (uint32_t)n - 1;
}

/* Our own copy of the declaration, in one block. */
static int kinds_copy(spr_encoder *e, const struct spr_encoder_options *o)
{
	const size_t n = spr_kinds_encode(NULL, 0, o->kinds, o->n_kinds);
	void *bytes = malloc(n);
	int err;

	if (!bytes)
		return -ENOMEM;
	spr_kinds_encode(bytes, n, o->kinds, o->n_kinds);
	err = spr_kinds_decode(&e->kinds, &e->n_kinds, bytes, n);
	free(bytes);
	return err;
}

static int frames_open(spr_encoder *e)
{
	e->n_frames = e->n_workers + 2;
	e->frames = calloc(e->n_frames, sizeof(*e->frames));
	e->kind_totals = calloc(e->n_kinds + 2, sizeof(*e->kind_totals));
	if (!e->frames || !e->kind_totals)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->n_frames; i++) {
		struct spr_pending_frame *f = &e->frames[i];

		f->recs = malloc(e->frame_records * sizeof(struct spr_rec *));
		f->out.kinds = malloc((e->n_kinds + 2) * sizeof(*f->out.kinds));
		if (!f->recs || !f->out.kinds)
			return -ENOMEM;
	}
	return 0;
}

static int workers_open(spr_encoder *e, int level)
{
	e->workers = calloc(e->n_workers, sizeof(*e->workers));
	if (!e->workers)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->n_workers; i++) {
		struct spr_worker *w = &e->workers[i];
		const int err = e->form->worker_open(&w->form, e->kinds, e->n_kinds,
		                                     e->frame_records, level);

		w->encoder = e;
		w->filler.store = &e->store;
		if (err)
			return err;
	}
	return 0;
}

/* Threads with every signal blocked. Fewer than asked for will do. */
static int threads_open(spr_encoder *e)
{
	pthread_attr_t attr;
	sigset_t all, before;
	uint32_t n = 0;
	int err = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (; n < e->n_workers && !err; n += !err)
		err = -pthread_create(&e->workers[n].thread, &attr, spr_encoder_worker_main,
		                      &e->workers[n]);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	for (uint32_t i = n; i < e->n_workers; i++)
		e->form->worker_close(e->workers[i].form);
	pthread_mutex_lock(&e->lock);
	e->n_workers = n;
	pthread_mutex_unlock(&e->lock);
	return n ? 0 : spr_fail_sys(err, "encoder: no thread can be started");
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whoever follows the file while it grows sees by this lock that we live. */
static void owner_lock(const spr_encoder *e, short type)
{
	const struct flock l = { .l_type = type, .l_whence = SEEK_SET,
		                     .l_start = (off_t)SPR_PLACE_OWNER_BYTE, .l_len = 1 };

	if (!e->write)
		spr_sys(SYS_fcntl, e->fd, F_OFD_SETLK, &l);
}

static int parts_open(spr_encoder *e, const struct spr_encoder_options *o)
{
	struct spr_format_header h = {
		.flags = o->flags, .frame_records = e->frame_records, .frame_bytes = e->frame_bytes,
		.start_ns = now_ns(CLOCK_MONOTONIC), .start_unix_ns = now_ns(CLOCK_REALTIME),
	};
	uint32_t n_fields = 4;
	int err = kinds_copy(e, o);

	if (!err)
		err = frames_open(e);
	if (!err)
		err = workers_open(e, o->level ? o->level : e->form->level);
	if (err)
		return err;
	for (uint32_t i = 0; i < e->n_kinds; i++)
		n_fields += e->kinds[i].n_fields + 1;
	h.content_bytes_max = (uint32_t)spr_format_content_max(e->frame_records, e->frame_bytes,
	                                                       n_fields);
	owner_lock(e, F_WRLCK);
	err = spr_encoder_begin_write(e, &h);
	return err ? err : threads_open(e);
}

static void maps_release(struct spr_encoder_sink *s)
{
	while (s->maps) {
		struct spr_kind_map *m = s->maps;

		s->maps = m->next;
		free(m);
	}
}

static void encoder_release(spr_encoder *e)
{
	for (uint32_t i = 0; e->workers && i < e->n_workers; i++) {
		spr_filler_close(&e->workers[i].filler);
		e->form->worker_close(e->workers[i].form);
	}
	for (uint32_t i = 0; e->frames && i < e->n_frames; i++) {
		free(e->frames[i].recs);
		free(e->frames[i].out.kinds);
		spr_vec_release(&e->frames[i].out.bytes);
	}
	while (e->sinks) {
		struct spr_encoder_sink *s = e->sinks;

		e->sinks = s->next;
		maps_release(s);
		free(s);
	}
	spr_filler_close(&e->feeder);
	/* After an error the window still holds records, and they lent bytes. */
	for (size_t i = e->window.at; i < e->window.n; i++)
		spr_chunk_give(spr_chunk_of(e->window.items[i].rec), 1);
	spr_encoder_runs_give(e->window.runs);
	spr_encoder_runs_give(e->runs);
	spr_window_close(&e->window);
	spr_store_close(&e->store);
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->work);
	pthread_cond_destroy(&e->room);
	free(e->kinds);
	free(e->frames);
	free(e->kind_totals);
	free(e->entries);
	free(e->workers);
	free(e);
}

SPR_API int spr_encoder_open(spr_encoder **out, const struct spr_encoder_options *opt)
{
	struct spr_encoder_options o;
	const struct spr_form *form;
	pthread_condattr_t monotonic;
	spr_encoder *e;
	int err;

	spr_fail_clear();
	err = spr_options_read(&o, sizeof(o), opt);
	if (!err)
		err = form_find(&form, o.format);
	if (!err)
		err = options_check(&o);
	if (err)
		return err;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&e->work, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_cond_init(&e->room, NULL);
	spr_store_open(&e->store);
	e->feeder.store = &e->store;
	e->form = form;
	e->n_workers = o.workers ? o.workers : workers_default();
	e->frame_records = o.frame_records;
	e->frame_bytes = o.frame_bytes;
	e->records_most = (e->n_workers + 3ull) * o.frame_records;
	e->bytes_most = (e->n_workers + 3ull) * (o.frame_bytes > SPR_RECORD_BYTES_MAX
	                                                 ? o.frame_bytes
	                                                 : SPR_RECORD_BYTES_MAX);
	e->window.given_order = o.flags & SPR_GIVEN_ORDER;
	e->window.frame_records = o.frame_records;
	e->window.frame_bytes = o.frame_bytes;
	e->fd = o.fd;
	e->write = o.write;
	e->arg = o.arg;
	err = parts_open(e, &o);
	if (err) {
		encoder_release(e);
		return err;
	}
	*out = e;
	return 0;
}

/* --- The feeder's calls ----------------------------------------------------------------------- */

/* Under lock: the error again, in the caller's thread. */
static int error_of(const spr_encoder *e)
{
	return e->err ? spr_fail(e->err, "%s", e->err_text) : 0;
}

/* Under lock. */
static void room_wait(spr_encoder *e)
{
	e->n_feeders_waiting++;
	if (e->n_idle)
		pthread_cond_broadcast(&e->work);
	pthread_cond_wait(&e->room, &e->lock);
	e->n_feeders_waiting--;
}

/* Under lock; there is room. Small things wake nobody: a worker that is awake finds them, and much
 * of them is worth a wake. */
static void input_push(spr_encoder *e, const struct spr_input *in)
{
	e->inputs[e->head++ % SPR_INPUTS] = *in;
	e->n_waiting += in->state == SPR_INPUT_WAITING;
	e->n_unmerged += in->n;
	e->n_flight += in->n;
	e->n_bytes_flight += in->n_bytes;
	e->n_malformed += in->state == SPR_INPUT_TAKEN ? in->n_malformed : 0;
	if (e->n_idle &&
	    (in->state == SPR_INPUT_WAITING || in->type == SPR_INPUT_FLUSH ||
	     e->n_unmerged >= e->frame_records / 2 || e->head - e->tail >= SPR_INPUTS / 2))
		pthread_cond_signal(&e->work);
}

/* What the feeder's own filler has gathered, as an input. */
static struct spr_input feeder_input(spr_encoder *e)
{
	struct spr_input in = { .type = SPR_INPUT_RECORDS, .state = SPR_INPUT_TAKEN };

	spr_filler_end(&e->feeder);
	in.first = e->feeder.first;
	in.last = e->feeder.last;
	in.n = e->feeder.n;
	in.n_bytes = e->feeder.n_bytes;
	return in;
}

/* Up to SPR_PART_RECORDS records of a put. */
static int part_put(spr_encoder *e, const struct spr_record *recs, uint32_t n,
                    struct spr_loan *loan, bool lend)
{
	struct spr_input in = { .type = SPR_INPUT_RECORDS, .state = SPR_INPUT_WAITING };
	uint64_t n_malformed = 0;
	int err;

	pthread_mutex_lock(&e->lock);
	while (spr_encoder_is_behind(e) && !e->err)
		room_wait(e);
	err = error_of(e);
	if (!err && loan) {
		in.recs = recs;
		in.n_recs = n;
		in.loan = loan;
		in.lend = lend;
		spr_add_relaxed(&loan->refs, 1);
		input_push(e, &in);
	}
	pthread_mutex_unlock(&e->lock);
	if (err || loan)
		return err;
	spr_filler_begin(&e->feeder, NULL);
	for (uint32_t i = 0; i < n && !err; i++)
		err = spr_encoder_record_fill(e, &e->feeder, &recs[i], NULL, 0, &n_malformed);
	in = feeder_input(e);
	in.n_malformed = n_malformed;
	if (in.last)
		in.last->ends_put = true;
	pthread_mutex_lock(&e->lock);
	if (err)
		spr_encoder_fail(e, err);
	input_push(e, &in);
	err = error_of(e);
	pthread_mutex_unlock(&e->lock);
	return err;
}

SPR_API int spr_encoder_put(spr_encoder *e, const struct spr_record *recs, size_t n,
                            void (*done)(void *arg), void *arg)
{
	struct spr_loan *loan = NULL;
	int err = 0;

	if (done) {
		loan = malloc(sizeof(*loan));
		if (!loan) {
			done(arg);
			return -ENOMEM;
		}
		*loan = (struct spr_loan){ .refs = 1, .done = done, .arg = arg };
	}
	for (size_t at = 0; at < n && !err; at += SPR_PART_RECORDS) {
		const size_t left = n - at;

		err = part_put(e, recs + at,
		               left < SPR_PART_RECORDS ? (uint32_t)left : SPR_PART_RECORDS, loan,
		               loan && n >= SPR_LEND_LEAST);
	}
	if (loan)
		spr_loan_give(loan);
	return err;
}

SPR_API int spr_encoder_tick(spr_encoder *e, uint64_t until_ns)
{
	const struct spr_input in = { .type = SPR_INPUT_TICK,
		                      .state = SPR_INPUT_TAKEN,
		                      .until_ns = until_ns };
	int err;

	pthread_mutex_lock(&e->lock);
	/* Batches are given back by the next tick: what no worker has begun is taken in here. */
	while (spr_encoder_take_in(e, &e->feeder))
		;
	while (e->n_waiting || e->head - e->tail == SPR_INPUTS)
		room_wait(e);
	input_push(e, &in);
	err = error_of(e);
	pthread_mutex_unlock(&e->lock);
	return err;
}

/* Under lock: everything put so far, and every frame that has been cut. */
static void all_wait(spr_encoder *e)
{
	while (e->tail != e->head || e->merging || e->runs || e->window.cut != SPR_CUT_NONE ||
	       e->written != e->cut)
		room_wait(e);
}

static void flush(spr_encoder *e)
{
	const struct spr_input in = { .type = SPR_INPUT_FLUSH, .state = SPR_INPUT_TAKEN };

	while (e->head - e->tail == SPR_INPUTS)
		room_wait(e);
	input_push(e, &in);
	all_wait(e);
}

SPR_API int spr_encoder_sync(spr_encoder *e)
{
	int err;

	pthread_mutex_lock(&e->lock);
	flush(e);
	err = error_of(e);
	pthread_mutex_unlock(&e->lock);
	return err;
}

/* --- As a sink -------------------------------------------------------------------------------- */

static struct spr_kind_map *map_find(const struct spr_encoder_sink *s, const spr_channel *ch)
{
	struct spr_kind_map *m = s->maps;

	while (m && m->channel != ch)
		m = m->next;
	return m;
}

/* Which of the trace's kinds each of the channel's is. */
static int map_make(struct spr_encoder_sink *s, const spr_channel *ch)
{
	const spr_encoder *e = s->encoder;
	struct spr_kind_map *m;
	const struct spr_kind *kinds;
	uint32_t n = 0;

	kinds = spr_channel_kinds(ch, &n);
	m = calloc(1, sizeof(*m) + (n + 1) * sizeof(m->to[0]));
	if (!m)
		return -ENOMEM;
	m->channel = ch;
	m->n = n + 1;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t to = 0;

		while (to < e->n_kinds && strcmp(e->kinds[to].name, kinds[i].name))
			to++;
		if (to == e->n_kinds || !spr_kinds_alike(&e->kinds[to], &kinds[i])) {
			free(m);
			return spr_fail(-EINVAL,
			                "encoder: the channel's kind %s is %s in the trace",
			                kinds[i].name,
			                to == e->n_kinds ? "not declared" : "declared otherwise");
		}
		m->to[i + 1] = (uint16_t)(to + 1);
	}
	m->next = s->maps;
	s->maps = m;
	return 0;
}

static int room_check(struct spr_encoder_sink *s)
{
	spr_encoder *const e = s->encoder;
	int err;

	pthread_mutex_lock(&e->lock);
	err = error_of(e);
	if (!err && spr_encoder_is_behind(e)) {
		e->wants_wake = true;
		if (e->n_idle)
			pthread_cond_broadcast(&e->work);
		err = -EAGAIN;
	}
	pthread_mutex_unlock(&e->lock);
	return err;
}

/* A small batch is copied here and now, which costs less than to wake somebody for it; of a larger
 * one the beginning. */
static int sink_put(void *arg, spr_batch *b)
{
	struct spr_encoder_sink *const s = arg;
	spr_encoder *const e = s->encoder;
	const spr_channel *const ch = spr_batch_channel(b);
	const struct spr_kind_map *map;
	struct spr_input in;
	struct spr_record rec;
	uint64_t n_malformed = 0;
	int got = 1, err = room_check(s);

	if (!err && !map_find(s, ch))
		err = map_make(s, ch);
	if (err)
		return err;
	map = map_find(s, ch);
	spr_filler_begin(&e->feeder, NULL);
	for (uint32_t i = 0; i < SPR_INLINE_MOST && !err; i++) {
		got = spr_batch_next(b, &rec);
		if (got <= 0)
			break;
		err = spr_encoder_record_fill(e, &e->feeder, &rec, map, s->writer_base,
		                              &n_malformed);
	}
	in = feeder_input(e);
	in.n_malformed = n_malformed;
	if (got > 0 && !err) {
		in.state = SPR_INPUT_WAITING;
		in.batch = b;
		in.map = map;
		in.writer_base = s->writer_base;
	} else if (in.last) {
		in.last->ends_put = true;
	}
	pthread_mutex_lock(&e->lock);
	if (err)
		spr_encoder_fail(e, err);
	input_push(e, &in);
	err = error_of(e);
	pthread_mutex_unlock(&e->lock);
	if (in.state == SPR_INPUT_WAITING)
		return 1; /* an error is told at the next put: this batch is kept */
	return err ? err : got < 0 ? got : 0;
}

static int sink_tick(void *arg, uint64_t until_ns)
{
	return spr_encoder_tick(((struct spr_encoder_sink *)arg)->encoder, until_ns);
}

static int sink_gone(void *arg, uint64_t writer, uint64_t written, uint64_t lost)
{
	spr_encoder *const e = ((struct spr_encoder_sink *)arg)->encoder;

	(void)writer;
	(void)written;
	pthread_mutex_lock(&e->lock);
	e->n_gone_lost += lost;
	pthread_mutex_unlock(&e->lock);
	return 0;
}

static void sink_bind(void *arg, spr_collector *c)
{
	struct spr_encoder_sink *const s = arg;

	pthread_mutex_lock(&s->encoder->lock);
	s->collector = c;
	pthread_mutex_unlock(&s->encoder->lock);
	if (!c) /* it keeps no batch any more; its channels may go, others come in their place */
		maps_release(s);
}

SPR_API int spr_encoder_sink(spr_encoder *e, struct spr_sink *out)
{
	struct spr_sink ours = {
		.put = sink_put, .tick = sink_tick, .gone = sink_gone, .bind = sink_bind,
	};
	struct spr_encoder_sink *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->encoder = e;
	s->writer_base = (uint64_t)e->n_sinks << 48;
	ours.arg = s;
	err = spr_options_write(out, &ours, sizeof(ours));
	if (err) {
		free(s);
		return err;
	}
	e->n_sinks++;
	pthread_mutex_lock(&e->lock);
	s->next = e->sinks;
	e->sinks = s;
	pthread_mutex_unlock(&e->lock);
	return 0;
}

/* --- Close ------------------------------------------------------------------------------------ */

/* A trace of nothing has one frame, too. Under lock, when all is written. */
static void frame_if_none(spr_encoder *e)
{
	struct spr_pending_frame *const frame = &e->frames[e->cut % e->n_frames];

	if (e->cut || e->err)
		return;
	frame->n = 0;
	frame->n_bytes = 0;
	frame->state = SPR_FRAME_CUT;
	e->cut++;
	all_wait(e);
}

SPR_API int spr_encoder_close(spr_encoder *e, const struct spr_verdict *more)
{
	struct spr_verdict mine = SPR_VERDICT_INIT;
	int err, err_more;

	if (!e)
		return 0;
	err_more = more ? spr_options_read(&mine, sizeof(mine), more) : 0;
	pthread_mutex_lock(&e->lock);
	flush(e);
	frame_if_none(e);
	e->stop = true;
	pthread_cond_broadcast(&e->work);
	pthread_mutex_unlock(&e->lock);
	for (uint32_t i = 0; i < e->n_workers; i++)
		pthread_join(e->workers[i].thread, NULL);
	err = error_of(e);
	if (!err) {
		err = spr_encoder_end_write(e, more && !err_more ? &mine : NULL);
		if (err == -ENOMEM)
			spr_fail(err, "the encoder has no memory");
	}
	owner_lock(e, F_UNLCK);
	encoder_release(e);
	return err ? err : err_more;
}
