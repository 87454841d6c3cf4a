"""From the text of holdfast.toml to its tables. What is wrong is told with its place, and nothing is guessed.

`{env:NAME}` and `{file:PATH}` in a text stand for what is there, so that no secret has to be in the file. What they
stand for is never repeated in a message.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from holdfast.config.shape import Config, Duration, RepositoryTable
from holdfast.decide.schedule import Schedule, parse_every
from holdfast.errors import BadConfig, BadName, BadValue
from holdfast.layout import check_name

__all__ = ["read_config", "read_repository"]

T = TypeVar("T", bound=msgspec.Struct)

REFERENCE = re.compile(r"\{(env|file):([^{}]*)\}")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
PATHS = {"url", "directory", "file_sink", "state", "key_file", "scratch"}
"""Keys that name a place: a relative path begins where the file lies."""
PARSERS: dict[Any, Callable[[str], Any]] = {Duration: Duration.of, Schedule: parse_every}


def read_config(path: str | os.PathLike[str]) -> Config:
    """The whole file, each reference in it replaced. Raises BadConfig."""
    file = Path(path)
    config = _Reader(file).table(Config, _parse(file), "")
    for name in config.pipelines:
        try:
            check_name("pipeline", name)
        except BadName as error:
            raise BadConfig(str(file), f"pipelines.{name}", error.message) from None
    return config


def read_repository(path: str | os.PathLike[str]) -> RepositoryTable | None:
    """Only where the repository is: what the rest refers to need not be there for other commands."""
    file = Path(path)
    table = _parse(file).get("repository")
    return None if table is None else _Reader(file).table(RepositoryTable, table, "repository")


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfig(str(file), "", f"it can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfig(str(file), "", "it is not text in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(str(file), "", f"it is no TOML: {error}") from error


class _Reader:
    """Turns tables into structs, and knows for every value where it stands."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def table(self, shape: type[T], table: Any, place: str) -> T:
        if not isinstance(table, Mapping):
            raise self._bad(place, f"it must be a table, not {_kind(table)}")
        hints = get_type_hints(shape, include_extras=True)
        for key in table:
            if key not in hints:
                near = get_close_matches(key, hints, 1)
                known = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(hints))}"
                raise self._bad(_join(place, key), f"there is no such key; {known}")
        for field in msgspec.structs.fields(shape):
            if field.required and field.name not in table:
                raise self._bad(_join(place, field.name), "it is missing")
        found = {key: self._value(hints[key], value, _join(place, key)) for key, value in table.items()}
        try:
            return shape(**found)
        except BadValue as error:
            raise self._bad(place, error.message) from None

    def _value(self, hint: Any, value: Any, place: str) -> Any:
        kind = _bare(hint)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.table(kind, value, place)
        if get_origin(kind) is dict and issubclass(get_args(kind)[1], msgspec.Struct):
            if not isinstance(value, Mapping):
                raise self._bad(place, f"it must be a table of tables, not {_kind(value)}")
            return {name: self.table(get_args(kind)[1], each, _join(place, name)) for name, each in value.items()}
        if kind in PARSERS:
            return self._parsed(kind, value, place)
        try:
            plain = msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            raise self._bad(place, _reworded(str(error))) from None
        return self._filled(plain, place)

    def _parsed(self, kind: Any, value: Any, place: str) -> Any:
        if not isinstance(value, str):
            raise self._bad(place, f'write a number and a unit, such as "30s", not {_kind(value)}')
        try:
            return PARSERS[kind](value)
        except BadValue as error:
            raise self._bad(place, error.message) from None

    def _filled(self, value: Any, place: str) -> Any:
        """The value with what its references stand for, and paths that begin where the file lies."""
        if isinstance(value, str):
            filled = REFERENCE.sub(lambda found: self._referred(found[1], found[2], place), value)
            is_path = place.rpartition(".")[2] in PATHS and not SCHEME.match(filled)
            return str(self._file.absolute().parent / Path(filled).expanduser()) if is_path else filled
        if isinstance(value, dict):
            return {name: self._filled(each, _join(place, name)) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each, place) for each in value]
        return value

    def _referred(self, kind: str, name: str, place: str) -> str:
        if kind == "env":
            if name not in os.environ:
                raise self._bad(place, f"the environment has no {name}")
            return os.environ[name]
        try:
            path = self._file.absolute().parent / Path(name).expanduser()
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise self._bad(place, f"{name} can't be read: {why}") from None

    def _bad(self, place: str, why: str) -> BadConfig:
        return BadConfig(str(self._file), place, why)


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _bare(hint: Any) -> Any:
    """What a key holds if it is given, without its description: TOML has no null."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(kind) is UnionType:
        return next(each for each in get_args(kind) if each is not NoneType)
    return kind


def _kind(value: Any) -> str:
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "a table" if isinstance(value, Mapping) else "a time")


def _reworded(message: str) -> str:
    """A message of msgspec's without the path in it, which stands in front already."""
    words = message.partition(" - at `$")[0]
    return words[:1].lower() + words[1:]
