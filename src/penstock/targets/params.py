# SPDX-License-Identifier: Apache-2.0
"""Lustre's parameters: `osc.*.kbytesavail` and the files that hold them.

On Lustre they are spread over /sys/fs/lustre, /proc/fs/lustre and (root only) /sys/kernel/debug/lustre; the
testbed keeps the same tree in its folder.  Where no file can be read, the program lctl is asked.

Invariants:
1. A dot in a parameter's name is a slash in its path, except between the digits of an address.
2. A parameter that is in several trees is read from the first that lets us.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from glob import has_magic
from pathlib import Path

LUSTRE_ROOTS = ("/sys/fs/lustre", "/proc/fs/lustre", "/sys/kernel/debug/lustre")
_NAME = re.compile(r"[\w.*?\[\]@:+{}=,/-]+", re.ASCII)
_LCTL_S = 10.0


def path_of(name: str) -> str:
    """`osc.fs-OST0000-osc-ff.stats` as a relative path; slashes are taken as they are."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"{name!r} is no parameter's name")
    return name.strip("/") if "/" in name else name.replace(".", "/")


def name_of(path: str) -> str:
    return path.replace("/", ".")


class Params:
    """The parameters under some roots."""

    def __init__(self, roots: Sequence[str | os.PathLike[str]], lctl: str | None = None) -> None:
        self.roots = [Path(root) for root in roots]
        self.lctl = lctl

    @classmethod
    def of_lustre(cls) -> "Params":
        return cls(LUSTRE_ROOTS, shutil.which("lctl"))

    def files(self, pattern: str) -> dict[str, Path]:
        """Readable files by parameter name."""
        found: dict[str, Path] = {}
        for root in self.roots:
            for path in self._matches(root, path_of(pattern)):
                name = name_of(str(path.relative_to(root)))
                if name not in found and os.access(path, os.R_OK):
                    found[name] = path
        return dict(sorted(found.items()))

    def names(self, pattern: str) -> list[str]:
        """Parameters and groups of them that match."""
        relative = path_of(pattern)
        return sorted(
            {name_of(str(p.relative_to(r))) for r in self.roots for p in self._matches(r, relative)}
        )

    def _matches(self, root: Path, relative: str) -> Iterator[Path]:
        if has_magic(relative):
            yield from root.glob(relative)
        elif (root / relative).exists():
            yield root / relative

    def read(self, pattern: str) -> dict[str, str]:
        """The texts of all parameters that match."""
        texts = {}
        for name, path in self.files(pattern).items():
            try:
                texts[name] = path.read_text(errors="replace")
            except OSError:
                continue
        return texts or self._ask_lctl(pattern)

    def _ask_lctl(self, pattern: str) -> dict[str, str]:
        if not self.lctl:
            return {}
        done = subprocess.run(
            [self.lctl, "get_param", pattern], check=False, capture_output=True, text=True, timeout=_LCTL_S
        )
        return dict(split_lctl(done.stdout.splitlines(keepends=True)))


def split_lctl(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """`name=value`, or `name=` and lines of text, as `lctl get_param` prints them."""
    name, text = "", ""
    for line in lines:
        head = re.match(r"([a-z_]+\.[\w.@:+-]+)=(.*\n?)", line, re.ASCII)
        if head:
            if name:
                yield name, text
            name, text = head[1], head[2] if head[2].strip() else ""
        else:
            text += line
    if name:
        yield name, text
