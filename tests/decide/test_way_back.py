"""What sinks may let go of: nothing that anybody can still go back to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.timeline import World
from holdfast.decide.way_back import oldest_way_back
from holdfast.layout import Slot
from holdfast.records import Base

DAY = 86_400_000


def fresh(generation: int, at: Slot | None = None, epoch: int | None = None) -> Base:
    return Base(
        token="t",
        generation=generation,
        from_generation=at.generation if at else None,
        from_slot=at.number if at else None,
        adopted_epoch=epoch,
    )


def world(slots: dict[Slot, int], bases: dict[int, Base], forgotten: frozenset[Slot] = frozenset()) -> World:
    return World(frozenset(bases), bases, frozenset(slots), frozenset(), forgotten)


def test_nothing_is_let_go_of_before_there_is_a_checkpoint() -> None:
    assert oldest_way_back(world({}, {0: fresh(0)}), lambda _: 0, lambda _: 0) is None


def test_it_is_the_oldest_that_was_not_forgotten() -> None:
    epochs = {Slot(0, n): n * 10 for n in range(4)}
    gone = frozenset({Slot(0, 0), Slot(0, 1)})
    assert oldest_way_back(world(epochs, {0: fresh(0)}, gone), epochs.__getitem__, lambda _: 0) == Slot(0, 2)


def test_an_abandoned_one_counts_as_well_since_its_name_leads_back_to_it() -> None:
    epochs = {Slot(0, 0): 50, Slot(0, 1): 60, Slot(1, 0): 55, Slot(1, 1): 57}
    bases = {0: fresh(0), 1: fresh(1, Slot(0, 0), 50)}
    forgotten = frozenset({Slot(0, 0)})
    assert oldest_way_back(world(epochs, bases, forgotten), epochs.__getitem__, lambda _: 0) == Slot(1, 0)
    assert oldest_way_back(world(epochs, bases), epochs.__getitem__, lambda _: 0) == Slot(0, 0)


def test_what_lies_beyond_the_horizon_holds_nothing_but_the_last_two_always_do() -> None:
    epochs = {Slot(0, n): n for n in range(10)}
    times = {slot: slot.number * DAY for slot in epochs}
    one = world(epochs, {0: fresh(0)})
    assert oldest_way_back(one, epochs.__getitem__, times.__getitem__, 3 * DAY) == Slot(0, 6)
    assert oldest_way_back(one, epochs.__getitem__, times.__getitem__, 0) == Slot(0, 8)
    assert oldest_way_back(one, epochs.__getitem__, times.__getitem__, 100 * DAY) == Slot(0, 0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 40), st.sets(st.integers(0, 29)))
def test_nothing_within_the_horizon_ever_comes_before_it(steps: list[int], horizon: int, forgotten: set[int]) -> None:
    """Epochs and times grow by any steps; whatever is forgotten, all that is left and young enough is kept."""
    epochs = {Slot(0, n): n for n in range(len(steps))}
    times = {Slot(0, n): sum(steps[: n + 1]) for n in range(len(steps))}
    gone = frozenset(Slot(0, n) for n in forgotten)
    one = world(epochs, {0: fresh(0)}, gone)
    left = sorted(one.counted())
    found = oldest_way_back(one, epochs.__getitem__, times.__getitem__, horizon)
    if not left:
        assert found is None
        return
    young = [slot for slot in left if times[slot] >= times[left[-1]] - horizon]
    assert found is not None
    assert epochs[found] <= min(epochs[slot] for slot in [*young, *left[-2:]])
