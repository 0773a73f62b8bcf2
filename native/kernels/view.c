// SPDX-License-Identifier: Apache-2.0
/* Merging segments: see view.h. */
#include "kernels/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_place(const struct penstock_entry *e) { return e->flags & PENSTOCK_PLACE; }
static bool is_gone(const struct penstock_entry *e) { return e->flags & PENSTOCK_GONE; }
static bool same_inode(const struct penstock_entry *a, const struct penstock_entry *b) { return a->ino == b->ino && a->generation == b->generation; }
static bool was_listed(uint32_t flags) { return flags & (PENSTOCK_COMPLETE | PENSTOCK_LISTED); }

static size_t parent_of(const char *path, size_t size) {
  const char *slash = memrchr(path, '/', size);
  return slash ? (size_t)(slash - path) : 0;
}

/* Rule 2: does a segment without the path say that it is not there?  Where it has a folder above it, *nearest is that. */
static int denies(const struct penstock_index *ix, const char *path, size_t size, struct penstock_entry *nearest, size_t *nearest_size) {
  while (size > 0) {
    size = parent_of(path, size);
    int err = penstock_index_lookup(ix, path, size, nearest);
    if (err == -ENOENT)
      continue;
    *nearest_size = size;
    if (err < 0)
      return err;
    if (is_gone(nearest))
      return 1;
    if (is_place(nearest) && nearest->row == PENSTOCK_NO_ROW)
      return 0;
    if (!is_place(nearest) && !S_ISDIR(nearest->mode))
      return 1;
    struct penstock_row row;
    err = nearest->row == PENSTOCK_NO_ROW ? -ENOENT : penstock_index_row(ix, nearest->row, &row);
    return err == 0 ? (row.flags & PENSTOCK_COMPLETE) != 0 : err == -ENOENT ? 0 : err;
  }
  *nearest_size = SIZE_MAX;
  return 0;
}

/* Rule 3: does an older segment know the same folder at this prefix as the newer one did? */
static bool same_folder(const struct penstock_index *older, const char *path, size_t size, const struct penstock_entry *newer) {
  struct penstock_entry e;
  return penstock_index_lookup(older, path, size, &e) < 0 || is_place(&e) || (S_ISDIR(e.mode) && same_inode(&e, newer));
}

int penstock_view_find(const struct penstock_view *v, const char *path, size_t size, struct penstock_entry *ret,
                       const struct penstock_index **in) {
  bool known = false;
  struct penstock_entry held = {0};
  size_t held_size = SIZE_MAX; /* the deepest folder above that a newer segment identified */
  for (unsigned i = 0; i < v->count; i++) {
    const struct penstock_index *ix = v->segment[i];
    int err = penstock_index_lookup(ix, path, size, ret);
    if (err == 0 && !is_place(ret)) {
      if (held_size != SIZE_MAX && !same_folder(ix, path, held_size, &held))
        return -ENOENT;
      *in = ix;
      return is_gone(ret) ? -ENOENT : 0;
    }
    if (err < 0 && err != -ENOENT)
      return err;
    known |= err == 0;
    if (err == -ENOENT && i + 1 < v->count) {
      struct penstock_entry nearest;
      size_t nearest_size;
      int denied = denies(ix, path, size, &nearest, &nearest_size);
      if (denied != 0)
        return denied < 0 ? denied : -ENOENT;
      if (nearest_size != SIZE_MAX && !is_place(&nearest) && held_size == SIZE_MAX) {
        held = nearest;
        held_size = nearest_size;
      }
    }
  }
  return known ? -ENODATA : -ENOENT;
}

/* Which segments count for a folder: up to the newest that listed it. */
static int settle_folder(const struct penstock_view *v, struct penstock_folder *f) {
  f->flags = 0;
  f->learnt_ns = 0;
  f->segments = v->count;
  for (unsigned i = 0; i < v->count; i++) {
    struct penstock_row row;
    if (f->row[i] == PENSTOCK_NO_ROW)
      continue;
    int err = penstock_index_row(v->segment[i], f->row[i], &row);
    if (err < 0)
      return err;
    if (row.flags) {
      f->flags = row.flags;
      f->learnt_ns = row.learnt_ns;
    }
    if (was_listed(row.flags)) {
      f->segments = i + 1;
      break;
    }
  }
  return 0;
}

int penstock_view_folder(const struct penstock_view *v, const char *path, size_t size, struct penstock_folder *ret) {
  struct penstock_entry e, newest;
  bool have = false;
  for (unsigned i = 0; i < v->count; i++) {
    ret->row[i] = PENSTOCK_NO_ROW;
    int err = penstock_index_lookup(v->segment[i], path, size, &e);
    if (err < 0 && err != -ENOENT)
      return err;
    if (err < 0 || is_gone(&e) || (have && !is_place(&e) && !same_inode(&e, &newest)))
      continue;
    if (!is_place(&e) && !have) {
      newest = e;
      have = true;
    }
    ret->row[i] = e.row;
  }
  return settle_folder(v, ret);
}

/* ---- walking ---- */

/* Where a segment's listing of a folder stands. */
struct cursor {
  uint64_t at;
  uint32_t left;
  bool loaded;
  struct penstock_entry entry;
};

struct level {
  struct penstock_folder folder;
  struct cursor *cursor; /* one for each of folder.segments */
  size_t path_size;
};

struct walk {
  const struct penstock_view *v;
  char *path;
  size_t room;
  struct level *level;
  size_t levels, levels_room;
  char *name[2]; /* of the two being compared */
};

static int path_room(struct walk *w, size_t size) {
  if (size <= w->room)
    return 0;
  char *more = realloc(w->path, size * 2);
  if (!more)
    return -ENOMEM;
  w->path = more;
  w->room = size * 2;
  return 0;
}

/* The next record of a cursor, if there is one: 1. */
static int load(const struct penstock_index *ix, struct cursor *c) {
  if (c->loaded)
    return 1;
  if (c->left == 0)
    return 0;
  int err = penstock_index_entry(ix, c->at, &c->entry);
  if (err < 0)
    return err;
  c->loaded = true;
  return 1;
}

static void consume(struct cursor *c) {
  c->loaded = false;
  c->at += c->entry.record_size;
  c->left--;
}

static int name_of(const struct penstock_index *ix, const struct penstock_entry *e, char *name) {
  ssize_t size = penstock_index_name(ix, e, name, PENSTOCK_NAME_MAX);
  return size < 0 ? (int)size : 0;
}

static int compare(const char *a, size_t a_size, const char *b, size_t b_size) {
  int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
  return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int enter(struct walk *w, const struct penstock_folder *f, size_t path_size) {
  if (w->levels == w->levels_room) {
    size_t room = w->levels_room ? w->levels_room * 2 : 16;
    struct level *more = realloc(w->level, room * sizeof *more);
    if (!more)
      return -ENOMEM;
    w->level = more;
    w->levels_room = room;
  }
  struct level *l = &w->level[w->levels];
  *l = (struct level){.folder = *f, .path_size = path_size, .cursor = calloc(f->segments ? f->segments : 1, sizeof *l->cursor)};
  if (!l->cursor)
    return -ENOMEM;
  w->levels++;
  for (unsigned i = 0; i < f->segments; i++) {
    struct penstock_row row;
    if (f->row[i] == PENSTOCK_NO_ROW)
      continue;
    int err = penstock_index_row(w->v->segment[i], f->row[i], &row);
    if (err < 0)
      return err;
    l->cursor[i].at = row.children_at;
    l->cursor[i].left = row.children;
  }
  return 0;
}

static void leave(struct walk *w) { free(w->level[--w->levels].cursor); }

/* The cursors that stand at the smallest name: a bit each; the name in w->name[0].  0: none are left. */
static int smallest(struct walk *w, struct level *l, uint64_t *bits, size_t *size) {
  *bits = 0;
  for (unsigned i = 0; i < l->folder.segments; i++) {
    const struct penstock_index *ix = w->v->segment[i];
    struct cursor *c = &l->cursor[i];
    int have = load(ix, c), err = have > 0 ? name_of(ix, &c->entry, w->name[*bits ? 1 : 0]) : have;
    if (err < 0)
      return err;
    if (have == 0)
      continue;
    int order = *bits ? compare(w->name[1], c->entry.name_size, w->name[0], *size) : -1;
    if (order < 0) {
      if (*bits) {
        char *other = w->name[0];
        w->name[0] = w->name[1];
        w->name[1] = other;
      }
      *bits = UINT64_C(1) << i;
      *size = c->entry.name_size;
    } else if (order == 0)
      *bits |= UINT64_C(1) << i;
  }
  return *bits != 0;
}

/* Of the cursors at one name: which segment's entry holds (-1: none), and the rows of a folder of that name. */
static int decide(const struct level *l, uint64_t bits, struct penstock_folder *f) {
  int chosen = -1;
  for (unsigned i = 0; i < l->folder.segments; i++) {
    f->row[i] = PENSTOCK_NO_ROW;
    if (!(bits >> i & 1))
      continue;
    const struct penstock_entry *e = &l->cursor[i].entry;
    if (is_gone(e)) {
      if (chosen < 0)
        return -1;
      continue;
    }
    if (chosen >= 0 && !is_place(e) && !same_inode(e, &l->cursor[chosen].entry))
      continue;
    if (chosen < 0 && !is_place(e))
      chosen = (int)i;
    f->row[i] = e->row;
  }
  return chosen;
}

/* The rows of a folder in segments whose listing of its parent does not count any more: they may know what is in it. */
static int older_rows(struct walk *w, unsigned first, size_t path_size, const struct penstock_entry *e, struct penstock_folder *f) {
  for (unsigned i = first; i < w->v->count; i++) {
    struct penstock_entry older;
    int err = penstock_index_lookup(w->v->segment[i], w->path, path_size, &older);
    if (err < 0 && err != -ENOENT)
      return err;
    if (err == 0 && !is_gone(&older) && (is_place(&older) || same_inode(&older, e)))
      f->row[i] = older.row;
  }
  return 0;
}

/* One name of a folder: visit it, and enter it if it is a folder. */
static int step(struct walk *w, unsigned depth_max, enum penstock_walk (*visit)(void *, const struct penstock_visit *), void *state) {
  size_t at = w->levels - 1, size = 0;
  struct level *l = &w->level[at];
  uint64_t bits;
  int have = smallest(w, l, &bits, &size);
  if (have == 0)
    leave(w);
  if (have <= 0)
    return have;
  struct penstock_folder child;
  for (unsigned i = l->folder.segments; i < w->v->count; i++)
    child.row[i] = PENSTOCK_NO_ROW;
  int chosen = decide(l, bits, &child), err = 0;
  struct penstock_entry e;
  if (chosen >= 0)
    e = l->cursor[chosen].entry;
  for (unsigned i = 0; i < l->folder.segments; i++)
    if (bits >> i & 1)
      consume(&l->cursor[i]);
  if (chosen < 0)
    return 0;
  size_t name_at = l->path_size ? l->path_size + 1 : 0;
  if ((err = path_room(w, name_at + size + 1)) < 0)
    return err;
  if (name_at)
    w->path[name_at - 1] = '/';
  memcpy(w->path + name_at, w->name[0], size);
  w->path[name_at + size] = 0;
  bool folder = S_ISDIR(e.mode);
  if (folder && ((err = older_rows(w, l->folder.segments, name_at + size, &e, &child)) < 0 || (err = settle_folder(w->v, &child)) < 0))
    return err;
  struct penstock_visit it = {w->path, name_at + size, name_at, (unsigned)at + 1, w->v->segment[chosen], &e, folder ? &child : NULL};
  enum penstock_walk go = visit(state, &it);
  if (go == PENSTOCK_WALK_STOP)
    return 1;
  return folder && go == PENSTOCK_WALK_ON && at + 1 < depth_max ? enter(w, &child, name_at + size) : 0;
}

static int begin(struct walk *w, const char *path, size_t size, unsigned depth_max, enum penstock_walk (*visit)(void *, const struct penstock_visit *), void *state) {
  struct penstock_entry e;
  const struct penstock_index *in;
  struct penstock_folder f;
  int err = penstock_view_find(w->v, path, size, &e, &in);
  if (err < 0)
    return err;
  bool folder = S_ISDIR(e.mode);
  if ((folder && (err = penstock_view_folder(w->v, path, size, &f)) < 0) || (err = path_room(w, size + 1)) < 0)
    return err;
  memcpy(w->path, path, size);
  w->path[size] = 0;
  size_t parent = parent_of(path, size);
  struct penstock_visit it = {w->path, size, parent ? parent + 1 : 0, 0, in, &e, folder ? &f : NULL};
  enum penstock_walk go = visit(state, &it);
  if (go == PENSTOCK_WALK_STOP)
    return 1;
  return folder && go == PENSTOCK_WALK_ON && depth_max > 0 ? enter(w, &f, size) : 0;
}

int penstock_view_walk(const struct penstock_view *v, const char *path, size_t size, unsigned depth_max,
                       enum penstock_walk (*visit)(void *state, const struct penstock_visit *it),
                       void (*bad)(void *state, int err, const char *path, size_t size), void *state) {
  struct walk w = {.v = v, .name = {malloc(PENSTOCK_NAME_MAX), malloc(PENSTOCK_NAME_MAX)}};
  int err = w.name[0] && w.name[1] ? begin(&w, path, size, depth_max, visit, state) : -ENOMEM;
  if (err == 1)
    err = 0;
  else
    while (err == 0 && w.levels > 0) {
      err = step(&w, depth_max, visit, state);
      if (err == -EBADMSG || err == -EIO) { /* the rest of the folder that it was in is lost, others are not */
        bad(state, err, w.path, w.level[w.levels - 1].path_size);
        err = 0;
        leave(&w);
      }
    }
  while (w.levels > 0)
    leave(&w);
  free(w.path);
  free(w.level);
  free(w.name[0]);
  free(w.name[1]);
  return err == 1 ? 0 : err;
}
