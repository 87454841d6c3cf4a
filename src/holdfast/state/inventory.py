"""What state a checkpoint holds, by operator and part, without starting Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.errors import BadValue, DamagedArtifact, StateUnreadable
from holdfast.spark.describe import ENGINE
from holdfast.spark.explain import OperatorExplained, explain
from holdfast.spark.logs import Malformed, OperatorMetadata, parse_commit, parse_operator

__all__ = ["AGGREGATION", "JOIN", "TIMERS", "Inventory", "Part", "is_transform", "take_inventory"]

AGGREGATION = "stateStoreSave"
JOIN = "symmetricHashJoin"
TRANSFORM = "transformWithState"
TIMERS = "@timers"
"""The part of a transformWithState that holds its timers; no variable can be called so."""

COLUMNS = {"ValueState": "value", "ListState": "list_value", "MapState": "map_value"}
TIMER_KIND = "TimerState"


@dataclass(frozen=True)
class Part:
    """State that is read at once: all of an operator, a side of a join, a variable of a transformWithState, or its
    timers. `column` is what holds the state where collections are read whole, and `expires` if it has a lifetime.

    A row of a join has more in it than its schema says: whether it was joined with another (`has_more`).
    """

    operator: int
    name: str
    options: Mapping[str, str]
    column: str = "value"
    unique: bool = True
    expires: bool = False
    has_more: bool = False

    def __str__(self) -> str:
        return f"operator {self.operator}" + (f", {self.name}" if self.name else "")


@dataclass(frozen=True)
class Inventory:
    """The stateful operators of a checkpoint, how their state is stored, and the parts that can be read.

    `descriptions` are what Spark keeps of each operator, and `state_ids` the names of its files in checkpoint format 2.
    """

    checkpoint: str
    epoch: int
    provider: str | None
    checkpoint_format: int
    settings: Mapping[str, str]
    operators: Mapping[int, OperatorExplained]
    descriptions: Mapping[int, OperatorMetadata]
    state_ids: Mapping[int, Any]
    parts: tuple[Part, ...]

    def choose(self, operator: int | None = None, part: str | None = None) -> Part:
        """The one part that is meant. Raises BadValue, with what there is, if none or several are."""
        found = [p for p in self.parts if operator in (None, p.operator) and part in (None, p.name)]
        if len(found) == 1:
            return found[0]
        every = "; ".join(map(str, self.parts)) or "none: the query keeps no state"
        asked = f"state of {self.checkpoint}"
        raise BadValue(asked, f"which part? There is {every}" if found else f"there is no such part. There is {every}")

    def of_operator(self, operator: int) -> list[Part]:
        return [part for part in self.parts if part.operator == operator]


def is_transform(operator_name: str) -> bool:
    return operator_name.startswith(TRANSFORM)


def take_inventory(checkpoint: Checkpoint) -> Inventory:
    """Look at the descriptions in a checkpoint. Raises StateUnreadable if it is of no Spark query."""
    manifest, records = checkpoint.manifest, checkpoint.pipeline.records
    name = f"{checkpoint.pipeline.name}@slot:{checkpoint.slot}"
    if manifest.engine != ENGINE:
        raise StateUnreadable(name, "it was not captured from a Spark query")
    explained = explain(records, manifest)
    operators = {operator.number: operator for operator in explained.operators}
    try:
        described = {number: found for number in operators if (found := _description(checkpoint, number))}
        commit = parse_commit(checkpoint.load(manifest.files[f"commits/{manifest.epoch}"]))
    except (Malformed, KeyError) as error:
        raise DamagedArtifact(name, str(error)) from error
    return Inventory(
        checkpoint=name,
        epoch=manifest.epoch,
        provider=explained.provider,
        checkpoint_format=2 if commit.state_ids else 1,
        settings=explained.settings,
        operators=operators,
        descriptions=described,
        state_ids=commit.state_ids,
        parts=tuple(part for number in operators for part in _parts(number, described.get(number))),
    )


def _description(checkpoint: Checkpoint, number: int) -> OperatorMetadata | None:
    """Before Spark 4.0 there is none."""
    files, folder = checkpoint.manifest.files, f"state/{number}/_metadata/"
    newer = [int(name.rpartition("/")[2]) for name in files if name.startswith(f"{folder}v2/")]
    name = f"{folder}v2/{max(newer)}" if newer else f"{folder}metadata"
    return parse_operator(checkpoint.load(files[name])) if name in files else None


def _parts(number: int, described: OperatorMetadata | None) -> list[Part]:
    options = {"operatorId": str(number)}
    kind = described.name if described else ""
    if described is not None and is_transform(kind):
        return _variables(number, described, options)
    if kind == JOIN:
        sides = ("left", "right")
        return [Part(number, side, {**options, "joinSide": side}, unique=False, has_more=True) for side in sides]
    return [Part(number, "", options)]


def _variables(number: int, described: OperatorMetadata, options: Mapping[str, str]) -> list[Part]:
    found = []
    for variable in described.properties.get("stateVariables", ()):
        name, kind = str(variable["stateName"]), str(variable["stateVariableType"])
        if kind == TIMER_KIND:
            timers = {**options, "readRegisteredTimers": "true"}
            found.append(Part(number, TIMERS, timers, "expiration_timestamp_ms", unique=False))
        else:
            expires = bool(variable.get("ttlEnabled"))
            found.append(Part(number, name, {**options, "stateVarName": name}, COLUMNS[kind], expires=expires))
    return sorted(found, key=lambda part: (part.name == TIMERS, part.name))
