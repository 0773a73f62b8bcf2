# SPDX-License-Identifier: Apache-2.0
"""Stripe counts and sizes for a program's next run: gathers what the policy needs, keeps what people said of it.

What people said (pins, modes, what is to be forgotten) stands in `tune.json` in the state folder.  What a run was given
and how busy the targets were at its start stands in a file of its own, `tune/PLAN.json`, by the plan that its record
names.  Everything else is in the history, so any choice can be made again from the record.

Invariants:
1. Files are replaced whole; a `tune.json` that cannot be read counts as empty, and that is said.
2. A pin goes before the policy; `forget` hides runs that began before it from tuning, not from the history.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from penstock.base import units
from penstock.base.errors import DeniedError, UsageError
from penstock.base.settings import Settings
from penstock.base.text import plural
from penstock.policy.placing.contract import ALIGN_BYTES, Expected, Situation
from penstock.policy.tuning import decide_after, several_after
from penstock.policy.tuning.contract import (
    Context,
    Decision,
    Fleet,
    Grid,
    Layout,
    Observation,
    Other,
    Sample,
    TuneSettings,
)
from penstock.policy.tuning.groups import groups_of
from penstock.policy.tuning.prior import fit
from penstock.runs import learned, merge, tuned
from penstock.runs.history import History

RUNS_MAX = 60
OTHERS_MAX = 150
GIVEN_MAX = 2000  # runs whose layouts are remembered
FREEZE_GAIN = 0.02


class Said(msgspec.Struct):
    """What people said of one program."""

    pin: tuple[int, int] | None = None  # stripe count and size
    mode: str = ""
    since_ns: int = 0


class Words(msgspec.Struct):
    """All of tune.json."""

    programs: dict[str, Said] = {}
    version: int = 1


class Given(msgspec.Struct):
    """What the tuner did to one run."""

    load: float = 0.0  # the share of the targets that others used at its start
    applied: bool = False
    layouts: list[tuple[int, int, str]] = []  # count, size and why, by group of files
    policy: str = ""
    degraded: list[int] = []  # targets that took no new files then, degraded ones among them
    version: int = 1


def words(path: Path, note: Callable[[str], None]) -> Words:
    """What was said so far."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Words)
    except FileNotFoundError:
        return Words()
    except (OSError, msgspec.DecodeError) as error:
        note(f"{path} cannot be read ({error}); tuning goes on as if nothing had been said")
        return Words()


def say(path: Path, held: Words) -> None:
    """Keep it, whole."""
    _keep(path, held)


def _keep(path: Path, held: msgspec.Struct) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = path.with_suffix(".new")
        with open(aside, "wb") as out:  # noqa: PTH123 - a path would not be shorter
            out.write(json.dumps(msgspec.to_builtins(held), indent=1).encode())
            out.flush()
            os.fsync(out.fileno())
        aside.rename(path)
    except OSError as error:
        raise DeniedError(f"{path} cannot be written ({error.strerror}); mend its rights") from error


def path_of(state_dir: Path) -> Path:
    return state_dir / "tune.json"


def remember(state_dir: Path, plan_ns: int, given: Given) -> None:
    """What the run of this plan was given; the last few thousand are kept."""
    folder = state_dir / "tune"
    _keep(folder / f"{plan_ns}.json", given)
    for old in sorted(folder.glob("*.json"))[:-GIVEN_MAX]:
        old.unlink(missing_ok=True)


def given_to(state_dir: Path, run: merge.Run) -> Given | None:
    """What the tuner did to a run; None where it had no part in it, or nobody remembers."""
    plan_ns = run.placed.get("plan_ns", 0)
    try:
        given = msgspec.json.decode((state_dir / "tune" / f"{plan_ns}.json").read_bytes(), type=Given)
    except (OSError, msgspec.DecodeError):
        return None
    given.load = given.load if 0 <= given.load < 1 else 0.0
    return given


def mode_of(held: Settings, program: str, said: Words) -> str:
    """What becomes of choices for a program."""
    own = said.programs.get(program)
    return str(own.mode if own and own.mode else held["tune.mode"])


def applies_anyway(held: Settings) -> bool:
    """May a run be tuned though nobody asks for it: is `apply` the mode of all programs, or of some?"""
    if held["tune.mode"] == "apply":
        return True
    said = words(path_of(held.state_dir), lambda _: None)
    return any(one.mode == "apply" for one in said.programs.values())


def settings_of(held: Settings) -> TuneSettings:
    count, size = held["tune.fixed_count"], held["tune.fixed_size"]
    if size <= 0 or size % ALIGN_BYTES:
        raise UsageError(
            f"tune.fixed_size is {units.show_size(size)}; a stripe's size is a multiple of 64 KiB: set another"
        )
    fixed = Layout(max(count, 1), size)
    return TuneSettings(
        safety=held["tune.safety"], budget=held["tune.budget"], freeze_gain=FREEZE_GAIN, fixed=fixed
    )


@dataclass(frozen=True)
class Known:
    """A program as tuning sees it."""

    program: str
    summaries: tuple[merge.Summary, ...]  # oldest first
    samples: tuple[Sample, ...]
    context: Context

    @property
    def described(self) -> bool:
        """Has a run shown how it writes?  Else the context is a guess."""
        return any(learned.sound(s) for s in self.summaries)


def known(history: History, program: str, held: Words, state_dir: Path, before_ns: int = 0) -> Known:
    """Its samples, oldest first, from runs that were not forgotten; `before_ns`: as they were recorded by then."""
    found = learned.runs_of(history, program)
    name = found[0].program
    since_ns = held.programs.get(name, Said()).since_ns
    found = [s for s in found if _recorded(s, before_ns)][:RUNS_MAX]
    summaries = [s for s in found if s.start_ns >= since_ns and s.bytes_written > 0][::-1]
    samples: list[Sample] = []
    context = Context()
    for s in summaries:
        run = history.load(s)
        given = given_to(state_dir, run)
        samples += samples_of(run, s, given)
        if learned.sound(s):
            context = tuned.context_of(run)
    return Known(name, tuple(summaries), tuple(samples), context)


def _recorded(summary: merge.Summary, before_ns: int) -> bool:
    """Was it over by then?"""
    return not before_ns or summary.end_ns <= before_ns


def samples_of(run: merge.Run, summary: merge.Summary, given: Given | None) -> list[Sample]:
    """What a run showed, with what was remembered of the targets at its start."""
    return (
        tuned.samples_of(run, summary, given.load, given.degraded)
        if given
        else tuned.samples_of(run, summary)
    )


def others(
    history: History, program: str, grid: Grid, before_ns: int = 0
) -> tuple[list[Other], Fleet | None]:
    """What other programs showed, each against its own default; and what all of them teach together."""
    by_program: dict[str, list[Sample]] = {}
    sound = [s for s in history.summaries if s.program != program and learned.sound(s)]
    for s in [s for s in sound if _recorded(s, before_ns)][:OTHERS_MAX]:
        by_program.setdefault(s.program, []).extend(tuned.samples_of(history.load(s), s))
    return compared(by_program.values(), grid)


def compared(programs: Any, grid: Grid) -> tuple[list[Other], Fleet | None]:
    """Samples of programs as multiples of what each did with the default."""
    import numpy as np

    found: list[Other] = []
    rows: list[tuple[Context, Grid, int, float]] = []
    explored = 0
    for samples in programs:
        usual = [s.rate_bytes_per_s for s in samples if s.layout == grid.default]
        base = float(np.median(usual)) if usual else None
        for s in samples:
            ratio = float(np.log(s.rate_bytes_per_s / base)) if base else None
            found.append(Other(s.layout, s.context, s.rate_bytes_per_s, ratio))
            if ratio is not None and s.layout != grid.default:
                rows.append((s.context, grid, grid.nearest(s.layout.count, s.layout.size_bytes), ratio))
        explored += len({s.layout for s in samples}) > 1 and base is not None
    return found, fit(rows, explored)


@dataclass(frozen=True)
class Choice:
    """What the next run's layout is, and who says so."""

    decision: Decision
    mode: str
    pinned: bool
    seen: Observation


def choose(
    history: History,
    held: Settings,
    said: Words,
    program: Known,
    targets: int,
    default: Layout,
    before_ns: int = 0,
) -> Choice:
    """The layout of a program's next run; `before_ns`: from what was recorded by then."""
    grid = Grid(max(targets, 1), default)
    rest, fleet = others(history, program.program, grid, before_ns)
    seen = Observation(grid, program.context, program.samples, rest, fleet)
    own = said.programs.get(program.program, Said())
    mode = mode_of(held, program.program, said)
    decision = decide_after(held["tune.policy"], seen, settings_of(held))
    if own.pin is not None:
        pin = Layout(*own.pin)
        return Choice(replace(decision, layout=pin, explores=False, why="pinned"), mode, True, seen)
    return Choice(decision, mode, False, seen)


def explained(choice: Choice, held: Settings) -> Decision:
    """What the policy chose, whatever is pinned now."""
    return decide_after(held["tune.policy"], choice.seen, settings_of(held))


def places_seen(history: History, program: Known) -> int:
    """How many targets there are at least, by the records of this program's last runs."""
    most = 0
    for s in program.summaries[-3:]:
        for node in history.load(s).nodes:
            for row in node.files:
                if row.layout is not None:
                    most = max(
                        [most, row.layout.stripe_count, *(t + 1 for t in row.layout.targets if t < 1 << 16)]
                    )
    return max(most, 1)


def apply(
    history: History,
    held: Settings,
    program: str,
    expected: Sequence[Expected],
    situation: Situation,
    always: bool,
) -> tuple[list[Expected], Given]:
    """What tuning does to the files that a run is expected to create; `always`: whatever the mode.

    A program that never ran has the default in its first run: the rest is measured against that.
    """
    load = load_of(situation)
    policy = held["tune.policy"]
    degraded = [t.id for t in situation.targets if not t.usable]
    if not any(s.program == program for s in history.summaries):
        why = "first run: the default layout, to measure the others against"
        return list(expected), Given(load, False, [(0, 0, why)], policy, degraded)
    said = words(path_of(held.state_dir), history.note)
    able = max(sum(t.usable for t in situation.targets), 1)
    count = able if situation.default_count < 0 else max(situation.default_count, 1)
    default = Layout(count, situation.default_size_bytes or 1 << 20)
    choice = choose(history, held, said, known(history, program, said, held.state_dir), able, default)
    groups = groups_of(expected, choice.seen.context.processes)
    decisions = [choice.decision]
    if not choice.pinned:
        decisions = several_after(policy, choice.seen, settings_of(held), max(groups, default=0) + 1)
    decisions = [within(d, able) for d in decisions]
    layouts = [(d.layout.count, d.layout.size_bytes, d.why) for d in decisions]
    does = always or choice.mode == "apply"
    found = to_expected(choice, decisions, expected, groups) if does else list(expected)
    return found, Given(load, does, layouts, policy, degraded)


def within(decision: Decision, able: int) -> Decision:
    """The choice on a file system that has only so many usable targets; where that is less, it says so."""
    wanted = decision.layout
    if wanted.count <= able:
        return decision
    why = f"{decision.why}; {wanted.count} stripes asked for, {able} usable target{'s' * (able != 1)}"
    return replace(decision, layout=Layout(able, wanted.size_bytes), why=why)


def to_expected(
    choice: Choice, decisions: Sequence[Decision], expected: Sequence[Expected], groups: Sequence[int]
) -> list[Expected]:
    """The files with the layouts that were chosen.  Small ones are left to the plan, which leaves them stock."""
    found = []
    for e, group in zip(expected, groups, strict=True):
        d = decisions[group % len(decisions)]
        found.append(
            replace(
                e,
                stripe_count=d.layout.count,
                stripe_size_bytes=d.layout.size_bytes,
                gain_known=choice.pinned or d.ratio_low > 1,
                why=f"{plural(d.layout.count, 'stripe')} of {d.layout.size_bytes >> 10} KiB: {d.why}",
            )
        )
    return found


def load_of(situation: Situation) -> float:
    """The share of all targets that is in use now."""
    able = [t.busy for t in situation.targets if t.usable]
    return min(sum(able) / len(able), 0.95) if able else 0.0
