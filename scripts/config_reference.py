"""Write the generated part of docs/reference/config.md from the tables themselves.

python scripts/config_reference.py        writes the file
"""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from holdfast.config import (
    AlertsTable,
    CheckTable,
    Config,
    CopyTable,
    DrillTable,
    Duration,
    KeepTable,
    PipelineTable,
    ReachTable,
    ReceiverTable,
    RepositoryTable,
    RootTable,
    WatchTable,
)
from holdfast.decide.schedule import Schedule, show_duration

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "config.md"
MARK = "<!-- All below is written by scripts/config_reference.py. -->\n"
TABLES: dict[str, type[msgspec.Struct]] = {
    "": Config,
    "repository": RepositoryTable,
    "watch": WatchTable,
    "pipelines.NAME": PipelineTable,
    "roots.NAME": RootTable,
    "keep": KeepTable,
    "check": CheckTable,
    "copies.NAME": CopyTable,
    "drill": DrillTable,
    "reach": ReachTable,
    "alerts": AlertsTable,
    "alerts.to.NAME": ReceiverTable,
}
KINDS = {
    Duration: "duration",
    Schedule: "duration or batches",
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
}


def page(text: str) -> str:
    """The page with its generated part made anew; what stands before the mark is left alone."""
    before, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE.name} has lost its mark: {MARK.strip()}")
    return before + mark + "".join(_section(name, table) for name, table in TABLES.items())


def _section(name: str, table: type[msgspec.Struct]) -> str:
    title = f"[{name}]" if name else "The top"
    about = " ".join((table.__doc__ or "").split())
    lines = [f"\n## {title}", "", about, "", "| key | what it is | default | |", "|-|-|-|-|"]
    hints = get_type_hints(table, include_extras=True)
    for field in msgspec.structs.fields(table):
        kind, meta = get_args(hints[field.name])
        lines.append(f"| `{field.name}` | {_kind(kind)} | {_default(field)} | {meta.description} |")
    return "\n".join(lines) + "\n"


def _kind(kind: Any) -> str:
    kinds = [each for each in get_args(kind) if each is not NoneType] if get_origin(kind) not in (dict, list) else []
    kind = kinds[0] if kinds else kind
    if get_origin(kind) is dict:
        return "tables" if issubclass(get_args(kind)[1], msgspec.Struct) else "table of texts"
    if get_origin(kind) is list:
        return "list of texts"
    return KINDS.get(kind, "table")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "needed"
    value = field.default
    if value is msgspec.NODEFAULT or value is None or isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, Schedule):
        return f'`"{show_duration(value.every_ms or 0)}"`'
    if isinstance(value, Duration):
        return f'`"{value.text}"`'
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value:g}`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
