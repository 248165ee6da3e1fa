/* SPDX-License-Identifier: MIT */
/* options.h - read a caller's sized struct, older or newer than ours. */
#ifndef SPR_BASE_OPTIONS_H
#define SPR_BASE_OPTIONS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* `theirs` starts with uint32_t size; NULL means all defaults. Shorter than ours: the missing
 * fields stay 0. Longer: allowed only while the part we do not know is all zero (-E2BIG). */
static inline int spr_options_read(void *ours, size_t ours_bytes, const void *theirs)
{
	const unsigned char *bytes = theirs;
	uint32_t theirs_bytes;

	memset(ours, 0, ours_bytes);
	if (!theirs)
		return 0;
	memcpy(&theirs_bytes, theirs, sizeof(theirs_bytes));
	if (theirs_bytes < sizeof(theirs_bytes))
		return -EINVAL;
	for (size_t i = ours_bytes; i < theirs_bytes; i++) {
		if (bytes[i])
			return -E2BIG;
	}
	memcpy(ours, theirs, theirs_bytes < ours_bytes ? theirs_bytes : ours_bytes);
	return 0;
}

/* Fill a caller's sized struct from ours, as far as it reaches; its size field stays. */
static inline int spr_options_write(void *theirs, const void *ours, size_t ours_bytes)
{
	uint32_t theirs_bytes;

	memcpy(&theirs_bytes, theirs, sizeof(theirs_bytes));
	if (theirs_bytes < sizeof(theirs_bytes))
		return -EINVAL;
	memcpy((char *)theirs + sizeof(uint32_t), (const char *)ours + sizeof(uint32_t),
	       (theirs_bytes < ours_bytes ? theirs_bytes : ours_bytes) - sizeof(uint32_t));
	return 0;
}

#endif /* SPR_BASE_OPTIONS_H */
