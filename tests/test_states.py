"""Driver states: saved as they are, restored into the very same object, and left alone by damage."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadValue, DamagedState, NotCheckpointable, NotMutable
from holdfast.states import Cell, Checkpointable, as_checkpointable


class Tally:
    def __init__(self) -> None:
        self.n = 0

    def checkpoint(self) -> bytes:
        return str(self.n).encode()

    def restore(self, data: bytes) -> None:
        self.n = int(data)


def test_an_object_with_both_methods_is_taken_as_it_is() -> None:
    tally, cell = Tally(), Cell(1)
    assert as_checkpointable(tally) is tally
    assert as_checkpointable(cell) is cell
    assert isinstance(tally, Checkpointable)


def test_a_class_is_not_mistaken_for_one_of_its_objects() -> None:
    with pytest.raises(NotCheckpointable):
        as_checkpointable(Tally)


@pytest.mark.parametrize("value", [None, 5, ("a", 1.5), {"k": [1, 2]}])
def test_a_cell_holds_any_value(value: object) -> None:
    cell = Cell(value)
    saved = cell.checkpoint()
    cell.value = "other"
    cell.restore(saved)
    assert cell.value == value
    assert repr(cell) == f"Cell({value!r})"


def test_a_cell_holds_frames_and_tables() -> None:
    table = pa.table({"a": [1, 2]})
    cell: Cell[Any] = Cell((table, table.to_pandas(), pl.DataFrame({"a": [1, 2]})))
    saved = cell.checkpoint()
    cell.value = None
    cell.restore(saved)
    assert cell.value[0].equals(table)
    assert cell.value[1].equals(pd.DataFrame({"a": [1, 2]}))
    assert cell.value[2].equals(pl.DataFrame({"a": [1, 2]}))


def counted(**counts: int) -> Counter[str]:
    return Counter(counts)


PLAIN = [
    ([1, "a"], lambda s: s.append(2)),
    ({"b": 1, "a": 2}, lambda s: s.update(b=5, c=6)),
    ({1, "x"}, lambda s: s.discard(1)),
    (bytearray(b"abc"), lambda s: s.extend(b"def")),
    (deque([1, 2], 3), lambda s: s.extend([3, 4])),
    (deque([1, 2]), lambda s: s.clear()),
    (counted(a=2), lambda s: s.update("aab")),
    (OrderedDict(z=1, a=2), lambda s: s.move_to_end("z")),
    (defaultdict(lambda: [0], a=[1]), lambda s: s["b"].append(1)),
]


@pytest.mark.parametrize(("state", "change"), PLAIN, ids=[type(state).__name__ for state, _ in PLAIN])
def test_a_plain_object_is_restored_in_place(state: Any, change: Any) -> None:
    registered = as_checkpointable(state)
    before, saved = repr(state), registered.checkpoint()
    change(state)
    assert repr(state) != before
    changed = repr(state)
    with pytest.raises(DamagedState):
        registered.restore(saved[:-1])
    assert repr(state) == changed
    registered.restore(saved)
    assert repr(state) == before
    assert registered.checkpoint() == saved


@given(st.dictionaries(st.text(), st.integers()), st.dictionaries(st.text(), st.integers()))
def test_nothing_of_the_later_state_stays(earlier: dict[str, int], later: dict[str, int]) -> None:
    state = dict(earlier)
    registered = as_checkpointable(state)
    saved = registered.checkpoint()
    state.update(later)
    registered.restore(saved)
    assert list(state.items()) == list(earlier.items())


def test_a_restored_ordered_dict_still_knows_its_order() -> None:
    state = OrderedDict(b=1, a=2)
    registered = as_checkpointable(state)
    saved = registered.checkpoint()
    state.clear()
    registered.restore(saved)
    assert state.popitem(last=False) == ("b", 1)


def test_a_deque_that_got_too_short_drops_nothing() -> None:
    saved = as_checkpointable(deque([1, 2, 3])).checkpoint()
    short = deque([7], 2)
    with pytest.raises(BadValue, match="3 items are too many"):
        as_checkpointable(short).restore(saved)
    assert list(short) == [7]


def test_a_generator_is_rewound_in_place() -> None:
    generator = Random(3)
    generator.gauss(0, 1)
    registered = as_checkpointable(generator)
    saved = registered.checkpoint()
    drawn = [generator.gauss(0, 1) for _ in range(3)]
    registered.restore(saved)
    assert [generator.gauss(0, 1) for _ in range(3)] == drawn


@pytest.mark.parametrize(
    ("state", "draw"),
    [
        (np.random.default_rng(3), lambda s: s.integers(100, size=5, dtype=np.uint32).tolist()),
        (np.random.Generator(np.random.MT19937(3)), lambda s: s.random(5).tolist()),
        (np.random.RandomState(3), lambda s: s.normal(size=3).tolist()),
        (np.random.RandomState(np.random.PCG64(3)), lambda s: s.normal(size=3).tolist()),
        (np.random.Philox(3), lambda s: s.random_raw(3).tolist()),
    ],
    ids=["Generator", "Generator on MT19937", "RandomState", "RandomState on PCG64", "bit generator"],
)
def test_a_numpy_generator_is_rewound_in_place(state: Any, draw: Any) -> None:
    draw(state)
    registered = as_checkpointable(state)
    saved = registered.checkpoint()
    drawn = draw(state)
    with pytest.raises(DamagedState):
        registered.restore(saved[:-1])
    assert draw(state) != drawn
    registered.restore(saved)
    assert draw(state) == drawn


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(10)[::3],
        np.array(1.5),
        np.array([(1, "a")], [("n", "i4"), ("s", "U3")]),
        np.array(["2026-01-01"], "M8[us]"),
    ],
    ids=str,
)
def test_an_array_is_restored_in_place(array: np.ndarray) -> None:
    view, before = array.view(), array.copy()
    registered = as_checkpointable(array)
    saved = registered.checkpoint()
    array[...] = np.zeros((), array.dtype)
    with pytest.raises(DamagedState):
        registered.restore(saved[:-1])
    assert array.tobytes() == np.zeros_like(before).tobytes()
    registered.restore(saved)
    assert view.tobytes() == before.tobytes()


@pytest.mark.parametrize("other", [np.zeros(4), np.zeros((3, 1)), np.zeros(3, "f4"), np.array(0.0)], ids=str)
def test_an_array_of_another_shape_or_dtype_is_refused(other: np.ndarray) -> None:
    state = np.ones(3)
    with pytest.raises(BadValue, match="was saved"):
        as_checkpointable(state).restore(as_checkpointable(other).checkpoint())
    assert state.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("state", "other"),
    [
        ([1], {"a": 1}),
        ({"a": 1}, [1]),
        ({1}, [1]),
        (np.ones(2), [1.0, 1.0]),
        (np.random.default_rng(1), np.random.Generator(np.random.Philox(1))),
        (np.random.RandomState(1), np.random.RandomState(np.random.PCG64(1))),
        (np.random.PCG64(1), np.random.Philox(1)),
    ],
)
def test_the_state_of_something_else_is_refused(state: Any, other: Any) -> None:
    registered = as_checkpointable(state)
    before = registered.checkpoint()
    with pytest.raises(BadValue, match="does not fit"):
        registered.restore(as_checkpointable(other).checkpoint())
    assert registered.checkpoint() == before


def read_only() -> np.ndarray:
    array = np.zeros(2)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        1.5,
        "a",
        b"a",
        (1,),
        frozenset(),
        pd.DataFrame(),
        pl.DataFrame(),
        pa.table({}),
        np.float64(1),
        read_only(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_not_be_restored_in_place_belongs_in_a_cell(value: object) -> None:
    with pytest.raises(NotMutable) as error:
        as_checkpointable(value)
    assert isinstance(error.value, NotCheckpointable)
    assert type(value).__qualname__ in str(error.value)
    assert "Cell(value)" in error.value.hint
    assert as_checkpointable(Cell(value)).checkpoint()


class Own(list[int]):
    """A subclass may hold more than its items, so it is not taken for a list."""


@pytest.mark.parametrize("value", [object(), Own(), Enum("Colour", "RED"), Random, lambda: 0])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(NotCheckpointable) as error:
        as_checkpointable(value)
    assert not isinstance(error.value, NotMutable)
