"""Spark's executors put to work: a job over shares of work, whose answers are bytes.

It takes a context that it is given, and imports no PySpark. The executors need Holdfast installed, in the driver's
version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast._version import __version__
from holdfast.errors import ExecutorsFailed, HoldfastError
from holdfast.layout import REPOSITORY
from holdfast.store import Address

__all__ = ["Executors", "share_out"]

T = TypeVar("T")

Task = Callable[[Iterable[T]], Iterator[bytes]]


@dataclass(frozen=True)
class Executors:
    """The executors of one application, through its SparkContext."""

    context: Any

    @classmethod
    def of(cls, session: Any) -> Executors:
        """Those of a session. Raises ExecutorsFailed for one of Spark Connect, whose client can't give them work."""
        context = getattr(session, "sparkContext", None)
        if context is None:
            raise ExecutorsFailed(f"a {type(session).__module__}.{type(session).__name__} has no SparkContext")
        return cls(context)

    @property
    def are_elsewhere(self) -> bool:
        """Whether they are processes of their own; else the driver itself does what they do."""
        master = str(self.context.master)
        return not master.startswith("local") or master.startswith("local-cluster")

    @property
    def cores(self) -> int:
        return int(self.context.defaultParallelism)

    def run(self, task: Task[T], shares: Sequence[T]) -> list[bytes]:
        """Run a task over each share, wherever there is room, and give all answers.

        A task is attempted again when it fails, and may run twice at a time: it must not mind. What a user should be
        told is better answered than raised. Raises ExecutorsFailed when an attempt has failed too often.
        """
        try:
            answers: list[bytes] = self.context.parallelize(shares, len(shares)).mapPartitions(task).collect()
        except Exception as error:
            # What Spark raises has no common class that could be named without importing it.
            raise ExecutorsFailed(_reason(str(error))) from error
        return answers

    def prove(self, directory: Address, repository: Address) -> None:
        """Raise ExecutorsFailed unless they have this Holdfast and reach both places."""
        task = ProveTask(__version__, directory, repository)
        for answer in self.run(task, range(self.cores)):
            if answer:
                raise ExecutorsFailed(answer.decode())


@dataclass(frozen=True)
class ProveTask:
    """Answers with what is in the way of an executor, or with nothing."""

    version: str
    directory: Address
    repository: Address

    def __call__(self, shares: Iterable[int]) -> Iterator[bytes]:
        for _ in shares:
            yield self.obstacle().encode()

    def obstacle(self) -> str:
        if __version__ != self.version:
            return f"they have Holdfast {__version__}, and the driver {self.version}"
        try:
            if self.directory.directory().look().stat("metadata") is None:
                return f"they do not see {self.directory.url}"
            self.repository.store().get(REPOSITORY)
        except HoldfastError as error:
            return str(error)
        return ""


def share_out(sizes: Mapping[T, int], shares: int) -> list[list[T]]:
    """Things in at most so many shares of about the same size, none of them empty unless there is nothing at all."""
    found: list[list[T]] = [[] for _ in range(max(1, min(shares, len(sizes))))]
    weights = [0] * len(found)
    for thing, size in sorted(sizes.items(), key=lambda item: (-item[1], str(item[0]))):
        lightest = weights.index(min(weights))
        found[lightest].append(thing)
        weights[lightest] += size
    return found


def _reason(text: str) -> str:
    """The line of an error of Spark's that says what happened; the rest of it is stack traces."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if "Error: " in line or "Exception: " in line]
    return next((line for line in reversed(telling) if not line.startswith(("at ", "org.", "java."))), lines[0])
