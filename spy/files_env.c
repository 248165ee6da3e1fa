/* SPDX-License-Identifier: MIT */
/*
 * files_env.c - our variables, put back where a program leaves them out.
 *
 *   LD_PRELOAD        the user's own list stays, in place and in order; we stand behind it, so that
 *                     what the user preloads has the first word and we see what it asks of libc
 *   SPARRING_CHANNEL  the channels' addresses, one a line (a recording inside a recording has two)
 *   SPARRING_PRELOAD  what stands in LD_PRELOAD for us
 *   SPARRING_SPY      options, by commas
 * An environment that has all of it is passed on as it is, the usual case. Where the library is out
 * of the new program's reach it is taken out of LD_PRELOAD.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spy/files.h"
#include "spy/program.h"

/* Our lines "NAME=value", copied when we attached (the original lies in memory that programs write
 * their titles into), one behind the other so that a process touches one page for them. */
enum { CHANNEL, PRELOAD, OPTIONS, N_LINES };
static const char *const names[N_LINES] = { "SPARRING_CHANNEL=", "SPARRING_PRELOAD=",
	                                    "SPARRING_SPY=" };
static char lines_text[12288];
static char *lines[N_LINES];

static const char confined_option[] = "confined";

struct room { /* one per thread, kept for the next exec */
	void  *at;
	size_t bytes;
};
SPR_THREAD struct room spare;

static const char *ours(unsigned which)
{
	return lines[which] + strlen(names[which]);
}

/* The value if `entry` is NAME=value with this name. */
static const char *entry_value(const char *entry, const char *name)
{
	const size_t n = strlen(name);

	return strncmp(entry, name, n) == 0 ? entry + n : NULL;
}

const char *spr_spy_env_get(char *const *envp, const char *name)
{
	const size_t n = strlen(name);

	for (; *envp; envp++) {
		if (strncmp(*envp, name, n) == 0 && (*envp)[n] == '=')
			return *envp + n + 1;
	}
	return NULL;
}

const char *spr_spy_env_channels(void)
{
	return ours(CHANNEL);
}

int spr_spy_env_keep(char *const *envp)
{
	size_t at = 0;

	for (unsigned i = 0; i < N_LINES; i++) {
		char name[24];
		const size_t n = strlen(names[i]);
		const char *value;
		size_t len;

		memcpy(name, names[i], n);
		name[n - 1] = '\0';
		value = spr_spy_env_get(envp, name);
		if (i != OPTIONS && (!value || !*value))
			return -ENOENT;
		len = value ? strlen(value) : 0;
		if (at + n + len + sizeof(confined_option) + 2 > sizeof(lines_text))
			return -ENAMETOOLONG;
		lines[i] = lines_text + at;
		memcpy(lines[i], names[i], n);
		memcpy(lines[i] + n, value ? value : "", len + 1);
		at += n + len + 1;
	}
	return 0;
}

void spr_spy_env_confine(void)
{
	char *end = lines[OPTIONS] + strlen(lines[OPTIONS]); /* the last line: room was left */

	if (strstr(ours(OPTIONS), confined_option))
		return;
	if (end[-1] != '=')
		*end++ = ',';
	memcpy(end, confined_option, sizeof(confined_option));
}

/* Is `word` one of the words of a list? LD_PRELOAD's may be separated by spaces or colons. */
static bool list_has(const char *list, const char *word, const char *separators)
{
	const size_t n = strlen(word);

	while (*list) {
		const size_t len = strcspn(list, separators);

		if (len == n && memcmp(list, word, n) == 0)
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}

/* Does a list of lines name all the channels that we are attached to? */
static bool has_channels(const char *theirs)
{
	const char *mine = ours(CHANNEL);

	while (*mine) {
		const size_t len = strcspn(mine, "\n");
		const char *at = theirs;

		while (*at && (strncmp(at, mine, len) != 0 || (at[len] && at[len] != '\n'))) {
			at += strcspn(at, "\n");
			at += *at == '\n';
		}
		if (!*at)
			return false;
		mine += len + (mine[len] == '\n');
	}
	return true;
}

/* Will the loader find the library from where this process stands? After a chroot, in another mount
 * namespace or with fewer rights it may not, and would say so on the program's stderr. */
static bool library_is_there(const struct spr_spy *spy)
{
	static const char dirs[][24] = { SPR_LIB_DIRS };
	const char *text = ours(PRELOAD), *lib = strstr(text, "$LIB");
	char path[512];

	if (spr_load_relaxed(&spy->confined) || strlen(text) + sizeof(dirs[0]) > sizeof(path))
		return true;
	if (!lib)
		return spr_sys(SYS_faccessat, AT_FDCWD, text, R_OK) == 0;
	for (unsigned i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		const size_t head = (size_t)(lib - text), n = strlen(dirs[i]);

		memcpy(path, text, head);
		memcpy(path + head, dirs[i], n);
		memcpy(path + head + n, lib + 4, strlen(lib + 4) + 1);
		if (spr_sys(SYS_faccessat, AT_FDCWD, path, R_OK) == 0)
			return true;
	}
	return false;
}

/* What an entry of the program's environment becomes. */
enum fate { STAYS, DROPS, GROWS, SHRINKS };

struct plan {
	bool   away; /* the library cannot be loaded: it is not asked for */
	size_t n, n_ours, text_bytes;
	bool   has_preload, has_channel, has_ours, has_options;
};

static enum fate entry_fate(const char *entry, struct plan *plan)
{
	const char *value;

	if (entry[0] == 'L' && (value = entry_value(entry, "LD_PRELOAD="))) {
		plan->has_preload = true;
		if (plan->away)
			return list_has(value, ours(PRELOAD), " :") ? SHRINKS : STAYS;
		return list_has(value, ours(PRELOAD), " :") ? STAYS : GROWS;
	}
	if (strncmp(entry, "SPARRING_", 9) != 0)
		return STAYS;
	if ((value = entry_value(entry, names[CHANNEL]))) {
		plan->has_channel = true;
		return has_channels(value) ? STAYS : GROWS;
	}
	if ((value = entry_value(entry, names[PRELOAD]))) {
		plan->has_ours = strcmp(value, ours(PRELOAD)) == 0;
		return plan->has_ours ? STAYS : DROPS;
	}
	if ((value = entry_value(entry, names[OPTIONS]))) {
		plan->has_options = strcmp(value, ours(OPTIONS)) == 0;
		return plan->has_options ? STAYS : DROPS;
	}
	return STAYS;
}

size_t spr_spy_env_bytes(const struct spr_spy *spy, char *const *envp)
{
	struct plan plan = { .away = !library_is_there(spy) };
	bool as_it_is = envp != NULL;

	plan.has_preload = plan.away; /* or none is needed */
	for (; envp && envp[plan.n]; plan.n++) {
		const enum fate fate = entry_fate(envp[plan.n], &plan);

		as_it_is = as_it_is && fate == STAYS;
		if (fate == SHRINKS)
			plan.text_bytes += strlen(envp[plan.n]) + 1;
		if (fate == GROWS)
			plan.text_bytes += strlen(envp[plan.n]) + 2 +
			                   strlen(envp[plan.n][0] == 'L' ? lines[PRELOAD]
			                                                 : lines[CHANNEL]);
	}
	if (as_it_is && plan.has_preload && plan.has_channel && plan.has_ours && plan.has_options)
		return 0;
	if (!plan.has_preload)
		plan.text_bytes += sizeof("LD_PRELOAD=") + strlen(lines[PRELOAD]);
	return (plan.n + 5) * sizeof(char *) + plan.text_bytes;
}

/* "entry" + separator + text, at *text, which moves on. */
static char *entry_grow(char **text, const char *entry, char separator, const char *more)
{
	const size_t n = strlen(entry), m = strlen(more);
	char *start = *text;

	memcpy(start, entry, n);
	if (n && start[n - 1] != '=')
		start[n] = separator;
	*text = start + n + (n && start[n - 1] != '=');
	memcpy(*text, more, m + 1);
	*text += m + 1;
	return start;
}

/* "LD_PRELOAD=" without our word, at *text, which moves on; NULL if nothing is left. */
static char *entry_shrink(char **text, const char *entry)
{
	const char *word = entry_value(entry, "LD_PRELOAD=");
	char *start = *text, *at = start + (word - entry);

	memcpy(start, entry, (size_t)(word - entry));
	while (*word) {
		const size_t n = strcspn(word, " :");

		if (n != strlen(ours(PRELOAD)) || memcmp(word, ours(PRELOAD), n) != 0) {
			memcpy(at, word, n);
			at += n;
			*at++ = ':';
		}
		word += n + (word[n] != '\0');
	}
	if (at[-1] == '=')
		return NULL;
	at[-1] = '\0';
	*text = at;
	return start;
}

char *const *spr_spy_env_make(const struct spr_spy *spy, char *const *envp, void *room)
{
	struct plan plan = { .away = !library_is_there(spy) };
	char **out = room;
	char *text;

	plan.has_preload = plan.away;
	while (envp && envp[plan.n])
		plan.n++;
	text = (char *)(out + plan.n + 5);
	for (; envp && *envp; envp++) {
		const enum fate fate = entry_fate(*envp, &plan);

		if (fate == STAYS)
			*out++ = *envp;
		else if (fate == SHRINKS && (*out = entry_shrink(&text, *envp)))
			out++;
		else if (fate == GROWS && (*envp)[0] == 'L')
			*out++ = entry_grow(&text, *envp, ':', ours(PRELOAD));
		else if (fate == GROWS)
			*out++ = entry_grow(&text, *envp, '\n', ours(CHANNEL));
	}
	if (!plan.has_preload)
		*out++ = entry_grow(&text, "LD_PRELOAD=", ':', ours(PRELOAD));
	if (!plan.has_channel)
		*out++ = lines[CHANNEL];
	if (!plan.has_ours)
		*out++ = lines[PRELOAD];
	if (!plan.has_options)
		*out++ = lines[OPTIONS];
	*out = NULL;
	return room;
}

void *spr_spy_env_room(size_t bytes)
{
	const size_t want = (bytes + 0xffff) & ~(size_t)0xffff;
	long at;

	if (spare.bytes >= bytes)
		return spare.at;
	if (spare.at)
		spr_sys(SYS_munmap, spare.at, spare.bytes);
	spare.at = NULL;
	spare.bytes = 0;
	at = spr_sys(SYS_mmap, 0, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at < 0 && at > -4096)
		return NULL;
	spare.at = (void *)at;
	spare.bytes = want;
	return spare.at;
}
