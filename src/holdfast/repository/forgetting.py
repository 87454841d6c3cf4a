"""What of a pipeline is forgotten: intents, decisions, and how whoever needs a checkpoint beats a prune to it."""

from __future__ import annotations

from contextlib import suppress

from holdfast.errors import DamagedRecord, FormatTooNew, MissingRecords, ObjectMissing
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.records import Decision, Intent, Joined, Kept, is_a, unseal
from holdfast.repository.access import MAYBE_VOID, RecordAccess

__all__ = ["LOOKS", "ForgettingRecords"]

LOOKS = 5
"""How often a listing is repeated when records move while they are read."""


class ForgettingRecords(RecordAccess):
    """The folder `forgotten/` of one pipeline."""

    def is_forgotten(self, slot: Slot) -> bool:
        """Asks the store, always: whether a decision stands for this slot, alone or joined with others."""
        return slot in self.forgotten(slot)

    def forgotten(self, start: Slot | None = None) -> set[Slot]:
        """Slots with a decision, alone or joined with others, from a slot on."""
        after = "" if start is None else self.keys.decision(start)[:-1]
        for _ in range(LOOKS):
            try:
                return self._forgotten(after, start)
            except ObjectMissing:
                # A larger joined record took the place of a listed one: it is in the next listing.
                continue
        raise MissingRecords(self.keys.forgotten, "joined decisions vanish as they are read")

    def surely_forgotten(self, start: Slot) -> set[Slot]:
        """The same from a slot on, as far as decisions can be read: for whoever deletes nothing by it."""
        try:
            return self.forgotten(start)
        except (DamagedRecord, FormatTooNew):
            found: set[Slot] = set()
        listed = self.listed(self.keys.forgotten, "decision", "joined", start_after=self.keys.decision(start)[:-1])
        for key, name, size in listed:
            with suppress(DamagedRecord, FormatTooNew, ObjectMissing):
                if name.slot is None:
                    found |= self.read(key, Joined).slots()
                elif self._forgets(key, size):
                    found.add(name.slot)
        return found

    def _forgotten(self, after: str, start: Slot | None) -> set[Slot]:
        listed = self.listed(self.keys.forgotten, "decision", "joined", start_after=after)
        found = {name.slot for key, name, size in listed if name.slot is not None and self._forgets(key, size)}
        for key in (key for key, name, _ in listed if name.what == "joined"):
            joined = self.read(key, Joined)
            found |= joined.slots(start.number if start and start.generation == joined.generation else 0)
        return found

    def _forgets(self, key: str, size: int) -> bool:
        """Whether a decision says forgotten and not kept: only small ones must be read to tell."""
        return size >= MAYBE_VOID or isinstance(self.verdict(key), Decision)

    def decided(self) -> set[Slot]:
        """Slots with a decision of their own that says forgotten."""
        found: set[Slot] = set()
        for key, name, size in self.listed(self.keys.forgotten, "decision"):
            with suppress(ObjectMissing):
                if name.slot is not None and self._forgets(key, size):
                    found.add(name.slot)
        return found

    def verdict(self, key: str) -> Decision | Kept:
        """What was decided at a key: the checkpoint is forgotten, or it is kept and the next attempt is open."""
        kept = self._kept.get(key)
        if isinstance(kept, Decision | Kept):
            return kept

        def parse(data: bytes) -> Decision | Kept:
            return unseal(key, data, Kept) if is_a(Kept, data) else unseal(key, data, Decision)

        record = self.fetched(key, parse)
        with self._lock:
            self._kept[key] = record
        return record

    def attempts(self, start: Slot | None = None) -> dict[Slot, int]:
        """For slots that an attempt to forget has failed on: which attempt is open now."""
        after = "" if start is None else self.keys.decision(start)[:-1]
        found: dict[Slot, int] = {}
        for _, name, _ in self.listed(self.keys.forgotten, "decision", start_after=after):
            if name.slot is not None:
                found[name.slot] = max(found.get(name.slot, 0), name.k + 1)
        return found

    def hold(self, slot: Slot) -> bool:
        """Make sure that no prune under way takes a checkpoint; False if one has decided on it.

        Call it after the record that needs the checkpoint stands: a prune that begins later sees that. One that began
        before is beaten to its decision here, whether it still runs or died long ago.
        """
        while True:
            # Intents before decisions: a prune that has just finished has deleted its intent, but only after deciding.
            intents = self._intents_on(slot)
            attempt = self._open_attempt(slot)
            if attempt is None:
                return False
            over = [key for key, intent in intents if intent.attempt <= attempt]
            kept = Kept(token=new_token(), generation=slot.generation, slot=slot.number)
            is_open = any(intent.attempt == attempt for _, intent in intents)
            if not is_open or self.create(self.keys.decision(slot, attempt), kept):
                # Only intents whose attempt is over: a later prune has looked, and saw what we hold it for.
                self.drop(*over)
                return True

    def _open_attempt(self, slot: Slot) -> int | None:
        """Which attempt to forget a slot is open; None if it is forgotten. Both come from one listing."""
        open_attempt = 0
        after = self.keys.decision(slot)[:-1]
        for key, name, _ in self.listed(self.keys.forgotten, "decision", "joined", start_after=after):
            try:
                if name.slot == slot:
                    if isinstance(self.verdict(key), Decision):
                        return None
                    open_attempt = max(open_attempt, name.k + 1)
                elif name.what == "joined" and self.read(key, Joined).covers(slot):
                    return None
            except ObjectMissing:
                # Joined into a larger record as we looked: that one is in the next listing.
                return self._open_attempt(slot)
        return open_attempt

    def _intents_on(self, slot: Slot) -> list[tuple[str, Intent]]:
        found: list[tuple[str, Intent]] = []
        listed = self.listed(self.keys.forgotten, "intent", start_after=self.keys.decision(slot)[:-1])
        for key in (key for key, name, _ in listed if name.slot == slot):
            try:
                found.append((key, self.read(key, Intent)))
            except ObjectMissing:
                continue
        return found

    def intents(self) -> dict[Slot, list[str]]:
        """Intents that stand: each is a prune under way, or one that was interrupted."""
        found: dict[Slot, list[str]] = {}
        for key, name, _ in self.listed(self.keys.forgotten, "intent"):
            if name.slot is not None:
                found.setdefault(name.slot, []).append(key)
        return found

    def doomed(self) -> dict[Slot, list[str]]:
        """The bytes that decisions list, of those that stand alone; joined ones had theirs deleted before."""
        found: dict[Slot, list[str]] = {}
        for key, name, _ in self.listed(self.keys.forgotten, "decision"):
            with suppress(ObjectMissing):
                if name.slot is not None and isinstance(verdict := self.verdict(key), Decision):
                    found[name.slot] = verdict.objects
        return found

    def doomed_objects(self, slot: Slot) -> list[str]:
        return self.doomed().get(slot, [])
