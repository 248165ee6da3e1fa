/* SPDX-License-Identifier: MIT */
/*
 * producer.c - the sender's public functions: attach by scheme, writers, records.
 *
 * What stands here and in shm/writer*.c is all that libsparring-writer.a needs; it lives in other
 * people's processes. One scheme so far; another one hangs its functions on the writer here.
 */
#include "base/error.h"
#include "base/kinds.h"
#include "shm/writer.h"

int spr_attach(spr_producer **out, const char *address)
{
	spr_fail_clear();
	if (!out || !address)
		return spr_fail(-EINVAL, "no address to attach to");
	if (strncmp(address, "ring:", 5) != 0)
		return spr_fail(-ENOTSUP, "%.100s: not an address this library can attach to",
		                address);
	return spr_shm_attach(out, address + 5);
}

void spr_detach(spr_producer *p)
{
	if (p)
		spr_shm_detach(p);
}

int spr_kind_find(const spr_producer *p, const char *name)
{
	const uint32_t n_bytes = p->header->kinds_bytes; /* once: it may change under us */

	if (n_bytes > SPR_RING_KINDS_ROOM)
		return -EPROTO;
	return spr_kinds_find(p->map + SPR_RING_KINDS_AT, n_bytes, name);
}

void spr_producer_confine(spr_producer *p)
{
	if (p)
		spr_shm_confine(p);
}

spr_writer *spr_writer_here(spr_producer *p)
{
	return spr_shm_writer_here(p);
}

int spr_writer_flush(spr_writer *w)
{
	(void)w;
	return 0;
}

void spr_writer_end(spr_producer *p)
{
	spr_shm_writer_end(p);
}

int spr_reserve(spr_writer *w, uint32_t kind, uint32_t bytes, struct spr_slot *slot)
{
	return spr_shm_reserve(w, 0, kind, bytes, slot);
}

int spr_reserve_for(spr_writer *w, uint32_t pid, uint32_t tid, uint32_t kind, uint32_t bytes,
                    struct spr_slot *slot)
{
	if (!pid)
		return -EINVAL;
	return spr_shm_reserve(w, pid | (uint64_t)tid << 32, kind, bytes, slot);
}

int spr_commit(spr_writer *w, struct spr_slot *slot)
{
	return spr_shm_commit(w, slot);
}

void spr_abandon(spr_writer *w, struct spr_slot *slot)
{
	spr_shm_abandon(w, slot);
}

/* Nested, short of room, after a fork, or wrong: the long way. */
static __attribute__((noinline, cold)) int write_slowly(spr_writer *w, uint32_t kind,
                                                        const void *data, uint32_t bytes)
{
	struct spr_slot slot;
	const int err = spr_shm_reserve(w, 0, kind, bytes, &slot);

	if (err)
		return err;
	spr_shm_copy(slot.data, data, bytes);
	return spr_shm_commit(w, &slot);
}

int spr_write(spr_writer *w, uint32_t kind, const void *data, uint32_t bytes)
{
	int err = 0;

	if (spr_likely(spr_shm_write_direct(w, kind, data, bytes, &err)))
		return err;
	return write_slowly(w, kind, data, bytes);
}

static uint8_t *text_put(uint8_t *at, const char *text, uint16_t bytes)
{
	memcpy(at, &bytes, 2);
	memcpy(at + 2, text, bytes);
	return at + 2 + bytes;
}

void spr_producer_blind(spr_producer *p, uint32_t pid, const char *reason, const char *text)
{
	const uint16_t reason_bytes = (uint16_t)strnlen(reason, 200);
	const uint16_t text_bytes = (uint16_t)strnlen(text, 4096);
	spr_writer *w = spr_shm_writer_here(p);
	struct spr_slot slot;
	uint8_t *at;

	if (spr_shm_reserve(w, 0, SPR_KIND_BLIND, 8u + reason_bytes + text_bytes, &slot))
		return; /* counted */
	if (!pid)
		pid = w->pid;
	memcpy(slot.data, &pid, 4);
	at = text_put((uint8_t *)slot.data + 4, reason, reason_bytes);
	text_put(at, text, text_bytes);
	(void)spr_shm_commit(w, &slot);
}
