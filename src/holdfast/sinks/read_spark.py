"""Files of a table read by Spark's executors, without any connector."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.sinks.rewrite import Source
from holdfast.store import Address
from holdfast.store.between import plain_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FILE", "for_spark", "quoted", "read_files", "read_sources", "spark_type"]

FILE = "hf_file"
"""The column that holds the name of a row's file, where that is asked for."""


def read_sources(
    spark: SparkSession, root: Address, sources: Sequence[Source], schema: pa.Schema, *, name_files: bool = False
) -> DataFrame:
    """Files below a root, those of one partition together; what they lack is constant."""
    from pyspark.sql import functions as f

    groups: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for source in sources:
        groups.setdefault(tuple(source.constants.items()), []).append(plain_url(root, source.key))
    parts = []
    for constants, urls in groups.items():
        given = dict(constants)
        held = pa.schema([field for field in schema if field.name not in given])
        part = read_files(spark, urls, held)
        for field in schema:
            if field.name in given:
                part = part.withColumn(field.name, f.lit(given[field.name]).cast(spark_type(field.type)))
        names = [f.col(quoted(name)) for name in schema.names]
        parts.append(part.select(*names, *([f.input_file_name().alias(FILE)] if name_files else [])))
    return reduce(lambda one, other: one.unionByName(other), parts) if parts else read_files(spark, [], schema)


def read_files(spark: SparkSession, urls: Sequence[str], schema: pa.Schema) -> DataFrame:
    """Parquet files by their addresses, with these columns. A file with none of them is still read for its rows."""
    described = ", ".join(f"{quoted(field.name)} {spark_type(field.type)}" for field in schema)
    if not urls:
        return spark.createDataFrame([], described)
    # Names of folders are only names here: what they say of partitions stands in the log.
    reader = spark.read.schema(described).option("recursiveFileLookup", "true")
    return reader.parquet(*map(for_spark, urls))


def for_spark(url: str) -> str:
    """An address as Hadoop names it."""
    if url.startswith("/"):
        return f"file://{url}"
    return url.replace("s3://", "s3a://", 1) if url.startswith("s3://") else url


def quoted(*names: str) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def spark_type(kind: pa.DataType) -> str:
    """A type as Spark's DDL names it."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(field.name)}: {spark_type(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    named = {
        "bool": "boolean",
        "int8": "tinyint",
        "int16": "smallint",
        "int32": "int",
        "int64": "bigint",
        "float": "float",
        "double": "double",
        "string": "string",
        "large_string": "string",
        "string_view": "string",
        "binary": "binary",
        "large_binary": "binary",
        "binary_view": "binary",
        "date32[day]": "date",
    }
    return named[str(kind)]
