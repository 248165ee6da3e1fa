/* SPDX-License-Identifier: MIT */
/* trace_seeds.h - the kinds that the seeds of trace_read.c are made of. */
#ifndef SPR_TESTS_FUZZ_TRACE_SEEDS_H
#define SPR_TESTS_FUZZ_TRACE_SEEDS_H

#include <sparring/sparring.h>

extern const struct spr_kind trace_seed_kinds[2];

#endif /* SPR_TESTS_FUZZ_TRACE_SEEDS_H */
