# SPDX-License-Identifier: Apache-2.0
"""The report: right numbers, every form for every record, and a page that nothing can break out of."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.base.errors import DeniedError
from penstock.base.text import cut, visible
from penstock.report import facts, limited, page, remarks, screen, svg, table
from penstock.runs import merge, query, reasons, record
from tests.runs import made

GUIDE = Path(__file__).parents[2] / "docs/guide/report.md"


def gathered(payloads: list[record.Payload]) -> facts.Facts:
    return facts.gather(merge.merge(made.run_of(), payloads))


class Tags(HTMLParser):
    """All tags, attributes and the text of a page; tags must close in order."""

    VOID = frozenset(("meta", "line", "rect", "link", "br"))

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(text: str) -> Tags:
    """Self-contained, closed, nothing that runs or loads."""
    tags = Tags(text)
    assert tags.open == []
    known = """html head meta title style body h1 h2 p b ul li small dl dt dd div code figure figcaption
        footer svg desc text rect line table thead tbody tr th td"""
    assert set(tags.tags) <= set(known.split())
    names = {name for name, _ in tags.attributes}
    assert not {n for n in names if n.startswith("on")} | (
        names & {"src", "href", "style", "srcset", "xlink:href"}
    )
    assert "url(" not in text
    assert "@import" not in text
    return tags


@settings(max_examples=50, deadline=None, phases=[Phase.generate])
@given(st.lists(made.PAYLOADS, max_size=4), st.integers(0, 5), st.sampled_from([0, 100, 10240, 2**40]))
def test_any_record_gives_every_form(payloads: list[record.Payload], top: int, small: int) -> None:
    """No record, however odd, breaks the screen, the page, the CSV or the JSON."""
    found = gathered(payloads)

    lines = screen.screen(found, top, small)
    text = page.page(found, top, small)
    out = io.StringIO()
    table.write_csv(found, out)
    document = json.loads(json.dumps(table.document(found)))

    lines += query.whole_as_text(found.summary, found.run, found.partial) + query.table([found.summary])
    assert all(line.isprintable() for line in lines)
    check_page(text)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(rows) == len(document["files"]) == sum(len(n.files) for n in found.run.nodes)
    for figure in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(figure)


HOSTILE = [
    b"/s/<script>alert(1)</script>",
    b"/s/\"'><img src=x onerror=alert(1)>",
    b"/s/</title></svg></td></table><a href=javascript:x>&lt;&amp;",
    b"/s/\xff\xfe\x00\n\x1b[31m\xe2\x80\xae",
    b"{{ 7*7 }}{% raw %}",
    b"=cmd|'/C calc'!A0",
]


def hostile_record() -> facts.Facts:
    """Hostile bytes wherever a program or a scheduler may put text."""
    words = [h.decode("utf-8", "replace") for h in HOSTILE]
    files = [made.file(name, 0, i, made.T0, filesystem=words[1]) for i, name in enumerate(HOSTILE)]
    process = made.process(0, made.T0, exe=HOSTILE[1], argv=HOSTILE)
    node = record.Node(
        node=words[0],
        processes=[process],
        files=files,
        ops=[record.Op(words[1], words[2], 3, 0, 1, 1)],
        partial=[record.Reason(words[1], 1, words[2])],
        overflow={words[0]: 3},
        limits=[record.Limit(name=words[1], delayed=1, waited_ns=5)],
    )
    begin = made.begin(job=words[1], user=words[2], argv=HOSTILE, cwd=HOSTILE[0], job_source=words[0])
    mark = record.Mark(node="n", word="ranks_missing", text=words[0], hint=words[1])
    return gathered([begin, node, mark])


def test_hostile_names_stay_text() -> None:
    """Nothing that a program names becomes markup, a template, or a terminal's code."""
    found = hostile_record()

    tags = check_page(page.page(found))
    lines = screen.screen(found, 10, 10240)

    for name in HOSTILE:
        assert visible(name) in tags.text
    assert "49" not in visible(HOSTILE[4])
    assert all(line.isprintable() for line in lines)


def test_rate_is_by_the_slowest_process() -> None:
    """8 ranks write 128 MiB each in 3 s: 1 GiB in 3 s, whatever the sum of all times is."""
    found = gathered(made.payloads())

    assert found.rate(found.total.write, "write") == pytest.approx(2**30 / 3)
    assert found.spent_ns("write") == 8 * 3 * made.S


def test_threads_do_not_make_more_time_than_there_was() -> None:
    """Times of calls in 16 threads add up to more than the process lived; shares stay below the whole."""
    process = made.process(0, made.T0, threads=16)
    file = made.file(b"/a", 0, 0, made.T0, read_ns=100 * made.S, write_ns=300 * made.S)
    found = gathered([record.Node(node="n1", processes=[process], files=[file])])

    assert found.slowest_ns("read") == pytest.approx(100 / 16 * made.S)
    assert found.slowest_ns("write") == 10 * made.S


@pytest.mark.parametrize(
    ("shared", "sentence"), [(True, "one shared file, used by all 8 ranks"), (False, "a file per rank")]
)
def test_pattern(shared: bool, sentence: str) -> None:
    assert gathered(made.payloads(shared=shared)).pattern == sentence


def test_mixed_pattern_and_single_process() -> None:
    both = [*made.payloads(), made.node("n3", [0, 1, 2, 3], shared=False)]

    assert (
        gathered(both).pattern
        == "67 % of the bytes in 1 shared file, the rest in 4 used by one of 8 ranks each"
    )
    assert gathered([made.node("n1", [0])]).pattern == ""


def test_small_requests_follow_the_setting() -> None:
    assert facts.small_classes(10240) == 3
    assert facts.small_classes(10239) == 2
    assert facts.small_classes(0) == 0
    small = [line for line in screen.screen(gathered(made.payloads()), 8, 10240) if "small" in line]
    assert small[0].split()[-4:] == ["6.2", "%", "6.2", "%"]


def test_not_timed_is_said() -> None:
    file = made.file(b"/a", 0, 0, made.T0, read_ns=0, read_sampled=0)
    lines = screen.screen(gathered([record.Node(node="n1", files=[file])]), 8, 10240)

    assert any(line.split() == ["reading", "not", "timed"] for line in lines)


def test_what_did_not_fit_is_said() -> None:
    folder = record.File(path=b"/s/many", kind=1, files=500, writes=3, bytes_written=2**40)
    unnamed = record.File(kind=2, writes=3, bytes_written=2**41)
    node = record.Node(
        node="n1",
        files=[folder, unnamed],
        overflow={"files": 500},
        partial=[record.Reason("table_full", 500)],
    )
    text = "\n".join(screen.screen(gathered([node]), 8, 10240, 120))

    assert "/s/many/ (500 files that did not fit)" in text
    assert "(descriptors without a known path)" in text
    assert "500 files did not fit the tables and are summed by directory" in text


def test_not_seen_is_said() -> None:
    node = record.Node(node="n1", final=True, unseen_ratio=0.25)

    assert "NOT SEEN: 25 % of the requests" in "\n".join(screen.screen(gathered([node]), 8, 10240))
    assert "25 %" in check_page(page.page(gathered([node]))).text


LIMIT = record.Limit(
    name="metadata",
    rate_milli=100_000,
    units=1024 * 500,
    delayed=400,
    waited_ns=4 * made.S,
    longest_ns=made.S,
)


def test_what_limits_cost_is_said() -> None:
    """Summed over nodes, the longest of all; on the screen, on the page and for programs."""
    nodes = [msgspec.structs.replace(made.node(n, [i]), limits=[LIMIT]) for i, n in enumerate(("n1", "n2"))]
    found = gathered([made.begin(), *nodes, made.end()])
    line = "metadata (200/s): 800 calls waited, 8 s in all, the longest 1 s; asked for 1000 calls"
    assert f"limits    {line}" in screen.screen(found, 5, 0)
    assert "! limits held calls back for 8 s, 40 % of the time of all threads" in screen.screen(found, 5, 0)
    assert "What limits cost" in page.page(found)
    assert table.document(found)["limits"] == [
        {
            "limit": "metadata",
            "bytes": False,
            "shadow": False,
            "released": False,
            "rate": 200.0,
            "asked": 1000.0,
            "delayed": 800,
            "waited_s": 8.0,
            "longest_s": 1.0,
        }
    ]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"delayed": 0}, "metadata (100/s): nobody waited, asked for 500 calls"),
        ({"bytes": True, "delayed": 0}, "metadata (100 B/s): nobody waited, asked for 500 KiB"),
        ({"shadow": True, "delayed": 0}, "metadata (100/s): nobody would have waited, asked for 500 calls"),
        (
            {"shadow": True},
            "metadata (100/s): 400 calls would have waited, 4 s in all, the longest 1 s late; asked for 500 calls",
        ),
        (
            {"name": ""},
            "(lifted meanwhile) (released): 400 calls waited, 4 s in all, the longest 1 s; asked for 500 calls",
        ),
    ],
)
def test_what_a_limit_cost(fields: dict[str, object], line: str) -> None:
    assert limited.lines([msgspec.structs.replace(LIMIT, **fields)]) == [line]


def test_shadow_and_little_waiting_get_no_remark() -> None:
    for limit in (
        msgspec.structs.replace(LIMIT, shadow=True),
        msgspec.structs.replace(LIMIT, waited_ns=made.S // 100),
    ):
        node = msgspec.structs.replace(made.node("n1", [0]), limits=[limit])
        found = gathered([made.begin(), node, made.end()])
        assert not [line for line in remarks.remarks(found, 0) if "limits" in line]


def test_many_ranks_are_grouped() -> None:
    """1,000 ranks make at most 128 rows, and the means are said to be means."""
    found = gathered([made.node("n1", list(range(1000)))])

    rows = page.grouped(found.workers)

    assert len(rows) <= page.MOST_ROWS
    assert sum(len(group) for _, group in rows) == 1000
    assert "mean of up to 8" in page.page(found)


@given(st.floats(min_value=1e-9, max_value=1e18), st.sampled_from([2, 10]))
def test_ticks_cover_the_values(top: float, base: int) -> None:
    marks = svg.ticks(top, base)

    assert marks[0] == 0
    assert top <= marks[-1] * 1.01
    assert marks[-1] <= 3 * top
    assert 2 <= len(marks) <= 12


@given(st.binary(max_size=30))
def test_visible_text_is_printable_and_lossless(raw: bytes) -> None:
    """No two names look alike: undoing the escapes gives the bytes."""
    shown = visible(raw)

    def undo(match: "re.Match[str]") -> bytes:
        word = match[0]
        if word == "\\\\":
            return b"\\"
        code = int(word[2:], 16)
        return bytes([code]) if word[1] == "x" else chr(code).encode()

    parts = re.split(r"(\\\\|\\x..|\\u....|\\U........)", shown)
    back = b"".join(
        undo(re.fullmatch(r".*", part, re.DOTALL)) if i % 2 else part.encode() for i, part in enumerate(parts)
    )
    assert back == raw
    assert shown.isprintable()


@given(st.text(max_size=40), st.integers(5, 30))
def test_cut_keeps_ends(text: str, width: int) -> None:
    assert len(cut(text, width)) <= max(width, 1)
    assert cut(text, 40) == text


def test_page_is_whole_or_not_there(tmp_path: Path) -> None:
    page.write(tmp_path / "a.html", "text")
    with pytest.raises(DeniedError, match=r"the page .*no/a\.html cannot be written"):
        page.write(tmp_path / "no/a.html", "text")

    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_columns_and_words_are_documented() -> None:
    """The guide's tables are those of the code."""
    guide = GUIDE.read_text(encoding="utf-8")

    assert table.markdown() in guide
    assert reasons.markdown() in guide
