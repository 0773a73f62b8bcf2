// SPDX-License-Identifier: Apache-2.0
/* Finds libc's functions as dlsym(RTLD_NEXT) would: the next after us in load order that has the name, in its default
   version; so other preloaded libraries go on working, before and after us.

   Some 300 calls of dlsym cost more than all else that we do at the start of a process, and up to glibc 2.33 dlsym would
   bring libdl into every program.  So the libraries after us are looked through here, by their own hash tables, with
   hashes that were made at build time.  Nothing is allocated, no lock is taken that is not the loader's own, and doing
   it twice does no harm. */
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include "interpose/process.h"

struct penstock_originals penstock_real;

enum kind { NUMBER, POINTER };
struct wanted {
  uint32_t hash;
  uint16_t name; /* where it begins in `names` */
  uint8_t kind;
};
static const char names[] = PENSTOCK_CALL_NAMES;
#define PENSTOCK_CALL(name, hash, kind) {hash, name, kind},
static const struct wanted wanted[PENSTOCK_CALLS] = {PENSTOCK_CALL_TABLE};
_Static_assert(sizeof penstock_real == PENSTOCK_CALLS * sizeof(void *), "one pointer a call");

/* What an optional call comes to that libc does not have. */
long penstock_missing(void) {
  errno = ENOSYS;
  return -1;
}
static void *missing_pointer(void) {
  errno = ENOSYS;
  return NULL;
}

struct library {
  uintptr_t base;
  const uint32_t *gnu;
  const uint32_t *sysv; /* the older kind of hash table: only how many symbols there are is taken from it */
  const ElfW(Sym) *symbols;
  const char *strings;
  const uint16_t *versions;
};

struct search {
  bool past_us; /* libraries before us are not asked */
  unsigned left;
  void **found;
};

static const void *pointer_of(uintptr_t base, ElfW(Addr) at) {
  /* glibc has relocated the dynamic section in memory, but not the kernel's vDSO nor other libcs. */
  return (const void *)(at < base ? at + base : at);
}

static bool read_library(const struct dl_phdr_info *info, struct library *library) {
  const ElfW(Dyn) *dynamic = NULL;
  *library = (struct library){.base = info->dlpi_addr};
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
    const void *at = pointer_of(library->base, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_GNU_HASH)
      library->gnu = at;
    else if (dynamic->d_tag == DT_HASH)
      library->sysv = at;
    else if (dynamic->d_tag == DT_SYMTAB)
      library->symbols = at;
    else if (dynamic->d_tag == DT_STRTAB)
      library->strings = at;
    else if (dynamic->d_tag == DT_VERSYM)
      library->versions = at;
  }
  return (library->gnu || library->sysv) && library->symbols && library->strings;
}

/* Where the symbol is, if it is this call's; *hidden when it is an old version that linkers do not see. */
static void *match(const struct library *library, uint32_t i, const struct wanted *call, void **hidden) {
  const ElfW(Sym) *symbol = &library->symbols[i];
  if (symbol->st_shndx == SHN_UNDEF || !symbol->st_value || strcmp(library->strings + symbol->st_name, names + call->name))
    return NULL;
  void *at = (void *)(library->base + symbol->st_value);
  if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC)
    at = ((void *(*)(unsigned long))at)(getauxval(AT_HWCAP));
  if (!library->versions || !(library->versions[i] & 0x8000))
    return at;
  *hidden = at;
  return NULL;
}

static void *find_by_gnu_hash(const struct library *library, const struct wanted *call, void **hidden) {
  uint32_t buckets = library->gnu[0], first = library->gnu[1], words = library->gnu[2], shift = library->gnu[3];
  const ElfW(Addr) *bloom = (const void *)(library->gnu + 4);
  const uint32_t *bucket = (const void *)(bloom + words), *chain = bucket + buckets;
  const unsigned bits = sizeof(ElfW(Addr)) * 8;
  ElfW(Addr) both = (ElfW(Addr))1 << call->hash % bits | (ElfW(Addr))1 << (call->hash >> shift) % bits;
  if (!buckets || (bloom[call->hash / bits % words] & both) != both)
    return NULL;
  for (uint32_t i = bucket[call->hash % buckets]; i >= first; i++) {
    void *at = (chain[i - first] | 1) == (call->hash | 1) ? match(library, i, call, hidden) : NULL;
    if (at || chain[i - first] & 1)
      return at;
  }
  return NULL;
}

/* The default version of a name; where there is none, an old one (glibc's __xstat). */
static void *find(const struct library *library, const struct wanted *call) {
  void *hidden = NULL, *at = NULL;
  if (library->gnu)
    at = find_by_gnu_hash(library, call, &hidden);
  else
    for (uint32_t i = 0; i < library->sysv[1] && !at; i++)
      at = match(library, i, call, &hidden);
  return at ? at : hidden;
}

static bool is_us(const struct dl_phdr_info *info) {
  uintptr_t us = (uintptr_t)&penstock_real;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type == PT_LOAD && us - from < info->dlpi_phdr[i].p_memsz)
      return true;
  }
  return false;
}

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
  struct search *search = data;
  struct library library;
  (void)size;
  if (!search->past_us) {
    search->past_us = is_us(info);
    return 0;
  }
  if (is_us(info) || !read_library(info, &library))
    return 0;
  for (int i = 0; i < PENSTOCK_CALLS; i++)
    if (!search->found[i] && (search->found[i] = find(&library, &wanted[i])))
      search->left--;
  return !search->left;
}

void penstock_resolve(void) {
  void *found[PENSTOCK_CALLS] = {0};
  struct search search = {.left = PENSTOCK_CALLS, .found = found};
  dl_iterate_phdr(visit, &search);
  /* Loaded by dlopen, we stand behind libc. */
  if (search.left) {
    search.past_us = true;
    dl_iterate_phdr(visit, &search);
  }
  for (int i = 0; i < PENSTOCK_CALLS; i++)
    if (!found[i])
      found[i] = wanted[i].kind == POINTER ? (void *)missing_pointer : (void *)penstock_missing;
  memcpy(&penstock_real, found, sizeof found);
}
