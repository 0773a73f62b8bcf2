// SPDX-License-Identifier: Apache-2.0
/* See create.h. */
#include "board/create.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "board/check.h"
#include "board/limits.h"
#include "board/place.h"
#include "board/ring.h"

enum {
  STEP_BYTES = 4 << 20,
  DEFAULT_MAX_BYTES = 64 << 20,
  DEFAULT_FILES_MAX = 16384,
  DEFAULT_RING_BYTES = 4 << 20,
  DEFAULT_SAMPLE_EVERY = 128,
  CONTROL_MAX_BYTES = 4 << 20,
  PLACE_ROOM_BYTES = 256 << 10, /* of a spot for a plan that may come */
  PLACE_PART_BYTES = 768 << 10, /* of one that there is, at least: another one may come */
};

static const char *const NOISE[] = {
  "/proc", "/sys", "/dev", "/etc", "/run", "/usr", "/bin", "/sbin", "/boot", "/lib", "/lib32", "/lib64", "/libx32",
  "/var/lib", "/var/cache", "/var/log", "/var/run", "/snap", "/nix/store",
  "site-packages", "dist-packages", "__pycache__",
};
/* What lies under these is the program's own business after all. */
static const char *const NO_NOISE[] = {"/dev/shm", "/run/user"};

/* ---- rules ---- */

int penstock_board_rule(struct penstock_prefix *rule, const char *path, uint8_t under, uint64_t dev) {
  size_t size = strlen(path);
  if (path[0] == '/')
    while (size && path[size - 1] == '/')
      size--;
  else if (size == 0 || strchr(path, '/'))
    return -EINVAL;
  if (size > sizeof rule->path)
    return -ENAMETOOLONG;
  memset(rule, 0, sizeof *rule);
  rule->dev = dev;
  rule->size = (uint16_t)size;
  rule->under = under;
  memcpy(rule->path, path, size);
  return 0;
}

uint32_t penstock_board_noise(struct penstock_prefix *rules, uint32_t room) {
  uint32_t count = 0;
  for (size_t i = 0; i < sizeof NOISE / sizeof *NOISE && count < room; i++)
    penstock_board_rule(&rules[count++], NOISE[i], PENSTOCK_UNDER_NOTHING, 0);
  for (size_t i = 0; i < sizeof NO_NOISE / sizeof *NO_NOISE && count < room; i++)
    penstock_board_rule(&rules[count++], NO_NOISE[i], PENSTOCK_UNDER_RECORD, 0);
  return count;
}

int penstock_board_rules(struct penstock_board *board, const struct penstock_prefix *rules, uint32_t count) {
  struct penstock_control *control = board->control;
  if (count > PENSTOCK_PREFIXES_MAX)
    return -E2BIG;
  uint32_t generation = control->generation | 1;
  __atomic_exchange_n(&control->generation, generation, __ATOMIC_ACQ_REL); /* the rules change after this ... */
  for (uint32_t i = 0; i < count; i++)
    control->prefixes[i] = rules[i];
  control->prefix_count = count;
  __atomic_store_n(&control->generation, generation + 1, __ATOMIC_RELEASE); /* ... and before this */
  return 0;
}

void penstock_board_stages(struct penstock_board *board, uint32_t stages) {
  __atomic_store_n(&board->control->stages, stages, __ATOMIC_RELEASE);
}

void penstock_board_free(struct penstock_board *board, uint32_t chunk, uint32_t seq) {
  if (chunk < board->chunk_count)
    __atomic_store_n(&board->control->freed[chunk], seq, __ATOMIC_RELEASE);
}

/* ---- room ---- */

static int allocate(int fd, uint64_t bytes) {
  int error = EINTR;
  for (int tries = 0; error == EINTR && tries < 100; tries++)
    error = posix_fallocate(fd, 0, (off_t)bytes);
  return -error;
}

/* The last chunk that anybody ever held, + 1. */
static uint32_t chunks_used(const struct penstock_board *board, uint32_t usable) {
  struct penstock_claim claims[256];
  uint32_t used = 0;
  for (uint32_t at = 0; at < usable; at += 256) {
    uint32_t count = usable - at < 256 ? usable - at : 256;
    off_t where = PENSTOCK_USAGE_HEAD_BYTES + (off_t)at * (off_t)sizeof *claims;
    ssize_t got = pread(board->usage, claims, count * sizeof *claims, where);
    for (uint32_t i = 0; got > 0 && i < (size_t)got / sizeof *claims; i++) {
      uint32_t seq = (uint32_t)(claims[i].holder >> 32);
      used += seq && seq != board->control->freed[at + i];
    }
  }
  return used;
}

int penstock_board_grow(struct penstock_board *board) {
  uint64_t bytes = board->control->usage_bytes, max = board->usage_max_bytes;
  uint32_t usable = penstock_chunks_in(board->chunk_count, bytes);
  if (bytes >= max || usable - chunks_used(board, usable) > STEP_BYTES / 2 / PENSTOCK_CHUNK_BYTES)
    return 0;
  uint64_t more = max - bytes > STEP_BYTES ? bytes + STEP_BYTES : max;
  int error = allocate(board->usage, more);
  if (error)
    return error;
  __atomic_store_n(&board->control->usage_bytes, more, __ATOMIC_RELEASE);
  return 1;
}

/* ---- sections ---- */

static uint64_t on_line(uint64_t bytes) { return (bytes + PENSTOCK_LINE - 1) / PENSTOCK_LINE * PENSTOCK_LINE; }

static bool is_limits(const struct penstock_board_part *part) { return part->kind == PENSTOCK_SECTION_LIMITS; }

static uint64_t room_of(const struct penstock_board_part *part) {
  bool grows = part->kind == PENSTOCK_SECTION_PLACE && part->bytes < PLACE_PART_BYTES;
  return grows ? PLACE_PART_BYTES : part->bytes;
}

/* All of control: its head, freed[], limits, and what the plan brings. */
static uint64_t control_bytes(const struct penstock_board_plan *plan, uint32_t chunk_count) {
  uint64_t bytes = on_line(sizeof(struct penstock_control) + chunk_count * sizeof(uint32_t));
  bytes += on_line(sizeof(struct penstock_limits_control));
  for (uint32_t i = 0; i < plan->part_count; i++)
    bytes += is_limits(&plan->parts[i]) ? 0 : on_line(room_of(&plan->parts[i]));
  return bytes + plan->place_spots * on_line(PLACE_ROOM_BYTES);
}

static void *add_section(struct penstock_control *control, uint32_t number, uint64_t *at, uint32_t kind, uint32_t version,
                         uint64_t bytes) {
  control->sections[number] = (struct penstock_section){kind, version, *at, bytes};
  void *section = (char *)control + *at;
  *at += on_line(bytes);
  return section;
}

/* Limits are always there, perhaps empty. */
static int fill_sections(struct penstock_control *control, const struct penstock_board_plan *plan, uint64_t now_ns) {
  uint64_t at = on_line(sizeof *control + control->chunk_count * sizeof(uint32_t));
  uint64_t carry[PENSTOCK_BUCKETS_MAX] = {0};
  uint32_t number = 0;
  struct penstock_limits_control *limits = add_section(control, number++, &at, PENSTOCK_SECTION_LIMITS,
                                                       PENSTOCK_LIMITS_VERSION, sizeof *limits);
  penstock_limits_begin(limits, penstock_usage_limits_offset(control->chunk_count));
  for (uint32_t i = 0; i < plan->part_count; i++) {
    const struct penstock_board_part *part = &plan->parts[i];
    if (part->kind == PENSTOCK_SECTION_PLACE)
      control->stages |= PENSTOCK_STAGE_PLACE;
    if (!is_limits(part))
      memcpy(add_section(control, number++, &at, part->kind, part->version, room_of(part)), part->data, part->bytes);
    else if (penstock_limits_wrong(part->data, part->bytes))
      return -EINVAL;
    else {
      uint32_t under = penstock_limits_under(plan->prefixes, plan->prefix_count);
      penstock_limits_apply(limits, part->data, under, now_ns, carry);
      control->stages |= limits->count ? PENSTOCK_STAGE_LIMIT : 0;
    }
  }
  for (uint32_t i = 0; i < plan->place_spots; i++) {
    struct penstock_place_head *empty = add_section(control, number++, &at, PENSTOCK_SECTION_PLACE, PENSTOCK_PLACE_VERSION,
                                                    PLACE_ROOM_BYTES);
    empty->version = PENSTOCK_PLACE_VERSION;
  }
  return 0;
}

void *penstock_board_section(const struct penstock_board *board, uint32_t kind, uint32_t version, uint64_t least) {
  const void *section = penstock_control_section(board->control, board->control_bytes, kind, version, least);
  return section ? (char *)board->control + ((const char *)section - (const char *)board->control) : NULL;
}

/* ---- plans ---- */

/* The spot of the same file system; else one that nobody has; else one that waits for a plan under another name: a link
   was named, and where it leads shows only now. */
static struct penstock_place_head *spot_for(struct penstock_board *board, const struct penstock_place_head *plan,
                                            uint64_t bytes) {
  struct penstock_place_spot spots[PENSTOCK_PLACES_MAX];
  const struct penstock_place_spot *found = NULL, *waits = NULL;
  uint32_t count = penstock_place_spots(spots, board->control, board->control_bytes);
  for (uint32_t i = 0; i < count; i++) {
    const struct penstock_place_head *head = spots[i].head;
    bool known = head->driver != PENSTOCK_PLACE_NONE || head->mount_size;
    bool same = known && head->mount_size == plan->mount_size && !memcmp(head->mount, plan->mount, plan->mount_size);
    if (same || (!known && !found))
      found = &spots[i];
    if (same)
      break;
    if (known && head->driver == PENSTOCK_PLACE_NONE && head->why == PENSTOCK_PLACE_WHY_LATE)
      waits = &spots[i];
  }
  found = found ? found : waits;
  if (!found || found->bytes < bytes)
    return NULL;
  return (void *)((char *)board->control + ((const char *)found->head - (const char *)board->control));
}

/* The file system that a plan is for is under control; no more rules than there is room for. */
static void rule_for(struct penstock_board *board, const struct penstock_place_head *plan) {
  struct penstock_prefix rules[PENSTOCK_PREFIXES_MAX], *rule;
  char mount[PENSTOCK_PREFIX_BYTES + 1] = "/";
  uint32_t count = board->control->prefix_count, at = 0;
  memcpy(mount, plan->mount, plan->mount_size);
  memcpy(rules, board->control->prefixes, sizeof rules);
  while (at < count && !(rules[at].size == plan->mount_size && !memcmp(rules[at].path, plan->mount, plan->mount_size)))
    at++;
  rule = &rules[at];
  if (at < PENSTOCK_PREFIXES_MAX && !(at < count && rule->under & PENSTOCK_UNDER_MOUNT) &&
      !penstock_board_rule(rule, mount, PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT, plan->dev))
    penstock_board_rules(board, rules, at < count ? count : count + 1);
}

int penstock_board_place(struct penstock_board *board, const void *section, uint64_t bytes, uint32_t begin) {
  const struct penstock_place_head *plan = section;
  struct penstock_place checked;
  const size_t same = offsetof(struct penstock_place_head, driver); /* version and generation stay */
  if (penstock_place_open(&checked, section, bytes) || plan->mount_size > sizeof plan->mount ||
      (plan->mount_size && plan->mount[0] != '/'))
    return -EINVAL;
  struct penstock_place_head *head = spot_for(board, plan, bytes);
  if (!head)
    return -ENOSPC;
  if (checked.driver == PENSTOCK_PLACE_NONE && head->driver != PENSTOCK_PLACE_NONE)
    return 0; /* another run of the job has a plan */
  begin = head->driver == PENSTOCK_PLACE_NONE ? begin : head->begin;
  uint32_t generation = head->generation | 1;
  __atomic_exchange_n(&head->generation, generation, __ATOMIC_ACQ_REL); /* it changes after this ... */
  memcpy((char *)head + same, (const char *)section + same, bytes - same);
  head->version = PENSTOCK_PLACE_VERSION;
  head->begin = begin;
  __atomic_store_n(&head->generation, generation + 1, __ATOMIC_RELEASE); /* ... and before this */
  rule_for(board, plan);
  penstock_board_stages(board, board->control->stages | PENSTOCK_STAGE_PLACE);
  return 0;
}

/* ---- making one ---- */

static uint64_t boot_id(void) {
  char text[64] = "";
  uint64_t id = 0;
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0)
    close(fd);
  for (ssize_t i = 0, digits = 0; i < size && digits < 16; i++) {
    int digit = text[i] >= '0' && text[i] <= '9' ? text[i] - '0' : text[i] >= 'a' && text[i] <= 'f' ? text[i] - 'a' + 10 : -1;
    if (digit >= 0) {
      id |= (uint64_t)digit << 4 * (digits ^ 1); /* byte by byte, as the text has them */
      digits++;
    }
  }
  return id;
}

static int64_t clock_ns(clockid_t which) {
  struct timespec t;
  clock_gettime(which, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* How many chunks a file of at most so many bytes holds, claims included. */
static uint32_t chunks_for(uint64_t bytes) {
  uint64_t most = bytes / PENSTOCK_CHUNK_BYTES;
  if (most > PENSTOCK_CHUNKS_MAX)
    most = PENSTOCK_CHUNKS_MAX;
  while (most && penstock_chunk_offset(most, most) > bytes)
    most--;
  return (uint32_t)most;
}

static int map_file(int folder, const char *name, int flags, uint64_t bytes, void **ret_map) {
  int fd = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -errno;
  int error = flags & O_CREAT ? allocate(fd, bytes) : 0;
  void *map = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!error && map == MAP_FAILED)
    error = -errno;
  close(fd);
  if (!error)
    *ret_map = map;
  return error;
}

static void fill_control(struct penstock_control *control, const struct penstock_board_plan *plan,
                         const struct penstock_board *board, const uint8_t nonce[16], uint64_t usage_bytes) {
  control->version = PENSTOCK_BOARD_VERSION;
  control->head_bytes = sizeof *control;
  control->control_bytes = board->control_bytes;
  control->usage_max_bytes = board->usage_max_bytes;
  control->usage_bytes = usage_bytes;
  memcpy(control->nonce, nonce, sizeof control->nonce);
  memcpy(control->run, plan->run, sizeof control->run);
  control->boot_id = boot_id();
  control->monotonic_offset_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
  control->agent_pid = (uint32_t)getpid();
  control->uid = (uint32_t)getuid();
  control->stages = plan->stages;
  control->record_files_max = plan->record_files_max ? plan->record_files_max : DEFAULT_FILES_MAX;
  control->record_sample_every = plan->record_sample_every ? plan->record_sample_every : DEFAULT_SAMPLE_EVERY;
  control->otherwise = plan->otherwise;
  control->chunk_count = board->chunk_count;
}

static int make_usage(int folder, uint64_t bytes, const uint8_t nonce[16], int *ret_fd) {
  struct penstock_usage head = {.magic = PENSTOCK_USAGE_MAGIC, .version = PENSTOCK_BOARD_VERSION};
  memcpy(head.nonce, nonce, sizeof head.nonce);
  int fd = openat(folder, "usage", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -errno;
  int error = allocate(fd, bytes);
  if (!error && pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
    error = errno ? -errno : -EIO;
  if (error)
    close(fd);
  else
    *ret_fd = fd;
  return error;
}

/* Slots for so many bytes: a power of two. */
static uint32_t ring_slots(uint64_t bytes) {
  uint32_t slots = 256; /* the longest event takes 74 */
  while (slots < PENSTOCK_RING_SLOTS_MAX && penstock_ring_bytes(slots * 2) <= bytes)
    slots *= 2;
  return slots;
}

static int make_ring(int folder, uint64_t bytes, const uint8_t nonce[16]) {
  struct penstock_ring head = {.magic = PENSTOCK_RING_MAGIC, .version = PENSTOCK_RING_VERSION, .slots = ring_slots(bytes)};
  memcpy(head.nonce, nonce, sizeof head.nonce);
  int fd = openat(folder, "ring", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -errno;
  int error = allocate(fd, penstock_ring_bytes(head.slots));
  if (!error && pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
    error = errno ? -errno : -EIO;
  close(fd);
  return error;
}

static int make_files(int folder, const struct penstock_board_plan *plan, struct penstock_board *board) {
  uint8_t nonce[16];
  if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
    return -EIO;
  uint64_t first = penstock_chunk_offset(board->chunk_count, 0);
  uint64_t bytes = first + STEP_BYTES < board->usage_max_bytes ? first + STEP_BYTES : board->usage_max_bytes;
  void *map = NULL;
  int error = make_usage(folder, bytes, nonce, &board->usage);
  if (!error && plan->stages & PENSTOCK_STAGE_CATALOG)
    error = make_ring(folder, plan->ring_bytes ? plan->ring_bytes : DEFAULT_RING_BYTES, nonce);
  if (!error)
    error = map_file(folder, "control", O_RDWR | O_CREAT | O_EXCL, board->control_bytes, &map);
  if (error)
    return error;
  board->control = map;
  fill_control(board->control, plan, board, nonce, bytes);
  error = fill_sections(board->control, plan, (uint64_t)clock_ns(CLOCK_MONOTONIC));
  if (!error)
    error = penstock_board_rules(board, plan->prefixes, plan->prefix_count);
  if (!error)
    __atomic_store_n(&board->control->magic, PENSTOCK_CONTROL_MAGIC, __ATOMIC_RELEASE);
  return error;
}

static int delete_in(int folder) {
  int error = unlinkat(folder, "control", 0) && errno != ENOENT ? -errno : 0;
  if (unlinkat(folder, "ring", 0) && errno != ENOENT && !error)
    error = -errno;
  if (unlinkat(folder, "usage", 0) && errno != ENOENT && !error)
    error = -errno;
  return error;
}

int penstock_board_delete(const char *folder) {
  int fd = open(folder, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return -errno;
  int error = delete_in(fd);
  close(fd);
  return error ? error : rmdir(folder) ? -errno : 0;
}

int penstock_board_create(const char *folder, const struct penstock_board_plan *plan, struct penstock_board *ret_board) {
  char aside[PATH_MAX];
  uint64_t random = 0;
  struct penstock_board board = {.usage = -1};
  board.chunk_count = chunks_for(plan->usage_max_bytes ? plan->usage_max_bytes : DEFAULT_MAX_BYTES);
  board.usage_max_bytes = penstock_chunk_offset(board.chunk_count, board.chunk_count);
  board.control_bytes = control_bytes(plan, board.chunk_count);
  if (board.chunk_count == 0 || plan->part_count + plan->place_spots >= PENSTOCK_SECTIONS_MAX || board.control_bytes > CONTROL_MAX_BYTES)
    return -EINVAL;
  if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random ||
      snprintf(aside, sizeof aside, "%s.%016llx", folder, (unsigned long long)random) >= (int)sizeof aside)
    return -ENAMETOOLONG;
  if (mkdir(aside, 0700))
    return -errno;
  int fd = open(aside, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  int error = fd < 0 ? -errno : make_files(fd, plan, &board);
  /* A folder replaces only an empty one: whoever comes second gets an error. */
  if (!error && rename(aside, folder))
    error = errno == ENOTEMPTY || errno == ENOTDIR ? -EEXIST : -errno;
  if (error) {
    if (fd >= 0)
      delete_in(fd);
    rmdir(aside);
    penstock_board_close(&board);
  } else
    *ret_board = board;
  if (fd >= 0)
    close(fd);
  return error;
}

int penstock_board_open(const char *folder, struct penstock_board *ret_board) {
  int fd = open(folder, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return -errno;
  struct penstock_board board = {.usage = -1};
  struct stat st;
  void *map = NULL;
  int error = fstatat(fd, "control", &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
  if (!error && (st.st_size < (off_t)sizeof(struct penstock_control) || st.st_size > CONTROL_MAX_BYTES))
    error = -EPROTO;
  if (!error)
    error = map_file(fd, "control", O_RDWR, (uint64_t)st.st_size, &map);
  if (!error) {
    board.control = map;
    board.control_bytes = (uint64_t)st.st_size;
    error = penstock_control_wrong(board.control, board.control_bytes) ? -EPROTO : 0;
  }
  if (!error && (board.usage = openat(fd, "usage", O_RDWR | O_CLOEXEC | O_NOFOLLOW)) < 0)
    error = -errno;
  close(fd);
  if (error) {
    penstock_board_close(&board);
    return error;
  }
  board.chunk_count = board.control->chunk_count;
  board.usage_max_bytes = board.control->usage_max_bytes;
  *ret_board = board;
  return 0;
}

void penstock_board_close(struct penstock_board *board) {
  if (board->control)
    munmap(board->control, board->control_bytes);
  if (board->usage >= 0)
    close(board->usage);
  *board = (struct penstock_board){.usage = -1};
}
