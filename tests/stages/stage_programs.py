# SPDX-License-Identifier: Apache-2.0
"""The C programs of this folder, compiled once a session."""

import os
import subprocess
from functools import cache
from pathlib import Path


@cache
def compiled(source: str, *flags: str) -> Path:
    """A C program of this folder."""
    folder = Path(f"/tmp/penstock-test-programs-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    made = folder / source.removesuffix(".c")
    gcc = [
        "gcc",
        "-O1",
        "-Wall",
        "-Werror",
        "-D_GNU_SOURCE",
        Path(__file__).parent / source,
        "-o",
        made,
        "-pthread",
    ]
    subprocess.run([*gcc, *flags], check=True)
    return made
