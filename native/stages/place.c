// SPDX-License-Identifier: Apache-2.0
/* The stage `place`: a file that the program creates gets the layout that the plan on the board says (board/place.h).

   On Lustre the program's own open creates the file: O_LOV_DELAY_CREATE is added to its flags, which leaves the new file
   without objects, and the layout is set through the descriptor that the program is about to get.  No second open is
   made, so mode, umask, O_EXCL, ACLs and ownership are the kernel's business as ever.

   Invariants:
   1. A file never stays without a layout through us: where the planned one is refused, the default is set at once.  Only
      when that fails too does the program's open fail, with that error; the name stays, as after any failed write.
   2. Who wins: flags of the program that already delay; then the folder's default, of which a plain one fixes count,
      size and pool, and any other is left alone; then the plan.
   3. A file that has a layout keeps it, whoever made it.
   4. The program does not see the bits of O_LOV_DELAY_CREATE in its descriptor's flags.
   5. A write that fails with EBADF because another process has created the file and not set its layout yet gets the
      default layout and is made once more.
   6. What is on the board may change while it is read: numbers are copied, and only copies are checked and followed.
   7. Folders' defaults are those that the plan's maker has read, for some minutes; others are asked for once a folder, a
      process and a minute.  All are asked for again after one of the job's processes may have changed one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include "board/place.h"
#include "interpose/call.h"
#include "interpose/raw.h"
#include "kernels/layout.h"
#include "stages/limit.h"

/* The value that Lustre gives it: neither bit means anything for regular files by itself. */
#define DELAY_CREATE (O_NOCTTY | O_ASYNC)
enum { REQUESTS_MORE = 3 }; /* that a layout costs a Lustre besides the create: an open, a close, a lock given back */
#define SET_STRIPE 0x4008669a /* LL_IOC_LOV_SETSTRIPE */
static const char LOV[] = "lustre.lov";
static const char CEPH_POOL[] = "ceph.file.layout.pool";

static struct penstock_place_spot spots[PENSTOCK_PLACES_MAX];
static uint32_t spot_count;

/* ---- counting ---- */

static struct penstock_place_usage *shared(void) {
  return (struct penstock_place_usage *)(void *)(penstock_here.usage + PENSTOCK_PLACE_USAGE_OFFSET);
}

static void count(enum penstock_place_count what) {
  if (penstock_here.usage)
    __atomic_fetch_add(&shared()->count[what], 1, __ATOMIC_RELAXED);
}

/* The next turn of a list of `length`; nodes begin at different places. */
static uint64_t turn(const struct penstock_place *p, uint32_t *cursor, uint32_t length, uint32_t step) {
  uint32_t n = penstock_here.usage ? __atomic_fetch_add(cursor, step, __ATOMIC_RELAXED) : 0;
  return n + ((uint64_t)p->head->begin * length >> 32);
}

/* ---- what the folder says ---- */

/* A folder's default in one word, so that a table of them needs no lock. */
struct folder {
  uint32_t tag : 22;  /* of the folder's name */
  uint32_t pool : 7;  /* 1 + index in the plan; 0: none */
  uint32_t kind : 3;  /* enum penstock_folder_kind */
  uint16_t count;     /* 0: the file system's */
  uint16_t size_64k;  /* 0: the file system's; else in units of 64 KiB */
};
_Static_assert(sizeof(struct folder) == 8, "one word");

enum { FOLDERS = 64, POOL_UNKNOWN = 127 };
static uint64_t folders[FOLDERS];

static uint64_t word_of(struct folder f) {
  uint64_t word;
  memcpy(&word, &f, sizeof word);
  return word;
}

static struct folder folder_of(uint64_t word) {
  struct folder f;
  memcpy(&f, &word, sizeof f);
  return f;
}

/* Lustre's answer as a word. */
static struct folder read_default(const struct penstock_place *p, const char *path) {
  uint8_t value[PENSTOCK_LOV_V3_BYTES];
  struct penstock_layout layout;
  struct penstock_component c;
  count(PENSTOCK_PLACE_FOLDERS);
  long size = PENSTOCK_RAW(getxattr, path, LOV, value, sizeof value);
  if (size == -ENODATA)
    return (struct folder){.kind = PENSTOCK_FOLDER_NONE};
  if (size == -ERANGE) /* a list or components */
    return (struct folder){.kind = PENSTOCK_FOLDER_LEFT};
  if (size < 0)
    return (struct folder){.kind = PENSTOCK_FOLDER_ELSEWHERE};
  if (penstock_layout_parse(value, (size_t)size, &layout) || layout.composite || penstock_layout_component(&layout, 0, &c) ||
      (c.pattern & ~PENSTOCK_PATTERN_RAID0) || c.stripe_offset != PENSTOCK_OFFSET_ANY)
    return (struct folder){.kind = PENSTOCK_FOLDER_LEFT};
  if (!c.pool[0] && c.stripe_count == p->head->default_count && c.stripe_size_bytes == p->head->default_size)
    return (struct folder){.kind = PENSTOCK_FOLDER_NONE};
  uint32_t pool = c.pool[0] ? penstock_place_pool_called(p, c.pool, strnlen(c.pool, sizeof c.pool)) : 0;
  return (struct folder){
    .kind = PENSTOCK_FOLDER_PLAIN,
    .count = c.stripe_count,
    .size_64k = (uint16_t)(c.stripe_size_bytes / PENSTOCK_STRIPE_UNIT_BYTES),
    .pool = !c.pool[0] ? 0 : pool ? pool + 1 : POOL_UNKNOWN,
  };
}

/* What the plan's maker read, while that is fresh and nobody of the job has changed a default since. */
static bool read_by_planner(const struct penstock_place *p, uint64_t hash, uint32_t changes, struct folder *ret) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const struct penstock_place_folder *f = changes ? NULL : penstock_place_folder(p, hash);
  if (!f || (uint64_t)now.tv_sec > p->head->made_real_ns / 1000000000 + PENSTOCK_PLACE_FOLDERS_S)
    return false;
  *ret = (struct folder){.kind = f->kind & 7, .pool = f->pool & 127, .count = f->count, .size_64k = f->size_64k};
  return ret->kind == PENSTOCK_FOLDER_NONE || ret->kind == PENSTOCK_FOLDER_PLAIN || ret->kind == PENSTOCK_FOLDER_LEFT;
}

/* Another one after a change (of a default, or of the plan, whose pools have numbers), and each minute. */
static uint64_t folder_key(uint64_t hash, uint32_t changes) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  uint64_t key = hash ^ ((uint64_t)(now.tv_sec / 64) << 32 | changes) * UINT64_C(0xc4ceb9fe1a85ec53);
  return key ^ key >> 29;
}

/* The default of the folder that holds `path`. */
static struct folder folder_default(const struct penstock_place *p, const char *path, size_t size) {
  char name[1024];
  const char *slash = memrchr(path, '/', size);
  size_t folder_size = slash ? (size_t)(slash - path) : 0;
  if (!slash || folder_size >= sizeof name)
    return (struct folder){.kind = PENSTOCK_FOLDER_ELSEWHERE};
  uint32_t changes = penstock_here.usage ? __atomic_load_n(&shared()->folders, __ATOMIC_RELAXED) : 0;
  uint64_t hash = penstock_hash(path, folder_size), key = folder_key(hash, changes + p->generation), *place = &folders[key % FOLDERS];
  struct folder known;
  if (read_by_planner(p, hash, changes, &known))
    return known;
  known = folder_of(__atomic_load_n(place, __ATOMIC_RELAXED));
  uint32_t tag = (uint32_t)(key >> 40) & 0x3fffff;
  if (known.kind && known.tag == tag)
    return known;
  memcpy(name, path, folder_size);
  name[folder_size] = 0;
  known = read_default(p, folder_size ? name : "/");
  known.tag = tag;
  if (known.kind != PENSTOCK_FOLDER_ELSEWHERE)
    __atomic_store_n(place, word_of(known), __ATOMIC_RELAXED);
  return known;
}

/* A pool's name as it is now, with a NUL; "" for no pool, and for a name that has no room. */
static void copy_name(char *ret, size_t room, const struct penstock_place *p, uint32_t pool) {
  const char *name = pool < p->pool_count ? p->pools[pool].name : "";
  size_t size = 0;
  do
    ret[size] = __atomic_load_n(&name[size], __ATOMIC_RELAXED);
  while (ret[size] && ++size < room);
  memset(ret + (size < room ? size : 0), 0, room - (size < room ? size : 0));
}

/* ---- what is to be done, kept in the call between before() and after() ---- */

enum doing { NOTHING, SET_ENTRY, SET_SPARE };

/* Is it still what was opened?  What was read of it before holds only if so. */
static bool stands(const struct penstock_place *p) {
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&p->head->generation, __ATOMIC_RELAXED) == p->generation;
}

/* Is the file made here in a way that a layout may be given to it?  Counts why not. */
static bool may_place(const struct penstock_call *call) {
  int flags = call->open_flags;
  if (call->fixed)
    count(PENSTOCK_PLACE_IN_LIBC);
  else if (flags & O_APPEND)
    count(PENSTOCK_PLACE_APPENDED);
  else if ((flags & DELAY_CREATE) == DELAY_CREATE)
    count(PENSTOCK_PLACE_OF_PROGRAM);
  else
    return true;
  return false;
}

/* Does the folder let a layout be given?  Counts why not. */
static bool folder_lets(const struct penstock_place *p, const struct penstock_call *call,
                        const struct penstock_place_entry *entry, struct folder *folder) {
  if (p->driver != PENSTOCK_PLACE_LUSTRE)
    return true;
  *folder = folder_default(p, call->path, call->path_size);
  if (folder->kind == PENSTOCK_FOLDER_ELSEWHERE)
    return false;
  if (entry && entry->flags & PENSTOCK_PLACE_OVERRIDE && p->head->may_override)
    *folder = (struct folder){.kind = PENSTOCK_FOLDER_NONE};
  if (folder->kind == PENSTOCK_FOLDER_LEFT)
    count(PENSTOCK_PLACE_OF_FOLDER);
  else if (folder->pool == POOL_UNKNOWN)
    count(PENSTOCK_PLACE_OF_POOL);
  else
    return true;
  return false;
}

/* What a plan says of a file and its folder lets it; why NOTHING is counted. */
static enum doing decide(const struct penstock_place *p, const struct penstock_call *call,
                         const struct penstock_place_entry **entry, struct folder *folder) {
  *entry = penstock_place_find(p, call->path, call->path_size);
  if (!stands(p)) {
    count(PENSTOCK_PLACE_CHANGING);
    return NOTHING;
  }
  count(*entry ? PENSTOCK_PLACE_EXPECTED : PENSTOCK_PLACE_UNEXPECTED);
  if (*entry && (*entry)->flags & PENSTOCK_PLACE_STOCK)
    count(PENSTOCK_PLACE_PLANNED_STOCK);
  else if (!*entry && (!p->pool_count || !p->pools[0].count))
    count(PENSTOCK_PLACE_NO_TARGETS);
  else if (may_place(call) && folder_lets(p, call, *entry, folder))
    return *entry ? SET_ENTRY : SET_SPARE;
  return NOTHING;
}

static bool creates_regular(const struct penstock_call *call) {
  int flags = call->open_flags;
  return call->creates && flags & O_CREAT && !(flags & (O_PATH | O_DIRECTORY));
}

static enum penstock_answer before(struct penstock_call *call) {
  const struct penstock_place_entry *entry = NULL;
  struct penstock_place plan, *p = &plan;
  struct folder folder = {0};
  if (!(call->does & PENSTOCK_DOES_OPEN) || !creates_regular(call) || !(call->under & PENSTOCK_UNDER_MOUNT) || !spot_count)
    return PENSTOCK_GO;
  if (penstock_sealed() || penstock_on_signal_stack() || !penstock_path(call))
    return PENSTOCK_GO;
  const struct penstock_place_spot *spot = penstock_place_spot_of(spots, spot_count, call->path, call->path_size);
  if (!spot)
    return PENSTOCK_GO;
  const char *wrong = penstock_place_open(p, spot->head, spot->bytes);
  if (wrong || p->driver == PENSTOCK_PLACE_NONE) {
    count(wrong ? PENSTOCK_PLACE_CHANGING : PENSTOCK_PLACE_EARLY);
    return PENSTOCK_GO;
  }
  enum doing doing = decide(p, call, &entry, &folder);
  if (doing == NOTHING)
    return PENSTOCK_GO;
  call->placing = (struct penstock_placing){
    .doing = (uint8_t)doing,
    .spot = (uint8_t)(spot - spots),
    .generation = p->generation,
    .entry = entry ? (uint32_t)(entry - p->entries) : 0,
    .folder = word_of(folder),
    .delayed = p->driver == PENSTOCK_PLACE_LUSTRE && (call->open_flags & O_ACCMODE) != O_RDONLY,
    .async = call->open_flags & O_ASYNC,
  };
  if (folder.pool)
    copy_name(call->placing.pool, sizeof call->placing.pool, p, folder.pool - 1u);
  if (!stands(p)) {
    call->placing.doing = NOTHING;
    count(PENSTOCK_PLACE_CHANGING);
    return PENSTOCK_GO;
  }
  call->owed |= PENSTOCK_STAGE_PLACE;
  if (call->placing.delayed)
    call->open_flags |= DELAY_CREATE;
  return PENSTOCK_GO;
}

/* ---- setting ---- */

/* A template as bytes, on the stack of whoever sets it. */
struct template {
  size_t size;
  uint8_t bytes[PENSTOCK_LOV_V3_BYTES + PENSTOCK_PLACE_STRIPES_MAX * PENSTOCK_LOV_OBJECT_BYTES];
};

static bool write_template(struct template *t, uint32_t count_wish, uint32_t size, const char *pool, const uint16_t *targets) {
  struct penstock_object objects[PENSTOCK_PLACE_STRIPES_MAX];
  struct penstock_component c = {
    .magic = targets ? PENSTOCK_LOV_SPECIFIC : *pool ? PENSTOCK_LOV_V3 : PENSTOCK_LOV_V1,
    .end_bytes = PENSTOCK_EOF,
    .pattern = PENSTOCK_PATTERN_RAID0,
    .stripe_size_bytes = size,
    .stripe_count = (uint16_t)count_wish,
    .stripe_offset = PENSTOCK_OFFSET_ANY,
    .object_count = targets ? count_wish : 0,
    .objects = objects,
  };
  for (uint32_t i = 0; i < c.object_count; i++)
    objects[i] = (struct penstock_object){.ost = targets[i]};
  memcpy(c.pool, pool, strnlen(pool, sizeof c.pool - 1));
  struct penstock_layout layout = {.big_endian = penstock_host_big_endian(), .count = 1, .parts = &c};
  ssize_t written = penstock_layout_write(&layout, t->bytes, sizeof t->bytes);
  t->size = written > 0 ? (size_t)written : 0;
  return t->size;
}

/* 0 or -errno.  The attribute first; where rights to write are missing (the new file is unwritable even for its owner),
   the ioctl, which sets the layout and answers EACCES none the less: what it did is asked for. */
static long set_bytes(int fd, const void *bytes, size_t size, struct template *scratch) {
  long result = penstock_raw6(SYS_fsetxattr, fd, (long)LOV, (long)bytes, (long)size, 0, 0);
  if (result != -EACCES || size > sizeof scratch->bytes)
    return result;
  if (bytes != scratch->bytes)
    memcpy(scratch->bytes, bytes, size); /* the ioctl writes back what became of it */
  result = PENSTOCK_RAW(ioctl, fd, SET_STRIPE, scratch->bytes, 0);
  if (result == -EACCES && PENSTOCK_RAW(fgetxattr, fd, LOV, NULL, 0) != -ENODATA)
    result = 0;
  if (result == 0)
    count(PENSTOCK_PLACE_BY_IOCTL);
  return result == -EEXIST ? 0 : result; /* somebody was faster */
}

static enum penstock_place_count refusal(long error) {
  switch (-error) {
  case ENOSPC:
    return PENSTOCK_PLACE_REFUSED_FULL;
  case EREMOTEIO:
    return PENSTOCK_PLACE_REFUSED_INACTIVE;
  case ENOBUFS:
    return PENSTOCK_PLACE_REFUSED_NO_CREATE;
  case EACCES:
  case EPERM:
    return PENSTOCK_PLACE_REFUSED_RIGHTS;
  default:
    return PENSTOCK_PLACE_REFUSED_OTHER;
  }
}

/* The default that the folder gives, or the file system's. */
static long set_default(int fd, struct folder folder, const char *pool) {
  struct template t;
  bool plain = folder.kind == PENSTOCK_FOLDER_PLAIN;
  write_template(&t, plain ? folder.count : 0, plain ? folder.size_64k * (uint32_t)PENSTOCK_STRIPE_UNIT_BYTES : 0,
                 plain ? pool : "", NULL);
  return set_bytes(fd, t.bytes, t.size, &t);
}

/* The targets of an entry's next turn: how many, or 0. */
static uint32_t targets_of(const struct penstock_place *p, const struct penstock_place_entry *e, uint32_t want,
                           uint16_t *targets) {
  if (e->flags & PENSTOCK_PLACE_BYTES || !e->turns || !e->count || want > e->count || e->count > PENSTOCK_PLACE_STRIPES_MAX)
    return 0;
  uint64_t i = turn(p, &shared()->cursor[e->cursor % PENSTOCK_PLACE_CURSORS], e->turns, 1) % e->turns;
  uint64_t at = e->first + i * e->count;
  if (at + e->count > p->target_count)
    return 0;
  memcpy(targets, &p->targets[at], want * sizeof *targets);
  return want;
}

/* A copy of the entry that was found before the call, or NULL.  It may say something else by now, so nothing of it is
   believed. */
static const struct penstock_place_entry *entry_of(const struct penstock_place *p, const struct penstock_placing *doing,
                                                   struct penstock_place_entry *copy) {
  if (doing->doing != SET_ENTRY || doing->entry >= p->entry_count)
    return NULL;
  memcpy(copy, &p->entries[doing->entry], sizeof *copy);
  __asm__ volatile("" ::: "memory"); /* it is not read there again */
  return copy;
}

/* The layout that an entry has whole, in `bytes`: its size, or 0. */
static uint32_t whole_layout(const struct penstock_place *p, const struct penstock_place_entry *e, const uint8_t **ret) {
  uint32_t from = e ? e->first : 0, size = e ? e->turns : 0;
  if (!e || !(e->flags & PENSTOCK_PLACE_BYTES) || from > p->byte_count || size > p->byte_count - from)
    return 0;
  *ret = p->bytes + from;
  return size;
}

/* Makes the template; false: there are not enough targets. */
static bool make_template(const struct penstock_place *p, const struct penstock_place_entry *e, struct folder folder,
                          struct template *t) {
  uint16_t targets[PENSTOCK_PLACE_STRIPES_MAX];
  char name[PENSTOCK_POOL_BYTES] = "";
  uint32_t usual = __atomic_load_n(&p->head->default_count, __ATOMIC_RELAXED);
  bool fixed = folder.kind == PENSTOCK_FOLDER_PLAIN;
  uint32_t pool = fixed && folder.pool ? folder.pool - 1u : e && e->pool ? e->pool - 1u : 0;
  bool wish = e && e->flags & PENSTOCK_PLACE_WISH;
  uint32_t size = fixed ? folder.size_64k * (uint32_t)PENSTOCK_STRIPE_UNIT_BYTES : wish ? e->stripe_size : 0;
  uint32_t want = fixed && folder.count ? folder.count : wish && e->count ? e->count : usual;
  if (!want || want > PENSTOCK_PLACE_STRIPES_MAX)
    return false;
  bool same_pool = !fixed || !folder.pool || (e && e->pool == folder.pool);
  if (!(e && same_pool && targets_of(p, e, want, targets)) &&
      !penstock_place_take(p, pool, turn(p, &shared()->spare, p->target_count, want), want, targets))
    return false;
  if (pool)
    copy_name(name, sizeof name, p, pool);
  return write_template(t, want, size, name, targets);
}

/* Asking costs a request where the client has no layout yet, so only files that look old are asked; setting the layout of
   one that has one changes nothing. */
static bool has_layout(int fd) { return PENSTOCK_RAW(fgetxattr, fd, LOV, NULL, 0) >= 0; }

/* The default, for a file that was created without objects.  What knows no layouts at all needs none. */
static long give_default(const struct penstock_placing *doing, int fd) {
  long error = doing->delayed ? set_default(fd, folder_of(doing->folder), doing->pool) : 0;
  return error == -EOPNOTSUPP ? 0 : error;
}

/* Sets the layout; -errno only if the file cannot be used. */
static long place_on_lustre(const struct penstock_place *p, struct penstock_call *call, int fd) {
  const struct penstock_placing *doing = &call->placing;
  struct folder folder = folder_of(doing->folder);
  struct penstock_place_entry copy;
  const struct penstock_place_entry *e = entry_of(p, doing, &copy);
  struct template t;
  if (call->was_there && has_layout(fd)) {
    count(PENSTOCK_PLACE_EXISTED);
    return 0;
  }
  const uint8_t *bytes = t.bytes;
  size_t size = folder.kind == PENSTOCK_FOLDER_PLAIN ? 0 : whole_layout(p, e, &bytes);
  if (!size && make_template(p, e, folder, &t))
    size = t.size;
  if (!size || !stands(p)) {
    count(size ? PENSTOCK_PLACE_CHANGING : PENSTOCK_PLACE_NO_TARGETS);
    return give_default(doing, fd);
  }
  penstock_limit_more(call, REQUESTS_MORE);
  long error = set_bytes(fd, bytes, size, &t);
  if (!error) {
    count(doing->doing == SET_ENTRY ? PENSTOCK_PLACE_PLACED : PENSTOCK_PLACE_SPARE);
    return 0;
  }
  count(refusal(error));
  error = give_default(doing, fd);
  count(error ? PENSTOCK_PLACE_FAILED : PENSTOCK_PLACE_DEFAULTED);
  return error;
}

/* An empty file of the default pool goes to the pool of one target. */
static void place_on_ceph(const struct penstock_place *p, struct penstock_call *call, int fd) {
  struct penstock_place_entry copy;
  const struct penstock_place_entry *e = entry_of(p, &call->placing, &copy);
  char now[PENSTOCK_PLACE_POOL_NAME], name[PENSTOCK_PLACE_POOL_NAME];
  uint16_t target = 0;
  long size = PENSTOCK_RAW(fgetxattr, fd, CEPH_POOL, now, sizeof now);
  copy_name(name, sizeof name, p, 0);
  if (call->was_there || size <= 0 || (size_t)size != strlen(name) || memcmp(now, name, (size_t)size) != 0) {
    count(call->was_there ? PENSTOCK_PLACE_EXISTED : PENSTOCK_PLACE_OF_FOLDER);
    return;
  }
  uint32_t pool = 0;
  if ((e && targets_of(p, e, 1, &target)) || penstock_place_take(p, 0, turn(p, &shared()->spare, p->target_count, 1), 1, &target))
    for (uint32_t i = 1; i < p->pool_count && !pool; i++) {
      uint32_t first = __atomic_load_n(&p->pools[i].first, __ATOMIC_RELAXED);
      pool = p->pools[i].count && first < p->target_count && p->targets[first] == target ? i : 0;
    }
  copy_name(name, sizeof name, p, pool);
  if (!pool || !*name || !stands(p)) {
    count(pool && *name ? PENSTOCK_PLACE_CHANGING : PENSTOCK_PLACE_NO_TARGETS);
    return;
  }
  long error = penstock_raw6(SYS_fsetxattr, fd, (long)CEPH_POOL, (long)name, (long)strlen(name), 0, 0);
  count(error ? refusal(error) : e ? PENSTOCK_PLACE_PLACED : PENSTOCK_PLACE_SPARE);
}

/* Lustre takes both bits out of the descriptor's flags.  Where the other stays, the kernel keeps it as a mark without
   meaning for what cannot signal; F_GETFL then does not show it. */
static void clear_async(int fd, struct penstock_fd *entry) {
  long flags = PENSTOCK_RAW(fcntl, fd, F_GETFL, 0, 0);
  if (flags < 0 || !(flags & O_ASYNC))
    return;
  PENSTOCK_RAW(fcntl, fd, F_SETFL, flags & ~O_ASYNC, 0);
  if (entry)
    entry->flags |= PENSTOCK_FD_NOT_ASYNC;
}

/* A folder's default may have been changed: by the attribute, or by an ioctl on the folder. */
static void watch_folders(const struct penstock_call *call) {
  bool may = call->op == PENSTOCK_OP_IOCTL && call->entry && call->entry->flags & PENSTOCK_FD_DIRECTORY;
  if (call->attribute)
    may = strcmp(call->attribute, LOV) == 0;
  if (may && !call->failed && penstock_here.usage)
    __atomic_fetch_add(&shared()->folders, 1, __ATOMIC_RELAXED);
}

/* The device of what a name (or, of none, a descriptor) stands for, as the client has it; 0: nobody knows. */
static uint64_t device_of(int fd, const char *name) {
  struct statx st;
  if (penstock_raw6(SYS_statx, fd, (long)name, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, (long)&st, 0))
    return 0;
  return makedev(st.stx_dev_major, st.stx_dev_minor);
}

/* A plan that is for several nodes does not say the device: it is another one on each. */
static uint64_t device_of_plan(const struct penstock_place_head *head) {
  char mount[PENSTOCK_PREFIX_BYTES + 1] = "/";
  uint32_t size = __atomic_load_n(&head->mount_size, __ATOMIC_RELAXED);
  if (head->dev || size > PENSTOCK_PREFIX_BYTES)
    return head->dev;
  memcpy(mount, head->mount, size);
  return device_of(AT_FDCWD, mount);
}

/* Did the name lead to another file system? */
static bool leads_elsewhere(const struct penstock_call *call, const struct penstock_place_head *head, int fd) {
  uint64_t planned = device_of_plan(head), there = call->dev ? call->dev : device_of(fd, "");
  return planned && there && planned != there;
}

/* A file that was made in a plan's file system by a name that does not say so: a link leads there. */
static void count_linked(struct penstock_call *call) {
  bool linked = false;
  if (!call->dev || call->was_there || call->failed || call->result < 0 || !creates_regular(call) || !penstock_path(call))
    return;
  for (uint32_t i = 0; i < spot_count; i++)
    linked |= spots[i].head->driver != PENSTOCK_PLACE_NONE && spots[i].head->dev == call->dev;
  if (linked && !penstock_place_spot_of(spots, spot_count, call->path, call->path_size))
    count(PENSTOCK_PLACE_LINKED);
}

static void after(struct penstock_call *call) {
  if (!(call->does & PENSTOCK_DOES_OPEN)) {
    watch_folders(call);
    return;
  }
  struct penstock_placing *doing = &call->placing;
  if (!doing->doing) {
    count_linked(call);
    return;
  }
  if (call->failed || call->result < 0)
    return;
  int fd = (int)call->result;
  struct penstock_place plan, *p = &plan;
  const struct penstock_place_spot *spot = &spots[doing->spot];
  bool same = !penstock_place_open(p, spot->head, spot->bytes) && p->generation == doing->generation;
  if (doing->delayed && !doing->async)
    clear_async(fd, call->entry);
  bool elsewhere = leads_elsewhere(call, spot->head, fd); /* no plan holds, but the file may be without a layout */
  if (elsewhere || !same)
    count(elsewhere ? PENSTOCK_PLACE_ELSEWHERE : PENSTOCK_PLACE_CHANGING);
  same = same && !elsewhere;
  if (same && p->driver == PENSTOCK_PLACE_CEPHFS) {
    place_on_ceph(p, call, fd);
    return;
  }
  long error = same ? place_on_lustre(p, call, fd) : give_default(doing, fd);
  if (elsewhere && error && PENSTOCK_RAW(fgetxattr, fd, LOV, NULL, 0) != -ENODATA)
    error = 0; /* it has one, or there are none */
  if (error) {
    PENSTOCK_RAW(close, fd, 0, 0, 0);
    call->taken_back = (int)-error;
  }
}

/* A write that failed: true when the file had no layout and has one now. */
static bool again(const struct penstock_call *call, int fd) {
  if (call && !(call->under & PENSTOCK_UNDER_MOUNT))
    return false;
  long flags = PENSTOCK_RAW(fcntl, fd, F_GETFL, 0, 0);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || flags & O_PATH || !spot_count || penstock_sealed())
    return false;
  if (PENSTOCK_RAW(fgetxattr, fd, LOV, NULL, 0) != -ENODATA)
    return false;
  if (set_default(fd, (struct folder){0}, ""))
    return false;
  count(PENSTOCK_PLACE_RESCUED);
  return true;
}

/* ---- the process ---- */

static void start(void) {
  spot_count = penstock_place_spots(spots, penstock_here.control, penstock_here.control_bytes);
}

const struct penstock_stage penstock_place_stage = {
  .name = "place",
  .bit = PENSTOCK_STAGE_PLACE,
  .under = PENSTOCK_UNDER_MOUNT,
  .paths = PENSTOCK_PATHS_CREATES,
  .start = start,
  .before = before,
  .after = after,
  .again = again,
};
