// SPDX-License-Identifier: Apache-2.0
/* Limits from Python: an agent's hold on a board's limits as a capsule, and the names of what can be limited. */
#include "areas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "board/holder.h"
#include "launch/operations.h"

#define NAME "penstock.limits"

static void end(PyObject *capsule) {
  struct penstock_holder *h = PyCapsule_GetPointer(capsule, NAME);
  if (h)
    penstock_hold_end(h);
  free(h);
}

static struct penstock_holder *holder_of(PyObject *capsule) {
  struct penstock_holder *h = PyCapsule_GetPointer(capsule, NAME);
  if (h && !h->control) {
    PyErr_SetString(PyExc_ValueError, "these limits are no longer held");
    return NULL;
  }
  return h;
}

static PyObject *limits_hold(PyObject *self, PyObject *args) {
  PyObject *folder, *capsule = NULL;
  (void)self;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &folder))
    return NULL;
  struct penstock_holder *h = malloc(sizeof *h);
  int error = h ? penstock_hold(h, PyBytes_AsString(folder)) : -ENOMEM;
  if (error) {
    errno = -error;
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, folder);
  } else if (!(capsule = PyCapsule_New(h, NAME, end)))
    penstock_hold_end(h);
  if (!capsule)
    free(h);
  Py_DECREF(folder);
  return capsule;
}

static PyObject *limits_end(PyObject *self, PyObject *args) {
  PyObject *capsule;
  (void)self;
  if (!PyArg_ParseTuple(args, "O", &capsule))
    return NULL;
  struct penstock_holder *h = PyCapsule_GetPointer(capsule, NAME);
  if (!h)
    return NULL;
  if (h->control)
    penstock_hold_end(h);
  Py_RETURN_NONE;
}

static PyObject *limits_wrong(PyObject *self, PyObject *args) {
  const char *spec;
  Py_ssize_t size;
  (void)self;
  if (!PyArg_ParseTuple(args, "y#", &spec, &size))
    return NULL;
  const char *wrong = penstock_limits_wrong(spec, (size_t)size);
  return wrong ? PyUnicode_FromString(wrong) : Py_NewRef(Py_None);
}

static PyObject *limits_apply(PyObject *self, PyObject *args) {
  PyObject *capsule;
  const char *spec, *wrong;
  Py_ssize_t size;
  (void)self;
  if (!PyArg_ParseTuple(args, "Oy#", &capsule, &spec, &size))
    return NULL;
  struct penstock_holder *h = holder_of(capsule);
  if (!h)
    return NULL;
  if ((wrong = penstock_limits_wrong(spec, (size_t)size))) {
    PyErr_SetString(PyExc_ValueError, wrong);
    return NULL;
  }
  if (!penstock_hold_apply(h, spec)) {
    PyErr_SetString(PyExc_ValueError, "no bucket is free on this board");
    return NULL;
  }
  Py_RETURN_NONE;
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static PyObject *limits_change(PyObject *self, PyObject *args) {
  PyObject *capsule;
  unsigned bucket, on_lost;
  int open, shadow;
  unsigned long long rate, burst, most, lease, lost, ceiling;
  (void)self;
  if (!PyArg_ParseTuple(args, "OIKKKKIKppK", &capsule, &bucket, &rate, &burst, &most, &lease, &on_lost, &lost, &open, &shadow,
                        &ceiling))
    return NULL;
  struct penstock_holder *h = holder_of(capsule);
  if (!h)
    return NULL;
  if (bucket >= PENSTOCK_BUCKETS_MAX || !h->limits->name[bucket][0] || on_lost > PENSTOCK_LOST_RATE) {
    PyErr_SetString(PyExc_ValueError, "there is no such bucket, or no such word for on_lost");
    return NULL;
  }
  struct penstock_want want = {rate, burst, most, lease, lost, on_lost, open, shadow, ceiling};
  penstock_bucket_change(&h->limits->bucket[bucket], &want, now(), &h->carry[bucket]);
  Py_RETURN_NONE;
}

static PyObject *limits_renew(PyObject *self, PyObject *args) {
  PyObject *capsule;
  unsigned long long lease;
  (void)self;
  if (!PyArg_ParseTuple(args, "OK", &capsule, &lease))
    return NULL;
  struct penstock_holder *h = holder_of(capsule);
  if (!h)
    return NULL;
  penstock_hold_renew(h, lease);
  Py_RETURN_NONE;
}

static PyObject *limits_give_back(PyObject *self, PyObject *args) {
  PyObject *capsule;
  (void)self;
  if (!PyArg_ParseTuple(args, "O", &capsule))
    return NULL;
  struct penstock_holder *h = holder_of(capsule);
  return h ? PyLong_FromUnsignedLong(penstock_hold_give_back(h)) : NULL;
}

/* In the order of runs/limits.py's Held. */
static PyObject *held_of(unsigned bucket, const char *name, const struct penstock_held *s, uint64_t now_ns) {
  const struct penstock_demand *d = &s->demand;
  long long left = (long long)(s->line.until_ns - now_ns);
  return Py_BuildValue("(Iy#KKKiiLLKKKKKKKKIKKK)", bucket, name, (Py_ssize_t)strnlen(name, PENSTOCK_LIMIT_NAME_BYTES),
                       (unsigned long long)s->line.rate, (unsigned long long)s->line.burst,
                       (unsigned long long)s->line.lost_rate, (int)s->line.on_lost,
                       (int)(s->line.open | s->shadow << 1), left, (long long)s->owed, (unsigned long long)s->asked, (unsigned long long)d->delayed, (unsigned long long)d->waited_ns,
                       (unsigned long long)d->ceilings, (unsigned long long)d->lost, (unsigned long long)d->torn,
                       (unsigned long long)d->unplaced, (unsigned long long)s->given, s->waiting,
                       (unsigned long long)s->waiting_units, (unsigned long long)s->waiting_ns,
                       (unsigned long long)s->longest_ns);
}

static PyObject *limits_observe(PyObject *self, PyObject *args) {
  PyObject *capsule;
  struct penstock_held held[PENSTOCK_BUCKETS_MAX];
  (void)self;
  if (!PyArg_ParseTuple(args, "O", &capsule))
    return NULL;
  struct penstock_holder *h = holder_of(capsule);
  if (!h)
    return NULL;
  if (!penstock_hold_observe(h, held)) {
    PyErr_SetString(PyExc_OSError, "the board's usage cannot be read, or is too short");
    return NULL;
  }
  PyObject *list = PyList_New(0);
  uint64_t now_ns = now();
  for (unsigned i = 0; list && i < PENSTOCK_BUCKETS_MAX; i++) {
    PyObject *row = h->limits->name[i][0] ? held_of(i, h->limits->name[i], &held[i], now_ns) : NULL;
    if ((row && PyList_Append(list, row) < 0) || PyErr_Occurred())
      Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

static PyObject *limits_bytes(PyObject *self, PyObject *args) {
  PyObject *capsule;
  (void)self;
  if (!PyArg_ParseTuple(args, "O", &capsule))
    return NULL;
  struct penstock_holder *h = holder_of(capsule);
  return h ? PyLong_FromUnsignedLongLong(h->limits->rules[h->limits->rules_gen & 1].bytes) : NULL;
}

static PyObject *operations(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < PENSTOCK_OPS; i++) {
    PyObject *row = Py_BuildValue("(ss)", penstock_operation_names[i], penstock_class_names[penstock_operation_classes[i]]);
    if (!row || PyList_Append(list, row) < 0)
      Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

PyMethodDef penstock_module_limits[] = {
  {"operations", operations, METH_NOARGS, "operations(): (name, class) of each operation of calls.def, by its number."},
  {"limits_hold", limits_hold, METH_VARARGS, "limits_hold(board): a hold on its limits, for the functions below."},
  {"limits_end", limits_end, METH_VARARGS, "limits_end(hold): lets go; what holds goes on until its lease is over."},
  {"limits_wrong", limits_wrong, METH_VARARGS, "limits_wrong(spec): what is wrong with it, or None."},
  {"limits_apply", limits_apply, METH_VARARGS, "limits_apply(hold, spec): what it says holds from now on."},
  {"limits_change", limits_change, METH_VARARGS,
   "limits_change(hold, bucket, rate, burst, most, lease_ns, on_lost, lost_rate, open, shadow, ceiling_ns); rates are "
   "1/1024 units a second."},
  {"limits_renew", limits_renew, METH_VARARGS, "limits_renew(hold, lease_ns): all leases end so long from now."},
  {"limits_give_back", limits_give_back, METH_VARARGS, "limits_give_back(hold): how many dead waiters gave tickets back."},
  {"limits_bytes", limits_bytes, METH_VARARGS, "limits_bytes(hold): bit n says that bucket n counts bytes."},
  {"limits_observe", limits_observe, METH_VARARGS, "limits_observe(hold): a tuple a bucket; see runs/limits.py."},
  {NULL, NULL, 0, NULL},
};
