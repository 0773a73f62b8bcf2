// SPDX-License-Identifier: Apache-2.0
/* Paths of a segment's folders, row by row: rows stand in path order, so that a folder's parent comes before it.

   penstock_row_paths_next is called for each row in turn, with the folder's own record; then path[row] and size[row] hold. */
#pragma once
#include "kernels/index.h"

struct penstock_row_paths {
  char **path;
  size_t *size;
  uint32_t rows, done;
};

int penstock_row_paths_begin(struct penstock_row_paths *p, const struct penstock_index *ix);
int penstock_row_paths_next(struct penstock_row_paths *p, const struct penstock_index *ix, const struct penstock_entry *own);
void penstock_row_paths_end(struct penstock_row_paths *p);
