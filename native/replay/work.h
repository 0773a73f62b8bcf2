// SPDX-License-Identifier: Apache-2.0
/* What the operations of a trace are on a real folder: which calls, on which files.

   Everything happens in one folder of its own.  What one operation needs another makes: close closes what open opened,
   unlink removes what mknod made, rmdir what mkdir made.  Where a trace takes away more than it brings (or the other
   way round), one call more is made, and counted as extra. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum operation {
  OPEN,
  CLOSE,
  GETATTR,
  SETATTR,
  RENAME,
  MKDIR,
  MKNOD,
  RMDIR,
  STATFS,
  SYNC,
  UNLINK,
  READ,
  WRITE,
  OPERATIONS
};
extern const char *const operation_names[OPERATIONS];

struct place; /* the folder and what lies in it */

/* One thread's own things: a file that only it touches, and where it is in its rounds. */
struct hand {
  struct place *place;
  enum operation operation;
  int fd;
  uint64_t turn;
  uint64_t extra;
  char path[2][4096];
  char *buffer;
};

struct place_settings {
  const char *folder; /* the work folder is made in it */
  unsigned files;     /* that open, getattr, setattr share */
  size_t io_bytes, file_bytes;
};

/* Makes the work folder, penstock-replay.HOST.PID, and its files; NULL with errno. */
struct place *place_make(const struct place_settings *settings);
/* Removes all; 0 or the first error. */
int place_remove(struct place *place);

/* Makes a thread's own things; 0 or an error. */
int hand_ready(struct hand *hand, struct place *place, enum operation operation, unsigned number);
void hand_done(struct hand *hand);
/* Does the operation once; 0 or its error. */
int hand_do(struct hand *hand);
