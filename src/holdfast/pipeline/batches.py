"""A micro-batch as Spark hands it to foreachBatch, with its own record of it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from holdfast.epochs import NOTHING
from holdfast.pipeline.epoch import Batch
from holdfast.pipeline.links import link_of_offsets
from holdfast.pipeline.staging import FolderStaging
from holdfast.sinks.staged import StagedRows
from holdfast.spark.logs import parse_offsets
from holdfast.spark.sources import COMPACT, log_offset
from holdfast.store import Directory

__all__ = ["SparkBatch"]


class SparkBatch(Batch):
    """The batch of an epoch, read from Spark's directory: it is in the offset log before it runs."""

    def __init__(
        self,
        frame: DataFrame,
        epoch: int,
        directory: Directory,
        staging: FolderStaging,
        tables: Mapping[str, str],
        *,
        stateful: bool,
    ) -> None:
        self._frame = frame
        self._staging = staging
        self.offsets = directory.read(f"offsets/{epoch}")[0]
        before = directory.read(f"offsets/{epoch - 1}")[0] if epoch > 0 else None
        self.before = link_of_offsets(epoch - 1, before) if before is not None else NOTHING
        self.after = link_of_offsets(epoch, self.offsets)
        self.sources = dict(_entries(directory, before, self.offsets))
        self.tables = tables
        # Older Sparks make the folder only with the first state that they write, after this batch has run.
        self.has_state = stateful or bool(directory.look().folders("state"))

    def stage(self, folder: str) -> StagedRows:
        return self._staging.stage(self._frame, folder, has_state=self.has_state)


def _entries(directory: Directory, before: bytes | None, after: bytes) -> list[tuple[str, bytes]]:
    """What file sources have logged for this epoch: without it they would choose their files anew."""
    earlier = parse_offsets(before).sources if before is not None else {}
    found = []
    for source, offset in parse_offsets(after).sources.items():
        upto = log_offset(offset)
        if upto is None:
            continue
        last = log_offset(earlier.get(source))
        there = directory.look(f"sources/{source}").files(f"sources/{source}")
        for number in range(0 if last is None else last + 1, upto + 1):
            name = str(number) if str(number) in there else f"{number}{COMPACT}"
            found.append((f"sources/{source}/{name}", directory.read(f"sources/{source}/{name}")[0]))
    return found
