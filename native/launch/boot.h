// SPDX-License-Identifier: Apache-2.0
/* Which boot of the kernel this is. */
#pragma once
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first 8 bytes of the kernel's boot id (of its 16, written as hexadecimal digits), 0 when it is not told. */
static inline uint64_t penstock_boot_id(void) {
  char text[64] = "";
  uint8_t bytes[8] = {0};
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  int digits = 0;
  for (ssize_t i = 0; i < size && digits < 16; i++) {
    char c = text[i];
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0)
      continue;
    bytes[digits / 2] = (uint8_t)(bytes[digits / 2] << 4 | digit);
    digits++;
  }
  uint64_t value;
  memcpy(&value, bytes, sizeof value);
  return value;
}
