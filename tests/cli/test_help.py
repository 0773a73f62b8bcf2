# SPDX-License-Identifier: Apache-2.0
"""`penstock --help` is there at once, also where Python lies on a busy shared file system, and says what there is."""

import re
import resource
import subprocess
import sys
from collections.abc import Sequence

from penstock.cli import verbs
from tests.cli.conftest import Penstock

HEAVY = {
    "msgspec",
    "jinja2",
    "matplotlib",
    "numpy",
    "tomllib",
    "subprocess",
    "asyncio",
    "sqlite3",
    "ctypes",
    "difflib",
}


def cpu_s(words: Sequence[str]) -> float:
    """The least CPU time of several runs."""
    took = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def test_it_names_every_verb(run_penstock: Penstock) -> None:
    shown = run_penstock("--help")
    assert shown.returncode == 0
    for verb in verbs():
        assert re.search(rf"^    {verb}\b", shown.stdout, re.MULTILINE), verb


def test_it_imports_nothing_heavy() -> None:
    code = "import sys; from penstock.cli import main\ntry: main(['--help'])\n"
    code += "except SystemExit: print(*sys.modules, sep='\\n')"
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert HEAVY & set(shown.stdout.splitlines()) == set()


def test_it_costs_little_more_than_argparse() -> None:
    """Against what no Python program with options can do without, in the same run."""
    least = cpu_s([sys.executable, "-c", "import argparse; argparse.ArgumentParser().format_help()"])
    assert cpu_s([sys.executable, "-m", "penstock", "--help"]) <= 4 * least
