// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int penstock_row_paths_begin(struct penstock_row_paths *p, const struct penstock_index *ix) {
  *p = (struct penstock_row_paths){.rows = (uint32_t)ix->h.rows};
  p->path = calloc((size_t)p->rows + 1, sizeof *p->path);
  p->size = calloc((size_t)p->rows + 1, sizeof *p->size);
  return p->path && p->size ? 0 : -ENOMEM;
}

int penstock_row_paths_next(struct penstock_row_paths *p, const struct penstock_index *ix, const struct penstock_entry *own) {
  uint32_t row = p->done;
  if (row >= p->rows || (row > 0 && own->folder >= row))
    return -EBADMSG;
  const char *parent = row ? p->path[own->folder] : "";
  size_t parent_size = row ? p->size[own->folder] : 0, name_at = parent_size ? parent_size + 1 : 0;
  char *path = malloc(name_at + own->name_size + 1);
  if (!path)
    return -ENOMEM;
  memcpy(path, parent, parent_size);
  if (name_at)
    path[parent_size] = '/';
  ssize_t size = penstock_index_name(ix, own, path + name_at, own->name_size);
  path[name_at + own->name_size] = 0;
  p->path[row] = path;
  p->size[row] = name_at + own->name_size;
  p->done++;
  return size < 0 ? (int)size : 0;
}

void penstock_row_paths_end(struct penstock_row_paths *p) {
  for (uint32_t i = 0; p->path && i < p->done; i++)
    free(p->path[i]);
  free(p->path);
  free(p->size);
}
