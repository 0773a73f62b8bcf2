// SPDX-License-Identifier: Apache-2.0
/* Paths by their text alone: making them absolute and normal, and telling by prefixes what they mean.  Pure functions:
   no file is looked at, nothing is allocated. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "board/board.h"

enum { PENSTOCK_NAME_MAX = 1024 }; /* longer paths are cut: it lies on the stack of the program's signal handlers */

/* Writes `path`, taken from the folder `base` (absolute and normal, base_size bytes, "" or "/" is the root), normalised
   into `to`, with a NUL.  `..` goes up by text, whatever links there are.  Gives the size without NUL ("/" has 1), or -1
   when base or path has no room: what is cut could change what `..` means. */
ssize_t penstock_name_make(char to[PENSTOCK_NAME_MAX], const char *base, size_t base_size, const char *path);

/* The rules of `control`, arranged for a quick look-up. */
struct penstock_rules {
  uint8_t count;
  uint8_t otherwise;
  uint8_t mounts;       /* rules that know a device */
  uint8_t by_component; /* rules without a slash */
  uint8_t first[256];   /* by the first letter of a path: 1 + index of the longest rule; 0: none */
  uint8_t letters[256]; /* PENSTOCK_LETTER_* of what follows a slash */
  uint8_t second[256];  /* PENSTOCK_LETTER_COMPONENT of the letter after that */
  uint8_t root;         /* 1 + index of the rule "" */
  struct {
    uint64_t dev;
    uint16_t size;
    uint8_t under;
    uint8_t next; /* the next shorter one of the same first letter */
    const char *path;
  } rule[PENSTOCK_PREFIXES_MAX];
};

enum {
  PENSTOCK_LETTER_ODD = 1,       /* perhaps an empty component, `.` or `..` */
  PENSTOCK_LETTER_COMPONENT = 2, /* perhaps one that a rule without a slash names */
  PENSTOCK_LETTERS_ANY = 3,
};

/* How long a path is if it is absolute and normal as it stands (no empty, `.` or `..` components, no slash at its end,
   shorter than PENSTOCK_NAME_MAX); else -1.  *letters tells what its components begin with. */
ssize_t penstock_name_scan(const struct penstock_rules *rules, const char *path, uint8_t *letters);

/* From prefixes whose count and sizes may be anything; what is out of bounds is left out.  `paths` stay where they are. */
void penstock_rules_make(struct penstock_rules *rules, const struct penstock_prefix *prefixes, uint32_t count,
                         uint32_t otherwise);

/* What was found for a path: PENSTOCK_UNDER_*, and which rule said so (-1: none did). */
struct penstock_found {
  uint8_t under;
  int8_t rule;
};
struct penstock_found penstock_rules_find(const struct penstock_rules *rules, const char *path, size_t size,
                                          uint8_t letters);

/* The rule without a slash that a component of this path (relative ones too) meets; -1: none. */
int penstock_rules_component(const struct penstock_rules *rules, const char *path, size_t size);

/* What is under control once the device of the file is known: the text may have led elsewhere by a link or a mount. */
uint8_t penstock_rules_decide(const struct penstock_rules *rules, struct penstock_found by_path, uint64_t dev);

/* Whether some prefix could say otherwise about what lies below this folder. */
bool penstock_rules_below(const struct penstock_rules *rules, const char *path, size_t size);
