// SPDX-License-Identifier: Apache-2.0
/* The allocator of alloc.h. */
#include "testbed/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "testbed/model.h"

#define SECOND_NS UINT64_C(1000000000)
/* A penalty halves each time a target has been idle for 8 times the age of the space, and is gone after 32 such. */
#define IDLE_AGES 8
#define FORGET_AGES 32

/* What free space and recent use say about a target or a server.  Space in units of 256 bytes. */
struct weight {
  uint64_t free;
  uint64_t penalty;
  uint64_t penalty_per_object;
  uint64_t used_ns;
};

struct target {
  struct weight w;
  uint64_t free_bytes; /* as last asked; `w.free` is what is believed */
  uint32_t oss;        /* index into servers */
  uint32_t state;
};

struct server {
  struct weight w;
  uint32_t targets;
};

/* The OSTs of the file system or of a pool, in the order of turns. */
struct ring {
  char name[PENSTOCK_POOL_BYTES];
  uint32_t count;
  uint32_t *osts;
  struct alloc_set set;
  uint64_t turn;
  uint64_t shift;
  uint64_t turns_left; /* allocations until the turn is drawn anew */
};

struct alloc {
  pthread_mutex_t lock;
  struct lov_config config;
  uint64_t random;
  uint64_t looked_ns;
  bool looked;
  bool uneven;
  bool was_even; /* penalties start at zero when weighing begins again */
  uint32_t active;
  uint32_t active_servers;
  uint32_t server_count;
  uint32_t ring_count;
  struct target *targets;
  struct server *servers;
  struct ring rings[1 + ALLOC_MAX_POOLS]; /* 0: all OSTs */
};

/* ---- small things ---- */

static uint64_t draw(struct alloc *a, uint64_t below) {
  uint64_t z = a->random += 0x9e3779b97f4a7c15; /* splitmix64 */
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return below ? z % below : 0;
}

static uint64_t now(const struct alloc *a) {
  if (a->config.now_ns)
    return a->config.now_ns(a->config.closure);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static bool is_active(uint32_t state) { return !(state & (MODEL_OST_INACTIVE | MODEL_OST_DEAD)); }

/* 0, or what Lustre answers to a list that names a target in this state. */
static int refusal(uint32_t state) {
  if (!is_active(state))
    return -EREMOTEIO;
  if (state & MODEL_OST_READ_ONLY)
    return -EROFS;
  if (state & MODEL_OST_FULL)
    return -ENOSPC;
  return state & MODEL_OST_NO_CREATE ? -ENOBUFS : 0;
}

/* ---- the order of turns ---- */

struct crowd {
  uint32_t oss;
  uint32_t count;
};

static int by_crowd(const void *a, const void *b) {
  const struct crowd *x = a, *y = b;
  return x->count != y->count ? (x->count < y->count ? 1 : -1) : (x->oss > y->oss) - (x->oss < y->oss);
}

/* Puts the OSTs into the ring, those of one OSS as far apart as can be, crowded servers first; -ENOMEM. */
static int ring_fill(const struct alloc *a, struct ring *r, const struct alloc_set *set) {
  struct crowd *crowds = calloc(a->server_count, sizeof *crowds);
  uint32_t count = 0;
  for (uint32_t i = 0; i < a->config.ost_count; i++)
    count += alloc_set_has(set, i);
  uint32_t *osts = malloc((count ? count : 1) * sizeof *osts);
  if (!crowds || !osts) {
    free(crowds);
    free(osts);
    return -ENOMEM;
  }
  for (uint32_t i = 0; i < a->server_count; i++)
    crowds[i].oss = i;
  for (uint32_t i = 0; i < a->config.ost_count; i++)
    crowds[a->targets[i].oss].count += alloc_set_has(set, i);
  qsort(crowds, a->server_count, sizeof *crowds, by_crowd);
  memset(osts, 0xff, count * sizeof *osts);
  for (uint32_t c = 0; c < a->server_count; c++) {
    uint64_t placed = 0;
    for (uint32_t i = 0; i < a->config.ost_count; i++) {
      if (!alloc_set_has(set, i) || a->targets[i].oss != crowds[c].oss)
        continue;
      uint64_t at = placed++ * count / crowds[c].count;
      while (osts[at] != UINT32_MAX)
        at = (at + 1) % count;
      osts[at] = i;
    }
  }
  free(crowds);
  free(r->osts);
  r->osts = osts;
  r->count = count;
  r->set = *set;
  r->turn = r->shift = r->turns_left = 0;
  return 0;
}

/* The turn before an allocation of `count` stripes of which `least` will do. */
static void ring_start(struct alloc *a, struct ring *r, uint32_t count, uint32_t least) {
  if (r->turns_left == 0) {
    r->turn = draw(a, r->count);
    r->turns_left = (2000 / r->count + 30) * (uint64_t)r->count;
  } else if (least >= r->count || r->turn > r->count) {
    r->turn %= r->count;
    if (count > 1 && r->count % count != 1)
      r->shift++;
  }
  r->turns_left--;
}

static uint32_t ring_next(struct ring *r) { return r->osts[(++r->turn + r->shift) % r->count]; }

static struct ring *ring_find(struct alloc *a, const char *name) {
  for (uint32_t i = 1; name[0] && i < a->ring_count; i++) {
    if (strncmp(a->rings[i].name, name, PENSTOCK_POOL_BYTES) == 0)
      return &a->rings[i];
  }
  return NULL;
}

/* ---- life ---- */

/* Numbers servers in the order in which the OSTs name them; -ENOMEM. */
static int find_servers(struct alloc *a) {
  uint32_t *names = malloc(a->config.ost_count * sizeof *names);
  if (!names)
    return -ENOMEM;
  for (uint32_t i = 0; i < a->config.ost_count; i++) {
    struct lov_ost ost = {0};
    a->config.look(a->config.closure, i, &ost);
    uint32_t s = 0;
    while (s < a->server_count && names[s] != ost.oss)
      s++;
    if (s == a->server_count)
      names[a->server_count++] = ost.oss;
    a->targets[i].oss = s;
    a->servers[s].targets++;
  }
  free(names);
  return 0;
}

struct alloc *alloc_new(const struct lov_config *config) {
  struct alloc *a = calloc(1, sizeof *a);
  if (!a)
    return NULL;
  a->config = *config;
  a->random = config->seed;
  if (!a->random && getrandom(&a->random, sizeof a->random, 0) < 0)
    a->random = now(a);
  pthread_mutex_init(&a->lock, NULL);
  a->targets = calloc(config->ost_count, sizeof *a->targets);
  a->servers = calloc(config->ost_count, sizeof *a->servers);
  struct alloc_set all = {0};
  for (uint32_t i = 0; i < config->ost_count; i++)
    alloc_set_add(&all, i);
  if (!a->targets || !a->servers || find_servers(a) < 0 || ring_fill(a, &a->rings[0], &all) < 0) {
    alloc_free(a);
    return NULL;
  }
  a->ring_count = 1;
  return a;
}

void alloc_free(struct alloc *a) {
  if (!a)
    return;
  for (uint32_t i = 0; i < 1 + ALLOC_MAX_POOLS; i++)
    free(a->rings[i].osts);
  free(a->targets);
  free(a->servers);
  pthread_mutex_destroy(&a->lock);
  free(a);
}

void alloc_refresh(struct alloc *a) {
  pthread_mutex_lock(&a->lock);
  a->looked = false;
  pthread_mutex_unlock(&a->lock);
}

static int change_pool(struct alloc *a, const char *name, const struct alloc_set *set, bool empty) {
  struct ring *r = ring_find(a, name);
  if (empty) {
    if (!r)
      return 0;
    struct ring *last = &a->rings[--a->ring_count];
    free(r->osts);
    *r = *last;
    memset(last, 0, sizeof *last);
    return 0;
  }
  if (!r && a->ring_count > ALLOC_MAX_POOLS)
    return -ENOSPC;
  struct ring *into = r ? r : &a->rings[a->ring_count];
  int err = ring_fill(a, into, set);
  if (err == 0 && !r) {
    memcpy(into->name, name, strlen(name) + 1);
    a->ring_count++;
  }
  return err;
}

int alloc_pool(struct alloc *a, const char *name, const uint32_t *osts, uint32_t count) {
  struct alloc_set set = {0};
  if (!name[0] || strlen(name) >= PENSTOCK_POOL_BYTES)
    return -EINVAL;
  for (uint32_t i = 0; i < count; i++) {
    if (osts[i] >= a->config.ost_count)
      return -EINVAL;
    alloc_set_add(&set, osts[i]);
  }
  pthread_mutex_lock(&a->lock);
  int err = change_pool(a, name, &set, count == 0);
  pthread_mutex_unlock(&a->lock);
  return err;
}

/* ---- what is known of the targets ---- */

static void age(struct alloc *a, struct weight *w, uint64_t at_ns) {
  uint64_t ages = (at_ns - w->used_ns) / IDLE_AGES / a->config.space_age_ns;
  w->penalty = a->was_even || ages > FORGET_AGES ? 0 : w->penalty >> ages;
}

/* What one object more costs each target and each server in the draws to come. */
static void weigh(struct alloc *a, uint64_t at_ns) {
  uint64_t wide = 256 - 256 * (uint64_t)a->config.qos_prio_free_percent / 100;
  uint64_t others = a->active > 1 ? a->active - 1 : 1;
  uint64_t other_servers = a->active_servers > 1 ? a->active_servers - 1 : 1;
  for (uint32_t i = 0; i < a->config.ost_count; i++) {
    struct weight *w = &a->targets[i].w;
    w->penalty_per_object = wide * w->free / 512 / others;
    if (a->active_servers < 2)
      w->penalty_per_object *= 2;
    age(a, w, at_ns);
  }
  for (uint32_t i = 0; i < a->server_count; i++) {
    struct server *s = &a->servers[i];
    s->w.penalty_per_object = wide * s->w.free / 256 / (s->targets * other_servers) / 2;
    age(a, &s->w, at_ns);
  }
  a->was_even = false;
}

/* Free space and the numbers that follow from it; believed for space_age_ns. */
static void count_space(struct alloc *a, uint64_t at_ns) {
  uint64_t least = UINT64_MAX, most = 0;
  a->active_servers = 0;
  for (uint32_t i = 0; i < a->server_count; i++)
    a->servers[i].w.free = 0;
  for (uint32_t i = 0; i < a->config.ost_count; i++) {
    struct target *t = &a->targets[i];
    t->w.free = is_active(t->state) ? t->free_bytes >> 8 : 0;
    if (!t->w.free)
      continue;
    least = t->w.free < least ? t->w.free : least;
    most = t->w.free > most ? t->w.free : most;
    a->active_servers += a->servers[t->oss].w.free == 0;
    a->servers[t->oss].w.free += t->w.free;
  }
  uint64_t threshold = (uint64_t)a->config.qos_threshold_percent * 256 / 100;
  a->uneven = least != UINT64_MAX && most * (256 - threshold) >> 8 >= least;
  if (a->uneven)
    weigh(a, at_ns);
  else
    a->was_even = true;
}

/* Asks for the states of all, and for their space if that is old. */
static void look(struct alloc *a) {
  uint32_t active = 0;
  for (uint32_t i = 0; i < a->config.ost_count; i++) {
    struct lov_ost ost = {0};
    a->config.look(a->config.closure, i, &ost);
    a->targets[i].state = ost.state;
    a->targets[i].free_bytes = ost.free_bytes;
    active += is_active(ost.state);
  }
  uint64_t at_ns = now(a);
  if (a->looked && active == a->active && at_ns - a->looked_ns < a->config.space_age_ns)
    return;
  a->active = active;
  count_space(a, at_ns);
  a->looked = true;
  a->looked_ns = at_ns;
}

/* ---- choosing: what is common ---- */

/* A choice in the making. */
struct pick {
  const struct alloc_wish *wish;
  struct ring *ring;
  uint32_t want;  /* stripes */
  uint32_t least; /* so many will do */
  struct alloc_set taken;
  struct alloc_choice *choice;
};

static void take(struct pick *p, uint32_t ost) {
  p->choice->overstriped |= alloc_set_has(&p->taken, ost);
  alloc_set_add(&p->taken, ost);
  p->choice->osts[p->choice->count++] = ost;
}

static void put_back(struct pick *p) {
  memset(&p->taken, 0, sizeof p->taken);
  p->choice->count = 0;
  p->choice->overstriped = false;
}

static bool is_other(const struct pick *p, uint32_t ost) {
  return p->wish->others && alloc_set_has(p->wish->others, ost);
}

/* Stripes wanted, and how few will do: a count that had to be cut is content with three quarters. */
static void resolve_count(const struct alloc *a, struct pick *p) {
  const struct alloc_wish *wish = p->wish;
  uint32_t targets = 0;
  for (uint32_t i = 0; i < p->ring->count; i++)
    targets += is_active(a->targets[p->ring->osts[i]].state);
  uint32_t want = wish->count;
  bool cut = want > targets;
  if (wish->overstriped && want >= PENSTOCK_STRIPES_SPECIAL)
    want = (PENSTOCK_STRIPES_ALL - want + 1) * targets;
  else if (cut && !wish->overstriped)
    want = targets;
  cut &= !wish->overstriped;
  want = want > PENSTOCK_STRIPES_MAX ? PENSTOCK_STRIPES_MAX : want;
  p->want = wish->most && want > wish->most ? wish->most : want;
  p->least = cut ? p->want - p->want / 4 : p->want;
}

/* ---- choosing: in turn ---- */

/* Once around the ring.  `pass` 0: neither other components' nor degraded ones; 1: not degraded; 2: all that work. */
static void walk(const struct alloc *a, struct pick *p, int pass) {
  for (uint32_t i = 0; i < p->ring->count && p->choice->count < p->want; i++) {
    uint32_t ost = ring_next(p->ring);
    uint32_t state = a->targets[ost].state;
    bool wanted = (pass > 0 || !is_other(p, ost)) && (pass > 1 || !(state & MODEL_OST_DEGRADED));
    if (wanted && refusal(state) == 0 && !alloc_set_has(&p->taken, ost))
      take(p, ost);
  }
}

/* With overstriping: those that were chosen, again in their order, until there are enough. */
static void repeat(struct pick *p) {
  uint32_t distinct = p->choice->count;
  for (uint32_t i = 0; distinct && p->choice->count < p->want; i++)
    take(p, p->choice->osts[i % distinct]);
}

static int choose_in_turn(struct alloc *a, struct pick *p) {
  ring_start(a, p->ring, p->want, p->least);
  uint32_t distinct = p->want < p->ring->count ? p->want : p->ring->count;
  uint32_t least = p->wish->overstriped ? distinct : p->least;
  uint64_t turn = p->ring->turn;
  for (int pass = 0; pass < 3 && (pass == 0 || p->choice->count < least); pass++) {
    if (pass > 0)
      p->ring->turn = turn;
    walk(a, p, pass);
  }
  if (p->wish->overstriped)
    repeat(p);
  return p->choice->count ? 0 : -ENOSPC;
}

/* ---- choosing: by free space ---- */

static uint64_t weight_of(const struct alloc *a, const struct target *t) {
  return minus(t->w.free, t->w.penalty + a->servers[t->oss].w.penalty);
}

static bool may_weigh(const struct alloc *a, const struct pick *p, uint32_t ost) {
  uint32_t state = a->targets[ost].state;
  return refusal(state) == 0 && !(state & MODEL_OST_DEGRADED) && !alloc_set_has(&p->taken, ost) && !is_other(p, ost);
}

/* A target was chosen: it and its server have less weight for some time, all others a little more. */
static void charge(struct alloc *a, uint32_t ost, uint64_t at_ns) {
  struct target *t = &a->targets[ost];
  struct server *s = &a->servers[t->oss];
  t->w.penalty = t->w.penalty / 2 + t->w.penalty_per_object * a->active;
  s->w.penalty = s->w.penalty / 2 + s->w.penalty_per_object * a->active_servers;
  t->w.used_ns = s->w.used_ns = at_ns;
  for (uint32_t i = 0; i < a->server_count; i++)
    a->servers[i].w.penalty = minus(a->servers[i].w.penalty, a->servers[i].w.penalty_per_object);
  for (uint32_t i = 0; i < a->config.ost_count; i++)
    a->targets[i].w.penalty = minus(a->targets[i].w.penalty, a->targets[i].w.penalty_per_object);
}

/* The OST that a random number meets, or UINT32_MAX: none left. */
static uint32_t draw_target(struct alloc *a, const struct pick *p) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < p->ring->count; i++) {
    if (may_weigh(a, p, p->ring->osts[i]))
      sum += weight_of(a, &a->targets[p->ring->osts[i]]);
  }
  uint64_t mark = draw(a, sum), reached = 0;
  for (uint32_t i = 0; i < p->ring->count; i++) {
    uint32_t ost = p->ring->osts[i];
    if (!may_weigh(a, p, ost))
      continue;
    reached += weight_of(a, &a->targets[ost]);
    if (reached >= mark)
      return ost;
  }
  return UINT32_MAX;
}

/* False when fewer than `least` could be drawn: then in turn. */
static bool choose_by_space(struct alloc *a, struct pick *p) {
  uint64_t at_ns = now(a);
  while (p->choice->count < p->want) {
    uint32_t ost = draw_target(a, p);
    if (ost == UINT32_MAX)
      break;
    take(p, ost);
    charge(a, ost, at_ns);
  }
  if (p->wish->overstriped)
    repeat(p);
  if (p->choice->count && p->choice->count >= p->least)
    return true;
  put_back(p);
  return false;
}

/* ---- choosing: what the caller names ---- */

static int choose_from(const struct alloc *a, struct pick *p) {
  for (uint32_t i = 0; i < a->config.ost_count && p->choice->count < p->want; i++) {
    uint32_t ost = (p->wish->offset + i) % a->config.ost_count;
    if (alloc_set_has(&p->ring->set, ost) && refusal(a->targets[ost].state) == 0)
      take(p, ost);
  }
  if (p->wish->overstriped)
    repeat(p);
  if (p->choice->count >= p->least && p->choice->count)
    return 0;
  return p->choice->count ? -EFBIG : -ENOSPC;
}

/* Where in the list its first stripe is; -EINVAL: not in it. */
static int list_start(const struct alloc_wish *wish) {
  if (wish->offset == PENSTOCK_OFFSET_ANY)
    return 0;
  for (uint32_t i = 0; i < wish->list_count; i++) {
    if (wish->list[i] == wish->offset)
      return (int)i;
  }
  return -EINVAL;
}

static int choose_list(const struct alloc *a, struct pick *p) {
  const struct alloc_wish *wish = p->wish;
  int start = list_start(wish);
  for (uint32_t i = 0; start >= 0 && i < wish->list_count; i++) {
    uint32_t ost = wish->list[((uint32_t)start + i) % wish->list_count];
    int err = refusal(a->targets[ost].state);
    if (err < 0)
      return err;
    if (alloc_set_has(&p->taken, ost) && !wish->overstriped)
      return -EINVAL;
    p->choice->in_pool &= alloc_set_has(&p->ring->set, ost);
    take(p, ost);
  }
  return start < 0 ? start : 0;
}

/* ---- the face ---- */

/* The ring of a wish, and whether it names only what is there.  An unknown pool is every OST. */
static int check(struct alloc *a, const struct alloc_wish *wish, struct ring **ring) {
  struct ring *pool = ring_find(a, wish->pool);
  *ring = pool ? pool : &a->rings[0];
  if (wish->list_count > PENSTOCK_STRIPES_MAX)
    return -EINVAL;
  for (uint32_t i = 0; i < wish->list_count; i++) {
    if (wish->list[i] >= a->config.ost_count)
      return -EINVAL;
  }
  if (wish->list_count)
    return list_start(wish) < 0 ? -EINVAL : 0;
  if (wish->offset == PENSTOCK_OFFSET_ANY)
    return 0;
  return wish->offset < a->config.ost_count && alloc_set_has(&(*ring)->set, wish->offset) ? 0 : -EINVAL;
}

int alloc_check(struct alloc *a, const struct alloc_wish *wish) {
  struct ring *ring;
  pthread_mutex_lock(&a->lock);
  int err = check(a, wish, &ring);
  pthread_mutex_unlock(&a->lock);
  return err;
}

static int choose(struct alloc *a, struct pick *p) {
  int err = check(a, p->wish, &p->ring);
  if (err < 0)
    return err;
  look(a);
  p->choice->in_pool = p->wish->pool[0] != 0;
  if (p->wish->list_count)
    return choose_list(a, p);
  resolve_count(a, p);
  if (p->want == 0)
    return -ENOSPC;
  if (p->wish->offset != PENSTOCK_OFFSET_ANY)
    return choose_from(a, p);
  if (a->uneven && a->active > 1 && choose_by_space(a, p))
    return 0;
  return choose_in_turn(a, p);
}

int alloc_choose(struct alloc *a, const struct alloc_wish *wish, struct alloc_choice *ret) {
  struct pick p = {.wish = wish, .choice = ret};
  ret->count = 0;
  ret->overstriped = ret->in_pool = false;
  pthread_mutex_lock(&a->lock);
  int err = choose(a, &p);
  pthread_mutex_unlock(&a->lock);
  return err;
}
