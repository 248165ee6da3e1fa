/* SPDX-License-Identifier: MIT */
/*
 * watch.h - stands between the collector and the encoder: sees every process come and go, and
 * keeps a failing output from harming anybody.
 *
 * Each exec that a hook saw is answered by the new image's first record, or by a result that says
 * it failed. What is unanswered at the end ran unseen: a blind spot with pid and program.
 */
#ifndef SPR_CLI_WATCH_H
#define SPR_CLI_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/sparring.h>

struct spr_cli_watch;

/* kinds: the channel's. inner: the encoder's sink; copied. NULL: out of memory. */
struct spr_cli_watch *spr_cli_watch_open(const struct spr_kind *kinds, uint32_t n_kinds,
                                         const struct spr_sink *inner);
void spr_cli_watch_close(struct spr_cli_watch *w);
/* The sink to add to the collector. It never fails: after the encoder's first error (which is
 * kept) batches are taken and dropped, and the target goes on. */
void spr_cli_watch_sink(struct spr_cli_watch *w, struct spr_sink *out);
/* The first error of the encoder, 0 so far none. */
int spr_cli_watch_error(const struct spr_cli_watch *w);
void spr_cli_watch_fail(struct spr_cli_watch *w, int err);
/* Records that were taken and dropped since then. */
uint64_t spr_cli_watch_dropped(const struct spr_cli_watch *w);

/* The root target is about to become exe: we are its hook. */
void spr_cli_watch_root(struct spr_cli_watch *w, int32_t pid, uint64_t time_ns, const char *exe);

/* At the end. each: called for every blind spot that the spies have written themselves. */
void spr_cli_watch_blind(struct spr_cli_watch *w,
                         void (*each)(void *arg, int32_t pid, const char *reason, const char *text),
                         void *arg);
/* each: called for every image that ran unseen and was not named by a spy. */
void spr_cli_watch_unanswered(struct spr_cli_watch *w,
                              void (*each)(void *arg, int32_t pid, const char *exe), void *arg);
size_t spr_cli_watch_processes(struct spr_cli_watch *w);

#endif /* SPR_CLI_WATCH_H */
