/* SPDX-License-Identifier: MIT */
/*
 * window.c - the merge. A stable merge of ascending stretches: a writer's records ascend, so what
 * has been put is a few long stretches, and records that are in order already cost one comparison.
 */
#include "encoder/window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLOORS_FIRST 256u
#define FLOORS_PURGE 8192u

struct spr_floor {
	uint64_t writer, key;
	bool     used;
};

void spr_window_close(struct spr_window *w)
{
	free(w->items);
	free(w->scratch);
	free(w->starts);
	free(w->floors);
}

static bool array_grow(void *array, size_t *room, size_t n, size_t size)
{
	void **const at = array;
	size_t bigger = *room ? *room : 4096;
	void *grown;

	if (n <= *room)
		return true;
	while (bigger < n)
		bigger += bigger / 2;
	grown = realloc(*at, bigger * size);
	if (!grown)
		return false;
	*at = grown;
	*room = bigger;
	return true;
}

/* --- Floors: a writer's own order is kept even where its stamps go back ----------------------- */

static size_t floor_slot(const struct spr_floor *floors, size_t room, uint64_t writer)
{
	size_t at = (size_t)(writer * 0x9E3779B97F4A7C15ull >> 32) & (room - 1);

	while (floors[at].used && floors[at].writer != writer)
		at = (at + 1) & (room - 1);
	return at;
}

static bool floors_grow(struct spr_window *w)
{
	const size_t room = w->floors_room ? 2 * w->floors_room : FLOORS_FIRST;
	struct spr_floor *floors;

	if (2 * w->n_floors < w->floors_room)
		return true;
	floors = calloc(room, sizeof(*floors));
	if (!floors)
		return false;
	for (size_t i = 0; i < w->floors_room; i++) {
		if (w->floors[i].used)
			floors[floor_slot(floors, room, w->floors[i].writer)] = w->floors[i];
	}
	free(w->floors);
	w->floors = floors;
	w->floors_room = room;
	return true;
}

/* The writer's floor, valid until the next call; NULL: no memory. */
static struct spr_floor *floor_of(struct spr_window *w, uint64_t writer)
{
	struct spr_floor *f;

	if (!floors_grow(w))
		return NULL;
	f = &w->floors[floor_slot(w->floors, w->floors_room, writer)];
	if (!f->used) {
		*f = (struct spr_floor){ writer, 0, true };
		w->n_floors++;
	}
	return f;
}

/* Forget writers whose last record has been cut: no record of the window can come before it. */
static void floors_purge(struct spr_window *w, uint64_t key)
{
	struct spr_floor *const floors = w->floors;
	const size_t room = w->floors_room;

	if (w->n_floors < FLOORS_PURGE)
		return;
	w->floors = NULL;
	w->floors_room = w->n_floors = 0;
	for (size_t i = 0; i < room; i++) {
		struct spr_floor *f;

		if (!floors[i].used || floors[i].key <= key)
			continue;
		f = floor_of(w, floors[i].writer);
		if (f)
			f->key = floors[i].key;
	}
	free(floors);
}

/* --- Items ------------------------------------------------------------------------------------ */

static int run_append(struct spr_window *w, const struct spr_run *run)
{
	struct spr_window_item *item = w->items + w->n;
	struct spr_floor *floor = NULL;
	struct spr_rec *rec = run->first;
	uint64_t writer = 0;

	for (uint32_t i = 0; i < run->n; i++, rec = spr_rec_after(rec), item++) {
		if (!w->given_order && (!floor || (run->mixed && rec->who->writer != writer))) {
			writer = rec->who->writer;
			floor = floor_of(w, writer);
			if (!floor)
				return -ENOMEM;
		}
		if (floor) {
			if (rec->time_ns > floor->key)
				floor->key = rec->time_ns;
			item->key = floor->key;
		} else {
			item->key = 0;
		}
		item->rec = rec;
	}
	w->n += run->n;
	return 0;
}

static int runs_append(struct spr_window *w)
{
	const size_t n = w->n - w->at;

	if (w->at) {
		memmove(w->items, w->items + w->at, n * sizeof(*w->items));
		w->at = 0;
		w->n = n;
	}
	if (!array_grow(&w->items, &w->room, n + w->n_new, sizeof(*w->items)))
		return -ENOMEM;
	for (; w->runs; w->runs = w->runs->next) {
		const int err = run_append(w, w->runs);

		if (err)
			return err;
	}
	w->runs_last = NULL;
	w->n_new = 0;
	return 0;
}

/* --- Merging ---------------------------------------------------------------------------------- */

/* The first item of [items, items + n) whose key is greater (or_equal: not less) than key. */
static size_t item_above(const struct spr_window_item *items, size_t n, uint64_t key, bool or_equal)
{
	size_t low = 0;

	while (low < n) {
		const size_t middle = low + (n - low) / 2;

		if (items[middle].key < key || (!or_equal && items[middle].key == key))
			low = middle + 1;
		else
			n = middle;
	}
	return low;
}

/* [items, items + n_a) and the n_b behind it, both ascending; what is in place already stays. */
static int pair_merge(struct spr_window *w, struct spr_window_item *items, size_t n_a, size_t n_b)
{
	const size_t skip = item_above(items, n_a, items[n_a].key, false);
	const struct spr_window_item *b = items + n_a, *a;
	const struct spr_window_item *const b_end = b +
	                                            item_above(b, n_b, items[n_a - 1].key, true);
	const struct spr_window_item *a_end;

	if (skip == n_a)
		return 0;
	items += skip;
	n_a -= skip;
	if (!array_grow(&w->scratch, &w->scratch_room, n_a, sizeof(*w->scratch)))
		return -ENOMEM;
	memcpy(w->scratch, items, n_a * sizeof(*items));
	a = w->scratch;
	a_end = a + n_a;
	while (a < a_end && b < b_end)
		*items++ = a->key <= b->key ? *a++ : *b++;
	memcpy(items, a, (size_t)(a_end - a) * sizeof(*items));
	return 0;
}

static int starts_find(struct spr_window *w, size_t *n_starts)
{
	size_t n = 0;

	for (size_t i = w->at; i < w->n; i++) {
		if (i > w->at && w->items[i].key >= w->items[i - 1].key)
			continue;
		if (!array_grow(&w->starts, &w->starts_room, n + 2, sizeof(*w->starts)))
			return -ENOMEM;
		w->starts[n++] = i;
	}
	if (n)
		w->starts[n] = w->n;
	*n_starts = n;
	return 0;
}

int spr_window_merge(struct spr_window *w)
{
	size_t n_starts;
	int err;

	if (!w->n_new)
		return 0;
	err = runs_append(w);
	if (err || w->given_order)
		return err;
	err = starts_find(w, &n_starts);
	while (!err && n_starts > 1) {
		size_t out = 0;

		for (size_t i = 0; i < n_starts && !err; i += 2) {
			const size_t from = w->starts[i];

			if (i + 1 < n_starts)
				err = pair_merge(w, w->items + from, w->starts[i + 1] - from,
				                 w->starts[i + 2] - w->starts[i + 1]);
			w->starts[out++] = from;
		}
		w->starts[out] = w->n;
		n_starts = out;
	}
	return err;
}

/* --- Deciding --------------------------------------------------------------------------------- */

static int cut_begin(struct spr_window *w, enum spr_cut cut, uint64_t until_ns)
{
	const int err = spr_window_merge(w);

	if (err)
		return err;
	w->cut = cut;
	w->limit = w->n;
	if (cut == SPR_CUT_TICK && !w->given_order)
		w->limit = w->at + item_above(w->items + w->at, w->n - w->at, until_ns, true);
	return 0;
}

int spr_window_add(struct spr_window *w, struct spr_run *run)
{
	const uint64_t frame = w->given_order ? 1 : 2; /* frames' worth to wait for */

	run->next = NULL;
	if (w->runs_last)
		w->runs_last->next = run;
	else
		w->runs = run;
	w->runs_last = run;
	w->n_new += run->n;
	w->n_bytes += run->n_bytes;
	if (!run->ends_put || (spr_window_records(w) < frame * w->frame_records &&
	                       w->n_bytes < frame * w->frame_bytes))
		return 0;
	return cut_begin(w, SPR_CUT_FULL, 0);
}

int spr_window_tick(struct spr_window *w, uint64_t until_ns)
{
	const bool due = w->sure_n >= w->frame_records || w->sure_bytes >= w->frame_bytes;
	int err = 0;

	if (due && spr_window_records(w) >= w->retry_n) {
		w->retry_n = spr_window_records(w) + w->frame_records / 4;
		err = cut_begin(w, SPR_CUT_TICK, until_ns);
	}
	w->sure_n = spr_window_records(w);
	w->sure_bytes = w->n_bytes;
	return err;
}

int spr_window_flush(struct spr_window *w)
{
	return cut_begin(w, SPR_CUT_ALL, 0);
}

/* Without a tick one frame's worth stays, for what may still come before it. */
static bool may_cut(const struct spr_window *w, bool frame_is_whole)
{
	if (w->cut == SPR_CUT_FULL && !w->given_order)
		return frame_is_whole && (w->n - w->at >= 2ull * w->frame_records ||
		                          w->n_bytes >= 2ull * w->frame_bytes);
	return frame_is_whole || w->cut == SPR_CUT_ALL;
}

/* Of [at, limit): how many make a frame, how many bytes they have; is it a whole one? */
static uint32_t frame_measure(const struct spr_window *w, uint64_t *n_bytes, bool *is_whole)
{
	const size_t most = w->limit - w->at;
	uint32_t n = 0;

	*n_bytes = 0;
	while (n < most && n < w->frame_records) {
		const uint64_t with_next = *n_bytes + w->items[w->at + n].rec->bytes;

		if (n && with_next > w->frame_bytes)
			break;
		*n_bytes = with_next;
		n++;
	}
	*is_whole = n == w->frame_records || n < most || *n_bytes >= w->frame_bytes;
	return n;
}

uint32_t spr_window_next(struct spr_window *w, const struct spr_window_item **items,
                         uint64_t *n_bytes)
{
	bool is_whole;
	uint32_t n;

	if (w->cut == SPR_CUT_NONE)
		return 0;
	n = frame_measure(w, n_bytes, &is_whole);
	if (!n || !may_cut(w, is_whole)) {
		w->cut = SPR_CUT_NONE;
		if (w->at)
			floors_purge(w, w->at < w->n ? w->items[w->at].key : UINT64_MAX);
		return 0;
	}
	*items = w->items + w->at;
	w->at += n;
	w->n_bytes -= *n_bytes;
	w->sure_n -= w->sure_n < n ? w->sure_n : n;
	w->sure_bytes -= w->sure_bytes < *n_bytes ? w->sure_bytes : *n_bytes;
	w->retry_n = 0;
	return n;
}
