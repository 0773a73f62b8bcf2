// SPDX-License-Identifier: Apache-2.0
/* The stage `serve`: what unmodified programs ask about files (stat, access, readlink, the layout's attribute) is answered
   from a catalog, where that is certain to be what the file system would say; all else goes on to the file system.

   Invariants:
   1. Only folders whose own times were those of the catalog when the run started, and of which no process of the job has
      changed anything since (bits in `usage`, which are only ever set), are answered about.  Two folders may share a bit:
      then both count as changed, never as unchanged.
   2. Nothing is answered that the caller could not have asked: each folder on the path lets him pass by its mode bits
      alone, also root; so do the folders above the tree, or he asks for its root each time.
   3. No error but ENOENT is ever answered, and that only for a name missing in a folder of which every name is known.
      (Names of a folder that the caller opened, and so may read, he gets whatever its mode says.)
   4. Doubt is: `..`, a slash at the end, a link in the middle or to be followed, AT_EMPTY_PATH, AT_STATX_FORCE_SYNC, what
      the catalog does not hold (birth times), files with other names, names that some file systems answer unlisted.
   5. Marks are set before the call that changes something, so whoever asks after it is not answered from the catalog.
   6. A change of which nobody can tell where it is (the name is too long, the process may ask nothing any more, the call
      was seen too late), and any mount, ends all answers of the job (`all`).
   7. A process that sees other files by the same names, or asks with rights of which the kernel does not tell, answers
      nothing itself; what it changes is known by the device, and ends all answers of the job. */
#include "board/serve.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include "board/check.h"
#include "interpose/call.h"
#include "interpose/raw.h"
#include "kernels/index.h"
#include "kernels/listing.h"
#include "stages/changes.h"
#include "stages/dirs.h"

enum { PATH_ROOM = 1024, COMPONENT_MAX = 255, LINK_MAX_BYTES = 4096, GROUPS_MAX = 256, BROUGHT_MAX = 3 };

static const struct penstock_serve_section *section; /* NULL: nothing is answered, nothing is marked */
static struct penstock_serve served;
static const struct penstock_serve_image *image; /* NULL: nothing is answered */
static struct penstock_index entries;
static struct statx model; /* of the root: what is the same for all files of a file system */

static struct penstock_serve_usage *shared(void) {
  return (struct penstock_serve_usage *)(void *)(penstock_here.usage + PENSTOCK_SERVE_USAGE_OFFSET);
}

static void count(enum penstock_serve_count what) { __atomic_fetch_add(&shared()->count[what], 1, __ATOMIC_RELAXED); }

/* ---- what is stale ---- */

enum mark { MARK_NAMES, MARK_TREE }; /* entries of a folder and itself; all at a path and below it */

static uint32_t bit_of(uint64_t hash, enum mark mark) {
  hash = (hash ^ (uint64_t)mark * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xc4ceb9fe1a85ec53);
  return (uint32_t)((hash >> 32) % PENSTOCK_SERVE_STALE_BITS);
}

static bool is_stale(uint64_t hash, enum mark mark) {
  uint32_t bit = bit_of(hash, mark);
  return __atomic_load_n(&shared()->stale[bit / 64], __ATOMIC_ACQUIRE) >> bit % 64 & 1;
}

static void set_stale(uint64_t hash, enum mark mark) {
  uint32_t bit = bit_of(hash, mark);
  if (is_stale(hash, mark))
    return;
  __atomic_fetch_or(&shared()->stale[bit / 64], UINT64_C(1) << bit % 64, __ATOMIC_SEQ_CST);
  count(PENSTOCK_SERVE_STALED);
}

/* Nothing is answered any more. */
static void stand_back(void) { __atomic_store_n(&shared()->all, 1, __ATOMIC_SEQ_CST); }

static bool stood_back(void) { return __atomic_load_n(&shared()->all, __ATOMIC_ACQUIRE); }

/* ---- paths ---- */

static bool in_root(const char *path, size_t size) {
  return size >= section->root_size && memcmp(path, section->root, section->root_size) == 0 &&
         (size == section->root_size || path[section->root_size] == '/');
}

/* Is the root below this path? */
static bool holds_root(const char *path, size_t size) {
  return size < section->root_size && memcmp(path, section->root, size) == 0 && (section->root[size] == '/' || size == 1);
}

/* Is this a name of the tree, or of a part, by another mount?  `self`: also one of what holds it. */
static bool is_alias(const char *path, size_t size, bool self) {
  for (int i = 0; i < PENSTOCK_SERVE_ALIASES && section->alias[i][0]; i++) {
    const char *alias = section->alias[i];
    size_t own = strnlen(alias, PENSTOCK_PREFIX_BYTES), least = own < size ? own : size;
    bool below = size >= own && (size == own || path[own] == '/'), above = self && size < own && (alias[size] == '/' || size == 1);
    if ((below || above) && memcmp(path, alias, least) == 0)
      return true;
  }
  return false;
}

static size_t parent_size(const char *path, size_t size) {
  const char *slash = memrchr(path, '/', size);
  return slash ? (size_t)(slash - path) : 0;
}

static const struct penstock_serve_row *row_at(const char *path, size_t size, uint64_t *ret_hash) {
  return penstock_serve_row(&served, path, size, ret_hash);
}

/* As the program wrote it: nothing that only the file system can resolve. */
static bool is_plain(const char *given) {
  size_t at = 0, begin = 0;
  for (;; at++) {
    if (given[at] && given[at] != '/')
      continue;
    size_t size = at - begin;
    if (size > COMPONENT_MAX || (size == 2 && given[begin] == '.' && given[begin + 1] == '.'))
      return false;
    if (!given[at])
      return size > 0 && !(at > 1 && size == 1 && given[begin] == '.');
    begin = at + 1;
  }
}

/* Names that some file systems answer though no listing shows them. */
static bool may_hide(const char *name, size_t size) {
  static const char *const kinds[] = {".snap", ".lustre", ".zfs", ".nfs", ".fuse_hidden"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (size >= strlen(kinds[i]) && memcmp(name, kinds[i], strlen(kinds[i])) == 0)
      return true;
  return false;
}

/* ---- rights ---- */

struct caller {
  uint32_t uid, gid;
  bool asked; /* for his other groups */
  int groups;
  gid_t group[GROUPS_MAX];
};

static bool in_group(struct caller *who, uint32_t gid) {
  if (who->gid == gid)
    return true;
  if (!who->asked) {
    long got = PENSTOCK_RAW(getgroups, GROUPS_MAX, who->group, 0, 0);
    who->groups = got < 0 ? -1 : (int)got;
    who->asked = true;
  }
  for (int i = 0; i < who->groups; i++)
    if (who->group[i] == gid)
      return true;
  return false;
}

/* Does the mode alone give him these (of rwx: 4, 2, 1)?  Where it is not known to which groups he belongs, only if all
   have them. */
static bool lets(uint32_t mode, uint32_t uid, uint32_t gid, struct caller *who, uint32_t want) {
  if (who->uid == uid)
    return (mode >> 6 & want) == want;
  bool group = (mode >> 3 & want) == want, others = (mode & want) == want;
  if (group == others)
    return group;
  bool member = in_group(who, gid);
  return who->groups >= 0 && (member ? group : others);
}

/* Do the folders above the root let the caller pass?  Where their modes alone do not tell, he asks for it. */
static bool reaches_root(struct caller *who) {
  struct stat st;
  char path[PENSTOCK_PREFIX_BYTES + 1] = "";
  bool passes = image->flags & PENSTOCK_SERVE_ABOVE;
  for (int i = 0; passes && i < PENSTOCK_SERVE_ABOVE_MAX; i++)
    passes = lets(image->above[i].mode, image->above[i].uid, image->above[i].gid, who, 1);
  if (passes)
    return true;
  memcpy(path, section->root, section->root_size);
  return penstock_raw6(SYS_newfstatat, AT_FDCWD, (long)path, (long)&st, AT_SYMLINK_NOFOLLOW, 0, 0) == 0;
}

/* ---- looking up ---- */

/* What is known of a path, in one form for folders and entries. */
struct facts {
  uint64_t ino, size, blocks, rdev;
  struct penstock_time atime, mtime, ctime;
  uint32_t mode, uid, gid, nlink, blksize;
  struct penstock_entry entry; /* unless it is a folder */
};

enum knows { UNKNOWN, MISSING, KNOWN };

static bool too_old(const struct penstock_serve_row *row) {
  struct timespec now;
  if (!image->max_age_s)
    return false;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now.tv_sec - row->learnt_s > (int64_t)image->max_age_s;
}

/* The folders from the root to the one that holds the path: its row, or NULL if one is not certain or not his to pass. */
static const struct penstock_serve_row *pass_folders(const char *path, size_t size, struct caller *who, uint64_t *hash) {
  const struct penstock_serve_row *row = NULL;
  for (size_t at = section->root_size; at < size; at++) {
    if (path[at] != '/')
      continue;
    row = row_at(path, at, hash);
    if (!row || is_stale(*hash, MARK_TREE) || too_old(row) || !lets(row->mode, row->uid, row->gid, who, 1))
      return NULL;
  }
  return row;
}

static enum knows from_row(const struct penstock_serve_row *row, uint64_t hash, struct facts *ret) {
  if (is_stale(hash, MARK_NAMES) || is_stale(hash, MARK_TREE) || too_old(row))
    return UNKNOWN;
  *ret = (struct facts){
    .ino = row->ino,
    .size = row->size,
    .blocks = row->blocks,
    .atime = {row->atime_s, row->atime_ns},
    .mtime = {row->mtime_s, row->mtime_ns},
    .ctime = {row->ctime_s, row->ctime_ns},
    .mode = row->mode,
    .uid = row->uid,
    .gid = row->gid,
    .nlink = row->nlink,
    .blksize = row->blksize,
  };
  return KNOWN;
}

static enum knows from_entries(const char *path, size_t size, struct facts *ret) {
  size_t name_at = parent_size(path, size) + 1, from = section->root_size + 1;
  struct penstock_entry *e = &ret->entry;
  int64_t at = penstock_index_find(&entries, path + from, size - from);
  if (at == -ENOENT)
    return may_hide(path + name_at, size - name_at) ? UNKNOWN : MISSING;
  if (at < 0 || penstock_index_entry(&entries, (uint64_t)at, e) < 0)
    return UNKNOWN;
  if (e->flags & (PENSTOCK_GONE | PENSTOCK_PLACE | PENSTOCK_DOUBT) || S_ISDIR(e->mode) || e->nlink != 1)
    return UNKNOWN;
  uint32_t blksize = S_ISREG(e->mode) ? image->file_blksize : S_ISLNK(e->mode) ? image->link_blksize : 0;
  ret->ino = e->ino;
  ret->size = e->size;
  ret->blocks = e->blocks;
  ret->rdev = e->rdev;
  ret->atime = e->atime;
  ret->mtime = e->mtime;
  ret->ctime = e->ctime;
  ret->mode = e->mode;
  ret->uid = e->uid;
  ret->gid = e->gid;
  ret->nlink = e->nlink;
  ret->blksize = blksize;
  return KNOWN;
}

static enum knows look_up(const char *path, size_t size, struct caller *who, struct facts *ret) {
  uint64_t hash;
  if (size == section->root_size) {
    const struct penstock_serve_row *root = row_at(path, size, &hash);
    return root ? from_row(root, hash, ret) : UNKNOWN;
  }
  uint64_t above;
  const struct penstock_serve_row *parent = pass_folders(path, size, who, &above), *own;
  if (!parent)
    return UNKNOWN;
  own = row_at(path, size, &hash);
  if (own)
    return from_row(own, hash, ret);
  if (!(parent->flags & PENSTOCK_SERVE_NAMES) || is_stale(above, MARK_NAMES) || is_stale(hash, MARK_TREE))
    return UNKNOWN;
  return from_entries(path, size, ret);
}

/* ---- answering ---- */

static bool answer(struct penstock_call *call, int64_t result, int error, enum penstock_serve_count what) {
  call->result = result;
  call->error = error;
  count(what);
  return true;
}

/* Gives the program bytes where it wants them.  A bad address is the kernel's to refuse: it writes there first. */
static bool give(void *into, const void *from, size_t size) {
  if (PENSTOCK_RAW(getrandom, into, size, 1 /* GRND_NONBLOCK */, 0) != (long)size)
    return false;
  memcpy(into, from, size);
  return true;
}

static struct timespec timespec_of(struct penstock_time t) { return (struct timespec){t.s, t.ns}; }
static struct statx_timestamp stamp_of(struct penstock_time t) { return (struct statx_timestamp){.tv_sec = t.s, .tv_nsec = t.ns}; }

/* Folders of some file systems have sizes that nobody can keep. */
static bool varies(const struct facts *f) { return S_ISDIR(f->mode) && image->flags & PENSTOCK_SERVE_SUMS; }

static bool answer_stat(struct penstock_call *call, const struct facts *f) {
  if (!f->blksize || varies(f))
    return false;
  struct stat st = {
    .st_dev = image->dev,
    .st_ino = f->ino,
    .st_mode = f->mode,
    .st_nlink = f->nlink,
    .st_uid = f->uid,
    .st_gid = f->gid,
    .st_rdev = f->rdev,
    .st_size = (off_t)f->size,
    .st_blksize = (blksize_t)f->blksize,
    .st_blocks = (blkcnt_t)f->blocks,
    .st_atim = timespec_of(f->atime),
    .st_mtim = timespec_of(f->mtime),
    .st_ctim = timespec_of(f->ctime),
  };
  return give(call->wants->into, &st, sizeof st) && answer(call, 0, 0, PENSTOCK_SERVE_STAT);
}

/* What else than the ordinary was asked for, or the file system gives less, is its own to say. */
static bool answer_statx(struct penstock_call *call, const struct facts *f) {
  const uint32_t known = STATX_BASIC_STATS | 0x1000 /* STATX_MNT_ID */;
  if (!f->blksize || varies(f) || call->wants->mask & ~known || (model.stx_mask & STATX_BASIC_STATS) != STATX_BASIC_STATS)
    return false;
  struct statx st = model;
  st.stx_blksize = f->blksize;
  st.stx_attributes = 0;
  st.stx_nlink = f->nlink;
  st.stx_uid = f->uid;
  st.stx_gid = f->gid;
  st.stx_mode = (uint16_t)f->mode;
  st.stx_ino = f->ino;
  st.stx_size = f->size;
  st.stx_blocks = f->blocks;
  st.stx_atime = stamp_of(f->atime);
  st.stx_mtime = stamp_of(f->mtime);
  st.stx_ctime = stamp_of(f->ctime);
  st.stx_rdev_major = major(f->rdev);
  st.stx_rdev_minor = minor(f->rdev);
  return give(call->wants->into, &st, sizeof st) && answer(call, 0, 0, PENSTOCK_SERVE_STAT);
}

/* Only yes; and only where neither lists of rights nor how the file system is mounted could say no. */
static bool answer_access(struct penstock_call *call, const struct facts *f, struct caller *who) {
  unsigned want = call->wants->mask;
  if (want & ~(unsigned)(R_OK | X_OK) || (want & X_OK && !S_ISDIR(f->mode)))
    return false;
  if (want && ((image->flags & PENSTOCK_SERVE_LISTS && !S_ISDIR(f->mode) && who->uid != f->uid) || !lets(f->mode, f->uid, f->gid, who, want)))
    return false;
  return answer(call, 0, 0, PENSTOCK_SERVE_ACCESS);
}

static bool answer_part(struct penstock_call *call, const struct facts *f, enum penstock_part part, bool cut,
                        enum penstock_serve_count what) {
  char bytes[LINK_MAX_BYTES];
  ssize_t size = f->entry.parts_at ? penstock_index_part(&entries, &f->entry, part, bytes, sizeof bytes) : -1;
  size_t room = call->wants->room, give_size = size < 0 ? 0 : (size_t)size;
  if (size <= 0 || give_size > sizeof bytes)
    return false;
  if (room == 0 && !cut)
    return answer(call, size, 0, what);
  if (room < give_size && (!cut || room == 0))
    return false;
  give_size = room < give_size ? room : give_size;
  return give(call->wants->into, bytes, give_size) && answer(call, (int64_t)give_size, 0, what);
}

static bool answer_known(struct penstock_call *call, const struct facts *f, struct caller *who) {
  switch (call->wants->what) {
  case PENSTOCK_WANTS_STAT:
    return answer_stat(call, f);
  case PENSTOCK_WANTS_STATX:
    return answer_statx(call, f);
  case PENSTOCK_WANTS_ACCESS:
    return answer_access(call, f, who);
  case PENSTOCK_WANTS_READLINK:
    return S_ISLNK(f->mode) && answer_part(call, f, PENSTOCK_PART_TARGET, true, PENSTOCK_SERVE_READLINK);
  case PENSTOCK_WANTS_XATTR:
    return S_ISREG(f->mode) && answer_part(call, f, PENSTOCK_PART_LAYOUT, false, PENSTOCK_SERVE_LAYOUT);
  }
  return false;
}

static bool wants_known(const struct penstock_wants *w) {
  int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | 0x4000 /* AT_STATX_DONT_SYNC */;
  if (w->what == PENSTOCK_WANTS_ACCESS)
    flags = AT_EACCESS | AT_SYMLINK_NOFOLLOW;
  if (w->flags & ~flags)
    return false;
  return w->what != PENSTOCK_WANTS_XATTR ||
         (*image->attribute && penstock_readable(w->attribute) && strcmp(w->attribute, image->attribute) == 0);
}

/* False: he has two sets of rights (a setuid program), and which of them counts differs from call to call. */
static bool ask_who(struct caller *who) {
  uid_t uid[3];
  gid_t gid[3];
  if (PENSTOCK_RAW(getresuid, &uid[0], &uid[1], &uid[2], 0) != 0 || PENSTOCK_RAW(getresgid, &gid[0], &gid[1], &gid[2], 0) != 0)
    return false;
  who->uid = uid[1];
  who->gid = gid[1];
  who->asked = false;
  who->groups = 0;
  return uid[0] == uid[1] && gid[0] == gid[1];
}

__attribute__((noinline)) static bool try_answer(struct penstock_call *call) {
  const struct penstock_wants *w = call->wants;
  struct caller who;
  struct facts f;
  if (!call->given || !is_plain(call->given) || penstock_sealed() || penstock_elsewhere())
    return false;
  if (stood_back() || !penstock_path(call) || !in_root(call->path, call->path_size))
    return false;
  f.entry.parts_at = 0;
  if (penstock_on_signal_stack() || !wants_known(w))
    return false;
  if (!ask_who(&who) || !reaches_root(&who))
    return false;
  enum knows knows = look_up(call->path, call->path_size, &who, &f);
  if (knows == MISSING)
    return answer(call, -1, ENOENT, PENSTOCK_SERVE_MISSING);
  bool follows = w->what != PENSTOCK_WANTS_READLINK && !(w->flags & AT_SYMLINK_NOFOLLOW);
  return knows == KNOWN && !(follows && S_ISLNK(f.mode)) && answer_known(call, &f, &who);
}

/* ---- listing ---- */

/* The folder behind a descriptor, as it is now: the catalog's, and nothing of it was read or is marked. */
static const struct penstock_serve_row *find_folder(int fd, char path[PATH_ROOM], size_t *ret_size) {
  struct stat st;
  uint64_t hash;
  if (PENSTOCK_RAW(lseek, fd, 0, SEEK_CUR, 0) != 0 || PENSTOCK_RAW(fstat, fd, &st, 0, 0) != 0 || st.st_dev != image->dev)
    return NULL;
  int size = penstock_fd_path(fd, path, PATH_ROOM);
  if (size <= 0 || !in_root(path, (size_t)size))
    return NULL;
  *ret_size = (size_t)size;
  const struct penstock_serve_row *row = row_at(path, (size_t)size, &hash);
  if (!row || !(row->flags & PENSTOCK_SERVE_NAMED) || is_stale(hash, MARK_NAMES) || is_stale(hash, MARK_TREE) || too_old(row))
    return NULL;
  bool same = st.st_ino == row->ino && st.st_mtim.tv_sec == row->mtime_s && st.st_mtim.tv_nsec == row->mtime_ns &&
              st.st_ctim.tv_sec == row->ctime_s && st.st_ctim.tv_nsec == row->ctime_ns;
  return same ? row : NULL;
}

__attribute__((noinline)) static void try_list(DIR *dir, int fd) {
  char path[PATH_ROOM];
  size_t size, from = section->root_size + 1;
  uint64_t hash;
  struct penstock_listing listing;
  if (!(image->flags & PENSTOCK_SERVE_LISTINGS) || penstock_sealed() || penstock_elsewhere() || penstock_on_signal_stack() || stood_back())
    return;
  const struct penstock_serve_row *row = find_folder(fd, path, &size), *above;
  if (!row)
    return;
  bool top = size == section->root_size;
  above = top ? NULL : row_at(path, parent_size(path, size), &hash);
  if ((!top && !above) || penstock_listing_open(&listing, &entries, top ? "" : path + from, top ? 0 : size - from) < 0)
    return;
  listing.ino = row->ino;
  listing.above_ino = top ? image->above_ino : above->ino;
  if (penstock_dir_answer(dir, fd, &entries, &listing))
    count(PENSTOCK_SERVE_LISTED);
}

/* ---- marking ---- */

enum where { NOWHERE, HERE, ANYWHERE };

/* Whether it may lie in the tree (`any`: or above it), and its name, which is without links. */
static enum where find_descriptor(int fd, bool any, char path[PATH_ROOM], size_t *ret_size) {
  struct stat st;
  if (penstock_sealed())
    return ANYWHERE;
  if (PENSTOCK_RAW(fstat, fd, &st, 0, 0) != 0 || (st.st_dev != section->dev && !any))
    return NOWHERE;
  int size = penstock_elsewhere() ? -1 : penstock_fd_path(fd, path, PATH_ROOM);
  if (size <= 0)
    return ANYWHERE;
  *ret_size = (size_t)size;
  return HERE;
}

/* The same of what a path leads to by all links.  What cannot be reached cannot be changed there either. */
static enum where find_path(int dirfd, const char *path, size_t size, bool any, char to[PATH_ROOM], size_t *ret_size) {
  char copy[PATH_ROOM];
  if (size >= sizeof copy || penstock_sealed())
    return ANYWHERE;
  memcpy(copy, path, size);
  copy[size] = 0;
  long fd = PENSTOCK_RAW(openat, dirfd, size ? copy : ".", O_PATH | O_CLOEXEC, 0);
  if (fd < 0)
    return fd == -ENOENT || fd == -ENOTDIR || fd == -EACCES || fd == -ELOOP || fd == -ENAMETOOLONG ? NOWHERE : ANYWHERE;
  enum where where = find_descriptor((int)fd, any, to, ret_size);
  PENSTOCK_RAW(close, fd, 0, 0, 0);
  return where;
}

/* Something at a path without links in the middle changes; `self`: also what lies below it, if it is a folder. */
static void mark_real(const char *path, size_t size, bool self) {
  if ((self && holds_root(path, size)) || is_alias(path, size, self))
    stand_back();
  if (!in_root(path, size))
    return;
  if (self)
    set_stale(penstock_hash(path, size), MARK_TREE);
  if (size > section->root_size)
    set_stale(penstock_hash(path, parent_size(path, size)), MARK_NAMES);
  else
    set_stale(penstock_hash(path, size), MARK_NAMES);
}

/* A descriptor through which is changed: of which file, whatever name led there. */
static void mark_descriptor(int fd, bool self) {
  char path[PATH_ROOM];
  size_t size = 0;
  enum where where = find_descriptor(fd, self, path, &size);
  if (where == ANYWHERE)
    stand_back();
  if (where == HERE)
    mark_real(path, size, self);
}

/* One in the tree that was opened for reading, of which no stage will be told what is done through it. */
static void mark_ignored(int fd) {
  char path[PATH_ROOM];
  size_t size = 0;
  enum where where = find_descriptor(fd, false, path, &size);
  if (where == ANYWHERE)
    stand_back();
  if (where == HERE && in_root(path, size))
    mark_real(path, size, true);
}

/* `..` means what the kernel says: going up by text would be wrong where a link came before it. */
static bool goes_up(const char *given) {
  for (; *given; given++)
    if (given[0] == '.' && given[1] == '.')
      return true;
  return false;
}

/* Is it surely what its text says: in the tree, in a folder that is known? */
static bool is_known(const char *given, const char *path, size_t size) {
  uint64_t hash;
  return image && path && !penstock_elsewhere() && !goes_up(given) && in_root(path, size) &&
         (size == section->root_size || row_at(path, parent_size(path, size), &hash));
}

/* The name itself changes, not what it may be a link to. */
static void mark_name(int dirfd, const char *given, const char *path, size_t size, bool self) {
  char real[PATH_ROOM];
  if (is_known(given, path, size)) {
    mark_real(path, size, self);
    return;
  }
  size_t end = strlen(given), above = 0;
  while (end > 1 && given[end - 1] == '/')
    end--;
  const char *slash = memrchr(given, '/', end);
  const char *name = slash ? slash + 1 : given;
  size_t name_size = end - (size_t)(name - given);
  enum where where = find_path(dirfd, given, (size_t)(name - given), self, real, &above);
  if (where == HERE && above + 1 + name_size < sizeof real) {
    above = above == 1 ? 0 : above;
    real[above] = '/';
    memcpy(real + above + 1, name, name_size);
    mark_real(real, above + 1 + name_size, self);
  } else if (where != NOWHERE)
    stand_back();
}

/* What is there already may be a link to what is changed, or `.` or `..`. */
static void mark_followed(int dirfd, const char *given) {
  char real[PATH_ROOM];
  size_t size = 0;
  enum where where = find_path(dirfd, given, strlen(given), true, real, &size);
  if (where == ANYWHERE)
    stand_back();
  if (where == HERE)
    mark_real(real, size, true);
}

__attribute__((noinline)) static void mark_changes(struct penstock_call *call, uint8_t what) {
  /* In another root or namespace even what lies above the tree may have a name that tells nothing of it; and a handler's
     own stack may be too small for names. */
  bool far = penstock_elsewhere() && (what == PENSTOCK_EVENT_RENAME || what == PENSTOCK_EVENT_CHANGE);
  if (far || penstock_on_signal_stack()) {
    stand_back();
    return;
  }
  bool opens = what == PENSTOCK_EVENT_OPEN;
  if (call->given2) {
    const char *path2 = penstock_path2(call);
    mark_name(call->dirfd2, call->given2, path2, call->path2_size, true);
  }
  if (call->fd >= 0 || !*call->given) {
    mark_descriptor(call->fd >= 0 ? call->fd : call->dirfd, true);
    return;
  }
  const char *path = penstock_path(call);
  mark_name(call->dirfd, call->given, path, call->path_size, !opens);
  if (what == PENSTOCK_EVENT_CHANGE || call->op == PENSTOCK_OP_LINK || (opens && call->open_flags & O_TRUNC))
    mark_followed(call->dirfd, call->given);
}

static bool marks(uint8_t what) { return what && what != PENSTOCK_EVENT_CLOSE && what != PENSTOCK_EVENT_MAP; }

static enum penstock_answer before(struct penstock_call *call) {
  if (!section)
    return PENSTOCK_GO;
  if (call->wants) {
    if (!image || !call->under)
      return PENSTOCK_GO;
    if (try_answer(call))
      return PENSTOCK_ANSWERED;
    if (call->path && in_root(call->path, call->path_size))
      count(PENSTOCK_SERVE_PASSED);
    return PENSTOCK_GO;
  }
  if ((call->op == PENSTOCK_OP_READDIR && !call->dir) || (call->op == PENSTOCK_OP_SEEK && call->entry->flags & PENSTOCK_FD_DIRECTORY))
    penstock_dir_read_past(call->fd);
  /* Also an open for reading: what is done through a descriptor that nobody looks at would be seen by nobody. */
  if (call->does & PENSTOCK_DOES_OPEN)
    call->owed |= PENSTOCK_STAGE_SERVE;
  uint8_t what = penstock_changes(call);
  if (marks(what) && !stood_back())
    mark_changes(call, what);
  return PENSTOCK_GO;
}

static void after(struct penstock_call *call) {
  if (image && call->dir && call->begins && !call->failed && call->entry && call->entry->under)
    try_list(call->dir, call->fd);
  if (!section || !(call->does & PENSTOCK_DOES_OPEN) || call->failed || call->result < 0 || stood_back())
    return;
  if (penstock_may_change(call->open_flags))
    mark_descriptor((int)call->result, false);
  else if (!penstock_sealed() && (!call->entry || !call->entry->under))
    mark_ignored((int)call->result);
}

static void unseen(int fd) {
  if (!section || stood_back())
    return;
  long flags = fd < 0 || penstock_sealed() ? -1 : PENSTOCK_RAW(fcntl, fd, F_GETFL, 0, 0);
  if (flags < 0)
    stand_back();
  else if (!(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY)
    mark_descriptor(fd, false);
}

/* ---- the process ---- */

static size_t decimal(char *to, uint32_t value) {
  char digits[10];
  size_t n = 0;
  do
    digits[n++] = (char)('0' + value % 10);
  while (value /= 10);
  for (size_t i = 0; i < n; i++)
    to[i] = digits[n - 1 - i];
  return n;
}

/* Sealed memory of the holder's; -1: it is not there, or not what it was. */
static int open_held(uint32_t number, uint64_t ino, struct stat *st) {
  char path[48] = "/proc/";
  size_t at = 6;
  at += decimal(path + at, section->holder);
  memcpy(path + at, "/fd/", 4);
  at += 4;
  at += decimal(path + at, number);
  path[at] = 0;
  long fd = PENSTOCK_RAW(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  long seals = PENSTOCK_RAW(fcntl, fd, F_GET_SEALS, 0, 0), need = F_SEAL_SHRINK | F_SEAL_WRITE;
  if (seals >= 0 && (seals & need) == need && PENSTOCK_RAW(fstat, fd, st, 0, 0) == 0 && st->st_ino == ino)
    return (int)fd;
  PENSTOCK_RAW(close, fd, 0, 0, 0);
  return -1;
}

static bool map_image(void) {
  struct stat st;
  int fd = open_held(section->image_fd, section->image_ino, &st);
  if (fd < 0)
    return false;
  long at = penstock_raw6(SYS_mmap, 0, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
  PENSTOCK_RAW(close, fd, 0, 0, 0);
  return !(at < 0 && at >= -4095) && penstock_serve_open(&served, (const void *)at, (uint64_t)st.st_size) == 0;
}

static bool map_entries(void) {
  struct stat st;
  int fd = open_held(section->segment_fd, section->segment_ino, &st);
  bool good = fd >= 0 && penstock_index_open(&entries, fd, 0) == 0;
  if (fd >= 0)
    PENSTOCK_RAW(close, fd, 0, 0, 0);
  return good;
}

/* Is it the namespace in which the run began? */
static bool in_space(const char *path, uint64_t ino) {
  struct stat st;
  return penstock_raw6(SYS_newfstatat, AT_FDCWD, (long)path, (long)&st, 0, 0, 0) == 0 && st.st_ino == ino;
}
static bool in_same_spaces(void) {
  return in_space("/proc/self/ns/mnt", section->mount_space) && in_space("/proc/self/ns/user", section->user_space);
}

/* Asks for the root: is it, seen from here, what it was where the run started?  In another root it is not. */
static bool read_model(void) {
  char path[PENSTOCK_PREFIX_BYTES + 1] = "";
  const struct penstock_serve_image *it = served.image;
  memcpy(path, section->root, section->root_size);
  if (penstock_raw6(SYS_statx, AT_FDCWD, (long)path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, (long)&model, 0) != 0 ||
      makedev(model.stx_dev_major, model.stx_dev_minor) != section->dev)
    return false;
  return !it || (it->dev == section->dev && model.stx_ino == it->ino && model.stx_uid == it->uid && model.stx_gid == it->gid);
}

/* What the process brings along that can write; whoever started it may have opened it where nobody saw it. */
static void mark_brought(void) {
  for (int fd = 0; fd < BROUGHT_MAX; fd++) {
    long flags = PENSTOCK_RAW(fcntl, fd, F_GETFL, 0, 0);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH))
      mark_descriptor(fd, false);
  }
}

static void start(void) {
  section = penstock_control_section(penstock_here.control, penstock_here.control_bytes, PENSTOCK_SECTION_SERVE,
                                     PENSTOCK_SERVE_VERSION, sizeof *section);
  if (!section || section->root_size < 2 || section->root_size > PENSTOCK_PREFIX_BYTES || !penstock_here.usage ||
      !(penstock_here.control->stages & PENSTOCK_STAGE_SERVE)) {
    section = NULL;
    return;
  }
  bool mapped = map_image() && map_entries(), same = in_same_spaces() && read_model();
  if (mapped && same)
    image = served.image;
  else
    penstock_log("answers nothing from the catalog: ", "what the run holds for it cannot be opened here, or its tree is another here");
  if (!same)
    penstock_is_elsewhere();
  mark_brought();
}

/* Made by clone, it may be in a namespace of its own. */
static void child(void) {
  if (section && !in_same_spaces())
    penstock_is_elsewhere();
}

const struct penstock_stage penstock_serve_stage = {
  .name = "serve",
  .bit = PENSTOCK_STAGE_SERVE,
  .under = PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT | PENSTOCK_UNDER_ANY,
  .paths = PENSTOCK_PATHS_ALL,
  .start = start,
  .before = before,
  .after = after,
  .child = child,
  .unseen = unseen,
};
