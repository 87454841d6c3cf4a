"""The protocol, walked by the real code: whoever stops, dies or lands late, and wherever, G1 to G5 hold."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast.ids
from holdfast import claim, copying, gc, joining, names, publish, recovery, settle
from holdfast.draft import Draft
from holdfast.layout import Slot
from holdfast.records import Base, Decision, Pin
from holdfast.repository.pipeline import Located, PipelineRecords
from protocol import walk, world

FIRST = [name for name in world.ACTS if "+" not in name]
STRIDE = 17


@pytest.mark.parametrize("first", FIRST)
def test_whatever_is_paused_killed_or_late_while_another_runs_nothing_is_lost(first: str) -> None:
    for second in world.ACTS:
        begin = zlib.crc32(f"{first}/{second}".encode()) % STRIDE
        for found in (*walk.every_pause(first, second, begin, STRIDE), *walk.every_late(first, second, begin, STRIDE)):
            assert found is None, str(found)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", FIRST)
def test_every_operation_of_every_actor_is_paused_killed_and_late_against_every_other(first: str) -> None:
    for second in world.ACTS:
        for origin in ((world.STORE, world.GHOST), world.TAKEN_OVER):
            for found in walk.every_pause(first, second, origin=origin):
                assert found is None, str(found)
        for found in walk.every_late(first, second):
            assert found is None, str(found)


CROWDS = [
    ("old", "new", "prune"),
    ("old", "captures", "prune"),
    ("new", "rewind", "prune"),
    ("new", "namer", "prune", "sweeper"),
    ("busy", "capture", "prune"),
    ("new", "new", "new"),
    ("rewind", "new", "sweeper"),
    ("captures", "prune", "prune"),
    ("old", "copier", "new+prune+sweeper"),
    ("forgetter", "pinner", "prune"),
    ("old", "mender", "rewind+prune"),
]


def shuffle(crowd: tuple[str, ...], rounds: int, seed: int) -> None:
    for number in range(rounds):
        found = walk.shuffled(crowd, seed + number)
        assert found is None, str(found)


@pytest.mark.parametrize("crowd", CROWDS, ids="|".join)
def test_a_crowd_in_any_order_loses_nothing(crowd: tuple[str, ...]) -> None:
    shuffle(crowd, 8, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("crowd", CROWDS, ids="|".join)
def test_a_crowd_in_thousands_of_orders_loses_nothing(crowd: tuple[str, ...]) -> None:
    rounds = int(os.environ.get("HOLDFAST_SOAK_ROUNDS", "500"))
    shuffle(crowd, rounds, seed=int(os.environ.get("HOLDFAST_SOAK_SEED", "1")))


def test_clocks_that_run_backwards_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backwards:
        def __init__(self) -> None:
            self.now = 10**18

        def time_ns(self) -> int:
            self.now -= 3_600 * 10**9
            return self.now

    monkeypatch.setattr(holdfast.ids, "time", Backwards())
    for first, second in (("old", "new"), ("new", "rewind"), ("rewind", "prune"), ("prune", "captures+prune")):
        for found in walk.every_pause(first, second, 0, 3):
            assert found is None, str(found)


PRUNES = [
    ("prune", "captures+prune"),
    ("old", "captures+prune"),
    ("capture", "captures+prune"),
    ("namer", "prune+prune"),
    ("rewind", "new+new+prune"),
    ("copier", "new+new+prune"),
    ("prune+prune", "namer"),
]


@pytest.mark.parametrize(("first", "second"), PRUNES)
def test_decisions_that_are_joined_mean_what_they_meant(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "JOIN_ABOVE", 1)
    for found in (*walk.every_pause(first, second, 0, 5), *walk.every_late(first, second, 0, 2)):
        assert found is None, str(found)


# ---- each rule, broken ----

Break = Callable[[pytest.MonkeyPatch], None]


def no_look_for_the_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish.Publisher, "_counts", lambda self, manifest: not self.records.is_forgotten(manifest.at))


def no_look_for_a_forgotten_slot(patch: pytest.MonkeyPatch) -> None:
    def counts(self: publish.Publisher, manifest: world.Manifest) -> bool:
        if self.records.is_claimed(self.generation + 1):
            self._fenced = "claimed"
            self._refuse_stale()
        return True

    patch.setattr(publish.Publisher, "_counts", counts)


def forgotten_slots_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PipelineRecords, "forgotten", lambda self, start=None: set())
    patch.setattr(PipelineRecords, "is_forgotten", lambda self, slot: False)


def a_base_without_a_pin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claim, "_pin", lambda *_: None)


def a_decision_without_an_intent(patch: pytest.MonkeyPatch) -> None:
    """Decide first, look then, take the decision back if somebody needs it: a crash in between leaves it standing."""

    def intend(records: PipelineRecords, doomed: list[Slot]) -> list[Slot]:
        for slot in doomed:
            objects = sorted(records.manifest(slot).objects)
            decision = Decision(token="0" * 32, generation=slot.generation, slot=slot.number, objects=objects)
            records.create(records.keys.decision(slot), decision)
        return doomed

    def decide(records: PipelineRecords, doomed: list[Slot]) -> tuple[dict[Slot, list[str]], dict[Slot, list[str]]]:
        needed = gc.needs(records)
        records.drop(*(records.keys.decision(slot) for slot in doomed if slot in needed))
        decided = {slot: records.doomed_objects(slot) for slot in doomed if slot not in needed}
        return decided, {slot: needed[slot] for slot in doomed if slot in needed}

    patch.setattr(gc, "intend", intend)
    patch.setattr(gc, "_decide_all", decide)


def a_name_without_a_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(names, "_look", lambda *_: None)


def generations_listed_once(patch: pytest.MonkeyPatch) -> None:
    def once(records: PipelineRecords) -> Iterator[Slot]:
        folders = sorted(map(int, records.store.folders(records.keys.checkpoints)), reverse=True)
        for generation in folders:
            held, void = records.slots(generation)
            yield from sorted(held - void)

    def one_pass(records: PipelineRecords, but: tuple[Slot, ...] = ()) -> set[str]:
        return {path for slot in once(records) if slot not in but for path in records.manifest(slot).objects}

    patch.setattr(gc, "named_objects", one_pass)


def bytes_of_any_checkpoint_reused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "_bring_in", lambda self, inherited: None)
    whole = Draft.manifest

    def with_the_first_parent(self: Draft, slot: Slot, pipeline_id: str, about: object, parent: object) -> object:
        return whole(self, slot, pipeline_id, about, self._parent)  # type: ignore[arg-type]

    patch.setattr(Draft, "manifest", with_the_first_parent)


def a_checkpoint_needed_but_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PipelineRecords, "hold", lambda self, slot: not self.is_forgotten(slot))


def a_copy_of_manifests_before_bytes(patch: pytest.MonkeyPatch) -> None:
    whole = copying.Copier._checkpoint

    def manifest_first(self: copying.Copier, slot: Slot, *rest: Any) -> None:
        key = self._source.keys.manifest(slot)
        self._target.store.create(key, self._source.store.get(key))
        whole(self, slot, *rest)

    patch.setattr(copying.Copier, "_checkpoint", manifest_first)


def bases_looked_at_before_pins(patch: pytest.MonkeyPatch) -> None:
    def the_other_way_round(self: PipelineRecords) -> tuple[list[Pin], dict[int, Base]]:
        bases = self.generations().bases
        pins = [self.read(key, Pin) for key, _, _ in self.listed(self.keys.pins, "pin")]
        return [pin for pin in pins if pin.claim is None or pin.claim not in bases], bases

    patch.setattr(PipelineRecords, "pins_and_bases", the_other_way_round)


def a_prune_that_asks_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gc, "named_objects", lambda records, but=(): set())


def a_sweep_of_the_running_generation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gc, "_is_below", lambda generation, newest: True)


def sinks_left_undriven(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle.Settlement, "carry_out", lambda *_: None)
    patch.setattr(publish.Publisher, "_if_unsettled", lambda *_: None)


def a_sink_that_does_not_fence(patch: pytest.MonkeyPatch) -> None:
    def commit(self: world.SinkHandle, token: object) -> int:
        if token not in self.sink.rows:
            self.sink.append(str(token), self.generation)
        return self.sink.rows.index(str(token)) + 1

    patch.setattr(world.SinkHandle, "commit", commit)


def a_choice_made_before_the_claim(patch: pytest.MonkeyPatch) -> None:
    real, made = recovery.choose, dict[int, recovery.Choice]()

    def once(records: PipelineRecords, *rest: object) -> recovery.Choice:
        if id(records) not in made:
            made[id(records)] = real(records, *rest)  # type: ignore[arg-type]
        return made[id(records)]

    patch.setattr(recovery, "choose", once)


def a_hint_that_is_believed(patch: pytest.MonkeyPatch) -> None:
    def locate(self: PipelineRecords) -> Located:
        hint = self.hint()
        assert hint is not None
        return Located(hint.generation, Slot(hint.generation, hint.slot), None)

    patch.setattr(PipelineRecords, "locate", locate)


def an_older_epoch_published_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish.Publisher, "_refuse_older", lambda self, draft: None)


HERE = (world.STORE, world.GHOST)
BROKEN: list[tuple[Break, str, str, str]] = [
    (no_look_for_the_claim, "pause", "capture", "new"),
    (no_look_for_a_forgotten_slot, "pause", "old", "captures+prune"),
    (forgotten_slots_count, "late", "old", "captures+prune"),
    (a_base_without_a_pin, "pause", "rewind", "prune"),
    (a_decision_without_an_intent, "crash later", "prune", "namer"),
    (a_checkpoint_needed_but_not_held, "twice", "namer", "prune"),
    (a_copy_of_manifests_before_bytes, "pause", "copier", "old"),
    (bases_looked_at_before_pins, "twice", "rewind", "prune"),
    (a_name_without_a_look, "pause", "namer", "prune"),
    (generations_listed_once, "taken over", "sweeper", "new+new+prune"),
    (bytes_of_any_checkpoint_reused, "pause", "old", "captures+prune"),
    (a_prune_that_asks_nobody, "pause", "prune", "new"),
    (a_sweep_of_the_running_generation, "pause", "old", "sweeper"),
    (sinks_left_undriven, "pause", "old", "new"),
    (a_sink_that_does_not_fence, "pause", "old", "rewind"),
    (a_choice_made_before_the_claim, "pause", "new", "old"),
    (a_hint_that_is_believed, "pause", "old", "new"),
    (an_older_epoch_published_last, "pause", "capture", "old"),
]


@pytest.mark.parametrize(("rule", "how", "first", "second"), BROKEN, ids=[entry[0].__name__ for entry in BROKEN])
def test_a_broken_rule_is_found_out(
    rule: Break, how: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(monkeypatch)
    if how == "late":
        found = walk.every_late(first, second)
    elif how == "twice":
        found = (walk.shuffled((first, second), seed) for seed in range(3000))
    elif how == "crash later":
        found = (walk.paused(first, second, at, crash=True, more=more)[0] for at in range(60) for more in range(1, 6))
    else:
        found = walk.every_pause(first, second, origin=world.TAKEN_OVER if how == "taken over" else HERE)
    assert any(found), f"nothing was violated without the rule: {rule.__name__}"
