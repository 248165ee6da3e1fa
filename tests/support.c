/* SPDX-License-Identifier: MIT */
/* support.c - helpers of the tests; see support.h. */
#include "tests/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void test_check_failed(const char *file, int line, const char *what)
{
	char text[512];
	const int n = snprintf(text, sizeof(text), "%s:%d: in process %d: not so: %s\n", file, line,
	                       (int)getpid(), what);

	if (n > 0 && write(2, text, (size_t)n) < 0)
		_exit(TEST_CHECK_STATUS);
	_exit(TEST_CHECK_STATUS);
}

/* --- Folders and files ---------------------------------------------------------- */

#define N_FOLDERS_MAX 64
static char *folders[N_FOLDERS_MAX];
static pid_t folders_pid;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_DNR)
		chmod(path, 0700);
	remove(path);
	return 0;
}

static void folders_remove(void)
{
	if (getpid() != folders_pid)
		return;
	for (size_t i = 0; i < N_FOLDERS_MAX; i++) {
		if (folders[i])
			nftw(folders[i], remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
}

char *test_folder_make(void)
{
	const char *base = getenv("TMPDIR");
	char *folder = test_text("%s/sparring-test-XXXXXX", base && *base ? base : "/tmp");

	if (!mkdtemp(folder))
		fail_msg("mkdtemp %s: %s", folder, strerror(errno));
	if (!folders_pid) {
		folders_pid = getpid();
		atexit(folders_remove);
	}
	for (size_t i = 0; getpid() == folders_pid && i < N_FOLDERS_MAX; i++) {
		if (!folders[i]) {
			folders[i] = folder;
			break;
		}
	}
	return folder;
}

void test_folder_remove(char *folder)
{
	if (!folder)
		return;
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	for (size_t i = 0; i < N_FOLDERS_MAX; i++) {
		if (folders[i] == folder)
			folders[i] = NULL;
	}
	free(folder);
}

char *test_text(const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		abort();
	va_end(args);
	return text;
}

static char *fd_read(int fd, size_t *n_bytes)
{
	size_t n = 0, room = 4096;
	char *bytes = malloc(room);

	while (bytes) {
		const ssize_t got = read(fd, bytes + n, room - n - 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
		if (room - n < 2)
			bytes = realloc(bytes, room *= 2);
	}
	if (!bytes)
		abort();
	bytes[n] = '\0';
	if (n_bytes)
		*n_bytes = n;
	return bytes;
}

char *test_file_read(const char *path, size_t *n_bytes)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *bytes;

	if (fd < 0)
		return NULL;
	bytes = fd_read(fd, n_bytes);
	close(fd);
	return bytes;
}

void test_file_write(const char *path, const void *bytes, size_t n_bytes)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, bytes, n_bytes) != (ssize_t)n_bytes)
		fail_msg("%s: %s", path, strerror(errno));
	close(fd);
}

/* --- Children ------------------------------------------------------------------- */

pid_t test_child_start(void (*body)(void *arg), void *arg)
{
	fflush(NULL);
	const pid_t pid = fork();

	if (pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body(arg);
		fflush(NULL);
		_exit(0);
	}
	return pid;
}

struct test_end test_child_wait(pid_t pid, unsigned timeout_ms)
{
	const uint64_t until = test_now_ns() + (uint64_t)timeout_ms * 1000000;
	struct test_end end = { -1, 0, false };
	int status;

	for (unsigned nap_ms = 0;; nap_ms = 1) {
		const pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			break;
		if (got < 0 && errno != EINTR)
			fail_msg("waitpid: %s", strerror(errno));
		if (test_now_ns() >= until) {
			end.timed_out = true;
			kill(pid, SIGKILL);
			while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
				;
			break;
		}
		if (nap_ms)
			test_sleep_ms(nap_ms);
		else
			sched_yield();
	}
	if (WIFEXITED(status))
		end.status = WEXITSTATUS(status);
	else if (WIFSIGNALED(status))
		end.signal = WTERMSIG(status);
	return end;
}

struct test_end test_child(void (*body)(void *arg), void *arg, unsigned timeout_ms)
{
	return test_child_wait(test_child_start(body, arg), timeout_ms);
}

struct test_end test_run(char *const argv[], char **out, unsigned timeout_ms)
{
	FILE *file = tmpfile(); /* not a pipe: what the program leaves running must not hold us */
	struct test_end end;
	pid_t pid;

	if (!file)
		fail_msg("tmpfile: %s", strerror(errno));
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (pid == 0) {
		dup2(fileno(file), 1);
		dup2(fileno(file), 2);
		execvp(argv[0], argv);
		_exit(127);
	}
	end = test_child_wait(pid, timeout_ms);
	if (out) {
		lseek(fileno(file), 0, SEEK_SET);
		*out = fd_read(fileno(file), NULL);
	}
	fclose(file);
	return end;
}

void test_assert_ended_well(struct test_end end)
{
	if (end.timed_out)
		fail_msg("the child did not end in time");
	if (end.signal)
		fail_msg("the child was ended by signal %d", end.signal);
	if (end.status)
		fail_msg("the child ended with status %d", end.status);
}

bool test_become_user(void)
{
	if (geteuid() != 0)
		return false;
	check(setgroups(0, NULL) == 0);
	check(setresgid(65534, 65534, 65534) == 0);
	check(setresuid(65534, 65534, 65534) == 0);
	prctl(PR_SET_DUMPABLE, 1); /* /proc/self stays ours */
	return true;
}

/* --- Time and chance ------------------------------------------------------------ */

bool test_long(void)
{
	return getenv("SPARRING_TEST_LONG") != NULL;
}

uint64_t test_seed(void)
{
	static uint64_t seed;
	const char *given = getenv("SPARRING_SEED");

	if (seed)
		return seed;
	if (given)
		seed = strtoull(given, NULL, 0);
	else if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = test_now_ns();
	if (!seed)
		seed = 1;
	print_message("seed %#llx (SPARRING_SEED=... repeats it)\n", (unsigned long long)seed);
	return seed;
}

uint64_t test_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t test_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void test_sleep_ms(unsigned ms)
{
	const struct timespec nap = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&nap, NULL);
}

bool test_wait_until(bool (*done)(void *arg), void *arg, unsigned timeout_ms)
{
	const uint64_t until = test_now_ns() + (uint64_t)timeout_ms * 1000000;

	while (!done(arg)) {
		if (test_now_ns() >= until)
			return false;
		test_sleep_ms(1);
	}
	return true;
}

const char *test_build_folder(void)
{
	static char path[PATH_MAX];
	const ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return "build";
	path[n] = '\0';
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(path, '/');

		if (slash)
			*slash = '\0';
	}
	return path;
}
