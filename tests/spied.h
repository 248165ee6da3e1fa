/* SPDX-License-Identifier: MIT */
/*
 * spied.h - run a program under the files spy and look at what was recorded: a recorder of a few
 * lines, made of the public interface alone (open, run, seal, walk).
 */
#ifndef SPR_TESTS_SPIED_H
#define SPR_TESTS_SPIED_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "base/calls.h"
#include "spy/supervise.h"
#include "tests/support.h"

enum { IS_PROCESS = 1, IS_FILE, IS_RESULT, IS_BLIND = SPR_KIND_BLIND };

struct seen { /* one record; strings are never NULL */
	uint32_t kind, op, access, ppid, error;
	int32_t  pid, tid;
	uint64_t time_ns, of_ns, writer, seq;
	bool     has_path2, has_argv;
	char *path, *path2, *argv; /* path: exe of a process, reason of a blind; path2: its text */
};

struct spied {
	int              status; /* as of waitpid */
	struct seen     *seen;
	size_t           n, room;
	struct spr_stats stats;
	uint64_t         left_running;
	pid_t            pid;
	char            *out; /* stdout and stderr */
};

static inline const char *spied_program(const char *name)
{
	static char text[8][512];
	static unsigned at;

	at = (at + 1) % 8;
	snprintf(text[at], sizeof(text[at]), "%s/tests/targets/%s", test_build_folder(), name);
	return text[at];
}

static inline char *spied_copy(const struct spr_value *v)
{
	char *s = malloc(v->n + 1);

	if (v->n)
		memcpy(s, v->bytes, v->n);
	s[v->n] = '\0';
	return s;
}

/* All elements, each followed by a newline. */
static inline char *spied_list(const struct spr_value *v)
{
	size_t bytes = 1, n = v->n;
	const char *at = v->bytes;
	char *s = calloc(1, 1);

	for (uint64_t i = 0; i < v->number; i++) {
		uint16_t next;
		s = realloc(s, bytes + n + 1);
		memcpy(s + bytes - 1, at, n);
		bytes += n + 1;
		memcpy(s + bytes - 2, "\n", 2);
		if (i + 1 == v->number)
			break;
		memcpy(&next, at + n, 2);
		at += n + 2;
		n = next;
	}
	return s;
}

static inline struct spr_value spied_field(const struct spr_kind *kind,
                                           const struct spr_record *rec, uint32_t i)
{
	struct spr_value v;

	assert_int_equal(spr_record_field(kind, rec, i, &v), 0);
	return v;
}

static inline void spied_take(struct spied *s, const struct spr_record *rec)
{
	struct spr_value v[4];
	struct seen *to;

	if (s->n == s->room) {
		s->room = s->room ? 2 * s->room : 64;
		s->seen = realloc(s->seen, s->room * sizeof(*s->seen));
	}
	to = &s->seen[s->n++];
	*to = (struct seen){ .kind = rec->kind, .pid = rec->pid, .tid = rec->tid,
		             .time_ns = rec->time_ns, .writer = rec->writer, .seq = rec->seq };
	if (rec->kind == IS_BLIND) {
		to->pid = (int32_t)spied_field(NULL, rec, 0).number;
		v[0] = spied_field(NULL, rec, 1);
		v[1] = spied_field(NULL, rec, 2);
		to->path = spied_copy(&v[0]);
		to->path2 = spied_copy(&v[1]);
		to->argv = calloc(1, 1);
		return;
	}
	assert_in_range(rec->kind, IS_PROCESS, IS_RESULT);
	for (uint32_t i = 0; i < 4 && i < spr_kinds_files[rec->kind - 1].n_fields; i++)
		v[i] = spied_field(&spr_kinds_files[rec->kind - 1], rec, i);
	to->op = (uint32_t)v[0].number;
	if (rec->kind == IS_RESULT) {
		to->of_ns = v[0].number;
		to->error = (uint32_t)v[1].number;
	} else if (rec->kind == IS_FILE) {
		to->access = (uint32_t)v[1].number;
		to->path = spied_copy(&v[2]);
		to->has_path2 = v[3].present;
		to->path2 = v[3].present ? spied_copy(&v[3]) : NULL;
	} else {
		to->ppid = (uint32_t)v[1].number;
		to->path = spied_copy(&v[2]);
		to->has_argv = v[3].present;
		to->argv = v[3].present ? spied_list(&v[3]) : NULL;
	}
	to->path = to->path ? to->path : calloc(1, 1);
	to->path2 = to->path2 ? to->path2 : calloc(1, 1);
	to->argv = to->argv ? to->argv : calloc(1, 1);
}

static inline int spied_order(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->writer != y->writer ? (x->writer < y->writer ? -1 : 1) :
	       x->seq < y->seq ? -1 : x->seq > y->seq;
}

static inline void spied_start(const char *const *argv, char **env, int out)
{
	const int null = open("/dev/null", O_RDONLY);

	dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	close_range(3, ~0u, 0);
	execve(argv[0], (char *const *)argv, env);
	_exit(127);
}

/* opt: a channel's options, kinds aside. extra: more lines of environment, or NULL. */
static inline struct spied *spied_run_with(struct spr_channel_options opt,
                                           const char *const *extra, const char *const *argv)
{
	struct spied *s = calloc(1, sizeof(*s));
	char *base[8] = { NULL }, path[] = "PATH=/usr/bin:/bin";
	char name[] = "/tmp/spied.XXXXXX", **env;
	struct spr_verdict verdict = SPR_VERDICT_INIT;
	spr_channel *ch;
	spr_batch *batch = NULL;
	struct spr_record rec;
	size_t n = 0;
	const int out = mkstemp(name);

	base[n++] = path;
	while (extra && *extra && n < 7)
		base[n++] = (char *)*extra++;
	opt.kinds = spr_kinds_files;
	opt.n_kinds = 3;
	assert_int_equal(spr_channel_open(&ch, "ring:", &opt), 0);
	assert_int_equal(spr_spy_environment(&env, base, spr_channel_address(ch), NULL), 0);
	s->pid = fork();
	if (s->pid == 0)
		spied_start(argv, env, out);
	assert_int_equal(waitpid(s->pid, &s->status, 0), s->pid);
	assert_int_equal(spr_channel_seal(ch), 0);
	while (spr_channel_walk(ch, &batch) > 0) {
		while (spr_batch_next(batch, &rec) > 0)
			spied_take(s, &rec);
	}
	s->stats = (struct spr_stats)SPR_STATS_INIT;
	assert_int_equal(spr_channel_stats(ch, &s->stats), 0);
	assert_int_equal(spr_channel_verdict(ch, &verdict), 0);
	s->left_running = verdict.left_running;
	spr_channel_close(ch);
	qsort(s->seen, s->n, sizeof(*s->seen), spied_order);
	s->out = test_file_read(name, NULL);
	unlink(name);
	close(out);
	free(env);
	if (getenv("SPIED_VERBOSE"))
		print_message("%s: %zu records, status %#x\n%s", argv[0], s->n, s->status, s->out);
	return s;
}

static inline struct spied *spied_run_in(const char *const *extra, const char *const *argv)
{
	return spied_run_with((struct spr_channel_options)SPR_CHANNEL_OPTIONS_INIT, extra, argv);
}

#define spied_run(...) spied_run_in(NULL, (const char *const[]){ __VA_ARGS__, NULL })

/* The same program without us: its output, to compare. */
static inline char *spied_bare(const char *const *argv, int *status)
{
	char name[] = "/tmp/spied.XXXXXX", path[] = "PATH=/usr/bin:/bin", *env[] = { path, NULL };
	const int out = mkstemp(name);
	const pid_t pid = fork();
	char *text;

	if (pid == 0)
		spied_start(argv, env, out);
	assert_int_equal(waitpid(pid, status, 0), pid);
	text = test_file_read(name, NULL);
	unlink(name);
	close(out);
	return text;
}

/* Equal texts; else the first line that differs is shown (cmocka cuts what is long). */
static inline void spied_assert_same(const char *got, const char *want)
{
	const char *a = got, *b = want;

	while (*a && *a == *b) {
		a++;
		b++;
	}
	if (!*a && !*b)
		return;
	while (a > got && a[-1] != '\n') {
		a--;
		b--;
	}
	fail_msg("got \"%.*s\", not \"%.*s\"", (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b);
}

static inline void spied_drop(struct spied *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->seen[i].path);
		free(s->seen[i].path2);
		free(s->seen[i].argv);
	}
	free(s->seen);
	free(s->out);
	free(s);
}

/* Everything that ran to its end with status 0, and nothing was lost on the way. */
static inline void spied_assert_well(const struct spied *s)
{
	if (s->status)
		print_message("status %#x: %s\n", s->status, s->out);
	assert_int_equal(s->status, 0);
	assert_int_equal(s->stats.lost, 0);
	assert_int_equal(s->stats.written, s->n);
}

/* "." components and doubled slashes do not count. */
static inline bool spied_same_path(const char *a, const char *b)
{
	for (;;) {
		while (*a == '/' && (a[1] == '/' || (a[1] == '.' && (a[2] == '/' || !a[2]))))
			a += a[1] == '/' ? 1 : 2;
		while (*b == '/' && (b[1] == '/' || (b[1] == '.' && (b[2] == '/' || !b[2]))))
			b += b[1] == '/' ? 1 : 2;
		if (*a != *b)
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

static inline const struct seen *spied_find(const struct spied *s, uint32_t kind, const char *path)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->seen[i].kind == kind && spied_same_path(s->seen[i].path, path))
			return &s->seen[i];
	}
	return NULL;
}

static inline size_t spied_count(const struct spied *s, uint32_t kind, const char *path)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->seen[i].kind == kind && (!path || spied_same_path(s->seen[i].path, path));
	return n;
}

/* All that was done to the path, ORed; list includes read. */
static inline uint32_t spied_access(const struct spied *s, const char *path)
{
	uint32_t access = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (s->seen[i].kind == IS_FILE && spied_same_path(s->seen[i].path, path))
			access |= s->seen[i].access;
	}
	return access & SPR_LIST_DIR ? access & ~(uint32_t)SPR_READ_FILE : access;
}

static inline void spied_assert_access(const struct spied *s, uint32_t access, const char *format,
                                       ...) __attribute__((format(printf, 3, 4)));
static inline void spied_assert_access(const struct spied *s, uint32_t access, const char *format,
                                       ...)
{
	char path[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(path, sizeof(path), format, ap);
	va_end(ap);
	if (spied_access(s, path) != access) {
		print_message("%s: access %#x, not %#x; the paths are:\n", path,
		              spied_access(s, path), access);
		for (size_t i = 0; i < s->n; i++)
			print_message("  kind %u op %u access %#x %s %s\n", s->seen[i].kind,
			              s->seen[i].op, s->seen[i].access, s->seen[i].path,
			              s->seen[i].path2);
	}
	assert_int_equal(spied_access(s, path), access);
}

/* The errno that a record's result says; 0: none. */
static inline uint32_t spied_error(const struct spied *s, const struct seen *of)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->seen[i].kind == IS_RESULT && s->seen[i].writer == of->writer &&
		    s->seen[i].of_ns == of->time_ns)
			return s->seen[i].error;
	}
	return 0;
}

/* Execs that no new image's start and no result answers, counted over all processes. */
static inline long spied_unanswered(const struct spied *s)
{
	long n = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct seen *it = &s->seen[i];
		if (it->kind == IS_PROCESS && it->op == SPR_PROCESS_EXEC && !spied_error(s, it))
			n++;
		else if (it->kind == IS_PROCESS && it->op == SPR_PROCESS_START && it->has_argv &&
		         it->pid != s->pid)
			n--;
		else if (it->kind == IS_PROCESS && it->op == SPR_PROCESS_START && it->has_argv)
			n -= it != spied_find(s, IS_PROCESS, it->path); /* the root's own start */
	}
	return n;
}

#endif /* SPR_TESTS_SPIED_H */
