// SPDX-License-Identifier: Apache-2.0
/* See place.h. */
#include "board/place.h"
#include <string.h>

/* ---- opening ---- */

static bool lies_within(const struct penstock_place_part *part, uint64_t size, uint64_t align, uint64_t bytes, uint32_t most) {
  return part->count <= most && part->offset_bytes % align == 0 && part->offset_bytes <= bytes &&
         part->count * size <= bytes - part->offset_bytes;
}

const char *penstock_place_open(struct penstock_place *ret, const void *at, uint64_t bytes) {
  const struct penstock_place_head *head = at;
  if (bytes < sizeof *head || (uintptr_t)at % 8)
    return "it is too short";
  uint32_t generation = __atomic_load_n(&head->generation, __ATOMIC_ACQUIRE), driver = head->driver;
  if (generation & 1)
    return "it is being changed";
  if (head->version != PENSTOCK_PLACE_VERSION)
    return "it has another version than this program";
  if (driver > PENSTOCK_PLACE_CEPHFS)
    return "it is for a file system that is not known here";
  /* What is checked is a copy: the original may change. */
  struct penstock_place_part part[6] = {head->variants, head->entries, head->targets,
                                        head->pools,    head->bytes,   head->folders};
  if (!lies_within(&part[0], sizeof *ret->variants, 8, bytes, PENSTOCK_PLACE_VARIANTS_MAX) ||
      !lies_within(&part[1], sizeof *ret->entries, 8, bytes, PENSTOCK_PLACE_ENTRIES_MAX) ||
      !lies_within(&part[2], sizeof *ret->targets, 2, bytes, UINT32_MAX) ||
      !lies_within(&part[3], sizeof *ret->pools, 8, bytes, PENSTOCK_PLACE_POOLS_MAX) ||
      !lies_within(&part[4], 1, 1, bytes, UINT32_MAX) ||
      !lies_within(&part[5], sizeof *ret->folders, 8, bytes, PENSTOCK_PLACE_FOLDERS_MAX))
    return "its sizes do not fit together";
  const uint8_t *base = at;
  *ret = (struct penstock_place){
    .head = head,
    .variants = (const void *)(base + part[0].offset_bytes),
    .entries = (const void *)(base + part[1].offset_bytes),
    .targets = (const void *)(base + part[2].offset_bytes),
    .pools = (const void *)(base + part[3].offset_bytes),
    .bytes = base + part[4].offset_bytes,
    .folders = (const void *)(base + part[5].offset_bytes),
    .variant_count = part[0].count,
    .entry_count = part[1].count,
    .target_count = part[2].count,
    .pool_count = part[3].count,
    .byte_count = part[4].count,
    .folder_count = part[5].count,
    .driver = driver,
    .generation = generation,
  };
  return NULL;
}

uint32_t penstock_place_spots(struct penstock_place_spot ret[PENSTOCK_PLACES_MAX], const struct penstock_control *control,
                              uint64_t bytes) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < PENSTOCK_SECTIONS_MAX && count < PENSTOCK_PLACES_MAX; i++) {
    struct penstock_section s = control->sections[i];
    if (s.kind == PENSTOCK_SECTION_PLACE && s.version == PENSTOCK_PLACE_VERSION && s.offset_bytes <= bytes &&
        s.size_bytes <= bytes - s.offset_bytes && s.offset_bytes % 8 == 0 && s.size_bytes >= sizeof *ret->head)
      ret[count++] = (struct penstock_place_spot){(const void *)((const uint8_t *)control + s.offset_bytes), s.size_bytes};
  }
  return count;
}

uint32_t penstock_places_open(struct penstock_place ret[PENSTOCK_PLACES_MAX], const struct penstock_control *control,
                              uint64_t bytes) {
  struct penstock_place_spot spots[PENSTOCK_PLACES_MAX];
  uint32_t count = 0, spot_count = penstock_place_spots(spots, control, bytes);
  for (uint32_t i = 0; i < spot_count; i++)
    if (!penstock_place_open(&ret[count], spots[i].head, spots[i].bytes) && ret[count].driver != PENSTOCK_PLACE_NONE)
      count++;
  return count;
}

/* How long the mount is that holds a path: -1 for one that does not. */
static int holds(const struct penstock_place_head *head, const char *path, size_t size) {
  uint32_t mount = __atomic_load_n(&head->mount_size, __ATOMIC_RELAXED);
  bool known = head->driver != PENSTOCK_PLACE_NONE || mount;
  return known && mount <= sizeof head->mount && mount < size && memcmp(path, head->mount, mount) == 0 && path[mount] == '/'
           ? (int)mount
           : -1;
}

const struct penstock_place_spot *penstock_place_spot_of(const struct penstock_place_spot *spots, uint32_t count,
                                                         const char *path, size_t size) {
  const struct penstock_place_spot *best = NULL;
  for (uint32_t i = 0, longest = 0; i < count; i++) {
    int mount = holds(spots[i].head, path, size);
    if (mount < 0 || (best && (uint32_t)mount <= longest))
      continue;
    best = &spots[i];
    longest = (uint32_t)mount;
  }
  return best;
}

const struct penstock_place *penstock_places_of(const struct penstock_place *plans, uint32_t count, const char *path,
                                                size_t size) {
  struct penstock_place_spot spots[PENSTOCK_PLACES_MAX];
  count = count < PENSTOCK_PLACES_MAX ? count : PENSTOCK_PLACES_MAX;
  for (uint32_t i = 0; i < count; i++)
    spots[i].head = plans[i].head;
  const struct penstock_place_spot *found = penstock_place_spot_of(spots, count, path, size);
  return found ? &plans[found - spots] : NULL;
}

const char *const penstock_place_count_names[PENSTOCK_PLACE_COUNTS] = {
  [PENSTOCK_PLACE_EXPECTED] = "expected",
  [PENSTOCK_PLACE_UNEXPECTED] = "unexpected",
  [PENSTOCK_PLACE_PLACED] = "placed",
  [PENSTOCK_PLACE_SPARE] = "spare",
  [PENSTOCK_PLACE_PLANNED_STOCK] = "planned_stock",
  [PENSTOCK_PLACE_NO_TARGETS] = "no_targets",
  [PENSTOCK_PLACE_OF_PROGRAM] = "of_program",
  [PENSTOCK_PLACE_OF_FOLDER] = "of_folder",
  [PENSTOCK_PLACE_OF_POOL] = "of_pool",
  [PENSTOCK_PLACE_APPENDED] = "appended",
  [PENSTOCK_PLACE_IN_LIBC] = "in_libc",
  [PENSTOCK_PLACE_EXISTED] = "existed",
  [PENSTOCK_PLACE_CHANGING] = "changing",
  [PENSTOCK_PLACE_REFUSED_FULL] = "refused_full",
  [PENSTOCK_PLACE_REFUSED_INACTIVE] = "refused_inactive",
  [PENSTOCK_PLACE_REFUSED_NO_CREATE] = "refused_no_create",
  [PENSTOCK_PLACE_REFUSED_RIGHTS] = "refused_rights",
  [PENSTOCK_PLACE_REFUSED_OTHER] = "refused_other",
  [PENSTOCK_PLACE_BY_IOCTL] = "by_ioctl",
  [PENSTOCK_PLACE_DEFAULTED] = "defaulted",
  [PENSTOCK_PLACE_FAILED] = "failed",
  [PENSTOCK_PLACE_RESCUED] = "rescued",
  [PENSTOCK_PLACE_FOLDERS] = "folders",
  [PENSTOCK_PLACE_EARLY] = "early",
  [PENSTOCK_PLACE_ELSEWHERE] = "elsewhere",
  [PENSTOCK_PLACE_LINKED] = "linked",
};

/* ---- names ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool takes(char mark, char c) { return (mark != 'l' && is_digit(c)) || (mark != 'd' && is_letter(c)); }

struct mark {
  uint16_t from, size;
};

/* The texts of the marks where a name matches; how many there are, or -1. */
static int match(const char *pattern, size_t pattern_size, const char *name, size_t size,
                 struct mark mark[PENSTOCK_PLACE_MARKS_MAX]) {
  size_t at = 0;
  int marks = 0;
  for (size_t i = 0; i < pattern_size;) {
    const char *zero = memchr(pattern + i, 0, pattern_size - i);
    size_t literal = zero ? (size_t)(zero - pattern) - i : pattern_size - i;
    if (literal > size - at || memcmp(pattern + i, name + at, literal) != 0)
      return -1;
    at += literal;
    i += literal;
    if (!zero)
      break;
    if (i + 1 >= pattern_size || marks >= PENSTOCK_PLACE_MARKS_MAX)
      return -1;
    size_t from = at;
    while (at < size && takes(pattern[i + 1], name[at]))
      at++;
    if (at == from)
      return -1;
    /* Leading zeros of a number say nothing. */
    while (pattern[i + 1] == 'd' && name[from] == '0' && from + 1 < at)
      from++;
    mark[marks++] = (struct mark){(uint16_t)from, (uint16_t)(at - from)};
    i += 2;
  }
  return at == size ? marks : -1;
}

uint64_t penstock_place_key_begin(uint32_t variant) { return (variant + 1) * UINT64_C(0x9e3779b97f4a7c15); }

uint64_t penstock_place_key_add(uint64_t key, const char *text, size_t size) {
  key = (key ^ penstock_hash(text, size)) * UINT64_C(0xff51afd7ed558ccd);
  return key ^ key >> 32;
}

bool penstock_place_key(const struct penstock_place *p, uint32_t variant, const char *name, size_t size, uint64_t *ret) {
  struct mark mark[PENSTOCK_PLACE_MARKS_MAX];
  struct penstock_place_variant v;
  memcpy(&v, &p->variants[variant], sizeof v);
  __asm__ volatile("" ::: "memory"); /* it may change: what is checked is what is used */
  if (v.text > p->byte_count || v.text_size > p->byte_count - v.text || size > UINT16_MAX)
    return false;
  int marks = match((const char *)p->bytes + v.text, v.text_size, name, size, mark);
  if (marks < 0)
    return false;
  *ret = penstock_place_key_begin(variant);
  for (int i = 0; i < marks; i++)
    if (v.stated >> i & 1)
      *ret = penstock_place_key_add(*ret, name + mark[i].from, mark[i].size);
  return true;
}

static const struct penstock_place_entry *entry_of(const struct penstock_place *p, uint64_t key) {
  uint32_t from = 0, to = p->entry_count;
  while (from < to) {
    uint32_t middle = from + (to - from) / 2;
    if (p->entries[middle].key < key)
      from = middle + 1;
    else
      to = middle;
  }
  return from < p->entry_count && p->entries[from].key == key ? &p->entries[from] : NULL;
}

const struct penstock_place_entry *penstock_place_find(const struct penstock_place *p, const char *name, size_t size) {
  const struct penstock_place_entry *found = entry_of(p, penstock_hash(name, size));
  uint64_t key;
  for (uint32_t i = 0; !found && i < p->variant_count; i++)
    if (penstock_place_key(p, i, name, size, &key))
      found = entry_of(p, key);
  return found;
}

const struct penstock_place_folder *penstock_place_folder(const struct penstock_place *p, uint64_t key) {
  uint32_t from = 0, to = p->folder_count;
  while (from < to) {
    uint32_t middle = from + (to - from) / 2;
    if (p->folders[middle].key < key)
      from = middle + 1;
    else
      to = middle;
  }
  return from < p->folder_count && p->folders[from].key == key ? &p->folders[from] : NULL;
}

/* ---- pools ---- */

uint32_t penstock_place_pool_called(const struct penstock_place *p, const char *name, size_t size) {
  for (uint32_t i = 1; size && size < PENSTOCK_PLACE_POOL_NAME && i < p->pool_count; i++)
    if (memcmp(p->pools[i].name, name, size) == 0 && !p->pools[i].name[size])
      return i;
  return 0;
}

static bool among(const uint16_t *targets, uint32_t count, uint16_t target) {
  for (uint32_t i = 0; i < count; i++)
    if (targets[i] == target)
      return true;
  return false;
}

bool penstock_place_take(const struct penstock_place *p, uint32_t pool, uint64_t from, uint32_t want, uint16_t *ret) {
  if (pool >= p->pool_count || want > PENSTOCK_PLACE_STRIPES_MAX)
    return false;
  uint32_t first = __atomic_load_n(&p->pools[pool].first, __ATOMIC_RELAXED), have = 0;
  uint32_t count = __atomic_load_n(&p->pools[pool].count, __ATOMIC_RELAXED);
  if (first > p->target_count || count > p->target_count - first || !count)
    return false;
  /* A list says each target several times: a few rounds' worth of looks, not all of it. */
  uint32_t looks = count < 16 * PENSTOCK_PLACE_STRIPES_MAX ? count : 16 * PENSTOCK_PLACE_STRIPES_MAX;
  for (uint32_t i = 0; i < looks && have < want; i++) {
    uint16_t target = p->targets[first + (from + i) % count];
    if (!among(ret, have, target))
      ret[have++] = target;
  }
  return have == want;
}
