// SPDX-License-Identifier: Apache-2.0
/* Numbers out of the text of statistics as Lustre writes it, many files at a time.

   A file is either a number alone (kbytesavail, degraded) or lines like
       write_bytes               8 samples [bytes] 4096 4194304 33554432 1407374
   of which the second word is how often, and the one after minimum and maximum the sum.

   A counter that was never raised is not in the text: it is 0.

   Invariants: nothing outside the text is read; what is no number is PENSTOCK_NO_COUNT, of a counter 0. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define PENSTOCK_NO_COUNT INT64_MIN
enum { PENSTOCK_COUNTER_NAMES_MAX = 16, PENSTOCK_COUNTER_FILE_BYTES = 65536 };

struct penstock_counter {
  int64_t samples;
  int64_t sum;
};

/* The number that the text begins with. */
int64_t penstock_number_parse(const char *text, size_t size);

/* The counters of these names, in their order; `names` are NUL-terminated. */
void penstock_counters_parse(const char *text, size_t size, const char *const *names, size_t n,
                             struct penstock_counter *ret);
