# SPDX-License-Identifier: Apache-2.0
"""Build the fuzzers of tests/fuzz with clang and run them all at once.

    tools/fuzz.py --seconds 60            what `make test` does, in the background
    tools/fuzz.py --runs 1000000          what `make fuzz` does
    tools/fuzz.py --runs 1000000 layout   one of them

A fuzzer is one C file of tests/fuzz with LLVMFuzzerTestOneInput; tools/c_programs.py says what it may
tell about itself.  Inputs worth keeping are committed in tests/fuzz/corpus/NAME; what a run finds beside
them is kept in build/fuzz/corpus/NAME and used again.  An input that broke a fuzzer lies in
build/fuzz/broken/NAME; when the fault is mended it goes into the committed corpus.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import c_programs

TOP = Path(__file__).resolve().parents[1]
HERE = TOP / "tests" / "fuzz"
BUILD = TOP / "build" / "fuzz"
CHECKS = "address,undefined"


def names() -> list[str]:
    return [program.name for program in c_programs.programs(HERE)]


def built() -> Path:
    """The folder of the programs, all up to date."""
    venv = Path(sys.executable).parent
    env = {**os.environ, "CC": "clang-14", "PATH": f"{venv}:{os.environ['PATH']}"}
    flags = "-fsanitize=fuzzer-no-link -fno-sanitize-recover=all -fno-omit-frame-pointer"
    options = ["-Dtest_programs=true", f"-Db_sanitize={CHECKS}", "-Db_lundef=false", f"-Dc_args={flags}"]
    listing = c_programs.listing(HERE, HERE / "broken")
    stamp = BUILD / "programs.txt"
    steps = [["ninja", "-j2", "-C", BUILD, "fuzzers"]]
    if not (stamp.exists() and stamp.read_text() == listing):
        again = ["--reconfigure"] if (BUILD / "build.ninja").exists() else []
        steps.insert(0, ["meson", "setup", *again, *options, BUILD, TOP])
    for step in steps:
        done = subprocess.run(step, check=False, capture_output=True, text=True, env=env)
        if done.returncode:
            raise SystemExit(f"fuzz: {step[0]} failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    stamp.write_text(listing)
    return BUILD / "tests" / "fuzz"


def start(program: Path, name: str, limit: list[str]) -> subprocess.Popen[bytes]:
    """One fuzzer, at low priority, its words in build/fuzz/NAME.log."""
    grown, broken, seeds = BUILD / "corpus" / name, BUILD / "broken" / name, HERE / "corpus" / name
    for folder in (grown, broken):
        folder.mkdir(parents=True, exist_ok=True)
    words = [program, *limit, "-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"]
    words += [f"-artifact_prefix={broken}/", grown, *([seeds] if seeds.is_dir() else [])]
    with (BUILD / f"{name}.log").open("wb") as log:
        return subprocess.Popen(["nice", "-n", "10", *map(str, words)], stdout=log, stderr=log)


def result(name: str, status: int) -> dict[str, object]:
    log = (BUILD / f"{name}.log").read_text(errors="replace")
    runs = re.search(r"number_of_executed_units: (\d+)", log)
    coverage = re.findall(r"cov: (\d+)", log)
    return {
        "name": name,
        "status": status,
        "runs": int(runs[1]) if runs else 0,
        "coverage": int(coverage[-1]) if coverage else 0,
        "log": log[-4000:] if status else "",
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names())} (all)")
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--seconds", type=int)
    limit.add_argument("--runs", type=int)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    args = parser.parse_args()
    unknown = set(args.names) - set(names())
    if unknown:
        parser.error(f"no fuzzer named {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    words = [f"-max_total_time={args.seconds}"] if args.seconds else [f"-runs={args.runs}"]
    folder = built()
    running = {name: start(folder / f"fuzz_{name}", name, words) for name in args.names or names()}
    try:
        found = [result(name, process.wait()) for name, process in running.items()]
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
    for row in found:
        said = "ok" if row["status"] == 0 else f"BROKEN, status {row['status']}\n{row['log']}"
        print(f"fuzz: {row['name']}: {row['runs']} runs, {row['coverage']} edges, {said}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found))
    return 1 if any(row["status"] for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
