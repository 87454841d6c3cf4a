"""The file sink of a query that is restored: its log, cut back, laid beside the directory and put in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import BadValue, PlaceNotEmpty
from holdfast.laying import Folder, StoreFolder
from holdfast.manifest import Manifest
from holdfast.spark.locations import PathMap
from holdfast.spark.moving import Changes, Moving
from holdfast.spark.places import SparkPlace
from holdfast.spark.sink_log import Trimmed, trim
from holdfast.spark.sink_swap import swap_in

__all__ = ["FileSink", "Sinking"]

UNFINISHED = b"holdfast has not finished this copy\n"
"""Stands in the newest entry until the others are there: Spark fails at an entry that begins with no version."""


@dataclass(frozen=True)
class FileSink:
    """The file sink that the query writes to, whose log is to be cut back; with `apply`, at its own place."""

    url: str
    options: Mapping[str, str] | None = None
    apply: bool = False


@dataclass(frozen=True)
class Sinking:
    """The trimmed log of a sink, and where it goes: to a copy, and, if that is asked for, into the sink."""

    sink: SparkPlace
    copy: SparkPlace
    trimmed: Trimmed
    apply: bool

    @classmethod
    def plan(
        cls, sink: FileSink, moving: Moving, manifest: Manifest, changes: Changes, destination: SparkPlace
    ) -> Sinking:
        """Read and trim the log. Whatever stands in the way is raised here, before anything is written."""
        if changes.fork and sink.apply:
            raise BadValue("the file sink of a fork", "its log belongs to the query that it is forked from")
        place = SparkPlace(sink.url, sink.options or {}, destination.retry)
        recorded, mapping = moving.recorded_sink_log(), PathMap.of(changes.map_paths)
        trimmed = trim(
            place.spelled(), place.directory(), manifest.epoch, recorded, mapping, since_ms=manifest.timestamp_ms
        )
        planned = cls(place, destination.beside("-sink-log"), trimmed, sink.apply)
        planned._place()
        return planned

    def act(self) -> str | None:
        """Lay the copy down and, if asked for, swap it in; gives where the old log is then. Can be run again."""
        place, files = self._place(), self.trimmed.files
        if isinstance(place, Folder):
            with place.opened():
                for name, data in files.items():
                    place.write(name, data)
        elif place is not None:
            newest = self.trimmed.newest
            with place.opened(UNFINISHED):
                for name in files.keys() - {newest}:
                    place.write(name, files[name])
                place.lift(files[newest])
        return swap_in(self.sink, self.trimmed) if self.apply else None

    def _place(self) -> Folder | StoreFolder | None:
        """Where the copy is to be laid down; None if it lies there already. Raises PlaceNotEmpty."""
        directory, files = self.copy.directory(), self.trimmed.files
        names = directory.look().files("")
        if set(names) == set(files) and all(directory.read(name)[0] == data for name, data in files.items()):
            return None
        if self.copy.folder is not None:
            return Folder(self.copy.folder)
        place = StoreFolder(self.copy.store(), self.trimmed.newest)
        if place.standing() not in (None, UNFINISHED):
            raise PlaceNotEmpty(place.url)
        return place
