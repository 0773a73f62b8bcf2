// SPDX-License-Identifier: Apache-2.0
/* Two threads count in one plain variable. */
// caught by: tsan
#include <pthread.h>
#include <stddef.h>

static long count;

static void *add(void *unused) {
  for (int i = 0; i < 1000; i++)
    count++;
  return unused;
}

int main(void) {
  pthread_t other;
  if (pthread_create(&other, NULL, add, NULL))
    return 0;
  add(NULL);
  pthread_join(other, NULL);
  return count == 1;
}
