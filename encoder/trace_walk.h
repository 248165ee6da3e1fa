/* SPDX-License-Identifier: MIT */
/*
 * trace_walk.h - a trace's outer shape, frame by frame, from a file or a pipe that may be cut,
 * damaged, growing, or several traces one behind the other.
 */
#ifndef SPR_ENCODER_TRACE_WALK_H
#define SPR_ENCODER_TRACE_WALK_H

#include "encoder/column.h"

/* Bytes of the descriptor. A file is read at any place, a pipe forward only. */
struct spr_source {
	int      fd;
	bool     can_seek, follow;
	uint64_t at;           /* of window.bytes[0] */
	struct spr_vec window;
};

/* bytes [at, at + n) of it; *out is valid until the next call. How many there are (less only at the
 * end), or -errno. On a pipe `at` never goes back. */
int64_t spr_source_get(struct spr_source *s, uint64_t at, size_t n, const uint8_t **out);
/* A followed file's recorder still lives. */
bool spr_source_grows(const struct spr_source *s);

enum spr_item_type {
	SPR_ITEM_HEADER,  /* a trace begins: walk->h, walk->kinds */
	SPR_ITEM_FRAME,   /* a data frame: item->info, and where the zstd frame is */
	SPR_ITEM_END,     /* no more bytes; walk->cut says whether an end mark was due */
};
struct spr_item {
	enum spr_item_type     type;
	uint64_t               at;      /* of its info frame or header */
	uint64_t               data_at; /* of the zstd frame */
	struct spr_format_info info;
};

struct spr_walk {
	struct spr_source *source;
	uint64_t           at;
	/* The trace we are in. */
	bool                     has_header, has_verdict, has_jumped, is_damaged;
	struct spr_format_header h;
	struct spr_kind         *kinds; /* one block, the walk's until taken */
	uint32_t                 n_kinds;
	uint64_t                 n_frames, n_records; /* of it so far, damaged ones included */
	uint64_t                 table_hash, n_entries;
	/* All traces together. */
	struct spr_verdict verdict;
	uint64_t           n_damaged;
	bool               cut;
};

void spr_walk_close(struct spr_walk *w);
/* The next item. E: -EBADMSG (bytes that are no frame were stepped over; named by the error text;
 * go on), -EAGAIN (followed: nothing whole yet), -EPROTO (another version), -EIO, -ENOMEM. */
int spr_walk_next(struct spr_walk *w, struct spr_item *item);

#endif /* SPR_ENCODER_TRACE_WALK_H */
