"""Clean-up: what retention drops is forgotten, deleted, and its bytes with it, without taking what anybody needs.

The order is the protocol: intents, then the look for names, pins and the newest base, then decisions, then a listing of
all manifests, then the deletes. A name or pin made meanwhile either is seen by the look or sees the intent. An intent
stays until the last byte is gone, so that the next prune finds and finishes what a killed one left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from holdfast.decide.retention import Candidate, KeepPolicy, Verdict, retain
from holdfast.decide.timeline import World, abandoned, current, losses, timeline
from holdfast.errors import (
    CheckpointMissing,
    MissingRecords,
    ObjectMissing,
    StillNeeded,
)
from holdfast.ids import new_token
from holdfast.joining import join_decisions
from holdfast.layout import Slot
from holdfast.records import Base, Decision, Intent
from holdfast.repository.access import each
from holdfast.repository.pipeline import PipelineRecords

__all__ = [
    "PrunePlan",
    "Removed",
    "Swept",
    "decide",
    "delete_checkpoint",
    "intend",
    "named_objects",
    "needs",
    "plan_forget",
    "plan_prune",
    "sweep",
]

Progress = Callable[[str, int], None]
"""Called with what is being done and how many were done."""


@dataclass
class Removed:
    """What a prune took away, and what it left because somebody came to need it meanwhile."""

    checkpoints: list[Slot] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    spared: dict[Slot, list[str]] = field(default_factory=dict)


@dataclass
class Swept:
    """Objects that no manifest named, of generations that were superseded."""

    objects: list[str] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True)
class PrunePlan:
    """What a prune would keep and drop, each with its reasons; `apply` does exactly this.

    `interrupted` are checkpoints whose prune was begun and not finished: it is finished now, unless they are needed.
    `leftovers` are manifests that landed at forgotten slots and count for nothing.
    """

    records: PipelineRecords
    verdicts: Sequence[Verdict]
    interrupted: Sequence[Slot] = ()
    leftovers: Sequence[Slot] = ()

    def __repr__(self) -> str:
        kept, dropped = len(self.verdicts) - len(self.drops), len(self.drops)
        return f"<holdfast.PrunePlan of {self.records.name!r}: keeps {kept}, drops {dropped}>"

    @property
    def drops(self) -> list[Slot]:
        """The checkpoints that would go."""
        return [v.candidate.slot for v in self.verdicts if not v.keep]

    def apply(self, progress: Progress | None = None) -> Removed:
        """Carry the plan out. Killed at any instant, the next prune finishes it."""
        doomed = sorted({*self.drops, *self.interrupted, *self.leftovers})
        return _forget(self.records, doomed, progress or (lambda _what, _n: None))


def plan_prune(records: PipelineRecords, policy: KeepPolicy) -> PrunePlan:
    """Decide what to keep: a pure function of the records, read here. Raises Damage if a manifest can't be read.

    With nothing on the timeline nothing is dropped: what is abandoned may then be all that is left.
    """
    records.refuse_copy()
    world = _whole_world(records)
    standing, leftovers = timeline(world), sorted(set(world.slots) & set(world.forgotten))
    if not standing:
        policy = KeepPolicy()
    times = _times(records, [*abandoned(world), *standing])
    savepoints, pins = _holders(records)
    base = _newest_base(world.bases)

    def candidate(slot: Slot, on_timeline: bool) -> Candidate:
        held = (tuple(savepoints.get(slot, ())), tuple(pins.get(slot, ())))
        return Candidate(slot, times[slot], on_timeline, *held, base_of_newest=slot == base)

    candidates = [candidate(slot, False) for slot in abandoned(world) if slot in times]
    candidates += [candidate(slot, True) for slot in standing if slot in times]
    protected = {verdict.candidate.slot for verdict in retain(candidates, KeepPolicy(last=2)) if verdict.keep}
    interrupted = sorted(slot for slot in records.intents() if slot not in protected)
    return PrunePlan(records, retain(candidates, policy), interrupted, leftovers)


def _whole_world(records: PipelineRecords) -> World:
    """The records, if none is missing among them: with a base or a claim lost, what counts would look abandoned.

    Raises MissingRecords; what a running pipeline changes between two listings is missing only once.
    """
    world = records.world()
    missing = losses(world)
    if missing:
        world = records.world()
        missing = [what for what in losses(world) if what in missing]
    lost = records.locate().lost
    if missing or lost:
        raise MissingRecords(records.keys.prefix, "; ".join(missing[:5]) or f"the manifest of {lost}")
    return world


def delete_checkpoint(records: PipelineRecords, slot: Slot, progress: Progress | None = None) -> Removed:
    """Forget one checkpoint and say what went. Raises StillNeeded, with the reasons, if anything needs it."""
    _refuse_needed(records, slot)
    removed = _forget(records, [slot], progress or (lambda _what, _n: None))
    if slot in removed.spared:
        raise StillNeeded(records.reference(slot), removed.spared[slot])
    return removed


def plan_forget(records: PipelineRecords, slot: Slot) -> Removed:
    """What `delete_checkpoint` would remove as things stand; changes nothing, and refuses what that would."""
    _refuse_needed(records, slot)
    alone = records.manifest(slot).objects.keys() - named_objects(records, but=[slot])
    return Removed([slot], sorted(alone))


def _refuse_needed(records: PipelineRecords, slot: Slot) -> None:
    records.refuse_copy()
    world = _whole_world(records)
    if slot not in world.counted():
        raise CheckpointMissing(records.reference(slot), "the slot holds no checkpoint")
    if slot in timeline(world)[-2:]:
        raise StillNeeded(records.reference(slot), ["it is one of the last two checkpoints"])
    if needed := needs(records).get(slot):
        raise StillNeeded(records.reference(slot), needed)


def sweep(records: PipelineRecords, *, dry_run: bool = False) -> Swept:
    """Remove bytes that nothing names, only of generations that a higher one with a base has superseded.

    No clock and no grace period: an upload under way belongs to the newest generation, or to one that is stale and can
    never count. Raises Damage if a manifest can't be read: what it names is then not known.
    """
    records.refuse_copy()
    _whole_world(records)
    # The bytes are listed first: what is uploaded after this is not looked at.
    known = records.generations()
    newest = current(World(known.claims, known.bases))
    if newest is None:
        return Swept()
    data = [
        (key, size)
        for key, name, size in records.listed(records.keys.data, "data")
        if _is_below(name.generation, newest)
    ]
    named = named_objects(records)
    prefix = records.keys.prefix
    loose = [(key, size) for key, size in data if key.removeprefix(prefix).removesuffix(".index") not in named]
    if not dry_run:
        records.drop(*(key for key, _ in loose), *_answers_nobody_reads(records))
    return Swept([key.removeprefix(prefix) for key, _ in loose], sum(size for _, size in loose))


def _answers_nobody_reads(records: PipelineRecords) -> list[str]:
    """Answers to requests that were withdrawn: whoever asked had stopped waiting."""
    listed = records.listed(records.keys.requests, "request", "answer")
    asked = {name.token for _, name, _ in listed if name.what == "request"}
    return [key for key, name, _ in listed if name.what == "answer" and name.token not in asked]


def named_objects(records: PipelineRecords, but: Iterable[Slot] = ()) -> set[str]:
    """The paths that manifests name, all but those of some slots; generations are read in ascending order.

    A checkpoint's bytes can move on to a newer one, and the older be pruned, while this runs: what is named is never
    lost between the two because the older is looked at first, and because passes are made until one brings nothing new.
    """
    left_out, named = set(but), set[str]()
    read: set[Slot] = set()
    changed = True
    while changed:
        changed = False
        for generation in _ascending(records):
            unread = [slot for slot in generation if slot not in read and slot not in left_out]
            changed = changed or bool(unread)
            read.update(unread)
            named.update(path for paths in each(partial(_paths, records), unread) for path in paths)
    return named


def _paths(records: PipelineRecords, slot: Slot) -> Iterable[str]:
    try:
        return records.manifest(slot).objects
    except ObjectMissing:
        # Pruned, or void: if its bytes live on, the manifest that took them over is seen in the next pass.
        return ()


def _ascending(records: PipelineRecords) -> Iterator[list[Slot]]:
    """The checkpoints of each generation, oldest generation first, those that begin meanwhile too."""
    top = -1
    while True:
        higher = [int(g) for g in records.store.folders(records.keys.checkpoints) if g.isdigit() and int(g) > top]
        if not higher:
            return
        for generation in sorted(higher):
            held, void = records.slots(generation)
            yield sorted(held - void)
            top = generation


def _forget(records: PipelineRecords, doomed: Sequence[Slot], progress: Progress) -> Removed:
    removed = Removed()
    if not doomed:
        return removed
    intents = intend(records, doomed)
    progress("marking checkpoints", len(intents))
    decided, removed.spared = _decide_all(records, intents)
    progress("deciding", len(decided))
    named = named_objects(records, but=decided)
    progress("deleting checkpoints", len(decided))
    records.drop(*(records.keys.manifest(slot) for slot in decided))
    loose = sorted({path for paths in decided.values() for path in paths} - named)
    progress("deleting objects", len(loose))
    records.drop(*(records.keys.prefix + path for path in loose))
    outcomes = records.listed(records.keys.all_settled, "settled", "failed")
    records.drop(*(key for key, name, _ in outcomes if name.slot in decided))
    standing = records.intents()
    records.drop(*(key for slot in decided for key in standing.get(slot, ())))
    join_decisions(records)
    removed.checkpoints = list(decided)
    removed.objects = loose
    return removed


def intend(records: PipelineRecords, doomed: Sequence[Slot]) -> list[Intent]:
    """Say what is about to be forgotten, for whoever comes to need it; the last step is to drop the intents."""
    attempts = records.attempts()

    def mark(slot: Slot) -> Intent:
        attempt = attempts.get(slot, 0)
        intent = Intent(token=new_token(), generation=slot.generation, slot=slot.number, attempt=attempt)
        records.create(records.keys.intent(slot, intent.token), intent)
        return intent

    return each(mark, doomed)


def _decide_all(
    records: PipelineRecords, intents: Sequence[Intent]
) -> tuple[dict[Slot, list[str]], dict[Slot, list[str]]]:
    """After the intents stand: look who needs what, take back the intents of those, decide on the rest.

    Gives what is forgotten now, with the bytes that its decision lists, and what is spared, with the reasons.
    """
    needed = needs(records)
    forgotten = records.forgotten()
    is_unfinished = any(Slot(intent.generation, intent.slot) in forgotten for intent in intents)
    before = records.doomed() if is_unfinished else {}

    def decision(intent: Intent) -> list[str] | None:
        slot = Slot(intent.generation, intent.slot)
        if slot in forgotten:
            return before.get(slot, [])
        return None if slot in needed else decide(records, slot, intent.attempt)

    decided, spared = dict[Slot, list[str]](), dict[Slot, list[str]]()
    for intent, objects in zip(intents, each(decision, intents), strict=True):
        slot = Slot(intent.generation, intent.slot)
        if objects is not None:
            decided[slot] = objects
        else:
            spared[slot] = needed.get(slot, ["somebody came to need it, or it is gone"])
            records.drop(records.keys.intent(slot, intent.token))
    return decided, spared


def decide(records: PipelineRecords, slot: Slot, attempt: int) -> list[str] | None:
    """Decide this attempt and give the bytes it dooms; None if it was decided that the checkpoint is kept.

    Its intent stands by then, and nobody who needed it was found after that.
    """
    key = records.keys.decision(slot, attempt)
    try:
        objects = sorted(records.manifest(slot).objects)
        decision = Decision(token=new_token(), generation=slot.generation, slot=slot.number, objects=objects)
        # Losing the create to another prune is winning: it decided the same, with the same bytes.
        if records.create(key, decision) or isinstance(records.verdict(key), Decision):
            return objects
        return None
    except ObjectMissing:
        return [] if records.is_forgotten(slot) else None


def needs(records: PipelineRecords) -> dict[Slot, list[str]]:
    """What somebody needs, and who: names, pins, and where the newest generation began."""
    found: dict[Slot, list[str]] = {}
    pins, bases = records.pins_and_bases()
    for name, savepoint in records.savepoints().items():
        found.setdefault(savepoint.at, []).append(f"savepoint {name}")
    for pin in pins:
        found.setdefault(pin.at, []).append(f"pin: {pin.why}")
    base = _newest_base(bases)
    if base is not None:
        found.setdefault(base, []).append("the newest generation began from it")
    return found


def _newest_base(bases: Mapping[int, Base]) -> Slot | None:
    begun = max((g for g, base in bases.items() if not base.void), default=None)
    return None if begun is None else bases[begun].slot


def _holders(records: PipelineRecords) -> tuple[dict[Slot, list[str]], dict[Slot, list[str]]]:
    savepoints: dict[Slot, list[str]] = {}
    pins: dict[Slot, list[str]] = {}
    for name, savepoint in records.savepoints().items():
        savepoints.setdefault(savepoint.at, []).append(name)
    for pin in records.pins():
        pins.setdefault(pin.at, []).append(pin.why)
    return savepoints, pins


def _times(records: PipelineRecords, slots: Iterable[Slot]) -> dict[Slot, int]:
    """When each checkpoint was taken, without those that another prune took away meanwhile."""
    slots = list(slots)
    times = each(partial(_time, records), slots)
    return {slot: time for slot, time in zip(slots, times, strict=True) if time >= 0}


def _time(records: PipelineRecords, slot: Slot) -> int:
    try:
        return records.head(slot).timestamp_ms
    except ObjectMissing:
        if records.is_forgotten(slot):
            return -1
        raise MissingRecords(records.keys.manifest(slot), "the manifest vanished and was never forgotten") from None


def _is_below(generation: int | None, newest: int) -> bool:
    return generation is not None and generation < newest
