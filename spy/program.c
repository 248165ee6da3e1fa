/* SPDX-License-Identifier: MIT */
/* program.c - what a program file is: its ELF header, its loader, its mode. */
#include "spy/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
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
#define N_SCRIPTS_MAX 5 /* the kernel follows as many */

/* Small on purpose: this runs on the stacks of other people's threads. */
union head {
	ElfW(Ehdr) elf;
	ElfW(Phdr) program[4];
	char       text[256]; /* as much of a "#!" line as the kernel reads */
};

static bool same_start(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

/* Would executing it change whose rights it has? As the kernel decides it, no_new_privs and
 * nosuid mounts included. Any doubt is settled later: an image that never attaches is named. */
static bool gains_rights(int fd, const struct stat *st)
{
	const uid_t uid = (uid_t)spr_sys(SYS_getuid), euid = (uid_t)spr_sys(SYS_geteuid);
	const gid_t gid = (gid_t)spr_sys(SYS_getgid), egid = (gid_t)spr_sys(SYS_getegid);
	const bool suid = (st->st_mode & S_ISUID) && st->st_uid != uid;
	const bool sgid = (st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
	                  st->st_gid != gid;
	struct statfs fs;

	if (uid != euid || gid != egid)
		return true; /* it already runs with more */
	if (!suid && !sgid &&
	    (uid == 0 || spr_sys(SYS_fgetxattr, fd, "security.capability", NULL, 0) <= 0))
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

static enum spr_spy_program_kind look_at_loader(int fd, const ElfW(Phdr) *interp, union head *h)
{
	const size_t want = interp->p_filesz < sizeof(h->text) ? interp->p_filesz :
	                                                         sizeof(h->text) - 1;
	const long n = spr_sys(SYS_pread64, fd, h->text, want, interp->p_offset);

	h->text[n > 0 ? n : 0] = '\0';
	return is_our_loader(h->text) ? SPR_SPY_PROGRAM_DYNAMIC : SPR_SPY_PROGRAM_OTHER_LOADER;
}

static enum spr_spy_program_kind look_at_elf(int fd, bool is_loader, union head *h)
{
	const unsigned n_headers = h->elf.e_phnum;
	const ElfW(Off) at = h->elf.e_phoff;

	if (h->elf.e_ident[EI_CLASS] != OUR_CLASS || h->elf.e_machine != OUR_MACHINE)
		return SPR_SPY_PROGRAM_OTHER_CLASS;
	if (h->elf.e_phentsize != sizeof(ElfW(Phdr)))
		return SPR_SPY_PROGRAM_UNKNOWN;
	for (unsigned i = 0; i < n_headers; i += 4) {
		const long n = spr_sys(SYS_pread64, fd, h->program, sizeof(h->program),
		                       at + i * sizeof(ElfW(Phdr)));

		for (unsigned k = 0; k < 4 && i + k < n_headers; k++) {
			if (n < (long)((k + 1) * sizeof(ElfW(Phdr))))
				return SPR_SPY_PROGRAM_UNKNOWN;
			if (h->program[k].p_type == PT_INTERP) {
				const ElfW(Phdr) interp = h->program[k];

				return look_at_loader(fd, &interp, h);
			}
		}
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

	if (fd >= 0 && (spr_sys(SYS_fstat, fd, st) < 0 || !S_ISREG(st->st_mode))) {
		spr_sys(SYS_close, fd);
		return -EACCES;
	}
	return fd;
}

int spr_spy_program_look(struct spr_spy_program *out, int dirfd, const char *path)
{
	union head h;
	struct stat st;

	memset(out, 0, sizeof(*out));
	if (path[0] && spr_sys(SYS_faccessat, dirfd, path, 1 /* X_OK */) < 0)
		return -EACCES;
	for (int i = 0; i < N_SCRIPTS_MAX; i++) {
		const int fd = open_to_look(dirfd, path, &st);
		const bool is_loader = is_our_loader(path); /* path may lie in h */
		long n;

		if (fd < 0)
			return fd == -EACCES ? 0 : fd; /* may be executed and not read: unknown */
		n = spr_sys(SYS_pread64, fd, h.text, sizeof(h.text) - 1, 0);
		h.text[n > 0 ? n : 0] = '\0';
		if (n >= (long)sizeof(h.elf) && memcmp(h.text, ELFMAG, SELFMAG) == 0) {
			out->secure = gains_rights(fd, &st); /* a script's own bits mean nothing */
			out->kind = look_at_elf(fd, is_loader, &h);
		}
		spr_sys(SYS_close, fd);
		if (n < 2 || h.text[0] != '#' || h.text[1] != '!')
			return 0;
		out->script = true;
		path = interpreter_of(h.text);
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
