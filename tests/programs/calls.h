// SPDX-License-Identifier: Apache-2.0
/* A snippet for each call of native/calls.def: what it says must be the same with and without the interposer.

   CASE(symbol) { ... } uses the call of that name once or a few times on files in a folder of its own and says what came
   of it.  Descriptors are not said by number, but as 0 (good) or -1, for eight threads do the same at once. */
#pragma once
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <pty.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#include <utmp.h>
#include <wchar.h>

/* When a snippet cannot run: in several threads at once, in a vfork child. */
enum { ANYWHERE = 0, ALONE = 1, NOT_IN_VFORK = 2 };

struct snippet {
  const char *symbol;
  int where;
  void (*run)(void);
};

struct place {
  char folder[1024]; /* the snippet's own */
  char name[4][1100];
  unsigned names;
  char said[65536];
  size_t size;
  bool among_threads; /* who may have the number of a closed descriptor by now */
};
extern __thread struct place *here;

void add_snippet(const char *symbol, int where, void (*run)(void));
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *at(const char *name); /* the path of a file of the snippet's; holds for three more calls */
int open_file(void);              /* a descriptor of `file`, for reading and writing */
long long offset(int fd);
void result_of(const char *what, long long result, int error);
void *old(const char *symbol); /* a function that linkers no longer see, or NULL */

#define CASE2(symbol, where) \
  static void run_##symbol(void); \
  __attribute__((constructor(200))) static void add_##symbol(void) { add_snippet(#symbol, where, run_##symbol); } \
  static void run_##symbol(void)
#define CASE(symbol) CASE2(symbol, ANYWHERE)

/* What a call gave, and that errno stayed as it was if it succeeded. */
enum { POISON = 4242 };
#define SAY(call) \
  do { \
    errno = POISON; \
    long long result_ = (long long)(call); \
    result_of(#call, result_, errno); \
  } while (0)
/* The same for what is no number to compare: descriptors, pointers. */
#define GOOD(call) \
  ({ \
    errno = POISON; \
    __auto_type result_ = (call); \
    int error_ = errno; \
    long long number_ = (long long)result_; \
    result_of(#call, number_ == -1 ? -1 : 0, error_); \
    result_; \
  })
#define GOOD_POINTER(call) \
  ({ \
    errno = POISON; \
    __auto_type pointer_ = (call); \
    int error_ = errno; \
    result_of(#call, pointer_ ? 0 : -1, error_); \
    pointer_; \
  })

/* The same on a descriptor that is closed. */
#define SAY_CLOSED(call) \
  do { \
    if (!here->among_threads) \
      SAY(call); \
  } while (0)

/* A call by its symbol, whatever the headers make of its name. */
#define SYMBOL(type, name, symbol, parameters) extern type name parameters __asm__(symbol)
