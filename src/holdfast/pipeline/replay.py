"""Epochs that were decided and that the state does not hold yet, run again on their recorded boundaries, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql.streaming.readwriter import DataStreamWriter

from holdfast.errors import HoldfastError, OtherBoundaries
from holdfast.pipeline.home import Home
from holdfast.pipeline.run import Running
from holdfast.pipeline.takeover import Taken
from holdfast.spark.cut import batches_in

__all__ = ["replay"]


def replay(
    writer: Callable[[Mapping[str, str]], DataStreamWriter], home: Home, name: str, taken: Taken, running: Running
) -> None:
    """Lay down what Spark logged for each of these epochs, and have it run that one alone.

    Spark takes up a batch that is in its offset log and not committed exactly as it was planned: the same offsets, the
    same watermark, the same time. `writer` gives the query with reference tables at these versions: those that the
    epoch had. A crash in the middle leaves the rest to the next start.
    """
    directory, store, now = home.directory(name), home.address(name).store(), running.tables
    for epoch in taken.plan.replays:
        decision = taken.decided[epoch][0]
        if epoch not in batches_in(directory.look()).offsets:
            for entry, data in decision.sources.items():
                store.put(entry, data)
            store.put(f"offsets/{epoch}", decision.offsets)
        running.tables = {table: decision.tables.get(table, version) for table, version in now.items()}
        query = writer(running.tables).trigger(once=True).start()
        try:
            query.awaitTermination()
        except PySparkException:
            if isinstance(running.error, HoldfastError):
                raise running.error from None
            raise
        if batches_in(directory.look()).last_committed != epoch:
            raise OtherBoundaries(taken.found.follows.identifier if taken.found.follows else name, epoch)
    running.tables = now
