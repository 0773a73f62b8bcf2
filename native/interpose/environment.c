// SPDX-License-Identifier: Apache-2.0
/* What a program's environment must have so that we are in it too: our place in LD_PRELOAD and the PENSTOCK_ variables.
   They are copied at start, since programs write over the memory of their environment; a program that is started with
   an environment that lacks them (env -i, execle) gets them back, unless PENSTOCK_DISABLE=1 stands in it.  Nothing is
   allocated: the new environment lies in the frame of the exec wrapper, and one that would not fit is left alone. */
#include <string.h>
#include "interpose/process.h"

enum { TEXT_MAX = 4096, KEPT_MAX = 16, STRINGS_MAX = 8192, PRELOAD_MAX = 16384 };

static struct {
  char text[TEXT_MAX];
  size_t used;
  const char *variable[KEPT_MAX]; /* NAME=value */
  unsigned variables;
  const char *library[4]; /* our libraries, as LD_PRELOAD named them */
  unsigned libraries;
} kept;

static const char preload[] = "LD_PRELOAD=";

static const char *copy(const char *text, size_t size) {
  if (size >= TEXT_MAX - kept.used)
    return NULL;
  char *at = kept.text + kept.used;
  memcpy(at, text, size);
  at[size] = 0;
  kept.used += size + 1;
  return at;
}

/* The next word of LD_PRELOAD, which colons and blanks separate; NULL: no more. */
static const char *next_word(const char **at, size_t *size) {
  const char *word = *at + strspn(*at, ": ");
  *size = strcspn(word, ": ");
  *at = word + *size;
  return *size ? word : NULL;
}

static bool is_ours(const char *word, size_t size) {
  const char *name = memrchr(word, '/', size);
  name = name ? name + 1 : word;
  return strncmp(name, "libpenstock", 11) == 0;
}

static void keep_libraries(const char *value) {
  size_t size;
  for (const char *word; (word = next_word(&value, &size));)
    if (is_ours(word, size) && kept.libraries < 4 && (word = copy(word, size)))
      kept.library[kept.libraries++] = word;
}

void penstock_environment_keep(char **environment) {
  for (char **e = environment; *e; e++) {
    if (!strncmp(*e, preload, sizeof preload - 1))
      keep_libraries(*e + sizeof preload - 1);
    else if (!strncmp(*e, "PENSTOCK_", 9) && strchr(*e, '=') && kept.variables < KEPT_MAX) {
      const char *variable = copy(*e, strlen(*e));
      if (variable)
        kept.variable[kept.variables++] = variable;
    }
  }
}

static const char *find(char *const *environment, const char *variable) {
  size_t size = strcspn(variable, "=") + 1;
  for (; environment && *environment; environment++)
    if (!strncmp(*environment, variable, size))
      return *environment + size;
  return NULL;
}

static bool has_word(const char *value, const char *library) {
  size_t size;
  for (const char *word; (word = next_word(&value, &size));)
    if (strlen(library) == size && !memcmp(word, library, size))
      return true;
  return false;
}

static bool has_libraries(const char *value) {
  for (unsigned i = 0; i < kept.libraries; i++)
    if (!value || !has_word(value, kept.library[i]))
      return false;
  return true;
}

/* How many strings; -1: too many, or not to be read (the kernel will say EFAULT). */
static long count_readable(char *const *environment) {
  long n = 0;
  for (; environment; n++) {
    if (n > STRINGS_MAX || !penstock_readable_word(environment + n))
      return -1;
    if (!environment[n])
      return n;
    if (!penstock_readable(environment[n]))
      return -1;
  }
  return 0;
}

size_t penstock_environment_room(char *const *environment) {
  if (!penstock_here.control || !kept.libraries)
    return 0;
  long strings = count_readable(environment);
  if (strings < 0)
    return 0;
  const char *disable = find(environment, "PENSTOCK_DISABLE="), *value = find(environment, preload);
  bool good = has_libraries(value);
  for (unsigned i = 0; good && i < kept.variables; i++)
    good = find(environment, kept.variable[i]) != NULL;
  if (good || (disable && !strcmp(disable, "1")) || (value && strlen(value) > PRELOAD_MAX))
    return 0;
  return ((size_t)strings + kept.variables + 2) * sizeof(char *) + sizeof preload + (value ? strlen(value) : 0) + kept.used;
}

static char *put(char *at, const char *end, const char *text) {
  while (*text && at + 1 < end)
    *at++ = *text++;
  return at;
}

/* The program's own LD_PRELOAD first: whoever asks to be first (ASan) stays first. */
static void put_preload(char *at, const char *end, const char *value) {
  bool any = value && *value;
  at = put(at, end, preload);
  at = put(at, end, any ? value : "");
  for (unsigned i = 0; i < kept.libraries; i++) {
    if (value && has_word(value, kept.library[i]))
      continue;
    at = put(at, end, any ? ":" : "");
    at = put(at, end, kept.library[i]);
    any = true;
  }
  *at = 0;
}

char **penstock_environment_fill(void *room, size_t bytes, char *const *environment) {
  char **to = room, **first = room, *end = (char *)room + bytes;
  const char *value = find(environment, preload);
  size_t strings = 0;
  while (environment && environment[strings])
    strings++;
  char *text = (char *)(first + strings + kept.variables + 2);
  for (size_t i = 0; i < strings; i++)
    if (strncmp(environment[i], preload, sizeof preload - 1))
      *to++ = environment[i];
  put_preload(text, end, value);
  *to++ = text;
  for (unsigned i = 0; i < kept.variables; i++)
    if (!find(environment, kept.variable[i]))
      *to++ = (char *)(uintptr_t)kept.variable[i];
  *to = NULL;
  return first;
}
