/* SPDX-License-Identifier: MIT */
/*
 * guard.c - survive somebody who truncates the file under our mapping.
 *
 * A fault in a guarded mapping gets a page of zeros laid over it and goes on; the reader finds
 * nonsense there, which it is used to. Every other SIGBUS is handed to whoever had it before.
 *
 *   | GUARD | add: at, after bytes | handler: at | the range it may patch |
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "shm/ring.h"

#define GUARDS_MAX 64

struct guard {
	_Atomic uintptr_t at; /* 0: unused */
	size_t bytes;
	_Atomic uint32_t torn;
};
static struct guard guards[GUARDS_MAX];
static struct sigaction before;
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed;

static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
	} else {
		/* The instruction runs again and finds the default action. */
		struct sigaction fall = { .sa_handler = SIG_DFL };

		sigaction(SIGBUS, &fall, NULL);
	}
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
	const uintptr_t at = (uintptr_t)info->si_addr;

	for (int i = 0; i < GUARDS_MAX; i++) {
		const uintptr_t from = spr_load_acquire(&guards[i].at); /* [GUARD] */

		if (!from || at - from >= guards[i].bytes)
			continue;
		spr_store_relaxed(&guards[i].torn, 1);
		if (spr_sys(SYS_mmap, at & ~4095ul, 4096, PROT_READ | PROT_WRITE,
		            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) >= 0)
			return;
	}
	pass_on(sig, info, context);
}

int spr_shm_guard_add(void *map, size_t bytes)
{
	int err = -ENOSPC;

	pthread_mutex_lock(&install_lock);
	if (!installed) {
		struct sigaction action = { .sa_flags = SA_SIGINFO | SA_NODEFER };

		action.sa_sigaction = on_bus;
		if (sigaction(SIGBUS, &action, &before) == 0)
			installed = true;
	}
	for (int i = 0; installed && err && i < GUARDS_MAX; i++) {
		if (spr_load_relaxed(&guards[i].at))
			continue;
		guards[i].bytes = bytes;
		spr_store_relaxed(&guards[i].torn, 0);
		spr_store_release(&guards[i].at, (uintptr_t)map); /* [GUARD] */
		err = 0;
	}
	pthread_mutex_unlock(&install_lock);
	return err;
}

static struct guard *guard_of(void *map)
{
	for (int i = 0; i < GUARDS_MAX; i++) {
		if (spr_load_relaxed(&guards[i].at) == (uintptr_t)map)
			return &guards[i];
	}
	return NULL;
}

void spr_shm_guard_remove(void *map)
{
	struct guard *guard = guard_of(map);

	if (guard)
		spr_store_relaxed(&guard->at, 0);
}

bool spr_shm_guard_torn(void *map)
{
	struct guard *guard = guard_of(map);

	return guard && spr_load_relaxed(&guard->torn);
}
