// SPDX-License-Identifier: Apache-2.0
// not under: tsan (it has one thread)
/* Statistics as text, byte for byte as Lustre prints them; parameters read and written; the tree of files; settings and
 * faults by command, and what bad ones are answered. */
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_drive.h"

static char folder[] = "/tmp/penstock-model-XXXXXX";
static const uint32_t OSTS[] = {0, 1, 2, 3};

static struct model *with_tree(const char *settings) {
  char why[300] = "";
  struct model_config config = {.fsname = "pfs", .mdt_count = 1, .oss_count = 2, .ost_count = 4, .settings = settings,
                                .state_dir = folder};
  struct model *m = model_new(&config, why, sizeof why);
  CHECK_STR("", why);
  model_manual(m);
  m->born_s = 1795041000;
  model_client_up(m, 0);
  return m;
}

static char *param(struct model *m, const char *name) {
  char line[200];
  snprintf(line, sizeof line, "param %s", name);
  return drive_command(m, line, 0);
}
static void check_param(struct model *m, const char *name, const char *expected) {
  char *text = param(m, name);
  CHECK_STR(expected, text);
  free(text);
}
static void check_has(const char *text, const char *part) {
  if (!strstr(text, part))
    fprintf(stderr, "not there:\n%s\nin:\n%s\n", part, text);
  CHECK(strstr(text, part));
}
static void check_file(const char *name, const char *part) {
  char path[300], text[8192] = "";
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *in = fopen(path, "r");
  if (!in)
    fprintf(stderr, "%s\n", path);
  CHECK(in);
  CHECK(fread(text, 1, sizeof text - 1, in) > 0);
  fclose(in);
  check_has(text, part);
}

static void write_some(struct model *m) {
  struct model_extent x = {2, 0, 0, 4 << 20};
  uint32_t ost = 2;
  struct model_call call = {.op = MODEL_CREATE, .pid = (uint32_t)getpid(), .uid = 5, .ino = 9, .parent = 1, .name = 4,
                            .flags = O_WRONLY | O_DIRECT, .osts = &ost, .ost_count = 1};
  drive(m, call);
  call.op = MODEL_WRITE;
  call.size = 4 << 20;
  call.file_size = 4 << 20;
  call.extents = &x;
  call.extent_count = 1;
  drive(m, call);
}

static void test_stats(void) {
  struct model *m = with_tree("job.var=disable\n");
  write_some(m);
  char *text = param(m, "obdfilter.pfs-OST0002.stats");
  check_has(text, "snapshot_time             1795041000.");
  check_has(text, "\nstart_time                1795041000.000000000 secs.nsecs\nelapsed_time              0.");
  check_has(text, "\nwrite_bytes               1 samples [bytes] 4194304 4194304 4194304 17592186044416\n");
  check_has(text, "\nwrite                     1 samples [usecs] 4");
  CHECK(!strstr(text, "read"));
  free(text);
  text = param(m, "mdt.pfs-MDT0000.md_stats");
  check_has(text, "\nopen                      1 samples [usecs] 900 900 900 810000\n");
  check_has(text, "\nmknod                     1 samples [usecs] 900 900 900 810000\n");
  free(text);
  text = param(m, "osd-ldiskfs.pfs-OST0002.brw_stats");
  check_has(text, "snapshot_time:            1795041000.");
  check_has(text, "\n\n                           read      |     write\n"
                  "disk I/O size          ios   % cum % |  ios         % cum %\n"
                  "4M:\t\t         0   0   0   |    1 100 100\n\n");
  check_has(text, "pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %\n1K:\t\t         0   0   0   |    1 100 100\n");
  free(text);
  text = param(m, "osc.pfs-OST0002-osc-ffff888100000000.rpc_stats");
  check_has(text, "\nread RPCs in flight:  0\nwrite RPCs in flight: 0\nDIO RPCs in flight: 0\n"
                  "pending write pages:  0\npending read pages:   0\n\n\t\t\tread\t\t\twrite\n"
                  "pages per rpc         rpcs   % cum % |       rpcs   % cum %\n"
                  "1K:\t\t         0   0   0   |          1 100 100\n");
  free(text);
  text = param(m, "osc.pfs-OST0002-osc-*.stats");
  check_has(text, "osc.pfs-OST0002-osc-ffff888100000000.stats=snapshot_time");
  free(text);
  check_param(m, "obdfilter.pfs-OST0002.job_stats", "job_stats:\n");
  drive_do(m, "write obdfilter.pfs-OST0002.stats clear");
  CHECK_EQ(0, (long)m->osts[2].stats.line[OB_WRITE].count);
  model_free(m);
}

static void test_job_stats(void) {
  struct model *m = with_tree("job.var=nodelocal\njob.name=a b:%u\n");
  write_some(m);
  char *text = param(m, "obdfilter.pfs-OST0002.job_stats");
  check_has(text, "job_stats:\n- job_id:          \"a\\x20b:5\"\n  snapshot_time:   1795041000.");
  check_has(text, "  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, sum:                0, "
                  "sumsq:                  0, hist: {  } }\n");
  check_has(text, "  write_bytes:     { samples:           1, unit: bytes, min:  4194304, max:  4194304, sum:          4194304, "
                  "sumsq:     17592186044416, hist: { 4M: 1 } }\n");
  check_has(text, "  quotactl:        { samples:           0, unit: usecs, min:        0,");
  free(text);
  text = param(m, "mdt.pfs-MDT0000.job_stats");
  check_has(text, "  open:            { samples:           1, unit: usecs, min:      900, max:      900, sum:              900, "
                  "sumsq:             810000 }\n");
  free(text);
  drive_do(m, "write mdt.*.job_stats clear");
  check_param(m, "mdt.pfs-MDT0000.job_stats", "job_stats:\n");
  model_free(m);
}

/* The ids that the kinds of job.var give to this very process. */
static const char *job_seen(const char *settings, char ret[64]) {
  struct model *m = with_tree(settings);
  write_some(m);
  snprintf(ret, 64, "%s", m->osts[2].stats.jobs ? m->osts[2].stats.jobs->job->name : "");
  model_free(m);
  return ret;
}
static void test_job_ids(void) {
  char id[64], expected[64];
  CHECK_STR("", job_seen("job.var=disable\n", id));
  prctl(PR_SET_NAME, "a program");
  CHECK_STR("a program.5", job_seen("", id));
  snprintf(expected, sizeof expected, "%d", (int)getsid(0));
  CHECK_STR(expected, job_seen("job.var=session\n", id));
  CHECK_STR("", job_seen("job.var=NO_SUCH_VARIABLE\njob.name=%j\n", id));
  CHECK_STR("x", job_seen("job.var=NO_SUCH_VARIABLE\njob.name=x\n", id));
  snprintf(expected, sizeof expected, "%d.5.x", (int)getpid());
  CHECK_STR(expected, job_seen("job.var=nodelocal\njob.name=%p.%u.x\n", id));
  const char *path = getenv("PATH"); /* what the process was started with */
  snprintf(expected, sizeof expected, "%.31s", path ? path : "");
  CHECK_STR(expected, job_seen("job.var=PATH\n", id));
}

static void test_params(void) {
  struct model *m = with_tree("ost.size=1GiB\nost.1.size=2GiB\n");
  check_param(m, "obdfilter.pfs-OST0000.kbytestotal", "1048576\n");
  check_param(m, "obdfilter/pfs-OST0001/kbytestotal", "2097152\n");
  check_param(m, "osc.pfs-OST0003-osc-ffff888100000000.kbytesavail", "1048576\n");
  check_param(m, "lod.pfs-MDT0000-mdtlov.activeobd", "4\n");
  drive_do(m, "write osp.pfs-OST0002-osc-MDT0000.active 0");
  CHECK_EQ(MODEL_OST_INACTIVE, model_ost_state(m, 2));
  check_param(m, "lod.pfs-MDT0000-mdtlov.activeobd", "3\n");
  check_param(m, "lod.pfs-MDT0000-mdtlov.target_obd", "0: pfs-OST0000_UUID ACTIVE\n1: pfs-OST0001_UUID ACTIVE\n"
                                                      "2: pfs-OST0002_UUID INACTIVE\n3: pfs-OST0003_UUID ACTIVE\n");
  drive_do(m, "write obdfilter.*.degraded 1");
  for (uint32_t i = 0; i < 4; i++)
    CHECK(model_ost_state(m, i) & MODEL_OST_DEGRADED);
  check_param(m, "obdfilter.pfs-OST000[01].degraded", "obdfilter.pfs-OST0000.degraded=1\nobdfilter.pfs-OST0001.degraded=1\n");
  drive_do(m, "write osp.pfs-OST0001-osc-MDT0000.max_create_count 0");
  CHECK(model_ost_state(m, 1) & MODEL_OST_NO_CREATE);
  drive_do(m, "write osc.*.max_dirty_mb 64");
  check_param(m, "osc.pfs-OST0000-osc-ffff888100000000.max_dirty_mb", "64\n");
  drive_do(m, "write jobid_var SLURM_JOB_ID");
  check_param(m, "jobid_var", "SLURM_JOB_ID\n");
  free(drive_command(m, "param obdfilter.pfs-OST0009.kbytestotal", -ENOENT));
  free(drive_command(m, "write obdfilter.pfs-OST0001.degraded 7", -EINVAL));
  free(drive_command(m, "write obdfilter.pfs-OST0001.kbytestotal 7", -EACCES));
  free(drive_command(m, "write nothing.here 7", -ENOENT));
  model_free(m);
}

static void test_tree(void) {
  struct model *m = with_tree("ost.size=1GiB\n");
  model_client_up(m, 7);
  write_some(m);
  drive_do(m, "stats");
  check_file("sys/fs/lustre/obdfilter/pfs-OST0000/kbytesavail", "1048576\n");
  check_file("sys/fs/lustre/osc/pfs-OST0003-osc-ffff888100000007/ost_conn_uuid", "oss1@tcp\n");
  check_file("sys/fs/lustre/osd-ldiskfs/pfs-OST0002/brw_stats", "4M:\t");
  check_file("sys/fs/lustre/mdt/pfs-MDT0000/md_stats", "mknod  ");
  check_file("sys/fs/lustre/jobid_var", "procname_uid\n");
  check_file("servers/mds0/proc/stat", "cpu  ");
  check_file("servers/oss1/proc/meminfo", "MemTotal:       67108864 kB\n");
  char path[300];
  struct stat before, after;
  snprintf(path, sizeof path, "%s/sys/fs/lustre/obdfilter/pfs-OST0000/kbytesavail", folder);
  CHECK_EQ(0, stat(path, &before));
  CHECK_EQ(0, model_ost_use(m, 1, 1 << 20, 1, false));
  drive_wait(m, 5);
  drive_do(m, "stats");
  CHECK_EQ(0, stat(path, &after));
  CHECK_EQ(before.st_ino, after.st_ino); /* it did not change, so it was not written */
  check_file("sys/fs/lustre/obdfilter/pfs-OST0001/kbytesavail", "1047552\n");
  model_client_down(m, 7);
  drive_do(m, "stats");
  snprintf(path, sizeof path, "%s/sys/fs/lustre/osc/pfs-OST0003-osc-ffff888100000007", folder);
  CHECK_EQ(-1, access(path, F_OK));
  model_client_up(m, 7);
  drive_do(m, "stats");
  check_file("sys/fs/lustre/osc/pfs-OST0003-osc-ffff888100000007/state", "FULL\n");
  char *text = drive_command(m, "prometheus", 0);
  check_has(text, "\npenstock_testbed_ost_written_bytes_total{fs=\"pfs\",ost=\"2\",oss=\"0\"} 4194304\n");
  check_has(text, "\npenstock_testbed_mds_operations_total{fs=\"pfs\",mdt=\"0\",op=\"mknod\"} 1\n");
  check_has(text, "\npenstock_testbed_requests_total{fs=\"pfs\",kind=\"enq:open\"} 1\n");
  free(text);
  model_free(m);
}

/* ---- settings and faults ---- */

static void test_states(void) {
  struct model *m = with_tree("ost.size=100MiB\n");
  struct model_extent x = {3, 0, 0, 4096};
  struct model_call read = {.op = MODEL_READ, .ino = 9, .extents = &x, .extent_count = 1, .osts = OSTS, .ost_count = 4};
  struct model_call write = read, sync = {.op = MODEL_FSYNC, .ino = 9, .osts = OSTS, .ost_count = 4};
  write.op = MODEL_WRITE;
  CHECK_EQ(0, model_refuses(m, &read));
  drive_do(m, "fail ost.3");
  CHECK_EQ(-EIO, model_refuses(m, &read));
  CHECK_EQ(-EIO, model_refuses(m, &sync));
  CHECK(model_ost_state(m, 3) & MODEL_OST_INACTIVE);
  drive_do(m, "heal ost.3");
  CHECK_EQ(0, model_ost_state(m, 3));
  drive_do(m, "set ost.3.read_only=1");
  CHECK_EQ(0, model_refuses(m, &read));
  CHECK_EQ(-EROFS, model_refuses(m, &write));
  drive_do(m, "fail oss.1");
  CHECK(model_ost_state(m, 1) & MODEL_OST_DOWN);
  CHECK(!(model_ost_state(m, 0) & MODEL_OST_DOWN));
  drive_do(m, "heal all");
  for (uint32_t i = 0; i < 4; i++)
    CHECK_EQ(0, model_ost_state(m, i));

  struct model_space space;
  drive_do(m, "fill ost.2 95%");
  model_ost_space(m, 2, &space);
  CHECK_EQ(5 << 20, (long)space.free_bytes);
  CHECK_EQ(1 << 20, (long)space.reserved_bytes);
  CHECK_EQ(0, model_ost_state(m, 2));
  CHECK_EQ(-ENOSPC, model_ost_use(m, 2, 6 << 20, 1, false));
  CHECK_EQ(0, model_ost_use(m, 2, (4 << 20) + 4096, 1, false));
  CHECK_EQ(MODEL_OST_FULL, model_ost_state(m, 2)); /* below the reserve; still writes are taken */
  CHECK_EQ(0, model_ost_use(m, 2, 4096, 0, false));
  CHECK_EQ(0, model_ost_use(m, 2, -(1 << 20), 0, false));
  CHECK_EQ(MODEL_OST_FULL, model_ost_state(m, 2)); /* until there is twice the reserve */
  CHECK_EQ(0, model_ost_use(m, 2, -(1 << 20), 0, false));
  CHECK_EQ(0, model_ost_state(m, 2));
  drive_do(m, "fill ost.2 0%");
  model_ost_space(m, 2, &space);
  CHECK((97 << 20) < space.free_bytes);
  CHECK_EQ(0, model_ost_use(m, 1, 1ll << 40, 1, true)); /* what is there at start counts even if it does not fit */
  CHECK_EQ(-ENOSPC, model_ost_use(m, 1, 1, 0, false));
  model_free(m);
}

static void test_slow_and_paused(void) {
  struct model *m = with_tree("net.latency=0\n");
  struct model_call call = {.op = MODEL_GETSTRIPE, .ino = 3, .pid = 1};
  CHECK_EQ(300000, (long)drive(m, call));
  drive_do(m, "set mds.slowdown=3");
  CHECK_EQ(900000, (long)drive(m, call));
  drive_do(m, "heal mds");
  drive_do(m, "set mds.slowdown=1");
  drive_do(m, "set mds.pause=2s");
  CHECK_EQ(2000300000, (long)drive(m, call));
  struct model_extent x = {1, 0, 0, 1000000};
  uint32_t ost = 1;
  struct model_call read = {.op = MODEL_READ, .ino = 9, .pid = 1, .flags = O_DIRECT, .size = 1000000, .file_size = 1 << 30,
                            .extents = &x, .extent_count = 1, .osts = &ost, .ost_count = 1};
  drive(m, read);
  CHECK_EQ(20000 + 200000 + 10000000, (long)drive(m, read));
  drive_do(m, "set ost.1.slowdown=10");
  CHECK_EQ(20000 + 10 * (200000 + 10000000), (long)drive(m, read));
  drive_do(m, "heal ost.1");
  CHECK_EQ(20000 + 200000 + 10000000, (long)drive(m, read));
  drive_do(m, "set oss.bandwidth=10MB/s");
  CHECK_EQ(20000 + 100000000, (long)drive(m, read));
  model_free(m);
}

static void test_bad_commands(void) {
  struct model *m = with_tree(NULL);
  static const char *const bad[] = {
    "", "dance", "set", "set ost.slowdown", "set no.such=1", "set ost.99.slowdown=2", "set ost.1.slowdown=fast", "set ost.slowdown=0",
    "set ost.slowdown=-1", "set mds.threads=0", "set mds.threads=1.5", "set mds.threads=4 threads", "set client.locks=nan",
    "set mds.cost.open=1000h", "set ost.contention=2:1", "set ost.contention=1:1 5:4 5:6",
    "set ost.contention=1:1 64:32 128:16", "set ost.contention=", "set ost.contention=a:b", "set ost.3.contention=1:1",
    "set mds.service=sometimes", "set model=maybe", "set ost.1.dead=maybe", "set mds.pause=soon", "set client.1.rpc_size=4MiB",
    "set job.var=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "fail", "fail ost", "fail ost.4", "fail ost.x", "fail ost.1x", "fail cloud.1", "fail oss.2", "fail mds.1", "fail client.5000", "heal ost.-1",
    "fill ost.1", "fill ost.1 95", "fill ost.1 101%", "fill ost.1 -1%", "fill oss.1 50%", "fill ost.9 50%", "counters x", "counters 9999",
    "drop x", "flush -1x", "dirty 5000", "param", "write x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *text = drive_command(m, bad[i], -EINVAL);
    CHECK(strlen(text) > 10 && strchr(text, '\n') == text + strlen(text) - 1); /* a sentence */
    free(text);
  }
  model_free(m);
  static const char *const impossible[] = {"nonsense\n", "no.such=1\n", "mds.threads=0\n", "ost.9.slowdown=2\n", "ost.x.slowdown=2\n",
                                           "ost.bandwidth=0\n", "time.scale=0\n"};
  char why[300];
  for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
    struct model_config config = {.fsname = "pfs", .mdt_count = 1, .oss_count = 1, .ost_count = 4, .settings = impossible[i]};
    *why = 0;
    CHECK(!model_new(&config, why, sizeof why) && strlen(why) > 10);
  }
  struct model_config shapes[] = {{.fsname = "pfs", .mdt_count = 0, .oss_count = 1, .ost_count = 1},
                                  {.fsname = "pfs", .mdt_count = 1, .oss_count = 0, .ost_count = 1},
                                  {.fsname = "pfs", .mdt_count = 1, .oss_count = 2, .ost_count = 1},
                                  {.fsname = "pfs", .mdt_count = 1, .oss_count = 1, .ost_count = 5000},
                                  {.fsname = "ninechars", .mdt_count = 1, .oss_count = 1, .ost_count = 1},
                                  {.fsname = "", .mdt_count = 1, .oss_count = 1, .ost_count = 1}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    CHECK(!model_new(&shapes[i], why, sizeof why));
}

static void test_settings_read_back(void) {
  struct model *m = with_tree("ost.2.bandwidth=50MB/s\nlayout.stripe_count=4\npool.p=1,2\n");
  char *all = drive_command(m, "get", 0), *again, *rest = NULL, line[400];
  check_has(all, "\nost.2.bandwidth=50000000\n");
  check_has(all, "\nost.contention=1:1 64:32 128:128\n");
  char *copy = strdup(all);
  for (char *at = strtok_r(copy, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
    snprintf(line, sizeof line, "set %s", at);
    drive_do(m, line);
  }
  again = drive_command(m, "get", 0);
  check_has(again, "\nost.bandwidth=100000000\n");
  CHECK_STR(all, again);
  free(copy);
  free(all);
  free(again);
  model_free(m);
}

int main(void) {
  CHECK(mkdtemp(folder));
  test_stats();
  test_job_stats();
  test_job_ids();
  test_params();
  test_tree();
  test_states();
  test_slow_and_paused();
  test_bad_commands();
  test_settings_read_back();
  char command[100];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) ? 1 : 0;
}
