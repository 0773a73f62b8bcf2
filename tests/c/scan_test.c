// SPDX-License-Identifier: Apache-2.0
/* Scans with many threads: all that is there, once; excludes; what is known is not asked for; closing in the middle. */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>

#include "index_text.h"
#include "kernels/scan.h"

enum { FOLDERS = 40, FILES = 20, BATCHES = 64, TRIES = 3000 };

static char root[64];

static void touch(const char *path) {
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  CHECK(fd >= 0);
  close(fd);
}

static void plant(void) {
  char path[160];
  strcpy(root, "/tmp/penstock-scan-XXXXXX");
  CHECK(mkdtemp(root));
  for (int f = 0; f < FOLDERS; f++) {
    snprintf(path, sizeof path, "%s/d%d", root, f % 5);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/d%d/s%d", root, f % 5, f);
    CHECK_EQ(0, mkdir(path, 0755));
    for (int i = 0; i < FILES; i++) {
      snprintf(path, sizeof path, "%s/d%d/s%d/f%d", root, f % 5, f, i);
      touch(path);
    }
  }
  snprintf(path, sizeof path, "%s/link", root);
  CHECK_EQ(0, symlink("d1/s1", path));
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *at) {
  (void)st;
  (void)type;
  (void)at;
  return remove(path);
}

static struct penstock_scan_options options(void) { return (struct penstock_scan_options){.threads_max = 4, .held_max = 8}; }

static struct penstock_scan *started(const struct penstock_scan_options *o) {
  struct penstock_scan *s = penstock_scan_open(root, o);
  CHECK(s);
  return s;
}

static void wait_for_all(struct penstock_scan *s) {
  for (int i = 0; i < TRIES; i++) {
    int done = penstock_scan_wait(s, 100);
    CHECK(done >= 0);
    if (done)
      return;
  }
  CHECK(!"it ends");
}

/* What a scan read, as a segment; the scan is closed. */
static int finished(struct penstock_scan *s) {
  struct penstock_batch *b[BATCHES];
  wait_for_all(s);
  size_t count = penstock_scan_take(s, b, BATCHES);
  penstock_scan_close(s);
  return segment_file(b, count);
}

static uint64_t calls_of(struct penstock_scan *s) {
  struct penstock_scan_stats got;
  penstock_scan_get(s, &got);
  return got.calls;
}

static const struct penstock_index *compare_with;

static int compare(const char *path, const struct stat *st, int type, struct FTW *at) {
  struct penstock_entry e;
  (void)type;
  (void)at;
  const char *below = path + strlen(root);
  CHECK_EQ(0, look(compare_with, *below ? below + 1 : "", &e));
  CHECK(e.ino == st->st_ino && e.mode == st->st_mode && (S_ISDIR(e.mode) || e.size == (uint64_t)st->st_size));
  CHECK(e.mtime.s == st->st_mtim.tv_sec && e.mtime.ns == st->st_mtim.tv_nsec);
  return 0;
}

static void all_is_there(void) {
  struct penstock_scan_options o = options();
  struct penstock_scan *s = started(&o);
  CHECK_EQ(0, penstock_scan_push(s, "", 0));
  int fd = finished(s);
  struct penstock_index *ix = opened(fd, KEPT);
  CHECK_EQ(1 + 5 + FOLDERS * (FILES + 1) + 1, ix->h.entries);
  compare_with = ix;
  CHECK_EQ(0, nftw(root, compare, 16, FTW_PHYS));
  char target[16];
  struct penstock_entry e;
  CHECK_EQ(0, look(ix, "link", &e));
  CHECK_EQ(5, penstock_index_part(ix, &e, PENSTOCK_PART_TARGET, target, sizeof target));
  closed(ix);
  close(fd);
}

static void left_out(void) {
  static const char *const patterns[] = {"f1?", "/d0", "d1/s*", NULL};
  CHECK(penstock_excluded(patterns, "d3/s3/f12") && penstock_excluded(patterns, "d0") && penstock_excluded(patterns, "d1/s1"));
  CHECK(!penstock_excluded(patterns, "d3/s3/f1") && !penstock_excluded(patterns, "d3/d0") && !penstock_excluded(patterns, "d1"));
  CHECK(!penstock_excluded(NULL, "f12"));
  struct penstock_scan_options o = options();
  o.exclude = patterns;
  struct penstock_scan *s = started(&o);
  CHECK_EQ(0, penstock_scan_push(s, "", 0));
  int fd = finished(s);
  struct penstock_index *ix = opened(fd, KEPT);
  struct penstock_entry e;
  CHECK_EQ(0, look(ix, "d2/s2/f1", &e));
  CHECK_EQ(-ENOENT, look(ix, "d2/s2/f12", &e));
  CHECK_EQ(-ENOENT, look(ix, "d0", &e));
  CHECK_EQ(-ENOENT, look(ix, "d1/s1", &e));
  CHECK_EQ(0, look(ix, "d1", &e));
  closed(ix);
  close(fd);
}

/* With a view: folders that did not change are not listed, names that are known are not asked for. */
static void what_is_known(void) {
  struct penstock_scan_options o = options();
  struct penstock_scan *s = started(&o);
  CHECK_EQ(0, penstock_scan_push(s, "", 0));
  wait_for_all(s);
  uint64_t whole = calls_of(s);
  int fd = finished(s);
  struct penstock_index *ix = opened(fd, KEPT);
  struct penstock_view v = {.count = 1, .segment = {ix}};
  char path[160];
  snprintf(path, sizeof path, "%s/d3/s3/new", root);
  touch(path);
  s = started(&o);
  penstock_scan_known(s, &v, 0, false);
  CHECK_EQ(0, penstock_scan_push_known(s));
  wait_for_all(s);
  CHECK(calls_of(s) < whole / 4);
  int second = finished(s);
  struct penstock_index *on_top = opened(second, KEPT);
  struct penstock_entry e;
  CHECK_EQ(0, look(on_top, "d3/s3/new", &e));
  CHECK_EQ(0, look(on_top, "d3/s3/f1", &e)); /* its folder is whole */
  CHECK_EQ(-ENOENT, look(on_top, "d4/s4/f1", &e));
  closed(on_top);
  close(second);
  closed(ix);
  close(fd);
  CHECK_EQ(0, unlink(path));
}

/* Taken in the middle: what was read, and what waits, are together all. */
static void stopped_in_the_middle(void) {
  struct penstock_scan_options o = options();
  o.rate_per_s = 2000;
  struct penstock_scan *s = started(&o);
  struct penstock_batch *b[BATCHES];
  CHECK_EQ(0, penstock_scan_push(s, "", 0));
  struct penstock_scan_stats got = {0};
  for (int i = 0; i < TRIES && got.folders < 5; i++) {
    penstock_scan_wait(s, 5);
    penstock_scan_get(s, &got);
  }
  struct penstock_scan *rest = started(&(struct penstock_scan_options){.threads_max = 2, .held_max = 8});
  size_t size, waiting = 0;
  for (char *path; (path = penstock_scan_pending(s, &size)); free(path), waiting++) CHECK_EQ(0, penstock_scan_push(rest, path, size));
  CHECK(waiting > 0);
  size_t count = penstock_scan_take(s, b, BATCHES / 2);
  penstock_scan_close(s);
  wait_for_all(rest);
  count += penstock_scan_take(rest, b + count, BATCHES / 2);
  penstock_scan_close(rest);
  int fd = segment_file(b, count);
  struct penstock_index *ix = opened(fd, KEPT);
  compare_with = ix;
  CHECK_EQ(0, nftw(root, compare, 16, FTW_PHYS));
  closed(ix);
  close(fd);
  s = started(&o); /* closed while its threads work */
  CHECK_EQ(0, penstock_scan_push(s, "", 0));
  penstock_scan_wait(s, 5);
  penstock_scan_close(s);
}

struct said {
  int count, err;
  enum penstock_problem what;
};

static void note(void *state, enum penstock_problem what, int err, const char *path, size_t size) {
  struct said *said = state;
  CHECK(size == 4 && memcmp(path, "link", 4) == 0);
  *said = (struct said){said->count + 1, err, what};
}

static void problems_are_told(void) {
  struct penstock_scan_options o = options();
  struct penstock_scan *s = started(&o);
  CHECK_EQ(0, penstock_scan_push(s, "link", 4)); /* a symlink is not followed */
  wait_for_all(s);
  struct penstock_scan_stats got;
  penstock_scan_get(s, &got);
  CHECK_EQ(0, got.entries);
  struct said said = {0};
  penstock_scan_problems(s, note, &said);
  CHECK_EQ(1, said.count);
  CHECK_EQ(PENSTOCK_PROBLEM_MOVED, said.what); /* it is no folder any more */
  penstock_scan_problems(s, note, &said);
  CHECK_EQ(1, said.count); /* told once */
  penstock_scan_close(s);
  CHECK(!penstock_scan_open("/nowhere/at/all", &o));
  CHECK_EQ(ENOENT, errno);
}

int main(void) {
  plant();
  all_is_there();
  left_out();
  what_is_known();
  stopped_in_the_middle();
  problems_are_told();
  CHECK_EQ(0, nftw(root, drop, 16, FTW_PHYS | FTW_DEPTH));
  return 0;
}
