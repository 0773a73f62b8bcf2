# SPDX-License-Identifier: Apache-2.0
"""The console blocks of the guide of layouts are run on a testbed and show what happens there."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Bed
from tests.docs.test_guides import GUIDES, steps


def test_what_the_guide_of_layouts_shows(make_testbed: Callable[..., Bed]) -> None:
    bed = make_testbed(oss=2, osts=5, settings={"model": "count", "stats.period": "50ms"})
    (bed.path.parent / "home").mkdir()
    path = f"{bed.folder}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"HOME": str(bed.path.parent / "home"), "PATH": path, "LC_ALL": "C.UTF-8"}
    for step in steps((GUIDES / "layouts.md").read_text(encoding="utf-8")):
        if step.command.startswith("cd ") or step.command.startswith("export "):
            continue
        done = subprocess.run(
            ["bash", "-c", step.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=bed.path,
            env=env,
            timeout=60,
            check=False,
        )
        if step.output:
            assert done.stdout == step.output, f"layouts.md:{step.line}: {step.command}"
        else:
            assert done.returncode == 0, f"layouts.md:{step.line}: {step.command}: {done.stdout}"
    assert sorted(os.listdir(bed.path))[0] == "all.h5"  # noqa: PTH208
