// SPDX-License-Identifier: Apache-2.0
/* Several segments as one: the rules of view.h, and that merging them to one says the same. */
#include <errno.h>

#include "index_text.h"

enum { SEGMENTS = 3, ROOM = 8192 };

struct files {
  int fd[SEGMENTS];
  struct penstock_index *ix[SEGMENTS];
  struct penstock_view v;
};

/* The oldest: a whole tree. */
static int oldest(void) {
  struct penstock_batch *b = penstock_batch_new();
  add_root(b, 2);
  add_entry(b, "a", S_IFDIR | 0755, 3);
  add_entry(b, "f", S_IFREG | 0644, 4);
  add_entry(b, "gone", S_IFDIR | 0755, 5);
  add_entry(b, "other", S_IFDIR | 0755, 6);
  close_folder(b, "", PENSTOCK_COMPLETE, 10);
  add_entry(b, "b", S_IFDIR | 0755, 7);
  add_entry(b, "old", S_IFREG | 0644, 8);
  close_folder(b, "a", PENSTOCK_COMPLETE, 10);
  add_entry(b, "deep", S_IFREG | 0644, 9);
  close_folder(b, "a/b", PENSTOCK_COMPLETE, 10);
  add_entry(b, "in", S_IFREG | 0644, 10);
  close_folder(b, "gone", PENSTOCK_COMPLETE, 10);
  add_entry(b, "theirs", S_IFREG | 0644, 11);
  close_folder(b, "other", PENSTOCK_COMPLETE, 10);
  return segment_file(&b, 1);
}

/* Then `a` was listed anew, without `old`; and one entry below was learnt, its folder was not listed. */
static int middle(void) {
  struct penstock_batch *b = penstock_batch_new();
  add_entry(b, "b", S_IFDIR | 0755, 7);
  add_entry(b, "new", S_IFREG | 0644, 20);
  close_folder(b, "a", PENSTOCK_COMPLETE, 20);
  struct penstock_draft d = draft_of("deep", S_IFREG | 0600, 9);
  d.target = "a part";
  d.target_size = 6;
  CHECK_EQ(0, penstock_batch_add(b, &d));
  close_folder(b, "a/b", 0, 20);
  return segment_file(&b, 1);
}

/* Then `gone` went, `f` was written, and `other` is another folder of that name. */
static int newest(void) {
  struct penstock_batch *b = penstock_batch_new();
  struct penstock_draft gone = draft_of("gone", S_IFDIR, 5);
  gone.attrs.flags = PENSTOCK_GONE;
  CHECK_EQ(0, penstock_batch_add(b, &gone));
  add_entry(b, "f", S_IFREG | 0644, 40);
  add_entry(b, "other", S_IFDIR | 0755, 60);
  close_folder(b, "", 0, 30);
  return segment_file(&b, 1);
}

static struct files *all(void) {
  struct files *f = calloc(1, sizeof *f);
  CHECK(f);
  f->fd[0] = newest();
  f->fd[1] = middle();
  f->fd[2] = oldest();
  for (unsigned i = 0; i < SEGMENTS; i++) f->v.segment[f->v.count++] = f->ix[i] = opened(f->fd[i], i % 2 ? PAGED : KEPT);
  return f;
}

static void all_done(struct files *f) {
  for (int i = 0; i < SEGMENTS; i++) {
    closed(f->ix[i]);
    close(f->fd[i]);
  }
  free(f);
}

static int64_t inode(const struct penstock_view *v, const char *path) {
  struct penstock_entry e;
  const struct penstock_index *in;
  int err = penstock_view_find(v, path, strlen(path), &e, &in);
  return err ? err : (int64_t)e.ino;
}

static void holds(const struct penstock_view *v) {
  static const struct {
    const char *path;
    int64_t inode;
  } row[] = {
    {"", 2}, {"a", 3}, {"a/b", 7}, {"a/b/deep", 9}, {"a/new", 20}, {"f", 40}, {"other", 60},
    {"a/old", -ENOENT}, {"gone", -ENOENT}, {"gone/in", -ENOENT}, {"other/theirs", -ENOENT}, {"f/x", -ENOENT}, {"nobody", -ENOENT},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (inode(v, row[i].path) != row[i].inode) {
      fprintf(stderr, "%s: %lld, not %lld\n", row[i].path, (long long)inode(v, row[i].path), (long long)row[i].inode);
      exit(1);
    }
}

struct told {
  char text[ROOM];
  size_t size;
  const char *past; /* a folder that is not gone into */
};

static enum penstock_walk tell(void *state, const struct penstock_visit *it) {
  struct told *t = state;
  int n = snprintf(t->text + t->size, ROOM - t->size, "%s %llu %o\n", it->path, (unsigned long long)it->entry->ino, it->entry->mode);
  CHECK(n > 0 && t->size + (size_t)n < ROOM);
  t->size += (size_t)n;
  return strcmp(it->path, t->past) == 0 ? PENSTOCK_WALK_PAST : PENSTOCK_WALK_ON;
}

static void no_damage(void *state, int err, const char *path, size_t size) {
  (void)state;
  fprintf(stderr, "%.*s: %d\n", (int)size, path, err);
  exit(1);
}

static void walked(const struct penstock_view *v, const char *path, unsigned depth, const char *past, struct told *t) {
  t->size = 0;
  t->past = past;
  t->text[0] = 0;
  CHECK_EQ(0, penstock_view_walk(v, path, strlen(path), depth, tell, no_damage, t));
}

static void rules_of_looking_up(void) {
  struct files *f = all();
  holds(&f->v);
  struct penstock_view two = {.count = 1, .segment = {f->ix[1]}}; /* without the oldest: less is known */
  CHECK_EQ(-ENODATA, inode(&two, ""));
  CHECK_EQ(-ENOENT, inode(&two, "a/old"));
  CHECK_EQ(20, inode(&two, "a/new"));
  all_done(f);
}

static void folders(void) {
  struct files *f = all();
  struct penstock_folder got;
  CHECK_EQ(0, penstock_view_folder(&f->v, "a", 1, &got));
  CHECK_EQ(PENSTOCK_COMPLETE, got.flags);
  CHECK_EQ(20, got.learnt_ns);
  CHECK_EQ(2, got.segments);
  CHECK_EQ(0, penstock_view_folder(&f->v, "other", 5, &got));
  CHECK_EQ(0, got.flags); /* nobody listed the new one */
  all_done(f);
}

static void walking_and_merging(void) {
  struct files *f = all();
  struct told before, after;
  walked(&f->v, "", 99, "-", &before);
  CHECK_STR(" 2 40755\na 3 40755\na/b 7 40755\na/b/deep 9 100600\na/new 20 100644\nf 40 100644\nother 60 40755\n", before.text);
  walked(&f->v, "a", 1, "-", &after);
  CHECK_STR("a 3 40755\na/b 7 40755\na/new 20 100644\n", after.text);
  walked(&f->v, "", 99, "a", &after);
  CHECK_STR(" 2 40755\na 3 40755\nf 40 100644\nother 60 40755\n", after.text);
  struct penstock_batch *b = penstock_batch_new();
  CHECK_EQ(0, penstock_batch_merge(b, &f->v));
  int fd = segment_file(&b, 1);
  struct penstock_index *ix = opened(fd, KEPT);
  struct penstock_view one = {.count = 1, .segment = {ix}};
  holds(&one);
  walked(&one, "", 99, "-", &after);
  CHECK_STR(before.text, after.text);
  struct penstock_entry e;
  char part[16];
  CHECK_EQ(0, look(ix, "a/b/deep", &e));
  CHECK_EQ(6, penstock_index_part(ix, &e, PENSTOCK_PART_TARGET, part, sizeof part));
  closed(ix);
  close(fd);
  all_done(f);
}

static void noted(void *state, int err, const char *path, size_t size) {
  CHECK(err == -EBADMSG || err == -EIO);
  CHECK(size == 0 || (size >= 1 && (path[0] == 'a' || path[0] == 's'))); /* a folder's */
  ++*(int *)state;
}

static enum penstock_walk pass(void *state, const struct penstock_visit *it) {
  (void)state;
  (void)it;
  return PENSTOCK_WALK_ON;
}

/* A damaged segment is told of while walking, and never merged into a whole one. */
static void damage(void) {
  struct files *f = all();
  CHECK_EQ(0, ftruncate(f->fd[1], PENSTOCK_BLOCK_BYTES)); /* the paged one */
  int lost = 0, err = penstock_view_walk(&f->v, "", 0, 99, pass, noted, &lost);
  CHECK(err < 0 || lost > 0);
  struct penstock_batch *b = penstock_batch_new();
  CHECK(penstock_batch_merge(b, &f->v) < 0);
  penstock_batch_free(b);
  all_done(f);
}

/* Each block of a larger segment in turn: what is lost is told with its folder, the rest is visited. */
static void damage_anywhere(void) {
  struct penstock_batch *b = penstock_batch_new();
  char name[16];
  static const char *const folder[] = {"", "sub"};
  add_root(b, 2);
  for (int f = 0; f < 2; f++) {
    for (int i = 0; i < 60; i++) {
      snprintf(name, sizeof name, "x%d", i);
      add_entry(b, name, S_IFREG | 0644, 100 + (uint64_t)i);
    }
    if (f == 0)
      add_entry(b, "sub", S_IFDIR | 0755, 3);
    close_folder(b, folder[f], PENSTOCK_COMPLETE, 10);
  }
  int fd = segment_file(&b, 1);
  struct stat st;
  CHECK_EQ(0, fstat(fd, &st));
  int told = 0;
  for (off_t at = PENSTOCK_BLOCK_BYTES; at < st.st_size; at += PENSTOCK_BLOCK_BYTES) {
    struct penstock_index *ix = opened(fd, PAGED);
    struct penstock_view v = {.count = 1, .segment = {ix}};
    uint8_t byte, turned;
    CHECK_EQ(1, pread(fd, &byte, 1, at + 10));
    turned = byte ^ 1;
    CHECK_EQ(1, pwrite(fd, &turned, 1, at + 10));
    int lost = 0, err = penstock_view_walk(&v, "", 0, 99, pass, noted, &lost);
    CHECK(err == 0 || err == -EBADMSG);
    told += lost;
    CHECK_EQ(1, pwrite(fd, &byte, 1, at + 10));
    closed(ix);
  }
  CHECK(told > 1);
  close(fd);
}

int main(void) {
  rules_of_looking_up();
  folders();
  walking_and_merging();
  damage();
  damage_anywhere();
  return 0;
}
