"""The names by which what a start would refuse is accepted."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.decide.query_changes import CHANGES
from holdfast.errors import BadValue

__all__ = ["TAKE_BACK", "check_names", "duplicates_in", "unknown_in"]

TAKE_BACK = "activated-elsewhere"
"""That a copy which was activated loses the sinks again."""
SOURCE, DUPLICATES, UNKNOWN = "source:", "duplicates:", "unknown-generation:"


def duplicates_in(sink: str) -> str:
    """That a sink gets rows twice."""
    return f"{DUPLICATES}{sink}"


def unknown_in(sink: str) -> str:
    """That a generation which a copy does not know was no rewind."""
    return f"{UNKNOWN}{sink}"


def check_names(accepted: Sequence[str]) -> None:
    """Raise BadValue for a name that nothing has: a typing error must not look like consent.

    What a source or a sink is named in is for those to judge who know them.
    """
    for name in accepted:
        if name not in CHANGES and name != TAKE_BACK and not name.startswith((SOURCE, DUPLICATES, UNKNOWN)):
            known = ", ".join([*sorted(CHANGES), TAKE_BACK, *(f"{kind}NAME" for kind in (SOURCE, DUPLICATES, UNKNOWN))])
            raise BadValue("accept", f"{name!r} is no kind of change; known are {known}")
