"""Where the first generation of a pipeline may bring its state from: a checkpoint of another one, or a plain query.

What is brought becomes the first checkpoint of the pipeline itself, so from then on it stands alone. Killed in between,
the same call begins again: until that checkpoint stands, nothing counts.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeAlias

from holdfast.checkpoint import Checkpoint
from holdfast.epochs import Link
from holdfast.errors import BrokenBatch, InvalidManifest, NoWholeBatch, StillRunning
from holdfast.manifest import Manifest
from holdfast.pipeline.driver_states import load_driver_states
from holdfast.pipeline.links import link_of_manifest, link_of_offsets
from holdfast.pipeline.sources.past import Stand, stand_of_manifest, stand_of_offsets
from holdfast.repository.artifacts import load_artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.capture import Add, Capturer, NotYet
from holdfast.spark.cut import Cut, batches_in, cut_at
from holdfast.spark.lay import Changes, lay_down
from holdfast.spark.places import SparkPlace
from holdfast.spark.quiet import logs_of
from holdfast.spark.succession import Standing
from holdfast.store import Directory

__all__ = ["Forked", "Origin", "PlainQuery"]

Describe: TypeAlias = Callable[[int], Add | None]

STILL_SECONDS = 2.0
"""So long a plain query's directory must stand still to be taken over: its query must have stopped."""


class Origin(ABC):
    """A state from outside of the pipeline."""

    said: str
    """Where it comes from, in words."""
    link: Link
    past: PipelineRecords | None = None
    """The records of whoever has read beyond it, if there are any."""

    def driver_states(self) -> dict[str, bytes]:
        return {}

    def query(self) -> Mapping[str, str]:
        """The fingerprint of the query that made it; nothing if that is not known."""
        return {}

    @abstractmethod
    def stand(self) -> Stand:
        """Where the sources stand in it."""

    @abstractmethod
    def lay(self, records: PipelineRecords, generation: int, place: SparkPlace, describe: Describe) -> Manifest:
        """Lay it down in a new directory, and publish it as the first checkpoint of a generation."""


class Forked(Origin):
    """A checkpoint of another pipeline, or of a plain query that was captured."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._records = self.past = checkpoint.pipeline.records
        self._manifest = checkpoint.manifest
        self.said = f"fork of {self._records.name}@slot:{self._manifest.at}"
        self.link = link_of_manifest(self._manifest) or self._link_of_offsets()

    def lay(self, records: PipelineRecords, generation: int, place: SparkPlace, describe: Describe) -> Manifest:
        lay_down(
            self._records, self._manifest, place.url, changes=Changes(True), options=place.options, state_only=True
        )
        return _publish(records, generation, place.directory(), self.link.epoch, describe)

    def stand(self) -> Stand:
        return stand_of_manifest(self._manifest)

    def driver_states(self) -> dict[str, bytes]:
        return load_driver_states(self._records, self._manifest)

    def query(self) -> Mapping[str, str]:
        return self._manifest.fingerprint

    def _link_of_offsets(self) -> Link:
        epoch = self._manifest.epoch
        artifact = self._manifest.files.get(f"offsets/{epoch}")
        if artifact is None:
            raise InvalidManifest(str(self._manifest.at), ["it was not captured from a Spark query"])
        return link_of_offsets(epoch, load_artifact(self._records.store, self._records.keys, artifact))


class PlainQuery(Origin):
    """The checkpoint directory of a plain query that has stopped. It stays as it is."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        place = SparkPlace(url, options)
        self._directory = place.directory()
        self.said = f"adopted from {place.spelled()}"
        self._refuse_running()
        look = self._directory.look()
        last = batches_in(look).last_committed
        if last is None:
            raise NoWholeBatch(self._directory.url, "no batch is committed")
        found = cut_at(self._directory, look, last)
        if not isinstance(found, Cut):
            raise BrokenBatch(self._directory.url, last, [str(found)])
        offsets = self._directory.read(f"offsets/{last}")[0]
        self.link, self._stand = link_of_offsets(last, offsets), stand_of_offsets(last, offsets)

    def stand(self) -> Stand:
        return self._stand

    def lay(self, records: PipelineRecords, generation: int, place: SparkPlace, describe: Describe) -> Manifest:
        manifest = _publish(records, generation, self._directory, self.link.epoch, describe)
        lay_down(records, manifest, place.url, options=place.options, state_only=True)
        return manifest

    def _refuse_running(self) -> None:
        seen = logs_of(self._directory)
        time.sleep(STILL_SECONDS)
        if logs_of(self._directory) != seen:
            raise StillRunning(self._directory.url)


def _publish(
    records: PipelineRecords, generation: int, directory: Directory, epoch: int, describe: Describe
) -> Manifest:
    capturer = Capturer(records, directory, standing=Standing(generation, None), add=describe)
    try:
        taken = capturer.take(known=epoch)
    finally:
        capturer.close()
    if isinstance(taken, NotYet):
        raise NoWholeBatch(directory.url, taken.why)
    if taken.manifest.epoch != epoch:
        raise StillRunning(directory.url)
    return taken.manifest
