# SPDX-License-Identifier: Apache-2.0
"""`penstock run --place`, `penstock place`: from the history and the targets to files that lie where they should."""

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.base import settings
from penstock.base.errors import PenstockError
from penstock.control import placing
from penstock.policy.placing import contract
from penstock.policy.placing import ledger as books
from penstock.runs.history import History
from penstock.targets import lov
from penstock.targets.driver import Load, Target
from penstock.targets.layouts import Layout
from penstock.targets.mounts import Mount, mount_of

pytestmark = pytest.mark.root
MIB = 1 << 20
PENSTOCK = Path(sys.executable).parent / "penstock"
PENSTOCK_RUN = Path(sys.executable).parent / "penstock-run"
PYTHON = str(Path(sys.executable).resolve())

APP = """
import os, sys
top, run, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(f"{top}/out{run}", exist_ok=True)
for rank in range(count):
    with open(f"{top}/out{run}/rank{rank:04d}.dat", "wb") as file:
        for _ in range(rank % 4 + 1):
            file.write(b"x" * 262144)
"""


class Site:
    """A testbed, and a user with a history of his own."""

    def __init__(self, bed, env: dict[str, str], folder: Path) -> None:
        self.bed, self.env, self.top = bed, env, bed.path
        self.app = folder / "app.py"
        self.app.write_text(APP)

    def penstock(
        self, *words: object, env: dict[str, str] | None = None, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PENSTOCK, *map(str, words)],
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done

    def run(self, number: object, *options: object, count: int = 12) -> str:
        """What is said on standard error."""
        words = ["run", "--place", "--mount", self.top, "--set", "place.small=64KiB", *options, "--"]
        return self.penstock(*words, PYTHON, self.app, self.top, number, count).stderr

    def layouts(self, number: object) -> list[tuple[int, ...]]:
        rows = []
        for path in sorted((self.top / f"out{number}").iterdir()):
            rows.append(tuple(lov.decode(os.getxattr(path, lov.XATTR)).parts[0].osts))
        return rows

    def placed(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.penstock("report", "--json").stdout)["placed"]
        return found


@pytest.fixture
def site(make_testbed, env, tmp_path) -> Site:
    return Site(make_testbed(oss=3, osts=4), env, tmp_path)


def test_the_second_run_is_expected_and_lies_as_planned(site):
    assert site.run(1) == ""
    assert site.placed()["unexpected"] == 12  # nothing was known: spare targets, still balanced
    assert set(collections.Counter(site.layouts(1)).values()) == {1}
    site.run(2)
    site.run(3)
    placed = site.placed()
    assert (placed["expected"], placed["placed"]) == (12, 12)
    assert (placed["checked"], placed["as_planned"]) == (12, 12)
    assert "unexpected" not in placed
    sizes = {i: (i % 4 + 1) * 262144 for i in range(12)}
    load = collections.Counter()
    for i, osts in enumerate(site.layouts(3)):
        load[osts[0]] += sizes[i]
    assert max(load.values()) <= MIB  # twelve files on twelve targets: none has two
    said = site.penstock("report").stdout
    assert "12 of 12 new files were expected" in said and "12 of 12 looked at lie there" in said


def test_plan_says_what_and_why_and_promises_nothing(site):
    site.run(1)
    site.run(2)
    said = site.penstock(
        "place", "plan", "--job", "app.py", "--mount", site.top, "--set", "place.small=300KiB"
    ).stdout
    assert "files are expected" in said and "bytes by target" in said
    document = json.loads(
        site.penstock("place", "plan", "--job", "app.py", "--mount", site.top, "--json", "--dry-run").stdout
    )
    (plan,) = document["plans"]
    stated = [entry for entry in plan["entries"] if None not in entry["values"][-1:]]
    assert sum(entry["files"] for entry in stated) == 12
    assert all(entry["why"] for entry in plan["entries"])
    shown = json.loads(site.penstock("place", "show", "--json").stdout)
    assert shown["promised_bytes"] == {}
    assert shown["runs"][0]["counts"]["expected"] + shown["runs"][0]["counts"].get("unexpected", 0) == 12


def test_show_tells_of_running_plans_and_what_they_promise(site):
    site.run(1)
    site.app.write_text(APP + "print('here', flush=True)\nsys.stdin.read()\n")
    words = [PENSTOCK, "run", "--place", "--mount", site.top, "--set", "place.small=64KiB", "--"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [*words, PYTHON, site.app, site.top, "1", "12"], env=site.env, text=True, **pipes
    ) as running:
        assert running.stdout and running.stdout.readline() == "here\n"
        shown = json.loads(site.penstock("place", "show", "--json").stdout)
        assert shown["runs"][0]["running"]
        (promised,) = shown["promised_bytes"].values()
        assert sum(promised.values()) >= sum((i % 4 + 1) * 262144 for i in range(12))
        text = site.penstock("place", "show").stdout
        assert "runs" in text and "promised" in text
        running.communicate("", timeout=60)
    assert running.returncode == 0
    assert json.loads(site.penstock("place", "show", "--json").stdout)["promised_bytes"] == {}


def test_runs_that_start_together_do_not_pile_up(site):
    """P05: the second counts what the first was promised, though no figure shows it yet."""
    site.run(1)
    load = collections.Counter()
    now_s = time.time()
    ledger = placing.LedgerFile(site.env["PENSTOCK_STATE_DIR"], str(site.top))
    row = contract.Expected(
        contract.Match((os.fsencode(site.top) + b"/x", contract.DIGITS), (None,)), 1e8, files=4
    )
    for i in range(6):
        wish = placing.Wish((str(site.top),), site.env["PENSTOCK_STATE_DIR"], expected=(row,))
        (made,) = placing.make(wish, now_s + i).made
        load.update(t for e in made.plan.entries for turn in e.turns for t in turn)
    assert set(load.values()) == {2} and len(load) == 12
    # What the first run wrote may show in the figures only now, and is taken for some of what was promised.
    assert sum(ledger.outstanding(now_s + 6).values()) == pytest.approx(24e8, rel=0.01)
    assert ledger.outstanding(now_s + placing.LEDGER_S + 10) == {}


@pytest.mark.parametrize(
    "text", ["", "{", '{"runs": 3}', '{"runs": {"a": {"bytes": {"x": 1}, "until_s": 9e99}}}', "\0\xff"]
)
def test_a_damaged_ledger_promises_nothing_and_is_mended(site, text):
    state = Path(site.env["PENSTOCK_STATE_DIR"])
    (state / "place").mkdir(parents=True)
    ledger = placing.LedgerFile(str(state), str(site.top))
    ledger.path.write_text(text)
    assert ledger.outstanding(time.time()) == {}
    site.run(1)
    json.loads(ledger.path.read_text())


def test_where_nothing_can_be_placed_it_is_said(site, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    done = site.penstock("run", "--place", "--mount", plain, "--", PYTHON, site.app, plain, 1, 2)
    assert "nothing can be placed there" in done.stderr
    assert len(list((plain / "out1").iterdir())) == 2


def test_a_mount_with_digits_in_its_path_is_found_without_being_named(site, tmp_path):
    """Digits are fields of the names that are learned; where the last run's files lay says which mount is meant."""
    data, copy = tmp_path / "data", site.top / "copy"
    data.write_bytes(b"x" * MIB)
    options = ["run", "--place", "--set", "place.wait=30s", "--set", "place.small=64KiB"]
    site.penstock(*options, "--mount", site.top, "--", "cp", data, copy)
    copy.unlink()
    assert site.penstock(*options, "--", "cp", data, copy).stderr == ""
    placed = site.placed()
    assert (placed["expected"], placed["placed"], placed["as_planned"]) == (1, 1, 1)
    (plan,) = json.loads(site.penstock("place", "plan", "--job", "cp", "--json").stdout)["plans"]
    assert plan["file_system"] == str(site.top)
    assert plan["entries"][0]["pattern"] == str(copy)


ONLY = """
for at in $(awk '$3 == "fuse.penstock" && $2 != top {print $2}' top="$0" /proc/mounts); do umount -l "$at"; done
exec "$@" """


def test_the_first_run_is_placed_on_a_detected_mount_wherever_it_is_started(site, tmp_path):
    """Nothing is named, nothing is known, and the program stands outside; testbeds of others are not in sight."""
    data = tmp_path / "data"
    data.write_bytes(b"x" * MIB)
    options = ["--place", "--set", "place.wait=30s", "--set", "run.detect=fuse.penstock"]
    words = [PENSTOCK, "run", *options, "--", "cp", data, site.top / "copy"]
    alone = ["unshare", "-m", "--propagation", "private", "sh", "-c", ONLY, site.top]
    subprocess.run([*alone, *words], env=site.env, check=True, timeout=120, cwd="/")
    placed = site.placed()
    assert (placed["unexpected"], placed["spare"]) == (1, 1)


def test_names_below_a_folder_have_it_as_text():
    d, w = contract.DIGITS, contract.WORD
    match = contract.Match((b"/s", d, b"/u", w, b"/out", d), (b"1", None, b"7"))
    assert placing.under(match, b"/s1/") == contract.Match((b"/s1/u", w, b"/out", d), (None, b"7"))
    assert placing.under(match, b"/s01/ux9/") == contract.Match((b"/s01/ux9/out", d), (b"7",))
    assert placing.under(match, b"/") == match
    for other in (b"/s2/", b"/t1/", b"/s1/v/", b"/s1/ux/deeper/", b"/s/"):
        assert placing.under(match, other) is None
    whole = contract.Match((b"/s", d, b"/f"), (None,))
    assert placing.under(whole, b"/s12/") == contract.Match((b"/s12/f",))


def test_a_paused_mds_holds_nobody_up_and_show_says_how_often_and_why(site):
    """The plan is not ready in time; the program goes on with default layouts."""
    site.run(1)
    site.bed.ask("set model=count")
    text = "import sys; print('began', flush=True); sys.stdin.readline(); exec(open(sys.argv[1]).read())"
    source = site.app.with_name("files.py")
    source.write_text("for i in range(3): open(f'{top}/{i}', 'w').close()".replace("{top}", str(site.top)))
    site.bed.ask("set mds.pause=600s")
    options = ["--place", "--mount", site.top, "--set", "place.wait=100ms", "--"]
    words = [PENSTOCK, "run", *options, PYTHON, "-c", text, str(source)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=site.env, text=True, cwd="/", **pipes) as running:
        assert running.stdout and running.stdout.readline() == "began\n"
        children = subprocess.run(["pgrep", "-f", str(site.top)], capture_output=True, text=True, check=False)
        for pid in children.stdout.split():  # whoever still plans is killed: no plan ever comes
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == "1":
                    os.kill(int(pid), signal.SIGKILL)
        site.bed.ask("set mds.pause=0s")
        _, said = running.communicate("\n", timeout=60)
    assert (running.returncode, said) == (0, "")
    row = json.loads(site.penstock("place", "show", "--json").stdout)["runs"][0]
    assert row["counts"].get("early", 0) == 3 and row["counts"]["why_none"] == 1
    shown = site.penstock("place", "show").stdout
    assert "3 left to the file system: the plan was not ready when the program started" in shown


LATE = """
import subprocess, sys
for number, _ in enumerate(sys.stdin):
    name = f"{sys.argv[1]}/late{number}"
    if sys.argv[2] == "link":
        subprocess.run(["bash", "-c", 'echo x > "$0"', name], check=True)
    else:
        open(name, "w").write("x")
    print("made", flush=True)
"""


@pytest.mark.parametrize("named", ["folder", "link", "both"])
def test_a_late_plan_finds_its_board_whatever_of_the_mount_was_named(site, tmp_path, named):
    """A folder in it; a link to one: where that leads, programs know that start when the plan is there."""
    (site.top / "own").mkdir()
    (tmp_path / "link").symlink_to(site.top / "own")
    ways = {"folder": [site.top / "own"], "link": [tmp_path / "link"], "both": [site.top / "own", site.top]}
    options = [word for way in ways[named] for word in ("--mount", way)]
    words = [PENSTOCK, "run", "--place", *options, "--set", "place.wait=1ms", "--"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    until, held = time.monotonic() + 60, False
    with subprocess.Popen(
        [*words, PYTHON, "-c", LATE, site.top, named], env=site.env, text=True, **pipes
    ) as running:
        assert running.stdin and running.stdout
        while not held and time.monotonic() < until:
            running.stdin.write("\n")
            running.stdin.flush()
            assert running.stdout.readline() == "made\n"
            rows = json.loads(site.penstock("place", "show", "--json").stdout)["runs"]
            held = any(row["counts"].get("spare", 0) for row in rows if row["running"])
        running.communicate(timeout=60)
    assert held and running.returncode == 0
    log = Path(site.env["PENSTOCK_STATE_DIR"]) / "penstock.log"
    assert not log.exists() or "too late" not in log.read_text()


def test_a_program_that_cannot_be_started_is_promised_nothing(site):
    site.run(1)
    for _ in range(2):
        site.penstock(
            "run", "--place", "--mount", site.top, "--", site.top / "app.py", site.top, 2, status=127
        )
        assert json.loads(site.penstock("place", "show", "--json").stdout)["promised_bytes"] == {}


def test_files_made_through_links_are_counted_and_have_layouts(make_testbed, site, tmp_path):
    """Out of the file system into another of its kind; into it from outside."""
    other = make_testbed(osts=3)
    (site.top / "out").symlink_to(other.path)
    (tmp_path / "in").symlink_to(site.top)
    text = f"echo one > {site.top}/out/f; echo two > {tmp_path}/in/g; echo three > {site.top}/h"
    for options in (["--mount", site.top], ["--mount", site.top, "--mount", other.path]):
        words = ["run", "--place", *options, "--", "bash", "-c", text]
        assert site.penstock(*words).stderr == ""
        counts = site.placed()
        assert (counts["elsewhere"], counts["linked"], counts["spare"]) == (1, 1, 1)
        assert "1 left to the file system: created by a name outside it" in site.penstock("report").stdout
        for path, said in (
            (other.path / "f", "one\n"),
            (site.top / "g", "two\n"),
            (site.top / "h", "three\n"),
        ):
            assert path.read_text() == said
            path.unlink()


def test_a_plan_file_is_for_ranks_that_a_launcher_starts(site, tmp_path):
    site.run(1)
    site.run(2)
    file = tmp_path / "plan"
    words = ["run", "--place", "--mount", site.top, "--set", "place.small=64KiB", "--plan-file", file, "--"]
    site.penstock(*words, PYTHON, site.app, site.top, "3", "12")
    assert not (site.top / "out3").exists()
    env = {**site.env, "PENSTOCK_PLAN": str(file)}
    subprocess.run([PENSTOCK_RUN, PYTHON, site.app, site.top, "3", "12"], env=env, check=True, timeout=60)
    assert site.placed()["placed"] == 12
    damaged = bytearray(file.read_bytes())
    damaged[200] ^= 1
    file.write_bytes(damaged)
    subprocess.run([PENSTOCK_RUN, PYTHON, site.app, site.top, "4", "12"], env=env, check=True, timeout=60)
    assert len(site.layouts(4)) == 12


def test_a_plan_file_that_is_written_again_promises_once(site, tmp_path):
    site.run(1)
    site.run(2)
    words = [
        "run",
        "--place",
        "--mount",
        site.top,
        "--set",
        "place.small=64KiB",
        "--plan-file",
        tmp_path / "plan",
    ]
    sums = []
    for _ in range(3):
        site.penstock(*words, "--", PYTHON, site.app, site.top, "3", "12")
        (held,) = json.loads(site.penstock("place", "show", "--json").stdout)["promised_bytes"].values()
        sums.append(sum(held.values()))
    assert sums[0] > 0 and sums == [pytest.approx(sums[0])] * 3


def test_a_file_system_that_fails_takes_no_plan_from_another(site, monkeypatch):
    """Nothing is promised for a plan that is not made, and what is made is kept."""
    (one,) = placing.file_systems(placing.Wish((str(site.top),)))[0]
    bad = one[0]._replace(point=f"{one[0].point}/gone")
    row = contract.Expected(contract.Match((os.fsencode(site.top) + b"/x",)), 1e8)
    wish = placing.Wish((str(site.top),), site.env["PENSTOCK_STATE_DIR"], expected=(row,))
    real = placing.look

    def look(mount, *rest):
        if mount == bad:
            raise OSError(5, "Input/output error")
        return real(mount, *rest)

    monkeypatch.setattr(placing, "look", look)
    monkeypatch.setattr(placing, "file_systems", lambda _: ([one, (bad, one[1])], []))
    for made in (placing.make(wish), placing.make_by_site(wish, "/nowhere", lambda _: None)):
        assert [m.mount for m in made.made] == [one[0].point]
        assert made.without == ((bad.point, placing.place_section.WHY_FAILED),)
        assert any("Input/output error" in note for note in made.notes)
    ledger = placing.LedgerFile(site.env["PENSTOCK_STATE_DIR"], one[0].point)
    assert sum(ledger.outstanding(time.time()).values()) == pytest.approx(1e8)
    monkeypatch.setattr(placing, "file_systems", lambda _: ([(bad, one[1])], []))
    with pytest.raises(OSError, match="Input/output"):
        placing.make(wish)


def test_a_changed_default_holds_where_the_folder_was_read(monkeypatch):
    """What the files had last time is wished again only where nobody can know what their folder will say."""
    said = {b"/m": placing.place_section.Default("plain", 4, MIB), b"/m/out": placing.place_section.Default()}
    monkeypatch.setattr(placing, "read_default", said.get)
    folders = placing.Folders("/m")

    def count(*pieces: bytes) -> int:
        row = contract.Expected(contract.Match(pieces, (None,)), 1e9, stripe_count=1, stripe_size_bytes=MIB)
        return folders.apply(row).stripe_count

    assert count(b"/m/out/rank", contract.DIGITS) == 0
    assert count(b"/m/rank", contract.DIGITS) == 0
    assert count(b"/m/out/run", contract.DIGITS, b"/rank") == 1
    assert count(b"/m/new/rank", contract.DIGITS) == 1
    folders.tuned = [contract.Match((b"/m/out/rank", contract.DIGITS), (None,))]
    assert count(b"/m/out/rank", contract.DIGITS) == 1


def test_limits_and_placement_together(site):
    """What placing adds is charged."""
    site.run(1)
    said = site.run(2, "--limit", "open=10k/s")
    assert said == "" and site.placed()["placed"] == 12


def test_a_script_that_starts_the_program_gets_expected_files(site):
    """The record is called after the busiest program in it."""
    script = site.app.with_name("job.sh")
    script.write_text("#!/bin/sh\n" + f'head -c 500000 /dev/zero > "{site.top}/$1.dat"\n')
    script.chmod(0o755)
    words = ["run", "--place", "--mount", site.top, "--set", "place.small=64KiB", "--"]
    for number in (1, 1, 2, 3):
        (site.top / f"{number}.dat").unlink(missing_ok=True)
        site.penstock(*words, script, number)
    last = json.loads(site.penstock("runs", "list", "--json").stdout)["runs"][0]
    assert last["program"] != script.name  # else the test shows nothing
    assert site.placed()["expected"] == 1
    history = History(settings.load(env=site.env), lambda _: None)
    assert placing.program_called(history, [str(script), "3"]) == last["program"]
    assert placing.program_called(history, ["sh", "-c", "other"]) == ""


def test_the_program_is_found_behind_launchers():
    known = ["app", "train.py", "bash -c"]
    assert placing.program_of(["mpirun", "-n", "4", "./app", "x"], known) == "app"
    assert placing.program_of(["env", "A=1", "python3", "-u", "/x/train.py"], known) == "train.py"
    assert placing.program_of(["./other"], known) == ""


def test_busy_shares_need_two_readings_not_too_far_apart():
    old, new = placing.Reading(10.0, {0: 0, 1: 5}), placing.Reading(20.0, {0: 10**9, 1: 1, 2: 7})
    assert placing.busy_shares(old, new, 2e8) == {0: 0.5}
    assert placing.busy_shares(None, new, 2e8) == {}
    assert placing.busy_shares(old._replace(at_s=-1e9), new, 2e8) == {}
    assert placing.busy_shares(old._replace(at_s=25.0), new, 2e8) == {}
    assert placing.busy_shares(old, new, 2e8, {0: 10**9}) == {0: 0.0}  # this user's own last run


def test_own_runs_are_told_from_others(site):
    """What the last run moved is over now: it makes no target busy."""
    site.run(1)
    state = Path(site.env["PENSTOCK_STATE_DIR"])
    history = History(settings.load(env=site.env), lambda _: None)
    assert (
        sum(placing.own_bytes(history, str(site.top), 0.0).values())
        == sum(i % 4 + 1 for i in range(12)) * 262144
    )
    assert placing.own_bytes(history, str(site.top), time.time()) == {}
    assert placing.own_bytes(history, str(state), 0.0) == {}


def test_two_file_systems_have_a_plan_and_a_ledger_each(make_testbed, env, tmp_path):
    one, two = Site(make_testbed(), env, tmp_path), Site(make_testbed(), env, tmp_path)
    one.app.write_text(
        """
import os, sys
for top in sys.argv[1].split(","):
    for i in range(3):
        open(f"{top}/{i}", "wb").write(b"x" * 262144)
print("here", flush=True)
sys.stdin.readline()
"""
    )
    mounts = ["--mount", one.top, "--mount", two.top, "--set", "place.small=64KiB"]
    words = [PENSTOCK, "run", "--place", *mounts, "--", PYTHON, one.app, f"{one.top},{two.top}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for number in (1, 2):
        with subprocess.Popen(words, env=env, text=True, **pipes) as running:
            assert running.stdout and running.stdout.readline() == "here\n"
            promised = json.loads(one.penstock("place", "show", "--json").stdout)["promised_bytes"]
            assert len(promised) == (0 if number == 1 else 2), promised
            assert all(sum(held.values()) >= 3 * 262144 for held in promised.values())
            running.communicate("\n", timeout=60)
        for bed in (one, two):
            for i in range(3):
                (bed.top / str(i)).unlink()
    assert json.loads(one.penstock("place", "show", "--json").stdout)["promised_bytes"] == {}


def test_files_of_a_pool_lie_on_its_targets_alone(make_testbed, env, tmp_path):
    """The pool is seen as a client sees it, below lov/.../pools; what is planned and what is spare respects it."""
    bed = make_testbed(
        oss=3, osts=4, settings={"model": "off", "pool.fast": "1,4,7", "stats.period": "100ms"}
    )
    site = Site(bed, env, tmp_path)
    for number in (1, 2, 3):
        folder = site.top / f"out{number}"
        folder.mkdir()
        template = lov.template(1, MIB, (), "fast")
        os.setxattr(folder, lov.XATTR, lov.encode(lov.Lov(parts=(template,))))
        assert site.run(number) == ""
    for number in (1, 3):
        assert set(site.layouts(number)) == {(1,), (4,), (7,)}
    placed = site.placed()
    assert (placed["expected"], placed["placed"]) == (12, 12) and "of_pool" not in placed


class _Ceph:
    """A file system of one pool an OSD, without one."""

    kind, fs = "ceph", "x"
    cluster = type("Cluster", (), {"ask": staticmethod(lambda _: [{"data_pools": ["osd0"]}])})

    def __init__(self, mount: Mount) -> None:
        self.mount, self.pools = mount, {"osd0": frozenset({0})}

    def targets(self) -> tuple[Target, ...]:
        return (Target(0, "osd.0", "host", 10**12, 10**12),)

    def load(self) -> dict[int, Load]:
        return {0: Load()}

    def health(self) -> dict[int, str]:
        return {0: "up"}

    def layout(self, where: object) -> Layout:
        raise PenstockError("none")


def test_tuning_says_what_it_does_on_cephfs(tmp_path):
    mount = mount_of(tmp_path)
    wish = placing.Wish(state_dir=str(tmp_path), tune=lambda expected, _: (list(expected), None))
    looked = placing.look(mount, _Ceph(mount), wish, time.time())
    (said,) = looked.notes
    assert said.endswith("(CephFS): files go whole to one OSD's pool") and mount.point in said
    assert placing.look(mount, _Ceph(mount), placing.Wish(state_dir=str(tmp_path)), time.time()).notes == ()


def test_a_busy_metadata_server_is_left_alone(make_testbed, env, tmp_path):
    bed = make_testbed(settings={"model": "count", "mds.memory": "80%", "stats.period": "100ms"})
    site = Site(bed, env, tmp_path)
    assert "of its memory" in site.run(1)
    assert "penstock: nothing is placed" in site.run(2)
    shown = site.penstock("place", "show").stdout
    assert "12 left to the file system: the metadata servers were busy" in shown
    assert site.run(3, "--set", "place.mds_memory=90%") == ""


def test_a_killed_agent_leaves_promises_that_run_out(site):
    """kill -9 of penstock-run: nobody says that the run is over; time does."""
    site.run(1)
    words = [PENSTOCK, "run", "--place", "--mount", site.top, "--", "sh", "-c", "echo here; exec sleep 60"]
    with subprocess.Popen(words, env=site.env, text=True, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.readline() == "here\n"
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        running.kill()
        running.wait(20)
        for child in children:
            os.kill(int(child), signal.SIGKILL)
    now_s = time.time()
    ledger = placing.LedgerFile(site.env["PENSTOCK_STATE_DIR"], str(site.top))
    held = ledger.read(now_s)
    assert books.expire(held, now_s + placing.LEDGER_S + 1).runs == {}
    shutil.rmtree(ledger.folder)
