"""Copying a pipeline to another repository: only what is missing, every byte checked, in an order that can be cut off.

Identity, claims, bases, bytes, manifests, then names, outcomes, decisions and the ledger. A manifest comes after all
that it names, so whatever has arrived is restorable. Until it is activated, the copy belongs to its copier alone. Both
ends are looked for before anything is concluded from what is not there. What is damaged at the source is told, is not
written, and holds up only what can't be without it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from holdfast.carrying import Carrier, prove_inline
from holdfast.decide.ledger import Entry, joined_elsewhere, parse_entry, removable
from holdfast.decide.timeline import World, newest, timeline
from holdfast.errors import (
    BadValue,
    Damage,
    DamagedCopy,
    FormatTooNew,
    MissingRecords,
    ObjectMissing,
)
from holdfast.gc import named_objects
from holdfast.joining import drop_joined
from holdfast.layout import Slot
from holdfast.outdating import forget_too
from holdfast.records import Pin, Savepoint, unseal
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.presence import require_arrived
from holdfast.transcribing import Begun, Transcriber, Uncopied

__all__ = ["Copied", "Copier", "Uncopied", "copy_pipeline"]

Progress = Callable[[str, int, int], None]
"""Called every moment with what is being done, how many are done, and of how many. What it raises ends the copy."""


@dataclass
class Copied:
    """What a copy moved. `removed` are checkpoints that the source had forgotten since the last copy.

    `damaged` is what could not be copied, since it is damaged at the source.
    """

    pipeline: str
    checkpoints: int = 0
    objects: int = 0
    bytes: int = 0
    removed: list[Slot] = field(default_factory=list)
    damaged: list[Uncopied] = field(default_factory=list)


@dataclass
class _Held:
    """What is known of the target from earlier rounds, so that a round in which nothing is new costs a few listings.

    `there` are all its objects with their sizes, `top` the newest generation at the source when they were last
    compared, `starts` the slot of each generation from which on something may be missing. `named` is read when it is
    first needed.
    """

    there: dict[str, int]
    compared: set[int] = field(default_factory=set)
    top: int = -1
    starts: dict[int, int] = field(default_factory=dict)
    named: dict[Slot, frozenset[str]] | None = None


def copy_pipeline(source: PipelineRecords, target: PipelineRecords, progress: Progress | None = None) -> Copied:
    """Bring the target up to the source. Killed at any instant, it can be run again to the same end.

    Raises Diverged if the target was activated, or holds another pipeline or other claims under the same names,
    RepositoryGone if one of the two is not where it was opened any more, DamagedCopy if a record that is needed can't
    be read at the target, for a manifest when all else is done, and Damage if the source has lost its identity.
    """
    return Copier(source, target).copy(progress)


class Copier:
    """Brings a target up to a source, again and again. Not for several threads at once.

    The first round looks at all that the target holds; later ones only at what is new at the source, and remember the
    rest. After a round that failed the target is looked at anew.
    """

    def __init__(self, source: PipelineRecords, target: PipelineRecords) -> None:
        if source.repository_id == target.repository_id:
            raise BadValue("copy", f"{source.store.url} and {target.store.url} are the same repository")
        self._source = source
        self._target = target
        self._records = Transcriber(source, target)
        self._held: _Held | None = None
        self.missing: list[Slot] = []
        """Checkpoints that the last look found at the source and that have not arrived, the newest last.

        Those that are damaged there stay among them.
        """
        self.newest: Slot | None = None
        """The newest checkpoint at the target when the last round ended."""

    def copy(self, progress: Progress | None = None) -> Copied:
        """One round; as `copy_pipeline`."""
        try:
            return self._round(progress or (lambda _what, _done, _total: None))
        except BaseException:
            self._held = None
            raise

    def _round(self, progress: Progress) -> Copied:
        source, target, records = self._source, self._target, self._records
        copied = Copied(source.name)
        records.begin(copied.damaged)
        records.look()
        source.identity()
        is_first = self._held is None
        if is_first:
            # Without it nobody could tell whose records follow: what it raises ends the copy.
            records.create(source.keys.identity, records.proven(source.keys.identity))
        known = records.generations(self._held.compared if self._held else set())
        held = self._held = self._held or _Held({i.key: i.size for i in target.store.list(target.keys.prefix)})
        held.compared |= known.same
        self._bytes_and_manifests(known, held, copied, progress)
        self._savepoints(held)
        self._outcomes(held, known)
        has_decided = self._decisions(held, known)
        gone = self._pins(held) + self._joined_entries(held, known)
        held.top = max((g for g, base in known.bases.items() if not base.void), default=-1)
        # Again, before anything is deleted for not having been seen, and before anybody is told that all is here.
        records.look()
        require_arrived(target, records.created)
        is_new = is_first or has_decided or bool(copied.checkpoints or gone)
        if is_new:
            with records.at_target():
                self._clean_up(held, known, copied, gone, is_first=is_first)
            # What was deleted nowhere is found by a round that looks at all of the target: the one after a failure.
            records.look()
        return copied

    def _clean_up(self, held: _Held, known: Begun, copied: Copied, gone: list[str], *, is_first: bool) -> None:
        """Hint at what is newest now, and delete what the source has no more."""
        target = self._target
        if target.newest_is_local(target.generations()):
            # No copy, or one that was activated meanwhile: whoever owns it hints and cleans up.
            return
        world = self._whole_world(held, known)
        self._hint(world)
        copied.removed = self._forget(held, world, is_first)
        self._drop(held, *gone, *self._past_entries(held, world))
        if is_first:
            self._drop_loose(held, known)

    # ---- records ----

    def _bring(self, key: str, held: _Held) -> bool:
        """Bring one record; False if it is damaged at the source, or gone since it was listed."""
        try:
            is_here = self._records.bring(key)
        except ObjectMissing:
            return False
        if is_here:
            held.there[key] = self._records.created[key]
        return is_here

    def _create(self, key: str, data: bytes, held: _Held) -> None:
        self._records.create(key, data)
        held.there[key] = len(data)

    def _drop(self, held: _Held, *keys: str) -> None:
        self._target.drop(*keys)
        for key in keys:
            held.there.pop(key, None)

    def _outcomes(self, held: _Held, known: Begun) -> None:
        source = self._source
        for key, name, _ in source.listed(source.keys.all_settled, "settled", "failed"):
            if key not in held.there and known.may_copy(name.generation):
                self._bring(key, held)

    def _savepoints(self, held: _Held) -> None:
        """Names, but for those of checkpoints that were published after we looked: they come with the next copy."""
        source = self._source
        for key, _, _ in source.listed(source.keys.savepoints, "savepoint"):
            if key in held.there or (data := self._whole(key)) is None:
                continue
            word = unseal(key, data, Savepoint)
            if word.void or word.removed or source.keys.manifest(word.at) in held.there:
                self._create(key, data, held)

    def _whole(self, key: str) -> bytes | None:
        """A record of the source; None if it is damaged there, which is noted, or gone since it was listed."""
        try:
            return self._records.whole(key)
        except ObjectMissing:
            return None

    def _pins(self, held: _Held) -> list[str]:
        """Those that people set, not those of a take-over under way; gives those that the source has no more."""
        source, at_source = self._source, set[str]()
        for key, name, _ in source.listed(source.keys.pins, "pin"):
            at_source.add(key)
            if key in held.there or name.slot is None or source.keys.manifest(name.slot) not in held.there:
                continue
            data = self._whole(key)
            if data is not None and unseal(key, data, Pin).claim is None:
                self._create(key, data, held)
        return [key for key in held.there if key.startswith(source.keys.pins) and key not in at_source]

    def _decisions(self, held: _Held, known: Begun) -> bool:
        """Whether there were any that are new."""
        source, new = self._source, list[str]()
        # Decisions alone before joined ones: a listing that misses one that was joined meanwhile finds the joined one.
        for what in ("decision", "joined"):
            listed = source.listed(source.keys.forgotten, what)
            # Not those of a generation that began since: without its claim and base they would look like a loss.
            new += [key for key, name, _ in listed if key not in held.there and name.generation in known.bases]
        said = forget_too(self._records, self._target, new, lambda: self._whole_world(held, known)) if new else {}
        held.there |= said
        return bool(said)

    # ---- the ledger ----

    def _ledger(self, held: _Held) -> list[Entry]:
        prefix = self._source.keys.ledger
        found = (parse_entry(key, key.removeprefix(prefix)) for key in held.there if key.startswith(prefix))
        return [entry for entry in found if entry is not None]

    def _joined_entries(self, held: _Held, known: Begun) -> list[str]:
        """Bring what is new; gives what the source has joined into segments that are here now."""
        prefix, at_source = self._source.keys.ledger, set[str]()
        for info in self._source.store.list(prefix):
            name = self._source.parse(info.key)
            at_source.add(info.key)
            if name is not None and name.generation in known.bases and info.key not in held.there:
                self._bring(info.key, held)
        entries = self._ledger(held)
        gone = [entry for entry in entries if entry.key not in at_source]
        return [entry.key for entry in joined_elsewhere(gone, entries)]

    def _past_entries(self, held: _Held, world: World) -> list[str]:
        """What no start from a checkpoint that is here needs any more, as its owner trims it."""
        slots = timeline(world)
        try:
            oldest = self._target.head(slots[0]).epoch if slots else None
        except Damage:
            oldest = None
        return [entry.key for entry in removable(world, self._ledger(held), oldest)]

    # ---- checkpoints ----

    def _bytes_and_manifests(self, known: Begun, held: _Held, copied: Copied, progress: Progress) -> None:
        # A generation that another has followed publishes nothing that counts, but may have until that was seen.
        begun = [generation for generation in sorted(known.bases) if generation >= held.top]
        wanted = [each for generation in begun for each in self._plan(generation, held).items()]
        self.missing = [slot for slot, is_void in wanted if not is_void] + self._held_up(known)
        with Carrier(self._source, self._target) as carrier:
            for done, (slot, is_void) in enumerate(wanted):
                if is_void:
                    self._bring(self._source.keys.manifest(slot), held)
                elif self._checkpoint(slot, held, copied, carrier, partial(progress, "checkpoints", done, len(wanted))):
                    self.missing.remove(slot)
                progress("checkpoints", done + 1, len(wanted))

    def _plan(self, generation: int, held: _Held) -> dict[Slot, bool]:
        """The slots of a generation that the target lacks, in order, and whether each is void."""
        source, start = self._source, held.starts.get(generation, 0)
        slots, void = source.slots(generation, start)
        wanted = slots - source.surely_forgotten(Slot(generation, start)) | void
        missing = [slot for slot in sorted(wanted) if source.keys.manifest(slot) not in held.there]
        ends = [slot.number for slot in missing[:1]] or [slot.number + 1 for slot in sorted(slots)[-1:]]
        held.starts[generation] = max([start, *ends])
        return {slot: slot in void for slot in missing}

    def _held_up(self, known: Begun) -> list[Slot]:
        """The checkpoints of generations that can't be copied, as far as it is known that they count."""
        waiting = [] if known.end is None else [g for g in sorted(known.claims) if g >= known.end]
        counted: list[Slot] = []
        for generation in waiting:
            slots, void = self._source.slots(generation)
            counted += sorted(slots - void - self._source.surely_forgotten(Slot(generation, 0)))
        return counted

    def _checkpoint(self, slot: Slot, held: _Held, copied: Copied, carrier: Carrier, beat: Callable[[], None]) -> bool:
        """Bring one; False if it is damaged at the source, and missing here for as long as it is, or gone there."""
        source, target = self._source, self._target
        try:
            manifest, sealed = source.sealed_manifest(slot)
            arrived, failure = carrier.carry(manifest, held.there, beat)
            require_arrived(target, arrived)
            held.there |= arrived
            copied.objects += len(arrived)
            copied.bytes += sum(arrived.values())
            if failure is not None:
                raise failure
            prove_inline(source, manifest)
            self._create(source.keys.manifest(slot), sealed, held)
        except DamagedCopy:
            raise
        except (Damage, FormatTooNew, ObjectMissing) as error:
            # A prune at the source may have overtaken us: then there is nothing to copy any more, and nothing is wrong.
            # What came after it is not known to this round: until the next, the target is behind.
            if slot not in source.surely_forgotten(slot):
                self._records.note(source.keys.manifest(slot), error, slot)
            return False
        if held.named is not None:
            held.named[slot] = frozenset(manifest.objects)
        copied.checkpoints += 1
        return True

    # ---- what is newest, and what is gone ----

    def _whole_world(self, held: _Held, known: Begun) -> World:
        """What was brought and is not listed now is lost, or the listing is: neither says what may be forgotten."""
        target = self._target
        world = target.world()
        if not (world.claims >= known.same and world.bases.keys() >= known.bases.keys()):
            raise MissingRecords(target.keys.generations, "claims or bases that were copied")
        there = (name.slot for key in held.there if (name := target.parse(key)) and name.what == "manifest")
        for slot in there:
            if slot is not None and slot not in world.slots and slot not in world.forgotten:
                raise MissingRecords(target.keys.prefix, f"the checkpoint {slot}, which was copied")
        return world

    def _hint(self, world: World) -> None:
        """From what has arrived: the source may have moved on, and a hint at what is not here looks like a loss."""
        self.newest = newest(world)
        if self.newest is not None:
            self._target.put_hint(self.newest)

    def _forget(self, held: _Held, world: World, is_first: bool) -> list[Slot]:
        """What the source has forgotten is forgotten here too; the handshake with names took place there."""
        target = self._target
        gone = sorted(world.slots & world.forgotten)
        # The first round looks for all loose bytes, whoever left them.
        loose = [] if is_first or not gone else self._named_only_by(held, world, gone)
        outcomes = target.listed(target.keys.all_settled, "settled", "failed")
        self._drop(held, *(target.keys.manifest(slot) for slot in gone))
        self._drop(held, *(key for key, name, _ in outcomes if name.slot in world.forgotten))
        drop_joined(target)
        self._drop(held, *loose)
        if gone or is_first:
            # The last step, as in every prune: what is left of one that was killed is found by its intents.
            target.drop(*(key for slot, keys in target.intents().items() if slot in world.forgotten for key in keys))
        return gone

    def _named_only_by(self, held: _Held, world: World, gone: list[Slot]) -> list[str]:
        """The bytes of these checkpoints that no other one here names.

        One that is not here yet shares only what the one before it names: nothing of these, or it is copied again.
        """
        held.named = held.named or {}
        for slot in sorted(world.slots - world.void - held.named.keys()):
            held.named[slot] = frozenset(self._target.manifest(slot).objects)
        doomed = {path for slot in gone for path in held.named.pop(slot, ())}
        doomed -= {path for paths in held.named.values() for path in paths}
        keys = [f"{self._target.keys.prefix}{path}" for path in sorted(doomed)]
        return [key for each in keys for key in (each, f"{each}.index") if key in held.there]

    def _drop_loose(self, held: _Held, known: Begun) -> None:
        """Delete bytes that no manifest names: of what was forgotten, and of what a copy that was cut off had begun.

        They are found anew by every copier, since nothing else tells what a killed one has left. Those that a manifest
        of the source names stay: another copier may have put them here and be about to bring that manifest.
        """
        target = self._target
        # The bytes are listed first: what arrives after this is not looked at.
        data = {
            key: key.removeprefix(target.keys.prefix).removesuffix(".index")
            for key, name, _ in target.listed(target.keys.data, "data")
            if name.generation in known.bases
        }
        named = named_objects(target)
        if not named.issuperset(data.values()):
            named |= _named_at_source(self._source, known)
        self._drop(held, *(key for key, path in data.items() if path not in named))


def _named_at_source(source: PipelineRecords, known: Begun) -> set[str]:
    """As far as its manifests can be read: no copier brings one that can't."""
    named: set[str] = set()
    for generation in known.bases:
        held, void = source.slots(generation)
        for slot in held - void:
            with suppress(Damage, FormatTooNew, ObjectMissing):
                named.update(source.manifest(slot).objects)
    return named
