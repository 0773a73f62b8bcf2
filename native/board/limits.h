// SPDX-License-Identifier: Apache-2.0
/* Rates on the board: the format of buckets, by which rules a call finds its own, and the protocol of tickets by which
   processes share them.

   A bucket lets `rate` units a second pass, of all processes of a job on a node together.  A unit is 1/1024 of a call
   of weight one, or a byte.  Its one shared word, `issued`, counts the units drawn; the line (t0, n0, rate) says how
   many are due at a time.  Who draws the units up to `end` may go on when the line has reached `end`.

   Two parts: the buckets and rules in `control` (a section of kind PENSTOCK_SECTION_LIMITS, written by the agent alone),
   and the words, the counters of demand and the waiting places in `usage` (PENSTOCK_USAGE_LIMITS_BYTES ahead of its
   chunks, written by the job).  Every board has both, with no bucket at first: a running job can be limited.

   Invariants:
   1. In any window T at most rate·T + burst + callers × largest cost passes.
   2. Nobody sleeps past its due time; whatever makes a ticket due earlier wakes all who sleep.  Nobody sleeps longer
      than a second without looking again, so a dead agent delays nobody by more.
   3. A caller killed anywhere costs the others nothing once the agent has given its tickets back; without an agent it
      costs its own ticket, once.  At most one ticket a caller is not published (cost lost, once).
   4. A line is never seen torn and never missing: there are two, and the low bit of `gen` says which holds.  Rules the
      same, by `rules_gen`; a reader who is overtaken twice charges one call wrongly, and touches nothing out of bounds.
   5. A wild word (somebody wrote into `usage`) is drawn anew from the line: it delays nobody for ever.
   6. No lock, no allocation, no loop without a bound; the clock is CLOCK_MONOTONIC and is written nowhere but in waiting
      places.
   7. A bucket in shadow delays nobody: it draws, and counts who would have waited.

   Counts are modulo 2^64 and compared by signed difference. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "board/board.h"

enum {
  PENSTOCK_SECTION_LIMITS = 1, /* kind of the section in control, and of the part of a plan */
  PENSTOCK_LIMITS_VERSION = 1,
  PENSTOCK_BUCKETS_MAX = 64,
  PENSTOCK_WAITS_MAX = 2048,  /* waiting places: threads of a job on a node whose tickets can be given back */
  PENSTOCK_WAIT_TICKETS = 8,  /* buckets that one call may pass */
  PENSTOCK_DEMAND_LINES = 16, /* of counters a bucket, so that threads seldom meet */
  PENSTOCK_LIMIT_PREFIXES_MAX = 64,
  PENSTOCK_LIMIT_NAME_BYTES = 64,
  PENSTOCK_CALL_UNITS = 1024, /* a call of weight one */
  PENSTOCK_WEIGHT_MAX = 1000 * PENSTOCK_CALL_UNITS,
  PENSTOCK_RATE_SHIFT = 44,   /* rates are units a nanosecond, times 2^44 */
};

/* What holds when the lease has run out. */
enum penstock_on_lost { PENSTOCK_LOST_HOLD, PENSTOCK_LOST_OPEN, PENSTOCK_LOST_RATE };

struct penstock_line {
  uint64_t t0_ns;
  uint64_t n0;        /* units due at t0 */
  uint64_t rate;      /* 0: nothing passes until it is raised */
  uint64_t burst;     /* units: idle time counts up to this */
  uint64_t most;      /* units: a word further ahead than this is wild */
  uint64_t until_ns;  /* end of the lease */
  uint64_t lost_rate; /* after it, with PENSTOCK_LOST_RATE */
  uint32_t on_lost;
  uint32_t open;      /* 1: no limit holds now; everything passes and is counted */
};

/* In control.  `gen` is what waiters sleep on. */
struct penstock_bucket {
  _Alignas(64) uint32_t gen;
  uint32_t shadow;     /* 1: counts, and delays nobody */
  uint64_t ceiling_ns; /* no single call waits longer; 0: no ceiling */
  struct penstock_line line[2];
  uint64_t given;      /* units given back so far, for the books */
  uint64_t asked_before; /* what an earlier bucket of this place had seen when this one began: units, ... */
  uint64_t delayed_before;
  uint64_t waited_before_ns;
};

/* A folder: absolute, normal, no slash at its end ("" is /); it and all below it, by whole components. */
struct penstock_limit_prefix {
  uint16_t size;
  uint16_t bucket;
  uint32_t zero;
  char path[PENSTOCK_PREFIX_BYTES + 8];
};

/* Which buckets a call passes, and what it costs.  Bit b of a mask is bucket b. */
struct penstock_limit_rules {
  uint64_t of_op[PENSTOCK_OPS_MAX]; /* by operation; at most PENSTOCK_WAIT_TICKETS bits each */
  uint64_t paths;                   /* buckets that hold for the prefixes below alone */
  uint64_t bytes;                   /* buckets whose units are bytes read or written, else calls by weight */
  uint64_t close_waits;             /* buckets for which also a close and a lock wait, which else are only charged */
  uint32_t weight[PENSTOCK_OPS_MAX]; /* by operation: units a call ... */
  uint32_t lookup[PENSTOCK_OPS_MAX]; /* ... and so many more for a name that was not lately used with success */
  uint32_t truncate;                /* units more for an open with O_TRUNC */
  uint32_t known_s;                 /* how long "lately" is; 0: every name is looked up */
  uint32_t under;                   /* PENSTOCK_UNDER_* of the files that limits hold for */
  uint32_t prefix_count;
  struct penstock_limit_prefix prefixes[PENSTOCK_LIMIT_PREFIXES_MAX];
};

struct penstock_limits_control {
  uint32_t version;
  uint32_t count;        /* one past the last bucket in use */
  uint64_t usage_offset; /* of struct penstock_limits_usage in usage */
  uint32_t rules_gen;    /* low bit: which of rules[] holds */
  uint32_t zero;
  struct penstock_limit_rules rules[2];
  char name[PENSTOCK_BUCKETS_MAX][PENSTOCK_LIMIT_NAME_BYTES]; /* NUL-terminated; "": not in use */
  struct penstock_bucket bucket[PENSTOCK_BUCKETS_MAX];
  uint32_t back[PENSTOCK_WAITS_MAX]; /* by waiting place: the seq whose tickets were given back */
};

/* In usage. */
struct penstock_bucket_word {
  _Alignas(128) uint64_t issued;
  uint64_t longest_ns; /* that a call waited, when over (in shadow: the latest ticket); only grows */
};

/* What was asked and how it went: atomic additions, on one of a bucket's lines.  What was asked for in all is
   issued - forgiven + undrawn, less what was not used: so that who passes adds up one word alone. */
struct penstock_demand {
  _Alignas(64) uint64_t forgiven; /* units that `issued` jumped over: idle time */
  uint64_t undrawn;            /* units that passed without being drawn: while the bucket is open, or far behind */
  uint64_t delayed;            /* that waited for this bucket longest (in shadow: that would have waited) */
  uint64_t waited_ns;          /* how long, when over (in shadow: how late their tickets were) */
  uint64_t ceilings;           /* that went on because of the ceiling */
  uint64_t lost;               /* that came when the lease was over */
  uint64_t torn;               /* that passed because the line could not be read */
  uint64_t unplaced;           /* that waited without a waiting place */
};

struct penstock_ticket {
  uint64_t end;
  uint64_t cost;
};

struct penstock_wait {
  _Alignas(64) uint64_t holder; /* seq in the high half, odd while held; thread in the low half */
  uint32_t published;           /* = seq: the tickets below are this holder's */
  uint32_t count;
  uint64_t start_ns;
  uint64_t seen_ns;             /* when it last looked */
  uint32_t space;               /* low half of its pid namespace's inode; 0: not known */
  uint32_t zero;
  uint8_t bucket[PENSTOCK_WAIT_TICKETS];
  struct penstock_ticket ticket[PENSTOCK_WAIT_TICKETS];
};

struct penstock_limits_usage {
  _Alignas(128) uint32_t wait_high; /* one past the highest waiting place ever taken */
  struct penstock_bucket_word word[PENSTOCK_BUCKETS_MAX];
  struct penstock_demand demand[PENSTOCK_BUCKETS_MAX][PENSTOCK_DEMAND_LINES];
  struct penstock_wait wait[PENSTOCK_WAITS_MAX];
};
_Static_assert(sizeof(struct penstock_limits_usage) <= PENSTOCK_USAGE_LIMITS_BYTES, "the room that board.h keeps");
_Static_assert(sizeof(struct penstock_limit_prefix) == 256, "a prefix is 256 bytes");

/* ---- what is to hold: the part of a plan, and what an agent gives to penstock_limits_apply() ----

   A head, `count` buckets, and their prefixes, bucket after bucket.  Little-endian and packed by nature; made by
   src/penstock/runs/limits.py, and checked in every part before anything of it is believed. */
struct penstock_limits_spec {
  uint32_t version;      /* PENSTOCK_LIMITS_VERSION */
  uint32_t count;        /* of buckets */
  uint32_t prefix_count; /* of all of them */
  uint32_t under;        /* PENSTOCK_UNDER_*; 0: on mounts where some are named, else for what is recorded */
  uint32_t known_s;
  uint32_t truncate;
  uint64_t lease_ns;     /* from when it is applied */
  uint32_t weight[PENSTOCK_OPS_MAX];
  uint32_t lookup[PENSTOCK_OPS_MAX];
};

struct penstock_bucket_spec {
  char name[PENSTOCK_LIMIT_NAME_BYTES]; /* NUL-terminated, not empty, no two alike */
  uint64_t ops[2];                      /* bit n of both together: operation n */
  uint64_t rate_per_s_1024;             /* as of struct penstock_want */
  uint64_t burst;
  uint64_t most;
  uint64_t lost_per_s_1024;
  uint64_t ceiling_ns;
  uint32_t on_lost;
  uint8_t bytes, shadow, open, close_waits;
  uint32_t prefix_count; /* of this one; 0: all paths */
  uint32_t zeros;
};

/* ---- the caller's side ---- */

/* What a process knows of its board's limits. */
struct penstock_limits {
  const struct penstock_limits_control *control;
  struct penstock_limits_usage *usage;
  uint32_t (*thread)(void); /* whose wait it is: asked only by who waits */
  uint32_t space;
};

struct penstock_ask {
  uint32_t bucket;
  bool wait;     /* false: charged, never delayed (close; what turned out to cost more than was thought) */
  uint64_t cost; /* units; 0: does not pass this bucket */
};

struct penstock_pass {
  uint64_t waited_ns; /* 0: it did not */
  uint64_t late_ns;   /* the most that a ticket of a bucket in shadow was late */
  uint64_t late;      /* mask of buckets in shadow that would have made it wait */
  uint32_t bucket;    /* the one it waited for last */
  bool ceiling;       /* went on because the ceiling was reached */
  bool lost;          /* a lease had run out */
  bool torn;          /* the line could not be read: passed */
  bool unplaced;      /* no waiting place was free: waited without one */
};

/* Draws from all buckets asked for and waits for the one due last.  A waiting place that a longjmp left held is found
   again by the thread's next wait. */
void penstock_limits_pass(const struct penstock_limits *l, const struct penstock_ask *asks, unsigned count, uint64_t now_ns,
                          struct penstock_pass *ret);

/* Gives units back that this caller drew and did not use (a read that met the end of the file). */
void penstock_limits_return(const struct penstock_limits *l, uint32_t bucket, uint64_t units);

/* The calling thread's line of counters. */
static inline struct penstock_demand *penstock_demand_of(const struct penstock_limits *l, uint32_t bucket) {
  uint64_t mine = (uint64_t)(uintptr_t)__builtin_thread_pointer();
  return &l->usage->demand[bucket][mine * 0x9e3779b97f4a7c15u >> 60];
}
_Static_assert(PENSTOCK_DEMAND_LINES == 16, "four bits");

/* Units due by a line at a time, and when units are due; UINT64_MAX: never. */
uint64_t penstock_line_units(const struct penstock_line *line, uint64_t now_ns);
uint64_t penstock_line_due_ns(const struct penstock_line *line, uint64_t end);

/* ---- the agent's side ---- */

struct penstock_want {
  uint64_t rate_per_s_1024; /* units a second, times 1024: so that 0.2 calls a second is exact enough */
  uint64_t burst;
  uint64_t most;            /* 0: 4,096 calls and 10 s of the rate; bytes need more: several of the largest costs */
  uint64_t lease_ns;        /* from now */
  uint64_t lost_per_s_1024;
  uint32_t on_lost;
  bool open;
  bool shadow;
  uint64_t ceiling_ns;
};

/* A bucket begins at `now`; of one that was here before neither debt nor credit is left. */
void penstock_bucket_start(struct penstock_bucket *b, const struct penstock_want *want, uint64_t now_ns);
/* Changes what differs, and wakes those who may go on earlier.  `carry` is the agent's own
   memory for this bucket (0 at first): the part of a unit that a change of rate would lose. */
void penstock_bucket_change(struct penstock_bucket *b, const struct penstock_want *want, uint64_t now_ns, uint64_t *carry);
/* Prolongs the lease alone; the line is based anew where it was over. */
void penstock_bucket_renew(struct penstock_bucket *b, uint64_t until_ns, uint64_t now_ns);
/* Which usage a dead waiter's tickets are read from: a copy of so many bytes at an offset, made with pread; and who is
   dead. */
struct penstock_limits_reader {
  bool (*read)(void *arg, size_t offset, void *into, size_t size);
  bool (*dead)(void *arg, const struct penstock_wait *wait);
  void *arg;
};
/* The tickets of dead waiters are taken back: notes `back` first, then moves n0 and wakes.  How many waiters it were. */
unsigned penstock_limits_give_back(struct penstock_limits_control *c, const struct penstock_limits_reader *from,
                                   uint64_t now_ns);

/* What is wrong with a spec, or NULL. */
const char *penstock_limits_wrong(const void *spec, size_t bytes);
/* A section that holds nothing yet. */
void penstock_limits_begin(struct penstock_limits_control *c, uint64_t usage_offset);
/* Makes a spec that is not wrong hold: buckets of a name that is there already go on with their tickets, those that are
   not named any more let everybody pass.  `under`: for which files, if the spec does not say.  False: no bucket is free
   (the limits of before hold). */
bool penstock_limits_apply(struct penstock_limits_control *c, const void *spec, uint32_t under, uint64_t now_ns,
                           uint64_t carry[PENSTOCK_BUCKETS_MAX]);
/* Limits hold on mounts where some are named, else for what is recorded. */
uint32_t penstock_limits_under(const struct penstock_prefix *prefixes, uint32_t count);
