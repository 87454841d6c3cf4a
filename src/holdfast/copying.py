"""Copying a pipeline to another repository: only what is missing, every byte checked, in an order that can be cut off.

Identity, claims, bases, bytes, manifests, ledger, then names, outcomes and decisions. A manifest comes after all that
it names, so whatever has arrived is restorable. Until it is activated, the copy belongs to its copier alone. Both ends
are looked for before anything is concluded from what is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from holdfast.carrying import Carrier, prove_inline
from holdfast.decide.ledger import Entry, joined_elsewhere, parse_entry, removable
from holdfast.decide.timeline import World, newest, timeline
from holdfast.errors import (
    BadValue,
    Damage,
    Diverged,
    FormatTooNew,
    HoldfastError,
    MissingRecords,
    ObjectMissing,
    RepositoryGone,
)
from holdfast.gc import named_objects
from holdfast.joining import drop_joined
from holdfast.layout import Slot
from holdfast.records import Claim, Pin, Savepoint, unseal
from holdfast.repository.pipeline import Generations, PipelineRecords
from holdfast.repository.presence import require_arrived, require_repository

__all__ = ["Copied", "Copier", "Uncopied", "copy_pipeline"]

Progress = Callable[[str, int, int], None]
"""Called every moment with what is being done, how many are done, and of how many. What it raises ends the copy."""


class Uncopied(NamedTuple):
    """A checkpoint that could not be copied because it is damaged at the source."""

    slot: Slot
    why: str


@dataclass
class Copied:
    """What a copy moved. `removed` are checkpoints that the source had forgotten since the last copy."""

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
    RepositoryGone if one of the two is not where it was opened any more, and Damage, when all else is done, if a
    manifest at the target can't be read: what it names is then not known.
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
        self._held: _Held | None = None
        self._created: dict[str, int] = {}
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

    def _look(self) -> None:
        """Raise RepositoryGone unless both are where they were opened."""
        for end in (self._source, self._target):
            require_repository(end.store, end.repository_id)

    def _round(self, progress: Progress) -> Copied:
        source, target, copied = self._source, self._target, Copied(self._source.name)
        self._created.clear()
        self._look()
        source.identity()
        is_first = self._held is None
        if is_first:
            self._same(source.keys.identity)
        known = self._generations(self._held.compared if self._held else set())
        held = self._held = self._held or _Held({i.key: i.size for i in target.store.list(target.keys.prefix)})
        held.compared |= known.claims
        self._bytes_and_manifests(known, held, copied, progress)
        self._savepoints(held)
        self._records(held, source.keys.all_settled)
        has_decided = self._decisions(held)
        gone = self._pins(held) + self._joined_entries(held, known)
        held.top = max((g for g, base in known.bases.items() if not base.void), default=-1)
        # Again, before anything is deleted for not having been seen, and before anybody is told that all is here.
        self._look()
        require_arrived(target, self._created)
        # Where the newest claim was made is no copy, or was activated meanwhile: whoever owns it hints and cleans up.
        is_new = is_first or has_decided or bool(copied.checkpoints or gone)
        if is_new and not target.newest_is_local(target.generations()):
            world = target.world()
            self._refuse_loss(held, world)
            self._hint(world)
            copied.removed = self._forget(held, world, is_first)
            self._drop(held, *gone, *self._past_entries(held, world))
            if is_first:
                self._drop_loose(held, known)
        if is_new:
            # What was deleted nowhere is found by a round that looks at all of the target: the one after a failure.
            self._look()
        return copied

    # ---- records ----

    def _same(self, key: str, held: _Held | None = None) -> None:
        """Create a record at the target with the source's own bytes; other bytes there: the two have diverged."""
        data = self._source.store.get(key)
        self._create(key, data, held)

    def _create(self, key: str, data: bytes, held: _Held | None) -> None:
        if not self._target.store.create(key, data):
            raise Diverged(key)
        self._created[key] = len(data)
        if held is not None:
            held.there[key] = len(data)

    def _drop(self, held: _Held, *keys: str) -> None:
        self._target.drop(*keys)
        for key in keys:
            held.there.pop(key, None)

    def _generations(self, compared: set[int]) -> Generations:
        """Claims, then bases, ascending; only generations whose base was seen have manifests that are copied."""
        source, target = self._source, self._target
        # The target first: whatever stands there, brought by another copier even, stood at the source before.
        there = target.generations()
        known = source.generations()
        for generation in sorted(there.claims - known.claims):
            raise self._lacking(target.keys.claim(generation))
        for generation in sorted(known.claims - compared):
            if generation in there.claims:
                self._refuse_other_claim(generation)
            else:
                self._same(source.keys.claim(generation))
        for generation in sorted(known.bases.keys() - there.bases.keys()):
            self._same(source.keys.base(generation))
        for generation in sorted(there.bases.keys() - known.bases.keys()):
            raise self._lacking(target.keys.base(generation))
        for generation, base in sorted(there.bases.items()):
            if base != known.bases[generation]:
                raise Diverged(target.keys.base(generation))
        return known

    def _lacking(self, key: str) -> HoldfastError:
        """What it means that a record of the target was not listed at the source, which may have been away then."""
        self._look()
        if self._source.is_there(key):
            return RepositoryGone(self._source.store.url, f"it was away while {key} was looked for")
        return Diverged(key)

    def _refuse_other_claim(self, generation: int) -> None:
        key = self._source.keys.claim(generation)
        mine, theirs = self._source.read(key, Claim), unseal(key, self._target.store.get(key), Claim)
        if mine != theirs:
            raise Diverged(key)

    def _records(self, held: _Held, prefix: str) -> None:
        for info in self._source.store.list(prefix):
            if info.key not in held.there and self._source.parse(info.key) is not None:
                with suppress(ObjectMissing):
                    self._same(info.key, held)

    def _savepoints(self, held: _Held) -> None:
        """Names, but for those of checkpoints that were published after we looked: they come with the next copy."""
        source = self._source
        for key, _, _ in source.listed(source.keys.savepoints, "savepoint"):
            if key in held.there:
                continue
            with suppress(ObjectMissing):
                word = source.read(key, Savepoint)
                if word.void or word.removed or source.keys.manifest(word.at) in held.there:
                    self._same(key, held)

    def _pins(self, held: _Held) -> list[str]:
        """Those that people set, not those of a take-over under way; gives those that the source has no more."""
        source, at_source = self._source, set[str]()
        for key, name, _ in source.listed(source.keys.pins, "pin"):
            at_source.add(key)
            if key in held.there or name.slot is None or source.keys.manifest(name.slot) not in held.there:
                continue
            with suppress(ObjectMissing):
                if source.read(key, Pin).claim is None:
                    self._same(key, held)
        return [key for key in held.there if key.startswith(source.keys.pins) and key not in at_source]

    def _decisions(self, held: _Held) -> bool:
        """Whether there were any that are new."""
        source, is_new = self._source, False
        # Decisions alone before joined ones: a listing that misses one that was joined meanwhile finds the joined one.
        for what in ("decision", "joined"):
            for key, _, _ in source.listed(source.keys.forgotten, what):
                if key not in held.there:
                    with suppress(ObjectMissing):
                        self._same(key, held)
                        is_new = True
        return is_new

    # ---- the ledger ----

    def _ledger(self, held: _Held) -> list[Entry]:
        prefix = self._source.keys.ledger
        found = (parse_entry(key, key.removeprefix(prefix)) for key in held.there if key.startswith(prefix))
        return [entry for entry in found if entry is not None]

    def _joined_entries(self, held: _Held, known: Generations) -> list[str]:
        """Bring what is new; gives what the source has joined into segments that are here now."""
        prefix, at_source = self._source.keys.ledger, set[str]()
        for info in self._source.store.list(prefix):
            name = self._source.parse(info.key)
            at_source.add(info.key)
            if name is not None and name.generation in known.bases and info.key not in held.there:
                with suppress(ObjectMissing):
                    self._same(info.key, held)
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

    def _bytes_and_manifests(self, known: Generations, held: _Held, copied: Copied, progress: Progress) -> None:
        # A generation that another has followed publishes nothing that counts, but may have until that was seen.
        begun = [generation for generation in sorted(known.bases) if generation >= held.top]
        wanted = [each for generation in begun for each in self._plan(generation, held).items()]
        self.missing = [slot for slot, is_void in wanted if not is_void]
        with Carrier(self._source, self._target) as carrier:
            for done, (slot, is_void) in enumerate(wanted):
                if is_void:
                    self._same(self._source.keys.manifest(slot), held)
                elif self._checkpoint(slot, held, copied, carrier, partial(progress, "checkpoints", done, len(wanted))):
                    self.missing.remove(slot)
                progress("checkpoints", done + 1, len(wanted))

    def _plan(self, generation: int, held: _Held) -> dict[Slot, bool]:
        """The slots of a generation that the target lacks, in order, and whether each is void."""
        source, start = self._source, held.starts.get(generation, 0)
        slots, void = source.slots(generation, start)
        wanted = slots - source.forgotten(Slot(generation, start)) | void
        missing = [slot for slot in sorted(wanted) if source.keys.manifest(slot) not in held.there]
        ends = [slot.number for slot in missing[:1]] or [slot.number + 1 for slot in sorted(slots)[-1:]]
        held.starts[generation] = max([start, *ends])
        return {slot: slot in void for slot in missing}

    def _checkpoint(self, slot: Slot, held: _Held, copied: Copied, carrier: Carrier, beat: Callable[[], None]) -> bool:
        """Bring one; False if it is damaged at the source, and missing here for as long as it is."""
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
        except (Damage, FormatTooNew, ObjectMissing) as error:
            # A prune at the source may have overtaken us: then there is nothing to copy any more, and nothing is wrong.
            if source.is_forgotten(slot):
                return True
            copied.damaged.append(Uncopied(slot, str(error)))
            return False
        if held.named is not None:
            held.named[slot] = frozenset(manifest.objects)
        copied.checkpoints += 1
        return True

    # ---- what is newest, and what is gone ----

    def _refuse_loss(self, held: _Held, world: World) -> None:
        """What was brought and is not listed now is lost, or the listing is: neither says what may be deleted."""
        there = (name.slot for key in held.there if (name := self._target.parse(key)) and name.what == "manifest")
        for slot in there:
            if slot is not None and slot not in world.slots and slot not in world.forgotten:
                raise MissingRecords(self._target.keys.prefix, f"the checkpoint {slot}, which was copied")

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

    def _drop_loose(self, held: _Held, known: Generations) -> None:
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


def _named_at_source(source: PipelineRecords, known: Generations) -> set[str]:
    """As far as its manifests can be read: no copier brings one that can't."""
    named: set[str] = set()
    for generation in known.bases:
        held, void = source.slots(generation)
        for slot in held - void:
            with suppress(Damage, FormatTooNew, ObjectMissing):
                named.update(source.manifest(slot).objects)
    return named
