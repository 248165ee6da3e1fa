/* SPDX-License-Identifier: MIT */
/*
 * ring_collector.c - a ring whose every byte may change under its collector's eyes.
 *
 * Real writers write, a hand scribbles between and inside the calls, and the collector's side goes
 * on: drain (in place, or read from the file), keep, release, arm, tend, seal, walk, count, close,
 * recover. It must not crash, hang, or hand out a byte that is not a segment's. As long as the hand
 * has not written, the sums must be exact, whatever the order of the calls.
 */
#include <errno.h>
#include <stdio.h>

#include <sparring/sparring.h>

#include "tests/fuzz/ring_hostile.h"
#include "transport/transport.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n);

#define KEPT_MAX 32

static spr_channel *channel;
static spr_producer *producer;
static spr_writer *writer;
static spr_batch *kept[KEPT_MAX];
static unsigned n_kept;
static uint64_t n_put, n_written, n_lost, n_refused;
static bool bound, sealed, put_failed;

/* --- The collector's part of the contract --------------------------------------------------- */

static void bell_wake(void *arg)
{
	(void)arg;
}

static int bell_watch(void *arg, spr_channel *ch, int fd, uint32_t events, uint64_t cookie)
{
	(void)arg, (void)ch, (void)fd, (void)events, (void)cookie;
	return 0;
}

static void bell_unwatch(void *arg, spr_channel *ch, int fd, uint64_t cookie)
{
	(void)arg, (void)ch, (void)fd, (void)cookie;
}

static int64_t bell_read(void *arg, int fd, void *buf, size_t n, uint64_t at)
{
	const ssize_t got = pread(fd, buf, n, (off_t)at);

	(void)arg;
	moment();
	return got < 0 ? -errno : got;
}

static struct spr_bell bell = { NULL, bell_wake, bell_watch, bell_unwatch, bell_read, 0 };

/* Every byte of every record lies in one segment of the mapping (or in a copy of it). */
static void batch_look(spr_batch *b, bool in_place)
{
	struct spr_record rec;
	volatile uint8_t sum = 0;
	uint64_t records = 0;
	int ret;

	while ((ret = spr_batch_next(b, &rec)) > 0) {
		const uint8_t *data = rec.data;

		MUST(rec.bytes <= SPR_RECORD_BYTES_MAX);
		if (in_place) {
			const struct mapping *m = mapping_of(data);
			const struct spr_ring_geometry *g = &hand_geometry;
			uint64_t at;
			uint32_t c = 0;

			MUST(m);
			at = (uint64_t)(data - m->at);
			while (c + 1 < SPR_RING_CLASSES && at >= g->seg_at[c + 1])
				c++;
			MUST(at >= g->seg_at[c]);
			at = (at - g->seg_at[c]) % spr_ring_class_bytes(c);
			/* A record without bytes may end where its segment does. */
			MUST(at + rec.bytes <= spr_ring_class_bytes(c));
		}
		for (uint32_t i = 0; i < rec.bytes; i++)
			sum = (uint8_t)(sum + data[i]);
		records++;
		MUST(records < 1u << 16);
	}
	MUST(ret == 0 || (ret == -EPROTO && n_scribbles));
	MUST(n_scribbles || records == b->n_records);
	spr_batch_rewind(b);
}

static int sink_put(void *arg, spr_batch *b)
{
	const uint8_t answer = take();

	(void)arg;
	moment();
	batch_look(b, !(bell.flags & SPR_READ));
	if (answer == 255)
		return -EAGAIN;
	if (answer == 254) {
		put_failed = true;
		return -EIO;
	}
	n_put += b->n_records;
	if ((answer & 3) == 3 && n_kept < KEPT_MAX) {
		kept[n_kept++] = b;
		return 1;
	}
	return 0;
}

static int sink_gone(void *arg, uint64_t id, uint64_t written, uint64_t lost)
{
	(void)arg, (void)id;
	MUST(n_scribbles || lost <= written);
	return 0;
}

static void drain(void)
{
	struct spr_sink sink = SPR_SINK_INIT;
	uint64_t n = 0;
	int err;

	if (!bound)
		return;
	sink.put = sink_put;
	sink.gone = sink_gone;
	err = channel->ops->drain(channel, &sink, &n);
	MUST(err == 0 || err == -EAGAIN || err == -EIO || err == -ENOMEM ||
	     (err == -EPROTO && n_scribbles));
}

static void release_one(unsigned at)
{
	if (!n_kept)
		return;
	at %= n_kept;
	batch_look(kept[at], !(bell.flags & SPR_READ));
	spr_batch_release(kept[at]);
	kept[at] = kept[--n_kept];
}

static void bind(bool on)
{
	const int err = channel->ops->bind(channel, on ? &bell : NULL);

	MUST(err == 0 || err == -EBUSY);
	if (!err)
		bound = on;
}

static void walk(unsigned most)
{
	spr_batch *b = NULL;
	int ret;

	while ((ret = spr_channel_walk(channel, &b)) > 0 && most--)
		batch_look(b, true);
	MUST(ret >= 0 || ret == -EBUSY || (ret == -EPROTO && n_scribbles));
}

static void count(void)
{
	struct spr_stats stats = SPR_STATS_INIT;
	struct spr_verdict verdict = SPR_VERDICT_INIT;

	MUST(spr_channel_stats(channel, &stats) == 0);
	MUST(spr_channel_verdict(channel, &verdict) == 0);
	if (n_scribbles || everybody_dead || put_failed)
		return;
	MUST(stats.written == stats.delivered + stats.lost + stats.pending);
	MUST(stats.written == n_written + n_lost);
	MUST(stats.lost == n_lost);
	MUST(stats.refused == n_refused);
}

/* --- The writer ----------------------------------------------------------------------------- */

static void count_written(int err)
{
	if (err == 0)
		n_written++;
	else if (err == -EPIPE)
		n_refused++;
	else if (err == -EAGAIN)
		n_lost++;
	else
		MUST(err == -EMSGSIZE);
}

static void write_one(void)
{
	static uint8_t data[SPR_RECORD_BYTES_MAX];
	const uint8_t size = take();
	const uint32_t n = size < 200 ? size : (uint32_t)take_n(2);

	if (!producer)
		return;
	n_waits = 0;
	writer = spr_writer_here(producer);
	count_written(spr_write(writer, size & 3, data, n));
}

/* One inside another, ended in any order, or not at all. */
static void write_nested(void)
{
	struct spr_slot outer, inner;
	const uint8_t how = take();
	int err;

	if (!producer)
		return;
	n_waits = 0;
	writer = spr_writer_here(producer);
	err = spr_reserve(writer, 1, take(), &outer);
	if (err) {
		count_written(err);
		return;
	}
	err = spr_reserve_for(writer, 7, 8, 2, take() * 16u, &inner);
	if (!err && how & 1)
		err = spr_commit(writer, &inner);
	else if (!err) {
		spr_abandon(writer, &inner);
		err = -EMSGSIZE; /* it never was */
	}
	count_written(err);
	if (how & 2)
		count_written(spr_commit(writer, &outer));
	else
		spr_abandon(writer, &outer);
}

/* --- A run ----------------------------------------------------------------------------------- */

static void channel_make(uint8_t how)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	char address[80];
	uint64_t n = n_scribbles;

	opt.flags = (how & 1 ? SPR_UNSTAMPED : 0) | (how & 2 ? SPR_DROP : 0);
	opt.capacity_bytes = how & 32 ? 24 << 20 : 512 << 10;
	opt.stall_ms = 2;
	snprintf(address, sizeof(address), "ring:%s", place);
	MUST(spr_channel_open(&channel, address, &opt) == 0);
	hand_open(spr_channel_address(channel) + 5);
	bell.flags = how & 4 ? SPR_READ : 0;
	producer = NULL;
	writer = NULL;
	n_kept = 0;
	n_put = n_written = n_lost = n_refused = 0;
	bound = sealed = put_failed = false;
	MUST(n == n_scribbles);
	MUST(spr_attach(&producer, spr_channel_address(channel)) == 0);
}

static void step(void)
{
	const uint8_t what = take();

	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		for (unsigned i = 0; i <= what >> 4; i++)
			write_one();
		break;
	case 3:
		write_nested();
		break;
	case 4:
	case 5:
		drain();
		break;
	case 6:
	case 7:
		scribble();
		break;
	case 8:
		moments_left = 1 + (what >> 4);
		break;
	case 9:
		release_one(what >> 4);
		break;
	case 10:
		clock_ns += 1ull << (20 + (what >> 4));
		if (bound)
			channel->ops->tend(channel, clock_ns);
		break;
	case 11:
		if (bound && !channel->ops->arm(channel))
			channel->ops->disarm(channel);
		break;
	case 12:
		if (what >> 4 < 4) {
			spr_channel_seal(channel);
			sealed = true;
		} else if (what >> 4 < 8) {
			walk(what >> 4);
		} else {
			bind(what >> 4 & 1);
		}
		break;
	case 13:
		count();
		break;
	case 14:
		if (what >> 4 < 6)
			populate_fails = 1 + (what >> 4);
		else if (what >> 4 < 10)
			everybody_dead = true;
		else if (bound)
			channel->ops->ready(channel, take_n(2), 1);
		break;
	default:
		if (producer && what >> 4 == 0) {
			spr_detach(producer);
			producer = NULL;
		} else if (producer && what >> 4 < 4) {
			spr_writer_end(producer);
		}
		break;
	}
}

/* Seal, take what is there, and go; in any state. */
static void channel_end(void)
{
	if (producer)
		spr_detach(producer);
	while (n_kept)
		release_one(0);
	MUST(spr_channel_seal(channel) == 0);
	if (bound) {
		for (int i = 0; i < 300 && !channel->ops->ended(channel); i++) {
			drain();
			while (n_kept)
				release_one(0);
		}
		MUST(n_scribbles || put_failed || channel->ops->ended(channel));
		bind(false);
		MUST(!bound);
	} else {
		walk(UINT32_MAX);
	}
	count();
	MUST(spr_channel_close(channel) == 0);
	channel = NULL;
}

/* A dead collector's file: what is there now, in a place of its own. */
static void copy_left(const char *path)
{
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	MUST(fd >= 0 && ftruncate(fd, (off_t)hand_bytes) == 0);
	for (uint64_t at = 0; at + 4096 <= hand_bytes; at += 4096) {
		static const uint8_t zeros[4096];

		if (memcmp(hand_map + at, zeros, 4096) != 0)
			MUST(pwrite(fd, hand_map + at, 4096, (off_t)at) == 4096);
	}
	close(fd);
}

static void recover(const char *path)
{
	if (spr_channel_recover(&channel, place)) {
		unlink(path);
		return;
	}
	n_kept = 0;
	bound = put_failed = false;
	producer = NULL;
	if (take() & 1)
		walk(UINT32_MAX);
	else
		bind(true);
	n_scribbles++; /* it is a snapshot: no sums of ours hold */
	channel_end();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
	char left[96];
	uint8_t how;

	hostile_begin(bytes, n);
	how = take();
	channel_make(how);
	bind(!(how & 8));
	for (int i = 0; i < 200 && input_at < input_end; i++)
		step();
	moments_left = 0;
	snprintf(left, sizeof(left), "%s/left.ring", place);
	if (how & 16)
		copy_left(left);
	channel_end();
	hand_close();
	everybody_dead = false;
	if (how & 16)
		recover(left);
	spr_sys_hook = NULL;
	return 0;
}
