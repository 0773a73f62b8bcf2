// SPDX-License-Identifier: Apache-2.0
/* Mounts: each is a FUSE session with threads of its own, and a client of the service model.
 *
 * Invariants:
 * 1. A client's number is the lowest free one; it is free again only after the last call of its mount was answered.
 * 2. What libfuse 3.14 has no name for (parallel direct writes, privileges dropped by the server, mmap beside direct I/O) or forgets to say
 *    is written into the answer on its way out; `patching` says which answer of this thread is meant.
 */
#include "testbed/server.h"

#include <errno.h>
#include <linux/fuse.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BIT_INIT_EXT (1u << 30)
#define BIT_KILLPRIV_V2 (1u << 28)
#define BIT_PARALLEL_DIROPS (1u << 18)
#define BIT2_DIRECT_IO_ALLOW_MMAP (1u << 4) /* of flags2: bit 36 of all */
enum { BIT_PARALLEL_DIRECT_WRITES = 1 << 6 };

static _Thread_local enum patch patching;
static _Thread_local struct mount *patched;

void mounts_patch(struct mount *m, enum patch what) {
  patched = m;
  patching = what;
}

static void patch_init(struct fuse_init_out *out) {
  uint64_t offered = patched->offered_flags;
  out->flags |= (BIT_KILLPRIV_V2 | BIT_PARALLEL_DIROPS) & (uint32_t)offered;
  if (offered & BIT_INIT_EXT) {
    out->flags |= BIT_INIT_EXT;
    out->flags2 |= BIT2_DIRECT_IO_ALLOW_MMAP & (uint32_t)(offered >> 32);
  }
  patched->asked_flags = out->flags | (uint64_t)out->flags2 << 32;
  atomic_store(&patched->ready, true);
}

static void patch_open(struct fuse_open_out *out) {
  if (out->open_flags & FOPEN_DIRECT_IO)
    out->open_flags |= BIT_PARALLEL_DIRECT_WRITES;
}

static ssize_t write_answer(int fd, struct iovec *v, int n, void *closure) {
  (void)closure;
  const struct fuse_out_header *head = v[0].iov_base;
  if (patching != PATCH_NOTHING && n == 2 && head->error == 0) {
    char *body = v[1].iov_base;
    size_t size = v[1].iov_len;
    if (patching == PATCH_INIT && size >= offsetof(struct fuse_init_out, unused))
      patch_init((struct fuse_init_out *)body);
    else if (patching == PATCH_OPEN && size >= sizeof(struct fuse_open_out))
      patch_open((struct fuse_open_out *)(body + size - sizeof(struct fuse_open_out)));
    patching = PATCH_NOTHING;
  }
  return writev(fd, v, n);
}

static ssize_t read_request(int fd, void *buffer, size_t size, void *closure) {
  struct mount *m = closure;
  ssize_t n = read(fd, buffer, size);
  const struct fuse_in_header *head = buffer;
  if (n >= (ssize_t)(sizeof *head + offsetof(struct fuse_init_in, flags2) + 4) && !atomic_load(&m->ready) &&
      head->opcode == FUSE_INIT) {
    const struct fuse_init_in *in = (const struct fuse_init_in *)(head + 1);
    m->offered_flags = in->flags | (in->flags & BIT_INIT_EXT ? (uint64_t)in->flags2 << 32 : 0);
  }
  return n;
}

/* What is negotiated: pinned by tests/testbed/test_mounts.py. */
static void on_init(void *userdata, struct fuse_conn_info *c) {
  struct mount *m = userdata;
  unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_IOCTL_DIR | FUSE_CAP_PARALLEL_DIROPS |
                  FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;
  if (m->server->posix)
    want |= FUSE_CAP_AUTO_INVAL_DATA;
  c->want = want & c->capable;
  c->max_write = SERVER_MAX_WRITE;
  c->max_readahead = SERVER_MAX_WRITE;
  c->max_background = SERVER_BACKGROUND;
  c->congestion_threshold = SERVER_BACKGROUND;
  c->time_gran = 1;
  mounts_patch(m, PATCH_INIT); /* the answer follows in this thread */
}

static void all_ops(struct fuse_lowlevel_ops *ops) {
  memset(ops, 0, sizeof *ops);
  ops->init = on_init;
  names_ops(ops);
  dirs_ops(ops);
  attrs_ops(ops);
  xattrs_ops(ops);
  files_ops(ops);
  data_ops(ops);
  ioctls_ops(ops);
  locks_ops(ops);
}

/* ---- coming and going ---- */

/* Text for a mount option: libfuse splits at commas. */
static void escape(char *ret, size_t room, const char *text) {
  size_t n = 0;
  for (; *text && n + 2 < room; text++) {
    if (*text == ',' || *text == '\\')
      ret[n++] = '\\';
    ret[n++] = *text;
  }
  ret[n] = 0;
}

static struct fuse_session *session_new(struct mount *m) {
  char folder[2 * PATH_MAX], options[2 * PATH_MAX + 128];
  escape(folder, sizeof folder, m->server->folder);
  snprintf(options, sizeof options, "default_permissions%s,subtype=penstock,fsname=%s",
           m->server->everyone ? ",allow_other" : "", folder);
  char program[] = "penstock-testbed", flag[] = "-o";
  char *words[] = {program, flag, options, NULL};
  struct fuse_args args = FUSE_ARGS_INIT(3, words);
  struct fuse_lowlevel_ops ops;
  all_ops(&ops);
  struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, m);
  fuse_opt_free_args(&args);
  return session;
}

static void forget_mount(struct mount *m) {
  struct server *s = m->server;
  pthread_mutex_lock(&s->mounts_lock);
  s->mounts[m->client] = NULL;
  pthread_mutex_unlock(&s->mounts_lock);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

/* After the last request: what the client left open goes, as when a node dies. */
static void clean_up(struct mount *m) {
  struct server *s = m->server;
  locks_drop_mount(s, m);
  while (atomic_load(&m->calls)) nanosleep(&(struct timespec){0, 2000000}, NULL);
  model_client_down(s->model, m->client);
  while (m->handles) handle_free(s, m->handles);
  fuse_session_destroy(m->session);
  forget_mount(m);
}

static void *run(void *closure) {
  struct mount *m = closure;
  struct fuse_loop_config *config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_clone_fd(config, 0);
  fuse_loop_cfg_set_idle_threads(config, SERVER_THREADS);
  fuse_loop_cfg_set_max_threads(config, SERVER_THREADS);
  fuse_session_loop_mt(m->session, config);
  fuse_loop_cfg_destroy(config);
  clean_up(m);
  return NULL;
}

static struct mount *take_number(struct server *s, const char *path) {
  struct mount *m = calloc(1, sizeof *m + strlen(path) + 1);
  if (!m)
    return NULL;
  m->server = s;
  strcpy(m->path, path);
  pthread_mutex_init(&m->lock, NULL);
  pthread_mutex_lock(&s->mounts_lock);
  uint32_t i = 0;
  while (i < MODEL_MAX_CLIENTS && s->mounts[i]) i++;
  m->client = i;
  if (i < MODEL_MAX_CLIENTS)
    s->mounts[i] = m;
  pthread_mutex_unlock(&s->mounts_lock);
  if (i < MODEL_MAX_CLIENTS)
    return m;
  free(m);
  return NULL;
}

int mounts_add(struct server *s, const char *path, char *why, size_t why_size) {
  struct stat st;
  if (path[0] != '/' || stat(path, &st) || !S_ISDIR(st.st_mode)) {
    snprintf(why, why_size, "%s is not a folder; name one with its whole path", path);
    return -ENOTDIR;
  }
  struct mount *m = take_number(s, path);
  if (!m) {
    snprintf(why, why_size, "there are %d mounts already", MODEL_MAX_CLIENTS);
    return -EMFILE;
  }
  m->session = session_new(m);
  if (!m->session || fuse_session_mount(m->session, path)) {
    snprintf(why, why_size, "mounting at %s failed; is FUSE there (/dev/fuse, fusermount3), and may you use it?", path);
    if (m->session)
      fuse_session_destroy(m->session);
    forget_mount(m);
    return -EIO;
  }
  static const struct fuse_custom_io io = {.writev = write_answer, .read = read_request};
  fuse_session_custom_io(m->session, &io, fuse_session_fd(m->session));
  model_client_up(s->model, m->client);
  if (pthread_create(&m->thread, NULL, run, m)) {
    snprintf(why, why_size, "no thread for the mount at %s; is a limit on processes reached?", path);
    fuse_session_unmount(m->session);
    return -EAGAIN;
  }
  pthread_detach(m->thread);
  return 0;
}

/* Without root only fusermount3 may unmount. */
static void detach(const char *path) {
  if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || errno != EPERM)
    return;
  char program[] = "fusermount3", flags[] = "-uzq", *copy = strdup(path);
  char *words[] = {program, flags, copy, NULL};
  pid_t pid;
  if (copy && posix_spawnp(&pid, program, NULL, NULL, words, environ) == 0)
    waitpid(pid, NULL, 0);
  free(copy);
}

static bool any(struct server *s) {
  bool found = false;
  pthread_mutex_lock(&s->mounts_lock);
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS && !found; i++) found = s->mounts[i] != NULL;
  pthread_mutex_unlock(&s->mounts_lock);
  return found;
}

bool mounts_detach_all(struct server *s) {
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++) {
    pthread_mutex_lock(&s->mounts_lock);
    char *path = s->mounts[i] ? strdup(s->mounts[i]->path) : NULL;
    pthread_mutex_unlock(&s->mounts_lock);
    if (path)
      detach(path);
    free(path);
  }
  for (int i = 0; i < 200 && any(s); i++) nanosleep(&(struct timespec){0, 5000000}, NULL);
  return !any(s);
}
