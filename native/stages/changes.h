// SPDX-License-Identifier: Apache-2.0
/* What a call does to names and files: one answer for the stages that follow changes (catalog) or get out of their way
   (serve).  Pure. */
#pragma once
#include <fcntl.h>
#include "board/ring.h"
#include "interpose/call.h"

static inline bool penstock_may_change(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
}

static inline bool penstock_could_write(const struct penstock_call *c) {
  return c->entry && c->entry->flags & PENSTOCK_FD_WRITES;
}

/* Does it change the file itself through a descriptor that can write?  Writing apart. */
static inline bool penstock_changes_descriptor(const struct penstock_call *c) {
  switch (c->op) {
  case PENSTOCK_OP_TRUNCATE:
  case PENSTOCK_OP_ALLOCATE:
  case PENSTOCK_OP_CHMOD:
  case PENSTOCK_OP_CHOWN:
  case PENSTOCK_OP_UTIME:
  case PENSTOCK_OP_SETXATTR:
  case PENSTOCK_OP_REMOVEXATTR:
    return c->fd >= 0 && penstock_could_write(c);
  default:
    return false;
  }
}

/* PENSTOCK_EVENT_*, or 0: nothing.  What is done through a descriptor that can write is known by its open and close. */
static inline uint8_t penstock_changes(const struct penstock_call *c) {
  switch (c->op) {
  case PENSTOCK_OP_OPEN:
    return c->does & PENSTOCK_DOES_OPEN && penstock_may_change(c->open_flags) ? PENSTOCK_EVENT_OPEN : 0;
  case PENSTOCK_OP_CLOSE:
    return penstock_could_write(c) ? PENSTOCK_EVENT_CLOSE : 0;
  case PENSTOCK_OP_MMAP:
    return penstock_could_write(c) ? PENSTOCK_EVENT_MAP : 0;
  case PENSTOCK_OP_TRUNCATE:
  case PENSTOCK_OP_ALLOCATE:
  case PENSTOCK_OP_CHMOD:
  case PENSTOCK_OP_CHOWN:
  case PENSTOCK_OP_UTIME:
  case PENSTOCK_OP_SETXATTR:
  case PENSTOCK_OP_REMOVEXATTR:
    return penstock_changes_descriptor(c) ? 0 : PENSTOCK_EVENT_CHANGE;
  case PENSTOCK_OP_MKDIR:
  case PENSTOCK_OP_MKNOD:
  case PENSTOCK_OP_SYMLINK:
  case PENSTOCK_OP_LINK:
    return PENSTOCK_EVENT_NAME;
  case PENSTOCK_OP_UNLINK:
  case PENSTOCK_OP_RMDIR:
    return PENSTOCK_EVENT_GONE;
  case PENSTOCK_OP_RENAME:
    return PENSTOCK_EVENT_RENAME;
  default:
    return 0;
  }
}
