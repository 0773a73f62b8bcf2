// SPDX-License-Identifier: Apache-2.0
/* The stage `record`, driven directly: what one thread, many threads and a fork do is on the board, once. */
// uses: stages/record.c stages/slots.c stages/process.c board/create.c board/read.c board/buckets.c board/tickets.c board/place.c
#include "stage.h"
#include <pthread.h>

static const struct penstock_stage *const stage = &penstock_record_stage;
#define MINE ((uint32_t)getpid())

static void files_and_moves(void) {
  do_open(stage, 5, "/data/one");
  for (int i = 0; i < 10; i++)
    do_move(stage, 5, true, 4096, 4096);
  do_fd(stage, 5, OP_SEEK, PENSTOCK_DOES_SEEK, 0);
  for (int i = 0; i < 4; i++)
    do_move(stage, 5, false, 10000, i < 3 ? 10000 : 10960);
  do_move(stage, 5, false, 10000, -1);
  do_fd(stage, 5, OP_CLOSE, PENSTOCK_DOES_CLOSE, 0);
  look();
  CHECK_EQ(1, seen.process_count);
  const struct penstock_seen_process *p = &seen.processes[0];
  CHECK_EQ(MINE, p->pid);
  CHECK_EQ(getppid(), p->ppid);
  CHECK(p->start_ticks > 0 && p->start_ns > 0 && p->start_real_ns > 1000000000000000000u);
  CHECK(p->exe_size > 0 && p->argv_size > 0);
  CHECK_EQ(10, p->op[OP_WRITE].calls);
  CHECK_EQ(5, p->op[OP_READ].calls);
  CHECK_EQ(1, p->op[OP_READ].errors);
  CHECK_EQ(1, p->threads);
  const struct penstock_seen_file *f = row("/data/one", MINE);
  CHECK_EQ(PENSTOCK_SLOT_FILE, f->kind);
  CHECK_EQ(1, f->opens);
  CHECK_EQ(1, f->metas);
  CHECK_EQ(10, f->way[PENSTOCK_WRITING].calls);
  CHECK_EQ(40960, f->way[PENSTOCK_WRITING].bytes);
  CHECK_EQ(9, f->way[PENSTOCK_WRITING].consecutive);
  CHECK_EQ(9, f->way[PENSTOCK_WRITING].sequential);
  CHECK_EQ(10, f->way[PENSTOCK_WRITING].sizes[2]);
  CHECK_EQ(4, f->way[PENSTOCK_READING].calls);
  CHECK_EQ(40960, f->way[PENSTOCK_READING].bytes); /* results, not requests (R04) */
  CHECK_EQ(3, f->way[PENSTOCK_READING].consecutive);
  CHECK_EQ(1, f->switches);
  CHECK_EQ(40960, f->highest);
  CHECK_EQ(4096, f->common[0].size);
  CHECK_EQ(10, f->common[0].count);
  CHECK_EQ(10000, f->common[1].size);
  CHECK_EQ(4, f->common[1].count);
  CHECK_EQ(10000, f->way[PENSTOCK_WRITING].time_ns);
  CHECK_EQ(10, f->way[PENSTOCK_WRITING].sampled);
  CHECK(f->first_ns && f->first_ns <= f->last_ns);
}

/* R04: 3 GiB asked, 0x7ffff000 given; and sums beyond 32 bits. */
static void large_results(void) {
  do_open(stage, 6, "/data/large");
  for (int i = 0; i < 5; i++)
    do_move(stage, 6, false, UINT64_C(3) << 30, 0x7ffff000);
  look();
  const struct penstock_seen_file *f = row("/data/large", MINE);
  CHECK_EQ(INT64_C(5) * 0x7ffff000, f->way[0].bytes);
  CHECK_EQ(INT64_C(5) * 0x7ffff000, f->highest);
  CHECK_EQ(5, f->way[0].sizes[9]);
}

/* The classes' bounds, both sides: the same as record.SIZE_BOUNDS. */
static void size_classes(void) {
  static const uint64_t last[9] = {100, 1024, 10240, 102400, 1048576, 4194304, 10485760, 104857600, 1073741824};
  do_open(stage, 6, "/data/classes");
  for (int i = 0; i < 9; i++) {
    do_move(stage, 6, true, last[i], 1);
    do_move(stage, 6, true, last[i] + 1, 1);
  }
  do_move(stage, 6, true, 0, 0);
  look();
  const struct penstock_seen_file *f = row("/data/classes", MINE);
  for (int i = 0; i < 10; i++)
    CHECK_EQ(i == 9 ? 1 : 2, f->way[1].sizes[i]);
}

static void names_of_any_length(void) {
  static char name[6000];
  memset(name, 'x', sizeof name - 1);
  name[0] = '/';
  do_open(stage, 7, name);
  name[1000] = 0;
  do_open(stage, 7, name);
  name[200] = 0;
  do_open(stage, 7, name);
  look();
  CHECK_EQ(1, row(name, MINE)->opens);
  bool long_one = false, cut = false;
  for (uint32_t i = 0; i < seen.file_count; i++) {
    long_one |= seen.files[i].name_size == 1000;
    cut |= seen.files[i].name_size == PENSTOCK_TEXT_MAX;
  }
  CHECK(long_one && cut);
  CHECK_EQ(1, seen.total.lost[PENSTOCK_LOST_NAMES]);
}

static void metadata_calls(void) {
  do_path(stage, OP_STAT, "/data/one"); /* was opened */
  do_path(stage, OP_STAT, "/data/never");
  do_path(stage, OP_STAT, "/data/never2");
  do_path(stage, OP_STAT, "/rootfile");
  look();
  CHECK_EQ(2, row("/data/one", MINE)->metas);
  CHECK_EQ(PENSTOCK_SLOT_DIRECTORY, row("/data", MINE)->kind);
  CHECK_EQ(2, row("/data", MINE)->metas);
  CHECK_EQ(1, row("", MINE)->metas); /* of / */
  CHECK_EQ(4, seen.processes[0].op[OP_STAT].calls);
}

static void two_descriptors(void) {
  do_open(stage, 8, "/data/from");
  do_open(stage, 9, "/data/to");
  struct penstock_call call = {.op = OP_WRITE,
                               .does = PENSTOCK_DOES_READ | PENSTOCK_DOES_WRITE,
                               .fd = 8,
                               .fd2 = 9,
                               .entry2 = &fds[9],
                               .asked = 5000,
                               .result = 3000};
  pass(stage, &call);
  look();
  CHECK_EQ(3000, row("/data/from", MINE)->way[0].bytes);
  CHECK_EQ(0, row("/data/from", MINE)->way[1].calls);
  CHECK_EQ(3000, row("/data/to", MINE)->way[1].bytes);
}

static void inherited_descriptors(void) {
  fds[10] = (struct penstock_fd){.known = 1, .under = PENSTOCK_UNDER_RECORD, .flags = PENSTOCK_FD_INHERITED};
  kernel_name = "/data/inherited";
  do_move(stage, 10, true, 10, 10);
  fds[11] = fds[10];
  fds[11].record = 0;
  kernel_name = NULL;
  do_move(stage, 11, true, 10, 7);
  look();
  CHECK_EQ(10, row("/data/inherited", MINE)->way[1].bytes);
  CHECK_EQ(7, seen.processes[0].anonymous_written_bytes);
  CHECK_EQ(1, seen.total.lost[PENSTOCK_LOST_UNKNOWN]);
}

/* R03: the child begins at zero, and its descriptors keep their names. */
static void forks(void) {
  do_open(stage, 12, "/data/shared");
  do_move(stage, 12, true, 100, 100);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    penstock_here.pid = (uint32_t)getpid();
    penstock_here.epoch++;
    stage->child();
    do_move(stage, 12, true, 50, 50);
    do_open(stage, 13, "/data/childs");
    _exit(0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  look();
  CHECK_EQ(100, row("/data/shared", MINE)->way[1].bytes);
  CHECK_EQ(1, row("/data/shared", MINE)->opens);
  CHECK_EQ(50, row("/data/shared", (uint32_t)pid)->way[1].bytes);
  CHECK_EQ(0, row("/data/shared", (uint32_t)pid)->opens);
  CHECK_EQ(1, row("/data/childs", (uint32_t)pid)->opens);
  CHECK_EQ(2, seen.process_count);
}

enum { THREADS = 12, TURNS = 2000 };

static void *in_thread(void *arg) {
  int own = 20 + (int)(intptr_t)arg;
  char name[64];
  snprintf(name, sizeof name, "/data/own.%d", own);
  do_open(stage, own, name);
  for (int i = 0; i < TURNS; i++) {
    struct penstock_call call = {.op = OP_WRITE,
                                 .does = PENSTOCK_DOES_WRITE,
                                 .fd = 5,
                                 .fd2 = -1,
                                 .asked = 10,
                                 .result = 10,
                                 .positioned = true,
                                 .offset = i * 10};
    pass(stage, &call);
    do_move(stage, own, true, 20, 20);
  }
  return NULL;
}

static void threads_on_one_file(void) {
  pthread_t thread[THREADS];
  do_open(stage, 5, "/data/together");
  for (intptr_t i = 0; i < THREADS; i++)
    CHECK_EQ(0, pthread_create(&thread[i], NULL, in_thread, (void *)i));
  for (int i = 0; i < THREADS; i++)
    CHECK_EQ(0, pthread_join(thread[i], NULL));
  look();
  const struct penstock_seen_file *f = row("/data/together", MINE);
  CHECK_EQ(THREADS * TURNS, f->way[1].calls);
  CHECK_EQ(THREADS * TURNS * 10, f->way[1].bytes);
  CHECK_EQ(TURNS * 10, f->highest);
  CHECK_EQ(PENSTOCK_THREADS_A_FILE, f->threads);
  CHECK_EQ(10, f->common[0].size);
  CHECK_EQ(THREADS * TURNS, f->common[0].count);
  CHECK_EQ(TURNS * 20, row("/data/own.20", MINE)->way[1].bytes);
  uint64_t sampled = f->way[1].sampled;
  CHECK(sampled > THREADS * TURNS / 64 / 4 && sampled < THREADS * TURNS / 64 * 4 + 16 * THREADS);
}

static void more_files_than_may_be(void) {
  char name[64];
  uint64_t before = seen.total.lost[PENSTOCK_LOST_FILES];
  CHECK_EQ(0, before);
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "/many/%d/file", i % 3);
    snprintf(name + strlen(name), 20, ".%d", i);
    do_open(stage, 14, name);
    do_move(stage, 14, true, 8, 8);
  }
  look();
  uint64_t bytes = 0, summed = 0;
  for (uint32_t i = 0; i < seen.file_count; i++)
    if (strncmp(seen.names[i], "/many/", 6) == 0) {
      bytes += seen.files[i].way[1].bytes;
      summed += seen.files[i].files;
    }
  CHECK_EQ(300 * 8, bytes);
  CHECK(summed > 0);
  CHECK_EQ(summed, seen.total.lost[PENSTOCK_LOST_FILES]);
}

/* A thread that makes few metadata calls has four a second timed all the same, apart from the sums. */
static void timed_when_none_was_for_a_second(void) {
  uint64_t begun_ns = penstock_now_ns(), calls = 0, fresh = 0, sampled;
  for (; fresh < 8 && penstock_now_ns() - begun_ns < UINT64_C(60000000000); calls++) {
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
    do_path(stage, OP_STAT, "/few/none");
    look();
    fresh = seen.processes[0].fresh;
  }
  uint64_t seconds = (penstock_now_ns() - begun_ns) / 1000000000;
  CHECK_EQ(8, fresh);
  CHECK_EQ(1000 * fresh, seen.processes[0].fresh_ns);
  CHECK(fresh <= 4 * (seconds + 1));
  sampled = seen.processes[0].op[OP_STAT].sampled;
  CHECK(sampled < 16 + 4 + calls / 16);
  CHECK_EQ(1000 * sampled, seen.processes[0].op[OP_STAT].time_ns);
}

int main(void) {
  make_board((struct penstock_board_plan){.record_files_max = 200});
  stage->start();
  files_and_moves();
  large_results();
  size_classes();
  names_of_any_length();
  metadata_calls();
  timed_when_none_was_for_a_second();
  two_descriptors();
  inherited_descriptors();
  forks();
  threads_on_one_file();
  more_files_than_may_be();
  CHECK_EQ(0, seen.total.skipped);
  return 0;
}
