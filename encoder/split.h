/* SPDX-License-Identifier: MIT */
/*
 * split.h - the bytes of records, split by their kind's declaration into one column for each
 * field.
 */
#ifndef SPR_ENCODER_SPLIT_H
#define SPR_ENCODER_SPLIT_H

#include "encoder/column.h"

struct spr_split;

/* A kind's place here: 0 "bytes", 1.. as declared, n_kinds + 1 "blind". */
struct spr_split *spr_split_open(const struct spr_kind *kinds, uint32_t n_kinds);
void spr_split_close(struct spr_split *s);
/* A new frame. */
void spr_split_begin(struct spr_split *s);
/* Takes a record apart; the bytes stay until the columns are put. 0; 1: they are not what the kind
 * says, nothing was taken; -ENOMEM. */
int spr_split_put(struct spr_split *s, uint32_t slot, const uint8_t *data, uint32_t n_bytes,
                  uint32_t source);
/* The kinds present, ascending, and how many records of each; returns how many kinds. */
uint32_t spr_split_counts(const struct spr_split *s, struct spr_kind_count *out);

/* What DELTA_BY_SOURCE needs: room for states, and how many sources there are. */
struct spr_sources {
	uint64_t *states; /* SPR_SOURCE_STATES_MAX */
	uint32_t  n;
};
/* The sections of all kinds present. false: no memory. */
bool spr_split_columns_put(struct spr_split *s, struct spr_vec *out,
                           const struct spr_sources *sources);

#endif /* SPR_ENCODER_SPLIT_H */
