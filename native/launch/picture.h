// SPDX-License-Identifier: Apache-2.0
/* What a board told, in memory: processes, their files, operations by run.  A harvest adds to it; frames are made of it;
   what dead processes left is kept in it (and in a file beside the board) when their chunks are given back.

   Invariants:
   1. Everything has a maximum.  Files past it are summed by directory, directories past theirs in one row a run;
      processes past theirs lose their row, not their files.
   2. Nothing but plain numbers and offsets into `pool`: saved and loaded as it is; a loaded one is checked. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "board/read.h"

enum {
  PENSTOCK_PICTURE_RUNS_MAX = 256,
  PENSTOCK_PICTURE_PROCESSES_MAX = 20000,
  PENSTOCK_PICTURE_FILES_MAX = 50000,
  PENSTOCK_PICTURE_DIRECTORIES_MAX = 5000,
};
#define PENSTOCK_NO_PROCESS UINT32_MAX

struct penstock_words {
  uint32_t at, size; /* in the pool */
};

struct penstock_row_process {
  uint32_t pid, ppid, run;
  int32_t rank;
  uint32_t size, threads, execs, mpi_files, mpi_largest;
  uint32_t ended; /* known to be gone */
  uint64_t start_ticks, start_ns, start_real_ns, end_ns;
  struct penstock_words exe, argv; /* argv: words separated by NUL */
};

/* Times in `sum` are scaled to all calls; its name points nowhere. */
struct penstock_row_file {
  uint32_t process, run;
  struct penstock_words name;
  struct penstock_seen_file sum;
};

struct penstock_row_run {
  uint8_t id[16];
  struct penstock_seen_op op[PENSTOCK_OPS_MAX]; /* time scaled to all calls */
};

struct penstock_picture {
  struct penstock_row_run *runs;
  struct penstock_row_process *processes;
  struct penstock_row_file *files;
  uint8_t *pool;
  uint32_t run_count, process_count, file_count, directory_count, pool_size;
  uint32_t run_room, process_room, file_room, pool_room;
  uint64_t lost_processes, lost_files; /* that did not fit here */
  uint32_t *index; /* by hash of run, process, kind and name: file + 1 */
  uint32_t index_room;
  bool failed; /* no memory: what was added is a part */
};

/* Time of all calls, from that of the sampled ones. */
uint64_t penstock_scaled(uint64_t time_ns, uint64_t calls, uint64_t sampled);

void penstock_picture_free(struct penstock_picture *p);
bool penstock_picture_copy(struct penstock_picture *ret, const struct penstock_picture *from);

/* The number of a run; PENSTOCK_NO_PROCESS when there is no memory (too many runs: the first). */
uint32_t penstock_picture_run(struct penstock_picture *p, const uint8_t id[16]);
/* Add a process with its operations: its row, or PENSTOCK_NO_PROCESS when there are too many. */
uint32_t penstock_picture_process(struct penstock_picture *p, uint32_t run, const struct penstock_seen_process *process,
                                  bool ended);
/* Is a process with this identity in it? */
bool penstock_picture_has(const struct penstock_picture *p, const struct penstock_seen_process *process);
/* Add a file's counters to its row. */
void penstock_picture_file(struct penstock_picture *p, uint32_t run, uint32_t process,
                           const struct penstock_seen_file *file);

/* Save beside (path.new, rename) and load: 0 or -errno (-ENOENT; -EBADMSG when it is not what was saved). */
int penstock_picture_save(const struct penstock_picture *p, const char *path);
int penstock_picture_load(struct penstock_picture *ret, const char *path);
