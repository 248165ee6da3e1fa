/* SPDX-License-Identifier: MIT */
/* cli_values_test.c - records of any kind as JSON and as text: every type, exact, and cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/kinds.h"
#include "cli/input.h"
#include "cli/value.h"

static const char *const colours[] = { "red", "green" };

static const struct spr_field all_fields[] = {
	{ "u8", SPR_U8, 0, NULL, 0, { 0 } },
	{ "u16", SPR_U16, 0, NULL, 0, { 0 } },
	{ "u32", SPR_U32, 0, NULL, 0, { 0 } },
	{ "u64", SPR_U64, 0, NULL, 0, { 0 } },
	{ "i32", SPR_I32, 0, NULL, 0, { 0 } },
	{ "i64", SPR_I64, 0, NULL, 0, { 0 } },
	{ "addr", SPR_HEX64, 0, NULL, 0, { 0 } },
	{ "text", SPR_STRING, 0, NULL, 0, { 0 } },
	{ "blob", SPR_BYTES, 0, NULL, 0, { 0 } },
	{ "colour", SPR_U8, SPR_ENUM, colours, 2, { 0 } },
	{ "colours", SPR_U32, SPR_FLAGS, colours, 2, { 0 } },
	{ "words", SPR_STRING, SPR_LIST, NULL, 0, { 0 } },
	{ "maybe", SPR_U32, SPR_OPTIONAL, NULL, 0, { 0 } },
};
static const struct spr_kind all = { "all", all_fields, 13, 0 };

/* A record's bytes, written field by field. */
struct bytes {
	unsigned char at[4096];
	uint32_t      n;
};

static void put(struct bytes *b, uint64_t number, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		b->at[b->n++] = (unsigned char)(number >> 8 * i);
}

static void put_text(struct bytes *b, const char *text, uint32_t n)
{
	put(b, n, 2);
	memcpy(b->at + b->n, text, n);
	b->n += n;
}

static void put_all(struct bytes *b, uint64_t colour, uint64_t flags, int maybe)
{
	b->n = 0;
	put(b, 255, 1);
	put(b, 65535, 2);
	put(b, UINT32_MAX, 4);
	put(b, UINT64_MAX, 8);
	put(b, (uint32_t)INT32_MIN, 4);
	put(b, (uint64_t)INT64_MIN, 8);
	put(b, 0xfedcba9876543210, 8);
	put_text(b, "a\"\n\x1b[31m", 8);
	put_text(b, "\x00\xff", 2);
	put(b, colour, 1);
	put(b, flags, 4);
	put(b, 3, 2);
	put_text(b, "one", 3);
	put_text(b, "", 0);
	put_text(b, "\xff", 1);
	put(b, maybe >= 0, 1);
	if (maybe >= 0)
		put(b, (uint64_t)maybe, 4);
}

static struct spr_record record_of(const struct bytes *b, uint16_t kind)
{
	return (struct spr_record){ .data = b->at, .bytes = b->n, .kind = kind, .flags = SPR_HAS_ID,
		                    .time_ns = 1000000001, .pid = 7, .tid = 8 };
}

static void expect_json(const struct spr_kind *kind, const struct spr_record *rec, int error,
                        const char *wanted)
{
	struct spr_cli_json j = { 0 };
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	spr_cli_record_json(&j, kind, rec, error);
	spr_cli_json_line(&j, out);
	fclose(out);
	assert_string_equal(text, wanted);
	free(text);
	spr_cli_json_fini(&j);
}

static void expect_text(const struct spr_kind *kind, const struct spr_record *rec, int error,
                        const char *wanted)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	spr_cli_record_text(out, kind, rec, error, 1000000000);
	fclose(out);
	assert_string_equal(text, wanted);
	free(text);
}

static void every_type_is_exact_in_json(void **state)
{
	struct bytes b;

	(void)state;
	put_all(&b, 1, 3, 0);
	const struct spr_record rec = record_of(&b, 1);
	expect_json(&all, &rec, 0,
	            "{\"kind\":\"all\",\"time_ns\":1000000001,\"pid\":7,\"tid\":8,\"u8\":255,"
	            "\"u16\":65535,\"u32\":4294967295,\"u64\":18446744073709551615,"
	            "\"i32\":-2147483648,\"i64\":-9223372036854775808,"
	            "\"addr\":18364758544493064720,\"text\":\"a\\\"\\n\\u001b[31m\",\"blob_hex\":"
	            "\"00ff\",\"colour\":\"green\",\"colours\":[\"red\",\"green\"],\"words\":"
	            "[\"one\",\"\",\"\xef\xbf\xbd\"],\"words_hex\":[\"6f6e65\",\"\",\"ff\"],"
	            "\"maybe\":0}\n");
}

static void labels_that_are_not_declared_are_numbers(void **state)
{
	struct bytes b;

	(void)state;
	put_all(&b, 2, 1u << 31, -1);
	const struct spr_record rec = record_of(&b, 1);
	expect_json(&all, &rec, 13,
	            "{\"kind\":\"all\",\"time_ns\":1000000001,\"pid\":7,\"tid\":8,\"u8\":255,"
	            "\"u16\":65535,\"u32\":4294967295,\"u64\":18446744073709551615,"
	            "\"i32\":-2147483648,\"i64\":-9223372036854775808,"
	            "\"addr\":18364758544493064720,\"text\":\"a\\\"\\n\\u001b[31m\",\"blob_hex\":"
	            "\"00ff\",\"colour\":2,\"colours\":[\"bit31\"],\"words\":"
	            "[\"one\",\"\",\"\xef\xbf\xbd\"],\"words_hex\":[\"6f6e65\",\"\",\"ff\"],"
	            "\"error\":13}\n");
}

static void text_for_a_terminal_is_harmless(void **state)
{
	struct bytes b;

	(void)state;
	put_all(&b, 0, 2, 5);
	const struct spr_record rec = record_of(&b, 1);
	expect_text(&all, &rec, 2,
	            "    0.000000       7  all      u8=255 u16=65535 u32=4294967295 "
	            "u64=18446744073709551615 i32=-2147483648 i64=-9223372036854775808 "
	            "addr=0xfedcba9876543210 a\"\\n\\x1b[31m blob=\\x00\\xff colour=red "
	            "colours=green words=one '' \\xff maybe=5  ENOENT\n");
}

static void a_record_cut_at_any_byte_is_said_to_be_damaged(void **state)
{
	struct bytes b;

	(void)state;
	put_all(&b, 1, 3, 5);
	for (uint32_t n = 0; n < b.n; n++) {
		struct spr_cli_json j = { 0 };
		struct spr_record rec = record_of(&b, 1);
		/* A block of its own, so that a sanitizer sees a step too far. */
		void *data = malloc(n ? n : 1);

		memcpy(data, b.at, n);
		rec.data = data;
		rec.bytes = n;
		spr_cli_record_json(&j, &all, &rec, 0);
		j.text[j.n_bytes - 1] = '\0';
		assert_non_null(strstr(j.text, "\"damaged\":true"));
		spr_cli_json_fini(&j);
		free(data);
	}
}

static void a_record_without_a_kind_is_its_bytes(void **state)
{
	const struct spr_cli_input in = { .kinds = &all, .n_kinds = 1 };
	struct bytes b = { .n = 0 };

	(void)state;
	put(&b, 0x0201, 2);
	const struct spr_record rec = record_of(&b, 0);
	expect_json(spr_cli_input_kind(&in, 0), &rec, 0,
	            "{\"kind\":\"bytes\",\"time_ns\":1000000001,\"pid\":7,\"tid\":8,"
	            "\"data_hex\":\"0102\"}\n");
	assert_ptr_equal(spr_cli_input_kind(&in, 1), &all);
	assert_ptr_equal(spr_cli_input_kind(&in, 2), spr_cli_input_kind(&in, 0));
	assert_ptr_equal(spr_cli_input_kind(&in, SPR_KIND_BLIND), &spr_kind_blind);
}

static void a_blind_spot_has_its_own_pid_or_none(void **state)
{
	struct bytes b = { .n = 0 };

	(void)state;
	put(&b, 77, 4);
	put_text(&b, "static", 6);
	put_text(&b, "/bin/x", 6);
	struct spr_record rec = record_of(&b, SPR_KIND_BLIND);
	rec.flags = 0;
	expect_json(&spr_kind_blind, &rec, 0,
	            "{\"kind\":\"blind\",\"time_ns\":1000000001,\"pid\":77,\"reason\":\"static\","
	            "\"text\":\"/bin/x\"}\n");
	b.at[0] = 0;
	expect_json(&spr_kind_blind, &rec, 0,
	            "{\"kind\":\"blind\",\"time_ns\":1000000001,\"reason\":\"static\","
	            "\"text\":\"/bin/x\"}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_is_exact_in_json),
		cmocka_unit_test(labels_that_are_not_declared_are_numbers),
		cmocka_unit_test(text_for_a_terminal_is_harmless),
		cmocka_unit_test(a_record_cut_at_any_byte_is_said_to_be_damaged),
		cmocka_unit_test(a_record_without_a_kind_is_its_bytes),
		cmocka_unit_test(a_blind_spot_has_its_own_pid_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
