/* SPDX-License-Identifier: MIT */
/* escape.c - any bytes, any room: what comes out is well-formed, never acts, never overruns. */
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
	static size_t (*const all[])(char *, size_t, const void *, size_t) = {
		spr_escape_terminal, spr_escape_json, spr_escape_html, spr_escape_markdown,
	};
	const size_t room = n ? bytes[0] : 0;

	for (size_t e = 0; e < 4; e++) {
		char *cut = malloc(room ? room : 1), *whole;
		const size_t want = all[e](cut, room, bytes, n);

		whole = malloc(want + 1);
		if (!cut || !whole || all[e](whole, want + 1, bytes, n) != want ||
		    strlen(whole) != want || !spr_is_utf8(whole, want))
			abort();
		for (size_t i = 0; i < want; i++) {
			if ((unsigned char)whole[i] < 0x20 || whole[i] == 0x7f)
				abort();
		}
		if (room && (strlen(cut) >= room || memcmp(cut, whole, strlen(cut)) != 0))
			abort();
		free(cut);
		free(whole);
	}
	return 0;
}
