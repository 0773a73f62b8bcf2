// SPDX-License-Identifier: Apache-2.0
/* Takes a call through the stages, and finds out which file it means. */
#include "interpose/wrap.h"
#include <limits.h>
#include <string.h>
#include <time.h>
#include "interpose/raw.h"
#include "stages/changes.h"

static const uint8_t class_of[PENSTOCK_OPS] = {PENSTOCK_OP_CLASSES};

uint64_t penstock_now_ns(void) {
  struct timespec t;
  bool no_tsc = atomic_load_explicit(&penstock_process.no_tsc, memory_order_relaxed);
  clock_gettime(PENSTOCK_UNLIKELY(no_tsc) ? CLOCK_MONOTONIC_COARSE : CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- what every wrapper begins with: not inline, for there are hundreds of them ---- */

void penstock_unseen(int fd) {
  uint32_t stages = penstock_here.control ? __atomic_load_n(&penstock_here.control->stages, __ATOMIC_RELAXED) : 0;
#define STAGE(name) \
  if (stages & penstock_##name##_stage.bit && penstock_##name##_stage.unseen) \
    penstock_##name##_stage.unseen(fd);
#include "interpose/stages.def"
#undef STAGE
}

/* Such a call passes; an open's descriptor is told of by its wrapper. */
static __attribute__((noinline)) uint32_t pass_unseen(uint8_t op) {
  if (penstock_changes(&(struct penstock_call){.op = op, .fd = -1}))
    penstock_unseen(-1);
  return 0;
}

/* The stages that want to see calls now; 0: pass on. */
static inline uint32_t watching(const void *frame, uint8_t op) {
  if (PENSTOCK_UNLIKELY(!penstock_here.control) && !penstock_begin_late())
    return 0;
  uint32_t stages = __atomic_load_n(&penstock_here.control->stages, __ATOMIC_RELAXED) & penstock_stages_built;
  if (PENSTOCK_UNLIKELY(!stages))
    return 0;
  if (PENSTOCK_UNLIKELY(atomic_load_explicit(penstock_process.alive, memory_order_acquire) != 1) &&
      !penstock_new_process())
    return pass_unseen(op);
  if (PENSTOCK_UNLIKELY(penstock_thread.inside | penstock_thread.vforks) && penstock_is_nested((uintptr_t)frame))
    return pass_unseen(op);
  return stages;
}

bool penstock_enter_fd(struct penstock_call *call, uint8_t op, uint8_t does, int fd) {
  uint32_t stages = watching(call, op);
  if (!stages)
    return false;
  struct penstock_fd *entry = (unsigned)fd < PENSTOCK_FDS ? &penstock_fds[fd] : NULL;
  if (PENSTOCK_UNLIKELY(!entry || !entry->known))
    entry = penstock_fd_look(fd);
  if (!entry || !entry->under)
    return false;
  *call = (struct penstock_call){
    .op = op, .does = does, .under = entry->under, .fd = fd, .fd2 = -1, .entry = entry, .stages = stages};
  return true;
}

bool penstock_enter_two(struct penstock_call *call, uint8_t op, int fd, int fd2) {
  if (penstock_ignored(fd) && penstock_ignored(fd2))
    return false;
  bool from = !penstock_ignored(fd) && penstock_enter_fd(call, op, PENSTOCK_DOES_READ, fd);
  struct penstock_call to;
  if (penstock_ignored(fd2) || !penstock_enter_fd(&to, op, PENSTOCK_DOES_WRITE, fd2))
    return from;
  if (!from) {
    *call = to;
    return true;
  }
  call->does |= PENSTOCK_DOES_WRITE;
  call->under |= to.under;
  call->fd2 = fd2;
  call->entry2 = to.entry;
  return true;
}

bool penstock_enter_paths(struct penstock_call *call, uint8_t op, uint8_t does, int dirfd, const char *path, int dirfd2,
                          const char *path2) {
  uint32_t stages = watching(call, op);
  if (!stages)
    return false;
  *call = (struct penstock_call){.op = op,
                                 .does = does,
                                 .fd = -1,
                                 .fd2 = -1,
                                 .stages = stages,
                                 .dirfd = dirfd,
                                 .given = path,
                                 .dirfd2 = dirfd2,
                                 .given2 = path2};
  return true;
}

bool penstock_enter_path(struct penstock_call *call, uint8_t op, uint8_t does, int dirfd, const char *path) {
  return penstock_enter_paths(call, op, does, dirfd, path, -1, NULL);
}

uint64_t penstock_iov_bytes(const struct iovec *iov, int count) {
  uint64_t sum = 0;
  for (int i = 0; i < count && i < IOV_MAX; i++)
    sum += iov[i].iov_len;
  return sum;
}

/* ---- which file ---- */

static bool goes_up(const char *path) {
  for (; *path; path++)
    if (path[0] == '.' && path[1] == '.')
      return true;
  return false;
}

/* The folder that a relative path starts from, written into `to`; -1: not known. */
static ssize_t base_name(char to[PENSTOCK_NAME_MAX], int dirfd) {
  return dirfd == AT_FDCWD ? penstock_cwd(to) : penstock_fd_path(dirfd, to, PENSTOCK_NAME_MAX);
}

/* The absolute name of a path that is not normal as it stands, written into `to`.  -1: nobody can tell. */
static ssize_t make_name(char to[PENSTOCK_NAME_MAX], int dirfd, const char *given) {
  ssize_t base = given[0] == '/' ? 0 : base_name(to, dirfd);
  return base < 0 ? -1 : penstock_name_make(to, to, (size_t)base, given);
}

/* A path that starts from a descriptor is what its folder is, without asking for the folder's name. */
static bool as_its_folder(int dirfd, const char *given, struct penstock_found *found) {
  if (given[0] == '/' || dirfd == AT_FDCWD || (unsigned)dirfd >= PENSTOCK_FDS || goes_up(given))
    return false;
  struct penstock_fd *entry = &penstock_fds[dirfd];
  if (!entry->known)
    entry = penstock_fd_look(dirfd);
  if (!entry || entry->flags & PENSTOCK_FD_DEEP)
    return false;
  const struct penstock_rules *rules = &penstock_process.rules;
  int rule = penstock_rules_component(rules, given, strlen(given));
  *found = (struct penstock_found){rule < 0 ? entry->under : rules->rule[rule].under, (int8_t)rule};
  return true;
}

__attribute__((noinline)) static struct penstock_found find_made(char to[PENSTOCK_NAME_MAX], int dirfd, const char *given,
                                                                 const char **name, uint16_t *name_size) {
  struct penstock_found found;
  *name = NULL;
  if (as_its_folder(dirfd, given, &found))
    return found;
  ssize_t size = make_name(to, dirfd, given);
  if (size < 0) {
    penstock_lost(PENSTOCK_LOST_UNKNOWN);
    return (struct penstock_found){penstock_process.rules.otherwise, -1};
  }
  *name = to;
  *name_size = (uint16_t)size;
  return penstock_rules_find(&penstock_process.rules, to, (size_t)size, PENSTOCK_LETTERS_ANY);
}

/* What a path means; *name may be the program's own text, or NULL where it is not needed for that. */
static inline struct penstock_found find(char to[PENSTOCK_NAME_MAX], int dirfd, const char *given, const char **name,
                                         uint16_t *name_size) {
  uint8_t letters;
  ssize_t size = penstock_name_scan(&penstock_process.rules, given, &letters);
  if (PENSTOCK_UNLIKELY(size < 0))
    return find_made(to, dirfd, given, name, name_size);
  *name = given;
  *name_size = (uint16_t)size;
  return penstock_rules_find(&penstock_process.rules, given, (size_t)size, letters);
}

const char *penstock_path(struct penstock_call *call) {
  if (call->path || !call->names)
    return call->path;
  ssize_t size = -1;
  if (call->given)
    size = make_name(call->names->path, call->dirfd, call->given);
  else if (call->fd >= 0)
    size = penstock_fd_path(call->fd, call->names->path, sizeof call->names->path);
  if (size < 0)
    return NULL;
  call->path_size = (uint16_t)size;
  return call->path = call->names->path;
}

const char *penstock_path2(struct penstock_call *call) {
  ssize_t size = -1;
  if (call->path2 || !call->names || !call->given2)
    return call->path2;
  size = make_name(call->names->second, call->dirfd2, call->given2);
  if (size < 0)
    return NULL;
  call->path2_size = (uint16_t)size;
  return call->path2 = call->names->second;
}

/* Fills in `under` and the name of a call that is named by paths which can be read. */
static inline struct penstock_found find_named(struct penstock_call *call, struct penstock_names *names) {
  if (call->found_in && call->found_in == call->given) {
    call->path = call->given; /* path_size still stands */
    call->under = call->found_under;
    return (struct penstock_found){call->found_under, call->found_rule};
  }
  struct penstock_found found = find(names->path, call->dirfd, call->given, &call->path, &call->path_size);
  call->under = found.under;
  return found;
}

__attribute__((noinline)) static void find_second(struct penstock_call *call, char to[PENSTOCK_NAME_MAX]) {
  call->under |= find(to, call->dirfd2, call->given2, &call->path2, &call->path2_size).under;
}

/* Whether an error tells that the kernel had read the path: only those that come from walking it. */
static bool walked(const struct penstock_call *call) {
  if (call->given2 || call->op == PENSTOCK_OP_SYMLINK)
    return false;
  switch (call->error) {
  case ENOENT:
  case EACCES:
  case EEXIST:
  case ENOTDIR:
  case EISDIR:
  case ELOOP:
  case EROFS:
  case ENOSPC:
  case EDQUOT:
  case ENOTEMPTY:
  case ENODATA:
  case ETXTBSY:
  case EBUSY:
  case ESTALE:
  case EIO:
    return true;
  default:
    return false;
  }
}

/* ---- through the stages ---- */

static inline bool run_before(struct penstock_call *call, uint8_t under) {
#define STAGE(name) \
  if (call->stages & penstock_##name##_stage.bit && under & penstock_##name##_stage.under && \
      penstock_##name##_stage.before && penstock_##name##_stage.before(call) == PENSTOCK_ANSWERED) \
    return true;
#include "interpose/stages.def"
#undef STAGE
  return false;
}

/* A stage has closed what was opened: nobody after it is to believe in the descriptor. */
static void take_back(struct penstock_call *call) {
  penstock_fd_forget((int)call->result);
  call->result = call->fd = -1;
  call->entry = NULL;
  call->failed = true;
  call->error = call->taken_back;
}

static inline void run_after(struct penstock_call *call) {
#define STAGE(name) \
  if (call->stages & penstock_##name##_stage.bit && penstock_##name##_stage.after && \
      (call->under & penstock_##name##_stage.under || call->owed & penstock_##name##_stage.bit)) \
    penstock_##name##_stage.after(call); \
  if (PENSTOCK_UNLIKELY(call->taken_back) && !call->failed) \
    take_back(call);
#include "interpose/stages.def"
#undef STAGE
}

/* The stages that need the path of such a call before it. */
static inline uint32_t path_first(uint8_t which) {
  uint32_t bits = 0;
#define STAGE(name) bits |= (penstock_##name##_stage.paths & which) == which ? penstock_##name##_stage.bit : 0;
#include "interpose/stages.def"
#undef STAGE
  return bits;
}

/* With paths, where a stage asked for them. */
__attribute__((noinline)) static bool before_named(struct penstock_call *call) {
  struct penstock_names names;
  if (!penstock_readable(call->given) || (call->given2 && !penstock_readable(call->given2))) {
    pass_unseen(call->op);
    return false;
  }
  call->names = &names;
  struct penstock_found found = find_named(call, &names);
  if (call->path == call->given && call->path) {
    call->found_in = call->given;
    call->found_under = found.under;
    call->found_rule = found.rule;
  }
  if (call->given2)
    find_second(call, names.second);
  bool answered = run_before(call, call->under | PENSTOCK_UNDER_ANY);
  call->names = NULL;
  call->path = call->path2 = NULL;
  return answered;
}

__attribute__((noinline)) static bool before_by_fd(struct penstock_call *call) {
  struct penstock_names names;
  call->names = &names;
  bool answered = run_before(call, call->under);
  call->names = NULL;
  call->path = NULL;
  return answered;
}

/* With whatever a stage may want to know. */
__attribute__((noinline)) static bool before_known(struct penstock_call *call) {
  int *error = &errno, saved = *error;
  bool answered = call->given ? before_named(call) : before_by_fd(call);
  *error = saved;
  if (answered)
    penstock_thread.inside = 0;
  return answered;
}

bool penstock_before(struct penstock_call *call) {
  penstock_thread.inside = (uintptr_t)call;
  call->class = class_of[call->op];
  if (!call->given || call->stages & path_first(call->creates ? PENSTOCK_PATHS_CREATES : PENSTOCK_PATHS_ALL)) {
    if (before_known(call))
      return true;
  } else
    run_before(call, 0xff);
  if (call->timed)
    call->start_ns = penstock_now_ns();
  return false;
}

int64_t penstock_answer(struct penstock_call *call) {
  if (call->error)
    errno = call->error;
  return call->result;
}

void penstock_after(struct penstock_call *call, int64_t result, bool failed) {
  struct penstock_names names;
  struct penstock_found found = {0, -1};
  if (call->timed)
    call->end_ns = penstock_now_ns();
  int *error = &errno, saved = *error;
  penstock_thread.inside = (uintptr_t)call;
  call->names = &names;
  call->result = result;
  call->failed = failed;
  if (PENSTOCK_UNLIKELY(failed))
    call->error = saved;
  if (call->given) {
    call->under = 0;
    if (!failed || walked(call))
      found = find_named(call, &names);
    if (call->does & PENSTOCK_DOES_OPEN && !failed && result >= 0)
      penstock_fd_opened(call, (int)result, found);
    if (call->given2 && !failed)
      find_second(call, names.second);
  }
  if (call->under | call->owed)
    run_after(call);
  *error = PENSTOCK_UNLIKELY(call->taken_back) ? call->taken_back : saved;
  penstock_thread.inside = 0;
}

bool penstock_again(const struct penstock_call *call, int fd) {
  int *error = &errno;
  if (*error != EBADF || !penstock_here.control || !penstock_keeps_books())
    return false;
  uint32_t stages = __atomic_load_n(&penstock_here.control->stages, __ATOMIC_RELAXED);
  bool mended = false;
#define STAGE(name) \
  if (stages & penstock_##name##_stage.bit && penstock_##name##_stage.again) \
    mended |= penstock_##name##_stage.again(call, fd);
#include "interpose/stages.def"
#undef STAGE
  *error = EBADF;
  return mended;
}
