"""How values are written for people. Text from a repository is data: what a terminal would obey is shown instead."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

__all__ = ["age", "amount", "clean", "duration", "encodable", "moment", "portable", "ranges", "short_ids", "size"]

SHORTEST_ID = 13
"""The time in a UUIDv7 takes up this much of it; less would be the same for all checkpoints of a minute."""


def clean(text: str) -> str:
    """The text with every character that is not printable written as an escape, so that none reaches a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def encodable(text: str) -> str:
    """The text with lone surrogates, which names of files may hold and JSON can't carry, written as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def portable(text: str) -> str:
    """The same with every NUL as an escape too: messages of other programs may hold one, the environment can't."""
    return encodable(text).replace("\0", "\\x00")


def size(count: int) -> str:
    """Bytes in the largest binary unit that fits."""
    if abs(count) < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if abs(value) < 1023.95 or unit == "PiB":
            break
    return f"{value:.1f} {unit}"


def amount(count: int, one: str, many: str | None = None) -> str:
    """`1 checkpoint`, `2 checkpoints`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7, 9-12`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def moment(timestamp_ms: int | None, *, utc: bool) -> str:
    """A moment with its zone, local unless UTC is asked for; the bare number for one outside the calendar."""
    if timestamp_ms is None:
        return "-"
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        when = when if utc else when.astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return when.strftime("%Y-%m-%d %H:%M:%S %Z")


def age(timestamp_ms: int | None, now_ms: int) -> str:
    """How long ago a moment was, in one unit."""
    if timestamp_ms is None:
        return "-"
    seconds = (now_ms - timestamp_ms) / 1000
    if seconds < -1:
        return "in the future"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def duration(milliseconds: int | None) -> str:
    """How long something took or lies apart, in one or two units."""
    if milliseconds is None:
        return "–"
    sign, left = ("-" if milliseconds < 0 else ""), abs(milliseconds)
    if left < 1_000:
        return f"{sign}{left} ms"
    if left < 60_000:
        return f"{sign}{left / 1000:.1f} s".replace(".0 s", " s")
    minutes, seconds = divmod(left // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next(index for index, (value, _) in enumerate(parts) if value)
    return sign + " ".join(f"{value} {unit}" for value, unit in parts[first : first + 2] if value)


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Beginnings of ids by which each can be told from all the others."""
    every = sorted(set(ids))
    shown: dict[str, str] = {}
    for index, this in enumerate(every):
        length = SHORTEST_ID
        neighbours = every[max(0, index - 1) : index] + every[index + 1 : index + 2]
        while length < len(this) and any(other.startswith(this[:length]) for other in neighbours):
            length += 1
        shown[this] = this[:length]
    return shown
