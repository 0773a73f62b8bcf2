// SPDX-License-Identifier: Apache-2.0
/* opens FOLDER: CPU ns of an open and close of one file there, the low decile of short batches. */
#include "../floor.h"

enum { BATCHES = 200, CALLS = 500 };

int main(int argc, char **argv) {
  static double ns[BATCHES];
  char path[4096];
  if (argc < 2)
    return 2;
  snprintf(path, sizeof path, "%s/opened", argv[1]);
  close(open(path, O_CREAT | O_RDWR, 0600));
  for (int i = 0; i < BATCHES; i++) {
    uint64_t from = cpu_ns();
    for (int j = 0; j < CALLS; j++)
      close(open(path, O_RDWR));
    ns[i] = (double)(cpu_ns() - from) / CALLS;
  }
  printf("%.0f\n", quantile(ns, BATCHES, .1));
  return 0;
}
