"""What is changed in a cut's text files on its way into another place: paths and offsets. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadValue
from holdfast.spark.logs import NO_OFFSET, Malformed, parse_offsets

__all__ = ["OffsetEdit", "map_log_paths", "parse_offset_edit", "rewrite_schema_paths", "set_offsets"]


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
    if not equals or len(parts) != 3 or not all(parts) or not parts[2].isdecimal() or not offset.isdecimal():
        raise BadValue(f"offset {text!r}", "write SOURCE:TOPIC:PARTITION=N, such as 0:orders:3=1042")
    return OffsetEdit(parts[0], parts[1], parts[2], int(offset))


def set_offsets(data: bytes, edits: list[OffsetEdit]) -> tuple[bytes, list[str]]:
    """Change offsets in the bytes of `offsets/B`; gives them and what was done, in words.

    Raises BadValue for a source, topic or partition that is not there: nothing is made up.
    """
    entry = parse_offsets(data)
    changed: dict[str, Any] = {}
    said: list[str] = []
    for edit in edits:
        if edit.source not in entry.sources:
            known = ", ".join(entry.sources)
            raise BadValue(f"offset {edit}", f"there is no source {edit.source!r}; there are: {known}")
        offset = changed.get(edit.source) or _kafka(entry.sources[edit.source], edit)
        try:
            before = int(offset[edit.topic][edit.partition])
        except (KeyError, TypeError, ValueError):
            raise BadValue(f"offset {edit}", "the source has no such topic and partition") from None
        offset[edit.topic][edit.partition] = edit.offset
        changed[edit.source] = offset
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
        raise BadValue(f"offset {edit}", f"source {edit.source} has no topics and partitions")
    return parsed


def map_log_paths(data: bytes, mapping: Mapping[str, str]) -> tuple[bytes, int]:
    """Replace the beginnings of paths in a log of files (a file source's, or `_spark_metadata`); says in how many.

    OLD is matched as it stands in the log, or, given as a plain path, behind `file:` or `file://`.
    """
    count = 0

    def moved(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        path = fields.get("path")
        if isinstance(path, str) and (new := _moved_path(path, mapping)) is not None:
            count += 1
            return {**fields, "path": new}
        return fields

    lines = data.decode().split("\n")
    return "\n".join([lines[0], *(_rewritten(line, moved) for line in lines[1:])]).encode(), count


def _moved_path(path: str, mapping: Mapping[str, str]) -> str | None:
    for old, new in mapping.items():
        for prefix in ("", "file://", "file:") if old.startswith("/") else ("",):
            start = f"{prefix}{old}".rstrip("/")
            if path == start or path.startswith(f"{start}/"):
                scheme = prefix if new.startswith("/") else ""
                return f"{scheme}{new.rstrip('/')}{path[len(start) :]}"
    return None


def rewrite_schema_paths(data: bytes, root: str) -> bytes:
    """Point operator metadata of version 2 at the schemas below another root: Spark writes absolute paths there."""

    def moved(fields: dict[str, Any]) -> dict[str, Any]:
        for store in fields.get("stateStoreInfo", ()):
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [_below(root, path) for path in store["stateSchemaFilePaths"]]
        return fields

    lines = data.decode().split("\n")
    return "\n".join([lines[0], *(_rewritten(line, moved) for line in lines[1:])]).encode()


def _below(root: str, path: str) -> str:
    _, found, rest = str(path).rpartition("/state/")
    if not found:
        raise Malformed(f"{path!r} is no path of a schema")
    return f"{root}/state/{rest}"


def _rewritten(line: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    if not line:
        return line
    try:
        fields = json.loads(line)
    except ValueError:
        raise Malformed("a line of it is not JSON") from None
    return json.dumps(change(fields), separators=(",", ":"), ensure_ascii=False)
