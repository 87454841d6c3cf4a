"""Containers of `collections` and the generator of `random`."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from random import Random
from typing import Any

from holdfast.codec.reduced import Reduced, Unsupported

__all__ = ["rebuild", "reduce"]

# A factory is code, and code is never restored: only these few names stand for one.
FACTORIES: dict[str, Any] = {
    kind.__name__: kind for kind in (int, float, str, bytes, bool, list, tuple, dict, set, frozenset)
}


def reduce(value: Any) -> Reduced | None:
    kind = type(value)
    if kind is deque:
        return Reduced("collections/deque", list(value), b"" if value.maxlen is None else b"%d" % value.maxlen)
    if kind is Counter:
        return Reduced("collections/Counter", dict(value))
    if kind is OrderedDict:
        return Reduced("collections/OrderedDict", dict(value))
    if kind is defaultdict:
        return Reduced("collections/defaultdict", dict(value), _factory_name(value.default_factory))
    if kind is Random:
        return Reduced("random/Random", value.getstate())
    return None


def rebuild(name: str, head: Any, data: memoryview) -> object:
    if name == "Random":
        generator = Random(0)
        generator.setstate(head)
        return generator
    if type(head) is not (list if name == "deque" else dict):
        raise TypeError(f"a {type(head).__qualname__} is inside")
    match name:
        case "deque":
            return deque(head, int(bytes(data)) if data else None)
        case "Counter":
            return Counter(head)
        case "OrderedDict":
            return OrderedDict(head)
        case "defaultdict":
            return defaultdict(FACTORIES[str(data, "ascii")] if data else None, head)
        case _:
            raise LookupError("no such kind")


def _factory_name(factory: Any) -> bytes:
    if factory is None:
        return b""
    name = str(getattr(factory, "__name__", factory))
    if FACTORIES.get(name) is not factory:
        raise Unsupported(f"defaultdict whose factory is {name}")
    return name.encode("ascii")
