# SPDX-License-Identifier: Apache-2.0
"""What stands out: each remark where its number calls for it, and only there."""

from typing import Any

import pytest

from penstock.report import facts
from penstock.report.remarks import remarks
from penstock.runs import merge, record
from tests.runs import made

S = made.S


def said(files: list[dict[str, Any]], ops: list[record.Op] | None = None) -> list[str]:
    """The remarks on a run whose ranks used these files, one each."""
    rows = [
        made.file(fields.pop("path", b"/s/f"), i, i, made.T0, **fields)
        for i, fields in enumerate(map(dict, files))
    ]
    node = record.Node(
        node="n1",
        final=True,
        processes=[made.process(i, made.T0) for i in range(len(rows))],
        files=rows,
        ops=ops or [],
    )
    run = merge.merge(made.run_of(), [made.begin(start_ns=made.T0), node, made.end(end_ns=made.T0 + 10 * S)])
    return remarks(facts.gather(run), 10240)


def layout(stripes: int) -> record.Layout:
    return record.Layout(stripe_count=stripes, targets=list(range(stripes)))


SMALL = {"writes": 2000, "write_sizes": [0, 2000]}


@pytest.mark.parametrize(
    ("files", "ops", "sentence"),
    [
        ([{"meta_ns": 5 * S}], [], "metadata took 50 % of the time, more than reading and writing together"),
        (
            [{"write_ns": 8 * S}, {}, {}, *[{"write_ns": 0}] * 2],
            [],
            "rank 0 spent 9.1 s in calls on files, 2.3 times the mean: others may have waited for it",
        ),
        (
            [{"layout": layout(1)}] * 8,
            [],
            "/s/f is shared by 8 and lies on one target: more stripes would spread its load",
        ),
        ([SMALL], [], "100 % of 2,000 writes are of at most 10 KiB"),
        (
            [{}],
            [record.Op("stat", "metadata", 5000, 4000)],
            "80 % of 5,000 stat calls failed: something looks for files in many places",
        ),
        ([{"opens": 1000}], [], "/s/f was opened 1,000 times"),
    ],
)
def test_remark(files: list[dict[str, Any]], ops: list[record.Op], sentence: str) -> None:
    assert said(files, ops) == [sentence]


@pytest.mark.parametrize(
    ("files", "ops"),
    [
        ([{}], []),
        ([{"meta_ns": S // 10, "read_ns": 0, "write_ns": 0}], []),
        ([{"layout": layout(1)}] * 7, []),
        ([{"layout": layout(2)}] * 8, []),
        ([{"path": b"/s/%d" % i, "layout": layout(1)} for i in range(8)], []),
        ([SMALL | {"writes": 900, "write_sizes": [0, 900]}], []),
        ([{}], [record.Op("stat", "metadata", 900, 900)]),
        ([{"opens": 999}] * 8, []),
    ],
)
def test_nothing_to_remark(files: list[dict[str, Any]], ops: list[record.Op]) -> None:
    assert said(files, ops) == []
