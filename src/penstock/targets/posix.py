# SPDX-License-Identifier: Apache-2.0
"""Any mount that no other driver knows: one target, the mount itself, with the kernel's counts of it."""

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.targets.driver import DOWN, FULL, READ_ONLY, UP, Load, Target, UnsupportedError, Where, answer
from penstock.targets.layouts import Component, Layout
from penstock.targets.mounts import Mount

_SECTOR_BYTES = 512


def detect(mount: Mount) -> "Posix":
    return Posix(mount)


class Posix:
    kind = "posix"

    def __init__(self, mount: Mount) -> None:
        self.mount = mount

    def targets(self) -> tuple[Target, ...]:
        room = os.statvfs(self.mount.point)
        size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
        return (Target(0, self.mount.source, os.uname().nodename, size, free),)

    def load(self) -> Mapping[int, Load]:
        """Of a block device; other mounts (tmpfs, network) are not counted by the kernel in this form."""
        try:
            field = [
                int(word) for word in Path(f"/sys/dev/block/{self.mount.device}/stat").read_text().split()
            ]
        except OSError:
            return {0: Load()}
        reads, read_sectors, read_ms, writes, write_sectors, write_ms, waiting = (
            field[i] for i in (0, 2, 3, 4, 6, 7, 8)
        )
        busy_ns = (read_ms + write_ms) * 1_000_000
        return {
            0: Load(
                reads, writes, read_sectors * _SECTOR_BYTES, write_sectors * _SECTOR_BYTES, busy_ns, waiting
            )
        }

    def sees_all(self) -> bool:
        return False

    def health(self) -> Mapping[int, str]:
        try:
            room = os.statvfs(self.mount.point)
        except OSError:
            return {0: DOWN}
        if room.f_flag & os.ST_RDONLY:
            return {0: READ_ONLY}
        return {0: FULL if room.f_blocks and not room.f_bavail else UP}

    def servers(self) -> Mapping[str, str]:
        return {}

    def layout(self, where: Where) -> Layout:
        try:
            os.close(os.dup(where) if isinstance(where, int) else os.open(where, os.O_PATH | os.O_CLOEXEC))
        except OSError as error:
            raise answer(error, where) from error
        return Layout(self.kind, (Component(stripe_size_bytes=0, stripe_count=1, targets=(0,)),))

    def create(self, path: str, layout: Layout) -> None:
        raise UnsupportedError(f"{path}: {self.mount.type} has no layouts to set; there is one target")

    def set_default(self, path: str, layout: Layout) -> None:
        self.create(path, layout)

    def job_counts(self) -> Mapping[str, Mapping[str, int]]:
        return {}
