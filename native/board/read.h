// SPDX-License-Identifier: Apache-2.0
/* Reads `usage` as the hostile input that it is: by pread, never by mapping it, and believing no number in it.

   Invariants:
   1. Whatever the bytes are, reading ends, stays in its own memory, and takes memory in proportion to the file's size.
   2. What does not make sense is counted in `skipped` and left out; the rest is given.
   3. Sums stop at INT64_MAX; sizes, ranks and text fit their types; first <= last.
   4. Links between slots of a file's threads are not followed (equal hashes tell what belongs together), and text is
      followed for as many slots as the longest name takes: there is nothing to go round in. */
#pragma once
#include <stddef.h>
#include "board/board.h"

/* One direction of a file, over all threads of a process. */
struct penstock_seen_way {
  uint64_t calls, bytes, sequential, consecutive, time_ns, sampled;
  uint64_t sizes[10];
};

struct penstock_seen_file {
  uint32_t kind; /* PENSTOCK_SLOT_FILE, DIRECTORY or UNNAMED */
  uint32_t threads;
  const char *name; /* not NUL-terminated */
  uint32_t name_size;
  uint32_t comm_size;
  uint64_t opens, metas, switches, maps, meta_ns, meta_sampled;
  uint64_t first_ns, last_ns; /* CLOCK_MONOTONIC; 0: never */
  uint64_t highest;
  uint64_t files; /* of a sum: opens without a row of their own */
  struct penstock_seen_way way[2];
  struct {
    uint64_t size, count; /* `count`: at least so often */
  } common[4];            /* the commonest first; count 0: no more */
};

struct penstock_seen_op {
  uint64_t calls, errors, time_ns, sampled;
};

/* A process, over all programs that it was (exec); text and argv are those of the last one. */
struct penstock_seen_process {
  uint32_t pid, ppid, threads, execs;
  int32_t rank; /* -1: none */
  uint32_t size;
  uint64_t start_ticks, pid_namespace;
  uint64_t start_ns, start_real_ns, end_ns;
  uint8_t run[16];
  uint32_t mpi_files, mpi_largest;
  uint64_t anonymous_read_bytes, anonymous_written_bytes;
  const char *exe, *argv; /* argv: words with NUL between them */
  uint32_t exe_size, argv_size;
  struct penstock_seen_op op[PENSTOCK_OPS_MAX];
  uint64_t fresh_ns, fresh; /* of struct penstock_ops, over all threads */
  const struct penstock_seen_chunk {
    uint32_t chunk, seq;
  } *chunks; /* all that it holds: to be freed when it is dead and kept */
  uint32_t chunk_count;
};

struct penstock_seen {
  uint64_t lost[PENSTOCK_LOST_MAX];
  uint32_t attached;
  uint32_t processes;
  uint64_t skipped;     /* slots and chunks that made no sense */
  uint64_t chunks_held; /* not harvested yet */
};

/* Whom to tell.  What pointers point to holds until the call returns.  A process comes before its files. */
struct penstock_visitor {
  void *context;
  void (*process)(void *context, const struct penstock_seen_process *process);
  void (*file)(void *context, const struct penstock_seen_process *process, const struct penstock_seen_file *file);
};

/* Reads all that counts and was not freed.  `freed` has chunk_count entries (NULL: none was).  0, or -errno: -EPROTO when
   the head is not of a board with this nonce (NULL: any), -ENOMEM. */
int penstock_read(int usage, uint32_t chunk_count, const uint32_t *freed, const uint8_t nonce[16],
                  const struct penstock_visitor *visitor, struct penstock_seen *ret_seen);
