# SPDX-License-Identifier: Apache-2.0
"""What the experiments on placement share: an emulated file system, writers, runs with and without `--place`, and how
evenly their bytes lie.  Everything goes through the commands that a user types.
"""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from experiments import writers
from penstock.targets import driver as drivers
from penstock.targets import lov
from penstock.testbed import emulated

PENSTOCK = Path(sys.executable).with_name("penstock")
STRIPE_BYTES = 65536
PLAN_S = 20.0
WRITERS = Path(writers.__file__)


@dataclass(frozen=True)
class Job:
    """Processes that write at the same time, as writers.py says; `bytes` is what each process writes in a round."""

    name: str
    processes: int
    stripes: int
    bytes: int
    kind: str = "own"
    rank_growth: float = 0.0  # the file of rank r is larger by this times r: HACC's differ by some per mille
    rounds: int = 1
    reads: bool = True

    @property
    def shared(self) -> bool:
        return self.kind not in writers.OWN

    @property
    def words(self) -> tuple[object, ...]:
        """For writers.py, behind the folder."""
        return (self.kind, self.processes, self.bytes, self.rank_growth, self.rounds, int(self.reads))


@dataclass(frozen=True)
class Took:
    """What a run's writers said of themselves: seconds from the first byte to the last, in both directions."""

    write_s: float
    read_s: float
    bytes: int


class Site:
    """A testbed, and a user whose history is his own."""

    def __init__(self, folder: Path, oss: int, osts: int, settings: Mapping[str, str]) -> None:
        self.top = folder / "pfs"
        self.shape = emulated.Shape(1, oss, osts)
        emulated.up(self.top, self.shape, settings=settings)
        self.servers = {t.id: t.server for t in drivers.driver_for(str(self.top)).targets()}
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}

    def folder(
        self, name: str, stripes: int, targets: Sequence[int] = (), stripe_bytes: int = STRIPE_BYTES
    ) -> Path:
        """A new folder whose files have so many stripes by default (0: as elsewhere), or lie on these targets."""
        path = self.top / name
        path.mkdir()
        if not stripes:
            return path
        part = lov.template(stripes, stripe_bytes, targets)
        os.setxattr(path, lov.XATTR, lov.encode(lov.Lov(parts=(part,))))
        return path

    def start(
        self,
        job: Job,
        folder: Path,
        options: Sequence[str] = (),
        user: str = "user",
        go: Path | None = None,
    ) -> "subprocess.Popen[str]":
        """`options` of `penstock run`; none: the file system chooses.  All runs are recorded, each user's apart.
        The job writes once there is a file `go`."""
        wanted = ("--set", f"place.small={STRIPE_BYTES}", "--set", "place.wait=30s", *options)
        # One program a job: its name is what the history goes by.
        program = self.top.parent / f"{job.name}.py"
        program.write_bytes(WRITERS.read_bytes())
        whole = self.command(
            "run", "--mount", self.top, *wanted, "--", sys.executable, program, folder, *job.words
        )
        env = self.env_of(user) | ({"WRITERS_GO": str(go)} if go else {})
        return subprocess.Popen(whole, env=env, text=True, stdout=subprocess.PIPE, cwd="/")

    def start_bare(self, job: Job, folder: Path) -> "subprocess.Popen[str]":
        """Without Penstock."""
        whole = [str(word) for word in (sys.executable, WRITERS, folder, *job.words)]
        return subprocess.Popen(
            whole, env=self.env, text=True, stdout=subprocess.PIPE, cwd="/", start_new_session=True
        )

    def stop(self, running: "subprocess.Popen[str]") -> None:
        """One that was started bare, with its writers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)

    def command(self, *words: object) -> list[str]:
        """Of penstock, about this file system."""
        return [str(word) for word in (PENSTOCK, *words)]

    def env_of(self, user: str) -> dict[str, str]:
        return {**self.env, "PENSTOCK_STATE_DIR": str(self.top.parent / user)}

    def took(self, running: "subprocess.Popen[str]") -> Took:
        said, _ = running.communicate(timeout=300)
        if running.returncode:
            raise SystemExit(f"experiment: the writers ended with status {running.returncode}")
        return Took(**json.loads(said.splitlines()[-1]))

    def run(self, job: Job, folder: Path, options: Sequence[str] = (), user: str = "user") -> Took:
        return self.took(self.start(job, folder, options, user))

    def promised(self) -> float:
        """Bytes that running plans have on targets."""
        shown = self.command("place", "show", "--json")
        done = subprocess.run(shown, env=self.env_of("user"), capture_output=True, text=True, check=True)
        by_file_system = json.loads(done.stdout)["promised_bytes"].values()
        return sum(sum(of_targets.values()) for of_targets in by_file_system)

    def run_together(self, jobs: Sequence[Job], folders: Sequence[Path], allocator: str) -> None:
        """Jobs of which each is planned while those before it are promised; all write at the same time."""
        go = self.top.parent / "go"
        go.unlink(missing_ok=True)
        running, before = [], 0.0
        try:
            for job, folder in zip(jobs, folders, strict=True):
                running.append(self.start(job, folder, by(allocator), go=go))
                before = self._planned(before) if allocator else 0.0
        finally:
            go.touch()
            for process in running:
                self.took(process)

    def _planned(self, before: float) -> float:
        """What is promised, once it is more than before; a plan may place nothing."""
        until_s = time.monotonic() + PLAN_S
        while (now := self.promised()) <= before and time.monotonic() < until_s:
            time.sleep(0.05)
        return now

    def load(self, *folders: Path) -> dict[int, float]:
        """Bytes of all files of folders by target, as their layouts say."""
        load: Counter[int] = Counter(dict.fromkeys(range(self.shape.targets), 0))
        for path in (path for folder in folders for path in folder.iterdir()):
            osts = lov.decode(os.getxattr(path, lov.XATTR)).parts[0].osts
            whole, rest = divmod(path.stat().st_size, STRIPE_BYTES)
            for i in range(len(osts)):
                load[osts[i]] += (whole // len(osts) + (i < whole % len(osts))) * STRIPE_BYTES
            if rest:
                load[osts[whole % len(osts)]] += rest
        return dict(load)

    def by_server(self, load: Mapping[int, float]) -> list[float]:
        """Bytes by server, as the file system says which targets are whose."""
        return [
            sum(load[i] for i, s in self.servers.items() if s == name)
            for name in sorted(set(self.servers.values()))
        ]


def by(allocator: str) -> tuple[str, ...]:
    """Options of `penstock run`: files placed by this allocator; none: the file system chooses."""
    return ("--place", "--set", f"place.allocator={allocator}") if allocator else ()


def cost(load: Sequence[float]) -> float:
    """The published measure of balance: the fullest over the mean."""
    return max(load) / (statistics.fmean(load) or 1.0)


def floor(stripes: int, targets: int) -> float:
    """What whole equal stripes can reach."""
    return -(-stripes // targets) / (stripes / targets)


@contextlib.contextmanager
def site(oss: int, osts: int, settings: Mapping[str, str]) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-experiment."))
    try:
        yield Site(folder, oss, osts, settings)
    finally:
        with contextlib.suppress(Exception):
            emulated.down(f"{folder}/pfs.testbed", purge=True)
        for mount in emulated.mounts():
            if mount.path.startswith(f"{folder}/"):
                emulated.unmount(mount.path, force=True)
        rmtree(folder, ignore_errors=True)


def job_of(text: str, bytes_a_stripe: int) -> Job:
    """`ior-16x4`, `hacc-32x8`, `shared-8x8`: processes times stripes; `ior-16x4x8` has stripes eight times as large."""
    found = re.fullmatch(r"(ior|hacc|shared)-(\d+)x(\d+)(?:x(\d+))?", text)
    if not found:
        raise SystemExit(f"experiment: {text!r} is no job; write it like ior-16x4")
    kind, processes, stripes, times = found[1], int(found[2]), int(found[3]), int(found[4] or 1)
    growth = 0.004 if kind == "hacc" else 0.0
    size = stripes * times * bytes_a_stripe
    return Job(text, processes, stripes, size, "shared" if kind == "shared" else "own", growth)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
