"""A store in a folder of the local file system, with writes that survive a power cut.

An object is written to a temporary file, synced, linked to its name, and the folder synced. A link never replaces, so
it is the create-if-absent; and no reader ever sees a part.
"""

# Plain os calls, as in disk.py.
# ruff: noqa: PTH100, PTH105, PTH106, PTH108, PTH118, PTH120, PTH123

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from holdfast.errors import BadName, ObjectMissing, StoreFailure
from holdfast.store.contract import Buffer, ObjectInfo, Store
from holdfast.store.disk import Folder, failure, make_folders, read_range, sync, write_all
from holdfast.store.keys import check_key, check_prefix
from holdfast.store.temporaries import TemporaryFile, remove_orphans

__all__ = ["FileStore"]

TEMPORARIES = ".holdfast-tmp"
PIECE = 1024 * 1024
"""How much is read at a time: what is hashed next is then still in the processor's cache."""
OPEN_FOLDERS = 100
ATTEMPTS = 100


class FileStore(Store):
    """Objects as files below `root`, which is made at the first write and not before.

    Holds no lock, so it goes on working in a forked child. Deleting is not synced: after a power cut a removed object
    may be back.
    """

    takes_parts = True
    can_vanish = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self.url = Path(self._root).as_uri()
        self._temporaries = os.path.join(self._root, TEMPORARIES)
        # Folders whose own entry is known to be on disk. An open descriptor shows when its folder was removed, a
        # remembered name would not: somebody may have made it again since, and not synced it yet.
        self._synced: dict[str, Folder] = {}
        remove_orphans(self._temporaries)

    def create(self, key: str, data: Buffer) -> bool:
        path = self._path(key)
        with self._failures("create", key), self._temporary() as temporary:
            write_all(temporary.fd, data)
            sync(temporary.fd)
            while not self._link(temporary, path):
                with contextlib.suppress(FileNotFoundError), open(path, "rb", buffering=0) as held:
                    if held.read() != data:
                        return False
                    break
            # Also when another writer made it: it may not have come to this yet, and our caller will count on it.
            self._sync_folder(os.path.dirname(path))
        return True

    def put(self, key: str, data: Buffer) -> None:
        path = self._path(key)
        with self._failures("put", key), self._temporary() as temporary:
            write_all(temporary.fd, data)
            self._into_folder(path, lambda: os.replace(temporary.path, path))

    def get(self, key: str) -> bytes:
        with self._reading("get", key), open(self._path(key), "rb", buffering=0) as file:
            return file.read()

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._reading("get", key), open(self._path(key), "rb", buffering=0) as file:
            return [read_range(file.fileno(), offset, length) for offset, length in ranges]

    def folders(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        with self._failures("list", prefix):
            found = (entry.name for entry in self._entries(prefix) if entry.is_dir())
            return sorted(name for name in found if self._holds_objects(f"{prefix}{name}/"))

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        check_prefix(prefix)
        with self._failures("list", prefix):
            return sorted(self._walk(prefix, start_after))

    def delete(self, keys: Iterable[str]) -> None:
        emptied: set[str] = set()
        for key in keys:
            path = self._path(key)
            with (
                self._failures("delete", key),
                contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError),
            ):
                os.unlink(path)
                emptied.add(os.path.dirname(path))
        for folder in emptied:
            # Fails at the first folder that still holds something. A writer whose folder goes away makes it again.
            with contextlib.suppress(OSError):
                while folder != self._root:
                    os.rmdir(folder)
                    folder = os.path.dirname(folder)

    def copy(self, source: str, target: str) -> None:
        origin, path = self._path(source), self._path(target)
        with self._failures("copy", source), self._temporary() as temporary:
            with self._reading("copy", source):
                shutil.copyfile(origin, temporary.path)
            sync(temporary.fd)
            self._into_folder(path, lambda: os.replace(temporary.path, path))
            self._sync_folder(os.path.dirname(path))

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        path = self._path(key)
        size = 0
        with self._failures("write", key):
            temporary = self._temporary()
        with temporary:
            for chunk in chunks:  # what this raises is the caller's own, and no failure of the store
                with self._failures("write", key):
                    write_all(temporary.fd, chunk)
                size += len(chunk)
            with self._failures("write", key):
                sync(temporary.fd)
                if not self._link(temporary, path):
                    raise StoreFailure(self.url, f"write {key}", "the key is taken")
                self._sync_folder(os.path.dirname(path))
        return size

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._reading("read", key), open(self._path(key), "rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size - offset
            left = left if length is None else min(left, length)
            while left > 0 and (chunk := read_range(file.fileno(), offset, min(left, PIECE))):
                yield chunk
                offset += len(chunk)
                left -= len(chunk)

    def close(self) -> None:
        self._synced.clear()

    def _path(self, key: str) -> str:
        if check_key(key).startswith(f"{TEMPORARIES}/"):
            raise BadName("object in a store", key)
        return f"{self._root}/{key}"

    def _temporary(self) -> TemporaryFile:
        try:
            return TemporaryFile(self._temporaries)
        except FileNotFoundError:
            make_folders(self._temporaries)
            return TemporaryFile(self._temporaries)

    def _link(self, temporary: TemporaryFile, path: str) -> bool:
        """Give the file its name; False when that is taken."""
        try:
            self._into_folder(path, lambda: os.link(temporary.path, path))
        except FileExistsError:
            return False
        return True

    def _into_folder(self, path: str, act: Callable[[], None]) -> None:
        """Act on a path whose folder may be missing, or be pruned by somebody between its making and the act."""
        for _ in range(ATTEMPTS):
            try:
                return act()
            except FileNotFoundError:
                # Whoever wants the object durable syncs its folder and all above it afterwards.
                with contextlib.suppress(FileNotFoundError):
                    make_folders(os.path.dirname(path), durable=False)
        return act()

    def _sync_folder(self, folder: str) -> None:
        held = self._synced.get(folder)
        if held is not None and not held.removed():
            held.sync()
            return
        try:
            held = Folder(folder)
        except FileNotFoundError:
            return  # all in it was deleted already, by somebody who saw it
        held.sync()
        if folder != self._root:
            self._sync_folder(os.path.dirname(folder))
        if len(self._synced) >= OPEN_FOLDERS:
            self._synced.clear()
        self._synced[folder] = held

    def _entries(self, prefix: str) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(f"{self._root}/{prefix}") as entries:
                return [entry for entry in entries if prefix or entry.name != TEMPORARIES]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _walk(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        for entry in self._entries(prefix):
            key = prefix + entry.name
            if entry.is_dir():
                folder = f"{key}/"
                # Every key in a folder that sorts before `start_after`, and is not on its path, sorts before it too.
                if folder > start_after or start_after.startswith(folder):
                    yield from self._walk(folder, start_after)
            elif key > start_after:
                with contextlib.suppress(FileNotFoundError):  # deleted while we walked
                    yield ObjectInfo(key, entry.stat().st_size)

    def _holds_objects(self, prefix: str) -> bool:
        return any(
            not entry.is_dir() or self._holds_objects(f"{prefix}{entry.name}/") for entry in self._entries(prefix)
        )

    @contextlib.contextmanager
    def _reading(self, action: str, key: str) -> Iterator[None]:
        with self._failures(action, key):
            try:
                yield
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise ObjectMissing(self.url, key) from None

    @contextlib.contextmanager
    def _failures(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise failure(error, self.url, f"{action} {key}") from error
