/* SPDX-License-Identifier: MIT */
/*
 * kinds.h - the declaration of record kinds as bytes, in a channel and in a trace alike.
 *
 * The encoding is documented in docs/format.md ("Kinds"). Bytes come from shared memory or from a
 * file: every function here treats them as hostile.
 */
#ifndef SPR_BASE_KINDS_H
#define SPR_BASE_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/sparring.h>

#define SPR_KINDS_VERSION   1
#define SPR_KINDS_MAX       1000
#define SPR_KIND_FIELDS_MAX 64
#define SPR_KIND_NAME_MAX   63
#define SPR_FIELD_LABELS_MAX 1024
#define SPR_KINDS_BYTES_MAX (1u << 20) /* of one declaration */

/* Is this a declaration we can carry: names (unique, 1 to 63 bytes of [a-z0-9_]), types, flags and
 * labels in range, at most 1,000 kinds of at most 64 fields, at most 1 MiB encoded? "bytes" and
 * "blind" are taken. -EINVAL with a sentence. */
int spr_kinds_check(const struct spr_kind *kinds, uint32_t n_kinds);

/* Bytes the declaration takes; written to out only if they fit in room_bytes. */
size_t spr_kinds_encode(void *out, size_t room_bytes, const struct spr_kind *kinds,
                        uint32_t n_kinds);

/* One block from malloc that holds kinds, fields, names and labels: free(*out). -EPROTO, -ENOMEM.
 */
int spr_kinds_decode(struct spr_kind **out, uint32_t *n_kinds, const void *bytes, size_t n_bytes);

/* The number of a kind by name, counted from 1 ("bytes" is 0, "blind" SPR_KIND_BLIND); -ENOENT,
 * -EPROTO. Allocates nothing. T: any. S. */
int spr_kinds_find(const void *bytes, size_t n_bytes, const char *name);

/* Do two kinds have the same fields (names, types, flags)? Labels may differ. */
bool spr_kinds_alike(const struct spr_kind *a, const struct spr_kind *b);

/* What kind SPR_KIND_BLIND looks like: pid (u32), reason (string), text (string). */
extern const struct spr_kind spr_kind_blind;

#endif /* SPR_BASE_KINDS_H */
