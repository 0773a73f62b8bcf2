// SPDX-License-Identifier: Apache-2.0
/* The server of the emulated parallel file system: one process, one store, one service model, several mounts.
 *
 * How a mount is recognised: its type in /proc/mounts is fuse.penstock, its source is the testbed's folder:
 *     FOLDER/state/     the statistics, as Lustre shows them (sys/fs/lustre/... below it), readable by all
 *     FOLDER/run/       for the owner alone: `control`, the socket (see control.c), and `lock`
 *     FOLDER/store/     the data (see store.h), for the owner alone
 * Two attributes of every inode say the same through the mount: penstock.folder, and penstock.client, the number of
 * this mount as a client.
 *
 * Invariants:
 * 1. Each mount is a client: its number goes with every call to the service model.
 * 2. A handler does its work on the store at once, then hands the answer to the model (answer.c), which sends it when it
 *    is due.  No lock is held over that.
 * 3. Locks, in the order in which they are taken: names, a node's `data`, a store lock, a mount's lock.
 * 4. An inode without a name lives as long as something has it open (a node holds it), and not past the server's end.
 * 5. The server touches no path inside its own mounts; its working folder is /.
 */
#pragma once
#define FUSE_USE_VERSION 312
#include "testbed/lov.h"
#include "testbed/stripes.h"

#include <fuse_lowlevel.h>
#include <limits.h>

enum {
  SERVER_MAX_WRITE = 1 << 20,
  SERVER_BACKGROUND = 1024, /* requests that the kernel has in flight: the model queues, not the kernel */
  SERVER_THREADS = 8,       /* of a mount */
  SERVER_BLOCK_BYTES = 4 << 20,
};
#define SERVER_FID_SEQ 0x200000401ull /* a file's FID is [this:inode number:0] */

struct mount;
struct handle;

/* An inode that is open. */
struct node {
  struct node *next;
  uint64_t ino;
  uint32_t users;          /* handles, and calls at work; this and `handles` under the store lock of the number */
  struct handle *handles;
  pthread_rwlock_t data;   /* shared: moving bytes; exclusive: cutting, appending, changing the layout */
  struct stripes *stripes; /* NULL: no layout, or not loaded yet; changed under `data` exclusive */
  atomic_bool loaded;
};

/* An open file or directory. */
struct handle {
  struct node *node;
  struct mount *mount;
  struct handle *next_of_node, **back_of_node;
  struct handle *next_of_mount, **back_of_mount; /* under the mount's lock */
  int flags;
  bool delayed; /* opened so that its layout is set later */
  struct listing *listing; /* of a directory */
};

struct mount {
  struct server *server;
  uint32_t client;
  struct fuse_session *session;
  pthread_t thread;
  pthread_mutex_t lock;
  struct handle *handles;
  atomic_int calls; /* begun and not yet answered */
  uint64_t asked_flags, offered_flags; /* of FUSE's INIT: what we answered, what the kernel could */
  atomic_bool ready;
  char path[];
};

struct server {
  struct store store;
  struct model *model;
  struct lov *lov;
  struct stripes_env env;
  atomic_int open_files;
  bool posix;   /* caching: close-to-open; else every call and byte comes here */
  bool charged; /* the model is on: tell it of stripes also where that costs something */
  bool everyone; /* root: other users see the mounts */
  const char *folder;
  pthread_mutex_t names; /* held while names and links change */
  struct node *nodes[STORE_LOCKS];
  pthread_mutex_t mounts_lock;
  struct mount *mounts[MODEL_MAX_CLIENTS];
  struct timespec started;
  struct locks *locks;
};

/* ---- nodes.c ---- */

/* The inode as something in use: 0, or -ESTALE.  Each node_get is followed by one node_put. */
int node_get(struct server *s, uint64_t ino, struct node **ret);
void node_put(struct server *s, struct node *n);
/* Its stripes, read from the record when needed; the caller holds `data`, shared or exclusive. */
struct stripes *node_stripes(struct server *s, struct node *n);
/* A new layout for an open inode (the old one's objects are among its own): makes the objects that are missing, stores
 * it.  The caller holds `data` exclusively.  0 or -errno. */
int node_set_layout(struct server *s, struct node *n, const void *stored, size_t size);

int handle_new(struct server *s, struct mount *m, uint64_t ino, int flags, struct handle **ret);
void handle_free(struct server *s, struct handle *h);
/* How many descriptors this mount has open for writing on it. */
unsigned node_writers(struct server *s, struct node *n, const struct mount *m);

/* The record lost a name, or its last user went: does away with the inode if nothing holds it.  The caller holds no
 * store lock. */
void inode_reap(struct server *s, uint64_t ino);
/* The bytes of an inode (layout, default layout, symbolic link's target), read under its lock: length, or -errno. */
ssize_t inode_bytes(struct server *s, uint64_t ino, void *ret, size_t room);
void fill_stat(const struct record *r, struct stat *ret);

/* ---- answer.c: a call on its way ---- */

enum answer_kind {
  ANSWER_NOTHING, /* the errno alone */
  ANSWER_ENTRY,
  ANSWER_ATTR,
  ANSWER_OPEN,
  ANSWER_CREATE,
  ANSWER_BYTES,
  ANSWER_COUNT, /* of bytes written */
  ANSWER_SIZE,  /* of an extended attribute */
  ANSWER_TEXT,  /* a symbolic link's target */
  ANSWER_STATFS,
  ANSWER_OFFSET,
  ANSWER_LOCK,
  ANSWER_IOCTL,
};

struct answer {
  struct mount *mount;
  fuse_req_t req;
  enum answer_kind kind;
  int err; /* positive */
  void *bytes; /* freed after sending */
  size_t size;
  struct fuse_file_info file;
  union {
    struct fuse_entry_param entry;
    struct stat attr;
    struct statvfs space;
    struct flock lock;
    int64_t offset;
    int result; /* of an ioctl */
  };
};

struct call {
  struct server *server;
  struct mount *mount;
  struct model_call model;
  struct answer answer;
  uint32_t osts[8]; /* for short layouts */
  uint32_t *more_osts;
};

/* Begins a call on `ino`. */
void call_begin(struct call *c, fuse_req_t req, enum model_op op, uint64_t ino);
/* Ends it: `err` is 0 or negative; the answer's kind holds if it is 0. */
void call_end(struct call *c, int err);
/* Tells the model which OSTs a file lies on, when it asks (the record is a copy). */
void call_osts_of(struct call *c, const struct record *r);
void call_stripes(struct call *c, const struct stripes *s);
/* Answer kinds that need more than a kind. */
void call_entry(struct call *c, const struct record *r);
void call_attr(struct call *c, const struct record *r);

/* ---- handlers, each file's share of the table ---- */

void names_ops(struct fuse_lowlevel_ops *ops);
void dirs_ops(struct fuse_lowlevel_ops *ops);
void attrs_ops(struct fuse_lowlevel_ops *ops);
void xattrs_ops(struct fuse_lowlevel_ops *ops);
void files_ops(struct fuse_lowlevel_ops *ops);
void data_ops(struct fuse_lowlevel_ops *ops);
void ioctls_ops(struct fuse_lowlevel_ops *ops);
void locks_ops(struct fuse_lowlevel_ops *ops);

/* files.c: a layout for a new file nobody knows yet, if an open with these flags gives one. */
int file_new_layout(struct server *s, uint64_t ino, uint64_t parent, int flags);
/* files.c: opens a file, with all that its flags ask for, and says to the kernel how it is to be cached. */
int file_open(struct server *s, struct mount *m, uint64_t ino, int flags, struct handle **ret);
void file_answer(struct server *s, struct handle *h, struct fuse_file_info *fi);
/* files.c: a layout by template or default for an open file; the caller holds `data` exclusively.
 * 0, 1 (nothing changed), or -errno. */
int file_set_layout(struct server *s, struct node *n, struct lov_request *request);
/* data.c: objects for bytes that are about to be written, or for a new size.  The caller holds `data` exclusively. */
int file_instantiate(struct server *s, struct node *n, uint64_t start, uint64_t end);
/* data.c: a new size; the caller holds `data` exclusively. */
int file_truncate(struct server *s, struct node *n, uint64_t size_bytes);
/* abi.c: a value for lustre.lov on a file or directory, 0 or -errno; and what a caller sees of it. */
int abi_set(struct call *c, uint64_t ino, enum lov_how how, const void *value, size_t size);
ssize_t abi_get(struct server *s, uint64_t ino, enum lov_ask ask, const void *head, size_t head_size, void *ret,
                size_t room);

/* dirs.c */
void listing_free(struct listing *l);

/* locks.c: what an owner held on a file goes (fcntl locks at any close, flock at the last); what a mount held goes. */
struct locks *locks_new(void);
void locks_drop_owner(struct server *s, const struct mount *m, uint64_t ino, uint64_t owner, bool flock);
void locks_drop_mount(struct server *s, const struct mount *m);

/* ---- mounts.c ---- */

/* 0, or -errno and a sentence. */
int mounts_add(struct server *s, const char *path, char *why, size_t why_size);
/* Detaches all, and waits a second for them to end: true if they did; else somebody still uses them. */
bool mounts_detach_all(struct server *s);
/* Marks the next answer of this thread: an INIT, or one that opens a file. */
enum patch { PATCH_NOTHING, PATCH_INIT, PATCH_OPEN };
void mounts_patch(struct mount *m, enum patch what);

/* ---- control.c ---- */

/* A listening socket FOLDER/run/control, 0 or more; or -errno. */
int control_listen(const char *folder);
/* Serves it until a `down` or a signal (`signals`: a signalfd). */
void control_serve(struct server *s, int listening, int signals);

/* ---- check.c ---- */

/* Looks the store over after a kill: says to `out` what is lost and what was found, a line each; repairs the rest.
 * Returns how many files lost something, or -errno. */
long check_store(struct store *s, FILE *out);
