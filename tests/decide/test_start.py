"""Whether a sink stands where the state does: by its link and by who decided it."""

from __future__ import annotations

import pytest

from holdfast.decide.start import stands_at
from holdfast.decide.timeline import World
from holdfast.epochs import NOTHING, Holder, Link, Marker
from holdfast.records import Base

FIVE = Link(5, "5")


def marker(at: Link, decided: int) -> Marker:
    return Marker(Holder("p", 9, "t"), at, decided)


@pytest.fixture
def rewound() -> World:
    """Generation 0 went past epoch 5; generation 1 began after its epoch 2; generation 2 never began."""
    bases = [
        Base(token="a", generation=0),
        Base(token="b", generation=1, from_generation=0, from_slot=2, adopted_epoch=2),
        Base(token="c", generation=2, void=True),
    ]
    return World(claims={0, 1, 2}, bases={base.generation: base for base in bases})


def test_the_same_link_counts_only_if_its_timeline_leads_there(rewound: World) -> None:
    assert stands_at(rewound, FIVE, marker(FIVE, 1))
    assert not stands_at(rewound, FIVE, marker(FIVE, 0))
    assert stands_at(rewound, FIVE, marker(FIVE, 0), 0)
    assert not stands_at(rewound, FIVE, marker(FIVE, 1), 0)


def test_what_was_adopted_counts(rewound: World) -> None:
    two = Link(2, "2")
    assert stands_at(rewound, two, marker(two, 0))


def test_another_link_never_counts(rewound: World) -> None:
    assert not stands_at(rewound, FIVE, marker(Link(4, "5"), 1))
    assert not stands_at(rewound, NOTHING, marker(FIVE, 1))


def test_a_sink_that_began_there_counts_whoever_fenced_it(rewound: World) -> None:
    assert stands_at(rewound, FIVE, marker(FIVE, 2)), "it was given up before it ran"
    assert stands_at(rewound, FIVE, marker(FIVE, 3)), "it is about to begin"
    assert stands_at(rewound, NOTHING, marker(NOTHING, 0), 1)
