/* SPDX-License-Identifier: MIT */
/*
 * calls.h - the one table that names each call we watch, once.
 *
 * From it are made: the labels of the field "file.op" (base/kinds_spies.c), the hooks of
 * libsparring-files.so and the list of what it exports (spy/), what syscall(2) and later a filter
 * look for, and the test that makes each of these calls and wants to see it. To hook another
 * call, add a row here; where its arguments are of a known shape that is all.
 *
 *   CALL(name, kernel, way, access, shape, flags)   a label of its own; the symbol has this name
 *   TWIN(symbol, name, way, access, shape, flags)   another symbol for the same call of the source
 *                                                   (64-bit, fortified, old stat): label `name`
 *   KERN(name, kernel, way, access, shape, flags)   a kernel call without a function in libc
 *
 * kernel  the system call with these arguments in this order, or `none`: a program that makes it
 *         by syscall() is seen as `name`
 * way     how the hook makes the call. All go to libc's function (the next symbol): what another
 *         library hooks behind us goes on working, and cancellation points stay what they are.
 *           RAW   a thin wrapper and no cancellation point: a gate page may make it by number
 *           LIBC  stays libc's: a cancellation point, or libc does more than the one call
 *           PTR   the same, and failure is a null pointer
 *           HAND  the hook is written by hand in spy/
 *           ABSENT  there is no symbol
 * access  what is done to the path: bits of enum spr_access, or found from the flags
 * shape   which arguments are paths, and the directories they are relative to
 * flags   the position of the argument with the flags (O_*, AT_*, mode string), 9: none
 */
#ifndef SPR_BASE_CALLS_H
#define SPR_BASE_CALLS_H


/* Bits of the field "file.access", in the order of their labels. */
enum spr_access {
	SPR_READ_FILE = 1 << 0, /* SPR_READ is a collector's flag */
	SPR_WRITE     = 1 << 1,
	SPR_LIST_DIR  = 1 << 2,
	SPR_STAT      = 1 << 3,
	SPR_EXECUTE   = 1 << 4,
	SPR_CREATE    = 1 << 5,
	SPR_DELETE    = 1 << 6,
	SPR_RENAME    = 1 << 7,
	SPR_LINK      = 1 << 8,
	SPR_METADATA  = 1 << 9,
	/* Never in a record: the access stands in the flags argument. */
	SPR_BY_FLAGS = 1 << 16, /* O_* */
	SPR_BY_MODE  = 1 << 17, /* "r+" */
	SPR_BY_HOW   = 1 << 18, /* struct open_how */
};
#define SPR_ACCESS_LABELS \
	"read", "write", "list", "stat", "execute", "create", "delete", "rename", "link", "metadata"

/* Which arguments are what, counted from 0. */
enum spr_shape {
	SPR_SHAPE_P,    /* path 0 */
	SPR_SHAPE_P1,   /* path 1 (before it a version, a descriptor or a source) */
	SPR_SHAPE_DP,   /* dirfd 0, path 1 */
	SPR_SHAPE_DP1,  /* dirfd 1, path 2 (before it a version) */
	SPR_SHAPE_PP,   /* path 0, path2 1 */
	SPR_SHAPE_DPDP, /* dirfd 0, path 1, dirfd2 2, path2 3 */
	SPR_SHAPE_TP,   /* path2 0, a text that is not joined to anything; path 1 */
	SPR_SHAPE_TDP,  /* path2 0, the same; dirfd 1, path 2 */
	SPR_SHAPE_F,    /* descriptor 0: the path is what it is open on */
	SPR_SHAPE_NONE, /* no path, or found by hand */
};

#define SPR_RWC (SPR_READ_FILE | SPR_WRITE | SPR_CREATE)

#define SPR_CALLS(CALL, TWIN, KERN) \
	/* Opening. */ \
	CALL(open, open, LIBC, SPR_BY_FLAGS, P, 1) \
	TWIN(open64, open, LIBC, SPR_BY_FLAGS, P, 1) \
	TWIN(__open_2, open, LIBC, SPR_BY_FLAGS, P, 1) \
	TWIN(__open64_2, open, LIBC, SPR_BY_FLAGS, P, 1) \
	CALL(creat, creat, LIBC, SPR_WRITE | SPR_CREATE, P, 9) \
	TWIN(creat64, creat, LIBC, SPR_WRITE | SPR_CREATE, P, 9) \
	CALL(openat, openat, LIBC, SPR_BY_FLAGS, DP, 2) \
	TWIN(openat64, openat, LIBC, SPR_BY_FLAGS, DP, 2) \
	TWIN(__openat_2, openat, LIBC, SPR_BY_FLAGS, DP, 2) \
	TWIN(__openat64_2, openat, LIBC, SPR_BY_FLAGS, DP, 2) \
	KERN(openat2, openat2, ABSENT, SPR_BY_HOW, DP, 2) \
	CALL(fopen, none, PTR, SPR_BY_MODE, P, 1) \
	TWIN(fopen64, fopen, PTR, SPR_BY_MODE, P, 1) \
	CALL(freopen, none, PTR, SPR_BY_MODE, P, 1) \
	TWIN(freopen64, freopen, PTR, SPR_BY_MODE, P, 1) \
	CALL(mkstemp, none, HAND, SPR_RWC, P, 9) \
	TWIN(mkstemp64, mkstemp, HAND, SPR_RWC, P, 9) \
	CALL(mkostemp, none, HAND, SPR_RWC, P, 9) \
	TWIN(mkostemp64, mkostemp, HAND, SPR_RWC, P, 9) \
	CALL(mkstemps, none, HAND, SPR_RWC, P, 9) \
	TWIN(mkstemps64, mkstemps, HAND, SPR_RWC, P, 9) \
	CALL(mkostemps, none, HAND, SPR_RWC, P, 9) \
	TWIN(mkostemps64, mkostemps, HAND, SPR_RWC, P, 9) \
	CALL(mkdtemp, none, HAND, SPR_CREATE, P, 9) \
	/* Asking. */ \
	CALL(stat, stat, RAW, SPR_STAT, P, 9) \
	TWIN(stat64, stat, RAW, SPR_STAT, P, 9) \
	TWIN(__xstat, stat, LIBC, SPR_STAT, P1, 9) \
	TWIN(__xstat64, stat, LIBC, SPR_STAT, P1, 9) \
	CALL(lstat, lstat, RAW, SPR_STAT, P, 9) \
	TWIN(lstat64, lstat, RAW, SPR_STAT, P, 9) \
	TWIN(__lxstat, lstat, LIBC, SPR_STAT, P1, 9) \
	TWIN(__lxstat64, lstat, LIBC, SPR_STAT, P1, 9) \
	CALL(fstatat, none, RAW, SPR_STAT, DP, 3) \
	TWIN(fstatat64, fstatat, RAW, SPR_STAT, DP, 3) \
	TWIN(__fxstatat, fstatat, LIBC, SPR_STAT, DP1, 4) \
	TWIN(__fxstatat64, fstatat, LIBC, SPR_STAT, DP1, 4) \
	KERN(newfstatat, newfstatat, ABSENT, SPR_STAT, DP, 3) \
	CALL(statx, statx, RAW, SPR_STAT, DP, 2) \
	CALL(access, access, RAW, SPR_STAT, P, 9) \
	CALL(eaccess, none, LIBC, SPR_STAT, P, 9) \
	CALL(euidaccess, none, LIBC, SPR_STAT, P, 9) \
	CALL(faccessat, faccessat, LIBC, SPR_STAT, DP, 9) \
	KERN(faccessat2, faccessat2, ABSENT, SPR_STAT, DP, 3) \
	CALL(readlink, readlink, RAW, SPR_READ_FILE, P, 9) \
	TWIN(__readlink_chk, readlink, LIBC, SPR_READ_FILE, P, 9) \
	CALL(readlinkat, readlinkat, RAW, SPR_READ_FILE, DP, 9) \
	TWIN(__readlinkat_chk, readlinkat, LIBC, SPR_READ_FILE, DP, 9) \
	CALL(realpath, none, HAND, SPR_STAT, P, 9) \
	TWIN(__realpath_chk, realpath, HAND, SPR_STAT, P, 9) \
	CALL(canonicalize_file_name, none, HAND, SPR_STAT, P, 9) \
	CALL(statfs, statfs, RAW, SPR_STAT, P, 9) \
	TWIN(statfs64, statfs, RAW, SPR_STAT, P, 9) \
	CALL(statvfs, none, LIBC, SPR_STAT, P, 9) \
	TWIN(statvfs64, statvfs, LIBC, SPR_STAT, P, 9) \
	CALL(getxattr, getxattr, RAW, SPR_STAT, P, 9) \
	CALL(lgetxattr, lgetxattr, RAW, SPR_STAT, P, 9) \
	CALL(listxattr, listxattr, RAW, SPR_STAT, P, 9) \
	CALL(llistxattr, llistxattr, RAW, SPR_STAT, P, 9) \
	CALL(inotify_add_watch, inotify_add_watch, RAW, SPR_STAT, P1, 9) \
	CALL(name_to_handle_at, name_to_handle_at, RAW, SPR_STAT, DP, 4) \
	/* Listing. */ \
	CALL(opendir, none, PTR, SPR_LIST_DIR, P, 9) \
	CALL(fdopendir, none, PTR, SPR_LIST_DIR, F, 9) \
	CALL(scandir, none, LIBC, SPR_LIST_DIR, P, 9) \
	TWIN(scandir64, scandir, LIBC, SPR_LIST_DIR, P, 9) \
	CALL(scandirat, none, LIBC, SPR_LIST_DIR, DP, 9) \
	TWIN(scandirat64, scandirat, LIBC, SPR_LIST_DIR, DP, 9) \
	CALL(glob, none, HAND, SPR_LIST_DIR, P, 9) \
	TWIN(glob64, glob, HAND, SPR_LIST_DIR, P, 9) \
	CALL(ftw, none, HAND, SPR_LIST_DIR, P, 9) \
	TWIN(ftw64, ftw, HAND, SPR_LIST_DIR, P, 9) \
	CALL(nftw, none, HAND, SPR_LIST_DIR, P, 9) \
	TWIN(nftw64, nftw, HAND, SPR_LIST_DIR, P, 9) \
	/* Changing. */ \
	CALL(truncate, truncate, RAW, SPR_WRITE, P, 9) \
	TWIN(truncate64, truncate, RAW, SPR_WRITE, P, 9) \
	CALL(mkdir, mkdir, RAW, SPR_CREATE, P, 9) \
	CALL(mkdirat, mkdirat, RAW, SPR_CREATE, DP, 9) \
	CALL(mkfifo, none, LIBC, SPR_CREATE, P, 9) \
	CALL(mkfifoat, none, LIBC, SPR_CREATE, DP, 9) \
	CALL(mknod, mknod, LIBC, SPR_CREATE, P, 9) \
	TWIN(__xmknod, mknod, LIBC, SPR_CREATE, P1, 9) \
	CALL(mknodat, mknodat, LIBC, SPR_CREATE, DP, 9) \
	TWIN(__xmknodat, mknodat, LIBC, SPR_CREATE, DP1, 9) \
	CALL(rmdir, rmdir, RAW, SPR_DELETE, P, 9) \
	CALL(unlink, unlink, RAW, SPR_DELETE, P, 9) \
	CALL(unlinkat, unlinkat, RAW, SPR_DELETE, DP, 9) \
	CALL(remove, none, LIBC, SPR_DELETE, P, 9) \
	CALL(rename, rename, RAW, SPR_RENAME, PP, 9) \
	CALL(renameat, renameat, RAW, SPR_RENAME, DPDP, 9) \
	CALL(renameat2, renameat2, RAW, SPR_RENAME, DPDP, 9) \
	CALL(link, link, RAW, SPR_LINK, PP, 9) \
	CALL(linkat, linkat, RAW, SPR_LINK, DPDP, 4) \
	CALL(symlink, symlink, RAW, SPR_LINK | SPR_CREATE, TP, 9) \
	CALL(symlinkat, symlinkat, RAW, SPR_LINK | SPR_CREATE, TDP, 9) \
	CALL(chmod, chmod, RAW, SPR_METADATA, P, 9) \
	CALL(lchmod, none, LIBC, SPR_METADATA, P, 9) \
	CALL(fchmodat, fchmodat, LIBC, SPR_METADATA, DP, 9) \
	KERN(fchmodat2, fchmodat2, ABSENT, SPR_METADATA, DP, 3) \
	CALL(chown, chown, RAW, SPR_METADATA, P, 9) \
	CALL(lchown, lchown, RAW, SPR_METADATA, P, 9) \
	CALL(fchownat, fchownat, RAW, SPR_METADATA, DP, 4) \
	CALL(utime, utime, LIBC, SPR_METADATA, P, 9) \
	CALL(utimes, utimes, LIBC, SPR_METADATA, P, 9) \
	CALL(lutimes, none, LIBC, SPR_METADATA, P, 9) \
	CALL(futimesat, futimesat, LIBC, SPR_METADATA, DP, 9) \
	CALL(utimensat, utimensat, RAW, SPR_METADATA, DP, 3) \
	CALL(setxattr, setxattr, RAW, SPR_METADATA, P, 9) \
	CALL(lsetxattr, lsetxattr, RAW, SPR_METADATA, P, 9) \
	CALL(removexattr, removexattr, RAW, SPR_METADATA, P, 9) \
	CALL(lremovexattr, lremovexattr, RAW, SPR_METADATA, P, 9) \
	/* The ground paths stand on. */ \
	CALL(chdir, chdir, HAND, SPR_STAT, P, 9) \
	CALL(fchdir, fchdir, HAND, SPR_STAT, F, 9) \
	CALL(chroot, chroot, HAND, SPR_STAT, P, 9) \
	KERN(pivot_root, pivot_root, ABSENT, SPR_STAT, PP, 9) \
	CALL(mount, mount, RAW, SPR_METADATA, P1, 9) \
	CALL(umount, none, RAW, SPR_METADATA, P, 9) \
	CALL(umount2, umount2, RAW, SPR_METADATA, P, 9) \
	KERN(open_tree, open_tree, ABSENT, SPR_STAT, DP, 2) \
	KERN(move_mount, move_mount, ABSENT, SPR_METADATA, DPDP, 9) \
	KERN(fspick, fspick, ABSENT, SPR_STAT, DP, 9) \
	CALL(swapon, swapon, RAW, SPR_READ_FILE | SPR_WRITE, P, 9) \
	CALL(swapoff, swapoff, RAW, SPR_STAT, P, 9) \
	CALL(acct, acct, RAW, SPR_WRITE, P, 9) \
	/* Running. */ \
	CALL(execve, execve, HAND, SPR_EXECUTE, P, 9) \
	CALL(execveat, execveat, HAND, SPR_EXECUTE, DP, 4) \
	CALL(fexecve, none, HAND, SPR_EXECUTE, F, 9) \
	CALL(execv, none, HAND, SPR_EXECUTE, P, 9) \
	CALL(execvp, none, HAND, SPR_EXECUTE, P, 9) \
	CALL(execvpe, none, HAND, SPR_EXECUTE, P, 9) \
	CALL(execl, none, HAND, SPR_EXECUTE, P, 9) \
	CALL(execlp, none, HAND, SPR_EXECUTE, P, 9) \
	CALL(execle, none, HAND, SPR_EXECUTE, P, 9) \
	CALL(posix_spawn, none, HAND, SPR_EXECUTE, P1, 9) \
	CALL(posix_spawnp, none, HAND, SPR_EXECUTE, P1, 9) \
	CALL(system, none, HAND, SPR_EXECUTE, NONE, 9) \
	CALL(popen, none, HAND, SPR_EXECUTE, NONE, 9)

/* Hooked because of what they do to our sight; they make no "file" record of their own.
 *   QUIET(symbol, why) */
#define SPR_CALLS_QUIET(QUIET) \
	QUIET(syscall, "any of the calls above may hide behind it") \
	QUIET(prctl, "a filter of the target's own forbids us to make system calls") \
	QUIET(unshare, "a working directory per thread; other names for the same files") \
	QUIET(setns, "other names for the same files")

/* What a reader of "file.op" sees, and what writes it. The order is part of no promise: every
 * trace carries its labels. */
#define SPR_OP_CALL(name, kernel, way, access, shape, flags) SPR_OP_##name,
#define SPR_OP_TWIN(symbol, name, way, access, shape, flags)
enum spr_op { SPR_CALLS(SPR_OP_CALL, SPR_OP_TWIN, SPR_OP_CALL) SPR_N_OPS };
#undef SPR_OP_CALL
#undef SPR_OP_TWIN

enum spr_process_op { SPR_PROCESS_START, SPR_PROCESS_EXEC, SPR_PROCESS_EXIT };

/* How the end of what did not fit into a record is marked: the last bytes of a string that was
 * cut, or the last element of a list, are this. A path is cut after SPR_PATH_BYTES_MAX, argv after
 * SPR_ARGV_BYTES_MAX in all or SPR_ARGV_N_MAX strings. */
#define SPR_CUT_MARK       "...[cut]"
#define SPR_PATH_BYTES_MAX 16384u
#define SPR_ARGV_BYTES_MAX 16384u
#define SPR_ARGV_N_MAX     1024u

#endif /* SPR_BASE_CALLS_H */
