// SPDX-License-Identifier: Apache-2.0
/* A stage that writes a line for each call that it sees: to $PENSTOCK_TRACE, which it opens and closes each time.
   With $PENSTOCK_TRACE_FIRST it asks for paths before the call too. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/call.h"
#include "interpose/raw.h"

static char file[4096];
static const char *const op_names[] = {PENSTOCK_OP_NAMES};

static void start(void) {
  const char *name = getenv("PENSTOCK_TRACE");
  if (name)
    snprintf(file, sizeof file, "%s", name);
}

static void say(const char *when, struct penstock_call *call) {
  char line[4096];
  const char *path = penstock_path(call);
  int n = snprintf(line, sizeof line,
                   "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%lld\t%llu\t%lld\t%d\t%s\t%s\n", when, op_names[call->op], call->under,
                   call->does, call->failed, call->error, call->fd, (long long)call->result,
                   (unsigned long long)call->asked, call->positioned ? (long long)call->offset : -1,
                   (int)penstock_here.epoch, path ? path : "-", call->path2 ? call->path2 : "-");
  long fd = PENSTOCK_RAW(openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return;
  PENSTOCK_RAW(write, fd, line, n < (int)sizeof line ? n : (int)sizeof line, 0);
  PENSTOCK_RAW(close, fd, 0, 0, 0);
}

static enum penstock_answer before(struct penstock_call *call) {
#ifdef TRACE_FIRST
  say("before", call);
#else
  (void)call;
#endif
  return PENSTOCK_GO;
}

static void after(struct penstock_call *call) { say("after", call); }

const struct penstock_stage penstock_trace_stage = {
  .name = "trace",
  .bit = PENSTOCK_STAGE_PASS,
  .under = PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT,
#ifdef TRACE_FIRST
  .paths = PENSTOCK_PATHS_ALL,
#endif
  .start = start,
  .before = before,
  .after = after,
};
