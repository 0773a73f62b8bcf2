// SPDX-License-Identifier: Apache-2.0
/* Catalogs for Python: segments, and what their parts share.  A segment is a capsule that owns its descriptor.

   Invariants: errors of the kernels are OSError with their errno; the interpreter's lock is not held while whole segments
   are read.  entry.c has entries, view.c views of several segments, view_find.c, view_du.c and view_columns.c what is asked
   of them. */
#include "catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char SEGMENT[] = "penstock.segment";

PyObject *penstock_module_os_error(int err, PyObject *what) {
  errno = err;
  return what ? PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, what) : PyErr_SetFromErrno(PyExc_OSError);
}

static void segment_free(PyObject *capsule) {
  struct penstock_index *ix = PyCapsule_GetPointer(capsule, SEGMENT);
  int fd = ix->fd;
  penstock_index_close(ix);
  if (fd >= 0)
    close(fd);
  PyMem_Free(ix);
}

struct penstock_index *penstock_module_segment(PyObject *capsule) { return PyCapsule_GetPointer(capsule, SEGMENT); }

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
  struct penstock_index *ix = penstock_module_segment(capsule);
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
  struct penstock_index *ix = penstock_module_segment(capsule);
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

int penstock_module_add_catalog(PyObject *module) {
  return penstock_module_add_entry(module) < 0 || penstock_module_add_view(module) < 0 ? -1 : 0;
}

PyMethodDef penstock_module_catalog[] = {
  {"segment_open", segment_open, METH_VARARGS, "segment_open(fd, resident_bytes): a segment; the descriptor stays yours."},
  {"segment_info", segment_info, METH_O, "segment_info(segment): its header's figures."},
  {"segment_verify", segment_verify, METH_O, "segment_verify(segment): places of damaged blocks."},
  {"seen_new", penstock_module_seen_new, METH_NOARGS, "seen_new(): an empty set of what du saw."},
  {NULL, NULL, 0, NULL},
};
