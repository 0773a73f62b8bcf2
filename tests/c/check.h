// SPDX-License-Identifier: Apache-2.0
/* What a C test needs: a check that says where it failed, and stops.  A test is a program that exits 0. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(claim) \
  do { \
    if (!(claim)) { \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
      exit(1); \
    } \
  } while (0)

/* Two integers that should be the same; the expected one first. */
#define CHECK_EQ(expected, actual) check_eq(__FILE__, __LINE__, #actual, (long long)(expected), (long long)(actual))
static inline void check_eq(const char *file, int line, const char *what, long long expected, long long actual) {
  if (expected == actual)
    return;
  fprintf(stderr, "%s:%d: %s is %lld (0x%llx), not %lld (0x%llx)\n", file, line, what, actual, (unsigned long long)actual,
          expected, (unsigned long long)expected);
  exit(1);
}

#define CHECK_STR(expected, actual) check_str(__FILE__, __LINE__, #actual, (expected), (actual))
static inline void check_str(const char *file, int line, const char *what, const char *expected, const char *actual) {
  if (actual && strcmp(expected, actual) == 0)
    return;
  fprintf(stderr, "%s:%d: %s is '%s', not '%s'\n", file, line, what, actual ? actual : "(null)", expected);
  exit(1);
}
