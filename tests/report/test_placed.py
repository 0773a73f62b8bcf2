# SPDX-License-Identifier: Apache-2.0
"""A plan's words."""

from dataclasses import replace

from penstock.policy.placing.contract import DIGITS, Action, Entry, Match, Plan
from penstock.report import placed

ONE = Entry(Match((b"/s/a",)), Action.PLACE, turns=((3,),), files=1, bytes_each=4e6)


def plan(*entries: Entry, gain_s: float = 0.0) -> Plan:
    return Plan("/s", 0.0, entries, (), 0.0, 1, 0.001, gain_s, allocator="finish")


def test_a_plan_that_gains_no_time_says_why_it_places() -> None:
    said = "\n".join(placed.plan_lines("app", plan(ONE)))

    assert "1 file is expected" in said and "costs 1 request (" in said
    assert "no time gained; files are placed to keep targets evenly full" in said and "sooner" not in said
    assert "1 s sooner" in "\n".join(placed.plan_lines("app", plan(ONE, gain_s=1.0)))


def test_marks_in_names_are_explained_where_there_are_any() -> None:
    many = replace(ONE, match=Match((b"/s/out", DIGITS), (None,)), files=2)

    assert any(line.startswith("{#} stands for any digits") for line in placed.plan_lines("app", plan(many)))
    assert not any("{#}" in line for line in placed.plan_lines("app", plan(ONE)))


def test_one_file_is_one() -> None:
    assert placed.lines({"expected": 1, "placed": 1})[0] == "1 of 1 new file was expected (100 %)"
