/* SPDX-License-Identifier: MIT */
/*
 * atomic.h - every atomic access of the project, with the order in the verb.
 *
 * No file uses <stdatomic.h> functions directly. An ordered access names its pair in a comment on
 * the same line, as in [COMMIT]; the pairs are tabled in shm/layout.h (shared memory) or at the
 * top of the file that owns them, and `make tidy` finds one that has a single side.
 */
#ifndef SPR_BASE_ATOMIC_H
#define SPR_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define spr_load_relaxed(p)      atomic_load_explicit((p), memory_order_relaxed)
#define spr_load_acquire(p)      atomic_load_explicit((p), memory_order_acquire)
#define spr_store_relaxed(p, v)  atomic_store_explicit((p), (v), memory_order_relaxed)
#define spr_store_release(p, v)  atomic_store_explicit((p), (v), memory_order_release)

/* *p was *expected (a local, updated with what was found) and is now v. */
#define spr_cas_acquire(p, expected, v) \
	atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acquire, \
	                                        memory_order_relaxed)
#define spr_cas_acq_rel(p, expected, v) \
	atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel, \
	                                        memory_order_acquire)
#define spr_cas_relaxed(p, expected, v) \
	atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_relaxed, \
	                                        memory_order_relaxed)

#define spr_add_relaxed(p, v)      atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define spr_add_acq_rel(p, v)      atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)
#define spr_or_acq_rel(p, v)       atomic_fetch_or_explicit((p), (v), memory_order_acq_rel)
#define spr_and_acq_rel(p, v)      atomic_fetch_and_explicit((p), (v), memory_order_acq_rel)
#define spr_exchange_acq_rel(p, v) atomic_exchange_explicit((p), (v), memory_order_acq_rel)

/* Stops the compiler only: one half of an asymmetric fence, or order against a signal handler. */
#define spr_compiler_barrier() atomic_signal_fence(memory_order_seq_cst)
/* A seqlock's two halves: what was read before stays before; what is written after stays after. */
#define spr_acquire_fence() atomic_thread_fence(memory_order_acquire)
#define spr_release_fence() atomic_thread_fence(memory_order_release)
/* The full fence that a process pays which could not register with membarrier(2). */
#define spr_full_fence() atomic_thread_fence(memory_order_seq_cst)

static inline void spr_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#define spr_likely(x)   __builtin_expect(!!(x), 1)
#define spr_unlikely(x) __builtin_expect(!!(x), 0)

#endif /* SPR_BASE_ATOMIC_H */
