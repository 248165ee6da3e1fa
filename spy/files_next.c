/* SPDX-License-Identifier: MIT */
/*
 * files_next.c - libc's own functions, found as dlsym(RTLD_NEXT) finds them, and called.
 *
 * dlsym takes the loader's lock (a signal handler inside dlopen, or a child forked meanwhile, would
 * wait for it for ever) and a hundred of them at every start cost more than a short program's
 * whole recording. The loader's list of objects can be read without it: those that stand behind us
 * up to libc are there from the start to the end of the process, in the order of the search.
 */
#include <errno.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>

#include "spy/files.h"

/* The loader's anchor for debuggers; weak, so that a loader without it only leaves us blind. */
extern struct r_debug _r_debug __attribute__((weak));
/* _DYNAMIC, under another C name: <link.h> declares it as if it could be preempted. */
extern ElfW(Dyn) own_dynamic[] __asm__("_DYNAMIC") SPR_HIDE;

void *_Atomic
	spr_spy_next_known[SPR_N_ROWS]; /* a lookup gives the same answer every time: no pair */

struct object {
	uintptr_t         base;
	const uint32_t   *hash;
	const ElfW(Sym)  *symbols;
	const char       *strings;
	const ElfW(Half) *versions; /* may be NULL */
};

static bool object_read(struct object *o, const struct link_map *map)
{
	memset(o, 0, sizeof(*o));
	o->base = map->l_addr;
	for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
		uintptr_t at = d->d_un.d_ptr;

		/* Most loaders relocate these in place; some, and the vDSO's, are left relative. */
		if (at < o->base)
			at += o->base;
		if (d->d_tag == DT_GNU_HASH)
			o->hash = (const uint32_t *)at;
		else if (d->d_tag == DT_SYMTAB)
			o->symbols = (const ElfW(Sym) *)at;
		else if (d->d_tag == DT_STRTAB)
			o->strings = (const char *)at;
		else if (d->d_tag == DT_VERSYM)
			o->versions = (const ElfW(Half) *)at;
	}
	return o->hash && o->symbols && o->strings;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

/* Is this the definition a new program would be linked to? */
static bool symbol_fits(const struct object *o, uint32_t i, const char *name)
{
	const ElfW(Sym) *sym = &o->symbols[i];

	return sym->st_shndx != SHN_UNDEF && (sym->st_info & 15) == STT_FUNC &&
	       !(o->versions && (o->versions[i] & 0x8000)) &&
	       strcmp(o->strings + sym->st_name, name) == 0;
}

static void *object_find(const struct object *o, const char *name, uint32_t hash)
{
	const uint32_t n_buckets = o->hash[0], first = o->hash[1], n_bloom = o->hash[2];
	const ElfW(Addr) *bloom = (const void *)&o->hash[4];
	const uint32_t *buckets = (const void *)&bloom[n_bloom];
	const uint32_t *chain = &buckets[n_buckets];
	const unsigned bits = sizeof(*bloom) * 8;
	const ElfW(Addr) word = bloom[(hash / bits) % n_bloom];

	if (!(word >> (hash % bits) & 1) || !(word >> ((hash >> o->hash[3]) % bits) & 1))
		return NULL;
	for (uint32_t i = buckets[hash % n_buckets]; i >= first; i++) {
		if ((chain[i - first] | 1) == (hash | 1) && symbol_fits(o, i, name))
			return (void *)(o->base + o->symbols[i].st_value);
		if (chain[i - first] & 1)
			break;
	}
	return NULL;
}

/* The loader's anchor by way of the program's own headers, for a loader that exports none. */
static const struct r_debug *anchor_of_program(void)
{
	ElfW(auxv_t) aux;
	const ElfW(Phdr) *headers = NULL;
	uintptr_t base = 0;
	size_t n = 0;
	const int fd = (int)spr_sys(SYS_openat, AT_FDCWD, "/proc/self/auxv", O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && spr_sys(SYS_read, fd, &aux, sizeof(aux)) == sizeof(aux) &&
	       aux.a_type != AT_NULL) {
		if (aux.a_type == AT_PHDR)
			headers = (const ElfW(Phdr) *)aux.a_un.a_val;
		else if (aux.a_type == AT_PHNUM)
			n = aux.a_un.a_val;
	}
	if (fd >= 0)
		spr_sys(SYS_close, fd);
	for (size_t i = 0; headers && i < n; i++) {
		if (headers[i].p_type == PT_PHDR)
			base = (uintptr_t)headers - headers[i].p_vaddr;
		if (headers[i].p_type != PT_DYNAMIC)
			continue;
		for (const ElfW(Dyn) *d = (const void *)(base + headers[i].p_vaddr); d->d_tag;
		     d++) {
			if (d->d_tag == DT_DEBUG)
				return (const struct r_debug *)d->d_un.d_ptr;
		}
	}
	return NULL;
}

static struct link_map *own_map(void)
{
	static struct link_map *_Atomic own; /* the same answer every time */
	struct link_map *map = spr_load_relaxed(&own);
	const struct r_debug *anchor;

	if (spr_likely(map != NULL))
		return map;
	anchor = &_r_debug ? &_r_debug : anchor_of_program();
	for (map = anchor ? anchor->r_map : NULL; map && map->l_ld != own_dynamic;)
		map = map->l_next;
	spr_store_relaxed(&own, map);
	return map;
}

static void *search(const struct link_map *from, const struct link_map *end, const char *name)
{
	const uint32_t hash = gnu_hash(name);
	struct object o;

	for (; from && from != end; from = from->l_next) {
		void *found = object_read(&o, from) ? object_find(&o, name, hash) : NULL;

		if (found)
			return found;
	}
	return NULL;
}

static const struct link_map *first_map(void)
{
	const struct link_map *map = own_map();

	while (map && map->l_prev)
		map = map->l_prev;
	return map;
}

/* Behind us; where we were loaded late (dlopen) everything stands in front of us. */
void *spr_spy_next_find(const char *name)
{
	const struct link_map *own = own_map();
	void *found = own ? search(own->l_next, NULL, name) : NULL;

	return found || !own ? found : search(first_map(), own, name);
}

void *spr_spy_next_find_first(const char *name)
{
	return search(first_map(), NULL, name);
}

/* AddressSanitizer's library ends a program in which another library stands before it, a thing it
 * checks by name. What begins with "linux-" it takes for the kernel's own object; so in its
 * processes, and only there, that is what we are called. */
void spr_spy_next_rename(void)
{
	static char name[] = "linux-sparring-files";
	struct link_map *own = own_map();

	for (const struct link_map *map = own ? own->l_next : NULL; map; map = map->l_next) {
		if (strstr(map->l_name, "libasan.so") || strstr(map->l_name, "libclang_rt.asan")) {
			own->l_name = name;
			return;
		}
	}
}

void *spr_spy_next(enum spr_row_number n)
{
	void *found = spr_load_relaxed(&spr_spy_next_known[n]);

	if (spr_unlikely(!found)) {
		found = spr_spy_next_find(spr_spy_rows[n].symbol);
		spr_store_relaxed(&spr_spy_next_known[n], found);
	}
	return found;
}
