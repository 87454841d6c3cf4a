"""A driver that stops itself (SIGSTOP) in the middle of a step of a sink; when it wakes it goes on, and tries once
more. Prints what came of either.

    python database_sleeper.py SINK FOLDER fence|load|rehearsal|copy|commit
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.decide.chain import NOTHING
from holdfast.errors import HoldfastError
from holdfast.sinks.sql import SqlSink
from holdfast.sinks.staged import StagedRows
from holdfast.testing.sinks import holder, stage, step, words
from sinks.table_driver import open_sink


class Sleeping(StagedRows):
    """Rows that put the process to sleep between two batches: the server has a COPY under way then."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in super().batches():
            yield batch
            sleep()


def sleep() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep_after(sink: SqlSink, method: str) -> None:
    """Have it sleep, once, when one of its own methods is done: the transaction that it belongs to is open then."""
    real = getattr(sink, method)

    def slept(*values: Any, **named: Any) -> Any:
        setattr(sink, method, real)
        done = real(*values, **named)
        sleep()
        return done

    setattr(sink, method, slept)


def attempt(act: Callable[[], object]) -> None:
    try:
        act()
        print("went through", flush=True)
    except HoldfastError as error:
        print(type(error).__name__, flush=True)


def main(spec: dict[str, Any], folder: Path, where: str) -> None:
    sink, rows = open_sink(spec), stage(folder, words(7))
    assert isinstance(sink, SqlSink)
    if where == "fence":
        sleep_after(sink, "_write_marker")
        attempt(lambda: sink.fence(holder(0), NOTHING))
        attempt(lambda: sink.fence(holder(0), NOTHING))
        return
    sink.fence(holder(0), NOTHING)
    if where in ("load", "rehearsal"):
        if where == "rehearsal":
            sleep_after(sink, "_insert")
        attempt(lambda: sink.prepare(step(0), Sleeping(rows.staged, rows.place) if where == "load" else rows))
        attempt(lambda: sink.prepare(step(0), rows))
        return
    token = sink.prepare(step(0), rows)
    if where == "copy":
        # Another handle, which has not read them yet.
        sink = open_sink(spec)
        sink.fence(holder(0), NOTHING)
        attempt(lambda: sink.commit(step(0), token, Sleeping(rows.staged, rows.place)))
        attempt(lambda: sink.commit(step(0), token, rows))
        return
    sleep_after(sink, "_write_marker")
    attempt(lambda: sink.commit(step(0), token, rows))
    attempt(lambda: sink.commit(step(0), token, rows))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
