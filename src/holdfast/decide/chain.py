"""Whether an epoch may go into a sink: who holds it, and whether the epoch joins on to what it holds.

Every sink asks this in the transaction that writes the rows. So a range of a source can be neither lost nor doubled,
whatever went wrong above, and a driver that was overtaken commits nothing.
"""

from __future__ import annotations

import msgspec

from holdfast.epochs import NOTHING, Holder, Link, Marker, Step
from holdfast.errors import ChainBroken, Fenced, SinkTaken

__all__ = ["NOTHING", "Holder", "Link", "Marker", "Step", "admit", "go_back", "raise_fence", "require_holder"]


def raise_fence(sink: str, marker: Marker | None, holder: Holder, begin: Link) -> Marker:
    """The marker after a fence: the holder is another, and what it ends with stays. A new sink begins with `begin`.

    Raises SinkTaken for another pipeline's, Fenced if a higher generation holds it, or the same by another token.
    """
    if marker is None:
        return Marker(holder, begin, holder.generation)
    held = marker.holder
    if held.pipeline_id != holder.pipeline_id:
        raise SinkTaken(sink, held.pipeline_id)
    if held.generation > holder.generation or (held.generation == holder.generation and held.token != holder.token):
        raise _stale(sink, marker, holder)
    return msgspec.structs.replace(marker, holder=holder)


def admit(sink: str, marker: Marker | None, holder: Holder, step: Step) -> Marker | None:
    """The marker after a step, or None if the sink holds the step already.

    Raises Fenced unless the holder is the one that the sink knows, ChainBroken if the step does not join on.
    """
    marker = require_holder(sink, marker, holder)
    if marker.at == step.after and marker.decided == step.decided:
        return None
    if marker.at != step.before:
        raise ChainBroken(sink, str(step.before), str(step.after), str(marker.at))
    return Marker(holder, step.after, step.decided)


def go_back(sink: str, marker: Marker | None, holder: Holder, to: Link, decided: int) -> Marker | None:
    """The marker after a roll-back, or None if the sink stands there already. Raises Fenced as `admit` does."""
    marker = require_holder(sink, marker, holder)
    after = Marker(holder, to, decided)
    return None if marker == after else after


def require_holder(sink: str, marker: Marker | None, holder: Holder) -> Marker:
    """The marker of a sink that this holder may change. Raises Fenced, and ChainBroken for one without a marker."""
    if marker is None:
        raise ChainBroken(sink, "the fence", "anything", "no marker: it was emptied or made anew")
    if marker.holder != holder:
        raise _stale(sink, marker, holder)
    return marker


def _stale(sink: str, marker: Marker, holder: Holder) -> Fenced:
    return Fenced(sink, holder.generation, f"generation {marker.holder.generation} of its pipeline holds the sink")
