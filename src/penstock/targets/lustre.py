# SPDX-License-Identifier: Apache-2.0
"""Lustre, real and emulated: layouts by the xattr lustre.lov, targets and load from its statistics.

Nothing needs rights that the user has not: where a statistic is for root alone, the figure is "not known".
What servers count (obdfilter) is taken where it can be seen (on a server, on the testbed); else what this
client counts (osc), which is its own share only.
"""

import contextlib
import errno
import fcntl
import os
import re
import resource
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from penstock import _native
from penstock.base.errors import PenstockError
from penstock.targets import lov, servers
from penstock.targets.driver import (
    DEGRADED,
    DOWN,
    FULL,
    INACTIVE,
    NO_CREATE,
    READ_ONLY,
    UNKNOWN,
    UP,
    Load,
    Target,
    Where,
    answer,
)
from penstock.targets.layouts import ALL, Component, Layout
from penstock.targets.mounts import TESTBED_TYPE, Mount, testbed_runs
from penstock.targets.params import Params

LUSTRE_TYPE = "lustre"

O_LOV_DELAY_CREATE = os.O_NOCTTY | os.O_ASYNC
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | O_LOV_DELAY_CREATE
SLOW_S, SIZES_S = 5.0, 60.0
"""How old flags and sizes may be: the MDS asks the OSTs for flags no more often itself."""
_SETSTRIPE = 0x4008669A
_OST = re.compile(r"(?P<fs>.+)-OST(?P<id>[0-9a-f]{4})(?:$|-)")
_SEEN_BY_SERVER = b"read_bytes\0write_bytes\0read\0write\0"
_SEEN_BY_CLIENT = b"read_bytes\0write_bytes\0ost_read\0ost_write\0"


def detect(mount: Mount) -> "Lustre | None":
    return Lustre(mount) if mount.type in (LUSTRE_TYPE, TESTBED_TYPE) else None


def params_of(mount: Mount) -> Params:
    if mount.type == TESTBED_TYPE:
        return Params([Path(mount.source, "state", "sys", "fs", "lustre")])
    return Params.of_lustre()


def fsname_of(mount: Mount) -> str:
    """`10.0.0.1@tcp:/scratch/sub` is of the file system scratch; of the testbed every name is right."""
    if mount.type == TESTBED_TYPE:
        return "*"
    return mount.source.rpartition(":/")[2].partition("/")[0]


class _Paths:
    """Files below one folder, each name ended by a NUL; kept open, which makes reading them again much cheaper, where
    so many may be."""

    def __init__(self, root: bytes, names: bytes, keep: bool) -> None:
        self.root = root
        self.names = names
        self._kept = array("i", [-1]) * (names.count(b"\0") if keep else 0)
        self._one_at_a_time = threading.Lock()
        weakref.finalize(self, _close, self._kept)

    def rows(self, counters: bytes = b"") -> bytes:
        """Rows of numbers out of the files, see read_counters."""
        with self._one_at_a_time:
            kept = (self._kept,) if self._kept else ()
            found: bytes = _native.read_counters(self.root, self.names, counters, *kept)
        return found

    def numbers(self) -> list[int]:
        """The number in each file."""
        return memoryview(self.rows()).cast("q").tolist()


def _close(kept: "array[int]") -> None:
    for fd in kept:
        if fd >= 0:
            os.close(fd)


class _Files:
    """Where each figure of each OST is found."""

    def __init__(self, params: Params, fs: str) -> None:
        self.params = params
        self.fs = fs
        self.side = "obdfilter"
        found = self._folders("obdfilter", f"{fs}-OST????")
        if not found:
            self.side = "osc"
            found = self._folders("osc", f"{fs}-OST????-osc-*")
        self.ids = sorted(found)
        self.rows = {number: row for row, number in enumerate(self.ids)}
        self.folders = [found[number] for number in self.ids]
        self.names = [folder.partition("-osc-")[0] for folder in self.folders]
        admin = self._folders("osp", f"{fs}-OST????-osc-MDT0000")
        self.admin = [admin.get(number, "none") for number in self.ids]
        self._paths: dict[tuple[str, str], _Paths] = {}
        self._may_keep = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self.sizes: list[int] = []
        self.sized_s = float("-inf")
        self.flags: dict[int, str] | None = None
        self.texts: list[str] = []
        self.states: dict[int, str] = {}
        self.seen = self.listing()

    def listing(self) -> list[list[str]]:
        """Changes when targets come or go."""
        folders = [root / self.side for root in self.params.roots]
        return [[path.name for path in folder.iterdir()] for folder in folders if folder.is_dir()]

    def _folders(self, group: str, pattern: str) -> dict[int, str]:
        found: dict[int, str] = {}
        for root in self.params.roots:
            for folder in (root / group).glob(pattern):
                match = _OST.match(folder.name)
                if match:
                    found.setdefault(int(match["id"], 16), folder.name)
        return found

    def paths(self, name: str, group: str = "") -> _Paths:
        """The files of one parameter, an OST each, in the first tree that lets us read them."""
        group = group or self.side
        if (group, name) not in self._paths:
            some = [f"{group}/{folder}/{name}" for folder in (self.admin if group == "osp" else self.folders)]
            roots = [
                root
                for root in self.params.roots
                if any(os.access(root / path, os.R_OK) for path in some[:2])
            ]
            root = str(roots[0]) if roots else "/nowhere"
            keep = name != "kbytestotal" and len(some) <= self._may_keep  # sizes are read once a minute
            self._may_keep -= len(some) if keep else 0
            self._paths[group, name] = _Paths(
                root.encode(), "".join(path + "\0" for path in some).encode(), keep
            )
        return self._paths[group, name]


class Lustre:
    kind = "lustre"

    def __init__(self, mount: Mount, clock: Callable[[], float] = time.monotonic) -> None:
        self.mount = mount
        self._clock = clock
        self._look_again_s = float("-inf")
        self.params = params_of(mount)
        self.fs = fsname_of(mount)
        self._found: _Files | None = None

    @property
    def _files(self) -> _Files:
        """Looked up anew when targets came or went."""
        now = self._clock()
        if now >= self._look_again_s:
            self._look_again_s = now + SLOW_S
            if self._found is None or self._found.listing() != self._found.seen:
                self._found = _Files(self.params, self.fs)
                self.__dict__.pop("_servers", None)
            self._found.flags = None
        assert self._found
        return self._found

    def _refuse_the_dead(self) -> None:
        """What a testbed's server left in its folders would look alive."""
        folder, point = self.mount.source, self.mount.point
        left = self.mount.type == TESTBED_TYPE and os.path.lexists(f"{folder}/run/lock")
        if left and not testbed_runs(folder):
            raise PenstockError(
                f"{point}: the mount is dead; penstock testbed up --dir {point} starts it again"
            )

    def targets(self) -> tuple[Target, ...]:
        self._refuse_the_dead()
        files = self._files
        now = self._clock()
        if now >= files.sized_s + SIZES_S:
            files.sizes = [max(size, 0) * 1024 for size in files.paths("kbytestotal").numbers()]
            files.sized_s = now
        free = [max(room, 0) * 1024 for room in files.paths("kbytesavail").numbers()]
        return tuple(map(Target, files.ids, files.names, self._servers, files.sizes, free))

    @cached_property
    def _servers(self) -> list[str]:
        """The OSS of each OST, as far as a client knows it."""
        said = {}
        for name, text in self.params.read(f"osc.{self.fs}-OST*.ost_conn_uuid").items():
            match = _OST.match(name.split(".")[1])
            if match:
                said[int(match["id"], 16)] = text.strip().removeprefix("ost_conn_uuid=")
        return [said.get(number, "") for number in self._files.ids]

    def load(self) -> Mapping[int, Load]:
        files = self._files
        names = _SEEN_BY_SERVER if files.side == "obdfilter" else _SEEN_BY_CLIENT
        return _Loads(files.rows, files.paths("stats").rows(names))

    def sees_all(self) -> bool:
        return self._files.side == "obdfilter"

    def health(self) -> Mapping[int, str]:
        """What clients see (ACTIVE), and where it can be seen what the servers and the MDS say."""
        files = self._files
        texts = list(self.params.read(f"lov.{self.fs}-clilov-*.target_obd").values())
        if files.flags is None or texts != files.texts:
            files.flags = _flags(files) if files.flags is None else files.flags
            files.texts = texts
            files.states = _states(files)
        return files.states

    def job_counts(self) -> Mapping[str, Mapping[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for pattern in (f"mdt.{self.fs}-MDT*.job_stats", f"obdfilter.{self.fs}-OST*.job_stats"):
            for text in self.params.read(pattern).values():
                for job, name, count in job_rows(text):
                    row = counts.setdefault(job, {})
                    row[name] = row.get(name, 0) + count
        return counts

    def servers(self) -> Mapping[str, str]:
        return servers.of_testbed(Path(self.mount.source, "state")) if self.mount.type == TESTBED_TYPE else {}

    # Layouts

    def layout(self, where: Where) -> Layout:
        try:
            blob = os.getxattr(where, lov.XATTR)
        except OSError as error:
            raise answer(error, where) from error
        return layout_of(blob)

    def create(self, path: str, layout: Layout) -> None:
        blob = template_of(layout, path)
        try:
            fd = os.open(path, _NEW_FILE, 0o666)
        except FileExistsError:
            self._set_on_existing(path, blob, layout)
            return
        except OSError as error:
            raise answer(error, path, "creating the file") from error
        try:
            self._set(fd, path, blob, layout)
        except BaseException:
            Path(path).unlink()
            raise
        finally:
            os.close(fd)

    def _set_on_existing(self, path: str, blob: bytes, layout: Layout) -> None:
        """Setting a layout twice is success without effect on Lustre; here it is an error."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _has_layout(fd):
                raise answer(FileExistsError(errno.EEXIST, ""), path, "setting the layout")
            self._set(fd, path, blob, layout)
        finally:
            os.close(fd)

    def _set(self, fd: int, path: str, blob: bytes, layout: Layout) -> None:
        try:
            os.setxattr(fd, lov.XATTR, blob)
        except OSError as error:
            if error.errno != errno.EACCES or not _set_by_ioctl(fd, blob):
                raise self._refused(error, path, layout) from error
        wished = layout.components[0].targets if len(layout.components) == 1 else ()
        if wished and self.layout(fd).targets != tuple(dict.fromkeys(wished)):
            raise PenstockError(f"{path}: somebody else gave it another layout at the same time")

    def _refused(self, error: OSError, path: str, layout: Layout) -> PenstockError:
        """The refusal, with the state of the targets that were asked for."""
        said = answer(error, path, "setting the layout")
        with contextlib.suppress(PenstockError, OSError):
            states = self.health()
            bad = [f"{t} is {states.get(t, 'not there')}" for t in layout.targets if states.get(t) != UP]
            if bad:
                said = type(said)(f"{said} (OST {', '.join(bad)})")
        return said

    def set_default(self, path: str, layout: Layout) -> None:
        try:
            os.setxattr(path, lov.XATTR, template_of(layout, path))
        except OSError as error:
            raise self._refused(error, path, layout) from error


def _states(files: _Files) -> dict[int, str]:
    """From `3: fs-OST0003_UUID ACTIVE`, a line a target, and from the flags."""
    states = dict.fromkeys(files.ids, UP if files.side == "obdfilter" else UNKNOWN)
    for text in files.texts:
        rows = (line.partition(":") for line in text.splitlines())
        seen = {int(n): rest.endswith(" ACTIVE") for n, _, rest in rows if n.strip().isdecimal()}
        states |= {number: UP if active else INACTIVE for number, active in seen.items() if number in states}
    return states | (files.flags or {})


def _flags(files: _Files) -> dict[int, str]:
    """The targets that are not simply up, in the servers' and the MDS's opinion."""
    if files.side != "obdfilter":
        return {}
    found: dict[int, str] = {}
    for word, name in ((READ_ONLY, "readonly"), (NO_CREATE, "no_create"), (DEGRADED, "degraded")):
        values = zip(files.ids, files.paths(name).numbers(), strict=True)
        found |= {number: word for number, value in values if value == 1}
    for number, value in zip(files.ids, files.paths("prealloc_status", "osp").numbers(), strict=True):
        if value == -errno.ENOSPC:
            found[number] = FULL
        elif value in (-errno.ENOTCONN, -errno.EIO, -errno.ENODEV):
            found[number] = DOWN
    values = zip(files.ids, files.paths("active", "osp").numbers(), strict=True)
    return found | {number: INACTIVE for number, value in values if value == 0}


def _has_layout(fd: int) -> bool:
    try:
        os.getxattr(fd, lov.XATTR)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return False
        if error.errno != errno.ERANGE:
            raise
    return True


def _set_by_ioctl(fd: int, blob: bytes) -> bool:
    """A file that its owner may not write takes its layout this way, though the answer is EACCES.

    Others' files would take it too; that is a hole in Lustre, not a right.
    """
    if os.fstat(fd).st_uid != os.geteuid():
        return False
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, _SETSTRIPE, bytearray(blob))
    return _has_layout(fd)


class _Loads(Mapping[int, Load]):
    """Rows of how often and the sum of: bytes read, bytes written, reads in µs, writes in µs.

    Kept as numbers: a minute of readings of a thousand targets is looked at rarely, and then a few of them.
    """

    def __init__(self, ids: Mapping[int, int], rows: bytes) -> None:
        self._ids = ids
        self._rows = memoryview(rows).cast("q")

    def __getitem__(self, number: int) -> Load:
        at = 8 * self._ids[number]
        reads, read_bytes, writes, written, _, read_us, _, write_us = self._rows[at : at + 8]
        if reads < 0:
            return Load()
        return Load(reads, writes, read_bytes, written, (read_us + write_us) * 1000)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def layout_of(blob: bytes) -> Layout:
    """Lustre's bytes as a layout."""
    try:
        parts = lov.decode(blob).parts
    except OSError:
        return Layout("unknown", (), blob)
    components = []
    for part in parts:
        if not part.known:
            return Layout("unknown", (), blob)
        count = part.stripe_count
        components.append(
            Component(
                part.start_bytes,
                part.end_bytes,
                part.stripe_size_bytes,
                ALL if count == lov.ALL else count,
                part.osts,
                part.pool.decode(errors="replace") if part.pool else "",
                0,
                bool(part.pattern & lov.MDT),
                bool(part.flags & lov.STALE),
                part.id >> 16,
            )
        )
    return Layout("lustre", tuple(components), blob)


def template_of(layout: Layout, path: str) -> bytes:
    """A wish as Lustre's bytes."""
    parts = tuple(_part_of(c) for c in layout.components)
    try:
        blob = lov.encode(lov.Lov(composite=len(parts) > 1, parts=parts))
        lov.check(blob)
    except (OSError, OverflowError) as error:
        raise PenstockError(f"{path}: Lustre has no such layout; sizes are multiples of 64 KiB") from error
    return blob


def _part_of(c: Component) -> lov.Part:
    part = lov.template(c.stripe_count, c.stripe_size_bytes, c.targets, c.pool)
    if c.on_mds:
        part = lov.Part(pattern=lov.MDT, stripe_size_bytes=c.end_bytes)
    return part._replace(start_bytes=c.start_bytes, end_bytes=c.end_bytes)


_JOB = re.compile(r"^- job_id:\s+(.*?)\s*$")
_COUNT = re.compile(r"^\s+(\w+):\s+\{ samples:\s+(\d+), unit:\s+(\w+)(?:,.*?\bsum:\s+(\d+))?")


def job_rows(text: str) -> list[tuple[str, str, int]]:
    """(job, name, how often) of a job_stats; of read_bytes and write_bytes the sum."""
    found = []
    job = ""
    for line in text.splitlines():
        head = _JOB.match(line)
        row = _COUNT.match(line)
        if head:
            job = _unquote(head[1])
        elif row and job:
            count = int(row[4] or 0) if row[3] == "bytes" else int(row[2])
            if count:
                found.append((job, row[1], count))
    return found


def _unquote(text: str) -> str:
    r"""`"a\x20b"` is how a job id with odd characters is written."""
    if not (len(text) >= 2 and text[0] == text[-1] == '"'):
        return text
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), text[1:-1])
