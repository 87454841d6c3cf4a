"""What can be asked of a source before anything is read from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.decide.replayable import SourceFinding, Until, unknown

__all__ = ["LogEntry", "OtherSource", "Past", "Source"]


class LogEntry(NamedTuple):
    """A file that a file source has read, as Spark writes its path, and the number of the log entry that names it."""

    number: int
    path: str


@dataclass(frozen=True)
class Past:
    """What is recorded of a source: where it would be read from, how far it ever was, and what it was then.

    Offsets are flat, as manifests have them. `files` are those that come after the beginning and were read before.
    """

    begin: Mapping[str, str]
    furthest: Mapping[str, str] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[LogEntry] = ()


class Source(ABC):
    """One source of a query. `name` is the pipeline's for it. Everything here only looks."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def judge(self, past: Past) -> list[SourceFinding]:
        """What stands in the way of reading it again from there on."""

    @abstractmethod
    def until(self, past: Past) -> Until:
        """For how long it can be read again from there on, as things stand."""

    def identity(self, offsets: Mapping[str, str], known: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        """What tells it from another of the same name, to be recorded with these offsets; what is known stays."""
        return known


class OtherSource(Source):
    """A source of a kind that nobody can be asked about."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self._why = why

    def judge(self, past: Past) -> list[SourceFinding]:  # noqa: ARG002 - it is the same from everywhere
        return [unknown(self.name, self._why)]

    def until(self, past: Past) -> Until:  # noqa: ARG002
        return Until(why=self._why)
