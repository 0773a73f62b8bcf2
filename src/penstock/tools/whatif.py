# SPDX-License-Identifier: Apache-2.0
"""What-if files: a system and jobs in TOML, to be simulated.  Reading them, and nothing else.

Every mistake names the key; a key that is not known is one.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.base.errors import UsageError
from penstock.base.settings import nearest
from penstock.base.units import parse_byte_rate, parse_size
from penstock.model.surfaces import MACHINES, SURFACES, Machine, Shape
from penstock.policy.placing import ALLOCATORS, stock
from penstock.policy.placing.simulate import Job, System, What
from penstock.policy.tuning import POLICIES
from penstock.policy.tuning.contract import TuneSettings
from penstock.policy.tuning.simulate import Trial

PLACE_DEFAULTS = ("stock at once", "stock", "iez", "iez-renewed", "two-choices", "finish")


@dataclass(frozen=True)
class PlaceFile:
    what: What
    allocators: tuple[str, ...]


@dataclass(frozen=True)
class TuneFile:
    trial: Trial
    policies: tuple[str, ...]


class _Table:
    """A table of the file: each key is taken once, what is left over is a mistake."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where, self.values, self.known = where, dict(values), list[str]()

    def take(self, key: str, read: Callable[[Any], Any], default: Any) -> Any:
        self.known.append(key)
        if key not in self.values:
            return default
        raw = self.values.pop(key)
        try:
            return read(raw)
        except (UsageError, ValueError, TypeError) as error:
            raise UsageError(f"{self.where}: {key} = {raw!r}: {error}") from error

    def end(self) -> None:
        for key in self.values:
            raise UsageError(f"{self.where}: there is no {key!r}{nearest(key, self.known)}")


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(raw: Any) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            raise ValueError(f"write a whole number from {low} to {high:,}")
        return raw

    return read


def _share(raw: Any) -> float:
    text = str(raw).removesuffix("%")
    value = float(text) / 100
    if not str(raw).endswith("%") or not 0 <= value <= 1:
        raise ValueError("write a share like 30%")
    return value


def _between(raw: Any) -> tuple[float, float]:
    low, high = (raw, raw) if isinstance(raw, str) else raw
    return _share(low), _share(high)


def _size(raw: Any) -> float:
    return float(parse_size(str(raw)))


def _rate(raw: Any) -> float:
    return parse_byte_rate(str(raw))


def _bool(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("write true or false")
    return raw


def _words(known: tuple[str, ...]) -> Callable[[Any], tuple[str, ...]]:
    def read(raw: Any) -> tuple[str, ...]:
        for word in raw:
            if word not in known:
                raise ValueError(f"{word!r} is none of {', '.join(known)}")
        return tuple(raw)

    return read


def _one(known: tuple[str, ...]) -> Callable[[Any], str]:
    return lambda raw: _words(known)([raw])[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no file {path}; docs/guide/place.md and tune.md show what to write"
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _top(path: Path) -> tuple[_Table, _Table, list[_Table]]:
    document = _read(path)
    top = _Table(str(path), document)
    system = _Table(f"{path}: [system]", top.take("system", dict, {}))
    how = _Table(f"{path}: [simulate]", top.take("simulate", dict, {}))
    jobs = [_Table(f"{path}: [[job]] {i + 1}", job) for i, job in enumerate(top.take("job", list, []))]
    top.end()
    return system, how, jobs


def place(path: Path) -> PlaceFile:
    """A file for `penstock simulate place`."""
    system, how, jobs = _top(path)
    fallback = System()
    targets = system.take("targets", _whole(1, 10_000), fallback.targets)
    shape = System(
        targets,
        system.take("servers", _whole(1, targets), min(fallback.servers, targets)),
        system.take("target_size", _size, fallback.size_bytes),
        system.take("target_rate", _rate, fallback.rate_bytes_per_s),
        system.take("server_rate", _rate, fallback.server_bytes_per_s),
        system.take("filled", _between, fallback.used),
        system.take("half_busy", _whole(0, targets), 0),
    )
    system.end()
    if shape.size_bytes <= 0 or shape.rate_bytes_per_s <= 0:
        raise UsageError(f"{path}: [system]: target_size and target_rate must be above 0")
    made = []
    for job in jobs:
        files = job.take("files", _whole(1, 100_000), 1)
        made.append(
            Job(
                files,
                job.take("bytes", _size, 1e9 * files),
                job.take("stripes", _whole(1, 2000), 1),
                job.take("mixed", _bool, False),
            )
        )
        job.end()
    if not made:
        raise UsageError(f"{path}: write at least one [[job]] with files, bytes and stripes")
    known = (*ALLOCATORS, stock.RACY.name)
    names = how.take("allocators", _words(known), PLACE_DEFAULTS)
    what = What(
        shape,
        tuple(made),
        how.take("draws", _whole(1, 10_000), 20),
        how.take("seed", _whole(0, 2**31), 1),
        how.take("size_error", _share, 0.0),
        how.take("widen", _whole(0, 100), 0),
    )
    how.end()
    return PlaceFile(what, names)


def tune(path: Path) -> TuneFile:
    """A file for `penstock simulate tune`."""
    system, how, jobs = _top(path)
    base = MACHINES[system.take("machine", _one(tuple(MACHINES)), "large")]
    machine = Machine(
        base.name,
        system.take("targets", _whole(1, 4096), base.targets),
        system.take("target_rate", _rate, base.target_bytes_per_s),
        system.take("node_rate", _rate, base.node_bytes_per_s),
        system.take("processes_per_node", _whole(1, 4096), base.per_node),
        base.largest,
    )
    surface = system.take("surface", _one(tuple(SURFACES)), "series")
    system.end()
    shapes = []
    for job in jobs:
        processes = job.take("processes", _whole(1, 1 << 20), 1)
        shapes.append(
            Shape(
                processes,
                job.take("shared", _bool, False),
                max(job.take("request", _size, float(1 << 20)), 1.0),
                max(job.take("bytes", _size, 1e9 * processes), 1.0),
            )
        )
        job.end()
    policies = how.take("policies", _words(tuple(POLICIES)), ("default", "tapp", "dca", "gauss"))
    trial = Trial(
        machine,
        surface,
        how.take("jobs", _whole(1, 10_000), 40),
        how.take("runs", _whole(3, 1000), 30),
        how.take("noise", _share, 0.2),
        how.take("seed", _whole(0, 2**31), 1),
        how.take("samples_per_run", _whole(1, 16), 1),
        how.take("input_changes_at", _whole(0, 1000), 0),
        how.take("tuned_programs", _share, 0.15),
        TuneSettings(budget=how.take("budget", _whole(0, 1000), TuneSettings().budget)),
        tuple(shapes),
    )
    how.end()
    return TuneFile(trial, policies)
