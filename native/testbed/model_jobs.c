// SPDX-License-Identifier: Apache-2.0
/* Whose call it is: the job id that a Lustre client would send, from job.var and job.name.
 *
 * A thread's id is kept with the time it was started; that time is looked at again once a second, so a pid that was used
 * anew is noticed.  The environment is read only for calls that name files: for a call that moves data the caller may
 * hold the lock on its memory that reading /proc/PID/environ takes, so then the id of its process, of its parent, or none
 * is used. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "testbed/model_internal.h"

enum { THREADS = 4096, CHAINS = 1024 };

struct known {
  uint32_t pid;
  bool sure;         /* its own environment was read */
  uint64_t started;  /* clock ticks since boot */
  time_t looked;
  uint32_t settings; /* of which it is the outcome */
  struct jobid *job;
};

struct jobs {
  pthread_mutex_t lock;
  struct known threads[THREADS];
  struct jobid *chains[CHAINS];
  uint32_t count, settings;
  char var[SETTING_TEXT], name[SETTING_TEXT];
};

struct jobs *jobs_new(void) {
  struct jobs *j = model_alloc(sizeof *j);
  pthread_mutex_init(&j->lock, NULL);
  j->settings = 1;
  return j;
}

void jobs_free(struct jobs *j) {
  for (uint32_t i = 0; i < CHAINS; i++)
    for (struct jobid *id; (id = j->chains[i]); free(id))
      j->chains[i] = id->next;
  pthread_mutex_destroy(&j->lock);
  free(j);
}

/* job.var or job.name changed; m->lock is held. */
void jobs_forget(struct model *m) {
  struct jobs *j = m->jobs;
  pthread_mutex_lock(&j->lock);
  snprintf(j->var, sizeof j->var, "%s", m->set.text[SET_job_var]);
  snprintf(j->name, sizeof j->name, "%s", m->set.text[SET_job_name]);
  j->settings++;
  pthread_mutex_unlock(&j->lock);
}

static ssize_t read_proc(uint32_t pid, const char *file, char *text, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/%s", pid, file);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  size_t got = 0;
  for (ssize_t n; got < size - 1 && (n = read(fd, text + got, size - 1 - got)) > 0;)
    got += (size_t)n;
  close(fd);
  text[got] = 0;
  return (ssize_t)got;
}

struct process {
  char command[16];
  uint32_t parent, session;
  uint64_t started;
};

static bool look(uint32_t pid, struct process *ret) {
  char text[1024];
  if (!pid || read_proc(pid, "stat", text, sizeof text) <= 0)
    return false;
  char *open = strchr(text, '('), *close = strrchr(text, ')');
  unsigned parent, session;
  unsigned long long started;
  if (!open || !close || close < open ||
      sscanf(close + 1, " %*c %u %*d %u %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &parent, &session,
             &started) != 3)
    return false;
  *close = 0;
  snprintf(ret->command, sizeof ret->command, "%.15s", open + 1);
  ret->parent = parent;
  ret->session = session;
  ret->started = started;
  return true;
}

/* The value of a variable in a process's environment; false if it cannot be told. */
static bool variable(uint32_t pid, const char *name, char *ret, size_t size) {
  enum { ROOM = 256 << 10 };
  char *text = malloc(ROOM);
  ssize_t got = text ? read_proc(pid, "environ", text, ROOM) : -1;
  size_t length = strlen(name);
  bool found = false;
  for (ssize_t at = 0; at < got && !found; at += (ssize_t)strlen(text + at) + 1)
    if (!strncmp(text + at, name, length) && text[at + (ssize_t)length] == '=') {
      snprintf(ret, size, "%s", text + at + length + 1);
      found = true;
    }
  free(text);
  return found;
}

static void put(char *ret, size_t size, const char *text) {
  size_t at = strlen(ret);
  snprintf(ret + at, size - at, "%s", text);
}

/* job.name with its codes filled in. */
static void expand(const char *form, const char *value, const struct process *p, const struct model_call *call, char *ret,
                   size_t size) {
  char word[256], host[128] = "";
  gethostname(host, sizeof host - 1);
  ret[0] = 0;
  for (const char *at = form; *at; at++) {
    snprintf(word, sizeof word, "%c", *at);
    if (*at == '%' && at[1]) {
      switch (*++at) {
        case 'e': snprintf(word, sizeof word, "%s", p->command); break;
        case 'g': snprintf(word, sizeof word, "%u", call->gid); break;
        case 'h': snprintf(word, sizeof word, "%s", host); break;
        case 'H': snprintf(word, sizeof word, "%.*s", (int)strcspn(host, "."), host); break;
        case 'j': snprintf(word, sizeof word, "%s", value); break;
        case 'p': snprintf(word, sizeof word, "%u", call->pid); break;
        case 'u': snprintf(word, sizeof word, "%u", call->uid); break;
        default: word[0] = 0;
      }
    }
    put(ret, size, word);
  }
}

static struct jobid *intern(struct jobs *j, const char *name) {
  if (!*name)
    return NULL;
  struct jobid **chain = &j->chains[model_name(name) % CHAINS];
  for (struct jobid *id = *chain; id; id = id->next)
    if (!strcmp(id->name, name))
      return id;
  struct jobid *id = model_alloc(sizeof *id);
  snprintf(id->name, sizeof id->name, "%s", name);
  id->number = ++j->count;
  id->next = *chain;
  *chain = id;
  return id;
}

static bool moves_data(enum model_op op) {
  return op == MODEL_READ || op == MODEL_WRITE || op == MODEL_INSTANTIATE || op == MODEL_CLOSE || op == MODEL_FLUSH;
}

static struct known *slot(struct jobs *j, uint32_t pid) {
  return &j->threads[mix(pid, 7) % THREADS];
}

struct form {
  char var[SETTING_TEXT], name[SETTING_TEXT];
  uint32_t settings;
};

/* The id by the settings; `sure` = false when the environment could not be looked at now. */
static void name_of(const struct form *f, const struct model_call *call, const struct process *p, char *ret, size_t size,
                    bool *sure) {
  char value[128] = "";
  *sure = true;
  ret[0] = 0;
  if (!strcmp(f->var, "disable") || !strcmp(f->var, "")) {
  } else if (!strcmp(f->var, "procname_uid")) {
    snprintf(ret, size, "%s.%u", p->command, call->uid);
  } else if (!strcmp(f->var, "nodelocal")) {
    expand(f->name, "", p, call, ret, size);
  } else if (!strcmp(f->var, "session")) {
    snprintf(ret, size, "%u", p->session);
  } else if (moves_data(call->op)) {
    *sure = false;
  } else if (variable(call->pid, f->var, value, sizeof value)) {
    if (strstr(f->name, "%j"))
      expand(f->name, value, p, call, ret, size);
    else
      snprintf(ret, size, "%.31s", value);
  } else {
    expand(strstr(f->name, "%j") ? "" : f->name, "", p, call, ret, size);
  }
}

struct jobid *job_of(struct model *m, const struct model_call *call) {
  struct jobs *j = m->jobs;
  if (!call->pid)
    return NULL;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  pthread_mutex_lock(&j->lock);
  struct known *k = slot(j, call->pid);
  bool fits = k->pid == call->pid && k->settings == j->settings && (k->sure || moves_data(call->op));
  struct jobid *job = k->job;
  bool fresh = fits && k->looked == now.tv_sec;
  struct known old = *k;
  struct form f = {.settings = j->settings};
  snprintf(f.var, sizeof f.var, "%s", j->var);
  snprintf(f.name, sizeof f.name, "%s", j->name);
  pthread_mutex_unlock(&j->lock);
  if (fresh || !strcmp(f.var, "disable"))
    return fresh ? job : NULL;

  struct process p;
  char name[32];
  bool sure;
  if (!look(call->pid, &p))
    return fits ? job : NULL;
  bool same = fits && old.started == p.started;
  if (!same)
    name_of(&f, call, &p, name, sizeof name, &sure);
  pthread_mutex_lock(&j->lock);
  if (same) {
    k = slot(j, call->pid);
    if (k->pid == call->pid)
      k->looked = now.tv_sec;
  } else {
    struct known *parent = slot(j, p.parent);
    job = sure ? intern(j, name) : parent->pid == p.parent && parent->settings == f.settings ? parent->job : NULL;
    *slot(j, call->pid) = (struct known){call->pid, sure, p.started, now.tv_sec, f.settings, job};
  }
  pthread_mutex_unlock(&j->lock);
  return job;
}
