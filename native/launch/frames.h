// SPDX-License-Identifier: Apache-2.0
/* Frames of the history out of what was seen: the keys are those of src/penstock/runs/record.py. */
#pragma once
#include "launch/limited.h"
#include "launch/placed.h"
#include "launch/places.h"
#include "launch/segment.h"
#include "launch/served.h"

/* What a harvest knows besides the picture. */
struct penstock_frame_facts {
  const char *node;
  uint64_t time_ns;       /* CLOCK_REALTIME; also the seq */
  int64_t offset_ns;      /* CLOCK_REALTIME - CLOCK_MONOTONIC of the board */
  const uint8_t *run;     /* that made the board: what was lost is told in its frame */
  const uint64_t *lost;   /* by enum penstock_lost; NULL: not known */
  uint64_t damaged;       /* slots that made no sense */
  const struct penstock_mounts *mounts;
  const struct penstock_blob *layouts; /* or NULL */
  const struct penstock_placed *placed; /* or NULL; told in the same frame as what was lost */
  const struct penstock_limited *limited; /* or NULL; in the same frame too, or in that of the only run */
  const struct penstock_served *served; /* or NULL; in the same frame too */
  const char *reason;     /* a word of runs/reasons.py that holds for all of it, or NULL */
};

/* A node frame for each run in the picture; of `only` alone if that is given. */
void penstock_frames_node(struct penstock_pack *p, const struct penstock_picture *picture,
                          const struct penstock_frame_facts *facts, const uint8_t *only);

struct penstock_begin_facts {
  const char *job, *job_source, *step, *node, *user, *launcher;
  unsigned uid;
  char *const *argv;
  const char *cwd;
  uint64_t start_ns;
  uint32_t ranks;
};
void penstock_frame_begin(struct penstock_pack *p, const uint8_t run[16], const struct penstock_begin_facts *facts);

/* `status` is that of waitpid. */
void penstock_frame_end(struct penstock_pack *p, const uint8_t run[16], const char *node, int status, uint64_t end_ns);

void penstock_frame_mark(struct penstock_pack *p, const uint8_t run[16], const char *node, const char *word,
                         const char *text, const char *hint, uint64_t time_ns);
