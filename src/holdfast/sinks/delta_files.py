"""Parquet files as a Delta table names them: the values of its partitions, what is known of each column, its types."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from holdfast.errors import SinkUnfit
from holdfast.ids import now_ms
from holdfast.sinks.delta_log import PLACEHOLDER
from holdfast.sinks.delta_stats import statistics
from holdfast.sinks.footers import Range, ranges
from holdfast.sinks.table_files import DataFile
from holdfast.sinks.table_types import why_not_in_tables

__all__ = [
    "Active",
    "active_files",
    "added",
    "delta_schema",
    "has_times_without_zone",
    "refuse_columns",
    "refuse_features",
    "refuse_lasting",
    "refuse_unread",
    "removed",
]

REFUSED_FEATURES = {
    "columnMapping": "its columns are mapped to other names",
    "deletionVectors": "its rows are deleted by deletion vectors",
    "rowTracking": "its rows are tracked",
    "identityColumns": "it has identity columns",
    "icebergCompatV1": "it is kept compatible with Iceberg",
    "icebergCompatV2": "it is kept compatible with Iceberg",
}
COLUMN_RULES = {
    "delta.generationExpression": "is generated",
    "delta.invariants": "has an invariant",
    "delta.identity.start": "is an identity column",
}
ABOUT = ("nullable", "metadata", "containsNull", "valueContainsNull")
BEYOND = object()
"""A day or a time that Python does not have: Spark has years before 1 and after 9999."""


class Active(NamedTuple):
    """A file of the table as it is now, with what the log says of it; `path` is how the log spells its key."""

    path: str
    key: str
    size_bytes: int
    partition: Mapping[str, Any]
    low: Mapping[str, Any]
    high: Mapping[str, Any]
    untold: Sequence[str]
    """Columns of the partition whose value can't be told here."""

    @property
    def is_elsewhere(self) -> bool:
        return "://" in self.path or self.path.startswith("/")

    @property
    def can_go(self) -> bool:
        """Whether it is spelled as the library would spell it: under any other name a removal removes nothing."""
        return quote(self.key, safe="/!$&'()+,:;=@~-._") == self.path


def added(sink: str, file: DataFile, footer: pq.FileMetaData, partition_by: Sequence[str], now: int = 0) -> AddAction:
    """A file to be added; its rows have one value in each column of the partition."""
    found = ranges(footer)
    values = {column: _partition_text(sink, column, found[(column,)]) for column in partition_by}
    return AddAction(
        path=file.key,
        size=file.size_bytes,
        partition_values=values,
        modification_time=now or now_ms(),
        data_change=True,
        stats=statistics(footer.num_rows, {path: at for path, at in found.items() if path[0] not in values}),
    )


def removed(sink: str, file: Active) -> RemoveAction:
    """A file to be removed. Raises SinkUnfit for one that would stay."""
    refuse_lasting(sink, [file])
    return RemoveAction(file.key, True, now_ms(), file.size_bytes, _texts(sink, file.partition))


def refuse_lasting(sink: str, files: Iterable[Active]) -> None:
    """Raise SinkUnfit for a file that can't be removed."""
    for file in files:
        if not file.can_go:
            raise SinkUnfit(sink, f"its file {file.path} can't be removed here: its name is spelled in another way")


def refuse_unread(sink: str, files: Iterable[Active]) -> None:
    """Raise SinkUnfit for a file that can't be read."""
    for file in files:
        if file.is_elsewhere:
            raise SinkUnfit(sink, f"its file {file.path} lies elsewhere, and can't be read here")
        if file.untold:
            why = f"has a {file.untold[0]} before the year 1 or after 9999"
            raise SinkUnfit(sink, f"its file {file.path} {why}, and can't be read here")


def active_files(table: DeltaTable) -> list[Active]:
    """The files of a table, whoever has written them: not each can be read or removed here."""
    found = []
    for row in _rows(pa.table(table.get_add_actions(flatten=False))):
        path, given = str(row["path"]), row.get("partition") or {}
        partition = {column: value for column, value in given.items() if value is not BEYOND}
        low, high = _known(row.get("min") or {}), _known(row.get("max") or {})
        untold = [column for column in given if column not in partition]
        found.append(Active(path, unquote(path), row["size_bytes"], partition, low, high, untold))
    return found


def delta_schema(sink: str, schema: pa.Schema) -> Schema:
    """The schema of rows as Delta writes it. Raises SinkUnfit for a type that Delta does not have."""
    _refuse_twins(sink, schema)
    for field in schema:
        if field.name == PLACEHOLDER:
            raise SinkUnfit(sink, f"a column can't be called {PLACEHOLDER}: a table without columns yet has that one")
        if why := why_not_in_tables(field.type, "Delta"):
            raise SinkUnfit(sink, f"the column {field.name} is a {field.type}: {why}")
    try:
        return Schema.from_arrow(schema)
    except (DeltaError, ValueError) as error:
        raise SinkUnfit(sink, f"Delta has no place for its columns: {error}") from error


def has_times_without_zone(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    if pa.types.is_map(kind):
        return has_times_without_zone(kind.key_type) or has_times_without_zone(kind.item_type)
    if pa.types.is_struct(kind):
        return any(has_times_without_zone(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return has_times_without_zone(kind.value_type)
    return False


def refuse_features(sink: str, table: DeltaTable, changes_rows: bool) -> None:
    """Raise SinkUnfit for a table with rules that a commit of plain files would not keep."""
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    settings = metadata.configuration
    if settings.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if settings.get("delta.enableDeletionVectors") == "true":
        features.add("deletionVectors")
    why = [REFUSED_FEATURES[name] for name in sorted(features & REFUSED_FEATURES.keys())]
    why += [f"it has the constraint {name}" for name in settings if name.startswith("delta.constraints.")]
    if changes_rows and settings.get("delta.appendOnly") == "true":
        why.append("rows may only be appended to it")
    for field in json.loads(table.schema().to_json())["fields"]:
        why += [f"{field['name']} {rule}" for name, rule in COLUMN_RULES.items() if name in field["metadata"]]
    if why:
        raise SinkUnfit(sink, f"the table can't be written to by naming files: {'; '.join(why)}")


def refuse_columns(sink: str, table: DeltaTable, given: Schema) -> None:
    """Raise SinkUnfit for rows with other columns or types than the table; those that may be empty can be missing."""
    columns = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    wanted = {field["name"]: field for field in json.loads(given.to_json())["fields"]}
    why = [f"it has no column {name}" for name in wanted if name not in columns]
    why += [
        f"{name} is {_shape(columns[name]['type'])}, not {_shape(field['type'])}"
        for name, field in wanted.items()
        if name in columns and _shape(columns[name]["type"]) != _shape(field["type"])
    ]
    why += [f"{name} must have a value" for name, c in columns.items() if name not in wanted and not c["nullable"]]
    if why:
        raise SinkUnfit(sink, f"the table has other columns: {'; '.join(why)}")


def _refuse_twins(sink: str, fields: Iterable[pa.Field]) -> None:
    """Raise SinkUnfit for names that differ only in the case of letters: to readers of Delta they are the same."""
    seen: dict[str, str] = {}
    for field in fields:
        if (other := seen.setdefault(field.name.casefold(), field.name)) != field.name:
            raise SinkUnfit(sink, f"the columns {other} and {field.name} are one and the same to readers of Delta")
        if pa.types.is_nested(field.type):
            _refuse_twins(sink, [field.type.field(number) for number in range(field.type.num_fields)])


def _rows(actions: pa.Table) -> list[dict[str, Any]]:
    try:
        return list(actions.to_pylist())
    except OverflowError:
        columns = [[_told(value) for value in actions[name]] for name in actions.column_names]
        return [dict(zip(actions.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _told(value: pa.Scalar) -> Any:
    if isinstance(value, pa.StructScalar):
        return {name: _told(inner) for name, inner in value.items()} if value.is_valid else None
    try:
        return value.as_py()
    except OverflowError:
        return BEYOND


def _known(bounds: Mapping[str, Any]) -> dict[str, Any]:
    known = {column: value for column, value in bounds.items() if value is not BEYOND}
    return {column: _known(value) if isinstance(value, dict) else value for column, value in known.items()}


def _shape(kind: Any) -> Any:
    """A type of Delta's without what says nothing of its values."""
    if isinstance(kind, dict):
        return {name: _shape(value) for name, value in kind.items() if name not in ABOUT}
    return [_shape(value) for value in kind] if isinstance(kind, list) else kind


def _partition_text(sink: str, column: str, found: Range) -> str | None:
    if not found.is_one_value:
        why = f"a file has several values of {column}, or it is not known which"
        raise SinkUnfit(sink, f"the table is partitioned by {column}: {why}")
    return None if found.is_empty else _text(sink, column, found.low)


def _texts(sink: str, values: Mapping[str, Any]) -> dict[str, str | None]:
    return {column: None if value is None else _text(sink, column, value) for column, value in values.items()}


def _text(sink: str, column: str, value: Any) -> str:
    """A value as the log has it, which knows only text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, int | datetime.date | decimal.Decimal):
        return str(value)
    if isinstance(value, str) and value:
        return value
    why = "Delta reads an empty text as none" if value == "" else f"a {type(value).__name__} can't be told by its text"
    raise SinkUnfit(sink, f"the table is partitioned by {column}: {why}")
