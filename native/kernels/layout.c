// SPDX-License-Identifier: Apache-2.0
/* The codec of layout.h.  Offsets are the fields' places in Lustre's packed structures. */
#include "kernels/layout.h"

#include <errno.h>
#include <string.h>

/* First u64 of an object id from here on is a sequence: FID style. */
#define FID_SEQ_NORMAL 0x200000400u

/* ---- integers in either order ---- */


static uint16_t get16(const uint8_t *p, bool big) {
  uint16_t v;
  memcpy(&v, p, sizeof v);
  return big == penstock_host_big_endian() ? v : __builtin_bswap16(v);
}

static uint32_t get32(const uint8_t *p, bool big) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return big == penstock_host_big_endian() ? v : __builtin_bswap32(v);
}

static uint64_t get64(const uint8_t *p, bool big) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return big == penstock_host_big_endian() ? v : __builtin_bswap64(v);
}

static void put16(uint8_t *p, uint16_t v, bool big) {
  v = big == penstock_host_big_endian() ? v : __builtin_bswap16(v);
  memcpy(p, &v, sizeof v);
}

static void put32(uint8_t *p, uint32_t v, bool big) {
  v = big == penstock_host_big_endian() ? v : __builtin_bswap32(v);
  memcpy(p, &v, sizeof v);
}

static void put64(uint8_t *p, uint64_t v, bool big) {
  v = big == penstock_host_big_endian() ? v : __builtin_bswap64(v);
  memcpy(p, &v, sizeof v);
}

/* ---- what a magic means ---- */

static bool is_plain(uint32_t magic) {
  return magic == PENSTOCK_LOV_V1 || magic == PENSTOCK_LOV_V3 || magic == PENSTOCK_LOV_SPECIFIC;
}

static size_t header_bytes(uint32_t magic) {
  return magic == PENSTOCK_LOV_V1 ? PENSTOCK_LOV_V1_BYTES : PENSTOCK_LOV_V3_BYTES;
}

static bool is_known(uint32_t magic) { return is_plain(magic) || magic == PENSTOCK_LOV_COMP; }

/* ---- reading ---- */

/* A plain blob of `size` bytes: the part of `ret` below `magic`.  An unknown magic is no error: it says so itself. */
static int read_plain(const uint8_t *p, size_t size, bool big, struct penstock_component *ret) {
  uint32_t magic = get32(p, big);
  ret->magic = magic;
  if (!is_plain(magic))
    return 0;
  size_t header = header_bytes(magic);
  if (size < header)
    return -ERANGE;
  uint16_t count = get16(p + 28, big);
  size_t room = (size - header) / PENSTOCK_LOV_OBJECT_BYTES;
  if (magic == PENSTOCK_LOV_SPECIFIC && (count > PENSTOCK_STRIPES_MAX || room < count))
    return -ERANGE;
  ret->pattern = get32(p + 4, big);
  ret->oi_id = get64(p + 8, big);
  ret->oi_seq = get64(p + 16, big);
  ret->stripe_size_bytes = get32(p + 24, big);
  ret->stripe_count = count;
  ret->stripe_offset = get16(p + 30, big);
  if (magic != PENSTOCK_LOV_V1)
    memcpy(ret->pool, p + 32, PENSTOCK_POOL_BYTES);
  if (count < PENSTOCK_STRIPES_SPECIAL)
    ret->object_count = (uint32_t)(room < count ? room : count);
  ret->raw_objects = p + header;
  ret->raw_big_endian = big;
  return 0;
}

static const uint8_t *entry_at(const uint8_t *blob, unsigned i) {
  return blob + PENSTOCK_LOV_COMP_BYTES + (size_t)i * PENSTOCK_LOV_ENTRY_BYTES;
}

/* Component i of a composite blob of `size` bytes whose entries are known to fit. */
static int read_entry(const uint8_t *blob, size_t size, bool big, unsigned i, struct penstock_component *ret) {
  const uint8_t *e = entry_at(blob, i);
  size_t at = get32(e + 24, big), length = get32(e + 28, big);
  if (at > size || length > size - at || length < sizeof(uint32_t))
    return -EINVAL;
  *ret = (struct penstock_component){
    .id = get32(e, big),
    .flags = get32(e + 4, big),
    .start_bytes = get64(e + 8, big),
    .end_bytes = get64(e + 16, big),
    .gen = get32(e + 32, big),
    .timestamp = get64(e + 36, big),
  };
  memcpy(ret->extra, e + 44, sizeof ret->extra);
  return read_plain(blob + at, length, big, ret) < 0 ? -EINVAL : 0;
}

static int parse_composite(const uint8_t *p, size_t size, struct penstock_layout *l) {
  if (size < PENSTOCK_LOV_COMP_BYTES)
    return -ERANGE;
  bool big = l->big_endian;
  size_t whole = get32(p + 4, big);
  if (whole > size)
    return -ERANGE;
  l->composite = true;
  l->gen = get32(p + 8, big);
  l->flags = get16(p + 12, big);
  l->count = get16(p + 14, big);
  l->mirrors = get16(p + 16, big);
  l->parity_count = p[18];
  l->size_bytes = whole;
  if (l->count == 0 || whole < PENSTOCK_LOV_COMP_BYTES + (size_t)l->count * PENSTOCK_LOV_ENTRY_BYTES)
    return -EINVAL;
  for (unsigned i = 0; i < l->count; i++) {
    struct penstock_component c;
    if (read_entry(p, whole, big, i, &c) < 0)
      return -EINVAL;
  }
  return 0;
}

int penstock_layout_parse(const void *blob, size_t size, struct penstock_layout *ret) {
  const uint8_t *p = blob;
  if (size < PENSTOCK_LOV_V1_BYTES)
    return -ERANGE;
  struct penstock_layout l = {.blob = p, .size_bytes = size, .count = 1};
  l.big_endian = !is_known(get32(p, false));
  uint32_t magic = get32(p, l.big_endian);
  if (!is_known(magic))
    return -ERANGE;
  struct penstock_component c = {0};
  int err = magic == PENSTOCK_LOV_COMP ? parse_composite(p, size, &l) : read_plain(p, size, l.big_endian, &c);
  if (err == 0)
    *ret = l;
  return err;
}

int penstock_layout_component(const struct penstock_layout *l, unsigned i, struct penstock_component *ret) {
  if (i >= l->count)
    return -EINVAL;
  if (l->parts) {
    *ret = l->parts[i];
    return 0;
  }
  if (l->composite)
    return read_entry(l->blob, l->size_bytes, l->big_endian, i, ret);
  *ret = (struct penstock_component){.end_bytes = PENSTOCK_EOF};
  return read_plain(l->blob, l->size_bytes, l->big_endian, ret);
}

int penstock_layout_object(const struct penstock_component *c, unsigned i, struct penstock_object *ret) {
  if (i >= c->object_count || !(c->objects || c->raw_objects))
    return -EINVAL;
  if (c->objects) {
    *ret = c->objects[i];
    return 0;
  }
  bool big = c->raw_big_endian;
  const uint8_t *p = c->raw_objects + (size_t)i * PENSTOCK_LOV_OBJECT_BYTES;
  *ret = (struct penstock_object){.gen = get32(p + 16, big), .ost = get32(p + 20, big)};
  uint64_t first = get64(p, big);
  ret->fid_style = first >= FID_SEQ_NORMAL;
  if (ret->fid_style) {
    ret->seq = first;
    ret->oid = get32(p + 8, big);
    ret->version = get32(p + 12, big);
  } else {
    ret->oid = first;
    ret->seq = get64(p + 8, big);
  }
  return 0;
}

int64_t penstock_layout_ost(const struct penstock_component *c, unsigned i) {
  if (i >= c->object_count || !(c->objects || c->raw_objects))
    return -1;
  if (c->objects)
    return c->objects[i].ost;
  return get32(c->raw_objects + (size_t)i * PENSTOCK_LOV_OBJECT_BYTES + 20, c->raw_big_endian);
}

/* ---- writing ---- */

static size_t plain_bytes(const struct penstock_component *c) {
  return header_bytes(c->magic) + (size_t)c->object_count * PENSTOCK_LOV_OBJECT_BYTES;
}

ssize_t penstock_layout_size(const struct penstock_layout *l) {
  size_t size = l->composite ? PENSTOCK_LOV_COMP_BYTES + (size_t)l->count * PENSTOCK_LOV_ENTRY_BYTES : 0;
  if (l->count == 0 || (!l->composite && l->count != 1))
    return -EINVAL;
  for (unsigned i = 0; i < l->count; i++) {
    struct penstock_component c;
    if (penstock_layout_component(l, i, &c) < 0 || !is_plain(c.magic))
      return -EINVAL;
    size += plain_bytes(&c);
  }
  return (ssize_t)size;
}

static void write_object(const struct penstock_object *o, uint8_t *p, bool big) {
  if (o->fid_style) {
    put64(p, o->seq, big);
    put32(p + 8, (uint32_t)o->oid, big);
    put32(p + 12, o->version, big);
  } else {
    put64(p, o->oid, big);
    put64(p + 8, o->seq, big);
  }
  put32(p + 16, o->gen, big);
  put32(p + 20, o->ost, big);
}

static void write_plain(const struct penstock_component *c, uint8_t *p, bool big) {
  put32(p, c->magic, big);
  put32(p + 4, c->pattern, big);
  put64(p + 8, c->oi_id, big);
  put64(p + 16, c->oi_seq, big);
  put32(p + 24, c->stripe_size_bytes, big);
  put16(p + 28, c->stripe_count, big);
  put16(p + 30, c->stripe_offset, big);
  if (c->magic != PENSTOCK_LOV_V1)
    memcpy(p + 32, c->pool, PENSTOCK_POOL_BYTES);
  uint8_t *objects = p + header_bytes(c->magic);
  for (unsigned i = 0; i < c->object_count; i++) {
    struct penstock_object o = {0};
    penstock_layout_object(c, i, &o);
    write_object(&o, objects + (size_t)i * PENSTOCK_LOV_OBJECT_BYTES, big);
  }
}

static void write_entry(const struct penstock_component *c, size_t at, uint8_t *e, bool big) {
  put32(e, c->id, big);
  put32(e + 4, c->flags, big);
  put64(e + 8, c->start_bytes, big);
  put64(e + 16, c->end_bytes, big);
  put32(e + 24, (uint32_t)at, big);
  put32(e + 28, (uint32_t)plain_bytes(c), big);
  put32(e + 32, c->gen, big);
  put64(e + 36, c->timestamp, big);
  memcpy(e + 44, c->extra, sizeof c->extra);
}

static void write_composite(const struct penstock_layout *l, uint8_t *p, size_t size) {
  bool big = l->big_endian;
  memset(p, 0, PENSTOCK_LOV_COMP_BYTES);
  put32(p, PENSTOCK_LOV_COMP, big);
  put32(p + 4, (uint32_t)size, big);
  put32(p + 8, l->gen, big);
  put16(p + 12, l->flags, big);
  put16(p + 14, l->count, big);
  put16(p + 16, l->mirrors, big);
  p[18] = l->parity_count;
  size_t at = PENSTOCK_LOV_COMP_BYTES + (size_t)l->count * PENSTOCK_LOV_ENTRY_BYTES;
  for (unsigned i = 0; i < l->count; i++) {
    struct penstock_component c = {0};
    penstock_layout_component(l, i, &c);
    write_entry(&c, at, p + PENSTOCK_LOV_COMP_BYTES + (size_t)i * PENSTOCK_LOV_ENTRY_BYTES, big);
    write_plain(&c, p + at, big);
    at += plain_bytes(&c);
  }
}

ssize_t penstock_layout_write(const struct penstock_layout *l, void *buffer, size_t room) {
  ssize_t size = penstock_layout_size(l);
  if (size < 0)
    return size;
  if ((size_t)size > room || (uint64_t)size > UINT32_MAX)
    return -ERANGE;
  if (l->composite) {
    write_composite(l, buffer, (size_t)size);
  } else {
    struct penstock_component c = {0};
    penstock_layout_component(l, 0, &c);
    write_plain(&c, buffer, l->big_endian);
  }
  return size;
}

/* ---- judging a template ---- */

/* The list: each OST once (unless overstriped), and the offset, if given, one of them. */
static int check_list(const struct penstock_component *c, bool overstriped) {
  uint8_t seen[PENSTOCK_STRIPES_SPECIAL / 8] = {0}; /* a bit an OST: 8 KiB */
  bool offset_listed = c->stripe_offset == PENSTOCK_OFFSET_ANY;
  for (unsigned i = 0; i < c->object_count; i++) {
    int64_t ost = penstock_layout_ost(c, i);
    if (ost < 0 || ost >= PENSTOCK_STRIPES_SPECIAL)
      return -EINVAL;
    if (seen[ost / 8] & 1 << ost % 8 && !overstriped)
      return -EINVAL;
    seen[ost / 8] |= (uint8_t)(1 << ost % 8);
    offset_listed |= ost == c->stripe_offset;
  }
  return offset_listed || c->object_count == 0 ? 0 : -EINVAL;
}

static int check_dom(const struct penstock_component *c, bool composite) {
  bool right = composite && c->start_bytes == 0 && c->stripe_count <= 1 && c->stripe_size_bytes == c->end_bytes &&
               c->pool[0] == 0;
  return right ? 0 : -EINVAL;
}

static int check_component(const struct penstock_component *c, bool composite) {
  if (!is_plain(c->magic) || c->stripe_size_bytes % PENSTOCK_STRIPE_UNIT_BYTES)
    return -EINVAL;
  if (c->magic != PENSTOCK_LOV_V1 && !memchr(c->pool, 0, sizeof c->pool))
    return -E2BIG;
  uint32_t pattern = c->pattern & ~PENSTOCK_PATTERN_RELEASED;
  if (pattern == PENSTOCK_PATTERN_MDT)
    return check_dom(c, composite);
  if (pattern > PENSTOCK_PATTERN_RAID0 && pattern != PENSTOCK_PATTERN_OVERSTRIPED)
    return -EINVAL;
  if (composite && c->end_bytes != PENSTOCK_EOF && c->stripe_size_bytes && c->end_bytes % c->stripe_size_bytes)
    return -EINVAL;
  return c->magic == PENSTOCK_LOV_SPECIFIC ? check_list(c, pattern == PENSTOCK_PATTERN_OVERSTRIPED) : 0;
}

static bool aligned(uint64_t bytes) { return bytes == PENSTOCK_EOF || bytes % PENSTOCK_STRIPE_UNIT_BYTES == 0; }

/* Extents tile from 0 in each mirror, and the number of mirrors is the one stated. */
static int check_extents(const struct penstock_layout *l) {
  uint64_t previous_end = 0;
  unsigned mirrors = 0;
  for (unsigned i = 0; i < l->count; i++) {
    struct penstock_component c;
    if (penstock_layout_component(l, i, &c) < 0)
      return -EINVAL;
    if (!aligned(c.start_bytes) || !aligned(c.end_bytes) || c.start_bytes > c.end_bytes)
      return -EINVAL;
    if (c.start_bytes == 0)
      mirrors++;
    else if (i == 0 || c.start_bytes != previous_end)
      return -EINVAL;
    previous_end = c.end_bytes;
  }
  return mirrors == l->mirrors + 1u && mirrors <= PENSTOCK_MIRRORS_MAX ? 0 : -EINVAL;
}

int penstock_layout_check(const struct penstock_layout *l) {
  int err = l->composite ? check_extents(l) : 0;
  for (unsigned i = 0; err == 0 && i < l->count; i++) {
    struct penstock_component c;
    err = penstock_layout_component(l, i, &c);
    if (err == 0)
      err = check_component(&c, l->composite);
  }
  return err;
}

bool penstock_layout_is_copy(const struct penstock_layout *l) {
  for (unsigned i = 0; i < l->count; i++) {
    struct penstock_component c;
    struct penstock_object o;
    if (penstock_layout_component(l, i, &c) < 0)
      return false;
    if (l->composite && c.flags & PENSTOCK_COMP_INIT)
      return true;
    if (!l->composite && c.magic != PENSTOCK_LOV_SPECIFIC && c.stripe_offset == 0 &&
        penstock_layout_object(&c, 0, &o) == 0 && (o.seq || o.oid))
      return true;
  }
  return false;
}

/* ---- which bytes are where ---- */

int penstock_layout_locate(const struct penstock_component *c, uint64_t offset_bytes, struct penstock_spot *ret) {
  uint64_t size = c->stripe_size_bytes, count = c->object_count;
  if (offset_bytes < c->start_bytes || offset_bytes >= c->end_bytes)
    return -EINVAL;
  if (size == 0 || count == 0)
    return -ENODATA;
  uint64_t stripe = offset_bytes / size, inside = offset_bytes % size;
  uint64_t run = size - inside, left = c->end_bytes - offset_bytes;
  *ret = (struct penstock_spot){
    .stripe = (uint32_t)(stripe % count),
    .object_offset_bytes = stripe / count * size + inside,
    .run_bytes = run < left ? run : left,
  };
  return 0;
}

int penstock_layout_find(const struct penstock_layout *l, uint64_t offset_bytes) {
  for (unsigned i = 0; i < l->count; i++) {
    struct penstock_component c;
    if (penstock_layout_component(l, i, &c) == 0 && !(c.flags & PENSTOCK_COMP_STALE) &&
        offset_bytes >= c.start_bytes && offset_bytes < c.end_bytes)
      return (int)i;
  }
  return -ENODATA;
}
