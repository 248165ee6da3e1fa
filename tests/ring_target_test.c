/* SPDX-License-Identifier: MIT */
/*
 * ring_target_test.c - what programs do to themselves while we live in them: close everything,
 * change limits, root, uid and namespaces, filter their system calls, use up their maps, dump core.
 * They go on undisturbed, and what was not written is counted.
 */
#include <dirent.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>

#include "tests/ring_support.h"

#define CANNOT 77 /* a role's answer: not possible here */

static spr_producer *producer;

static int write_some(struct rig *r, uint32_t source, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (put_record(spr_writer_here(producer), r->tally, source, 24 + i % 90))
			return 1;
	}
	return 0;
}

/* A child that registers itself after whatever its parent did. */
static int child_writes(struct rig *r, uint32_t source)
{
	const pid_t pid = fork();

	CHILD_CHECK(pid >= 0);
	if (!pid)
		_exit(write_some(r, source, 20));
	return wait_for(pid);
}

/* A role that writes before and after what it does to itself: all of it arrives. */
static void expect_undisturbed(int (*role)(struct rig *r, uint32_t arg), uint32_t arg)
{
	struct rig r;
	int status = 0;
	pid_t pid;

	rig_open(&r, 0, NULL, 8);
	pid = spawn(role, &r, arg);
	rig_run(&r, &pid, &status, 1);
	rig_finish(&r);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
		rig_close(&r);
		TEST_SKIP("not allowed here");
	}
	assert_int_equal(status, 0);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.lost, 0);
	assert_true(r.stats.delivered > 0);
	rig_close(&r);
}

/* --- Descriptors
 * ---------------------------------------------------------------------------------- */

static void close_all(uint32_t how)
{
	if (how == 0)
		closefrom(0);
	if (how == 1)
		spr_sys_raw(SYS_close_range, 0, ~0u, 0, 0, 0, 0);
	if (how == 2) {
		for (int fd = 0; fd < 65536; fd++)
			close(fd);
	}
	if (how == 3) {
		const int null = open("/dev/null", O_RDWR);

		for (int fd = 0; fd < 256; fd++)
			dup2(null, fd);
	}
}

static int role_close(struct rig *r, uint32_t how)
{
	producer = attach_or_exit(r->address);
	close_all(how);
	if (write_some(r, 0, 100))
		return 1;
	close_all(how);
	return write_some(r, 0, 3000) | child_writes(r, 1) | write_some(r, 0, 10);
}

static void target_that_closes_every_descriptor_is_heard(void **state)
{
	(void)state;
	for (uint32_t how = 0; how < 4; how++)
		expect_undisturbed(role_close, how);
}

static _Atomic int stop;

static void *closing_thread(void *arg)
{
	while (!spr_load_relaxed(&stop))
		spr_sys_raw(SYS_close_range, 0, ~0u, 0, 0, 0, 0);
	return arg;
}

static int role_close_beside(struct rig *r, uint32_t arg)
{
	pthread_t t;
	int bad;
	(void)arg;

	producer = attach_or_exit(r->address);
	CHILD_CHECK(!pthread_create(&t, NULL, closing_thread, NULL));
	bad = write_some(r, 0, 100000);
	spr_store_relaxed(&stop, 1);
	pthread_join(t, NULL);
	return bad;
}

static void descriptors_closed_by_another_thread_meanwhile_do_not_matter(void **state)
{
	(void)state;
	expect_undisturbed(role_close_beside, 0);
}

static uint32_t list_descriptors(char names[][PATH_MAX], uint32_t n_most)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	CHILD_CHECK(dir);
	for (const struct dirent *e; (e = readdir(dir)) && n < n_most;) {
		const ssize_t len = readlinkat(dirfd(dir), e->d_name, names[n], PATH_MAX - 1);

		if (len > 0)
			names[n++][len] = 0;
	}
	closedir(dir);
	return n;
}

static uint32_t count_tasks(void)
{
	DIR *dir = opendir("/proc/self/task");
	uint32_t n = 0;

	CHILD_CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int role_no_trace(struct rig *r, uint32_t arg)
{
	static char before[64][PATH_MAX], after[64][PATH_MAX];
	struct sigaction old[65], new;
	uint32_t n_before, n_after, n_tasks;
	sigset_t mask, mask_after;

	memset(&mask, 0, sizeof(mask)); /* the kernel fills 8 bytes of it */
	memset(&mask_after, 0, sizeof(mask_after));
	(void)arg;

	/* The test program's own, the channel's among them. */
	spr_sys_raw(SYS_close_range, 3, ~0u, 0, 0, 0, 0);
	for (int sig = 1; sig < 65; sig++)
		sigaction(sig, NULL, &old[sig]);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	n_tasks = count_tasks();
	n_before = list_descriptors(before, 64);
	errno = 77;
	producer = attach_or_exit(r->address);
	CHILD_CHECK(errno == 77);
	CHILD_CHECK(!write_some(r, 0, 5000));
	CHILD_CHECK(errno == 77);
	n_after = list_descriptors(after, 64);
	CHILD_CHECK(n_before == n_after);
	for (uint32_t i = 0; i < n_after; i++)
		CHILD_CHECK(!strstr(after[i], ".ring"));
	CHILD_CHECK(count_tasks() == n_tasks);
	for (int sig = 1; sig < 65; sig++) {
		if (sigaction(sig, NULL, &new))
			continue; /* libc's own */
		CHILD_CHECK(new.sa_handler == old[sig].sa_handler);
	}
	sigprocmask(SIG_BLOCK, NULL, &mask_after);
	CHILD_CHECK(memcmp(&mask, &mask_after, sizeof(mask)) == 0);
	errno = 78;
	spr_detach(producer);
	CHILD_CHECK(errno == 78);
	return 0;
}

static void attach_leaves_no_descriptor_thread_handler_or_errno(void **state)
{
	(void)state;
	expect_undisturbed(role_no_trace, 0);
}

/* Attach and detach in one thread while another starts programs: none of them sees a descriptor. */
static void *attaching_thread(void *arg)
{
	struct rig *r = arg;

	while (!spr_load_relaxed(&stop)) {
		spr_producer *p = attach_or_exit(r->address);

		put_record(spr_writer_here(p), r->tally, 0, 30);
		spr_detach(p);
	}
	return NULL;
}

static int role_spawn_beside(struct rig *r, uint32_t arg)
{
	char *const argv[] = { (char *)"self", (char *)"list-descriptors", NULL };
	char *const envp[] = { NULL };
	pthread_t t;
	(void)arg;

	spr_store_relaxed(&stop, 0);
	CHILD_CHECK(!pthread_create(&t, NULL, attaching_thread, r));
	for (int i = 0; i < 150; i++) {
		pid_t pid;

		CHILD_CHECK(!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, envp));
		CHILD_CHECK(wait_for(pid) == 0);
	}
	spr_store_relaxed(&stop, 1);
	pthread_join(t, NULL);
	return 0;
}

static void no_descriptor_of_ours_crosses_a_concurrent_exec(void **state)
{
	(void)state;
	expect_undisturbed(role_spawn_beside, 0);
}

/* --- Limits
 * ------------------------------------------------------------------------------------------ */

static uint64_t address_space_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	if (!f || fscanf(f, "%lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (uint64_t)pages * 4096;
}

static void limit(int what, uint64_t value)
{
	const struct rlimit l = { value, value };

	CHILD_CHECK(setrlimit((__rlimit_resource_t)what, &l) == 0);
}

static int role_limits(struct rig *r, uint32_t what)
{
	producer = attach_or_exit(r->address);
	CHILD_CHECK(!write_some(r, 0, 10));
	if (what == RLIMIT_AS)
		limit(RLIMIT_AS, address_space_bytes());
	else
		limit((int)what, what == RLIMIT_STACK ? 64 << 10 : what == RLIMIT_FSIZE ? 4096 : 0);
	return write_some(r, 0, 5000) | child_writes(r, 1) | write_some(r, 0, 10);
}

static void limits_set_after_attach_do_not_matter(void **state)
{
	(void)state;
	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer needs its address space");
	expect_undisturbed(role_limits, RLIMIT_AS);
	expect_undisturbed(role_limits, RLIMIT_NOFILE);
	expect_undisturbed(role_limits, RLIMIT_FSIZE);
	expect_undisturbed(role_limits, RLIMIT_STACK);
	expect_undisturbed(role_limits, RLIMIT_MEMLOCK);
}

/* Before attach: it works with less, or says so at once; the target lives on either way. */
static int role_tight(struct rig *r, uint32_t mib)
{
	int err;

	limit(RLIMIT_AS, address_space_bytes() + ((uint64_t)mib << 20));
	err = spr_attach(&producer, r->address);
	if (err) {
		CHILD_CHECK(err == -ENOMEM && !producer);
		return 0;
	}
	for (int i = 0; i < 20000; i++)
		put_record(spr_writer_here(producer), r->tally, 0, 100);
	return child_writes(r, 1) ? 1 : 0;
}

static void attach_under_a_tight_address_space_works_or_says_so(void **state)
{
	static const uint32_t mib[] = { 0, 1, 2, 3, 4, 8, 16, 40, 80, 1000 };
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer needs its address space");
	for (size_t i = 0; i < 2 * sizeof(mib) / sizeof(*mib); i++) {
		struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
		struct rig r;
		pid_t pid;

		/* The default of 1 GiB does not fit into any of them. */
		opt.capacity_bytes = i % 2 ? 64u << 20 : 0;
		opt.stall_ms = 10;
		rig_open(&r, 0, &opt, 2);
		pid = spawn(role_tight, &r, mib[i / 2]);
		rig_run_expecting_zero(&r, &pid, 1);
		rig_finish(&r);
		rig_expect_exact(&r);
		assert_true(mib[i / 2] < 1000 || i % 2 == 0 || r.stats.delivered == 20020);
		rig_close(&r);
	}
}

static int role_nofile(struct rig *r, uint32_t arg)
{
	struct rlimit l = { 3, 3 };
	int err;
	(void)arg;

	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &l));
	for (int fd = 3; fd < 64; fd++)
		close(fd);
	err = spr_attach(&producer, r->address);
	CHILD_CHECK(err < 0 && !producer);
	close(2); /* one is enough */
	return spr_attach(&producer, r->address) || write_some(r, 0, 5);
}

static void attach_without_a_free_descriptor_says_so(void **state)
{
	(void)state;
	expect_undisturbed(role_nofile, 0);
}

static int role_out_of_maps(struct rig *r, uint32_t before)
{
	uint32_t n = 0;
	char *at;

	if (!before)
		producer = attach_or_exit(r->address);
	at = mmap(NULL, 600u << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHILD_CHECK(at != MAP_FAILED);
	/* Every second page another protection: each a map of its own, until there are no more. */
	while (n < 70000 && !mprotect(at + n * 8192, 4096, PROT_READ))
		n++;
	if (n == 70000)
		return CANNOT;
	if (before) {
		CHILD_CHECK(spr_attach(&producer, r->address) == -ENOMEM);
		munmap(at, 600u << 20);
		CHILD_CHECK(!spr_attach(&producer, r->address));
		return write_some(r, 0, 5);
	}
	return write_some(r, 0, 5000) | child_writes(r, 1) | write_some(r, 0, 5);
}

static void target_without_a_map_left_goes_on(void **state)
{
	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer needs its maps");
	(void)state;
	expect_undisturbed(role_out_of_maps, 0);
	expect_undisturbed(role_out_of_maps, 1);
}

/* --- Root, folder, uid, namespaces
 * ---------------------------------------------------------------------- */

enum { CHROOT, CHDIR, SETUID, NEW_USER, NEW_MOUNT, NEW_PID };

/* Capabilities over ourselves, if we do not have them. */
static bool become_capable(void)
{
	return getuid() == 0 || unshare(CLONE_NEWUSER) == 0;
}

static int change(uint32_t what, const char *folder)
{
	if (what != CHDIR && what != NEW_USER && !become_capable())
		return CANNOT;
	switch (what) {
	case CHROOT:
		return chroot(folder) ? CANNOT : 0;
	case CHDIR:
		return chdir("/proc") ? CANNOT : 0;
	case SETUID:
		return getuid() ? CANNOT : setgid(65534) || setuid(65534);
	case NEW_USER:
		return unshare(CLONE_NEWUSER) ? CANNOT : 0;
	case NEW_MOUNT:
		return unshare(CLONE_NEWNS) ? CANNOT : 0;
	default:
		return unshare(CLONE_NEWPID) ? CANNOT : 0;
	}
}

static int role_change(struct rig *r, uint32_t what)
{
	char folder[] = "/tmp/spr-root-XXXXXX";
	int err;

	CHILD_CHECK(mkdtemp(folder));
	producer = attach_or_exit(r->address);
	CHILD_CHECK(!write_some(r, 0, 10));
	err = change(what, folder);
	rmdir(folder);
	if (err)
		return err;
	return write_some(r, 0, 5000) | child_writes(r, 1) | write_some(r, 0, 10);
}

static void target_that_changes_its_root_is_heard(void **state)
{
	(void)state;
	expect_undisturbed(role_change, CHROOT);
}

static void target_that_changes_its_folder_is_heard(void **state)
{
	(void)state;
	expect_undisturbed(role_change, CHDIR);
}

static void target_that_changes_its_user_is_heard(void **state)
{
	if (getuid())
		TEST_SKIP("only root can");
	(void)state;
	expect_undisturbed(role_change, SETUID);
}

static void target_in_new_namespaces_is_heard(void **state)
{
	if (UNDER_TSAN)
		TEST_SKIP("unshare needs a single thread");
	(void)state;
	expect_undisturbed(role_change, NEW_USER);
	expect_undisturbed(role_change, NEW_MOUNT);
	expect_undisturbed(role_change, NEW_PID);
}

/* In a pid namespace of its own, killed: its pid 1 is not ours, yet its death is seen. */
static int role_killed_elsewhere(struct rig *r, uint32_t source)
{
	int status;
	pid_t pid;

	if (!become_capable() || unshare(CLONE_NEWPID))
		return CANNOT;
	pid = fork();
	if (!pid) {
		producer = attach_or_exit(r->address);
		write_some(r, source, 30);
		kill(getpid(), SIGKILL); /* pid 1 cannot kill itself so */
		raise(SIGSEGV);
		_exit(0);
	}
	sleep_us(2000);
	kill(pid, SIGKILL);
	status = wait_for(pid);
	return WIFSIGNALED(status) || WIFEXITED(status) ? 0 : 1;
}

static void death_in_another_pid_namespace_gives_the_space_back(void **state)
{
	struct rig r;
	int status = 0;
	(void)state;

	if (UNDER_TSAN)
		TEST_SKIP("unshare needs a single thread");
	rig_open(&r, 0, NULL, 10);
	for (uint32_t i = 0; i < 10; i++) {
		pid_t pid = spawn(role_killed_elsewhere, &r, i);

		rig_run(&r, &pid, &status, 1);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
		rig_finish(&r);
		rig_close(&r);
		TEST_SKIP("not allowed here");
	}
	assert_int_equal(status, 0);
	rig_expect_all_back(&r);
	rig_finish(&r);
	rig_expect_exact_after_kills(&r);
	rig_close(&r);
}

/* --- exec
 * ------------------------------------------------------------------------------------------------
 */

static int role_exec(struct rig *r, uint32_t arg)
{
	char *const argv[] = { (char *)"self", (char *)"write-after-exec", r->address, NULL };
	char *const envp[] = { NULL };

	producer = attach_or_exit(r->address);
	CHILD_CHECK(!write_some(r, 0, 10));
	execve("/proc/self/exe", argv, arg ? envp : NULL);
	return 1;
}

/* Five plain records; the tally did not come along. */
static int main_write_after_exec(const char *address)
{
	spr_producer *p = NULL;

	if (spr_attach(&p, address))
		return 2;
	for (int i = 0; i < 5; i++) {
		if (spr_write(spr_writer_here(p), 0, "after", 5))
			return 3;
	}
	return 0;
}

static void exec_with_an_empty_environment_attaches_anew(void **state)
{
	(void)state;

	for (uint32_t i = 0; i < 2; i++) {
		struct rig r;
		pid_t pid;

		rig_open(&r, 0, NULL, 1);
		r.check.is_plain = true;
		pid = spawn(role_exec, &r, i);
		rig_run_expecting_zero(&r, &pid, 1);
		rig_expect_all_back(&r);
		rig_finish(&r);
		assert_int_equal(r.check.n_faults, 0);
		assert_int_equal(r.stats.delivered, 15);
		assert_int_equal(r.stats.written, 15);
		assert_int_equal(r.check.n_records, 15);
		assert_int_equal(r.check.n_writers, 2);
		rig_close(&r);
	}
}

static int main_list_descriptors(void)
{
	static char names[64][PATH_MAX];
	const uint32_t n = list_descriptors(names, 64);

	for (uint32_t i = 0; i < n; i++) {
		if (strstr(names[i], ".ring"))
			return 1;
	}
	return 0;
}

/* --- A filter of its own
 * ----------------------------------------------------------------------------------- */

#define ALLOW(nr) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* read, write, exit, nothing else; and clone and wait4 where a test of ours forks. */
static void install_filter(bool may_fork)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_exit),
		ALLOW(SYS_exit_group),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
		BPF_STMT(BPF_RET | BPF_K,
		         may_fork ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_wait4, 0, 1),
		BPF_STMT(BPF_RET | BPF_K,
		         may_fork ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	const struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
		_exit(CANNOT);
}

static void leave(int code)
{
	spr_sys_raw(SYS_exit_group, code, 0, 0, 0, 0, 0);
}

/* 0: after records; 1: before the first; 2: with a nested lane to be claimed; 3: large records */
static int role_filtered(struct rig *r, uint32_t how)
{
	struct spr_slot slot;

	producer = attach_or_exit(r->address);
	if (how == 0)
		CHILD_CHECK(!write_some(r, 0, 10));
	spr_producer_confine(producer);
	install_filter(false);
	if (how == 2)
		(void)open_record(spr_writer_here(producer), r->tally, 0, 50, &slot);
	for (uint32_t i = 0; i < 10000; i++)
		put_record(spr_writer_here(producer), r->tally, 0, how == 3 ? 3000 : 24 + i % 100);
	leave(0);
	return 1;
}

static void target_with_a_filter_of_its_own_goes_on(void **state)
{
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer makes calls of its own");
	for (uint32_t how = 0; how < 4; how++) {
		struct rig r;
		int status = 0;
		pid_t pid;

		rig_open(&r, how == 1 ? RIG_PLAIN : 0, NULL, 1);
		pid = spawn(role_filtered, &r, how);
		rig_run(&r, &pid, &status, 1);
		rig_expect_all_back(&r);
		rig_finish(&r);
		if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
			rig_close(&r);
			TEST_SKIP("no seccomp filter here");
		}
		if (status)
			print_message("    variant %u\n", how);
		assert_int_equal(status, 0);
		rig_expect_exact(&r);
		print_message("    variant %u: %llu delivered, %llu lost and counted\n", how,
		              (unsigned long long)r.stats.delivered,
		              (unsigned long long)r.stats.lost);
		assert_int_equal(r.stats.written, how == 0 ? 10010 : 10000);
		/* Large ones need a larger segment, and none is ready: all counted. */
		assert_true(how == 3 || r.stats.delivered > 0);
		rig_close(&r);
	}
}

/* A child forked behind the filter cannot register by any call. */
static int role_filtered_fork(struct rig *r, uint32_t arg)
{
	int status = -1;
	(void)arg;

	producer = attach_or_exit(r->address);
	CHILD_CHECK(!write_some(r, 0, 10));
	spr_producer_confine(producer);
	install_filter(true);
	const long pid = spr_sys_raw(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
	if (!pid) {
		for (int i = 0; i < 100; i++)
			put_record(spr_writer_here(producer), r->tally, 1, 40);
		leave(0);
	}
	spr_sys_raw(SYS_wait4, pid, (long)&status, 0, 0, 0, 0);
	write_some(r, 0, 10);
	leave(status != 0);
	return 1;
}

static void child_forked_behind_the_filter_lives_and_is_counted(void **state)
{
	struct rig r;
	int status = 0;
	pid_t pid;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer makes calls of its own");
	rig_open(&r, 0, NULL, 2);
	pid = spawn(role_filtered_fork, &r, 0);
	rig_run(&r, &pid, &status, 1);
	rig_finish(&r);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
		rig_close(&r);
		TEST_SKIP("no seccomp filter here");
	}
	assert_int_equal(status, 0);
	rig_expect_exact(&r);
	assert_int_equal(r.stats.written, 120);
	rig_close(&r);
}

/* --- Core dumps, a wiped folder
 * ----------------------------------------------------------------------------- */

static int role_dump(struct rig *r, uint32_t with_ring)
{
	const struct rlimit most = { RLIM_INFINITY, RLIM_INFINITY };

	if (chdir(r->folder) || setrlimit(RLIMIT_CORE, &most))
		return CANNOT;
	prctl(PR_SET_DUMPABLE, 1);
	if (with_ring) {
		producer = attach_or_exit(r->address);
		for (int i = 0; i < 5000; i++)
			put_record(spr_writer_here(producer), r->tally, 0, 4000);
	}
	abort();
}

static off_t dump_bytes(struct rig *r, uint32_t with_ring)
{
	int status = 0;
	pid_t pid = spawn(role_dump, r, with_ring);
	char path[256];
	struct stat st = { 0 };

	rig_run(r, &pid, &status, 1);
	if (!WIFSIGNALED(status) || !WCOREDUMP(status))
		return -1;
	snprintf(path, sizeof(path), "%s/core", r->folder);
	if (stat(path, &st)) {
		snprintf(path, sizeof(path), "%s/core.%d", r->folder, pid);
		if (stat(path, &st))
			return -1;
	}
	unlink(path);
	return st.st_blocks * 512;
}

static void core_dump_is_as_large_as_without_us(void **state)
{
	struct rig r;
	(void)state;

	if (UNDER_TSAN || UNDER_ASAN)
		TEST_SKIP("a sanitizer's dump is its own");
	rig_open(&r, RIG_EMBEDDED, NULL, 1);
	const off_t without = dump_bytes(&r, 0), with = dump_bytes(&r, 1);
	rig_finish(&r);
	rig_expect_exact(&r);
	rig_close(&r);
	if (without < 0 || with < 0)
		TEST_SKIP("no core file is written here");
	print_message("    core: %lld KiB, %lld without the ring\n", (long long)with / 1024,
	              (long long)without / 1024);
	assert_true(with < without + (1 << 20));
}

/* What the kernel is told, wherever core files go. */
static int role_smaps(struct rig *r, uint32_t arg)
{
	char line[1024];
	bool is_ours = false;
	uint32_t n_maps = 0;
	FILE *f;
	(void)arg;

	producer = attach_or_exit(r->address);
	CHILD_CHECK(!write_some(r, 0, 2000));
	f = fopen("/proc/self/smaps", "r");
	CHILD_CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		if (strchr(line, '-') && strchr(line, '-') - line < 20 && line[0] != 'V')
			is_ours = strstr(line, ".ring") != NULL;
		if (is_ours && !strncmp(line, "VmFlags:", 8)) {
			n_maps++;
			/* PROT_NONE is never dumped. */
			CHILD_CHECK(strstr(line, " dd") || !strstr(line, " rd"));
		}
	}
	fclose(f);
	CHILD_CHECK(n_maps > 0);
	return 0;
}

static void mapping_stays_out_of_core_dumps(void **state)
{
	(void)state;
	expect_undisturbed(role_smaps, 0);
}

static int role_wipe(struct rig *r, uint32_t arg)
{
	spr_producer *second = NULL;
	(void)arg;

	producer = attach_or_exit(r->address);
	CHILD_CHECK(!write_some(r, 0, 10));
	CHILD_CHECK(unlink(rig_path(r)) == 0);
	CHILD_CHECK(!write_some(r, 0, 5000));
	CHILD_CHECK(!child_writes(r, 1));
	spr_detach(producer);
	CHILD_CHECK(spr_attach(&second, r->address) == -ENOENT);
	return 0;
}

static void target_that_wipes_the_folder_is_heard(void **state)
{
	(void)state;
	expect_undisturbed(role_wipe, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(target_that_closes_every_descriptor_is_heard),
		cmocka_unit_test(descriptors_closed_by_another_thread_meanwhile_do_not_matter),
		cmocka_unit_test(attach_leaves_no_descriptor_thread_handler_or_errno),
		cmocka_unit_test(no_descriptor_of_ours_crosses_a_concurrent_exec),
		cmocka_unit_test(limits_set_after_attach_do_not_matter),
		cmocka_unit_test(attach_under_a_tight_address_space_works_or_says_so),
		cmocka_unit_test(attach_without_a_free_descriptor_says_so),
		cmocka_unit_test(target_without_a_map_left_goes_on),
		cmocka_unit_test(target_that_changes_its_root_is_heard),
		cmocka_unit_test(target_that_changes_its_folder_is_heard),
		cmocka_unit_test(target_that_changes_its_user_is_heard),
		cmocka_unit_test(target_in_new_namespaces_is_heard),
		cmocka_unit_test(death_in_another_pid_namespace_gives_the_space_back),
		cmocka_unit_test(exec_with_an_empty_environment_attaches_anew),
		cmocka_unit_test(target_with_a_filter_of_its_own_goes_on),
		cmocka_unit_test(child_forked_behind_the_filter_lives_and_is_counted),
		cmocka_unit_test(core_dump_is_as_large_as_without_us),
		cmocka_unit_test(mapping_stays_out_of_core_dumps),
		cmocka_unit_test(target_that_wipes_the_folder_is_heard),
	};

	if (argc == 3 && !strcmp(argv[1], "write-after-exec"))
		return main_write_after_exec(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "list-descriptors"))
		return main_list_descriptors();
	return RUN_TESTS(tests, NULL, NULL);
}
