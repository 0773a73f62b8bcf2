// SPDX-License-Identifier: Apache-2.0
/* What the parts of the interposer know of the process: whether a board is attached, which threads are inside a call,
   libc's functions.  Stages see call.h alone. */
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <pty.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <utime.h>
#include <utmp.h>
#include <wchar.h>
#include "interpose/call.h"
#include "interpose/names.h"
#include "calls_originals.h"

#define PENSTOCK_LIKELY(claim) __builtin_expect(!!(claim), 1)
#define PENSTOCK_UNLIKELY(claim) __builtin_expect(!!(claim), 0)

/* libc's functions, or those of another library between us and libc; all set by the first call or the constructor. */
extern PENSTOCK_OURS struct penstock_originals penstock_real;
void penstock_resolve(void);
long penstock_missing(void); /* what stands there for an optional one that is not to be found */

/* All stages that this library has: bits of control.stages; set when a board is attached. */
extern PENSTOCK_OURS uint32_t penstock_stages_built;

/* A thread's own: 24 bytes of the 64 that a preloaded library may take (the others are record's). */
struct penstock_thread {
  uintptr_t inside;       /* where the struct call lies that this thread is in; 0: none */
  uint32_t vforks;        /* > 0: this is a vfork child, which lives in its parent's memory (vfork.S) */
  uint32_t walk;          /* 1 + number of the walk that this thread is in (own_walk.c); 0: none */
  uintptr_t came_from; /* where vfork returns to (vfork.S) */
};
extern PENSTOCK_OURS __thread struct penstock_thread penstock_thread __attribute__((tls_model("initial-exec")));

struct penstock_state {
  _Atomic(uint32_t) *alive;   /* in a page that is zero after fork: 0 a new process, 1 set up, 2 being set up */
  atomic_bool began;          /* originals are found */
  atomic_bool sealed;         /* seccomp: no system calls of our own any more */
  atomic_bool elsewhere;      /* names mean something else here, or who asks is not who it seems */
  atomic_bool no_tsc;         /* strict seccomp, PR_SET_TSC: reading the processor's counter kills; the coarse clock does not */
  struct penstock_rules rules; /* made from control */
  atomic_uint opened;
};
extern PENSTOCK_OURS struct penstock_state penstock_process;

/* Finds the originals and attaches the board, once; whoever comes first. */
void penstock_begin(void);
static inline void penstock_begun(void) {
  if (PENSTOCK_UNLIKELY(!atomic_load_explicit(&penstock_process.began, memory_order_acquire)))
    penstock_begin();
}

/* The rare cases of what every wrapper begins with (wrap.c). */
bool penstock_begin_late(void);
bool penstock_new_process(void);
bool penstock_is_nested(uintptr_t frame);

void penstock_lost(enum penstock_lost what);

/* fds.c: what is known of descriptors. */
enum { PENSTOCK_FDS = 1 << 16 };
extern PENSTOCK_OURS struct penstock_fd penstock_fds[PENSTOCK_FDS];
/* Looks at a descriptor that nothing is known of; gives its entry, or NULL (past the table, not open). */
struct penstock_fd *penstock_fd_look(int fd);
/* Fills in the entry of a descriptor that an open gave. `path`: absolute and normal, or NULL. */
void penstock_fd_opened(struct penstock_call *call, int fd, struct penstock_found found);
void penstock_fd_forget(int fd);
void penstock_fd_forget_range(unsigned from, unsigned to);
void penstock_fd_copy(int from, int to);

/* cwd.c */
void penstock_cwd_changes(void);
ssize_t penstock_cwd(char to[PENSTOCK_NAME_MAX]);
void penstock_cwd_child(void);

/* Names in the frame of whoever runs the stages. */
struct penstock_names {
  char path[PENSTOCK_NAME_MAX];
  char second[PENSTOCK_NAME_MAX];
};

/* readable.c: whether a word can be read; the kernel is asked where it is not known. */
bool penstock_readable_word(const void *word);

/* environment.c: what a new program's environment must have, so that we are in it too. */
void penstock_environment_keep(char **environment);
size_t penstock_environment_room(char *const *environment); /* 0: it is good as it is, or must be left alone */
char **penstock_environment_fill(void *room, size_t bytes, char *const *environment);
