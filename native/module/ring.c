// SPDX-License-Identifier: Apache-2.0
/* The ring from Python: a capsule is an open reader. */
#include "areas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "board/ring.h"

static const char NAME[] = "penstock.ring";

static PyObject *failure(int error) {
  errno = -error;
  return PyErr_SetFromErrno(PyExc_OSError);
}

static struct penstock_ring_reader *reader_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, NAME); }

static void drop(PyObject *capsule) {
  free(reader_of(capsule));
}

static PyObject *ring_open(PyObject *self, PyObject *args) {
  int fd;
  (void)self;
  if (!PyArg_ParseTuple(args, "i", &fd))
    return NULL;
  struct penstock_ring_reader *r = malloc(sizeof *r);
  int error = r ? penstock_ring_open(r, fd) : -ENOMEM;
  if (error) {
    free(r);
    return failure(error);
  }
  return PyCapsule_New(r, NAME, drop);
}

static PyObject *event_of(const uint8_t *room) {
  struct penstock_event e;
  memcpy(&e, room, sizeof e);
  const char *path = (const char *)room + sizeof e;
  return Py_BuildValue("(iiIKKKy#y#)", (int)e.what, (int)e.flags, e.pid, e.thread, e.dev, e.ino, path,
                       (Py_ssize_t)e.path_size, path + e.path_size, (Py_ssize_t)e.path2_size);
}

static PyObject *ring_events(PyObject *self, PyObject *args) {
  uint8_t room[PENSTOCK_EVENT_MAX];
  PyObject *capsule, *list;
  int most, skip = 0, got = 0;
  bool behind = false;
  size_t size;
  (void)self;
  if (!PyArg_ParseTuple(args, "Oi|p", &capsule, &most, &skip))
    return NULL;
  struct penstock_ring_reader *r = reader_of(capsule);
  if (!r || !(list = PyList_New(0)))
    return NULL;
  for (int i = 0; i < most && (got = penstock_ring_next(r, skip, room, &size, &behind)) > 0; i++) {
    PyObject *event = event_of(room);
    int failed = !event || PyList_Append(list, event) < 0;
    Py_XDECREF(event);
    if (failed) {
      Py_DECREF(list);
      return NULL;
    }
  }
  int error = got < 0 ? got : penstock_ring_release(r);
  if (error) {
    Py_DECREF(list);
    return failure(error);
  }
  return Py_BuildValue("(NO)", list, behind ? Py_True : Py_False);
}

static PyObject *folders_of(const struct penstock_ring_reader *r) {
  char room[PENSTOCK_RING_FOLDER_BYTES];
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && i < PENSTOCK_RING_FOLDERS; i++) {
    int size = penstock_ring_dropped(r, i, room);
    PyObject *path = size > 0 ? PyBytes_FromStringAndSize(room, size) : NULL;
    if (size > 0 && (!path || PyList_Append(list, path) < 0))
      Py_CLEAR(list);
    Py_XDECREF(path);
  }
  return list;
}

static PyObject *ring_state(PyObject *self, PyObject *capsule) {
  struct penstock_ring head;
  struct penstock_ring_reader *r = reader_of(capsule);
  (void)self;
  if (!r)
    return NULL;
  int error = penstock_ring_look(r, &head);
  if (error)
    return failure(error);
  return Py_BuildValue("(KKKKON)", (unsigned long long)head.head, (unsigned long long)r->position,
                       (unsigned long long)r->holes, (unsigned long long)head.dropped, head.all ? Py_True : Py_False,
                       folders_of(r));
}

PyMethodDef penstock_module_ring[] = {
  {"ring_open", ring_open, METH_VARARGS, "ring_open(fd): a reader of a board's ring; the descriptor stays yours."},
  {"ring_events", ring_events, METH_VARARGS,
   "ring_events(reader, most, skip=False): ([(what, flags, pid, thread, dev, ino, path, path2), ...], is one in the "
   "making?); skip passes over those in the making."},
  {"ring_state", ring_state, METH_O,
   "ring_state(reader): (head, position, holes, dropped, all, [folders of dropped events])."},
  {NULL, NULL, 0, NULL},
};
