// SPDX-License-Identifier: Apache-2.0
/* The stock allocator: what was observed on four OSTs, and laws over random file systems. */
#include "testbed/alloc.c"

#include "check.h"

/* ---- a file system of any shape ---- */

struct world {
  struct alloc *alloc;
  uint32_t count;
  uint64_t now_ns;
  struct lov_ost osts[ALLOC_MAX_OSTS];
};

static void ask(void *closure, uint32_t ost, struct lov_ost *ret) { *ret = ((struct world *)closure)->osts[ost]; }
static uint64_t clock_of(void *closure) { return ((struct world *)closure)->now_ns; }

static struct world *world_up(uint32_t osts, uint32_t servers, uint64_t seed) {
  struct world *w = calloc(1, sizeof *w);
  CHECK(w);
  w->count = osts;
  w->now_ns = 1000 * SECOND_NS;
  for (uint32_t i = 0; i < osts; i++)
    w->osts[i] = (struct lov_ost){.oss = i % servers, .free_bytes = 884092ull << 10};
  struct lov_config config = {.ost_count = osts, .seed = seed, .qos_threshold_percent = 17, .qos_prio_free_percent = 90,
                              .space_age_ns = 5 * SECOND_NS, .closure = w, .look = ask, .now_ns = clock_of};
  w->alloc = alloc_new(&config);
  CHECK(w->alloc);
  return w;
}

static void world_down(struct world *w) {
  alloc_free(w->alloc);
  free(w);
}

static struct alloc_wish any(uint32_t count) {
  return (struct alloc_wish){.count = count, .offset = PENSTOCK_OFFSET_ANY, .pool = "", .most = PENSTOCK_STRIPES_MAX};
}

static struct alloc_choice choice;

static void choose_any(struct world *w, uint32_t count) {
  struct alloc_wish wish = any(count);
  CHECK_EQ(0, alloc_choose(w->alloc, &wish, &choice));
}

/* A linear congruence of our own, so that tests do not depend on the allocator's numbers. */
static uint32_t noise(uint32_t below) {
  static uint64_t z = 7;
  z = z * 6364136223846793005 + 1442695040888963407;
  return (uint32_t)(z >> 33) % below;
}

/* ---- in turn ---- */

/* Row 80: every OST the same number, one after the other, whatever the servers. */
static void even(void) {
  for (uint32_t osts = 1; osts <= 40; osts += osts < 8 ? 1 : 7) {
    struct world *w = world_up(osts, 1 + osts / 3, osts);
    uint32_t used[64] = {0}, previous[64] = {0};
    for (uint32_t i = 0; i < 15 * osts; i++) {
      choose_any(w, 1);
      CHECK_EQ(1, choice.count);
      uint32_t ost = choice.osts[0];
      CHECK(i < osts || i - previous[ost] == osts);
      previous[ost] = i;
      used[ost]++;
    }
    for (uint32_t i = 0; i < osts; i++)
      CHECK_EQ(15, used[i]);
    world_down(w);
  }
  printf("row 80\n");
}

/* Do the files of one client with `count` stripes come in this order, from some start? */
static bool comes(uint32_t count, const char *series) {
  for (uint64_t seed = 1; seed < 200; seed++) {
    struct world *w = world_up(4, 1, seed);
    char got[512] = "";
    for (uint32_t files = (uint32_t)(strlen(series) + 1) / (count + 1) + seed % 16; files; files--) {
      choose_any(w, count);
      for (uint32_t i = 0; i < choice.count; i++)
        snprintf(got + strlen(got), 8, "%u", choice.osts[i]);
      strcat(got, files > 1 ? " " : "");
    }
    world_down(w);
    if (strcmp(got + strlen(got) - strlen(series), series) == 0)
      return true;
  }
  return false;
}

/* With one OSS the order is that of the indices, and the start creeps as observed. */
static void creeping(void) {
  CHECK(comes(1, "2 3 0 1 2 3 0 1"));
  CHECK(comes(2, "30 23 01 30 12 01 23 12 30"));
  CHECK(comes(3, "123 012 301 230 123"));
  CHECK(comes(4, "0123 1230 2301 3012"));
  CHECK(!comes(1, "2 3 1"));
  CHECK(!comes(4, "0123 0123"));
}

/* The start is drawn anew after (2000/n + 30) n allocations: once in 2120 on four OSTs. */
static void drawn_anew(void) {
  int jumps = 0;
  for (uint64_t seed = 1; seed <= 30; seed++) {
    struct world *w = world_up(4, 1, seed);
    choose_any(w, 1);
    uint32_t before = choice.osts[0];
    for (int i = 1; i <= 2200; i++) {
      choose_any(w, 1);
      bool follows = choice.osts[0] == (before + 1) % 4;
      CHECK(follows || i == 2120);
      jumps += !follows;
      before = choice.osts[0];
    }
    world_down(w);
  }
  CHECK(jumps > 10 && jumps < 30);
}

/* Files of one stripe visit the servers in turn when all have as many OSTs. */
static void interleaved(void) {
  for (uint32_t servers = 2; servers <= 8; servers++) {
    struct world *w = world_up(5 * servers, servers, servers);
    for (uint32_t i = 0; i < 5 * servers; i++)
      w->osts[i].oss = i / 5; /* neighbours in index share a server */
    struct alloc *shaped = alloc_new(&w->alloc->config);
    CHECK(shaped);
    alloc_free(w->alloc);
    w->alloc = shaped;
    uint32_t before = UINT32_MAX, used[8] = {0};
    for (uint32_t i = 0; i < 5 * servers; i++) {
      choose_any(w, 1);
      uint32_t oss = w->osts[choice.osts[0]].oss;
      CHECK(oss != before);
      before = oss;
      used[oss]++;
    }
    for (uint32_t i = 0; i < servers; i++)
      CHECK_EQ(5, used[i]);
    world_down(w);
  }
}

/* ---- by free space ---- */

static void near(double expected, double actual, double by) {
  if (actual < expected * (1 - by) || actual > expected * (1 + by)) {
    fprintf(stderr, "%g is not within %g of %g\n", actual, by, expected);
    exit(1);
  }
}

/* Row 79: penalties as Lustre printed them, and shares that follow free space. */
static void weighted(void) {
  uint32_t used[4] = {0};
  const int files = 6000;
  struct world *w = world_up(4, 1, 5);
  w->osts[2].free_bytes = 432214ull << 10;
  for (int i = 0; i < files; i++) {
    choose_any(w, 1);
    used[choice.osts[0]]++;
    w->now_ns += SECOND_NS / 10;
  }
  CHECK(w->alloc->uneven);
  near(119684, (double)w->alloc->targets[0].w.penalty_per_object, 0.002);
  near(156589, (double)w->alloc->servers[0].w.penalty_per_object, 0.002);
  for (int i = 0; i < 4; i++)
    near(i == 2 ? 8 / 60. : 52 / 180., used[i] / (double)files, 0.25);
  CHECK(used[2] * 3 < used[0] * 2);
  world_down(w);

  w = world_up(4, 1, 6); /* 30 files of two stripes: 11, 16, 14, 19 observed */
  w->osts[2].free_bytes = 432214ull << 10;
  memset(used, 0, sizeof used);
  for (int i = 0; i < files; i++) {
    choose_any(w, 2);
    CHECK(choice.count == 2 && choice.osts[0] != choice.osts[1]);
    used[choice.osts[0]]++, used[choice.osts[1]]++;
  }
  for (int i = 0; i < 4; i++)
    CHECK(used[i] > files / 10 && used[i] < files);
  CHECK(used[2] < used[0] && used[2] < used[1] && used[2] < used[3]);
  world_down(w);
  printf("row 79\n");
}

/* The change at 17 %, in both directions, when space is asked for again; 100 % never weighs. */
static void threshold(void) {
  struct world *w = world_up(4, 2, 9);
  static const struct { uint64_t percent; bool uneven; } steps[] = {{100, false}, {90, false}, {84, false}, {82, true}, {10, true}, {99, false}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    w->osts[1].free_bytes = (884092ull << 10) / 100 * steps[i].percent;
    bool before = w->alloc->uneven;
    choose_any(w, 1);
    CHECK_EQ(i == 0 ? false : before, w->alloc->uneven); /* still believed */
    w->now_ns += 5 * SECOND_NS;
    choose_any(w, 1);
    CHECK_EQ(steps[i].uneven, w->alloc->uneven);
  }
  w->osts[1].free_bytes = 1 << 20;
  alloc_refresh(w->alloc);
  choose_any(w, 1);
  CHECK(w->alloc->uneven);
  w->alloc->config.qos_threshold_percent = 100;
  alloc_refresh(w->alloc);
  choose_any(w, 1);
  CHECK(!w->alloc->uneven);
  world_down(w);
}

/* Two servers, one much fuller: the penalties of a server push its OSTs apart, the emptier one still gets more. */
static void servers_count(void) {
  struct world *w = world_up(8, 2, 11);
  uint32_t used[2] = {0};
  for (uint32_t i = 0; i < 8; i += 2)
    w->osts[i].free_bytes /= 2;
  alloc_refresh(w->alloc);
  for (int i = 0; i < 8000; i++) {
    choose_any(w, 1);
    used[choice.osts[0] % 2]++;
  }
  CHECK(used[1] > used[0] && used[0] > 8000 / 5);
  world_down(w);
}

/* ---- laws over random file systems ---- */

static uint32_t some_state(void) {
  static const uint32_t states[] = {0, 0, 0, 0, 0, MODEL_OST_INACTIVE, MODEL_OST_NO_CREATE, MODEL_OST_FULL, MODEL_OST_DEGRADED,
                                    MODEL_OST_DEGRADED, MODEL_OST_READ_ONLY, MODEL_OST_DEAD, MODEL_OST_DOWN};
  return states[noise(sizeof states / sizeof *states)];
}

static void law_distinct(const struct world *w, const struct alloc_wish *wish) {
  uint32_t times[64] = {0}, most = 0, least = UINT32_MAX;
  for (uint32_t i = 0; i < choice.count; i++) {
    CHECK(choice.osts[i] < w->count);
    CHECK_EQ(0, refusal(w->osts[choice.osts[i]].state));
    times[choice.osts[i]]++;
  }
  for (uint32_t i = 0; i < w->count; i++) {
    if (times[i]) {
      most = times[i] > most ? times[i] : most;
      least = times[i] < least ? times[i] : least;
    }
  }
  CHECK(most - least <= 1);
  CHECK_EQ(most > 1, choice.overstriped);
  CHECK(wish->overstriped || most == 1);
}

/* A degraded OST or one of another component is there only if everything better is. */
static void law_last(const struct world *w, const struct alloc_wish *wish, const struct alloc_set *allowed) {
  struct alloc_set chosen = {0};
  bool degraded = false, other = false;
  for (uint32_t i = 0; i < choice.count; i++) {
    alloc_set_add(&chosen, choice.osts[i]);
    degraded |= (w->osts[choice.osts[i]].state & MODEL_OST_DEGRADED) != 0;
    other |= alloc_set_has(wish->others, choice.osts[i]);
  }
  for (uint32_t i = 0; i < w->count; i++) {
    bool usable = alloc_set_has(allowed, i) && refusal(w->osts[i].state) == 0 && !alloc_set_has(&chosen, i);
    bool sound = !(w->osts[i].state & MODEL_OST_DEGRADED);
    if (usable && sound)
      CHECK(!degraded);
    if (usable && sound && !alloc_set_has(wish->others, i))
      CHECK(!other);
  }
}

static void laws(void) {
  for (int round = 0; round < 3000; round++) {
    struct world *w = world_up(1 + noise(40), 1 + noise(6), 1 + (uint64_t)round);
    struct alloc_set others = {0}, everything = {0}, pool = {0};
    uint32_t members[40], member_count = 0, usable = 0, active = 0, active_in_pool = 0, usable_in_pool = 0;
    for (uint32_t i = 0; i < w->count; i++) {
      w->osts[i].state = some_state();
      if (noise(2) && round % 3 == 0)
        w->osts[i].free_bytes /= 1 + noise(30);
      if (noise(4) == 0)
        alloc_set_add(&others, i);
      alloc_set_add(&everything, i);
      bool in = noise(2);
      if (in) {
        members[member_count++] = i;
        alloc_set_add(&pool, i);
      }
      active += is_active(w->osts[i].state);
      usable += refusal(w->osts[i].state) == 0;
      active_in_pool += in && is_active(w->osts[i].state);
      usable_in_pool += in && refusal(w->osts[i].state) == 0;
    }
    if (member_count)
      CHECK_EQ(0, alloc_pool(w->alloc, "fast", members, member_count));
    for (int file = 0; file < 10; file++) {
      bool pooled = member_count && noise(3) == 0;
      struct alloc_wish wish = any(noise(8) ? 1 + noise(50) : PENSTOCK_STRIPES_ALL);
      wish.overstriped = noise(4) == 0;
      wish.others = &others;
      wish.pool = pooled ? "fast" : noise(5) ? "" : "unknown";
      int err = alloc_choose(w->alloc, &wish, &choice);
      uint32_t room = pooled ? usable_in_pool : usable, there = pooled ? active_in_pool : active;
      CHECK_EQ(room ? 0 : -ENOSPC, err);
      if (err < 0)
        continue;
      CHECK_EQ(wish.pool[0] != 0, choice.in_pool);
      law_distinct(w, &wish);
      law_last(w, &wish, pooled ? &pool : &everything);
      bool cut = wish.count > there && !wish.overstriped;
      uint32_t want = cut ? there : wish.count;
      if (!wish.overstriped) {
        CHECK(choice.count <= want);
        CHECK(choice.count == want || choice.count == room || (cut && choice.count >= want - want / 4));
      } else if (wish.count < PENSTOCK_STRIPES_SPECIAL) {
        CHECK_EQ(wish.count, choice.count);
      }
      for (uint32_t i = 0; pooled && i < choice.count; i++)
        CHECK(alloc_set_has(&pool, choice.osts[i]));
    }
    world_down(w);
  }
}

/* From an offset on: in index order, around the end, what cannot be used left out. */
static void law_offset(void) {
  for (int round = 0; round < 2000; round++) {
    struct world *w = world_up(1 + noise(20), 1 + noise(4), 1 + (uint64_t)round);
    uint32_t usable = 0, active = 0;
    for (uint32_t i = 0; i < w->count; i++) {
      w->osts[i].state = some_state();
      usable += refusal(w->osts[i].state) == 0;
      active += is_active(w->osts[i].state);
    }
    struct alloc_wish wish = any(1 + noise(w->count));
    wish.offset = (uint16_t)noise(w->count + 2);
    int err = alloc_choose(w->alloc, &wish, &choice);
    CHECK_EQ(wish.offset >= w->count ? -EINVAL : 0, alloc_check(w->alloc, &wish));
    uint32_t want = wish.count < active ? wish.count : active;
    uint32_t least = wish.count > active ? want - want / 4 : want;
    if (wish.offset >= w->count)
      CHECK_EQ(-EINVAL, err);
    else if (usable == 0)
      CHECK_EQ(-ENOSPC, err);
    else if (usable < least)
      CHECK_EQ(-EFBIG, err);
    else
      CHECK_EQ(0, err);
    uint32_t at = wish.offset;
    for (uint32_t i = 0; err == 0 && i < choice.count; i++, at = (at + 1) % w->count) {
      while (refusal(w->osts[at % w->count].state) != 0)
        at = (at + 1) % w->count;
      CHECK_EQ(at % w->count, choice.osts[i]);
    }
    world_down(w);
  }
}

/* A list is taken as it is, rotated to its offset, or refused with what its first bad OST is. */
static void law_list(void) {
  for (int round = 0; round < 2000; round++) {
    struct world *w = world_up(1 + noise(20), 1 + noise(4), 1 + (uint64_t)round);
    uint32_t list[20], count = 1 + noise(w->count);
    for (uint32_t i = 0; i < w->count; i++) {
      list[i] = i;
      if (round % 2)
        w->osts[i].state = some_state();
    }
    for (uint32_t i = 0; i < w->count; i++) { /* any order */
      uint32_t other = noise(w->count), kept = list[i];
      list[i] = list[other], list[other] = kept;
    }
    struct alloc_wish wish = any(count);
    uint32_t start = noise(count);
    wish.list = list, wish.list_count = count;
    wish.offset = noise(2) ? (uint16_t)list[start] : (start = 0, PENSTOCK_OFFSET_ANY);
    int expected = 0;
    for (uint32_t i = 0; expected == 0 && i < count; i++)
      expected = refusal(w->osts[list[(start + i) % count]].state);
    CHECK_EQ(expected, alloc_choose(w->alloc, &wish, &choice));
    for (uint32_t i = 0; expected == 0 && i < count; i++)
      CHECK_EQ(list[(start + i) % count], choice.osts[i]);
    world_down(w);
  }
}

static void pools(void) {
  struct world *w = world_up(8, 2, 3);
  uint32_t one[] = {3}, bad[] = {8};
  CHECK_EQ(-EINVAL, alloc_pool(w->alloc, "", one, 1));
  CHECK_EQ(-EINVAL, alloc_pool(w->alloc, "sixteen-letters-", one, 1));
  CHECK_EQ(-EINVAL, alloc_pool(w->alloc, "p", bad, 1));
  for (int i = 0; i < ALLOC_MAX_POOLS + 1; i++) {
    char name[16];
    snprintf(name, sizeof name, "pool%d", i);
    CHECK_EQ(i < ALLOC_MAX_POOLS ? 0 : -ENOSPC, alloc_pool(w->alloc, name, (uint32_t[]){(uint32_t)i % 8}, 1));
  }
  CHECK_EQ(0, alloc_pool(w->alloc, "pool5", NULL, 0));
  CHECK_EQ(0, alloc_pool(w->alloc, "pool5", NULL, 0));
  CHECK_EQ(0, alloc_pool(w->alloc, "again", one, 1));
  CHECK_EQ(0, alloc_pool(w->alloc, "again", (uint32_t[]){6, 1}, 2));
  struct alloc_wish wish = any(2);
  wish.pool = "again";
  CHECK_EQ(0, alloc_choose(w->alloc, &wish, &choice));
  CHECK(choice.count == 2 && choice.osts[0] + choice.osts[1] == 7);
  wish.pool = "pool63"; /* was moved when pool5 went */
  CHECK_EQ(0, alloc_choose(w->alloc, &wish, &choice));
  CHECK(choice.count == 1 && choice.osts[0] == 7);
  world_down(w);
}

int main(void) {
  even();
  creeping();
  drawn_anew();
  interleaved();
  weighted();
  threshold();
  servers_count();
  laws();
  law_offset();
  law_list();
  pools();
  return 0;
}
