// SPDX-License-Identifier: Apache-2.0
/* The floor of the testbed: the least file system that stripes files through FUSE.  One folder of metadata, N folders of
 * objects, the layout in an attribute of the metadata file, the size as the sparse size of that file; nothing is cached
 * by the kernel, nothing modelled, checked or repaired.
 *
 *     stripefs [-n OSTS] [-k STRIPES] STORE MOUNT */
#define FUSE_USE_VERSION 312
#define _FILE_OFFSET_BITS 64
#include "floor.h"

#include <dirent.h>
#include <fuse_lowlevel.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/xattr.h>

enum { MAX_OSTS = 64, TABLE = 1 << 16, THREADS = 16, STRIPE = 1 << 20 };
#define ATTRIBUTE "user.layout"

struct layout {
  uint32_t stripe, count, first, spare;
  uint64_t object;
};

struct inode {
  struct inode *next;
  ino_t ino;
  int fd;
  atomic_ulong refs;
  _Atomic off_t size;
  struct layout layout;
  int has_layout;
};

struct handle {
  struct inode *inode;
  int writes;
  _Atomic int fd[MAX_OSTS];
};

static struct inode root, *table[TABLE];
static pthread_mutex_t locks[TABLE];
static int osts[MAX_OSTS], ost_count = 4, stripes = 1;
static _Atomic uint64_t next_object = 1;

static struct inode *inode_of(fuse_ino_t n) {
  return n == FUSE_ROOT_ID ? &root : (struct inode *)(uintptr_t)n;
}

static void load_layout(struct inode *in) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", in->fd);
  if (!in->has_layout && getxattr(path, ATTRIBUTE, &in->layout, sizeof in->layout) == (ssize_t)sizeof in->layout)
    in->has_layout = 1;
}

static void drop(struct inode *in, uint64_t count) {
  if (in == &root)
    return;
  pthread_mutex_t *lock = &locks[in->ino % TABLE];
  pthread_mutex_lock(lock);
  if (atomic_fetch_sub(&in->refs, count) == count) {
    struct inode **at = &table[in->ino % TABLE];
    while (*at != in) at = &(*at)->next;
    *at = in->next;
    close(in->fd);
    free(in);
  }
  pthread_mutex_unlock(lock);
}

/* Takes over the descriptor; fills e with an inode that has one more reference. */
static struct inode *entry(int fd, struct fuse_entry_param *e) {
  memset(e, 0, sizeof *e);
  fstatat(fd, "", &e->attr, AT_EMPTY_PATH);
  ino_t ino = e->attr.st_ino;
  pthread_mutex_lock(&locks[ino % TABLE]);
  struct inode *in = table[ino % TABLE];
  while (in && in->ino != ino) in = in->next;
  if (in) {
    close(fd);
  } else {
    in = calloc(1, sizeof *in);
    *in = (struct inode){.next = table[ino % TABLE], .ino = ino, .fd = fd, .size = e->attr.st_size};
    table[ino % TABLE] = in;
  }
  atomic_fetch_add(&in->refs, 1);
  pthread_mutex_unlock(&locks[ino % TABLE]);
  if (S_ISREG(e->attr.st_mode))
    e->attr.st_size = in->size;
  e->ino = (fuse_ino_t)(uintptr_t)in;
  return in;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  struct fuse_entry_param e;
  int fd = openat(inode_of(parent)->fd, name, O_PATH | O_NOFOLLOW);
  if (fd < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  entry(fd, &e);
  fuse_reply_entry(req, &e);
}

static void on_forget(fuse_req_t req, fuse_ino_t n, uint64_t count) {
  drop(inode_of(n), count);
  fuse_reply_none(req);
}

static void on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *which) {
  for (size_t i = 0; i < count; i++) drop(inode_of(which[i].ino), which[i].nlookup);
  fuse_reply_none(req);
}

static void on_getattr(fuse_req_t req, fuse_ino_t n, struct fuse_file_info *fi) {
  (void)fi;
  struct stat st;
  if (fstatat(inode_of(n)->fd, "", &st, AT_EMPTY_PATH)) {
    fuse_reply_err(req, errno);
    return;
  }
  if (S_ISREG(st.st_mode))
    st.st_size = inode_of(n)->size;
  fuse_reply_attr(req, &st, 0);
}

static void on_setattr(fuse_req_t req, fuse_ino_t n, struct stat *a, int set, struct fuse_file_info *fi) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", inode_of(n)->fd);
  if (set & FUSE_SET_ATTR_SIZE) {
    if (truncate(path, a->st_size))
      die("truncate");
    inode_of(n)->size = a->st_size;
  }
  on_getattr(req, n, fi);
}

static void make_handle(struct inode *in, struct fuse_file_info *fi, int writes) {
  struct handle *h = calloc(1, sizeof *h);
  h->inode = in;
  h->writes = writes;
  for (int i = 0; i < MAX_OSTS; i++) h->fd[i] = -1;
  fi->fh = (uint64_t)(uintptr_t)h;
  fi->direct_io = 1;
}

static void on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi) {
  struct fuse_entry_param e;
  int flags = (fi->flags & ~(O_DIRECT | O_APPEND | O_ACCMODE)) | O_RDWR | O_CREAT | O_NOFOLLOW;
  int fd = openat(inode_of(parent)->fd, name, flags, mode);
  if (fd < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  uint64_t id = atomic_fetch_add(&next_object, 1);
  struct layout l = {STRIPE, (uint32_t)stripes, (uint32_t)(id % (uint64_t)ost_count), 0, id};
  int made = !fsetxattr(fd, ATTRIBUTE, &l, sizeof l, XATTR_CREATE);
  struct inode *in = entry(fd, &e);
  if (made) {
    in->layout = l;
    in->has_layout = 1;
  } else {
    load_layout(in);
  }
  make_handle(in, fi, 1);
  fuse_reply_create(req, &e, fi);
}

static void on_open(fuse_req_t req, fuse_ino_t n, struct fuse_file_info *fi) {
  load_layout(inode_of(n));
  make_handle(inode_of(n), fi, (fi->flags & O_ACCMODE) != O_RDONLY);
  fuse_reply_open(req, fi);
}

static void on_release(fuse_req_t req, fuse_ino_t n, struct fuse_file_info *fi) {
  struct handle *h = (struct handle *)(uintptr_t)fi->fh;
  char path[32];
  struct stat st;
  snprintf(path, sizeof path, "/proc/self/fd/%d", inode_of(n)->fd);
  if (h->writes && !fstatat(inode_of(n)->fd, "", &st, AT_EMPTY_PATH) && st.st_size < h->inode->size &&
      truncate(path, h->inode->size))
    die("truncate");
  for (int i = 0; i < MAX_OSTS; i++)
    if (h->fd[i] >= 0)
      close(h->fd[i]);
  free(h);
  fuse_reply_err(req, 0);
}

static void on_unlink(fuse_req_t req, fuse_ino_t parent, const char *name) {
  struct layout l;
  char id[24];
  int fd = openat(inode_of(parent)->fd, name, O_RDONLY | O_NOFOLLOW);
  int has = fd >= 0 && fgetxattr(fd, ATTRIBUTE, &l, sizeof l) == (ssize_t)sizeof l;
  if (fd >= 0)
    close(fd);
  if (unlinkat(inode_of(parent)->fd, name, 0)) {
    fuse_reply_err(req, errno);
    return;
  }
  if (has) {
    snprintf(id, sizeof id, "%lx", l.object);
    for (uint32_t i = 0; i < l.count; i++) unlinkat(osts[(l.first + i) % (uint32_t)ost_count], id, 0);
  }
  fuse_reply_err(req, 0);
}

static int object(struct handle *h, uint32_t slot) {
  int fd = h->fd[slot], none = -1;
  if (fd >= 0)
    return fd;
  char id[24];
  snprintf(id, sizeof id, "%lx", h->inode->layout.object);
  fd = openat(osts[(h->inode->layout.first + slot) % (uint32_t)ost_count], id, O_RDWR | O_CREAT, 0600);
  if (!atomic_compare_exchange_strong(&h->fd[slot], &none, fd)) {
    close(fd);
    fd = none;
  }
  return fd;
}

struct vector {
  struct fuse_bufvec v;
  struct fuse_buf more[3];
};

static void cut(struct handle *h, struct vector *v, size_t size, off_t offset) {
  memset(v, 0, sizeof *v);
  const struct layout *l = &h->inode->layout;
  while (size && v->v.count < 4) {
    uint64_t stripe = (uint64_t)offset / l->stripe, inside = (uint64_t)offset % l->stripe, run = l->stripe - inside;
    if (run > size)
      run = size;
    v->v.buf[v->v.count++] = (struct fuse_buf){
      .size = run,
      .flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY,
      .fd = object(h, (uint32_t)(stripe % l->count)),
      .pos = (off_t)(stripe / l->count * l->stripe + inside),
    };
    size -= run;
    offset += (off_t)run;
  }
}

static void on_read(fuse_req_t req, fuse_ino_t n, size_t size, off_t offset, struct fuse_file_info *fi) {
  struct vector v;
  off_t end = inode_of(n)->size;
  if (offset >= end) {
    fuse_reply_buf(req, NULL, 0);
    return;
  }
  if ((off_t)size > end - offset)
    size = (size_t)(end - offset);
  cut((struct handle *)(uintptr_t)fi->fh, &v, size, offset);
  fuse_reply_data(req, &v.v, FUSE_BUF_NO_SPLICE);
}

static void on_write_buf(fuse_req_t req, fuse_ino_t n, struct fuse_bufvec *in, off_t offset, struct fuse_file_info *fi) {
  struct vector v;
  cut((struct handle *)(uintptr_t)fi->fh, &v, fuse_buf_size(in), offset);
  ssize_t k = fuse_buf_copy(&v.v, in, FUSE_BUF_NO_SPLICE);
  if (k < 0) {
    fuse_reply_err(req, (int)-k);
    return;
  }
  off_t end = offset + k, now = inode_of(n)->size;
  while (now < end && !atomic_compare_exchange_weak(&inode_of(n)->size, &now, end)) {
  }
  fuse_reply_write(req, (size_t)k);
}

static void on_init(void *closure, struct fuse_conn_info *c) {
  (void)closure;
  c->max_write = 1 << 20;
  c->max_readahead = 1 << 20;
  c->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static void *serve(void *session) {
  struct fuse_loop_config *c = fuse_loop_cfg_create();
  fuse_loop_cfg_set_idle_threads(c, THREADS);
  fuse_loop_cfg_set_max_threads(c, THREADS);
  fuse_session_loop_mt(session, c);
  return NULL;
}

static int folder(const char *store, const char *name, int number) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%d", store, name, number);
  mkdir(path, 0755);
  int fd = open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0)
    die(path);
  return fd;
}

int main(int argc, char **argv) {
  static const struct fuse_lowlevel_ops ops = {
    .init = on_init, .lookup = on_lookup, .forget = on_forget, .forget_multi = on_forget_multi, .getattr = on_getattr,
    .setattr = on_setattr, .create = on_create, .open = on_open, .release = on_release, .unlink = on_unlink, .read = on_read,
    .write_buf = on_write_buf};
  for (int o; (o = getopt(argc, argv, "n:k:")) != -1;) {
    if (o == 'n')
      ost_count = atoi(optarg);
    else if (o == 'k')
      stripes = atoi(optarg);
  }
  if (argc - optind != 2 || ost_count < 1 || ost_count > MAX_OSTS) {
    fprintf(stderr, "usage: stripefs [-n OSTS] [-k STRIPES] STORE MOUNT\n");
    return 2;
  }
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max; /* a descriptor for each known inode */
  setrlimit(RLIMIT_NOFILE, &limit);
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* libfuse takes a buffer for each read: keep it mapped */
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  for (int i = 0; i < TABLE; i++) pthread_mutex_init(&locks[i], NULL);
  root.fd = folder(argv[optind], "meta", 0);
  for (int i = 0; i < ost_count; i++) osts[i] = folder(argv[optind], "ost", i);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  umask(0);
  char program[] = "stripefs", flag[] = "-o", options[] = "fsname=stripefs,default_permissions";
  char *words[] = {program, flag, options, NULL};
  struct fuse_args args = FUSE_ARGS_INIT(3, words);
  struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
  pthread_t thread;
  int got;
  if (!session || fuse_session_mount(session, argv[optind + 1]) || pthread_create(&thread, NULL, serve, session))
    return 1;
  sigwait(&set, &got);
  fuse_session_unmount(session);
  _exit(0);
}
