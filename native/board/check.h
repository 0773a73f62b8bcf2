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
