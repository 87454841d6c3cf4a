"""Transactional outputs of a pipeline: the contract, and one module a sink. Each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.sinks.contract import (
        Holder,
        Link,
        Marker,
        Sink,
        Step,
        Target,
        WriteMode,
        admit,
        go_back,
        raise_fence,
        refuse_foreign,
    )
    from holdfast.sinks.delta import Delta
    from holdfast.sinks.duckdb import DuckDB
    from holdfast.sinks.iceberg import Iceberg
    from holdfast.sinks.kafka import Kafka
    from holdfast.sinks.parquet import Parquet
    from holdfast.sinks.postgres import Postgres
    from holdfast.sinks.sqlite import SQLite
    from holdfast.sinks.staged import Staged, StagedFile, StagedRows

_WHERE = {
    "Delta": "delta",
    "DuckDB": "duckdb",
    "Holder": "contract",
    "Iceberg": "iceberg",
    "Kafka": "kafka",
    "Link": "contract",
    "Marker": "contract",
    "Parquet": "parquet",
    "Postgres": "postgres",
    "SQLite": "sqlite",
    "Sink": "contract",
    "Staged": "staged",
    "StagedFile": "staged",
    "StagedRows": "staged",
    "Step": "contract",
    "Target": "contract",
    "WriteMode": "contract",
    "admit": "contract",
    "go_back": "contract",
    "raise_fence": "contract",
    "refuse_foreign": "contract",
}

__all__ = [
    "Delta",
    "DuckDB",
    "Holder",
    "Iceberg",
    "Kafka",
    "Link",
    "Marker",
    "Parquet",
    "Postgres",
    "SQLite",
    "Sink",
    "Staged",
    "StagedFile",
    "StagedRows",
    "Step",
    "Target",
    "WriteMode",
    "admit",
    "go_back",
    "raise_fence",
    "refuse_foreign",
]


def __getattr__(name: str) -> object:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'holdfast.sinks' has no attribute {name!r}")
    value = getattr(import_module(f"holdfast.sinks.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
