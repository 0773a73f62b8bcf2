// SPDX-License-Identifier: Apache-2.0
/* See slots.h. */
#include "stages/slots.h"
#include <string.h>

enum {
  CHUNK_TRIES = 1024,
  LEVELS = 5,
  FIRST_LEVEL = 512,
  PLACES = 174592, /* 512 * (1 + 4 + 16 + 64 + 256) */
  PROBES = 4,
  RETRY_EVERY = 256,
};

/* One place of the index: the high half of the hash and the slot's number; 0: empty. */
static uint64_t index_places[PLACES];
static uint32_t index_levels; /* that were ever written to */

static uint64_t room;         /* chunk + 1 in the high half, slots handed out of it in the low half; 0: no chunk */
static uint32_t spare;        /* chunk + 1 that the loser of a race brought */
static uint32_t first, first_seq;
static uint64_t refused_bytes; /* control.usage_bytes when no chunk was free */
static uint32_t refused;

static struct penstock_usage *head(void) { return (struct penstock_usage *)penstock_here.usage; }

static struct penstock_claim *claims(void) {
  return (struct penstock_claim *)(penstock_here.usage + PENSTOCK_USAGE_HEAD_BYTES);
}

/* ---- chunks ---- */

static uint64_t usable_bytes(void) {
  uint64_t bytes = __atomic_load_n(&penstock_here.control->usage_bytes, __ATOMIC_ACQUIRE);
  return bytes < penstock_here.usage_max_bytes ? bytes : penstock_here.usage_max_bytes;
}

/* How many chunks may be touched: by what the agent allocated, and by what is mapped. */
static uint32_t usable_chunks(void) { return penstock_chunks_in(penstock_here.chunk_count, usable_bytes()); }

static bool take_chunk(uint32_t chunk) {
  struct penstock_claim *claim = claims() + chunk;
  uint64_t holder = __atomic_load_n(&claim->holder, __ATOMIC_RELAXED);
  uint32_t seq = (uint32_t)(holder >> 32);
  if (seq && __atomic_load_n(&penstock_here.control->freed[chunk], __ATOMIC_ACQUIRE) != seq)
    return false;
  seq = seq + 1 ? seq + 1 : 1;
  return __atomic_compare_exchange_n(&claim->holder, &holder, (uint64_t)seq << 32 | penstock_here.pid, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* A chunk of our own + 1, or 0.  When none was free, it is looked for again only now and then. */
static uint32_t find_chunk(void) {
  uint64_t bytes = usable_bytes();
  if (__atomic_load_n(&refused_bytes, __ATOMIC_RELAXED) == bytes &&
      __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED) % RETRY_EVERY)
    return 0;
  uint32_t usable = usable_chunks(), tries = usable < CHUNK_TRIES ? usable : CHUNK_TRIES;
  uint32_t at = __atomic_load_n(&head()->hint, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < tries; i++) {
    uint32_t chunk = (at + i) % usable;
    if (take_chunk(chunk)) {
      __atomic_store_n(&head()->hint, chunk + 1, __ATOMIC_RELAXED);
      return chunk + 1;
    }
  }
  __atomic_store_n(&head()->hint, at + tries, __ATOMIC_RELAXED);
  __atomic_store_n(&refused_bytes, bytes, __ATOMIC_RELAXED);
  penstock_lost(PENSTOCK_LOST_CHUNKS);
  return 0;
}

static uint32_t seq_of(uint32_t chunk) {
  return (uint32_t)(__atomic_load_n(&claims()[chunk].holder, __ATOMIC_RELAXED) >> 32);
}

static uint32_t line_of(uint32_t chunk, uint32_t slot) {
  uint64_t at = penstock_chunk_offset(penstock_here.chunk_count, chunk) + (uint64_t)slot * PENSTOCK_SLOT_BYTES;
  return (uint32_t)(at / PENSTOCK_LINE);
}

/* Another chunk of this process: says whose it is before any slot in it counts. */
static uint32_t next_chunk(void) {
  uint32_t chunk = __atomic_exchange_n(&spare, 0, __ATOMIC_ACQ_REL);
  if (!chunk && (chunk = find_chunk())) {
    __atomic_store_n(&claims()[chunk - 1].first, first, __ATOMIC_RELAXED);
    __atomic_store_n(&claims()[chunk - 1].first_seq, first_seq, __ATOMIC_RELEASE);
  }
  return chunk;
}

/* What an earlier holder left is wiped; a chunk that nobody held is zero as the agent made it. */
static uint32_t fresh(uint32_t chunk, uint32_t slot, enum penstock_slot_kind kind, uint8_t flags) {
  uint32_t line = line_of(chunk, slot);
  struct penstock_slot *head_of = penstock_slot_at(line);
  uint16_t count = kind == PENSTOCK_SLOT_OPS ? PENSTOCK_OPS_SLOTS : 1;
  if (seq_of(chunk) != 1)
    memset(head_of, 0, (size_t)count * PENSTOCK_SLOT_BYTES);
  head_of->kind = (uint8_t)kind;
  head_of->flags = flags;
  head_of->slots = count;
  return line;
}

uint32_t penstock_slots_take(enum penstock_slot_kind kind, uint8_t flags) {
  uint32_t count = kind == PENSTOCK_SLOT_OPS ? PENSTOCK_OPS_SLOTS : 1;
  for (int tries = 0; tries < 4; tries++) {
    uint64_t now = __atomic_load_n(&room, __ATOMIC_ACQUIRE);
    if (now && (uint32_t)now + count <= PENSTOCK_CHUNK_SLOTS) {
      uint64_t got = __atomic_fetch_add(&room, count, __ATOMIC_ACQ_REL);
      if ((uint32_t)got + count <= PENSTOCK_CHUNK_SLOTS)
        return fresh((uint32_t)(got >> 32) - 1, (uint32_t)got, kind, flags);
      continue;
    }
    uint32_t chunk = next_chunk();
    if (!chunk)
      return 0;
    if (__atomic_compare_exchange_n(&room, &now, (uint64_t)chunk << 32 | count, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED))
      return fresh(chunk - 1, 0, kind, flags);
    __atomic_store_n(&spare, chunk, __ATOMIC_RELEASE);
  }
  return 0;
}

uint32_t penstock_slots_begin(void) {
  size_t places = 0;
  for (uint32_t level = 0; level < index_levels; level++)
    places += (size_t)FIRST_LEVEL << 2 * level;
  memset(index_places, 0, places * sizeof *index_places);
  index_levels = 0;
  room = refused_bytes = 0;
  spare = first = first_seq = 0;
  uint32_t chunk = find_chunk();
  if (!chunk)
    return 0;
  first = chunk - 1;
  first_seq = seq_of(first);
  __atomic_store_n(&claims()[first].first, first, __ATOMIC_RELAXED);
  __atomic_store_n(&claims()[first].first_seq, first_seq, __ATOMIC_RELEASE);
  __atomic_store_n(&room, (uint64_t)chunk << 32 | 1, __ATOMIC_RELEASE);
  return fresh(first, 0, PENSTOCK_SLOT_PROCESS, 0);
}

void penstock_slot_publish(uint32_t line) {
  struct penstock_slot *slot = penstock_slot_at(line);
  __atomic_store_n(&slot->seq, seq_of(penstock_chunk_of(penstock_here.chunk_count, line)), __ATOMIC_RELEASE);
}

/* ---- text ---- */

uint32_t penstock_slot_text(char *here, size_t room_here, const char *text, size_t size) {
  size_t part = size < room_here ? size : room_here;
  memcpy(here, text, part);
  uint32_t begin = 0, *link = &begin;
  for (size_t at = part; at < size; at += part) {
    uint32_t line = penstock_slots_take(PENSTOCK_SLOT_TEXT, 0);
    if (!line) {
      penstock_lost(PENSTOCK_LOST_NAMES);
      break;
    }
    struct penstock_text *more = penstock_slot_at(line);
    part = size - at < sizeof more->text ? size - at : sizeof more->text;
    memcpy(more->text, text + at, part);
    more->size = (uint32_t)part;
    penstock_slot_publish(line);
    *link = line;
    link = &more->next;
  }
  return begin;
}

/* A slot of this kind that counts: of whichever process holds its chunk. */
static void *counted(uint32_t line, bool (*wanted)(uint8_t kind)) {
  uint32_t chunk = penstock_chunk_of(penstock_here.chunk_count, line);
  if (chunk >= usable_chunks())
    return NULL;
  struct penstock_slot *slot = penstock_slot_at(line);
  return __atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE) == seq_of(chunk) && wanted(slot->kind) ? slot : NULL;
}

static bool is_text(uint8_t kind) { return kind == PENSTOCK_SLOT_TEXT; }
static bool is_named(uint8_t kind) { return kind == PENSTOCK_SLOT_FILE || kind == PENSTOCK_SLOT_DIRECTORY; }

size_t penstock_slot_name(uint32_t line, char *name, size_t room_there) {
  const struct penstock_file *file = counted(line, is_named);
  if (!file || file->name_size > room_there)
    return 0;
  size_t size = file->name_size, at = size < sizeof file->name ? size : sizeof file->name;
  memcpy(name, file->name, at);
  for (uint32_t next = file->name_next; at < size;) {
    const struct penstock_text *more = counted(next, is_text);
    size_t part = more ? more->size : 0;
    if (!part || part > sizeof more->text || part > size - at)
      return 0;
    memcpy(name + at, more->text, part);
    at += part;
    next = more->next;
  }
  return penstock_hash(name, size) == file->hash || file->slot.kind == PENSTOCK_SLOT_DIRECTORY ? size : 0;
}

/* ---- the index ---- */

static bool same(uint64_t place, uint64_t hash) {
  if (place >> 32 != hash >> 32)
    return false;
  const struct penstock_file *file = penstock_slot_at((uint32_t)place);
  return file->hash == hash;
}

uint32_t penstock_slots_find(uint64_t hash, uint64_t **ret_place) {
  uint64_t *level = index_places;
  for (int i = 0; i < LEVELS; i++) {
    uint32_t mask = ((uint32_t)FIRST_LEVEL << 2 * i) - 1;
    for (uint32_t probe = 0; probe < PROBES; probe++) {
      uint64_t *at = &level[((uint32_t)hash + probe) & mask], place = __atomic_load_n(at, __ATOMIC_ACQUIRE);
      if (!place) {
        *ret_place = at;
        return 0;
      }
      if (same(place, hash))
        return (uint32_t)place;
    }
    level += mask + 1;
  }
  *ret_place = NULL;
  return 0;
}

/* How many levels are to be wiped in a child. */
static void touched(const uint64_t *place) {
  uint32_t levels = 1;
  for (size_t end = FIRST_LEVEL; (size_t)(place - index_places) >= end; levels++)
    end += (size_t)FIRST_LEVEL << 2 * levels;
  if (__atomic_load_n(&index_levels, __ATOMIC_RELAXED) < levels)
    __atomic_store_n(&index_levels, levels, __ATOMIC_RELAXED);
}

uint32_t penstock_index_add(uint64_t hash, uint32_t line, uint64_t *place) {
  while (place) {
    uint64_t there = 0;
    touched(place);
    if (__atomic_compare_exchange_n(place, &there, hash >> 32 << 32 | line, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return line;
    uint32_t first_one = penstock_slots_find(hash, &place); /* somebody was faster: with this name, or with another */
    if (first_one)
      return first_one;
  }
  return 0;
}
