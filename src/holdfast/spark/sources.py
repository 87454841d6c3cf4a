"""Which files of `sources/` a restart needs: for a file source its log up to the offset and nothing newer, else all."""

from __future__ import annotations

import json

from holdfast.store.directory import FileStat, Look

__all__ = ["log_offset", "source_files"]

COMPACT = ".compact"


def log_offset(offset: str | None) -> int | None:
    """The position in its own log that a file source's offset names; None for any other source."""
    try:
        fields = json.loads(offset or "")
    except ValueError:
        return None
    if isinstance(fields, dict) and set(fields) == {"logOffset"} and isinstance(fields["logOffset"], int):
        return int(fields["logOffset"])
    return None


def source_files(look: Look, folder: str, offset: str | None) -> dict[str, FileStat] | str:
    """The files of one source's folder that belong to a cut, or the name of one that is missing.

    A file source would skip what newer entries of its log name: they are left behind.
    """
    upto = log_offset(offset)
    names = _all_below(look, folder) if upto is None else _log_entries(look, folder, upto)
    if isinstance(names, str):
        return names
    found: dict[str, FileStat] = {}
    for name in names:
        stat = look.stat(name)
        if stat is None:
            return name
        found[name] = stat
    return found


def _log_entries(look: Look, folder: str, upto: int) -> list[str] | str:
    """The newest joined entry at or under the offset, and every single one after it."""
    there = set(look.files(folder))
    joined = [int(name.removesuffix(COMPACT)) for name in there if name.endswith(COMPACT) and name[:1].isdecimal()]
    start = max((number for number in joined if number <= upto), default=-1)
    names = [f"{start}{COMPACT}"] if start >= 0 else []
    names += [str(number) for number in range(start + 1, upto + 1)]
    missing = [name for name in names if name not in there]
    return f"{folder}/{missing[0]}" if missing else [f"{folder}/{name}" for name in names]


def _all_below(look: Look, folder: str) -> list[str]:
    names = [f"{folder}/{name}" for name in look.files(folder)]
    return names + [name for inner in look.folders(folder) for name in _all_below(look, f"{folder}/{inner}")]
