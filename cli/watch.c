/* SPDX-License-Identifier: MIT */
/*
 * watch.c - stands between the collector and the encoder.
 *
 * Batches come writer by writer, so a start can be seen before its exec: what happened to each
 * process is put in order once, at the end. Nothing here may end the program while a target runs;
 * where memory is short less is known, and that is said.
 */
#include "cli/watch.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kinds.h"
#include "cli/input.h"
#include "cli/value.h"
#include "transport/transport.h"

#define CHAINS  65536u
#define NOWHERE UINT32_MAX

/* More than anybody reads. */
#define BLIND_MAX 4096u

struct blind {
	int32_t  pid;
	uint32_t reason, text; /* indices in exes */
};

enum what { IS_START, IS_EXEC, IS_EXIT };

struct event {
	uint64_t time_ns, writer;
	int32_t  pid;
	uint32_t exe;   /* index in exes */
	uint32_t older; /* of the same chain */
	uint8_t  what;
	bool     failed; /* an exec that came back */
};

struct exe {
	char    *path;
	bool     looked, found, is_elf;
	dev_t    dev;
	ino_t    ino;
	uint32_t older;
};

struct spr_cli_watch {
	struct spr_sink        inner;
	const struct spr_kind *process, *result;
	uint32_t               process_at, result_at; /* their numbers; 0: the channel has none */
	int                    error;
	bool                   short_of_memory, sorted;
	uint64_t               n_dropped;
	struct event          *events;
	uint32_t               n_events, events_room;
	struct exe            *exes;
	uint32_t               n_exes, exes_room; /* programs, and other words */
	struct blind          *blind;
	uint32_t               n_blind, blind_room;
	uint32_t               chains[CHAINS], exe_chains[CHAINS];
};

struct spr_cli_watch *spr_cli_watch_open(const struct spr_kind *kinds, uint32_t n_kinds,
                                         const struct spr_sink *inner)
{
	struct spr_cli_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->inner = *inner;
	memset(w->chains, 0xff, sizeof(w->chains));
	memset(w->exe_chains, 0xff, sizeof(w->exe_chains));
	for (uint32_t i = 0; i < n_kinds; i++) {
		if (!strcmp(kinds[i].name, "process")) {
			w->process = &kinds[i];
			w->process_at = i + 1;
		} else if (!strcmp(kinds[i].name, "result")) {
			w->result = &kinds[i];
			w->result_at = i + 1;
		}
	}
	return w;
}

void spr_cli_watch_close(struct spr_cli_watch *w)
{
	if (!w)
		return;
	for (uint32_t i = 0; i < w->n_exes; i++)
		free(w->exes[i].path);
	free(w->exes);
	free(w->events);
	free(w->blind);
	free(w);
}

int spr_cli_watch_error(const struct spr_cli_watch *w)
{
	return w->error;
}

void spr_cli_watch_fail(struct spr_cli_watch *w, int err)
{
	if (!w->error)
		w->error = err;
}

uint64_t spr_cli_watch_dropped(const struct spr_cli_watch *w)
{
	return w->n_dropped;
}

/* --- Taking notice ------------------------------------------------------------------- */

/* One more element of an array that doubles; NULL, and noted, when there is no memory. */
static void *room_for_one(struct spr_cli_watch *w, void *array, uint32_t n, uint32_t *room,
                          size_t element_bytes)
{
	if (n < *room)
		return array;
	const uint32_t more = *room ? *room * 2 : 256;
	void *grown = realloc(array, more * element_bytes);
	if (grown)
		*room = more;
	else
		w->short_of_memory = true;
	return grown;
}

static uint32_t exe_find(struct spr_cli_watch *w, const void *path, size_t n_bytes)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < n_bytes; i++)
		hash = (hash ^ ((const unsigned char *)path)[i]) * 16777619u;
	uint32_t *chain = &w->exe_chains[(hash ^ hash >> 16) % CHAINS];
	for (uint32_t at = *chain; at != NOWHERE; at = w->exes[at].older) {
		if (strlen(w->exes[at].path) == n_bytes && !memcmp(w->exes[at].path, path, n_bytes))
			return at;
	}
	struct exe *exes = room_for_one(w, w->exes, w->n_exes, &w->exes_room, sizeof(*exes));
	char *copy = exes ? malloc(n_bytes + 1) : NULL;
	if (exes)
		w->exes = exes;
	if (!copy)
		return NOWHERE;
	memcpy(copy, path, n_bytes);
	copy[n_bytes] = '\0';
	w->exes[w->n_exes] = (struct exe){ .path = copy, .older = *chain };
	*chain = w->n_exes;
	return w->n_exes++;
}

static uint32_t *event_chain(struct spr_cli_watch *w, uint64_t writer, uint64_t time_ns)
{
	const uint64_t mixed = (writer * 0x9e3779b97f4a7c15u) ^ (time_ns * 0xc2b2ae3d27d4eb4fu);

	return &w->chains[(mixed >> 40) % CHAINS];
}

static void event_add(struct spr_cli_watch *w, const struct event *event)
{
	uint32_t *chain = event_chain(w, event->writer, event->time_ns);

	/* A batch that the encoder had no room for is offered, and seen, again. */
	for (uint32_t at = *chain; at != NOWHERE; at = w->events[at].older) {
		const struct event *e = &w->events[at];
		if (e->writer == event->writer && e->time_ns == event->time_ns &&
		    e->what == event->what && e->pid == event->pid)
			return;
	}
	struct event *events = room_for_one(w, w->events, w->n_events, &w->events_room,
	                                    sizeof(*events));
	if (!events)
		return;
	w->events = events;
	events[w->n_events] = *event;
	events[w->n_events].older = *chain;
	*chain = w->n_events++;
}

static void see_image(struct spr_cli_watch *w, const struct spr_record *rec)
{
	struct event event = { .time_ns = rec->time_ns, .writer = rec->writer, .pid = rec->pid };
	struct spr_value op, exe;

	if (!(rec->flags & SPR_HAS_ID) || !spr_cli_field(w->process, rec, "op", &op) ||
	    !spr_cli_field(w->process, rec, "exe", &exe))
		return;
	const int field = spr_cli_field_find(w->process, "op");
	const char *label = spr_cli_label(&w->process->fields[field], &op);
	if (!label)
		return;
	event.what = !strcmp(label, "start") ? IS_START : IS_EXIT;
	if (!strcmp(label, "exec"))
		event.what = IS_EXEC;
	event.exe = exe_find(w, exe.bytes, exe.n);
	if (event.exe != NOWHERE)
		event_add(w, &event);
}

static void see_result(struct spr_cli_watch *w, const struct spr_record *rec)
{
	struct spr_value of_ns;

	if (!spr_cli_field(w->result, rec, "of_ns", &of_ns))
		return;
	uint32_t at = *event_chain(w, rec->writer, of_ns.number);
	for (; at != NOWHERE; at = w->events[at].older) {
		struct event *e = &w->events[at];
		if (e->writer == rec->writer && e->time_ns == of_ns.number && e->what == IS_EXEC)
			e->failed = true;
	}
}

static void see_blind(struct spr_cli_watch *w, const struct spr_record *rec)
{
	struct spr_value pid, reason, text;

	if (!spr_cli_field(&spr_kind_blind, rec, "pid", &pid) ||
	    !spr_cli_field(&spr_kind_blind, rec, "reason", &reason) ||
	    !spr_cli_field(&spr_kind_blind, rec, "text", &text) || w->n_blind == BLIND_MAX)
		return;
	const struct blind spot = { .pid = (int32_t)pid.number,
	                            .reason = exe_find(w, reason.bytes, reason.n),
	                            .text = exe_find(w, text.bytes, text.n) };
	if (spot.reason == NOWHERE || spot.text == NOWHERE)
		return;
	for (uint32_t i = 0; i < w->n_blind; i++) {
		if (!memcmp(&w->blind[i], &spot, sizeof(spot)))
			return;
	}
	struct blind *blind = room_for_one(w, w->blind, w->n_blind, &w->blind_room, sizeof(*blind));
	if (!blind)
		return;
	w->blind = blind;
	blind[w->n_blind++] = spot;
}

static void see_batch(struct spr_cli_watch *w, spr_batch *b)
{
	struct spr_record rec;

	if (!w->process_at)
		return;
	while (spr_batch_next(b, &rec) > 0) {
		if (rec.kind == w->process_at)
			see_image(w, &rec);
		else if (rec.kind == w->result_at && w->result_at)
			see_result(w, &rec);
		else if (rec.kind == SPR_KIND_BLIND)
			see_blind(w, &rec);
	}
	spr_batch_rewind(b);
}

void spr_cli_watch_root(struct spr_cli_watch *w, int32_t pid, uint64_t time_ns, const char *exe)
{
	const struct event event = { .time_ns = time_ns, .writer = UINT64_MAX, .pid = pid,
	                             .exe = exe_find(w, exe, strlen(exe)), .what = IS_EXEC };

	if (event.exe != NOWHERE)
		event_add(w, &event);
}

/* --- The sink -------------------------------------------------------------------------- */

static int watch_put(void *arg, spr_batch *b)
{
	struct spr_cli_watch *w = arg;

	if (w->error) {
		w->n_dropped += b->n_records;
		return 0;
	}
	const uint64_t n_records = b->n_records;
	see_batch(w, b);
	const int err = w->inner.put(w->inner.arg, b);
	if (err >= 0 || err == -EAGAIN)
		return err;
	w->error = err;
	w->n_dropped += n_records;
	return 0;
}

static int watch_tick(void *arg, uint64_t until_ns)
{
	struct spr_cli_watch *w = arg;

	if (!w->error && w->inner.tick) {
		const int err = w->inner.tick(w->inner.arg, until_ns);
		if (err == -EAGAIN)
			return err;
		w->error = err;
	}
	return 0;
}

static int watch_gone(void *arg, uint64_t writer, uint64_t written, uint64_t lost)
{
	struct spr_cli_watch *w = arg;

	if (!w->error && w->inner.gone) {
		const int err = w->inner.gone(w->inner.arg, writer, written, lost);
		if (err == -EAGAIN)
			return err;
		w->error = err;
	}
	return 0;
}

static void watch_bind(void *arg, spr_collector *c)
{
	struct spr_cli_watch *w = arg;

	if (w->inner.bind)
		w->inner.bind(w->inner.arg, c);
}

void spr_cli_watch_sink(struct spr_cli_watch *w, struct spr_sink *out)
{
	*out = (struct spr_sink)SPR_SINK_INIT;
	out->arg = w;
	out->put = watch_put;
	out->tick = watch_tick;
	out->gone = watch_gone;
	out->bind = watch_bind;
}

/* --- At the end -------------------------------------------------------------------------- */

static int event_order(const void *a, const void *b)
{
	const struct event *l = a, *r = b;

	if (l->pid != r->pid)
		return l->pid < r->pid ? -1 : 1;
	if (l->time_ns != r->time_ns)
		return l->time_ns < r->time_ns ? -1 : 1;
	return (int)r->what - (int)l->what; /* an exec is before the start that answers it */
}

/* The chains mean nothing from here on. */
static void watch_sort(struct spr_cli_watch *w)
{
	if (w->n_events && !w->sorted)
		qsort(w->events, w->n_events, sizeof(*w->events), event_order);
	w->sorted = true;
}

static void exe_look(struct exe *e)
{
	unsigned char head[SELFMAG];
	struct stat st;

	if (e->looked)
		return;
	e->looked = true;
	const int fd = open(e->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return;
	e->found = !fstat(fd, &st) && S_ISREG(st.st_mode);
	e->is_elf = e->found && read(fd, head, sizeof(head)) == sizeof(head) &&
	            !memcmp(head, ELFMAG, SELFMAG);
	e->dev = st.st_dev;
	e->ino = st.st_ino;
	close(fd);
}

/* Did the image that started come from this exec? A static program passes our environment on: what
 * it becomes later answers, but it itself ran unseen. Scripts are answered by their interpreter. */
static bool exe_answers(struct spr_cli_watch *w, const struct event *exec,
                        const struct event *start)
{
	struct exe *asked = &w->exes[exec->exe], *came = &w->exes[start->exe];

	if (asked == came)
		return true;
	exe_look(asked);
	exe_look(came);
	if (!asked->found || !came->found || !asked->is_elf)
		return true;
	return asked->dev == came->dev && asked->ino == came->ino;
}

void spr_cli_watch_blind(struct spr_cli_watch *w,
                         void (*each)(void *arg, int32_t pid, const char *reason, const char *text),
                         void *arg)
{
	for (uint32_t i = 0; i < w->n_blind; i++)
		each(arg, w->blind[i].pid, w->exes[w->blind[i].reason].path,
		     w->exes[w->blind[i].text].path);
}

/* A hook that finds a static or a privileged program names it before it becomes it. */
static bool is_named(const struct spr_cli_watch *w, const struct event *exec)
{
	for (uint32_t i = 0; i < w->n_blind; i++) {
		if (w->blind[i].pid == exec->pid && w->blind[i].text == exec->exe)
			return true;
	}
	return false;
}

static void unanswered(struct spr_cli_watch *w, const struct event *exec,
                       void (*each)(void *arg, int32_t pid, const char *exe), void *arg)
{
	if (!is_named(w, exec))
		each(arg, exec->pid, w->exes[exec->exe].path);
}

void spr_cli_watch_unanswered(struct spr_cli_watch *w,
                              void (*each)(void *arg, int32_t pid, const char *exe), void *arg)
{
	const struct event *asked = NULL;

	watch_sort(w);
	for (uint32_t i = 0; i < w->n_events; i++) {
		const struct event *e = &w->events[i];

		if (e->what == IS_EXEC && e->failed)
			continue;
		if (asked &&
		    (asked->pid != e->pid || e->what != IS_START || !exe_answers(w, asked, e)))
			unanswered(w, asked, each, arg);
		asked = e->what == IS_EXEC ? e : NULL;
	}
	if (asked)
		unanswered(w, asked, each, arg);
}

size_t spr_cli_watch_processes(struct spr_cli_watch *w)
{
	size_t n = 0;

	watch_sort(w);
	for (uint32_t i = 0; i < w->n_events; i++)
		n += i == 0 || w->events[i].pid != w->events[i - 1].pid;
	return n;
}
