// SPDX-License-Identifier: Apache-2.0
// not under: tsan (it has one thread)
/* Which requests calls cause, against what was counted on a real Lustre: the calls come as FUSE's kernel side sends them
 * (a LOOKUP before each call by path, a GETATTR for permissions before an OPEN), the counters must be Lustre's. */
#include <fcntl.h>

#include "model_drive.h"

static struct model *m;
static uint32_t client, pid = 100;

struct file {
  uint64_t ino, parent, name;
  uint32_t stripes;
  uint64_t size;
};
static const uint32_t OSTS[] = {0, 1, 2, 3};

static struct model_call call_on(enum model_op op, const struct file *f) {
  return (struct model_call){.op = op, .client = client, .pid = pid, .ino = f->ino, .parent = f->parent, .name = f->name,
                             .osts = OSTS, .ost_count = f->stripes, .file_size = f->size};
}

static void fresh(const char *settings) {
  model_free(m);
  m = drive_new(1, 4, settings);
  client = 0;
}

static void lookup(const struct file *f) {
  drive(m, call_on(MODEL_LOOKUP, f));
}
static void lookup_missing(const struct file *f) {
  struct model_call c = call_on(MODEL_LOOKUP, f);
  c.ino = 0;
  c.result = -ENOENT;
  drive(m, c);
}
static void fstat_file(const struct file *f) {
  drive(m, call_on(MODEL_GETATTR, f));
}
static void stat_file(const struct file *f) {
  lookup(f);
  fstat_file(f);
}
static void open_file(const struct file *f, int flags) {
  stat_file(f); /* the kernel asks whether it may */
  struct model_call c = call_on(MODEL_OPEN, f);
  c.flags = flags;
  drive(m, c);
}
static void create_file(const struct file *f, int flags, bool delayed) {
  lookup_missing(f);
  struct model_call c = call_on(MODEL_CREATE, f);
  c.flags = flags;
  c.ost_count = delayed ? 0 : f->stripes;
  drive(m, c);
  fstat_file(f); /* whether it may be open */
}
static void close_file(const struct file *f, int flags) {
  struct model_call c = call_on(MODEL_FLUSH, f);
  c.flags = flags;
  drive(m, c);
  c.op = MODEL_CLOSE;
  drive(m, c);
}
static void with_path(enum model_op op, const struct file *f) {
  lookup(f);
  drive(m, call_on(op, f));
}

/* Bytes of a file whose stripes are 1 MiB. */
static void move(enum model_op op, struct file *f, uint64_t offset, uint64_t size, int flags) {
  struct model_extent x[64];
  uint32_t count = 0;
  for (uint64_t at = offset; at < offset + size && count < 64; count++) {
    uint64_t block = at >> 20, end = (block + 1) << 20;
    end = end < offset + size ? end : offset + size;
    uint32_t stripe = (uint32_t)(block % f->stripes);
    x[count] = (struct model_extent){stripe, stripe, (block / f->stripes << 20) + at % (1 << 20), end - at};
    at = end;
  }
  if (f->stripes == 1) {
    x[0] = (struct model_extent){0, 0, offset, size};
    count = 1;
  }
  if (op == MODEL_WRITE && offset + size > f->size)
    f->size = offset + size;
  struct model_call c = call_on(op, f);
  c.offset = offset;
  c.size = size;
  c.flags = flags;
  c.extents = x;
  c.extent_count = count;
  drive(m, c);
}
static void write_file(struct file *f, uint64_t offset, uint64_t size) {
  move(MODEL_WRITE, f, offset, size, O_WRONLY);
}
static void read_file(struct file *f, uint64_t offset, uint64_t size) {
  move(MODEL_READ, f, offset, size, O_RDONLY);
}

/* ---- what was counted ---- */

static const char *const MDS_NAMES[] = {"enq:open", "enq:getattr", "enq:lookup", "enq:layout", "enq:getxattr", "enq:readdir",
                                        "reint", "close", "readpage", "getattr", "batch", "statfs", "sync", "flock", "cancel"};
static const char *const OST_NAMES[] = {"glimpse", "ext", "read", "write", "punch", "ost:setattr", "ost:sync", "ost:cancel",
                                        "seek", "falloc"};
enum { MDS_COUNT = sizeof MDS_NAMES / sizeof *MDS_NAMES, OST_COUNT = sizeof OST_NAMES / sizeof *OST_NAMES };
static long before[MDS_COUNT + OST_COUNT + 1];

static const char *name_at(int i) {
  return i < MDS_COUNT ? MDS_NAMES[i] : i < MDS_COUNT + OST_COUNT ? OST_NAMES[i - MDS_COUNT] : "cb";
}
static void begin(void) {
  for (int i = 0; i <= MDS_COUNT + OST_COUNT; i++)
    before[i] = drive_counter(m, (int)client, name_at(i));
}
static long since(const char *name) {
  for (int i = 0; i <= MDS_COUNT + OST_COUNT; i++)
    if (!strcmp(name_at(i), name))
      return drive_counter(m, (int)client, name) - before[i];
  CHECK(!"a counter that is known");
  return 0;
}

/* "enq:open 1 close 1": these and no others since begin(). */
static void expect(const char *what, const char *wanted) {
  char got[800] = "", text[1000];
  for (int i = 0; i <= MDS_COUNT + OST_COUNT; i++) {
    long n = drive_counter(m, (int)client, name_at(i)) - before[i];
    if (n)
      snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s %ld", *got ? " " : "", name_at(i), n);
  }
  snprintf(text, sizeof text, "%s: %s", what, got);
  char wish[1000];
  snprintf(wish, sizeof wish, "%s: %s", what, wanted);
  CHECK_STR(wish, text);
}

static struct file file_of(uint64_t number, uint32_t stripes, uint64_t size) {
  return (struct file){.ino = number, .parent = 1, .name = number * 7 + 1, .stripes = stripes, .size = size};
}

/* ---- metadata ---- */

static void test_open_and_close(void) {
  fresh("");
  struct file f = file_of(10, 1, 4096);
  begin();
  open_file(&f, O_RDONLY);
  expect("open, cold", "enq:open 1");
  begin();
  open_file(&f, O_RDONLY);
  expect("open while open", "");
  close_file(&f, O_RDONLY);
  expect("one of two handles closed", "");
  close_file(&f, O_RDONLY);
  expect("the last one", "close 1");
  drive_wait(m, 1);
  begin();
  open_file(&f, O_RDONLY);
  close_file(&f, O_RDONLY);
  expect("open and close, name cached", "enq:open 1 close 1 cancel 1");

  fresh("");
  begin();
  for (int i = 0; i < 20; i++) {
    open_file(&f, O_RDONLY);
    close_file(&f, O_RDONLY);
  }
  CHECK_EQ(2, since("enq:open"));
  CHECK_EQ(1, since("close"));
  fresh("");
  lookup(&f);
  begin();
  for (int i = 0; i < 20; i++) {
    open_file(&f, O_WRONLY);
    close_file(&f, O_WRONLY);
  }
  expect("for writing, over and over", "enq:open 20 close 20 cancel 20");
}

static void test_missing_names(void) {
  fresh("");
  struct file f = file_of(10, 1, 0);
  begin();
  lookup_missing(&f);
  lookup_missing(&f);
  expect("lstat of a missing name, twice", "enq:lookup 2");
  struct file dir = {.ino = 1, .parent = 1, .name = 2};
  lookup(&dir);
  drive(m, call_on(MODEL_OPENDIR, &dir));
  drive(m, call_on(MODEL_READDIR, &dir));
  begin();
  for (int i = 0; i < 5; i++)
    lookup_missing(&f);
  expect("after a listing of the folder", "enq:lookup 1");
  struct file other = file_of(11, 1, 0);
  create_file(&other, O_WRONLY, false);
  begin();
  lookup_missing(&f);
  lookup_missing(&f);
  expect("after an own create in it", "enq:lookup 2");
}

static void test_create(void) {
  fresh("");
  struct file f = file_of(10, 1, 0);
  begin();
  create_file(&f, O_WRONLY, false);
  close_file(&f, O_WRONLY);
  expect("create and close", "enq:open 1 close 1");
  begin();
  stat_file(&f);
  expect("stat of a file just created, empty", "glimpse 1");
  begin();
  stat_file(&f);
  expect("stat again", "");
  f = file_of(11, 4, 0);
  begin();
  create_file(&f, O_WRONLY, false);
  write_file(&f, 0, 4096);
  close_file(&f, O_WRONLY);
  expect("create, write 4 KiB, close", "enq:open 1 close 1 ext 1");
  begin();
  stat_file(&f);
  expect("stat of an own dirty file of 4 stripes", "glimpse 3");
  begin();
  drive_wait(m, 60);
  expect("writeback", "write 1");
  f = file_of(12, 1, 0);
  begin();
  create_file(&f, O_WRONLY, false);
  write_file(&f, 0, 1 << 20);
  drive(m, call_on(MODEL_FSYNC, &f));
  close_file(&f, O_WRONLY);
  expect("create, write 1 MiB, fsync, close", "enq:open 1 close 1 sync 1 ext 1 write 1 ost:sync 1");
  begin();
  drive(m, call_on(MODEL_FSYNC, &f));
  expect("fsync, clean", "ost:sync 1");
}

static void test_placed_create(void) {
  fresh("");
  struct file f = file_of(10, 1, 0);
  begin();
  create_file(&f, O_WRONLY, true);
  drive(m, call_on(MODEL_SETSTRIPE, &f));
  close_file(&f, O_WRONLY);
  expect("placed create by xattr", "enq:open 2 close 2 cancel 1 cb 1");
  f = file_of(11, 1, 0);
  begin();
  create_file(&f, O_WRONLY, true);
  struct model_call c = call_on(MODEL_SETSTRIPE, &f);
  c.flags = 1;
  drive(m, c);
  close_file(&f, O_WRONLY);
  expect("placed create by ioctl", "enq:open 2 enq:layout 1 close 2 cancel 1 cb 1");
  f = file_of(12, 1, 0);
  begin();
  lookup_missing(&f);
  drive(m, call_on(MODEL_MKNOD, &f));
  lookup(&f);
  drive(m, call_on(MODEL_SETSTRIPE, &f));
  open_file(&f, O_WRONLY);
  close_file(&f, O_WRONLY);
  expect("mknod, setxattr, open, close", "enq:open 2 enq:getattr 1 reint 1 close 2 cancel 1 cb 1");
  f = file_of(13, 1, 0);
  begin();
  create_file(&f, O_WRONLY, true);
  drive(m, call_on(MODEL_SETSTRIPE, &f));
  write_file(&f, 0, 4096);
  close_file(&f, O_WRONLY);
  expect("placed create, write 4 KiB", "enq:open 2 enq:layout 1 enq:getxattr 1 close 2 cancel 1 ext 1 cb 1");
}

static void test_stat(void) {
  fresh("");
  struct file f = file_of(10, 4, 1 << 22);
  begin();
  stat_file(&f);
  expect("stat, cold, 4 stripes", "enq:getattr 1 glimpse 4");
  begin();
  stat_file(&f);
  struct model_call c = call_on(MODEL_GETXATTR, &f);
  c.layout = true;
  drive(m, c);
  expect("stat, warm, and its layout", "");
  begin();
  with_path(MODEL_GETXATTR, &f);
  with_path(MODEL_GETXATTR, &f);
  with_path(MODEL_LISTXATTR, &f);
  expect("user.* attributes", "enq:getxattr 1");
  begin();
  drive(m, call_on(MODEL_GETSTRIPE, &f));
  drive(m, call_on(MODEL_GETSTRIPE, &f));
  expect("lfs getstripe, never cached", "getattr 2");
  begin();
  drive(m, call_on(MODEL_STATFS, &f));
  drive(m, call_on(MODEL_STATFS, &f));
  expect("statfs", "statfs 1");
  drive_wait(m, 1.5);
  drive(m, call_on(MODEL_STATFS, &f));
  expect("statfs a second later", "statfs 2");
  begin();
  drive(m, call_on(MODEL_LOCK, &f));
  expect("a file lock", "flock 1");
  drive_do(m, "set client.flock=local");
  drive(m, call_on(MODEL_LOCK, &f));
  expect("with localflock", "flock 1");
  struct file l = {.ino = 20, .parent = 1, .name = 5};
  begin();
  with_path(MODEL_READLINK, &l);
  with_path(MODEL_READLINK, &l);
  expect("readlink, cold and warm", "enq:getattr 1 getattr 1");
}

static void test_making_and_removing(void) {
  fresh("");
  struct file f = file_of(10, 4, 0), g = file_of(11, 1, 0), d = {.ino = 12, .parent = 1, .name = 9};
  begin();
  lookup_missing(&d);
  drive(m, call_on(MODEL_MKDIR, &d));
  expect("mkdir", "reint 1");
  begin();
  lookup(&d);
  expect("its first use as a parent", "enq:getattr 1");
  begin();
  with_path(MODEL_RMDIR, &d);
  expect("rmdir", "reint 1");
  create_file(&f, O_WRONLY, false);
  close_file(&f, O_WRONLY);
  struct model_call c = call_on(MODEL_UNLINK, &f);
  c.last = true;
  begin();
  lookup(&f);
  drive(m, c);
  expect("unlink, name cached", "reint 1");
  CHECK_EQ(4, drive_counter(m, -1, "destroy"));
  drive_wait(m, 6);
  CHECK_EQ(1, (long)m->osts[3].stats.line[OB_DESTROY].count);
  begin();
  lookup(&g);
  c = call_on(MODEL_UNLINK, &g);
  c.last = false;
  drive(m, c);
  expect("unlink of one of two names, cold", "enq:getattr 1 reint 1");
  CHECK_EQ(4, drive_counter(m, -1, "destroy"));
  g = file_of(13, 1, 0);
  begin();
  create_file(&g, O_WRONLY, false);
  write_file(&g, 0, 1 << 20);
  c = call_on(MODEL_UNLINK, &g);
  c.last = true;
  lookup(&g);
  drive(m, c);
  drive_wait(m, 60);
  close_file(&g, O_WRONLY);
  expect("create, write, unlink before the flush", "enq:open 1 reint 1 close 1 ext 1 ost:cancel 1 cb 1");
}

static void test_rename(void) {
  fresh("");
  struct file f = file_of(10, 1, 0), target = file_of(11, 1, 0);
  struct model_call c = call_on(MODEL_RENAME, &f);
  c.parent2 = 1;
  c.name2 = target.name;
  begin();
  lookup(&f);
  lookup_missing(&target);
  drive(m, c);
  expect("rename, nothing cached", "enq:getattr 1 enq:lookup 1 reint 1");
  lookup(&f);
  lookup(&target);
  begin();
  lookup(&f);
  lookup(&target);
  c.ino2 = target.ino;
  drive(m, c);
  expect("rename over, both cached", "reint 1");
  CHECK_EQ(1, drive_counter(m, -1, "destroy"));
  /* temp, write, fsync, rename over old */
  struct file temp = file_of(20, 1, 0), old = file_of(21, 1, 10);
  lookup(&old);
  begin();
  create_file(&temp, O_WRONLY, false);
  write_file(&temp, 0, 4096);
  drive(m, call_on(MODEL_FSYNC, &temp));
  close_file(&temp, O_WRONLY);
  lookup(&temp);
  lookup(&old);
  c = call_on(MODEL_RENAME, &temp);
  c.parent2 = 1;
  c.name2 = old.name;
  c.ino2 = old.ino;
  drive(m, c);
  expect("temp, write, fsync, rename over old", "enq:open 1 reint 1 close 1 sync 1 ext 1 write 1 ost:sync 1");
}

static void set_attr(struct file *f, int flags) {
  lookup(f);
  struct model_call c = call_on(MODEL_SETATTR, f);
  c.flags = flags;
  drive(m, c);
}

static void test_setattr(void) {
  fresh("");
  struct file f = file_of(10, 4, 0);
  create_file(&f, O_WRONLY, false);
  close_file(&f, O_WRONLY);
  begin();
  set_attr(&f, MODEL_SET_MODE);
  expect("chmod of a fresh file", "enq:layout 1 reint 1 ost:setattr 1");
  begin();
  set_attr(&f, MODEL_SET_MODE);
  expect("chmod after an own change", "enq:getattr 1 reint 1 ost:setattr 1");
  begin();
  set_attr(&f, MODEL_SET_TIMES);
  expect("utime, first", "enq:getattr 1 reint 1 ext 1 ost:setattr 1");
  f = file_of(11, 4, 100);
  begin();
  set_attr(&f, MODEL_SET_OWNER);
  expect("chown, cold", "enq:getattr 1 enq:getxattr 1 reint 1 ost:setattr 1");
  CHECK_EQ(4, drive_counter(m, -1, "mds:ost:setattr"));
  f = file_of(12, 4, 100);
  begin();
  open_file(&f, O_WRONLY | O_TRUNC);
  f.size = 0;
  drive(m, call_on(MODEL_TRUNCATE, &f));
  expect("open with O_TRUNC", "enq:open 1 enq:layout 1 enq:getxattr 1 reint 1 ext 4 punch 4");
  begin();
  struct file g = file_of(13, 1, 0);
  lookup(&g);
  drive(m, call_on(MODEL_SETXATTR, &g));
  expect("setxattr", "enq:getattr 1 reint 1 cancel 1 cb 1");
}

/* ---- folders ---- */

static void test_listing(void) {
  fresh("");
  struct file dir = {.ino = 1000, .parent = 1, .name = 99};
  begin();
  lookup(&dir);
  drive(m, call_on(MODEL_OPENDIR, &dir));
  struct model_call c = call_on(MODEL_READDIR, &dir);
  c.size = 10;
  drive(m, c);
  c.offset = 10;
  c.size = 0;
  drive(m, c);
  drive(m, call_on(MODEL_CLOSEDIR, &dir));
  expect("listing, cold", "enq:open 1 enq:readdir 1 close 1 readpage 1");
  drive_wait(m, 1);
  begin();
  lookup(&dir);
  drive(m, call_on(MODEL_OPENDIR, &dir));
  c.offset = 0;
  drive(m, c);
  drive(m, call_on(MODEL_CLOSEDIR, &dir));
  expect("listing, warm", "enq:open 1 close 1");
}

/* ls -l of 1,000 files; `how`: 's' lstat in the loop, 'x' the layout too, 'n' only layouts, 'c' after closedir. */
static void list_long(char how) {
  struct file dir = {.ino = 1000, .parent = 1, .name = 99};
  lookup(&dir);
  drive(m, call_on(MODEL_OPENDIR, &dir));
  struct model_call c = call_on(MODEL_READDIR, &dir);
  c.size = 1000;
  drive(m, c);
  if (how == 'c')
    drive(m, call_on(MODEL_CLOSEDIR, &dir));
  for (uint64_t i = 0; i < 1000; i++) {
    struct file f = {.ino = 2000 + i, .parent = 1000, .name = 5000 + i, .stripes = 1, .size = 1};
    struct model_call x = call_on(MODEL_GETXATTR, &f);
    x.layout = true;
    if (how != 'n')
      stat_file(&f);
    if (how == 'x' || how == 'n') {
      stat_file(&f); /* so the kernel checks permission */
      drive(m, x);
    }
  }
  if (how != 'c')
    drive(m, call_on(MODEL_CLOSEDIR, &dir));
}

static long enqueues(void) {
  return since("enq:open") + since("enq:getattr") + since("enq:readdir");
}

static void test_looking_ahead(void) {
  fresh("");
  begin();
  list_long('s');
  CHECK_EQ(7, enqueues());
  CHECK(since("batch") >= 18 && since("batch") <= 22);
  CHECK_EQ(1000, since("glimpse"));
  CHECK_EQ(1, since("readpage"));
  CHECK_EQ(1, since("close"));
  fresh("");
  begin();
  list_long('x');
  CHECK_EQ(7, enqueues());
  CHECK_EQ(0, since("enq:layout"));
  CHECK_EQ(1000, since("glimpse"));
  fresh("");
  begin();
  list_long('n');
  CHECK_EQ(1002, enqueues());
  CHECK_EQ(0, since("batch"));
  CHECK_EQ(0, since("glimpse"));
  fresh("");
  begin();
  list_long('c');
  CHECK_EQ(1002, enqueues());
  CHECK_EQ(0, since("batch"));
  fresh("client.statahead=0\n");
  begin();
  list_long('s');
  CHECK_EQ(1002, enqueues());
  drive_wait(m, 1);
  CHECK_EQ(1000, (long)m->mdts[0].stats.line[MD_GETATTR].count);
}

/* ---- data ---- */

static void test_small_files(void) {
  fresh("");
  struct file f = file_of(10, 1, 4096);
  begin();
  open_file(&f, O_RDONLY);
  read_file(&f, 0, 4096);
  close_file(&f, O_RDONLY);
  expect("open, read, close", "enq:open 1 close 1 ext 1 read 1");
  f = file_of(11, 1, 4096);
  begin();
  open_file(&f, O_RDONLY);
  fstat_file(&f);
  read_file(&f, 0, 4096);
  close_file(&f, O_RDONLY);
  expect("the same with fstat inside", "enq:open 1 close 1 glimpse 1 read 1");
  drive_wait(m, 1);
  begin();
  open_file(&f, O_RDONLY);
  read_file(&f, 0, 4096);
  close_file(&f, O_RDONLY);
  expect("all cached", "enq:open 1 close 1 cancel 1");
  f = file_of(12, 1, 0);
  begin();
  create_file(&f, O_WRONLY, false);
  fstat_file(&f);
  write_file(&f, 0, 4096);
  close_file(&f, O_WRONLY);
  expect("create, fstat, write, close", "enq:open 1 close 1 glimpse 1 ext 1 ost:cancel 1 cb 2");
  f = file_of(13, 1, 4096);
  begin();
  stat_file(&f);
  open_file(&f, O_RDONLY);
  fstat_file(&f);
  read_file(&f, 0, 4096);
  close_file(&f, O_RDONLY);
  expect("tar", "enq:open 1 enq:getattr 1 close 1 cancel 1 glimpse 1 read 1");
}

static void write_many(uint32_t stripes, uint64_t mib, long ext, long writes) {
  fresh("");
  struct file f = file_of(10, stripes, 0);
  create_file(&f, O_WRONLY, false);
  begin();
  for (uint64_t i = 0; i < mib; i++)
    write_file(&f, i << 20, 1 << 20);
  drive(m, call_on(MODEL_FSYNC, &f));
  CHECK_EQ(ext, since("ext"));
  CHECK_EQ(writes, since("write"));
}

static void test_writes(void) {
  write_many(1, 1, 1, 1);
  write_many(1, 16, 1, 4);
  write_many(1, 64, 1, 16);
  write_many(4, 16, 4, 4);
  write_many(4, 64, 4, 16);
  fresh("");
  struct file f = file_of(10, 1, 0);
  create_file(&f, O_WRONLY, false);
  f.size = 64 << 20;
  begin();
  for (uint64_t i = 0; i < 64; i++)
    write_file(&f, (i * 37 % 64) << 20, 4096);
  drive(m, call_on(MODEL_FSYNC, &f));
  CHECK_EQ(1, since("ext"));
  CHECK_EQ(1, since("write"));
  drive_wait(m, 1);
  CHECK_EQ(256 << 10, (long)m->osts[0].stats.line[OB_WRITE_BYTES].sum);

  fresh("");
  f = file_of(10, 4, 0);
  create_file(&f, O_WRONLY, false);
  begin();
  for (uint64_t i = 0; i < 16; i++)
    move(MODEL_WRITE, &f, i << 20, 1 << 20, O_WRONLY | O_DIRECT);
  expect("direct writes of 1 MiB", "write 16");
  f = file_of(11, 1, 0);
  create_file(&f, O_WRONLY, false);
  begin();
  move(MODEL_WRITE, &f, 0, 16 << 20, O_WRONLY);
  expect("one write of 16 MiB", "write 4");
  f = file_of(12, 1, 0);
  create_file(&f, O_WRONLY | O_SYNC, false);
  begin();
  move(MODEL_WRITE, &f, 0, 4096, O_WRONLY | O_SYNC);
  move(MODEL_WRITE, &f, 4096, 4096, O_WRONLY | O_SYNC);
  expect("two synchronous writes", "sync 1 ext 1 write 2 ost:sync 2");
  f = file_of(13, 4, 100);
  begin();
  move(MODEL_WRITE, &f, 100, 4096, O_WRONLY | O_APPEND);
  CHECK_EQ(4, since("ext"));
  CHECK_EQ(1, since("enq:getxattr"));
  begin();
  for (int i = 0; i < 50; i++)
    move(MODEL_WRITE, &f, 4196 + 100 * (uint64_t)i, 100, O_WRONLY | O_APPEND);
  expect("50 more appends", "");
}

static void test_reads(void) {
  static const uint64_t steps[] = {64 << 10, 1 << 20};
  for (int i = 0; i < 2; i++) {
    fresh("");
    struct file f = file_of(10, 1, 64 << 20);
    open_file(&f, O_RDONLY);
    begin();
    for (uint64_t at = 0; at < f.size; at += steps[i])
      read_file(&f, at, steps[i]);
    expect("64 MiB in order", "ext 1 read 17");
    drive_wait(m, 10);
    CHECK_EQ(64 << 20, (long)m->osts[0].stats.line[OB_READ_BYTES].sum);
    begin();
    for (uint64_t at = 0; at < f.size; at += steps[i])
      read_file(&f, at, steps[i]);
    expect("again", "");
  }
  fresh("");
  struct file f = file_of(10, 1, 64 << 20);
  open_file(&f, O_RDONLY);
  begin();
  for (uint64_t at = 0; at < 1 << 20; at += 4096)
    read_file(&f, at, 4096);
  expect("its first MiB by 4 KiB: all is fetched", "ext 1 read 17");
  f = file_of(11, 1, 64 << 20);
  open_file(&f, O_RDONLY);
  begin();
  for (uint64_t i = 0; i < 64; i++)
    read_file(&f, (i * 37 + 5) % 64 << 20, 4096);
  expect("64 random reads", "ext 1 read 64");
  f = file_of(12, 4, 64 << 20);
  open_file(&f, O_RDONLY);
  begin();
  for (uint64_t at = 0; at < f.size; at += 1 << 20)
    read_file(&f, at, 1 << 20);
  CHECK_EQ(4, since("ext"));
  CHECK(since("read") >= 16 && since("read") <= 24);
  drive_wait(m, 10);
  uint64_t sum = 0;
  for (int i = 0; i < 4; i++)
    sum += m->osts[i].stats.line[OB_READ_BYTES].sum;
  CHECK(sum >= 64 << 20);
}

/* ---- two clients ---- */

static void test_two_clients(void) {
  fresh("");
  struct file f = file_of(10, 1, 0);
  create_file(&f, O_WRONLY, false);
  write_file(&f, 0, 4096);
  begin();
  client = 1;
  open_file(&f, O_RDONLY); /* whose glimpse belonged to the open */
  client = 0;
  begin();
  client = 1;
  read_file(&f, 0, 4096);
  client = 0;
  expect("A, when B reads what A has dirty", "write 1 ost:cancel 1 cb 2");

  fresh("");
  struct file dir = {.ino = 1000, .parent = 1, .name = 99}, made = {.ino = 50, .parent = 1000, .name = 3, .stripes = 1};
  lookup(&dir);
  begin();
  client = 1;
  create_file(&made, O_WRONLY, false);
  client = 0;
  expect("A knows the folder, B creates in it", "");
  drive(m, call_on(MODEL_OPENDIR, &dir));
  drive(m, call_on(MODEL_READDIR, &dir));
  begin();
  client = 1;
  made.ino++, made.name++;
  create_file(&made, O_WRONLY, false);
  client = 0;
  expect("A holds its listing, B creates in it", "cancel 1 cb 1");
  drive_wait(m, 1);
  begin();
  drive(m, call_on(MODEL_READDIR, &dir));
  expect("A lists again", "enq:readdir 1 readpage 1");

  f = file_of(60, 1, 10);
  stat_file(&f);
  begin();
  client = 1;
  set_attr(&f, MODEL_SET_MODE);
  client = 0;
  expect("A knows a file, B changes its mode", "cancel 1 cb 1");
  begin();
  stat_file(&f);
  expect("A's next stat", "enq:getattr 1");
}

/* ---- bounds ---- */

static void test_bounds(void) {
  fresh("client.locks=100\njob.count=1\n");
  for (uint64_t i = 0; i < 5000; i++) {
    struct file f = file_of(100 + i, 1, 10);
    pid = 100 + (uint32_t)i;
    stat_file(&f);
    create_file(&f, O_WRONLY, false);
    write_file(&f, 0, 100);
    close_file(&f, O_WRONLY);
    drive_wait(m, 40);
  }
  pid = 100;
  CHECK(m->held_count <= 101);
  struct file f = file_of(100, 1, 10);
  begin();
  stat_file(&f);
  expect("what was forgotten is cold", "enq:getattr 1 glimpse 1");
  drive_wait(m, 1000);
  begin();
  stat_file(&f);
  expect("and what is too old", "enq:getattr 1 glimpse 1");
}

int main(void) {
  test_open_and_close();
  test_missing_names();
  test_create();
  test_placed_create();
  test_stat();
  test_making_and_removing();
  test_rename();
  test_setattr();
  test_listing();
  test_looking_ahead();
  test_small_files();
  test_writes();
  test_reads();
  test_two_clients();
  test_bounds();
  model_free(m);
  return 0;
}
