/* SPDX-License-Identifier: MIT */
/*
 * ring.c - a ring from the collector's side, in the order of its life: open or recover, seal,
 * count, close.
 */
#include "shm/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/kernel_abi.h"
#include "base/place.h"
#include "base/probe.h"
#include "base/sys.h"
#include "shm/populate.h"

#define CAPACITY_DEFAULT (1ull << 30)
#define CAPACITY_LEAST   (512ull << 10)
#define READY_AT_OPEN    32u /* first segments that cost their writers no call */

uint64_t spr_shm_ring_test_skip;

static uint32_t clamp(uint64_t n, uint32_t least, uint32_t most)
{
	return n < least ? least : n > most ? most : (uint32_t)n;
}

/* How the capacity is shared out between the classes. */
static void counts_for(uint64_t capacity, uint32_t n[SPR_RING_CLASSES])
{
	uint64_t used;

	n[0] = clamp(capacity / 32 / spr_ring_class_bytes(0), 16, SPR_RING_SEG0_MAX);
	n[1] = clamp(capacity / 64 / spr_ring_class_bytes(1), 4, SPR_RING_SEG1_MAX);
	n[2] = clamp(capacity / 64 / spr_ring_class_bytes(2), 2, SPR_RING_SEG2_MAX);
	used = (uint64_t)n[0] * spr_ring_class_bytes(0) + (uint64_t)n[1] * spr_ring_class_bytes(1) +
	       (uint64_t)n[2] * spr_ring_class_bytes(2);
	n[3] = clamp(capacity > used ? (capacity - used) / spr_ring_class_bytes(3) : 1, 1,
	             SPR_RING_SEG3_MAX);
}

/* Address space and file size have limits that kill or refuse; stay well inside. */
static uint64_t capacity_within_limits(uint64_t wanted)
{
	struct rlimit limit;
	uint64_t capacity = wanted ? wanted : CAPACITY_DEFAULT;

	if (capacity < CAPACITY_LEAST)
		capacity = CAPACITY_LEAST;
	if (!wanted && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    capacity > limit.rlim_cur / 4)
		capacity = limit.rlim_cur / 4;
	if (!wanted && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    capacity + (4 << 20) > limit.rlim_cur)
		capacity = limit.rlim_cur > (8 << 20) ? limit.rlim_cur - (4 << 20) : CAPACITY_LEAST;
	return capacity < CAPACITY_LEAST ? CAPACITY_LEAST : capacity;
}

/* Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ along with its refusal. */
static int file_extend(struct spr_ring *r)
{
	struct rlimit limit;
	long ret;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    r->geometry.file_bytes > limit.rlim_cur)
		return spr_fail(-EFBIG,
		                "a ring file of %llu KiB is over the file size limit (ulimit -f): "
		                "choose a smaller capacity",
		                (unsigned long long)r->geometry.file_bytes >> 10);
	ret = spr_sys(SYS_ftruncate, r->fd, r->geometry.file_bytes);
	return ret < 0 ? spr_fail_sys((int)ret, "%s: size", r->path) : 0;
}

void spr_shm_ring_barrier(const struct spr_ring *r)
{
	if (r->fence || spr_sys(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) < 0)
		spr_full_fence(); /* [ARM] [SEAL] */
}

/* --- Open ------------------------------------------------------------------------------------ */

static struct spr_ring *ring_make(void)
{
	struct spr_ring *r = calloc(1, sizeof(*r));
	pthread_mutexattr_t attr;

	if (!r)
		return NULL;
	/* A sink may ask for stats inside its put. */
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&r->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	r->fd = r->place = -1;
	return r;
}

static int ring_tables(struct spr_ring *r)
{
	const uint32_t n = r->geometry.first[SPR_RING_CLASSES];

	r->lanes_mask = 63;
	r->segs = calloc(n, sizeof(*r->segs));
	r->slots = calloc(SPR_RING_SLOTS, sizeof(*r->slots));
	r->lanes = calloc(r->lanes_mask + 1, sizeof(struct spr_ring_lane *));
	for (uint32_t c = 0; c < SPR_RING_CLASSES; c++) {
		r->ready[c] = calloc(r->geometry.n_segments[c], sizeof(uint32_t));
		if (!r->ready[c])
			return -ENOMEM;
	}
	return r->segs && r->slots && r->lanes ? 0 : -ENOMEM;
}

/* The owner's lock lives in a mapping that no child inherits, so that it ends with us. */
static int owner_keep(struct spr_ring *r, int locked_fd)
{
	const long map = spr_sys(SYS_mmap, 0, 4096, PROT_NONE, MAP_SHARED, locked_fd, 0);

	if (map < 0 && map >= -4095)
		return spr_fail_sys((int)map, "%s: map", r->path);
	r->owner_map = (void *)map;
	spr_sys(SYS_madvise, map, 4096, MADV_DONTFORK);
	return 0;
}

static int ring_map(struct spr_ring *r)
{
	const long map = spr_sys(SYS_mmap, 0, r->geometry.file_bytes, PROT_READ | PROT_WRITE,
	                         MAP_SHARED, r->fd, 0);

	if (map < 0 && map >= -4095)
		return spr_fail_sys((int)map, "%s: map of %llu MiB", r->path,
		                    (unsigned long long)r->geometry.file_bytes >> 20);
	r->map = (void *)map;
	r->map_bytes = r->geometry.file_bytes;
	r->header = (void *)r->map;
	spr_sys(SYS_madvise, map, r->map_bytes, MADV_DONTFORK);
	spr_sys(SYS_madvise, map, r->map_bytes, MADV_DONTDUMP);
	return 0;
}

static bool membarrier_works(void)
{
	return !spr_disabled("membarrier") &&
	       spr_sys(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) >= 0;
}

/* What a first process touches exists from the start, so that it makes no call for it. */
static int first_pages(struct spr_ring *r)
{
	struct spr_ring_header *h = r->header;
	const struct spr_ring_geometry *g = &r->geometry;
	const uint32_t n_ready = g->n_segments[0] < READY_AT_OPEN ? g->n_segments[0] / 2
	                                                          : READY_AT_OPEN;
	const uint32_t per_page = 4096 / sizeof(struct spr_ring_desc);
	const uint64_t inuse_bytes = (g->first[SPR_RING_CLASSES] / 8 + 4096) & ~4095ull;
	int err = spr_shm_populate(r->map + SPR_RING_SLOTS_AT, 4096);

	err = err ? err : spr_shm_populate(r->map + SPR_RING_INUSE_AT, inuse_bytes);
	err = err ? err : spr_shm_populate(r->map + (g->desc_at[0] & ~4095ull), 8192);
	err = err ? err : spr_shm_populate(spr_ring_segment_at(g, r->map, 0, 0), n_ready * 4096);
	for (uint32_t c = 1; !err && c < SPR_RING_CLASSES; c++) {
		err = spr_shm_populate(r->map + g->desc_at[c], 4096);
		spr_store_relaxed(&h->desc_ready[c],
		                  g->n_segments[c] < per_page ? g->n_segments[c] : per_page);
	}
	if (err)
		return spr_fail(err, "%s: no space left for the first pages of a ring", r->path);
	spr_store_relaxed(&h->slots_ready, 4096 / (uint32_t)sizeof(struct spr_ring_slot));
	spr_store_relaxed(&h->desc_ready[0],
	                  g->n_segments[0] < per_page ? g->n_segments[0] : per_page);
	for (uint32_t i = 0; i < n_ready; i++) {
		struct spr_ring_desc *desc = spr_ring_desc_at(g, r->map, 0, i);

		spr_store_release(&desc->owner, SPR_OWNER_READY); /* [FREE] */
		r->segs[i].readable = r->segs[i].listed = true;
		r->ready[0][r->n_ready[0]++] = n_ready - 1 - i;
		spr_store_relaxed(&h->ready[0][i % SPR_RING_HINTS], i + 1);
	}
	r->low_hole_ahead = n_ready;
	spr_store_relaxed(&h->low_hole[0], n_ready);
	return 0;
}

static int header_write(struct spr_ring *r, const struct spr_ring_config *config)
{
	struct spr_ring_header *h;
	int err = spr_shm_populate(r->map, 4096 + ((config->kinds_bytes + 4095) & ~4095ul));

	if (err)
		return spr_fail(err, "%s: no space left for a ring", r->path);
	h = r->header;
	h->version = SPR_RING_LAYOUT_VERSION;
	h->flags = config->flags | (r->fence ? SPR_RING_FENCE : 0);
	memcpy(h->n_segments, r->geometry.n_segments, sizeof(h->n_segments));
	h->record_bytes_max = config->record_bytes_max;
	h->stall_ms = config->stall_ms;
	h->kinds_bytes = (uint32_t)config->kinds_bytes;
	h->file_bytes = r->geometry.file_bytes;
	memcpy(r->map + SPR_RING_KINDS_AT, config->kinds, config->kinds_bytes);
	spr_clock_init(&h->clock[0]);
	h->clock[1] = r->clock = h->clock[0];
	spr_store_release(&h->clock_idx, 0); /* [CLOCK] */
	spr_store_relaxed(&h->allowance, SPR_RING_ALLOWANCE);
	err = first_pages(r);
	memcpy(h->magic, SPR_RING_MAGIC, sizeof(h->magic));
	return err;
}

static int path_set(struct spr_ring *r, const char *folder)
{
	const size_t room = strlen(folder) + sizeof(r->name) + 2;

	r->path = malloc(room);
	if (!r->path)
		return -ENOMEM;
	snprintf(r->path, room, "%s/%s", folder, r->name);
	return 0;
}

static int file_make(struct spr_ring *r, const char *folder, uint64_t capacity)
{
	char path[PATH_MAX];
	int locked_fd;
	int err;

	r->place = spr_place_open(folder, capacity, path, sizeof(path));
	if (r->place < 0)
		return r->place;
	locked_fd = spr_place_create(r->place, ".ring", r->name, sizeof(r->name));
	if (locked_fd < 0)
		return locked_fd;
	err = path_set(r, path);
	err = err ? err : owner_keep(r, locked_fd);
	if (!err) {
		r->fd = (int)spr_sys(SYS_openat, r->place, r->name,
		                     O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		err = r->fd < 0 ? spr_fail_sys(r->fd, "%s", r->path) : 0;
	}
	spr_sys(SYS_close, locked_fd);
	return err;
}

static void ring_release(struct spr_ring *r)
{
	if (r->guarded)
		spr_shm_guard_remove(r->map);
	if (r->map)
		spr_sys(SYS_munmap, r->map, r->map_bytes);
	if (r->place >= 0 && r->name[0])
		spr_sys(SYS_unlinkat, r->place, r->name, 0);
	if (r->owner_map)
		spr_sys(SYS_munmap, r->owner_map, 4096);
	if (r->fd >= 0)
		spr_sys(SYS_close, r->fd);
	if (r->place >= 0)
		spr_sys(SYS_close, r->place);
	for (uint32_t i = 0; r->lanes && i <= r->lanes_mask; i++) {
		for (struct spr_ring_lane *lane = r->lanes[i], *next; lane; lane = next) {
			next = lane->next;
			free(lane);
		}
	}
	for (uint32_t c = 0; c < SPR_RING_CLASSES; c++)
		free(r->ready[c]);
	free(r->lanes);
	free(r->segs);
	free(r->slots);
	free(r->path);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

int spr_shm_ring_open(struct spr_ring **out, const struct spr_ring_config *config)
{
	const uint64_t capacity = capacity_within_limits(config->capacity_bytes);
	uint32_t counts[SPR_RING_CLASSES];
	struct spr_ring *r;
	int err;

	if (spr_disabled("ring") || spr_disabled("ofd_lock"))
		return spr_fail(-ENOTSUP, "the ring, or the ofd_lock that it needs, is switched "
		                          "off by SPARRING_DISABLE");
	if (config->kinds_bytes > SPR_RING_KINDS_ROOM)
		return spr_fail(-EINVAL, "the kinds take %zu bytes, a ring has room for %u",
		                config->kinds_bytes, SPR_RING_KINDS_ROOM);
	r = ring_make();
	if (!r)
		return -ENOMEM;
	counts_for(capacity, counts);
	spr_ring_geometry_init(&r->geometry, counts);
	r->record_bytes_max = config->record_bytes_max;
	r->fence = !membarrier_works();
	r->no_punch = spr_disabled("punch");
	err = file_make(r, config->folder, capacity);
	err = err ? err : file_extend(r);
	err = err ? err : ring_map(r);
	if (!err && config->guard) {
		err = spr_shm_guard_add(r->map, r->map_bytes);
		r->guarded = !err;
	}
	err = err ? err : ring_tables(r);
	err = err ? err : header_write(r, config);
	if (err) {
		ring_release(r);
		return err;
	}
	*out = r;
	return 0;
}

/* --- Recover ---------------------------------------------------------------------------------- */

static int recover_header(struct spr_ring *r)
{
	struct spr_ring_header header;
	struct stat st;

	if (spr_sys(SYS_fstat, r->fd, &st) < 0 ||
	    spr_sys(SYS_pread64, r->fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.magic, SPR_RING_MAGIC, sizeof(header.magic)) != 0)
		return spr_fail(-EPROTO, "%s: not a ring file", r->path);
	if (header.version != SPR_RING_LAYOUT_VERSION)
		return spr_fail(-EPROTO, "%s: layout version %u, this library reads %u", r->path,
		                header.version, SPR_RING_LAYOUT_VERSION);
	if (!spr_ring_geometry_init(&r->geometry, header.n_segments) ||
	    r->geometry.file_bytes != header.file_bytes ||
	    (uint64_t)st.st_size < header.file_bytes ||
	    header.record_bytes_max > SPR_RECORD_BYTES_MAX ||
	    header.kinds_bytes > SPR_RING_KINDS_ROOM)
		return spr_fail(-EPROTO, "%s: damaged header", r->path);
	r->record_bytes_max = header.record_bytes_max;
	return 0;
}

/* Take over the file `name` if its owner is dead. */
static int recover_file(struct spr_ring *r, const char *folder, const char *name)
{
	struct flock lock = { .l_type = F_WRLCK,
		              .l_whence = SEEK_SET,
		              .l_start = (off_t)SPR_PLACE_OWNER_BYTE,
		              .l_len = 1 };
	int locked_fd;
	int err;

	if (strlen(name) >= sizeof(r->name))
		return -ENOENT;
	locked_fd = (int)spr_sys(SYS_openat, r->place, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (locked_fd < 0)
		return locked_fd;
	if (spr_sys(SYS_fcntl, locked_fd, F_OFD_SETLK, &lock) < 0) {
		spr_sys(SYS_close, locked_fd);
		return spr_fail(-EBUSY, "%s/%s: its collector lives", folder, name);
	}
	memcpy(r->name, name, strlen(name) + 1);
	err = path_set(r, folder);
	err = err ? err : owner_keep(r, locked_fd);
	if (!err) {
		r->fd = (int)spr_sys(SYS_openat, r->place, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		err = r->fd < 0 ? spr_fail_sys(r->fd, "%s", r->path) : recover_header(r);
	}
	spr_sys(SYS_close, locked_fd);
	return err;
}

/* The first ring in the folder whose owner is dead. */
static int recover_find(struct spr_ring *r, const char *folder)
{
	char path[PATH_MAX];
	char entries[4096];
	long n;
	int err = -ENOENT;
	int dir;

	r->place = spr_place_open(folder, 0, path, sizeof(path));
	if (r->place < 0)
		return r->place;
	dir = (int)spr_sys(SYS_openat, r->place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return spr_fail_sys(dir, "%s", path);
	while (err != 0 && (n = spr_sys(SYS_getdents64, dir, entries, sizeof(entries))) > 0) {
		for (long at = 0; err != 0 && at < n;) {
			uint16_t entry_bytes;
			const char *name = entries + at + 19;
			const size_t length = strlen(name);

			memcpy(&entry_bytes, entries + at + 16, 2);
			at += entry_bytes;
			if (length > 5 && strcmp(name + length - 5, ".ring") == 0) {
				const int ret = recover_file(r, path, name);

				err = ret == 0 || err == -ENOENT ? ret : err;
			}
		}
	}
	spr_sys(SYS_close, dir);
	return err == -ENOENT ? spr_fail(-ENOENT, "%s: no ring was left here", path) : err;
}

int spr_shm_ring_recover(struct spr_ring **out, const char *folder)
{
	struct spr_ring *r = ring_make();
	int err;

	if (!r)
		return -ENOMEM;
	r->recovered = true;
	r->fence = !membarrier_works();
	r->no_punch = true;
	err = recover_find(r, folder);
	err = err ? err : ring_map(r);
	if (!err)
		r->guarded = spr_shm_guard_add(r->map, r->map_bytes) == 0;
	err = err ? err : ring_tables(r);
	if (err) {
		r->name[0] = '\0'; /* what we could not take over is not ours to remove */
		ring_release(r);
		return err;
	}
	spr_store_relaxed(&r->header->present, 0);
	err = spr_shm_ring_seal(r);
	*out = r;
	return err;
}

/* --- Seal ---------------------------------------------------------------------------------------
 */

static void left_note(struct spr_ring *r, uint32_t pid)
{
	struct spr_ring_left *left = &r->left[r->n_left];
	char path[40];
	long fd;
	long n;

	if (r->n_left++ >= SPR_RING_LEFT_MAX)
		return;
	left->pid = pid;
	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	fd = spr_sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = spr_sys(SYS_read, fd, left->program, sizeof(left->program) - 1);
	spr_sys(SYS_close, fd);
	if (n > 0)
		left->program[strcspn(left->program, "\n")] = '\0';
}

/* What it left in its lanes stays its own until the close, for a pid proves little. The verdict
 * needs only this much: no process of that pid is there any more, in a namespace that we share. */
static bool unlocked_has_ended(const struct spr_ring_slot *slot, uint64_t pid_ns)
{
	const uint32_t pid = spr_load_relaxed(&slot->pid);
	struct pollfd polled = { .events = POLLIN };
	long fd, n;

	if (!pid || !pid_ns || spr_load_relaxed(&slot->pid_ns) != pid_ns)
		return false;
	fd = spr_sys(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return fd == -ESRCH;
	polled.fd = (int)fd;
	n = poll(&polled, 1, 0); /* a zombie */
	spr_sys(SYS_close, fd);
	return n == 1;
}

static void left_find(struct spr_ring *r)
{
	uint32_t n = spr_load_relaxed(&r->header->slots_ready);
	struct stat st;
	uint64_t pid_ns = 0;

	if (spr_sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st, 0) == 0)
		pid_ns = (uint32_t)st.st_ino;

	if (n > SPR_RING_SLOTS)
		n = SPR_RING_SLOTS;
	for (uint32_t i = 0; i < n; i++) {
		struct spr_ring_slot *slot = spr_ring_slot_at(r->map, i);
		const uint32_t state = spr_load_acquire(&slot->state); /* [SLOT] */

		if ((state == SPR_SLOT_UNLOCKED && !unlocked_has_ended(slot, pid_ns)) ||
		    (state == SPR_SLOT_ATTACHED && spr_shm_ring_alive(r, i)))
			left_note(r, spr_load_relaxed(&slot->pid));
	}
}

/* Settle every owned segment: what is committed by now is delivered, the rest is refused. Every
 * descriptor that can exist is looked at, for a claim may not have set its bit in inuse yet. */
static void finals_settle(struct spr_ring *r)
{
	for (uint32_t c = 0; c < SPR_RING_CLASSES; c++) {
		uint32_t n = spr_load_relaxed(&r->header->desc_ready[c]);

		if (n > r->geometry.n_segments[c])
			n = r->geometry.n_segments[c];
		for (uint32_t i = 0; i < n; i++) {
			struct spr_ring_desc *desc = spr_ring_desc_at(&r->geometry, r->map, c, i);
			const uint64_t owner = spr_load_acquire(&desc->owner); /* [CLAIM] */
			uint64_t final = 0;
			uint64_t committed;

			if (!spr_ring_owner_is_owned(owner))
				continue;
			committed = spr_load_acquire(&desc->committed);       /* [COMMIT] */
			spr_cas_acq_rel(&desc->final, &final, committed | 1); /* [FINAL] */
			spr_or_acq_rel(&desc->lost, SPR_LOST_SETTLED);        /* [FINAL] */
		}
	}
}

int spr_shm_ring_seal(struct spr_ring *r)
{
	struct spr_ring_header *h = r->header;

	pthread_mutex_lock(&r->lock);
	if (!r->sealed) {
		left_find(r);
		spr_or_acq_rel(&h->gate, SPR_GATE_SEALED); /* [SEAL] */
		spr_shm_ring_barrier(r);
		finals_settle(r);
		r->sealed = true;
		r->look_again = true;
		spr_add_relaxed(&h->space, 1);
		spr_sys(SYS_futex, &h->space, FUTEX_WAKE, INT_MAX);
		spr_add_acq_rel(&h->bell, 1); /* [BELL] */
		spr_sys(SYS_futex, &h->bell, FUTEX_WAKE, INT_MAX);
	}
	pthread_mutex_unlock(&r->lock);
	return 0;
}

/* --- Count, close
 * --------------------------------------------------------------------------------- */

void spr_shm_ring_stats(struct spr_ring *r, struct spr_stats *out)
{
	struct spr_ring_header *h = r->header;
	struct stat st;
	uint64_t waiting;
	uint64_t homeless;
	uint64_t bytes;
	uint64_t lost;

	pthread_mutex_lock(&r->lock);
	waiting = spr_shm_ring_pending(r, &bytes, &lost);
	homeless = spr_load_relaxed(&h->lost_homeless);
	out->written = r->written_gone + homeless + r->malformed + lost;
	out->lost = r->lost_gone + homeless + r->malformed + lost;
	for (uint32_t i = 0; i <= r->lanes_mask; i++) {
		for (struct spr_ring_lane *lane = r->lanes[i]; lane; lane = lane->next) {
			out->written += lane->next_seq - lane->base_seq;
			out->lost += lane->lost;
		}
	}
	out->n_writers = r->n_writers;
	out->delivered = r->delivered;
	out->written += waiting;
	if (r->sealed && !r->bound)
		out->delivered += waiting;
	else
		out->pending = waiting;
	out->refused = spr_load_relaxed(&h->refused);
	out->written_bytes = r->delivered_bytes + bytes;
	out->resident_bytes = spr_sys(SYS_fstat, r->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
	out->stalls = spr_load_relaxed(&h->stalls);
	out->wakes = r->wakes;
	out->wakes_missed = r->wakes_missed;
	pthread_mutex_unlock(&r->lock);
}

void spr_shm_ring_bind(struct spr_ring *r, bool bound)
{
	pthread_mutex_lock(&r->lock);
	r->bound = bound;
	if (!r->sealed)
		spr_store_relaxed(&r->header->present, bound ? 1 : 0);
	pthread_mutex_unlock(&r->lock);
}

bool spr_shm_ring_kept(struct spr_ring *r)
{
	bool kept;

	pthread_mutex_lock(&r->lock);
	kept = r->n_kept - r->n_walked != spr_load_acquire(&r->n_departed); /* [DEPART] */
	pthread_mutex_unlock(&r->lock);
	return kept;
}

bool spr_shm_ring_ended(struct spr_ring *r)
{
	bool ended;

	pthread_mutex_lock(&r->lock);
	ended = r->sealed && r->sealed_drained && r->n_kept == r->n_settled;
	pthread_mutex_unlock(&r->lock);
	return ended;
}

int spr_shm_ring_close(struct spr_ring *r)
{
	if (spr_shm_ring_kept(r))
		return spr_fail(-EBUSY, "%s: batches are still kept", r->path);
	spr_shm_ring_seal(r);
	for (uint32_t i = 0; i < SPR_RING_SLOTS; i++) {
		if (r->slots[i].pidfd)
			spr_sys(SYS_close, r->slots[i].pidfd - 1);
	}
	ring_release(r);
	return 0;
}
