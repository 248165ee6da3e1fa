/* SPDX-License-Identifier: MIT */
/*
 * files_attach.c - becoming part of a recording, in silence, or staying out of it.
 *
 * The library asks to be initialised before all others (-z initfirst), so that their constructors
 * are seen; where the loader does not grant that, the first hooked call attaches. What stands in
 * the environment may be missing, old or garbage: then nothing happens at all.
 *
 * The pair of this file:
 *   [STAGE]  the state is filled in before the stage is ON
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "spy/files.h"

struct spr_spy spr_spy_state;

/* NONE --first call: CAS--> BUSY --attached--> ON
 *                            \--could not--> OFF       both are final */
enum stage { NONE, BUSY, ON, OFF };
static _Atomic uint32_t stage;
static _Atomic uint32_t missed; /* calls while another thread, or we below it, was attaching */

/* Whole pages of this library's zeroed memory: as anonymous as a mapping, and there already. */
static struct spr_spy_page page __attribute__((aligned(4096)));
_Static_assert(sizeof(page) % 4096 == 0, "nothing of others is wiped with it");

/* The caller has made `address` a string of its own. */
static void attach_one(struct spr_spy *spy, const char *address)
{
	struct spr_spy_channel *ch = &spy->channel[spy->n_channels];
	int process, file, result;

	if (spy->n_channels == SPR_SPY_CHANNELS_MAX || spr_attach(&ch->producer, address) < 0)
		return;
	process = spr_kind_find(ch->producer, "process");
	file = spr_kind_find(ch->producer, "file");
	result = spr_kind_find(ch->producer, "result");
	if (process < 0 || file < 0 || result < 0) {
		spr_detach(ch->producer);
		return;
	}
	ch->kind_process = (uint32_t)process;
	ch->kind_file = (uint32_t)file;
	ch->kind_result = (uint32_t)result;
	spy->n_channels++;
}

/* One address a line. */
static void attach_all(struct spr_spy *spy, const char *addresses)
{
	char *line = (char *)addresses; /* in our own copy */

	while (*line) {
		char *end = strchrnul(line, '\n');
		const char kept = *end;

		*end = '\0';
		if (*line)
			attach_one(spy, line);
		*end = kept;
		line = kept ? end + 1 : end;
	}
}

static bool option_has(const char *options, const char *word)
{
	const size_t n = strlen(word);

	while (options && *options) {
		const size_t len = strcspn(options, ",");

		if (len == n && memcmp(options, word, n) == 0)
			return true;
		options += len + (options[len] == ',');
	}
	return false;
}

static bool attach(char **argv, char *const *envp)
{
	struct spr_spy *spy = &spr_spy_state;
	const char *options = envp ? spr_spy_env_get(envp, "SPARRING_SPY") : NULL;

	if (!envp || option_has(options, "confined") || spr_spy_env_keep(envp) < 0)
		return false;
	if (spr_sys(SYS_madvise, &page, sizeof(page), MADV_WIPEONFORK) < 0)
		return false;
	spy->page = &page;
	spy->no_argv = option_has(options, "no-argv");
	const char *preload = spr_spy_env_get(envp, "LD_PRELOAD");
	spy->emulated = preload && strstr(preload, "/vgpreload_");
	attach_all(spy, spr_spy_env_channels());
	if (!spy->n_channels)
		return false;
	spr_spy_born(spy, argv);
	spr_store_relaxed(&spy->simple, spy->n_channels == 1);
	return true;
}

static void begin(char **argv, char *const *envp)
{
	uint32_t found = NONE;

	if (!spr_cas_acquire(&stage, &found, BUSY)) { /* [STAGE] */
		if (found == BUSY)
			spr_add_relaxed(&missed, 1);
		return;
	}
	if (!attach(argv, envp)) {
		spr_store_release(&stage, OFF); /* [STAGE] */
		return;
	}
	spr_store_release(&stage, ON); /* [STAGE] */
	if (spr_load_relaxed(&missed))
		spr_spy_blind(&spr_spy_state, 0, "attaching", "calls before the recording began");
}

struct spr_spy *spr_spy_here(void)
{
	uint32_t now = spr_load_acquire(&stage); /* [STAGE] */

	if (spr_unlikely(now < ON)) {
		begin(NULL, &environ ? environ : NULL);
		now = spr_load_acquire(&stage); /* [STAGE] */
	}
	if (spr_unlikely(now != ON))
		return NULL;
	if (spr_unlikely(!spr_load_relaxed(&spr_spy_state.page->pid)))
		spr_spy_born(&spr_spy_state, NULL);
	return &spr_spy_state;
}

/* A forked child has one thread; it comes here before its first record. */
void spr_spy_born(struct spr_spy *spy, char *const *argv)
{
	const bool may_ask = !spr_load_relaxed(&spy->confined);

	spr_store_relaxed(&spy->page->pid, may_ask ? (uint32_t)spr_sys(SYS_getpid) : UINT32_MAX);
	spr_spy_life(spy, NULL, 0, SPR_PROCESS_START, SPR_NO_FD, NULL, argv);
}

uint32_t spr_spy_borrower(const struct spr_spy *spy)
{
	uint32_t pid;

	if (spr_load_relaxed(&spy->confined))
		return 0;
	pid = (uint32_t)spr_sys(SYS_getpid);
	return pid == spr_load_relaxed(&spy->page->pid) ? 0 : pid;
}

void spr_spy_blind(struct spr_spy *spy, uint32_t pid, const char *reason, const char *text)
{
	for (uint32_t i = 0; i < spy->n_channels; i++)
		spr_producer_blind(spy->channel[i].producer, pid, reason, text);
}

__attribute__((constructor)) static void loaded(int argc, char **argv, char **envp)
{
	spr_spy_next_rename();
	/* glibc's loader hands these to constructors, others hand over nothing. */
	if (argc > 0 && spr_spy_pointer_ok(argv) && envp == argv + argc + 1)
		begin(argv, envp);
	else
		spr_spy_here();
}
