/* SPDX-License-Identifier: MIT */
/*
 * ring_writer.c - a ring whose every byte may change under its writers' eyes.
 *
 * A channel is made, and from then on only the hand has it: before the attach, between the calls
 * and inside them. A process attaches, writes, nests, jumps away from open records, abandons, ends
 * its thread, detaches, attaches again. It must not crash, must return from every call after a
 * bounded wait, and what it is given to fill must be one segment's.
 */
#include <errno.h>
#include <stdio.h>

#include <sparring/sparring.h>

#include "shm/writer.h"
#include "tests/fuzz/ring_hostile.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n);

#define SLOTS 6

static spr_channel *channel;
static spr_producer *producer;
static struct spr_slot slots[SLOTS];
static bool open_slots[SLOTS];

static uint8_t data[SPR_RECORD_BYTES_MAX];

/* Where the record goes lies in its lane's segment, and that in this producer's mapping. */
static void slot_look(spr_writer *w, const struct spr_slot *slot)
{
	const struct spr_lane *lane = &w->lanes[slot->token[0] & (SPR_LANES - 1)];
	const struct mapping *m = mapping_of(lane->base);
	const uint8_t *at = slot->data;
	uint64_t from;
	uint32_t c = 0;

	MUST(m && m->at == producer->map);
	from = (uint64_t)(lane->base - m->at);
	while (c + 1 < SPR_RING_CLASSES && from >= producer->geometry.seg_at[c + 1])
		c++;
	MUST((from - producer->geometry.seg_at[c]) % spr_ring_class_bytes(c) == 0);
	MUST((from - producer->geometry.seg_at[c]) / spr_ring_class_bytes(c) <
	     producer->geometry.n_segments[c]);
	MUST(lane->mask + 1 == spr_ring_class_bytes(c));
	MUST(at >= lane->base + 8 && at + slot->bytes <= lane->base + lane->mask + 1);
	memset(slot->data, 0x5a, slot->bytes);
}

static uint32_t size_take(void)
{
	const uint8_t size = take();

	return size < 200 ? size : (uint32_t)take_n(2);
}

static bool known(int err)
{
	return err == 0 || err == -EAGAIN || err == -EPIPE || err == -EMSGSIZE;
}

/* An open slot may be taken again: its record was jumped away from. */
static void reserve(unsigned i)
{
	spr_writer *w = spr_writer_here(producer);
	const uint32_t n = size_take();
	int err;

	err = i & 8 ? spr_reserve_for(w, 1 + n, 2, i, n, &slots[i % SLOTS])
	            : spr_reserve(w, i, n, &slots[i % SLOTS]);
	MUST(known(err));
	open_slots[i % SLOTS] = err == 0;
	if (!err)
		slot_look(w, &slots[i % SLOTS]);
}

static void commit(unsigned i)
{
	if (!open_slots[i % SLOTS])
		return;
	open_slots[i % SLOTS] = false;
	if (i & 8) {
		spr_abandon(spr_writer_here(producer), &slots[i % SLOTS]);
	} else {
		const int err = spr_commit(spr_writer_here(producer), &slots[i % SLOTS]);

		MUST(known(err) || err == -EINVAL);
	}
}

static void write_many(unsigned n)
{
	const uint32_t bytes = size_take();

	while (n--) {
		n_waits = 0;
		MUST(known(spr_write(spr_writer_here(producer), n, data, bytes)));
	}
}

static void attach(void)
{
	const int err = spr_attach(&producer, spr_channel_address(channel));

	memset(open_slots, 0, sizeof(open_slots));
	if (err)
		producer = NULL;
	MUST(!err || n_scribbles || err == -EPIPE || populate_fails || err == -ENOSPC);
}

static void other(unsigned what)
{
	switch (what) {
	case 0:
		spr_detach(producer);
		producer = NULL;
		break;
	case 1:
		spr_writer_end(producer);
		memset(open_slots, 0, sizeof(open_slots));
		break;
	case 2:
		(void)spr_kind_find(producer, "file");
		break;
	case 3:
		spr_producer_blind(producer, take(), "fuzzed", "nothing at all");
		break;
	case 4:
		spr_producer_confine(producer);
		break;
	case 5:
		(void)spr_channel_seal(channel);
		break;
	case 6:
		MUST(spr_writer_flush(spr_writer_here(producer)) == 0);
		break;
	default:
		populate_fails = 1 + what;
		break;
	}
}

static void step(void)
{
	const uint8_t what = take();

	n_waits = 0;
	switch (what & 7) {
	case 0:
	case 1:
		if (producer)
			write_many(1 + (what >> 3));
		break;
	case 2:
		if (producer)
			reserve(what >> 3);
		break;
	case 3:
		if (producer)
			commit(what >> 3);
		break;
	case 4:
	case 5:
		scribble();
		break;
	case 6:
		moments_left = 1 + (what >> 3) % 8;
		break;
	default:
		if (producer)
			other(what >> 3 & 15);
		else
			attach();
		break;
	}
}

static void channel_make(uint8_t how)
{
	struct spr_channel_options opt = SPR_CHANNEL_OPTIONS_INIT;
	char address[80];

	opt.flags = (how & 1 ? SPR_UNSTAMPED : 0) | (how & 2 ? SPR_DROP : 0);
	opt.capacity_bytes = how & 4 ? 8 << 20 : 512 << 10;
	opt.stall_ms = 2;
	snprintf(address, sizeof(address), "ring:%s", place);
	MUST(spr_channel_open(&channel, address, &opt) == 0);
	hand_open(spr_channel_address(channel) + 5);
	if (how & 8) { /* as if somebody collected */
		const uint32_t present = 1;

		memcpy(hand_map + offsetof(struct spr_ring_header, present), &present, 4);
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
	uint8_t how;

	hostile_begin(bytes, n);
	how = take();
	producer = NULL;
	channel_make(how);
	if (how & 16)
		attach();
	for (int i = 0; i < 200 && input_at < input_end; i++)
		step();
	moments_left = 0;
	if (producer)
		spr_detach(producer);
	MUST(spr_channel_close(channel) == 0);
	hand_close();
	spr_sys_hook = NULL;
	return 0;
}
