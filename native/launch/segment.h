// SPDX-License-Identifier: Apache-2.0
/* Appending frames to the history, as src/penstock/runs/segments.py describes it (lock, O_APPEND, month, cut-off). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "launch/msgpack.h"

enum { PENSTOCK_FRAME_BEGIN = 1, PENSTOCK_FRAME_NODE = 2, PENSTOCK_FRAME_END = 3, PENSTOCK_FRAME_MARK = 4 };
enum { PENSTOCK_FRAME_HEAD_BYTES = 32, PENSTOCK_RECORD_VERSION = 1, PENSTOCK_FRAME_MAX_BYTES = 64 << 20 };

/* A frame is what is packed between open and close: open writes room for the head, close fills it in. */
size_t penstock_frame_open(struct penstock_pack *p);
void penstock_frame_close(struct penstock_pack *p, size_t at, int kind, const uint8_t run[16]);

/* The folders above a path, made where they are missing; whether that worked shows when the path is used. */
void penstock_make_parents(const char *path);

/* Append frames as one batch below folder `history`.  0 or -errno; -ENOSPC also when only a part was taken. */
int penstock_segment_append(const char *history, const char *node, bool group, const void *frames, size_t size);
