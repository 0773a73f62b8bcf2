// SPDX-License-Identifier: Apache-2.0
/* Where the process stands, asked of the kernel once after each chdir, by whichever thread.

   `changes` grows before and after each chdir; what was read counts while it is what it was.  The cache is written by
   whoever gets `turn` from even to odd; who does not get it, or reads while somebody writes, asks the kernel. */
#include <string.h>
#include "interpose/process.h"
#include "interpose/raw.h"

static struct {
  atomic_uint turn;
  atomic_uint changes;
  unsigned read_at; /* `changes` when it was read */
  uint16_t size;    /* 0: nothing here */
  char path[PENSTOCK_NAME_MAX];
} cwd;

void penstock_cwd_changes(void) { atomic_fetch_add(&cwd.changes, 1); }

/* A fork may have caught another thread while it wrote. */
void penstock_cwd_child(void) {
  cwd.size = 0;
  atomic_store(&cwd.turn, 0);
}

static ssize_t cached(char to[PENSTOCK_NAME_MAX], unsigned turn, unsigned changes) {
  if (turn & 1)
    return -1;
  size_t size = __atomic_load_n(&cwd.size, __ATOMIC_RELAXED);
  if (!size || size >= PENSTOCK_NAME_MAX || __atomic_load_n(&cwd.read_at, __ATOMIC_RELAXED) != changes)
    return -1;
  memcpy(to, cwd.path, size);
  atomic_thread_fence(memory_order_acquire);
  return atomic_load_explicit(&cwd.turn, memory_order_relaxed) == turn ? (ssize_t)size : -1;
}

static void keep(const char *path, size_t size, unsigned turn, unsigned changes) {
  if (turn & 1 || !atomic_compare_exchange_strong(&cwd.turn, &turn, turn + 1))
    return;
  atomic_thread_fence(memory_order_release);
  memcpy(cwd.path, path, size);
  __atomic_store_n(&cwd.size, (uint16_t)size, __ATOMIC_RELAXED);
  __atomic_store_n(&cwd.read_at, changes, __ATOMIC_RELAXED);
  atomic_store_explicit(&cwd.turn, turn + 2, memory_order_release);
}

ssize_t penstock_cwd(char to[PENSTOCK_NAME_MAX]) {
  unsigned turn = atomic_load_explicit(&cwd.turn, memory_order_acquire);
  unsigned changes = atomic_load(&cwd.changes);
  ssize_t size = cached(to, turn, changes);
  if (size >= 0)
    return size;
  if (atomic_load_explicit(&penstock_process.sealed, memory_order_relaxed))
    return -1;
  long got = PENSTOCK_RAW(getcwd, to, PENSTOCK_NAME_MAX, 0, 0);
  /* "(unreachable)...": outside of our root. */
  if (got < 2 || to[0] != '/')
    return -1;
  keep(to, (size_t)got - 1, turn, changes);
  return got - 1;
}
