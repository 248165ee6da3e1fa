/* SPDX-License-Identifier: MIT */
/* probe.c - the list of features, each with a test that tries the thing itself. */
#include "base/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "base/sys.h"

/* Read once: a target of ours may rewrite its environment while we look. */
static pthread_once_t disabled_once = PTHREAD_ONCE_INIT;
static char disabled[512];

static void disabled_read(void)
{
	const char *given = getenv("SPARRING_DISABLE");

	for (size_t i = 0; given && given[i] && i < sizeof(disabled) - 1; i++)
		disabled[i] = given[i];
}

bool spr_disabled(const char *name)
{
	const size_t n = strlen(name);

	pthread_once(&disabled_once, disabled_read);
	for (const char *at = disabled; *at;) {
		const size_t word = strcspn(at, ", ");

		if (word == n && memcmp(at, name, n) == 0)
			return true;
		at += word;
		at += strspn(at, ", ");
	}
	return false;
}

static int not_built(void)
{
	spr_fail(0, "this version of the library is built without it");
	return 0;
}

static int always(void)
{
	return 1;
}

/* The error of a system call as a feature's answer. */
static int refused(long err, const char *call)
{
	return spr_fail_sys((int)err, "%s", call);
}

static int io_uring_refused(long err)
{
	char text[4] = "";
	const int fd = (int)spr_sys(SYS_openat, AT_FDCWD, "/proc/sys/kernel/io_uring_disabled",
	                            O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		spr_sys(SYS_read, fd, text, sizeof(text) - 1);
		spr_sys(SYS_close, fd);
	}
	if (err == -EPERM && (text[0] == '1' || text[0] == '2'))
		return spr_fail(-EPERM, "the sysctl kernel.io_uring_disabled is %c", text[0]);
	if (err == -EPERM || err == -EACCES)
		return spr_fail((int)err,
		                "io_uring_setup is refused, by a sandbox's filter or policy");
	if (err == -ENOSYS)
		return spr_fail(-ENOSYS, "no io_uring in this kernel, or a sandbox hides it");
	return refused(err, "io_uring_setup");
}

/* A ring as small as they come; its descriptor, or -errno with a sentence. */
static int io_uring_open(void)
{
	struct io_uring_params params;

	memset(&params, 0, sizeof(params));
	const long fd = spr_sys(SYS_io_uring_setup, 1, &params);
	return fd < 0 ? io_uring_refused(fd) : (int)fd;
}

static int test_io_uring(void)
{
	const int fd = io_uring_open();

	if (fd < 0)
		return fd;
	/* A sandbox may let a ring be made and refuse its use. */
	const long entered = spr_sys(SYS_io_uring_enter, fd, 0, 0, 0, NULL, 0);
	spr_sys(SYS_close, fd);
	return entered < 0 ? refused(entered, "io_uring_enter") : 1;
}

static int test_io_uring_op(unsigned op)
{
	_Alignas(struct io_uring_probe) char
		room[sizeof(struct io_uring_probe) + 256 * sizeof(struct io_uring_probe_op)];
	struct io_uring_probe *probe = (struct io_uring_probe *)room;
	int fd;

	if (spr_disabled("io_uring"))
		return spr_fail(-ENOTSUP, "io_uring is switched off by SPARRING_DISABLE");
	fd = io_uring_open();
	if (fd < 0)
		return fd;
	memset(room, 0, sizeof(room));
	const long ret = spr_sys(SYS_io_uring_register, fd, IORING_REGISTER_PROBE, probe, 256);
	spr_sys(SYS_close, fd);
	if (ret < 0)
		return refused(ret, "io_uring_register(PROBE)");
	if (op > probe->last_op || !(probe->ops[op].flags & IO_URING_OP_SUPPORTED))
		return spr_fail(-ENOSYS, "this kernel's io_uring has no operation %u (Linux 6.7)",
		                op);
	return 1;
}

static int test_io_uring_futex(void)
{
	return test_io_uring_op(SPR_IORING_OP_FUTEX_WAIT);
}

static int test_io_uring_multishot(void)
{
	return test_io_uring_op(SPR_IORING_OP_READ_MULTISHOT);
}

static int test_membarrier(void)
{
	const long have = spr_sys(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
	const long want = MEMBARRIER_CMD_GLOBAL_EXPEDITED |
	                  MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;

	if (have < 0)
		return refused(have, "membarrier");
	if ((have & want) != want)
		return spr_fail(-ENOSYS, "membarrier has no expedited global command here");
	return 1;
}

static int test_populate(void)
{
	const long at = spr_sys(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE,
	                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at < 0 && at > -4096)
		return refused(at, "mmap");
	const long ret = spr_sys(SYS_madvise, at, 4096, MADV_POPULATE_WRITE);
	spr_sys(SYS_munmap, at, 4096);
	return ret < 0 ? refused(ret, "madvise(MADV_POPULATE_WRITE), Linux 5.14") : 1;
}

/* A nameless file in memory, of two pages. */
static int memory_file(void)
{
	const long fd = spr_sys(SYS_memfd_create, "sparring-probe", 1 /* MFD_CLOEXEC */);

	if (fd < 0)
		return refused(fd, "memfd_create");
	const long ret = spr_sys(SYS_fallocate, fd, 0, 0, 8192);
	if (ret < 0) {
		spr_sys(SYS_close, fd);
		return refused(ret, "fallocate");
	}
	return (int)fd;
}

static int test_punch(void)
{
	const int fd = memory_file();

	if (fd < 0)
		return fd;
	const long ret = spr_sys(SYS_fallocate, fd, 3 /* KEEP_SIZE | PUNCH_HOLE */, 0, 4096);
	spr_sys(SYS_close, fd);
	return ret < 0 ? refused(ret, "fallocate(FALLOC_FL_PUNCH_HOLE)") : 1;
}

static int test_ofd_lock(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
	const int fd = memory_file();

	if (fd < 0)
		return fd;
	const long ret = spr_sys(SYS_fcntl, fd, F_OFD_SETLK, &lock);
	spr_sys(SYS_close, fd);
	return ret < 0 ? refused(ret, "fcntl(F_OFD_SETLK)") : 1;
}

static int test_tsc(void)
{
	struct spr_clock clock;

	spr_clock_init(&clock);
	if (clock.kind != SPR_CLOCK_TSC)
		return spr_fail(-ENODEV, "the time stamp counter is not invariant, not the "
		                         "kernel's clock source, or disagrees with the clock");
	return 1;
}

static int test_pidfd(void)
{
	const long fd = spr_sys(SYS_pidfd_open, spr_sys(SYS_getpid), 0);

	if (fd < 0)
		return refused(fd, "pidfd_open");
	spr_sys(SYS_close, fd);
	return 1;
}

/* Called with nonsense: a kernel that knows the call says EINVAL. */
static int test_futex_waitv(void)
{
	const long ret = spr_sys(SYS_futex_waitv, NULL, 0, 0, NULL, 0);

	return ret == -EINVAL ? 1 : refused(ret, "futex_waitv, Linux 5.16");
}

const struct spr_feature spr_features[] = {
	{ "ring", "transport ring: through shared memory, one small ring per thread", always },
	{ "arena", "transport arena: one shared append-only area", not_built },
	{ "pipe", "transport pipe: a pair of FIFOs per client", not_built },
	{ "unix", "transport unix: a stream socket", not_built },
	{ "bpf", "transport bpf: the kernel's ring buffer, and what stands on it", not_built },
	{ "io_uring", "one ring for all that the collector waits for; without: plain calls",
	  test_io_uring },
	{ "io_uring_futex", "waiting for the doorbell in that ring; without: a small thread",
	  test_io_uring_futex },
	{ "io_uring_multishot", "one request reads a pipe to its end; without: one per read",
	  test_io_uring_multishot },
	{ "membarrier", "records without a fence; without: about 9 ns more for each",
	  test_membarrier },
	{ "populate", "room is made before it is touched; without: page by page, by a futex call",
	  test_populate },
	{ "punch", "space of a drained backlog is given back; without: kept for reuse",
	  test_punch },
	{ "ofd_lock", "a lock that ends with its process tells the dead; without: no ring",
	  test_ofd_lock },
	{ "tsc", "stamps from the time stamp counter; without: clock_gettime, slower", test_tsc },
	{ "pidfd", "a process's death is seen at once; without: at the next look", test_pidfd },
	{ "futex_waitv", "one wait for several words; without: one thread per word",
	  test_futex_waitv },
	{ NULL, NULL, NULL },
};

int spr_probe(const char *feature)
{
	if (!feature)
		return spr_fail(-EINVAL, "no feature named");
	for (const struct spr_feature *f = spr_features; f->name; f++) {
		if (strcmp(f->name, feature) != 0)
			continue;
		if (spr_disabled(f->name))
			return spr_fail(-ENOTSUP, "%s is switched off by SPARRING_DISABLE",
			                f->name);
		spr_fail_clear();
		return f->test();
	}
	return spr_fail(-EINVAL, "%s: no such feature (sparring probe lists them)", feature);
}
