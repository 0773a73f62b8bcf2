// SPDX-License-Identifier: Apache-2.0
/* Requests on their way: the windows of clients, the servers they pass, the plans that wait for them.
 *
 *   request_send -> window -> go -> [MDS threads | OSS processors -> (disk + wire)] -> served -> reply -> over
 *
 * A server's time begins when the request leaves its window; both ways of the network are added to the reply, which
 * changes no rate and no latency. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testbed/model_internal.h"

const struct request_row request_rows[REQUEST_KINDS] = {
#define R(kind, name, where, cost, narrow) [R_##kind] = {name, where, SET_##cost, narrow},
  MODEL_REQUESTS(R)
#undef R
  [R_CB] = {"cb", MDS, SET_mds_cost_cancel, false},
};

static bool counting_only(const struct model *m) {
  return atomic_load_explicit(&((struct model *)(uintptr_t)m)->mode, memory_order_relaxed) == MODEL_COUNT;
}

/* ---- servers ---- */

static double drawn(struct mdt *mdt) {
  mdt->random += 0x9e3779b97f4a7c15;
  uint64_t x = mdt->random;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return -log(((double)(x >> 11) + 0.5) * 0x1p-53);
}

/* When the lock of this folder is free; it is held from then on for `hold`. */
static uint64_t lock_dir(struct mdt *mdt, uint64_t dir, uint64_t now, uint64_t hold) {
  uint32_t at = (uint32_t)(mix(dir, 1) % DIR_SLOTS);
  for (uint32_t i = 0; i < 8 && mdt->dirs[at].dir != dir && mdt->dirs[at].until > now; i++)
    at = (at + 1) % DIR_SLOTS;
  uint64_t free_at = mdt->dirs[at].until > now ? mdt->dirs[at].until : now;
  mdt->dirs[at].dir = dir;
  mdt->dirs[at].until = free_at + hold;
  return free_at;
}

/* What the MDS needs for a request: asked when a thread begins with it, and a thread that waits for a lock is busy. */
static uint64_t mds_takes(struct station *s, struct job *job) {
  struct mdt *mdt = owner_of(s, struct mdt, threads);
  struct request *r = owner_of(job, struct request, job);
  uint64_t now = s->engine->now;
  double cost = (double)job->cost;
  if (mdt->v[SET_mds_service] == SERVICE_EXPONENTIAL)
    cost *= drawn(mdt);
  double knee = mdt->v[SET_mds_queue_knee];
  if (s->waiting > knee)
    cost *= 1 + mdt->v[SET_mds_queue_steep] * (s->waiting - knee) / knee;
  cost *= mdt->v[SET_mds_slowdown];
  uint64_t begin = now;
  if (r->dir && job->cost) {
    uint64_t hold = (uint64_t)(mdt->v[SET_mds_dir_lock] * mdt->v[SET_mds_slowdown]);
    begin = lock_dir(mdt, r->dir, now, least(hold, (uint64_t)cost));
  }
  if (r->kind == R_RENAME && r->md & 1u << MD_TRYLOCKS) {
    begin = mdt->rename_until > begin ? mdt->rename_until : begin;
    mdt->rename_until = begin + (uint64_t)cost;
  }
  return begin - now + (uint64_t)(cost + 0.5);
}

static void wake_mdt(struct event *event) {
  struct mdt *mdt = owner_of(event, struct mdt, wakes);
  station_stop(&mdt->threads, mdt->failed);
}

void servers_init(struct model *m, const uint32_t *oss_of) {
  m->mdts = model_alloc(m->mdt_count * sizeof *m->mdts);
  m->osss = model_alloc(m->oss_count * sizeof *m->osss);
  m->osts = model_alloc(m->ost_count * sizeof *m->osts);
  for (uint32_t i = 0; i < m->mdt_count; i++) {
    struct mdt *mdt = &m->mdts[i];
    mdt->threads = (struct station){.engine = &m->engine, .takes = mds_takes};
    mdt->dirs = model_alloc(DIR_SLOTS * sizeof *mdt->dirs);
    mdt->wakes.fire = wake_mdt;
    memcpy(mdt->v, m->set.v, sizeof mdt->v);
    mdt->random = (uint64_t)m->set.v[SET_mds_seed] + i;
  }
  for (uint32_t i = 0; i < m->oss_count; i++) {
    struct oss *oss = &m->osss[i];
    oss->cpus = oss->in = oss->out = (struct station){.engine = &m->engine, .servers = 1};
    memcpy(oss->v, m->set.v, sizeof oss->v);
  }
  for (uint32_t i = 0; i < m->ost_count; i++) {
    struct ost *ost = &m->osts[i];
    disk_init(&ost->disk, &m->engine, &m->set.contention);
    ost->oss = oss_of ? oss_of[i] : i % m->oss_count;
    memcpy(ost->v, m->set.v, sizeof ost->v);
  }
  servers_set(m);
}

void servers_set(struct model *m) {
  for (uint32_t i = 0; i < m->mdt_count; i++) {
    struct mdt *mdt = &m->mdts[i];
    mdt->threads.servers = (uint32_t)mdt->v[SET_mds_threads];
    station_kick(&mdt->threads);
  }
  for (uint32_t i = 0; i < m->oss_count; i++) {
    struct oss *oss = &m->osss[i];
    oss->cpus.servers = (uint32_t)oss->v[SET_oss_cpus];
    station_stop(&oss->cpus, oss->failed);
  }
  for (uint32_t i = 0; i < m->ost_count; i++) {
    struct ost *ost = &m->osts[i];
    ost->disk.slowdown = ost->v[SET_ost_slowdown];
    ost->disk.stopped = m->osss[ost->oss].failed;
    disk_changed(&ost->disk);
  }
}

void servers_free(struct model *m) {
  for (uint32_t i = 0; i < m->mdt_count; i++) {
    free(m->mdts[i].dirs);
    stats_free(&m->mdts[i].stats);
  }
  for (uint32_t i = 0; i < m->ost_count; i++) {
    disk_free(&m->osts[i].disk);
    stats_free(&m->osts[i].stats);
  }
  free(m->mdts);
  free(m->osss);
  free(m->osts);
}

/* ---- plans ---- */

struct plan *plan_of(struct build *b) {
  if (!b->plan) {
    struct plan *p = b->plan = model_alloc(sizeof *p);
    p->model = b->m;
    p->client = b->call->client;
    p->pid = b->call->pid;
    p->token = ++b->m->next_token;
    struct plan **chain = &b->m->tokens[p->token % TOKEN_CHAINS];
    p->next_token = *chain;
    *chain = p;
    LIST_INSERT_HEAD(&b->m->plans, p, all);
  }
  return b->plan;
}

static struct waiter *waiter_new(struct build *b, int phase) {
  struct plan *p = plan_of(b);
  struct waiter *w = model_alloc(sizeof *w);
  w->plan = p;
  w->phase = (uint32_t)phase;
  p->at[phase].left++;
  if (p->phases <= (uint32_t)phase)
    p->phases = (uint32_t)phase + 1;
  return w;
}

static void send_phase(struct model *m, struct phase *phase) {
  while (phase->first) {
    struct request *r = phase->first;
    phase->first = r->next;
    request_send(m, r);
  }
}

static void plan_forget(struct plan *p) {
  LIST_REMOVE(p, all);
  free(p);
}

static void plan_step(struct model *m, struct plan *p) {
  while (!p->at[p->phase].left) {
    if (++p->phase >= p->phases) {
      p->done = true;
      if (p->answered)
        plan_forget(p);
      else
        plan_end(m, p, 0);
      return;
    }
    send_phase(m, &p->at[p->phase]);
  }
}

void plan_begin(struct model *m, struct plan *p) {
  p->begun = true;
  send_phase(m, &p->at[0]);
  plan_step(m, p);
}

void plan_end(struct model *m, struct plan *p, int err) {
  if (p->over)
    return;
  p->over = true;
  p->err = err;
  struct plan **at = &m->tokens[p->token % TOKEN_CHAINS];
  while (*at != p)
    at = &(*at)->next_token;
  *at = p->next_token;
  p->next = NULL;
  if (m->ready)
    m->ready_last->next = p;
  else
    m->ready = p;
  m->ready_last = p;
}

static void waiter_done(struct model *m, struct waiter *w) {
  struct plan *p = w->plan;
  bool step = !--p->at[w->phase].left && p->begun && p->phase == w->phase;
  free(w);
  if (step)
    plan_step(m, p);
}

void wait_for(struct build *b, int phase, struct request *r) {
  struct waiter *w = waiter_new(b, phase);
  w->next = r->waiters;
  r->waiters = w;
}

void wait_for_space(struct build *b, int phase, struct osc *osc) {
  struct waiter *w = waiter_new(b, phase);
  if (osc->space)
    osc->space_last->next = w;
  else
    osc->space = w;
  osc->space_last = w;
}

void osc_wake(struct model *m, struct osc *osc) {
  uint64_t limit = least((uint64_t)m->set.v[SET_client_max_dirty], osc->grant);
  while (osc->space && osc->dirty < limit) {
    struct waiter *w = osc->space;
    osc->space = w->next;
    waiter_done(m, w);
  }
}

/* ---- requests ---- */

void count(struct model *m, uint32_t client, enum request_kind kind, uint64_t times) {
  m->clients[client].counters[kind] += times;
}

struct osc *osc_of(struct model *m, uint32_t client, uint32_t ost) {
  struct client *c = &m->clients[client];
  if (!c->oscs)
    c->oscs = model_alloc(m->ost_count * sizeof *c->oscs);
  if (!c->oscs[ost]) {
    c->oscs[ost] = model_alloc(sizeof **c->oscs);
    c->oscs[ost]->grant = (uint64_t)m->set.v[SET_client_grant];
  }
  return c->oscs[ost];
}

struct request *request_make(struct model *m, enum request_kind kind, uint32_t client, uint32_t server) {
  struct request *r = model_alloc(sizeof *r);
  r->kind = (uint8_t)kind;
  r->client = client;
  r->server = server;
  r->times = 1;
  LIST_INSERT_HEAD(&m->requests, r, all);
  return r;
}

struct request *request_new(struct build *b, enum request_kind kind, uint32_t server) {
  struct request *r = request_make(b->m, kind, b->call->client, server);
  r->process = b->process;
  r->who = b->who;
  return r;
}

void request_add(struct build *b, int phase, struct request *r) {
  if (!r->uncounted)
    count(b->m, r->client, r->kind, 1);
  if (phase < 0) {
    request_send(b->m, r);
    return;
  }
  wait_for(b, phase, r);
  struct phase *p = &b->plan->at[phase];
  r->next = NULL;
  if (p->first)
    p->last->next = r;
  else
    p->first = r;
  p->last = r;
}

static void served(struct model *m, struct request *r);

static struct model *model_of(struct station *cpus_or_threads) {
  return owner_of(cpus_or_threads->engine, struct model, engine);
}

static void at_mds_done(struct job *job) {
  struct station *s = job->server;
  served(model_of(s), owner_of(job, struct request, job));
}

static void part_done(struct model *m, struct request *r) {
  if (!--r->parts)
    served(m, r);
}

static void wire_done(struct job *job) {
  struct station *s = job->server;
  part_done(model_of(s), owner_of(job, struct request, wire));
}

static void disk_done(struct job *job) {
  struct disk *d = job->server;
  part_done(owner_of(d->engine, struct model, engine), owner_of(job, struct request, job));
}

static void cpu_done(struct job *job) {
  struct station *s = job->server;
  struct model *m = model_of(s);
  struct request *r = owner_of(job, struct request, job);
  const struct request_row *row = &request_rows[r->kind];
  if (row->where == OSS) {
    served(m, r);
    return;
  }
  struct ost *ost = &m->osts[r->server];
  struct oss *oss = &m->osss[ost->oss];
  bool data = r->kind == R_READ || r->kind == R_WRITE;
  double cost = ost->v[row->cost] + (data ? (double)r->bytes / ost->v[SET_ost_bandwidth] * 1e9 : 0);
  double wire = data ? (double)r->bytes / oss->v[SET_oss_bandwidth] * 1e9 : 0;
  if (counting_only(m))
    cost = wire = 0;
  bucket_add(&ost->in_flight, r->kind == R_WRITE, ost->disk.jobs + 1);
  r->parts = data ? 2 : 1;
  r->job.server = &ost->disk;
  disk_put(&ost->disk, &r->job, (uint64_t)cost, r->process, disk_done);
  if (data)
    station_put(r->kind == R_WRITE ? &oss->in : &oss->out, &r->wire, (uint64_t)wire, wire_done);
}

static void go(struct model *m, struct request *r) {
  const struct request_row *row = &request_rows[r->kind];
  r->came = m->engine.now;
  if (row->where == MDS) {
    struct mdt *mdt = &m->mdts[r->server];
    uint64_t cost = (uint64_t)mdt->v[row->cost] * r->times;
    cost = cost > r->less ? cost - r->less : 0;
    station_put(&mdt->threads, &r->job, counting_only(m) ? 0 : cost, at_mds_done);
    return;
  }
  struct oss *oss = &m->osss[m->osts[r->server].oss];
  station_put(&oss->cpus, &r->job, counting_only(m) ? 0 : (uint64_t)oss->v[SET_oss_cost], cpu_done);
}

static uint32_t window_size(const struct model *m, const struct client *c, uint32_t mdt_count, const struct window *w) {
  bool narrow = c->mdc && w >= c->mdc && w < c->mdc + 2 * mdt_count && (w - c->mdc) % 2;
  return (uint32_t)m->set.v[narrow ? SET_client_mod_rpcs : SET_client_rpcs];
}

static void window_kick(struct model *m, struct client *c, struct window *w) {
  uint32_t size = window_size(m, c, m->mdt_count, w);
  while (w->first && !c->cut && w->under_way < size) {
    struct request *r = w->first;
    w->first = r->next;
    w->under_way++;
    go(m, r);
  }
}

void windows_kick(struct model *m, uint32_t client) {
  struct client *c = &m->clients[client];
  for (uint32_t i = 0; c->mdc && i < 2 * m->mdt_count; i++)
    window_kick(m, c, &c->mdc[i]);
  for (uint32_t i = 0; c->oscs && i < m->ost_count; i++)
    if (c->oscs[i])
      window_kick(m, c, &c->oscs[i]->window);
}

/* The window that holds a request back; NULL for what servers send each other. */
static struct window *window_of(struct model *m, const struct request *r) {
  struct client *c = &m->clients[r->client];
  const struct request_row *row = &request_rows[r->kind];
  if (r->kind == R_DESTROY || r->kind == R_PRECREATE || r->kind == R_CHOWN)
    return NULL;
  if (row->where != MDS)
    return &osc_of(m, r->client, r->server)->window;
  if (!c->mdc)
    c->mdc = model_alloc(2 * m->mdt_count * sizeof *c->mdc);
  return &c->mdc[2 * r->server + row->narrow];
}

void request_send(struct model *m, struct request *r) {
  struct window *w = r->window = window_of(m, r);
  if (!w) {
    go(m, r);
    return;
  }
  r->next = NULL;
  if (w->first)
    w->last->next = r;
  else
    w->first = r;
  w->last = r;
  window_kick(m, &m->clients[r->client], w);
}

static void over(struct event *event) {
  struct request *r = owner_of(owner_of(event, struct job, event), struct request, job);
  struct model *m = r->job.server;
  if (r->window) {
    r->window->under_way--;
    window_kick(m, &m->clients[r->client], r->window);
  }
  object_done(m, r);
  while (r->waiters) {
    struct waiter *w = r->waiters;
    r->waiters = w->next;
    waiter_done(m, w);
  }
  LIST_REMOVE(r, all);
  free(r);
}

/* The server is through with it: the reply is on its way. */
static void served(struct model *m, struct request *r) {
  stats_request(m, r, m->engine.now - r->came);
  uint64_t way = r->less || counting_only(m) ? 0 : 2 * (uint64_t)m->set.v[SET_net_latency];
  r->job.server = m;
  r->job.event.fire = over;
  event_set(&m->engine, &r->job.event, m->engine.now + way + (counting_only(m) ? 0 : r->more));
}

static void late(struct event *event) {
  struct request *r = owner_of(owner_of(event, struct job, event), struct request, job);
  request_send(r->job.server, r);
}

void request_later(struct build *b, struct request *r, uint64_t delay) {
  count(b->m, r->client, r->kind, 1);
  r->job.server = b->m;
  r->job.event.fire = late;
  event_set(&b->m->engine, &r->job.event, b->m->engine.now + (counting_only(b->m) ? 0 : delay));
}
