# SPDX-License-Identifier: Apache-2.0
"""`penstock tune` as people type it."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.base import settings
from penstock.control import tuner
from penstock.policy.placing.contract import Situation, Target
from penstock.runs import record
from penstock.runs.history import History as Runs
from tests.runs import written

MIB = 1 << 20


def runs(
    history: Path, program: str, shown: list[tuple[int, float]], first: int = 0, **fields: Any
) -> list[bytes]:
    """Runs of 8 ranks that write 8 GB: with so many stripes, in so many seconds."""
    rows = [(b"/s/out.%02d" % r, 10**9, r) for r in range(8)]
    ids = []
    for number, (count, seconds) in enumerate(shown, first):
        layout = record.Layout("lustre.lov", b"", count, MIB, list(range(count)))
        ids.append(written.put(history, program, number, rows, 8, seconds=seconds, layout=layout, **fields))
    return ids


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def test_show_the_samples_and_the_next_layout(run_penstock: Any, history: Path) -> None:
    runs(history, "app", [(1, 20.0), (4, 6.0), (8, 5.0)])

    shown = run_penstock("tune", "show", "app", "--targets", "16")

    assert shown.returncode == 0, shown.stderr
    assert "8 writers, a file each" in shown.stdout
    assert "8 x 1MiB" in shown.stdout and "times the default" in shown.stdout
    assert "mode observe" in shown.stdout


def test_the_decision_as_json_and_explained_from_the_record(run_penstock: Any, history: Path) -> None:
    ids = runs(history, "app", [(1, 20.0), (4, 6.0), (8, 5.0)])

    found = json.loads(run_penstock("tune", "show", "app", "--targets", "16", "--json").stdout)
    second = json.loads(run_penstock("tune", "explain", ids[1].hex(), "--targets", "16", "--json").stdout)

    assert [s["stripe_count"] for s in found["samples"]] == [1, 4, 8]
    assert found["samples"][0]["bytes_per_s"] == pytest.approx(8e9 / 20)
    assert found["next"]["layout"]["stripe_count"] >= 4
    assert len(second["before"]) == 1 and second["showed"][0]["stripe_count"] == 4
    assert "second run" in second["choice"]["why"]


def test_a_choice_is_explained_without_what_came_later(run_penstock: Any, history: Path) -> None:
    """Neither its own later runs nor those of others count."""
    ids = runs(history, "app", [(1, 20.0), (4, 6.0)])
    words = ("tune", "explain", ids[1].hex(), "--targets", "16", "--json")
    then = json.loads(run_penstock(*words).stdout)
    runs(history, "app", [(8, 1.0), (16, 60.0)], first=2)
    runs(history, "other", [(1, 20.0), (4, 6.0), (16, 0.5), (2, 0.5)], first=2)

    assert json.loads(run_penstock(*words).stdout) == then
    assert len(then["before"]) == 1 and "second run" in then["choice"]["why"]


def test_names_are_resolved_as_show_does(run_penstock: Any, history: Path) -> None:
    runs(history, "application", [(1, 20.0)])

    pinned = run_penstock("tune", "pin", "appli", "-c", "8")
    assert pinned.stdout.startswith("application:") and pinned.stderr == ""
    assert json.loads(run_penstock("tune", "show", "application", "--json").stdout)["pinned"]
    unknown = run_penstock("tune", "mode", "apply", "never")
    assert unknown.returncode == 0 and "no run of 'never' is recorded" in unknown.stderr
    runs(history, "applied", [(1, 20.0)])
    assert "type more of it" in run_penstock("tune", "forget", "appli").stderr


def test_layouts_on_degraded_targets_do_not_teach(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N03: which targets took no new files when the run began is remembered with its plan."""
    held = settings.load(env={"PENSTOCK_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)})
    targets = [Target(i, usable=i != 3) for i in range(8)]
    _, given = tuner.apply(Runs(held, print), held, "app", [], Situation("/s", 0.0, targets), True)
    tuner.remember(tmp_path, 7, given)
    runs(history, "app", [(1, 20.0), (4, 6.0)])
    kept = tuner.given_to
    monkeypatch.setattr(
        tuner, "given_to", lambda state, run: kept(state, type("Run", (), {"placed": {"plan_ns": 7}}))
    )

    known = tuner.known(Runs(held, print), "app", tuner.Words(), tmp_path)

    assert [s.teaches for s in known.samples] == [True, False]


def test_a_past_run_is_told_of_as_past(run_penstock: Any, history: Path) -> None:
    ids = runs(history, "app", [(1, 20.0), (4, 6.0)])

    said = run_penstock("tune", "explain", ids[1].hex(), "--targets", "16").stdout

    assert "by gauss it would have been " in said and "next run" not in said
    assert "1 sample stood before it" in said


def test_failed_runs_do_not_teach(run_penstock: Any, history: Path) -> None:
    """N03."""
    runs(history, "app", [(1, 20.0), (4, 0.001)], status=1)

    found = json.loads(run_penstock("tune", "show", "app", "--json").stdout)

    assert [s["teaches"] for s in found["samples"]] == [False, False]
    assert "0 samples" in found["next"]["why"]


def test_pin_and_unpin(run_penstock: Any, history: Path) -> None:
    runs(history, "app", [(1, 20.0)])

    assert run_penstock("tune", "pin", "app", "-c", "8", "-S", "4M").returncode == 0
    pinned = json.loads(run_penstock("tune", "show", "app", "--json").stdout)
    assert (pinned["pinned"], pinned["next"]["layout"]) == (
        True,
        {"stripe_count": 8, "stripe_size_bytes": 4 * MIB},
    )
    run_penstock("tune", "pin", "app")
    assert not json.loads(run_penstock("tune", "show", "app", "--json").stdout)["pinned"]
    assert run_penstock("tune", "pin", "app", "-c", "8", "-S", "100k").returncode == 2


def test_forget_hides_runs_from_tuning_only(run_penstock: Any, history: Path) -> None:
    runs(history, "app", [(1, 20.0), (4, 6.0)])

    run_penstock("tune", "forget", "app")

    found = json.loads(run_penstock("tune", "show", "app", "--json").stdout)
    assert found["samples"] == [] and found["request_bytes"] is None
    said = run_penstock("tune", "show", "app").stdout
    assert "app: nothing is known of how it writes: no run has written since it was forgotten" in said
    assert "requests of" not in said
    assert len(json.loads(run_penstock("runs", "--json").stdout)["runs"]) == 2


def test_modes(run_penstock: Any, history: Path) -> None:
    runs(history, "app", [(1, 20.0)])

    run_penstock("tune", "mode", "apply", "app")

    assert json.loads(run_penstock("tune", "show", "app", "--json").stdout)["mode"] == "apply"
    assert run_penstock("tune", "mode", "apply").returncode == 2


def test_a_damaged_file_of_words_is_said(run_penstock: Any, history: Path, tmp_path: Path) -> None:
    runs(history, "app", [(1, 20.0)])
    (tmp_path / "tune.json").write_text("{")

    shown = run_penstock("tune", "show", "app")

    assert shown.returncode == 0
    assert "cannot be read" in shown.stderr


def test_the_published_policies_can_be_asked(run_penstock: Any, history: Path) -> None:
    runs(history, "app", [(1, 20.0), (1, 6.0)])

    for policy, count in (("tapp", 1), ("dca", 2), ("default", 1)):
        found = json.loads(
            run_penstock(
                "tune", "show", "app", "--targets", "16", "--set", f"tune.policy={policy}", "--json"
            ).stdout
        )
        assert found["next"]["layout"]["stripe_count"] == count
