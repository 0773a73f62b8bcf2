"""The extension loads and its checksum is CRC-32C."""

from penstock import _native


def test_crc32c_of_the_standard_vector() -> None:
    assert _native.crc32c(b"123456789") == 0xE3069283
    assert _native.crc32c(b"6789", _native.crc32c(b"12345")) == 0xE3069283
