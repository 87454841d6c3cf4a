"""Which decisions may go."""

from __future__ import annotations

from holdfast.decide.ledger import Entry, removable
from holdfast.decide.timeline import World
from holdfast.records import Base


def entry(generation: int, first: int, last: int) -> Entry:
    return Entry(f"{generation}/{first}-{last}", generation, first, last)


def base(generation: int, **more: int | None) -> Base:
    return Base(token="t", generation=generation, **more)  # type: ignore[arg-type]


FOLLOWED = World(
    frozenset({0, 1}), {0: base(0), 1: base(1, from_generation=0, from_slot=3, adopted_epoch=9, follows=0)}
)
REWOUND = World(frozenset({0, 1}), {0: base(0), 1: base(1, from_generation=0, from_slot=3, adopted_epoch=4)})


def test_what_lies_before_the_oldest_checkpoint_goes_and_what_may_be_run_again_stays() -> None:
    old, across, later, mine = entry(0, 0, 4), entry(0, 3, 7), entry(0, 8, 9), entry(1, 10, 12)
    assert removable(FOLLOWED, [old, across, later, mine], 5) == [old]
    assert removable(FOLLOWED, [old, across, later, mine], 20) == [old, across, later, mine]


def test_without_a_checkpoint_nothing_goes() -> None:
    assert removable(FOLLOWED, [entry(0, 0, 4), entry(1, 5, 6)], None) == []
    assert removable(World(), [entry(0, 0, 4)], 9) == []


def test_what_a_generation_decided_that_the_timeline_has_left_behind_goes() -> None:
    two = World(
        frozenset({0, 1, 2}), {0: base(0), 1: base(1, from_generation=0, from_slot=0, adopted_epoch=1), 2: base(2)}
    )
    assert removable(two, [entry(0, 0, 4), entry(1, 5, 6), entry(2, 0, 1)], None) == [entry(0, 0, 4), entry(1, 5, 6)]
    assert removable(REWOUND, [entry(0, 5, 9)], 4) == []


def test_what_a_claim_writes_that_has_not_begun_stays() -> None:
    assert removable(FOLLOWED, [entry(2, 0, 1)], 20) == []
