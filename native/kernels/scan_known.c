// SPDX-License-Identifier: Apache-2.0
/* What is known of a tree already, and what has to be asked again; see penstock_scan_known in scan.h. */
#include "kernels/row_paths.h"
#include "kernels/scan_parts.h"

#include <limits.h>

static int64_t ns_of(struct penstock_time t) { return t.s > INT64_MAX / 1000000000 - 1 ? INT64_MAX : t.s * 1000000000 + t.ns; }

/* May it have changed after it was learnt without its times showing it? */
static bool is_racy(const struct penstock_scan *s, const struct penstock_entry *e, int64_t learnt_ns) {
  int64_t last = ns_of(e->mtime) > ns_of(e->ctime) ? ns_of(e->mtime) : ns_of(e->ctime);
  return last > learnt_ns - s->tick_ns;
}

static int known_part(const struct penstock_index *in, const struct penstock_entry *e, enum penstock_part kind, char *room, const void **bytes, size_t *size) {
  ssize_t have = penstock_index_part(in, e, kind, room, VALUE_BYTES - 1);
  if (have == -ENODATA)
    return 0;
  *bytes = room;
  *size = have < 0 ? 0 : (size_t)have;
  return have < 0 ? (int)have : 0;
}

/* The entry of a name as the view has it: 1 if it has it.  The path stands in w->path. */
static int look_up(struct worker *w, const struct listing *l, const char *name, size_t name_size, struct penstock_entry *e, const struct penstock_index **in) {
  size_t size = l->it->size;
  if (!w->scan->view || !penstock_scan_path(w, l, name, name_size))
    return 0;
  size += (size ? 1 : 0) + name_size;
  return penstock_view_find(w->scan->view, w->path, size, e, in) == 0;
}

/* Takes an entry from what is known, with its parts, without asking the file system: 1 if that may be done. */
int penstock_scan_take_known(struct worker *w, struct listing *l, const struct dirent64 *de, struct penstock_draft *d) {
  struct penstock_scan *s = w->scan;
  const struct penstock_index *in;
  struct penstock_row row;
  struct penstock_entry *e = &d->attrs;
  if (s->full || de->d_type == DT_DIR || de->d_type == DT_UNKNOWN || !look_up(w, l, de->d_name, d->name_size, e, &in))
    return 0;
  if (e->ino != de->d_ino || mode_of_type(de->d_type) != (e->mode & S_IFMT) || e->flags & PENSTOCK_DOUBT ||
      penstock_index_row(in, e->folder, &row) < 0)
    return 0;
  if (e->learnt_ns == 0)
    e->learnt_ns = row.learnt_ns;
  if (is_racy(s, e, e->learnt_ns))
    return 0;
  char *room = w->parts;
  d->has_learnt = true;
  int err = known_part(in, e, PENSTOCK_PART_TARGET, room, &d->target, &d->target_size);
  if (err == 0)
    err = known_part(in, e, PENSTOCK_PART_LAYOUT, room + VALUE_BYTES, &d->layout, &d->layout_size);
  if (err == 0)
    err = known_part(in, e, PENSTOCK_PART_SUMS, room + 2 * VALUE_BYTES, &d->sums, &d->sums_size);
  return err == 0;
}

static bool same_attrs(const struct penstock_entry *a, const struct penstock_entry *b) {
  return a->ino == b->ino && a->generation == b->generation && a->size == b->size && same_time(a->mtime, b->mtime) && same_time(a->ctime, b->ctime);
}

/* Checksums of a file that is as it was. */
void penstock_scan_keep_sums(struct worker *w, struct listing *l, struct penstock_draft *d) {
  struct penstock_entry e;
  const struct penstock_index *in;
  if (w->scan->view && S_ISREG(d->attrs.mode) && look_up(w, l, d->name, d->name_size, &e, &in) && same_attrs(&e, &d->attrs))
    known_part(in, &e, PENSTOCK_PART_SUMS, w->parts + 2 * VALUE_BYTES, &d->sums, &d->sums_size);
}

/* Has the view this folder, listed, so that it has an item of its own?  Of one that nobody listed it may know some names
   all the same. */
bool penstock_scan_is_known(struct worker *w, const struct listing *l, const char *name, const struct statx *x) {
  const uint32_t looked = PENSTOCK_COMPLETE | PENSTOCK_LISTED | PENSTOCK_UNREADABLE | PENSTOCK_LEFT_OUT;
  struct penstock_entry e;
  struct penstock_folder f;
  const struct penstock_index *in;
  return !w->scan->full && look_up(w, l, name, strlen(name), &e, &in) && S_ISDIR(e.mode) && e.ino == x->stx_ino &&
         e.generation == generation_of(x) && penstock_view_folder(w->scan->view, w->path, strlen(w->path), &f) == 0 &&
         f.flags & looked;
}

/* Keeps a changed folder's own entry for its parent's block. */
static int keep_changed(struct worker *w, const struct item *it, const struct statx *x) {
  struct penstock_scan *s = w->scan;
  struct changed *c = malloc(sizeof *c + it->size + 1);
  if (!c)
    return -ENOMEM;
  *c = (struct changed){.size = it->size, .name_at = it->name_at};
  penstock_entry_fill(&c->attrs, x);
  c->attrs.flags = PENSTOCK_CHECKED;
  memcpy(c->path, it->path, it->size + 1);
  pthread_mutex_lock(&s->mutex);
  c->next = s->changed;
  s->changed = c;
  pthread_mutex_unlock(&s->mutex);
  return 0;
}

/* Must the folder be listed again?  Not if it is as it was, or no folder any more: its parent's listing tells.  A symlink
   in the path may lead elsewhere: what is listed is told by the folder that was opened (penstock_scan_note_changed). */
bool penstock_scan_must_list(struct worker *w, struct item *it) {
  struct statx x;
  if (it->size >= PATH_MAX)
    return true;
  if (penstock_scan_stat(w, w->scan->root, it->path, &x) < 0)
    return errno != ENOENT && errno != ENOTDIR && errno != ESTALE;
  return S_ISDIR(x.stx_mode) &&
         !(it->known && same_time(time_of(&x.stx_mtime), it->mtime) && same_time(time_of(&x.stx_ctime), it->ctime));
}

/* What the listing of the folder above would have told of one that changed and is open now. */
int penstock_scan_note_changed(struct worker *w, struct item *it, int fd) {
  struct statx x;
  it->known = false;
  if (it->size == 0 || penstock_scan_stat(w, fd, "", &x) < 0)
    return 0; /* of the root the listing makes the entry */
  it->known = true;
  it->mtime = time_of(&x.stx_mtime);
  it->ctime = time_of(&x.stx_ctime);
  it->dev = dev_of(&x);
  return keep_changed(w, it, &x);
}

/* Folders to be looked at, gathered before they are pushed. */
struct gathered {
  struct penstock_scan *s;
  struct item *first, *last;
  uint64_t count;
};

static int add_known(struct gathered *g, const char *path, size_t size, const struct penstock_entry *e, const struct penstock_row *row) {
  struct item *it = penstock_scan_item(path, size);
  if (!it)
    return -ENOMEM;
  const uint32_t doubt = PENSTOCK_MOVED | PENSTOCK_UNREADABLE;
  it->check = true;
  it->known = row->flags & (PENSTOCK_COMPLETE | PENSTOCK_LISTED) && !(row->flags & doubt) && !is_racy(g->s, e, row->learnt_ns);
  it->mtime = e->mtime;
  it->ctime = e->ctime;
  if (g->last)
    g->last->next = it;
  else
    g->first = it;
  g->last = it;
  g->count++;
  return 0;
}

/* Is what this segment says of a folder what holds, and not what a newer one says, or denies? */
static bool holds(const struct penstock_view *v, unsigned segment, const char *path, size_t size, const struct penstock_entry *e, struct penstock_entry *now) {
  struct penstock_folder f;
  const struct penstock_index *in;
  if (v->count == 1) {
    *now = *e;
    return true;
  }
  if (penstock_view_find(v, path, size, now, &in) < 0 || !S_ISDIR(now->mode) || penstock_view_folder(v, path, size, &f) < 0)
    return false;
  for (unsigned i = 0; i < segment; i++) {
    struct penstock_row row;
    if (f.row[i] != PENSTOCK_NO_ROW && penstock_index_row(v->segment[i], f.row[i], &row) == 0 && row.flags)
      return false; /* a newer listing */
  }
  return f.row[segment] != PENSTOCK_NO_ROW;
}

static int gather_segment(struct gathered *g, const struct penstock_view *v, unsigned segment) {
  const struct penstock_index *ix = v->segment[segment];
  struct penstock_row_paths p;
  int err = penstock_row_paths_begin(&p, ix);
  for (uint32_t i = 0; err == 0 && i < p.rows; i++) {
    struct penstock_row row;
    struct penstock_entry e, now;
    if ((err = penstock_index_row(ix, i, &row)) < 0 || (err = penstock_index_entry(ix, row.record_at, &e)) < 0)
      break;
    err = penstock_row_paths_next(&p, ix, &e);
    if (err == 0 && row.flags && !(row.flags & PENSTOCK_LEFT_OUT) && holds(v, segment, p.path[i], p.size[i], &e, &now))
      err = add_known(g, p.path[i], p.size[i], &now, &row);
  }
  penstock_row_paths_end(&p);
  return err;
}

int penstock_scan_push_known(struct penstock_scan *s) {
  struct gathered g = {.s = s};
  int err = 0;
  for (unsigned i = 0; err == 0 && i < s->view->count; i++)
    err = gather_segment(&g, s->view, i);
  if (err == 0 && g.first)
    penstock_scan_push_chain(s, g.first, g.last, g.count);
  else
    penstock_scan_drop_items(s, g.first);
  return err;
}

static int by_path(const void *a, const void *b) {
  const struct changed *x = *(struct changed *const *)a, *y = *(struct changed *const *)b;
  size_t xp = x->name_at, yp = y->name_at, least = xp < yp ? xp : yp;
  int order = memcmp(x->path, y->path, least);
  return order ? order : (xp > yp) - (xp < yp);
}

/* The entries of changed folders, each in a block of the folder it lies in, which lists nothing else.  A listing of that
   folder in the same segment comes before it. */
int penstock_scan_write_changed(struct changed *first, struct penstock_batch *b) {
  size_t count = 0, i = 0;
  for (struct changed *c = first; c; c = c->next)
    count++;
  struct changed **all = malloc((count + 1) * sizeof *all);
  if (!all)
    return -ENOMEM;
  for (struct changed *c = first; c; c = c->next)
    all[i++] = c;
  qsort(all, count, sizeof *all, by_path);
  int err = 0;
  for (i = 0; err == 0 && i < count; i++) {
    struct penstock_draft d = {.name = all[i]->path + all[i]->name_at, .name_size = all[i]->size - all[i]->name_at, .attrs = all[i]->attrs};
    err = penstock_batch_add(b, &d);
    if (err == 0 && (i + 1 == count || by_path(&all[i], &all[i + 1]) != 0))
      err = penstock_batch_close(b, all[i]->path, all[i]->name_at ? all[i]->name_at - 1 : 0, 0, now_ns(CLOCK_REALTIME));
  }
  free(all);
  return err;
}

void penstock_scan_drop_changed(struct changed *c) {
  while (c) {
    struct changed *next = c->next;
    free(c);
    c = next;
  }
}
