/* SPDX-License-Identifier: MIT */
/* join.c - a bounded look-ahead that puts a call and its failure together. */
#include "cli/join.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/value.h"

#define AHEAD   4096u /* records; a power of two */
#define CHAINS  8192u
#define NOWHERE UINT32_MAX

struct ahead {
	struct spr_record rec; /* rec.data is data */
	void             *data;
	size_t            room_bytes;
	int               error;
	uint32_t          older; /* of the same chain */
};

struct spr_cli_join {
	struct spr_cli_input *in;
	bool                  apart;
	uint64_t              n_pushed, n_popped; /* their difference is what waits */
	struct ahead          ahead[AHEAD];
	uint32_t              chains[CHAINS]; /* the newest that waits, by writer and time */
};

struct spr_cli_join *spr_cli_join_open(struct spr_cli_input *in, bool apart)
{
	struct spr_cli_join *join = spr_cli_grow(NULL, sizeof(*join));

	memset(join, 0, sizeof(*join));
	memset(join->chains, 0xff, sizeof(join->chains));
	join->in = in;
	join->apart = apart;
	return join;
}

void spr_cli_join_close(struct spr_cli_join *join)
{
	if (!join)
		return;
	for (uint32_t i = 0; i < AHEAD; i++)
		free(join->ahead[i].data);
	free(join);
}

static uint32_t *chain_of(struct spr_cli_join *join, uint64_t writer, uint64_t time_ns)
{
	const uint64_t mixed = (writer * 0x9e3779b97f4a7c15u) ^ (time_ns * 0xc2b2ae3d27d4eb4fu);

	return &join->chains[(mixed >> 40) % CHAINS];
}

static void join_push(struct spr_cli_join *join, const struct spr_record *rec)
{
	const uint32_t at = (uint32_t)(join->n_pushed++ % AHEAD);
	struct ahead *a = &join->ahead[at];
	uint32_t *chain = chain_of(join, rec->writer, rec->time_ns);

	if (a->room_bytes < rec->bytes || !a->data) {
		a->room_bytes = rec->bytes + 64;
		a->data = spr_cli_grow(a->data, a->room_bytes);
	}
	if (rec->bytes)
		memcpy(a->data, rec->data, rec->bytes);
	a->rec = *rec;
	a->rec.data = a->data;
	a->error = 0;
	a->older = *chain;
	*chain = at;
}

static struct ahead *join_pop(struct spr_cli_join *join)
{
	const uint32_t at = (uint32_t)(join->n_popped++ % AHEAD);
	struct ahead *a = &join->ahead[at];
	uint32_t *link = chain_of(join, a->rec.writer, a->rec.time_ns);

	while (*link != at)
		link = &join->ahead[*link].older;
	*link = a->older;
	return a;
}

/* Is it a result whose record still waits? Then that knows its error now. */
static bool join_settle(struct spr_cli_join *join, const struct spr_record *rec)
{
	const struct spr_kind *kind = spr_cli_input_kind(join->in, rec->kind);
	struct spr_value of_ns, error;

	if (strcmp(kind->name, "result") || !spr_cli_field(kind, rec, "of_ns", &of_ns) ||
	    !spr_cli_field(kind, rec, "error", &error))
		return false;
	uint32_t at = *chain_of(join, rec->writer, of_ns.number);
	bool found = false;
	for (; at != NOWHERE; at = join->ahead[at].older) {
		struct ahead *a = &join->ahead[at];
		if (a->rec.writer == rec->writer && a->rec.time_ns == of_ns.number) {
			a->error = (int)error.number; /* an exec has two records of one stamp */
			found = true;
		}
	}
	return found;
}

int spr_cli_join_next(struct spr_cli_join *join, struct spr_record *rec, int *error)
{
	struct spr_record next;

	while (join->n_pushed - join->n_popped < AHEAD) {
		if (spr_cli_input_next(join->in, &next) <= 0)
			break;
		if (join->apart || !join_settle(join, &next))
			join_push(join, &next);
	}
	if (join->n_pushed == join->n_popped)
		return 0;
	const struct ahead *a = join_pop(join);
	*rec = a->rec;
	*error = a->error;
	return 1;
}
