"""Every kind of change of a streaming query, what becomes of the state under it, and the name to accept it by.

Spark refuses some changes at start, accepts others and is right, and accepts some and is wrong: it reads the old state
as if the new query had made it. Those of queries were tried: the tests of pipelines say on which, and how far.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

__all__ = ["CHANGES", "REFUSED", "VERDICTS", "Change", "Verdict"]

Verdict: TypeAlias = Literal[
    "compatible", "kept from the checkpoint", "can't be told", "needs migration", "needs reset", "silently wrong"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""From harmless to worst."""
REFUSED = frozenset(VERDICTS[2:])


class Change(NamedTuple):
    """A kind of change: the name to accept it by, what becomes of it, what it is, and why."""

    name: str
    verdict: Verdict
    what: str
    why: str


def _table(*changes: Change) -> Mapping[str, Change]:
    return {change.name: change for change in changes}


_MIXED = "Spark starts, and mixes the state of the old query with that of the new one"
_SCHEMA = "Spark does not start: its state has other columns"

CHANGES = _table(
    Change("filter-below-state", "silently wrong", "a filter before a stateful operator", _MIXED),
    Change(
        "rows-below-state",
        "silently wrong",
        "another way of making rows before a stateful operator: a union, a join with a table, an explode",
        _MIXED,
    ),
    Change(
        "filter-moved-below-state",
        "silently wrong",
        "a filter after an aggregation on its keys alone, or after a join on one side alone",
        "Spark applies it before the state: what was kept out is missing, what was let in is put out",
    ),
    Change("aggregate-changed", "silently wrong", "another aggregate of the same type, sum -> max", _MIXED),
    Change("aggregate-order", "silently wrong", "the same aggregates in another order", _MIXED),
    Change("key-changed", "silently wrong", "another key of the same type", _MIXED),
    Change("window-changed", "silently wrong", "another length, slide or gap of a window", _MIXED),
    Change("join-changed", "silently wrong", "another condition or another kind of a join of streams", _MIXED),
    Change("join-column-changed", "silently wrong", "another column of the same type kept by a join", _MIXED),
    Change(
        "variable-renamed",
        "silently wrong",
        "a state variable renamed or removed",
        "Spark starts; the new variable is empty, and what the old one held is not read any more",
    ),
    Change(
        "state-function",
        "silently wrong",
        "the code of a function that keeps state",
        "Spark starts, and the new code takes the state that the old one left for its own: only you can tell if it is",
    ),
    Change("aggregates-retyped", "needs migration", "an aggregate added or removed, or of another type", _SCHEMA),
    Change("key-retyped", "needs migration", "a key added, removed or of another type", _SCHEMA),
    Change("join-retyped", "needs migration", "columns added to or removed from what a join keeps", _SCHEMA),
    Change("variable-retyped", "needs migration", "a state variable of another type", _SCHEMA),
    Change(
        "operator-added",
        "needs reset",
        "a stateful operator added",
        "Spark does not start: there is no state for the operator",
    ),
    Change(
        "operator-removed",
        "needs reset",
        "a stateful operator removed",
        "Spark does not start: there is state that no operator of the query has made",
    ),
    Change(
        "operator-replaced",
        "needs reset",
        "a stateful operator replaced by another, or in another order",
        "Spark does not start: its state is another operator's",
    ),
    Change(
        "processor-mode",
        "needs reset",
        "another time mode or output mode of transformWithState",
        "Spark does not start: its state was made for the other mode",
    ),
    Change(
        "source-changed",
        "needs reset",
        "another path, topic or kind of a source",
        "the recorded offsets are those of the old source: Spark does not start, or reads the wrong rows",
    ),
    Change(
        "source-added",
        "needs reset",
        "a source added",
        "Spark tells sources by their order, and has offsets for fewer",
    ),
    Change(
        "source-removed",
        "needs reset",
        "a source removed",
        "Spark tells sources by their order, and has offsets for more",
    ),
    Change(
        "source-order",
        "needs reset",
        "sources in another order, as when the sides of a join are swapped",
        "Spark tells sources by their order: each would be given the offsets of another",
    ),
    Change(
        "source-names",
        "needs reset",
        "`.name()` on sources, or source evolution, on or off",
        "Spark does not start: the checkpoint was begun without them, or with others",
    ),
    Change(
        "sink-key",
        "silently wrong",
        "another key, or another mode, of a sink",
        "the rows that it holds were written by the old rule, and stay as they are",
    ),
    Change(
        "query-retold",
        "can't be told",
        "a checkpoint by a Holdfast that told queries in another way, where what it tells is not the same",
        "another query, or the same one in other words: if it is the same, accept it, and the next checkpoint says so",
    ),
    Change("sink-added", "compatible", "a sink added", "it gets the epochs from here on, and none from before"),
    Change("sink-removed", "compatible", "a sink removed", "it stays as it is, and gets nothing more"),
    Change("sink-moved", "compatible", "another kind of sink under a name", "it is taken for a new one"),
    Change("watermark", "compatible", "another watermark", "it holds from the next epoch on"),
    Change("limit", "compatible", "another limit", "rows that were let through before count towards it"),
    Change("variable-added", "compatible", "a state variable added", "it is empty for every key at first"),
    Change("output-changed", "compatible", "whatever comes after the last stateful operator", "no state depends on it"),
    Change("output-mode", "compatible", "another output mode", "the state is the same in each"),
    Change(
        "setting",
        "kept from the checkpoint",
        "a setting that Spark pins with the state",
        "Spark takes the checkpoint's value, whatever the session says",
    ),
)
"""Every kind of change, the refused ones first."""
