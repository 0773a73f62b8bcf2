# SPDX-License-Identifier: Apache-2.0
"""Jobs, nodes and limits on a screen, from the documents that --json prints.  No clock but what is handed in."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.base.text import cut, plural, visible
from penstock.base.units import show_count, show_duration, show_size

Row = Mapping[str, Any]


def rate(value: float, as_bytes: bool) -> str:
    """`12.3k/s` calls, or `1.2 GiB/s`."""
    return f"{show_size(value)}/s" if as_bytes else f"{show_count(value)}/s"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    """Text in columns; those in `left` begin at the left."""
    wide = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]


def state(held: Row) -> str:
    """What a limit does to a job now, in one word."""
    if held["released"]:
        return "released"
    if held["shadow"]:
        return "shadow"
    return "held back" if held["since_s"] or held["waiting"] else "free"


def jobs(document: Row, limit: int = 0) -> list[str]:
    """Every job with what it asks for and has; those that wait most first."""
    rows = []
    ordered = sorted(document["jobs"], key=lambda j: (-_waiting(j), -_asked(j), j["id"]))
    for job in ordered[: limit or None]:
        name = visible(job["id"]) + ("" if job["verified"] else " ?")
        first = (name, cut(visible(job["name"]), 20), visible(job["user"]), str(job["nodes"]))
        held = job["held"] or [None]
        for number, one in enumerate(held):
            cells = first if number == 0 else ("", "", "", "")
            if one is None:
                rows.append((*cells, "–", "", "", "", "no limit"))
                continue
            what = state(one) if not job["bypassing"] else "bypassing"
            rows.append(
                (
                    *cells,
                    visible(one["limit"]),
                    rate(one["asked"], one["bytes"]),
                    rate(one["grant"], one["bytes"]),
                    show_count(one["waiting"]),
                    what,
                )
            )
    head = ("JOB", "NAME", "USER", "NODES", "LIMIT", "ASKED", "GRANT", "WAITING", "STATE")
    lines = columns(head, rows, (0, 1, 2, 4, 8))
    if any(not job["verified"] for job in ordered):
        lines.append("? the id is the job's own word; no scheduler's cgroup confirms it")
    lines += [
        f"{visible(j['id'])} is bypassing: {visible(j['bypassing'])}" for j in ordered if j["bypassing"]
    ]
    if not ordered:
        lines = ["no job is known on any node"]
    elif limit and len(ordered) > limit:
        lines.append(f"... and {len(ordered) - limit} more")
    return lines


def _waiting(job: Row) -> float:
    return float(sum(held["waiting"] for held in job["held"]))


def _asked(job: Row) -> float:
    return float(sum(held["asked"] for held in job["held"] if not held["bytes"]))


def nodes(document: Row) -> list[str]:
    rows = []
    for node in document["nodes"]:
        latency = show_duration(node["latency_s"] * 1e9) if node["latency_s"] else "–"
        word = "here" if node["here"] else f"gone {show_duration(node['age_s'] * 1e9)}"
        if node["released"]:
            word += ", released"
        rows.append(
            (
                visible(node["node"]),
                str(node["jobs"]),
                rate(node["asked"], False),
                rate(node["grant"], False),
                show_count(node["waiting"]),
                latency,
                word,
                visible(node["software"]),
            )
        )
    head = ("NODE", "JOBS", "ASKED", "GRANT", "WAITING", "LATENCY", "STATE", "VERSION")
    return columns(head, rows, (0, 6, 7)) if rows else ["no node has joined"]


def explained(document: Row, time_s: float) -> list[str]:
    """Which rule, which rate, why, since when: of each job that was asked for."""
    lines = []
    for job in document["jobs"]:
        on = plural(job["nodes"], "node")
        lines.append(f"job {visible(job['id'])} of {visible(job['user'])}, on {on}:")
        for held in job["held"]:
            lines += _explained(held, time_s)
        if not job["held"]:
            lines.append("  no limit of the policy means it")
        if job["bypassing"]:
            lines.append(f"  part of it escapes: {visible(job['bypassing'])}")
    return lines


def _explained(held: Row, time_s: float) -> list[str]:
    has = rate(held["grant"], held["bytes"])
    lines = [
        f"  {visible(held['limit'])} ({rate(held['total'], held['bytes'])} in all): has {has}, "
        f"asks for {rate(held['asked'], held['bytes'])}"
    ]
    lines.append(f"    why: {visible(held['why'])}")
    if held["released"]:
        lines.append("    released: nothing is held back now")
    elif held["shadow"]:
        lines.append("    in shadow: it counts, and holds back nobody")
    elif held["since_s"]:
        lines.append(f"    held back for {show_duration((time_s - held['since_s']) * 1e9)}")
    else:
        lines.append("    not held back")
    if held["waited_s"]:
        lines.append(f"    its calls have waited {show_duration(held['waited_s'] * 1e9)} in all")
    return lines


def status(document: Row, time_s: float) -> list[str]:
    """For a job's owner: am I limited, by which rule, since when, what did it cost me."""
    lines: list[str] = []
    for job in document["jobs"]:
        name = f"job {visible(job['job'])}"
        if job["name"]:
            name += f" ({cut(visible(job['name']), 30)})"
        live = f"{plural(job['processes'], 'process')} on {visible(document['node'])}"
        lines.append(f"{name}: {live}")
        lines += [line for row in job["rows"] for line in _status(row, time_s)]
        if not job["rows"]:
            lines.append("  no limit means it")
        if job["bypassing"]:
            lines.append(f"  part of it escapes: {visible(job['bypassing'])}")
    if not document["jobs"]:
        lines.append(f"none of your jobs has a board on {visible(document['node'])}")
    controller = document["controller"]
    if controller is not None and not controller["connected"]:
        ago = controller["granted_ago_s"]
        last = f"; the last grant came {show_duration(ago * 1e9)} ago" if ago is not None else ""
        lines.append(f"the controller {controller['address']} is not reached{last}")
        if controller["trouble"]:
            lines.append(f"  {visible(controller['trouble'])}")
    if document["released_here"]:
        lines.append("every limit on this node is released (penstock release --all --undo ends it)")
    return lines


def _status(row: Row, time_s: float) -> list[str]:
    whose = f"your own limit {visible(row['limit'])}" if row["by_hand"] else f"limit {visible(row['limit'])}"
    has, asks = rate(row["rate"], row["bytes"]), rate(row["asked"], row["bytes"])
    over = ""  # what holds when its lease is over
    if row["lease_left_s"] < 0 and not row["by_hand"]:
        lost = rate(row["lost_rate"], row["bytes"])
        has, over = {
            "hold": (has, "its last rate"),
            "open": ("no limit", "no limit"),
            "rate": (lost, f"on_lost = {lost}"),
        }[row["on_lost"]]
    now = state(row)
    if now == "held back":
        said = "held back"
        if row["since_s"]:
            said += f" for {show_duration((time_s - row['since_s']) * 1e9)}"
    elif now == "free":
        said = "not held back"
    else:
        said = {"released": "released, nothing is held back", "shadow": "in shadow, counts only"}[now]
    lines = [f"  {whose}: {said}; has {has} on this node" + (f", asks for {asks}" if row["asked"] else "")]
    if row["delayed"]:
        lines.append(
            f"    it cost: {show_count(row['delayed'])} calls waited, "
            f"{show_duration(row['waited_s'] * 1e9)} in all"
        )
    if row["why"]:
        lines.append(f"    why: {visible(row['why'])}")
    if over:
        lines.append(f"    its lease is over: {over} holds until the controller is back")
    return lines


def top(document: Row, height: int, width: int) -> list[str]:
    """A screen full: the sums, then who loads the file system and who waits."""
    found = document["status"]
    asked, waiting = sum(map(_asked, document["jobs"])), sum(map(_waiting, document["jobs"]))
    head = [
        f"{plural(found['nodes'], 'node')}, {plural(found['jobs'], 'job')}, policy {found['policy']}; a decision takes "
        f"{show_duration(found['cycle_s'] * 1e9)}"
        + (f"; released: {', '.join(found['released'])}" if found["released"] else ""),
        f"asked {rate(asked, False)}, {show_count(waiting)} callers wait",
        "",
    ]
    return [line[:width] for line in [*head, *jobs(document, max(1, height - len(head) - 3))]][:height]
