/* SPDX-License-Identifier: MIT */
/*
 * program.h - what a program file is, told before it is executed: can the spy get into it?
 *
 * Compiled into libsparring-files.so too: system calls by number only, nothing allocated.
 */
#ifndef SPR_SPY_PROGRAM_H
#define SPR_SPY_PROGRAM_H

#include <stdbool.h>

/* What loaders put for $LIB in LD_PRELOAD, for programs of our class. */
#if defined(__x86_64__)
#define SPR_LIB_DIRS "lib/x86_64-linux-gnu", "lib64", "lib"
#elif defined(__aarch64__)
#define SPR_LIB_DIRS "lib/aarch64-linux-gnu", "lib64", "lib"
#endif

enum spr_spy_program_kind {
	SPR_SPY_PROGRAM_UNKNOWN,      /* cannot be read, or neither a program nor a script */
	SPR_SPY_PROGRAM_DYNAMIC,      /* the loader reads LD_PRELOAD */
	SPR_SPY_PROGRAM_STATIC,       /* no loader */
	SPR_SPY_PROGRAM_OTHER_CLASS,  /* of another word size or machine */
	SPR_SPY_PROGRAM_OTHER_LOADER, /* another libc's, to which $LIB means nothing */
};

struct spr_spy_program {
	enum spr_spy_program_kind kind;   /* of the program that runs in the end */
	bool                  script; /* ... for the sake of a first line "#!" */
	bool                  secure; /* runs with more rights than its caller: LD_* are dropped */
};

/* Look at dirfd/path (or at dirfd itself when path is empty) as execve would. Interpreters of
 * scripts are followed. -errno when it cannot be executed at all (as far as we can tell). T: any.
 * S. */
int spr_spy_program_look(struct spr_spy_program *out, int dirfd, const char *path);

/* The blind spot's name ("static", "setuid", ...); NULL: the spy gets in. */
const char *spr_spy_program_blind(const struct spr_spy_program *program);

#endif /* SPR_SPY_PROGRAM_H */
