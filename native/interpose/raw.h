// SPDX-License-Identifier: Apache-2.0
/* System calls that touch neither errno nor anybody's wrapper of them: a negative result is minus the error.  Used for
   what we do on our own account: at start, and on a descriptor that the program brought along unseen. */
#pragma once
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long penstock_raw6(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
static inline long penstock_raw6(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
#error "no system calls known for this machine"
#endif

#define PENSTOCK_RAW(name, a, b, c, d) \
  penstock_raw6(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
