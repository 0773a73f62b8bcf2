// SPDX-License-Identifier: Apache-2.0
/* See wishes.h. */
#include "launch/wishes.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "board/board.h"

#define PENSTOCK_DETECT "lustre:ceph:fuse.ceph:fuse.ceph-fuse:fuse.penstock"
#define SITE_FILE "/etc/penstock/penstock.toml"

static const struct {
  const char *name;
  uint32_t bit;
} STAGES[] = {
  {"serve", PENSTOCK_STAGE_SERVE},   {"limit", PENSTOCK_STAGE_LIMIT},     {"place", PENSTOCK_STAGE_PLACE},
  {"forward", PENSTOCK_STAGE_FORWARD}, {"record", PENSTOCK_STAGE_RECORD}, {"catalog", PENSTOCK_STAGE_CATALOG},
  {"pass", PENSTOCK_STAGE_PASS},
};

/* ---- values ---- */

static bool read_whole(const char *text, uint64_t most, uint64_t *ret) {
  char *end;
  unsigned long long value = strtoull(text, &end, 10);
  if (!isdigit((unsigned char)*text) || *end || value > most)
    return false;
  *ret = value;
  return true;
}

/* 64MiB, 64M and 64m are 64 * 1024 * 1024, 64MB is 64,000,000. */
static bool read_size(const char *text, uint64_t *ret) {
  static const char powers[] = "kmgtp";
  char *end;
  double value = strtod(text, &end);
  if (!isdigit((unsigned char)*text))
    return false;
  while (*end == ' ')
    end++;
  const char *power = *end ? strchr(powers, tolower((unsigned char)*end)) : NULL;
  int exponent = power ? (int)(power - powers) + 1 : 0;
  end += power != NULL;
  bool decimal = power && strcasecmp(end, "b") == 0;
  if (*end && strcasecmp(end, "b") != 0 && strcasecmp(end, "i") != 0 && strcasecmp(end, "ib") != 0)
    return false;
  while (exponent--)
    value *= decimal ? 1000 : 1024;
  if (value > 1e18)
    return false;
  *ret = (uint64_t)value;
  return true;
}

/* An absolute path, with ~ and what is relative made so. */
static bool read_path(const char *text, char ret[PATH_MAX]) {
  const char *home = getenv("HOME");
  char folder[PATH_MAX];
  int size;
  if (text[0] == '~' && (text[1] == '/' || !text[1]) && home)
    size = snprintf(ret, PATH_MAX, "%s%s", home, text + 1);
  else if (!*text || *text == '/')
    size = snprintf(ret, PATH_MAX, "%s", text);
  else
    size = getcwd(folder, sizeof folder) ? snprintf(ret, PATH_MAX, "%s/%s", folder, text) : PATH_MAX;
  if (size >= PATH_MAX)
    *ret = 0;
  return size < PATH_MAX;
}

/* The words of a list, between colons. */
static bool read_stages(const char *text, uint32_t *ret) {
  uint32_t stages = 0;
  while (*text) {
    size_t size = strcspn(text, ":,"), i = 0, count = sizeof STAGES / sizeof *STAGES;
    while (i < count && !(strlen(STAGES[i].name) == size && memcmp(STAGES[i].name, text, size) == 0))
      i++;
    if (i == count && size)
      return false;
    stages |= size ? STAGES[i].bit : 0;
    text += size + (text[size] != 0);
  }
  *ret = stages;
  return true;
}

static bool read_mounts(const char *text, struct penstock_wishes *w) {
  w->mount_count = 0;
  while (*text) {
    size_t size = strcspn(text, ":");
    if (size && size < sizeof w->mounts[0] && *text == '/' && w->mount_count < PENSTOCK_MOUNTS_MAX) {
      memcpy(w->mounts[w->mount_count], text, size);
      w->mounts[w->mount_count++][size] = 0;
    }
    text += size + (text[size] != 0);
  }
  return true;
}

static const char *const NAMES[] = {
  "state_dir",       "history.dir",        "history.readers", "board.dir",
  "board.max_size",  "record.files_max",   "record.sample_every", "run.stages",
  "agent.socket",    "run.mounts",         "catalog.file",    "catalog.root",
  "catalog.ring_size", "run.detect",
};

static bool set(struct penstock_wishes *w, const char *name, const char *value) {
  uint64_t number;
  if (strcmp(name, "state_dir") == 0)
    return read_path(value, w->state);
  if (strcmp(name, "history.dir") == 0)
    return read_path(value, w->history);
  if (strcmp(name, "board.dir") == 0)
    return read_path(value, w->board_dir);
  if (strcmp(name, "agent.socket") == 0) {
    char path[PATH_MAX];
    return read_path(value, path) && snprintf(w->agent_socket, sizeof w->agent_socket, "%s", path) < (int)sizeof w->agent_socket;
  }
  if (strcmp(name, "history.readers") == 0)
    return w->group = strcmp(value, "group") == 0, true;
  if (strcmp(name, "board.max_size") == 0)
    return read_size(value, &w->board_max_bytes);
  if (strcmp(name, "record.files_max") == 0)
    return read_whole(value, UINT32_MAX, &number) && (w->files_max = (uint32_t)number, true);
  if (strcmp(name, "record.sample_every") == 0)
    return read_whole(value, UINT32_MAX, &number) && (w->sample_every = (uint32_t)number, true);
  if (strcmp(name, "run.stages") == 0)
    return read_stages(value, &w->stages);
  if (strcmp(name, "catalog.file") == 0)
    return read_path(value, w->catalog);
  if (strcmp(name, "catalog.root") == 0)
    return read_path(value, w->catalog_root);
  if (strcmp(name, "catalog.ring_size") == 0)
    return read_size(value, &w->ring_bytes);
  if (strcmp(name, "run.detect") == 0)
    return snprintf(w->detect, sizeof w->detect, "%s", value) < (int)sizeof w->detect;
  return read_mounts(value, w);
}

bool penstock_wishes_set(struct penstock_wishes *w, const char *word) {
  const char *equals = strchr(word, '=');
  for (size_t i = 0; equals && i < sizeof NAMES / sizeof *NAMES; i++)
    if (strlen(NAMES[i]) == (size_t)(equals - word) && memcmp(NAMES[i], word, strlen(NAMES[i])) == 0)
      return set(w, NAMES[i], equals + 1);
  return false;
}

/* ---- files ---- */

/* A TOML value as the text that `set` reads: strings without quotes, the texts of a list joined by colons. */
static void plain_value(char *text) {
  char *to = text, quote = 0;
  bool list = *text == '[', comment = false;
  for (char *from = text; *from && *from != '\n' && !comment; from++) {
    if (quote) {
      if (*from == quote)
        quote = 0;
      else
        *to++ = *from;
    } else if (*from == '"' || *from == '\'')
      quote = *from;
    else if (*from == '#')
      comment = true;
    else if (list && *from == ',')
      *to++ = ':';
    else if (!isspace((unsigned char)*from) && !(list && strchr("[]", *from)))
      *to++ = *from;
  }
  *to = 0;
}

static void read_file(struct penstock_wishes *w, const char *path) {
  FILE *file = fopen(path, "re");
  char line[PATH_MAX + 64], table[64] = "";
  while (file && fgets(line, sizeof line, file)) {
    char name[192], key[64];
    int value = 0;
    if (sscanf(line, " [ %63[A-Za-z0-9_.-]", table) == 1)
      continue;
    if (sscanf(line, " %63[A-Za-z0-9_.-] = %n", key, &value) != 1 || !value)
      continue;
    plain_value(line + value);
    snprintf(name, sizeof name, "%s%s%s", table, *table ? "." : "", key);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
      if (strcmp(NAMES[i], name) == 0)
        set(w, name, line + value);
  }
  if (file)
    fclose(file);
}

static void read_environment(struct penstock_wishes *w) {
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
    char variable[64] = "PENSTOCK_";
    size_t at = strlen(variable);
    for (const char *c = NAMES[i]; *c; c++)
      variable[at++] = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
    variable[at] = 0;
    const char *value = getenv(variable);
    if (value && *value)
      set(w, NAMES[i], value);
  }
}

/* A folder of the XDG specification: values that are not absolute are ignored. */
static void xdg(char ret[PATH_MAX], const char *variable, const char *below_home, const char *name) {
  const char *value = getenv(variable), *home = getenv("HOME");
  int size = value && *value == '/' ? snprintf(ret, PATH_MAX, "%s/%s", value, name)
                                    : snprintf(ret, PATH_MAX, "%s/%s/%s", home ? home : "/", below_home, name);
  if (size >= PATH_MAX)
    *ret = 0;
}

void penstock_wishes_read(struct penstock_wishes *ret) {
  char path[PATH_MAX];
  *ret = (struct penstock_wishes){.stages = PENSTOCK_STAGE_RECORD, .detect = PENSTOCK_DETECT};
  read_file(ret, SITE_FILE);
  xdg(path, "XDG_CONFIG_HOME", ".config", "penstock/penstock.toml");
  read_file(ret, path);
  read_environment(ret);
}

void penstock_wishes_settle(struct penstock_wishes *w) {
  if (!*w->state)
    xdg(w->state, "XDG_STATE_HOME", ".local/state", "penstock");
  if (!*w->history && snprintf(w->history, sizeof w->history, "%s/history", w->state) >= (int)sizeof w->history)
    *w->history = 0;
  char *slash = strrchr(w->catalog, '/');
  if (slash)
    w->stages |= PENSTOCK_STAGE_CATALOG;
  else
    w->stages &= ~(uint32_t)PENSTOCK_STAGE_CATALOG;
  if (slash && !*w->catalog_root)
    snprintf(w->catalog_root, sizeof w->catalog_root, "%.*s", slash == w->catalog ? 1 : (int)(slash - w->catalog),
             w->catalog);
}
