"""The head of a RocksDB changelog of checkpoint format 2: which versions, by their unique ids, came before it."""

from __future__ import annotations

import json
from typing import TypeAlias

from holdfast.spark.logs import Malformed

__all__ = ["Lineage", "lineage_of"]

Lineage: TypeAlias = dict[int, str]

LZ4_MAGIC = b"LZ4Block"
LZ4_HEAD = len(LZ4_MAGIC) + 13
STORED, COMPRESSED = 0x10, 0x20
WITH_LINEAGE = ("v3", "v4")


def lineage_of(data: bytes, codec: str) -> Lineage:
    """The versions and ids that a changelog names as those before it, back to a snapshot.

    Only LZ4, Spark's default, is read; with another codec nothing is known, which is an empty lineage.
    """
    if codec != "lz4":
        return {}
    plain, position = _LZ4Blocks(data), 0
    version, position = _utf(plain, position)
    if version not in WITH_LINEAGE:
        return {}
    text, _ = _utf(plain, position)
    try:
        return {int(item["version"]): str(item["checkpointUniqueId"]) for item in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"its lineage is not understood: {error!r}") from None


def _utf(plain: _LZ4Blocks, position: int) -> tuple[str, int]:
    """A string as Java's writeUTF leaves it: two bytes of length, then the text."""
    length = int.from_bytes(plain.take(position, 2), "big")
    return plain.take(position + 2, length).decode("utf-8", "replace"), position + 2 + length


class _LZ4Blocks:
    """A stream of LZ4 blocks, decompressed only as far as it is asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._plain = bytearray()

    def take(self, position: int, length: int) -> bytes:
        while len(self._plain) < position + length:
            self._next_block()
        return bytes(self._plain[position : position + length])

    def _next_block(self) -> None:
        head = self._data[self._at : self._at + LZ4_HEAD]
        if len(head) < LZ4_HEAD or not head.startswith(LZ4_MAGIC):
            raise Malformed("it is cut short or no LZ4 stream")
        method = head[8] & 0xF0
        stored, original = int.from_bytes(head[9:13], "little"), int.from_bytes(head[13:17], "little")
        block = self._data[self._at + LZ4_HEAD : self._at + LZ4_HEAD + stored]
        if len(block) < stored or method not in (STORED, COMPRESSED) or not original:
            raise Malformed("it is cut short or no LZ4 stream")
        self._plain += block if method == STORED else _decompress(block, original)
        self._at += LZ4_HEAD + stored


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
            for position in range(start, start + repeat + 4):
                out.append(out[position])
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
