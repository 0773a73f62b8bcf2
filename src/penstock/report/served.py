# SPDX-License-Identifier: Apache-2.0
"""What a catalog answered in the file system's place: the board's counts as sentences.  Pure."""

from collections.abc import Mapping

CALLS = ("stat", "access", "readlink", "layout")


def answered(counts: Mapping[str, int]) -> int:
    """Calls that never went to the file system; a listing is not one call."""
    return sum(counts.get(name, 0) for name in (*CALLS, "missing"))


def lines(counts: Mapping[str, int]) -> list[str]:
    """One fact a line; nothing for a run that was answered nothing from a catalog."""
    if not counts:
        return []
    total, passed = answered(counts), counts.get("passed", 0)
    kinds = [f"{counts[name]:,} {name}" for name in CALLS if counts.get(name)]
    if missing := counts.get("missing", 0):
        kinds.append(f"{missing:,} of names that are not there")
    of = f": {', '.join(kinds)}" if kinds else ""
    found = [f"{total:,} call{'s' * (total != 1)} answered from the catalog{of}"]
    if listings := counts.get("listings", 0):
        found.append(f"{listings:,} folder{'s' * (listings != 1)} listed from it")
    if passed:
        found.append(f"{passed:,} more below its root went to the file system")
    if counts.get("ended"):
        found.append("answers ended with a change of which nobody could tell where it was")
    return found
