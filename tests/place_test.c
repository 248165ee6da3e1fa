/* SPDX-License-Identifier: MIT */
/* place_test.c - the private place: whose folder it is, who lives in it, what a sweep may take. */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "base/atomic.h"
#include "base/place.h"
#include "tests/fake_sys.h"

#define GIB (1ull << 30)

static char *folder; /* fresh for each case */

static int make_folder(void **state)
{
	(void)state;
	folder = test_folder_make();
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	fake_sys_reset();
	test_folder_remove(folder);
	return 0;
}

static void assert_private(int fd, const char *path)
{
	struct stat by_fd, by_name;

	assert_true(fd >= 0);
	assert_int_equal(path[0], '/');
	assert_int_equal(fstat(fd, &by_fd), 0);
	assert_int_equal(lstat(path, &by_name), 0);
	assert_true(by_fd.st_ino == by_name.st_ino && by_fd.st_dev == by_name.st_dev);
	assert_true(S_ISDIR(by_fd.st_mode));
	assert_int_equal(by_fd.st_uid, geteuid());
	assert_int_equal(by_fd.st_mode & 022, 0);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

/* --- Which folder --------------------------------------------------------------- */

static void place_by_the_rules_is_ours_alone(void **state)
{
	char path[512];

	(void)state;
	unsetenv("SPARRING_DIR");
	const int fd = spr_place_open(NULL, 0, path, sizeof(path));
	struct stat st;

	assert_private(fd, path);
	fstat(fd, &st);
	assert_int_equal(st.st_mode & 07777, 0700);
	close(fd);
}

static void named_folder_is_made_and_private(void **state)
{
	char *want = test_text("%s/made", folder), path[512];
	struct stat st;

	(void)state;
	const int fd = spr_place_open(want, GIB, path, sizeof(path));
	assert_private(fd, path);
	assert_string_equal(path, want);
	fstat(fd, &st);
	assert_int_equal(st.st_mode & 07777, 0700);
	close(fd);
	free(want);
}

static void environment_names_a_folder(void **state)
{
	char *want = test_text("%s/by-environment///", folder), path[512];

	(void)state;
	setenv("SPARRING_DIR", want, 1);
	const int fd = spr_place_open("", 0, path, sizeof(path));
	unsetenv("SPARRING_DIR");
	assert_private(fd, path);
	assert_int_equal(strlen(path), strlen(want) - 3); /* less the slashes */
	close(fd);
	free(want);
}

static void relative_name_becomes_absolute(void **state)
{
	char *before = get_current_dir_name(), path[512];

	(void)state;
	assert_int_equal(chdir(folder), 0);
	const int fd = spr_place_open("here", 0, path, sizeof(path));
	assert_int_equal(chdir(before), 0);
	assert_private(fd, path);
	close(fd);
	free(before);
}

static void somebody_s_folder_keeps_its_mode_and_must_not_be_open_to_writers(void **state)
{
	char path[512];
	struct stat st;

	(void)state;
	assert_int_equal(chmod(folder, 0755), 0);
	const int fd = spr_place_open(folder, 0, path, sizeof(path));
	assert_private(fd, path);
	fstat(fd, &st);
	assert_int_equal(st.st_mode & 07777, 0755);
	close(fd);
	assert_int_equal(chmod(folder, 01777), 0);
	assert_int_equal(spr_place_open(folder, 0, path, sizeof(path)), -EACCES);
	assert_non_null(strstr(spr_error_text(), "1777"));
	stat(folder, &st);
	assert_int_equal(st.st_mode & 07777, 01777);
}

static void link_in_our_way_is_not_followed(void **state)
{
	char *link = test_text("%s/link", folder), *with_slash = test_text("%s/", link), path[512];
	char *real = test_text("%s/real", folder);

	(void)state;
	assert_int_equal(mkdir(real, 0700), 0);
	assert_int_equal(symlink(real, link), 0);
	assert_int_equal(spr_place_open(link, 0, path, sizeof(path)), -ENOTDIR);
	assert_non_null(strstr(spr_error_text(), link));
	assert_int_equal(spr_place_open(with_slash, 0, path, sizeof(path)), -ENOTDIR);
	free(link);
	free(with_slash);
	free(real);
}

static void what_is_no_folder_is_refused(void **state)
{
	char *file = test_text("%s/file", folder), path[512];

	(void)state;
	test_file_write(file, "x", 1);
	assert_int_equal(spr_place_open(file, 0, path, sizeof(path)), -ENOTDIR);
	assert_non_null(strstr(spr_error_text(), "file"));
	free(file);
}

static void missing_parent_is_said(void **state)
{
	char *deep = test_text("%s/no/where", folder), path[512];

	(void)state;
	assert_int_equal(spr_place_open(deep, 0, path, sizeof(path)), -ENOENT);
	assert_non_null(strstr(spr_error_text(), deep));
	free(deep);
}

static void long_names_work_up_to_what_the_system_takes(void **state)
{
	char name[301], path[1024], small[64];

	(void)state;
	memset(name, 'n', sizeof(name));
	name[200] = '\0';
	char *deep = test_text("%s/%s", folder, name);
	const int fd = spr_place_open(deep, 0, path, sizeof(path));
	assert_private(fd, path);
	close(fd);
	assert_int_equal(spr_place_open(deep, 0, small, sizeof(small)), -ENAMETOOLONG);
	free(deep);
	memset(name, 'n', sizeof(name));
	name[300] = '\0';
	deep = test_text("%s/%s", folder, name);
	assert_int_equal(spr_place_open(deep, 0, path, sizeof(path)), -ENAMETOOLONG);
	free(deep);
}

static void open_read_only(void *arg)
{
	char path[512];

	test_become_user();
	char *below = test_text("%s/below", (char *)arg);
	const int err = spr_place_open(below, 0, path, sizeof(path));
	check(err == -EACCES);
	check(strstr(spr_error_text(), below) != NULL);
}

static void read_only_parent_is_said(void **state)
{
	(void)state;
	assert_int_equal(chmod(folder, 0555), 0);
	test_assert_ended_well(test_child(open_read_only, folder, 10000));
	assert_int_equal(chmod(folder, 0700), 0);
}

/* As a user with a number nobody else has; *shm and *tmp are where root sits on his name. */
#define MADE_UP_UID 61234

static void open_where_squatted(void *arg)
{
	char first[512], again[512];

	(void)arg;
	check(setgroups(0, NULL) == 0 && setgid(MADE_UP_UID) == 0 && setuid(MADE_UP_UID) == 0);
	unsetenv("SPARRING_DIR");
	unsetenv("TMPDIR");
	const int fd = spr_place_open(NULL, 0, first, sizeof(first));
	check(fd >= 0);
	check(strstr(first, "/sparring-61234-") != NULL);
	const int other = spr_place_open(NULL, 0, again, sizeof(again));
	check(other >= 0);
	check(strcmp(first, again) == 0); /* found again, so that it can be swept */
	check(rmdir(first) == 0);
}

static void other_user_on_our_name_is_left_alone(void **state)
{
	(void)state;
	if (geteuid() != 0)
		TEST_SKIP("only root can make another user's folder");
	rmdir("/dev/shm/sparring-61234");
	rmdir("/tmp/sparring-61234");
	const bool in_shm = mkdir("/dev/shm/sparring-61234", 0777) == 0;
	const bool in_tmp = mkdir("/tmp/sparring-61234", 0777) == 0;
	const struct test_end end = test_child(open_where_squatted, NULL, 10000);
	if (in_shm)
		rmdir("/dev/shm/sparring-61234");
	if (in_tmp)
		rmdir("/tmp/sparring-61234");
	test_assert_ended_well(end);
}

/* Mounts of our own, by a user namespace if we are not root. */
static bool own_mounts(void)
{
	const unsigned uid = geteuid(), gid = getegid();

	if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER))
		return false;
	if (uid != 0) {
		char *map = test_text("%u %u 1", uid, uid),
		     *groups = test_text("%u %u 1", gid, gid);

		test_file_write("/proc/self/setgroups", "deny", 4);
		test_file_write("/proc/self/uid_map", map, strlen(map));
		test_file_write("/proc/self/gid_map", groups, strlen(groups));
		free(map);
		free(groups);
	}
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void open_with_small_shm(void *arg)
{
	char path[512];

	(void)arg;
	unsetenv("SPARRING_DIR");
	if (!own_mounts() || mount("none", "/dev/shm", "tmpfs", 0, "size=64m,mode=1777"))
		_exit(77);
	const int fd = spr_place_open(NULL, GIB, path, sizeof(path));
	check(fd >= 0);
	check(strncmp(path, "/dev/shm/", 9) != 0);
}

static void small_shm_is_passed_over(void **state)
{
	(void)state;
	const struct test_end end = test_child(open_with_small_shm, NULL, 10000);

	if (end.status == 77)
		TEST_SKIP("no mounts of our own here");
	test_assert_ended_well(end);
}

static void open_with_all_small(void *arg)
{
	char path[512];

	(void)arg;
	unsetenv("SPARRING_DIR");
	unsetenv("TMPDIR");
	if (!own_mounts() || mount("none", "/dev/shm", "tmpfs", 0, "size=1m,mode=1777") ||
	    mount("none", "/tmp", "tmpfs", 0, "size=2m,mode=1777"))
		_exit(77);
	const int fd = spr_place_open(NULL, GIB, path, sizeof(path));
	check(fd >= 0);
	check(strncmp(path, "/tmp/", 5) == 0); /* the roomier of the two */
}

static void roomiest_is_taken_where_all_are_small(void **state)
{
	(void)state;
	const struct test_end end = test_child(open_with_all_small, NULL, 10000);

	if (end.status == 77)
		TEST_SKIP("no mounts of our own here");
	test_assert_ended_well(end);
}

/* --- Files ---------------------------------------------------------------------- */

static int open_place(void)
{
	char path[512];
	const int place = spr_place_open(folder, 0, path, sizeof(path));

	assert_true(place >= 0);
	return place;
}

static unsigned n_files(const char *in)
{
	char *out, *argv[] = { (char *)"ls", (char *)"-A", (char *)in, NULL };
	unsigned n = 0;

	test_run(argv, &out, 10000);
	for (const char *at = out; (at = strchr(at, '\n')); at++)
		n++;
	free(out);
	return n;
}

static void created_file_is_private_and_lives_while_open(void **state)
{
	const int place = open_place();
	char name[64];
	struct stat st;

	(void)state;
	const int fd = spr_place_create(place, ".ring", name, sizeof(name));
	assert_true(fd >= 0);
	assert_int_equal(strlen(name), 4 + 16 + 5);
	assert_string_equal(name + 20, ".ring");
	assert_int_equal(fstatat(place, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(write(fd, "x", 1), 1);
	assert_int_equal(spr_place_sweep(place, NULL, NULL), 0);
	close(fd);
	assert_int_equal(spr_place_sweep(place, NULL, NULL), 1);
	assert_int_equal(n_files(folder), 0);
	close(place);
}

static void hold_a_file(void *arg)
{
	const int place = *(int *)arg;
	char name[64];

	check(spr_place_create(place, ".ring", name, sizeof(name)) >= 0);
	pause();
}

static bool one_file_there(void *arg)
{
	(void)arg;
	return n_files(folder) == 1;
}

static void file_of_a_living_process_is_kept_and_of_a_killed_one_is_swept(void **state)
{
	int place = open_place();
	const pid_t pid = test_child_start(hold_a_file, &place);

	(void)state;
	assert_true(test_wait_until(one_file_there, NULL, 10000));
	assert_int_equal(spr_place_sweep(place, NULL, NULL), 0);
	kill(pid, SIGKILL);
	test_child_wait(pid, 10000);
	assert_int_equal(spr_place_sweep(place, NULL, NULL), 1);
	close(place);
}

static void note(void *arg, const char *name)
{
	strcat(strcat(arg, name), " ");
}

static void sweep_takes_nothing_that_is_not_ours(void **state)
{
	static const char *const names[] = {
		"notes.txt", "spr-short.ring", "spr-0123456789abcdef", "spr-0123456789abcdeg.ring",
		"xspr-0123456789abcdef.ring",
	};
	const int place = open_place();
	char noted[512] = "";

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		close(openat(place, names[i], O_CREAT | O_WRONLY, 0600));
	/* Of our name, but no file: a link to a file, a folder, a FIFO. */
	close(openat(place, "outside", O_CREAT | O_WRONLY, 0600));
	assert_int_equal(symlinkat("outside", place, "spr-00000000000000aa.ring"), 0);
	assert_int_equal(mkdirat(place, "spr-00000000000000bb.ring", 0700), 0);
	assert_int_equal(mkfifoat(place, "spr-00000000000000cc.ring", 0600), 0);
	close(openat(place, "spr-0123456789abcdef.ring", O_CREAT | O_WRONLY, 0600));
	assert_int_equal(spr_place_sweep(place, note, noted), 1);
	assert_string_equal(noted, "spr-0123456789abcdef.ring ");
	assert_int_equal(n_files(folder), 9);
	close(place);
}

static _Atomic bool stop;
static _Atomic unsigned n_bad_sweeps;

static void *sweeper(void *arg)
{
	const int place = *(int *)arg;

	while (!spr_load_relaxed(&stop))
		spr_add_relaxed(&n_bad_sweeps, spr_place_sweep(place, NULL, NULL) < 0);
	return NULL;
}

static unsigned make_and_give_up(int place, int n_rounds)
{
	int fds[8];
	char name[64];
	struct stat st;
	unsigned n_wrong = 0;

	for (int i = 0; i < n_rounds + 8; i++) {
		int *fd = &fds[i % 8];

		if (i >= 8) {
			n_wrong += fstat(*fd, &st) != 0 || st.st_nlink != 1;
			close(*fd);
		}
		if (i >= n_rounds)
			continue;
		*fd = spr_place_create(place, ".ring", name, sizeof(name));
		if (i % 4 == 0)
			sched_yield();
		n_wrong += *fd < 0 || fstatat(place, name, &st, AT_SYMLINK_NOFOLLOW) != 0;
	}
	return n_wrong;
}

/* Files are made and given up while two others sweep: none may vanish while it is held, and when
 * all is still none may be left. */
static void race_with_sweepers(int n_rounds)
{
	int place = open_place();
	pthread_t threads[2];

	spr_store_relaxed(&stop, false);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, sweeper, &place), 0);
	const unsigned n_wrong = make_and_give_up(place, n_rounds);
	spr_store_relaxed(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(n_wrong, 0);
	assert_int_equal(spr_load_relaxed(&n_bad_sweeps), 0);
	assert_true(spr_place_sweep(place, NULL, NULL) >= 0);
	assert_int_equal(n_files(folder), 0);
	close(place);
}

static void sweepers_never_take_a_living_file(void **state)
{
	(void)state;
	race_with_sweepers(test_long() ? 200000 : 1000);
}

static long no_tmpfile(long nr, long a, long b, long c, long d, long e, long f)
{
	if ((c & O_TMPFILE) == O_TMPFILE)
		return -EOPNOTSUPP;
	return spr_sys_raw(nr, a, b, c, d, e, f);
}

static void sweepers_never_take_a_living_file_without_nameless_files(void **state)
{
	(void)state;
	fake_sys_replace(SYS_openat, no_tmpfile);
	race_with_sweepers(test_long() ? 200000 : 1000);
}

static void nothing_is_left_when_any_call_fails(void **state)
{
	static const long calls[] = { SYS_openat, SYS_fcntl, SYS_linkat, SYS_newfstatat,
	                              SYS_getrandom, SYS_unlinkat };
	static const int errors[] = { EMFILE, ENOLCK, ENOSPC, EACCES };
	const int place = open_place();
	char name[64];

	(void)state;
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
		for (unsigned nth = 1; nth <= 3; nth++) {
			for (int always = 0; always < 2; always++) {
				const int err = errors[(c + nth) % 4];

				if (always)
					fake_sys_fail_from(calls[c], nth, err);
				else
					fake_sys_fail(calls[c], nth, err);
				const int fd = spr_place_create(place, ".ring", name, sizeof(name));
				fake_sys_reset();
				if (fd >= 0) {
					assert_int_equal(unlinkat(place, name, 0), 0);
					close(fd);
				} else {
					assert_true(strlen(spr_error_text()) > 10);
				}
				assert_int_equal(n_files(folder), 0);
			}
		}
	}
	close(place);
}

static void name_that_does_not_fit_is_refused(void **state)
{
	const int place = open_place();
	char name[20];

	(void)state;
	assert_int_equal(spr_place_create(place, ".ring", name, sizeof(name)), -ENAMETOOLONG);
	assert_int_equal(n_files(folder), 0);
	close(place);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(place_by_the_rules_is_ours_alone),
		CASE(named_folder_is_made_and_private),
		CASE(environment_names_a_folder),
		CASE(relative_name_becomes_absolute),
		CASE(somebody_s_folder_keeps_its_mode_and_must_not_be_open_to_writers),
		CASE(link_in_our_way_is_not_followed),
		CASE(what_is_no_folder_is_refused),
		CASE(missing_parent_is_said),
		CASE(long_names_work_up_to_what_the_system_takes),
		CASE(read_only_parent_is_said),
		CASE(other_user_on_our_name_is_left_alone),
		CASE(small_shm_is_passed_over),
		CASE(roomiest_is_taken_where_all_are_small),
		CASE(created_file_is_private_and_lives_while_open),
		CASE(file_of_a_living_process_is_kept_and_of_a_killed_one_is_swept),
		CASE(sweep_takes_nothing_that_is_not_ours),
		CASE(sweepers_never_take_a_living_file),
		CASE(sweepers_never_take_a_living_file_without_nameless_files),
		CASE(nothing_is_left_when_any_call_fails),
		CASE(name_that_does_not_fit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
