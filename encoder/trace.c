/* SPDX-License-Identifier: MIT */
/*
 * trace.c - reading a trace: the public side. One walk goes along with next(); for files a second
 * one goes ahead of it to index frames and to find the verdict, touching only what stands between
 * the data frames.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/error.h"
#include "base/kinds.h"
#include "base/options.h"
#include "encoder/frame_read.h"
#include "encoder/trace_walk.h"

#define KINDS_SHOWN_MAX 4096u /* of all traces in one file */

/* What must live as long as the trace: blocks of declarations, field lists. */
struct keep {
	struct keep *next;
	void        *block;
};

struct frame_entry {
	struct spr_frame frame;
	uint64_t         header_at; /* of its trace */
};

struct spr_trace {
	struct spr_source source, index_source;
	struct spr_walk   walk, index;
	bool              ended, index_ended;
	int               index_err; /* what stopped the index, but for damage */

	char  **fields; /* wanted ones, "kind.field" */
	uint32_t n_fields;

	/* Kinds as the caller sees them: numbers stay the same over all traces of the file. */
	struct spr_kind *shown; /* KINDS_SHOWN_MAX, never moved */
	struct spr_kind *full;  /* the same without projection */
	uint32_t         n_shown;
	struct keep     *kept;

	/* Of the trace we are in. */
	struct spr_kind       *kinds;
	bool                   kinds_are_shown; /* names of `shown` lie in them */
	uint32_t               n_kinds;
	struct spr_kind_view  *views;
	bool                  *wanted; /* what views point into */
	struct spr_frame_reader *reader;

	ZSTD_DCtx     *zstd;
	struct spr_vec content;
	bool           in_frame;
	uint64_t       frame_at, frame_index, frame_records, frame_given;
	uint64_t       bad_at; /* frames up to here have been counted if they were bad */
	uint64_t       n_bad_records, n_bad_frames;
	uint64_t       from_ns; /* after spr_trace_seek() */

	struct frame_entry *entries;
	size_t              n_entries, entries_room;
	uint64_t            header_at; /* of the trace the index is in */
};

/* --- Projection and kinds --------------------------------------------------------------------- */

static bool keep_add(struct spr_trace *t, void *block)
{
	struct keep *k = malloc(sizeof(*k));

	if (!k || !block) {
		free(k);
		return false;
	}
	*k = (struct keep){ t->kept, block };
	t->kept = k;
	return true;
}

static bool field_is_wanted(const struct spr_trace *t, const char *kind, const char *field)
{
	const size_t n = strlen(kind);

	if (!t->n_fields)
		return true;
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const char *const name = t->fields[i];

		if (!strncmp(name, kind, n) && name[n] == '.' && !strcmp(name + n + 1, field))
			return true;
	}
	return false;
}

/* A kind as the caller is to see it. */
static int kind_show(struct spr_trace *t, const struct spr_kind *k)
{
	struct spr_field *fields;
	struct spr_kind *shown = &t->shown[t->n_shown];

	if (t->n_shown == KINDS_SHOWN_MAX)
		return spr_fail(-EPROTO, "the traces in this file declare more than %u kinds",
		                KINDS_SHOWN_MAX);
	fields = calloc(k->n_fields + 1, sizeof(*fields));
	if (!keep_add(t, fields)) {
		free(fields);
		return -ENOMEM;
	}
	*shown = (struct spr_kind){ k->name, fields, 0, 0 };
	for (uint32_t i = 0; i < k->n_fields; i++) {
		if (field_is_wanted(t, k->name, k->fields[i].name))
			fields[shown->n_fields++] = k->fields[i];
	}
	t->full[t->n_shown++] = *k;
	return 0;
}

/* The number callers know a kind by; a new one if it is new. */
static int kind_number(struct spr_trace *t, const struct spr_kind *k, bool *is_new)
{
	uint32_t i = 0;

	while (i < t->n_shown && !spr_kinds_alike(&t->full[i], k))
		i++;
	if (i == t->n_shown) {
		const int err = kind_show(t, k);

		if (err)
			return err;
		*is_new = true;
	}
	return (int)i + 1;
}

static void view_make(struct spr_trace *t, uint32_t slot, const struct spr_kind *k, uint32_t number,
                      bool **wanted)
{
	t->views[slot].number = (uint16_t)number;
	t->views[slot].wanted = t->n_fields ? *wanted : NULL;
	for (uint32_t i = 0; i < k->n_fields; i++)
		*(*wanted)++ = field_is_wanted(t, k->name, k->fields[i].name);
}

static void header_leave(struct spr_trace *t)
{
	spr_frame_reader_close(t->reader);
	free(t->views);
	free(t->wanted);
	if (t->kinds_are_shown)
		keep_add(t, t->kinds); /* without memory it is left to the process's end */
	else
		free(t->kinds);
	t->kinds_are_shown = false;
	t->kinds = NULL;
	t->reader = NULL;
	t->views = NULL;
	t->wanted = NULL;
}

/* A trace begins: its kinds, and a reader for them. */
static int header_enter(struct spr_trace *t)
{
	static const struct spr_field whole = { .name = "bytes", .type = SPR_BYTES };
	static const struct spr_kind bytes = { "bytes", &whole, 1, 0 };
	size_t n_fields = 1 + spr_kind_blind.n_fields;
	bool is_new = false, *wanted;

	header_leave(t);
	t->kinds = t->walk.kinds;
	t->n_kinds = t->walk.n_kinds;
	t->walk.kinds = NULL;
	for (uint32_t i = 0; i < t->n_kinds; i++)
		n_fields += t->kinds[i].n_fields;
	t->views = calloc(t->n_kinds + 2, sizeof(*t->views));
	wanted = t->wanted = calloc(n_fields, sizeof(*t->wanted));
	if (!t->views || !t->wanted)
		return -ENOMEM;
	view_make(t, 0, &bytes, 0, &wanted);
	view_make(t, t->n_kinds + 1, &spr_kind_blind, SPR_KIND_BLIND, &wanted);
	for (uint32_t i = 0; i < t->n_kinds; i++) {
		const int number = kind_number(t, &t->kinds[i], &is_new);

		if (number < 0)
			return number;
		view_make(t, i + 1, &t->kinds[i], (uint32_t)number, &wanted);
	}
	t->kinds_are_shown = is_new;
	return spr_frame_reader_open(&t->reader, t->kinds, t->n_kinds, t->views);
}

/* Each field asked for is one of some kind. */
static int fields_check(const struct spr_trace *t)
{
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const char *const name = t->fields[i];
		bool known = !strcmp(name, "bytes.bytes") || !strcmp(name, "blind.pid") ||
		             !strcmp(name, "blind.reason") || !strcmp(name, "blind.text");

		for (uint32_t k = 0; k < t->n_shown && !known; k++) {
			const size_t n = strlen(t->full[k].name);

			if (strncmp(name, t->full[k].name, n) || name[n] != '.')
				continue;
			for (uint32_t f = 0; f < t->full[k].n_fields; f++)
				known |= !strcmp(name + n + 1, t->full[k].fields[f].name);
		}
		if (!known)
			return spr_fail(-EINVAL, "the trace has no field \"%s\"", name);
	}
	return 0;
}

/* --- Open and close --------------------------------------------------------------------------- */

static int fields_copy(struct spr_trace *t, const struct spr_trace_options *o)
{
	if (!o->n_fields)
		return 0;
	if (!o->fields)
		return -EINVAL;
	t->fields = calloc(o->n_fields, sizeof(*t->fields));
	if (!t->fields)
		return -ENOMEM;
	t->n_fields = o->n_fields;
	for (uint32_t i = 0; i < o->n_fields; i++) {
		t->fields[i] = strdup(o->fields[i]);
		if (!t->fields[i])
			return -ENOMEM;
	}
	return 0;
}

static int source_open(struct spr_trace *t, int fd, bool follow)
{
	struct stat st;
	off_t at = 0;

	if (fstat(fd, &st))
		return spr_fail_sys(-errno, "the trace cannot be read");
	if (S_ISDIR(st.st_mode))
		return spr_fail(-EISDIR, "this is a directory, no trace");
	t->source.fd = fd;
	t->source.follow = follow;
	t->source.can_seek = S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
	if (t->source.can_seek)
		at = lseek(fd, 0, SEEK_CUR); /* a file is read from where it stands */
	if (at < 0)
		at = 0;
	t->source.at = t->walk.at = t->index.at = (uint64_t)at;
	t->index_source = t->source;
	t->walk.source = &t->source;
	t->index.source = &t->index_source;
	t->walk.verdict = t->index.verdict = (struct spr_verdict)SPR_VERDICT_INIT;
	return 0;
}

/* The first frame must be a header. */
static int first_header(struct spr_trace *t)
{
	struct spr_item item;
	const uint8_t *bytes;
	const int64_t got = spr_source_get(&t->source, t->walk.at, 12, &bytes);
	int err;

	if (got < 0)
		return (int)got;
	if (!got && !spr_source_grows(&t->source))
		return spr_fail(-EPROTO, "the file is empty: not even a trace's header is there");
	if (got >= 4 && spr_get32(bytes) != SPR_MAGIC_OURS)
		return spr_fail(-EPROTO, spr_get32(bytes) == SPR_MAGIC_ZSTD ?
		                "this is compressed with zstd, but it is no trace of ours" :
		                "this is no trace of ours");
	if (got >= 12 && spr_get32(bytes + 8) != SPR_TAG_HEADER)
		return spr_fail(-EPROTO, "this is no trace of ours, or its beginning is missing");
	if (got < 12 && spr_source_grows(&t->source))
		return -EAGAIN;
	err = spr_walk_next(&t->walk, &item);
	if (err)
		return err == -EBADMSG ? spr_fail(-EPROTO, "the trace's header is damaged") : err;
	if (item.type != SPR_ITEM_HEADER)
		return spr_fail(-EPROTO, "the trace is cut within its header");
	err = header_enter(t);
	return err ? err : fields_check(t);
}

SPR_API int spr_trace_open(spr_trace **out, int fd, const struct spr_trace_options *opt)
{
	struct spr_trace_options o;
	struct spr_trace *t;
	int err;

	spr_fail_clear();
	err = spr_options_read(&o, sizeof(o), opt);
	if (err)
		return err;
	if (o.flags & ~SPR_FOLLOW)
		return spr_fail(-EINVAL, "trace: unknown flags %#x", o.flags & ~SPR_FOLLOW);
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->shown = calloc(KINDS_SHOWN_MAX, sizeof(*t->shown));
	t->full = calloc(KINDS_SHOWN_MAX, sizeof(*t->full));
	t->zstd = ZSTD_createDCtx();
	err = t->shown && t->full && t->zstd ? fields_copy(t, &o) : -ENOMEM;
	if (!err)
		err = source_open(t, fd, o.flags & SPR_FOLLOW);
	if (!err)
		err = first_header(t);
	if (err) {
		spr_trace_close(t);
		return err;
	}
	*out = t;
	return 0;
}

SPR_API void spr_trace_close(spr_trace *t)
{
	if (!t)
		return;
	header_leave(t);
	while (t->kept) {
		struct keep *k = t->kept;

		t->kept = k->next;
		free(k->block);
		free(k);
	}
	spr_walk_close(&t->walk);
	spr_walk_close(&t->index);
	spr_vec_release(&t->source.window);
	spr_vec_release(&t->index_source.window);
	spr_vec_release(&t->content);
	ZSTD_freeDCtx(t->zstd);
	for (uint32_t i = 0; t->fields && i < t->n_fields; i++)
		free(t->fields[i]);
	free(t->fields);
	free(t->shown);
	free(t->full);
	free(t->entries);
	free(t);
}

SPR_API const struct spr_kind *spr_trace_kinds(const spr_trace *t, uint32_t *n)
{
	*n = t->n_shown;
	return t->shown;
}

/* --- Records ---------------------------------------------------------------------------------- */

/* The frame we are in cannot be read on: what it still had is lost, once. */
static int frame_bad(struct spr_trace *t, int err, const char *why)
{
	char text[160];

	snprintf(text, sizeof(text), "%s", why);
	t->in_frame = false;
	if (t->frame_at >= t->bad_at) {
		t->n_bad_records += t->frame_records - t->frame_given;
		t->n_bad_frames++;
		t->bad_at = t->frame_at + 1;
	}
	return spr_fail(err, "frame %llu at byte %llu is damaged: %s",
	                (unsigned long long)t->frame_index, (unsigned long long)t->frame_at, text);
}

static int frame_enter(struct spr_trace *t, const struct spr_item *item)
{
	const struct spr_format_info *info = &item->info;
	const uint8_t *bytes;
	int64_t got;
	size_t n;
	int err;

	t->frame_at = item->at;
	t->frame_index = info->index;
	t->frame_records = info->n_records;
	t->frame_given = 0;
	t->content.n = 0;
	got = spr_source_get(&t->source, item->data_at, info->frame_bytes, &bytes);
	if (got < 0)
		return (int)got;
	if (got < info->frame_bytes)
		return frame_bad(t, -EBADMSG, "the file became shorter");
	if (ZSTD_getFrameContentSize(bytes, info->frame_bytes) != info->content_bytes)
		return frame_bad(t, -EBADMSG, "its size is not what its head says");
	if (!spr_vec_reserve(&t->content, info->content_bytes + 1ull))
		return -ENOMEM;
	n = ZSTD_decompressDCtx(t->zstd, t->content.bytes, info->content_bytes, bytes,
	                        info->frame_bytes);
	if (ZSTD_isError(n) || n != info->content_bytes)
		return frame_bad(t, -EBADMSG,
		                 ZSTD_isError(n) ? ZSTD_getErrorName(n) : "it ends early");
	err = spr_frame_reader_begin(t->reader, &t->walk.h, t->content.bytes, n, info->n_records);
	if (err)
		return err == -EBADMSG ? frame_bad(t, err, spr_error_text()) : err;
	t->in_frame = true;
	return 0;
}

/* To the next frame that has records for us: 1, 0 at the end. */
static int frame_find(struct spr_trace *t)
{
	while (!t->in_frame) {
		struct spr_item item;
		int err = spr_walk_next(&t->walk, &item);

		if (err)
			return err;
		if (item.type == SPR_ITEM_END) {
			t->ended = true;
			return 0;
		}
		if (item.type == SPR_ITEM_HEADER)
			err = header_enter(t);
		else if (item.info.n_records && item.info.last_ns >= t->from_ns)
			err = frame_enter(t, &item);
		if (err)
			return err;
	}
	return 1;
}

SPR_API int spr_trace_next(spr_trace *t, struct spr_record *rec)
{
	for (;;) {
		int got = t->ended ? 0 : frame_find(t);

		if (got <= 0)
			return got;
		got = spr_frame_reader_next(t->reader, rec);
		if (got < 0)
			return got == -EBADMSG ? frame_bad(t, got, spr_error_text()) : got;
		if (!got) {
			t->in_frame = false;
			continue;
		}
		t->frame_given++;
		if (rec->time_ns >= t->from_ns)
			return 1;
	}
}

/* --- Frames ----------------------------------------------------------------------------------- */

static int entry_add(struct spr_trace *t, const struct spr_item *item)
{
	const struct spr_format_info *const info = &item->info;

	if (t->n_entries == t->entries_room) {
		const size_t room = t->entries_room ? 2 * t->entries_room : 64;
		struct frame_entry *entries = realloc(t->entries, room * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		t->entries = entries;
		t->entries_room = room;
	}
	t->entries[t->n_entries++] = (struct frame_entry){
		.frame = {
			.at = item->at, .bytes = item->data_at - item->at + info->frame_bytes,
			.content_bytes = info->content_bytes, .records = info->n_records,
			.first_ns = info->first_ns, .last_ns = info->last_ns,
		},
		.header_at = t->header_at,
	};
	return 0;
}

/* Index on until there are more than `index` frames, or the end. */
static int index_reach(struct spr_trace *t, uint64_t index)
{
	while (!t->index_ended && t->n_entries <= index) {
		struct spr_item item;
		int err = spr_walk_next(&t->index, &item);

		if (err == -EBADMSG || err == -EPROTO)
			continue; /* next() will tell */
		if (err)
			return err;
		if (item.type == SPR_ITEM_END)
			t->index_ended = true;
		else if (item.type == SPR_ITEM_HEADER)
			t->header_at = item.at;
		else
			err = entry_add(t, &item);
		if (err)
			return err;
	}
	return 0;
}

SPR_API int spr_trace_frame(spr_trace *t, uint64_t index, struct spr_frame *out)
{
	int err;

	if (!t->source.can_seek)
		return spr_fail(-ESPIPE, "frames cannot be listed in a pipe");
	err = index_reach(t, index);
	if (err && !(err == -EAGAIN && index < t->n_entries))
		return err;
	if (index >= t->n_entries)
		return -ERANGE;
	*out = t->entries[index].frame;
	return 0;
}

/* The walk stands in front of a frame, in its own trace. */
static int walk_jump(struct spr_trace *t, const struct frame_entry *e)
{
	struct spr_item item;
	int err;

	t->in_frame = t->ended = false;
	t->walk.at = e->header_at;
	t->walk.cut = false;
	err = spr_walk_next(&t->walk, &item);
	if (!err && item.type != SPR_ITEM_HEADER)
		err = spr_fail(-EBADMSG, "the trace's header is not there any more");
	if (!err)
		err = header_enter(t);
	if (err)
		return err;
	t->walk.has_jumped = true;
	t->walk.at = e->frame.at;
	return 0;
}

SPR_API int spr_trace_seek_frame(spr_trace *t, uint64_t index)
{
	struct spr_frame frame;
	const int err = spr_trace_frame(t, index, &frame);

	if (err)
		return err;
	t->from_ns = 0;
	return walk_jump(t, &t->entries[index]);
}

SPR_API int spr_trace_seek(spr_trace *t, uint64_t time_ns)
{
	struct spr_frame frame = { 0 };
	uint64_t index = 0;
	int err;

	for (;; index++) {
		err = spr_trace_frame(t, index, &frame);
		if (err || frame.last_ns >= time_ns)
			break;
	}
	if (err == -ERANGE) { /* nothing so late */
		t->in_frame = false;
		t->ended = true;
		return 0;
	}
	if (err)
		return err;
	err = walk_jump(t, &t->entries[index]);
	t->from_ns = time_ns;
	return err;
}

/* --- Verdict ---------------------------------------------------------------------------------- */

SPR_API int spr_trace_verdict(spr_trace *t, struct spr_verdict *out)
{
	const struct spr_walk *w = t->source.can_seek ? &t->index : &t->walk;
	struct spr_verdict v;
	int err = 0;

	if (t->source.can_seek)
		err = index_reach(t, UINT64_MAX);
	else if (!t->ended)
		err = spr_fail(-EAGAIN, "a pipe's verdict is at its end: read on");
	if (err)
		return err;
	v = w->verdict;
	v.lost += t->n_bad_records;
	v.delivered -= t->n_bad_records < v.delivered ? t->n_bad_records : v.delivered;
	v.reasons |= (w->cut ? SPR_CUT : 0) |
	             (v.lost || t->n_bad_frames || w->n_damaged ? SPR_LOST : 0);
	return spr_options_write(out, &v, sizeof(v));
}
