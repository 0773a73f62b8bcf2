// SPDX-License-Identifier: Apache-2.0
/* CRC-32C (Castagnoli), as used by the frames of the history and by segments of catalogs. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* The checksum of `size` bytes at `data`, carried on from `crc` (0 to begin with). */
uint32_t penstock_crc32c(uint32_t crc, const void *data, size_t size);
