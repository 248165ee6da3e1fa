/* SPDX-License-Identifier: MIT */
/* files_record.c - one record for one call, written straight into the ring's slot. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "spy/files.h"

struct open_how_head { /* what openat2 is given; newer kernels only append */
	uint64_t flags, mode, resolve;
};

static char *put(char *out, const void *bytes, size_t n)
{
	memcpy(out, bytes, n);
	return out + n;
}

static int reserve(spr_writer *w, uint32_t pid, uint32_t kind, uint32_t bytes,
                   struct spr_slot *slot)
{
	if (spr_unlikely(pid))
		return spr_reserve_for(w, pid, pid, kind, bytes, slot);
	return spr_reserve(w, kind, bytes, slot);
}

/* NULL: the working directory changed under us. */
static char *put_path(const struct spr_spy *spy, char *out, const struct spr_spy_path *p)
{
	const uint16_t n = (uint16_t)spr_spy_path_bytes(p);

	out = put(out, &n, sizeof(n));
	return spr_spy_path_write(spy, p, out) ? out + n : NULL;
}

/* --- "file" --------------------------------------------------------------------------------- */

struct file {
	uint32_t            pid, access;
	uint16_t            op;
	bool                has2;
	struct spr_spy_path path, path2;
};

static bool file_write(struct spr_spy *spy, struct spr_spy_mark *mark, uint32_t i,
                       const struct file *f)
{
	spr_writer *w = spr_writer_here(spy->channel[i].producer);
	const uint8_t has2 = f->has2;
	const uint32_t bytes = 2 + 4 + 2 + spr_spy_path_bytes(&f->path) + 1 +
	                       (has2 ? 2 + spr_spy_path_bytes(&f->path2) : 0);
	struct spr_slot slot;
	char *out;

	mark->of[i].writer = NULL;
	if (reserve(w, f->pid, spy->channel[i].kind_file, bytes, &slot) < 0)
		return true; /* counted where it was refused */
	out = put(slot.data, &f->op, sizeof(f->op));
	out = put(out, &f->access, sizeof(f->access));
	out = put_path(spy, out, &f->path);
	if (out)
		out = put(out, &has2, 1);
	if (out && has2)
		out = put_path(spy, out, &f->path2);
	if (!out) {
		spr_abandon(w, &slot);
		return false;
	}
	mark->of[i].time_ns = slot.time_ns;
	if (spr_commit(w, &slot) == 0)
		mark->of[i].writer = w;
	return true;
}

void spr_spy_file(struct spr_spy *spy, struct spr_spy_mark *mark, uint32_t pid, uint32_t op,
                  uint32_t access, int dirfd, const char *path, int dirfd2, const char *path2)
{
	struct file f;
	uint32_t i = 0;

	f.pid = pid;
	f.op = (uint16_t)op;
	f.access = access;
	f.has2 = path2 != SPR_NO_PATH;
	mark->n = spy->n_channels;
	mark->pid = pid;
	for (unsigned tries = 0; i < spy->n_channels; tries++) {
		spr_spy_path_find(spy, &f.path, dirfd, path, tries > 1);
		if (f.has2)
			spr_spy_path_find(spy, &f.path2, dirfd2, path2, tries > 1);
		while (i < spy->n_channels && file_write(spy, mark, i, &f))
			i++;
		if (f.has2)
			spr_spy_path_drop(spy, &f.path2);
		spr_spy_path_drop(spy, &f.path);
	}
}

uint32_t spr_spy_access_of_flags(int flags)
{
	const int how = flags & O_ACCMODE;
	uint32_t access = how == O_RDONLY ? SPR_READ_FILE :
	                  how == O_WRONLY ? SPR_WRITE :
	                                    SPR_READ_FILE | SPR_WRITE;

	if (flags & O_PATH)
		return SPR_STAT;
	if (flags & O_TRUNC)
		access |= SPR_WRITE;
	if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE)
		access |= SPR_CREATE;
	return access;
}

static uint32_t access_of_mode(const char *mode)
{
	uint32_t access;

	if (!spr_spy_pointer_ok(mode))
		return SPR_READ_FILE;
	access = mode[0] == 'r' ? SPR_READ_FILE : SPR_WRITE | SPR_CREATE;
	for (unsigned i = 1; mode[0] && i < 8 && mode[i] && mode[i] != ','; i++) {
		if (mode[i] == '+')
			access |= SPR_READ_FILE | SPR_WRITE;
	}
	return access;
}

static uint32_t access_of_row(const struct spr_spy_row *row, const long *arg)
{
	const struct open_how_head *how;

	switch (row->access) {
	case SPR_BY_FLAGS:
		return spr_spy_access_of_flags((int)arg[row->flags]);
	case SPR_BY_MODE:
		return access_of_mode((const char *)arg[row->flags]);
	case SPR_BY_HOW:
		how = (const void *)arg[row->flags];
		return spr_spy_pointer_ok(how) ? spr_spy_access_of_flags((int)how->flags) :
		                                 SPR_READ_FILE;
	default:
		return row->access;
	}
}

/* Where a shape keeps its paths; -1: it has none. */
static const struct {
	int8_t dirfd, path, dirfd2, path2;
} places[] = {
	[SPR_SHAPE_P] = { -1, 0, -1, -1 },    [SPR_SHAPE_P1] = { -1, 1, -1, -1 },
	[SPR_SHAPE_DP] = { 0, 1, -1, -1 },    [SPR_SHAPE_DP1] = { 1, 2, -1, -1 },
	[SPR_SHAPE_PP] = { -1, 0, -1, 1 },    [SPR_SHAPE_DPDP] = { 0, 1, 2, 3 },
	[SPR_SHAPE_TP] = { -1, 1, -1, 0 },    [SPR_SHAPE_TDP] = { 1, 2, -1, 0 },
	[SPR_SHAPE_F] = { 0, -1, -1, -1 },    [SPR_SHAPE_NONE] = { -1, -1, -1, -1 },
};

/* A call on the descriptor itself (fstat in the clothes of fstatat) has no path. */
static bool on_descriptor(const struct spr_spy_row *row, const long *arg, const char *path)
{
	return !path[0] && row->access != SPR_BY_FLAGS && row->flags < 6 &&
	       (arg[row->flags] & AT_EMPTY_PATH);
}

/* A string's length, eight bytes at a time; reads no page that the string is not on. More than
 * DIRECT_BYTES_MAX: that, about. */
#define DIRECT_BYTES_MAX 1024u

static inline uint32_t length(const char *s)
{
	typedef uint64_t __attribute__((may_alias)) word;
	const word ones = 0x0101010101010101ull, highs = 0x8080808080808080ull;
	const word *at = (const word *)((uintptr_t)s & ~(uintptr_t)7);
	const unsigned skip = ((uintptr_t)s & 7) * 8;
	word w = *at | (((word)1 << skip) - 1); /* what stands before the string is not 0 */

	while (!((w - ones) & ~w & highs) &&
	       (uintptr_t)at - (uintptr_t)s + 8 < DIRECT_BYTES_MAX + 16)
		w = *++at;
	w = (w - ones) & ~w & highs;
	return (uint32_t)((const char *)at - s) + (w ? (uint32_t)__builtin_ctzll(w) / 8 : 8);
}

/* Few bytes mostly: whole words, the last one overlapping. */
static inline char *put_text(char *out, const char *text, uint32_t n)
{
	uint64_t w;

	if (n < 8) {
		for (uint32_t i = 0; i < n; i++)
			out[i] = text[i];
		return out + n;
	}
	for (uint32_t i = 0; i < n - 8; i += 8) {
		memcpy(&w, text + i, 8);
		memcpy(out + i, &w, 8);
	}
	memcpy(&w, text + n - 8, 8);
	memcpy(out + n - 8, &w, 8);
	return out + n;
}

/* The common case on a straight line: one channel, one path, absolute or below a working directory
 * that is known. Between two system calls little of us is left in the processor's caches, so what
 * counts is how little is touched. false: not so common, nothing was done. */
static inline bool note_directly(struct spr_spy *spy, struct spr_spy_mark *mark, uint16_t op,
                                 uint32_t access, const char *path)
{
	struct spr_spy_page *page = spy->page;
	spr_writer *w = spr_writer_here(spy->channel[0].producer);
	const uint32_t n = length(path);
	uint32_t of = 0, dir = 0, slash = 0, bytes;
	struct spr_slot slot;
	uint16_t n16;
	char *out;

	if (path[0] != '/') {
		of = spr_load_acquire(&page->cwd_of); /* [CWD] */
		dir = page->cwd_bytes;
		slash = dir > 1 && n > 0;
		if (!of || of != spr_load_relaxed(&page->moves_begun) + 1 ||
		    of != spr_load_relaxed(&page->moves_ended) + 1 || dir > DIRECT_BYTES_MAX ||
		    spr_load_relaxed(&page->cwd_apart) || spr_spy_cwd_borrowed)
			return false;
	}
	bytes = 2 + 4 + 2 + dir + slash + n + 1;
	if (n > DIRECT_BYTES_MAX)
		return false;
	mark->n = 1;
	mark->pid = 0;
	mark->of[0].writer = NULL;
	if (spr_reserve(w, spy->channel[0].kind_file, bytes, &slot) < 0)
		return true;
	n16 = (uint16_t)(dir + slash + n);
	out = put(put(put(slot.data, &op, 2), &access, 4), &n16, 2);
	if (of) {
		out = put_text(out, page->cwd, dir);
		*out = '/';
		out += slash;
	}
	*put_text(out, path, n) = 0; /* no second path */
	spr_acquire_fence(); /* [CWD] */
	if (spr_unlikely(of && spr_load_relaxed(&page->cwd_of) != of)) {
		spr_abandon(w, &slot);
		return false;
	}
	mark->of[0].time_ns = slot.time_ns;
	if (spr_likely(spr_commit(w, &slot) == 0))
		mark->of[0].writer = w;
	return true;
}

static void note_any(struct spr_spy *spy, struct spr_spy_mark *mark, const struct spr_spy_row *row,
                     const long *arg)
{
	const int8_t at = places[row->shape].path, at2 = places[row->shape].path2;
	const int8_t d = places[row->shape].dirfd, d2 = places[row->shape].dirfd2;
	const bool is_text = row->shape == SPR_SHAPE_TP || row->shape == SPR_SHAPE_TDP;
	const char *path = at < 0 ? "" : (const char *)arg[at];
	const char *path2 = at2 < 0 ? SPR_NO_PATH : (const char *)arg[at2];

	if (row->shape == SPR_SHAPE_NONE || !spr_spy_pointer_ok(path) ||
	    (path2 && !spr_spy_pointer_ok(path2)) || (at >= 0 && on_descriptor(row, arg, path)))
		return;
	spr_spy_file(spy, mark, 0, row->op, access_of_row(row, arg), d < 0 ? AT_FDCWD : (int)arg[d],
	             path, is_text ? SPR_NO_FD : d2 < 0 ? AT_FDCWD : (int)arg[d2], path2);
}

__attribute__((hot)) void spr_spy_note(struct spr_spy *spy, struct spr_spy_mark *mark,
                                       const struct spr_spy_row *row, const long *arg)
{
	const bool at = row->shape == SPR_SHAPE_DP;
	const char *path = (const char *)arg[at];

	mark->n = 0;
	if (spr_likely(row->shape == SPR_SHAPE_P || at) && spr_load_relaxed(&spy->simple) &&
	    spr_spy_pointer_ok(path) && path[0] &&
	    (!at || path[0] == '/' || (int)arg[0] == AT_FDCWD)) {
		const uint32_t access = spr_likely(row->access < SPR_BY_FLAGS) ?
		                                row->access :
		                                access_of_row(row, arg);

		if (spr_likely(note_directly(spy, mark, row->op, access, path)))
			return;
	}
	note_any(spy, mark, row, arg);
}

/* --- "process" ------------------------------------------------------------------------------ */

struct argv {
	uint32_t n, bytes; /* of the strings that fit, without a mark */
	bool     cut;
};

static struct argv argv_measure(char *const *argv)
{
	struct argv a = { 0, 0, false };

	for (; argv && argv[a.n]; a.n++) {
		const uint32_t n = (uint32_t)strnlen(argv[a.n], SPR_ARGV_BYTES_MAX);

		if (a.n == SPR_ARGV_N_MAX || a.bytes + n + 2 > SPR_ARGV_BYTES_MAX) {
			a.cut = true;
			break;
		}
		a.bytes += n + 2;
	}
	return a;
}

/* NULL: another thread changed a string since it was measured. */
static char *put_argv(char *out, char *const *argv, struct argv a)
{
	static const uint16_t mark_bytes = sizeof(SPR_CUT_MARK) - 1;
	const uint16_t count = (uint16_t)(a.n + a.cut);

	out = put(out, &count, sizeof(count));
	for (uint32_t i = 0; i < a.n; i++) {
		const uint16_t n = (uint16_t)strnlen(argv[i], SPR_ARGV_BYTES_MAX);

		if (n + 2u > a.bytes)
			return NULL;
		a.bytes -= n + 2u;
		out = put(out, &n, sizeof(n));
		out = put(out, argv[i], n);
	}
	if (a.cut) {
		out = put(out, &mark_bytes, sizeof(mark_bytes));
		out = put(out, SPR_CUT_MARK, mark_bytes);
	}
	return a.bytes ? NULL : out;
}

struct process {
	uint32_t            pid, ppid, op;
	char *const        *argv;
	struct argv         size;
	struct spr_spy_path exe;
};

static bool process_write(struct spr_spy *spy, const struct spr_spy_mark *same, uint32_t i,
                          const struct process *p)
{
	spr_writer *w = spr_writer_here(spy->channel[i].producer);
	const uint8_t op = (uint8_t)p->op, has_argv = p->argv != NULL, no_status = 0;
	const uint32_t cut_bytes = p->size.cut ? 2 + (uint32_t)(sizeof(SPR_CUT_MARK) - 1) : 0;
	const uint32_t bytes = 1 + 4 + 2 + spr_spy_path_bytes(&p->exe) + 1 +
	                       (has_argv ? 2 + p->size.bytes + cut_bytes : 0) + 1;
	struct spr_slot slot;
	char *out;

	if (reserve(w, p->pid, spy->channel[i].kind_process, bytes, &slot) < 0)
		return true;
	out = put(slot.data, &op, sizeof(op));
	out = put(out, &p->ppid, sizeof(p->ppid));
	out = put_path(spy, out, &p->exe);
	if (out)
		out = put(out, &has_argv, 1);
	if (out && has_argv)
		out = put_argv(out, p->argv, p->size);
	if (!out) {
		spr_abandon(w, &slot);
		return false;
	}
	put(out, &no_status, 1);
	if (same)
		slot.time_ns = same->of[i].time_ns;
	spr_commit(w, &slot);
	return true;
}

void spr_spy_life(struct spr_spy *spy, const struct spr_spy_mark *same, uint32_t pid,
                     uint32_t op, int dirfd, const char *exe, char *const *argv)
{
	static char *const none[] = { NULL };
	struct process p = { .pid = pid, .op = op };
	uint32_t i = 0;

	p.ppid = spr_load_relaxed(&spy->confined) ? 0 : (uint32_t)spr_sys(SYS_getppid);
	for (unsigned tries = 0; i < spy->n_channels; tries++) {
		/* The list is there, if empty: a start with a list is a new image's, one without
		 * a forked child's. */
		p.argv = argv && (spy->no_argv || tries > 2) ? none : argv;
		p.size = argv_measure(p.argv);
		if (exe)
			spr_spy_path_find(spy, &p.exe, dirfd, exe, tries > 1);
		else
			spr_spy_path_link(spy, &p.exe, "/proc/self/exe");
		while (i < spy->n_channels && process_write(spy, same, i, &p))
			i++;
		spr_spy_path_drop(spy, &p.exe);
	}
}

/* --- "result" ------------------------------------------------------------------------------- */

void spr_spy_failed(struct spr_spy *spy, const struct spr_spy_mark *mark, int error)
{
	const uint32_t number = (uint32_t)error;

	for (uint32_t i = 0; i < mark->n && i < spy->n_channels; i++) {
		struct spr_slot slot;

		if (!mark->of[i].writer || reserve(mark->of[i].writer, mark->pid,
		                                   spy->channel[i].kind_result, 12, &slot) < 0)
			continue;
		put(put(slot.data, &mark->of[i].time_ns, 8), &number, 4);
		spr_commit(mark->of[i].writer, &slot);
	}
}
