"""Captures and restores whose bytes Spark's executors move: the driver sees names, digests and sizes.

A job costs some 0.4 s before the first byte moves, so it pays for much state only, or where the driver should not, or
can't, carry the bytes.
"""

# Plain os calls, as in laying.py: thousands of small files.
# ruff: noqa: PTH102, PTH104, PTH118, PTH120

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.draft import Draft
from holdfast.errors import CannotAttach, ChangedWhileRead, DamagedArtifact, ExecutorsFailed, ObjectMissing
from holdfast.ids import new_token
from holdfast.laying import Folder, Place, Progress, StoreFolder, lay_files
from holdfast.layout import PipelineKeys
from holdfast.manifest import Artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.uploads import Limits, Upload
from holdfast.spark.executors import Executors, share_out
from holdfast.spark.moving import METADATA
from holdfast.spark.places import SparkPlace
from holdfast.store import Address
from holdfast.store.contract import Buffer
from holdfast.store.directory import FileStat
from holdfast.store.disk import sync, write_all

__all__ = ["Layer", "Sender", "sender_for"]

MIB = 1024 * 1024
WORTH_A_JOB = 512 * MIB
"""Below so many bytes a few threads of the driver are done before a job would be."""

LIMITS = Limits(inline=0, pack=32 * MIB, concurrency=2)
"""A Python process on an executor has less memory than the driver, and several stand beside each other."""

NAMES_OF_A_TASK = 1_000_000
ATTEMPTS = 64
"""Each attempt of a task numbers its objects in a range of its own, drawn from so many bits: none meets another."""


# ---- captures ----


class Sent(msgspec.Struct, frozen=True):
    """What a task has sent: files with their stamps as they were read, and the objects that hold them.

    `gone` is a file that was not there any more, `changed` one that was replaced while it was read.
    """

    files: dict[str, Artifact] = {}
    objects: dict[str, int] = {}
    gone: str = ""
    changed: str = ""


def sender_for(context: Any, directory: Address, repository: Address, distribute: bool | None) -> Sender | None:
    """Who moves the large captures of a query in this context: the executors, or None for the driver.

    By size (`distribute` is None) the executors are chosen only where they are processes of their own, and both places
    are the same from everywhere. Asked for outright, CannotAttach is raised if they can't do it.
    """
    if distribute is False:
        return None
    if distribute is None:
        executors = Executors(context) if context is not None else None
        reached = directory.is_everywhere and repository.is_everywhere
        return Sender(executors, directory, repository) if executors and executors.are_elsewhere and reached else None
    if context is None:
        raise CannotAttach("on Spark Connect the executors can't be given work from here: leave distribute out")
    if repository.is_here_only:
        raise CannotAttach("the repository is in the memory of this process, where no executor can reach it")
    executors = Executors(context)
    try:
        executors.prove(directory, repository)
    except ExecutorsFailed as failure:
        raise CannotAttach(failure.message) from failure
    return Sender(executors, directory, repository, always=True)


@dataclass
class Sender:
    """Moves the files of a capture by a Spark job: by size where that pays, with `always` in any case.

    By size the executors are first tried out, once; `why_not` is what they lacked.
    """

    executors: Executors
    directory: Address
    repository: Address
    always: bool = False
    limits: Limits = LIMITS
    why_not: str | None = None
    proven: bool = False

    def is_worth(self, files: Mapping[str, FileStat]) -> bool:
        if self.always:
            return True
        return sum(stat.size for stat in files.values()) >= WORTH_A_JOB and self._can()

    def send(self, draft: Draft, files: Mapping[str, FileStat]) -> dict[str, FileStat]:
        """Have the executors send files of the directory into the draft, and give the versions that they read.

        They leave half of the cores to the query. Raises ObjectMissing, ChangedWhileRead and ExecutorsFailed.
        """
        shares = share_out({name: stat.size for name, stat in files.items()}, self.executors.cores // 2)
        task = SendTask(self.directory, self.repository, *draft.shared_upload(), self.limits)
        sent = [msgspec.json.decode(answer, type=Sent) for answer in self.executors.run(task, shares)]
        for answer in sent:
            draft.adopt_files(answer.files, answer.objects)
        for answer in sent:
            if answer.gone:
                raise ObjectMissing(self.directory.url, answer.gone)
            if answer.changed:
                raise ChangedWhileRead(self.directory.url, answer.changed)
        return {
            name: FileStat(artifact.size_bytes, artifact.stamp or "", files[name].modified_ns)
            for answer in sent
            for name, artifact in answer.files.items()
        }

    def _can(self) -> bool:
        if not self.proven and self.why_not is None:
            try:
                self.executors.prove(self.directory, self.repository)
                self.proven = True
            except ExecutorsFailed as failure:
                self.why_not = failure.message
        return self.proven


@dataclass(frozen=True)
class SendTask:
    """One task of a capture: it reads a share of the files and sends them into the upload that the driver began."""

    directory: Address
    repository: Address
    keys: PipelineKeys
    folder: str
    limits: Limits

    def __call__(self, shares: Iterable[Sequence[str]]) -> Iterator[bytes]:
        for names in shares:
            yield msgspec.json.encode(self.send(names, (1 + secrets.randbits(ATTEMPTS)) * NAMES_OF_A_TASK))

    def send(self, names: Sequence[str], first: int) -> Sent:
        """Send these files, naming objects from `first` on; what was sent before one was gone is told as well."""
        directory = self.directory.directory()
        files: dict[str, Artifact] = {}
        gone = changed = ""
        with ThreadPoolExecutor(self.limits.concurrency, thread_name_prefix="holdfast-send") as pool:
            upload = Upload(self.repository.store(), self.keys, self.folder, self.limits, pool, first=first)
            for name in names:
                try:
                    stat, chunks = directory.stream(name)
                    if stat.size >= self.limits.single:
                        artifact = upload.add_stream(chunks)
                    else:
                        data = b"".join(chunks)
                        artifact = upload.add(data, hashlib.sha256(data).hexdigest())
                except ObjectMissing:
                    gone = name
                except ChangedWhileRead:
                    changed = name
                if gone or changed:
                    break
                files[name] = msgspec.structs.replace(artifact, stamp=stat.stamp)
            return Sent(files, upload.finish(), gone, changed)


# ---- restores ----


class Wrote(msgspec.Struct, frozen=True):
    """What a task has written, or the artifact that it found damaged."""

    bytes: int = 0
    damaged: str = ""
    why: str = ""


@dataclass(frozen=True)
class Layer:
    """Lays files down by a Spark job. A local destination must be the same folder on every executor."""

    executors: Executors
    repository: Address

    def lay(
        self,
        records: PipelineRecords,
        files: Mapping[str, Artifact],
        place: Place,
        destination: SparkPlace,
        progress: Progress | None,
    ) -> int:
        """Write artifacts under their names, verified, and give how many bytes that were.

        What lies in one object goes to one task. Raises DamagedArtifact and ExecutorsFailed.
        """
        total = sum(artifact.size_bytes for artifact in files.values())
        if not files:
            return total
        if progress is not None:
            progress("restoring", 0, total)
        sizes: dict[str, int] = {}
        for artifact in files.values():
            sizes[artifact.path or ""] = sizes.get(artifact.path or "", 0) + artifact.size_bytes
        shares = [
            msgspec.json.encode({name: artifact for name, artifact in files.items() if (artifact.path or "") in paths})
            for paths in map(set, share_out(sizes, 2 * self.executors.cores))
        ]
        with _spare(place) as spare:
            task = LayTask(self.repository, records.name, records.repository_id, destination, spare)
            for answer in self.executors.run(task, shares):
                wrote = msgspec.json.decode(answer, type=Wrote)
                if wrote.damaged:
                    raise DamagedArtifact(wrote.damaged, wrote.why)
        if progress is not None:
            progress("restoring", total, total)
        return total


@dataclass(frozen=True)
class Spare:
    """A folder that files are moved into once they are whole, and one beside it that they are written in."""

    final: str
    written_in: str


@dataclass(frozen=True)
class LayTask:
    """One task of a restore: it brings a share of the artifacts to where they belong."""

    repository: Address
    pipeline: str
    repository_id: str
    destination: SparkPlace
    spare: Spare | None

    def __call__(self, shares: Iterable[bytes]) -> Iterator[bytes]:
        for share in shares:
            yield msgspec.json.encode(self.lay(msgspec.json.decode(share, type=dict[str, Artifact])))

    def lay(self, files: Mapping[str, Artifact]) -> Wrote:
        records = PipelineRecords(self.repository.store(), self.pipeline, self.repository_id)
        place = SharedFolder(self.spare) if self.spare else StoreFolder(self.destination.store(), METADATA)
        try:
            _, size = lay_files(records, files, place)
        except DamagedArtifact as damage:
            return Wrote(damaged=damage.path, why=damage.why)
        return Wrote(size)


class SharedFolder(Place):
    """A folder that several processes fill. Each file is written and synced elsewhere and moved in whole.

    An attempt that Spark has given up may go on for a while: all it can do is put the same bytes there once more, and
    nothing at all once the restore is over and both folders have gone from where they were.
    """

    costly = False

    def __init__(self, spare: Spare) -> None:
        self.url = spare.final
        self._spare = spare
        self._made = {""}

    def write(self, name: str, data: Buffer) -> None:
        self.write_stream(name, [data])

    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None:
        written = os.path.join(self._spare.written_in, new_token())
        final = os.path.join(self._spare.final, name)
        fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            for chunk in chunks:
                write_all(fd, chunk)
            sync(fd)
        finally:
            os.close(fd)
        self._make(os.path.dirname(name))
        os.rename(written, final)

    def _make(self, folder: str) -> None:
        """Make a folder and those above it, but never the one that all lies in."""
        if folder not in self._made:
            self._make(os.path.dirname(folder))
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(self._spare.final, folder))
            self._made.add(folder)


@contextlib.contextmanager
def _spare(place: Place) -> Iterator[Spare | None]:
    """Where tasks write for a local place; in a store they write under the final names at once."""
    if not isinstance(place, Folder):
        yield None
        return
    with place.beside() as written_in:
        yield Spare(str(place.partial), str(written_in))
