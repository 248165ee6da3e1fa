/* SPDX-License-Identifier: MIT */
/*
 * listener.c - a thread that turns a futex into a knock, where one wait cannot cover both.
 *
 * It needs no word from the collector: the ring's word changes only when a writer found the bell
 * armed, so the thread sleeps on the word for good and passes every change on. A change that came
 * before the collector armed costs it one pass too many, none is lost: the thread compares with
 * what it last passed on, not with what it finds when it goes to sleep.
 *
 * Pairs ([BELL] is in shm/layout.h):
 *   [STOP]   stop: store by stop()           load by the thread          that it is to end
 *   [ENDED]  ended: store by the thread      load by stop()              its last use of *l
 */
#include "collector/waiter.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/error.h"
#include "base/sys.h"

#define STACK_BYTES (256u * 1024) /* sanitizers need most of it */

struct spr_listener {
	pthread_t         thread;
	_Atomic uint32_t *word;
	uint32_t          passed_on; /* the thread's own */
	void (*heard)(void *arg);
	void             *arg;
	_Atomic uint32_t  stop;
	_Atomic uint32_t  ended; /* a futex */
};

static void *listener_run(void *arg)
{
	struct spr_listener *l = arg;

	spr_sys(SYS_prctl, PR_SET_NAME, "spr-listener");
	while (!spr_load_acquire(&l->stop)) { /* [STOP] */
		const uint32_t now = spr_load_acquire(l->word); /* [BELL] */
		if (now != l->passed_on) {
			l->passed_on = now;
			l->heard(l->arg);
			continue;
		}
		const long ret = spr_sys(SYS_futex, l->word, FUTEX_WAIT, l->passed_on, NULL);
		if (ret < 0 && ret != -EAGAIN && ret != -EINTR)
			break; /* no futex for us: the collector's backstop is what remains */
	}
	spr_store_release(&l->ended, 1); /* [ENDED] */
	spr_sys(SYS_futex, &l->ended, FUTEX_WAKE_PRIVATE, 1);
	return NULL;
}

int spr_collector_listener_start(struct spr_listener **out, _Atomic uint32_t *word,
                                 void (*heard)(void *arg), void *arg)
{
	struct spr_listener *l = calloc(1, sizeof(*l));
	pthread_attr_t attr;
	sigset_t all, before;
	int err;

	if (!l)
		return spr_fail(-ENOMEM, "no memory for a listener thread");
	l->word = word;
	l->heard = heard;
	l->arg = arg;
	l->passed_on = spr_load_relaxed(word);

	/* The application's signals are not for this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	err = pthread_create(&l->thread, &attr, listener_run, l);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		free(l);
		return spr_fail_sys(-err, "cannot start a thread to listen for writers");
	}
	*out = l;
	return 0;
}

/* The thread may be between its look at `stop` and its sleep, and the word is not ours to change:
 * so wake it until it says that it has ended. */
void spr_collector_listener_stop(struct spr_listener *l)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (!l)
		return;
	spr_store_release(&l->stop, 1); /* [STOP] */
	while (!spr_load_acquire(&l->ended)) { /* [ENDED] */
		spr_sys(SYS_futex, l->word, FUTEX_WAKE, INT32_MAX);
		spr_sys(SYS_futex, &l->ended, FUTEX_WAIT_PRIVATE, 0, &pause);
	}
	pthread_join(l->thread, NULL);
	free(l);
}
