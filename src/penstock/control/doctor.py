# SPDX-License-Identifier: Apache-2.0
"""What `penstock doctor` looks at: the installation, a program's files, a trial run."""

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock import __version__
from penstock.base import elf, units
from penstock.base.settings import Settings, stray_variables
from penstock.control import launch
from penstock.control.seen import (
    FAIL,
    OK,
    OURS,
    WARN,
    Facts,
    Finding,
    Watch,
    facts_of,
    is_script,
    judge,
    judge_command,
    programs_of,
)

MACHINES = {"x86_64": "x86-64", "aarch64": "aarch64"}
LOOK_EVERY_S = 0.005
BOARD_NEEDS_BYTES = 16 << 20


def installation(settings: Settings) -> list[Finding]:
    """Does this installation work on this machine?"""
    return [
        _library(),
        _launcher(),
        _board_place(settings),
        _history_place(settings),
        _own_environment(settings),
    ]


def _prefix() -> Path:
    return Path(sys.prefix)


def _library() -> Finding:
    path = _prefix() / "lib" / "penstock" / "libpenstock.so"
    try:
        found = elf.read(path)
    except (OSError, elf.ElfError) as error:
        return Finding(FAIL, "library", f"{path} cannot be used ({error})", "install Penstock again")
    here = MACHINES.get(platform.machine(), platform.machine())
    if found.machine != here:
        return Finding(FAIL, "library", f"{path} is for {found.machine}, this machine is {here}")
    if any(char in str(path) for char in " :"):
        text = f"{path} has a blank or a colon in its path, which LD_PRELOAD cannot carry"
        return Finding(FAIL, "library", text, "install Penstock elsewhere")
    return Finding(OK, "library", f"{path}, Penstock {__version__}")


def _launcher() -> Finding:
    path = _prefix() / "bin" / "penstock-run"
    if not os.access(path, os.X_OK):
        return Finding(FAIL, "launcher", f"{path} is missing or not executable", "install Penstock again")
    done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True, timeout=10)
    said = done.stdout.split()
    if not said or said[-1] != __version__:
        text = f"{path} is of another version ({' '.join(said) or 'it says nothing'})"
        return Finding(FAIL, "launcher", text, "install Penstock again")
    return Finding(OK, "launcher", str(path))


def _board_place(settings: Settings) -> Finding:
    chosen = settings["board.dir"]
    place = Path(chosen or "/dev/shm")
    if chosen and place.exists() and not _ours_alone(place):
        text = f"{place} is not a folder that you alone can write: programs would run without a record"
        return Finding(FAIL, "board", text, f"chmod 700 {place}, or set board.dir to another folder of yours")
    if chosen and not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        text = f"{place} cannot be written: programs would run without a record"
        return Finding(FAIL, "board", text, "set board.dir to a folder of yours in memory")
    free = shutil.disk_usage(place).free
    if free < BOARD_NEEDS_BYTES:
        text = f"{place} has only {units.show_size(free)} left"
        return Finding(WARN, "board", text, f"make room for at least {units.show_size(BOARD_NEEDS_BYTES)}")
    return Finding(OK, "board", f"{place} has {units.show_size(free)} left")


def _ours_alone(place: Path) -> bool:
    """What penstock-run asks of a folder for boards (native/launch/boards.c)."""
    st = place.lstat()
    return stat.S_ISDIR(st.st_mode) and st.st_uid == os.geteuid() and not st.st_mode & 0o022


def _history_place(settings: Settings) -> Finding:
    place = settings.history_dir
    there = place
    while not there.exists() and there != there.parent:
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        text = f"{place} cannot be written: no record can be kept"
        return Finding(FAIL, "history", text, "set PENSTOCK_STATE_DIR to a folder of yours")
    return Finding(OK, "history", str(place))


def _own_environment(settings: Settings) -> Finding:
    env = settings.env
    if env.get("PENSTOCK_DISABLE", "") not in ("", "0"):
        return Finding(WARN, "environment", "PENSTOCK_DISABLE turns everything off", "unset PENSTOCK_DISABLE")
    if strays := stray_variables(env):
        return Finding(WARN, "environment", "; ".join(strays))
    return Finding(OK, "environment", "nothing here turns Penstock off")


def program(words: list[str]) -> list[Finding]:
    """What the files behind a command tell."""
    found = judge_command(words)
    places = programs_of(words)
    if not places:
        return [*found, Finding(FAIL, words[0], "is not found", "check the name and PATH")]
    machine = MACHINES.get(platform.machine(), platform.machine())
    for place in places:
        if is_script(place):
            found.append(
                Finding(OK, Path(place).name, "is a script: what counts is the program that reads it")
            )
        else:
            found += judge(facts_of(os.path.realpath(place)), machine)
    return found


def trial(words: list[str], settings: Settings) -> list[Finding]:
    """Run the command under Penstock, watch its processes, and compare with what was recorded."""
    with tempfile.TemporaryDirectory(prefix="penstock-doctor.") as folder:
        env = {**os.environ, "PENSTOCK_LOG": f"{folder}/log"}
        held = {**settings, "state_dir": folder, "history.dir": ""}
        # What the program prints is not our answer, which may be JSON.
        process = subprocess.Popen(
            launch.arguments(held, words), executable=launch.penstock_run(), env=env, stdout=2
        )
        watch = Watch(process.pid)
        while process.poll() is None:
            watch.look()
            time.sleep(LOOK_EVERY_S)
        log = Path(folder, "log")
        said = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
        return [
            _ended(process.returncode),
            *compare(watch, _recorded(Path(folder, "history"))),
            *(Finding(WARN, "log", line) for line in said[:5]),
        ]


def _ended(status: int) -> Finding:
    if status:
        return Finding(WARN, "trial run", f"ended with status {status}; without Penstock too?")
    return Finding(OK, "trial run", "ended with status 0")


def _recorded(history: Path) -> set[int]:
    """The processes that the record of the trial run names."""
    from penstock.runs import record, segments

    pids: set[int] = set()
    for path in segments.segments(history):
        for frame in segments.read(path).frames:
            payload = frame.decode()
            if isinstance(payload, record.Node):
                pids |= {process.pid for process in payload.processes}
    return pids


def compare(watch: Watch, recorded: set[int]) -> list[Finding]:
    """Processes that ran against processes that were recorded; launcher and collector are not counted."""
    own = watch.root
    ran = [p for p in watch.seen.values() if p.pid != own and Path(p.exe).name not in OURS]
    machine = MACHINES.get(platform.machine(), platform.machine())
    found = []
    for exe in sorted({process.exe for process in ran if not process.preloaded}):
        facts = facts_of(exe, code=False) if exe else Facts(exe, unreadable=True)
        why = judge(facts, machine)[0]
        # A process may be looked at before its libraries are there, and be recorded for what it was before exec.
        count = sum(
            p.exe == exe and not p.preloaded and (why.level == FAIL or (p.loaded and p.pid not in recorded))
            for p in ran
        )
        if not count:
            continue
        reason = why.text if why.level != OK else "did not get the environment"
        text = f"ran unseen ({count} process{'es' * (count != 1)}): {reason}"
        found.append(Finding(WARN, Path(exe).name, text, why.do or "start it with penstock-run"))
    rings = sorted({process.exe for process in ran if process.io_uring})
    found += [
        Finding(WARN, Path(exe).name, "had io_uring open: what it submitted there was not seen")
        for exe in rings
    ]
    if recorded:
        count = len(recorded)
        found.append(Finding(OK, "trial run", f"{count} process{'es' * (count != 1)} seen and recorded"))
    else:
        text = "no process was seen"
        found.append(Finding(FAIL, "trial run", text, "the lines above say why, else run it with -v"))
    return found
