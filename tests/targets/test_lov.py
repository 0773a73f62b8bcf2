# SPDX-License-Identifier: Apache-2.0
"""Lustre's layouts from Python: known bytes, both byte orders, and every value there and back."""

import errno
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
from penstock.targets import lov


def hexes(text: str) -> bytes:
    """Hex with `NNxM` for M times the byte NN."""
    out = bytearray()
    for word in text.split():
        byte, _, times = word.partition("x")
        out += bytes.fromhex(byte) * int(times or 1)
    return bytes(out)


ANY_V1 = hexes("d00bd10b 00000000 00x16 00001000 0200 ffff")
LIST = hexes(
    "d00bd50b 01000000 00x16 00001000 0200 ffff 00x16 00x16 00000000 03000000 00x16 00000000 01000000"
)
PFL = hexes(
    "d00bd60b c0000000 00000000 0000 0200 00x16"
    "  00000000 00000000 00x8 0000100000000000 80000000 20000000 00x16"
    "  00000000 00000000 0000100000000000 ffx8 a0000000 20000000 00x16"
    "  d00bd10b 00000000 00x16 00001000 0100 ffff"
    "  d00bd10b 00000000 00x16 00004000 ffff ffff"
)
DOM = (
    hexes(
        "d00bd60b 00010000 00000000 0000 0200 00x16"
        "  00000000 00000000 00x8 0000100000000000 80000000 20000000 00x16"
        "  00000000 00000000 0000100000000000 ffx8 a0000000 60000000 00x16"
        "  d00bd10b 00010000 00x16 00001000 0000 ffff"
    )
    + LIST
)
MIRRORS = hexes(
    "d00bd60b c0000000 00000000 0000 0200 01 00x15"
    "  00000000 00000000 00x8 ffx8 80000000 20000000 00x16"
    "  00000000 00000000 00x8 ffx8 a0000000 20000000 00x16"
    "  d00bd10b 00000000 00x16 00001000 0100 ffff"
    "  d00bd10b 00000000 00x16 00004000 ffff ffff"
)
READ_LIST = hexes(
    "d00bd10b 01000000 6a00000000000000 0104000002000000 00001000 0200 ffff"
    "  0004000003000000 26000000 00000000 00000000 03000000"
    "  0004008002000000 23000000 00000000 00000000 01000000"
)
READ_PLAIN = hexes(
    "d00bd10b 01000000 0700000000000000 0104000002000000 00004000 0100 ffff"
    "  0004004002000000 02000000 00000000 00000000 00000000"
)
READ_PFL = hexes(
    "d00bd60b d8000000 02000000 0000 0200 00x16"
    "  01000000 10000000 00x8 0000100000000000 80000000 38000000 00x16"
    "  02000000 00000000 0000100000000000 ffx8 b8000000 20000000 00x16"
    "  d00bd10b 01000000 00x16 00001000 0100 ffff"
    "  000400c002000000 03000000 00000000 00000000 02000000"
    "  d00bd10b 01000000 00x16 00001000 ffff ffff"
)
FOLDER_DEFAULT = hexes("d00bd10b 01000000 00x16 00001000 0200 ffff")
EXAMPLES = {
    "any": ANY_V1,
    "list": LIST,
    "pfl": PFL,
    "dom": DOM,
    "mirrors": MIRRORS,
    "read list": READ_LIST,
    "read plain": READ_PLAIN,
    "read pfl": READ_PFL,
    "folder": FOLDER_DEFAULT,
}


@pytest.mark.parametrize("blob", EXAMPLES.values(), ids=EXAMPLES)
def test_known_bytes_come_back(blob: bytes) -> None:
    assert lov.encode(lov.decode(blob)) == blob


@pytest.mark.parametrize("blob", EXAMPLES.values(), ids=EXAMPLES)
def test_other_byte_order_says_the_same(blob: bytes) -> None:
    here = lov.decode(blob)
    there = lov.encode(here._replace(big_endian=True))
    assert there != blob
    assert lov.decode(there) == here._replace(big_endian=True)
    assert lov.encode(lov.decode(there)._replace(big_endian=False)) == blob


def test_big_endian_client() -> None:
    blob = hexes("0bd10bd0 00000001 00x16 00100000 0002 ffff")
    wish = lov.decode(blob)
    assert wish.big_endian and wish.parts[0].stripe_count == 2
    assert wish.parts[0].stripe_size_bytes == 1 << 20
    assert lov.encode(wish) == blob


def test_fields_of_a_file_on_two_osts() -> None:
    (part,) = lov.decode(READ_LIST).parts
    assert (part.osts, part.stripe_size_bytes, part.stripe_offset) == ((3, 1), 1 << 20, lov.ANY)
    assert (part.oi_seq, part.oi_id) == (0x200000401, 0x6A)
    assert part.objects() == [lov.Object(0x300000400, 0x26, 0, 0, 3), lov.Object(0x280000400, 0x23, 0, 0, 1)]


def test_fields_of_a_progressive_file() -> None:
    read = lov.decode(READ_PFL)
    first, rest = read.parts
    assert read.composite and read.gen == 2
    assert (first.start_bytes, first.end_bytes, first.osts, first.flags) == (0, 1 << 20, (2,), lov.INIT)
    assert (rest.end_bytes, rest.osts, rest.stripe_count, rest.flags) == (lov.EOF, (), lov.ALL, 0)


def test_objects_of_old_file_systems() -> None:
    table = struct.pack("=QQII", 77, 0, 1, 4)
    assert lov.Part(table=table).objects() == [lov.Object(0, 77, 0, 1, 4)]


def test_template_with_a_list_is_the_specific_one() -> None:
    blob = lov.encode(lov.Lov(parts=(lov.template(1, 1 << 20, [3, 1]),)))
    assert blob == LIST
    lov.check(blob)


def test_template_without_a_list() -> None:
    wish = lov.template(-1, 65536)
    assert (wish.magic, wish.stripe_count) == (lov.V1, lov.ALL)
    pooled = lov.encode(lov.Lov(parts=(lov.template(2, 0, pool="flash"),)))
    assert len(pooled) == 48 and pooled[32:] == b"flash".ljust(16, b"\0")


def test_repeated_osts_are_overstriping() -> None:
    lov.check(lov.encode(lov.Lov(parts=(lov.template(0, 65536, [1, 1, 2, 2]),))))


@pytest.mark.parametrize(
    ("blob", "code"),
    [
        (b"", errno.ERANGE),
        (ANY_V1[:31], errno.ERANGE),
        (LIST[:72], errno.ERANGE),
        (PFL[:150], errno.ERANGE),
        (b"\xd0\x0b\xd7\x0b" + ANY_V1[4:], errno.ERANGE),
        (b"junk" * 20, errno.ERANGE),
        (PFL[:14] + b"\0\0" + PFL[16:], errno.EINVAL),
        (PFL[:56] + b"\xff\xff" + PFL[58:], errno.EINVAL),
    ],
)
def test_damaged_bytes_are_errors(blob: bytes, code: int) -> None:
    with pytest.raises(OSError) as failed:
        lov.decode(blob)
    assert failed.value.errno == code


def test_part_of_unknown_kind_says_so_and_is_not_written() -> None:
    blob = PFL[:128] + b"\xd0\x0b\xd7\x0b" + PFL[132:]
    read = lov.decode(blob)
    assert not read.parts[0].known and read.parts[1].known
    with pytest.raises(OSError):
        lov.encode(read)


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (lov.Part(stripe_size_bytes=100_000), errno.EINVAL),
        (lov.Part(pattern=2), errno.EINVAL),
        (lov.Part(magic=lov.V3, pool=b"sixteen letters!"), errno.E2BIG),
        (lov.template(0, 65536, [1, 2], offset=0), errno.EINVAL),
        (lov.template(0, 65536, [1, 1])._replace(pattern=lov.RAID0), errno.EINVAL),
    ],
)
def test_wishes_that_lustre_refuses(part: lov.Part, code: int) -> None:
    with pytest.raises(OSError) as failed:
        lov.check(lov.encode(lov.Lov(parts=(part,))))
    assert failed.value.errno == code


@pytest.mark.parametrize(
    "bad",
    [
        lov.Lov(parts=()),
        lov.Lov(parts=(lov.Part(stripe_count=65536),)),
        lov.Lov(parts=(lov.Part(stripe_size_bytes=-1),)),
        lov.Lov(parts=(lov.Part(table=b"odd"),)),
        lov.Lov(parts=(lov.Part(pool=b"x" * 17),)),
        lov.Lov(parts=((1, 2),)),  # type: ignore[arg-type]
        (1, 2, 3),
        None,
    ],
)
def test_impossible_values_are_errors_not_bytes(bad: lov.Lov) -> None:
    with pytest.raises((OSError, OverflowError, ValueError, TypeError)):
        lov.encode(bad)


u8, u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
objects = st.builds(
    lambda seq, oid, version, gen, ost: struct.pack("=QIIII", seq, oid, version, gen, ost),
    u64,
    u32,
    u32,
    u32,
    u32,
)


@st.composite
def parts(draw: st.DrawFn) -> lov.Part:
    magic = draw(st.sampled_from([lov.V1, lov.V3, lov.SPECIFIC]))
    table = draw(st.lists(objects, max_size=5))
    special = st.integers(0xFFE0, 0xFFFF)
    return lov.Part(
        start_bytes=draw(u64),
        end_bytes=draw(u64),
        id=draw(u32),
        flags=draw(u32),
        gen=draw(u32),
        timestamp=draw(u64),
        extra=draw(st.binary(min_size=4, max_size=4)),
        magic=magic,
        pattern=draw(u32),
        oi_id=draw(u64),
        oi_seq=draw(u64),
        stripe_size_bytes=draw(u32),
        stripe_count=len(table) if table or magic == lov.SPECIFIC else draw(special | st.just(0)),
        stripe_offset=draw(u16),
        pool=b"" if magic == lov.V1 else draw(st.binary(max_size=16)).rstrip(b"\0"),
        table=b"".join(table),
    )


composites = st.builds(
    lambda big, gen, flags, mirrors, parity, some: lov.Lov(
        True, big, gen, flags, mirrors, parity, tuple(some)
    ),
    st.booleans(),
    u32,
    u16,
    u16,
    u8,
    st.lists(parts(), min_size=1, max_size=4),
)
plains = st.builds(
    lambda big, part: lov.Lov(
        False,
        big,
        parts=(
            part._replace(
                start_bytes=0, end_bytes=lov.EOF, id=0, flags=0, gen=0, timestamp=0, extra=b"\0" * 4
            ),
        ),
    ),
    st.booleans(),
    parts(),
)


@given(composites | plains)
def test_every_layout_comes_back_from_its_bytes(layout: lov.Lov) -> None:
    blob = lov.encode(layout)
    assert lov.decode(blob) == layout
    assert lov.encode(lov.decode(blob)) == blob


def cuts(blob: bytes) -> Iterator[bytes]:
    for end in range(len(blob)):
        yield blob[:end]


@given(st.binary(max_size=300) | composites.map(lov.encode))
def test_no_bytes_crash_the_codec(blob: bytes) -> None:
    for some in (blob, *cuts(blob)):
        try:
            lov.decode(some)
            lov.check(some)
            _native.layout_is_copy(some)
        except OSError as error:
            assert error.errno in (errno.ERANGE, errno.EINVAL, errno.E2BIG)


def test_decoding_leaks_nothing() -> None:
    """In a process of its own, whose memory stays as it is however often it decodes and fails."""
    program = f"""
import resource
from penstock.targets import lov
good, bad = {DOM!r}, {PFL[:150]!r}
swapped = lov.encode(lov.decode(good)._replace(big_endian=True))
def turn(n):
    for _ in range(n):
        lov.encode(lov.decode(swapped))
        for wrong in (lambda: lov.decode(bad), lambda: lov.encode(lov.Lov(parts=(lov.Part(table=b'x'),)))):
            try: wrong()
            except (OSError, ValueError): pass
turn(5000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
turn(40000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 2048  # KiB; 40,000 leaks of the smallest object would be 1.5 MiB and more
