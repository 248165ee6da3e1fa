/* SPDX-License-Identifier: MIT */
/* value.c - any record of any kind, as JSON or as text for people. */
#include "cli/value.h"

#include <inttypes.h>
#include <string.h>

#include "base/escape.h"
#include "base/kinds.h"
#include "cli/cli.h"
#include "cli/input.h"

static bool field_is_text(const struct spr_field *field)
{
	return field->type == SPR_STRING || field->type == SPR_BYTES;
}

static bool field_is_signed(const struct spr_field *field)
{
	return field->type == SPR_I32 || field->type == SPR_I64;
}

bool spr_cli_field(const struct spr_kind *kind, const struct spr_record *rec, const char *name,
                   struct spr_value *value)
{
	const int field = spr_cli_field_find(kind, name);

	if (field < 0 || spr_cli_value(kind, rec, (uint32_t)field, value) < 0)
		return false;
	return value->present;
}

int64_t spr_cli_record_pid(const struct spr_kind *kind, const struct spr_record *rec)
{
	struct spr_value value;

	if (spr_cli_field(kind, rec, "pid", &value))
		return (int64_t)value.number;
	return rec->flags & SPR_HAS_ID ? rec->pid : -1;
}

const char *spr_cli_label(const struct spr_field *field, const struct spr_value *value)
{
	if (!(field->flags & SPR_ENUM) || value->number >= field->n_labels)
		return NULL;
	return field->labels[value->number];
}

void spr_cli_list_begin(struct spr_cli_list *list, const struct spr_record *rec,
                        const struct spr_value *value)
{
	list->left = (uint32_t)value->number;
	list->at = list->left ? (const unsigned char *)value->bytes - 2 : NULL;
	list->end = (const unsigned char *)rec->data + rec->bytes;
}

bool spr_cli_list_next(struct spr_cli_list *list, const char **text, size_t *n_bytes)
{
	if (!list->left || list->end - list->at < 2)
		return false;
	const size_t n = (size_t)(list->at[0] | list->at[1] << 8);
	if ((size_t)(list->end - list->at) - 2 < n)
		return false;
	*text = (const char *)list->at + 2;
	*n_bytes = n;
	list->at += 2 + n;
	list->left--;
	return true;
}

/* --- JSON ------------------------------------------------------------------------- */

static void json_hex_name(char *out, size_t room, const char *name)
{
	snprintf(out, room, "%s_hex", name);
}

static void json_list(struct spr_cli_json *j, const struct spr_field *field,
                      const struct spr_record *rec, const struct spr_value *value)
{
	struct spr_cli_list list;
	char hex_name[80];
	const char *text;
	size_t n;
	bool all_utf8 = true;

	spr_cli_json_open(j, field->name, '[');
	spr_cli_list_begin(&list, rec, value);
	while (spr_cli_list_next(&list, &text, &n)) {
		spr_cli_json_bytes(j, NULL, text, n);
		all_utf8 = all_utf8 && spr_is_utf8(text, n);
	}
	spr_cli_json_close(j, ']');
	if (all_utf8)
		return;
	json_hex_name(hex_name, sizeof(hex_name), field->name);
	spr_cli_json_open(j, hex_name, '[');
	spr_cli_list_begin(&list, rec, value);
	while (spr_cli_list_next(&list, &text, &n))
		spr_cli_json_hex(j, NULL, text, n);
	spr_cli_json_close(j, ']');
}

static void json_flags(struct spr_cli_json *j, const struct spr_field *field, uint64_t bits)
{
	char name[16];

	spr_cli_json_open(j, field->name, '[');
	for (uint32_t bit = 0; bit < 64; bit++) {
		if (!(bits >> bit & 1))
			continue;
		snprintf(name, sizeof(name), "bit%" PRIu32, bit);
		spr_cli_json_text(j, NULL, bit < field->n_labels ? field->labels[bit] : name);
	}
	spr_cli_json_close(j, ']');
}

static void json_text(struct spr_cli_json *j, const struct spr_field *field,
                      const struct spr_value *value)
{
	char hex_name[80];

	if (field->type == SPR_STRING)
		spr_cli_json_bytes(j, field->name, value->bytes, value->n);
	if (field->type == SPR_STRING && spr_is_utf8(value->bytes, value->n))
		return;
	json_hex_name(hex_name, sizeof(hex_name), field->name);
	spr_cli_json_hex(j, hex_name, value->bytes, value->n);
}

static void json_field(struct spr_cli_json *j, const struct spr_field *field,
                       const struct spr_record *rec, const struct spr_value *value)
{
	const char *label = spr_cli_label(field, value);

	if (field->flags & SPR_LIST)
		json_list(j, field, rec, value);
	else if (field_is_text(field))
		json_text(j, field, value);
	else if (field->flags & SPR_FLAGS)
		json_flags(j, field, value->number);
	else if (label)
		spr_cli_json_text(j, field->name, label);
	else if (field_is_signed(field))
		spr_cli_json_signed(j, field->name, (int64_t)value->number);
	else
		spr_cli_json_number(j, field->name, value->number);
}

static void json_head(struct spr_cli_json *j, const struct spr_kind *kind,
                      const struct spr_record *rec)
{
	const int64_t pid = spr_cli_record_pid(kind, rec);

	spr_cli_json_text(j, "kind", kind->name);
	if (rec->time_ns)
		spr_cli_json_number(j, "time_ns", rec->time_ns);
	if (pid > 0) /* 0: a blind spot of the whole run */
		spr_cli_json_signed(j, "pid", pid);
	if (rec->flags & SPR_HAS_ID && spr_cli_field_find(kind, "tid") < 0)
		spr_cli_json_signed(j, "tid", rec->tid);
}

void spr_cli_record_json(struct spr_cli_json *j, const struct spr_kind *kind,
                         const struct spr_record *rec, int error)
{
	struct spr_value value;

	spr_cli_json_open(j, NULL, '{');
	json_head(j, kind, rec);
	for (uint32_t i = 0; i < kind->n_fields; i++) {
		const struct spr_field *field = &kind->fields[i];

		if (!strcmp(field->name, "pid"))
			continue;
		if (spr_cli_value(kind, rec, i, &value) < 0) {
			spr_cli_json_truth(j, "damaged", true);
			break;
		}
		if (value.present)
			json_field(j, field, rec, &value);
	}
	if (error)
		spr_cli_json_signed(j, "error", error);
	spr_cli_json_close(j, '}');
}

/* --- Text ------------------------------------------------------------------------- */

static void text_bytes(FILE *out, const void *text, size_t n_bytes)
{
	char small[4096];

	/* A record is at most 64 KiB: piece by piece, cut where no character is. */
	const char *at = text;
	while (n_bytes) {
		size_t n = n_bytes < 1000 ? n_bytes : 1000;
		while (n > 990 && n < n_bytes && (at[n] & 0xc0) == 0x80)
			n--;
		spr_escape_terminal(small, sizeof(small), at, n);
		fputs(small, out);
		at += n;
		n_bytes -= n;
	}
}

static void text_list(FILE *out, const struct spr_record *rec, const struct spr_value *value)
{
	struct spr_cli_list list;
	const char *text, *between = "";
	size_t n;

	spr_cli_list_begin(&list, rec, value);
	while (spr_cli_list_next(&list, &text, &n)) {
		const bool quoted = !n || memchr(text, ' ', n) || memchr(text, '\'', n);

		fprintf(out, "%s%s", between, quoted ? "'" : "");
		text_bytes(out, text, n);
		if (quoted)
			fputc('\'', out);
		between = " ";
	}
}

static int text_flags(FILE *out, const struct spr_field *field, uint64_t bits)
{
	int n = 0;

	for (uint32_t bit = 0; bit < 64; bit++) {
		if (!(bits >> bit & 1))
			continue;
		const char *between = n ? "," : "";
		if (bit < field->n_labels)
			n += fprintf(out, "%s%s", between, field->labels[bit]);
		else
			n += fprintf(out, "%sbit%" PRIu32, between, bit);
	}
	return n;
}

static void text_number(FILE *out, const struct spr_field *field, const struct spr_value *value)
{
	const char *label = spr_cli_label(field, value);

	if (label)
		fputs(label, out);
	else if (field_is_signed(field))
		fprintf(out, "%" PRId64, (int64_t)value->number);
	else if (field->type == SPR_HEX64)
		fprintf(out, "0x%" PRIx64, value->number);
	else
		fprintf(out, "%" PRIu64, value->number);
}

static void text_error(FILE *out, int error)
{
	const char *name = strerrorname_np(error);

	if (name)
		fprintf(out, "  %s", name);
	else
		fprintf(out, "  error %d", error);
}

/* What a person looks for in these needs no name in front. */
static bool field_speaks_for_itself(const char *name)
{
	static const char *const plain[] = { "path", "exe", "reason", "text", "data" };

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (!strcmp(name, plain[i]))
			return true;
	}
	return false;
}

static void text_field(FILE *out, const struct spr_field *field, const struct spr_record *rec,
                       const struct spr_value *value)
{
	if (!strcmp(field->name, "access") && field->flags & SPR_FLAGS) {
		const int n = text_flags(out, field, value->number);
		fprintf(out, "%*s", n < 10 ? 10 - n : 0, "");
		return;
	}
	if (!strcmp(field->name, "path2"))
		fputs("-> ", out);
	else if (!field_speaks_for_itself(field->name))
		fprintf(out, "%s=", field->name);
	if (field->flags & SPR_LIST)
		text_list(out, rec, value);
	else if (field_is_text(field))
		text_bytes(out, value->bytes, value->n);
	else if (field->flags & SPR_FLAGS)
		text_flags(out, field, value->number);
	else
		text_number(out, field, value);
}

static void text_head(FILE *out, const struct spr_kind *kind, const struct spr_record *rec,
                      uint64_t start_ns)
{
	const int64_t pid = spr_cli_record_pid(kind, rec);
	const int64_t since_ns = (int64_t)(rec->time_ns - start_ns);
	const int op = spr_cli_field_find(kind, "op");
	struct spr_value value;
	const char *label = NULL;

	if (op >= 0 && spr_cli_value(kind, rec, (uint32_t)op, &value) >= 0)
		label = spr_cli_label(&kind->fields[op], &value);
	if (rec->time_ns)
		fprintf(out, "%12.6f", (double)since_ns / 1e9);
	else
		fprintf(out, "%12s", "-");
	if (pid > 0)
		fprintf(out, " %7" PRId64, pid);
	else
		fprintf(out, " %7s", "-");
	if (op >= 0)
		fprintf(out, "  %-8s %-11s", kind->name, label ? label : "?");
	else
		fprintf(out, "  %-8s", kind->name);
}

void spr_cli_record_text(FILE *out, const struct spr_kind *kind, const struct spr_record *rec,
                         int error, uint64_t start_ns)
{
	struct spr_value value;

	text_head(out, kind, rec, start_ns);
	for (uint32_t i = 0; i < kind->n_fields; i++) {
		const struct spr_field *field = &kind->fields[i];

		if (!strcmp(field->name, "pid") ||
		    (!strcmp(field->name, "op") && field->flags & SPR_ENUM))
			continue;
		if (spr_cli_value(kind, rec, i, &value) < 0) {
			fputs(" (damaged)", out);
			break;
		}
		if (!value.present)
			continue;
		fputs(kind == &spr_kind_blind && i == 2 ? " - " : " ", out);
		text_field(out, field, rec, &value);
	}
	if (error)
		text_error(out, error);
	fputc('\n', out);
}
