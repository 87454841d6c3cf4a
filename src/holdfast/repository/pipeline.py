"""The records of one pipeline in a store: read, written and found, but not interpreted. `decide.timeline` does that."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from holdfast.decide.timeline import World, current, lineage
from holdfast.errors import (
    DamagedRecord,
    FormatTooNew,
    MissingRecords,
    NotActivated,
    ObjectMissing,
    PipelineMissing,
)
from holdfast.ids import new_id, new_token, now_ms
from holdfast.layout import Named, Slot
from holdfast.manifest import HEAD_LIMIT, Head, Manifest, decode_head, decode_manifest
from holdfast.records import (
    Base,
    Claim,
    Hint,
    Pin,
    PipelineRecord,
    Savepoint,
    Settled,
    VoidSlot,
    is_a,
    seal,
    unseal,
)
from holdfast.repository.access import MAYBE_VOID, each
from holdfast.repository.forgetting import LOOKS, ForgettingRecords

__all__ = ["Generations", "Located", "PipelineRecords"]

MANIFESTS_KEPT = 64


class Generations(NamedTuple):
    claims: frozenset[int]
    bases: dict[int, Base]

    @property
    def top(self) -> int:
        return max(self.claims, default=-1)


class Located(NamedTuple):
    """The newest checkpoint and its generation; `lost` is what a record names, was never forgotten, and is gone."""

    generation: int | None
    newest: Slot | None
    lost: Slot | None


class PipelineRecords(ForgettingRecords):
    """All records of one pipeline, and how to find the newest checkpoint among them."""

    def unread(self) -> PipelineRecords:
        """The same pipeline with nothing kept: for whoever must see what the store holds now."""
        return PipelineRecords(self.store, self.name, self.repository_id)

    # ---- identity ----

    def exists(self) -> bool:
        """Whether there is such a pipeline; records without an identity are damage, never "none yet"."""
        try:
            self.identity()
        except PipelineMissing:
            return False
        return True

    def identity(self) -> PipelineRecord:
        try:
            return self.read(self.keys.identity, PipelineRecord)
        except ObjectMissing:
            # Not by folders: some servers still name one whose last object is gone.
            if not self.store.list(self.keys.prefix):
                raise PipelineMissing(self.name, ()) from None
        try:
            # It stands before anything else does: whoever makes the pipeline right now has made it by this look.
            return self.read(self.keys.identity, PipelineRecord)
        except ObjectMissing:
            raise MissingRecords(self.keys.prefix, "there are records, but pipeline.json is gone") from None

    def ensure_identity(self) -> PipelineRecord:
        """Make the pipeline if it is not there; whoever is first gives it its id."""
        if not self.exists():
            self.create(
                self.keys.identity,
                PipelineRecord(token=new_token(), pipeline_id=new_id(), name=self.name, created_ms=now_ms()),
            )
        return self.identity()

    # ---- generations ----

    def generations(self, start: int = 0) -> Generations:
        """Claims and bases from a generation on, every base read."""
        after = self.keys.generations_from(start)
        listed = self.listed(self.keys.generations, "claim", "base", start_after=after)
        claims = {name.generation for _, name, _ in listed if name.what == "claim" and name.generation is not None}
        bases = each(lambda key: self.read(key, Base), [key for key, name, _ in listed if name.what == "base"])
        return Generations(frozenset(claims), {base.generation: base for base in bases})

    def claim(self, generation: int) -> Claim:
        return self.read(self.keys.claim(generation), Claim)

    def is_claimed(self, generation: int) -> bool:
        """Asks the store, always: this is the look that fences."""
        return self.is_there(self.keys.claim(generation))

    def newest_is_local(self, generations: Generations) -> bool:
        """Whether the newest claim was made in this repository; if not, the pipeline is a copy here."""
        return generations.top < 0 or self.claim(generations.top).repository_id == self.repository_id

    def began_elsewhere(self, generations: Generations) -> bool:
        """Whether the newest generation that has begun was claimed in another repository.

        The pipeline is then a copy here, perhaps one whose activation was cut off.
        """
        begun = current(World(generations.claims, generations.bases))
        if begun is None:
            return not self.newest_is_local(generations)
        return self.claim(begun).repository_id != self.repository_id

    def refuse_copy(self) -> None:
        """Raise NotActivated on a copy, which only its copier may change."""
        self.identity()
        if not self.newest_is_local(self.generations()):
            raise NotActivated(self.name)

    # ---- checkpoints ----

    def manifest(self, slot: Slot) -> Manifest:
        """The manifest at a slot. Raises ObjectMissing if the slot is free or void, DamagedRecord if it is damaged."""
        kept = self._manifests.get(slot)
        if kept is not None:
            return kept
        manifest, _ = self.sealed_manifest(slot)
        self.keep(manifest)
        return manifest

    def sealed_manifest(self, slot: Slot) -> tuple[Manifest, bytes]:
        """The same, never from what is kept, with the bytes that carry it: for whoever passes them on."""
        key = self.keys.manifest(slot)
        manifest, data = self.fetched(key, lambda data: (self._parsed(key, data), data))
        if manifest.at != slot:
            raise DamagedRecord(key, f"it holds the manifest of {manifest.at}")
        return manifest, data

    def _parsed(self, key: str, data: bytes) -> Manifest:
        if is_a(VoidSlot, data):
            unseal(key, data, VoidSlot)
            raise ObjectMissing(self.store.url, key)
        return decode_manifest(key, data)

    def keep(self, manifest: Manifest) -> None:
        with self._lock:
            self._manifests.pop(manifest.at, None)
            self._manifests[manifest.at] = manifest
            while len(self._manifests) > MANIFESTS_KEPT:
                del self._manifests[next(iter(self._manifests))]

    def head(self, slot: Slot) -> Head:
        """The summary of a manifest: one small ranged read, once."""
        key = self.keys.manifest(slot)
        kept = self._kept.get(key)
        if isinstance(kept, Head):
            return kept
        head = self.fetched(key, lambda data: decode_head(key, data), HEAD_LIMIT)
        with self._lock:
            self._kept[key] = head
        return head

    def slots(self, generation: int, start: int = 0) -> tuple[set[Slot], set[Slot]]:
        """The slots of a generation that hold something, from a number on, and those among them that are void."""
        after = self.keys.slots_from(Slot(generation, start))
        return self._slots(self.listed(self.keys.slots(generation), "manifest", start_after=after))

    def _slots(self, listed: Iterable[tuple[str, Named, int]]) -> tuple[set[Slot], set[Slot]]:
        held: set[Slot] = set()
        void: set[Slot] = set()
        for key, name, size in listed:
            if name.slot is None:
                continue
            held.add(name.slot)
            if size < MAYBE_VOID and self._is_void(key):
                void.add(name.slot)
        return held, void

    def _is_void(self, key: str) -> bool:
        try:
            self.read(key, VoidSlot)
        except ObjectMissing:
            return True
        except (DamagedRecord, FormatTooNew):
            return False
        return True

    def world(self) -> World:
        """All that the timeline is decided from, as it stood at some moment or a little later.

        Slots are listed before generations: one whose generation were not known yet would pass for abandoned.
        Decisions are listed last, so that what was pruned meanwhile is known; if that was all, it is looked at anew,
        since a prune always leaves something newer.
        """
        for _ in range(LOOKS):
            held, void = self._slots(self.listed(self.keys.checkpoints, "manifest"))
            claims, bases = self.generations()
            world = World(claims, bases, held, void, self.forgotten())
            if world.counted() or not world.forgotten:
                break
        return world

    def locate(self) -> Located:
        """Find the newest checkpoint in a constant number of requests, whatever the hint says."""
        hint = self.hint()
        known = self.generations(hint.generation if hint else 0)
        generation = current(World(known.claims, known.bases))
        if hint and generation is None:
            known = self.generations()
            generation = current(World(known.claims, known.bases))
        if generation is None:
            return Located(None, None, Slot(hint.generation, hint.slot) if hint else None)
        hinted = Slot(hint.generation, hint.slot) if hint else None
        found = self._newest_of(generation, known, hinted)
        # The hint, and the base of a generation that has no checkpoint yet, name what must be there.
        proofs = [hinted, known.bases[generation].slot if found is None or found.generation != generation else None]
        lost = next((slot for slot in proofs if slot and slot != found and self._is_lost(slot, known)), None)
        return Located(generation, found, lost)

    def _newest_of(self, generation: int, known: Generations, hinted: Slot | None) -> Slot | None:
        upto: int | None = None
        while True:
            starts = [0] if hinted is None or hinted.generation != generation else [hinted.number, 0]
            if upto is not None:
                starts = [upto, 0]
            for start in dict.fromkeys(starts):
                held, void = self.slots(generation, start)
                world = World(
                    slots=held, void=void, forgotten=self.forgotten(Slot(generation, start)) if held else set()
                )
                counted = [s for s in world.counted() if upto is None or s.number <= upto]
                if counted:
                    return max(counted)
            base = known.bases.get(generation) or self.read(self.keys.base(generation), Base)
            if base.slot is None or base.slot.generation >= generation:
                return None
            generation, upto = base.slot.generation, base.slot.number

    def _is_lost(self, slot: Slot, known: Generations) -> bool:
        """Whether a slot of the timeline, or of a generation nobody knows, holds nothing and was never forgotten.

        One that was abandoned may go.
        """
        steps = {g: last for g, last, _ in lineage(World(known.claims, known.bases))}
        upto = steps.get(slot.generation, None if slot.generation > known.top else -1)
        if upto is not None and slot.number > upto:
            return False
        return not self.is_there(self.keys.manifest(slot)) and not self.is_forgotten(slot)

    # ---- hint ----

    def hint(self) -> Hint | None:
        """The hint, or None when it is missing or unreadable: it only saves requests."""
        try:
            return unseal(self.keys.latest, self.store.get(self.keys.latest), Hint)
        except (ObjectMissing, DamagedRecord, FormatTooNew):
            return None

    def put_hint(self, slot: Slot) -> None:
        self.store.put(self.keys.latest, seal(Hint(token=new_token(), generation=slot.generation, slot=slot.number)))

    # ---- names, pins, decisions, outcomes ----

    def savepoints(self) -> dict[str, Savepoint]:
        """The names in force: for each the highest word that is not void, unless that says removed."""
        words: dict[str, list[str]] = {}
        for key, name, _ in self.listed(self.keys.savepoints, "savepoint"):
            words.setdefault(name.name, []).append(key)
        found = {name: self._word(keys) for name, keys in words.items()}
        return {name: word for name, word in found.items() if word is not None and not word.removed}

    def _word(self, keys: list[str]) -> Savepoint | None:
        for key in sorted(keys, reverse=True):
            try:
                word = self.read(key, Savepoint)
            except ObjectMissing:
                continue
            if not word.void:
                return word
        return None

    def pins_and_bases(self) -> tuple[list[Pin], dict[int, Base]]:
        """The pins in force, and all bases, looked at in this order.

        A claim deletes its own pin only after its base stands: whoever looks for pins first sees the one or the other,
        whoever looks for bases first can miss both. The pin counts until that claim has a base or is void.
        """
        pins: list[Pin] = []
        for key, _, _ in self.listed(self.keys.pins, "pin"):
            with suppress(ObjectMissing):
                pins.append(self.read(key, Pin))
        bases = self.generations().bases
        return [pin for pin in pins if pin.claim is None or pin.claim not in bases], bases

    def pins(self) -> list[Pin]:
        return self.pins_and_bases()[0]

    def settled(self, slot: Slot) -> Settled | None:
        """The record that all sinks of a checkpoint are committed, or None if there is none yet."""
        try:
            return self.read(self.keys.settled(slot), Settled)
        except ObjectMissing:
            return None
