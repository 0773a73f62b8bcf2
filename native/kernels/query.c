// SPDX-License-Identifier: Apache-2.0
/* Questions about entries: see query.h. */
#include "kernels/query.h"

#include <errno.h>
#include <fnmatch.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/layout.h"

enum { TEXT_BYTES = 4096 };

int penstock_query_check(const struct penstock_query *q) {
  if (q->count == 0 || q->count > PENSTOCK_TESTS_MAX)
    return -EINVAL;
  for (size_t i = 0; i < q->count; i++) {
    const struct penstock_test *t = &q->test[i];
    bool two = t->kind == PENSTOCK_TEST_AND || t->kind == PENSTOCK_TEST_OR || t->kind == PENSTOCK_TEST_COMMA;
    bool text = t->kind == PENSTOCK_TEST_NAME || t->kind == PENSTOCK_TEST_PATH || t->kind == PENSTOCK_TEST_TARGET || t->kind == PENSTOCK_TEST_POOL;
    if (t->kind == PENSTOCK_TEST_REGEX && !t->regex)
      return -EINVAL;
    if ((two && (t->a >= i || t->b >= i)) || (t->kind == PENSTOCK_TEST_NOT && t->a >= i) || (text && !t->text))
      return -EINVAL;
  }
  return 0;
}

static bool within(const struct penstock_test *t, int64_t v) { return v >= t->low && v <= t->high; }

static bool within_u(const struct penstock_test *t, uint64_t v) { return within(t, v > INT64_MAX ? INT64_MAX : (int64_t)v); }

static bool matches(const struct penstock_test *t, const char *text) {
  return fnmatch(t->text, text, t->low ? FNM_CASEFOLD : 0) == 0;
}

static int64_t saturated(struct penstock_time v) {
  if (v.s > INT64_MAX / 1000000000 - 1)
    return INT64_MAX;
  if (v.s < INT64_MIN / 1000000000 + 1)
    return INT64_MIN;
  return v.s * 1000000000 + v.ns;
}

static bool target_matches(const struct penstock_test *t, const struct penstock_visit *it) {
  char target[TEXT_BYTES];
  ssize_t size = S_ISLNK(it->entry->mode) ? penstock_index_part(it->in, it->entry, PENSTOCK_PART_TARGET, target, sizeof target - 1) : -1;
  if (size < 0 || (size_t)size >= sizeof target)
    return false;
  target[size] = 0;
  return matches(t, target);
}

static bool perm_matches(const struct penstock_test *t, uint32_t mode) {
  uint32_t bits = (uint32_t)t->low, have = mode & 07777;
  return t->a == 0 ? have == bits : t->a == 1 ? (have & bits) == bits : bits == 0 || (have & bits) != 0;
}

static enum penstock_walk stop_at_child(void *state, const struct penstock_visit *it) {
  if (it->depth == 0)
    return PENSTOCK_WALK_ON;
  *(bool *)state = true;
  return PENSTOCK_WALK_STOP;
}

static void unreadable(void *state, int err, const char *path, size_t size) {
  (void)err;
  (void)path;
  (void)size;
  *(bool *)state = true; /* what cannot be read is not called empty */
}

/* An empty file, or a folder that was listed and has no names: those that are gone count in no segment. */
static bool is_empty(const struct penstock_view *v, const struct penstock_visit *it) {
  const struct penstock_folder *f = it->folder;
  if (S_ISREG(it->entry->mode))
    return it->entry->size == 0;
  if (!f || !(f->flags & PENSTOCK_COMPLETE))
    return false;
  bool any = false;
  return penstock_view_walk(v, it->path, it->path_size, 1, stop_at_child, unreadable, &any) == 0 && !any;
}

static bool component_matches(const struct penstock_test *t, const struct penstock_component *c) {
  if (t->kind == PENSTOCK_TEST_POOL) {
    char pool[PENSTOCK_POOL_BYTES + 1] = {0};
    memcpy(pool, c->pool, PENSTOCK_POOL_BYTES);
    return fnmatch(t->text, pool, 0) == 0;
  }
  for (unsigned i = 0; i < c->object_count; i++)
    if (within(t, penstock_layout_ost(c, i)))
      return true;
  return false;
}

static bool lustre_matches(const struct penstock_test *t, const uint8_t *blob, size_t size) {
  struct penstock_layout l;
  struct penstock_component c = {0};
  bool holds = false;
  if (penstock_layout_parse(blob, size, &l) < 0)
    return false;
  if (t->kind == PENSTOCK_TEST_COMPONENTS)
    return within(t, l.count);
  if (t->kind == PENSTOCK_TEST_OST || t->kind == PENSTOCK_TEST_POOL) {
    for (unsigned i = 0; !holds && i < l.count; i++)
      holds = penstock_layout_component(&l, i, &c) == 0 && component_matches(t, &c);
    return holds;
  }
  return l.count && penstock_layout_component(&l, l.count - 1u, &c) == 0 &&
         within(t, t->kind == PENSTOCK_TEST_STRIPES ? c.stripe_count : (int64_t)c.stripe_size_bytes);
}

/* CephFS gives its layouts as text: "stripe_unit=65536 stripe_count=3 object_size=1048576 pool=NAME".  The value of a word
   in it, up to the next blank; NULL: there is none. */
static const char *ceph_value(const char *text, const char *word) {
  size_t size = strlen(word);
  for (const char *at = text; (at = strstr(at, word)); at += size)
    if ((at == text || at[-1] == ' ') && at[size] == '=')
      return at + size + 1;
  return NULL;
}

static bool ceph_matches(const struct penstock_test *t, const uint8_t *blob, size_t size) {
  char text[TEXT_BYTES];
  if (size >= sizeof text)
    return false;
  memcpy(text, blob, size);
  text[size] = 0;
  const char *stripes = ceph_value(text, "stripe_count"), *unit = ceph_value(text, "stripe_unit"), *pool = ceph_value(text, "pool");
  if (!stripes || !unit || !pool)
    return false;
  switch (t->kind) {
  case PENSTOCK_TEST_COMPONENTS: return within(t, 1);
  case PENSTOCK_TEST_STRIPES: return within_u(t, strtoull(stripes, NULL, 10));
  case PENSTOCK_TEST_STRIPE_BYTES: return within_u(t, strtoull(unit, NULL, 10));
  case PENSTOCK_TEST_POOL: text[pool - text + (ptrdiff_t)strcspn(pool, " ")] = 0; return fnmatch(t->text, pool, 0) == 0;
  default: return false; /* which OSDs hold it the layout does not say */
  }
}

static bool layout_matches(const struct penstock_test *t, const struct penstock_visit *it) {
  uint8_t blob[TEXT_BYTES * 2], *from = blob;
  bool holds = false;
  ssize_t size = penstock_index_part(it->in, it->entry, PENSTOCK_PART_LAYOUT, blob, sizeof blob);
  if (size > (ssize_t)sizeof blob && (from = malloc((size_t)size)))
    size = penstock_index_part(it->in, it->entry, PENSTOCK_PART_LAYOUT, from, (size_t)size);
  if (size > 0 && from)
    holds = lustre_matches(t, from, (size_t)size) || ceph_matches(t, from, (size_t)size);
  if (from != blob)
    free(from);
  return holds;
}

struct asked {
  struct penstock_query *q;
  const struct penstock_visit *it;
  const char *path; /* as it would be printed */
  size_t path_size;
};

/* Where the walk begins its name is the one it was given there: "." and "..", and no slash at the end. */
static bool start_matches(const struct penstock_test *t, const struct asked *a) {
  char name[TEXT_BYTES];
  size_t size = a->path_size;
  while (size > 1 && a->path[size - 1] == '/')
    size--;
  const char *slash = memrchr(a->path, '/', size);
  const char *from = slash && size > 1 ? slash + 1 : a->path;
  size -= (size_t)(from - a->path);
  if (size >= sizeof name)
    return false;
  memcpy(name, from, size);
  name[size] = 0;
  return matches(t, name);
}

static bool holds(struct asked *a, size_t number) {
  const struct penstock_test *t = &a->q->test[number];
  const struct penstock_entry *e = a->it->entry;
  switch (t->kind) {
  case PENSTOCK_TEST_TRUE: return true;
  case PENSTOCK_TEST_AND: return holds(a, t->a) && !a->q->quit && holds(a, t->b);
  case PENSTOCK_TEST_OR: return holds(a, t->a) || (!a->q->quit && holds(a, t->b));
  case PENSTOCK_TEST_COMMA: return holds(a, t->a), !a->q->quit && holds(a, t->b);
  case PENSTOCK_TEST_NOT: return !holds(a, t->a);
  case PENSTOCK_TEST_NAME: return a->it->depth ? matches(t, a->it->path + a->it->name_at) : start_matches(t, a);
  case PENSTOCK_TEST_PATH: return matches(t, a->path);
  case PENSTOCK_TEST_TARGET: return target_matches(t, a->it);
  case PENSTOCK_TEST_TYPE: return t->low >> (e->mode >> 12 & 15) & 1;
  case PENSTOCK_TEST_SIZE: return t->a && within_u(t, e->size / t->a + (e->size % t->a != 0));
  case PENSTOCK_TEST_BYTES_ON: return t->a && within_u(t, e->blocks * 512 / t->a);
  case PENSTOCK_TEST_MTIME: return within(t, saturated(e->mtime));
  case PENSTOCK_TEST_CTIME: return within(t, saturated(e->ctime));
  case PENSTOCK_TEST_ATIME: return within(t, saturated(e->atime));
  case PENSTOCK_TEST_UID: return within(t, e->uid);
  case PENSTOCK_TEST_GID: return within(t, e->gid);
  case PENSTOCK_TEST_INODE: return within_u(t, e->ino);
  case PENSTOCK_TEST_LINKS: return within(t, e->nlink);
  case PENSTOCK_TEST_PERM: return perm_matches(t, e->mode);
  case PENSTOCK_TEST_EMPTY: return is_empty(a->q->view, a->it);
  case PENSTOCK_TEST_STRIPES:
  case PENSTOCK_TEST_STRIPE_BYTES:
  case PENSTOCK_TEST_COMPONENTS:
  case PENSTOCK_TEST_OST:
  case PENSTOCK_TEST_POOL: return layout_matches(t, a->it);
  case PENSTOCK_TEST_PRUNE: return a->q->pruned = true;
  case PENSTOCK_TEST_QUIT: return a->q->quit = true;
  case PENSTOCK_TEST_PRINT: a->q->print(a->q->state, a->path, a->path_size, (char)t->a); return true;
  case PENSTOCK_TEST_REGEX: return re_match(t->regex, a->path, (regoff_t)a->path_size, 0, NULL) == (regoff_t)a->path_size;
  case PENSTOCK_TEST_CALL: return a->q->call(a->q->state, t->a, a->it, a->path, a->path_size);
  }
  return false;
}

/* The path as it would be printed: the start's name, and what is below it. */
static bool printed(struct penstock_query *q, const struct penstock_visit *it, struct asked *a) {
  const char *rest = it->path + q->skip;
  size_t size = it->path_size > q->skip ? it->path_size - q->skip : 0;
  if (size && *rest == '/')
    rest++, size--;
  size_t need = q->prefix_size + size + 2;
  if (need > q->path_room) {
    char *more = realloc(q->path, need * 2);
    if (!more)
      return false;
    memcpy(more, q->prefix, q->prefix_size);
    q->path = more;
    q->path_room = need * 2;
  }
  size_t at = q->prefix_size;
  if (size && at && q->path[at - 1] != '/')
    q->path[at++] = '/';
  memcpy(q->path + at, rest, size);
  q->path[at + size] = 0;
  *a = (struct asked){q, it, q->path, at + size};
  return true;
}

/* A folder that waits until what is in it was visited. */
struct penstock_held {
  struct penstock_visit it;
  struct penstock_entry entry;
  struct penstock_folder folder;
  char *path;
};

static bool evaluate(struct penstock_query *q, const struct penstock_visit *it) {
  struct asked a;
  if (it->depth < q->depth_min)
    return true;
  if (!printed(q, it, &a)) {
    q->full = true;
    return false;
  }
  holds(&a, q->count - 1);
  return true;
}

static bool hold(struct penstock_query *q, const struct penstock_visit *it) {
  if (q->held_count == q->held_room) {
    struct penstock_held *more = realloc(q->held, (q->held_room * 2 + 16) * sizeof *more);
    if (!more)
      return false;
    q->held = more;
    q->held_room = q->held_room * 2 + 16;
  }
  struct penstock_held *h = &q->held[q->held_count];
  *h = (struct penstock_held){*it, *it->entry, *it->folder, malloc(it->path_size + 1)};
  if (!h->path)
    return false;
  memcpy(h->path, it->path, it->path_size);
  h->path[it->path_size] = 0;
  q->held_count++;
  return true;
}

/* The folders held at this depth and below it have had their contents. */
static void let_go(struct penstock_query *q, unsigned depth) {
  while (q->held_count > 0 && q->held[q->held_count - 1].it.depth >= depth) {
    struct penstock_held *h = &q->held[--q->held_count];
    h->it.path = h->path;
    h->it.entry = &h->entry;
    h->it.folder = &h->folder;
    if (!q->quit && !q->full)
      evaluate(q, &h->it);
    free(h->path);
  }
}

int penstock_query_end(struct penstock_query *q) {
  let_go(q, 0);
  free(q->held);
  free(q->path);
  return q->full ? -ENOMEM : 0;
}

enum penstock_walk penstock_query_visit(struct penstock_query *q, const struct penstock_visit *it) {
  bool other = it->folder && it->folder->flags & PENSTOCK_OTHER_MOUNT;
  if (it->depth == 0)
    q->other_mount = other;
  bool barred = q->one_mount && it->folder && other != q->other_mount;
  let_go(q, it->depth);
  q->pruned = false; /* where contents come first it prunes nothing */
  if (q->contents_first && it->folder && !barred && !q->quit)
    q->full = q->full || !hold(q, it);
  else if (!q->quit)
    evaluate(q, it);
  if (q->quit || q->full)
    return PENSTOCK_WALK_STOP;
  return barred || q->pruned ? PENSTOCK_WALK_PAST : PENSTOCK_WALK_ON;
}
