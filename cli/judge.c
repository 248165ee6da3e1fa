/* SPDX-License-Identifier: MIT */
/* judge.c - the verdict of a trace, put together and said. */
#include "cli/judge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/value.h"

/* More than anybody reads; a hostile trace must not fill memory. */
#define BLIND_MAX 100000u

static bool blind_is(const struct spr_cli_blind *b, int64_t pid, const struct spr_value *reason,
                     const struct spr_value *text)
{
	return b->pid == pid && strlen(b->reason) == reason->n && strlen(b->text) == text->n &&
	       !memcmp(b->reason, reason->bytes, reason->n) &&
	       !memcmp(b->text, text->bytes, text->n);
}

static char *copy_of(const struct spr_value *value)
{
	char *copy = spr_cli_grow(NULL, value->n + 1);

	if (value->n)
		memcpy(copy, value->bytes, value->n);
	copy[value->n] = '\0';
	/* One that holds a NUL could not be compared any more. */
	for (size_t i = 0; i < value->n; i++)
		copy[i] = copy[i] ? copy[i] : ' ';
	return copy;
}

void spr_cli_judge_see(struct spr_cli_judge *judge, const struct spr_kind *kind,
                       const struct spr_record *rec)
{
	struct spr_value reason, text;

	if (rec->kind != SPR_KIND_BLIND || !spr_cli_field(kind, rec, "reason", &reason) ||
	    !spr_cli_field(kind, rec, "text", &text))
		return;
	const int64_t pid = spr_cli_record_pid(kind, rec);
	for (size_t i = judge->n_blind; i-- > 0;) {
		if (blind_is(&judge->blind[i], pid, &reason, &text))
			return;
	}
	if (judge->n_blind == BLIND_MAX)
		return;
	if (judge->n_blind == judge->room) {
		judge->room = judge->room * 2 + 16;
		judge->blind = spr_cli_grow(judge->blind, judge->room * sizeof(judge->blind[0]));
	}
	judge->blind[judge->n_blind++] = (struct spr_cli_blind){
		.pid = pid, .reason = copy_of(&reason), .text = copy_of(&text)
	};
}

void spr_cli_judge_close(struct spr_cli_judge *judge, struct spr_cli_input *in)
{
	judge->known = spr_cli_input_verdict(in, &judge->verdict);
	judge->damaged = in->damaged;
}

void spr_cli_judge_fini(struct spr_cli_judge *judge)
{
	for (size_t i = 0; i < judge->n_blind; i++) {
		free(judge->blind[i].reason);
		free(judge->blind[i].text);
	}
	free(judge->blind);
	*judge = (struct spr_cli_judge){0};
}

int spr_cli_judge_status(const struct spr_cli_judge *judge)
{
	if (judge->damaged || judge->verdict.reasons & SPR_CUT)
		return SPR_CLI_CUT;
	if (!judge->known)
		return SPR_CLI_UNKNOWN;
	return judge->verdict.reasons ? SPR_CLI_INCOMPLETE : SPR_CLI_OK;
}

static const char *verdict_word(const struct spr_cli_judge *judge)
{
	static const char *const words[] = {
		[SPR_CLI_OK] = "complete", [SPR_CLI_INCOMPLETE] = "incomplete",
		[SPR_CLI_CUT] = "incomplete", [SPR_CLI_UNKNOWN] = "unknown",
	};

	return words[spr_cli_judge_status(judge)];
}

static bool is_left_running(const struct spr_cli_blind *b)
{
	return !strcmp(b->reason, SPR_CLI_LEFT_RUNNING);
}

/* Who was left running is written as a blind spot, too, and is none. */
static bool has_blind_spots(const struct spr_cli_judge *judge)
{
	uint64_t n_left = 0;

	for (size_t i = 0; i < judge->n_blind; i++)
		n_left += is_left_running(&judge->blind[i]);
	return judge->verdict.blind > n_left || judge->n_blind > n_left;
}

/* --- Text ------------------------------------------------------------------------- */

static void text_transport(const struct spr_cli_judge *judge, FILE *out)
{
	const struct spr_verdict *v = &judge->verdict;
	const uint32_t mine = SPR_LOST | SPR_LEFT_RUNNING | SPR_CUT;

	fprintf(out, "  transport  %s\n",
	        v->reasons & mine || judge->damaged ? "incomplete" : "complete");
	fprintf(out, "    %" PRIu64 " records delivered, %" PRIu64 " lost\n", v->delivered,
	        v->lost);
	if (v->reasons & SPR_CUT)
		fputs("    cut: the trace has no end; its recorder was killed or its disk was "
		      "full\n",
		      out);
	else if (judge->damaged)
		fputs("    damaged: a part of the trace could not be read\n", out);
	if (v->reasons & SPR_LEFT_RUNNING)
		fprintf(out,
		        "    %" PRIu64 " left running: what they did later is not in the trace\n",
		        v->left_running);
	for (size_t i = 0; i < judge->n_blind; i++) {
		const struct spr_cli_blind *b = &judge->blind[i];
		if (is_left_running(b))
			fprintf(out, "      pid %" PRId64 "  %s\n", b->pid, spr_cli_shown(b->text));
	}
}

/* What no program could see is written at the end; a trace without one has not said it. */
static const char *coverage_word(const struct spr_cli_judge *judge)
{
	if (has_blind_spots(judge))
		return "incomplete";
	return spr_cli_judge_status(judge) == SPR_CLI_CUT ? "unknown" : "complete";
}

static void text_coverage(const struct spr_cli_judge *judge, FILE *out)
{
	fprintf(out, "  coverage   %s\n", coverage_word(judge));
	for (size_t i = 0; i < judge->n_blind; i++) {
		const struct spr_cli_blind *b = &judge->blind[i];
		char who[32] = "";

		if (is_left_running(b))
			continue;
		if (b->pid > 0)
			snprintf(who, sizeof(who), "pid %" PRId64 ": ", b->pid);
		fprintf(out, "    %s%s%s%s\n", who, spr_cli_shown(b->reason), *b->text ? ": " : "",
		        spr_cli_shown(b->text));
	}
}

void spr_cli_judge_text(const struct spr_cli_judge *judge, FILE *out)
{
	fprintf(out, "verdict      %s\n", verdict_word(judge));
	if (!judge->known) {
		fputs("  the file carries none\n", out);
		return;
	}
	text_transport(judge, out);
	text_coverage(judge, out);
}

/* --- JSON ------------------------------------------------------------------------- */

static void json_left_running(const struct spr_cli_judge *judge, struct spr_cli_json *j)
{
	spr_cli_json_open(j, "left_running_processes", '[');
	for (size_t i = 0; i < judge->n_blind; i++) {
		const struct spr_cli_blind *b = &judge->blind[i];

		if (!is_left_running(b))
			continue;
		spr_cli_json_open(j, NULL, '{');
		spr_cli_json_signed(j, "pid", b->pid);
		spr_cli_json_text(j, "program", b->text);
		spr_cli_json_close(j, '}');
	}
	spr_cli_json_close(j, ']');
}

static void json_transport(const struct spr_cli_judge *judge, struct spr_cli_json *j)
{
	const struct spr_verdict *v = &judge->verdict;

	spr_cli_json_open(j, "transport", '{');
	spr_cli_json_number(j, "written", v->delivered + v->lost);
	spr_cli_json_number(j, "delivered", v->delivered);
	spr_cli_json_number(j, "lost", v->lost);
	spr_cli_json_number(j, "refused", v->refused);
	spr_cli_json_number(j, "left_running", v->left_running);
	json_left_running(judge, j);
	spr_cli_json_truth(j, "cut", v->reasons & SPR_CUT);
	spr_cli_json_truth(j, "damaged", judge->damaged);
	spr_cli_json_close(j, '}');
}

static void json_coverage(const struct spr_cli_judge *judge, struct spr_cli_json *j)
{
	spr_cli_json_open(j, "coverage", '[');
	for (size_t i = 0; i < judge->n_blind; i++) {
		const struct spr_cli_blind *b = &judge->blind[i];

		if (is_left_running(b))
			continue;
		spr_cli_json_open(j, NULL, '{');
		spr_cli_json_text(j, "reason", b->reason);
		if (b->pid > 0)
			spr_cli_json_signed(j, "pid", b->pid);
		spr_cli_json_text(j, "text", b->text);
		spr_cli_json_close(j, '}');
	}
	spr_cli_json_close(j, ']');
}

void spr_cli_judge_json(const struct spr_cli_judge *judge, struct spr_cli_json *j, const char *key)
{
	spr_cli_json_open(j, key, '{');
	spr_cli_json_text(j, "verdict", verdict_word(judge));
	if (judge->known) {
		json_transport(judge, j);
		json_coverage(judge, j);
	}
	spr_cli_json_close(j, '}');
}
