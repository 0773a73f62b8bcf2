// SPDX-License-Identifier: Apache-2.0
/* The helper's side of the ring: by pread, since whoever owns the file may cut it short at any time. */
#include "board/ring.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_at(int fd, void *to, size_t size, uint64_t offset) {
  ssize_t got = pread(fd, to, size, (off_t)offset);
  return got == (ssize_t)size ? 0 : got < 0 ? -errno : -EPROTO;
}

int penstock_ring_look(const struct penstock_ring_reader *r, struct penstock_ring *ret) {
  return read_at(r->fd, ret, sizeof *ret, 0);
}

int penstock_ring_open(struct penstock_ring_reader *ret, int fd) {
  struct penstock_ring head;
  struct stat st;
  struct penstock_ring_reader r = {.fd = fd};
  int error = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? penstock_ring_look(&r, &head) : -EPROTO;
  if (!error && penstock_ring_wrong(&head, head.slots, (uint64_t)st.st_size))
    error = -EPROTO;
  if (error)
    return error;
  r.slots = head.slots;
  r.position = head.tail;
  *ret = r;
  return 0;
}

/* The slot at a position into `ret`: 1 when it counts, 0 when not, or -errno. */
static int slot_at(const struct penstock_ring_reader *r, uint64_t position, struct penstock_ring_slot *ret) {
  uint64_t again, offset = penstock_ring_slot_offset(r->slots, position);
  int error = read_at(r->fd, ret, sizeof *ret, offset);
  if (error || ret->commit != position + 1)
    return error;
  error = read_at(r->fd, &again, sizeof again, offset);
  if (error || again != ret->commit)
    return error;
  return ret->size <= PENSTOCK_RING_PAYLOAD && penstock_ring_sum(ret, position) == ret->sum;
}

/* What is passed over is counted; the next event begins at the next slot that is a first part. */
static void pass_over(struct penstock_ring_reader *r, uint64_t slots) {
  r->position += slots;
  r->holes += slots;
}

int penstock_ring_next(struct penstock_ring_reader *r, bool skip, uint8_t *room, size_t *ret_size, bool *ret_behind) {
  struct penstock_ring head;
  struct penstock_ring_slot slot;
  int error = penstock_ring_look(r, &head);
  *ret_behind = false;
  if (error)
    return error;
  /* A head that makes no sense: more than a whole ring ahead, or behind us. */
  if (head.head - r->position > r->slots) {
    pass_over(r, 1);
    r->position = head.head;
    return 0;
  }
  while (r->position != head.head) {
    size_t size = 0;
    uint32_t part = 0, parts = 1;
    for (; part < parts; part++) {
      if (r->position + part == head.head)
        break;
      int counts = slot_at(r, r->position + part, &slot);
      if (counts < 0)
        return counts;
      if (!counts || slot.part != part || (part && slot.parts != parts) || size + slot.size > PENSTOCK_EVENT_MAX)
        break;
      parts = slot.parts;
      memcpy(room + size, slot.payload, slot.size);
      size += slot.size;
    }
    if (part && part == parts) {
      struct penstock_event event;
      r->position += parts;
      if (size < sizeof event)
        continue;
      memcpy(&event, room, sizeof event);
      if (event.path_size > PENSTOCK_EVENT_PATH_MAX || event.path2_size > PENSTOCK_EVENT_PATH_MAX ||
          size != sizeof event + event.path_size + event.path2_size) {
        r->holes++;
        continue;
      }
      *ret_size = size;
      return 1;
    }
    *ret_behind = true;
    if (!skip)
      return 0;
    pass_over(r, 1);
    *ret_behind = false;
  }
  return 0;
}

int penstock_ring_release(struct penstock_ring_reader *r) {
  ssize_t done = pwrite(r->fd, &r->position, sizeof r->position, offsetof(struct penstock_ring, tail));
  return done == (ssize_t)sizeof r->position ? 0 : done < 0 ? -errno : -EIO;
}

int penstock_ring_dropped(const struct penstock_ring_reader *r, uint32_t place, char room[PENSTOCK_RING_FOLDER_BYTES]) {
  struct penstock_ring_folder f;
  if (place >= PENSTOCK_RING_FOLDERS)
    return -EINVAL;
  int error = read_at(r->fd, &f, sizeof f, PENSTOCK_RING_HEAD_BYTES + (uint64_t)place * sizeof f);
  if (error || !f.size)
    return error;
  if (f.size > sizeof f.path)
    return -EPROTO;
  memcpy(room, f.path, f.size);
  return (int)f.size;
}
