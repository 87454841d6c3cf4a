"""Files laid down in a new place, whole or not at all: a folder is moved there at the end, a store has a mark lifted.

Everything is verified on its way: no byte arrives that was not checked against its digest.
"""

# Plain os calls, as in store/disk.py: thousands of small files, and Path objects cost more than the writes.
# ruff: noqa: PTH102, PTH104, PTH116

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from holdfast.errors import BadURL, Damage, DamagedArtifact, ObjectMissing, PlaceNotEmpty
from holdfast.ids import new_token
from holdfast.manifest import Artifact
from holdfast.repository.artifacts import load_artifacts, stream_artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.store.contract import Buffer, Store
from holdfast.store.disk import begin_writing_out, failure, make_folders, sync_below, write_all

__all__ = ["Folder", "Place", "Progress", "StoreFolder", "lay_files"]

Progress = Callable[[str, int, int], None]

STREAM_FROM = 8 * 1024 * 1024
THREADS = 4
WRITERS = 16
WAITING = 64 * 1024 * 1024
"""How many bytes may wait to be written: a store can be slower than the one that is read from."""
LONGEST = 150
"""A name that is longer would, with what is put before and after it, be too long for a file system."""


class Place(ABC):
    """A new place that files are written into. Safe from several threads."""

    url: str
    costly: bool
    """Whether each write is a request that is worth a thread of its own."""

    @abstractmethod
    def write(self, name: str, data: Buffer) -> None: ...

    @abstractmethod
    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None: ...


class Folder(Place):
    """A local folder: written beside its name and moved there whole.

    A process that is killed leaves a `.NAME.….partial` and no more; the next one for the same name removes it. Whether
    its owner lives is told by a lock (flock) on the folder, which the system lets go of when a process dies.
    """

    costly = False

    def __init__(self, destination: Path) -> None:
        # A link is followed: what is moved into place can't take that of a link.
        self.destination = Path(os.path.realpath(destination))
        self.url = str(self.destination)
        self.partial = self.destination
        self._fd = -1
        self._made: set[str] = {""}
        self._refuse_full()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Folder]:
        """Write inside; the folder appears when the block ends well, and nothing is left when it does not."""
        try:
            make_folders(str(self.destination.parent))
            _remove_dead(self.destination)
            self.partial, self._fd = _begin(self.destination)
            try:
                yield self
                self._finish()
            finally:
                shutil.rmtree(self.partial, ignore_errors=True)
                os.close(self._fd)
        except OSError as error:
            self._refuse_full()
            raise failure(error, self.url, "restore") from error

    def write(self, name: str, data: Buffer) -> None:
        fd = self._open(name)
        try:
            write_all(fd, data)
            begin_writing_out(fd, len(data))
        finally:
            os.close(fd)

    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None:
        fd = self._open(name)
        try:
            for chunk in chunks:
                write_all(fd, chunk)
                begin_writing_out(fd, len(chunk))
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def beside(self, *, remove_dead: bool = False) -> Iterator[Path]:
        """Another folder on the same file system, gone at the end: what is written there can be moved in whole.

        With `remove_dead` those go first that a killed process left.
        """
        if remove_dead:
            _remove_dead(self.destination)
        spare, fd = _begin(self.destination)
        try:
            yield spare
        finally:
            shutil.rmtree(spare, ignore_errors=True)
            os.close(fd)

    def _finish(self) -> None:
        sync_below(self.partial)
        if not _is_at(self._fd, str(self.partial)):
            raise OSError(errno.ESTALE, "the folder was taken away while it was written", str(self.partial))
        # Moving onto an empty folder is atomic; onto a full one it fails, whoever filled it meanwhile.
        os.rename(self.partial, self.destination)
        sync_below(self.destination.parent, deep=False)

    def _open(self, name: str) -> int:
        above = name.rpartition("/")[0]
        if above not in self._made:
            self._make(above)
        # Below the folder that is held, not below its name: were it taken away, this would fail and not begin anew.
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666, dir_fd=self._fd)

    def _make(self, folder: str) -> None:
        if folder not in self._made:
            self._make(folder.rpartition("/")[0])
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, dir_fd=self._fd)
            self._made.add(folder)

    def _refuse_full(self) -> None:
        if not os.path.lexists(self.destination):
            return
        if not self.destination.is_dir() or any(self.destination.iterdir()):
            raise PlaceNotEmpty(self.url)
        if os.path.ismount(self.destination):
            raise BadURL(
                self.url, "a file system is mounted here, which nothing can be moved onto: name a folder in it"
            )


class StoreFolder(Place):
    """A folder in an object store, where nothing can be moved: a mark under one name is written first and lifted last.

    Whoever would use the folder must fail at the mark.
    """

    costly = True

    def __init__(self, store: Store, marked: str) -> None:
        self.url = store.url
        self.mark = b""
        self._store = store
        self._marked = marked

    @contextlib.contextmanager
    def opened(self, mark: bytes) -> Iterator[StoreFolder]:
        """Write inside, and `lift` the mark at the end.

        `mark` then holds the one that stands there: this one, or another's that was left by a run which was cut off.
        The caller refuses that unless it would write the very same bytes under the same names: then it goes on.
        """
        if self.standing() is None:
            self._store.create(self._marked, mark)
        self.mark = self._store.get(self._marked)
        try:
            yield self
        except Damage:
            # Whoever else is at work on the same will meet with the same: nobody can have lifted the mark, or will.
            self._clear()
            raise

    def lift(self, data: bytes) -> None:
        """Put what belongs there in the place of the mark: now it counts."""
        self._store.put(self._marked, data)

    def write(self, name: str, data: Buffer) -> None:
        self._store.put(name, data)

    def write_stream(self, name: str, chunks: Iterable[Buffer]) -> None:
        self._store.write(name, chunks)

    def standing(self) -> bytes | None:
        """The mark that is there, or what has taken its place; None if the place is empty. Raises PlaceNotEmpty."""
        try:
            return self._store.get(self._marked)
        except ObjectMissing:
            # Folders first: a place that was named by mistake may hold millions of objects.
            if self._store.folders("") or self._there():
                raise PlaceNotEmpty(self.url) from None
        return None

    def _clear(self) -> None:
        self._store.delete(name for name in self._there() if name != self._marked)
        self._store.delete([self._marked])

    def _there(self) -> list[str]:
        # The empty object that stands for the folder itself has no name in it.
        return [info.key for info in self._store.list("") if info.key]


def lay_files(
    records: PipelineRecords,
    files: Mapping[str, Artifact],
    place: Place,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Write artifacts under their names, verified, and give how many files and bytes that were.

    Raises DamagedArtifact if a byte is not what was saved.
    """
    names: dict[Artifact, list[str]] = {}
    for name, artifact in files.items():
        names.setdefault(artifact, []).append(name)
    total = sum(artifact.size_bytes for artifact in files.values())
    _Laying(records, names, place, _Tally(progress, total)).run()
    return len(files), total


class _Tally:
    """Counts bytes from several threads and tells whoever wants to know."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._done += size
                self._progress("restoring", self._done, self._total)


class _Laying:
    """Small artifacts are read together and written as they come, large ones streamed beside them."""

    def __init__(self, records: PipelineRecords, names: Mapping[Artifact, list[str]], place: Place, tally: _Tally):
        self._records = records
        self._names = names
        self._place = place
        self._tally = tally

    def run(self) -> None:
        large = [a for a in self._names if a.path is not None and a.size_bytes >= STREAM_FROM]
        small = [a for a in self._names if a.path is None or a.size_bytes < STREAM_FROM]
        readers = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-restore")
        writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="holdfast-lay")
        try:
            streams = [readers.submit(self._stream, artifact) for artifact in large]
            loaded = load_artifacts(self._records.store, self._records.keys, small, readers)
            if self._place.costly:
                self._write_ahead(loaded, writers)
            else:
                for artifact, data in loaded:
                    self._write(artifact, data)
            for stream in streams:
                stream.result()
        finally:
            # After a failure what has not begun must not begin.
            readers.shutdown(cancel_futures=True)
            writers.shutdown(cancel_futures=True)

    def _write_ahead(self, loaded: Iterable[tuple[Artifact, bytes]], writers: ThreadPoolExecutor) -> None:
        under_way: deque[tuple[int, Future[None]]] = deque()
        waiting = 0
        for artifact, data in loaded:
            under_way.append((len(data), writers.submit(self._write, artifact, data)))
            waiting += len(data)
            while waiting > WAITING:
                size, written = under_way.popleft()
                written.result()
                waiting -= size
        for _, written in under_way:
            written.result()

    def _write(self, artifact: Artifact, data: bytes) -> None:
        for name in self._names[artifact]:
            self._place.write(name, data)
            self._tally.add(len(data))

    def _stream(self, artifact: Artifact) -> None:
        for name in self._names[artifact]:
            try:
                self._place.write_stream(name, self._counted(artifact, 1))
            except DamagedArtifact:
                # A bit can turn over on the way as well as in the store, and only the second is damage.
                self._place.write_stream(name, self._counted(artifact, 0))

    def _counted(self, artifact: Artifact, share: int) -> Iterator[bytes]:
        for chunk in stream_artifact(self._records.store, self._records.keys, artifact):
            yield chunk
            self._tally.add(len(chunk) * share)


def _begin(destination: Path) -> tuple[Path, int]:
    """A new folder beside the destination, and the descriptor that holds it."""
    while True:
        partial = _partial(destination, new_token())
        os.mkdir(partial)
        held = _hold(partial)
        if held is not None:
            return Path(partial), held


def _partial(destination: Path, token: str) -> str:
    name = destination.name
    if len(os.fsencode(name)) > LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return str(destination.with_name(f".{name}.{token}.partial"))


def _remove_dead(destination: Path) -> None:
    """Remove what killed restores to the same name have left; what may belong to a living one stays."""
    form = re.compile(re.escape(_partial(destination, "TOKEN")).replace("TOKEN", "[0-9a-f]{32}"))
    for path in map(str, destination.parent.iterdir()):
        if form.fullmatch(path) and (held := _hold(path, sure=True)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _hold(path: str, *, sure: bool = False) -> int | None:
    """Lock a folder for as long as the descriptor that is given back is open; None if another holds or removed it.

    Where the file system has no such locks, one's own folder is held all the same, and (`sure`) no other's is.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = _is_at(fd, path)
    except BlockingIOError:
        mine = False
    except OSError:
        mine = not sure
    if mine:
        return fd
    os.close(fd)
    return None


def _is_at(fd: int, path: str) -> bool:
    """Whether a path still leads to the folder that is open."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
