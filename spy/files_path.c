/* SPDX-License-Identifier: MIT */
/*
 * files_path.c - where a path stands: the directory in front of it, without asking twice.
 *
 * A getcwd for each relative path costs half of an open again, so its answer is kept until chdir
 * or fchdir. The pairs of this file:
 *   [CWD]      the text and its length are stored before cwd_of; who copies the text looks at
 *              cwd_of before and after, and throws away what changed under it
 *   [FILL]     who writes the text finds what the one before it wrote
 *   [SCRATCH]  a scratch is left before another takes it
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>

#include "spy/files.h"

char spr_spy_root[4096]; /* what chroot put in front of every path; survives fork */

__thread uint32_t spr_spy_cwd_borrowed __attribute__((tls_model("initial-exec")));

/* rt_sigprocmask with a `how` that is none copies the set before it refuses. Valgrind would print
 * that as an error of the program's: it is asked less, whether a page is there. */
static bool is_unreadable(const struct spr_spy *spy, uintptr_t at)
{
	unsigned char resident;

	if (spr_unlikely(spy->emulated))
		return spr_sys(SYS_mincore, at & ~(uintptr_t)4095, 4096, &resident) == -ENOMEM;
	return spr_sys(SYS_rt_sigprocmask, -1, at & ~(uintptr_t)7, NULL, 8) == -EFAULT;
}

bool spr_spy_pointer_prove(const void *pointer)
{
	struct spr_spy *spy = &spr_spy_state;
	const uintptr_t at = (uintptr_t)pointer;

	if (at < 0x10000 || at >= 1ull << 47)
		return false;
	if (!spy->page || spr_load_relaxed(&spy->confined))
		return true;
	if (is_unreadable(spy, at))
		return false;
	spr_store_relaxed(&spy->page->readable[(at >> 16) % SPR_SPY_BLOCKS], (uint32_t)(at >> 16));
	return true;
}

static uint32_t scratch_claim(struct spr_spy *spy)
{
	uint32_t used = spr_load_relaxed(&spy->page->scratches);

	for (uint32_t i = 0; i < SPR_SPY_SCRATCHES; i++) {
		if (used & 1u << i)
			continue;
		if (spr_cas_acquire(&spy->page->scratches, &used, used | 1u << i)) /* [SCRATCH] */
			return i + 1;
		i = (uint32_t)-1; /* somebody was quicker: look again */
	}
	return 0;
}

static void scratch_leave(struct spr_spy *spy, uint32_t number)
{
	if (number)
		spr_and_acq_rel(&spy->page->scratches, ~(1u << (number - 1))); /* [SCRATCH] */
}

char *spr_spy_scratch_take(struct spr_spy *spy)
{
	const uint32_t number = scratch_claim(spy);

	return number ? spy->page->scratch[number - 1] : NULL;
}

void spr_spy_scratch_drop(struct spr_spy *spy, char *scratch)
{
	if (scratch)
		scratch_leave(spy,
		              (uint32_t)((scratch - spy->page->scratch[0]) / SPR_SPY_SCRATCH) + 1);
}

void spr_spy_path_drop(struct spr_spy *spy, struct spr_spy_path *p)
{
	scratch_leave(spy, p->scratch);
	p->scratch = 0;
}

/* getcwd without libc: its length without the NUL, or -errno. */
static long cwd_ask(char *out, size_t room)
{
	const long n = spr_sys(SYS_getcwd, out, room);

	return n > 0 ? n - 1 : n;
}

/* After a chroot the kernel tells directories inside from the new root, others "(unreachable)". */
static void path_under_root(struct spr_spy_path *p)
{
	static const char outside[] = "(unreachable)";
	const uint32_t n = sizeof(outside) - 1;

	if (p->dir_bytes > n && memcmp(p->dir, outside, n) == 0) {
		p->dir += n;
		p->dir_bytes -= n;
		p->root_bytes = 0;
	}
}

/* Ask for text that may be long: first on the stack, then in a scratch. What fits into neither is
 * left out and marked as cut. */
static void path_ask(struct spr_spy *spy, struct spr_spy_path *p,
                     long (*ask)(const char *what, char *out, size_t room), const char *what)
{
	long n = ask(what, p->small, sizeof(p->small));

	p->dir = p->small;
	if (n == -ERANGE || n == (long)sizeof(p->small)) {
		p->scratch = scratch_claim(spy);
		if (p->scratch) {
			p->dir = spy->page->scratch[p->scratch - 1];
			n = ask(what, spy->page->scratch[p->scratch - 1], SPR_SPY_SCRATCH);
		} else {
			p->cut = 1;
		}
	}
	p->dir_bytes = n > 0 ? (uint32_t)n : 0;
}

static long ask_cwd(const char *what, char *out, size_t room)
{
	(void)what;
	return cwd_ask(out, room);
}

static long ask_link(const char *what, char *out, size_t room)
{
	return spr_sys(SYS_readlinkat, AT_FDCWD, what, out, room);
}

void spr_spy_path_link(struct spr_spy *spy, struct spr_spy_path *p, const char *link)
{
	memset(p, 0, offsetof(struct spr_spy_path, small));
	p->dir = p->small;
	if (!spr_load_relaxed(&spy->confined))
		path_ask(spy, p, ask_link, link);
}

/* The cached text if it is good. */
static bool cwd_cached(struct spr_spy *spy, struct spr_spy_path *p)
{
	struct spr_spy_page *page = spy->page;
	const uint32_t of = spr_load_acquire(&page->cwd_of); /* [CWD] */
	const uint32_t bytes = page->cwd_bytes;

	if (!of || of != spr_load_relaxed(&page->moves_begun) + 1 ||
	    of != spr_load_relaxed(&page->moves_ended) + 1 || bytes > sizeof(page->cwd))
		return false;
	p->dir = page->cwd;
	p->dir_bytes = bytes;
	p->cwd_of = of;
	return true;
}

static void cwd_fill(struct spr_spy *spy)
{
	struct spr_spy_page *page = spy->page;
	const uint32_t of = spr_load_relaxed(&page->moves_begun) + 1;
	uint32_t idle = 0;
	long n;

	if (of != spr_load_relaxed(&page->moves_ended) + 1 ||
	    !spr_cas_acquire(&page->cwd_filling, &idle, 1)) /* [FILL] */
		return;
	spr_store_relaxed(&page->cwd_of, 0);
	spr_release_fence(); /* [CWD] a reader who copies what follows finds cwd_of changed */
	n = cwd_ask(page->cwd, sizeof(page->cwd));
	page->cwd_bytes = n > 0 ? (uint32_t)n : 0;
	if (n > 0 && page->cwd[0] == '/' && of == spr_load_relaxed(&page->moves_begun) + 1)
		spr_store_release(&page->cwd_of, of); /* [CWD] */
	spr_store_release(&page->cwd_filling, 0); /* [FILL] */
}

/* Does this thread's directory differ from the process's? One system call while it may. */
static bool cwd_is_borrowed(struct spr_spy *spy)
{
	if (spr_likely(!spr_spy_cwd_borrowed))
		return false;
	if (spr_spy_borrower(spy))
		return true;
	spr_spy_cwd_borrowed = 0; /* the child has gone: this thread could not run before */
	return false;
}

static void path_cwd(struct spr_spy *spy, struct spr_spy_path *p, bool fresh)
{
	const bool apart = cwd_is_borrowed(spy) || spr_load_relaxed(&spy->page->cwd_apart);

	if (!fresh && !apart) {
		if (spr_likely(cwd_cached(spy, p)))
			return;
		if (!spr_load_relaxed(&spy->confined)) {
			cwd_fill(spy);
			if (cwd_cached(spy, p))
				return;
		}
	}
	if (!spr_load_relaxed(&spy->confined))
		path_ask(spy, p, ask_cwd, NULL);
	else
		p->dir_bytes = 0;
}

/* A directory that was removed, lies deeper than the kernel can say, or below no root of ours: its
 * link's own name is the honest answer, and an absolute one. */
static void path_lost_cwd(struct spr_spy_path *p)
{
	static const char link[] = "/proc/thread-self/cwd";

	if (p->dir_bytes && p->dir[0] == '/')
		return;
	p->root_bytes = 0;
	p->dir = p->small;
	p->dir_bytes = sizeof(link) - 1;
	memcpy(p->small, link, sizeof(link) - 1);
}

/* "/proc/thread-self/fd/7" (a thread may have a table of its own). */
static uint32_t fd_link(char *link, int fd)
{
	static const char proc[] = "/proc/thread-self/fd/";
	char digits[12];
	uint32_t n = 0, at = sizeof(proc) - 1;
	uint32_t left = fd < 0 ? 0u - (uint32_t)fd : (uint32_t)fd;

	memcpy(link, proc, sizeof(proc));
	do
		digits[n++] = (char)('0' + left % 10);
	while (left /= 10);
	if (fd < 0)
		link[at++] = '-';
	while (n)
		link[at++] = digits[--n];
	link[at] = '\0';
	return at;
}

/* Where it cannot be known, the link's own name is the honest answer. */
static void path_fd(struct spr_spy *spy, struct spr_spy_path *p, int fd)
{
	char link[40];
	uint32_t n;

	p->dir = p->small;
	if (!spr_load_relaxed(&spy->confined)) {
		p->dir_bytes = spr_spy_fd_text(spy, fd, p->small, sizeof(p->small));
		if (p->dir_bytes)
			return;
	}
	n = fd_link(link, fd);
	if (!spr_load_relaxed(&spy->confined))
		path_ask(spy, p, ask_link, link);
	if (p->dir_bytes) {
		spr_spy_fd_keep(spy, fd, p->dir, p->dir_bytes);
	} else {
		p->root_bytes = 0;
		p->dir = p->small;
		p->dir_bytes = n;
		memcpy(p->small, link, n);
	}
}

void spr_spy_path_find(struct spr_spy *spy, struct spr_spy_path *p, int dirfd, const char *path,
                       bool fresh)
{
	memset(p, 0, offsetof(struct spr_spy_path, small));
	p->dir = p->small;
	p->name = path ? path : "";
	p->name_bytes = (uint32_t)strnlen(p->name, SPR_PATH_BYTES_MAX + 1);
	if (p->name_bytes > SPR_PATH_BYTES_MAX) {
		p->name_bytes = SPR_PATH_BYTES_MAX - (uint32_t)(sizeof(SPR_CUT_MARK) - 1);
		p->cut = 1;
	}
	if (dirfd == SPR_NO_FD)
		return;
	p->root_bytes = spr_load_relaxed(&spy->root_bytes);
	if (p->name[0] == '/')
		return;
	if (dirfd == AT_FDCWD)
		path_cwd(spy, p, fresh);
	else
		path_fd(spy, p, dirfd);
	if (spr_unlikely(p->root_bytes))
		path_under_root(p);
	if (dirfd == AT_FDCWD)
		path_lost_cwd(p);
}

/* A name relative to a directory stands behind a slash; the directory alone (no name) does not. */
static bool path_has_slash(const struct spr_spy_path *p)
{
	return p->dir_bytes && p->name_bytes && p->dir[p->dir_bytes - 1] != '/';
}

uint32_t spr_spy_path_bytes(const struct spr_spy_path *p)
{
	return p->root_bytes + p->dir_bytes + path_has_slash(p) + p->name_bytes +
	       (p->cut ? (uint32_t)(sizeof(SPR_CUT_MARK) - 1) : 0);
}

bool spr_spy_path_write(const struct spr_spy *spy, const struct spr_spy_path *p, char *out)
{
	const bool slash = path_has_slash(p);

	if (p->root_bytes)
		memcpy(out, spr_spy_root, p->root_bytes);
	out += p->root_bytes;
	memcpy(out, p->dir, p->dir_bytes);
	out += p->dir_bytes;
	if (slash)
		*out++ = '/';
	memcpy(out, p->name, p->name_bytes);
	if (p->cut)
		memcpy(out + p->name_bytes, SPR_CUT_MARK, sizeof(SPR_CUT_MARK) - 1);
	if (!p->cwd_of)
		return true;
	spr_acquire_fence(); /* [CWD] */
	return spr_load_relaxed(&spy->page->cwd_of) == p->cwd_of;
}

/* --- The directory moves -------------------------------------------------------------------- */

void spr_spy_cwd_moves(struct spr_spy *spy)
{
	if (spr_spy_borrower(spy))
		spr_spy_cwd_borrowed =
			1; /* the child moves, its parent, whose memory this is, does not */
	else
		spr_add_relaxed(&spy->page->moves_begun, 1);
}

void spr_spy_cwd_moved(struct spr_spy *spy)
{
	if (!cwd_is_borrowed(spy))
		spr_add_relaxed(&spy->page->moves_ended, 1);
}

void spr_spy_cwd_renamed(struct spr_spy *spy)
{
	spr_add_relaxed(&spy->page->renames, 1);
	spr_add_relaxed(&spy->page->moves_begun, 1);
	spr_add_relaxed(&spy->page->moves_ended, 1);
}

void spr_spy_cwd_back(void)
{
	spr_spy_cwd_borrowed = 0;
}

void spr_spy_cwd_keep(struct spr_spy *spy)
{
	if (!spr_load_relaxed(&spy->confined) && !spr_spy_cwd_borrowed)
		cwd_fill(spy);
}

/* --- The root moves ------------------------------------------------------------------------- */

/* Written before the call, while /proc can be asked; not looked at before spr_spy_root_set(). A
 * second chroot is below the first: its text is put behind the first's. */
uint32_t spr_spy_root_find(struct spr_spy *spy, const char *path)
{
	const uint32_t had = spr_load_relaxed(&spy->root_bytes);
	const int fd = (int)spr_sys(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct spr_spy_path p;
	uint32_t bytes = 0;

	if (fd < 0)
		return 0;
	memset(&p, 0, offsetof(struct spr_spy_path, small));
	path_fd(spy, &p, fd);
	spr_sys(SYS_close, fd);
	if (p.dir_bytes > 1 && had + p.dir_bytes < sizeof(spr_spy_root)) {
		memcpy(spr_spy_root + had, p.dir, p.dir_bytes);
		bytes = had + p.dir_bytes;
	}
	spr_spy_path_drop(spy, &p);
	return bytes;
}

void spr_spy_root_set(struct spr_spy *spy, uint32_t bytes)
{
	if (bytes && !spr_spy_borrower(spy)) {
		spr_store_relaxed(&spy->root_bytes, bytes);
		spr_store_relaxed(&spy->simple, 0);
	}
}
