/* SPDX-License-Identifier: MIT */
/* kinds_test.c - declarations there and back, bad ones, hostile bytes, and fields of records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kinds.h"

static const char *const colours[] = { "red", "", "deep blue" };
static const struct spr_field point_fields[] = {
	{ .name = "x", .type = SPR_I32 },
	{ .name = "far", .type = SPR_I64, .flags = SPR_OPTIONAL },
	{ .name = "colour", .type = SPR_U8, .flags = SPR_ENUM, .labels = colours, .n_labels = 3 },
	{ .name = "args", .type = SPR_STRING, .flags = SPR_LIST | SPR_OPTIONAL },
	{ .name = "at", .type = SPR_HEX64 },
};
static const struct spr_kind kinds[] = {
	{ "point", point_fields, 5, 0 },
	{ "nothing", NULL, 0, 0 },
	{ "p", point_fields, 1, 0 },
};

static void *encoded(size_t *n)
{
	void *bytes;

	*n = spr_kinds_encode(NULL, 0, kinds, 3);
	bytes = malloc(*n);
	assert_non_null(bytes);
	assert_int_equal(spr_kinds_encode(bytes, *n, kinds, 3), *n);
	return bytes;
}

static void a_declaration_comes_back_as_it_was(void **state)
{
	struct spr_kind *back;
	uint32_t n_kinds;
	size_t n;
	void *bytes = encoded(&n);

	(void)state;
	assert_int_equal(spr_kinds_check(kinds, 3), 0);
	assert_int_equal(spr_kinds_decode(&back, &n_kinds, bytes, n), 0);
	assert_int_equal(n_kinds, 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(spr_kinds_alike(&back[i], &kinds[i]));
	assert_string_equal(back[0].fields[2].labels[2], "deep blue");
	assert_int_equal(spr_kinds_encode(NULL, 0, back, n_kinds), n);
	free(back);
	free(bytes);
}

static void nothing_is_a_declaration_too(void **state)
{
	struct spr_kind *back;
	uint32_t n_kinds = 7;
	uint8_t bytes[8];
	const size_t n = spr_kinds_encode(bytes, sizeof(bytes), NULL, 0);

	(void)state;
	assert_int_equal(spr_kinds_decode(&back, &n_kinds, bytes, n), 0);
	assert_int_equal(n_kinds, 0);
	assert_int_equal(spr_kinds_find(bytes, n, "point"), -ENOENT);
	free(back);
}

static void too_little_room_is_left_alone(void **state)
{
	uint8_t bytes[16] = { 0xaa };

	(void)state;
	assert_true(spr_kinds_encode(bytes, sizeof(bytes), kinds, 3) > sizeof(bytes));
	assert_int_equal(bytes[0], 0xaa);
}

static void a_kind_is_found_by_name(void **state)
{
	size_t n;
	void *bytes = encoded(&n);

	(void)state;
	assert_int_equal(spr_kinds_find(bytes, n, "point"), 1);
	assert_int_equal(spr_kinds_find(bytes, n, "nothing"), 2);
	assert_int_equal(spr_kinds_find(bytes, n, "p"), 3);
	assert_int_equal(spr_kinds_find(bytes, n, "bytes"), 0);
	assert_int_equal(spr_kinds_find(bytes, n, "blind"), SPR_KIND_BLIND);
	assert_int_equal(spr_kinds_find(bytes, n, "pointy"), -ENOENT);
	assert_int_equal(spr_kinds_find(bytes, n, ""), -ENOENT);
	free(bytes);
}

static void the_kinds_of_our_spies_are_good(void **state)
{
	(void)state;
	assert_int_equal(spr_kinds_check(spr_kinds_files, 3), 0);
	assert_int_equal(spr_kinds_check(&spr_kind_memory, 1), 0);
}

static void a_bad_declaration_is_refused(void **state)
{
	static const struct spr_field bad[] = {
		{ .name = "X", .type = SPR_U8 },
		{ .name = "", .type = SPR_U8 },
		{ .name = "x", .type = 0 },
		{ .name = "x", .type = SPR_BYTES + 1 },
		{ .name = "x", .type = SPR_I32, .flags = SPR_ENUM },
		{ .name = "x", .type = SPR_U8, .flags = SPR_ENUM | SPR_FLAGS },
		{ .name = "x", .type = SPR_U8, .flags = SPR_LIST },
		{ .name = "x", .type = SPR_U8, .flags = 1u << 9 },
		{ .name = "x", .type = SPR_U8, .labels = colours, .n_labels = 3 },
		{ .name = "x", .type = SPR_U8, .reserved = { 0, 0, 1 } },
	};
	const struct spr_field twice[] = { point_fields[0], point_fields[0] };
	const struct spr_kind named[] = {
		{ "blind", NULL, 0, 0 },
		{ "bytes", NULL, 0, 0 },
		{ "a b", NULL, 0, 0 },
		{ "x", NULL, 1, 0 },
		{ "x", twice, 2, 0 },
		{ "x", point_fields, 65, 0 },
		{ NULL, NULL, 0, 0 },
		{ "0123456789012345678901234567890123456789012345678901234567890123", NULL, 0, 0 },
	};
	const struct spr_kind same[] = { kinds[1], kinds[1] };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct spr_kind k = { "k", &bad[i], 1, 0 };

		assert_int_equal(spr_kinds_check(&k, 1), -EINVAL);
	}
	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
		assert_int_equal(spr_kinds_check(&named[i], 1), -EINVAL);
	assert_int_equal(spr_kinds_check(same, 2), -EINVAL);
	assert_int_equal(spr_kinds_check(NULL, 1), -EINVAL);
}

/* Each decoder gets its own allocation of exactly n bytes, so that ASan sees a step too far. */
static void try_bytes(const uint8_t *bytes, size_t n)
{
	struct spr_kind *back = NULL;
	uint32_t n_kinds;
	uint8_t *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, n);
	if (!spr_kinds_decode(&back, &n_kinds, copy, n)) {
		assert_int_equal(spr_kinds_check(back, n_kinds), 0);
		free(back);
	}
	assert_true(spr_kinds_find(copy, n, "nowhere_to_be_found") < 0);
	free(copy);
}

static void hostile_bytes_do_no_harm(void **state)
{
	size_t n;
	uint8_t *bytes = encoded(&n);

	(void)state;
	for (size_t cut = 0; cut < n; cut++) {
		struct spr_kind *back;
		uint32_t n_kinds;

		assert_int_equal(spr_kinds_decode(&back, &n_kinds, bytes, cut), -EPROTO);
		try_bytes(bytes, cut);
	}
	for (size_t at = 0; at < n; at++) {
		for (unsigned value = 0; value < 256; value++) {
			const uint8_t was = bytes[at];

			bytes[at] = (uint8_t)value;
			try_bytes(bytes, n);
			bytes[at] = was;
		}
	}
	free(bytes);
}

static const uint8_t point_bytes[] = {
	0xfe, 0xff, 0xff, 0xff, 0, 2, 1, 2, 0, 2, 0, 'l', 's', 0, 0, 8, 7, 6, 5, 4, 3, 2, 1,
};

static void fields_are_found_in_a_record(void **state)
{
	const struct spr_record rec = { .data = point_bytes,
		                        .bytes = sizeof(point_bytes),
		                        .kind = 1 };
	struct spr_value v;

	(void)state;
	assert_int_equal(spr_record_field(&kinds[0], &rec, 0, &v), 0);
	assert_int_equal((int64_t)v.number, -2);
	assert_int_equal(spr_record_field(&kinds[0], &rec, 1, &v), 0);
	assert_int_equal(v.present, 0);
	assert_int_equal(spr_record_field(&kinds[0], &rec, 2, &v), 0);
	assert_int_equal(v.number, 2);
	assert_int_equal(spr_record_field(&kinds[0], &rec, 3, &v), 0);
	assert_int_equal(v.number, 2);
	assert_int_equal(v.n, 2);
	assert_memory_equal(v.bytes, "ls", 2);
	assert_int_equal(spr_record_field(&kinds[0], &rec, 4, &v), 0);
	assert_int_equal(v.number, 0x0102030405060708);
	assert_int_equal(spr_record_field(&kinds[0], &rec, 5, &v), -EINVAL);
}

static void a_record_cut_short_is_refused(void **state)
{
	struct spr_record rec = { .kind = 1 };
	struct spr_value v;

	(void)state;
	for (uint32_t n = 0; n < sizeof(point_bytes); n++) {
		uint8_t *copy = malloc(n ? n : 1);

		assert_non_null(copy);
		memcpy(copy, point_bytes, n);
		rec.data = copy;
		rec.bytes = n;
		assert_int_equal(spr_record_field(&kinds[0], &rec, 4, &v), -EPROTO);
		free(copy);
	}
}

static void kinds_without_a_declaration_have_fields_too(void **state)
{
	static const uint8_t blind[] = { 7, 0, 0, 0, 1, 0, 'r', 2, 0, 't', 'x' };
	const struct spr_record raw = { .data = "abc", .bytes = 3 };
	const struct spr_record rec = { .data = blind,
		                        .bytes = sizeof(blind),
		                        .kind = SPR_KIND_BLIND };
	struct spr_value v;

	(void)state;
	assert_int_equal(spr_record_field(NULL, &raw, 0, &v), 0);
	assert_int_equal(v.n, 3);
	assert_int_equal(spr_record_field(NULL, &raw, 1, &v), -EINVAL);
	assert_int_equal(spr_record_field(NULL, &rec, 2, &v), 0);
	assert_memory_equal(v.bytes, "tx", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_declaration_comes_back_as_it_was),
		cmocka_unit_test(nothing_is_a_declaration_too),
		cmocka_unit_test(too_little_room_is_left_alone),
		cmocka_unit_test(a_kind_is_found_by_name),
		cmocka_unit_test(the_kinds_of_our_spies_are_good),
		cmocka_unit_test(a_bad_declaration_is_refused),
		cmocka_unit_test(hostile_bytes_do_no_harm),
		cmocka_unit_test(fields_are_found_in_a_record),
		cmocka_unit_test(a_record_cut_short_is_refused),
		cmocka_unit_test(kinds_without_a_declaration_have_fields_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
