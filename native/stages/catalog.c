// SPDX-License-Identifier: Apache-2.0
/* The stage `catalog`: tells the catalog's helper, through the ring, of names and files that a call may change, before the
   call and after it.  The helper looks at the files themselves, off the program's path; nothing here asks a server.

   Invariants:
   1. BEFORE is on the ring ahead of the call: a process killed in between leaves what the helper has to look at.
   2. Opens for reading and reads tell nothing.  A descriptor that can write is told of when a process gets it or first
      writes to it, and again when that process closes it; who ends without closing leaves it open for the helper.
   3. A file is told by its name, and a closed one by its device and inode too: descriptors' numbers mean nothing to
      others.  Of a closed file that has no name any more only the name that it had is told.
   4. A change whose name is too long to be told puts the whole tree in doubt. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "board/ring.h"
#include "interpose/call.h"
#include "interpose/raw.h"
#include "stages/changes.h"

/* Did this process (not one that it was forked from) tell of the descriptor? */
static bool is_told(const struct penstock_fd *entry) { return entry->told == penstock_here.epoch + 1u; }

/* What the call does to names and files; 0: nothing that the helper has to know. */
static uint8_t what_of(const struct penstock_call *c) {
  uint8_t what = penstock_changes(c);
  return what == PENSTOCK_EVENT_CLOSE && !is_told(c->entry) ? 0 : what;
}

static struct penstock_event event_of(uint8_t what, uint8_t flags) {
  return (struct penstock_event){
    .thread = (uintptr_t)__builtin_thread_pointer(), .pid = penstock_here.pid, .what = what, .flags = flags};
}

static void put(struct penstock_call *c, uint8_t what, uint8_t flags, bool named, uint64_t dev, uint64_t ino) {
  struct penstock_event event = event_of(what, flags);
  event.dev = dev;
  event.ino = ino;
  if (named && c->path && c->path_size <= PENSTOCK_EVENT_PATH_MAX)
    event.path_size = c->path_size;
  if (named && penstock_path2(c) && c->path2_size <= PENSTOCK_EVENT_PATH_MAX)
    event.path2_size = c->path2_size;
  c->told = true;
  penstock_ring_put(penstock_here.ring, penstock_here.ring_slots, &event, c->path, c->path2);
}

/* Which file a descriptor that is about to be closed is of; nothing for one without a name. */
static void identify(const struct penstock_call *c, uint64_t *dev, uint64_t *ino) {
  struct stat st;
  if (PENSTOCK_RAW(fstat, c->fd, &st, 0, 0) != 0 || st.st_nlink == 0)
    return;
  *dev = st.st_dev;
  *ino = st.st_ino;
}

/* The file of a descriptor that can write and whose open nobody told. */
static void tell_open(int fd) {
  char path[PENSTOCK_EVENT_PATH_MAX];
  int size = penstock_fd_path(fd, path, sizeof path);
  struct penstock_event event = event_of(PENSTOCK_EVENT_OPEN, PENSTOCK_EVENT_DONE);
  if (size <= 0)
    return;
  event.path_size = (uint16_t)size;
  penstock_ring_put(penstock_here.ring, penstock_here.ring_slots, &event, path, NULL);
}

/* A descriptor that this process has from elsewhere (inherited, received, copied) and can write to. */
static void tell_of_descriptor(int fd, struct penstock_fd *entry) {
  entry->told = penstock_here.epoch + 1u;
  tell_open(fd);
}

static void first_write(const struct penstock_call *c) {
  struct penstock_fd *entry = c->fd2 >= 0 ? c->entry2 : c->entry;
  if (entry && entry->flags & PENSTOCK_FD_WRITES && !is_told(entry))
    tell_of_descriptor(c->fd2 >= 0 ? c->fd2 : c->fd, entry);
}

static enum penstock_answer before(struct penstock_call *c) {
  uint64_t dev = 0, ino = 0;
  if (penstock_here.ring && (c->does & PENSTOCK_DOES_WRITE || penstock_changes_descriptor(c)))
    first_write(c);
  uint8_t what = penstock_here.ring ? what_of(c) : 0;
  if (!what || !penstock_path(c))
    return PENSTOCK_GO;
  if (what == PENSTOCK_EVENT_CLOSE)
    identify(c, &dev, &ino);
  put(c, what, 0, true, dev, ino);
  return PENSTOCK_GO;
}

/* Is a name that the call made or changed longer than can be told?  What has a descriptor was told of when it was opened. */
static bool is_too_long(struct penstock_call *c, uint8_t what) {
  if (what == PENSTOCK_EVENT_CLOSE || what == PENSTOCK_EVENT_MAP)
    return false;
  return (c->given && !penstock_path(c)) || (c->given2 && !penstock_path2(c));
}

/* The name is told again where libc made it up (mkstemp), and where the call went by another than was seen before. */
static void after(struct penstock_call *c) {
  uint8_t what = penstock_here.ring ? what_of(c) : 0;
  if (what == PENSTOCK_EVENT_OPEN && !c->failed && c->entry)
    c->entry->told = penstock_here.epoch + 1u;
  if (c->op == PENSTOCK_OP_DUP && !c->failed && penstock_could_write(c) && penstock_here.ring) {
    struct penstock_fd *copy = penstock_fd_at((int)c->result);
    if (copy && c->result != c->fd)
      tell_of_descriptor((int)c->result, copy);
  }
  if (!what || (!c->told && c->failed))
    return;
  if (!c->failed && is_too_long(c, what))
    penstock_ring_doubt(penstock_here.ring);
  bool named = !c->told || (c->does & PENSTOCK_DOES_OPEN && c->creates) || c->op == PENSTOCK_OP_MKDIR;
  if (named && !c->failed && !penstock_path(c))
    named = false;
  put(c, what, PENSTOCK_EVENT_DONE | (c->failed ? PENSTOCK_EVENT_FAILED : 0), named && !c->failed, 0, 0);
}

/* Opened by a system call's number, in a vfork child, in a signal handler within another call.  Other changes made like
   that nobody tells: docs/guide/catalog.md says so. */
static void unseen(int fd) {
  long flags = fd >= 0 && penstock_here.ring && !penstock_sealed() ? PENSTOCK_RAW(fcntl, fd, F_GETFL, 0, 0) : -1;
  if (flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY)
    tell_open(fd);
}

const struct penstock_stage penstock_catalog_stage = {
  .name = "catalog",
  .bit = PENSTOCK_STAGE_CATALOG,
  .under = PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT,
  .paths = PENSTOCK_PATHS_ALL,
  .before = before,
  .after = after,
  .unseen = unseen,
};
