/* SPDX-License-Identifier: MIT */
/* spy_test.c - the files spy in programs that do what programs do. */
#include <signal.h>
#include <sys/stat.h>

#include "tests/spied.h"

static char *folder; /* of this test program */

static const char *in(const char *name)
{
	static char text[8][512];
	static unsigned at;

	at = (at + 1) % 8;
	snprintf(text[at], sizeof(text[at]), "%s/%s", folder, name);
	return text[at];
}

#define FILES spied_program("files")

/* --- What a reader gets to see -------------------------------------------------------------- */

static void open_of_a_missing_file_is_seen_with_its_error(void **state)
{
	struct spied *s = spied_run(FILES, "open", "/nonexistent/hello");
	const struct seen *it = spied_find(s, IS_FILE, "/nonexistent/hello");

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/hello");
	assert_int_equal(it->op, SPR_OP_open);
	assert_int_equal(it->pid, s->pid);
	assert_int_equal(spied_error(s, it), ENOENT);
	spied_drop(s);
}

static void start_says_program_arguments_and_parent(void **state)
{
	struct spied *s = spied_run(FILES, "nothing", "an argument", "");
	const struct seen *it = &s->seen[0];
	char want[1024];

	(void)state;
	spied_assert_well(s);
	assert_int_equal(it->kind, IS_PROCESS);
	assert_int_equal(it->op, SPR_PROCESS_START);
	assert_int_equal(it->ppid, getpid());
	assert_string_equal(it->path, FILES);
	snprintf(want, sizeof(want), "%s\nnothing\nan argument\n\n", FILES);
	assert_string_equal(it->argv, want);
	assert_int_equal(spied_unanswered(s), 0);
	spied_drop(s);
}

static void access_is_what_the_flags_ask_for(void **state)
{
	struct spied *s = spied_run(FILES, "open-modes", folder);

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "%s/r", folder);
	spied_assert_access(s, SPR_WRITE, "%s/w", folder);
	spied_assert_access(s, SPR_READ_FILE | SPR_WRITE, "%s/rw", folder);
	spied_assert_access(s, SPR_READ_FILE | SPR_WRITE | SPR_CREATE | SPR_STAT, "%s/c", folder);
	unlink(in("c"));
	spied_drop(s);
}

static void listing_a_folder_after_chdir_is_seen(void **state)
{
	struct spied *s = spied_run(FILES, "list", folder, "a");

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_LIST_DIR, "%s/a", folder);
	spied_drop(s);
}

static void threads_with_small_stacks_are_seen(void **state)
{
	struct spied *s = spied_run(FILES, "threads", "/nonexistent/1", "/nonexistent/2",
	                            "/nonexistent/3", "/nonexistent/4");
	const struct seen *one = spied_find(s, IS_FILE, "/nonexistent/1");

	(void)state;
	spied_assert_well(s);
	for (char path[] = "/nonexistent/1"; path[13] <= '4'; path[13]++)
		spied_assert_access(s, SPR_READ_FILE, "%s", path);
	assert_int_equal(one->pid, s->pid);
	assert_int_not_equal(one->tid, s->pid);
	spied_drop(s);
}

static void children_and_scripts_are_seen(void **state)
{
	struct spied *s;

	(void)state;
	test_file_write(in("script"), "#!/bin/sh\ncat hello\n", 20);
	chmod(in("script"), 0755);
	s = spied_run("/bin/sh", "-c", "cd / && exec \"$0\" 2>/dev/null || :", in("script"));
	spied_assert_access(s, SPR_EXECUTE | SPR_READ_FILE, "%s/script", folder);
	spied_assert_access(s, SPR_READ_FILE, "/hello");
	assert_int_equal(spied_unanswered(s), 0);
	assert_int_equal(spied_count(s, IS_BLIND, NULL), 0);
	spied_drop(s);
	s = spied_run("/bin/sh", "-c", "./not_exist.exe 2>/dev/null; :");
	spied_assert_well(s);
	spied_drop(s);
}

static void what_kills_a_program_in_a_call_does_not_take_its_record(void **state)
{
	struct spied *s;

	(void)state;
	unlink(in("fifo"));
	assert_int_equal(mkfifo(in("fifo"), 0600), 0);
	s = spied_run("/bin/sh", "-c",
	              "\"$0\" blocks \"$1\" & sleep 0.3; kill -9 $!; wait 2>/dev/null; :", FILES,
	              in("fifo"));
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "%s/fifo", folder);
	unlink(in("fifo"));
	spied_drop(s);
}

/* --- Where relative paths stand ----------------------------------------------------------------
 */

static void relative_paths_follow_every_move(void **state)
{
	static const char *const where[] = { "1",   "a/2",     "a/./3", "a/..//b/4", "5",  "6",
		                             "a/7", "b/8",     "b/9",   "b/../a/10", "b/11" };
	struct spied *s = spied_run(FILES, "moves", folder);
	char path[600];

	(void)state;
	spied_assert_well(s);
	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
		/* getcwd folds the "..": only what stood in the call itself is kept. */
		snprintf(path, sizeof(path), "%s/%s", folder, i == 9 ? "a/10" : where[i]);
		spied_assert_access(s, SPR_READ_FILE, "%s", path);
	}
	spied_assert_access(s, SPR_STAT, "%s/absent", folder);
	spied_drop(s);
}

static void a_path_below_a_lost_directory_is_absolute_all_the_same(void **state)
{
	struct spied *s = spied_run("/bin/sh", "-c",
	                            "mkdir \"$0\" && cd \"$0\" && rmdir \"$0\" && "
	                            "cat lost 2>/dev/null; :",
	                            in("gone"));

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "/proc/thread-self/cwd/lost");
	spied_drop(s);
	s = spied_run("/bin/sh", "-c",
	              "n=d; for i in 1 2 3 4 5 6; do n=$n$n; done; i=0; cd \"$0\"; "
	              "while [ $i -lt 70 ]; do mkdir $n; cd -P $n 2>/dev/null; i=$((i+1)); done; "
	              "cat lost 2>/dev/null; rm -r \"$0\"/dd*",
	              folder);
	spied_assert_access(s, SPR_READ_FILE, "/proc/thread-self/cwd/lost");
	spied_drop(s);
}

/* Two folders; all that is called "moving" stands in one of them. */
static void moving_stays_in_two_folders(const char *action, size_t least)
{
	char dir[600], *at = dir, path[2][700];
	struct spied *s;
	size_t n = 0;

	at += snprintf(dir, sizeof(dir), "%s/b", folder);
	for (unsigned i = 0; i < 8; i++) {
		at += sprintf(at, "/a-long-name-to-be-torn-in-its-middle-%u", i);
		mkdir(dir, 0755);
	}
	s = spied_run(FILES, action, in("a"), dir);
	assert_int_equal(s->status, 0);
	assert_int_equal(s->stats.lost, 0);
	snprintf(path[0], sizeof(path[0]), "%s/a/moving", folder);
	snprintf(path[1], sizeof(path[1]), "%s/moving", dir);
	for (size_t i = 0; i < s->n; i++) {
		const struct seen *it = &s->seen[i];
		if (it->kind != IS_FILE || it->op != SPR_OP_open ||
		    strstr(it->path, "constructor") || strstr(it->path, "destructor"))
			continue;
		if (strcmp(it->path, path[0]) && strcmp(it->path, path[1]))
			fail_msg("%s is where nobody ever was", it->path);
		n++;
	}
	assert_true(n >= least);
	spied_drop(s);
}

static void a_move_in_another_thread_never_makes_a_third_path(void **state)
{
	(void)state;
	moving_stays_in_two_folders("moves-in-threads", 40000);
}

static void a_move_in_a_handler_never_makes_a_third_path(void **state)
{
	(void)state;
	moving_stays_in_two_folders("moves-in-handlers", 40000);
}

static void a_vfork_child_that_moves_leaves_its_parent_where_it_was(void **state)
{
	struct spied *s = spied_run(FILES, "vfork-moves", in("a"), in("b"), "/bin/true");
	const struct seen *exec = spied_find(s, IS_FILE, "/bin/true");

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "%s/a/before", folder);
	spied_assert_access(s, SPR_READ_FILE, "%s/b/child", folder);
	spied_assert_access(s, SPR_READ_FILE, "%s/a/after", folder);
	spied_assert_access(s, SPR_READ_FILE, "%s/a/again", folder);
	assert_int_equal(exec->op, SPR_OP_execv);
	assert_int_not_equal(exec->pid, s->pid);
	assert_int_equal(spied_unanswered(s), 0);
	spied_drop(s);
}

static void a_thread_with_its_own_directory_is_asked_each_time(void **state)
{
	struct spied *s = spied_run(FILES, "unshared-fs", in("a"), in("b"));

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "%s/a/one", folder);
	spied_assert_access(s, SPR_READ_FILE, "%s/b/two", folder);
	spied_drop(s);
}

static void a_descriptors_directory_is_what_it_is_now(void **state)
{
	static const char *const where[] = { "d/1", "d/2", "e/3", "b/f/4", "a/5", "n/7" };
	struct spied *s = spied_run(FILES, "descriptors", folder);

	(void)state;
	spied_assert_well(s);
	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++)
		spied_assert_access(s, SPR_READ_FILE, "%s/%s", folder, where[i]);
	spied_assert_access(s, SPR_READ_FILE, "/proc/thread-self/fd/999/6");
	spied_drop(s);
}

static void pointers_the_kernel_refuses_harm_nobody(void **state)
{
	struct spied *s = spied_run(FILES, "bad-pointers");
	size_t n_cut = 0, n_long = 0;

	(void)state;
	spied_assert_well(s);
	for (size_t i = 0; i < s->n; i++) {
		const size_t n = strlen(s->seen[i].path), m = sizeof(SPR_CUT_MARK) - 1;
		n_cut += n > SPR_PATH_BYTES_MAX - 1 &&
		         !strcmp(s->seen[i].path + n - m, SPR_CUT_MARK);
		n_long += n >= 4000 && n < 9000;
	}
	assert_int_equal(n_cut, 1);
	assert_int_equal(n_long, 2);
	spied_drop(s);
}

static void paths_below_a_new_root_are_the_hosts(void **state)
{
	struct spied *s;

	(void)state;
	if (geteuid() != 0)
		TEST_SKIP("chroot is for root");
	mkdir(in("in"), 0755);
	s = spied_run(FILES, "chroot", folder);
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "%s/in/absolute", folder);
	spied_assert_access(s, SPR_READ_FILE, "%s/in/relative", folder);
	assert_int_equal(spied_count(s, IS_BLIND, "chroot"), 1);
	spied_drop(s);
}

/* --- Children ------------------------------------------------------------------------------------
 */

static void a_forked_child_with_no_descriptor_left_is_seen(void **state)
{
	struct spied *s = spied_run(FILES, "fork-closed", "/nonexistent/prime",
	                            "/nonexistent/after");
	const struct seen *it = spied_find(s, IS_FILE, "/nonexistent/after");
	size_t n_starts = 0;

	(void)state;
	spied_assert_well(s);
	assert_non_null(it);
	assert_int_not_equal(it->pid, s->pid);
	for (size_t i = 0; i < s->n; i++) {
		const struct seen *start = &s->seen[i];
		if (start->kind != IS_PROCESS || start->pid == s->pid)
			continue;
		/* A forked child's start: no arguments, for it executed nothing. */
		assert_int_equal(start->op, SPR_PROCESS_START);
		assert_int_equal(start->pid, it->pid);
		assert_int_equal(start->ppid, s->pid);
		assert_false(start->has_argv);
		assert_string_equal(start->path, FILES);
		n_starts++;
	}
	assert_int_equal(n_starts, 1);
	spied_drop(s);
}

static void a_target_may_close_everything(void **state)
{
	struct spied *s = spied_run(FILES, "closes-all", "/nonexistent/1", "/nonexistent/2");

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/1");
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/2");
	spied_drop(s);
}

static void vfork_children_execute_fail_and_end(void **state)
{
	struct spied *s = spied_run(FILES, "vforks", FILES, "/nonexistent/parent", "60");

	(void)state;
	spied_assert_well(s);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/parent"), 60);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/program"), 20);
	assert_int_equal(spied_count(s, IS_FILE, FILES), 20);
	assert_int_equal(spied_unanswered(s), 0);
	for (size_t i = 0; i < s->n; i++) {
		const struct seen *it = &s->seen[i];
		if (it->kind == IS_FILE)
			assert_int_equal(it->pid == s->pid,
			                 !strcmp(it->path, "/nonexistent/parent") ||
			                         (it->pid == s->pid));
		if (it->kind == IS_PROCESS && it->op == SPR_PROCESS_EXEC)
			assert_int_not_equal(it->pid, s->pid);
		if (it->kind == IS_PROCESS && !strcmp(it->path, "/nonexistent/program"))
			assert_int_equal(spied_error(s, it), ENOENT);
	}
	spied_drop(s);
}

static void forked_children_of_a_threaded_program_write(void **state)
{
	const char *n = test_long() ? "5000" : "200";
	struct spied *s = spied_run(FILES, "forks-in-threads", "/nonexistent/child", n);

	(void)state;
	spied_assert_well(s);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/child"), 4 + atoi(n));
	spied_drop(s);
}

static void children_are_seen_whatever_environment_they_get(void **state)
{
	static const char *const hows[] = {
		"execve-empty", "execve-null", "execve-twice", "clearenv", "execl",
		"execle",       "execlp",      "execvpe",      "execveat", "fexecve",
		"spawn",        "spawnp",      "system",       "popen",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
		struct spied *s = spied_run(FILES, "execs", hows[i], FILES, "ends");

		if (s->status || !spied_find(s, IS_FILE, "/nonexistent/atexit"))
			print_message("by %s:\n", hows[i]);
		spied_assert_well(s);
		spied_assert_access(s, SPR_READ_FILE, "/nonexistent/atexit");
		if (i < 12) /* the last two are executed inside libc */
			assert_int_equal(spied_unanswered(s), 0);
		spied_drop(s);
	}
}

static void a_child_gets_our_variables_and_no_more(void **state)
{
	struct spied *s = spied_run(FILES, "execs", "execve-twice", FILES, "env");

	(void)state;
	assert_string_equal(s->out, "A\nLD_PRELOAD\nA\nLD_PRELOAD\n"
	                            "SPARRING_CHANNEL\nSPARRING_PRELOAD\nSPARRING_SPY\n");
	spied_drop(s);
}

static void the_users_preload_stays_in_front(void **state)
{
	static const char *const extra[] = { "LD_PRELOAD=libm.so.6:libdl.so.2", NULL };
	struct spied *s = spied_run_in(extra, (const char *const[]){ "/bin/sh", "-c",
	                                                             "exec \"$0\" value LD_PRELOAD",
	                                                             FILES, NULL });

	(void)state;
	spied_assert_well(s);
	assert_memory_equal(s->out, "libm.so.6:libdl.so.2:/", 22);
	assert_non_null(strstr(s->out, "$LIB/libsparring-files.so\n"));
	assert_null(strstr(strstr(s->out, "$LIB") + 1, "$LIB"));
	spied_drop(s);
}

static void posix_spawn_gives_what_libc_gives(void **state)
{
	struct spied *s = spied_run(FILES, "spawns", FILES, in("a"));
	const char *const argv[] = { FILES, "spawns", FILES, in("a"), NULL };
	int status;
	char *bare = spied_bare(argv, &status), cwd[4096];

	(void)state;
	spied_assert_well(s);
	assert_int_equal(status, 0);
	spied_assert_same(s->out, bare);
	spied_assert_access(s, SPR_READ_FILE | SPR_WRITE | SPR_CREATE, "%s/a/relative", folder);
	spied_assert_access(s, SPR_READ_FILE, "%s/parent-stays", getcwd(cwd, sizeof(cwd)));
	spied_assert_access(s, SPR_EXECUTE, "/usr/bin/no-such-program-anywhere");
	assert_int_equal(spied_error(s, spied_find(s, IS_FILE, "/bin/no-such-program-anywhere")),
	                 ENOENT);
	assert_int_equal(spied_unanswered(s), 0);
	assert_int_equal(spied_count(s, IS_BLIND, NULL), 0);
	unlink(in("a/relative"));
	free(bare);
	spied_drop(s);
}

static void an_allocator_of_the_programs_own_is_used(void **state)
{
	struct spied *s = spied_run(spied_program("own_malloc"));

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_STAT, "/usr/./lib/..");
	spied_drop(s);
}

static void execvp_searches_as_libc_does(void **state)
{
	struct spied *s;

	(void)state;
	mkdir(in("lookups"), 0755);
	s = spied_run(FILES, "lookups", in("lookups"));
	spied_assert_well(s);
	assert_non_null(strstr(s->out, "d1:d2:d3 p9: 200\n"));
	/* Each place that was looked at is seen, joined as the search joined it. */
	spied_assert_access(s, SPR_EXECUTE, "%s/lookups/d1/p9", folder);
	spied_assert_access(s, SPR_EXECUTE, "%s/lookups/f1/x/p9", folder);
	spied_assert_access(s, SPR_EXECUTE, "%s/lookups/p9", folder);
	spied_assert_access(s, SPR_EXECUTE, "/bin/p9");
	spied_drop(s);
}

static void children_made_without_libc_are_seen(void **state)
{
	struct spied *s = spied_run(FILES, "clones", "/nonexistent/clone", "20");

	(void)state;
	spied_assert_well(s);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/clone"), 60);
	assert_int_equal(spied_unanswered(s), 0);
	spied_drop(s);
}

static void children_forked_in_a_handler_are_seen(void **state)
{
	struct spied *s = spied_run(FILES, "forks-in-handlers", "50");

	(void)state;
	spied_assert_well(s);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/forked"), 50);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/main"), 50);
	spied_drop(s);
}

static void other_ends_are_seen_to_the_last_call(void **state)
{
	struct spied *s = spied_run(FILES, "quick-exit");

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/quick");
	spied_drop(s);
	s = spied_run(FILES, "pthread-exit");
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/last-thread");
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/destructor");
	spied_drop(s);
}

static void realpath_answers_as_libc_does(void **state)
{
	struct spied *s;

	(void)state;
	mkdir(in("links"), 0755);
	mkdir(in("links/a"), 0755);
	mkdir(in("links/b"), 0755);
	s = spied_run(FILES, "realpaths", in("links"), test_long() ? "20000" : "700");
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE | SPR_STAT | SPR_LINK | SPR_CREATE, "%s/links/a/up",
	                    folder);
	spied_drop(s);
}

static void glob_and_nftw_are_followed_into_every_folder(void **state)
{
	const char *const argv[] = { FILES, "walks", in("a"), in("a/*/[xyz]*"), NULL };
	struct spied *s;
	int status;
	char *bare;

	(void)state;
	mkdir(in("a/one"), 0755);
	mkdir(in("a/one/x1"), 0755);
	test_file_write(in("a/one/z2"), "", 0);
	s = spied_run(argv[0], argv[1], argv[2], argv[3]);
	bare = spied_bare(argv, &status);
	spied_assert_well(s);
	spied_assert_same(s->out, bare);
	spied_assert_access(s, SPR_LIST_DIR | SPR_STAT, "%s/a/one", folder);
	spied_assert_access(s, SPR_LIST_DIR | SPR_STAT, "%s/a/one/x1", folder);
	spied_assert_access(s, SPR_STAT, "%s/a/one/z2", folder);
	free(bare);
	spied_drop(s);
}

/* --- Signals, stacks, ends ------------------------------------------------------------------ */

static void a_handler_on_a_small_stack_writes_in_the_middle_of_a_record(void **state)
{
	struct spied *s = spied_run(FILES, "signals", "30000", in("handled"));
	char *handled;

	(void)state;
	spied_assert_well(s);
	handled = test_file_read(in("handled"), NULL);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/main"), 30000);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/handler"), atoi(handled));
	assert_true(atoi(handled) > 10);
	free(handled);
	spied_drop(s);
}

static void a_thousand_longjmps_out_of_records_make_nobody_mute(void **state)
{
	struct spied *s = spied_run(FILES, "jumps", "1000");

	(void)state;
	assert_int_equal(s->status, 0);
	assert_int_equal(s->stats.lost, 0);
	assert_int_equal(spied_count(s, IS_FILE, "/nonexistent/last"), 1);
	spied_drop(s);
}

static void everything_up_to_the_end_is_seen(void **state)
{
	static const char *const where[] = { "constructor", "fiber", "destructor1", "atexit",
		                             "destructor" };
	struct spied *s = spied_run(FILES, "ends");

	(void)state;
	spied_assert_well(s);
	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++)
		spied_assert_access(s, SPR_READ_FILE, "/nonexistent/%s", where[i]);
	spied_drop(s);
}

static void cancellation_points_stay_what_they_are(void **state)
{
	struct spied *s;

	(void)state;
	assert_int_equal(mkfifo(in("fifo"), 0600), 0);
	s = spied_run(FILES, "cancels", in("fifo"));
	spied_assert_well(s);
	spied_drop(s);
}

/* --- What the spy may not do, or cannot see ------------------------------------------------- */

static void a_filter_that_kills_is_never_met(void **state)
{
	static const char *const ways[] = { "prctl", "syscall" };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct spied *s = spied_run(FILES, "confined", "10000", ways[i]);
		char cwd[4096];

		assert_int_equal(s->status, 0);
		assert_non_null(getcwd(cwd, sizeof(cwd)));
		spied_assert_access(s, SPR_READ_FILE, "%s/confined", cwd);
		/* What found no room without a system call is counted: the opens themselves or,
		 * where the open was written, the result that said it failed. */
		assert_int_equal(s->n + s->stats.lost, s->stats.written);
		assert_true(spied_count(s, IS_FILE, NULL) + s->stats.lost >= 10000 + 5);
		assert_true(s->stats.written <= 1 + 2 * (10000 + 5));
		spied_drop(s);
	}
}

static void a_static_program_is_named_before_it_runs(void **state)
{
	struct spied *s = spied_run("/bin/sh", "-c", "\"$0\"; :", spied_program("files_static"));
	const struct seen *it = spied_find(s, IS_BLIND, "static");

	(void)state;
	spied_assert_well(s);
	assert_non_null(it);
	assert_string_equal(it->path2, spied_program("files_static"));
	assert_int_not_equal(it->pid, s->pid);
	assert_int_equal(spied_unanswered(s), 1);
	spied_drop(s);
}

static void children_of_a_static_program_are_seen(void **state)
{
	struct spied *s = spied_run("/bin/sh", "-c", "\"$0\" \"$1\" ends; :",
	                            spied_program("files_static"), FILES);

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/atexit");
	spied_drop(s);
}

static void a_program_without_descriptors_to_spare_runs_unseen_and_unanswered(void **state)
{
	struct spied *s = spied_run(FILES, "limits", FILES, "nofile");

	(void)state;
	assert_int_equal(s->stats.lost, 0);
	assert_int_equal(spied_unanswered(s), 1);
	spied_drop(s);
}

static void a_limit_on_file_sizes_harms_nobody(void **state)
{
	struct spied *s = spied_run(FILES, "limits", FILES, "fsize");

	(void)state;
	spied_assert_well(s);
	assert_int_equal(spied_unanswered(s), 0);
	spied_drop(s);
}

static void a_plain_child_leaves_no_blind_spot(void **state)
{
	struct spied *s = spied_run("/bin/sh", "-c", "/bin/true; \"$0\" nothing", FILES);

	(void)state;
	spied_assert_well(s);
	assert_int_equal(spied_count(s, IS_BLIND, NULL), 0);
	assert_int_equal(spied_unanswered(s), 0);
	spied_drop(s);
}

/* --- A library without a recording ---------------------------------------------------------- */

static char *inert_run(const char *channel, int *status)
{
	char library[4096], lines[3][4200];
	char *env[] = { lines[0], lines[1], lines[2], NULL };
	const char *const argv[] = { spied_program("every_call"), "/nonexistent/every", NULL };
	char name[] = "/tmp/spied.XXXXXX", *text;
	const int out = mkstemp(name);
	pid_t pid;

	assert_int_equal(spr_spy_library(library, sizeof(library)), 0);
	snprintf(lines[0], sizeof(lines[0]), "LD_PRELOAD=%s", library);
	snprintf(lines[1], sizeof(lines[1]), "SPARRING_PRELOAD=%s", library);
	snprintf(lines[2], sizeof(lines[2]), "%s", channel);
	pid = fork();
	if (pid == 0)
		spied_start(argv, env, out);
	assert_int_equal(waitpid(pid, status, 0), pid);
	text = test_file_read(name, NULL);
	unlink(name);
	close(out);
	return text;
}

static void without_a_channel_the_library_does_nothing(void **state)
{
	static const char *const channels[] = {
		"X=1", "SPARRING_CHANNEL=", "SPARRING_CHANNEL=garbage", "SPARRING_CHANNEL=ring:",
		"SPARRING_CHANNEL=ring:/nonexistent/x.ring", "SPARRING_CHANNEL=ring:/etc/passwd",
		"SPARRING_CHANNEL=\n\n", "SPARRING_CHANNEL=pipe:/tmp\nunix:x",
	};
	const char *const argv[] = { spied_program("every_call"), "/nonexistent/every", NULL };
	int status, status2;
	char *bare = spied_bare(argv, &status);

	(void)state;
	for (size_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++) {
		char *text = inert_run(channels[i], &status2);
		assert_int_equal(status, status2);
		spied_assert_same(text, bare);
		free(text);
	}
	free(bare);
}

/* --- Two recordings, none any more, one that is full --- */

/* The lines that a recorder gives to its target. */
static char **lines_of(spr_channel *ch)
{
	char *none[] = { NULL }, **env;

	assert_int_equal(spr_spy_environment(&env, none, spr_channel_address(ch), NULL), 0);
	return env;
}

static spr_channel *channel(void)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	spr_channel *ch;

	opt.kinds = spr_kinds_files;
	opt.n_kinds = 3;
	assert_int_equal(spr_channel_open(&ch, "ring:", &opt), 0);
	return ch;
}

static void a_recording_inside_a_recording_shows_both_the_same(void **state)
{
	const char *const argv[] = { FILES, "execs", "execve-empty", FILES, "ends", NULL };
	spr_channel *outer = channel();
	char **env = lines_of(outer);
	struct spied *s = spied_run_in((const char *const *)env, argv);
	struct spr_stats stats = SPR_STATS_INIT;

	(void)state;
	spied_assert_well(s);
	spied_assert_access(s, SPR_READ_FILE, "/nonexistent/atexit");
	assert_int_equal(spr_channel_seal(outer), 0);
	assert_int_equal(spr_channel_stats(outer, &stats), 0);
	assert_int_equal(stats.delivered, s->n);
	assert_int_equal(stats.lost, 0);
	spr_channel_close(outer);
	free(env);
	spied_drop(s);
}

static void an_environment_that_outlives_its_recording_does_nothing(void **state)
{
	const char *const argv[] = { FILES, "execs", "spawn", FILES, "ends", NULL };
	spr_channel *ch = channel();
	char **env = lines_of(ch), name[] = "/tmp/spied.XXXXXX", *text;
	const int out = mkstemp(name);
	int status;
	pid_t pid;

	(void)state;
	for (unsigned sealed = 0; sealed < 2; sealed++) {
		if (sealed == 0)
			assert_int_equal(spr_channel_seal(ch), 0);
		else
			spr_channel_close(ch);
		pid = fork();
		if (pid == 0)
			spied_start(argv, env, out);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	text = test_file_read(name, NULL);
	assert_string_equal(text, "");
	unlink(name);
	close(out);
	free(text);
	free(env);
}

static void what_does_not_fit_is_counted_exactly(void **state)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	const char *const argv[] = { FILES, "many", "/dev/null", "100000", NULL };
	struct spied *s;

	(void)state;
	opt.capacity_bytes = 1 << 20;
	opt.flags = SPR_DROP;
	s = spied_run_with(opt, NULL, argv);
	assert_int_equal(s->status, 0);
	/* Start, the constructor's open and its result, the destructor's too where they fitted. */
	assert_true(s->stats.lost > 50000);
	assert_int_equal(s->stats.written, s->n + s->stats.lost);
	assert_in_range(s->stats.written, 100000 + 4, 100000 + 5);
	spied_drop(s);
}

static void a_setuid_program_is_named_where_it_gains_rights(void **state)
{
	struct spied *s;
	struct stat st;

	(void)state;
	if (stat("/bin/su", &st) < 0 || !(st.st_mode & S_ISUID) || st.st_uid != 0)
		TEST_SKIP("no setuid /bin/su here");
	s = spied_run("/bin/sh", "-c", "/bin/su --version >/dev/null; :");
	spied_assert_well(s);
	assert_int_equal(spied_count(s, IS_BLIND, "setuid"), geteuid() != 0);
	assert_int_equal(spied_unanswered(s), geteuid() != 0);
	spied_drop(s);
}

static void new_namespaces_are_named(void **state)
{
	struct spied *s;

	(void)state;
	if (geteuid() != 0)
		TEST_SKIP("unshare -m is for root");
	s = spied_run("/usr/bin/unshare", "-m", FILES, "nothing");
	spied_assert_well(s);
	assert_int_equal(spied_count(s, IS_BLIND, "mount namespace"), 1);
	spied_drop(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_of_a_missing_file_is_seen_with_its_error),
		cmocka_unit_test(start_says_program_arguments_and_parent),
		cmocka_unit_test(access_is_what_the_flags_ask_for),
		cmocka_unit_test(listing_a_folder_after_chdir_is_seen),
		cmocka_unit_test(threads_with_small_stacks_are_seen),
		cmocka_unit_test(children_and_scripts_are_seen),
		cmocka_unit_test(what_kills_a_program_in_a_call_does_not_take_its_record),
		cmocka_unit_test(relative_paths_follow_every_move),
		cmocka_unit_test(a_path_below_a_lost_directory_is_absolute_all_the_same),
		cmocka_unit_test(a_move_in_another_thread_never_makes_a_third_path),
		cmocka_unit_test(a_move_in_a_handler_never_makes_a_third_path),
		cmocka_unit_test(a_vfork_child_that_moves_leaves_its_parent_where_it_was),
		cmocka_unit_test(a_thread_with_its_own_directory_is_asked_each_time),
		cmocka_unit_test(a_descriptors_directory_is_what_it_is_now),
		cmocka_unit_test(pointers_the_kernel_refuses_harm_nobody),
		cmocka_unit_test(paths_below_a_new_root_are_the_hosts),
		cmocka_unit_test(a_forked_child_with_no_descriptor_left_is_seen),
		cmocka_unit_test(a_target_may_close_everything),
		cmocka_unit_test(vfork_children_execute_fail_and_end),
		cmocka_unit_test(forked_children_of_a_threaded_program_write),
		cmocka_unit_test(children_are_seen_whatever_environment_they_get),
		cmocka_unit_test(a_child_gets_our_variables_and_no_more),
		cmocka_unit_test(the_users_preload_stays_in_front),
		cmocka_unit_test(posix_spawn_gives_what_libc_gives),
		cmocka_unit_test(an_allocator_of_the_programs_own_is_used),
		cmocka_unit_test(execvp_searches_as_libc_does),
		cmocka_unit_test(children_made_without_libc_are_seen),
		cmocka_unit_test(children_forked_in_a_handler_are_seen),
		cmocka_unit_test(other_ends_are_seen_to_the_last_call),
		cmocka_unit_test(realpath_answers_as_libc_does),
		cmocka_unit_test(glob_and_nftw_are_followed_into_every_folder),
		cmocka_unit_test(a_handler_on_a_small_stack_writes_in_the_middle_of_a_record),
		cmocka_unit_test(a_thousand_longjmps_out_of_records_make_nobody_mute),
		cmocka_unit_test(everything_up_to_the_end_is_seen),
		cmocka_unit_test(cancellation_points_stay_what_they_are),
		cmocka_unit_test(a_filter_that_kills_is_never_met),
		cmocka_unit_test(a_static_program_is_named_before_it_runs),
		cmocka_unit_test(children_of_a_static_program_are_seen),
		cmocka_unit_test(a_program_without_descriptors_to_spare_runs_unseen_and_unanswered),
		cmocka_unit_test(a_limit_on_file_sizes_harms_nobody),
		cmocka_unit_test(a_plain_child_leaves_no_blind_spot),
		cmocka_unit_test(without_a_channel_the_library_does_nothing),
		cmocka_unit_test(a_recording_inside_a_recording_shows_both_the_same),
		cmocka_unit_test(an_environment_that_outlives_its_recording_does_nothing),
		cmocka_unit_test(what_does_not_fit_is_counted_exactly),
		cmocka_unit_test(a_setuid_program_is_named_where_it_gains_rights),
		cmocka_unit_test(new_namespaces_are_named),
	};
	int failed;

	folder = test_folder_make();
	mkdir(in("a"), 0755);
	mkdir(in("b"), 0755);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	test_folder_remove(folder);
	return failed;
}
