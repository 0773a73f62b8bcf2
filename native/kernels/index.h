// SPDX-License-Identifier: Apache-2.0
/* A segment of a catalog: a flat, immutable index of a tree, looked up by path without loading it.

   The file, in this order; numbers are little-endian, `at` counts bytes from the file's begin:

     header    1 block      struct penstock_index_header, the rest zeros
     owners    12 B each    mode, uid, gid: records name them by number
     rows      32 B each    one a folder, in path order (a path before what is below it); row 0 is the root
     records   from 56 B    the root's, then the children of row 0 in order of their names, those of row 1, ...
     buckets   64 B each    a hash table of paths: 12 places of records, 12 tags, how many, more in the next?
     checks    4 B a block  a checksum of each block before them
     tops      4 B a block  a checksum of each block of checks; the header has the checksum of these

   A record is its head, the name, (a folder's row number where it has one), (parts), padding to 4 bytes.

   Invariants:
   1. No byte is used before the checksum of its block held: damage, truncation and change are errors (-EBADMSG), never
      garbage, and never a SIGBUS: what is looked up lies in private memory that a block is read into at first touch
      (while the file is no larger than `resident_bytes`), or is read anew each time (little memory), or is a sealed
      memfd, which nobody can shorten or change.  docs/decisions/0020-catalog-index.md says why.
   2. Reading allocates nothing, takes no lock, uses only pread, and keeps less than 8 KiB of stack: it may be called from
      a signal handler and from many threads at once.  Opening and closing may not.
   3. Numbers from the file are bounds-checked; loops are bounded by the header's counts.
   4. Paths are relative to the root, without "." and "..", without a slash at either end; the root is "".
   5. Results are 0 or more, or a negative errno. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PENSTOCK_INDEX_MAGIC "PSCATSEG"
enum {
  PENSTOCK_INDEX_VERSION = 2,
  PENSTOCK_BLOCK_BYTES = 1024,
  PENSTOCK_RECORD_BYTES = 56,
  PENSTOCK_ROW_BYTES = 32,
  PENSTOCK_OWNER_BYTES = 12,
  PENSTOCK_BUCKET_BYTES = 64,
  PENSTOCK_BUCKET_PLACES = 12,
  PENSTOCK_OWNERS_MAX = 65535, /* this number itself says: look into the parts */
  PENSTOCK_NAME_MAX = 65535,
  PENSTOCK_PART_MAX = 65535,
};
#define PENSTOCK_NO_ROW UINT32_MAX

struct penstock_index_header {
  char magic[8];
  uint32_t version;
  uint32_t header_check; /* of the header's block with this field 0 */
  uint64_t file_bytes;
  uint64_t seed;
  uint64_t id; /* random: no two segments have the same */
  uint64_t entries; /* records that are entries: neither tombstones nor placeholders */
  uint64_t records;
  uint64_t rows;
  uint64_t owners;
  uint64_t owners_at;
  uint64_t rows_at;
  uint64_t records_at;
  uint64_t records_bytes;
  uint64_t buckets_at;
  uint64_t buckets;
  uint64_t checks_at;
  uint64_t blocks; /* up to checks_at */
  uint64_t tops_at;
  uint64_t tops; /* blocks of checks */
  uint32_t tops_check;
  uint32_t reserved;
  int64_t first_ns; /* learnt from then to then, wall clock */
  int64_t last_ns;
};

/* Flags of a record. */
enum {
  PENSTOCK_GONE = 1,          /* tombstone: the name was there and is no more, nor is anything below it */
  PENSTOCK_PLACE = 2,         /* no entry: only holds the path of what is below it */
  PENSTOCK_PARTS = 4,
  PENSTOCK_HAS_ROW = 8,
  PENSTOCK_BLOCKS_BY_SIZE = 16, /* st_blocks: as many 4 KiB as hold the size */
  PENSTOCK_BLOCKS_NONE = 32,    /* st_blocks is 0; with neither flag it is a part */
  PENSTOCK_DOUBT = 64,          /* its attributes could not be read: only name, type and inode are known */
  PENSTOCK_CAPTURED = 128,      /* learnt from a program that wrote it */
  PENSTOCK_CHECKED = 256,       /* learnt by update or check, not by a build */
  PENSTOCK_CHANGED_INSIDE = 512, /* only found different inside, by its checksum */
};

/* Flags of a folder's row. */
enum {
  PENSTOCK_COMPLETE = 1,   /* every name in it has a record */
  PENSTOCK_MOVED = 2,      /* it changed while it was listed: true of some moment only */
  PENSTOCK_UNREADABLE = 4, /* it could not be listed */
  PENSTOCK_LEFT_OUT = 8,   /* not listed: it lies beyond a mount point that was not to be crossed */
  PENSTOCK_LISTED = 16,    /* listed, but names were excluded */
  PENSTOCK_OTHER_MOUNT = 32, /* on another file system than the root */
};

/* Parts of a record: kind u16, size u16, bytes, padding to 4; before them their whole size, u32. */
enum penstock_part {
  PENSTOCK_PART_TARGET = 1,  /* of a symlink */
  PENSTOCK_PART_LAYOUT = 2,  /* the attribute's bytes, as the file system gave them */
  PENSTOCK_PART_SUMS = 3,    /* checksums, see catalog/sums.py */
  PENSTOCK_PART_BLOCKS = 4,  /* u64 */
  PENSTOCK_PART_LINKS = 5,   /* u32: more than 65,534 */
  PENSTOCK_PART_OWNER = 6,   /* 3 × u32 where the table is full */
  PENSTOCK_PART_TIMES = 7,   /* 3 × (i64 s, u32 ns) beyond 272 years from 1970: mtime, ctime, atime */
  PENSTOCK_PART_RDEV = 8,    /* u64 */
  PENSTOCK_PART_LEARNT = 9,  /* i64 ns, where it is not its folder's */
  PENSTOCK_PART_ERROR = 10,  /* u32 errno: why there is doubt */
};

struct penstock_time {
  int64_t s;
  uint32_t ns;
};

/* An entry, decoded. */
struct penstock_entry {
  uint64_t ino;
  uint64_t size;
  uint64_t blocks; /* of 512 bytes */
  uint64_t rdev;
  struct penstock_time mtime, ctime, atime;
  int64_t learnt_ns;
  uint32_t generation; /* from the birth time: tells a reused inode number; 0: not known */
  uint32_t mode, uid, gid, nlink;
  uint32_t error;
  uint32_t folder; /* the row it lies in */
  uint32_t row;    /* a folder's own; PENSTOCK_NO_ROW */
  uint16_t flags;
  uint16_t name_size;
  uint64_t at;       /* of the record */
  uint64_t parts_at; /* 0: none */
  uint32_t parts_size;
  uint32_t record_size;
};

struct penstock_row {
  uint64_t record_at;   /* the folder's own record */
  uint64_t children_at; /* the first of its children */
  uint32_t children;
  uint32_t flags;
  int64_t learnt_ns; /* before its listing began */
};

struct penstock_index {
  struct penstock_index_header h;
  const uint8_t *base; /* file_bytes of memory; blocks whose state is not ready hold nothing */
  uint8_t *state;      /* of each block; NULL: the memory is a sealed file's */
  uint64_t *missing;   /* how many blocks before checks_at are not kept yet; stands in front of the states */
  uint32_t *tops;      /* checksums of the blocks of checks */
  int fd;              /* -1 for a sealed one */
  bool resident;       /* blocks are kept once read */
};

/* Opens a segment.  The descriptor stays the caller's and must stay open as long as the index is used, unless it is
   a memfd sealed against shrinking and writing, which is mapped and may be closed.  -EINVAL: no segment; -EPROTO: of a
   newer version; -EBADMSG: damaged, or shorter than it was. */
int penstock_index_open(struct penstock_index *ix, int fd, uint64_t resident_bytes);
void penstock_index_close(struct penstock_index *ix);

/* The place of the record of a path, tombstones and placeholders among them; -ENOENT: the segment has none. */
int64_t penstock_index_find(const struct penstock_index *ix, const char *path, size_t size);

/* The record at a place. */
int penstock_index_entry(const struct penstock_index *ix, uint64_t at, struct penstock_entry *ret);

/* Both in one. */
int penstock_index_lookup(const struct penstock_index *ix, const char *path, size_t size, struct penstock_entry *ret);

/* The row of a folder. */
int penstock_index_row(const struct penstock_index *ix, uint32_t row, struct penstock_row *ret);

/* Up to `room` bytes of a record's name; its whole size. */
ssize_t penstock_index_name(const struct penstock_index *ix, const struct penstock_entry *e, char *buffer, size_t room);

/* The same of a part; -ENODATA: it has none of this kind. */
ssize_t penstock_index_part(const struct penstock_index *ix, const struct penstock_entry *e, enum penstock_part kind,
                            void *buffer, size_t room);

/* Every block against its checksum; calls `bad` for each that does not hold.  How many. */
int64_t penstock_index_verify(const struct penstock_index *ix, void (*bad)(void *state, uint64_t at), void *state);

/* `size` bytes at a place into a buffer: for reading ranges in one go. */
int penstock_index_read(const struct penstock_index *ix, uint64_t at, void *buffer, size_t size);

/* Packed times: 34 bits of seconds, signed, and 30 of nanoseconds. */
static inline bool penstock_time_packs(struct penstock_time t) {
  return t.s >= -(INT64_C(1) << 33) && t.s < INT64_C(1) << 33 && t.ns < 1000000000;
}
static inline uint64_t penstock_time_pack(struct penstock_time t) {
  return (uint64_t)(t.s + (INT64_C(1) << 33)) << 30 | t.ns;
}
static inline struct penstock_time penstock_time_unpack(uint64_t v) {
  return (struct penstock_time){(int64_t)(v >> 30) - (INT64_C(1) << 33), (uint32_t)(v & 0x3fffffff)};
}
