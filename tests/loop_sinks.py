"""A sink for plain loops that outlives the manager that uses it, and fails when it is told to."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Fenced
from holdfast.settle import LoopSink


class Table:
    """What would be a database: visible rows, staged rows by generation, and the fence. It survives every crash."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.staged: dict[int, dict[int, None]] = {}
        self.committed: int | None = None
        self.generation = -1
        self.token = ""


class TableSink(LoopSink):
    """Exactly once: a token is (generation, sequence) and stands for all that was staged up to it."""

    def __init__(self, table: Table, *, fail_prepare: bool = False, fail_commits: int = 0) -> None:
        self.table = table
        self.fail_prepare = fail_prepare
        self.fail_commits = fail_commits
        self.commits: list[Any] = []
        self.generation = -1
        self.token = ""
        self._buffer: list[int] = []

    def write(self, row: int) -> None:
        self._buffer.append(row)

    def fence(self, pipeline_id: str, generation: int, token: str) -> int | None:
        self._buffer.clear()
        held = self.table.generation
        if generation < held or (generation == held and token != self.table.token):
            raise Fenced("table", generation, f"generation {held} has it")
        self.generation = self.table.generation = generation
        self.token = self.table.token = token
        return self.table.committed

    def prepare(self, sequence: int) -> tuple[int, int]:
        if self.fail_prepare:
            raise ConnectionError("the table can't be reached")
        self._refuse_stale()
        self.table.staged.setdefault(self.generation, {}).update(dict.fromkeys(self._buffer))
        self._buffer.clear()
        return self.generation, sequence

    def commit(self, token: Any) -> int:
        self.commits.append(token)
        if self.fail_commits:
            self.fail_commits -= 1
            raise ConnectionError("the table went away")
        self._refuse_stale()
        generation, sequence = token
        done = -1 if self.table.committed is None else self.table.committed
        if sequence > done:
            self.table.rows += [row for row in self.table.staged.get(generation, {}) if done < row <= sequence]
            self.table.committed = sequence
        return max(sequence, done)

    def _refuse_stale(self) -> None:
        if (self.generation, self.token) != (self.table.generation, self.table.token):
            raise Fenced("table", self.generation, f"generation {self.table.generation} has it")


class RollingTableSink(TableSink):
    """The same, and it can go back."""

    def roll_back(self, position: int | None) -> None:
        self._refuse_stale()
        self.table.rows = [row for row in self.table.rows if position is not None and row <= position]
        self.table.committed = position
