// SPDX-License-Identifier: Apache-2.0
/* The stage `place` while what it reads changes: another thread writes numbers and names that do not fit together, as fast
   as it can, and never says so.  Nothing may be divided by zero, nothing may grow past its room. */
// uses: board/place.c
// not under: tsan (the race is what is tested)
#include "stages/place.c"
#include <pthread.h>
#include <stdatomic.h>
#include "check.h"

struct penstock_here penstock_here;
bool penstock_sealed(void) { return false; }
bool penstock_on_signal_stack(void) { return false; }
const char *penstock_path(struct penstock_call *call) { return call->path; }
void penstock_limit_more(const struct penstock_call *call, unsigned calls) { (void)call, (void)calls; }

enum { LISTS = 4, WIDE = 2, POOLS = 2, ROUNDS = 2000000 };
static struct {
  struct penstock_place_head head;
  struct penstock_place_entry entry;
  struct penstock_place_pool pools[POOLS];
  uint16_t targets[LISTS * WIDE];
} section;
static struct penstock_place plan = {
  .head = &section.head,
  .entries = &section.entry,
  .targets = section.targets,
  .pools = section.pools,
  .entry_count = 1,
  .target_count = LISTS * WIDE,
  .pool_count = POOLS,
  .driver = PENSTOCK_PLACE_LUSTRE,
};
static _Alignas(64) uint8_t usage[PENSTOCK_USAGE_HEAD_BYTES];
static atomic_bool over;

static void say(uint32_t turns, uint16_t wide, uint32_t count, const char *name, size_t size) {
  *(volatile uint32_t *)&section.entry.turns = turns;
  *(volatile uint16_t *)&section.entry.count = wide;
  *(volatile uint32_t *)&section.pools[0].count = count;
  for (size_t i = 0; i < size; i++)
    *(volatile char *)&section.pools[1].name[i] = name[i];
}

static void *changes(void *unused) {
  char good[PENSTOCK_PLACE_POOL_NAME] = "fast", bad[PENSTOCK_PLACE_POOL_NAME];
  memset(bad, 'x', sizeof bad);
  while (!atomic_load(&over)) {
    say(LISTS, WIDE, LISTS * WIDE, good, sizeof good);
    say(0, PENSTOCK_PLACE_STRIPES_MAX + 1, 0, bad, sizeof bad);
  }
  return unused;
}

int main(void) {
  struct penstock_placing doing = {.doing = SET_ENTRY};
  struct folder folders_say[] = {{.kind = PENSTOCK_FOLDER_NONE}, {.kind = PENSTOCK_FOLDER_PLAIN, .count = 1, .pool = 2}};
  pthread_t other;
  uint64_t made = 0;
  penstock_here.usage = usage;
  section.head.default_count = 1;
  CHECK_EQ(0, pthread_create(&other, NULL, changes, NULL));
  for (int i = 0; i < ROUNDS; i++) {
    struct penstock_place_entry copy;
    struct template t;
    char name[PENSTOCK_POOL_BYTES];
    made += make_template(&plan, entry_of(&plan, &doing, &copy), folders_say[i & 1], &t);
    copy_name(name, sizeof name, &plan, 1);
    CHECK(memchr(name, 0, sizeof name));
  }
  atomic_store(&over, true);
  CHECK_EQ(0, pthread_join(other, NULL));
  CHECK(made);
  return 0;
}
