// SPDX-License-Identifier: Apache-2.0
/* Whether a text that the program names can be read: a bad pointer must stay EFAULT (call.h, invariant 6).

   Most texts lie where memory is known to be, and there no system call is needed: in the program's own segments, in the
   heap below the break, and on the main thread's stack above the frame of whoever asks.  All else is asked of the kernel,
   page by page. */
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
#include "interpose/process.h"
#include "interpose/raw.h"

enum { SEGMENTS = 8, STACK_MOST_BYTES = 8 << 20 };

struct range {
  uintptr_t from, to;
};

/* Found once, by whoever comes first; the same in all threads and, after fork, in the child. */
static struct {
  atomic_uint state; /* 0 not begun, 1 somebody is at it, 2 found */
  uintptr_t stack_end, heap_from;
  struct range segment[SEGMENTS];
} known;

/* Field 47 of /proc/self/stat: where the heap begins; 0: not known.  The name before may hold anything. */
static uintptr_t heap_start(void) {
  char text[1024];
  long fd = PENSTOCK_RAW(openat, AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
  long size = fd < 0 ? 0 : PENSTOCK_RAW(read, fd, text, sizeof text, 0);
  uintptr_t address = 0;
  if (fd >= 0)
    PENSTOCK_RAW(close, fd, 0, 0, 0);
  const char *at = size > 0 ? memrchr(text, ')', (size_t)size) : NULL, *end = text + size;
  int field = 2;
  for (; at && at < end && field < 47; at++)
    field += *at == ' ';
  for (; at && field == 47 && at < end && *at >= '0' && *at <= '9'; at++)
    address = 10 * address + (uintptr_t)(*at - '0');
  return address;
}

/* The program's own, which it cannot do without. */
static void find_segments(void) {
  const ElfW(Phdr) *header = (const void *)getauxval(AT_PHDR);
  unsigned long count = getauxval(AT_PHNUM), used = 0;
  uintptr_t base = 0;
  for (unsigned long i = 0; header && i < count; i++)
    if (header[i].p_type == PT_PHDR)
      base = (uintptr_t)header - header[i].p_vaddr;
  for (unsigned long i = 0; header && i < count && used < SEGMENTS; i++)
    if (header[i].p_type == PT_LOAD && header[i].p_flags & PF_R) {
      uintptr_t from = base + header[i].p_vaddr;
      known.segment[used++] = (struct range){from, from + header[i].p_memsz};
    }
}

static bool found(void) {
  unsigned none = 0;
  unsigned state = atomic_load_explicit(&known.state, memory_order_acquire);
  if (PENSTOCK_LIKELY(state == 2))
    return true;
  if (state || !atomic_compare_exchange_strong(&known.state, &none, 1))
    return false;
  known.stack_end = getauxval(AT_EXECFN); /* above all that the kernel put there */
  known.heap_from = heap_start();
  find_segments();
  atomic_store_explicit(&known.state, 2, memory_order_release);
  return true;
}

/* How many bytes from here on are surely there. */
static size_t room_at(uintptr_t at, uintptr_t frame) {
  if (at > frame && at < known.stack_end && known.stack_end - frame < STACK_MOST_BYTES)
    return known.stack_end - at;
  if (known.heap_from && at >= known.heap_from) {
    uintptr_t end = (uintptr_t)sbrk(0);
    if (at < end)
      return end - at;
  }
  for (int i = 0; i < SEGMENTS && known.segment[i].to; i++)
    if (at >= known.segment[i].from && at < known.segment[i].to)
      return known.segment[i].to - at;
  return 0;
}

static bool surely(const char *text) {
  size_t room = found() ? room_at((uintptr_t)text, (uintptr_t)__builtin_frame_address(0)) : 0;
  return room && memchr(text, 0, room < PATH_MAX ? room : PATH_MAX);
}

/* Asks the kernel, without side effects: a futex that does not wait. */
static bool page_readable(uintptr_t address) {
  static const struct timespec at_once = {0, 0};
  long r = penstock_raw6(SYS_futex, (long)(address & ~(uintptr_t)3), 128 /* FUTEX_WAIT | FUTEX_PRIVATE_FLAG */, 0,
                         (long)&at_once, 0, 0);
  return r != -EFAULT;
}

bool penstock_readable_word(const void *word) {
  return atomic_load_explicit(&penstock_process.sealed, memory_order_relaxed) || page_readable((uintptr_t)word);
}

bool penstock_readable(const char *text) {
  if (!text)
    return false;
  if (penstock_process.sealed || surely(text))
    return true;
  for (size_t i = 0; i < PATH_MAX; i++) {
    if ((i == 0 || ((uintptr_t)(text + i) & 4095) == 0) && !page_readable((uintptr_t)(text + i)))
      return false;
    if (!text[i])
      return true;
  }
  return true;
}
