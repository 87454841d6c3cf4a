"""What a missing or damaged file of a checkpoint directory means for Spark, in words. All of it was tried with 4.3."""

from __future__ import annotations

from holdfast.spark.state import parse_state_file

__all__ = ["meaning"]

_FAILS = "Spark fails at start"
_LOADS = "Spark fails in its first batch (CANNOT_LOAD_STATE_STORE)"


def meaning(name: str, *, missing: bool) -> str:
    """What becomes of a restart when this file is missing, or is there and damaged."""
    folder, _, plain = name.rpartition("/")
    if name == "metadata":
        code = " (STREAMING_CHECKPOINT_MISSING_METADATA_FILE)"
        return f"Spark does not start{code}" if missing else "Spark does not start, or starts as another query"
    if folder == "offsets":
        return f'{_FAILS} ("batch {plain} doesn\'t exist", CONCURRENT_STREAM_LOG_UPDATE)' if missing else _FAILS
    if folder == "commits":
        return f"Spark runs batch {plain} again, and a sink may get it twice" if missing else _FAILS
    if folder.startswith("sources/"):
        return f'{_FAILS} ("{name} doesn\'t exist")' if missing else f"{_FAILS}, or reads files again"
    if not folder.startswith("state/"):
        return ""
    return _of_state(name, missing)


def _of_state(name: str, missing: bool) -> str:
    if "/_stateSchema/" in name or "/_metadata/v2/" in name:
        return _FAILS
    if name.endswith("/_metadata/metadata"):
        return "Spark writes it anew, and no longer sees that the query's operators have changed"
    if name.endswith("/_metadata/schema"):
        anew = "Spark writes it anew, and no longer sees that the state's columns have changed"
        return anew if missing else _FAILS
    if name.endswith(".crc"):
        return (
            "Spark no longer checks the file beside it" if missing else "Spark may take the file beside it for damaged"
        )
    file = parse_state_file(name)
    if file is not None and file.is_delta:
        return _LOADS
    return f"Spark goes back to an older snapshot, if it has one with all that came after; else: {_LOADS}"
