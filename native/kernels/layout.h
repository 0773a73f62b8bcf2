// SPDX-License-Identifier: Apache-2.0
/* Lustre layouts, byte for byte: templates for setting a layout, and layouts read back.

   A `struct penstock_layout` is either a view of somebody's bytes (made by penstock_layout_parse) or a description
   in memory (filled in by the caller, `parts` set, for penstock_layout_write).  The accessors serve both, so
   write(parse(x)) needs no copy in between, and gives x for every value that Lustre makes.

   Invariants:
   1. Nothing is allocated and nothing is kept: a view points into the caller's bytes, which must outlive it.
   2. No byte outside [blob, blob + size) is read, whatever the bytes say; none outside the room given is written.
   3. Both byte orders are read, told apart by the magic; the writer uses the one that `big_endian` names.
   4. Results are negative errno, the one that Lustre's client answers to setxattr; outputs are written on success only.
   5. Reading never judges wishes (a directory's default may hold nonsense); penstock_layout_check does.

   A plain layout is a layout of one component with the extent [0, EOF). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
  PENSTOCK_LOV_V1 = 0x0BD10BD0,
  PENSTOCK_LOV_V3 = 0x0BD30BD0,       /* V1 with a pool */
  PENSTOCK_LOV_SPECIFIC = 0x0BD50BD0, /* V3 with a list of OSTs: to set; read back from directories only */
  PENSTOCK_LOV_COMP = 0x0BD60BD0,     /* components: PFL, DoM, mirrors */
  PENSTOCK_LOV_FOREIGN = 0x0BD70BD0,  /* somebody else's bytes: not read here */
};

/* Patterns. */
enum {
  PENSTOCK_PATTERN_NONE = 0, /* read as RAID0 when set */
  PENSTOCK_PATTERN_RAID0 = 0x1,
  PENSTOCK_PATTERN_MDT = 0x100, /* the data lies on the MDT (DoM) */
  PENSTOCK_PATTERN_OVERSTRIPED = 0x201,
};
#define PENSTOCK_PATTERN_RELEASED 0x80000000u

/* Flags of a component. */
enum {
  PENSTOCK_COMP_STALE = 0x1,
  PENSTOCK_COMP_INIT = 0x10, /* its objects exist */
};

enum {
  PENSTOCK_STRIPE_UNIT_BYTES = 65536, /* sizes and extents are multiples of this */
  PENSTOCK_STRIPES_MAX = 2000,
  PENSTOCK_STRIPES_ALL = 0xffff,     /* stripe_count: all OSTs */
  PENSTOCK_STRIPES_SPECIAL = 0xffe0, /* from here on stripe_count is a wish, not a number */
  PENSTOCK_OFFSET_ANY = 0xffff,      /* stripe_offset: Lustre chooses (0 is OST 0) */
  PENSTOCK_MIRRORS_MAX = 16,
  PENSTOCK_POOL_BYTES = 16, /* 15 characters and NUL */
  PENSTOCK_LAYOUT_MAX_BYTES = 65536,
  PENSTOCK_LOV_V1_BYTES = 32,
  PENSTOCK_LOV_V3_BYTES = 48, /* SPECIFIC too */
  PENSTOCK_LOV_OBJECT_BYTES = 24,
  PENSTOCK_LOV_COMP_BYTES = 32, /* header of a composite, then an entry each */
  PENSTOCK_LOV_ENTRY_BYTES = 48,
};
#define PENSTOCK_EOF UINT64_MAX

/* One object.  In a SPECIFIC template all but `ost` is 0. */
struct penstock_object {
  bool fid_style;   /* {seq u64, oid u32, version u32}, else {oid u64, seq u64} (old file systems, and all zero) */
  uint64_t seq;     /* FID style: 0x200000400 or more */
  uint64_t oid;     /* FID style: 32 bits */
  uint32_t version; /* FID style only */
  uint32_t gen;
  uint32_t ost;
};

/* One component, or a whole plain layout.  The first group is the composite's entry: of a plain layout
   start 0, end EOF, the rest 0. */
struct penstock_component {
  uint32_t id; /* 0 when set; on read bits 0-15 number, 16-30 mirror */
  uint32_t flags;
  uint64_t start_bytes;
  uint64_t end_bytes; /* exclusive; PENSTOCK_EOF */
  uint32_t gen;
  uint64_t timestamp;
  uint8_t extra[4]; /* parity and compression, kept as found */

  uint32_t magic; /* V1, V3, SPECIFIC; anything else was not understood, and the fields below are 0 */
  uint32_t pattern;
  uint64_t oi_id; /* of the file's own FID; 0 inside composites */
  uint64_t oi_seq;
  uint32_t stripe_size_bytes;
  uint16_t stripe_count;  /* as stored: also 0xffff where that was the wish */
  uint16_t stripe_offset; /* when set: first OST or PENSTOCK_OFFSET_ANY; on read 0xffff, 0 or a generation: no OST */
  char pool[PENSTOCK_POOL_BYTES];

  uint32_t object_count;                 /* entries really there: 0 in a template or default, except SPECIFIC */
  const struct penstock_object *objects; /* of a description; NULL in a view */
  const uint8_t *raw_objects;            /* of a view */
  bool raw_big_endian;
};

struct penstock_layout {
  bool composite;
  bool big_endian;
  uint32_t gen;         /* this and the next three of composites only */
  uint16_t flags;       /* low bits: state of mirrors */
  uint16_t mirrors;     /* one less than there are: 0 = not mirrored */
  uint8_t parity_count; /* components with parity */
  uint16_t count;       /* of components; 1 of a plain layout */

  const struct penstock_component *parts; /* of a description; NULL in a view */
  const uint8_t *blob;                    /* of a view */
  size_t size_bytes;
};

/* Is this machine's order big-endian?  What a client of it would write. */
static inline bool penstock_host_big_endian(void) { return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__; }

/* Make a view of bytes.  -ERANGE: too short for what it claims, unknown magic (FOREIGN too), a list over 2000.
   -EINVAL: a composite whose entries or sub-layouts do not fit.  After success the accessors cannot fail
   for an index below the count. */
int penstock_layout_parse(const void *blob, size_t size, struct penstock_layout *ret);

/* Component i of a layout: 0, or -EINVAL past the end. */
int penstock_layout_component(const struct penstock_layout *l, unsigned i, struct penstock_component *ret);

/* Object i of a component: 0, or -EINVAL past the end. */
int penstock_layout_object(const struct penstock_component *c, unsigned i, struct penstock_object *ret);

/* The OST of object i, or -1. */
int64_t penstock_layout_ost(const struct penstock_component *c, unsigned i);

/* Bytes that penstock_layout_write will make, or -EINVAL (a component of unknown magic). */
ssize_t penstock_layout_size(const struct penstock_layout *l);

/* Write the layout: bytes written, -ERANGE if `room` is too small, -EINVAL as above. */
ssize_t penstock_layout_write(const struct penstock_layout *l, void *buffer, size_t room);

/* The rules for a template that do not depend on a file system's state: pattern, sizes, extents, mirrors, DoM, the
   list.  0, -EINVAL, or -E2BIG (pool name without NUL).  Which OSTs exist and whether they may be used is not asked. */
int penstock_layout_check(const struct penstock_layout *l);

/* Was this value read from another file?  Then Lustre takes count and size from it and chooses the OSTs anew
   (all stripe_offsets become PENSTOCK_OFFSET_ANY). */
bool penstock_layout_is_copy(const struct penstock_layout *l);

/* Where a byte of the file lies within a component that covers it. */
struct penstock_spot {
  uint32_t stripe;             /* index of the object */
  uint64_t object_offset_bytes;
  uint64_t run_bytes; /* so many bytes from here on lie together (to the end of the stripe or the component) */
};
int penstock_layout_locate(const struct penstock_component *c, uint64_t offset_bytes, struct penstock_spot *ret);

/* The number of the component that holds a byte, in the mirror that comes first and is not stale; -ENODATA if none. */
int penstock_layout_find(const struct penstock_layout *l, uint64_t offset_bytes);
