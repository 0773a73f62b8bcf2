// SPDX-License-Identifier: Apache-2.0
#include "interpose/names.h"
#include <string.h>

/* Marks (in the high bit of each byte, exact up to the first) the bytes of `word` that are `letter`. */
static inline uint64_t bytes_equal(uint64_t word, uint8_t letter) {
  uint64_t x = word ^ 0x0101010101010101u * letter;
  return (x - 0x0101010101010101u) & ~x & 0x8080808080808080u;
}

/* Whether "//" or "/." may be among the pairs that begin in `size` bytes (one more may be read). */
static bool odd_pair(const char *path, size_t size) {
  size_t i = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  for (; i + 9 <= size; i += 8) {
    uint64_t here, next;
    memcpy(&here, path + i, 8);
    memcpy(&next, path + i + 1, 8);
    if (bytes_equal(here, '/') & (bytes_equal(next, '/') | bytes_equal(next, '.')))
      return true;
  }
#endif
  for (; i + 1 < size; i++)
    if (path[i] == '/' && (path[i + 1] == '/' || path[i + 1] == '.'))
      return true;
  return false;
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

ssize_t penstock_name_is_normal(const char *path) {
  if (path[0] != '/')
    return -1;
  size_t size = strnlen(path, PENSTOCK_NAME_MAX);
  if (size == PENSTOCK_NAME_MAX || (size > 1 && path[size - 1] == '/'))
    return -1;
  if (odd_pair(path, size) && odd_component(path, size))
    return -1;
  return (ssize_t)size;
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

void penstock_rules_make(struct penstock_rules *rules, const struct penstock_prefix *prefixes, uint32_t count,
                         uint32_t otherwise) {
  memset(rules, 0, sizeof *rules);
  rules->otherwise = (uint8_t)otherwise;
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
    else {
      uint8_t c = (uint8_t)prefixes[p].path[0];
      rules->component[c / 8] |= (uint8_t)(1 << c % 8);
      rules->by_component++;
    }
  }
}

int penstock_rules_component(const struct penstock_rules *rules, const char *path, size_t size) {
  const char *end = path + size, *at = path;
  if (!rules->by_component)
    return -1;
  while (at < end) {
    const char *slash = memchr(at, '/', (size_t)(end - at));
    size_t n = (size_t)((slash ? slash : end) - at);
    uint8_t c = (uint8_t)*at;
    if (n && rules->component[c / 8] >> c % 8 & 1)
      for (int i = 0; i < rules->count; i++)
        if (rules->rule[i].size == n && memcmp(rules->rule[i].path, at, n) == 0)
          return i;
    at += n + 1;
  }
  return -1;
}

struct penstock_found penstock_rules_find(const struct penstock_rules *rules, const char *path, size_t size) {
  uint8_t at = rules->first[letter(path, size)];
  for (; at; at = rules->rule[at - 1].next)
    if (whole_components(path, size, rules->rule[at - 1].path, rules->rule[at - 1].size))
      break;
  if (!at)
    at = rules->root;
  uint8_t under = at ? rules->rule[at - 1].under : rules->otherwise;
  int i = penstock_rules_component(rules, path, size);
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
