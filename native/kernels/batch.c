// SPDX-License-Identifier: Apache-2.0
/* Gathering the records of a segment; see index_write.h. */
#include "kernels/batch.h"

#include <sys/stat.h>

enum { ARENA_BYTES = 1 << 20, OWNERS_SLOTS = 1 << 17 };

/* ---- memory that only grows ---- */

void *penstock_arena_take(struct arena **a, size_t size) {
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

void penstock_arena_free(struct arena *a) {
  while (a) {
    struct arena *before = a->before;
    free(a);
    a = before;
  }
}

/* ---- owners ---- */

int penstock_owner_number(struct owners *o, struct penstock_raw_owner want) {
  if (o->count && memcmp(&o->row[o->last], &want, sizeof want) == 0)
    return o->last;
  if (!o->slot && !(o->slot = calloc(OWNERS_SLOTS, sizeof *o->slot)))
    return -ENOMEM;
  size_t i = penstock_hash(1, &want, sizeof want) % OWNERS_SLOTS;
  for (; o->slot[i]; i = (i + 1) % OWNERS_SLOTS)
    if (memcmp(&o->row[o->slot[i] - 1], &want, sizeof want) == 0)
      return o->last = (uint16_t)(o->slot[i] - 1);
  if (o->count == o->most)
    return PENSTOCK_OWNERS_MAX;
  if (grow(&o->row, &o->room, o->count, sizeof *o->row) < 0)
    return -ENOMEM;
  o->row[o->count++] = want;
  o->slot[i] = (uint16_t)o->count;
  return o->last = (uint16_t)(o->count - 1);
}

void penstock_owners_free(struct owners *o) {
  free(o->row);
  free(o->slot);
}

/* ---- batches ---- */

struct place {
  uint64_t key; /* first bytes of the name, as a number that sorts like them */
  uint32_t at, size;
  uint32_t turn;
};

struct penstock_batch *penstock_batch_new(void) { return penstock_batch_of(1); }

struct penstock_batch *penstock_batch_of(size_t batches) {
  struct penstock_batch *b = calloc(1, sizeof *b);
  if (b)
    b->owners.most = PENSTOCK_OWNERS_MAX / batches;
  return b;
}

void penstock_batch_free(struct penstock_batch *b) {
  if (!b)
    return;
  penstock_arena_free(b->arena);
  penstock_owners_free(&b->owners);
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
  int owner = penstock_owner_number(&b->owners, (struct penstock_raw_owner){e->mode, e->uid, e->gid});
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
  if (!(b->root = penstock_arena_take(&b->arena, (size_t)size)))
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
  char *own = penstock_arena_take(&b->arena, size + 1);
  uint8_t *records = penstock_arena_take(&b->arena, b->used ? b->used : 1);
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
