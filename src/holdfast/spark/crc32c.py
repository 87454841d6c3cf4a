"""CRC32C, the checksum that Spark writes beside its state files. No library that Holdfast needs anyway has it.

A table and a loop over bytes sum 10 MB a second in Python. So a piece is cut into many lanes that are summed at once:
their registers are four columns of bytes, looked up by `bytes.translate` and added as large integers, as fast as C.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import xor

__all__ = ["Crc32c"]

POLYNOMIAL = 0x82F63B78
ONES = 0xFFFFFFFF
LANE = 512
LANES = 512
PIECE = LANE * LANES


def _table() -> tuple[int, ...]:
    entries = list(range(256))
    for _ in range(8):
        entries = [(entry >> 1) ^ (POLYNOMIAL if entry & 1 else 0) for entry in entries]
    return tuple(entries)


_TABLE = _table()
_COLUMNS = tuple(bytes((entry >> shift) & 0xFF for entry in _TABLE) for shift in (0, 8, 16, 24))


class Crc32c:
    """The checksum of the bytes so far."""

    def __init__(self) -> None:
        self._register = ONES

    @property
    def value(self) -> int:
        return self._register ^ ONES

    def update(self, data: bytes) -> None:
        full = len(data) - len(data) % PIECE
        for start in range(0, full, PIECE):
            for lane in _lanes(data[start : start + PIECE]):
                self._register = _after_a_lane(self._register) ^ lane
        self._register = _run(self._register, data[full:])


def _run(register: int, data: bytes) -> int:
    table = _TABLE
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register


def _lanes(piece: bytes) -> list[int]:
    """What each lane of a piece leaves in an empty register: the whole is linear, so they add up."""
    number = int.from_bytes
    low = second = third = high = 0
    for position in range(LANE):
        index = (low ^ number(piece[position::LANE], "little")).to_bytes(LANES, "little")
        low = number(index.translate(_COLUMNS[0]), "little") ^ second
        second = number(index.translate(_COLUMNS[1]), "little") ^ third
        third = number(index.translate(_COLUMNS[2]), "little") ^ high
        high = number(index.translate(_COLUMNS[3]), "little")
    columns = [column.to_bytes(LANES, "little") for column in (low, second, third, high)]
    return [a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(*columns, strict=True)]


@cache
def _zeros() -> tuple[tuple[int, ...], ...]:
    """What a lane of zeros makes of a register, for each value of each of its four bytes."""
    bits = [_run(1 << bit, bytes(LANE)) for bit in range(32)]

    def of(value: int) -> int:
        return reduce(xor, (made for bit, made in enumerate(bits) if value >> bit & 1), 0)

    return tuple(tuple(of(byte << shift) for byte in range(256)) for shift in (0, 8, 16, 24))


def _after_a_lane(register: int) -> int:
    low, second, third, high = _zeros()
    return low[register & 0xFF] ^ second[register >> 8 & 0xFF] ^ third[register >> 16 & 0xFF] ^ high[register >> 24]
