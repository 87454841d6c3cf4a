"""Arbitrary state in Python: what the workloads with processors of their own keep for each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState

try:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
except ImportError:  # Spark 3.5
    StatefulProcessor = StatefulProcessorHandle = object

__all__ = ["GROUPS", "GROUPS_STATE", "TALLY", "LastingTally", "PandasTally", "RowTally", "follow_group"]

GROUPS = "key STRING, ended BOOLEAN, n LONG, total LONG"
GROUPS_STATE = "n LONG, total LONG, latest LONG"
TALLY = "key STRING, fired BOOLEAN, n LONG, total LONG"

_SILENCE = 15
_A_DAY_MS = 24 * 3600 * 1000


def follow_group(key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Count and sum a key's events until the watermark has passed its latest one by a while, then start anew."""
    if state.hasTimedOut:
        n, total, _ = state.get
        state.remove()
        yield pd.DataFrame({"key": [key[0]], "ended": [True], "n": [n], "total": [total]})
        return
    n, total, latest = state.get if state.exists else (0, 0, 0)
    for frame in frames:
        n, total = n + len(frame), total + int(frame["value"].sum())
        latest = max(latest, int(frame["at"].max()))
    state.update((n, total, latest))
    state.setTimeoutTimestamp((latest + _SILENCE) * 1000)
    yield pd.DataFrame({"key": [key[0]], "ended": [False], "n": [n], "total": [total]})


class _Tally(StatefulProcessor):
    """Keeps a value, a list and a map for each key."""

    lifetime_ms: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._sums = handle.getValueState("sums", "n LONG, total LONG", self.lifetime_ms)
        self._recent = handle.getListState("recent", "value LONG", self.lifetime_ms)
        self._seen = handle.getMapState("seen", "value LONG", "times LONG", self.lifetime_ms)

    def close(self) -> None:
        pass

    def _take(self, events: Iterable[tuple[int, int]]) -> tuple[int, int]:
        n, total = self._sums.get() or (0, 0)
        values = [value for _, value in sorted(events)]
        n, total = n + len(values), total + sum(values)
        self._sums.update((n, total))
        self._recent.appendList([(value,) for value in values])
        for remainder, more in Counter(value % 3 for value in values).items():
            (times,) = self._seen.getValue((remainder,)) or (0,)
            self._seen.updateValue((remainder,), (times + more,))
        return n, total

    def _settle(self) -> tuple[int, int]:
        """What the list and the map hold; the list starts anew."""
        recent = sum(value for (value,) in self._recent.get())
        self._recent.clear()
        return sum(key[0] * times[0] for key, times in self._seen.iterator()), recent


class PandasTally(_Tally):
    """Tells the sums with every batch, and the list and the map when a timer fires."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N803
        frame = pd.concat(rows)
        sums = self._take(zip(frame["at"].tolist(), frame["value"].tolist(), strict=True))
        self._handle.registerTimer((int(frame["at"].max()) + _SILENCE) * 1000)
        yield _frame(key, False, *sums)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N803
        yield _frame(key, True, *self._settle())


class LastingTally(_Tally):
    """A tally whose state has a time to live that no test reaches."""

    lifetime_ms = _A_DAY_MS

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N803
        frame = pd.concat(rows)
        yield _frame(key, False, *self._take(zip(frame["at"].tolist(), frame["value"].tolist(), strict=True)))
        yield _frame(key, True, *self._settle())


class RowTally(_Tally):
    """A `PandasTally` that is given rows."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N803
        taken = [(row.at, row.value) for row in rows]
        sums = self._take(taken)
        self._handle.registerTimer((max(at for at, _ in taken) + _SILENCE) * 1000)
        yield _row(key, False, *sums)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N803
        yield _row(key, True, *self._settle())


def _frame(key: Any, fired: bool, n: int, total: int) -> pd.DataFrame:
    return pd.DataFrame({"key": [key[0]], "fired": [fired], "n": [n], "total": [total]})


def _row(key: Any, fired: bool, n: int, total: int) -> Row:
    return Row(key=key[0], fired=fired, n=n, total=total)
