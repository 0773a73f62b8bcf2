// SPDX-License-Identifier: Apache-2.0
/* The face of the service model: life, the clock, and the threads that give answers.
 *
 * One thread of the pool (the leader) sleeps until the next event is due, the others wait to follow it; whoever makes an
 * earlier event wakes the leader.  Sleeps are absolute and their slack is 1 ns. */
#include "testbed/model_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static const uint64_t WATCH = 100000000; /* how often waiting calls with a signal are looked at, ns of real time */

void *model_alloc(size_t size) {
  void *p = calloc(1, size);
  if (!p) {
    fputs("testbed: out of memory\n", stderr);
    abort();
  }
  return p;
}

/* ---- the clock ---- */

static uint64_t real_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t model_now(struct model *m) {
  if (m->manual)
    return m->base_virtual;
  return m->base_virtual + (uint64_t)((double)(real_now() - m->base_real) / m->set.v[SET_time_scale]);
}

static uint64_t real_of(const struct model *m, uint64_t at) {
  double from_base = (double)(at - m->base_virtual) * m->set.v[SET_time_scale];
  return from_base > 1e18 ? NEVER : m->base_real + (uint64_t)from_base;
}

/* The scale changes: what was due stays due in virtual time. */
void model_rescale(struct model *m, double old_scale) {
  if (m->manual)
    return;
  uint64_t real = real_now();
  m->base_virtual += (uint64_t)((double)(real - m->base_real) / old_scale);
  m->base_real = real;
}

/* ---- answers ---- */

static struct plan *take_ready(struct model *m) {
  struct plan *p = m->ready;
  if (p)
    m->ready = p->next;
  return p;
}

static bool take_this(struct model *m, struct plan *p) {
  struct plan *last = NULL;
  for (struct plan **at = &m->ready; *at; last = *at, at = &(*at)->next)
    if (*at == p) {
      *at = p->next;
      if (m->ready_last == p)
        m->ready_last = last;
      return true;
    }
  return false;
}

/* Gives an answer; the lock is held and is let go for it. */
static void answer(struct model *m, struct plan *p) {
  model_fn fn = p->fn;
  void *closure = p->closure;
  int err = p->err;
  m->watched -= p->watched;
  p->answered = true;
  p->closure = NULL;
  if (p->done) {
    LIST_REMOVE(p, all);
    free(p);
  }
  pthread_mutex_unlock(&m->lock);
  fn(closure, err);
  free(closure);
  pthread_mutex_lock(&m->lock);
}

static void run_to(struct model *m, uint64_t until) {
  while (engine_step(&m->engine, until))
    ;
  if (until > m->engine.now)
    m->engine.now = until;
}

static void wake_pool(struct model *m) {
  if (m->ready)
    pthread_cond_signal(m->led ? &m->lead : &m->follow);
  else if (m->led && engine_next(&m->engine) < m->led_until)
    pthread_cond_signal(&m->lead);
}

void model_enter(struct model *m) {
  pthread_mutex_lock(&m->lock);
  run_to(m, model_now(m));
}

void model_leave(struct model *m) {
  run_to(m, model_now(m));
  wake_pool(m);
  pthread_mutex_unlock(&m->lock);
}

static void sleep_until(struct model *m, uint64_t at) {
  m->led_until = at;
  if (at == NEVER) {
    pthread_cond_wait(&m->lead, &m->lock);
    return;
  }
  uint64_t real = real_of(m, at);
  struct timespec t = {(time_t)(real / 1000000000), (long)(real % 1000000000)};
  if (real == NEVER)
    t = (struct timespec){INT32_MAX, 0};
  pthread_cond_timedwait(&m->lead, &m->lock, &t);
}

static void *pool_thread(void *arg) {
  struct model *m = arg;
  prctl(PR_SET_NAME, "model");
  prctl(PR_SET_TIMERSLACK, 1);
  pthread_mutex_lock(&m->lock);
  while (!m->ending) {
    run_to(m, model_now(m));
    struct plan *p = take_ready(m);
    if (p) {
      if (m->ready)
        pthread_cond_signal(&m->follow);
      answer(m, p);
    } else if (m->led) {
      pthread_cond_wait(&m->follow, &m->lock);
    } else {
      m->led = true;
      sleep_until(m, engine_next(&m->engine));
      m->led = false;
      pthread_cond_signal(&m->follow);
    }
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

/* ---- calls ---- */

/* Whether the call names clients and targets that are there; others are not charged. */
static bool sane(const struct model *m, const struct model_call *call) {
  bool fine = call->client < MODEL_MAX_CLIENTS && call->op < MODEL_OPS;
  for (uint32_t i = 0; fine && i < call->ost_count; i++)
    fine = call->osts[i] < m->ost_count;
  for (uint32_t i = 0; fine && i < call->extent_count; i++)
    fine = call->extents[i].ost < m->ost_count && call->extents[i].stripe < MODEL_MAX_STRIPES;
  return fine;
}

void model_finish(struct model *m, const struct model_call *call, model_fn fn, void *closure, size_t size) {
  if (atomic_load_explicit(&m->mode, memory_order_relaxed) == MODEL_OFF || !sane(m, call)) {
    fn(closure, 0);
    return;
  }
  struct jobid *who = job_of(m, call);
  struct build b = {.m = m, .call = call, .who = who};
  model_enter(m);
  rules(&b);
  struct plan *p = b.plan;
  if (!p) {
    model_leave(m);
    fn(closure, 0);
    return;
  }
  p->fn = fn;
  p->closure = model_alloc(size ? size : 1);
  memcpy(p->closure, closure, size);
  if (call->waits) {
    pthread_mutex_unlock(&m->lock);
    call->waits(closure, p->token);
    pthread_mutex_lock(&m->lock);
  }
  bool killed = p->over;
  plan_begin(m, p);
  if (!killed) {
    run_to(m, model_now(m));
    if (take_this(m, p)) /* nothing of it took time */
      answer(m, p);
  }
  wake_pool(m);
  pthread_mutex_unlock(&m->lock);
}

static struct plan *plan_by_token(struct model *m, uint64_t token) {
  struct plan *p = m->tokens[token % TOKEN_CHAINS];
  while (p && p->token != token)
    p = p->next_token;
  return p;
}

/* A set of signals out of /proc/PID/status. */
static uint64_t signals(const char *status, const char *name) {
  const char *at = strstr(status, name);
  return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

#define SIGNAL(number) (1ull << ((number)-1))

/* Whether a thread is being killed, or is gone.  A second signal is not made into SIGKILL by the kernel: one that is
 * neither caught nor ignored nor blocked, and ends a process, counts too. */
static bool dying(uint32_t pid) {
  static const uint64_t harmless = SIGNAL(SIGCHLD) | SIGNAL(SIGCONT) | SIGNAL(SIGURG) | SIGNAL(SIGWINCH) |
                                   SIGNAL(SIGSTOP) | SIGNAL(SIGTSTP) | SIGNAL(SIGTTIN) | SIGNAL(SIGTTOU);
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/%u/status", pid);
  int fd = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0)
    return true;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  text[size > 0 ? size : 0] = 0;
  uint64_t pending = signals(text, "SigPnd:") | signals(text, "ShdPnd:");
  uint64_t kept = signals(text, "SigCgt:") | signals(text, "SigIgn:") | signals(text, "SigBlk:") | harmless;
  return pending & (SIGNAL(SIGKILL) | ~kept);
}

void model_interrupt(struct model *m, uint64_t token) {
  pthread_mutex_lock(&m->lock);
  struct plan *p = plan_by_token(m, token);
  uint32_t pid = p ? p->pid : 0;
  pthread_mutex_unlock(&m->lock);
  if (!p)
    return;
  bool dies = dying(pid);
  pthread_mutex_lock(&m->lock);
  p = plan_by_token(m, token);
  if (p && dies) {
    plan_end(m, p, -EINTR);
  } else if (p && !p->watched) { /* a later signal is not told: look again from time to time */
    p->watched = true;
    m->watched++;
    if (!m->background.slot)
      event_set(&m->engine, &m->background, m->engine.now + (uint64_t)((double)WATCH / m->set.v[SET_time_scale]));
  }
  model_leave(m);
}

/* Reading /proc under the lock is allowed here only: status takes no lock of the process. */
static void look_at_watched(struct event *event) {
  struct model *m = owner_of(event, struct model, background);
  struct plan *p;
  LIST_FOREACH(p, &m->plans, all)
    if (p->watched && !p->over && dying(p->pid))
      plan_end(m, p, -EINTR);
  if (m->watched)
    event_set(&m->engine, event, m->engine.now + (uint64_t)((double)WATCH / m->set.v[SET_time_scale]));
}

int model_refuses(struct model *m, const struct model_call *call) {
  if (atomic_load_explicit(&m->mode, memory_order_relaxed) == MODEL_OFF)
    return 0;
  bool changes = call->op == MODEL_WRITE || call->op == MODEL_FALLOCATE || call->op == MODEL_TRUNCATE;
  uint32_t all = 0;
  for (uint32_t i = 0; i < call->extent_count; i++)
    all |= atomic_load_explicit(&m->osts[call->extents[i].ost].state, memory_order_relaxed);
  bool whole = call->op == MODEL_FSYNC || call->op == MODEL_TRUNCATE;
  for (uint32_t i = 0; whole && i < call->ost_count; i++)
    all |= atomic_load_explicit(&m->osts[call->osts[i]].state, memory_order_relaxed);
  if (all & MODEL_OST_DEAD)
    return -EIO;
  return changes && all & MODEL_OST_READ_ONLY ? -EROFS : 0;
}

uint64_t model_name(const char *name) {
  uint64_t h = 0xcbf29ce484222325; /* FNV-1a */
  for (; *name; name++)
    h = (h ^ (uint8_t)*name) * 0x100000001b3;
  return h ? h : 1;
}

void model_client_up(struct model *m, uint32_t client) {
  if (client >= MODEL_MAX_CLIENTS)
    return;
  pthread_mutex_lock(&m->lock);
  m->clients[client].up = true;
  pthread_mutex_unlock(&m->lock);
}

void model_client_down(struct model *m, uint32_t client) {
  if (client >= MODEL_MAX_CLIENTS)
    return;
  model_enter(m);
  m->clients[client].up = m->clients[client].cut = false;
  client_flush(m, client);
  client_drop(m, client);
  windows_kick(m, client);
  model_leave(m);
}

/* ---- life ---- */

/* Rows of the same text that are for others: how files are laid out. */
static bool not_ours(const char *line) {
  return !strncmp(line, "layout.", 7) || !strncmp(line, "pool.", 5);
}

static int read_settings(struct model *m, const char *text, char *why, size_t why_size) {
  while (text && *text) {
    size_t length = strcspn(text, "\n");
    const char *equals = memchr(text, '=', length);
    char value[SETTING_TEXT];
    long index;
    if (length && !equals) {
      snprintf(why, why_size, "not a setting: %.*s", (int)length, text);
      return -EINVAL;
    }
    if (length && !not_ours(text)) {
      int row = setting_find(text, (size_t)(equals - text), &index);
      size_t size = length - (size_t)(equals + 1 - text);
      if (row < 0 || size >= sizeof value) {
        snprintf(why, why_size, "unknown setting: %.*s", (int)(equals - text), text);
        return -EINVAL;
      }
      memcpy(value, equals + 1, size);
      value[size] = 0;
      if (index < 0 && settings_set(&m->set, row, value, why, why_size) < 0)
        return -EINVAL;
    }
    text += length + (text[length] == '\n');
  }
  return 0;
}

/* Those of single servers, once there are servers. */
static int read_single_settings(struct model *m, const char *text, char *why, size_t why_size) {
  while (text && *text) {
    size_t length = strcspn(text, "\n");
    size_t key = strcspn(text, "=");
    char value[SETTING_TEXT] = "";
    long index;
    int row = setting_find(text, key, &index);
    if (row >= 0 && index >= 0 && length - key <= sizeof value) {
      memcpy(value, text + key + 1, length - key - 1);
      if (model_set_one(m, row, index, value, why, why_size) < 0)
        return -EINVAL;
    }
    text += length + (text[length] == '\n');
  }
  servers_set(m);
  return 0;
}

static bool possible(const struct model_config *c, char *why, size_t why_size) {
  if (!c->mdt_count || c->mdt_count > 64)
    snprintf(why, why_size, "there must be 1 to 64 metadata targets, not %u", c->mdt_count);
  else if (!c->ost_count || c->ost_count > MODEL_MAX_OSTS)
    snprintf(why, why_size, "there must be 1 to %d OSTs, not %u", MODEL_MAX_OSTS, c->ost_count);
  else if (!c->oss_count || c->oss_count > c->ost_count)
    snprintf(why, why_size, "there must be 1 to %u object servers (one OST each at least), not %u", c->ost_count, c->oss_count);
  else if (!c->fsname || !*c->fsname || strlen(c->fsname) > 8)
    snprintf(why, why_size, "the file system's name must have 1 to 8 characters: '%s'", c->fsname ? c->fsname : "");
  else
    return true;
  return false;
}

struct model *model_new(const struct model_config *config, char *why, size_t why_size) {
  if (!possible(config, why, why_size))
    return NULL;
  struct model *m = model_alloc(sizeof *m);
  settings_init(&m->set);
  if (read_settings(m, config->settings, why, why_size) < 0) {
    free(m);
    return NULL;
  }
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->lead, &attr);
  pthread_cond_init(&m->follow, &attr);
  pthread_cond_init(&m->write_next, &attr);
  pthread_mutex_init(&m->writing, NULL);
  pthread_condattr_destroy(&attr);
  snprintf(m->fsname, sizeof m->fsname, "%s", config->fsname);
  m->state_dir = config->state_dir ? strdup(config->state_dir) : NULL;
  m->mdt_count = config->mdt_count;
  m->oss_count = config->oss_count;
  m->ost_count = config->ost_count;
  atomic_store(&m->mode, (unsigned)m->set.v[SET_model]);
  m->clients = model_alloc(MODEL_MAX_CLIENTS * sizeof *m->clients);
  m->tokens = model_alloc(TOKEN_CHAINS * sizeof *m->tokens);
  m->background.fire = look_at_watched;
  m->base_real = real_now();
  m->born_s = (uint64_t)time(NULL);
  m->jobs = jobs_new();
  jobs_forget(m);
  LIST_INIT(&m->plans);
  LIST_INIT(&m->requests);
  locks_init(m);
  servers_init(m, config->oss_of);
  if (read_single_settings(m, config->settings, why, why_size) < 0) {
    model_free(m);
    return NULL;
  }
  return m;
}

int model_start(struct model *m) {
  uint32_t wanted = (uint32_t)m->set.v[SET_time_threads] + 1;
  m->threads = model_alloc(wanted * sizeof *m->threads);
  for (; m->thread_count < wanted; m->thread_count++) {
    int err = pthread_create(&m->threads[m->thread_count], NULL, m->thread_count ? pool_thread : stats_thread, m);
    if (err)
      return -err;
  }
  return 0;
}

static void free_clients(struct model *m) {
  for (uint32_t c = 0; c < MODEL_MAX_CLIENTS; c++) {
    struct client *client = &m->clients[c];
    for (uint32_t i = 0; client->oscs && i < m->ost_count; i++)
      free(client->oscs[i]);
    free(client->oscs);
    free(client->mdc);
  }
  free(m->clients);
}

void model_free(struct model *m) {
  if (!m)
    return;
  pthread_mutex_lock(&m->lock);
  m->ending = true;
  pthread_cond_broadcast(&m->lead);
  pthread_cond_broadcast(&m->follow);
  pthread_cond_broadcast(&m->write_next);
  pthread_mutex_unlock(&m->lock);
  for (uint32_t i = 0; i < m->thread_count; i++)
    pthread_join(m->threads[i], NULL);
  pthread_mutex_lock(&m->lock);
  struct plan *p;
  LIST_FOREACH(p, &m->plans, all)
    plan_end(m, p, 0);
  while ((p = take_ready(m)))
    answer(m, p);
  pthread_mutex_unlock(&m->lock);
  locks_free(m);
  while ((p = LIST_FIRST(&m->plans))) {
    LIST_REMOVE(p, all);
    free(p);
  }
  for (struct request *r; (r = LIST_FIRST(&m->requests)); free(r)) {
    LIST_REMOVE(r, all);
    for (struct waiter *w; (w = r->waiters); free(w))
      r->waiters = w->next;
  }
  free_clients(m);
  servers_free(m);
  jobs_free(m->jobs);
  tree_free(m);
  engine_free(&m->engine);
  free(m->tokens);
  free(m->threads);
  for (uint32_t i = 0; i < m->pool_count; i++)
    free(m->pools[i].text);
  free(m->state_dir);
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->lead);
  pthread_cond_destroy(&m->follow);
  pthread_cond_destroy(&m->write_next);
  pthread_mutex_destroy(&m->writing);
  free(m);
}

/* ---- for tests ---- */

void model_manual(struct model *m) {
  m->manual = true;
}

uint64_t model_manual_run(struct model *m, uint64_t until, bool once) {
  pthread_mutex_lock(&m->lock);
  for (;;) {
    struct plan *p = take_ready(m);
    if (p) {
      m->base_virtual = m->engine.now;
      answer(m, p);
      if (once && !m->ready)
        break;
    } else if (!engine_step(&m->engine, until)) {
      m->engine.now = until > m->engine.now ? until : m->engine.now;
      break;
    }
  }
  m->base_virtual = m->engine.now;
  pthread_mutex_unlock(&m->lock);
  return m->base_virtual;
}
