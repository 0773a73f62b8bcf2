// SPDX-License-Identifier: Apache-2.0
/* The folders of a segment: found by path, given ancestors and placeholders where they lack them, and ordered by path. */
#include "kernels/batch.h"

/* Paths in the order of a walk: '/' before every other byte. */
static int compare_paths(const char *a, size_t a_size, const char *b, size_t b_size) {
  size_t least = a_size < b_size ? a_size : b_size, i = 0;
  while (i < least && a[i] == b[i])
    i++;
  if (i == least)
    return a_size < b_size ? -1 : a_size > b_size;
  int x = a[i] == '/' ? -1 : (uint8_t)a[i], y = b[i] == '/' ? -1 : (uint8_t)b[i];
  return x - y;
}

static int by_path(const void *a, const void *b) {
  const struct folder *x = *(struct folder *const *)a, *y = *(struct folder *const *)b;
  return compare_paths(x->path, x->path_size, y->path, y->path_size);
}

static size_t slot_of(const struct writer *w, const char *path, size_t size) {
  size_t i = penstock_hash(2, path, size) & (w->slots - 1);
  for (; w->slot[i]; i = (i + 1) & (w->slots - 1)) {
    const struct folder *f = w->folder[w->slot[i] - 1];
    if (f->path_size == size && memcmp(f->path, path, size) == 0)
      break;
  }
  return i;
}

struct folder *penstock_folder_of(const struct writer *w, const char *path, size_t size) {
  uint32_t number = w->slot[slot_of(w, path, size)];
  return number ? w->folder[number - 1] : NULL;
}

/* Enters all folders anew, after their numbers changed or there are too many. */
int penstock_folders_enter_all(struct writer *w) {
  free(w->slot);
  for (w->slots = 64; w->slots < 2 * w->room; w->slots *= 2) { }
  if (!(w->slot = calloc(w->slots, sizeof *w->slot)))
    return -ENOMEM;
  for (size_t i = 0; i < w->folders; i++)
    w->slot[slot_of(w, w->folder[i]->path, w->folder[i]->path_size)] = (uint32_t)i + 1;
  return 0;
}

static bool is_listed(const struct folder *f) { return f->flags & (PENSTOCK_COMPLETE | PENSTOCK_LISTED); }

int penstock_folders_enter(struct writer *w, struct folder *f) {
  size_t before = w->room;
  size_t i = w->slots ? slot_of(w, f->path, f->path_size) : 0;
  if (w->slots && w->slot[i]) { /* a second time: one that was listed stays, else the later */
    struct folder **had = &w->folder[w->slot[i] - 1];
    bool new_listed = is_listed(f), had_listed = is_listed(*had);
    if (new_listed != had_listed ? new_listed : f->learnt_ns >= (*had)->learnt_ns)
      *had = f;
    return 0;
  }
  if (grow(&w->folder, &w->room, w->folders, sizeof *w->folder) < 0)
    return -ENOMEM;
  w->folder[w->folders++] = f;
  if (w->room != before || !w->slots)
    return penstock_folders_enter_all(w);
  w->slot[i] = (uint32_t)w->folders;
  return 0;
}

static size_t parent_size(const struct folder *f) {
  const char *slash = memrchr(f->path, '/', f->path_size);
  return slash ? (size_t)(slash - f->path) : 0;
}

/* Every folder's folder, up to the root, is one of ours. */
int penstock_folders_add_ancestors(struct writer *w) {
  struct folder *root = penstock_folder_of(w, "", 0);
  if (!root) {
    if (!(root = penstock_arena_take(&w->arena, sizeof *root)))
      return -ENOMEM;
    *root = (struct folder){.path = "", .learnt_ns = INT64_MIN};
    if (penstock_folders_enter(w, root) < 0)
      return -ENOMEM;
  }
  for (size_t i = 0; i < w->folders; i++) {
    struct folder *f = w->folder[i];
    size_t size = parent_size(f);
    if (f->path_size == 0 || penstock_folder_of(w, f->path, size))
      continue;
    struct folder *parent = penstock_arena_take(&w->arena, sizeof *parent);
    if (!parent)
      return -ENOMEM;
    *parent = (struct folder){.path = f->path, .path_size = (uint32_t)size, .learnt_ns = INT64_MIN};
    if (penstock_folders_enter(w, parent) < 0)
      return -ENOMEM;
  }
  return 0;
}

/* Steps over a record: its size. */
size_t penstock_record_size(const uint8_t *p) {
  struct penstock_raw_record r;
  memcpy(&r, p, sizeof r);
  size_t size = sizeof r + penstock_up4(r.name_size) + (r.flags & PENSTOCK_HAS_ROW ? 4 : 0);
  uint32_t parts;
  if (r.flags & PENSTOCK_PARTS) {
    memcpy(&parts, p + size, 4);
    size += 4 + penstock_up4(parts);
  }
  return size;
}

static int compare_name_with(const uint8_t *record, const char *name, size_t size) {
  struct penstock_raw_record r;
  memcpy(&r, record, sizeof r);
  int order = memcmp(record + sizeof r, name, r.name_size < size ? r.name_size : size);
  return order ? order : (r.name_size > size) - (r.name_size < size);
}

/* A placeholder's record: for a folder without entry of its own. */
size_t penstock_put_place(uint8_t *p, const char *name, size_t size) {
  struct penstock_raw_record r = {.owner = PENSTOCK_OWNERS_MAX,
                                  .flags = PENSTOCK_PLACE | PENSTOCK_HAS_ROW | PENSTOCK_BLOCKS_NONE,
                                  .mtime = penstock_time_pack((struct penstock_time){0, 0}),
                                  .name_size = (uint16_t)size};
  r.ctime = r.atime = r.mtime;
  memcpy(p, &r, sizeof r);
  memset(p + sizeof r, 0, penstock_up4(size));
  memcpy(p + sizeof r, name, size);
  memset(p + sizeof r + penstock_up4(size), 0xff, 4);
  return sizeof r + penstock_up4(size) + 4;
}

/* The children folders [first, last) of a folder, in order: those without a record in it get a placeholder. */
static int add_places(struct writer *w, struct folder *f, size_t first, size_t last) {
  size_t most = f->bytes;
  for (size_t i = first; i < last; i++)
    most += PENSTOCK_RECORD_BYTES + 8 + w->folder[i]->path_size;
  uint8_t *made = malloc(most ? most : 1), *p = made, *old = f->records, *end = f->records + f->bytes;
  if (!made)
    return -ENOMEM;
  uint32_t count = 0;
  for (size_t i = first; i < last || old < end;) {
    size_t size = 0;
    const char *name = "";
    int order = -1; /* the old record comes first */
    if (i < last) {
      const struct folder *child = w->folder[i];
      size = f->path_size ? f->path_size + 1 : 0;
      name = child->path + size;
      size = child->path_size - size;
      order = old < end ? compare_name_with(old, name, size) : 1;
    }
    if (order <= 0) {
      size_t length = penstock_record_size(old);
      memcpy(p, old, length);
      p += length;
      old += length;
      i += order == 0;
    } else {
      p += penstock_put_place(p, name, size);
      i++;
    }
    count++;
  }
  f->records = made;
  f->bytes = (size_t)(p - made);
  f->count = count;
  f->owned = true;
  return 0;
}

static bool is_child(const struct folder *f, const struct folder *of) { return f->path_size && parent_size(f) == of->path_size && memcmp(f->path, of->path, of->path_size) == 0; }

/* Does every child folder have a record here?  Both in order. */
static bool has_records(const struct writer *w, const struct folder *f, size_t first, size_t last) {
  const uint8_t *p = f->records, *end = p + f->bytes;
  size_t skip = f->path_size ? f->path_size + 1 : 0;
  for (size_t i = first; i < last; p += penstock_record_size(p)) {
    if (p >= end)
      return false;
    int order = compare_name_with(p, w->folder[i]->path + skip, w->folder[i]->path_size - skip);
    if (order > 0)
      return false;
    i += order == 0;
  }
  return true;
}

static int by_parent(const void *a, const void *b) {
  const struct folder *x = *(struct folder *const *)a, *y = *(struct folder *const *)b;
  int order = compare_paths(x->path, parent_size(x), y->path, parent_size(y));
  return order ? order : by_path(a, b);
}

/* Orders folders by their parents, gives each parent what it lacks, then orders them by path. */
int penstock_folders_complete(struct writer *w) {
  qsort(w->folder, w->folders, sizeof *w->folder, by_parent);
  int err = penstock_folders_enter_all(w);
  for (size_t first = 0; err == 0 && first < w->folders;) {
    if (w->folder[first]->path_size == 0) {
      first++;
      continue;
    }
    struct folder *parent = penstock_folder_of(w, w->folder[first]->path, parent_size(w->folder[first]));
    size_t last = first + 1;
    while (last < w->folders && is_child(w->folder[last], parent))
      last++;
    if (!has_records(w, parent, first, last))
      err = add_places(w, parent, first, last);
    first = last;
  }
  if (err == 0) {
    qsort(w->folder, w->folders, sizeof *w->folder, by_path);
    err = penstock_folders_enter_all(w);
  }
  return err;
}
