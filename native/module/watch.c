// SPDX-License-Identifier: Apache-2.0
/* A board's agent from Python: a handle that holds the board's lock, gives it room, knows who lives, and takes the dead
   off it.  One thread at a time uses a handle. */
#include "areas.h"

#include <errno.h>
#include <stdlib.h>

#include "board/read.h"
#include "launch/harvest.h"
#include "launch/operations.h"

#define NAME "penstock.watch"

static void let_go(PyObject *capsule) {
  struct penstock_watch *w = PyCapsule_GetPointer(capsule, NAME);
  penstock_watch_close(w);
  free(w);
}

static PyObject *watch_open(PyObject *self, PyObject *args) {
  PyObject *folder;
  (void)self;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &folder))
    return NULL;
  struct penstock_watch *w = malloc(sizeof *w);
  int error = w ? penstock_watch_open(w, PyBytes_AsString(folder), true) : -ENOMEM;
  PyObject *ret = error ? NULL : PyCapsule_New(w, NAME, let_go);
  if (error) {
    free(w);
    errno = -error;
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, folder);
  }
  Py_DECREF(folder);
  return ret;
}

static PyObject *watch_grow(PyObject *self, PyObject *capsule) {
  struct penstock_watch *w = PyCapsule_GetPointer(capsule, NAME);
  (void)self;
  return w ? PyLong_FromLong(penstock_board_grow(&w->board)) : NULL;
}

static PyObject *watch_look(PyObject *self, PyObject *capsule) {
  struct penstock_watch *w = PyCapsule_GetPointer(capsule, NAME);
  uint32_t living = 0;
  int error = 0;
  (void)self;
  if (!w)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  error = penstock_watch_look(w, &living);
  Py_END_ALLOW_THREADS
  if (error) {
    errno = -error;
    return PyErr_SetFromErrnoWithFilename(PyExc_OSError, w->path);
  }
  return Py_BuildValue("(III)", living, w->used_chunks, w->dead_chunks);
}

static PyObject *watch_give_back(PyObject *self, PyObject *capsule) {
  struct penstock_watch *w = PyCapsule_GetPointer(capsule, NAME);
  int count = 0;
  (void)self;
  if (!w)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  count = penstock_give_back(w);
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(count);
}

/* ---- how long metadata calls take ---- */

struct sums {
  uint64_t time_ns, sampled;
};

static void add_process(void *context, const struct penstock_seen_process *p) {
  struct sums *s = context;
  s->time_ns += p->fresh_ns;
  s->sampled += p->fresh;
  for (int op = 0; op < PENSTOCK_OPS; op++)
    if (penstock_operation_classes[op] != PENSTOCK_CLASS_DATA && penstock_operation_classes[op] != PENSTOCK_CLASS_LOCK) {
      s->time_ns += p->op[op].time_ns;
      s->sampled += p->op[op].sampled;
    }
}

static PyObject *watch_latency(PyObject *self, PyObject *capsule) {
  struct penstock_watch *w = PyCapsule_GetPointer(capsule, NAME);
  struct sums sums = {0, 0};
  struct penstock_visitor visitor = {&sums, add_process, NULL};
  struct penstock_seen seen;
  (void)self;
  if (!w)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  penstock_read(w->usage, w->chunk_count, w->board.control->freed, w->head.nonce, &visitor, &seen);
  Py_END_ALLOW_THREADS
  return Py_BuildValue("(KK)", sums.time_ns, sums.sampled);
}

PyMethodDef penstock_module_watch[] = {
  {"watch_open", watch_open, METH_VARARGS,
   "watch_open(folder): become the board's agent; BlockingIOError when it has one.  Held as long as what is returned."},
  {"watch_grow", watch_grow, METH_O, "watch_grow(watch): 1 when the board got more room, 0, or -errno."},
  {"watch_look", watch_look, METH_O, "watch_look(watch): (living processes, chunks held, of them by the dead)."},
  {"watch_give_back", watch_give_back, METH_O,
   "watch_give_back(watch): take the dead off the board, kept in FOLDER.gone; how many chunks, or -errno."},
  {"watch_latency", watch_latency, METH_O, "watch_latency(watch): (ns, calls) of the metadata calls that were timed."},
  {NULL, NULL, 0, NULL},
};
