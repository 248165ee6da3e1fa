/* SPDX-License-Identifier: MIT */
/*
 * files_fd.c - what directory a descriptor is open on.
 *
 * /proc knows, but is asked at four to ten times the price of the call that we watch (a program
 * that walks a tree by descriptors would feel it). So the last answers are kept and proved before
 * they are used: the descriptor is open on the same object (one fstat), and the text still leads to
 * it (one more, if the last proof is older than a fraction of a millisecond or the program has
 * renamed something itself). No model of descriptors: which are closed or reused need not be known.
 *
 * The pair of this file:
 *   [FD]  an answer is written between two stores to its seq, odd and even; who copies it looks at
 *         seq before and after
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "spy/files.h"

#if defined(__x86_64__)
#define PROOF_TICKS 1000000u /* 0.3 ms at 3 GHz; a rename by another program takes longer to come */
#else
#define PROOF_TICKS 20000u
#endif

struct answer { /* a copy, off the page */
	uint64_t dev, ino, proved_at;
	uint32_t renames, n;
};

static bool answer_copy(struct spr_spy_fd *kept, struct answer *to, char *text, size_t room)
{
	const uint32_t seq = spr_load_acquire(&kept->seq); /* [FD] */

	if (!seq || seq & 1)
		return false;
	to->dev = kept->dev;
	to->ino = kept->ino;
	to->proved_at = kept->proved_at;
	to->renames = kept->renames;
	to->n = kept->n;
	if (to->n >= room)
		return false;
	memcpy(text, kept->text, to->n);
	text[to->n] = '\0';
	spr_acquire_fence(); /* [FD] */
	return spr_load_relaxed(&kept->seq) == seq;
}

static void answer_keep(struct spr_spy_fd *kept, const struct answer *from, const char *text)
{
	uint32_t seq = spr_load_relaxed(&kept->seq);

	if (from->n >= sizeof(kept->text) || seq & 1 || !spr_cas_acquire(&kept->seq, &seq, seq + 1))
		return; /* [FD] somebody else writes: theirs will do */
	spr_release_fence(); /* [FD] */
	kept->dev = from->dev;
	kept->ino = from->ino;
	kept->proved_at = from->proved_at;
	kept->renames = from->renames;
	kept->n = from->n;
	memcpy(kept->text, text, from->n);
	spr_store_release(&kept->seq, seq + 2); /* [FD] */
}

static bool is_open_on(const struct answer *a, const struct stat *st)
{
	return a->dev == st->st_dev && a->ino == st->st_ino;
}

/* Is the text a name of it still? */
static bool prove(struct spr_spy *spy, struct answer *a, const char *text)
{
	const uint64_t now = spr_clock_ticks();
	struct stat st;

	if (now - a->proved_at < PROOF_TICKS &&
	    a->renames == spr_load_relaxed(&spy->page->renames))
		return true;
	a->renames = spr_load_relaxed(&spy->page->renames);
	a->proved_at = now;
	return spr_sys(SYS_newfstatat, AT_FDCWD, text, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       is_open_on(a, &st);
}

uint32_t spr_spy_fd_text(struct spr_spy *spy, int fd, char *text, size_t room)
{
	struct spr_spy_fd *kept = &spy->page->fd[(unsigned)fd % SPR_SPY_FDS];
	struct answer a;
	struct stat st;
	uint64_t proved_at;

	if (!answer_copy(kept, &a, text, room) || spr_sys(SYS_fstat, fd, &st) < 0 ||
	    !is_open_on(&a, &st))
		return 0;
	proved_at = a.proved_at;
	if (!prove(spy, &a, text))
		return 0;
	if (a.proved_at != proved_at)
		answer_keep(kept, &a, text);
	return a.n;
}

void spr_spy_fd_keep(struct spr_spy *spy, int fd, const char *text, uint32_t n)
{
	struct answer a = { .proved_at = spr_clock_ticks(), .n = n };
	struct stat st;

	a.renames = spr_load_relaxed(&spy->page->renames);
	if (fd < 0 || text[0] != '/' || spr_sys(SYS_fstat, fd, &st) < 0 || !S_ISDIR(st.st_mode))
		return;
	a.dev = st.st_dev;
	a.ino = st.st_ino;
	answer_keep(&spy->page->fd[(unsigned)fd % SPR_SPY_FDS], &a, text);
}
