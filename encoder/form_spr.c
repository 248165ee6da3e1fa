/* SPDX-License-Identifier: MIT */
/* form_spr.c - the native format, put together from format.h and frame_write.h. */
#include <errno.h>

#include "encoder/form.h"

static int spr_begin(struct spr_vec *out, const struct spr_format_header *h,
                     const struct spr_kind *kinds, uint32_t n_kinds)
{
	const size_t n = spr_format_header_put(NULL, h, kinds, n_kinds);

	if (!spr_vec_reserve(out, n))
		return -ENOMEM;
	spr_format_header_put(out->bytes + out->n, h, kinds, n_kinds);
	out->n += n;
	return 0;
}

static int worker_open(void **worker, const struct spr_kind *kinds, uint32_t n_kinds,
                       uint32_t frame_records, int level)
{
	struct spr_frame_writer *w;
	const int err = spr_frame_writer_open(&w, kinds, n_kinds, frame_records, level);

	if (!err)
		*worker = w;
	return err;
}

static int frame(void *worker, const struct spr_rec *const *recs, uint32_t n,
                 struct spr_frame_out *out)
{
	return spr_frame_writer_put(worker, recs, n, out);
}

static void worker_close(void *worker)
{
	spr_frame_writer_close(worker);
}

static void place(struct spr_frame_out *out)
{
	spr_format_info_put(out->bytes.bytes, &out->info, out->kinds);
}

static int spr_end(struct spr_vec *out, const struct spr_form_end *end)
{
	const size_t verdict_bytes = spr_format_verdict_bytes(end->n_kinds);
	const size_t table_bytes = spr_format_table_bytes(end->n_entries + 1);

	if (!spr_vec_reserve(out, verdict_bytes + table_bytes))
		return -ENOMEM;
	spr_format_verdict_put(out->bytes + out->n, end->totals, end->kinds, end->n_kinds);
	end->entries[end->n_entries] = (struct spr_seek_entry){ (uint32_t)verdict_bytes, 0 };
	spr_format_table_put(out->bytes + out->n + verdict_bytes, end->entries, end->n_entries + 1);
	out->n += verdict_bytes + table_bytes;
	return 0;
}

const struct spr_form spr_form_spr = {
	.name = "spr",
	.level = 1,
	.begin = spr_begin,
	.worker_open = worker_open,
	.frame = frame,
	.worker_close = worker_close,
	.place = place,
	.end = spr_end,
};
