// SPDX-License-Identifier: Apache-2.0
/* The process: when it begins, what board it is attached to, when it is a new one after fork.

   Whatever is wrong with a board (none, a foreign, damaged or newer one, one made under another clock), the program runs
   without it, and PENSTOCK_LOG gets one line. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "board/check.h"
#include "board/ring.h"
#include "interpose/process.h"
#include "interpose/raw.h"

struct penstock_here penstock_here;
struct penstock_state penstock_process;
uint32_t penstock_stages_built;
__thread struct penstock_thread penstock_thread __attribute__((tls_model("initial-exec")));

extern char **environ;
static atomic_bool attached; /* or tried to */

/* Clocks of the two sides may drift and be set, but not by minutes; another time namespace or boot differs by more. */
static const int64_t MAX_CLOCK_DIFFERENCE_NS = 60 * 1000000000ll;

/* ---- the log ---- */

static size_t append(char *to, size_t at, size_t room, const char *text) {
  while (*text && at < room)
    to[at++] = *text++;
  return at;
}

void penstock_log(const char *text, const char *more) {
  const char *file = getenv("PENSTOCK_LOG");
  char line[1024], digits[12];
  size_t at = 0, n = sizeof digits;
  if (!file || !*file)
    return;
  digits[--n] = 0;
  for (unsigned pid = (unsigned)PENSTOCK_RAW(getpid, 0, 0, 0, 0); pid; pid /= 10)
    digits[--n] = (char)('0' + pid % 10);
  at = append(line, at, sizeof line - 1, "penstock: process ");
  at = append(line, at, sizeof line - 1, digits + n);
  at = append(line, at, sizeof line - 1, ": ");
  at = append(line, at, sizeof line - 1, text);
  at = append(line, at, sizeof line - 1, more);
  line[at++] = '\n';
  long fd = PENSTOCK_RAW(openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  if (fd < 0)
    return;
  PENSTOCK_RAW(write, fd, line, at, 0);
  PENSTOCK_RAW(close, fd, 0, 0, 0);
}

void penstock_lost(enum penstock_lost what) {
  if (penstock_here.usage)
    __atomic_fetch_add(&((struct penstock_usage *)penstock_here.usage)->lost[what], 1, __ATOMIC_RELAXED);
}

bool penstock_is_sealed(void) { return atomic_load_explicit(&penstock_process.sealed, memory_order_relaxed); }

/* ---- attaching ---- */

struct map {
  void *at;
  uint64_t bytes;
};

/* Maps a file of the board at `bytes` (0: as long as it is); at least `least` bytes must be there. */
static bool map_file(const char *folder, const char *name, int flags, uint64_t least, uint64_t bytes, struct map *map) {
  char path[4096];
  struct stat st;
  size_t at = append(path, 0, sizeof path - 1, folder);
  path[append(path, at, sizeof path - 1, name)] = 0;
  long fd = PENSTOCK_RAW(openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
  if (fd < 0)
    return false;
  bool good = PENSTOCK_RAW(fstat, fd, &st, 0, 0) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size >= least;
  if (good) {
    map->bytes = bytes ? bytes : (uint64_t)st.st_size;
    int rights = (flags & O_ACCMODE) == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
    long mapped = penstock_raw6(SYS_mmap, 0, (long)map->bytes, rights, MAP_SHARED, fd, 0);
    map->at = (void *)mapped;
    good = mapped > 0 || mapped < -4095;
  }
  PENSTOCK_RAW(close, fd, 0, 0, 0);
  return good;
}

static void unmap(struct map *map) {
  if (map->at)
    PENSTOCK_RAW(munmap, map->at, map->bytes, 0, 0);
}

static bool same_clock(const struct penstock_control *c) {
  struct timespec real, monotonic;
  clock_gettime(CLOCK_REALTIME, &real);
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  int64_t ours = (real.tv_sec - monotonic.tv_sec) * 1000000000ll + real.tv_nsec - monotonic.tv_nsec;
  uint64_t apart = ours > c->monotonic_offset_ns ? (uint64_t)ours - (uint64_t)c->monotonic_offset_ns
                                                 : (uint64_t)c->monotonic_offset_ns - (uint64_t)ours;
  return apart <= (uint64_t)MAX_CLOCK_DIFFERENCE_NS;
}

static int hex(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  return -1;
}

static void set_run(const struct penstock_control *c) {
  const char *run = getenv("PENSTOCK_RUN");
  memcpy(penstock_here.run, c->run, sizeof penstock_here.run);
  if (!run || strnlen(run, 33) != 32)
    return;
  for (int i = 0; i < 32; i++)
    if (hex(run[i]) < 0)
      return;
  for (int i = 0; i < 16; i++)
    penstock_here.run[i] = (uint8_t)(hex(run[2 * i]) << 4 | hex(run[2 * i + 1]));
}

/* The page that tells a new process: fork leaves it empty, vfork does not. */
static bool watch_for_forks(void) {
  long page = penstock_raw6(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page < 0 && page >= -4095)
    return false;
  penstock_process.alive = (void *)page;
  return PENSTOCK_RAW(madvise, page, 4096, 18 /* MADV_WIPEONFORK */, 0) == 0;
}

static const char *attach_to(const char *folder, struct map *control, struct map *usage) {
  if (!map_file(folder, "/control", O_RDONLY, sizeof(struct penstock_control), 0, control))
    return "there is no control file that can be read";
  const struct penstock_control *c = control->at;
  const char *wrong = penstock_control_wrong(c, control->bytes);
  if (wrong)
    return wrong;
  if (!same_clock(c))
    return "it was made under another clock (a time namespace, or before a reboot)";
  if (!map_file(folder, "/usage", O_RDWR, c->usage_bytes, c->usage_max_bytes, usage))
    return "its usage file is missing or too short";
  const struct penstock_usage *u = usage->at;
  if (penstock_usage_wrong(u, c->nonce))
    return "its two files do not belong together";
  if (!watch_for_forks())
    return "the kernel is older than 4.14";
  return NULL;
}

/* The ring, if the board has one; without it the stage `catalog` does nothing. */
static void attach_ring(const char *folder, const struct penstock_control *c) {
  struct map map = {0};
  uint64_t least = penstock_ring_bytes(0);
  if (!(c->stages & PENSTOCK_STAGE_CATALOG) || !map_file(folder, "/ring", O_RDWR, least, 0, &map))
    return;
  const struct penstock_ring *ring = map.at;
  uint32_t slots = ring->slots;
  if (penstock_ring_wrong(ring, slots, map.bytes) ||
      memcmp(ring->nonce, c->nonce, sizeof ring->nonce) != 0) {
    unmap(&map);
    penstock_log("tells the catalog nothing: ", "the board's ring makes no sense");
    return;
  }
  penstock_here.ring_slots = slots;
  penstock_here.ring = map.at;
}

static void start_stages(void) {
#define STAGE(name) \
  penstock_stages_built |= penstock_##name##_stage.bit; \
  if (penstock_##name##_stage.start) \
    penstock_##name##_stage.start();
#include "interpose/stages.def"
#undef STAGE
}

static void attach(void) {
  const char *folder = getenv("PENSTOCK_BOARD"), *disable = getenv("PENSTOCK_DISABLE");
  struct map control = {0}, usage = {0};
  if (!folder || !*folder || (disable && !strcmp(disable, "1")) || getauxval(AT_SECURE))
    return;
  const char *wrong = attach_to(folder, &control, &usage);
  if (wrong) {
    unmap(&control);
    unmap(&usage);
    penstock_log("runs without the board: ", wrong);
    return;
  }
  const struct penstock_control *c = control.at;
  penstock_rules_make(&penstock_process.rules, c->prefixes, c->prefix_count, c->otherwise);
  set_run(c);
  penstock_environment_keep(environ);
  penstock_here.usage = usage.at;
  penstock_here.control_bytes = control.bytes;
  penstock_here.usage_max_bytes = usage.bytes;
  penstock_here.chunk_count = c->chunk_count;
  attach_ring(folder, c);
  penstock_here.pid = (uint32_t)PENSTOCK_RAW(getpid, 0, 0, 0, 0);
  atomic_store(penstock_process.alive, 2);
  __atomic_store_n(&penstock_here.control, c, __ATOMIC_RELEASE);
  start_stages();
  atomic_store(penstock_process.alive, 1);
}

void penstock_begin(void) {
  int saved = errno;
  if (!atomic_load(&penstock_process.began)) {
    penstock_resolve();
    atomic_store_explicit(&penstock_process.began, true, memory_order_release);
  }
  /* Before libc is set up there is no environment; the constructor comes again. */
  if (environ && !atomic_exchange(&attached, true))
    attach();
  errno = saved;
}

__attribute__((constructor)) static void constructor(void) { penstock_begin(); }

bool penstock_begin_late(void) {
  penstock_begun();
  return __atomic_load_n(&penstock_here.control, __ATOMIC_ACQUIRE) != NULL;
}

/* ---- new processes ---- */

bool penstock_new_process(void) {
  uint32_t fresh = 0;
  if (!atomic_compare_exchange_strong(penstock_process.alive, &fresh, 2))
    return false;
  penstock_thread.vforks = 0;
  penstock_here.pid = (uint32_t)PENSTOCK_RAW(getpid, 0, 0, 0, 0);
  penstock_here.epoch++;
  penstock_cwd_child();
#define STAGE(name) \
  if (penstock_##name##_stage.child) \
    penstock_##name##_stage.child();
#include "interpose/stages.def"
#undef STAGE
  atomic_store(penstock_process.alive, 1);
  return true;
}

/* In a vfork child it is so for the parent as well: it can only be answered less. */
void penstock_is_elsewhere(void) {
  atomic_store(&penstock_process.elsewhere, true);
  penstock_cwd_changes();
}

bool penstock_elsewhere(void) { return atomic_load_explicit(&penstock_process.elsewhere, memory_order_relaxed); }

bool penstock_sealed(void) { return atomic_load_explicit(&penstock_process.sealed, memory_order_relaxed); }

bool penstock_on_signal_stack(void) {
  stack_t now;
  return PENSTOCK_RAW(sigaltstack, NULL, &now, 0, 0) == 0 && now.ss_flags & SS_ONSTACK;
}

/* Stacks grow down: a frame that lies no deeper than the one that set the mark can only be there because that one is
   gone (longjmp), or because this one lies on a signal handler's own stack. */
bool penstock_is_nested(uintptr_t frame) {
  if (penstock_thread.vforks)
    return true;
  if (frame < penstock_thread.inside || atomic_load(&penstock_process.sealed) || penstock_on_signal_stack())
    return true;
  penstock_thread.inside = 0;
  return false;
}

/* ---- vfork (vfork.S) ---- */

struct penstock_two {
  intptr_t first;
  uintptr_t second;
};

/* The real vfork, and whether penstock_vfork_end() is to be called after it: not in a vfork child, whose mark stands. */
struct penstock_two penstock_vfork_begin(uintptr_t came_from) {
  penstock_begun();
  bool mark = !penstock_thread.vforks;
  if (mark) {
    penstock_thread.vforks = 1;
    penstock_thread.came_from = came_from;
  }
  return (struct penstock_two){(intptr_t)penstock_real.vfork, mark};
}

/* In the child (0) the mark stands; in the parent it goes.  The result, and where to return to. */
struct penstock_two penstock_vfork_end(intptr_t result) {
  if (result)
    penstock_thread.vforks = 0;
  return (struct penstock_two){result, penstock_thread.came_from};
}
