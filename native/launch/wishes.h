// SPDX-License-Identifier: Apache-2.0
/* The settings that launching needs, read without Python: the same names, files and precedence as base/settings.py.

   Invariant: nothing here can keep a program from starting.  What does not read as a value leaves the one below it;
   `penstock config check` is where mistakes are named. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { PENSTOCK_MOUNTS_MAX = 32 };

struct penstock_wishes {
  char state[PATH_MAX];
  char history[PATH_MAX];
  char board_dir[PATH_MAX]; /* "": chosen by boards.c */
  char agent_socket[108];   /* "": where agents listen by themselves */
  bool group;               /* the group may read the history */
  uint64_t board_max_bytes;
  uint32_t files_max, sample_every;
  uint32_t stages;
  char mounts[PENSTOCK_MOUNTS_MAX][240];
  uint32_t mount_count;
  char detect[256]; /* types of file systems, between colons, whose mounts are under control without being named */
  char catalog[PATH_MAX];      /* to be kept by this run; "": none */
  char catalog_root[PATH_MAX]; /* the folder that it is of; "": the one that it lies in */
  uint64_t ring_bytes;
};

/* Defaults, the site's file, the user's file, the environment. */
void penstock_wishes_read(struct penstock_wishes *ret);
/* NAME=VALUE on top of it; false when that is no setting of ours. */
bool penstock_wishes_set(struct penstock_wishes *w, const char *word);
/* What follows from all of them: call it last. */
void penstock_wishes_settle(struct penstock_wishes *w);
