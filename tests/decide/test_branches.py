from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import world_of
from holdfast.decide.branches import Stretch, branches
from holdfast.decide.timeline import World, timeline
from holdfast.layout import Slot
from holdfast.records import Base


def shape(stretches: list[Stretch]) -> list[tuple[int, int, int, int, int]]:
    return [(it.generation, it.lane, it.column, it.first, it.last) for it in stretches]


def test_generations_that_go_on_where_the_last_one_ended_are_one_line() -> None:
    assert shape(branches(world_of((3, None), (2, Slot(0, 2))))) == [(0, 0, 0, 0, 2), (1, 0, 3, 0, 1)]


def test_what_a_rewind_left_is_a_lane_of_its_own_that_grows_from_where_it_was_left() -> None:
    found = branches(world_of((5, None), (2, Slot(0, 1))))
    assert shape(found) == [(0, 0, 0, 0, 1), (0, 1, 2, 2, 4), (1, 0, 2, 0, 1)]
    assert [it.counts for it in found] == [True, False, True]
    assert found[1].parent == Slot(0, 1)
    assert found[1].parent_lane == 0


def test_an_abandoned_line_that_was_gone_on_with_stays_in_its_lane() -> None:
    found = branches(world_of((4, None), (3, Slot(0, 3)), (2, Slot(0, 0))))
    assert shape(found) == [(0, 0, 0, 0, 0), (0, 1, 1, 1, 3), (1, 1, 4, 0, 2), (2, 0, 1, 0, 1)]


def test_two_abandoned_lines_side_by_side_do_not_share_a_lane() -> None:
    found = branches(world_of((2, None), (4, Slot(0, 0)), (4, Slot(0, 0)), (1, Slot(0, 0))))
    assert {it.generation: it.lane for it in found if not it.counts} == {0: 1, 1: 2, 2: 3}


def test_generations_that_never_began_are_not_drawn_and_nothing_is_nothing() -> None:
    bases = {0: Base(token="t", generation=0), 1: Base(token="t", generation=1, void=True)}
    assert shape(branches(World({0, 1, 2}, bases, {Slot(0, 0)}))) == [(0, 0, 0, 0, 0)]
    assert branches(World()) == []


@given(st.data())
def test_every_checkpoint_has_exactly_one_place_and_lane_0_is_the_timeline(data: st.DataObject) -> None:
    made: list[tuple[int, Slot | None]] = []
    for _ in range(data.draw(st.integers(1, 7))):
        before = [Slot(g, n) for g, (count, _) in enumerate(made) for n in range(count)]
        began = data.draw(st.sampled_from(before)) if before else None
        made.append((data.draw(st.integers(0, 4)), began))
    it = world_of(*made)
    places: dict[tuple[int, int], Slot] = {}
    for stretch in branches(it):
        for number in range(stretch.first, stretch.last + 1):
            place = (stretch.lane, stretch.column + number - stretch.first)
            assert place not in places
            places[place] = Slot(stretch.generation, number)
    assert sorted(places.values()) == sorted(it.slots)
    assert [slot for (lane, _), slot in sorted(places.items()) if lane == 0] == timeline(it)
