/* SPDX-License-Identifier: MIT */
/* progress.c - a line that says how far a long reading is. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define FIRST_NS 1000000000u
#define NEXT_NS  200000000u
#define STRIDE   16384u /* records between two looks at the clock */

void spr_cli_progress_open(struct spr_cli_progress *p, bool quiet)
{
	*p = (struct spr_cli_progress){
		.wanted = isatty(STDERR_FILENO) && (quiet || !isatty(STDOUT_FILENO)),
		.next_ns = spr_clock_monotonic_ns() + FIRST_NS,
	};
}

void spr_cli_progress_step(struct spr_cli_progress *p, uint64_t n_read)
{
	if (!p->wanted || n_read % STRIDE)
		return;
	const uint64_t now_ns = spr_clock_monotonic_ns();
	if (now_ns < p->next_ns)
		return;
	p->next_ns = now_ns + NEXT_NS;
	p->shown = true;
	fprintf(stderr, "\rsparring: %" PRIu64 " records read ...", n_read);
	fflush(stderr);
}

void spr_cli_progress_close(struct spr_cli_progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = p->wanted = false;
}
