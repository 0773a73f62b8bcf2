# SPDX-License-Identifier: Apache-2.0
"""Makes Darshan logs, through the library that the package `darshan` carries: for tests and benchmarks of the import.

    python tools/darshan_logs.py FOLDER --scale 1000      a 1:1000 set of two months of a large machine

The set has the published marginals of stripe counts and sizes (how many runs touched how many targets with which
stripe size), divided by the scale; small classes keep one run where there was one.
"""

import argparse
import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# How many runs had which number of distinct targets: class by its upper end.  The class is drawn as that number.
COUNTS = {1: 1_275_869, 2: 39, 4: 62, 8: 269, 16: 6_850, 32: 443, 64: 374, 128: 450, 256: 287}
SIZES_MIB = {1: 1_283_980, 4: 1, 8: 480, 16: 162, 32: 6, 48: 4, 64: 9, 96: 1}
PROGRAMS = 1163
MIB = 1 << 20
POSIX, LUSTRE = 1, 8  # positions of modules in a log


class _Job(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("uid", "start_s", "start_ns", "end_s", "end_ns", "nprocs", "jobid")
    ] + [("metadata", ctypes.c_char * 1024)]


class _Mount(ctypes.Structure):
    _fields_ = [("type", ctypes.c_char * 3015), ("path", ctypes.c_char * 3015)]


class _Handle(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p) for name in ("table", "prev", "next", "hh_prev", "hh_next", "key")
    ] + [("key_size", ctypes.c_uint), ("hash", ctypes.c_uint)]


class _Name(ctypes.Structure):
    _fields_ = [("record", ctypes.c_void_p), ("links", _Handle)]


class _Posix(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64),
        ("rank", ctypes.c_int64),
        ("counters", ctypes.c_int64 * 69),
        ("fcounters", ctypes.c_double * 17),
    ]


@dataclass(frozen=True)
class File:
    """A file of a log.  `rank` -1: all ranks shared it."""

    name: str
    rank: int = 0
    written: int = 0
    read: int = 0
    time_s: float = 1.0
    request: int = MIB
    targets: tuple[int, ...] = ()
    stripe_bytes: int = MIB


@dataclass(frozen=True)
class Log:
    """A run."""

    job: int
    exe: str
    processes: int
    files: tuple[File, ...]
    uid: int = 1000
    start_s: int = 1_570_000_000
    seconds: int = 60
    mounts: tuple[tuple[str, str], ...] = field(default_factory=lambda: (("lustre", "/scratch"),))


class Writer:
    """The library, and the positions of the counters that are filled in."""

    def __init__(self) -> None:
        import darshan.backend.cffi_backend as backend

        folder = Path(backend.__file__).parents[2] / "darshan.libs"
        found = sorted(folder.glob("libdarshan-util*.so*"))
        if not found:
            raise SystemExit("darshan_logs: the package darshan carries no libdarshan-util here")
        self.lib = ctypes.CDLL(str(found[0]))
        self.lib.darshan_log_create.restype = ctypes.c_void_p
        self.counter = {name: i for i, name in enumerate(backend.counter_names("POSIX"))}
        self.fcounter = {name: i for i, name in enumerate(backend.fcounter_names("POSIX"))}

    def write(self, path: Path, log: Log) -> None:
        lib = self.lib
        fd = ctypes.c_void_p(lib.darshan_log_create(str(path).encode(), 0, 0))
        if not fd:
            raise SystemExit(f"darshan_logs: {path} cannot be made")
        job = _Job(log.uid, log.start_s, 0, log.start_s + log.seconds, 0, log.processes, log.job, b"")
        lib.darshan_log_put_job(fd, ctypes.byref(job))
        lib.darshan_log_put_exe(fd, log.exe.encode())
        mounts = (_Mount * len(log.mounts))(*((t.encode(), p.encode()) for t, p in log.mounts))
        lib.darshan_log_put_mounts(fd, mounts, len(log.mounts))
        keep = self._names(fd, sorted({f.name for f in log.files}))
        posix = b"".join(bytes(self._posix(f)) for f in log.files)
        lib.darshan_log_put_mod(fd, POSIX, posix, len(posix), 4)
        lustre = b"".join(self._lustre(f) for f in log.files if f.targets)
        if lustre:
            lib.darshan_log_put_mod(fd, LUSTRE, lustre, len(lustre), 2)
        lib.darshan_log_close(fd)
        del keep

    def _names(self, fd: ctypes.c_void_p, names: list[str]) -> object:
        """The table of names: the library walks it by its `next` links."""
        records = [ctypes.create_string_buffer(_id(n).to_bytes(8, "little") + n.encode()) for n in names]
        table = (_Name * len(names))()
        for i, record in enumerate(records):
            table[i].record = ctypes.cast(record, ctypes.c_void_p)
            if i + 1 < len(names):
                table[i].links.next = ctypes.addressof(table) + (i + 1) * ctypes.sizeof(_Name)
        self.lib.darshan_log_put_namehash(fd, table)
        return records, table

    def _posix(self, f: File) -> _Posix:
        row = _Posix(_id(f.name), f.rank)
        for name, value in (
            ("OPENS", 1),
            ("READS", f.read // f.request),
            ("WRITES", f.written // f.request),
            ("BYTES_READ", f.read),
            ("BYTES_WRITTEN", f.written),
            ("MAX_BYTE_WRITTEN", max(f.written - 1, 0)),
            ("SEQ_WRITES", f.written // f.request),
            ("CONSEC_WRITES", f.written // f.request),
            ("SIZE_WRITE_100K_1M", f.written // f.request),
            ("ACCESS1_ACCESS", f.request),
            ("ACCESS1_COUNT", (f.written + f.read) // f.request),
        ):
            row.counters[self.counter["POSIX_" + name]] = value
        for name, seconds in (
            ("F_WRITE_TIME", f.time_s if f.written else 0.0),
            ("F_READ_TIME", f.time_s if f.read and not f.written else 0.0),
            ("F_SLOWEST_RANK_TIME", f.time_s),
            ("F_OPEN_START_TIMESTAMP", 0.5),
            ("F_WRITE_START_TIMESTAMP", 0.6),
            ("F_CLOSE_END_TIMESTAMP", 0.6 + f.time_s),
        ):
            row.fcounters[self.fcounter["POSIX_" + name]] = seconds
        return row

    def _lustre(self, f: File) -> bytes:
        """Version 2: id, rank, components, stripes, then the component, then its targets."""

        def words(*values: int) -> bytes:
            return b"".join(v.to_bytes(8, "little", signed=True) for v in values)

        count = len(f.targets)
        head = _id(f.name).to_bytes(8, "little") + words(f.rank, 1, count)
        part = words(f.stripe_bytes, count, 1, 0, -1, 1, 0) + bytes(16)
        return head + part + words(*f.targets)


def _id(name: str) -> int:
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return value


def scaled(table: dict[int, int], scale: int) -> dict[int, int]:
    """The marginals over the scale; whoever was there stays."""
    return {key: max(round(number / scale), 1) for key, number in table.items()}


def marginals(scale: int) -> Iterator[tuple[int, int]]:
    """(targets, stripe size in MiB) of each run, most usual first.  Large sizes go with wide runs."""
    counts = [c for c, n in scaled(COUNTS, scale).items() for _ in range(n)]
    sizes = [s for s, n in scaled(SIZES_MIB, scale).items() for _ in range(n)]
    while len(sizes) < len(counts):
        sizes.insert(0, 1)
    yield from zip(
        counts, sizes[: len(counts)] if len(sizes) <= len(counts) else sizes[-len(counts) :], strict=True
    )


def of_marginals(scale: int) -> Iterator[Log]:
    """The logs of a set: eight files a run at the most, own ones and shared ones in turn."""
    for number, (count, size) in enumerate(marginals(scale)):
        processes = 1 << number % 7
        own = number % 2 == 0 and count <= 8
        width = 1 if own else count
        files = tuple(
            File(
                f"/scratch/u{number % 97}/run{number}/out.{i}",
                i if own else -1,
                256 * MIB,
                time_s=1.0 + i % 3,
                targets=tuple((number + i * width + j) % 256 for j in range(width)),
                stripe_bytes=size * MIB,
            )
            for i in range(count if own else 1)
        )
        # The published table counts distinct targets: own files lie side by side, so all of them together are `count`.
        yield Log(
            1_000_000 + number,
            f"/opt/app{number % PROGRAMS} -n {processes}",
            max(processes, len(files)),
            files,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=int, default=1000, help="one log for so many runs")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    writer, made = Writer(), 0
    for log in of_marginals(args.scale):
        folder = args.folder / f"{made // 10_000:03d}"
        folder.mkdir(exist_ok=True)
        writer.write(folder / f"{log.job}.darshan", log)
        made += 1
    print(f"{made} logs in {args.folder}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
