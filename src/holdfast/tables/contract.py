"""The contract of a reference table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Table"]


class Table(ABC):
    """A table that a query joins in. A run reads it at one version; an epoch that is run again, at the one it had.

    A version is text that means the same in another process, and for ever. `name` is the pipeline's name for it.
    """

    name: str = "table"

    @abstractmethod
    def version(self) -> str:
        """The newest version."""

    @abstractmethod
    def read(self, session: SparkSession, version: str) -> DataFrame:
        """The rows of a version. Raises VersionGone if it can't be had any more."""
