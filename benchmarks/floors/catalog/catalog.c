// SPDX-License-Identifier: Apache-2.0
/* The floor of look-ups: records sorted by XXH3 of the whole path, a table of buckets, whole paths in one blob; in memory.

       catalog LIST      LIST has the lines that scan writes

   Prints building, look-up and listing, nanoseconds each. */
#include "floor.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { NUM = 9 };
struct row { const char *path; int64_t v[NUM]; };
struct rec { uint64_t hash; uint32_t path, path_len; uint64_t size, ino; int64_t mtime, ctime; uint32_t atime, mode, uid, gid, nlink, by_path; };
static struct row *rows;
static size_t n, cap;
static int by_path(const void *a, const void *b) { return strcmp(((const struct row *)a)->path, ((const struct row *)b)->path); }
static int by_hash(const void *a, const void *b) { uint64_t x = ((const struct rec *)a)->hash, y = ((const struct rec *)b)->hash; return (x > y) - (x < y); }
static uint32_t *bucket, shift;
static const struct rec *find(const struct rec *r, const char *blob, const char *path, size_t len) {
  uint64_t h = XXH3_64bits(path, len);
  for (size_t i = bucket[h >> shift], end = bucket[(h >> shift) + 1]; i < end; i++)
    if (r[i].hash == h && r[i].path_len == len && !memcmp(blob + r[i].path, path, len)) return &r[i];
  return NULL;
}
int main(int argc, char **argv) {
  if (argc < 2) return 2;
  FILE *f = fopen(argv[1], "r");
  if (!f) die(argv[1]);
  char *line = NULL; size_t lc = 0;
  for (ssize_t k; (k = getline(&line, &lc, f)) > 0; n++) {
    if (n == cap) rows = realloc(rows, (cap = cap ? cap * 2 : 1024) * sizeof *rows);
    char *t = strchr(line, '\t'), *p = t + 1; *t = 0; rows[n].path = strdup(line);
    for (int c = 0; c < NUM; c++) rows[n].v[c] = strtoll(p, &p, 10);
  }
  fclose(f); uint64_t t0 = cpu_ns(); qsort(rows, n, sizeof *rows, by_path);
  struct rec *r = calloc(n, sizeof *r);
  size_t blob_len = 0;
  for (size_t i = 0; i < n; i++) blob_len += strlen(rows[i].path) + 1;
  char *blob = malloc(blob_len), *b = blob;
  for (size_t i = 0; i < n; i++) {
    size_t len = strlen(rows[i].path); const int64_t *v = rows[i].v; memcpy(b, rows[i].path, len + 1);
    r[i] = (struct rec){XXH3_64bits(b, len), (uint32_t)(b - blob), (uint32_t)len, (uint64_t)v[0], (uint64_t)v[5], v[6], v[7], (uint32_t)v[8],
                        (uint32_t)v[1], (uint32_t)v[2], (uint32_t)v[3], (uint32_t)v[4], (uint32_t)i};
    b += len + 1;
  }
  qsort(r, n, sizeof *r, by_hash);
  for (shift = 64; shift > 32 && (1ull << (64 - shift)) < n; shift--) { }
  bucket = calloc((1ull << (64 - shift)) + 1, 4);
  for (size_t i = 0; i < n; i++) bucket[(r[i].hash >> shift) + 1]++;
  for (size_t i = 0; i < 1ull << (64 - shift); i++) bucket[i + 1] += bucket[i];
  uint32_t *order = malloc(n * 4);
  for (size_t i = 0; i < n; i++) order[r[i].by_path] = (uint32_t)i;
  double built = (double)(cpu_ns() - t0) / (double)n;
  double best = 1e9, list = 1e9;
  uint64_t x = 1, sum = 0;
  static char ask[4096][1024];
  for (int round = 0; round < 40; round++) {
    for (int k = 0; k < 4096; k++) {
      x = x * 6364136223846793005u + 1442695040888963407u; snprintf(ask[k], sizeof ask[k], "%s", rows[(size_t)(x >> 33) % n].path);
    }
    uint64_t t = cpu_ns();
    for (int k = 0; k < 4096; k++) {
      const struct rec *g = find(r, blob, ask[k], strlen(ask[k]));
      if (!g) die("lookup");
      sum += g->size;
    }
    double d = (double)(cpu_ns() - t) / 4096;
    if (d < best) best = d;
    t = cpu_ns();
    for (size_t i = 0; i < n; i++) sum += r[order[i]].size + (uint8_t)blob[r[order[i]].path];
    d = (double)(cpu_ns() - t) / (double)n;
    if (d < list) list = d;
  }
  printf("%.0f %.1f %.2f\n", built, list, best);
  return sum == 1;
}
