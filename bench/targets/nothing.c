/* SPDX-License-Identifier: MIT */
/* nothing.c - a library to preload that does nothing: what preloading as such costs. */
int spr_bench_nothing(void);

__attribute__((visibility("default"))) int spr_bench_nothing(void)
{
	return 0;
}
