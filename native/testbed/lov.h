// SPDX-License-Identifier: Apache-2.0
/* Layouts of the emulated Lustre: what a template means, which answer Lustre gives to it, which layout results, and
 * what reading it back shows.  Files, FUSE and the service model are not known here; the server keeps the bytes that
 * these functions give (an attribute of the inode) and hands them back.
 *
 * Three kinds of bytes, all of the format in kernels/layout.h, host order:
 * - a template: what a caller passed to setxattr or to SETSTRIPE.  Hostile.
 * - a stored layout: what belongs to a file.  A plain one always has objects; a component of a composite has objects if
 *   its flags have PENSTOCK_COMP_INIT (a DoM component then has none: its bytes lie on the MDT).  The server reads it
 *   with penstock_layout_parse, _find and _locate.  It is not what callers see: lov_file_answer makes that.
 * - a stored default: what belongs to a directory.
 *
 * Invariants:
 * 1. Any function may be called from any thread; one lock guards the allocator, and no callback runs under it but `look`.
 * 2. Results are sizes in bytes (0 = nothing to store, see each) or negative errno, the ones observed on Lustre.
 * 3. Outputs are written up to `room` only, overlap no input, and are left undefined on errors.  LOV_BYTES are always
 *    enough.
 * 4. A refusal takes no object numbers and leaves the allocator as it was, but for its counter.
 */
#pragma once
#include "kernels/layout.h"

enum {
  LOV_BYTES = PENSTOCK_LAYOUT_MAX_BYTES,
  LOV_PARTS = 255, /* components; more are refused with E2BIG */
};

struct lov;

/* ---- life ---- */

/* An OST as the MDS sees it.  `state`: MODEL_OST_* of model.h. */
struct lov_ost {
  uint32_t state;
  uint32_t oss;
  uint64_t free_bytes;
};

/* Zero means the default for every number from `seed` to `space_age_ns`. */
struct lov_config {
  uint32_t ost_count; /* indices 0 .. ost_count - 1 exist, no others */
  uint64_t seed;      /* the same seed and calls give the same targets; 0 = a random one */
  uint32_t stripe_size_bytes;      /* 4 MiB */
  uint32_t stripe_count;           /* 1 */
  uint32_t append_stripe_count;    /* 1: files created by an open with O_APPEND */
  uint32_t dom_bytes;              /* 1 MiB: the most that a DoM component may have */
  uint32_t qos_threshold_percent;  /* 17: free space uneven by this much means weights; 100 = round robin always */
  uint32_t qos_prio_free_percent;  /* 90 */
  uint64_t space_age_ns;           /* 5 s: how long free space is believed; states are always asked */

  void *closure;
  /* The state and space of an OST, now. */
  void (*look)(void *closure, uint32_t ost, struct lov_ost *ret);
  /* A number for a new object on the OST, never given before (also not before a crash), not 0; or -errno. */
  int (*new_object)(void *closure, uint32_t ost, uint32_t *ret);
  /* A clock that never goes back; NULL = CLOCK_MONOTONIC. */
  uint64_t (*now_ns)(void *closure);
};

/* False, and a sentence, if some number is one that Lustre could not have. */
bool lov_config_fine(const struct lov_config *config, char *why, size_t why_size);

/* NULL when there is no memory or ost_count is 0 or above 2048.  Calls `look` for each OST. */
struct lov *lov_new(const struct lov_config *config);
void lov_free(struct lov *lov);

/* Free space changed by more than writing (a fill, a failure): ask again at the next file. */
void lov_refresh(struct lov *lov);

/* Make a pool, or change it; count 0 removes it.  -EINVAL: name of 0 or more than 15 bytes, an OST that is not there;
 * -ENOSPC: more than 64 pools. */
int lov_pool(struct lov *lov, const char *name, const uint32_t *osts, uint32_t count);

/* The sequence of the objects on an OST: an object's FID is [lov_object_seq(ost):number:0]. */
uint64_t lov_object_seq(uint32_t ost);

/* ---- names and flags ---- */

enum lov_name {
  LOV_NAME_OTHER,   /* not ours: an ordinary attribute */
  LOV_NAME_LUSTRE,  /* lustre.lov */
  LOV_NAME_TRUSTED, /* trusted.lov: the same for callers with CAP_SYS_ADMIN; for others EPERM to set, ENODATA to get */
};
/* What an attribute's name asks for; -EINVAL (editing components, lustre.lov.*), -EOPNOTSUPP (other names of lustre.*). */
int lov_xattr_name(const char *name);

/* The names that listxattr adds (each with its NUL): bytes of `ret`, at most 64. */
size_t lov_list_names(bool admin, bool has_layout, char ret[64]);

/* Was open asked to delay the layout?  FUSE passes only FASYNC of O_LOV_DELAY_CREATE. */
bool lov_delayed(int flags);

/* Does this open give a layout to a regular file that has none?  `writers`: how many descriptors open for writing the
 * same client (mount) has on it already; while there is one, Lustre's client asks nobody. */
bool lov_open_allocates(int flags, unsigned writers);

/* ---- files ---- */

enum lov_how { LOV_OPEN, LOV_XATTR, LOV_IOCTL };

struct lov_request {
  enum lov_how how;
  uint64_t fid_seq; /* of the file */
  uint32_t fid_oid;
  bool has_layout;  /* the file has one: nothing will change */
  bool append;      /* O_APPEND in the open that creates the file */
  uint64_t size_bytes; /* of the file as it is: components that it covers get objects at once */
  const void *template; /* of LOV_XATTR and LOV_IOCTL */
  size_t template_size;
  const void *parent; /* the stored default of the parent directory and of the root directory; NULL: none */
  size_t parent_size;
  const void *root;
  size_t root_size;
};

/* The stored layout of a file that had none: by default (LOV_OPEN) or by template.  0: the call succeeds and changes
 * nothing (an empty value, a file that has a layout).  A template that says nothing (size 0,
 * count 0, any offset, no pool) means the default. */
ssize_t lov_create(struct lov *lov, const struct lov_request *request, void *ret, size_t room);

/* Before bytes [start, end) are written, or a file is cut or grown to `end` (start 0): the stored layout with all
 * components that this needs.  0: it is good as it is.  -ENODATA: no component holds these bytes. */
ssize_t lov_instantiate(struct lov *lov, const void *stored, size_t size, uint64_t start_bytes, uint64_t end_bytes,
                        void *ret, size_t room);

enum lov_ask {
  LOV_GETXATTR,
  LOV_GETSTRIPE, /* the ioctls; also by name on a directory (IOC_MDC_GETFILESTRIPE) */
};

/* What a caller sees of a stored layout.  `head`, `head_size`: the beginning of the caller's buffer for LOV_GETSTRIPE
 * (32 bytes are enough; NULL = zeros): a magic there cuts the answer to the room that the caller says it has. */
ssize_t lov_file_answer(const void *stored, size_t size, enum lov_ask ask, const void *head, size_t head_size, void *ret,
                        size_t room);

/* ---- SETSTRIPE through a pointer ---- */

/* How many bytes the ioctl reads at the caller's pointer, of which the first 32 (fewer: -EFAULT) are in `head`.
 * -EINVAL: unknown magic, too many stripes; `on_dir`: -EOPNOTSUPP instead, for a composite too. */
ssize_t lov_template_size(const void *head, size_t head_size, bool on_dir);

/* What SETSTRIPE on a file leaves in the caller's buffer: the new layout, cut to the template's own length. */
ssize_t lov_write_back(const void *template, size_t template_size, const void *stored, size_t size, void *ret, size_t room);

/* Lustre's client sets the layout, then asks whether the caller may write to the inode: without that permission
 * SETSTRIPE has worked and answers EACCES.  `groups`: supplementary groups.  Root may always. */
struct lov_caller {
  uint32_t uid;
  uint32_t gid;
  const uint32_t *groups;
  uint32_t group_count;
};
bool lov_may_write(const struct lov_caller *caller, uint32_t mode, uint32_t uid, uint32_t gid);

/* ---- directories ---- */

/* A default for new files: bytes to store; 0 = the default is removed (an empty value, or a template that says nothing).
 * The caller has checked that it is the directory's owner or root (else EPERM). */
ssize_t lov_set_dir(struct lov *lov, enum lov_how how, const void *template, size_t template_size, void *ret, size_t room);

/* What getxattr and GETSTRIPE show of a directory: its own default, else the root directory's; -ENODATA: neither. */
ssize_t lov_dir_answer(const void *own, size_t own_size, const void *root, size_t root_size, void *ret, size_t room);

/* What a new directory stores: its parent's own default (not the root's, unless the parent is the root); 0: none. */
ssize_t lov_inherit(const void *parent, size_t parent_size, uint64_t fid_seq, uint32_t fid_oid, void *ret, size_t room);
