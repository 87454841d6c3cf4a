"""The binary record of a checkpoint: nothing is lost, and nothing damaged passes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec import CheckpointState, decode_state, encode_state
from holdfast.errors import BadValue, DamagedState, FormatTooNew

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
INT64 = st.integers(-(2**63), 2**63 - 1)

STATES = st.builds(
    CheckpointState,
    stream=TEXT,
    sequence=INT64,
    created_ns=INT64,
    watermark_ns=st.none() | INT64,
    event_count=INT64,
    operator_states=st.dictionaries(TEXT, st.binary()),
    source_offsets=st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT)),
    metadata=st.dictionaries(TEXT, TEXT),
)

SMALL = CheckpointState(
    stream="orders",
    sequence=41,
    created_ns=1_767_225_600_000_000_000,
    watermark_ns=-1,
    event_count=42,
    operator_states={"totals": b"\x01\x02", "empty": b""},
    source_offsets={"kafka": {"partition-0": "1234"}, "cdc": {"lsn": "0/1234ABCD"}, "none": {}},
    metadata={"host": "a"},
)


def header(record: bytes) -> tuple[bytes, int, int, int, int]:
    return struct.unpack_from("<8sHHIQ", record)


def signed(body: bytes, major: int = 1, minor: int = 0, sections: int = 4) -> bytes:
    """A record around sections that may be nonsense, with all lengths and the checksum right."""
    record = struct.pack("<8sHHIQ", b"HFSTATE\n", major, minor, sections, 24 + len(body) + 32) + body
    return record + sha256(record).digest()


def body(record: bytes) -> bytes:
    return record[24:-32]


def section(tag: bytes, content: bytes) -> bytes:
    return struct.pack("<4sQ", tag, len(content)) + content


@given(STATES)
def test_a_record_comes_back_whole(state: CheckpointState) -> None:
    record = encode_state(state)
    assert decode_state(record) == state
    assert encode_state(decode_state(record)) == record


@given(STATES)
def test_the_order_of_the_maps_does_not_show(state: CheckpointState) -> None:
    turned = replace(
        state,
        operator_states=dict(reversed(state.operator_states.items())),
        source_offsets={
            source: dict(reversed(offsets.items())) for source, offsets in reversed(state.source_offsets.items())
        },
        metadata=dict(reversed(state.metadata.items())),
    )
    assert encode_state(turned) == encode_state(state)


def test_no_watermark_is_not_the_watermark_zero() -> None:
    for watermark in (None, 0):
        assert decode_state(encode_state(replace(SMALL, watermark_ns=watermark))).watermark_ns == watermark


def test_another_process_gives_the_same_bytes() -> None:
    script = f"""
from holdfast.codec import CheckpointState, encode_state
print(encode_state({SMALL!r}).hex())
"""
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        assert bytes.fromhex(done.stdout) == encode_state(SMALL)


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(b"abcdef"),
        memoryview(b"abcdef"),
        memoryview(b"afbecd")[::-1][::-1],
        memoryview(b"a-b-c-d-e-f")[::2],
        memoryview(b"abcdef").cast("H"),
        memoryview(b"abcdef").cast("B", (2, 3)),
        memoryview(b""),
        memoryview(np.empty((0, 3))),
    ],
)
def test_states_may_be_given_as_any_buffer(buffer: bytearray | memoryview) -> None:
    state = replace(SMALL, operator_states={"totals": buffer})
    record = encode_state(state)
    found = decode_state(record).operator_states["totals"]
    assert type(found) is bytes
    assert found == (buffer.tobytes() if isinstance(buffer, memoryview) else bytes(buffer))
    assert decode_state(bytearray(record)) == decode_state(memoryview(record)) == decode_state(record)


def test_every_truncation_is_damage() -> None:
    record = encode_state(SMALL)
    for size in range(len(record)):
        with pytest.raises(DamagedState, match=r"too few|should have"):
            decode_state(record[:size])


def test_every_flipped_bit_is_damage() -> None:
    record = encode_state(SMALL)
    for bit in range(len(record) * 8):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedState):
            decode_state(flipped)


def test_bytes_after_the_record_are_damage() -> None:
    with pytest.raises(DamagedState):
        decode_state(encode_state(SMALL) + b"\0")


@given(st.binary())
def test_random_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(DamagedState):
        decode_state(data)


@given(st.binary(), st.integers(0, 5))
def test_random_sections_are_damage(content: bytes, sections: int) -> None:
    with pytest.raises(DamagedState):
        decode_state(signed(content, sections=sections))


@given(STATES, st.data())
def test_bytes_changed_behind_the_checksum_decode_or_are_damage(state: CheckpointState, data: st.DataObject) -> None:
    changed = bytearray(body(encode_state(state)))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_state(signed(bytes(changed)))
    except DamagedState:
        return
    assert isinstance(found, CheckpointState)


def test_a_later_major_version_is_refused_as_such() -> None:
    with pytest.raises(FormatTooNew, match="format 2"):
        decode_state(signed(b"whatever it may be", major=2))


def test_sections_of_a_later_minor_version_are_passed_over() -> None:
    known = body(encode_state(SMALL))
    newer = section(b"NEWS", b"not known here")
    for content in (newer + known, known + newer):
        assert decode_state(signed(content, minor=1, sections=5)) == SMALL


@pytest.mark.parametrize("tag", [b"POSI", b"OPER", b"OFFS", b"META"])
def test_a_missing_section_is_damage(tag: bytes) -> None:
    renamed = body(encode_state(SMALL)).replace(tag, b"XXXX")
    with pytest.raises(DamagedState, match=f"{tag.decode()}.* is missing"):
        decode_state(signed(renamed))


@pytest.mark.parametrize(
    ("why", "content", "sections"),
    [
        ("is there twice", body(encode_state(SMALL)) + section(b"META", struct.pack("<Q", 0)), 5),
        ("bytes too many", body(encode_state(SMALL)) + b"\0", 4),
        ("bytes too many", body(encode_state(replace(SMALL, metadata={})))[:-20] + section(b"META", bytes(9)), 4),
        ("maps are sorted", body(encode_state(SMALL)).replace(b"totals", b"aaaaaa"), 4),
        ("not UTF-8", body(encode_state(SMALL)).replace(b"orders", b"order\xff"), 4),
    ],
)
def test_a_record_that_no_encoder_wrote_is_damage(why: str, content: bytes, sections: int) -> None:
    with pytest.raises(DamagedState, match=why):
        decode_state(signed(content, sections=sections))


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 2**63},
        {"created_ns": 1.5},
        {"stream": "\ud800"},
        {"metadata": {"a": "\ud800"}},
        {"source_offsets": {"a": {"\ud800": ""}}},
    ],
)
def test_what_the_record_can_not_hold_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadValue):
        encode_state(replace(SMALL, **change))


def test_the_layout_is_the_one_that_is_written_down() -> None:
    # Records of this version must stay readable for ever: a change here is a change of the format.
    record = encode_state(replace(SMALL, operator_states={"t": b"\x01"}, source_offsets={}, metadata={}))
    assert header(record) == (b"HFSTATE\n", 1, 0, 4, len(record))
    number = struct.Struct("<Q").pack
    assert body(record) == (
        section(b"POSI", struct.pack("<qqqqB", 41, 1_767_225_600_000_000_000, 42, -1, 1) + number(6) + b"orders")
        + section(b"OPER", number(1) + number(1) + b"t" + number(1) + b"\x01")
        + section(b"OFFS", number(0))
        + section(b"META", number(0))
    )
    assert record[-32:] == sha256(record[:-32]).digest()
