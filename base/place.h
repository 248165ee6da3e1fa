/* SPDX-License-Identifier: MIT */
/*
 * place.h - the private place: a folder of mode 0700, ours alone, where channels live.
 *
 * $SPARRING_DIR, else /dev/shm/sparring-UID where /dev/shm has room, else /tmp/sparring-UID, else
 * $TMPDIR/sparring-UID. Targets empty their TMPDIR; containers have a /dev/shm of 64 MiB.
 * A folder is accepted only if it is a directory (no link) and owned by us. One named by these
 * rules is given mode 0700; one that somebody named stays as it is, and is refused if others may
 * write in it. Where another user sits on our name, the next base is tried, then a random name
 * behind ours. A channel is a file "spr-<16 hex digits>.ring" in it; its owner holds an OFD lock on
 * byte SPR_PLACE_OWNER_BYTE of it for as long as it lives, which is how a sweep tells the dead.
 */
#ifndef SPR_BASE_PLACE_H
#define SPR_BASE_PLACE_H

#include <stddef.h>
#include <stdint.h>

#define SPR_PLACE_OWNER_BYTE (1ull << 41)

/* Open (make if need be) the private place. want_bytes: what the channel could come to need; a
 * place whose file system has no more than 64 MiB or less than 1/16 of it free is passed over where
 * another is to be had. folder: NULL or "" for the rules above, else that folder itself (made if
 * need be, its parent is not). path gets its absolute name. Returns a descriptor
 * (O_PATH|O_DIRECTORY|O_CLOEXEC). E: -EACCES, -ENOENT, -ENOTDIR, -ENAMETOOLONG, -EROFS, -ENOSPC,
 * each with a sentence. */
int spr_place_open(const char *folder, uint64_t want_bytes, char *path, size_t path_room);

/* Make a new file in it, mode 0600, name = random + suffix, with the owner's lock taken before
 * anybody can see it unlocked (O_TMPFILE and linkat, or O_EXCL). suffix begins with a dot. name
 * gets the file's name. Returns its descriptor (O_RDWR|O_CLOEXEC), which holds the lock, or -errno
 * with a sentence; nothing is left behind then. */
int spr_place_create(int place, const char *suffix, char *name, size_t name_room);

/* Remove what dead runs of this user left in it: files of such a name whose owner's lock is free.
 * Never follows a link, never goes by pid or age, touches no other file of the folder. Calls each
 * (may be NULL) with the name of what it removed. Number removed or -errno. */
int spr_place_sweep(int place, void (*each)(void *arg, const char *name), void *arg);

#endif /* SPR_BASE_PLACE_H */
