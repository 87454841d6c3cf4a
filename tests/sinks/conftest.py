"""A database as a sink sees it, and as another program does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pytest

from holdfast.decide.chain import NOTHING
from holdfast.sinks.postgres import Postgres
from holdfast.testing.sinks import holder
from sinks.postgres_hands import Opened, Run


@pytest.fixture
def run(postgres_url: str) -> Iterator[Run]:
    """The database as another program sees it."""
    with adbc.connect(postgres_url, autocommit=True) as connection:

        def execute(statement: str) -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()

        yield execute


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Opened]:
    """Sinks of a table, fenced unless there is no generation, that are closed in the end."""
    sinks: list[Postgres] = []

    def make(table: str = "words", generation: int | None = 0, **options: Any) -> Postgres:
        sinks.append(Postgres(postgres_url, table, **options))
        if generation is not None:
            sinks[-1].fence(holder(generation), NOTHING)
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()
