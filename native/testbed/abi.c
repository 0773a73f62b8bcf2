// SPDX-License-Identifier: Apache-2.0
/* Lustre's ABI through FUSE: lustre.lov, and the ioctls that carry more than FUSE lets through.
 *
 * FUSE copies only as many bytes as the ioctl's number says (8 for SETSTRIPE and GETSTRIPE), but tells the caller's
 * pointer and thread: the server fetches and stores the rest in the caller's memory itself, which needs the right to
 * trace the caller (root, or the same user where the system allows that). */
#include "testbed/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define IOC_SETSTRIPE 0x4008669au
#define IOC_SETSTRIPE_NEW 0xc020669au
#define IOC_GETSTRIPE 0x4008669bu
#define IOC_GETSTRIPE_NEW 0x8020669bu
#define IOC_GETFILESTRIPE 0xc0086915u /* on a directory: a name in, its file's layout out */

enum { MAX_GROUPS = 256 };

/* ---- setting and showing ---- */

static int set_on_dir(struct call *c, const struct record *dir, enum lov_how how, const void *value, size_t size) {
  struct server *s = c->server;
  uint8_t stored[LOV_BYTES];
  c->model.is_dir = true;
  if (c->model.uid != 0 && c->model.uid != dir->uid)
    return -EPERM;
  ssize_t n = lov_set_dir(s->lov, how, value, size, stored, sizeof stored);
  if (n < 0)
    return (int)n;
  struct record *r = store_lock(&s->store, dir->ino);
  if (!r)
    return -ESTALE;
  int err = store_set_bytes(&s->store, r, stored, (size_t)n);
  r->ctime = store_now();
  store_unlock(&s->store, dir->ino);
  return err;
}

int abi_set(struct call *c, uint64_t ino, enum lov_how how, const void *value, size_t size) {
  struct server *s = c->server;
  struct record r;
  if (!store_read(&s->store, ino, &r))
    return -ESTALE;
  if (S_ISDIR(r.mode))
    return set_on_dir(c, &r, how, value, size);
  if (!S_ISREG(r.mode))
    return 0; /* accepted without effect */
  struct node *n;
  int err = node_get(s, ino, &n);
  if (err)
    return err;
  struct lov_request q = {.how = how, .template = value, .template_size = size};
  pthread_rwlock_wrlock(&n->data);
  err = file_set_layout(s, n, &q);
  pthread_rwlock_unlock(&n->data);
  node_put(s, n);
  if (store_read(&s->store, ino, &r))
    call_osts_of(c, &r);
  return err < 0 ? err : 0;
}

ssize_t abi_get(struct server *s, uint64_t ino, enum lov_ask ask, const void *head, size_t head_size, void *ret,
                size_t room) {
  struct record r;
  if (!store_read(&s->store, ino, &r))
    return -ESTALE;
  bool dir = S_ISDIR(r.mode);
  if ((!dir && !S_ISREG(r.mode)) || (!dir && r.byte_count == 0))
    return -ENODATA;
  uint8_t *own = malloc(2 * LOV_BYTES);
  if (!own)
    return -ENOMEM;
  ssize_t size = inode_bytes(s, ino, own, LOV_BYTES);
  if (size >= 0 && dir) {
    ssize_t root = inode_bytes(s, STORE_ROOT, own + LOV_BYTES, LOV_BYTES);
    size = lov_dir_answer(own, (size_t)size, own + LOV_BYTES, root > 0 ? (size_t)root : 0, ret, room);
  } else if (size >= 0) {
    size = size ? lov_file_answer(own, (size_t)size, ask, head, head_size, ret, room) : -ENODATA;
  }
  free(own);
  return size;
}

/* ---- the caller's memory ---- */

struct memory {
  pid_t pid;
  char *at;
};

/* Moves up to `size` bytes, page by page so that what is there comes even if the rest is not: bytes, or -errno. */
static ssize_t move(const struct memory *m, void *local, size_t size, bool out) {
  size_t done = 0, page = (size_t)sysconf(_SC_PAGESIZE);
  while (done < size) {
    char *at = m->at + done;
    size_t step = page - (uintptr_t)at % page;
    step = step < size - done ? step : size - done;
    struct iovec here = {(char *)local + done, step}, there = {at, step};
    ssize_t n = out ? process_vm_writev(m->pid, &here, 1, &there, 1, 0) : process_vm_readv(m->pid, &here, 1, &there, 1, 0);
    if (n <= 0)
      return done ? (ssize_t)done : n < 0 ? -errno : -EFAULT;
    done += (size_t)n;
  }
  return (ssize_t)done;
}

static int fetch(const struct memory *m, void *local, size_t size) {
  ssize_t n = move(m, local, size, false);
  return n < 0 ? (int)n : (size_t)n < size ? -EFAULT : 0;
}

static int put(const struct memory *m, const void *local, size_t size) {
  ssize_t n = move(m, (void *)(uintptr_t)local, size, true);
  return n < 0 ? (int)n : (size_t)n < size ? -EFAULT : 0;
}

/* ---- the ioctls ---- */

struct ioctl {
  struct call *call;
  uint64_t ino;
  struct memory memory;
  const void *in; /* what FUSE copied */
  size_t in_size, out_size;
  uint8_t buffer[LOV_BYTES];
};

/* Gives bytes back: by the pointer; where that is not allowed, what FUSE carries. */
static int give_back(struct ioctl *q, const void *data, size_t size) {
  int err = put(&q->memory, data, size);
  if (err != -EPERM || q->out_size < size)
    return err;
  struct answer *a = &q->call->answer;
  if (!(a->bytes = malloc(size)))
    return -ENOMEM;
  memcpy(a->bytes, data, size);
  a->size = size;
  return 0;
}

/* Lustre sets the layout, and only then looks whether the caller may write. */
static int may_write(struct call *c, uint64_t ino) {
  struct record r;
  gid_t groups[MAX_GROUPS];
  int count = c->model.uid == 0 ? 0 : fuse_req_getgroups(c->answer.req, MAX_GROUPS, groups);
  struct lov_caller who = {
    c->model.uid, c->model.gid, groups, (uint32_t)(count < 0 ? 0 : count < MAX_GROUPS ? count : MAX_GROUPS)};
  return store_read(&c->server->store, ino, &r) && !lov_may_write(&who, r.mode, r.uid, r.gid) ? -EACCES : 0;
}

static int set_stripe(struct ioctl *q, bool is_dir) {
  uint8_t head[PENSTOCK_LOV_V1_BYTES], stored[LOV_BYTES];
  int err = 0;
  if (q->in_size >= sizeof head)
    memcpy(head, q->in, sizeof head);
  else
    err = fetch(&q->memory, head, sizeof head);
  ssize_t size = err ? err : lov_template_size(head, sizeof head, is_dir);
  if (size < 0)
    return (int)size;
  if ((size_t)size > sizeof q->buffer)
    return -EINVAL;
  memcpy(q->buffer, head, sizeof head);
  if ((size_t)size > sizeof head) {
    struct memory rest = {q->memory.pid, q->memory.at + sizeof head};
    err = fetch(&rest, q->buffer + sizeof head, (size_t)size - sizeof head);
  }
  if (!err)
    err = abi_set(q->call, q->ino, LOV_IOCTL, q->buffer, (size_t)size);
  if (err || is_dir)
    return err;
  ssize_t have = inode_bytes(q->call->server, q->ino, stored, sizeof stored);
  if (have > 0) {
    uint8_t *back = malloc(LOV_BYTES);
    ssize_t n = back ? lov_write_back(q->buffer, (size_t)size, stored, (size_t)have, back, LOV_BYTES) : -ENOMEM;
    err = n > 0 ? give_back(q, back, (size_t)n) : (int)n;
    free(back);
  }
  int refused = may_write(q->call, q->ino);
  return refused ? refused : err;
}

static int get_stripe(struct ioctl *q, uint64_t ino) {
  uint8_t head[PENSTOCK_LOV_V1_BYTES] = {0};
  if (fetch(&q->memory, head, sizeof head) && q->in_size)
    memcpy(head, q->in, q->in_size < sizeof head ? q->in_size : sizeof head);
  ssize_t n = abi_get(q->call->server, ino, LOV_GETSTRIPE, head, sizeof head, q->buffer, sizeof q->buffer);
  return n < 0 ? (int)n : give_back(q, q->buffer, (size_t)n);
}

static int get_by_name(struct ioctl *q) {
  char name[257] = {0};
  uint64_t ino;
  ssize_t n = move(&q->memory, name, 256, false);
  if (n < 0)
    return (int)n;
  if (!memchr(name, 0, 256) || !name[0] || strchr(name, '/'))
    return -EINVAL;
  int err = store_find(&q->call->server->store, q->ino, name, &ino);
  if (err)
    return err;
  q->call->model.parent = q->ino;
  q->call->model.name = model_name(name);
  q->call->model.ino = ino;
  ssize_t size = abi_get(q->call->server, ino, LOV_GETSTRIPE, NULL, 0, q->buffer, sizeof q->buffer);
  return size < 0 ? (int)size : give_back(q, q->buffer, (size_t)size);
}

static int serve(struct ioctl *q, unsigned cmd) {
  struct record r;
  if (!store_read(&q->call->server->store, q->ino, &r))
    return -ESTALE;
  bool dir = S_ISDIR(r.mode);
  switch (cmd) {
  case IOC_SETSTRIPE:
  case IOC_SETSTRIPE_NEW:
    q->call->model.op = MODEL_SETSTRIPE;
    q->call->model.flags = 1;
    return set_stripe(q, dir);
  case IOC_GETSTRIPE:
  case IOC_GETSTRIPE_NEW:
    q->call->model.op = MODEL_GETXATTR;
    q->call->model.layout = true;
    return get_stripe(q, q->ino);
  case IOC_GETFILESTRIPE:
    q->call->model.op = MODEL_GETSTRIPE;
    return dir ? get_by_name(q) : -ENOTTY;
  default:
    return -ENOTTY;
  }
}

static void on_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi, unsigned flags,
                     const void *in, size_t in_size, size_t out_size) {
  (void)fi, (void)flags;
  struct call c;
  call_begin(&c, req, MODEL_GETXATTR, ino);
  c.answer.kind = ANSWER_IOCTL;
  struct ioctl *q = malloc(sizeof *q);
  int err = q ? 0 : -ENOMEM;
  if (q) {
    q->call = &c;
    q->ino = ino;
    q->memory = (struct memory){(pid_t)c.model.pid, arg};
    q->in = in;
    q->in_size = in_size;
    q->out_size = out_size;
    err = serve(q, cmd);
  }
  free(q);
  call_end(&c, err);
}

void ioctls_ops(struct fuse_lowlevel_ops *ops) {
  ops->ioctl = on_ioctl;
}
