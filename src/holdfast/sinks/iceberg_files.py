"""Parquet files and columns as an Iceberg table has them: types, partitions, what is known of each file."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    VoidTransform,
    YearTransform,
)

from holdfast.errors import SinkUnfit
from holdfast.sinks.footers import Path, ranges, type_name
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
    "refuse_nulls",
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
    schema, parts = metadata.schema(), []
    units = {type(transform): unit for unit, transform in TRANSFORMS.items()}
    for field in metadata.spec().fields:
        if isinstance(field.transform, VoidTransform):
            continue
        column = schema.find_column_name(field.source_id) or ""
        top = {top_field.name for top_field in schema.fields}
        if type(field.transform) not in units or column not in top:
            raise SinkUnfit(sink, f"the table is partitioned by {field.transform} of {column}, which it can't split by")
        parts.append(Part(column, units[type(field.transform)]))
    return parts


def added(sink: str, metadata: TableMetadata, location: str, file: PlacedFile, footer: pq.FileMetaData) -> DataFile:
    """A file to be added; its rows are known to be of one partition."""
    schema = metadata.schema()
    try:
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{location.rstrip('/')}/{file.key}",
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(metadata.spec(), schema),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
    except (ValueError, KeyError) as error:
        raise SinkUnfit(sink, f"{file.key} can't be a file of the table: {error}") from error


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


def refuse_nulls(sink: str, table: Table, footers: Iterable[pq.FileMetaData]) -> None:
    """Raise SinkUnfit where a column must have a value and a row has none."""
    strict = {field.name for field in table.schema().fields if field.required}
    for footer in footers if strict else []:
        for path, found in ranges(footer).items():
            if path[0] in strict and found.nulls != 0:
                raise SinkUnfit(sink, f"{path[0]} must have a value, and a row has none, or it is not known")


def refuse_zones(sink: str, footers: Iterable[pq.FileMetaData]) -> None:
    """Raise SinkUnfit for files that name another zone than UTC for their times: readers of Iceberg stop at them."""
    for footer in footers:
        schema = footer.schema.to_arrow_schema()
        other = [field.name for field in schema if _zones(field.type) - UTC]
        if other:
            raise SinkUnfit(sink, f"the times of {', '.join(other)} were staged in another zone than UTC")


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
