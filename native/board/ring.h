// SPDX-License-Identifier: Apache-2.0
/* The ring: what a job's processes tell the catalog's helper of names and files that change.  A third file of the board,
   written by the job's processes and read by the helper, which runs as the same user.

   An event takes one or more slots.  A writer reserves them with one compare-and-swap on `head`, fills them, and commits
   each by its own word; it never waits.  The helper reads slots with pread, in the order of their reservation, and moves
   `tail`.

   Invariants:
   1. A slot counts when its `commit` is its position + 1 and its sum is right: one in the making, one of an earlier round
      and one that two writers wrote into (of which one had been stopped for a whole round) do not.
   2. A writer killed between reserving and committing leaves a hole.  The helper passes over it after a while, and then
      knows that it does not know: it looks through all folders in the end.
   3. Full: the event is dropped and its folder noted in `folder`; no room there either: `all` is set.  The helper then
      scans what was noted.
   4. Everything has a maximum; whoever reads takes all of it as hostile. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  PENSTOCK_RING_VERSION = 1,
  PENSTOCK_RING_HEAD_BYTES = 4096,
  PENSTOCK_RING_FOLDERS = 256,
  PENSTOCK_RING_FOLDER_BYTES = 1024,
  PENSTOCK_RING_SLOT_BYTES = 128,
  PENSTOCK_RING_PAYLOAD = PENSTOCK_RING_SLOT_BYTES - 16,
  PENSTOCK_RING_SLOTS_MAX = 1 << 20, /* 128 MiB */
  PENSTOCK_EVENT_PATH_MAX = 4096,
};
#define PENSTOCK_RING_MAGIC 0x31474e49524b5350u /* "PSKRING1" */

struct penstock_ring_folder {
  uint64_t hash; /* claims the place; 0: free */
  uint32_t size; /* of the path; written last */
  uint32_t zero;
  char path[PENSTOCK_RING_FOLDER_BYTES - 16];
};

struct penstock_ring {
  uint64_t magic;
  uint32_t version;
  uint32_t slots; /* a power of two */
  uint8_t nonce[16]; /* the board's */
  _Alignas(64) uint64_t head; /* position of the next slot to be reserved */
  _Alignas(64) uint64_t tail; /* the helper's: all before were read */
  _Alignas(64) uint64_t dropped;
  uint32_t all; /* 1: dropped events, of folders that are not noted, or changes of names too long to be told */
};

struct penstock_ring_slot {
  uint64_t commit;
  uint32_t sum;  /* penstock_ring_sum */
  uint8_t part;  /* 0, 1, ... of an event */
  uint8_t parts;
  uint16_t size; /* bytes of payload here */
  uint8_t payload[PENSTOCK_RING_PAYLOAD];
};
_Static_assert(sizeof(struct penstock_ring_slot) == PENSTOCK_RING_SLOT_BYTES, "a slot");
_Static_assert(sizeof(struct penstock_ring) <= PENSTOCK_RING_HEAD_BYTES, "the head");
_Static_assert(sizeof(struct penstock_ring_folder) == PENSTOCK_RING_FOLDER_BYTES, "a folder");

/* What a call does to names and files. */
enum penstock_event_what {
  PENSTOCK_EVENT_OPEN = 1, /* for writing, or so that it may be created */
  PENSTOCK_EVENT_CLOSE,    /* of a descriptor that could write */
  PENSTOCK_EVENT_CHANGE,   /* mode, owner, times, size, attributes: the file itself, not its names */
  PENSTOCK_EVENT_NAME,     /* a new name: mkdir, mknod, symlink, link (path2: the name that there was) */
  PENSTOCK_EVENT_GONE,     /* unlink, rmdir */
  PENSTOCK_EVENT_RENAME,   /* path2: the new name */
  PENSTOCK_EVENT_MAP,      /* a descriptor that can write is mapped: bytes may change until the process ends */
};

/* An event: this, then the bytes of path and path2.  BEFORE comes ahead of the call and says what may happen; DONE
   follows it, and needs no path but where the call made up the name.  Between the two, one thread has one call. */
enum { PENSTOCK_EVENT_DONE = 1, PENSTOCK_EVENT_FAILED = 2 };
struct penstock_event {
  uint64_t thread; /* tells threads of a process apart, no more */
  uint64_t dev, ino; /* of CLOSE: the file's; else 0 */
  uint32_t pid;
  uint8_t what;
  uint8_t flags;
  uint16_t path_size, path2_size;
  uint16_t zero[3];
};
_Static_assert(sizeof(struct penstock_event) == 40, "no holes");

static inline uint64_t penstock_ring_bytes(uint32_t slots) {
  return PENSTOCK_RING_HEAD_BYTES + (uint64_t)PENSTOCK_RING_FOLDERS * PENSTOCK_RING_FOLDER_BYTES +
         (uint64_t)slots * PENSTOCK_RING_SLOT_BYTES;
}
static inline uint64_t penstock_ring_slot_offset(uint32_t slots, uint64_t position) {
  return penstock_ring_bytes(0) + (position & (slots - 1)) * PENSTOCK_RING_SLOT_BYTES;
}

/* Of what stands behind `sum`, and of where. */
static inline uint32_t penstock_ring_sum(const struct penstock_ring_slot *slot, uint64_t position) {
  uint64_t hash = (position + 1) * 0x9e3779b97f4a7c15u, word;
  const uint8_t *from = (const uint8_t *)&slot->part;
  enum { BYTES = PENSTOCK_RING_SLOT_BYTES - 12 };
  for (size_t i = 0; i < BYTES; i += 4) {
    uint32_t half;
    __builtin_memcpy(&half, from + i, 4);
    word = half;
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return (uint32_t)hash;
}

/* Whether a ring of so many bytes makes no sense; `slots` is its own, read once. */
static inline bool penstock_ring_wrong(const struct penstock_ring *ring, uint32_t slots, uint64_t bytes) {
  return ring->magic != PENSTOCK_RING_MAGIC || ring->version != PENSTOCK_RING_VERSION || slots == 0 ||
         slots > PENSTOCK_RING_SLOTS_MAX || (slots & (slots - 1)) || penstock_ring_bytes(slots) > bytes;
}

/* ---- the program's side ---- */

/* Puts an event (whose sizes say how much of the paths is taken); false: there was no room, and the folders of its paths
   are noted.  `slots` is the ring's, as checked against the size of the mapping. */
bool penstock_ring_put(struct penstock_ring *ring, uint32_t slots, const struct penstock_event *event, const char *path,
                       const char *path2);
/* Something changed that cannot be told: the helper looks at everything in the end. */
void penstock_ring_doubt(struct penstock_ring *ring);

/* ---- the helper's side: functions give 0 or -errno ---- */

struct penstock_ring_reader {
  int fd;
  uint32_t slots;
  uint64_t position; /* of the next slot to be read */
  uint64_t holes;    /* slots that were passed over */
};

/* Reads by this descriptor, which stays the caller's.  -EPROTO: no ring. */
int penstock_ring_open(struct penstock_ring_reader *ret, int fd);
/* The next event into `room` (at least PENSTOCK_EVENT_MAX): 1; 0: there is none yet, and `ret_behind` tells whether one
   is in the making; `skip`: pass over that one. */
enum { PENSTOCK_EVENT_MAX = (int)sizeof(struct penstock_event) + 2 * PENSTOCK_EVENT_PATH_MAX };
int penstock_ring_next(struct penstock_ring_reader *r, bool skip, uint8_t *room, size_t *ret_size, bool *ret_behind);
/* Tells writers how far we are. */
int penstock_ring_release(struct penstock_ring_reader *r);
/* The folders of dropped events, one call a place: its size, 0 (none), or -errno. */
int penstock_ring_dropped(const struct penstock_ring_reader *r, uint32_t place, char room[PENSTOCK_RING_FOLDER_BYTES]);
/* Head of the ring as it stands. */
int penstock_ring_look(const struct penstock_ring_reader *r, struct penstock_ring *ret);
