from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.decide import timeline as module
from holdfast.decide.timeline import World, abandoned, current, gaps, lineage, newest, next_slot, reach, timeline
from holdfast.layout import Slot
from holdfast.records import Base

VOID = "void"
FRESH = None


def base(generation: int, at: Slot | str | None, epoch: int | None = None) -> Base:
    if at == VOID:
        return Base(token="t", generation=generation, void=True)
    if isinstance(at, Slot):
        return Base(
            token="t", generation=generation, from_generation=at.generation, from_slot=at.number, adopted_epoch=epoch
        )
    return Base(token="t", generation=generation)


def world(
    *begun: Slot | str | None,
    slots: dict[int, int],
    void: set[Slot] | None = None,
    forgotten: set[Slot] | None = None,
    claims: int | None = None,
) -> World:
    """Generations that began so, each with so many slots."""
    return World(
        claims=frozenset(range(len(begun) if claims is None else claims)),
        bases={g: base(g, at, 100 + g) for g, at in enumerate(begun)},
        slots={Slot(g, n) for g, count in slots.items() for n in range(count)},
        void=void or set(),
        forgotten=forgotten or set(),
    )


# ---- a second opinion: every checkpoint is asked for itself whether it counts ----


def model_counts(w: World, slot: Slot, seen_from: int) -> bool:
    """Whether a slot is on the timeline of a generation, decided by recursion from that generation down."""
    if slot not in w.slots or slot in w.void or slot in w.forgotten:
        return False
    if slot.generation == seen_from:
        return True
    start = w.bases.get(seen_from)
    if start is None or start.void or start.slot is None:
        return False
    below = start.slot
    if below.generation >= seen_from:
        return False
    if slot.generation == below.generation and slot.number > below.number:
        return False
    return model_counts(w, slot, below.generation)


def model_timeline(w: World) -> set[Slot]:
    begun = [g for g in w.bases if not w.bases[g].void]
    return {slot for slot in w.slots if begun and model_counts(w, slot, max(begun))}


@dataclass
class Life:
    """A pipeline that lives through random events and remembers what an onlooker would expect of it."""

    bases: dict[int, Base] = field(default_factory=dict)
    claims: set[int] = field(default_factory=set)
    slots: set[Slot] = field(default_factory=set)
    void: set[Slot] = field(default_factory=set)
    forgotten: set[Slot] = field(default_factory=set)
    expected: list[Slot] = field(default_factory=list)
    """What counts, oldest first."""
    lives_on: dict[int, list[Slot]] = field(default_factory=dict)
    """What each generation could see when it was the newest."""
    used: list[Slot] = field(default_factory=list)

    def world(self) -> World:
        return World(frozenset(self.claims), dict(self.bases), set(self.slots), set(self.void), set(self.forgotten))

    @property
    def running(self) -> int | None:
        return max((g for g, b in self.bases.items() if not b.void), default=None)

    def claim(self) -> int:
        for g in self.claims - self.bases.keys():
            self.bases[g] = base(g, VOID)
        number = max(self.claims, default=-1) + 1
        self.claims.add(number)
        return number

    def begin(self, at: Slot | None) -> None:
        number = self.claim()
        self.bases[number] = base(number, at)
        if at is None:
            self.expected = []
        elif at in self.expected:
            self.expected = self.expected[: self.expected.index(at) + 1]
        else:
            seen = self.lives_on[at.generation]
            self.expected = [s for s in seen[: seen.index(at) + 1] if s not in self.forgotten]
        self.lives_on[number] = list(self.expected)

    def publish(self, generation: int) -> None:
        slot = next_slot(self.world(), generation)
        assert slot not in self.used, "a slot was given out twice"
        self.used.append(slot)
        self.slots.add(slot)
        if generation in self.lives_on:
            self.lives_on[generation].append(slot)
        if generation == self.running:
            self.expected.append(slot)

    def forget(self, slot: Slot, leave_the_manifest: bool) -> None:
        self.forgotten.add(slot)
        if not leave_the_manifest:
            self.slots.discard(slot)
        self.expected = [s for s in self.expected if s != slot]


EVENTS = ["publish", "publish", "publish", "start", "rewind", "claim", "zombie", "void", "forget"]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    life = Life()
    life.begin(None)
    for _ in range(draw(st.integers(0, 25))):
        event = draw(st.sampled_from(EVENTS))
        existing = sorted(life.slots - life.void - life.forgotten)
        if event == "publish" and life.running is not None:
            life.publish(life.running)
        elif event == "start":
            life.begin(life.expected[-1] if life.expected else None)
        elif event == "rewind" and existing:
            life.begin(draw(st.sampled_from(existing)))
        elif event == "claim":
            life.claim()
        elif event == "zombie":
            stale = [g for g in life.lives_on if g != life.running]
            if stale:
                life.publish(draw(st.sampled_from(stale)))
        elif event == "void" and life.running is not None:
            slot = next_slot(life.world(), life.running)
            life.used.append(slot)
            life.slots.add(slot)
            life.void.add(slot)
        elif event == "forget":
            needed = life.expected[-1:] + [b.slot for g, b in life.bases.items() if g == life.running and b.slot]
            free = [slot for slot in existing if slot not in needed]
            if free:
                life.forget(draw(st.sampled_from(free)), draw(st.booleans()))
    return life


@settings(max_examples=150, deadline=None)
@given(lives())
def test_the_timeline_is_what_an_onlooker_saw_happen(life: Life) -> None:
    assert timeline(life.world()) == life.expected


@settings(max_examples=100, deadline=None)
@given(lives())
def test_the_timeline_of_a_life_agrees_with_the_second_opinion(life: Life) -> None:
    assert set(timeline(life.world())) == model_timeline(life.world())


small_slots = st.builds(Slot, st.integers(0, 4), st.integers(0, 4))
any_world = st.builds(
    World,
    claims=st.frozensets(st.integers(0, 4)),
    bases=st.dictionaries(st.integers(0, 4), st.sampled_from([VOID, FRESH]) | small_slots).map(
        lambda begun: {g: base(g, at) for g, at in begun.items()}
    ),
    slots=st.frozensets(small_slots, max_size=20),
    void=st.frozensets(small_slots, max_size=3),
    forgotten=st.frozensets(small_slots, max_size=5),
)


@settings(max_examples=200)
@given(any_world)
def test_any_set_of_records_even_a_damaged_one_means_the_same_to_both(w: World) -> None:
    assert set(timeline(w)) == model_timeline(w)


@given(any_world)
def test_only_slots_that_hold_a_checkpoint_count(w: World) -> None:
    assert set(timeline(w)) <= set(w.slots) - set(w.void) - set(w.forgotten)


@given(any_world)
def test_every_checkpoint_counts_once_or_is_abandoned(w: World) -> None:
    on, off = timeline(w), abandoned(w)
    assert len(on) == len(set(on))
    assert set(on) | set(off) == w.counted()
    assert not set(on) & set(off)


@given(any_world)
def test_the_timeline_is_ordered_and_its_last_is_the_newest(w: World) -> None:
    on = timeline(w)
    assert on == sorted(on)
    assert newest(w) == (on[-1] if on else None)


@given(any_world)
def test_the_lineage_runs_from_the_current_generation_strictly_downwards(w: World) -> None:
    steps = [g for g, _, _ in lineage(w)]
    assert steps == sorted(set(steps), reverse=True)
    assert steps[:1] == ([] if current(w) is None else [current(w)])


@given(any_world, st.integers(5, 9))
def test_a_higher_claim_without_a_base_changes_nothing(w: World, generation: int) -> None:
    claimed = replace(w, claims=w.claims | {generation})
    voided = replace(claimed, bases={**w.bases, generation: base(generation, VOID)})
    assert timeline(claimed) == timeline(voided) == timeline(w)
    assert current(claimed) == current(voided) == current(w)


@given(any_world, small_slots)
def test_a_forgotten_slot_never_counts_whatever_lands_there(w: World, slot: Slot) -> None:
    gone = replace(w, forgotten=frozenset(w.forgotten) | {slot}, slots=frozenset(w.slots) | {slot})
    assert slot not in timeline(gone)
    assert [s for s in timeline(w) if s != slot] == timeline(gone)


@given(any_world, st.integers(0, 4))
def test_the_next_slot_is_after_all_that_were_ever_taken(w: World, generation: int) -> None:
    slot = next_slot(w, generation)
    taken = [
        s for s in (*w.slots, *w.forgotten, *w.void) if s.generation == generation and s in {*w.slots, *w.forgotten}
    ]
    assert slot.generation == generation
    assert all(s.number < slot.number for s in taken)
    assert slot.number == 0 or any(s.number == slot.number - 1 for s in taken)


@given(any_world, small_slots)
def test_forgetting_never_frees_a_number(w: World, slot: Slot) -> None:
    gone = replace(w, slots=frozenset(w.slots) - {slot}, forgotten=frozenset(w.forgotten) | {slot})
    assert next_slot(gone, slot.generation) >= next_slot(w, slot.generation)


@given(any_world)
def test_what_counts_depends_on_which_records_exist_and_on_nothing_in_them_but_the_bases(w: World) -> None:
    shuffled = replace(
        w,
        bases=dict(reversed(w.bases.items())),
        slots=frozenset(sorted(w.slots, reverse=True)),
        claims=frozenset(w.claims),
    )
    assert timeline(shuffled) == timeline(w)


def test_the_decision_asks_no_clock_and_reads_no_names() -> None:
    source = inspect.getsource(module)
    assert not any(word in source for word in ("import time", "timestamp", "created_ms", "checkpoint_id", "now_ms"))


# ---- the cases by name ----


def test_nothing_at_all_has_no_timeline() -> None:
    assert (timeline(World()), newest(World()), current(World()), gaps(World())) == ([], None, None, [])
    assert next_slot(World(), 3) == Slot(3, 0)


def test_a_generation_goes_on_from_where_it_began() -> None:
    w = world(FRESH, Slot(0, 2), slots={0: 3, 1: 2})
    assert timeline(w) == [Slot(0, 0), Slot(0, 1), Slot(0, 2), Slot(1, 0), Slot(1, 1)]


def test_a_rewind_and_then_a_crash_before_the_first_new_checkpoint_stays_rewound() -> None:
    rewound = world(FRESH, Slot(0, 1), slots={0: 5})
    assert newest(rewound) == Slot(0, 1)
    started_again = world(FRESH, Slot(0, 1), Slot(0, 1), slots={0: 5})
    assert timeline(started_again) == [Slot(0, 0), Slot(0, 1)]
    assert abandoned(started_again) == [Slot(0, 2), Slot(0, 3), Slot(0, 4)]


def test_a_rewind_sideways_takes_up_the_abandoned_line_and_not_the_one_between() -> None:
    """Rewind to 100, run to 120, then rewind to a savepoint at 150 of the timeline that was left."""
    w = world(FRESH, Slot(0, 2), Slot(0, 5), slots={0: 6, 1: 3, 2: 1})
    assert timeline(w) == [*(Slot(0, n) for n in range(6)), Slot(2, 0)]
    assert abandoned(w) == [Slot(1, 0), Slot(1, 1), Slot(1, 2)]


def test_a_rewind_across_several_generations_cuts_each_where_it_was_left() -> None:
    w = world(FRESH, Slot(0, 3), Slot(1, 0), Slot(0, 1), slots={0: 9, 1: 9, 2: 9, 3: 1})
    assert timeline(w) == [Slot(0, 0), Slot(0, 1), Slot(3, 0)]
    assert timeline(w, 2) == [*(Slot(0, n) for n in range(4)), Slot(1, 0), *(Slot(2, n) for n in range(9))]


def test_a_zombie_that_publishes_after_the_take_over_does_not_count() -> None:
    before = world(FRESH, Slot(0, 1), slots={0: 2, 1: 1})
    after = world(FRESH, Slot(0, 1), slots={0: 9, 1: 1})
    assert timeline(after) == timeline(before)
    assert abandoned(after) == [Slot(0, n) for n in range(2, 9)]


def test_a_void_base_is_passed_over_and_what_lies_in_it_does_not_count() -> None:
    w = world(FRESH, VOID, Slot(0, 0), slots={0: 1, 1: 2, 2: 1})
    assert timeline(w) == [Slot(0, 0), Slot(2, 0)]
    assert current(world(FRESH, VOID, slots={0: 1})) == 0


def test_a_fresh_start_leaves_everything_before_it_behind() -> None:
    w = world(FRESH, FRESH, slots={0: 4})
    assert timeline(w) == []
    assert len(abandoned(w)) == 4


def test_a_base_whose_own_slot_was_pruned_still_cuts_the_line_there() -> None:
    w = world(FRESH, Slot(0, 2), slots={0: 6, 1: 1}, forgotten={Slot(0, 2)})
    assert timeline(w) == [Slot(0, 0), Slot(0, 1), Slot(1, 0)]


def test_records_of_an_older_generation_reach_to_the_adopted_epoch() -> None:
    w = world(FRESH, Slot(0, 3), Slot(1, 0), Slot(0, 1), slots={0: 9, 1: 9, 2: 9, 3: 1})
    assert [reach(w, g) for g in range(5)] == [103, -1, -1, None, -1]


def test_a_base_that_does_not_come_before_its_generation_ends_the_walk_and_is_reported() -> None:
    w = world(FRESH, Slot(1, 0), slots={0: 2, 1: 2})
    assert timeline(w) == [Slot(1, 0), Slot(1, 1)]
    assert any("does not come before it" in gap for gap in gaps(w))


@settings(max_examples=60, deadline=None)
@given(lives())
def test_a_life_without_loss_has_no_gaps(life: Life) -> None:
    assert gaps(life.world()) == []


def test_a_higher_claim_that_has_not_begun_is_no_gap() -> None:
    assert gaps(world(FRESH, slots={0: 2}, claims=2)) == []


@settings(max_examples=60, deadline=None)
@given(lives(), st.data())
def test_a_lost_manifest_below_the_top_of_its_generation_is_a_gap(life: Life, data: st.DataObject) -> None:
    w = life.world()
    tops = {g: max(s.number for s in {*w.slots, *w.forgotten} if s.generation == g) for g, _ in w.slots}
    inner = sorted(s for s in w.slots if s not in w.forgotten and s.number < tops[s.generation])
    assume(inner)
    lost = data.draw(st.sampled_from(inner))
    found = gaps(replace(w, slots=set(w.slots) - {lost}))
    assert f"the manifest of {lost}" in found


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_claim_or_base_below_the_newest_is_a_gap(lost: int) -> None:
    w = world(FRESH, Slot(0, 1), Slot(1, 0), slots={0: 2, 1: 1, 2: 1})
    assert gaps(w) == []
    assert gaps(replace(w, claims=w.claims - {lost}))
    assert gaps(replace(w, bases={g: b for g, b in w.bases.items() if g != lost}))


def test_the_lost_manifest_of_a_base_is_a_gap_and_a_pruned_one_is_not() -> None:
    w = world(FRESH, Slot(0, 4), slots={0: 2, 1: 1})
    assert "the manifest of 0-4, from which generation 1 began" in gaps(w)
    pruned = world(FRESH, Slot(0, 1), slots={0: 1, 1: 1}, forgotten={Slot(0, 1)})
    assert gaps(pruned) == []


def test_checkpoints_of_a_generation_that_never_began_are_a_gap() -> None:
    w = world(FRESH, slots={0: 2, 1: 2}, claims=2)
    assert gaps(w) == ["the base of generation 1, which has checkpoints"]
