"""In which order a Spark keeps the columns of dropDuplicates: state knows them by position, not by name.

Up to four columns stay as the query has them. Beyond that Spark goes through a set of Scala, ordered by the hashes of
the names. Scala 2.12 (Spark 3.5) and 2.13 (Spark 4) walk the same set in different ways, and Spark 4.3 gave it up for
queries that begin with it.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["in_scala_set"]

FEW = 4
BITS = 5
WORD = 0xFFFFFFFF


def in_scala_set(names: Sequence[str], *, nested_last: bool) -> tuple[str, ...]:
    """The order in which a set of Scala gives these names; `nested_last` for Scala 2.13, not for 2.12."""
    return tuple(names) if len(names) <= FEW else tuple(_walk(names, 0, nested_last))


def _walk(names: Sequence[str], shift: int, nested_last: bool) -> list[str]:
    """A node of the tree: names by the next bits of their hashes, and those that share them in a node of their own."""
    if shift >= WORD.bit_length():
        return list(names)
    slots: dict[int, list[str]] = {}
    for name in names:
        slots.setdefault(_spread(_hash(name)) >> shift & (1 << BITS) - 1, []).append(name)
    inner = [
        (len(slot) > 1, slot if len(slot) == 1 else _walk(slot, shift + BITS, nested_last))
        for _, slot in sorted(slots.items())
    ]
    if nested_last:
        inner.sort(key=lambda found: found[0])
    return [name for _, found in inner for name in found]


def _hash(name: str) -> int:
    """Java's hash of a string, which goes by units of UTF-16."""
    units = memoryview(name.encode("utf-16-le", "surrogatepass")).cast("H")
    found = 0
    for unit in units:
        found = (31 * found + unit) & WORD
    return found


def _spread(found: int) -> int:
    """Scala's own mixing of a hash, in 32 bits."""
    found = (found + ~(found << 9)) & WORD
    found ^= found >> 14
    found = (found + (found << 4)) & WORD
    return found ^ found >> 10
