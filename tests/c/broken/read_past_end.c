// SPDX-License-Identifier: Apache-2.0
/* Reads one byte behind its memory, which no plain run notices. */
// caught by: asan
#include <stdlib.h>

int main(int argc, char **argv) {
  char *p = calloc(16, 1);
  (void)argv;
  volatile char last = p ? p[15 + argc] : 0;
  free(p);
  return last == 17;
}
