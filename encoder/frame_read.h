/* SPDX-License-Identifier: MIT */
/*
 * frame_read.h - the content of a data frame, back to records one after another. What is decoded at
 * any time is one block of each column, so memory follows the content, not what it claims.
 */
#ifndef SPR_ENCODER_FRAME_READ_H
#define SPR_ENCODER_FRAME_READ_H

#include <sparring/sparring.h>

#include "encoder/column.h"

struct spr_frame_reader;

/* What a kind of the trace becomes for the caller. */
struct spr_kind_view {
	uint16_t    number; /* in rec->kind */
	const bool *wanted; /* [n_fields] or NULL: all */
};

/* kinds, views (n_kinds + 2: "bytes", the declared, "blind"): kept. -ENOMEM. */
int spr_frame_reader_open(struct spr_frame_reader **out, const struct spr_kind *kinds,
                          uint32_t n_kinds, const struct spr_kind_view *views);
/* content: kept until the next begin. n_records: what the info frame says. E: -EBADMSG with a
 * sentence, -ENOMEM. */
int spr_frame_reader_begin(struct spr_frame_reader *r, const struct spr_format_header *limits,
                           const uint8_t *content, size_t n_bytes, uint32_t n_records);
/* 1, 0 at the frame's end. rec->data is valid until the next. E: as begin: the frame is over. */
int spr_frame_reader_next(struct spr_frame_reader *r, struct spr_record *rec);
void spr_frame_reader_close(struct spr_frame_reader *r);

#endif /* SPR_ENCODER_FRAME_READ_H */
