/* SPDX-License-Identifier: MIT */
/*
 * record.h - a record on its way through the encoder, in private memory (or, for records lent by
 * spr_encoder_put(), its bytes still the caller's).
 */
#ifndef SPR_ENCODER_RECORD_H
#define SPR_ENCODER_RECORD_H

#include <stdint.h>

/* Whom records are from and about; records in a row share one. */
struct spr_who {
	uint64_t writer;
	int32_t  pid, tid;
	uint32_t has_id;
	uint32_t reserved;
};

struct spr_rec {
	const uint8_t        *data; /* behind this struct, padded to 8, or lent */
	uint64_t              time_ns, seq;
	const struct spr_who *who;
	uint32_t              bytes;
	uint16_t              kind;  /* the trace's number */
	uint16_t              flags; /* SPR_LATE, SPR_REC_WHO */
};
#define SPR_REC_WHO (1u << 15) /* its who stands right behind it */

#endif /* SPR_ENCODER_RECORD_H */
