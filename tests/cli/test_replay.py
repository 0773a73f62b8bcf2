# SPDX-License-Identifier: Apache-2.0
"""penstock replay as a user types it: counts, backlog, errors, interrupts, and nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock

TOP = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ALL = ("open", "close", "getattr", "setattr", "rename", "mkdir", "mknod", "rmdir", "statfs", "sync", "unlink")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def trace(tmp_path: Path, text: str) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return str(path)


def counts(tmp_path: Path, names: tuple[str, ...], *rows: int, interval_s: float = 60) -> str:
    lines = [f"# interval_s = {interval_s}", "time_s," + ",".join(names)]
    lines += [f"{i * interval_s}," + ",".join([str(n)] * len(names)) for i, n in enumerate(rows)]
    return trace(tmp_path, "\n".join(lines) + "\n")


def test_every_operation_is_done_as_often_as_asked(
    run_penstock: Penstock, tmp_path: Path, place: Path
) -> None:
    names = (*ALL, "read", "write")
    path = counts(tmp_path, names, 60_000, 30_000)
    shown = run_penstock("replay", path, "--speed", "120", "--on", str(place), "--every", "100ms", "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)

    for name in names:
        row = found["operations"][name]
        assert (row["demanded"], row["served"], row["failed"]) == (750, 750, 0)
        assert sum(interval["demanded"].get(name, 0) for interval in found["intervals"]) == 750
        assert sum(interval["served"].get(name, 0) for interval in found["intervals"]) == 750
        assert row["waited_ns"]["max"] >= row["waited_ns"]["mean"] > 0
    first = sum(interval["demanded"]["open"] for interval in found["intervals"] if interval["start_s"] < 0.45)
    assert 400 <= first <= 500  # twice as many in the first half
    assert list(place.iterdir()) == []


def test_99_of_100_are_within_what_is_said_of_them(
    run_penstock: Penstock, tmp_path: Path, place: Path
) -> None:
    """Of fewer than a hundred that is the longest time."""
    path = counts(tmp_path, ALL, 3600, 1200)
    shown = run_penstock("replay", path, "--speed", "120", "--on", str(place), "--json")
    assert shown.returncode == 0, shown.stderr

    for row in json.loads(shown.stdout)["operations"].values():
        assert row["demanded"] == 40
        for times in (row["waited_ns"], row["took_ns"]):
            assert times["p99"] == times["max"] >= times["p50"]


def test_under_the_interposer_its_calls_are_seen(run_penstock: Penstock, tmp_path: Path, place: Path) -> None:
    path = counts(tmp_path, ("getattr", "rename"), 6000)
    shown = run_penstock(
        "run", "--", str(BIN / "penstock"), "replay", path, "--speed", "60", "--on", str(place), "-q"
    )
    assert shown.returncode == 0, shown.stderr
    report = json.loads(run_penstock("report", "--json").stdout)
    seen = {row["name"]: row["calls"] for row in report["operations"]}

    assert seen["rename"] == 100
    assert seen["stat"] >= 100


def test_what_was_held_back_is_done_later(tmp_path: Path, place: Path) -> None:
    """Twice as many as a stopped process can do: nothing is left out, and waiting counts from the intended start."""
    lines = "getattr 0 1000000000 1000\n"
    process = subprocess.Popen(
        [BIN / "penstock-replay", "--interval-ns=100000000", place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines)
    process.stdin.close()
    process.stdout.readline()
    process.stdout.readline()  # one interval is over
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # no wait for anything: so long it stands still
    process.send_signal(signal.SIGCONT)
    rows = [json.loads(line) for line in process.stdout]
    assert process.wait(30) == 0
    found = rows[-1]["operations"]["getattr"]

    assert (found["demanded"], found["served"]) == (1000, 1000)
    assert found["waited_ns"]["max"] > 1e9  # the first that was held back
    assert found["waited_ns"]["mean"] > 3e8  # and all behind it
    assert rows[-1]["elapsed_s"] > 1.5


def test_damaged_lines_are_named_and_the_rest_is_done(
    run_penstock: Penstock, tmp_path: Path, place: Path
) -> None:
    path = trace(tmp_path, "time_s,operation\n0,open\n0,fly\n0.1,close\n")
    shown = run_penstock("replay", path, "--on", str(place), "--json")

    assert shown.returncode == 3
    assert f"penstock: {path}:3 names no operation: 'fly'; passed over\n" in shown.stderr
    assert f"penstock replay: 1 damaged lines of {path} were passed over\n" in shown.stderr
    assert {n: r["served"] for n, r in json.loads(shown.stdout)["operations"].items()} == {
        "open": 1,
        "close": 1,
    }


def test_errors_fail_the_run(run_penstock: Penstock, tmp_path: Path, place: Path) -> None:
    """More data than may be written: each failed call is counted, the rest goes on."""
    path = counts(tmp_path, ("write", "getattr"), 200, interval_s=0.2)
    words = f"ulimit -f 64; trap '' XFSZ; exec {BIN}/penstock replay {path} --on {place} --json"
    shown = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)
    found = json.loads(shown.stdout)["operations"]

    assert shown.returncode == 1
    assert "operations failed, first write: File too large" in shown.stderr
    assert found["write"]["failed"] > 0
    assert found["write"]["served"] == 200
    assert found["getattr"]["failed"] == 0
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_leaves_nothing(tmp_path: Path, place: Path, number: signal.Signals) -> None:
    path = counts(tmp_path, ("open", "mknod"), *[60] * 60)
    command = [BIN / "penstock", "replay", path, "--on", place, "--json", "--every", "100ms"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: is_at_work(process.pid))
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    assert json.loads(said)["signal"] == number
    assert list(place.iterdir()) == []


def test_a_killed_command_leaves_nothing(tmp_path: Path, place: Path) -> None:
    """kill -9 of what started it: the program notices that nobody listens."""
    path = counts(tmp_path, ("open",), *[60] * 60)
    process = subprocess.Popen([BIN / "penstock", "replay", path, "--on", place, "-q", "--every", "50ms"])
    wait_for(lambda: any(place.iterdir()))
    process.kill()
    process.wait(10)
    wait_for(lambda: not any(place.iterdir()))


def test_a_killed_program_is_an_error_and_leaves_nothing(tmp_path: Path, place: Path) -> None:
    path = counts(tmp_path, ("open",), *[60] * 60)
    command = [BIN / "penstock", "replay", path, "--on", place, "-q", "--every", "50ms"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: any(place.iterdir()))
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(child, signal.SIGKILL)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "ended with status -9" in said
    assert list(place.iterdir()) == []


def is_at_work(command: int) -> bool:
    """Whether the program that the command started has its threads: it listens then, and has told when it began."""
    children = Path(f"/proc/{command}/task/{command}/children").read_text().split()
    return any(len(list(Path(f"/proc/{child}/task").iterdir())) > 1 for child in children)


def wait_for(true: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--scale", "0"], "--scale is to be a number above 0"),
        (["--speed", "nan"], "--speed is to be a number above 0"),
        (["--threads", "fly=2"], "--threads fly=2: write it like getattr=2, up to 64"),
        (["--only", "fly"], "--only: there are open, close"),
        (["--on", "/nowhere"], "/nowhere is no folder"),
        (["--files", "0"], "--files is to be from 1 to 1000000"),
    ],
)
def test_wrong_words(run_penstock: Penstock, tmp_path: Path, words: list[str], why: str) -> None:
    shown = run_penstock("replay", counts(tmp_path, ("open",), 1, interval_s=0.1), *words)

    assert shown.returncode == 2
    assert shown.stderr.startswith(f"penstock replay: {why}")


def test_make_stats_and_figures(run_penstock: Penstock, tmp_path: Path) -> None:
    day, figures = tmp_path / "day.csv", tmp_path / "figures"
    assert run_penstock("replay", "make", "--seed", "3", "-o", str(day)).returncode == 0
    shown = run_penstock("replay", "stats", str(day), "-o", str(figures), "--json")
    found = json.loads(shown.stdout)

    assert found["synthetic"].startswith("synthetic: made by penstock replay make --seed 3")
    assert found["mean_ops_per_s"] == pytest.approx(200_000, rel=0.01)
    for name in ("trace-load", "trace-operations"):
        assert (figures / f"{name}.png").stat().st_size > 10_000
        assert "synthetic: made by" in (figures / f"{name}.svg").read_text()


def test_dry_run_only_counts(run_penstock: Penstock, tmp_path: Path) -> None:
    path = counts(tmp_path, ("open", "close"), 6000)
    shown = run_penstock("replay", path, "--scale", "0.5", "--speed", "60", "-n")

    assert shown.stdout.split() == ["open", "50", "close", "50", "all", "100", "in", "1", "s"]


@pytest.mark.parametrize("kind", ["thread", "address,undefined"])
def test_the_program_under_sanitizers(tmp_path: Path, place: Path, kind: str) -> None:
    """Several threads an operation, all operations at once."""
    sources = [TOP / "native/replay" / name for name in ("main.c", "schedule.c", "work.c")]
    program = tmp_path / "replay"
    flags = ["-D_GNU_SOURCE", "-std=gnu11", "-g", "-O1", f"-fsanitize={kind}", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, *sources, "-o", program, "-lm", "-pthread"], check=True, timeout=120)
    names = (*ALL, "read", "write")
    lines = "".join(f"{name} 0 500000000 500\n" for name in names)
    words = [program, *(f"--threads={name}=3" for name in names), "--interval-ns=50000000", place]
    fixed = ["setarch", "-R"] if kind == "thread" and shutil.which("setarch") else []
    shown = subprocess.run(
        [*fixed, *words], input=lines, capture_output=True, text=True, timeout=120, check=False
    )

    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout.splitlines()[-1])["operations"]
    assert {name: found[name]["served"] for name in names} == dict.fromkeys(names, 500)
    assert list(place.iterdir()) == []
