/* SPDX-License-Identifier: MIT */
/* session.c - one recording: channel, collector, encoder and output, tied together. */
#include "cli/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/place.h"
#include "cli/cli.h"
#include "cli/judge.h"
#include "cli/living.h"
#include "spy/program.h"

/* Whose records our own are; no channel numbers its writers so high. */
#define OUR_WRITER (1ull << 62)

#define SYNC_NS 1000000000u /* a trace that is followed, or whose recorder dies, lags no more */

/* --- Opening ------------------------------------------------------------------------- */

/* The sentence names what it is about. */
static int session_failed(void)
{
	spr_cli_say("%s", spr_cli_shown(spr_error_text()));
	return SPR_CLI_FAILED;
}

/* What dead recordings left goes at the next start. Whether that can be done is not our target's
 * business. */
static void sweep_place(void)
{
	char path[PATH_MAX];
	const int place = spr_place_open(NULL, 0, path, sizeof(path));

	if (place >= 0) {
		(void)spr_place_sweep(place, NULL, NULL);
		close(place);
	}
}

static int open_channel(struct spr_cli_session *s)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;

	opt.flags = SPR_GUARD;
	opt.capacity_bytes = s->opt->capacity_bytes;
	opt.stall_ms = s->opt->stall_ms;
	opt.kinds = spr_kinds_files;
	opt.n_kinds = 3;
	/* The place and all in it must be the target's to open. */
	int err = spr_cli_user_become(&s->opt->user);
	if (err < 0) {
		spr_cli_say("cannot become %s: %s", s->opt->user.name, strerror(-err));
		return SPR_CLI_FAILED;
	}
	sweep_place();
	err = spr_channel_open(&s->channel, s->opt->address, &opt);
	spr_cli_user_return(&s->opt->user);
	if (err == -ENOSPC) {
		spr_cli_say("%s; name a place with more room in SPARRING_DIR",
		            spr_cli_shown(spr_error_text()));
		return SPR_CLI_FAILED;
	}
	return err < 0 ? session_failed() : SPR_CLI_OK;
}

static int open_output(struct spr_cli_session *s)
{
	struct spr_encoder_options opt = SPR_ENCODER_OPTIONS_INIT;

	opt.kinds = spr_kinds_files;
	opt.n_kinds = 3;
	opt.fd = s->part.fd;
	const int err = spr_encoder_open(&s->encoder, &opt);
	if (err < 0) {
		spr_cli_say("%s: cannot be written: %s", spr_cli_shown(s->opt->out),
		            strerror(-err));
		return SPR_CLI_NO_OUTPUT;
	}
	return SPR_CLI_OK;
}

static int open_collector(struct spr_cli_session *s)
{
	struct spr_sink inner = SPR_SINK_INIT, sink;

	if (spr_encoder_sink(s->encoder, &inner) < 0)
		return session_failed();
	s->watch = spr_cli_watch_open(spr_kinds_files, 3, &inner);
	if (!s->watch) {
		spr_cli_say("out of memory");
		return SPR_CLI_FAILED;
	}
	/* Somebody else's programs could shorten the file under us: then it is read, not mapped. */
	if (spr_collector_open(&s->collector, s->opt->user.other ? SPR_READ : 0) < 0)
		return session_failed();
	spr_cli_watch_sink(s->watch, &sink);
	if (spr_collector_add(s->collector, s->channel, &sink) < 0)
		return session_failed();
	return SPR_CLI_OK;
}

int spr_cli_session_open(struct spr_cli_session *s, const struct spr_cli_session_options *opt,
                         const struct spr_cli_part *part)
{
	*s = (struct spr_cli_session){ .opt = opt, .part = *part };
	spr_cli_living_begin(&s->began);
	s->stats = (struct spr_stats)SPR_STATS_INIT;
	s->verdict = (struct spr_verdict)SPR_VERDICT_INIT;
	int status = open_output(s);
	if (status == SPR_CLI_OK)
		status = open_channel(s);
	if (status == SPR_CLI_OK)
		status = open_collector(s);
	if (status != SPR_CLI_OK)
		spr_cli_session_drop(s);
	return status;
}

static void session_release(struct spr_cli_session *s)
{
	spr_collector_close(s->collector);
	spr_channel_close(s->channel);
	spr_cli_watch_close(s->watch);
	s->collector = NULL;
	s->channel = NULL;
	s->watch = NULL;
}

void spr_cli_session_drop(struct spr_cli_session *s)
{
	session_release(s);
	(void)!spr_encoder_close(s->encoder, NULL);
	s->encoder = NULL;
	spr_cli_part_drop(&s->part);
}

/* --- Running --------------------------------------------------------------------------- */

/* One step; false after the last: the channel is sealed and drained, or the collector failed. */
static bool session_step(struct spr_cli_session *s, int timeout_ms)
{
	const int64_t n = spr_collector_step(s->collector, timeout_ms);

	if (n > 0)
		s->n_unsynced += (uint64_t)n;
	if (n == -ENODATA)
		return false;
	/* Nonsense of one writer is counted by the channel, and the others go on. */
	if (n >= 0 || n == -EPROTO || n == -EINTR || n == -EAGAIN)
		return true;
	spr_cli_watch_fail(s->watch, (int)n);
	return false;
}

static void session_sync(struct spr_cli_session *s)
{
	const uint64_t now_ns = spr_clock_monotonic_ns();

	if (!s->n_unsynced || now_ns < s->sync_at_ns || spr_cli_watch_error(s->watch))
		return;
	s->n_unsynced = 0;
	s->sync_at_ns = now_ns + SYNC_NS;
	const int err = spr_encoder_sync(s->encoder);
	if (err < 0)
		spr_cli_watch_fail(s->watch, err);
}

static int session_timeout_ms(const struct spr_cli_session *s)
{
	const uint64_t now_ns = spr_clock_monotonic_ns();

	if (!s->n_unsynced || spr_cli_watch_error(s->watch))
		return -1;
	return now_ns >= s->sync_at_ns ? 0 : (int)((s->sync_at_ns - now_ns) / 1000000 + 1);
}

/* A thread of its own: a collector that waits in its own way naps before it sleeps, which spares
 * the target a wake for every few records; and an output that blocks holds up no signal. */
static void *collect(void *arg)
{
	struct spr_cli_session *s = arg;

	s->sync_at_ns = spr_clock_monotonic_ns() + SYNC_NS;
	while (session_step(s, session_timeout_ms(s)))
		session_sync(s);
	return NULL;
}

void spr_cli_session_run(struct spr_cli_session *s, struct spr_cli_target *t)
{
	struct pollfd signals = { .fd = t->signals, .events = POLLIN };
	const int err = pthread_create(&s->collecting, NULL, collect, s);

	/* Without it the ring takes what it has room for, and is drained at the end. */
	s->is_collecting = err == 0;
	while (!t->ended) {
		poll(&signals, 1, -1);
		spr_cli_target_tend(t);
	}
}

/* --- The end ----------------------------------------------------------------------------- */

static size_t put_text(unsigned char *at, const char *text, size_t most)
{
	const size_t n = strnlen(text, most);

	at[0] = (unsigned char)n;
	at[1] = (unsigned char)(n >> 8);
	memcpy(at + 2, text, n);
	return n + 2;
}

/* For the line at the end: the first few by name, the rest as a number. */
static void cover(struct spr_cli_session *s, const char *words)
{
	const size_t n = strlen(s->coverage), room = sizeof(s->coverage) - n;

	if (s->n_covered++ < SPR_CLI_COVERED_MAX)
		snprintf(s->coverage + n, room, "%s%s", n ? ", " : "", words);
}

/* A record of our own, behind all that the spies have written. */
static void put_own(struct spr_cli_session *s, struct spr_record *rec)
{
	rec->writer = OUR_WRITER;
	rec->time_ns = spr_clock_monotonic_ns();
	rec->seq = s->n_own++;
	if (spr_cli_watch_error(s->watch))
		return;
	const int err = spr_encoder_put(s->encoder, rec, 1, NULL, NULL);
	if (err < 0)
		spr_cli_watch_fail(s->watch, err);
}

static void put_blind(struct spr_cli_session *s, uint32_t pid, const char *reason,
                      const char *text)
{
	unsigned char data[4 + 2 + 256 + 2 + 4096];
	struct spr_record rec = { .data = data, .kind = SPR_KIND_BLIND };
	size_t n = 4;

	memcpy(data, &pid, 4);
	n += put_text(data + n, reason, 256);
	n += put_text(data + n, text, 4096);
	rec.bytes = (uint32_t)n;
	put_own(s, &rec);
}

/* How the root target ended: we alone know. Fields as base/kinds_spies.c declares them: op, ppid,
 * exe, argv (absent), status. */
static void put_exit(struct spr_cli_session *s, const struct spr_cli_target *t)
{
	const struct spr_kind *process = &spr_kinds_files[0];
	const uint32_t ppid = (uint32_t)getpid();
	const int32_t status = t->status;
	unsigned char data[1 + 4 + 2 + 4096 + 1 + 1 + 4];
	struct spr_record rec = { .data = data, .kind = 1, .flags = SPR_HAS_ID, .pid = t->pid,
	                          .tid = t->pid };
	size_t n = 5;

	data[0] = 0;
	while (data[0] < process->fields[0].n_labels &&
	       strcmp(process->fields[0].labels[data[0]], "exit"))
		data[0]++;
	memcpy(data + 1, &ppid, 4);
	n += put_text(data + n, s->exe, 4096);
	data[n++] = 0;
	data[n++] = 1;
	memcpy(data + n, &status, 4);
	rec.bytes = (uint32_t)n + 4;
	put_own(s, &rec);
}

static void cover_one(struct spr_cli_session *s, int32_t pid, const char *reason, const char *text)
{
	char words[256];

	if (pid > 0)
		snprintf(words, sizeof(words), "%.40s pid %d %.150s", spr_cli_shown(reason), pid,
		         spr_cli_shown(text));
	else
		snprintf(words, sizeof(words), "%.100s", spr_cli_shown(reason));
	cover(s, words);
}

static void blind_program(void *arg, int32_t pid, const char *exe)
{
	struct spr_cli_session *s = arg;
	struct spr_spy_program program;
	const char *reason = NULL;

	if (spr_spy_program_look(&program, AT_FDCWD, exe) == 0)
		reason = spr_spy_program_blind(&program);
	reason = reason ? reason : "never attached";
	put_blind(s, (uint32_t)pid, reason, exe);
	s->verdict.reasons |= SPR_BLIND;
	s->verdict.blind++;
	cover_one(s, pid, reason, exe);
}

/* What the spies have written themselves: only to be named at the end. */
static void blind_known(void *arg, int32_t pid, const char *reason, const char *text)
{
	struct spr_cli_session *s = arg;

	s->verdict.reasons |= SPR_BLIND;
	cover_one(s, pid, reason, text);
}

/* Only kept: the trace is the collecting thread's until all is drained. */
static void left_note(void *arg, int32_t pid, const char *exe)
{
	struct spr_cli_session *s = arg;

	if (s->n_left == s->left_room) {
		s->left_room = s->left_room * 2 + 16;
		s->left = spr_cli_grow(s->left, s->left_room * sizeof(s->left[0]));
	}
	char *copy = spr_cli_grow(NULL, strlen(exe) + 1);
	s->left[s->n_left++] = (struct spr_cli_left){ .pid = pid, .exe = strcpy(copy, exe) };
}

static void left_write(struct spr_cli_session *s)
{
	struct spr_verdict *v = &s->verdict;

	for (size_t i = 0; i < s->n_left; i++) {
		put_blind(s, (uint32_t)s->left[i].pid, SPR_CLI_LEFT_RUNNING, s->left[i].exe);
		free(s->left[i].exe);
	}
	free(s->left);
	s->left = NULL;
	/* The channel has counted those that had attached; a child that had not is one more. */
	if (s->n_left > v->left_running)
		v->left_running = s->n_left;
	/* Gone before it could be looked for: it wrote after the seal, so it ran then. */
	if (v->refused && !v->left_running)
		v->left_running = 1;
	if (v->left_running)
		v->reasons |= SPR_LEFT_RUNNING;
}

/* What hooks alone cannot see, of any program. */
static void blind_run(struct spr_cli_session *s)
{
	static const struct {
		const char *reason, *text;
	} spots[] = {
		{ "loader", "what the dynamic loader opens: a program's libraries" },
		{ "libc internals",
		  "what libc opens by itself: locale, time zone, names of users" },
		{ "raw calls", "system calls that a program makes without libc" },
	};

	for (size_t i = 0; i < sizeof(spots) / sizeof(spots[0]); i++) {
		put_blind(s, 0, spots[i].reason, spots[i].text);
		s->verdict.reasons |= SPR_BLIND;
		s->verdict.blind++;
		cover(s, spots[i].reason);
	}
}

/* Who is tired of waiting for a pipe that nobody reads may say so, twice. What the thread holds
 * then goes with the process. */
static bool is_tired(struct spr_cli_target *t)
{
	spr_cli_target_tend(t);
	return t->n_impatient > 1;
}

/* true: everything that was committed has been put. */
static bool session_drain(struct spr_cli_session *s, struct spr_cli_target *t)
{
	struct timespec until;

	spr_channel_seal(s->channel);
	/* Now, not when all is drained: who ends in between has run unseen for that long. */
	(void)spr_cli_living_find(spr_channel_address(s->channel), &s->began, left_note, s);
	if (!s->is_collecting) {
		while (session_step(s, 100)) {
			if (is_tired(t))
				return false;
		}
		return true;
	}
	do {
		if (is_tired(t))
			return false;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 100000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
	} while (pthread_timedjoin_np(s->collecting, NULL, &until) == ETIMEDOUT);
	return true;
}

static void session_judge(struct spr_cli_session *s)
{
	if (spr_channel_stats(s->channel, &s->stats) < 0 ||
	    spr_channel_verdict(s->channel, &s->verdict) < 0)
		s->verdict.reasons |= SPR_LOST;
	blind_run(s);
	spr_cli_watch_blind(s->watch, blind_known, s);
	spr_cli_watch_unanswered(s->watch, blind_program, s);
	left_write(s);
	s->verdict.lost += spr_cli_watch_dropped(s->watch);
	if (s->verdict.lost)
		s->verdict.reasons |= SPR_LOST;
}

static void session_name(struct spr_cli_session *s)
{
	const int err = spr_cli_watch_error(s->watch);

	if (!err) {
		s->whole = !spr_cli_part_keep(&s->part, s->opt->out);
		return;
	}
	s->verdict.reasons |= SPR_CUT;
	if (!s->part.through)
		spr_cli_say("%s: cannot be written: %s; what was written is in %s",
		            spr_cli_shown(s->opt->out), strerror(-err),
		            spr_cli_shown(s->part.path));
	else
		spr_cli_say("%s: cannot be written: %s", spr_cli_shown(s->opt->out),
		            strerror(-err));
}

void spr_cli_session_close(struct spr_cli_session *s, struct spr_cli_target *t)
{
	if (!session_drain(s, t)) {
		spr_cli_watch_fail(s->watch, -EINTR);
		session_name(s);
		return;
	}
	/* Its last word to the sink comes while the encoder is there. */
	spr_collector_close(s->collector);
	s->collector = NULL;
	put_exit(s, t);
	session_judge(s);
	const int err = spr_encoder_close(s->encoder, &s->verdict);
	if (err < 0)
		spr_cli_watch_fail(s->watch, err);
	s->encoder = NULL;
	session_name(s);
	s->n_processes = spr_cli_watch_processes(s->watch);
	session_release(s);
	spr_cli_part_close(&s->part);
}
