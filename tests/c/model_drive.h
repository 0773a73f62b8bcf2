// SPDX-License-Identifier: Apache-2.0
/* Driving the service model in virtual time: calls, answers, counters.  Everything is deterministic. */
#pragma once
#include <errno.h>
#include <math.h>

#include "check.h"
#include "testbed/model_internal.h"

static inline struct model *drive_new(uint32_t oss, uint32_t osts, const char *settings) {
  char why[300] = "";
  struct model_config config = {.fsname = "test", .mdt_count = 1, .oss_count = oss, .ost_count = osts, .settings = settings};
  struct model *m = model_new(&config, why, sizeof why);
  if (!m)
    fprintf(stderr, "%s\n", why);
  CHECK(m);
  model_manual(m);
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++)
    model_client_up(m, i);
  return m;
}

static inline void drive_answered(void *closure, int err) {
  CHECK_EQ(0, err);
  ++**(int **)closure;
}

/* A call, and virtual time until its answer; nanoseconds it took. */
static inline uint64_t drive(struct model *m, struct model_call call) {
  int answered = 0, *there = &answered;
  uint64_t began = model_now(m);
  model_finish(m, &call, drive_answered, &there, sizeof there);
  while (!answered)
    CHECK(model_manual_run(m, began + 1000ull * 1000000000, true) < began + 1000ull * 1000000000 || answered);
  CHECK_EQ(1, answered);
  return model_now(m) - began;
}

static inline void drive_wait(struct model *m, double seconds) {
  model_manual_run(m, model_now(m) + (uint64_t)(seconds * 1e9), false);
}

/* What a command says; the caller frees it. */
static inline char *drive_command(struct model *m, const char *line, int expected) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  int err = model_command(m, line, out);
  fclose(out);
  if (err != expected)
    fprintf(stderr, "%s: %s\n", line, text);
  CHECK_EQ(expected, err);
  return text;
}

static inline void drive_do(struct model *m, const char *line) {
  free(drive_command(m, line, 0));
}

static inline long drive_counter(struct model *m, int client, const char *name) {
  char line[32], key[64];
  if (client < 0)
    snprintf(line, sizeof line, "counters");
  else
    snprintf(line, sizeof line, "counters %d", client);
  char *text = drive_command(m, line, 0);
  snprintf(key, sizeof key, "%s ", name);
  char *at = text;
  while (at && strncmp(at, key, strlen(key)))
    at = (at = strchr(at, '\n')) ? at + 1 : NULL;
  CHECK(at);
  long value = strtol(at + strlen(key), NULL, 10);
  free(text);
  return value;
}
