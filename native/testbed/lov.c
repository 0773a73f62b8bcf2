// SPDX-License-Identifier: Apache-2.0
/* How files and directories get layouts: templates and defaults become drafts, drafts get objects. */
#include "testbed/lov.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testbed/alloc.h"

enum {
  FIRST_GEN = 2,                       /* of a composite */
  MIRRORS_IN_SYNC = 1,                 /* states of a composite with mirrors */
  MIRRORS_WRITTEN = 2,
  SETTABLE = 0x2 | 0x4 | 0x40 | 0x80 | 0x400, /* flags of a component that a caller may set */
};

struct lov {
  struct lov_config config;
  struct alloc *alloc;
};

/* ---- life ---- */

static void set_defaults(struct lov_config *c) {
  if (!c->stripe_size_bytes)
    c->stripe_size_bytes = 4u << 20;
  if (!c->stripe_count)
    c->stripe_count = 1;
  if (!c->append_stripe_count)
    c->append_stripe_count = 1;
  if (!c->dom_bytes)
    c->dom_bytes = 1u << 20;
  if (!c->qos_threshold_percent)
    c->qos_threshold_percent = 17;
  if (!c->qos_prio_free_percent)
    c->qos_prio_free_percent = 90;
  if (!c->space_age_ns)
    c->space_age_ns = UINT64_C(5000000000);
}

static bool fine_count(uint32_t count) { return count <= PENSTOCK_STRIPES_MAX || count == PENSTOCK_STRIPES_ALL; }

bool lov_config_fine(const struct lov_config *c, char *why, size_t why_size) {
  const struct {
    bool fine;
    const char *text;
    uint64_t value;
  } rules[] = {
    {c->stripe_size_bytes % PENSTOCK_STRIPE_UNIT_BYTES == 0, "layout.stripe_size %" PRIu64 " is no multiple of 65536",
     c->stripe_size_bytes},
    {c->dom_bytes % PENSTOCK_STRIPE_UNIT_BYTES == 0, "layout.dom_size %" PRIu64 " is no multiple of 65536", c->dom_bytes},
    {fine_count(c->stripe_count), "layout.stripe_count %" PRIu64 ": 1 to 2000, or -1 for all OSTs", c->stripe_count},
    {fine_count(c->append_stripe_count), "layout.append_stripe_count %" PRIu64 ": 1 to 2000, or -1 for all OSTs",
     c->append_stripe_count},
    {c->qos_threshold_percent <= 100, "layout.qos_threshold_percent %" PRIu64 ": 1 to 100", c->qos_threshold_percent},
    {c->qos_prio_free_percent <= 100, "layout.qos_prio_free_percent %" PRIu64 ": 1 to 100", c->qos_prio_free_percent},
  };
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    if (rules[i].fine)
      continue;
    snprintf(why, why_size, rules[i].text, rules[i].value);
    return false;
  }
  return true;
}

struct lov *lov_new(const struct lov_config *config) {
  if (config->ost_count == 0 || config->ost_count > ALLOC_MAX_OSTS)
    return NULL;
  struct lov *lov = calloc(1, sizeof *lov);
  if (!lov)
    return NULL;
  lov->config = *config;
  set_defaults(&lov->config);
  lov->alloc = alloc_new(&lov->config);
  if (!lov->alloc) {
    free(lov);
    return NULL;
  }
  return lov;
}

void lov_free(struct lov *lov) {
  if (!lov)
    return;
  alloc_free(lov->alloc);
  free(lov);
}

void lov_refresh(struct lov *lov) { alloc_refresh(lov->alloc); }

int lov_pool(struct lov *lov, const char *name, const uint32_t *osts, uint32_t count) {
  return alloc_pool(lov->alloc, name, osts, count);
}

uint64_t lov_object_seq(uint32_t ost) { return UINT64_C(0x240000400) + (uint64_t)ost * 0x40000000; }

/* ---- drafts ---- */

/* A layout in the making.  Its parts point into the bytes that it was made from, and into `objects`. */
struct draft {
  struct penstock_layout layout;
  struct penstock_component parts[LOV_PARTS];
  struct penstock_object *objects[LOV_PARTS]; /* of the parts that got theirs here */
};

static struct draft *draft_new(void) {
  struct draft *d = calloc(1, sizeof *d);
  if (d)
    d->layout = (struct penstock_layout){.big_endian = penstock_host_big_endian(), .count = 1, .parts = d->parts};
  return d;
}

static void draft_free(struct draft *d) {
  for (unsigned i = 0; d && i < LOV_PARTS; i++)
    free(d->objects[i]);
  free(d);
}

/* The parts as they are. */
static int draft_read(struct draft *d, const struct penstock_layout *l) {
  if (l->count > LOV_PARTS)
    return -E2BIG;
  d->layout = *l;
  d->layout.parts = d->parts;
  for (unsigned i = 0; i < l->count; i++) {
    int err = penstock_layout_component(l, i, &d->parts[i]);
    if (err < 0)
      return err;
  }
  return 0;
}

static bool is_dom(const struct penstock_component *c) { return c->pattern == PENSTOCK_PATTERN_MDT; }

/* The magic of a layout without a list. */
static uint32_t plain_magic(const struct penstock_component *c) {
  return c->pool[0] ? PENSTOCK_LOV_V3 : PENSTOCK_LOV_V1;
}

static uint32_t default_stripe_size(const struct lov *lov, const struct penstock_component *c) {
  uint32_t size = lov->config.stripe_size_bytes;
  if (c->end_bytes == PENSTOCK_EOF || c->end_bytes % size == 0)
    return size;
  uint64_t divides = c->end_bytes & -c->end_bytes;
  return divides < size ? (uint32_t)divides : PENSTOCK_STRIPE_UNIT_BYTES;
}

/* How many stripes the extent has room for. */
static uint32_t most_stripes(const struct penstock_component *c) {
  if (c->end_bytes == PENSTOCK_EOF)
    return PENSTOCK_STRIPES_MAX;
  uint64_t room = (c->end_bytes - c->start_bytes + c->stripe_size_bytes - 1) / c->stripe_size_bytes;
  return room > PENSTOCK_STRIPES_MAX ? PENSTOCK_STRIPES_MAX : (room ? (uint32_t)room : 1);
}

/* A component as wished becomes one as stored: nothing left to defaults, nothing that wishes may not say. */
static void settle_part(const struct lov *lov, struct penstock_component *c, bool copy) {
  c->flags &= SETTABLE;
  c->gen = 0;
  c->timestamp = 0;
  c->pattern &= ~PENSTOCK_PATTERN_RELEASED;
  if (c->pattern == PENSTOCK_PATTERN_NONE)
    c->pattern = PENSTOCK_PATTERN_RAID0;
  bool listed = c->magic == PENSTOCK_LOV_SPECIFIC && c->object_count;
  if (!listed) {
    c->magic = plain_magic(c);
    c->object_count = 0;
  }
  if (copy)
    c->stripe_offset = PENSTOCK_OFFSET_ANY;
  if (is_dom(c)) {
    c->stripe_count = 0;
    return;
  }
  if (!c->stripe_size_bytes)
    c->stripe_size_bytes = default_stripe_size(lov, c);
  if (!c->stripe_count)
    c->stripe_count = (uint16_t)lov->config.stripe_count;
  if (!listed && c->stripe_count < PENSTOCK_STRIPES_SPECIAL && c->stripe_count > most_stripes(c))
    c->stripe_count = (uint16_t)most_stripes(c);
}

/* The MDT takes no more than dom_bytes of a file: what is beyond belongs to the next component. */
static void cut_dom(const struct lov *lov, struct draft *d) {
  for (unsigned i = 0; i < d->layout.count; i++) {
    struct penstock_component *c = &d->parts[i];
    if (!is_dom(c) || c->end_bytes <= lov->config.dom_bytes)
      continue;
    if (i + 1u < d->layout.count && d->parts[i + 1].start_bytes == c->end_bytes)
      d->parts[i + 1].start_bytes = lov->config.dom_bytes;
    c->end_bytes = c->stripe_size_bytes = lov->config.dom_bytes;
  }
}

/* Components are numbered from 1, and belong to mirror 1, 2 ... if there is more than one. */
static void number_parts(struct draft *d) {
  uint32_t mirror = 0;
  for (unsigned i = 0; i < d->layout.count; i++) {
    mirror += d->parts[i].start_bytes == 0;
    d->parts[i].id = d->layout.mirrors ? mirror << 16 | (i + 1) : i + 1;
  }
}

/* ---- targets ---- */

static void add_osts(struct alloc_set *set, const struct penstock_component *c) {
  for (unsigned i = 0; i < c->object_count; i++) {
    int64_t ost = penstock_layout_ost(c, i);
    if (ost >= 0 && ost < ALLOC_MAX_OSTS)
      alloc_set_add(set, (uint32_t)ost);
  }
}

/* What a component asks the allocator for; `list` has room for PENSTOCK_STRIPES_MAX. */
static struct alloc_wish wish_of(const struct penstock_component *c, uint32_t *list, const struct alloc_set *others) {
  struct alloc_wish w = {
    .count = c->stripe_count,
    .overstriped = c->pattern == PENSTOCK_PATTERN_OVERSTRIPED,
    .offset = c->stripe_offset,
    .pool = c->pool,
    .others = others,
    .most = most_stripes(c),
  };
  if (c->magic != PENSTOCK_LOV_SPECIFIC)
    return w;
  w.list = list;
  for (; w.list_count < c->object_count && w.list_count < PENSTOCK_STRIPES_MAX; w.list_count++)
    list[w.list_count] = (uint32_t)penstock_layout_ost(c, w.list_count);
  return w;
}

/* Does the draft name only OSTs that are there? */
static int check_targets(struct lov *lov, const struct draft *d) {
  uint32_t list[PENSTOCK_STRIPES_MAX];
  int err = 0;
  for (unsigned i = 0; err == 0 && i < d->layout.count; i++) {
    if (is_dom(&d->parts[i]))
      continue;
    struct alloc_wish w = wish_of(&d->parts[i], list, NULL);
    err = alloc_check(lov->alloc, &w);
  }
  return err;
}

/* Chooses the targets of part i; the objects have no numbers yet. */
static int instantiate_part(struct lov *lov, struct draft *d, unsigned i) {
  struct penstock_component *c = &d->parts[i];
  if (is_dom(c)) {
    c->flags |= PENSTOCK_COMP_INIT;
    return 0;
  }
  struct alloc_set others = {0};
  for (unsigned j = 0; j < d->layout.count; j++) {
    if (d->parts[j].flags & PENSTOCK_COMP_INIT)
      add_osts(&others, &d->parts[j]);
  }
  uint32_t list[PENSTOCK_STRIPES_MAX];
  struct alloc_choice choice;
  struct alloc_wish w = wish_of(c, list, &others);
  int err = alloc_choose(lov->alloc, &w, &choice);
  if (err < 0)
    return err;
  d->objects[i] = calloc(choice.count, sizeof *d->objects[i]);
  if (!d->objects[i])
    return -ENOMEM;
  for (uint32_t k = 0; k < choice.count; k++)
    d->objects[i][k] = (struct penstock_object){.fid_style = true, .ost = choice.osts[k]};
  if (!choice.in_pool)
    memset(c->pool, 0, sizeof c->pool);
  c->magic = plain_magic(c);
  c->pattern = choice.overstriped ? PENSTOCK_PATTERN_OVERSTRIPED : PENSTOCK_PATTERN_RAID0;
  c->flags |= PENSTOCK_COMP_INIT;
  c->stripe_offset = 0; /* the generation of a plain layout */
  c->stripe_count = (uint16_t)choice.count;
  c->object_count = choice.count;
  c->objects = d->objects[i];
  c->raw_objects = NULL;
  return 0;
}

/* Numbers for the objects that were chosen, and the bytes.  What does not fit is refused before numbers are taken. */
static ssize_t draft_write(struct lov *lov, struct draft *d, void *ret, size_t room) {
  ssize_t size = penstock_layout_size(&d->layout);
  if (size < 0)
    return size;
  if ((size_t)size > room || size > LOV_BYTES)
    return -E2BIG;
  for (unsigned i = 0; i < d->layout.count; i++) {
    for (uint32_t k = 0; d->objects[i] && k < d->parts[i].object_count; k++) {
      struct penstock_object *o = &d->objects[i][k];
      uint32_t number = 0;
      int err = lov->config.new_object(lov->config.closure, o->ost, &number);
      if (err < 0)
        return err;
      o->seq = lov_object_seq(o->ost);
      o->oid = number;
    }
  }
  return penstock_layout_write(&d->layout, ret, room);
}

/* ---- files ---- */

/* A valid template, as wished for this file. */
static int draft_wish(struct lov *lov, struct draft *d, const struct penstock_layout *l, const struct lov_request *r) {
  bool copy = penstock_layout_is_copy(l);
  int err = draft_read(d, l);
  if (err < 0)
    return err;
  for (unsigned i = 0; i < d->layout.count; i++) {
    struct penstock_component *c = &d->parts[i];
    settle_part(lov, c, copy);
    if (is_dom(c) && !c->stripe_size_bytes)
      return -EINVAL; /* no room on the MDT */
    c->oi_id = l->composite ? 0 : r->fid_oid;
    c->oi_seq = l->composite ? 0 : r->fid_seq;
  }
  cut_dom(lov, d);
  if (l->composite) {
    d->layout.gen = FIRST_GEN;
    d->layout.flags = l->mirrors ? MIRRORS_IN_SYNC : 0;
    number_parts(d);
  }
  return check_targets(lov, d);
}

/* The file system's own default. */
static int draft_system(struct lov *lov, struct draft *d, const struct lov_request *r) {
  struct penstock_component c = {
    .end_bytes = PENSTOCK_EOF,
    .magic = PENSTOCK_LOV_V1,
    .stripe_count = (uint16_t)(r->append ? lov->config.append_stripe_count : lov->config.stripe_count),
    .stripe_offset = PENSTOCK_OFFSET_ANY,
  };
  struct penstock_layout l = {.big_endian = penstock_host_big_endian(), .count = 1, .parts = &c};
  return draft_wish(lov, d, &l, r);
}

/* The default of the parent, else of the root; one that cannot be followed is passed over in silence. */
static int draft_default(struct lov *lov, struct draft *d, const struct lov_request *r) {
  const void *bytes = r->parent_size ? r->parent : r->root;
  size_t size = r->parent_size ? r->parent_size : r->root_size;
  struct penstock_layout l;
  bool good = !r->append && bytes && size && penstock_layout_parse(bytes, size, &l) == 0 &&
              penstock_layout_check(&l) == 0 && draft_wish(lov, d, &l, r) == 0;
  return good ? 0 : draft_system(lov, d, r);
}

/* Does the template say nothing at all? */
static bool says_nothing(const struct penstock_layout *l) {
  struct penstock_component c;
  return !l->composite && penstock_layout_component(l, 0, &c) == 0 && !c.stripe_size_bytes && !c.stripe_count &&
         c.stripe_offset == PENSTOCK_OFFSET_ANY && !c.pool[0] && c.pattern <= PENSTOCK_PATTERN_RAID0;
}

/* What a caller asked for.  1: nothing is to be done. */
static int draft_asked(struct lov *lov, struct draft *d, const struct lov_request *r) {
  struct penstock_layout l;
  int err = r->template_size ? penstock_layout_parse(r->template, r->template_size, &l) : 1;
  if (err == 0 && l.big_endian != penstock_host_big_endian())
    err = -ERANGE;
  if (r->how == LOV_IOCTL && (err == -ERANGE || err > 0))
    err = -EINVAL;
  if (err != 0)
    return err;
  if (r->has_layout)
    return r->how == LOV_IOCTL ? -EEXIST : 1;
  err = penstock_layout_check(&l);
  if (err < 0)
    return err;
  return says_nothing(&l) ? draft_default(lov, d, r) : draft_wish(lov, d, &l, r);
}

/* Objects for what the file covers: at least the beginning. */
static int instantiate_first(struct lov *lov, struct draft *d, uint64_t size_bytes) {
  int err = 0;
  for (unsigned i = 0; err == 0 && i < d->layout.count; i++) {
    if (d->parts[i].start_bytes == 0 || d->parts[i].start_bytes < size_bytes)
      err = instantiate_part(lov, d, i);
  }
  return err;
}

ssize_t lov_create(struct lov *lov, const struct lov_request *request, void *ret, size_t room) {
  if (request->how == LOV_OPEN && request->has_layout)
    return 0;
  struct draft *d = draft_new();
  if (!d)
    return -ENOMEM;
  ssize_t got = request->how == LOV_OPEN ? draft_default(lov, d, request) : draft_asked(lov, d, request);
  if (got == 0) {
    got = instantiate_first(lov, d, request->size_bytes);
    if (got == 0)
      got = draft_write(lov, d, ret, room);
  } else if (got > 0) {
    got = 0;
  }
  draft_free(d);
  return got;
}

/* ---- writing into a composite ---- */

static uint32_t mirror_of(const struct penstock_component *c) { return c->id >> 16; }

static bool overlaps(const struct penstock_component *c, uint64_t start_bytes, uint64_t end_bytes) {
  return c->start_bytes < end_bytes && start_bytes < c->end_bytes;
}

/* The mirror that is written: the first whose components here are not stale; -ENODATA if none holds the bytes. */
static int64_t written_mirror(const struct draft *d, uint64_t start_bytes, uint64_t end_bytes) {
  for (unsigned i = 0; i < d->layout.count; i++) {
    const struct penstock_component *c = &d->parts[i];
    if (c->start_bytes != 0)
      continue;
    uint64_t end = 0;
    bool stale = false;
    for (unsigned j = i; j < d->layout.count && mirror_of(&d->parts[j]) == mirror_of(c); j++) {
      end = d->parts[j].end_bytes;
      stale |= overlaps(&d->parts[j], start_bytes, end_bytes) && d->parts[j].flags & PENSTOCK_COMP_STALE;
    }
    if (!stale && end_bytes <= end)
      return mirror_of(c);
  }
  return -ENODATA;
}

/* Components of the written mirror get objects, those of the others become stale: 1 if anything changed. */
static int prepare_write(struct lov *lov, struct draft *d, uint64_t start_bytes, uint64_t end_bytes) {
  int64_t mirror = written_mirror(d, start_bytes, end_bytes);
  int changed = 0;
  for (unsigned i = 0; mirror >= 0 && i < d->layout.count; i++) {
    struct penstock_component *c = &d->parts[i];
    if (!overlaps(c, start_bytes, end_bytes))
      continue;
    if (mirror_of(c) != mirror) {
      changed |= !(c->flags & PENSTOCK_COMP_STALE);
      c->flags |= PENSTOCK_COMP_STALE;
      d->layout.flags = MIRRORS_WRITTEN;
    } else if (!(c->flags & PENSTOCK_COMP_INIT)) {
      int err = instantiate_part(lov, d, i);
      if (err < 0)
        return err;
      changed = 1;
    }
  }
  return mirror < 0 ? (int)mirror : changed;
}

ssize_t lov_instantiate(struct lov *lov, const void *stored, size_t size, uint64_t start_bytes, uint64_t end_bytes,
                        void *ret, size_t room) {
  struct penstock_layout l;
  if (penstock_layout_parse(stored, size, &l) < 0)
    return -EIO;
  if (!l.composite || start_bytes >= end_bytes)
    return 0;
  struct draft *d = draft_new();
  if (!d)
    return -ENOMEM;
  ssize_t got = draft_read(d, &l);
  if (got == 0)
    got = prepare_write(lov, d, start_bytes, end_bytes);
  if (got > 0) {
    d->layout.gen++;
    got = draft_write(lov, d, ret, room);
  }
  draft_free(d);
  return got;
}

/* ---- directories ---- */

/* Defaults are stored as they were said, pattern 0 excepted; lists are not looked at before they are used. */
static int check_default(const struct lov *lov, const struct penstock_layout *l) {
  int err = penstock_layout_check(l);
  for (unsigned i = 0; err == 0 && i < l->count; i++) {
    struct penstock_component c;
    err = penstock_layout_component(l, i, &c);
    if (err == 0 && c.magic != PENSTOCK_LOV_SPECIFIC && c.stripe_offset != PENSTOCK_OFFSET_ANY &&
        c.stripe_offset >= lov->config.ost_count)
      err = -EINVAL;
  }
  return err;
}

static ssize_t store_default(const struct penstock_layout *l, bool own_fid, uint64_t fid_seq, uint32_t fid_oid, void *ret,
                             size_t room) {
  struct draft *d = draft_new();
  if (!d)
    return -ENOMEM;
  ssize_t got = draft_read(d, l);
  for (unsigned i = 0; got == 0 && i < d->layout.count; i++) {
    struct penstock_component *c = &d->parts[i];
    if (c->pattern == PENSTOCK_PATTERN_NONE)
      c->pattern = PENSTOCK_PATTERN_RAID0;
    if (c->magic != PENSTOCK_LOV_SPECIFIC)
      c->object_count = 0;
    if (own_fid && !l->composite) {
      c->oi_id = fid_oid;
      c->oi_seq = fid_seq;
    }
  }
  if (got == 0)
    got = penstock_layout_write(&d->layout, ret, room);
  draft_free(d);
  return got;
}

/* The template of a directory; 1: an empty value. */
static int parse_default(enum lov_how how, const void *template, size_t size, struct penstock_layout *ret) {
  if (size == 0)
    return how == LOV_IOCTL ? -EFAULT : 1;
  if (how == LOV_IOCTL) {
    ssize_t own = lov_template_size(template, size, true);
    if (own < 0)
      return (int)own;
  }
  int err = penstock_layout_parse(template, size, ret);
  if (err == 0 && ret->big_endian == penstock_host_big_endian())
    return 0;
  return size < PENSTOCK_LOV_V1_BYTES ? -ERANGE : -EINVAL;
}

ssize_t lov_set_dir(struct lov *lov, enum lov_how how, const void *template, size_t template_size, void *ret, size_t room) {
  struct penstock_layout l;
  int err = parse_default(how, template, template_size, &l);
  if (err != 0)
    return err > 0 ? 0 : err;
  if (says_nothing(&l))
    return 0;
  err = check_default(lov, &l);
  return err < 0 ? err : store_default(&l, false, 0, 0, ret, room);
}

ssize_t lov_inherit(const void *parent, size_t parent_size, uint64_t fid_seq, uint32_t fid_oid, void *ret, size_t room) {
  struct penstock_layout l;
  if (!parent || !parent_size)
    return 0;
  if (penstock_layout_parse(parent, parent_size, &l) < 0)
    return -EIO;
  return store_default(&l, true, fid_seq, fid_oid, ret, room);
}
