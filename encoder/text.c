/* SPDX-License-Identifier: MIT */
/*
 * text.c - texts to a column. Paths repeat, and a new one mostly begins as the one before it:
 * finding both here is cheaper than letting zstd find them, and leaves it less to search.
 */
#include "encoder/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOTS_FIRST 256u

struct entry {
	const uint8_t *bytes;
	uint32_t       n, hash;
};

struct spr_text {
	bool           with_entries;
	uint32_t       n;       /* texts */
	struct spr_vec numbers; /* uint32_t: lengths, or entry + 1, 0 where a new one begins */
	struct spr_vec bytes;   /* all of them, or what is new in each entry */
	struct spr_vec prefixes, suffixes; /* uint16_t for each entry */
	struct entry  *entries;
	uint32_t       n_entries, room;
	uint64_t       n_bytes_entries;
	uint32_t      *slots; /* entry + 1 */
	uint32_t       n_slots;
	uint64_t       seed; /* targets choose texts: they must not choose collisions */
	struct spr_vec scratch;
};

struct spr_text *spr_text_open(bool with_entries)
{
	struct spr_text *t = calloc(1, sizeof(*t));
	struct timespec now;

	if (!t)
		return NULL;
	clock_gettime(CLOCK_MONOTONIC, &now);
	t->seed = ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uintptr_t)t) *
	          0x9E3779B97F4A7C15ull;
	t->with_entries = with_entries;
	return t;
}

void spr_text_close(struct spr_text *t)
{
	if (!t)
		return;
	spr_vec_release(&t->numbers);
	spr_vec_release(&t->bytes);
	spr_vec_release(&t->prefixes);
	spr_vec_release(&t->suffixes);
	spr_vec_release(&t->scratch);
	free(t->entries);
	free(t->slots);
	free(t);
}

void spr_text_begin(struct spr_text *t)
{
	t->n = t->n_entries = 0;
	t->n_bytes_entries = 0;
	t->numbers.n = t->bytes.n = t->prefixes.n = t->suffixes.n = 0;
	if (t->slots)
		memset(t->slots, 0, t->n_slots * sizeof(*t->slots));
}

/* --- Entries ---------------------------------------------------------------------------------- */

static inline uint64_t fold(uint64_t a, uint64_t b)
{
	const unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t text_hash(uint64_t seed, const uint8_t *bytes, uint32_t n)
{
	uint64_t h = seed ^ n, tail = 0;

	for (; n >= 8; n -= 8, bytes += 8)
		h = fold(h ^ spr_get64(bytes), 0xA0761D6478BD642Full);
	memcpy(&tail, bytes, n);
	h = fold(h ^ tail, 0xE7037ED1A0B428DBull ^ seed);
	return (uint32_t)(h ^ h >> 32);
}

static bool slots_grow(struct spr_text *t)
{
	const uint32_t n_slots = t->n_slots ? 2 * t->n_slots : SLOTS_FIRST;
	uint32_t *slots;

	if (2 * t->n_entries < t->n_slots)
		return true;
	slots = calloc(n_slots, sizeof(*slots));
	if (!slots)
		return false;
	for (uint32_t i = 0; i < t->n_entries; i++) {
		uint32_t at = t->entries[i].hash & (n_slots - 1);

		while (slots[at])
			at = (at + 1) & (n_slots - 1);
		slots[at] = i + 1;
	}
	free(t->slots);
	t->slots = slots;
	t->n_slots = n_slots;
	return true;
}

static uint32_t prefix_common(const struct entry *a, const uint8_t *bytes, uint32_t n)
{
	const uint32_t most = a->n < n ? a->n : n;
	uint32_t i = 0;

	while (i + 8 <= most) {
		const uint64_t differ = spr_get64(a->bytes + i) ^ spr_get64(bytes + i);

		if (differ)
			return i + (uint32_t)__builtin_ctzll(differ) / 8;
		i += 8;
	}
	while (i < most && a->bytes[i] == bytes[i])
		i++;
	return i;
}

static bool entry_add(struct spr_text *t, const struct entry *e)
{
	uint16_t prefix = 0, suffix;

	if (t->n_entries == t->room) {
		const uint32_t room = t->room ? 2 * t->room : SLOTS_FIRST;
		struct entry *entries = realloc(t->entries, room * sizeof(*entries));

		if (!entries)
			return false;
		t->entries = entries;
		t->room = room;
	}
	if (t->n_entries)
		prefix = (uint16_t)prefix_common(&t->entries[t->n_entries - 1], e->bytes, e->n);
	suffix = (uint16_t)(e->n - prefix);
	t->entries[t->n_entries++] = *e;
	t->n_bytes_entries += e->n;
	return spr_vec_put(&t->prefixes, &prefix, 2) && spr_vec_put(&t->suffixes, &suffix, 2) &&
	       spr_vec_put(&t->bytes, e->bytes + prefix, suffix);
}

static bool entry_put(struct spr_text *t, const uint8_t *bytes, uint32_t n)
{
	const struct entry e = { bytes, n, text_hash(t->seed, bytes, n) };
	uint32_t at, number = 0;

	if (!slots_grow(t))
		return false;
	at = e.hash & (t->n_slots - 1);
	while (t->slots[at]) {
		const struct entry *other = &t->entries[t->slots[at] - 1];

		if (other->hash == e.hash && other->n == n && !memcmp(other->bytes, bytes, n))
			break;
		at = (at + 1) & (t->n_slots - 1);
	}
	if (t->slots[at]) {
		number = t->slots[at];
	} else {
		if (!entry_add(t, &e))
			return false;
		t->slots[at] = t->n_entries;
	}
	t->n++;
	return spr_vec_put(&t->numbers, &number, sizeof(number));
}

bool spr_text_put(struct spr_text *t, const uint8_t *bytes, uint32_t n)
{
	if (t->with_entries)
		return entry_put(t, bytes, n);
	t->n++;
	return spr_vec_put(&t->numbers, &n, sizeof(n)) && spr_vec_put(&t->bytes, bytes, n);
}

/* --- The column ------------------------------------------------------------------------------- */

static bool narrow_put(struct spr_text *t, struct spr_vec *out, uint32_t width)
{
	struct spr_ints ints = { .values = t->numbers.bytes, .n = t->n, .width = width };

	if (width != 4) {
		t->scratch.n = 0;
		if (!spr_vec_reserve(&t->scratch, (size_t)t->n * width))
			return false;
		for (uint32_t i = 0; i < t->n; i++)
			memcpy(t->scratch.bytes + (size_t)i * width, t->numbers.bytes + 4ull * i,
			       width);
		ints.values = t->scratch.bytes;
	}
	return spr_column_ints_put(out, &ints);
}

static bool entries_put(struct spr_text *t, struct spr_vec *out)
{
	const struct spr_ints prefixes = { .values = t->prefixes.bytes,
		                           .n = t->n_entries,
		                           .width = 2 };
	const struct spr_ints suffixes = { .values = t->suffixes.bytes,
		                           .n = t->n_entries,
		                           .width = 2 };
	const uint32_t n_bytes = (uint32_t)t->n_bytes_entries;

	return spr_vec_put(out, &t->n_entries, 4) && spr_vec_put(out, &n_bytes, 4) &&
	       narrow_put(t, out, t->n_entries < 0x100 ? 1 : t->n_entries < 0x10000 ? 2 : 4) &&
	       spr_column_ints_put(out, &prefixes) && spr_column_ints_put(out, &suffixes);
}

bool spr_text_column_put(struct spr_text *t, struct spr_vec *out)
{
	uint8_t head[SPR_COLUMN_HEAD_BYTES] = { SPR_CODEC_TEXT };
	const size_t at = out->n;

	if (t->with_entries)
		head[0] = SPR_CODEC_TEXT_DICT;
	spr_put32(head + 4, t->n);
	if (!spr_vec_put(out, head, sizeof(head)))
		return false;
	if (t->with_entries ? !entries_put(t, out) : !narrow_put(t, out, 4))
		return false;
	if (!spr_vec_put(out, t->bytes.bytes, t->bytes.n))
		return false;
	spr_put32(out->bytes + at + 8, (uint32_t)(out->n - at - SPR_COLUMN_HEAD_BYTES));
	return true;
}
