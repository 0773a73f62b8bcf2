// SPDX-License-Identifier: Apache-2.0
/* Futexes on shared words, as raw system calls: no errno, no cancellation point, and not our own wrapper of syscall(). */
#pragma once
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

/* Six arguments to the kernel; the result is negative errno. */
static inline long penstock_futex(const uint32_t *word, int op, uint32_t value, const struct timespec *until, uint32_t bits) {
#if defined(__x86_64__)
  long result;
  register const struct timespec *r10 __asm__("r10") = until;
  register const void *r8 __asm__("r8") = 0;
  register unsigned long r9 __asm__("r9") = bits;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"((long)SYS_futex), "D"(word), "S"((long)op), "d"((unsigned long)value), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register const void *x0 __asm__("x0") = word;
  register long x1 __asm__("x1") = op;
  register unsigned long x2 __asm__("x2") = value;
  register const struct timespec *x3 __asm__("x3") = until;
  register const void *x4 __asm__("x4") = 0;
  register unsigned long x5 __asm__("x5") = bits;
  register long x8 __asm__("x8") = SYS_futex;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8) : "memory");
  return (long)x0;
#else
#error "say here how this machine enters the kernel"
#endif
}

/* Sleeps while the word is `value`, until a time by CLOCK_MONOTONIC, a wake, or a signal. */
static inline void penstock_futex_wait(const uint32_t *word, uint32_t value, uint64_t until_ns) {
  struct timespec at = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
  penstock_futex(word, FUTEX_WAIT_BITSET, value, &at, FUTEX_BITSET_MATCH_ANY);
}

static inline void penstock_futex_wake_all(const uint32_t *word) {
  penstock_futex(word, FUTEX_WAKE, INT32_MAX, 0, 0);
}
