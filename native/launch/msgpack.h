// SPDX-License-Identifier: Apache-2.0
/* A writer of MessagePack into memory that grows: what frames of the history need, no more.

   Invariant: a failed allocation is remembered (`failed`), and everything after it is ignored; the caller looks once,
   at the end. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct penstock_pack {
  uint8_t *data;
  size_t size, room;
  bool failed;
};

/* Room for `size` more bytes at the end, or NULL; they count as written. */
static inline uint8_t *penstock_pack_room(struct penstock_pack *p, size_t size) {
  if (p->failed || size > SIZE_MAX / 4 - p->size)
    return p->failed = true, NULL;
  if (p->size + size > p->room) {
    size_t room = p->room ? p->room : 4096;
    while (room < p->size + size)
      room *= 2;
    uint8_t *data = realloc(p->data, room);
    if (!data)
      return p->failed = true, NULL;
    p->data = data;
    p->room = room;
  }
  p->size += size;
  return p->data + p->size - size;
}

static inline void penstock_pack_bytes(struct penstock_pack *p, const void *data, size_t size) {
  uint8_t *at = penstock_pack_room(p, size);
  if (at && size)
    memcpy(at, data, size);
}

/* A head byte and `bytes` bytes of a number, the highest first. */
static inline void penstock_pack_head(struct penstock_pack *p, uint8_t head, uint64_t value, int bytes) {
  uint8_t *at = penstock_pack_room(p, 1 + (size_t)bytes);
  if (!at)
    return;
  *at = head;
  for (int i = 0; i < bytes; i++)
    at[1 + i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

static inline void penstock_pack_uint(struct penstock_pack *p, uint64_t value) {
  if (value < 0x80)
    penstock_pack_head(p, (uint8_t)value, 0, 0);
  else if (value <= UINT8_MAX)
    penstock_pack_head(p, 0xcc, value, 1);
  else if (value <= UINT16_MAX)
    penstock_pack_head(p, 0xcd, value, 2);
  else if (value <= UINT32_MAX)
    penstock_pack_head(p, 0xce, value, 4);
  else
    penstock_pack_head(p, 0xcf, value, 8);
}

static inline void penstock_pack_int(struct penstock_pack *p, int64_t value) {
  if (value >= 0)
    penstock_pack_uint(p, (uint64_t)value);
  else
    penstock_pack_head(p, 0xd3, (uint64_t)value, 8);
}

static inline void penstock_pack_nil(struct penstock_pack *p) { penstock_pack_head(p, 0xc0, 0, 0); }
static inline void penstock_pack_bool(struct penstock_pack *p, bool value) {
  penstock_pack_head(p, value ? 0xc3 : 0xc2, 0, 0);
}
static inline void penstock_pack_double(struct penstock_pack *p, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  penstock_pack_head(p, 0xcb, bits, 8);
}
static inline void penstock_pack_map(struct penstock_pack *p, uint32_t count) { penstock_pack_head(p, 0xdf, count, 4); }
static inline void penstock_pack_array(struct penstock_pack *p, uint32_t count) {
  penstock_pack_head(p, 0xdd, count, 4);
}
static inline void penstock_pack_bin(struct penstock_pack *p, const void *data, size_t size) {
  penstock_pack_head(p, 0xc6, size, 4);
  penstock_pack_bytes(p, data, size);
}

/* Text, made UTF-8 by force: what is not ASCII becomes '?' (names of nodes, jobs, operations are ASCII). */
static inline void penstock_pack_text(struct penstock_pack *p, const char *text) {
  size_t size = strlen(text);
  penstock_pack_head(p, 0xdb, size, 4);
  uint8_t *at = penstock_pack_room(p, size);
  for (size_t i = 0; at && i < size; i++)
    at[i] = (uint8_t)text[i] < 0x80 ? (uint8_t)text[i] : '?';
}

/* A key and its value, as maps of the record have them. */
#define PENSTOCK_PACK_KEY(kind, type) \
  static inline void penstock_key_##kind(struct penstock_pack *p, const char *key, type value) { \
    penstock_pack_text(p, key); \
    penstock_pack_##kind(p, value); \
  }
PENSTOCK_PACK_KEY(uint, uint64_t)
PENSTOCK_PACK_KEY(int, int64_t)
PENSTOCK_PACK_KEY(bool, bool)
PENSTOCK_PACK_KEY(text, const char *)
PENSTOCK_PACK_KEY(map, uint32_t)
PENSTOCK_PACK_KEY(array, uint32_t)
#undef PENSTOCK_PACK_KEY
static inline void penstock_key_bin(struct penstock_pack *p, const char *key, const void *data, size_t size) {
  penstock_pack_text(p, key);
  penstock_pack_bin(p, data, size);
}
