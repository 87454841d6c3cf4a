"""One thing that was looked at."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Result"]


class Result(NamedTuple):
    """What was found, and what to do about it; `none` is a thing that is not there and need not be."""

    what: str
    status: Literal["ok", "none", "warning", "failed"]
    found: str
    advice: str = ""
