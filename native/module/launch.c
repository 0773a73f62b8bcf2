// SPDX-License-Identifier: Apache-2.0
/* Boards into the history, for Python: what penstock-run's agent does at the end, done for it when it was killed. */
#include "areas.h"

#include <errno.h>

#include "launch/agent.h"

struct asked {
  const char *path;
  struct penstock_wishes wishes;
  const char *node;
};

/* (path, history, node, group=False) */
static int parse(PyObject *args, struct asked *ret) {
  PyObject *path = NULL, *history = NULL;
  int group = 0, right = 0;
  if (!PyArg_ParseTuple(args, "O&O&s|p", PyUnicode_FSConverter, &path, PyUnicode_FSConverter, &history, &ret->node,
                        &group))
    return 0;
  const char *folder = PyBytes_AsString(history), *board = PyBytes_AsString(path);
  if (folder && board && strlen(folder) < sizeof ret->wishes.history && strlen(board) < PATH_MAX - 64) {
    strcpy(ret->wishes.history, folder);
    ret->wishes.group = group;
    ret->path = strdup(board);
    right = ret->path != NULL;
  } else
    PyErr_SetString(PyExc_ValueError, "a path is too long");
  Py_DECREF(path);
  Py_DECREF(history);
  return right;
}

static PyObject *answer(int error, const char *path, uint32_t living) {
  PyObject *ret = NULL;
  if (error) {
    errno = -error;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
  } else
    ret = PyLong_FromUnsignedLong(living);
  free((void *)(uintptr_t)path);
  return ret;
}

static PyObject *harvest(PyObject *self, PyObject *args) {
  static const struct asked none;
  struct asked a = none;
  struct penstock_watch w;
  uint32_t living = 0;
  (void)self;
  if (!parse(args, &a))
    return NULL;
  int error;
  Py_BEGIN_ALLOW_THREADS
  error = penstock_watch_open(&w, a.path, false);
  if (!error) {
    error = penstock_write_frames(&w, &a.wishes, a.node, NULL, true, NULL, NULL, &living);
    penstock_watch_close(&w);
  }
  Py_END_ALLOW_THREADS
  return answer(error, a.path, living);
}

static PyObject *collect_board(PyObject *self, PyObject *args) {
  static const struct asked none;
  struct asked a = none;
  uint32_t living = 0;
  (void)self;
  if (!parse(args, &a))
    return NULL;
  int error;
  Py_BEGIN_ALLOW_THREADS
  error = penstock_collect_board(a.path, &a.wishes, a.node, &living);
  Py_END_ALLOW_THREADS
  return answer(error, a.path, living);
}

PyMethodDef penstock_module_launch[] = {
  {"harvest", harvest, METH_VARARGS,
   "harvest(board, history, node, group=False): append what the board tells now to the history; how many processes live."},
  {"collect_board", collect_board, METH_VARARGS,
   "collect_board(board, history, node, group=False): the same, and remove the board when nobody lives; "
   "BlockingIOError while it has an agent."},
  {NULL, NULL, 0, NULL},
};
