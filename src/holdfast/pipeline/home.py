"""Where a pipeline's Spark directories lie: one for each generation that could not go on in the one before.

`owner.json` says whose they are, `runs/<generation>.json` in which directory a generation runs; `run-<generation>` are
the directories, `staging` the rows under way, `ledger` the decisions. On one machine a lock says whether somebody is
at work there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.decide.timeline import World, lineage
from holdfast.epochs import NOTHING, Link
from holdfast.errors import DirectoryTaken, ObjectMissing
from holdfast.ids import new_token
from holdfast.pipeline.links import link_of_offsets
from holdfast.records import Record, seal, unseal
from holdfast.spark.cut import Cut, batches_in, cut_at
from holdfast.spark.logs import Malformed
from holdfast.spark.places import SparkPlace
from holdfast.store import Address, Directory, Store

__all__ = ["Home", "Last", "new_directory"]

OWNER = "owner.json"
RUN = re.compile(r"run-\d{10}")


class HomeRecord(Record, frozen=True):
    """The folder belongs to a pipeline; another may have its name, in another repository."""

    kind = "home"
    pipeline: str
    pipeline_id: str


class RunRecord(Record, frozen=True):
    """A generation runs in a directory, which may be one that another began; `epoch` is where the directory stood."""

    kind = "run"
    generation: int
    directory: str
    epoch: int = -1


@dataclass(frozen=True)
class Last:
    """The directory that the timeline ran in last: its name, and the last epoch of it that counts (None: all).

    `at` is the link of its last committed epoch, None if files are missing there. It is suspect if the last run in it
    committed nothing: it may have failed for a damage that only reading shows.
    """

    directory: str
    reach: int | None
    at: Link | None
    is_suspect: bool


class Home:
    """The folder of one pipeline, on a disk or in an object store. `url` is as Spark writes it."""

    def __init__(self, place: SparkPlace) -> None:
        self.place = place
        folder = place.folder.absolute() if place.folder is not None else None
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

    def require_owner(self, pipeline_id: str) -> None:
        """Raise DirectoryTaken if the folder belongs to another pipeline; one that is new has no id yet."""
        try:
            owner = unseal(OWNER, self._store.get(OWNER), HomeRecord)
        except ObjectMissing:
            return
        if owner.pipeline_id != pipeline_id:
            raise DirectoryTaken(self.url, f"{owner.pipeline} ({owner.pipeline_id})")

    def own(self, pipeline: str, pipeline_id: str) -> None:
        """Have the folder belong to a pipeline. Raises DirectoryTaken if another was first."""
        record = HomeRecord(token=new_token(), pipeline=pipeline, pipeline_id=pipeline_id)
        if not self._store.create(OWNER, seal(record)):
            self.require_owner(pipeline_id)

    def note_run(self, generation: int, directory: str, epoch: int) -> None:
        """Say where a generation runs. Once for each generation."""
        record = RunRecord(token=new_token(), generation=generation, directory=directory, epoch=epoch)
        self._store.create(_key(generation), seal(record))

    def last(self, world: World) -> Last | None:
        """The directory of the newest generation of the timeline that has run here."""
        for generation, _, reach in lineage(world):
            run = self._run_of(generation)
            if run is not None:
                at = self._end_of(run.directory)
                return Last(run.directory, reach, at, at is not None and at.epoch >= 0 and at.epoch == run.epoch)
        return None

    def runs_in(self, generation: int) -> str | None:
        """The directory that a generation runs in; None if it does not run here."""
        run = self._run_of(generation)
        return run.directory if run else None

    def clear(self, generation: int, directory: str) -> list[str]:
        """Remove the directories that no start needs any more, and give their names; called by whoever runs in one.

        A start goes on in none but the last of its timeline, and that is the caller's from now on. The one before it
        stays as well: an older driver may still be at work in it, and nothing fences Spark's own writes. Those of
        higher generations are never touched: the caller may have been overtaken meanwhile.
        """
        runs = [name for name in self._store.folders("") if RUN.fullmatch(name)]
        older = sorted(name for name in runs if name != directory and name < new_directory(generation))[:-1]
        for name in older:
            self._remove(name)
        return older

    def _remove(self, name: str) -> None:
        if self._path is not None:
            # What can't be removed now, since Spark's upkeep writes there, the next start removes.
            shutil.rmtree(self._path / name, ignore_errors=True)
        else:
            self._store.delete([info.key for info in self._store.list(f"{name}/")])

    def _run_of(self, generation: int) -> RunRecord | None:
        key = _key(generation)
        try:
            return unseal(key, self._store.get(key), RunRecord)
        except ObjectMissing:
            return None

    def _end_of(self, name: str) -> Link | None:
        """The link of the last committed epoch; None for a directory that can't be gone on in as it is."""
        directory = self.directory(name)
        look = directory.look()
        last = batches_in(look).last_committed
        if last is None:
            return NOTHING if look.stat("metadata") is not None or not look.folders("") else None
        try:
            if not isinstance(cut_at(directory, look, last), Cut):
                return None
            return link_of_offsets(last, directory.read(f"offsets/{last}")[0])
        except (Malformed, ObjectMissing):
            return None


def _key(generation: int) -> str:
    return f"runs/{generation:010}.json"


def new_directory(generation: int) -> str:
    return f"run-{generation:010}"
