/* SPDX-License-Identifier: MIT */
/* program.c - what a program file is: its ELF header, its loader, its mode. */
#include "spy/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/sys.h"

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#endif
#define OUR_CLASS     (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define N_SCRIPTS_MAX 5   /* the kernel follows as many */
#define N_LINE_MAX    255 /* and reads as much of a "#!" line */

/* The beginning of the file: of nearly every program it holds the program headers and the loader's
 * name too. Small: this runs on the stacks of other people's threads. */
struct head {
	long n;
	_Alignas(8) char bytes[1024];
};

/* A part of the file, from the beginning if it lies there; else it takes its place. NULL: no such.
 */
static const char *head_part(struct head *h, int fd, uint64_t at, size_t n)
{
	if (n >= sizeof(h->bytes))
		return NULL;
	if (h->n > 0 && at < (uint64_t)h->n && n <= (uint64_t)h->n - at)
		return h->bytes + at;
	h->n = 0;
	return spr_sys(SYS_pread64, fd, h->bytes, n, at) == (long)n ? h->bytes : NULL;
}

static bool same_start(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

/* Would executing it change whose rights it has? As the kernel decides it, no_new_privs and
 * nosuid mounts included. Any doubt is settled later: an image that never attaches is named. */
static bool gains_rights(int fd, const struct stat *st)
{
	const bool suid = st->st_mode & S_ISUID;
	const bool sgid = (st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
	const bool caps = spr_sys(SYS_fgetxattr, fd, "security.capability", NULL, 0) > 0;
	struct statfs fs;

	if (!suid && !sgid && !caps)
		return false;
	if (!(suid && st->st_uid != (uid_t)spr_sys(SYS_getuid)) &&
	    !(sgid && st->st_gid != (gid_t)spr_sys(SYS_getgid)) &&
	    !(caps && spr_sys(SYS_getuid) != 0))
		return false;
	return spr_sys(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 &&
	       (spr_sys(SYS_fstatfs, fd, &fs) < 0 || !(fs.f_flags & 2 /* ST_NOSUID */));
}

/* The loader itself can be run as a program, and reads LD_PRELOAD then, too. */
static bool is_our_loader(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	return same_start(name, "ld-linux") || same_start(name, "ld64.so");
}

static enum spr_spy_program_kind look_at_loader(struct head *h, int fd, const ElfW(Phdr) *interp)
{
	char name[256];
	const size_t n = interp->p_filesz < sizeof(name) ? interp->p_filesz : sizeof(name) - 1;
	const char *text = head_part(h, fd, interp->p_offset, n);

	if (!text)
		return SPR_SPY_PROGRAM_UNKNOWN;
	memcpy(name, text, n);
	name[n] = '\0';
	return is_our_loader(name) ? SPR_SPY_PROGRAM_DYNAMIC : SPR_SPY_PROGRAM_OTHER_LOADER;
}

static enum spr_spy_program_kind look_at_elf(struct head *h, int fd, bool is_loader)
{
	ElfW(Ehdr) elf;
	ElfW(Phdr) program;

	memcpy(&elf, h->bytes, sizeof(elf));
	if (elf.e_ident[EI_CLASS] != OUR_CLASS || elf.e_machine != OUR_MACHINE)
		return SPR_SPY_PROGRAM_OTHER_CLASS;
	if (elf.e_phentsize != sizeof(program))
		return SPR_SPY_PROGRAM_UNKNOWN;
	for (unsigned i = 0; i < elf.e_phnum; i++) {
		const char *text =
			head_part(h, fd, elf.e_phoff + i * sizeof(program), sizeof(program));

		if (!text)
			return SPR_SPY_PROGRAM_UNKNOWN;
		memcpy(&program, text, sizeof(program));
		if (program.p_type == PT_INTERP)
			return look_at_loader(h, fd, &program);
	}
	return is_loader ? SPR_SPY_PROGRAM_DYNAMIC : SPR_SPY_PROGRAM_STATIC;
}

/* "#! /bin/sh -e\n" -> "/bin/sh", in place. */
static char *interpreter_of(char *line)
{
	char *start = line + 2 + strspn(line + 2, " \t");

	start[strcspn(start, " \t\n")] = '\0';
	return start;
}

static int open_to_look(int dirfd, const char *path, struct stat *st)
{
	const int fd = path[0] ? (int)spr_sys(SYS_openat, dirfd, path,
	                                      O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY) :
	                         (int)spr_sys(SYS_fcntl, dirfd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0 && (spr_sys(SYS_fstat, fd, st) < 0 || !S_ISREG(st->st_mode) ||
	                !(st->st_mode & 0111))) {
		spr_sys(SYS_close, fd);
		return -ENOEXEC;
	}
	return fd;
}

int spr_spy_program_look(struct spr_spy_program *out, int dirfd, const char *path)
{
	struct head h;
	struct stat st;

	memset(out, 0, sizeof(*out));
	for (int i = 0; i < N_SCRIPTS_MAX; i++) {
		const int fd = open_to_look(dirfd, path, &st);
		const bool is_loader = is_our_loader(path); /* path may lie in h */

		if (fd < 0)
			return fd == -EACCES ? 0 : fd; /* may be executed and not read: unknown */
		h.n = spr_sys(SYS_pread64, fd, h.bytes, sizeof(h.bytes) - 1, 0);
		h.bytes[h.n > 0 ? h.n : 0] = '\0';
		if (h.n >= (long)sizeof(ElfW(Ehdr)) && memcmp(h.bytes, ELFMAG, SELFMAG) == 0) {
			out->secure = gains_rights(fd, &st); /* a script's own bits mean nothing */
			out->kind = look_at_elf(&h, fd, is_loader);
			h.n = 0;
		}
		spr_sys(SYS_close, fd);
		if (h.n < 2 || h.bytes[0] != '#' || h.bytes[1] != '!')
			return 0;
		out->script = true;
		h.bytes[N_LINE_MAX] = '\0';
		path = interpreter_of(h.bytes);
		if (!path[0])
			return 0;
	}
	return 0;
}

const char *spr_spy_program_blind(const struct spr_spy_program *program)
{
	if (program->secure)
		return "setuid";
	switch (program->kind) {
	case SPR_SPY_PROGRAM_STATIC:
		return "static";
	case SPR_SPY_PROGRAM_OTHER_CLASS:
		return "other class";
	case SPR_SPY_PROGRAM_OTHER_LOADER:
		return "other loader";
	default:
		return NULL;
	}
}
