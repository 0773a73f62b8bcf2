// SPDX-License-Identifier: Apache-2.0
/* Boards from Python: made, given room, read.  The folder names one; nothing is held between calls. */
#include "areas.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "board/check.h"
#include "board/create.h"
#include "board/read.h"

static PyObject *failure(int error, PyObject *folder) {
  errno = -error;
  return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, folder);
}

/* ---- making ---- */

/* Rules from a sequence of (path, under); the number, or -1 with an exception. */
static Py_ssize_t rules_of(PyObject *given, struct penstock_prefix rules[PENSTOCK_PREFIXES_MAX]) {
  Py_ssize_t count = PySequence_Size(given);
  if (count > PENSTOCK_PREFIXES_MAX)
    PyErr_SetString(PyExc_ValueError, "a board holds at most 64 rules");
  if (count < 0 || count > PENSTOCK_PREFIXES_MAX)
    return -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *rule = PySequence_GetItem(given, i), *path = NULL;
    int under, error = 0;
    bool good = rule && PyArg_ParseTuple(rule, "O&i", PyUnicode_FSConverter, &path, &under);
    if (good)
      error = penstock_board_rule(&rules[i], PyBytes_AsString(path), (uint8_t)under, 0);
    if (error) {
      PyErr_Format(PyExc_ValueError, "rule %R is neither an absolute path of at most %d bytes nor one component", rule,
                   PENSTOCK_PREFIX_BYTES);
      good = false;
    }
    Py_XDECREF(path);
    Py_XDECREF(rule);
    if (!good)
      return -1;
  }
  return count;
}

static PyObject *board_create(PyObject *self, PyObject *args, PyObject *words) {
  static char *names[] = {"folder", "run", "stages", "otherwise", "rules", "files_max", "sample_every", "max_bytes",
                          "place_spots", NULL};
  struct penstock_prefix rules[PENSTOCK_PREFIXES_MAX];
  struct penstock_board_plan plan = {.prefixes = rules};
  struct penstock_board board;
  PyObject *folder, *given;
  const char *run;
  Py_ssize_t run_size;
  unsigned long long max_bytes = 0;
  (void)self;
  if (!PyArg_ParseTupleAndKeywords(args, words, "O&y#IIO|IIKI", names, PyUnicode_FSConverter, &folder, &run, &run_size,
                                   &plan.stages, &plan.otherwise, &given, &plan.record_files_max,
                                   &plan.record_sample_every, &max_bytes, &plan.place_spots))
    return NULL;
  PyObject *result = NULL;
  Py_ssize_t count = rules_of(given, rules);
  if (count >= 0 && run_size != sizeof plan.run) {
    PyErr_SetString(PyExc_ValueError, "a run's id has 16 bytes");
    count = -1;
  }
  if (count >= 0) {
    memcpy(plan.run, run, sizeof plan.run);
    plan.prefix_count = (uint32_t)count;
    plan.usage_max_bytes = max_bytes;
    int error = penstock_board_create(PyBytes_AsString(folder), &plan, &board);
    if (!error)
      penstock_board_close(&board);
    result = error ? failure(error, folder) : Py_NewRef(Py_None);
  }
  Py_DECREF(folder);
  return result;
}

static PyObject *board_noise(PyObject *self, PyObject *unused) {
  struct penstock_prefix rules[PENSTOCK_PREFIXES_MAX];
  uint32_t count = penstock_board_noise(rules, PENSTOCK_PREFIXES_MAX);
  (void)self, (void)unused;
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && i < count; i++) {
    PyObject *path = PyUnicode_DecodeFSDefaultAndSize(rules[i].path, rules[i].size);
    PyObject *rule = path ? Py_BuildValue("(Ni)", path, (int)rules[i].under) : NULL;
    if (!rule || PyList_Append(list, rule) < 0)
      Py_CLEAR(list);
    Py_XDECREF(rule);
  }
  return list;
}

/* Runs `work` on an opened board. */
static PyObject *with_board(PyObject *args, PyObject *(*work)(struct penstock_board *, PyObject *folder)) {
  PyObject *folder, *result;
  struct penstock_board board;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &folder))
    return NULL;
  int error = penstock_board_open(PyBytes_AsString(folder), &board);
  if (error)
    result = failure(error, folder);
  else {
    result = work(&board, folder);
    penstock_board_close(&board);
  }
  Py_DECREF(folder);
  return result;
}

static PyObject *grow(struct penstock_board *board, PyObject *folder) {
  int grown = penstock_board_grow(board);
  return grown < 0 ? failure(grown, folder) : PyBool_FromLong(grown);
}

static PyObject *board_grow(PyObject *self, PyObject *args) {
  (void)self;
  return with_board(args, grow);
}

static PyObject *board_delete(PyObject *self, PyObject *args) {
  PyObject *folder;
  (void)self;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &folder))
    return NULL;
  int error = penstock_board_delete(PyBytes_AsString(folder));
  PyObject *result = error ? failure(error, folder) : Py_NewRef(Py_None);
  Py_DECREF(folder);
  return result;
}

/* ---- reading ---- */

struct reading {
  PyObject *processes; /* list of tuples, in the order of board.py's SeenProcess */
  PyObject *files;     /* of the last of them */
  bool failed;
};

/* Appends, and takes over, an item. */
static void append(struct reading *r, PyObject *list, PyObject *item) {
  r->failed = r->failed || !item || !list || PyList_Append(list, item) < 0;
  Py_XDECREF(item);
}

static PyObject *ops_of(const struct penstock_seen_process *p) {
  struct reading r = {0};
  PyObject *list = PyList_New(0);
  for (int i = 0; i < PENSTOCK_OPS_MAX; i++)
    if (p->op[i].calls)
      append(&r, list, Py_BuildValue("(iKKKK)", i, p->op[i].calls, p->op[i].errors, p->op[i].time_ns, p->op[i].sampled));
  if (r.failed)
    Py_CLEAR(list);
  return list;
}

static void see_process(void *context, const struct penstock_seen_process *p) {
  struct reading *r = context;
  r->files = PyList_New(0);
  PyObject *ops = ops_of(p);
  if (!r->files || !ops) {
    Py_XDECREF(ops);
    Py_CLEAR(r->files);
    r->failed = true;
    return;
  }
  PyObject *item = Py_BuildValue(
    "(IIKKKKKy#iIIIIIKKy#y#NN)", p->pid, p->ppid, p->start_ticks, p->pid_namespace, p->start_ns, p->start_real_ns, p->end_ns,
    p->run, (Py_ssize_t)sizeof p->run, (int)p->rank, p->size, p->threads, p->execs, p->mpi_files, p->mpi_largest,
    p->anonymous_read_bytes, p->anonymous_written_bytes, p->exe, (Py_ssize_t)p->exe_size, p->argv,
    (Py_ssize_t)p->argv_size, ops, r->files);
  if (!item)
    r->files = NULL; /* `N` gave it up */
  append(r, r->processes, item);
}

static PyObject *way_of(const struct penstock_seen_way *w) {
  return Py_BuildValue("(KKKKKK(KKKKKKKKKK))", w->calls, w->bytes, w->sequential, w->consecutive, w->time_ns, w->sampled,
                       w->sizes[0], w->sizes[1], w->sizes[2], w->sizes[3], w->sizes[4], w->sizes[5], w->sizes[6],
                       w->sizes[7], w->sizes[8], w->sizes[9]);
}

static void see_file(void *context, const struct penstock_seen_process *p, const struct penstock_seen_file *f) {
  struct reading *r = context;
  (void)p;
  if (r->failed)
    return;
  append(r, r->files,
         Py_BuildValue("(Iy#IKKKKKKKKKKINN((KK)(KK)(KK)(KK)))", f->kind, f->name, (Py_ssize_t)f->name_size, f->threads,
                       f->opens, f->metas, f->switches, f->maps, f->meta_ns, f->meta_sampled, f->first_ns, f->last_ns,
                       f->highest, f->files, f->comm_size, way_of(&f->way[0]), way_of(&f->way[1]), f->common[0].size,
                       f->common[0].count, f->common[1].size, f->common[1].count, f->common[2].size, f->common[2].count,
                       f->common[3].size, f->common[3].count));
}

/* Only reads: also when somebody else is the board's agent. */
static int read_board(const char *path, struct reading *r, struct penstock_seen *seen) {
  struct penstock_control control;
  struct penstock_visitor visitor = {r, see_process, see_file};
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = folder < 0 ? -errno : 0;
  int fd = folder < 0 ? -1 : openat(folder, "control", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  int usage = folder < 0 ? -1 : openat(folder, "usage", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  static uint32_t freed[PENSTOCK_CHUNKS_MAX]; /* the interpreter's lock is held */
  if (!error && (fd < 0 || usage < 0))
    error = -errno;
  if (!error && (pread(fd, &control, sizeof control, 0) != (ssize_t)sizeof control ||
                 penstock_control_wrong(&control, (uint64_t)lseek(fd, 0, SEEK_END))))
    error = -EPROTO;
  ssize_t bytes = error ? 0 : (ssize_t)(control.chunk_count * sizeof *freed);
  if (!error && pread(fd, freed, (size_t)bytes, offsetof(struct penstock_control, freed)) != bytes)
    error = -EPROTO;
  if (!error)
    error = penstock_read(usage, control.chunk_count, freed, control.nonce, &visitor, seen);
  for (int i = 0, all[] = {folder, fd, usage}; i < 3; i++)
    if (all[i] >= 0)
      close(all[i]);
  return error;
}

static PyObject *board_read(PyObject *self, PyObject *args) {
  PyObject *folder, *lost = NULL;
  struct penstock_seen seen = {0};
  struct reading r = {.processes = PyList_New(0)};
  (void)self;
  if (!r.processes || !PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &folder)) {
    Py_XDECREF(r.processes);
    return NULL;
  }
  int error = read_board(PyBytes_AsString(folder), &r, &seen);
  if (error && !PyErr_Occurred())
    failure(error, folder);
  Py_DECREF(folder);
  if (!error && !r.failed && (lost = PyTuple_New(PENSTOCK_LOST_MAX)))
    for (Py_ssize_t i = 0; i < PENSTOCK_LOST_MAX; i++)
      PyTuple_SetItem(lost, i, PyLong_FromUnsignedLongLong(seen.lost[i]));
  if (!lost) {
    Py_DECREF(r.processes);
    return NULL;
  }
  return Py_BuildValue("(NIKKN)", lost, seen.attached, (unsigned long long)seen.skipped,
                       (unsigned long long)seen.chunks_held, r.processes);
}

PyMethodDef penstock_module_board[] = {
  {"board_create", (PyCFunction)(void (*)(void))board_create, METH_VARARGS | METH_KEYWORDS,
   "board_create(folder, run, stages, otherwise, rules, files_max=0, sample_every=0, max_bytes=0, place_spots=0): makes one."},
  {"board_noise", board_noise, METH_NOARGS, "board_noise(): the rules (path, under) that keep noise out of records."},
  {"board_grow", board_grow, METH_VARARGS, "board_grow(folder): gives it room if it needs some; whether it did."},
  {"board_delete", board_delete, METH_VARARGS, "board_delete(folder): removes its files and the folder."},
  {"board_read", board_read, METH_VARARGS,
   "board_read(folder): (lost, attached, skipped, chunks held, processes), as tuples; see runs/board.py."},
  {NULL, NULL, 0, NULL},
};
