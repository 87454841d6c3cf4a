"""Somebody else's files on the local disk, or on whatever is mounted there."""

# Plain os calls, as in disk.py: a capture asks for every file of hundreds of folders.
# ruff: noqa: PTH100, PTH110, PTH112, PTH116

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from holdfast.errors import ChangedWhileRead, ObjectMissing, StoreFailure
from holdfast.store.directory import Directory, FileStat, Look, check_within, is_leftover
from holdfast.store.disk import Opened, failure, read_range
from holdfast.store.keys import check_key

__all__ = ["LocalDirectory"]

PIECE = 1024 * 1024
"""How much is read at a time: what is hashed next is then still in the processor's cache."""
ATTEMPTS = 5


class LocalDirectory(Directory):
    """Files below `root`, which need not be there.

    A stamp is the time of the last change and the number of the inode: a file that takes another's place has another.
    Only what is replaced twice, or written to in place, within one tick of the file system's clock (some 4 ms) can show
    an old stamp again. Holds no lock, and nothing open but streams.
    """

    costly = False

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self.url = f"file:{self._root}"

    def look(self, folder: str = "") -> Look:
        return _LocalLook(self, check_within("", folder))

    def folders(self, folder: str = "") -> list[str]:
        return sorted(self.names(check_within("", folder), os.DirEntry.is_dir))

    def read(self, name: str) -> tuple[bytes, FileStat]:
        path = f"{self._root}/{check_key(name)}"
        try:
            for _ in range(ATTEMPTS):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    before = os.fstat(fd)
                    data = read_range(fd, 0, before.st_size)
                    after = os.fstat(fd)
                finally:
                    os.close(fd)
                if _is_whole(len(data), before, after):
                    return data, _stat(before)
        except OSError as error:
            self._tolerate(error, "read", name)
            raise ObjectMissing(self.url, name) from error
        raise ChangedWhileRead(self.url, name)

    def stream(self, name: str) -> tuple[FileStat, Iterator[bytes]]:
        try:
            file = Opened(f"{self._root}/{check_key(name)}")
            before = os.fstat(file.fd)
            if stat.S_ISDIR(before.st_mode):
                raise ObjectMissing(self.url, name)
        except OSError as error:
            self._tolerate(error, "read", name)
            raise ObjectMissing(self.url, name) from error
        return _stat(before), self._chunks(name, file, before)

    def _chunks(self, name: str, file: Opened, before: os.stat_result) -> Iterator[bytes]:
        size = 0
        try:
            while size < before.st_size and (chunk := read_range(file.fd, size, min(PIECE, before.st_size - size))):
                yield chunk
                size += len(chunk)
            after = os.fstat(file.fd)
        except OSError as error:
            raise failure(error, self.url, f"read {name}") from error
        if not _is_whole(size, before, after):
            raise ChangedWhileRead(self.url, name)

    def names(self, folder: str, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        """What is right in a folder now; nothing if it is not there."""
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                return [entry.name for entry in entries if wanted(entry)]
        except OSError as error:
            self._tolerate(error, "list", folder)
            return []

    def stat(self, name: str) -> FileStat | None:
        """A file as it is now, or None."""
        try:
            found = os.stat(f"{self._root}/{name}")
        except OSError as error:
            self._tolerate(error, "stat", name)
            return None
        return _stat(found) if stat.S_ISREG(found.st_mode) else None

    def _tolerate(self, error: OSError, action: str, name: str) -> None:
        """Return if the error says that nothing is there; else raise what it means."""
        if isinstance(error, FileNotFoundError):
            return
        if not isinstance(error, NotADirectoryError | IsADirectoryError):
            raise failure(error, self.url, f"{action} {name}") from error
        # A file where the whole directory should be is a mistake in the address, and not an empty directory.
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise StoreFailure(self.url, f"{action} {name}", "this is a file, and no directory") from error


class _LocalLook(Look):
    """Asks the disk each time."""

    def __init__(self, directory: LocalDirectory, folder: str) -> None:
        self._directory = directory
        self._folder = folder

    def files(self, folder: str) -> dict[str, FileStat | None]:
        names = self._directory.names(check_within(self._folder, folder), os.DirEntry.is_file)
        return {name: None for name in names if not is_leftover(name)}

    def folders(self, folder: str) -> list[str]:
        return self._directory.folders(check_within(self._folder, folder))

    def leftovers(self, folder: str) -> list[str]:
        names = self._directory.names(check_within(self._folder, folder), os.DirEntry.is_file)
        return sorted(name for name in names if is_leftover(name))

    def stat(self, name: str) -> FileStat | None:
        return self._directory.stat(check_within(self._folder, name))


def _stat(found: os.stat_result) -> FileStat:
    return FileStat(found.st_size, f"{found.st_mtime_ns:x}.{found.st_ino:x}", found.st_mtime_ns)


def _is_whole(size: int, before: os.stat_result, after: os.stat_result) -> bool:
    return size == before.st_size == after.st_size and before.st_mtime_ns == after.st_mtime_ns
