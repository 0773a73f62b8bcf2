// SPDX-License-Identifier: Apache-2.0
/* The stock allocator of one MDT: which OSTs a new file's objects lie on.  It is the baseline that placing is compared
 * with, so it follows Lustre's rules and not better ones: round robin over a list in which the OSTs of each OSS are
 * spread evenly, with a start that creeps and is drawn anew now and then; where free space is uneven, draws weighted by
 * free space less penalties for recent use; an OST or a list that the caller names.
 *
 * Invariants:
 * 1. An OST is chosen once for a component unless it may be overstriped, and then as evenly as the count allows.
 * 2. A list is taken whole or refused whole; a choice without a list skips what cannot be used.
 * 3. An inactive, full, read-only or no-create OST is never chosen.  A degraded one is chosen without being named only
 *    when the others do not suffice.
 * 4. Choosing changes nothing but the turn, the penalties and the random numbers.
 * 5. One lock guards all; only `look` is called under it.
 */
#pragma once
#include "testbed/lov.h"

enum {
  ALLOC_MAX_OSTS = 2048,
  ALLOC_MAX_POOLS = 64,
};

struct alloc;

/* `config`: the part of lov_config that speaks of OSTs, already with its defaults.  NULL: no memory. */
struct alloc *alloc_new(const struct lov_config *config);
void alloc_free(struct alloc *a);
void alloc_refresh(struct alloc *a);
int alloc_pool(struct alloc *a, const char *name, const uint32_t *osts, uint32_t count);

/* A set of OSTs. */
struct alloc_set {
  uint64_t bits[ALLOC_MAX_OSTS / 64];
};
static inline void alloc_set_add(struct alloc_set *s, uint32_t ost) { s->bits[ost / 64] |= UINT64_C(1) << ost % 64; }
static inline bool alloc_set_has(const struct alloc_set *s, uint32_t ost) { return s->bits[ost / 64] >> ost % 64 & 1; }

struct alloc_wish {
  uint32_t count;    /* 1 .. 65535; PENSTOCK_STRIPES_ALL, and with overstriping PENSTOCK_STRIPES_SPECIAL and above */
  bool overstriped;  /* an OST may be chosen again when all have been */
  uint16_t offset;   /* the first OST, or PENSTOCK_OFFSET_ANY; with a list: the one of it that comes first */
  const char *pool;  /* 16 bytes, or "" */
  const uint32_t *list; /* exactly these, in this order; NULL: none */
  uint32_t list_count;
  const struct alloc_set *others; /* OSTs of the file's other components: used when the rest does not suffice */
  uint32_t most;     /* no more stripes than this */
};

struct alloc_choice {
  uint32_t osts[PENSTOCK_STRIPES_MAX];
  uint32_t count;
  bool overstriped; /* some OST is there twice */
  bool in_pool;     /* the pool's name stays (a list outside the pool drops it) */
};

/* 0; or -EINVAL (an OST that is not there, or not in the pool), -EREMOTEIO, -ENOSPC, -ENOBUFS, -EROFS (what the first
 * bad OST of a list is), -ENOSPC (no OST can be used), -EFBIG (from the offset on only some can). */
int alloc_choose(struct alloc *a, const struct alloc_wish *wish, struct alloc_choice *ret);

/* Would alloc_choose say -EINVAL, whatever the states? */
int alloc_check(struct alloc *a, const struct alloc_wish *wish);
