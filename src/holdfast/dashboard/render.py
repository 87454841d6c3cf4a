"""From values to HTML. Everything from a repository is data: it is escaped, whatever it holds, and never script."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from holdfast._version import __version__
from holdfast.ids import now_ms
from holdfast.report import iso_time, plain
from holdfast.report.positions import worded
from holdfast.text import age, amount, clean, duration, moment, size

__all__ = ["FOLDER", "asset", "command_line", "environment", "version_of"]

FOLDER = Path(__file__).parent


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with everything escaped, and characters that steer a terminal or a line of text made visible."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        size=size,
        round_size=lambda count: size(count).replace(".0 ", " "),
        duration=duration,
        number=_number,
        moment=lambda ms: moment(ms, utc=True),
        iso=lambda ms: iso_time(ms) or "",
        age=lambda ms: age(ms, now_ms()),
        amount=amount,
        worded=lambda place: "not told" if place is None else worded(place),
        lines=_lines,
    )
    made.globals.update(asset=asset, version=__version__)
    return made


def _visible(value: Any) -> Any:
    """What a template is about to write. Markup is ours, and escaped already."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@lru_cache(maxsize=16)
def asset(name: str) -> str:
    """The address of one of our files; it changes with the file, so that a browser may keep it for good."""
    digest = hashlib.sha256((FOLDER / "static" / name).read_bytes()).hexdigest()
    return f"/static/{name}?{digest[:12]}"


def version_of(*values: Any) -> str:
    """A short word that changes when what is shown changes: a page replaces only the parts where it has."""
    return hashlib.sha256(msgspec.json.encode(plain(values), order="deterministic")).hexdigest()[:16]


def command_line(words: Sequence[str], url: str) -> str:
    """The command as it can be pasted into a shell. A copy is made into the repository."""
    place = [url] if words[0] in ("copy", "standby") else ["--repo", url]
    return " ".join(["holdfast", *map(shlex.quote, [*words, *place])])


def _lines(text: str) -> Markup:
    """Text whose line ends stay line ends in an attribute; all else in it is made visible and escaped."""
    return Markup("&#10;").join(clean(each) for each in text.split("\n"))


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
