/* SPDX-License-Identifier: MIT */
/* spy_calls_test.c - each call of base/calls.h is hooked, seen, and leaves libc's answer alone. */
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/spied.h"

struct row {
	const char *symbol, *name;
	uint32_t    op, access, shape;
	bool        kernel, by_hand;
};

enum ways { RAW, LIBC, PTR, HAND, ABSENT };

#define ROW_CALL(name, kernel, way, access, shape, flags) \
	{ #name, #name, SPR_OP_##name, access, SPR_SHAPE_##shape, false, way == HAND },
#define ROW_TWIN(symbol, name, way, access, shape, flags) \
	{ #symbol, #name, SPR_OP_##name, access, SPR_SHAPE_##shape, false, way == HAND },
#define ROW_KERN(name, kernel, way, access, shape, flags) \
	{ #name, #name, SPR_OP_##name, access, SPR_SHAPE_##shape, true, false },

static const struct row rows[] = { SPR_CALLS(ROW_CALL, ROW_TWIN, ROW_KERN) };
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

#define QUIET_NAME(symbol, why) #symbol,
static const char *const quiet[] = { SPR_CALLS_QUIET(QUIET_NAME) };
#define N_QUIET (sizeof(quiet) / sizeof(quiet[0]))

#define DIR "/nonexistent/every"

/* Does this record look like the call that every_call made for the row? */
static bool is_of(const struct row *row, const struct seen *it)
{
	char want[256];
	size_t n;

	if (it->kind != IS_FILE || it->op != row->op)
		return false;
	if (row->shape == SPR_SHAPE_F)
		return !strcmp(it->path, "/");
	if (row->shape == SPR_SHAPE_NONE)
		return !strcmp(it->path, "/bin/sh");
	n = (size_t)snprintf(want, sizeof(want), DIR "/%s", row->symbol);
	if (strncmp(it->path, want, n) != 0)
		return false;
	if (!strncmp(row->symbol, "mk", 2) && strstr(row->symbol, "temp"))
		return strlen(it->path) == n + 6;
	return !it->path[n];
}

static void every_call_of_the_table_is_seen(void **state)
{
	struct spied *s = spied_run(spied_program("every_call"), DIR);
	size_t missing = 0;

	(void)state;
	spied_assert_well(s);
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct seen *it = NULL;
		for (size_t k = 0; k < s->n && !it; k++)
			it = is_of(&rows[i], &s->seen[k]) ? &s->seen[k] : NULL;
		/* glob without a wildcard looks for the file itself. */
		if (!it || !it->access ||
		    (rows[i].access < SPR_BY_FLAGS && it->access != rows[i].access &&
		     rows[i].op != SPR_OP_glob)) {
			print_message("%s: %s\n", rows[i].symbol, it ? "wrong access" : "not seen");
			missing++;
		} else if (rows[i].shape < SPR_SHAPE_F && rows[i].op != SPR_OP_glob &&
		           !spied_error(s, it)) {
			print_message("%s: failed, and no result says so\n", rows[i].symbol);
			missing++;
		}
	}
	assert_int_equal(missing, 0);
	spied_drop(s);
}

static void second_paths_are_joined_and_texts_are_not(void **state)
{
	struct spied *s = spied_run(spied_program("every_call"), DIR);

	(void)state;
	for (size_t i = 0; i < s->n; i++) {
		const struct seen *it = &s->seen[i];
		if (it->kind != IS_FILE)
			continue;
		if (it->op == SPR_OP_rename || it->op == SPR_OP_renameat || it->op == SPR_OP_link)
			assert_string_equal(it->path2, it->path);
		else if (it->op == SPR_OP_symlink || it->op == SPR_OP_symlinkat)
			assert_string_equal(it->path2, "a text");
	}
	spied_drop(s);
}

static void results_and_errno_are_libcs(void **state)
{
	const char *const argv[] = { spied_program("every_call"), DIR, NULL };
	struct spied *s = spied_run(argv[0], DIR);
	int status;
	char *bare = spied_bare(argv, &status);

	(void)state;
	assert_int_equal(s->status, status);
	spied_assert_same(s->out, bare);
	free(bare);
	spied_drop(s);
}

/* --- What the library exports ------------------------------------------------------------------
 */

static bool in_table(const char *symbol)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		if (!rows[i].kernel && !strcmp(rows[i].symbol, symbol))
			return true;
	}
	for (size_t i = 0; i < N_QUIET; i++) {
		if (!strcmp(quiet[i], symbol))
			return true;
	}
	return false;
}

static void the_library_exports_the_table_and_no_more(void **state)
{
	char text[4096], file[4096];
	const char *lib;
	size_t n_bytes, n_exported = 0, n_wanted = N_QUIET;
	const ElfW(Ehdr) *elf;
	const ElfW(Shdr) *section;

	(void)state;
	assert_int_equal(spr_spy_library(text, sizeof(text)), 0);
	lib = strstr(text, "$LIB");
	snprintf(file, sizeof(file), "%.*slib/%s-linux-gnu%s", (int)(lib - text), text,
	         sizeof(void *) == 8 && EM_X86_64 ? "x86_64" : "", lib + 4);
	elf = (const void *)test_file_read(file, &n_bytes);
	if (!elf)
		TEST_SKIP("%s: not there on this machine", file);
	section = (const void *)((const char *)elf + elf->e_shoff);
	for (unsigned i = 0; i < elf->e_shnum; i++) {
		const ElfW(Sym) *sym = (const void *)((const char *)elf + section[i].sh_offset);
		const char *names = (const char *)elf + section[section[i].sh_link].sh_offset;
		for (size_t k = 0; section[i].sh_type == SHT_DYNSYM &&
		                   k < section[i].sh_size / sizeof(*sym); k++) {
			if (sym[k].st_shndx == SHN_UNDEF)
				continue;
			n_exported++;
			if (!in_table(names + sym[k].st_name))
				fail_msg("%s is exported", names + sym[k].st_name);
		}
	}
	for (size_t i = 0; i < N_ROWS; i++)
		n_wanted += !rows[i].kernel;
	assert_int_equal(n_exported, n_wanted);
	free((void *)elf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_of_the_table_is_seen),
		cmocka_unit_test(second_paths_are_joined_and_texts_are_not),
		cmocka_unit_test(results_and_errno_are_libcs),
		cmocka_unit_test(the_library_exports_the_table_and_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
