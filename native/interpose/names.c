// SPDX-License-Identifier: Apache-2.0
/* See names.h. */
#include "interpose/names.h"
#include <string.h>

/* Marks in the high bit of their bytes those of `word` that are a slash (and perhaps some that follow one, which the
   caller looks at anyway). */
static inline uint64_t slashes(uint64_t word) {
  uint64_t x = word ^ 0x0101010101010101u * '/';
  return (x - 0x0101010101010101u) & ~x & 0x8080808080808080u;
}

/* Whether a component is "", "." or "..": those that "/." and "//" may begin. */
static bool odd_component(const char *path, size_t size) {
  for (size_t i = 0; i + 1 < size; i++) {
    if (path[i] != '/')
      continue;
    const char *c = path + i + 1;
    if (c[0] == '/' || (c[0] == '.' && (c[1] == '/' || !c[1] || (c[1] == '.' && (c[2] == '/' || !c[2])))))
      return true;
  }
  return false;
}

/* What the component that follows this slash begins with. */
static inline uint8_t beginning(const struct penstock_rules *rules, const char *slash) {
  uint8_t kind = rules->letters[(uint8_t)slash[1]];
  return kind && slash[1] ? kind & (PENSTOCK_LETTER_ODD | rules->second[(uint8_t)slash[2]]) : 0;
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static inline uint8_t beginnings(const struct penstock_rules *rules, const char *path) {
  uint8_t kinds = 0;
  uint64_t word;
  memcpy(&word, path, 8);
  for (uint64_t marks = slashes(word); marks; marks &= marks - 1) {
    const char *at = path + __builtin_ctzll(marks) / 8;
    if (*at == '/')
      kinds |= beginning(rules, at);
  }
  return kinds;
}
#endif

ssize_t penstock_name_scan(const struct penstock_rules *rules, const char *path, uint8_t *found) {
  uint8_t kinds = 0;
  size_t size = strnlen(path, PENSTOCK_NAME_MAX), i = 0;
  if (path[0] != '/' || size == PENSTOCK_NAME_MAX || (size > 1 && path[size - 1] == '/'))
    return -1;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  for (; i + 8 <= size; i += 8)
    kinds |= beginnings(rules, path + i);
  if (i && i < size) {
    kinds |= beginnings(rules, path + size - 8);
    i = size;
  }
#endif
  for (; i < size; i++)
    if (path[i] == '/')
      kinds |= beginning(rules, path + i);
  *found = kinds;
  return kinds & PENSTOCK_LETTER_ODD && odd_component(path, size) ? -1 : (ssize_t)size;
}

ssize_t penstock_name_make(char to[PENSTOCK_NAME_MAX], const char *base, size_t base_size, const char *path) {
  size_t size = 0;
  if (path[0] != '/') {
    if (base_size >= PENSTOCK_NAME_MAX)
      return -1;
    memcpy(to, base, base_size);
    size = base_size == 1 && base[0] == '/' ? 0 : base_size;
  }
  while (*path) {
    while (*path == '/')
      path++;
    size_t n = 0;
    while (path[n] && path[n] != '/')
      if (++n >= PENSTOCK_NAME_MAX)
        return -1;
    if (n == 2 && path[0] == '.' && path[1] == '.') {
      while (size && to[--size] != '/')
        ;
    } else if (n && !(n == 1 && path[0] == '.')) {
      if (size + n + 2 > PENSTOCK_NAME_MAX)
        return -1;
      to[size++] = '/';
      memcpy(to + size, path, n);
      size += n;
    }
    path += n;
  }
  if (!size)
    to[size++] = '/';
  to[size] = 0;
  return (ssize_t)size;
}

static bool whole_components(const char *path, size_t size, const char *prefix, size_t prefix_size) {
  return prefix_size <= size && (prefix_size == size || path[prefix_size] == '/') &&
         memcmp(path, prefix, prefix_size) == 0;
}

static uint8_t letter(const char *path, size_t size) { return size > 1 ? (uint8_t)path[1] : 0; }

/* Puts rule i into its list, which goes from long to short. */
static void insert(struct penstock_rules *rules, uint8_t i) {
  uint8_t *at = &rules->first[letter(rules->rule[i].path, rules->rule[i].size)];
  while (*at && rules->rule[*at - 1].size >= rules->rule[i].size)
    at = &rules->rule[*at - 1].next;
  rules->rule[i].next = *at;
  *at = (uint8_t)(i + 1);
}

static void note_component(struct penstock_rules *rules, const char *name, size_t size) {
  rules->letters[(uint8_t)name[0]] |= PENSTOCK_LETTER_COMPONENT;
  if (size > 1)
    rules->second[(uint8_t)name[1]] = PENSTOCK_LETTER_COMPONENT;
  else
    rules->second[0] = rules->second['/'] = PENSTOCK_LETTER_COMPONENT;
  rules->by_component++;
}

void penstock_rules_make(struct penstock_rules *rules, const struct penstock_prefix *prefixes, uint32_t count,
                         uint32_t otherwise) {
  memset(rules, 0, sizeof *rules);
  rules->otherwise = (uint8_t)otherwise;
  rules->letters['/'] = rules->letters['.'] = PENSTOCK_LETTER_ODD;
  for (uint32_t p = 0; p < count && p < PENSTOCK_PREFIXES_MAX; p++) {
    uint16_t size = prefixes[p].size;
    uint8_t i = rules->count;
    if (size > PENSTOCK_PREFIX_BYTES)
      continue;
    rules->rule[i].dev = prefixes[p].dev;
    rules->rule[i].under = prefixes[p].under;
    rules->rule[i].path = prefixes[p].path;
    rules->rule[i].size = size;
    rules->count++;
    rules->mounts += prefixes[p].dev != 0;
    if (!size)
      rules->root = (uint8_t)(i + 1);
    else if (prefixes[p].path[0] == '/')
      insert(rules, i);
    else
      note_component(rules, prefixes[p].path, size);
  }
}

int penstock_rules_component(const struct penstock_rules *rules, const char *path, size_t size) {
  const char *end = path + size, *at = path;
  if (!rules->by_component)
    return -1;
  while (at < end) {
    const char *slash = memchr(at, '/', (size_t)(end - at));
    size_t n = (size_t)((slash ? slash : end) - at);
    if (n && rules->letters[(uint8_t)*at] & PENSTOCK_LETTER_COMPONENT)
      for (int i = 0; i < rules->count; i++)
        if (rules->rule[i].size == n && memcmp(rules->rule[i].path, at, n) == 0)
          return i;
    at += n + 1;
  }
  return -1;
}

struct penstock_found penstock_rules_find(const struct penstock_rules *rules, const char *path, size_t size,
                                          uint8_t letters) {
  uint8_t at = rules->first[letter(path, size)];
  for (; at; at = rules->rule[at - 1].next)
    if (whole_components(path, size, rules->rule[at - 1].path, rules->rule[at - 1].size))
      break;
  if (!at)
    at = rules->root;
  uint8_t under = at ? rules->rule[at - 1].under : rules->otherwise;
  int i = letters & PENSTOCK_LETTER_COMPONENT ? penstock_rules_component(rules, path, size) : -1;
  if (i >= 0)
    return (struct penstock_found){rules->rule[i].under, (int8_t)i};
  return (struct penstock_found){under, (int8_t)(at - 1)};
}

uint8_t penstock_rules_decide(const struct penstock_rules *rules, struct penstock_found by_path, uint64_t dev) {
  if (!rules->mounts || !dev)
    return by_path.under;
  for (int i = 0; i < rules->count; i++) {
    if (rules->rule[i].dev != dev || !(rules->rule[i].under & PENSTOCK_UNDER_MOUNT))
      continue;
    /* A rule for a folder inside this mount knows better. */
    int r = by_path.rule;
    if (r >= 0 && rules->rule[r].size &&
        (rules->rule[r].path[0] != '/' ||
         whole_components(rules->rule[r].path, rules->rule[r].size, rules->rule[i].path, rules->rule[i].size)))
      return by_path.under;
    return by_path.under | rules->rule[i].under;
  }
  /* On none of the mounts: a path that seemed to be on one left it. */
  return by_path.under & (uint8_t)~PENSTOCK_UNDER_MOUNT;
}

bool penstock_rules_below(const struct penstock_rules *rules, const char *path, size_t size) {
  if (size == 1)
    return rules->count > 0;
  for (int i = 0; i < rules->count; i++)
    if (rules->rule[i].size > size && whole_components(rules->rule[i].path, rules->rule[i].size, path, size))
      return true;
  return false;
}
