// SPDX-License-Identifier: Apache-2.0
/* See frames.h.  What is zero is left out: readers have that as the default. */
#include "launch/frames.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include "kernels/layout.h"
#include "launch/operations.h"

#ifndef PENSTOCK_VERSION
#define PENSTOCK_VERSION ""
#endif

/* A map whose size is known when it is closed. */
static size_t open_map(struct penstock_pack *p) {
  penstock_pack_map(p, 0);
  return p->size - 4;
}
static void close_map(struct penstock_pack *p, size_t at, uint32_t count) {
  for (int i = 0; !p->failed && i < 4; i++)
    p->data[at + (size_t)i] = (uint8_t)(count >> (8 * (3 - i)));
}

/* A key with a number, unless that is 0; gives how many keys were written. */
static uint32_t number(struct penstock_pack *p, const char *key, uint64_t value) {
  if (value)
    penstock_key_uint(p, key, value);
  return value != 0;
}

static uint32_t numbers(struct penstock_pack *p, const char *key, const uint64_t *value, uint32_t count) {
  uint64_t some = 0;
  for (uint32_t i = 0; i < count; i++)
    some |= value[i];
  if (!some)
    return 0;
  penstock_key_array(p, key, count);
  for (uint32_t i = 0; i < count; i++)
    penstock_pack_uint(p, value[i]);
  return 1;
}

/* ---- processes ---- */

static void argv_array(struct penstock_pack *p, const char *words, size_t size) {
  uint32_t count = 0;
  for (size_t at = 0; at < size; at += strnlen(words + at, size - at) + 1)
    count++;
  penstock_key_array(p, "argv", count);
  for (size_t at = 0; at < size;) {
    size_t one = strnlen(words + at, size - at);
    penstock_pack_bin(p, words + at, one);
    at += one + 1;
  }
}

static void process(struct penstock_pack *p, const struct penstock_picture *picture,
                    const struct penstock_row_process *row) {
  const char *pool = (const char *)picture->pool;
  size_t map = open_map(p);
  uint32_t keys = 0;
  keys += number(p, "pid", row->pid);
  keys += number(p, "ppid", row->ppid);
  keys += number(p, "t0", row->start_real_ns);
  if (row->end_ns >= row->start_ns && row->end_ns)
    keys += number(p, "t1", row->start_real_ns + (row->end_ns - row->start_ns));
  penstock_key_int(p, "rank", row->rank);
  keys += number(p, "size", row->size) + 1;
  penstock_key_bin(p, "exe", pool + row->exe.at, row->exe.size);
  argv_array(p, pool + row->argv.at, row->argv.size);
  penstock_key_uint(p, "thr", row->threads ? row->threads : 1);
  keys += number(p, "mpif", row->mpi_files);
  keys += number(p, "mpic", row->mpi_largest);
  close_map(p, map, keys + 3);
}

/* ---- operations ---- */

static void operations(struct penstock_pack *p, const struct penstock_row_run *run) {
  uint32_t count = 0;
  for (int i = 0; i < PENSTOCK_OPS_MAX; i++)
    count += run->op[i].calls != 0;
  penstock_key_array(p, "ops", count);
  for (int i = 0; i < PENSTOCK_OPS_MAX; i++) {
    const struct penstock_seen_op *op = &run->op[i];
    if (!op->calls)
      continue;
    char unnamed[16];
    snprintf(unnamed, sizeof unnamed, "op%d", i);
    size_t map = open_map(p);
    uint32_t keys = 0;
    bool known = i < PENSTOCK_OPS;
    penstock_key_text(p, "op", known ? penstock_operation_names[i] : unnamed);
    penstock_key_text(p, "cls", known ? penstock_class_names[penstock_operation_classes[i]] : "");
    keys += number(p, "n", op->calls);
    keys += number(p, "err", op->errors);
    keys += number(p, "ns", op->time_ns);
    keys += number(p, "k", op->sampled);
    close_map(p, map, keys + 2);
  }
}

/* ---- files ---- */

static uint32_t common(struct penstock_pack *p, const struct penstock_seen_file *sum) {
  uint32_t count = 0;
  while (count < 4 && sum->common[count].count)
    count++;
  if (!count)
    return 0;
  penstock_key_array(p, "cs", count);
  for (uint32_t i = 0; i < count; i++) {
    penstock_pack_array(p, 2);
    penstock_pack_uint(p, sum->common[i].size);
    penstock_pack_uint(p, sum->common[i].count);
  }
  return 1;
}

/* Stripes and targets of all components that have objects. */
static uint32_t layout(struct penstock_pack *p, const struct penstock_blob *blob) {
  struct penstock_layout l;
  struct penstock_component c;
  if (!blob->data || penstock_layout_parse(blob->data, blob->size, &l))
    return 0;
  uint32_t stripes = 0, stripe_bytes = 0, targets = 0;
  for (unsigned i = 0; i < l.count && !penstock_layout_component(&l, i, &c); i++) {
    targets += c.object_count;
    if (c.object_count > stripes || !stripe_bytes) {
      stripes = c.object_count > stripes ? c.object_count : stripes;
      stripe_bytes = c.stripe_size_bytes;
    }
  }
  penstock_key_map(p, "lay", 5);
  penstock_key_text(p, "x", "lustre.lov");
  penstock_key_bin(p, "v", blob->data, blob->size);
  penstock_key_uint(p, "n", stripes);
  penstock_key_uint(p, "sz", stripe_bytes);
  penstock_key_array(p, "tgt", targets);
  for (unsigned i = 0; i < l.count && !penstock_layout_component(&l, i, &c); i++)
    for (unsigned k = 0; k < c.object_count; k++) {
      int64_t ost = penstock_layout_ost(&c, k);
      penstock_pack_uint(p, ost < 0 ? 0 : (uint64_t)ost);
    }
  return 1;
}

static uint32_t who(struct penstock_pack *p, const struct penstock_picture *picture,
                    const struct penstock_row_file *row, const uint32_t *numbered) {
  if (row->process == PENSTOCK_NO_PROCESS)
    return 0;
  penstock_key_uint(p, "proc", numbered[row->process]);
  penstock_key_uint(p, "pid", picture->processes[row->process].pid);
  penstock_key_int(p, "rank", picture->processes[row->process].rank);
  return 3;
}

static uint32_t ways(struct penstock_pack *p, const struct penstock_seen_way way[2]) {
  static const char *const names[2][8] = {{"r", "br", "hr", "rs", "rc", "nr", "kr"},
                                          {"w", "bw", "hw", "ws", "wc", "nw", "kw"}};
  uint32_t keys = 0;
  for (int w = 0; w < 2; w++) {
    keys += number(p, names[w][0], way[w].calls);
    keys += number(p, names[w][1], way[w].bytes);
    keys += numbers(p, names[w][2], way[w].sizes, 10);
    keys += number(p, names[w][3], way[w].sequential);
    keys += number(p, names[w][4], way[w].consecutive);
    keys += number(p, names[w][5], way[w].time_ns);
    keys += number(p, names[w][6], way[w].sampled);
  }
  return keys;
}

static uint64_t real(uint64_t monotonic_ns, int64_t offset_ns) {
  return monotonic_ns ? monotonic_ns + (uint64_t)offset_ns : 0;
}

static void file(struct penstock_pack *p, const struct penstock_picture *picture,
                 const struct penstock_frame_facts *facts, uint32_t number_of, const uint32_t *numbered) {
  const struct penstock_row_file *row = &picture->files[number_of];
  const struct penstock_seen_file *sum = &row->sum;
  const char *name = (const char *)picture->pool + row->name.at;
  size_t map = open_map(p);
  penstock_key_bin(p, "p", name, row->name.size);
  penstock_key_uint(p, "nf", sum->files);
  penstock_key_uint(p, "thr", sum->threads);
  uint32_t keys = 3 + who(p, picture, row, numbered);
  keys += number(p, "kind", sum->kind - PENSTOCK_SLOT_FILE);
  keys += number(p, "o", sum->opens);
  keys += number(p, "m", sum->metas);
  keys += number(p, "swi", sum->switches);
  keys += ways(p, sum->way);
  keys += common(p, sum);
  keys += number(p, "t0", real(sum->first_ns, facts->offset_ns));
  keys += number(p, "t1", real(sum->last_ns, facts->offset_ns));
  keys += number(p, "nm", sum->meta_ns);
  keys += number(p, "km", sum->meta_sampled);
  keys += number(p, "hi", sum->highest);
  keys += number(p, "mm", sum->maps);
  keys += number(p, "cz", sum->comm_size);
  const char *type = facts->mounts ? penstock_mounts_type(facts->mounts, name, row->name.size) : "";
  if (*type) {
    penstock_key_text(p, "fs", type);
    keys++;
  }
  if (facts->layouts)
    keys += layout(p, &facts->layouts[number_of]);
  close_map(p, map, keys);
}

/* ---- the node ---- */

static const char *const LOST[PENSTOCK_LOST_MAX] = {
  [PENSTOCK_LOST_CHUNKS] = "chunks",   [PENSTOCK_LOST_FILES] = "files",
  [PENSTOCK_LOST_DIRECTORIES] = "directories", [PENSTOCK_LOST_THREADS] = "threads",
  [PENSTOCK_LOST_NAMES] = "names",     [PENSTOCK_LOST_FDS] = "descriptors",
  [PENSTOCK_LOST_UNKNOWN] = "unknown", [PENSTOCK_LOST_SYSCALLS] = "syscalls",
  [PENSTOCK_LOST_STOCK] = "stock",
};

static void reason(struct penstock_pack *p, const char *word, uint64_t count) {
  penstock_pack_map(p, 2);
  penstock_key_text(p, "why", word);
  penstock_key_uint(p, "n", count);
}

static uint32_t partial(struct penstock_pack *p, const struct penstock_picture *picture,
                        const struct penstock_frame_facts *facts, bool main_run, uint32_t processes) {
  uint64_t full = picture->lost_files, no_board = 0;
  if (facts->lost) {
    full += facts->lost[PENSTOCK_LOST_FILES];
    no_board = facts->lost[PENSTOCK_LOST_CHUNKS];
  }
  if (!main_run)
    full = no_board = 0;
  if (!processes && !no_board)
    no_board = 1; /* whoever was started, if nobody else */
  uint32_t count = (full != 0) + (no_board != 0) + (facts->damaged && main_run) + (facts->reason != NULL);
  if (!count)
    return 0;
  penstock_key_array(p, "part", count);
  if (full)
    reason(p, "table_full", full);
  if (no_board)
    reason(p, "not_attached", no_board);
  if (facts->damaged && main_run)
    reason(p, "damaged", facts->damaged);
  if (facts->reason)
    reason(p, facts->reason, 0);
  return 1;
}

static uint32_t overflow(struct penstock_pack *p, const struct penstock_picture *picture,
                         const struct penstock_frame_facts *facts) {
  penstock_pack_text(p, "over");
  size_t map = open_map(p);
  uint32_t keys = number(p, "processes", picture->lost_processes) + number(p, "rows", picture->lost_files);
  for (int i = 0; facts->lost && i < PENSTOCK_LOST_MAX; i++)
    if (LOST[i])
      keys += number(p, LOST[i], facts->lost[i]);
  close_map(p, map, keys);
  return 1;
}

static void node(struct penstock_pack *p, const struct penstock_picture *picture,
                 const struct penstock_frame_facts *facts, uint32_t run, bool only, uint32_t *numbered) {
  uint32_t processes = 0, files = 0, living = 0;
  for (uint32_t i = 0; i < picture->process_count; i++)
    if (picture->processes[i].run == run) {
      numbered[i] = processes++;
      living += !picture->processes[i].ended;
    }
  for (uint32_t i = 0; i < picture->file_count; i++)
    files += picture->files[i].run == run;
  bool main_run = memcmp(picture->runs[run].id, facts->run, 16) == 0;
  size_t map = open_map(p);
  uint32_t keys = 7;
  penstock_key_text(p, "node", facts->node);
  penstock_key_uint(p, "seq", facts->time_ns);
  penstock_key_uint(p, "t", facts->time_ns);
  penstock_key_bool(p, "fin", living == 0);
  penstock_key_array(p, "procs", processes);
  for (uint32_t i = 0; i < picture->process_count; i++)
    if (picture->processes[i].run == run)
      process(p, picture, &picture->processes[i]);
  operations(p, &picture->runs[run]);
  penstock_key_array(p, "files", files);
  for (uint32_t i = 0; i < picture->file_count; i++)
    if (picture->files[i].run == run)
      file(p, picture, facts, i, numbered);
  keys += partial(p, picture, facts, main_run, processes);
  keys += main_run ? overflow(p, picture, facts) : 0;
  keys += main_run && facts->placed ? penstock_placed_pack(p, facts->placed) : 0;
  keys += (main_run || only) && facts->limited ? penstock_limited_pack(p, facts->limited) : 0;
  keys += main_run && facts->served ? penstock_served_pack(p, facts->served) : 0;
  close_map(p, map, keys);
}

void penstock_frames_node(struct penstock_pack *p, const struct penstock_picture *picture,
                          const struct penstock_frame_facts *facts, const uint8_t *only) {
  uint32_t *numbered = calloc(picture->process_count + 1u, sizeof *numbered);
  p->failed |= !numbered;
  for (uint32_t run = 0; numbered && run < picture->run_count; run++) {
    if (only && memcmp(only, picture->runs[run].id, 16) != 0)
      continue;
    size_t at = penstock_frame_open(p);
    node(p, picture, facts, run, only, numbered);
    penstock_frame_close(p, at, PENSTOCK_FRAME_NODE, picture->runs[run].id);
  }
  free(numbered);
}

/* ---- the others ---- */

void penstock_frame_begin(struct penstock_pack *p, const uint8_t run[16], const struct penstock_begin_facts *facts) {
  uint32_t words = 0;
  size_t at = penstock_frame_open(p);
  penstock_pack_map(p, 12);
  penstock_key_text(p, "job", facts->job);
  penstock_key_text(p, "jsrc", facts->job_source);
  penstock_key_text(p, "step", facts->step);
  penstock_key_text(p, "node", facts->node);
  penstock_key_uint(p, "uid", facts->uid);
  penstock_key_text(p, "user", facts->user);
  while (facts->argv[words])
    words++;
  penstock_key_array(p, "argv", words);
  for (uint32_t i = 0; i < words; i++)
    penstock_pack_bin(p, facts->argv[i], strlen(facts->argv[i]));
  penstock_key_bin(p, "cwd", facts->cwd, strlen(facts->cwd));
  penstock_key_uint(p, "t0", facts->start_ns);
  penstock_key_uint(p, "ranks", facts->ranks);
  penstock_key_text(p, "by", facts->launcher);
  penstock_key_text(p, "ver", PENSTOCK_VERSION);
  penstock_frame_close(p, at, PENSTOCK_FRAME_BEGIN, run);
}

void penstock_frame_end(struct penstock_pack *p, const uint8_t run[16], const char *node_name, int status,
                        uint64_t end_ns) {
  size_t at = penstock_frame_open(p);
  penstock_pack_map(p, 4);
  penstock_key_text(p, "node", node_name);
  penstock_pack_text(p, "st");
  if (WIFEXITED(status))
    penstock_pack_uint(p, (uint64_t)WEXITSTATUS(status));
  else
    penstock_pack_nil(p);
  penstock_key_uint(p, "sig", WIFSIGNALED(status) ? (uint64_t)WTERMSIG(status) : 0);
  penstock_key_uint(p, "t1", end_ns);
  penstock_frame_close(p, at, PENSTOCK_FRAME_END, run);
}

void penstock_frame_mark(struct penstock_pack *p, const uint8_t run[16], const char *node_name, const char *word,
                         const char *text, const char *hint, uint64_t time_ns) {
  size_t at = penstock_frame_open(p);
  penstock_pack_map(p, 5);
  penstock_key_text(p, "node", node_name);
  penstock_key_text(p, "why", word);
  penstock_key_text(p, "txt", text);
  penstock_key_text(p, "try", hint);
  penstock_key_uint(p, "t", time_ns);
  penstock_frame_close(p, at, PENSTOCK_FRAME_MARK, run);
}
