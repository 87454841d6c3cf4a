"""Where a pipeline goes on from, and what becomes of each sink: one pure function of what is known.

The rule of every start: Spark may choose the boundaries of an epoch only if neither the ledger nor any sink knows that
epoch on this timeline. Otherwise the recorded ones are run again, one after the other, and sinks that hold an epoch
skip it. What a sink holds beyond the decisions is taken back, where it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.decide.timeline import World, lineage
from holdfast.epochs import NOTHING, EpochDecision, Link, Marker

__all__ = [
    "Known",
    "Obstacle",
    "SinkPlan",
    "SinkView",
    "StartPlan",
    "decisions_that_count",
    "plan_start",
    "stands_at",
]


def decisions_that_count(
    world: World, decisions: Sequence[EpochDecision], generation: int | None = None
) -> dict[int, list[EpochDecision]]:
    """The decisions of each epoch on a timeline, the one that counts first; of the current generation unless said.

    Those of an older generation count up to the epoch at which the timeline leaves it. Of several the newest
    generation's counts, and of one generation the last attempt.
    """
    steps = lineage(world, generation)
    rank = {g: (len(steps) - place, reach) for place, (g, _, reach) in enumerate(steps)}
    found: dict[int, list[EpochDecision]] = {}
    for decision in decisions:
        order, reach = rank.get(decision.generation, (0, -1))
        if order and (reach is None or decision.epoch <= reach):
            found.setdefault(decision.epoch, []).append(decision)
    for several in found.values():
        several.sort(key=lambda decision: (rank[decision.generation][0], decision.attempt), reverse=True)
    return dict(sorted(found.items()))


def stands_at(world: World, state: Link, marker: Marker, generation: int | None = None) -> bool:
    """Whether a sink ends where the state stands, on the same timeline; of the current generation unless said.

    The link alone does not tell: a file source counts the entries of its log, so on another timeline the same link
    stands for other rows. A generation that never began has decided nothing: what it marks is where a sink began.
    """
    if marker.at != state or state == NOTHING:
        return marker.at == state
    base = world.bases.get(marker.decided)
    if base is None or base.void:
        return True
    steps = lineage(world, generation)
    return any(g == marker.decided and (reach is None or state.epoch <= reach) for g, _, reach in steps)


@dataclass(frozen=True)
class Known:
    """A state to go on from: Spark's directory as it lies there (`warm`), a checkpoint, or nothing at all."""

    kind: Literal["warm", "checkpoint", "nothing"]
    at: Link = NOTHING


@dataclass(frozen=True)
class SinkView:
    """A sink as it was found after the fence, and whether it can go back to where the state stands, or why not.

    `is_there` says that it stands there already, `was_there` that the checkpoint or a decision knows it: one without a
    marker then was emptied or made anew.
    """

    marker: Marker | None
    why_not_back: str | None = None
    is_there: bool = False
    was_there: bool = False
    may_double: bool = False
    """Whether it may stay ahead of the state, and get rows twice."""
    can_jump: bool = False
    """Whether it finds a place that is no ancestor of where it stands, also one of a later epoch."""


@dataclass(frozen=True)
class SinkPlan:
    """What a sink holds of this timeline once it is settled, and whether it is rolled back to get there."""

    holds: Link
    rolls_back: bool = False
    begins: bool = False
    doubles: bool = False
    """It keeps what it has beyond the state, and gets that again."""


@dataclass(frozen=True)
class Obstacle:
    """Why a sink can't go on from there."""

    sink: str
    why: str


@dataclass(frozen=True)
class StartPlan:
    """The state to go on from, the last epoch that was decided after it, what each sink does, and what is in the way.

    Epochs after the state up to `adopted` are run again on their recorded boundaries.
    """

    state: Known
    adopted: int
    sinks: Mapping[str, SinkPlan] = field(default_factory=dict)
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def replays(self) -> range:
        return range(self.state.at.epoch + 1, self.adopted + 1)


def plan_start(
    state: Known, counted: Mapping[int, Sequence[EpochDecision]], sinks: Mapping[str, SinkView], *, rewind: bool = False
) -> StartPlan:
    """What a start from this state means. A rewind adopts no decision after it: what came later is given up."""
    adopted = state.at.epoch
    while not rewind and adopted + 1 in counted:
        adopted += 1
    plans: dict[str, SinkPlan] = {}
    obstacles: list[Obstacle] = []
    for name, view in sinks.items():
        planned = _plan_sink(state, counted, adopted, view, rewind)
        if isinstance(planned, SinkPlan):
            plans[name] = planned
        else:
            obstacles.append(Obstacle(name, planned))
    return StartPlan(state, adopted, plans, tuple(obstacles))


def _plan_sink(
    state: Known, counted: Mapping[int, Sequence[EpochDecision]], adopted: int, view: SinkView, rewind: bool
) -> SinkPlan | str:
    marker = view.marker
    if marker is None:
        if view.was_there:
            return "it was written to before, and holds no marker any more: it was emptied or made anew"
        return SinkPlan(state.at, begins=True)
    if view.is_there or _is_ahead(state, counted, adopted, marker):
        return SinkPlan(marker.at)
    # Only who asks to go somewhere may be taken forward: a table that somebody took back by hand stays where it is.
    if marker.at.epoch < state.at.epoch and not (rewind and view.can_jump):
        return f"it ends at {marker.at}, and the state stands at {state.at}: rows in between would be lost"
    if view.why_not_back is not None and view.may_double:
        return SinkPlan(state.at, doubles=True)
    if view.why_not_back is not None:
        return f"it ends at {marker.at}, which is not known here, and can't go back to {state.at}: {view.why_not_back}"
    return SinkPlan(state.at, rolls_back=True)


def _is_ahead(state: Known, counted: Mapping[int, Sequence[EpochDecision]], adopted: int, marker: Marker) -> bool:
    """Whether what a sink ends with is what a decision after the state and up to the adopted epoch made."""
    if not state.at.epoch < marker.at.epoch <= adopted:
        return False
    several = counted[marker.at.epoch]
    # A later decision may stand for the same rows: made when one sink had to be given them once more.
    return any(
        d.after == marker.at and d.generation == marker.decided and d.staged.digest == several[0].staged.digest
        for d in several
    )
