/* SPDX-License-Identifier: MIT */
/*
 * plain.c - the waiter without io_uring: epoll for descriptors; words are heard by listener
 * threads that knock at the wake descriptor.
 *
 * epoll rather than poll(2), because its own descriptor is then what an outer loop can wait for,
 * and because ten thousand watched processes are not to be told to the kernel at every sleep.
 */
#include "collector/waiter.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/error.h"
#include "base/sys.h"

#define TAG_WAKE UINT64_MAX
#define N_EVENTS 64

struct plain {
	struct spr_waiter base;
	int epoll_fd;
};

static long epoll_change(const struct plain *p, int op, int fd, uint32_t events, uint64_t tag)
{
	struct epoll_event event = { .events = events, .data = { .u64 = tag } };

	return spr_sys(SYS_epoll_ctl, p->epoll_fd, op, fd, &event);
}

static int plain_listen(struct spr_waiter *w, uint32_t idx, _Atomic uint32_t *word, uint32_t seen)
{
	(void)w;
	(void)idx;
	(void)word;
	(void)seen;
	return -ENOTSUP;
}

static int plain_watch(struct spr_waiter *w, int fd, uint32_t events, uint64_t tag)
{
	const struct plain *p = (struct plain *)w;
	const uint32_t once = events | EPOLLONESHOT;
	long ret = epoll_change(p, EPOLL_CTL_ADD, fd, once, tag);

	if (ret == -EEXIST) /* it fired before and waits to be armed again */
		ret = epoll_change(p, EPOLL_CTL_MOD, fd, once, tag);
	if (ret == -EPERM) { /* a regular file is always ready, as poll(2) has it */
		w->fired(w->arg, tag, events & (POLLIN | POLLOUT));
		ret = 0;
	}
	return (int)ret;
}

static void plain_unwatch(struct spr_waiter *w, int fd, uint64_t tag)
{
	(void)tag;
	epoll_change((struct plain *)w, EPOLL_CTL_DEL, fd, 0, 0);
}

int64_t spr_collector_plain_read(int fd, void *buf, size_t n, uint64_t at)
{
	long ret;

	do
		ret = spr_sys(SYS_pread64, fd, buf, n, at);
	while (ret == -EINTR);
	return ret;
}

static int64_t plain_read(struct spr_waiter *w, int fd, void *buf, size_t n, uint64_t at)
{
	(void)w;
	return spr_collector_plain_read(fd, buf, n, at);
}

void spr_collector_plain_hush(int wake_fd)
{
	uint64_t count;

	spr_sys(SYS_read, wake_fd, &count, sizeof(count));
}

/* epoll_wait counts in milliseconds and naps are shorter, so ppoll does the waiting. */
static int plain_sleep(const struct plain *p, uint64_t timeout_ns)
{
	struct pollfd fd = { .fd = p->epoll_fd, .events = POLLIN };
	struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000),
	                            .tv_nsec = (long)(timeout_ns % 1000000000) };

	return (int)spr_sys(SYS_ppoll, &fd, 1, timeout_ns == SPR_WAIT_FOREVER ? NULL : &timeout,
	                    NULL, 0);
}

static int plain_wait(struct spr_waiter *w, uint64_t timeout_ns)
{
	const struct plain *p = (struct plain *)w;
	struct epoll_event events[N_EVENTS];
	long n = timeout_ns ? plain_sleep(p, timeout_ns) : 1;

	if (n > 0)
		n = spr_sys(SYS_epoll_pwait, p->epoll_fd, events, N_EVENTS, 0, NULL, 0);
	if (n < 0)
		return n == -EINTR ? 0 : (int)n;
	for (long i = 0; i < n; i++) {
		if (events[i].data.u64 == TAG_WAKE)
			spr_collector_plain_hush(w->wake_fd);
		else
			w->fired(w->arg, events[i].data.u64, events[i].events);
	}
	return n > 0;
}

static int plain_fd(struct spr_waiter *w)
{
	return ((const struct plain *)w)->epoll_fd;
}

static void plain_close(struct spr_waiter *w)
{
	struct plain *p = (struct plain *)w;

	if (p->epoll_fd >= 0)
		spr_sys(SYS_close, p->epoll_fd);
	free(p);
}

static const struct spr_waiter_ops plain_ops = {
	.name = "plain",
	.listen = plain_listen,
	.watch = plain_watch,
	.unwatch = plain_unwatch,
	.read = plain_read,
	.wait = plain_wait,
	.fd = plain_fd,
	.close = plain_close,
};

int spr_collector_plain_open(struct spr_waiter **out, int wake_fd)
{
	struct plain *p = calloc(1, sizeof(*p));
	long ret;

	if (!p)
		return spr_fail(-ENOMEM, "no memory for a collector");
	p->base.ops = &plain_ops;
	p->base.wake_fd = wake_fd;
	ret = spr_sys(SYS_epoll_create1, EPOLL_CLOEXEC);
	p->epoll_fd = (int)ret;
	if (ret >= 0)
		ret = epoll_change(p, EPOLL_CTL_ADD, wake_fd, EPOLLIN, TAG_WAKE);
	if (ret < 0) {
		plain_close(&p->base);
		return spr_fail_sys((int)ret, "cannot make an epoll descriptor for a collector");
	}
	*out = &p->base;
	return 0;
}
