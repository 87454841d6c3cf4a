"""Real tables, files and topics for a pipeline, by kind: how a sink is made for one, and what a reader finds in it."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from holdfast.sinks import Delta, DuckDB, Iceberg, Kafka, Parquet, Postgres, SQLite
from holdfast.sinks.contract import Sink, WriteMode
from holdfast.sinks.parquet import files
from holdfast.store import open_store
from servers import KafkaServer, PostgresServer, S3Server

__all__ = ["KINDS", "Row", "Target", "delta_table", "files_in", "make_target", "name_of", "open_sink", "rows_in"]

KINDS = (
    "sqlite",
    "sqlite upsert",
    "duckdb",
    "duckdb upsert",
    "postgres",
    "postgres upsert",
    "parquet",
    "delta",
    "delta upsert",
    "delta by key",
    "iceberg",
    "iceberg upsert",
    "iceberg by key",
    "parquet in s3",
    "delta in s3",
    "iceberg in s3",
    "kafka",
    "sqlite overwrite",
    "duckdb overwrite",
    "postgres overwrite",
    "parquet overwrite",
    "delta overwrite",
    "iceberg overwrite",
)
"""By key: partitioned. A pipeline into those that are overwritten puts out all of its result with each epoch."""
MODES: dict[str, WriteMode] = {"upsert": "upsert", "overwrite": "overwrite"}
KEY = ("start", "key")
TABLE = "sums"

Row = tuple[int, str, int, int]


class Target(NamedTuple):
    """Where a sink writes to, in words that another process understands."""

    kind: str
    mode: WriteMode
    place: str
    more: dict[str, str] = {}  # noqa: RUF012 - never changed
    partition_by: tuple[str, ...] = ()


def name_of(kind: str) -> str:
    """The name that the pipeline gives its sink of a kind."""
    return kind.replace(" ", "-")


def make_target(kind: str, folder: Path, server: Callable[[str], Any]) -> Target:
    """A new and empty one; `server` gives the server of a name, which is started when it is first asked for."""
    base, _, variant = kind.partition(" ")
    mode: WriteMode = MODES.get(variant, "append")
    by = ("key",) if variant == "by key" else ()
    if variant == "in s3":
        s3: S3Server = server("s3_server")
        url = s3.url(f"t-{uuid.uuid4().hex}")
        return Target(base, mode, *(_catalog(folder, url, s3) if base == "iceberg" else (url, s3.options)))
    if base == "postgres":
        postgres: PostgresServer = server("postgres_server")
        return Target(base, mode, postgres.make_database(f"t-{uuid.uuid4().hex}"))
    if base == "kafka":
        kafka: KafkaServer = server("kafka_server")
        topic = f"t-{uuid.uuid4().hex}"
        kafka.make_topic(topic, 2)
        return Target(base, mode, topic, {"bootstrap": kafka.bootstrap})
    if base == "iceberg":
        return Target(base, mode, *_catalog(folder, (folder / "warehouse").as_uri(), None), by)
    return Target(base, mode, str(folder / name_of(kind)), {}, by)


def _catalog(folder: Path, warehouse: str, server: S3Server | None) -> tuple[str, dict[str, str]]:
    catalog = {"name": "test", "type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": warehouse}
    if server is not None:
        catalog |= {
            "s3.endpoint": server.endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": server.access_key_id,
            "s3.secret-access-key": server.secret_access_key,
        }
    return f"ns.t{uuid.uuid4().hex}", catalog


def open_sink(target: Target) -> Sink:
    kind, mode, place, more, by = target
    key = KEY if mode == "upsert" else ()
    if kind == "sqlite":
        return SQLite(place, TABLE, mode=mode, key=key)
    if kind == "duckdb":
        return DuckDB(place, TABLE, mode=mode, key=key)
    if kind == "postgres":
        return Postgres(place, TABLE, mode=mode, key=key)
    if kind == "parquet":
        return Parquet(place, mode=mode, options=more)
    if kind == "delta":
        return Delta(place, mode=mode, key=key, partition_by=by, options=more)
    if kind == "iceberg":
        return Iceberg(more, place, mode=mode, key=key, partition_by=by)
    assert kind == "kafka", kind
    return Kafka(more["bootstrap"], place)


def rows_in(target: Target) -> list[Row]:
    """What another program reads there, in order; a topic with read_committed."""
    return sorted((int(row["start"]), str(row["key"]), int(row["n"]), int(row["total"])) for row in _read(target))


def delta_table(target: Target) -> DeltaTable:
    return DeltaTable(target.place, storage_options={**target.more, "allow_http": "true"} if target.more else None)


def files_in(target: Target) -> list[str]:
    """The names of the files that a table has now."""
    if target.kind == "delta":
        paths = delta_table(target).file_uris()
    else:
        from pyiceberg.catalog import load_catalog

        with closing(load_catalog(**target.more)) as catalog:
            paths = [task.file.file_path for task in catalog.load_table(target.place).scan().plan_files()]
    return [path.rpartition("/")[2] for path in paths]


def _read(target: Target) -> Iterable[dict[str, Any]]:
    kind, place, more = target.kind, target.place, target.more
    if kind == "sqlite":
        with closing(sqlite3.connect(place)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(f"SELECT * FROM {TABLE}")]
    if kind == "duckdb":
        import duckdb

        with closing(duckdb.connect(place, read_only=True)) as connection:
            return connection.sql(f"SELECT * FROM {TABLE}").to_arrow_table().to_pylist()
    if kind == "postgres":
        import adbc_driver_postgresql.dbapi as adbc

        with adbc.connect(place) as session, session.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {TABLE}")
            return cursor.fetch_arrow_table().to_pylist()
    if kind == "parquet":
        store, names = open_store(place, more), files(place, options=more)
        bodies = (store.get(name[name.index("hf-") :]) for name in names)
        return [row for body in bodies for row in pq.read_table(pa.BufferReader(body)).to_pylist()]
    if kind == "delta":
        return pa.table(delta_table(target).scan().read_all()).to_pylist()
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(**more)
        with closing(catalog):
            return catalog.load_table(place).scan().to_arrow().to_pylist()
    assert kind == "kafka", kind
    from sinks.kafka_topics import records

    return [json.loads(record.value() or b"") for record in records(more["bootstrap"], place)]
