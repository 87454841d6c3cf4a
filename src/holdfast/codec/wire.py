"""The bricks of both binary formats: little-endian numbers, 64-bit lengths, a reader that stays within its bytes."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from holdfast.errors import DamagedState

__all__ = ["NUMBER", "Buffer", "Reader", "flat", "number"]

Buffer: TypeAlias = bytes | bytearray | memoryview

NUMBER = struct.Struct("<Q")


def number(n: int) -> bytes:
    return NUMBER.pack(n)


def flat(data: Buffer) -> memoryview:
    """See any buffer as plain bytes, without a copy where its memory lies in one piece."""
    view = memoryview(data)
    if view.nbytes and view.c_contiguous:
        return view.cast("B")
    # An empty view can't be cast, and one with gaps has no bytes to point at.
    return memoryview(view.tobytes())


class Reader:
    """A cursor over bytes that raises DamagedState instead of ever reading past their end.

    What `take` and `block` give still points into the data: copy what is to outlive it.
    """

    __slots__ = ("at", "data", "end")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def take(self, size: int) -> memoryview:
        start = self.at
        stop = start + size
        if stop > self.end:
            raise DamagedState(f"{size} bytes are promised at {start}, {self.end - start} are left")
        self.at = stop
        return self.data[start:stop]

    def fixed(self, form: struct.Struct) -> Any:
        """One number of a fixed form, read where it lies."""
        start = self.at
        self.at = stop = start + form.size
        if stop > self.end:
            raise DamagedState(f"{form.size} bytes are promised at {start}, {self.end - start} are left")
        return form.unpack_from(self.data, start)[0]

    def number(self) -> int:
        n: int = self.fixed(NUMBER)
        return n

    def block(self) -> memoryview:
        return self.take(self.number())

    def text(self) -> str:
        at = self.at
        try:
            return str(self.block(), "utf-8")
        except UnicodeDecodeError as error:
            raise DamagedState(f"the text at {at} is not UTF-8") from error

    def finish(self) -> None:
        if self.at != self.end:
            raise DamagedState(f"{self.end - self.at} bytes too many at {self.at}")
