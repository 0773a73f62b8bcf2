// SPDX-License-Identifier: Apache-2.0
/* See placed.h. */
#include "launch/placed.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "kernels/layout.h"

/* Do the first `count` stripes of a file lie on this list? */
static bool lies_on(const struct penstock_component *c, const uint16_t *targets, uint32_t count) {
  uint32_t i = 0;
  while (i < count && i < c->object_count && penstock_layout_ost(c, i) == targets[i])
    i++;
  return i && (i == count || i == c->object_count);
}

static bool as_planned(const struct penstock_place *plan, const struct penstock_place_entry *e,
                       const struct penstock_blob *blob) {
  struct penstock_layout layout;
  struct penstock_component c;
  if (penstock_layout_parse(blob->data, blob->size, &layout) || penstock_layout_component(&layout, 0, &c))
    return false;
  for (uint32_t turn = 0; turn < e->turns && turn < 65536; turn++) {
    uint64_t at = e->first + (uint64_t)turn * e->count;
    if (at + e->count <= plan->target_count && lies_on(&c, &plan->targets[at], e->count))
      return true;
  }
  return false;
}

static void check(struct penstock_placed *ret, const struct penstock_place *plans, uint32_t count,
                  const struct penstock_picture *picture, const struct penstock_blob *layouts) {
  for (uint32_t i = 0; i < picture->file_count; i++) {
    const struct penstock_words *name = &picture->files[i].name;
    const char *path = (const char *)picture->pool + name->at;
    const struct penstock_place *plan = layouts[i].data ? penstock_places_of(plans, count, path, name->size) : NULL;
    const struct penstock_place_entry *e = plan ? penstock_place_find(plan, path, name->size) : NULL;
    if (!e || e->flags & (PENSTOCK_PLACE_STOCK | PENSTOCK_PLACE_BYTES) || !e->turns)
      continue;
    ret->checked++;
    ret->as_planned += as_planned(plan, e, &layouts[i]);
  }
}

/* Why there is no plan where one was to be, as a number that is not 0. */
static uint32_t why_none(const struct penstock_control *control, uint64_t bytes) {
  struct penstock_place_spot spots[PENSTOCK_PLACES_MAX];
  uint32_t count = penstock_place_spots(spots, control, bytes);
  for (uint32_t i = 0; i < count; i++)
    if (spots[i].head->driver == PENSTOCK_PLACE_NONE && spots[i].head->mount_size)
      return 1u + spots[i].head->why;
  return 0;
}

static void read_plans(struct penstock_placed *ret, const struct penstock_watch *w, const struct penstock_control *control,
                       uint64_t bytes, const struct penstock_picture *picture, const struct penstock_blob *layouts) {
  struct penstock_place plans[PENSTOCK_PLACES_MAX];
  struct penstock_place_usage usage = {0};
  ret->plans = penstock_places_open(plans, control, bytes);
  ret->why_none = why_none(control, bytes);
  if (!(ret->plans || ret->why_none) || pread(w->usage, &usage, sizeof usage, PENSTOCK_PLACE_USAGE_OFFSET) != (ssize_t)sizeof usage)
    return;
  memcpy(ret->count, usage.count, sizeof ret->count);
  for (uint32_t i = 0; i < ret->plans; i++) {
    ret->left_out += plans[i].head->left_out;
    ret->made_ns[i] = plans[i].head->made_real_ns;
  }
  if (layouts)
    check(ret, plans, ret->plans, picture, layouts);
}

void penstock_placed_read(struct penstock_placed *ret, const struct penstock_watch *w, const struct penstock_picture *picture,
                          const struct penstock_blob *layouts) {
  const struct penstock_control *control = w->board.control;
  uint64_t bytes = w->board.control_bytes;
  void *map = MAP_FAILED;
  *ret = (struct penstock_placed){0};
  if (!w->agent) { /* the node's agent's, which we may read; its head was checked against the file's size */
    bytes = w->head.control_bytes;
    map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, w->control, 0);
    control = map == MAP_FAILED ? NULL : map;
  }
  if (control)
    read_plans(ret, w, control, bytes, picture, layouts);
  if (map != MAP_FAILED)
    munmap(map, bytes);
}

static uint32_t put(struct penstock_pack *p, const char *key, uint64_t value) {
  penstock_key_uint(p, key, value < INT64_MAX ? value : INT64_MAX);
  return 1;
}

uint32_t penstock_placed_pack(struct penstock_pack *p, const struct penstock_placed *placed) {
  uint32_t keys = 4 + (placed->why_none != 0);
  if (!placed->plans && !placed->why_none)
    return 0;
  for (int i = 0; i < PENSTOCK_PLACE_COUNTS; i++)
    keys += placed->count[i] != 0;
  penstock_pack_text(p, "plc");
  penstock_pack_map(p, keys);
  put(p, "plan_ns", placed->made_ns[0]);
  if (placed->why_none)
    put(p, "why_none", placed->why_none);
  put(p, "left_out", placed->left_out);
  put(p, "checked", placed->checked);
  put(p, "as_planned", placed->as_planned);
  for (int i = 0; i < PENSTOCK_PLACE_COUNTS; i++)
    if (placed->count[i])
      put(p, penstock_place_count_names[i], placed->count[i]);
  return 1;
}

uint32_t penstock_placed_rules(struct penstock_prefix *ret, uint32_t room, const struct penstock_board_part *parts,
                               uint32_t part_count) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < part_count && count < room; i++) {
    struct penstock_place plan;
    char mount[PENSTOCK_PREFIX_BYTES + 1] = "";
    if (parts[i].kind != PENSTOCK_SECTION_PLACE || penstock_place_open(&plan, parts[i].data, parts[i].bytes) ||
        plan.head->mount_size > PENSTOCK_PREFIX_BYTES)
      continue;
    memcpy(mount, plan.head->mount, plan.head->mount_size);
    uint8_t under = PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT;
    if (!penstock_board_rule(&ret[count], plan.head->mount_size ? mount : "/", under, plan.head->dev))
      count++;
  }
  return count;
}

/* Nodes of a Slurm step divide the lists evenly, others by their names. */
static uint32_t share_of(const char *node) {
  const char *number = getenv("SLURM_NODEID"), *of = getenv("SLURM_STEP_NUM_NODES");
  unsigned long i = number ? strtoul(number, NULL, 10) : 0, n = of ? strtoul(of, NULL, 10) : 0;
  if (number && n > 0 && n < 1000000 && i < n)
    return (uint32_t)(((uint64_t)i << 32) / n);
  return number || !*node ? 0 : (uint32_t)penstock_hash(node, strlen(node));
}

void penstock_placed_begin(struct penstock_board *board, const char *node) {
  struct penstock_place plans[PENSTOCK_PLACES_MAX];
  uint32_t count = penstock_places_open(plans, board->control, board->control_bytes);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t at = (uint64_t)((const uint8_t *)plans[i].head - (const uint8_t *)board->control);
    struct penstock_place_head *head = (void *)((uint8_t *)board->control + at);
    head->begin = share_of(node);
  }
}
