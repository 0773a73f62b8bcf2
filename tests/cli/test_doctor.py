# SPDX-License-Identifier: Apache-2.0
"""`penstock doctor -- ./app` as a user types it: what is not seen is named, with the reason and what to do."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock

WAITS = "#include <unistd.h>\nint main(void) { usleep(300000); return 0; }\n"


@pytest.fixture
def static(tmp_path: Path) -> Path:
    path = tmp_path / "static-app"
    subprocess.run(["gcc", "-static", "-x", "c", "-", "-o", path], input=WAITS, text=True, check=True)
    return path


def test_the_installation_alone(run_penstock: Penstock) -> None:
    shown = run_penstock("doctor")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert {line.split()[0] for line in shown.stdout.splitlines()} == {"ok"}


def test_a_program_that_is_seen(run_penstock: Penstock) -> None:
    """What it prints goes where it is no answer of doctor's."""
    shown = run_penstock("doctor", "--", "cat", "/etc/hostname")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[-1].endswith("1 process seen and recorded")
    assert shown.stderr == Path("/etc/hostname").read_text()


def test_json_is_json_whatever_the_program_prints(run_penstock: Penstock) -> None:
    shown = run_penstock("doctor", "--json", "--", "echo", "no json")
    document = json.loads(shown.stdout)
    assert document["schema_version"] == 1
    assert {row["level"] for row in document["findings"]} <= {"ok", "warn"}, document["findings"]


def test_a_static_program_is_not_even_tried(run_penstock: Penstock, static: Path) -> None:
    shown = run_penstock("doctor", "--", str(static))
    assert shown.returncode == 1
    assert "is statically linked" in shown.stdout
    assert "→ link it dynamically" in shown.stdout
    assert "trial run" not in shown.stdout


def test_i21_the_trial_run_names_processes_that_ran_unseen(run_penstock: Penstock, static: Path) -> None:
    """A static program inside of a script, and one that was told to leave Penstock out."""
    script = f"{static}; PENSTOCK_DISABLE=1 env -u LD_PRELOAD PENSTOCK_DISABLE=1 sleep 0.3; true"
    shown = run_penstock("doctor", "--", "bash", "-c", script)
    lines = shown.stdout.splitlines()
    [found] = [line for line in lines if "static-app" in line]
    assert found.startswith("warn")
    assert "ran unseen (1 process): is statically linked" in found
    assert any("trial run" in line and "recorded" in line for line in lines)


def test_a_failing_program_is_told(run_penstock: Penstock) -> None:
    shown = run_penstock("doctor", "--", "sh", "-c", "exit 7")
    assert "ended with status 7" in shown.stdout


@pytest.fixture
def go_program(tmp_path: Path) -> Iterator[Path]:
    """What tells a Go program is a section's name."""
    path = tmp_path / "go-app"
    note = '__attribute__((section(".note.go.buildid"))) const char id[] = "x"; int main(void) { return 0; }'
    subprocess.run(["gcc", "-x", "c", "-", "-o", path], input=note, text=True, check=True)
    yield path


def test_a_go_program(run_penstock: Penstock, go_program: Path) -> None:
    shown = run_penstock("doctor", "--no-run", "--", str(go_program))
    assert shown.returncode == 1
    assert "Go program" in shown.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sudo", "true"], "sudo … penstock run"),
        (["no-such-program"], "is not found"),
        (["mpirun", "-n", "2", "true"], "penstock-run"),
    ],
)
def test_launchers_and_mistakes(words: list[str], says: str, run_penstock: Penstock) -> None:
    shown = run_penstock("doctor", "--no-run", "--", *words)
    assert says in shown.stdout


def test_a_chosen_folder_of_boards_is_looked_at_and_tried(run_penstock: Penstock, tmp_path: Path) -> None:
    open_to_all = tmp_path / "boards"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    done = run_penstock("doctor", "--set", f"board.dir={open_to_all}")
    assert done.returncode == 1
    assert f"fail  board        {open_to_all} is not a folder that you alone can write" in done.stdout
    open_to_all.chmod(0o700)
    done = run_penstock("doctor", "--set", f"board.dir={open_to_all}", "--", "cat", "/etc/hostname")
    assert (done.returncode, list(open_to_all.iterdir())) == (0, [])
    assert "1 process seen and recorded" in done.stdout
