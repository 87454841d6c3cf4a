"""Driver states: what a plain loop registers to have saved with each checkpoint and restored in place.

Anything with `checkpoint` and `restore` is one; plain lists, dicts, arrays and generators become one as they are.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from holdfast.codec import decode_value, encode_value
from holdfast.errors import BadValue, NotMutable

__all__ = ["Cell", "Checkpointable", "as_checkpointable"]

T = TypeVar("T")


@runtime_checkable
class Checkpointable(Protocol):
    """State that can be saved and put back.

    `checkpoint` gives all of it; equal states should give equal bytes, so that what did not change is not stored
    again. `restore` is all or nothing: on bytes that it can't take it raises and leaves the state as it was.
    """

    def checkpoint(self) -> bytes:
        """All of the state, as bytes."""
        ...

    def restore(self, data: bytes) -> None:
        """Put a state back that `checkpoint` gave."""
        ...


class Cell(Generic[T]):
    """A holder for one value that `encode_value` takes: a number, a tuple, a frame, a table, a nest of dicts.

    Keep the cell and read `.value` each time: a restore puts a new value in, and whoever kept the old one has the old.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def checkpoint(self) -> bytes:
        """The value, encoded."""
        return encode_value(self.value)

    def restore(self, data: bytes) -> None:
        """Put a value in that was saved."""
        self.value = cast(T, decode_value(data))

    def __repr__(self) -> str:
        return f"Cell({self.value!r})"


def as_checkpointable(state: object) -> Checkpointable:
    """Make a driver state of an object; what can be restored in place is restored in that very object.

    Lists, dicts (Counter, OrderedDict, defaultdict), sets, bytearrays, deques, random.Random, and NumPy's arrays and
    generators are taken as they are; only their content is saved, not a deque's maxlen or a defaultdict's factory.
    An array keeps its shape and dtype, and a generator's spawn() is not rewound (in a Cell it is).
    Immutable values raise NotMutable (wrap them in a Cell), everything else NotCheckpointable.
    """
    if isinstance(state, Checkpointable) and not isinstance(state, type):
        return state
    kind = type(state)
    if kind in PLAIN:
        return InPlace(state, *PLAIN[kind])
    if kind.__module__.partition(".")[0] == "numpy" and (fill := _fill_for_numpy(state)) is not None:
        return InPlace(state, kind, fill)
    encode_value(state)  # raises NotCheckpointable for what a Cell can't hold either
    raise NotMutable(kind.__qualname__)


@dataclass(frozen=True)
class InPlace:
    """A mutable object as a driver state: it is saved as a `saved_as`, and `fill` puts one of those back into it."""

    state: Any
    saved_as: type
    fill: Callable[[Any, Any], None]

    def checkpoint(self) -> bytes:
        return encode_value(self.state if type(self.state) is self.saved_as else self.saved_as(self.state))

    def restore(self, data: bytes) -> None:
        saved = decode_value(data)
        if type(saved) is not self.saved_as:
            raise _mismatch(f"a {type(saved).__qualname__} was saved, not a {self.saved_as.__qualname__}")
        self.fill(self.state, saved)


def _mismatch(why: str) -> BadValue:
    return BadValue("the saved state does not fit the registered one", why)


def _fill_sequence(state: list[object] | bytearray, saved: Any) -> None:
    state[:] = saved


def _fill_mapping(state: dict[object, object] | set[object], saved: Any) -> None:
    state.clear()
    state.update(saved)


def _fill_deque(state: deque[object], saved: list[object]) -> None:
    if state.maxlen is not None and len(saved) > state.maxlen:
        raise _mismatch(f"{len(saved)} items are too many for a deque of {state.maxlen}")
    state.clear()
    state.extend(saved)


def _fill_random(state: Random, saved: Random) -> None:
    state.setstate(saved.getstate())


PLAIN: dict[type, tuple[type, Callable[[Any, Any], None]]] = {
    list: (list, _fill_sequence),
    bytearray: (bytearray, _fill_sequence),
    dict: (dict, _fill_mapping),
    set: (set, _fill_mapping),
    Counter: (dict, _fill_mapping),
    OrderedDict: (dict, _fill_mapping),
    defaultdict: (dict, _fill_mapping),
    deque: (list, _fill_deque),
    Random: (Random, _fill_random),
}


def _fill_for_numpy(state: Any) -> Callable[[Any, Any], None] | None:
    import numpy as np

    if isinstance(state, np.ndarray):
        return _fill_array if state.flags.writeable else None
    if isinstance(state, np.random.RandomState):
        return _fill_random_state
    if isinstance(state, np.random.Generator):
        return lambda state, saved: _fill_bits(state.bit_generator, saved.bit_generator)
    if isinstance(state, np.random.BitGenerator):
        return _fill_bits
    return None


def _fill_array(state: Any, saved: Any) -> None:
    if (saved.shape, saved.dtype) != (state.shape, state.dtype):
        raise _mismatch(f"{saved.dtype} {saved.shape} was saved, {state.dtype} {state.shape} is registered")
    state[...] = saved


def _fill_random_state(state: Any, saved: Any) -> None:
    old, new = state.get_state(legacy=False), saved.get_state(legacy=False)
    if old["bit_generator"] != new["bit_generator"]:
        raise _mismatch(f"a {new['bit_generator']} was saved, not a {old['bit_generator']}")
    state.set_state(new)


def _fill_bits(state: Any, saved: Any) -> None:
    if type(state) is not type(saved):
        raise _mismatch(f"a {type(saved).__qualname__} was saved, not a {type(state).__qualname__}")
    state.state = saved.state
