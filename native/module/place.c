// SPDX-License-Identifier: Apache-2.0
/* Plans on the board from Python: keys for whoever makes one, and looking names up as programs do. */
#include "areas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "board/create.h"
#include "board/place.h"

/* The texts that a variant states; without a variant, the hash of a whole name. */
static PyObject *place_key(PyObject *self, PyObject *args) {
  int variant;
  PyObject *texts;
  (void)self;
  if (!PyArg_ParseTuple(args, "iO", &variant, &texts))
    return NULL;
  Py_ssize_t count = PySequence_Size(texts), size;
  uint64_t key = penstock_place_key_begin((uint32_t)variant);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PySequence_GetItem(texts, i);
    char *text;
    if (!item || PyBytes_AsStringAndSize(item, &text, &size)) {
      Py_XDECREF(item);
      return NULL;
    }
    key = variant < 0 ? penstock_hash(text, (uint64_t)size) : penstock_place_key_add(key, text, (size_t)size);
    Py_DECREF(item);
  }
  return count < 0 ? NULL : PyLong_FromUnsignedLongLong(key);
}

/* A copy of the section, aligned as on the board; the caller frees it. */
static void *aligned_copy(const char *bytes, Py_ssize_t size) {
  void *copy = malloc((size_t)size + 8);
  if (copy)
    memcpy(copy, bytes, (size_t)size);
  return copy;
}

static PyObject *place_wrong(PyObject *self, PyObject *args) {
  const char *bytes;
  Py_ssize_t size;
  struct penstock_place p;
  (void)self;
  if (!PyArg_ParseTuple(args, "y#", &bytes, &size))
    return NULL;
  void *copy = aligned_copy(bytes, size);
  const char *wrong = copy ? penstock_place_open(&p, copy, (uint64_t)size) : "there is no memory";
  free(copy);
  return wrong ? PyUnicode_FromString(wrong) : Py_NewRef(Py_None);
}

static PyObject *place_find(PyObject *self, PyObject *args) {
  const char *bytes, *name;
  Py_ssize_t size, name_size;
  struct penstock_place p;
  long index = -1;
  (void)self;
  if (!PyArg_ParseTuple(args, "y#y#", &bytes, &size, &name, &name_size))
    return NULL;
  void *copy = aligned_copy(bytes, size);
  if (copy && !penstock_place_open(&p, copy, (uint64_t)size)) {
    const struct penstock_place_entry *found = penstock_place_find(&p, name, (size_t)name_size);
    index = found ? (long)(found - p.entries) : -1;
  }
  free(copy);
  return PyLong_FromLong(index);
}

static PyObject *place_counts(PyObject *self, PyObject *unused) {
  PyObject *names = PyTuple_New(PENSTOCK_PLACE_COUNTS);
  (void)self;
  (void)unused;
  for (int i = 0; names && i < PENSTOCK_PLACE_COUNTS; i++)
    PyTuple_SetItem(names, i, PyUnicode_FromString(penstock_place_count_names[i]));
  return names;
}

static PyObject *place_put(PyObject *self, PyObject *args) {
  PyObject *folder;
  const char *bytes;
  Py_ssize_t size;
  unsigned begin;
  struct penstock_board board;
  (void)self;
  if (!PyArg_ParseTuple(args, "O&y#I", PyUnicode_FSConverter, &folder, &bytes, &size, &begin))
    return NULL;
  void *copy = aligned_copy(bytes, size);
  int error = copy ? penstock_board_open(PyBytes_AsString(folder), &board) : -ENOMEM;
  if (!error) {
    error = penstock_board_place(&board, copy, (uint64_t)size, begin);
    penstock_board_close(&board);
  }
  free(copy);
  errno = -error;
  PyObject *result = error ? PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, folder) : Py_NewRef(Py_None);
  Py_DECREF(folder);
  return result;
}

PyMethodDef penstock_module_place[] = {
  {"place_put", place_put, METH_VARARGS,
   "place_put(board, section, begin): puts a plan on a board under running programs; OSError ENOSPC: it has no room."},
  {"place_counts", place_counts, METH_NOARGS, "place_counts(): what a board counts of placed files, in order."},
  {"place_key", place_key, METH_VARARGS, "place_key(variant, texts): the key of an entry; variant -1: of a whole name."},
  {"place_wrong", place_wrong, METH_VARARGS, "place_wrong(section): what is wrong with a plan for the board, or None."},
  {"place_find", place_find, METH_VARARGS, "place_find(section, name): the number of the entry that a name has, or -1."},
  {NULL, NULL, 0, NULL},
};
