/* SPDX-License-Identifier: MIT */
/*
 * files.c - a target for the files spy: files ACTION [ARG...] does one thing that programs do.
 * Paths are given by the test; what is not said to fail must succeed: exit status 0.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;
static char **arg; /* what follows the action */

#define must(condition) ((condition) ? (void)0 : die(__LINE__, #condition))
static void die(int line, const char *what)
{
	fprintf(stderr, "files.c:%d: not so: %s (errno %d)\n", line, what, errno);
	_exit(99);
}

static void look(const char *path)
{
	const int fd = open(path, O_RDONLY);

	if (fd >= 0)
		close(fd);
}

static void look_at(const char *format, ...)
{
	char path[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(path, sizeof(path), format, ap);
	va_end(ap);
	look(path);
}

static void wait_for(pid_t pid, int status)
{
	int got = 0;

	must(waitpid(pid, &got, 0) == pid);
	must(WIFEXITED(got) && WEXITSTATUS(got) == status);
}

/* --- Opening and listing -------------------------------------------------------------------- */

static int do_open(void)
{
	errno = 77;
	must(open(arg[0], O_RDONLY) == -1 && errno == ENOENT);
	return 0;
}

static int do_open_modes(void) /* DIR */
{
	must(chdir(arg[0]) == 0);
	look("r");
	close(open("w", O_WRONLY));
	close(open("rw", O_RDWR));
	close(open("c", O_WRONLY | O_CREAT, 0600));
	must(access("c", F_OK) == 0);
	errno = 77;
	must(open("c", O_RDONLY) >= 0 && errno == 77); /* a success leaves errno alone */
	return 0;
}

static int do_list(void) /* DIR NAME */
{
	DIR *d;

	must(chdir(arg[0]) == 0);
	d = opendir(arg[1]);
	must(d != NULL);
	readdir(d);
	closedir(d);
	return 0;
}

static void *looker(void *path)
{
	look(path);
	return NULL;
}

static int do_threads(void) /* PATH... */
{
	pthread_t t[8];
	pthread_attr_t small;
	unsigned n = 0;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	for (; arg[n] && n < 8; n++)
		must(pthread_create(&t[n], &small, looker, arg[n]) == 0);
	while (n)
		pthread_join(t[--n], NULL);
	return 0;
}

/* --- Where relative paths stand -----------------------------------------------------------------
 */

static int do_moves(void) /* DIR with a/ and b/ */
{
	const int top = open(arg[0], O_RDONLY | O_DIRECTORY);
	pid_t pid;

	must(chdir(arg[0]) == 0);
	look("1");
	must(chdir("a") == 0);
	look("2");
	look("./3");
	look("..//b/4");
	must(fchdir(top) == 0);
	look("5");
	must(chdir("absent") == -1);
	look("6");
	must(openat(top, "a/7", O_RDONLY) == -1);
	must(syscall(SYS_chdir, "b") == 0);
	look("8");
	pid = fork();
	if (pid == 0) {
		look("9");
		must(chdir("../a") == 0);
		look("10");
		_exit(0);
	}
	wait_for(pid, 0);
	look("11"); /* in b still */
	return 0;
}

static void *move_about(void *dirs)
{
	for (unsigned i = 0; i < 20000; i++)
		must(chdir(((char **)dirs)[i & 1]) == 0);
	return NULL;
}

static void *look_about(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < 20000; i++)
		look("moving");
	return NULL;
}

/* While one thread changes directory, each path of two others must be below one of the two. */
static int do_moves_in_threads(void) /* DIR1 DIR2 */
{
	pthread_t t, u;

	must(chdir(arg[0]) == 0);
	must(pthread_create(&t, NULL, move_about, arg) == 0);
	must(pthread_create(&u, NULL, look_about, NULL) == 0);
	look_about(NULL);
	pthread_join(t, NULL);
	pthread_join(u, NULL);
	return 0;
}

static void moves_and_looks(int sig)
{
	static volatile unsigned n;

	(void)sig;
	must(chdir(arg[n++ & 1]) == 0);
	look("moving");
}

/* The same by a signal handler, which comes in the middle of everything. */
static int do_moves_in_handlers(void) /* DIR1 DIR2 */
{
	const struct sigaction act = { .sa_handler = moves_and_looks, .sa_flags = SA_RESTART };
	const struct itimerspec often = { { 0, 30000 }, { 0, 30000 } };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };
	timer_t timer;

	must(chdir(arg[0]) == 0 && sigaction(SIGPROF, &act, NULL) == 0);
	must(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
	must(timer_settime(timer, 0, &often, NULL) == 0);
	for (int i = 0; i < 40000; i++)
		look("moving");
	timer_delete(timer);
	return 0;
}

/* A vfork child that changes directory and executes, as launchers do; its parent stays. */
static int do_vfork_moves(void) /* DIR1 DIR2 PROGRAM */
{
	char *argv[] = { arg[2], NULL };
	volatile pid_t pid;

	must(chdir(arg[0]) == 0);
	look("before");
	pid = vfork();
	if (pid == 0) {
		if (chdir(arg[1]) == 0) {
			look("child");
			execv(arg[2], argv);
		}
		_exit(99);
	}
	look("after");
	wait_for(pid, 0);
	look("again");
	return 0;
}

static int do_unshared_fs(void) /* DIR1 DIR2 */
{
	must(chdir(arg[0]) == 0);
	look("one");
	must(unshare(CLONE_FS) == 0);
	must(chdir(arg[1]) == 0);
	look("two");
	return 0;
}

/* Descriptors whose directory is renamed, by us and by others, and whose number is used again. */
static int do_descriptors(void) /* DIR with a/ and b/ */
{
	int d;
	pid_t pid;

	must(chdir(arg[0]) == 0 && mkdir("d", 0700) == 0);
	d = open("d", O_RDONLY | O_DIRECTORY);
	must(openat(d, "1", O_RDONLY) == -1 && openat(d, "2", O_RDONLY) == -1);
	must(rename("d", "e") == 0 && openat(d, "3", O_RDONLY) == -1);
	pid = fork();
	if (pid == 0)
		_exit(syscall(SYS_renameat2, AT_FDCWD, "e", AT_FDCWD, "b/f", 0) != 0);
	wait_for(pid, 0);
	usleep(50000);
	must(openat(d, "4", O_RDONLY) == -1);
	close(d);
	must(open("a", O_RDONLY | O_DIRECTORY) == d);
	must(mkdir("m", 0700) == 0 && chdir("m") == 0 && rename("../m", "../n") == 0);
	look("7");
	must(chdir("..") == 0);
	must(openat(d, "5", O_RDONLY) == -1);
	must(openat(999, "6", O_RDONLY) == -1 && errno == EBADF);
	return 0;
}

static int do_bad_pointers(void)
{
	char *volatile none = NULL, *volatile bad = (char *)8, *volatile high = (char *)-4096;
	static char path[40000];

	char *guard = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *volatile gone = mmap((void *)0x123456780000, 4096, PROT_READ,
	                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(munmap(gone, 4096) == 0);
	must(open(guard, O_RDONLY) == -1 && errno == EFAULT);
	must(open(gone, O_RDONLY) == -1 && errno == EFAULT);
	must(open(gone + 5, O_RDONLY) == -1 && errno == EFAULT);
	must(open(none, O_RDONLY) == -1 && errno == EFAULT);
	must(open(bad, O_RDONLY) == -1 && errno == EFAULT);
	must(open(high, O_RDONLY) == -1 && errno == EFAULT);
	must(rename("x", bad) == -1 && errno == EFAULT);
	must(syscall(SYS_execve, bad, NULL, NULL) == -1 && errno == EFAULT);
	memset(path, 'p', sizeof(path) - 1);
	must(open(path, O_RDONLY) == -1 && errno == ENAMETOOLONG);
	path[4000] = '\0';
	must(open(path, O_RDONLY) == -1 && errno == ENAMETOOLONG);
	path[0] = '/';
	for (int i = 100; i < 4000; i += 100)
		path[i] = '/';
	must(open(path, O_RDONLY) == -1 && errno == ENOENT);
	return 0;
}

static int do_chroot(void) /* DIR, with in/ */
{
	must(chdir("/") == 0);
	if (chroot(arg[0]) != 0)
		return 77;
	look("/in/absolute");
	must(chdir("/in") == 0);
	look("relative");
	return 0;
}

/* --- fork, vfork, descriptors, environment -------------------------------------------------- */

static int do_fork_closed(void) /* PRIME AFTER */
{
	int fds[2];
	char c;
	pid_t pid;

	must(pipe(fds) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		must(dup2(fds[1], 3) == 3);
		close_range(4, ~0u, 0);
		look(arg[0]);
		must(write(3, "x", 1) == 1);
		close(3);
		look(arg[1]);
		_exit(0);
	}
	must(read(fds[0], &c, 1) == 1);
	wait_for(pid, 0);
	return 0;
}

static int do_closes_all(void) /* PATH1 PATH2 */
{
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	look(arg[0]);
	closefrom(0);
	look(arg[1]);
	for (int fd = 0; fd < 64; fd++)
		must(fcntl(fd, F_GETFD) == -1); /* nothing of anybody's is open */
	return 0;
}

static int do_vforks(void) /* PROGRAM PATH N */
{
	const int n = atoi(arg[2]);
	char *argv[] = { arg[0], (char *)"nothing", NULL };

	for (volatile int i = 0; i < n; i++) {
		const pid_t pid = vfork();

		if (pid == 0) {
			if (i % 3 == 0)
				_exit(7);
			if (i % 3 == 1)
				execv("/nonexistent/program", argv);
			else
				execv(arg[0], argv);
			_exit(7);
		}
		wait_for(pid, i % 3 == 2 ? 0 : 7);
		look(arg[1]);
	}
	return 0;
}

static int do_forks_in_threads(void) /* PATH N */
{
	pthread_t t[4];
	const int n = atoi(arg[1]);

	for (int i = 0; i < 4; i++)
		must(pthread_create(&t[i], NULL, looker, arg[0]) == 0);
	for (int i = 0; i < n; i++) {
		const pid_t pid = fork();

		if (pid == 0) {
			look(arg[0]);
			if (i & 1)
				_exit(0);
			exit(0);
		}
		wait_for(pid, 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return 0;
}

/* exec in its forms, from an environment that the program has emptied or replaced. */
static int do_execs(void) /* HOW PROGRAM ARG */
{
	char *const argv[] = { arg[1], arg[2], NULL };
	char *none[] = { NULL }, *twice[] = { (char *)"A=1", (char *)"LD_PRELOAD=", (char *)"A=2",
		                              (char *)"LD_PRELOAD=", NULL };
	const char *how = arg[0];

	if (!strcmp(how, "execve-empty"))
		execve(arg[1], argv, none);
	else if (!strcmp(how, "execve-null"))
		syscall(SYS_execve, arg[1], argv, NULL);
	else if (!strcmp(how, "execve-twice"))
		execve(arg[1], argv, twice);
	else if (!strcmp(how, "clearenv") && clearenv() == 0)
		execv(arg[1], argv);
	else if (!strcmp(how, "execl"))
		execl(arg[1], arg[1], arg[2], NULL);
	else if (!strcmp(how, "execle"))
		execle(arg[1], arg[1], arg[2], NULL, none);
	else if (!strcmp(how, "execlp"))
		execlp(arg[1], arg[1], arg[2], NULL);
	else if (!strcmp(how, "execvpe"))
		execvpe(arg[1], argv, none);
	else if (!strcmp(how, "execveat"))
		execveat(AT_FDCWD, arg[1], argv, none, 0);
	else if (!strcmp(how, "fexecve"))
		fexecve(open(arg[1], O_RDONLY | O_CLOEXEC), argv, none);
	else if (!strcmp(how, "spawn") || !strcmp(how, "spawnp")) {
		pid_t pid;
		must((how[5] ? posix_spawnp : posix_spawn)(&pid, arg[1], NULL, NULL, argv, none) ==
		     0);
		wait_for(pid, 0);
		return 0;
	} else if (!strcmp(how, "system")) {
		char command[512];
		clearenv();
		snprintf(command, sizeof(command), "%s %s", arg[1], arg[2]);
		return system(command);
	} else if (!strcmp(how, "popen")) {
		char command[512];
		FILE *f;
		clearenv();
		snprintf(command, sizeof(command), "%s %s", arg[1], arg[2]);
		f = popen(command, "r");
		must(f != NULL);
		return pclose(f);
	}
	return 98;
}

static int do_env(void) /* prints its environment's names */
{
	for (char **e = environ; *e; e++)
		printf("%.*s\n", (int)strcspn(*e, "="), *e);
	return 0;
}

static int do_value(void) /* NAME */
{
	const char *value = getenv(arg[0]);

	printf("%s\n", value ? value : "(unset)");
	return 0;
}

/* --- posix_spawn: what the child was given -------------------------------------------------- */

static int do_state(void) /* prints what a spawn can set */
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");

	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "Sig", 3) && strncmp(line, "SigQ", 4) &&
		    strncmp(line, "SigP", 4))
			fputs(line, stdout);
	}
	fclose(f);
	printf("group %d session %d\n", getpgid(0) == getpid(), getsid(0) == getpid());
	printf("cwd %s\n", getcwd(line, sizeof(line)));
	for (int fd = 0; fd < 40; fd++) {
		if (fcntl(fd, F_GETFD) != -1)
			printf("fd %d flags %#x\n", fd,
			       fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
	}
	return 0;
}

static void handler(int sig)
{
	(void)sig;
}

static int do_spawns(void) /* PROGRAM DIR: PROGRAM state, in DIR */
{
	char *argv[] = { arg[0], (char *)"state", NULL }, *bad[] = { (char *)"x", NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t set;
	pid_t pid;

	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, handler);
	signal(SIGPIPE, SIG_IGN);
	posix_spawnattr_init(&attr);
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	posix_spawnattr_setsigdefault(&attr, &set);
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	posix_spawnattr_setsigmask(&attr, &set);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
	                                        POSIX_SPAWN_SETPGROUP);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 20, "/dev/null", O_WRONLY | O_APPEND, 0);
	posix_spawn_file_actions_adddup2(&fa, 20, 21);
	posix_spawn_file_actions_addclose(&fa, 20);
	posix_spawn_file_actions_addclose(&fa, 33); /* was never open: no error */
	posix_spawn_file_actions_addchdir_np(&fa, arg[1]);
	posix_spawn_file_actions_addopen(&fa, 22, "relative", O_RDWR | O_CREAT, 0600);
	must(posix_spawn(&pid, arg[0], &fa, &attr, argv, environ) == 0);
	wait_for(pid, 0);
	look("parent-stays"); /* not in DIR */
	posix_spawn_file_actions_addopen(&fa, 23, "/nonexistent/x", O_RDONLY, 0);
	must(posix_spawn(&pid, arg[0], &fa, &attr, argv, environ) == ENOENT);
	must(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, bad, environ) == ENOENT);
	must(posix_spawnp(&pid, "no-such-program-anywhere", NULL, NULL, bad, environ) == ENOENT);
	must(posix_spawn(&pid, "/etc/passwd", NULL, NULL, bad, environ) == EACCES);
	must(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* no zombie */
	return 0;
}

/* --- Signals, stacks, ends ------------------------------------------------------------------ */

static volatile sig_atomic_t n_handled;

static void looks(int sig)
{
	(void)sig;
	look("/nonexistent/handler");
	n_handled++;
}

static int do_signals(void) /* N: opens under a timer whose handler, on a small stack, opens too */
{
	static char stack[16384];
	const stack_t ss = { .ss_sp = stack, .ss_size = 8192 };
	struct sigaction act = { .sa_handler = looks, .sa_flags = SA_ONSTACK | SA_RESTART };
	const struct itimerspec often = { { 0, 50000 }, { 0, 50000 } };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };
	const int n = atoi(arg[0]);
	timer_t timer;
	FILE *f;

	must(sigaltstack(&ss, NULL) == 0 && sigaction(SIGPROF, &act, NULL) == 0);
	must(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
	must(timer_settime(timer, 0, &often, NULL) == 0);
	for (int i = 0; i < n; i++)
		look("/nonexistent/main");
	timer_delete(timer);
	f = fopen(arg[1], "w");
	must(f && fprintf(f, "%d", n_handled) > 0);
	fclose(f);
	return 0;
}

static sigjmp_buf back;

static void jumps(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

static int do_jumps(void) /* N */
{
	const struct sigaction act = { .sa_handler = jumps };
	const struct itimerspec once = { { 0, 0 }, { 0, 20000 } };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };
	timer_t timer;
	static volatile int i;

	must(sigaction(SIGPROF, &act, NULL) == 0);
	must(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
	for (i = 0; i < atoi(arg[0]); i++) {
		if (sigsetjmp(back, 1) == 0) {
			timer_settime(timer, 0, &once, NULL);
			for (;;)
				look("/nonexistent/jumped");
		}
	}
	look("/nonexistent/last");
	return 0;
}

static ucontext_t fiber, main_context;
static void fiber_body(void)
{
	look("/nonexistent/fiber");
}

static void key_destroyed(void *value)
{
	look_at("/nonexistent/destructor%d", (int)(intptr_t)value);
}

static void *with_key(void *key)
{
	pthread_setspecific(*(pthread_key_t *)key, (void *)1);
	return NULL;
}

static void at_exit(void)
{
	look("/nonexistent/atexit");
}

__attribute__((constructor)) static void constructor(void)
{
	look("/nonexistent/constructor");
}

__attribute__((destructor)) static void destructor(void)
{
	look("/nonexistent/destructor");
}

static int do_ends(void)
{
	static char stack[16384];
	pthread_key_t key;
	pthread_t t;

	getcontext(&fiber);
	fiber.uc_stack.ss_sp = stack;
	fiber.uc_stack.ss_size = sizeof(stack);
	fiber.uc_link = &main_context;
	makecontext(&fiber, fiber_body, 0);
	must(swapcontext(&main_context, &fiber) == 0);
	must(pthread_key_create(&key, key_destroyed) == 0);
	must(pthread_create(&t, NULL, with_key, &key) == 0);
	pthread_join(t, NULL);
	atexit(at_exit);
	return 0;
}

static void *waits_in_fifo(void *path)
{
	open(path, O_RDONLY); /* no writer ever comes: only a cancellation ends it */
	return NULL;
}

static int do_cancels(void) /* FIFO */
{
	pthread_t t;
	void *result;

	must(pthread_create(&t, NULL, waits_in_fifo, arg[0]) == 0);
	usleep(20000);
	must(pthread_cancel(t) == 0);
	must(pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED);
	return 0;
}

/* --- realpath, glob, nftw: the same as libc's own ------------------------------------------- */

static const char *const parts[] = { "a",    "b",    "..",   ".", "up",    "abs", "loop",
	                             "gone", "file", "long", "",  "file/", "deep" };

static int do_realpaths(void) /* DIR N: random paths in a farm of links, against libc's own */
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	char *(*bare)(const char *, char *) = (char *(*)(const char *, char *))dlsym(libc,
	                                                                             "realpath");
	char path[PATH_MAX], mine[PATH_MAX], theirs[PATH_MAX], *m, *t;
	unsigned state = (unsigned)atoi(arg[1]);

	must(bare && chdir(arg[0]) == 0);
	must(mkdir("deep", 0700) == 0 && symlink("..", "a/up") == 0);
	must(symlink(arg[0], "a/abs") == 0 && symlink("loop", "loop") == 0);
	must(symlink("nowhere", "gone") == 0 && symlink("a//up/./b/../a", "deep/long") == 0);
	close(open("file", O_CREAT | O_WRONLY, 0600));
	must(symlink("../../file", "deep/file") == 0);
	must(mkdir("gone-dir", 0700) == 0 && chdir("gone-dir") == 0 && rmdir("../gone-dir") == 0);
	must(!realpath(".", mine) && errno == ENOENT && !realpath("..", mine) && errno == ENOENT);
	must(chdir(arg[0]) == 0);
	for (int i = 0; i < 50; i++) { /* chains of links, as many as may be followed and more */
		snprintf(path, sizeof(path), "chain%d", i);
		snprintf(mine, sizeof(mine), i ? "chain%d" : "file", i - 1);
		must(symlink(mine, path) == 0);
		must(!realpath(path, mine) == !bare(path, theirs));
	}
	for (int i = 0; i < atoi(arg[1]); i++) {
		size_t n = (size_t)snprintf(path, sizeof(path), "%s", i & 1 ? arg[0] : ".");
		int error;
		for (int k = 0; k < 6; k++) {
			state = state * 1103515245 + 12345;
			n += (size_t)snprintf(
				path + n, sizeof(path) - n, "/%s",
				parts[(state >> 16) % (sizeof(parts) / sizeof(parts[0]))]);
			memset(mine, 7, sizeof(mine));
			memset(theirs, 7, sizeof(theirs));
			errno = 0;
			m = realpath(path, mine);
			error = errno;
			errno = 0;
			t = bare(path, theirs);
			must(!m == !t && error == errno);
			must((!t && error != ENOENT && error != EACCES) || !strcmp(mine, theirs));
			m = realpath(path, NULL);
			must(!m == !t && (!m || !strcmp(m, theirs)));
			free(m);
		}
	}
	return 0;
}

static int visits(const char *path, const struct stat *st, int type, struct FTW *where)
{
	printf("%s %d %d %d\n", path, type, (int)(st->st_mode >> 12), where->level);
	return 0;
}

static int do_walks(void) /* DIR PATTERN */
{
	glob_t found = { .gl_offs = 2 };

	must(nftw(arg[0], visits, 5, FTW_PHYS) == 0);
	must(glob(arg[1], GLOB_MARK | GLOB_DOOFFS, NULL, &found) == 0);
	for (size_t i = 0; i < found.gl_pathc; i++)
		puts(found.gl_pathv[2 + i]);
	printf("flags %d closedir %d\n", found.gl_flags, found.gl_closedir != NULL);
	must(glob("/nonexistent/*/x", 0, NULL, &found) == GLOB_NOMATCH);
	globfree(&found);
	return 0;
}

/* --- execvp's search, and children made without libc --- */

static int exec_error(int (*exec)(const char *, char *const *, char *const *), const char *file)
{
	char *argv[] = { (char *)"argument", NULL };
	int got = 0;
	const pid_t pid = fork();

	if (pid == 0) {
		exec(file, argv, environ);
		_exit(errno);
	}
	must(waitpid(pid, &got, 0) == pid && WIFEXITED(got));
	return WEXITSTATUS(got); /* 200: it was executed, by the shell */
}

static int do_lookups(void) /* DIR: execvpe against libc's own. d1 has no program, d2 one
                                * that is not executable, d3 one that is; f1 is a file, l1 a loop */
{
	static const char *const paths[] = {
		"d1:d2:d3", "d2:d1", "d1:also", "f1/x:d3", "", ":d3", "d3", "d3:",
		"d2", "d1", "f1", "l1:d1", "/nonexistent:d1:d2:f1:d3", NULL,
	};
	static const char *const names[] = { "p9", "", "./d3/p9", "d1/p9", "d2/p9", "f1",
		                             "long", "d3", "absent" };
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	int (*bare)(const char *, char *const *, char *const *) =
		(int (*)(const char *, char *const *, char *const *))dlsym(libc, "execvpe");
	char name[300];
	int fd;

	must(bare && chdir(arg[0]) == 0);
	must(!mkdir("d3", 0755) && !mkdir("d1", 0755) && !mkdir("d2", 0755));
	must(symlink("l1", "l1") == 0);
	close(open("f1", O_CREAT | O_WRONLY, 0644));
	close(open("d2/p9", O_CREAT | O_WRONLY, 0644));
	fd = open("d3/p9", O_CREAT | O_WRONLY, 0755);
	must(dprintf(fd, "exit 200\n") > 0 && close(fd) == 0); /* open, it could not be executed */
	for (size_t p = 0; p < sizeof(paths) / sizeof(paths[0]); p++) {
		if (paths[p])
			setenv("PATH", paths[p], 1);
		else
			unsetenv("PATH");
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			snprintf(name, sizeof(name), "%s", names[i]);
			if (!strcmp(name, "long"))
				memset(name, 'n', 256), name[256] = '\0';
			printf("%s %s: %d\n", paths[p] ? paths[p] : "-", names[i],
			       exec_error(execvpe, name));
			must(exec_error(execvpe, name) == exec_error(bare, name));
		}
	}
	return 0;
}

static int shares_memory(void *path)
{
	look(path);
	execl("/bin/true", "true", NULL);
	_exit(99);
}

static int do_clones(void) /* PATH N: children as other runtimes make them */
{
	static char stack[65536] __attribute__((aligned(16)));

	for (int i = 0; i < atoi(arg[1]); i++) {
		wait_for(clone(shares_memory, stack + sizeof(stack),
		               CLONE_VM | CLONE_VFORK | SIGCHLD, arg[0]),
		         0);
		look(arg[0]);
		const pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (pid == 0) {
			look(arg[0]);
			_exit(0);
		}
		wait_for(pid, 0);
	}
	return 0;
}

static void forks(int sig)
{
	(void)sig;
	const pid_t pid = fork();

	if (pid == 0) {
		look("/nonexistent/forked");
		_exit(0);
	}
	wait_for(pid, 0);
}

static int do_forks_in_handlers(void) /* N */
{
	const struct sigaction act = { .sa_handler = forks };

	must(sigaction(SIGUSR1, &act, NULL) == 0);
	for (int i = 0; i < atoi(arg[0]); i++) {
		look("/nonexistent/main");
		raise(SIGUSR1);
	}
	return 0;
}

static void at_quick_exit_(void)
{
	look("/nonexistent/quick");
}

static int do_quick_exit(void)
{
	at_quick_exit(at_quick_exit_);
	quick_exit(0);
}

static void *last_thread(void *main_thread)
{
	pthread_join(*(pthread_t *)main_thread, NULL);
	look("/nonexistent/last-thread");
	exit(0);
}

static int do_pthread_exit(void)
{
	static pthread_t self, t;

	self = pthread_self();
	must(pthread_create(&t, NULL, last_thread, &self) == 0);
	pthread_exit(NULL);
}

/* --- A filter of its own -------------------------------------------------------------------- */

static int do_confined(void) /* N: opens under a filter that kills on any other call */
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog prog = { sizeof(filter) / sizeof(filter[0]), filter };
	const int n = atoi(arg[0]), top = open("/", O_RDONLY | O_DIRECTORY);
	char *elsewhere = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                       -1, 0);

	strcpy(elsewhere + (1 << 19), "elsewhere");
	elsewhere += 1 << 19;
	look("before");
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (strcmp(arg[1], "syscall") == 0)
		must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0);
	else
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
	for (int i = 0; i < n; i++)
		look("confined");
	openat(top, "below", O_RDONLY); /* whose name could only be asked for */
	open(elsewhere, O_RDONLY);      /* in memory that no record came from yet */
	_exit(0);
}

static int do_limits(void) /* PROGRAM: which limit is arg[1] */
{
	const struct rlimit little = { 3, 3 }, small = { 1 << 20, 1 << 20 };
	char *argv[] = { arg[0], (char *)"nothing", NULL };

	if (strcmp(arg[1], "nofile") == 0)
		must(setrlimit(RLIMIT_NOFILE, &little) == 0);
	else
		must(setrlimit(RLIMIT_FSIZE, &small) == 0);
	execv(arg[0], argv);
	return 98;
}

static int do_blocks(void) /* FIFO */
{
	waits_in_fifo(arg[0]);
	return 98;
}

static int do_nothing(void)
{
	return 0;
}

static int do_many(void) /* PATH N: for measuring */
{
	for (int i = atoi(arg[1]); i > 0; i--)
		look(arg[0]);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} actions[] = {
	{ "open", do_open },
	{ "open-modes", do_open_modes },
	{ "list", do_list },
	{ "threads", do_threads },
	{ "moves", do_moves },
	{ "moves-in-threads", do_moves_in_threads },
	{ "moves-in-handlers", do_moves_in_handlers },
	{ "vfork-moves", do_vfork_moves },
	{ "unshared-fs", do_unshared_fs },
	{ "descriptors", do_descriptors },
	{ "bad-pointers", do_bad_pointers },
	{ "chroot", do_chroot },
	{ "fork-closed", do_fork_closed },
	{ "closes-all", do_closes_all },
	{ "vforks", do_vforks },
	{ "forks-in-threads", do_forks_in_threads },
	{ "execs", do_execs },
	{ "env", do_env },
	{ "value", do_value },
	{ "state", do_state },
	{ "spawns", do_spawns },
	{ "signals", do_signals },
	{ "jumps", do_jumps },
	{ "ends", do_ends },
	{ "cancels", do_cancels },
	{ "realpaths", do_realpaths },
	{ "walks", do_walks },
	{ "lookups", do_lookups },
	{ "clones", do_clones },
	{ "forks-in-handlers", do_forks_in_handlers },
	{ "quick-exit", do_quick_exit },
	{ "pthread-exit", do_pthread_exit },
	{ "confined", do_confined },
	{ "limits", do_limits },
	{ "blocks", do_blocks },
	{ "nothing", do_nothing },
	{ "many", do_many },
};

int main(int argc, char **argv)
{
	arg = argv + 2;
	for (size_t i = 0; argc > 1 && i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(argv[1], actions[i].name) == 0)
			return actions[i].run();
	}
	return 64;
}
