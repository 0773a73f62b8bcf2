# SPDX-License-Identifier: Apache-2.0
"""Files on the testbed as programs use them: striped, seen by every client, there again after a restart."""

import os
import struct
from pathlib import Path


def stripes_on(path: Path) -> list[int]:
    """The OSTs of a plain layout."""
    blob = os.getxattr(path, "lustre.lov")
    count = struct.unpack_from("<H", blob, 28)[0]
    return [struct.unpack_from("<I", blob, 32 + 24 * i + 20)[0] for i in range(count)]


def template(count: int, size: int = 65536) -> bytes:
    return struct.pack("<IIQQIHH", 0x0BD10BD0, 0, 0, 0, size, count, 0xFFFF)


def test_bytes_lie_on_the_osts_that_the_layout_names(testbed):
    path = testbed.path / "striped"
    os.mknod(path)
    os.setxattr(path, "lustre.lov", template(3))
    data = os.urandom(1_000_000)
    path.write_bytes(data)
    assert path.read_bytes() == data
    osts = stripes_on(path)
    assert len(set(osts)) == 3
    used = [i for i in range(4) if any(f.stat().st_size for f in (testbed.store / f"ost{i:04x}").iterdir())]
    assert sorted(osts) == used
    held = b"".join(f.read_bytes() for i in used for f in (testbed.store / f"ost{i:04x}").iterdir())
    assert len(held) == len(data)


def test_what_one_client_writes_another_reads(testbed):
    other = testbed.more("node2")
    (testbed.path / "a").write_text("from one")
    assert (other / "a").read_text() == "from one"
    (other / "a").write_text("back, and longer")
    assert (testbed.path / "a").read_text() == "back, and longer"
    (other / "a").unlink()
    assert list(testbed.path.iterdir()) == []


def test_everything_is_there_after_a_restart(testbed):
    (testbed.path / "d").mkdir()
    (testbed.path / "d" / "f").write_bytes(b"x" * 300_000)
    (testbed.path / "l").symlink_to("d/f")
    os.setxattr(testbed.path / "d" / "f", "user.note", b"kept")
    before = (testbed.path / "d" / "f").stat()
    testbed.stop()
    assert not os.path.ismount(testbed.path)
    testbed.start()
    after = (testbed.path / "l").stat()
    assert (after.st_size, after.st_ino, after.st_mtime_ns) == (
        before.st_size,
        before.st_ino,
        before.st_mtime_ns,
    )
    assert (testbed.path / "l").read_bytes() == b"x" * 300_000
    assert os.getxattr(testbed.path / "d" / "f", "user.note") == b"kept"
