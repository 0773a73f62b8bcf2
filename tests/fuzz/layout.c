// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a layout: nothing outside them is read, all accessors hold together, and what can be written again
   reads the same and is then written the same, in both byte orders. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/layout.h"

static void must(int claim) {
  if (!claim)
    abort();
}

/* The bytes in a buffer of exactly their size, so that the sanitizer sees a step outside. */
static uint8_t *exact(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  must(copy != NULL);
  memcpy(copy, data, size);
  return copy;
}

static void look_at(const struct penstock_layout *l, unsigned i) {
  struct penstock_component c;
  struct penstock_object o;
  struct penstock_spot spot;
  must(penstock_layout_component(l, i, &c) == 0);
  for (unsigned k = 0; k < c.object_count; k++) {
    must(penstock_layout_object(&c, k, &o) == 0);
    must(penstock_layout_ost(&c, k) == o.ost);
  }
  must(penstock_layout_object(&c, c.object_count, &o) < 0);
  must(penstock_layout_ost(&c, c.object_count) == -1);
  if (penstock_layout_locate(&c, c.start_bytes + 12345, &spot) == 0)
    must(spot.stripe < c.object_count && spot.run_bytes > 0);
}

static void write_and_read(struct penstock_layout l, bool big) {
  l.big_endian = big;
  ssize_t size = penstock_layout_size(&l);
  if (size < 0)
    return;
  uint8_t *once = malloc((size_t)size), *twice = malloc((size_t)size);
  must(once && twice);
  must(penstock_layout_write(&l, once, (size_t)size - 1) < 0);
  must(penstock_layout_write(&l, once, (size_t)size) == size);
  struct penstock_layout again;
  must(penstock_layout_parse(once, (size_t)size, &again) == 0);
  must(again.count == l.count && again.composite == l.composite && again.big_endian == big);
  must(penstock_layout_write(&again, twice, (size_t)size) == size);
  must(memcmp(once, twice, (size_t)size) == 0);
  must(penstock_layout_check(&l) == penstock_layout_check(&again));
  free(once);
  free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *blob = exact(data, size);
  struct penstock_layout l;
  if (penstock_layout_parse(blob, size, &l) == 0) {
    must(l.count > 0);
    for (unsigned i = 0; i < l.count; i++) look_at(&l, i);
    must(penstock_layout_component(&l, l.count, &(struct penstock_component){0}) < 0);
    penstock_layout_is_copy(&l);
    must(penstock_layout_find(&l, 1 << 20) < (int)l.count);
    write_and_read(l, false);
    write_and_read(l, true);
  }
  free(blob);
  return 0;
}
