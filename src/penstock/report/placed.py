# SPDX-License-Identifier: Apache-2.0
"""What became of files that were to be placed: the board's counts as sentences.  Pure.

native/board/place.h says what each counts.
"""

from collections.abc import Iterable, Mapping, Sequence

from penstock.base import units
from penstock.base.text import plural, visible
from penstock.policy.placing.contract import MARKS, Action, Entry, Plan
from penstock.policy.predicting import names

_STOCK = {
    "planned_stock": "as the plan says",
    "appended": "opened to append",
    "of_folder": "the folder's default has components or a list",
    "of_pool": "the folder's pool is not known to the plan",
    "of_program": "the program sets layouts itself",
    "in_libc": "created inside libc (mkstemp, freopen)",
    "no_targets": "no targets for them in the plan",
    "changing": "the plan was being changed",
    "existed": "existed already",
    "elsewhere": "a link led to another file system",
}
_NO_PLAN = {
    0: "no plan was there yet",
    1: "the plan was not ready when the program started",
    2: "the metadata servers were busy, so no plan was made",
    3: "no plan could be made",
}
_REFUSED = {
    "refused_full": "a target is full",
    "refused_inactive": "a target is inactive",
    "refused_no_create": "a target takes no new files",
    "refused_rights": "no right to set it",
    "refused_other": "other reasons",
}


def creations(counts: Mapping[str, int]) -> int:
    return counts.get("expected", 0) + counts.get("unexpected", 0)


def _reasons(counts: Mapping[str, int], names: Mapping[str, str]) -> tuple[int, str]:
    found = [(counts.get(name, 0), why) for name, why in names.items() if counts.get(name, 0)]
    found.sort(key=lambda row: -row[0])
    return sum(count for count, _ in found), "; ".join(f"{count:,} {why}" for count, why in found)


def lines(counts: Mapping[str, int]) -> list[str]:
    """One fact a line; nothing for a run without a plan."""
    if not counts:
        return []
    total, expected = creations(counts), counts.get("expected", 0)
    early, why_none = counts.get("early", 0), counts.get("why_none", 0)
    found = []
    if early:
        found.append(f"{early:,} left to the file system: {_NO_PLAN.get(why_none, _NO_PLAN[0])}")
    elif why_none:
        found.append(f"no plan: {_NO_PLAN.get(why_none, _NO_PLAN[3])}")
    if linked := counts.get("linked", 0):
        found.append(f"{linked:,} left to the file system: created by a name outside it, through a link")
    if not total:
        return found or ["no file was created where the plan holds"]
    were = "was" if total == 1 else "were"
    found.append(
        f"{expected:,} of {plural(total, 'new file')} {were} expected ({units.show_ratio(expected, total)})"
    )
    placed, spare = counts.get("placed", 0), counts.get("spare", 0)
    checked, right = counts.get("checked", 0), counts.get("as_planned", 0)
    text = f"{placed:,} placed as planned, {spare:,} on spare targets"
    found.append(f"{text}; {right:,} of {checked:,} looked at lie there" if checked else text)
    stock, why = _reasons(counts, _STOCK)
    if stock:
        found.append(f"{stock:,} left to the file system: {why}")
    refused, why = _reasons(counts, _REFUSED)
    if refused:
        found.append(f"{refused:,} refused and given the default: {why}")
    if failed := counts.get("failed", 0):
        found.append(f"{failed:,} could not be opened: not even the default was to be had")
    if rescued := counts.get("rescued", 0):
        found.append(
            f"{plural(rescued, 'write')} came before a layout stood, and {'was' if rescued == 1 else 'were'} made again"
        )
    if left := counts.get("left_out", 0):
        found.append(f"{left:,} {'entry' if left == 1 else 'entries'} of the plan did not fit on the board")
    if total >= 4 and expected * 2 < total:
        found.append(
            "more than half of the names were not expected: what was learned is renewed from this run"
        )
    return found


# -- plans --------------------------------------------------------------------------------------------------


def _bars(amounts: Mapping[int, float], width: int = 40) -> list[str]:
    """A row a target, drawn."""
    most = max(amounts.values(), default=0.0)
    if most <= 0:
        return []
    return [
        f"  {target:>5} {'█' * max(round(width * amount / most), 1):<{width}} {units.show_size(amount)}"
        for target, amount in sorted(amounts.items())
    ]


def _pattern(entry: Entry) -> str:
    return visible(names.show(entry.match.pieces).encode("utf-8", "surrogateescape"))


def _by_pattern(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    held: dict[tuple[str, Action, str], list[Entry]] = {}
    for entry in entries:
        held.setdefault((_pattern(entry), entry.action, entry.why), []).append(entry)
    return [(key[0], rows) for key, rows in held.items()]


def _where(rows: Sequence[Entry]) -> str:
    first = rows[0]
    if first.action is Action.STOCK:
        return "left to the file system"
    used = sorted({t for row in rows for turn in row.turns for t in turn})
    used += sorted({t for row in rows for part in row.parts for t in part.targets} - set(used))
    shown = ", ".join(map(str, used[:8])) + (" ..." if len(used) > 8 else "")
    stripes = f"{first.stripe_count} stripe{'s' * (first.stripe_count != 1)}"
    size = f" of {units.show_size(first.stripe_size_bytes)}" if first.stripe_size_bytes else ""
    return f"{stripes}{size} on {shown}" if used else f"{stripes}{size}, targets from the spare list"


def _gain(plan: Plan) -> str:
    if plan.gain_s * 1e9 >= 1:
        return f"the last byte is modelled to be written {units.show_duration(plan.gain_s * 1e9)} sooner"
    if any(e.action is Action.PLACE for e in plan.entries):
        return "the model sees no time gained; files are placed to keep targets evenly full"
    return "the model sees no time gained"


def plan_lines(program: str, plan: Plan, every: bool = False) -> list[str]:
    """A plan on a screen: files, where, why; what it costs and gains; the bytes by target, drawn."""
    files = sum(e.files for e in plan.entries)
    placed = sum(e.files for e in plan.entries if e.action is Action.PLACE)
    found = [
        f"plan for the next run of {program} on {plan.file_system} ({plan.allocator})",
        f"  {plural(files, 'file')} {'is' if files == 1 else 'are'} expected, {placed:,} to be placed; "
        f"below {units.show_size(plan.small_bytes)} they are left to the file system",
        f"  costs {plural(plan.extra_requests, 'request')} ({units.show_duration(plan.cost_s * 1e9)}); {_gain(plan)}",
    ]
    groups = [(_pattern(e), [e]) for e in plan.entries] if every else _by_pattern(plan.entries)
    for pattern, rows in groups:
        count, size = sum(e.files for e in rows), sum(e.files * e.bytes_each for e in rows)
        found += ["", f"{pattern}", f"  {count:,} × {units.show_size(size / max(count, 1))}: {_where(rows)}"]
        found += [f"  {rows[0].why}"] if rows[0].why else []
    if any(piece in MARKS for e in plan.entries for piece in e.match.pieces):
        found += ["", "{#} stands for any digits, {*} for any letters and digits"]
    bars = _bars(plan.promises)
    found += ["", "bytes by target", *bars] if bars else []
    return [*found, *(f"! {note}" for note in plan.notes)]


def tuned_line(count: int, size_bytes: int, why: str, applied: bool) -> str:
    """What the tuner gives new files, or would."""
    what = f"{count} x {units.show_size(size_bytes)}" if count else "the default layout"
    return f"tune {'gives' if applied else 'would choose'} {what}: {why}" + (
        "" if applied else " (penstock run --tune applies it)"
    )


def show_lines(
    rows: Iterable["tuple[str, str, bool, Mapping[str, int]]"],
    promises: Mapping[str, Mapping[int, float]],
    now_s: float,
    by_site: Mapping[int, float] | None = None,
) -> list[str]:
    """Runs with plans, and what is promised still, by file system.  `by_site`: of the site's plans how old the figures
    were that they were decided by."""
    found: list[str] = []
    for run, program, running, counts in rows:
        made_s = counts.get("plan_ns", 0) / 1e9
        age = f", plan made {units.show_duration(max(now_s - made_s, 0) * 1e9)} ago" if made_s else ""
        figures = (by_site or {}).get(counts.get("plan_ns", 0))
        if figures is not None:
            age += f" by the site, on figures {units.show_duration(figures * 1e9)} old"
        found.append(f"run {run[:8]} {program or ''}{' runs' if running else ''}{age}".replace("  ", " "))
        found += [f"  {line}" for line in lines(counts) or ["no plan was on its board"]]
    if not found:
        found.append("no run had a plan; penstock run --place -- ./app makes one")
    for name, held in promises.items():
        bars = _bars(held)
        found += ["", f"promised and not yet written on {name}, by target", *bars] if bars else []
    return found
