"""What the tests of the Postgres sink work with; their fixtures `run` and `opened` are in the conftest beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.sinks.contract import Sink, Target
from holdfast.sinks.postgres import Postgres
from holdfast.sinks.staged import StagedRows
from holdfast.testing.sinks import step

__all__ = ["Opened", "Run", "left_over", "put"]

Run = Callable[[str], list[tuple[Any, ...]]]
Opened = Callable[..., Postgres]


def put(sink: Sink, epoch: int, rows: StagedRows) -> Target:
    sink.commit(step(epoch), sink.prepare(step(epoch), rows), rows)
    return Target(step(epoch).after, 0)


def left_over(run: Run) -> list[str]:
    """Loads that nobody has taken away."""
    return [name for (name,) in run("SELECT relname::text FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'")]
