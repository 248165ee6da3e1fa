/* SPDX-License-Identifier: MIT */
/* json.c - JSON on its way out. */
#include "cli/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "cli/cli.h"

static char *json_room(struct spr_cli_json *j, size_t more_bytes)
{
	if (j->room_bytes - j->n_bytes < more_bytes) {
		j->room_bytes = (j->n_bytes + more_bytes) * 2 + 256;
		j->text = spr_cli_grow(j->text, j->room_bytes);
	}
	return j->text + j->n_bytes;
}

static void json_append(struct spr_cli_json *j, const char *text, size_t n_bytes)
{
	memcpy(json_room(j, n_bytes), text, n_bytes);
	j->n_bytes += n_bytes;
}

static void json_quoted(struct spr_cli_json *j, const void *text, size_t n_bytes)
{
	/* The longest any byte becomes is six; a caller's cut would be a lie about a path. */
	char *out = json_room(j, n_bytes * 6 + 3);

	out[0] = '"';
	const size_t n = spr_escape_json(out + 1, n_bytes * 6 + 1, text, n_bytes);
	out[n + 1] = '"';
	j->n_bytes += n + 2;
}

static void json_key(struct spr_cli_json *j, const char *key)
{
	if (j->comma)
		json_append(j, ",", 1);
	if (key) {
		json_quoted(j, key, strlen(key));
		json_append(j, ":", 1);
	}
	j->comma = true;
}

void spr_cli_json_open(struct spr_cli_json *j, const char *key, char bracket)
{
	json_key(j, key);
	json_append(j, &bracket, 1);
	j->comma = false;
}

void spr_cli_json_close(struct spr_cli_json *j, char bracket)
{
	json_append(j, &bracket, 1);
	j->comma = true;
}

void spr_cli_json_bytes(struct spr_cli_json *j, const char *key, const void *text, size_t n_bytes)
{
	json_key(j, key);
	json_quoted(j, text, n_bytes);
}

void spr_cli_json_text(struct spr_cli_json *j, const char *key, const char *text)
{
	spr_cli_json_bytes(j, key, text, strlen(text));
}

void spr_cli_json_hex(struct spr_cli_json *j, const char *key, const void *bytes, size_t n_bytes)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *b = bytes;

	json_key(j, key);
	char *out = json_room(j, n_bytes * 2 + 2);
	*out++ = '"';
	for (size_t i = 0; i < n_bytes; i++) {
		*out++ = digits[b[i] >> 4];
		*out++ = digits[b[i] & 15];
	}
	*out = '"';
	j->n_bytes += n_bytes * 2 + 2;
}

void spr_cli_json_number(struct spr_cli_json *j, const char *key, uint64_t number)
{
	json_key(j, key);
	j->n_bytes += (size_t)snprintf(json_room(j, 24), 24, "%" PRIu64, number);
}

void spr_cli_json_signed(struct spr_cli_json *j, const char *key, int64_t number)
{
	json_key(j, key);
	j->n_bytes += (size_t)snprintf(json_room(j, 24), 24, "%" PRId64, number);
}

void spr_cli_json_truth(struct spr_cli_json *j, const char *key, bool truth)
{
	json_key(j, key);
	json_append(j, truth ? "true" : "false", truth ? 4 : 5);
}

void spr_cli_json_line(struct spr_cli_json *j, FILE *out)
{
	json_append(j, "\n", 1);
	fwrite(j->text, 1, j->n_bytes, out);
	j->n_bytes = 0;
	j->comma = false;
}

void spr_cli_json_fini(struct spr_cli_json *j)
{
	free(j->text);
	*j = (struct spr_cli_json){0};
}
