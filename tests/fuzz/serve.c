// SPDX-License-Identifier: Apache-2.0
// uses: board/serve.c
/* Any bytes as the image that programs are answered from, and names looked up in it: nothing outside it is read, what is
   found is one of its rows, and looking ends.  Each is tried as it is and with a begin that holds. */
#include <stdlib.h>
#include <string.h>

#include "board/serve.h"

static const char *const NAMES[] = {"/m", "/m/a", "/", "", "/m/out/rank\xff\n"};

static void look_up(const struct penstock_serve *it, const char *path, size_t size) {
  uint64_t hash;
  const struct penstock_serve_row *row = penstock_serve_row(it, path, size, &hash);
  if (row && (row < it->rows || row >= it->rows + it->image->rows || row->hash != hash))
    abort();
}

static void try(const void *image, size_t size, const char *tail, size_t tail_size) {
  struct penstock_serve it;
  if (penstock_serve_open(&it, image, size))
    return;
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    look_up(&it, NAMES[i], strlen(NAMES[i]));
  look_up(&it, tail, tail_size);
  if (strlen(it.image->attribute) >= sizeof it.image->attribute)
    abort();
}

/* One slot after the other leads to a row of this name: what hashes would hardly ever do by themselves. */
static void plant(uint8_t *image, size_t size, const char *path, size_t path_size) {
  struct penstock_serve it;
  if (penstock_serve_open(&it, image, size) || !it.image->rows)
    return;
  uint64_t hash = penstock_hash(path, path_size);
  size_t at = (size_t)((const uint8_t *)&it.rows[hash % it.image->rows] - image);
  memcpy(image + at, &hash, sizeof hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t tail_size = size < 32 ? size : 32;
  const char *tail = (const char *)data + size - tail_size;
  uint8_t *image = aligned_alloc(8, size / 8 * 8 + 8);
  if (!image)
    return 0;
  memcpy(image, data, size);
  try(image, size, tail, tail_size);
  if (size >= sizeof(struct penstock_serve_image)) {
    struct penstock_serve_image head;
    memcpy(&head, image, sizeof head);
    head.magic = PENSTOCK_SERVE_MAGIC;
    head.version = PENSTOCK_SERVE_VERSION;
    head.bytes = size;
    head.attribute[sizeof head.attribute - 1] = 0;
    memcpy(image, &head, sizeof head);
    try(image, size, tail, tail_size);
    plant(image, size, tail, tail_size);
    try(image, size, tail, tail_size);
  }
  free(image);
  return 0;
}
