// SPDX-License-Identifier: Apache-2.0
/* Lustre's parameters: STATE_DIR/sys/fs/lustre/GROUP/INSTANCE/NAME, and GROUP.INSTANCE.NAME for get_param and set_param.
 * One table says which there are, what they show, and what writing them does.
 *
 * The tree is written every stats.period, and when asked; a file is written (beside, then renamed) only when its text
 * changed, times aside.  Of the first MAX_TREES clients all is written, of the others it can be asked for. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "testbed/model_internal.h"

enum { MAX_TREES = 16, NAME = 160 };
typedef unsigned long long ull;

/* An instance of a group: which OST, MDT, client it is about. */
struct place {
  struct model *m;
  uint32_t ost, mdt, client;
};
struct param {
  const char *name;
  void (*show)(const struct place *, FILE *);
  int (*store)(const struct place *, const char *); /* NULL: it cannot be written */
};

/* ---- values ---- */

#define SHOW(name, form, ...) \
  static void show_##name(const struct place *p, FILE *out) { \
    (void)p; \
    fprintf(out, form "\n", __VA_ARGS__); \
  }
#define OST (&p->m->osts[p->ost])
#define SETTING_OF(name) (p->m->set.v[SET_##name])

SHOW(kbytestotal, "%llu", (ull)ost_total(OST) / 1024)
SHOW(kbytesfree, "%llu", (ull)ost_free(OST) / 1024)
SHOW(kbytesavail, "%llu", (ull)ost_free(OST) / 1024)
SHOW(filestotal, "%llu", (ull)OST->v[SET_ost_objects])
SHOW(filesfree, "%llu", (ull)(OST->v[SET_ost_objects] > (double)OST->objects ? OST->v[SET_ost_objects] - (double)OST->objects : 0))
SHOW(degraded, "%d", !!(atomic_load(&OST->state) & MODEL_OST_DEGRADED))
SHOW(no_create, "%d", !!(atomic_load(&OST->state) & MODEL_OST_NO_CREATE))
SHOW(readonly, "%d", !!(atomic_load(&OST->state) & MODEL_OST_READ_ONLY))
SHOW(active, "%d", !(atomic_load(&OST->state) & MODEL_OST_INACTIVE))
SHOW(max_create_count, "%d", atomic_load(&OST->state) & MODEL_OST_NO_CREATE ? 0 : 20000)
SHOW(create_count, "%.0f", SETTING_OF(mds_precreate))
SHOW(reserved_mb_low, "%llu", (ull)ost_reserved(OST) >> 20)
SHOW(reserved_mb_high, "%llu", ((ull)ost_reserved(OST) >> 20) * 2 + 1)
SHOW(maxage, "%d", 5)
SHOW(one, "%d", 1)
SHOW(max_rpcs_in_flight, "%.0f", SETTING_OF(client_rpcs))
SHOW(max_mod_rpcs_in_flight, "%.0f", SETTING_OF(client_mod_rpcs))
SHOW(max_pages_per_rpc, "%.0f", SETTING_OF(client_rpc_size) / 4096)
SHOW(max_dirty_mb, "%.0f", SETTING_OF(client_max_dirty) / 1048576)
SHOW(idle_timeout, "%d", 20)
SHOW(ost_conn_uuid, "oss%u@tcp", OST->oss)
SHOW(max_read_ahead_mb, "%.0f", SETTING_OF(client_cache) / 1048576)
SHOW(max_read_ahead_per_file_mb, "%.0f", SETTING_OF(client_read_ahead) / 1048576)
SHOW(max_read_ahead_whole_mb, "%.0f", SETTING_OF(client_read_whole) / 1048576)
SHOW(statahead_batch_max, "%.0f", SETTING_OF(client_statahead))
SHOW(stat_blocksize, "%d", 4194304)
SHOW(enable_setstripe_gid, "%d", -1)
SHOW(numobd, "%u", p->m->ost_count)
SHOW(job_cleanup_interval, "%d", 0)
SHOW(jobid_var, "%s", p->m->set.text[SET_job_var])
SHOW(jobid_name, "%s", p->m->set.text[SET_job_name])
/* The MDT's own space is not modelled: 64 GiB for names and attributes. */
SHOW(mdt_kbytestotal, "%llu", 64ull << 20)
SHOW(mdt_kbytesfree, "%lld", (64ll << 20) - p->m->mdts[p->mdt].inodes * 4)
SHOW(mdt_filestotal, "%llu", 16ull << 20)
SHOW(mdt_filesfree, "%lld", (16ll << 20) - (long long)p->m->mdts[p->mdt].inodes)

static void show_prealloc_status(const struct place *p, FILE *out) {
  uint32_t state = atomic_load(&OST->state);
  int status = state & MODEL_OST_DEAD ? -EIO : state & MODEL_OST_DOWN ? -ENOTCONN : state & MODEL_OST_FULL ? -ENOSPC : 0;
  fprintf(out, "%d\n", status);
}

static const struct osc *osc_at(const struct place *p) {
  static const struct osc nothing;
  struct client *c = &p->m->clients[p->client];
  return c->oscs && c->oscs[p->ost] ? c->oscs[p->ost] : &nothing;
}
SHOW(cur_dirty_bytes, "%llu", (ull)osc_at(p)->dirty)
SHOW(cur_grant_bytes, "%llu", (ull)osc_at(p)->grant)

static bool usable(const struct place *p, uint32_t ost) {
  return !(atomic_load(&p->m->osts[ost].state) & MODEL_OST_INACTIVE);
}
static void show_activeobd(const struct place *p, FILE *out) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->m->ost_count; i++)
    count += usable(p, i);
  fprintf(out, "%u\n", count);
}
static void target_list(const struct place *p, FILE *out, bool all) {
  for (uint32_t i = 0; i < p->m->ost_count; i++)
    fprintf(out, "%u: %s-OST%04x_UUID %s\n", i, p->m->fsname, i, all || usable(p, i) ? "ACTIVE" : "INACTIVE");
}
static void show_target_obd(const struct place *p, FILE *out) {
  target_list(p, out, false);
}
/* A client does not learn what is inactive at the MDS only. */
static void show_client_target_obd(const struct place *p, FILE *out) {
  target_list(p, out, true);
}
static void show_import(const struct place *p, FILE *out) {
  fprintf(out, "import:\n    name: %s-OST%04x-osc-ffff8881%08x\n    target: %s-OST%04x_UUID\n    state: %s\n", p->m->fsname, p->ost,
          p->client, p->m->fsname, p->ost, atomic_load(&OST->state) & MODEL_OST_DOWN ? "DISCONN" : "FULL");
}
static void show_state(const struct place *p, FILE *out) {
  fprintf(out, "current_state: %s\n", atomic_load(&OST->state) & MODEL_OST_DOWN ? "DISCONN" : "FULL");
}

static void show_ost_stats(const struct place *p, FILE *out) {
  text_stats(p->m, &OST->stats, false, out);
}
static void show_ost_jobs(const struct place *p, FILE *out) {
  text_job_stats(p->m, &OST->stats, false, out);
}
static void show_brw_stats(const struct place *p, FILE *out) {
  text_brw_stats(p->m, OST, out);
}
static void show_md_stats(const struct place *p, FILE *out) {
  text_stats(p->m, &p->m->mdts[p->mdt].stats, true, out);
}
static void show_md_jobs(const struct place *p, FILE *out) {
  text_job_stats(p->m, &p->m->mdts[p->mdt].stats, true, out);
}
static void show_osc_stats(const struct place *p, FILE *out) {
  text_osc_stats(p->m, osc_at(p), out);
}
static void show_rpc_stats(const struct place *p, FILE *out) {
  text_rpc_stats(p->m, osc_at(p), out);
}

/* ---- writing ---- */

static int store_flag(const struct place *p, const char *state, const char *value, const char *on, const char *off) {
  if (strcmp(value, on) && strcmp(value, off))
    return -EINVAL;
  return model_set_state(p->m, p->ost, state, !strcmp(value, on));
}
static int store_degraded(const struct place *p, const char *value) {
  return store_flag(p, "degraded", value, "1", "0");
}
static int store_no_create(const struct place *p, const char *value) {
  return store_flag(p, "no_create", value, "1", "0");
}
static int store_readonly(const struct place *p, const char *value) {
  return store_flag(p, "read_only", value, "1", "0");
}
static int store_active(const struct place *p, const char *value) {
  return store_flag(p, "inactive", value, "0", "1");
}
static int store_max_create_count(const struct place *p, const char *value) {
  char *end;
  unsigned long count = strtoul(value, &end, 10);
  return end == value || *end || count > 20000 ? -EINVAL : model_set_state(p->m, p->ost, "no_create", count == 0);
}
static int store_setting(const struct place *p, int row, const char *value, const char *unit) {
  char text[SETTING_TEXT], why[200];
  snprintf(text, sizeof text, "%s%s", value, unit);
  return model_set_all(p->m, row, text, why, sizeof why);
}
static int store_max_rpcs(const struct place *p, const char *value) {
  return store_setting(p, SET_client_rpcs, value, "");
}
static int store_max_mod_rpcs(const struct place *p, const char *value) {
  return store_setting(p, SET_client_mod_rpcs, value, "");
}
static int store_max_dirty(const struct place *p, const char *value) {
  return store_setting(p, SET_client_max_dirty, value, "MiB");
}
static int store_read_ahead(const struct place *p, const char *value) {
  return store_setting(p, SET_client_read_ahead, value, "MiB");
}
static int store_read_whole(const struct place *p, const char *value) {
  return store_setting(p, SET_client_read_whole, value, "MiB");
}
static int store_statahead(const struct place *p, const char *value) {
  return store_setting(p, SET_client_statahead, value, "");
}
static int store_jobid_var(const struct place *p, const char *value) {
  return store_setting(p, SET_job_var, value, "");
}
static int store_jobid_name(const struct place *p, const char *value) {
  return store_setting(p, SET_job_name, value, "");
}

static void clear_jobs(struct stats *s) {
  stats_free(s);
  s->jobs = NULL;
  s->changed = true;
}
static void clear_lines(struct model *m, struct stats *s) {
  struct jobstat *jobs = s->jobs;
  s->jobs = NULL;
  stats_clear(m, s);
  s->jobs = jobs;
}
static int clear_ost(const struct place *p, const char *value) {
  (void)value;
  clear_lines(p->m, &OST->stats);
  return 0;
}
static int clear_ost_jobs(const struct place *p, const char *value) {
  (void)value;
  clear_jobs(&OST->stats);
  return 0;
}
static int clear_brw(const struct place *p, const char *value) {
  (void)value;
  OST->pages = OST->sizes = OST->in_flight = OST->times = (struct histogram){0};
  OST->cleared = p->m->engine.now;
  return 0;
}
static int clear_md(const struct place *p, const char *value) {
  (void)value;
  clear_lines(p->m, &p->m->mdts[p->mdt].stats);
  return 0;
}
static int clear_md_jobs(const struct place *p, const char *value) {
  (void)value;
  clear_jobs(&p->m->mdts[p->mdt].stats);
  return 0;
}
static int clear_osc(const struct place *p, const char *value) {
  (void)value;
  struct osc *osc = osc_of(p->m, p->client, p->ost);
  osc->pages = osc->in_flight = osc->times = (struct histogram){0};
  memset(osc->bytes, 0, sizeof osc->bytes);
  memset(osc->took, 0, sizeof osc->took);
  osc->cleared = p->m->engine.now;
  return 0;
}

/* ---- the table ---- */

#define SPACE \
  {"kbytestotal", show_kbytestotal, NULL}, {"kbytesfree", show_kbytesfree, NULL}, {"kbytesavail", show_kbytesavail, NULL}, \
    {"filestotal", show_filestotal, NULL}, {"filesfree", show_filesfree, NULL}

static const struct param of_obdfilter[] = {SPACE,
                                            {"stats", show_ost_stats, clear_ost},
                                            {"job_stats", show_ost_jobs, clear_ost_jobs},
                                            {"job_cleanup_interval", show_job_cleanup_interval, NULL},
                                            {"degraded", show_degraded, store_degraded},
                                            {"no_create", show_no_create, store_no_create},
                                            {"readonly", show_readonly, store_readonly},
                                            {NULL, NULL, NULL}};
static const struct param of_osd[] = {SPACE, {"brw_stats", show_brw_stats, clear_brw}, {NULL, NULL, NULL}};
static const struct param of_osp[] = {SPACE,
                                      {"active", show_active, store_active},
                                      {"create_count", show_create_count, NULL},
                                      {"max_create_count", show_max_create_count, store_max_create_count},
                                      {"reserved_mb_low", show_reserved_mb_low, NULL},
                                      {"reserved_mb_high", show_reserved_mb_high, NULL},
                                      {"prealloc_status", show_prealloc_status, NULL},
                                      {"maxage", show_maxage, NULL},
                                      {NULL, NULL, NULL}};
static const struct param of_osc[] = {SPACE,
                                      {"active", show_one, NULL},
                                      {"max_rpcs_in_flight", show_max_rpcs_in_flight, store_max_rpcs},
                                      {"max_pages_per_rpc", show_max_pages_per_rpc, NULL},
                                      {"max_dirty_mb", show_max_dirty_mb, store_max_dirty},
                                      {"cur_dirty_bytes", show_cur_dirty_bytes, NULL},
                                      {"cur_grant_bytes", show_cur_grant_bytes, NULL},
                                      {"idle_timeout", show_idle_timeout, NULL},
                                      {"state", show_state, NULL},
                                      {"import", show_import, NULL},
                                      {"ost_conn_uuid", show_ost_conn_uuid, NULL},
                                      {"stats", show_osc_stats, clear_osc},
                                      {"rpc_stats", show_rpc_stats, clear_osc},
                                      {NULL, NULL, NULL}};
static const struct param of_mdc[] = {{"kbytestotal", show_mdt_kbytestotal, NULL},
                                      {"kbytesfree", show_mdt_kbytesfree, NULL},
                                      {"kbytesavail", show_mdt_kbytesfree, NULL},
                                      {"filestotal", show_mdt_filestotal, NULL},
                                      {"filesfree", show_mdt_filesfree, NULL},
                                      {"max_rpcs_in_flight", show_max_rpcs_in_flight, store_max_rpcs},
                                      {"max_mod_rpcs_in_flight", show_max_mod_rpcs_in_flight, store_max_mod_rpcs},
                                      {NULL, NULL, NULL}};
static const struct param of_mdt[] = {{"md_stats", show_md_stats, clear_md},
                                      {"job_stats", show_md_jobs, clear_md_jobs},
                                      {"job_cleanup_interval", show_job_cleanup_interval, NULL},
                                      {NULL, NULL, NULL}};
static const struct param of_lod[] = {
  {"numobd", show_numobd, NULL}, {"activeobd", show_activeobd, NULL}, {"target_obd", show_target_obd, NULL}, {NULL, NULL, NULL}};
static const struct param of_lov[] = {
  {"numobd", show_numobd, NULL}, {"activeobd", show_numobd, NULL}, {"target_obd", show_client_target_obd, NULL}, {NULL, NULL, NULL}};
static const struct param of_llite[] = {{"max_read_ahead_mb", show_max_read_ahead_mb, NULL},
                                        {"max_read_ahead_per_file_mb", show_max_read_ahead_per_file_mb, store_read_ahead},
                                        {"max_read_ahead_whole_mb", show_max_read_ahead_whole_mb, store_read_whole},
                                        {"statahead_batch_max", show_statahead_batch_max, store_statahead},
                                        {"stat_blocksize", show_stat_blocksize, NULL},
                                        {"enable_setstripe_gid", show_enable_setstripe_gid, NULL},
                                        {NULL, NULL, NULL}};
static const struct param of_top[] = {
  {"jobid_var", show_jobid_var, store_jobid_var}, {"jobid_name", show_jobid_name, store_jobid_name}, {NULL, NULL, NULL}};

/* There is an instance for each OST, MDT and client that a group names. */
enum { BY_OST = 1, BY_MDT = 2, BY_CLIENT = 4 };
static const struct group {
  const char *name;
  int by;
  const char *form; /* %f file system, %o OST, %m MDT, %c client */
  const struct param *params;
} groups[] = {{"", 0, "", of_top},
              {"obdfilter/", BY_OST, "%f-OST%o/", of_obdfilter},
              {"osd-ldiskfs/", BY_OST, "%f-OST%o/", of_osd},
              {"osp/", BY_OST | BY_MDT, "%f-OST%o-osc-MDT%m/", of_osp},
              {"mdt/", BY_MDT, "%f-MDT%m/", of_mdt},
              {"lod/", BY_MDT, "%f-MDT%m-mdtlov/", of_lod},
              {"lov/", BY_CLIENT, "%f-clilov-%c/", of_lov},
              {"llite/", BY_CLIENT, "%f-%c/", of_llite},
              {"mdc/", BY_MDT | BY_CLIENT, "%f-MDT%m-mdc-%c/", of_mdc},
              {"osc/", BY_OST | BY_CLIENT, "%f-OST%o-osc-%c/", of_osc}};
enum { GROUPS = sizeof groups / sizeof *groups };

static void instance_name(const struct group *g, const struct place *p, char ret[NAME]) {
  char word[32];
  snprintf(ret, NAME, "%s", g->name);
  for (const char *at = g->form; *at; at++) {
    snprintf(word, sizeof word, "%c", *at);
    if (*at == '%')
      switch (*++at) {
        case 'f': snprintf(word, sizeof word, "%s", p->m->fsname); break;
        case 'o': snprintf(word, sizeof word, "%04x", p->ost); break;
        case 'm': snprintf(word, sizeof word, "%04x", p->mdt); break;
        default: snprintf(word, sizeof word, "ffff8881%08x", p->client);
      }
    size_t length = strlen(ret);
    snprintf(ret + length, NAME - length, "%s", word);
  }
}

/* The next instance of a group; *p begins at zeros.  False when there are no more. */
static bool next_place(const struct group *g, struct place *p, bool first) {
  struct model *m = p->m;
  uint32_t osts = g->by & BY_OST ? m->ost_count : 1, mdts = g->by & BY_MDT ? m->mdt_count : 1;
  if (!first && ++p->ost >= osts) {
    p->ost = 0;
    if (++p->mdt >= mdts) {
      p->mdt = 0;
      p->client++;
    }
  }
  if (!(g->by & BY_CLIENT))
    return p->client == 0;
  while (p->client < MODEL_MAX_CLIENTS && !m->clients[p->client].up)
    p->client++;
  return p->client < MODEL_MAX_CLIENTS;
}

/* ---- get_param, set_param ---- */

typedef int (*param_fn)(const struct place *, const struct param *, const char *name, void *);

/* Calls `fn` for each parameter whose name fits; how many, or the first error. */
static int each_param(struct model *m, const char *pattern, param_fn fn, void *arg) {
  char name[NAME], wanted[NAME * 2];
  snprintf(wanted, sizeof wanted, "%s", pattern);
  for (char *at = wanted; *at; at++)
    *at = *at == '/' ? '.' : *at;
  int found = 0;
  for (int i = 0; i < GROUPS; i++) {
    size_t group = strcspn(groups[i].name, "/");
    if (group && strncmp(wanted, groups[i].name, group) && !strpbrk(wanted, "*?["))
      continue;
    struct place p = {.m = m};
    for (bool more = next_place(&groups[i], &p, true); more; more = next_place(&groups[i], &p, false)) {
      instance_name(&groups[i], &p, name);
      size_t length = strlen(name);
      for (const struct param *param = groups[i].params; param->name; param++) {
        snprintf(name + length, sizeof name - length, "%s", param->name);
        for (char *at = name; *at; at++)
          *at = *at == '/' ? '.' : *at;
        if (fnmatch(wanted, name, 0))
          continue;
        found++;
        int err = fn(&p, param, name, arg);
        if (err < 0)
          return err;
      }
    }
  }
  return found;
}

struct asker {
  FILE *out;
  bool named;
  const char *value;
};

static int show_one_param(const struct place *p, const struct param *param, const char *name, void *arg) {
  struct asker *a = arg;
  if (a->named)
    fprintf(a->out, "%s=", name);
  param->show(p, a->out);
  return 0;
}

/* A name gives its text alone; a pattern the names too. */
int tree_param(struct model *m, const char *pattern, FILE *out) {
  struct asker a = {out, strpbrk(pattern, "*?[") != NULL, NULL};
  asked_settle_all(m, 0);
  int found = each_param(m, pattern, show_one_param, &a);
  if (!found)
    fprintf(out, "there is no parameter %s\n", pattern);
  return found > 0 ? 0 : -ENOENT;
}

static int store_one_param(const struct place *p, const struct param *param, const char *name, void *arg) {
  struct asker *a = arg;
  int err = param->store ? param->store(p, a->value) : -EACCES;
  if (err == -EACCES)
    fprintf(a->out, "%s can only be read\n", name);
  else if (err < 0)
    fprintf(a->out, "%s cannot be %s\n", name, a->value);
  return err;
}

int tree_set_param(struct model *m, const char *pattern, const char *value, FILE *out) {
  struct asker a = {out, false, value};
  int found = each_param(m, pattern, store_one_param, &a);
  if (!found)
    fprintf(out, "there is no parameter %s\n", pattern);
  servers_set(m);
  return found > 0 ? 0 : found ? found : -ENOENT;
}

/* ---- the files ---- */

/* What was written last, by the hash of the path: a table that grows. */
struct written {
  uint32_t count, room;
  struct file_mark {
    uint64_t path, text;
  } *marks;
  char folder[4096]; /* that exists */
};

void tree_free(struct model *m) {
  if (m->written)
    free(m->written->marks);
  free(m->written);
}

static struct file_mark *mark_of(struct written *w, uint64_t path) {
  if (w->count * 2 >= w->room) {
    struct file_mark *old = w->marks;
    uint32_t room = w->room;
    w->room = room ? room * 2 : 1024;
    w->marks = model_alloc(w->room * sizeof *w->marks);
    w->count = 0;
    for (uint32_t i = 0; i < room; i++)
      if (old[i].path)
        *mark_of(w, old[i].path) = old[i], w->count++;
    free(old);
  }
  uint32_t at = (uint32_t)(mix(path, 3) % w->room);
  while (w->marks[at].path && w->marks[at].path != path)
    at = (at + 1) % w->room;
  return &w->marks[at];
}

/* The text without its lines of time. */
static uint64_t hash_of(const char *text) {
  uint64_t h = 0xcbf29ce484222325;
  while (*text) {
    size_t length = strcspn(text, "\n") + 1;
    size_t word = strspn(text, " ");
    bool timed = !strncmp(text + word, "snapshot_time", 13) || !strncmp(text + word, "elapsed_time", 12);
    for (size_t i = 0; !timed && i < length; i++)
      h = (h ^ (uint8_t)text[i]) * 0x100000001b3;
    text += text[length - 1] ? length : length - 1;
  }
  return h;
}

static int make_folders(struct written *w, const char *path) {
  const char *last = strrchr(path, '/');
  size_t length = (size_t)(last - path);
  if (length >= sizeof w->folder || (!strncmp(w->folder, path, length) && !w->folder[length]))
    return 0;
  memcpy(w->folder, path, length);
  w->folder[length] = 0;
  for (char *at = w->folder + 1;; at++) {
    if (*at != '/' && *at)
      continue;
    char was = *at;
    *at = 0;
    int err = mkdir(w->folder, 0755) && errno != EEXIST ? -errno : 0;
    *at = was;
    if (err && !was)
      return err;
    if (!was)
      return 0;
  }
}

/* Beside, then renamed: a reader sees the old text or the new one. */
static int write_file(struct model *m, const char *name, const char *text, size_t size) {
  char path[4096], aside[4128];
  if (!m->written)
    m->written = model_alloc(sizeof *m->written);
  struct file_mark *mark = mark_of(m->written, model_name(name));
  uint64_t hash = hash_of(text);
  if (mark->path && mark->text == hash)
    return 0;
  snprintf(path, sizeof path, "%s/%s", m->state_dir, name);
  snprintf(aside, sizeof aside, "%s.new", path);
  int err = make_folders(m->written, path);
  int fd = err ? -1 : open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return err ? err : -errno;
  err = write(fd, text, size) != (ssize_t)size ? -EIO : 0;
  close(fd);
  if (err || rename(aside, path)) {
    unlink(aside);
    return err ? err : -errno;
  }
  m->written->count += !mark->path;
  *mark = (struct file_mark){model_name(name), hash};
  return 0;
}

bool model_pool(struct model *m, const char *name, const uint32_t *osts, uint32_t count) {
  size_t size;
  uint32_t i = 0;
  while (i < m->pool_count && strcmp(m->pools[i].name, name))
    i++;
  if (i == sizeof m->pools / sizeof *m->pools)
    return false;
  struct pool_seen *p = &m->pools[i];
  free(p->text);
  p->text = NULL;
  FILE *out = open_memstream(&p->text, &size);
  if (!out)
    return false;
  for (uint32_t k = 0; k < count; k++)
    fprintf(out, "%s-OST%04x_UUID\n", m->fsname, osts[k]);
  fclose(out);
  snprintf(p->name, sizeof p->name, "%s", name);
  m->pool_count += i == m->pool_count;
  return true;
}

/* A client's file of a pool. */
static void pool_file(const struct pool_seen *pool, const char *instance, char ret[NAME + 64]) {
  snprintf(ret, NAME + 64, "sys/fs/lustre/%spools/%s", instance, pool->name);
}

/* The pools as one client sees them; they do not change. */
static int write_pools(struct model *m, const char *instance) {
  char name[NAME + 64];
  int err = 0;
  for (uint32_t i = 0; i < m->pool_count && !err; i++) {
    pool_file(&m->pools[i], instance, name);
    err = write_file(m, name, m->pools[i].text, strlen(m->pools[i].text));
  }
  return err;
}

static void remove_pools(struct model *m, const char *instance) {
  char name[NAME + 64], path[4096];
  for (uint32_t i = 0; i < m->pool_count; i++) {
    pool_file(&m->pools[i], instance, name);
    snprintf(path, sizeof path, "%s/%s", m->state_dir, name);
    unlink(path);
    if (m->written)
      mark_of(m->written, model_name(name))->text = 0;
  }
  snprintf(path, sizeof path, "%s/sys/fs/lustre/%spools", m->state_dir, instance);
  rmdir(path);
}

/* The texts of one instance, made under the lock, written without it. */
static int write_instance(struct model *m, const struct group *g, const struct place *p) {
  enum { MOST = 24 };
  char *text[MOST], instance[NAME], name[NAME + 64];
  size_t size[MOST];
  int count = 0, err = 0;
  for (; g->params[count].name && count < MOST; count++) {
    FILE *out = open_memstream(&text[count], &size[count]);
    if (!out)
      break;
    g->params[count].show(p, out);
    fclose(out);
  }
  instance_name(g, p, instance);
  pthread_mutex_unlock(&m->lock);
  for (int i = 0; i < count; i++) {
    snprintf(name, sizeof name, "sys/fs/lustre/%s%s", instance, g->params[i].name);
    int failed = write_file(m, name, text[i], size[i]);
    err = err ? err : failed;
    free(text[i]);
  }
  if (!err && g->params == of_lov)
    err = write_pools(m, instance);
  model_enter(m);
  return err;
}

static int write_proc(struct model *m, bool mds, uint32_t number) {
  static const char *const files[] = {"stat", "meminfo", "pressure/cpu", "pressure/io", "pressure/memory"};
  int err = 0;
  for (int i = 0; i < 5 && !err; i++) {
    char *text, name[128];
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
      return -ENOMEM;
    const char *last = strrchr(files[i], '/');
    metrics_proc(m, mds, number, last ? last + 1 : files[i], out);
    fclose(out);
    snprintf(name, sizeof name, "servers/%s%u/proc/%s", mds ? "mds" : "oss", number, files[i]);
    err = write_file(m, name, text, size);
    free(text);
  }
  return err;
}

/* A client that went leaves no files behind: drivers would take it for one that is there. */
static void remove_client(struct model *m, uint32_t client) {
  for (int i = 0; i < GROUPS; i++) {
    if (!(groups[i].by & BY_CLIENT))
      continue;
    struct place p = {.m = m, .client = client};
    for (p.mdt = 0; p.mdt < (groups[i].by & BY_MDT ? m->mdt_count : 1); p.mdt++)
      for (p.ost = 0; p.ost < (groups[i].by & BY_OST ? m->ost_count : 1); p.ost++) {
        char instance[NAME], name[NAME + 64], path[4096];
        instance_name(&groups[i], &p, instance);
        for (const struct param *param = groups[i].params; param->name; param++) {
          snprintf(name, sizeof name, "sys/fs/lustre/%s%s", instance, param->name);
          snprintf(path, sizeof path, "%s/%s", m->state_dir, name);
          unlink(path);
          if (m->written)
            mark_of(m->written, model_name(name))->text = 0;
        }
        if (groups[i].params == of_lov)
          remove_pools(m, instance);
        snprintf(path, sizeof path, "%s/sys/fs/lustre/%s", m->state_dir, instance);
        rmdir(path);
      }
  }
  if (m->written)
    m->written->folder[0] = 0;
}

static void remove_gone(struct model *m) {
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++)
    if (m->clients[i].in_tree && !m->clients[i].up) {
      m->clients[i].in_tree = false;
      remove_client(m, i);
    }
}

int tree_write(struct model *m) {
  if (!m->state_dir)
    return 0;
  int err = 0;
  pthread_mutex_lock(&m->writing);
  model_enter(m);
  asked_settle_all(m, 100000000);
  remove_gone(m);
  for (int i = 0; i < GROUPS; i++) {
    struct place p = {.m = m};
    uint32_t clients = 0, last = MODEL_MAX_CLIENTS;
    for (bool more = next_place(&groups[i], &p, true); more; more = next_place(&groups[i], &p, false)) {
      clients += groups[i].by & BY_CLIENT && p.client != last;
      last = p.client;
      if (clients > MAX_TREES)
        break;
      m->clients[p.client].in_tree |= !!(groups[i].by & BY_CLIENT);
      int failed = write_instance(m, &groups[i], &p);
      err = err ? err : failed;
    }
  }
  for (uint32_t i = 0; i < m->mdt_count && !err; i++)
    err = write_proc(m, true, i);
  for (uint32_t i = 0; i < m->oss_count && !err; i++)
    err = write_proc(m, false, i);
  model_leave(m);
  pthread_mutex_unlock(&m->writing);
  return err;
}

/* Writes the tree from time to time; what it cannot write it says once. */
void *stats_thread(void *arg) {
  struct model *m = arg;
  bool told = false;
  pthread_mutex_lock(&m->lock);
  while (!m->ending) {
    pthread_mutex_unlock(&m->lock);
    int err = tree_write(m);
    if (err && !told)
      fprintf(stderr, "testbed: statistics cannot be written below %s: %s\n", m->state_dir, strerror(-err));
    told |= err < 0;
    pthread_mutex_lock(&m->lock);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double period = m->set.v[SET_stats_period] ? m->set.v[SET_stats_period] : 3600e9;
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)period;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    if (!m->ending)
      pthread_cond_timedwait(&m->write_next, &m->lock, &until);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}
