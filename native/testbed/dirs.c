// SPDX-License-Identifier: Apache-2.0
/* Reading directories.  A scan sees the names as they were when it began: a listing is taken at the first read and at
 * each rewind, so names that others add or remove meanwhile neither hide nor repeat anything. */
#include "testbed/server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All names: `bytes` holds for each its inode number (8 bytes), its type (1 byte) and its text with NUL. */
struct listing {
  uint32_t count;
  size_t used, room;
  size_t *at; /* of each name in `bytes` */
  uint32_t at_room;
  uint8_t bytes[];
};

static bool add(struct listing **l, uint64_t ino, uint8_t type, const char *name) {
  size_t size = 9 + strlen(name) + 1;
  if ((*l)->used + size > (*l)->room) {
    size_t room = ((*l)->room + size) * 2;
    struct listing *more = realloc(*l, sizeof *more + room);
    if (!more)
      return false;
    more->room = room;
    *l = more;
  }
  if ((*l)->count == (*l)->at_room) {
    uint32_t room = (*l)->at_room * 2 + 64;
    size_t *more = realloc((*l)->at, room * sizeof *more);
    if (!more)
      return false;
    (*l)->at = more;
    (*l)->at_room = room;
  }
  uint8_t *to = (*l)->bytes + (*l)->used;
  (*l)->at[(*l)->count++] = (*l)->used;
  memcpy(to, &ino, 8);
  to[8] = type;
  strcpy((char *)to + 9, name);
  (*l)->used += size;
  return true;
}

void listing_free(struct listing *l) {
  if (l)
    free(l->at);
  free(l);
}

static int read_names(struct server *s, uint64_t dir, struct listing **l) {
  int fd = store_list(&s->store, dir);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    if (fd >= 0)
      close(fd);
    return fd == -ENOENT ? 0 : fd < 0 ? fd : -ENOMEM; /* removed while open: empty */
  }
  bool fits = true;
  struct dirent *e;
  while (fits && (e = readdir(d))) {
    uint64_t ino;
    struct record r;
    if (e->d_name[0] == '.' && (!e->d_name[1] || (e->d_name[1] == '.' && !e->d_name[2])))
      continue;
    if (store_find(&s->store, dir, e->d_name, &ino) == 0 && store_read(&s->store, ino, &r))
      fits = add(l, ino, (uint8_t)(r.mode >> 12), e->d_name);
  }
  closedir(d);
  return fits ? 0 : -ENOMEM;
}

static int take_listing(struct server *s, struct handle *h) {
  struct record r;
  listing_free(h->listing);
  h->listing = calloc(1, sizeof *h->listing);
  if (!h->listing || !store_read(&s->store, h->node->ino, &r))
    return h->listing ? -ESTALE : -ENOMEM;
  if (!add(&h->listing, r.ino, S_IFDIR >> 12, ".") ||
      !add(&h->listing, r.ino == STORE_ROOT ? r.ino : r.parent, S_IFDIR >> 12, ".."))
    return -ENOMEM;
  return read_names(s, r.ino, &h->listing);
}

static void on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_OPENDIR, ino);
  c.model.is_dir = true;
  c.model.flags = fi->flags;
  struct handle *h;
  int err = handle_new(c.server, c.mount, ino, O_RDONLY, &h);
  if (!err) {
    c.answer.kind = ANSWER_OPEN;
    c.answer.file = *fi;
    c.answer.file.fh = (uint64_t)(uintptr_t)h;
  }
  call_end(&c, err);
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_READDIR, ino);
  c.model.is_dir = true;
  c.model.offset = (uint64_t)offset;
  struct handle *h = (struct handle *)(uintptr_t)fi->fh;
  int err = offset == 0 || !h->listing ? take_listing(c.server, h) : 0;
  char *out = err ? NULL : malloc(size);
  if (!err && !out)
    err = -ENOMEM;
  size_t used = 0;
  uint32_t given = 0;
  for (uint64_t i = (uint64_t)offset; !err && i < h->listing->count; i++, given++) {
    const uint8_t *e = h->listing->bytes + h->listing->at[i];
    struct stat st = {.st_mode = (mode_t)e[8] << 12};
    memcpy(&st.st_ino, e, 8);
    size_t need = fuse_add_direntry(req, out + used, size - used, (const char *)e + 9, &st, (off_t)i + 1);
    if (need > size - used)
      break;
    used += need;
  }
  c.model.size = given;
  c.answer.kind = ANSWER_BYTES;
  c.answer.bytes = out;
  c.answer.size = used;
  call_end(&c, err);
}

static void on_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  struct call c;
  call_begin(&c, req, MODEL_CLOSEDIR, ino);
  c.model.is_dir = true;
  handle_free(c.server, (struct handle *)(uintptr_t)fi->fh);
  call_end(&c, 0);
}

static void on_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi) {
  (void)data_only, (void)fi;
  struct call c;
  call_begin(&c, req, MODEL_FSYNCDIR, ino);
  c.model.is_dir = true;
  call_end(&c, 0);
}

void dirs_ops(struct fuse_lowlevel_ops *ops) {
  ops->opendir = on_opendir;
  ops->readdir = on_readdir;
  ops->releasedir = on_releasedir;
  ops->fsyncdir = on_fsyncdir;
}
