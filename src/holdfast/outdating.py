"""What a copy forgets: what its source has forgotten, by the handshake of a prune, and never what it would go on from.

The source goes on while a copy is made, and may have forgotten all that has just arrived: what came after that is not
here yet. So the last two checkpoints of the copy stay until newer ones have arrived. And somebody may take the copy
over meanwhile: intents stand before that is looked for, as in every prune, so that the one or the other is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.decide.timeline import World, timeline
from holdfast.errors import Diverged, MissingRecords, ObjectMissing
from holdfast.gc import decide, intend, needs
from holdfast.ids import new_token
from holdfast.joining import ranges
from holdfast.layout import Slot
from holdfast.records import Decision, Joined, Kept, is_a, unseal
from holdfast.repository.pipeline import PipelineRecords
from holdfast.transcribing import Transcriber

__all__ = ["forget_too"]

STAY = 2
"""How many of the newest checkpoints of a copy stay, whatever its source has forgotten."""


def forget_too(
    records: Transcriber, target: PipelineRecords, keys: Sequence[str], look: Callable[[], World]
) -> dict[str, int]:
    """Have the target forget what these records of the source speak of, and give those that stand there now, by size.

    `look` reads what the target holds, and raises if something of it is not seen, since that would not be spared.
    What is spared, because it is among the newest here or somebody needs it, is asked for again by the next round: its
    record is not among them. Nothing is deleted. Raises Diverged if the target was activated meanwhile.
    """
    said: dict[str, int] = {}
    words: dict[str, bytes] = {}
    for key in keys:
        try:
            data = records.whole(key)
        except ObjectMissing:
            continue
        if data is not None and is_a(Kept, data):
            records.create(key, data)
            said[key] = len(data)
        elif data is not None:
            words[key] = data
    if words:
        said |= _forget(records, target, words, look)
    return said


def _forget(
    records: Transcriber, target: PipelineRecords, words: Mapping[str, bytes], look: Callable[[], World]
) -> dict[str, int]:
    of = {key: _slots(target, key, data) for key, data in words.items()}
    with records.at_target():
        world = look()
        here = world.counted()
        doomed = (here & set().union(*of.values())) - set(timeline(world)[-STAY:])
        decided = _decide(records, target, world, sorted(doomed), words) if doomed else set()
    said: dict[str, int] = {}
    unsaid: set[Slot] = set()
    for key, data in words.items():
        if (of[key] & here) - decided:
            # Not yet, and so not a word that speaks of others too: those which never arrived would look lost.
            unsaid |= of[key] - here - world.forgotten
            continue
        if not _is_alone(target, key) or not of[key] & decided:
            _say(records, target, key, data)
        said[key] = len(data)
    for generation in {slot.generation for slot in unsaid}:
        numbers = [slot.number for slot in unsaid if slot.generation == generation]
        joined = Joined(token=new_token(), generation=generation, ranges=ranges(numbers))
        target.create(target.keys.joined(generation, len(numbers), joined.token), joined)
    return said


def _decide(
    records: Transcriber, target: PipelineRecords, world: World, doomed: Sequence[Slot], words: Mapping[str, bytes]
) -> set[Slot]:
    """Those that are forgotten now: in the source's own words, where it has some for that checkpoint alone."""
    intents = intend(target, doomed)
    known = target.generations()
    if not known.claims >= world.claims:
        raise MissingRecords(target.keys.generations, "claims vanish as they are read")
    if target.newest_is_local(known):
        target.drop(*(target.keys.intent(Slot(each.generation, each.slot), each.token) for each in intents))
        raise Diverged(target.keys.claim(known.top))
    needed, decided = needs(target), set[Slot]()
    for intent in intents:
        slot = Slot(intent.generation, intent.slot)
        key = target.keys.decision(slot, intent.attempt)
        if slot in needed:
            target.drop(target.keys.intent(slot, intent.token))
        elif key in words:
            _say(records, target, key, words[key])
            decided.add(slot)
        elif decide(target, slot, intent.attempt) is not None:
            decided.add(slot)
    return decided


def _is_alone(target: PipelineRecords, key: str) -> bool:
    name = target.parse(key)
    return name is not None and name.slot is not None


def _slots(target: PipelineRecords, key: str, data: bytes) -> frozenset[Slot]:
    name = target.parse(key)
    assert name is not None
    return frozenset({name.slot}) if name.slot is not None else unseal(key, data, Joined).slots()


def _say(records: Transcriber, target: PipelineRecords, key: str, data: bytes) -> None:
    """Raises Diverged where whoever has activated the target holds the checkpoint."""
    try:
        records.create(key, data)
    except Diverged:
        # Another copier, which knew of it by a joined record, has decided in its own words: that is the same.
        if not _is_alone(target, key) or not isinstance(target.verdict(key), Decision):
            raise
