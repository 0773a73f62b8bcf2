// SPDX-License-Identifier: Apache-2.0
/* The program's DIRs of which stage `serve` gives the names.

   A DIR is the one that libc made: opening, its descriptor, errors of opening and closing are the file system's.  Only the
   names that readdir and its family give come from the catalog, and then all of them.  Whether they do is decided when it
   is opened or rewound: libc has read nothing of it then, and reads nothing of it until it is rewound or closed, so that
   the two never mix.

   Invariants:
   1. Whatever happens to stages meanwhile (a nested call, a release, a seal), a DIR that is here stays so until it is
      rewound or closed, or until its descriptor is read past it before it gave a name.
   2. A DIR is known by its address: opening forgets what was there before, closing forgets it.
   3. No lock, no allocation: a table; what finds no place in it is libc's alone. */
#pragma once
#include <dirent.h>
#include "interpose/call.h"

struct penstock_dir;
struct penstock_index;
struct penstock_listing;

/* How many there are: nothing else is looked at where there is none. */
extern PENSTOCK_OURS _Atomic(uint32_t) penstock_dirs;

/* NULL: libc's. */
struct penstock_dir *penstock_dir_search(DIR *dir);
static inline struct penstock_dir *penstock_dir_of(DIR *dir) {
  return __builtin_expect(__atomic_load_n((uint32_t *)&penstock_dirs, __ATOMIC_RELAXED) != 0, 0) ? penstock_dir_search(dir) : NULL;
}

/* A DIR that nobody knows yet: from its begin, by this listing.  False: there is no place left. */
bool penstock_dir_answer(DIR *dir, int fd, const struct penstock_index *in, const struct penstock_listing *listing);

/* NULL does nothing. */
void penstock_dir_forget(struct penstock_dir *it);

/* This descriptor is read or moved without its DIR: that goes on from there, if it has given nothing yet. */
void penstock_dir_read_past(int fd);

/* The next name into `ret` (NULL: into room that belongs to the DIR); NULL at the end, or with an errno in *ret_error. */
struct dirent64 *penstock_dir_next(struct penstock_dir *it, struct dirent64 *ret, int *ret_error);

/* Where it stands, and standing elsewhere (any number). */
long penstock_dir_tell(const struct penstock_dir *it);
void penstock_dir_seek(struct penstock_dir *it, long place);
