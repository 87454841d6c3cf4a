"""The envelope of one object: frames of 64 KiB, each of which opens by itself, so that any range can be read.

    frame = "HFE1" | number of the ring's key (4) | salt (24) | AES-256-GCM of up to 65,536 bytes | tag (16)

The salt is drawn anew for each writing and is the same in all its frames. With the object's name it gives the key of
that writing, so no object opens under another name, and no key meets a nonce twice: the nonce is the frame's number
and whether it is the last. Only the last frame may be short, and only an empty object has an empty one.
"""

from __future__ import annotations

import io
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from holdfast.encryption.ciphers import gcm
from holdfast.encryption.ring import SALT, Ring
from holdfast.store.contract import Buffer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = [
    "FRAME",
    "OVERHEAD",
    "SEALED",
    "BrokenEnvelope",
    "Opening",
    "Stretch",
    "enclose",
    "enclosed",
    "opened",
    "plain_size",
]

FRAME = 64 * 1024
"""How many bytes of an object a frame carries."""

PIECE = 16 * FRAME
"""So much is sealed or opened at a time, into memory that is used again: new memory costs more than the cipher."""

_PREFIX = struct.Struct(f">4sI{SALT}s")
_NONCE = struct.Struct(">QI")
_MARK = b"HFE1"
_TAG = 16
OVERHEAD = _PREFIX.size + _TAG
SEALED = FRAME + OVERHEAD
"""How many bytes a full frame takes in the store."""


NOT_OPEN = "its envelope does not open: changed, cut short, or written elsewhere"


class BrokenEnvelope(Exception):
    """What is in the store is not what was written there under this name."""


def plain_size(size: int) -> int:
    """How many bytes an object carries that takes so many in the store; for one that was cut short, fewer."""
    frames = -(-size // SEALED)
    return max(0, size - frames * OVERHEAD)


def enclose(ring: Ring, name: str, data: Buffer) -> bytearray:
    """The envelope of an object that is at hand. Two of the same bytes are never the same."""
    return _Sealing(ring, name).frames(memoryview(data).cast("B"), last=True)


def enclosed(ring: Ring, name: str, chunks: Iterable[Buffer]) -> Iterator[bytearray]:
    """The envelope of an object that passes by in chunks."""
    sealing = _Sealing(ring, name)
    # What may be the last frame waits until more is seen, or the end.
    held = b""
    for chunk in chunks:
        data = memoryview(chunk).cast("B")
        if held:
            lacking = FRAME - len(held)
            held, data = held + bytes(data[:lacking]), data[lacking:]
            if not data.nbytes:
                continue
            yield sealing.frames(memoryview(held), last=False)
        ready = max(0, data.nbytes - 1) // FRAME * FRAME
        for start in range(0, ready, PIECE):
            yield sealing.frames(data[start : min(ready, start + PIECE)], last=False)
        held = bytes(data[ready:])
    yield sealing.frames(memoryview(held), last=True)


class _Sealing:
    """One writing of one object."""

    def __init__(self, ring: Ring, name: str) -> None:
        salt = secrets.token_bytes(SALT)
        self._prefix = _PREFIX.pack(_MARK, ring.newest, salt)
        self._aead = gcm(ring.object_key(ring.newest, salt, name))
        self._next = 0

    def frames(self, data: memoryview, *, last: bool) -> bytearray:
        """The next frames; unless these are the last, the data must be whole ones."""
        starts = range(0, max(1, data.nbytes), FRAME)
        sealed = bytearray(data.nbytes + len(starts) * OVERHEAD)
        out, at = memoryview(sealed), 0
        for start in starts:
            plain = data[start : start + FRAME]
            ends = at + plain.nbytes + OVERHEAD
            out[at : at + _PREFIX.size] = self._prefix
            nonce = _NONCE.pack(self._next, last and start == starts[-1])
            self._aead.encrypt_into(nonce, plain, self._prefix, out[at + _PREFIX.size : ends])
            self._next += 1
            at = ends
        return sealed


class Opening:
    """Opens frames of one object. All that one of these is given must have been written together.

    `ring_with` gives the ring for a frame that names this number of a key; it may lack it all the same.
    """

    def __init__(self, ring_with: Callable[[int], Ring], name: str) -> None:
        self._ring_with = ring_with
        self._name = name
        self._prefix = b""
        self._aead: AESGCM | None = None

    def frames(self, first: int, data: memoryview, last: bool | None, out: memoryview) -> None:
        """Open successive frames into a place of just their size; `last` is None if only the last itself can tell.

        What is in that place counts only if this returns.
        """
        from cryptography.exceptions import InvalidTag

        at, size = 0, data.nbytes
        for number, start in enumerate(range(0, size, SEALED), first):
            end = min(start + SEALED, size)
            filled = at + end - start - OVERHEAD
            aead = self._cipher(bytes(data[start : start + _PREFIX.size]))
            frame, place = data[start + _PREFIX.size : end], out[at:filled]
            try:
                aead.decrypt_into(_NONCE.pack(number, bool(last) and end == size), frame, self._prefix, place)
            except InvalidTag:
                if last is not None or end < size:
                    raise BrokenEnvelope(NOT_OPEN) from None
                self.frames(number, data[start:], True, place)
            at = filled

    def _cipher(self, prefix: bytes) -> AESGCM:
        if self._aead is not None and prefix == self._prefix:
            return self._aead
        mark, number, salt = _PREFIX.unpack(prefix)
        if mark != _MARK:
            raise BrokenEnvelope("it is no envelope")
        if self._aead is not None:
            raise BrokenEnvelope("its parts were not written together")
        ring = self._ring_with(number)
        if number not in ring.keys:
            raise BrokenEnvelope(f"it is encrypted with key number {number}, which this repository does not have")
        self._prefix = prefix
        self._aead = gcm(ring.object_key(number, salt, self._name))
        return self._aead


class Stretch:
    """Successive frames of an object that are at hand, from one of them on.

    `last` says whether the object ends with them; None if only the frames can tell. All raise BrokenEnvelope.
    """

    def __init__(self, opening: Opening, first: int, data: Buffer, *, last: bool | None) -> None:
        self._opening = opening
        self._first = first
        self._data = memoryview(data).cast("B")
        self._count = -(-self._data.nbytes // SEALED)
        self._ends = first * FRAME + plain_size(self._data.nbytes)
        self._edge = (-1, b"")
        tail = self._data.nbytes - max(0, self._count - 1) * SEALED
        self._last = True if tail < SEALED else last
        # Only the last frame of an object is short, and only that of an empty one carries nothing.
        least = OVERHEAD if first + self._count == 1 else OVERHEAD + 1
        if self._count and (tail < least or (last is False and self._last)):
            raise BrokenEnvelope("it is cut short")

    def whole(self) -> bytes:
        """All that they carry; every frame is opened."""
        if not self._count:
            raise BrokenEnvelope("it is cut short")
        return self.cut(self._first * FRAME, max(1, self._ends - self._first * FRAME))

    def cut(self, offset: int, length: int) -> bytes:
        """What lies in the object from an offset on, as far as these frames reach; only what is touched is opened."""
        end = min(offset + length, self._ends)
        touched = range(offset // FRAME, min(-(-(offset + length) // FRAME), self._first + self._count))
        # Frames that are wanted whole are opened into their place; an edge is opened elsewhere and cut.
        whole = range(-(-offset // FRAME), touched.stop if end == self._ends else end // FRAME)

        def fill(out: memoryview) -> None:
            for number in touched:
                if number not in whole:
                    start = number * FRAME
                    part = self._opened(number)[max(0, offset - start) : end - start]
                    at = max(0, start - offset)
                    out[at : at + len(part)] = part
            if whole:
                self._open(whole, out[whole.start * FRAME - offset : min(whole.stop * FRAME, self._ends) - offset])

        return _filled(max(0, end - offset), fill)

    def _opened(self, number: int) -> bytes:
        """A frame of which only a part is wanted. It is kept for the next range, which often begins with the rest."""
        if self._edge[0] != number:
            size = max(0, min(FRAME, self._ends - number * FRAME))
            self._edge = (number, _filled(size, lambda out: self._open(range(number, number + 1), out)))
        return self._edge[1]

    def _open(self, frames: range, out: memoryview) -> None:
        at, end = frames.start - self._first, frames.stop - self._first
        last = self._last if end == self._count else False
        self._opening.frames(frames.start, self._data[at * SEALED : end * SEALED], last, out)


def opened(opening: Opening, first: int, chunks: Iterable[Buffer], asked: int | None) -> Iterator[bytes]:
    """What an object carries that passes by in chunks, from one of its frames on; `asked` is how much may come.

    Raises BrokenEnvelope. Frames are opened where they lie: only one that comes in two chunks is put together first.
    """
    # What may be the last frame waits until more is seen, or the end.
    held, got = b"", 0
    for chunk in chunks:
        data = memoryview(chunk).cast("B")
        got += data.nbytes
        lacking = SEALED - len(held) if held else 0
        if data.nbytes <= lacking:
            held += bytes(data)
            continue
        begun = memoryview(held + bytes(data[:lacking]) if held else b"")
        data = data[lacking:]
        ready = (data.nbytes - 1) // SEALED * SEALED
        for start in range(0, max(1, ready), PIECE // FRAME * SEALED):
            # Together, and not each by itself: whoever takes them has as much to do with few bytes as with many.
            parts = [begun, data[start : min(ready, start + PIECE // FRAME * SEALED)]]
            if count := sum(part.nbytes for part in parts) // SEALED:
                yield _filled(count * FRAME, partial(_open_all, opening, first, parts))
            first, begun = first + count, memoryview(b"")
        held = bytes(data[ready:])
    if held or not first:
        yield Stretch(opening, first, held, last=None if got == asked else True).whole()


def _open_all(opening: Opening, first: int, parts: Iterable[memoryview], out: memoryview) -> None:
    """Open whole frames that follow each other, none of which is the last, though they lie apart."""
    at = 0
    for part in parts:
        count = part.nbytes // SEALED
        opening.frames(first + at, part, False, out[at * FRAME : (at + count) * FRAME])
        at += count


def _filled(size: int, fill: Callable[[memoryview], None]) -> bytes:
    """Bytes that are written in place: large ones cost more to copy than to decrypt."""
    holder = io.BytesIO(bytes(size))
    with holder.getbuffer() as out:
        fill(out)
    return holder.getvalue()
