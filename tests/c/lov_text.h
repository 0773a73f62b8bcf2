// SPDX-License-Identifier: Apache-2.0
/* Templates from text and layouts to text, in the words of lov_cases.def.  Written with memcpy and offsets, not with the
   codec under test. */
#pragma once
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>

#include "check.h"
#include "kernels/layout.h"

/* ---- text to bytes ---- */

static inline uint64_t text_number(const char *s) {
  char *end;
  if (strncmp(s, "EOF", 3) == 0)
    return PENSTOCK_EOF;
  uint64_t v = (uint64_t)strtoll(s, &end, 0);
  return *end == 'K' ? v << 10 : *end == 'M' ? v << 20 : *end == 'G' ? v << 30 : v;
}

/* The number behind ` key=`, or the value given. */
static inline uint64_t text_field(const char *text, const char *key, uint64_t otherwise) {
  char pattern[16];
  snprintf(pattern, sizeof pattern, " %s=", key);
  const char *at = strstr(text, pattern);
  return at ? text_number(at + strlen(pattern)) : otherwise;
}

static inline void put(uint8_t *p, uint64_t v, size_t bytes) { memcpy(p, &v, bytes); /* little-endian hosts */ }

/* A plain template: bytes written.  `text` begins with a space. */
static inline size_t text_plain(const char *text, uint8_t *p) {
  bool spec = strstr(text, " SPEC"), v1 = strstr(text, " V1");
  size_t header = v1 ? 32 : 48;
  memset(p, 0, 48);
  unsigned listed = 0;
  const char *list = strstr(text, " list=");
  for (const char *s = list ? list + 6 : NULL; s; s = strpbrk(s, ", ") && *strpbrk(s, ", ") == ',' ? strpbrk(s, ",") + 1 : NULL) {
    uint8_t *o = p + header + 24 * listed++;
    memset(o, 0, 24);
    if (strstr(text, " ids"))
      put(o, 0x300000400, 8), put(o + 8, 7, 4);
    put(o + 20, text_number(s), 4);
  }
  put(p, text_field(text, "magic", spec ? PENSTOCK_LOV_SPECIFIC : v1 ? PENSTOCK_LOV_V1 : PENSTOCK_LOV_V3), 4);
  put(p + 4, text_field(text, "p", 0), 4);
  put(p + 24, text_field(text, "s", 0), 4);
  put(p + 28, text_field(text, "c", spec ? listed : 0), 2);
  put(p + 30, text_field(text, "o", 0xffff), 2);
  const char *pool = strstr(text, " pool=");
  for (unsigned i = 0; pool && i < 16 && pool[6 + i] && pool[6 + i] != ' '; i++)
    p[32 + i] = (uint8_t)pool[6 + i];
  return header + 24 * listed;
}

static inline size_t text_composite(char *text, uint8_t *p) {
  char *parts[16];
  unsigned count = 0;
  char *head = strtok(text, "|");
  for (char *part = strtok(NULL, "|"); part; part = strtok(NULL, "|"))
    parts[count++] = part;
  size_t at = 32 + 48 * (size_t)count;
  memset(p, 0, at);
  for (unsigned i = 0; i < count; i++) {
    uint8_t *e = p + 32 + 48 * i;
    char *extent = parts[i] + 1;
    if (strncmp(extent, "id=", 3) == 0)
      extent = strchr(extent, ' ') + 1;
    size_t size = text_plain(parts[i], p + at);
    put(e, text_field(parts[i], "id", 0), 4);
    put(e + 4, text_field(parts[i], "f", 0), 4);
    put(e + 8, text_number(extent), 8);
    put(e + 16, text_number(strchr(extent, '-') + 1), 8);
    put(e + 24, at, 4);
    put(e + 28, size, 4);
    at += size;
  }
  put(p, PENSTOCK_LOV_COMP, 4);
  put(p + 4, text_field(head, "n", at), 4);
  put(p + 14, text_field(head, "e", count), 2);
  put(p + 16, text_field(head, "m", 0), 2);
  return at;
}

/* The template that the text says: its bytes, zeros behind them. */
static inline size_t text_template(const char *words, uint8_t *p, size_t room) {
  char text[512];
  snprintf(text, sizeof text, " %s", words);
  memset(p, 0, room);
  size_t size = strncmp(words, "COMP", 4) == 0 ? text_composite(text, p) : text_plain(text, p);
  snprintf(text, sizeof text, " %s", words);
  if (strstr(text, " swap")) {
    uint32_t magic;
    memcpy(&magic, p, 4);
    put(p, __builtin_bswap32(magic), 4);
  }
  return text_field(text, "size", size);
}

/* ---- bytes to text ---- */

struct text {
  char s[8192];
  size_t used;
};

static inline void say(struct text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  t->used += (size_t)vsnprintf(t->s + t->used, sizeof t->s - t->used, format, args);
  va_end(args);
  CHECK(t->used < sizeof t->s);
}

static inline uint64_t take(const uint8_t *p, size_t bytes) {
  uint64_t v = 0;
  memcpy(&v, p, bytes);
  return v;
}

/* `n`: "n=" and a number, or nothing, behind the magic. */
static inline void say_plain(struct text *t, const uint8_t *p, size_t size, const char *n) {
  uint64_t magic = take(p, 4);
  size_t header = magic == PENSTOCK_LOV_V1 ? 32 : 48;
  say(t, "%s %s", magic == PENSTOCK_LOV_V1 ? "V1" : magic == PENSTOCK_LOV_V3 ? "V3" : "SPEC", n);
  if (header == 48 && p[32])
    say(t, "pool=%.16s ", (const char *)p + 32);
  say(t, "p=0x%llx s=%llu c=%llu (", (unsigned long long)take(p + 4, 4), (unsigned long long)take(p + 24, 4),
      (unsigned long long)take(p + 28, 2));
  for (size_t at = header; at < size; at += 24)
    say(t, "%s%llu", at > header ? "," : "", (unsigned long long)take(p + at + 20, 4));
  say(t, ")");
}

static inline void text_layout(struct text *t, const uint8_t *p, size_t size) {
  t->used = 0;
  if (take(p, 4) != PENSTOCK_LOV_COMP) {
    char n[32];
    snprintf(n, sizeof n, "n=%zu ", size);
    say_plain(t, p, size, n);
    return;
  }
  CHECK_EQ(size, take(p + 4, 4));
  say(t, "COMP n=%zu g=%u st=%u m=%u", size, (unsigned)take(p + 8, 4), (unsigned)take(p + 12, 2), (unsigned)take(p + 16, 2));
  for (unsigned i = 0; i < take(p + 14, 2); i++) {
    const uint8_t *e = p + 32 + 48 * i;
    say(t, " | 0x%x 0x%x %llu-", (unsigned)take(e, 4), (unsigned)take(e + 4, 4), (unsigned long long)take(e + 8, 8));
    if (take(e + 16, 8) == PENSTOCK_EOF)
      say(t, "EOF ");
    else
      say(t, "%llu ", (unsigned long long)take(e + 16, 8));
    say_plain(t, p + take(e + 24, 4), take(e + 28, 4), "");
  }
}

static inline const char *text_error(int err) {
  switch (-err) {
    case ERANGE: return "ERANGE";
    case EINVAL: return "EINVAL";
    case E2BIG: return "E2BIG";
    case EEXIST: return "EEXIST";
    case EREMOTEIO: return "EREMOTEIO";
    case ENOBUFS: return "ENOBUFS";
    case ENOSPC: return "ENOSPC";
    case EROFS: return "EROFS";
    case EOPNOTSUPP: return "EOPNOTSUPP";
    case ENODATA: return "ENODATA";
    default: return strerror(-err);
  }
}
