"""Parquet files and columns as an Iceberg table has them: types, partitions, what is known of each file."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record

from holdfast.errors import SinkUnfit
from holdfast.sinks.footers import Path, Range, ranges, type_name
from holdfast.sinks.rewrite import Part
from holdfast.sinks.table_files import DataFile as PlacedFile
from holdfast.sinks.table_types import why_not_in_tables
from holdfast.store import Address
from holdfast.store.address import CloudAddress, read_address
from holdfast.store.between import tidy

__all__ = [
    "TRANSFORMS",
    "added",
    "address_of",
    "in_utc",
    "load_catalog_of",
    "parts_of",
    "read_parts",
    "refuse_columns",
    "refuse_names",
    "refuse_types",
    "refuse_zones",
    "within",
]

TRANSFORMS: dict[str, Transform[Any, Any]] = {
    "": IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
UTC = {"UTC", "Etc/UTC", "+00:00", "Z"}
PART = re.compile(r"(year|month|day|hour)s?\((.+)\)")
OPTIONS = {
    "s3": {
        "s3.endpoint": "endpoint",
        "s3.region": "region",
        "s3.access-key-id": "access_key_id",
        "s3.secret-access-key": "secret_access_key",
        "s3.session-token": "session_token",
    },
    "az": {"adls.account-name": "account_name", "adls.account-key": "account_key", "adls.sas-token": "sas_token"},
    "gs": {"gcs.oauth2.token": "bearer_token"},
}
"""What a catalog calls the options of a store, and what they are called here."""


def address_of(location: str, io: FileIO) -> Address:
    """Where a table lies, with the options that the catalog has for its files."""
    plain = read_address(location, {})
    if not isinstance(plain, CloudAddress):
        return tidy(location)
    names = OPTIONS[plain.cloud]
    given = {names[name]: str(value) for name, value in io.properties.items() if name in names and value}
    return tidy(location, given)


def read_parts(given: Sequence[str]) -> list[Part]:
    """What a user means by "sku" and "day(ts)"."""
    found = [(name, PART.fullmatch(name)) for name in given]
    return [Part(match[2], match[1]) if match else Part(name) for name, match in found]


def parts_of(sink: str, metadata: TableMetadata) -> list[Part]:
    """What a table is partitioned by. Raises SinkUnfit for what rows can't be split by here."""
    parts = (_part_of(sink, metadata.schema(), field) for field in metadata.spec().fields)
    return [part for part in parts if part]


def added(sink: str, metadata: TableMetadata, file: PlacedFile, footer: pq.FileMetaData) -> DataFile:
    """A file to be added. Raises SinkUnfit unless its rows are known to be of one partition."""
    schema, found = metadata.schema(), ranges(footer)
    try:
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=_counted(compute_statistics_plan(schema, metadata.properties), found),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{metadata.location.rstrip('/')}/{file.key}",
            file_format=FileFormat.PARQUET,
            partition=_partition(sink, metadata, file, found),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
    except (ValueError, KeyError) as error:
        raise SinkUnfit(sink, f"{file.key} can't be a file of the table: {error}") from error


def _part_of(sink: str, schema: Schema, field: PartitionField) -> Part | None:
    if isinstance(field.transform, VoidTransform):
        return None
    column = schema.find_column_name(field.source_id) or ""
    unit = next((unit for unit, known in TRANSFORMS.items() if type(known) is type(field.transform)), None)
    if unit is None or column not in {top.name for top in schema.fields}:
        raise SinkUnfit(sink, f"the table is partitioned by {field.transform} of {column}, which it can't split by")
    return Part(column, unit)


def _partition(sink: str, metadata: TableMetadata, file: PlacedFile, found: Mapping[Path, Range]) -> Record:
    """The partition of a file, by its own footer: what the table has in its log of a column is a matter of settings."""
    schema = metadata.schema()
    values: list[Any] = []
    for field in metadata.spec().fields:
        part = _part_of(sink, schema, field)
        at = found[(part.column,)] if part else None
        if part is None or at is None or at.is_empty:
            values.append(None)
        elif part.holds(at):
            transform = field.transform.transform(schema.find_type(field.source_id))
            values.append(transform(partition_record_value(field, at.low, schema)))
        else:
            why = f"{file.key} has several values of {field.transform} {part.column}, or it is not known which"
            raise SinkUnfit(sink, f"the table is partitioned by {part.column}: {why}")
    return Record(*values)


def _counted(plan: Mapping[int, StatisticsCollector], found: Mapping[Path, Range]) -> dict[int, StatisticsCollector]:
    """What is to be told of each column, but of those whose bounds can't be told no more than how many values."""
    told = {path[0] for path, at in found.items() if len(path) == 1 and at.low is not None}
    counts = MetricsMode(MetricModeTypes.COUNTS)
    return {
        number: of if of.column_name in told or of.mode.type is MetricModeTypes.NONE else replace(of, mode=counts)
        for number, of in plan.items()
    }


def within(bounds: Mapping[Path, tuple[Any, Any]]) -> BooleanExpression:
    """What rows must be to have a key within these bounds."""
    filters: BooleanExpression = AlwaysTrue()
    for path, (low, high) in bounds.items():
        column = Reference(".".join(path))
        filters = And(filters, GreaterThanOrEqual(term=column, value=_literal(low)))
        filters = And(filters, LessThanOrEqual(term=column, value=_literal(high)))
    return filters


def in_utc(schema: pa.Schema) -> pa.Schema:
    """The same columns, with times in UTC by that name: Iceberg knows no other zone, and they mean the same."""
    return pa.schema([pa.field(field.name, _utc(field.type)) for field in schema])


def refuse_types(sink: str, schema: pa.Schema) -> None:
    """Raise SinkUnfit for a type that Iceberg does not have."""
    for field in schema:
        if why := why_not_in_tables(field.type, "Iceberg"):
            raise SinkUnfit(sink, f"the column {field.name} is a {field.type}: {why}")


def refuse_columns(sink: str, table: Table, schema: pa.Schema) -> None:
    """Raise SinkUnfit for rows with other columns or types than the table; those that may be empty can be missing."""
    columns = {field.name: _known(type_name(field.type)) for field in table.schema().as_arrow()}
    wanted = {field.name: _known(type_name(field.type)) for field in schema}
    why = [f"it has no column {name}" for name in wanted if name not in columns]
    why += [
        f"{name} is {columns[name]}, not {kind}"
        for name, kind in wanted.items()
        if name in columns and columns[name] != kind
    ]
    why += [f"{f.name} must have a value" for f in table.schema().fields if f.required and f.name not in wanted]
    if why:
        raise SinkUnfit(sink, f"the table has other columns: {'; '.join(why)}")


def refuse_names(sink: str, table: Table, schema: pa.Schema) -> None:
    """Raise SinkUnfit where the name of a column does not say which one it is.

    Files that Spark wrote carry no numbers of columns: they are read by names, those of long ago as well. If a name
    has gone from one column to another, what stood in the first would be read as the second.
    """
    mapping, before = table.name_mapping(), [_numbers(known) for known in table.metadata.schemas]
    read_as = dict(_mapped(mapping)) if mapping else None
    for name, number in _numbers(table.schema()).items():
        if name not in schema.names and name.partition(".")[0] not in schema.names:
            continue
        if any(known.get(name, number) != number for known in before):
            raise SinkUnfit(sink, f"{name} was the name of another column before, and files are read by names")
        if read_as is not None and read_as.get(name) != number:
            why = f"{TableProperties.DEFAULT_NAME_MAPPING} of the table does not have it so"
            raise SinkUnfit(sink, f"{name} would not be found in files, which are read by names: {why}")


def refuse_zones(sink: str, footers: Iterable[pq.FileMetaData]) -> None:
    """Raise SinkUnfit for files that name another zone than UTC for their times: readers of Iceberg stop at them."""
    for footer in footers:
        schema = footer.schema.to_arrow_schema()
        other = [field.name for field in schema if _zones(field.type) - UTC]
        if other:
            raise SinkUnfit(sink, f"the times of {', '.join(other)} were staged in another zone than UTC")


def _numbers(schema: Schema) -> dict[str, int]:
    return {name: schema.find_field(name).field_id for name in schema.column_names}


def _mapped(fields: Iterable[MappedField], prefix: str = "") -> Iterator[tuple[str, int | None]]:
    for field in fields:
        for name in field.names:
            yield f"{prefix}{name}", field.field_id
            yield from _mapped(field.fields, f"{prefix}{name}.")


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


def _known(name: str) -> str:
    """A type by the name of the one that holds it: Iceberg has no integers of 8 and 16 bits."""
    return re.sub(r"\bint(8|16)\b", "int32", name)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz else kind
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_utc(kind.key_type), _utc(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_utc(kind.value_type))
    return kind


def _zones(kind: pa.DataType) -> set[str]:
    if pa.types.is_timestamp(kind):
        return {kind.tz} if kind.tz else set()
    return {zone for number in range(kind.num_fields) for zone in _zones(kind.field(number).type)}


def load_catalog_of(catalog: Catalog | Mapping[str, str] | str) -> Catalog:
    """A catalog by its name, by its properties, or as it is."""
    if isinstance(catalog, Catalog):
        return catalog
    if isinstance(catalog, str):
        return load_catalog(catalog)
    properties = dict(catalog)
    return load_catalog(properties.pop("name", "holdfast"), **properties)
