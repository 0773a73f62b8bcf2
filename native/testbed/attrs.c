// SPDX-License-Identifier: Apache-2.0
/* Attributes of inodes, and the space of the whole.  Who may change them is the kernel's business (default_permissions);
 * clearing setuid and setgid bits is ours. */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_GETATTR, ino);
  c.model.internal = fi != NULL;
  struct record r;
  int err = store_read(&c.server->store, ino, &r) ? 0 : -ESTALE;
  if (!err) {
    call_attr(&c, &r);
    call_osts_of(&c, &r);
  }
  call_end(&c, err);
}

static struct stamp wanted(const struct timespec *t, bool now) {
  return now ? store_now() : (struct stamp){t->tv_sec, t->tv_nsec};
}

/* What is set besides the size.  Returns MODEL_SET_*. */
static int set(struct record *r, const struct stat *a, int which) {
  int what = 0;
  if (which & FUSE_SET_ATTR_MODE) {
    r->mode = (r->mode & S_IFMT) | (a->st_mode & 07777);
    what |= MODEL_SET_MODE;
  }
  if (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
    if (which & FUSE_SET_ATTR_UID)
      r->uid = a->st_uid;
    if (which & FUSE_SET_ATTR_GID)
      r->gid = a->st_gid;
    if (!S_ISDIR(r->mode) && !(which & FUSE_SET_ATTR_MODE))
      r->mode &= ~(uint32_t)(S_ISUID | (r->mode & S_IXGRP ? S_ISGID : 0));
    what |= MODEL_SET_OWNER;
  }
  if (which & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW)) {
    r->atime = wanted(&a->st_atim, which & FUSE_SET_ATTR_ATIME_NOW);
    what |= MODEL_SET_TIMES;
  }
  if (which & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) {
    r->mtime = wanted(&a->st_mtim, which & FUSE_SET_ATTR_MTIME_NOW);
    what |= MODEL_SET_TIMES;
  }
  r->ctime = store_now();
  return what;
}

static int set_size(struct call *c, uint64_t ino, uint64_t size_bytes) {
  struct server *s = c->server;
  struct node *n;
  c->model.op = MODEL_TRUNCATE;
  c->model.size = size_bytes;
  int err = node_get(s, ino, &n);
  if (err)
    return err;
  pthread_rwlock_wrlock(&n->data);
  call_stripes(c, node_stripes(s, n));
  err = model_refuses(s->model, &c->model);
  if (!err)
    err = file_truncate(s, n, size_bytes);
  c->model.osts = NULL;
  c->model.ost_count = 0;
  pthread_rwlock_unlock(&n->data);
  node_put(s, n);
  return err;
}

static void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *a, int which, struct fuse_file_info *fi) {
  (void)fi;
  struct call c;
  call_begin(&c, req, MODEL_SETATTR, ino);
  int err = which & FUSE_SET_ATTR_SIZE ? set_size(&c, ino, (uint64_t)a->st_size) : 0;
  struct record copy;
  struct record *r = err ? NULL : store_lock(&c.server->store, ino);
  if (!r && !err)
    err = -ESTALE;
  if (r) {
    if (which & FUSE_SET_ATTR_SIZE && c.model.uid != 0)
      r->mode &= ~(uint32_t)(S_ISUID | (r->mode & S_IXGRP ? S_ISGID : 0));
    c.model.flags = set(r, a, which);
    copy = *r;
    store_unlock(&c.server->store, ino);
    call_attr(&c, &copy);
    call_osts_of(&c, &copy);
  }
  call_end(&c, err);
}

static void on_statfs(fuse_req_t req, fuse_ino_t ino) {
  struct call c;
  call_begin(&c, req, MODEL_STATFS, ino);
  struct server *s = c.server;
  uint64_t total = 0, left = 0, objects = 0;
  for (uint32_t i = 0; i < s->store.ost_count; i++) {
    struct model_space one;
    if (model_ost_state(s->model, i) & (MODEL_OST_DEAD | MODEL_OST_INACTIVE))
      continue;
    model_ost_space(s->model, i, &one);
    total += one.total_bytes;
    left += one.free_bytes;
    objects += one.free_objects;
  }
  uint64_t used = (uint64_t)s->store.header->inodes;
  uint64_t spare = STORE_MAX_INODES - s->store.header->next_ino;
  uint64_t files = objects < spare ? objects : spare; /* a file without an object is none */
  c.answer.kind = ANSWER_STATFS;
  c.answer.space = (struct statvfs){
    .f_bsize = 4096,
    .f_frsize = 4096,
    .f_blocks = total / 4096,
    .f_bfree = left / 4096,
    .f_bavail = left / 4096,
    .f_files = used + files,
    .f_ffree = files,
    .f_favail = files,
    .f_namemax = 255,
  };
  call_end(&c, 0);
}

void attrs_ops(struct fuse_lowlevel_ops *ops) {
  ops->getattr = on_getattr;
  ops->setattr = on_setattr;
  ops->statfs = on_statfs;
}
