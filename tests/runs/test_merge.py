# SPDX-License-Identifier: Apache-2.0
"""A run is the set of its frames."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runs import merge, reasons, record, segments
from tests.runs import made


@given(st.lists(made.PAYLOADS, max_size=6), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(payloads: list[record.Payload], chance: random.Random) -> None:
    """Frames in any order, some seen twice, make the same run."""
    other = payloads + [p for p in payloads if chance.random() < 0.5]
    chance.shuffle(other)

    one, two = merge.merge(made.run_of(), payloads), merge.merge(made.run_of(), other)

    assert one == two
    assert merge.summarize(one) == merge.summarize(two)
    assert merge.partial(one) == merge.partial(two)


@given(st.lists(made.PAYLOADS, max_size=4))
def test_frames_come_back_from_bytes(payloads: list[record.Payload]) -> None:
    """Whatever is packed is the same when it is read."""
    scan = segments.scan(b"".join(segments.pack(made.run_of(), p) for p in payloads))

    assert [frame.decode() for frame in scan.frames] == payloads


def test_the_highest_seq_holds() -> None:
    old, new = made.node("n1", [0], seq=1), made.node("n1", [0, 1], seq=2)

    run = merge.merge(made.run_of(), [new, old])

    assert run.nodes == (new,)


def test_worst_end_at_the_last_time() -> None:
    ends = [made.end(status=0, end_ns=30), made.end(status=3, end_ns=20), made.end(status=1, end_ns=10)]

    run = merge.merge(made.run_of(), [*ends])

    assert run.end is not None
    assert (run.end.status, run.end.end_ns) == (3, 30)


def test_missing_ranks_are_counted_unless_a_writer_did() -> None:
    """8 were expected, 2 nodes of 4 make a whole; one alone is partial, and it is said once."""
    whole = merge.merge(made.run_of(), made.payloads())
    half = merge.merge(made.run_of(), made.payloads()[:2])
    hint = record.Mark(node="n1", word="ranks_missing", text="seen on n1", hint="srun penstock-run ./ior")
    marked = merge.merge(made.run_of(), [*made.payloads()[:2], hint])

    assert merge.partial(whole) == []
    assert merge.partial(half) == [merge.Partial("ranks_missing", 4)]
    assert merge.partial(marked) == [
        merge.Partial("ranks_missing", 4, "seen on n1", "srun penstock-run ./ior")
    ]


def test_ranks_that_another_node_saw_are_not_missing() -> None:
    """The node of mpirun sees 4 of 8 ranks and says so; the other node's frames make the run whole."""
    hint = record.Mark(node="n1", word="ranks_missing", hint="mpirun penstock-run ./ior")
    first, second = [*made.payloads()[:2], hint], made.payloads()[2:]

    assert [p.count for p in merge.partial(merge.merge(made.run_of(), first))] == [4]
    assert merge.partial(merge.merge(made.run_of(), first + second)) == []


def test_a_run_without_counts_is_partial() -> None:
    run = merge.merge(made.run_of(), [made.begin()])

    assert [p.word for p in merge.partial(run)] == ["no_counts"]
    assert not run.ended


@pytest.mark.parametrize(
    ("exe", "argv", "name"),
    [
        (b"/opt/ior", [b"./ior"], "ior"),
        (b"/usr/bin/python3.11", [b"python", b"train.py", b"--lr", b"3"], "train.py"),
        (b"/usr/bin/python3.11", [b"python", b"-u", b"-W", b"ignore", b"/a/train.py"], "train.py"),
        (b"/usr/bin/python3", [b"python", b"-m", b"torch.distributed.run"], "torch.distributed.run"),
        (b"/usr/bin/python3", [b"python", b"-c", b"print()"], "python3 -c"),
        (b"/usr/bin/bash", [b"bash", b"job.sh"], "job.sh"),
        (b"/a/app (deleted)", [b"app"], "app"),
        (b"", [b"/x/\xff"], "\\xff"),
    ],
)
def test_program_is_the_script_of_an_interpreter(exe: bytes, argv: list[bytes], name: str) -> None:
    assert merge.program_name(exe, argv)[1] == name


def test_program_is_the_ranks_never_the_launcher() -> None:
    """mpirun and bash use files too, but the ranks' executable is the program."""
    starters = [
        record.Process(pid=1, exe=b"/usr/bin/mpirun", argv=[b"mpirun", b"./ior"]),
        record.Process(pid=2, exe=b"/bin/bash", argv=[b"bash", b"-c", b"x"]),
        record.Process(pid=3, exe=b"/opt/ior", argv=[b"./ior"], rank=0),
    ]
    files = [record.File(path=b"/a", process=i, writes=100 - i) for i in range(3)]
    run = merge.merge(made.run_of(), [record.Node(node="n1", processes=starters, files=files)])

    assert merge.program(run) == "ior"
    assert merge.program(merge.merge(made.run_of(), [made.begin(argv=[b"./a.out"])])) == "a.out"
    assert merge.program(merge.merge(made.run_of(), [made.begin(argv=[b"mpirun", b"./a.out"])])) == ""


def test_every_word_has_a_sentence_and_a_hint() -> None:
    for word, meaning in reasons.REASONS.items():
        assert meaning.hint
        assert "{" not in reasons.sentence(word, 1) + reasons.sentence(word, 0)
    assert reasons.sentence("of_tomorrow", 3) == "of tomorrow"
