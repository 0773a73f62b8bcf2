// SPDX-License-Identifier: Apache-2.0
/* find for Python: tests that the kernel evaluates, and what the caller does at some.  Paths go out in large writes, without
   the interpreter's lock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog.h"
#include "kernels/query.h"

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
  PyObject *row = penstock_module_visit(it, path, size), *target = row ? penstock_module_part(it->in, it->entry, PENSTOCK_PART_TARGET) : NULL;
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

static void free_tests(struct penstock_test *test, size_t count) {
  for (size_t i = 0; test && i < count; i++)
    if (test[i].regex) {
      regfree(test[i].regex);
      PyMem_Free(test[i].regex);
    }
  PyMem_Free(test);
}

/* Emacs's syntax is find's own; `fold`: upper and lower case are the same. */
static struct re_pattern_buffer *read_regex(const char *text, bool fold, bool extended) {
  struct re_pattern_buffer *regex = PyMem_Calloc(1, sizeof *regex);
  if (!regex)
    return (struct re_pattern_buffer *)PyErr_NoMemory();
  reg_syntax_t before = re_set_syntax((extended ? RE_SYNTAX_POSIX_EXTENDED : RE_SYNTAX_EMACS) | (fold ? RE_ICASE : 0));
  const char *wrong = re_compile_pattern(text, strlen(text), regex);
  re_set_syntax(before);
  if (!wrong)
    return regex;
  regfree(regex);
  PyMem_Free(regex);
  PyErr_Format(PyExc_ValueError, "-regex %s: %s", text, wrong);
  return NULL;
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
      free_tests(test, *count);
      return NULL;
    }
    test[i].kind = (enum penstock_test_kind)kind;
    test[i].low = low;
    test[i].high = high;
    test[i].text = text;
    if (kind == PENSTOCK_TEST_REGEX && !(test[i].regex = read_regex(text ? text : "", low != 0, high != 0))) {
      free_tests(test, *count);
      return NULL;
    }
  }
  return test;
}

/* find(start, prefix, depth_min, depth_max, tests, fd, call, one_mount, contents_first): folders that could not be read, as (path, errno). */
PyObject *penstock_module_view_find(PyObject *self, PyObject *args) {
  PyObject *start, *tests, *keep = NULL;
  struct finding *f = PyMem_Calloc(1, sizeof *f);
  char *room = NULL;
  Py_ssize_t prefix_size, size;
  unsigned depth_max;
  int one_mount = 0, contents_first = 0;
  if (!f)
    return PyErr_NoMemory();
  f->view = (View *)self;
  f->q = (struct penstock_query){.view = &f->view->v, .print = find_print, .call = find_call, .state = f};
  if (!PyArg_ParseTuple(args, "Oy#IIO!iO|pp", &start, &f->q.prefix, &prefix_size, &f->q.depth_min, &depth_max, &PyList_Type, &tests, &f->fd, &f->call, &one_mount, &contents_first)) {
    PyMem_Free(f);
    return NULL;
  }
  f->q.prefix_size = (size_t)prefix_size;
  f->q.one_mount = one_mount;
  f->q.contents_first = contents_first;
  struct penstock_test *test = read_tests(tests, &f->q.count);
  f->q.test = test;
  f->damaged = PyList_New(0);
  const char *p = test && f->damaged ? penstock_module_inside(f->view, start, &size, &keep, &room) : NULL;
  int err = p && penstock_query_check(&f->q) < 0 ? -EINVAL : 0;
  if (p && err == 0) {
    f->q.skip = (size_t)size;
    f->thread = PyEval_SaveThread();
    err = penstock_view_walk(&f->view->v, p, (size_t)size, depth_max, find_visit, find_bad, f);
    f->q.quit |= f->err || f->failed || err < 0;
    int end = penstock_query_end(&f->q);
    err = err < 0 ? err : end;
    find_flush(f);
    PyEval_RestoreThread(f->thread);
  }
  penstock_module_done_with(keep, room);
  free_tests(test, f->q.count);
  PyObject *ret = f->damaged;
  if (!p || err < 0 || f->err || f->failed) {
    if (p && !f->failed)
      penstock_module_os_error(f->err ? f->err : -err, f->err ? NULL : start); /* what cannot be written is not the tree's fault */
    Py_CLEAR(ret);
  }
  PyMem_Free(f);
  return ret;
}
