/* SPDX-License-Identifier: MIT */
/*
 * sys.h - every system call of the library, made without libc.
 *
 * Code that lives in somebody else's process must not call a function that a preload library may
 * hook (our own among them), must leave errno alone, and must work between vfork and exec. So all
 * calls are made here, by number, and results are >= 0 or -errno.
 *
 * The table: while spr_sys_hook is set, every call goes to it instead of the kernel. Tests set it
 * (tests/fake_sys.h) to fail the n-th call of a kind; nothing else may.
 */
#ifndef SPR_BASE_SYS_H
#define SPR_BASE_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

typedef long (*spr_sys_fn)(long nr, long a, long b, long c, long d, long e, long f);
extern spr_sys_fn spr_sys_hook __attribute__((visibility("hidden")));

/* Straight to the kernel, never through the table. T: any. S. */
static inline long spr_sys_raw(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
	                 : "=a"(ret)
	                 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
	                 : "+r"(x0)
	                 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
	                 : "memory");
	return x0;
#else
#error "sparring knows x86-64 and aarch64"
#endif
}

static inline long spr_sys6(long nr, long a, long b, long c, long d, long e, long f)
{
	const spr_sys_fn hook = spr_sys_hook;

	if (__builtin_expect(hook != NULL, 0))
		return hook(nr, a, b, c, d, e, f);
	return spr_sys_raw(nr, a, b, c, d, e, f);
}

/* spr_sys(SYS_close, fd): any call, arguments of any scalar or pointer type. */
#define SPR_SYS_X(nr, a, b, c, d, e, f, ...) \
	spr_sys6((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define spr_sys(...) SPR_SYS_X(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

#endif /* SPR_BASE_SYS_H */
