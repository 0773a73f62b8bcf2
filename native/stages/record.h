// SPDX-License-Identifier: Apache-2.0
/* The quick way through the interposer for what programs do most: a read or a write by descriptor, where `record` is the
   only active stage and this time the clock is not asked.  It counts the same as the ordinary way, which everything else
   takes, and which says by `quick` of descriptor and thread that both are known well enough: the descriptor is bound to
   its slot in this process, the thread has its own counters, and its first calls of the kind were timed. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "board/board.h"
#include "interpose/call.h"

enum { PENSTOCK_RECORD_LARGE_BYTES = 256 << 10 };

/* A thread's own.  40 bytes: a preloaded library has little room for these. */
struct penstock_recorder {
  struct penstock_ops *ops;
  uint16_t quick;     /* one less than that of descriptors which it may use the quick way; 0: of none */
  uint16_t countdown; /* until a call is timed again */
  bool shared;        /* `ops` is written by several threads */
  uint8_t due;        /* so many metadata calls more are to be timed: none was for a second */
  uint32_t epoch;     /* 1 + of the process that this is for; 0: never begun */
  uint32_t thread;
  uint32_t from, to; /* file slot that was met last and is another's, and ours for it */
  uint32_t random;
  uint32_t timed_at; /* the last metadata call whose time was taken, in 2^20 ns */
};
extern PENSTOCK_OURS __thread struct penstock_recorder penstock_recorder __attribute__((tls_model("initial-exec")));

/* May this call go the quick way? */
static inline bool penstock_record_is_quick(const struct penstock_fd *entry, uint64_t asked) {
  struct penstock_recorder *me = &penstock_recorder;
  if (__atomic_load_n(&entry->quick, __ATOMIC_RELAXED) != me->quick + 1 || asked >= PENSTOCK_RECORD_LARGE_BYTES)
    return false;
  if (__builtin_expect(--me->countdown == 0, 0)) {
    me->countdown = 1; /* before() asks for the clock */
    return false;
  }
  return true;
}

/* What it did.  `offset`: where, or negative: where the descriptor stood.  Gives `result` back. */
int64_t penstock_record_read(struct penstock_fd *entry, uint64_t asked, int64_t offset, int64_t result);
int64_t penstock_record_wrote(struct penstock_fd *entry, uint64_t asked, int64_t offset, int64_t result);
