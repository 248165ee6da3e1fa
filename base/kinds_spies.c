/* SPDX-License-Identifier: MIT */
/*
 * kinds_spies.c - the kinds of record that our own spies write, declared like anybody else's.
 *
 *   process  start: this image runs (first record of an attach or of a forked child).
 *            exec: the process is about to become `exe`; answered by the new image's start, or by
 *            a result when the call failed. exit: it is about to end by itself.
 *   file     one call on a path, committed before the call is made.
 *   result   a call that failed: of_ns is the time_ns of the file and process records of the same
 *            writer that it is about (the two that an exec makes carry the same stamp).
 *   memory   one call on the heap or the address space.
 * What does not fit is cut and ends in SPR_CUT_MARK (base/calls.h).
 */
#include <sparring/sparring.h>

#include "base/calls.h"

#define N_LABELS(labels) (uint32_t)(sizeof(labels) / sizeof((labels)[0]))

#define LABEL_CALL(name, kernel, way, access, shape, flags) #name,
#define LABEL_TWIN(symbol, name, way, access, shape, flags)

static const char *const file_ops[] = { SPR_CALLS(LABEL_CALL, LABEL_TWIN, LABEL_CALL) };
static const char *const file_accesses[] = { SPR_ACCESS_LABELS };
static const char *const process_ops[] = { "start", "exec", "exit" };
static const char *const memory_ops[] = {
	"malloc", "free", "realloc", "calloc", "reallocarray", "aligned_alloc", "memalign",
	"posix_memalign", "valloc", "pvalloc", "mmap", "munmap", "mremap", "brk", "sbrk", "new",
	"delete",
};

_Static_assert(N_LABELS(file_ops) == SPR_N_OPS, "each call has one label");

static const struct spr_field process_fields[] = {
	{ "op", SPR_U8, SPR_ENUM, process_ops, N_LABELS(process_ops), { 0 } },
	{ "ppid", SPR_U32, 0, NULL, 0, { 0 } },
	{ "exe", SPR_STRING, 0, NULL, 0, { 0 } },
	{ "argv", SPR_STRING, SPR_OPTIONAL | SPR_LIST, NULL, 0, { 0 } },
	{ "status", SPR_I32, SPR_OPTIONAL, NULL, 0, { 0 } },
};

static const struct spr_field file_fields[] = {
	{ "op", SPR_U16, SPR_ENUM, file_ops, N_LABELS(file_ops), { 0 } },
	{ "access", SPR_U32, SPR_FLAGS, file_accesses, N_LABELS(file_accesses), { 0 } },
	{ "path", SPR_STRING, 0, NULL, 0, { 0 } },
	{ "path2", SPR_STRING, SPR_OPTIONAL, NULL, 0, { 0 } },
};

static const struct spr_field result_fields[] = {
	{ "of_ns", SPR_U64, 0, NULL, 0, { 0 } },
	{ "error", SPR_U32, 0, NULL, 0, { 0 } },
};

static const struct spr_field memory_fields[] = {
	{ "op", SPR_U8, SPR_ENUM, memory_ops, N_LABELS(memory_ops), { 0 } },
	{ "addr", SPR_HEX64, 0, NULL, 0, { 0 } },
	{ "size", SPR_U64, SPR_OPTIONAL, NULL, 0, { 0 } },
	{ "old_addr", SPR_HEX64, SPR_OPTIONAL, NULL, 0, { 0 } },
};

const struct spr_kind spr_kinds_files[3] = {
	{ "process", process_fields, N_LABELS(process_fields), 0 },
	{ "file", file_fields, N_LABELS(file_fields), 0 },
	{ "result", result_fields, N_LABELS(result_fields), 0 },
};

const struct spr_kind spr_kind_memory = { "memory", memory_fields, N_LABELS(memory_fields), 0 };
