// SPDX-License-Identifier: Apache-2.0
/* Bytes and the objects they lie in.  See stripes.h. */
#include "testbed/stripes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what a layout says ---- */

/* A component without objects yet may hold a list of OSTs, which are a wish. */
static uint32_t objects_of(const struct stripes *s, const struct penstock_component *c) {
  if (s->view.composite && !(c->flags & PENSTOCK_COMP_INIT))
    return 0;
  return c->pattern == PENSTOCK_PATTERN_MDT ? 1 : c->object_count;
}

static void fill_part(struct stripes *s, struct part *p, uint64_t ino, uint32_t first) {
  *p = (struct part){.shape = p->shape, .first = first, .count = objects_of(s, &p->shape)};
  p->on_mdt = p->shape.pattern == PENSTOCK_PATTERN_MDT;
  p->ready = p->count > 0;
  for (uint32_t i = 0; i < p->count; i++) {
    struct object *o = &s->objects[first + i];
    struct penstock_object known = {0};
    if (!p->on_mdt)
      penstock_layout_object(&p->shape, i, &known);
    o->ost = p->on_mdt ? STORE_MDT : known.ost;
    o->number = p->on_mdt ? ino : known.oid;
    atomic_init(&o->fd, -1);
    if (!p->on_mdt)
      s->osts[s->ost_count++] = known.ost;
  }
}

struct stripes *stripes_new(uint64_t ino, const void *stored, size_t size) {
  struct stripes *s = calloc(1, sizeof *s + size);
  if (!s)
    return NULL;
  memcpy(s->bytes, stored, size);
  s->size = size;
  pthread_mutex_init(&s->settling, NULL);
  if (penstock_layout_parse(s->bytes, size, &s->view))
    goto fail;
  s->part_count = s->view.count;
  s->parts = calloc(s->part_count ? s->part_count : 1, sizeof *s->parts);
  if (!s->parts)
    goto fail;
  for (uint32_t i = 0; i < s->part_count; i++) {
    if (penstock_layout_component(&s->view, i, &s->parts[i].shape))
      goto fail;
    s->object_count += objects_of(s, &s->parts[i].shape);
  }
  s->objects = calloc(s->object_count + 1, sizeof *s->objects);
  s->osts = calloc(s->object_count + 1, sizeof *s->osts);
  if (!s->objects || !s->osts)
    goto fail;
  uint32_t first = 0;
  for (uint32_t i = 0; i < s->part_count; i++) {
    fill_part(s, &s->parts[i], ino, first);
    first += s->parts[i].count;
  }
  return s;
fail:
  free(s->parts);
  free(s->objects);
  free(s->osts);
  free(s);
  return NULL;
}

void stripes_free(struct stripes *s, const struct stripes_env *env) {
  while (s) {
    struct stripes *older = s->older;
    for (uint32_t i = 0; i < s->object_count; i++) {
      int fd = atomic_load(&s->objects[i].fd);
      if (fd >= 0) {
        close(fd);
        atomic_fetch_sub(env->open_files, 1);
      }
    }
    pthread_mutex_destroy(&s->settling);
    free(s->parts);
    free(s->objects);
    free(s->osts);
    free(s);
    s = older;
  }
}

static const struct part *part_at(const struct stripes *s, uint64_t offset) {
  int i = s->part_count == 1 && !s->view.composite ? 0 : penstock_layout_find(&s->view, offset);
  return i < 0 ? NULL : &s->parts[i];
}

int stripes_locate(const struct stripes *s, uint64_t offset, uint64_t size, struct piece *ret) {
  const struct part *p = part_at(s, offset);
  if (!p || !p->ready)
    return -ENODATA;
  uint64_t run = p->shape.end_bytes - offset;
  if (p->on_mdt) {
    *ret = (struct piece){p->first, offset, size < run ? size : run};
    return 0;
  }
  struct penstock_spot spot;
  int err = penstock_layout_locate(&p->shape, offset, &spot);
  if (err)
    return err;
  run = spot.run_bytes;
  *ret = (struct piece){p->first + spot.stripe, spot.object_offset_bytes, size < run ? size : run};
  return 0;
}

/* Do all other mirrors know that they hold old bytes here? */
static bool others_stale(const struct stripes *s, uint64_t start, uint64_t end) {
  const struct part *own = part_at(s, start);
  for (uint32_t i = 0; own && i < s->part_count; i++) {
    const struct penstock_component *c = &s->parts[i].shape;
    bool other = c->id >> 16 != own->shape.id >> 16;
    if (other && c->start_bytes < end && start < c->end_bytes && !(c->flags & PENSTOCK_COMP_STALE))
      return false;
  }
  return true;
}

int stripes_ready(const struct stripes *s, uint64_t start, uint64_t end, bool *ready) {
  *ready = !s->view.mirrors || others_stale(s, start, end);
  while (start < end) {
    const struct part *p = part_at(s, start);
    if (!p)
      return -ENODATA;
    *ready = *ready && p->ready;
    start = p->shape.end_bytes;
  }
  return 0;
}

uint64_t stripes_object_size(const struct stripes *s, uint32_t i, uint64_t size_bytes) {
  const struct part *p = s->parts;
  while (p < s->parts + s->part_count && (i < p->first || i >= p->first + p->count)) p++;
  if (p == s->parts + s->part_count)
    return 0;
  uint64_t end = size_bytes < p->shape.end_bytes ? size_bytes : p->shape.end_bytes;
  if (end <= p->shape.start_bytes)
    return 0;
  if (p->on_mdt)
    return end;
  uint64_t unit = p->shape.stripe_size_bytes, full = end / unit, turn = full % p->count;
  uint64_t own = full / p->count + (i - p->first < turn);
  return own * unit + (i - p->first == turn ? end % unit : 0);
}

/* ---- the objects' files ---- */

/* A descriptor; *once: the caller closes it after use. */
static int take(struct stripes *s, const struct stripes_env *env, struct object *o, bool *once) {
  int fd = atomic_load_explicit(&o->fd, memory_order_acquire), none = -1;
  *once = false;
  if (fd >= 0)
    return fd;
  fd = store_open_object(env->store, o->ost, o->number);
  if (fd == -ENOENT && o->ost == STORE_MDT) {
    store_make_object(env->store, o->ost, o->number);
    fd = store_open_object(env->store, o->ost, o->number);
  }
  struct stat st;
  if (fd < 0 || fstat(fd, &st))
    return -EIO; /* the object is gone: the store is damaged */
  pthread_mutex_lock(&s->settling);
  if (!o->known) {
    o->known = true;
    o->room_bytes = (uint64_t)st.st_blocks * 512;
    o->dense_bytes = o->room_bytes >= (uint64_t)st.st_size ? (uint64_t)st.st_size : 0;
  }
  pthread_mutex_unlock(&s->settling);
  if (atomic_fetch_add(env->open_files, 1) >= env->open_limit) {
    *once = true;
  } else if (atomic_compare_exchange_strong(&o->fd, &none, fd)) {
    return fd;
  } else {
    close(fd);
    fd = none;
  }
  atomic_fetch_sub(env->open_files, 1);
  return fd;
}

static void give(int fd, bool once) {
  if (once)
    close(fd);
}

int stripes_read(struct stripes *s, const struct stripes_env *env, const struct piece *p, void *data) {
  bool once;
  int fd = take(s, env, &s->objects[p->object], &once), err = 0;
  if (fd < 0)
    return fd;
  uint64_t done = 0;
  while (done < p->size) {
    ssize_t n = pread(fd, (char *)data + done, p->size - done, (off_t)(p->offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      err = -errno;
    if (n <= 0)
      break;
    done += (uint64_t)n;
  }
  give(fd, once);
  if (!err && done < p->size)
    memset((char *)data + done, 0, p->size - done);
  return err;
}

/* Tells the OST what the object takes now, after `taken` bytes were taken ahead. */
static int64_t settle(struct stripes *s, const struct stripes_env *env, struct object *o, int fd, int64_t taken) {
  struct stat st;
  pthread_mutex_lock(&s->settling);
  int64_t grew = 0;
  if (fstat(fd, &st) == 0) {
    uint64_t room = (uint64_t)st.st_blocks * 512;
    grew = (int64_t)(room - o->room_bytes);
    o->room_bytes = room;
    o->dense_bytes = room >= (uint64_t)st.st_size ? (uint64_t)st.st_size : 0;
  }
  pthread_mutex_unlock(&s->settling);
  if (o->ost != STORE_MDT) {
    env->store->header->osts[o->ost].room_bytes += grew;
    if (grew != taken)
      model_ost_use(env->model, o->ost, grew - taken, 0, true);
  }
  return grew;
}

/* How much room a write may need: none in what has no holes. */
static int64_t may_need(struct stripes *s, struct object *o, const struct piece *p) {
  pthread_mutex_lock(&s->settling);
  uint64_t dense = o->dense_bytes;
  pthread_mutex_unlock(&s->settling);
  uint64_t end = p->offset + p->size, from = p->offset > dense ? p->offset : dense;
  return end > from ? (int64_t)(end - from) : 0;
}

int stripes_write(struct stripes *s, const struct stripes_env *env, const struct piece *p, const void *data,
                  int64_t *grew_bytes) {
  struct object *o = &s->objects[p->object];
  bool once;
  *grew_bytes = 0;
  int fd = take(s, env, o, &once), err = 0;
  if (fd < 0)
    return fd;
  int64_t need = may_need(s, o, p);
  if (need && o->ost != STORE_MDT)
    err = model_ost_use(env->model, o->ost, need, 0, false);
  if (err) {
    give(fd, once);
    return err;
  }
  uint64_t done = 0;
  while (done < p->size) {
    ssize_t n = pwrite(fd, (const char *)data + done, p->size - done, (off_t)(p->offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      err = n < 0 ? -errno : -EIO;
      break;
    }
    done += (uint64_t)n;
  }
  if (need)
    *grew_bytes = settle(s, env, o, fd, o->ost == STORE_MDT ? 0 : need);
  give(fd, once);
  return err;
}

int stripes_cut(struct stripes *s, const struct stripes_env *env, uint64_t size_bytes, int64_t *grew_bytes) {
  *grew_bytes = 0;
  for (uint32_t i = 0; i < s->object_count; i++) {
    struct object *o = &s->objects[i];
    bool once;
    struct stat st;
    uint64_t want = stripes_object_size(s, i, size_bytes);
    int fd = take(s, env, o, &once);
    if (fd < 0)
      return fd;
    int err = fstat(fd, &st) ? -errno : (uint64_t)st.st_size > want && ftruncate(fd, (off_t)want) ? -errno : 0;
    if (!err && (uint64_t)st.st_size > want)
      *grew_bytes += settle(s, env, o, fd, 0);
    give(fd, once);
    if (err)
      return err;
  }
  return 0;
}

int stripes_allocate(struct stripes *s, const struct stripes_env *env, const struct piece *p, int mode,
                     int64_t *grew_bytes) {
  struct object *o = &s->objects[p->object];
  bool once;
  *grew_bytes = 0;
  int fd = take(s, env, o, &once), err = 0;
  if (fd < 0)
    return fd;
  int64_t need = mode & FALLOC_FL_PUNCH_HOLE ? 0 : may_need(s, o, p);
  if (need && o->ost != STORE_MDT)
    err = model_ost_use(env->model, o->ost, need, 0, false);
  if (!err) {
    if (fallocate(fd, mode, (off_t)p->offset, (off_t)p->size))
      err = -errno;
    *grew_bytes = settle(s, env, o, fd, o->ost == STORE_MDT ? 0 : need);
  }
  give(fd, once);
  return err;
}

uint64_t stripes_seek(struct stripes *s, const struct stripes_env *env, const struct piece *p, bool data) {
  bool once;
  int fd = take(s, env, &s->objects[p->object], &once);
  if (fd < 0)
    return data ? p->size : 0;
  off_t at = lseek(fd, (off_t)p->offset, data ? SEEK_DATA : SEEK_HOLE);
  int err = errno;
  give(fd, once);
  if (at < 0) /* at or past the object's end: a hole */
    return err == ENXIO && !data ? 0 : p->size;
  uint64_t inside = (uint64_t)at - p->offset;
  return inside < p->size ? inside : p->size;
}

/* ---- objects as such ---- */

static bool has(const struct stripes *s, const struct object *o) {
  for (uint32_t i = 0; s && i < s->object_count; i++)
    if (s->objects[i].ost == o->ost && s->objects[i].number == o->number)
      return true;
  return false;
}

static void remove_object(const struct stripes_env *env, const struct object *o) {
  uint64_t room = 0;
  if (store_remove_object(env->store, o->ost, o->number, &room) || o->ost == STORE_MDT)
    return;
  env->store->header->osts[o->ost].room_bytes -= (int64_t)room;
  model_ost_use(env->model, o->ost, -(int64_t)room, -1, true);
}

static int make_object(const struct stripes_env *env, const struct object *o) {
  int err = o->ost == STORE_MDT ? 0 : model_ost_use(env->model, o->ost, 0, 1, true);
  return err ? err : store_make_object(env->store, o->ost, o->number);
}

int stripes_make_objects(const struct stripes *s, const struct stripes *old, const struct stripes_env *env) {
  for (uint32_t i = 0; i < s->object_count; i++) {
    const struct object *o = &s->objects[i];
    if ((old && has(old, o)) || o->ost == STORE_MDT)
      continue;
    int err = make_object(env, o);
    if (!err)
      continue;
    while (i-- > 0)
      if (!(old && has(old, &s->objects[i])))
        remove_object(env, &s->objects[i]);
    return err;
  }
  return 0;
}

void stripes_remove_objects(const struct stripes *s, const struct stripes_env *env) {
  for (uint32_t i = 0; i < s->object_count; i++) remove_object(env, &s->objects[i]);
}
