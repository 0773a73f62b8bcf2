// SPDX-License-Identifier: Apache-2.0
/* What makes a `control` acceptable, for whoever maps or reads one that somebody else wrote.  Sizes that passed here are
   kept by the caller: control may change under a reader, so nothing is believed a second time. */
#pragma once
#include <stddef.h>
#include "board/board.h"

/* NULL, or what is wrong with it.  `bytes` is how much of it there is, by the file's own size. */
static inline const char *penstock_control_wrong(const struct penstock_control *control, uint64_t bytes) {
  if (bytes < sizeof *control)
    return "it is too short";
  if (__atomic_load_n(&control->magic, __ATOMIC_ACQUIRE) != PENSTOCK_CONTROL_MAGIC)
    return "it is not a board, or not a finished one";
  if (control->version < PENSTOCK_BOARD_OLDEST || control->version > PENSTOCK_BOARD_VERSION)
    return "it has another version than this program";
  uint64_t chunks = control->chunk_count;
  if (control->control_bytes > bytes || chunks == 0 || chunks > PENSTOCK_CHUNKS_MAX ||
      sizeof *control + chunks * sizeof control->freed[0] > control->control_bytes ||
      control->prefix_count > PENSTOCK_PREFIXES_MAX || control->usage_max_bytes != penstock_chunk_offset(chunks, chunks) ||
      control->usage_bytes > control->usage_max_bytes || control->usage_bytes < PENSTOCK_USAGE_HEAD_BYTES)
    return "its sizes do not fit together";
  return NULL;
}

/* The same of the head of `usage`, against the nonce of its control. */
static inline const char *penstock_usage_wrong(const struct penstock_usage *usage, const uint8_t nonce[16]) {
  if (usage->magic != PENSTOCK_USAGE_MAGIC)
    return "it is no board";
  if (usage->version < PENSTOCK_BOARD_OLDEST || usage->version > PENSTOCK_BOARD_VERSION)
    return "it has another version than this program";
  if (__builtin_memcmp(usage->nonce, nonce, sizeof usage->nonce) != 0)
    return "it belongs to another board";
  return NULL;
}

/* Where a section of a kind and version lies in control; NULL: there is none that is whole, aligned and at least so
   large.  `bytes`: as above. */
static inline const void *penstock_control_section(const struct penstock_control *control, uint64_t bytes, uint32_t kind,
                                                   uint32_t version, uint64_t least) {
  for (int i = 0; i < PENSTOCK_SECTIONS_MAX; i++) {
    struct penstock_section s = control->sections[i];
    if (s.kind == kind && s.version == version && s.size_bytes >= least && s.size_bytes <= bytes &&
        s.offset_bytes <= bytes - s.size_bytes && s.offset_bytes % PENSTOCK_LINE == 0)
      return (const char *)control + s.offset_bytes;
  }
  return (const void *)0;
}
