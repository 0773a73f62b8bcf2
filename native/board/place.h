// SPDX-License-Identifier: Apache-2.0
/* A plan on the board: where the next files of a job go.  Sections of kind PENSTOCK_SECTION_PLACE in `control`, one for
   each file system, written by the agent alone; programs look names up in them and keep counts in `usage`.

   A section is a head and six arrays behind it, each at an offset from the section's begin:
     variants  which marks of a pattern must have which values, by falling number of these: the order of preference
     entries   what becomes of a file, sorted by key
     targets   numbers of targets: lists of entries, lists of pools
     pools     names, and the targets of each
     bytes     patterns, and layouts that are set as they stand (composite ones, very wide ones)
     folders   defaults that the plan's maker has read already, sorted by key

   A pattern is the text of an absolute path with marks in it: a zero byte and a letter, which stands for the longest run
   of d (digits), l (letters) or w (both).  The key of a file is a hash of its variant's number and of the marks' texts
   that the variant states (digits without leading zeros); of an exact name, the hash of the name.

   Invariants:
   1. Reading one takes no more steps than PENSTOCK_PLACE_VARIANTS_MAX matches of a name, and touches only the section,
      whatever stands in it: offsets and counts are checked when a process starts, indices when they are followed.
   2. It may change while programs run, as a whole and within the section's room: `generation` is odd meanwhile.  Who
      meets that, or another one after reading, has no plan for this file.
   3. A section may hold no plan (yet): PENSTOCK_PLACE_NONE, which says why.  What is created until there is one counts.
   4. Two names with the same key would get the same layout: that is a worse place, never a wrong file. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "board/board.h"

enum {
  PENSTOCK_SECTION_PLACE = 2, /* kind of the section in control */
  PENSTOCK_PLACE_VERSION = 1,
  PENSTOCK_PLACES_MAX = 4,    /* sections that a process looks at */
  PENSTOCK_PLACE_VARIANTS_MAX = 64,
  PENSTOCK_PLACE_MARKS_MAX = 24,
  PENSTOCK_PLACE_STRIPES_MAX = 32, /* of a list; wider layouts stand in `bytes` whole */
  PENSTOCK_PLACE_ENTRIES_MAX = 1 << 20,
  PENSTOCK_PLACE_POOLS_MAX = 64,
  PENSTOCK_PLACE_FOLDERS_MAX = 4096,
  PENSTOCK_PLACE_FOLDERS_S = 300, /* so old may a plan be whose folders are believed */
  PENSTOCK_PLACE_POOL_NAME = 56,
};

enum penstock_place_driver { PENSTOCK_PLACE_NONE = 0, PENSTOCK_PLACE_LUSTRE = 1, PENSTOCK_PLACE_CEPHFS = 2 };

/* Why there is no plan. */
enum penstock_place_why {
  PENSTOCK_PLACE_WHY_LATE,   /* it was not ready when the program started, and may come */
  PENSTOCK_PLACE_WHY_BUSY,   /* the metadata servers are busy */
  PENSTOCK_PLACE_WHY_FAILED, /* it could not be made */
};

struct penstock_place_part {
  uint64_t offset_bytes; /* from the section's begin */
  uint32_t count;
  uint32_t zero;
};

struct penstock_place_head {
  uint32_t version;
  uint32_t generation;
  uint32_t driver;
  uint32_t left_out;         /* entries for which there was no room */
  uint64_t made_real_ns;
  uint64_t dev;              /* st_dev of the mount; 0: not known here, a process asks */
  uint32_t begin;            /* where a node begins in lists: a share of 2^32, so that nodes differ */
  uint32_t default_count;    /* of the file system, or of its root: what a folder says that says the same is no wish */
  uint32_t default_size;     /* 0: not known */
  uint32_t may_override;     /* 1: entries marked so go before a folder's own default */
  uint16_t mount_size;
  char mount[PENSTOCK_PREFIX_BYTES]; /* the mount's path, no slash at its end */
  uint16_t why; /* enum penstock_place_why, of NONE */
  uint8_t pad[4];
  struct penstock_place_part variants, entries, targets, pools, bytes, folders;
};

struct penstock_place_variant {
  uint32_t text, text_size; /* the pattern, in `bytes` */
  uint32_t stated;          /* bit by mark, in their order */
  uint32_t zero;
};

enum {
  PENSTOCK_PLACE_STOCK = 1,    /* expected, and left as the file system does it */
  PENSTOCK_PLACE_BYTES = 2,    /* the layout stands in `bytes`: first, and size in `turns` */
  PENSTOCK_PLACE_OVERRIDE = 4, /* also where the folder's default is plain and says otherwise */
  PENSTOCK_PLACE_WISH = 8,     /* count and size hold where the folder has no default of its own; else the lists are of use
                                  only where the default asks for so many stripes */
};

struct penstock_place_entry {
  uint64_t key;
  uint32_t flags;
  uint32_t first;       /* in `targets`: `turns` lists of `count` each; of BYTES: in `bytes` */
  uint32_t turns;       /* 0: targets come from the spare list */
  uint32_t stripe_size; /* 0: the default */
  uint16_t count;       /* 0: the default */
  uint16_t pool;        /* 1 + index; 0: none */
  uint32_t cursor;      /* which of PENSTOCK_PLACE_CURSORS counts its turns */
};

/* Pool 0 is the spare list: all targets that new files may get, each as often as it has room and time for; name "".  On
   CephFS there is one pool a target, which names it. */
struct penstock_place_pool {
  uint32_t first, count;
  char name[PENSTOCK_PLACE_POOL_NAME]; /* with a NUL */
};

enum penstock_folder_kind {
  PENSTOCK_FOLDER_UNKNOWN,
  PENSTOCK_FOLDER_NONE,  /* no default of its own */
  PENSTOCK_FOLDER_PLAIN,
  PENSTOCK_FOLDER_LEFT,  /* a list, or components: its files are left alone */
  PENSTOCK_FOLDER_ELSEWHERE,
};
struct penstock_place_folder {
  uint64_t key; /* penstock_hash of its path */
  uint16_t kind;
  uint16_t pool;  /* 1 + index; 0: none */
  uint16_t count; /* 0: the file system's */
  uint16_t size_64k; /* 0: the file system's; else in units of 64 KiB */
};

_Static_assert(sizeof(struct penstock_place_folder) == 16, "no gaps");
_Static_assert(sizeof(struct penstock_place_variant) == 16, "no gaps");
_Static_assert(sizeof(struct penstock_place_entry) == 32, "no gaps");
_Static_assert(sizeof(struct penstock_place_pool) == 64, "no gaps");
_Static_assert(sizeof(struct penstock_place_head) == 48 + 248 + 6 * sizeof(struct penstock_place_part), "no gaps");

/* ---- in usage: counters that a job's processes share, by atomic additions ---- */

enum { PENSTOCK_PLACE_USAGE_OFFSET = 1024, PENSTOCK_PLACE_CURSORS = 256, PENSTOCK_PLACE_COUNTS_MAX = 32 };

/* What became of files that were, or were to be, created: each creation under control is one of EXPECTED, UNEXPECTED, EARLY
   and LINKED, and of the first two each ends as one of those below.  Their names are penstock_place_count_names. */
enum penstock_place_count {
  PENSTOCK_PLACE_EXPECTED,      /* the plan has an entry for the name */
  PENSTOCK_PLACE_UNEXPECTED,
  PENSTOCK_PLACE_PLACED,        /* has the layout that its entry says */
  PENSTOCK_PLACE_SPARE,         /* targets from the spare list */
  PENSTOCK_PLACE_PLANNED_STOCK, /* left as the plan says */
  PENSTOCK_PLACE_NO_TARGETS,    /* not expected, and nothing spare; or not enough */
  PENSTOCK_PLACE_OF_PROGRAM,    /* its flags say that it sets a layout itself */
  PENSTOCK_PLACE_OF_FOLDER,     /* the folder's default has components or a list */
  PENSTOCK_PLACE_OF_POOL,       /* ... or a pool that the plan does not know */
  PENSTOCK_PLACE_APPENDED,      /* O_APPEND: always one stripe */
  PENSTOCK_PLACE_IN_LIBC,       /* mkstemp, freopen: created where nothing can be added */
  PENSTOCK_PLACE_EXISTED,       /* it had a layout already */
  PENSTOCK_PLACE_CHANGING,      /* the plan changed just then, or its name was too long */
  PENSTOCK_PLACE_REFUSED_FULL,  /* ENOSPC, EREMOTEIO, ENOBUFS, EACCES, and all else */
  PENSTOCK_PLACE_REFUSED_INACTIVE,
  PENSTOCK_PLACE_REFUSED_NO_CREATE,
  PENSTOCK_PLACE_REFUSED_RIGHTS,
  PENSTOCK_PLACE_REFUSED_OTHER,
  PENSTOCK_PLACE_BY_IOCTL,      /* of those placed: the attribute was refused, the ioctl was not */
  PENSTOCK_PLACE_DEFAULTED,     /* of those refused: got the default at once */
  PENSTOCK_PLACE_FAILED,        /* ... not even that: the program's open failed */
  PENSTOCK_PLACE_RESCUED,       /* writes into a file without a layout, which got the default */
  PENSTOCK_PLACE_FOLDERS,       /* folders whose default was asked for: a request each */
  PENSTOCK_PLACE_EARLY,         /* created while there was no plan; neither expected nor unexpected */
  PENSTOCK_PLACE_ELSEWHERE,     /* its name led out of the file system, through a link: what that one does by default */
  PENSTOCK_PLACE_LINKED,        /* created in the file system by a name outside it, through a link: left as it is;
                                   neither expected nor unexpected */
  PENSTOCK_PLACE_COUNTS,
};
_Static_assert((int)PENSTOCK_PLACE_COUNTS <= (int)PENSTOCK_PLACE_COUNTS_MAX, "counters");

struct penstock_place_usage {
  uint64_t count[PENSTOCK_PLACE_COUNTS_MAX];
  uint32_t spare;   /* targets taken from lists of pools */
  uint32_t folders; /* grows when a folder's default may have been changed by one of us */
  uint32_t cursor[PENSTOCK_PLACE_CURSORS];
};
_Static_assert(sizeof(struct penstock_usage) <= PENSTOCK_PLACE_USAGE_OFFSET, "after the head");
_Static_assert(PENSTOCK_PLACE_USAGE_OFFSET + sizeof(struct penstock_place_usage) <= PENSTOCK_USAGE_HEAD_BYTES, "in its page");

/* ---- a checked section ---- */

struct penstock_place {
  const struct penstock_place_head *head; /* its numbers are not believed again */
  const struct penstock_place_variant *variants;
  const struct penstock_place_entry *entries;
  const uint16_t *targets;
  const struct penstock_place_pool *pools;
  const uint8_t *bytes;
  const struct penstock_place_folder *folders;
  uint32_t variant_count, entry_count, target_count, pool_count, byte_count, folder_count;
  uint32_t driver;
  uint32_t generation; /* at opening: what was read of it holds if the head has the same afterwards */
};

/* Where a plan is, or may come: for as long as the control is mapped, whatever is put there. */
struct penstock_place_spot {
  const struct penstock_place_head *head;
  uint64_t bytes;
};

/* The spots in a control of so many bytes: how many, at most PENSTOCK_PLACES_MAX. */
uint32_t penstock_place_spots(struct penstock_place_spot ret[PENSTOCK_PLACES_MAX], const struct penstock_control *control,
                              uint64_t bytes);

/* The one for the file system that holds an absolute path, or NULL. */
const struct penstock_place_spot *penstock_place_spot_of(const struct penstock_place_spot *spots, uint32_t count,
                                                         const char *path, size_t size);

/* The plans in a control of so many bytes: how many, at most PENSTOCK_PLACES_MAX; what is wrong is left out. */
uint32_t penstock_places_open(struct penstock_place ret[PENSTOCK_PLACES_MAX], const struct penstock_control *control,
                              uint64_t bytes);

/* The same of plans. */
const struct penstock_place *penstock_places_of(const struct penstock_place *plans, uint32_t count, const char *path,
                                                size_t size);

/* Counters by number, as frames and commands call them. */
extern const char *const penstock_place_count_names[PENSTOCK_PLACE_COUNTS];

/* NULL, or what is wrong with it (also: it is being changed).  `at` is 8-byte aligned and `bytes` long. */
const char *penstock_place_open(struct penstock_place *ret, const void *at, uint64_t bytes);

/* The entry that a name has, or NULL; at most a microsecond. */
const struct penstock_place_entry *penstock_place_find(const struct penstock_place *p, const char *name, size_t size);

/* Keys, for whoever makes plans: of a variant, then each of the texts that it states. */
uint64_t penstock_place_key_begin(uint32_t variant);
uint64_t penstock_place_key_add(uint64_t key, const char *text, size_t size);

/* The key of a name by a variant; false: it does not match. */
bool penstock_place_key(const struct penstock_place *p, uint32_t variant, const char *name, size_t size, uint64_t *ret);

/* What the plan's maker found a folder's default to be; NULL: he did not look. */
const struct penstock_place_folder *penstock_place_folder(const struct penstock_place *p, uint64_t key);

/* `want` different targets of a pool from place `from` on, round and round; false: there are not so many. */
bool penstock_place_take(const struct penstock_place *p, uint32_t pool, uint64_t from, uint32_t want, uint16_t *ret);

/* Pool by name: its index, or 0. */
uint32_t penstock_place_pool_called(const struct penstock_place *p, const char *name, size_t size);
