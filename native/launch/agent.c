// SPDX-License-Identifier: Apache-2.0
/* See agent.h. */
#include "launch/agent.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "board/holder.h"
#include "launch/ask.h"
#include "launch/frames.h"

enum {
  TICK_MIN_MS = 20,
  TICK_MAX_MS = 500,
  FIRST_FRAME_MS = 10000,      /* the next after twice the time, and so on */
  FRAME_EVERY_MAX_MS = 3600000,
  LOOK_EVERY_MS = 1000,
  GRACE_MS = 1000,             /* for the other ranks of a node to end with ours */
  LINGER_MS = 30000,           /* for ranks that have not begun when all others ended */
  COLLECT_EVERY_MS = 50,       /* a collector's look at its own board; at one of the site's, ten times as seldom */
  DEAD_CHUNKS = 128,           /* so many are worth giving back */
  BUSY_CHUNKS = 8,             /* so many new ones since the last tick mean that more will come */
  LIMITS_EVERY_MS = 500,       /* tickets of the dead are back within a second */
  LEASE_MS = 10000,
};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t real_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ms(int ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL); }

int penstock_log_open(const struct penstock_wishes *wishes) {
  char path[PATH_MAX];
  const char *chosen = getenv("PENSTOCK_LOG");
  if (snprintf(path, sizeof path, "%s%s", chosen && *chosen ? chosen : wishes->state,
               chosen && *chosen ? "" : "/penstock.log") >= (int)sizeof path)
    return -1;
  int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, fd = open(path, flags, 0600);
  if (fd < 0 && errno == ENOENT && !(chosen && *chosen)) {
    penstock_make_parents(path);
    fd = open(path, flags, 0600);
  }
  return fd;
}

void penstock_note(const struct penstock_wishes *wishes, const char *format, ...) {
  char line[1024], when[32];
  struct tm tm;
  time_t now = time(NULL);
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
  int size = snprintf(line, sizeof line, "%s penstock-run[%d]: ", when, (int)getpid());
  va_list list;
  va_start(list, format);
  size += vsnprintf(line + size, sizeof line - (size_t)size, format, list);
  va_end(list);
  size = size > (int)sizeof line - 2 ? (int)sizeof line - 2 : size;
  line[size++] = '\n';
  int fd = penstock_log_open(wishes);
  if (fd >= 0 && write(fd, line, (size_t)size) < 0)
    size = 0; /* a log that cannot be written is no reason for anything */
  if (fd >= 0)
    close(fd);
}

/* ---- frames ---- */

int penstock_write_frames(struct penstock_watch *w, const struct penstock_wishes *wishes, const char *node,
                          const uint8_t *only, bool final, const char *reason, const struct penstock_pack *more,
                          uint32_t *living) {
  struct penstock_picture picture = {0};
  struct penstock_pack p = {0};
  struct penstock_mounts mounts;
  struct penstock_blob *layouts = NULL;
  struct penstock_placed placed;
  struct penstock_limited limited;
  int error = penstock_harvest(w, &picture, living);
  if (error)
    return error;
  /* A run of which nobody attached has a frame too: that is what there is to be said of it. */
  penstock_picture_run(&picture, only ? only : w->head.run);
  penstock_mounts_read(&mounts);
  if (final)
    layouts = penstock_layouts_read(&picture, &mounts);
  penstock_placed_read(&placed, w, &picture, layouts);
  penstock_limited_read(&limited, w);
  if (w->before)
    penstock_limited_since(&limited, w->before);
  struct penstock_served served;
  penstock_served_read(&served, w);
  struct penstock_frame_facts facts = {
    .node = node,
    .time_ns = real_ns(),
    .offset_ns = w->head.monotonic_offset_ns,
    .run = w->head.run,
    .lost = w->lost,
    .damaged = w->damaged,
    .mounts = &mounts,
    .layouts = layouts,
    .placed = &placed,
    .limited = w->agent || w->before ? &limited : NULL,
    .served = &served,
    .reason = reason,
  };
  penstock_frames_node(&p, &picture, &facts, only);
  if (more)
    penstock_pack_bytes(&p, more->data, more->size);
  error = p.failed ? -ENOMEM : p.size ? penstock_segment_append(wishes->history, node, wishes->group, p.data, p.size) : 0;
  penstock_layouts_free(layouts, picture.file_count);
  penstock_mounts_free(&mounts);
  penstock_picture_free(&picture);
  free(p.data);
  return error;
}

static const char *user_name(char ret[64]) {
  const char *name = getenv("LOGNAME");
  if (!name || !*name)
    name = getenv("USER");
  snprintf(ret, 64, "%s", name ? name : "");
  FILE *file = *ret ? NULL : fopen("/etc/passwd", "re");
  for (struct passwd *row; file && (row = fgetpwent(file));)
    if (row->pw_uid == getuid()) {
      snprintf(ret, 64, "%s", row->pw_name);
      break;
    }
  if (file)
    fclose(file);
  return ret;
}

static void write_begin(const struct penstock_launch *l, const char *cwd, uint64_t start_ns) {
  struct penstock_pack p = {0};
  char user[64];
  struct penstock_begin_facts facts = {
    .job = l->job.job,
    .job_source = l->job.source,
    .step = l->job.step,
    .node = l->job.node,
    .user = user_name(user),
    .uid = getuid(),
    .launcher = l->launcher,
    .argv = l->argv,
    .cwd = cwd,
    .start_ns = start_ns,
    .ranks = l->job.size,
  };
  penstock_frame_begin(&p, l->job.run, &facts);
  int error = p.failed ? -ENOMEM : penstock_segment_append(l->wishes.history, l->job.node, l->wishes.group, p.data, p.size);
  if (error)
    penstock_note(&l->wishes, "the history %s cannot be written (%s)", l->wishes.history, strerror(-error));
  free(p.data);
}

/* ---- what is to be done from time to time ---- */

struct rhythm {
  int tick_ms;
  uint32_t used, looked_at; /* chunks in use at the last tick, and at the last look at who is dead */
  int64_t next_look_ms, next_frame_ms, frame_every_ms, next_limits_ms;
};

static struct rhythm begin_rhythm(void) {
  return (struct rhythm){TICK_MIN_MS, 0, 0, now_ms() + LOOK_EVERY_MS, now_ms() + FIRST_FRAME_MS, FIRST_FRAME_MS, 0};
}

/* The more happens, the sooner the next tick: a job may start hundreds of processes a second. */
static void set_pace(struct rhythm *r, uint32_t used, bool grew) {
  uint32_t change = used > r->used ? used - r->used : r->used - used;
  r->tick_ms = grew || change >= BUSY_CHUNKS ? TICK_MIN_MS : r->tick_ms * 2 < TICK_MAX_MS ? r->tick_ms * 2 : TICK_MAX_MS;
  r->used = used;
}

/* Limits by hand: leases go on while we live, and nobody waits for the dead. */
static void keep_limits(struct penstock_watch *w, struct rhythm *r, int64_t now) {
  struct penstock_holder h;
  if (now < r->next_limits_ms || !(w->board.control->stages & PENSTOCK_STAGE_LIMIT) || penstock_hold_board(&h, &w->board))
    return;
  r->next_limits_ms = now + LIMITS_EVERY_MS;
  penstock_hold_renew(&h, LEASE_MS * UINT64_C(1000000));
  penstock_hold_give_back(&h);
}

/* Room for the board, chunks of the dead back, a frame now and then. */
static void tick(struct penstock_launch *l, struct penstock_watch *w, struct rhythm *r, uint32_t *living) {
  if (!w->agent)
    return;
  bool grew = penstock_board_grow(&w->board) > 0;
  set_pace(r, penstock_watch_used(w), grew);
  int64_t now = now_ms();
  penstock_asks_look(&l->asks, w);
  keep_limits(w, r, now);
  bool much_new = r->used >= r->looked_at + DEAD_CHUNKS / 2 && r->used >= w->chunk_count / 4;
  if (now >= r->next_look_ms || much_new) {
    r->next_look_ms = now + LOOK_EVERY_MS;
    if (penstock_watch_look(w, living) == 0 && w->dead_chunks >= DEAD_CHUNKS / 2 && penstock_give_back(w) > 0)
      r->used = penstock_watch_used(w);
    r->looked_at = r->used;
  }
  if (now >= r->next_frame_ms) {
    r->frame_every_ms = r->frame_every_ms * 2 > FRAME_EVERY_MAX_MS ? FRAME_EVERY_MAX_MS : r->frame_every_ms * 2;
    r->next_frame_ms = now + r->frame_every_ms;
    penstock_write_frames(w, &l->wishes, l->job.node, NULL, false, NULL, NULL, living);
  }
}

/* ---- starting the program ---- */

_Noreturn void penstock_become(const char *who, char **argv, char **environment, int failed) {
  environ = environment;
  execvp(argv[0], argv);
  int status = errno == ENOENT ? 127 : 126;
  const char *why = errno == ENOENT && !strchr(argv[0], '/') ? "command not found" : strerror(errno);
  dprintf(2, "%s: %s: %s\n", who, argv[0], why);
  if (failed >= 0 && write(failed, "", 1) < 0)
    status = 126;
  _exit(status);
}

/* -1: no process was to be had.  `began`: it became the program. */
static pid_t start(struct penstock_launch *l, const sigset_t *mask, const struct sigaction *on_child, bool *began) {
  int ends[2] = {-1, -1};
  char told;
  if (pipe2(ends, O_CLOEXEC))
    ends[0] = ends[1] = -1;
  pid_t us = getpid(), child = fork();
  if (child) {
    if (ends[1] >= 0)
      close(ends[1]);
    *began = child > 0 && read(ends[0], &told, 1) <= 0; /* exec closes the other end */
    return child;
  }
  if (l->die_with_us) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != us)
      _exit(128 + SIGKILL);
  }
  if (l->plain_signals) {
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
  }
  sigaction(SIGCHLD, on_child, NULL);
  sigprocmask(SIG_SETMASK, mask, NULL);
  penstock_become(l->launcher, l->argv, l->environment, ends[1]);
}

/* Close all descriptors but ours, so that pipes end when the program ends them; standard ones become /dev/null. */
static void close_from_to(unsigned from, unsigned to) {
  if (from > to || syscall(SYS_close_range, from, to, 0) == 0)
    return;
  for (unsigned fd = from; fd <= to && fd < 65536; fd++)
    close((int)fd);
}

static void let_go(const struct penstock_launch *l, const struct penstock_watch *w, bool keep_error) {
  enum { KEPT = 6 };
  bool serves = l->serve.root_size;
  int keep[KEPT] = {w->control,      w->usage, w->agent ? w->board.usage : -1, l->helper.alive, serves ? (int)l->serve.image_fd : -1,
                    serves ? (int)l->serve.segment_fd : -1};
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd < (keep_error ? 2 : 3); fd++)
    dup2(null, fd);
  for (int i = 0; i < KEPT; i++) /* sort */
    for (int j = i + 1; j < KEPT; j++)
      if (keep[j] < keep[i]) {
        int swap = keep[i];
        keep[i] = keep[j];
        keep[j] = swap;
      }
  unsigned from = 3;
  for (int i = 0; i < KEPT; i++)
    if (keep[i] >= (int)from) {
      close_from_to(from, (unsigned)keep[i] - 1);
      from = (unsigned)keep[i] + 1;
    }
  close_from_to(from, ~0u);
  if (chdir("/"))
    return; /* then the folder stays held */
}

/* ---- waiting for it ---- */

/* Stop as the program did, until the shell goes on. */
static void stop_too(int sig, pid_t child) {
  sigset_t one;
  signal(sig, SIG_DFL);
  sigemptyset(&one);
  sigaddset(&one, sig);
  raise(sig);
  sigprocmask(SIG_UNBLOCK, &one, NULL);
  sigprocmask(SIG_BLOCK, &one, NULL);
  kill(child, SIGCONT);
}

/* True when the program ended, with its status. */
static bool has_ended(pid_t child, int *status) {
  for (;;) {
    pid_t which = waitpid(child, status, WNOHANG | WUNTRACED);
    if (which != child)
      return which < 0 && errno == ECHILD && (*status = 0, true);
    if (!WIFSTOPPED(*status))
      return true;
    int sig = WSTOPSIG(*status);
    if (sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU)
      stop_too(sig, child);
  }
}

/* A signal that is about ending: the step may be killed soon. */
static bool announces_end(int sig) {
  return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGXCPU || sig == SIGUSR1 || sig == SIGUSR2;
}

/* The frames of what we answer for: a board's every run, or our own on the board of another. */
static int write_ours(const struct penstock_launch *l, struct penstock_watch *w, bool final,
                      const struct penstock_pack *more, uint32_t *living) {
  return penstock_write_frames(w, &l->wishes, l->job.node, l->nested ? l->job.run : NULL, final, NULL, more, living);
}

/* How many still run of those that we answer for; false: that cannot be told. */
static bool who_lives(const struct penstock_launch *l, struct penstock_watch *w, uint32_t *living) {
  struct penstock_picture p;
  if (!l->nested)
    return penstock_watch_look(w, living) == 0;
  if (penstock_harvest(w, &p, living))
    return false;
  *living = 0;
  for (uint32_t i = 0; i < p.process_count; i++)
    *living += !p.processes[i].ended && memcmp(p.runs[p.processes[i].run].id, l->job.run, sizeof l->job.run) == 0;
  penstock_picture_free(&p);
  return true;
}

static int wait_for(struct penstock_launch *l, struct penstock_watch *w, pid_t child) {
  struct rhythm r = begin_rhythm();
  sigset_t all;
  uint32_t living;
  int status = 0;
  sigfillset(&all);
  while (!has_ended(child, &status)) {
    siginfo_t info;
    struct timespec wait = {.tv_sec = r.tick_ms / 1000, .tv_nsec = r.tick_ms % 1000 * 1000000L};
    int sig = sigtimedwait(&all, &info, w->agent ? &wait : NULL);
    if (sig < 0)
      tick(l, w, &r, &living);
    if (sig <= 0 || sig == SIGCHLD || info.si_code > 0)
      continue;
    if (sig >= SIGRTMIN)
      sigqueue(child, sig, info.si_value);
    else
      kill(child, sig);
    if ((w->agent || *l->site) && announces_end(sig))
      write_ours(l, w, false, NULL, &living);
  }
  return status;
}

/* ---- the end ---- */

static uint32_t ranks_seen(const struct penstock_picture *p) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->process_count; i++) {
    bool first = p->processes[i].rank >= 0;
    for (uint32_t j = 0; first && j < i; j++)
      first = p->processes[j].rank != p->processes[i].rank;
    count += first;
  }
  return count;
}

/* Are there ranks of this node that nothing was seen of yet? */
static bool ranks_missing(const struct penstock_launch *l, struct penstock_watch *w) {
  struct penstock_picture p;
  uint32_t living;
  if (!l->job.ranked || l->job.local_size < 2 || penstock_harvest(w, &p, &living))
    return false;
  uint32_t seen = ranks_seen(&p);
  penstock_picture_free(&p);
  return seen < l->job.local_size;
}

/* We started a launcher: if not all of its ranks came to our board, say what would have seen them. */
static void mark_missing(const struct penstock_launch *l, struct penstock_watch *w, struct penstock_pack *ret) {
  struct penstock_picture p;
  uint32_t living, world = 0;
  if (!*l->hint || penstock_harvest(w, &p, &living))
    return;
  for (uint32_t i = 0; i < p.process_count; i++)
    if (p.processes[i].rank >= 0 && p.processes[i].size > world)
      world = p.processes[i].size;
  uint32_t seen = ranks_seen(&p);
  if (!seen || seen < world)
    penstock_frame_mark(ret, l->job.run, l->job.node, "ranks_missing", "", l->hint, real_ns());
  penstock_picture_free(&p);
}

/* Whoever plans next counts what this run was promised no longer: an empty file says that it is over. */
static void close_promises(const struct penstock_launch *l, const struct penstock_watch *w) {
  char path[PATH_MAX];
  struct penstock_placed placed;
  penstock_placed_read(&placed, w, NULL, NULL);
  for (uint32_t i = 0; i < placed.plans; i++) {
    if (snprintf(path, sizeof path, "%s/place/ended/%llu", l->wishes.state, (unsigned long long)placed.made_ns[i]) >=
        (int)sizeof path)
      continue;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd >= 0)
      close(fd);
  }
}

/* What never reached the file system's servers, in one line. */
static void say_served(const struct penstock_watch *w) {
  struct penstock_served s;
  penstock_served_read(&s, w);
  if (!s.any)
    return;
  dprintf(2, "penstock: %llu calls were answered from the catalog (stat %llu, access %llu, readlink %llu, layout %llu, "
             "missing %llu) and %llu listings, %llu below it went on%s\n",
          (unsigned long long)penstock_served_calls(&s), (unsigned long long)s.count[PENSTOCK_SERVE_STAT],
          (unsigned long long)s.count[PENSTOCK_SERVE_ACCESS], (unsigned long long)s.count[PENSTOCK_SERVE_READLINK],
          (unsigned long long)s.count[PENSTOCK_SERVE_LAYOUT], (unsigned long long)s.count[PENSTOCK_SERVE_MISSING],
          (unsigned long long)s.count[PENSTOCK_SERVE_LISTED], (unsigned long long)s.count[PENSTOCK_SERVE_PASSED],
          s.ended ? "; answers ended with a change of which nobody could tell where it was" : "");
}

/* Write what holds at the end, and put the board away unless that failed. */
static int finish(struct penstock_launch *l, struct penstock_watch *w, const struct penstock_pack *more) {
  uint32_t living;
  close_promises(l, w);
  int error = write_ours(l, w, true, more, &living);
  if (error)
    penstock_note(&l->wishes, "the record of run at %s stays there (%s); penstock runs collect brings it in", w->path,
                  strerror(-error));
  else if (w->agent && !living) {
    penstock_asks_forget(l->board);
    penstock_board_put_away(w, l->job.ranked);
  } else if (*l->site)
    penstock_ask_recorded(l->site, l->job.run);
  return error;
}

/* Overwrite what /proc shows of our environment: job managers find processes by it. */
static void clear_environment(void) {
  for (char **at = environ; at && *at; at++)
    memset(*at, 0, strlen(*at));
  clearenv();
}

/* The collector: a process of its own, which stays until the last of the job's processes is gone. */
static void detach(struct penstock_launch *l, struct penstock_watch *w) {
  pid_t middle = fork();
  if (middle) {
    if (middle > 0)
      waitpid(middle, NULL, 0);
    return;
  }
  setsid();
  if (fork())
    _exit(0);
  let_go(l, w, false);
  prctl(PR_SET_NAME, "penstock-collect");
  clear_environment();
  struct rhythm r = begin_rhythm();
  uint32_t living = 1;
  int64_t give_up_ms = now_ms() + LINGER_MS;
  sigset_t all;
  sigfillset(&all);
  for (;;) {
    int64_t now = now_ms();
    if (who_lives(l, w, &living) && !living && (now >= give_up_ms || !ranks_missing(l, w)))
      break;
    if (living)
      give_up_ms = now + LINGER_MS;
    tick(l, w, &r, &living);
    struct timespec wait = {.tv_nsec = COLLECT_EVERY_MS * (w->agent ? 1 : 10) * 1000000L};
    int sig = sigtimedwait(&all, NULL, &wait);
    if (sig > 0 && announces_end(sig))
      write_ours(l, w, true, NULL, &living);
  }
  finish(l, w, NULL);
  _exit(0);
}

static _Noreturn void end_as(int status) {
  if (WIFEXITED(status))
    _exit(WEXITSTATUS(status));
  int sig = WTERMSIG(status);
  sigset_t one;
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  prctl(PR_SET_DUMPABLE, 0);
  signal(sig, SIG_DFL);
  sigemptyset(&one);
  sigaddset(&one, sig);
  raise(sig);
  sigprocmask(SIG_UNBLOCK, &one, NULL);
  _exit(128 + sig);
}

/* The others of this node end with us if all is well: give them a moment. */
static uint32_t wait_for_others(const struct penstock_launch *l, struct penstock_watch *w, int status) {
  uint32_t living = 0;
  bool all_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  int64_t until_ms = now_ms() + (l->job.ranked && all_well ? GRACE_MS : 0);
  for (int ms = 1; who_lives(l, w, &living) && living && now_ms() < until_ms; ms = ms < 50 ? ms * 2 : ms)
    sleep_ms(ms);
  return living;
}

/* On the board of a run around us, whose agent writes for all; or of the node's, where we are the only ones. */
static void finish_nested(struct penstock_launch *l, struct penstock_watch *w, int status,
                          const struct penstock_pack *end) {
  uint32_t living;
  penstock_asks_end(l->board);
  bool more_to_come = *l->site && (wait_for_others(l, w, status) || ranks_missing(l, w));
  int error = write_ours(l, w, true, end, &living);
  if (error)
    penstock_note(&l->wishes, "a nested run could not be recorded (%s)", strerror(-error));
  else if (more_to_come)
    detach(l, w);
  else if (*l->site)
    penstock_ask_recorded(l->site, l->job.run);
}

/* For `penstock run -v`, when all is over. */
static void say_where(const struct penstock_launch *l, int error) {
  char hex[33];
  penstock_run_hex(hex, l->job.run);
  if (error)
    dprintf(2, "penstock: the history %s cannot be written (%s); penstock runs collect brings the record in when it can\n",
            l->wishes.history, strerror(-error));
  else
    dprintf(2, "penstock: recorded; penstock report %.12s shows it\n", hex);
}

_Noreturn void penstock_agent_run(struct penstock_launch *l, struct penstock_watch *w) {
  sigset_t all, mask;
  char cwd[PATH_MAX];
  uint64_t start_ns = real_ns();
  if (!getcwd(cwd, sizeof cwd))
    *cwd = 0;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &mask);
  struct sigaction on_child;
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &on_child);
  bool began;
  if (w->agent)
    penstock_helper_start(&l->helper, &l->wishes, l->board, &mask);
  else
    l->helper.alive = -1;
  static struct penstock_limited before;
  if (*l->site) {
    penstock_limited_read(&before, w);
    w->before = &before;
  }
  pid_t child = start(l, &mask, &on_child, &began);
  if (child < 0) {
    sigprocmask(SIG_SETMASK, &mask, NULL);
    penstock_board_put_away(w, false);
    penstock_become(l->launcher, l->argv, l->environment, -1);
  }
  let_go(l, w, l->verbose);
  if (began)
    write_begin(l, cwd, start_ns);
  int status = wait_for(l, w, child);
  if (!began) { /* nothing ran, so there is nothing to tell, and nothing will be written */
    if (w->agent)
      close_promises(l, w);
    penstock_board_put_away(w, false);
    end_as(status);
  }
  struct penstock_pack end = {0};
  penstock_frame_end(&end, l->job.run, l->job.node, status, real_ns());
  mark_missing(l, w, &end);
  if (!w->agent) {
    finish_nested(l, w, status, &end);
    end_as(status);
  }
  uint32_t living = wait_for_others(l, w, status);
  if (l->verbose)
    say_served(w);
  bool more_to_come = living || ranks_missing(l, w);
  int error;
  if (more_to_come) {
    error = penstock_write_frames(w, &l->wishes, l->job.node, NULL, true, NULL, &end, &living);
    detach(l, w);
  } else {
    error = finish(l, w, &end);
    penstock_helper_finish(&l->helper, &l->wishes, l->verbose);
    penstock_collect(l->base, &l->wishes, l->job.node, l->board);
  }
  if (l->verbose)
    say_where(l, error);
  end_as(status);
}

/* ---- boards that others left ---- */

int penstock_collect_board(const char *path, const struct penstock_wishes *wishes, const char *node, uint32_t *living) {
  struct penstock_watch w;
  int error = penstock_board_claim(&w, path);
  if (error)
    return error;
  error = penstock_write_frames(&w, wishes, node, NULL, true, NULL, NULL, living);
  if (!error && !*living) {
    penstock_asks_forget(path);
    penstock_board_put_away(&w, false);
  }
  penstock_watch_close(&w);
  return error;
}

/* What a board left behind for ranks that might have come later goes after a day. */
static void forget_gone(char *path) {
  struct stat gone, board;
  char *end = path + strlen(path) - strlen(".gone");
  bool old = stat(path, &gone) == 0 && gone.st_mtime + 86400 < time(NULL);
  *end = 0;
  bool alone = stat(path, &board) != 0;
  *end = '.';
  if (old && alone)
    unlink(path);
}

int penstock_collect(const char *base, const struct penstock_wishes *wishes, const char *node, const char *except) {
  DIR *folder = opendir(base);
  uint32_t living;
  int count = 0;
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    char path[PENSTOCK_BOARDS_PATH_MAX + 256];
    snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
    /* RUN-NODE: 32 and 16 hexadecimal digits */
    size_t size = strspn(entry->d_name, "0123456789abcdef-");
    if (size == 49 && !entry->d_name[size] && !(except && strcmp(path, except) == 0))
      count += penstock_collect_board(path, wishes, node, &living) == 0;
    else if (size == 49 && strcmp(entry->d_name + size, ".gone") == 0)
      forget_gone(path);
  }
  if (folder)
    closedir(folder);
  return count;
}
