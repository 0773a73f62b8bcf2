// SPDX-License-Identifier: Apache-2.0
/* Virtual time as model_queue.h has it: the heap of events, stations, disks. */
#include "testbed/model_queue.h"

#include "testbed/model_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grown(void *old, size_t size) {
  void *p = realloc(old, size);
  if (!p) {
    fputs("testbed: out of memory\n", stderr);
    abort();
  }
  return p;
}

/* ---- events: a binary heap ---- */

static bool before(const struct event *a, const struct event *b) {
  return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void place(struct engine *e, uint32_t slot, struct event *event) {
  e->heap[slot] = event;
  event->slot = slot;
}

static void rise(struct engine *e, struct event *event, uint32_t slot) {
  for (; slot > 1 && before(event, e->heap[slot / 2]); slot /= 2)
    place(e, slot, e->heap[slot / 2]);
  place(e, slot, event);
}

static void sink(struct engine *e, struct event *event, uint32_t slot) {
  for (uint32_t child; (child = slot * 2) <= e->count; slot = child) {
    if (child < e->count && before(e->heap[child + 1], e->heap[child]))
      child++;
    if (!before(e->heap[child], event))
      break;
    place(e, slot, e->heap[child]);
  }
  place(e, slot, event);
}

void event_cancel(struct engine *e, struct event *event) {
  uint32_t slot = event->slot;
  if (!slot)
    return;
  struct event *last = e->heap[e->count--];
  event->slot = 0;
  if (last == event)
    return;
  if (slot > 1 && before(last, e->heap[slot / 2]))
    rise(e, last, slot);
  else
    sink(e, last, slot);
}

void event_set(struct engine *e, struct event *event, uint64_t at) {
  event_cancel(e, event);
  if (e->count + 2 > e->room) {
    e->room = e->room ? e->room * 2 : 1024;
    e->heap = grown(e->heap, e->room * sizeof *e->heap);
  }
  event->at = at > e->now ? at : e->now;
  event->order = e->order++;
  rise(e, event, ++e->count);
}

uint64_t engine_next(const struct engine *e) {
  return e->count ? e->heap[1]->at : NEVER;
}

bool engine_step(struct engine *e, uint64_t until) {
  if (!e->count || e->heap[1]->at > until)
    return false;
  struct event *event = e->heap[1];
  event_cancel(e, event);
  e->now = event->at;
  event->fire(event);
  return true;
}

void engine_free(struct engine *e) {
  free(e->heap);
  *e = (struct engine){0};
}

/* ---- stations ---- */

static void append(struct job **first, struct job **last, struct job *job) {
  job->next = NULL;
  if (*first)
    (*last)->next = job;
  else
    *first = job;
  *last = job;
}

static struct job *take(struct job **first) {
  struct job *job = *first;
  *first = job->next;
  return job;
}

static void station_fire(struct event *event);

static void begin(struct station *s, struct job *job) {
  uint64_t takes = s->takes ? s->takes(s, job) : job->cost;
  s->busy++;
  s->served++;
  s->busy_ns += takes;
  job->event.fire = station_fire;
  event_set(s->engine, &job->event, s->engine->now + takes);
}

void station_kick(struct station *s) {
  while (!s->stopped && s->waiting && s->busy < s->servers) {
    s->waiting--;
    begin(s, take(&s->first));
  }
}

static void station_fire(struct event *event) {
  struct job *job = owner_of(event, struct job, event);
  struct station *s = job->server;
  s->busy--;
  station_kick(s);
  job->done(job);
}

void station_put(struct station *s, struct job *job, uint64_t cost, void (*done)(struct job *)) {
  job->server = s;
  job->cost = cost;
  job->done = done;
  job->put = s->engine->now;
  s->waiting++;
  append(&s->first, &s->last, job);
  station_kick(s);
}

void station_stop(struct station *s, bool stop) {
  s->stopped = stop;
  station_kick(s);
}

/* ---- disks ---- */

static uint64_t scramble(uint64_t x) {
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15;
  return x ^ x >> 29;
}

static struct share *find_share(struct disk *d, uint64_t process) {
  uint32_t mask = d->share_room - 1;
  uint32_t at = (uint32_t)scramble(process) & mask;
  while (d->shares[at].jobs && d->shares[at].process != process)
    at = (at + 1) & mask;
  return &d->shares[at];
}

static void more_shares(struct disk *d) {
  struct share *old = d->shares;
  uint32_t room = d->share_room;
  d->share_room = room ? room * 2 : 16;
  d->shares = grown(NULL, d->share_room * sizeof *d->shares);
  memset(d->shares, 0, d->share_room * sizeof *d->shares);
  for (uint32_t i = 0; i < room; i++)
    if (old[i].jobs)
      *find_share(d, old[i].process) = old[i];
  free(old);
}

static void enter(struct disk *d, uint64_t process) {
  if (d->processes * 2 >= d->share_room)
    more_shares(d);
  struct share *share = find_share(d, process);
  share->process = process;
  if (!share->jobs++ && ++d->processes > d->most_processes)
    d->most_processes = d->processes;
}

static void leave(struct disk *d, uint64_t process) {
  struct share *share = find_share(d, process);
  if (--share->jobs)
    return;
  d->processes--;
  uint32_t mask = d->share_room - 1; /* close the gap: what was pushed past it moves up */
  uint32_t gap = (uint32_t)(share - d->shares);
  for (uint32_t at = (gap + 1) & mask; d->shares[at].jobs; at = (at + 1) & mask) {
    uint32_t home = (uint32_t)scramble(d->shares[at].process) & mask;
    if (((at - home) & mask) >= ((at - gap) & mask)) {
      d->shares[gap] = d->shares[at];
      d->shares[at].jobs = 0;
      gap = at;
    }
  }
}

static void disk_fire(struct event *event);

/* Books what was done since, and aims the event at the end of the first job. */
static void settle(struct disk *d) {
  uint64_t now = d->engine->now;
  if (d->first) {
    double done = (double)(now - d->since) * d->speed;
    d->left = done < d->left ? d->left - done : 0;
    d->busy_ns += d->speed > 0 ? now - d->since : 0;
  }
  d->since = now;
  uint32_t n = d->processes ? d->processes : 1;
  d->speed = d->stopped ? 0 : n / points_at(d->contention, n) / d->slowdown;
  if (d->first && d->speed > 0)
    event_set(d->engine, &d->event, now + (uint64_t)(d->left / d->speed + 0.5));
  else
    event_cancel(d->engine, &d->event);
}

void disk_changed(struct disk *d) {
  settle(d);
}

void disk_init(struct disk *d, struct engine *e, const struct points *contention) {
  *d = (struct disk){.engine = e, .contention = contention, .slowdown = 1, .event.fire = disk_fire};
}

void disk_put(struct disk *d, struct job *job, uint64_t cost, uint64_t process, void (*done)(struct job *)) {
  job->cost = cost;
  job->process = process;
  job->done = done;
  job->put = d->engine->now;
  settle(d);
  if (!d->first)
    d->left = (double)cost;
  append(&d->first, &d->last, job);
  d->jobs++;
  enter(d, process);
  settle(d);
}

static void disk_fire(struct event *event) {
  struct disk *d = owner_of(event, struct disk, event);
  settle(d); /* books the last of it at the old speed */
  struct job *job = take(&d->first);
  d->jobs--;
  leave(d, job->process);
  d->left = d->first ? (double)d->first->cost : 0;
  settle(d);
  job->done(job);
}

void disk_free(struct disk *d) {
  free(d->shares);
}
