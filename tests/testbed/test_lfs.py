# SPDX-License-Identifier: Apache-2.0
"""lfs of the testbed: its words are Lustre's, letter for letter, and it asks as Lustre's asks."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.targets import lov
from penstock.testbed import lustre_text as text
from penstock.testbed.lfs import parse_setstripe
from tests.conftest import Bed

MIB = 1 << 20

READ = lov.decode(
    bytes.fromhex(
        "d00bd10b01000000a402000000000000010400000200000000001000"
        "0200ffff00040 0c002000000b1000000000000000000000002000000"
        "00040000030000 00cf000000000000000000000003000000".replace(" ", "")
    )
)


def test_file_in_lustres_words() -> None:
    assert text.file_lines("a", READ, verbose=True) == [
        "a",
        "lmm_magic:         0x0BD10BD0",
        "lmm_seq:           0x200000401",
        "lmm_object_id:     0x2a4",
        "lmm_fid:           [0x200000401:0x2a4:0x0]",
        "lmm_stripe_count:  2",
        "lmm_stripe_size:   1048576",
        "lmm_pattern:       raid0",
        "lmm_layout_gen:    0",
        "lmm_stripe_offset: 2",
        "\tobdidx\t\t objid\t\t objid\t\t group",
        "\t     2\t           177\t         0xb1\t   0x2c0000400",
        "\t     3\t           207\t         0xcf\t   0x300000400",
        "",
    ]
    assert text.file_lines("a", READ, yaml=True)[-5:] == [
        "      - l_ost_idx: 2",
        "        l_fid:     0x2c0000400:0xb1:0x0",
        "      - l_ost_idx: 3",
        "        l_fid:     0x300000400:0xcf:0x0",
        "",
    ]


def test_space_in_lustres_words() -> None:
    rows = [
        text.Space("lustre-MDT0000_UUID", "/mnt/l[MDT:0]", 954304, 1400, 884092),
        text.Space("lustre-OST0002_UUID", "/mnt/l[OST:2]", 954304, 1400, 884092, "D"),
    ]
    lines = text.space_lines(rows, "/mnt/l")
    assert lines[0] == "UUID                   1K-blocks        Used   Available Use%  Mounted on"
    assert lines[2] == "lustre-OST0002_UUID       954304        1400      884092   1%  /mnt/l[OST:2] D"
    assert lines[4] == "filesystem_summary:       954304        1400      884092   1%  /mnt/l"


def test_options_of_setstripe() -> None:
    template, paths = parse_setstripe(
        ["-E", "1M", "-L", "mdt", "-E", "-1", "-o", "3,1-2", "-S", "64k", "f", "g"]
    )
    assert paths == ["f", "g"]
    first, rest = template.parts
    assert (first.pattern, first.end_bytes, first.stripe_size_bytes) == (lov.MDT, MIB, MIB)
    assert (rest.start_bytes, rest.end_bytes, rest.osts, rest.stripe_size_bytes) == (
        MIB,
        lov.EOF,
        (3, 1, 2),
        65536,
    )
    lov.check(lov.encode(template))


@given(
    st.lists(st.sampled_from(["-E", "-c", "-S", "-i", "-o", "-p", "-d", "1M", "-1", "2", "x"]), max_size=8)
)
def test_no_words_break_setstripe(words: list[str]) -> None:
    try:
        parse_setstripe(words)
    except Exception as error:
        assert isinstance(error, ValueError) or type(error).__name__ == "UsageError"


@pytest.fixture
def bed(testbed: Bed) -> Bed:
    return testbed


def lfs(bed: Bed, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    path = f"{bed.folder}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["lfs", *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
        cwd=bed.path,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_setstripe_and_getstripe(bed: Bed) -> None:
    lfs(bed, "setstripe", "-o", "3,1", "-S", "1M", "a")
    said = lfs(bed, "getstripe", "a").stdout.splitlines()
    assert said[:6] == [
        "a",
        "lmm_stripe_count:  2",
        "lmm_stripe_size:   1048576",
        "lmm_pattern:       raid0",
        "lmm_layout_gen:    0",
        "lmm_stripe_offset: 3",
    ]
    assert [line.split()[0] for line in said[7:9]] == ["3", "1"]
    assert all(re.fullmatch(r"\t {5}\d\t {3,}\d+\t +0x[0-9a-f]+\t +0x[0-9a-f]+", line) for line in said[7:9])
    assert lfs(bed, "getstripe", "-c", "a").stdout == "2\n"
    again = lfs(bed, "setstripe", "-c", "1", "a", status=17)
    assert again.stderr == "lfs setstripe: setstripe error for 'a': stripe already set\n"


def test_refused_setstripe_leaves_the_bare_file(bed: Bed) -> None:
    done = lfs(bed, "setstripe", "-o", "9", "x", status=22)
    assert done.stderr == "lfs setstripe: setstripe error for 'x': Invalid argument\n"
    assert lfs(bed, "getstripe", "x").stdout == "x has no stripe info\n"


def test_composite_file(bed: Bed) -> None:
    lfs(bed, "setstripe", "-E", "1M", "-c", "1", "-E", "-1", "-c", "2", "p")
    said = lfs(bed, "getstripe", "p").stdout.splitlines()
    assert said[:4] == ["p", said[1], "  lcm_mirror_count:  1", "  lcm_entry_count:   2"]
    assert said[1].startswith("  lcm_layout_gen:    ")
    assert "    lcme_flags:          init" in said
    assert "    lcme_extent.e_end:   EOF" in said
    assert any(
        re.fullmatch(r"      -   0: \{ l_ost_idx:   \d, l_fid: \[0x\w+:0x\w+:0x0\] \}", line) for line in said
    )


def test_folders(bed: Bed) -> None:
    (bed.path / "d").mkdir()
    said = lfs(bed, "getstripe", "-d", "d").stdout.splitlines()
    assert said[:2] == ["d", "stripe_count:  1 stripe_size:   4194304 pattern:       0 stripe_offset: -1"]
    lfs(bed, "setstripe", "-c", "2", "-S", "1M", "d")
    (bed.path / "d" / "f").write_text("x")
    said = lfs(bed, "getstripe", "d").stdout.splitlines()
    assert said[1] == "stripe_count:  2 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1"
    assert "d/f" in said
    lfs(bed, "setstripe", "-d", "d")
    assert "pattern:       0" in lfs(bed, "getstripe", "-d", "d").stdout


def test_unknown_words_are_refused(bed: Bed) -> None:
    assert "usage" in lfs(bed, "frobnicate", status=1).stderr
    assert "unknown option" in lfs(bed, "getstripe", "--wrong", "a", status=1).stderr
    assert "wants a value" in lfs(bed, "setstripe", "-c", status=1).stderr
    assert "No such file" in lfs(bed, "getstripe", "absent", status=2).stderr


def test_off_the_testbed_it_says_so(bed: Bed, tmp_path: Path) -> None:
    assert "not on Lustre" in lfs(bed, "df", tmp_path, status=1).stderr
