"""Where a pipeline's Spark directories lie: one for each generation that could not go on in the one before.

`runs/<generation>.json` says in which directory a generation runs; `run-<generation>` are the directories, `staging`
the rows under way, `ledger` the decisions. On one machine a lock says whether somebody is at work there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.decide.timeline import World, lineage
from holdfast.epochs import NOTHING, Link
from holdfast.errors import ObjectMissing
from holdfast.pipeline.links import link_of_offsets
from holdfast.records import Record, seal, unseal
from holdfast.spark.cut import Cut, batches_in, cut_at
from holdfast.spark.places import SparkPlace
from holdfast.store import Address, Directory, Store

__all__ = ["Home", "Standing", "new_directory"]


class RunRecord(Record, frozen=True):
    """A generation runs in a directory, which may be one that another began."""

    kind = "run"
    generation: int
    directory: str


@dataclass(frozen=True)
class Standing:
    """A directory that can be gone on in: its name, and the link of its last committed epoch."""

    directory: str
    at: Link


class Home:
    """The folder of one pipeline, on a disk or in an object store. `url` is as Spark writes it."""

    def __init__(self, place: SparkPlace) -> None:
        self.place = place
        folder = place.folder
        self.is_local = folder is not None
        self._store: Store = Address(str(folder)).store() if folder is not None else place.store()
        self._path = folder

    @property
    def url(self) -> str:
        return self.place.spelled()

    def address(self, name: str) -> Address:
        """Where a part of it lies, as Holdfast opens it."""
        if self._path is not None:
            return Address(str(self._path / name))
        return Address(f"{self._store.url.partition('?')[0].rstrip('/')}/{name}", self.place.options)

    def spelled(self, name: str) -> str:
        """The same, as Spark is given it."""
        return f"{self.url.rstrip('/')}/{name}"

    def directory(self, name: str) -> Directory:
        return SparkPlace(self.spelled(name), self.place.options, self.place.retry).directory()

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the folder as long as the block runs; gives False if another process of this machine holds it.

        In an object store nothing can be held: every generation has a directory of its own there.
        """
        if self._path is None:
            yield False
            return
        self._path.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = True
            except OSError:
                mine = False
            yield mine
        finally:
            os.close(fd)

    def is_free(self) -> bool:
        """Whether `held` would give True now. Changes nothing."""
        if self._path is None:
            return False
        try:
            fd = os.open(self._path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def runs_in(self, generation: int) -> str | None:
        key = _key(generation)
        try:
            return unseal(key, self._store.get(key), RunRecord).directory
        except ObjectMissing:
            return None

    def note_run(self, generation: int, directory: str, token: str) -> None:
        self._store.create(_key(generation), seal(RunRecord(token=token, generation=generation, directory=directory)))

    def standing(self, world: World) -> Standing | None:
        """The directory of the newest generation of the timeline that has run, if it is whole and did not leave it."""
        for generation, _, reach in lineage(world):
            name = self.runs_in(generation)
            if name is None:
                continue
            at = self._end_of(name)
            return Standing(name, at) if at is not None and (reach is None or at.epoch <= reach) else None
        return None

    def _end_of(self, name: str) -> Link | None:
        """The link of the last committed epoch; None for a directory that can't be gone on in as it is."""
        directory = self.directory(name)
        look = directory.look()
        last = batches_in(look).last_committed
        if last is None:
            return NOTHING if look.stat("metadata") is not None or not look.folders("") else None
        if not isinstance(cut_at(directory, look, last), Cut):
            return None
        return link_of_offsets(last, directory.read(f"offsets/{last}")[0])


def _key(generation: int) -> str:
    return f"runs/{generation:010}.json"


def new_directory(generation: int) -> str:
    return f"run-{generation:010}"
