"""Values as deterministic, self-describing bytes: what goes in comes out, of the same type and in the same order.

Layout: `HFv`, a version byte, one value, and the CRC-32 of all that. A value is a tag byte and its content:
numbers of 8 bytes; blocks and counts with a 64-bit length before them. docs/decisions/0003 spells it out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from reprlib import repr as short
from typing import Any
from zlib import crc32

from holdfast.codec.atoms import ATOMS
from holdfast.codec.reduced import Unsupported, rebuild, reduce
from holdfast.codec.wire import Buffer, Reader, flat, number
from holdfast.errors import DamagedState, FormatTooNew, NotCheckpointable

__all__ = ["DEEPEST", "decode_value", "encode_value"]

MAGIC = b"HFv"
VERSION = 1
CHECKSUM = struct.Struct("<I")

DEEPEST = 64
"""How deep values may be nested. A value that holds itself ends here too."""

Parts = list[bytes | bytearray | memoryview]

NONE, TRUE, FALSE, INT, FLOAT, REDUCED = b"N", b"T", b"F", b"i", b"f", b"x"
LIST, TUPLE, DICT, SET, FROZENSET = b"l", b"t", b"d", b"S", b"Z"

TAG = struct.Struct("<c")
SIGNED = struct.Struct("<q")
DOUBLE = struct.Struct("<d")
TAGGED_INT = struct.Struct("<cq")
TAGGED_FLOAT = struct.Struct("<cd")
TAGGED_COUNT = struct.Struct("<cQ")


def encode_value(value: object) -> bytes:
    """Encode a value; equal values of the same types, built in the same order, give the same bytes in any process.

    Dicts keep their order of insertion, since a restored one must iterate as before; sets are sorted by their
    elements' bytes. Types are exact: an Enum, a named tuple or another subclass raises NotCheckpointable with the
    path to it. Nothing else may change the value meanwhile. An object that occurs twice comes back as two.
    """
    parts: Parts = [MAGIC, bytes([VERSION])]
    try:
        _put(value, parts, 0)
    except Unsupported as found:
        raise NotCheckpointable(str(found)) from found
    checksum = 0
    for part in parts:
        checksum = crc32(part, checksum)
    parts.append(CHECKSUM.pack(checksum))
    return b"".join(parts)


def decode_value(data: Buffer) -> object:
    """Make the value again; DamagedState if these are not, to the bit, the bytes that encode_value gave.

    A value of a library that is not installed here raises LibraryMissing; the bytes are then whole.
    """
    view = flat(data)
    body, checksum = view[: -CHECKSUM.size], view[-CHECKSUM.size :]
    if body[: len(MAGIC)] != MAGIC or len(body) <= len(MAGIC):
        raise DamagedState("it does not begin as a value")
    if CHECKSUM.pack(crc32(body)) != checksum:
        raise DamagedState("the checksum of the value does not match")
    if (version := body[len(MAGIC)]) > VERSION:
        raise FormatTooNew("a state value", str(version))
    reader = Reader(body[len(MAGIC) + 1 :])
    value = _get(reader, 0)
    reader.finish()
    return value


def _put(value: object, out: Parts, depth: int) -> None:
    put = PUT.get(type(value))
    if put is not None:
        put(value, out, depth)
    else:
        _put_reduced(value, out, depth)


def _put_int(value: int, out: Parts, depth: int) -> None:
    try:
        out.append(TAGGED_INT.pack(INT, value))
    except struct.error:
        PUT_LARGE_INT(value, out, depth)


def _put_float(value: float, out: Parts, _: int) -> None:
    out.append(TAGGED_FLOAT.pack(FLOAT, value))


def _put_bool(value: bool, out: Parts, _: int) -> None:
    out.append(TRUE if value else FALSE)


def _put_none(_value: None, out: Parts, _: int) -> None:
    out.append(NONE)


def _atom_putter(tag: bytes, pack: Callable[[Any], Buffer]) -> Callable[[Any, Parts, int], None]:
    def put(value: object, out: Parts, _: int) -> None:
        content = pack(value)
        out.append(TAGGED_COUNT.pack(tag, len(content)))
        out.append(content)

    return put


def _sequence_putter(tag: bytes) -> Callable[[Any, Parts, int], None]:
    def put(value: list[object] | tuple[object, ...], out: Parts, depth: int) -> None:
        inner = _deeper(depth)
        out.append(TAGGED_COUNT.pack(tag, len(value)))
        for index, item in enumerate(value):
            try:
                _put(item, out, inner)
            except Unsupported as found:
                raise found.below(f"[{index}]") from None

    return put


def _put_dict(value: dict[object, object], out: Parts, depth: int) -> None:
    inner = _deeper(depth)
    out.append(TAGGED_COUNT.pack(DICT, len(value)))
    for key, item in value.items():
        try:
            _put(key, out, inner)
        except Unsupported as found:
            raise found.below(f".key({short(key)})") from None
        try:
            _put(item, out, inner)
        except Unsupported as found:
            raise found.below(f"[{short(key)}]") from None


def _set_putter(tag: bytes) -> Callable[[Any, Parts, int], None]:
    def put(value: Iterable[object], out: Parts, depth: int) -> None:
        inner = _deeper(depth)
        elements = []
        for element in value:
            parts: Parts = []
            try:
                _put(element, parts, inner)
            except Unsupported as found:
                raise found.below(f".element({short(element)})") from None
            elements.append(b"".join(parts))
        out.append(TAGGED_COUNT.pack(tag, len(elements)))
        out.extend(sorted(elements))

    return put


def _put_reduced(value: object, out: Parts, depth: int) -> None:
    kind, head, data = reduce(value)
    name = kind.encode("ascii")
    out.append(TAGGED_COUNT.pack(REDUCED, len(name)))
    out.append(name)
    _put(head, out, _deeper(depth))
    out.append(number(len(data)))
    out.append(data)


def _deeper(depth: int) -> int:
    if depth >= DEEPEST:
        raise Unsupported(f"value nested more than {DEEPEST} deep")
    return depth + 1


PUT: dict[type, Callable[[Any, Parts, int], None]] = {
    **{atom.kind: _atom_putter(atom.tag, atom.pack) for atom in ATOMS},
    type(None): _put_none,
    bool: _put_bool,
    float: _put_float,
    list: _sequence_putter(LIST),
    tuple: _sequence_putter(TUPLE),
    dict: _put_dict,
    set: _set_putter(SET),
    frozenset: _set_putter(FROZENSET),
}
PUT_LARGE_INT = PUT[int]
PUT[int] = _put_int


def _get(reader: Reader, depth: int) -> Any:
    if depth > DEEPEST:
        raise DamagedState(f"it is nested more than {DEEPEST} deep")
    tag = reader.fixed(TAG)
    get = GET.get(tag)
    if get is None:
        raise DamagedState(f"there is no tag {tag!r} (at {reader.at - 1})")
    return get(reader, depth + 1)


def _atom_getter(kind: type, unpack: Callable[[memoryview], object]) -> Callable[[Reader, int], object]:
    def get(reader: Reader, _: int) -> object:
        at = reader.at
        content = reader.block()
        try:
            return unpack(content)
        except (ValueError, ArithmeticError, struct.error, OSError) as error:
            raise DamagedState(f"there is no {kind.__qualname__} at {at}: {error}") from error

    return get


def _get_int(reader: Reader, _: int) -> int:
    value: int = reader.fixed(SIGNED)
    return value


def _get_float(reader: Reader, _: int) -> float:
    value: float = reader.fixed(DOUBLE)
    return value


def _get_list(reader: Reader, depth: int) -> list[object]:
    return [_get(reader, depth) for _ in range(reader.number())]


def _get_dict(reader: Reader, depth: int) -> dict[object, object]:
    value: dict[object, object] = {}
    count = reader.number()
    for _ in range(count):
        at, key, item = reader.at, _get(reader, depth), _get(reader, depth)
        try:
            value[key] = item
        except TypeError as error:
            raise DamagedState(f"what stands at {at} can't be a key: {error}") from error
    if len(value) != count:
        raise DamagedState("a dict holds the same key twice")
    return value


def _get_set(reader: Reader, depth: int) -> set[object]:
    at, elements = reader.at, _get_list(reader, depth)
    try:
        value = set(elements)
    except TypeError as error:
        raise DamagedState(f"the set at {at} holds what no set can: {error}") from error
    if len(value) != len(elements):
        raise DamagedState("a set holds the same element twice")
    return value


def _get_reduced(reader: Reader, depth: int) -> object:
    kind = reader.text()
    head = _get(reader, depth)
    return rebuild(kind, head, reader.block())


GET: dict[bytes, Callable[[Reader, int], object]] = {
    **{atom.tag: _atom_getter(atom.kind, atom.unpack) for atom in ATOMS},
    NONE: lambda _reader, _depth: None,
    TRUE: lambda _reader, _depth: True,
    FALSE: lambda _reader, _depth: False,
    INT: _get_int,
    FLOAT: _get_float,
    LIST: _get_list,
    TUPLE: lambda reader, depth: tuple(_get_list(reader, depth)),
    DICT: _get_dict,
    SET: _get_set,
    FROZENSET: lambda reader, depth: frozenset(_get_set(reader, depth)),
    REDUCED: _get_reduced,
}
