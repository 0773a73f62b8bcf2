// SPDX-License-Identifier: Apache-2.0
/* du for Python: sums of folders, each with all below it; inodes with several names count once. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "catalog.h"

struct sum {
  unsigned depth;
  size_t path_size;
  uint64_t blocks, bytes, entries;
};

struct summing {
  PyObject *list, *damaged;
  struct sum *sum;
  size_t sums, room;
  char *path;
  size_t path_room;
  uint64_t *seen; /* inodes with several links: a set */
  size_t seen_count, seen_slots;
  unsigned depth_max;
  bool all, count_links, failed;
};

static bool is_new_inode(struct summing *s, const struct penstock_entry *e) {
  if (2 * s->seen_count >= s->seen_slots) {
    size_t slots = s->seen_slots ? s->seen_slots * 2 : 1024;
    uint64_t *more = calloc(slots, sizeof *more);
    if (!more)
      return s->failed = true;
    for (size_t i = 0; i < s->seen_slots; i++)
      if (s->seen[i]) {
        size_t k = s->seen[i] * PENSTOCK_SEEN_MIX & (slots - 1);
        while (more[k])
          k = (k + 1) & (slots - 1);
        more[k] = s->seen[i];
      }
    free(s->seen);
    s->seen = more;
    s->seen_slots = slots;
  }
  uint64_t key = (e->ino ^ (uint64_t)e->generation << 40) | 1;
  size_t k = key * PENSTOCK_SEEN_MIX & (s->seen_slots - 1);
  for (; s->seen[k]; k = (k + 1) & (s->seen_slots - 1))
    if (s->seen[k] == key)
      return false;
  s->seen[k] = key;
  s->seen_count++;
  return true;
}

static void emit(struct summing *s, const struct sum *sum) {
  PyObject *row = Py_BuildValue("Iy#KKK", sum->depth, s->path, (Py_ssize_t)sum->path_size, (unsigned long long)sum->blocks,
                                (unsigned long long)sum->bytes, (unsigned long long)sum->entries);
  s->failed |= !row || PyList_Append(s->list, row) < 0;
  Py_XDECREF(row);
}

/* Ends the sums of folders at this depth and below it. */
static void settle(struct summing *s, unsigned depth) {
  while (s->sums > 0 && s->sum[s->sums - 1].depth >= depth) {
    struct sum done = s->sum[--s->sums];
    if (done.depth <= s->depth_max)
      emit(s, &done);
    if (s->sums > 0) {
      struct sum *up = &s->sum[s->sums - 1];
      up->blocks += done.blocks;
      up->bytes += done.bytes;
      up->entries += done.entries;
    }
  }
}

static bool sum_room(struct summing *s, size_t path_size) {
  if (s->sums == s->room) {
    struct sum *more = realloc(s->sum, (s->room * 2 + 16) * sizeof *more);
    if (!more)
      return false;
    s->sum = more;
    s->room = s->room * 2 + 16;
  }
  if (path_size >= s->path_room) {
    char *more = realloc(s->path, path_size * 2 + 256);
    if (!more)
      return false;
    s->path = more;
    s->path_room = path_size * 2 + 256;
  }
  return true;
}

static enum penstock_walk sum_one(void *state, const struct penstock_visit *it) {
  struct summing *s = state;
  const struct penstock_entry *e = it->entry;
  settle(s, it->depth);
  if (!sum_room(s, it->path_size)) {
    s->failed = true;
    PyErr_NoMemory();
    return PENSTOCK_WALK_STOP;
  }
  bool folder = it->folder != NULL;
  struct sum own = {.depth = it->depth, .path_size = it->path_size, .blocks = e->blocks, .bytes = e->size, .entries = 1};
  if (!folder && e->nlink > 1 && !s->count_links && !is_new_inode(s, e))
    return PENSTOCK_WALK_ON;
  if (folder || s->sums == 0 || (s->all && it->depth <= s->depth_max)) {
    memcpy(s->path, it->path, it->path_size);
    s->sum[s->sums++] = own;
  } else {
    struct sum *up = &s->sum[s->sums - 1];
    up->blocks += own.blocks;
    up->bytes += own.bytes;
    up->entries++;
  }
  return s->failed ? PENSTOCK_WALK_STOP : PENSTOCK_WALK_ON;
}

static void sum_bad(void *state, int err, const char *path, size_t size) {
  struct summing *s = state;
  PyObject *row = Py_BuildValue("y#i", path, (Py_ssize_t)size, -err);
  s->failed |= !row || PyList_Append(s->damaged, row) < 0;
  Py_XDECREF(row);
}

/* du(start, depth_max, all, count_links): (rows (depth, path, blocks, bytes, entries), damaged). */
PyObject *penstock_module_view_du(PyObject *self, PyObject *args) {
  PyObject *start, *keep;
  char *room;
  int all, count_links;
  Py_ssize_t size;
  const View *view = (View *)self;
  struct summing s = {0};
  if (!PyArg_ParseTuple(args, "OIpp", &start, &s.depth_max, &all, &count_links))
    return NULL;
  s.all = all;
  s.count_links = count_links;
  const char *p = penstock_module_inside(view, start, &size, &keep, &room);
  s.list = PyList_New(0);
  s.damaged = PyList_New(0);
  int err = p && s.list && s.damaged ? penstock_view_walk(&view->v, p, (size_t)size, UINT_MAX, sum_one, sum_bad, &s) : 0;
  if (err == 0 && p && !s.failed)
    settle(&s, 0);
  penstock_module_done_with(keep, room);
  free(s.sum);
  free(s.path);
  free(s.seen);
  PyObject *ret = NULL;
  if (p && err < 0)
    penstock_module_os_error(-err, start);
  else if (p && !s.failed && s.list && s.damaged)
    ret = Py_BuildValue("OO", s.list, s.damaged);
  Py_XDECREF(s.list);
  Py_XDECREF(s.damaged);
  return ret;
}
