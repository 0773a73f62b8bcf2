# SPDX-License-Identifier: Apache-2.0
"""What needs most room: files, folders, owners, endings, ages, targets.  A file with several links counts once."""

import heapq
import stat
from typing import Any, NamedTuple

from penstock.catalog.archive import CHUNK, rows_of
from penstock.catalog.reader import Catalog

DAY_S = 86400
AGES = (
    (1, "a day"),
    (7, "a week"),
    (30, "a month"),
    (90, "three months"),
    (365, "a year"),
    (3 * 365, "three years"),
)


class Row(NamedTuple):
    disk_bytes: int
    size_bytes: int
    files: int
    what: str | bytes


def age_of(mtime_s: int, now_s: int) -> str:
    """Not written for so long."""
    days = (now_s - mtime_s) / DAY_S
    name = "less than a day"
    for limit, words in AGES:
        if days >= limit:
            name = f"more than {words}"
    return name


def ending_of(path: bytes) -> bytes:
    """`.h5`; none for names without a dot or that begin with their only one."""
    name = path.rpartition(b"/")[2]
    dot = name.rfind(b".")
    return name[dot:].lower() if dot > 0 and len(name) - dot <= 16 else b"(none)"


def top(
    catalog: Catalog, path: str, by: str, lines: int, now_ns: int
) -> tuple[list[Row], list[tuple[bytes, int]]]:
    """The rows with most on disk, and the folders that could not be read."""
    if by == "folder":
        rows, damaged = catalog.view.du(path, 2**32 - 1, False, False)
        whole = [
            Row(blocks * 512, size, entries, name or catalog.manifest.root)
            for _, name, blocks, size, entries in rows
        ]
        return heapq.nlargest(lines, whole, key=lambda row: row.disk_bytes), damaged
    sums: dict[Any, list[int]] = {}
    largest: list[Row] = []
    seen: set[int] = set()

    def add(key: Any, blocks: int, size: int) -> None:
        held = sums.setdefault(key, [0, 0, 0])
        held[0] += blocks * 512
        held[1] += size
        held[2] += 1

    def take(rows: int, columns: dict[str, bytes]) -> None:
        nonlocal largest
        found: list[Row] = []
        layout_at = memoryview(columns["layout_at"]).cast("i")
        for i, (name, _, n) in enumerate(rows_of(rows, columns)):
            if stat.S_ISDIR(n["mode"]) and by != "type":
                continue
            if n["nlink"] > 1 and not stat.S_ISDIR(n["mode"]):
                if n["ino"] in seen:
                    continue
                seen.add(n["ino"])
            if by == "file":
                found.append(Row(n["blocks"] * 512, n["size"], 1, name))
                continue
            layout = columns["layout"][layout_at[i] : layout_at[i + 1]] if by == "target" else b""
            for key in _keys(catalog, by, name, n, layout, now_ns // 10**9):
                add(key, n["blocks"], n["size"])
        largest = heapq.nlargest(lines, largest + found, key=lambda row: row.disk_bytes)

    damaged = catalog.view.columns(path, CHUNK, take)
    if by == "file":
        return largest, damaged
    held = [
        Row(disk, size, count, str(key) if isinstance(key, int) else key)
        for key, (disk, size, count) in sums.items()
    ]
    return heapq.nlargest(lines, held, key=lambda row: row.disk_bytes), damaged


def _keys(catalog: Catalog, by: str, path: bytes, n: dict[str, int], layout: bytes, now_s: int) -> list[Any]:
    from penstock.catalog.find import letter_of
    from penstock.catalog.reader import decode_layout

    if by == "user":
        return [n["uid"]]
    if by == "group":
        return [n["gid"]]
    if by == "type":
        return [letter_of(n["mode"])]
    if by == "ending":
        return [ending_of(path)]
    if by == "age":
        return [age_of(n["mtime"], now_s)]
    return (
        [f"target {t}" for t in decode_layout(catalog.manifest.identity.type, layout).targets]
        if layout
        else ["not known"]
    )
