// SPDX-License-Identifier: Apache-2.0
/* Scans, and writing segments, for Python.

   A scan and a batch are capsules.  Segments are written from batches made here, or from those that a scan gathered.
   Invariants: the interpreter's lock is not held while a scan waits or a segment is written; a view that a scan compares
   with is kept alive by the caller. */
#include "areas.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "catalog.h"
#include "kernels/scan.h"

static const char SCAN[] = "penstock.scan", BATCH[] = "penstock.batch";
enum { BATCHES_MAX = 4096 };

/* ---- one name ---- */

static PyObject *entry_at(PyObject *self, PyObject *given) {
  PyObject *path;
  struct penstock_entry e;
  struct statx x;
  (void)self;
  if (!PyUnicode_FSConverter(given, &path))
    return NULL;
  int r;
  Py_BEGIN_ALLOW_THREADS
  r = statx(AT_FDCWD, PyBytes_AsString(path), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, &x);
  Py_END_ALLOW_THREADS
  Py_DECREF(path);
  if (r)
    return penstock_module_os_error(errno, given);
  penstock_entry_fill(&e, &x);
  return penstock_module_entry_object(&e);
}

/* What stands at a path: the attributes, and a symlink's target or a file's layout in `value`; its size, or -1 without. */
struct whole {
  struct statx x;
  ssize_t size;
  char value[PENSTOCK_PART_MAX];
};

/* By a descriptor that opens nothing: the path is gone through once, and all is said of one file.  0 or an errno. */
static int read_whole(const char *path, const char *layout, struct whole *ret) {
  char held[32];
  int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), err = 0;
  if (fd < 0)
    return errno;
  ret->size = -1;
  if (statx(fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, &ret->x) < 0)
    err = errno;
  else if (S_ISLNK(ret->x.stx_mode))
    ret->size = readlinkat(fd, "", ret->value, sizeof ret->value);
  else if (S_ISREG(ret->x.stx_mode) && layout) {
    snprintf(held, sizeof held, "/proc/self/fd/%d", fd);
    ret->size = getxattr(held, layout, ret->value, sizeof ret->value);
  }
  close(fd);
  return err;
}

/* entry_whole(path, layout): (Entry, a symlink's target or None, a file's layout or None). */
static PyObject *entry_whole(PyObject *self, PyObject *args) {
  PyObject *path, *ret = NULL;
  const char *layout;
  struct penstock_entry e;
  (void)self;
  if (!PyArg_ParseTuple(args, "O&z", PyUnicode_FSConverter, &path, &layout))
    return NULL;
  struct whole *w = PyMem_Malloc(sizeof *w);
  if (!w) {
    Py_DECREF(path);
    return PyErr_NoMemory();
  }
  int err;
  Py_BEGIN_ALLOW_THREADS
  err = read_whole(PyBytes_AsString(path), layout, w);
  Py_END_ALLOW_THREADS
  if (err)
    penstock_module_os_error(err, path);
  else {
    penstock_entry_fill(&e, &w->x);
    bool link = S_ISLNK(w->x.stx_mode);
    const char *value = w->size < 0 ? NULL : w->value;
    ret = Py_BuildValue("Ny#y#", penstock_module_entry_object(&e), link ? value : NULL, w->size, link ? NULL : value, w->size);
  }
  Py_DECREF(path);
  PyMem_Free(w);
  return ret;
}

/* ---- batches ---- */

static void batch_release(PyObject *capsule) { penstock_batch_free(PyCapsule_GetPointer(capsule, BATCH)); }

static PyObject *batch_capsule(struct penstock_batch *b) {
  PyObject *o = b ? PyCapsule_New(b, BATCH, batch_release) : PyErr_NoMemory();
  if (!o)
    penstock_batch_free(b);
  return o;
}

static PyObject *batch_new(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  return batch_capsule(penstock_batch_new());
}

static PyObject *done(int err) {
  if (err < 0)
    return penstock_module_os_error(-err, NULL);
  Py_RETURN_NONE;
}

/* name, entry, target, layout, sums: the last three may be None. */
static int read_draft(PyObject *args, struct penstock_batch **b, struct penstock_draft *d) {
  PyObject *capsule, *entry;
  Py_ssize_t name, target, layout, sums;
  const char *bytes[3];
  if (!PyArg_ParseTuple(args, "Oy#Oz#z#z#", &capsule, &d->name, &name, &entry, &bytes[0], &target, &bytes[1], &layout, &bytes[2], &sums))
    return -1;
  d->name_size = (size_t)name;
  d->target = bytes[0];
  d->target_size = (size_t)target;
  d->layout = bytes[1];
  d->layout_size = (size_t)layout;
  d->sums = bytes[2];
  d->sums_size = (size_t)sums;
  *b = PyCapsule_GetPointer(capsule, BATCH);
  if (!*b || penstock_module_entry(entry, &d->attrs) < 0)
    return -1;
  d->has_learnt = d->attrs.learnt_ns != 0;
  return 0;
}

static PyObject *batch_add(PyObject *self, PyObject *args) {
  struct penstock_batch *b;
  struct penstock_draft d = {0};
  (void)self;
  return read_draft(args, &b, &d) < 0 ? NULL : done(penstock_batch_add(b, &d));
}

static PyObject *batch_root(PyObject *self, PyObject *args) {
  struct penstock_batch *b;
  struct penstock_draft d = {0};
  (void)self;
  return read_draft(args, &b, &d) < 0 ? NULL : done(penstock_batch_root(b, &d));
}

static PyObject *batch_close(PyObject *self, PyObject *args) {
  PyObject *capsule;
  const char *path;
  Py_ssize_t size;
  unsigned flags;
  long long learnt;
  (void)self;
  if (!PyArg_ParseTuple(args, "Oy#IL", &capsule, &path, &size, &flags, &learnt))
    return NULL;
  struct penstock_batch *b = PyCapsule_GetPointer(capsule, BATCH);
  return b ? done(penstock_batch_close(b, path, (size_t)size, flags, learnt)) : NULL;
}

static PyObject *batch_of_view(PyObject *args, int (*add)(struct penstock_batch *b, const struct penstock_view *v)) {
  PyObject *capsule, *view;
  if (!PyArg_ParseTuple(args, "OO", &capsule, &view))
    return NULL;
  struct penstock_batch *b = PyCapsule_GetPointer(capsule, BATCH);
  int err = 0;
  if (b) {
    Py_BEGIN_ALLOW_THREADS
    err = add(b, penstock_module_view(view));
    Py_END_ALLOW_THREADS
  }
  return b ? done(err) : NULL;
}

static PyObject *batch_merge(PyObject *self, PyObject *args) {
  (void)self;
  return batch_of_view(args, penstock_batch_merge);
}

static PyObject *batch_join(PyObject *self, PyObject *args) {
  (void)self;
  return batch_of_view(args, penstock_batch_join);
}

static PyObject *segment_write(PyObject *self, PyObject *args) {
  int fd;
  unsigned long long id, seed;
  PyObject *list;
  struct penstock_index_header h;
  (void)self;
  if (!PyArg_ParseTuple(args, "iO!KK", &fd, &PyList_Type, &list, &id, &seed))
    return NULL;
  size_t count = (size_t)PyList_Size(list);
  struct penstock_batch **batch = PyMem_Calloc(count + 1, sizeof *batch);
  if (!batch)
    return PyErr_NoMemory();
  for (size_t i = 0; i < count; i++)
    if (!(batch[i] = PyCapsule_GetPointer(PyList_GetItem(list, (Py_ssize_t)i), BATCH))) {
      PyMem_Free(batch);
      return NULL;
    }
  int err;
  Py_BEGIN_ALLOW_THREADS
  err = penstock_index_write(fd, batch, count, id, seed, &h);
  Py_END_ALLOW_THREADS
  PyMem_Free(batch);
  if (err < 0)
    return penstock_module_os_error(-err, NULL);
  return Py_BuildValue("{sKsKsKsKsLsL}", "id", (unsigned long long)h.id, "entries", (unsigned long long)h.entries, "folders",
                       (unsigned long long)h.rows, "file_bytes", (unsigned long long)h.file_bytes, "first_ns", (long long)h.first_ns,
                       "last_ns", (long long)h.last_ns);
}

/* ---- scans ---- */

struct scanning {
  struct penstock_scan *scan;
  char *layout;
  char **exclude;
};

static void free_excludes(struct scanning *s) {
  for (char **p = s->exclude; p && *p; p++)
    PyMem_Free(*p);
  PyMem_Free(s->exclude);
}

static void scanning_free(struct scanning *s) {
  if (!s)
    return;
  penstock_scan_close(s->scan);
  free_excludes(s);
  PyMem_Free(s->layout);
  PyMem_Free(s);
}

static void scan_release(PyObject *capsule) {
  struct scanning *s = PyCapsule_GetPointer(capsule, SCAN);
  Py_BEGIN_ALLOW_THREADS
  penstock_scan_close(s->scan);
  Py_END_ALLOW_THREADS
  s->scan = NULL;
  scanning_free(s);
}

static struct penstock_scan *scan_of(PyObject *capsule) {
  struct scanning *s = PyCapsule_GetPointer(capsule, SCAN);
  return s ? s->scan : NULL;
}

static char *copied(const char *text, Py_ssize_t size) {
  char *own = PyMem_Malloc((size_t)size + 1);
  if (!own)
    return (char *)PyErr_NoMemory();
  memcpy(own, text, (size_t)size);
  own[size] = 0;
  return own;
}

static int copy_excludes(struct scanning *s, PyObject *list) {
  Py_ssize_t count = PyList_Size(list);
  s->exclude = PyMem_Calloc((size_t)count + 1, sizeof *s->exclude);
  if (!s->exclude)
    return -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    char *text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &text, &size) < 0 || !(s->exclude[i] = copied(text, size)))
      return -1;
  }
  return 0;
}

static PyObject *excluded(PyObject *self, PyObject *args) {
  PyObject *patterns;
  const char *path;
  struct scanning s = {0};
  (void)self;
  if (!PyArg_ParseTuple(args, "O!y", &PyList_Type, &patterns, &path))
    return NULL;
  bool copied_all = copy_excludes(&s, patterns) == 0, is = copied_all && penstock_excluded((const char *const *)s.exclude, path);
  free_excludes(&s);
  return copied_all ? PyBool_FromLong(is) : NULL;
}

/* scan_open(root, threads, held, one_file_system, lazy, rate, layout, excludes, own_dev, own_ino) */
static PyObject *scan_open(PyObject *self, PyObject *args) {
  const char *root, *layout;
  int one_file_system, lazy;
  PyObject *excludes;
  unsigned long long own_dev, own_ino;
  struct penstock_scan_options o = {0};
  (void)self;
  if (!PyArg_ParseTuple(args, "yIIppdzO!KK", &root, &o.threads_max, &o.held_max, &one_file_system, &lazy, &o.rate_per_s, &layout,
                        &PyList_Type, &excludes, &own_dev, &own_ino))
    return NULL;
  struct scanning *s = PyMem_Calloc(1, sizeof *s);
  if (!s)
    return PyErr_NoMemory();
  if (copy_excludes(s, excludes) < 0 || (layout && !(s->layout = copied(layout, (Py_ssize_t)strlen(layout))))) {
    scanning_free(s);
    return NULL;
  }
  o.one_file_system = one_file_system;
  o.lazy = lazy;
  o.layout = s->layout;
  o.exclude = (const char *const *)s->exclude;
  o.own_dev = own_dev;
  o.own_ino = own_ino;
  int err = 0;
  Py_BEGIN_ALLOW_THREADS
  s->scan = penstock_scan_open(root, &o);
  err = s->scan ? 0 : errno;
  Py_END_ALLOW_THREADS
  if (err) {
    scanning_free(s);
    PyObject *name = PyBytes_FromString(root);
    penstock_module_os_error(err, name);
    Py_XDECREF(name);
    return NULL;
  }
  return PyCapsule_New(s, SCAN, scan_release);
}

static PyObject *scan_push(PyObject *self, PyObject *args) {
  PyObject *capsule;
  const char *path;
  Py_ssize_t size;
  (void)self;
  if (!PyArg_ParseTuple(args, "Oy#", &capsule, &path, &size))
    return NULL;
  struct penstock_scan *s = scan_of(capsule);
  return s ? done(penstock_scan_push(s, path, (size_t)size)) : NULL;
}

static PyObject *scan_known(PyObject *self, PyObject *args) {
  PyObject *capsule, *view;
  long long tick;
  int full, push, err = 0;
  (void)self;
  if (!PyArg_ParseTuple(args, "OOLpp", &capsule, &view, &tick, &full, &push))
    return NULL;
  struct penstock_scan *s = scan_of(capsule);
  if (!s)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  penstock_scan_known(s, penstock_module_view(view), tick, full);
  if (push)
    err = penstock_scan_push_known(s);
  Py_END_ALLOW_THREADS
  return done(err);
}

static PyObject *scan_wait(PyObject *self, PyObject *args) {
  PyObject *capsule;
  int timeout_ms, ret;
  (void)self;
  if (!PyArg_ParseTuple(args, "Oi", &capsule, &timeout_ms))
    return NULL;
  struct penstock_scan *s = scan_of(capsule);
  if (!s)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  ret = penstock_scan_wait(s, timeout_ms);
  Py_END_ALLOW_THREADS
  return ret < 0 ? penstock_module_os_error(-ret, NULL) : PyBool_FromLong(ret);
}

static PyObject *scan_threads(PyObject *self, PyObject *args) {
  PyObject *capsule;
  unsigned active;
  (void)self;
  if (!PyArg_ParseTuple(args, "OI", &capsule, &active))
    return NULL;
  struct penstock_scan *s = scan_of(capsule);
  if (!s)
    return NULL;
  penstock_scan_threads(s, active);
  Py_RETURN_NONE;
}

static PyObject *scan_stats(PyObject *self, PyObject *capsule) {
  struct penstock_scan *s = scan_of(capsule);
  struct penstock_scan_stats v;
  (void)self;
  if (!s)
    return NULL;
  penstock_scan_get(s, &v);
  return Py_BuildValue("{sKsKsKsKsKsKsKsI}", "entries", (unsigned long long)v.entries, "folders", (unsigned long long)v.folders, "calls",
                       (unsigned long long)v.calls, "problems", (unsigned long long)v.problems, "moved", (unsigned long long)v.moved, "pending",
                       (unsigned long long)v.pending, "waited_ns", (unsigned long long)v.waited_ns, "active", v.active);
}

static PyObject *scan_take(PyObject *self, PyObject *capsule) {
  struct penstock_scan *s = scan_of(capsule);
  struct penstock_batch *batch[BATCHES_MAX];
  size_t count;
  (void)self;
  if (!s)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  count = penstock_scan_take(s, batch, BATCHES_MAX);
  Py_END_ALLOW_THREADS
  PyObject *list = PyList_New(0);
  for (size_t i = 0; i < count; i++) {
    PyObject *o = batch_capsule(batch[i]);
    if (list && (!o || PyList_Append(list, o) < 0))
      Py_CLEAR(list);
    Py_XDECREF(o);
  }
  return list;
}

static PyObject *scan_pending(PyObject *self, PyObject *capsule) {
  struct penstock_scan *s = scan_of(capsule);
  PyObject *list = s ? PyList_New(0) : NULL;
  (void)self;
  while (list) {
    size_t size = 0;
    char *path;
    Py_BEGIN_ALLOW_THREADS
    path = penstock_scan_pending(s, &size);
    Py_END_ALLOW_THREADS
    if (!path)
      break;
    PyObject *o = PyBytes_FromStringAndSize(path, (Py_ssize_t)size);
    free(path);
    if (!o || PyList_Append(list, o) < 0)
      Py_CLEAR(list);
    Py_XDECREF(o);
  }
  return list;
}

/* A folder's names as the file system lists them. */
static PyObject *names_at(PyObject *self, PyObject *arg) {
  PyObject *path, *list = NULL;
  (void)self;
  if (!PyUnicode_FSConverter(arg, &path))
    return NULL;
  DIR *dir = opendir(PyBytes_AsString(path));
  const struct dirent *e = NULL;
  if (dir)
    list = PyList_New(0);
  while (list && (errno = 0, e = readdir(dir))) {
    PyObject *row = Py_BuildValue("y#Ki", e->d_name, (Py_ssize_t)strlen(e->d_name), (unsigned long long)e->d_ino, (int)e->d_type);
    if (!row || PyList_Append(list, row) < 0)
      Py_CLEAR(list);
    Py_XDECREF(row);
  }
  if (!dir || (list && errno)) {
    PyErr_SetFromErrno(PyExc_OSError);
    Py_CLEAR(list);
  }
  if (dir)
    closedir(dir);
  Py_DECREF(path);
  return list;
}

static void add_problem(void *state, enum penstock_problem what, int err, const char *path, size_t size) {
  PyObject **list = state, *row = Py_BuildValue("iiy#", (int)what, err, path, (Py_ssize_t)size);
  if (*list && (!row || PyList_Append(*list, row) < 0))
    Py_CLEAR(*list);
  Py_XDECREF(row);
}

static PyObject *scan_problems(PyObject *self, PyObject *capsule) {
  struct penstock_scan *s = scan_of(capsule);
  PyObject *list = s ? PyList_New(0) : NULL;
  (void)self;
  if (list)
    penstock_scan_problems(s, add_problem, &list);
  return list;
}

PyMethodDef penstock_module_scan[] = {
  {"entry_whole", entry_whole, METH_VARARGS,
   "entry_whole(path, layout): (Entry, a symlink's target or None, a file's layout or None); of one file, at one moment."},
  {"entry_at", entry_at, METH_O, "entry_at(path): its Entry as the file system has it now; symlinks are not followed."},
  {"names_at", names_at, METH_O, "names_at(path): (name, inode, type) of each name that a folder lists, . and .. among them."},
  {"batch_new", batch_new, METH_NOARGS, "batch_new(): a batch of folders to be written."},
  {"batch_add", batch_add, METH_VARARGS, "batch_add(batch, name, entry, target, layout, sums): an entry of the folder closed next."},
  {"batch_root", batch_root, METH_VARARGS, "batch_root(batch, b'', entry, None, None, None): the root's own entry."},
  {"batch_close", batch_close, METH_VARARGS, "batch_close(batch, path, flags, learnt_ns): what was added since the last was in it."},
  {"batch_merge", batch_merge, METH_VARARGS, "batch_merge(batch, view): all that a view holds."},
  {"batch_join", batch_join, METH_VARARGS, "batch_join(batch, view): the folders that each segment listed, none of them twice."},
  {"segment_write", segment_write, METH_VARARGS, "segment_write(fd, batches, id, seed): its header's figures."},
  {"excluded", excluded, METH_VARARGS, "excluded(patterns, path): is a path relative to the root one of those left out?"},
  {"scan_open", scan_open, METH_VARARGS,
   "scan_open(root, threads, held, one_file_system, lazy, rate, layout, excludes, own_dev, own_ino): threads that wait for folders."},
  {"scan_push", scan_push, METH_VARARGS, "scan_push(scan, path): a folder to be scanned with all below it."},
  {"scan_known", scan_known, METH_VARARGS, "scan_known(scan, view, tick_ns, full, push): what is known; push: look at all its folders."},
  {"scan_wait", scan_wait, METH_VARARGS, "scan_wait(scan, timeout_ms): is all done?"},
  {"scan_threads", scan_threads, METH_VARARGS, "scan_threads(scan, active): how many may work."},
  {"scan_stats", scan_stats, METH_O, "scan_stats(scan): its figures."},
  {"scan_take", scan_take, METH_O, "scan_take(scan): batches of all that was read since."},
  {"scan_pending", scan_pending, METH_O, "scan_pending(scan): folders that wait, taken from it."},
  {"scan_problems", scan_problems, METH_O, "scan_problems(scan): (what, errno, path) since the last time."},
  {NULL, NULL, 0, NULL},
};
