// SPDX-License-Identifier: Apache-2.0
/* See read.h.  In three steps: the table of claims gives the chunks of each process; their PROCESS slots are sorted, so
   that programs of one process lie together; then the chunks of one process at a time are read and added up. */
#include "board/read.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "board/check.h"

/* A chunk and the process (by its first chunk) that it belongs to. */
struct held {
  uint32_t first, chunk, seq;
};

struct program {
  uint32_t first;
  uint32_t held, held_count; /* its part of reader.held */
  struct penstock_process slot;
};

struct row {
  uint64_t hash;
  struct penstock_seen_file file;
  uint32_t name_next, name_here; /* the first is followed when all is added up */
  char here[sizeof((struct penstock_file *)0)->name];
};

struct reader {
  int fd;
  uint32_t chunk_count, usable;
  struct penstock_claim *claims;
  struct held *held;
  uint32_t held_count;
  struct program *programs;
  uint32_t program_count;
  struct penstock_seen_chunk *chunks; /* of the process that is being read */
  struct row *rows;
  uint32_t row_count, row_room;
  uint32_t *places; /* open addressing over rows: number + 1 */
  uint32_t place_count;
  uint64_t seed;
  uint8_t *chunk;    /* PENSTOCK_CHUNK_BYTES */
  struct penstock_seen *seen;
  char name[PENSTOCK_TEXT_MAX], exe[PENSTOCK_TEXT_MAX], argv[PENSTOCK_TEXT_MAX];
};

static uint64_t sum(uint64_t a, uint64_t b) {
  a = a < INT64_MAX ? a : INT64_MAX;
  return b < INT64_MAX - a ? a + b : INT64_MAX;
}

static uint64_t larger(uint64_t a, uint64_t b) {
  a = a < INT64_MAX ? a : INT64_MAX;
  b = b < INT64_MAX ? b : INT64_MAX;
  return a > b ? a : b;
}

static uint32_t at_most(uint64_t value, uint64_t most) { return (uint32_t)(value < most ? value : most); }

static uint32_t seq_of(const struct reader *r, uint32_t chunk) { return (uint32_t)(r->claims[chunk].holder >> 32); }

/* All or nothing. */
static bool fetch(int fd, void *to, size_t size, uint64_t where) {
  for (size_t at = 0; at < size;) {
    ssize_t got = pread(fd, (char *)to + at, size - at, (off_t)(where + at));
    if (got <= 0 && !(got < 0 && errno == EINTR))
      return false;
    at += got > 0 ? (size_t)got : 0;
  }
  return true;
}

/* ---- claims ---- */

static int by_first(const void *a, const void *b) {
  const struct held *x = a, *y = b;
  if (x->first != y->first)
    return x->first < y->first ? -1 : 1;
  return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

/* Which chunks are held, and by whom.  A claim whose owner is gone, or which was just made, is nobody's. */
static void find_held(struct reader *r, const uint32_t *freed) {
  for (uint32_t i = 0; i < r->usable; i++) {
    const struct penstock_claim *claim = &r->claims[i];
    uint32_t seq = seq_of(r, i);
    if (seq == 0 || (freed && __atomic_load_n(&freed[i], __ATOMIC_RELAXED) == seq))
      continue;
    r->seen->chunks_held++;
    if (claim->first >= r->usable || claim->first_seq != seq_of(r, claim->first) ||
        (uint32_t)claim->holder != (uint32_t)r->claims[claim->first].holder) {
      r->seen->skipped++;
      continue;
    }
    r->held[r->held_count++] = (struct held){claim->first, i, seq};
  }
  qsort(r->held, r->held_count, sizeof *r->held, by_first);
}

/* ---- slots ---- */

static bool counts(const struct reader *r, const struct penstock_slot *slot, uint32_t chunk) {
  return slot->seq == seq_of(r, chunk) && slot->seq;
}

/* Appends TEXT slots to what is there until `size` is reached: how much there is then. */
static uint32_t read_text(struct reader *r, char *text, uint32_t have, uint32_t size, uint32_t next) {
  struct penstock_text slot;
  while (have < size && next) {
    uint32_t chunk = penstock_chunk_of(r->chunk_count, next);
    if (chunk >= r->usable ||
        !fetch(r->fd, &slot, sizeof slot, (uint64_t)next * PENSTOCK_LINE) || !counts(r, &slot.slot, chunk) ||
        slot.slot.kind != PENSTOCK_SLOT_TEXT || slot.size == 0 || slot.size > sizeof slot.text) {
      r->seen->skipped++;
      break;
    }
    uint32_t part = at_most(slot.size, size - have);
    memcpy(text + have, slot.text, part);
    have += part;
    next = slot.next;
  }
  return have;
}

static int by_process(const void *a, const void *b) {
  const struct penstock_process *x = &((const struct program *)a)->slot, *y = &((const struct program *)b)->slot;
  int run = memcmp(x->run, y->run, sizeof x->run);
  if (run)
    return run;
  if (x->pid_namespace != y->pid_namespace)
    return x->pid_namespace < y->pid_namespace ? -1 : 1;
  if (x->pid != y->pid)
    return x->pid < y->pid ? -1 : 1;
  if (x->start_ticks != y->start_ticks)
    return x->start_ticks < y->start_ticks ? -1 : 1;
  return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static bool same_process(const struct penstock_process *a, const struct penstock_process *b) {
  return a->start_ticks && a->pid == b->pid && a->start_ticks == b->start_ticks && a->pid_namespace == b->pid_namespace &&
         memcmp(a->run, b->run, sizeof a->run) == 0;
}

static void find_programs(struct reader *r) {
  for (uint32_t i = 0, next; i < r->held_count; i = next) {
    for (next = i + 1; next < r->held_count && r->held[next].first == r->held[i].first;)
      next++;
    struct program *program = &r->programs[r->program_count];
    uint32_t first = r->held[i].first;
    program->first = first;
    program->held = i;
    program->held_count = next - i;
    if (fetch(r->fd, &program->slot, sizeof program->slot, penstock_chunk_offset(r->chunk_count, first)) &&
        counts(r, &program->slot.slot, first) && program->slot.slot.kind == PENSTOCK_SLOT_PROCESS)
      r->program_count++;
    else
      r->seen->skipped++;
  }
  qsort(r->programs, r->program_count, sizeof *r->programs, by_process);
}

/* ---- adding up ---- */

static void add_ops(struct penstock_seen_process *p, const struct penstock_ops *ops) {
  for (int i = 0; i < PENSTOCK_OPS_MAX; i++) {
    p->op[i].calls = sum(p->op[i].calls, ops->op[i].calls);
    p->op[i].errors = sum(p->op[i].errors, ops->op[i].errors);
    p->op[i].time_ns = sum(p->op[i].time_ns, ops->op[i].time_ns);
    p->op[i].sampled = sum(p->op[i].sampled, ops->op[i].sampled);
  }
  p->fresh_ns = sum(p->fresh_ns, ops->fresh_ns);
  p->fresh = sum(p->fresh, ops->fresh);
}

static void add_way(struct penstock_seen_way *to, const struct penstock_way *way) {
  to->calls = sum(to->calls, way->calls);
  to->bytes = sum(to->bytes, way->bytes);
  to->sequential = sum(to->sequential, way->sequential);
  to->consecutive = sum(to->consecutive, way->consecutive);
  to->time_ns = sum(to->time_ns, way->time_ns);
  to->sampled = sum(to->sampled, way->sampled);
  for (int i = 0; i < 10; i++)
    to->sizes[i] = sum(to->sizes[i], way->sizes[i]);
}

/* Sizes that both have are one; of what is left the four commonest stay, in order. */
static void add_common(struct penstock_seen_file *to, const struct penstock_common common[4]) {
  for (int i = 0; i < 4; i++) {
    uint64_t size = common[i].size, count = common[i].count > common[i].over ? common[i].count - common[i].over : 0;
    int at = 0;
    while (at < 4 && to->common[at].count && to->common[at].size != size)
      at++;
    if (count == 0)
      continue;
    if (at == 4 && count <= to->common[3].count)
      continue;
    if (at == 4)
      to->common[--at].count = 0;
    to->common[at].size = size;
    for (to->common[at].count = sum(to->common[at].count, count); at && to->common[at - 1].count < to->common[at].count;
         at--) {
      uint64_t other_size = to->common[at - 1].size, other_count = to->common[at - 1].count;
      to->common[at - 1].size = to->common[at].size;
      to->common[at - 1].count = to->common[at].count;
      to->common[at].size = other_size;
      to->common[at].count = other_count;
    }
  }
}

static void add_file(struct row *row, const struct penstock_file *f) {
  struct penstock_seen_file *to = &row->file;
  to->kind = f->slot.kind;
  to->threads += to->threads != UINT32_MAX;
  to->opens = sum(to->opens, f->opens);
  to->metas = sum(to->metas, f->metas);
  to->switches = sum(to->switches, f->switches);
  to->maps = sum(to->maps, f->maps);
  to->files = sum(to->files, f->files);
  to->meta_ns = sum(to->meta_ns, f->meta_ns);
  to->meta_sampled = sum(to->meta_sampled, f->meta_sampled);
  if (f->first_ns && (!to->first_ns || f->first_ns < to->first_ns))
    to->first_ns = larger(f->first_ns, 0);
  to->last_ns = larger(larger(to->last_ns, f->last_ns), to->first_ns);
  to->highest = larger(to->highest, f->highest);
  to->comm_size = f->comm_size > to->comm_size ? f->comm_size : to->comm_size;
  add_way(&to->way[0], &f->way[0]);
  add_way(&to->way[1], &f->way[1]);
  add_common(to, f->common);
  if (f->name_size && !to->name_size) { /* only the first slot of a file has its name */
    to->name_size = at_most(f->name_size, PENSTOCK_TEXT_MAX);
    row->name_here = at_most(to->name_size, sizeof row->here);
    row->name_next = f->name_next;
    memcpy(row->here, f->name, row->name_here);
  }
}

/* Where to look for a hash first.  The seed is secret, so nobody can make all hashes fall on one place. */
static uint32_t place_of(const struct reader *r, uint64_t hash) {
  hash = (hash ^ r->seed) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 33 ^ r->seed >> 7) * 0xc4ceb9fe1a85ec53u;
  return (uint32_t)(hash >> 32) & (r->place_count - 1);
}

/* Doubles the rows and their places; false: no memory. */
static bool grow(struct reader *r) {
  uint32_t room = r->row_room ? 2 * r->row_room : 256;
  struct row *rows = realloc(r->rows, room * sizeof *rows);
  if (rows)
    r->rows = rows;
  uint32_t *places = calloc(2 * room, sizeof *places);
  if (!rows || !places) {
    free(places);
    return false;
  }
  free(r->places);
  r->places = places;
  r->place_count = 2 * room;
  r->row_room = room;
  for (uint32_t i = 0; i < r->row_count; i++) {
    uint32_t at = place_of(r, r->rows[i].hash);
    while (r->places[at])
      at = (at + 1) & (r->place_count - 1);
    r->places[at] = i + 1;
  }
  return true;
}

static struct row *row_of(struct reader *r, const struct penstock_file *f) {
  if (r->row_count == r->row_room && !grow(r))
    return NULL;
  uint32_t at = place_of(r, f->hash);
  for (; r->places[at]; at = (at + 1) & (r->place_count - 1)) {
    struct row *row = &r->rows[r->places[at] - 1];
    if (row->hash == f->hash && row->file.kind == f->slot.kind)
      return row;
  }
  r->places[at] = ++r->row_count;
  struct row *row = &r->rows[r->row_count - 1];
  memset(row, 0, sizeof *row);
  row->hash = f->hash;
  return row;
}

static bool add_slot(struct reader *r, struct penstock_seen_process *p, const uint8_t *at, uint32_t room) {
  const struct penstock_slot *slot = (const void *)at;
  if (slot->kind == PENSTOCK_SLOT_OPS) {
    if (room < sizeof(struct penstock_ops))
      r->seen->skipped++;
    else
      add_ops(p, (const void *)at);
  } else if (slot->kind >= PENSTOCK_SLOT_FILE && slot->kind <= PENSTOCK_SLOT_UNNAMED) {
    struct row *row = row_of(r, (const void *)at);
    if (!row)
      return false;
    add_file(row, (const void *)at);
  } else if (slot->kind != PENSTOCK_SLOT_PROCESS && slot->kind != PENSTOCK_SLOT_TEXT)
    r->seen->skipped++;
  return true;
}

static bool add_chunk(struct reader *r, struct penstock_seen_process *p, uint32_t chunk) {
  if (!fetch(r->fd, r->chunk, PENSTOCK_CHUNK_BYTES, penstock_chunk_offset(r->chunk_count, chunk))) {
    r->seen->skipped++;
    return true;
  }
  for (uint32_t slot = 0; slot < PENSTOCK_CHUNK_SLOTS;) {
    const uint8_t *at = r->chunk + (size_t)slot * PENSTOCK_SLOT_BYTES;
    const struct penstock_slot *head = (const void *)at;
    bool good = counts(r, head, chunk);
    if (good && !add_slot(r, p, at, (PENSTOCK_CHUNK_SLOTS - slot) * PENSTOCK_SLOT_BYTES))
      return false;
    slot += good && head->kind == PENSTOCK_SLOT_OPS ? PENSTOCK_OPS_SLOTS : 1;
  }
  return true;
}

/* ---- telling ---- */

static void add_program(struct reader *r, struct penstock_seen_process *p, const struct program *program) {
  const struct penstock_process *slot = &program->slot;
  if (p->chunk_count == 0) {
    p->pid = slot->pid;
    p->start_ticks = slot->start_ticks;
    p->pid_namespace = slot->pid_namespace;
    p->start_ns = larger(slot->start_ns, 0);
    p->start_real_ns = larger(slot->start_real_ns, 0);
    p->rank = -1;
    memcpy(p->run, slot->run, sizeof p->run);
  } else
    p->execs++;
  p->ppid = slot->ppid;
  p->end_ns = slot->end_ns ? larger(slot->end_ns, p->start_ns) : 0;
  p->threads = larger(p->threads, slot->threads) < UINT32_MAX ? (uint32_t)larger(p->threads, slot->threads) : UINT32_MAX;
  if (slot->rank >= 0) {
    p->rank = slot->rank;
    p->size = at_most(slot->size, INT32_MAX);
  }
  p->mpi_files = at_most((uint64_t)p->mpi_files + slot->mpi_files, UINT32_MAX);
  p->mpi_largest = p->mpi_largest > slot->mpi_largest ? p->mpi_largest : slot->mpi_largest;
  p->anonymous_read_bytes = sum(p->anonymous_read_bytes, slot->anonymous_read_bytes);
  p->anonymous_written_bytes = sum(p->anonymous_written_bytes, slot->anonymous_written_bytes);
  uint32_t size = at_most(slot->exe_size, PENSTOCK_TEXT_MAX), here = at_most(size, sizeof slot->exe);
  memcpy(r->exe, slot->exe, here);
  p->exe = r->exe;
  p->exe_size = read_text(r, r->exe, here, size, slot->exe_next);
  size = at_most(slot->argv_size, PENSTOCK_TEXT_MAX);
  here = at_most(size, sizeof slot->argv);
  memcpy(r->argv, slot->argv, here);
  p->argv = r->argv;
  p->argv_size = read_text(r, r->argv, here, size, slot->argv_next);
  for (uint32_t i = 0; i < program->held_count; i++) {
    const struct held *held = &r->held[program->held + i];
    r->chunks[p->chunk_count++] = (struct penstock_seen_chunk){held->chunk, held->seq};
  }
}

static void tell_files(struct reader *r, const struct penstock_visitor *visitor, const struct penstock_seen_process *p) {
  for (uint32_t i = 0; visitor->file && i < r->row_count; i++) {
    struct row *row = &r->rows[i];
    memcpy(r->name, row->here, row->name_here);
    row->file.name = r->name;
    row->file.name_size = read_text(r, r->name, row->name_here, row->file.name_size, row->name_next);
    visitor->file(visitor->context, p, &row->file);
  }
}

/* The programs [from, to) are one process. */
static int read_process(struct reader *r, uint32_t from, uint32_t to, const struct penstock_visitor *visitor) {
  struct penstock_seen_process *p = calloc(1, sizeof *p);
  bool good = p != NULL;
  r->row_count = 0;
  if (r->places)
    memset(r->places, 0, r->place_count * sizeof *r->places);
  for (uint32_t i = from; good && i < to; i++) {
    add_program(r, p, &r->programs[i]);
    for (uint32_t j = 0; good && j < r->programs[i].held_count; j++)
      good = add_chunk(r, p, r->held[r->programs[i].held + j].chunk);
  }
  if (good) {
    p->chunks = r->chunks;
    r->seen->processes++;
    if (visitor->process)
      visitor->process(visitor->context, p);
    tell_files(r, visitor, p);
  }
  free(p);
  return good ? 0 : -ENOMEM;
}

static int read_all(struct reader *r, const uint32_t *freed, const struct penstock_visitor *visitor) {
  int error = 0;
  find_held(r, freed);
  find_programs(r);
  for (uint32_t i = 0, next; !error && i < r->program_count; i = next) {
    for (next = i + 1; next < r->program_count && same_process(&r->programs[i].slot, &r->programs[next].slot);)
      next++;
    error = read_process(r, i, next, visitor);
  }
  return error;
}

int penstock_read(int usage, uint32_t chunk_count, const uint32_t *freed, const uint8_t nonce[16],
                  const struct penstock_visitor *visitor, struct penstock_seen *ret_seen) {
  struct penstock_usage head;
  struct penstock_seen seen = {0};
  struct stat st;
  if (fstat(usage, &st))
    return -errno;
  if (chunk_count == 0 || chunk_count > PENSTOCK_CHUNKS_MAX || !fetch(usage, &head, sizeof head, 0) ||
      penstock_usage_wrong(&head, nonce ? nonce : head.nonce))
    return -EPROTO;
  memcpy(seen.lost, head.lost, sizeof seen.lost);
  seen.attached = head.attached;
  struct reader *r = calloc(1, sizeof *r);
  if (!r)
    return -ENOMEM;
  *r = (struct reader){.fd = usage, .chunk_count = chunk_count, .seen = &seen};
  r->usable = penstock_chunks_in(chunk_count, (uint64_t)st.st_size);
  if (getrandom(&r->seed, sizeof r->seed, GRND_NONBLOCK) < 0)
    r->seed = (uintptr_t)r;
  uint32_t room = r->usable ? r->usable : 1;
  r->claims = calloc(room, sizeof *r->claims);
  r->held = calloc(room, sizeof *r->held);
  r->programs = calloc(room, sizeof *r->programs);
  r->chunks = calloc(room, sizeof *r->chunks);
  r->chunk = malloc(PENSTOCK_CHUNK_BYTES);
  int error = 0;
  if (!r->claims || !r->held || !r->programs || !r->chunks || !r->chunk)
    error = -ENOMEM;
  else if (r->usable && !fetch(usage, r->claims, r->usable * sizeof *r->claims, PENSTOCK_USAGE_HEAD_BYTES))
    error = -EPROTO;
  else
    error = read_all(r, freed, visitor);
  if (!error && ret_seen)
    *ret_seen = seen;
  free(r->claims);
  free(r->held);
  free(r->programs);
  free(r->chunks);
  free(r->chunk);
  free(r->rows);
  free(r->places);
  free(r);
  return error;
}
