# SPDX-License-Identifier: Apache-2.0
"""Performance surfaces: how quickly a made-up job writes with each layout.  Pure; to compare policies with, never to
promise anything about a real file system.

Two of different shape.  `series`: limits one behind the other (clients, targets touched) softened, then efficiencies:
locks of a shared object, streams on a target, request against stripe, stragglers.  `parts`: the times of what happens
add up: latency of each request, locks that change hands, seeks between streams, setting up; stripes smaller than
requests cut them, larger ones let neighbours collide.  Best layouts lie at other places and the hills have other
slopes.

A job has a hidden taste, drawn by chance; what is known of it before it runs is its Shape.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MIB = 1 << 20


@dataclass(frozen=True)
class Machine:
    """A file system and its clients."""

    name: str
    targets: int
    target_bytes_per_s: float
    node_bytes_per_s: float
    per_node: int  # processes of a node
    largest: int  # log2 of the most processes of a job, exclusive


LARGE = Machine("large", 256, 2.8e9, 1.6e9, 32, 12)
SMALL = Machine("small", 4, 5e8, 2.5e9, 8, 4)
MACHINES = {m.name: m for m in (LARGE, SMALL)}


@dataclass(frozen=True)
class Shape:
    """What can be known of a job."""

    processes: int
    shared: bool
    request_bytes: float
    bytes: float


@dataclass(frozen=True)
class Job:
    """A recurring job: its shape, its taste, and how busy the targets are."""

    machine: Machine
    shape: Shape
    taste: tuple[float, ...]
    load: float


def draw_job(machine: Machine, chance: np.random.Generator) -> Job:
    processes = int(2 ** chance.integers(0, machine.largest))
    shared = bool(chance.random() >= 0.5)
    request = float(2 ** chance.integers(16, 27))
    size = float(processes * 10 ** chance.uniform(7.5, 9.7))
    taste = tuple(chance.normal(0, 1, 4).tolist())
    return Job(machine, Shape(processes, shared, request, size), taste, float(chance.uniform(0.0, 0.6)))


def series(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """Bytes a second by layout: limits in series."""
    m, s, h = job.machine, job.shape, job.taste
    files = 1 if s.shared else s.processes
    nodes = math.ceil(s.processes / m.per_node)
    client = nodes * m.node_bytes_per_s * min(1.0, 0.25 + s.processes / nodes / 8)
    touched = m.targets * (1 - (1 - counts / m.targets) ** files)
    storage = touched * m.target_bytes_per_s * 0.2 * (1 - job.load)
    if s.shared:
        streams = np.maximum(1, s.processes / counts)
        share = 1 / (1 + 0.10 * math.exp(0.5 * h[0]) * np.log2(streams) ** 1.2)
        limit = np.minimum(client, storage)
    else:
        streams = files * counts / touched
        share = 1 / (1 + 0.04 * math.exp(0.4 * h[0]) * np.maximum(streams - 1, 0) ** 0.6)
        one = np.minimum(
            min(client, m.node_bytes_per_s * math.exp(0.4 * h[3])), counts * m.target_bytes_per_s * 0.2
        )
        limit = np.minimum(np.minimum(client, storage), files * one)
    want = np.clip(math.log2(s.request_bytes / MIB) + 0.7 * h[1] + (0.0 if s.shared else 1.0), 0, 6)
    match = 1 / (1 + (0.16 if s.shared else 0.05) * np.abs(np.log2(sizes / MIB) - want))
    straggle = 1 / (1 + job.load * math.exp(0.3 * h[2]) * 0.06 * np.log2(counts + 1) ** 1.3)
    soft = (limit**-4.0 + (1.2 * client) ** -4.0) ** -0.25
    setup = 0.02 + 0.0015 * files * counts / min(files, 64) * math.exp(0.3 * h[3])
    found: Floats = s.bytes / (s.bytes / (soft * share * match * straggle) + setup)
    return found


def parts(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """Bytes a second by layout: times of parts add up."""
    m, s, h = job.machine, job.shape, job.taste
    files = 1 if s.shared else s.processes
    each = s.bytes / files
    used = np.minimum(counts, np.maximum(each / sizes, 1.0))  # stripes beyond the file's end hold nothing
    touched = m.targets * (1 - (1 - used / m.targets) ** files)
    nodes = math.ceil(s.processes / m.per_node)
    wire = s.bytes / (nodes * m.node_bytes_per_s)
    streams = s.processes * np.where(np.full(len(counts), s.shared), 1.0, used) / touched
    seek = 1 + 0.12 * math.exp(0.5 * h[0]) * np.log2(np.maximum(streams, 1))
    storage = s.bytes * seek / (touched * m.target_bytes_per_s * 0.25 * (1 - job.load))
    pieces = np.maximum(s.request_bytes / sizes, 1.0)  # a request is cut at stripes
    requests = s.bytes / s.request_bytes * pieces / s.processes
    latency = requests * 2.5e-4 * math.exp(0.4 * h[1])
    handovers = np.zeros(len(counts))
    if s.shared:
        collide = np.clip(sizes / s.request_bytes, 0.1, 16) * s.processes / np.maximum(used, 1)
        handovers = s.bytes / s.processes / sizes * 3e-4 * math.exp(0.6 * h[2]) * np.sqrt(collide)
    setup = 0.03 + 4e-4 * files / nodes * used + 2e-3 * np.sqrt(used) * math.exp(0.5 * h[3])
    time = np.maximum(wire, storage) + 0.3 * np.minimum(wire, storage) + latency + handovers + setup
    found: Floats = s.bytes / time
    return found


SURFACES: dict[str, Callable[[Job, Floats, Floats], Floats]] = {"series": series, "parts": parts}


def observed(rate: float, sigma: float, chance: np.random.Generator) -> float:
    """A rate as one run shows it: noise, and now and then half of it."""
    halved = 0.5 if chance.random() < 0.03 else 1.0
    return float(rate * chance.lognormal(-(sigma**2) / 2, sigma) * halved)


def changed(job: Job, bytes_times: float, processes_by: int) -> Job:
    """The job with other input."""
    s = job.shape
    shape = Shape(max(1, s.processes // processes_by), s.shared, s.request_bytes, s.bytes * bytes_times)
    return Job(job.machine, shape, job.taste, job.load)


def rates(surface: str, job: Job, layouts: Sequence[tuple[int, int]]) -> Floats:
    """Of every layout (count, size)."""
    counts = np.array([float(c) for c, _ in layouts])
    sizes = np.array([float(s) for _, s in layouts])
    return SURFACES[surface](job, counts, sizes)
