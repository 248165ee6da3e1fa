/* SPDX-License-Identifier: MIT */
/*
 * json.h - JSON on its way out: one line at a time, commas by itself, numbers exact to 64 bits.
 *
 * A library of objects would make each number a signed 64-bit integer and each line a tree; this
 * only appends.
 */
#ifndef SPR_CLI_JSON_H
#define SPR_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct spr_cli_json {
	char  *text;
	size_t n_bytes, room_bytes;
	bool   comma; /* the next member needs one in front */
};

/* key: NULL in arrays and at the top. */
void spr_cli_json_open(struct spr_cli_json *j, const char *key, char bracket);
void spr_cli_json_close(struct spr_cli_json *j, char bracket);
void spr_cli_json_bytes(struct spr_cli_json *j, const char *key, const void *text, size_t n_bytes);
void spr_cli_json_text(struct spr_cli_json *j, const char *key, const char *text);
void spr_cli_json_hex(struct spr_cli_json *j, const char *key, const void *bytes, size_t n_bytes);
void spr_cli_json_number(struct spr_cli_json *j, const char *key, uint64_t number);
void spr_cli_json_signed(struct spr_cli_json *j, const char *key, int64_t number);
void spr_cli_json_truth(struct spr_cli_json *j, const char *key, bool truth);

/* What has gathered, as a line. */
void spr_cli_json_line(struct spr_cli_json *j, FILE *out);
void spr_cli_json_fini(struct spr_cli_json *j);

#endif /* SPR_CLI_JSON_H */
