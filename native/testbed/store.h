// SPDX-License-Identifier: Apache-2.0
/* What the emulated file system keeps on disk, in a folder of its own:
 *
 *     header         counters and how full each OST is (mapped)
 *     inodes         the inode table: record n belongs to inode number n (mapped, sparse)
 *     names/INODE/   a folder for each directory; each name in it is a symbolic link whose text is an inode number
 *     bytes/INODE    what is too long for the record: layouts, targets of symbolic links
 *     xattrs/INODE   extended attributes
 *     dom/INODE      file data that a layout keeps on the MDT
 *     ostNNNN/OBJECT file data, a file for each object
 *
 * Numbers are in hexadecimal.
 *
 * Invariants:
 * 1. Inode numbers and object numbers are given once: a number names one thing for ever.
 * 2. What was acknowledged is in the page cache of a mapped or ordinary file: it outlives the server, however that ends
 *    (not the machine: nothing is flushed to the disk).
 * 3. A record changes under store_lock of its number only; a thread holds one such lock at a time, and no other lock
 *    is taken under it.
 * 4. No object holds a byte at or past its share of the file's size; holes read as zeros.
 * 5. Few descriptors: those of the folders here; objects are opened by their users.
 */
#pragma once
#include "testbed/model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum {
  STORE_ROOT = 1,
  STORE_LOCKS = 1024,
  STORE_INLINE = 128,
  STORE_RECORD_BYTES = 256,
  STORE_MAX_INODES = 1 << 26, /* ever made: 16 GiB of address space, as much of a sparse file */
  STORE_NAME_BYTES = 32,      /* enough for any path below one of the folders that holds a number */
};
#define STORE_RECORD_MAGIC 0x70736e69u /* "insp" */
#define STORE_RECORD_RETIRED 0x70736e72u
#define STORE_MAGIC 0x6b636f74736e6570ull
#define STORE_MDT UINT32_MAX /* in place of an OST's index: data on the MDT */

struct stamp {
  int64_t s;
  int64_t ns;
};

struct record {
  uint32_t magic; /* STORE_RECORD_MAGIC, or RETIRED: it is being removed; 0: there is no such inode */
  uint32_t mode;
  uint64_t ino;
  uint32_t uid;
  uint32_t gid;
  uint32_t nlink; /* of a directory too, as stat shows it */
  uint32_t rdev;
  uint64_t size_bytes;
  uint64_t room_bytes; /* what its objects take */
  uint64_t parent;     /* the directory it is in; of a file with several names: the one it got last */
  struct stamp atime, mtime, ctime, btime;
  uint32_t has_xattrs;
  uint32_t byte_count; /* of `bytes`: layout, default layout, or target of a symbolic link; 0: none */
  uint8_t bytes[STORE_INLINE]; /* more than fit here: in bytes/INODE */
};
_Static_assert(sizeof(struct record) == STORE_RECORD_BYTES, "the records of the inode table have a fixed size");

struct store_ost {
  _Atomic uint32_t next_object;
  uint32_t spare;
  _Atomic int64_t room_bytes;
  _Atomic int64_t objects;
};

struct header {
  uint64_t magic;
  uint32_t version;
  uint32_t ost_count;
  uint32_t running; /* 1 while a server uses it: found at start, it says that the last one was killed */
  uint32_t spare;
  _Atomic uint64_t next_ino;
  _Atomic int64_t inodes;
  struct store_ost osts[MODEL_MAX_OSTS];
};

struct store {
  int folder, names, bytes, xattrs, dom;
  int osts[MODEL_MAX_OSTS];
  uint32_t ost_count;
  struct header *header;
  struct record *table;
  int table_file;
  uint64_t backed_inos; /* the table has room on disk for all numbers below; under `grow` */
  pthread_mutex_t grow;
  pthread_mutex_t locks[STORE_LOCKS];
};

/* ---- life ---- */

/* Opens the store in `path`, making it if there is none.  0, or -errno and a sentence in `why`.
 * *was_running: the last server did not close it; *is_new: it was made just now and has no root directory yet. */
int store_open(struct store *s, const char *path, uint32_t ost_count, bool *was_running, bool *is_new, char *why,
               size_t why_size);
void store_close(struct store *s);

/* ---- inodes ---- */

static inline unsigned store_slot(uint64_t ino) { return (unsigned)(ino % STORE_LOCKS); }
/* Locks the number, and gives its record if there is such an inode; else NULL, and nothing is locked. */
struct record *store_lock(struct store *s, uint64_t ino);
void store_unlock(struct store *s, uint64_t ino);
/* A copy of a record; false if there is no such inode. */
bool store_read(struct store *s, uint64_t ino, struct record *ret);
/* A number and an unlinked record for it; or 0: the table or the disk is full. */
uint64_t store_new(struct store *s, uint32_t mode, uint32_t uid, uint32_t gid);
/* Takes an inode out of use, then forgets it with all that belongs to it but its objects.  The caller holds the lock for
 * the first, and none for the second. */
void store_retire(struct record *r);
void store_forget(struct store *s, const struct record *copy);

struct stamp store_now(void);

/* ---- the bytes of an inode ---- */

/* Those of a record that was copied: length, or -errno (-ERANGE: more than `room`). */
ssize_t store_bytes(struct store *s, const struct record *r, void *ret, size_t room);
/* Replaces them whole, also in the record; the caller holds the lock.  0 or -errno. */
int store_set_bytes(struct store *s, struct record *r, const void *data, size_t size);

/* A whole small file below one of the folders, named by a number: replaced at once, never torn. */
int store_write_file(int folder, uint64_t number, const void *data, size_t size);
ssize_t store_read_file(int folder, uint64_t number, void *ret, size_t room);

/* ---- names ---- */

/* 0 and the number, or -errno. */
int store_find(struct store *s, uint64_t dir, const char *name, uint64_t *ret);
int store_link(struct store *s, uint64_t dir, const char *name, uint64_t ino);
int store_unlink(struct store *s, uint64_t dir, const char *name);
int store_rename(struct store *s, uint64_t from, const char *old_name, uint64_t to, const char *new_name);
int store_make_dir(struct store *s, uint64_t ino);
int store_remove_dir(struct store *s, uint64_t ino); /* -ENOTEMPTY */
/* A descriptor to read the names of a directory. */
int store_list(struct store *s, uint64_t ino);

/* ---- objects ---- */

int store_new_object(struct store *s, uint32_t ost, uint32_t *ret); /* a number, no file yet */
int store_make_object(struct store *s, uint32_t ost, uint64_t number);
int store_open_object(struct store *s, uint32_t ost, uint64_t number); /* a descriptor, or -errno */
int store_remove_object(struct store *s, uint32_t ost, uint64_t number, uint64_t *room_bytes);
