# SPDX-License-Identifier: Apache-2.0
"""python -m benchmarks [NAME...]: measure tables, print them, keep each as benchmarks/results/NAME.json."""

import argparse
import datetime
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.frame import ROUNDS, TOP, Row, short

RESULTS = TOP / "benchmarks" / "results"
NOT_TABLES = {"frame"}  # nor those whose names begin with an underscore


def names() -> list[str]:
    return sorted(
        p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in NOT_TABLES and p.stem[0] != "_"
    )


def words(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=TOP)
    return done.stdout.strip()


def machine() -> dict[str, object]:
    """What a reader must know of the machine before believing a figure."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine()
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": words("git", "describe", "--always", "--dirty"),
        "compiler": words("gcc", "-dumpfullversion"),
        "python": platform.python_version(),
    }


def lines(rows: list[Row]) -> list[str]:
    """The table, its columns in line."""
    head = ["what", "measured", "± half", "unit", "target", "holds", "against"]
    cells = [head] + [
        [
            row.what + (" [emulated]" if row.emulated else ""),
            short(row.measured),
            short(row.spread / 2),
            row.unit,
            row.target,
            {None: "", True: "yes", False: "NO"}[row.holds],
            row.against + (f"; {row.note}" if row.note else ""),
        ]
        for row in rows
    ]
    wide = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return ["  ".join(c.ljust(w) for c, w in zip(line, wide, strict=True)).rstrip() for line in cells]


def measure(name: str, rounds: int, results: Path) -> bool:
    """Run one table, print and keep it; whether all its targets hold."""
    table = importlib.import_module(f"benchmarks.{name}")
    facts = machine()
    rows: list[Row] = table.rows(rounds)
    facts["load_after"] = round(os.getloadavg()[0], 2)
    results.mkdir(parents=True, exist_ok=True)
    kept = {"schema": 1, "name": name, "title": table.TITLE, "rounds": rounds, "machine": facts}
    aside = results / f"{name}.json.new"
    aside.write_text(
        json.dumps({**kept, "rows": [asdict(row) for row in rows]}, indent=1, ensure_ascii=False) + "\n"
    )
    aside.replace(results / f"{name}.json")
    where = f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}"
    print(f"\n{table.TITLE} (medians of {rounds} rounds; {where})")
    print("\n".join(lines(rows)), flush=True)
    return all(row.holds is not False for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names())} (all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each figure (%(default)s)")
    parser.add_argument("--into", type=Path, default=RESULTS, help="where the JSON goes (benchmarks/results)")
    parser.add_argument("--strict", action="store_true", help="status 1 when a target does not hold")
    args = parser.parse_args()
    unknown = set(args.names) - set(names())
    if unknown:
        parser.error(f"no table named {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    held = [measure(name, args.rounds, args.into) for name in args.names or names()]
    return 1 if args.strict and not all(held) else 0


if __name__ == "__main__":
    sys.exit(main())
