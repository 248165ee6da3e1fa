/* SPDX-License-Identifier: MIT */
/*
 * files.h - inside libsparring-files.so: code that lives in other people's processes.
 *
 * Rules for every line of spy/files_*.c (docs/spy.md has the reasons):
 *   - nothing is allocated, locked or printed, errno is the target's, stack frames are small;
 *   - system calls of our own go by number (base/sys.h); the target's call goes through
 *     spr_spy_call(), once, after its record is committed;
 *   - state of the process lies in struct spr_spy_page, which a forked child finds wiped and a
 *     vfork child shares with its parent; so nothing a vfork child writes there may be about
 * itself.
 */
#ifndef SPR_SPY_FILES_H
#define SPR_SPY_FILES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/sparring.h>

#include "base/atomic.h"
#include "base/calls.h"
#include "base/sys.h"

#define SPR_EXPORT __attribute__((visibility("default")))
#define SPR_HIDE   __attribute__((visibility("hidden")))
/* One copy per thread, reachable without a call: the loader places it when the program starts. */
#define SPR_THREAD static __thread __attribute__((tls_model("initial-exec")))

/* A hook's C name; the symbol is the target's. Declaring it by assembler name keeps libc's
 * prototypes out: their attributes (nonnull, builtin) would let the compiler drop our checks. */
#define SPR_HOOK(symbol) spr_hook_##symbol

/* The target's; libc's own variable, which a program without one lacks. */
extern char **environ __attribute__((weak));

/* --- The table as data: one row per symbol, in the order of base/calls.h -------------------- */

enum spr_way { SPR_WAY_RAW, SPR_WAY_LIBC, SPR_WAY_PTR, SPR_WAY_HAND, SPR_WAY_ABSENT };

#define SPR_ROW_CALL(name, kernel, way, access, shape, flags) SPR_ROW_##name,
#define SPR_ROW_QUIET(symbol, why)                            SPR_ROW_##symbol,
enum spr_row_number {
	SPR_CALLS(SPR_ROW_CALL, SPR_ROW_CALL, SPR_ROW_CALL) SPR_CALLS_QUIET(SPR_ROW_QUIET)
		SPR_N_ROWS
};

struct spr_spy_row {
	char     symbol[24]; /* in place: a pointer would be a relocation in every process */
	uint32_t access;
	uint16_t op;
	int16_t  nr; /* -1: none */
	uint8_t  way, shape, flags;
};
SPR_HIDE extern const struct spr_spy_row spr_spy_rows[SPR_N_ROWS];
/* The row of system call nr; NULL if it is none of ours. */
SPR_HIDE const struct spr_spy_row *spr_spy_row_by_nr(long nr);

/* --- What we are: attached to whom ---------------------------------------------------------- */

#define SPR_SPY_CHANNELS_MAX 4u /* recordings inside one another */
#define SPR_SPY_SCRATCHES    16u
#define SPR_SPY_SCRATCH      4096u

#define SPR_SPY_FDS    16u
#define SPR_SPY_BLOCKS 128u

struct spr_spy_fd { /* what directory a descriptor was open on: files_fd.c */
	_Atomic uint32_t seq; /* odd: being written; 0: empty. [FD] */
	uint32_t         renames, n;
	uint64_t         dev, ino, proved_at;
	char             text[256 - 40];
};

/* Wiped in a forked child (which so knows that it is new), shared by a vfork child. */
struct spr_spy_page {
	_Atomic uint32_t pid; /* whose page it is; 0: a new process, which has to say so */
	/* The working directory: chdir and fchdir count moves_begun before and moves_ended after
	 * the call. The text is good while cwd_of == moves_begun == moves_ended. [CWD] */
	_Atomic uint32_t moves_begun, moves_ended;
	_Atomic uint32_t cwd_of;      /* 0: none; else moves_begun + 1 of the text */
	_Atomic uint32_t cwd_filling; /* somebody writes the text */
	_Atomic uint32_t cwd_apart;   /* threads have working directories of their own: keep none */
	_Atomic uint32_t scratches;   /* bit n: scratch n is in use */
	uint32_t         cwd_bytes;
	_Atomic uint32_t renames;     /* made by this process */
	_Atomic uint32_t readable[SPR_SPY_BLOCKS]; /* addresses >> 16 that were proved */
	_Alignas(4096) char cwd[4096];
	struct spr_spy_fd fd[SPR_SPY_FDS];
	char scratch[SPR_SPY_SCRATCHES][SPR_SPY_SCRATCH];
};

struct spr_spy_channel {
	spr_producer *producer;
	uint32_t      kind_process, kind_file, kind_result;
};

/* The first line of the cache is all that the common case looks at. */
struct spr_spy {
	struct spr_spy_page   *page;
	_Atomic uint32_t       simple; /* attached to one channel; no root, no filter of its own */
	uint32_t               n_channels;
	_Atomic uint32_t       confined; /* the target filters its system calls: make none */
	_Atomic uint32_t       root_bytes;
	uint64_t               no_argv; /* option "no-argv" */
	uint64_t               emulated; /* by valgrind, which checks what system calls are given */
	struct spr_spy_channel channel[SPR_SPY_CHANNELS_MAX];
} __attribute__((aligned(64)));
SPR_HIDE extern struct spr_spy spr_spy_state;

/* The spy if this process is recorded, else NULL. Attaches at the first call. S. */
SPR_HIDE struct spr_spy *spr_spy_here(void);
/* A process of its own that has no page yet: it writes its start record. */
SPR_HIDE void spr_spy_born(struct spr_spy *spy, char *const *argv);
/* Is the caller a child that shares its parent's memory? Its pid, else 0. One system call. */
SPR_HIDE uint32_t spr_spy_borrower(const struct spr_spy *spy);
SPR_HIDE void spr_spy_blind(struct spr_spy *spy, uint32_t pid, const char *reason,
                            const char *text);

/* --- Paths and records ---------------------------------------------------------------------- */

/* Bytes to be joined: directory, a slash if it needs one, name. */
struct spr_spy_path {
	const char *dir, *name;
	uint32_t    dir_bytes, name_bytes, root_bytes; /* root: what chroot put in front */
	uint32_t    cwd_of;  /* dir is page->cwd and good while this is so; 0: it is not */
	uint32_t    scratch; /* dir lies there; + 1 */
	uint32_t    cut;     /* name was longer than SPR_PATH_BYTES_MAX */
	char        small[112]; /* most directories fit; longer ones go to a scratch */
};
/* What a record left behind for a result to refer to. */
struct spr_spy_mark {
	uint32_t n, pid; /* pid: of a vfork child, 0 for oneself */
	struct {
		spr_writer *writer;
		uint64_t    time_ns;
	} of[SPR_SPY_CHANNELS_MAX];
};

#define SPR_NO_PATH ((const char *)0)
#define SPR_NO_FD   (-4096) /* a path that is text: joined to nothing */

/* Commit a record of kind "file". dirfd may be AT_FDCWD or SPR_NO_FD; path2 may be SPR_NO_PATH.
 * pid: 0, or the vfork child that does it. */
SPR_HIDE void spr_spy_file(struct spr_spy *spy, struct spr_spy_mark *mark, uint32_t pid,
                           uint32_t op, uint32_t access, int dirfd, const char *path, int dirfd2,
                           const char *path2);
/* The record a row describes, found in its arguments. */
SPR_HIDE void spr_spy_note(struct spr_spy *spy, struct spr_spy_mark *mark,
                           const struct spr_spy_row *row, const long *arg);
/* Commit a record of kind "process". exe is joined to dirfd, NULL: what runs here; argv may be
 * NULL. same: whose stamps to carry (the file record of the same exec), or NULL. */
SPR_HIDE void spr_spy_life(struct spr_spy *spy, const struct spr_spy_mark *same, uint32_t pid,
                              uint32_t op, int dirfd, const char *exe, char *const *argv);
/* What the mark stands for has failed. */
SPR_HIDE void spr_spy_failed(struct spr_spy *spy, const struct spr_spy_mark *mark, int error);
/* The access that open's flags, or fopen's mode, ask for. */
SPR_HIDE uint32_t spr_spy_access_of_flags(int flags);

/* Where a path stands; the caller drops it. */
SPR_HIDE void spr_spy_path_find(struct spr_spy *spy, struct spr_spy_path *p, int dirfd,
                                const char *path, bool fresh);
/* What a link in /proc says. */
SPR_HIDE void spr_spy_path_link(struct spr_spy *spy, struct spr_spy_path *p, const char *link);
/* Can this be read? What the kernel answers EFAULT to must not kill us. Asked once per 64 KiB of
 * memory, by a system call that reads and does nothing: a page that has gone since, or has no
 * access beside one that has, is not noticed. */
SPR_HIDE bool spr_spy_pointer_prove(const void *pointer);
static inline bool spr_spy_pointer_ok(const void *pointer)
{
	const uintptr_t at = (uintptr_t)pointer, block = at >> 16;
	const struct spr_spy_page *page = spr_spy_state.page;

	if (at - (uintptr_t)__builtin_frame_address(0) < 1u << 15)
		return true; /* in a frame above this one, or in main's arguments */
	if (spr_likely(block && page &&
	               spr_load_relaxed(&page->readable[block % SPR_SPY_BLOCKS]) == block))
		return true;
	return spr_spy_pointer_prove(pointer);
}
SPR_HIDE void spr_spy_path_drop(struct spr_spy *spy, struct spr_spy_path *p);
SPR_HIDE uint32_t spr_spy_path_bytes(const struct spr_spy_path *p);
/* SPR_SPY_SCRATCH bytes of the process; NULL: all are in use. A longjmp over its user loses one. */
SPR_HIDE char *spr_spy_scratch_take(struct spr_spy *spy);
SPR_HIDE void spr_spy_scratch_drop(struct spr_spy *spy, char *scratch);
/* Write it out; false: the working directory changed meanwhile, find it again. */
SPR_HIDE bool spr_spy_path_write(const struct spr_spy *spy, const struct spr_spy_path *p,
                                 char *out);

/* The directory that fd is open on, from memory and proved: bytes in text; 0: ask. */
SPR_HIDE uint32_t spr_spy_fd_text(struct spr_spy *spy, int fd, char *text, size_t room);
SPR_HIDE void spr_spy_fd_keep(struct spr_spy *spy, int fd, const char *text, uint32_t n);

/* A vfork child of this thread has moved: it and we have different directories, and one memory. */
SPR_HIDE extern __thread uint32_t spr_spy_cwd_borrowed __attribute__((tls_model("initial-exec")));
/* The working directory is about to change, has (perhaps) changed. */
SPR_HIDE void spr_spy_cwd_moves(struct spr_spy *spy);
SPR_HIDE void spr_spy_cwd_moved(struct spr_spy *spy);
/* The program has renamed something: a folder above one that we remember, perhaps. */
SPR_HIDE void spr_spy_cwd_renamed(struct spr_spy *spy);
/* A vfork child of this thread that had moved has gone. */
SPR_HIDE void spr_spy_cwd_back(void);
/* Fill the cache while system calls may still be made. */
SPR_HIDE void spr_spy_cwd_keep(struct spr_spy *spy);

/* chroot: name the directory before the call, make it the root after it. */
SPR_HIDE uint32_t spr_spy_root_find(struct spr_spy *spy, const char *path);
SPR_HIDE void spr_spy_root_set(struct spr_spy *spy, uint32_t bytes);
SPR_HIDE extern char spr_spy_root[4096];

/* --- Making the call ------------------------------------------------------------------------ */

/* The target's calls that a hook makes by number itself; later from the gate page, too. */
#define spr_spy_kernel(...) spr_sys(__VA_ARGS__)
/* What was found before, by row. */
SPR_HIDE extern void *_Atomic spr_spy_next_known[SPR_N_ROWS];
/* The next definition of a symbol behind this library, as dlsym(RTLD_NEXT) finds it, but without
 * its lock and its allocations. NULL: there is none. S. */
SPR_HIDE void *spr_spy_next(enum spr_row_number n);
/* The same for any name; not remembered. */
SPR_HIDE void *spr_spy_next_find(const char *name);
/* The definition that the program itself calls: of malloc it may have its own. */
SPR_HIDE void *spr_spy_next_find_first(const char *name);
/* Before anybody else's constructor: hide from those who want no library before theirs. */
SPR_HIDE void spr_spy_next_rename(void);

/* The one place from which the target's calls are made: libc's function (the next symbol), later
 * the gate page for those the table calls RAW. Arguments that the call does not take are ignored.
 */
static inline long spr_spy_call(const struct spr_spy_row *row, long a, long b, long c, long d,
                                long e, long f)
{
	const enum spr_row_number n = (enum spr_row_number)(row - spr_spy_rows);
	long (*call)(long, long, long, long, long, long) = spr_load_relaxed(&spr_spy_next_known[n]);

	if (spr_unlikely(!call))
		call = spr_spy_next(n);
	if (spr_likely(call != NULL))
		return call(a, b, c, d, e, f);
	errno = ENOSYS; /* this libc has no such function, and we do not pretend otherwise */
	return row->way == SPR_WAY_PTR ? 0 : -1;
}

/* --- Running programs ----------------------------------------------------------------------- */

/* Room that spr_spy_env_make() wants for envp, in bytes; 0: envp can be passed as it is. */
SPR_HIDE size_t spr_spy_env_bytes(const struct spr_spy *spy, char *const *envp);
/* room: that many bytes, aligned for pointers. */
SPR_HIDE char *const *spr_spy_env_make(const struct spr_spy *spy, char *const *envp, void *room);
/* Remember what the environment carries for us. -ENOENT: nothing. */
SPR_HIDE int spr_spy_env_keep(char *const *envp);
SPR_HIDE const char *spr_spy_env_channels(void); /* one a line */
/* From now on programs that are executed are told not to attach. */
SPR_HIDE void spr_spy_env_confine(void);
SPR_HIDE const char *spr_spy_env_get(char *const *envp, const char *name);
/* Environments that take more than this come from a mapping, not from the stack. */
#define SPR_SPY_ENV_STACK_BYTES 2048u
/* Memory of this thread for one environment; kept, since a vfork child cannot give it back. */
SPR_HIDE void *spr_spy_env_room(size_t bytes);

/* What every attempt to execute is preceded by. pid: 0, or the vfork child that makes it. */
SPR_HIDE void spr_spy_exec_note(struct spr_spy *spy, struct spr_spy_mark *mark, uint32_t pid,
                                uint32_t op, int dirfd, const char *path, char *const *argv);
/* execve with a record before it. search: look for file in PATH as execvp does. -1 and errno. */
SPR_HIDE int spr_spy_exec(enum spr_row_number n, int dirfd, const char *file, char *const *argv,
                          char *const *envp, int flags, bool search);
/* The same in a child of our own making: no errno, envp as it is to be passed, a file without a
 * first line not given to the shell: -errno. */
SPR_HIDE int spr_spy_exec_raw(struct spr_spy *spy, uint32_t pid, enum spr_row_number n,
                              const char *file, char *const *argv, char *const *envp, bool search);

#endif /* SPR_SPY_FILES_H */
