// SPDX-License-Identifier: Apache-2.0
/* Calls on names: looking up, making, linking, removing, renaming.
 *
 * Invariants:
 * 1. What changes names or counts of links holds `names`, so each such call is one step for all mounts.
 * 2. A new inode is whole (objects, layout, attributes) before it gets its name; a name never shows half a file.
 * 3. Killed at any point, the store needs no more than check.c does: names are right, counts are made from them.
 */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* ---- what every call here needs ---- */

static void begin_named(struct call *c, fuse_req_t req, enum model_op op, uint64_t parent, const char *name) {
  call_begin(c, req, op, 0);
  c->model.parent = parent;
  c->model.name = model_name(name);
}

static struct server *server_of(fuse_req_t req) {
  return ((struct mount *)fuse_req_userdata(req))->server;
}

/* A directory that may get new names; its times change.  Under `names`. */
static int touch_dir(struct server *s, uint64_t dir, int links) {
  struct record *r = store_lock(&s->store, dir);
  if (!r)
    return -ESTALE;
  int err = !S_ISDIR(r->mode) ? -ENOTDIR : r->nlink == 0 ? -ENOENT : 0;
  if (!err) {
    r->mtime = r->ctime = store_now();
    r->nlink = (uint32_t)((int64_t)r->nlink + links);
  }
  store_unlock(&s->store, dir);
  return err;
}

static int dir_alive(struct server *s, uint64_t dir) {
  struct record r;
  return !store_read(&s->store, dir, &r) ? -ESTALE : !S_ISDIR(r.mode) ? -ENOTDIR : r.nlink == 0 ? -ENOENT : 0;
}

/* Adds to an inode's count of links; *ret is a copy after that. */
static void add_links(struct server *s, uint64_t ino, int links, struct record *ret) {
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return;
  r->nlink = (uint32_t)((int64_t)r->nlink + links);
  r->ctime = store_now();
  if (ret)
    *ret = *r;
  store_unlock(&s->store, ino);
}

/* ---- looking ---- */

/* The inode behind a name that was found.  A name comes before its count of links, both under `names`: who sees the one
 * without the other waits for whoever is at it. */
static int read_named(struct server *s, uint64_t ino, struct record *ret) {
  if (store_read(&s->store, ino, ret) && ret->nlink)
    return 0;
  pthread_mutex_lock(&s->names);
  bool there = store_read(&s->store, ino, ret) && ret->nlink;
  pthread_mutex_unlock(&s->names);
  return there ? 0 : -ENOENT; /* removed in between, or lost: see check.c */
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_LOOKUP, parent, name);
  uint64_t ino = 0;
  struct record r;
  int err = store_find(&s->store, parent, name, &ino);
  if (!err)
    err = read_named(s, ino, &r);
  if (!err) {
    c.model.ino = ino;
    call_entry(&c, &r);
    call_osts_of(&c, &r);
  }
  call_end(&c, err);
}

static void on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count) {
  (void)ino, (void)count; /* a number is enough to find an inode again: nothing is kept for the kernel */
  fuse_reply_none(req);
}

static void on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *which) {
  (void)count, (void)which;
  fuse_reply_none(req);
}

static void on_readlink(fuse_req_t req, fuse_ino_t ino) {
  struct server *s = server_of(req);
  struct call c;
  call_begin(&c, req, MODEL_READLINK, ino);
  char *text = calloc(1, PATH_MAX + 1);
  ssize_t n = text ? inode_bytes(s, ino, text, PATH_MAX) : -ENOMEM;
  c.answer.kind = ANSWER_TEXT;
  c.answer.bytes = text;
  call_end(&c, n < 0 ? (int)n : 0);
}

/* ---- making ---- */

/* A record for a new inode below `parent`, with the group that a setgid folder gives. */
static uint64_t new_inode(struct server *s, fuse_req_t req, uint64_t parent, mode_t mode, int *err) {
  const struct fuse_ctx *who = fuse_req_ctx(req);
  struct record dir;
  uint64_t ino = 0;
  if (!store_read(&s->store, parent, &dir) || dir.nlink == 0) {
    *err = -ENOENT;
    return 0;
  }
  uint32_t gid = who->gid;
  if (dir.mode & S_ISGID) {
    gid = dir.gid;
    if (S_ISDIR(mode))
      mode |= S_ISGID;
  }
  ino = store_new(&s->store, mode, who->uid, gid);
  *err = ino ? 0 : -ENOSPC;
  if (ino)
    model_mdt_use(s->model, 1);
  return ino;
}

/* Names a finished inode: 0, or the inode is gone again. */
static int name_inode(struct server *s, uint64_t parent, const char *name, uint64_t ino, bool is_dir, struct record *ret) {
  pthread_mutex_lock(&s->names);
  int err = dir_alive(s, parent);
  if (!err)
    err = store_link(&s->store, parent, name, ino);
  if (!err) {
    touch_dir(s, parent, is_dir ? 1 : 0);
    struct record *r = store_lock(&s->store, ino);
    if (r) {
      r->nlink = is_dir ? 2 : 1;
      r->parent = parent;
      *ret = *r;
      store_unlock(&s->store, ino);
    }
  }
  pthread_mutex_unlock(&s->names);
  if (err) {
    if (is_dir)
      store_remove_dir(&s->store, ino);
    inode_reap(s, ino);
  }
  return err;
}

static int set_bytes(struct server *s, uint64_t ino, const void *data, size_t size) {
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return -ESTALE;
  int err = store_set_bytes(&s->store, r, data, size);
  store_unlock(&s->store, ino);
  return err;
}

static void on_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_MKNOD, parent, name);
  int err;
  struct record r;
  uint64_t ino = new_inode(s, req, parent, mode, &err);
  if (!err) {
    struct record *made = store_lock(&s->store, ino);
    made->rdev = (uint32_t)rdev;
    store_unlock(&s->store, ino);
    err = name_inode(s, parent, name, ino, false, &r);
  }
  if (!err) {
    c.model.ino = ino;
    call_entry(&c, &r);
  }
  call_end(&c, err);
}

static void on_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_SYMLINK, parent, name);
  int err;
  struct record r;
  uint64_t ino = new_inode(s, req, parent, S_IFLNK | 0777, &err);
  if (!err) {
    err = set_bytes(s, ino, target, strlen(target));
    struct record *made = store_lock(&s->store, ino);
    made->size_bytes = strlen(target);
    store_unlock(&s->store, ino);
    if (err)
      inode_reap(s, ino);
    else
      err = name_inode(s, parent, name, ino, false, &r);
  }
  if (!err) {
    c.model.ino = ino;
    call_entry(&c, &r);
  }
  call_end(&c, err);
}

/* The default layout that a new folder takes over. */
static int inherit(struct server *s, uint64_t parent, uint64_t ino) {
  struct record dir;
  if (!store_read(&s->store, parent, &dir) || dir.byte_count == 0)
    return 0;
  uint8_t *own = malloc(2 * LOV_BYTES);
  if (!own)
    return -ENOMEM;
  ssize_t size = inode_bytes(s, parent, own, LOV_BYTES);
  if (size > 0)
    size = lov_inherit(own, (size_t)size, SERVER_FID_SEQ, (uint32_t)ino, own + LOV_BYTES, LOV_BYTES);
  int err = size > 0 ? set_bytes(s, ino, own + LOV_BYTES, (size_t)size) : (int)size;
  free(own);
  return err;
}

static void on_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_MKDIR, parent, name);
  int err;
  struct record r;
  uint64_t ino = new_inode(s, req, parent, S_IFDIR | (mode & 07777), &err);
  if (!err) {
    err = store_make_dir(&s->store, ino);
    if (!err)
      err = inherit(s, parent, ino);
    if (err)
      inode_reap(s, ino);
    else
      err = name_inode(s, parent, name, ino, true, &r);
  }
  if (!err) {
    c.model.ino = ino;
    call_entry(&c, &r);
  }
  call_end(&c, err);
}

static void on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_CREATE, parent, name);
  c.model.flags = fi->flags;
  int err;
  uint64_t ino = 0;
  struct record r;
  struct handle *h = NULL;
  bool made = false;
  int tries = 0;
  do { /* once more when somebody else makes or removes the name in between */
    err = store_find(&s->store, parent, name, &ino);
    if (!err && (fi->flags & O_EXCL)) {
      err = -EEXIST;
      break;
    }
    made = err == -ENOENT;
    if (made && (ino = new_inode(s, req, parent, mode, &err))) {
      err = file_new_layout(s, ino, parent, fi->flags);
      if (err)
        inode_reap(s, ino);
      else
        err = name_inode(s, parent, name, ino, false, &r);
    } else if (!made && !err && read_named(s, ino, &r)) {
      err = -ESTALE;
    }
    if (!err)
      err = file_open(s, c.mount, ino, fi->flags, &h);
  } while (++tries < 8 && ((made && err == -EEXIST && !(fi->flags & O_EXCL)) || err == -ESTALE));
  if (!err && store_read(&s->store, ino, &r)) {
    c.model.ino = ino;
    call_entry(&c, &r);
    call_stripes(&c, atomic_load(&h->node->loaded) ? h->node->stripes : NULL);
    if (!h->node->loaded)
      call_osts_of(&c, &r);
    if (!made)
      c.model.op = MODEL_OPEN;
    c.answer.kind = ANSWER_CREATE;
    c.answer.file = *fi;
    file_answer(s, h, &c.answer.file);
  }
  call_end(&c, err);
}

static void on_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_LINK, parent, name);
  c.model.ino = ino;
  struct record r;
  pthread_mutex_lock(&s->names);
  int err = dir_alive(s, parent);
  if (!err)
    err = !store_read(&s->store, ino, &r) || r.nlink == 0 ? -ENOENT : S_ISDIR(r.mode) ? -EPERM : 0;
  if (!err && r.nlink >= 65000)
    err = -EMLINK;
  if (!err)
    err = store_link(&s->store, parent, name, ino);
  if (!err) {
    add_links(s, ino, 1, &r);
    touch_dir(s, parent, 0);
    call_entry(&c, &r);
  }
  pthread_mutex_unlock(&s->names);
  call_end(&c, err);
}

/* ---- removing ---- */

static void on_unlink(fuse_req_t req, fuse_ino_t parent, const char *name) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_UNLINK, parent, name);
  uint64_t ino = 0;
  struct record r = {0};
  pthread_mutex_lock(&s->names);
  int err = store_find(&s->store, parent, name, &ino);
  bool there = !err && store_read(&s->store, ino, &r);
  if (there && S_ISDIR(r.mode))
    err = -EISDIR;
  if (!err)
    err = store_unlink(&s->store, parent, name);
  if (!err) {
    touch_dir(s, parent, 0);
    if (there)
      add_links(s, ino, -1, &r);
  }
  pthread_mutex_unlock(&s->names);
  if (!err && there) {
    c.model.ino = ino;
    c.model.last = r.nlink == 0;
    call_osts_of(&c, &r);
    if (r.nlink == 0)
      inode_reap(s, ino);
  }
  call_end(&c, err);
}

/* An empty folder is no more: its inode goes when nobody has it open.  Under `names`. */
static void bury_dir(struct server *s, uint64_t ino) {
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return;
  r->nlink = 0;
  r->ctime = store_now();
  store_unlock(&s->store, ino);
}

static void on_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_RMDIR, parent, name);
  uint64_t ino = 0;
  struct record r;
  pthread_mutex_lock(&s->names);
  int err = store_find(&s->store, parent, name, &ino);
  if (!err && store_read(&s->store, ino, &r)) {
    err = S_ISDIR(r.mode) ? store_remove_dir(&s->store, ino) : -ENOTDIR;
    if (err == -ENOENT)
      err = 0;
  }
  if (!err)
    err = store_unlink(&s->store, parent, name);
  if (!err) {
    touch_dir(s, parent, -1);
    bury_dir(s, ino);
  }
  pthread_mutex_unlock(&s->names);
  if (!err)
    inode_reap(s, ino);
  c.model.ino = ino;
  call_end(&c, err);
}

/* ---- renaming ---- */

/* Is `ino` the directory `above` or below it?  Under `names`. */
static bool is_below(struct server *s, uint64_t ino, uint64_t above) {
  struct record r;
  while (ino != above && ino != STORE_ROOT && store_read(&s->store, ino, &r)) ino = r.parent;
  return ino == above;
}

struct renaming {
  uint64_t from, to, ino, old; /* old: what had the new name; 0 = nothing */
  struct record moved, replaced;
};

/* May this be renamed?  0 or -errno; under `names`. */
static int judge(struct server *s, struct renaming *n) {
  bool dir = S_ISDIR(n->moved.mode);
  int err = dir_alive(s, n->to);
  if (err)
    return err;
  if (dir && n->from != n->to && is_below(s, n->to, n->ino))
    return -EINVAL;
  if (!n->old)
    return 0;
  if (S_ISDIR(n->replaced.mode) && !dir)
    return -EISDIR;
  if (dir && !S_ISDIR(n->replaced.mode))
    return -ENOTDIR;
  return dir ? store_remove_dir(&s->store, n->old) : 0;
}

static void count_links(struct server *s, const struct renaming *n) {
  bool dir = S_ISDIR(n->moved.mode), moves = dir && n->from != n->to, replaces = dir && n->old;
  touch_dir(s, n->from, moves ? -1 : 0);
  touch_dir(s, n->to, (moves ? 1 : 0) - (replaces ? 1 : 0));
  add_links(s, n->ino, 0, NULL);
  if (n->from != n->to) {
    struct record *r = store_lock(&s->store, n->ino);
    if (r) {
      r->parent = n->to;
      store_unlock(&s->store, n->ino);
    }
  }
  if (replaces)
    bury_dir(s, n->old);
  else if (n->old)
    add_links(s, n->old, -1, NULL);
}

static int rename_it(struct server *s, struct renaming *n, const char *old_name, const char *new_name) {
  int err = store_find(&s->store, n->from, old_name, &n->ino);
  if (!err && !store_read(&s->store, n->ino, &n->moved))
    err = -ENOENT;
  if (err)
    return err;
  err = store_find(&s->store, n->to, new_name, &n->old);
  if (err && err != -ENOENT)
    return err;
  if (err == -ENOENT || !store_read(&s->store, n->old, &n->replaced))
    n->old = 0;
  if (n->old == n->ino) { /* two names of one file: nothing happens */
    n->old = 0;
    return 0;
  }
  err = judge(s, n);
  if (!err)
    err = store_rename(&s->store, n->from, old_name, n->to, new_name);
  if (!err)
    count_links(s, n);
  return err;
}

static void on_rename(fuse_req_t req, fuse_ino_t from, const char *old_name, fuse_ino_t to, const char *new_name,
                      unsigned flags) {
  struct server *s = server_of(req);
  struct call c;
  begin_named(&c, req, MODEL_RENAME, from, old_name);
  c.model.parent2 = to;
  c.model.name2 = model_name(new_name);
  struct renaming n = {.from = from, .to = to};
  int err = flags ? -EINVAL : 0; /* Lustre knows no flags either */
  if (!err) {
    pthread_mutex_lock(&s->names);
    err = rename_it(s, &n, old_name, new_name);
    pthread_mutex_unlock(&s->names);
  }
  c.model.ino = n.ino;
  c.model.is_dir = S_ISDIR(n.moved.mode);
  if (!err && n.old) {
    c.model.ino2 = n.old;
    c.model.last = S_ISDIR(n.replaced.mode) || n.replaced.nlink == 1;
    if (c.model.last)
      call_osts_of(&c, &n.replaced);
    inode_reap(s, n.old);
  }
  call_end(&c, err);
}

void names_ops(struct fuse_lowlevel_ops *ops) {
  ops->lookup = on_lookup;
  ops->forget = on_forget;
  ops->forget_multi = on_forget_multi;
  ops->readlink = on_readlink;
  ops->mknod = on_mknod;
  ops->symlink = on_symlink;
  ops->mkdir = on_mkdir;
  ops->create = on_create;
  ops->link = on_link;
  ops->unlink = on_unlink;
  ops->rmdir = on_rmdir;
  ops->rename = on_rename;
}
