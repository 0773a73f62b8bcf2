// SPDX-License-Identifier: Apache-2.0
/* Opening and closing files, and the layouts that opening gives.  See server.h.
 *
 * O_TRUNC comes as a call of its own (setattr), as on Lustre; of O_LOV_DELAY_CREATE only O_ASYNC arrives.
 */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* The defaults that decide on a new file's layout; bytes to be freed are in *ret. */
static int add_defaults(struct server *s, uint64_t parent, struct lov_request *q, uint8_t **ret) {
  struct record dir, root;
  bool own = parent != STORE_ROOT && store_read(&s->store, parent, &dir) && S_ISDIR(dir.mode) && dir.byte_count;
  bool top = store_read(&s->store, STORE_ROOT, &root) && root.byte_count;
  *ret = NULL;
  if (!own && !top)
    return 0;
  if (!(*ret = malloc(2 * LOV_BYTES)))
    return -ENOMEM;
  ssize_t n = own ? inode_bytes(s, parent, *ret, LOV_BYTES) : 0;
  if (n > 0) {
    q->parent = *ret;
    q->parent_size = (size_t)n;
  }
  n = top ? inode_bytes(s, STORE_ROOT, *ret + LOV_BYTES, LOV_BYTES) : 0;
  if (n > 0) {
    q->root = *ret + LOV_BYTES;
    q->root_size = (size_t)n;
  }
  return 0;
}

/* Bytes of a new layout, or 0, or -errno. */
static ssize_t make_layout(struct server *s, uint64_t ino, uint64_t parent, struct lov_request *q, uint8_t *ret) {
  uint8_t *defaults;
  q->fid_seq = SERVER_FID_SEQ;
  q->fid_oid = (uint32_t)ino;
  int err = add_defaults(s, parent, q, &defaults);
  ssize_t size = err ? err : lov_create(s->lov, q, ret, LOV_BYTES);
  free(defaults);
  return size;
}

int file_new_layout(struct server *s, uint64_t ino, uint64_t parent, int flags) {
  if (!lov_open_allocates(flags, 0))
    return 0;
  struct lov_request q = {.how = LOV_OPEN, .append = flags & O_APPEND};
  uint8_t bytes[LOV_BYTES];
  ssize_t size = make_layout(s, ino, parent, &q, bytes);
  if (size <= 0)
    return (int)size;
  struct stripes *new = stripes_new(ino, bytes, (size_t)size);
  if (!new)
    return -ENOMEM;
  int err = stripes_make_objects(new, NULL, &s->env);
  if (!err) {
    struct record *r = store_lock(&s->store, ino);
    err = r ? store_set_bytes(&s->store, r, bytes, (size_t)size) : -ESTALE;
    if (r)
      store_unlock(&s->store, ino);
    if (err)
      stripes_remove_objects(new, &s->env);
  }
  stripes_free(new, &s->env);
  return err;
}

int file_set_layout(struct server *s, struct node *n, struct lov_request *q) {
  struct record r;
  if (!store_read(&s->store, n->ino, &r))
    return -ESTALE;
  q->has_layout = r.byte_count > 0;
  q->size_bytes = r.size_bytes;
  uint8_t bytes[LOV_BYTES];
  ssize_t size = make_layout(s, n->ino, r.parent, q, bytes);
  if (size <= 0)
    return size == 0 ? 1 : (int)size;
  return node_set_layout(s, n, bytes, (size_t)size);
}

/* A regular file that is opened for writing gets the layout it lacks. */
static int allocate(struct server *s, struct mount *m, struct node *n, int flags) {
  struct record r;
  if ((flags & O_ACCMODE) == O_RDONLY || !store_read(&s->store, n->ino, &r) || r.byte_count)
    return 0;
  if (!lov_open_allocates(flags, node_writers(s, n, m)))
    return 0;
  struct lov_request q = {.how = LOV_OPEN, .append = flags & O_APPEND};
  pthread_rwlock_wrlock(&n->data);
  int err = file_set_layout(s, n, &q);
  pthread_rwlock_unlock(&n->data);
  return err < 0 ? err : 0;
}

int file_open(struct server *s, struct mount *m, uint64_t ino, int flags, struct handle **ret) {
  struct node *n;
  int err = node_get(s, ino, &n);
  if (err)
    return err;
  err = allocate(s, m, n, flags);
  if (!err)
    err = handle_new(s, m, ino, flags, ret);
  node_put(s, n);
  if (!err)
    (*ret)->delayed = lov_delayed(flags);
  return err;
}

void file_answer(struct server *s, struct handle *h, struct fuse_file_info *fi) {
  fi->fh = (uint64_t)(uintptr_t)h;
  fi->direct_io = !s->posix;
  fi->keep_cache = 0;
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_OPEN, ino);
  c.model.flags = fi->flags;
  struct handle *h;
  struct record r;
  int err = file_open(c.server, c.mount, ino, fi->flags, &h);
  if (!err) {
    c.answer.kind = ANSWER_OPEN;
    c.answer.file = *fi;
    file_answer(c.server, h, &c.answer.file);
    if (store_read(&c.server->store, ino, &r)) {
      c.model.file_size = r.size_bytes;
      call_osts_of(&c, &r);
    }
  }
  call_end(&c, err);
}

static struct handle *handle_of(const struct fuse_file_info *fi) {
  return (struct handle *)(uintptr_t)fi->fh;
}

static void file_call(struct call *c, fuse_req_t req, enum model_op op, fuse_ino_t ino, const struct fuse_file_info *fi) {
  struct record r;
  call_begin(c, req, op, ino);
  c->model.flags = handle_of(fi)->flags;
  if (c->server->charged && store_read(&c->server->store, ino, &r)) {
    c->model.file_size = r.size_bytes;
    call_osts_of(c, &r);
  }
}

static void on_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  struct call c;
  file_call(&c, req, MODEL_FLUSH, ino, fi);
  locks_drop_owner(c.server, c.mount, ino, fi->lock_owner, false);
  call_end(&c, 0);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  struct call c;
  file_call(&c, req, MODEL_CLOSE, ino, fi);
  if (fi->flock_release)
    locks_drop_owner(c.server, c.mount, ino, fi->lock_owner, true);
  handle_free(c.server, handle_of(fi));
  call_end(&c, 0);
}

static void on_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi) {
  (void)data_only; /* what was acknowledged outlives the server as it is: see store.h */
  struct call c;
  file_call(&c, req, MODEL_FSYNC, ino, fi);
  call_end(&c, model_refuses(c.server->model, &c.model));
}

void files_ops(struct fuse_lowlevel_ops *ops) {
  ops->open = on_open;
  ops->flush = on_flush;
  ops->release = on_release;
  ops->fsync = on_fsync;
}
