// SPDX-License-Identifier: Apache-2.0
/* Layouts against the table of what Lustre does: the cases of lov_cases.def, and rows that take more than one call.
   Prints "row N" for each row it went through: tests/testbed/test_rows.py compares that with what the table claims. */
// uses: testbed/lov.c testbed/alloc.c testbed/lov_answer.c
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdatomic.h>

#include "lov_text.h"
#include "testbed/lov.h"
#include "testbed/model.h"

/* ---- a small file system ---- */

enum { OSTS = 4 };

struct world {
  struct lov *lov;
  struct lov_ost osts[OSTS];
  atomic_uint numbers;
  int new_object_fails;
};

static void look(void *closure, uint32_t ost, struct lov_ost *ret) { *ret = ((struct world *)closure)->osts[ost]; }

static int new_object(void *closure, uint32_t ost, uint32_t *ret) {
  struct world *w = closure;
  CHECK(ost < OSTS);
  *ret = 1 + atomic_fetch_add(&w->numbers, 1);
  return w->new_object_fails;
}

static void world_up(struct world *w) {
  static uint64_t seed;
  memset(w, 0, sizeof *w);
  for (int i = 0; i < OSTS; i++)
    w->osts[i] = (struct lov_ost){.free_bytes = 884ull << 20};
  w->lov = lov_new(&(struct lov_config){.ost_count = OSTS, .seed = ++seed, .closure = w, .look = look, .new_object = new_object});
  CHECK(w->lov);
  CHECK_EQ(0, lov_pool(w->lov, "p1", (uint32_t[]){1, 2}, 2));
}

static void world_down(struct world *w) { lov_free(w->lov); }

struct blob {
  uint8_t bytes[LOV_BYTES + 4096];
  ssize_t size; /* or -errno */
};

static struct blob template, got, shown, again;

static void row(int number) { printf("row %d\n", number); }

static void expect(int number, const char *what, const struct blob *b, const char *answer) {
  static struct text t;
  if (b->size > 0)
    text_layout(&t, b->bytes, (size_t)b->size);
  else
    snprintf(t.s, sizeof t.s, "%s", b->size == 0 ? "none" : text_error((int)b->size));
  if (fnmatch(answer, t.s, 0) != 0) {
    fprintf(stderr, "row %d: %s: '%s', not '%s'\n", number, what, t.s, answer);
    exit(1);
  }
  row(number);
}

static const struct lov_request FILE_20 = {.fid_seq = 0x200000401, .fid_oid = 0x6a};

static void set(struct world *w, enum lov_how how, const char *text, struct lov_request r) {
  r.how = how;
  r.template = template.bytes;
  r.template_size = text_template(text, template.bytes, sizeof template.bytes);
  got.size = lov_create(w->lov, &r, got.bytes, LOV_BYTES);
}

static void open_file(struct world *w, struct lov_request r) {
  r.how = LOV_OPEN;
  got.size = lov_create(w->lov, &r, got.bytes, LOV_BYTES);
}

static void show(enum lov_ask ask) {
  shown.size = got.size <= 0 ? got.size : lov_file_answer(got.bytes, (size_t)got.size, ask, NULL, 0, shown.bytes, LOV_BYTES);
}

/* What one case's file answers, by each way that it names. */
static void file_case(struct world *w, int number, const char *how, const char *text, const char *answer) {
  for (; *how; how++) {
    set(w, *how == 'X' ? LOV_XATTR : LOV_IOCTL, text, FILE_20);
    show(*how == 'X' ? LOV_GETXATTR : LOV_GETSTRIPE);
    expect(number, text, &shown, answer);
  }
}

static void folder(struct world *w, enum lov_how how, const char *text, struct blob *ret) {
  size_t size = text_template(text, template.bytes, sizeof template.bytes);
  ret->size = lov_set_dir(w->lov, how, template.bytes, size, ret->bytes, LOV_BYTES);
}

static void folder_case(struct world *w, int number, const char *how, const char *text, const char *answer) {
  for (; *how; how++) {
    folder(w, *how == 'X' ? LOV_XATTR : LOV_IOCTL, text, &got);
    expect(number, text, &got, answer);
  }
}

static void child_case(struct world *w, int number, const char *text, const char *answer) {
  folder(w, LOV_XATTR, text, &again);
  CHECK(again.size > 0);
  struct lov_request r = FILE_20;
  r.parent = again.bytes;
  r.parent_size = (size_t)again.size;
  open_file(w, r);
  show(LOV_GETXATTR);
  expect(number, text, &shown, answer);
}

static void state_case(int number, uint32_t state, const char *how, const char *text, const char *answer) {
  struct world w;
  world_up(&w);
  w.osts[2].state = state;
  if (state == MODEL_OST_FULL)
    w.osts[2].free_bytes = 1 << 20;
  for (int i = 0; i < 6; i++) /* wherever the turn is */
    file_case(&w, number, how, text, answer);
  world_down(&w);
}

static void run_table(void) {
  struct world w;
  world_up(&w);
#define FILE_CASE(number, how, text, answer) file_case(&w, number, how, text, answer);
#define STATE_CASE(number, state, how, text, answer) state_case(number, MODEL_OST_##state, how, text, answer);
#define FOLDER_CASE(number, how, text, answer) folder_case(&w, number, how, text, answer);
#define CHILD_CASE(number, text, answer) child_case(&w, number, text, answer);
#include "lov_cases.def"
  world_down(&w);
}

/* ---- rows that take more ---- */

/* 5-8, 10-14: which opens give a layout. */
static void rows_open(struct world *w) {
  CHECK(lov_open_allocates(O_WRONLY, 0) && lov_open_allocates(O_RDWR | O_EXCL, 0) && lov_open_allocates(O_WRONLY | O_APPEND, 0));
  CHECK(!lov_open_allocates(O_RDONLY, 0) && !lov_open_allocates(O_RDONLY | O_TRUNC, 0));
  CHECK(!lov_open_allocates(O_WRONLY | O_NOCTTY | O_ASYNC, 0) && !lov_open_allocates(O_RDWR | O_ASYNC, 0));
  CHECK(!lov_open_allocates(O_WRONLY, 1) && lov_open_allocates(O_WRONLY, 0));
  open_file(w, FILE_20);
  show(LOV_GETXATTR);
  expect(2, "open", &shown, "V1 n=56 p=0x1 s=4194304 c=1 (?)");
  row(3), row(4), row(10), row(11), row(13);
  struct lov_request r = FILE_20;
  r.append = true;
  folder(w, LOV_XATTR, "V1 c=4", &again);
  r.parent = again.bytes, r.parent_size = (size_t)again.size;
  open_file(w, r);
  show(LOV_GETXATTR);
  expect(2, "append", &shown, "V1 n=56 p=0x1 s=4194304 c=1 (?)");
}

/* 9: a file that was grown first; 24, 25: one that has a layout. */
static void rows_existing(struct world *w) {
  struct lov_request r = FILE_20;
  r.size_bytes = 5000000;
  set(w, LOV_XATTR, "COMP | 0-1M V1 | 1M-4M V1 | 4M-8M V1 | 8M-EOF V1", r);
  show(LOV_GETXATTR);
  expect(9, "grown", &shown, "COMP * | 0x1 0x10 * | 0x2 0x10 * | 0x3 0x10 * | 0x4 0x0 *");
  r = FILE_20;
  r.has_layout = true;
  set(w, LOV_XATTR, "SPEC list=3,1", r);
  expect(24, "set again", &got, "none");
  open_file(w, r); /* somebody else's open was faster */
  expect(10, "open again", &got, "none");
  set(w, LOV_IOCTL, "SPEC list=3,1", r);
  expect(25, "set again", &got, "EEXIST");
}

/* 21, 23: what SETSTRIPE leaves in the buffer. */
static void rows_write_back(struct world *w) {
  static const struct { int row; const char *text; ssize_t size; } cases[] = {
    {21, "V1 c=2", 32}, {21, "V3 c=2", 48}, {21, "SPEC list=3,1", 80}, {21, "SPEC pool=p1 list=2,1", 96}, {23, "COMP | 0-1M V1 | 1M-EOF V1", 192},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    set(w, LOV_IOCTL, cases[i].text, FILE_20);
    CHECK(got.size > 0);
    shown.size = lov_write_back(template.bytes, 4096, got.bytes, (size_t)got.size, shown.bytes, LOV_BYTES);
    CHECK_EQ(cases[i].size, shown.size);
    if (cases[i].row == 21)
      CHECK_EQ(0, take(shown.bytes + 30, 2));
    show(LOV_GETSTRIPE);
    row(cases[i].row);
  }
  size_t size = text_template("SPEC list=3,1", template.bytes, sizeof template.bytes);
  CHECK_EQ(size, lov_template_size(template.bytes, 32, false));
  CHECK_EQ(-EFAULT, lov_template_size(template.bytes, 31, false));
  text_template("SPEC c=2001", template.bytes, sizeof template.bytes);
  CHECK_EQ(-EINVAL, lov_template_size(template.bytes, 32, false));
  text_template("V1 magic=0x0BD00BD0", template.bytes, sizeof template.bytes);
  CHECK_EQ(-EINVAL, lov_template_size(template.bytes, 32, false));
  CHECK_EQ(-EOPNOTSUPP, lov_template_size(template.bytes, 32, true));
  row(30);
}

/* 52: a copied value pins no target. */
static void row_copied(struct world *w) {
  unsigned first = 0;
  for (int i = 0; i < 8; i++) {
    set(w, LOV_XATTR, "V1 c=2 s=1M list=3,1 ids o=0", FILE_20);
    first |= 1u << take(got.bytes + 32 + 20, 4);
  }
  CHECK(first & (first - 1));
  set(w, LOV_XATTR, "COMP | 0-1M V1 o=2 f=0x10 | 1M-EOF V1 o=2", FILE_20);
  CHECK(got.size > 0);
  row(52);
}

static void write_at(struct world *w, uint64_t start, uint64_t end) {
  again.size = lov_instantiate(w->lov, got.bytes, (size_t)got.size, start, end, again.bytes, LOV_BYTES);
  if (again.size > 0)
    got = again;
}

/* 56-58, 61, 63: components get objects by the first write. */
static void rows_instantiate(struct world *w) {
  set(w, LOV_XATTR, "COMP | 0-1M V1 c=1 s=1M | 1M-EOF V1 c=-1 s=1M", FILE_20);
  write_at(w, 0, 1 << 20);
  CHECK_EQ(0, again.size);
  write_at(w, 3 << 20, (3 << 20) + 1);
  show(LOV_GETXATTR);
  expect(56, "write", &shown, "COMP n=288 g=3 * | 0x1 0x10 * (?) | 0x2 0x10 1048576-EOF V1 p=0x1 s=1048576 c=3 (?,?,?)");
  struct penstock_layout l;
  struct penstock_component a, b;
  CHECK_EQ(0, penstock_layout_parse(got.bytes, (size_t)got.size, &l));
  CHECK_EQ(0, penstock_layout_component(&l, 0, &a));
  CHECK_EQ(0, penstock_layout_component(&l, 1, &b));
  for (unsigned i = 0; i < 3; i++)
    CHECK(penstock_layout_ost(&b, i) != penstock_layout_ost(&a, 0));
  row(57);
  write_at(w, 0, 9 << 20);
  CHECK_EQ(0, again.size);

  set(w, LOV_XATTR, "COMP | 0-1M SPEC list=2 | 1M-EOF SPEC list=3,1", FILE_20);
  write_at(w, 1 << 20, (1 << 20) + 5);
  show(LOV_GETXATTR);
  expect(58, "write", &shown, "COMP * g=3 * | 0x1 0x10 * (2) | 0x2 0x10 1048576-EOF V1 p=0x1 s=4194304 c=2 (3,1)");

  set(w, LOV_XATTR, "COMP m=1 | 0-EOF V1 | 0-EOF V1", FILE_20);
  write_at(w, 10, 20);
  show(LOV_GETXATTR);
  expect(61, "write", &shown, "COMP * g=3 st=2 m=1 | 0x10001 0x10 * | 0x20002 0x11 *");
  write_at(w, 10, 20);
  CHECK_EQ(0, again.size);

  set(w, LOV_XATTR, "COMP | 0-1M V1 s=1M", FILE_20);
  write_at(w, 1 << 20, (1 << 20) + 1);
  CHECK_EQ(-ENODATA, again.size);
  row(63);
}

static void answer_cut(const char *head_text, struct blob *ret) {
  text_template(head_text, template.bytes, sizeof template.bytes);
  ret->size = lov_file_answer(got.bytes, (size_t)got.size, LOV_GETSTRIPE, template.bytes, 32, ret->bytes, LOV_BYTES);
}

/* 91-98: reading. */
static void rows_reading(struct world *w) {
  set(w, LOV_XATTR, "SPEC list=3,1 s=1M", FILE_20);
  show(LOV_GETXATTR);
  CHECK_EQ(80, shown.size);
  CHECK_EQ(0xffff, take(shown.bytes + 30, 2));
  show(LOV_GETSTRIPE);
  CHECK_EQ(0, take(shown.bytes + 30, 2));
  row(92);
  CHECK_EQ(0x300000400, take(shown.bytes + 32, 8));
  CHECK_EQ(0x280000400, take(shown.bytes + 56, 8));
  CHECK_EQ(0, take(shown.bytes + 48, 4));
  row(93);
  CHECK_EQ(0x6a, take(shown.bytes + 8, 8));
  CHECK_EQ(0x200000401, take(shown.bytes + 16, 8));
  row(94);
  static const ssize_t sizes[] = {32, 56, 80, 80};
  for (int i = 0; i < 4; i++) {
    char head[32];
    snprintf(head, sizeof head, "V1 c=%d", i);
    answer_cut(head, &shown);
    CHECK_EQ(sizes[i], shown.size);
    CHECK_EQ(2, take(shown.bytes + 28, 2));
  }
  row(96);
  answer_cut("V1 magic=0", &shown);
  expect(97, "zeros", &shown, "V1 n=80 p=0x1 s=1048576 c=2 (3,1)");

  set(w, LOV_XATTR, "COMP | 0-1M SPEC list=2 | 1M-EOF V1 c=-1", FILE_20);
  show(LOV_GETXATTR);
  CHECK_EQ(0xffff, take(shown.bytes + 128 + 30, 2));
  CHECK_EQ(0xffff, take(shown.bytes + 184 + 30, 2));
  CHECK_EQ(0, take(shown.bytes + 128 + 8, 8));
  row(95);
  show(LOV_GETSTRIPE);
  CHECK_EQ(0, take(shown.bytes + 128 + 30, 2));
  CHECK_EQ(0, take(shown.bytes + 184 + 30, 2));
  row(98);
  answer_cut("V1 c=9", &shown);
  expect(98, "composite as plain", &shown, "V1 n=56 * (2)");

  char names[64];
  CHECK_EQ(sizeof "trusted.lov\0lustre.lov", lov_list_names(true, true, names));
  CHECK_STR("trusted.lov", names);
  CHECK_EQ(sizeof "lustre.lov", lov_list_names(false, true, names));
  CHECK_STR("lustre.lov", names);
  CHECK_EQ(0, lov_list_names(true, false, names));
  row(99);
  CHECK_EQ(LOV_NAME_LUSTRE, lov_xattr_name("lustre.lov"));
  CHECK_EQ(LOV_NAME_TRUSTED, lov_xattr_name("trusted.lov"));
  CHECK_EQ(LOV_NAME_OTHER, lov_xattr_name("user.lov"));
  CHECK_EQ(-EINVAL, lov_xattr_name("lustre.lov.add"));
  CHECK_EQ(-EINVAL, lov_xattr_name("lustre.lov.bogus"));
  CHECK_EQ(-EOPNOTSUPP, lov_xattr_name("lustre.foo"));
  row(53);
}

/* 110-115: defaults and who has them. */
static void rows_folders(struct world *w) {
  CHECK_EQ(-ENODATA, lov_dir_answer(NULL, 0, NULL, 0, shown.bytes, LOV_BYTES));
  row(110);
  folder(w, LOV_XATTR, "V1 c=3", &again);
  shown.size = lov_dir_answer(NULL, 0, again.bytes, (size_t)again.size, shown.bytes, LOV_BYTES);
  expect(110, "the root's", &shown, "V1 n=32 * c=3 ()");
  struct lov_request r = FILE_20;
  r.root = again.bytes, r.root_size = (size_t)again.size;
  open_file(w, r);
  show(LOV_GETXATTR);
  expect(110, "the root's", &shown, "V1 n=104 *");
  CHECK_EQ(0, lov_inherit(NULL, 0, 1, 2, shown.bytes, LOV_BYTES));
  folder(w, LOV_XATTR, "SPEC list=3,1", &again);
  shown.size = lov_inherit(again.bytes, (size_t)again.size, 0x200000402, 9, shown.bytes, LOV_BYTES);
  expect(113, "mkdir", &shown, "SPEC n=96 * (3,1)");
  CHECK_EQ(9, take(shown.bytes + 8, 8));
  CHECK_EQ(0x200000402, take(shown.bytes + 16, 8));
  CHECK_EQ(0, lov_set_dir(w->lov, LOV_XATTR, NULL, 0, shown.bytes, LOV_BYTES));
  row(115);
  /* A list default that names a bad target is followed to its error. */
  w->osts[3].state = MODEL_OST_INACTIVE;
  r = FILE_20;
  r.parent = again.bytes, r.parent_size = (size_t)again.size;
  open_file(w, r);
  CHECK_EQ(-EREMOTEIO, got.size);
  w->osts[3].state = 0;
  /* A template that says nothing means the directory's default (163, 166, 167). */
  folder(w, LOV_XATTR, "V1 c=2", &again);
  set(w, LOV_IOCTL, "V1", r);
  show(LOV_GETSTRIPE);
  expect(163, "empty template", &shown, "V1 n=80 *");
  set(w, LOV_XATTR, "SPEC list=9", r);
  CHECK_EQ(-EINVAL, got.size);
  set(w, LOV_XATTR, "V1", r);
  show(LOV_GETSTRIPE);
  expect(167, "empty template", &shown, "V1 n=80 *");
}

/* 131, 136, 161: the ioctl's permission. */
static void rows_permission(void) {
  struct lov_caller owner = {.uid = 1000, .gid = 1000, .groups = (uint32_t[]){7, 8}, .group_count = 2}, root = {0};
  CHECK(lov_may_write(&root, 0444, 1000, 1000));
  CHECK(!lov_may_write(&owner, 0444, 1000, 1000) && lov_may_write(&owner, 0200, 1000, 0));
  CHECK(!lov_may_write(&owner, 0644, 0, 0) && lov_may_write(&owner, 0646, 0, 0));
  CHECK(lov_may_write(&owner, 0664, 0, 8) && !lov_may_write(&owner, 0606, 0, 8) && !lov_may_write(&owner, 0466, 1000, 8));
  row(136), row(161);
}

/* 73: an MDT takes no more of a file than its setting; what does not fit into an attribute is refused whole. */
static void limits(struct world *w) {
  set(w, LOV_XATTR, "COMP | 0-4M V1 p=0x100 s=4M | 4M-EOF V1", FILE_20);
  show(LOV_GETXATTR);
  expect(59, "large DoM", &shown, "COMP * | 0x1 0x10 0-1048576 V1 p=0x100 s=1048576 * | 0x2 0x0 1048576-EOF *");
  unsigned before = atomic_load(&w->numbers);
  text_template("V1 c=2 p=0x201", template.bytes, sizeof template.bytes);
  struct lov_request r = FILE_20;
  r.how = LOV_XATTR, r.template = template.bytes, r.template_size = 32;
  CHECK_EQ(-E2BIG, lov_create(w->lov, &r, shown.bytes, 60));
  CHECK_EQ(before, atomic_load(&w->numbers));
  w->new_object_fails = -EIO;
  CHECK_EQ(-EIO, lov_create(w->lov, &r, shown.bytes, LOV_BYTES));
  w->new_object_fails = 0;
  for (int i = 0; i < OSTS; i++)
    w->osts[i].state = MODEL_OST_FULL;
  open_file(w, FILE_20);
  CHECK_EQ(-ENOSPC, got.size);
  for (int i = 0; i < OSTS; i++)
    w->osts[i].state = MODEL_OST_DEAD;
  open_file(w, FILE_20);
  CHECK_EQ(-ENOSPC, got.size);
  memset(got.bytes, 0xee, 100);
  CHECK_EQ(-EIO, lov_file_answer(got.bytes, 100, LOV_GETXATTR, NULL, 0, shown.bytes, LOV_BYTES));
  CHECK_EQ(-EIO, lov_instantiate(w->lov, got.bytes, 100, 0, 1, shown.bytes, LOV_BYTES));
}

/* Bytes that nobody meant: an answer, whatever it is, and no step outside (the sanitizers look). */
static void noise(struct world *w) {
  uint64_t z = 1;
  for (int i = 0; i < 20000; i++) {
    size_t size = text_template(i % 2 ? "COMP m=1 | 0-1M SPEC list=2 | 1M-EOF V1 c=-1 | 0-EOF V3 pool=p1" : "SPEC list=3,1,2 pool=p1", template.bytes, 512);
    for (int k = 0; k < 3; k++) {
      z = z * 6364136223846793005 + 1442695040888963407;
      template.bytes[(z >> 33) % size] = (uint8_t)(z >> 56);
    }
    struct lov_request r = FILE_20;
    r.how = i % 3 ? LOV_XATTR : LOV_IOCTL, r.template = template.bytes, r.template_size = size;
    uint8_t *exact = malloc(size);
    CHECK(exact);
    memcpy(exact, template.bytes, size);
    r.template = exact;
    got.size = lov_create(w->lov, &r, got.bytes, LOV_BYTES);
    if (got.size > 0) {
      show(LOV_GETXATTR);
      CHECK(shown.size > 0);
      write_at(w, (z >> 20) % (8 << 20), (z >> 20) % (8 << 20) + 1);
    }
    again.size = lov_set_dir(w->lov, LOV_XATTR, exact, size, again.bytes, LOV_BYTES);
    if (again.size > 0) {
      r = FILE_20;
      r.parent = again.bytes, r.parent_size = (size_t)again.size;
      open_file(w, r);
      CHECK(got.size != 0);
    }
    free(exact);
  }
}

static void *create_many(void *closure) {
  struct world *w = closure;
  uint8_t bytes[4096];
  for (int i = 0; i < 500; i++) {
    CHECK(lov_create(w->lov, &FILE_20, bytes, sizeof bytes) == 56);
    if (i % 50 == 0) {
      lov_refresh(w->lov);
      CHECK_EQ(0, lov_pool(w->lov, "p2", (uint32_t[]){0, 3}, i % 100 ? 2 : 0));
    }
  }
  return NULL;
}

static void threads(struct world *w) {
  pthread_t t[4];
  unsigned before = atomic_load(&w->numbers);
  for (int i = 0; i < 4; i++)
    CHECK_EQ(0, pthread_create(&t[i], NULL, create_many, w));
  for (int i = 0; i < 4; i++)
    pthread_join(t[i], NULL);
  CHECK_EQ(before + 2000, atomic_load(&w->numbers));
}

static void settings(void) {
  static const struct { struct lov_config config; const char *said; } cases[] = {
    {{0}, ""},
    {{.stripe_count = PENSTOCK_STRIPES_ALL, .stripe_size_bytes = 65536}, ""},
    {{.stripe_size_bytes = 100000}, "layout.stripe_size 100000 *"},
    {{.dom_bytes = 1}, "layout.dom_size 1 *"},
    {{.stripe_count = 2001}, "layout.stripe_count 2001*"},
    {{.append_stripe_count = 70000}, "layout.append_stripe_count 70000*"},
    {{.qos_threshold_percent = 101}, "layout.qos_threshold_percent 101*"},
    {{.qos_prio_free_percent = 101}, "layout.qos_prio_free_percent 101*"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[100] = "";
    CHECK_EQ(!cases[i].said[0], lov_config_fine(&cases[i].config, why, sizeof why));
    CHECK(fnmatch(cases[i].said, why, 0) == 0);
  }
  CHECK(!lov_new(&(struct lov_config){0}));
  CHECK(!lov_new(&(struct lov_config){.ost_count = 2049}));
}

int main(void) {
  struct world w;
  settings();
  run_table();
  world_up(&w);
  rows_open(&w);
  rows_existing(&w);
  rows_write_back(&w);
  row_copied(&w);
  rows_instantiate(&w);
  rows_reading(&w);
  rows_folders(&w);
  rows_permission();
  noise(&w);
  threads(&w);
  limits(&w);
  world_down(&w);
  return 0;
}
