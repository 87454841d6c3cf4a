"""The lineage in the head of a changelog of checkpoint format 2, in LZ4 blocks."""

from __future__ import annotations

import json

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.changelog import lineage_of
from holdfast.spark.logs import Malformed


def framed(plain: bytes, block: int = 64 * 1024, *, stored: bool = False) -> bytes:
    """The stream that a changelog is: blocks with a magic, a method, two lengths and a checksum."""
    out = b""
    for start in range(0, len(plain), block):
        part = plain[start : start + block]
        body = part if stored else pyarrow.compress(part, codec="lz4_raw", asbytes=True)
        method = 0x10 if stored else 0x20
        sizes = len(body).to_bytes(4, "little") + len(part).to_bytes(4, "little")
        out += b"LZ4Block" + bytes([method | 5]) + sizes + b"\0\0\0\0" + body
    return out


def head(lineage: dict[int, str], version: str = "v3") -> bytes:
    text = json.dumps([{"version": v, "checkpointUniqueId": i} for v, i in lineage.items()]).encode()
    return b"\0\x02" + version.encode() + len(text).to_bytes(2, "big") + text


LINEAGE = {version: f"0f8a{version:04d}-4e67-c752-d819-4335ac66aa88" for version in range(3, 60)}


@pytest.mark.parametrize("block", [7, 100, 64 * 1024])
@pytest.mark.parametrize("stored", [True, False])
def test_the_versions_before_are_named_however_the_stream_is_cut_into_blocks(block: int, stored: bool) -> None:
    plain = head(LINEAGE) + bytes(range(256)) * 50
    assert lineage_of(framed(plain, block, stored=stored), "lz4") == LINEAGE


@given(st.binary(max_size=400), st.integers(1, 5))
def test_blocks_come_out_as_they_went_in(rows: bytes, repeat: int) -> None:
    plain = head({1: (rows * repeat).hex()[:20000]}) + rows
    assert lineage_of(framed(plain), "lz4") == {1: (rows * repeat).hex()[:20000]}


def test_a_changelog_of_another_version_or_codec_names_nothing() -> None:
    assert lineage_of(framed(head(LINEAGE, "v2")), "lz4") == {}
    assert lineage_of(b"whatever", "zstd") == {}


def test_every_stream_that_is_cut_short_in_its_head_is_malformed() -> None:
    whole = framed(head(LINEAGE))
    for end in range(len(whole)):
        with pytest.raises(Malformed):
            lineage_of(whole[:end], "lz4")


@given(st.binary(max_size=80))
def test_no_bytes_whatever_break_it(data: bytes) -> None:
    for prefix in (b"", b"LZ4Block\x25", framed(head(LINEAGE))[:40]):
        try:
            lineage_of(prefix + data, "lz4")
        except Malformed:
            continue
