/* SPDX-License-Identifier: MIT */
/*
 * populate.h - make pages of the ring exist through a call that can say no.
 *
 * A store into a hole of a full file system is a SIGBUS in whoever stores; so nothing of the file
 * is touched before one of these has succeeded on it.
 */
#ifndef SPR_SHM_POPULATE_H
#define SPR_SHM_POPULATE_H

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>

#include "base/kernel_abi.h"
#include "base/sys.h"

/* Linux before 5.14 has no MADV_POPULATE_WRITE. A futex operation that adds 0 to a word makes the
 * kernel fault the page in for writing, and answers EFAULT where a store would be a SIGBUS. */
static inline long spr_shm_populate_by_futex(uint8_t *at, size_t bytes)
{
	const long add_nothing = (FUTEX_OP_ADD << 28) | (FUTEX_OP_CMP_EQ << 24);

	for (size_t done = 0; done < bytes; done += 4096) {
		const long ret = spr_sys(SYS_futex, at + done, FUTEX_WAKE_OP, 0, 0, at + done,
		                         add_nothing);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* Pages at[0..bytes), page aligned: 0, or -ENOSPC (there is no room for them), or another -errno.
 * T: any. S. */
static inline int spr_shm_populate(uint8_t *at, size_t bytes)
{
	long ret = spr_sys(SYS_madvise, at, bytes, MADV_POPULATE_WRITE);

	if (ret == -EINVAL)
		ret = spr_shm_populate_by_futex(at, bytes);
	return ret == -EFAULT ? -ENOSPC : (int)ret;
}

/* The same for one who only reads: cheaper, nothing is made dirty. */
static inline int spr_shm_populate_read(uint8_t *at, size_t bytes)
{
	long ret = spr_sys(SYS_madvise, at, bytes, MADV_POPULATE_READ);

	if (ret == -EINVAL)
		ret = spr_shm_populate_by_futex(at, bytes);
	return ret == -EFAULT ? -ENOSPC : (int)ret;
}

#endif /* SPR_SHM_POPULATE_H */
