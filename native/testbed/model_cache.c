// SPDX-License-Identifier: Apache-2.0
/* A client's cache of data, stripe by stripe, and the requests that reads, writes and fsync cause with it.
 *
 * Written bytes are dirty until a request has carried them out: at once when `rpc_size` of them lie together, else when
 * they are old, when fsync or another client asks, or when there is no room left.  A write is answered at once unless the
 * client has more dirty bytes for an OST than it may (max_dirty, or what the OST granted so far).
 *
 * What is kept of a stripe is one piece [have_from, have_to), which the last reads and writes made; a reader that goes on
 * where it stopped is read ahead of.
 *
 * Invariants:
 * 1. The dirty bytes of an osc are those of its objects and of its buffered writes under way.
 * 2. An object is in its osc's list exactly while it has dirty bytes. */
#include <fcntl.h>

#include "testbed/model_internal.h"

static const uint64_t PAGE = 4096;
static const uint64_t HYBRID_READ = 8 << 20;

static uint64_t size_setting(const struct model *m, int row) {
  return (uint64_t)m->set.v[row];
}

/* ---- dirty data ---- */

static struct osc *osc_for(struct model *m, const struct object *o) {
  return osc_of(m, o->held->client, o->ost);
}

static void dirty_enlist(struct osc *osc, struct object *o) {
  o->prev = osc->dirty_last;
  o->next = NULL;
  *(o->prev ? &o->prev->next : &osc->dirty_first) = o;
  osc->dirty_last = o;
}

static void dirty_delist(struct osc *osc, struct object *o) {
  *(o->prev ? &o->prev->next : &osc->dirty_first) = o->next;
  *(o->next ? &o->next->prev : &osc->dirty_last) = o->prev;
  o->next = o->prev = NULL;
}

static struct request *transfer(struct model *m, struct object *o, enum request_kind kind, uint64_t from, uint64_t to) {
  struct request *r = request_make(m, kind, o->held->client, o->ost);
  r->process = o->process;
  r->who = o->who;
  r->bytes = to - from;
  r->from = from;
  r->to = to;
  r->object = o;
  r->flight = o->flights;
  o->flights = r;
  struct osc *osc = osc_for(m, o);
  *(kind == R_WRITE ? &osc->writing : &osc->reading) += 1;
  return r;
}

/* Takes `bytes` of what is dirty and sends them. */
static void write_out(struct model *m, struct object *o, uint64_t bytes) {
  struct osc *osc = osc_for(m, o);
  struct request *r = transfer(m, o, R_WRITE, o->run_from, o->run_from + bytes);
  r->buffered = true;
  o->dirty -= bytes;
  if (!o->dirty)
    dirty_delist(osc, o);
  count(m, r->client, R_WRITE, 1);
  request_send(m, r);
}

void object_flush(struct model *m, struct object *o) {
  uint64_t most = size_setting(m, SET_client_rpc_size);
  while (o->dirty)
    write_out(m, o, least(o->dirty, most));
  o->run_from = o->run_to = 0;
}

static void osc_flush(struct model *m, struct osc *osc) {
  while (osc->dirty_first)
    object_flush(m, osc->dirty_first);
}

void client_flush(struct model *m, uint32_t client) {
  struct client *c = &m->clients[client];
  for (uint32_t i = 0; c->oscs && i < m->ost_count; i++)
    if (c->oscs[i])
      osc_flush(m, c->oscs[i]);
}

uint64_t client_dirty(struct model *m, uint32_t client) {
  struct client *c = &m->clients[client];
  uint64_t sum = 0;
  for (uint32_t i = 0; c->oscs && i < m->ost_count; i++)
    sum += c->oscs[i] ? c->oscs[i]->dirty : 0;
  return sum;
}

void held_flush_event(struct event *event) {
  struct held *h = owner_of(event, struct held, writeback);
  for (uint32_t i = 0; i < h->object_count; i++)
    if (h->objects[i] && h->objects[i]->dirty)
      object_flush(h->model, h->objects[i]);
}

/* Bytes that were in the cache are on the OST, or are not needed any more. */
static void clean(struct model *m, struct osc *osc, uint64_t bytes) {
  osc->dirty -= least(bytes, osc->dirty);
  osc_wake(m, osc);
  if (osc->space && !osc->writing)
    osc_flush(m, osc);
}

static void discard_dirty(struct model *m, struct object *o) {
  if (!o->dirty)
    return;
  struct osc *osc = osc_for(m, o);
  uint64_t bytes = o->dirty;
  dirty_delist(osc, o);
  o->dirty = o->run_from = o->run_to = 0;
  clean(m, osc, bytes);
}

/* How many bytes of [from, to) are new to the object's dirty ones; the last piece is moved or begun anew. */
static uint64_t extend_run(struct object *o, uint64_t from, uint64_t to) {
  if (!o->run_to || from > o->run_to || to < o->run_from) {
    o->run_from = from;
    o->run_to = to;
    return to - from;
  }
  uint64_t fresh = (from < o->run_from ? o->run_from - from : 0) + (to > o->run_to ? to - o->run_to : 0);
  o->run_from = from < o->run_from ? from : o->run_from;
  o->run_to = to > o->run_to ? to : o->run_to;
  return fresh;
}

static void dirty_add(struct model *m, struct object *o, uint64_t from, uint64_t to) {
  struct osc *osc = osc_for(m, o);
  uint64_t most = size_setting(m, SET_client_rpc_size);
  o->end = to > o->end ? to : o->end;
  uint64_t pages_to = least((to + PAGE - 1) & ~(PAGE - 1), o->end);
  uint64_t fresh = extend_run(o, from & ~(PAGE - 1), pages_to);
  if (fresh && !o->dirty)
    dirty_enlist(osc, o);
  o->dirty += fresh;
  osc->dirty += fresh;
  while (o->run_to - o->run_from >= most && o->dirty >= most) {
    write_out(m, o, most);
    o->run_from += most;
  }
  if (o->run_from == o->run_to)
    o->run_from = o->run_to = 0;
  if (o->dirty && !o->held->writeback.slot)
    event_set(&m->engine, &o->held->writeback, m->engine.now + size_setting(m, SET_client_writeback));
}

/* ---- what is kept ---- */

static void keep(struct model *m, struct object *o, uint64_t from, uint64_t to) {
  struct client *c = &m->clients[o->held->client];
  c->cached -= least(o->have_to - o->have_from, c->cached);
  o->have_from = from;
  o->have_to = to;
  c->cached += to - from;
  uint64_t most = size_setting(m, SET_client_cache);
  struct held *h = c->cached > most ? m->oldest : NULL;
  for (uint32_t tries = 0; h && tries < 256 && c->cached > most; h = h->younger, tries++)
    for (uint32_t i = 0; h->client == o->held->client && h != o->held && i < h->object_count; i++)
      if (h->objects[i] && h->objects[i]->have_to) {
        c->cached -= least(h->objects[i]->have_to - h->objects[i]->have_from, c->cached);
        h->objects[i]->have_from = h->objects[i]->have_to = 0;
      }
}

/* Adds a piece to what is kept: joined if they touch, else instead. */
static void keep_also(struct model *m, struct object *o, uint64_t from, uint64_t to) {
  if (o->have_to && from <= o->have_to && to >= o->have_from) {
    from = from < o->have_from ? from : o->have_from;
    to = to > o->have_to ? to : o->have_to;
  }
  keep(m, o, from, to);
}

void object_forget(struct model *m, struct object *o, bool discard) {
  keep(m, o, 0, 0);
  o->lock = EXT_NONE;
  if (discard)
    discard_dirty(m, o);
  else
    object_flush(m, o);
  for (struct request *r = o->flights, *next; r && discard; r = next) {
    next = r->flight;
    r->object = NULL;
    r->flight = NULL;
  }
  if (discard)
    o->flights = NULL;
}

void object_done(struct model *m, struct request *r) {
  if (r->kind != R_READ && r->kind != R_WRITE)
    return;
  struct osc *osc = osc_of(m, r->client, r->server);
  *(r->kind == R_WRITE ? &osc->writing : &osc->reading) -= 1;
  if (r->object) {
    struct request **at = &r->object->flights;
    while (*at != r)
      at = &(*at)->flight;
    *at = r->flight;
  }
  if (r->kind != R_WRITE)
    return;
  osc->grant += r->bytes;
  clean(m, osc, r->buffered ? r->bytes : 0); /* one past the cache may be the last that a writer's room waited for */
}

/* ---- locks on objects ---- */

static void wait_for_writes(struct build *b, int phase, const struct object *o) {
  for (struct request *r = o->flights; r; r = r->flight)
    if (r->kind == R_WRITE)
      wait_for(b, phase, r);
}

static uint32_t stripe_of(const struct object *o) {
  uint32_t i = 0;
  while (o->held->objects[i] != o)
    i++;
  return i;
}

/* Other clients give up what stands against this lock, after writing out what they have. */
static uint32_t take_from_others(struct build *b, int phase, struct object *o, uint8_t lock) {
  uint32_t times = 0, stripe = stripe_of(o);
  for (struct held *h = o->held->node->holders; h; h = h->next) {
    struct object *other = h == o->held || stripe >= h->object_count ? NULL : h->objects[stripe];
    if (!other || !other->lock || (lock == EXT_READ && other->lock == EXT_READ))
      continue;
    object_flush(b->m, other);
    wait_for_writes(b, phase, other);
    keep(b->m, other, 0, 0);
    other->lock = EXT_NONE;
    count(b->m, h->client, R_CB, 2);
    count(b->m, h->client, R_OST_CANCEL, 1);
    times++;
  }
  return times;
}

void ext_lock(struct build *b, int phase, struct object *o, uint8_t lock) {
  if (o->lock >= lock)
    return;
  if (o->lock == EXT_READ) { /* the client's own read lock stands in the way */
    count(b->m, b->call->client, R_CB, 2);
    request_add(b, -1, request_new(b, R_OST_CANCEL, o->ost));
  }
  uint32_t others = take_from_others(b, phase, o, lock);
  struct request *r = request_new(b, R_EXT, o->ost);
  r->more = others ? 2 * size_setting(b->m, SET_net_latency) : 0;
  request_add(b, phase, r);
  o->lock = lock;
}

static bool others_write(const struct object *o) {
  uint32_t stripe = stripe_of(o);
  for (struct held *h = o->held->node->holders; h; h = h->next)
    if (h != o->held && stripe < h->object_count && h->objects[stripe] && h->objects[stripe]->lock == EXT_WRITE)
      return true;
  return false;
}

static void glimpse(struct build *b, int phase, struct object *o, bool put_off) {
  if (o->lock)
    return;
  struct request *r = request_new(b, R_GLIMPSE, o->ost);
  r->uncounted = put_off;
  if (put_off) {
    b->asked->glimpses++;
    b->asked->glimpse_call = b->m->calls;
  }
  if (others_write(o)) {
    count(b->m, b->call->client, R_CB, 1);
    r->more = 2 * size_setting(b->m, SET_net_latency);
  } else {
    o->lock = EXT_READ;
    o->glimpsed = b->m->calls;
  }
  request_add(b, phase, r);
}

/* The size of a file, asked from all its objects; for names looked up ahead, that went out ahead too. */
void rule_glimpse(struct build *b, int phase) {
  bool put_off = b->asked->ino == b->call->ino && b->asked->what != ASKED_NOTHING;
  bool ahead = b->asked->scanned && b->asked->scanned == b->asked->parent && b->asked->batches;
  for (uint32_t i = 0; i < b->call->ost_count; i++)
    glimpse(b, ahead ? -1 : phase, object_of(b->held, i, b->call->osts[i]), put_off);
}

static void layout_known(struct build *b) {
  if (b->held->bits & HELD_STRIPES)
    return;
  request_add(b, 0, request_new(b, R_LAYOUT, b->mdt));
  b->held->bits |= HELD_STRIPES | HELD_LAYOUT;
}

/* The stripe's place among the file's OSTs: components that lie on the MDT or have no objects yet are not among them. */
static struct object *object_at(struct build *b, const struct model_extent *x) {
  const struct model_call *call = b->call;
  uint32_t i = call->ost_count ? (uint32_t)least(x->stripe, call->ost_count - 1) : 0;
  while (i && call->ost_count && call->osts[i] != x->ost)
    i--;
  bool found = call->ost_count && call->osts[i] == x->ost;
  return object_of(b->held, found ? i : x->stripe, x->ost);
}

/* ---- reading ---- */

static void fetch(struct build *b, struct object *o, uint64_t from, uint64_t to, uint64_t need_to) {
  uint64_t most = size_setting(b->m, SET_client_rpc_size);
  o->process = b->process;
  o->who = b->who;
  while (from < to) {
    uint64_t end = least((from / most + 1) * most, to);
    struct request *r = transfer(b->m, o, R_READ, from, end);
    request_add(b, from < need_to ? 1 : -1, r);
    from = end;
  }
}

static uint64_t object_size(const struct model_call *call, uint64_t reached) {
  uint64_t size = call->ost_count > 1 ? call->file_size / call->ost_count : call->file_size;
  return size > reached ? size : reached;
}

static void wait_for_reads(struct build *b, const struct object *o, uint64_t from, uint64_t to) {
  for (struct request *r = o->flights; r; r = r->flight)
    if (r->kind == R_READ && r->from < to && r->to > from)
      wait_for(b, 1, r);
}

static void read_piece(struct build *b, struct object *o, uint64_t from, uint64_t to, bool sequential) {
  struct model *m = b->m;
  uint64_t most = size_setting(m, SET_client_rpc_size);
  uint64_t size = object_size(b->call, to);
  uint64_t window = size_setting(m, SET_client_read_ahead) / (b->call->ost_count ? b->call->ost_count : 1);
  wait_for_reads(b, o, from, to);
  bool touches = o->have_to && from >= o->have_from && from <= o->have_to;
  if (touches && to <= o->have_to) {
    if (sequential && o->have_to < size && o->have_to - to + most <= window) {
      uint64_t end = least((o->have_to / most + 1) * most, size);
      fetch(b, o, o->have_to, end, 0);
      keep(m, o, o->have_from, end);
    }
    return;
  }
  uint64_t start = touches ? o->have_to : from, end = to;
  if (b->call->file_size <= size_setting(m, SET_client_read_whole)) {
    start = touches ? o->have_to : 0;
    end = size;
  } else if (sequential && from + window > end) {
    end = least(from + window, size);
  }
  fetch(b, o, start, end, to);
  keep(m, o, touches ? o->have_from : start, end);
}

/* What a call past the cache waits for, of all its pieces before the first is made: two may be on one object, and the
 * second would wait for the first, which goes out after the waiting. */
static void direct_locks(struct build *b, enum request_kind kind) {
  for (uint32_t i = 0; i < b->call->extent_count; i++) {
    struct object *o = object_at(b, &b->call->extents[i]);
    object_flush(b->m, o);
    wait_for_writes(b, 0, o);
    o->process = b->process;
    o->who = b->who;
    if (kind == R_WRITE) {
      take_from_others(b, 0, o, EXT_WRITE);
      keep(b->m, o, 0, 0);
    } else {
      glimpse(b, 0, o, false);
    }
  }
}

static void direct_pieces(struct build *b, enum request_kind kind) {
  uint64_t most = size_setting(b->m, SET_client_rpc_size);
  direct_locks(b, kind);
  for (uint32_t i = 0; i < b->call->extent_count; i++) {
    const struct model_extent *x = &b->call->extents[i];
    struct object *o = object_at(b, x);
    for (uint64_t at = 0; at < x->size; at += most)
      request_add(b, 1, transfer(b->m, o, kind, x->offset + at, x->offset + least(at + most, x->size)));
  }
}

void rule_read(struct build *b) {
  const struct model_call *call = b->call;
  struct held *h = b->held;
  if (call->dom || !call->extent_count || call->result < 0)
    return;
  layout_known(b);
  if (call->flags & O_DIRECT || call->size >= HYBRID_READ || !size_setting(b->m, SET_client_cache)) {
    direct_pieces(b, R_READ);
    return;
  }
  bool sequential = call->offset && call->offset == h->read_end;
  h->read_end = call->offset + call->size;
  for (uint32_t i = 0; i < call->extent_count; i++) {
    const struct model_extent *x = &call->extents[i];
    struct object *o = object_at(b, x);
    ext_lock(b, 0, o, EXT_READ);
    read_piece(b, o, x->offset, x->offset + x->size, sequential);
  }
}

/* ---- writing ---- */

static void security_known(struct build *b) {
  if (b->held->bits & (HELD_SECURITY | HELD_XATTR))
    return;
  struct request *r = request_new(b, R_GETXATTR, b->mdt);
  r->md = 1u << MD_GETXATTR;
  request_add(b, 0, r);
  b->held->bits |= HELD_SECURITY;
}

static void sync_meta(struct build *b, int phase) {
  if (!(b->held->bits & HELD_CHANGED))
    return;
  b->held->bits &= ~(uint32_t)HELD_CHANGED;
  struct request *r = request_new(b, R_SYNC, b->mdt);
  r->md = 1u << MD_SYNC;
  request_add(b, phase, r);
}

static void write_piece(struct build *b, const struct model_extent *x) {
  struct model *m = b->m;
  struct object *o = object_at(b, x);
  struct osc *osc = osc_for(m, o);
  ext_lock(b, 0, o, EXT_WRITE);
  o->process = b->process;
  o->who = b->who;
  if (b->call->ost_count == 1 && b->call->file_size > o->end)
    o->end = b->call->file_size;
  dirty_add(m, o, x->offset, x->offset + x->size);
  keep_also(m, o, x->offset, x->offset + x->size);
  if (osc->dirty < least(size_setting(m, SET_client_max_dirty), osc->grant))
    return;
  if (!osc->writing)
    osc_flush(m, osc);
  wait_for_space(b, 1, osc);
}

static void write_dom(struct build *b) {
  struct request *r = request_new(b, R_MDS_WRITE, b->mdt);
  r->bytes = b->call->size;
  r->md = 1u << MD_WRITE;
  request_add(b, -1, r);
}

void rule_write(struct build *b) {
  const struct model_call *call = b->call;
  if (call->result < 0 || !call->size)
    return;
  security_known(b);
  if (call->dom) {
    write_dom(b);
    return;
  }
  layout_known(b);
  if (call->flags & O_DIRECT || call->size >= size_setting(b->m, SET_client_direct_size) ||
      !size_setting(b->m, SET_client_cache)) {
    direct_pieces(b, R_WRITE);
  } else {
    for (uint32_t i = 0; call->flags & O_APPEND && i < call->ost_count; i++)
      ext_lock(b, 0, object_of(b->held, i, call->osts[i]), EXT_WRITE);
    for (uint32_t i = 0; i < call->extent_count; i++)
      write_piece(b, &call->extents[i]);
  }
  if (!(call->flags & (O_SYNC | O_DSYNC)))
    return;
  for (uint32_t i = 0; i < call->extent_count; i++) {
    struct object *o = object_at(b, &call->extents[i]);
    object_flush(b->m, o);
    wait_for_writes(b, 1, o);
    request_add(b, 2, request_new(b, R_OST_SYNC, o->ost));
  }
  sync_meta(b, 2);
}

void rule_fsync(struct build *b) {
  for (uint32_t i = 0; i < b->held->object_count; i++) {
    struct object *o = b->held->objects[i];
    if (!o)
      continue;
    object_flush(b->m, o);
    wait_for_writes(b, 0, o);
  }
  for (uint32_t i = 0; i < b->call->ost_count; i++)
    request_add(b, 1, request_new(b, R_OST_SYNC, b->call->osts[i]));
  sync_meta(b, 1);
}

void rule_fallocate(struct build *b) {
  for (uint32_t i = 0; i < b->call->extent_count; i++) {
    const struct model_extent *x = &b->call->extents[i];
    ext_lock(b, 0, object_at(b, x), EXT_WRITE);
    request_add(b, 1, request_new(b, R_FALLOC, x->ost));
  }
}

void rule_truncate_data(struct build *b, int phase) {
  for (uint32_t i = 0; i < b->call->ost_count; i++) {
    struct object *o = object_of(b->held, i, b->call->osts[i]);
    ext_lock(b, phase, o, EXT_WRITE);
    if (!b->call->size) {
      discard_dirty(b->m, o);
      o->end = 0;
    }
    keep(b->m, o, 0, 0);
    request_add(b, phase + 1, request_new(b, R_PUNCH, b->call->osts[i]));
  }
}
