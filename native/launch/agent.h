// SPDX-License-Identifier: Apache-2.0
/* The agent of one job's board on one node: starts the program and waits for it as if it were not there, gives the board
   room, and writes frames into the history.  Used by penstock-run for the first rank of a node and by `penstock run`.

   Invariants:
   1. The program's results are its own: exit status, signals (the agent dies of the same one), streams, terminal.  The
      agent holds none of the program's files, folders or terminals open.
   2. Signals that a process sends to the agent go on to the program.  Those of the terminal reach the program's group
      by themselves and are not sent twice.  When the program is stopped from the terminal, so is the agent.
   3. The frames of a rank's node are written before the launcher can see that rank end, because launchers kill what is
      left when the last one has ended.  For others that still run a collector goes on, detached.
   4. Nothing is written to the program's streams (but a line at the end where `-v` asks for it); what goes wrong is one
      line in the log. */
#pragma once
#include "board/serve.h"
#include "launch/asks.h"
#include "launch/boards.h"
#include "launch/helper.h"
#include "launch/job.h"
#include "launch/msgpack.h"
#include "launch/wishes.h"

struct penstock_launch {
  struct penstock_job job;
  struct penstock_wishes wishes;
  const char *launcher; /* "penstock run" or "penstock-run" */
  char base[PENSTOCK_BOARDS_PATH_MAX];
  char board[PENSTOCK_BOARDS_PATH_MAX]; /* "": none, the program runs alone */
  bool nested;          /* the board is another agent's, the run is our own */
  char site[108];       /* the socket of that agent when it is the node's: then nobody but us writes our record */
  struct penstock_asks asks; /* limits of our own plan, and of runs within ours */
  bool die_with_us;     /* a launcher kills the program by killing us */
  bool plain_signals;   /* Python started us: SIGPIPE and SIGXFSZ are as Python left them, not as the program wants */
  bool verbose;
  struct penstock_helper helper; /* of the catalog */
  struct penstock_serve_section serve; /* what its programs are answered from, held open; root_size 0: nothing */
  char **argv;          /* of the program */
  char **environment;   /* of the program */
  char hint[512];       /* the command that would see all ranks, if some are not seen; "": none */
};

/* Runs the program and ends as it did: does not return. */
_Noreturn void penstock_agent_run(struct penstock_launch *launch, struct penstock_watch *watch);

/* Become the program: does not return.  126 or 127 as a shell gives, and its line on standard error; `failed` is a
   descriptor that is told so (-1: none). */
_Noreturn void penstock_become(const char *who, char **argv, char **environment, int failed);

/* Harvest a board and append its frames: 0 or -errno.  `only`: this run alone, or NULL.  `more`: frames to go with
   them.  `final`: also read layouts. */
int penstock_write_frames(struct penstock_watch *w, const struct penstock_wishes *wishes, const char *node,
                          const uint8_t *only, bool final, const char *reason, const struct penstock_pack *more,
                          uint32_t *living);

/* Bring in one board and remove it when nobody lives: 0 or -errno (-EWOULDBLOCK: it has an agent). */
int penstock_collect_board(const char *path, const struct penstock_wishes *wishes, const char *node, uint32_t *living);

/* Bring in boards whose agent was killed, and put those away on which nobody lives: how many were brought in. */
int penstock_collect(const char *base, const struct penstock_wishes *wishes, const char *node, const char *except);

/* The log, for appending; -1: it cannot be written. */
int penstock_log_open(const struct penstock_wishes *wishes);

/* One line in the log. */
void penstock_note(const struct penstock_wishes *wishes, const char *format, ...) __attribute__((format(printf, 2, 3)));
