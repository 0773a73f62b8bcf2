# SPDX-License-Identifier: Apache-2.0
"""The guide's table of costs is the one that is charged."""

from pathlib import Path

from penstock.policy import costs

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "limits.md"


def test_the_guide_shows_the_table_of_costs() -> None:
    table = PAGE.read_text().split("<!-- costs -->\n")[1].split("<!-- end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    shown = {name: costs.Cost(float(calls), float(lookup)) for name, calls, lookup in rows}
    assert shown == {name: cost for name, cost in costs.COSTS.items() if any(cost)}
