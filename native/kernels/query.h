// SPDX-License-Identifier: Apache-2.0
/* Questions about entries, as `find` asks them: a tree of tests, evaluated for each entry of a walk.

   The tests lie in an array; the last is the root of the tree, and a test refers only to earlier ones: evaluating ends.
   Nothing is allocated.  What a test needs and cannot be read (a damaged part) makes it false. */
#pragma once
#include <regex.h>

#include "kernels/view.h"

enum penstock_test_kind {
  PENSTOCK_TEST_TRUE,
  PENSTOCK_TEST_AND,  /* a, b: numbers of tests */
  PENSTOCK_TEST_OR,
  PENSTOCK_TEST_COMMA, /* both, the second's answer */
  PENSTOCK_TEST_NOT,
  PENSTOCK_TEST_NAME,  /* text: a pattern; low 1: upper and lower case are the same */
  PENSTOCK_TEST_PATH,  /* the same for the path as it would be printed */
  PENSTOCK_TEST_TARGET, /* the same for a symlink's target */
  PENSTOCK_TEST_TYPE,  /* low: bits of S_IFMT >> 12 that are wished */
  PENSTOCK_TEST_SIZE,  /* a: bytes of a unit; low..high: units, rounded up */
  PENSTOCK_TEST_BYTES_ON, /* the same for blocks × 512 */
  PENSTOCK_TEST_MTIME, /* low..high: nanoseconds, 64 bits, saturated */
  PENSTOCK_TEST_CTIME,
  PENSTOCK_TEST_ATIME,
  PENSTOCK_TEST_UID,   /* low..high */
  PENSTOCK_TEST_GID,
  PENSTOCK_TEST_INODE,
  PENSTOCK_TEST_LINKS,
  PENSTOCK_TEST_PERM,  /* a: 0 exactly, 1 all of, 2 any of; low: bits */
  PENSTOCK_TEST_EMPTY,
  PENSTOCK_TEST_STRIPES, /* low..high: of the layout's last component */
  PENSTOCK_TEST_STRIPE_BYTES,
  PENSTOCK_TEST_COMPONENTS,
  PENSTOCK_TEST_OST,   /* low..high: one of the file's targets is there */
  PENSTOCK_TEST_POOL,  /* text: a pattern */
  PENSTOCK_TEST_PRUNE,
  PENSTOCK_TEST_PRINT, /* a: the byte behind the path */
  PENSTOCK_TEST_CALL,  /* a: which of the caller's actions; its answer */
  PENSTOCK_TEST_QUIT,
  PENSTOCK_TEST_REGEX, /* regex: one that the whole path matches, as it would be printed */
};

struct penstock_test {
  enum penstock_test_kind kind;
  uint32_t a, b;
  int64_t low, high;
  const char *text; /* NUL at its end */
  struct re_pattern_buffer *regex;
};

enum { PENSTOCK_TESTS_MAX = 4096 };

struct penstock_query {
  const struct penstock_view *view;
  const struct penstock_test *test;
  size_t count;
  const char *prefix; /* stands before each path printed: how the start of the walk was named */
  size_t prefix_size, skip; /* so many bytes of a path are in the prefix already */
  unsigned depth_min;
  bool one_mount, other_mount; /* do not go into other file systems; the start is on another than the catalog's root */
  void (*print)(void *state, const char *path, size_t size, char end);
  bool (*call)(void *state, uint32_t which, const struct penstock_visit *it, const char *path, size_t size);
  void *state;
  bool contents_first; /* a folder comes after what is in it: see penstock_query_end */
  struct penstock_held *held; /* folders whose time has not come yet, outermost first */
  size_t held_count, held_room;
  char *path; /* room for a printed path */
  size_t path_room;
  /* set by evaluating */
  bool pruned, quit, full;
};

/* 0, or -EINVAL: a test refers to itself or a later one. */
int penstock_query_check(const struct penstock_query *q);

/* Evaluates for the folders that are held yet, and frees what was used.  -ENOMEM: something was left out. */
int penstock_query_end(struct penstock_query *q);

/* Evaluates for one entry; what the walk does next. */
enum penstock_walk penstock_query_visit(struct penstock_query *q, const struct penstock_visit *it);
