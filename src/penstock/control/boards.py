# SPDX-License-Identifier: Apache-2.0
"""The boards of a node's jobs in a folder of the agent's: made, adopted, given room, put away.

    BASE/UID/JOB-NONCE/control   the agent's; its user may read it
    BASE/UID/JOB-NONCE/usage     the agent's; its user may write it
    BASE/UID/JOB-NONCE.about     whose it is; the agent's alone

Whose: access-control lists name the one user, so that the agent needs no capability to give a file away.

Invariants:
1. Nobody but the agent and the one user can name, read or write a board's files.
2. The agent never maps what the user writes, and follows no symlink; a file that the user made longer than it may be
   is cut back to that length, beyond which nobody has anything mapped.
3. A board of another boot, or one that makes no sense, is deleted at adoption; those of running jobs go on.
4. What was counted waits for its user, within limits: only he writes his history.  A board with a run whose record
   nobody called finished stays for KEEP_S, of each user the newest KEPT_MAX, until `penstock runs collect`.
"""

import errno
import json
import logging
import os
import secrets
import shutil
import struct
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock import _native
from penstock.base.errors import PenstockError
from penstock.runs import board

log = logging.getLogger("penstock.agent")

LINGER_S = 20.0  # a board without living processes stays so long: the next step of a job may come
KEEP_S = 86400.0  # so long it stays for its user when its record is not written
KEPT_MAX = 8  # of one user
PLACE_SPOTS = 2  # file systems that a job may have plans for
DEAD_CHUNKS = 64  # so many of the dead are worth giving back

_ACL_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _MASK, _OTHER, _NOBODY = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF


def allow(path: Path, uid: int, own: int, theirs: int) -> None:
    """Give one user rights (rwx as 4 2 1) on what the agent owns; everybody else has none."""
    entries = ((_OWNER, own, _NOBODY), (_USER, theirs, uid), (_GROUP, 0, _NOBODY), (_MASK, theirs, _NOBODY))
    data = _ACL_VERSION + b"".join(_ENTRY.pack(*entry) for entry in (*entries, (_OTHER, 0, _NOBODY)))
    try:
        os.setxattr(path, "system.posix_acl_access", data, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise PenstockError(
                f"the file system of {path.parent} keeps no access-control lists; put agent.boards on a tmpfs that does"
            ) from error
        raise


@dataclass
class About:
    """Whose board it is: what stands in JOB-NONCE.about."""

    job: str
    name: str
    user: str
    group: str
    uid: int
    verified: bool
    start_s: float
    boot: str
    runs: list[str] = field(default_factory=list)  # that have asked
    by_hand: list[tuple[int, int, str]] = field(
        default_factory=list
    )  # pid, its start, spec: its owner's own limits
    recorded: list[str] = field(default_factory=list)  # of the runs: whose record is written
    plans: list[list[Any]] = field(default_factory=list)  # promises of plans that its board has (plans.py)

    @property
    def unrecorded(self) -> list[str]:
        return [run for run in self.runs if run not in self.recorded]

    def join(self, run: str) -> bool:
        """A run asks for the board; whether whoever asks is to write its record."""
        first = run not in self.runs
        if not first and run not in self.recorded:
            return False
        self.runs = [*(r for r in self.runs[-63:] if r != run), run]
        self.recorded = [r for r in self.recorded if r in self.runs and r != run]
        return True


@dataclass
class Board:
    """A board that this agent keeps."""

    path: Path
    about: About
    watch: Any
    max_bytes: int
    living: int = 1
    last_alive_s: float = field(default_factory=time.monotonic)
    counted: bool = False  # somebody wrote on it

    def save(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.about.new")
        with aside.open("w", encoding="utf-8") as file:
            json.dump(asdict(self.about), file)
        aside.chmod(0o600)
        aside.rename(about_path(self.path))

    def tend(self) -> None:
        """Room ahead of use, and no more than there may be."""
        _native.watch_grow(self.watch)
        usage = self.path / "usage"
        try:
            if usage.lstat().st_size > self.max_bytes:
                log.warning("%s made its board longer than it may be; cut back", self.about.user)
                fd = os.open(usage, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                os.ftruncate(fd, self.max_bytes)
                os.close(fd)
        except OSError:
            pass  # its folder is ours: only a crash of ours takes it away

    def look(self, now_s: float) -> bool:
        """Who lives on it; false when it may be put away."""
        try:
            self.living, used, dead = _native.watch_look(self.watch)
        except OSError as error:
            log.warning("the board of job %s cannot be read (%s)", self.about.job, error.strerror)
            return now_s - self.last_alive_s < LINGER_S
        self.counted = self.counted or used > 0
        if self.living:
            self.last_alive_s = now_s
        if dead >= DEAD_CHUNKS and _native.watch_give_back(self.watch) > 0:
            gone = self.path.with_name(f"{self.path.name}.gone")
            if gone.exists() and self.about.uid != os.geteuid():
                allow(gone, self.about.uid, 6, 4)
        return bool(self.living) or now_s - self.last_alive_s < LINGER_S

    def latency(self) -> tuple[int, int]:
        """(ns, calls) of all metadata calls that were timed."""
        time_ns, calls = _native.watch_latency(self.watch)
        return int(time_ns), int(calls)

    @property
    def is_awaited(self) -> bool:
        """Whether its user has not been told yet what stands on it."""
        return bool(self.about.unrecorded) and (
            self.counted or self.path.with_name(f"{self.path.name}.gone").exists()
        )

    def put_away(self) -> None:
        self.watch = None
        remove(self.path)


def about_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.about")


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def remove(path: Path) -> None:
    """A board and what belongs to it; what of it is not there is no matter."""
    for tail in (".about", ".gone"):
        path.with_name(path.name + tail).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def still_kept(ended: list[Board], now_s: float) -> list[Board]:
    """Of boards of ended jobs those that still wait for their users."""
    found: list[Board] = []
    for one in sorted(ended, key=lambda b: -b.last_alive_s):
        of_user = sum(1 for other in found if other.about.uid == one.about.uid)
        if one.is_awaited and of_user < KEPT_MAX and now_s - one.last_alive_s < KEEP_S:
            found.append(one)
    return found


def base(folder: Path) -> Path:
    """The folder of all boards: nobody can list it, everybody can pass through to his own."""
    folder.mkdir(parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise PenstockError(f"{folder} is not this account's; set agent.boards to a folder of its own")
    folder.chmod(0o711)
    return folder


def make(
    folder: Path, about: About, run: bytes, stages: board.Stages, rules: list[tuple[str, int]], max_bytes: int
) -> Board:
    """A board for a job, whose user alone can reach it."""
    foreign = about.uid != os.geteuid()
    mine = folder / str(about.uid)
    mine.mkdir(mode=0o700, exist_ok=True)
    plain = "".join(c if c.isalnum() or c == "-" else "_" for c in about.job)[:40]
    path = mine / f"{plain}-{secrets.token_hex(8)}"
    about_path(path).touch(0o600)
    try:
        board.create(
            path, run, stages, board.Under.RECORD, rules, max_bytes=max_bytes, place_spots=PLACE_SPOTS
        )
        if foreign:
            allow(mine, about.uid, 7, 1)
            allow(path / "control", about.uid, 6, 4)
            allow(path / "usage", about.uid, 6, 6)
            allow(path, about.uid, 7, 5)
        found = _taken(path, about)
        found.save()
    except BaseException:
        remove(path)
        raise
    return found


def _taken(path: Path, about: About) -> Board:
    watch = _native.watch_open(path)
    return Board(path, about, watch, int(board.control(path).usage_max_bytes))


def adopt(folder: Path) -> list[Board]:
    """The boards of a former agent's that still are good."""
    found = []
    boot = boot_id()
    for path in sorted(folder.glob("*/*.about")):
        place = path.with_suffix("")
        try:
            about = About(**json.loads(path.read_text("utf-8")))
            if about.boot != boot:
                raise PenstockError("it is of another boot")
            found.append(_taken(place, about))
        except (OSError, ValueError, TypeError, PenstockError) as error:
            log.warning("the board %s is of no use (%s); deleted", place, error)
            remove(place)
    return found
