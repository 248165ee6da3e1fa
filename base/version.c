/* SPDX-License-Identifier: MIT */
/* version.c - which library is loaded, as its header said when it was compiled. */
#include <sparring/sparring.h>

unsigned spr_version(void)
{
	return SPR_VERSION_MAJOR << 16 | SPR_VERSION_MINOR;
}
