"""The binary record of a plain loop's checkpoint: its position, its driver states, its source offsets.

Layout: a header (magic, major and minor version, number of sections, length of the whole record), the sections, and
the SHA-256 of everything before it. docs/decisions/0003 spells it out; all numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import TypeAlias, TypeVar

from holdfast.codec.wire import Buffer, Reader, flat, number
from holdfast.errors import BadValue, DamagedState, FormatTooNew

__all__ = ["CheckpointState", "decode_state", "encode_state"]

MAGIC = b"HFSTATE\n"
MAJOR, MINOR = 1, 0
HEADER = struct.Struct("<8sHHIQ")
SECTION = struct.Struct("<4sQ")
POSITION = struct.Struct("<qqqqB")
DIGEST = 32

T = TypeVar("T")
Parts: TypeAlias = list[bytes | memoryview]

POSITION_TAG, OPERATORS_TAG, OFFSETS_TAG, METADATA_TAG = b"POSI", b"OPER", b"OFFS", b"META"


@dataclass(frozen=True)
class CheckpointState:
    """What one checkpoint of a stream holds; `sequence` is the last event that is in it.

    Times are nanoseconds since 1970. Operator states may be given as any buffer; `decode_state` gives bytes.
    """

    stream: str
    sequence: int
    created_ns: int
    watermark_ns: int | None = None
    event_count: int = 0
    operator_states: Mapping[str, Buffer] = field(default_factory=dict)
    source_offsets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def encode_state(state: CheckpointState) -> bytes:
    """Write the record; equal states give equal bytes, whatever the order of their maps.

    BadValue for a number beyond 64 bits or text that is not Unicode. Leave the buffers alone until it returns.
    """
    sections = [
        (POSITION_TAG, _position(state)),
        (OPERATORS_TAG, _operators(state.operator_states)),
        (OFFSETS_TAG, _offsets(state.source_offsets)),
        (METADATA_TAG, _text_map("metadata", state.metadata)),
    ]
    parts: Parts = []
    for tag, content in sections:
        parts.append(SECTION.pack(tag, sum(map(len, content))))
        parts.extend(content)
    total = HEADER.size + sum(map(len, parts)) + DIGEST
    header = HEADER.pack(MAGIC, MAJOR, MINOR, len(sections), total)
    # The parts are hashed where they lie and joined once: the operator states are copied one single time.
    digest = sha256(header)
    for part in parts:
        digest.update(part)
    return b"".join(chain((header,), parts, (digest.digest(),)))


def decode_state(data: Buffer) -> CheckpointState:
    """Read a record back; DamagedState unless every single bit is as it was written.

    Sections that a later minor version adds are passed over; a later major version raises FormatTooNew.
    """
    view = flat(data)
    major, count = _verified_header(view)
    if major > MAJOR:
        raise FormatTooNew("a state record", str(major))
    sections = _sections(Reader(view[HEADER.size : -DIGEST]), count)
    stream, sequence, created_ns, event_count, watermark_ns = _whole(sections, POSITION_TAG, _read_position)
    return CheckpointState(
        stream=stream,
        sequence=sequence,
        created_ns=created_ns,
        watermark_ns=watermark_ns,
        event_count=event_count,
        operator_states=_whole(sections, OPERATORS_TAG, lambda reader: _read_map(reader, _read_bytes)),
        source_offsets=_whole(sections, OFFSETS_TAG, lambda reader: _read_map(reader, _read_text_map)),
        metadata=_whole(sections, METADATA_TAG, _read_text_map),
    )


def _verified_header(view: memoryview) -> tuple[int, int]:
    """Check all that never changes from version to version: the magic, the length and the digest at the end."""
    if len(view) < HEADER.size + DIGEST:
        raise DamagedState(f"{len(view)} bytes are too few for a record")
    magic, major, _minor, count, total = HEADER.unpack(view[: HEADER.size])
    if magic != MAGIC:
        raise DamagedState("it does not begin as a record")
    if total != len(view):
        raise DamagedState(f"it should have {total} bytes and has {len(view)}")
    if sha256(view[:-DIGEST]).digest() != view[-DIGEST:]:
        raise DamagedState("the checksum does not match")
    return major, count


def _sections(reader: Reader, count: int) -> dict[bytes, Reader]:
    sections: dict[bytes, Reader] = {}
    for _ in range(count):
        tag, size = SECTION.unpack(reader.take(SECTION.size))
        if tag in sections:
            raise DamagedState(f"the section {tag!r} is there twice")
        sections[tag] = Reader(reader.take(size))
    reader.finish()
    return sections


def _whole(sections: dict[bytes, Reader], tag: bytes, read: Callable[[Reader], T]) -> T:
    if tag not in sections:
        raise DamagedState(f"the section {tag!r} is missing")
    content = read(sections[tag])
    sections[tag].finish()
    return content


def _position(state: CheckpointState) -> Parts:
    watermark = state.watermark_ns
    numbers = (state.sequence, state.created_ns, state.event_count, watermark or 0)
    try:
        packed = POSITION.pack(*numbers, watermark is not None)
    except struct.error as error:
        raise BadValue("the position of a checkpoint", f"{numbers} are not all whole numbers of 64 bits") from error
    return [packed, *_text("stream", state.stream)]


def _read_position(reader: Reader) -> tuple[str, int, int, int, int | None]:
    sequence, created_ns, event_count, watermark_ns, known = POSITION.unpack(reader.take(POSITION.size))
    return reader.text(), sequence, created_ns, event_count, watermark_ns if known else None


def _operators(states: Mapping[str, Buffer]) -> Parts:
    return _map("operator state", states, lambda data: _block(flat(data)))


def _offsets(offsets: Mapping[str, Mapping[str, str]]) -> Parts:
    return _map("source offset", offsets, lambda inner: _text_map("source offset", inner))


def _text_map(what: str, content: Mapping[str, str]) -> Parts:
    return _map(what, content, lambda text: _text(what, text))


def _map(what: str, content: Mapping[str, T], write: Callable[[T], Parts]) -> Parts:
    parts: Parts = [number(len(content))]
    for key in sorted(content):
        parts += _text(what, key)
        parts += write(content[key])
    return parts


def _text(what: str, text: str) -> Parts:
    try:
        return _block(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise BadValue(what, f"{text!r} holds a lone surrogate, which UTF-8 can't") from error


def _block(data: bytes | memoryview) -> Parts:
    return [number(len(data)), data]


def _read_map(reader: Reader, read: Callable[[Reader], T]) -> dict[str, T]:
    content: dict[str, T] = {}
    last = None
    for _ in range(reader.number()):
        key = reader.text()
        if last is not None and key <= last:
            raise DamagedState(f"{key!r} comes after {last!r}: maps are sorted")
        content[key] = read(reader)
        last = key
    return content


def _read_bytes(reader: Reader) -> bytes:
    return bytes(reader.block())


def _read_text_map(reader: Reader) -> dict[str, str]:
    return _read_map(reader, Reader.text)
