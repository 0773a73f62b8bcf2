// SPDX-License-Identifier: Apache-2.0
/* The text forms of Lustre's statistics, to the blank.  Times in them are virtual: rates that a reader computes from two
 * snapshots are the modelled ones, whatever the time scale. */
#include <ctype.h>
#include <string.h>

#include "testbed/model_internal.h"

/* The lines in Lustre's order; -1: a name that Lustre has and nothing here raises. */
struct line {
  const char *name;
  int line;
  bool bytes;
};
static const struct line ob_lines[] = {
  {"read_bytes", OB_READ_BYTES, true}, {"write_bytes", OB_WRITE_BYTES, true},
  {"read", OB_READ, false},            {"write", OB_WRITE, false},
  {"getattr", -1, false},              {"setattr", OB_SETATTR, false},
  {"punch", OB_PUNCH, false},          {"sync", OB_SYNC, false},
  {"destroy", OB_DESTROY, false},      {"create", OB_CREATE, false},
  {"statfs", OB_STATFS, false},        {"get_info", -1, false},
  {"set_info", -1, false},             {"quotactl", -1, false},
  {"prealloc", OB_PREALLOC, false},    {NULL, 0, false},
};
static const struct line md_lines[] = {
  {"open", MD_OPEN, false},
  {"close", MD_CLOSE, false},
  {"mknod", MD_MKNOD, false},
  {"link", MD_LINK, false},
  {"unlink", MD_UNLINK, false},
  {"mkdir", MD_MKDIR, false},
  {"rmdir", MD_RMDIR, false},
  {"rename", MD_RENAME, false},
  {"getattr", MD_GETATTR, false},
  {"setattr", MD_SETATTR, false},
  {"getxattr", MD_GETXATTR, false},
  {"setxattr", MD_SETXATTR, false},
  {"statfs", MD_STATFS, false},
  {"sync", MD_SYNC, false},
  {"samedir_rename", MD_SAMEDIR, false},
  {"parallel_rename_file", MD_RENAME_FILE, false},
  {"parallel_rename_dir", MD_RENAME_DIR, false},
  {"crossdir_rename", MD_CROSSDIR, false},
  {"rename_trylocks", MD_TRYLOCKS, false},
  {"read", MD_READ, false},
  {"write", MD_WRITE, false},
  {"read_bytes", MD_READ_BYTES, true},
  {"write_bytes", MD_WRITE_BYTES, true},
  {"punch", MD_PUNCH, false},
  {"migrate", -1, false},
  {"fallocate", MD_FALLOCATE, false},
  {NULL, 0, false},
};

typedef unsigned long long ull;

static void time_line(FILE *out, int width, const char *name, uint64_t seconds, uint64_t ns) {
  fprintf(out, "%-*s%llu.%09llu secs.nsecs\n", width, name, (ull)(seconds + ns / 1000000000), (ull)(ns % 1000000000));
}

/* Now, since when, and how long. */
static void three_times(struct model *m, FILE *out, int width, const char *const names[3], uint64_t since, uint64_t until) {
  time_line(out, width, names[0], m->born_s, until);
  time_line(out, width, names[1], m->born_s, since);
  time_line(out, width, names[2], 0, until - since);
}

static void stat_text(FILE *out, const char *name, const char *unit, const struct stat_line *s) {
  if (s->count)
    fprintf(out, "%-25s %llu samples [%s] %llu %llu %llu %llu\n", name, (ull)s->count, unit, (ull)s->min, (ull)s->max,
            (ull)s->sum, (ull)s->sumsq);
}

static const char *const plain_times[] = {"snapshot_time", "start_time", "elapsed_time"};
static const char *const colon_times[] = {"snapshot_time:", "start_time:", "elapsed_time:"};

void text_stats(struct model *m, const struct stats *s, bool mdt, FILE *out) {
  three_times(m, out, 26, plain_times, s->cleared, m->engine.now);
  for (const struct line *l = mdt ? md_lines : ob_lines; l->name; l++)
    if (l->line >= 0)
      stat_text(out, l->name, l->bytes ? "bytes" : "usecs", &s->line[l->line]);
}

void text_osc_stats(struct model *m, const struct osc *osc, FILE *out) {
  three_times(m, out, 26, plain_times, osc->cleared, m->engine.now);
  stat_text(out, "read_bytes", "bytes", &osc->bytes[0]);
  stat_text(out, "write_bytes", "bytes", &osc->bytes[1]);
  stat_text(out, "ost_write", "usecs", &osc->took[1]);
  stat_text(out, "ost_read", "usecs", &osc->took[0]);
}

/* 1, 2, ... 512, 1K, 2K, ... 1M */
static void bucket_name(uint32_t bucket, char ret[24]) {
  static const char *const suffix[] = {"", "K", "M", "G"};
  snprintf(ret, 24, "%u%s", 1u << bucket % 10, suffix[bucket / 10 % 4]);
}

static void job_name_text(FILE *out, const char *name) {
  bool plain = true;
  for (const char *at = name; *at; at++)
    plain &= isalnum((unsigned char)*at) || strchr("._-:@/%+=,", *at);
  if (plain) {
    fputs(name, out);
    return;
  }
  fputc('"', out);
  for (const char *at = name; *at; at++)
    if (isgraph((unsigned char)*at) && *at != '"' && *at != '\\')
      fputc(*at, out);
    else
      fprintf(out, "\\x%02x", (unsigned char)*at);
  fputc('"', out);
}

static void job_line(FILE *out, const struct line *l, const struct jobstat *js) {
  static const struct stat_line nothing;
  const struct stat_line *s = l->line >= 0 ? &js->line[l->line] : &nothing;
  char name[32], bucket[24];
  snprintf(name, sizeof name, "%s:", l->name);
  fprintf(out, "  %-17s{ samples: %11llu, unit: %s, min: %8llu, max: %8llu, sum: %16llu, sumsq: %18llu", name, (ull)s->count,
          l->bytes ? "bytes" : "usecs", (ull)s->min, (ull)s->max, (ull)s->sum, (ull)s->sumsq);
  if (l->bytes) {
    fputs(", hist: { ", out);
    const uint64_t *sizes = js->sizes[!strncmp(l->name, "write", 5)];
    const char *comma = "";
    for (uint32_t i = 0; i < BUCKETS; i++)
      if (sizes[i]) {
        bucket_name(i, bucket);
        fprintf(out, "%s%s: %llu", comma, bucket, (ull)sizes[i]);
        comma = ", ";
      }
    fputs(" }", out);
  }
  fputs(" }\n", out);
}

void text_job_stats(struct model *m, const struct stats *s, bool mdt, FILE *out) {
  fputs("job_stats:\n", out);
  for (const struct jobstat *js = s->jobs; js; js = js->next) {
    fprintf(out, "- %-17s", "job_id:");
    job_name_text(out, js->job->name);
    fputc('\n', out);
    for (int i = 0; i < 3; i++) {
      const uint64_t ns[] = {js->last, js->started, js->last - js->started};
      fputs("  ", out);
      time_line(out, 17, colon_times[i], i < 2 ? m->born_s : 0, ns[i]);
    }
    for (const struct line *l = mdt ? md_lines : ob_lines; l->name; l++)
      job_line(out, l, js);
  }
}

/* ---- tables of buckets ---- */

struct table {
  const char *head, *unit;
  const struct histogram *rows;
  int width[2]; /* of the counts */
};

static void table_rows(FILE *out, const struct table *t) {
  uint64_t all[2] = {0, 0}, so_far[2] = {0, 0};
  uint32_t first = BUCKETS, last = 0;
  char name[24];
  for (uint32_t i = 0; t->rows && i < BUCKETS; i++) {
    all[0] += t->rows->count[0][i];
    all[1] += t->rows->count[1][i];
    if (t->rows->count[0][i] || t->rows->count[1][i]) {
      first = first < i ? first : i;
      last = i;
    }
  }
  for (uint32_t i = first; i <= last && i < BUCKETS; i++) {
    bucket_name(i, name);
    fprintf(out, "%s:\t\t", name);
    for (int way = 0; way < 2; way++) {
      uint64_t n = t->rows->count[way][i];
      so_far[way] += n;
      fprintf(out, "%*llu %3llu %3llu%s", t->width[way], (ull)n, (ull)(all[way] ? n * 100 / all[way] : 0),
              (ull)(all[way] ? so_far[way] * 100 / all[way] : 0), way ? "\n" : "   | ");
    }
  }
}

void text_rpc_stats(struct model *m, const struct osc *osc, FILE *out) {
  three_times(m, out, 26, colon_times, osc->cleared, m->engine.now);
  fprintf(out, "read RPCs in flight:  %u\nwrite RPCs in flight: %u\nDIO RPCs in flight: 0\n", osc->reading, osc->writing);
  fprintf(out, "pending write pages:  %llu\npending read pages:   0\n", (ull)osc->dirty / 4096);
  const struct table tables[] = {{"pages per rpc", "rpcs", &osc->pages, {10, 10}},
                                 {"rpcs in flight", "rpcs", &osc->in_flight, {10, 10}},
                                 {"offset", "rpcs", NULL, {10, 10}},
                                 {"RPC latency (us)", "rpcs", &osc->times, {10, 10}}};
  for (int i = 0; i < 4; i++) {
    fprintf(out, "\n\t\t\tread\t\t\twrite\n%-22srpcs   %% cum %% |       rpcs   %% cum %%\n", tables[i].head);
    table_rows(out, &tables[i]);
  }
}

void text_brw_stats(struct model *m, const struct ost *ost, FILE *out) {
  three_times(m, out, 26, colon_times, ost->cleared, m->engine.now);
  const struct table tables[] = {{"pages per bulk r/w", "rpcs", &ost->pages, {10, 4}},
                                 {"discontiguous pages", "rpcs", NULL, {10, 4}},
                                 {"discontiguous blocks", "rpcs", NULL, {10, 4}},
                                 {"disk fragmented I/Os", "ios", NULL, {10, 4}},
                                 {"disk I/Os in flight", "ios", &ost->in_flight, {10, 4}},
                                 {"I/O time (1/1000s)", "ios", &ost->times, {10, 4}},
                                 {"disk I/O size", "ios", &ost->sizes, {10, 4}},
                                 {"block maps msec", "maps", NULL, {10, 4}}};
  for (int i = 0; i < 8; i++) {
    fprintf(out, "\n                           read      |     write\n%-22s %-5s %% cum %% |  %-11s %% cum %%\n", tables[i].head,
            tables[i].unit, tables[i].unit);
    table_rows(out, &tables[i]);
  }
}
