// SPDX-License-Identifier: Apache-2.0
/* Reading a segment: see index.h.  Blocks come into private memory at first touch:

       EMPTY ──claimed by one──► FILLING ──read, checksum held──► READY
         ▲                          │
         └──────── it did not ──────┘

   Whoever meets FILLING (another thread, a signal handler above the filler, after a filler was cancelled) does not wait:
   it reads the block for itself into its own stack. */
#include "kernels/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "kernels/index_format.h"

enum { EMPTY, FILLING, READY }; /* READY alone has its bit */
enum { BLOCK = PENSTOCK_BLOCK_BYTES, SPAN = 2 * BLOCK };
/* Spans read at once are no longer than this, so that they lie in two blocks. */
enum { SPAN_MAX = BLOCK };
/* So many blocks are read at once where the one before was read already: walking costs fewer calls, look-ups the same. */
enum { AHEAD = 16 };

/* ---- blocks ---- */

static int pread_all(int fd, void *buffer, size_t size, uint64_t at) {
  uint8_t *p = buffer;
  while (size > 0) {
    ssize_t n = pread(fd, p, size, (off_t)at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n < 0 ? -errno : -EBADMSG; /* shorter than it was */
    p += n;
    size -= (size_t)n;
    at += (uint64_t)n;
  }
  return 0;
}

static uint8_t state_of(const struct penstock_index *ix, uint64_t block) {
  return atomic_load_explicit((_Atomic uint8_t *)&ix->state[block], memory_order_acquire);
}

static bool claim(const struct penstock_index *ix, uint64_t block) {
  uint8_t empty = EMPTY;
  return atomic_compare_exchange_strong((_Atomic uint8_t *)&ix->state[block], &empty, FILLING);
}

static uint64_t first_check_block(const struct penstock_index *ix) { return ix->h.checks_at / BLOCK; }

static void settle(const struct penstock_index *ix, uint64_t block, uint8_t state) {
  atomic_store_explicit((_Atomic uint8_t *)&ix->state[block], state, memory_order_release);
  if (state == READY && block < first_check_block(ix))
    atomic_fetch_sub((_Atomic uint64_t *)ix->missing, 1);
}

/* Is all that look-ups need in memory? */
static inline bool is_whole(const struct penstock_index *ix) {
  return !ix->state || atomic_load_explicit((_Atomic uint64_t *)ix->missing, memory_order_acquire) == 0;
}

static size_t block_bytes(const struct penstock_index *ix, uint64_t block) {
  uint64_t end = ix->h.tops_at, at = block * BLOCK;
  return end - at < BLOCK ? (size_t)(end - at) : BLOCK;
}

static int check_of(const struct penstock_index *ix, uint64_t block, uint32_t *ret);

/* Holds a block's bytes against its checksum. */
static int check_block(const struct penstock_index *ix, uint64_t block, const uint8_t *bytes) {
  uint32_t expected;
  int err = check_of(ix, block, &expected);
  return err ? err : penstock_index_check(bytes, block_bytes(ix, block), block) == expected ? 0 : -EBADMSG;
}

static int read_block(const struct penstock_index *ix, uint64_t block, uint8_t *into) {
  int err = pread_all(ix->fd, into, block_bytes(ix, block), block * BLOCK);
  return err ? err : check_block(ix, block, into);
}

/* Claims a block, and those after it where it looks like reading on and on: how many; 0: somebody else is at it. */
static uint64_t claim_some(const struct penstock_index *ix, uint64_t block) {
  uint64_t count = 1, end = first_check_block(ix);
  if (!claim(ix, block))
    return 0;
  if (block > 0 && block < end && state_of(ix, block - 1) == READY)
    while (count < AHEAD && block + count < end && claim(ix, block + count))
      count++;
  return count;
}

/* The block in kept memory if it can be had there: 0; 1: somebody else is filling it. */
static int keep_block(const struct penstock_index *ix, uint64_t block) {
  if (state_of(ix, block) == READY)
    return 0;
  uint64_t count = claim_some(ix, block);
  if (count == 0)
    return state_of(ix, block) != READY;
  uint8_t *into = (uint8_t *)ix->base + block * BLOCK;
  int err = -EBADMSG;
  bool whole = count > 1 && pread_all(ix->fd, into, count * BLOCK, block * BLOCK) == 0;
  for (uint64_t i = count; i-- > 0;) { /* the one that is wanted last */
    if (whole)
      err = check_block(ix, block + i, into + i * BLOCK);
    else
      err = i > 0 ? -EBADMSG : read_block(ix, block, into);
    settle(ix, block + i, err ? EMPTY : READY);
  }
  return err;
}

/* The checksum of a block: of a check block from `tops`, of any other from its check block, which is always kept. */
static int check_of(const struct penstock_index *ix, uint64_t block, uint32_t *ret) {
  uint64_t first = first_check_block(ix);
  if (block >= first) {
    *ret = ix->tops[block - first];
    return 0;
  }
  uint64_t at = ix->h.checks_at + 4 * block, holder = at / BLOCK;
  uint8_t own[BLOCK];
  const uint8_t *from = ix->base + holder * BLOCK;
  int err = keep_block(ix, holder);
  if (err == 1) {
    from = own;
    err = read_block(ix, holder, own);
  }
  if (err == 0)
    memcpy(ret, from + at % BLOCK, 4);
  return err;
}

static inline bool is_kept(const struct penstock_index *ix, uint64_t block) { return is_whole(ix) || state_of(ix, block) == READY; }

/* Are the bytes from `at` to `end`, of two blocks at the most, in kept memory? */
static inline bool is_here(const struct penstock_index *ix, uint64_t at, uint64_t end) {
  return is_whole(ix) || state_of(ix, at / BLOCK) & state_of(ix, (end - 1) / BLOCK) & READY; /* one branch for both */
}

/* A span whose blocks are not all in kept memory: bring them there, or into `room`.  Not inlined: a look-up's usual path is
   short enough that the processor begins with the next one while it waits for memory. */
__attribute__((noinline)) static const uint8_t *fetch(const struct penstock_index *ix, uint64_t at, size_t size, uint8_t *room, int *err) {
  uint64_t first = at / BLOCK, last = (at + size - 1) / BLOCK;
  bool kept = ix->resident;
  for (uint64_t b = first; kept && b <= last; b++) {
    *err = keep_block(ix, b);
    if (*err < 0)
      return NULL;
    kept = *err == 0;
  }
  if (kept)
    return ix->base + at;
  for (uint64_t b = first; b <= last; b++)
    if ((*err = read_block(ix, b, room + (b - first) * BLOCK)) < 0)
      return NULL;
  return room + at % BLOCK;
}

/* `size` bytes (1 to SPAN_MAX) that are known to lie before checks_at; `room` is SPAN bytes, and may come to hold them. */
static inline const uint8_t *within(const struct penstock_index *ix, uint64_t at, size_t size, uint8_t *room, int *err) {
  return is_here(ix, at, at + size) ? ix->base + at : fetch(ix, at, size, room, err);
}

/* The same of any place and size. */
static inline const uint8_t *span(const struct penstock_index *ix, uint64_t at, size_t size, uint8_t *room, int *err) {
  if (at > ix->h.checks_at || size > ix->h.checks_at - at || size > SPAN_MAX || size == 0) {
    *err = -EBADMSG;
    return NULL;
  }
  return within(ix, at, size, room, err);
}

int penstock_index_read(const struct penstock_index *ix, uint64_t at, void *buffer, size_t size) {
  uint8_t *out = buffer, room[SPAN];
  int err = 0;
  if (at > ix->h.checks_at || size > ix->h.checks_at - at)
    return -EBADMSG;
  while (size > 0) {
    size_t whole = at % BLOCK == 0 ? size / BLOCK * BLOCK : 0;
    if (whole > 0 && ix->state) { /* many blocks in one call, each checked */
      if ((err = pread_all(ix->fd, out, whole, at)) < 0)
        return err;
      for (size_t b = 0; b < whole / BLOCK; b++) {
        uint32_t expected;
        if ((err = check_of(ix, at / BLOCK + b, &expected)) < 0)
          return err;
        if (penstock_index_check(out + b * BLOCK, BLOCK, at / BLOCK + b) != expected)
          return -EBADMSG;
      }
    } else {
      whole = BLOCK - at % BLOCK < size ? BLOCK - at % BLOCK : size;
      const uint8_t *p = span(ix, at, whole, room, &err);
      if (!p)
        return err;
      memcpy(out, p, whole);
    }
    out += whole;
    at += whole;
    size -= whole;
  }
  return 0;
}

/* ---- opening ---- */

static bool section(uint64_t at, uint64_t count, uint64_t unit, uint64_t end) {
  return at <= end && count <= (end - at) / unit;
}

static int check_header(struct penstock_index_header *h, uint64_t file_bytes, uint8_t *block) {
  memcpy(h, block, sizeof *h);
  if (memcmp(h->magic, PENSTOCK_INDEX_MAGIC, sizeof h->magic) != 0)
    return -EINVAL;
  if (h->version != PENSTOCK_INDEX_VERSION)
    return -EPROTO;
  memset(block + offsetof(struct penstock_index_header, header_check), 0, 4);
  if (penstock_index_check(block, BLOCK, 0) != h->header_check || h->file_bytes != file_bytes)
    return -EBADMSG;
  uint64_t end = h->checks_at;
  bool fits = h->tops_at <= file_bytes && h->checks_at <= h->tops_at && h->checks_at % BLOCK == 0 &&
              h->blocks == h->checks_at / BLOCK && section(h->checks_at, h->blocks, 4, h->tops_at) &&
              section(h->tops_at, h->tops, 4, file_bytes) && h->tops == (h->tops_at - h->checks_at + BLOCK - 1) / BLOCK &&
              section(h->owners_at, h->owners, PENSTOCK_OWNER_BYTES, end) &&
              section(h->rows_at, h->rows, PENSTOCK_ROW_BYTES, end) && section(h->records_at, h->records_bytes, 1, end) &&
              section(h->buckets_at, h->buckets, PENSTOCK_BUCKET_BYTES, end) && h->buckets_at % PENSTOCK_BUCKET_BYTES == 0 &&
              h->rows > 0 && h->buckets > 0 && h->records_bytes >= PENSTOCK_RECORD_BYTES && h->rows < UINT32_MAX;
  return fits ? 0 : -EBADMSG;
}

static bool is_sealed(int fd) {
  int seals = fcntl(fd, F_GET_SEALS), need = F_SEAL_SHRINK | F_SEAL_WRITE;
  return seals >= 0 && (seals & need) == need;
}

static void *memory(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

/* Of the states, and of the count in front of them. */
static size_t states_bytes(const struct penstock_index *ix) { return sizeof *ix->missing + (size_t)(ix->h.blocks + ix->h.tops); }

static int read_tops(struct penstock_index *ix) {
  size_t size = (size_t)ix->h.tops * 4;
  if (!(ix->tops = memory(size)))
    return -ENOMEM;
  int err = pread_all(ix->fd, ix->tops, size, ix->h.tops_at);
  if (err == 0 && penstock_index_check(ix->tops, size, ix->h.id) != ix->h.tops_check)
    err = -EBADMSG;
  return err;
}

int penstock_index_open(struct penstock_index *ix, int fd, uint64_t resident_bytes) {
  struct stat st;
  uint8_t block[BLOCK];
  *ix = (struct penstock_index){.fd = -1};
  if (fstat(fd, &st) < 0)
    return -errno;
  if (!S_ISREG(st.st_mode) || st.st_size < BLOCK)
    return -EINVAL;
  int err = pread_all(fd, block, BLOCK, 0);
  if (err == 0)
    err = check_header(&ix->h, (uint64_t)st.st_size, block);
  if (err < 0)
    return err;
  size_t size = (size_t)st.st_size;
  if (is_sealed(fd)) {
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    ix->base = map == MAP_FAILED ? NULL : map;
    return ix->base ? 0 : -errno;
  }
  ix->fd = fd;
  ix->resident = size <= resident_bytes;
  ix->base = memory(size);
  if (ix->base && ix->resident)
    madvise((void *)ix->base, size, MADV_HUGEPAGE); /* look-ups go all over it; refused, they are slower */
  ix->missing = memory(states_bytes(ix));
  ix->state = ix->missing ? (uint8_t *)(ix->missing + 1) : NULL;
  err = ix->base && ix->state ? read_tops(ix) : -ENOMEM;
  if (err < 0) {
    penstock_index_close(ix);
    return err;
  }
  *ix->missing = ix->h.blocks;
  if (ix->resident) {
    memcpy((void *)ix->base, block, BLOCK);
    settle(ix, 0, READY);
  }
  return 0;
}

void penstock_index_close(struct penstock_index *ix) {
  if (ix->base)
    munmap((void *)ix->base, (size_t)ix->h.file_bytes);
  if (ix->missing)
    munmap(ix->missing, states_bytes(ix));
  if (ix->tops)
    munmap(ix->tops, (size_t)ix->h.tops * 4);
  *ix = (struct penstock_index){.fd = -1};
}

/* ---- records ---- */

static inline const struct penstock_raw_record *record_at(const struct penstock_index *ix, uint64_t at, uint8_t *room, int *err) {
  if (at - ix->h.records_at > ix->h.records_bytes - PENSTOCK_RECORD_BYTES) { /* before them: wraps round */
    *err = -EBADMSG;
    return NULL;
  }
  return (const struct penstock_raw_record *)within(ix, at, PENSTOCK_RECORD_BYTES, room, err);
}

static inline const struct penstock_raw_row *row_at(const struct penstock_index *ix, uint32_t row, uint8_t *room, int *err) {
  if (row >= ix->h.rows) {
    *err = -EBADMSG;
    return NULL;
  }
  return (const struct penstock_raw_row *)within(ix, ix->h.rows_at + (uint64_t)row * PENSTOCK_ROW_BYTES, PENSTOCK_ROW_BYTES, room, err);
}

/* Are the bytes at a place these?  1, 0 or an error. */
static inline int same_bytes(const struct penstock_index *ix, uint64_t at, const char *bytes, size_t size, uint8_t *room) {
  for (int err = 0; size > 0;) {
    size_t now = size < SPAN_MAX ? size : SPAN_MAX;
    const uint8_t *p = span(ix, at, now, room, &err);
    if (!p)
      return err;
    if (memcmp(p, bytes, now) != 0)
      return 0;
    at += now;
    bytes += now;
    size -= now;
  }
  return 1;
}

static uint64_t place_at(const struct penstock_index *ix, uint32_t place) {
  return ix->h.records_at + (uint64_t)place * PENSTOCK_PLACE_UNIT;
}

/* Which of sixteen bytes are this one: a bit each. */
static inline unsigned matching(const void *sixteen, char byte) {
#ifdef __SSE2__
  return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(sixteen), _mm_set1_epi8(byte)));
#else
  unsigned found = 0;
  for (unsigned i = 0; i < 16; i++)
    found |= (unsigned)(((const char *)sixteen)[i] == byte) << i;
  return found;
#endif
}

/* How much of a path is its folder's. */
static inline size_t folder_size(const char *path, size_t size) {
  unsigned slashes = size >= 16 ? matching(path + size - 16, '/') : 0;
  if (slashes)
    return size - 1 - ((unsigned)__builtin_clz(slashes) - 16); /* bit 15 is the last byte */
  const char *slash = memrchr(path, '/', size);
  return slash ? (size_t)(slash - path) : 0;
}

/* memcmp of short names, without a call. */
static inline bool equal(const void *a, const void *b, size_t size) {
  const uint8_t *p = a, *q = b;
  if (size < 8 || size > 16)
    return memcmp(p, q, size) == 0;
  return penstock_hash_word(p) == penstock_hash_word(q) && penstock_hash_word(p + size - 8) == penstock_hash_word(q + size - 8);
}

/* A path that is looked up: the folder's hash, and the name in it. */
struct wanted {
  uint64_t folder;
  const char *name;
  size_t size;
};

/* Is the record at a place that of this path?  Its name, and its folder's path by its hash: 64 bits with a random seed. */
static int is_path(const struct penstock_index *ix, uint64_t at, const struct wanted *w, uint8_t *room) {
  int err = 0;
  const struct penstock_raw_record *r = record_at(ix, at, room, &err);
  if (!r)
    return err;
  if (at == ix->h.records_at || r->name_size != w->size)
    return 0;
  uint32_t folder = r->folder; /* `room`, where the record may lie, is used anew */
  int same = same_bytes(ix, at + PENSTOCK_RECORD_BYTES, w->name, w->size, room);
  if (same <= 0)
    return same;
  const struct penstock_raw_row *row = row_at(ix, folder, room, &err);
  return row ? row->path_hash == w->folder : err;
}

/* The same where record, name and row are in kept memory, which they mostly are; else it asks the other. */
static inline int is_path_here(const struct penstock_index *ix, uint64_t at, const struct wanted *w, uint8_t *room) {
  uint64_t end = at + PENSTOCK_RECORD_BYTES + w->size;
  if (at <= ix->h.records_at || end > ix->h.records_at + ix->h.records_bytes || end - at > SPAN_MAX || !is_here(ix, at, end))
    return is_path(ix, at, w, room);
  const struct penstock_raw_record *r = (const struct penstock_raw_record *)(ix->base + at);
  uint64_t row_at = ix->h.rows_at + (uint64_t)r->folder * PENSTOCK_ROW_BYTES;
  if (r->name_size != w->size || !equal(r + 1, w->name, w->size))
    return 0;
  if (r->folder >= ix->h.rows || !is_here(ix, row_at, row_at + PENSTOCK_ROW_BYTES))
    return is_path(ix, at, w, room);
  return ((const struct penstock_raw_row *)(ix->base + row_at))->path_hash == w->folder;
}

/* The places of a bucket that have this tag: a bit each. */
static inline unsigned tagged(const struct penstock_raw_bucket *b, uint8_t tag) {
  _Static_assert(offsetof(struct penstock_raw_bucket, tag) + 16 == PENSTOCK_BUCKET_BYTES, "tags begin the last quarter");
  unsigned used = b->count < PENSTOCK_BUCKET_PLACES ? b->count : PENSTOCK_BUCKET_PLACES;
  return matching(b->tag, (char)tag) & ((1u << used) - 1);
}

static inline int64_t find_in(const struct penstock_index *ix, uint64_t number, uint64_t hash, const struct wanted *w, bool *more,
                              uint8_t room[2][SPAN]) {
  int err = 0;
  uint64_t place = ix->h.buckets_at + number * PENSTOCK_BUCKET_BYTES;
  const uint8_t *p = is_kept(ix, place / BLOCK) ? ix->base + place : fetch(ix, place, PENSTOCK_BUCKET_BYTES, room[0], &err);
  const struct penstock_raw_bucket *b = (const struct penstock_raw_bucket *)p; /* lies in one block */
  if (!b)
    return err;
  *more = b->more != 0;
  for (unsigned left = tagged(b, penstock_index_tag(hash)); left; left &= left - 1) {
    uint64_t at = place_at(ix, b->place[__builtin_ctz(left)]);
    int same = is_path_here(ix, at, w, room[1]);
    if (same != 0)
      return same < 0 ? same : (int64_t)at;
  }
  return -ENOENT;
}

__attribute__((always_inline)) static inline int64_t find(const struct penstock_index *ix, const char *path, size_t size) {
  uint8_t room[2][SPAN];
  if (size == 0)
    return (int64_t)ix->h.records_at;
  size_t folder = folder_size(path, size), begin = folder ? folder + 1 : 0;
  struct wanted w = {penstock_hash(ix->h.seed, path, folder), path + begin, size - begin};
  uint64_t hash = penstock_hash_child(w.folder, penstock_index_name_hash(ix->h.seed, w.name, w.size));
  uint64_t number = penstock_index_bucket(hash, ix->h.buckets);
  bool more = true;
  for (uint64_t tries = 0; more && tries < ix->h.buckets; tries++) {
    int64_t at = find_in(ix, number, hash, &w, &more, room);
    if (at != -ENOENT)
      return at;
    number = number + 1 < ix->h.buckets ? number + 1 : 0;
  }
  return -ENOENT;
}

/* ---- decoding ---- */

static inline int owner_of(const struct penstock_index *ix, uint16_t number, struct penstock_entry *e, uint8_t *room) {
  int err = -EBADMSG;
  uint64_t at = ix->h.owners_at + number * (uint64_t)PENSTOCK_OWNER_BYTES;
  const struct penstock_raw_owner *o = number < ix->h.owners ? (const struct penstock_raw_owner *)within(ix, at, PENSTOCK_OWNER_BYTES, room, &err) : NULL;
  if (!o)
    return err;
  e->mode = o->mode;
  e->uid = o->uid;
  e->gid = o->gid;
  return 0;
}

static int read_u32(const struct penstock_index *ix, uint64_t at, uint32_t *ret) {
  return penstock_index_read(ix, at, ret, sizeof *ret);
}

/* What did not fit the head: a part's number or numbers over it. */
static int wide_part(const struct penstock_index *ix, struct penstock_entry *e, uint16_t kind, uint16_t size, uint64_t at) {
  struct penstock_raw_owner o;
  uint8_t times[36];
  int err = 0;
  if (kind == PENSTOCK_PART_BLOCKS && size == 8)
    err = penstock_index_read(ix, at, &e->blocks, 8);
  else if (kind == PENSTOCK_PART_LINKS && size == 4)
    err = read_u32(ix, at, &e->nlink);
  else if (kind == PENSTOCK_PART_RDEV && size == 8)
    err = penstock_index_read(ix, at, &e->rdev, 8);
  else if (kind == PENSTOCK_PART_LEARNT && size == 8)
    err = penstock_index_read(ix, at, &e->learnt_ns, 8);
  else if (kind == PENSTOCK_PART_ERROR && size == 4)
    err = read_u32(ix, at, &e->error);
  else if (kind == PENSTOCK_PART_OWNER && size == sizeof o) {
    err = penstock_index_read(ix, at, &o, sizeof o);
    if (err == 0) {
      e->mode = o.mode;
      e->uid = o.uid;
      e->gid = o.gid;
    }
  } else if (kind == PENSTOCK_PART_TIMES && size == sizeof times) {
    err = penstock_index_read(ix, at, times, sizeof times);
    struct penstock_time *const field[] = {&e->mtime, &e->ctime, &e->atime};
    for (int i = 0; err == 0 && i < 3; i++) {
      memcpy(&field[i]->s, times + 12 * i, 8);
      memcpy(&field[i]->ns, times + 12 * i + 8, 4);
    }
  }
  return err;
}

/* Goes through the parts; stops at `kind` and gives its place and size (0: all of them, those of the head applied). */
static int each_part(const struct penstock_index *ix, struct penstock_entry *e, uint16_t wanted, uint64_t *at_ret,
                     uint16_t *size_ret) {
  uint64_t at = e->parts_at, end = at + e->parts_size;
  while (at + 4 <= end) {
    uint32_t head;
    int err = read_u32(ix, at, &head);
    if (err < 0)
      return err;
    uint16_t kind = (uint16_t)head, size = (uint16_t)(head >> 16);
    at += 4;
    if (size > end - at)
      return -EBADMSG;
    if (wanted && kind == wanted) {
      *at_ret = at;
      *size_ret = size;
      return 1;
    }
    if (!wanted && (err = wide_part(ix, e, kind, size, at)) < 0)
      return err;
    at += penstock_up4(size);
  }
  return 0;
}

/* What stands behind a record's name: a folder's row, the size of the parts. */
__attribute__((noinline)) static int after_name(const struct penstock_index *ix, uint64_t next, struct penstock_entry *e) {
  int err = 0;
  if (e->flags & PENSTOCK_HAS_ROW) {
    if ((err = read_u32(ix, next, &e->row)) < 0)
      return err;
    next += 4;
  }
  if (e->flags & PENSTOCK_PARTS) {
    if ((err = read_u32(ix, next, &e->parts_size)) < 0)
      return err;
    e->parts_at = next += 4;
    next += penstock_up4(e->parts_size);
    if (next - ix->h.records_at > ix->h.records_bytes)
      return -EBADMSG;
    err = each_part(ix, e, 0, NULL, NULL);
  }
  e->record_size = (uint32_t)(next - e->at);
  return err;
}

__attribute__((always_inline)) static inline int decode(const struct penstock_index *ix, uint64_t at, struct penstock_entry *ret) {
  uint8_t room[SPAN];
  int err = 0;
  const struct penstock_raw_record *r = record_at(ix, at, room, &err);
  if (!r)
    return err;
  /* Field by field: clearing it whole first is slow. */
  ret->ino = r->ino;
  ret->size = r->size;
  ret->blocks = r->flags & PENSTOCK_BLOCKS_BY_SIZE ? penstock_blocks_by_size(r->size) : 0;
  ret->rdev = 0;
  ret->mtime = penstock_time_unpack(r->mtime);
  ret->ctime = penstock_time_unpack(r->ctime);
  ret->atime = penstock_time_unpack(r->atime);
  ret->learnt_ns = 0;
  ret->generation = r->generation;
  ret->mode = ret->uid = ret->gid = ret->error = 0;
  ret->nlink = r->nlink;
  ret->folder = r->folder;
  ret->row = PENSTOCK_NO_ROW;
  ret->flags = r->flags;
  ret->name_size = r->name_size;
  ret->at = at;
  ret->parts_at = 0;
  ret->parts_size = 0;
  ret->record_size = PENSTOCK_RECORD_BYTES + (uint32_t)penstock_up4(r->name_size);
  uint16_t owner = r->owner;
  if (owner != PENSTOCK_OWNERS_MAX && (err = owner_of(ix, owner, ret, room)) < 0)
    return err;
  return ret->flags & (PENSTOCK_HAS_ROW | PENSTOCK_PARTS) ? after_name(ix, at + ret->record_size, ret) : 0;
}

int64_t penstock_index_find(const struct penstock_index *ix, const char *path, size_t size) { return find(ix, path, size); }

int penstock_index_entry(const struct penstock_index *ix, uint64_t at, struct penstock_entry *ret) { return decode(ix, at, ret); }

int penstock_index_lookup(const struct penstock_index *ix, const char *path, size_t size, struct penstock_entry *ret) {
  int64_t at = find(ix, path, size);
  return at < 0 ? (int)at : decode(ix, (uint64_t)at, ret);
}

int penstock_index_row(const struct penstock_index *ix, uint32_t row, struct penstock_row *ret) {
  uint8_t room[SPAN];
  int err = 0;
  const struct penstock_raw_row *r = row_at(ix, row, room, &err);
  if (!r)
    return err;
  *ret = (struct penstock_row){place_at(ix, r->record), place_at(ix, r->children), r->count, r->flags, r->learnt_ns};
  return 0;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

ssize_t penstock_index_name(const struct penstock_index *ix, const struct penstock_entry *e, char *buffer, size_t room) {
  int err = penstock_index_read(ix, e->at + PENSTOCK_RECORD_BYTES, buffer, least(e->name_size, room));
  return err < 0 ? err : e->name_size;
}

ssize_t penstock_index_part(const struct penstock_index *ix, const struct penstock_entry *e, enum penstock_part kind,
                            void *buffer, size_t room) {
  struct penstock_entry copy = *e;
  uint64_t at;
  uint16_t size;
  int found = e->parts_at ? each_part(ix, &copy, (uint16_t)kind, &at, &size) : 0;
  if (found <= 0)
    return found < 0 ? found : -ENODATA;
  int err = penstock_index_read(ix, at, buffer, least(size, room));
  return err < 0 ? err : size;
}

int64_t penstock_index_verify(const struct penstock_index *ix, void (*bad)(void *state, uint64_t at), void *state) {
  int64_t count = 0;
  uint8_t block[BLOCK];
  for (uint64_t b = 1; ix->state && b < ix->h.blocks + ix->h.tops; b++) /* block 0 was checked at opening */
    if (read_block(ix, b, block) < 0) {
      count++;
      if (bad)
        bad(state, b * BLOCK);
    }
  return count;
}
