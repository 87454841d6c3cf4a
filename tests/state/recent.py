"""The processor of the how-to: the last amounts of each user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

__all__ = ["Recent"]


class Recent(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._recent = handle.getListState("recent", "amount LONG")
        self._count = handle.getValueState("count", "n LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        amounts = [(row["amount"],) for row in rows]
        self._recent.appendList(amounts)
        (n,) = self._count.get() or (0,)
        self._count.update((n + len(amounts),))
        yield Row(user=key[0], n=n + len(amounts))

    def close(self) -> None:
        pass
