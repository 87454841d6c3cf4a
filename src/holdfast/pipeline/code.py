"""The Python code that a query reaches, as digests: a plan has only the names of its functions.

What is looked at are the user's own functions, classes and plain values, from the query on: those that it names, closes
over, or gets from modules of the user's. Nothing is called, and libraries are left out.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import site
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from holdfast.decide.fingerprint import callable_source, fingerprint
from holdfast.decide.query_identity import PythonCode
from holdfast.errors import BadValue

__all__ = ["read_code"]

VARIABLES = {"getValueState": "value", "getListState": "list", "getMapState": "map"}
PROCESSOR = "StatefulProcessor"
PLAIN = (bool, int, float, str, type(None))


def read_code(query: Callable[..., object]) -> PythonCode:
    """The code behind a query. A function that is made within another, or is one of several of its name, can't be told
    apart by its name: it is left out, and everything stands for it.
    """
    reached = _reach(query)
    hidden = {name for function in _functions(reached) for name in _nested(function.__code__)}
    named: dict[str, list[FunctionType]] = {}
    for function in _functions(reached):
        named.setdefault(function.__name__, []).append(function)
    root = inspect.unwrap(query)
    digests = {
        name: _digest(_reach(several[0]))
        for name, several in named.items()
        if len(several) == 1 and name not in hidden and several[0] is not root
    }
    processors = _processors(reached)
    return PythonCode(
        functions=digests,
        everything=_digest(reached),
        processors=_of_processors(processors, reached),
        variables=tuple(dict.fromkeys(found for kind in processors for found in _variables(kind))),
    )


# ---- what is reached ----


def _reach(start: object) -> list[Any]:
    """Everything of the user's own that can be reached from here, each thing once."""
    found: dict[int, Any] = {}
    waiting = [start]
    while waiting:
        thing = _own(waiting.pop())
        if thing is not None and id(thing) not in found:
            found[id(thing)] = thing
            waiting += list(_next(thing))
    return list(found.values())


def _own(thing: object) -> Any:
    """A function or class of the user's own, or None; of a user-defined function of Spark's the Python one inside."""
    inner = getattr(thing, "func", None)
    if callable(inner) and not isinstance(thing, type | ModuleType):
        thing = inner
    thing = inspect.unwrap(thing) if callable(thing) else thing
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, FunctionType):
        return thing if _is_own(thing.__code__.co_filename) else None
    if isinstance(thing, type):
        return thing if _is_own_module(thing.__module__) else None
    if isinstance(thing, ModuleType):
        return None
    kind = type(thing)
    return kind if _is_own_module(kind.__module__) and not isinstance(thing, PLAIN) else None


def _next(thing: Any) -> Iterator[object]:
    if isinstance(thing, type):
        yield from (base for base in thing.__mro__[1:])
        yield from (value for value in vars(thing).values() if not isinstance(value, PLAIN))
        return
    for value in _values(thing).values():
        if isinstance(value, ModuleType):
            yield from (getattr(value, name, None) for name in _names(thing.__code__) if _is_own_module(value.__name__))
        else:
            yield value


def _values(function: FunctionType) -> dict[str, object]:
    """What a function closes over and which globals it names."""
    found = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # Not yet assigned.
    return found


def _names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*(_names(each) for each in inner))


def _nested(code: CodeType) -> Iterator[str]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const.co_name
            yield from _nested(const)


@cache
def _libraries() -> tuple[Path, ...]:
    named = {
        path for name, path in sysconfig.get_paths().items() if name in {"stdlib", "platstdlib", "purelib", "platlib"}
    }
    return tuple(Path(path).resolve() for path in {*named, *site.getsitepackages(), str(Path(__file__).parents[1])})


@cache
def _is_own(file: str) -> bool:
    if file.startswith("<frozen") or file == "<string>":
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(library) for library in _libraries())


@cache
def _is_own_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return name == "__main__" or (file is not None and _is_own(file))


# ---- as text ----


def _functions(reached: list[Any]) -> list[FunctionType]:
    return [thing for thing in reached if isinstance(thing, FunctionType)]


def _digest(reached: list[Any]) -> str:
    texts = sorted(_text(thing) for thing in reached)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else ""


def _text(thing: Any) -> str:
    named = vars(thing) if isinstance(thing, type) else _values(thing)
    plain: Any = {name: value for name, value in named.items() if _is_plain(value) and not name.startswith("__")}
    # A new password is not a new query: by their names secrets are left out.
    told = fingerprint(values=plain).digest
    if isinstance(thing, type):
        return f"class {thing.__qualname__} {told}"
    return f"function {thing.__qualname__} {_source(thing)} {told}"


def _source(function: FunctionType) -> str:
    try:
        return callable_source(function)
    except BadValue:
        # Typed in somewhere without a file: its bytes at least are the same as long as the Python is.
        return function.__code__.co_code.hex()


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return isinstance(value, PLAIN) and not (isinstance(value, float) and not math.isfinite(value))


# ---- processors of state ----


def _processors(reached: list[Any]) -> list[type]:
    """The processors that are reached, without those that others are only made from."""
    every = [kind for kind in reached if isinstance(kind, type) and _is_processor(kind)]
    return [kind for kind in every if not any(kind in other.__mro__[1:] for other in every)]


def _is_processor(kind: type) -> bool:
    # By its name: before Spark 4.0 there is none to import.
    return any(base.__name__ == PROCESSOR and not _is_own_module(base.__module__) for base in kind.__mro__)


def _of_processors(processors: list[type], reached: list[Any]) -> str:
    """The code of processors, with what they are made with; made with more than constants, everything counts."""
    if not processors:
        return ""
    names = {kind.__name__ for kind in processors}
    calls = [call for function in _functions(reached) for call in _calls(function) if _called(call) in names]
    given = [argument for call in calls for argument in (*call.args, *(k.value for k in call.keywords))]
    if not all(isinstance(argument, ast.Constant) for argument in given):
        return _digest(reached)
    made = sorted(ast.unparse(call) for call in calls)
    text = json.dumps([made, *(_digest(_reach(kind)) for kind in sorted(processors, key=lambda k: k.__qualname__))])
    return hashlib.sha256(text.encode()).hexdigest()


def _variables(processor: type) -> Iterator[str]:
    """`name: kind of types`, for each state variable that a processor asks for, in its order."""
    for method in _methods(processor):
        for call in _calls(method):
            if (kind := VARIABLES.get(_called(call))) and call.args:
                words = [_word(argument) for argument in (*call.args, *(k.value for k in call.keywords))]
                yield f"{words[0]}: {kind} of {', '.join(words[1:])}"


def _methods(processor: type) -> Iterator[FunctionType]:
    """The methods that count: one that is overridden does only if the one in its place calls it."""
    settled: set[str] = set()
    for kind in processor.__mro__:
        found = {name: method for name, method in vars(kind).items() if isinstance(method, FunctionType)}
        for name, method in found.items():
            if name not in settled and _is_own(method.__code__.co_filename):
                yield method
        settled |= {name for name, method in found.items() if "super" not in method.__code__.co_names}


def _word(argument: ast.expr) -> str:
    return str(argument.value) if isinstance(argument, ast.Constant) else ast.unparse(argument)


def _calls(function: FunctionType) -> Iterator[ast.Call]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
