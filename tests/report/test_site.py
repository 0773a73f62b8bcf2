# SPDX-License-Identifier: Apache-2.0
"""What status, jobs and top say, from documents alone."""

from typing import Any

import pytest

from penstock.report import site


def row(**more: Any) -> dict[str, Any]:
    plain = {"limit": "m", "by_hand": False, "bytes": False, "rate": 200.0, "asked": 0.0, "waiting": 0}
    held = {"since_s": 0.0, "delayed": 0, "waited_s": 0.0, "shadow": False, "released": False, "why": ""}
    return {**plain, **held, "lease_left_s": 1.0, "on_lost": "hold", "lost_rate": 0.0, **more}


def status(**more: Any) -> list[str]:
    job = {"job": "1", "name": "", "processes": 1, "bypassing": "", "rows": [row(**more)]}
    document = {"node": "n1", "controller": None, "released_here": False, "jobs": [job]}
    return site.status(document, 100.0)[1:]


@pytest.mark.parametrize(
    ("on_lost", "has", "holds"),
    [
        ("hold", "200/s", "its last rate"),
        ("open", "no limit", "no limit"),
        ("rate", "100/s", "on_lost = 100/s"),
    ],
)
def test_after_its_lease_a_job_has_what_on_lost_says(on_lost: str, has: str, holds: str) -> None:
    assert status(on_lost=on_lost, lost_rate=100.0, lease_left_s=-1.0) == [
        f"  limit m: not held back; has {has} on this node",
        f"    its lease is over: {holds} holds until the controller is back",
    ]


def test_who_waits_is_held_back_also_where_nobody_knows_since_when() -> None:
    assert status(waiting=1) == ["  limit m: held back; has 200/s on this node"]
    assert status(since_s=90.0) == ["  limit m: held back for 10 s; has 200/s on this node"]


def test_counts_stand_with_their_nouns_and_ids_alone() -> None:
    about = {"nodes": 1, "jobs": 2, "policy": 3, "cycle_s": 0.001, "released": []}
    job = {"id": "1-2", "name": "", "user": "ann", "nodes": 1, "verified": False, "bypassing": "", "held": []}
    lines = site.top({"status": about, "jobs": [job]}, 20, 100)

    assert lines[0] == "1 node, 2 jobs, policy 3; a decision takes 1 ms"
    assert lines[4].split()[:2] == ["1-2", "?"]  # what is copied is the id
