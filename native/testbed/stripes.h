// SPDX-License-Identifier: Apache-2.0
/* The objects behind an open file: where each byte lies, and moving bytes to and from the objects' files.
 *
 * Invariants:
 * 1. A `struct stripes` does not change once made, but for descriptors and what is known of the objects' room; a new
 *    layout (a component got its objects) is a new one, and the old stays until the last user of the inode goes.
 * 2. An object's index counts over all components, in the order of the layout; the service model sees the same index.
 * 3. Room is taken from an OST before bytes are written, and settled after by what the object's file really takes.
 */
#pragma once
#include "kernels/layout.h"
#include "testbed/store.h"

struct object {
  uint32_t ost; /* STORE_MDT: data on the MDT */
  uint64_t number;
  atomic_int fd; /* -1: not open */
  bool known;           /* this and the next two under `settling`: set from the file at its first use */
  uint64_t room_bytes;  /* settled with the OST */
  uint64_t dense_bytes; /* no holes below: writing there takes no room */
};

struct part {
  struct penstock_component shape;
  bool ready; /* has its objects */
  bool on_mdt;
  uint32_t first; /* index of its first object */
  uint32_t count;
};

struct stripes {
  struct stripes *older;
  struct penstock_layout view; /* of `bytes` */
  uint32_t part_count, object_count;
  struct part *parts;
  struct object *objects;
  uint32_t *osts; /* of the objects that lie on OSTs: what the service model is told */
  uint32_t ost_count;
  pthread_mutex_t settling;
  size_t size;
  uint8_t bytes[]; /* the stored layout */
};

/* Where the objects come from and who keeps their books. */
struct stripes_env {
  struct store *store;
  struct model *model;
  atomic_int *open_files; /* how many objects are open in all */
  int open_limit;         /* beyond it they are opened for each use */
};

/* What a layout of `ino` says; NULL: no memory, or not a layout. */
struct stripes *stripes_new(uint64_t ino, const void *stored, size_t size);
void stripes_free(struct stripes *s, const struct stripes_env *env);

/* A piece of the file that lies together: 0, or -ENODATA when no component is there, or none with objects yet. */
struct piece {
  uint32_t object;
  uint64_t offset; /* in the object */
  uint64_t size;
};
int stripes_locate(const struct stripes *s, uint64_t offset, uint64_t size, struct piece *ret);
/* Do all bytes of the range have objects, and are other mirrors of them stale?  -ENODATA: some never will have (past the
 * last component). */
int stripes_ready(const struct stripes *s, uint64_t start, uint64_t end, bool *ready);

/* Read a piece; what the object does not hold reads as zeros.  0 or -errno. */
int stripes_read(struct stripes *s, const struct stripes_env *env, const struct piece *p, void *data);
/* Write a piece: 0 or -errno; *grew_bytes is what the object takes more than before. */
int stripes_write(struct stripes *s, const struct stripes_env *env, const struct piece *p, const void *data,
                  int64_t *grew_bytes);
/* Cut all objects to their share of a file of this size; *grew_bytes is then below 0. */
int stripes_cut(struct stripes *s, const struct stripes_env *env, uint64_t size_bytes, int64_t *grew_bytes);
/* fallocate on a piece. */
int stripes_allocate(struct stripes *s, const struct stripes_env *env, const struct piece *p, int mode,
                     int64_t *grew_bytes);
/* The next byte of data (or hole) of a piece, as an offset in the piece; its size if there is none. */
uint64_t stripes_seek(struct stripes *s, const struct stripes_env *env, const struct piece *p, bool data);

/* Bytes of object `i` in a file of this size. */
uint64_t stripes_object_size(const struct stripes *s, uint32_t i, uint64_t size_bytes);

/* For layouts that nobody has open: make the objects of a new layout that an old one (NULL: none) has not, or remove
 * all.  Making: on an error those already made are removed again. */
int stripes_make_objects(const struct stripes *s, const struct stripes *old, const struct stripes_env *env);
void stripes_remove_objects(const struct stripes *s, const struct stripes_env *env);
