// SPDX-License-Identifier: Apache-2.0
/* loader LIBRARY MODE FOLDER: loads the snippets by dlopen and runs them. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *library = argc < 4 ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  int (*run)(const char *, const char *) = library ? dlsym(library, "calls_main") : NULL;
  if (!run) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  return run(argv[2], argv[3]);
}
