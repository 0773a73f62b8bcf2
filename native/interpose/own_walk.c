// SPDX-License-Identifier: Apache-2.0
/* Walks through folders that libc does by itself: seen, and limited, an entry at a time where it hands them out. */
#include "interpose/wrap.h"

/* ---- ftw, nftw: a function of ours is called for each entry, and calls the program's ----

   libc passes no word of the caller's on, so the thread remembers in which walk it is, and a table what function that
   walk is for.  A walk that a longjmp leaves keeps its place for ever; without a place the program's function is called
   by libc itself, and its entries are not limited. */

enum { WALKS = 256 };
static _Atomic(void *) walks[WALKS];

/* 1 + the place; 0: none is free. */
static uint32_t begin_walk(void *visit) {
  for (uint32_t i = 0; i < WALKS; i++) {
    void *none = NULL;
    if (!atomic_load_explicit(&walks[i], memory_order_relaxed) && atomic_compare_exchange_strong(&walks[i], &none, visit))
      return i + 1;
  }
  return 0;
}

/* An entry is no call of its own: `limit` alone sees it. */
static void limit_entry(const char *path) {
  struct penstock_call call;
  if (!penstock_enter_path(&call, PENSTOCK_OP_WALK, 0, AT_FDCWD, path) || !(call.stages &= PENSTOCK_STAGE_LIMIT))
    return;
  if (!penstock_before(&call))
    penstock_after(&call, 0, false);
}

#define VISIT(type, ...) \
  uint32_t walk = penstock_thread.walk; \
  limit_entry(path); \
  int result = ((type)atomic_load_explicit(&walks[walk - 1], memory_order_relaxed))(__VA_ARGS__); \
  penstock_thread.walk = walk; \
  return result;

static int visit_ftw(const char *path, const struct stat *st, int kind) { VISIT(__ftw_func_t, path, st, kind) }
static int visit_ftw64(const char *path, const struct stat64 *st, int kind) { VISIT(__ftw64_func_t, path, st, kind) }
static int visit_nftw(const char *path, const struct stat *st, int kind, struct FTW *at) {
  VISIT(__nftw_func_t, path, st, kind, at)
}
static int visit_nftw64(const char *path, const struct stat64 *st, int kind, struct FTW *at) {
  VISIT(__nftw64_func_t, path, st, kind, at)
}

#define WALK(plain, ours) \
  struct penstock_call call; \
  if (!penstock_enter_path(&call, PENSTOCK_OP_WALK, 0, AT_FDCWD, path)) \
    return plain; \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  penstock_thread.inside = 0; \
  uint32_t around = penstock_thread.walk, walk = visit ? begin_walk((void *)visit) : 0; \
  penstock_thread.walk = walk; \
  int result = walk ? ours : plain; \
  penstock_thread.walk = around; \
  if (walk) \
    atomic_store_explicit(&walks[walk - 1], NULL, memory_order_release); \
  penstock_after(&call, result, result == -1); \
  return result;

PENSTOCK_EXPORT int ftw(const char *path, __ftw_func_t visit, int room) {
  WALK(penstock_real.ftw(path, visit, room), penstock_real.ftw(path, visit_ftw, room))
}
PENSTOCK_EXPORT int ftw64(const char *path, __ftw64_func_t visit, int room) {
  WALK(penstock_real.ftw64(path, visit, room), penstock_real.ftw64(path, visit_ftw64, room))
}
PENSTOCK_EXPORT int nftw(const char *path, __nftw_func_t visit, int room, int flags) {
  WALK(penstock_real.nftw(path, visit, room, flags), penstock_real.nftw(path, visit_nftw, room, flags))
}
PENSTOCK_EXPORT int nftw64(const char *path, __nftw64_func_t visit, int room, int flags) {
  WALK(penstock_real.nftw64(path, visit, room, flags), penstock_real.nftw64(path, visit_nftw64, room, flags))
}

/* ---- fts: the tree by its first root, then one call an entry ---- */

#define TREE(type, real) \
  struct penstock_call call; \
  if (!paths || !penstock_enter_path(&call, PENSTOCK_OP_WALK, 0, AT_FDCWD, paths[0])) \
    return real(paths, options, compare); \
  if (penstock_before(&call)) { \
    penstock_answer(&call); \
    return NULL; \
  } \
  type *result = real(paths, options, compare); \
  penstock_after(&call, result ? 0 : -1, !result); \
  return result;

PENSTOCK_EXPORT FTS *fts_open(char *const *paths, int options, int (*compare)(const FTSENT **, const FTSENT **)) {
  TREE(FTS, penstock_real.fts_open)
}
PENSTOCK_EXPORT FTS64 *fts64_open(char *const *paths, int options, int (*compare)(const FTSENT64 **, const FTSENT64 **)) {
  TREE(FTS64, penstock_real.fts64_open)
}

/* Where the tree stands; which entry comes next is not known before.  NULL: nowhere yet, or by a relative name, which
   means nothing to us while fts stands elsewhere. */
#define STANDS_AT(tree) \
  ((tree) && (tree)->fts_cur && (tree)->fts_cur->fts_info != FTS_INIT && (tree)->fts_path && (tree)->fts_path[0] == '/' \
     ? (tree)->fts_path \
     : NULL)

#define ENTRY(type, real) \
  struct penstock_call call; \
  if (!penstock_enter_path(&call, PENSTOCK_OP_WALK, 0, AT_FDCWD, STANDS_AT(tree))) \
    return real(tree); \
  if (penstock_before(&call)) { \
    penstock_answer(&call); \
    return NULL; \
  } \
  penstock_thread.inside = 0; \
  type *result = real(tree); \
  penstock_cwd_changes(); \
  call.given = result ? result->fts_path : NULL; \
  call.found_in = NULL; /* the same place, another text */ \
  penstock_after(&call, result ? 0 : -1, false); \
  return result;

PENSTOCK_EXPORT FTSENT *fts_read(FTS *tree) { ENTRY(FTSENT, penstock_real.fts_read) }
PENSTOCK_EXPORT FTSENT64 *fts64_read(FTS64 *tree) { ENTRY(FTSENT64, penstock_real.fts64_read) }
