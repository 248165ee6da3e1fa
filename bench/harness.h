/* SPDX-License-Identifier: MIT */
/*
 * harness.h - how every bench measures: arms, interleaved in rounds, compared within a round.
 *
 * Two cores of a virtual machine drift by a third within a minute, so no figure is compared with
 * one from another minute: a round measures each arm once, in an order shuffled by a printed seed,
 * each in a process of its own; a ratio is taken within the round, and the median of these ratios
 * is what counts. A figure is never a pass mark. A row that could not be measured is: then the
 * program ends with status 1.
 */
#ifndef SPR_BENCH_HARNESS_H
#define SPR_BENCH_HARNESS_H

#include <stdbool.h>
#include <stdint.h>

#define SPR_BENCH_FIGURES 6

/* What an arm yields; the key is its name in --json. */
struct spr_bench_figure {
	const char *key;  /* "ns_per_record" */
	const char *text; /* "ns/record", the column's head */
};

struct spr_bench_arm {
	const char *name; /* unique within the group */
	/* In the arm's own process. Fills in figures (NAN: has none); 0 or -errno with
	 * spr_bench_say(). What it starts must be dead or reaped when it returns. */
	int (*measure)(const struct spr_bench_arm *arm, double *figures);
	const void *arg;
	const char *transport, *mode; /* for --json */
	unsigned    record_bytes, writers;
	/* Why this machine cannot have the arm, a sentence; NULL if it can. May be NULL itself. */
	const char *(*missing)(const struct spr_bench_arm *arm);
};

/* value = (a - a_less) / (b + b_more - b_less), all of one round; without b the difference. */
struct spr_bench_claim {
	const char *what;
	unsigned    figure;
	const char *a, *a_less;
	const char *b, *b_more, *b_less;
	enum { SPR_BENCH_ONLY_SAY, SPR_BENCH_AT_MOST, SPR_BENCH_AT_LEAST } want;
	double      target;
};

struct spr_bench_group {
	const char *name;     /* "burst": --only burst */
	const char *question; /* the head line */
	const char *floor;    /* the arm that figure 0 is compared with, or NULL */
	unsigned    rounds;   /* default */
	unsigned    limit_s;  /* an arm that takes longer hangs, and is ended; 0: 60 s */
	const struct spr_bench_figure *figures;
	unsigned n_figures;
	const struct spr_bench_arm *arms;
	unsigned n_arms;
	const struct spr_bench_claim *claims;
	unsigned n_claims;
};

/* Options: --rounds N --seed N --only GROUP --arm TEXT --pin --json[=FILE] --list --help. Exit
 * status: 0, 1 a row could not be measured, 64 wrong usage. */
int spr_bench_main(const char *program, const struct spr_bench_group *groups, unsigned n_groups,
                   int argc, char **argv);

/* Why this arm failed: printed once, beside its name. Returns err. */
int spr_bench_say(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* With --pin, or must: to CPU idx modulo the CPUs there are. Else nothing. */
void spr_bench_pin(unsigned idx, bool must);

/* CLOCK_MONOTONIC. */
double spr_bench_now_ns(void);

/* The program's own path, to find its neighbours in build/. */
const char *spr_bench_dir(void);

/* A folder on ext4 (or whatever /var/tmp is) or tmpfs, made for this run and removed at its end;
 * NULL if there is none. */
const char *spr_bench_disk(void);
const char *spr_bench_tmpfs(void);

#define SPR_BENCH_N(array) ((unsigned)(sizeof(array) / sizeof((array)[0])))

#endif /* SPR_BENCH_HARNESS_H */
