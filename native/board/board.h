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
   4. `usage` is an array of chunks after its head; a chunk is an array of slots.  A process claims chunks with one
      compare-and-swap each and alone writes what is in them; nothing in it needs a lock, and a process killed anywhere
      leaves a readable board, in which at most one operation a thread is missing or half written.
   5. A slot counts only when its `seq` is its chunk's.  Chunks of dead processes come back: the agent, which never
      writes `usage`, notes in control.freed[chunk] the seq that it has harvested; a claimer may take a chunk whose seq
      stands there.
   6. All counters only grow while the chunk has one owner.  Counters of one thread are plain stores; a slot marked
      PENSTOCK_SLOT_SHARED is written by several threads, with atomic additions.
   7. Times on the board are CLOCK_MONOTONIC, ns; the process slot has both clocks at its start.

   Versions: a reader takes PENSTOCK_BOARD_VERSION and the one before; any other is refused, and a program then runs
   without a board. */
#pragma once
#include <stdint.h>

enum {
  PENSTOCK_BOARD_VERSION = 1,
  PENSTOCK_BOARD_OLDEST = 1,
  PENSTOCK_SLOT_BYTES = 512,
  PENSTOCK_CHUNK_SLOTS = 32, /* slot 0 is the chunk's head */
  PENSTOCK_CHUNK_BYTES = PENSTOCK_SLOT_BYTES * PENSTOCK_CHUNK_SLOTS,
  PENSTOCK_USAGE_HEAD_BYTES = 4096,
  PENSTOCK_CHUNKS_MAX = 65536, /* 1 GiB */
  PENSTOCK_OPS_MAX = 62,       /* calls.def may name so many operations */
  PENSTOCK_PREFIXES_MAX = 64,
  PENSTOCK_PREFIX_BYTES = 240,
  PENSTOCK_SECTIONS_MAX = 8,
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

/* What a path prefix means.  The longest prefix that matches by whole components wins; none: `otherwise`. */
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
  char path[PENSTOCK_PREFIX_BYTES]; /* absolute, normalised, no slash at the end ("" is /); not NUL-terminated */
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
  uint32_t record_sample_every; /* of calls on one file, this many to one are timed, after the first few */
  uint32_t otherwise;      /* PENSTOCK_UNDER_* where no prefix matches */
  uint32_t prefix_count;
  struct penstock_prefix prefixes[PENSTOCK_PREFIXES_MAX];
  struct penstock_section sections[PENSTOCK_SECTIONS_MAX];
  uint32_t chunk_count;    /* entries of freed[] in use: (usage_max_bytes - head) / chunk */
  uint32_t zero;
  uint32_t freed[];        /* by chunk: the seq that was harvested and may be taken */
};

/* ---- usage ---- */

/* What did not fit or could not be done; each counts. */
enum penstock_lost {
  PENSTOCK_LOST_CHUNKS,      /* a process found no free chunk */
  PENSTOCK_LOST_FILES,       /* files summed by directory */
  PENSTOCK_LOST_DIRECTORIES, /* files of which not even the directory fitted: in the process's UNNAMED slot */
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

enum penstock_slot_kind {
  PENSTOCK_SLOT_NONE = 0,
  PENSTOCK_SLOT_CHUNK = 1,     /* slot 0 */
  PENSTOCK_SLOT_PROCESS = 2,   /* the first slot after the head of a process's first chunk */
  PENSTOCK_SLOT_OPS = 3,       /* a thread's counters by operation: 3 slots */
  PENSTOCK_SLOT_FILE = 4,
  PENSTOCK_SLOT_DIRECTORY = 5, /* a sum over files of one directory: a file slot with the directory's name */
  PENSTOCK_SLOT_UNNAMED = 6,   /* a sum over all else: one a process */
  PENSTOCK_SLOT_TEXT = 7,      /* more of a name or of argv */
};
enum { PENSTOCK_SLOT_SHARED = 1 /* flag: written by several threads */ };
enum { PENSTOCK_OPS_SLOTS = 3 };

/* First in every slot.  Written last (release), when the rest of the slot stands. */
struct penstock_slot {
  uint32_t seq; /* the chunk's while this slot counts */
  uint8_t kind;
  uint8_t flags;
  uint16_t slots; /* how many slots this entry takes (1 but for OPS) */
};

struct penstock_chunk {
  struct penstock_slot slot; /* kind CHUNK */
  uint64_t claim;            /* atomic: seq in the high half (odd while held), pid in the low half */
  uint32_t first;            /* the process's first chunk */
  uint32_t used;             /* atomic: slots handed out, the head among them; more than there are: full */
};

/* Text longer than its place goes on in TEXT slots, each naming the next by number (slot of the whole usage file:
   chunk * PENSTOCK_CHUNK_SLOTS + slot; 0: none). */
struct penstock_text {
  struct penstock_slot slot;
  uint32_t next;
  uint32_t size;
  char text[PENSTOCK_SLOT_BYTES - 16];
};

struct penstock_process {
  struct penstock_slot slot;
  uint32_t pid;
  uint32_t ppid;
  uint64_t start_ticks;   /* field 22 of /proc/PID/stat: with the pid it names a process for ever */
  uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0: not known */
  uint64_t start_ns;      /* when we attached */
  uint64_t start_real_ns; /* the same by CLOCK_REALTIME */
  uint64_t end_ns;        /* 0: still there, or ended without our seeing it */
  uint8_t run[16];
  int32_t rank;           /* -1: none known */
  uint32_t size;
  uint32_t threads;       /* that ever made a recorded call */
  uint32_t execs;         /* how often this process became another program; the last is named here */
  uint64_t anonymous_read_bytes; /* on descriptors that nobody could name */
  uint64_t anonymous_written_bytes;
  uint32_t mpi_files;     /* MPI_File_open seen, and the largest communicator */
  uint32_t mpi_largest;
  uint32_t exe_next;      /* TEXT slot with the rest of exe; 0 */
  uint32_t argv_next;     /* the same of argv */
  uint16_t exe_size;      /* whole size; what is here is its beginning */
  uint16_t argv_here;
  uint32_t argv_size;     /* whole size, words separated by NUL */
  char exe[128];
  char argv[PENSTOCK_SLOT_BYTES - 256];
};

struct penstock_op_count {
  uint64_t calls;
  uint64_t time_ns; /* of the sampled ones alone */
  uint32_t errors;
  uint32_t sampled;
};

struct penstock_ops {
  struct penstock_slot slot;
  uint32_t tid;
  uint32_t zero[3];
  struct penstock_op_count op[PENSTOCK_OPS_MAX]; /* by number in calls.def */
  uint64_t spare[3];
};

struct penstock_file {
  struct penstock_slot slot;
  uint32_t tid;  /* the thread that writes it (0: SHARED) */
  uint32_t next; /* slot of another thread's counters on the same file; 0 */
  uint64_t dev;
  uint64_t ino;
  uint64_t opens, reads, writes, metas;
  uint64_t bytes_read, bytes_written;
  uint64_t reads_sequential, writes_sequential, reads_consecutive, writes_consecutive, switches;
  uint64_t first_ns, last_ns;
  uint64_t read_ns, write_ns, meta_ns; /* of the sampled calls alone */
  uint32_t read_sampled, write_sampled, meta_sampled;
  uint32_t files;    /* that a sum stands for */
  uint64_t highest;  /* one past the last byte read or written */
  uint64_t read_end, write_end; /* where the last read and the last write ended */
  uint64_t common_size[4];
  uint32_t common_count[4];
  uint32_t read_sizes[10], write_sizes[10]; /* classes of record.SIZE_BOUNDS */
  uint32_t last_was_write;
  uint32_t comm_size; /* MPI_File_open: of the communicator; 0: not opened so */
  uint32_t name_next;
  uint16_t name_size; /* whole size */
  uint16_t zero;
  char name[PENSTOCK_SLOT_BYTES - 344];
};

_Static_assert(sizeof(struct penstock_prefix) == 256, "a prefix is 256 bytes");
_Static_assert(sizeof(struct penstock_text) == PENSTOCK_SLOT_BYTES, "a slot");
_Static_assert(sizeof(struct penstock_process) == PENSTOCK_SLOT_BYTES, "a slot");
_Static_assert(sizeof(struct penstock_ops) <= PENSTOCK_OPS_SLOTS * PENSTOCK_SLOT_BYTES, "three slots");
_Static_assert(sizeof(struct penstock_file) == PENSTOCK_SLOT_BYTES, "a slot");
