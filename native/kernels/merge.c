// SPDX-License-Identifier: Apache-2.0
/* Segments into a batch: how they become one.

   Merging takes all that a view of them holds, folder by folder, so that the entries of each come together; what the
   newest says holds (view.h).  Joining takes the folders that each segment listed: for segments of one scan, which
   listed no folder twice, so that it matters not which of them are joined first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/index_write.h"
#include "kernels/row_paths.h"
#include "kernels/view.h"

struct waiting {
  struct waiting *next;
  size_t size;
  char path[];
};

struct merging {
  struct penstock_batch *batch;
  struct waiting *top;
  char *parts;
  int err;
};

static int part(const struct penstock_visit *it, enum penstock_part kind, char *room, const void **bytes, size_t *size) {
  ssize_t have = it->entry->parts_at ? penstock_index_part(it->in, it->entry, kind, room, PENSTOCK_PART_MAX) : -ENODATA;
  if (have == -ENODATA)
    return 0;
  *bytes = room;
  *size = have < 0 ? 0 : (size_t)have;
  return have < 0 ? (int)have : 0;
}

static int put_entry(struct merging *m, const struct penstock_visit *it) {
  struct penstock_draft d = {.name = it->path + it->name_at, .name_size = it->path_size - it->name_at, .attrs = *it->entry};
  d.has_learnt = d.attrs.learnt_ns != 0;
  int err = part(it, PENSTOCK_PART_TARGET, m->parts, &d.target, &d.target_size);
  if (err == 0)
    err = part(it, PENSTOCK_PART_LAYOUT, m->parts + PENSTOCK_PART_MAX, &d.layout, &d.layout_size);
  if (err == 0)
    err = part(it, PENSTOCK_PART_SUMS, m->parts + 2 * PENSTOCK_PART_MAX, &d.sums, &d.sums_size);
  if (err < 0)
    return err;
  return it->path_size ? penstock_batch_add(m->batch, &d) : penstock_batch_root(m->batch, &d);
}

static int wait_for(struct merging *m, const char *path, size_t size) {
  struct waiting *w = malloc(sizeof *w + size);
  if (!w)
    return -ENOMEM;
  w->next = m->top;
  w->size = size;
  memcpy(w->path, path, size);
  m->top = w;
  return 0;
}

static enum penstock_walk take(void *state, const struct penstock_visit *it) {
  struct merging *m = state;
  if (it->depth == 0)
    m->err = it->path_size == 0 ? put_entry(m, it) : 0;
  else {
    m->err = put_entry(m, it);
    if (m->err == 0 && it->folder)
      m->err = wait_for(m, it->path, it->path_size);
  }
  return m->err ? PENSTOCK_WALK_STOP : PENSTOCK_WALK_ON;
}

static void lost(void *state, int err, const char *path, size_t size) {
  (void)path;
  (void)size;
  ((struct merging *)state)->err = err; /* a damaged folder must not become a whole one */
}

static int merge_folder(struct merging *m, const struct penstock_view *v, const struct waiting *w) {
  struct penstock_folder f;
  int err = penstock_view_walk(v, w->path, w->size, 1, take, lost, m);
  if (err == 0)
    err = m->err;
  if (err == 0)
    err = penstock_view_folder(v, w->path, w->size, &f);
  return err ? err : penstock_batch_close(m->batch, w->path, w->size, f.flags, f.learnt_ns);
}

int penstock_batch_merge(struct penstock_batch *b, const struct penstock_view *v) {
  struct merging m = {.batch = b, .parts = malloc(3 * (size_t)PENSTOCK_PART_MAX)};
  int err = m.parts ? wait_for(&m, "", 0) : -ENOMEM;
  while (m.top) {
    struct waiting *w = m.top;
    m.top = w->next;
    if (err == 0)
      err = merge_folder(&m, v, w);
    free(w);
  }
  free(m.parts);
  return err;
}

/* ---- joining ---- */

/* The entries of a folder and the folder. */
static int join_folder(struct merging *m, const struct penstock_index *ix, const struct penstock_row *row, char *name, const char *path, size_t size) {
  uint64_t at = row->children_at;
  for (uint32_t i = 0; i < row->children; i++) {
    struct penstock_entry e;
    int err = penstock_index_entry(ix, at, &e);
    ssize_t name_size = err < 0 ? err : penstock_index_name(ix, &e, name, PENSTOCK_NAME_MAX);
    if (name_size < 0)
      return (int)name_size;
    at += e.record_size;
    struct penstock_visit it = {.path = name, .path_size = (size_t)name_size, .depth = 1, .in = ix, .entry = &e};
    if (!(e.flags & PENSTOCK_PLACE) && (err = put_entry(m, &it)) < 0)
      return err;
  }
  return penstock_batch_close(m->batch, path, size, row->flags, row->learnt_ns);
}

static int join_segment(struct merging *m, const struct penstock_index *ix, char *name) {
  struct penstock_row_paths p;
  int err = penstock_row_paths_begin(&p, ix);
  for (uint32_t i = 0; err == 0 && i < p.rows; i++) {
    struct penstock_row row;
    struct penstock_entry own;
    if ((err = penstock_index_row(ix, i, &row)) < 0 || (err = penstock_index_entry(ix, row.record_at, &own)) < 0 ||
        (err = penstock_row_paths_next(&p, ix, &own)) < 0)
      break;
    struct penstock_visit root = {.path = "", .in = ix, .entry = &own};
    if (i == 0 && !(own.flags & PENSTOCK_PLACE))
      err = put_entry(m, &root);
    if (err == 0 && row.flags)
      err = join_folder(m, ix, &row, name, p.path[i], p.size[i]);
  }
  penstock_row_paths_end(&p);
  return err;
}

int penstock_batch_join(struct penstock_batch *b, const struct penstock_view *v) {
  struct merging m = {.batch = b, .parts = malloc(3 * (size_t)PENSTOCK_PART_MAX)};
  char *name = malloc(PENSTOCK_NAME_MAX);
  int err = m.parts && name ? 0 : -ENOMEM;
  for (unsigned i = 0; err == 0 && i < v->count; i++)
    err = join_segment(&m, v->segment[i], name);
  free(m.parts);
  free(name);
  return err;
}
