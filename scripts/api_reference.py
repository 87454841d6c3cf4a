"""Write the generated part of docs/reference/api.md from signatures and docstrings.

python scripts/api_reference.py           writes the file
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import holdfast

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"
MARK = "<!-- All below is written by scripts/api_reference.py. -->\n"

SECTIONS = {
    "Opening a repository": ("open", "Repository", "Key", "RetryPolicy", "HoldfastError"),
    "Looking, and looking after": (
        "StoredPipeline",
        "Checkpoint",
        "Slot",
        "KeepPolicy",
        "PrunePlan",
        "Removed",
        "Checked",
        "Copied",
    ),
    "Spark queries, from outside": ("capture",),
    "Spark queries, from their driver": ("attach", "Attached", "AttachedStatus", "Stopped"),
    "Pipelines": ("Pipeline", "Run", "RunStatus", "Recovery", "sinks", "tables", "events"),
    "Rows of state": ("state",),
    "Plain Python loops": ("CheckpointManager", "Schedule", "Cell", "Checkpointable", "LoopSink", "CheckpointState"),
    "Processors with operators and partitions": (
        "Checkpointer",
        "Demands",
        "Recovered",
        "Description",
        "PartitionState",
        "Limits",
        "Fingerprint",
        "fingerprint",
    ),
    "What a manifest holds": ("Manifest", "Artifact", "ConnectorOffset", "SinkStatus"),
}
"""Where each public name stands. A new one is given its place here."""

HANDED_OUT = {
    "Attached",
    "AttachedStatus",
    "Checked",
    "Checkpoint",
    "Checkpointer",
    "Copied",
    "HoldfastError",
    "LoopSink",
    "Checkpointable",
    "Manifest",
    "PrunePlan",
    "Recovered",
    "Recovery",
    "Removed",
    "Repository",
    "Run",
    "RunStatus",
    "Stopped",
    "StoredPipeline",
}
"""Classes that nobody makes by hand: what they are made of is no business of their users."""

ADDRESS = re.compile(r"<(?:function|object|class)?[^<>]*>")


SAYS = (type, FunctionType)
"""What of a module is worth a line: an alias has no words of its own."""


def page(text: str) -> str:
    """The page with its generated part made anew; what stands before the mark is left alone."""
    before, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE.name} has lost its mark: {MARK.strip()}")
    placed = {name for names in SECTIONS.values() for name in names}
    if homeless := sorted(set(holdfast.__all__) - placed - {"__version__"}):
        raise ValueError(f"say in SECTIONS where these stand: {', '.join(homeless)}")
    lines: list[str] = []
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += _entry(name, getattr(holdfast, name))
    return before + mark + "\n".join(lines) + "\n"


def _entry(name: str, what: object) -> Iterator[str]:
    if inspect.ismodule(what):
        yield from ("", f"### {name}", "", f"`holdfast.{name}`: {_text(what)}")
        every = ((each, getattr(what, each)) for each in what.__all__)
        yield from _table("name", ((each, found) for each, found in every if isinstance(found, SAYS)))
    elif isinstance(what, type):
        yield from ("", f"### {name}", *(() if name in HANDED_OUT else ("", f"`{_call(name, what)}`")), "", _text(what))
        yield from _table("member", _members(what))
    else:
        yield from ("", f"### {name}", "", f"`{_call(name, what)}`", "", _text(what))


def _members(kind: type) -> Iterator[tuple[str, object]]:
    """What a class has for its users, in the order of its code."""
    if kind.__name__ in HANDED_OUT and dataclasses.is_dataclass(kind):
        yield from ((field.name, field) for field in dataclasses.fields(kind) if not field.name.startswith("_"))
    for name, what in vars(kind).items():
        if not name.startswith("_") and isinstance(what, FunctionType | property):
            yield name, what


def _table(head: str, rows: Iterator[tuple[str, object]]) -> Iterator[str]:
    shown = [f"| `{_cell(_call(name, what))}` | {_cell(_text(what))} |" for name, what in rows]
    if shown:
        yield from ("", f"| {head} | |", "|-|-|", *shown)


def _call(name: str, what: object) -> str:
    """How it is called: with the names, kinds and defaults of what it takes."""
    if isinstance(what, property | dataclasses.Field):
        return name
    try:
        signature = inspect.signature(what)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    taken = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_default(parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    returned = signature.return_annotation
    plain = signature.replace(parameters=taken, return_annotation=inspect.Signature.empty)
    arrow = f" -> {_type(returned)}" if isinstance(what, FunctionType) and returned not in ("None", None) else ""
    return f"{name}{plain}{arrow}"


class _Shown:
    """A default as people write it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: object) -> object:
    if value is inspect.Parameter.empty:
        return value
    return _Shown("…") if callable(value) or ADDRESS.search(repr(value)) else _Shown(repr(value))


def _type(annotation: object) -> str:
    if annotation is inspect.Signature.empty:
        return "…"
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _text(what: object) -> str:
    """The docstring, each paragraph on one line; of a field its type."""
    if isinstance(what, dataclasses.Field):
        return f"`{what.type}`"
    said = inspect.getdoc(what) or ""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", said).strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
