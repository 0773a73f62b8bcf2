// SPDX-License-Identifier: Apache-2.0
/* The checksum against its definition, bit by bit, over lengths and cuts. */
#include "check.h"
#include "kernels/crc32c.h"

static uint32_t by_bits(const uint8_t *p, size_t size) {
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < size; i++) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

int main(void) {
  uint8_t *data = malloc(300);
  CHECK(data);
  for (size_t i = 0; i < 300; i++)
    data[i] = (uint8_t)(i * i * 7 + 3);
  for (size_t size = 0; size <= 300; size++) {
    CHECK_EQ(by_bits(data, size), penstock_crc32c(0, data, size));
    CHECK_EQ(by_bits(data, size), penstock_crc32c(penstock_crc32c(0, data, size / 3), data + size / 3, size - size / 3));
  }
  free(data);
  return 0;
}
