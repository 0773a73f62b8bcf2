// SPDX-License-Identifier: Apache-2.0
/* See serve.h. */
#include "board/serve.h"
#include <errno.h>
#include <string.h>

enum { PROBES_MAX = 1 << 16 };

/* Do `count` pieces of `size` bytes lie at `at`? */
static bool holds(uint64_t bytes, uint64_t at, uint64_t count, uint64_t size) {
  return at % 8 == 0 && at <= bytes && count <= (bytes - at) / size;
}

int penstock_serve_open(struct penstock_serve *ret, const void *image, uint64_t bytes) {
  const struct penstock_serve_image *it = image;
  if (bytes < sizeof *it || it->magic != PENSTOCK_SERVE_MAGIC || it->version != PENSTOCK_SERVE_VERSION || it->bytes != bytes)
    return -EINVAL;
  if (!holds(bytes, it->rows_at, it->rows, sizeof *ret->rows) || !holds(bytes, it->slots_at, it->slots, sizeof *ret->slots))
    return -EINVAL;
  if (!it->slots || it->slots & (it->slots - 1) || !memchr(it->attribute, 0, sizeof it->attribute))
    return -EINVAL;
  const uint8_t *base = image;
  *ret = (struct penstock_serve){it, (const void *)(base + it->rows_at), (const void *)(base + it->slots_at)};
  return 0;
}

const struct penstock_serve_row *penstock_serve_row(const struct penstock_serve *it, const char *path, size_t size,
                                                    uint64_t *ret_hash) {
  uint64_t hash = *ret_hash = penstock_hash(path, size);
  for (uint32_t i = 0; i < it->image->slots && i < PROBES_MAX; i++) {
    uint32_t slot = it->slots[(hash + i) & (it->image->slots - 1)];
    if (slot == 0 || slot > it->image->rows)
      return NULL;
    if (it->rows[slot - 1].hash == hash)
      return &it->rows[slot - 1];
  }
  return NULL;
}
