/* SPDX-License-Identifier: MIT */
/*
 * uring.c - the waiter on one io_uring: words (IORING_OP_FUTEX_WAIT, Linux 6.7), the wake
 * descriptor and watched descriptors (IORING_OP_POLL_ADD), reads, and the timeout of the wait.
 *
 * liburing maps the rings and fills entries; the two system calls are made here through
 * base/sys.h, so that tests can fail them and a seccomp filter that comes later is an error code
 * like any other. wait() then says so and the collector goes on with plain.c.
 *
 * A ring with DEFER_TASKRUN completes nothing behind its owner's back: no other system call of
 * the thread is interrupted (EINTR) by our wakes; one soon after the ring was closed may be. Its
 * price is that one thread alone may use it; when the collector moves to another thread, wait()
 * answers -EXDEV and the collector gets a new ring. Kernels before 6.1, and collectors that move
 * often, get a ring without.
 *
 * A futex wait that stands is never renewed: the kernel compares the word only when the wait is
 * put in place, after that any wake of the word ends it. One that the collector has lost interest
 * in costs nothing, as writers do not wake an unarmed bell.
 */
#include "collector/waiter.h"

#include <errno.h>

#ifdef SPR_NO_URING /* the machine that built it lacks liburing */

int spr_collector_uring_open(struct spr_waiter **out, int wake_fd, bool moves)
{
	(void)out;
	(void)wake_fd;
	(void)moves;
	return -ENOTSUP;
}

#else

#include <liburing.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <sparring/sparring.h>

#include "base/error.h"
#include "base/kernel_abi.h"
#include "base/probe.h"
#include "base/sys.h"

#define ENTRIES       128u /* first try; more may wait: the queue is handed over when it is full */
#define ENTRIES_FLOOR 8u
#define TEST_NS       200000000ull /* for the self-test's wake to arrive */
#define TMPFS         0x01021994

/* The top byte of user_data says whose completion it is, the rest is the tag. */
enum { FOR_WAKE = 1, FOR_WORD, FOR_WATCH, FOR_READ, FOR_NOBODY };
#define FOR_SHIFT 56
#define TAG_MASK  ((1ull << FOR_SHIFT) - 1)

struct uring {
	struct spr_waiter base;
	struct io_uring   ring;
	_Atomic uint32_t **standing; /* by idx: the word a futex wait stands on, or NULL */
	uint32_t n_standing;
	unsigned n_fired; /* taken out, not yet reported by wait() */
	bool     wake_polled;
	bool     read_ended;
	int64_t  read_result;
	int      event_fd; /* rung by the kernel with each completion; -1: nobody asked */
	int      read_fd; /* the last one asked for, and by which way it is read */
	bool     read_by_ring;
	int      broken; /* why the ring is of no use any more */
};

/* --- The two system calls ------------------------------------------------------- */

static long uring_setup(unsigned entries, struct io_uring_params *params)
{
	return spr_sys(SYS_io_uring_setup, entries, params);
}

/* Hand over what is queued, wait for n completions or timeout_ns. >= 0, -ETIME, -EINTR, ... */
static long uring_enter(struct uring *u, unsigned n, uint64_t timeout_ns)
{
	struct __kernel_timespec timeout = { .tv_sec = (long long)(timeout_ns / 1000000000),
	                                     .tv_nsec = (long long)(timeout_ns % 1000000000) };
	struct io_uring_getevents_arg arg = { .ts = 0 };
	struct io_uring_sq *sq = &u->ring.sq;

	if (n && timeout_ns != SPR_WAIT_FOREVER)
		arg.ts = (uint64_t)(uintptr_t)&timeout;
	io_uring_smp_store_release(sq->ktail, sq->sqe_tail);
	const unsigned queued = sq->sqe_tail - io_uring_smp_load_acquire(sq->khead);
	return spr_sys(SYS_io_uring_enter, u->ring.ring_fd, queued, n,
	               IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof(arg));
}

/* The errors that leave the ring as it was; the caller looks again. */
static bool is_passing(long err)
{
	return err >= 0 || err == -ETIME || err == -EINTR || err == -EBUSY || err == -EAGAIN;
}

/* -EEXIST is the kernel's word for "another thread's ring". Remembered: nothing else is tried. */
static int uring_check(struct uring *u, long ret)
{
	if (is_passing(ret))
		return 0;
	u->broken = ret == -EEXIST ? -EXDEV : ret == -EXDEV ? -EIO : (int)ret;
	return u->broken;
}

/* --- Completions ------------------------------------------------------------------ */

static void uring_take(struct uring *u, const struct io_uring_cqe *cqe)
{
	const uint64_t tag = cqe->user_data & TAG_MASK;

	switch (cqe->user_data >> FOR_SHIFT) {
	case FOR_WAKE:
		u->wake_polled = false;
		spr_collector_plain_hush(u->base.wake_fd);
		break;
	case FOR_WORD:
		u->standing[tag] = NULL;
		if (cqe->res < 0 && cqe->res != -EAGAIN && cqe->res != -EINTR)
			u->broken = cqe->res; /* asking again would only spin */
		break;
	case FOR_WATCH:
		if (cqe->res != -ECANCELED)
			u->base.fired(u->base.arg, tag,
			              cqe->res < 0 ? POLLNVAL : (uint32_t)cqe->res);
		break;
	case FOR_READ:
		u->read_result = cqe->res;
		u->read_ended = true;
		break;
	default:
		break;
	}
}

static void uring_reap(struct uring *u)
{
	while (io_uring_cq_ready(&u->ring)) {
		const unsigned at = *u->ring.cq.khead & *u->ring.cq.kring_mask;
		const struct io_uring_cqe cqe = u->ring.cq.cqes[at];

		io_uring_cq_advance(&u->ring, 1);
		uring_take(u, &cqe);
		u->n_fired++;
	}
}

/* --- Queueing -------------------------------------------------------------------- */

/* An entry to fill in; a full queue is handed over first. NULL only when the ring is broken. */
static struct io_uring_sqe *uring_entry(struct uring *u, int whose, uint64_t tag)
{
	struct io_uring_sqe *sqe;

	while (!(sqe = io_uring_get_sqe(&u->ring))) {
		if (u->broken || uring_check(u, uring_enter(u, 0, 0)))
			return NULL;
		uring_reap(u);
	}
	memset(sqe, 0, sizeof(*sqe));
	sqe->user_data = (uint64_t)whose << FOR_SHIFT | (tag & TAG_MASK);
	return sqe;
}

static int uring_grow(struct uring *u, uint32_t n)
{
	_Atomic uint32_t **more;

	if (n <= u->n_standing)
		return 0;
	n = n < 2 * u->n_standing ? 2 * u->n_standing : n;
	more = realloc(u->standing, n * sizeof(*more));
	if (!more)
		return -ENOMEM;
	memset(more + u->n_standing, 0, (n - u->n_standing) * sizeof(*more));
	u->standing = more;
	u->n_standing = n;
	return 0;
}

static int uring_listen(struct spr_waiter *w, uint32_t idx, _Atomic uint32_t *word, uint32_t seen)
{
	struct uring *u = (struct uring *)w;
	struct io_uring_sqe *sqe;
	const int err = uring_grow(u, idx + 1);

	if (err || u->standing[idx])
		return err;
	sqe = uring_entry(u, FOR_WORD, idx);
	if (!sqe)
		return 0;
	/* liburing 2.3 knows no futex. Never PRIVATE: the word is other processes' too, and a
	 * private wait set up before the first thread starts would be missed by its wakes
	 * (Linux 6.17). */
	sqe->opcode = SPR_IORING_OP_FUTEX_WAIT;
	sqe->fd = FUTEX2_SIZE_U32;
	sqe->addr = (uint64_t)(uintptr_t)word;
	sqe->addr2 = seen;
	sqe->addr3 = FUTEX_BITSET_MATCH_ANY;
	u->standing[idx] = word;
	return 0;
}

static int uring_watch(struct spr_waiter *w, int fd, uint32_t events, uint64_t tag)
{
	struct uring *u = (struct uring *)w;
	struct io_uring_sqe *sqe = uring_entry(u, FOR_WATCH, tag);

	if (!sqe) /* wait() will say why, and the next waiter is told again */
		return 0;
	sqe->opcode = IORING_OP_POLL_ADD;
	sqe->fd = fd;
	sqe->poll32_events = events; /* aarch64 and x86-64 are little endian */
	return 0;
}

/* --- Waiting --------------------------------------------------------------------- */

/* Nothing queued, and nothing that the kernel keeps back until it is asked. */
static bool uring_is_quiet(const struct uring *u)
{
	const unsigned flags = IO_URING_READ_ONCE(*u->ring.sq.kflags);

	return u->ring.sq.sqe_tail == io_uring_smp_load_acquire(u->ring.sq.khead) &&
	       !(flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW));
}

static int uring_wait(struct spr_waiter *w, uint64_t timeout_ns)
{
	struct uring *u = (struct uring *)w;
	unsigned before;

	if (!u->broken && !u->wake_polled) {
		struct io_uring_sqe *sqe = uring_entry(u, FOR_WAKE, 0);
		if (sqe) {
			sqe->opcode = IORING_OP_POLL_ADD;
			sqe->fd = w->wake_fd;
			sqe->poll32_events = POLLIN;
			u->wake_polled = true;
		}
	}
	if (u->event_fd >= 0)
		spr_collector_plain_hush(u->event_fd); /* before we look: later ones ring again */
	uring_reap(u);
	/* What had no room in the completion queue comes out at the next enter. */
	do {
		const bool sleeps = !u->n_fired && timeout_ns;

		before = u->n_fired;
		if (u->broken || (!sleeps && uring_is_quiet(u)))
			break;
		uring_check(u, uring_enter(u, sleeps, timeout_ns));
		uring_reap(u);
	} while (u->n_fired != before);
	if (u->broken)
		return u->broken;
	before = u->n_fired;
	u->n_fired = 0;
	return before > 0;
}

static void uring_unwatch(struct spr_waiter *w, int fd, uint64_t tag)
{
	struct uring *u = (struct uring *)w;
	struct io_uring_sqe *sqe = uring_entry(u, FOR_NOBODY, 0);

	(void)fd;
	if (!sqe)
		return;
	sqe->opcode = IORING_OP_POLL_REMOVE;
	sqe->fd = -1;
	sqe->addr = (uint64_t)FOR_WATCH << FOR_SHIFT | (tag & TAG_MASK);
	/* At once, so that the ring's hold on the file ends here, and with it the file's. */
	if (!uring_check(u, uring_enter(u, 0, 0)))
		uring_reap(u);
}

/* --- Reading ----------------------------------------------------------------------- */

/* tmpfs has no read that does not block, so a ring hands each to a worker: five times a pread. */
static bool uring_reads(struct uring *u, int fd)
{
	struct statfs fs;

	if (fd != u->read_fd) {
		u->read_fd = fd;
		u->read_by_ring = spr_sys(SYS_fstatfs, fd, &fs) == 0 && fs.f_type != TMPFS;
	}
	return u->read_by_ring && !u->broken;
}

static int64_t uring_read(struct spr_waiter *w, int fd, void *buf, size_t n, uint64_t at)
{
	struct uring *u = (struct uring *)w;
	struct io_uring_sqe *sqe;

	n = n < 1u << 30 ? n : 1u << 30;
	sqe = uring_reads(u, fd) ? uring_entry(u, FOR_READ, 0) : NULL;
	if (!sqe)
		return spr_collector_plain_read(fd, buf, n, at);
	io_uring_prep_rw(IORING_OP_READ, sqe, fd, buf, (unsigned)n, at);
	u->read_ended = false;
	while (!u->read_ended) {
		if (uring_check(u, uring_enter(u, 1, SPR_WAIT_FOREVER)))
			break;
		uring_reap(u);
	}
	if (!u->read_ended) /* refused before it was taken over: a filter, another thread */
		return spr_collector_plain_read(fd, buf, n, at);
	if (u->read_result == -EINTR || u->read_result == -EAGAIN)
		return spr_collector_plain_read(fd, buf, n, at);
	return u->read_result;
}

/* --- Open and close ---------------------------------------------------------------- */

/* Not the ring's own: completions of a DEFER_TASKRUN ring that wait to be fetched do not make it
 * poll readable (Linux 6.18), but they do ring the eventfd that is registered with it. */
static int uring_fd(struct spr_waiter *w)
{
	struct uring *u = (struct uring *)w;
	long ret;

	if (u->event_fd >= 0)
		return u->event_fd;
	const int fd = (int)spr_sys(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return fd;
	ret = spr_sys(SYS_io_uring_register, u->ring.ring_fd, IORING_REGISTER_EVENTFD, &fd, 1);
	if (ret < 0) {
		spr_sys(SYS_close, fd);
		return (int)ret;
	}
	u->event_fd = fd;
	return fd;
}

/* The ring is taken apart in the background and, if a forked child holds it, late. A futex wait
 * left standing would swallow the wake that somebody else waits for: end each by a wake. */
static void uring_close(struct spr_waiter *w)
{
	struct uring *u = (struct uring *)w;

	for (uint32_t i = 0; i < u->n_standing; i++) {
		if (u->standing[i])
			spr_sys(SYS_futex, u->standing[i], FUTEX_WAKE, 1);
	}
	if (u->broken == -EBADF) /* somebody closed it under us; the number may be theirs by now */
		u->ring.ring_fd = u->ring.enter_ring_fd = -1;
	io_uring_queue_exit(&u->ring);
	if (u->event_fd >= 0)
		spr_sys(SYS_close, u->event_fd);
	free(u->standing);
	free(u);
}

static const struct spr_waiter_ops uring_ops = {
	.name = "io_uring",
	.listen = uring_listen,
	.watch = uring_watch,
	.unwatch = uring_unwatch,
	.read = uring_read,
	.wait = uring_wait,
	.fd = uring_fd,
	.close = uring_close,
};

/* A ring of `entries`, smaller where locked memory is short (before 5.12 it counts). */
static int uring_make(struct uring *u, unsigned setup_flags)
{
	struct io_uring_params params;
	unsigned entries = ENTRIES;
	long fd;

	do {
		memset(&params, 0, sizeof(params));
		params.flags = setup_flags;
		fd = uring_setup(entries, &params);
	} while (fd == -ENOMEM && (entries /= 2) >= ENTRIES_FLOOR);
	if (fd < 0)
		return (int)fd;
	const unsigned want = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
	int ret = (params.features & want) == want ? 0 : -ENOSYS;
	if (!ret)
		ret = io_uring_queue_mmap((int)fd, &params, &u->ring);
	if (ret) {
		spr_sys(SYS_close, fd);
		return ret;
	}
	for (unsigned i = 0; i < params.sq_entries; i++)
		u->ring.sq.array[i] = i;
	io_uring_ring_dontfork(&u->ring);
	return 0;
}

/* Does a wake of a shared word arrive through this ring, and does the wait leave with it? */
static bool uring_hears(struct uring *u)
{
	_Atomic uint32_t *word;
	bool heard = false;

	if (spr_disabled("io_uring_futex"))
		return false;
	const long page = spr_sys(SYS_mmap, NULL, sizeof(*word), PROT_READ | PROT_WRITE,
	                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page < 0)
		return false;
	word = (_Atomic uint32_t *)page;
	if (!uring_listen(&u->base, 0, word, 0) && uring_wait(&u->base, 0) >= 0 && u->standing[0]) {
		spr_store_relaxed(word, 1);
		heard = spr_sys(SYS_futex, word, FUTEX_WAKE, 1) == 1;
		/* More than one wait: the wake descriptor may be ready as well. */
		for (int i = 0; i < 3 && u->standing[0] && uring_wait(&u->base, TEST_NS) > 0; i++)
			continue;
		heard = heard && !u->standing[0];
	}
	if (u->n_standing && u->standing[0]) {
		spr_sys(SYS_futex, word, FUTEX_WAKE, 1);
		u->standing[0] = NULL;
	}
	spr_sys(SYS_munmap, page, sizeof(*word));
	return heard;
}

/* Before 6.1 the kernel knows no DEFER_TASKRUN; `moves`: the collector changes threads often. */
static int uring_make_best(struct uring *u, bool moves)
{
	const unsigned alone = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
	                       IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;
	const int ret = moves ? -EINVAL : uring_make(u, alone);

	return ret == -EINVAL ? uring_make(u, 0) : ret;
}

int spr_collector_uring_open(struct spr_waiter **out, int wake_fd, bool moves)
{
	struct uring *u;
	int ret;

	if (spr_disabled("io_uring"))
		return -ENOTSUP;
	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->base.ops = &uring_ops;
	u->base.wake_fd = wake_fd;
	u->read_fd = u->event_fd = -1;
	ret = uring_make_best(u, moves);
	if (ret) {
		free(u);
		return ret;
	}
	u->base.hears_words = uring_hears(u);
	/* Setting a ring up and being allowed to use it are two things to a sandbox. */
	ret = uring_wait(&u->base, 0);
	if (ret < 0) {
		uring_close(&u->base);
		return ret;
	}
	*out = &u->base;
	return 0;
}

#endif /* SPR_NO_URING */
