// SPDX-License-Identifier: Apache-2.0
/* Reading one folder: opening it, its names, and what each stands for; see scan.h. */
#include "kernels/scan_parts.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>

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

/* ---- opening ---- */

static int open_one(struct worker *w, int from, const char *name) {
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  call(w);
  int fd = openat(from, name, flags | O_NOATIME);
  if (fd < 0 && errno == EPERM)
    fd = openat(from, name, flags);
  return fd;
}

/* A folder on the way to another: neither read nor, where that can be helped, asked for. */
static int step_into(struct worker *w, int from, const char *name) {
  call(w);
  return openat(from, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Opens a path below the root name by name: its length does not matter, and no symlink in it is followed. */
static int open_path(struct worker *w, const char *path, size_t size) {
  char name[STEP_BYTES];
  int fd = size ? fcntl(w->scan->root, F_DUPFD_CLOEXEC, 0) : open_one(w, w->scan->root, "."); /* a position of its own */
  for (size_t at = 0; fd >= 0 && at < size;) {
    const char *slash = memchr(path + at, '/', size - at);
    size_t end = slash ? (size_t)(slash - path) : size;
    int next = -1, err = ENAMETOOLONG;
    if (end - at < STEP_BYTES) {
      memcpy(name, path + at, end - at);
      name[end - at] = 0;
      next = slash ? step_into(w, fd, name) : open_one(w, fd, name);
      err = errno;
    }
    close(fd);
    errno = err;
    fd = next;
    at = end + 1;
  }
  return fd;
}

static int open_item(struct worker *w, struct item *it) {
  int fd = it->from ? open_one(w, it->from->fd, it->path + it->name_at) : open_path(w, it->path, it->size);
  int err = errno;
  penstock_scan_let_go(w->scan, it->from);
  it->from = NULL;
  errno = err;
  return fd;
}

/* ---- entries ---- */

int penstock_scan_stat(struct worker *w, int fd, const char *name, struct statx *x) {
  int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH) | (w->scan->o.lazy ? AT_STATX_DONT_SYNC : 0);
  call(w);
  return statx(fd, name, flags, STATX_BASIC_STATS | STATX_BTIME, x);
}

void penstock_entry_fill(struct penstock_entry *e, const struct statx *x) {
  /* Field by field: clearing it whole first is slow. */
  e->ino = x->stx_ino;
  e->size = x->stx_size;
  e->blocks = x->stx_blocks;
  e->rdev = S_ISCHR(x->stx_mode) || S_ISBLK(x->stx_mode) ? makedev(x->stx_rdev_major, x->stx_rdev_minor) : 0;
  e->mtime = time_of(&x->stx_mtime);
  e->ctime = time_of(&x->stx_ctime);
  e->atime = time_of(&x->stx_atime);
  e->learnt_ns = 0;
  e->generation = generation_of(x);
  e->mode = x->stx_mode;
  e->uid = x->stx_uid;
  e->gid = x->stx_gid;
  e->nlink = x->stx_nlink;
  e->error = e->folder = e->row = e->parts_size = e->record_size = 0;
  e->flags = e->name_size = 0;
  e->at = e->parts_at = 0;
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

/* The path of a name, into w->path. */
bool penstock_scan_path(struct worker *w, const struct listing *l, const char *name, size_t name_size) {
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
  return p && *p && penstock_scan_path(w, l, name, strlen(name)) && penstock_excluded(p, w->path);
}

static int add_folder(struct worker *w, struct listing *l, const char *name, const struct statx *x) {
  struct penstock_scan *s = w->scan;
  struct item *it = penstock_scan_new_item(l->it->path, l->it->size, name, strlen(name));
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

static int add_entry(struct worker *w, struct listing *l, const struct dirent64 *de) {
  struct penstock_scan *s = w->scan;
  const char *name = de->d_name;
  struct penstock_draft d;
  struct statx x;
  if (is_excluded(w, l, name)) {
    l->excluded = true;
    return 0;
  }
  penstock_scan_begin(&d, name);
  if (s->view && penstock_scan_take_known(w, l, de, &d)) {
    l->count++;
    return penstock_batch_add(w->batch, &d);
  }
  penstock_scan_begin(&d, name);
  if (penstock_scan_stat(w, l->fd, name, &x) < 0) {
    int err = errno;
    if (err == ENOENT || err == ESTALE) {
      l->lost = true;
      return 0;
    }
    penstock_scan_tell(s, PENSTOCK_PROBLEM_STAT, err, l->it->path, l->it->size, name, d.name_size);
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
      penstock_scan_tell(s, PENSTOCK_PROBLEM_LAYOUT, why, l->it->path, l->it->size, name, d.name_size);
  } else if (S_ISDIR(x.stx_mode) && !(s->view && penstock_scan_is_known(w, l, name, &x)))
    err = add_folder(w, l, name, &x);
  if (s->full)
    penstock_scan_keep_sums(w, l, &d);
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
  if (penstock_scan_stat(w, fd, "", &x) < 0)
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
  bool moved = l.lost || penstock_scan_stat(w, fd, "", &x) < 0 || !same_time(time_of(&x.stx_mtime), it->mtime) || !same_time(time_of(&x.stx_ctime), it->ctime);
  if (err >= 0) {
    if (err)
      penstock_scan_tell(s, PENSTOCK_PROBLEM_LIST, err, it->path, it->size, NULL, 0);
    else if (moved)
      penstock_scan_tell(s, PENSTOCK_PROBLEM_MOVED, 0, it->path, it->size, NULL, 0);
    int failed = penstock_batch_close(w->batch, it->path, it->size, row_flags(&l, moved, err, it->dev != s->root_dev), learnt);
    err = failed ? failed : 0;
  }
  if (err == 0 && l.first)
    penstock_scan_push_chain(s, l.first, l.last, l.found);
  else
    penstock_scan_drop_items(s, l.first);
  penstock_scan_let_go(s, l.held); /* closes the folder if nobody waits for it */
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

int penstock_scan_folder(struct worker *w, struct item *it) {
  if (it->check && !penstock_scan_must_list(w, it))
    return 0;
  if (it->left_out) {
    penstock_scan_let_go(w->scan, it->from);
    return close_empty(w, it, PENSTOCK_LEFT_OUT | PENSTOCK_OTHER_MOUNT);
  }
  int fd = open_item(w, it), err = fd < 0 ? errno : 0;
  if (fd >= 0 && it->check && (err = penstock_scan_note_changed(w, it, fd)) < 0) {
    close(fd);
    return err;
  }
  if (fd >= 0)
    return scan_open_folder(w, it, fd);
  bool gone = err == ENOENT || err == ESTALE || err == ENOTDIR || err == ELOOP;
  penstock_scan_tell(w->scan, gone ? PENSTOCK_PROBLEM_MOVED : PENSTOCK_PROBLEM_LIST, err, it->path, it->size, NULL, 0);
  if (gone && it->check)
    return 0; /* the listing of the folder it was in tells */
  return close_empty(w, it, gone ? PENSTOCK_UNREADABLE | PENSTOCK_MOVED : PENSTOCK_UNREADABLE);
}
