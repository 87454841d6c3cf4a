"""The stream of LZ4 blocks that Spark writes its deltas, snapshots and changelogs in: each block has a checksum."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from holdfast.spark.logs import Malformed

__all__ = ["blocks", "xxhash32"]

MAGIC = b"LZ4Block"
HEAD = len(MAGIC) + 13
STORED, COMPRESSED = 0x10, 0x20
SEED = 0x9747B28C
SUM_BITS = 0xFFFFFFF
"""Java's writer leaves the four highest bits of the hash out."""

_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_MASK = 0xFFFFFFFF


def blocks(read: Callable[[int], bytes], *, verify: bool = False) -> Iterator[bytes]:
    """The plain bytes of each block, as they are asked for. `read` gives so many bytes, fewer only at the end.

    Raises Malformed where a block is not whole. With `verify` each is compared with its checksum, and the stream must
    end as its writer ended it.
    """
    while True:
        head = read(HEAD)
        method = head[8] & 0xF0 if len(head) == HEAD and head.startswith(MAGIC) else 0
        stored, original, checksum = (int.from_bytes(head[n : n + 4], "little") for n in (9, 13, 17))
        if method not in (STORED, COMPRESSED) or bool(stored) != bool(original):
            raise Malformed("it is cut short or no LZ4 stream")
        if not original:
            if verify and read(1):
                raise Malformed("something follows the end of its LZ4 stream")
            return
        block = read(stored)
        if len(block) < stored:
            raise Malformed("it is cut short")
        plain = block if method == STORED else _decompress(block, original)
        if verify and xxhash32(plain) & SUM_BITS != checksum:
            raise Malformed("a block of its LZ4 stream does not match its checksum")
        yield plain


def _decompress(block: bytes, size: int) -> bytes:
    """One LZ4 block: runs of literals, each followed by a match that repeats what was written before."""
    out, at = bytearray(), 0
    try:
        while True:
            token = block[at]
            literals, at = _length(block, at + 1, token >> 4)
            out += block[at : at + literals]
            at += literals
            if at >= len(block):
                break
            back = int.from_bytes(block[at : at + 2], "little")
            repeat, at = _length(block, at + 2, token & 0x0F)
            start = len(out) - back
            if back == 0 or start < 0:
                raise Malformed("its LZ4 block is damaged")
            repeat += 4
            pattern = out[start : start + repeat]
            out += (pattern * (repeat // len(pattern) + 1))[:repeat]
            if len(out) > size:
                break
    except IndexError:
        raise Malformed("its LZ4 block is cut short") from None
    if len(out) != size:
        raise Malformed("its LZ4 block has another size than it says")
    return bytes(out)


def _length(block: bytes, at: int, nibble: int) -> tuple[int, int]:
    length = nibble
    if nibble == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return length, at


def xxhash32(data: bytes, seed: int = SEED) -> int:
    """The hash of a block, as xxHash defines it."""
    size = len(data)
    at = size - size % 16
    if at:
        total = _lanes(data[:at], seed)
    else:
        total = (seed + _P5) & _MASK
    total = (total + size) & _MASK
    words = size - size % 4
    for (word,) in struct.iter_unpack("<I", data[at:words]):
        total = _rotated(total + word * _P3, 17) * _P4 & _MASK
    for byte in data[words:]:
        total = _rotated(total + byte * _P5, 11) * _P1 & _MASK
    total = (total ^ total >> 15) * _P2 & _MASK
    total = (total ^ total >> 13) * _P3 & _MASK
    return total ^ total >> 16


def _lanes(data: bytes, seed: int) -> int:
    words = struct.unpack(f"<{len(data) // 4}I", data)
    ends = []
    for lane, start in enumerate((seed + _P1 + _P2, seed + _P2, seed, seed - _P1)):
        value = start & _MASK
        for word in words[lane::4]:
            value = value + word * _P2 & _MASK
            value = (value << 13 | value >> 19) * _P1 & _MASK
        ends.append(value)
    return sum(_rotated(end, bits) for end, bits in zip(ends, (1, 7, 12, 18), strict=True)) & _MASK


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
