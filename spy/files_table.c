/* SPDX-License-Identifier: MIT */
/* files_table.c - the rows of base/calls.h as data. */
#include "spy/files.h"

/* aarch64 has only the -at forms; older headers lack the newest. Each gets a number of its own
 * that no call has. */
#ifdef SYS_open
#define NR_open      SYS_open
#define NR_creat     SYS_creat
#define NR_stat      SYS_stat
#define NR_lstat     SYS_lstat
#define NR_access    SYS_access
#define NR_readlink  SYS_readlink
#define NR_mkdir     SYS_mkdir
#define NR_mknod     SYS_mknod
#define NR_rmdir     SYS_rmdir
#define NR_unlink    SYS_unlink
#define NR_rename    SYS_rename
#define NR_link      SYS_link
#define NR_symlink   SYS_symlink
#define NR_chmod     SYS_chmod
#define NR_chown     SYS_chown
#define NR_lchown    SYS_lchown
#define NR_utime     SYS_utime
#define NR_utimes    SYS_utimes
#define NR_futimesat SYS_futimesat
#else
#define NR_open      (-1)
#define NR_creat     (-1)
#define NR_stat      (-1)
#define NR_lstat     (-1)
#define NR_access    (-1)
#define NR_readlink  (-1)
#define NR_mkdir     (-1)
#define NR_mknod     (-1)
#define NR_rmdir     (-1)
#define NR_unlink    (-1)
#define NR_rename    (-1)
#define NR_link      (-1)
#define NR_symlink   (-1)
#define NR_chmod     (-1)
#define NR_chown     (-1)
#define NR_lchown    (-1)
#define NR_utime     (-1)
#define NR_utimes    (-1)
#define NR_futimesat (-1)
#endif
#ifdef SYS_renameat
#define NR_renameat SYS_renameat
#else
#define NR_renameat (-1)
#endif
#define NR_none              (-1)
#define NR_openat            SYS_openat
#define NR_openat2           437
#define NR_newfstatat        SYS_newfstatat
#define NR_statx             SYS_statx
#define NR_faccessat         SYS_faccessat
#define NR_faccessat2        439
#define NR_readlinkat        SYS_readlinkat
#define NR_statfs            SYS_statfs
#define NR_getxattr          SYS_getxattr
#define NR_lgetxattr         SYS_lgetxattr
#define NR_listxattr         SYS_listxattr
#define NR_llistxattr        SYS_llistxattr
#define NR_inotify_add_watch SYS_inotify_add_watch
#define NR_name_to_handle_at SYS_name_to_handle_at
#define NR_truncate          SYS_truncate
#define NR_mkdirat           SYS_mkdirat
#define NR_mknodat           SYS_mknodat
#define NR_unlinkat          SYS_unlinkat
#define NR_renameat2         SYS_renameat2
#define NR_linkat            SYS_linkat
#define NR_symlinkat         SYS_symlinkat
#define NR_fchmodat          SYS_fchmodat
#define NR_fchmodat2         452
#define NR_fchownat          SYS_fchownat
#define NR_utimensat         SYS_utimensat
#define NR_setxattr          SYS_setxattr
#define NR_lsetxattr         SYS_lsetxattr
#define NR_removexattr       SYS_removexattr
#define NR_lremovexattr      SYS_lremovexattr
#define NR_chdir             SYS_chdir
#define NR_fchdir            SYS_fchdir
#define NR_chroot            SYS_chroot
#define NR_pivot_root        SYS_pivot_root
#define NR_mount             SYS_mount
#define NR_umount2           SYS_umount2
#define NR_open_tree         428
#define NR_move_mount        429
#define NR_fspick            433
#define NR_swapon            SYS_swapon
#define NR_swapoff           SYS_swapoff
#define NR_acct              SYS_acct
#define NR_execve            SYS_execve
#define NR_execveat          SYS_execveat

#define ROW_CALL(name, kernel, way, access, shape, flags) \
	{ #name, access, SPR_OP_##name, NR_##kernel, SPR_WAY_##way, SPR_SHAPE_##shape, flags },
#define ROW_TWIN(symbol, name, way, access, shape, flags) \
	{ #symbol, access, SPR_OP_##name, -1, SPR_WAY_##way, SPR_SHAPE_##shape, flags },
#define ROW_QUIET(symbol, why) { #symbol, 0, 0, -1, SPR_WAY_HAND, SPR_SHAPE_NONE, 9 },

const struct spr_spy_row spr_spy_rows[SPR_N_ROWS] = {
	SPR_CALLS(ROW_CALL, ROW_TWIN, ROW_CALL) SPR_CALLS_QUIET(ROW_QUIET)
};

#define FIND_CALL(name, kernel, way, access, shape, flags) \
	if (NR_##kernel >= 0 && nr == NR_##kernel) \
		return &spr_spy_rows[SPR_ROW_##name];
#define FIND_TWIN(symbol, name, way, access, shape, flags)

const struct spr_spy_row *spr_spy_row_by_nr(long nr)
{
	SPR_CALLS(FIND_CALL, FIND_TWIN, FIND_CALL)
	return NULL;
}
