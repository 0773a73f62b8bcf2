// SPDX-License-Identifier: Apache-2.0
/* Counters: what servers and clients saw, in all and for each job. */
#include <stdlib.h>

#include "testbed/model_internal.h"

const char *const md_names[MD_STATS] = {
  "open",           "close",        "mknod",
  "link",           "unlink",       "mkdir",
  "rmdir",          "rename",       "getattr",
  "setattr",        "getxattr",     "setxattr",
  "statfs",         "sync",         "samedir_rename",
  "crossdir_rename", "parallel_rename_file", "parallel_rename_dir",
  "rename_trylocks", "read",        "write",
  "read_bytes",     "write_bytes",  "punch",
  "fallocate",
};
const char *const ob_names[OB_STATS] = {"read_bytes", "write_bytes", "read",   "write",  "setattr", "punch",
                                        "sync",       "destroy",     "create", "statfs", "prealloc"};

void stat_add(struct stat_line *s, uint64_t value) {
  if (!s->count || value < s->min)
    s->min = value;
  if (value > s->max)
    s->max = value;
  s->count++;
  s->sum += value;
  s->sumsq += value * value;
}

static uint32_t bucket(uint64_t value) {
  uint32_t b = value <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(value - 1);
  return b < BUCKETS ? b : BUCKETS - 1;
}

void bucket_add(struct histogram *h, bool write, uint64_t value) {
  h->count[write][bucket(value)]++;
}

/* The job's line at a target; the one idle for longest makes room. */
static struct jobstat *jobstat_of(struct model *m, struct stats *s, struct jobid *who) {
  uint32_t jobs = 0;
  struct jobstat **oldest = NULL;
  for (struct jobstat **at = &s->jobs; *at; at = &(*at)->next, jobs++) {
    if ((*at)->job == who)
      return *at;
    if (!oldest || (*at)->last < (*oldest)->last)
      oldest = at;
  }
  if (oldest && jobs >= (uint32_t)m->set.v[SET_job_count]) {
    struct jobstat *gone = *oldest;
    *oldest = gone->next;
    free(gone);
  }
  struct jobstat *js = model_alloc(sizeof *js);
  js->job = who;
  js->started = m->engine.now;
  js->next = s->jobs;
  s->jobs = js;
  return js;
}

void stats_count(struct model *m, struct stats *s, struct jobid *who, int line, uint64_t value) {
  stat_add(&s->line[line], value);
  s->changed = true;
  if (!who)
    return;
  struct jobstat *js = jobstat_of(m, s, who);
  js->last = m->engine.now;
  stat_add(&js->line[line], value);
}

static void count_bytes(struct model *m, struct stats *s, struct jobid *who, int line, bool write, uint64_t bytes) {
  stats_count(m, s, who, line, bytes);
  if (who)
    jobstat_of(m, s, who)->sizes[write][bucket(bytes)]++;
}

/* The line of an OST's stats that a request raises, or -1: locks and glimpses are in none. */
static int ob_line(const struct request *r) {
  switch (r->kind) {
    case R_READ: return OB_READ;
    case R_WRITE: return OB_WRITE;
    case R_PUNCH: return OB_PUNCH;
    case R_OST_SETATTR:
    case R_CHOWN: return OB_SETATTR;
    case R_OST_SYNC: return OB_SYNC;
    case R_DESTROY: return OB_DESTROY;
    case R_PRECREATE: return OB_CREATE;
    case R_FALLOC: return OB_PREALLOC;
    default: return -1;
  }
}

static void ost_request(struct model *m, const struct request *r, uint64_t took) {
  struct ost *ost = &m->osts[r->server];
  bool server_side = r->kind == R_DESTROY || r->kind == R_PRECREATE || r->kind == R_CHOWN;
  struct jobid *who = server_side ? NULL : r->who;
  int line = ob_line(r);
  if (line < 0)
    return;
  stats_count(m, &ost->stats, who, line, took / 1000);
  if (r->kind != R_READ && r->kind != R_WRITE)
    return;
  bool write = r->kind == R_WRITE;
  count_bytes(m, &ost->stats, who, write ? OB_WRITE_BYTES : OB_READ_BYTES, write, r->bytes);
  bucket_add(&ost->pages, write, (r->bytes + 4095) / 4096);
  bucket_add(&ost->sizes, write, r->bytes);
  bucket_add(&ost->times, write, took / 1000000);
  struct osc *osc = osc_of(m, r->client, r->server);
  bucket_add(&osc->pages, write, (r->bytes + 4095) / 4096);
  bucket_add(&osc->in_flight, write, osc->window.under_way);
  bucket_add(&osc->times, write, took / 1000);
  stat_add(&osc->bytes[write], r->bytes);
  stat_add(&osc->took[write], took / 1000);
}

/* A server is through with a request that took so long there. */
void stats_request(struct model *m, const struct request *r, uint64_t took) {
  if (request_rows[r->kind].where != MDS) {
    ost_request(m, r, took);
    return;
  }
  if (r->uncounted) {
    struct asked *a = asked_of(m, r->client, (uint32_t)r->process);
    a->took = took;
    return;
  }
  struct stats *s = &m->mdts[r->server].stats;
  for (int line = 0; r->md >> line; line++)
    if (r->md & 1u << line)
      stats_count(m, s, r->who, line, took / 1000);
  if (r->kind == R_MDS_WRITE)
    count_bytes(m, s, r->who, MD_WRITE_BYTES, true, r->bytes);
}

void stats_free(struct stats *s) {
  for (struct jobstat *js; (js = s->jobs); free(js))
    s->jobs = js->next;
}

void stats_clear(struct model *m, struct stats *s) {
  stats_free(s);
  *s = (struct stats){.cleared = m->engine.now, .changed = true};
}
