/* SPDX-License-Identifier: MIT */
/*
 * files_exec.c - exec in all its forms: said before it is done, and our variables put back.
 *
 * Before each attempt two records of one stamp are committed: a file record (the program's path is
 * looked up and executed) and a process record ("about to become EXE"). The new image's start
 * answers them, or a result when the call failed. What the new image will certainly hide is said
 * before, by looking at the file. In a vfork child they carry the child's pid.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <alloca.h>

#include "spy/files.h"
#include "spy/program.h"

struct program {
	enum spr_row_number n;
	bool                at; /* by execveat */
	int                 dirfd, flags;
	char *const        *argv;
	char *const        *envp;
};

/* The blind spot is named by the whole path, as the records name the program. */
static void blind(struct spr_spy *spy, uint32_t pid, const char *reason, int dirfd,
                  const char *path)
{
	char *text = spr_spy_scratch_take(spy);
	struct spr_spy_path p;
	uint32_t n = SPR_SPY_SCRATCH;

	spr_spy_path_find(spy, &p, dirfd, path, true);
	if (text && (n = spr_spy_path_bytes(&p)) < SPR_SPY_SCRATCH) {
		spr_spy_path_write(spy, &p, text);
		text[n] = '\0';
	}
	spr_spy_path_drop(spy, &p);
	spr_spy_blind(spy, pid ? pid : spr_load_relaxed(&spy->page->pid), reason,
	              n < SPR_SPY_SCRATCH ? text : path);
	spr_spy_scratch_drop(spy, text);
}

static void look(struct spr_spy *spy, uint32_t pid, int dirfd, const char *path)
{
	struct spr_spy_program program;
	const char *reason;

	if (spr_load_relaxed(&spy->confined) || spr_spy_program_look(&program, dirfd, path) < 0)
		return;
	reason = spr_spy_program_blind(&program);
	if (reason)
		blind(spy, pid, reason, dirfd, path);
}

void spr_spy_exec_note(struct spr_spy *spy, struct spr_spy_mark *mark, uint32_t pid, uint32_t op,
                       int dirfd, const char *path, char *const *argv)
{
	mark->n = 0;
	if (!spr_spy_pointer_ok(path))
		return;
	look(spy, pid, dirfd, path);
	spr_spy_file(spy, mark, pid, op, SPR_EXECUTE, dirfd, path, AT_FDCWD, SPR_NO_PATH);
	spr_spy_life(spy, mark, pid, SPR_PROCESS_EXEC, dirfd, path,
	                spr_spy_pointer_ok(argv) ? argv : NULL);
}

/* One attempt: 0 never, -errno. */
static int attempt(const struct program *p, struct spr_spy *spy, uint32_t pid, const char *path)
{
	const struct spr_spy_row *row = &spr_spy_rows[p->n];
	struct spr_spy_mark mark = { .n = 0 };
	int error;

	if (spy)
		spr_spy_exec_note(spy, &mark, pid, row->op, p->dirfd, path, p->argv);
	error = (int)(p->at ? spr_spy_kernel(SYS_execveat, p->dirfd, path, p->argv, p->envp,
	                                     p->flags) :
	                      spr_spy_kernel(SYS_execve, path, p->argv, p->envp));
	if (spy)
		spr_spy_failed(spy, &mark, -error);
	return error;
}

/* --- The search of execvp ------------------------------------------------------------------- */

/* A file that is no program is given to the shell: argv becomes "/bin/sh", path, the rest. */
static int attempt_as_script(struct program *p, struct spr_spy *spy, uint32_t pid, const char *path)
{
	char *const *const given = p->argv;
	size_t n = 0;
	int err;

	while (given[n])
		n++;
	if (n > 4096)
		return -E2BIG;
	{
		char *argv[n + 3];

		argv[0] = (char *)"/bin/sh";
		argv[1] = (char *)path;
		for (size_t i = 1; i <= n; i++)
			argv[i + 1] = given[i];
		if (n == 0)
			argv[2] = NULL;
		p->argv = argv;
		err = attempt(p, spy, pid, "/bin/sh");
		p->argv = given; /* ours ends here */
		return err;
	}
}

static int attempt_or_script(struct program *p, struct spr_spy *spy, uint32_t pid, const char *path,
                             bool or_script)
{
	char *const *argv = p->argv;
	int error = attempt(p, spy, pid, path);

	if (error == -ENOEXEC && or_script) {
		error = attempt_as_script(p, spy, pid, path);
		p->argv = argv;
	}
	return error;
}

/* Errors after which the next directory is tried, as libc does. */
static bool goes_on(int error)
{
	return error == -ENOENT || error == -ESTALE || error == -ENOTDIR || error == -ENODEV ||
	       error == -ETIMEDOUT || error == -EACCES;
}

static int attempt_in(struct program *p, struct spr_spy *spy, uint32_t pid, const char *file,
                      const char *dirs, size_t room, bool or_script)
{
	const size_t n = strlen(file);
	char *path = alloca(room + n + 2);
	bool denied = false;
	int error;

	for (;; dirs++) {
		const size_t len = (size_t)(strchrnul(dirs, ':') - dirs);

		if (len < room) {
			memcpy(path, dirs, len);
			path[len] = '/';
			memcpy(path + len + (len > 0), file, n + 1); /* an empty one: no slash */
			error = attempt_or_script(p, spy, pid, path, or_script);
			denied = denied || error == -EACCES;
			if (!goes_on(error))
				return error;
		} else {
			error = -ENOENT;
		}
		dirs += len;
		if (!*dirs)
			return denied ? -EACCES : error;
	}
}

#define DIRECTORIES_DEFAULT "/bin:/usr/bin"
#define DIRECTORY_BYTES_MAX 1024u
#define NAME_BYTES_MAX      1024u

static int attempt_search(struct program *p, struct spr_spy *spy, uint32_t pid, const char *file,
                          bool or_script)
{
	const char *dirs = environ ? spr_spy_env_get(environ, "PATH") : NULL;
	size_t longest = 1, len;

	if (!*file)
		return -ENOENT;
	if (strchr(file, '/'))
		return attempt_or_script(p, spy, pid, file, or_script);
	if (strnlen(file, NAME_BYTES_MAX + 1) > NAME_BYTES_MAX)
		return -ENAMETOOLONG; /* shorter ones are refused by the kernel, if at all */
	if (!dirs)
		dirs = DIRECTORIES_DEFAULT;
	for (const char *d = dirs; *d; d += len + (d[len] == ':')) {
		len = (size_t)(strchrnul(d, ':') - d);
		if (len + 1 > longest && len < DIRECTORY_BYTES_MAX)
			longest = len + 1;
	}
	return attempt_in(p, spy, pid, file, dirs, longest, or_script);
}

/* --- The environment, then the attempt ------------------------------------------------------ */

int spr_spy_exec_raw(struct spr_spy *spy, uint32_t pid, enum spr_row_number n, const char *file,
                     char *const *argv, char *const *envp, bool search)
{
	struct program p = { n, false, AT_FDCWD, 0, argv, envp };

	return search ? attempt_search(&p, spy, pid, file, false) : attempt(&p, spy, pid, file);
}

static int run(struct program *p, struct spr_spy *spy, const char *file, bool search)
{
	const uint32_t pid = spy ? spr_spy_borrower(spy) : 0;
	const size_t bytes = spy && (!p->envp || spr_spy_pointer_ok(p->envp)) ?
	                             spr_spy_env_bytes(spy, p->envp) :
	                             0;
	void *room = NULL;

	if (bytes && bytes <= SPR_SPY_ENV_STACK_BYTES)
		room = alloca(bytes);
	else if (bytes)
		room = spr_spy_env_room(bytes);
	if (room)
		p->envp = spr_spy_env_make(spy, p->envp, room);
	return search ? attempt_search(p, spy, pid, file, true) : attempt(p, spy, pid, file);
}

int spr_spy_exec(enum spr_row_number n, int dirfd, const char *file, char *const *argv,
                 char *const *envp, int flags, bool search)
{
	struct program p = { n, n == SPR_ROW_execveat, dirfd, flags, argv, envp };
	const int error = run(&p, spr_spy_here(), file, search);

	errno = -error;
	return -1;
}

/* --- The hooks ------------------------------------------------------------------------------ */

#define HOOK(symbol, ...)                                                     \
	SPR_EXPORT int SPR_HOOK(symbol)(__VA_ARGS__) __asm__(#symbol);        \
	int SPR_HOOK(symbol)(__VA_ARGS__)

HOOK(execve, const char *path, char *const *argv, char *const *envp)
{
	return spr_spy_exec(SPR_ROW_execve, AT_FDCWD, path, argv, envp, 0, false);
}

HOOK(execveat, int dirfd, const char *path, char *const *argv, char *const *envp, int flags)
{
	return spr_spy_exec(SPR_ROW_execveat, dirfd, path, argv, envp, flags, false);
}

HOOK(execv, const char *path, char *const *argv)
{
	return spr_spy_exec(SPR_ROW_execv, AT_FDCWD, path, argv, environ, 0, false);
}

HOOK(execvp, const char *file, char *const *argv)
{
	return spr_spy_exec(SPR_ROW_execvp, AT_FDCWD, file, argv, environ, 0, true);
}

HOOK(execvpe, const char *file, char *const *argv, char *const *envp)
{
	return spr_spy_exec(SPR_ROW_execvpe, AT_FDCWD, file, argv, envp, 0, true);
}

static size_t count(va_list *ap)
{
	size_t n = 1;

	while (va_arg(*ap, char *))
		n++;
	return n;
}

/* The list form: as libc does, the array is made on the stack. After the NULL of execle comes the
 * environment. */
#define LIST_FORM(symbol, with_envp, searches)                                                  \
	HOOK(symbol, const char *path, const char *arg, ...)                                    \
	{                                                                                       \
		va_list ap;                                                                     \
		size_t n = 0;                                                                   \
                                                                                                \
		va_start(ap, arg);                                                              \
		n = arg ? count(&ap) : 0;                                                       \
		va_end(ap);                                                                     \
		{                                                                               \
			char *argv[n + 1], **envp = environ;                                    \
                                                                                                \
			va_start(ap, arg);                                                      \
			argv[0] = (char *)arg;                                                  \
			for (size_t i = 1; i <= n; i++)                                         \
				argv[i] = va_arg(ap, char *);                                   \
			if (with_envp)                                                          \
				envp = va_arg(ap, char **);                                     \
			va_end(ap);                                                             \
			return spr_spy_exec(SPR_ROW_##symbol, AT_FDCWD, path, argv, envp, 0,    \
			                    searches);                                          \
		}                                                                               \
	}

LIST_FORM(execl, false, false)
LIST_FORM(execle, true, false)
LIST_FORM(execlp, false, true)

/* By descriptor: the kernel's execveat with an empty path, what libc does too. Where that is
 * missing libc goes by /proc, and a script on a close-on-exec descriptor fails in both. */
HOOK(fexecve, int fd, char *const *argv, char *const *envp)
{
	struct program p = { SPR_ROW_fexecve, true, fd, AT_EMPTY_PATH, argv, envp };
	int error;

	if (fd < 0 || !argv || !envp) {
		errno = EINVAL;
		return -1;
	}
	error = run(&p, spr_spy_here(), "", false);
	errno = -error;
	return -1;
}
