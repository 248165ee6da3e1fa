/* SPDX-License-Identifier: MIT */
/* part.c - the output of a recording: a part beside its final name until it is whole. */
#include "cli/part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* What is put behind the name: ".part-" and eight digits. */
#define SUFFIX       ".part-"
#define SUFFIX_BYTES (sizeof(SUFFIX) - 1 + 8)

static int part_refused(const char *out, int err)
{
	spr_cli_say("%s: cannot be written: %s", spr_cli_shown(out), strerror(err));
	return -err;
}

/* "-" and the names under which a shell hands over an open descriptor: its number, or -1. */
static int descriptor_named(const char *out)
{
	static const char *const roots[] = { "/dev/fd/", "/proc/self/fd/" };
	uint64_t fd;

	if (!strcmp(out, "-") || !strcmp(out, "/dev/stdout"))
		return STDOUT_FILENO;
	if (!strcmp(out, "/dev/stderr"))
		return STDERR_FILENO;
	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		const size_t n = strlen(roots[i]);
		if (!strncmp(out, roots[i], n) && spr_cli_parse_number(out + n, INT_MAX, &fd))
			return (int)fd;
	}
	return -1;
}

/* Folder and last component. The folder is opened once: a rename of it on the way does no harm. */
static int part_split(struct spr_cli_part *p, const char *out)
{
	char folder[PATH_MAX] = ".";
	const char *slash = strrchr(out, '/');
	const char *name = slash ? slash + 1 : out;

	if (!*name)
		return -(*out ? EISDIR : ENOENT);
	if (strlen(name) >= sizeof(p->out) || strlen(out) >= sizeof(folder))
		return -ENAMETOOLONG;
	strcpy(p->out, name);
	if (slash) {
		const size_t n = slash == out ? 1 : (size_t)(slash - out);
		memcpy(folder, out, n);
		folder[n] = '\0';
	}
	p->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return p->folder < 0 ? -errno : 0;
}

static int part_create(struct spr_cli_part *p, const char *out)
{
	const size_t stem = strlen(p->out) > NAME_MAX - SUFFIX_BYTES ? NAME_MAX - SUFFIX_BYTES
	                                                             : strlen(p->out);

	for (int attempt = 0; attempt < 100; attempt++) {
		uint32_t random = 0;
		if (getrandom(&random, sizeof(random), 0) < 0)
			return -errno;
		snprintf(p->part, sizeof(p->part), "%.*s" SUFFIX "%08x", (int)stem, p->out, random);
		p->fd = openat(p->folder, p->part,
		               O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
		if (p->fd >= 0 || errno != EEXIST)
			break;
	}
	if (p->fd < 0)
		return -errno;
	snprintf(p->path, sizeof(p->path), "%.*s%s", (int)(strlen(out) - strlen(p->out)), out,
	         p->part);
	return 0;
}

static int part_open_through(struct spr_cli_part *p, const char *out, int fd)
{
	p->through = true;
	if (fd >= 0)
		p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	else
		p->fd = open(out, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
	if (p->fd < 0)
		return part_refused(out, errno);
	const int flags = fcntl(p->fd, F_GETFL);
	if ((flags & O_ACCMODE) == O_RDONLY) {
		close(p->fd);
		p->fd = -1;
		return part_refused(out, EBADF);
	}
	return 0;
}

int spr_cli_part_open(struct spr_cli_part *p, const char *out, uid_t uid, gid_t gid)
{
	struct stat st;

	*p = (struct spr_cli_part){ .fd = -1, .folder = -1 };
	const int fd = descriptor_named(out);
	if (fd >= 0)
		return part_open_through(p, out, fd);
	if (!lstat(out, &st)) {
		if (S_ISDIR(st.st_mode))
			return part_refused(out, EISDIR);
		if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
			return part_open_through(p, out, -1);
	}
	int err = part_split(p, out);
	if (!err)
		err = part_create(p, out);
	/* A umask may have taken from 0600, which the reader will miss. */
	if (!err && fchmod(p->fd, 0600))
		err = -errno;
	if (!err && uid != (uid_t)-1 && fchown(p->fd, uid, gid))
		err = -errno;
	if (err) {
		spr_cli_part_drop(p);
		return part_refused(out, -err);
	}
	return 0;
}

int spr_cli_part_keep(struct spr_cli_part *p, const char *out)
{
	if (p->through)
		return 0;
	if (!renameat(p->folder, p->part, p->folder, p->out))
		return 0;
	const int err = errno;
	spr_cli_say("%s: cannot be written: %s; the trace is whole in %s", spr_cli_shown(out),
	            strerror(err), spr_cli_shown(p->path));
	return -err;
}

void spr_cli_part_drop(struct spr_cli_part *p)
{
	if (!p->through && p->fd >= 0)
		unlinkat(p->folder, p->part, 0);
	spr_cli_part_close(p);
}

void spr_cli_part_close(struct spr_cli_part *p)
{
	if (p->fd >= 0)
		close(p->fd);
	if (p->folder >= 0)
		close(p->folder);
	p->fd = p->folder = -1;
}

/* --- Finding it again --------------------------------------------------------------- */

static bool part_is_of(const char *name, const char *out)
{
	const size_t n = strlen(out);

	return !strncmp(name, out, n) && !strncmp(name + n, SUFFIX, sizeof(SUFFIX) - 1) &&
	       strlen(name) == n + SUFFIX_BYTES;
}

/* The encoder holds a lock on its file for as long as it lives. */
static bool recorder_lives(int fd)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

	return !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

int spr_cli_part_find(const char *out)
{
	struct spr_cli_part p = { .fd = -1, .folder = -1 };
	int found = -ENOENT;

	if (descriptor_named(out) >= 0 || part_split(&p, out))
		return -ENOENT;
	const int listed = openat(p.folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = listed < 0 ? NULL : fdopendir(listed);
	for (struct dirent *e; folder && found < 0 && (e = readdir(folder));) {
		if (!part_is_of(e->d_name, p.out))
			continue;
		const int fd = openat(p.folder, e->d_name,
		                      O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 && recorder_lives(fd))
			found = fd;
		else if (fd >= 0)
			close(fd);
	}
	if (folder)
		closedir(folder);
	spr_cli_part_close(&p);
	return found;
}
