# SPDX-License-Identifier: Apache-2.0
"""Which jobs of this node have processes that pass Penstock by, and why.

A process is inside a job under Penstock when its environment names a board, or that of one it descends from did when
it was looked at.  It passes by when the library is not mapped in it; why is told by its program file (seen.py) or by
its environment.  One that has the library may still submit reads and writes by io_uring, or hold system call
instructions of its own.

Needs to read /proc of others, so as a service CAP_SYS_PTRACE and nothing else: it opens no board and speaks to nobody;
what it found stands in a file, which agent and commands read (`known`).

Invariants:
1. A process is only named when two looks agree: between fork, exec and the loader's work everyone is without library.
2. /proc of a process may be closed or gone: then nothing is claimed of it.
3. The file is replaced whole; one that is old, foreign or damaged says nothing.
"""

import json
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.control import identity, seen
from penstock.policy import bypass
from penstock.policy.bypass import Reason

LIBRARY = "libpenstock.so"
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")  # as native/launch/job.c
OWN = re.compile("[0-9a-f]{32}")  # a run: the board of a user without an agent
AGAIN_S = 0.15
MAX_AGE_S = 120.0
MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class Process:
    """What /proc told of a process."""

    pid: int
    parent: int
    uid: int  # whose it is, whatever a setuid program may
    board: str  # PENSTOCK_BOARD of its environment
    preload: str  # LD_PRELOAD of its environment
    job: str  # of a scheduler's variable or its cgroup
    readable: bool  # whether its environment could be read


@dataclass(frozen=True)
class Look:
    """What of a process that is inside had to be looked at closer."""

    exe: str
    key: tuple[int, int]  # device and inode of its program
    loaded: bool
    io_uring: bool


@dataclass
class Job:
    """A job of this node."""

    id: str
    boards: set[str] = field(default_factory=set)
    processes: int = 0
    unseen: int = 0
    reasons: list[Reason] = field(default_factory=list)

    @property
    def bypassing(self) -> bool:
        return bypass.is_bypassing(self.reasons)


# -- /proc --------------------------------------------------------------------------------------------------


def processes(proc: Path = Path("/proc")) -> dict[int, Process]:
    """All processes that can be read."""
    found = {}
    for entry in os.scandir(proc):
        if entry.name.isdecimal() and (process := _process(Path(entry.path))):
            found[process.pid] = process
    return found


def _process(folder: Path) -> Process | None:
    try:
        parent = int((folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[1])
        cgroup = identity.job_of_cgroup((folder / "cgroup").read_text("utf-8", "replace"))
        uid = int((folder / "status").read_text("utf-8", "replace").partition("\nUid:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None
    try:
        data = (folder / "environ").read_bytes()
    except OSError:
        data = None
    words = dict(line.split(b"=", 1) for line in (data or b"").split(b"\0") if b"=" in line)

    def of(name: str) -> str:
        return os.fsdecode(words.get(name.encode(), b""))

    job = next((value for name in JOB_VARIABLES if (value := of(name))), "")
    board = of("PENSTOCK_BOARD")
    return Process(
        pid=int(folder.name),
        parent=parent,
        uid=uid,
        board="" if _is_of_another(board, uid) else board,
        preload=of("LD_PRELOAD"),
        job=job or cgroup,
        readable=data is not None,
    )


def _is_of_another(board: str, uid: int) -> bool:
    """Whether a board of the site's agent (.../UID/NAME) is somebody else's: nobody blackens another's job."""
    owner = Path(board).parent.name
    return owner.isdecimal() and int(owner) != uid


def look(pid: int, proc: Path = Path("/proc")) -> Look | None:
    """What is mapped and open in a process; None: it cannot be read or has no program any more."""
    folder = proc / str(pid)
    try:
        exe = str((folder / "exe").readlink())
        place = (folder / "exe").stat()
        maps = (folder / "maps").read_text("utf-8", "replace")
        if not maps:
            return None
        rings = any("[io_uring]" in str(fd.readlink()) for fd in (folder / "fd").iterdir())
    except OSError:
        return None
    return Look(exe, (place.st_dev, place.st_ino), LIBRARY in maps, rings)


# -- deciding -----------------------------------------------------------------------------------------------


def inside(all_of: Mapping[int, Process]) -> dict[int, str]:
    """The board of each process that is inside: its own, or of the nearest one above it that has one."""
    boards: dict[int, str] = {}
    for pid in all_of:
        line: list[int] = []
        at = pid
        while at in all_of and at not in boards and not all_of[at].board and len(line) < 1000:
            line.append(at)
            at = all_of[at].parent
        board = boards.get(at) or (all_of[at].board if at in all_of else "")
        for one in (at, *line):
            if one in all_of:
                boards[one] = board
    return {pid: board for pid, board in boards.items() if board}


def name_of(board: str, members: Iterable[Process]) -> str:
    """A job's id: the scheduler's, else what its board's name says (boards.make), as penstock status has it."""
    said = Path(board).name.rpartition("-")[0] or Path(board).name
    return next((p.job for p in members if p.job), "") or (said[:12] if OWN.fullmatch(said) else said)


def why(process: Process, seen_of: Look, facts: seen.Facts, machine: str) -> Reason | None:
    """Why a process passes by, wholly or in part; None: it does not."""
    name = Path(seen_of.exe).name
    if seen_of.loaded:
        if seen_of.io_uring:
            return Reason("io_uring", 1, f"{name} has io_uring open: what it submits there is not seen")
        if facts.elf is not None and facts.elf.direct_calls and not facts.elf.library:
            text = f"{name} holds {facts.elf.direct_calls} system call instructions of its own"
            return Reason("direct", 1, text, certain=False)
        return None
    if word := seen.blindness(facts, machine):
        found = seen.judge(facts, machine)[0]
        return Reason(word, 1, f"{name} {found.text}")
    if process.readable and LIBRARY not in process.preload:
        return Reason("dropped", 1, f"{name} was started without LD_PRELOAD")
    return Reason("unloaded", 1, f"{name} did not load the library")


def summed(found: Iterable[Reason]) -> list[Reason]:
    """The same said once, with how often; the certain and the frequent first."""
    counts: dict[tuple[str, str, bool], int] = {}
    for reason in found:
        key = (reason.word, reason.text, reason.certain)
        counts[key] = counts.get(key, 0) + reason.count
    ordered = sorted(counts.items(), key=lambda item: (not item[0][2], -item[1], item[0]))
    return [Reason(word, count, text, certain) for (word, text, certain), count in ordered]


# -- all together -------------------------------------------------------------------------------------------


def check(proc: Path = Path("/proc"), again_s: float = AGAIN_S) -> list[Job]:
    """All jobs of this node that have processes inside."""
    first, before = _inside_now(proc)
    if not first:
        return []
    time.sleep(again_s)
    boards, looks = _inside_now(proc)
    machine = {"x86_64": "x86-64"}.get(platform.machine(), platform.machine())
    files: dict[tuple[int, int], seen.Facts] = {}
    jobs: dict[str, Job] = {}
    members: dict[str, list[Process]] = {}
    for process, board in boards.values():
        members.setdefault(board, []).append(process)
    names = {board: name_of(board, some) for board, some in members.items()}
    for pid, (process, board) in boards.items():
        now, then = looks.get(pid), before.get(pid)
        if now is None or Path(now.exe).name in seen.OURS:
            continue
        job = jobs.setdefault(names[board], Job(names[board]))
        job.boards.add(board)
        job.processes += 1
        if then is None or (then.exe, then.loaded) != (now.exe, now.loaded):
            continue
        if now.key not in files:
            files[now.key] = seen.facts_of(str(proc / str(pid) / "exe"))
        if reason := why(process, now, files[now.key], machine):
            job.reasons.append(reason)
            job.unseen += not now.loaded
    for job in jobs.values():
        job.reasons = summed(job.reasons)
    return sorted(jobs.values(), key=lambda job: job.id)


def _inside_now(proc: Path) -> tuple[dict[int, tuple[Process, str]], dict[int, Look]]:
    all_of = processes(proc)
    boards = {pid: (all_of[pid], board) for pid, board in inside(all_of).items()}
    return boards, {pid: found for pid in boards if (found := look(pid, proc))}


# -- the file that others read ------------------------------------------------------------------------------


def write(path: Path, jobs: list[Job]) -> None:
    """Put what was found where agent and commands find it."""
    rows = {
        Path(board).name: [asdict(reason) for reason in job.reasons] for job in jobs for board in job.boards
    }
    aside = path.with_name(f"{path.name}.new")
    with aside.open("w", encoding="utf-8") as file:
        json.dump({"schema_version": 1, "time_s": time.time(), "boards": rows}, file)
        file.flush()
        os.fsync(file.fileno())
    aside.chmod(0o644)
    aside.rename(path)


def known(path: Path, max_age_s: float = MAX_AGE_S) -> dict[str, list[Reason]]:
    """By the name of a board: why its job passes by, as the checker wrote it last; nothing if that is old."""
    try:
        with path.open(encoding="utf-8") as file:
            said = json.loads(file.read(MAX_BYTES))
        if said["schema_version"] != 1 or not 0 <= time.time() - said["time_s"] + 1 <= max_age_s:
            return {}
        return {
            str(name): [
                Reason(str(row["word"]), int(row["count"]), str(row["text"]), bool(row["certain"]))
                for row in rows
            ]
            for name, rows in said["boards"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def sentence(found: list[Reason]) -> str:
    """What of a job escapes, in a line; empty if nothing is certain to."""
    return "; ".join(reason.text for reason in found if reason.certain)
