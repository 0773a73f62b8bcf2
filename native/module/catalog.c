// SPDX-License-Identifier: Apache-2.0
/* Catalogs for Python: segments, views of several, and questions asked of them.

   A segment is a capsule that owns its descriptor.  A View keeps its segments alive.  Paths come in as str or bytes,
   absolute below the catalog's root or relative to it; they go out as bytes.

   Invariants: errors of the kernels are OSError with their errno; a path outside the root is the exception that the view
   was made with; the interpreter's lock is not held while whole segments are read. */
#include "areas.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog.h"
#include "kernels/query.h"

static const char SEGMENT[] = "penstock.segment";

PyObject *penstock_module_os_error(int err, PyObject *what) {
  errno = err;
  return what ? PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, what) : PyErr_SetFromErrno(PyExc_OSError);
}

/* ---- segments ---- */

static void segment_free(PyObject *capsule) {
  struct penstock_index *ix = PyCapsule_GetPointer(capsule, SEGMENT);
  int fd = ix->fd;
  penstock_index_close(ix);
  if (fd >= 0)
    close(fd);
  PyMem_Free(ix);
}

static struct penstock_index *segment_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, SEGMENT); }

static PyObject *segment_open(PyObject *self, PyObject *args) {
  int fd;
  unsigned long long resident;
  (void)self;
  if (!PyArg_ParseTuple(args, "iK", &fd, &resident))
    return NULL;
  struct penstock_index *ix = PyMem_Calloc(1, sizeof *ix);
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 0), err = own < 0 ? -errno : 0;
  if (!ix)
    return PyErr_NoMemory();
  Py_BEGIN_ALLOW_THREADS
  if (err == 0)
    err = penstock_index_open(ix, own, resident);
  Py_END_ALLOW_THREADS
  if (err < 0 || ix->fd < 0) { /* failed, or mapped: then no descriptor is needed */
    if (own >= 0)
      close(own);
  }
  if (err < 0) {
    PyMem_Free(ix);
    return penstock_module_os_error(-err, NULL);
  }
  return PyCapsule_New(ix, SEGMENT, segment_free);
}

static PyObject *header_dict(const struct penstock_index_header *h) {
  return Py_BuildValue("{sKsKsKsKsKsLsL}", "id", (unsigned long long)h->id, "entries", (unsigned long long)h->entries, "records",
                       (unsigned long long)h->records, "folders", (unsigned long long)h->rows, "file_bytes",
                       (unsigned long long)h->file_bytes, "first_ns", (long long)h->first_ns, "last_ns", (long long)h->last_ns);
}

static PyObject *segment_info(PyObject *self, PyObject *capsule) {
  struct penstock_index *ix = segment_of(capsule);
  (void)self;
  return ix ? header_dict(&ix->h) : NULL;
}

struct places {
  uint64_t *at;
  size_t count, room;
};

static void add_place(void *state, uint64_t at) {
  struct places *p = state;
  if (p->count == p->room) {
    uint64_t *more = realloc(p->at, (p->room * 2 + 64) * sizeof *more);
    if (!more)
      return;
    p->at = more;
    p->room = p->room * 2 + 64;
  }
  p->at[p->count++] = at;
}

static PyObject *segment_verify(PyObject *self, PyObject *capsule) {
  struct penstock_index *ix = segment_of(capsule);
  struct places p = {0};
  (void)self;
  if (!ix)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  penstock_index_verify(ix, add_place, &p);
  Py_END_ALLOW_THREADS
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < p.count; i++) {
    PyObject *at = PyLong_FromUnsignedLongLong(p.at[i]);
    if (!at || PyList_Append(list, at) < 0)
      Py_CLEAR(list);
    Py_XDECREF(at);
  }
  free(p.at);
  return list;
}

/* ---- entries ---- */

/* The fields of an Entry, in order.  An object holds them all and makes Python's numbers only of those asked for. */
enum { F_MODE, F_INO, F_NLINK, F_UID, F_GID, F_SIZE, F_BLOCKS, F_RDEV, F_ATIME, F_MTIME, F_CTIME, F_GENERATION, F_LEARNT, F_FLAGS,
       F_ERROR, ENTRY_FIELDS };

typedef struct {
  PyObject_HEAD
  struct penstock_entry e;
} Entry;

static PyTypeObject *entry_type;

static PyObject *time_object(struct penstock_time t) {
  if (t.s > INT64_MIN / 1000000000 + 1 && t.s < INT64_MAX / 1000000000 - 1)
    return PyLong_FromLongLong(t.s * 1000000000 + t.ns);
  PyObject *s = PyLong_FromLongLong(t.s), *unit = PyLong_FromLong(1000000000), *ns = PyLong_FromUnsignedLong(t.ns);
  PyObject *whole = s && unit ? PyNumber_Multiply(s, unit) : NULL, *ret = whole && ns ? PyNumber_Add(whole, ns) : NULL;
  Py_XDECREF(s);
  Py_XDECREF(unit);
  Py_XDECREF(ns);
  Py_XDECREF(whole);
  return ret;
}

static PyObject *entry_field(PyObject *self, void *which) {
  const struct penstock_entry *e = &((Entry *)self)->e;
  switch ((intptr_t)which) {
  case F_MODE: return PyLong_FromUnsignedLong(e->mode);
  case F_INO: return PyLong_FromUnsignedLongLong(e->ino);
  case F_NLINK: return PyLong_FromUnsignedLong(e->nlink);
  case F_UID: return PyLong_FromUnsignedLong(e->uid);
  case F_GID: return PyLong_FromUnsignedLong(e->gid);
  case F_SIZE: return PyLong_FromUnsignedLongLong(e->size);
  case F_BLOCKS: return PyLong_FromUnsignedLongLong(e->blocks);
  case F_RDEV: return PyLong_FromUnsignedLongLong(e->rdev);
  case F_ATIME: return time_object(e->atime);
  case F_MTIME: return time_object(e->mtime);
  case F_CTIME: return time_object(e->ctime);
  case F_GENERATION: return PyLong_FromUnsignedLong(e->generation);
  case F_LEARNT: return PyLong_FromLongLong(e->learnt_ns);
  case F_FLAGS: return PyLong_FromUnsignedLong(e->flags);
  default: return PyLong_FromUnsignedLong(e->error);
  }
}

/* All fields as a tuple: what batch_add takes. */
static PyObject *entry_fields(PyObject *self, void *nothing) {
  (void)nothing;
  PyObject *tuple = PyTuple_New(ENTRY_FIELDS);
  for (intptr_t i = 0; tuple && i < ENTRY_FIELDS; i++) {
    PyObject *field = entry_field(self, (void *)i);
    if (!field || PyTuple_SetItem(tuple, i, field) < 0)
      Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *entry_compare(PyObject *a, PyObject *b, int how) {
  if (!Py_IS_TYPE(b, entry_type) || (how != Py_EQ && how != Py_NE))
    Py_RETURN_NOTIMPLEMENTED;
  PyObject *x = entry_fields(a, NULL), *y = entry_fields(b, NULL);
  PyObject *ret = x && y ? PyObject_RichCompare(x, y, how) : NULL;
  Py_XDECREF(x);
  Py_XDECREF(y);
  return ret;
}

static PyObject *entry_repr(PyObject *self) {
  const struct penstock_entry *e = &((Entry *)self)->e;
  return PyUnicode_FromFormat("Entry(st_mode=%u, st_ino=%llu, st_size=%llu)", e->mode, (unsigned long long)e->ino, (unsigned long long)e->size);
}

static void entry_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyGetSetDef entry_getset[] = {
  {"st_mode", entry_field, NULL, "type and permissions", (void *)F_MODE},
  {"st_ino", entry_field, NULL, "inode", (void *)F_INO},
  {"st_nlink", entry_field, NULL, "links", (void *)F_NLINK},
  {"st_uid", entry_field, NULL, "owner", (void *)F_UID},
  {"st_gid", entry_field, NULL, "group", (void *)F_GID},
  {"st_size", entry_field, NULL, "bytes", (void *)F_SIZE},
  {"st_blocks", entry_field, NULL, "blocks of 512 bytes", (void *)F_BLOCKS},
  {"st_rdev", entry_field, NULL, "of a device", (void *)F_RDEV},
  {"st_atime_ns", entry_field, NULL, "last read", (void *)F_ATIME},
  {"st_mtime_ns", entry_field, NULL, "last written", (void *)F_MTIME},
  {"st_ctime_ns", entry_field, NULL, "last changed", (void *)F_CTIME},
  {"generation", entry_field, NULL, "from the birth time; 0: not known", (void *)F_GENERATION},
  {"learnt_ns", entry_field, NULL, "when this was learnt; 0: when its folder was", (void *)F_LEARNT},
  {"flags", entry_field, NULL, "how it was learnt", (void *)F_FLAGS},
  {"error", entry_field, NULL, "errno: why there is doubt", (void *)F_ERROR},
  {"fields", entry_fields, NULL, "all of these as a tuple", NULL},
  {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot entry_slots[] = {
  {Py_tp_doc, "An entry of a catalog, with the names of os.stat_result."},
  {Py_tp_dealloc, entry_dealloc},
  {Py_tp_getset, entry_getset},
  {Py_tp_richcompare, entry_compare},
  {Py_tp_repr, entry_repr},
  {0, NULL},
};
static PyType_Spec entry_spec = {"penstock._native.Entry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, entry_slots};

PyObject *penstock_module_entry_object(const struct penstock_entry *e) {
  Entry *o = PyObject_New(Entry, entry_type);
  if (o)
    o->e = *e;
  return (PyObject *)o;
}

/* An Entry, or a tuple of its fields. */
int penstock_module_entry(PyObject *tuple, struct penstock_entry *e) {
  unsigned long long v[8];
  if (Py_IS_TYPE(tuple, entry_type)) {
    *e = ((Entry *)tuple)->e;
    return 0;
  }
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != ENTRY_FIELDS) {
    PyErr_SetString(PyExc_TypeError, "an entry is a tuple of 15 numbers");
    return -1;
  }
  *e = (struct penstock_entry){0};
  for (int i = 0; i < 8; i++) {
    v[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred())
      return -1;
  }
  struct penstock_time *const times[] = {&e->atime, &e->mtime, &e->ctime};
  for (int i = 0; i < 3; i++) {
    PyObject *unit = PyLong_FromLong(1000000000);
    PyObject *pair = unit ? PyObject_CallMethod(PyTuple_GetItem(tuple, 8 + i), "__divmod__", "O", unit) : NULL;
    Py_XDECREF(unit);
    if (!pair || !PyTuple_Check(pair)) {
      Py_XDECREF(pair);
      if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a time is a whole number of nanoseconds");
      return -1;
    }
    times[i]->s = PyLong_AsLongLong(PyTuple_GetItem(pair, 0));
    times[i]->ns = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(pair, 1));
    Py_DECREF(pair);
    if (PyErr_Occurred())
      return -1;
  }
  e->mode = (uint32_t)v[0];
  e->ino = v[1];
  e->nlink = (uint32_t)v[2];
  e->uid = (uint32_t)v[3];
  e->gid = (uint32_t)v[4];
  e->size = v[5];
  e->blocks = v[6];
  e->rdev = v[7];
  e->generation = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(tuple, 11));
  e->learnt_ns = PyLong_AsLongLong(PyTuple_GetItem(tuple, 12));
  e->flags = (uint16_t)PyLong_AsUnsignedLong(PyTuple_GetItem(tuple, 13));
  e->error = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(tuple, 14));
  return PyErr_Occurred() ? -1 : 0;
}

/* ---- views ---- */

enum { PATH_BYTES = 65536 };

typedef struct {
  PyObject_HEAD
  struct penstock_view v;
  PyObject *segments; /* a tuple: keeps them alive */
  PyObject *outside;
  PyObject *root;
} View;

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
    if (!(view->v.segment[i] = segment_of(PyTuple_GetItem(segments, i)))) {
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
static const char *inside(const View *view, PyObject *path, Py_ssize_t *size, PyObject **keep, char **room) {
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
    PyErr_Format(view->outside, "%S: outside of the catalog's tree, which is %S", path, view->root);
    return NULL;
  }
  *size = left;
  return rest;
}

static void done_with(PyObject *keep, char *room) {
  Py_XDECREF(keep);
  PyMem_Free(room);
}

static int found(const View *view, PyObject *path, struct penstock_entry *e, const struct penstock_index **in) {
  PyObject *keep;
  char *room;
  Py_ssize_t size;
  const char *p = inside(view, path, &size, &keep, &room);
  int err = p ? penstock_view_find(&view->v, p, (size_t)size, e, in) : -1;
  done_with(keep, room);
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
static PyObject *part_object(const struct penstock_index *in, const struct penstock_entry *e, int kind) {
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
  return found((View *)self, path, &e, &in) < 0 ? NULL : part_object(in, &e, kind);
}

static PyObject *view_folder(PyObject *self, PyObject *path) {
  PyObject *keep;
  char *room;
  Py_ssize_t size;
  struct penstock_folder f;
  const View *view = (View *)self;
  const char *p = inside(view, path, &size, &keep, &room);
  int err = p ? penstock_view_folder(&view->v, p, (size_t)size, &f) : -1;
  done_with(keep, room);
  if (!p)
    return NULL;
  return err < 0 ? penstock_module_os_error(-err, path) : Py_BuildValue("IL", f.flags, (long long)f.learnt_ns);
}

/* ---- walks that call Python ---- */

struct told {
  PyObject *list, *call;
  bool failed;
};

static PyObject *visit_tuple(const struct penstock_visit *it, const char *path, size_t size) {
  PyObject *e = penstock_module_entry_object(it->entry);
  if (!e)
    return NULL;
  return Py_BuildValue("y#NIL", path, (Py_ssize_t)size, e, it->folder ? it->folder->flags : 0, (long long)(it->folder ? it->folder->learnt_ns : 0));
}

static enum penstock_walk list_one(void *state, const struct penstock_visit *it) {
  struct told *t = state;
  if (it->depth == 0)
    return PENSTOCK_WALK_ON;
  PyObject *row = visit_tuple(it, it->path + it->name_at, it->path_size - it->name_at);
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
  const char *p = l.told.list ? inside(view, path, &size, &keep, &room) : NULL;
  if (!p) {
    done_with(keep, room);
    Py_XDECREF(l.told.list);
    return NULL;
  }
  int err = penstock_view_walk(&view->v, p, (size_t)size, 1, list_one, list_bad, &l);
  done_with(keep, room);
  err = err ? err : l.err;
  if (!l.told.failed && err == 0)
    return l.told.list;
  Py_DECREF(l.told.list);
  return l.told.failed ? NULL : penstock_module_os_error(-err, path);
}

/* ---- find ---- */

enum { OUT_BYTES = 1 << 16 };

struct finding {
  const View *view;
  PyObject *call;
  PyThreadState *thread; /* of the interpreter, while its lock is not held */
  PyObject *damaged;
  int fd, err;
  size_t used;
  bool failed;
  struct penstock_query q;
  char out[OUT_BYTES];
};

static void find_flush(struct finding *f) {
  for (size_t done = 0; done < f->used && !f->err;) {
    ssize_t n = write(f->fd, f->out + done, f->used - done);
    if (n < 0 && errno != EINTR)
      f->err = errno;
    done += n > 0 ? (size_t)n : 0;
  }
  f->used = 0;
}

static void find_put(struct finding *f, const char *bytes, size_t size) {
  while (size > 0) {
    size_t now = OUT_BYTES - f->used < size ? OUT_BYTES - f->used : size;
    memcpy(f->out + f->used, bytes, now);
    f->used += now;
    bytes += now;
    size -= now;
    if (f->used == OUT_BYTES)
      find_flush(f);
  }
}

static void find_print(void *state, const char *path, size_t size, char end) {
  find_put(state, path, size);
  find_put(state, &end, 1);
}

static bool find_call(void *state, uint32_t which, const struct penstock_visit *it, const char *path, size_t size) {
  struct finding *f = state;
  bool answer = false;
  find_flush(f); /* what was printed comes before what the caller prints */
  PyEval_RestoreThread(f->thread);
  PyObject *row = visit_tuple(it, path, size), *target = row ? part_object(it->in, it->entry, PENSTOCK_PART_TARGET) : NULL;
  PyObject *said = target ? PyObject_CallFunction(f->call, "IOOy#I", (unsigned)which, row, target, it->path, (Py_ssize_t)it->path_size, it->depth) : NULL;
  int truth = said ? PyObject_IsTrue(said) : -1;
  f->failed |= truth < 0;
  answer = truth > 0;
  Py_XDECREF(said);
  Py_XDECREF(target);
  Py_XDECREF(row);
  f->thread = PyEval_SaveThread();
  return answer;
}

static enum penstock_walk find_visit(void *state, const struct penstock_visit *it) {
  struct finding *f = state;
  enum penstock_walk go = penstock_query_visit(&f->q, it);
  return f->failed || f->err ? PENSTOCK_WALK_STOP : go;
}

static void find_bad(void *state, int err, const char *path, size_t size) {
  struct finding *f = state;
  PyEval_RestoreThread(f->thread);
  PyObject *row = Py_BuildValue("y#i", path, (Py_ssize_t)size, -err);
  f->failed |= !row || PyList_Append(f->damaged, row) < 0;
  Py_XDECREF(row);
  f->thread = PyEval_SaveThread();
}

/* Tests as tuples (kind, a, b, low, high, text). */
static struct penstock_test *read_tests(PyObject *list, size_t *count) {
  *count = (size_t)PyList_Size(list);
  struct penstock_test *test = PyMem_Calloc(*count + 1, sizeof *test);
  if (!test)
    return (struct penstock_test *)PyErr_NoMemory();
  for (size_t i = 0; i < *count; i++) {
    int kind;
    const char *text;
    Py_ssize_t text_size;
    long long low, high;
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "iIILLz#", &kind, &test[i].a, &test[i].b, &low, &high, &text, &text_size)) {
      PyMem_Free(test);
      return NULL;
    }
    test[i].kind = (enum penstock_test_kind)kind;
    test[i].low = low;
    test[i].high = high;
    test[i].text = text;
  }
  return test;
}

/* find(start, prefix, depth_min, depth_max, tests, fd, call): folders that could not be read, as (path, errno). */
static PyObject *view_find(PyObject *self, PyObject *args) {
  PyObject *start, *tests, *keep = NULL;
  struct finding *f = PyMem_Calloc(1, sizeof *f);
  char *room = NULL;
  Py_ssize_t prefix_size, size;
  unsigned depth_max;
  if (!f)
    return PyErr_NoMemory();
  f->view = (View *)self;
  f->q = (struct penstock_query){.view = &f->view->v, .print = find_print, .call = find_call, .state = f};
  if (!PyArg_ParseTuple(args, "Oy#IIO!iO", &start, &f->q.prefix, &prefix_size, &f->q.depth_min, &depth_max, &PyList_Type, &tests, &f->fd, &f->call)) {
    PyMem_Free(f);
    return NULL;
  }
  f->q.prefix_size = (size_t)prefix_size;
  struct penstock_test *test = read_tests(tests, &f->q.count);
  f->q.test = test;
  f->damaged = PyList_New(0);
  const char *p = test && f->damaged ? inside(f->view, start, &size, &keep, &room) : NULL;
  int err = p && penstock_query_check(&f->q) < 0 ? -EINVAL : 0;
  if (p && err == 0) {
    f->q.skip = (size_t)size;
    f->thread = PyEval_SaveThread();
    err = penstock_view_walk(&f->view->v, p, (size_t)size, depth_max, find_visit, find_bad, f);
    find_flush(f);
    PyEval_RestoreThread(f->thread);
  }
  done_with(keep, room);
  free(f->q.path);
  PyMem_Free(test);
  PyObject *ret = f->damaged;
  if (!p || err < 0 || f->err || f->failed) {
    if (p && !f->failed)
      penstock_module_os_error(f->err ? f->err : -err, start);
    Py_CLEAR(ret);
  }
  PyMem_Free(f);
  return ret;
}

/* ---- du ---- */

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
static PyObject *view_du(PyObject *self, PyObject *args) {
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
  const char *p = inside(view, start, &size, &keep, &room);
  s.list = PyList_New(0);
  s.damaged = PyList_New(0);
  int err = p && s.list && s.damaged ? penstock_view_walk(&view->v, p, (size_t)size, UINT_MAX, sum_one, sum_bad, &s) : 0;
  if (err == 0 && p && !s.failed)
    settle(&s, 0);
  done_with(keep, room);
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

/* ---- columns ---- */

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
static PyObject *view_columns(PyObject *self, PyObject *args) {
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
  const char *p = s->damaged && columns_begin(s) ? inside(view, start, &size, &keep, &room) : NULL;
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
  done_with(keep, room);
  PyObject *ret = s->damaged;
  if (!p || err < 0 || s->failed)
    Py_CLEAR(ret);
  for (int i = 0; i < COLUMNS; i++)
    free(s->c[i].bytes);
  PyMem_Free(s);
  return ret;
}

/* ---- the type ---- */

static PyMethodDef view_methods[] = {
  {"stat", view_stat, METH_O, "stat(path): the Entry; OSError ENOENT, ENODATA (not known), EBADMSG (damage)."},
  {"part", view_part, METH_VARARGS, "part(path, kind): bytes, or None."},
  {"folder", view_folder, METH_O, "folder(path): (flags, learnt_ns)."},
  {"list", view_list, METH_O, "list(path): (name, Entry, folder's flags, its learnt_ns) of each name, in order."},
  {"find", view_find, METH_VARARGS,
   "find(start, prefix, depth_min, depth_max, tests, fd, call): evaluates tests; gives (path, errno) of what could not be read."},
  {"du", view_du, METH_VARARGS, "du(start, depth_max, all, count_links): ([(depth, path, blocks, bytes, entries)], damaged)."},
  {"columns", view_columns, METH_VARARGS, "columns(start, chunk, call): all entries as columns, so many rows a call."},
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

int penstock_module_add_catalog(PyObject *module) {
  entry_type = (PyTypeObject *)PyType_FromSpec(&entry_spec);
  PyObject *view = PyType_FromSpec(&view_spec);
  int err = !entry_type || !view || PyModule_AddObjectRef(module, "Entry", (PyObject *)entry_type) < 0 ||
            PyModule_AddObjectRef(module, "View", view) < 0;
  Py_XDECREF(view);
  return err ? -1 : 0;
}

PyMethodDef penstock_module_catalog[] = {
  {"segment_open", segment_open, METH_VARARGS, "segment_open(fd, resident_bytes): a segment; the descriptor stays yours."},
  {"segment_info", segment_info, METH_O, "segment_info(segment): its header's figures."},
  {"segment_verify", segment_verify, METH_O, "segment_verify(segment): places of damaged blocks."},
  {NULL, NULL, 0, NULL},
};
