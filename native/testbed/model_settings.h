// SPDX-License-Identifier: Apache-2.0
/* The settings of the service model as numbers: parsing, bounds, and the slowdown table g(n).  The rows are in
 * model_settings.def; times are ns, sizes bytes, shares between 0 and 1, words their number. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum setting_kind { TIME, SIZE, RATE, COUNT, FACTOR, SHARE, WORD, TEXT, POINTS };

enum setting {
#define SETTING(name, ...) SET_##name,
#include "testbed/model_settings.def"
#undef SETTING
  SETTINGS
};

struct setting_row {
  const char *key;
  enum setting_kind kind;
  const char *standard;
  double least, most;
  const char *doc;
};
extern const struct setting_row setting_rows[SETTINGS];

enum { MODEL_OFF, MODEL_COUNT, MODEL_ON };
enum { SERVICE_FIXED, SERVICE_EXPONENTIAL };
enum { FLOCK_LOCAL, FLOCK_SERVER };
enum { MAX_POINTS = 64, SETTING_TEXT = 256 };

struct points {
  uint32_t count;
  double n[MAX_POINTS];
  double g[MAX_POINTS];
};

struct settings {
  double v[SETTINGS];
  char text[SETTINGS][SETTING_TEXT]; /* of TEXT and POINTS, as given */
  struct points contention;
};

/* All defaults. */
void settings_init(struct settings *s);
/* Row of a key, or -1.  A number behind the first word goes to *index (else -1): ost.7.slowdown. */
int setting_find(const char *key, size_t length, long *ret_index);
/* A value as people or the flat text write it.  0, or -EINVAL and a sentence. */
int setting_parse(int row, const char *value, double *ret, char *why, size_t why_size);
/* Sets a value for the whole file system. */
int settings_set(struct settings *s, int row, const char *value, char *why, size_t why_size);
/* The value as text that reads back. */
void setting_show(const struct settings *s, int row, double value, char *ret, size_t size);
/* g(n). */
double points_at(const struct points *p, double n);
