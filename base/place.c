/* SPDX-License-Identifier: MIT */
/*
 * place.c - find, make and tidy the private place.
 *
 * Others may write in /tmp and /dev/shm, so a folder there is believed only through a descriptor
 * that was opened without following a link, and only if it is ours. Everything inside is then
 * reached through that descriptor.
 *
 * Who lives: the owner of a file holds an OFD lock on a byte of it. It is taken before the file
 * has a name (O_TMPFILE, linkat); where that cannot be had (O_EXCL), the owner looks after locking
 * whether a sweep has been quicker, and starts again. A sweep removes a file only while it holds
 * that lock itself and the name still means that file. So neither can overtake the other.
 */
#include "base/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "base/sys.h"

#define SMALLEST_FREE_BYTES (64ull << 20) /* a container's whole /dev/shm: too small */
#define N_RANDOM            16            /* hex digits in a name */
#define N_TRIES             2000          /* against sweeps that are quicker; others need one */
#define NAME_HEAD           "spr-"
#define PATH_ROOM           4096

static bool join(char *out, size_t room, const char *a, const char *b, const char *c)
{
	const size_t n_a = strlen(a), n_b = strlen(b), n_c = strlen(c);

	if (n_a + n_b + n_c >= room)
		return false;
	memmove(out, a, n_a);
	memcpy(out + n_a, b, n_b);
	memcpy(out + n_a + n_b, c, n_c + 1);
	return true;
}

static void random_digits(char out[N_RANDOM + 1])
{
	static uint64_t salt;
	uint64_t bits;

	if (spr_sys(SYS_getrandom, &bits, sizeof(bits), 1 /* GRND_NONBLOCK */) != sizeof(bits)) {
		bits = spr_clock_monotonic_ns() * 0x9e3779b97f4a7c15ull;
		bits ^= (uint64_t)spr_sys(SYS_getpid) << 40 ^ ++salt;
	}
	for (int i = 0; i < N_RANDOM; i++)
		out[i] = "0123456789abcdef"[bits >> (4 * i) & 15];
	out[N_RANDOM] = '\0';
}

/* "/proc/self/fd/N": a file's only name while it has none, and the way to what is open O_PATH. */
static void self_path(char out[32], int fd)
{
	char digits[12];
	size_t at = sizeof(digits) - 1;

	digits[at] = '\0';
	for (unsigned rest = (unsigned)fd;; rest /= 10) {
		digits[--at] = (char)('0' + rest % 10);
		if (rest < 10)
			break;
	}
	join(out, 32, "/proc/self/fd/", digits + at, "");
}

/* --- Folders -------------------------------------------------------------------- */

static int folder_stat(int fd, struct stat *st)
{
	/* libc's fstat may be hooked, and the kernel's struct is libc's on both machines. */
	return (int)spr_sys(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

/* Through a descriptor that may be O_PATH, which fchmod does not take. */
static int folder_chmod(int fd, unsigned mode)
{
	const int again = (int)spr_sys(SYS_openat, fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char self[32];
	long ret;

	if (again >= 0) {
		ret = spr_sys(SYS_fchmod, again, mode);
		spr_sys(SYS_close, again);
		return (int)ret;
	}
	if (again != -EACCES)
		return again;
	self_path(self, fd); /* we may not even read it */
	return (int)spr_sys(SYS_fchmodat, AT_FDCWD, self, mode);
}

/* Open the folder `name` of `at` and believe it only if it is ours. `ours`: we gave it its name,
 * so its mode is ours to mend; a folder that somebody named is his, and is only looked at. */
static int folder_accept(int at, const char *name, const char *shown, bool ours)
{
	const int fd = (int)spr_sys(SYS_openat, at, name,
	                            O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int err;

	if (fd == -ENOTDIR || fd == -ELOOP)
		return spr_fail(-ENOTDIR, "%s: a link or no folder; remove it or set SPARRING_DIR",
		                shown);
	if (fd < 0)
		return spr_fail_sys(fd, "%s", shown);
	err = folder_stat(fd, &st);
	if (err) {
		spr_fail_sys(err, "%s", shown);
	} else if (st.st_uid != (uid_t)spr_sys(SYS_geteuid)) {
		err = spr_fail(-EACCES, "%s: belongs to user %u, not to us; set SPARRING_DIR to a "
		                        "folder of your own", shown, (unsigned)st.st_uid);
	} else if (ours && (st.st_mode & 07777) != 0700) {
		err = folder_chmod(fd, 0700);
		if (err)
			spr_fail_sys(err, "%s: cannot make it private (chmod 700)", shown);
	} else if (!ours && (st.st_mode & 022)) {
		err = spr_fail(-EACCES,
		               "%s: others may write in it (mode %o); chmod 700 it, or name "
		               "a folder that does not exist yet",
		               shown, st.st_mode & 07777);
	}
	if (!err)
		return fd;
	spr_sys(SYS_close, fd);
	return err;
}

/* mkdir and accept. */
static int folder_make(int at, const char *name, const char *shown, bool ours)
{
	const int err = (int)spr_sys(SYS_mkdirat, at, name, 0700);

	if (err && err != -EEXIST) {
		/* What is already there may be used even where nothing can be made. */
		const int fd = folder_accept(at, name, shown, ours);

		return fd >= 0 ? fd : spr_fail_sys(err, "%s: cannot make this folder", shown);
	}
	return folder_accept(at, name, shown, ours || !err);
}

static bool make_absolute(char *out, size_t room, const char *folder)
{
	char cwd[PATH_ROOM];
	size_t n;

	if (folder[0] == '/') {
		if (!join(out, room, folder, "", ""))
			return false;
	} else {
		const long got = spr_sys(SYS_getcwd, cwd, sizeof(cwd));

		if (got <= 0 || cwd[0] != '/') /* "(unreachable)" */
			return false;
		if (!join(out, room, cwd, cwd[1] ? "/" : "", folder))
			return false;
	}
	for (n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
		out[n - 1] = '\0'; /* with a slash behind it, a link would be followed */
	return true;
}

static int open_named(const char *folder, char *path, size_t room)
{
	if (!make_absolute(path, room, folder))
		return spr_fail(-ENAMETOOLONG, "%.200s: too long a name for the private place, or "
		                               "the working directory is gone", folder);
	return folder_make(AT_FDCWD, path, path, false);
}

/* --- The rules ------------------------------------------------------------------ */

struct base {
	int      fd; /* -1: not there, or not to be trusted */
	uint64_t free_bytes;
	char     path[PATH_ROOM];
};

static void base_open(struct base *b, const char *path)
{
	struct statfs fs;
	struct stat st;

	b->fd = -1;
	if (!path || !*path || !make_absolute(b->path, sizeof(b->path), path))
		return;
	b->fd = (int)spr_sys(SYS_openat, AT_FDCWD, b->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (b->fd < 0)
		return;
	/* Where others may rename our folder away it is not private. */
	if (folder_stat(b->fd, &st) || ((st.st_mode & 022) && !(st.st_mode & S_ISVTX)) ||
	    spr_sys(SYS_fstatfs, b->fd, &fs)) {
		spr_sys(SYS_close, b->fd);
		b->fd = -1;
		return;
	}
	b->free_bytes = fs.f_blocks ? (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize : UINT64_MAX;
}

/* `head` with the number of this user behind it. */
static void place_name(char out[32])
{
	unsigned uid = (unsigned)spr_sys(SYS_geteuid);
	size_t at = 31;

	out[at] = '\0';
	do
		out[--at] = (char)('0' + uid % 10);
	while (uid /= 10);
	at -= strlen("sparring-");
	memcpy(out + at, "sparring-", strlen("sparring-"));
	memmove(out, out + at, 32 - at);
}

struct entry { /* what getdents64 writes */
	uint64_t       ino;
	int64_t        off;
	unsigned short bytes;
	unsigned char  type;
	char           name[];
};

/* Calls each with every name in the folder; ends early when it returns non-zero, and returns it. */
static int folder_each(int folder, int (*each)(void *arg, int folder, const char *name), void *arg)
{
	_Alignas(struct entry) char entries[4096];
	const int fd = (int)spr_sys(SYS_openat, folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return fd;
	while (!ret) {
		const long n = spr_sys(SYS_getdents64, fd, entries, sizeof(entries));

		if (n <= 0) {
			ret = (int)n;
			break;
		}
		for (long at = 0; at < n && !ret;) {
			const struct entry *e = (const struct entry *)(entries + at);

			ret = each(arg, folder, e->name);
			at += e->bytes;
		}
	}
	spr_sys(SYS_close, fd);
	return ret;
}

struct adopt {
	struct base *base;
	char         head[32];
	char        *path;
	size_t       room;
	int          fd;
};

static int adopt_one(void *arg, int folder, const char *name)
{
	struct adopt *a = arg;
	const size_t n = strlen(a->head);

	if (strncmp(name, a->head, n) != 0 || name[n] != '-' ||
	    strspn(name + n + 1, "0123456789abcdef") != N_RANDOM ||
	    !join(a->path, a->room, a->base->path, "/", name))
		return 0;
	a->fd = folder_accept(folder, name, a->path, true);
	return a->fd >= 0;
}

/* Somebody sits on our name: a folder with a random name behind it, an earlier one if there is. */
static int base_other_folder(struct base *b, char *path, size_t room)
{
	struct adopt a = { .base = b, .path = path, .room = room, .fd = -1 };
	char digits[N_RANDOM + 1], name[64];

	place_name(a.head);
	if (folder_each(b->fd, adopt_one, &a) == 1)
		return a.fd;
	random_digits(digits);
	join(name, sizeof(name), a.head, "-", digits);
	if (!join(path, room, b->path, b->path[1] ? "/" : "", name))
		return spr_fail(-ENAMETOOLONG, "%.200s: too long a name", b->path);
	return folder_make(b->fd, name, path, true);
}

static int base_folder(struct base *b, char *path, size_t room)
{
	char name[32];

	place_name(name);
	if (!join(path, room, b->path, b->path[1] ? "/" : "", name))
		return spr_fail(-ENAMETOOLONG, "%.200s: too long a name", b->path);
	return folder_make(b->fd, name, path, true);
}

/* In the order of the bases: first those with room enough, then the roomiest that is left. */
static int rules_open(struct base *bases, int n_bases, uint64_t want_bytes, char *path, size_t room,
                      int (*open_in)(struct base *b, char *path, size_t room))
{
	bool tried[4] = { false };
	int err = -ENOENT;

	for (int round = 0; round < n_bases; round++) {
		struct base *best = NULL;
		for (int i = 0; i < n_bases; i++) {
			struct base *b = &bases[i];
			const bool roomy = b->free_bytes > SMALLEST_FREE_BYTES &&
			                   b->free_bytes >= want_bytes / 16;

			if (b->fd < 0 || tried[i])
				continue;
			if (roomy) {
				best = b;
				break;
			}
			if (!best || b->free_bytes > best->free_bytes)
				best = b;
		}
		if (!best)
			break;
		tried[best - bases] = true;
		err = open_in(best, path, room);
		if (err >= 0)
			return err;
	}
	if (err == -ENOENT)
		spr_fail(err,
		         "no folder for channels: neither /dev/shm nor /tmp nor $TMPDIR can be "
		         "used; set SPARRING_DIR to a folder of your own");
	return err;
}

static int open_by_rules(uint64_t want_bytes, char *path, size_t room)
{
	struct base bases[3];
	int fd;

	base_open(&bases[0], "/dev/shm");
	base_open(&bases[1], "/tmp");
	base_open(&bases[2], getenv("TMPDIR"));
	fd = rules_open(bases, 3, want_bytes, path, room, base_folder);
	/* Without descriptors or memory another name would only be left behind. */
	if (fd < 0 && fd != -EMFILE && fd != -ENFILE && fd != -ENOMEM)
		fd = rules_open(bases, 3, want_bytes, path, room, base_other_folder);
	for (int i = 0; i < 3; i++) {
		if (bases[i].fd >= 0)
			spr_sys(SYS_close, bases[i].fd);
	}
	return fd;
}

int spr_place_open(const char *folder, uint64_t want_bytes, char *path, size_t path_room)
{
	const char *chosen = folder && *folder ? folder : getenv("SPARRING_DIR");

	if (chosen && *chosen)
		return open_named(chosen, path, path_room);
	return open_by_rules(want_bytes, path, path_room);
}

/* --- Files ---------------------------------------------------------------------- */

static int owner_lock(int fd)
{
	struct flock lock = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)SPR_PLACE_OWNER_BYTE,
		.l_len = 1,
	};

	return (int)spr_sys(SYS_fcntl, fd, F_OFD_SETLK, &lock);
}

/* Does `name` still mean the file that is open as fd? */
static bool still_named(int place, const char *name, int fd)
{
	struct stat by_fd, by_name;

	return !folder_stat(fd, &by_fd) &&
	       !spr_sys(SYS_newfstatat, place, name, &by_name, AT_SYMLINK_NOFOLLOW) &&
	       by_fd.st_dev == by_name.st_dev && by_fd.st_ino == by_name.st_ino;
}

static int link_nameless(int fd, int place, const char *name)
{
	char self[32];
	int err = (int)spr_sys(SYS_linkat, fd, "", place, name, AT_EMPTY_PATH);

	if (!err || err == -EEXIST) /* the kernel wants a capability for that before 6.10 */
		return err;
	self_path(self, fd);
	return (int)spr_sys(SYS_linkat, AT_FDCWD, self, place, name, AT_SYMLINK_FOLLOW);
}

/* A umask may have taken from 0600, and our own programs open it again by name. */
static int owner_take(int fd)
{
	const int err = (int)spr_sys(SYS_fchmod, fd, 0600);

	return err ? err : owner_lock(fd);
}

static int create_nameless(int place, const char *name)
{
	const int fd = (int)spr_sys(SYS_openat, place, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int err;

	if (fd < 0)
		return fd;
	err = owner_take(fd);
	if (!err)
		err = link_nameless(fd, place, name);
	if (!err)
		return fd;
	spr_sys(SYS_close, fd);
	return err;
}

static int create_named(int place, const char *name)
{
	const int fd = (int)spr_sys(SYS_openat, place, name,
	                            O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err;

	if (fd < 0)
		return fd;
	err = owner_take(fd);
	if (err == -EACCES)
		err = -EAGAIN;
	if (!err && still_named(place, name, fd))
		return fd;
	if (err && err != -EAGAIN)
		spr_sys(SYS_unlinkat, place, name, 0);
	spr_sys(SYS_close, fd);
	return err ? err : -EAGAIN; /* a sweep was quicker: with another name */
}

int spr_place_create(int place, const char *suffix, char *name, size_t name_room)
{
	char digits[N_RANDOM + 1];
	int fd = -EAGAIN;

	for (int i = 0; i < N_TRIES && (fd == -EAGAIN || fd == -EEXIST); i++) {
		random_digits(digits);
		if (!join(name, name_room, NAME_HEAD, digits, suffix))
			return spr_fail(-ENAMETOOLONG, "no room for a name that ends in %s",
			                suffix);
		fd = create_nameless(place, name);
		if (fd < 0 && fd != -EEXIST && fd != -ENOSPC && fd != -EROFS && fd != -EDQUOT)
			fd = create_named(place, name);
		if (fd == -EAGAIN)
			spr_sys(SYS_sched_yield);
	}
	if (fd < 0)
		return spr_fail_sys(fd, "cannot make a file in the private place");
	return fd;
}

/* --- Sweep ---------------------------------------------------------------------- */

/* "spr-", 16 hex digits, a suffix: nothing else is ours, whatever folder it lies in. */
static bool name_is_ours(const char *name)
{
	const size_t n = strlen(NAME_HEAD);

	return strncmp(name, NAME_HEAD, n) == 0 &&
	       strspn(name + n, "0123456789abcdef") == N_RANDOM && name[n + N_RANDOM] == '.';
}

struct sweep {
	void (*each)(void *arg, const char *name);
	void *arg;
	int   n_removed;
};

static int sweep_one(void *arg, int place, const char *name)
{
	struct sweep *s = arg;
	struct stat st;

	if (!name_is_ours(name))
		return 0;
	const int fd = (int)spr_sys(SYS_openat, place, name,
	                            O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (!folder_stat(fd, &st) && S_ISREG(st.st_mode) &&
	    st.st_uid == (uid_t)spr_sys(SYS_geteuid) && !owner_lock(fd) &&
	    still_named(place, name, fd) && !spr_sys(SYS_unlinkat, place, name, 0)) {
		s->n_removed++;
		if (s->each)
			s->each(s->arg, name);
	}
	spr_sys(SYS_close, fd);
	return 0;
}

int spr_place_sweep(int place, void (*each)(void *arg, const char *name), void *arg)
{
	struct sweep s = { each, arg, 0 };
	const int err = folder_each(place, sweep_one, &s);

	return err < 0 ? spr_fail_sys(err, "cannot look into the private place") : s.n_removed;
}
