# SPDX-License-Identifier: Apache-2.0
"""Layouts and space in the words of Lustre's lfs.  Pure: values in, lines out."""

import math
from typing import NamedTuple

from penstock.targets import lov

PATTERNS = {0: "0", lov.RAID0: "raid0", lov.MDT: "mdt", lov.OVERSTRIPED: "raid0,overstriped"}
FLAGS = {
    0x1: "stale",
    0x2: "prefrd",
    0x4: "prefwr",
    0x8: "offline",
    0x10: "init",
    0x20: "nosync",
    0x40: "extension",
}


def pattern(value: int) -> str:
    return PATTERNS.get(value, f"{value:x}")


def flags(value: int) -> str:
    return ",".join(word for bit, word in FLAGS.items() if value & bit) or "0"


def signed(value: int) -> int:
    """0xffff is -1 for people."""
    return -1 if value == 0xFFFF else value


def fid(seq: int, oid: int, version: int = 0) -> str:
    return f"[{seq:#x}:{oid:#x}:{version:#x}]"


def first_ost(part: lov.Part) -> int:
    """Of a file the OST of the first object, whatever its header says."""
    return part.osts[0] if part.osts else signed(part.stripe_offset)


def head_lines(part: lov.Part, verbose: bool, indent: str = "") -> list[str]:
    """The lmm_ lines.  The generation of a layout is not in what getxattr gives."""
    rows = []
    if verbose:
        rows += [
            f"lmm_magic:         0x{part.magic:08X}",
            f"lmm_seq:           {part.oi_seq:#x}",
            f"lmm_object_id:     {part.oi_id:#x}",
            f"lmm_fid:           {fid(part.oi_seq, part.oi_id)}",
        ]
    rows += [
        f"lmm_stripe_count:  {signed(part.stripe_count)}",
        f"lmm_stripe_size:   {part.stripe_size_bytes}",
        f"lmm_pattern:       {pattern(part.pattern)}",
        "lmm_layout_gen:    0",
        f"lmm_stripe_offset: {first_ost(part)}",
    ]
    if part.pattern & lov.MDT:
        rows[-1] = "lmm_stripe_offset: 0"
        rows.append("lmm_mdt_index:     0")
    if part.pool:
        rows.append(f"lmm_pool:          {part.pool.decode(errors='replace')}")
    return [indent + row for row in rows]


def object_table(part: lov.Part, wished: bool = False) -> list[str]:
    rows = ["\tobdidx\t\t objid\t\t objid\t\t group"]
    for o in part.objects():
        if wished:
            rows.append(f"\t{o.ost:6}\t{'N/A':>14}\t{'N/A':>13}\t{'N/A':>14}")
        else:
            rows.append(f"\t{o.ost:6}\t{o.oid:14}\t{o.oid:#13x}\t{o.seq:#14x}")
    return rows


def object_yaml(part: lov.Part) -> list[str]:
    rows = ["lmm_objects:"]
    for o in part.objects():
        rows += [f"      - l_ost_idx: {o.ost}", f"        l_fid:     {fid(o.seq, o.oid, o.version)[1:-1]}"]
    return rows


def file_lines(path: str, layout: lov.Lov, verbose: bool = False, yaml: bool = False) -> list[str]:
    """`lfs getstripe FILE`."""
    if layout.composite:
        return composite_lines(path, layout, verbose, yaml)
    (part,) = layout.parts
    if yaml:
        return [*head_lines(part, True), *object_yaml(part), ""]
    return [path, *head_lines(part, verbose), *object_table(part), ""]


def composite_lines(path: str, layout: lov.Lov, verbose: bool, yaml: bool) -> list[str]:
    head = [
        f"lcm_layout_gen:    {layout.gen}",
        f"lcm_mirror_count:  {layout.mirrors + 1}",
        f"lcm_entry_count:   {len(layout.parts)}",
    ]
    rows = [*head, "components:"] if yaml else [path, *(f"  {line}" for line in head)]
    for part in layout.parts:
        entry = [
            f"lcme_id:             {part.id}",
            f"lcme_mirror_id:      {part.id >> 16}",
            f"lcme_flags:          {flags(part.flags)}",
            f"lcme_extent.e_start: {part.start_bytes}",
            f"lcme_extent.e_end:   {'EOF' if part.end_bytes == lov.EOF else part.end_bytes}",
        ]
        if yaml:
            rows += [f"  - {entry[0]}", *(f"    {line}" for line in entry[1:]), "    sub_layout:"]
        else:
            rows += [f"    {line}" for line in entry]
        rows += head_lines(part, verbose, "      ")
        if part.table:
            rows.append("      lmm_objects:")
            for i, o in enumerate(part.objects()):
                rows.append(
                    f"      - {i:3}: {{ l_ost_idx: {o.ost:3}, l_fid: {fid(o.seq, o.oid, o.version)} }}"
                )
        rows.append("")
    return rows


def folder_lines(path: str, layout: lov.Lov | None, default_bytes: int = 4 << 20) -> list[str]:
    """The default of a folder; None: it has none."""
    if layout is not None and layout.composite:
        return composite_lines(path, layout, False, False)
    part = layout.parts[0] if layout else lov.Part(pattern=0)
    words = [
        f"stripe_count:  {signed(part.stripe_count or 1)}",
        f"stripe_size:   {part.stripe_size_bytes or default_bytes}",
        f"pattern:       {pattern(part.pattern)}",
        f"stripe_offset: {signed(part.stripe_offset)}",
    ]
    if part.pool:
        words.append(f"pool:          {part.pool.decode(errors='replace')}")
    rows = [path, " ".join(words)]
    if part.magic == lov.SPECIFIC:
        rows += object_table(part, wished=True)
    return [*rows, ""]


class Space(NamedTuple):
    """One line of `lfs df`: KiB or inodes."""

    uuid: str
    where: str
    total: int
    used: int
    free: int
    mark: str = ""


def space_lines(rows: list[Space], mount: str, inodes: bool = False) -> list[str]:
    """`lfs df`, with -i the inodes."""
    kinds = ("Inodes", "IUsed", "IFree", "IUse%") if inodes else ("1K-blocks", "Used", "Available", "Use%")
    lines = ["{:<20} {:>11} {:>11} {:>11} {:>4}  Mounted on".format("UUID", *kinds)]
    lines += [_space_line(row) for row in rows]
    osts = [row for row in rows if "[OST:" in row.where]
    total, used, free = (sum(getattr(row, name) for row in osts) for name in ("total", "used", "free"))
    whole = Space("filesystem_summary:", mount, total, used, free)
    return [*lines, "", _space_line(whole), ""]


def _space_line(row: Space) -> str:
    share = math.ceil(100 * row.used / (row.used + row.free)) if row.used + row.free else 0
    mark = f" {row.mark}" if row.mark else ""
    return f"{row.uuid:<20} {row.total:>11} {row.used:>11} {row.free:>11} {share:>3}%  {row.where}{mark}"
