// SPDX-License-Identifier: Apache-2.0
/* Which requests a call causes on Lustre: one function for each kind of call, each saying what was counted on a real one.
 * Reads, writes and fsync are in model_cache.c.
 *
 * FUSE asks in smaller steps than Lustre: a LOOKUP before each call by path.  A LOOKUP that finds nothing in the cache is
 * charged at once as the request it is by itself, but counted only with the thread's next call: an OPEN of what was just
 * looked up makes both together one open, a CREATE or MKDIR of the name just missed likewise.  The later request then
 * costs only what the first one has not paid.  Before an OPEN and after a CREATE the kernel asks for attributes to check
 * permissions: these are no stat. */
#include <errno.h>
#include <fcntl.h>

#include "testbed/model_internal.h"

enum { TRACK_LATEST = 5, NAMES_PER_PAGE = 21000 };
static const uint64_t SECOND = 1000000000;

static struct request *mds(struct build *b, int phase, enum request_kind kind, uint32_t md) {
  struct request *r = request_new(b, kind, b->mdt);
  r->md = md;
  request_add(b, phase, r);
  return r;
}

/* A request that takes in what the LOOKUP right before it did, if `merge`. */
static struct request *mds_merged(struct build *b, int phase, enum request_kind kind, uint32_t md, bool merge) {
  struct request *r = request_new(b, kind, b->mdt);
  r->md = md;
  if (merge && b->asked->uncounted) {
    r->less = b->asked->paid;
    b->asked->uncounted = false;
    b->asked->glimpses = 0;
  }
  request_add(b, phase, r);
  return r;
}

#define BIT(line) (1u << MD_##line)

static void forget_negatives(struct build *b, uint64_t dir) {
  struct held *own = held_find(b->m, b->call->client, dir);
  if (own)
    own->bits &= ~(uint32_t)HELD_LIST;
}

/* Clients that hold the listing of a folder that changes lose it. */
static uint64_t dir_changes(struct build *b, uint64_t dir) {
  forget_negatives(b, dir);
  return locks_revoke(b->m, dir, b->call->client, HELD_LIST) ? 2 * (uint64_t)b->m->set.v[SET_net_latency] : 0;
}

static uint64_t others_lose(struct build *b, uint64_t ino, uint32_t bits) {
  return locks_revoke(b->m, ino, b->call->client, bits) ? 2 * (uint64_t)b->m->set.v[SET_net_latency] : 0;
}

static void cancel(struct build *b) {
  struct request *r = request_new(b, R_CANCEL, b->mdt);
  request_add(b, -1, r);
}

static void callback(struct build *b) {
  count(b->m, b->call->client, R_CB, 1);
}

/* The objects go when the transaction is on disk. */
static void destroy(struct build *b) {
  for (uint32_t i = 0; i < b->call->ost_count; i++)
    request_later(b, request_new(b, R_DESTROY, b->call->osts[i]), (uint64_t)b->m->set.v[SET_mds_commit]);
}

/* ---- names ---- */

/* Whether this thread listed a folder that is still open, and asks for its names now. */
static bool walking(struct build *b, const struct asked *a, uint64_t folder) {
  struct held *h = a->scanned && a->scanned == folder ? held_find(b->m, b->call->client, folder) : NULL;
  return h && h->open[0].opens;
}

/* Names asked for in the order of a listing: after a few, one batch covers the next ones. */
static bool look_ahead(struct build *b, struct asked *a) {
  uint32_t most = (uint32_t)b->m->set.v[SET_client_statahead];
  if (!most || a->stats < TRACK_LATEST || !walking(b, a, b->call->parent))
    return false;
  if (!a->ahead) {
    static const uint32_t first[] = {8, 8, 16, 16, 32, 32};
    uint32_t size = a->batches < 6 ? first[a->batches] : 64;
    size = size < most ? size : most;
    a->batches++;
    a->ahead = size;
    struct jobid *who = b->who;
    b->who = NULL; /* such requests carry no job */
    struct request *r = request_new(b, R_BATCH, b->mdt);
    r->times = size;
    r->dir = b->call->parent;
    b->who = who;
    request_add(b, 0, r);
  }
  a->ahead--;
  stats_count(b->m, &b->m->mdts[b->mdt].stats, NULL, MD_GETATTR, 0);
  return true;
}

static void lookup(struct build *b) {
  const struct model_call *call = b->call;
  struct asked *a = b->asked;
  a->ino = call->ino;
  a->parent = call->parent;
  a->name = call->name;
  a->md = 0;
  a->walked = false;
  if (call->result < 0) {
    a->what = ASKED_MISSING;
    if (missing_known(b->m, call)) {
      return;
    }
    missing_note(b->m, call);
    a->kind = R_LOOKUP;
    a->ino = 0;
  } else {
    struct held *h = held_of(b->m, call->client, call->ino);
    a->what = h->bits & HELD_NAME ? ASKED_WARM : ASKED_COLD;
    if (h->bits & HELD_NAME)
      return;
    h->bits |= HELD_NAME | HELD_ATTR | HELD_LAYOUT | HELD_STRIPES;
    if (look_ahead(b, a))
      return;
    a->kind = R_GETATTR;
    a->md = BIT(GETATTR);
  }
  struct request *r = request_new(b, (enum request_kind)a->kind, b->mdt);
  r->uncounted = a->uncounted = true;
  r->dir = call->parent;
  a->paid = (uint64_t)b->m->mdts[b->mdt].v[SET_mds_cost_getattr];
  a->who = b->who;
  a->mdt = b->mdt;
  request_add(b, 0, r);
}

/* ---- attributes ---- */

static void getattr(struct build *b) {
  if (b->call->internal)
    return;
  if (b->asked->what == ASKED_CREATED && b->asked->ino == b->call->ino) { /* the kernel, finishing the open */
    b->asked->what = ASKED_NOTHING;
    return;
  }
  b->asked->walked = b->asked->ino == b->call->ino && walking(b, b->asked, b->asked->parent);
  b->asked->stats += b->asked->walked;
  if (!(b->held->bits & HELD_ATTR))
    mds(b, 0, R_GETATTR, BIT(GETATTR));
  b->held->bits |= HELD_ATTR;
  rule_glimpse(b, 0);
}

/* What every change of attributes begins with: the layout must be locked, here at least. */
static void setattr_request(struct build *b, uint32_t md) {
  if (b->call->ost_count && !(b->held->bits & HELD_LAYOUT))
    mds(b, 0, R_LAYOUT, 0);
  struct request *r = mds(b, 1, R_SETATTR, md);
  r->more = others_lose(b, b->call->ino, HELD_NAME | HELD_ATTR | HELD_LAYOUT);
  b->held->bits &= ~(uint32_t)(HELD_NAME | HELD_ATTR | HELD_LAYOUT);
  b->held->bits |= HELD_CHANGED;
}

static void security(struct build *b, int phase) {
  if (!(b->held->bits & (HELD_SECURITY | HELD_XATTR)))
    mds(b, phase, R_GETXATTR, BIT(GETXATTR));
  b->held->bits |= HELD_SECURITY;
}

static void setattr(struct build *b) {
  const struct model_call *call = b->call;
  if (call->flags & MODEL_SET_OWNER) {
    security(b, 0);
    for (uint32_t i = 0; i < call->ost_count; i++)
      request_later(b, request_new(b, R_CHOWN, call->osts[i]), (uint64_t)b->m->set.v[SET_mds_commit]);
  }
  setattr_request(b, BIT(SETATTR));
  if (!call->ost_count)
    return;
  if (call->flags == MODEL_SET_TIMES)
    ext_lock(b, 1, object_of(b->held, 0, call->osts[0]), EXT_WRITE);
  request_add(b, 2, request_new(b, R_OST_SETATTR, call->osts[0]));
}

static void truncate_file(struct build *b) {
  security(b, 0);
  setattr_request(b, BIT(SETATTR));
  rule_truncate_data(b, 1);
}

static void readlink_text(struct build *b) {
  if (!(b->held->bits & HELD_LINK))
    mds(b, 0, R_GETATTR_FD, BIT(GETATTR));
  b->held->bits |= HELD_LINK;
}

/* A client itself refuses ioctls and kinds of attributes that Lustre has not. */
static bool refused_here(const struct model_call *call) {
  return call->result == -ENOTTY || call->result == -EOPNOTSUPP;
}

static void getxattr(struct build *b) {
  if (refused_here(b->call))
    return;
  if (b->asked->ino == b->call->ino && b->asked->walked) { /* that GETATTR was the kernel's, for permission, and no stat */
    b->asked->walked = false;
    b->asked->stats--;
  }
  if (b->call->layout) {
    if (!(b->held->bits & (HELD_LAYOUT | HELD_STRIPES)))
      mds(b, 0, R_LAYOUT, 0);
    b->held->bits |= HELD_LAYOUT | HELD_STRIPES;
    return;
  }
  if (!(b->held->bits & HELD_XATTR))
    mds(b, 0, R_GETXATTR, BIT(GETXATTR));
  b->held->bits |= HELD_XATTR | HELD_SECURITY;
}

static void setxattr(struct build *b) {
  if (refused_here(b->call))
    return;
  struct request *r = mds(b, 0, R_SETATTR, BIT(SETXATTR));
  if (b->held->bits & (HELD_NAME | HELD_XATTR)) {
    callback(b);
    cancel(b);
  }
  r->more = others_lose(b, b->call->ino, HELD_NAME | HELD_XATTR);
  b->held->bits &= ~(uint32_t)(HELD_NAME | HELD_ATTR | HELD_XATTR | HELD_SECURITY);
  b->held->bits |= HELD_CHANGED;
}

/* ---- open and close ---- */

static int mode_of(int flags) {
  return (flags & O_ACCMODE) == O_RDONLY ? 0 : 1;
}

static uint32_t live(const struct open_count *o) {
  return o->opens - o->flushed;
}

/* The fifth opening of a file within a minute, or one right after a close, takes a lock with which the next cost nothing. */
static bool open_lock_pays(struct build *b) {
  struct held *h = b->held;
  uint64_t now = b->m->engine.now;
  if (!h->recent_opens || now - h->recent_since > 60 * SECOND) {
    h->recent_opens = 0;
    h->recent_since = now;
  }
  h->recent_opens++;
  return h->recent_opens >= 5 || (h->closed_at && now - h->closed_at < SECOND / 10);
}

/* Locks got by a glimpse that turns out to belong to this open: the kernel asked for permissions. */
static void undo_glimpses(struct build *b) {
  struct held *h = b->held;
  for (uint32_t i = 0; b->asked->glimpses && i < h->object_count; i++)
    if (h->objects[i] && h->objects[i]->glimpsed == b->asked->glimpse_call && h->objects[i]->lock == EXT_READ)
      h->objects[i]->lock = EXT_NONE;
  b->asked->glimpses = 0;
}

static void open_existing(struct build *b) {
  int mode = mode_of(b->call->flags);
  struct held *h = b->held;
  struct open_count *o = &h->open[mode];
  bool just = b->asked->ino == b->call->ino && b->asked->what != ASKED_NOTHING;
  if (just)
    undo_glimpses(b);
  bool first = !live(o);
  bool lock = mode == 0 && open_lock_pays(b);
  if (first && !(mode == 0 && h->bits & HELD_OPEN)) {
    bool cold = just && b->asked->what == ASKED_COLD;
    mds_merged(b, 0, R_OPEN, BIT(OPEN), cold);
    if (cold)
      h->bits &= ~(uint32_t)HELD_LAYOUT; /* an open tells the layout without its lock */
    else if (b->call->op == MODEL_OPEN)
      cancel(b);
    if (lock)
      h->bits |= HELD_OPEN;
    o->owed = !lock;
  }
  if (b->call->result < 0)
    return;
  o->opens++;
  h->bits |= HELD_NAME | HELD_ATTR | HELD_STRIPES;
}

static void create(struct build *b) {
  const struct model_call *call = b->call;
  bool missed = b->asked->what == ASKED_MISSING && b->asked->parent == call->parent && b->asked->name == call->name;
  struct request *r = mds_merged(b, 0, R_CREATE, BIT(MKNOD) | BIT(OPEN), missed);
  if (call->result < 0 || !b->held)
    return;
  r->more = dir_changes(b, call->parent);
  struct open_count *o = &b->held->open[mode_of(call->flags)];
  o->opens++;
  o->owed = true;
  b->held->recent_opens = 1;
  b->held->recent_since = b->m->engine.now;
  b->held->bits |= HELD_NAME | HELD_ATTR | HELD_SECURITY | HELD_CHANGED;
  if (call->ost_count)
    b->held->bits |= HELD_STRIPES;
  for (uint32_t i = 0; i < call->ost_count; i++) {
    struct ost *ost = &b->m->osts[call->osts[i]];
    if (++ost->precreated >= (uint32_t)b->m->set.v[SET_mds_precreate]) {
      ost->precreated = 0;
      request_add(b, -1, request_new(b, R_PRECREATE, call->osts[i]));
    }
  }
}

static void close_request(struct build *b, int phase, struct open_count *o) {
  if (!o->owed)
    return;
  o->owed = false;
  b->held->closed_at = b->m->engine.now;
  mds(b, phase, R_CLOSE, BIT(CLOSE));
}

/* close(2) waits for its request; what FUSE sends last comes later and in the background. */
static void flush(struct build *b) {
  struct open_count *o = &b->held->open[mode_of(b->call->flags)];
  if (live(o) != 1)
    return;
  close_request(b, 0, o);
  o->flushed++;
}

static void release(struct build *b) {
  struct open_count *o = &b->held->open[mode_of(b->call->flags)];
  if (!o->opens)
    return;
  o->opens--;
  if (o->flushed)
    o->flushed--;
  else if (!live(o))
    close_request(b, -1, o);
}

/* ---- folders ---- */

static void opendir_call(struct build *b) {
  open_existing(b);
  if (b->call->result == 0)
    b->held->listed = 0;
}

static void readdir_call(struct build *b) {
  struct held *h = b->held;
  uint64_t before = b->call->offset ? h->listed : 0;
  if (!b->call->offset) {
    h->listed = 0;
    b->asked->scanned = b->call->ino;
    b->asked->stats = b->asked->ahead = b->asked->batches = 0;
    b->asked->walked = false;
    if (!(h->bits & HELD_LIST)) {
      mds(b, 0, R_READDIR, 0);
      mds(b, 1, R_READPAGE, 0);
    }
  } else if (!(h->bits & HELD_LIST) && (before + b->call->size) / NAMES_PER_PAGE > before / NAMES_PER_PAGE) {
    mds(b, 0, R_READPAGE, 0);
  }
  h->listed = before + b->call->size;
  if (!b->call->size || !b->call->offset)
    h->bits |= HELD_LIST;
}

static void closedir_call(struct build *b) {
  release(b);
  if (b->asked->scanned == b->call->ino)
    b->asked->scanned = 0;
}

/* ---- making, moving and removing ---- */

static void make(struct build *b, uint32_t md) {
  const struct model_call *call = b->call;
  bool missed = b->asked->what == ASKED_MISSING && b->asked->parent == call->parent && b->asked->name == call->name;
  struct request *r = mds_merged(b, 0, R_MAKE, md, missed);
  if (call->result == 0)
    r->more = dir_changes(b, call->parent);
}

static void link_call(struct build *b) {
  mds(b, 0, R_GETXATTR, 0);
  if (b->held->bits & HELD_NAME) {
    callback(b);
    cancel(b);
  }
  make(b, BIT(LINK));
}

static void unlink_call(struct build *b) {
  const struct model_call *call = b->call;
  struct request *r = mds(b, 0, R_UNLINK, call->op == MODEL_RMDIR ? BIT(RMDIR) : BIT(UNLINK));
  if (call->result < 0)
    return;
  r->more = dir_changes(b, call->parent) + others_lose(b, call->ino, HELD_NAME | HELD_ATTR);
  if (b->held)
    b->held->bits &= ~(uint32_t)(HELD_NAME | HELD_ATTR);
  if (!call->last)
    return;
  for (uint32_t i = 0; b->held && i < b->held->object_count; i++) {
    struct object *o = b->held->objects[i];
    if (o && (o->dirty || o->lock == EXT_WRITE)) {
      callback(b);
      request_add(b, -1, request_new(b, R_OST_CANCEL, o->ost));
    }
    if (o)
      object_forget(b->m, o, true);
  }
  destroy(b);
}

static void rename_call(struct build *b) {
  const struct model_call *call = b->call;
  bool across = call->parent != call->parent2;
  uint32_t md = BIT(RENAME) | (across ? BIT(CROSSDIR) : BIT(SAMEDIR)) | (call->is_dir ? BIT(RENAME_DIR) : BIT(RENAME_FILE)) |
                (across && call->is_dir ? BIT(TRYLOCKS) : 0);
  struct request *r = mds(b, 0, R_RENAME, md);
  if (call->result < 0)
    return;
  r->more = dir_changes(b, call->parent) + (across ? dir_changes(b, call->parent2) : 0) +
            others_lose(b, call->ino, HELD_NAME | HELD_ATTR);
  if (b->held)
    b->held->bits &= ~(uint32_t)(HELD_NAME | HELD_ATTR);
  if (!call->ino2)
    return;
  struct held *replaced = held_find(b->m, call->client, call->ino2);
  for (uint32_t i = 0; replaced && i < replaced->object_count; i++)
    if (replaced->objects[i])
      object_forget(b->m, replaced->objects[i], true);
  if (replaced)
    replaced->bits &= ~(uint32_t)(HELD_NAME | HELD_ATTR);
  destroy(b);
}

/* ---- layouts ---- */

/* Setting a layout by xattr is an open and a close of its own. */
static void setstripe(struct build *b) {
  if (b->call->is_dir) {
    mds(b, 0, R_SETATTR, BIT(SETXATTR));
    return;
  }
  mds(b, 0, R_OPEN, BIT(OPEN));
  if (b->call->flags)
    mds(b, 1, R_LAYOUT, 0);
  mds(b, 2, R_CLOSE, BIT(CLOSE));
  callback(b);
  cancel(b);
  b->held->bits &= ~(uint32_t)(HELD_NAME | HELD_ATTR | HELD_LAYOUT | HELD_STRIPES | HELD_SECURITY | HELD_XATTR);
}

static void instantiate(struct build *b) {
  mds(b, 0, R_LAYOUT, 0);
  callback(b);
  others_lose(b, b->call->ino, HELD_LAYOUT);
  b->held->bits |= HELD_STRIPES;
}

/* ---- the rest ---- */

static void statfs_call(struct build *b) {
  struct client *c = &b->m->clients[b->call->client];
  if (c->statfs_at && b->m->engine.now - c->statfs_at < SECOND)
    return;
  c->statfs_at = b->m->engine.now ? b->m->engine.now : 1;
  mds(b, 0, R_STATFS, BIT(STATFS));
}

static void lseek_call(struct build *b) {
  if (b->call->ost_count)
    request_add(b, 0, request_new(b, R_SEEK, b->call->osts[0]));
}

static void lock_call(struct build *b) {
  if (b->m->set.v[SET_client_flock] == FLOCK_SERVER)
    mds(b, 0, R_FLOCK, 0);
}

/* Whether a call says what became of the LOOKUP before it, so that this is not counted by itself. */
static bool continues(const struct model_call *call, const struct asked *a) {
  switch (call->op) {
    case MODEL_CREATE:
    case MODEL_MKDIR:
    case MODEL_MKNOD:
    case MODEL_SYMLINK:
    case MODEL_LINK:
      return a->what == ASKED_MISSING && a->parent == call->parent && a->name == call->name;
    case MODEL_GETATTR: /* perhaps of an open: its glimpses are put off as well; or may the folder be changed? */
      if (a->what == ASKED_MISSING && call->ino == a->parent)
        return true;
      return a->ino == call->ino && (a->what == ASKED_COLD || a->what == ASKED_WARM);
    case MODEL_OPEN:
    case MODEL_OPENDIR:
      return a->ino == call->ino && (a->what == ASKED_COLD || a->what == ASKED_WARM);
    default:
      return false;
  }
}

static void dispatch(struct build *b) {
  switch (b->call->op) {
    case MODEL_LOOKUP: lookup(b); break;
    case MODEL_GETATTR: getattr(b); break;
    case MODEL_SETATTR: setattr(b); break;
    case MODEL_TRUNCATE: truncate_file(b); break;
    case MODEL_READLINK: readlink_text(b); break;
    case MODEL_CREATE: create(b); break;
    case MODEL_OPEN: open_existing(b); break;
    case MODEL_CLOSE: release(b); break;
    case MODEL_FLUSH: flush(b); break;
    case MODEL_MKNOD:
    case MODEL_SYMLINK: make(b, BIT(MKNOD)); break;
    case MODEL_MKDIR: make(b, BIT(MKDIR)); break;
    case MODEL_LINK: link_call(b); break;
    case MODEL_UNLINK:
    case MODEL_RMDIR: unlink_call(b); break;
    case MODEL_RENAME: rename_call(b); break;
    case MODEL_OPENDIR: opendir_call(b); break;
    case MODEL_READDIR: readdir_call(b); break;
    case MODEL_CLOSEDIR: closedir_call(b); break;
    case MODEL_GETXATTR:
    case MODEL_LISTXATTR: getxattr(b); break;
    case MODEL_SETXATTR:
    case MODEL_REMOVEXATTR: setxattr(b); break;
    case MODEL_SETSTRIPE: setstripe(b); break;
    case MODEL_GETSTRIPE: mds(b, 0, R_GETATTR_FD, BIT(GETATTR)); break;
    case MODEL_STATFS: statfs_call(b); break;
    case MODEL_LOCK: lock_call(b); break;
    case MODEL_FSYNC: rule_fsync(b); break;
    case MODEL_FSYNCDIR: mds(b, 0, R_SYNC, BIT(SYNC)); break;
    case MODEL_READ: rule_read(b); break;
    case MODEL_WRITE: rule_write(b); break;
    case MODEL_FALLOCATE: rule_fallocate(b); break;
    case MODEL_LSEEK: lseek_call(b); break;
    case MODEL_INSTANTIATE: instantiate(b); break;
    case MODEL_FORGET_NAME:
    case MODEL_OPS: break;
  }
}

static bool about_names(enum model_op op) {
  return op == MODEL_LOOKUP || op == MODEL_CREATE || op == MODEL_MKNOD || op == MODEL_SYMLINK || op == MODEL_MKDIR ||
         op == MODEL_UNLINK || op == MODEL_RMDIR || op == MODEL_RENAME || op == MODEL_LINK;
}

void rules(struct build *b) {
  struct model *m = b->m;
  const struct model_call *call = b->call;
  m->calls++;
  b->process = process_of(call);
  b->asked = asked_of(m, call->client, call->pid);
  b->mdt = (uint32_t)((about_names(call->op) ? call->parent : call->ino) % m->mdt_count);
  b->asked->at = m->engine.now + 1;
  bool background = call->op == MODEL_CLOSE || call->op == MODEL_CLOSEDIR || call->op == MODEL_READ ||
                    call->op == MODEL_WRITE || call->internal;
  if (call->ino && call->op != MODEL_STATFS && call->op != MODEL_LOOKUP)
    b->held = held_of(m, call->client, call->ino);
  if (call->op == MODEL_GETXATTR && b->asked->ino == call->ino)
    undo_glimpses(b); /* by a GETATTR for permission */
  if (!background && !continues(call, b->asked))
    asked_settle(m, b->asked);
  if (!b->held && !(call->op == MODEL_LOOKUP || call->op == MODEL_STATFS || about_names(call->op)))
    return;
  dispatch(b);
  if (call->op == MODEL_CREATE) {
    b->asked->what = ASKED_CREATED;
    b->asked->ino = call->ino;
  } else if (!background && call->op != MODEL_LOOKUP && call->op != MODEL_GETATTR) {
    b->asked->what = ASKED_NOTHING;
  }
}
