// SPDX-License-Identifier: Apache-2.0
/* Names and classes of the operations that the board counts. */
#pragma once
#include "calls_enum.h"

static const char *const penstock_operation_names[] = {PENSTOCK_OP_NAMES};
static const int penstock_operation_classes[] = {PENSTOCK_OP_CLASSES};
static const char *const penstock_class_names[] = {
  [PENSTOCK_CLASS_METADATA] = "metadata", [PENSTOCK_CLASS_DATA] = "data", [PENSTOCK_CLASS_DIRECTORY] = "directory",
  [PENSTOCK_CLASS_XATTR] = "xattr",       [PENSTOCK_CLASS_LOCK] = "lock",
};
