// SPDX-License-Identifier: Apache-2.0
/* The reader of counters.h: one pass over the lines, no allocation. */
#include "kernels/counters.h"

#include <stdbool.h>
#include <string.h>

/* A piece of text that gets shorter from its front. */
struct rest {
  const char *at;
  const char *end;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void skip_blanks(struct rest *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t')) r->at++;
}

static struct rest next_word(struct rest *r) {
  skip_blanks(r);
  struct rest word = {r->at, r->at};
  while (r->at < r->end && *r->at != ' ' && *r->at != '\t') r->at++;
  word.end = r->at;
  return word;
}

/* A number too large stays at the largest. */
static int64_t number(struct rest *r) {
  skip_blanks(r);
  bool minus = r->at < r->end && *r->at == '-';
  if (minus)
    r->at++;
  if (r->at >= r->end || !is_digit(*r->at))
    return PENSTOCK_NO_COUNT;
  int64_t value = 0;
  bool over = false;
  for (; r->at < r->end && is_digit(*r->at); r->at++)
    over |= __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *r->at - '0', &value);
  if (over)
    value = INT64_MAX;
  return minus ? -value : value;
}

int64_t penstock_number_parse(const char *text, size_t size) {
  struct rest r = {text, text + size};
  return number(&r);
}

static bool is_word(struct rest word, const char *name) {
  size_t length = (size_t)(word.end - word.at);
  return strlen(name) == length && memcmp(word.at, name, length) == 0;
}

static int64_t count(struct rest *r) {
  int64_t value = number(r);
  return value < 0 ? 0 : value;
}

/* After the name: `8 samples [bytes] 4096 4194304 33554432`; a line may end after the unit. */
static struct penstock_counter line_counter(struct rest line) {
  struct penstock_counter ret = {.samples = count(&line)};
  next_word(&line);
  next_word(&line);
  count(&line);
  count(&line);
  ret.sum = count(&line);
  return ret;
}

void penstock_counters_parse(const char *text, size_t size, const char *const *names, size_t n,
                             struct penstock_counter *ret) {
  memset(ret, 0, n * sizeof *ret);
  const char *end = text + size;
  for (const char *at = text; at < end;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    struct rest line = {at, stop ? stop : end};
    struct rest name = next_word(&line);
    for (size_t i = 0; i < n; i++)
      if (is_word(name, names[i]))
        ret[i] = line_counter(line);
    at = line.end + 1;
    if (!stop)
      break;
  }
}
