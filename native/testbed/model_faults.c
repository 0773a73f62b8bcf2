// SPDX-License-Identifier: Apache-2.0
/* Targets as the allocator and the data path see them, and the commands that operate the model: settings, faults, and
 * what is to be seen of it. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "testbed/model_internal.h"

/* ---- space and states ---- */

uint64_t ost_total(const struct ost *ost) {
  return (uint64_t)ost->v[SET_ost_size];
}

uint64_t ost_free(const struct ost *ost) {
  uint64_t taken = ost->used + ost->ballast;
  return taken < ost_total(ost) ? ost_total(ost) - taken : 0;
}

uint64_t ost_reserved(const struct ost *ost) {
  uint64_t share = (uint64_t)(ost->v[SET_ost_reserved] * (double)ost_total(ost));
  return share > 1 << 20 ? share : 1 << 20;
}

static void set_state(struct ost *ost, uint32_t bits, bool on) {
  if (on)
    atomic_fetch_or(&ost->state, bits);
  else
    atomic_fetch_and(&ost->state, ~bits);
}

/* Full below the reserve, and again free only at twice of it. */
static void space_changed(struct ost *ost) {
  uint64_t left = ost_free(ost);
  if (left < ost_reserved(ost))
    set_state(ost, MODEL_OST_FULL, true);
  else if (left > 2 * ost_reserved(ost) + 1)
    set_state(ost, MODEL_OST_FULL, false);
}

uint32_t model_ost_state(struct model *m, uint32_t ost) {
  uint32_t state = ost < m->ost_count ? atomic_load(&m->osts[ost].state) : MODEL_OST_INACTIVE;
  return state & MODEL_OST_DEAD ? state | MODEL_OST_INACTIVE : state;
}

void model_ost_space(struct model *m, uint32_t ost, struct model_space *ret) {
  pthread_mutex_lock(&m->lock);
  struct ost *o = &m->osts[ost];
  uint64_t objects = (uint64_t)o->v[SET_ost_objects];
  *ret = (struct model_space){.total_bytes = ost_total(o),
                              .free_bytes = ost_free(o),
                              .reserved_bytes = ost_reserved(o),
                              .total_objects = objects,
                              .free_objects = objects > o->objects ? objects - o->objects : 0};
  pthread_mutex_unlock(&m->lock);
}

int model_ost_use(struct model *m, uint32_t ost, int64_t bytes, int64_t objects, bool force) {
  if (ost >= m->ost_count)
    return -EINVAL;
  pthread_mutex_lock(&m->lock);
  struct ost *o = &m->osts[ost];
  bool fits = (bytes <= 0 || (uint64_t)bytes <= ost_free(o)) &&
              (objects <= 0 || o->objects + (uint64_t)objects <= (uint64_t)o->v[SET_ost_objects]);
  if (fits || force) {
    o->used = bytes < 0 && o->used < (uint64_t)-bytes ? 0 : o->used + (uint64_t)bytes;
    o->objects = objects < 0 && o->objects < (uint64_t)-objects ? 0 : o->objects + (uint64_t)objects;
    space_changed(o);
  }
  pthread_mutex_unlock(&m->lock);
  return fits || force ? 0 : -ENOSPC;
}

uint32_t model_oss_of(struct model *m, uint32_t ost) {
  return ost < m->ost_count ? m->osts[ost].oss : 0;
}

void model_mdt_use(struct model *m, int64_t inodes) {
  pthread_mutex_lock(&m->lock);
  m->mdts[0].inodes += inodes;
  pthread_mutex_unlock(&m->lock);
}

/* ---- settings of single servers ---- */

static uint32_t servers_named(const struct model *m, const char *key) {
  return !strncmp(key, "ost", 3) ? m->ost_count : !strncmp(key, "oss", 3) ? m->oss_count : m->mdt_count;
}

static double *values_of(struct model *m, const char *key, long index) {
  return !strncmp(key, "ost", 3) ? m->osts[index].v : !strncmp(key, "oss", 3) ? m->osss[index].v : m->mdts[index].v;
}

int model_set_one(struct model *m, int row, long index, const char *value, char *why, size_t why_size) {
  const char *key = setting_rows[row].key;
  uint32_t servers = servers_named(m, key);
  if (index < 0 || index >= (long)servers) {
    snprintf(why, why_size, "there is no %.3s.%ld: they are numbered from 0 to %u", key, index, servers - 1);
    return -EINVAL;
  }
  if (setting_rows[row].kind == TEXT || setting_rows[row].kind == POINTS) {
    snprintf(why, why_size, "%s holds for all of them: set it without a number", key);
    return -EINVAL;
  }
  return setting_parse(row, value, &values_of(m, key, index)[row], why, why_size);
}

static bool per_server(const char *key) {
  return !strncmp(key, "ost.", 4) || !strncmp(key, "oss.", 4) || !strncmp(key, "mds.", 4);
}

int model_set_all(struct model *m, int row, const char *value, char *why, size_t why_size) {
  const char *key = setting_rows[row].key;
  double scale = m->set.v[SET_time_scale];
  int err = settings_set(&m->set, row, value, why, why_size);
  if (err < 0)
    return err;
  for (uint32_t i = 0; per_server(key) && i < servers_named(m, key); i++)
    values_of(m, key, i)[row] = m->set.v[row];
  if (row == SET_time_scale)
    model_rescale(m, scale);
  if (row == SET_model)
    atomic_store(&m->mode, (unsigned)m->set.v[row]);
  if (row == SET_job_var || row == SET_job_name)
    jobs_forget(m);
  for (uint32_t i = 0; row == SET_mds_seed && i < m->mdt_count; i++)
    m->mdts[i].random = (uint64_t)m->set.v[row] + i;
  return 0;
}

/* ---- faults ---- */

static const struct {
  const char *name;
  uint32_t bit;
} states[] = {{"inactive", MODEL_OST_INACTIVE}, {"no_create", MODEL_OST_NO_CREATE}, {"degraded", MODEL_OST_DEGRADED},
              {"read_only", MODEL_OST_READ_ONLY}, {"dead", MODEL_OST_DEAD}};
enum { STATES = sizeof states / sizeof *states };

int model_set_state(struct model *m, uint32_t ost, const char *name, bool on) {
  for (int i = 0; i < STATES; i++)
    if (!strcmp(states[i].name, name)) {
      set_state(&m->osts[ost], states[i].bit, on);
      return 0;
    }
  return -ENOENT;
}

static void oss_fail(struct model *m, uint32_t oss, bool fails) {
  m->osss[oss].failed = fails;
  for (uint32_t i = 0; i < m->ost_count; i++)
    if (m->osts[i].oss == oss)
      set_state(&m->osts[i], MODEL_OST_DOWN, fails);
  servers_set(m);
}

static void mds_fail(struct model *m, uint32_t mds, bool fails) {
  m->mdts[mds].failed = fails;
  event_cancel(&m->engine, &m->mdts[mds].wakes);
  station_stop(&m->mdts[mds].threads, fails);
}

static void mds_pause(struct model *m, uint32_t mds, uint64_t time) {
  struct mdt *mdt = &m->mdts[mds];
  station_stop(&mdt->threads, true);
  event_set(&m->engine, &mdt->wakes, m->engine.now + time);
}

/* A client that was away for too long has been evicted: what it waited for fails, what it held is gone. */
static void client_cut(struct model *m, uint32_t client, bool cut) {
  struct client *c = &m->clients[client];
  bool evicted = c->cut && !cut && m->engine.now - c->cut_at > (uint64_t)m->set.v[SET_client_evict];
  if (cut && !c->cut)
    c->cut_at = m->engine.now;
  c->cut = cut;
  struct plan *p;
  if (evicted) {
    LIST_FOREACH(p, &m->plans, all)
      if (p->client == client)
        plan_end(m, p, -EIO);
    client_drop(m, client);
  }
  windows_kick(m, client);
}

/* ---- commands ---- */

struct command {
  struct model *m;
  FILE *out;
  char *word[3]; /* what follows the verb */
  int words;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct command *c, const char *form, ...) {
  va_list args;
  va_start(args, form);
  vfprintf(c->out, form, args);
  va_end(args);
  fputc('\n', c->out);
  return -EINVAL;
}

static uint32_t how_many(const struct model *m, const char *kind) {
  return !strcmp(kind, "client") ? MODEL_MAX_CLIENTS : servers_named(m, kind);
}

/* "ost.3" as kind and number; "mds" alone is mds.0. */
static int parse_server(struct command *c, const char *word, char kind[8], uint32_t *ret) {
  size_t length = strcspn(word, ".");
  char *end;
  snprintf(kind, 8, "%.*s", (int)least(length, 7), word);
  if (strcmp(kind, "ost") && strcmp(kind, "oss") && strcmp(kind, "mds") && strcmp(kind, "client"))
    return refuse(c, "%s is not a server: say ost.N, oss.N, mds.N or client.N", word);
  unsigned long number = word[length] ? strtoul(word + length + 1, &end, 10) : 0;
  bool fine = word[length] ? isdigit((unsigned char)word[length + 1]) && !*end : !strcmp(kind, "mds");
  if (!fine || number >= how_many(c->m, kind))
    return refuse(c, "there is no %s: %s are numbered from 0 to %u", word, kind, how_many(c->m, kind) - 1);
  *ret = (uint32_t)number;
  return 0;
}

static int fail_or_heal(struct command *c, bool fails) {
  struct model *m = c->m;
  char kind[8];
  uint32_t n;
  if (!c->words)
    return refuse(c, "say which: ost.N, oss.N, mds.N or client.N");
  if (parse_server(c, c->word[0], kind, &n) < 0)
    return -EINVAL;
  if (!strcmp(kind, "ost")) {
    for (int i = 0; i < STATES && !fails; i++)
      set_state(&m->osts[n], states[i].bit, false);
    if (fails)
      set_state(&m->osts[n], MODEL_OST_DEAD, true);
    if (!fails) {
      m->osts[n].v[SET_ost_slowdown] = m->set.v[SET_ost_slowdown];
      m->osts[n].ballast = 0;
      space_changed(&m->osts[n]);
      servers_set(m);
    }
  } else if (!strcmp(kind, "oss")) {
    oss_fail(m, n, fails);
  } else if (!strcmp(kind, "mds")) {
    if (!fails)
      m->mdts[n].v[SET_mds_slowdown] = m->set.v[SET_mds_slowdown];
    mds_fail(m, n, fails);
  } else {
    client_cut(m, n, fails);
  }
  return 0;
}

static int command_fail(struct command *c) {
  return fail_or_heal(c, true);
}

static int command_heal(struct command *c) {
  char name[24];
  struct model *m = c->m;
  if (c->words && strcmp(c->word[0], "all"))
    return fail_or_heal(c, false);
  static const char *const kinds[] = {"ost", "oss", "mds", "client"};
  for (int k = 0; k < 4; k++)
    for (uint32_t i = 0; i < how_many(m, kinds[k]); i++) {
      snprintf(name, sizeof name, "%s.%u", kinds[k], i);
      c->word[0] = name;
      c->words = 1;
      fail_or_heal(c, false);
    }
  return 0;
}

static int command_fill(struct command *c) {
  char kind[8];
  uint32_t n;
  char *end;
  if (c->words != 2)
    return refuse(c, "say which and how far: fill ost.4 95%%");
  if (parse_server(c, c->word[0], kind, &n) < 0)
    return -EINVAL;
  double percent = strtod(c->word[1], &end);
  if (strcmp(kind, "ost") || end == c->word[1] || strcmp(end, "%") || !(percent >= 0 && percent <= 100))
    return refuse(c, "only an OST can be filled, to 0%% to 100%%: fill ost.4 95%%");
  struct ost *ost = &c->m->osts[n];
  uint64_t wanted = (uint64_t)(percent / 100 * (double)ost_total(ost));
  ost->ballast = wanted > ost->used ? wanted - ost->used : 0;
  space_changed(ost);
  return 0;
}

/* Settings that are no numbers to be kept: a pause, the states of an OST. */
static int set_special(struct command *c, const char *key, const char *value, bool *ret_taken) {
  char kind[8], name[64];
  uint32_t n = 0;
  const char *last = strrchr(key, '.');
  *ret_taken = false;
  if (!last || (size_t)(last - key) >= sizeof name)
    return 0;
  snprintf(name, sizeof name, "%.*s", (int)(last - key), key);
  bool pause = !strncmp(key, "mds", 3) && !strcmp(last, ".pause");
  bool state = false;
  for (int i = 0; i < STATES; i++)
    state |= !strncmp(key, "ost.", 4) && !strcmp(last + 1, states[i].name);
  if (!pause && !state)
    return 0;
  *ret_taken = true;
  if (parse_server(c, name, kind, &n) < 0)
    return -EINVAL;
  if (state) {
    bool on = !strcmp(value, "1") || !strcmp(value, "on") || !strcmp(value, "true");
    if (!on && strcmp(value, "0") && strcmp(value, "off") && strcmp(value, "false"))
      return refuse(c, "%s is on or off, not '%s'", key, value);
    return model_set_state(c->m, n, last + 1, on);
  }
  char why[200];
  double time;
  if (setting_parse(SET_mds_commit, value, &time, why, sizeof why) < 0)
    return refuse(c, "%s is not a time of at most an hour: '%s'", key, value);
  mds_pause(c->m, n, (uint64_t)time);
  return 0;
}

static int command_set(struct command *c) {
  char why[300];
  long index;
  char *equals = c->words ? strchr(c->word[0], '=') : NULL;
  if (!equals)
    return refuse(c, "say what to what: set ost.7.slowdown=10");
  char value[SETTING_TEXT * 2];
  *equals = 0;
  snprintf(value, sizeof value, "%s%s%s", equals + 1, c->words > 1 ? " " : "", c->words > 1 ? c->word[1] : "");
  bool taken;
  int err = set_special(c, c->word[0], value, &taken);
  if (taken)
    return err;
  int row = setting_find(c->word[0], strlen(c->word[0]), &index);
  if (row < 0)
    return refuse(c, "there is no setting %s; `get` lists them", c->word[0]);
  err = index < 0 ? model_set_all(c->m, row, value, why, sizeof why) : model_set_one(c->m, row, index, value, why, sizeof why);
  if (err < 0)
    return refuse(c, "%s", why);
  servers_set(c->m);
  for (uint32_t i = 0; i < c->m->ost_count; i++)
    space_changed(&c->m->osts[i]);
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++)
    windows_kick(c->m, i);
  return 0;
}

static int command_get(struct command *c) {
  struct model *m = c->m;
  char text[SETTING_TEXT];
  const char *prefix = c->words ? c->word[0] : "";
  for (int row = 0; row < SETTINGS; row++) {
    const char *key = setting_rows[row].key;
    setting_show(&m->set, row, m->set.v[row], text, sizeof text);
    if (!strncmp(key, prefix, strlen(prefix)))
      fprintf(c->out, "%s=%s\n", key, text);
    for (uint32_t i = 0; per_server(key) && i < servers_named(m, key); i++) {
      double value = values_of(m, key, i)[row];
      char name[80];
      snprintf(name, sizeof name, "%.3s.%u.%s", key, i, key + 4);
      if (value == m->set.v[row] || strncmp(name, prefix, strlen(prefix)))
        continue;
      setting_show(&m->set, row, value, text, sizeof text);
      fprintf(c->out, "%s=%s\n", name, text);
    }
  }
  return 0;
}

/* The clients that a command is for: one, or all. */
static int client_range(struct command *c, uint32_t *ret_from, uint32_t *ret_to) {
  char *end = NULL;
  unsigned long n = c->words ? strtoul(c->word[0], &end, 10) : 0;
  if (c->words && (*end || end == c->word[0] || n >= MODEL_MAX_CLIENTS))
    return refuse(c, "%s is not the number of a client", c->word[0]);
  *ret_from = (uint32_t)n;
  *ret_to = c->words ? (uint32_t)n + 1 : MODEL_MAX_CLIENTS;
  return 0;
}

static int command_drop(struct command *c) {
  uint32_t from, to;
  if (client_range(c, &from, &to) < 0)
    return -EINVAL;
  for (uint32_t i = from; i < to; i++)
    if (c->m->clients[i].up)
      client_drop(c->m, i);
  return 0;
}

static int command_flush(struct command *c) {
  uint32_t from, to;
  if (client_range(c, &from, &to) < 0)
    return -EINVAL;
  for (uint32_t i = from; i < to; i++)
    client_flush(c->m, i);
  return 0;
}

static int command_dirty(struct command *c) {
  uint32_t from, to;
  uint64_t sum = 0;
  if (client_range(c, &from, &to) < 0)
    return -EINVAL;
  for (uint32_t i = from; i < to; i++)
    sum += client_dirty(c->m, i);
  fprintf(c->out, "%llu\n", (unsigned long long)sum);
  return 0;
}

static int command_counters(struct command *c) {
  uint32_t from, to;
  if (client_range(c, &from, &to) < 0)
    return -EINVAL;
  asked_settle_all(c->m, 0);
  for (int kind = 0; kind < REQUEST_KINDS; kind++) {
    const char *name = request_rows[kind].name;
    uint64_t sum = 0;
    bool told = false;
    for (int other = 0; other < REQUEST_KINDS; other++)
      if (!strcmp(request_rows[other].name, name)) {
        told |= other < kind;
        for (uint32_t i = from; i < to; i++)
          sum += c->m->clients[i].counters[other];
      }
    if (!told)
      fprintf(c->out, "%s %llu\n", name, (unsigned long long)sum);
  }
  return 0;
}

/* What was made slow, full or dead, a line each. */
static int command_trouble(struct command *c) {
  struct model *m = c->m;
  for (uint32_t i = 0; i < m->mdt_count; i++) {
    const struct mdt *mdt = &m->mdts[i];
    if (mdt->failed || mdt->wakes.slot)
      fprintf(c->out, "mds.%u %s\n", i, mdt->failed ? "does not answer" : "is paused");
    if (mdt->v[SET_mds_slowdown] > 1)
      fprintf(c->out, "mds.%u needs %g times as long\n", i, mdt->v[SET_mds_slowdown]);
  }
  for (uint32_t i = 0; i < m->oss_count; i++)
    if (m->osss[i].failed)
      fprintf(c->out, "oss.%u does not answer\n", i);
  for (uint32_t i = 0; i < m->ost_count; i++) {
    const struct ost *ost = &m->osts[i];
    for (int s = 0; s < STATES; s++)
      if (atomic_load(&ost->state) & states[s].bit)
        fprintf(c->out, "ost.%u is %s\n", i, states[s].name);
    if (ost->ballast || atomic_load(&ost->state) & MODEL_OST_FULL)
      fprintf(c->out, "ost.%u is filled to %.0f %%\n", i, 100 - 100.0 * (double)ost_free(ost) / (double)ost_total(ost));
    if (ost->v[SET_ost_slowdown] > 1)
      fprintf(c->out, "ost.%u needs %g times as long\n", i, ost->v[SET_ost_slowdown]);
  }
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++)
    if (m->clients[i].cut)
      fprintf(c->out, "client.%u is cut off\n", i);
  return 0;
}

static int command_prometheus(struct command *c) {
  metrics_prometheus(c->m, c->out);
  return 0;
}

static int command_param(struct command *c) {
  return c->words ? tree_param(c->m, c->word[0], c->out) : refuse(c, "say which: param obdfilter.*.kbytesavail");
}

static int command_write(struct command *c) {
  if (c->words != 2)
    return refuse(c, "say what to what: write obdfilter.*-OST0003.degraded 1");
  return tree_set_param(c->m, c->word[0], c->word[1], c->out);
}

static const struct {
  const char *name;
  int (*run)(struct command *);
  bool changes; /* what the tree of statistics says */
} commands[] = {{"set", command_set, true},       {"get", command_get, false},
                {"fail", command_fail, true},     {"heal", command_heal, true},
                {"fill", command_fill, true},     {"trouble", command_trouble, false},
                {"drop", command_drop, false},    {"flush", command_flush, false},
                {"dirty", command_dirty, false},  {"counters", command_counters, false},
                {"param", command_param, false},  {"write", command_write, true},
                {"prometheus", command_prometheus, false}};

#define VERBS "set, get, fail, heal, fill, trouble, drop, flush, dirty, counters, stats, prometheus, param, write"

static int run_command(struct model *m, char *line, FILE *out, bool *ret_changed) {
  char *rest = NULL;
  char *verb = strtok_r(line, " \t\n", &rest);
  struct command c = {.m = m, .out = out};
  if (!verb)
    return refuse(&c, "say what to do: " VERBS);
  for (char *word; c.words < 3 && (word = strtok_r(NULL, c.words ? "\n" : " \t\n", &rest));)
    c.word[c.words++] = word;
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(commands[i].name, verb)) {
      *ret_changed = commands[i].changes && m->set.v[SET_stats_period] > 0;
      return commands[i].run(&c);
    }
  return refuse(&c, "there is no command %s: " VERBS, verb);
}

int model_command(struct model *m, const char *line, FILE *out) {
  char *copy = strdup(line), *text = NULL;
  size_t size;
  FILE *into = open_memstream(&text, &size); /* `out` may block */
  if (!copy || !into) {
    free(copy);
    return -ENOMEM;
  }
  int err = 0;
  bool changed = false;
  if (!strcmp(copy, "stats")) { /* by itself: it writes files */
    err = tree_write(m);
  } else {
    model_enter(m);
    err = run_command(m, copy, into, &changed);
    model_leave(m);
  }
  if (changed && !err)
    tree_write(m); /* whoever looks next finds it there; the thread that writes it each second tells of failures */
  fclose(into);
  fputs(text, out);
  free(text);
  free(copy);
  return err;
}
