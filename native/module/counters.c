// SPDX-License-Identifier: Apache-2.0
/* Statistics of many targets in one call: files read and parsed without Python in between.

   Invariants: at most PENSTOCK_COUNTER_FILE_BYTES of a file are read; a file that cannot be read is not an error, its
   numbers are missing; the interpreter's lock is not held while files are read.  A file that is kept open is the one that
   has the name: when it was replaced or is gone, the name is opened again. */
#include "areas.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/counters.h"

/* Less than this is the end of the file: the kernel's own files fill a page before they stop early. */
enum { SHORT_READ_BYTES = 2048 };

/* Texts one after the other, each ended by a NUL. */
static size_t split(const char *texts, Py_ssize_t size, const char **ret, size_t room) {
  size_t count = 0;
  for (const char *at = texts; at < texts + size; at += strlen(at) + 1, count++)
    if (count < room)
      ret[count] = at;
  return count;
}

static ssize_t read_all(int fd, char *text) {
  size_t have = 0;
  ssize_t n;
  do {
    n = pread(fd, text + have, PENSTOCK_COUNTER_FILE_BYTES - have, (off_t)have);
    have += n > 0 ? (size_t)n : 0;
  } while (n >= SHORT_READ_BYTES && have < PENSTOCK_COUNTER_FILE_BYTES);
  return n < 0 && have == 0 ? -1 : (ssize_t)have;
}

/* `kept` is the file's descriptor, -1 before it was opened; NULL where none may be kept. */
static ssize_t whole_file(int dir, const char *path, int *kept, char *text) {
  struct stat seen;
  if (kept && *kept >= 0) {
    ssize_t length = fstat(*kept, &seen) == 0 && seen.st_nlink ? read_all(*kept, text) : -1;
    if (length >= 0)
      return length;
    close(*kept);
    *kept = -1;
  }
  int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0)
    return -1;
  ssize_t length = read_all(fd, text);
  if (kept)
    *kept = fd;
  else
    close(fd);
  return length;
}

/* One row of numbers for each file: with names two for each of them, without names one. */
static void read_rows(int dir, const char *paths, size_t size, int *kept, const char *const *names, size_t count,
                      char *text, int64_t *row) {
  for (const char *path = paths; path < paths + size; path += strlen(path) + 1) {
    ssize_t length = whole_file(dir, path, kept, text);
    kept += kept ? 1 : 0;
    size_t have = length < 0 ? 0 : (size_t)length;
    if (count == 0) {
      *row++ = penstock_number_parse(text, have);
      continue;
    }
    struct penstock_counter counter[PENSTOCK_COUNTER_NAMES_MAX];
    penstock_counters_parse(text, have, names, count, counter);
    for (size_t i = 0; i < count; i++) {
      *row++ = length < 0 ? -1 : counter[i].samples;
      *row++ = length < 0 ? -1 : counter[i].sum;
    }
  }
}

static PyObject *counters_of(const char *folder, const char *paths, size_t paths_size, const char *names_text,
                             size_t names_size, Py_buffer *kept) {
  const char *names[PENSTOCK_COUNTER_NAMES_MAX];
  if ((paths_size && paths[paths_size - 1]) || (names_size && names_text[names_size - 1])) {
    PyErr_SetString(PyExc_ValueError, "each path and name ends with a NUL");
    return NULL;
  }
  size_t files = split(paths, paths_size, NULL, 0);
  size_t count = split(names_text, names_size, names, PENSTOCK_COUNTER_NAMES_MAX);
  if (count > PENSTOCK_COUNTER_NAMES_MAX) {
    PyErr_SetString(PyExc_ValueError, "too many names");
    return NULL;
  }
  if (kept->obj && (size_t)kept->len != files * sizeof(int)) {
    PyErr_SetString(PyExc_ValueError, "one descriptor is kept for each path");
    return NULL;
  }
  size_t columns = count ? 2 * count : 1;
  PyObject *ret = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(files * columns * sizeof(int64_t)));
  char *text = PyMem_Malloc(PENSTOCK_COUNTER_FILE_BYTES);
  if (!ret || !text) {
    PyMem_Free(text);
    Py_XDECREF(ret);
    return PyErr_NoMemory();
  }
  int64_t *rows = (int64_t *)(void *)PyBytes_AsString(ret); /* a new object, not shown to anybody yet */
  Py_BEGIN_ALLOW_THREADS
  int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  read_rows(dir, paths, paths_size, kept->obj ? kept->buf : NULL, names, count, text, rows);
  if (dir >= 0)
    close(dir);
  Py_END_ALLOW_THREADS
  PyMem_Free(text);
  return ret;
}

static PyObject *read_counters(PyObject *self, PyObject *args) {
  const char *folder, *paths, *names;
  Py_ssize_t paths_size, names_size;
  Py_buffer kept = {0};
  (void)self;
  if (!PyArg_ParseTuple(args, "yy#y#|w*", &folder, &paths, &paths_size, &names, &names_size, &kept))
    return NULL;
  PyObject *ret = counters_of(folder, paths, (size_t)paths_size, names, (size_t)names_size, &kept);
  if (kept.obj)
    PyBuffer_Release(&kept);
  return ret;
}

PyMethodDef penstock_module_counters[] = {
  {"read_counters", read_counters, METH_VARARGS,
   "read_counters(folder, paths, names[, kept]): int64 rows, one a file below the folder; texts end with NUL.\n"
   "With names: how often and sum of each counter of a stats file, -1 if it cannot be read.\n"
   "Without: the number in the file, -2**63 if there is none.\n"
   "kept is an array of C ints, one a path, -1 at first: files stay open there; the caller closes them."},
  {NULL, NULL, 0, NULL},
};
