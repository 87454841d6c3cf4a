"""Objects that are taken apart into a plain value and raw bytes, one module for each library that makes them.

A library is never imported to look whether a value is of its making; it is imported to build one again.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from holdfast.errors import DamagedState, HoldfastError, LibraryMissing

__all__ = ["Reduced", "Unsupported", "rebuild", "reduce"]

MODULES = {
    "collections": "holdfast.codec.kinds.python",
    "random": "holdfast.codec.kinds.python",
    "numpy": "holdfast.codec.kinds.numpy",
    "pyarrow": "holdfast.codec.kinds.arrow",
    "pandas": "holdfast.codec.kinds.pandas",
    "polars": "holdfast.codec.kinds.polars",
}
"""Which module knows the types of a library, by the first part of a type's module and of a kind's name."""


class Reduced(NamedTuple):
    """What an object comes down to: the name of its kind (`library/type`), a plain value, and bytes as they are."""

    kind: str
    head: object
    data: bytes | memoryview = b""


class Unsupported(Exception):
    """There is no encoding for this; the way down to it is gathered on the way up."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.path: list[str] = []

    def below(self, step: str) -> Unsupported:
        self.path.append(step)
        return self

    def __str__(self) -> str:
        return f"{self.kind} (at value{''.join(reversed(self.path))})" if self.path else self.kind


class Kinds(Protocol):
    """What each module of `holdfast.codec.kinds` offers."""

    def reduce(self, value: Any) -> Reduced | None:
        """Take a value apart; None or Unsupported if it would not come back as it was."""

    def rebuild(self, name: str, head: Any, data: memoryview) -> object:
        """Make the value again; anything may be raised for parts that `reduce` never made."""


def reduce(value: object) -> Reduced:
    kind = type(value)
    module = MODULES.get(kind.__module__.partition(".")[0])
    reduced = _kinds(module, kind.__qualname__).reduce(value) if module else None
    if reduced is None:
        raise Unsupported(kind.__qualname__)
    return reduced


def rebuild(kind: str, head: object, data: memoryview) -> object:
    library, _, name = kind.partition("/")
    module = MODULES.get(library)
    if not module:
        raise DamagedState(f"there is no kind {kind!r}")
    kinds = _kinds(module, kind)
    try:
        return kinds.rebuild(name, head, data)
    except (HoldfastError, MemoryError):
        raise
    except Exception as error:
        raise DamagedState(f"these are not the parts of a {kind}: {error}") from error


def _kinds(module: str, what: str) -> Kinds:
    try:
        return cast(Kinds, import_module(module))
    except ImportError as error:
        raise LibraryMissing((error.name or module).partition(".")[0], f"a {what}", str(error)) from error
