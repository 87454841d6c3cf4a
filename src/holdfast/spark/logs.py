"""The text logs of Spark's checkpoint directory, read and written as plain bytes: offsets, commits, metadata, schemas.

A file that is not what Spark writes raises Malformed, with the reason; which file it was only the caller knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.manifest import ConnectorOffset

__all__ = [
    "CommitEntry",
    "Malformed",
    "OffsetEntry",
    "OperatorMetadata",
    "deduplicated_columns",
    "parse_commit",
    "parse_offsets",
    "parse_operator",
    "parse_query_id",
    "parse_source_offset",
    "single_partition",
    "write_query_id",
]

NO_OFFSET = "-"
PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CODEC = "spark.sql.streaming.stateStore.compression.codec"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


class Malformed(Exception):
    """A file of the directory does not hold what Spark writes there."""


@dataclass(frozen=True)
class OffsetEntry:
    """`offsets/B`: where every source stands after batch B, and the settings that Spark pins there.

    `sources` are in the query's order; its keys are "0", "1", … or the names of the sources. A source that has given
    nothing yet has None. Continuous mode pins nothing: `pinned` is False.
    """

    version: int
    watermark_ms: int
    timestamp_ms: int
    settings: Mapping[str, str]
    sources: Mapping[str, str | None]
    pinned: bool

    @property
    def partitions(self) -> int:
        """How many partitions every stateful operator has."""
        try:
            return int(self.settings[PARTITIONS])
        except (KeyError, ValueError):
            raise Malformed(f"it pins no {PARTITIONS}") from None

    @property
    def provider(self) -> str:
        return self.settings.get(PROVIDER, "")

    @property
    def describes_operators(self) -> bool:
        """Whether the Spark that wrote it keeps a description of every stateful operator, as all since 4.0 do."""
        return ENCODING in self.settings

    @property
    def lacks_names(self) -> bool:
        """Whether the sources have folders by names that stand nowhere in it, as Spark 4.2 leaves them by default."""
        return self.version == 1 and self.settings.get(EVOLUTION) == "true"

    @property
    def codec(self) -> str:
        return self.settings.get(CODEC, "lz4")


@dataclass(frozen=True)
class CommitEntry:
    """`commits/B`: the watermark of the next batch and, in checkpoint format 2, the ids of every state file.

    `state_ids[operator][partition]` has one id for each store of the operator, in the order of its stores.
    """

    version: int
    next_watermark_ms: int
    state_ids: Mapping[int, Sequence[Sequence[str]]]


@dataclass(frozen=True)
class OperatorMetadata:
    """What Spark keeps of a stateful operator: its name, its stores, and (version 2) absolute paths of its schemas.

    `variables` are the kinds of state that a transformWithState keeps, such as ListState; `properties` tell more.
    """

    version: int
    operator: int
    name: str
    stores: tuple[str, ...]
    schema_paths: tuple[str, ...]
    variables: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


def parse_query_id(data: bytes) -> str:
    """The query's id from `metadata`."""
    found = _object(_text(data))
    if "holdfast" in found:
        raise Malformed("a restore into this directory is not finished")
    if not isinstance(found.get("id"), str) or not found["id"]:
        raise Malformed("it holds no query id")
    return str(found["id"])


def write_query_id(query_id: str) -> bytes:
    return json.dumps({"id": query_id}, separators=(",", ":")).encode()


def parse_offsets(data: bytes) -> OffsetEntry:
    version, head, lines = _entry(data, newest=2)
    if not head:
        return OffsetEntry(version, 0, 0, {}, _unnamed(lines), pinned=False)
    fields = _object(head)
    conf = fields.get("conf") or {}
    if not isinstance(conf, dict):
        raise Malformed("its settings are not understood")
    settings = {str(name): str(value) for name, value in conf.items()}
    sources = _named(lines) if version >= 2 else _unnamed(lines)
    watermark, timestamp = _number(fields, "batchWatermarkMs"), _number(fields, "batchTimestampMs")
    return OffsetEntry(version, watermark, timestamp, settings, sources, pinned=True)


def _unnamed(lines: Sequence[str]) -> dict[str, str | None]:
    return {str(position): None if line == NO_OFFSET else line for position, line in enumerate(lines)}


def _named(lines: Sequence[str]) -> dict[str, str | None]:
    """Version 2: every line begins with the number or name of its source."""
    found: dict[str, str | None] = {}
    for line in lines:
        name, colon, offset = line.partition(":")
        if not colon:
            raise Malformed("a line of it names no source")
        found[name] = None if offset == NO_OFFSET else offset
    return found


def parse_commit(data: bytes) -> CommitEntry:
    version, head, _ = _entry(data, newest=3)
    fields = _object(head or "{}")
    ids = fields.get("stateUniqueIds") or {}
    try:
        state_ids = {int(operator): [list(map(str, stores)) for stores in parts] for operator, parts in ids.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"its ids of state files are not understood: {error}") from None
    return CommitEntry(version, _number(fields, "nextBatchWatermarkMs"), state_ids)


def parse_operator(data: bytes) -> OperatorMetadata:
    version, head, _ = _entry(data, newest=2)
    fields = _object(head)
    try:
        info, stores = fields["operatorInfo"], fields["stateStoreInfo"]
        properties = json.loads(fields.get("operatorPropertiesJson") or "{}")
        return OperatorMetadata(
            version,
            int(info["operatorId"]),
            str(info["operatorName"]),
            tuple(str(store["storeName"]) for store in stores),
            tuple(str(path) for store in stores for path in store.get("stateSchemaFilePaths", ())),
            tuple(str(variable["stateVariableType"]) for variable in properties.get("stateVariables", ())),
            properties,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"its fields are not understood: {error!r}") from None


def single_partition(schema: bytes) -> bool:
    """Whether a state schema has no key, as of a global aggregate or a limit: such state lives in partition 0 alone."""
    fields, _ = _fields(schema)
    return all(isinstance(field, dict) and field.get("type") == "void" for field in fields)


def deduplicated_columns(schema: bytes) -> tuple[str, ...]:
    """The columns of dropDuplicates, in the order of its state; none if this is the schema of another operator.

    It is told from what stands beside the key, since Spark 3.5 describes no operators. What can't be read (a schema of
    64 KiB is cut in pieces) is taken for another's.
    """
    try:
        keys, rest = _fields(schema)
        values, _ = _fields(rest)
    except Malformed:
        return ()
    columns, beside = ([str(f.get("name")) for f in fields if isinstance(f, dict)] for fields in (keys, values))
    return tuple(columns) if beside in (["__dummy__"], ["expiresAtMicros"]) else ()


def _fields(schema: bytes) -> tuple[list[Any], bytes]:
    """The fields of the first struct in a state schema, and what comes after it."""
    at = schema.find(b"{")
    text = schema[at:].decode("utf-8", "replace") if at >= 0 else ""
    try:
        struct, end = json.JSONDecoder().raw_decode(text) if text else ({}, 0)
    except ValueError:
        raise Malformed("it holds no schema") from None
    if not isinstance(struct, dict) or not isinstance(struct.get("fields"), list):
        raise Malformed("it holds no schema")
    return struct["fields"], text[end:].encode()


def parse_source_offset(offset: str | None, epoch: int) -> ConnectorOffset:
    """A source's offset as a flat map: Kafka's as `topic:partition`, other JSON by its paths, else `offset`."""
    if offset is None:
        return ConnectorOffset(offsets={}, epoch=epoch)
    try:
        parsed = json.loads(offset)
    except ValueError:
        return ConnectorOffset(offsets={"offset": offset}, epoch=epoch)
    return ConnectorOffset(offsets=dict(_flat(parsed, "")) or {"offset": offset}, epoch=epoch)


def _flat(value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [pair for name, inner in value.items() for pair in _flat(inner, f"{path}:{name}" if path else str(name))]
    if isinstance(value, str):
        return [(path or "offset", value)]
    return [(path or "offset", json.dumps(value, separators=(",", ":")))]


def _entry(data: bytes, newest: int) -> tuple[int, str, list[str]]:
    """The version, the first line after it, and the lines after that, of one entry of a metadata log."""
    text = _text(data)
    first, newline, rest = text.partition("\n")
    if not (first.startswith("v") and first[1:].isdecimal()):
        raise Malformed("it does not begin with a version")
    version = int(first[1:])
    if not 1 <= version <= newest:
        raise Malformed(f"its version is {first}, and up to v{newest} is known")
    if not newline:
        raise Malformed("it is cut short")
    head, _, more = rest.partition("\n")
    return version, head, [line for line in more.split("\n") if line]


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if not isinstance(value, int):
        raise Malformed(f"its {name} is no number")
    return value


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("it is not text") from None


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise Malformed("it is cut short or not JSON") from None
    if not isinstance(found, dict):
        raise Malformed("it is no JSON object")
    return found
