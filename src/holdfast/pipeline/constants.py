"""Values that Python code reads, in plain ones: the same in every process, and told without running code of the user's.

They go into digests alone, never into a record as they are.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MemberDescriptorType, MethodType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from holdfast.decide.fingerprint import JSON

__all__ = ["answers_itself", "attributes_of", "held_in", "plainly"]

MOST = 100_000
"""So many values in one constant are looked at: more would hold up every start."""
DEEPEST = 20
WRITTEN = frozenset({Decimal, date, datetime, time, timedelta, timezone, Fraction, UUID, range, complex})
"""Their texts are the same everywhere. They alone: a class that is made from one may write itself as it likes."""
SIMPLE = frozenset({bool, int, float, str, bytes, type(None)})


class _UnknownError(Exception):
    """There is something in a value that has no stable text."""


class _TooLongError(Exception):
    """There is more in a value than is looked at."""


def plainly(value: object) -> JSON:
    """A value in plain ones; None if it can't be told, or is None.

    A value with something in it that can't be told is not told at all, but for a dataclass: the other fields of that
    are. What is too long or too deep is told by its length.
    """
    try:
        return _Telling().tell(value, DEEPEST)
    except _UnknownError:
        return None
    except _TooLongError:
        return {"length": len(list(_items(value)))}


def held_in(value: object) -> Iterator[object]:
    """What a container of Python's own, a dataclass, a partial or a bound method holds, as deep as it goes."""
    waiting, seen, left = [] if answers_itself(value) else [value], set[int](), MOST
    while waiting:
        holder = waiting.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        for item in _items(holder):
            left -= 1
            if left < 0:
                return
            if type(item) not in SIMPLE and not answers_itself(item):
                yield item
                waiting.append(item)


def answers_itself(value: object) -> bool:
    """Whether even a look at what it is would run code, as of an object that stands for another."""
    kind: Any = type(value)
    return _answers(kind)


@lru_cache(maxsize=1024)
def _answers(kind: type) -> bool:
    bases = [vars(base) for base in kind.__mro__ if base is not object]
    return any(isinstance(base.get("__getattribute__"), FunctionType) or "__class__" in base for base in bases)


def attributes_of(value: object) -> dict[str, Any]:
    """What an object keeps itself, without asking it: a property would run code."""
    found: dict[str, Any] = {}
    slots = [each for kind in type(value).__mro__ for each in vars(kind).values()]
    for slot in slots:
        if isinstance(slot, MemberDescriptorType):
            try:
                found.setdefault(slot.__name__, slot.__get__(value))
            except AttributeError:
                continue  # Not yet assigned.
    # One with slots alone has none.
    with suppress(AttributeError):
        found |= object.__getattribute__(value, "__dict__")
    return found


def _fields(value: object) -> dict[str, object]:
    """The fields of a dataclass that count when two are compared; none of anything else."""
    kind: Any = type(value)
    if not dataclasses.is_dataclass(kind):
        return {}
    own = attributes_of(value)
    names = [field.name for field in dataclasses.fields(kind) if field.compare]
    return {name: own[name] for name in names if name in own}


def _items(value: object) -> Iterable[object]:
    """What is in a container. The methods of a class that was made from one of Python's own are passed over."""
    match value:
        case dict():
            return [*dict.keys(value), *dict.values(value)]
        case MappingProxyType():
            return [*value.keys(), *value.values()]
        case list():
            return list.__iter__(value)
        case tuple():
            return tuple.__iter__(value)
        case set():
            return set.__iter__(value)
        case frozenset():
            return frozenset.__iter__(value)
        case deque():
            return deque.__iter__(value)
        case MethodType():
            return [value.__func__, value.__self__]
    if type(value) is partial:
        return [value.func, *value.args, *value.keywords.values()]
    return _fields(value).values()


class _Telling:
    """Tells one value, and counts what it has looked at."""

    def __init__(self) -> None:
        self._left = MOST

    def tell(self, value: object, depth: int) -> JSON:
        self._left -= 1
        if self._left < 0 or depth < 0:
            raise _TooLongError
        if answers_itself(value):
            raise _UnknownError
        kind = type(value)
        match value:
            case None | bool():
                return value
            case enum.Enum():
                return {"member": f"{kind.__qualname__}.{value._name_}", "value": self.tell(value._value_, depth - 1)}
            case int():
                return int.__index__(value)
            case float():
                return {"float": float.__repr__(value)}
            case str():
                return str.__str__(value)
            case bytes() | bytearray() if kind in {bytes, bytearray}:
                return {"bytes": value.hex()}
            case re.Pattern():
                return {"pattern": self.tell(value.pattern, depth - 1), "flags": value.flags}
            case datetime() | time() if kind in WRITTEN and value.tzinfo is not None:
                local = value.replace(tzinfo=None)
                return {"at": self.tell(local, depth - 1), "zone": self.tell(value.tzinfo, depth - 1)}
            case ZoneInfo() if kind is ZoneInfo and value.key:
                return {"zone": value.key}
            case PurePath() if kind.__module__.startswith("pathlib"):
                return {"path": value.as_posix()}
            case FunctionType() | BuiltinFunctionType() | type():
                return {"named": value.__qualname__}
        return {kind.__name__: repr(value)} if kind in WRITTEN else self._tell_container(value, depth - 1)

    def _tell_container(self, value: object, depth: int) -> JSON:
        match value:
            case dict():
                return self._tell_pairs(dict.items(value), depth)
            case MappingProxyType():
                return self._tell_pairs(value.items(), depth)
            case set() | frozenset():
                return {"set": sorted((self.tell(item, depth) for item in _items(value)), key=_order)}
            case list() | tuple() | deque() | MethodType():
                return [self.tell(item, depth) for item in _items(value)]
        if type(value) is partial:
            return {"partial": [self.tell(each, depth) for each in (value.func, value.args, dict(value.keywords))]}
        if not dataclasses.is_dataclass(type(value)):
            raise _UnknownError
        return {"of": type(value).__qualname__, "fields": self._tell_known(_fields(value), depth)}

    def _tell_pairs(self, pairs: Iterable[tuple[object, object]], depth: int) -> JSON:
        """A mapping, in whatever order it was filled. Names stay names: secrets are known by them."""
        named: dict[str, JSON] = {}
        others: list[JSON] = []
        for key, item in pairs:
            told = self.tell(item, depth)
            if type(key) is str:
                named[key] = told
            else:
                others.append([self.tell(key, depth), told])
        return {"by name": named, "others": sorted(others, key=_order)}

    def _tell_known(self, fields: Mapping[str, object], depth: int) -> JSON:
        told: dict[str, JSON] = {}
        for name, value in fields.items():
            try:
                told[name] = self.tell(value, depth)
            except _UnknownError:
                continue
        return told


def _order(told: JSON) -> str:
    return json.dumps(told, sort_keys=True)
