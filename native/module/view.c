// SPDX-License-Identifier: Apache-2.0
/* Views for Python: several segments as one catalog, paths to look up in them, listings.

   A View keeps its segments alive.  Paths come in as str or bytes, absolute below the catalog's root or relative to it; they
   go out as bytes.  For a path outside the root the view asks the function that it was made with: it gives one
   inside, plain bytes relative to the root, or raises. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "catalog.h"

const struct penstock_view *penstock_module_view(PyObject *o) { return &((View *)o)->v; }

static void view_dealloc(PyObject *self) {
  View *view = (View *)self;
  PyTypeObject *type = Py_TYPE(self);
  Py_XDECREF(view->segments);
  Py_XDECREF(view->outside);
  Py_XDECREF(view->root);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *view_make(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *segments, *root, *outside;
  if (kwargs && PyDict_Size(kwargs)) {
    PyErr_SetString(PyExc_TypeError, "View takes no keywords");
    return NULL;
  }
  if (!PyArg_ParseTuple(args, "O!SO", &PyTuple_Type, &segments, &root, &outside))
    return NULL;
  Py_ssize_t count = PyTuple_Size(segments);
  if (count > PENSTOCK_VIEW_MAX) {
    PyErr_SetString(PyExc_ValueError, "too many segments");
    return NULL;
  }
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  View *view = (View *)alloc(type, 0);
  if (!view)
    return NULL;
  for (Py_ssize_t i = 0; i < count; i++)
    if (!(view->v.segment[i] = penstock_module_segment(PyTuple_GetItem(segments, i)))) {
      Py_DECREF(view);
      return NULL;
    }
  view->v.count = (unsigned)count;
  view->segments = Py_NewRef(segments);
  view->root = Py_NewRef(root);
  view->outside = Py_NewRef(outside);
  return (PyObject *)view;
}

/* A path's bytes, which live as long as *keep. */
static const char *path_bytes(PyObject *path, Py_ssize_t *size, PyObject **keep) {
  char *bytes;
  *keep = NULL;
  if (PyUnicode_Check(path)) {
    const char *text = PyUnicode_AsUTF8AndSize(path, size);
    if (text)
      return text;
    PyErr_Clear(); /* bytes that are no UTF-8 stand in it as surrogates */
    *keep = PyUnicode_EncodeFSDefault(path);
  } else if (PyBytes_Check(path))
    *keep = Py_NewRef(path);
  else {
    PyObject *plain = PyOS_FSPath(path);
    if (!plain)
      return NULL;
    const char *got = path_bytes(plain, size, keep);
    if (got && !*keep)
      *keep = plain; /* the text lies in it */
    else
      Py_DECREF(plain);
    return got;
  }
  return *keep && PyBytes_AsStringAndSize(*keep, &bytes, size) == 0 ? bytes : NULL;
}

/* Is there anything to be taken out of a path: empty names, "." or ".."? */
static bool is_plain(const char *p, Py_ssize_t size) {
  if (size == 0)
    return true;
  if (p[0] == '/' || p[size - 1] == '/' || p[0] == '.')
    return false;
  for (const char *at = p, *end = p + size; (at = memchr(at, '/', (size_t)(end - at))); at++)
    if (at[1] == '/' || at[1] == '.')
      return false;
  return true;
}

/* Takes out empty names and "."; ".." takes the name before it.  The new size; -1: it leads out. */
static Py_ssize_t tidy(const char *p, Py_ssize_t size, char *room) {
  Py_ssize_t out = 0;
  for (Py_ssize_t at = 0; at < size;) {
    const char *slash = memchr(p + at, '/', (size_t)(size - at));
    Py_ssize_t end = slash ? slash - p : size, length = end - at;
    if (length == 2 && p[at] == '.' && p[at + 1] == '.') {
      if (out == 0)
        return -1;
      while (out > 0 && room[--out] != '/') { }
    } else if (length > 0 && !(length == 1 && p[at] == '.')) {
      if (out > 0)
        room[out++] = '/';
      memcpy(room + out, p + at, (size_t)length);
      out += length;
    }
    at = end + 1;
  }
  return out;
}

/* The path relative to the root; it lies in *keep, in `path` or in `room`. */
const char *penstock_module_inside(const View *view, PyObject *path, Py_ssize_t *size, PyObject **keep, char **room) {
  char *root;
  Py_ssize_t root_size;
  *room = NULL;
  const char *p = path_bytes(path, size, keep);
  if (!p || PyBytes_AsStringAndSize(view->root, &root, &root_size) < 0)
    return NULL;
  const char *rest = p;
  Py_ssize_t left = *size;
  bool out = false;
  if (left > 0 && p[0] == '/') {
    if (root_size == 1)
      root_size = 0; /* the root is "/" itself */
    out = left < root_size || memcmp(p, root, (size_t)root_size) != 0 || (left > root_size && p[root_size] != '/');
    rest = p + root_size + (left > root_size);
    left -= root_size + (left > root_size);
  }
  if (!out && !is_plain(rest, left)) {
    if (!(*room = PyMem_Malloc((size_t)left + 1)))
      return (const char *)PyErr_NoMemory();
    left = tidy(rest, left, *room);
    rest = *room;
    out = left < 0;
  }
  if (out) {
    char *inside;
    PyObject *bytes = PyObject_CallFunctionObjArgs(view->outside, path, view->root, NULL);
    if (!bytes || PyBytes_AsStringAndSize(bytes, &inside, size) < 0) {
      Py_XDECREF(bytes);
      return NULL;
    }
    Py_XDECREF(*keep);
    *keep = bytes;
    return inside;
  }
  *size = left;
  return rest;
}

void penstock_module_done_with(PyObject *keep, char *room) {
  Py_XDECREF(keep);
  PyMem_Free(room);
}

static int found(const View *view, PyObject *path, struct penstock_entry *e, const struct penstock_index **in) {
  PyObject *keep;
  char *room;
  Py_ssize_t size;
  const char *p = penstock_module_inside(view, path, &size, &keep, &room);
  int err = p ? penstock_view_find(&view->v, p, (size_t)size, e, in) : -1;
  penstock_module_done_with(keep, room);
  if (p && err < 0)
    penstock_module_os_error(-err, path);
  return err;
}

static PyObject *view_stat(PyObject *self, PyObject *path) {
  struct penstock_entry e;
  const struct penstock_index *in;
  return found((View *)self, path, &e, &in) < 0 ? NULL : penstock_module_entry_object(&e);
}

/* A part of any size as bytes, or None. */
PyObject *penstock_module_part(const struct penstock_index *in, const struct penstock_entry *e, int kind) {
  ssize_t size = penstock_index_part(in, e, (enum penstock_part)kind, NULL, 0);
  if (size == -ENODATA)
    Py_RETURN_NONE;
  if (size < 0)
    return penstock_module_os_error((int)-size, NULL);
  PyObject *ret = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
  if (ret && penstock_index_part(in, e, (enum penstock_part)kind, PyBytes_AsString(ret), (size_t)size) != size) {
    Py_CLEAR(ret);
    return penstock_module_os_error(EBADMSG, NULL);
  }
  return ret;
}

static PyObject *view_part(PyObject *self, PyObject *args) {
  PyObject *path;
  int kind;
  struct penstock_entry e;
  const struct penstock_index *in;
  if (!PyArg_ParseTuple(args, "Oi", &path, &kind))
    return NULL;
  return found((View *)self, path, &e, &in) < 0 ? NULL : penstock_module_part(in, &e, kind);
}

static PyObject *view_folder(PyObject *self, PyObject *path) {
  PyObject *keep;
  char *room;
  Py_ssize_t size;
  struct penstock_folder f;
  const View *view = (View *)self;
  const char *p = penstock_module_inside(view, path, &size, &keep, &room);
  int err = p ? penstock_view_folder(&view->v, p, (size_t)size, &f) : -1;
  penstock_module_done_with(keep, room);
  if (!p)
    return NULL;
  return err < 0 ? penstock_module_os_error(-err, path) : Py_BuildValue("IL", f.flags, (long long)f.learnt_ns);
}

/* ---- walks that call Python ---- */

struct told {
  PyObject *list, *call;
  bool failed;
};

PyObject *penstock_module_visit(const struct penstock_visit *it, const char *path, size_t size) {
  PyObject *e = penstock_module_entry_object(it->entry);
  if (!e)
    return NULL;
  return Py_BuildValue("y#NIL", path, (Py_ssize_t)size, e, it->folder ? it->folder->flags : 0, (long long)(it->folder ? it->folder->learnt_ns : 0));
}

static enum penstock_walk list_one(void *state, const struct penstock_visit *it) {
  struct told *t = state;
  if (it->depth == 0)
    return PENSTOCK_WALK_ON;
  PyObject *row = penstock_module_visit(it, it->path + it->name_at, it->path_size - it->name_at);
  t->failed = !row || PyList_Append(t->list, row) < 0;
  Py_XDECREF(row);
  return t->failed ? PENSTOCK_WALK_STOP : PENSTOCK_WALK_PAST;
}

static void remember_error(void *state, int err, const char *path, size_t size) {
  int *first = state;
  (void)path;
  (void)size;
  *first = *first ? *first : err;
}

struct listing {
  struct told told;
  int err;
};

static void list_bad(void *state, int err, const char *path, size_t size) { remember_error(&((struct listing *)state)->err, err, path, size); }

static PyObject *view_list(PyObject *self, PyObject *path) {
  PyObject *keep = NULL;
  char *room = NULL;
  Py_ssize_t size;
  const View *view = (View *)self;
  struct listing l = {.told.list = PyList_New(0)};
  const char *p = l.told.list ? penstock_module_inside(view, path, &size, &keep, &room) : NULL;
  if (!p) {
    penstock_module_done_with(keep, room);
    Py_XDECREF(l.told.list);
    return NULL;
  }
  int err = penstock_view_walk(&view->v, p, (size_t)size, 1, list_one, list_bad, &l);
  penstock_module_done_with(keep, room);
  err = err ? err : l.err;
  if (!l.told.failed && err == 0)
    return l.told.list;
  Py_DECREF(l.told.list);
  return l.told.failed ? NULL : penstock_module_os_error(-err, path);
}

/* ---- the type ---- */

static PyMethodDef view_methods[] = {
  {"stat", view_stat, METH_O, "stat(path): the Entry; OSError ENOENT, ENODATA (not known), EBADMSG (damage)."},
  {"part", view_part, METH_VARARGS, "part(path, kind): bytes, or None."},
  {"folder", view_folder, METH_O, "folder(path): (flags, learnt_ns)."},
  {"list", view_list, METH_O, "list(path): (name, Entry, folder's flags, its learnt_ns) of each name, in order."},
  {"find", penstock_module_view_find, METH_VARARGS,
   "find(start, prefix, depth_min, depth_max, tests, fd, call, one_mount, contents_first): evaluates tests; gives (path, errno) of what could not be read."},
  {"du", penstock_module_view_du, METH_VARARGS, 
   "du(start, depth_max, all, count_links, seen=None): ([(depth, path, blocks, bytes, entries)], damaged); seen: of several starts."},
  {"columns", penstock_module_view_columns, METH_VARARGS, "columns(start, chunk, call): all entries as columns, so many rows a call."},
  {NULL, NULL, 0, NULL},
};

static PyType_Slot view_slots[] = {
  {Py_tp_doc, "View(segments, root, outside): segments, newest first, as one catalog."},
  {Py_tp_new, view_make},
  {Py_tp_dealloc, view_dealloc},
  {Py_tp_methods, view_methods},
  {0, NULL},
};
static PyType_Spec view_spec = {"penstock._native.View", sizeof(View), 0, Py_TPFLAGS_DEFAULT, view_slots};

int penstock_module_add_view(PyObject *module) {
  PyObject *view = PyType_FromSpec(&view_spec);
  int err = view ? PyModule_AddObjectRef(module, "View", view) : -1;
  Py_XDECREF(view);
  return err;
}
