// SPDX-License-Identifier: Apache-2.0
/* All entries as columns, for Arrow and for text.  The interpreter's lock is let go while walking. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "catalog.h"

struct column {
  char *bytes;
  size_t used, room;
};

enum { C_PATH_AT, C_PATH, C_TARGET_AT, C_TARGET, C_LAYOUT_AT, C_LAYOUT, C_SUMS_AT, C_SUMS, C_MODE, C_INO, C_NLINK, C_UID, C_GID,
       C_SIZE, C_BLOCKS, C_RDEV, C_ATIME, C_ATIME_NS, C_MTIME, C_MTIME_NS, C_CTIME, C_CTIME_NS, C_GENERATION, C_LEARNT, C_FLAGS,
       C_ERROR, C_FOLDER, COLUMNS };
static const char *const column_names[COLUMNS] = {
  "path_at", "path", "target_at", "target", "layout_at", "layout", "sums_at", "sums", "mode", "ino", "nlink", "uid", "gid", "size",
  "blocks", "rdev", "atime", "atime_ns", "mtime", "mtime_ns", "ctime", "ctime_ns", "generation", "learnt_ns", "flags", "error", "folder"};

struct columns {
  struct column c[COLUMNS];
  PyThreadState *thread; /* the interpreter's lock is let go while walking */
  PyObject *call, *damaged;
  uint64_t rows, chunk;
  bool failed, full; /* an exception is set; there was no memory */
  char part[65536];
};

static bool column_grow(struct column *c, size_t size) {
  size_t room = (c->room + size) * 2 + 4096;
  char *more = realloc(c->bytes, room);
  if (!more)
    return false;
  c->bytes = more;
  c->room = room;
  return true;
}

static inline bool column_put(struct column *c, const void *bytes, size_t size) {
  if (c->room - c->used < size && !column_grow(c, size))
    return false;
  memcpy(c->bytes + c->used, bytes, size);
  c->used += size;
  return true;
}

static inline bool column_end(struct columns *s, int at, int data) {
  int32_t end = (int32_t)s->c[data].used;
  return column_put(&s->c[at], &end, 4);
}

static bool columns_begin(struct columns *s) {
  bool ok = true;
  for (int i = 0; i < COLUMNS; i++)
    s->c[i].used = 0;
  s->rows = 0;
  for (int i = C_PATH_AT; i <= C_SUMS_AT; i += 2)
    ok = ok && column_end(s, i, i + 1);
  return ok;
}

static bool columns_give(struct columns *s) {
  PyObject *dict = PyDict_New();
  for (int i = 0; dict && i < COLUMNS; i++) {
    PyObject *bytes = PyBytes_FromStringAndSize(s->c[i].bytes, (Py_ssize_t)s->c[i].used);
    if (!bytes || PyDict_SetItemString(dict, column_names[i], bytes) < 0)
      Py_CLEAR(dict);
    Py_XDECREF(bytes);
  }
  PyObject *said = dict ? PyObject_CallFunction(s->call, "KO", (unsigned long long)s->rows, dict) : NULL;
  bool ok = said != NULL;
  Py_XDECREF(dict);
  Py_XDECREF(said);
  return ok && columns_begin(s);
}

static bool put_part(struct columns *s, const struct penstock_visit *it, enum penstock_part kind, int at) {
  ssize_t size = it->entry->parts_at ? penstock_index_part(it->in, it->entry, kind, s->part, sizeof s->part) : 0;
  return (size <= 0 || column_put(&s->c[at + 1], s->part, (size_t)size)) && column_end(s, at, at + 1);
}

static inline bool put_u(struct columns *s, int column, uint64_t value, size_t size) { return column_put(&s->c[column], &value, size); }

static bool put_row(struct columns *s, const struct penstock_visit *it) {
  const struct penstock_entry *e = it->entry;
  int64_t learnt = it->folder ? it->folder->learnt_ns : e->learnt_ns; /* a file's is 0 where it is its folder's */
  uint16_t told = e->flags & (PENSTOCK_DOUBT | PENSTOCK_CAPTURED | PENSTOCK_CHECKED | PENSTOCK_CHANGED_INSIDE);
  return column_put(&s->c[C_PATH], it->path, it->path_size) && column_end(s, C_PATH_AT, C_PATH) && put_part(s, it, PENSTOCK_PART_TARGET, C_TARGET_AT) &&
         put_part(s, it, PENSTOCK_PART_LAYOUT, C_LAYOUT_AT) && put_part(s, it, PENSTOCK_PART_SUMS, C_SUMS_AT) && put_u(s, C_MODE, e->mode, 4) &&
         put_u(s, C_INO, e->ino, 8) && put_u(s, C_NLINK, e->nlink, 4) && put_u(s, C_UID, e->uid, 4) && put_u(s, C_GID, e->gid, 4) &&
         put_u(s, C_SIZE, e->size, 8) && put_u(s, C_BLOCKS, e->blocks, 8) && put_u(s, C_RDEV, e->rdev, 8) &&
         put_u(s, C_ATIME, (uint64_t)e->atime.s, 8) && put_u(s, C_ATIME_NS, e->atime.ns, 4) && put_u(s, C_MTIME, (uint64_t)e->mtime.s, 8) &&
         put_u(s, C_MTIME_NS, e->mtime.ns, 4) && put_u(s, C_CTIME, (uint64_t)e->ctime.s, 8) && put_u(s, C_CTIME_NS, e->ctime.ns, 4) &&
         put_u(s, C_GENERATION, e->generation, 4) && put_u(s, C_LEARNT, (uint64_t)learnt, 8) && put_u(s, C_FLAGS, told, 2) &&
         put_u(s, C_ERROR, e->error, 4) && put_u(s, C_FOLDER, it->folder ? it->folder->flags : 0, 4);
}

static enum penstock_walk column_one(void *state, const struct penstock_visit *it) {
  struct columns *s = state;
  s->rows++;
  s->full = !put_row(s, it);
  if (s->rows == s->chunk && !s->full) {
    PyEval_RestoreThread(s->thread);
    s->failed = !columns_give(s);
    s->thread = PyEval_SaveThread();
  }
  return s->failed || s->full ? PENSTOCK_WALK_STOP : PENSTOCK_WALK_ON;
}

static void column_bad(void *state, int err, const char *path, size_t size) {
  struct columns *s = state;
  PyEval_RestoreThread(s->thread);
  PyObject *row = Py_BuildValue("y#i", path, (Py_ssize_t)size, -err);
  s->failed |= !row || PyList_Append(s->damaged, row) < 0;
  Py_XDECREF(row);
  s->thread = PyEval_SaveThread();
}

/* columns(start, chunk, call): calls call(rows, columns) for each so many rows; gives the folders that could not be read. */
PyObject *penstock_module_view_columns(PyObject *self, PyObject *args) {
  PyObject *start, *keep = NULL;
  char *room = NULL;
  Py_ssize_t size;
  unsigned long long chunk;
  const View *view = (View *)self;
  struct columns *s = PyMem_Calloc(1, sizeof *s);
  if (!s)
    return PyErr_NoMemory();
  if (!PyArg_ParseTuple(args, "OKO", &start, &chunk, &s->call)) {
    PyMem_Free(s);
    return NULL;
  }
  s->chunk = chunk;
  s->damaged = PyList_New(0);
  const char *p = s->damaged && columns_begin(s) ? penstock_module_inside(view, start, &size, &keep, &room) : NULL;
  int err = 0;
  if (p) {
    s->thread = PyEval_SaveThread();
    err = penstock_view_walk(&view->v, p, (size_t)size, UINT_MAX, column_one, column_bad, s);
    PyEval_RestoreThread(s->thread);
    if (s->full && err == 0)
      err = -ENOMEM;
    if (err == 0 && !s->failed && s->rows > 0)
      s->failed = !columns_give(s);
  }
  if (p && err < 0 && !s->failed)
    penstock_module_os_error(-err, start);
  penstock_module_done_with(keep, room);
  PyObject *ret = s->damaged;
  if (!p || err < 0 || s->failed)
    Py_CLEAR(ret);
  for (int i = 0; i < COLUMNS; i++)
    free(s->c[i].bytes);
  PyMem_Free(s);
  return ret;
}
