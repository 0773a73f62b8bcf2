// SPDX-License-Identifier: Apache-2.0
/* writes_a_file PATH: five bytes. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int fd = argc < 2 ? -1 : open(argv[1], O_CREAT | O_WRONLY, 0600);
  return fd < 0 || write(fd, "12345", 5) != 5 || close(fd);
}
