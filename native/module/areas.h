// SPDX-License-Identifier: Apache-2.0
/* The method tables that the files of this folder hand to native.c. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef penstock_module_board[];    /* board.c */
extern PyMethodDef penstock_module_catalog[];  /* catalog.c */
extern PyMethodDef penstock_module_counters[]; /* counters.c */
extern PyMethodDef penstock_module_launch[];   /* launch.c */
extern PyMethodDef penstock_module_layout[];   /* layout.c */
extern PyMethodDef penstock_module_place[];    /* place.c */
extern PyMethodDef penstock_module_ring[];     /* ring.c */
extern PyMethodDef penstock_module_limits[];   /* limits.c */
extern PyMethodDef penstock_module_watch[];    /* watch.c */
extern PyMethodDef penstock_module_scan[];     /* scan.c */

int penstock_module_add_catalog(PyObject *module); /* the types Entry and View; -1: an exception stands */
