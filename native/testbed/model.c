// SPDX-License-Identifier: Apache-2.0
/* The face of the service model: brings its parts up and down.  For now it charges nothing. */
#include "testbed/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct model {
  uint32_t oss_count;
};

struct model *model_new(const struct model_config *config, char *why, size_t why_size) {
  struct model *m = calloc(1, sizeof *m);
  if (!m) {
    snprintf(why, why_size, "out of memory");
    return NULL;
  }
  m->oss_count = config->oss_count ? config->oss_count : 1;
  return m;
}

int model_start(struct model *m) {
  (void)m;
  return 0;
}

void model_free(struct model *m) {
  free(m);
}

void model_client_up(struct model *m, uint32_t client) {
  (void)m, (void)client;
}

void model_client_down(struct model *m, uint32_t client) {
  (void)m, (void)client;
}

void model_finish(struct model *m, const struct model_call *call, model_fn fn, void *closure, size_t size) {
  (void)m, (void)call, (void)size;
  fn(closure, 0);
}

void model_interrupt(struct model *m, uint64_t token) {
  (void)m, (void)token;
}

int model_refuses(struct model *m, const struct model_call *call) {
  (void)m, (void)call;
  return 0;
}

uint64_t model_name(const char *name) {
  uint64_t h = 0xcbf29ce484222325; /* FNV-1a */
  for (; *name; name++) h = (h ^ (uint8_t)*name) * 0x100000001b3;
  return h ? h : 1;
}

uint32_t model_ost_state(struct model *m, uint32_t ost) {
  (void)m, (void)ost;
  return 0;
}

void model_ost_space(struct model *m, uint32_t ost, struct model_space *ret) {
  (void)m, (void)ost;
  *ret = (struct model_space){10ull << 30, 10ull << 30, 10ull << 20, 1 << 20, 1 << 20};
}

int model_ost_use(struct model *m, uint32_t ost, int64_t bytes, int64_t objects, bool force) {
  (void)m, (void)ost, (void)bytes, (void)objects, (void)force;
  return 0;
}

uint32_t model_oss_of(struct model *m, uint32_t ost) {
  return ost % m->oss_count;
}

void model_mdt_use(struct model *m, int64_t inodes) {
  (void)m, (void)inodes;
}

int model_command(struct model *m, const char *line, FILE *out) {
  (void)m;
  fprintf(out, "unknown command: %s\n", line);
  return -EINVAL;
}
