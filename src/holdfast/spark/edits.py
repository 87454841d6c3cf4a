"""What is changed in a cut's text files on its way into another place: paths and offsets. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadValue
from holdfast.spark.locations import Location, PathMap, read_entry
from holdfast.spark.logs import NO_OFFSET, Malformed, parse_offsets

__all__ = ["OffsetEdit", "map_log_paths", "parse_offset_edit", "paths_in_log", "rewrite_schema_paths", "set_offsets"]


@dataclass(frozen=True)
class OffsetEdit:
    """Have one partition of a source go on at another offset."""

    source: str
    topic: str
    partition: str
    offset: int

    def __str__(self) -> str:
        return f"{self.source}:{self.topic}:{self.partition}={self.offset}"


def parse_offset_edit(text: str) -> OffsetEdit:
    """Read SOURCE:TOPIC:PARTITION=N."""
    place, equals, offset = text.rpartition("=")
    parts = place.split(":")
    if not equals or len(parts) != 3 or not all(parts) or not _is_number(parts[2]) or not _is_number(offset):
        raise BadValue(f"offset {text!r}", "write SOURCE:TOPIC:PARTITION=N, such as 0:orders:3=1042")
    return OffsetEdit(parts[0], parts[1], str(int(parts[2])), int(offset))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def set_offsets(data: bytes, edits: list[OffsetEdit]) -> tuple[bytes, list[str]]:
    """Change offsets in the bytes of `offsets/B`; gives them and what was done, in words.

    Raises BadValue for a source, topic or partition that is not there, and for one that is set twice: nothing is made
    up, and the last word does not win in silence.
    """
    entry = parse_offsets(data)
    changed: dict[str, Any] = {}
    said: list[str] = []
    places: set[tuple[str, str, str]] = set()
    for edit in edits:
        if edit.source not in entry.sources:
            known = ", ".join(entry.sources)
            raise BadValue(f"offset {edit}", f"there is no source {edit.source!r}; there are: {known}")
        place = (edit.source, edit.topic, edit.partition)
        if place in places:
            raise BadValue(f"offset {edit}", "the same partition is set twice")
        places.add(place)
        offset = changed.setdefault(edit.source, _kafka(entry.sources[edit.source], edit))
        before = offset.get(edit.topic, {}).get(edit.partition)
        if not isinstance(before, int):
            known = ", ".join(f"{topic}:{partition}" for topic, inner in offset.items() for partition in inner)
            raise BadValue(f"offset {edit}", f"the source has no such topic and partition; it has: {known}")
        offset[edit.topic][edit.partition] = edit.offset
        way = f"skips {edit.offset - before}" if edit.offset >= before else f"reads {before - edit.offset} again"
        said.append(f"source {edit.source}, {edit.topic}-{edit.partition}: {before} -> {edit.offset} ({way})")
    lines = data.decode().split("\n")
    for position, name in enumerate(entry.sources):
        if name in changed:
            text = json.dumps(changed[name], separators=(",", ":"))
            lines[2 + position] = f"{name}:{text}" if entry.version >= 2 else text
    return "\n".join(lines).encode(), said


def _kafka(offset: str | None, edit: OffsetEdit) -> dict[str, Any]:
    try:
        parsed = json.loads(offset or NO_OFFSET)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not all(isinstance(inner, dict) for inner in parsed.values()):
        raise BadValue(f"offset {edit}", f"source {edit.source} has no topics and partitions, as one of Kafka has")
    return parsed


def map_log_paths(data: bytes, mapping: PathMap) -> tuple[bytes, int]:
    """Replace the beginnings of paths in a log of files (a file source's, or `_spark_metadata`); says in how many."""
    count = 0

    def moved(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        path = fields.get("path")
        if isinstance(path, str) and (new := mapping.moved(path)) is not None:
            count += 1
            return {**fields, "path": new}
        return fields

    return _each_line(data, moved), count


def paths_in_log(data: bytes) -> list[Location]:
    """The files that a log of files names."""
    found: list[Location] = []

    def note(fields: dict[str, Any]) -> dict[str, Any]:
        try:
            found.append(read_entry(str(fields["path"])))
        except (KeyError, BadValue):
            raise Malformed("a line of it names no file") from None
        return fields

    _each_line(data, note)
    return found


def rewrite_schema_paths(data: bytes, root: str) -> bytes:
    """Point operator metadata of version 2 at the schemas below another root: Spark writes absolute paths there."""

    def moved(fields: dict[str, Any]) -> dict[str, Any]:
        for store in fields.get("stateStoreInfo", ()):
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [_below(root, path) for path in store["stateSchemaFilePaths"]]
        return fields

    return _each_line(data, moved)


def _below(root: str, path: str) -> str:
    _, found, rest = str(path).rpartition("/state/")
    if not found:
        raise Malformed(f"{path!r} is no path of a schema")
    return f"{root}/state/{rest}"


def _each_line(data: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """Change every line but the first, which is the version; one that stays as it was keeps its bytes."""
    first, *rest = data.decode().split("\n")
    return "\n".join([first, *(_changed(line, change) for line in rest)]).encode()


def _changed(line: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    if not line:
        return line
    try:
        fields = json.loads(line)
    except ValueError:
        raise Malformed("a line of it is not JSON") from None
    if not isinstance(fields, dict):
        raise Malformed("a line of it is no JSON object")
    return json.dumps(change(fields), separators=(",", ":"), ensure_ascii=False)
