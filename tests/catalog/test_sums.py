# SPDX-License-Identifier: Apache-2.0
"""Checksums kept in a catalog: of whole files and of each object; damage that size and times do not show is found."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Catalog
from penstock.catalog import sums
from penstock.catalog.build import build
from penstock.catalog.reader import CHANGED_INSIDE
from penstock.catalog.scanning import quiet
from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from tests.catalog.conftest import penstock

UNIT = 65536


def digest(kind: str, data: bytes) -> bytes:
    made = sums.hasher(kind)()
    made.update(data)
    return bytes(made.digest()[:16])


@pytest.mark.parametrize("kind", sums.KINDS)
def test_checksums_of_a_plain_tree(tree: Path, fast: Path, kind: str) -> None:
    """Each regular file has one; files that are new get theirs by an update, the others are not read again."""
    catalog = fast / "set.cat"
    said = json.loads(penstock("build", tree, "-o", catalog, "--checksums", kind, "--json").stdout)
    assert said["checksums"] == 283
    cat = Catalog.open(catalog)
    for name in ("a/file7", "file0", "a/new\nline", b"a/\xff\xfe#?"):
        held = cat.sums(name)
        assert held is not None
        assert (held.kind, held.objects) == (kind, ())
        assert held.whole == digest(kind, (tree / os.fsdecode(name)).read_bytes())
    assert cat.sums("a") is None
    assert cat.sums("link") is None
    (tree / "a/late").write_text("late")
    said = json.loads(penstock("update", catalog, "--checksums", kind, "--json").stdout)
    assert said["checksums"] == 1
    done = json.loads(penstock("check", catalog, "--checksums", "--json").stdout)
    assert (done["files_read"], done["differences"], done["mended"]) == (284, [], False)


def test_checksum_goes_with_the_bytes_it_was_of(tree: Path, fast: Path) -> None:
    """A file that was written has none until somebody reads it; one that was only renamed neither."""
    catalog = fast / "set.cat"
    penstock("build", tree, "-o", catalog, "--checksums", "-q")
    (tree / "a/file7").write_bytes(b"other")
    penstock("update", catalog, "--full", "-q")
    cat = Catalog.open(catalog)
    assert cat.sums("a/file7") is None
    assert cat.sums("a/file8") is not None
    said = json.loads(penstock("update", catalog, "--checksums", "--json").stdout)
    assert said["checksums"] == 1
    held = Catalog.open(catalog).sums("a/file7")
    assert held is not None
    assert held.whole == digest("xxh3", b"other")


def test_reading_goes_on_where_it_was(tree: Path, fast: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended in the middle: what was read and written is not read again, and what cannot be had is tried once."""
    build(tree, fast / "set.cat")
    (tree / "a/file7").write_bytes(b"not as the catalog has it")
    tried, read = list[bytes](), sums.read

    def noted(path: bytes, layout: Any, kind: str) -> Any:
        tried.append(path)
        return read(path, layout, kind)

    def ended(progress: Any) -> None:
        if progress.folders == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(sums, "read", noted)
    with monkeypatch.context() as patched:
        patched.setattr(sums, "round_s", lambda looking_s: 0.0)
        with pytest.raises(KeyboardInterrupt):
            sums.add(fast / "set.cat", "xxh3", ended)
    done = _summed(fast / "set.cat")
    assert 100 < done < len(tried) < 200
    first, tried[:] = len(tried), []
    assert sums.add(fast / "set.cat", "xxh3", quiet) == 282 - done
    assert first + len(tried) < 300
    assert _summed(fast / "set.cat") == 282
    assert tried.count(os.fsencode(tree / "a/file7")) == 1
    assert Catalog.open(fast / "set.cat").readlink("link") == "a/b/c/file1"


def _summed(catalog: Path) -> int:
    cat = Catalog.open(catalog)
    return sum(
        cat.sums(f"{here}/{row.name}" if here else row.name) is not None
        for here, _, _ in cat.walk()
        for row in cat.scandir(here)
    )


def test_looking_takes_a_tenth() -> None:
    assert sums.round_s(0.1) == sums.ROUND_S
    assert sums.round_s(60) == 600


@pytest.mark.root
@pytest.mark.parametrize("kind", sums.KINDS)
def test_damage_inside_is_found_and_told_by_target(
    make_testbed: Callable[..., object], fast: Path, kind: str
) -> None:
    """A byte of an object turns on its target: size and times are as before, only reading tells."""
    bed = make_testbed(oss=2, osts=4)
    catalog, file = fast / "set.cat", bed.path / "file"
    driver_for(bed.path).create(str(file), wish(targets=(1, 3), stripe_size_bytes=UNIT))
    stripes = [bytes([i]) * UNIT for i in range(1, 6)]
    file.write_bytes(b"".join(stripes))
    (bed.path / "other").write_text("other")
    bed.ask("flush")
    said = json.loads(penstock("build", bed.path, "-o", catalog, "--checksums", kind, "--json").stdout)
    assert said["checksums"] == 2
    held = Catalog.open(catalog).sums("file")
    assert held is not None
    assert held.whole == digest(kind, b"".join(stripes))
    objects = {it.target: it.digest for it in held.objects}
    assert objects == {1: digest(kind, b"".join(stripes[::2])), 3: digest(kind, b"".join(stripes[1::2]))}
    (damaged,) = [it for it in bed.store.glob("ost*/*") if it.read_bytes()[:1] == b"\x02"]
    with damaged.open("r+b") as out:
        out.write(b"\xff")
    bed.ask("drop")
    assert json.loads(penstock("check", catalog, "--json").stdout)["differences"] == []
    said = json.loads(penstock("check", catalog, "--checksums", "--json").stdout)
    what = "bytes differ on target 3, though size and times do not"
    assert said["differences"] == [{"path": "file", "what": what}]
    assert said["mended"]
    cat = Catalog.open(catalog)
    assert cat.stat("file").flags & CHANGED_INSIDE
    assert not cat.stat("other").flags & CHANGED_INSIDE
    now = cat.sums("file")
    assert now is not None
    assert now.whole == digest(kind, file.read_bytes())
    assert json.loads(penstock("check", catalog, "--checksums", "--json").stdout)["differences"] == []


DIGEST = st.binary(min_size=16, max_size=16)
OBJECT = st.builds(sums.Object, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), DIGEST)


@given(st.builds(sums.Sums, st.sampled_from(sorted(sums.KINDS)), DIGEST, st.lists(OBJECT).map(tuple)))
def test_what_is_written_is_read(held: sums.Sums) -> None:
    assert sums.decode(sums.encode(held)) == held


@given(st.binary(max_size=200))
def test_noise_is_no_checksum_and_no_error(blob: bytes) -> None:
    held = sums.decode(blob)
    assert held is None or sums.encode(held)[4:] == blob[4:]
