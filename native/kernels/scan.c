// SPDX-License-Identifier: Apache-2.0
/* The scan: see scan.h.

   Folders that wait lie on one stack, under one mutex; a thread takes the one on top, reads it, and puts the folders it
   found on top.  Everything read goes into the thread's own batch.  The mutex is held for a few instructions a folder. */
#include "kernels/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { LIST_BYTES = 1 << 17, VALUE_BYTES = 1 << 16, STEP_BYTES = 2048, PROBLEMS_MAX = 1 << 16 };

/* A folder kept open for those in it that wait. */
struct held {
  int fd;
  _Atomic unsigned users;
};

struct item {
  struct item *next;
  struct held *from;   /* NULL: open from the root */
  uint32_t name_at;    /* where the last name begins */
  uint32_t size;
  bool known;          /* times and device stand */
  bool left_out;
  bool check; /* list it only if its times are not these */
  struct penstock_time mtime, ctime;
  uint64_t dev;
  char path[];
};

/* A folder that was listed again because it changed: its own entry, for its parent's. */
struct changed {
  struct changed *next;
  struct penstock_entry attrs;
  uint32_t size, name_at;
  char path[];
};

struct problem {
  struct problem *next;
  enum penstock_problem what;
  int err;
  uint32_t size;
  char path[];
};

struct worker {
  struct penstock_scan *scan;
  unsigned id;
  pthread_t thread;
  struct penstock_batch *batch;
  char *list, *value, *path, *parts;
  size_t path_room;
  uint64_t calls, waited_ns;
};

struct penstock_scan {
  struct penstock_scan_options o;
  int root;
  uint64_t root_dev;
  pthread_mutex_t mutex;
  pthread_cond_t work, rest; /* there is work; a thread came to rest */
  struct item *stack;
  uint64_t waiting;
  unsigned working, active, threads;
  _Atomic bool stop;
  bool pause;
  int err;
  struct problem *problems;
  uint64_t problem_count;
  const struct penstock_view *view; /* what is known already */
  int64_t tick_ns;
  bool full;
  struct changed *changed;
  struct worker *worker;
  _Atomic uint64_t entries, folders, calls, told, moved, waited_ns;
  _Atomic unsigned held;
  _Atomic int64_t next_call_ns;
};

static int64_t now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits until a call may be made under the rate. */
static void pace(struct penstock_scan *s) {
  if (s->o.rate_per_s <= 0)
    return;
  int64_t gap = (int64_t)(1e9 / s->o.rate_per_s), now = now_ns(CLOCK_MONOTONIC);
  int64_t due = atomic_load(&s->next_call_ns), mine;
  do {
    mine = due > now - 10000000 ? due : now; /* what was not used for 10 ms is lost */
  } while (!atomic_compare_exchange_weak(&s->next_call_ns, &due, mine + gap));
  while (mine > now && !s->stop) {
    int64_t left = mine - now < 100000000 ? mine - now : 100000000;
    struct timespec t = {left / 1000000000, left % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
    now = now_ns(CLOCK_MONOTONIC);
  }
}

static void call(struct worker *w) {
  w->calls++;
  pace(w->scan);
}

/* ---- problems ---- */

static void tell(struct penstock_scan *s, enum penstock_problem what, int err, const char *path, size_t size,
                 const char *name, size_t name_size) {
  struct problem *p = malloc(sizeof *p + size + 1 + name_size);
  atomic_fetch_add(what == PENSTOCK_PROBLEM_MOVED ? &s->moved : &s->told, 1);
  if (!p)
    return;
  *p = (struct problem){.what = what, .err = err};
  memcpy(p->path, path, size);
  if (name_size && size)
    p->path[size++] = '/';
  if (name_size)
    memcpy(p->path + size, name, name_size);
  p->size = (uint32_t)(size + name_size);
  pthread_mutex_lock(&s->mutex);
  bool kept = s->problem_count < PROBLEMS_MAX;
  if (kept) {
    p->next = s->problems;
    s->problems = p;
    s->problem_count++;
  }
  pthread_mutex_unlock(&s->mutex);
  if (!kept)
    free(p);
}

/* ---- folders that wait ---- */

static void let_go(struct penstock_scan *s, struct held *h) {
  if (h && atomic_fetch_sub(&h->users, 1) == 1) {
    close(h->fd);
    free(h);
    atomic_fetch_sub(&s->held, 1);
  }
}

static struct item *new_item(const char *path, size_t size, const char *name, size_t name_size) {
  size_t at = size && name_size ? size + 1 : size;
  struct item *it = malloc(sizeof *it + at + name_size + 1);
  if (!it)
    return NULL;
  *it = (struct item){.name_at = (uint32_t)at, .size = (uint32_t)(at + name_size)};
  memcpy(it->path, path, size);
  if (at > size)
    it->path[size] = '/';
  memcpy(it->path + at, name, name_size);
  it->path[it->size] = 0;
  return it;
}

/* Puts a chain of folders on the stack, the first on top. */
static void push_chain(struct penstock_scan *s, struct item *first, struct item *last, uint64_t count) {
  pthread_mutex_lock(&s->mutex);
  last->next = s->stack;
  s->stack = first;
  s->waiting += count;
  if (count == 1 && s->active == s->threads)
    pthread_cond_signal(&s->work);
  else
    pthread_cond_broadcast(&s->work); /* a thread that may not work must not be the one that is woken */
  pthread_mutex_unlock(&s->mutex);
}

static void fail(struct penstock_scan *s, int err) {
  pthread_mutex_lock(&s->mutex);
  if (!s->err)
    s->err = err;
  s->stop = true;
  pthread_cond_broadcast(&s->work);
  pthread_cond_broadcast(&s->rest);
  pthread_mutex_unlock(&s->mutex);
}

static struct item *next_item(struct worker *w) {
  struct penstock_scan *s = w->scan;
  struct item *it = NULL;
  pthread_mutex_lock(&s->mutex);
  while (!s->stop && (s->pause || !s->stack || w->id >= s->active))
    pthread_cond_wait(&s->work, &s->mutex);
  if (!s->stop) {
    it = s->stack;
    s->stack = it->next;
    s->waiting--;
    s->working++;
  }
  pthread_mutex_unlock(&s->mutex);
  return it;
}

static void item_done(struct penstock_scan *s) {
  pthread_mutex_lock(&s->mutex);
  if (--s->working == 0)
    pthread_cond_broadcast(&s->rest);
  pthread_mutex_unlock(&s->mutex);
}

/* ---- opening ---- */

static int open_one(struct worker *w, int from, const char *name) {
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  call(w);
  int fd = openat(from, name, flags | O_NOATIME);
  if (fd < 0 && errno == EPERM)
    fd = openat(from, name, flags);
  return fd;
}

/* Opens a path below the root piece by piece, so that its length does not matter. */
static int open_path(struct worker *w, const char *path, size_t size) {
  char piece[STEP_BYTES];
  int fd = fcntl(w->scan->root, F_DUPFD_CLOEXEC, 0);
  for (size_t at = 0; fd >= 0 && at < size;) {
    size_t end = size;
    if (end - at >= STEP_BYTES) { /* as many names as fit */
      const char *slash = memrchr(path + at, '/', STEP_BYTES - 1);
      end = slash ? (size_t)(slash - path) : size;
    }
    if (end - at >= STEP_BYTES) {
      close(fd);
      errno = ENAMETOOLONG;
      return -1;
    }
    memcpy(piece, path + at, end - at);
    piece[end - at] = 0;
    int next = open_one(w, fd, piece), err = errno;
    close(fd);
    errno = err;
    fd = next;
    at = end + 1;
  }
  if (size == 0 && fd >= 0) { /* the root: a position of its own */
    int own = open_one(w, fd, "."), err = errno;
    close(fd);
    errno = err;
    fd = own;
  }
  return fd;
}

static int open_item(struct worker *w, struct item *it) {
  int fd = it->from ? open_one(w, it->from->fd, it->path + it->name_at) : open_path(w, it->path, it->size);
  int err = errno;
  let_go(w->scan, it->from);
  it->from = NULL;
  errno = err;
  return fd;
}

/* ---- entries ---- */

static struct penstock_time time_of(const struct statx_timestamp *t) { return (struct penstock_time){t->tv_sec, t->tv_nsec}; }

static bool same_time(struct penstock_time a, struct penstock_time b) { return a.s == b.s && a.ns == b.ns; }

static uint64_t dev_of(const struct statx *x) { return makedev(x->stx_dev_major, x->stx_dev_minor); }

static int stat_at(struct worker *w, int fd, const char *name, struct statx *x) {
  int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH) | (w->scan->o.lazy ? AT_STATX_DONT_SYNC : 0);
  call(w);
  return statx(fd, name, flags, STATX_BASIC_STATS | STATX_BTIME, x);
}

static uint32_t generation_of(const struct statx *x) {
  return x->stx_mask & STATX_BTIME ? penstock_generation(x->stx_btime.tv_sec, x->stx_btime.tv_nsec) : 0;
}

void penstock_entry_fill(struct penstock_entry *e, const struct statx *x) {
  *e = (struct penstock_entry){
    .ino = x->stx_ino,
    .size = x->stx_size,
    .blocks = x->stx_blocks,
    .mtime = time_of(&x->stx_mtime),
    .ctime = time_of(&x->stx_ctime),
    .atime = time_of(&x->stx_atime),
    .generation = generation_of(x),
    .mode = x->stx_mode,
    .uid = x->stx_uid,
    .gid = x->stx_gid,
    .nlink = x->stx_nlink,
  };
  if (S_ISCHR(e->mode) || S_ISBLK(e->mode))
    e->rdev = makedev(x->stx_rdev_major, x->stx_rdev_minor);
}

static uint32_t mode_of_type(unsigned char type) {
  return type == DT_UNKNOWN ? 0 : (uint32_t)DTTOIF(type);
}

static void read_target(struct worker *w, int fd, const char *name, struct penstock_draft *d) {
  call(w);
  ssize_t size = readlinkat(fd, name, w->value, VALUE_BYTES - 1);
  if (size >= 0) {
    d->target = w->value;
    d->target_size = (size_t)size;
  }
}

/* The layout; EOPNOTSUPP and ENODATA mean that the file has none. */
static int read_layout(struct worker *w, int fd, const char *name, struct penstock_draft *d) {
  char path[32 + NAME_MAX + 1];
  int length = snprintf(path, sizeof path, "/proc/self/fd/%d/%s", fd, name);
  if (length < 0 || (size_t)length >= sizeof path)
    return ENAMETOOLONG;
  call(w);
  ssize_t size = lgetxattr(path, w->scan->o.layout, w->value, VALUE_BYTES - 1);
  if (size < 0)
    return errno == ENODATA || errno == EOPNOTSUPP || errno == ENOENT ? 0 : errno;
  d->layout = w->value;
  d->layout_size = (size_t)size;
  return 0;
}

/* What one folder's listing knows. */
struct listing {
  struct item *it;
  int fd;
  struct held *held;
  struct item *first, *last; /* folders found, in order */
  uint64_t found, count;
  uint64_t dev;
  bool lost, excluded;
};

/* The path of a name, into w->path. */
static bool path_of(struct worker *w, const struct listing *l, const char *name, size_t name_size) {
  size_t size = l->it->size;
  if (size + name_size + 2 > w->path_room) {
    char *more = realloc(w->path, size + name_size + 256);
    if (!more)
      return false;
    w->path = more;
    w->path_room = size + name_size + 256;
  }
  memcpy(w->path, l->it->path, size);
  if (size)
    w->path[size++] = '/';
  memcpy(w->path + size, name, name_size);
  w->path[size + name_size] = 0;
  return true;
}

bool penstock_excluded(const char *const *patterns, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  for (const char *const *p = patterns; p && *p; p++) {
    bool whole = strchr(*p, '/') != NULL;
    if (fnmatch(**p == '/' ? *p + 1 : *p, whole ? path : name, whole ? FNM_PATHNAME : 0) == 0)
      return true;
  }
  return false;
}

static bool is_excluded(struct worker *w, const struct listing *l, const char *name) {
  const char *const *p = w->scan->o.exclude;
  return p && *p && path_of(w, l, name, strlen(name)) && penstock_excluded(p, w->path);
}

static int add_folder(struct worker *w, struct listing *l, const char *name, const struct statx *x) {
  struct penstock_scan *s = w->scan;
  struct item *it = new_item(l->it->path, l->it->size, name, strlen(name));
  if (!it)
    return -ENOMEM;
  it->known = true;
  it->mtime = time_of(&x->stx_mtime);
  it->ctime = time_of(&x->stx_ctime);
  it->dev = dev_of(x);
  it->left_out = s->o.one_file_system && it->dev != s->root_dev;
  if (!l->held && atomic_load(&s->held) < s->o.held_max && (l->held = malloc(sizeof *l->held))) {
    *l->held = (struct held){.fd = l->fd, .users = 1};
    atomic_fetch_add(&s->held, 1);
  }
  if (l->held) {
    atomic_fetch_add(&l->held->users, 1);
    it->from = l->held;
  }
  if (l->last)
    l->last->next = it;
  else
    l->first = it;
  l->last = it;
  l->found++;
  return 0;
}

static int64_t ns_of(struct penstock_time t) { return t.s > INT64_MAX / 1000000000 - 1 ? INT64_MAX : t.s * 1000000000 + t.ns; }

/* May it have changed after it was learnt without its times showing it? */
static bool is_racy(const struct penstock_scan *s, const struct penstock_entry *e, int64_t learnt_ns) {
  int64_t last = ns_of(e->mtime) > ns_of(e->ctime) ? ns_of(e->mtime) : ns_of(e->ctime);
  return last > learnt_ns - s->tick_ns;
}

static int known_part(const struct penstock_index *in, const struct penstock_entry *e, enum penstock_part kind, char *room, const void **bytes, size_t *size) {
  ssize_t have = penstock_index_part(in, e, kind, room, VALUE_BYTES - 1);
  if (have == -ENODATA)
    return 0;
  *bytes = room;
  *size = have < 0 ? 0 : (size_t)have;
  return have < 0 ? (int)have : 0;
}

/* The entry of a name as the view has it: 1 if it has it.  The path stands in w->path. */
static int look_up(struct worker *w, const struct listing *l, const char *name, size_t name_size, struct penstock_entry *e, const struct penstock_index **in) {
  size_t size = l->it->size;
  if (!w->scan->view || !path_of(w, l, name, name_size))
    return 0;
  size += (size ? 1 : 0) + name_size;
  return penstock_view_find(w->scan->view, w->path, size, e, in) == 0;
}

/* Takes an entry from what is known, with its parts, without asking the file system: 1 if that may be done. */
static int take_known(struct worker *w, struct listing *l, const struct dirent64 *de, struct penstock_draft *d) {
  struct penstock_scan *s = w->scan;
  const struct penstock_index *in;
  struct penstock_row row;
  struct penstock_entry *e = &d->attrs;
  if (s->full || de->d_type == DT_DIR || de->d_type == DT_UNKNOWN || !look_up(w, l, de->d_name, d->name_size, e, &in))
    return 0;
  if (e->ino != de->d_ino || mode_of_type(de->d_type) != (e->mode & S_IFMT) || e->flags & PENSTOCK_DOUBT ||
      penstock_index_row(in, e->folder, &row) < 0)
    return 0;
  if (e->learnt_ns == 0)
    e->learnt_ns = row.learnt_ns;
  if (is_racy(s, e, e->learnt_ns))
    return 0;
  char *room = w->parts;
  d->has_learnt = true;
  int err = known_part(in, e, PENSTOCK_PART_TARGET, room, &d->target, &d->target_size);
  if (err == 0)
    err = known_part(in, e, PENSTOCK_PART_LAYOUT, room + VALUE_BYTES, &d->layout, &d->layout_size);
  if (err == 0)
    err = known_part(in, e, PENSTOCK_PART_SUMS, room + 2 * VALUE_BYTES, &d->sums, &d->sums_size);
  return err == 0;
}

static bool same_attrs(const struct penstock_entry *a, const struct penstock_entry *b) {
  return a->ino == b->ino && a->generation == b->generation && a->size == b->size && same_time(a->mtime, b->mtime) && same_time(a->ctime, b->ctime);
}

/* Checksums of a file that is as it was. */
static void keep_sums(struct worker *w, struct listing *l, struct penstock_draft *d) {
  struct penstock_entry e;
  const struct penstock_index *in;
  if (w->scan->view && S_ISREG(d->attrs.mode) && look_up(w, l, d->name, d->name_size, &e, &in) && same_attrs(&e, &d->attrs))
    known_part(in, &e, PENSTOCK_PART_SUMS, w->parts + 2 * VALUE_BYTES, &d->sums, &d->sums_size);
}

/* Has the view this folder, listed, so that it has an item of its own? */
static bool is_known_folder(struct worker *w, const struct listing *l, const char *name, const struct statx *x) {
  struct penstock_entry e;
  const struct penstock_index *in;
  return !w->scan->full && look_up(w, l, name, strlen(name), &e, &in) && S_ISDIR(e.mode) && e.ino == x->stx_ino &&
         e.generation == generation_of(x) && e.row != PENSTOCK_NO_ROW;
}

static int add_entry(struct worker *w, struct listing *l, const struct dirent64 *de) {
  struct penstock_scan *s = w->scan;
  const char *name = de->d_name;
  struct penstock_draft d = {.name = name, .name_size = strlen(name)};
  struct statx x;
  if (is_excluded(w, l, name)) {
    l->excluded = true;
    return 0;
  }
  if (s->view && take_known(w, l, de, &d)) {
    l->count++;
    return penstock_batch_add(w->batch, &d);
  }
  d = (struct penstock_draft){.name = name, .name_size = d.name_size};
  if (stat_at(w, l->fd, name, &x) < 0) {
    int err = errno;
    if (err == ENOENT || err == ESTALE) {
      l->lost = true;
      return 0;
    }
    tell(s, PENSTOCK_PROBLEM_STAT, err, l->it->path, l->it->size, name, d.name_size);
    d.attrs = (struct penstock_entry){.ino = de->d_ino, .mode = mode_of_type(de->d_type), .flags = PENSTOCK_DOUBT, .error = (uint32_t)err};
    l->count++;
    return penstock_batch_add(w->batch, &d);
  }
  if (s->o.own_ino && x.stx_ino == s->o.own_ino && dev_of(&x) == s->o.own_dev) {
    l->excluded = true;
    return 0;
  }
  penstock_entry_fill(&d.attrs, &x);
  int err = 0;
  if (S_ISLNK(x.stx_mode))
    read_target(w, l->fd, name, &d);
  else if (S_ISREG(x.stx_mode) && s->o.layout) {
    int why = read_layout(w, l->fd, name, &d);
    if (why)
      tell(s, PENSTOCK_PROBLEM_LAYOUT, why, l->it->path, l->it->size, name, d.name_size);
  } else if (S_ISDIR(x.stx_mode) && !(s->view && is_known_folder(w, l, name, &x)))
    err = add_folder(w, l, name, &x);
  if (s->full)
    keep_sums(w, l, &d);
  if (s->view)
    d.attrs.flags |= PENSTOCK_CHECKED;
  l->count++;
  return err ? err : penstock_batch_add(w->batch, &d);
}

static bool is_dot(const char *name) { return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])); }

/* Reads the names and what they stand for.  0, or a positive errno of listing, or a negative one of ours. */
static int list(struct worker *w, struct listing *l) {
  for (;;) {
    call(w);
    ssize_t size = getdents64(l->fd, w->list, LIST_BYTES);
    if (size <= 0)
      return size < 0 ? errno : 0;
    for (ssize_t at = 0; at < size;) {
      const struct dirent64 *de = (const void *)(w->list + at);
      at += de->d_reclen;
      int err = is_dot(de->d_name) ? 0 : add_entry(w, l, de);
      if (err < 0)
        return err;
    }
    if (w->scan->stop)
      return -ECANCELED;
  }
}

static void drop_items(struct penstock_scan *s, struct item *it) {
  while (it) {
    struct item *next = it->next;
    let_go(s, it->from);
    free(it);
    it = next;
  }
}

static uint32_t row_flags(const struct listing *l, bool moved, int err, bool other) {
  return (err ? PENSTOCK_UNREADABLE : l->excluded ? PENSTOCK_LISTED : PENSTOCK_COMPLETE) | (moved ? PENSTOCK_MOVED : 0) |
         (other ? PENSTOCK_OTHER_MOUNT : 0);
}

/* The folder's own entry, where its parent's listing does not give it. */
static int add_root(struct worker *w, const struct statx *x) {
  struct penstock_draft d = {0};
  penstock_entry_fill(&d.attrs, x);
  return penstock_batch_root(w->batch, &d);
}

/* What the parent's listing would have told of a folder that was pushed from outside. */
static int learn_times(struct worker *w, struct item *it, int fd) {
  struct statx x;
  if (it->known)
    return 0;
  if (stat_at(w, fd, "", &x) < 0)
    return errno;
  it->mtime = time_of(&x.stx_mtime);
  it->ctime = time_of(&x.stx_ctime);
  it->dev = dev_of(&x);
  return it->size == 0 ? add_root(w, &x) : 0;
}

static int scan_open_folder(struct worker *w, struct item *it, int fd) {
  struct penstock_scan *s = w->scan;
  struct listing l = {.it = it, .fd = fd};
  struct statx x;
  int64_t learnt = now_ns(CLOCK_REALTIME);
  int err = learn_times(w, it, fd);
  if (err == 0)
    err = list(w, &l);
  bool moved = l.lost || stat_at(w, fd, "", &x) < 0 || !same_time(time_of(&x.stx_mtime), it->mtime) || !same_time(time_of(&x.stx_ctime), it->ctime);
  if (err >= 0) {
    if (err)
      tell(s, PENSTOCK_PROBLEM_LIST, err, it->path, it->size, NULL, 0);
    else if (moved)
      tell(s, PENSTOCK_PROBLEM_MOVED, 0, it->path, it->size, NULL, 0);
    int failed = penstock_batch_close(w->batch, it->path, it->size, row_flags(&l, moved, err, it->dev != s->root_dev), learnt);
    err = failed ? failed : 0;
  }
  if (err == 0 && l.first)
    push_chain(s, l.first, l.last, l.found);
  else
    drop_items(s, l.first);
  let_go(s, l.held); /* closes the folder if nobody waits for it */
  if (!l.held)
    close(fd);
  atomic_fetch_add(&s->entries, l.count);
  atomic_fetch_add(&s->folders, 1);
  return err;
}

/* A folder that cannot be entered, or shall not be: a row without children. */
static int close_empty(struct worker *w, const struct item *it, uint32_t flags) {
  return penstock_batch_close(w->batch, it->path, it->size, flags, now_ns(CLOCK_REALTIME));
}

/* Keeps a changed folder's own entry for its parent's block. */
static int keep_changed(struct worker *w, const struct item *it, const struct statx *x) {
  struct penstock_scan *s = w->scan;
  struct changed *c = malloc(sizeof *c + it->size + 1);
  if (!c)
    return -ENOMEM;
  *c = (struct changed){.size = it->size, .name_at = it->name_at};
  penstock_entry_fill(&c->attrs, x);
  c->attrs.flags = PENSTOCK_CHECKED;
  memcpy(c->path, it->path, it->size + 1);
  pthread_mutex_lock(&s->mutex);
  c->next = s->changed;
  s->changed = c;
  pthread_mutex_unlock(&s->mutex);
  return 0;
}

/* 1: the folder must be listed again; 0: it is as it was, or no folder any more (its parent's listing tells). */
static int must_list(struct worker *w, struct item *it) {
  struct statx x;
  if (it->size >= PATH_MAX)
    return 1;
  if (stat_at(w, w->scan->root, it->path, &x) < 0)
    return errno != ENOENT && errno != ENOTDIR && errno != ESTALE;
  if (!S_ISDIR(x.stx_mode))
    return 0;
  bool same = it->known && same_time(time_of(&x.stx_mtime), it->mtime) && same_time(time_of(&x.stx_ctime), it->ctime);
  if (same)
    return 0;
  it->known = it->size > 0; /* of the root the listing makes the entry */
  it->mtime = time_of(&x.stx_mtime);
  it->ctime = time_of(&x.stx_ctime);
  it->dev = dev_of(&x);
  int err = it->known ? keep_changed(w, it, &x) : 0;
  return err < 0 ? err : 1;
}

static int scan_folder(struct worker *w, struct item *it) {
  if (it->check) {
    int must = must_list(w, it);
    if (must <= 0)
      return must;
  }
  if (it->left_out) {
    let_go(w->scan, it->from);
    return close_empty(w, it, PENSTOCK_LEFT_OUT | PENSTOCK_OTHER_MOUNT);
  }
  int fd = open_item(w, it);
  if (fd >= 0)
    return scan_open_folder(w, it, fd);
  int err = errno;
  bool gone = err == ENOENT || err == ESTALE || err == ENOTDIR || err == ELOOP;
  tell(w->scan, gone ? PENSTOCK_PROBLEM_MOVED : PENSTOCK_PROBLEM_LIST, err, it->path, it->size, NULL, 0);
  return close_empty(w, it, gone ? PENSTOCK_UNREADABLE | PENSTOCK_MOVED : PENSTOCK_UNREADABLE);
}

static void *work(void *arg) {
  struct worker *w = arg;
  struct penstock_scan *s = w->scan;
  for (struct item *it; (it = next_item(w));) {
    uint64_t calls = w->calls;
    int64_t began = now_ns(CLOCK_MONOTONIC);
    int err = scan_folder(w, it);
    atomic_fetch_add(&s->waited_ns, (uint64_t)(now_ns(CLOCK_MONOTONIC) - began));
    atomic_fetch_add(&s->calls, w->calls - calls);
    free(it);
    if (err < 0) {
      penstock_batch_forget(w->batch);
      if (err != -ECANCELED)
        fail(s, err);
    }
    item_done(s);
  }
  return NULL;
}

/* ---- from outside ---- */

static void drop_changed(struct changed *c);


static bool start_worker(struct penstock_scan *s, unsigned i) {
  struct worker *w = &s->worker[i];
  *w = (struct worker){.scan = s, .id = i};
  w->batch = penstock_batch_new();
  w->list = malloc(LIST_BYTES);
  w->value = malloc(VALUE_BYTES);
  w->parts = malloc(3 * VALUE_BYTES);
  if (!w->batch || !w->list || !w->value || !w->parts || pthread_create(&w->thread, NULL, work, w) != 0)
    return false;
  s->threads++;
  return true;
}

static void free_worker(struct worker *w) {
  penstock_batch_free(w->batch);
  free(w->list);
  free(w->value);
  free(w->parts);
  free(w->path);
}

struct penstock_scan *penstock_scan_open(const char *root, const struct penstock_scan_options *o) {
  struct stat st;
  int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &st) < 0)
    return NULL;
  struct penstock_scan *s = calloc(1, sizeof *s);
  struct worker *worker = calloc(o->threads_max, sizeof *worker);
  if (!s || !worker) {
    free(s);
    free(worker);
    close(fd);
    errno = ENOMEM;
    return NULL;
  }
  s->o = *o;
  s->root = fd;
  s->root_dev = st.st_dev;
  s->worker = worker;
  s->active = o->threads_max;
  pthread_mutex_init(&s->mutex, NULL);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&s->rest, &clock);
  pthread_cond_init(&s->work, NULL);
  pthread_condattr_destroy(&clock);
  bool started = true;
  for (unsigned i = 0; started && i < o->threads_max; i++)
    started = start_worker(s, i);
  if (s->threads == 0) {
    penstock_scan_close(s);
    errno = EAGAIN;
    return NULL;
  }
  return s;
}

void penstock_scan_close(struct penstock_scan *s) {
  if (!s)
    return;
  pthread_mutex_lock(&s->mutex);
  s->stop = true;
  pthread_cond_broadcast(&s->work);
  pthread_mutex_unlock(&s->mutex);
  for (unsigned i = 0; i < s->threads; i++)
    pthread_join(s->worker[i].thread, NULL);
  for (unsigned i = 0; i < s->o.threads_max; i++)
    free_worker(&s->worker[i]);
  drop_items(s, s->stack);
  drop_changed(s->changed);
  for (struct problem *p = s->problems; p;) {
    struct problem *next = p->next;
    free(p);
    p = next;
  }
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->rest);
  pthread_mutex_destroy(&s->mutex);
  close(s->root);
  free(s->worker);
  free(s);
}

static struct item *item_of(const char *path, size_t size) {
  const char *slash = memrchr(path, '/', size);
  struct item *it = new_item(path, size, "", 0);
  if (it)
    it->name_at = slash ? (uint32_t)(slash - path) + 1 : 0;
  return it;
}

int penstock_scan_push(struct penstock_scan *s, const char *path, size_t size) {
  struct item *it = item_of(path, size);
  if (it)
    push_chain(s, it, it, 1);
  return it ? 0 : -ENOMEM;
}

void penstock_scan_known(struct penstock_scan *s, const struct penstock_view *v, int64_t tick_ns, bool full) {
  s->view = v;
  s->tick_ns = tick_ns;
  s->full = full;
}

/* Folders to be looked at, gathered before they are pushed. */
struct gathered {
  struct penstock_scan *s;
  struct item *first, *last;
  uint64_t count;
};

static int add_known(struct gathered *g, const char *path, size_t size, const struct penstock_entry *e, const struct penstock_row *row) {
  struct item *it = item_of(path, size);
  if (!it)
    return -ENOMEM;
  const uint32_t doubt = PENSTOCK_MOVED | PENSTOCK_UNREADABLE;
  it->check = true;
  it->known = row->flags & (PENSTOCK_COMPLETE | PENSTOCK_LISTED) && !(row->flags & doubt) && !is_racy(g->s, e, row->learnt_ns);
  it->mtime = e->mtime;
  it->ctime = e->ctime;
  if (g->last)
    g->last->next = it;
  else
    g->first = it;
  g->last = it;
  g->count++;
  return 0;
}

/* Paths of a segment's folders: rows stand in path order, so that a folder's parent comes before it. */
struct paths {
  char **path;
  size_t *size;
};

static int path_of_row(const struct penstock_index *ix, const struct penstock_entry *e, uint32_t row, struct paths *p) {
  const char *parent = row ? p->path[e->folder] : "";
  size_t parent_size = row ? p->size[e->folder] : 0, name_at = parent_size ? parent_size + 1 : 0;
  char *own = malloc(name_at + e->name_size + 1);
  if (!own)
    return -ENOMEM;
  memcpy(own, parent, parent_size);
  if (name_at)
    own[parent_size] = '/';
  ssize_t size = penstock_index_name(ix, e, own + name_at, e->name_size);
  own[name_at + e->name_size] = 0;
  p->path[row] = own;
  p->size[row] = name_at + e->name_size;
  return size < 0 ? (int)size : 0;
}

/* Is what this segment says of a folder what holds, and not what a newer one says, or denies? */
static bool holds(const struct penstock_view *v, unsigned segment, const char *path, size_t size, const struct penstock_entry *e, struct penstock_entry *now) {
  struct penstock_folder f;
  const struct penstock_index *in;
  if (v->count == 1) {
    *now = *e;
    return true;
  }
  if (penstock_view_find(v, path, size, now, &in) < 0 || !S_ISDIR(now->mode) || penstock_view_folder(v, path, size, &f) < 0)
    return false;
  for (unsigned i = 0; i < segment; i++) {
    struct penstock_row row;
    if (f.row[i] != PENSTOCK_NO_ROW && penstock_index_row(v->segment[i], f.row[i], &row) == 0 && row.flags)
      return false; /* a newer listing */
  }
  return f.row[segment] != PENSTOCK_NO_ROW;
}

static int gather_segment(struct gathered *g, const struct penstock_view *v, unsigned segment) {
  const struct penstock_index *ix = v->segment[segment];
  struct paths p = {calloc(ix->h.rows, sizeof *p.path), calloc(ix->h.rows, sizeof *p.size)};
  int err = p.path && p.size ? 0 : -ENOMEM;
  for (uint32_t i = 0; err == 0 && i < ix->h.rows; i++) {
    struct penstock_row row;
    struct penstock_entry e, now;
    if ((err = penstock_index_row(ix, i, &row)) < 0 || (err = penstock_index_entry(ix, row.record_at, &e)) < 0)
      break;
    err = i > 0 && e.folder >= i ? -EBADMSG : path_of_row(ix, &e, i, &p);
    if (err == 0 && row.flags && !(row.flags & PENSTOCK_LEFT_OUT) && holds(v, segment, p.path[i], p.size[i], &e, &now))
      err = add_known(g, p.path[i], p.size[i], &now, &row);
  }
  for (uint32_t i = 0; p.path && i < ix->h.rows; i++)
    free(p.path[i]);
  free(p.path);
  free(p.size);
  return err;
}

int penstock_scan_push_known(struct penstock_scan *s) {
  struct gathered g = {.s = s};
  int err = 0;
  for (unsigned i = 0; err == 0 && i < s->view->count; i++)
    err = gather_segment(&g, s->view, i);
  if (err == 0 && g.first)
    push_chain(s, g.first, g.last, g.count);
  else
    drop_items(s, g.first);
  return err;
}

static int by_path(const void *a, const void *b) {
  const struct changed *x = *(struct changed *const *)a, *y = *(struct changed *const *)b;
  size_t xp = x->name_at, yp = y->name_at, least = xp < yp ? xp : yp;
  int order = memcmp(x->path, y->path, least);
  return order ? order : (xp > yp) - (xp < yp);
}

/* The entries of changed folders, each in a block of the folder it lies in, which lists nothing else.  A listing of that
   folder in the same segment comes before it. */
static int write_changed(struct changed *first, struct penstock_batch *b) {
  size_t count = 0, i = 0;
  for (struct changed *c = first; c; c = c->next)
    count++;
  struct changed **all = malloc((count + 1) * sizeof *all);
  if (!all)
    return -ENOMEM;
  for (struct changed *c = first; c; c = c->next)
    all[i++] = c;
  qsort(all, count, sizeof *all, by_path);
  int err = 0;
  for (i = 0; err == 0 && i < count; i++) {
    struct penstock_draft d = {.name = all[i]->path + all[i]->name_at, .name_size = all[i]->size - all[i]->name_at, .attrs = all[i]->attrs};
    err = penstock_batch_add(b, &d);
    if (err == 0 && (i + 1 == count || by_path(&all[i], &all[i + 1]) != 0))
      err = penstock_batch_close(b, all[i]->path, all[i]->name_at ? all[i]->name_at - 1 : 0, 0, now_ns(CLOCK_REALTIME));
  }
  free(all);
  return err;
}

static void drop_changed(struct changed *c) {
  while (c) {
    struct changed *next = c->next;
    free(c);
    c = next;
  }
}

int penstock_scan_wait(struct penstock_scan *s, int timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  int64_t ns = until.tv_nsec + (int64_t)timeout_ms * 1000000;
  until.tv_sec += ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  pthread_mutex_lock(&s->mutex);
  int late = 0;
  while (!s->err && (s->stack || s->working) && late == 0)
    late = pthread_cond_timedwait(&s->rest, &s->mutex, &until);
  int ret = s->err ? s->err : !(s->stack || s->working);
  pthread_mutex_unlock(&s->mutex);
  return ret;
}

void penstock_scan_threads(struct penstock_scan *s, unsigned active) {
  pthread_mutex_lock(&s->mutex);
  s->active = active < 1 ? 1 : active < s->threads ? active : s->threads;
  pthread_cond_broadcast(&s->work);
  pthread_mutex_unlock(&s->mutex);
}

void penstock_scan_get(struct penstock_scan *s, struct penstock_scan_stats *ret) {
  pthread_mutex_lock(&s->mutex);
  *ret = (struct penstock_scan_stats){.entries = s->entries, .folders = s->folders, .calls = s->calls, .problems = s->told, .moved = s->moved, .pending = s->waiting, .waited_ns = s->waited_ns, .active = s->active};
  pthread_mutex_unlock(&s->mutex);
}

/* Waits with the mutex held until no folder is half done; nobody begins another until `pause` is taken back. */
static void come_to_rest(struct penstock_scan *s) {
  s->pause = true;
  while (s->working > 0)
    pthread_cond_wait(&s->rest, &s->mutex);
}

static void go_on(struct penstock_scan *s) {
  s->pause = false;
  pthread_cond_broadcast(&s->work);
}

size_t penstock_scan_take(struct penstock_scan *s, struct penstock_batch **ret, size_t room) {
  size_t count = 0;
  pthread_mutex_lock(&s->mutex);
  come_to_rest(s);
  for (unsigned i = 0; i < s->threads && count < room; i++) {
    struct penstock_batch *next = penstock_batch_new();
    if (!next)
      continue; /* its batch is taken another time */
    ret[count++] = s->worker[i].batch;
    s->worker[i].batch = next;
  }
  if (s->changed && count > 0 && write_changed(s->changed, ret[0]) < 0 && !s->err)
    s->err = -ENOMEM;
  drop_changed(s->changed);
  s->changed = NULL;
  go_on(s);
  pthread_mutex_unlock(&s->mutex);
  return count;
}

char *penstock_scan_pending(struct penstock_scan *s, size_t *size) {
  char *path = NULL;
  pthread_mutex_lock(&s->mutex);
  come_to_rest(s);
  struct item *it = s->stack;
  if (it) {
    s->stack = it->next;
    s->waiting--;
    path = strndup(it->path, it->size);
    *size = it->size;
    let_go(s, it->from);
    free(it);
  }
  go_on(s);
  pthread_mutex_unlock(&s->mutex);
  return path;
}

void penstock_scan_problems(struct penstock_scan *s, void (*say)(void *state, enum penstock_problem what, int err, const char *path, size_t size), void *state) {
  pthread_mutex_lock(&s->mutex);
  struct problem *p = s->problems;
  s->problems = NULL;
  s->problem_count = 0;
  pthread_mutex_unlock(&s->mutex);
  while (p) {
    struct problem *next = p->next;
    say(state, p->what, p->err, p->path, p->size);
    free(p);
    p = next;
  }
}
