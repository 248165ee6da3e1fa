/* SPDX-License-Identifier: MIT */
/*
 * kernel_abi.h - what newer kernels know and Debian 12's headers (glibc 2.36, Linux 6.1) do not.
 * The numbers are the kernel's ABI and never change. Each is used only behind a probe.
 */
#ifndef SPR_BASE_KERNEL_ABI_H
#define SPR_BASE_KERNEL_ABI_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* Linux 5.14: fault pages in and say so when there is no room, where a store would be SIGBUS. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Linux 3.15; musl and strict modes hide them. */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK  36
#define F_OFD_SETLK  37
#define F_OFD_SETLKW 38
#endif

/* futex2: Linux 5.16 (waitv), 6.7 (wait, wake, requeue; and through io_uring). */
#ifndef FUTEX2_SIZE_U32
#define FUTEX2_SIZE_U8  0x00
#define FUTEX2_SIZE_U16 0x01
#define FUTEX2_SIZE_U32 0x02
#define FUTEX2_SIZE_U64 0x03
#define FUTEX2_NUMA     0x04
#define FUTEX2_PRIVATE  128
#endif
#ifndef FUTEX_BITSET_MATCH_ANY
#define FUTEX_BITSET_MATCH_ANY 0xffffffff
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wake
#define SYS_futex_wake    454
#define SYS_futex_wait    455
#define SYS_futex_requeue 456
#endif

/* io_uring operations; an enum in the header, so they cannot be tested for: our own names. */
#define SPR_IORING_OP_READ_MULTISHOT 49 /* Linux 6.7 */
#define SPR_IORING_OP_WAITID         50 /* Linux 6.7 */
#define SPR_IORING_OP_FUTEX_WAIT     51 /* Linux 6.7 */
#define SPR_IORING_OP_FUTEX_WAKE     52 /* Linux 6.7 */
#define SPR_IORING_OP_FUTEX_WAITV    53 /* Linux 6.7 */
#define SPR_IORING_OP_FTRUNCATE      55 /* Linux 6.9 */

/* seccomp: Linux 5.19 and 6.6. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1ul << 5)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1ul << 0)
#endif
/* ioctl _IOW('!', 4, __u64); the macro of the header needs its own _IOW. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS 0x40082104ul
#endif

/* System calls by number, the same on x86-64 and aarch64 from 424 on. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup    425
#define SYS_io_uring_enter    426
#define SYS_io_uring_register 427
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* Linux 6.6 */
#endif

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#endif /* SPR_BASE_KERNEL_ABI_H */
