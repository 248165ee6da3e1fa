/* SPDX-License-Identifier: MIT */
/*
 * pipeline.h - inside an encoder.
 *
 *   put, tick, sync      workers, whichever has time                        the fd
 *   feeder ---inputs---> take in ---> window: merge, cut ---> encode ---> write
 *           (ring, in                 (one at a time,        (side by     (one at a time,
 *            order)                    in order)              side)        in order)
 *
 * An input is taken in (its records copied, its batch released) by any thread in any order; all
 * else happens in the order of the inputs, so the output is a function of them. Nothing here waits
 * for the feeder, and the feeder waits only for workers: no cycle. An error is kept once and turns
 * every later step into giving back.
 */
#ifndef SPR_ENCODER_PIPELINE_H
#define SPR_ENCODER_PIPELINE_H

#include <pthread.h>

#include "encoder/form.h"
#include "encoder/window.h"

#define SPR_INPUTS        1024u
#define SPR_WORKERS_MAX   256u
#define SPR_PART_RECORDS  16384u /* spr_encoder_put() is cut into inputs of so many */
#define SPR_INLINE_MOST   64u    /* a batch with no more is taken in by the feeder itself */
#define SPR_LEND_LEAST    4096u  /* fewer records are copied even when they are lent */

enum spr_input_type { SPR_INPUT_RECORDS, SPR_INPUT_TICK, SPR_INPUT_FLUSH };
enum spr_input_state { SPR_INPUT_WAITING, SPR_INPUT_TAKING, SPR_INPUT_TAKEN };

struct spr_input {
	enum spr_input_type  type;
	enum spr_input_state state; /* under lock */
	/* Where records are still to be taken from: a batch, or a caller's array. */
	spr_batch                 *batch;
	const struct spr_kind_map *map; /* of its channel, while the batch is kept */
	uint64_t                   writer_base;
	const struct spr_record *recs;
	uint32_t                 n_recs;
	struct spr_loan         *loan; /* one reference is the input's */
	bool                     lend;
	/* What has been taken. */
	struct spr_run *first, *last;
	uint64_t        n, n_bytes, n_malformed;
	uint64_t        until_ns; /* TICK */
};

enum spr_frame_state { SPR_FRAME_FREE, SPR_FRAME_CUT, SPR_FRAME_ENCODING, SPR_FRAME_ENCODED };

struct spr_pending_frame {
	enum spr_frame_state   state; /* under lock; who works on it owns the rest */
	const struct spr_rec **recs;
	uint32_t               n;
	uint64_t               n_bytes;
	struct spr_frame_out   out;
};

struct spr_worker {
	spr_encoder      *encoder;
	pthread_t         thread;
	struct spr_filler filler;
	void             *form; /* the format's own state */
};

/* One channel's kinds, by the trace's numbers. */
struct spr_kind_map {
	const spr_channel   *channel;
	struct spr_kind_map *next;
	uint32_t             n;
	uint16_t             to[]; /* [kind of the channel] */
};

struct spr_encoder_sink {
	spr_encoder             *encoder;
	struct spr_encoder_sink *next;
	uint64_t                 writer_base; /* writers of several collectors stay apart */
	spr_collector           *collector;   /* under the encoder's lock */
	struct spr_kind_map     *maps; /* the feeder's; emptied when no batch is kept */
};

struct spr_encoder {
	/* Constant after open. */
	const struct spr_form *form;
	struct spr_kind *kinds;
	uint32_t         n_kinds, n_workers, n_frames;
	uint32_t         frame_records, frame_bytes;
	uint64_t         records_most, bytes_most; /* in flight, before put is told to wait */
	int              fd;
	int (*write)(void *arg, const void *bytes, size_t n);
	void            *arg;
	struct spr_store store;

	/* The feeder's: one thread at a time calls put, tick, sync. */
	struct spr_filler        feeder;
	struct spr_encoder_sink *sinks; /* list changes under lock */
	uint32_t                 n_sinks;

	pthread_mutex_t lock;
	pthread_cond_t  work; /* workers wait */
	pthread_cond_t  room; /* the feeder waits */

	/* Under lock. */
	struct spr_input inputs[SPR_INPUTS]; /* [tail, head); the feeder adds, the window takes */
	uint64_t head, tail, next_take;
	uint32_t n_waiting;                  /* inputs not yet TAKEN */
	uint64_t n_unmerged;                 /* records in inputs, not yet in the window */
	uint64_t n_flight, n_bytes_flight;   /* taken in and not yet encoded */
	struct spr_pending_frame *frames;    /* frame i is frames[i % n_frames] */
	uint64_t cut, encode, written;       /* next frame to be cut, encoded, written */
	bool     merging, writing, has_lent, stop;
	bool     wants_wake; /* a sink was told -EAGAIN */
	uint32_t n_idle, n_feeders_waiting;
	uint64_t n_malformed, n_gone_lost;
	int      err;
	char     err_text[256];

	/* Whoever set `merging`. */
	struct spr_window window;
	struct spr_run   *runs; /* of the current input, not yet in the window */

	/* Whoever set `writing`; afterwards spr_encoder_close(). */
	struct spr_format_totals totals;
	struct spr_kind_count   *kind_totals; /* by slot: n_kinds + 2 */
	struct spr_seek_entry   *entries;
	size_t                   n_entries, entries_room;
	uint64_t                 n_content_before;

	struct spr_worker *workers;
};

/* pipeline.c; under lock unless said. */
void spr_encoder_fail(spr_encoder *e, int err);
bool spr_encoder_is_behind(const spr_encoder *e);
/* One waiting input taken in by this thread; drops the lock meanwhile. false: none waits. */
bool spr_encoder_take_in(spr_encoder *e, struct spr_filler *f);
void *spr_encoder_worker_main(void *arg); /* without the lock */
/* A record into the open part of f; counts what is malformed. Without the lock. */
int spr_encoder_record_fill(const spr_encoder *e, struct spr_filler *f,
                            const struct spr_record *rec, const struct spr_kind_map *map,
                            uint64_t writer_base, uint64_t *n_malformed);
void spr_encoder_runs_give(struct spr_run *runs);

/* output.c; without the lock. */
int spr_encoder_write(spr_encoder *e, const void *bytes, size_t n);
int spr_encoder_begin_write(spr_encoder *e, const struct spr_format_header *h);
int spr_encoder_frame_write(spr_encoder *e, struct spr_pending_frame *frame);
int spr_encoder_end_write(spr_encoder *e, const struct spr_verdict *more);

#endif /* SPR_ENCODER_PIPELINE_H */
