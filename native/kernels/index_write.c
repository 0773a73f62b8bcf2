// SPDX-License-Identifier: Apache-2.0
/* Writing a segment: see index_write.h.

   A closed folder is a `struct folder` with its records as they will stand in the file, sorted by name, in memory of the
   batch; only the numbers of folders and rows in them are filled in at the end, when the order of folders is known. */
#include "kernels/index_write.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/index_format.h"

enum { ARENA_BYTES = 1 << 20, SINK_BYTES = 1 << 18, BLOCK = PENSTOCK_BLOCK_BYTES, OWNERS_SLOTS = 1 << 17 };

/* ---- memory that only grows ---- */

struct arena {
  struct arena *before;
  size_t used, room;
  uint8_t bytes[];
};

static void *arena_take(struct arena **a, size_t size) {
  size = (size + 7) & ~(size_t)7;
  if (!*a || (*a)->room - (*a)->used < size) {
    size_t room = size > ARENA_BYTES ? size : ARENA_BYTES;
    struct arena *next = malloc(sizeof *next + room);
    if (!next)
      return NULL;
    *next = (struct arena){.before = *a, .room = room};
    *a = next;
  }
  void *p = (*a)->bytes + (*a)->used;
  (*a)->used += size;
  return p;
}

static void arena_free(struct arena *a) {
  while (a) {
    struct arena *before = a->before;
    free(a);
    a = before;
  }
}

/* Makes room for one more of `unit` bytes. */
static int grow(void *list, size_t *room, size_t count, size_t unit) {
  if (count < *room)
    return 0;
  size_t next = *room ? *room * 2 : 64;
  void *p = realloc(*(void **)list, next * unit);
  if (!p)
    return -ENOMEM;
  *(void **)list = p;
  *room = next;
  return 0;
}

/* ---- owners ---- */

struct owners {
  struct penstock_raw_owner *row;
  size_t count, room;
  uint16_t *slot; /* number + 1 */
  uint16_t last;
};

static int owner_number(struct owners *o, struct penstock_raw_owner want) {
  if (o->count && memcmp(&o->row[o->last], &want, sizeof want) == 0)
    return o->last;
  if (!o->slot && !(o->slot = calloc(OWNERS_SLOTS, sizeof *o->slot)))
    return -ENOMEM;
  size_t i = penstock_hash(1, &want, sizeof want) % OWNERS_SLOTS;
  for (; o->slot[i]; i = (i + 1) % OWNERS_SLOTS)
    if (memcmp(&o->row[o->slot[i] - 1], &want, sizeof want) == 0)
      return o->last = (uint16_t)(o->slot[i] - 1);
  if (o->count == PENSTOCK_OWNERS_MAX)
    return PENSTOCK_OWNERS_MAX;
  if (grow(&o->row, &o->room, o->count, sizeof *o->row) < 0)
    return -ENOMEM;
  o->row[o->count++] = want;
  o->slot[i] = (uint16_t)o->count;
  return o->last = (uint16_t)(o->count - 1);
}

static void owners_free(struct owners *o) {
  free(o->row);
  free(o->slot);
}

/* ---- batches ---- */

struct place {
  uint64_t key; /* first bytes of the name, as a number that sorts like them */
  uint32_t at, size;
  uint32_t turn;
};

struct folder {
  const char *path;
  uint8_t *records;
  size_t bytes;
  const uint16_t *owner; /* numbers of its batch's owners in the file; NULL: none to change */
  int64_t learnt_ns;
  uint32_t path_size, count, flags;
  uint32_t row, record, children; /* filled in by writing */
  uint64_t path_hash;             /* the same */
  bool owned;                     /* records were made while writing */
};

struct penstock_batch {
  struct arena *arena;
  struct owners owners;
  struct folder *folder;
  size_t folders, folders_room;
  uint8_t *scratch; /* records of the folder being added to, in the order of adding */
  size_t used, room;
  struct place *place;
  size_t places, places_room;
  uint8_t *root;
  size_t root_bytes, entries, bytes;
};

struct penstock_batch *penstock_batch_new(void) { return calloc(1, sizeof(struct penstock_batch)); }

void penstock_batch_free(struct penstock_batch *b) {
  if (!b)
    return;
  arena_free(b->arena);
  owners_free(&b->owners);
  free(b->folder);
  free(b->scratch);
  free(b->place);
  free(b);
}

size_t penstock_batch_entries(const struct penstock_batch *b) { return b->entries; }
size_t penstock_batch_bytes(const struct penstock_batch *b) { return b->bytes; }
void penstock_batch_forget(struct penstock_batch *b) { b->used = b->places = 0; }

static int reserve(struct penstock_batch *b, size_t size) {
  if (b->room - b->used >= size)
    return 0;
  size_t room = b->room ? b->room * 2 : 1 << 16;
  while (room - b->used < size)
    room *= 2;
  uint8_t *p = realloc(b->scratch, room);
  if (!p)
    return -ENOMEM;
  b->scratch = p;
  b->room = room;
  return 0;
}

static uint8_t *put_part(uint8_t *p, enum penstock_part kind, const void *bytes, size_t size) {
  uint32_t head = (uint32_t)kind | (uint32_t)size << 16;
  memcpy(p, &head, 4);
  memset(p + 4 + (size & ~(size_t)3), 0, penstock_up4(size) - (size & ~(size_t)3));
  memcpy(p + 4, bytes, size);
  return p + 4 + penstock_up4(size);
}

static void put_times(uint8_t *p, const struct penstock_entry *e) {
  const struct penstock_time *const t[] = {&e->mtime, &e->ctime, &e->atime};
  for (int i = 0; i < 3; i++) {
    memcpy(p + 12 * i, &t[i]->s, 8);
    memcpy(p + 12 * i + 8, &t[i]->ns, 4);
  }
}

static uint16_t blocks_flag(const struct penstock_entry *e) {
  return e->blocks == 0 ? PENSTOCK_BLOCKS_NONE : e->blocks == penstock_blocks_by_size(e->size) ? PENSTOCK_BLOCKS_BY_SIZE : 0;
}

/* The parts of a draft at `p`; their size. */
static size_t put_parts(uint8_t *p, const struct penstock_draft *d, uint16_t owner, bool times) {
  const struct penstock_entry *e = &d->attrs;
  uint8_t *begin = p, wide[36];
  if (d->target)
    p = put_part(p, PENSTOCK_PART_TARGET, d->target, d->target_size);
  if (d->layout)
    p = put_part(p, PENSTOCK_PART_LAYOUT, d->layout, d->layout_size);
  if (d->sums)
    p = put_part(p, PENSTOCK_PART_SUMS, d->sums, d->sums_size);
  if (!blocks_flag(e))
    p = put_part(p, PENSTOCK_PART_BLOCKS, &e->blocks, 8);
  if (e->nlink >= UINT16_MAX)
    p = put_part(p, PENSTOCK_PART_LINKS, &e->nlink, 4);
  if (owner == PENSTOCK_OWNERS_MAX)
    p = put_part(p, PENSTOCK_PART_OWNER, &(struct penstock_raw_owner){e->mode, e->uid, e->gid}, 12);
  if (e->rdev)
    p = put_part(p, PENSTOCK_PART_RDEV, &e->rdev, 8);
  if (d->has_learnt)
    p = put_part(p, PENSTOCK_PART_LEARNT, &e->learnt_ns, 8);
  if (e->error)
    p = put_part(p, PENSTOCK_PART_ERROR, &e->error, 4);
  if (times) {
    put_times(wide, e);
    p = put_part(p, PENSTOCK_PART_TIMES, wide, sizeof wide);
  }
  return (size_t)(p - begin);
}

enum { SMALL_PARTS_BYTES = 160 }; /* all parts that are no target, layout or sums */

/* Writes the record at the scratch's end; its size or an error. */
static ssize_t put_record(struct penstock_batch *b, const struct penstock_draft *d) {
  const struct penstock_entry *e = &d->attrs;
  size_t name = penstock_up4(d->name_size);
  if (d->name_size > PENSTOCK_NAME_MAX)
    return -ENAMETOOLONG;
  if (d->target_size > PENSTOCK_PART_MAX || d->layout_size > PENSTOCK_PART_MAX || d->sums_size > PENSTOCK_PART_MAX)
    return -EFBIG;
  size_t most = PENSTOCK_RECORD_BYTES + name + 8 + SMALL_PARTS_BYTES + d->target_size + d->layout_size + d->sums_size + 24;
  int owner = owner_number(&b->owners, (struct penstock_raw_owner){e->mode, e->uid, e->gid});
  if (owner < 0 || reserve(b, most) < 0)
    return -ENOMEM;
  bool times = !(penstock_time_packs(e->mtime) && penstock_time_packs(e->ctime) && penstock_time_packs(e->atime));
  bool folder = S_ISDIR(e->mode) || e->flags & PENSTOCK_PLACE;
  uint8_t *begin = b->scratch + b->used, *p = begin + PENSTOCK_RECORD_BYTES;
  memset(p + (d->name_size & ~(size_t)3), 0, name - (d->name_size & ~(size_t)3));
  memcpy(p, d->name, d->name_size);
  p += name;
  if (folder) { /* the row's number, filled in by writing */
    memset(p, 0xff, 4);
    p += 4;
  }
  uint32_t parts = (uint32_t)put_parts(p + 4, d, (uint16_t)owner, times);
  if (parts > 0) {
    memcpy(p, &parts, 4);
    p += 4 + parts;
  }
  uint16_t kept = e->flags & (PENSTOCK_GONE | PENSTOCK_PLACE | PENSTOCK_DOUBT | PENSTOCK_CAPTURED | PENSTOCK_CHECKED | PENSTOCK_CHANGED_INSIDE);
  struct penstock_raw_record r = {
    .ino = e->ino,
    .mtime = times ? 0 : penstock_time_pack(e->mtime),
    .ctime = times ? 0 : penstock_time_pack(e->ctime),
    .atime = times ? 0 : penstock_time_pack(e->atime),
    .size = e->size,
    .generation = e->generation,
    .owner = (uint16_t)owner,
    .nlink = e->nlink < UINT16_MAX ? (uint16_t)e->nlink : UINT16_MAX,
    .flags = (uint16_t)(kept | blocks_flag(e) | (folder ? PENSTOCK_HAS_ROW : 0) | (parts ? PENSTOCK_PARTS : 0)),
    .name_size = (uint16_t)d->name_size,
  };
  memcpy(begin, &r, sizeof r);
  return p - begin;
}

/* The first eight bytes of a name as a number that sorts as they do. */
static uint64_t sort_key(const char *name, size_t size) {
  uint64_t v = 0;
  memcpy(&v, name, size < 8 ? size : 8);
  return __builtin_bswap64(v);
}

int penstock_batch_add(struct penstock_batch *b, const struct penstock_draft *d) {
  ssize_t size = put_record(b, d);
  if (size < 0)
    return (int)size;
  if (b->used + (size_t)size > UINT32_MAX || grow(&b->place, &b->places_room, b->places, sizeof *b->place) < 0)
    return -ENOMEM;
  b->place[b->places] = (struct place){sort_key(d->name, d->name_size), (uint32_t)b->used, (uint32_t)size, (uint32_t)b->places};
  b->places++;
  b->used += (size_t)size;
  return 0;
}

int penstock_batch_root(struct penstock_batch *b, const struct penstock_draft *d) {
  struct penstock_draft root = *d;
  root.name = "";
  root.name_size = 0;
  size_t before = b->used;
  ssize_t size = put_record(b, &root);
  if (size < 0)
    return (int)size;
  if (!(b->root = arena_take(&b->arena, (size_t)size)))
    return -ENOMEM;
  memcpy(b->root, b->scratch + before, (size_t)size);
  b->root_bytes = (size_t)size;
  return 0;
}

static int compare_names(const uint8_t *a, const uint8_t *b) {
  struct penstock_raw_record x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  size_t least = x.name_size < y.name_size ? x.name_size : y.name_size;
  int order = memcmp(a + sizeof x, b + sizeof y, least);
  return order ? order : (int)x.name_size - (int)y.name_size;
}

static int by_name(const void *a, const void *b, void *scratch) {
  const struct place *x = a, *y = b;
  if (x->key != y->key)
    return x->key < y->key ? -1 : 1;
  int order = compare_names((uint8_t *)scratch + x->at, (uint8_t *)scratch + y->at);
  return order ? order : x->turn < y->turn ? -1 : 1;
}

static bool same_name(const uint8_t *scratch, const struct place *a, const struct place *b) {
  return a->key == b->key && compare_names(scratch + a->at, scratch + b->at) == 0;
}

static bool in_order(const struct penstock_batch *b) {
  for (size_t i = 1; i < b->places; i++)
    if (by_name(&b->place[i - 1], &b->place[i], b->scratch) > 0)
      return false;
  return true;
}

/* Copies the records in order of their names; of one name the last. */
static void copy_sorted(struct penstock_batch *b, struct folder *f) {
  uint8_t *p = f->records;
  for (size_t i = 0; i < b->places; i++) {
    const struct place *it = &b->place[i];
    if (i + 1 < b->places && same_name(b->scratch, it, it + 1))
      continue;
    memcpy(p, b->scratch + it->at, it->size);
    p += it->size;
    f->count++;
  }
  f->bytes = (size_t)(p - f->records);
}

int penstock_batch_close(struct penstock_batch *b, const char *path, size_t size, uint32_t flags, int64_t learnt_ns) {
  if (size > UINT32_MAX || grow(&b->folder, &b->folders_room, b->folders, sizeof *b->folder) < 0)
    return -ENOMEM;
  char *own = arena_take(&b->arena, size + 1);
  uint8_t *records = arena_take(&b->arena, b->used ? b->used : 1);
  if (!own || !records)
    return -ENOMEM;
  memcpy(own, path, size);
  own[size] = 0;
  if (!in_order(b))
    qsort_r(b->place, b->places, sizeof *b->place, by_name, b->scratch);
  struct folder *f = &b->folder[b->folders++];
  *f = (struct folder){.path = own, .path_size = (uint32_t)size, .records = records, .flags = flags, .learnt_ns = learnt_ns};
  copy_sorted(b, f);
  b->entries += f->count;
  b->bytes += f->bytes;
  penstock_batch_forget(b);
  return 0;
}

/* ---- the order of folders ---- */

struct writer {
  int fd;
  struct folder **folder;
  size_t folders, room;
  uint32_t *slot; /* a hash table of folders by path: number + 1 */
  size_t slots;
  struct owners owners;
  struct arena *arena;
  struct penstock_index_header h;
  struct penstock_raw_bucket *bucket;
  uint16_t **map; /* of each batch: its owners' numbers here */
  struct penstock_batch *const *batches;
  size_t batch_count;
  /* what goes out */
  uint8_t *sink;
  size_t sunk;
  uint64_t out_at;
  uint32_t *checks;
  int err;
};

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

static struct folder *folder_of(const struct writer *w, const char *path, size_t size) {
  uint32_t number = w->slot[slot_of(w, path, size)];
  return number ? w->folder[number - 1] : NULL;
}

/* Enters all folders anew, after their numbers changed or there are too many. */
static int enter_all(struct writer *w) {
  free(w->slot);
  for (w->slots = 64; w->slots < 2 * w->room; w->slots *= 2) { }
  if (!(w->slot = calloc(w->slots, sizeof *w->slot)))
    return -ENOMEM;
  for (size_t i = 0; i < w->folders; i++)
    w->slot[slot_of(w, w->folder[i]->path, w->folder[i]->path_size)] = (uint32_t)i + 1;
  return 0;
}

static bool is_listed(const struct folder *f) { return f->flags & (PENSTOCK_COMPLETE | PENSTOCK_LISTED); }

static int enter(struct writer *w, struct folder *f) {
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
    return enter_all(w);
  w->slot[i] = (uint32_t)w->folders;
  return 0;
}

static size_t parent_size(const struct folder *f) {
  const char *slash = memrchr(f->path, '/', f->path_size);
  return slash ? (size_t)(slash - f->path) : 0;
}

/* Every folder's folder, up to the root, is one of ours. */
static int add_ancestors(struct writer *w) {
  struct folder *root = folder_of(w, "", 0);
  if (!root) {
    if (!(root = arena_take(&w->arena, sizeof *root)))
      return -ENOMEM;
    *root = (struct folder){.path = "", .learnt_ns = INT64_MIN};
    if (enter(w, root) < 0)
      return -ENOMEM;
  }
  for (size_t i = 0; i < w->folders; i++) {
    struct folder *f = w->folder[i];
    size_t size = parent_size(f);
    if (f->path_size == 0 || folder_of(w, f->path, size))
      continue;
    struct folder *parent = arena_take(&w->arena, sizeof *parent);
    if (!parent)
      return -ENOMEM;
    *parent = (struct folder){.path = f->path, .path_size = (uint32_t)size, .learnt_ns = INT64_MIN};
    if (enter(w, parent) < 0)
      return -ENOMEM;
  }
  return 0;
}

/* Steps over a record: its size. */
static size_t record_size(const uint8_t *p) {
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
static size_t put_place(uint8_t *p, const char *name, size_t size) {
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
      size_t length = record_size(old);
      memcpy(p, old, length);
      p += length;
      old += length;
      i += order == 0;
    } else {
      p += put_place(p, name, size);
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
  for (size_t i = first; i < last; p += record_size(p)) {
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
static int complete_folders(struct writer *w) {
  qsort(w->folder, w->folders, sizeof *w->folder, by_parent);
  int err = enter_all(w);
  for (size_t first = 0; err == 0 && first < w->folders;) {
    if (w->folder[first]->path_size == 0) {
      first++;
      continue;
    }
    struct folder *parent = folder_of(w, w->folder[first]->path, parent_size(w->folder[first]));
    size_t last = first + 1;
    while (last < w->folders && is_child(w->folder[last], parent))
      last++;
    if (!has_records(w, parent, first, last))
      err = add_places(w, parent, first, last);
    first = last;
  }
  if (err == 0) {
    qsort(w->folder, w->folders, sizeof *w->folder, by_path);
    err = enter_all(w);
  }
  return err;
}

/* ---- bytes out ---- */

static void flush(struct writer *w) {
  for (size_t done = 0; !w->err && done < w->sunk;) {
    ssize_t n = pwrite(w->fd, w->sink + done, w->sunk - done, (off_t)(w->out_at + done));
    if (n < 0 && errno != EINTR)
      w->err = -errno;
    done += n > 0 ? (size_t)n : 0;
  }
  for (size_t b = 0; w->checks && b * BLOCK < w->sunk; b++) {
    size_t size = w->sunk - b * BLOCK < BLOCK ? w->sunk - b * BLOCK : BLOCK;
    uint64_t number = w->out_at / BLOCK + b;
    if (number < w->h.blocks)
      w->checks[number] = penstock_index_check(w->sink + b * BLOCK, size, number);
  }
  w->out_at += w->sunk;
  w->sunk = 0;
}

static void put(struct writer *w, const void *bytes, size_t size) {
  const uint8_t *p = bytes;
  while (size > 0 && !w->err) {
    size_t now = SINK_BYTES - w->sunk < size ? SINK_BYTES - w->sunk : size;
    memcpy(w->sink + w->sunk, p, now);
    w->sunk += now;
    p += now;
    size -= now;
    if (w->sunk == SINK_BYTES)
      flush(w);
  }
}

static void pad_to(struct writer *w, uint64_t at) {
  static const uint8_t zeros[BLOCK];
  while (!w->err && w->out_at + w->sunk < at) {
    uint64_t left = at - w->out_at - w->sunk;
    put(w, zeros, left < BLOCK ? (size_t)left : BLOCK);
  }
}

/* ---- the pass over all records ---- */

static void enter_bucket(struct writer *w, uint64_t hash, uint64_t place) {
  uint64_t i = penstock_index_bucket(hash, w->h.buckets);
  for (; w->bucket[i].count == PENSTOCK_BUCKET_PLACES; i = i + 1 < w->h.buckets ? i + 1 : 0)
    w->bucket[i].more = 1;
  struct penstock_raw_bucket *b = &w->bucket[i];
  b->place[b->count] = (uint32_t)place;
  b->tag[b->count++] = penstock_index_tag(hash);
}

static uint32_t child_row(const struct writer *w, const struct folder *f, const char *name, size_t size, char *path) {
  size_t skip = f->path_size ? f->path_size + 1 : 0;
  memcpy(path, f->path, f->path_size);
  if (skip)
    path[skip - 1] = '/';
  memcpy(path + skip, name, size);
  const struct folder *child = folder_of(w, path, skip + size);
  return child ? child->row : PENSTOCK_NO_ROW;
}

/* Fills in what was not known, and enters each record of a folder into the table of paths. */
static void settle_folder(struct writer *w, struct folder *f, uint64_t place, char *path) {
  f->path_hash = penstock_hash(w->h.seed, f->path, f->path_size);
  f->children = (uint32_t)place;
  for (uint8_t *p = f->records, *end = p + f->bytes; p < end;) {
    struct penstock_raw_record r;
    size_t size = record_size(p);
    memcpy(&r, p, sizeof r);
    const char *name = (const char *)p + sizeof r;
    r.folder = f->row;
    if (f->owner && r.owner != PENSTOCK_OWNERS_MAX)
      r.owner = f->owner[r.owner];
    memcpy(p, &r, sizeof r);
    if (r.flags & PENSTOCK_HAS_ROW) {
      uint32_t row = child_row(w, f, name, r.name_size, path);
      memcpy(p + sizeof r + penstock_up4(r.name_size), &row, 4);
      if (row != PENSTOCK_NO_ROW)
        w->folder[row]->record = (uint32_t)place;
    }
    w->h.entries += !(r.flags & (PENSTOCK_GONE | PENSTOCK_PLACE));
    enter_bucket(w, penstock_hash_child(f->path_hash, penstock_index_name_hash(w->h.seed, name, r.name_size)), place);
    place += size / PENSTOCK_PLACE_UNIT;
    p += size;
  }
}

/* One table of owners out of those of the batches. */
static int merge_owners(struct writer *w) {
  if (!(w->map = calloc(w->batch_count + 1, sizeof *w->map)))
    return -ENOMEM;
  for (size_t i = 0; i < w->batch_count; i++) {
    const struct owners *from = &w->batches[i]->owners;
    if (!(w->map[i] = malloc((from->count + 1) * sizeof **w->map)))
      return -ENOMEM;
    for (size_t k = 0; k < from->count; k++) {
      int number = owner_number(&w->owners, from->row[k]);
      if (number < 0 || number == PENSTOCK_OWNERS_MAX)
        return number < 0 ? number : -EFBIG;
      w->map[i][k] = (uint16_t)number;
    }
  }
  return 0;
}

static const uint8_t *root_record(const struct writer *w, size_t *size, uint8_t *own, size_t *batch) {
  for (size_t i = 0; i < w->batch_count; i++)
    if (w->batches[i]->root) {
      *size = w->batches[i]->root_bytes;
      *batch = i;
      return w->batches[i]->root;
    }
  *size = put_place(own, "", 0);
  *batch = SIZE_MAX;
  return own;
}

static uint64_t align(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

static int plan_sections(struct writer *w, size_t root_bytes) {
  struct penstock_index_header *h = &w->h;
  h->records_bytes = root_bytes;
  h->records = 1;
  h->first_ns = INT64_MAX;
  h->last_ns = INT64_MIN;
  for (size_t i = 0; i < w->folders; i++) {
    const struct folder *f = w->folder[i];
    h->records_bytes += f->bytes;
    h->records += f->count;
    if (f->learnt_ns != INT64_MIN) {
      h->first_ns = f->learnt_ns < h->first_ns ? f->learnt_ns : h->first_ns;
      h->last_ns = f->learnt_ns > h->last_ns ? f->learnt_ns : h->last_ns;
    }
  }
  if (h->records_bytes / PENSTOCK_PLACE_UNIT > UINT32_MAX || w->folders >= UINT32_MAX)
    return -EFBIG;
  if (h->first_ns > h->last_ns)
    h->first_ns = h->last_ns = 0;
  h->rows = w->folders;
  h->owners = w->owners.count;
  h->buckets = h->records / 10 + 1; /* ten of twelve places are taken */
  h->owners_at = BLOCK;
  h->rows_at = align(h->owners_at + h->owners * PENSTOCK_OWNER_BYTES, 8);
  h->records_at = align(h->rows_at + h->rows * PENSTOCK_ROW_BYTES, 8);
  h->buckets_at = align(h->records_at + h->records_bytes, PENSTOCK_BUCKET_BYTES);
  h->checks_at = align(h->buckets_at + h->buckets * PENSTOCK_BUCKET_BYTES, BLOCK);
  h->blocks = h->checks_at / BLOCK;
  h->tops_at = h->checks_at + 4 * h->blocks;
  h->tops = (4 * h->blocks + BLOCK - 1) / BLOCK;
  h->file_bytes = h->tops_at + 4 * h->tops;
  return 0;
}

static void put_rows(struct writer *w) {
  for (size_t i = 0; i < w->folders; i++) {
    const struct folder *f = w->folder[i];
    struct penstock_raw_row row = {.record = f->record, .children = f->children, .count = f->count, .flags = f->flags,
                                   .learnt_ns = f->learnt_ns, .path_hash = f->path_hash};
    put(w, &row, sizeof row);
  }
}

static void put_checks(struct writer *w) {
  flush(w);
  uint32_t *checks = w->checks;
  w->checks = NULL; /* of the checks themselves the tops are kept */
  put(w, checks, 4 * (size_t)w->h.blocks);
  for (uint64_t b = 0; b < w->h.tops; b++) {
    uint64_t at = b * BLOCK, left = 4 * w->h.blocks - at;
    uint32_t top = penstock_index_check((uint8_t *)checks + at, left < BLOCK ? (size_t)left : BLOCK, w->h.blocks + b);
    put(w, &top, 4);
    checks[w->h.blocks + b] = top; /* there is room behind them */
  }
  flush(w);
  w->h.tops_check = penstock_index_check(checks + w->h.blocks, 4 * (size_t)w->h.tops, w->h.id);
  w->checks = checks;
}

static int put_header(struct writer *w) {
  uint8_t block[BLOCK] = {0};
  memcpy(block, &w->h, sizeof w->h);
  w->h.header_check = penstock_index_check(block, BLOCK, 0);
  memcpy(block, &w->h, sizeof w->h);
  ssize_t n = pwrite(w->fd, block, BLOCK, 0);
  return n == BLOCK ? 0 : n < 0 ? -errno : -ENOSPC;
}

static int put_all(struct writer *w, const uint8_t *root, size_t root_bytes, size_t root_batch) {
  struct folder *top = w->folder[0];
  size_t longest = 0;
  for (size_t i = 0; i < w->folders; i++) {
    w->folder[i]->row = (uint32_t)i;
    longest = w->folder[i]->path_size > longest ? w->folder[i]->path_size : longest;
  }
  uint8_t *own = malloc(root_bytes);
  char *path = malloc(longest + PENSTOCK_NAME_MAX + 2);
  w->bucket = aligned_alloc(PENSTOCK_BUCKET_BYTES, (size_t)w->h.buckets * sizeof *w->bucket);
  w->checks = calloc((size_t)(w->h.blocks + w->h.tops), 4);
  w->sink = malloc(SINK_BYTES);
  w->err = own && path && w->bucket && w->checks && w->sink ? 0 : -ENOMEM;
  if (!w->err) {
    memset(w->bucket, 0, (size_t)w->h.buckets * sizeof *w->bucket);
    memcpy(own, root, root_bytes);
    struct penstock_raw_record r;
    memcpy(&r, own, sizeof r);
    if (root_batch != SIZE_MAX && r.owner != PENSTOCK_OWNERS_MAX)
      r.owner = w->map[root_batch][r.owner];
    r.folder = 0;
    memcpy(own, &r, sizeof r);
    memset(own + sizeof r, 0, 4); /* its row is 0 */
    w->h.entries = !(r.flags & PENSTOCK_PLACE);
    top->record = 0;
    enter_bucket(w, penstock_hash_child(penstock_hash(w->h.seed, "", 0), penstock_index_name_hash(w->h.seed, "", 0)), 0);
    uint64_t place = root_bytes / PENSTOCK_PLACE_UNIT;
    for (size_t i = 0; i < w->folders; i++) {
      settle_folder(w, w->folder[i], place, path);
      place += w->folder[i]->bytes / PENSTOCK_PLACE_UNIT;
    }
    pad_to(w, w->h.owners_at);
    put(w, w->owners.row, w->owners.count * sizeof *w->owners.row);
    pad_to(w, w->h.rows_at);
    put_rows(w);
    pad_to(w, w->h.records_at);
    put(w, own, root_bytes);
    for (size_t i = 0; i < w->folders; i++)
      put(w, w->folder[i]->records, w->folder[i]->bytes);
    pad_to(w, w->h.buckets_at);
    put(w, w->bucket, (size_t)w->h.buckets * sizeof *w->bucket);
    pad_to(w, w->h.checks_at);
    put_checks(w);
    if (!w->err)
      w->err = put_header(w);
  }
  free(own);
  free(path);
  return w->err;
}

static int write_all(struct writer *w) {
  uint8_t place[PENSTOCK_RECORD_BYTES + 8];
  size_t root_bytes, root_batch;
  int err = merge_owners(w);
  if (err == 0)
    err = enter_all(w);
  for (size_t i = 0; err == 0 && i < w->batch_count; i++)
    for (size_t k = 0; err == 0 && k < w->batches[i]->folders; k++) {
      w->batches[i]->folder[k].owner = w->map[i];
      err = enter(w, &w->batches[i]->folder[k]);
    }
  if (err == 0)
    err = add_ancestors(w);
  if (err == 0)
    err = complete_folders(w);
  const uint8_t *root = root_record(w, &root_bytes, place, &root_batch);
  if (err == 0)
    err = plan_sections(w, root_bytes);
  return err ? err : put_all(w, root, root_bytes, root_batch);
}

int penstock_index_write(int fd, struct penstock_batch *const *batches, size_t count, uint64_t id, uint64_t seed,
                         struct penstock_index_header *ret) {
  struct writer w = {.fd = fd, .batches = batches, .batch_count = count};
  w.h = (struct penstock_index_header){.version = PENSTOCK_INDEX_VERSION, .id = id, .seed = seed};
  memcpy(w.h.magic, PENSTOCK_INDEX_MAGIC, sizeof w.h.magic);
  int err = write_all(&w);
  if (err == 0 && ret)
    *ret = w.h;
  for (size_t i = 0; i < w.folders; i++)
    if (w.folder[i]->owned)
      free(w.folder[i]->records);
  for (size_t i = 0; w.map && i < count; i++)
    free(w.map[i]);
  free(w.map);
  free(w.folder);
  free(w.slot);
  free(w.bucket);
  free(w.checks);
  free(w.sink);
  owners_free(&w.owners);
  arena_free(w.arena);
  return err;
}
