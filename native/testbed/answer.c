// SPDX-License-Identifier: Apache-2.0
/* A call from its arrival to its answer: what the service model is told of it, and sending what it let through. */
#include "testbed/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void call_begin(struct call *c, fuse_req_t req, enum model_op op, uint64_t ino) {
  const struct fuse_ctx *who = fuse_req_ctx(req);
  struct mount *m = fuse_req_userdata(req);
  atomic_fetch_add(&m->calls, 1);
  c->server = m->server;
  c->mount = m;
  c->model = (struct model_call){
    .op = op, .client = m->client, .pid = (uint32_t)who->pid, .uid = who->uid, .gid = who->gid, .ino = ino};
  c->more_osts = NULL;
  c->answer = (struct answer){.mount = m, .req = req, .kind = ANSWER_NOTHING};
}

static double seconds_kept(const struct server *s) {
  return s->posix ? 1.0 : 0.0;
}

static int send_opened(struct answer *a) {
  mounts_patch(a->mount, PATCH_OPEN);
  int err = a->kind == ANSWER_OPEN ? fuse_reply_open(a->req, &a->file) : fuse_reply_create(a->req, &a->entry, &a->file);
  mounts_patch(a->mount, PATCH_NOTHING);
  return err;
}

/* Called by the model when the answer is due; `err`: the caller was killed, or its client evicted. */
static void send_answer(void *closure, int err) {
  struct answer *a = closure;
  struct mount *m = a->mount;
  bool opened = (a->kind == ANSWER_OPEN || a->kind == ANSWER_CREATE) && !a->err;
  int sent = 0;
  if (err || a->err) {
    fuse_reply_err(a->req, err ? -err : a->err);
    sent = -1;
  } else {
    switch (a->kind) {
    case ANSWER_NOTHING: fuse_reply_err(a->req, 0); break;
    case ANSWER_ENTRY: fuse_reply_entry(a->req, &a->entry); break;
    case ANSWER_ATTR: fuse_reply_attr(a->req, &a->attr, seconds_kept(m->server)); break;
    case ANSWER_OPEN:
    case ANSWER_CREATE: sent = send_opened(a); break;
    case ANSWER_BYTES: fuse_reply_buf(a->req, a->bytes, a->size); break;
    case ANSWER_COUNT: fuse_reply_write(a->req, a->size); break;
    case ANSWER_SIZE: fuse_reply_xattr(a->req, a->size); break;
    case ANSWER_TEXT: fuse_reply_readlink(a->req, a->bytes); break;
    case ANSWER_STATFS: fuse_reply_statfs(a->req, &a->space); break;
    case ANSWER_OFFSET: fuse_reply_lseek(a->req, a->offset); break;
    case ANSWER_LOCK: fuse_reply_lock(a->req, &a->lock); break;
    case ANSWER_IOCTL: fuse_reply_ioctl(a->req, a->result, a->bytes, a->size); break;
    }
  }
  if (opened && sent) /* nobody will release what nobody got */
    handle_free(m->server, (struct handle *)(uintptr_t)a->file.fh);
  free(a->bytes);
  atomic_fetch_sub(&m->calls, 1);
}

static void on_interrupt(fuse_req_t req, void *token) {
  struct mount *m = fuse_req_userdata(req);
  model_interrupt(m->server->model, (uint64_t)(uintptr_t)token);
}

static void waits(void *closure, uint64_t token) {
  fuse_req_interrupt_func(((struct answer *)closure)->req, on_interrupt, (void *)(uintptr_t)token);
}

void call_end(struct call *c, int err) {
  c->model.result = err;
  c->model.waits = waits;
  c->answer.err = -err;
  uint32_t *osts = c->more_osts;
  model_finish(c->server->model, &c->model, send_answer, &c->answer, sizeof c->answer);
  free(osts);
}

void call_stripes(struct call *c, const struct stripes *s) {
  if (s) {
    c->model.osts = s->osts;
    c->model.ost_count = s->ost_count;
  }
}

static void add_osts(struct call *c, const struct penstock_layout *l) {
  uint32_t count = 0, room = sizeof c->osts / sizeof *c->osts;
  uint32_t *to = c->osts;
  for (int pass = 0; pass < 2; pass++) {
    count = 0;
    for (uint32_t i = 0; i < l->count; i++) {
      struct penstock_component part;
      if (penstock_layout_component(l, i, &part) || (l->composite && !(part.flags & PENSTOCK_COMP_INIT)))
        continue;
      for (uint32_t k = 0; k < part.object_count; k++, count++)
        if (count < room)
          to[count] = (uint32_t)penstock_layout_ost(&part, k);
    }
    if (count <= room)
      break;
    if (!(c->more_osts = malloc(count * sizeof *to))) {
      count = room;
      break;
    }
    to = c->more_osts;
    room = count;
  }
  c->model.osts = to;
  c->model.ost_count = count;
}

void call_osts_of(struct call *c, const struct record *r) {
  if (!c->server->charged || !S_ISREG(r->mode) || r->byte_count == 0)
    return;
  uint8_t *far = NULL;
  const uint8_t *bytes = r->bytes;
  ssize_t size = (ssize_t)r->byte_count;
  if (r->byte_count > STORE_INLINE) {
    far = malloc(LOV_BYTES);
    size = far ? inode_bytes(c->server, r->ino, far, LOV_BYTES) : -ENOMEM;
    bytes = far;
  }
  struct penstock_layout l;
  if (size > 0 && penstock_layout_parse(bytes, (size_t)size, &l) == 0)
    add_osts(c, &l);
  free(far);
}

void call_entry(struct call *c, const struct record *r) {
  c->answer.kind = ANSWER_ENTRY;
  c->answer.entry = (struct fuse_entry_param){
    .ino = r->ino, .attr_timeout = seconds_kept(c->server), .entry_timeout = seconds_kept(c->server)};
  fill_stat(r, &c->answer.entry.attr);
  c->model.file_size = r->size_bytes;
  c->model.is_dir = S_ISDIR(r->mode);
}

void call_attr(struct call *c, const struct record *r) {
  c->answer.kind = ANSWER_ATTR;
  fill_stat(r, &c->answer.attr);
  c->model.file_size = r->size_bytes;
  c->model.is_dir = S_ISDIR(r->mode);
}
