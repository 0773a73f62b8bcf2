// SPDX-License-Identifier: Apache-2.0
/* du for Python: sums of folders, each with all below it; inodes with several names count once.  Where several places are
   summed up, what was counted at one does not count at another: they share a set of what was seen. */
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

struct inode {
  uint64_t ino;
  uint32_t generation;
  bool taken;
};

/* A set of inodes. */
struct seen {
  struct inode *slot;
  size_t count, slots;
};

static const char SEEN[] = "penstock.seen";

struct summing {
  PyObject *list, *damaged;
  struct sum *sum;
  size_t sums, room;
  char *path;
  size_t path_room;
  struct seen *seen;
  unsigned depth_max;
  bool one_mount, other_mount; /* leave out other file systems; the start is on another than the catalog's root */
  bool all, count_links, every; /* every: names that cannot come twice in one walk are looked for too */
  bool failed;
};

static struct inode *place_of(const struct seen *s, uint64_t ino, uint32_t generation) {
  size_t k = (ino ^ (uint64_t)generation << 32) * PENSTOCK_SEEN_MIX >> 16 & (s->slots - 1);
  while (s->slot[k].taken && !(s->slot[k].ino == ino && s->slot[k].generation == generation))
    k = (k + 1) & (s->slots - 1);
  return &s->slot[k];
}

static bool more_slots(struct seen *s) {
  struct seen more = {.slots = s->slots ? s->slots * 2 : 1024, .count = s->count};
  if (!(more.slot = calloc(more.slots, sizeof *more.slot)))
    return false;
  for (size_t i = 0; i < s->slots; i++)
    if (s->slot[i].taken)
      *place_of(&more, s->slot[i].ino, s->slot[i].generation) = s->slot[i];
  free(s->slot);
  *s = more;
  return true;
}

static bool is_new_inode(struct summing *s, const struct penstock_entry *e) {
  if (2 * s->seen->count >= s->seen->slots && !more_slots(s->seen)) {
    PyErr_NoMemory();
    return s->failed = true;
  }
  struct inode *at = place_of(s->seen, e->ino, e->generation);
  if (at->taken)
    return false;
  *at = (struct inode){e->ino, e->generation, true};
  s->seen->count++;
  return true;
}

static void seen_free(PyObject *capsule) {
  struct seen *s = PyCapsule_GetPointer(capsule, SEEN);
  free(s->slot);
  PyMem_Free(s);
}

PyObject *penstock_module_seen_new(PyObject *self, PyObject *nothing) {
  (void)self;
  (void)nothing;
  struct seen *s = PyMem_Calloc(1, sizeof *s);
  PyObject *o = s ? PyCapsule_New(s, SEEN, seen_free) : PyErr_NoMemory();
  if (!o)
    PyMem_Free(s);
  return o;
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
  bool folder = it->folder != NULL, other = folder && it->folder->flags & PENSTOCK_OTHER_MOUNT;
  if (it->depth == 0)
    s->other_mount = other;
  if (s->one_mount && folder && other != s->other_mount)
    return PENSTOCK_WALK_PAST;
  struct sum own = {.depth = it->depth, .path_size = it->path_size, .blocks = e->blocks, .bytes = e->size, .entries = 1};
  if ((s->every || (!folder && e->nlink > 1)) && !s->count_links && !is_new_inode(s, e))
    return PENSTOCK_WALK_PAST;
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

/* du(start, depth_max, all, count_links, seen, one_mount): (rows (depth, path, blocks, bytes, entries), damaged). */
PyObject *penstock_module_view_du(PyObject *self, PyObject *args) {
  PyObject *start, *keep, *seen = Py_None;
  char *room;
  int all, count_links, one_mount = 0;
  Py_ssize_t size;
  const View *view = (View *)self;
  struct seen own = {0};
  struct summing s = {.seen = &own};
  if (!PyArg_ParseTuple(args, "OIpp|Op", &start, &s.depth_max, &all, &count_links, &seen, &one_mount))
    return NULL;
  s.every = seen != Py_None;
  if (s.every && !(s.seen = PyCapsule_GetPointer(seen, SEEN)))
    return NULL;
  s.all = all;
  s.one_mount = one_mount;
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
  free(own.slot);
  PyObject *ret = NULL;
  if (p && err < 0)
    penstock_module_os_error(-err, start);
  else if (p && !s.failed && s.list && s.damaged)
    ret = Py_BuildValue("OO", s.list, s.damaged);
  Py_XDECREF(s.list);
  Py_XDECREF(s.damaged);
  return ret;
}
