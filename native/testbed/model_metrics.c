// SPDX-License-Identifier: Apache-2.0
/* How busy the modelled servers are: as Prometheus text, and in the form of their /proc, so that what watches the
 * processors and memory of real servers can watch these. */
#include <string.h>

#include "testbed/model_internal.h"

typedef unsigned long long ull;
static const double MEMORY_KB = 64.0 * 1048576;

static double memory_share(const struct model *m, bool mds, uint32_t number) {
  double share = mds ? m->mdts[number].v[SET_mds_memory] : m->osss[number].v[SET_oss_memory];
  double locks = mds ? m->held_count * 2.0 / MEMORY_KB : 0; /* 2 KiB each */
  return share + locks < 1 ? share + locks : 1;
}

static const struct station *processors(const struct model *m, bool mds, uint32_t number) {
  return mds ? &m->mdts[number].threads : &m->osss[number].cpus;
}

/* Ticks of 10 ms since the start, all processors together. */
static void stat_file(const struct model *m, const struct station *s, FILE *out) {
  uint64_t all = m->engine.now / 10000000 * s->servers, busy = s->busy_ns / 10000000;
  busy = busy < all ? busy : all;
  fprintf(out, "cpu  %llu 0 0 %llu 0 0 0 0 0 0\n", (ull)busy, (ull)(all - busy));
}

static void pressure_file(const struct station *s, bool cpu, FILE *out) {
  double waits = cpu && s->waiting ? 100 : 0;
  fprintf(out, "some avg10=%.2f avg60=%.2f avg300=%.2f total=0\n", waits, waits, waits);
}

bool metrics_proc(struct model *m, bool mds, uint32_t number, const char *file, FILE *out) {
  const struct station *s = processors(m, mds, number);
  if (!strcmp(file, "stat"))
    stat_file(m, s, out);
  else if (!strcmp(file, "meminfo"))
    fprintf(out, "MemTotal:       %8.0f kB\nMemFree:        %8.0f kB\nMemAvailable:   %8.0f kB\n", MEMORY_KB,
            MEMORY_KB * (1 - memory_share(m, mds, number)), MEMORY_KB * (1 - memory_share(m, mds, number)));
  else
    pressure_file(s, !strcmp(file, "cpu"), out);
  return true;
}

static void head(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP penstock_testbed_%s %s\n# TYPE penstock_testbed_%s %s\n", name, help, name, type);
}

static void of_osts(struct model *m, FILE *out, const char *name, const char *type, const char *help,
                    double (*value)(const struct ost *)) {
  head(out, name, type, help);
  for (uint32_t i = 0; i < m->ost_count; i++)
    fprintf(out, "penstock_testbed_%s{fs=\"%s\",ost=\"%u\",oss=\"%u\"} %.15g\n", name, m->fsname, i, m->osts[i].oss,
            value(&m->osts[i]));
}

static double free_value(const struct ost *o) {
  return (double)ost_free(o);
}
static double total_value(const struct ost *o) {
  return (double)ost_total(o);
}
static double read_value(const struct ost *o) {
  return (double)o->stats.line[OB_READ_BYTES].sum;
}
static double written_value(const struct ost *o) {
  return (double)o->stats.line[OB_WRITE_BYTES].sum;
}
static double queue_value(const struct ost *o) {
  return o->disk.jobs;
}
static double processes_value(const struct ost *o) {
  return o->disk.processes;
}
static double busy_value(const struct ost *o) {
  return (double)o->disk.busy_ns / 1e9;
}
static double state_value(const struct ost *o) {
  return atomic_load(&((struct ost *)(uintptr_t)o)->state);
}

static void of_servers(struct model *m, FILE *out, bool mds) {
  for (uint32_t i = 0; i < (mds ? m->mdt_count : m->oss_count); i++) {
    const struct station *s = processors(m, mds, i);
    const char *kind = mds ? "mds" : "oss";
    fprintf(out, "penstock_testbed_server_busy_seconds_total{fs=\"%s\",server=\"%s%u\"} %.15g\n", m->fsname, kind, i,
            (double)s->busy_ns / 1e9 / s->servers);
    fprintf(out, "penstock_testbed_server_waiting{fs=\"%s\",server=\"%s%u\"} %u\n", m->fsname, kind, i, s->waiting);
    fprintf(out, "penstock_testbed_server_memory_ratio{fs=\"%s\",server=\"%s%u\"} %.6g\n", m->fsname, kind, i,
            memory_share(m, mds, i));
  }
}

void metrics_prometheus(struct model *m, FILE *out) {
  of_osts(m, out, "ost_free_bytes", "gauge", "Free room of an OST.", free_value);
  of_osts(m, out, "ost_size_bytes", "gauge", "Room of an OST.", total_value);
  of_osts(m, out, "ost_read_bytes_total", "counter", "Bytes read from an OST.", read_value);
  of_osts(m, out, "ost_written_bytes_total", "counter", "Bytes written to an OST.", written_value);
  of_osts(m, out, "ost_busy_seconds_total", "counter", "Modelled time in which an OST had work.", busy_value);
  of_osts(m, out, "ost_requests", "gauge", "Requests at an OST now.", queue_value);
  of_osts(m, out, "ost_processes", "gauge", "Distinct processes with requests at an OST now.", processes_value);
  of_osts(m, out, "ost_state", "gauge", "0 = well; a sum of states else.", state_value);
  head(out, "server_busy_seconds_total", "counter", "Modelled busy time of a server, as a share of its processors or threads.");
  head(out, "server_waiting", "gauge", "Requests that wait at a server now.");
  head(out, "server_memory_ratio", "gauge", "Share of memory in use.");
  of_servers(m, out, true);
  of_servers(m, out, false);
  head(out, "mds_operations_total", "counter", "Operations at a metadata server, as in md_stats.");
  for (uint32_t i = 0; i < m->mdt_count; i++)
    for (int line = 0; line < MD_STATS; line++)
      fprintf(out, "penstock_testbed_mds_operations_total{fs=\"%s\",mdt=\"%u\",op=\"%s\"} %llu\n", m->fsname, i,
              md_names[line], (ull)m->mdts[i].stats.line[line].count);
  head(out, "requests_total", "counter", "Requests that clients sent, by kind.");
  for (int kind = 0; kind < REQUEST_KINDS; kind++) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < MODEL_MAX_CLIENTS; c++)
      sum += m->clients[c].counters[kind];
    bool again = kind && !strcmp(request_rows[kind].name, request_rows[kind - 1].name);
    if (!again) {
      for (int k = kind + 1; k < REQUEST_KINDS && !strcmp(request_rows[k].name, request_rows[kind].name); k++)
        for (uint32_t c = 0; c < MODEL_MAX_CLIENTS; c++)
          sum += m->clients[c].counters[k];
      fprintf(out, "penstock_testbed_requests_total{fs=\"%s\",kind=\"%s\"} %llu\n", m->fsname, request_rows[kind].name,
              (ull)sum);
    }
  }
}
