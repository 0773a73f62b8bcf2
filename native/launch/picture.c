// SPDX-License-Identifier: Apache-2.0
/* See picture.h. */
#include "launch/picture.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void penstock_picture_free(struct penstock_picture *p) {
  free(p->runs);
  free(p->processes);
  free(p->files);
  free(p->pool);
  free(p->index);
  *p = (struct penstock_picture){0};
}

/* Room for `more` more elements; false (and failed) when there is no memory. */
static bool grow(struct penstock_picture *p, void *array, uint32_t count, uint32_t *room, size_t size, uint32_t more) {
  if (count + (uint64_t)more <= *room)
    return true;
  uint64_t wanted = *room ? *room : 64;
  while (wanted < count + (uint64_t)more)
    wanted *= 2;
  void **at = array, *bigger = wanted > UINT32_MAX ? NULL : realloc(*at, wanted * size);
  if (!bigger)
    return p->failed = true, false;
  *at = bigger;
  *room = (uint32_t)wanted;
  return true;
}

static struct penstock_words keep(struct penstock_picture *p, const char *text, size_t size) {
  if (size > PENSTOCK_TEXT_MAX)
    size = PENSTOCK_TEXT_MAX;
  if (!size || !grow(p, &p->pool, p->pool_size, &p->pool_room, 1, (uint32_t)size))
    return (struct penstock_words){0};
  memcpy(p->pool + p->pool_size, text, size);
  p->pool_size += (uint32_t)size;
  return (struct penstock_words){p->pool_size - (uint32_t)size, (uint32_t)size};
}

uint32_t penstock_picture_run(struct penstock_picture *p, const uint8_t id[16]) {
  for (uint32_t i = 0; i < p->run_count; i++)
    if (memcmp(p->runs[i].id, id, 16) == 0)
      return i;
  if (p->run_count >= PENSTOCK_PICTURE_RUNS_MAX)
    return 0;
  if (!grow(p, &p->runs, p->run_count, &p->run_room, sizeof *p->runs, 1))
    return PENSTOCK_NO_PROCESS;
  struct penstock_row_run *run = &p->runs[p->run_count];
  memset(run, 0, sizeof *run);
  memcpy(run->id, id, 16);
  return p->run_count++;
}

uint32_t penstock_picture_process(struct penstock_picture *p, uint32_t run, const struct penstock_seen_process *from,
                                  bool ended) {
  for (int i = 0; i < PENSTOCK_OPS_MAX; i++) {
    struct penstock_seen_op *to = &p->runs[run].op[i];
    to->calls += from->op[i].calls;
    to->errors += from->op[i].errors;
    to->time_ns += penstock_scaled(from->op[i].time_ns, from->op[i].calls, from->op[i].sampled);
    to->sampled += from->op[i].sampled;
  }
  if (p->process_count >= PENSTOCK_PICTURE_PROCESSES_MAX) {
    p->lost_processes++;
    return PENSTOCK_NO_PROCESS;
  }
  if (!grow(p, &p->processes, p->process_count, &p->process_room, sizeof *p->processes, 1))
    return PENSTOCK_NO_PROCESS;
  p->processes[p->process_count] = (struct penstock_row_process){
    .pid = from->pid,
    .ppid = from->ppid,
    .run = run,
    .rank = from->rank,
    .size = from->size,
    .threads = from->threads,
    .execs = from->execs,
    .mpi_files = from->mpi_files,
    .mpi_largest = from->mpi_largest,
    .ended = ended,
    .start_ticks = from->start_ticks,
    .start_ns = from->start_ns,
    .start_real_ns = from->start_real_ns,
    .end_ns = from->end_ns,
    .exe = keep(p, from->exe, from->exe_size),
    .argv = keep(p, from->argv, from->argv_size),
  };
  return p->process_count++;
}

bool penstock_picture_has(const struct penstock_picture *p, const struct penstock_seen_process *process) {
  for (uint32_t i = 0; i < p->process_count; i++) {
    const struct penstock_row_process *row = &p->processes[i];
    if (row->pid == process->pid && row->start_ticks == process->start_ticks && row->start_ns == process->start_ns)
      return true;
  }
  return false;
}

uint64_t penstock_scaled(uint64_t time_ns, uint64_t calls, uint64_t sampled) {
  if (!sampled || calls <= sampled)
    return time_ns;
  unsigned __int128 all = (unsigned __int128)time_ns * calls / sampled;
  return all > INT64_MAX ? INT64_MAX : (uint64_t)all;
}

static uint32_t hash(uint32_t run, uint32_t process, uint32_t kind, const char *name, size_t size) {
  uint64_t h = penstock_hash(name, size) ^ (uint64_t)process << 20 ^ (uint64_t)run << 8 ^ kind;
  h *= 0x9e3779b97f4a7c15u;
  return (uint32_t)(h >> 32);
}

static uint32_t hash_of(const struct penstock_picture *p, const struct penstock_row_file *row) {
  return hash(row->run, row->process, row->sum.kind, (const char *)p->pool + row->name.at, row->name.size);
}

static bool reindex(struct penstock_picture *p) {
  uint32_t room = p->index_room ? p->index_room * 2 : 256;
  while (room < p->file_count * 2)
    room *= 2;
  uint32_t *index = calloc(room, sizeof *index);
  if (!index)
    return p->failed = true, false;
  for (uint32_t i = 0; i < p->file_count; i++) {
    uint32_t at = hash_of(p, &p->files[i]) & (room - 1);
    while (index[at])
      at = (at + 1) & (room - 1);
    index[at] = i + 1;
  }
  free(p->index);
  p->index = index;
  p->index_room = room;
  return true;
}

/* The place in the index of a file's row, whether there is one or not. */
static uint32_t *place(struct penstock_picture *p, uint32_t run, uint32_t process, uint32_t kind,
                       const char *name, size_t size) {
  if ((uint64_t)p->file_count * 2 + 2 > p->index_room && !reindex(p))
    return NULL;
  uint32_t at = hash(run, process, kind, name, size) & (p->index_room - 1);
  for (; p->index[at]; at = (at + 1) & (p->index_room - 1)) {
    const struct penstock_row_file *row = &p->files[p->index[at] - 1];
    if (row->run == run && row->process == process && row->sum.kind == kind && row->name.size == size &&
        memcmp(p->pool + row->name.at, name, size) == 0)
      break;
  }
  return &p->index[at];
}

static void add_common(struct penstock_seen_file *to, const struct penstock_seen_file *from) {
  for (int i = 0; i < 4; i++) {
    int found = -1, least = 0;
    for (int j = 0; j < 4; j++) {
      if (to->common[j].count && to->common[j].size == from->common[i].size)
        found = j;
      if (to->common[j].count < to->common[least].count)
        least = j;
    }
    if (found >= 0)
      to->common[found].count += from->common[i].count;
    else if (to->common[least].count < from->common[i].count)
      to->common[least] = from->common[i];
  }
  for (int i = 1; i < 4; i++) /* the commonest first */
    for (int j = i; j > 0 && to->common[j].count > to->common[j - 1].count; j--) {
      __typeof__(to->common[0]) swap = to->common[j];
      to->common[j] = to->common[j - 1];
      to->common[j - 1] = swap;
    }
}

static void scale(struct penstock_seen_file *file) {
  for (int w = 0; w < 2; w++)
    file->way[w].time_ns = penstock_scaled(file->way[w].time_ns, file->way[w].calls, file->way[w].sampled);
  file->meta_ns = penstock_scaled(file->meta_ns, file->metas + file->opens + file->maps, file->meta_sampled);
}

static void add_way(struct penstock_seen_way *to, const struct penstock_seen_way *from) {
  to->calls += from->calls;
  to->bytes += from->bytes;
  to->sequential += from->sequential;
  to->consecutive += from->consecutive;
  to->time_ns += from->time_ns;
  to->sampled += from->sampled;
  for (int i = 0; i < 10; i++)
    to->sizes[i] += from->sizes[i];
}

static void add(struct penstock_seen_file *to, const struct penstock_seen_file *from) {
  to->opens += from->opens;
  to->metas += from->metas;
  to->switches += from->switches;
  to->maps += from->maps;
  to->meta_ns += from->meta_ns;
  to->meta_sampled += from->meta_sampled;
  if (!to->first_ns || (from->first_ns && from->first_ns < to->first_ns))
    to->first_ns = from->first_ns;
  if (from->last_ns > to->last_ns)
    to->last_ns = from->last_ns;
  if (from->highest > to->highest)
    to->highest = from->highest;
  if (from->comm_size > to->comm_size)
    to->comm_size = from->comm_size;
  add_way(&to->way[0], &from->way[0]);
  add_way(&to->way[1], &from->way[1]);
  add_common(to, from);
}

static size_t directory_size(const char *name, size_t size) {
  while (size && name[size - 1] != '/')
    size--;
  return size > 1 ? size - 1 : size;
}

void penstock_picture_file(struct penstock_picture *p, uint32_t run, uint32_t process,
                           const struct penstock_seen_file *file) {
  struct penstock_seen_file sum = *file;
  const char *name = file->name;
  size_t size = file->name_size < PENSTOCK_TEXT_MAX ? file->name_size : PENSTOCK_TEXT_MAX;
  bool summed = false;
  scale(&sum);
  if (sum.kind == PENSTOCK_SLOT_FILE)
    sum.files = 1;
  uint32_t *at = place(p, run, process, sum.kind, name, size);
  if (at && !*at && p->file_count - p->directory_count >= PENSTOCK_PICTURE_FILES_MAX) {
    p->lost_files += sum.files;
    summed = true;
    if (sum.kind == PENSTOCK_SLOT_FILE)
      size = directory_size(name, size);
    if (p->directory_count >= PENSTOCK_PICTURE_DIRECTORIES_MAX)
      size = 0;
    sum.kind = size ? PENSTOCK_SLOT_DIRECTORY : PENSTOCK_SLOT_UNNAMED;
    process = PENSTOCK_NO_PROCESS;
    at = place(p, run, process, sum.kind, name, size);
  }
  if (!at)
    return;
  if (*at) {
    struct penstock_row_file *row = &p->files[*at - 1];
    add(&row->sum, &sum);
    row->sum.threads += sum.threads;
    row->sum.files += sum.kind == PENSTOCK_SLOT_FILE ? 0 : sum.files;
    return;
  }
  if (!grow(p, &p->files, p->file_count, &p->file_room, sizeof *p->files, 1))
    return;
  p->directory_count += summed;
  sum.name = NULL;
  p->files[p->file_count] = (struct penstock_row_file){process, run, keep(p, name, size), sum};
  *at = ++p->file_count;
}

/* ---- copies, files ---- */

enum { SAVED_VERSION = 1 };
struct saved {
  char magic[8]; /* "PSKGONE1" */
  uint32_t version, run_count, process_count, file_count, directory_count, pool_size;
  uint64_t lost_processes, lost_files;
};

bool penstock_picture_copy(struct penstock_picture *ret, const struct penstock_picture *from) {
  *ret = (struct penstock_picture){0};
  bool enough = grow(ret, &ret->runs, 0, &ret->run_room, sizeof *ret->runs, from->run_count) &&
                grow(ret, &ret->processes, 0, &ret->process_room, sizeof *ret->processes, from->process_count) &&
                grow(ret, &ret->files, 0, &ret->file_room, sizeof *ret->files, from->file_count) &&
                grow(ret, &ret->pool, 0, &ret->pool_room, 1, from->pool_size);
  if (!enough) {
    penstock_picture_free(ret);
    return false;
  }
  ret->run_count = from->run_count;
  ret->process_count = from->process_count;
  ret->file_count = from->file_count;
  ret->directory_count = from->directory_count;
  ret->pool_size = from->pool_size;
  ret->lost_processes = from->lost_processes;
  ret->lost_files = from->lost_files;
  if (from->run_count)
    memcpy(ret->runs, from->runs, from->run_count * sizeof *from->runs);
  if (from->process_count)
    memcpy(ret->processes, from->processes, from->process_count * sizeof *from->processes);
  if (from->file_count)
    memcpy(ret->files, from->files, from->file_count * sizeof *from->files);
  if (from->pool_size)
    memcpy(ret->pool, from->pool, from->pool_size);
  return true;
}

static bool put(int fd, const void *data, size_t size) {
  for (const char *at = data; size;) {
    ssize_t written = write(fd, at, size);
    if (written <= 0)
      return false;
    at += written;
    size -= (size_t)written;
  }
  return true;
}

static bool get(int fd, void *data, size_t size) {
  for (char *at = data; size;) {
    ssize_t done = read(fd, at, size);
    if (done <= 0)
      return false;
    at += done;
    size -= (size_t)done;
  }
  return true;
}

int penstock_picture_save(const struct penstock_picture *p, const char *path) {
  char aside[PATH_MAX];
  struct saved head = {"PSKGONE1",      SAVED_VERSION,      p->run_count, p->process_count,
                       p->file_count,   p->directory_count, p->pool_size, p->lost_processes,
                       p->lost_files};
  if (snprintf(aside, sizeof aside, "%s.new", path) >= (int)sizeof aside)
    return -ENAMETOOLONG;
  int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -errno;
  errno = EIO;
  bool whole = put(fd, &head, sizeof head) && put(fd, p->runs, p->run_count * sizeof *p->runs) &&
               put(fd, p->processes, p->process_count * sizeof *p->processes) &&
               put(fd, p->files, p->file_count * sizeof *p->files) && put(fd, p->pool, p->pool_size);
  int error = whole ? 0 : errno;
  close(fd);
  if (!error && rename(aside, path))
    error = errno;
  if (error)
    unlink(aside);
  return -error;
}

static bool within(const struct penstock_picture *p, struct penstock_words w) {
  return w.size <= PENSTOCK_TEXT_MAX && w.at <= p->pool_size && w.size <= p->pool_size - w.at;
}

static bool makes_sense(const struct penstock_picture *p) {
  for (uint32_t i = 0; i < p->process_count; i++)
    if (p->processes[i].run >= p->run_count || !within(p, p->processes[i].exe) || !within(p, p->processes[i].argv))
      return false;
  for (uint32_t i = 0; i < p->file_count; i++) {
    const struct penstock_row_file *row = &p->files[i];
    if (row->run >= p->run_count || !within(p, row->name) || row->sum.kind < PENSTOCK_SLOT_FILE ||
        row->sum.kind > PENSTOCK_SLOT_UNNAMED ||
        (row->process != PENSTOCK_NO_PROCESS && row->process >= p->process_count))
      return false;
  }
  return true;
}

int penstock_picture_load(struct penstock_picture *ret, const char *path) {
  struct penstock_picture p = {0};
  struct saved head;
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return -errno;
  bool right = fstat(fd, &st) == 0 && get(fd, &head, sizeof head) && memcmp(head.magic, "PSKGONE1", 8) == 0 &&
               head.version == SAVED_VERSION && head.run_count <= PENSTOCK_PICTURE_RUNS_MAX &&
               head.process_count <= PENSTOCK_PICTURE_PROCESSES_MAX && head.directory_count <= head.file_count &&
               head.file_count <= PENSTOCK_PICTURE_FILES_MAX + PENSTOCK_PICTURE_DIRECTORIES_MAX + PENSTOCK_PICTURE_RUNS_MAX;
  uint64_t size = sizeof head;
  if (right) {
    size += head.run_count * sizeof *p.runs + head.process_count * sizeof *p.processes +
            head.file_count * sizeof *p.files + head.pool_size;
    right = (uint64_t)st.st_size == size;
  }
  right = right && grow(&p, &p.runs, 0, &p.run_room, sizeof *p.runs, head.run_count) &&
          grow(&p, &p.processes, 0, &p.process_room, sizeof *p.processes, head.process_count) &&
          grow(&p, &p.files, 0, &p.file_room, sizeof *p.files, head.file_count) &&
          grow(&p, &p.pool, 0, &p.pool_room, 1, head.pool_size) &&
          get(fd, p.runs, head.run_count * sizeof *p.runs) &&
          get(fd, p.processes, head.process_count * sizeof *p.processes) &&
          get(fd, p.files, head.file_count * sizeof *p.files) && get(fd, p.pool, head.pool_size);
  close(fd);
  if (right) {
    p.run_count = head.run_count;
    p.process_count = head.process_count;
    p.file_count = head.file_count;
    p.directory_count = head.directory_count;
    p.pool_size = head.pool_size;
    p.lost_processes = head.lost_processes;
    p.lost_files = head.lost_files;
    right = makes_sense(&p);
  }
  if (!right) {
    penstock_picture_free(&p);
    return -EBADMSG;
  }
  *ret = p;
  return 0;
}
