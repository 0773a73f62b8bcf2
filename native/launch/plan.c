// SPDX-License-Identifier: Apache-2.0
/* See plan.h. */
#include "launch/plan.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "board/limits.h"
#include "kernels/crc32c.h"

_Static_assert((int)PENSTOCK_PLAN_LIMITS == (int)PENSTOCK_SECTION_LIMITS, "one number for both");

/* All of a file (or pipe), on a line of its own; NULL with errno. */
static void *read_all(const char *path, size_t *ret_bytes) {
  int fd = strncmp(path, "fd:", 3) == 0 ? atoi(path + 3) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  char *data = fd < 0 ? NULL : aligned_alloc(PENSTOCK_LINE, PENSTOCK_PLAN_BYTES_MAX);
  size_t size = 0;
  ssize_t got = data ? 1 : -1;
  while (got > 0 && size < PENSTOCK_PLAN_BYTES_MAX) {
    got = read(fd, data + size, PENSTOCK_PLAN_BYTES_MAX - size);
    size += got > 0 ? (size_t)got : 0;
  }
  int error = errno;
  if (fd >= 0)
    close(fd);
  if (got < 0) {
    free(data);
    errno = error;
    return NULL;
  }
  *ret_bytes = size;
  return data;
}

static const char *part_wrong(const char *data, size_t bytes, const struct penstock_plan_part *part) {
  if (part->size_bytes > bytes || part->offset_bytes > bytes - part->size_bytes || part->offset_bytes % PENSTOCK_LINE)
    return "its parts lie outside of it";
  if (part->kind == PENSTOCK_PLAN_LIMITS)
    return part->version == PENSTOCK_LIMITS_VERSION ? penstock_limits_wrong(data + part->offset_bytes, part->size_bytes)
                                                    : "its limits are of another version";
  return NULL;
}

static uint32_t sum_of(const char *data, size_t bytes) {
  struct penstock_plan_head head;
  memcpy(&head, data, sizeof head);
  head.check = 0;
  return penstock_crc32c(penstock_crc32c(0, (const char *)&head, sizeof head), data + sizeof head, bytes - sizeof head);
}

static const char *check(struct penstock_plan_file *ret, const char *data, size_t bytes) {
  const struct penstock_plan_head *head = (const void *)data;
  const struct penstock_plan_part *part = (const void *)(data + sizeof *head);
  if (bytes < sizeof *head || head->magic != PENSTOCK_PLAN_MAGIC)
    return "it is no plan";
  if (head->version != PENSTOCK_PLAN_VERSION)
    return "it is of another version";
  if (head->bytes != bytes || head->count > PENSTOCK_PLAN_PARTS_MAX || bytes < sizeof *head + head->count * sizeof *part ||
      sum_of(data, bytes) != head->check)
    return "it is damaged";
  for (uint32_t i = 0; i < head->count; i++) {
    const char *wrong = part_wrong(data, bytes, &part[i]);
    if (wrong)
      return wrong;
    ret->parts[i] = (struct penstock_board_part){part[i].kind, part[i].version, data + part[i].offset_bytes,
                                                 part[i].size_bytes};
  }
  ret->part_count = head->count;
  return NULL;
}

const char *penstock_plan_read(struct penstock_plan_file *ret, const char *path) {
  size_t bytes = 0;
  memset(ret, 0, sizeof *ret);
  ret->data = read_all(path, &bytes);
  const char *wrong = ret->data ? check(ret, ret->data, bytes) : strerror(errno);
  if (wrong)
    penstock_plan_free(ret);
  return wrong;
}

void penstock_plan_free(struct penstock_plan_file *plan) {
  free(plan->data);
  memset(plan, 0, sizeof *plan);
}
