/* SPDX-License-Identifier: MIT */
/*
 * frame_write.h - records in their final order, split into columns and compressed: one data frame.
 * One of these for each worker; everything in it is reused from frame to frame.
 */
#ifndef SPR_ENCODER_FRAME_WRITE_H
#define SPR_ENCODER_FRAME_WRITE_H

#include <sparring/sparring.h>

#include "encoder/column.h"
#include "encoder/record.h"

struct spr_frame_writer;

/* What came out. bytes: room for the info frame (info_bytes), then the zstd frame; the caller
 * writes the info when it knows the frame's place. Reused. */
struct spr_frame_out {
	struct spr_vec          bytes;
	size_t                  info_bytes;
	struct spr_format_info  info;  /* without index and records_before */
	struct spr_kind_count  *kinds; /* room for SPR_INFO_KINDS_MAX, from the caller */
	uint64_t                n_malformed;
};

/* kinds: kept. E: -ENOMEM. */
int spr_frame_writer_open(struct spr_frame_writer **out, const struct spr_kind *kinds,
                          uint32_t n_kinds, uint32_t frame_records, int level);
/* Records that do not look as their kind says are left out and counted. E: -ENOMEM, -EIO (zstd). */
int spr_frame_writer_put(struct spr_frame_writer *w, const struct spr_rec *const *recs, uint32_t n,
                         struct spr_frame_out *out);
void spr_frame_writer_close(struct spr_frame_writer *w);

#endif /* SPR_ENCODER_FRAME_WRITE_H */
