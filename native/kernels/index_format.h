// SPDX-License-Identifier: Apache-2.0
/* What reader and writer of a segment share beside index.h: the bytes of rows, records and buckets. */
#pragma once
#include "kernels/hash.h"
#include "kernels/index.h"

/* Looked at where they lie in the file, which is at any alignment. */
#define PENSTOCK_IN_FILE __attribute__((packed, may_alias))

struct PENSTOCK_IN_FILE penstock_raw_record {
  uint64_t ino;
  uint64_t mtime, ctime, atime; /* packed */
  uint64_t size;
  uint32_t generation;
  uint32_t folder;
  uint16_t owner;
  uint16_t nlink; /* 65535: a part */
  uint16_t flags;
  uint16_t name_size;
};
_Static_assert(sizeof(struct penstock_raw_record) == PENSTOCK_RECORD_BYTES, "a record's head");

struct PENSTOCK_IN_FILE penstock_raw_row {
  uint32_t record;   /* places of records are in units of 4 bytes from records_at */
  uint32_t children;
  uint32_t count;
  uint32_t flags;
  int64_t learnt_ns;
  uint64_t path_hash; /* with the seed: a record's path is known by this and its name */
};
_Static_assert(sizeof(struct penstock_raw_row) == PENSTOCK_ROW_BYTES, "a folder's row");

struct PENSTOCK_IN_FILE penstock_raw_owner {
  uint32_t mode, uid, gid;
};

struct PENSTOCK_IN_FILE penstock_raw_bucket {
  uint32_t place[PENSTOCK_BUCKET_PLACES];
  uint8_t tag[PENSTOCK_BUCKET_PLACES];
  uint8_t count;
  uint8_t more; /* some that belong here lie in the next */
  uint8_t reserved[2];
};
_Static_assert(sizeof(struct penstock_raw_bucket) == PENSTOCK_BUCKET_BYTES, "a bucket is a cache line");

enum { PENSTOCK_PLACE_UNIT = 4 };

static inline uint64_t penstock_up4(uint64_t n) { return (n + 3) & ~UINT64_C(3); }

static inline uint64_t penstock_blocks_by_size(uint64_t size) { return (size / 4096 + (size % 4096 != 0)) * 8; }

static inline uint64_t penstock_index_bucket(uint64_t hash, uint64_t buckets) {
  return (uint64_t)((unsigned __int128)hash * buckets >> 64);
}
static inline uint8_t penstock_index_tag(uint64_t hash) { return (uint8_t)hash; }

static inline uint64_t penstock_index_name_hash(uint64_t seed, const char *name, size_t size) {
  return penstock_hash(seed ^ PENSTOCK_HASH_C, name, size);
}

/* What a block's checksum is: of its bytes and its number, so that a block in the wrong place is damage. */
static inline uint32_t penstock_index_check(const void *block, size_t size, uint64_t number) {
  return (uint32_t)penstock_hash(number, block, size);
}
