/* SPDX-License-Identifier: MIT */
/*
 * writer_attach.c - a process joins a ring, and leaves it.
 *
 * Alive is who holds a lock: an OFD lock on a byte of the file, on a description of its own that
 * only a PROT_NONE mapping keeps open. No descriptor stays in the target; the lock ends with the
 * address space, however that ends, in any namespace; a forked child does not prolong it.
 *
 * Pairs of this process's own words (not shared with others), with what they carry:
 *   | WRITER   | close: state = free        | take: CAS on state       | zeroed lanes
 *   | PROCESS  | registration: state        | other threads: state     | slot, owner word
 *   | PRODUCER | attach: used = 2           | revive, thread end: used | a filled producer
 *   | KEY      | attach: thread_key_state   | writer_make: the same    | the key
 */
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/place.h"
#include "shm/populate.h"
#include "shm/writer.h"

struct spr_producer spr_shm_producers[SPR_PRODUCERS_MAX];
static _Atomic uint32_t producer_serial;

/* 2 MiB aligned, so that the first pages share a page-table page; only a hint. Where
 * ThreadSanitizer looks for a program's own memory: it ends a program that has any elsewhere. */
#define MAP_HINT ((void *)0x7e8000000000)

static long lock_call(long fd, int cmd, uint64_t at, short type)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1
	};
	const long ret = spr_sys(SYS_fcntl, fd, cmd, &lock);

	return ret < 0 ? ret : lock.l_type;
}

static bool is_err(const void *mapped)
{
	return (uintptr_t)mapped >= (uintptr_t)-4095;
}

static void *map_call(size_t bytes, int prot, int flags, long fd, void *hint)
{
	return (void *)spr_sys(SYS_mmap, hint, bytes, prot, flags, fd, 0);
}

/* --- The process's slot ---------------------------------------------------------------------- */

static int slot_page_ready(spr_producer *p, uint32_t idx)
{
	const uint32_t per_page = 4096 / sizeof(struct spr_ring_slot);
	uint32_t ready = spr_load_relaxed(&p->header->slots_ready);
	const uint32_t page_idx = idx / per_page;

	if (idx < ready)
		return 0;
	if (spr_shm_populate(p->map + SPR_RING_SLOTS_AT + page_idx * 4096, 4096))
		return -ENOSPC;
	if (ready / per_page == page_idx)
		(void)spr_cas_relaxed(&p->header->slots_ready, &ready, (page_idx + 1) * per_page);
	return 0;
}

/* Who holds no lock is known by its pid alone, and that only to those who share its namespace. */
static uint32_t own_pid_ns(const spr_producer *p)
{
	struct stat st;

	if (spr_load_relaxed(&p->confined) ||
	    spr_sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st, 0) < 0)
		return 0;
	return (uint32_t)st.st_ino;
}

static void slot_fill(spr_producer *p, struct spr_ring_slot *slot, uint32_t idx, uint32_t state)
{
	struct spr_area *area = p->area;
	const uint32_t generation = spr_load_relaxed(&slot->generation) + 1;

	area->pid = spr_load_relaxed(&p->confined) ? 0 : (uint32_t)spr_sys(SYS_getpid);
	area->slot_idx = idx;
	area->generation = generation;
	area->owner = spr_ring_owner(idx, generation);
	/* By itself it tells the collector that the ones before are dead, as the lock told us. */
	spr_store_release(&slot->generation, generation); /* [SLOT] */
	spr_store_relaxed(&slot->pid, area->pid);
	spr_store_relaxed(&slot->pid_ns, state == SPR_SLOT_UNLOCKED ? own_pid_ns(p) : 0);
	spr_store_relaxed(&slot->attached_ns, spr_clock_now(&p->clock));
	spr_store_release(&slot->state, state); /* [SLOT] */
}

/* Lock first, then look: the collector frees a slot only while it holds the byte itself, so neither
 * can overtake the other. dead_too: also those whose process is dead and not reaped yet. */
static int slot_lock(spr_producer *p, long fd, bool dead_too)
{
	uint32_t low = spr_load_relaxed(&p->header->low_slot);

	if (low >= SPR_RING_SLOTS || dead_too)
		low = 0;
	for (uint32_t i = low; i < SPR_RING_SLOTS; i++) {
		struct spr_ring_slot *slot = spr_ring_slot_at(p->map, i);
		uint32_t state;
		long ret;

		if (slot_page_ready(p, i))
			return -ENOSPC;
		state = spr_load_relaxed(&slot->state);
		if (state != SPR_SLOT_FREE && !(dead_too && state == SPR_SLOT_ATTACHED))
			continue;
		ret = lock_call(fd, F_OFD_SETLK, SPR_RING_LOCK_AT + i, F_WRLCK);
		if (ret == -EAGAIN || ret == -EACCES)
			continue;
		if (ret < 0)
			return (int)ret;
		state = spr_load_acquire(&slot->state); /* [SLOT] */
		if ((state == SPR_SLOT_FREE &&
		     spr_cas_acq_rel(&slot->state, &state, SPR_SLOT_LOCKING)) || /* [SLOT] */
		    (dead_too && state == SPR_SLOT_ATTACHED)) {
			slot_fill(p, slot, i, SPR_SLOT_ATTACHED);
			spr_store_relaxed(&p->header->low_slot, i + 1);
			return 0;
		}
		lock_call(fd, F_OFD_SETLK, SPR_RING_LOCK_AT + i, F_UNLCK);
	}
	return -EAGAIN;
}

/* No lock to be had (another root, no descriptor, no memory): a slot that nobody may take for dead
 * before the close, and the verdict says so. */
static int slot_unlocked(spr_producer *p)
{
	for (uint32_t i = 0; i < SPR_RING_SLOTS; i++) {
		struct spr_ring_slot *slot = spr_ring_slot_at(p->map, i);
		uint32_t unused = SPR_SLOT_FREE;

		if (i >= spr_load_relaxed(&p->header->slots_ready) &&
		    (spr_load_relaxed(&p->confined) || slot_page_ready(p, i)))
			break;
		if (!spr_cas_acq_rel(&slot->state, &unused, SPR_SLOT_TAKING)) /* [SLOT] */
			continue;
		slot_fill(p, slot, i, SPR_SLOT_UNLOCKED);
		return 0;
	}
	return -EAGAIN;
}

/* Make the lock outlive the descriptor. */
static int lock_keep(spr_producer *p, long fd)
{
	void *map = map_call(4096, PROT_NONE, MAP_SHARED, fd, NULL);

	if (is_err(map))
		return -ENOMEM;
	if (spr_sys(SYS_madvise, map, 4096, MADV_DONTFORK) < 0) {
		spr_sys(SYS_munmap, map, 4096);
		return -EINVAL;
	}
	p->area->lock_map = map;
	return 0;
}

/* By a description that the ring's own mapping does not share: that one is inherited by fork. */
int spr_shm_process_register(spr_producer *p)
{
	struct stat st;
	long fd = -EPERM;
	int err;

	if (!spr_load_relaxed(&p->confined))
		fd = spr_sys(SYS_openat, AT_FDCWD, p->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return slot_unlocked(p);
	if (spr_sys(SYS_fstat, fd, &st) < 0 || st.st_ino != p->ino || st.st_dev != p->dev) {
		spr_sys(SYS_close, fd); /* another file under our name: another root */
		return slot_unlocked(p);
	}
	err = slot_lock(p, fd, false);
	if (err == -EAGAIN)
		err = slot_lock(p, fd, true);
	if (err == 0 && lock_keep(p, fd)) {
		struct spr_ring_slot *slot = spr_ring_slot_at(p->map, p->area->slot_idx);

		spr_store_relaxed(&slot->pid_ns, own_pid_ns(p));
		spr_store_release(&slot->state, SPR_SLOT_UNLOCKED); /* [SLOT] */
	} else if (err && err != -EAGAIN && err != -ENOSPC) {
		err = slot_unlocked(p);
	}
	spr_sys(SYS_close, fd);
	return err;
}

/* --- Attach ---------------------------------------------------------------------------------- */

/* The header, read with a call: a mapped file that is too short would be a SIGBUS. */
static int header_check(spr_producer *p, long fd, struct spr_ring_header *header)
{
	struct stat st;

	if (spr_sys(SYS_fstat, fd, &st) < 0 || !S_ISREG(st.st_mode))
		return spr_fail(-EPROTO, "%s: not a ring file", p->path);
	if (spr_sys(SYS_pread64, fd, header, sizeof(*header), 0) != sizeof(*header) ||
	    memcmp(header->magic, SPR_RING_MAGIC, sizeof(header->magic)) != 0)
		return spr_fail(-EPROTO, "%s: not a ring file", p->path);
	if (header->version != SPR_RING_LAYOUT_VERSION)
		return spr_fail(-EPROTO, "%s: layout version %u, this library writes %u", p->path,
		                header->version, SPR_RING_LAYOUT_VERSION);
	if (!spr_ring_geometry_init(&p->geometry, header->n_segments) ||
	    header->file_bytes != p->geometry.file_bytes ||
	    header->file_bytes > (uint64_t)st.st_size ||
	    header->record_bytes_max > SPR_RECORD_BYTES_MAX)
		return spr_fail(-EPROTO, "%s: damaged header", p->path);
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	p->ring_flags = header->flags;
	p->stall_ms = header->stall_ms;
	p->record_bytes_max = header->record_bytes_max;
	if (spr_load_relaxed(&header->gate) & SPR_GATE_SEALED)
		return spr_fail(-EPIPE, "%s: the channel is sealed", p->path);
	if (lock_call(fd, F_OFD_GETLK, SPR_PLACE_OWNER_BYTE, F_RDLCK) == F_UNLCK)
		return spr_fail(-ECONNREFUSED,
		                "%s: its collector is dead (sparring clean removes it)", p->path);
	return 0;
}

/* All of it, or where address space is short what ends behind the first class. */
static int ring_map(spr_producer *p, long fd)
{
	uint64_t bytes = p->geometry.file_bytes;
	void *map;

	p->n_classes = SPR_RING_CLASSES;
	map = map_call(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, MAP_HINT);
	if (is_err(map)) {
		p->n_classes = 1;
		bytes = p->geometry.desc_at[1];
		map = map_call(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, MAP_HINT);
	}
	if (is_err(map))
		return spr_fail_sys((int)(intptr_t)map, "%s: map", p->path);
	(void)spr_sys(SYS_madvise, map, bytes, MADV_DONTDUMP);
	p->map = map;
	p->map_bytes = bytes;
	p->header = map;
	return 0;
}

static int area_map(spr_producer *p)
{
	void *area = (void *)-ENOMEM;

	p->n_writers = SPR_AREA_WRITERS_MAX;
	for (; p->n_writers >= 4; p->n_writers /= 8) {
		p->area_bytes = SPR_AREA_BYTES(p->n_writers);
		area = map_call(p->area_bytes, PROT_READ | PROT_WRITE,
		                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, NULL);
		if (!is_err(area))
			break;
	}
	if (is_err(area))
		return spr_fail(-ENOMEM, "%s: no address space for the writers' state", p->path);
	p->area = area;
	if (spr_sys(SYS_madvise, area, p->area_bytes, MADV_WIPEONFORK) < 0)
		return spr_fail(-ENOTSUP, "%s: MADV_WIPEONFORK is refused (Linux 4.14 has it)",
		                p->path);
	return 0;
}

static int producer_open(spr_producer *p, struct spr_ring_header *header)
{
	long fd = spr_sys(SYS_openat, AT_FDCWD, p->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	uint32_t clock_idx;
	int err;

	if (fd < 0)
		return spr_fail_sys((int)fd, "%s", p->path);
	err = header_check(p, fd, header);
	if (!err)
		err = ring_map(p, fd);
	spr_sys(SYS_close, fd);
	if (err)
		return err;
	clock_idx = spr_load_acquire(&p->header->clock_idx) & 1; /* [CLOCK] */
	p->clock = p->header->clock[clock_idx];
	err = area_map(p);
	if (err)
		return err;
	/* Registered: the collector's membarrier reaches us, and no record pays a fence. */
	p->fence = spr_sys(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) < 0;
	err = spr_shm_process_register(p);
	if (err)
		return spr_fail(err,
		                err == -ENOSPC ? "%s: no space left in its folder"
		                               : "%s: all process slots are taken",
		                p->path);
	spr_store_release(&p->area->state, 2); /* [PROCESS] */
	return 0;
}

static void producer_release(spr_producer *p)
{
	if (p->area) {
		if (p->area->lock_map)
			spr_sys(SYS_munmap, p->area->lock_map, 4096);
		spr_sys(SYS_munmap, p->area, p->area_bytes);
	}
	if (p->map)
		spr_sys(SYS_munmap, p->map, p->map_bytes);
	p->area = NULL;
	p->map = NULL;
	spr_store_release(&p->used, 0); /* [PRODUCER] */
}

static spr_producer *producer_take(const char *path, int *err)
{
	for (uint32_t i = 0; i < SPR_PRODUCERS_MAX; i++) {
		if (spr_load_acquire(&spr_shm_producers[i].used) == 2 && /* [PRODUCER] */
		    strcmp(spr_shm_producers[i].path, path) == 0) {
			*err = spr_fail(-EALREADY, "%s: this process is attached already", path);
			return NULL;
		}
	}
	for (uint32_t i = 0; i < SPR_PRODUCERS_MAX; i++) {
		uint32_t unused = 0;

		if (spr_cas_acq_rel(&spr_shm_producers[i].used, &unused, 1)) { /* [PRODUCER] */
			spr_shm_producers[i].index = i;
			return &spr_shm_producers[i];
		}
	}
	*err = spr_fail(-EMFILE, "%s: %u channels are attached already", path, SPR_PRODUCERS_MAX);
	return NULL;
}

/* path: what stands behind "ring:". */
int spr_shm_attach(spr_producer **out, const char *path)
{
	struct spr_ring_header header;
	spr_producer *p;
	int err = 0;

	if (path[0] != '/' || strlen(path) >= sizeof(p->path))
		return spr_fail(-EINVAL, "ring:%s: not the address of a channel", path);
	p = producer_take(path, &err);
	if (!p)
		return err;
	memcpy(p->path, path, strlen(path) + 1);
	spr_store_relaxed(&p->confined, 0);
	memset(&p->mute, 0, sizeof(p->mute));
	p->serial = spr_add_relaxed(&producer_serial, 1) + 1;
	err = producer_open(p, &header);
	if (err) {
		producer_release(p);
		return err;
	}
	spr_shm_thread_key_make();
	spr_store_release(&p->used, 2); /* [PRODUCER] */
	*out = p;
	return 0;
}

void spr_shm_detach(spr_producer *p)
{
	struct spr_ring_slot *slot;

	if (spr_load_acquire(&p->area->state) == 2) { /* [PROCESS] */
		spr_shm_writer_close_all(p);
		slot = spr_ring_slot_at(p->map, p->area->slot_idx);
		/* The lock says it for the others; an unlocked slot nobody else would ever free. */
		if (!p->area->lock_map)
			spr_store_release(&slot->state, SPR_SLOT_FREE); /* [SLOT] */
	}
	producer_release(p);
}

/* From here on memory operations only. What could wake the collector is gone, so it must look by
 * itself; what could register with membarrier is gone in forked children, so they pay the fence. */
void spr_shm_confine(spr_producer *p)
{
	uint32_t no = 0;

	if (!spr_cas_relaxed(&p->confined, &no, 1))
		return;
	spr_add_relaxed(&p->header->confined, 1);
}
