// SPDX-License-Identifier: Apache-2.0
/* Any text as a file of statistics: nothing outside it is read, and a name asked for twice gets the same twice. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/counters.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const names[] = {"write_bytes", "read", "", "write_bytes"};
  struct penstock_counter found[4];
  char *text = malloc(size ? size : 1);
  if (!text)
    return 0;
  if (size)
    memcpy(text, data, size);
  penstock_number_parse(text, size);
  penstock_counters_parse(text, size, names, 4, found);
  if (memcmp(&found[0], &found[3], sizeof found[0]) != 0)
    abort();
  free(text);
  return 0;
}
