// SPDX-License-Identifier: Apache-2.0
/* Extended attributes.  lustre.lov and trusted.lov are layouts (abi.c); penstock.folder and penstock.client say where
 * the testbed is and which client this mount is; user.*, trusted.* and security.* are kept as they come.
 *
 * All attributes of an inode are one file, xattrs/INODE: for each a length of the name (2 bytes, without NUL), one of the
 * value (4 bytes), the name, the value.  It is replaced whole, under the inode's lock. */
#include "testbed/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

enum { MAX_ALL_BYTES = 1 << 20, MAX_VALUE_BYTES = 65536 };

struct set {
  size_t size;
  uint8_t *bytes;
};

struct entry {
  const char *name;
  uint16_t name_size;
  const uint8_t *value;
  uint32_t value_size;
  size_t at, next;
};

static bool entry_at(const struct set *all, size_t at, struct entry *ret) {
  uint16_t name;
  uint32_t value;
  if (at + 6 > all->size)
    return false;
  memcpy(&name, all->bytes + at, 2);
  memcpy(&value, all->bytes + at + 2, 4);
  if (name > all->size - at - 6 || value > all->size - at - 6 - name)
    return false; /* a damaged file ends here */
  *ret = (struct entry){
    (const char *)all->bytes + at + 6, name, all->bytes + at + 6 + name, value, at, at + 6 + name + value};
  return true;
}

static bool find(const struct set *all, const char *name, struct entry *ret) {
  size_t length = strlen(name);
  for (size_t at = 0; entry_at(all, at, ret); at = ret->next)
    if (ret->name_size == length && memcmp(ret->name, name, length) == 0)
      return true;
  return false;
}

/* Reads all of an inode; the caller frees `bytes`. */
static int load(struct server *s, const struct record *r, size_t spare, struct set *ret) {
  *ret = (struct set){0, NULL};
  if (!r->has_xattrs && !spare)
    return 0;
  ret->bytes = malloc(MAX_ALL_BYTES + spare);
  if (!ret->bytes)
    return -ENOMEM;
  ssize_t n = r->has_xattrs ? store_read_file(s->store.xattrs, r->ino, ret->bytes, MAX_ALL_BYTES) : 0;
  ret->size = n > 0 ? (size_t)n : 0;
  return 0;
}

static int change(struct server *s, uint64_t ino, const char *name, const void *value, size_t size, int flags) {
  struct record *r = store_lock(&s->store, ino);
  if (!r)
    return -ESTALE;
  struct set all;
  int err = load(s, r, 6 + strlen(name) + size, &all);
  struct entry old;
  bool there = !err && find(&all, name, &old);
  if (!err && there && flags & XATTR_CREATE)
    err = -EEXIST;
  if (!err && !there && (flags & XATTR_REPLACE || !value))
    err = -ENODATA;
  if (!err && there) {
    memmove(all.bytes + old.at, all.bytes + old.next, all.size - old.next);
    all.size -= old.next - old.at;
  }
  if (!err && value) {
    uint16_t name_size = (uint16_t)strlen(name);
    uint32_t value_size = (uint32_t)size;
    if (all.size + 6 + name_size + size > MAX_ALL_BYTES) {
      err = -ENOSPC;
    } else {
      memcpy(all.bytes + all.size, &name_size, 2);
      memcpy(all.bytes + all.size + 2, &value_size, 4);
      memcpy(all.bytes + all.size + 6, name, name_size);
      memcpy(all.bytes + all.size + 6 + name_size, value, size);
      all.size += 6 + name_size + size;
    }
  }
  if (!err) {
    r->has_xattrs = 1;
    err = store_write_file(s->store.xattrs, ino, all.bytes, all.size);
    r->ctime = store_now();
  }
  store_unlock(&s->store, ino);
  free(all.bytes);
  return err;
}

/* Which names are kept at all; 0 or -errno. */
static int kept(const char *name) {
  if (strlen(name) > 255)
    return -ERANGE;
  if (strcmp(name, "security.selinux") == 0) /* as on a client without SELinux */
    return -EOPNOTSUPP;
  bool ours = strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 || strncmp(name, "security.", 9) == 0;
  return ours ? 0 : -EOPNOTSUPP;
}

/* ---- handlers ---- */

static void on_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags) {
  struct call c;
  call_begin(&c, req, MODEL_SETXATTR, ino);
  int what = lov_xattr_name(name), err = what < 0 ? what : 0;
  if (what == LOV_NAME_LUSTRE || what == LOV_NAME_TRUSTED) {
    c.model.op = MODEL_SETSTRIPE;
    err = what == LOV_NAME_TRUSTED && c.model.uid != 0 ? -EPERM : abi_set(&c, ino, LOV_XATTR, value, size);
  } else if (!err) {
    err = size > MAX_VALUE_BYTES ? -E2BIG : kept(name);
    if (!err)
      err = change(c.server, ino, name, value ? value : "", size, flags);
  }
  call_end(&c, err);
}

/* The testbed's own names: length, 0 if it is another name. */
static size_t about(const struct call *c, const char *name, char *ret, size_t room) {
  int n = 0;
  if (strcmp(name, "penstock.folder") == 0)
    n = snprintf(ret, room, "%s", c->server->folder);
  else if (strcmp(name, "penstock.client") == 0)
    n = snprintf(ret, room, "%u", c->mount->client);
  return n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static ssize_t kept_value(struct server *s, uint64_t ino, const char *name, uint8_t *ret, size_t room) {
  const struct record *r = store_lock(&s->store, ino);
  if (!r)
    return -ESTALE;
  struct set all = {0, NULL};
  int err = r->has_xattrs ? load(s, r, 0, &all) : 0;
  store_unlock(&s->store, ino);
  struct entry e;
  ssize_t size = err ? err : -ENODATA;
  if (!err && find(&all, name, &e))
    size = e.value_size <= room ? (ssize_t)e.value_size : -ERANGE;
  if (size > 0)
    memcpy(ret, e.value, (size_t)size);
  free(all.bytes);
  return size;
}

static ssize_t value_of(struct call *c, uint64_t ino, const char *name, uint8_t *ret, size_t room) {
  size_t size = about(c, name, (char *)ret, room);
  if (size)
    return (ssize_t)size;
  int what = lov_xattr_name(name);
  if (what < 0)
    return what == -EOPNOTSUPP ? what : -ENODATA;
  if (what == LOV_NAME_OTHER)
    return kept(name) ? -EOPNOTSUPP : kept_value(c->server, ino, name, ret, room);
  c->model.layout = true;
  if (what == LOV_NAME_TRUSTED && c->model.uid != 0)
    return -ENODATA;
  return abi_get(c->server, ino, LOV_GETXATTR, NULL, 0, ret, room);
}

static void on_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
  struct call c;
  call_begin(&c, req, MODEL_GETXATTR, ino);
  uint8_t *value = malloc(LOV_BYTES);
  ssize_t n = value ? value_of(&c, ino, name, value, LOV_BYTES) : -ENOMEM;
  if (n >= 0 && size && (size_t)n > size)
    n = -ERANGE;
  c.answer.kind = size ? ANSWER_BYTES : ANSWER_SIZE;
  c.answer.bytes = value;
  c.answer.size = n > 0 ? (size_t)n : 0;
  call_end(&c, n < 0 ? (int)n : 0);
}

static void add_names(const struct set *all, bool admin, char *ret, size_t *used, size_t room) {
  struct entry e;
  for (size_t at = 0; entry_at(all, at, &e); at = e.next) {
    bool shown = admin || e.name_size < 8 || memcmp(e.name, "trusted.", 8) != 0;
    if (!shown || *used + e.name_size + 1 > room)
      continue;
    memcpy(ret + *used, e.name, e.name_size);
    ret[*used + e.name_size] = 0;
    *used += e.name_size + 1u;
  }
}

static void on_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  struct call c;
  call_begin(&c, req, MODEL_LISTXATTR, ino);
  struct record r;
  int err = store_read(&c.server->store, ino, &r) ? 0 : -ESTALE;
  bool admin = c.model.uid == 0;
  char *names = malloc(MAX_VALUE_BYTES);
  size_t used = 0;
  struct set all = {0, NULL};
  if (!names)
    err = -ENOMEM;
  if (!err) {
    uint8_t own[LOV_BYTES];
    bool layout = !S_ISLNK(r.mode) && abi_get(c.server, ino, LOV_GETXATTR, NULL, 0, own, sizeof own) > 0;
    used = lov_list_names(admin, layout, names);
    if (r.has_xattrs && (err = load(c.server, &r, 0, &all)) == 0)
      add_names(&all, admin, names, &used, MAX_VALUE_BYTES);
  }
  free(all.bytes);
  if (!err && size && used > size)
    err = -ERANGE;
  c.answer.kind = size ? ANSWER_BYTES : ANSWER_SIZE;
  c.answer.bytes = names;
  c.answer.size = used;
  call_end(&c, err);
}

static void on_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name) {
  struct call c;
  call_begin(&c, req, MODEL_REMOVEXATTR, ino);
  int what = lov_xattr_name(name), err = what < 0 ? what : 0;
  if (what == LOV_NAME_LUSTRE || what == LOV_NAME_TRUSTED)
    err = abi_set(&c, ino, LOV_XATTR, "", 0);
  else if (!err && (err = kept(name)) == 0)
    err = change(c.server, ino, name, NULL, 0, 0);
  call_end(&c, err);
}

void xattrs_ops(struct fuse_lowlevel_ops *ops) {
  ops->setxattr = on_setxattr;
  ops->getxattr = on_getxattr;
  ops->listxattr = on_listxattr;
  ops->removexattr = on_removexattr;
}
