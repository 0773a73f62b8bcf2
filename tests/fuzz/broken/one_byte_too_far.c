// SPDX-License-Identifier: Apache-2.0
/* Wrong on purpose: reads behind its input when that begins with "PS".  Shows that a fuzzer finds such a thing. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size);
  volatile uint8_t seen = 0;
  if (copy && size > 0)
    memcpy(copy, data, size);
  if (copy && size >= 2 && copy[0] == 'P' && copy[1] == 'S')
    seen = copy[size];
  (void)seen;
  free(copy);
  return 0;
}
