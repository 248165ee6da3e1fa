/* SPDX-License-Identifier: MIT */
/* escape_test.c - nothing that came from a target acts on a terminal, a page or a parser. */
#include "tests/support.h"

#include <string.h>

#include "base/escape.h"

typedef size_t (*escape_fn)(char *out, size_t room, const void *text, size_t n_bytes);

static void expect(escape_fn escape, const char *text, size_t n, const char *want)
{
	char out[512];

	memset(out, '#', sizeof(out));
	assert_int_equal(escape(out, sizeof(out), text, n), strlen(want));
	assert_string_equal(out, want);
}
#define EXPECT(escape, text, want) expect(escape, text, sizeof(text) - 1, want)

static void terminal_shows_controls_and_keeps_text(void **state)
{
	(void)state;
	EXPECT(spr_escape_terminal, "/usr/lib/\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 ok",
	       "/usr/lib/\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 ok");
	EXPECT(spr_escape_terminal, "a\n\t\r\x1b[31m\x7f\0b", "a\\n\\t\\r\\x1b[31m\\x7f\\x00b");
	EXPECT(spr_escape_terminal, "\\n", "\\\\n"); /* not to be taken for a newline */
}

static void terminal_shows_c1_and_bidirectional_marks_as_bytes(void **state)
{
	(void)state;
	EXPECT(spr_escape_terminal, "\xc2\x9b" "31m", "\\xc2\\x9b31m");          /* CSI */
	EXPECT(spr_escape_terminal, "\xe2\x80\xae" "cod", "\\xe2\\x80\\xaecod"); /* U+202E */
	EXPECT(spr_escape_terminal, "\xe2\x81\xa6", "\\xe2\\x81\\xa6");          /* U+2066 */
	EXPECT(spr_escape_terminal, "\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81"); /* a tag */
}

static void terminal_shows_bytes_that_are_no_utf8(void **state)
{
	(void)state;
	EXPECT(spr_escape_terminal, "a\xff\xfe z", "a\\xff\\xfe z");
	EXPECT(spr_escape_terminal, "\xc0\xaf", "\\xc0\\xaf");         /* an overlong slash */
	EXPECT(spr_escape_terminal, "\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
	EXPECT(spr_escape_terminal, "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
	EXPECT(spr_escape_terminal, "\xe2\x82", "\\xe2\\x82"); /* cut off */
}

static void json_is_a_string_s_inside(void **state)
{
	(void)state;
	EXPECT(spr_escape_json, "a\"b\\c/\b\f\n\r\t\x01\x7f",
	       "a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u007f");
	EXPECT(spr_escape_json, "\xc2\x9b\xe2\x80\xa8\xf3\xa0\x81\x81",
	       "\\u009b\\u2028\\udb40\\udc41");
	EXPECT(spr_escape_json, "\xe2\x82\xac", "\xe2\x82\xac");
}

static void json_replaces_what_is_no_utf8(void **state)
{
	(void)state;
	EXPECT(spr_escape_json, "a\xff" "b", "a\xef\xbf\xbd" "b");
	EXPECT(spr_escape_json,
	       "\xe2\x82"
	       "x",
	       "\xef\xbf\xbd"
	       "x"); /* one for one broken beginning */
	EXPECT(spr_escape_json, "\xff\xff", "\xef\xbf\xbd\xef\xbf\xbd");
}

static void html_has_no_markup_left(void **state)
{
	(void)state;
	EXPECT(spr_escape_html, "<script a='1' b=\"2\">&amp;",
	       "&lt;script a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;amp;");
	EXPECT(spr_escape_html, "a\x1b\n\\", "a\\x1b\\n\\");
	EXPECT(spr_escape_html, "\xe2\x80\xae", "\\xe2\\x80\\xae");
}

static void markdown_has_no_markup_left(void **state)
{
	(void)state;
	EXPECT(spr_escape_markdown, "a|b`c`_d_*e*[f](g)!#",
	       "a\\|b\\`c\\`\\_d\\_\\*e\\*\\[f\\]\\(g\\)\\!\\#");
	EXPECT(spr_escape_markdown, "<b>&", "&lt;b&gt;&amp;");
	EXPECT(spr_escape_markdown, "@someone", "&#64;&#8203;someone");
	EXPECT(spr_escape_markdown, "http://x", "http\\://x");
	EXPECT(spr_escape_markdown, "a\nb", "a\\\\nb");
}

static const escape_fn all[] = {
	spr_escape_terminal, spr_escape_json, spr_escape_html, spr_escape_markdown,
};

/* At every size of room: the length told is the same, nothing behind the room is touched, what is
 * there is a beginning of the whole, and whole units of it. */
static void cut_output_ends_at_a_whole_unit(void **state)
{
	static const char text[] = "<\xe2\x82\xac&\x1b\xff\"@\xf0\x9f\x98\x80|\n";
	char whole[256], cut[260];

	(void)state;
	for (size_t e = 0; e < 4; e++) {
		const size_t n = all[e](whole, sizeof(whole), text, sizeof(text) - 1);

		for (size_t room = 0; room <= n + 1; room++) {
			memset(cut, '#', sizeof(cut));
			assert_int_equal(all[e](cut, room, text, sizeof(text) - 1), n);
			for (size_t i = room; i < sizeof(cut); i++)
				assert_int_equal(cut[i], '#');
			if (!room)
				continue;
			const size_t kept = strlen(cut);
			assert_true(kept < room);
			assert_memory_equal(cut, whole, kept);
			assert_true(spr_is_utf8(cut, kept));
			/* One more unit would not have fitted: units have at most 24 bytes. */
			assert_true(kept == n || kept + 24 >= room);
			assert_true(e < 2 || kept == 0 || cut[kept - 1] != '&');
		}
	}
}

static void random_bytes_never_act(void **state)
{
	uint64_t seed = test_seed();
	unsigned char text[64];
	char out[2048];

	(void)state;
	for (int i = 0; i < 20000; i++) {
		const size_t n = test_random(&seed) % sizeof(text);

		for (size_t j = 0; j < n; j++)
			text[j] = (unsigned char)test_random(&seed);
		for (size_t e = 0; e < 4; e++) {
			const size_t got = all[e](out, sizeof(out), text, n);

			assert_true(got < sizeof(out) && got == strlen(out));
			assert_true(spr_is_utf8(out, got));
			for (size_t j = 0; j < got; j++)
				assert_true((unsigned char)out[j] >= 0x20 && out[j] != 0x7f);
			assert_null(strstr(out, "\xc2\x9b"));
			assert_null(strstr(out, "\xe2\x80\xae"));
		}
	}
}

static void utf8_is_told_from_bytes(void **state)
{
	(void)state;
	assert_true(spr_is_utf8("", 0));
	assert_true(spr_is_utf8("a\0b", 3));
	assert_true(spr_is_utf8("\xf4\x8f\xbf\xbf\xed\x9f\xbf\xef\xbf\xbf", 10));
	assert_false(spr_is_utf8("\xc1\xbf", 2));
	assert_false(spr_is_utf8("\xe0\x9f\xbf", 3));
	assert_false(spr_is_utf8("\xf0\x8f\xbf\xbf", 4));
	assert_false(spr_is_utf8("\xf5\x80\x80\x80", 4));
	assert_false(spr_is_utf8("\xe2\x82\xac", 2));
	assert_false(spr_is_utf8("\x80", 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(terminal_shows_controls_and_keeps_text),
		cmocka_unit_test(terminal_shows_c1_and_bidirectional_marks_as_bytes),
		cmocka_unit_test(terminal_shows_bytes_that_are_no_utf8),
		cmocka_unit_test(json_is_a_string_s_inside),
		cmocka_unit_test(json_replaces_what_is_no_utf8),
		cmocka_unit_test(html_has_no_markup_left),
		cmocka_unit_test(markdown_has_no_markup_left),
		cmocka_unit_test(cut_output_ends_at_a_whole_unit),
		cmocka_unit_test(random_bytes_never_act),
		cmocka_unit_test(utf8_is_told_from_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
