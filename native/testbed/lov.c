// SPDX-License-Identifier: Apache-2.0
/* How files and directories get layouts. */
#include "testbed/lov.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct lov {
  pthread_mutex_t lock;
  struct lov_config config;
  uint32_t next;
};

struct lov *lov_new(const struct lov_config *config) {
  struct lov *lov = calloc(1, sizeof *lov);
  if (!lov || !config->ost_count) {
    free(lov);
    return NULL;
  }
  lov->config = *config;
  if (!lov->config.stripe_size_bytes)
    lov->config.stripe_size_bytes = 4u << 20;
  pthread_mutex_init(&lov->lock, NULL);
  return lov;
}

void lov_free(struct lov *lov) {
  if (lov)
    pthread_mutex_destroy(&lov->lock);
  free(lov);
}

void lov_refresh(struct lov *lov) { (void)lov; }

int lov_pool(struct lov *lov, const char *name, const uint32_t *osts, uint32_t count) {
  (void)lov, (void)name, (void)osts, (void)count;
  return 0;
}

uint64_t lov_object_seq(uint32_t ost) { return 0x240000400 + (uint64_t)ost * 0x40000000; }

ssize_t lov_create(struct lov *lov, const struct lov_request *request, void *ret, size_t room) {
  if (request->has_layout)
    return request->how == LOV_IOCTL ? -EEXIST : 0;
  pthread_mutex_lock(&lov->lock);
  uint32_t ost = lov->next++ % lov->config.ost_count, oid = 0;
  pthread_mutex_unlock(&lov->lock);
  int err = lov->config.new_object(lov->config.closure, ost, &oid);
  if (err < 0)
    return err;
  struct penstock_object object = {.fid_style = true, .seq = lov_object_seq(ost), .oid = oid, .ost = ost};
  struct penstock_component c = {.end_bytes = PENSTOCK_EOF, .magic = PENSTOCK_LOV_V1, .pattern = PENSTOCK_PATTERN_RAID0,
                                 .oi_id = request->fid_oid, .oi_seq = request->fid_seq,
                                 .stripe_size_bytes = lov->config.stripe_size_bytes, .stripe_count = 1,
                                 .object_count = 1, .objects = &object};
  struct penstock_layout l = {.big_endian = penstock_host_big_endian(), .count = 1, .parts = &c};
  return penstock_layout_write(&l, ret, room);
}

ssize_t lov_instantiate(struct lov *lov, const void *stored, size_t size, uint64_t start_bytes, uint64_t end_bytes,
                        void *ret, size_t room) {
  (void)lov, (void)stored, (void)size, (void)start_bytes, (void)end_bytes, (void)ret, (void)room;
  return 0;
}

ssize_t lov_set_dir(struct lov *lov, enum lov_how how, const void *template, size_t template_size, void *ret, size_t room) {
  (void)lov, (void)how;
  if (template_size > room)
    return -ERANGE;
  memcpy(ret, template, template_size);
  return (ssize_t)template_size;
}

ssize_t lov_inherit(const void *parent, size_t parent_size, uint64_t fid_seq, uint32_t fid_oid, void *ret, size_t room) {
  (void)fid_seq, (void)fid_oid;
  if (parent_size > room)
    return -ERANGE;
  memcpy(ret, parent, parent_size);
  return (ssize_t)parent_size;
}
