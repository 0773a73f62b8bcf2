# SPDX-License-Identifier: Apache-2.0
"""`penstock simulate` as people type it."""

import json
from pathlib import Path
from typing import Any

import pytest

PLACE = """
[system]
targets = 15
servers = 3
target_size = "10GB"
target_rate = "200MB/s"
server_rate = "800MB/s"
filled = ["5%", "40%"]
half_busy = 4
[[job]]
files = 64
bytes = "32GB"
stripes = 4
mixed = true
[simulate]
draws = 6
allocators = ["stock", "finish"]
"""

TUNE = """
[system]
machine = "small"
surface = "parts"
[[job]]
processes = 8
shared = true
bytes = "16GB"
request = "1MiB"
[simulate]
policies = ["default", "gauss"]
jobs = 6
runs = 8
"""


def test_place_by_allocator(run_penstock: Any, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(PLACE)

    shown = run_penstock("simulate", "place", str(file))
    found = json.loads(run_penstock("simulate", "place", str(file), "--json").stdout)

    assert shown.returncode == 0 and "simulated, 6 draws" in shown.stdout
    stock, ours = found["allocators"]
    assert found["simulated"] is True
    assert ours["makespan_ratio"] < 0.75 * stock["makespan_ratio"]


def test_tune_by_policy(run_penstock: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(TUNE)

    shown = run_penstock("simulate", "tune", str(file))
    found = json.loads(run_penstock("simulate", "tune", str(file), "--json").stdout)

    assert shown.returncode == 0 and "surface `parts`" in shown.stdout
    default, gauss = found["policies"]
    assert gauss["regret"] < default["regret"]


@pytest.mark.parametrize(
    ("what", "text", "said"),
    [
        ("place", "[system]\ntarget = 3\n[[job]]\n", "did you mean targets?"),
        ("place", "[system]\ntargets = 0\n[[job]]\n", "from 1 to"),
        ("place", "[system]\n", "at least one [[job]]"),
        ("place", '[[job]]\nbytes = "much"\n', "is not a size"),
        ("place", '[[job]]\n[simulate]\nallocators = ["magic"]\n', "none of"),
        ("tune", '[simulate]\nnoise = "200%"\n', "a share"),
        ("tune", "[systems]\n", "did you mean system?"),
        ("tune", "[system\n", "line 1"),
    ],
)
def test_mistakes_are_named(run_penstock: Any, tmp_path: Path, what: str, text: str, said: str) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(text)

    shown = run_penstock("simulate", what, str(file))

    assert shown.returncode == 2
    assert said in shown.stderr


def test_no_file(run_penstock: Any, tmp_path: Path) -> None:
    assert run_penstock("simulate", "place", str(tmp_path / "none.toml")).returncode == 2
