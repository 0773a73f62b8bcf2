// SPDX-License-Identifier: Apache-2.0
/* penstock._native: the Python face of the kernels and the board.  Each area has its own file and hands its method
   table to `areas`; nothing here decides anything. */
#include "areas.h"

#include "kernels/crc32c.h"

static PyObject *crc32c(PyObject *self, PyObject *args) {
  const char *data;
  Py_ssize_t size;
  unsigned int crc = 0;
  (void)self;
  if (!PyArg_ParseTuple(args, "y#|I", &data, &size, &crc))
    return NULL;
  return PyLong_FromUnsignedLong(penstock_crc32c(crc, data, (size_t)size));
}

static PyMethodDef checks[] = {
  {"crc32c", crc32c, METH_VARARGS, "crc32c(data, crc=0): the CRC-32C of bytes, carried on from crc."},
  {NULL, NULL, 0, NULL},
};

static PyMethodDef *const areas[] = {
  checks,
  penstock_module_board,
  penstock_module_catalog,
  penstock_module_counters,
  penstock_module_launch,
  penstock_module_layout,
  penstock_module_limits,
  penstock_module_place,
  penstock_module_ring,
  penstock_module_scan,
  penstock_module_watch,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "penstock._native", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
  PyObject *m = PyModule_Create(&module);
  for (size_t i = 0; m && i < sizeof areas / sizeof *areas; i++)
    if (PyModule_AddFunctions(m, areas[i]) < 0)
      Py_CLEAR(m);
  if (m && penstock_module_add_catalog(m) < 0)
    Py_CLEAR(m);
  return m;
}
