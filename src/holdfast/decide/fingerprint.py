"""What a pipeline is made of, small enough to store and the same on every run and machine, without its secrets."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from holdfast.errors import BadValue

__all__ = ["JSON", "Fingerprint", "callable_source", "differences", "fingerprint", "is_secret"]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | tuple[JSON, ...] | Mapping[str, JSON] | None"

LONGEST_PART = 200
DIGEST = "sha256:"

# "tokenizer" and "secretary" are names of things; leaving them out would hide a change.
SECRET_ANYWHERE = re.compile(
    r"passw(or)?d|passphrase|secret(?!ar)|token(?!i[sz])|credential|(access|account|api|private|shared|encryption)key|"
    r"jaas|authorization|connectionstring|connstr"
)
SECRET_WORDS = frozenset({"auth", "pass", "pwd", "pw", "sas", "sig"})
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

URL_LOGIN = re.compile(r"(?<![a-z0-9+.-])(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<login>[^\s/?#]*)@", re.IGNORECASE)
PARAMETER_NAME = re.compile(r"""(?:(?<=[?&;,(\s"'])|^)(?P<name>[\w.-]+)\s*=\s*""")
PARAMETER_VALUE = re.compile(r"""(?:"[^"]*"|'[^']*'|[^&;\s]*)[&;\s]*""")
DANGLING = re.compile(r"[?&;\s]+$")
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)


@dataclass(frozen=True)
class Fingerprint:
    """The parts of a pipeline as canonical text; a long part as its digest. Make it with `fingerprint`."""

    parts: Mapping[str, str]

    @property
    def digest(self) -> str:
        """One SHA-256 of all parts."""
        return _sha256(_canonical(dict(self.parts)))


def fingerprint(**parts: JSON) -> Fingerprint:
    """Take the fingerprint of a pipeline from its named parts.

    Secrets are left out: a new password is not a new pipeline. What is secret is told by the names of keys and
    parameters, so a secret under an innocent name is hashed and, in a short part, stored. Sets, NaN and objects are
    refused, since they have no stable text.
    """
    texts = {name: _canonical(_without_secrets(name, value)) for name, value in parts.items() if not is_secret(name)}
    return Fingerprint({name: _shortened(text) for name, text in sorted(texts.items())})


def differences(old: Fingerprint, new: Fingerprint) -> list[str]:
    """Say in sentences what was added, removed and changed; nothing for equal fingerprints."""
    return [
        _difference(name, old.parts.get(name), new.parts.get(name))
        for name in sorted({*old.parts, *new.parts})
        if old.parts.get(name) != new.parts.get(name)
    ]


def _difference(name: str, old: str | None, new: str | None) -> str:
    if old is None and new is not None:
        return f"{name} was added" if new.startswith(DIGEST) else f"{name} was added: {new}"
    if new is None and old is not None:
        return f"{name} was removed" if old.startswith(DIGEST) else f"{name} was removed: {old}"
    if f"{old}".startswith(DIGEST) or f"{new}".startswith(DIGEST):
        return f"{name} changed"
    return f"{name} changed from {old} to {new}"


def _canonical(value: JSON) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shortened(text: str) -> str:
    return DIGEST + _sha256(text) if len(text) > LONGEST_PART else text


def is_secret(name: str) -> bool:
    """Whether what has this name is taken for a secret."""
    letters = "".join(c for c in name.lower() if c.isalnum())
    return bool(SECRET_ANYWHERE.search(letters)) or any(w.lower() in SECRET_WORDS for w in WORD.findall(name))


def _without_secrets(part: str, value: object) -> JSON:
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str():
            return _text_without_secrets(part, value)
        case list() | tuple():
            return [_without_secrets(part, item) for item in value]
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: _without_secrets(part, item) for key, item in value.items() if not is_secret(key)}
    raise BadValue(f"fingerprint part {part!r}", f"{value!r:.100} has no stable text")


def _text_without_secrets(part: str, text: str) -> str:
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return _canonical(_without_secrets(part, json.loads(text, parse_float=str, parse_constant=str)))
        except ValueError:
            pass  # It only looked like JSON.
    return _without_secret_parameters(URL_LOGIN.sub(_url_without_login, PRIVATE_KEY.sub("", text)))


def _without_secret_parameters(text: str) -> str:
    kept, position = "", 0
    for found in PARAMETER_NAME.finditer(text):
        value = PARAMETER_VALUE.match(text, found.end())
        if value and found.start() >= position and is_secret(found["name"]):
            kept += text[position : found.start()]
            position = value.end()
    return DANGLING.sub("", kept + text[position:]) if position else text


def _url_without_login(found: re.Match[str]) -> str:
    # Before the @ of abfss://container@account stands no login, but a part of the place.
    login = ":" in found["login"] or found["scheme"].lower() in {"http", "https"}
    return f"{found['scheme']}://" if login else found[0]


def callable_source(fn: Callable[..., object]) -> str:
    """Write a Python function's source as text that stays the same when only comments, docstrings or layout change.

    It sees the function alone: what it calls, closes over or reads from globals must be a part of its own. Of several
    lambdas that start on one line all are taken. Raises BadValue when there is no source to read, as for built-ins.
    """
    function = inspect.unwrap(fn)
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        raise BadValue(f"{fn!r}", "is not a plain Python function, so it has no source to compare")
    try:
        lines, _ = inspect.findsource(function)
        every = _functions_in("".join(lines))
    except (OSError, SyntaxError) as error:
        raise BadValue(f"{fn!r}", f"its source can't be read: {error}") from error
    found = [node for name, node in every.get(function.__code__.co_firstlineno, ()) if name == function.__name__]
    if not found:
        raise BadValue(f"{fn!r}", "its source file has changed since it was loaded")
    return "\n".join("".join(_dump(node)) for node in found)


@lru_cache(maxsize=16)
def _functions_in(source: str) -> Mapping[int, list[tuple[str, ast.AST]]]:
    """The functions of a file by their first lines. Kept, since a query may use many of one file."""
    found: dict[int, list[tuple[str, ast.AST]]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.setdefault(first, []).append((node.name, node))
        elif isinstance(node, ast.Lambda):
            found.setdefault(node.lineno, []).append(("<lambda>", node))
    return found


def _dump(value: object) -> Iterator[str]:
    # Not ast.dump: its text differs between Python versions, which add fields and leave empty ones out.
    if isinstance(value, ast.AST):
        yield f"{type(value).__name__}("
        for name, field in ast.iter_fields(value):
            if name == "body" and isinstance(value, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                field = value.body[1:] if ast.get_docstring(value, clean=False) is not None else value.body
            if name not in {"ctx", "kind", "type_comment"} and field not in (None, []):
                yield f"{name}="
                yield from _dump(field)
                yield ","
        yield ")"
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from _dump(item)
            yield ","
        yield "]"
    else:
        yield repr(value)
