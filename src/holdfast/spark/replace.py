"""One file put in the place of a damaged one, whole or not at all; what was there is kept aside."""

from __future__ import annotations

import contextlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

from holdfast.ids import new_token
from holdfast.spark.intact import sidecar_of
from holdfast.spark.places import SparkPlace
from holdfast.store.contract import Buffer, Store
from holdfast.store.disk import Folder as OpenFolder
from holdfast.store.disk import failure, make_folders, sync, write_all

__all__ = ["Replacer", "open_replacer"]

ASIDE = "_holdfast/damaged"
DRAFTS = "_holdfast/healing"


class Replacer(ABC):
    """Writes into somebody else's directory, which nobody may be using."""

    def __init__(self, aside: str) -> None:
        self.aside = f"{ASIDE}/{aside}"
        """The folder in which what is replaced is kept."""

    @abstractmethod
    def replace(self, name: str, chunks: Iterable[Buffer], *, keep: bool) -> None:
        """Give a name these bytes, durably and at once; with `keep`, what it held is kept aside.

        Hadoop's checksum of what it held goes too: it would make the new bytes unreadable. When the chunks raise,
        nothing is changed.
        """

    @abstractmethod
    def drop_sidecar(self, name: str) -> None:
        """Take away Hadoop's checksum of a file that is intact without it."""

    def close(self) -> None:
        """Remove what was only needed on the way."""
        return


def open_replacer(place: SparkPlace, aside: str) -> Replacer:
    """What writes into a directory; `aside` names this healing among others."""
    folder = place.folder
    return _StoreReplacer(place.store(), aside) if folder is None else _LocalReplacer(folder, aside)


class _LocalReplacer(Replacer):
    """A draft on the same disk, synced and renamed. A crash leaves the old file or the new one, and maybe a draft."""

    def __init__(self, root: Path, aside: str) -> None:
        super().__init__(aside)
        self._root = str(root.absolute())
        found = root.stat()
        # Whoever runs the query must be able to write here afterwards, also when an administrator heals.
        self._owner = (found.st_uid, found.st_gid) if os.geteuid() == 0 else (-1, -1)

    def replace(self, name: str, chunks: Iterable[Buffer], *, keep: bool) -> None:
        path, draft = f"{self._root}/{name}", f"{self._root}/{DRAFTS}/{new_token()}"
        try:
            self._make_folders(os.path.dirname(draft))  # noqa: PTH120
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                for chunk in chunks:
                    write_all(fd, chunk)
                os.fchown(fd, *self._owner)
                sync(fd)
            finally:
                os.close(fd)
            if keep:
                self._keep(name)
            self.drop_sidecar(name)
            self._make_folders(os.path.dirname(path))  # noqa: PTH120
            os.replace(draft, path)  # noqa: PTH105
            OpenFolder(os.path.dirname(path)).sync()  # noqa: PTH120
        except OSError as error:
            raise failure(error, f"file:{self._root}", f"replace {name}") from error
        finally:
            Path(draft).unlink(missing_ok=True)

    def _make_folders(self, folder: str) -> None:
        if not os.path.isdir(folder):  # noqa: PTH112
            self._make_folders(os.path.dirname(folder))  # noqa: PTH120
            make_folders(folder)
            os.chown(folder, *self._owner)

    def _keep(self, name: str) -> None:
        """A second name for what is there: the first is only taken from it when the new bytes get it."""
        kept = f"{self._root}/{self.aside}/{name}"
        self._make_folders(os.path.dirname(kept))  # noqa: PTH120
        with contextlib.suppress(FileNotFoundError):
            try:
                os.link(f"{self._root}/{name}", kept)
            except FileExistsError:
                return
            except OSError:  # a file system without links
                shutil.copyfile(f"{self._root}/{name}", kept)

    def drop_sidecar(self, name: str) -> None:
        sidecar = sidecar_of(name)
        with contextlib.suppress(FileNotFoundError):
            self._keep(sidecar)
            os.unlink(f"{self._root}/{sidecar}")  # noqa: PTH108

    def close(self) -> None:
        shutil.rmtree(f"{self._root}/{DRAFTS}", ignore_errors=True)


class _StoreReplacer(Replacer):
    """One request puts an object in the place of another."""

    def __init__(self, store: Store, aside: str) -> None:
        super().__init__(aside)
        self._store = store

    def replace(self, name: str, chunks: Iterable[Buffer], *, keep: bool) -> None:
        # The first two decide: only what comes in one piece can be put with all the patience of a small request.
        passing = iter(chunks)
        begin = [*islice(passing, 2)]
        if keep:
            self._store.copy(name, f"{self.aside}/{name}")
        if len(begin) < 2:
            self._store.put(name, b"".join(begin))
        else:
            self._store.write(name, chain(begin, passing))

    def drop_sidecar(self, name: str) -> None:
        """There are none in an object store."""

    def close(self) -> None:
        self._store.close()
