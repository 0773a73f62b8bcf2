# SPDX-License-Identifier: Apache-2.0
"""Which file system a tree lies on, so that a catalog is not taken for the tree of another at the same path."""

import os
from pathlib import Path

import msgspec

from penstock.targets.mounts import mount_of


class Identity(msgspec.Struct, frozen=True):
    """`fsid` 0: the file system has none, then its source stands for it."""

    type: str = ""
    source: str = ""
    fsid: int = 0
    root_ino: int = 0


def identity_of(root: bytes | str | Path) -> Identity:
    mount = mount_of(os.fsdecode(root))
    facts, room = Path(os.fsdecode(root)).stat(), os.statvfs(root)
    return Identity(mount.type, mount.source, room.f_fsid, facts.st_ino)


def same_tree(made: Identity, now: Identity) -> bool:
    """May answers of the one be given for the other?"""
    if (made.type, made.root_ino) != (now.type, now.root_ino):
        return False
    return made.fsid == now.fsid if made.fsid and now.fsid else made.source == now.source
