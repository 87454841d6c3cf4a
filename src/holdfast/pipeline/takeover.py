"""Taking a pipeline over with its sinks: claim, fence, read, plan, begin, settle. The order is the protocol.

What may refuse is asked once before the claim, with nothing touched, and again after every sink is fenced: only then is
what is read final. Nothing is rolled back or run before the generation has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from holdfast.claim import Begin, Generation, Reason, take_over
from holdfast.decide.consent import TAKE_BACK, duplicates_in, unknown_in
from holdfast.decide.start import Known, Obstacle, SinkView, StartPlan, decisions_that_count, plan_start, stands_at
from holdfast.decide.timeline import World, current, timeline
from holdfast.epochs import NOTHING, EpochDecision, Holder, Link, Marker, Target
from holdfast.errors import (
    ActivatedElsewhere,
    Fenced,
    NotACopy,
    ObjectMissing,
    PipelineMissing,
    SinksAhead,
    SinkTaken,
)
from holdfast.manifest import Manifest
from holdfast.pipeline.epoch import Held
from holdfast.repository.pipeline import PipelineRecords
from holdfast.sinks.contract import Sink, same_target, what_bars

__all__ = ["Found", "Taken", "look_at_pipeline", "take_pipeline", "target_of", "targets_in"]

AWAY = "generation {}, which was never claimed here, holds it: a copy was activated elsewhere; to accept it: {}"
LOOKS = 5
"""How often the sinks of a driver that still runs are looked at before the claim: they may move meanwhile."""


@dataclass(frozen=True)
class Found:
    """What there is to go on from: the state, the checkpoint that the new generation follows, and all decisions.

    `origin` says where the state comes from, if not from this pipeline, and `query` what made it there, if that is
    known.
    """

    state: Known
    follows: Manifest | None
    decisions: Sequence[EpochDecision]
    origin: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """A pipeline that was taken over: its generation, what was planned, the sinks as they stand, what was decided."""

    generation: Generation
    holder: Holder
    plan: StartPlan
    sinks: Mapping[str, Held]
    decided: Mapping[int, Sequence[EpochDecision]]
    found: Found


def target_of(
    manifest: Manifest | None, state: Link, sink: str, decided: Mapping[int, Sequence[EpochDecision]]
) -> Target:
    """The way back to where the state stands, with the position that is known of it, if one is."""
    after = decided.get(state.epoch + 1)
    if after and sink in after[0].backs and after[0].backs[sink].at == state:
        return after[0].backs[sink]
    held = targets_in(manifest).get(sink) if manifest else None
    if held is not None and held.at == state:
        return held
    own = decided.get(state.epoch)
    return Target(state, own[0].generation if own else 0)


def targets_in(manifest: Manifest) -> dict[str, Target]:
    """The way back to a checkpoint, for each sink that it knows."""
    return {name: msgspec.convert(value, Target) for name, value in manifest.sink_positions.items()}


def take_pipeline(
    records: PipelineRecords,
    reason: Reason,
    sinks: Mapping[str, Sink],
    find: Callable[[World], Found],
    *,
    rewind: bool = False,
    discard_foreign: bool = False,
    accept: Sequence[str] = (),
    activate: bool = False,
    reach: Callable[[str], None] = lambda _step: None,
) -> Taken:
    """Claim a pipeline, fence its sinks, and begin where `find` and the sinks say; then roll back what lies beyond.

    `find` is asked for what there is to go on from, given the records as they are: before the claim and after it.
    Raises SinksAhead, before anything is touched where it can be known, if a sink can't go on from there. What others
    have written to a sink that must go back is in the way as well, unless it may be lost: `discard_foreign`. One that
    can't go back at all may be let stay ahead, and get rows twice: `accept` then names it, as `duplicates:NAME`.

    With `activate` it is a copy that is taken over, whatever the original does, and NotACopy is raised for anything
    else. Without, ActivatedElsewhere is raised, with nothing claimed, if a copy was activated and holds the sinks now,
    unless `accept` has its name. `reach` is called at each step by name, as in an epoch.
    """
    if activate and not (records.exists() and records.began_elsewhere(records.generations())):
        raise NotACopy(records.name, records.store.url)
    taking = _Taking(records, sinks, find, rewind, discard_foreign, accept, activate, reach)
    taking.look_before()
    # Only now: a pipeline that is refused before its first start must not be left behind.
    taking.pipeline_id = records.ensure_identity().pipeline_id
    generation = take_over(records, reason, taking.begin, taking.fence, activate or TAKE_BACK in accept)
    return taking.settle(generation)


def look_at_pipeline(
    records: PipelineRecords,
    sinks: Mapping[str, Sink],
    find: Callable[[World], Found],
    *,
    rewind: bool = False,
    discard_foreign: bool = False,
    accept: Sequence[str] = (),
) -> tuple[Found, StartPlan]:
    """What a take-over would find and plan now, with nothing claimed and nothing touched."""
    return _Taking(records, sinks, find, rewind, discard_foreign, accept).look()


@dataclass(frozen=True)
class _Planned:
    found: Found
    plan: StartPlan
    counted: Mapping[int, Sequence[EpochDecision]]
    targets: Mapping[str, Target]
    """The way back to the state, for each sink."""

    def require(self) -> None:
        if self.plan.obstacles:
            raise SinksAhead(str(self.plan.state.at), [f"{o.sink}: {o.why}" for o in self.plan.obstacles])


class _Taking:
    def __init__(
        self,
        records: PipelineRecords,
        sinks: Mapping[str, Sink],
        find: Callable[[World], Found],
        rewind: bool,
        discard_foreign: bool = False,
        accept: Sequence[str] = (),
        activate: bool = False,
        reach: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self._reach = reach
        self._accept = accept
        self._activate = activate
        self._records = records
        self._sinks = sinks
        self._find = find
        self._rewind = rewind
        self._discard_foreign = discard_foreign
        self.pipeline_id = ""
        """Of one that is not there yet, nothing."""
        self._holder = Holder("", -1, "")
        self._markers: dict[str, Marker | None] = {}
        self._seen: dict[str, Marker | None] = {}
        """As they were before the claim."""
        self._planned: _Planned | None = None

    def look(self) -> tuple[Found, StartPlan]:
        markers = self._look()
        planned = self._plan(self._records.world(), markers)
        elsewhere = {name: AWAY.format(holder.generation, TAKE_BACK) for name, holder in self._away().items()}
        others = [obstacle for obstacle in planned.plan.obstacles if obstacle.sink not in elsewhere]
        obstacles = (*(Obstacle(name, why) for name, why in elsewhere.items()), *others)
        staying = {name: sink for name, sink in planned.plan.sinks.items() if name not in elsewhere}
        return planned.found, replace(planned.plan, sinks=staying, obstacles=obstacles)

    def look_before(self) -> None:
        """Refuse what can be refused with nothing touched. Where an old driver still runs, nothing can be told."""
        for _ in range(LOOKS):
            markers = self._look()
            if away := self._away():
                generation = max(holder.generation for holder in away.values())
                raise ActivatedElsewhere(self._records.name, list(away), generation)
            planned = self._plan(self._records.world(), markers)
            if not planned.plan.obstacles:
                return
            if self._look() == markers:
                planned.require()

    def fence(self, generation: int, token: str) -> None:
        self._holder = Holder(self.pipeline_id, generation, token)
        self._reach("claimed")
        self._markers = dict.fromkeys(self._sinks)
        for name, sink in self._sinks.items():
            # One without a marker is nobody's: it begins once it is known where.
            if (marker := sink.look()) is not None:
                self._refuse_twice(name, marker)
                self._markers[name] = self._fence(name, Link())
        self._reach("fenced")

    def begin(self) -> Begin:
        """Read what is final now, and say where the generation begins."""
        world = self._records.world()
        planned = self._plan(world, self._markers)
        begins = {name: sink.holds for name, sink in planned.plan.sinks.items() if sink.begins}
        if begins:
            for name, at in begins.items():
                self._refuse_twice(name, self._sinks[name].look())
                self._markers[name] = self._fence(name, at)
            planned = self._plan(world, self._markers)
        if planned.plan.obstacles and self._records.is_claimed(self._holder.generation + 1):
            raise Fenced(self._records.name, self._holder.generation, "another has claimed it meanwhile")
        planned.require()
        self._planned = planned
        slot = planned.found.follows.at if planned.found.follows else None
        # Who goes on in a directory has all that was decided in it behind them, also where boundaries are cut anew.
        goes_on = not self._rewind or planned.found.state.kind == "warm"
        follows = current(world) if goes_on else None
        return Begin(slot, planned.plan.adopted, follows, planned.found.origin)

    def _refuse_twice(self, name: str, marker: Marker | None) -> None:
        """Raise SinkUnfit if a sink has our own marker before it was fenced: it was fenced under another name, and what
        the one commits the other would skip.
        """
        if marker is not None and marker.holder == self._holder:
            fenced = [other for other, known in self._markers.items() if known is not None]
            raise same_target(self._sinks[name], fenced)

    def _fence(self, name: str, begin: Link) -> Marker:
        marker = self._sinks[name].fence(self._holder, begin)
        self._reach(f"fenced {name}")
        return marker

    def settle(self, generation: Generation) -> Taken:
        """Roll back what lies beyond, now that the generation has begun."""
        assert self._planned is not None
        found, plan, counted = self._planned.found, self._planned.plan, self._planned.counted
        targets = self._planned.targets
        self._reach("begun")
        standing = {}
        for name, sink in self._sinks.items():
            marker = self._markers[name]
            target = targets[name]
            if plan.sinks[name].rolls_back:
                sink.roll_back(target, discard_foreign=self._discard_foreign)
                self._reach(f"rolled back {name}")
            elif plan.sinks[name].doubles:
                sink.stand_at(target)
            elif marker is not None and (marker.at, marker.decided) != (target.at, target.decided):
                target = Target(marker.at, marker.decided)
            standing[name] = Held(sink, target)
        # Beyond a hole in the records nothing was adopted: those epochs are run as if they had never been.
        decided = {epoch: several for epoch, several in counted.items() if epoch <= plan.adopted}
        return Taken(generation, self._holder, plan, standing, decided, found)

    def _look(self) -> dict[str, Marker | None]:
        markers = {name: sink.look() for name, sink in self._sinks.items()}
        # Asked after the sinks: whoever makes the pipeline right now has made it before they fence one.
        with suppress(PipelineMissing):
            self.pipeline_id = self.pipeline_id or self._records.identity().pipeline_id
        for name, marker in markers.items():
            if marker is not None and marker.holder.pipeline_id != self.pipeline_id:
                raise SinkTaken(name, marker.holder.pipeline_id)
        self._seen = markers
        return markers

    def _away(self) -> dict[str, Holder]:
        """The sinks that are held by a generation of another repository, of whoever took over there, unless accepted.

        Whoever is restarted over and over would count past it: it may not even claim. The claims are asked after the
        sinks: a claim stands before its sinks are fenced.
        """
        if self._activate or TAKE_BACK in self._accept:
            return {}
        held = {name: marker.holder for name, marker in self._seen.items() if marker is not None}
        return {name: holder for name, holder in held.items() if not self._is_claim_of_ours(holder)}

    def _is_claim_of_ours(self, holder: Holder) -> bool:
        try:
            return self._records.claim(holder.generation).token == holder.token
        except ObjectMissing:
            # An old claim that was lost stops nothing; one above all that there are was never made here.
            return holder.generation <= self._records.generations().top

    def _is_anothers(self, world: World, name: str, marker: Marker) -> bool:
        """Whether what a sink ends with was decided by a generation of another repository, under a number that never
        began here. Only where a sink began is such a number our own.
        """
        decided, base = marker.decided, world.bases.get(marker.decided)
        if decided == self._holder.generation or (base is not None and not base.void):
            return False
        before = max((g for g, each in world.bases.items() if g < decided and not each.void), default=None)
        if before is not None and self._made_in(world, before) != self._made_in(world, decided):
            return True  # The number was claimed, or would be, to activate a copy: the original may have used it.
        seen = self._seen.get(name)
        return TAKE_BACK in self._accept or seen is None or (seen.at, seen.decided) != (marker.at, decided)

    def _made_in(self, world: World, generation: int) -> str | None:
        """The repository that a generation was claimed in: this one, if it is yet to be."""
        try:
            return (
                self._records.claim(generation).repository_id
                if generation in world.claims
                else self._records.repository_id
            )
        except ObjectMissing:
            return None

    def _plan(self, world: World, markers: Mapping[str, Marker | None]) -> _Planned:
        found = self._find(world)
        # To what is no ancestor of where a sink stands there is no way back, whatever the numbers of epochs say.
        sideways = self._rewind and found.follows is not None and found.follows.at not in timeline(world)
        of = found.follows.at.generation if sideways and found.follows else None
        counted = decisions_that_count(world, found.decisions, of)
        known = {name for several in counted.values() for name in several[0].backs}
        known |= targets_in(found.follows).keys() if found.follows else set()
        views, targets = {}, {}
        for name, sink in self._sinks.items():
            why, marker = None, markers[name]
            targets[name] = target_of(found.follows, found.state.at, name, counted)
            is_there = marker is not None and stands_at(world, found.state.at, marker, of)
            is_strange = marker is not None and marker.at != NOTHING and self._is_anothers(world, name, marker)
            is_there = is_there and not is_strange
            if sideways and not sink.can_jump:
                why = "that lies off the timeline, and it can only go back the way that it came"
            elif is_strange and marker is not None and not sink.can_jump and unknown_in(name) not in self._accept:
                why = f"generation {marker.decided}, which is not known here, wrote to it, and may have been a rewind"
            elif marker is not None and not is_there:
                beginnings = self._beginnings(world, found, of) if name not in known else []
                targets[name], why = self._way_back(sink, [targets[name], *beginnings])
            views[name] = SinkView(
                marker,
                why,
                is_there,
                was_there=name in known,
                may_double=duplicates_in(name) in self._accept and type(sink).stand_at is not Sink.stand_at,
                can_jump=sink.can_jump,
            )
        return _Planned(found, plan_start(found.state, counted, views, rewind=self._rewind), counted, targets)

    def _way_back(self, sink: Sink, targets: Sequence[Target]) -> tuple[Target, str | None]:
        """The first of these that a sink can go back to, or the first, and why it can't."""
        whys = []
        for target in targets:
            whys.append(what_bars(sink, target, discard_foreign=self._discard_foreign))
            if whys[-1] is None:
                return target, None
        return targets[0], whys[0]

    def _beginnings(self, world: World, found: Found, of: int | None) -> Iterator[Target]:
        """Where a sink may have begun, of which neither the checkpoint nor a decision knows: at the state, by whichever
        generation first ran with it.
        """
        first = found.follows.generation if found.follows else 0
        for generation in sorted(generation for generation in world.claims if generation >= first):
            if stands_at(world, found.state.at, Marker(self._holder, found.state.at, generation), of):
                yield Target(found.state.at, generation)
