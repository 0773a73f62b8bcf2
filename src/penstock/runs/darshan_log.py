# SPDX-License-Identifier: Apache-2.0
"""A Darshan log as frames of the record: by the low-level readers of the package `darshan`, or from its parser's text.

What a record becomes: a file, or one file of one rank.  Records of rank -1 are shared by all: one row without a rank,
with the number of processes as its communicator, and the slowest rank's time as its time.  POSIX counts; where a
file has no POSIX record, STDIO does.  Lustre gives layouts: the widest component's count and size, and
the distinct targets of all of them.

Invariants:
1. A log that cannot be read raises BrokenError with a sentence; nothing of it is kept.
2. The run's id comes from the job's id and the log's bytes: the same log is the same run, wherever it lies.
3. A record with odd values (a bad target, a component without stripes, negative counts) costs that value only.
"""

import hashlib
import os
import re
import shlex
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import PenstockError
from penstock.runs import record, segments

NODE = "darshan-import"
TEXT_HEAD = b"# darshan log version"
TARGETS_MAX = 1 << 16
_BASE = struct.Struct("=Qq")  # every record begins with its id and rank

_SIZES = (
    "0_100",
    "100_1K",
    "1K_10K",
    "10K_100K",
    "100K_1M",
    "1M_4M",
    "4M_10M",
    "10M_100M",
    "100M_1G",
    "1G_PLUS",
)
_READ_SIZES = tuple(f"SIZE_READ_{s}" for s in _SIZES)
_WRITE_SIZES = tuple(f"SIZE_WRITE_{s}" for s in _SIZES)
_SHORT = (
    *(
        "OPENS",
        "READS",
        "WRITES",
        "STATS",
        "SEEKS",
        "BYTES_READ",
        "BYTES_WRITTEN",
        "MAX_BYTE_READ",
        "MAX_BYTE_WRITTEN",
    ),
    *("SEQ_READS", "SEQ_WRITES", "CONSEC_READS", "CONSEC_WRITES", "RW_SWITCHES"),
    *(f"ACCESS{i}_{what}" for i in (1, 2, 3, 4) for what in ("ACCESS", "COUNT")),
)
_TIMES = (
    *("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME", "F_SLOWEST_RANK_TIME"),
    *("F_OPEN_START_TIMESTAMP", "F_CLOSE_END_TIMESTAMP", "F_WRITE_END_TIMESTAMP"),
)
_COUNTS = {"POSIX": (*_SHORT, *_READ_SIZES, *_WRITE_SIZES), "STDIO": _SHORT}
_CALLS, _COMMON = 14, 22  # _SHORT is that many counts of calls and bytes, then the common sizes up to here
_STRUCTS = {"POSIX": "struct darshan_posix_file *", "STDIO": "struct darshan_stdio_file *"}
COUNT_MAX = 2**62


class BrokenError(PenstockError):
    """A log that cannot be read."""


class Values(NamedTuple):
    """Of one record: the counters of _COUNTS and the times of _TIMES, in their order; 0 where a module has none."""

    counts: Sequence[int]
    times: Sequence[float]


class Form:
    """How a module's records lie in memory."""

    def __init__(self, module: str, counters: Sequence[str], times: Sequence[str], size: int) -> None:
        self.layout = struct.Struct(f"=Qq{len(counters)}q{len(times)}d")
        if self.layout.size != size:
            raise PenstockError(
                f"the package darshan has records of {module} that are not known here; install penstock[darshan]"
            )
        where = {name: 2 + i for i, name in enumerate((*counters, *times))}
        nothing = 2 + len(where)  # a zero stands behind the record
        self.counts = itemgetter(*(where.get(f"{module}_{name}", nothing) for name in _COUNTS[module]))
        self.times = itemgetter(*(where.get(f"{module}_{name}", nothing) for name in _TIMES))

    def values(self, data: bytes) -> Values:
        row = (*self.layout.unpack(data), 0)
        counts = self.counts(row)
        odd = min(counts) < 0 or max(counts) > COUNT_MAX
        return Values(tuple(map(_whole, counts)) if odd else counts, self.times(row))


class Packed(NamedTuple):
    """A record as it came, until it is wanted: logs of thousands of files stay small."""

    form: Form
    data: bytes

    def unpacked(self) -> Values:
        return self.form.values(self.data)


@dataclass
class Raw:
    """What a log says, from either input."""

    job: int = 0
    uid: int = -1
    processes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    exe: str = ""
    mounts: list[tuple[str, str]] = field(default_factory=list)  # path, type
    rows: list[tuple[str, str, int, Values | Packed]] = field(default_factory=list)  # module, name, rank
    layouts: dict[str, record.Layout] = field(default_factory=dict)  # by name
    partial: list[str] = field(default_factory=list)  # modules that did not hold all


def hash_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def is_text(data: bytes) -> bool:
    return data.startswith(TEXT_HEAD)


def job_and_id(raw: Raw, digest: str) -> bytes:
    """The run's id."""
    return record.run_id(str(raw.job), "darshan", digest)


# -- the binary logs -----------------------------------------------------------------------------------------


class Reader:
    """The package's readers, loaded once a process."""

    def __init__(self) -> None:
        try:
            import darshan.backend.cffi_backend as backend
        except ImportError as error:
            raise PenstockError("Darshan logs need the package darshan; install penstock[darshan]") from error
        self.backend = backend
        self.held = backend.ffi.new("void **")
        self.forms = {
            module: Form(
                module,
                backend.counter_names(module),
                backend.fcounter_names(module),
                backend.ffi.sizeof(name.removesuffix(" *")),
            )
            for module, name in _STRUCTS.items()
        }
        names = backend.counter_names("LUSTRE_COMP")
        self.count_at = names.index("LUSTRE_COMP_STRIPE_COUNT")
        self.size_at = names.index("LUSTRE_COMP_STRIPE_SIZE")

    def read(self, path: Path) -> Raw:
        b = self.backend
        log = b.log_open(os.fspath(path))
        if not bool(log["handle"]):
            raise BrokenError("it is no Darshan log, or cut short")
        try:
            return self._read(log)
        except (
            ValueError,
            KeyError,
            IndexError,
            OverflowError,
            TypeError,
            MemoryError,
            RuntimeError,
        ) as error:
            raise BrokenError(f"it holds what no Darshan writes ({type(error).__name__}: {error})") from error
        finally:
            b.log_close(log)

    def _read(self, log: Any) -> Raw:
        b = self.backend
        job = b.log_get_job(log)
        start_ns = int(job["start_time_sec"]) * 10**9 + int(job["start_time_nsec"])
        end_ns = int(job["end_time_sec"]) * 10**9 + int(job["end_time_nsec"])
        raw = Raw(int(job["jobid"]), int(job["uid"]), int(job["nprocs"]), start_ns, max(end_ns, start_ns))
        if raw.processes <= 0 or start_ns <= 0:
            raise BrokenError("it holds no job")
        raw.exe = b.log_get_exe(log)
        raw.mounts = [(str(path), str(kind)) for path, kind in b.log_get_mounts(log)]
        modules = b.log_get_modules(log)
        raw.partial = [name for name, about in modules.items() if about["partial_flag"]]
        names = b.log_get_name_records(log)
        for module, form in self.forms.items():
            for row in self._records(log, modules, module, _STRUCTS[module]):
                data = bytes(b.ffi.buffer(row))
                record_id, rank = _BASE.unpack_from(data)
                name = str(names.get(record_id, f"/unknown/{record_id}"))
                raw.rows.append((module, name, rank, Packed(form, data)))
        for row in self._records(log, modules, "LUSTRE", "struct darshan_lustre_record *"):
            if found := layout_of(self._parts(row)):
                raw.layouts[str(names.get(row.base_rec.id, ""))] = found
        return raw

    def _records(self, log: Any, modules: Mapping[str, Any], module: str, kind: str) -> Iterator[Any]:
        """The records of a module; each is gone when the next is asked for.  The package's own way copies each into
        arrays and dictionaries, which takes several times as long as all the rest."""
        if module not in modules:
            return
        b, held, index = self.backend, self.held, modules[module]["idx"]
        while b.libdutil.darshan_log_get_record(log["handle"], index, held) >= 1:
            yield b.ffi.cast(kind, held[0])
            b.libdutil.darshan_free(held[0])
            held[0] = b.ffi.NULL

    def _parts(self, row: Any) -> Iterator["Part"]:
        """Of a Lustre record."""
        at = 0
        for i in range(row.num_comps):
            counters = row.comps[i].counters
            count = counters[self.count_at]
            many = min(max(count, 0), row.num_stripes - at)
            yield count, counters[self.size_at], self.backend.ffi.unpack(row.ost_ids + at, many)
            at += many


Part = tuple[float, float, list[int]]  # of a layout: count, size, targets


def layout_of(parts: Iterable[Part]) -> record.Layout | None:
    """The widest component's count and size, and the distinct targets of all."""
    best = (0, 0)
    targets: dict[int, None] = {}
    for count, size, ids in parts:
        good = [t for t in ids if 0 <= t < TARGETS_MAX]
        if count > 0 and size > 0 and (good or not ids):
            best = max(best, (int(count), int(size)))
        targets.update(dict.fromkeys(good))
    return record.Layout("lustre.lov", b"", best[0], best[1], list(targets)) if best[0] else None


# -- darshan-parser's text -----------------------------------------------------------------------------------

_HEADS = re.compile(r"# (exe|uid|jobid|start_time|end_time|nprocs): (.*)")
_MOUNT = re.compile(r"# mount entry:\s+(\S+)\s+(\S+)")


def read_text(data: bytes) -> Raw:
    """What darshan-parser printed of a log."""
    raw = Raw()
    heads: dict[str, str] = {}
    rows: dict[tuple[str, str, int], dict[str, float]] = {}
    lustre: dict[str, tuple[dict[str, float], list[int]]] = {}
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("#"):
            if match := _HEADS.match(line):
                heads[match[1]] = match[2]
            elif match := _MOUNT.match(line):
                raw.mounts.append((match[1], match[2]))
            elif "incomplete" in line.lower() and "module" in line.lower():
                raw.partial.append(line.strip("#* ").split()[0])
            continue
        words = line.split("\t")
        if len(words) < 6:
            continue
        module, rank, _, counter, value, name = words[:6]
        try:
            number = float(value)
            who = int(rank)
        except ValueError:
            continue
        if module == "LUSTRE":
            held = lustre.setdefault(name, ({}, []))
            if "OST_ID" in counter:
                held[1].append(int(number))
            else:
                held[0][counter.replace("LUSTRE_STRIPE", "LUSTRE_COMP_STRIPE").replace("COMP1_", "COMP_")] = (
                    number
                )
        elif module in ("POSIX", "STDIO"):
            rows.setdefault((module, name, who), {})[counter] = number
    try:
        raw.job, raw.uid, raw.processes = int(heads["jobid"]), int(heads["uid"]), int(heads["nprocs"])
        raw.start_ns = int(float(heads["start_time"]) * 1e9)
        raw.end_ns = max(int(float(heads["end_time"]) * 1e9), raw.start_ns)
    except (KeyError, ValueError, OverflowError) as error:
        raise BrokenError(f"the text of darshan-parser lacks its head ({error})") from error
    raw.exe = heads.get("exe", "")
    raw.rows = [(module, name, rank, _values(module, held)) for (module, name, rank), held in rows.items()]
    for name, (counters, ids) in lustre.items():
        count, size = (counters.get(f"LUSTRE_COMP_STRIPE_{what}", 0) for what in ("COUNT", "SIZE"))
        if found := layout_of([(count, size, ids)]):
            raw.layouts[name] = found
    return raw


# -- frames --------------------------------------------------------------------------------------------------


def _whole(value: float) -> int:
    """A count that a record can hold, whatever stands there."""
    return int(value) if 0 <= value <= COUNT_MAX else COUNT_MAX if value > 0 else 0


def _values(module: str, held: Mapping[str, float]) -> Values:
    """What was printed by name."""
    counts = [_whole(held.get(f"{module}_{name}", 0)) for name in _COUNTS[module]]
    return Values(counts, [held.get(f"{module}_{name}", 0) for name in _TIMES])


def _ns(seconds: float) -> int:
    return int(seconds * 1e9) if 0 < seconds < 1e9 else 0


def _parts_of_time(own_s: Sequence[float], slowest_s: float, shared: bool) -> tuple[int, int, int]:
    """Reading, writing, metadata; of a shared record so that they add up to the slowest rank's."""
    own = tuple(map(_ns, own_s))
    slowest, total = _ns(slowest_s), sum(own)
    if shared and slowest and total:
        own = tuple(part * slowest // total for part in own)
    return own[0], own[1], own[2]


def _filesystem(name: str, mounts: list[tuple[str, str]]) -> str:
    best = ""
    kind = ""
    for path, found in mounts:
        inside = name == path or name.startswith(path.rstrip("/") + "/")
        if inside and len(path) >= len(best):
            best, kind = path, found
    return kind


def _file(module: str, name: str, rank: int, values: Values, raw: Raw) -> record.File:
    shared = rank < 0
    *own_s, slowest_s, opened_s, closed_s, written_s = values.times
    read_ns, write_ns, meta_ns = _parts_of_time(own_s, slowest_s, shared)
    first = _ns(opened_s)
    last = max(_ns(closed_s), _ns(written_s), first)
    c = values.counts
    opens, reads, writes, stats, seeks, bytes_read, bytes_written, most_read, most_written = c[:9]
    seq_reads, seq_writes, consec_reads, consec_writes, switches = c[9:_CALLS]
    common = zip(c[_CALLS:_COMMON:2], c[_CALLS + 1 : _COMMON : 2], strict=True)
    highest = max(most_read, most_written)
    read_sizes = list(c[_COMMON : _COMMON + len(_SIZES)])
    write_sizes = list(c[_COMMON + len(_SIZES) :])
    return record.File(
        path=name.encode("utf-8", "surrogateescape"),
        process=0,
        pid=max(rank, 0) + 1,
        rank=rank,
        opens=opens,
        reads=reads,
        writes=writes,
        metas=stats + seeks,
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        common_sizes=[pair for pair in common if pair[1]],
        read_sizes=read_sizes,
        write_sizes=write_sizes,
        reads_sequential=seq_reads,
        writes_sequential=seq_writes,
        reads_consecutive=consec_reads,
        writes_consecutive=consec_writes,
        switches=switches,
        first_ns=raw.start_ns + first,
        last_ns=raw.start_ns + last,
        read_ns=read_ns,
        write_ns=write_ns,
        meta_ns=meta_ns,
        read_sampled=int(read_ns > 0),
        write_sampled=int(write_ns > 0),
        meta_sampled=int(meta_ns > 0),
        highest_offset=highest + 1 if highest else 0,
        mpi_ranks=raw.processes if shared else 0,
        filesystem=_filesystem(name, raw.mounts),
        layout=raw.layouts.get(name),
    )


@lru_cache(maxsize=256)
def _argv(exe: str) -> list[bytes]:
    """The words of a command line; logs that follow each other are often of one program."""
    try:
        words = shlex.split(exe)
    except ValueError:
        words = exe.split()
    return [word.encode("utf-8", "surrogateescape") for word in words]


def frames(raw: Raw, run: bytes) -> bytes:
    """The run as frames, ready to be appended."""
    argv = _argv(raw.exe)
    posix = {(name, rank) for module, name, rank, _ in raw.rows if module == "POSIX"}
    files = [
        _file(module, name, rank, v.unpacked() if isinstance(v, Packed) else v, raw)
        for module, name, rank, v in raw.rows
        if (module == "POSIX" or (name, rank) not in posix) and not name.startswith("<")
    ]
    reasons = [
        record.Reason("table_full", 0, f"Darshan's module {name} did not hold all") for name in raw.partial
    ]
    process = record.Process(
        pid=1,
        start_ns=raw.start_ns,
        end_ns=raw.end_ns,
        exe=argv[0] if argv else b"",
        argv=argv,
        mpi_largest=raw.processes,
    )
    begin = record.Begin(
        job=str(raw.job),
        job_source="darshan",
        node=NODE,
        uid=raw.uid,
        argv=argv,
        start_ns=raw.start_ns,
        launcher="import darshan",
    )
    node = record.Node(NODE, 1, raw.end_ns, True, [process], [], files, None, reasons)
    end = record.End(NODE, None, 0, raw.end_ns)  # Darshan does not know how it ended
    return b"".join(segments.pack(run, payload) for payload in (begin, node, end))
