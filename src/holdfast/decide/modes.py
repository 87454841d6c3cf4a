"""Which rows may go where: the output mode of a query against the write mode of a sink."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import BadValue

__all__ = ["OUTPUT_MODES", "refuse_mode", "why_not"]

OUTPUT_MODES = ("append", "update", "complete")

_FITTING: Mapping[tuple[str, str], str | None] = {
    ("append", "append"): None,
    ("append", "upsert"): None,
    ("append", "overwrite"): "each epoch would throw away the rows of those before it",
    ("update", "upsert"): None,
    ("update", "append"): "a row that is updated would stand there in every version: ask for that with changelog=True",
    ("update", "overwrite"): "only the rows that changed would be left",
    ("complete", "overwrite"): None,
    ("complete", "append"): "each epoch would add the whole result once more",
    ("complete", "upsert"): "rows that are gone from the result would stay",
}


def why_not(output_mode: str, write_mode: str, *, changelog: bool = False) -> str | None:
    """Why a sink with this write mode can't take a query's output, or None if it can."""
    if (output_mode, write_mode) == ("update", "append") and changelog:
        return None
    return _FITTING[output_mode, write_mode]


def refuse_mode(sink: str, output_mode: str, write_mode: str, *, changelog: bool = False) -> None:
    """Raise BadValue for a pair that does not fit."""
    if output_mode not in OUTPUT_MODES:
        raise BadValue("output mode", f"{output_mode!r} is not one of {', '.join(OUTPUT_MODES)}")
    why = why_not(output_mode, write_mode, changelog=changelog)
    if why is not None:
        raise BadValue(f"sink {sink!r}", f"output mode {output_mode} into mode {write_mode}: {why}")
