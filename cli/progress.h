/* SPDX-License-Identifier: MIT */
/*
 * progress.h - a line that says how far a long reading is, for a person who waits.
 *
 * Only where standard error is a terminal and standard output is none (else the records themselves
 * show it), and only after a second. Taken away again before anything else is said.
 */
#ifndef SPR_CLI_PROGRESS_H
#define SPR_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct spr_cli_progress {
	bool     wanted, shown;
	uint64_t next_ns;
};

/* quiet: the output comes at the end, so a terminal there shows nothing meanwhile. */
void spr_cli_progress_open(struct spr_cli_progress *p, bool quiet);
/* To be called often: looks at the clock once in a while. */
void spr_cli_progress_step(struct spr_cli_progress *p, uint64_t n_read);
void spr_cli_progress_close(struct spr_cli_progress *p);

#endif /* SPR_CLI_PROGRESS_H */
