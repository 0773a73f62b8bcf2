// SPDX-License-Identifier: Apache-2.0
/* mktree DIR FOLDERS FILES : the tree the scans walk, sizes spread over 0..64 MiB without data, names as people give them. */
#include "floor.h"
int main(int argc, char **argv) {
  if (argc < 4) return 2;
  static const char *stem[] = {"img_", "sample-", "run.", "ckpt_step", "part-"}, *ext[] = {".png", ".npy", ".h5", ".pt", ".parquet"};
  char p[4096]; uint64_t x = 88172645463325252u; mkdir(argv[1], 0755);
  for (int d = 0; d < atoi(argv[2]); d++) {
    snprintf(p, sizeof p, "%s/set_%02d", argv[1], d / 50); mkdir(p, 0755);
    snprintf(p, sizeof p, "%s/set_%02d/shard%04d", argv[1], d / 50, d); mkdir(p, 0755);
    for (int f = 0; f < atoi(argv[3]); f++) {
      x ^= x << 13; x ^= x >> 7; x ^= x << 17;
      snprintf(p, sizeof p, "%s/set_%02d/shard%04d/%s%06d%s", argv[1], d / 50, d, stem[d % 5], f, ext[d % 5]);
      int fd = open(p, O_WRONLY | O_CREAT | O_TRUNC, 0644);
      if (fd < 0 || ftruncate(fd, (off_t)((x & 0xffff) << (x >> 60 & 7) << (x >> 56 & 3)))) die(p);
      close(fd);
    }
  }
  return 0;
}
