"""Packs: one object that carries many small artifacts, so that a checkpoint costs the same however many it has.

    magic (8) | members, one after the other | index (zlib JSON) | SHA-256 of the index | its length (8) | magic (8)

Manifests hold offset and length of each member, and reading needs nothing else. The index at the end makes a pack
explain itself: `check` proves it, and it still tells what lies where when a manifest is lost.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable

import msgspec

from holdfast.errors import DamagedArtifact
from holdfast.store.contract import Buffer

__all__ = ["FOOTER_SIZE", "MAGIC", "Member", "PackBuilder", "encode_index", "index_span", "prove_pack", "read_index"]

MAGIC = b"HFPACK1\n"
_FOOTER = struct.Struct(">32sQ8s")
FOOTER_SIZE = _FOOTER.size


class Member(msgspec.Struct, frozen=True, array_like=True, order=True):
    offset: int
    length: int
    sha256: str


class PackBuilder:
    """Gathers members and gives the pack's bytes; where a member will lie is known as soon as it is added."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = [MAGIC]
        self._members: list[Member] = []
        self.size = len(MAGIC)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, data: Buffer, sha256: str) -> int:
        """Take a member in and give its offset. The bytes must not change: the pack is made of them."""
        offset = self.size
        self._parts.append(data)
        self._members.append(Member(offset, len(data), sha256))
        self.size += len(data)
        return offset

    def build(self) -> list[Buffer]:
        """The pack in parts. Joined they would be in memory twice, and most of a small checkpoint's time went there."""
        return [*self._parts, encode_index(self._members)]


def encode_index(members: Iterable[Member]) -> bytes:
    """The end of a pack, or the index that stands beside a pack whose own was damaged."""
    index = zlib.compress(msgspec.json.encode(sorted(members)), 6)
    return index + _FOOTER.pack(hashlib.sha256(index).digest(), len(index), MAGIC)


def index_span(path: str, size: int, footer: bytes) -> tuple[int, int]:
    """Where the index lies in a pack of this size, given its last 48 bytes: (offset, length)."""
    if len(footer) != _FOOTER.size:
        raise DamagedArtifact(path, "the pack is cut short")
    _, length, magic = _FOOTER.unpack(footer)
    start = size - _FOOTER.size - length
    if magic != MAGIC or start < 0:
        raise DamagedArtifact(path, "the pack does not end as a pack")
    return start, size - start


def read_index(path: str, tail: bytes) -> list[Member]:
    """The members that an index (with its footer) names; DamagedArtifact if it is not what was written."""
    index, footer = tail[: -_FOOTER.size], tail[-_FOOTER.size :]
    digest, length, magic = _FOOTER.unpack(footer) if len(footer) == _FOOTER.size else (b"", -1, b"")
    if magic != MAGIC or length != len(index) or hashlib.sha256(index).digest() != digest:
        raise DamagedArtifact(path, "the pack's index is damaged")
    try:
        return msgspec.json.decode(zlib.decompress(index), type=list[Member])
    except (zlib.error, msgspec.DecodeError) as error:
        raise DamagedArtifact(path, f"the pack's index can't be read: {error}") from error


def prove_pack(path: str, data: bytes) -> set[Member]:
    """All that a pack carries, if every byte of it is what was written; raises DamagedArtifact if one is not."""
    start, _ = index_span(path, len(data), data[-FOOTER_SIZE:])
    members, view = read_index(path, data[start:]), memoryview(data)
    if not data.startswith(MAGIC):
        raise DamagedArtifact(path, "the pack does not begin as a pack")
    for member in members:
        if hashlib.sha256(view[member.offset : member.offset + member.length]).hexdigest() != member.sha256:
            raise DamagedArtifact(f"{path} at {member.offset}", "its bytes do not match its digest")
    return set(members)
