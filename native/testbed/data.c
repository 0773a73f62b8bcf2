// SPDX-License-Identifier: Apache-2.0
/* Reading and writing: a call's bytes are cut into pieces, each on one object.
 *
 * Invariants:
 * 1. Pieces move under the node's `data` lock, shared; what cuts, appends or changes the layout holds it exclusively.
 * 2. The size in the record grows only after the bytes are in their objects, and before the answer.
 * 3. In the caching for contention an append goes to the end as the server knows it, whatever offset the kernel of one
 *    client believed in: so appends of several clients never overlap.
 */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECES = SERVER_MAX_WRITE / PENSTOCK_STRIPE_UNIT_BYTES + 2 };

static struct handle *handle_of(const struct fuse_file_info *fi) {
  return (struct handle *)(uintptr_t)fi->fh;
}

/* ---- sizes and layouts ---- */

static uint64_t size_of(struct server *s, uint64_t ino) {
  struct record r;
  return store_read(&s->store, ino, &r) ? r.size_bytes : 0;
}

int file_instantiate(struct server *s, struct node *n, uint64_t start, uint64_t end) {
  const struct stripes *now = node_stripes(s, n);
  uint8_t bytes[LOV_BYTES];
  ssize_t size = now ? lov_instantiate(s->lov, now->bytes, now->size, start, end, bytes, sizeof bytes) : 0;
  return size <= 0 ? (int)size : node_set_layout(s, n, bytes, (size_t)size);
}

static void change(struct server *s, uint64_t ino, int64_t room, const uint64_t *set_size, uint64_t at_least) {
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return;
  r->room_bytes = (uint64_t)((int64_t)r->room_bytes + room);
  if (set_size)
    r->size_bytes = *set_size;
  if (r->size_bytes < at_least)
    r->size_bytes = at_least;
  r->mtime = r->ctime = store_now();
  store_unlock(&s->store, ino);
}

int file_truncate(struct server *s, struct node *n, uint64_t size_bytes) {
  uint64_t old = size_of(s, n->ino);
  int64_t grew = 0;
  int err = 0;
  if (size_bytes > old && node_stripes(s, n))
    err = file_instantiate(s, n, 0, size_bytes);
  if (err == -ENODATA)
    err = 0; /* past the last component: a hole that nobody can write */
  if (err)
    return err;
  change(s, n->ino, 0, &size_bytes, 0); /* the size first: killed in between, the rest is cut at the next start */
  if (size_bytes < old && node_stripes(s, n))
    err = stripes_cut(n->stripes, &s->env, size_bytes, &grew);
  change(s, n->ino, grew, NULL, 0);
  return err;
}

/* ---- pieces ---- */

/* Cuts [offset, offset + size): the number of pieces, or -errno.  `put`: holes in the layout are an error. */
static int cut(const struct stripes *st, uint64_t offset, uint64_t size, struct piece *ret) {
  int count = 0;
  while (size) {
    if (count == MAX_PIECES)
      return -EIO;
    int err = stripes_locate(st, offset, size, &ret[count]);
    if (err)
      return err;
    offset += ret[count].size;
    size -= ret[count].size;
    count++;
  }
  return count;
}

/* The extent of `told` ones that the piece goes on with; NULL: none. */
static struct model_extent *before(const struct piece *p, struct model_extent *extents, uint32_t told) {
  while (told--)
    if (extents[told].stripe == p->object && extents[told].offset + extents[told].size == p->offset)
      return &extents[told];
  return NULL;
}

/* Tells the model of the pieces.  What lies together in an object is one extent, as it is one request of a client,
 * however many stripes the call went over. */
static void tell_extents(struct call *c, const struct stripes *st, const struct piece *p, int count,
                         struct model_extent *ret) {
  uint32_t told = 0;
  for (int i = 0; i < count; i++) {
    const struct object *o = &st->objects[p[i].object];
    struct model_extent *x = before(&p[i], ret, told);
    if (o->ost == STORE_MDT)
      c->model.dom = true;
    else if (x)
      x->size += p[i].size;
    else
      ret[told++] = (struct model_extent){o->ost, p[i].object, p[i].offset, p[i].size};
  }
  c->model.extents = ret;
  c->model.extent_count = told;
  call_stripes(c, st);
}

/* ---- read ---- */

/* The part of a read that components hold; zeros elsewhere. */
static int read_pieces(struct call *c, struct stripes *st, uint64_t offset, uint64_t size, char *to,
                       struct model_extent *extents) {
  struct piece pieces[MAX_PIECES];
  int count = 0, err = 0;
  for (uint64_t done = 0; done < size && !err;) {
    struct piece *p = &pieces[count < MAX_PIECES ? count : MAX_PIECES - 1];
    if (!st || stripes_locate(st, offset + done, size - done, p)) { /* nothing there: up to the next boundary */
      uint64_t step = PENSTOCK_STRIPE_UNIT_BYTES - (offset + done) % PENSTOCK_STRIPE_UNIT_BYTES;
      step = step < size - done ? step : size - done;
      memset(to + done, 0, step);
      done += step;
      continue;
    }
    err = stripes_read(st, &c->server->env, p, to + done);
    done += p->size;
    count += count < MAX_PIECES;
  }
  if (st)
    tell_extents(c, st, pieces, count, extents);
  return err;
}

static void touch_atime(struct server *s, uint64_t ino) {
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return;
  struct stamp now = store_now();
  if (r->atime.s < r->mtime.s || (r->atime.s == r->mtime.s && r->atime.ns <= r->mtime.ns) || r->atime.s + 86400 < now.s)
    r->atime = now; /* as mounts with relatime do */
  store_unlock(&s->store, ino);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_READ, ino);
  struct server *s = c.server;
  struct node *n = handle_of(fi)->node;
  struct model_extent extents[MAX_PIECES];
  c.model.flags = fi->flags;
  c.model.offset = (uint64_t)offset;
  c.model.size = size;
  pthread_rwlock_rdlock(&n->data);
  uint64_t end = size_of(s, ino), get = (uint64_t)offset >= end ? 0 : end - (uint64_t)offset;
  get = get < size ? get : size;
  c.model.file_size = end;
  c.answer.kind = ANSWER_BYTES;
  c.answer.size = get;
  struct stripes *st = node_stripes(s, n);
  int err = 0;
  if (get && !(c.answer.bytes = malloc(get)))
    err = -ENOMEM;
  if (!err && get) {
    err = read_pieces(&c, st, (uint64_t)offset, get, c.answer.bytes, extents);
    if (!err)
      err = model_refuses(s->model, &c.model);
  } else if (st) {
    call_stripes(&c, st);
  }
  pthread_rwlock_unlock(&n->data); /* the stripes stay as long as the handle */
  if (!err && get && !(fi->flags & O_NOATIME))
    touch_atime(s, ino);
  call_end(&c, err);
}

/* ---- write ---- */

/* Objects for the range; `data` is held shared on entry and on return.  0 or -errno. */
static int make_ready(struct server *s, struct node *n, uint64_t start, uint64_t end) {
  struct stripes *st = node_stripes(s, n);
  bool ready;
  int err = st ? stripes_ready(st, start, end, &ready) : -EBADF; /* a file that was opened to get its layout later */
  if (err || ready)
    return err;
  pthread_rwlock_unlock(&n->data);
  pthread_rwlock_wrlock(&n->data);
  err = file_instantiate(s, n, start, end);
  pthread_rwlock_unlock(&n->data);
  pthread_rwlock_rdlock(&n->data);
  return err;
}

/* A write by somebody other than root takes the setuid and setgid bits away. */
static void drop_privileges(struct server *s, const struct call *c, uint64_t ino) {
  struct record *r = c->model.uid ? store_lock(&s->store, ino) : NULL;
  if (!r)
    return;
  if (r->mode & (S_ISUID | S_ISGID))
    r->mode &= ~(uint32_t)(S_ISUID | (r->mode & S_IXGRP ? S_ISGID : 0));
  store_unlock(&s->store, ino);
}

/* Bytes written, or -errno if none were.  `data` is held. */
static ssize_t write_pieces(struct call *c, struct node *n, const char *from, uint64_t offset, uint64_t size,
                            struct piece *pieces, struct model_extent *extents) {
  struct server *s = c->server;
  struct stripes *st = n->stripes;
  int count = cut(st, offset, size, pieces);
  if (count < 0)
    return count;
  tell_extents(c, st, pieces, count, extents);
  int err = model_refuses(s->model, &c->model);
  uint64_t done = 0;
  int64_t grew = 0, all = 0;
  for (int i = 0; i < count && !err; i++) {
    err = stripes_write(st, &s->env, &pieces[i], from + done, &grew);
    all += grew;
    if (!err)
      done += pieces[i].size;
  }
  if (done || all)
    change(s, n->ino, all, NULL, done ? offset + done : 0);
  return done ? (ssize_t)done : err;
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t size, off_t offset,
                     struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_WRITE, ino);
  struct server *s = c.server;
  struct node *n = handle_of(fi)->node;
  struct piece pieces[MAX_PIECES];
  struct model_extent extents[MAX_PIECES];
  bool append = fi->flags & O_APPEND && !s->posix;
  uint64_t at = (uint64_t)offset;
  c.model.flags = fi->flags;
  if (append) {
    pthread_rwlock_wrlock(&n->data);
    at = size_of(s, ino);
  } else {
    pthread_rwlock_rdlock(&n->data);
  }
  ssize_t done = 0;
  if (append && node_stripes(s, n)) {
    bool ready;
    done = stripes_ready(n->stripes, at, at + size, &ready);
    if (!done && !ready)
      done = file_instantiate(s, n, at, at + size);
  } else {
    done = make_ready(s, n, at, at + size);
  }
  c.model.offset = at;
  c.model.size = size;
  if (done == 0 && size)
    done = write_pieces(&c, n, from, at, size, pieces, extents);
  c.model.file_size = size_of(s, ino);
  pthread_rwlock_unlock(&n->data);
  if (done > 0)
    drop_privileges(s, &c, ino);
  c.answer.kind = ANSWER_COUNT;
  c.answer.size = done > 0 ? (size_t)done : 0;
  call_end(&c, done < 0 ? (int)done : 0);
}

/* ---- room and holes ---- */

static int allocate_range(struct server *s, struct node *n, int mode, uint64_t offset, uint64_t size) {
  bool punch = mode & FALLOC_FL_PUNCH_HOLE;
  int64_t all = 0;
  int err = punch ? 0 : file_instantiate(s, n, offset, offset + size);
  struct stripes *st = node_stripes(s, n);
  for (uint64_t done = 0; st && done < size && !err;) {
    struct piece p;
    int64_t grew = 0;
    if (stripes_locate(st, offset + done, size - done, &p)) {
      done += PENSTOCK_STRIPE_UNIT_BYTES - (offset + done) % PENSTOCK_STRIPE_UNIT_BYTES;
      continue;
    }
    err = stripes_allocate(st, &s->env, &p, punch ? mode : FALLOC_FL_KEEP_SIZE, &grew);
    all += grew;
    done += p.size;
  }
  uint64_t end = mode & FALLOC_FL_KEEP_SIZE || err || !st ? 0 : offset + size;
  change(s, n->ino, all, NULL, end);
  return err;
}

static void on_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t size, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_FALLOCATE, ino);
  struct server *s = c.server;
  struct node *n = handle_of(fi)->node;
  c.model.flags = fi->flags;
  c.model.offset = (uint64_t)offset;
  c.model.size = (uint64_t)size;
  int err = mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE) ? -EOPNOTSUPP : 0;
  if (!err) {
    pthread_rwlock_wrlock(&n->data);
    uint64_t end = size_of(s, ino), cut_at = (uint64_t)offset + (uint64_t)size;
    call_stripes(&c, node_stripes(s, n));
    err = model_refuses(s->model, &c.model);
    if (!err && mode & FALLOC_FL_PUNCH_HOLE) /* past the end there is nothing to take away */
      size = (off_t)((uint64_t)offset >= end ? 0 : (cut_at < end ? cut_at : end) - (uint64_t)offset);
    if (!err)
      err = allocate_range(s, n, mode, (uint64_t)offset, (uint64_t)size);
    c.model.file_size = size_of(s, ino);
    pthread_rwlock_unlock(&n->data);
  }
  call_end(&c, err);
}

/* The next byte of data or hole at or after `offset`, at most the size. */
static uint64_t seek(struct server *s, struct stripes *st, uint64_t offset, uint64_t size, bool data) {
  while (offset < size) {
    struct piece p;
    if (stripes_locate(st, offset, size - offset, &p)) {
      if (!data)
        return offset;
      offset += PENSTOCK_STRIPE_UNIT_BYTES - offset % PENSTOCK_STRIPE_UNIT_BYTES;
      continue;
    }
    uint64_t inside = stripes_seek(st, &s->env, &p, data);
    offset += inside;
    if (inside < p.size)
      break;
  }
  return offset < size ? offset : size;
}

static void on_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_LSEEK, ino);
  struct server *s = c.server;
  struct node *n = handle_of(fi)->node;
  bool data = whence == SEEK_DATA;
  pthread_rwlock_rdlock(&n->data);
  struct stripes *st = node_stripes(s, n);
  uint64_t size = size_of(s, ino), at = 0;
  int err = offset < 0 || (uint64_t)offset >= size ? -ENXIO : 0;
  if (!err)
    at = st ? seek(s, st, (uint64_t)offset, size, data) : data ? size : (uint64_t)offset;
  if (!err && data && at >= size)
    err = -ENXIO;
  call_stripes(&c, st);
  pthread_rwlock_unlock(&n->data);
  c.answer.kind = ANSWER_OFFSET;
  c.answer.offset = (int64_t)at;
  call_end(&c, err);
}

void data_ops(struct fuse_lowlevel_ops *ops) {
  ops->read = on_read;
  ops->write = on_write;
  ops->fallocate = on_fallocate;
  ops->lseek = on_lseek;
}
