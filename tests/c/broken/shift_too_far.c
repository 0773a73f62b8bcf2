// SPDX-License-Identifier: Apache-2.0
/* Shifts by more than the width: undefined, and silent in a plain run. */
// caught by: asan
int main(int argc, char **argv) {
  (void)argv;
  volatile int width = 31 + argc;
  volatile int shifted = 1 << width;
  (void)shifted;
  return 0;
}
