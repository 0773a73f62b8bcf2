// SPDX-License-Identifier: Apache-2.0
/* A call on its way through the stages: the contract between interpose/ (which catches calls and knows which file is
   meant) and stages/ (which do something about it).

   Order: serve, limit, place, forward, the real call, record, catalog.  A stage is one file in stages/ and one row of
   interpose/stages.def.

   Invariants (of everything reached from a wrapper):
   1. No allocation, no stdio, no lock, no unbounded loop, nothing that is not async-signal-safe; errno is the
      program's: the wrappers save and restore it around the stages.
   2. A call on a descriptor that is not under control costs a test and a jump.
   3. A nested call (from a signal handler that interrupts a call under control, from another preloaded library calling a
      wrapped symbol) passes straight through: the thread's `inside` mark stands from before() to after(), the real call
      among it.
   4. In a vfork child nothing is kept: wrappers there only call the real function.
   5. After a fork the child's first call that would be kept runs every stage's `child` first; then it is a process of
      its own, whose descriptors are still known.
   6. A path that the program gives is read only when it is known to be readable: a bad pointer stays EFAULT, and a wild
      one that some system call refuses for another reason first is not touched.  After the real call its result tells
      (it succeeded, or failed with an error that comes after reading the path); before it, only asking the kernel would,
      which costs.  So a call named by path reaches before() without a path and with `under` 0, unless an active stage
      says so by `paths`. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "board/place.h"

/* Of what other files of the library define: known to lie in it, so that no table of addresses is asked. */
#define PENSTOCK_OURS __attribute__((visibility("hidden")))

/* enum penstock_op { PENSTOCK_OP_OPEN, ... PENSTOCK_OPS } and enum penstock_class { PENSTOCK_CLASS_METADATA, ..DATA,
   ..DIRECTORY, ..XATTR, ..LOCK }: made from calls.def. */
#if __has_include("calls_enum.h")
#include "calls_enum.h"
#endif

/* What is known of a descriptor.  All zero: nothing yet.  The interposer fills in `under` and `flags`; `quick`,
   `record` and `pos` are the record stage's, `told` is the catalog's. */
struct penstock_fd {
  uint8_t known;    /* 0: not looked at yet */
  uint8_t under;    /* PENSTOCK_UNDER_* bits; 0: not under control */
  uint16_t epoch;   /* of the process in which `record` was set; another: look it up anew */
  uint16_t flags;   /* PENSTOCK_FD_* */
  uint16_t quick;   /* record: see stages/record.h */
  uint32_t record;  /* number of the file's slot on the board; 0: none yet */
  uint32_t opened;  /* grows with each open: tells a recycled number from the same one */
  uint64_t pos;     /* where the next read or write is believed to be */
  uint32_t told;    /* catalog: epoch + 1 of the process that told its helper of this descriptor */
};
enum {
  PENSTOCK_FD_APPEND = 1,
  PENSTOCK_FD_DIRECTORY = 2,
  PENSTOCK_FD_INHERITED = 4, /* came from exec, SCM_RIGHTS or another unseen way: named by /proc/self/fd */
  PENSTOCK_FD_DEEP = 8,      /* a folder below which other rules hold than for itself */
  PENSTOCK_FD_NOT_ASYNC = 16, /* O_ASYNC was set by us, and cannot be taken back where nobody would be signalled */
  PENSTOCK_FD_WRITES = 32,    /* open for writing, or so that it was created or cut */
};

/* What a call does to its file, besides being metadata; from calls.def.  Record goes by this, not by `op`. */
enum {
  PENSTOCK_DOES_READ = 1,  /* the result's bytes came from `fd` ... */
  PENSTOCK_DOES_WRITE = 2, /* ... or went to it; both (sendfile, copy_file_range, splice): from `fd` to `fd2` */
  PENSTOCK_DOES_OPEN = 4,
  PENSTOCK_DOES_CLOSE = 8,
  PENSTOCK_DOES_SEEK = 16, /* the result is the new position */
  PENSTOCK_DOES_MAP = 32,
};

/* What a call that only asks is to be answered with, and where: for a stage that answers it (serve). */
enum penstock_wanted {
  PENSTOCK_WANTS_STAT,     /* into: struct stat */
  PENSTOCK_WANTS_STATX,    /* into: struct statx; mask */
  PENSTOCK_WANTS_ACCESS,   /* mask: the mode asked for */
  PENSTOCK_WANTS_READLINK, /* into: room bytes */
  PENSTOCK_WANTS_XATTR,    /* into: room bytes; attribute */
};
struct penstock_wants {
  enum penstock_wanted what;
  int flags; /* AT_* */
  void *into;
  size_t room;
  unsigned mask;
  const char *attribute; /* as given */
};

/* What `place` will do about a file when it is created: between its before() and its after(). */
struct penstock_placing {
  uint64_t folder; /* its default */
  uint32_t entry;  /* index in the plan */
  uint32_t generation; /* of the plan: it may be another one by then */
  uint8_t doing, spot;
  bool delayed, async; /* bits of O_LOV_DELAY_CREATE were added; O_ASYNC was there before */
  char pool[16];       /* that the folder's default names */
};

struct penstock_call {
  uint8_t op;      /* enum penstock_op */
  uint8_t does;    /* PENSTOCK_DOES_* bits */
  uint8_t class;   /* enum penstock_class */
  uint8_t under;   /* of the file that is meant */
  bool timed;      /* record asks: take the clock around the real call */
  bool creates;    /* open that may create: O_CREAT, creat, fopen "w" */
  bool fixed;      /* of these: libc opens it by itself, so open_flags and mode change nothing */
  bool stream;     /* on a FILE* */
  bool positioned; /* pread and the like: `offset` is given and `pos` stays */
  bool failed;     /* after: the result means an error */
  bool told;       /* catalog: the helper knows of it */
  bool fresh;      /* record: timed only because nothing was for a second */
  int fd;          /* that the call is on, or (open, after) that it made; -1 */
  int open_flags;  /* of opens; a stage may add to them in before() */
  mode_t mode;
  int error;       /* after: errno of the real call if it failed */
  struct penstock_fd *entry; /* of fd, or NULL */
  int fd2;                   /* where bytes of sendfile and the like go; else -1 */
  bool positioned2;          /* offset2 is given */
  int64_t offset2;
  struct penstock_fd *entry2; /* of fd2, or NULL */
  const char *path;    /* absolute and lexically normalised, or NULL: not given, not readable (see 6), or cheap only for
                          who asks: penstock_path() */
  const char *path2;   /* second path of rename and link (the new name), or NULL */
  uint16_t path_size, path2_size; /* without NUL */
  uint64_t asked;      /* bytes asked for */
  int64_t offset;      /* where, if positioned */
  int64_t result;      /* after: what the real call gave (bytes, descriptor, 0, -1) */
  uint64_t dev;        /* after an open of something under control: from fstat; 0: not asked (a file that is new) */
  uint64_t size;       /* the file's size at that open; 0: not asked */
  bool was_there;      /* after an open: its size or times say that it is older than the call */
  uint64_t start_ns;   /* when timed: right before the real call */
  uint64_t end_ns;     /* when timed: right after it */

  void *dir;           /* the DIR that the call is on or (after) has made, or NULL */
  bool begins;         /* after: nothing of it was read yet */
  const char *attribute; /* of setxattr and removexattr, as given: readable once the call succeeded */
  const struct penstock_wants *wants; /* of calls that a stage may answer; else NULL */
  uint32_t owed;         /* bits of stages whose after() comes even if the file is not under control after all */
  int taken_back;        /* set by an after() of an open that closed the descriptor again: the program gets this error */
  struct penstock_placing placing;
  uint64_t limited;    /* limit's own: buckets that it charged ... */
  uint64_t drawn;      /* ... and how many bytes where bytes count */
  uint64_t limited_ns; /* when; 0: it did not look at the clock */

  /* The interposer's own: what the program gave (not to be read by stages), and where names are built. */
  uint32_t stages;     /* that were active when the call began */
  int dirfd, dirfd2;
  const char *given, *given2;
  struct penstock_names *names;
  const char *found_in; /* what before() found for this text, normal as it stands; NULL: nothing */
  uint8_t found_under;
  int8_t found_rule;
};

enum penstock_answer { PENSTOCK_GO, PENSTOCK_ANSWERED /* result and error are set; the real call is left out */ };

struct penstock_stage {
  const char *name;
  uint32_t bit;     /* PENSTOCK_STAGE_* */
  uint8_t under;    /* PENSTOCK_UNDER_* of the calls it wants */
  uint8_t paths;    /* PENSTOCK_PATHS_*: the calls named by a path of which before() needs path and `under`; for others it
                       must leave errno alone, and cannot answer */
  void (*start)(void);                                   /* once a process, when a board is attached; may be NULL */
  enum penstock_answer (*before)(struct penstock_call *); /* may be NULL */
  void (*after)(struct penstock_call *);                 /* may be NULL */
  void (*child)(void);                                   /* in a new process after fork; may be NULL */
  /* A write failed with EBADF though its descriptor is open (call: NULL where only that is known): true when the stage
     has mended that, and the real call is to be made once more; may be NULL. */
  bool (*again)(const struct penstock_call *call, int fd);
  /* Something that neither before() nor after() is told of (a call nested in another, in a vfork child, by number): this
     descriptor was opened, or (-1) something anywhere was changed, or mounted; may be NULL. */
  void (*unseen)(int fd);
};
/* Among a stage's `under`: the calls named by a path of which nothing is under control are wanted, too (before() alone). */
enum { PENSTOCK_UNDER_ANY = 0x80 };
enum { PENSTOCK_PATHS_LATER = 0, PENSTOCK_PATHS_CREATES = 1 /* of opens that may create */, PENSTOCK_PATHS_ALL = 3 };

/* One for each row of stages.def. */
#define STAGE(name) extern const struct penstock_stage penstock_##name##_stage;
#include "interpose/stages.def"
#undef STAGE

/* What the interposer gives to stages (interpose/process.c). */
struct penstock_here {
  const struct penstock_control *control; /* read-only mapping; NULL: no board, nothing is active */
  uint8_t *usage;                         /* mapping of usage_max_bytes */
  uint64_t control_bytes, usage_max_bytes;
  uint32_t chunk_count; /* control's, as checked at attach (board/check.h) */
  uint32_t ring_slots;  /* as checked at attach */
  struct penstock_ring *ring; /* NULL: the board has none */
  uint32_t pid;
  uint16_t epoch; /* +1 in each fork child */
  uint8_t run[16];
};
extern PENSTOCK_OURS struct penstock_here penstock_here;

/* The name of the file that the call is on, also where only a descriptor tells (then by /proc/self/fd: a system call):
   call->path, with path_size set.  NULL when nobody can tell.  Holds while the stage's function runs. */
const char *penstock_path(struct penstock_call *call);
const char *penstock_path2(struct penstock_call *call); /* the same of the second, also where its folder's number says enough */

bool penstock_readable(const char *text); /* (at most PATH_MAX of it), by asking the kernel */
bool penstock_elsewhere(void);       /* chroot, unshare, setns, setfsuid: names or rights are not what they were */
void penstock_is_elsewhere(void);    /* from now on it is so */
void penstock_log(const char *text, const char *more); /* one line to the file that PENSTOCK_LOG names; in start() alone */
bool penstock_sealed(void);          /* seccomp: no system calls of our own any more */
bool penstock_on_signal_stack(void); /* a small one, perhaps: nothing that takes room */
uint64_t penstock_now_ns(void);             /* CLOCK_MONOTONIC, without a system call where the vDSO has it */
struct penstock_fd *penstock_fd_at(int fd); /* NULL past the table */
bool penstock_is_sealed(void);              /* by seccomp: no system calls of our own any more */
void penstock_lost(enum penstock_lost what); /* counts on the board what could not be done */
int penstock_fd_path(int fd, char *buffer, size_t room); /* by /proc/self/fd: length, or -1 (also when sealed by seccomp) */
