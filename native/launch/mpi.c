// SPDX-License-Identifier: Apache-2.0
/* libpenstock-mpi.so: sees MPI_File_open and H5Fcreate, and tells libpenstock.so the size of the communicator.  It is
   preloaded only where a program needs libmpi, with any MPI: handles are passed on as they are, never looked at.

   Invariants:
   1. Results are those of the next library; what is told is told only after success, and only if libpenstock.so is there.
   2. A file that H5Fcreate made without MPI counts as opened by a communicator of one. */
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { MPI_ERROR_OTHER = 15 };

static void *next(const char *symbol) {
  void *found = dlsym(RTLD_NEXT, symbol);
  return found ? found : dlsym(RTLD_DEFAULT, symbol);
}

/* Take a component off the end of a path. */
static size_t up(const char *path, size_t size) {
  while (size && path[size - 1] != '/')
    size--;
  return size ? size - 1 : 0;
}

/* Absolute, without "." and "..", as the recorder names files; 0 when it is too long. */
static size_t normal(char ret[PATH_MAX], const char *name) {
  size_t size = 0;
  if (*name != '/') {
    if (!getcwd(ret, PATH_MAX))
      return 0;
    size = strcmp(ret, "/") == 0 ? 0 : strlen(ret);
  }
  while (*name) {
    size_t part = strcspn(name, "/");
    if (part == 2 && name[0] == '.' && name[1] == '.')
      size = up(ret, size);
    else if (part && !(part == 1 && *name == '.')) {
      if (size + part + 2 > PATH_MAX)
        return 0;
      ret[size++] = '/';
      memcpy(ret + size, name, part);
      size += part;
    }
    name += part;
    name += *name == '/';
  }
  return size;
}

static void tell(const char *name, uint32_t size) {
  void (*opened)(const char *, size_t, uint32_t) = dlsym(RTLD_DEFAULT, "penstock_mpi_opened");
  char path[PATH_MAX];
  const char *colon = strchr(name, ':'), *slash = strchr(name, '/');
  if (colon && (!slash || colon < slash)) /* "ufs:/path": the file system as MPI-IO calls it */
    name = colon + 1;
  size_t whole = opened ? normal(path, name) : 0;
  if (whole)
    opened(path, whole, size);
}

EXPORT int MPI_File_open(void *comm, const char *name, int mode, void *info, void *file) {
  int (*real)(void *, const char *, int, void *, void *) = next("MPI_File_open");
  int (*comm_size)(void *, int *) = next("PMPI_Comm_size");
  int size = 0;
  if (!real)
    return MPI_ERROR_OTHER;
  int result = real(comm, name, mode, info, file);
  if (result == 0 && name && comm_size && comm_size(comm, &size) == 0 && size > 0)
    tell(name, (uint32_t)size);
  return result;
}

EXPORT int64_t H5Fcreate(const char *name, unsigned flags, int64_t create, int64_t access) {
  int64_t (*real)(const char *, unsigned, int64_t, int64_t) = next("H5Fcreate");
  int64_t result = real ? real(name, flags, create, access) : -1;
  if (result >= 0 && name)
    tell(name, 1);
  return result;
}
