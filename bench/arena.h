/* SPDX-License-Identifier: MIT */
/*
 * arena.h - the other way to put records into a shared file: one counter for everybody. Each record
 * claims its place with an atomic add, is copied, and its length is stored last; who reads comes
 * after all is written. The protocol of arenas like fspy's, without their safety net, so a floor
 * for them.
 */
#ifndef SPR_BENCH_ARENA_H
#define SPR_BENCH_ARENA_H

#include "bench/rig.h"

/* plan->place, plan->capacity_bytes, plan->warm. */
extern const struct spr_bench_carrier spr_bench_arena;
/* memcpy into a mapped file of that size, one after another. */
extern const struct spr_bench_carrier spr_bench_copy_file;

#endif /* SPR_BENCH_ARENA_H */
