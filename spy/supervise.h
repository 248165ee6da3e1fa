/* SPDX-License-Identifier: MIT */
/*
 * supervise.h - the recorder's side of the spies: what the target's first program is given so that
 * the library is loaded into it, and everything it starts.
 */
#ifndef SPR_SPY_SUPERVISE_H
#define SPR_SPY_SUPERVISE_H

#include <stdbool.h>
#include <stddef.h>

struct spr_spy_options {
	bool no_argv; /* leave the arguments of programs out of the records */
};

/* What to put into LD_PRELOAD for libsparring-files.so: $SPARRING_LIB, else beside the running
 * binary ($LIB kept, so that each class of program loads its own), else where it was installed.
 * E: -ENOENT, -EACCES (its file system forbids execution: noexec), -EINVAL (the path has a space
 * or a colon, which LD_PRELOAD cannot carry), -ENAMETOOLONG; each with a sentence. */
int spr_spy_library(char *out, size_t room);

/* The environment of the target's first program: `from` with LD_PRELOAD, SPARRING_CHANNEL,
 * SPARRING_PRELOAD and SPARRING_SPY as spy/files_env.c describes them. Inside another recording the
 * outer one's channel stays. One block from malloc: free(*out). E: as above. */
int spr_spy_environment(char ***out, char *const *from, const char *address,
                        const struct spr_spy_options *opt);

#endif /* SPR_SPY_SUPERVISE_H */
