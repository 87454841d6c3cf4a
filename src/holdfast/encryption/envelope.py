"""The envelope of one object: frames of 64 KiB, each of which opens by itself, so that any range can be read.

    frame = "HFE1" | number of the ring's key (4) | salt (24) | AES-256-GCM of up to 65,536 bytes | tag (16)

The salt is drawn anew for each writing and is the same in all its frames. With the object's name it gives the key of
that writing, so no object opens under another name, and no key meets a nonce twice: the nonce is the frame's number
and whether it is the last. Only the last frame may be short, and only an empty object has an empty one.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.encryption.ciphers import gcm
from holdfast.encryption.ring import SALT, Ring
from holdfast.store.contract import Buffer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["FRAME", "OVERHEAD", "SEALED", "BrokenEnvelope", "Opening", "enclose", "enclosed", "plain_size"]

FRAME = 64 * 1024
"""How many bytes of an object a frame carries."""

_PREFIX = struct.Struct(f">4sI{SALT}s")
_NONCE = struct.Struct(">QI")
_MARK = b"HFE1"
_TAG = 16
OVERHEAD = _PREFIX.size + _TAG
SEALED = FRAME + OVERHEAD
"""How many bytes a full frame takes in the store."""


class BrokenEnvelope(Exception):
    """What is in the store is not what was written there under this name."""


def plain_size(size: int) -> int:
    """How many bytes an object carries that takes so many in the store; for one that was cut short, fewer."""
    frames = -(-size // SEALED)
    return max(0, size - frames * OVERHEAD)


def enclose(ring: Ring, name: str, data: Buffer) -> bytes:
    """The envelope of an object that is at hand. Two of the same bytes are never the same."""
    view = memoryview(data).cast("B")
    sealing = _Sealing(ring, name)
    return b"".join(sealing.frames(view, last=True))


def enclosed(ring: Ring, name: str, chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """The envelope of an object that passes by in chunks."""
    sealing = _Sealing(ring, name)
    held = b""
    for chunk in chunks:
        data = memoryview(held + bytes(chunk) if held else chunk).cast("B")
        # What may be the last frame waits until more is seen, or the end.
        ready = max(0, data.nbytes - 1) // FRAME * FRAME
        if ready:
            yield b"".join(sealing.frames(data[:ready], last=False))
        held = bytes(data[ready:])
    yield b"".join(sealing.frames(memoryview(held), last=True))


class _Sealing:
    """One writing of one object."""

    def __init__(self, ring: Ring, name: str) -> None:
        salt = secrets.token_bytes(SALT)
        self._prefix = _PREFIX.pack(_MARK, ring.newest, salt)
        self._aead = gcm(ring.object_key(ring.newest, salt, name))
        self._next = 0

    def frames(self, data: memoryview, *, last: bool) -> Iterator[bytes]:
        """The parts of the next frames; unless these are the last, the data must be whole ones."""
        starts = range(0, max(1, data.nbytes), FRAME)
        for start in starts:
            ends = last and start == starts[-1]
            yield self._prefix
            nonce = _NONCE.pack(self._next, ends)
            yield self._aead.encrypt(nonce, data[start : start + FRAME], self._prefix)
            self._next += 1


class Opening:
    """Opens frames of one object. All that one of these is given must have been written together.

    `ring_with` gives the ring for a frame that names this number of a key; it may lack it all the same.
    """

    def __init__(self, ring_with: Callable[[int], Ring], name: str) -> None:
        self._ring_with = ring_with
        self._name = name
        self._prefix = b""
        self._aead: AESGCM | None = None

    def frames(self, first: int, data: Buffer, *, last: bool | None) -> bytes:
        """What successive frames carry, the first of which has this number.

        `last` says whether the object ends with them; None if only they themselves can tell. Raises BrokenEnvelope.
        """
        view = memoryview(data).cast("B")
        if not view.nbytes:
            raise BrokenEnvelope("it is cut short")
        starts = range(0, view.nbytes, SEALED)
        parts = [self._frame(first + n, view[start : start + SEALED], False) for n, start in enumerate(starts[:-1])]
        tail = view[starts[-1] :]
        number = first + len(parts)
        if last is None and tail.nbytes == SEALED:
            try:
                parts.append(self._frame(number, tail, False))
            except BrokenEnvelope:
                parts.append(self._frame(number, tail, True))
        else:
            parts.append(self._frame(number, tail, last is not False))
        return b"".join(parts)

    def _frame(self, number: int, frame: memoryview, last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag

        if frame.nbytes < OVERHEAD or (number and frame.nbytes == OVERHEAD):
            raise BrokenEnvelope("it is cut short")
        aead = self._cipher(bytes(frame[: _PREFIX.size]))
        try:
            return aead.decrypt(_NONCE.pack(number, last), frame[_PREFIX.size :], self._prefix)
        except InvalidTag:
            raise BrokenEnvelope("its envelope does not open: changed, cut short, or written elsewhere") from None

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
