"""The head of a RocksDB changelog of checkpoint format 2: which versions, by their unique ids, came before it."""

from __future__ import annotations

import io
import json
from typing import TypeAlias

from holdfast.spark.logs import Malformed
from holdfast.spark.lz4 import blocks

__all__ = ["Lineage", "lineage_of"]

Lineage: TypeAlias = dict[int, str]

WITH_LINEAGE = ("v3", "v4")


def lineage_of(data: bytes, codec: str) -> Lineage:
    """The versions and ids that a changelog names as those before it, back to a snapshot.

    Only LZ4, Spark's default, is read; with another codec nothing is known, which is an empty lineage.
    """
    if codec != "lz4":
        return {}
    plain, position = _Plain(data), 0
    version, position = _utf(plain, position)
    if version not in WITH_LINEAGE:
        return {}
    text, _ = _utf(plain, position)
    try:
        return {int(item["version"]): str(item["checkpointUniqueId"]) for item in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"its lineage is not understood: {error!r}") from None


def _utf(plain: _Plain, position: int) -> tuple[str, int]:
    """A string as Java's writeUTF leaves it: two bytes of length, then the text."""
    length = int.from_bytes(plain.take(position, 2), "big")
    return plain.take(position + 2, length).decode("utf-8", "replace"), position + 2 + length


class _Plain:
    """The plain bytes of a stream of LZ4 blocks, decompressed only as far as they are asked for."""

    def __init__(self, data: bytes) -> None:
        self._blocks = blocks(io.BytesIO(data).read)
        self._plain = bytearray()

    def take(self, position: int, length: int) -> bytes:
        while len(self._plain) < position + length:
            block = next(self._blocks, None)
            if block is None:
                raise Malformed("it is cut short")
            self._plain += block
        return bytes(self._plain[position : position + length])
