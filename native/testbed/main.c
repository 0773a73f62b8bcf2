// SPDX-License-Identifier: Apache-2.0
/* penstock-testbed: the emulated parallel file system, started by `penstock testbed up`.
 *
 *     penstock-testbed --folder F --osts 15 --osss 3 [--mdts 1] [--fsname pfs] [--caching contention|posix]
 *                      [--settings FILE] [--ready-fd N] MOUNT...
 *
 * All below F: see server.h.  FILE has lines key=value: `layout.*` and `pool.NAME` are about layouts and are read here, all
 * others are the service model's.  Once it serves, or cannot, it writes to N: notes, a line each ("note TEXT"), then
 * "ready" or "error TEXT".  It stays in the foreground, and ends on SIGTERM, SIGINT or the command `down`. */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SETTINGS_BYTES = 1 << 20, SPARE_FILES = 3000 };

struct options {
  const char *folder, *fsname, *settings;
  uint32_t mdts, osss, osts;
  bool posix;
  int ready;
};

static void tell(int fd, const char *form, ...) {
  va_list words;
  va_start(words, form);
  vdprintf(fd < 0 ? 2 : fd, form, words);
  va_end(words);
}

static int fail(const struct options *o, const char *text) {
  tell(o->ready, "error %s\n", text);
  return 1;
}

/* ---- what it was told ---- */

static uint32_t number(const char *text) {
  char *end;
  unsigned long n = strtoul(text, &end, 10);
  return *end || end == text || n > MODEL_MAX_OSTS ? 0 : (uint32_t)n;
}

static bool parse(int argc, char **argv, struct options *o) {
  static const struct option known[] = {
    {"folder", 1, NULL, 'f'},   {"osts", 1, NULL, 'n'},    {"osss", 1, NULL, 's'},     {"mdts", 1, NULL, 'm'}, {"fsname", 1, NULL, 'N'},
    {"caching", 1, NULL, 'c'}, {"settings", 1, NULL, 'S'}, {"ready-fd", 1, NULL, 'r'}, {NULL, 0, NULL, 0}};
  *o = (struct options){.fsname = "pfs", .mdts = 1, .osss = 1, .osts = 4, .ready = -1};
  int which;
  while ((which = getopt_long(argc, argv, "", known, NULL)) != -1) {
    switch (which) {
    case 'f': o->folder = optarg; break;
    case 'n': o->osts = number(optarg); break;
    case 's': o->osss = number(optarg); break;
    case 'm': o->mdts = number(optarg); break;
    case 'N': o->fsname = optarg; break;
    case 'S': o->settings = optarg; break;
    case 'r': o->ready = (int)number(optarg); break;
    case 'c':
      o->posix = strcmp(optarg, "posix") == 0;
      if (!o->posix && strcmp(optarg, "contention") != 0)
        return false;
      break;
    default: return false;
    }
  }
  return o->folder && o->folder[0] == '/' && o->osts && o->osss && o->osss <= o->osts && o->mdts && strlen(o->fsname) <= 8 &&
         o->fsname[0];
}

/* The whole file, or "" without one; NULL: it cannot be read. */
static char *read_settings(const char *path) {
  char *text = calloc(1, MAX_SETTINGS_BYTES + 1);
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t n = fd < 0 ? 0 : read(fd, text, MAX_SETTINGS_BYTES);
  bool good = text && (!path || (fd >= 0 && n >= 0 && n < MAX_SETTINGS_BYTES));
  if (fd >= 0)
    close(fd);
  if (good)
    return text;
  free(text);
  return NULL;
}

struct layout_key {
  const char *name;
  size_t at; /* of the number in lov_config */
  bool wide;
};
static const struct layout_key layout_keys[] = {
  {"layout.seed", offsetof(struct lov_config, seed), true},
  {"layout.stripe_size", offsetof(struct lov_config, stripe_size_bytes), false},
  {"layout.stripe_count", offsetof(struct lov_config, stripe_count), false},
  {"layout.append_stripe_count", offsetof(struct lov_config, append_stripe_count), false},
  {"layout.dom_size", offsetof(struct lov_config, dom_bytes), false},
  {"layout.qos_threshold_percent", offsetof(struct lov_config, qos_threshold_percent), false},
  {"layout.qos_prio_free_percent", offsetof(struct lov_config, qos_prio_free_percent), false},
  {"layout.space_age", offsetof(struct lov_config, space_age_ns), true},
};

/* A layout.* line: true if it is one of ours and a number. */
static bool read_layout_line(const char *line, struct lov_config *ret) {
  for (size_t i = 0; i < sizeof layout_keys / sizeof *layout_keys; i++) {
    const struct layout_key *k = &layout_keys[i];
    size_t n = strlen(k->name);
    if (strncmp(line, k->name, n) || line[n] != '=')
      continue;
    char *end;
    unsigned long long value = strtoull(line + n + 1, &end, 10);
    if (strcmp(line + n, "=-1") == 0 && strstr(k->name, "_count"))
      value = PENSTOCK_STRIPES_ALL;
    if (*end || (!k->wide && value > UINT32_MAX))
      return false;
    char *to = (char *)ret + k->at;
    if (k->wide)
      *(uint64_t *)to = value;
    else
      *(uint32_t *)to = (uint32_t)value;
    return true;
  }
  return false;
}

/* pool.NAME=1,2,5 */
static bool read_pool_line(struct server *s, char *line) {
  char *name = line + strlen("pool."), *list = strchr(name, '=');
  uint32_t osts[MODEL_MAX_OSTS], count = 0;
  if (!list)
    return false;
  *list++ = 0;
  for (char *rest, *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    char *end;
    unsigned long n = strtoul(word, &end, 10);
    if (*end || count == MODEL_MAX_OSTS || n >= s->store.ost_count)
      return false;
    osts[count++] = (uint32_t)n;
  }
  return lov_pool(s->lov, name, osts, count) == 0 && (!count || model_pool(s->model, name, osts, count));
}

static void say_bad(char *bad, size_t size, const char *line) {
  snprintf(bad, size, "the setting %s is not one: unknown, not a number, or an OST that is not there", line);
}

/* Takes the lines about layouts out of the text: numbers into `config`, pools into `pools` (as large as the text). */
static void take_lines(char *text, struct lov_config *config, char *pools, char *bad, size_t bad_size) {
  char *to = text, *next;
  for (char *line = text; *line; line = next) {
    next = line + strcspn(line, "\n");
    size_t size = (size_t)(next - line) + (*next != 0);
    char copy[1024];
    snprintf(copy, sizeof copy, "%.*s", (int)(next - line), line);
    next = line + size;
    if (strncmp(copy, "layout.", 7) == 0) {
      if (!read_layout_line(copy, config))
        say_bad(bad, bad_size, copy);
    } else if (strncmp(copy, "pool.", 5) == 0) {
      memcpy(pools, line, size);
      pools += size;
    } else {
      memmove(to, line, size);
      to += size;
    }
  }
  *pools = 0;
  *to = 0;
}

static void read_pools(struct server *s, char *text, char *bad, size_t bad_size) {
  for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char shown[1024];
    snprintf(shown, sizeof shown, "%s", line);
    if (!read_pool_line(s, line))
      say_bad(bad, bad_size, shown);
  }
}

/* ---- what the allocator asks ---- */

static void look(void *closure, uint32_t ost, struct lov_ost *ret) {
  struct server *s = closure;
  struct model_space space;
  model_ost_space(s->model, ost, &space);
  *ret = (struct lov_ost){model_ost_state(s->model, ost), model_oss_of(s->model, ost), space.free_bytes};
}

static int new_object(void *closure, uint32_t ost, uint32_t *ret) {
  return store_new_object(&((struct server *)closure)->store, ost, ret);
}

/* ---- bringing it up ---- */

static int make_root(struct store *s) {
  uint64_t ino = store_new(s, S_IFDIR | 0755, getuid(), getgid());
  int err = ino != STORE_ROOT ? -EUCLEAN : store_make_dir(s, ino);
  struct record *r = err ? NULL : store_lock(s, ino);
  if (!r)
    return err ? err : -EUCLEAN;
  r->nlink = 2;
  r->parent = STORE_ROOT;
  store_unlock(s, ino);
  return 0;
}

/* One server a store: the lock goes with the process. */
static int take_lock(const char *folder) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/run/lock", folder);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return -errno;
  if (flock(fd, LOCK_EX | LOCK_NB))
    return -EBUSY;
  char pid[32];
  int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
  return ftruncate(fd, 0) || write(fd, pid, (size_t)n) != n ? -errno : 0;
}

static int open_store(struct server *s, const struct options *o, char *why, size_t why_size) {
  char path[PATH_MAX];
  bool was_running, is_new;
  snprintf(path, sizeof path, "%s/store", o->folder);
  int err = store_open(&s->store, path, o->osts, &was_running, &is_new, why, why_size);
  if (err)
    return err;
  if (is_new && (err = make_root(&s->store))) {
    snprintf(why, why_size, "the root directory cannot be made in %s: %s", path, strerror(-err));
    return err;
  }
  if (is_new || !was_running)
    return 0;
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  long lost = check_store(&s->store, out);
  fclose(out);
  for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    tell(o->ready, "note %s\n", line);
  free(text);
  if (lost < 0)
    snprintf(why, why_size, "the store cannot be repaired: %s; restore it, or start with another folder",
             strerror((int)-lost));
  return lost < 0 ? (int)lost : 0;
}

static int start_model(struct server *s, const struct options *o, char *why, size_t why_size) {
  char state[PATH_MAX];
  snprintf(state, sizeof state, "%s/state", o->folder);
  char *text = read_settings(o->settings);
  if (!text) {
    snprintf(why, why_size, "the settings %s cannot be read", o->settings);
    return -EINVAL;
  }
  struct lov_config lov = {.ost_count = o->osts, .closure = s, .look = look, .new_object = new_object};
  char *pools = malloc(strlen(text) + 1);
  if (pools)
    take_lines(text, &lov, pools, why, why_size);
  if (!*why)
    lov_config_fine(&lov, why, why_size);
  s->charged = !strstr(text, "model=off\n");
  const struct model_config config = {.fsname = o->fsname,
                                      .mdt_count = o->mdts,
                                      .oss_count = o->osss,
                                      .ost_count = o->osts,
                                      .settings = text,
                                      .state_dir = state};
  if (pools && !*why)
    s->model = model_new(&config, why, why_size);
  if (s->model)
    s->lov = lov_new(&lov); /* it asks the model at once */
  if (s->lov)
    read_pools(s, pools, why, why_size);
  free(pools);
  free(text);
  if (!s->lov || *why || model_start(s->model)) {
    if (!*why)
      snprintf(why, why_size, "the service model could not be started; is there memory left?");
    return -EINVAL;
  }
  for (uint32_t i = 0; i < o->osts; i++)
    model_ost_use(s->model, i, s->store.header->osts[i].room_bytes, s->store.header->osts[i].objects, true);
  model_mdt_use(s->model, s->store.header->inodes);
  return 0;
}

static void set_limits(struct server *s) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  long files = limit.rlim_cur > INT32_MAX ? INT32_MAX : (long)limit.rlim_cur;
  s->env.open_limit = (int)(files > 2 * SPARE_FILES ? files - SPARE_FILES : files / 2);
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* buffers of 1 MiB are reused, not mapped anew for each read */
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  prctl(PR_SET_TIMERSLACK, 1);
  umask(0);
}

static int up(struct server *s, const struct options *o, char **mounts, int count, char *why, size_t why_size) {
  int err = take_lock(o->folder);
  if (err) {
    snprintf(why, why_size, err == -EBUSY ? "a testbed already runs on %s" : "%s/run/lock cannot be made", o->folder);
    return err;
  }
  s->folder = o->folder;
  s->posix = o->posix;
  s->everyone = geteuid() == 0;
  s->env.store = &s->store;
  s->env.open_files = &s->open_files;
  pthread_mutex_init(&s->names, NULL);
  pthread_mutex_init(&s->mounts_lock, NULL);
  clock_gettime(CLOCK_REALTIME, &s->started);
  set_limits(s);
  if (!(s->locks = locks_new())) {
    snprintf(why, why_size, "there is no memory left");
    return -ENOMEM;
  }
  if ((err = open_store(s, o, why, why_size)) || (err = start_model(s, o, why, why_size)))
    return err;
  s->env.model = s->model;
  for (int i = 0; i < count && !err; i++) err = mounts_add(s, mounts[i], why, why_size);
  return err;
}

int main(int argc, char **argv) {
  static struct server server; /* large, and threads live as long as the process */
  struct options o;
  char why[PATH_MAX + 512] = "";
  if (!parse(argc, argv, &o)) {
    fprintf(stderr, "usage: penstock-testbed --folder F --osts N --osss N [--mdts N] [--fsname NAME]\n"
                    "         [--caching contention|posix] [--settings FILE] [--ready-fd N] MOUNT...\n"
                    "it is meant to be started by: penstock testbed up\n");
    return 2;
  }
  if (chdir("/"))
    return fail(&o, "the folder / cannot be entered");
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
  int signals = signalfd(-1, &set, SFD_CLOEXEC);
  int err = up(&server, &o, argv + optind, argc - optind, why, sizeof why);
  int listening = err ? -1 : control_listen(o.folder);
  if (!err && listening < 0)
    snprintf(why, sizeof why, "%s/run/control cannot be made: %s", o.folder, strerror(-listening));
  if (err || listening < 0) {
    bool ended = mounts_detach_all(&server);
    if (server.store.header && ended && err != -EUCLEAN)
      server.store.header->running = 0;
    fail(&o, why);
    _exit(1);
  }
  tell(o.ready, "ready\n");
  if (o.ready >= 0)
    close(o.ready);
  control_serve(&server, listening, signals);
  if (mounts_detach_all(&server)) /* else something is still open: looked over at the next start */
    server.store.header->running = 0;
  model_free(server.model);
  _exit(0);
}
