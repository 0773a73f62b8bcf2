// SPDX-License-Identifier: Apache-2.0
/* Rates on the board: the format of buckets, and the protocol of tickets by which processes share them.

   A bucket lets `rate` units a second pass, of all processes of a job on a node together.  A unit is 1/1024 of a call
   of weight one, or a byte.  Its one shared word, `issued`, counts the units drawn; the line (t0, n0, rate) says how
   many are due at a time.  Who draws the units up to `end` may go on when the line has reached `end`.

   Two parts: the buckets in `control` (a section of kind PENSTOCK_SECTION_LIMITS, written by the agent alone), and the
   words and waiting places in `usage` (the last PENSTOCK_LIMITS_BYTES of its mapping, written by the job).

   Invariants:
   1. In any window T at most rate·T + burst + callers × largest cost passes.
   2. Nobody sleeps past its due time; whatever makes a ticket due earlier wakes all who sleep.  Nobody sleeps longer
      than a second without looking again, so a dead agent delays nobody by more.
   3. A caller killed anywhere costs the others nothing once the agent has given its tickets back; without an agent it
      costs its own ticket, once.  At most one ticket a caller is not published (cost lost, once).
   4. A line is never seen torn and never missing: there are two, and the low bit of `gen` says which holds.
   5. A wild word (somebody wrote into `usage`) is drawn anew from the line: it delays nobody for ever.
   6. No lock, no allocation, no loop without a bound; the clock is CLOCK_MONOTONIC and is written nowhere.

   Counts are modulo 2^64 and compared by signed difference. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  PENSTOCK_SECTION_LIMITS = 1, /* kind of the section in control */
  PENSTOCK_LIMITS_VERSION = 1,
  PENSTOCK_BUCKETS_MAX = 64,
  PENSTOCK_WAITS_MAX = 512,   /* waiting places: threads of a job on a node whose tickets can be given back */
  PENSTOCK_WAIT_TICKETS = 8,  /* buckets that one call may pass */
  PENSTOCK_CALL_UNITS = 1024, /* a call of weight one */
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
  uint32_t zero;
  uint64_t ceiling_ns; /* no single call waits longer; 0: no ceiling */
  struct penstock_line line[2];
  uint64_t given;      /* units given back so far, for the books */
};

struct penstock_limits_control {
  uint32_t version;
  uint32_t count;        /* of buckets in use */
  uint64_t usage_offset; /* of struct penstock_limits_usage in usage */
  struct penstock_bucket bucket[PENSTOCK_BUCKETS_MAX];
  uint32_t back[PENSTOCK_WAITS_MAX]; /* by waiting place: the seq whose tickets were given back */
};

/* In usage. */
struct penstock_bucket_word {
  _Alignas(128) uint64_t issued;
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
  uint8_t bucket[PENSTOCK_WAIT_TICKETS];
  struct penstock_ticket ticket[PENSTOCK_WAIT_TICKETS];
};

struct penstock_limits_usage {
  struct penstock_bucket_word word[PENSTOCK_BUCKETS_MAX];
  struct penstock_wait wait[PENSTOCK_WAITS_MAX];
};
enum { PENSTOCK_LIMITS_BYTES = (sizeof(struct penstock_limits_usage) + 4095) & ~4095 };

/* ---- the caller's side ---- */

/* What a process knows of its board's limits. */
struct penstock_limits {
  const struct penstock_limits_control *control;
  struct penstock_limits_usage *usage;
};

struct penstock_ask {
  uint32_t bucket;
  uint64_t cost; /* units; 0: does not pass this bucket */
};

struct penstock_pass {
  uint64_t start_ns;  /* when it asked */
  uint64_t waited_ns; /* 0: it did not */
  uint32_t bucket;    /* the one it waited for longest */
  bool ceiling;       /* went on because the ceiling was reached */
  bool lost;          /* a lease had run out */
  bool torn;          /* the line could not be read: passed */
  bool unplaced;      /* no waiting place was free: waited without one */
};

/* Draws from all buckets asked for and waits for the one due last.  `place` is a word of the calling thread's own
   (0 at first): its waiting place, so that one that a longjmp left held is found again. `wait` false: charged, never
   delayed (close; a wait nested in a signal handler). */
void penstock_limits_pass(const struct penstock_limits *l, const struct penstock_ask *asks, unsigned count, bool wait,
                          uint32_t thread, uint32_t *place, struct penstock_pass *ret);

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
};

/* A bucket that has never been used: `now` its first line. */
void penstock_bucket_start(struct penstock_bucket *b, const struct penstock_want *want, uint64_t now_ns);
/* Changes the line where anything differs, and wakes those whose tickets came nearer.  `carry` is the agent's own
   memory for this bucket (0 at first): the part of a unit that a change of rate would lose. */
void penstock_bucket_change(struct penstock_bucket *b, const struct penstock_want *want, uint64_t now_ns, uint64_t *carry);
/* Prolongs the lease alone; the line is not based anew. */
void penstock_bucket_renew(struct penstock_bucket *b, uint64_t until_ns);
/* The holders of waiting places for which dead(thread, arg) is true get their tickets taken back: reads usage (a copy
   made with pread by `read`), notes `back` first, then moves n0 and wakes.  Returns how many waiters it gave back. */
unsigned penstock_limits_give_back(struct penstock_limits_control *c,
                                   bool (*read)(void *arg, size_t offset, void *into, size_t size),
                                   bool (*dead)(void *arg, uint32_t thread), void *arg, uint64_t now_ns);
