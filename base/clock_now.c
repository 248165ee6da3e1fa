/* SPDX-License-Identifier: MIT */
/*
 * clock_now.c - CLOCK_MONOTONIC without libc, for writers on machines without a steady counter.
 *
 * libc's clock_gettime is out: preload libraries hook it to fake the time. A bare system call is
 * out where the vDSO has it: five times slower, and a process that has confined itself must not
 * make it. So the vDSO is asked directly; its symbol is looked up once, in a page that the kernel
 * mapped and nobody can hook.
 */
#include "base/clock.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <time.h>

#include "base/atomic.h"
#include "base/sys.h"

#if defined(__x86_64__)
#define VDSO_NAME "__vdso_clock_gettime"
#else
#define VDSO_NAME "__kernel_clock_gettime"
#endif

typedef int (*clock_fn)(clockid_t id, struct timespec *now);

static int clock_syscall(clockid_t id, struct timespec *now)
{
	return (int)spr_sys(SYS_clock_gettime, id, now);
}

static bool same_text(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

struct vdso {
	const Elf64_Sym *symbols;
	const char      *names;
	size_t           n_symbols;
	uintptr_t        bias;
};

static void vdso_dynamic(struct vdso *v, const Elf64_Dyn *dyn)
{
	const uint32_t *hash = NULL;

	for (; dyn->d_tag != DT_NULL; dyn++) {
		const uintptr_t at = v->bias + (uintptr_t)dyn->d_un.d_ptr;

		if (dyn->d_tag == DT_SYMTAB)
			v->symbols = (const Elf64_Sym *)at;
		else if (dyn->d_tag == DT_STRTAB)
			v->names = (const char *)at;
		else if (dyn->d_tag == DT_HASH)
			hash = (const uint32_t *)at;
	}
	if (hash) /* nchain is the number of symbols */
		v->n_symbols = hash[1];
	else if ((uintptr_t)v->names > (uintptr_t)v->symbols) /* linkers put one behind the other */
		v->n_symbols = ((uintptr_t)v->names - (uintptr_t)v->symbols) / sizeof(Elf64_Sym);
}

static clock_fn vdso_find(void)
{
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
	const Elf64_Dyn *dyn = NULL;
	struct vdso v = { 0 };
	bool loaded = false;

	if (!head)
		return clock_syscall;
	const Elf64_Phdr *ph = (const Elf64_Phdr *)((uintptr_t)head + head->e_phoff);
	for (unsigned i = 0; i < head->e_phnum; i++) {
		if (ph[i].p_type == PT_LOAD && !loaded) {
			v.bias = (uintptr_t)head + ph[i].p_offset - ph[i].p_vaddr;
			loaded = true;
		} else if (ph[i].p_type == PT_DYNAMIC) {
			dyn = (const Elf64_Dyn *)((uintptr_t)head + ph[i].p_offset);
		}
	}
	if (!loaded || !dyn)
		return clock_syscall;
	vdso_dynamic(&v, dyn);
	for (size_t i = 0; v.symbols && v.names && i < v.n_symbols; i++) {
		if (v.symbols[i].st_shndx && same_text(v.names + v.symbols[i].st_name, VDSO_NAME))
			return (clock_fn)(v.bias + v.symbols[i].st_value);
	}
	return clock_syscall;
}

uint64_t spr_clock_monotonic_ns(void)
{
	static _Atomic(clock_fn) found; /* whoever comes first finds the same */
	struct timespec now = { 0, 0 };
	clock_fn fn = spr_load_relaxed(&found);

	if (spr_unlikely(!fn)) {
		fn = vdso_find();
		spr_store_relaxed(&found, fn);
	}
	if (spr_unlikely(spr_sys_hook != NULL))
		fn = clock_syscall;
	fn(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
