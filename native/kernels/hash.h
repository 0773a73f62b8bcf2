// SPDX-License-Identifier: Apache-2.0
/* A quick 64-bit hash of bytes: for tables and for finding damage, not against forgers (a secret seed makes those guess).

   Two words at a time are multiplied to 128 bits and folded.  Nothing is allocated; any alignment will do. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PENSTOCK_HASH_A 0x9e3779b97f4a7c15u
#define PENSTOCK_HASH_B 0xd1b54a32d192ed03u
#define PENSTOCK_HASH_C 0x8cb92ba72f3d8dd7u

static inline uint64_t penstock_hash_word(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

static inline uint64_t penstock_hash_fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The last 0 to 16 bytes as two words. */
static inline void penstock_hash_tail(const uint8_t *p, size_t size, uint64_t *a, uint64_t *b) {
  uint32_t low, high;
  *a = *b = 0;
  if (size >= 8) {
    *a = penstock_hash_word(p);
    *b = penstock_hash_word(p + size - 8);
  } else if (size >= 4) {
    memcpy(&low, p, 4);
    memcpy(&high, p + size - 4, 4);
    *a = low;
    *b = high;
  } else if (size > 0) {
    *a = (uint64_t)p[0] << 16 | (uint64_t)p[size / 2] << 8 | p[size - 1];
  }
}

static inline uint64_t penstock_hash(uint64_t seed, const void *data, size_t size) {
  const uint8_t *p = data;
  uint64_t h = penstock_hash_fold(seed ^ PENSTOCK_HASH_A, size ^ PENSTOCK_HASH_B), a, b;
  size_t left = size;
  for (; left > 16; p += 16, left -= 16)
    h = penstock_hash_fold(penstock_hash_word(p) ^ PENSTOCK_HASH_B, penstock_hash_word(p + 8) ^ h);
  penstock_hash_tail(p, left, &a, &b);
  h = penstock_hash_fold(a ^ PENSTOCK_HASH_C, b ^ h);
  return penstock_hash_fold(h ^ PENSTOCK_HASH_A, size ^ PENSTOCK_HASH_C);
}

/* Of a folder's hash and a name's: the hash of the path of that name in that folder. */
static inline uint64_t penstock_hash_child(uint64_t folder, uint64_t name) {
  return penstock_hash_fold(folder ^ PENSTOCK_HASH_B, name ^ PENSTOCK_HASH_C);
}
