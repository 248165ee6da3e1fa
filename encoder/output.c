/* SPDX-License-Identifier: MIT */
/* output.c - the sequencer's end: frames into the file, in order, and what is told of them. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/sys.h"
#include "encoder/pipeline.h"

static int fd_write(int fd, const uint8_t *bytes, size_t n)
{
	while (n) {
		const long put = spr_sys(SYS_write, fd, bytes, n);

		if (put > 0) {
			bytes += put;
			n -= (size_t)put;
		} else if (put == -EAGAIN) { /* somebody made it non-blocking: wait all the same */
			struct pollfd p = { .fd = fd, .events = POLLOUT };

			spr_sys(SYS_ppoll, &p, 1, NULL, NULL, 0);
		} else if (put != -EINTR) {
			return spr_fail_sys(put ? (int)put : -EIO, "the trace cannot be written");
		}
	}
	return 0;
}

int spr_encoder_write(spr_encoder *e, const void *bytes, size_t n)
{
	int err;

	if (!e->write)
		return fd_write(e->fd, bytes, n);
	err = e->write(e->arg, bytes, n);
	return err < 0 ? spr_fail_sys(err, "the trace cannot be written") : 0;
}

/* In the caller's own thread: a closed pipe or a file too large is an error, not a signal. Workers
 * have every signal blocked. */
static int write_quietly(spr_encoder *e, const struct spr_vec *bytes)
{
	const struct timespec now = { 0 };
	sigset_t quiet, before, pending;
	bool was_pending;
	int err;

	sigemptyset(&quiet);
	sigaddset(&quiet, SIGPIPE);
	sigaddset(&quiet, SIGXFSZ);
	sigpending(&pending);
	was_pending = sigismember(&pending, SIGPIPE) || sigismember(&pending, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &quiet, &before);
	err = spr_encoder_write(e, bytes->bytes, bytes->n);
	if ((err == -EPIPE || err == -EFBIG) && !was_pending)
		sigtimedwait(&quiet, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

static int entry_add(spr_encoder *e, uint32_t compressed, uint32_t content)
{
	if (e->n_entries + 4 > e->entries_room) { /* the end's own entries fit, too */
		const size_t room = e->entries_room ? 2 * e->entries_room : 256;
		struct spr_seek_entry *entries = realloc(e->entries, room * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		e->entries = entries;
		e->entries_room = room;
	}
	e->entries[e->n_entries++] = (struct spr_seek_entry){ compressed, content };
	return 0;
}

int spr_encoder_begin_write(spr_encoder *e, const struct spr_format_header *h)
{
	struct spr_vec out = { 0 };
	int err = e->form->begin(&out, h, e->kinds, e->n_kinds);

	if (!err)
		err = entry_add(e, (uint32_t)out.n, 0);
	if (!err && out.n)
		err = write_quietly(e, &out);
	spr_vec_release(&out);
	return err;
}

static void totals_add(spr_encoder *e, const struct spr_frame_out *out)
{
	struct spr_format_totals *t = &e->totals;

	for (uint32_t i = 0; i < out->info.n_kinds; i++) {
		const uint32_t kind = out->kinds[i].kind;

		e->kind_totals[kind == SPR_KIND_BLIND ? e->n_kinds + 1 : kind].records +=
			out->kinds[i].records;
	}
	if (out->info.first_ns && (!t->first_ns || out->info.first_ns < t->first_ns))
		t->first_ns = out->info.first_ns;
	if (out->info.last_ns > t->last_ns)
		t->last_ns = out->info.last_ns;
	t->records += out->info.n_records;
	t->content_bytes += out->info.content_bytes;
	t->frames++;
}

int spr_encoder_frame_write(spr_encoder *e, struct spr_pending_frame *frame)
{
	struct spr_frame_out *const out = &frame->out;
	int err;

	out->info.index = e->totals.frames;
	out->info.records_before = e->totals.records;
	e->form->place(out);
	err = out->info_bytes ? entry_add(e, (uint32_t)out->info_bytes, 0) : 0;
	if (!err)
		err = entry_add(e, out->info.frame_bytes, out->info.content_bytes);
	if (!err)
		err = spr_encoder_write(e, out->bytes.bytes, out->bytes.n);
	if (!err)
		totals_add(e, out);
	return err;
}

static void verdict_make(spr_encoder *e, const struct spr_verdict *more)
{
	struct spr_verdict *const v = &e->totals.verdict;
	const uint64_t n_blind = e->kind_totals[e->n_kinds + 1].records;

	*v = (struct spr_verdict)SPR_VERDICT_INIT;
	v->reasons = more ? more->reasons : 0;
	v->delivered = e->totals.records;
	v->lost = (more ? more->lost : e->n_gone_lost) + e->n_malformed;
	v->left_running = more ? more->left_running : 0;
	v->blind = more && more->blind > n_blind ? more->blind : n_blind;
	v->refused = more ? more->refused : 0;
	v->reasons |= (v->lost ? SPR_LOST : 0) | (v->left_running ? SPR_LEFT_RUNNING : 0) |
	              (v->blind ? SPR_BLIND : 0);
}

int spr_encoder_end_write(spr_encoder *e, const struct spr_verdict *more)
{
	struct spr_form_end end = { &e->totals, e->kind_totals, 0, e->entries, e->n_entries };
	struct spr_vec out = { 0 };
	int err;

	verdict_make(e, more);
	for (uint32_t i = 0; i < e->n_kinds + 2; i++) {
		if (!e->kind_totals[i].records)
			continue;
		e->kind_totals[end.n_kinds] = e->kind_totals[i];
		e->kind_totals[end.n_kinds++].kind = i == e->n_kinds + 1 ? SPR_KIND_BLIND : i;
	}
	err = e->form->end(&out, &end);
	if (!err && out.n)
		err = write_quietly(e, &out);
	spr_vec_release(&out);
	return err;
}
