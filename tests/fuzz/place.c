// SPDX-License-Identifier: Apache-2.0
// uses: board/place.c
/* Any bytes as a plan on the board, and names looked up in it: nothing outside it is read, what is found is an entry, and
   lists of targets have no target twice. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "board/place.h"

static const char *const NAMES[] = {"/m/out12/rank0007.dat", "/", "", "/m/a", "/m/out/rank\xff\n"};

static void check_targets(const struct penstock_place *p, uint32_t pool) {
  uint16_t targets[PENSTOCK_PLACE_STRIPES_MAX];
  if (!penstock_place_take(p, pool, 7, 3, targets))
    return;
  if (targets[0] == targets[1] || targets[1] == targets[2] || targets[0] == targets[2])
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct penstock_place plan;
  void *section = aligned_alloc(8, size / 8 * 8 + 8);
  if (!section)
    return 0;
  memcpy(section, data, size);
  if (!penstock_place_open(&plan, section, size)) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
      const struct penstock_place_entry *e = penstock_place_find(&plan, NAMES[i], strlen(NAMES[i]));
      if (e && (e < plan.entries || e >= plan.entries + plan.entry_count))
        abort();
      penstock_place_folder(&plan, penstock_hash(NAMES[i], strlen(NAMES[i])));
      penstock_places_of(&plan, 1, NAMES[i], strlen(NAMES[i]));
    }
    check_targets(&plan, 0);
    check_targets(&plan, 1);
    penstock_place_pool_called(&plan, "fast", 4);
  }
  free(section);
  return 0;
}
