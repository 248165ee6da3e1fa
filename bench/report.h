/* SPDX-License-Identifier: MIT */
/* report.h - what a bench found, as a table for people and as JSON. */
#ifndef SPR_BENCH_REPORT_H
#define SPR_BENCH_REPORT_H

#include <stdio.h>

#include "bench/harness.h"

/* All that was measured of one group. */
struct spr_bench_found {
	const struct spr_bench_group *group;
	unsigned rounds;
	uint64_t seed;
	double  *values;       /* [round][arm][figure], NAN where there is none */
	char   (*failed)[256]; /* per arm: why it has no row, or "" */
	bool    *left_out;     /* per arm: this machine lacks something, failed says what */
};

/* Why an arm has no row that --arm did not name: it is not spoken of. */
#define SPR_BENCH_NOT_ASKED "not asked for"

double spr_bench_value(const struct spr_bench_found *found, unsigned round, unsigned arm,
                       unsigned figure);

void spr_bench_print_table(FILE *out, const struct spr_bench_found *found);
/* One object: machine, and the rows and claims of all groups. */
void spr_bench_print_json(FILE *out, const char *program, const struct spr_bench_found *found,
                          unsigned n_found);

#endif /* SPR_BENCH_REPORT_H */
