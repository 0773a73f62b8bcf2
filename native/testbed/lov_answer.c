// SPDX-License-Identifier: Apache-2.0
/* What callers see of layouts: names of attributes, answers to getxattr and the ioctls.  Pure functions of bytes. */
#include "testbed/lov.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- names and flags ---- */

int lov_xattr_name(const char *name) {
  if (strcmp(name, "trusted.lov") == 0)
    return LOV_NAME_TRUSTED;
  if (strncmp(name, "lustre.", 7) != 0)
    return LOV_NAME_OTHER;
  name += 7;
  if (strcmp(name, "lov") == 0)
    return LOV_NAME_LUSTRE;
  return strncmp(name, "lov.", 4) == 0 ? -EINVAL : -EOPNOTSUPP;
}

size_t lov_list_names(bool admin, bool has_layout, char ret[64]) {
  static const char names[] = "trusted.lov\0lustre.lov";
  if (!has_layout)
    return 0;
  size_t skip = admin ? 0 : sizeof "trusted.lov";
  memcpy(ret, names + skip, sizeof names - skip);
  return sizeof names - skip;
}

bool lov_delayed(int flags) { return flags & O_ASYNC; }

bool lov_open_allocates(int flags, unsigned writers) {
  return (flags & O_ACCMODE) != O_RDONLY && !lov_delayed(flags) && writers == 0;
}

bool lov_may_write(const struct lov_caller *caller, uint32_t mode, uint32_t uid, uint32_t gid) {
  if (caller->uid == 0)
    return true;
  if (caller->uid == uid)
    return mode & 0200;
  bool in_group = caller->gid == gid;
  for (uint32_t i = 0; i < caller->group_count; i++)
    in_group |= caller->groups[i] == gid;
  return mode & (in_group ? 0020 : 0002);
}

/* ---- what reading shows ---- */

/* The component as shown: without what only the store knows (a list that is waited with), `offset` in its last field. */
static void show(struct penstock_component *c, uint16_t offset) {
  c->stripe_offset = offset;
  if (c->magic != PENSTOCK_LOV_SPECIFIC)
    return;
  c->magic = c->pool[0] ? PENSTOCK_LOV_V3 : PENSTOCK_LOV_V1;
  c->object_count = 0;
}

static ssize_t show_plain(const struct penstock_component *c, void *ret, size_t room) {
  const struct penstock_layout one = {.big_endian = penstock_host_big_endian(), .count = 1, .parts = c};
  return penstock_layout_write(&one, ret, room);
}

static ssize_t show_composite(const struct penstock_layout *l, uint16_t offset, void *ret, size_t room) {
  struct penstock_component parts[LOV_PARTS];
  if (l->count > LOV_PARTS)
    return -E2BIG;
  for (unsigned i = 0; i < l->count; i++) {
    int err = penstock_layout_component(l, i, &parts[i]);
    if (err < 0)
      return err;
    show(&parts[i], offset);
  }
  struct penstock_layout shown = *l;
  shown.parts = parts;
  return penstock_layout_write(&shown, ret, room);
}

/* The one component that stands for a composite where the caller knows plain layouts only: the last with objects. */
static int last_instantiated(const struct penstock_layout *l, struct penstock_component *ret) {
  for (unsigned i = l->count; i-- > 0;) {
    int err = penstock_layout_component(l, i, ret);
    if (err < 0 || ret->flags & PENSTOCK_COMP_INIT)
      return err;
  }
  return penstock_layout_component(l, 0, ret);
}

/* The caller says that it has room for `count` objects behind the header. */
static ssize_t show_cut(const struct penstock_layout *l, uint16_t count, void *ret, size_t room) {
  struct penstock_component c;
  int err = l->composite ? last_instantiated(l, &c) : penstock_layout_component(l, 0, &c);
  if (err < 0)
    return err;
  show(&c, l->composite ? 0 : c.stripe_offset);
  if (c.object_count > count)
    c.object_count = count;
  return show_plain(&c, ret, room);
}

ssize_t lov_file_answer(const void *stored, size_t size, enum lov_ask ask, const void *head, size_t head_size, void *ret,
                        size_t room) {
  struct penstock_layout l;
  int err = penstock_layout_parse(stored, size, &l);
  if (err < 0)
    return -EIO;
  uint32_t magic = 0;
  uint16_t count = 0;
  if (ask == LOV_GETSTRIPE && head && head_size >= PENSTOCK_LOV_V1_BYTES) {
    memcpy(&magic, head, sizeof magic);
    memcpy(&count, (const uint8_t *)head + 28, sizeof count);
  }
  if (magic == PENSTOCK_LOV_V1 || magic == PENSTOCK_LOV_V3)
    return show_cut(&l, count, ret, room);
  if (l.composite)
    return show_composite(&l, ask == LOV_GETXATTR ? PENSTOCK_OFFSET_ANY : 0, ret, room);
  struct penstock_component c;
  penstock_layout_component(&l, 0, &c);
  show(&c, ask == LOV_GETXATTR ? PENSTOCK_OFFSET_ANY : c.stripe_offset);
  return show_plain(&c, ret, room);
}

ssize_t lov_dir_answer(const void *own, size_t own_size, const void *root, size_t root_size, void *ret, size_t room) {
  const void *shown = own_size ? own : root;
  size_t size = own_size ? own_size : root_size;
  if (!shown || !size)
    return -ENODATA;
  if (size > room)
    return -ERANGE;
  memcpy(ret, shown, size);
  return (ssize_t)size;
}

/* ---- SETSTRIPE through a pointer ---- */

ssize_t lov_template_size(const void *head, size_t head_size, bool on_dir) {
  if (head_size < PENSTOCK_LOV_V1_BYTES)
    return -EFAULT;
  uint32_t magic, whole;
  uint16_t count;
  memcpy(&magic, head, sizeof magic);
  memcpy(&whole, (const uint8_t *)head + 4, sizeof whole);
  memcpy(&count, (const uint8_t *)head + 28, sizeof count);
  if (magic == PENSTOCK_LOV_V1)
    return PENSTOCK_LOV_V1_BYTES;
  if (magic == PENSTOCK_LOV_V3)
    return PENSTOCK_LOV_V3_BYTES;
  if (magic == PENSTOCK_LOV_SPECIFIC)
    return count > PENSTOCK_STRIPES_MAX ? -EINVAL : PENSTOCK_LOV_V3_BYTES + count * PENSTOCK_LOV_OBJECT_BYTES;
  if (on_dir)
    return -EOPNOTSUPP;
  if (magic == PENSTOCK_LOV_COMP && whole >= PENSTOCK_LOV_COMP_BYTES && whole <= LOV_BYTES)
    return whole;
  return -EINVAL;
}

ssize_t lov_write_back(const void *template, size_t template_size, const void *stored, size_t size, void *ret, size_t room) {
  ssize_t own = lov_template_size(template, template_size, false);
  if (own < 0)
    return own;
  ssize_t whole = lov_file_answer(stored, size, LOV_GETSTRIPE, NULL, 0, ret, room);
  return whole > own ? own : whole;
}
