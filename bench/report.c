/* SPDX-License-Identifier: MIT */
/* report.c - the table for people, the JSON for programs. */
#include "bench/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/escape.h"
#include "bench/stats.h"

double spr_bench_value(const struct spr_bench_found *found, unsigned round, unsigned arm,
                       unsigned figure)
{
	return found->values[(round * found->group->n_arms + arm) * SPR_BENCH_FIGURES + figure];
}

static struct spr_bench_median figure_median(const struct spr_bench_found *found, unsigned arm,
                                             unsigned figure)
{
	double *values = calloc(found->rounds, sizeof(*values));
	struct spr_bench_median out;

	for (unsigned i = 0; values && i < found->rounds; i++)
		values[i] = spr_bench_value(found, i, arm, figure);
	out = spr_bench_median_of(values, values ? found->rounds : 0);
	free(values);
	return out;
}

static double named_value(const struct spr_bench_found *found, unsigned round, const char *name,
                          unsigned figure)
{
	for (unsigned i = 0; name && i < found->group->n_arms; i++) {
		if (!strcmp(found->group->arms[i].name, name))
			return spr_bench_value(found, round, i, figure);
	}
	return name ? NAN : 0;
}

static struct spr_bench_median claim_median(const struct spr_bench_found *found,
                                            const struct spr_bench_claim *claim)
{
	double *values = calloc(found->rounds, sizeof(*values));
	struct spr_bench_median out;

	for (unsigned i = 0; values && i < found->rounds; i++) {
		const double over = named_value(found, i, claim->a, claim->figure) -
		                    named_value(found, i, claim->a_less, claim->figure);
		const double under = named_value(found, i, claim->b, claim->figure) +
		                     named_value(found, i, claim->b_more, claim->figure) -
		                     named_value(found, i, claim->b_less, claim->figure);

		values[i] = claim->b ? over / under : over;
	}
	out = spr_bench_median_of(values, values ? found->rounds : 0);
	free(values);
	return out;
}

/* 4 digits that matter, never an exponent. */
static const char *number(char *text, size_t room, double value)
{
	const double size = fabs(value);
	const int digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;

	snprintf(text, room, "%.*f", digits, value);
	return text;
}

static void cell_print(FILE *out, const struct spr_bench_median *m)
{
	char text[80], a[20], b[20], c[20];

	if (m->n)
		snprintf(text, sizeof(text), "%s [%s .. %s]%s", number(a, sizeof(a), m->median),
		         number(b, sizeof(b), m->low), number(c, sizeof(c), m->high),
		         m->sure ? "" : "?");
	else
		snprintf(text, sizeof(text), "-");
	fprintf(out, " %27s", text);
}

static const char *claim_verdict(const struct spr_bench_claim *claim, double got)
{
	if (isnan(got))
		return "not measured";
	if (claim->want == SPR_BENCH_ONLY_SAY)
		return "";
	if (claim->want == SPR_BENCH_AT_MOST)
		return got <= claim->target ? "reached" : "NOT reached";
	return got >= claim->target ? "reached" : "NOT reached";
}

static bool claim_unasked(const struct spr_bench_found *found, const struct spr_bench_claim *claim)
{
	const char *const names[] = { claim->a, claim->a_less, claim->b, claim->b_more,
		                      claim->b_less };

	for (unsigned i = 0; i < found->group->n_arms; i++) {
		if (strcmp(found->failed[i], SPR_BENCH_NOT_ASKED) != 0)
			continue;
		for (unsigned k = 0; k < 5; k++) {
			if (names[k] && !strcmp(names[k], found->group->arms[i].name))
				return true;
		}
	}
	return false;
}

static void claims_print(FILE *out, const struct spr_bench_found *found)
{
	const struct spr_bench_group *group = found->group;
	static const char *const words[] = { "", "at most", "at least" };
	char text[20];

	if (group->n_claims)
		fprintf(out, "  %-58s %27s\n", "compared within each round", "got");
	for (unsigned i = 0; i < group->n_claims; i++) {
		const struct spr_bench_claim *claim = &group->claims[i];
		const struct spr_bench_median m = claim_median(found, claim);

		if (!m.n && claim_unasked(found, claim))
			continue;
		fprintf(out, "  %-58s", claim->what);
		cell_print(out, &m);
		if (claim->want != SPR_BENCH_ONLY_SAY)
			fprintf(out, "  %s %s: %s", words[claim->want],
			        number(text, sizeof(text), claim->target),
			        claim_verdict(claim, m.median));
		fprintf(out, "\n");
	}
}

/* Reasons not to believe a row: its first round stands apart, or its interval is wide. */
static void warnings_print(FILE *out, const struct spr_bench_found *found)
{
	const struct spr_bench_group *group = found->group;
	unsigned n_wide = 0;

	for (unsigned arm = 0; arm < group->n_arms; arm++) {
		const struct spr_bench_median m = figure_median(found, arm, 0);
		const double first = spr_bench_value(found, 0, arm, 0);

		if (m.n < 3)
			continue;
		if (first > 2 * m.median || first < m.median / 2)
			fprintf(out, "  warning: %s: the first round was %.1f x the median\n",
			        group->arms[arm].name, first / m.median);
		n_wide += m.sure && m.high > 1.5 * m.low;
	}
	if (n_wide)
		fprintf(out,
		        "  warning: %u of %u arms have wide intervals (more than 1 : 1.5): trust "
		        "the comparisons, not the figures\n",
		        n_wide, group->n_arms);
}

void spr_bench_print_table(FILE *out, const struct spr_bench_found *found)
{
	const struct spr_bench_group *group = found->group;
	struct spr_bench_claim to_floor = { .figure = 0, .b = group->floor };

	fprintf(out, "\n%s: %s\n  %u rounds, seed %#llx; median [95 %% interval]; "
	        "?: too few rounds, the range\n", group->name, group->question, found->rounds,
	        (unsigned long long)found->seed);
	fprintf(out, "  %-34s", "");
	for (unsigned i = 0; i < group->n_figures; i++)
		fprintf(out, " %27s", group->figures[i].text);
	fprintf(out, group->floor ? " %27s\n" : "\n", "x the floor");
	for (unsigned arm = 0; arm < group->n_arms; arm++) {
		if (!strcmp(found->failed[arm], SPR_BENCH_NOT_ASKED))
			continue;
		fprintf(out, "  %-34s", group->arms[arm].name);
		if (found->failed[arm][0]) {
			fprintf(out, " %s: %s\n",
			        found->left_out[arm] ? "left out" : "NOT MEASURED",
			        found->failed[arm]);
			continue;
		}
		for (unsigned i = 0; i < group->n_figures; i++) {
			const struct spr_bench_median m = figure_median(found, arm, i);

			cell_print(out, &m);
		}
		if (group->floor) {
			to_floor.a = group->arms[arm].name;
			const struct spr_bench_median m = claim_median(found, &to_floor);

			cell_print(out, &m);
		}
		fprintf(out, "\n");
	}
	claims_print(out, found);
	warnings_print(out, found);
	fflush(out);
}

static void json_string(FILE *out, const char *text)
{
	char escaped[1024];

	spr_escape_json(escaped, sizeof(escaped), text, strlen(text));
	fprintf(out, "\"%s\"", escaped);
}

static void json_median(FILE *out, const char *key, const struct spr_bench_median *m)
{
	if (m->n)
		fprintf(out, ", \"%s\": {\"median\": %.6g, \"low\": %.6g, \"high\": %.6g, "
		        "\"n\": %zu}", key, m->median, m->low, m->high, m->n);
}

static void json_machine(FILE *out)
{
	struct utsname name;
	char line[256], cpu[256] = "";
	FILE *f = fopen("/proc/cpuinfo", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "model name : %255[^\n]", cpu) == 1)
			break;
	}
	if (f)
		fclose(f);
	uname(&name);
	fprintf(out, "\"machine\": {\"cpu\": ");
	json_string(out, cpu);
	fprintf(out, ", \"cpus\": %ld, \"kernel\": ", sysconf(_SC_NPROCESSORS_ONLN));
	json_string(out, name.release);
	fprintf(out, ", \"arch\": ");
	json_string(out, name.machine);
	fprintf(out, "}");
}

static void json_row(FILE *out, const struct spr_bench_found *found, unsigned arm)
{
	const struct spr_bench_group *group = found->group;
	const struct spr_bench_arm *a = &group->arms[arm];
	const struct spr_bench_claim to_floor = { .figure = 0, .a = group->floor };

	fprintf(out, "{\"group\": ");
	json_string(out, group->name);
	fprintf(out, ", \"name\": ");
	json_string(out, a->name);
	fprintf(out, ", \"transport\": ");
	json_string(out, a->transport ? a->transport : "");
	fprintf(out, ", \"mode\": ");
	json_string(out, a->mode ? a->mode : group->name);
	fprintf(out, ", \"record_bytes\": %u, \"writers\": %u, \"seed\": %llu", a->record_bytes,
	        a->writers, (unsigned long long)found->seed);
	for (unsigned i = 0; i < group->n_figures && !found->failed[arm][0]; i++) {
		const struct spr_bench_median m = figure_median(found, arm, i);

		json_median(out, group->figures[i].key, &m);
	}
	if (group->floor) {
		const struct spr_bench_median m = claim_median(found, &to_floor);

		json_median(out, "floor", &m);
	}
	if (found->failed[arm][0]) {
		fprintf(out, ", \"%s\": ", found->left_out[arm] ? "left_out" : "failed");
		json_string(out, found->failed[arm]);
	}
	fprintf(out, "}");
}

void spr_bench_print_json(FILE *out, const char *program, const struct spr_bench_found *found,
                          unsigned n_found)
{
	const char *comma = "";

	fprintf(out, "{\"bench\": ");
	json_string(out, program);
	fprintf(out, ", ");
	json_machine(out);
	fprintf(out, ",\n\"rows\": [");
	for (unsigned g = 0; g < n_found; g++) {
		for (unsigned arm = 0; arm < found[g].group->n_arms; arm++, comma = ",") {
			fprintf(out, "%s\n", comma);
			json_row(out, &found[g], arm);
		}
	}
	fprintf(out, "],\n\"claims\": [");
	comma = "";
	for (unsigned g = 0; g < n_found; g++) {
		for (unsigned i = 0; i < found[g].group->n_claims; i++, comma = ",") {
			const struct spr_bench_claim *claim = &found[g].group->claims[i];
			const struct spr_bench_median m = claim_median(&found[g], claim);

			fprintf(out, "%s\n{\"what\": ", comma);
			json_string(out, claim->what);
			json_median(out, "got", &m);
			if (claim->want != SPR_BENCH_ONLY_SAY)
				fprintf(out, ", \"target\": %g", claim->target);
			fprintf(out, ", \"finding\": \"%s\"}", claim_verdict(claim, m.median));
		}
	}
	fprintf(out, "]}\n");
}
