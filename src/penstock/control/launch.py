# SPDX-License-Identifier: Apache-2.0
"""How `penstock run` starts a program: it becomes penstock-run, which is the job's agent while the program runs.

Invariants:
1. Nothing of this process is left in the program: it gets the environment, files and signals that we were given.
2. What penstock-run is told are settings alone, each checked here; it reads no file for them again in another way.
"""

from __future__ import annotations

import os
import sys

from penstock.base.errors import PenstockError

TYPE_CHECKING = False  # typing's, without importing it
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

# What penstock-run knows; the rest of the schema does not concern launching.
PASSED_ON = (
    "state_dir",
    "history.dir",
    "history.readers",
    "board.dir",
    "board.max_size",
    "record.files_max",
    "record.sample_every",
    "run.stages",
    "run.mounts",
    "run.detect",
    "agent.socket",
    "catalog.file",
    "catalog.root",
    "catalog.ring_size",
)


def penstock_run() -> str:
    """The path of penstock-run: beside this Python's programs, or of a user's own installation."""
    places = [os.path.join(sys.prefix, "bin")]  # noqa: PTH118 - no pathlib on the way to the program
    places.append(os.path.dirname(os.path.abspath(sys.argv[0])))  # noqa: PTH100, PTH120
    for place in places:
        path = f"{place}/penstock-run"
        if os.access(path, os.X_OK):
            return path
    raise PenstockError(
        f"penstock-run is missing in {places[0]}; install Penstock again (pip install --force-reinstall penstock)"
    )


def arguments(
    held: Mapping[str, Any], command: Sequence[str], verbose: bool = False, plan: str = "", waits: int = -1
) -> list[str]:
    """What penstock-run is called with; settings that `held` lacks are read by it."""
    words = ["penstock-run", "--as-penstock-run-verb", *(["--plan", plan] if plan else [])]
    words += ["--tell-board", str(waits)] if waits >= 0 else []
    if held:
        from penstock.base import settings

        for name in PASSED_ON:
            words += ["--set", f"{name}={settings.BY_NAME[name].type.write(held[name])}"]
    return [*words, *(["-v"] if verbose else []), "--", *command]


def original_environment() -> dict[bytes, bytes]:
    """The environment as we were given it: Python sets LC_CTYPE in a C locale, and that is not the program's."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            rows = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for row in rows:
        name, equals, value = row.partition(b"=")
        if equals and name:
            found.setdefault(name, value)
    return found


def _as_descriptor(plan: bytes) -> str:
    """The plan as memory that penstock-run inherits, reads and closes: no file is left behind."""
    fd = os.memfd_create("penstock-plan", 0)
    os.write(fd, plan)
    os.lseek(fd, 0, os.SEEK_SET)
    return f"fd:{fd}"


def run(
    held: Mapping[str, Any],
    command: Sequence[str],
    verbose: bool = False,
    plan: bytes = b"",
    waits: int = -1,
) -> NoReturn:
    """Become penstock-run with this command and the bytes of a plan (native/launch/plan.h).  `waits`: a descriptor at
    which somebody waits for the board's name."""
    path = penstock_run()
    given = _as_descriptor(plan) if plan else ""
    try:
        os.execve(path, arguments(held, command, verbose, given, waits), original_environment())
    except OSError as error:
        raise PenstockError(f"{path} cannot be started ({error.strerror}); install Penstock again") from error
