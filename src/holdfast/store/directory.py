"""Somebody else's files: a folder that another program writes, purges and overwrites while we look at it.

A store keeps bytes under names that only Holdfast writes; here nothing is ours, so every look and every read says
which version of a file it saw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import BadValue
from holdfast.store.keys import check_key

__all__ = ["Directory", "FileStat", "Look", "check_within", "is_leftover"]


class FileStat(NamedTuple):
    """The size of a file, a stamp of its version, and when it was written, by the clock of where it lies.

    Another stamp may mean other bytes, the same one never does. Times only compare with others of the same directory;
    in a cloud they are whole seconds.
    """

    size: int
    stamp: str
    modified_ns: int


class Look(ABC):
    """What lies in a directory, or in a folder of it, seen once: a later change shows only in another look.

    Names are relative to the directory and `/`-separated, without a slash at the end; "" is the directory itself. Looks
    may be lazy: whoever needs an order of events asks in that order. Hadoop's sidecars (`.NAME.crc`), temporary files
    (`.NAME.UUID.tmp`) and empty markers of folders are left out. What lies outside of the folder that was looked at
    raises BadValue: it was not seen, and must not pass for absent.
    """

    @abstractmethod
    def files(self, folder: str) -> dict[str, FileStat | None]:
        """The files right in a folder, by their plain name; none if there is no such folder.

        None stands where a stat would cost a request of its own: `stat` has it.
        """

    @abstractmethod
    def folders(self, folder: str) -> list[str]:
        """The plain names of the folders right in a folder, sorted; none if there is no such folder.

        A folder without files is there on a disk, and may not be in a cloud.
        """

    @abstractmethod
    def leftovers(self, folder: str) -> list[str]:
        """The plain names of what `files` leaves out of a folder, sorted: sidecars and temporary files."""

    @abstractmethod
    def stat(self, name: str) -> FileStat | None:
        """One file, or None if it is not there."""


class Directory(ABC):
    """A folder of another program, read only. Safe from several threads.

    A directory that is not there is an empty one. A place that can't be looked at raises a StoreError.
    """

    url: str
    """Where it lies, without any secret: an address that opens it again."""

    costly: bool
    """Whether each read is a request that is worth a thread of its own."""

    @abstractmethod
    def look(self, folder: str = "") -> Look:
        """What is there now, at `folder` and below."""

    @abstractmethod
    def folders(self, folder: str = "") -> list[str]:
        """The plain names of the folders right in a folder now, sorted; what lies deeper costs nothing."""

    @abstractmethod
    def read(self, name: str) -> tuple[bytes, FileStat]:
        """A file's bytes and the version that they are of. Raises ObjectMissing if it is gone.

        Bytes and stat are of one version: a file that was replaced while it was read gives the old one or the new one.
        ChangedWhileRead is raised when one was written to in place, again and again.
        """

    @abstractmethod
    def stream(self, name: str) -> tuple[FileStat, Iterator[bytes]]:
        """The same in chunks, for large files.

        The chunks are of the version that the stat tells, or the iterator raises: ChangedWhileRead, and ObjectMissing
        where a file that is gone can't be read to its end. So nothing counts before it has ended.
        """

    def close(self) -> None:
        """Let go of what is held open."""
        return


def is_leftover(name: str) -> bool:
    """Whether this is a file of Hadoop's own making beside the real ones. Spark's checksums (`NAME.crc`) are real."""
    return name.startswith(".") and name.endswith((".crc", ".tmp"))


def check_within(folder: str, name: str) -> str:
    """Give a name back if a look at `folder` covers it; raise BadValue, or BadName where it names nothing at all."""
    if name:
        check_key(name)
    if folder and name != folder and not name.startswith(f"{folder}/"):
        raise BadValue(f"a look at {folder!r}", f"{name!r} lies outside of it")
    return name
