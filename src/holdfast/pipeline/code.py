"""The Python code that a query reaches, as digests: a plan has only the names of its functions.

What is looked at are the user's own functions, classes and constants, from the query on: those that it names, closes
over, has as defaults, or gets from modules of the user's. Nothing is called, and libraries are left out.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import site
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from holdfast.decide.fingerprint import callable_source, fingerprint
from holdfast.decide.query_identity import PythonCode
from holdfast.errors import BadValue
from holdfast.pipeline.constants import answers_itself, attributes_of, held_in, plainly

__all__ = ["read_code"]

VARIABLES = {"getValueState": "value", "getListState": "list", "getMapState": "map"}
PROCESSOR = "StatefulProcessor"
PLAIN = bool | int | float | str | bytes | None
BEGUN = (partial, MethodType)
"""Functions that have a part of their arguments already."""


def read_code(query: Callable[..., object]) -> PythonCode:
    """The code behind a query. A function that is made within another, is one of several of its name, or has a part of
    its arguments already, can't be told apart by its name: it is left out, and everything stands for it.
    """
    reached = _reach(query)
    functions = _functions(reached)
    hidden = {name for function in functions for name in _nested(function.__code__)}
    # A decorator's function has the name of the one inside, which is a part of it.
    inner = {id(inside) for function in functions if (inside := attributes_of(function).get("__wrapped__"))}
    named: dict[str, list[FunctionType]] = {}
    for function in functions:
        if id(function) not in inner:
            named.setdefault(function.__name__, []).append(function)
    begun = {id(item) for thing in reached if isinstance(thing, BEGUN) for item in held_in(thing)}
    texts: dict[int, str] = {}
    root = inspect.unwrap(query)
    digests = {
        name: _digest(_reach(several[0]), texts)
        for name, several in named.items()
        if len(several) == 1 and name not in hidden and several[0] is not root and id(several[0]) not in begun
    }
    processors = _processors(reached)
    return PythonCode(
        functions=digests,
        everything=_digest(reached, texts),
        processors=_of_processors(processors, reached, texts),
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
            waiting += [each for value in _next(thing) for each in (value, *held_in(value))]
    return list(found.values())


def _own(thing: object) -> Any:
    """A function or class of the user's own, or one that has some of its arguments; None for anything else.

    Of what Spark or a library has made of a function it is the one inside.
    """
    if answers_itself(thing):
        return type(thing) if _is_own_module(type(thing).__module__) else None
    while not isinstance(thing, type | ModuleType | partial) and not _is_own_function(thing):
        inside = _inside(thing)
        if inside is None:
            break
        thing = inside
    if isinstance(thing, MethodType):
        function = _own(thing.__func__)
        return thing if function is not None and not isinstance(thing.__self__, type) else function
    if isinstance(thing, partial) or _is_own_function(thing):
        return thing
    if isinstance(thing, FunctionType | ModuleType | PLAIN):
        return None
    kind = thing if isinstance(thing, type) else type(thing)
    return kind if _is_own_module(kind.__module__) else None


def _is_own_function(thing: object) -> bool:
    return isinstance(thing, FunctionType) and _is_own(thing.__code__.co_filename)


def _inside(thing: object) -> object:
    """The function in a user-defined function of Spark's, in what a library's decorator made, in a class method."""
    if isinstance(thing, classmethod | staticmethod):
        return thing.__func__
    if isinstance(thing, PLAIN | MethodType) or is_dataclass(thing):
        return None
    kept = attributes_of(thing)
    return next((kept[name] for name in ("func", "__wrapped__") if callable(kept.get(name))), None)


def _next(thing: Any) -> Iterator[object]:
    if isinstance(thing, type):
        yield from thing.__mro__[1:]
        for value in vars(thing).values():
            yield from (value.fget, value.fset) if isinstance(value, property) else (value,)
    elif isinstance(thing, FunctionType):
        yield from _values(thing).values()
        yield attributes_of(thing).get("__wrapped__")
    else:
        yield thing


def _values(function: FunctionType) -> dict[str, object]:
    """What a function closes over, has as defaults, and which globals it names, those of the user's modules as well."""
    code = function.__code__
    names = sorted(_names(code))
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # Not yet assigned.
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    given = {**dict(zip(positional, defaults, strict=True)), **(function.__kwdefaults__ or {})}
    modules = [(name, value) for name, value in found.items() if isinstance(value, ModuleType)]
    found |= {f"{name}=": value for name, value in given.items()}
    seen: set[str] = set()
    while modules:
        place, module = modules.pop()
        if module.__name__ not in seen and _is_own_module(module.__name__):
            seen.add(module.__name__)
            inner = {f"{place}.{name}": vars(module)[name] for name in names if name in vars(module)}
            found |= inner
            modules += [(name, value) for name, value in inner.items() if isinstance(value, ModuleType)]
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


def _digest(reached: list[Any], texts: dict[int, str]) -> str:
    """`texts` keeps those of things that were met before: many functions reach the same."""
    for thing in reached:
        if id(thing) not in texts:
            texts[id(thing)] = _text(thing)
    every = sorted(texts[id(thing)] for thing in reached)
    return hashlib.sha256("\n".join(every).encode()).hexdigest() if every else ""


def _text(thing: Any) -> str:
    if not isinstance(thing, type | FunctionType):
        return f"begun {fingerprint(values=plainly(thing)).digest}"
    if isinstance(thing, type):
        members = getattr(thing, "_member_map_", None)
        # What else is in an enumeration differs from one Python to the next.
        named = members if isinstance(members, dict) else vars(thing)
    else:
        named = _values(thing)
    # Of libraries' code not even the name: that may be another one in the next version.
    plain = {
        name: told
        for name, value in named.items()
        if not name.startswith("__") and _is_told(value) and (told := plainly(value)) is not None
    }
    # A new password is not a new query: by their names secrets are left out.
    told = fingerprint(values=plain).digest
    return f"class {thing.__qualname__} {told}" if isinstance(thing, type) else _text_of_function(thing, told)


def _is_told(value: object) -> bool:
    if answers_itself(value):
        return False
    return not isinstance(value, FunctionType | type | ModuleType | BuiltinFunctionType) or _own(value) is value


def _text_of_function(function: FunctionType, told: str) -> str:
    code = function.__code__
    # Without what it is wrapped around, which is a thing of its own.
    bare = FunctionType(code, function.__globals__, code.co_name, None, function.__closure__)
    try:
        source = callable_source(bare)
    except BadValue:
        # Typed in somewhere without a file: its bytes at least are the same as long as the Python is.
        source = _bytes(code)
    return f"function {function.__qualname__} {source} {told}"


def _bytes(code: CodeType) -> str:
    consts = [_bytes(const) if isinstance(const, CodeType) else plainly(const) for const in code.co_consts]
    return json.dumps([code.co_code.hex(), consts, code.co_names], sort_keys=True)


# ---- processors of state ----


def _processors(reached: list[Any]) -> list[type]:
    """The processors that are reached, without those that others are only made from."""
    every = [kind for kind in reached if isinstance(kind, type) and _is_processor(kind)]
    return [kind for kind in every if not any(kind in other.__mro__[1:] for other in every)]


def _is_processor(kind: type) -> bool:
    # By its name: before Spark 4.0 there is none to import.
    return any(base.__name__ == PROCESSOR and not _is_own_module(base.__module__) for base in kind.__mro__)


def _of_processors(processors: list[type], reached: list[Any], texts: dict[int, str]) -> str:
    """The code of processors, with what they are made with; made with more than constants, everything counts."""
    if not processors:
        return ""
    names = {kind.__name__ for kind in processors}
    calls = [call for function in _functions(reached) for call in _calls(function) if _called(call) in names]
    given = [argument for call in calls for argument in (*call.args, *(k.value for k in call.keywords))]
    if not all(isinstance(argument, ast.Constant) for argument in given):
        return _digest(reached, texts)
    made = sorted(ast.unparse(call) for call in calls)
    ordered = sorted(processors, key=lambda kind: kind.__qualname__)
    text = json.dumps([made, *(_digest(_reach(kind), texts) for kind in ordered)])
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
