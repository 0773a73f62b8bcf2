# SPDX-License-Identifier: Apache-2.0
"""penstock policy check on one file for each mistake, in tests/policy/wrong: the first line says what is told.

# LINE: SENTENCE
"""

import json
from pathlib import Path

import pytest

WRONG = sorted((Path(__file__).parents[1] / "policy/wrong").glob("*.toml"))


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_each_mistake_has_its_line_and_its_sentence(path: Path, run_penstock) -> None:  # type: ignore[no-untyped-def]
    told = path.read_text().splitlines()[0].removeprefix("# ")

    done = run_penstock("policy", "check", str(path))
    as_json = run_penstock("policy", "check", str(path), "--json")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"{path}:{told}"
    line, _, text = told.partition(": ")
    assert json.loads(as_json.stdout)["mistakes"][0] == {"file": str(path), "line": int(line), "text": text}


def test_a_right_one_is_told_too(tmp_path: Path, run_penstock) -> None:  # type: ignore[no-untyped-def]
    right = tmp_path / "site.toml"
    right.write_text('[[limit]]\nrate = "1k/s"\n')

    done = run_penstock("policy", "check", str(right))
    missing = run_penstock("policy", "check", str(tmp_path / "none.toml"))

    assert (done.returncode, done.stdout) == (0, f"{right} is right: 1 limit, 0 rules for jobs\n")
    assert missing.returncode == 2
    assert missing.stderr.endswith("none.toml cannot be read (No such file or directory)\n")
