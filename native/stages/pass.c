// SPDX-License-Identifier: Apache-2.0
/* The stage that does nothing: what a new one is copied from.

   To make a stage: copy this file to stages/NAME.c, put STAGE(NAME) at its place in interpose/stages.def, name the file
   in native/interpose/meson.build, and give it a bit of its own in board.h (PENSTOCK_STAGE_NAME).  It is on while that
   bit stands in control.stages, which may change while programs run.

   What holds in every function below (call.h says more):
   - no allocation, no stdio, no locks, no unbounded loop, only async-signal-safe functions; errno is taken care of;
   - the board is hostile: indices and sizes that come from it are checked against sizes that are known otherwise;
   - what a stage keeps lies in static memory or on the board, and stands when a thread is killed in the middle of it. */
#include "interpose/call.h"

/* Once in a process, before the program's main, when a board is attached: penstock_here says where it is. */
static void start(void) {
}

/* Before the real call.  It may wait, change how a file is created (open_flags, mode), or answer the call itself: then it
   sets result and error and returns PENSTOCK_ANSWERED, and the real call is left out.  Setting `timed` asks for the clock
   around the real call. */
static enum penstock_answer before(struct penstock_call *call) {
  (void)call;
  return PENSTOCK_GO;
}

/* After the real call, whose result and error stand in the call. */
static void after(struct penstock_call *call) {
  (void)call;
}

/* In a new process after a fork, before its first call: what was the parent's is not ours. */
static void child(void) {
}

const struct penstock_stage penstock_pass_stage = {
  .name = "pass",
  .bit = PENSTOCK_STAGE_PASS,
  .under = PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT,
  .paths = PENSTOCK_PATHS_ALL,
  .start = start,
  .before = before,
  .after = after,
  .child = child,
};
