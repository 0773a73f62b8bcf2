// SPDX-License-Identifier: Apache-2.0
/* What catalog.c and scan.c of this folder share. */
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
