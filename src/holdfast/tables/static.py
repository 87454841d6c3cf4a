"""A frame of Spark's as a reference table: it has the version that it was read at, and no other."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from holdfast.errors import VersionGone
from holdfast.tables.contract import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Static"]


class Static(Table):
    """Any frame that is no stream. Its version is told by the files behind it; without any, it never changes."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        files = "\n".join(sorted(frame.inputFiles()))
        self._version = f"files:{hashlib.sha256(files.encode()).hexdigest()[:32]}" if files else "static"

    def version(self) -> str:
        return self._version

    def read(self, session: SparkSession, version: str) -> DataFrame:  # noqa: ARG002 - it has one of its own
        if version != self._version:
            raise VersionGone(self.name, version, f"it is a plain frame, read from other files ({self._version}) now")
        return self._frame
