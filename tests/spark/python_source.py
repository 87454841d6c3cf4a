"""Streaming sources in Python over the same folders of events that the file source reads; one file is one batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader

from spark.events import Event, event_file

__all__ = ["PacedEvents", "SimpleEvents"]

_SCHEMA = "at LONG, key STRING, value LONG"


class _SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def initialOffset(self) -> dict[str, int]:
        return {"files": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = start["files"] + event_file(self._folder, start["files"]).exists()
        return self.readBetweenOffsets(start, {"files": end}), {"files": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        return iter(
            [tuple(event) for file in range(start["files"], end["files"]) for event in _load(self._folder, file)]
        )

    def commit(self, end: dict[str, int]) -> None:
        pass


class SimpleEvents(DataSource):
    """Read in the driver; from Spark 4.0. It has no end under AvailableNow but the first file."""

    @classmethod
    def name(cls) -> str:
        return "simple-events"

    def schema(self) -> str:
        return _SCHEMA

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return _SimpleReader(Path(self.options["path"]))


class PacedEvents(DataSource):
    """Read in the workers, with admission control; from Spark 4.2."""

    @classmethod
    def name(cls) -> str:
        return "paced-events"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

        class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
            def __init__(self, folder: Path) -> None:
                self._folder = folder
                self._target: int | None = None

            def initialOffset(self) -> dict[str, int]:
                return {"files": 0}

            def prepareForTriggerAvailableNow(self) -> None:
                self._target = len(list(self._folder.glob("*.json")))

            def getDefaultReadLimit(self) -> ReadLimit:
                return ReadMaxFiles(1)

            def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
                there = len(list(self._folder.glob("*.json"))) if self._target is None else self._target
                return {
                    "files": min(
                        there, start["files"] + (limit.max_files if isinstance(limit, ReadMaxFiles) else there)
                    )
                }

            def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
                return [InputPartition(file) for file in range(start["files"], end["files"])]

            def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
                return iter([tuple(event) for event in _load(self._folder, partition.value)])

        return Reader(Path(self.options["path"]))


def _load(folder: Path, file: int) -> list[Event]:
    return [Event(**json.loads(line)) for line in event_file(folder, file).read_text().splitlines()]
