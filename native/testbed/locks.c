// SPDX-License-Identifier: Apache-2.0
/* Advisory locks, one table for all mounts: flock and fcntl locks of different clients exclude each other, as on a
 * Lustre mounted with `flock`.
 *
 * Invariants:
 * 1. One mutex guards all; no answer is sent under it.
 * 2. A call that must wait stands in its file's queue; whatever gives ground back goes through the queue in order.
 * 3. The interrupt handler of a waiting call is set before it queues and taken away before its answer, so that it never
 *    sees a waiter that is gone.
 * 4. A wait that would close a circle of waiting owners is refused: EDEADLK (fcntl locks only).
 */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

enum { BUCKETS = 256 };

struct owner {
  const struct mount *mount;
  uint64_t id;
  bool flock; /* flock and fcntl locks do not see each other */
};

struct held {
  struct held *next;
  struct owner owner;
  bool write;
  uint64_t start, end; /* end is the last byte */
  int32_t pid;
};

struct waiter {
  struct waiter *next;
  struct server *server;
  struct file_locks *file;
  struct call call;
  struct held want;
  bool queued, interrupted;
};

struct file_locks {
  struct file_locks *next;
  uint64_t ino;
  struct held *held;
  struct waiter *waiting;
};

struct locks {
  pthread_mutex_t mutex;
  struct file_locks *files[BUCKETS];
};

struct locks *locks_new(void) {
  struct locks *l = calloc(1, sizeof *l);
  if (l)
    pthread_mutex_init(&l->mutex, NULL);
  return l;
}

static struct file_locks *file_of(struct locks *l, uint64_t ino, bool make) {
  struct file_locks **at = &l->files[ino % BUCKETS];
  while (*at && (*at)->ino != ino) at = &(*at)->next;
  if (!*at && make && (*at = calloc(1, sizeof **at)))
    (*at)->ino = ino;
  return *at;
}

static void drop_if_empty(struct locks *l, struct file_locks *f) {
  if (f->held || f->waiting)
    return;
  struct file_locks **at = &l->files[f->ino % BUCKETS];
  while (*at != f) at = &(*at)->next;
  *at = f->next;
  free(f);
}

static bool same(const struct owner *a, const struct owner *b) {
  return a->mount == b->mount && a->id == b->id && a->flock == b->flock;
}

/* The first lock in the way. */
static const struct held *conflict(const struct file_locks *f, const struct held *want) {
  for (const struct held *h = f ? f->held : NULL; h; h = h->next)
    if (h->owner.flock == want->owner.flock && !same(&h->owner, &want->owner) && (h->write || want->write) &&
        h->start <= want->end && want->start <= h->end)
      return h;
  return NULL;
}

/* The owner's locks in a range go; what stands out on either side stays. */
static int clear(struct file_locks *f, const struct owner *owner, uint64_t start, uint64_t end) {
  for (struct held **at = &f->held; *at;) {
    struct held *h = *at;
    if (!same(&h->owner, owner) || h->end < start || end < h->start) {
      at = &h->next;
    } else if (h->start < start && h->end > end) {
      struct held *right = malloc(sizeof *right);
      if (!right)
        return -ENOLCK;
      *right = *h;
      right->start = end + 1;
      h->end = start - 1;
      h->next = right;
      at = &right->next;
    } else if (h->start < start) {
      h->end = start - 1;
      at = &h->next;
    } else if (h->end > end) {
      h->start = end + 1;
      at = &h->next;
    } else {
      *at = h->next;
      free(h);
    }
  }
  return 0;
}

static int grant(struct file_locks *f, const struct held *want) {
  struct held *h = malloc(sizeof *h);
  if (!h)
    return -ENOLCK;
  int err = clear(f, &want->owner, want->start, want->end);
  if (err) {
    free(h);
    return err;
  }
  *h = *want;
  h->next = f->held;
  f->held = h;
  return 0;
}

/* What this owner is waiting for; under the mutex. */
static const struct waiter *waiting_of(const struct locks *l, const struct owner *owner) {
  for (int i = 0; i < BUCKETS; i++)
    for (const struct file_locks *f = l->files[i]; f; f = f->next)
      for (const struct waiter *w = f->waiting; w; w = w->next)
        if (same(&w->want.owner, owner))
          return w;
  return NULL;
}

static bool would_circle(const struct locks *l, const struct held *blocker, const struct owner *me) {
  for (int steps = 0; blocker && steps < 64; steps++) {
    if (same(&blocker->owner, me))
      return true;
    const struct waiter *w = waiting_of(l, &blocker->owner);
    blocker = w ? conflict(w->file, &w->want) : NULL;
  }
  return false;
}

/* Takes those out of the queue that can go on now, and those of a mount that is gone (NULL: none is); they are answered
 * by `answer_all`. */
static struct waiter *wake(struct file_locks *f, const struct mount *gone) {
  struct waiter *ready = NULL, **end = &ready;
  for (struct waiter **at = &f->waiting; *at;) {
    struct waiter *w = *at;
    bool lost = gone && w->call.mount == gone;
    if (!lost && conflict(f, &w->want)) {
      at = &w->next;
      continue;
    }
    *at = w->next;
    w->queued = false;
    w->next = NULL;
    w->call.model.result = lost ? -ENOTCONN : grant(f, &w->want);
    *end = w;
    end = &w->next;
  }
  return ready;
}

static void answer_all(struct waiter *ready) {
  while (ready) {
    struct waiter *next = ready->next;
    fuse_req_interrupt_func(ready->call.answer.req, NULL, NULL);
    call_end(&ready->call, ready->call.model.result);
    free(ready);
    ready = next;
  }
}

static void on_interrupt(fuse_req_t req, void *closure) {
  (void)req;
  struct waiter *w = closure;
  struct locks *l = w->server->locks;
  pthread_mutex_lock(&l->mutex);
  bool mine = w->queued;
  w->interrupted = true;
  if (mine) {
    struct waiter **at = &w->file->waiting;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    w->queued = false;
    drop_if_empty(l, w->file);
  }
  pthread_mutex_unlock(&l->mutex);
  if (mine) {
    call_end(&w->call, -EINTR);
    free(w);
  }
}

/* Queues the call until the way is free.  It has been answered, or will be. */
static void wait_for(struct call *c, uint64_t ino, const struct held *want) {
  struct locks *l = c->server->locks;
  struct waiter *w = calloc(1, sizeof *w);
  if (!w) {
    call_end(c, -ENOLCK);
    return;
  }
  w->server = c->server;
  w->call = *c;
  w->want = *want;
  fuse_req_interrupt_func(c->answer.req, on_interrupt, w);
  pthread_mutex_lock(&l->mutex);
  w->file = file_of(l, ino, true);
  const struct held *blocker = conflict(w->file, want);
  int err = w->interrupted ? -EINTR : !w->file ? -ENOLCK : 0;
  bool waits = !err && blocker;
  if (waits && !want->owner.flock && would_circle(l, blocker, &want->owner)) {
    err = -EDEADLK;
    waits = false;
  }
  if (waits) {
    struct waiter **at = &w->file->waiting;
    while (*at) at = &(*at)->next;
    *at = w;
    w->queued = true;
  } else if (!err) {
    err = grant(w->file, want);
  }
  pthread_mutex_unlock(&l->mutex);
  if (waits)
    return;
  fuse_req_interrupt_func(c->answer.req, NULL, NULL);
  call_end(&w->call, err);
  free(w);
}

/* Locks, or unlocks when `unlock`; waits when `sleep`. */
static void change(struct call *c, uint64_t ino, const struct held *want, bool unlock, bool sleep) {
  struct locks *l = c->server->locks;
  struct waiter *ready = NULL;
  pthread_mutex_lock(&l->mutex);
  struct file_locks *f = file_of(l, ino, !unlock);
  int err = 0;
  bool blocked = !unlock && conflict(f, want);
  if (unlock && f) {
    err = clear(f, &want->owner, want->start, want->end);
    ready = wake(f, NULL);
    drop_if_empty(l, f);
  } else if (!unlock && !f) {
    err = -ENOLCK;
  } else if (!unlock && !blocked) {
    err = grant(f, want);
    ready = wake(f, NULL); /* a lock made weaker may let others in */
  }
  pthread_mutex_unlock(&l->mutex);
  answer_all(ready);
  if (blocked && sleep)
    wait_for(c, ino, want);
  else
    call_end(c, blocked ? -EAGAIN : err);
}

static void drop(struct server *s, uint64_t ino, const struct owner *owner) {
  struct locks *l = s->locks;
  struct waiter *ready = NULL;
  pthread_mutex_lock(&l->mutex);
  struct file_locks *f = file_of(l, ino, false);
  if (f) {
    clear(f, owner, 0, UINT64_MAX);
    ready = wake(f, NULL);
    drop_if_empty(l, f);
  }
  pthread_mutex_unlock(&l->mutex);
  answer_all(ready);
}

void locks_drop_owner(struct server *s, const struct mount *m, uint64_t ino, uint64_t owner, bool flock) {
  drop(s, ino, &(struct owner){m, owner, flock});
}

void locks_drop_mount(struct server *s, const struct mount *m) {
  struct locks *l = s->locks;
  for (int i = 0; i < BUCKETS; i++) {
    struct waiter *ready = NULL;
    pthread_mutex_lock(&l->mutex);
    for (struct file_locks *f = l->files[i], *next; f; f = next) {
      next = f->next;
      for (struct held **at = &f->held; *at;) {
        struct held *h = *at;
        if (h->owner.mount != m) {
          at = &h->next;
          continue;
        }
        *at = h->next;
        free(h);
      }
      struct waiter *more = wake(f, m), **end = &more;
      while (*end) end = &(*end)->next;
      *end = ready;
      ready = more;
      drop_if_empty(l, f);
    }
    pthread_mutex_unlock(&l->mutex);
    answer_all(ready);
  }
}

/* ---- handlers ---- */

static struct held range_of(struct call *c, const struct fuse_file_info *fi, const struct flock *lock) {
  uint64_t start = (uint64_t)lock->l_start;
  return (struct held){
    .owner = {c->mount, fi->lock_owner, false},
    .write = lock->l_type == F_WRLCK,
    .start = start,
    .end = lock->l_len == 0 ? UINT64_MAX : start + (uint64_t)lock->l_len - 1,
    .pid = lock->l_pid,
  };
}

static void on_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock) {
  struct call c;
  call_begin(&c, req, MODEL_LOCK, ino);
  struct locks *l = c.server->locks;
  struct held want = range_of(&c, fi, lock);
  c.answer.kind = ANSWER_LOCK;
  c.answer.lock = *lock;
  pthread_mutex_lock(&l->mutex);
  const struct held *h = conflict(file_of(l, ino, false), &want);
  c.answer.lock.l_type = h ? (h->write ? F_WRLCK : F_RDLCK) : F_UNLCK;
  if (h) {
    c.answer.lock.l_start = (off_t)h->start;
    c.answer.lock.l_len = h->end == UINT64_MAX ? 0 : (off_t)(h->end - h->start + 1);
    c.answer.lock.l_pid = h->pid;
  }
  pthread_mutex_unlock(&l->mutex);
  call_end(&c, 0);
}

static void on_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep) {
  struct call c;
  call_begin(&c, req, MODEL_LOCK, ino);
  struct held want = range_of(&c, fi, lock);
  change(&c, ino, &want, lock->l_type == F_UNLCK, sleep);
}

static void on_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op) {
  struct call c;
  call_begin(&c, req, MODEL_LOCK, ino);
  struct held want = {
    .owner = {c.mount, fi->lock_owner, true}, .write = op & LOCK_EX, .end = UINT64_MAX, .pid = (int32_t)c.model.pid};
  change(&c, ino, &want, op & LOCK_UN, !(op & LOCK_NB));
}

void locks_ops(struct fuse_lowlevel_ops *ops) {
  ops->getlk = on_getlk;
  ops->setlk = on_setlk;
  ops->flock = on_flock;
}
