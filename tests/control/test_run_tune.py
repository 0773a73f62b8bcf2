# SPDX-License-Identifier: Apache-2.0
"""`penstock run --tune` and `--auto`: layouts that change on disk from run to run, and are told of."""

import json
import os
from pathlib import Path

import pytest

from penstock.targets import lov
from tests.control.test_place import PYTHON, Site

pytestmark = pytest.mark.root
MIB = 1 << 20
STOCK = (1, 4 * MIB)  # the testbed's default

APP = """
import os, sys
top, run = sys.argv[1:3]
os.makedirs(f"{top}/out{run}", exist_ok=True)
for step in range(4):
    with open(f"{top}/out{run}/check{step:04d}.dat", "wb", buffering=0) as file:
        for _ in range(8):
            file.write(b"x" * 1048576)
"""


class Tuned(Site):
    def tune(self, number: object, *options: object, how: str = "--tune", status: int = 0) -> str:
        """A run of the program; what is said on standard error."""
        words = ["run", how, "--mount", self.top, "--set", "place.small=64KiB", *options, "--"]
        return self.penstock(*words, PYTHON, self.app, self.top, number, status=status).stderr

    def shapes(self, number: object) -> list[tuple[int, int]]:
        """Count and size of each file's stripes."""
        found = []
        for path in sorted((self.top / f"out{number}").iterdir()):
            part = lov.decode(os.getxattr(path, lov.XATTR)).parts[0]
            found.append((len(part.osts), part.stripe_size_bytes))
        return found

    def explained(self) -> dict:
        """Of the last run."""
        last = json.loads(self.penstock("runs", "list", "--json").stdout)["runs"][0]["run"]
        return json.loads(self.penstock("tune", "explain", last, "--mount", self.top, "--json").stdout)

    def given(self) -> dict:
        return self.explained()["given"]


@pytest.fixture
def site(make_testbed, env, tmp_path) -> Tuned:
    made = Tuned(make_testbed(oss=3, osts=4), env, tmp_path)
    made.app.write_text(APP)
    return made


def test_three_runs_get_other_layouts_and_it_is_told(site):
    assert site.tune(1) == ""
    assert site.shapes(1) == [STOCK] * 4  # the first run is the default
    assert "first run" in site.given()["layouts"][0][2]
    assert site.tune(2) == "" and site.tune(3) == ""
    assert set(site.shapes(2)) != {STOCK}  # where the prior points; the third goes by what was measured
    given = site.given()
    assert given["applied"] and 0 <= given["load"] < 1
    assert set(site.shapes(3)) == {(count, size) for count, size, _ in given["layouts"]}
    shown = json.loads(site.penstock("tune", "show", "app.py", "--mount", site.top, "--json").stdout)
    tried = {(s["stripe_count"], s["stripe_size_bytes"]) for s in shown["samples"]}
    assert tried == {STOCK, *site.shapes(2), *site.shapes(3)}
    last = json.loads(site.penstock("runs", "list", "--json").stdout)["runs"][0]["run"]
    said = site.penstock("tune", "explain", last, "--mount", site.top).stdout
    assert "applied: " in said and "it had " in said


def test_each_checkpoint_of_a_run_gets_its_own_choice(site):
    for number in (1, 2, 3):  # by the third it is known that four files come
        site.tune(number)
    given = site.given()["layouts"]
    assert len(given) == 4  # which they are, and whether they differ, is up to what was measured
    assert site.shapes(3) == [(count, size) for count, size, _ in given]
    own = site.explained()["showed"]
    assert {(s["stripe_count"], s["stripe_size_bytes"]) for s in own} == set(site.shapes(3))


def test_auto_also_chooses_targets_and_a_pin_holds(site):
    site.tune(1, how="--auto")
    site.penstock("tune", "pin", "app.py", "-c", "3", "-S", "2M")
    site.tune(2, how="--auto")
    assert site.shapes(2) == [(3, 2 * MIB)] * 4
    assert sorted(t for row in site.layouts(2) for t in row) == list(range(12))  # each target once
    assert site.given()["layouts"] == [[3, 2 * MIB, "pinned"]]
    assert json.loads(site.penstock("report", "--json").stdout)["placed"]["as_planned"] == 4


def test_a_pin_wider_than_the_file_system_says_so(site):
    site.tune(1)
    site.penstock("tune", "pin", "app.py", "-c", "40", "-S", "2M")
    site.tune(2)
    assert site.shapes(2) == [(12, 2 * MIB)] * 4
    why = "pinned; 40 stripes asked for, 12 usable targets"
    assert site.given()["layouts"] == [[12, 2 * MIB, why]]
    said = site.penstock("place", "plan", "--job", "app.py", "--mount", site.top).stdout
    assert f"tune would choose 12 x 2 MiB: {why}" in said


def test_the_policy_fixed_has_a_setting(site):
    fixed = ("--set", "tune.policy=fixed", "--set", "tune.fixed_count=2", "--set", "tune.fixed_size=4MiB")
    site.tune(1, *fixed)
    site.tune(2, *fixed)
    assert site.shapes(2) == [(2, 4 * MIB)] * 4


def test_modes_say_what_becomes_of_choices_where_nobody_asked(site):
    fixed = ("--set", "tune.policy=fixed", "--set", "tune.fixed_count=2")
    site.tune(1, how="--place")
    site.tune(2, *fixed, how="--place")  # observe
    assert site.shapes(2) == [STOCK] * 4 and site.given() is None
    said = site.tune(3, *fixed, "--set", "tune.mode=advise", how="--place")
    assert site.shapes(3) == [STOCK] * 4 and "tune advises 2 x 1024 KiB" in said
    assert site.given()["applied"] is False
    site.tune(4, *fixed, "--set", "tune.mode=apply", how="--place")
    assert site.shapes(4) == [(2, MIB)] * 4
    site.tune(5, *fixed, how="--place")  # what was tried is not taken for the default
    assert site.shapes(5) == [STOCK] * 4
    site.tune(6, *fixed, how="--tune")
    assert site.shapes(6) == [(2, MIB)] * 4


def test_apply_needs_no_option(site):
    """The mode says that new files get the choices; for one program (tune mode), or for all (the setting)."""
    fixed = ("--set", "tune.policy=fixed", "--set", "tune.fixed_count=3", "--set", "tune.fixed_size=128KiB")
    site.tune(1)
    plain = ["run", "--mount", site.top, "--set", "place.small=64KiB", *fixed]
    site.penstock(*plain, "--", PYTHON, site.app, site.top, 2)
    assert site.shapes(2) == [STOCK] * 4
    site.penstock(*plain, "--set", "tune.mode=apply", "--", PYTHON, site.app, site.top, 3)
    assert site.shapes(3) == [(3, 131072)] * 4
    site.penstock("tune", "mode", "apply", "app.py")
    assert site.penstock(*plain, "--", PYTHON, site.app, site.top, 4).stderr == ""
    assert site.shapes(4) == [(3, 131072)] * 4
    assert site.penstock(*plain, "--", "true").stderr == ""


def test_a_stripe_size_that_is_none_is_not_rounded(site):
    site.tune(1)
    said = site.tune(2, "--set", "tune.policy=fixed", "--set", "tune.fixed_size=100KiB")
    assert "tune.fixed_size is 100 KiB; a stripe's size is a multiple of 64 KiB" in said
    assert site.shapes(2) == [STOCK] * 4


def test_place_plan_shows_what_tune_would_choose(site):
    site.tune(1)
    fixed = ("--set", "tune.policy=fixed", "--set", "tune.fixed_count=2", "--set", "place.small=64KiB")
    words = ["place", "plan", "--job", "app.py", "--mount", site.top, *fixed]
    said = site.penstock(*words).stdout
    assert "tune would choose 2 x 1 MiB: " in said and "(penstock run --tune applies it)" in said
    (plan,) = json.loads(site.penstock(*words, "--json").stdout)["plans"]
    assert plan["tuned"]["applied"] is False and plan["tuned"]["layouts"][0]["stripe_count"] == 2
    assert {e["stripe_count"] for e in plan["entries"] if e["files"]} == {1}
    (plan,) = json.loads(site.penstock(*words, "--set", "tune.mode=apply", "--json").stdout)["plans"]
    assert plan["tuned"]["applied"] is True
    assert {e["stripe_count"] for e in plan["entries"] if e["files"]} == {2}


def test_a_poisoned_history_stops_nobody(site):
    site.tune(1)
    state = Path(site.env["PENSTOCK_STATE_DIR"])
    for file in (state / "tune").glob("*.json"):
        file.write_text('{"load": -7e300, "layouts": [[0, 0, ""]]}')
    site.tune(2)
    assert len(site.shapes(2)) == 4
    (state / "tune.json").write_text('{"programs": {"app.py": {"pin": [0, -1]}}}')
    for file in (state / "tune").glob("*.json"):
        file.write_bytes(b"\0{")
    site.tune(3)
    assert len(site.shapes(3)) == 4
    (state / "tune.json").write_bytes(b"\xff")
    assert "cannot be read" in site.tune(4)
    assert len(site.shapes(4)) == 4


def test_a_plan_that_is_late_stops_nobody(site):
    """Files are created before it is there, or after: all have a layout, and each is counted once."""
    site.tune(1)
    assert site.tune(2, "--set", "place.wait=0s") == ""
    assert len(site.shapes(2)) == 4
    counts = json.loads(site.penstock("report", "--json").stdout)["placed"]
    assert sum(counts.get(name, 0) for name in ("early", "changing", "expected", "unexpected")) >= 4
