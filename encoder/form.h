/* SPDX-License-Identifier: MIT */
/*
 * form.h - the seam between the pipeline and what it writes: one struct for each file format.
 * A worker's functions are called by one thread at a time, and read nothing but their arguments.
 */
#ifndef SPR_ENCODER_FORM_H
#define SPR_ENCODER_FORM_H

#include "encoder/frame_write.h"

/* What the sequencer knows when the last frame has been written. */
struct spr_form_end {
	const struct spr_format_totals *totals;
	const struct spr_kind_count    *kinds;
	uint32_t                        n_kinds;
	struct spr_seek_entry          *entries; /* of every frame before the end */
	size_t                          n_entries;
};

struct spr_form {
	const char *name; /* as in struct spr_encoder_options */
	int32_t     level; /* by default */
	/* The file's beginning, added to out. -ENOMEM. */
	int (*begin)(struct spr_vec *out, const struct spr_format_header *h,
	             const struct spr_kind *kinds, uint32_t n_kinds);
	/* A worker's own state; kinds are kept. */
	int (*worker_open)(void **worker, const struct spr_kind *kinds, uint32_t n_kinds,
	                   uint32_t frame_records, int level);
	int (*frame)(void *worker, const struct spr_rec *const *recs, uint32_t n,
	             struct spr_frame_out *out);
	void (*worker_close)(void *worker);
	/* Just before a frame is written, in the order of the file: its place is known now. */
	void (*place)(struct spr_frame_out *out);
	/* What stands behind the last frame. */
	int (*end)(struct spr_vec *out, const struct spr_form_end *end);
};

extern const struct spr_form spr_form_spr;

#endif /* SPR_ENCODER_FORM_H */
