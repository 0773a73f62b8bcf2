// SPDX-License-Identifier: Apache-2.0
/* What catalog.c, entry.c, view*.c and scan.c of this folder share. */
#pragma once
#include "areas.h"
#include "kernels/view.h"

#define PENSTOCK_SEEN_MIX UINT64_C(0x9e3779b97f4a7c15)

/* OSError of an errno, about `what` if it is not NULL. */
PyObject *penstock_module_os_error(int err, PyObject *what);

/* A tuple of an Entry's fields. */
int penstock_module_entry(PyObject *tuple, struct penstock_entry *e);

/* The Entry. */
PyObject *penstock_module_entry_object(const struct penstock_entry *e);

/* The segments of a View. */
const struct penstock_view *penstock_module_view(PyObject *o);

typedef struct {
  PyObject_HEAD
  struct penstock_view v;
  PyObject *segments; /* a tuple: keeps them alive */
  PyObject *outside;
  PyObject *root;
} View;

/* A segment of a capsule; NULL: an exception stands. */
struct penstock_index *penstock_module_segment(PyObject *capsule);

/* The path relative to the view's root; it lies in *keep, in `path` or in `room`.  NULL: an exception stands. */
const char *penstock_module_inside(const View *view, PyObject *path, Py_ssize_t *size, PyObject **keep, char **room);
void penstock_module_done_with(PyObject *keep, char *room);

/* (path, Entry, folder's flags, its learnt_ns) of a visit; a part as bytes or None. */
PyObject *penstock_module_visit(const struct penstock_visit *it, const char *path, size_t size);
PyObject *penstock_module_part(const struct penstock_index *in, const struct penstock_entry *e, int kind);

/* Methods of View. */
PyObject *penstock_module_view_find(PyObject *self, PyObject *args);
PyObject *penstock_module_view_du(PyObject *self, PyObject *args);
PyObject *penstock_module_seen_new(PyObject *self, PyObject *nothing);
PyObject *penstock_module_view_columns(PyObject *self, PyObject *args);

/* The types; -1: an exception stands. */
int penstock_module_add_entry(PyObject *module);
int penstock_module_add_view(PyObject *module);
