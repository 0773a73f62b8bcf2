// SPDX-License-Identifier: Apache-2.0
/* penstock-run [options] [--] command [argument ...]

   Runs a command under Penstock: what a launcher starts on every node (srun penstock-run ./app).  Static, so that it
   starts anywhere and at once.  The first on a node makes the job's board and is its agent (agent.h); the others find
   the board and become the command.

   Invariants:
   1. Whatever is missing or broken, the command runs.
   2. Where the board is there: at most six path look-ups besides the search for the command.
   3. The command's environment gains LD_PRELOAD (ahead of what is in it), PENSTOCK_BOARD and PENSTOCK_RUN, no more. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "launch/agent.h"
#include "launch/placed.h"
#include "launch/places.h"
#include "launch/plan.h"
#include "launch/ask.h"
#include "launch/program.h"

#ifndef PENSTOCK_VERSION
#define PENSTOCK_VERSION ""
#endif

static const char HELP[] =
  "usage: penstock-run [options] [--] command [argument ...]\n"
  "\n"
  "Runs a command under Penstock, as one of a job's ranks.\n"
  "\n"
  "  srun penstock-run ./app          each node's ranks share one board; penstock report shows the job\n"
  "  mpirun -n 8 penstock-run ./app\n"
  "\n"
  "options:\n"
  "  --set NAME=VALUE   one setting, over all files (penstock config show lists them)\n"
  "  --plan FILE        what penstock run --plan-file wrote: limits; so does PENSTOCK_PLAN=FILE\n"
  "  --help, --version\n"
  "PENSTOCK_DISABLE=1 in the environment: the command runs alone.\n";

struct options {
  const char *set[64];
  int set_count;
  const char *plan;
  int tell; /* descriptor: who makes the plan waits there for the board's name; -1: nobody */
  bool is_run, verbose; /* is_run: `penstock run` has become us */
  char **argv;
};

static _Noreturn void usage(const char *what, const char *word) {
  dprintf(2, "penstock-run: %s%s; penstock-run --help tells more\n", what, word);
  _exit(2);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.plan = getenv("PENSTOCK_PLAN"), .tell = -1};
  int i = 1;
  for (; i < argc && argv[i][0] == '-'; i++) {
    if (strcmp(argv[i], "--") == 0) {
      i++;
      break;
    }
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(HELP, stdout);
      exit(0);
    }
    if (strcmp(argv[i], "--version") == 0) {
      puts("penstock-run " PENSTOCK_VERSION);
      exit(0);
    }
    if (strcmp(argv[i], "--as-penstock-run-verb") == 0)
      o.is_run = true;
    else if (strcmp(argv[i], "-v") == 0)
      o.verbose = true;
    else if (strcmp(argv[i], "--plan") == 0 && i + 1 < argc)
      o.plan = argv[++i];
    else if (strcmp(argv[i], "--tell-board") == 0 && i + 1 < argc) {
      o.tell = atoi(argv[++i]);
      fcntl(o.tell, F_SETFD, FD_CLOEXEC);
    }
    else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && o.set_count < 64)
      o.set[o.set_count++] = argv[++i];
    else
      usage("no option is called ", argv[i]);
  }
  if (i >= argc)
    usage("which command? penstock-run ./app", "");
  o.argv = argv + i;
  return o;
}

/* PREFIX/lib/penstock/NAME, for us at PREFIX/bin/penstock-run: false when it is not there. */
static bool find_library(char *ret, size_t room, const char *name) {
  ssize_t size = readlink("/proc/self/exe", ret, room - 1);
  if (size <= 0)
    return false;
  ret[size] = 0;
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(ret, '/');
    if (!slash)
      return false;
    *slash = 0;
  }
  size_t prefix = strlen(ret);
  /* LD_PRELOAD cannot name a path with a space or a colon in it */
  return (size_t)snprintf(ret + prefix, room - prefix, "/lib/penstock/%s", name) < room - prefix &&
         !strpbrk(ret, " :\t\n") && access(ret, R_OK) == 0;
}

/* Does the program (a launcher's, where it starts one) need MPI?  Then a second library sees its calls. */
static bool wants_mpi(char **argv) {
  char path[PATH_MAX];
  int program = penstock_program_is_launcher(argv[0]) ? penstock_program_launched(argv) : 0;
  return penstock_program_find(path, sizeof path, argv[program]) && penstock_program_needs_mpi(path);
}

/* Put our libraries ahead of what is in LD_PRELOAD. */
static void preload(const char *ours, char **argv) {
  const char *before = getenv("LD_PRELOAD");
  char *all = NULL, library[2 * PATH_MAX];
  size_t size = strlen(ours) - strlen(".so");
  bool mpi = wants_mpi(argv) && !(before && strstr(before, "libpenstock-mpi.so"));
  if (before && strstr(before, ours) && !mpi)
    return;
  snprintf(library, sizeof library, "%s%s%.*s%s", ours, mpi ? ":" : "", mpi ? (int)size : 0, ours, mpi ? "-mpi.so" : "");
  if (before && *before && asprintf(&all, "%s:%s", library, before) > 0)
    setenv("LD_PRELOAD", all, 1);
  else
    setenv("LD_PRELOAD", library, 1);
  free(all);
}

/* What programs are answered from, as the plan says; NULL: nothing. */
static const struct penstock_serve_section *serve_of(const struct penstock_plan_file *file) {
  for (uint32_t i = 0; i < file->part_count; i++) {
    const struct penstock_serve_section *it = file->parts[i].data;
    if (file->parts[i].kind == PENSTOCK_SECTION_SERVE && file->parts[i].version == PENSTOCK_SERVE_VERSION &&
        file->parts[i].bytes >= sizeof *it && it->root_size && it->root_size <= PENSTOCK_PREFIX_BYTES)
      return it;
  }
  return NULL;
}

/* Its memory is held by us alone: the program does not inherit it. */
static void hold_served(struct penstock_launch *l, const struct penstock_plan_file *file) {
  const struct penstock_serve_section *it = serve_of(file);
  if (!it || it->holder != (uint32_t)getpid())
    return;
  l->serve = *it;
  fcntl((int)it->image_fd, F_SETFD, FD_CLOEXEC);
  fcntl((int)it->segment_fd, F_SETFD, FD_CLOEXEC);
}

/* The rules for which files are under control: noise, the mounts that were named, and those that a plan is for. */
static uint32_t rules(const struct penstock_wishes *w, const struct penstock_plan_file *file, struct penstock_prefix *ret) {
  uint32_t count = penstock_board_noise(ret, PENSTOCK_PREFIXES_MAX);
  for (uint32_t i = 0; i < w->mount_count && count < PENSTOCK_PREFIXES_MAX; i++)
    if (!penstock_board_rule(&ret[count], w->mounts[i], PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT, 0))
      count++;
  if (*w->catalog && count < PENSTOCK_PREFIXES_MAX &&
      !penstock_board_rule(&ret[count], w->catalog_root, PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT, 0))
    count++;
  const struct penstock_serve_section *serve = serve_of(file);
  char root[PENSTOCK_PREFIX_BYTES + 1] = "";
  if (serve && count < PENSTOCK_PREFIXES_MAX) {
    memcpy(root, serve->root, serve->root_size);
    if (!penstock_board_rule(&ret[count], root, PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT, serve->dev))
      count++;
  }
  return count + penstock_placed_rules(ret + count, PENSTOCK_PREFIXES_MAX - count, file->parts, file->part_count);
}

static bool is_named(const struct penstock_wishes *w, const char *point) {
  for (uint32_t i = 0; i < w->mount_count; i++)
    if (strcmp(w->mounts[i], point) == 0)
      return true;
  return false;
}

/* Is a word one of a list's, between colons? */
static bool is_among(const char *list, const char *word) {
  size_t size = strlen(word);
  for (const char *at = list; *at; at += strcspn(at, ":"), at += *at != 0)
    if (strcspn(at, ":") == size && memcmp(at, word, size) == 0)
      return true;
  return false;
}

/* Mounts of parallel file systems are under control as if they had been named. */
static void detect_mounts(struct penstock_wishes *w) {
  struct penstock_mounts here;
  if (!*w->detect)
    return;
  penstock_mounts_read(&here);
  for (size_t i = 0; i < here.count && w->mount_count < PENSTOCK_MOUNTS_MAX; i++) {
    const struct penstock_mount *m = &here.mount[i];
    if (is_among(w->detect, m->type) && strlen(m->point) < sizeof w->mounts[0] && !is_named(w, m->point))
      strcpy(w->mounts[w->mount_count++], m->point);
  }
  penstock_mounts_free(&here);
}

/* What to type so that all ranks are seen: the launcher's own command with penstock-run ahead of the program. */
static void make_hint(struct penstock_launch *l) {
  int program = penstock_program_is_launcher(l->argv[0]) ? penstock_program_launched(l->argv) : 0;
  size_t size = 0, room = sizeof l->hint;
  for (int i = 0; program && l->argv[i] && size < room; i++)
    size += (size_t)snprintf(l->hint + size, room - size, "%s%s%s", i ? " " : "", i == program ? "penstock-run " : "",
                             l->argv[i]);
}

/* What the job's plan says, if there is one. */
static void read_plan(const struct penstock_launch *l, const char *path, struct penstock_plan_file *ret) {
  const char *wrong = path && *path ? penstock_plan_read(ret, path) : NULL;
  if (!wrong)
    return;
  penstock_note(&l->wishes, "the plan %s cannot be used (%s); the program runs without", path, wrong);
  dprintf(2, "penstock-run: the plan %s cannot be used (%s); the program runs without\n", path, wrong);
}

static int take_board(struct penstock_launch *l, struct penstock_watch *w, const struct penstock_plan_file *file) {
  struct penstock_prefix prefixes[PENSTOCK_PREFIXES_MAX];
  struct penstock_board_plan plan = {
    .stages = l->wishes.stages,
    .otherwise = PENSTOCK_UNDER_RECORD,
    .record_files_max = l->wishes.files_max,
    .record_sample_every = l->wishes.sample_every,
    .usage_max_bytes = l->wishes.board_max_bytes,
    .ring_bytes = l->wishes.ring_bytes,
    .prefixes = prefixes,
    .prefix_count = rules(&l->wishes, file, prefixes),
    .parts = file->parts,
    .part_count = file->part_count,
  };
  memcpy(plan.run, l->job.run, sizeof plan.run);
  int error = penstock_board_take(w, l->base, l->board, &plan);
  penstock_asks_begin(&l->asks, file->parts, file->part_count);
  if (!error)
    penstock_placed_begin(&w->board, l->job.node);
  return error;
}

/* The job's board from this node's agent: we are one of its runs, and keep our own record if we are the first. */
static int ask_agent(struct penstock_launch *l, struct penstock_watch *w, const struct penstock_plan_file *plan,
                     const char *within, bool *first) {
  char socket[108];
  struct penstock_site_board asked;
  if (!penstock_ask_whom(socket, &l->wishes))
    return -ENOENT;
  bool given = penstock_ask(socket, &l->job, &l->wishes, plan, within, &asked);
  if (!given && !within)
    penstock_note(&l->wishes, "the agent at %s gave no board (%s); this runs on one of its own", socket,
                  *asked.refused ? asked.refused : "it does not answer");
  if (!given || (within && strcmp(asked.board, within) != 0))
    return -ENOENT;
  snprintf(l->board, sizeof l->board, "%s", asked.board);
  *first = asked.first;
  int error = penstock_watch_open(w, l->board, false);
  l->nested = !error;
  strcpy(l->site, error ? "" : socket);
  return error;
}

static const struct penstock_board_part *limits_of(const struct penstock_plan_file *plan) {
  for (uint32_t i = 0; i < plan->part_count; i++)
    if (plan->parts[i].kind == PENSTOCK_PLAN_LIMITS)
      return &plan->parts[i];
  return NULL;
}

/* Limits of our own on the board of a run around us, beside that one's: only its agent can add them. */
static bool add_limits(struct penstock_launch *l, struct penstock_watch *w, const struct penstock_plan_file *plan) {
  bool first;
  const struct penstock_board_part *limits = limits_of(plan);
  if (ask_agent(l, w, plan, l->board, &first) == 0)
    return true;
  return penstock_watch_open(w, l->board, false) == 0 && penstock_asks_add(l->board, w, limits->data, limits->bytes);
}

/* On the board of a run around us.  Limits that this run's command names hold too, or it does not begin; those of a plan
   that the whole job has in its environment are the outer one's. */
static int join_outer(struct penstock_launch *l, struct penstock_watch *w, const struct penstock_plan_file *plan,
                      const char *served, bool asked) {
  bool more = limits_of(plan) && asked;
  l->nested = true;
  strcpy(l->board, served);
  if (more && !add_limits(l, w, plan)) {
    dprintf(2, "%s: --limit cannot hold here: the penstock run around this one does not take it up (it is stopped, or more "
               "than eight limits would hold for one call); give that one both limits\n", l->launcher);
    _exit(2);
  }
  int error = more ? 0 : penstock_watch_open(w, served, false);
  if (!error && plan->part_count > more)
    dprintf(2, "%s: this runs on the board of a run around it, whose plan holds; its own is left out\n", l->launcher);
  return error;
}

/* Where the board is or should be: 0, or -errno when there is no place for one. */
static int choose_board(struct penstock_launch *l) {
  int error = penstock_boards_folder(l->base, l->wishes.board_dir);
  if (!error)
    error = penstock_board_path(l->board, l->base, l->job.run, l->job.node);
  if (error)
    snprintf(l->board, sizeof l->board, "%s", l->base);
  return error;
}

static void name_run(const struct penstock_launch *l) {
  char hex[33];
  penstock_run_hex(hex, l->job.run);
  setenv("PENSTOCK_RUN", hex, 1);
  setenv("PENSTOCK_BOARD", l->board, 1);
}

/* To who makes the plan still: where the board is, the agent's socket if it is the agent's, and the run; texts with NULs. */
static void tell_board(int fd, const struct penstock_launch *l) {
  char text[sizeof l->board + sizeof l->site + 33];
  size_t board = strlen(l->board) + 1, site = strlen(l->site) + 1;
  if (fd < 0)
    return;
  memcpy(text, l->board, board);
  memcpy(text + board, l->site, site);
  penstock_run_hex(text + board + site, l->job.run);
  if (write(fd, text, board + site + 33) < 0)
    penstock_note(&l->wishes, "the plan that is being made will not find the board %s", l->board);
  close(fd);
}

/* The quick way for a rank: is its board where it lies without further settings?  Then the environment names it. */
static bool join(struct penstock_launch *l) {
  const char *chosen = getenv("PENSTOCK_BOARD_DIR");
  if (chosen && *chosen)
    snprintf(l->base, sizeof l->base, "%s", chosen);
  else
    snprintf(l->base, sizeof l->base, "/dev/shm/penstock-%u", (unsigned)geteuid());
  if (penstock_board_path(l->board, l->base, l->job.run, l->job.node) || !penstock_board_served(l->board))
    return false;
  name_run(l);
  return true;
}

int main(int argc, char **argv) {
  static struct penstock_launch l;
  static struct penstock_watch w = {.control = -1, .usage = -1};
  char library[PATH_MAX];
  struct options o = parse(argc, argv);
  const char *disable = getenv("PENSTOCK_DISABLE"), *served = getenv("PENSTOCK_BOARD");
  l.launcher = o.is_run ? "penstock run" : "penstock-run";
  l.argv = o.argv;
  l.verbose = o.verbose;
  l.plain_signals = o.is_run;
  l.die_with_us = !o.is_run;
  if (disable && *disable && strcmp(disable, "0") != 0)
    penstock_become(l.launcher, o.argv, environ, -1);
  bool found = find_library(library, sizeof library, "libpenstock.so");
  bool in_run = served && *served == '/' && strlen(served) < sizeof l.board && penstock_board_served(served);
  if (found && in_run && !o.is_run && getenv("PENSTOCK_RUN")) {
    preload(library, o.argv);
    penstock_become(l.launcher, o.argv, environ, -1);
  }
  penstock_job_read(&l.job, o.is_run);
  if (found && !o.is_run && join(&l)) {
    preload(library, o.argv);
    penstock_become(l.launcher, o.argv, environ, -1);
  }
  penstock_wishes_read(&l.wishes);
  for (int i = 0; i < o.set_count; i++)
    if (!penstock_wishes_set(&l.wishes, o.set[i]))
      usage("--set needs a setting and a value of its kind, not ", o.set[i]);
  penstock_wishes_settle(&l.wishes);
  if (!found) {
    penstock_note(&l.wishes, "%s is missing or cannot be preloaded; the program runs without", library);
    if (l.verbose)
      dprintf(2, "penstock: not recorded: %s is missing or cannot be preloaded\n", library);
    penstock_become(l.launcher, o.argv, environ, -1);
  }
  int error = -ENOENT;
  bool first = true;
  if (!in_run)
    detect_mounts(&l.wishes);
  struct penstock_plan_file plan = {0};
  read_plan(&l, o.plan, &plan);
  hold_served(&l, &plan);
  if (in_run)
    error = join_outer(&l, &w, &plan, served, o.is_run && o.plan != getenv("PENSTOCK_PLAN"));
  if (error && !in_run)
    error = ask_agent(&l, &w, &plan, NULL, &first);
  if (error) {
    error = choose_board(&l);
    if (!error)
      error = take_board(&l, &w, &plan);
  }
  penstock_plan_free(&plan);
  if (error && error != -EWOULDBLOCK) {
    penstock_note(&l.wishes, "no board could be made at %s (%s); the program runs without", l.board, strerror(-error));
    if (l.verbose)
      dprintf(2, "penstock: not recorded: no board could be made at %s (%s)\n", l.board, strerror(-error));
    penstock_become(l.launcher, o.argv, environ, -1);
  }
  preload(library, o.argv);
  name_run(&l);
  if (!error && !in_run)
    tell_board(o.tell, &l);
  if (error || (!first && !o.is_run))
    penstock_become(l.launcher, o.argv, environ, -1);
  l.environment = environ;
  if (o.is_run)
    make_hint(&l);
  penstock_agent_run(&l, &w);
}
