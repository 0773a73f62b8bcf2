// SPDX-License-Identifier: Apache-2.0
/* What a run's programs are answered from (stages/serve.c): a section of `control`, an image, a segment, words in `usage`.

   src/penstock/catalog/serving.py makes image and segment when a run starts, as sealed memory that penstock-run holds; a
   process opens both by /proc/HOLDER/fd/N, maps them and closes them.  Sealed memory cannot shrink or change, so no
   look-up is a SIGBUS or reads what nobody checked.

   The image: struct penstock_serve_image, rows (folders whose times were those of the catalog when the run started), and
   a table of rows by the hash of their absolute paths.  The segment (kernels/index.h) holds the entries.

   Invariants:
   1. Whoever opens one checks magic, version, sizes (penstock_serve_open); numbers of rows are checked when they are
      followed.
   2. Bits in `usage` are only ever set: what was marked stale stays so for all processes of the board. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "board/place.h"

#define PENSTOCK_SERVE_MAGIC 0x3156525345534350u /* "PCSESRV1" */
enum {
  PENSTOCK_SECTION_SERVE = 3, /* kind of the section in control */
  PENSTOCK_SERVE_VERSION = 2,
  PENSTOCK_SERVE_USAGE_OFFSET = 2560,
  PENSTOCK_SERVE_STALE_WORDS = 176,
  PENSTOCK_SERVE_STALE_BITS = PENSTOCK_SERVE_STALE_WORDS * 64,
};

enum { PENSTOCK_SERVE_ALIASES = 4 };

struct penstock_serve_section {
  uint32_t holder; /* pid of who holds both open ... */
  uint32_t image_fd, segment_fd;
  uint32_t root_size;
  uint64_t image_ino, segment_ino;
  uint64_t dev; /* of the root */
  uint64_t mount_space, user_space; /* inodes of the namespaces in which names mean what they mean here */
  char root[PENSTOCK_PREFIX_BYTES];
  /* Where else it can be seen, or a part of it, because it is mounted there too; NUL at their ends, or as long as this. */
  char alias[PENSTOCK_SERVE_ALIASES][PENSTOCK_PREFIX_BYTES];
};

enum {
  PENSTOCK_SERVE_LISTS = 1, /* the file system may have lists of rights besides the mode */
  PENSTOCK_SERVE_ABOVE = 2, /* what the folders above the root let pass is in `above`, and nowhere else */
  PENSTOCK_SERVE_SUMS = 8, /* a folder's size is that of all below it, and changes when its times do not */
  PENSTOCK_SERVE_LISTINGS = 4, /* what the file system lists is what the catalog holds: inodes, also of . and .. */
};

enum { PENSTOCK_SERVE_ABOVE_MAX = 12 };

/* Who may pass a folder. */
struct penstock_serve_rights {
  uint32_t mode, uid, gid;
};

struct penstock_serve_image {
  uint64_t magic;
  uint32_t version;
  uint32_t flags; /* PENSTOCK_SERVE_LISTS and the others */
  uint64_t bytes;
  uint64_t dev, ino; /* of the root */
  uint32_t uid, gid;
  uint32_t rows, slots; /* slots: a power of two */
  uint64_t rows_at, slots_at;
  uint32_t file_blksize, link_blksize; /* st_blksize of all files; 0: not known, or they differ */
  uint64_t max_age_s;                  /* 0: any */
  char attribute[32];                  /* that holds layouts; "": none */
  uint64_t above_ino;                  /* what the root's listing says of .. */
  struct penstock_serve_rights above[PENSTOCK_SERVE_ABOVE_MAX]; /* the rest lets everybody pass */
};

enum {
  PENSTOCK_SERVE_NAMES = 1, /* every name in it is known: its entries are answered */
  PENSTOCK_SERVE_NAMED = 2, /* and may be listed: none of them is where something is mounted */
};

struct penstock_serve_row {
  uint64_t hash; /* of the absolute path */
  uint64_t ino, size, blocks;
  int64_t atime_s, mtime_s, ctime_s, learnt_s;
  uint32_t atime_ns, mtime_ns, ctime_ns;
  uint32_t mode, uid, gid, nlink, blksize;
  uint32_t flags, zero;
};

enum penstock_serve_count {
  PENSTOCK_SERVE_STAT,
  PENSTOCK_SERVE_ACCESS,
  PENSTOCK_SERVE_READLINK,
  PENSTOCK_SERVE_LAYOUT,
  PENSTOCK_SERVE_MISSING, /* of any kind: ENOENT */
  PENSTOCK_SERVE_PASSED,  /* asked under the root and left to the file system */
  PENSTOCK_SERVE_STALED,  /* marks that were set */
  PENSTOCK_SERVE_LISTED,  /* folders: from the first name to the last, or the rest that was not asked for */
  PENSTOCK_SERVE_COUNTS = 8,
};

/* What a record calls these counts. */
#define PENSTOCK_SERVE_COUNT_NAMES {"stat", "access", "readlink", "layout", "missing", "passed", "marks", "listings"}

struct penstock_serve_usage {
  uint64_t count[PENSTOCK_SERVE_COUNTS];
  uint64_t all; /* not 0: nothing is answered any more */
  uint64_t stale[PENSTOCK_SERVE_STALE_WORDS];
};

/* An image whose sizes hold together. */
struct penstock_serve {
  const struct penstock_serve_image *image; /* NULL: none */
  const struct penstock_serve_row *rows;
  const uint32_t *slots;
};

/* 0, or -EINVAL: it is none, of another version, or its parts do not lie in it. */
int penstock_serve_open(struct penstock_serve *ret, const void *image, uint64_t bytes);

/* The row of a folder by its absolute path, and its hash; NULL: it has none. */
const struct penstock_serve_row *penstock_serve_row(const struct penstock_serve *it, const char *path, size_t size,
                                                    uint64_t *ret_hash);

_Static_assert(sizeof(struct penstock_serve_section) == 56 + (1 + PENSTOCK_SERVE_ALIASES) * PENSTOCK_PREFIX_BYTES, "no gaps");
_Static_assert(sizeof(struct penstock_serve_image) == 272, "no gaps");
_Static_assert(sizeof(struct penstock_serve_row) == 104, "no gaps");
_Static_assert(PENSTOCK_PLACE_USAGE_OFFSET + sizeof(struct penstock_place_usage) <= PENSTOCK_SERVE_USAGE_OFFSET, "after place");
_Static_assert(PENSTOCK_SERVE_USAGE_OFFSET + sizeof(struct penstock_serve_usage) <= PENSTOCK_USAGE_HEAD_BYTES, "in its page");
