// SPDX-License-Identifier: Apache-2.0
/* What clients hold.  A node is a file or folder that some client knows; a held is what one client has of it.
 *
 * Invariants:
 * 1. There are at most `client.locks` of held: the one not used for longest goes first, but none that is open or dirty
 *    (these are bounded by descriptors and by max_dirty).
 * 2. Forgetting costs a later request and nothing else.
 * 3. A node without holders does not exist. */
#include <stdlib.h>
#include <string.h>

#include "testbed/model_internal.h"

void locks_init(struct model *m) {
  m->nodes = model_alloc(NODE_CHAINS * sizeof *m->nodes);
  m->missing = model_alloc(MISSING_SLOTS * sizeof *m->missing);
  m->asked = model_alloc(ASKED_SLOTS * sizeof *m->asked);
}

static struct node **node_chain(struct model *m, uint64_t ino) {
  return &m->nodes[mix(ino, 0) % NODE_CHAINS];
}

struct node *node_find(struct model *m, uint64_t ino) {
  struct node *n = *node_chain(m, ino);
  while (n && n->ino != ino)
    n = n->next;
  return n;
}

struct held *held_find(struct model *m, uint32_t client, uint64_t ino) {
  struct node *n = node_find(m, ino);
  struct held *h = n ? n->holders : NULL;
  while (h && h->client != client)
    h = h->next;
  return h;
}

/* ---- the order of use ---- */

static void unlink_use(struct model *m, struct held *h) {
  *(h->older ? &h->older->younger : &m->oldest) = h->younger;
  *(h->younger ? &h->younger->older : &m->youngest) = h->older;
}

static void used_now(struct model *m, struct held *h) {
  h->older = m->youngest;
  h->younger = NULL;
  *(m->youngest ? &m->youngest->younger : &m->oldest) = h;
  m->youngest = h;
  h->used = m->engine.now;
}

static bool pinned(const struct held *h) {
  if (h->open[0].opens || h->open[1].opens)
    return true;
  for (uint32_t i = 0; i < h->object_count; i++)
    if (h->objects[i] && h->objects[i]->dirty)
      return true;
  return false;
}

static void make_room(struct model *m) {
  for (uint32_t tries = 0; tries < 16 && m->held_count >= (uint32_t)m->set.v[SET_client_locks] && m->oldest; tries++) {
    struct held *h = m->oldest;
    if (pinned(h)) {
      unlink_use(m, h);
      used_now(m, h);
    } else {
      held_drop(m, h);
    }
  }
}

/* Locks that were idle for too long are gone; what is open stays open. */
static void age(struct model *m, struct held *h) {
  if (m->engine.now - h->used <= (uint64_t)m->set.v[SET_client_lock_age])
    return;
  h->bits &= HELD_STRIPES | HELD_CHANGED;
  for (uint32_t i = 0; i < h->object_count; i++)
    if (h->objects[i] && !h->objects[i]->dirty)
      object_forget(m, h->objects[i], false);
}

struct held *held_of(struct model *m, uint32_t client, uint64_t ino) {
  struct held *h = held_find(m, client, ino);
  if (h) {
    age(m, h);
    unlink_use(m, h);
    used_now(m, h);
    return h;
  }
  make_room(m);
  struct node *n = node_find(m, ino);
  if (!n) {
    struct node **chain = node_chain(m, ino);
    n = model_alloc(sizeof *n);
    n->ino = ino;
    n->next = *chain;
    *chain = n;
  }
  h = model_alloc(sizeof *h);
  h->model = m;
  h->node = n;
  h->client = client;
  h->next = n->holders;
  h->writeback.fire = held_flush_event;
  n->holders = h;
  m->held_count++;
  used_now(m, h);
  return h;
}

void held_drop(struct model *m, struct held *h) {
  struct node *n = h->node;
  for (uint32_t i = 0; i < h->object_count; i++)
    if (h->objects[i]) {
      object_forget(m, h->objects[i], true);
      free(h->objects[i]);
    }
  free(h->objects);
  event_cancel(&m->engine, &h->writeback);
  struct held **at = &n->holders;
  while (*at != h)
    at = &(*at)->next;
  *at = h->next;
  unlink_use(m, h);
  m->held_count--;
  free(h);
  if (n->holders)
    return;
  struct node **chain = node_chain(m, n->ino);
  while (*chain != n)
    chain = &(*chain)->next;
  *chain = n->next;
  free(n);
}

/* All locks and the cache of a client; what it has open is remembered as open. */
void client_drop(struct model *m, uint32_t client) {
  for (struct held *h = m->oldest, *younger; h; h = younger) {
    younger = h->younger;
    if (h->client != client)
      continue;
    for (uint32_t i = 0; i < h->object_count; i++)
      if (h->objects[i])
        object_forget(m, h->objects[i], !m->clients[client].up);
    if (!m->clients[client].up || !pinned(h))
      held_drop(m, h);
    else
      h->bits &= HELD_STRIPES | HELD_CHANGED;
  }
}

uint32_t locks_revoke(struct model *m, uint64_t ino, uint32_t but_client, uint32_t bits) {
  struct node *n = node_find(m, ino);
  uint32_t times = 0;
  for (struct held *h = n ? n->holders : NULL; h; h = h->next) {
    if (h->client == but_client || !(h->bits & bits))
      continue;
    h->bits &= ~bits;
    count(m, h->client, R_CB, 1);
    count(m, h->client, R_CANCEL, 1);
    times++;
  }
  return times;
}

struct object *object_of(struct held *h, uint32_t stripe, uint32_t ost) {
  if (stripe >= h->object_count) {
    uint32_t room = stripe + 1;
    struct object **more = model_alloc(room * sizeof *more);
    if (h->object_count)
      memcpy(more, h->objects, h->object_count * sizeof *more);
    free(h->objects);
    h->objects = more;
    h->object_count = room;
  }
  if (!h->objects[stripe]) {
    h->objects[stripe] = model_alloc(sizeof *h->objects[stripe]);
    *h->objects[stripe] = (struct object){.held = h, .ost = ost};
  }
  return h->objects[stripe];
}

/* ---- names that a client knows to be missing ---- */

static uint64_t *missing_slot(struct model *m, const struct model_call *call, uint64_t *ret_mark) {
  *ret_mark = mix(mix(call->parent, call->name), call->client) | 1;
  return &m->missing[*ret_mark / 2 % MISSING_SLOTS];
}

bool missing_known(struct model *m, const struct model_call *call) {
  uint64_t mark;
  struct held *dir = held_find(m, call->client, call->parent);
  return dir && dir->bits & HELD_LIST && *missing_slot(m, call, &mark) == mark;
}

void missing_note(struct model *m, const struct model_call *call) {
  uint64_t mark;
  struct held *dir = held_find(m, call->client, call->parent);
  uint64_t *slot = missing_slot(m, call, &mark);
  *slot = dir && dir->bits & HELD_LIST ? mark : 0;
}

/* ---- what a thread asked last ---- */

struct asked *asked_of(struct model *m, uint32_t client, uint32_t pid) {
  uint32_t at = (uint32_t)(mix(client, pid) % ASKED_SLOTS);
  struct asked *oldest = NULL;
  for (uint32_t i = 0; i < 8; i++) {
    struct asked *a = &m->asked[(at + i) % ASKED_SLOTS];
    if (a->client == client && a->pid == pid && a->at)
      return a;
    if (!oldest || a->at < oldest->at)
      oldest = a;
  }
  asked_settle(m, oldest);
  *oldest = (struct asked){.client = client, .pid = pid, .at = m->engine.now + 1};
  return oldest;
}

void asked_settle(struct model *m, struct asked *a) {
  if (a->uncounted) {
    a->uncounted = false;
    count(m, a->client, a->kind, 1);
    for (int line = 0; line < MD_STATS; line++)
      if (a->md & 1u << line)
        stats_count(m, &m->mdts[a->mdt].stats, a->who, line, a->took / 1000);
  }
  if (a->glimpses) {
    count(m, a->client, R_GLIMPSE, a->glimpses);
    a->glimpses = 0;
  }
}

void asked_settle_all(struct model *m, uint64_t older_than) {
  for (uint32_t i = 0; i < ASKED_SLOTS; i++)
    if (m->asked[i].at && m->engine.now - (m->asked[i].at - 1) >= older_than)
      asked_settle(m, &m->asked[i]);
}

void locks_free(struct model *m) {
  while (m->oldest)
    held_drop(m, m->oldest);
  free(m->nodes);
  free(m->missing);
  free(m->asked);
}
