"""How far back a pipeline can still go: each checkpoint against its sinks and sources as they stand now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.checkpoint import Checkpoint
from holdfast.decide.replayable import SourceFinding, Until, soonest
from holdfast.epochs import Target
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.manifest import Manifest
from holdfast.pipeline.links import link_of_manifest
from holdfast.pipeline.sources.contract import LogEntry, Source
from holdfast.pipeline.sources.past import Stand, logged_in, pasts_of, stand_of_manifest
from holdfast.pipeline.takeover import targets_in
from holdfast.sinks.contract import Sink, what_bars

__all__ = ["Reach", "reach_of"]


@dataclass(frozen=True)
class Reach:
    """Whether one checkpoint can be gone back to: why each sink can't (None: it can), and what the sources say.

    `until` is for how long all that comes after it can be read again, as things stand.
    """

    slot: Slot
    epoch: int
    timestamp_ms: int
    on_timeline: bool
    savepoints: tuple[str, ...]
    sinks: Mapping[str, str | None]
    sources: Sequence[SourceFinding]
    until: Until

    @property
    def why_not(self) -> list[str]:
        """All that stands in the way of a rewind; nothing if it goes."""
        stuck = [f"sink {name}: {why}" for name, why in self.sinks.items() if why is not None]
        return stuck + [str(finding) for finding in self.sources if finding.severity == "refuse"]

    def document(self) -> dict[str, object]:
        """The same as plain values."""
        sources = [{"slug": each.slug, "severity": each.severity, "why": each.why} for each in self.sources]
        return {
            "slot": self.slot,
            "epoch": self.epoch,
            "timestamp_ms": self.timestamp_ms,
            "on_timeline": self.on_timeline,
            "savepoints": self.savepoints,
            "rewind": not self.why_not,
            "why_not": self.why_not,
            "sinks": self.sinks,
            "sources": sources,
            "replay_until_ms": self.until.ms,
            "replay_unknown": self.until.why,
        }


def reach_of(stored: StoredPipeline, sinks: Mapping[str, Sink], sources: Sequence[Source]) -> list[Reach]:
    """The reach of every checkpoint, oldest first, abandoned ones before the others."""
    checkpoints = stored.checkpoints(with_abandoned=True)
    if not checkpoints:
        return []
    last = checkpoints[-1].manifest
    logged, furthest = logged_in(stored.records, last), stand_of_manifest(last)
    named: dict[Slot, list[str]] = {}
    for name, savepoint in sorted(stored.savepoints().items()):
        named.setdefault(savepoint.at, []).append(name)
    return [
        _reach(checkpoint, tuple(named.get(checkpoint.slot, ())), sinks, sources, furthest, logged)
        for checkpoint in checkpoints
    ]


def _reach(
    checkpoint: Checkpoint,
    savepoints: tuple[str, ...],
    sinks: Mapping[str, Sink],
    sources: Sequence[Source],
    furthest: Stand,
    logged: Mapping[str, Sequence[LogEntry]],
) -> Reach:
    manifest = checkpoint.manifest
    pasts = pasts_of(sources, stand_of_manifest(manifest), furthest, logged)
    return Reach(
        manifest.at,
        manifest.epoch,
        manifest.timestamp_ms,
        checkpoint.counts,
        savepoints,
        {name: _why_not(sink, manifest, checkpoint.counts) for name, sink in sinks.items()},
        [finding for source, past in pasts for finding in source.judge(past)],
        soonest(source.until(past) for source, past in pasts),
    )


def _why_not(sink: Sink, manifest: Manifest, on_timeline: bool) -> str | None:
    target: Target | None = targets_in(manifest).get(sink.name)
    if link_of_manifest(manifest) is None or target is None:
        return "the checkpoint knows nothing of it"
    if not on_timeline and not sink.can_jump:
        return "the checkpoint lies off the timeline, and it can only go back the way that it came"
    marker = sink.look()
    if marker is None:
        return "it holds no marker any more: it was emptied or made anew"
    if marker.at == target.at and marker.decided == target.decided:
        return None
    return what_bars(sink, target)
