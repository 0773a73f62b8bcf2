// SPDX-License-Identifier: Apache-2.0
/* The stage `record`: counts what each thread does, and what is done to each file, on the board.

   Invariants:
   1. Bytes are results, never requests; a call that failed counts as an error and moves no bytes.
   2. One thread writes a slot, with plain stores.  Another thread on the same file has a slot of its own, found by the
      chain `next`; from PENSTOCK_THREADS_A_FILE on they share the last one and add atomically.
   3. The clock is read for a thread's first TIMED_FIRST calls of an operation, for one in about record_sample_every
      after that (at random distances, so that no rhythm of the program is missed or met), and for large requests,
      beside which it costs nothing.  Times of first and last use come from a coarser clock, at each CLOCK_EVERY-th call.
      A thread's metadata calls are also timed, DUE of them, when none was for a second: what a slow server does to it is
      known at once.  Those have sums of their own, for they come oftener the slower calls are.
   4. What does not fit is summed: a file without a slot under its directory, a directory without one under UNNAMED.
      Metadata calls on a path that was never opened are summed under its directory too: that is no loss.
   5. The child of a fork starts with nothing: its chunks, its counters and its index are its own, and a descriptor that
      it inherited is bound anew, by the name that its parent gave it. */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "interpose/raw.h"
#include "stages/process.h"
#include "stages/record.h"
#include "stages/slots.h"

enum {
  TIMED_FIRST = 16,
  THREADS_MAX = 64,
  LUCK_FIRST = 16,
  CLOCK_EVERY = 64, /* a power of two */
  DUE = 4,          /* more than one: the call after a slow one is not like the others */
  DUE_AFTER = 954,  /* 2^20 ns: a second */
  NAME_ROOM = PENSTOCK_TEXT_MAX,
};

_Static_assert((int)PENSTOCK_OPS <= (int)PENSTOCK_OPS_MAX, "calls.def names more operations than a slot holds");

__thread struct penstock_recorder penstock_recorder __attribute__((tls_model("initial-exec")));
#define me penstock_recorder

/* This process. */
static struct {
  uint32_t slot;      /* of struct penstock_process; 0: no room on the board */
  uint32_t beginning; /* somebody is looking for room */
  uint32_t threads, files;
  uint32_t files_max, sample_every;
  uint32_t shared_ops, unnamed;
} here;
static struct penstock_ops nowhere; /* for threads for whose counters there was no room */

static struct penstock_process *process(void) { return penstock_slot_at(here.slot); }
static struct penstock_file *file_at(uint32_t line) { return penstock_slot_at(line); }

static uint64_t coarse_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the process and its threads ---- */

static bool begin(void) {
  if (__atomic_exchange_n(&here.beginning, 1, __ATOMIC_ACQUIRE))
    return false;
  uint32_t every = penstock_here.control->record_sample_every;
  here.sample_every = every < 1 ? 1 : every > 30000 ? 30000 : every;
  here.files_max = penstock_here.control->record_files_max;
  here.threads = here.files = here.shared_ops = here.unnamed = 0;
  uint32_t line = penstock_slots_begin();
  if (line) {
    penstock_process_fill(penstock_slot_at(line));
    ((struct penstock_process *)penstock_slot_at(line))->files_max = here.files_max;
    penstock_slot_publish(line);
    __atomic_store_n(&here.slot, line, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&here.beginning, 0, __ATOMIC_RELEASE);
  return line;
}

/* The first `first` of *line wins; who comes too late uses that one. */
static uint32_t settle(uint32_t *place, uint32_t line) {
  uint32_t none = 0;
  return __atomic_compare_exchange_n(place, &none, line, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ? line : none;
}

static struct penstock_ops *take_ops(uint32_t thread) {
  uint32_t line = penstock_slots_take(PENSTOCK_SLOT_OPS, thread ? 0 : PENSTOCK_SLOT_SHARED);
  if (!line)
    return NULL;
  struct penstock_ops *ops = penstock_slot_at(line);
  ops->thread = thread;
  penstock_slot_publish(line);
  return ops;
}

static struct penstock_ops *shared_ops(void) {
  uint32_t line = __atomic_load_n(&here.shared_ops, __ATOMIC_ACQUIRE);
  if (line)
    return penstock_slot_at(line);
  struct penstock_ops *ops = take_ops(0);
  if (!ops)
    return &nowhere;
  line = settle(&here.shared_ops, (uint32_t)(((uint8_t *)ops - penstock_here.usage) / PENSTOCK_LINE));
  return penstock_slot_at(line);
}

/* A thread's first call in this process; false while there is no room for the process. */
static __attribute__((noinline)) bool begin_thread(void) {
  if (!penstock_here.control || !penstock_here.usage)
    return false;
  if (!__atomic_load_n(&here.slot, __ATOMIC_ACQUIRE) && !begin())
    return false;
  memset(&me, 0, sizeof me);
  me.thread = __atomic_add_fetch(&here.threads, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&process()->threads, me.thread, __ATOMIC_RELAXED);
  me.random = me.thread * 2654435761u | 1;
  me.countdown = (uint16_t)here.sample_every;
  me.ops = me.thread <= THREADS_MAX ? take_ops(me.thread) : NULL;
  if (!me.ops) {
    me.ops = shared_ops();
    me.shared = true;
    penstock_lost(PENSTOCK_LOST_THREADS);
  }
  me.epoch = penstock_here.epoch + 1u;
  me.quick = me.shared ? 0 : (uint16_t)(1 + me.epoch % 60000);
  return true;
}

static inline bool ready(void) {
  return __builtin_expect(me.epoch == penstock_here.epoch + 1u, 1) || begin_thread();
}

/* Between half and one and a half times the setting. */
static uint16_t distance(void) {
  me.random ^= me.random << 13;
  me.random ^= me.random >> 17;
  me.random ^= me.random << 5;
  return (uint16_t)(here.sample_every / 2 + 1 + me.random % here.sample_every);
}

/* ---- adding up: `shared` is known when these are compiled ---- */

#define INLINE static inline __attribute__((always_inline))

INLINE void add(uint64_t *sum, uint64_t n, bool shared) {
  if (shared)
    __atomic_fetch_add(sum, n, __ATOMIC_RELAXED);
  else
    *sum += n;
}

/* One more, but none past the end: adding one to the last carries, and the carry is taken off again. */
INLINE void count_own(uint32_t *sum) {
#ifdef __x86_64__
  __asm__("addl $1, %0\n\tsbbl $0, %0" : "+m"(*sum) : : "cc");
#else
  *sum += *sum != UINT32_MAX;
#endif
}

/* Stops at the end. */
INLINE void count(uint32_t *sum, bool shared) {
  if (!shared)
    count_own(sum);
  else if (__atomic_load_n(sum, __ATOMIC_RELAXED) < UINT32_MAX - 65536)
    __atomic_fetch_add(sum, 1, __ATOMIC_RELAXED);
}

INLINE uint64_t get(const uint64_t *from, bool shared) {
  return shared ? __atomic_load_n(from, __ATOMIC_RELAXED) : *from;
}

INLINE void set(uint64_t *to, uint64_t value, bool shared) {
  if (shared)
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
  else
    *to = value;
}

INLINE void raise_to(uint64_t *highest, uint64_t value, bool shared) {
  uint64_t now = get(highest, shared);
  if (!shared) {
    if (value > now)
      *highest = value;
    return;
  }
  for (int tries = 0; value > now && tries < 8; tries++)
    if (__atomic_compare_exchange_n(highest, &now, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return;
}

/* Locks wait for each other, reads and writes for what they move: neither tells of a metadata server. */
static bool is_metadata(const struct penstock_call *c) {
  return c->class != PENSTOCK_CLASS_DATA && c->class != PENSTOCK_CLASS_LOCK;
}

static __attribute__((noinline)) void count_op_time(const struct penstock_call *c, struct penstock_op_count *op, bool shared) {
  uint64_t time_ns = c->end_ns - c->start_ns;
  if (c->fresh) {
    add(&me.ops->fresh_ns, time_ns, shared);
    add(&me.ops->fresh, 1, shared);
  } else {
    add(&op->time_ns, time_ns, shared);
    count(&op->sampled, shared);
  }
  if (is_metadata(c)) {
    me.timed_at = (uint32_t)(c->end_ns >> 20);
    me.due -= me.due > 0;
  }
}

INLINE void count_op(const struct penstock_call *c, bool shared) {
  struct penstock_op_count *op = &me.ops->op[c->op];
  add(&op->calls, 1, shared);
  if (c->failed)
    count(&op->errors, shared);
  if (__builtin_expect(c->timed, 0))
    count_op_time(c, op, shared);
}

/* Class of a size: record.SIZE_BOUNDS.  No two bounds lie between the same powers of two. */
INLINE uint32_t size_class(uint64_t size) {
  static const uint8_t base[64] = {
    [0 ... 5] = 0, [6] = 0, [7 ... 9] = 1, [10] = 1, [11 ... 12] = 2, [13] = 2, [14 ... 15] = 3, [16] = 3, [17 ... 19] = 4,
    [20] = 4, [21] = 5, [22] = 5, [23] = 6, [24 ... 25] = 7, [26] = 7, [27 ... 29] = 8, [30] = 8, [31 ... 63] = 9,
  };
  static const uint64_t bound[10] = {
    100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, UINT64_MAX,
  };
  uint32_t class = base[63 - __builtin_clzll(size | 1)];
  return class + (size > bound[class]);
}

static uint32_t size_of(uint64_t asked) { return asked < UINT32_MAX ? (uint32_t)asked : UINT32_MAX; }

static __attribute__((noinline)) void count_size(struct penstock_file *f, uint32_t to, uint64_t asked) {
  struct penstock_common *common = f->common;
  uint32_t size = size_of(asked), class = size_class(asked), rarest = 0;
  count(&f->way[to].sizes[class], false);
  for (uint32_t i = 0; i < 4 && common[0].count; i++) {
    if (common[i].size == size && common[i].count) {
      count(&common[i].count, false);
      return;
    }
    if (common[i].count < common[rarest].count)
      rarest = i;
  }
  common[rarest].over = common[rarest].count;
  common[rarest].size = size;
  count(&common[rarest].count, false);
  if (rarest == 0)
    f->class = (uint16_t)class;
}

/* Threads cannot agree on who has to go without waiting for each other: the first four sizes stay. */
static void count_size_shared(struct penstock_file *f, uint32_t to, uint64_t asked) {
  uint32_t size = size_of(asked);
  count(&f->way[to].sizes[size_class(asked)], true);
  for (uint32_t i = 0; size && i < 4; i++) {
    uint32_t none = 0;
    if (__atomic_compare_exchange_n(&f->common[i].size, &none, size, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
        none == size) {
      count(&f->common[i].count, true);
      return;
    }
  }
}

/* The parts of a move that are seldom needed, or only when it differs from most. */
INLINE bool is_usual(const struct penstock_file *f, uint32_t to, uint64_t asked, uint64_t calls) {
  return f->common[0].size == asked && f->last_way == to + 1 && calls % CLOCK_EVERY != CLOCK_EVERY - 1;
}

INLINE void count_usual_size(struct penstock_file *f, uint32_t to) {
  count(&f->common[0].count, false);
  count(&f->way[to].sizes[f->class], false);
}

static __attribute__((noinline)) void count_unusual(struct penstock_file *f, uint32_t to, uint64_t asked, uint64_t calls) {
  if (f->common[0].size == asked)
    count_usual_size(f, to);
  else
    count_size(f, to, asked);
  if (f->last_way != to + 1) {
    if (f->last_way)
      count(&f->switches, false);
    f->last_way = to + 1;
  }
  if (calls % CLOCK_EVERY == CLOCK_EVERY - 1)
    f->last_ns = coarse_ns();
}

static __attribute__((noinline)) void count_unusual_shared(struct penstock_file *f, uint32_t to, uint64_t asked,
                                                           uint64_t calls) {
  count_size_shared(f, to, asked);
  uint32_t last = __atomic_exchange_n(&f->last_way, to + 1, __ATOMIC_RELAXED);
  if (last && last != to + 1)
    count(&f->switches, true);
  if (calls % CLOCK_EVERY == CLOCK_EVERY - 1)
    set(&f->last_ns, coarse_ns(), true);
}

INLINE void count_move(struct penstock_file *f, uint32_t to, uint64_t asked, uint64_t bytes, uint64_t offset, bool shared) {
  struct penstock_way *way = &f->way[to];
  uint64_t calls = get(&way->calls, shared), end = get(&way->end, shared);
  if (offset >= end) {
    add(&way->sequential, 1, shared);
    if (offset == end)
      add(&way->consecutive, 1, shared);
  }
  set(&way->end, offset + bytes, shared);
  raise_to(&f->highest, offset + bytes, shared);
  add(&way->calls, 1, shared);
  add(&way->bytes, bytes, shared);
  if (shared)
    count_unusual_shared(f, to, asked, calls);
  else if (__builtin_expect(is_usual(f, to, asked, calls), 1))
    count_usual_size(f, to);
  else
    count_unusual(f, to, asked, calls);
}

INLINE void count_time(struct penstock_file *f, uint32_t to, const struct penstock_call *c, bool shared) {
  add(&f->way[to].time_ns, c->end_ns - c->start_ns, shared);
  count(&f->way[to].sampled, shared);
  set(&f->last_ns, c->end_ns, shared);
}

INLINE void count_meta(struct penstock_file *f, const struct penstock_call *c, bool shared) {
  if (c->does & PENSTOCK_DOES_OPEN) {
    count(&f->opens, shared);
    if (f->slot.kind != PENSTOCK_SLOT_FILE)
      count(&f->files, shared);
  } else if (c->does & PENSTOCK_DOES_MAP)
    count(&f->maps, shared);
  else
    count(&f->metas, shared);
  if (c->timed && !c->fresh) {
    add(&f->meta_ns, c->end_ns - c->start_ns, shared);
    count(&f->meta_sampled, shared);
  }
  uint64_t now_ns = c->timed ? c->end_ns : coarse_ns();
  set(&f->last_ns, now_ns, shared);
  /* Signed: the coarse clock may be behind the one that timed. */
  if (__builtin_expect((int32_t)((uint32_t)(now_ns >> 20) - me.timed_at) > DUE_AFTER, 0))
    me.due = DUE;
}

/* ---- which slot ---- */

enum { DIRECTORY_SALT = 0x5bd1e995 };

static void no_move_yet(struct penstock_file *f) {
  f->way[PENSTOCK_READING].end = f->way[PENSTOCK_WRITING].end = UINT64_MAX;
  f->first_ns = f->last_ns = coarse_ns();
}

/* A new slot for a name, in the index if `hash` is not there yet; the number to use, or 0. */
static uint32_t make(enum penstock_slot_kind kind, uint64_t hash, const char *name, size_t size, uint64_t *place) {
  uint32_t line = penstock_slots_take(kind, 0);
  if (!line)
    return 0;
  struct penstock_file *f = file_at(line);
  f->thread = me.thread;
  f->hash = hash;
  no_move_yet(f);
  f->name_size = (uint16_t)(size < NAME_ROOM ? size : NAME_ROOM);
  f->name_next = penstock_slot_text(f->name, sizeof f->name, name, f->name_size);
  if (size > NAME_ROOM)
    penstock_lost(PENSTOCK_LOST_NAMES);
  uint32_t used = penstock_index_add(hash, line, place);
  if (used == line)
    penstock_slot_publish(line);
  return used;
}

static uint32_t unnamed(void) {
  uint32_t line = __atomic_load_n(&here.unnamed, __ATOMIC_ACQUIRE);
  if (line || !(line = penstock_slots_take(PENSTOCK_SLOT_UNNAMED, PENSTOCK_SLOT_SHARED)))
    return line;
  no_move_yet(file_at(line));
  uint32_t used = settle(&here.unnamed, line);
  if (used == line)
    penstock_slot_publish(line);
  return used;
}

/* May another slot be used for a file?  A few more than files_max are for directories. */
static bool may_take(uint32_t max) {
  if (__atomic_load_n(&here.files, __ATOMIC_RELAXED) >= max)
    return false;
  __atomic_fetch_add(&here.files, 1, __ATOMIC_RELAXED);
  return true;
}

static uint32_t slot_of_directory(const char *path, size_t size) {
  uint64_t hash = penstock_hash(path, size) ^ DIRECTORY_SALT, *place;
  uint32_t line = penstock_slots_find(hash, &place);
  if (!line && may_take(here.files_max + here.files_max / 4 + 16))
    line = make(PENSTOCK_SLOT_DIRECTORY, hash, path, size, place);
  return line ? line : unnamed();
}

static size_t directory_size(const char *path, size_t size) {
  const char *slash = size ? memrchr(path, '/', size) : NULL;
  return slash ? (size_t)(slash - path) : 0;
}

static uint32_t slot_of_open(const char *path, size_t size) {
  uint64_t hash = penstock_hash(path, size), *place;
  uint32_t line = penstock_slots_find(hash, &place);
  if (line || (may_take(here.files_max) && (line = make(PENSTOCK_SLOT_FILE, hash, path, size, place))))
    return line;
  penstock_lost(PENSTOCK_LOST_FILES);
  line = slot_of_directory(path, directory_size(path, size));
  if (line && line == __atomic_load_n(&here.unnamed, __ATOMIC_RELAXED))
    penstock_lost(PENSTOCK_LOST_DIRECTORIES);
  return line;
}

/* This thread's slot of a file whose first slot is another's. */
static __attribute__((noinline)) struct penstock_file *other(uint32_t line) {
  if (me.from == line)
    return file_at(me.to);
  uint32_t at = line;
  for (int i = 1;; i++) {
    struct penstock_file *f = file_at(at);
    if (f->thread == me.thread || f->thread == 0)
      break;
    uint32_t next = __atomic_load_n(&f->next, __ATOMIC_ACQUIRE);
    if (!next) {
      bool last = i >= PENSTOCK_THREADS_A_FILE - 1;
      uint32_t fresh = penstock_slots_take((enum penstock_slot_kind)f->slot.kind, last ? PENSTOCK_SLOT_SHARED : 0);
      if (!fresh)
        return unnamed() ? file_at(unnamed()) : NULL;
      struct penstock_file *mine = file_at(fresh);
      mine->thread = last ? 0 : me.thread;
      no_move_yet(mine);
      mine->hash = f->hash;
      next = settle(&f->next, fresh);
      if (next == fresh)
        penstock_slot_publish(fresh);
    }
    at = next;
  }
  me.from = line;
  me.to = at;
  return file_at(at);
}

INLINE struct penstock_file *ours(uint32_t line) {
  struct penstock_file *f = file_at(line);
  return __builtin_expect(f->thread == me.thread, 1) ? f : other(line);
}

/* The first slot of what a descriptor is on, which nobody has told us in this process: by the parent's name for it, or
   the kernel's. */
static __attribute__((noinline)) uint32_t bind(int fd, struct penstock_fd *entry) {
  char name[NAME_ROOM];
  size_t size = entry->record ? penstock_slot_name(entry->record, name, sizeof name) : 0;
  if (size == 0) {
    int found = penstock_fd_path(fd, name, sizeof name);
    size = found > 0 ? (size_t)found : 0;
    long pos = found > 0 ? PENSTOCK_RAW(lseek, fd, 0, SEEK_CUR, 0) : 0;
    __atomic_store_n(&entry->pos, pos > 0 ? (uint64_t)pos : 0, __ATOMIC_RELAXED);
  }
  bool directory = entry->flags & PENSTOCK_FD_DIRECTORY;
  uint32_t line = size == 0 ? 0 : directory ? slot_of_directory(name, size) : slot_of_open(name, size);
  if (size == 0)
    penstock_lost(PENSTOCK_LOST_UNKNOWN);
  entry->record = line;
  entry->epoch = penstock_here.epoch;
  return line;
}

INLINE uint32_t slot_of(int fd, struct penstock_fd *entry) {
  return __builtin_expect(entry->record && entry->epoch == penstock_here.epoch, 1) ? entry->record : bind(fd, entry);
}

/* ---- calls ---- */

static void meta(uint32_t line, const struct penstock_call *c) {
  struct penstock_file *f = line ? ours(line) : NULL;
  if (!f)
    return;
  if (f->thread)
    count_meta(f, c, false);
  else
    count_meta(f, c, true);
}

static void anonymous(uint32_t to, uint64_t bytes) {
  struct penstock_process *p = process();
  __atomic_fetch_add(to ? &p->anonymous_written_bytes : &p->anonymous_read_bytes, bytes, __ATOMIC_RELAXED);
}

/* Where a call begins that is at `offset`, or (negative) where its descriptor stands; which moves on. */
INLINE uint64_t place_of(struct penstock_fd *entry, uint64_t bytes, int64_t offset) {
  if (offset >= 0)
    return (uint64_t)offset;
  uint64_t at = __atomic_load_n(&entry->pos, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->pos, at + bytes, __ATOMIC_RELAXED);
  return at;
}

static void move(struct penstock_file *f, struct penstock_fd *entry, uint32_t to, uint64_t asked, uint64_t bytes,
                 int64_t offset) {
  uint64_t at = place_of(entry, bytes, offset);
  if (f->thread)
    count_move(f, to, asked, bytes, at, false);
  else
    count_move(f, to, asked, bytes, at, true);
}

/* From now on reads and writes of a descriptor may be quick, if this thread's first ones of the kind were timed. */
static void may_be_quick(struct penstock_fd *entry, uint8_t op) {
  if (me.quick && me.ops->op[op].calls >= TIMED_FIRST)
    __atomic_store_n(&entry->quick, me.quick + 1, __ATOMIC_RELAXED);
}

static void moved(const struct penstock_call *c, uint32_t to, int fd, struct penstock_fd *entry, int64_t offset) {
  uint64_t bytes = (uint64_t)c->result, asked = c->asked ? c->asked : bytes;
  uint32_t line = entry ? slot_of(fd, entry) : 0;
  struct penstock_file *f = line ? ours(line) : NULL;
  if (!f) {
    anonymous(to, bytes);
    return;
  }
  move(f, entry, to, asked, bytes, offset);
  if (c->timed && f->thread)
    count_time(f, to, c, false);
  else if (c->timed)
    count_time(f, to, c, true);
  may_be_quick(entry, c->op);
}

static __attribute__((noinline)) int64_t quick_rare(struct penstock_fd *entry, uint32_t to, uint64_t asked, int64_t offset,
                                                    int64_t result) {
  struct penstock_file *f = result < 0 ? NULL : ours(entry->record);
  if (result < 0)
    count(&me.ops->op[to == PENSTOCK_WRITING ? PENSTOCK_OP_WRITE : PENSTOCK_OP_READ].errors, false);
  else if (f)
    move(f, entry, to, asked, (uint64_t)result, offset);
  return result;
}

INLINE int64_t quick(struct penstock_fd *entry, uint32_t to, uint64_t asked, int64_t offset, int64_t result) {
  struct penstock_file *f = file_at(entry->record);
  me.ops->op[to == PENSTOCK_WRITING ? PENSTOCK_OP_WRITE : PENSTOCK_OP_READ].calls++;
  if (__builtin_expect(result < 0 || f->thread != me.thread, 0))
    return quick_rare(entry, to, asked, offset, result);
  uint64_t at = place_of(entry, (uint64_t)result, offset);
  count_move(f, to, asked, (uint64_t)result, at, false);
  return result;
}

int64_t penstock_record_read(struct penstock_fd *entry, uint64_t asked, int64_t offset, int64_t result) {
  return quick(entry, PENSTOCK_READING, asked, offset, result);
}

int64_t penstock_record_wrote(struct penstock_fd *entry, uint64_t asked, int64_t offset, int64_t result) {
  return quick(entry, PENSTOCK_WRITING, asked, offset, result);
}

/* From one descriptor to another, of which either may not be ours to record. */
static void passed_on(const struct penstock_call *c) {
  if (c->entry && c->entry->under)
    moved(c, PENSTOCK_READING, c->fd, c->entry, c->positioned ? c->offset : -1);
  if (c->entry2 && c->entry2->under)
    moved(c, PENSTOCK_WRITING, c->fd2, c->entry2, c->positioned2 ? c->offset2 : -1);
}

static void opened(struct penstock_call *c) {
  bool directory = c->entry && c->entry->flags & PENSTOCK_FD_DIRECTORY;
  uint32_t line = 0;
  if (penstock_path(c))
    line = directory ? slot_of_directory(c->path, c->path_size) : slot_of_open(c->path, c->path_size);
  if (c->entry) {
    c->entry->record = line;
    c->entry->epoch = penstock_here.epoch;
    __atomic_store_n(&c->entry->pos, c->entry->flags & PENSTOCK_FD_APPEND ? c->size : 0, __ATOMIC_RELAXED);
    if (line)
      may_be_quick(c->entry, (c->open_flags & O_ACCMODE) == O_RDONLY ? PENSTOCK_OP_READ : PENSTOCK_OP_WRITE);
  }
  meta(line, c);
}

/* A metadata call: on the slot of the file if it was opened, else on its directory's. */
static void named(struct penstock_call *c) {
  uint32_t line = 0;
  if (c->entry && c->entry->record && c->entry->epoch == penstock_here.epoch)
    line = c->entry->record;
  else if (c->entry && c->fd >= 0 && !(c->does & PENSTOCK_DOES_CLOSE))
    line = bind(c->fd, c->entry);
  else if (!(c->does & PENSTOCK_DOES_CLOSE) && penstock_path(c)) {
    uint64_t *place;
    line = penstock_slots_find(penstock_hash(c->path, c->path_size), &place);
    if (!line)
      line = slot_of_directory(c->path, directory_size(c->path, c->path_size));
  }
  meta(line, c);
}

/* A call that is named by a path may turn out to be none of ours, and the clock would make it dearer for nothing: so the
   first ones of an operation are timed only while that was worth it lately. */
static uint8_t luck[PENSTOCK_OPS_MAX] = {[0 ... PENSTOCK_OPS_MAX - 1] = LUCK_FIRST};

static bool try_luck(const struct penstock_call *c) {
  uint8_t left = __atomic_load_n(&luck[c->op], __ATOMIC_RELAXED);
  if (left)
    __atomic_store_n(&luck[c->op], left - 1, __ATOMIC_RELAXED);
  return left;
}

static void had_luck(const struct penstock_call *c) {
  uint8_t left = __atomic_load_n(&luck[c->op], __ATOMIC_RELAXED);
  if (left < LUCK_FIRST)
    __atomic_store_n(&luck[c->op], left + 2, __ATOMIC_RELAXED);
}

static enum penstock_answer before(struct penstock_call *c) {
  bool known = c->under != 0;
  if (me.epoch != penstock_here.epoch + 1u && !(known && begin_thread()))
    return PENSTOCK_GO;
  if (--me.countdown == 0) {
    me.countdown = distance();
    c->timed = true;
  } else if (c->asked >= PENSTOCK_RECORD_LARGE_BYTES)
    c->timed = true;
  else if (me.ops->op[c->op].calls < TIMED_FIRST)
    c->timed = known || try_luck(c);
  else if (__builtin_expect(me.due && is_metadata(c), 0))
    c->fresh = c->timed = known || try_luck(c);
  return PENSTOCK_GO;
}

static void after(struct penstock_call *c) {
  if (!ready())
    return;
  if (__builtin_expect(!me.shared, 1))
    count_op(c, false);
  else
    count_op(c, true);
  if (c->does == PENSTOCK_DOES_READ || c->does == PENSTOCK_DOES_WRITE) {
    if (!c->failed && c->result >= 0)
      moved(c, c->does == PENSTOCK_DOES_WRITE, c->fd, c->entry, c->positioned ? c->offset : -1);
  } else if (c->does & (PENSTOCK_DOES_READ | PENSTOCK_DOES_WRITE)) {
    if (!c->failed && c->result >= 0)
      passed_on(c);
  } else if (c->does & PENSTOCK_DOES_SEEK) {
    if (!c->failed && c->entry)
      __atomic_store_n(&c->entry->pos, (uint64_t)c->result, __ATOMIC_RELAXED);
  } else if (c->does & PENSTOCK_DOES_OPEN && !c->failed)
    opened(c);
  else
    named(c);
  if (c->fd < 0 || c->does & PENSTOCK_DOES_OPEN)
    had_luck(c);
}

static void start(void) {
  if (penstock_here.usage)
    __atomic_fetch_add(&((struct penstock_usage *)penstock_here.usage)->attached, 1, __ATOMIC_RELAXED);
  begin();
}

static void child(void) {
  me.epoch = me.quick = 0;
  here.slot = here.beginning = 0;
  start();
}

/* libpenstock-mpi.so tells that a file was opened by so many processes together: after the opens that this took. */
__attribute__((visibility("default"))) void penstock_mpi_opened(const char *path, size_t size, uint32_t comm_size);
void penstock_mpi_opened(const char *path, size_t size, uint32_t comm_size) {
  if (!penstock_here.usage || !__atomic_load_n(&here.slot, __ATOMIC_ACQUIRE) || !penstock_process_is(penstock_here.pid))
    return;
  struct penstock_process *p = process();
  if (comm_size > 1)
    __atomic_fetch_add(&p->mpi_files, 1, __ATOMIC_RELAXED);
  if (comm_size > p->mpi_largest)
    p->mpi_largest = comm_size;
  uint64_t *place;
  uint32_t line = penstock_slots_find(penstock_hash(path, size), &place);
  if (line && comm_size > file_at(line)->comm_size)
    file_at(line)->comm_size = comm_size;
}

/* exit() and the end of main; what ends otherwise is seen by the agent. */
__attribute__((destructor)) static void ended(void) {
  if (here.slot && penstock_process_is(penstock_here.pid))
    process()->end_ns = penstock_now_ns();
}

const struct penstock_stage penstock_record_stage = {
  .name = "record",
  .bit = PENSTOCK_STAGE_RECORD,
  .under = PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT,
  .start = start,
  .before = before,
  .after = after,
  .child = child,
};
