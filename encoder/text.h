/* SPDX-License-Identifier: MIT */
/*
 * text.h - a column of texts. STRING columns are kept as numbers of distinct entries, each entry
 * as what differs from the one before it; BYTES columns as they come.
 */
#ifndef SPR_ENCODER_TEXT_H
#define SPR_ENCODER_TEXT_H

#include "encoder/column.h"

struct spr_text;

struct spr_text *spr_text_open(bool with_entries); /* NULL: no memory */
void spr_text_close(struct spr_text *t);
void spr_text_begin(struct spr_text *t);
/* with_entries: the bytes stay until the column is put. false: no memory. */
bool spr_text_put(struct spr_text *t, const uint8_t *bytes, uint32_t n);
bool spr_text_column_put(struct spr_text *t, struct spr_vec *out);

#endif /* SPR_ENCODER_TEXT_H */
