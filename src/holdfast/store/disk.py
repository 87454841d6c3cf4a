"""The few moves on a local disk that durable writing is made of."""

# Plain os calls, not pathlib: every checkpoint waits for these, and Path objects cost more than the calls.
# ruff: noqa: PTH102, PTH112, PTH118, PTH120

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
from pathlib import Path

from holdfast.errors import AccessDenied, StoreFailure
from holdfast.store.contract import Buffer

__all__ = [
    "Folder",
    "Opened",
    "begin_writing_out",
    "failure",
    "make_folders",
    "read_range",
    "sync",
    "sync_below",
    "write_all",
]

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_SYNC_FILE_SYSTEM = getattr(ctypes.CDLL(None), "syncfs", None)
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_BEGIN_WRITING = 2
WORTH_BEGINNING = 256 * 1024


def sync(fd: int) -> None:
    """Have a file or folder on disk, not in a cache of the system or of the drive."""
    if _FULL_SYNC is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, _FULL_SYNC)  # on macOS fsync stops at the drive's cache


class Opened:
    """A file open for reading; its descriptor is closed when the last user lets go of it."""

    __slots__ = ("fd",)

    def __init__(self, path: str, flags: int = 0) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Folder(Opened):
    """An open folder."""

    __slots__ = ()

    def __init__(self, path: str) -> None:
        super().__init__(path, os.O_DIRECTORY)

    def sync(self) -> None:
        sync(self.fd)

    def removed(self) -> bool:
        try:
            return os.fstat(self.fd).st_nlink == 0
        except OSError:
            return True


def make_folders(path: str, *, durable: bool = True) -> None:
    """Make a folder and those above it that are missing, each entered durably in the one above.

    Without `durable` the caller syncs them all afterwards, which costs one flush and not one for each. Raises
    FileNotFoundError when somebody removes one of them meanwhile: the caller tries again.
    """
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folders(above, durable=durable)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    if durable:
        Folder(above).sync()


def sync_below(root: Path, *, deep: bool = True) -> None:
    """Have a folder on disk and, if `deep`, all that is below it.

    On Linux in one call for the whole file system, which costs far less than one for each of thousands of files.
    """
    if deep and _SYNC_FILE_SYSTEM is not None:
        fd = os.open(root, os.O_RDONLY)
        try:
            if _SYNC_FILE_SYSTEM(fd) == 0:
                return
        finally:
            os.close(fd)
    below = (os.path.join(folder, name) for folder, _, files in os.walk(root) for name in (*files, ""))
    for place in below if deep else [os.fspath(root)]:
        fd = os.open(place, os.O_RDONLY)
        try:
            sync(fd)
        finally:
            os.close(fd)


def begin_writing_out(fd: int, size: int) -> None:
    """Have the system begin to write a file to the disk, and not wait for it: the sync to come then has less to do."""
    if _SYNC_FILE_RANGE is not None and size >= WORTH_BEGINNING:
        _SYNC_FILE_RANGE(fd, ctypes.c_int64(0), ctypes.c_int64(0), _BEGIN_WRITING)


def write_all(fd: int, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def read_range(fd: int, offset: int, length: int) -> bytes:
    """Up to `length` bytes from `offset` on; fewer only where the file ends."""
    data = os.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    parts, got = [data], len(data)
    while got < length and (more := os.pread(fd, length - got, offset + got)):
        parts.append(more)
        got += len(more)
    return b"".join(parts)


def failure(error: OSError, url: str, action: str) -> AccessDenied | StoreFailure:
    """Our name for an error of the operating system."""
    kind = AccessDenied if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else StoreFailure
    return kind(url, action, str(error))
