// SPDX-License-Identifier: Apache-2.0
/* The scan: see scan.h.

   Folders that wait lie on one stack, under one mutex; a thread takes the one on top, reads it, and puts the folders it
   found on top.  Everything read goes into the thread's own batch.  The mutex is held for a few instructions a folder. */
#include "kernels/scan_parts.h"

#include <fcntl.h>

/* ---- problems ---- */

void penstock_scan_tell(struct penstock_scan *s, enum penstock_problem what, int err, const char *path, size_t size,
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

void penstock_scan_let_go(struct penstock_scan *s, struct held *h) {
  if (h && atomic_fetch_sub(&h->users, 1) == 1) {
    close(h->fd);
    free(h);
    atomic_fetch_sub(&s->held, 1);
  }
}

struct item *penstock_scan_new_item(const char *path, size_t size, const char *name, size_t name_size) {
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

struct item *penstock_scan_item(const char *path, size_t size) {
  const char *slash = memrchr(path, '/', size);
  struct item *it = penstock_scan_new_item(path, size, "", 0);
  if (it)
    it->name_at = slash ? (uint32_t)(slash - path) + 1 : 0;
  return it;
}

/* Puts a chain of folders on the stack, the first on top. */
void penstock_scan_push_chain(struct penstock_scan *s, struct item *first, struct item *last, uint64_t count) {
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

void penstock_scan_drop_items(struct penstock_scan *s, struct item *it) {
  while (it) {
    struct item *next = it->next;
    penstock_scan_let_go(s, it->from);
    free(it);
    it = next;
  }
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

static void *work(void *arg) {
  struct worker *w = arg;
  struct penstock_scan *s = w->scan;
  for (struct item *it; (it = next_item(w));) {
    uint64_t calls = w->calls;
    int64_t began = now_ns(CLOCK_MONOTONIC);
    int err = penstock_scan_folder(w, it);
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


static bool start_worker(struct penstock_scan *s, unsigned i) {
  struct worker *w = &s->worker[i];
  *w = (struct worker){.scan = s, .id = i};
  w->batch = penstock_batch_of(s->o.threads_max);
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
  penstock_scan_drop_items(s, s->stack);
  penstock_scan_drop_changed(s->changed);
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

int penstock_scan_push(struct penstock_scan *s, const char *path, size_t size) {
  struct item *it = penstock_scan_item(path, size);
  if (it)
    penstock_scan_push_chain(s, it, it, 1);
  return it ? 0 : -ENOMEM;
}

void penstock_scan_known(struct penstock_scan *s, const struct penstock_view *v, int64_t tick_ns, bool full) {
  s->view = v;
  s->tick_ns = tick_ns;
  s->full = full;
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
    struct penstock_batch *next = penstock_batch_of(s->o.threads_max);
    if (!next)
      continue; /* its batch is taken another time */
    ret[count++] = s->worker[i].batch;
    s->worker[i].batch = next;
  }
  if (s->changed && count > 0 && penstock_scan_write_changed(s->changed, ret[0]) < 0 && !s->err)
    s->err = -ENOMEM;
  penstock_scan_drop_changed(s->changed);
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
    penstock_scan_let_go(s, it->from);
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
