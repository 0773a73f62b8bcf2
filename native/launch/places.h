// SPDX-License-Identifier: Apache-2.0
/* Where files lie: the type of file system under a path, and the layouts of files on parallel file systems.

   Invariant: reading layouts is bounded in number and time, also where a server hangs: another process does it, which is
   killed and not waited for when the time is over. */
#pragma once
#include "launch/picture.h"

struct penstock_mount {
  char *point;
  size_t size; /* of point; 0 is the root */
  char type[32];
};
struct penstock_mounts {
  struct penstock_mount *mount;
  size_t count;
};
/* Those of this process; none when /proc does not tell. */
void penstock_mounts_read(struct penstock_mounts *ret);
void penstock_mounts_free(struct penstock_mounts *m);
/* The type under an absolute path, "" when it is not known. */
const char *penstock_mounts_type(const struct penstock_mounts *m, const char *path, size_t size);

enum { PENSTOCK_LAYOUTS_MAX = 10000, PENSTOCK_LAYOUTS_MS = 2000 };
struct penstock_blob {
  uint8_t *data;
  uint32_t size;
};
/* The lustre.lov of the picture's files (an element a file), where they have one; NULL when there is none at all. */
struct penstock_blob *penstock_layouts_read(const struct penstock_picture *p, const struct penstock_mounts *m);
void penstock_layouts_free(struct penstock_blob *b, uint32_t count);
