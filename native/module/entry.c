// SPDX-License-Identifier: Apache-2.0
/* Entries of catalogs for Python: objects with the names of os.stat_result, which make Python's numbers only when asked. */
#include <string.h>
#include <sys/stat.h>

#include "catalog.h"

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

int penstock_module_add_entry(PyObject *module) {
  entry_type = (PyTypeObject *)PyType_FromSpec(&entry_spec);
  return entry_type ? PyModule_AddObjectRef(module, "Entry", (PyObject *)entry_type) : -1;
}
