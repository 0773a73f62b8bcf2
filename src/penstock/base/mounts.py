# SPDX-License-Identifier: Apache-2.0
"""Which file system a path lies on, from the kernel's table of mounts.

Invariant: a path that cannot be placed is of type "" and not local.
"""

import os
from pathlib import Path

# File systems of this node alone.  What is not named here may be shared with other nodes.
LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "overlay")
)


def _unescape(field: str) -> str:
    """A field of the table: blanks and backslashes stand as octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field


def type_in(table: str, path: str) -> str:
    """The type of the file system that holds an absolute path, by a table like /proc/self/mountinfo."""
    best, kind = -1, ""
    for line in table.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _unescape(fields[4]).rstrip("/")
        inside = path == point or path.startswith(point + "/")
        if inside and len(point) >= best:  # of two mounts on one place the later one covers the earlier
            best, kind = len(point), right.split(" ")[0]
    return kind


def type_of(path: Path) -> str:
    """The type of the file system that holds a path, or the nearest folder above it that exists."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return type_in(table, os.path.realpath(path))


def is_local(path: Path) -> bool:
    """Does this path lie on a file system of this node alone?"""
    return type_of(path) in LOCAL
