// SPDX-License-Identifier: Apache-2.0
/* Writing a segment: see index_write.h.  What goes into it is gathered by batch.c and ordered by folders.c. */
#include <unistd.h>

#include "kernels/batch.h"

enum { SINK_BYTES = 1 << 18 };

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
  const struct folder *child = penstock_folder_of(w, path, skip + size);
  return child ? child->row : PENSTOCK_NO_ROW;
}

/* Fills in what was not known, and enters each record of a folder into the table of paths. */
static void settle_folder(struct writer *w, struct folder *f, uint64_t place, char *path) {
  f->path_hash = penstock_hash(w->h.seed, f->path, f->path_size);
  f->children = (uint32_t)place;
  for (uint8_t *p = f->records, *end = p + f->bytes; p < end;) {
    struct penstock_raw_record r;
    size_t size = penstock_record_size(p);
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
      int number = penstock_owner_number(&w->owners, from->row[k]);
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
  *size = penstock_put_place(own, "", 0);
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
    err = penstock_folders_enter_all(w);
  for (size_t i = 0; err == 0 && i < w->batch_count; i++)
    for (size_t k = 0; err == 0 && k < w->batches[i]->folders; k++) {
      w->batches[i]->folder[k].owner = w->map[i];
      err = penstock_folders_enter(w, &w->batches[i]->folder[k]);
    }
  if (err == 0)
    err = penstock_folders_add_ancestors(w);
  if (err == 0)
    err = penstock_folders_complete(w);
  const uint8_t *root = root_record(w, &root_bytes, place, &root_batch);
  if (err == 0)
    err = plan_sections(w, root_bytes);
  return err ? err : put_all(w, root, root_bytes, root_batch);
}

int penstock_index_write(int fd, struct penstock_batch *const *batches, size_t count, uint64_t id, uint64_t seed,
                         struct penstock_index_header *ret) {
  struct writer w = {.fd = fd, .batches = batches, .batch_count = count, .owners.most = PENSTOCK_OWNERS_MAX};
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
  penstock_owners_free(&w.owners);
  penstock_arena_free(w.arena);
  return err;
}
