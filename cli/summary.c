/* SPDX-License-Identifier: MIT */
/* summary.c - a trace in one screen. Memory grows with distinct paths, not with records. */
#include "cli/summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/value.h"

#define N_TOP 10u

/* A set of texts with a count and flags each; open addressing, doubled when half full. */
struct word {
	char    *text;
	size_t   n_bytes;
	uint64_t count;
	uint32_t ways; /* WAY_* */
};
struct words {
	struct word *at;
	size_t       room, n;
};

/* What was done with a path. */
#define WAY_READ    (1u << 0)
#define WAY_WRITTEN (1u << 1)
#define WAY_LISTED  (1u << 2)
#define WAY_RUN     (1u << 3)
#define WAY_PROBED  (1u << 4)
#define WAY_MISSING (1u << 5)

struct spr_cli_summary {
	struct words paths, folders, kinds, pids;
	uint64_t     n_records, n_bytes, first_ns, last_ns;
};

static uint64_t hash_of(const void *text, size_t n_bytes)
{
	const unsigned char *at = text;
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < n_bytes; i++)
		hash = (hash ^ at[i]) * 0x100000001b3u;
	return hash ^ hash >> 32;
}

static size_t words_place(const struct words *set, const void *text, size_t n_bytes)
{
	size_t at = hash_of(text, n_bytes) & (set->room - 1);

	while (set->at[at].text &&
	       (set->at[at].n_bytes != n_bytes || memcmp(set->at[at].text, text, n_bytes)))
		at = (at + 1) & (set->room - 1);
	return at;
}

static void words_grow(struct words *set)
{
	struct words bigger = { .room = set->room ? set->room * 2 : 64, .n = set->n };

	bigger.at = spr_cli_grow(NULL, bigger.room * sizeof(*bigger.at));
	memset(bigger.at, 0, bigger.room * sizeof(*bigger.at));
	for (size_t i = 0; i < set->room; i++) {
		const struct word *w = &set->at[i];
		if (w->text)
			bigger.at[words_place(&bigger, w->text, w->n_bytes)] = *w;
	}
	free(set->at);
	*set = bigger;
}

static struct word *words_count(struct words *set, const void *text, size_t n_bytes)
{
	if (set->n * 2 >= set->room)
		words_grow(set);
	struct word *w = &set->at[words_place(set, text, n_bytes)];
	if (!w->text) {
		w->text = spr_cli_grow(NULL, n_bytes + 1);
		memcpy(w->text, text, n_bytes);
		w->text[n_bytes] = '\0';
		w->n_bytes = n_bytes;
		set->n++;
	}
	w->count++;
	return w;
}

static void words_fini(struct words *set)
{
	for (size_t i = 0; i < set->room; i++)
		free(set->at[i].text);
	free(set->at);
}

static int word_order(const void *a, const void *b)
{
	const struct word *l = a, *r = b;

	if (l->count != r->count)
		return l->count < r->count ? 1 : -1;
	return strcmp(l->text, r->text);
}

/* The words alone, most frequent first; no more can be counted afterwards. */
static void words_sort(struct words *set)
{
	size_t n = 0;

	for (size_t i = 0; i < set->room; i++) {
		struct word w = set->at[i];

		set->at[i] = (struct word){0};
		if (w.text)
			set->at[n++] = w;
	}
	if (n)
		qsort(set->at, n, sizeof(*set->at), word_order);
}

static size_t words_having(const struct words *set, uint32_t ways, uint32_t but)
{
	size_t n = 0;

	for (size_t i = 0; i < set->room; i++) {
		const struct word *w = &set->at[i];
		if (w->text && w->ways & ways && !(w->ways & but))
			n++;
	}
	return n;
}

struct spr_cli_summary *spr_cli_summary_open(void)
{
	struct spr_cli_summary *s = spr_cli_grow(NULL, sizeof(*s));

	memset(s, 0, sizeof(*s));
	return s;
}

void spr_cli_summary_close(struct spr_cli_summary *s)
{
	words_fini(&s->paths);
	words_fini(&s->folders);
	words_fini(&s->kinds);
	words_fini(&s->pids);
	free(s);
}

/* --- Adding ----------------------------------------------------------------------- */

static uint32_t ways_of(const struct spr_kind *kind, const struct spr_record *rec)
{
	static const struct {
		const char *label;
		uint32_t    way;
	} table[] = {
		{ "read", WAY_READ },      { "write", WAY_WRITTEN },  { "create", WAY_WRITTEN },
		{ "delete", WAY_WRITTEN }, { "rename", WAY_WRITTEN }, { "link", WAY_WRITTEN },
		{ "metadata", WAY_WRITTEN }, { "list", WAY_LISTED },  { "execute", WAY_RUN },
		{ "stat", WAY_PROBED },
	};
	const int at = spr_cli_field_find(kind, "access");
	struct spr_value value;
	uint32_t ways = 0;

	if (at < 0 || spr_cli_value(kind, rec, (uint32_t)at, &value) < 0 || !value.present)
		return 0;
	const struct spr_field *field = &kind->fields[at];
	for (uint32_t bit = 0; bit < field->n_labels && bit < 64; bit++) {
		if (!(value.number >> bit & 1))
			continue;
		for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
			if (!strcmp(field->labels[bit], table[i].label))
				ways |= table[i].way;
		}
	}
	return ways;
}

static void add_path(struct spr_cli_summary *s, const struct spr_kind *kind,
                     const struct spr_record *rec, const char *name, int error)
{
	struct spr_value path;

	if (!spr_cli_field(kind, rec, name, &path))
		return;
	const uint32_t ways = ways_of(kind, rec);
	/* A failed open is a question that was answered with no. */
	words_count(&s->paths, path.bytes, path.n)->ways |= error ? WAY_PROBED | WAY_MISSING : ways;
	if (error)
		return;
	const char *slash = path.n ? memrchr(path.bytes, '/', path.n) : NULL;
	if (slash) {
		const size_t n = (size_t)(slash - (const char *)path.bytes);
		words_count(&s->folders, path.bytes, n ? n : 1);
	}
}

static void add_kind(struct spr_cli_summary *s, const struct spr_kind *kind,
                     const struct spr_record *rec)
{
	const int op = spr_cli_field_find(kind, "op");
	struct spr_value value;
	const char *label = NULL;
	char name[160];

	if (op >= 0 && spr_cli_value(kind, rec, (uint32_t)op, &value) >= 0)
		label = spr_cli_label(&kind->fields[op], &value);
	const int n = snprintf(name, sizeof(name), "%s%s%s", kind->name, label ? " " : "",
	                       label ? label : "");
	words_count(&s->kinds, name, (size_t)n < sizeof(name) ? (size_t)n : sizeof(name) - 1);
}

void spr_cli_summary_add(struct spr_cli_summary *s, const struct spr_kind *kind,
                         const struct spr_record *rec, int error)
{
	const int64_t pid = spr_cli_record_pid(kind, rec);

	if (rec->kind != SPR_KIND_BLIND) {
		s->n_records++;
		s->n_bytes += rec->bytes;
		if (pid > 0)
			words_count(&s->pids, &pid, sizeof(pid));
		if (rec->time_ns && (!s->first_ns || rec->time_ns < s->first_ns))
			s->first_ns = rec->time_ns;
		if (rec->time_ns > s->last_ns)
			s->last_ns = rec->time_ns;
	}
	add_kind(s, kind, rec);
	add_path(s, kind, rec, "path", error);
	add_path(s, kind, rec, "path2", error);
}

/* --- Saying ----------------------------------------------------------------------- */

/* A path counts once in each of these; in "probed" only if nothing else was done with it. */
static const struct {
	const char *name, *text;
	uint32_t    ways, but;
} paths_rows[] = {
	{ "read", "read", WAY_READ, 0 },
	{ "written", "written, made, moved, removed or changed", WAY_WRITTEN, 0 },
	{ "listed", "listed", WAY_LISTED, 0 },
	{ "executed", "executed", WAY_RUN, 0 },
	{ "probed", "only asked about", WAY_PROBED, WAY_READ | WAY_WRITTEN | WAY_LISTED | WAY_RUN },
	{ "missing", "asked for and not there or refused", WAY_MISSING, 0 },
};
#define N_PATHS_ROWS (sizeof(paths_rows) / sizeof(paths_rows[0]))

static void text_words(struct words *set, FILE *out, size_t most)
{
	words_sort(set);
	for (size_t i = 0; i < set->n && i < most; i++)
		fprintf(out, "  %9" PRIu64 "  %s\n", set->at[i].count,
		        spr_cli_shown_bytes(set->at[i].text, set->at[i].n_bytes));
}

void spr_cli_summary_text(struct spr_cli_summary *s, uint64_t n_read, FILE *out)
{
	fprintf(out,
	        "records      %" PRIu64 " in the file, %" PRIu64 " calls and events shown here\n",
	        n_read, s->n_records);
	fprintf(out, "processes    %zu\n", s->pids.n);
	fprintf(out, "time         %.6f s\n", (double)(s->last_ns - s->first_ns) / 1e9);
	fprintf(out, "\npaths        %zu distinct\n", s->paths.n);
	for (size_t i = 0; i < N_PATHS_ROWS; i++) {
		const size_t n = words_having(&s->paths, paths_rows[i].ways, paths_rows[i].but);
		if (n)
			fprintf(out, "  %9zu  %s\n", n, paths_rows[i].text);
	}
	fputs("\ncalls        by kind\n", out);
	text_words(&s->kinds, out, SIZE_MAX);
	if (s->folders.n) {
		fputs("\nfolders      by number of calls that did not fail\n", out);
		text_words(&s->folders, out, N_TOP);
	}
	fputc('\n', out);
}

static void json_words(struct words *set, struct spr_cli_json *j, const char *key, size_t most)
{
	words_sort(set);
	spr_cli_json_open(j, key, '[');
	for (size_t i = 0; i < set->n && i < most; i++) {
		spr_cli_json_open(j, NULL, '{');
		spr_cli_json_bytes(j, "name", set->at[i].text, set->at[i].n_bytes);
		spr_cli_json_number(j, "count", set->at[i].count);
		spr_cli_json_close(j, '}');
	}
	spr_cli_json_close(j, ']');
}

void spr_cli_summary_json(struct spr_cli_summary *s, uint64_t n_read, struct spr_cli_json *j)
{
	spr_cli_json_number(j, "records", n_read);
	spr_cli_json_number(j, "shown", s->n_records);
	spr_cli_json_number(j, "bytes", s->n_bytes);
	spr_cli_json_number(j, "processes", s->pids.n);
	spr_cli_json_number(j, "first_ns", s->first_ns);
	spr_cli_json_number(j, "last_ns", s->last_ns);
	spr_cli_json_open(j, "paths", '{');
	spr_cli_json_number(j, "distinct", s->paths.n);
	for (size_t i = 0; i < N_PATHS_ROWS; i++)
		spr_cli_json_number(j, paths_rows[i].name,
		                    words_having(&s->paths, paths_rows[i].ways, paths_rows[i].but));
	spr_cli_json_close(j, '}');
	json_words(&s->kinds, j, "calls", SIZE_MAX);
	json_words(&s->folders, j, "folders", N_TOP);
}
