// SPDX-License-Identifier: Apache-2.0
/* Lustre's layouts for Python: the codec of kernels/layout.h between bytes and plain tuples.

   A layout is (composite, big_endian, gen, flags, mirrors, parity_count, parts), a part is
   (start, end, id, flags, gen, timestamp, extra, magic, pattern, oi_id, oi_seq, stripe_size, stripe_count,
   stripe_offset, pool, objects): targets/lov.py gives the fields their names and is the only caller.
   `objects` is the table of objects, 24 bytes each, in the order of this machine whatever the layout's order is.

   Invariants: the codec checks all bounds; errors are OSError with its errno; what is decoded encodes to the same
   bytes, and what cannot be encoded (a part of unknown magic) is an error, never something else. */
#include "areas.h"

#include <errno.h>
#include <string.h>

#include "kernels/layout.h"

static PyObject *os_error(int err) {
  errno = err;
  return PyErr_SetFromErrno(PyExc_OSError);
}

/* ---- bytes to tuples ---- */

/* The objects of a part as this machine would have them.  The codec turns them over by writing a plain layout. */
static PyObject *objects_bytes(const struct penstock_component *c) {
  size_t size = (size_t)c->object_count * PENSTOCK_LOV_OBJECT_BYTES;
  if (size == 0 || c->raw_big_endian == penstock_host_big_endian())
    return PyBytes_FromStringAndSize((const char *)c->raw_objects, (Py_ssize_t)size);
  struct penstock_layout alone = {.big_endian = penstock_host_big_endian(), .count = 1, .parts = c};
  ssize_t whole = penstock_layout_size(&alone);
  char *room = PyMem_Malloc((size_t)whole);
  if (!room)
    return PyErr_NoMemory();
  penstock_layout_write(&alone, room, (size_t)whole);
  PyObject *ret = PyBytes_FromStringAndSize(room + whole - size, (Py_ssize_t)size);
  PyMem_Free(room);
  return ret;
}

/* A pool's name: NULs at its end are padding. */
static Py_ssize_t pool_length(const char *pool) {
  Py_ssize_t length = PENSTOCK_POOL_BYTES;
  while (length > 0 && pool[length - 1] == 0) length--;
  return length;
}

static PyObject *part_tuple(const struct penstock_component *c) {
  PyObject *objects = objects_bytes(c);
  if (!objects)
    return NULL;
  return Py_BuildValue("(KKIIIKy#IIKKIIIy#N)", (unsigned long long)c->start_bytes, (unsigned long long)c->end_bytes,
                       c->id, c->flags, c->gen, (unsigned long long)c->timestamp, (const char *)c->extra,
                       (Py_ssize_t)sizeof c->extra, c->magic, c->pattern, (unsigned long long)c->oi_id,
                       (unsigned long long)c->oi_seq, c->stripe_size_bytes, (unsigned)c->stripe_count,
                       (unsigned)c->stripe_offset, c->pool, pool_length(c->pool), objects);
}

static PyObject *parts_tuple(const struct penstock_layout *l) {
  PyObject *parts = PyTuple_New(l->count);
  for (unsigned i = 0; parts && i < l->count; i++) {
    struct penstock_component c = {0};
    penstock_layout_component(l, i, &c); /* cannot fail below the count */
    PyObject *part = part_tuple(&c);
    if (!part || PyTuple_SetItem(parts, (Py_ssize_t)i, part) < 0)
      Py_CLEAR(parts);
  }
  return parts;
}

static PyObject *layout_decode(PyObject *self, PyObject *blob) {
  char *bytes;
  Py_ssize_t size;
  struct penstock_layout l;
  (void)self;
  if (PyBytes_AsStringAndSize(blob, &bytes, &size) < 0)
    return NULL;
  int err = penstock_layout_parse(bytes, (size_t)size, &l);
  if (err < 0)
    return os_error(-err);
  PyObject *parts = parts_tuple(&l);
  if (!parts)
    return NULL;
  return Py_BuildValue("(NNIIIIN)", PyBool_FromLong(l.composite), PyBool_FromLong(l.big_endian), l.gen,
                       (unsigned)l.flags, (unsigned)l.mirrors, (unsigned)l.parity_count, parts);
}

/* ---- tuples to bytes ---- */

/* A number that a field of so many bits holds, else -1 with an exception. */
static int fits(unsigned long long value, int bits) {
  if (bits == 64 || value >> bits == 0)
    return 0;
  PyErr_Format(PyExc_OverflowError, "%llu does not fit a layout's field of %d bits", value, bits);
  return -1;
}

/* An integer attribute of a tuple.  Negative and too large ones are OverflowError. */
static int number_at(PyObject *tuple, Py_ssize_t i, int bits, unsigned long long *ret) {
  PyObject *item = PyTuple_GetItem(tuple, i);
  if (!item)
    return -1;
  *ret = PyLong_AsUnsignedLongLong(item);
  return PyErr_Occurred() ? -1 : fits(*ret, bits);
}

static int bytes_at(PyObject *tuple, Py_ssize_t i, char **bytes, Py_ssize_t *size) {
  PyObject *item = PyTuple_GetItem(tuple, i);
  return item ? PyBytes_AsStringAndSize(item, bytes, size) : -1;
}

enum { PART_FIELDS = 16, LAYOUT_FIELDS = 7 };

static int read_part_numbers(PyObject *part, struct penstock_component *c) {
  static const struct {
    Py_ssize_t at;
    int bits;
  } field[] = {{0, 64}, {1, 64}, {2, 32}, {3, 32}, {4, 32}, {5, 64}, {7, 32}, {8, 32}, {9, 64}, {10, 64}, {11, 32}, {12, 16}, {13, 16}};
  unsigned long long v[sizeof field / sizeof *field];
  for (size_t i = 0; i < sizeof field / sizeof *field; i++)
    if (number_at(part, field[i].at, field[i].bits, &v[i]) < 0)
      return -1;
  *c = (struct penstock_component){
    .start_bytes = v[0],
    .end_bytes = v[1],
    .id = (uint32_t)v[2],
    .flags = (uint32_t)v[3],
    .gen = (uint32_t)v[4],
    .timestamp = v[5],
    .magic = (uint32_t)v[6],
    .pattern = (uint32_t)v[7],
    .oi_id = v[8],
    .oi_seq = v[9],
    .stripe_size_bytes = (uint32_t)v[10],
    .stripe_count = (uint16_t)v[11],
    .stripe_offset = (uint16_t)v[12],
  };
  return 0;
}

static int read_part(PyObject *part, struct penstock_component *c) {
  char *extra, *pool, *objects;
  Py_ssize_t extra_size, pool_size, objects_size;
  if (!PyTuple_Check(part) || PyTuple_Size(part) != PART_FIELDS) {
    PyErr_SetString(PyExc_TypeError, "a part of a layout is a tuple of 16 fields");
    return -1;
  }
  if (read_part_numbers(part, c) < 0 || bytes_at(part, 6, &extra, &extra_size) < 0 ||
      bytes_at(part, 14, &pool, &pool_size) < 0 || bytes_at(part, 15, &objects, &objects_size) < 0)
    return -1;
  if (extra_size != sizeof c->extra || pool_size > PENSTOCK_POOL_BYTES || objects_size % PENSTOCK_LOV_OBJECT_BYTES ||
      objects_size > PENSTOCK_LAYOUT_MAX_BYTES * 64) {
    PyErr_SetString(PyExc_ValueError, "a field of a layout's part has an impossible length");
    return -1;
  }
  memcpy(c->extra, extra, sizeof c->extra);
  memcpy(c->pool, pool, (size_t)pool_size);
  c->object_count = (uint32_t)(objects_size / PENSTOCK_LOV_OBJECT_BYTES);
  c->raw_objects = (const uint8_t *)objects; /* lives as long as the tuple, which the caller holds */
  c->raw_big_endian = penstock_host_big_endian();
  return 0;
}

static PyObject *written(const struct penstock_layout *l) {
  ssize_t size = penstock_layout_size(l);
  if (size < 0)
    return os_error((int)-size);
  char *room = PyMem_Malloc((size_t)size);
  if (!room)
    return PyErr_NoMemory();
  ssize_t got = penstock_layout_write(l, room, (size_t)size);
  PyObject *ret = got < 0 ? os_error((int)-got) : PyBytes_FromStringAndSize(room, got);
  PyMem_Free(room);
  return ret;
}

/* The fields of a layout's head, and its parts in memory that the caller frees. */
static int read_layout(PyObject *tuple, struct penstock_layout *l, struct penstock_component **parts) {
  unsigned long long v[LAYOUT_FIELDS - 1];
  static const int bits[] = {1, 1, 32, 16, 16, 8};
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != LAYOUT_FIELDS) {
    PyErr_SetString(PyExc_TypeError, "a layout is a tuple of 7 fields");
    return -1;
  }
  for (Py_ssize_t i = 0; i < LAYOUT_FIELDS - 1; i++)
    if (number_at(tuple, i, bits[i], &v[i]) < 0)
      return -1;
  PyObject *rows = PyTuple_GetItem(tuple, LAYOUT_FIELDS - 1);
  Py_ssize_t count = rows ? PyTuple_Size(rows) : -1;
  if (count < 0 || fits((unsigned long long)count, 16) < 0)
    return -1;
  *parts = PyMem_Calloc(count ? (size_t)count : 1, sizeof **parts);
  if (!*parts) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++)
    if (read_part(PyTuple_GetItem(rows, i), &(*parts)[i]) < 0)
      return -1;
  *l = (struct penstock_layout){
    .composite = v[0] != 0,
    .big_endian = v[1] != 0,
    .gen = (uint32_t)v[2],
    .flags = (uint16_t)v[3],
    .mirrors = (uint16_t)v[4],
    .parity_count = (uint8_t)v[5],
    .count = (uint16_t)count,
    .parts = *parts,
  };
  return 0;
}

static PyObject *layout_encode(PyObject *self, PyObject *tuple) {
  struct penstock_layout l;
  struct penstock_component *parts = NULL;
  (void)self;
  PyObject *ret = read_layout(tuple, &l, &parts) < 0 ? NULL : written(&l);
  PyMem_Free(parts);
  return ret;
}

/* ---- questions about bytes ---- */

static int parsed(PyObject *blob, struct penstock_layout *l) {
  char *bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(blob, &bytes, &size) < 0)
    return -1;
  int err = penstock_layout_parse(bytes, (size_t)size, l);
  if (err < 0)
    os_error(-err);
  return err;
}

static PyObject *layout_check(PyObject *self, PyObject *blob) {
  struct penstock_layout l;
  (void)self;
  if (parsed(blob, &l) < 0)
    return NULL;
  int err = penstock_layout_check(&l);
  if (err < 0)
    return os_error(-err);
  Py_RETURN_NONE;
}

static PyObject *layout_is_copy(PyObject *self, PyObject *blob) {
  struct penstock_layout l;
  (void)self;
  return parsed(blob, &l) < 0 ? NULL : PyBool_FromLong(penstock_layout_is_copy(&l));
}

PyMethodDef penstock_module_layout[] = {
  {"layout_decode", layout_decode, METH_O, "layout_decode(blob): the tuples of a layout's bytes; OSError ERANGE or EINVAL."},
  {"layout_encode", layout_encode, METH_O, "layout_encode(tuples): the bytes of a layout."},
  {"layout_check", layout_check, METH_O, "layout_check(blob): OSError if Lustre would refuse to set it whatever OSTs there are."},
  {"layout_is_copy", layout_is_copy, METH_O, "layout_is_copy(blob): was it read from a file, so that setting it chooses OSTs anew?"},
  {NULL, NULL, 0, NULL},
};
