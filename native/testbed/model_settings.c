// SPDX-License-Identifier: Apache-2.0
/* See model_settings.h. */
#include "testbed/model_settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct setting_row setting_rows[SETTINGS] = {
#define SETTING(name, key, kind, standard, least, most, doc) {key, kind, standard, least, most, doc},
#include "testbed/model_settings.def"
#undef SETTING
};

struct unit {
  const char *name;
  double factor;
};
static const struct unit times[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {NULL, 0}};
static const struct unit sizes[] = {
  {"", 1},           {"B", 1},          {"k", 0x1p10},   {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30}, {"T", 0x1p40},
  {"Ki", 0x1p10},    {"Mi", 0x1p20},    {"Gi", 0x1p30},  {"Ti", 0x1p40},  {"KiB", 0x1p10}, {"MiB", 0x1p20},
  {"GiB", 0x1p30},   {"TiB", 0x1p40},   {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},   {"TB", 1e12},
  {NULL, 0},
};
static const struct unit shares[] = {{"%", 0.01}, {NULL, 0}};
static const struct unit none[] = {{NULL, 0}};

static int scale(double *value, const char *unit, const struct unit *units) {
  if (!*unit)
    return 0;
  for (; units->name; units++)
    if (!strcmp(units->name, unit)) {
      *value *= units->factor;
      return 0;
    }
  return -EINVAL;
}

/* A number with a unit; the kind says which units there are. */
static int parse_number(enum setting_kind kind, const char *text, double *ret) {
  char unit[8] = "";
  char *end;
  double value = strtod(text, &end);
  if (end == text || !isfinite(value))
    return -EINVAL;
  size_t length = strlen(end);
  if (kind == RATE && length >= 2 && !strcmp(end + length - 2, "/s"))
    length -= 2;
  if (length >= sizeof unit)
    return -EINVAL;
  memcpy(unit, end, length);
  const struct unit *units = kind == TIME ? times : kind == SIZE || kind == RATE ? sizes : kind == SHARE ? shares : none;
  if (scale(&value, unit, units) < 0)
    return -EINVAL;
  *ret = kind == TIME || kind == SIZE ? round(value) : value;
  return 0;
}

/* The number of `word` in "a|b|c: ...", or -1. */
static int word_number(const char *doc, const char *word) {
  size_t length = strlen(word);
  int number = 0;
  for (const char *at = doc; length; number++) {
    size_t here = strcspn(at, "|:");
    if (here == length && !strncmp(at, word, length))
      return number;
    if (at[here] != '|')
      return -1;
    at += here + 1;
  }
  return -1;
}

static int parse_points(const char *text, struct points *ret, char *why, size_t why_size) {
  struct points p = {0};
  for (const char *at = text; *at;) {
    char *end;
    if (p.count == MAX_POINTS) {
      snprintf(why, why_size, "ost.contention has more than %d points", MAX_POINTS);
      return -EINVAL;
    }
    double n = strtod(at, &end);
    bool fine = end != at && *end == ':';
    at = end + fine;
    double g = strtod(at, &end);
    if (!fine || end == at || (*end && *end != ' ' && *end != ',')) {
      snprintf(why, why_size, "ost.contention is not a list of points like \"1:1 64:32\": %s", text);
      return -EINVAL;
    }
    at = end + strspn(end, " ,");
    if (p.count ? n <= p.n[p.count - 1] || g < p.g[p.count - 1] : n != 1 || g != 1) {
      snprintf(why, why_size, "ost.contention must begin with 1:1 and rise from point to point: %s", text);
      return -EINVAL;
    }
    p.n[p.count] = n;
    p.g[p.count++] = g;
  }
  if (!p.count) {
    snprintf(why, why_size, "ost.contention has no points; \"1:1\" means that processes do not disturb each other");
    return -EINVAL;
  }
  *ret = p;
  return 0;
}

double points_at(const struct points *p, double n) {
  if (p->count == 1)
    return p->g[0];
  uint32_t i = 1;
  while (i + 1 < p->count && n > p->n[i])
    i++;
  double steep = (p->g[i] - p->g[i - 1]) / (p->n[i] - p->n[i - 1]);
  return n <= 1 ? p->g[0] : p->g[i] + steep * (n - p->n[i]);
}

int setting_find(const char *key, size_t length, long *ret_index) {
  char name[128];
  *ret_index = -1;
  if (length >= sizeof name)
    return -1;
  memcpy(name, key, length);
  name[length] = 0;
  char *dot = strchr(name, '.');
  if (dot && isdigit((unsigned char)dot[1])) {
    char *end;
    *ret_index = strtol(dot + 1, &end, 10);
    if (*end != '.' || *ret_index < 0 || (strncmp(name, "ost.", 4) && strncmp(name, "oss.", 4) && strncmp(name, "mds.", 4)))
      return -1;
    memmove(dot, end, strlen(end) + 1);
  }
  for (int row = 0; row < SETTINGS; row++)
    if (!strcmp(setting_rows[row].key, name))
      return row;
  return -1;
}

int setting_parse(int row, const char *value, double *ret, char *why, size_t why_size) {
  const struct setting_row *r = &setting_rows[row];
  double number = 0;
  if (r->kind == WORD) {
    int word = word_number(r->doc, value);
    if (word < 0) {
      snprintf(why, why_size, "%s is one of %.*s, not '%s'", r->key, (int)strcspn(r->doc, ":"), r->doc, value);
      return -EINVAL;
    }
    *ret = word;
    return 0;
  }
  if (parse_number(r->kind, value, &number) < 0) {
    static const char *const like[] = {[TIME] = "a time like 250us", [SIZE] = "a size like 4MiB", [RATE] = "a rate like 100MB/s",
                                       [COUNT] = "a number", [FACTOR] = "a number", [SHARE] = "a share like 80%"};
    snprintf(why, why_size, "%s is not %s: '%s'", r->key, like[r->kind], value);
    return -EINVAL;
  }
  if (r->kind == COUNT && number != floor(number)) {
    snprintf(why, why_size, "%s is a whole number, not %s", r->key, value);
    return -EINVAL;
  }
  if (number < r->least || number > r->most) {
    snprintf(why, why_size, "%s must lie between %.15g and %.15g, not %.15g", r->key, r->least, r->most, number);
    return -EINVAL;
  }
  *ret = number;
  return 0;
}

int settings_set(struct settings *s, int row, const char *value, char *why, size_t why_size) {
  const struct setting_row *r = &setting_rows[row];
  if (r->kind == TEXT || r->kind == POINTS) {
    if (strlen(value) >= SETTING_TEXT || strpbrk(value, "\n")) {
      snprintf(why, why_size, "%s has at most %d characters", r->key, SETTING_TEXT - 1);
      return -EINVAL;
    }
    if (r->kind == POINTS && parse_points(value, &s->contention, why, why_size) < 0)
      return -EINVAL;
    snprintf(s->text[row], SETTING_TEXT, "%s", value);
    return 0;
  }
  return setting_parse(row, value, &s->v[row], why, why_size);
}

void settings_init(struct settings *s) {
  char why[200];
  memset(s, 0, sizeof *s);
  for (int row = 0; row < SETTINGS; row++)
    if (settings_set(s, row, setting_rows[row].standard, why, sizeof why) < 0) {
      fprintf(stderr, "testbed: default of %s\n", why);
      abort();
    }
}

void setting_show(const struct settings *s, int row, double value, char *ret, size_t size) {
  const struct setting_row *r = &setting_rows[row];
  if (r->kind == TEXT || r->kind == POINTS)
    snprintf(ret, size, "%s", s->text[row]);
  else if (r->kind == WORD) {
    const char *at = r->doc;
    for (int i = (int)value; i > 0; i--)
      at += strcspn(at, "|") + 1;
    snprintf(ret, size, "%.*s", (int)strcspn(at, "|:"), at);
  } else
    snprintf(ret, size, "%.15g", value);
}
