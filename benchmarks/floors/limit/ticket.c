// SPDX-License-Identifier: Apache-2.0
/* The least that a shared rate can cost: one word, the theoretical arrival time of the next call, moved by one
   compare-and-swap; waits on a futex.  It gives nothing back, tells nothing, and a change of rate must write the word. */
#include "calls.h"
#include "board/futex.h"

static struct {
  _Alignas(128) _Atomic int64_t next_ns;
  _Alignas(128) _Atomic int64_t step_ns, burst_ns;
  uint32_t gen; /* changes with the rate: waiters look again */
} *limit;

static void begin(void) { limit = shared(sizeof *limit); }

static void set_rate(double per_s, double burst_s) {
  int64_t now = (int64_t)now_ns();
  limit->step_ns = (int64_t)(1e9 / per_s);
  limit->burst_ns = (int64_t)(burst_s * 1e9);
  limit->next_ns = now;
  __atomic_fetch_add(&limit->gen, 1, __ATOMIC_RELEASE);
  penstock_futex_wake_all(&limit->gen);
}

static __attribute__((noinline)) void wait_until(int64_t due_ns, uint32_t gen) {
  while ((int64_t)now_ns() < due_ns && __atomic_load_n(&limit->gen, __ATOMIC_ACQUIRE) == gen)
    penstock_futex_wait(&limit->gen, gen, (uint64_t)due_ns);
}

static void take(void) {
  uint32_t gen = __atomic_load_n(&limit->gen, __ATOMIC_ACQUIRE);
  int64_t now = (int64_t)now_ns(), least = now - atomic_load_explicit(&limit->burst_ns, memory_order_relaxed);
  int64_t step = atomic_load_explicit(&limit->step_ns, memory_order_relaxed), at;
  int64_t next = atomic_load_explicit(&limit->next_ns, memory_order_relaxed);
  do
    at = next > least ? next : least;
  while (!atomic_compare_exchange_weak(&limit->next_ns, &next, at + step));
  if (__builtin_expect(at > now, 0))
    wait_until(at, gen);
}
