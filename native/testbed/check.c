// SPDX-License-Identifier: Apache-2.0
/* Looks a store over that its server did not close, and repairs it: walks all names from the root, then all records, then
 * all objects.
 *
 * Invariants:
 * 1. Nothing that can be read is thrown away: an inode that had a name and has lost it comes into /lost+found.
 * 2. What is lost is named with its path, once; what a kill leaves behind as it must (files without a name that were open,
 *    bytes that were written but not yet counted) is put right in silence.
 * 3. Killed in between, it can begin anew. */
#include "testbed/stripes.h"
#include "testbed/lov.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct todo {
  struct todo *next;
  uint64_t ino;
  char path[];
};

struct check {
  struct store *s;
  FILE *out;
  uint32_t *links;   /* of each inode, as found */
  uint32_t *folders; /* in each directory, as found */
  uint64_t inos;     /* numbers up to here */
  uint8_t **objects; /* a bit for each object of each OST that a file has */
  uint32_t *limits;  /* bits of each */
  struct todo *todo;
  uint64_t found_dir; /* /lost+found, 0 while there is none */
  long lost;
  int err;
};

/* ---- saying it ---- */

/* A path in one line whatever is in it. */
static void say_path(FILE *out, const char *path) {
  for (; *path; path++) {
    unsigned char c = (unsigned char)*path;
    if (c < 32 || c == 127 || c == '\\')
      fprintf(out, "\\x%02x", c);
    else
      fputc(c, out);
  }
}

static void say_lost(struct check *k, const char *path, const char *what) {
  fputs("lost: ", k->out);
  say_path(k->out, path);
  fprintf(k->out, " (%s)\n", what);
  k->lost++;
}

/* ---- records ---- */

static bool sound(const struct check *k, uint64_t ino) {
  if (ino < STORE_ROOT || ino >= k->inos)
    return false;
  const struct record *r = &k->s->table[ino];
  mode_t type = r->mode & S_IFMT;
  return r->magic == STORE_RECORD_MAGIC && r->ino == ino &&
         (type == S_IFREG || type == S_IFDIR || type == S_IFLNK || type == S_IFIFO || type == S_IFSOCK || type == S_IFCHR ||
          type == S_IFBLK);
}

static char *join(const char *folder, const char *name) {
  char *path = malloc(strlen(folder) + strlen(name) + 2);
  if (path)
    sprintf(path, "%s%s%s", folder, folder[1] ? "/" : "", name);
  return path;
}

static void later(struct check *k, uint64_t ino, const char *path) {
  struct todo *t = malloc(sizeof *t + strlen(path) + 1);
  if (!t) {
    k->err = -ENOMEM;
    return;
  }
  t->ino = ino;
  strcpy(t->path, path);
  t->next = k->todo;
  k->todo = t;
}

/* ---- a file's objects ---- */

/* Notes that the object has a file; false: two files have it, or no OST does. */
static bool note_object(struct check *k, const struct object *o) {
  if (o->ost == STORE_MDT)
    return true;
  if (o->ost >= k->s->ost_count || o->number > UINT32_MAX - 1)
    return false;
  if (o->number >= k->limits[o->ost]) {
    uint32_t limit = (uint32_t)o->number + 4096;
    uint8_t *more = realloc(k->objects[o->ost], limit / 8 + 1);
    if (!more) {
      k->err = -ENOMEM;
      return false;
    }
    memset(more + k->limits[o->ost] / 8 + 1, 0, limit / 8 - k->limits[o->ost] / 8);
    k->objects[o->ost] = more;
    k->limits[o->ost] = limit;
  }
  k->objects[o->ost][o->number / 8] |= (uint8_t)(1 << o->number % 8);
  struct store_ost *ost = &k->s->header->osts[o->ost];
  if (ost->next_object <= o->number)
    ost->next_object = (uint32_t)o->number + 1;
  return true;
}

/* Cuts the object to its share and counts its room; says what is missing. */
static void check_object(struct check *k, const struct stripes *st, uint32_t i, struct record *r, const char *path) {
  const struct object *o = &st->objects[i];
  char what[64];
  if (!note_object(k, o)) {
    say_lost(k, path, "its layout names an object that cannot be");
    return;
  }
  int fd = store_open_object(k->s, o->ost, o->number);
  if (fd == -ENOENT && o->ost == STORE_MDT)
    return;
  if (fd < 0) {
    snprintf(what, sizeof what, "its object %u, on OST %u", i, o->ost);
    say_lost(k, path, what);
    store_make_object(k->s, o->ost, o->number);
    return;
  }
  uint64_t want = stripes_object_size(st, i, r->size_bytes);
  struct stat now;
  if (fstat(fd, &now) == 0 && (uint64_t)now.st_size > want && ftruncate(fd, (off_t)want) == 0)
    fstat(fd, &now);
  close(fd);
  r->room_bytes += (uint64_t)now.st_blocks * 512;
  if (o->ost != STORE_MDT) {
    k->s->header->osts[o->ost].room_bytes += now.st_blocks * 512;
    k->s->header->osts[o->ost].objects++;
  }
}

static void check_file(struct check *k, struct record *r, const char *path) {
  uint8_t *bytes = malloc(LOV_BYTES);
  ssize_t size = bytes ? store_bytes(k->s, r, bytes, LOV_BYTES) : -ENOMEM;
  struct stripes *st = size > 0 ? stripes_new(r->ino, bytes, (size_t)size) : NULL;
  free(bytes);
  r->room_bytes = 0;
  if (r->byte_count && !st) {
    say_lost(k, path, "its data: the layout cannot be read");
    r->byte_count = 0;
    r->size_bytes = 0;
  }
  for (uint32_t i = 0; st && i < st->object_count; i++) check_object(k, st, i, r, path);
  atomic_int none = 0;
  const struct stripes_env env = {.store = k->s, .open_files = &none};
  stripes_free(st, &env);
}

/* What hangs on an inode of another kind. */
static bool check_bytes(struct check *k, struct record *r, const char *path) {
  char first;
  if (r->byte_count <= STORE_INLINE || store_read_file(k->s->bytes, r->ino, &first, 0) != -ENOENT)
    return true;
  say_lost(k, path, S_ISLNK(r->mode) ? "its target" : "its default layout");
  r->byte_count = 0;
  return !S_ISLNK(r->mode);
}

/* ---- names ---- */

static void drop_name(struct check *k, uint64_t dir, const char *name, const char *path, const char *what) {
  if (what)
    say_lost(k, path, what);
  store_unlink(k->s, dir, name);
}

static void check_name(struct check *k, uint64_t dir, const char *name, const char *folder) {
  uint64_t ino = 0;
  char *path = join(folder, name);
  if (!path) {
    k->err = -ENOMEM;
    return;
  }
  int err = store_find(k->s, dir, name, &ino);
  if (err || !sound(k, ino)) {
    /* An inode that is being removed had lost its name already, as far as anybody was told. */
    bool going = !err && ino < k->inos && k->s->table[ino].magic == STORE_RECORD_RETIRED;
    drop_name(k, dir, name, path, going ? NULL : err ? "its name is damaged" : "its inode");
  } else {
    struct record *r = &k->s->table[ino];
    bool again = k->links[ino] > 0;
    if (S_ISDIR(r->mode) && (again || ino == STORE_ROOT)) {
      drop_name(k, dir, name, path, NULL); /* killed while it was moved: the other name holds */
    } else {
      k->links[ino]++;
      if (S_ISDIR(r->mode)) {
        k->folders[dir]++;
        r->parent = dir;
        later(k, ino, path);
      } else if (!again && S_ISREG(r->mode)) {
        check_file(k, r, path);
      }
      if (!again && !S_ISREG(r->mode) && !check_bytes(k, r, path))
        drop_name(k, dir, name, path, NULL);
    }
  }
  free(path);
}

static void walk(struct check *k) {
  while (k->todo && !k->err) {
    struct todo *t = k->todo;
    k->todo = t->next;
    int fd = store_list(k->s, t->ino);
    if (fd < 0) {
      say_lost(k, t->path, "the names in this folder");
      store_make_dir(k->s, t->ino);
    }
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    while (d && (e = readdir(d)) && !k->err)
      if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
        check_name(k, t->ino, e->d_name, t->path);
    if (d)
      closedir(d);
    free(t);
  }
}

/* ---- inodes that no name led to ---- */

static uint64_t found_dir(struct check *k) {
  if (k->found_dir || store_find(k->s, STORE_ROOT, "lost+found", &k->found_dir) == 0)
    return k->found_dir;
  uint64_t ino = store_new(k->s, S_IFDIR | 0700, getuid(), getgid());
  if (!ino || ino >= k->inos || store_make_dir(k->s, ino) || store_link(k->s, STORE_ROOT, "lost+found", ino)) {
    k->err = -ENOSPC;
    return 0;
  }
  k->s->table[ino].parent = STORE_ROOT;
  k->links[ino] = 1;
  k->folders[STORE_ROOT]++;
  return k->found_dir = ino;
}

static void keep_found(struct check *k, uint64_t ino) {
  char name[STORE_NAME_BYTES];
  uint64_t dir = found_dir(k);
  if (!dir)
    return;
  snprintf(name, sizeof name, "%llx", (unsigned long long)ino);
  if (store_link(k->s, dir, name, ino))
    return;
  fprintf(k->out, "found: an inode without a name is kept as /lost+found/%s\n", name);
  check_name(k, dir, name, "/lost+found");
  walk(k);
}

static void remove_orphan(struct check *k, uint64_t ino) {
  struct record copy = k->s->table[ino];
  copy.ino = ino;
  if (S_ISDIR(copy.mode))
    store_remove_dir(k->s, ino);
  store_forget(k->s, &copy);
}

/* Is this a directory that lost its place, at the top of what lost its place? */
static bool is_top(const struct check *k, uint64_t ino) {
  const struct record *r = &k->s->table[ino];
  return S_ISDIR(r->mode) && (!sound(k, r->parent) || k->links[r->parent] || k->s->table[r->parent].nlink == 0);
}

static void sweep(struct check *k) {
  for (int pass = 0; pass < 3 && !k->err; pass++) { /* tops of trees, rings of folders, files */
    for (uint64_t ino = STORE_ROOT + 1; ino < k->inos && !k->err; ino++) {
      const struct record *r = &k->s->table[ino];
      if (r->magic == 0 || k->links[ino])
        continue;
      if (!sound(k, ino) || r->nlink == 0)
        remove_orphan(k, ino);
      else if (pass == 0 ? is_top(k, ino) : pass == 1 ? S_ISDIR(r->mode) : true)
        keep_found(k, ino);
    }
  }
}

static void set_counts(struct check *k) {
  int64_t inodes = 0;
  for (uint64_t ino = STORE_ROOT; ino < k->inos; ino++) {
    struct record *r = &k->s->table[ino];
    if (r->magic != STORE_RECORD_MAGIC)
      continue;
    r->nlink = S_ISDIR(r->mode) ? 2 + k->folders[ino] : k->links[ino];
    inodes++;
  }
  k->s->header->inodes = inodes;
}

/* ---- files of the store that nothing belongs to ---- */

typedef bool (*belongs_fn)(const struct check *k, uint32_t ost, uint64_t number);

static bool object_belongs(const struct check *k, uint32_t ost, uint64_t number) {
  return number < k->limits[ost] && k->objects[ost][number / 8] >> number % 8 & 1;
}

static bool inode_belongs(const struct check *k, uint32_t ost, uint64_t number) {
  (void)ost;
  return number < k->inos && k->s->table[number].magic == STORE_RECORD_MAGIC;
}

static bool has_xattrs(const struct check *k, uint32_t ost, uint64_t number) {
  return inode_belongs(k, ost, number) && k->s->table[number].has_xattrs;
}

static void clear_folder(const struct check *k, int folder, uint32_t ost, belongs_fn belongs, bool folders) {
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  const struct dirent *e;
  while (d && (e = readdir(d))) {
    char *end;
    uint64_t number = strtoull(e->d_name, &end, 16);
    if (e->d_name[0] != '.' && (*end || !belongs(k, ost, number)))
      unlinkat(folder, e->d_name, folders ? AT_REMOVEDIR : 0);
  }
  if (d)
    closedir(d);
}

static void clear_all(struct check *k) {
  for (uint32_t i = 0; i < k->s->ost_count; i++) clear_folder(k, k->s->osts[i], i, object_belongs, false);
  clear_folder(k, k->s->dom, 0, inode_belongs, false);
  clear_folder(k, k->s->bytes, 0, inode_belongs, false);
  clear_folder(k, k->s->xattrs, 0, has_xattrs, false);
  clear_folder(k, k->s->names, 0, inode_belongs, true);
}

/* ---- all of it ---- */

static void check_root(struct check *k) {
  struct record *r = &k->s->table[STORE_ROOT];
  if (!sound(k, STORE_ROOT) || !S_ISDIR(r->mode)) {
    struct stamp now = store_now();
    say_lost(k, "/", "the attributes of the root directory");
    *r = (struct record){.mode = S_IFDIR | 0755, .ino = STORE_ROOT, .uid = getuid(), .gid = getgid()};
    r->atime = r->mtime = r->ctime = r->btime = now;
    r->magic = STORE_RECORD_MAGIC;
  }
  r->parent = STORE_ROOT;
  check_bytes(k, r, "/");
  k->links[STORE_ROOT] = 1;
  later(k, STORE_ROOT, "/");
}

static void reset_counts(struct check *k) {
  for (uint32_t i = 0; i < k->s->ost_count; i++) {
    k->s->header->osts[i].room_bytes = 0;
    k->s->header->osts[i].objects = 0;
  }
}

long check_store(struct store *s, FILE *out) {
  struct check k = {.s = s, .out = out, .inos = s->header->next_ino + 1}; /* one more: /lost+found */
  k.links = calloc(k.inos, sizeof *k.links);
  k.folders = calloc(k.inos, sizeof *k.folders);
  k.objects = calloc(s->ost_count, sizeof *k.objects);
  k.limits = calloc(s->ost_count, sizeof *k.limits);
  if (k.links && k.folders && k.objects && k.limits) {
    reset_counts(&k);
    check_root(&k);
    walk(&k);
    sweep(&k);
    if (!k.err) {
      set_counts(&k);
      clear_all(&k);
    }
  } else {
    k.err = -ENOMEM;
  }
  for (struct todo *t = k.todo, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  for (uint32_t i = 0; k.objects && i < s->ost_count; i++) free(k.objects[i]);
  free(k.objects);
  free(k.limits);
  free(k.links);
  free(k.folders);
  return k.err ? k.err : k.lost;
}
