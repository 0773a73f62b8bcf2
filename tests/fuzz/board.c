// SPDX-License-Identifier: Apache-2.0
/* Any bytes as `usage`: reading ends, stays in its memory, and what it tells keeps read.h's promises.

   An input is small because it leaves out what is empty: one byte says how many chunks are allocated, then come the
   head's first bytes, the table of claims, and the chunks from their beginning, each with its own length before it. */
// uses: board/read.c
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "board/read.h"

enum { CHUNKS = 4, HEAD = 48 };

static void must(bool claim) {
  if (!claim)
    abort();
}

struct input {
  const uint8_t *data;
  size_t size;
};

static size_t take(struct input *in, void *to, size_t size) {
  size_t part = size < in->size ? size : in->size;
  if (part)
    memcpy(to, in->data, part);
  in->data += part;
  in->size -= part;
  return part;
}

/* Sees that every byte of a text is there: the sanitizer looks. */
static unsigned touch(const char *text, size_t size) {
  unsigned sum = 0;
  for (size_t i = 0; i < size; i++)
    sum += (uint8_t)text[i];
  return sum;
}

static volatile unsigned sink;

static void see_process(void *context, const struct penstock_seen_process *p) {
  uint32_t *processes = context;
  ++*processes;
  must(p->rank >= -1 && p->size <= INT32_MAX);
  must(p->exe_size <= PENSTOCK_TEXT_MAX && p->argv_size <= PENSTOCK_TEXT_MAX);
  must(p->end_ns == 0 || p->end_ns >= p->start_ns);
  must(p->chunk_count >= 1 && p->chunk_count <= CHUNKS);
  for (uint32_t i = 0; i < p->chunk_count; i++)
    must(p->chunks[i].chunk < CHUNKS && p->chunks[i].seq != 0);
  sink += touch(p->exe, p->exe_size) + touch(p->argv, p->argv_size);
}

static void see_file(void *context, const struct penstock_seen_process *p, const struct penstock_seen_file *f) {
  must(*(uint32_t *)context > 0 && p != NULL);
  must(f->kind >= PENSTOCK_SLOT_FILE && f->kind <= PENSTOCK_SLOT_UNNAMED);
  must(f->threads >= 1 && f->name_size <= PENSTOCK_TEXT_MAX);
  must(f->first_ns <= f->last_ns && f->highest <= INT64_MAX);
  for (int way = 0; way < 2; way++)
    must(f->way[way].bytes <= INT64_MAX && f->way[way].calls <= INT64_MAX);
  for (int i = 1; i < 4; i++)
    must(f->common[i].count <= f->common[i - 1].count);
  sink += touch(f->name, f->name_size);
}

static uint8_t *usage; /* as much as all chunks take */

/* Lays the input out as a board; how long the file is to be. */
static size_t lay_out(struct input *in) {
  size_t room = penstock_chunk_offset(CHUNKS, CHUNKS);
  if (!usage)
    usage = malloc(room);
  must(usage != NULL);
  memset(usage, 0, room);
  uint8_t chunks = 0;
  take(in, &chunks, 1);
  take(in, usage, HEAD);
  take(in, usage + PENSTOCK_USAGE_HEAD_BYTES, CHUNKS * sizeof(struct penstock_claim));
  size_t end = penstock_chunk_offset(CHUNKS, chunks % (CHUNKS + 1));
  for (int i = 0; i < CHUNKS && in->size; i++) {
    uint16_t size = 0;
    take(in, &size, sizeof size);
    take(in, usage + penstock_chunk_offset(CHUNKS, (uint64_t)i), size < PENSTOCK_CHUNK_BYTES ? size : PENSTOCK_CHUNK_BYTES);
  }
  return end - chunks / (CHUNKS + 1) % 3; /* now and then a torn end */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int fd = -1;
  struct input in = {data, size};
  if (fd < 0)
    fd = memfd_create("usage", MFD_CLOEXEC);
  size_t bytes = lay_out(&in);
  must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && pwrite(fd, usage, bytes, 0) == (ssize_t)bytes);
  uint32_t processes = 0;
  struct penstock_visitor visitor = {&processes, see_process, see_file};
  struct penstock_seen seen = {0};
  int error = penstock_read(fd, CHUNKS, NULL, NULL, &visitor, &seen);
  must(error <= 0);
  if (!error)
    must(seen.processes == processes && seen.chunks_held <= CHUNKS);
  return 0;
}
