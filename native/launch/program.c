// SPDX-License-Identifier: Apache-2.0
/* See program.h. */
#include "launch/program.h"
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 3, LIBRARIES_MAX = 24, FOLDERS_MAX = 12, NEEDED_MAX = 64 };

/* ---- where a file is ---- */


bool penstock_program_find(char *ret, size_t room, const char *word) {
  if (strchr(word, '/'))
    return (size_t)snprintf(ret, room, "%s", word) < room;
  const char *path = getenv("PATH");
  for (const char *at = path ? path : "/bin:/usr/bin"; *at; at += *at == ':') {
    size_t size = strcspn(at, ":");
    int whole = snprintf(ret, room, "%.*s/%s", (int)size, size ? at : ".", word);
    if (size && (size_t)whole < room && access(ret, X_OK) == 0)
      return true;
    at += size;
  }
  return false;
}

static const char *base_name(const char *word) {
  const char *slash = strrchr(word, '/');
  return slash ? slash + 1 : word;
}

bool penstock_program_is_launcher(const char *word) {
  static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "srun", "aprun", "jsrun"};
  const char *name = base_name(word);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t size = strlen(names[i]);
    if (strncmp(name, names[i], size) == 0 && (!name[size] || name[size] == '.'))
      return true;
  }
  return false;
}

static bool is_program(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

int penstock_program_launched(char *const *argv) {
  char path[PATH_MAX];
  for (int i = 1; argv[i]; i++)
    if (argv[i][0] != '-' && penstock_program_find(path, sizeof path, argv[i]) && is_program(path))
      return i;
  return 0;
}

/* ---- what a file needs ---- */

/* A file in memory; every access is checked against `size`. */
struct image {
  const uint8_t *data;
  size_t size;
};

static const void *part(const struct image *image, uint64_t at, uint64_t size) {
  return at <= image->size && size <= image->size - at ? image->data + at : NULL;
}

static const char *text(const struct image *image, uint64_t at) {
  return at < image->size && memchr(image->data + at, 0, image->size - at) ? (const char *)image->data + at : NULL;
}

/* The offset in the file of an address, by its segments; UINT64_MAX when none holds it. */
static uint64_t offset_of(const struct image *image, const Elf64_Ehdr *head, uint64_t address) {
  for (int i = 0; i < head->e_phnum; i++) {
    const Elf64_Phdr *p = part(image, head->e_phoff + (uint64_t)i * sizeof *p, sizeof *p);
    if (p && p->p_type == PT_LOAD && address >= p->p_vaddr && address - p->p_vaddr < p->p_filesz)
      return p->p_offset + (address - p->p_vaddr);
  }
  return UINT64_MAX;
}

struct needs {
  const char *needed[NEEDED_MAX];
  int count;
  const char *path; /* RUNPATH or RPATH, or NULL */
};

static void read_needs(const struct image *image, struct needs *ret) {
  const Elf64_Ehdr *head = part(image, 0, sizeof *head);
  uint64_t strings = UINT64_MAX;
  if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
      head->e_phentsize != sizeof(Elf64_Phdr))
    return;
  for (int i = 0; i < head->e_phnum; i++) {
    const Elf64_Phdr *p = part(image, head->e_phoff + (uint64_t)i * sizeof *p, sizeof *p);
    const Elf64_Dyn *rows = p && p->p_type == PT_DYNAMIC ? part(image, p->p_offset, p->p_filesz) : NULL;
    uint64_t count = rows ? p->p_filesz / sizeof *rows : 0;
    for (uint64_t k = 0; k < count && rows[k].d_tag != DT_NULL; k++)
      if (rows[k].d_tag == DT_STRTAB)
        strings = offset_of(image, head, rows[k].d_un.d_ptr);
    for (uint64_t k = 0; strings < image->size && k < count && rows[k].d_tag != DT_NULL; k++) {
      const char *name = rows[k].d_un.d_val < image->size ? text(image, strings + rows[k].d_un.d_val) : NULL;
      if (rows[k].d_tag == DT_NEEDED && name && ret->count < NEEDED_MAX)
        ret->needed[ret->count++] = name;
      if ((rows[k].d_tag == DT_RUNPATH || rows[k].d_tag == DT_RPATH) && name)
        ret->path = name;
    }
  }
}

static bool open_image(const char *path, struct image *ret) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  void *data = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (fd >= 0)
    close(fd);
  if (data == MAP_FAILED)
    return false;
  *ret = (struct image){data, (size_t)st.st_size};
  return true;
}

struct search {
  int left;             /* libraries that may still be read */
  const char *folders[FOLDERS_MAX]; /* where libraries are, besides what a file itself names */
  int count;
};

static bool is_common(const char *name) {
  static const char *const names[] = {"libc.so",   "libm.so",    "libpthread.so", "libdl.so",  "librt.so",
                                      "libgcc_s",  "libstdc++",  "ld-linux",      "libz.so",   "libpython",
                                      "libutil.so", "libselinux", "libpcre",      "libtinfo",  "libcrypt"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(name, names[i], strlen(names[i])) == 0)
      return true;
  return false;
}

/* A library in one of the folders of a list; $ORIGIN is the folder of the file that names them. */
static bool find_in(char *ret, size_t room, const char *list, const char *origin, const char *name) {
  for (const char *at = list; at && *at; at += *at == ':') {
    size_t size = strcspn(at, ":"), skip = strncmp(at, "$ORIGIN", 7) == 0 ? 7 : 0;
    const char *slash = strrchr(origin, '/');
    int before = skip && slash ? (int)(slash - origin) : 0;
    int whole = snprintf(ret, room, "%.*s%.*s/%s", before, origin, (int)(size - skip), at + skip, name);
    if (whole > 0 && (size_t)whole < room && access(ret, R_OK) == 0)
      return true;
    at += size;
  }
  return false;
}

static bool find_library(char *ret, size_t room, const struct search *search, const struct needs *needs,
                         const char *path, const char *name) {
  if (is_common(name))
    return false;
  if (strchr(name, '/'))
    return (size_t)snprintf(ret, room, "%s", name) < room;
  bool there = find_in(ret, room, needs->path, path, name);
  for (int i = 0; !there && i < search->count; i++)
    there = find_in(ret, room, search->folders[i], path, name);
  return there;
}

static bool needs_mpi(const char *path, struct search *search, int depth) {
  struct image image;
  struct needs needs = {0};
  bool found = false;
  if (search->left-- <= 0 || !open_image(path, &image))
    return false;
  read_needs(&image, &needs);
  for (int i = 0; i < needs.count && !found; i++)
    found = strncmp(needs.needed[i], "libmpi", 6) == 0;
  for (int i = 0; i < needs.count && !found && depth < DEPTH_MAX; i++) {
    char library[PATH_MAX];
    found = find_library(library, sizeof library, search, &needs, path, needs.needed[i]) &&
            needs_mpi(library, search, depth + 1);
  }
  munmap((void *)(uintptr_t)image.data, image.size);
  return found;
}

bool penstock_program_needs_mpi(const char *path) {
  struct search search = {.left = LIBRARIES_MAX};
  const char *chosen = getenv("LD_LIBRARY_PATH");
  if (chosen && *chosen)
    search.folders[search.count++] = chosen;
  search.folders[search.count++] = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/usr/lib/aarch64-linux-gnu";
  return needs_mpi(path, &search, 1);
}
