// SPDX-License-Identifier: Apache-2.0
/* The board: what a job's processes on a node and their agent share.  This header is the whole format.

   A board is a folder with two files (the catalog adds a third, `ring`):
     control  written by the agent alone, mapped read-only by programs: what holds, and how much of `usage` may be used
     usage    written by the job's processes, read by the agent with pread and never mapped

   Both are hostile input to whoever did not write them: all indices and lengths are checked against sizes that the
   reader knows by itself; what does not make sense is counted and skipped.

   Invariants:
   1. Fixed width, little-endian in practice (a board never leaves its node), no pointers; the same for 32 and 64 bits.
   2. `control` is complete before its name exists (made aside, linked into place); its magic is written last.
   3. `usage` is mapped once at control.usage_max_bytes; nothing past control.usage_bytes is touched: the agent has
      allocated that much (posix_fallocate), so no access is a SIGBUS on a full tmpfs.
   4. `usage` is a head, a table of claims (one a chunk), the words of limits.h, and chunks; a chunk is an array of
      slots and nothing else.  A process claims a chunk with one compare-and-swap in the table and alone writes what is
      in it; nothing needs a lock, and a process killed anywhere leaves a readable board, in which at most one operation
      a thread is missing or half written.
   5. A slot counts only when its `seq` is its chunk's.  Chunks of dead processes come back: the agent, which never
      writes `usage`, notes in control.freed[chunk] the seq that it has harvested; a claimer may take a chunk whose seq
      stands there.
   6. All counters only grow while the chunk has one owner (those of 32 bits stop at their end).  Counters of one thread
      are plain stores; a slot marked PENSTOCK_SLOT_SHARED is written by several threads, with atomic additions.
   7. Times on the board are CLOCK_MONOTONIC, ns; the process slot has both clocks at its start.

   Versions: a reader takes PENSTOCK_BOARD_VERSION and the one before; any other is refused, and a program then runs
   without a board. */
#pragma once
#include <stdint.h>

enum {
  PENSTOCK_BOARD_VERSION = 1,
  PENSTOCK_BOARD_OLDEST = 1,
  PENSTOCK_LINE = 64,          /* slots are named by where they begin in `usage`, counted in lines */
  PENSTOCK_SLOT_BYTES = 448,   /* 36 of them a chunk: a file costs less than 512 bytes, all told */
  PENSTOCK_CHUNK_SLOTS = 36,
  PENSTOCK_CHUNK_BYTES = PENSTOCK_SLOT_BYTES * PENSTOCK_CHUNK_SLOTS,
  PENSTOCK_USAGE_HEAD_BYTES = 4096,
  PENSTOCK_CHUNKS_MAX = 65536, /* 1 GiB */
  PENSTOCK_USAGE_LIMITS_BYTES = 480 << 10, /* of limits.h, between the claims and the chunks */
  PENSTOCK_OPS_MAX = 72,       /* calls.def may name so many operations */
  PENSTOCK_OPS_SLOTS = 4,
  PENSTOCK_PREFIXES_MAX = 64,
  PENSTOCK_PREFIX_BYTES = 240,
  PENSTOCK_SECTIONS_MAX = 8,
  PENSTOCK_TEXT_MAX = 4096,    /* of a name, or of argv; what is longer is cut */
  PENSTOCK_THREADS_A_FILE = 8, /* slots one after the other, the last of them shared */
};
#define PENSTOCK_CONTROL_MAGIC 0x314c5254434b5350u /* "PSKCTRL1" */
#define PENSTOCK_USAGE_MAGIC 0x31474153554b5350u   /* "PSKUSAG1" */

/* ---- control ---- */

/* Bits of `stages`, in the order in which a call passes them. */
enum {
  PENSTOCK_STAGE_SERVE = 1 << 0,
  PENSTOCK_STAGE_LIMIT = 1 << 1,
  PENSTOCK_STAGE_PLACE = 1 << 2,
  PENSTOCK_STAGE_FORWARD = 1 << 3,
  PENSTOCK_STAGE_RECORD = 1 << 4,
  PENSTOCK_STAGE_CATALOG = 1 << 5,
  PENSTOCK_STAGE_PASS = 1 << 6,
};

/* What a path means.  A rule whose path has no slash names one component: it holds for every path that has it anywhere
   (site-packages), before all prefixes.  Of the others, which are absolute, the longest that matches by whole components
   wins; none: `otherwise`. */
enum {
  PENSTOCK_UNDER_NOTHING = 0, /* noise: not under control */
  PENSTOCK_UNDER_RECORD = 1,  /* regular files here are recorded */
  PENSTOCK_UNDER_MOUNT = 2,   /* a file system that the other stages act on */
};

struct penstock_prefix {
  uint64_t dev;  /* st_dev of what is mounted there; 0: not known, decide by path alone */
  uint16_t size; /* of path, in bytes */
  uint8_t under; /* PENSTOCK_UNDER_* bits */
  uint8_t zero[5];
  char path[PENSTOCK_PREFIX_BYTES]; /* absolute, normalised, no slash at the end ("" is /), or one component;
                                       not NUL-terminated */
};

/* Where a later stage keeps its part of control (limits, plans): unknown kinds are ignored. */
struct penstock_section {
  uint32_t kind; /* 0: none */
  uint32_t version;
  uint64_t offset_bytes; /* from the start of control */
  uint64_t size_bytes;
};

struct penstock_control {
  uint64_t magic;
  uint32_t version;
  uint32_t head_bytes;     /* sizeof this struct as its writer knew it */
  uint64_t control_bytes;  /* size of this file */
  uint64_t usage_max_bytes;
  uint64_t usage_bytes;    /* grows; read with acquire */
  uint8_t nonce[16];       /* the same in `usage` */
  uint8_t run[16];         /* id of the run that made the board; PENSTOCK_RUN names a nested one */
  uint64_t boot_id;        /* first 8 bytes of the kernel's boot id */
  int64_t monotonic_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC of the agent when the board was made */
  uint32_t agent_pid;
  uint32_t uid;
  uint32_t stages;         /* may change while jobs run */
  uint32_t generation;     /* changes whenever prefixes change; odd while they do */
  uint32_t record_files_max;   /* file slots that one process may use; past it: sums by directory */
  uint32_t record_sample_every; /* of a thread's calls, one in about so many is timed, after the first few */
  uint32_t otherwise;      /* PENSTOCK_UNDER_* where no prefix matches */
  uint32_t prefix_count;
  struct penstock_prefix prefixes[PENSTOCK_PREFIXES_MAX];
  struct penstock_section sections[PENSTOCK_SECTIONS_MAX];
  uint32_t chunk_count;    /* that `usage` may ever have: entries of freed[] and of the table of claims */
  uint32_t zero;
  uint32_t freed[];        /* by chunk: the seq that was harvested and may be taken */
};

/* ---- usage ---- */

/* What did not fit or could not be done; each counts. */
enum penstock_lost {
  PENSTOCK_LOST_CHUNKS,      /* a process found no free chunk */
  PENSTOCK_LOST_FILES,       /* opens that were summed by directory because no file slot was left */
  PENSTOCK_LOST_DIRECTORIES, /* of those, where not even the directory fitted: in the process's UNNAMED slot */
  PENSTOCK_LOST_THREADS,     /* threads that share one table of operations */
  PENSTOCK_LOST_NAMES,       /* names cut to what fitted */
  PENSTOCK_LOST_FDS,         /* descriptors past the table */
  PENSTOCK_LOST_UNKNOWN,     /* calls on files that could not be told (sealed process) */
  PENSTOCK_LOST_SYSCALLS,    /* syscall() that named a file call */
  PENSTOCK_LOST_STOCK,       /* mkstemp and other calls that are only counted */
  PENSTOCK_LOST_MAX = 16,
};

struct penstock_usage {
  uint64_t magic;
  uint32_t version;
  uint32_t zero;
  uint8_t nonce[16];
  uint32_t hint;      /* chunk at which to begin looking for a free one; any value is right */
  uint32_t attached;  /* processes that ever attached */
  uint64_t lost[PENSTOCK_LOST_MAX]; /* atomic additions */
};

/* Who holds a chunk.  All zero: nobody ever did (and then the chunk itself is all zero). */
struct penstock_claim {
  uint64_t holder;    /* atomic: seq in the high half, grows by one with each holder; pid in the low half */
  uint32_t first;     /* the process's first chunk, where its PROCESS slot is ... */
  uint32_t first_seq; /* ... and that one's seq; written before any slot of this chunk counts */
};

enum penstock_slot_kind {
  PENSTOCK_SLOT_NONE = 0,
  PENSTOCK_SLOT_PROCESS = 1,   /* the first slot of a process's first chunk */
  PENSTOCK_SLOT_OPS = 2,       /* a thread's counters by operation: PENSTOCK_OPS_SLOTS slots */
  PENSTOCK_SLOT_FILE = 3,
  PENSTOCK_SLOT_DIRECTORY = 4, /* calls on files of this directory that have no slot of their own */
  PENSTOCK_SLOT_UNNAMED = 5,   /* a sum over all else: one a process */
  PENSTOCK_SLOT_TEXT = 6,      /* more of a name or of argv */
};
enum { PENSTOCK_SLOT_SHARED = 1 /* flag: written by several threads */ };

/* First in every slot.  `seq` is written last (release), when the rest of the slot stands. */
struct penstock_slot {
  uint32_t seq; /* the chunk's while this slot counts */
  uint8_t kind;
  uint8_t flags;
  uint16_t slots; /* how many slots this entry takes (1 but for OPS) */
};

/* Text longer than its place goes on in TEXT slots of the same process, each naming the next. */
struct penstock_text {
  struct penstock_slot slot;
  uint32_t next; /* number of a slot; 0: none */
  uint32_t size; /* here */
  char text[PENSTOCK_SLOT_BYTES - 16];
};

/* One program in one process: after exec a new one with the same pid and start_ticks follows. */
struct penstock_process {
  struct penstock_slot slot;
  uint32_t pid;
  uint32_t ppid;
  uint64_t start_ticks;   /* field 22 of /proc/PID/stat: with the pid it names a process for ever; 0: not known */
  uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0: not known */
  uint64_t start_ns;      /* when we attached */
  uint64_t start_real_ns; /* the same by CLOCK_REALTIME */
  uint64_t end_ns;        /* 0: still there, or ended without our seeing it */
  uint8_t run[16];
  int32_t rank;           /* -1: none known */
  uint32_t size;
  uint32_t threads;       /* that ever made a recorded call */
  uint32_t mpi_files;     /* MPI_File_open seen, and the largest communicator */
  uint32_t mpi_largest;
  uint32_t files_max;     /* what control.record_files_max was */
  uint64_t anonymous_read_bytes; /* on descriptors that nobody could name */
  uint64_t anonymous_written_bytes;
  uint32_t exe_next;      /* TEXT slot with the rest of exe; 0 */
  uint32_t argv_next;     /* the same of argv */
  uint16_t exe_size;      /* whole size; what is here is its beginning */
  uint16_t argv_size;     /* whole size, words separated by NUL */
  char exe[PENSTOCK_SLOT_BYTES - 340];
  char argv[216];
};

struct penstock_op_count {
  uint64_t calls;
  uint64_t time_ns; /* of the sampled ones alone */
  uint32_t errors;
  uint32_t sampled;
};

struct penstock_ops {
  struct penstock_slot slot;
  uint32_t thread; /* 1, 2, 3 ... in order of their first call; 0: SHARED */
  uint32_t zero;
  struct penstock_op_count op[PENSTOCK_OPS_MAX]; /* by number in calls.def */
  uint64_t fresh_ns; /* of metadata calls that were timed for being the first in a second: in no sum of op[] ... */
  uint64_t fresh;    /* ... and how many */
  uint64_t spare[4];
};

/* One direction of a file. */
struct penstock_way {
  uint64_t calls;
  uint64_t bytes;
  uint64_t sequential;  /* began at or after the end of the one before */
  uint64_t consecutive; /* began exactly there */
  uint64_t end;         /* where the last one ended; UINT64_MAX: none yet */
  uint64_t time_ns;     /* of the sampled calls alone */
  uint32_t sampled;
  uint32_t sizes[10];   /* by class of request: record.SIZE_BOUNDS */
  uint32_t zero;
};
enum { PENSTOCK_READING = 0, PENSTOCK_WRITING = 1 };

/* A request size and how often it came: the four commonest, by "space saving".  A newcomer takes the place and the count
   of the rarest; `over` is what it inherited, so that count - over to count holds the truth. */
struct penstock_common {
  uint32_t size; /* 4 GiB - 1 and more: 4 GiB - 1 */
  uint32_t count;
  uint32_t over;
};

struct penstock_file {
  struct penstock_slot slot;
  uint32_t thread; /* that writes it; 0: SHARED */
  uint32_t next;   /* atomic: slot of another thread's counters on the same file; 0 */
  uint64_t hash;   /* of the whole name: penstock_hash */
  uint32_t opens;
  uint32_t metas;  /* metadata calls, opens not among them */
  uint32_t switches; /* between reading and writing */
  uint32_t meta_sampled;
  uint64_t meta_ns;
  uint64_t first_ns, last_ns; /* within the last sixteen calls */
  uint64_t highest; /* one past the last byte read or written */
  struct penstock_way way[2]; /* by PENSTOCK_READING, PENSTOCK_WRITING */
  struct penstock_common common[4];
  uint32_t files;    /* of DIRECTORY and UNNAMED: opens of files without a slot of their own */
  uint32_t maps;     /* mmap of it */
  uint32_t last_way; /* 1 + the way of the last read or write; 0: none yet */
  uint32_t comm_size; /* MPI_File_open: of the communicator; 0: not opened so */
  uint32_t name_next; /* TEXT slot with the rest of the name; 0 */
  uint16_t name_size; /* whole size */
  uint16_t class;     /* of sizes[]: where common[0].size counts */
  char name[PENSTOCK_SLOT_BYTES - 336];
};

_Static_assert(sizeof(struct penstock_prefix) == 256, "a prefix is 256 bytes");
_Static_assert(sizeof(struct penstock_text) == PENSTOCK_SLOT_BYTES, "a slot");
_Static_assert(sizeof(struct penstock_process) == PENSTOCK_SLOT_BYTES, "a slot");
_Static_assert(sizeof(struct penstock_ops) == PENSTOCK_OPS_SLOTS * PENSTOCK_SLOT_BYTES, "whole slots");
_Static_assert(sizeof(struct penstock_file) == PENSTOCK_SLOT_BYTES, "a slot");
_Static_assert(sizeof(struct penstock_usage) <= PENSTOCK_USAGE_HEAD_BYTES, "the head");
_Static_assert(PENSTOCK_SLOT_BYTES % PENSTOCK_LINE == 0, "slots begin on lines");

/* ---- where things are: all arguments are trusted or checked by the caller ---- */

static inline uint64_t penstock_chunk_offset(uint64_t chunk_count, uint64_t chunk) {
  uint64_t table = PENSTOCK_USAGE_HEAD_BYTES + chunk_count * sizeof(struct penstock_claim);
  return (table + 4095) / 4096 * 4096 + PENSTOCK_USAGE_LIMITS_BYTES + chunk * PENSTOCK_CHUNK_BYTES;
}
static inline uint64_t penstock_usage_limits_offset(uint64_t chunk_count) {
  return penstock_chunk_offset(chunk_count, 0) - PENSTOCK_USAGE_LIMITS_BYTES;
}

/* How many chunks lie wholly in so many bytes of `usage`. */
static inline uint32_t penstock_chunks_in(uint64_t chunk_count, uint64_t usage_bytes) {
  uint64_t first = penstock_chunk_offset(chunk_count, 0);
  uint64_t chunks = usage_bytes < first ? 0 : (usage_bytes - first) / PENSTOCK_CHUNK_BYTES;
  return (uint32_t)(chunks < chunk_count ? chunks : chunk_count);
}

/* Of a name: equal names have equal hashes, and other names have others for all that matters here. */
static inline uint64_t penstock_hash(const char *text, uint64_t size) {
  uint64_t hash = size * 0x9e3779b97f4a7c15u, word = 0;
  if (size >= 8) {
    const char *last = text + size - 8;
    for (; text < last; text += 8) {
      __builtin_memcpy(&word, text, 8);
      hash = (hash ^ word) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    __builtin_memcpy(&word, last, 8);
  } else
    for (uint64_t i = 0; i < size; i++)
      word |= (uint64_t)(uint8_t)text[i] << 8 * i;
  hash = (hash ^ word) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 32) * 0xc4ceb9fe1a85ec53u; /* the last letters reach the low bits too */
  return hash ^ hash >> 29;
}

/* The chunk in which slot number `line` begins; chunk_count when there is no slot of that number. */
static inline uint32_t penstock_chunk_of(uint64_t chunk_count, uint32_t line) {
  uint64_t first = penstock_chunk_offset(chunk_count, 0), at = (uint64_t)line * PENSTOCK_LINE;
  if (at < first || (at - first) % PENSTOCK_CHUNK_BYTES % PENSTOCK_SLOT_BYTES ||
      (at - first) / PENSTOCK_CHUNK_BYTES >= chunk_count)
    return (uint32_t)chunk_count;
  return (uint32_t)((at - first) / PENSTOCK_CHUNK_BYTES);
}
