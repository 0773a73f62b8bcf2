# SPDX-License-Identifier: Apache-2.0
"""Programs that write files, as far as names and sizes go: to judge prediction with.  Pure.

`PLAIN` are workloads as papers and benchmarks have them; `ODD` are ways of naming that people use and that nothing in
the prediction speaks of.  Each takes the run's number and a source of chance, and gives rows of (name, bytes,
rank); files come in the order of creation, where ranks race within a window of 16.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Row = tuple[bytes, int, int]
Rows = list[Row]
Chance = np.random.Generator
GB = 1_000_000_000
MB = 1_000_000


@dataclass(frozen=True)
class Writer:
    """A program; `predictable` in its sizes; ranks of each run; what the run is called."""

    name: str
    write: Callable[[int, Chance], Rows]
    ranks: Callable[[int], int] = lambda run: 16
    predictable: bool = True


def raced(rows: Rows, chance: Chance) -> Rows:
    """Files as they are created: ranks overtake one another within a window."""
    place = np.arange(len(rows)) + chance.uniform(0, 16, len(rows))
    return [rows[i] for i in np.argsort(place, kind="stable")]


def job_of(run: int) -> int:
    return 4_810_000 + run * 7919 % 100_003


def _ior(run: int, chance: Chance) -> Rows:
    return [(b"/s/ior/testfile.%08d" % r, GB, r) for r in range(64)]


def _hacc(run: int, chance: Chance) -> Rows:
    return [
        (b"/s/hacc/m000.full.mpicosmo.499.%d" % r, int(480 * MB * (1 + 0.004 * np.sin(r))), r)
        for r in range(32)
    ]


def _hacc_grows(run: int, chance: Chance) -> Rows:
    n = 8 * 2**run
    return [(b"/s/hacc/part.%05d-of-%05d" % (r, n), 13_500 * MB // n, r) for r in range(n)]


def _shared_steps(run: int, chance: Chance) -> Rows:
    return [
        (b"/s/job_%d/out_%05d.h5" % (job_of(run), s), int(32 * GB * (1 + 0.002 * chance.normal())), 0)
        for s in range(0, 500, 25)
    ]


def _amr(run: int, chance: Chance) -> Rows:
    own = np.random.default_rng(5).uniform(0.5, 2, 16)
    return [
        (b"/s/amr/plt%05d/Level_0/Cell_D_%05d" % (s, r),
         int(50 * MB * own[r] * 1.02**s * (1 + 0.004 * chance.normal())), r)
        for s in range(40) for r in range(16)
    ]  # fmt: skip


def _training(run: int, chance: Chance) -> Rows:
    rows: Rows = []
    top = b"/s/2026-%02d-%02d/run-%d" % (1 + run, 3 + 5 * run, job_of(run))
    for epoch in range(1, 13):
        rows.append((b"%s/model_epoch%03d.pt" % (top, epoch), 4_200 * MB, 0))
        rows.append((b"%s/optim_epoch%03d.pt" % (top, epoch), 8_400 * MB, 0))
        rows.append((b"%s/rng_epoch%03d.pt" % (top, epoch), 5_120, 0))
    return rows


def _every_tenth(run: int, chance: Chance) -> Rows:
    return [
        (
            b"/s/flash/dump_%04d" % s,
            int((6 * GB if s % 10 == 0 else 120 * MB) * (1 + 0.01 * chance.normal())),
            0,
        )
        for s in range(100)
    ]


def _logs(run: int, chance: Chance) -> Rows:
    return [(b"/s/log/rank%03d.log" % r, int(chance.lognormal(15, 1)), r) for r in range(64)]


PLAIN = (
    Writer("file per process, constant", _ior, lambda run: 64),
    Writer("file per process, ranks differ a little", _hacc, lambda run: 32),
    Writer("more processes each run", _hacc_grows, lambda run: 8 * 2**run),
    Writer("shared steps, job id in the path", _shared_steps),
    Writer("growth a step times rank", _amr),
    Writer("three kinds of checkpoint, date and job in the path", _training, lambda run: 1),
    Writer("every tenth is large, one name", _every_tenth),
    Writer("log files of any size", _logs, lambda run: 64, predictable=False),
)


# -- odd names -----------------------------------------------------------------------------------------------


def _hex(chance: Chance, length: int) -> bytes:
    return bytes(b"0123456789abcdef"[i] for i in chance.integers(0, 16, length))


def _uuid(chance: Chance) -> bytes:
    return b"-".join(_hex(chance, n) for n in (8, 4, 4, 4, 12))


def _mkstemp(chance: Chance) -> bytes:
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return bytes(letters[i] for i in chance.integers(0, len(letters), 6))


def _letters(i: int, length: int = 2) -> bytes:
    return bytes(97 + i // 26**k % 26 for k in reversed(range(length)))


def _hashed_folder(run: int, chance: Chance) -> Rows:
    top = b"/w/" + _hex(chance, 12)
    return [(b"%s/field.%04d.bin" % (top, r), (100 + r) * MB, r) for r in range(24)]


def _uuid_names(run: int, chance: Chance) -> Rows:
    return [(b"/w/blobs/%s.chunk" % _uuid(chance), 256 * MB, r % 16) for r in range(48)]


def _split(run: int, chance: Chance) -> Rows:
    return [(b"/w/split/x" + _letters(i), 64 * MB if i < 39 else 11 * MB, 0) for i in range(40)]


def _single_letters(run: int, chance: Chance) -> Rows:
    return [(b"/w/mesh/block_" + _letters(i, 1) + b".vtk", (20 + 3 * i) * MB, i) for i in range(10)]


def _temporary(run: int, chance: Chance) -> Rows:
    """Written under a name that holds a process id, renamed later (nobody sees that here)."""
    pid = int(chance.integers(2000, 4_000_000))
    return [(b"/w/out/state_%d.tmp.%d" % (s, pid), 700 * MB, 0) for s in range(0, 100, 10)]


def _mkstemp_names(run: int, chance: Chance) -> Rows:
    return [(b"/w/spool/.sort" + _mkstemp(chance), 33 * MB, r % 8) for r in range(40)]


def _dotted_time(run: int, chance: Chance) -> Rows:
    return [(b"/w/cfd/%.3f/U" % (0.125 * s), (300 + 2 * s) * MB, 0) for s in range(1, 41)] + [
        (b"/w/cfd/%.3f/p" % (0.125 * s), 100 * MB, 0) for s in range(1, 41)
    ]


def _restarts(run: int, chance: Chance) -> Rows:
    return [
        (b"/w/restart/rst_%07d.nc" % s, 900 * MB, 0) for s in range(run * 1000 + 100, run * 1000 + 1001, 100)
    ]


def _stamped(run: int, chance: Chance) -> Rows:
    def stamp() -> bytes:
        hour, minute, second = (int(chance.integers(n)) for n in (24, 60, 60))
        return b"202611%02dT%02d%02d%02d" % (1 + run * 3, hour, minute, second)

    return [
        (b"/w/%s_%s_v2.grib" % (stamp(), v), size * MB, 0)
        for v, size in ((b"temp", 400), (b"wind", 800), (b"hum", 200))
        for _ in range(4)
    ]  # fmt: skip


def _sharded(run: int, chance: Chance) -> Rows:
    rows: Rows = []
    for _ in range(60):
        h = _hex(chance, 40)
        rows.append((b"/w/objects/%s/%s/%s" % (h[:2], h[2:4], h[4:]), 8 * MB, 0))
    return rows


def _unpadded(run: int, chance: Chance) -> Rows:
    return [
        (b"/w/chem/t%dx%dy%d.dat" % (s, x, y), (10 + x * 4) * MB, x)
        for s in (1, 2, 12)
        for x in range(12)
        for y in range(3)
    ]


def _nested(run: int, chance: Chance) -> Rows:
    """Ensembles in folders, with names of no fixed depth."""
    rows: Rows = [(b"/w/ens/member=%d/year=%d/part-%05d.parquet" % (m, y, p), (40 + 10 * m) * MB, m)
                  for m in range(6) for y in (2019, 2020, 2021) for p in range(4)]  # fmt: skip
    return [*rows, (b"/w/ens/_SUCCESS", 0, 0), (b"/w/ens/member=0/_metadata", 2 * MB, 0)]


def _hosts(run: int, chance: Chance) -> Rows:
    hosts = [b"nid%05d" % int(chance.integers(1, 6000)) for _ in range(4)]
    return [
        (b"/w/trace/%s/core.%d.otf2" % (h, r), (5 + r % 4) * 10 * MB, r)
        for i, h in enumerate(hosts)
        for r in range(i * 4, i * 4 + 4)
    ]


def _last_is_short(run: int, chance: Chance) -> Rows:
    return [(b"/w/arc/dump.tar.%03d" % i, 2_000 * MB if i < 29 else 340 * MB, 0) for i in range(30)]


def _words_that_return(run: int, chance: Chance) -> Rows:
    sizes = (b"alpha", 90), (b"beta", 500), (b"gamma", 20), (b"delta", 1300), (b"epsilon", 5), (b"zeta", 640)
    return [
        (b"/w/case/%s-%s.out" % (word, kind), int(mb * f) * MB, 0)
        for word, mb in sizes
        for kind, f in ((b"init", 1), (b"final", 2))
    ]


def _not_text(run: int, chance: Chance) -> Rows:
    return [(b"/w/\xff\xfe \n/\xe4\xb8\xad%d" % r, (50 + 10 * r) * MB, r) for r in range(12)]


def _shrinks(run: int, chance: Chance) -> Rows:
    """A whole shared out among more ranks each run, whose number stands nowhere in the names."""
    n = 16 * 2**run
    return [(b"/w/strong/proc_%d.bp" % r, 64 * GB // n, r) for r in range(n)]


def _best_and_hashes(run: int, chance: Chance) -> Rows:
    return [(b"/w/exp/weights-%s.ckpt" % (_hex(chance, 8)), 350 * MB, 0) for _ in range(9)] + [
        (b"/w/exp/weights-best.ckpt", 350 * MB, 0),
        (b"/w/exp/weights-last.ckpt", 700 * MB, 0),
    ]


def _hex_counter(run: int, chance: Chance) -> Rows:
    return [(b"/w/hex/page_%02x.raw" % i, (4 if i % 16 else 64) * MB, 0) for i in range(96)]


def _two_cycles(run: int, chance: Chance) -> Rows:
    """Small steps, a large one each fifth, all growing with the step."""
    return [
        (b"/w/osc/s%d.h5" % s, int((2 * GB if s % 5 == 0 else 90 * MB) * (1 + s / 100)), 0)
        for s in range(1, 61)
    ]


ODD = (
    Writer("folder named by a hash", _hashed_folder, lambda run: 24),
    Writer("names are UUIDs", _uuid_names),
    Writer("letters as a counter", _split, lambda run: 1),
    Writer("one letter as a counter", _single_letters, lambda run: 10),
    Writer("process id in a temporary name", _temporary),
    Writer("mkstemp's names", _mkstemp_names, lambda run: 8),
    Writer("times with a point as folders", _dotted_time),
    Writer("steps that go on after a restart", _restarts),
    Writer("time stamps in front", _stamped),
    Writer("objects by their hash in two levels", _sharded),
    Writer("numbers without padding, letters between", _unpadded, lambda run: 12),
    Writer("key=value folders of different depth", _nested, lambda run: 6),
    Writer("hosts and ranks", _hosts),
    Writer("the last part is short", _last_is_short),
    Writer("words that return", _words_that_return),
    Writer("names that are not text", _not_text, lambda run: 12),
    Writer("a whole shared out among more ranks", _shrinks, lambda run: 16 * 2**run),
    Writer("a few names among hashes", _best_and_hashes),
    Writer("a counter in hex, each sixteenth large", _hex_counter),
    Writer("two cycles, growing", _two_cycles),
)


def runs(writer: Writer, count: int, seed: int = 7) -> list[Rows]:
    """So many runs of a program."""
    return [
        raced(writer.write(run, chance), chance)
        for run in range(count)
        for chance in [np.random.default_rng([seed, run])]
    ]
