"""A look at the sources before a pipeline goes on: is all still there that it would read again?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from holdfast.decide.replayable import SourceFinding
from holdfast.decide.start import decisions_that_count
from holdfast.decide.timeline import World, timeline
from holdfast.draft import Description
from holdfast.errors import Damage, SourcesGone
from holdfast.manifest import Manifest
from holdfast.pipeline.sources.contract import Source
from holdfast.pipeline.sources.past import (
    Stand,
    key_of,
    logged_by,
    logged_in,
    pasts_of,
    stand_of_manifest,
    stand_of_offsets,
)
from holdfast.pipeline.takeover import Found
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["Identities", "Preflight"]


class Preflight:
    """Judges the sources of one start, rewind or fork. `accept` holds the slugs of findings that shall not stop it.

    `past` are the records of whoever has read beyond the state, and whose rows would be read again: the pipeline's own
    for a rewind, those of the one that is forked.
    """

    def __init__(
        self,
        records: PipelineRecords,
        sources: Sequence[Source],
        accept: Collection[str] = (),
        *,
        past: PipelineRecords | None = None,
    ) -> None:
        self._records = records
        self._sources = sources
        self._accept = accept
        self._past = past
        self._judged: tuple[object, list[SourceFinding]] | None = None

    def asking(
        self, find: Callable[[World], Found], stand: Callable[[Found], Stand | None]
    ) -> Callable[[World], Found]:
        """The same as `find`, but refused if what it finds can't be gone on from: before the claim, and after it.

        `stand` says where the sources stand in what was found; None if nothing was ever read.
        """

        def judged(world: World) -> Found:
            found = find(world)
            begin = stand(found)
            if begin is not None:
                self.require(self.findings(world, found, begin))
            return found

        return judged

    def findings(self, world: World, found: Found, begin: Stand) -> list[SourceFinding]:
        """What stands in the way of going on from there; what is the same as the last time is not asked again.

        A start reads again what was decided after its state; a rewind, or a fork, all that was ever read after it.
        """
        counted = decisions_that_count(world, found.decisions)
        later = [several[0] for epoch, several in counted.items() if epoch > begin.epoch]
        at = (begin.epoch, [decision.token for decision in later])
        if self._judged is None or self._judged[0] != at:
            logged = logged_by(later)
            furthest = stand_of_offsets(later[-1].epoch, later[-1].offsets) if later else begin
            last = _newest_readable(self._past) if self._past is not None else None
            if last is not None and self._past is not None:
                for key, entries in logged_in(self._past, last).items():
                    logged.setdefault(key, []).extend(entries)
                furthest = max(furthest, stand_of_manifest(last), key=lambda each: each.epoch)
            pasts = pasts_of(self._sources, begin, furthest, logged)
            self._judged = at, [finding for source, past in pasts for finding in source.judge(past)]
        return self._judged[1]

    def require(self, findings: Sequence[SourceFinding]) -> None:
        """Raise SourcesGone for what was found and is not accepted."""
        refused = [each for each in findings if each.severity == "refuse" and each.slug not in self._accept]
        if refused:
            slugs = sorted({finding.slug for finding in refused})
            raise SourcesGone(self._records.name, [str(finding) for finding in refused], slugs)


def _newest_readable(records: PipelineRecords) -> Manifest | None:
    """A damaged checkpoint may be the very reason to go back: what it knew can't be asked for."""
    for slot in reversed(timeline(records.world())):
        with suppress(Damage):
            return records.manifest(slot)
    return None


class Identities:
    """Adds to what checkpoints say of the sources what they are: a topic that is made anew has the same name."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._known: dict[str, dict[str, str]] = {}

    def add(self, about: Description) -> Description:
        offsets = dict(about.source_offsets)
        for number, source in enumerate(self._sources):
            key = key_of(number, source, offsets)
            if key is not None:
                known = source.identity(offsets[key].offsets, self._known.get(key, {}))
                self._known[key] = dict(known)
                offsets[key] = msgspec.structs.replace(offsets[key], metadata={**offsets[key].metadata, **known})
        return replace(about, source_offsets=offsets)
