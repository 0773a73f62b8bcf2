// SPDX-License-Identifier: Apache-2.0
/* streams FILE: 1,000 bytes by fwrite, 1,000 by write on its descriptor, 1,000 by fputs and fprintf, and all read back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  char data[1000], line[100];
  memset(data, 'x', sizeof data);
  FILE *f = argc == 2 ? fopen(argv[1], "w") : NULL;
  if (!f || fwrite(data, 1, sizeof data, f) != sizeof data || fflush(f) || write(fileno(f), data, sizeof data) != 1000)
    return 1;
  for (int i = 0; i < 50; i++)
    if (fputs("123456789\n", f) < 0 || fprintf(f, "%s\n", "123456789") != 10)
      return 1;
  if (fclose(f) || !(f = fopen(argv[1], "r")))
    return 1;
  size_t got = fread(data, 1, 1000, f) + fread(data, 1, 1000, f);
  while (fgets(line, sizeof line, f))
    got += strlen(line);
  return fclose(f) || got != 3000;
}
