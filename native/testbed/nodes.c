// SPDX-License-Identifier: Apache-2.0
/* Inodes that are open, and what becomes of those that nothing holds any more.  See server.h. */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static struct node **find(struct server *s, uint64_t ino) {
  struct node **at = &s->nodes[store_slot(ino)];
  while (*at && (*at)->ino != ino) at = &(*at)->next;
  return at;
}

static struct node *node_new(uint64_t ino) {
  struct node *n = calloc(1, sizeof *n);
  if (!n)
    return NULL;
  n->ino = ino;
  pthread_rwlock_init(&n->data, NULL);
  return n;
}

int node_get(struct server *s, uint64_t ino, struct node **ret) {
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return -ESTALE;
  struct node **at = find(s, ino);
  if (!*at)
    *at = r->nlink ? node_new(ino) : NULL;
  *ret = *at;
  if (*at)
    (*at)->users++;
  int err = *at ? 0 : r->nlink ? -ENOMEM : -ESTALE;
  store_unlock(&s->store, ino);
  return err;
}

void node_put(struct server *s, struct node *n) {
  uint64_t ino = n->ino;
  struct record *r = store_lock(&s->store, ino); /* a node holds its inode: it is there */
  bool last = r && --n->users == 0;
  bool unlinked = r && r->nlink == 0;
  if (last) {
    struct node **at = find(s, ino);
    *at = n->next;
  }
  if (r)
    store_unlock(&s->store, ino);
  if (!last)
    return;
  stripes_free(n->stripes, &s->env);
  pthread_rwlock_destroy(&n->data);
  free(n);
  if (unlinked)
    inode_reap(s, ino);
}

ssize_t inode_bytes(struct server *s, uint64_t ino, void *ret, size_t room) {
  const struct record *r = store_lock(&s->store, ino);
  if (!r)
    return -ESTALE;
  ssize_t n = store_bytes(&s->store, r, ret, room);
  store_unlock(&s->store, ino);
  return n;
}

struct stripes *node_stripes(struct server *s, struct node *n) {
  if (atomic_load_explicit(&n->loaded, memory_order_acquire))
    return n->stripes;
  uint8_t *bytes = malloc(LOV_BYTES);
  if (!bytes)
    return NULL;
  ssize_t size = inode_bytes(s, n->ino, bytes, LOV_BYTES);
  struct stripes *made = size > 0 ? stripes_new(n->ino, bytes, (size_t)size) : NULL;
  free(bytes);
  struct stripes *unneeded = made;
  if (store_lock(&s->store, n->ino)) {
    if (!n->loaded) {
      n->stripes = made;
      unneeded = NULL;
      atomic_store_explicit(&n->loaded, true, memory_order_release);
    }
    store_unlock(&s->store, n->ino);
  }
  stripes_free(unneeded, &s->env);
  return n->stripes;
}

int node_set_layout(struct server *s, struct node *n, const void *stored, size_t size) {
  struct stripes *old = node_stripes(s, n), *new = stripes_new(n->ino, stored, size);
  if (!new)
    return -ENOMEM;
  int err = stripes_make_objects(new, old, &s->env);
  if (err) {
    stripes_free(new, &s->env);
    return err;
  }
  struct record *r = store_lock(&s->store, n->ino);
  err = r ? store_set_bytes(&s->store, r, stored, size) : -ESTALE;
  if (!err) {
    r->ctime = store_now();
    new->older = old;
    n->stripes = new;
  }
  if (r)
    store_unlock(&s->store, n->ino);
  if (err && !old)
    stripes_remove_objects(new, &s->env);
  if (err)
    stripes_free(new, &s->env);
  return err;
}

int handle_new(struct server *s, struct mount *m, uint64_t ino, int flags, struct handle **ret) {
  struct handle *h = calloc(1, sizeof *h);
  if (!h)
    return -ENOMEM;
  int err = node_get(s, ino, &h->node);
  if (err) {
    free(h);
    return err;
  }
  h->mount = m;
  h->flags = flags;
  pthread_mutex_t *lock = &s->store.locks[store_slot(ino)];
  pthread_mutex_lock(lock);
  h->next_of_node = h->node->handles;
  h->back_of_node = &h->node->handles;
  if (h->next_of_node)
    h->next_of_node->back_of_node = &h->next_of_node;
  h->node->handles = h;
  pthread_mutex_unlock(lock);
  pthread_mutex_lock(&m->lock);
  h->next_of_mount = m->handles;
  h->back_of_mount = &m->handles;
  if (h->next_of_mount)
    h->next_of_mount->back_of_mount = &h->next_of_mount;
  m->handles = h;
  pthread_mutex_unlock(&m->lock);
  *ret = h;
  return 0;
}

void handle_free(struct server *s, struct handle *h) {
  struct node *n = h->node;
  pthread_mutex_t *lock = &s->store.locks[store_slot(n->ino)];
  pthread_mutex_lock(lock);
  *h->back_of_node = h->next_of_node;
  if (h->next_of_node)
    h->next_of_node->back_of_node = h->back_of_node;
  pthread_mutex_unlock(lock);
  pthread_mutex_lock(&h->mount->lock);
  *h->back_of_mount = h->next_of_mount;
  if (h->next_of_mount)
    h->next_of_mount->back_of_mount = h->back_of_mount;
  pthread_mutex_unlock(&h->mount->lock);
  listing_free(h->listing);
  free(h);
  node_put(s, n);
}

unsigned node_writers(struct server *s, struct node *n, const struct mount *m) {
  unsigned count = 0;
  pthread_mutex_t *lock = &s->store.locks[store_slot(n->ino)];
  pthread_mutex_lock(lock);
  for (const struct handle *h = n->handles; h; h = h->next_of_node)
    count += h->mount == m && (h->flags & O_ACCMODE) != O_RDONLY;
  pthread_mutex_unlock(lock);
  return count;
}

void inode_reap(struct server *s, uint64_t ino) {
  struct record copy;
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return;
  bool held = r->nlink || *find(s, ino);
  copy = *r;
  if (!held)
    store_retire(r);
  store_unlock(&s->store, ino);
  if (held)
    return;
  if (S_ISREG(copy.mode) && copy.byte_count) {
    uint8_t *bytes = malloc(LOV_BYTES);
    ssize_t size = bytes ? store_bytes(&s->store, &copy, bytes, LOV_BYTES) : -ENOMEM;
    struct stripes *old = size > 0 ? stripes_new(ino, bytes, (size_t)size) : NULL;
    free(bytes);
    if (old)
      stripes_remove_objects(old, &s->env);
    stripes_free(old, &s->env);
  }
  store_forget(&s->store, &copy);
  model_mdt_use(s->model, -1);
}

void fill_stat(const struct record *r, struct stat *ret) {
  *ret = (struct stat){
    .st_ino = r->ino,
    .st_mode = r->mode,
    .st_nlink = r->nlink,
    .st_uid = r->uid,
    .st_gid = r->gid,
    .st_rdev = r->rdev,
    .st_size = (off_t)r->size_bytes,
    .st_blksize = SERVER_BLOCK_BYTES,
    .st_blocks = (blkcnt_t)(r->room_bytes / 512),
    .st_atim = {r->atime.s, r->atime.ns},
    .st_mtim = {r->mtime.s, r->mtime.ns},
    .st_ctim = {r->ctime.s, r->ctime.ns},
  };
  if (S_ISDIR(r->mode)) {
    ret->st_size = 4096;
    ret->st_blocks = 8;
  }
}
