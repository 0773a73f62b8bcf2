// SPDX-License-Identifier: Apache-2.0
/* The program's side of the ring: nothing here waits, allocates or loops without a bound. */
#include "board/ring.h"
#include <string.h>
#include "board/board.h"

enum { SWAPS = 64, PROBES = 16 };

/* The bytes of an event, from three places, in slot-sized pieces. */
struct pieces {
  const void *from[3];
  size_t size[3];
  int at;
  size_t done;
};

static size_t take(struct pieces *p, uint8_t *to, size_t room) {
  size_t got = 0;
  while (got < room && p->at < 3) {
    size_t n = p->size[p->at] - p->done < room - got ? p->size[p->at] - p->done : room - got;
    if (n)
      memcpy(to + got, (const uint8_t *)p->from[p->at] + p->done, n);
    got += n;
    p->done += n;
    if (p->done == p->size[p->at]) {
      p->at++;
      p->done = 0;
    }
  }
  return got;
}

static bool reserve(struct penstock_ring *ring, uint32_t slots, uint32_t parts, uint64_t *ret) {
  uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
  for (int i = 0; i < SWAPS; i++) {
    if (head + parts - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) > slots)
      return false;
    if (__atomic_compare_exchange_n(&ring->head, &head, head + parts, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      *ret = head;
      return true;
    }
  }
  return false;
}

void penstock_ring_doubt(struct penstock_ring *ring) { __atomic_store_n(&ring->all, 1, __ATOMIC_RELEASE); }

/* Notes the folder of a path whose event was dropped. */
static void note_folder(struct penstock_ring *ring, const char *path, size_t size) {
  struct penstock_ring_folder *folders = (void *)((uint8_t *)ring + PENSTOCK_RING_HEAD_BYTES);
  const char *slash = size ? memrchr(path, '/', size) : NULL;
  size_t parent = slash ? (size_t)(slash - path) : 0;
  if (!slash || parent > sizeof folders->path) {
    penstock_ring_doubt(ring);
    return;
  }
  if (parent == 0)
    parent = 1; /* the root itself */
  uint64_t hash = penstock_hash(path, parent) | 1;
  for (uint32_t i = 0; i < PROBES; i++) {
    struct penstock_ring_folder *f = &folders[((hash >> 32) + i) % PENSTOCK_RING_FOLDERS];
    uint64_t none = 0;
    if (__atomic_compare_exchange_n(&f->hash, &none, hash, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      memcpy(f->path, path, parent);
      __atomic_store_n(&f->size, (uint32_t)parent, __ATOMIC_RELEASE);
      return;
    }
    if (none == hash)
      return;
  }
  penstock_ring_doubt(ring);
}

/* The places within the mapping are reckoned from `slots`, which was checked when the ring was mapped; the head may
   change under us. */
bool penstock_ring_put(struct penstock_ring *ring, uint32_t slots, const struct penstock_event *event, const char *path,
                       const char *path2) {
  struct pieces p = {{event, path, path2}, {sizeof *event, event->path_size, event->path2_size}, 0, 0};
  size_t size = p.size[0] + p.size[1] + p.size[2];
  uint32_t parts = (uint32_t)((size + PENSTOCK_RING_PAYLOAD - 1) / PENSTOCK_RING_PAYLOAD);
  uint64_t position;
  if (!reserve(ring, slots, parts, &position)) {
    __atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
    if (event->path_size)
      note_folder(ring, path, event->path_size);
    if (event->path2_size)
      note_folder(ring, path2, event->path2_size);
    return false;
  }
  for (uint32_t i = 0; i < parts; i++, position++) {
    struct penstock_ring_slot slot = {.part = (uint8_t)i, .parts = (uint8_t)parts}, *to;
    to = (void *)((uint8_t *)ring + penstock_ring_slot_offset(slots, position));
    slot.size = (uint16_t)take(&p, slot.payload, sizeof slot.payload);
    slot.sum = penstock_ring_sum(&slot, position);
    memcpy(&to->sum, &slot.sum, sizeof slot - offsetof(struct penstock_ring_slot, sum));
    __atomic_store_n(&to->commit, position + 1, __ATOMIC_RELEASE);
  }
  return true;
}
