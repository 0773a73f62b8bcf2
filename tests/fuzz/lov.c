// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a template, for a file and as a directory's default, on OSTs in any state: what is accepted can be read
   back, names OSTs that are there and usable, and takes writes.  The first three bytes choose how and the states. */
// uses: testbed/lov.c testbed/alloc.c testbed/lov_answer.c
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testbed/lov.h"
#include "testbed/model.h"

enum { OSTS = 6 };

static uint32_t states[OSTS];

#define must(claim) \
  do { \
    if (!(claim)) { \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
      abort(); \
    } \
  } while (0)

static void look(void *closure, uint32_t ost, struct lov_ost *ret) {
  (void)closure;
  *ret = (struct lov_ost){.state = states[ost], .oss = ost % 2, .free_bytes = 1ull << 30};
}

static int new_object(void *closure, uint32_t ost, uint32_t *ret) {
  (void)closure;
  static uint32_t last;
  must(ost < OSTS);
  *ret = ++last;
  return 0;
}

static struct lov *the_lov(void) {
  static struct lov *lov;
  if (!lov) {
    lov = lov_new(&(struct lov_config){.ost_count = OSTS, .seed = 1, .look = look, .new_object = new_object});
    must(lov != NULL);
    must(lov_pool(lov, "pool", (uint32_t[]){0, 2, 5}, 3) == 0);
  }
  return lov;
}

/* A component as the server meets it. */
static void part_holds(const struct penstock_component *c, bool composite) {
  bool there = !composite || c->flags & PENSTOCK_COMP_INIT, dom = c->pattern == PENSTOCK_PATTERN_MDT;
  if (!there)
    return;
  must(c->magic == PENSTOCK_LOV_V1 || c->magic == PENSTOCK_LOV_V3);
  must(c->object_count == c->stripe_count && (dom ? c->object_count == 0 : c->object_count > 0));
  must(c->stripe_size_bytes > 0);
  uint32_t seen = 0;
  for (unsigned i = 0; i < c->object_count; i++) {
    struct penstock_object o;
    must(penstock_layout_object(c, i, &o) == 0);
    must(o.ost < OSTS && o.oid != 0 && o.seq == lov_object_seq(o.ost));
    must(!(states[o.ost] & (MODEL_OST_INACTIVE | MODEL_OST_FULL)));
    must(c->pattern == PENSTOCK_PATTERN_OVERSTRIPED || !(seen >> o.ost & 1));
    seen |= 1u << o.ost;
  }
}

static void layout_holds(const uint8_t *stored, size_t size) {
  static uint8_t shown[LOV_BYTES];
  struct penstock_layout l;
  must(penstock_layout_parse(stored, size, &l) == 0 && l.size_bytes == size);
  for (unsigned i = 0; i < l.count; i++) {
    struct penstock_component c;
    must(penstock_layout_component(&l, i, &c) == 0);
    part_holds(&c, l.composite);
  }
  ssize_t n = lov_file_answer(stored, size, LOV_GETXATTR, NULL, 0, shown, sizeof shown);
  must(n > 0 && penstock_layout_parse(shown, (size_t)n, &l) == 0);
  uint8_t head[32] = {0xd0, 0x0b, 0xd1, 0x0b, [28] = 3};
  n = lov_file_answer(stored, size, LOV_GETSTRIPE, head, sizeof head, shown, sizeof shown);
  must(n >= 32 && n <= 48 + 3 * 24);
}

static void write_into(uint8_t *stored, ssize_t size, uint64_t at) {
  static uint8_t grown[LOV_BYTES];
  ssize_t n = lov_instantiate(the_lov(), stored, (size_t)size, at, at + 1, grown, sizeof grown);
  if (n <= 0)
    return;
  layout_holds(grown, (size_t)n);
  must(lov_instantiate(the_lov(), grown, (size_t)n, at, at + 1, stored, LOV_BYTES) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t stored[LOV_BYTES], folder[LOV_BYTES];
  static const uint32_t some[] = {0, MODEL_OST_INACTIVE, MODEL_OST_FULL, MODEL_OST_DEGRADED};
  if (size < 3)
    return 0;
  for (int i = 0; i < OSTS; i++) states[i] = some[(data[1 + i / 4] >> i % 4 * 2) & 3];
  uint8_t *template = malloc(size); /* of its size, so that the sanitizer sees a step outside */
  must(template != NULL);
  memcpy(template, data + 3, size - 3);
  struct lov_request r = {.how = data[0] & 1 ? LOV_XATTR : LOV_IOCTL, .fid_seq = 0x200000401, .fid_oid = 7,
                          .size_bytes = data[0] & 2 ? 5000000 : 0, .template = template, .template_size = size - 3};
  template = realloc(template, size - 3 ? size - 3 : 1);
  must(template != NULL);
  r.template = template;
  ssize_t n = lov_create(the_lov(), &r, stored, sizeof stored);
  must(n <= LOV_BYTES && n != -EIO && n != -ENOMEM);
  if (n > 0) {
    layout_holds(stored, (size_t)n);
    ssize_t back = lov_write_back(template, size - 3, stored, (size_t)n, folder, sizeof folder);
    must(r.how != LOV_IOCTL || back > 0);
    write_into(stored, n, (uint64_t)data[0] << 18);
  }
  n = lov_set_dir(the_lov(), LOV_XATTR, template, size - 3, folder, sizeof folder);
  if (n > 0) {
    r = (struct lov_request){.how = LOV_OPEN, .fid_seq = 0x200000401, .fid_oid = 8, .parent = folder, .parent_size = (size_t)n};
    n = lov_create(the_lov(), &r, stored, sizeof stored);
    must(n != 0 && n != -EINVAL);
    if (n > 0)
      layout_holds(stored, (size_t)n);
  }
  free(template);
  return 0;
}
