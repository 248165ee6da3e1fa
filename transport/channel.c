/* SPDX-License-Identifier: MIT */
/*
 * channel.c - the public channel and batch: find the scheme, check the options, hand on.
 */
#include "transport/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/kinds.h"
#include "base/options.h"
#include "base/probe.h"

#define STALL_MS_DEFAULT 1000u
#define DRAIN_MS_DEFAULT 1000u
#define RECORD_BYTES_MAX 65536u

/* The one line a new transport adds. */
static const struct spr_transport *const transports[] = {
	&spr_transport_ring,
};

static const struct spr_transport *transport_find(const char *address, const char **rest)
{
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++) {
		const size_t n = strlen(transports[i]->scheme);

		if (strncmp(address, transports[i]->scheme, n) == 0) {
			*rest = address + n;
			return transports[i];
		}
	}
	return NULL;
}

int spr_transport_address_set(spr_channel *ch, const char *rest)
{
	const size_t room = strlen(ch->ops->scheme) + strlen(rest) + 1;

	ch->address = malloc(room);
	if (!ch->address)
		return -ENOMEM;
	snprintf(ch->address, room, "%s%s", ch->ops->scheme, rest);
	return 0;
}

static int options_check(struct spr_channel_options *opt, const struct spr_channel_options *theirs)
{
	const int err = spr_options_read(opt, sizeof(*opt), theirs);

	if (err)
		return spr_fail(
			err,
			err == -E2BIG
				? "the channel's options have a field this library does not know"
				: "the channel's options have no size: start from "
				  "SPR_CHANNEL_OPTIONS_INIT");
	if (opt->flags & ~(SPR_UNSTAMPED | SPR_DROP | SPR_GUARD))
		return spr_fail(-EINVAL, "channel flags %#x: unknown bits", opt->flags);
	if (opt->record_bytes_max > RECORD_BYTES_MAX)
		return spr_fail(-EINVAL, "records of %u bytes: the most is %u",
		                opt->record_bytes_max, RECORD_BYTES_MAX);
	if (!opt->record_bytes_max)
		opt->record_bytes_max = RECORD_BYTES_MAX;
	if (!opt->stall_ms)
		opt->stall_ms = STALL_MS_DEFAULT;
	if (!opt->drain_ms)
		opt->drain_ms = DRAIN_MS_DEFAULT;
	if (opt->n_kinds && !opt->kinds)
		return spr_fail(-EINVAL, "%u kinds announced, none given", opt->n_kinds);
	return spr_kinds_check(opt->kinds, opt->n_kinds);
}

/* A deep copy: the caller's declaration may be gone tomorrow. One block; free(). */
static int kinds_copy(struct spr_channel_options *opt)
{
	const size_t n = spr_kinds_encode(NULL, 0, opt->kinds, opt->n_kinds);
	void *bytes = malloc(n ? n : 1);
	struct spr_kind *copy = NULL;
	int err = -ENOMEM;

	if (bytes) {
		spr_kinds_encode(bytes, n, opt->kinds, opt->n_kinds);
		err = spr_kinds_decode(&copy, &opt->n_kinds, bytes, n);
		free(bytes);
	}
	opt->kinds = copy;
	return err;
}

int spr_channel_open(spr_channel **out, const char *address, const struct spr_channel_options *opt)
{
	const struct spr_transport *ops;
	struct spr_channel_options mine;
	const char *rest;
	int err;

	spr_fail_clear();
	if (!out || !address)
		return spr_fail(-EINVAL, "no address for a channel");
	err = options_check(&mine, opt);
	if (err)
		return err;
	ops = transport_find(address, &rest);
	if (!ops)
		return spr_fail(-ENOTSUP, "%.100s: no such transport in this library", address);
	err = kinds_copy(&mine);
	if (err)
		return spr_fail(err, "the kinds cannot be copied");
	err = ops->open(out, rest, &mine);
	if (err)
		free((void *)(uintptr_t)mine.kinds);
	return err;
}

const char *spr_channel_address(const spr_channel *ch)
{
	return ch->address;
}

const struct spr_kind *spr_channel_kinds(const spr_channel *ch, uint32_t *n)
{
	if (n)
		*n = ch->opt.n_kinds;
	return ch->opt.kinds;
}

int spr_channel_recover(spr_channel **out, const char *folder)
{
	spr_fail_clear();
	if (!out || !folder)
		return spr_fail(-EINVAL, "no folder to recover from");
	return spr_transport_ring.recover(out, folder);
}

int spr_channel_bpf_map_fd(const spr_channel *ch)
{
	return ch->ops->map_fd(ch);
}

int spr_channel_seal(spr_channel *ch)
{
	return ch->ops->seal(ch);
}

int spr_channel_walk(spr_channel *ch, spr_batch **batch)
{
	return batch ? ch->ops->walk(ch, batch) : -EINVAL;
}

int spr_channel_close(spr_channel *ch)
{
	struct spr_channel_options opt;
	char *address;
	int err;

	if (!ch)
		return 0;
	if (ch->bell)
		return spr_fail(-EBUSY, "%s: a collector owns it: close that first", ch->address);
	opt = ch->opt;
	address = ch->address;
	err = ch->ops->close(ch);
	if (err)
		return err;
	free((void *)(uintptr_t)opt.kinds);
	free(address);
	free(ch);
	return 0;
}

int spr_channel_stats(const spr_channel *ch, struct spr_stats *out)
{
	struct spr_stats mine = SPR_STATS_INIT;

	if (!out)
		return -EINVAL;
	ch->ops->stats(ch, &mine);
	return spr_options_write(out, &mine, sizeof(mine));
}

int spr_channel_verdict(const spr_channel *ch, struct spr_verdict *out)
{
	struct spr_verdict mine = SPR_VERDICT_INIT;

	if (!out)
		return -EINVAL;
	ch->ops->verdict(ch, &mine);
	return spr_options_write(out, &mine, sizeof(mine));
}

/* --- Batches
 * ------------------------------------------------------------------------------------------ */

int spr_batch_next(spr_batch *b, struct spr_record *rec)
{
	const int ret = b->next(b, rec);

	if (ret > 0 && rec->time_ns && rec->time_ns < b->late_ns)
		rec->flags |= SPR_LATE;
	return ret;
}

void spr_batch_rewind(spr_batch *b)
{
	b->rewind(b);
}

const spr_channel *spr_batch_channel(const spr_batch *b)
{
	return b->channel;
}

void spr_batch_release(spr_batch *b)
{
	if (b)
		b->release(b);
}
