// SPDX-License-Identifier: Apache-2.0
/* Virtual time: events in order, and the two kinds of servers that work is queued at.
 *
 * Invariants:
 * 1. Times are virtual nanoseconds.  Nothing here reads a clock: whoever owns the engine says how far to run.
 * 2. An event that comes late in real time still happens at its own virtual time: what follows from it (the next job of
 *    a server) starts there and not when somebody woke up.  Hence modelled rates do not suffer from late timers.
 * 3. Events of the same time happen in the order in which they were set.
 * 4. Nothing here locks; the owner does. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define owner_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#define NEVER UINT64_MAX

struct event {
  uint64_t at;
  uint64_t order;
  uint32_t slot; /* its place in the heap, from 1; 0 = not set */
  void (*fire)(struct event *);
};

struct engine {
  struct event **heap; /* from 1 */
  uint32_t count, room;
  uint64_t now;
  uint64_t order;
};

/* Sets or moves an event; a time that is past means now. */
void event_set(struct engine *e, struct event *event, uint64_t at);
void event_cancel(struct engine *e, struct event *event);
/* The time of the next event, NEVER if there is none. */
uint64_t engine_next(const struct engine *e);
/* One event, if it is due at `until`. */
bool engine_step(struct engine *e, uint64_t until);
void engine_free(struct engine *e);

/* Work for a server.  `done` may put the job, or free it. */
struct job {
  struct event event;
  struct job *next;
  void *server;
  uint64_t cost;    /* ns of work at normal speed */
  uint64_t process; /* whose it is: a disk counts distinct ones */
  uint64_t put;     /* when it came */
  void (*done)(struct job *);
};

/* First come, first served by `servers` alike ones: service threads, processors, a wire. */
struct station {
  struct engine *engine;
  uint32_t servers, busy, waiting;
  struct job *first, *last;
  bool stopped;      /* nothing new is begun */
  uint64_t busy_ns;  /* work begun so far */
  uint64_t served;
  /* What the job takes, asked when it begins; NULL = its cost. */
  uint64_t (*takes)(struct station *, struct job *);
};
void station_put(struct station *s, struct job *job, uint64_t cost, void (*done)(struct job *));
void station_stop(struct station *s, bool stop);
/* After `servers` was raised or the stop ended: begin what can begin. */
void station_kick(struct station *s);

/* A target: first come, first served, at a speed of n / g(n) / slowdown, n being the number of distinct processes that
 * have work here.  So n processes with one request each get it done in g(n) times what one alone needs. */
struct disk {
  struct engine *engine;
  const struct points *contention;
  double slowdown;
  bool stopped;
  struct job *first, *last;
  uint32_t jobs, processes, most_processes;
  double left;     /* of the first one */
  double speed;
  uint64_t since;  /* when `left` was right */
  struct event event;
  uint64_t busy_ns;
  struct share { /* distinct processes: an open-addressed table */
    uint64_t process;
    uint32_t jobs;
  } *shares;
  uint32_t share_room;
};
void disk_init(struct disk *d, struct engine *e, const struct points *contention);
void disk_put(struct disk *d, struct job *job, uint64_t cost, uint64_t process, void (*done)(struct job *));
/* After slowdown, contention or stopped changed. */
void disk_changed(struct disk *d);
void disk_free(struct disk *d);
