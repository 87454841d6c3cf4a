"""Files laid down in a new place, whole or not at all: a folder is moved there at the end, a store has a mark lifted.

Everything is verified on its way: no byte arrives that was not checked against its digest.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path

from holdfast.errors import PlaceNotEmpty
from holdfast.ids import new_token
from holdfast.manifest import Artifact
from holdfast.repository.artifacts import load_artifacts, stream_artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.store.contract import Buffer, Store
from holdfast.store.disk import sync_below

__all__ = ["Folder", "Place", "Progress", "StoreFolder", "lay_files"]

Progress = Callable[[str, int, int], None]

STREAM_FROM = 8 * 1024 * 1024
THREADS = 4
WRITERS = 16


class Place(ABC):
    """A new place that files are written into; `finish` makes it count. Safe from several threads."""

    url: str
    costly: bool

    @abstractmethod
    def write(self, name: str, data: Buffer) -> None: ...

    @abstractmethod
    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None: ...


class Folder(Place):
    """A local folder: written beside its name and moved there whole. A crash leaves a `.NAME.….partial` and no more."""

    costly = False

    def __init__(self, destination: Path) -> None:
        self.destination = destination.absolute()
        self.url = str(self.destination)
        self._refuse_full()
        self.partial = self.destination.with_name(f".{self.destination.name}.{new_token()}.partial")
        self._made: set[str] = set()

    @contextmanager
    def opened(self) -> Iterator[Folder]:
        """Write inside; the folder appears when the block ends well, and nothing is left when it does not."""
        self.partial.mkdir(parents=True)
        try:
            yield self
            sync_below(self.partial)
            # Moving onto an empty folder is atomic; onto a full one it fails, whoever filled it meanwhile.
            self.partial.rename(self.destination)
            sync_below(self.destination.parent, deep=False)
        except OSError:
            self._refuse_full()
            raise
        finally:
            shutil.rmtree(self.partial, ignore_errors=True)

    def write(self, name: str, data: Buffer) -> None:
        with self._open(name) as file:
            file.write(data)

    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None:
        with self._open(name) as file:
            for chunk in chunks:
                file.write(chunk)

    @contextmanager
    def _open(self, name: str) -> Iterator[RawIOBase]:
        path = f"{self.partial}/{name}"
        above = os.path.dirname(path)  # noqa: PTH120 - thousands of these, and Path objects cost more than the write
        if above not in self._made:
            os.makedirs(above, exist_ok=True)  # noqa: PTH103
            self._made.add(above)
        with open(path, "xb", buffering=0) as file:  # noqa: PTH123
            yield file

    def _refuse_full(self) -> None:
        if self.destination.exists() and (not self.destination.is_dir() or any(self.destination.iterdir())):
            raise PlaceNotEmpty(str(self.destination))


class StoreFolder(Place):
    """A folder in an object store, where nothing can be moved: a mark under one name is written first and lifted last.

    Whoever would use the folder must fail at the mark. The same mark there already was left by a restore that this one
    repeats: it goes on, since it writes the same bytes under the same names.
    """

    costly = True

    def __init__(self, store: Store, mark_name: str, mark: bytes) -> None:
        self.url = store.url
        self._store = store
        self._mark_name = mark_name
        self._mark = mark

    @contextmanager
    def opened(self, last: bytes) -> Iterator[StoreFolder]:
        """Write inside; when the block ends well `last` takes the place of the mark."""
        there = [info.key for info in self._store.list("")]
        if there and (self._mark_name not in there or self._store.get(self._mark_name) != self._mark):
            raise PlaceNotEmpty(self.url)
        self._store.put(self._mark_name, self._mark)
        yield self
        self._store.put(self._mark_name, last)

    def write(self, name: str, data: Buffer) -> None:
        self._store.put(name, data)

    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None:
        self._store.write(name, chunks)


def lay_files(
    records: PipelineRecords,
    files: Mapping[str, Artifact],
    place: Place,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Write artifacts under their names, verified, and give how many files and bytes that were.

    Raises DamagedArtifact if a byte is not what was saved.
    """
    report = progress or (lambda _what, _done, _total: None)
    names: dict[Artifact, list[str]] = {}
    for name, artifact in files.items():
        names.setdefault(artifact, []).append(name)
    total = sum(artifact.size_bytes for artifact in files.values())
    large = [a for a in names if a.path is not None and a.size_bytes >= STREAM_FROM]
    small = [a for a in names if a.path is None or a.size_bytes < STREAM_FROM]
    done = 0

    def write(artifact: Artifact, data: bytes) -> int:
        for name in names[artifact]:
            place.write(name, data)
        return artifact.size_bytes * len(names[artifact])

    def stream(artifact: Artifact) -> int:
        for name in names[artifact]:
            place.write_stream(name, stream_artifact(records.store, records.keys, artifact))
        return artifact.size_bytes * len(names[artifact])

    with (
        ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-restore") as readers,
        ThreadPoolExecutor(WRITERS if place.costly else 1, thread_name_prefix="holdfast-lay") as writers,
    ):
        under_way: list[Future[int]] = [readers.submit(stream, artifact) for artifact in large]
        for artifact, data in load_artifacts(records.store, records.keys, small, readers if place.costly else None):
            if place.costly:
                under_way.append(writers.submit(write, artifact, data))
            else:
                done += write(artifact, data)
                report("restoring", done, total)
        for future in under_way:
            done += future.result()
            report("restoring", done, total)
    return len(files), total
