/* SPDX-License-Identifier: MIT */
/* format_test.c - docs/format.md: its example is what the encoder writes, and a reader written from
 * it alone reads what ours reads. */
#include "tests/trace_support.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "encoder/format.h"

/* A file of the source tree, looked for upward from the build folder. */
static char *tree_path(const char *name)
{
	char *folder = realpath(test_build_folder(), NULL);

	check(folder);
	for (char *end = folder + strlen(folder); end; end = strrchr(folder, '/')) {
		char *path;

		*end = 0;
		path = test_text("%s/%s", folder, name);
		if (!access(path, R_OK)) {
			free(folder);
			return path;
		}
		free(path);
	}
	fail_msg("%s is not above the build folder", name);
	return NULL;
}

/* The index-th block of hex numbers of the page; what stands behind a # is a remark. */
static void page_bytes(struct test_bytes *out, unsigned index)
{
	char *path = tree_path("docs/format.md"), *page = test_file_read(path, NULL), *at = page;

	assert_non_null(page);
	for (unsigned i = 0; i <= index; i++) {
		at = strstr(at, "```hex\n");
		assert_non_null(at);
		at += 7;
	}
	while (strncmp(at, "```", 3)) {
		unsigned value;
		int n = 0;

		if (*at == '#')
			at += strcspn(at, "\n");
		else if (isspace((unsigned char)*at))
			at++;
		else if (sscanf(at, "%2x%n", &value, &n) == 1 && n == 2)
			test_bytes_write(out, &(uint8_t){ (uint8_t)value }, 1), at += 2;
		else
			fail_msg("no hex number: %.20s", at);
	}
	free(page);
	free(path);
}

static void dump(const struct test_bytes *b)
{
	for (size_t i = 0; i < b->n; i++)
		printf("%02x%s", b->bytes[i], i % 16 == 15 || i + 1 == b->n ? "\n" : " ");
}

static void same_as_page(const struct test_bytes *b, unsigned index)
{
	struct test_bytes page = { 0 };

	page_bytes(&page, index);
	if (page.n != b->n || memcmp(page.bytes, b->bytes, b->n)) {
		printf("what the encoder writes:\n");
		dump(b);
		fail_msg("block %u of docs/format.md is something else", index);
	}
	test_bytes_release(&page);
}

static void example_make(struct test_bytes *b)
{
	static const struct spr_field fields[] = {
		{ .name = "x", .type = SPR_I32 },
		{ .name = "name", .type = SPR_STRING, .flags = SPR_OPTIONAL },
	};
	static const struct spr_kind kind = { "point", fields, 2, 0 };
	static const struct {
		const char *bytes;
		uint32_t    n;
		uint64_t    seq, time_ns;
	} records[] = {
		{ "\xfe\xff\xff\xff\1\4\0here", 11, 0, 1000 },
		{ "\5\0\0\0\0", 5, 1, 1250 },
		{ "\5\0\0\0\1\5\0there", 12, 3, 1300 },
	};
	struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
	uint32_t n_header;
	spr_encoder *e;

	o.kinds = &kind;
	o.n_kinds = 1;
	o.write = test_bytes_write;
	o.arg = b;
	assert_int_equal(spr_encoder_open(&e, &o), 0);
	for (size_t i = 0; i < 3; i++) {
		const struct spr_record rec = {
			.data = records[i].bytes,
			.bytes = records[i].n,
			.kind = 1,
			.flags = SPR_HAS_ID,
			.time_ns = records[i].time_ns,
			.seq = records[i].seq,
			.writer = 7,
			.pid = 1234,
			.tid = 1235,
		};

		assert_int_equal(spr_encoder_put(e, &rec, 1, NULL, NULL), 0);
	}
	assert_int_equal(spr_encoder_close(e, NULL), 0);
	/* The start is what it is each time. */
	n_header = spr_get32(b->bytes + 4);
	spr_put64(b->bytes + 32, 1);
	spr_put64(b->bytes + 40, 2);
	spr_put32(b->bytes + 4 + n_header, spr_format_crc32(b->bytes + 8, n_header - 4));
}

static void the_pages_content_is_what_the_encoder_makes(void **state)
{
	struct test_bytes b = { 0 }, content = { 0 };
	uint8_t out[1000];
	const uint8_t *at;
	size_t n;

	(void)state;
	example_make(&b);
	at = b.bytes + 8 + spr_get32(b.bytes + 4); /* SPRF */
	n = ZSTD_decompress(out, sizeof(out), at + 8 + spr_get32(at + 4), spr_get32(at + 12));
	assert_false(ZSTD_isError(n));
	test_bytes_write(&content, out, n);
	same_as_page(&content, 1);
	test_bytes_release(&content);
	test_bytes_release(&b);
}

static void the_pages_file_is_what_the_encoder_writes(void **state)
{
	struct test_bytes b = { 0 };

	(void)state;
	if (ZSTD_versionNumber() != 10504)
		TEST_SKIP("another zstd than 1.5.4 may compress otherwise");
	example_make(&b);
	same_as_page(&b, 0);
	test_bytes_release(&b);
}

static void the_pages_file_is_read(void **state)
{
	struct test_bytes page = { 0 };
	struct spr_record rec;
	struct spr_value v;
	uint32_t n_kinds;
	spr_trace *t;
	int fd;

	(void)state;
	page_bytes(&page, 0);
	fd = test_bytes_fd(page.bytes, page.n);
	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	assert_int_equal(spr_trace_next(t, &rec), 1);
	assert_int_equal(spr_record_field(spr_trace_kinds(t, &n_kinds), &rec, 0, &v), 0);
	assert_int_equal((int64_t)v.number, -2);
	assert_int_equal(spr_trace_next(t, &rec), 1);
	assert_int_equal(spr_trace_next(t, &rec), 1);
	assert_int_equal(rec.seq, 3);
	assert_int_equal(rec.time_ns, 1300);
	assert_int_equal(spr_trace_next(t, &rec), 0);
	spr_trace_close(t);
	close(fd);
	test_bytes_release(&page);
}

/* --- The reader in Python
 * ------------------------------------------------------------------------- */

static void line_add(struct test_bytes *out, const char *text)
{
	test_bytes_write(out, text, strlen(text));
}

/* What tests/read_spr.py prints, by our reader. */
static char *ours_print(const struct test_bytes *b)
{
	struct spr_verdict v = SPR_VERDICT_INIT;
	struct test_bytes out = { 0 };
	struct spr_record rec;
	spr_trace *t;
	char line[200];
	int fd = test_bytes_fd(b->bytes, b->n);

	assert_int_equal(spr_trace_open(&t, fd, NULL), 0);
	while (spr_trace_next(t, &rec) > 0) {
		const uint8_t *data = rec.data;

		snprintf(line, sizeof(line), "%u %llu %llu %llu %d %d %u ", rec.kind,
		         (unsigned long long)rec.time_ns, (unsigned long long)rec.seq,
		         (unsigned long long)rec.writer, rec.pid, rec.tid, rec.flags);
		line_add(&out, line);
		for (uint32_t i = 0; i < rec.bytes; i++) {
			snprintf(line, sizeof(line), "%02x", data[i]);
			line_add(&out, line);
		}
		line_add(&out, "\n");
	}
	assert_int_equal(spr_trace_verdict(t, &v), 0);
	snprintf(line, sizeof(line), "verdict %u %llu\n", v.reasons,
	         (unsigned long long)v.delivered);
	line_add(&out, line);
	test_bytes_write(&out, "", 1);
	spr_trace_close(t);
	close(fd);
	return (char *)out.bytes;
}

static void a_reader_written_from_the_page_agrees(void **state)
{
	static char python[] = "python3";
	char *script = tree_path("tests/read_spr.py"), *folder = test_folder_make();
	char *path = test_text("%s/t.spr", folder);
	uint64_t random = test_seed();

	(void)state;
	if (system("python3 -c '' 2>/dev/null && zstd --version >/dev/null 2>&1"))
		TEST_SKIP("python3 or the zstd command is missing");
	for (int round = 0; round < (test_long() ? 60 : 8); round++) {
		struct spr_encoder_options o = SPR_ENCODER_OPTIONS_INIT;
		struct test_records truth = { 0 };
		struct test_bytes b = { 0 };
		struct test_kinds kinds;
		struct test_end end;
		char *said, *ours;

		test_kinds_make(&kinds, &random);
		test_records_make(&truth, &kinds, round ? 400 : 0, 3, &random);
		o.frame_records = 150;
		o.flags = round % 2 ? SPR_GIVEN_ORDER : 0;
		if (round == 7)
			page_bytes(&b, 0);
		else
			test_encode(&b, &o, &kinds, &truth, 0);
		if (round % 3 == 2)
			b.n -= test_random(&random) % 300; /* cut */
		test_file_write(path, b.bytes, b.n);
		end = test_run((char *const[]){ python, script, path, NULL }, &said, 60000);
		ours = ours_print(&b);
		if (end.status || strcmp(said, ours))
			fail_msg("round %d: python said\n%.2000s\nours\n%.2000s", round, said,
			         ours);
		free(said);
		free(ours);
		test_bytes_release(&b);
		test_records_release(&truth);
	}
	free(path);
	free(script);
	test_folder_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_pages_content_is_what_the_encoder_makes),
		cmocka_unit_test(the_pages_file_is_what_the_encoder_writes),
		cmocka_unit_test(the_pages_file_is_read),
		cmocka_unit_test(a_reader_written_from_the_page_agrees),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
