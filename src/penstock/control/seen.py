# SPDX-License-Identifier: Apache-2.0
"""Whether a preloaded library sees what a program does with files, and if not, why and what to do.

`judge` is pure: facts in, findings out.  `facts_of` and `look` gather facts from files and from /proc.

Invariants:
1. A finding says what is seen, why, and (unless all is well) what to do; its level is a word, not a colour.
2. /proc of somebody else's process, or of one that just ended, may be closed: then nothing is claimed of it.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base import elf
from penstock.base.elf import Elf

OK, WARN, FAIL = "ok", "warn", "fail"
OURS = frozenset(["penstock-run"])  # launcher and collector: static on purpose, no part of anybody's work
MAX_SCRIPTS = 4  # a script whose interpreter is a script ...

LAUNCHERS = frozenset(
    [
        "mpirun",
        "mpiexec",
        "mpiexec.hydra",
        "orterun",
        "prun",
        "prterun",
        "srun",
        "jsrun",
        "aprun",
        "flux",
        "torchrun",
        "ibrun",
    ]
)
CONTAINERS = frozenset(
    [
        "apptainer",
        "singularity",
        "docker",
        "podman",
        "shifter",
        "ch-run",
        "enroot",
        "sarus",
        "udocker",
        "systemd-nspawn",
    ]
)
OTHER_USERS = frozenset(["sudo", "su", "doas", "runuser", "pkexec", "newgrp", "sg"])
OTHER_MACHINES = frozenset(["ssh", "rsh", "pdsh", "clush"])


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's answer."""

    level: str
    what: str
    text: str
    do: str = ""


@dataclass(frozen=True)
class Facts:
    """What is known of one executable."""

    path: str
    elf: Elf | None = None  # None: not ELF
    damaged: str = ""
    privileged: str = ""  # why the loader ignores LD_PRELOAD: "setuid", "setgid", "file capabilities"
    unreadable: bool = False


def judge(facts: Facts, machine: str, bits: int = 64) -> list[Finding]:
    """What of this executable is seen, on a machine where the library is for `machine`."""
    what = Path(facts.path).name
    if facts.unreadable:
        return [Finding(WARN, what, "may be started but not read, so nothing can be told about it")]
    if facts.elf is None:
        text = f"is neither a program nor a script that can be told ({facts.damaged or 'unknown format'})"
        return [Finding(WARN, what, text)]
    program = facts.elf
    found = list(_blind(what, facts, program, machine, bits))
    if found:
        return found
    found = list(_partly(what, program))
    if not found:
        found = [Finding(OK, what, f"is dynamically linked ({program.machine}): its calls are seen")]
    if any(name.startswith(("libmpi.", "libmpi_", "libmpich.")) for name in program.needed):
        do = "start its ranks with penstock-run: mpirun penstock-run ./app, or srun penstock-run ./app"
        found.append(Finding(OK, what, "is an MPI program", do))
    return found


def blindness(facts: Facts, machine: str, bits: int = 64) -> str:
    """A word for why nothing at all is seen; the first reason is enough.  Empty: something is."""
    program = facts.elf
    if program is None:
        return ""
    reasons = {
        "machine": program.bits != bits or program.machine != machine,
        "go": program.go,
        "musl": program.musl,
        "static": program.static,
        "privileged": bool(facts.privileged),
    }
    return next((word for word, true in reasons.items() if true), "")


def _blind(what: str, facts: Facts, program: Elf, machine: str, bits: int) -> Iterator[Finding]:
    """What that word means, and what to do."""
    word = blindness(facts, machine, bits)
    if word == "machine":
        text = f"is for {program.machine} ({program.bits} bits), the library for {machine} ({bits} bits)"
        yield Finding(FAIL, what, text + ": nothing is seen", "build it for this machine")
    elif word == "go":
        text = "is a Go program, whose runtime makes its system calls itself: nothing is seen"
        yield Finding(FAIL, what, text, "no preloaded library can help; count and limit it at the servers")
    elif word == "musl":
        text = "uses musl's loader, which cannot load a library made for glibc: nothing is seen"
        yield Finding(FAIL, what, text, "run a build for glibc")
    elif word == "static":
        text = "is statically linked: no library can be put before it, nothing is seen"
        yield Finding(FAIL, what, text, "link it dynamically (without -static)")
    elif word == "privileged":
        text = f"has {facts.privileged}: the loader then ignores LD_PRELOAD, nothing is seen"
        yield Finding(FAIL, what, text, "run a copy of it without that mark, if it works so")


def _partly(what: str, program: Elf) -> Iterator[Finding]:
    """Why a part is not seen."""
    if any(name.startswith("liburing.") for name in program.needed):
        text = "uses io_uring: reads and writes that it submits there are not seen"
        yield Finding(WARN, what, text, "look for an option of the program that turns io_uring off")
    if program.direct_calls and not program.library:
        text = f"holds {program.direct_calls} system call instructions of its own: those calls are not seen"
        yield Finding(WARN, what, text, "compare the report with the file system's own count")
    if "syscall" in program.undefined:
        text = "uses syscall(): calls that it makes that way are passed on and only counted"
        yield Finding(WARN, what, text, "the report says how many there were")
    if "dlmopen" in program.undefined:
        text = "uses dlmopen: what runs in a name space of its own is not seen"
        yield Finding(WARN, what, text)
    if any(name.startswith("libasan.") for name in program.needed):
        text = "is built with AddressSanitizer, which wants to be the first library"
        yield Finding(WARN, what, text, "set ASAN_OPTIONS=verify_asan_link_order=0")


def judge_command(words: list[str]) -> list[Finding]:
    """What is known from the words alone: launchers, containers, other users and machines."""
    found = []
    for word in words:
        if word == "--":
            continue
        name = Path(word).name
        if name in LAUNCHERS:
            do = f"put it before the program instead: {name} … penstock-run ./app"
            text = "starts processes on other nodes, which may not get the environment"
            found.append(Finding(WARN, name, text, do))
        elif name in CONTAINERS:
            text = "starts a container: the library and the board must be seen inside it"
            do = (
                "install Penstock in the image, bind /dev/shm, and start the program with penstock-run inside"
            )
            found.append(Finding(WARN, name, text, do))
        elif name in OTHER_USERS:
            text = "changes the user and drops LD_PRELOAD: what it starts is not seen"
            found.append(Finding(FAIL, name, text, f"put it first: {name} … penstock run -- program"))
        elif name in OTHER_MACHINES:
            text = "starts the program on another machine, without this environment"
            found.append(Finding(FAIL, name, text, f"start it there: {name} host penstock run -- program"))
        elif not word.startswith("-") and "=" not in word and word not in ("env", "time", "nice", "nohup"):
            break
    return found


def programs_of(words: list[str], path: str | None = None) -> list[str]:
    """The executables that a command leads to: launchers' own, the program, and interpreters of scripts."""
    found: list[str] = []
    for word in words:
        if word.startswith("-") or "=" in word or word.isdigit():
            continue
        place = shutil.which(word, path=path)
        if place is None:
            if not found:
                return []
            continue
        found.extend(_with_interpreters(place))
        if Path(word).name not in LAUNCHERS | CONTAINERS | OTHER_USERS | {"env", "time", "nice", "nohup"}:
            break
    return found


def _with_interpreters(place: str) -> list[str]:
    """A file, and while it is a script the program that reads it."""
    found = [place]
    for _ in range(MAX_SCRIPTS):
        try:
            with Path(found[-1]).open("rb") as file:
                line = file.readline(256)
        except OSError:
            break
        if not line.startswith(b"#!"):
            break
        words = os.fsdecode(line[2:]).split()
        if words and Path(words[0]).name == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        place = (shutil.which(words[0]) if words else None) or ""
        if not place:
            break
        found.append(place)
    return found


def facts_of(path: str, code: bool = True) -> Facts:
    """Read one executable."""
    try:
        program = elf.read(path, code)
    except elf.ElfError as error:
        return Facts(path, damaged=str(error))
    except PermissionError:
        return Facts(path, unreadable=True)
    except OSError as error:
        return Facts(path, damaged=error.strerror or "unreadable")
    return Facts(path, elf=program, privileged=_privileged(path))


def is_script(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _privileged(path: str) -> str:
    mode = Path(path).stat().st_mode
    if mode & stat.S_ISUID:
        return "the setuid bit"
    if mode & stat.S_ISGID and mode & stat.S_IXGRP:
        return "the setgid bit"
    try:
        return "file capabilities" if os.getxattr(path, "security.capability") else ""
    except OSError:
        return ""


@dataclass
class Watched:
    """One process of a trial run, as /proc showed it while it lived."""

    pid: int
    exe: str = ""
    preloaded: bool = False
    loaded: bool = False  # libc is there, which comes after what is preloaded
    io_uring: bool = False
    read_bytes: int = 0  # as the kernel counts: all descriptors, all kinds of files
    written_bytes: int = 0


@dataclass
class Watch:
    """All processes below one, looked at again and again; short ones may be missed."""

    root: int
    library: str = "libpenstock.so"
    seen: dict[tuple[int, str], Watched] = field(default_factory=dict)

    def look(self) -> None:
        """One look at all that runs now."""
        todo, met = [self.root], set()
        while todo:
            pid = todo.pop()
            if pid in met:
                continue
            met.add(pid)
            todo.extend(_children(pid))
            self._look_at(pid)

    def _look_at(self, pid: int) -> None:
        folder = Path(f"/proc/{pid}")
        try:
            exe = str((folder / "exe").readlink())
            process = self.seen.setdefault((pid, exe), Watched(pid, exe))
            maps = (folder / "maps").read_text("utf-8", "replace")
            process.preloaded = process.preloaded or self.library in maps
            process.loaded = process.loaded or "/libc.so" in maps or "/libc-" in maps
            counts = dict(line.split(": ") for line in (folder / "io").read_text().splitlines())
            process.read_bytes = int(counts["rchar"])
            process.written_bytes = int(counts["wchar"])
            process.io_uring = process.io_uring or any(
                "[io_uring]" in str(fd.readlink()) for fd in (folder / "fd").iterdir()
            )
        except (OSError, KeyError, ValueError):
            return


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.extend(int(word) for word in (task / "children").read_text().split())
    except (OSError, ValueError):
        pass
    return found
