// SPDX-License-Identifier: Apache-2.0
/* The service model in real time: many threads call, each call is answered once, killed callers at once, settings change
 * meanwhile, and nothing is lost at the end. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "testbed/model.h"

enum { CALLERS = 8, CALLS = 200 };

struct reply {
  pthread_mutex_t lock;
  pthread_cond_t cond;
  int answers, err;
};
struct closure {
  struct reply *to;
  uint64_t *token;
  char more[40];
};

static void reply_init(struct reply *r) {
  *r = (struct reply){.answers = 0};
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->cond, NULL);
}
static void answer(void *closure, int err) {
  struct reply *r = ((struct closure *)closure)->to;
  CHECK_STR("as it was given", ((struct closure *)closure)->more);
  pthread_mutex_lock(&r->lock);
  r->answers++;
  r->err = err;
  pthread_cond_signal(&r->cond);
  pthread_mutex_unlock(&r->lock);
}
static void keep_token(void *closure, uint64_t token) {
  *((struct closure *)closure)->token = token;
}
static int wait_reply(struct reply *r) {
  pthread_mutex_lock(&r->lock);
  while (!r->answers)
    pthread_cond_wait(&r->cond, &r->lock);
  CHECK_EQ(1, r->answers);
  int err = r->err;
  pthread_mutex_unlock(&r->lock);
  return err;
}
/* The token, 0 when the answer came inside. */
static uint64_t start(struct model *m, struct model_call call, struct reply *r) {
  uint64_t token = 0;
  struct closure c = {r, &token, "as it was given"};
  reply_init(r);
  call.waits = keep_token;
  model_finish(m, &call, answer, &c, sizeof c);
  return token;
}

static struct model *new_model(const char *settings) {
  char why[300];
  struct model_config config = {.fsname = "test", .mdt_count = 1, .oss_count = 2, .ost_count = 4, .settings = settings};
  struct model *m = model_new(&config, why, sizeof why);
  if (!m)
    fprintf(stderr, "%s\n", why);
  CHECK(m);
  CHECK_EQ(0, model_start(m));
  return m;
}
static void command(struct model *m, const char *line) {
  char text[4096] = "";
  FILE *out = fmemopen(text, sizeof text, "w");
  int err = model_command(m, line, out);
  fclose(out);
  if (err)
    fprintf(stderr, "%s: %s\n", line, text);
  CHECK_EQ(0, err);
}

struct caller {
  struct model *m;
  uint32_t number;
};
static void *call_a_lot(void *arg) {
  struct caller *who = arg;
  static const uint32_t osts[] = {0, 1, 2, 3};
  for (uint64_t i = 0; i < CALLS; i++) {
    struct model_extent x = {(uint32_t)i % 4, (uint32_t)i % 4, i << 16, 1 << 16};
    static const enum model_op ops[] = {MODEL_LOOKUP, MODEL_GETATTR, MODEL_OPEN, MODEL_WRITE, MODEL_READ, MODEL_FLUSH, MODEL_CLOSE,
                                        MODEL_UNLINK, MODEL_FSYNC, MODEL_RENAME, MODEL_READDIR};
    struct model_call call = {.op = ops[i % 11], .client = who->number % 4, .pid = (uint32_t)getpid(), .ino = 2 + i / 11 % 7,
                              .parent = 1, .name = i, .size = 1 << 16, .offset = i << 16, .file_size = 1 << 30,
                              .extents = &x, .extent_count = 1, .osts = osts, .ost_count = 4, .last = i % 2};
    struct reply r;
    start(who->m, call, &r);
    CHECK_EQ(0, wait_reply(&r));
  }
  return NULL;
}

static void test_many_threads(void) {
  struct model *m = new_model("time.scale=0.02\ntime.threads=3\n");
  pthread_t threads[CALLERS];
  struct caller callers[CALLERS];
  for (uint32_t i = 0; i < CALLERS; i++) {
    callers[i] = (struct caller){m, i};
    model_client_up(m, i % 4);
    CHECK_EQ(0, pthread_create(&threads[i], NULL, call_a_lot, &callers[i]));
  }
  for (int i = 0; i < 20; i++) {
    command(m, i % 2 ? "set ost.2.slowdown=3" : "heal ost.2");
    command(m, i % 3 ? "set time.scale=0.01" : "set time.scale=0.02");
    command(m, "counters");
    command(m, i % 2 ? "fail oss.1" : "heal oss.1");
    command(m, "drop 1");
    command(m, "get ost");
    CHECK_EQ(0, model_ost_use(m, 1, 4096, 1, false));
  }
  command(m, "heal all");
  for (int i = 0; i < CALLERS; i++)
    pthread_join(threads[i], NULL);
  model_client_down(m, 2);
  model_free(m);
}

/* A child that sleeps until it is killed: the caller in whose name we wait. */
static pid_t sleeper(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (!pid) {
    signal(SIGUSR1, SIG_IGN);
    for (;;)
      pause();
  }
  return pid;
}

static void test_killed_while_waiting(void) {
  struct model *m = new_model("");
  struct reply r;
  pid_t pid = sleeper();
  command(m, "fail mds");
  struct model_call call = {.op = MODEL_GETSTRIPE, .ino = 3, .pid = (uint32_t)pid};
  uint64_t token = start(m, call, &r);
  CHECK(token);
  model_interrupt(m, token); /* some signal: it is not being killed, so it waits on */
  nanosleep(&(struct timespec){0, 20000000}, NULL);
  pthread_mutex_lock(&r.lock);
  CHECK_EQ(0, r.answers);
  pthread_mutex_unlock(&r.lock);
  kill(pid, SIGKILL); /* nobody tells of this one: it is looked for */
  CHECK_EQ(-EINTR, wait_reply(&r));
  CHECK_EQ(pid, waitpid(pid, NULL, 0));
  call.pid = (uint32_t)pid;
  token = start(m, call, &r);
  model_interrupt(m, token);
  CHECK_EQ(-EINTR, wait_reply(&r));
  model_interrupt(m, token); /* too late */
  model_interrupt(m, 12345);
  model_free(m);
}

static void test_end_answers_all(void) {
  struct model *m = new_model("");
  struct reply r[3];
  command(m, "fail mds");
  for (int i = 0; i < 3; i++)
    start(m, (struct model_call){.op = MODEL_GETSTRIPE, .ino = 3, .pid = 1, .client = (uint32_t)i}, &r[i]);
  model_free(m);
  for (int i = 0; i < 3; i++)
    CHECK_EQ(0, wait_reply(&r[i]));
}

static void test_counting_only_takes_no_time(void) {
  struct model *m = new_model("model=count\n");
  struct reply r;
  start(m, (struct model_call){.op = MODEL_GETSTRIPE, .ino = 3, .pid = 1}, &r);
  CHECK_EQ(1, r.answers); /* inside */
  model_free(m);
}

static void test_partition(void) {
  struct model *m = new_model("client.evict=0\n");
  struct reply r;
  model_client_up(m, 1);
  command(m, "fail client.1");
  start(m, (struct model_call){.op = MODEL_GETSTRIPE, .ino = 3, .pid = 1, .client = 1}, &r);
  struct reply other;
  start(m, (struct model_call){.op = MODEL_GETSTRIPE, .ino = 3, .pid = 1}, &other);
  CHECK_EQ(0, wait_reply(&other));
  CHECK_EQ(0, r.answers);
  command(m, "heal client.1");
  CHECK_EQ(-EIO, wait_reply(&r)); /* it was evicted */
  model_free(m);
}

int main(void) {
  test_many_threads();
  test_killed_while_waiting();
  test_end_answers_all();
  test_counting_only_takes_no_time();
  test_partition();
  return 0;
}
